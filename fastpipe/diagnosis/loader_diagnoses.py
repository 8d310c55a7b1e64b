"""Observations of a command's DataLoaders -> a Diagnosis of each; errors -> findings."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fastpipe.diagnosis.ended import explain_ending, is_worker_gone
from fastpipe.diagnosis.findings import Code, Finding, Severity
from fastpipe.diagnosis.inject.fastpipe_probe.loader_facts import identify_loader
from fastpipe.diagnosis.observation import Observation, Program, Surroundings
from fastpipe.diagnosis.report import Diagnosis, make_diagnosis
from fastpipe.diagnosis.source.files import read_line, split_place
from fastpipe.diagnosis.stacks import Stack

_MAX_LOADERS = 4
_MAX_LETTERS = 1000


@dataclass(frozen=True)
class Stall:
    """A DataLoader that gives no more batches."""

    key: str  # of its files
    finding: Finding
    stacks: list[Stack]


@dataclass(frozen=True)
class LoaderDiagnosis:
    """A DataLoader and its diagnosis."""

    observation: Observation
    diagnosis: Diagnosis

    def rank(self) -> tuple[int, int, int]:
        """Ranks the worst loader first: worst finding, most findings, most batches."""
        severities = list(Severity)
        findings = self.diagnosis.findings
        stages = self.diagnosis.stages
        indices = [severities.index(finding.severity) for finding in findings]
        batch_count = stages.batches if stages is not None else 0
        return min(indices, default=len(severities)), -len(findings), -batch_count


def diagnose_loaders(
    observations: list[Observation],
    programs: list[Program],
    stall: Stall | None,
    surroundings: Surroundings,
    folder: Path,
) -> list[LoaderDiagnosis]:
    """Diagnoses each DataLoader that ran.

    Clears the programs' errors that were those of a DataLoader.
    """
    by_pid = {program.pid: program for program in programs}
    # A worker that has run the script again says so in its own file.
    unguarded = ""
    for program in programs:
        if program.unguarded:
            unguarded = program.unguarded
            break
    diagnosed = []
    for observation in observations:
        # A process that was forked has no file of its own.
        program = by_pid.get(observation.facts["pid"], Program())
        errors = list(observation.errors)
        if observation.num_workers:
            for ending in program.errors:
                if is_worker_gone(ending):
                    errors.append(ending)
        if errors:
            program.errors.clear()
        findings: list[Finding] = []
        stacks: list[Stack] = []
        # The reason that is known best comes first: the main guard, then a stall, then an error.
        has_stalled = stall is not None and stall.key == observation.key
        if stall is not None and has_stalled:
            findings = [stall.finding]
            stacks = stall.stacks
        if unguarded and observation.num_workers:
            findings = [_report_no_main_guard(unguarded, observation)]
        elif errors and not has_stalled:
            findings = explain_ending(
                observation, errors[0], surroundings.oom_kills, folder
            )
        if observation.batches or errors or findings or len(observations) == 1:
            diagnosis = make_diagnosis(
                observation, surroundings, more=tuple(findings), stacks=tuple(stacks)
            )
            diagnosed.append(LoaderDiagnosis(observation, diagnosis))
    return diagnosed


def choose_worst(diagnosed: list[LoaderDiagnosis]) -> tuple[Diagnosis, ...]:
    """Chooses the worst diagnoses, and of one line's loaders in several processes only one."""
    worst: dict[object, Diagnosis] = {}
    for entry in sorted(diagnosed, key=LoaderDiagnosis.rank):
        worst.setdefault(identify_loader(entry.observation.facts), entry.diagnosis)
    return tuple(worst.values())[:_MAX_LOADERS]


def _report_no_main_guard(place: str, observation: Observation) -> Finding:
    _, line = split_place(place)
    return Finding(
        Code.NO_MAIN_GUARD,
        place,
        what=f"each worker runs the script again, comes to line {line}, "
        f"and would start workers itself: {read_line(place)}",
        why=f"with the start method {observation.facts['method']} (not only on macOS and Windows), "
        "workers import the main script",
        change=f"put line {line}, and all that belongs to the training, "
        'under if __name__ == "__main__":',
        section=10,
    )


def report_program_error(text: str, place: str) -> Finding:
    return Finding(
        Code.ERROR,
        place,
        what=f"the program ended with {text[:_MAX_LETTERS]}",
        why="it ended in a line of its own, not in a DataLoader",
        change="correct this line first",
    )


def report_option_error(error: dict[str, str]) -> Finding:
    """`error` has the error of torch and the line that made the loader."""
    if "num_workers > 0" in error["error"]:  # torch's words
        why = "these options need workers, and there are none"
        change = "prefetch_factor=4 if num_workers else None, persistent_workers=num_workers > 0"
        section = 11
    else:
        why = "see torch's message"
        change = "change these options"
        section = 0
    return Finding(
        Code.REFUSED_OPTIONS,
        error["made_at"],
        what=f"torch refused to create a DataLoader: {error['error']}",
        why=why,
        change=change,
        section=section,
    )
