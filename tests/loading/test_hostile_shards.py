"""Tests of shards that are not what was packed: changed, swapped, cut, linked, or named like a command."""

from __future__ import annotations

import ast
import json
import os
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from support.checkout import ROOT
from support.running.soak import Tried, times

import fastpipe
from fastpipe.dataset.format.layout import DATASET_FILE
from fastpipe.errors import DatasetError, SampleError
from fastpipe.tools.verify.verification import verify

Copy = Callable[[Path], Path]
SHARD = "shard-000000.tar"
PACKAGE = ROOT / "fastpipe"


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
        fastpipe.open(dataset)[0]


def rename(dataset: Path, name: str) -> None:
    info = json.loads((dataset / DATASET_FILE).read_text())
    info["shards"][0]["name"] = name
    (dataset / DATASET_FILE).write_text(json.dumps(info))


def test_cut_short_at_any_byte(textured: Path, copied: Copy, tried: Tried) -> None:
    dataset = copied(textured)
    size = (dataset / SHARD).stat().st_size
    lengths = random.Random(7).sample(range(size), min(times(60, 200_000), size))
    for length in sorted(lengths, reverse=True):
        os.truncate(dataset / SHARD, length)
        with pytest.raises(SampleError, match=f"expected {size} bytes, found {length}"):
            fastpipe.open(dataset)[length % 23]
    tried("a shard truncated", len(lengths), "a named error")


def test_a_shard_of_another_pack(textured: Path, copied: Copy) -> None:
    """Of the same size, with zeros for pictures, or with all of them moved."""
    dataset = copied(textured)
    whole = (dataset / SHARD).read_bytes()
    (dataset / SHARD).write_bytes(bytes(len(whole)))
    assert_refused(dataset, "not a JPEG")
    (dataset / SHARD).write_bytes(whole[512:] + whole[:512])
    assert_refused(dataset, "JPEG")


def test_other_pictures_under_an_old_index(textured: Path, copied: Copy, tried: Tried) -> None:
    """Of the same sizes in the same places: only the hashes tell, which verify=True and `fastpipe verify` look at."""
    dataset = copied(textured)
    true, index = batch(dataset), fastpipe.open(dataset).index
    whole = bytearray((dataset / SHARD).read_bytes())
    for sample in range(
        23
    ):  # another last quantisation step: every picture decodes, to other pixels
        whole[whole.index(b"\xff\xdb", int(index.records["offset"][sample])) + 5] ^= 1
    (dataset / SHARD).write_bytes(whole)
    assert batch(dataset).shape == true.shape
    with (
        fastpipe.loader(dataset, 23, size=16, train=False, num_workers=2, verify=True) as loader,
        pytest.raises(
            SampleError, match="the bytes have changed since they were packed: expected XXH3-64"
        ),
    ):
        next(iter(loader))
    report = verify(dataset)
    assert list(report.bad_samples()) == [(0, 22)]
    assert {found.file for found in report.findings} == {SHARD}
    tried(
        "a shard of the same size with other pictures",
        1,
        "verify=True and fastpipe verify name each sample",
    )


def test_every_sample_after_bits_were_flipped(textured: Path, copied: Copy, tried: Tried) -> None:
    dataset = copied(textured)
    true = batch(dataset)
    whole = (dataset / SHARD).read_bytes()
    places, count = [], times(40, 1000)
    for first in range(0, 97 * count, 97):
        flipped = bytearray(whole)
        for at in range(first, len(whole), 97 * 40):  # in nearly every sample
            flipped[at] ^= 1 << first % 8
        (dataset / SHARD).write_bytes(flipped)
        try:
            assert batch(dataset).shape == true.shape
        except SampleError as problem:
            places.append(problem.shard)
    assert len(places) > 5
    assert set(places) == {str(dataset / SHARD)}
    tried("bits flipped all over a shard, loaded", count, "a named error, or pictures that decode")


@pytest.mark.parametrize(
    "name",
    [
        "../shard-000000.tar",
        "/etc/hostname",
        "a/b.tar",
        "",
        ".",
        "..",
        "pipe:touch planted/x",
        "a\0b",
    ],
)
def test_names_that_lead_elsewhere(textured: Path, copied: Copy, name: str) -> None:
    dataset = copied(textured)
    rename(dataset, name)
    with pytest.raises(DatasetError, match="expected a file name without a folder"):
        fastpipe.open(dataset)


@pytest.mark.parametrize(
    "name",
    [
        "pipe:touch planted",
        "|touch planted",
        "; touch planted",
        "$(touch planted)",
        "`touch planted`",
        "-",
        "~",
    ],
)
def test_names_are_never_commands(
    textured: Path, copied: Copy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    dataset = copied(textured)
    true = batch(dataset)
    rename(dataset, name)
    with pytest.raises(DatasetError, match="1 of 1 shard is missing: "):
        batch(dataset)
    with pytest.raises(SampleError, match="cannot be opened: No such file"):
        fastpipe.open(dataset)[0]
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
        (lambda: shard.symlink_to(__file__), "the shard has changed since it was packed"),
    ]
    for make, reason in made:
        make()
        assert_refused(dataset, reason)
        shard.rmdir() if shard.is_dir() and not shard.is_symlink() else shard.unlink()
    shard.symlink_to(kept)  # whole shards may lie on other disks
    assert torch.equal(batch(dataset), batch(textured))


