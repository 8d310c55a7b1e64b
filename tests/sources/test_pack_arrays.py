"""Arrays in sources: members of tars, files that a table names, numbers in a table."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from support.programs.cli_run import succeeded
from support.sources.pack_sources import jpeg_bytes
from support.sources.tars import write_tar

import fastpipe
from fastpipe.tools.verify.verification import verify

COUNT = 9


def latent_of(number: int) -> NDArray[np.float16]:
    return np.random.default_rng(number).normal(size=(4, 3, 3)).astype(np.float16)


def npy(array: NDArray[Any]) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def check(packed: Path, field: str, count: int = COUNT) -> None:
    samples = fastpipe.open(packed).with_fields(["key", field])
    assert len(samples) == count
    for sample in samples:
        number = int(Path(sample["key"]).name.partition(".")[0])
        assert torch.equal(sample[field], torch.from_numpy(latent_of(number)))
    assert verify(packed).sound


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Photos, and an array of each in another folder."""
    for name in ("photos", "latents"):
        (tmp_path / name).mkdir()
    for number in range(COUNT):
        (tmp_path / "photos" / f"{number}.jpg").write_bytes(jpeg_bytes(seed=number))
        np.save(tmp_path / "latents" / f"{number}.npy", latent_of(number))
    return tmp_path


def test_members_of_tars(tmp_path: Path) -> None:
    members = {}
    for number in range(COUNT):
        members[f"{number}.jpg"] = jpeg_bytes(seed=number)
        array = latent_of(number)
        # Other programs write other versions and orders of the format.
        members[f"{number}.latent.npy"] = npy(np.asfortranarray(array) if number % 2 else array)
    members["99.jpg"] = jpeg_bytes(seed=99)
    members["99.latent.npy"] = npy(np.array([{}], dtype=object))
    (tmp_path / "tars").mkdir()
    write_tar(tmp_path / "tars" / "0.tar", members)
    summary = fastpipe.pack(tmp_path / "tars", tmp_path / "packed", on_error="report")
    ((path, reason),) = summary.tally.rejected
    assert "99" in path
    assert "field latent: expected an array as a .npy file" in reason
    check(tmp_path / "packed", "latent")


def test_files_that_a_csv_names(folder: Path) -> None:
    lines = ["path,latent"]
    lines += [f"photos/{number}.jpg,latents/{number}.npy" for number in range(COUNT)]
    (folder / "list.csv").write_text("\n".join(lines))
    succeeded("pack", folder / "list.csv", folder / "packed", "--field", "z=latent:array")
    check(folder / "packed", "z")


def test_files_and_numbers_of_json_lines(folder: Path) -> None:
    lines = []
    for number in range(COUNT):
        row = {
            "file_name": f"photos/{number}.jpg",
            "z": f"latents/{number}.npy",
            "pose": [[number, 0.5], [1, 2]],
            "count": [[number]],
        }
        lines.append(json.dumps(row))
    (folder / "list.jsonl").write_text("\n".join(lines))
    fields = {"z": "z:array", "pose": "pose:array", "count": "count:array"}
    fastpipe.pack(folder / "list.jsonl", folder / "packed", fields=fields)
    check(folder / "packed", "z")
    opened = fastpipe.open(folder / "packed")
    assert opened.fields["pose"].dtype == "float32"
    assert opened.fields["count"].dtype == "int64"
    first = opened.with_fields(["pose", "key"])[0]
    assert first["pose"].tolist() == [[float(Path(first["key"]).stem), 0.5], [1.0, 2.0]]


