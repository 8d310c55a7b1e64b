"""--storage coefficients: of any source the same samples, batches and pixels as with JPEGs, and the JPEGs back."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from support.datasets.members import member_of
from support.datasets.packed import damage, packed_jpeg
from support.pictures import fpc
from support.programs.cli_run import failed, succeeded
from support.sources.listed import class_folders
from support.sources.pack_sources import (
    digests,
    jpeg_bytes,
    saved,
    twelve_bit,
    with_segments,
    write_files,
    write_large_folder,
)
from support.sources.tables import jpegs, write_table
from support.sources.unpacked_sources import assert_same_epochs, epoch

import fastpipe
from fastpipe.dataset.format.layout import DATASET_FILE
from fastpipe.dataset.format.packed_index import PackedIndex
from fastpipe.errors import ConfigError, DatasetError, PackError, SampleError
from fastpipe.packing.job.threads import pack
from fastpipe.packing.pipeline import exchange
from fastpipe.packing.shard.options import PackOptions
from fastpipe.packing.unpack import unpack
from fastpipe.sources.picture.convert import EncodeOptions
from fastpipe.tools.verify.repair import repair
from fastpipe.tools.verify.verification import verify

COEFFICIENTS = PackOptions(EncodeOptions(storage="coefficients"), shard_size=100_000, workers=2)
JPEGS = PackOptions(shard_size=100_000, workers=2)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Photos of every kind that is packed, in two classes, and a file that is none."""
    folder = write_large_folder(tmp_path_factory.mktemp("storage") / "source", images=12)
    icc = (0xE2, b"ICC_PROFILE\0\1\1" + bytes(100))
    for name, data in {
        "gray": jpeg_bytes((61, 47), "gray"),
        "tall": jpeg_bytes((40, 200), "440"),
        "four": jpeg_bytes((90, 60), "411"),
        "icc": with_segments(jpeg_bytes((77, 33), "422"), icc),
        "one": jpeg_bytes((1, 1), "420"),
        "twelve": twelve_bit(jpeg_bytes((70, 45), "444")),
        "progressive": saved(progressive=True),
        "png": saved("PNG"),
        "palette": saved("GIF"),
        "broken": b"no picture",
    }.items():
        (folder / "class-0" / name).write_bytes(data)
    return folder


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Images of several kinds with labels and a column that becomes a field."""
    images = [*jpegs(27), saved("PNG"), saved(progressive=True), b"no image"]
    columns = {
        "label": [at % 3 for at in range(30)],
        "caption": [f"photo {at}" for at in range(30)],
    }
    return write_table(tmp_path / "source" / "a.parquet", images, **columns)


@pytest.fixture(scope="module")
def packs(source: Path) -> dict[str, Path]:
    """Both storages of the same source."""
    made = {}
    for name, options in (("jpeg", JPEGS), ("coefficients", COEFFICIENTS)):
        made[name] = source.parent / name
        pack(source, made[name], options)
    return made


@pytest.fixture
def stored(packs: dict[str, Path], tmp_path: Path) -> Path:
    """A copy of the coefficients, to be damaged."""
    return Path(shutil.copytree(packs["coefficients"], tmp_path / "copy"))


def test_the_description_says_how_images_are_stored(packs: dict[str, Path]) -> None:
    jpeg, coefficients = (
        json.loads((packs[name] / DATASET_FILE).read_bytes()) for name in ("jpeg", "coefficients")
    )
    for name, info in (("jpeg", jpeg), ("coefficients", coefficients)):
        assert info["storage"] == info["packs"][0]["options"]["storage"] == name
    assert jpeg["content"] == coefficients["content"]
    assert (
        jpeg["jpeg_bytes"]
        == coefficients["jpeg_bytes"]
        == PackedIndex(packs["jpeg"]).records["size"].sum()
    )
    assert coefficients["stored_bytes"] == PackedIndex(packs["coefficients"]).records["size"].sum()
    assert PackedIndex(packs["coefficients"]).storage == "coefficients"
    assert jpeg["counts"] == coefficients["counts"]


def test_shards_are_webdatasets_of_fpc_members(packs: dict[str, Path]) -> None:
    index = PackedIndex(packs["coefficients"])
    with tarfile.open(index.shards[0].path) as tar:
        names = tar.getnames()
        assert names[:3] == [f"{member_of(index, 0)}.{ending}" for ending in ("cls", "fpc", "json")]
        data = tar.extractfile(names[1])
        assert data is not None
        assert fpc.read(data.read()).width == index.records[0]["width"]


def test_both_storages_give_the_same_batches(
    packs: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    cases: list[dict[str, Any]] = [
        {},
        {"train": True},
        {"verify": True},
        {"train": True, "seed": 9},
    ]
    for options in cases:
        assert_same_epochs(epoch(packs["jpeg"], **options), epoch(packs["coefficients"], **options))
    # Where the order is one of chunks, their sizes are those of JPEGs.
    monkeypatch.setattr("fastpipe.plan.order.CHUNK_BYTES", 30_000)
    monkeypatch.setattr("fastpipe.plan.order.CHUNKS_PER_WINDOW", 2)
    assert_same_epochs(epoch(packs["jpeg"], train=True), epoch(packs["coefficients"], train=True))


def test_single_samples_are_the_same(packs: dict[str, Path]) -> None:
    for one, other in zip(
        fastpipe.open(packs["jpeg"]), fastpipe.open(packs["coefficients"]), strict=True
    ):
        assert one[1] == other[1]
        assert np.array_equal(one[0].numpy(), other[0].numpy())


def test_a_crop_reads_only_the_rows_that_it_needs(tmp_path: Path) -> None:
    source = write_files(tmp_path / "source", {"a/1.jpg": jpeg_bytes((400, 4000), quality=95)})
    pack(source, tmp_path / "packed", COEFFICIENTS)
    index = PackedIndex(tmp_path / "packed")
    loader = fastpipe.loader(tmp_path / "packed", 1, size=100, train=False, num_workers=1)
    list(loader)
    assert loader.stats().bytes_read < index.stored_bytes / 4, "the middle tenth of the picture"
    checked = fastpipe.loader(
        tmp_path / "packed", 1, size=100, train=False, num_workers=1, verify=True
    )
    list(checked)
    assert checked.stats().bytes_read == index.stored_bytes


def test_sources_with_a_new_time_are_compared(source: Path, tmp_path: Path) -> None:
    shutil.copytree(source, tmp_path / "source")
    pack(tmp_path / "source", tmp_path / "packed", COEFFICIENTS)
    (tmp_path / "source" / "class-0" / "gray").chmod(0o600)
    os.utime(tmp_path / "source" / "class-0" / "gray")
    assert pack(tmp_path / "source", tmp_path / "packed", COEFFICIENTS).already_packed


def test_verify_and_repair(source: Path, stored: Path) -> None:
    before = digests(stored)
    assert verify(stored).sound
    damage(stored, 3)
    (stored / "index.npy").write_bytes(b"gone")
    report = verify(stored)
    assert not report.sound
    assert repair(stored, source, report, workers=2)
    assert digests(stored) == before


def test_verify_names_the_damage(stored: Path) -> None:
    index = PackedIndex(stored)
    shard, key, offset = index.where(2)
    with open(shard, "r+b") as file:
        file.seek(offset - 512)
        file.write(key.encode() + b".jpg")
    report = verify(stored)
    assert any(f"the tar header of {key}.fpc" in str(found) for found in report.findings)


def test_a_damaged_sample_is_an_error_that_names_it(stored: Path) -> None:
    damage(stored, 0)
    with pytest.raises(
        SampleError, match=rf"sample 0 .*cannot be decoded(.|\n)*member {member_of(stored, 0)}"
    ):
        fastpipe.open(stored)[0]


def test_an_unknown_storage_or_version_is_refused(stored: Path) -> None:
    info = json.loads((stored / DATASET_FILE).read_bytes())
    for changes in ({"storage": "pixels"}, {"version": 0}, {"format_version": 4}):
        (stored / DATASET_FILE).write_text(json.dumps(info | changes))
        with pytest.raises(DatasetError, match=r"storage|version"):
            PackedIndex(stored)


def test_packing_what_is_packed(packs: dict[str, Path], tmp_path: Path) -> None:
    """Samples of either storage are sources of either: the pictures stay the same."""
    for name, options in (("coefficients", COEFFICIENTS), ("jpeg", JPEGS)):
        for origin in packs:
            pack(packs[origin], tmp_path / f"{origin}-{name}", options)
        pairs = [PackedIndex(tmp_path / f"{origin}-{name}") for origin in packs]
        by_hash = [sorted(index.records["xxh3_64"].tolist()) for index in pairs]
        assert by_hash[0] == by_hash[1]
        assert all(index.storage == name for index in pairs)


def contents(shard: Path) -> list[tuple[str, bytes]]:
    """Endings and bytes of a shard's members. Keys have the places in a shard, which differ with the storage."""
    with tarfile.open(shard) as tar:
        return [(each.name.partition(".")[2], tar.extractfile(each).read()) for each in tar]  # type: ignore[union-attr]


