"""bench/run.py on pictures of each kind, with peers that run in this environment; and the processes that it starts."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import psutil
import pytest
from support.checkout import ROOT
from support.datasets.growing import photos

sys.path.append(str(ROOT))  # last, so that fastpipe is the one under test

from bench import contest, roster, run
from bench.contest import RunError


@pytest.mark.parametrize(
    "names",
    [
        "torchvision-png,torchvision-png-unpacked",
        "torchvision-small,ffcv-small",
        "fastpipe-colour,fastpipe-colour-coefficients",
    ],
    ids=["png", "small", "gray"],
)
def test_other_pictures_than_photos_in_colour(
    names: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The peers run in this environment; FFCV is in none."""
    monkeypatch.setattr(contest, "python", lambda _: sys.executable)
    monkeypatch.setattr(
        run, "missing", lambda peer: "not here" if peer.environment == "ffcv" else None
    )
    photos(tmp_path / "photos", 24)
    options = {
        "peers": names,
        "samples": 48,
        "batch-size": 4,
        "size": 16,
        "seconds": 0.1,
        "warmup": 0,
        "rounds": 1,
    }
    folders = {"pack-rounds": 0, "work": tmp_path / "work", "out": tmp_path / "out"}
    run.main(
        [
            str(tmp_path / "photos"),
            *(f"--{name}={value}" for name, value in {**options, **folders}.items()),
        ]
    )
    found = json.loads((tmp_path / "out" / "results.json").read_text())
    for duel in found["duels"]:
        assert duel.get("missing") == ("not here" if duel["name"] == "ffcv-small" else None)
        if "missing" not in duel:
            assert duel["ratio"] > 0
            assert found["bytes"][duel["data"]] > 0
    assert len(list((tmp_path / "work" / roster.SMALL).glob("*/*.png"))) == (
        8 * 48 if "small" in names else 0
    )
    table = (tmp_path / "out" / "results.md").read_text()
    assert all(duel["label"] in table for duel in found["duels"])


def say(text: str) -> list[str]:
    return [sys.executable, "-c", text]


def test_a_run_gives_the_object_that_it_ends_with(tmp_path: Path) -> None:
    work = "print('noise'); import json; print(json.dumps({'a': {'b': 1}}, indent=1))"
    assert contest.run(say(work), "", tmp_path, 20) == {"a": {"b": 1}}


def test_a_run_that_fails_says_its_last_words(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="ended with code 3: the end"):
        contest.run(
            say("import sys; print('the end', file=sys.stderr); sys.exit(3)"), "", tmp_path, 20
        )
    with pytest.raises(RunError, match="gave no results within 0 s"):
        contest.run(say("import time; time.sleep(60)"), "", tmp_path, 0.2)


def lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_run_takes_its_workers_with_it(tmp_path: Path) -> None:
    """They would take CPU time from the next one."""
    work = """
        import json, os, subprocess, sys
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        print(json.dumps({"child": child.pid}), flush=True)
        os._exit(0)
    """
    program = "\n".join(line[8:] for line in work.splitlines())
    child = contest.run(say(program), "", tmp_path, 20)["child"]
    deadline = time.monotonic() + 300
    while lives(child):
        assert time.monotonic() < deadline, "the worker lives on"
        time.sleep(0.05)