def test_bytes_and_lists_of_parquet(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    table = arrow.table(
        {
            "image": [jpeg_bytes(seed=number) for number in range(COUNT)],
            "latent": [npy(latent_of(number)) for number in range(COUNT)],
            "pose": [[[float(number), 1.0]] for number in range(COUNT)],
        }
    )
    parquet.write_table(table, tmp_path / "rows.parquet")
    fields = {"latent": "latent:array", "pose": "pose:array"}
    fastpipe.pack(tmp_path / "rows.parquet", tmp_path / "packed", fields=fields, shuffle=False)
    samples = fastpipe.open(tmp_path / "packed").with_fields(["latent", "pose"])
    for number, sample in enumerate(samples):
        assert torch.equal(sample["latent"], torch.from_numpy(latent_of(number)))
        assert sample["pose"].tolist() == [[float(number), 1.0]]


def test_a_missing_file_rejects_its_sample(folder: Path) -> None:
    (folder / "latents" / "3.npy").unlink()
    (folder / "latents" / "4.npy").write_bytes(b"")
    lines = ["path,latent"]
    lines += [f"photos/{number}.jpg,latents/{number}.npy" for number in range(COUNT)]
    (folder / "list.csv").write_text("\n".join(lines))
    fields = {"latent": "latent:array"}
    summary = fastpipe.pack(
        folder / "list.csv", folder / "packed", fields=fields, on_error="report"
    )
    reasons = dict(summary.tally.rejected)
    assert "latents/3.npy" in reasons["photos/3.jpg"]
    assert "field latent: expected an array as a .npy file" in reasons["photos/4.jpg"]
    check(folder / "packed", "latent", COUNT - 2)


def test_add_takes_more_of_the_same_arrays(folder: Path) -> None:
    def list_rows(name: str, numbers: range) -> Path:
        lines = ["path,latent"]
        lines += [f"photos/{number}.jpg,latents/{number}.npy" for number in numbers]
        (folder / name).write_text("\n".join(lines))
        return folder / name

    fields = {"latent": "latent:array"}
    fastpipe.pack(list_rows("list.csv", range(5)), folder / "packed", fields=fields)
    fastpipe.add(list_rows("more.csv", range(5, COUNT)), folder / "packed", fields=fields)
    check(folder / "packed", "latent")
    with fastpipe.loader(folder / "packed", 3, size=16, fields=["image", "latent"]) as loader:
        assert next(iter(loader))["latent"].shape == (3, 4, 3, 3)

    # Another shape makes the axis one that differs; another dtype is refused.
    np.save(folder / "latents" / "20.npy", np.zeros((4, 5, 3), np.float16))
    (folder / "photos" / "20.jpg").write_bytes(jpeg_bytes(seed=20))
    fastpipe.add(list_rows("other.csv", range(20, 21)), folder / "packed", fields=fields)
    assert fastpipe.open(folder / "packed").fields["latent"].shape == (4, None, 3)
    np.save(folder / "latents" / "30.npy", np.zeros((4, 5, 3), np.float32))
    (folder / "photos" / "30.jpg").write_bytes(jpeg_bytes(seed=30))
    grown = fastpipe.add(list_rows("third.csv", range(30, 31)), folder / "packed", fields=fields)
    (reason,) = dict(grown.rejected).values()
    assert "expected float16 with 3 axes, as in the samples before; got float32" in reason


def test_every_flip_in_an_array_is_found(folder: Path) -> None:
    lines = ["path,latent"]
    lines += [f"photos/{number}.jpg,latents/{number}.npy" for number in range(COUNT)]
    (folder / "list.csv").write_text("\n".join(lines))
    fastpipe.pack(folder / "list.csv", folder / "packed", fields={"latent": "latent:array"})
    index = fastpipe.open(folder / "packed").stored[0].index
    records = index.column("latent").take(np.arange(COUNT))
    shard = index.shards[0].path
    data = shard.read_bytes()
    rng = np.random.default_rng(0)
    for record in records:
        position = int(record["offset"]) + int(rng.integers(record["size"]))
        damaged = bytearray(data)
        damaged[position] ^= 1 << int(rng.integers(8))
        shard.write_bytes(damaged)
        assert not verify(folder / "packed").sound
    # The column is made again from the arrays in the shards.
    shard.write_bytes(data)
    column = folder / "packed" / "fields" / "latent.npy"
    intact = column.read_bytes()
    column.write_bytes(b"")
    succeeded("verify", folder / "packed", "--repair", folder / "list.csv")
    assert column.read_bytes() == intact
    check(folder / "packed", "latent")