def test_unpacking_into_folders(packs: dict[str, Path], tmp_path: Path) -> None:
    jpegs = PackedIndex(packs["jpeg"])
    for name, data in packs.items():
        index = PackedIndex(data)
        found = unpack(data, tmp_path / name, workers=2)
        assert found.images == len(index)
        for sample in range(len(index)):
            folder = tmp_path / name / index.class_name(int(index.records[sample]["label"]))
            expected = packed_jpeg(jpegs, sample)
            ending = "png" if expected.startswith(b"\x89PNG") else "jpg"
            assert (folder / f"{member_of(index, sample)}.{ending}").read_bytes() == expected
        assert sum(len(files) for _, _, files in os.walk(tmp_path / name)) == len(index)
        assert len(list((tmp_path / name).rglob("*.png"))) == 2


def test_a_class_without_images_has_a_folder(tmp_path: Path) -> None:
    """Else the labels of the classes behind it would be others when the files are packed again."""
    source = write_files(
        tmp_path / "source", {"ant/1.jpg": jpeg_bytes(), "cow/1.jpg": jpeg_bytes()}
    )
    (source / "bee").mkdir()
    fastpipe.pack(source, tmp_path / "packed")
    unpack(tmp_path / "packed", tmp_path / "files")
    fastpipe.pack(tmp_path / "files", tmp_path / "again")
    found = [fastpipe.open(tmp_path / name) for name in ("packed", "again")]
    assert found[0].classes == found[1].classes == ["ant", "bee", "cow"]
    assert sorted(found[0]["label"]) == sorted(found[1]["label"]) == [0, 2]


