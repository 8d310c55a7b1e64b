"""The result of a check of a dataset: one Damage for each problem, and a Report of all."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Damage:
    """One thing that is wrong."""

    file: str  # at fault; its name in the dataset's folder
    problem: str
    expected: str = ""  # in words, and so is `got`; "" where the problem says it all
    got: str = ""
    sample: int | None = None  # the first one that is lost or cannot be trusted; None: none is concerned by itself
    samples: int = 0  # how many are, from that one on
    offset: int | None = None  # of the first byte concerned in the file, where it is known
    key: str | None = None  # WebDataset key of the first sample, where it is known

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


@dataclass(frozen=True)
class Report:
    """What a check came to."""

    path: str  # the dataset's folder or URL
    quick: bool  # no shard was read
    samples: int = 0  # in the dataset; 0 where dataset.json cannot be read
    shards: int = 0
    bytes: int = 0  # of the shards, as far as they were read
    seconds: float = 0.0
    findings: list[Damage] = field(default_factory=list)  # file by file

    @property
    def sound(self) -> bool:
        return not self.findings

    def bad_samples(self) -> list[tuple[int, int]]:
        """The samples concerned as runs (first, last), in order, none twice."""
        runs: list[tuple[int, int]] = []
        for start, count in sorted((each.sample, each.samples) for each in self.findings if each.sample is not None):
            first, last = start, start + count - 1
            if runs and start <= runs[-1][1] + 1:
                first, last = runs[-1][0], max(runs.pop()[1], last)
            runs.append((first, last))
        return runs

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "sound": self.sound, "bad_samples": [list(run) for run in self.bad_samples()]}
