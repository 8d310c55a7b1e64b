"""The objects in a dataset -> those that cannot be pickled to workers."""

from __future__ import annotations

from collections.abc import Iterator

from fastpipe.diagnosis.findings import Finding, Severity
from fastpipe.diagnosis.observation import Observation


def check(seen: Observation) -> Iterator[Finding]:
    """Lambdas, local functions and local classes in the dataset, collate_fn and worker_init_fn."""
    found = seen.facts["unpicklable"]
    if not found or seen.facts["method"] == "fork" or seen.num_workers == 0:
        return  # nobody pickles them
    first = found[0]
    more = f", and {len(found) - 1} more: {', '.join(each['path'] for each in found[1:4])}" if len(found) > 1 else ""
    yield Finding(
        "lambda",
        Severity.BAD,
        f"{first['path']} is {first['kind']}{more}",
        "pickle cannot store lambdas, or functions and classes that are defined inside a function; with the start "
        f"method {seen.facts['method']}, workers get the dataset by pickle",
        "define it with a name at the top level of a module, or use functools.partial",
        first["place"],
        10,
    )
