"""Tests of fastpipe.tools.verify: what is damaged is found, named to the sample, and nothing else is."""

from __future__ import annotations

import errno
import json
import os
import random
import tarfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support.datasets.members import member_of
from support.datasets.packed import damage
from support.running.soak import Tried, times

import fastpipe
from fastpipe.dataset.format.description import SELF_CHECKSUM
from fastpipe.dataset.format.layout import DATASET_FILE, INDEX_DTYPE, INDEX_FILE, shard_name
from fastpipe.dataset.format.packed_index import PackedIndex
from fastpipe.errors import DatasetError
from fastpipe.machine.progress import WorkProgress
from fastpipe.packing.job.threads import pack
from fastpipe.packing.pipeline import converting
from fastpipe.packing.shard.options import PackOptions
from fastpipe.sources.picture.convert import EncodeOptions, Packed
from fastpipe.tools.verify import check_shards
from fastpipe.tools.verify.damage import Damage, Report
from fastpipe.tools.verify.verification import verify

Copy = Callable[[Path], Path]
FLIPPED = {
    "tiny": "images",
    "any_shape": "lists of pictures, arrays, texts",
    "mapped": "maps",
}

# The long form: FASTPIPE_FLIPS=10000 pytest tests/tools/verify/test_verify.py -k flip
FLIPS = int(os.environ.get("FASTPIPE_FLIPS", times(300, 30_000)))


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """8 pictures of 16 pixels a side in one shard of 30 kB, so that a check takes a millisecond or two."""
    source = tmp_path_factory.mktemp("tiny") / "source"
    rng = np.random.default_rng(3)
    for number in range(8):
        folder = source / ("ä", "b")[number % 2]
        folder.mkdir(parents=True, exist_ok=True)
        pixels = rng.integers(0, 256, (16, 16 + number, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.jpg", quality=60)
    packed = source.parent / "packed"
    pack(source, packed, PackOptions(workers=1))
    return packed


def flip(file: Path, byte: int, bit: int = 0) -> None:
    """Changes one bit."""
    with open(file, "r+b") as handle:
        handle.seek(byte)
        old = handle.read(1)[0]
        handle.seek(byte)
        handle.write(bytes([old ^ 1 << bit]))


def set_row(dataset: Path, sample: int, **values: int) -> None:
    """Overwrites fields of a row of the index."""
    records = np.load(dataset / INDEX_FILE, mmap_mode="r+")
    for name, value in values.items():
        records[name][sample] = value
    records.flush()


def rewrite(dataset: Path, change: Callable[[dict], None]) -> None:  # type: ignore[type-arg]
    """Changes dataset.json as somebody would by hand."""
    info = json.loads((dataset / DATASET_FILE).read_bytes())
    change(info)
    (dataset / DATASET_FILE).write_text(json.dumps(info, indent=1) + "\n")


def places(report: Report) -> list[tuple[str, int | None]]:
    return [(found.file, found.sample) for found in report.findings]


def test_sound_datasets_are_sound(tiny: Path, textured: Path, many_shards: Path) -> None:
    for dataset in (tiny, textured, many_shards):
        for quick in (False, True):
            report = verify(dataset, quick=quick)
            assert report.sound, report.findings
            index = PackedIndex(dataset)
            assert (report.samples, report.shards) == (len(index), len(index.shards))
            assert report.bytes == (0 if quick else int(index.shard_sizes.sum()))


def test_each_shard_is_looked_at_once(many_shards: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[str] = []

    def stat(path: Path, **options: bool) -> os.stat_result:
        if path.suffix == ".tar":
            looks.append(path.name)
        return os.stat(path, **options)

    monkeypatch.setattr(Path, "stat", stat)
    assert verify(many_shards, workers=1).sound
    assert sorted(looks) == sorted(set(looks))
    assert len(looks) > 1


@pytest.fixture(scope="module")
def any_shape(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """9 samples with lists of pictures, arrays and texts; some have no image of their own."""
    packed = tmp_path_factory.mktemp("any-shape") / "packed"
    rng = np.random.default_rng(4)
    fields = {"pictures": "images", "latent": "array", "text": "text"}
    with fastpipe.Writer(packed, fields) as writer:
        for number in range(9):
            pixels = rng.integers(0, 256, (3, 16, 20, 3), dtype=np.uint8)
            values = {
                "pictures": list(pixels[: number % 3]),
                "latent": rng.normal(size=(2, 3 + number)).astype(np.float16),
                "text": f"text {number}",
            }
            if number % 2:
                writer.add(key=f"{number}", **values)
            else:
                writer.add(pixels[2], key=f"{number}", **values)
    return packed


@pytest.fixture(scope="module")
def mapped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """4 samples with a map of floats, and one of bytes at half the image's size."""
    packed = tmp_path_factory.mktemp("mapped") / "packed"
    rng = np.random.default_rng(6)
    with fastpipe.Writer(packed, {"depth": "map", "heat": "map"}) as writer:
        for number in range(4):
            pixels = rng.integers(0, 256, (16, 20, 3), dtype=np.uint8)
            depth = rng.random((16, 20), np.float32)
            heat = rng.integers(0, 256, (8, 10, 2), dtype=np.uint8)
            writer.add(pixels, key=f"{number}", depth=depth, heat=heat)
    return packed


@pytest.mark.parametrize("kind", FLIPPED)
def test_every_flipped_bit_is_found(
    kind: str, request: pytest.FixtureRequest, copied: Copy, tried: Tried
) -> None:
    dataset = copied(request.getfixturevalue(kind))
    files = [dataset / name for name in (DATASET_FILE, INDEX_FILE, shard_name(0))]
    whole = {file: file.read_bytes() for file in files}
    draw = random.Random(11)
    missed = []
    for number in range(FLIPS):
        file = files[number % 3]
        data = bytearray(whole[file])
        bit = draw.randrange(8 * len(data))
        data[bit // 8] ^= 1 << bit % 8
        file.write_bytes(data)
        report = verify(dataset, workers=1)
        if report.sound or not any(found.file == file.name for found in report.findings):
            missed.append((file.name, bit))
        if file.name != shard_name(0):
            assert not verify(dataset, quick=True).sound, (file.name, bit)
        elif any(found.file != file.name for found in report.findings):
            missed.append((file.name, bit))  # blames another file
        file.write_bytes(whole[file])
    assert missed == []
    assert verify(dataset, workers=1).sound
    tried(
        f"one bit flipped in dataset.json, index.npy or a shard ({FLIPPED[kind]})",
        FLIPS,
        "found by fastpipe verify, in the right file",
    )


def test_every_truncation_is_found(tiny: Path, copied: Copy, tried: Tried) -> None:
    dataset = copied(tiny)
    draw, count = random.Random(13), 0
    for name in (DATASET_FILE, INDEX_FILE, shard_name(0)):
        whole = (dataset / name).read_bytes()
        for length in sorted(
            draw.sample(range(len(whole)), min(times(40, 30_000), len(whole))), reverse=True
        ):
            os.truncate(dataset / name, length)
            assert name in {found.file for found in verify(dataset, workers=1).findings}, (
                name,
                length,
            )
            count += 1
        (dataset / name).write_bytes(whole)
    assert verify(dataset, workers=1).sound
    tried(
        "dataset.json, index.npy or a shard truncated",
        count,
        "found by fastpipe verify, in the right file",
    )


def test_a_sample_that_lacks_the_end_of_its_padding_is_lost(tiny: Path, copied: Copy) -> None:
    dataset = copied(tiny)
    with tarfile.open(dataset / shard_name(0)) as archive:
        ends = {
            each.name.split(".")[0]: each.offset_data + -(-each.size // 512) * 512
            for each in archive
        }
    for sample, end in reversed(list(enumerate(ends.values()))):
        os.truncate(dataset / shard_name(0), end - 1)
        assert list(verify(dataset, workers=1).bad_samples()) == [(sample, 7)]


def test_damaged_samples_are_named_and_no_others(many_shards: Path, copied: Copy) -> None:
    dataset = copied(many_shards)
    index = PackedIndex(dataset)
    keys = fastpipe.open(dataset)["key"]
    for sample in (3, 4, 17):
        damage(dataset, sample)
    report = verify(dataset)
    assert list(report.bad_samples()) == [(3, 4), (17, 17)]
    of_samples = [found for found in report.findings if found.sample is not None]
    for found, sample in zip(of_samples, (3, 4, 17), strict=True):
        shard, member, offset = index.where(sample)
        assert (str(dataset / found.file), found.member, found.offset) == (shard, member, offset)
        assert found.key == keys[sample]
        assert found.expected == f"{index.records[sample]['xxh3_64']:016x}"
    hashes = {found.file for found in report.findings if found.sample is None}
    assert hashes == {found.file for found in of_samples}


@pytest.mark.parametrize("piece_bytes", [1, 3000, 1 << 20])
def test_pieces_of_any_size_find_the_same(
    many_shards: Path, copied: Copy, monkeypatch: pytest.MonkeyPatch, piece_bytes: int
) -> None:
    dataset = copied(many_shards)
    damage(dataset, 5)
    expected = verify(dataset, workers=1).findings
    monkeypatch.setattr(check_shards, "SPAN_BYTES", piece_bytes)
    assert verify(dataset, workers=3).findings == expected


def test_labels_headers_and_notes_are_checked(tiny: Path, copied: Copy) -> None:
    dataset = copied(tiny)
    shard = dataset / shard_name(0)
    records = PackedIndex(dataset).records
    offset, size = int(records["offset"][2]), int(records["size"][2])
    note = offset + -(-size // 512) * 512 + 512 + 1
    member = member_of(dataset, 2)
    for byte, words in (
        (offset - 1024, "its label differs from the index"),
        (offset - 1000, "bytes beside them have changed"),
        (offset - 1536, f"expected the tar header of {member}.cls"),
        (offset - 512 + 124, f"expected the tar header of {member}.jpg"),
        (note - 512, f"expected the tar header of {member}.json"),
    ):
        flip(shard, byte)
        first, *rest = verify(dataset).findings
        assert (first.file, first.sample) == (shard.name, 2)
        assert words in first.problem
        assert [found.sample for found in rest] == [None]
        flip(shard, byte)
    data = shard.read_bytes()
    for entry, words in (
        (b'"class": "', "its images and labels are intact"),
        (b'"path": "', "its key differs from the index"),
        (b'"identity": "', "its identity differs from the index"),
    ):
        flip(shard, data.index(entry, note) + len(entry))
        assert verify(dataset).findings[0].problem.startswith(words)
        flip(shard, data.index(entry, note) + len(entry))


def test_a_row_of_the_index_is_blamed_where_its_shard_is_whole(
    many_shards: Path, copied: Copy, tried: Tried
) -> None:
    row = PackedIndex(many_shards).records[9]
    lies = (
        ("shard", 1),
        ("offset", int(row["offset"]) + 512),
        ("offset", 2**63),
        ("size", 2**32 - 1),
        ("size", int(row["size"]) - 1),
        ("width", 0),
        ("height", int(row["height"]) + 1),
        ("channels", 1),
        ("channels", 2),
        ("bits", 16),
        ("label", -1),
        ("xxh3_64", 0),
        ("identity", 0),
        ("key", 0),
    )
    dataset = copied(many_shards)
    whole = (dataset / INDEX_FILE).read_bytes()
    for field, value in lies:
        set_row(dataset, 9, **{field: value})
        report = verify(dataset)
        rows = [found for found in report.findings if found.sample is not None]
        assert [(found.file, found.sample) for found in rows] == [(INDEX_FILE, 9)], (
            field,
            report.findings,
        )
        assert rows[0].offset == PackedIndex(many_shards).records.offset + 9 * INDEX_DTYPE.itemsize
        assert not any(found.file.startswith("shard") for found in report.findings)
        (dataset / INDEX_FILE).write_bytes(whole)
    tried(
        "a field of a row of the index lies, its shard whole",
        len(lies),
        "fastpipe verify names the row",
    )


def test_rows_that_cannot_be_true_are_named_without_reading_shards(
    many_shards: Path, copied: Copy
) -> None:
    dataset = copied(many_shards)
    set_row(dataset, 4, label=7)
    set_row(dataset, 11, offset=2**40)
    report = verify(dataset, quick=True)
    assert [found.sample for found in report.findings if found.sample is not None] == [4, 11]
    assert "label 7" in str(report.findings)


def test_shards_that_are_gone_or_of_another_size(many_shards: Path, copied: Copy) -> None:
    dataset = copied(many_shards)
    shards = list(PackedIndex(dataset).shards)
    shards[1].path.unlink()
    os.truncate(shards[3].path, shards[3].size_bytes // 2)
    with open(shards[5].path, "ab") as file:
        file.write(b"\0")
    shards[7].path.unlink()
    os.mkfifo(shards[7].path)
    starts = PackedIndex(dataset).shard_starts
    quick = verify(dataset, quick=True)
    assert [found.file for found in quick.findings] == [
        shards[number].name for number in (1, 3, 5, 7)
    ]
    gone = quick.findings[0]
    assert (gone.sample, gone.samples) == (int(starts[1]), shards[1].samples)
    assert "No such file" in gone.problem
    cut = quick.findings[1]
    rows = PackedIndex(dataset).records[starts[3] : starts[4]]
    ends = rows["offset"] + rows["size"]
    lost_there = int((ends > shards[3].size_bytes // 2).sum())
    assert (cut.sample, cut.samples) == (int(starts[4]) - lost_there, lost_there)
    assert quick.findings[3].problem == "is not a regular file"
    assert quick.findings[2].got == f"{shards[5].size_bytes + 1:,} bytes"

    full = verify(dataset)
    lost = {first for first, _ in full.bad_samples()}
    assert int(starts[1]) in lost
    assert int(starts[3]) + shards[3].samples - 1 in {last for _, last in full.bad_samples()}
    assert not any(int(starts[5]) <= first < int(starts[6]) for first in lost)


def test_a_shard_size_of_any_length_costs_no_memory(many_shards: Path, copied: Copy) -> None:
    path = copied(many_shards)
    expected = PackedIndex(path).shards[1].size_bytes

    def lie(info: dict) -> None:  # type: ignore[type-arg]
        info["shards"][1]["size_bytes"] = 2**62

    rewrite(path, lie)
    tracemalloc.start()
    report = verify(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 64 << 20
    assert any(
        found.file == shard_name(1) and f"{2**62:,}" in str(found) and f"{expected:,}" in str(found)
        for found in report.findings
    )


def test_a_jpeg_that_does_not_decode_is_found_though_all_hashes_fit(tmp_path: Path) -> None:
    source = tmp_path / "source" / "only"
    source.mkdir(parents=True)
    Image.new("RGB", (40, 30), (9, 99, 199)).save(source / "1.jpg")

    def lossy(data: bytes, how: EncodeOptions) -> Packed:
        return Packed(data[:-20], 40, 30, None)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(converting, "convert", lossy)
        pack(source.parent, tmp_path / "packed", PackOptions(workers=1))
    (found,) = verify(tmp_path / "packed").findings
    assert (found.file, found.sample) == (shard_name(0), 0)
    assert "the JPEG is" in found.problem


def test_a_renamed_hash_is_found(tiny: Path, copied: Copy) -> None:
    dataset = copied(tiny)
    data = (dataset / DATASET_FILE).read_bytes()
    (dataset / DATASET_FILE).write_bytes(
        data.replace(SELF_CHECKSUM.encode(), b"s" + SELF_CHECKSUM[1:].encode().upper())
    )
    (found,) = verify(dataset).findings
    assert "missing or invalid" in found.problem


def test_counts_that_disagree_are_found(tiny: Path, copied: Copy) -> None:
    dataset = copied(tiny)
    rewrite(
        dataset,
        lambda info: info.update(
            stored_bytes=info["stored_bytes"] + 1, class_counts=[3, 5], forms=[]
        ),
    )
    problems = [found.problem for found in verify(dataset, quick=True).findings]
    for words in ("stored_bytes", "class_counts of label 0", "forms differs from the index"):
        assert any(words in problem for problem in problems), words


def test_an_index_that_cannot_be_opened_leaves_the_shards_checked(
    many_shards: Path, copied: Copy
) -> None:
    dataset = copied(many_shards)
    (dataset / INDEX_FILE).unlink()
    flip(dataset / shard_name(2), 70_000)
    report = verify(dataset)
    assert [found.file for found in report.findings] == [INDEX_FILE, shard_name(2)]
    assert report.findings[1].samples == PackedIndex(many_shards).shards[2].samples


def test_a_missing_index_of_a_relative_path(
    tiny: Path, copied: Copy, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = copied(tiny)
    (dataset / INDEX_FILE).unlink()
    monkeypatch.chdir(dataset.parent)
    report = verify(Path(dataset.name))
    assert [found.file for found in report.findings] == [INDEX_FILE]
    assert report.samples == len(PackedIndex(tiny))


def test_what_a_disk_refuses_is_narrowed_down(
    many_shards: Path, copied: Copy, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = copied(many_shards)
    number = next(
        number for number, each in enumerate(PackedIndex(dataset).shards) if each.samples > 1
    )
    sample = int(PackedIndex(dataset).shard_starts[number])
    damage(dataset, sample + 1)
    shard, _, bad = PackedIndex(dataset).where(sample)
    assert (
        PackedIndex(dataset).where(sample + 1)[0] == shard
    )  # its neighbour is checked all the same

    def pread(file: int, size: int, at: int) -> bytes:
        if os.path.samestat(os.fstat(file), os.stat(shard)) and at <= bad < at + size:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(file, size, at)

    real = os.pread
    monkeypatch.setattr(os, "pread", pread)
    report = verify(dataset)
    assert list(report.bad_samples()) == [(sample, sample + 1)]
    assert [found.sample for found in report.findings if "Input/output error" in found.problem] == [
        None,
        sample,
    ]
    assert [
        found.sample
        for found in report.findings
        if "the image has changed since it was packed" in found.problem
    ] == [sample + 1]
    assert {found.file for found in report.findings} == {Path(shard).name}


def test_rows_and_shard_damaged_at_once(many_shards: Path, copied: Copy) -> None:
    dataset = copied(many_shards)
    sample = int(PackedIndex(dataset).shard_starts[1])
    set_row(dataset, sample, offset=2**40)
    flip(
        dataset / shard_name(1), 3
    )  # in the first header: neither the rows nor the headers lead through
    report = verify(dataset)
    assert (INDEX_FILE, sample) in places(report)
    ruined = PackedIndex(many_shards).shards[1].samples
    assert [(found.file, found.samples) for found in report.findings][-1] == (shard_name(1), ruined)


def test_names_outside_the_folder_are_never_followed(tiny: Path, copied: Copy) -> None:
    dataset = copied(tiny)
    for name in ("../elsewhere.tar", "", "a/b", ".."):
        rewrite(dataset, lambda info, name=name: info["shards"][0].update(name=name))
        report = verify(dataset)
        assert "cannot be used" in report.findings[-1].problem, name
        assert report.bytes == 0


def test_no_dataset_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="not a packed dataset"):
        verify(tmp_path)
    (tmp_path / shard_name(0)).touch()
    with pytest.raises(DatasetError, match="unfinished pack"):
        verify(tmp_path)


def test_progress_reaches_the_end(many_shards: Path) -> None:
    told: list[WorkProgress] = []
    verify(many_shards, on_progress=told.append)
    assert told[-1].done == told[-1].total == len(PackedIndex(many_shards))
    assert told[-1].bytes == told[-1].total_bytes == int(PackedIndex(many_shards).shard_sizes.sum())
    assert [step.bytes for step in told] == sorted(step.bytes for step in told)


def test_runs_of_bad_samples_are_joined() -> None:
    def report(*runs: tuple[int, int]) -> list[tuple[int, int]]:
        findings = [Damage("f", "p", sample=first, samples=count) for first, count in runs]
        return list(Report("d", quick=False, findings=findings).bad_samples())

    assert report() == []
    assert report((5, 1), (2, 3), (4, 1)) == [(2, 5)]
    assert report((9, 2), (0, 1), (9, 1)) == [(0, 0), (9, 10)]


def test_words_of_a_finding() -> None:
    for finding, words in (
        (Damage("f", "is gone"), "f: is gone"),
        (Damage("f", "is gone", offset=0), "f, byte 0: is gone"),
        (
            Damage("f", "differs", "1", "2", sample=0, samples=1, offset=9),
            "f, byte 9, sample 0: differs: expected 1, got 2",
        ),
        (
            Damage("f", "differs", got="2", sample=3, key="a/b.jpg", member="0-3"),
            "f, sample 3 (a/b.jpg, member 0-3): differs: expected , got 2",
        ),
        (
            Damage("f", "differs", sample=3, samples=1, member="0-3"),
            "f, sample 3 (member 0-3): differs",
        ),
        (Damage("f", "is lost", sample=3, samples=2, key="a/b.jpg"), "f, samples 3 to 4: is lost"),
    ):
        assert str(finding) == words
