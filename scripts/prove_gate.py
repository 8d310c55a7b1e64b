"""How many faults do the tests catch? Puts faults into a copy of the checkout, one at a time, and runs the tests on it.

    python scripts/prove_gate.py lines                   first: which test file runs which line (build/proof/lines.json)
    python scripts/prove_gate.py replays [--count 80]    takes mends of faults back: of the last commits that changed
                                                         the product and added to the tests, those whose product
                                                         part still applies in reverse
    python scripts/prove_gate.py mutations [--count 60] [--seed 0]   small changes, drawn at random
    python scripts/prove_gate.py report                  the tables of what was found so far, as Markdown

Each fault is tried with the gate's test files that run a changed line, the nearest first, until one fails; then with
those of the long tier that are near by imports. `--gate` leaves the long tier out, which takes long: another run
without it goes on with what the gate has not caught. `--whole` runs all tests of both tiers where these find nothing.

What was found is kept in build/proof/*.jsonl: a run that was interrupted goes on. A fault that changes nothing a user
can see is put aside by hand: write `"equivalent": true` into its line.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from mutations import Mutation, mutations_of
from nearest_tests import files_by_distance

ROOT = Path(__file__).resolve().parent.parent
PROOF = ROOT / "build" / "proof"
CLONE = PROOF / "checkout"
LINES = PROOF / "lines.json"
PYTHON = ROOT / ".venv" / "bin" / "python"
LONG = "tests/long/"
TEST_TIMEOUT_S = 600
_MOST_CHARACTERS = 240  # of a test's name and of what it said
GATE, LONG_TIER, NOTHING = "gate", "long tier", "nothing"
NOT_BY_GATE = "not by the gate"  # and the long tier was not asked
# Of the text of a test file that has other processes run the product.
STARTS_PROCESSES = (
    "support.programs",
    "support.workers",
    "support.faults",
    "subprocess",
    "DataLoader(",
    "fork(",
)
ELSEWHERE = (
    "csrc/third_party/",
    "_neon.cc",
)  # not ours, or not compiled for this machine's processor


@dataclass
class Outcome:
    """What became of one fault."""

    fault: str
    caught_by: str
    test: str
    seconds: float
    equivalent: bool = False


# ------------------------------------------------------------------------------------------------ the copy


def run(
    *words: object, timeout_s: float = TEST_TIMEOUT_S, check: bool = True
) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": f"{CLONE}:{CLONE / 'tests'}"}
    environment["FASTPIPE_OBJECTS"] = str(PROOF / "objects")
    command = [str(word) for word in words]
    return subprocess.run(
        command,
        cwd=CLONE,
        env=environment,
        capture_output=True,
        text=True,
        check=check,
        timeout=timeout_s,
    )


def make_clone(commit: str) -> None:
    """A commit, in a folder of its own, with an engine of its own."""
    if not CLONE.exists():
        subprocess.run(["git", "clone", "--quiet", ROOT, CLONE], check=True)
        (CLONE / ".venv").symlink_to(ROOT / ".venv")
        shared = CLONE.parent / "shared"
        if not shared.exists() and (ROOT.parent / "shared").exists():
            shared.symlink_to(ROOT.parent / "shared")
    run("git", "fetch", "--quiet", "origin", "HEAD")
    wanted = run("git", "-C", ROOT, "rev-parse", commit).stdout.strip()
    run("git", "checkout", "--quiet", "--force", "--detach", wanted)
    take_back()
    build_engine()


def take_back() -> None:
    """The copy as it was committed, with its engine."""
    had_native = any(
        path.startswith("csrc/")
        for path in run("git", "diff", "--name-only", "HEAD").stdout.split()
    )
    run("git", "checkout", "--quiet", "--force", "HEAD")
    run("git", "clean", "--quiet", "--force", "-d")
    if had_native:
        build_engine()


def build_engine() -> bool:
    """Whether it compiles."""
    return run(PYTHON, "setup.py", "-q", "build_ext", "--inplace", check=False).returncode == 0


# ------------------------------------------------------------------------------------------------ which tests


def note_lines() -> None:
    """Runs the gate under coverage; a context is a test file (tests/support/running/lines.py)."""
    settings = PROOF / "coveragerc"
    settings.write_text(
        "[run]\nsource_pkgs = fastpipe\nparallel = true\npatch = subprocess\n"
        f"data_file = {PROOF / 'data' / 'coverage'}\n[report]\nskip_covered = true\n"
    )
    shutil.rmtree(PROOF / "data", ignore_errors=True)
    (PROOF / "data").mkdir()
    coverage = [PYTHON, "-m", "coverage"]
    tests = run(
        *coverage,
        "run",
        f"--rcfile={settings}",
        "-m",
        "pytest",
        "-q",
        "-n",
        "auto",
        timeout_s=7200,
        check=False,
    )
    print("\n".join(tests.stdout.splitlines()[-3:]))
    run(*coverage, "combine", f"--rcfile={settings}", check=False)
    print(
        run(*coverage, "report", f"--rcfile={settings}", "--format=total").stdout.strip(),
        "% of lines run",
    )
    run(*coverage, "json", f"--rcfile={settings}", "--show-contexts", "-o", PROOF / "coverage.json")
    files = json.loads((PROOF / "coverage.json").read_text())["files"]
    lines = {
        name: {line: sorted(filter(None, contexts)) for line, contexts in file["contexts"].items()}
        for name, file in files.items()
    }
    LINES.write_text(json.dumps(lines))


def tests_for(changed: dict[str, set[int]]) -> tuple[list[str], list[str]]:
    """(of the gate, of the long tier), the most promising first, for {file: changed lines}.

    The gate's files that run a changed line; and those that are near by imports, if they run it in a program, where
    nothing is noted, or if nothing is known of the line: it runs at import, or is C++.
    """
    near = files_by_distance(set(changed), CLONE)
    running: set[str] = set()
    if LINES.exists():
        lines = json.loads(LINES.read_text())
        for name, numbers in changed.items():
            for number in numbers:
                running.update(lines.get(name, {}).get(str(number), []))
    gate = []
    for path in near:
        is_needed = path in running or not running or starts_programs(path)
        if is_needed and not path.startswith(LONG):
            gate.append(path)
    gate += sorted(running - set(gate))
    return gate, [path for path in near if path.startswith(LONG)]


def starts_programs(path: str) -> bool:
    text = (CLONE / path).read_text()
    return any(word in text for word in STARTS_PROCESSES)


def first_failure(tests: list[str]) -> str:
    """The first test that fails, and why; "" if none does. Files go to pytest in parts, the most promising first."""
    parts = [tests[:6], tests[6:30], tests[30:]]
    # A worker that a fault has ended is not replaced: pytest-xdist can wait for ever after -x.
    command = [
        PYTHON,
        "-m",
        "pytest",
        "-q",
        "-x",
        "-n",
        "2",
        "--max-worker-restart=0",
        "-p",
        "no:cacheprovider",
    ]
    for part in filter(None, parts):
        try:
            done = run(*command, *part, check=False)
        except subprocess.TimeoutExpired:
            return "(the tests hang)"
        if done.returncode not in (0, 5):
            failed = [
                line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))
            ]
            if not failed:
                return f"(pytest ended with {done.returncode})"
            return failed[0].split(" ", 1)[-1][:_MOST_CHARACTERS]
    return ""


# ------------------------------------------------------------------------------------------------ faults


def replays(count: int) -> Iterator[tuple[str, str, dict[str, set[int]]]]:
    """(name, patch that takes the mend back, changed lines), for each commit whose product part still applies."""
    commits = run("git", "log", "--no-merges", "--format=%H").stdout.split()
    seen = 0
    for commit in commits:
        paths = run(
            "git", "diff-tree", "--no-commit-id", "--name-only", "-r", commit
        ).stdout.split()
        product = [
            path
            for path in paths
            if path.startswith(("fastpipe/", "csrc/")) and not path.endswith(".md")
        ]
        if not product or not adds_checks(commit):
            continue
        seen += 1
        if seen > count:
            return
        patch = run("git", "diff", f"{commit}^", commit, "--", *product).stdout
        (PROOF / "patch").write_text(patch)
        if (
            run("git", "apply", "-R", "-C1", "--check", PROOF / "patch", check=False).returncode
            != 0
        ):
            continue
        subject = run("git", "log", "-1", "--format=%h %s", commit).stdout.strip()
        run("git", "apply", "-R", "-C1", PROOF / "patch")
        changed = changed_lines()
        take_back()
        yield subject, patch, changed


def adds_checks(commit: str) -> bool:
    """Whether the commit adds to the tests: then it mends or adds something, and does not only move it."""
    diff = run("git", "diff", "-U0", f"{commit}^", commit, "--", "tests").stdout.splitlines()
    lines = [line for line in diff if line[:1] in "+-" and not line.startswith(("+++", "---"))]
    lines = [line for line in lines if not line[1:].lstrip().startswith(("from ", "import "))]
    return sum(1 if line.startswith("+") else -1 for line in lines) > 0


def changed_lines() -> dict[str, set[int]]:
    """By file: lines of the last commit that the working tree changes."""
    found: dict[str, set[int]] = defaultdict(set)
    path = ""
    for line in run("git", "diff", "-U0", "HEAD").stdout.splitlines():
        if line.startswith("--- "):
            path = line[6:]
        elif line.startswith("@@"):
            first, _, length = line.split()[1][1:].partition(",")
            found[path] |= set(range(int(first), int(first) + max(1, int(length or 1)) + 1))
    return dict(found)


def drawn_mutations(count: int, seed: int) -> list[Mutation]:
    paths = run("git", "ls-files", "fastpipe/*.py", "csrc/*.cc", "csrc/*.h").stdout.split()
    mine = [path for path in paths if not any(part in path for part in ELSEWHERE)]
    everything = [mutation for path in mine for mutation in mutations_of(CLONE / path)]
    return random.Random(seed).sample(everything, count)


def judged(name: str, changed: dict[str, set[int]], options: argparse.Namespace) -> Outcome:
    """Runs the tests on the clone as it is now."""
    begun = time.monotonic()

    def outcome(caught_by: str, test: str) -> Outcome:
        return Outcome(name, caught_by, test, round(time.monotonic() - begun, 1))

    if any(path.startswith("csrc/") for path in changed) and not build_engine():
        return outcome(GATE, "(does not compile)")
    gate, long = tests_for(changed)
    if test := first_failure(gate):
        return outcome(GATE, test)
    if options.whole and (test := first_failure(["tests"])):
        return outcome(GATE, test)
    if options.gate:
        return outcome(NOT_BY_GATE, "")
    if test := first_failure(long):
        return outcome(LONG_TIER, test)
    if options.whole and (test := first_failure(["tests/long"])):
        return outcome(LONG_TIER, test)
    return outcome(NOTHING, "")


# ------------------------------------------------------------------------------------------------ what was found


def kept(file: Path) -> dict[str, Outcome]:
    if not file.exists():
        return {}
    outcomes = [Outcome(**json.loads(line)) for line in file.read_text().splitlines()]
    return {outcome.fault: outcome for outcome in outcomes}


def keep(file: Path, outcome: Outcome) -> None:
    with open(file, "a") as lines:
        lines.write(json.dumps(asdict(outcome)) + "\n")
    print(
        f"{outcome.caught_by:10} {outcome.seconds:6.0f} s  {outcome.fault}  {outcome.test}",
        flush=True,
    )


def report() -> None:
    for file in sorted(PROOF.glob("*.jsonl")):
        outcomes = [outcome for outcome in kept(file).values() if not outcome.equivalent]
        counts = Counter(outcome.caught_by for outcome in outcomes)
        shares = ", ".join(
            f"{name} {counts[name]}" for name in (GATE, LONG_TIER, NOT_BY_GATE, NOTHING)
        )
        print(f"\n## {file.stem}: {len(outcomes)} faults; caught by: {shares}\n")
        print("| fault | caught by | test |\n|---|---|---|")
        for outcome in outcomes:
            print(f"| {outcome.fault.replace('|', '/')} | {outcome.caught_by} | {outcome.test} |")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["lines", "replays", "mutations", "report"])
    parser.add_argument("--count", type=int, help="how many commits (80) or mutations (60)")
    parser.add_argument("--seed", type=int, default=0, help="of the mutations that are drawn")
    parser.add_argument("--gate", action="store_true", help="do not ask the long tier")
    parser.add_argument(
        "--whole", action="store_true", help="run all tests where the near ones find nothing"
    )
    parser.add_argument(
        "--commit", default="HEAD", help="to try faults on: mutations are drawn from its files"
    )
    options = parser.parse_args()
    PROOF.mkdir(parents=True, exist_ok=True)
    if options.what == "report":
        report()
        return
    lock = open(PROOF / "lock", "w")  # noqa: SIM115 (held until the program ends)
    fcntl.flock(lock, fcntl.LOCK_EX)  # two programs would change one copy
    make_clone(options.commit)
    if options.what == "lines":
        note_lines()
        return
    file = PROOF / f"{options.what}.jsonl"
    done = kept(file)
    if not options.gate:
        done = {name: outcome for name, outcome in done.items() if outcome.caught_by != NOT_BY_GATE}
    if options.what == "replays":
        for name, patch, changed in replays(options.count or 80):
            if name not in done:
                (PROOF / "patch").write_text(patch)
                run("git", "apply", "-R", "-C1", PROOF / "patch")
                keep(file, judged(name, changed, options))
                take_back()
        return
    for mutation in drawn_mutations(options.count or 60, options.seed):
        path = str(mutation.path.relative_to(CLONE))
        text = mutation.path.read_text()
        old = text[mutation.start : mutation.end].strip() or "()"
        name = f"{path}:{mutation.line} {mutation.kind}: `{' '.join(old.split())}` -> `{mutation.new.strip()}`"
        if name not in done:
            mutation.path.write_text(mutation.apply(text))
            keep(file, judged(name, {path: {mutation.line}}, options))
            take_back()


if __name__ == "__main__":
    sys.exit(main())