def test_a_shard_that_shrinks_while_it_is_open(textured: Path, copied: Copy, tried: Tried) -> None:
    """Of a Dataset; tests/loading/test_loader_faults.py has the loader's."""
    dataset = copied(textured)
    samples = fastpipe.open(dataset)
    assert samples[0][0].shape[0] == 3
    os.truncate(dataset / SHARD, 100)
    with pytest.raises(SampleError, match="beyond the end of the shard"):
        samples[1]
    tried("a shard that shrinks while a Dataset has it open", 1, "a SampleError; no SIGBUS")


def test_the_package_runs_no_code_of_its_data() -> None:
    """No pickle, no eval, no shell; arrays without objects. That `dangers` finds each is shown too."""
    sources = sorted(PACKAGE.rglob("*.py"))
    assert {source.parent.name for source in sources} > {
        "fastpipe",
        "packing",
        "verify",
        "cli",
        "augment",
        "bench",
    }
    for source in sources:
        name = str(source.relative_to(PACKAGE))
        allowed = {"subprocess"} if name in STARTS_PROCESSES else IMPORTS_BY_NAME.get(name, set())
        assert set(dangers(source.read_text())) == allowed, source
    found = [danger for line in DANGEROUS.splitlines() for danger in dangers(line)]
    assert len(found) == len(DANGEROUS.splitlines()), found


# `fastpipe bench` and the doctor run Python itself, to measure; and a diagnosis runs the command that it is given.
STARTS_PROCESSES = {
    "tools/bench/measure.py",
    "tools/doctor/libjpeg_simd.py",
    "diagnosis/command.py",
}
IMPORTS_BY_NAME = {
    "__init__.py": {"importlib.import_module"},  # the public names' modules, from a table there
    "sources/picture/pillow.py": {
        "importlib.import_module"
    },  # Pillow's plugins, from a table there
    # The only member of an .npz, into memory and of a bounded size; it writes nothing.
    "dataset/format/array_containers.py": {"zipfile"},
    "diagnosis/inject/fastpipe_probe/generators.py": {
        "pickle"
    },  # checksums of states; never loads one
    "diagnosis/inject/fastpipe_probe/worker_hazards.py": {
        "pickle"
    },  # asks which objects it refuses; never loads one
}
DANGEROUS = """\
import pickle
import marshal as m
from shelve import open
from pickle import loads
import subprocess
from subprocess import run
import pty
eval('1')
exec(x)
compile(x, '', 'eval')
__import__(x)
importlib.import_module(x)
builtins.eval(x)
os.system('a')
os.popen('a')
os.execvp('a', [])
os.spawnl(0, 'a')
os.posix_spawn('a', [], {})
from os import system
torch.load(f)
pandas.read_pickle(f)
yaml.load(f)
np.load(f)
np.load(f, allow_pickle=True)
numpy.load(f, None, False)
from numpy import load
np.lib.format.read_array(f)
np.save(f, x)
x.open(shell=True)
tar.extractall()
tar.extract(x)
tarfile.open(x)
shutil.unpack_archive(x)
"""
MODULES = r"(c?pickle|dill|cloudpickle|marshal|shelve|joblib|subprocess|pty|code|codeop|runpy|tarfile|zipfile)\b"
COMMANDS = r"(system|popen|exec[lv]\w*|spawn\w*|posix_spawn\w*|fork\w*|startfile)$"
CALLS = (
    r"(eval|exec|compile|__import__|builtins\..*|torch\.load|yaml\.load|tarfile\.open"
    r"|(.*\.)?(import_module|read_pickle|extract(all)?|unpack_archive))$|os\." + COMMANDS
)
ARRAYS = r"(np|numpy)\.(load|save|savez|lib\.format\.(read|write)_array)$"


def dangers(source: str) -> Iterator[str]:
    """What of a program's text might run code, or write where the data say. A line of DANGEROUS has one each."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names if re.match(MODULES, name.name))
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            names = [name.name for name in node.names]
            bad = re.match(MODULES, module) or (
                module == "os" and any(re.match(COMMANDS, name) for name in names)
            )
            if bad or (module == "numpy" and {"load", "save"} & set(names)):
                yield module
        elif isinstance(node, ast.Call):
            name = dotted(node.func)
            options = {option.arg: option.value for option in node.keywords}
            objects = re.match(ARRAYS, name) and not is_false(options.get("allow_pickle"))
            if re.match(CALLS, name) or objects or "shell" in options:
                yield name


def dotted(function: ast.expr) -> str:
    """The name of a function as a program writes it; "?" stands for what is no name."""
    if isinstance(function, ast.Attribute):
        return f"{dotted(function.value)}.{function.attr}"
    return function.id if isinstance(function, ast.Name) else "?"


def is_false(value: ast.expr | None) -> bool:
    return isinstance(value, ast.Constant) and value.value is False
