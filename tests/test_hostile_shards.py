"""Tests of shards that are not what was packed: changed, swapped, cut, linked, or named like a command."""

from __future__ import annotations

import ast
import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from soak import Tried

import fastpipe
from fastpipe.errors import DatasetError, SampleError
from fastpipe.format import DATASET_FILE

Copy = Callable[[Path], Path]
SHARD = "shard-000000.tar"
PACKAGE = Path(__file__).resolve().parents[1] / "fastpipe"


def batch(dataset: Path) -> torch.Tensor:
    options = {"batch_size": 23, "size": 16, "train": False, "shuffle": False, "num_workers": 2}
    with fastpipe.loader(dataset, **options) as loader:  # type: ignore[arg-type]
        return next(iter(loader))[0]


def assert_refused(dataset: Path, reason: str) -> None:
    """By the loader and for a single sample."""
    with pytest.raises(SampleError, match=reason) as caught:
        batch(dataset)
    assert caught.value.shard.startswith(str(dataset))
    with pytest.raises(SampleError, match=reason):
        fastpipe.Dataset(dataset)[0]


def rename(dataset: Path, name: str) -> None:
    info = json.loads((dataset / DATASET_FILE).read_text())
    info["shards"][0]["name"] = name
    (dataset / DATASET_FILE).write_text(json.dumps(info))


def test_cut_short_anywhere(textured: Path, copied: Copy) -> None:
    dataset = copied(textured)
    size = (dataset / SHARD).stat().st_size
    for length in sorted({0, 1, 511, 512, size // 3, size // 2, size - 1}, reverse=True):
        os.truncate(dataset / SHARD, length)
        assert_refused(dataset, f"not the one that was packed: expected {size} bytes, found {length}")
    os.truncate(dataset / SHARD, size + 1)
    assert_refused(dataset, "not the one that was packed")


def test_a_shard_of_another_pack(textured: Path, copied: Copy) -> None:
    """Of the same size, with zeros for pictures, or with all of them moved."""
    dataset = copied(textured)
    whole = (dataset / SHARD).read_bytes()
    (dataset / SHARD).write_bytes(bytes(len(whole)))
    assert_refused(dataset, "not a JPEG")
    (dataset / SHARD).write_bytes(whole[512:] + whole[:512])
    assert_refused(dataset, "JPEG")


def test_every_sample_after_bits_were_flipped(textured: Path, copied: Copy) -> None:
    dataset = copied(textured)
    true = batch(dataset)
    whole = (dataset / SHARD).read_bytes()
    places = []
    for first in range(0, 97 * 40, 97):
        flipped = bytearray(whole)
        for at in range(first, len(whole), 97 * 40):
            flipped[at] ^= 1 << first % 8
        (dataset / SHARD).write_bytes(flipped)
        try:
            assert batch(dataset).shape == true.shape
        except SampleError as problem:
            places.append(problem.shard)
    assert len(places) > 5
    assert set(places) == {str(dataset / SHARD)}


@pytest.mark.parametrize(
    "name", ["../shard-000000.tar", "/etc/hostname", "a/b.tar", "", ".", "..", "pipe:touch planted/x", "a\0b"]
)
def test_names_that_lead_elsewhere(textured: Path, copied: Copy, name: str) -> None:
    dataset = copied(textured)
    rename(dataset, name)
    with pytest.raises(DatasetError, match="the name of a file in the dataset's folder"):
        fastpipe.open(dataset)


@pytest.mark.parametrize(
    "name", ["pipe:touch planted", "|touch planted", "; touch planted", "$(touch planted)", "`touch planted`", "-", "~"]
)
def test_names_are_never_commands(
    textured: Path, copied: Copy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    dataset = copied(textured)
    true = batch(dataset)
    rename(dataset, name)
    assert_refused(dataset, "cannot be opened: No such file")
    (dataset / SHARD).rename(dataset / name)  # a name like any other
    assert torch.equal(batch(dataset), true)
    assert not list(tmp_path.rglob("planted"))


def test_what_is_no_regular_file(textured: Path, copied: Copy) -> None:
    dataset = copied(textured)
    shard = dataset / SHARD
    kept = shard.rename(dataset / "kept")
    made: list[tuple[Callable[[], object], str]] = [
        (lambda: shard.mkdir(), "expected a regular file"),
        (lambda: os.mkfifo(shard), "expected a regular file"),
        (lambda: shard.symlink_to("/dev/zero"), "expected a regular file"),
        (lambda: shard.symlink_to("/dev/null"), "expected a regular file"),
        (lambda: shard.symlink_to("nowhere"), "No such file"),
        (lambda: shard.symlink_to(SHARD), "cannot be opened"),
        (lambda: shard.symlink_to("."), "expected a regular file"),
        (lambda: shard.symlink_to(__file__), "not the one that was packed"),
    ]
    for make, reason in made:
        make()
        assert_refused(dataset, reason)
        shard.rmdir() if shard.is_dir() and not shard.is_symlink() else shard.unlink()
    shard.symlink_to(kept)  # whole shards may lie on other disks
    assert torch.equal(batch(dataset), batch(textured))


def test_a_shard_that_shrinks_while_it_is_open(textured: Path, copied: Copy, tried: Tried) -> None:
    """Of a Dataset; tests/test_loader_faults.py has the loader's."""
    dataset = copied(textured)
    samples = fastpipe.Dataset(dataset)
    assert samples[0][0].shape[0] == 3
    os.truncate(dataset / SHARD, 100)
    with pytest.raises(SampleError, match="beyond the end of the shard"):
        samples[1]
    tried("a shard that shrinks while a Dataset has it open", 1, "a SampleError; no SIGBUS")


def calls(tree: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node


def test_the_package_runs_no_code_of_its_data() -> None:
    """No pickle, no eval, no shell; arrays without objects. That `dangers` finds each is shown too."""
    for source in sorted(PACKAGE.rglob("*.py")):
        assert not list(dangers(source.read_text())), source
    found = list(
        dangers(
            "import pickle, marshal as m\nfrom shelve import open\neval('1'); exec(x); os.system('a'); torch.load(f)\n"
            "np.load(f); np.load(f, allow_pickle=True); subprocess.run('a', shell=True)\nos.popen('a')\n"
        )
    )
    assert len(found) == 11


def dangers(source: str) -> Iterator[str]:
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [each.name for each in node.names]
            yield from (name for name in names if re.match(r"(c?pickle|dill|marshal|shelve|joblib)\b", name))
    for name, call in calls(tree):
        options = {option.arg: ast.unparse(option.value) for option in call.keywords}
        if name in ("eval", "exec", "compile", "torch.load", "os.system", "os.popen", "subprocess.getoutput"):
            yield name
        if name in ("np.load", "numpy.load") and options.get("allow_pickle") != "False":
            yield name
        if "shell" in options:
            yield f"{name}(shell=...)"