def test_unpacking_into_shards(packs: dict[str, Path], tmp_path: Path) -> None:
    unpack(packs["jpeg"], tmp_path / "jpeg", "webdataset")
    for shard in PackedIndex(packs["jpeg"]).shards:
        assert (tmp_path / "jpeg" / shard.name).read_bytes() == shard.path.read_bytes()
    unpack(packs["coefficients"], tmp_path / "coefficients", "webdataset")
    members = []
    for name in ("jpeg", "coefficients"):
        members.append(
            [each for path in sorted((tmp_path / name).iterdir()) for each in contents(path)]
        )
    assert members[0] == members[1]


def test_fields_and_second_pictures(tmp_path: Path) -> None:
    """They are stored as with JPEGs; a second picture stays a JPEG."""
    fields = {"caption": "text", "second": "image", "boxes": "boxes", "seg": "mask"}
    mask = np.arange(50 * 70, dtype=np.uint16).reshape(50, 70)
    for storage in ("jpeg", "coefficients"):
        with fastpipe.Writer(
            tmp_path / storage, fields=fields, workers=1, storage=storage
        ) as writer:
            for number in range(5):
                first, second = (jpeg_bytes((70, 50), seed=seed) for seed in (number, 100 + number))
                boxes = {"boxes": [[1, 2, 30, 40]]}
                label = number % 2 if number else None
                values = {
                    "caption": f"number {number}",
                    "second": second,
                    "boxes": boxes,
                    "seg": mask + number,
                }
                writer.add(first, label, f"key {number}", **values)
    names = ("image", "label", *fields)
    loaded = [
        next(iter(fastpipe.loader(tmp_path / storage, 5, size=32, fields=names, num_workers=1)))
        for storage in ("jpeg", "coefficients")
    ]
    for name in ("image", "label", "second", "seg"):
        assert np.array_equal(loaded[0][name].numpy(), loaded[1][name].numpy()), name
    assert loaded[0]["caption"] == loaded[1]["caption"]
    unpack(tmp_path / "coefficients", tmp_path / "unpacked", "webdataset")
    assert contents(PackedIndex(tmp_path / "jpeg").shards[0].path) == contents(
        tmp_path / "unpacked" / "shard-000000.tar"
    )
    assert unpack(tmp_path / "coefficients", tmp_path / "folder").left_out == list(fields)
    assert (tmp_path / "folder" / f"{member_of(tmp_path / 'coefficients', 0)}.jpg").exists(), (
        "a sample without a label"
    )


