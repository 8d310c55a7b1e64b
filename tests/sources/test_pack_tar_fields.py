"""WebDataset tars whose samples carry more than image and label; and sources without labels."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from support.datasets.field_values import FIELDS, sample, stored_files
from support.programs.cli_run import succeeded
from support.sources.listed import by_path, paths_of
from support.sources.pack_sources import jpeg_bytes
from support.sources.tars import write_tar

import fastpipe
from fastpipe.dataset.format.fields import check_name
from fastpipe.dataset.format.packed_index import PackedIndex
from fastpipe.errors import PackError
from fastpipe.sources.member_fields import fields_of
from fastpipe.tools.verify.verification import verify


def png(array: np.ndarray[Any, Any], mode: str | None = None) -> bytes:
    file = io.BytesIO()
    image = Image.fromarray(array)
    (image if mode is None else image.convert(mode)).save(file, "PNG")
    return file.getvalue()


def same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, list) and any(isinstance(value, torch.Tensor) for value in one):
        return len(one) == len(other) and all(map(torch.equal, one, other))
    return bool(one == other)


def laion(folder: Path, *, labelled: bool = False, samples: int = 12) -> Path:
    """Tars of jpg, txt, json and a mask, as LAION's; some samples lack some members."""
    folder.mkdir()
    for tar in range(2):
        members: dict[str, bytes] = {}
        for number in range(tar * samples // 2, (tar + 1) * samples // 2):
            key = f"{number:05d}"
            members[f"{key}.jpg"] = jpeg_bytes((40 + number, 30), seed=number)
            if labelled:
                members[f"{key}.cls"] = b"%d" % (number % 3)
            if number % 4:
                members[f"{key}.txt"] = f"caption ü {number}".encode()
            members[f"{key}.json"] = json.dumps(
                {"url": f"http://a/{number}", "width": 40 + number}
            ).encode()
            mask = (
                np.random.default_rng(number)
                .integers(0, 60000, (30, 40 + number))
                .astype(np.uint16)
            )
            members[f"{key}.seg.png"] = png(mask)
        write_tar(folder / f"{tar}.tar", members)
    return folder


@pytest.mark.parametrize("labelled", [False, True])
def test_members_become_fields(tmp_path: Path, labelled: bool) -> None:
    source, packed = laion(tmp_path / "tars", labelled=labelled), tmp_path / "packed"
    summary = fastpipe.pack(source, packed)
    index = PackedIndex(packed)
    assert summary.dropped == {}
    kinds = {field.name: field.kind for field in index.fields.values()}
    assert kinds == {"json": "json", "seg": "mask", "txt": "text"}
    assert index.classes == (["0", "1", "2"] if labelled else [])
    found = by_path(packed, "label", "txt", "json", "seg")
    assert sorted(int(Path(path).stem) for path in found) == list(range(12))
    for path, (label, text, facts, mask) in found.items():
        number = int(Path(path).stem)
        assert label == (number % 3 if labelled else -1)
        assert text == (f"caption ü {number}" if number % 4 else "")
        assert facts == {"url": f"http://a/{number}", "width": 40 + number}
        expected = np.random.default_rng(number).integers(0, 60000, (30, 40 + number))
        np.testing.assert_array_equal(np.asarray(mask), expected)
    assert verify(packed).sound


def test_a_changed_caption_is_a_change(tmp_path: Path) -> None:
    source = laion(tmp_path / "tars")
    fastpipe.pack(source, tmp_path / "packed")
    tar = source / "0.tar"
    tar.write_bytes(tar.read_bytes().replace("caption ü 1".encode(), "caption ä 1".encode()))
    with pytest.raises(fastpipe.PackError, match="the source files have changed"):
        fastpipe.pack(source, tmp_path / "packed")


# Members that cannot be values: their ending, their bytes, and why their samples are left out.
WRONG = [
    ("txt", b"\xff\xfe", "field txt: expected UTF-8, got a byte 0xff at byte 0"),
    ("json", b"{", "field json: expected JSON"),
    ("json", b"[" * 100_000, "field json: expected JSON"),
    ("seg.png", b"x", "field seg: not an image"),
    ("seg.png", png(np.zeros((30, 41), np.uint8)), "field seg: expected 40 x 30 pixels"),
    ("seg.png", png(np.zeros((30, 40), np.uint8), "RGB"), "field seg: a PNG with colours"),
]


def test_values_that_cannot_be_reject_their_samples(tmp_path: Path) -> None:
    sound = {"txt": b"a", "json": b"{}", "seg.png": png(np.zeros((30, 40), np.uint8))}
    members: dict[str, bytes] = {}
    for number, (ending, data, _) in enumerate([*WRONG, ("txt", b"good", "")]):
        members[f"{number}.jpg"] = jpeg_bytes((40, 30), seed=number)
        members |= {f"{number}.{each}": value for each, value in {**sound, ending: data}.items()}
    write_tar(tmp_path / "a.tar", members)
    reasons = dict(fastpipe.pack(tmp_path / "a.tar", tmp_path / "packed").tally.rejected)
    assert sorted(reasons) == [f"{number}.jpg" for number in range(len(WRONG))]
    for number, (_, _, words) in enumerate(WRONG):
        assert reasons[f"{number}.jpg"].startswith(words)
    assert paths_of(tmp_path / "packed") == [f"{len(WRONG)}.jpg"]


def samples_of(packed: Path) -> dict[str, dict[str, Any]]:
    """By key: all values of a sample, tags by their names."""
    data = fastpipe.open(packed).with_fields(("key", "image", "label", *FIELDS))
    names = data.fields["tags"].names
    samples = (data[number] for number in range(len(data)))
    return {
        each["key"]: {**each, "tags": [names[tag] for tag in each["tags"].nonzero().ravel()]}
        for each in samples
    }


def test_a_packed_dataset_with_fields_is_a_source(tmp_path: Path) -> None:
    with fastpipe.Writer(tmp_path / "one", FIELDS) as writer:
        for number in range(9):
            writer.add(**{**sample(number), "label": None if number == 4 else number % 3})
    summary = fastpipe.pack(tmp_path / "one", tmp_path / "other")
    one, other = PackedIndex(tmp_path / "one"), PackedIndex(tmp_path / "other")
    assert summary.dropped == {}, "its own notes are written anew"
    assert other.classes == one.classes
    assert -1 in other.records["label"]
    assert {name: field.kind for name, field in other.fields.items()} == FIELDS
    before, after = samples_of(tmp_path / "one"), samples_of(tmp_path / "other")
    assert len(before) == len(after) == 9
    for key, values in before.items():
        for name, value in values.items():
            assert same(value, after[key][name]), (key, name)
    for name in ("seg", "depth", "second"):
        assert [
            stored_files(tmp_path / packed, name).count(None) for packed in ("one", "other")
        ] == [3, 3]


def test_names_and_kinds_by_ending() -> None:
    expected = {
        "txt": ("txt", "text"),
        "json": ("json", "json"),
        "seg.png": ("seg", "mask"),
        "depth.jpg": ("depth", "image"),
        "2.jpg": ("field_2", "image"),
        "mp3": ("mp3", "bytes"),
        "note.txt": ("note_txt", "text"),
        "note.json": ("note_json", "json"),
        "id": ("id_", "bytes"),
        "a-b.txt": ("a_b_txt", "text"),
        "a_b.txt": ("a_b_txt_", "text"),
    }
    assert {
        field.column: (field.name, field.kind) for field in fields_of(list(expected))
    } == expected


@given(st.sets(st.text(max_size=80).map(str.lower), max_size=20))
def test_any_endings_give_different_names(endings: set[str]) -> None:
    names = [check_name(field.name) for field in fields_of(endings)]
    assert len(set(names)) == len(names)


def test_only_the_fields_that_are_asked_for(tmp_path: Path) -> None:
    """The other members are left out, whatever is wrong with them."""
    source = laion(tmp_path / "tars")
    text = succeeded(
        "pack",
        source,
        tmp_path / "packed",
        "--field",
        "caption=txt",
        "--field",
        "label_map=seg.png:bytes",
    )
    assert "caption (text), label_map (bytes)" in text
    index = PackedIndex(tmp_path / "packed")
    assert list(index.fields) == ["caption", "label_map"]
    texts = by_path(tmp_path / "packed", "caption").values()
    assert sorted(texts) == sorted(
        f"caption ü {number}" if number % 4 else "" for number in range(12)
    )
    (tmp_path / "packed" / "shard-000000.tar").unlink()
    succeeded("verify", tmp_path / "packed", "--repair", source)
    assert verify(tmp_path / "packed").sound
    with pytest.raises(
        fastpipe.PackError, match=r"no sample has .* ending text; there are json, seg\.png, txt"
    ):
        fastpipe.pack(source, tmp_path / "other", fields={"caption": "text"})


def test_a_kind_that_no_member_can_be_is_refused(tmp_path: Path) -> None:
    tars = laion(tmp_path / "tars")
    for kind in ("int", "floats", "classes", "boxes", "keypoints"):
        words = f"--field x=json:{kind}: expected one of the kinds text, json, bytes, mask, im"
        with pytest.raises(PackError, match=words):
            fastpipe.pack(tars, tmp_path / "packed", fields=[f"x=json:{kind}"])


def test_a_field_that_rejects_all_samples_is_named_with_a_remedy(tmp_path: Path) -> None:
    members = {
        "1.jpg": jpeg_bytes(),
        "1.cls": b"0",
        "1.seg.png": png(np.zeros((45, 70, 3), np.uint8)),
    }
    write_tar(tmp_path / "a.tar", members)
    with pytest.raises(
        PackError, match=r"field seg: a PNG with colours.* --field NAME=COLUMN:image or :bytes"
    ) as caught:
        fastpipe.pack(tmp_path / "a.tar", tmp_path / "packed")
    assert "one folder for each class" not in str(caught.value)
    fastpipe.pack(
        tmp_path / "a.tar", tmp_path / "packed", fields=["seg=seg.png:bytes"], overwrite=True
    )
    assert {
        name: field.kind for name, field in PackedIndex(tmp_path / "packed").fields.items()
    } == {"seg": "bytes"}
