"""Tests of `fastpipe verify`: what it says, as words and as JSON, its exit codes, and Ctrl-C."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

from support.datasets.members import member_of
from support.datasets.packed import damage
from support.programs.cli_run import failed, fp, succeeded
from support.sources.pack_sources import jpeg_bytes

import fastpipe
from fastpipe.dataset.format.layout import DATASET_FILE, shard_name
from fastpipe.dataset.format.packed_index import PackedIndex


def test_sound_is_said_with_what_was_read(textured: Path) -> None:
    size = int(PackedIndex(textured).shard_sizes.sum())
    text = succeeded("verify", textured)
    assert text.startswith(
        f"sound: {textured}: 23 samples in 1 shard, {size:,} bytes, each image decoded, in "
    )
    quick = succeeded("verify", textured, "--quick")
    assert (
        "checked the hashes of dataset.json, index and columns, and the sizes of shards; no shard was read"
        in quick
    )


def test_a_missing_shard_is_not_said_to_be_decoded(
    textured: Path, copied: Callable[[Path], Path]
) -> None:
    dataset = copied(textured)
    (dataset / shard_name(0)).unlink()
    text = fp("verify", dataset).stdout
    assert "; none of the 23 samples in 1 shard could be read. To repair it" in text.replace(
        "\n", " "
    )
    assert "decoded" not in text


def test_samples_that_cannot_be_read_are_not_said_to_be_checked(
    many_shards: Path, copied: Callable[[Path], Path]
) -> None:
    dataset = copied(many_shards)
    index = PackedIndex(dataset)
    shards = index.shards
    shards[0].path.unlink()
    # The last shard ends before its last sample.
    last = len(index) - 1
    os.truncate(shards[-1].path, int(index.records[last]["offset"]) - 3 * 512)
    num_unread = int(index.shard_starts[1]) + 1
    text = " ".join(fp("verify", dataset).stdout.split())
    words = f"checked {len(index) - num_unread:,} of {len(index)} samples in {len(shards)} shards "
    assert f"{words}({num_unread} could not be read), " in text
    content = json.loads(fp("verify", dataset, "--json").stdout)
    assert content["samples_unread"] == num_unread


def test_damage_is_named_and_ends_with_1(textured: Path, copied: Callable[[Path], Path]) -> None:
    dataset = copied(textured)
    damage(dataset, 6)
    result = fp("verify", dataset, "--workers", 2)
    assert result.exit_code == 1
    _, member, offset = PackedIndex(dataset).where(6)
    key = fastpipe.open(dataset)["key"][6]
    assert (
        f"{shard_name(0)}, byte {offset}, sample 6 ({key}, member {member}): the image has changed"
        in result.stdout
    )
    assert f"damaged: {dataset}: 2 problems, 1 sample affected" in result.stdout
    assert fp("verify", dataset, "--quick").exit_code == 0


def test_no_repair_is_advised_that_would_be_refused(
    textured: Path, copied: Callable[[Path], Path]
) -> None:
    dataset = copied(textured)
    damage(dataset, 6)
    assert f"To repair it: fastpipe verify {dataset} --repair SRC" in fp("verify", dataset).stdout
    (dataset / DATASET_FILE).write_bytes(
        (dataset / DATASET_FILE).read_bytes().replace(b'"seed": 0', b'"seed": 1')
    )
    said = fp("verify", dataset).stdout
    assert "--repair" not in said
    assert f"pack it again: fastpipe pack SRC {dataset} --overwrite" in said


def test_what_is_advised_for_a_dataset_of_a_program(tmp_path: Path) -> None:
    dataset, other = tmp_path / "written", tmp_path / "other"
    other.mkdir()
    with fastpipe.Writer(dataset, {"caption": "text"}) as writer:
        writer.add(jpeg_bytes(), caption="a picture")
    (dataset / "fields" / "caption.bytes.npy").unlink()
    said = fp("verify", dataset).stdout
    assert (
        f"To repair it: fastpipe verify {dataset} --repair SRC, where SRC is any other folder"
        in said
    )
    assert "repaired: fields/caption.bytes.npy" in succeeded("verify", dataset, "--repair", other)
    damage(dataset, 0)
    said = fp("verify", dataset).stdout
    assert "--repair" not in said
    assert "run the program that wrote it with fastpipe.Writer again" in said


def test_json_has_every_finding(textured: Path, copied: Callable[[Path], Path]) -> None:
    dataset = copied(textured)
    for sample in range(22):
        damage(dataset, sample)
    result = fp("verify", dataset, "--json")
    assert result.exit_code == 1
    content = json.loads(result.stdout)
    assert content["sound"] is False
    assert content["bad_samples"] == [[0, 21]]
    assert len(content["findings"]) == 23
    assert content["findings"][3]["key"] == fastpipe.open(dataset)["key"][3]
    assert content["findings"][3]["member"] == member_of(dataset, 3)
    assert "... and 3 more; --json lists all" in fp("verify", dataset).stdout


def test_errors_have_their_codes(tmp_path: Path, textured: Path) -> None:
    assert "is not a packed dataset" in failed(1, "verify", tmp_path)
    assert "--workers: expected" in failed(2, "verify", textured, "--workers", 0).replace("=", ": ")
