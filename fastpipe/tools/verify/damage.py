"""The result of a check of a dataset: a Damage for each problem, and a Report of all."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Damage:
    """One thing that is wrong."""

    file: str  # at fault; its name in the dataset's folder
    problem: str
    expected: str = ""  # in words, like `got`; "" where the problem says it all
    got: str = ""
    # The first sample that is lost or cannot be trusted; None: the damage is of no single sample.
    sample: int | None = None
    samples: int = 0  # how many are, from that one on
    # The offset of the sample or member in which the damage was seen, where it is known.
    offset: int | None = None
    # Of a single sample, where they are known: its source path, as `data["key"]` has it, and its
    # name in the shard.
    key: str | None = None
    member: str | None = None

    def __str__(self) -> str:
        """One line: file, byte, sample, problem."""
        where = self.file
        if self.offset is not None:
            where += f", byte {self.offset}"
        if self.sample is not None and self.samples > 1:
            last_sample = self.sample + self.samples - 1
            where += f", samples {self.sample} to {last_sample}"
        elif self.sample is not None:
            where += f", sample {self.sample}"
            names = []
            if self.key:
                names.append(self.key)
            if self.member:
                names.append(f"member {self.member}")
            if names:
                where += f" ({', '.join(names)})"
        values = ""
        if self.expected or self.got:
            values = f": expected {self.expected}, got {self.got}"
        return f"{where}: {self.problem}{values}"


@dataclass(frozen=True)
class Report:
    """The findings of a check, and what it has covered."""

    path: str  # the dataset's folder or URL
    quick: bool  # no shard was read
    samples: int = 0  # in the dataset; 0 where dataset.json cannot be read
    samples_unread: int = 0  # that could not be read, so that they were not checked
    shards: int = 0
    bytes: int = 0  # of the shards, as far as they were read
    seconds: float = 0.0
    findings: list[Damage] = field(default_factory=list)  # file by file

    @property
    def sound(self) -> bool:
        return not self.findings

    def bad_samples(self) -> list[tuple[int, int]]:
        """The damaged samples as runs (first, last), in order; none is in two runs."""
        ranges = []
        for damage in self.findings:
            if damage.sample is not None:
                last = damage.sample + damage.samples - 1
                ranges.append((damage.sample, last))
        runs: list[tuple[int, int]] = []
        for first, last in sorted(ranges):
            if runs:
                run_first, run_last = runs[-1]
                if first <= run_last + 1:
                    runs[-1] = (run_first, max(run_last, last))
                    continue
            runs.append((first, last))
        return runs

    def as_dict(self) -> dict[str, Any]:
        bad_samples = [list(run) for run in self.bad_samples()]
        return {**asdict(self), "sound": self.sound, "bad_samples": bad_samples}