def test_unpacking_refuses(packs: dict[str, Path], stored: Path, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(PackError, match="not empty"):
        unpack(packs["jpeg"], tmp_path / "full")
    with pytest.raises(ConfigError, match="must not contain"):
        unpack(stored, stored / "inside")
    shard = next(stored.glob("shard-*.tar"))
    with pytest.raises(DatasetError, match="is a shard of the packed dataset"):
        unpack(shard, tmp_path / "new")
    with pytest.raises(DatasetError, match="is not packed: its images are files"):
        unpack(shutil.copy(shard, tmp_path), tmp_path / "new")
    with pytest.raises(ConfigError, match=r"^form: expected 'folder' or 'webdataset'"):
        unpack(stored, tmp_path / "new", "zip")
    with pytest.raises(ConfigError, match=r"^workers: expected 1 to 1024, got 0"):
        unpack(stored, tmp_path / "new", workers=0)
    with pytest.raises(PackError, match="file is a file; expected a new or empty folder"):
        unpack(stored, tmp_path / "full" / "file")
    damage(stored, 5)
    with pytest.raises(SampleError, match=r"changed since they were packed.*fastpipe verify"):
        unpack(stored, tmp_path / "damaged")


def test_class_names_stay_inside_the_folder(tmp_path: Path) -> None:
    names = ["..", "a/b", "plain", ""]
    with fastpipe.Writer(tmp_path / "packed", classes=names, workers=1) as writer:
        for label in range(4):
            writer.add(jpeg_bytes(seed=label), label)
    unpack(tmp_path / "packed", tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "%",
        "%2E%2E",
        "a%2Fb",
        "plain",
    ]


def test_classes_that_cannot_have_folders_of_their_own(tmp_path: Path) -> None:
    """Images of two classes in one folder would be those of one class."""
    for number, names in enumerate((["a/b", "a%2Fb"], ["", "%"], ["a", "b" * 300])):
        root = tmp_path / str(number)
        with fastpipe.Writer(root / "packed", classes=names, workers=1) as writer:
            for label in range(2):
                writer.add(jpeg_bytes(seed=label), label)
        words = f"the class '{names[1]}' cannot have a folder of its own.*--format webdataset"
        with pytest.raises(PackError, match=words):
            unpack(root / "packed", root / "out")
        assert unpack(root / "packed", root / "shards", "webdataset").images == 2


def test_tables(table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "_SPOOLED_BYTES", 6000)  # several spool files
    made = {}
    for storage in ("jpeg", "coefficients"):
        made[storage] = fastpipe.pack(table, tmp_path / storage, storage=storage, workers=2).info
    assert len(list((tmp_path / "coefficients").glob("shard-*.tar"))) == 1
    for name in ("samples", "jpeg_bytes", "counts", "classes"):
        assert made["jpeg"][name] == made["coefficients"][name], name
    assert made["coefficients"]["counts"]["rejected"] == 1
    fields = ("image", "label", "id", "key", "caption")
    jpeg, coefficients = (
        epoch(tmp_path / name, fields=fields) for name in ("jpeg", "coefficients")
    )
    assert_same_epochs(jpeg, coefficients)
    assert [batch["caption"] for batch in jpeg] == [batch["caption"] for batch in coefficients]
    assert verify(tmp_path / "coefficients").sound


def test_shards_of_ours_are_sources_as_tars_are(tmp_path: Path) -> None:
    """Without dataset.json they are WebDataset tars, in which KEY.fpc is the picture."""
    fastpipe.pack(
        class_folders(tmp_path / "photos"),
        tmp_path / "packed",
        storage="coefficients",
        shuffle=False,
    )
    fastpipe.pack(tmp_path / "photos", tmp_path / "jpeg", shuffle=False)
    (tmp_path / "tars").mkdir()
    for shard in (tmp_path / "packed").glob("shard-*.tar"):
        shutil.copy(shard, tmp_path / "tars")
    fastpipe.pack(tmp_path / "tars", tmp_path / "again", shuffle=False)
    one, other = PackedIndex(tmp_path / "jpeg"), PackedIndex(tmp_path / "again")
    assert sorted(one.records["xxh3_64"].tolist()) == sorted(other.records["xxh3_64"].tolist())


def test_a_coefficient_file_that_is_damaged_is_rejected(tmp_path: Path) -> None:
    fastpipe.pack(
        class_folders(tmp_path / "photos", 3), tmp_path / "packed", storage="coefficients"
    )
    stored = packed_jpeg(PackedIndex(tmp_path / "packed"), 0)
    newer = stored[:3] + b"\2" + stored[4:]
    contents = {"a/whole.fpc": stored, "a/cut.fpc": stored[:-200], "a/newer.fpc": newer}
    source = write_files(tmp_path / "source", contents)
    rejected = dict(fastpipe.pack(source, tmp_path / "again").tally.rejected)
    assert rejected.keys() == {"a/cut.fpc", "a/newer.fpc"}
    assert "damaged" in rejected["a/cut.fpc"]
    assert "version 2; this fastpipe reads version 1" in rejected["a/newer.fpc"]
    assert len(PackedIndex(tmp_path / "again")) == 1


def test_the_spool_needs_more_room(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = table.stat().st_size
    free = type("Usage", (), {"free": round(1.2 * size)})
    monkeypatch.setattr(exchange.shutil, "disk_usage", lambda _: free)
    fastpipe.pack(table, tmp_path / "jpeg")
    with pytest.raises(PackError, match="are free there"):
        fastpipe.pack(table, tmp_path / "coefficients", storage="coefficients")


def test_the_commands(packs: dict[str, Path], tmp_path: Path) -> None:
    packed = packs["coefficients"]
    assert re.search(r"stored as +coefficients", succeeded("inspect", packed, "--no-sheet"))
    assert "sound" in succeeded("verify", packed)
    succeeded("preview", packed, "--out", tmp_path / "preview.png")
    assert "fastpipe unpack" in failed(2, "bench", packed, "--against", "torch")
    found = json.loads(succeeded("unpack", packed, tmp_path / "out", "--json"))
    assert found["images"] == len(PackedIndex(packed))
    assert "not empty" in failed(1, "unpack", packed, tmp_path / "out")
    assert "expected a folder of this machine" in failed(2, "unpack", packed, "s3://bucket/out")
    succeeded("unpack", packed, (tmp_path / "by url").as_uri())
    assert (tmp_path / "by url" / "class-0").is_dir()
    image = next((tmp_path / "out" / "class-0").glob("*.jpg"))
    assert Image.open(io.BytesIO(image.read_bytes())).format == "JPEG"
