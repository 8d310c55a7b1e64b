"""Files that workers share, and errors of samples and of collate_fn -> findings."""

from __future__ import annotations

from collections.abc import Iterator

from fastpipe.diagnosis.error_causes import find_error_cause
from fastpipe.diagnosis.findings import Code, Finding
from fastpipe.diagnosis.observation import Observation
from fastpipe.diagnosis.source.places import find_assignment
from fastpipe.errors import format_count

_UNEQUAL = "equal size"  # torch's words for samples that do not fit into one batch
_MAX_NAMED = 3  # further files that a sentence lists


def check(observation: Observation) -> Iterator[Finding]:
    """Finds files that workers share; else errors of samples, which such a file could explain."""
    failures = [
        failure for worker in observation.workers for failure in worker.failures
    ]
    shared = _list_shared_files(observation, has_failed=bool(failures))
    if shared:
        yield _report_shared_file(observation, shared, failures)
    elif failures:
        yield _report_failed_sample(observation, failures)


def _list_shared_files(
    observation: Observation, *, has_failed: bool
) -> list[dict[str, str]]:
    """Lists the inherited files and handles that two or more workers use."""
    if observation.num_workers < 2:
        return []  # a single worker has them to itself
    users: dict[str, set[int]] = {}  # path -> numbers of the workers that use it
    latest: dict[str, dict[str, str]] = {}
    for worker in observation.workers:
        for file in worker.inherited:
            users.setdefault(file["path"], set()).add(worker.number)
            latest[file["path"]] = file
    # The first error may end the other workers before they report the file, so then one is enough.
    least = 1 if has_failed else 2
    shared = []
    for path, file in latest.items():
        if len(users[path]) >= least:
            shared.append(file)
    return shared


def _report_shared_file(
    observation: Observation,
    shared: list[dict[str, str]],
    failures: list[dict[str, str]],
) -> Finding:
    first = shared[0]
    symptom = f"{first['path']} is an open {first['kind']}"
    if first["file"]:
        symptom += f" ({first['file']})"
    other_files = shared[1 : 1 + _MAX_NAMED]
    others = ", ".join(file["path"] for file in other_files)
    if others:
        symptom += f", and {others}"
    symptom += f": {format_count(observation.num_workers, 'worker')} share it"
    if failures:
        symptom += (
            f"; reading sample {failures[0]['sample']} raised {failures[0]['error']}"
        )
    where = find_assignment(first["path"], first["place"])
    return Finding(
        Code.SHARED_FILE,
        where or str(observation.facts["dataset_place"]),
        what=symptom,
        why="forked workers share a file's position or a database's handle: "
        "samples are wrong, or fail; the file is good",
        change="open it in the worker, when first used: if self.f is None: self.f = open(...), "
        "and read no sample, such as dataset[0], before the loop starts its workers; "
        "or os.pread, without a position",
        section=16,
    )


def _report_failed_sample(
    observation: Observation, failures: list[dict[str, str]]
) -> Finding:
    """Explains the first error: by the machine, by the sample or by collate_fn."""
    first = failures[0]
    in_collate = first["failed"] == "collate"
    symptom = _describe_failure(first)
    where = first["place"] or str(observation.facts["dataset_place"])

    cause = find_error_cause(first["error"])
    if cause is not None:
        if cause.code is Code.SMALL_SHARED_MEMORY:
            where = observation.made_at
        return cause.make_finding(symptom, where)

    failed_samples = {failure["sample"] for failure in failures}
    other_count = len(failed_samples) - 1
    if other_count:
        symptom += f"; {other_count:,} more samples raised errors"
    if any(worker.read_again for worker in observation.workers):
        return _report_passing_error(symptom, where)
    if not in_collate:
        return _report_bad_sample(symptom, where, is_mistake=bool(first.get("mistake")))
    if _UNEQUAL in first["error"]:
        return _report_unequal_samples(symptom, where, observation.made_at)
    return _report_bad_collate(symptom, where)


def _describe_failure(failure: dict[str, str]) -> str:
    """Says which sample, or which samples of a batch, raised which error."""
    if failure["failed"] == "collate":
        return (
            f"collate_fn, of the samples {failure['sample']}, raised {failure['error']}"
        )
    name = ""
    if failure["name"]:
        name = f" ({failure['name']})"
    return f"reading sample {failure['sample']}{name} raised {failure['error']}"


def _report_passing_error(symptom: str, where: str) -> Finding:
    return Finding(
        Code.PASSING_ERROR,
        where,
        what=f"{symptom}; read once more, the same sample raised none",
        why="the error comes and goes, as with a network, a disk, "
        "or a file or connection that several processes use",
        change="open files and connections in the worker that uses them; "
        "try a read over a network again before it fails",
        section=13,
    )


def _report_bad_sample(symptom: str, where: str, *, is_mistake: bool) -> Finding:
    if is_mistake:
        change = "correct this line: it does not take this input"
    else:
        change = (
            "repair or leave out this sample; "
            "or catch the error in __getitem__ and raise it with the file's name"
        )
    return Finding(
        Code.BAD_SAMPLE,
        where,
        what=symptom,
        why="an error in a worker ends the epoch, and its message does not name the sample",
        change=change,
        section=13,
    )


def _report_unequal_samples(symptom: str, where: str, made_at: str) -> Finding:
    return Finding(
        Code.UNEQUAL_SAMPLES,
        where,
        what=symptom,
        why="collate_fn makes a batch of samples that do not fit together",
        change="return samples of one shape and type (resize or pad them), "
        f"or give DataLoader ({made_at}) another collate_fn",
        section=13,
    )


def _report_bad_collate(symptom: str, where: str) -> Finding:
    return Finding(
        Code.BAD_COLLATE,
        where,
        what=symptom,
        why="collate_fn does not take what __getitem__ returned for these samples: "
        "None, nothing, or another form",
        change="look at these samples; leave out in the dataset, or in collate_fn, "
        "what cannot be in a batch",
        section=13,
    )
