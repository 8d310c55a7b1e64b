"""What forked workers have from the process that they were forked from -> files that several of them read at once."""

from __future__ import annotations

from collections.abc import Iterator

from fastpipe.diagnosis.code import assigned_at
from fastpipe.diagnosis.findings import Finding, Severity
from fastpipe.diagnosis.observation import Observation
from fastpipe.diagnosis.words import count


def shared(seen: Observation) -> list[dict[str, str]]:
    """The files and handles that two workers or more use: a single worker has them to itself."""
    if seen.num_workers < 2:
        return []
    users: dict[str, set[int]] = {}
    held: dict[str, dict[str, str]] = {}
    for worker in seen.workers:
        for each in worker.inherited:
            users.setdefault(each["path"], set()).add(worker.number)
            held[each["path"]] = each
    failed = any(worker.failures for worker in seen.workers)  # the first error may end them all
    return [held[path] for path, numbers in users.items() if len(numbers) > 1 or failed]


def check(seen: Observation) -> Iterator[Finding]:
    """A file, an archive or a database that was opened before the workers were forked."""
    found = shared(seen)
    if not found:
        return
    first = found[0]
    name = f" ({first['file']})" if first["file"] else ""
    more = f", and {len(found) - 1} more: {', '.join(each['path'] for each in found[1:4])}" if len(found) > 1 else ""
    what = f"{first['path']} is an open {first['kind']}{name}{more}: {count(seen.num_workers, 'worker')} share it"
    failures = [failure for worker in seen.workers for failure in worker.failures]
    if failures:
        what += f"; reading sample {failures[0]['sample']} raised {failures[0]['error']}"
    yield Finding(
        "shared-file",
        Severity.BAD,
        what,
        "forked workers share the position in an open file: one moves it while another reads, so samples are wrong, or "
        "another one raises an error each time. The files are good"
        if first["file"]
        else "this library's handles do not work in a process that was forked: samples are wrong, or raise errors",
        "set it to None in __init__, and open it when a worker first uses it: if self.f is None: self.f = open(...); "
        "or use os.pread, which has no position",
        assigned_at(first["path"], first["place"]) if first["place"] else str(seen.facts["dataset_place"]),
        16,
    )
