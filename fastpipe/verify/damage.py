"""The result of a check of a dataset: one Damage for each problem, and a Report of all."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Damage:
    """One thing that is wrong.

    Attributes:
        file: name of the file that is at fault, in the dataset's folder.
        problem: what is wrong.
        expected, got: in words; "" where the problem says it all.
        sample: number of the first sample that is lost or cannot be trusted; None: no sample is concerned by itself.
        samples: how many are, from that one on.
        offset: of the first byte concerned in the file; None where it is not known.
        key: WebDataset key of the first sample, where it is known.
    """

    file: str
    problem: str
    expected: str = ""
    got: str = ""
    sample: int | None = None
    samples: int = 0
    offset: int | None = None
    key: str | None = None

    def __str__(self) -> str:
        """One line: file, sample, place, what is wrong."""
        where = self.file
        if self.offset is not None:
            where += f", byte {self.offset}"
        if self.sample is not None and self.samples > 1:
            where += f", samples {self.sample} to {self.sample + self.samples - 1}"
        elif self.sample is not None:
            where += f", sample {self.sample}" + (f" (key {self.key})" if self.key else "")
        values = f": expected {self.expected}, got {self.got}" if self.expected or self.got else ""
        return f"{where}: {self.problem}{values}"

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Report:
    """What a check came to.

    Attributes:
        path: the dataset's folder.
        quick: no shard was read.
        samples, shards: in the dataset; 0 where dataset.json cannot be read.
        bytes: of the shards, as far as they were read.
        seconds: the check took.
        findings: what is wrong, file by file.
    """

    path: str
    quick: bool
    samples: int = 0
    shards: int = 0
    bytes: int = 0
    seconds: float = 0.0
    findings: list[Damage] = field(default_factory=list)

    @property
    def sound(self) -> bool:
        """Whether nothing is wrong."""
        return not self.findings

    def bad_samples(self) -> Iterator[tuple[int, int]]:
        """The samples concerned as runs (first, last), in order, none twice."""
        runs = sorted(
            (found.sample, found.sample + found.samples - 1) for found in self.findings if found.sample is not None
        )
        first, last = None, -1
        for start, end in runs:
            if first is None or start > last + 1:
                if first is not None:
                    yield first, last
                first, last = start, end
            last = max(last, end)
        if first is not None:
            yield first, last

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            **asdict(self),
            "sound": self.sound,
            "bad_samples": [list(run) for run in self.bad_samples()],
            "findings": [found.as_dict() for found in self.findings],
        }
