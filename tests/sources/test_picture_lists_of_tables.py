"""Tables whose samples have none to many pictures: LLaVA's and Qwen-VL's JSON, Parquet with List(Image)."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import datasets
import pytest
from support.programs.cli_run import succeeded
from support.sources.pack_sources import jpeg_bytes

import fastpipe

COUNT = 9


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "images").mkdir()
    for number in range(4):
        (tmp_path / "images" / f"{number}.jpg").write_bytes(jpeg_bytes((50, 40), seed=number))
    return tmp_path


def paths(count: int) -> list[str]:
    return [f"images/{number}.jpg" for number in range(count)]


def llava(number: int, images: Any, places: int) -> dict[str, Any]:
    question = {"from": "human", "value": "<image>\n" * places + "What is it?"}
    answer = {"from": "gpt", "value": "A cat."}
    row = {"id": f"s{number}", "conversations": [question, answer]}
    return row if images is None else {**row, "image": images}


def packed(folder: Path, rows: Sequence[Any], name: str = "train.json") -> fastpipe.Dataset:
    text = json.dumps(rows) if name.endswith("json") else "\n".join(map(json.dumps, rows))
    (folder / name).write_text(text)
    fastpipe.pack(folder / name, folder / "packed", unlisted="drop")
    return fastpipe.open(folder / "packed")


def counts(data: fastpipe.Dataset, field: str = "images") -> dict[str, int]:
    """The pictures of each sample, by its key."""
    with fastpipe.loader(data, 4, size=16, fields=["key", field], train=False) as loader:
        found = {
            key: len(pictures)
            for batch in loader
            for key, pictures in zip(batch["key"], batch[field], strict=True)
        }
    return dict(sorted(found.items()))


def rejected(folder: Path) -> dict[str, str]:
    lines = (folder / "packed" / "rejected.jsonl").read_text().splitlines()
    return {entry["path"]: entry["reason"] for entry in map(json.loads, lines)}


@pytest.mark.parametrize("name", ["train.json", "train.jsonl"])
def test_lists_of_paths_are_a_field(folder: Path, name: str) -> None:
    rows = [llava(number, paths(number % 4), number % 4) for number in range(COUNT)]
    data = packed(folder, rows, name)
    kinds = {field.name: field.kind for field in data.fields.values()}
    assert kinds == {"id_": "text", "conversations": "json", "images": "images"}
    assert counts(data) == {f"s{number}": number % 4 for number in range(COUNT)}
    assert data.with_fields(["conversations"])[0]["conversations"][1]["value"] == "A cat."


def test_a_path_or_none_beside_a_conversation_is_a_list(folder: Path) -> None:
    rows = [
        llava(number, None if number % 3 else "images/1.jpg", number % 3 == 0)
        for number in range(COUNT)
    ]
    data = packed(folder, rows)
    assert list(counts(data).values()) == [1, 0, 0] * 3


def test_a_path_in_each_row_stays_the_image(folder: Path) -> None:
    data = packed(folder, [llava(number, f"images/{number}.jpg", 1) for number in range(4)])
    assert set(data.fields) == {"id_", "conversations"}
    assert data[0][0].shape == (3, 40, 50)


def test_messages_with_images_of_qwen(folder: Path) -> None:
    rows = []
    for number in range(COUNT):
        messages = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "?"}]}]
        rows.append({"messages": messages, "images": paths(1 + number % 2)})
    assert list(counts(packed(folder, rows, "train.jsonl")).values()) == [1, 2] * 4 + [1]


def test_a_row_of_another_form_is_rejected_alone(folder: Path) -> None:
    rows = [llava(0, paths(2), 2), llava(1, "", 0), llava(2, [None], 0), llava(3, [["a.jpg"]], 0)]
    rows += [llava(4, "images/0.jpg", 1), llava(5, ["images/0"], 1)]
    data = packed(folder, rows)
    assert list(counts(data).values()) == [2, 0, 1, 1]
    reasons = rejected(folder)
    assert list(reasons) == ["train.json/000003", "train.json/000004"]
    assert "field images: expected the path of a file, got None" in reasons["train.json/000003"]


def test_a_split_of_texts_alone(folder: Path) -> None:
    data = packed(folder, [llava(number, [], 0) for number in range(3)])
    assert list(counts(data).values()) == [0, 0, 0]


def test_an_image_in_each_row_stays_beside_lists(folder: Path) -> None:
    rows = [{"image": "images/0.jpg", "images": paths(number)} for number in range(1, 4)]
    data = packed(folder, rows)
    assert list(counts(data).values()) == [1, 2, 3]
    assert data[0][0].shape == (3, 40, 50)


def test_two_lists_are_two_fields(folder: Path) -> None:
    rows = [{"image": paths(1), "frames": paths(number)} for number in range(4)]
    data = packed(folder, rows)
    assert list(counts(data).values()) == [1] * 4
    assert list(counts(data, "frames").values()) == [0, 1, 2, 3]


def test_a_user_names_the_lists(folder: Path) -> None:
    rows = [{"views": paths(number), "text": "a"} for number in range(4)]
    (folder / "train.jsonl").write_text("\n".join(map(json.dumps, rows)))
    fastpipe.pack(folder / "train.jsonl", folder / "packed", fields={"pics": "views:images"})
    assert list(counts(fastpipe.open(folder / "packed"), "pics").values()) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"fields": {"turns": "conversations"}}, "Add --field images=image:images"),
        ({"image_column": "image"}, "store the lists with --field images=image:images"),
    ],
)
def test_lists_that_nothing_stores_are_an_error(folder: Path, options: Any, words: str) -> None:
    (folder / "train.json").write_text(json.dumps([llava(0, paths(2), 2)]))
    with pytest.raises(fastpipe.PackError, match=words):
        fastpipe.pack(folder / "train.json", folder / "packed", **options)


def test_places_are_counted_against_the_pictures(folder: Path) -> None:
    rows = [llava(0, paths(2), 2), llava(1, paths(2), 3), llava(2, [], 1), llava(3, paths(3), 0)]
    data = packed(folder, rows)
    assert counts(data) == {"s0": 2, "s3": 3}
    assert rejected(folder) == {
        "train.json/000002": "field conversations: expected <image> as often as it has images, 2; "
        "got it 3 times",
        "train.json/000003": "field conversations: expected <image> as often as it has images, 0; "
        "got it 1 times",
    }


def test_a_picture_that_is_not_there_rejects_its_sample(folder: Path) -> None:
    rows = [llava(0, ["images/0.jpg", "images/none.jpg"], 2), llava(1, paths(1), 1)]
    assert list(counts(packed(folder, rows)).values()) == [1]
    assert "images/none.jpg: no such file" in rejected(folder)["train.json/000001"]


def test_the_summary_says_it(folder: Path) -> None:
    (folder / "train.json").write_text(json.dumps([llava(0, paths(2), 2)]))
    summary = fastpipe.pack(folder / "train.json", folder / "packed")
    (first, *_) = [str(assumption) for assumption in summary.assumed]
    assert first == (
        "images: column 'image' has the images of each sample, none to many, so samples have a "
        "field 'images' and no image of their own: load them with fields=['images']"
    )


def test_the_command_ends_with_a_loader_that_works(folder: Path) -> None:
    (folder / "train.json").write_text(json.dumps([llava(0, paths(2), 2), llava(1, [], 0)]))
    text = succeeded("pack", folder / "train.json", folder / "packed")
    (call,) = re.findall(r"fastpipe\.loader\(.*\)", " ".join(text.split()))
    assert 'batch_size=1, fields=("id_", "conversations", "images")' in call
    names: dict[str, Any] = {"fastpipe": fastpipe}
    exec(f"loader = {call}", names)
    with names["loader"] as loader:
        assert len(next(iter(loader))["images"]) == 1


def test_lists_beside_an_image_stay_a_field_of_their_own(folder: Path) -> None:
    for number in range(4):
        (folder / f"{number}.jpg").write_bytes(jpeg_bytes((50, 40), seed=number))
    rows = [{"path": f"{number}.jpg", "views": paths(number)} for number in range(4)]
    (folder / "train.jsonl").write_text("\n".join(map(json.dumps, rows)))
    fastpipe.pack(folder / "train.jsonl", folder / "packed", fields={"views": "views:images"})
    data = fastpipe.open(folder / "packed")
    assert list(counts(data, "views").values()) == [0, 1, 2, 3]
    assert data[2][0].shape == (3, 40, 50)


def test_rows_with_ids_can_be_added(folder: Path) -> None:
    rows = [llava(number, paths(number % 3), number % 3) for number in range(6)]
    packed(folder, rows)
    new = llava(99, paths(1), 1)
    (folder / "train.json").write_text(json.dumps([rows[0], new, *rows[1:]]))
    for by in ("path", "content"):
        fastpipe.add(folder / "train.json", folder / "packed", by=by)
    found = counts(fastpipe.open(folder / "packed"))
    assert found == {**{f"s{number}": number % 3 for number in range(6)}, "s99": 1}


def test_rows_without_ids_cannot_be_added(folder: Path) -> None:
    rows = [{"images": paths(number), "messages": []} for number in range(3)]
    packed(folder, rows)
    (folder / "train.json").write_text(json.dumps([*rows, rows[0]]))
    with pytest.raises(fastpipe.PackError, match="Give each row of the table an id of its own"):
        fastpipe.add(folder / "train.json", folder / "packed")


def test_the_same_bytes_by_any_number_of_threads(folder: Path) -> None:
    rows = [llava(number, paths(number % 4), number % 4) for number in range(COUNT)]
    (folder / "train.json").write_text(json.dumps(rows))
    shards = []
    for workers in (1, 3):
        fastpipe.pack(folder / "train.json", folder / f"packed{workers}", workers=workers)
        shards.append((folder / f"packed{workers}" / "shard-000000.tar").read_bytes())
    assert shards[0] == shards[1]


def features(folder: Path) -> datasets.Dataset:
    rows = {
        "pages": [[str(folder / path) for path in paths(number % 3)] for number in range(COUNT)],
        "text": [f"text {number}" for number in range(COUNT)],
    }
    data = datasets.Dataset.from_dict(rows)
    return data.cast_column("pages", datasets.List(datasets.Image()))


def test_tables_of_hugging_face_need_no_image(folder: Path) -> None:
    features(folder).save_to_disk(folder / "saved")
    fastpipe.pack(folder / "saved", folder / "packed")
    data = fastpipe.open(folder / "packed")
    assert data.fields["pages"].kind == "images"
    assert sorted(counts(data, "pages").values()) == sorted(number % 3 for number in range(COUNT))
    texts = [data.with_fields(["text", "pages"])[number] for number in range(COUNT)]
    for sample in texts:
        assert len(sample["pages"]) == int(sample["text"].split()[1]) % 3


def test_a_table_of_paths_says_how_to_write_the_pictures(folder: Path) -> None:
    features(folder).to_parquet(folder / "train.parquet")
    fastpipe.pack(folder / "train.parquet", folder / "packed")
    reasons = set(rejected(folder).values())
    assert len(reasons) == 1
    assert "expected the bytes of an image, got NoneType; write the table with" in reasons.pop()


def test_pictures_that_lie_elsewhere_are_found(folder: Path) -> None:
    (folder / "photos").mkdir()
    (folder / "images").rename(folder / "photos" / "images")
    data = packed(folder, [llava(number, paths(number % 4), number % 4) for number in range(COUNT)])
    assert counts(data) == {f"s{number}": number % 4 for number in range(COUNT)}


def test_texts_alone_are_not_packed_where_all_pictures_are_missing(folder: Path) -> None:
    rows = [llava(number, ["a/none.jpg"] * (number % 2), number % 2) for number in range(COUNT)]
    words = (
        "none of the images that its rows name exists in .*: a/none.jpg: no such file.*--image-root"
    )
    with pytest.raises(fastpipe.PackError, match=words):
        packed(folder, rows)
