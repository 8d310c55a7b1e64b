"""Tests of fastpipe.wds.crop in one process: pixels, draws, what is left alone, and errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import webdataset
from PIL import Image
from support.pictures.drawn import smooth_noise
from support.sources.wds_tars import SIDE, collected, expected, image_bytes, opened, shown, written  # noqa: F401 (a fixture)
from torch.utils.data import default_collate

import fastpipe
from fastpipe import ConfigError, SampleError

pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning"),
    pytest.mark.usefixtures("collected"),
]

PICTURE = smooth_noise(200, 150, seed=1)
BASELINE = image_bytes(PICTURE, quality=90)
OTHERS = {
    "txt": b"a cat",
    "json": b'{"width": 3}',
    "cls": b"7",
    "seg.png": image_bytes(PICTURE, "PNG"),
}


def crop(**options: Any) -> Any:
    """Full size, so that the pixels are those of one resize."""
    return fastpipe.wds.crop(SIDE, exact=True, **options)


def one(data: bytes, function: Any, name: str = "jpg") -> torch.Tensor:
    found: torch.Tensor = function({"__key__": "k", name: data})[name]
    return found


JPEGS = {
    "baseline": BASELINE,
    "444": image_bytes(PICTURE, quality=90, subsampling=0),
    "gray": image_bytes(PICTURE.convert("L")),
    "progressive": image_bytes(PICTURE, quality=90, progressive=True),
}


@pytest.mark.parametrize("kind", JPEGS)
def test_a_jpeg_is_cut_out_of_the_whole_picture(kind: str) -> None:
    ours = crop(seed=5)
    for epoch in range(4):
        ours.set_epoch(epoch)
        image = one(JPEGS[kind], ours)
        assert (image.dtype, image.shape, image.is_contiguous()) == (
            torch.uint8,
            (3, SIDE, SIDE),
            True,
        )
        assert torch.equal(image, expected(JPEGS[kind], b"k", seed=5, epoch=epoch))


@pytest.mark.parametrize("kind", ["PNG", "WebP", "GIF", "BMP", "TIFF"])
def test_what_is_no_jpeg_is_as_pillow_shows_it(kind: str) -> None:
    data = image_bytes(PICTURE, kind)
    ours = crop()
    ours.set_epoch(1)
    assert torch.equal(one(data, ours, kind.lower()), expected(data, b"k", epoch=1))


def test_a_cmyk_jpeg_is_close_to_what_pillow_shows() -> None:
    """`pack` encodes it again, at quality 95; so does this."""
    data = image_bytes(PICTURE.convert("CMYK"), quality=95)
    ours = crop()
    ours.set_epoch(1)
    far = one(data, ours).float() - expected(data, b"k", epoch=1).float()
    assert far.abs().mean() < 4


@pytest.mark.parametrize(
    "way", [{}, {"crop": fastpipe.Resize()}, {"crop": fastpipe.CenterCrop(resize=60)}]
)
def test_pixels_are_those_of_a_loader(tmp_path: Path, way: dict[str, Any]) -> None:
    samples = [
        {"jpg": image_bytes(smooth_noise(90 + 31 * n, 200 - 17 * n, seed=n), quality=85), "cls": n}
        for n in range(6)
    ]
    tar = written(tmp_path, samples)
    fastpipe.pack(tar, tmp_path / "packed", shuffle=False)
    ((images, labels),) = fastpipe.loader(
        tmp_path / "packed", 6, size=SIDE, train=False, num_workers=1, **way
    )
    pipeline = (
        opened(tar)
        .map(fastpipe.wds.crop(SIDE, train=False, **way))
        .to_tuple("jpg", "cls")
        .batched(6)
    )
    ((ours, classes),) = pipeline
    assert torch.equal(ours, images)
    assert [int(each) for each in classes] == labels.tolist()


def test_a_large_crop_is_decoded_at_reduced_size() -> None:
    data = image_bytes(smooth_noise(400, 400, seed=2, cell=40))
    whole = {"crop": fastpipe.RandomResizedCrop(scale=(1, 1), ratio=(1, 1)), "hflip": False}
    reduced, exact = (
        one(data, fastpipe.wds.crop(SIDE, exact=each, **whole)) for each in (False, True)
    )
    assert not torch.equal(reduced, exact)
    assert (reduced.float() - exact.float()).abs().mean() < 3


def test_other_members_stay_as_they_are() -> None:
    sample = {"__key__": "k", "__url__": "u", "jpg": BASELINE, "mjpeg": BASELINE, **OTHERS}
    found = crop()(dict(sample))
    assert list(found) == list(sample)
    for name in sample.keys() - {"jpg"}:
        assert found[name] is sample[name]
    assert sample["jpg"] is BASELINE, "the sample that came is unchanged"
    without = {"__key__": "k", **OTHERS}
    assert crop()(without) == without


def test_a_picture_is_known_by_its_bytes() -> None:
    for name in ("jpg", "JPG", "jpeg", "png", "bin", "image", "left.jpg", "a.b"):
        assert one(BASELINE, crop(), name).shape == (3, SIDE, SIDE)
    assert one(OTHERS["seg.png"], crop(), "jpg").shape == (3, SIDE, SIDE)


def test_two_views_of_a_sample_get_one_crop() -> None:
    """With and without an epoch."""
    ours = crop()
    for epoch in (None, 0, 1):
        if epoch is not None:
            ours.set_epoch(epoch)
        found = ours({"__key__": "k", "left.jpg": BASELINE, "right.jpg": BASELINE})
        assert torch.equal(found["left.jpg"], found["right.jpg"])


def test_the_repr_names_the_stage() -> None:
    assert repr(fastpipe.wds.crop(32)).startswith("SampleCrop(crop=RandomResizedCrop(")
    assert repr(fastpipe.wds.batch_crop(32)).startswith("BatchCrop(crop=RandomResizedCrop(")


def test_a_member_of_decode() -> None:
    """Its sample's key is not told: the bytes name the draws."""
    ours = crop()
    ours.set_epoch(2)
    image = expected(BASELINE, BASELINE, epoch=2)
    for key in (".jpg", "jpg", ".left.jpg"):
        assert torch.equal(ours(key, BASELINE), image)
    assert torch.equal(ours(BASELINE), image)
    for name in OTHERS:
        assert ours(f".{name}", OTHERS[name]) is None


def test_pipelines(tmp_path: Path) -> None:
    tar = written(
        tmp_path,
        [{"jpg": BASELINE, "txt": f"caption {n}", "json": {"n": n}, "cls": n} for n in range(7)],
    )
    ours = crop()
    ours.set_epoch(0)
    decoded = list(opened(tar).decode(ours))
    assert [each["txt"] for each in decoded] == [f"caption {n}" for n in range(7)]
    assert [each["json"] for each in decoded] == [{"n": n} for n in range(7)]
    assert [each["cls"] for each in decoded] == list(range(7))
    assert all(torch.equal(each["jpg"], expected(BASELINE, BASELINE)) for each in decoded)
    mapped = list(opened(tar).map(ours))
    assert all(
        torch.equal(each["jpg"], expected(BASELINE, each["__key__"].encode())) for each in mapped
    )
    assert [json.loads(each["json"]) for each in mapped] == [{"n": n} for n in range(7)]
    both = list(opened(tar).map(ours).decode(partial=True))
    assert [each["txt"] for each in both] == [f"caption {n}" for n in range(7)]
    assert all(torch.equal(a["jpg"], b["jpg"]) for a, b in zip(both, mapped, strict=True))
    by_name = list(opened(tar).map_dict(jpg=ours))
    assert all(torch.equal(a["jpg"], b["jpg"]) for a, b in zip(by_name, decoded, strict=True))
    ((images, texts),) = opened(tar).map(ours).to_tuple("jpg", "txt").batched(7)
    assert images.shape == (7, 3, SIDE, SIDE)
    assert texts[3] == b"caption 3"
    assert default_collate([each["jpg"] for each in mapped]).equal(images)


def test_an_epoch_names_the_draws() -> None:
    ours, twin, other = crop(seed=3), crop(seed=3), crop(seed=4)

    def made(function: Any, epoch: int, key: str = "k") -> torch.Tensor:
        function.set_epoch(epoch)
        image: torch.Tensor = function({"__key__": key, "jpg": BASELINE})["jpg"]
        return image

    first = made(ours, 0)
    assert not torch.equal(made(ours, 1), first)
    assert torch.equal(made(ours, 0), first), "and back"
    assert torch.equal(made(twin, 0), first)
    assert not torch.equal(made(other, 0), first)
    assert not torch.equal(made(ours, 0, "l"), first)


def test_without_an_epoch_crops_are_new_each_time_and_torch_decides() -> None:
    ours = crop()
    torch.manual_seed(0)
    several = [one(BASELINE, ours) for _ in range(5)]
    assert len({bytes(each.numpy()) for each in several}) == 5
    torch.manual_seed(0)
    assert all(torch.equal(one(BASELINE, ours), each) for each in several)


def test_without_draws_nothing_is_drawn() -> None:
    state = torch.random.get_rng_state()
    first = one(BASELINE, crop(train=False))
    assert torch.equal(first, one(BASELINE, crop(train=False)))
    assert torch.equal(torch.random.get_rng_state(), state)


def test_mirroring() -> None:
    plain, mirrored = (one(BASELINE, crop(train=False, hflip=share)) for share in (0.0, 1.0))
    assert torch.equal(plain.flip(2), mirrored)


def broken() -> bytes:
    return BASELINE[: len(BASELINE) // 2]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (broken(), "truncated"),
        (b"", "empty file"),
        (b"<html>not found</html>", "not an image"),
        (image_bytes(PICTURE, "PNG")[:2000], "PNG"),
    ],
)
def test_damage_is_named(tmp_path: Path, data: bytes, reason: str) -> None:
    tar = written(tmp_path, [{"jpg": BASELINE}, {"jpg": data}, {"jpg": BASELINE}])
    whole = crop(crop=fastpipe.Resize())
    with pytest.raises(
        SampleError, match=f"(?s)'jpg' of the sample 'n0001' cannot be decoded: .*{reason}.*{tar}"
    ) as at:
        list(opened(tar).map(whole))
    assert (at.value.key, at.value.shard) == ("n0001", tar)
    kept = opened(tar).map(whole, handler=webdataset.ignore_and_continue)
    assert [each["__key__"] for each in kept] == ["n0000", "n0002"]
    stopped = opened(tar).map(whole, handler=webdataset.ignore_and_stop)
    assert [each["__key__"] for each in stopped] == ["n0000"]
    with pytest.warns(UserWarning, match=f"(?s)SampleError.*n0001.*{reason}"):
        assert len(list(opened(tar).map(whole, handler=webdataset.warn_and_continue))) == 2


def test_damage_in_decode_is_webdatasets_error(tmp_path: Path) -> None:
    tar = written(tmp_path, [{"jpg": BASELINE}, {"jpg": broken()}])
    whole = crop(crop=fastpipe.Resize())
    with pytest.raises(webdataset.autodecode.DecodingError) as at:
        list(opened(tar).decode(whole))
    assert (at.value.key, at.value.url, at.value.k) == ("n0001", tar, "jpg")
    assert isinstance(at.value.__cause__, SampleError)
    assert f"a member jpg of {len(broken()):,} bytes cannot be decoded: " in str(at.value.__cause__)
    assert "truncated" in str(at.value.__cause__)
    kept = opened(tar).decode(whole, handler=webdataset.ignore_and_continue)
    assert [each["__key__"] for each in kept] == ["n0000"]


def test_stray_bytes_do_no_harm() -> None:
    """Some cameras write them before the end marker."""
    data = BASELINE[:-2] + b"\0\0\0\0\0" + BASELINE[-2:]
    ours = crop()
    ours.set_epoch(0)
    assert torch.equal(one(data, ours), expected(BASELINE, b"k"))


def test_max_pixels() -> None:
    assert one(BASELINE, crop(max_pixels=200 * 150)).shape == (3, SIDE, SIDE)
    for data in (BASELINE, JPEGS["progressive"], OTHERS["seg.png"]):
        with pytest.raises(SampleError, match="200 x 150"):
            one(data, crop(max_pixels=200 * 150 - 1))


def test_a_mask_beside_a_picture_is_not_guessed_at(tmp_path: Path) -> None:
    mask = image_bytes(Image.fromarray(np.arange(30000, dtype=np.uint8).reshape(150, 200)), "PNG")
    tar = written(tmp_path, [{"jpg": BASELINE, "png": mask}])
    with pytest.raises(
        ConfigError, match=r"expected one image in the sample 'n0000', got jpg and png\."
    ):
        list(opened(tar).map(crop()))
    (renamed,) = opened(tar).rename(**{"mask.png": "png"}).map(crop())
    assert renamed["mask.png"] == mask
    assert renamed["jpg"].shape == (3, SIDE, SIDE)
    (by_name,) = opened(tar).map_dict(jpg=crop())
    assert (by_name["png"], by_name["jpg"].shape) == (mask, (3, SIDE, SIDE))


def test_a_decoded_picture_is_an_error(tmp_path: Path) -> None:
    tar = written(tmp_path, [{"jpg": BASELINE}])
    with pytest.raises(
        ConfigError, match="expected the bytes of the member 'jpg', got Image; crop before"
    ):
        list(opened(tar).decode("pil").map(crop()))


def test_other_uses_are_errors() -> None:
    uses: list[tuple[Any, ...]] = [(1,), ("jpg",), (shown(BASELINE),), ("jpg", "text"), ()]
    for given in uses:
        with pytest.raises(
            ConfigError, match=r"expected a sample, or a member's bytes, got .*use it as webdataset"
        ):
            crop()(*given)


def test_options_are_those_of_a_loader() -> None:
    mistakes: list[tuple[dict[str, Any], str]] = [
        ({"size": 0}, "size: expected 1 to"),
        ({"train": 1}, "train: expected True or False"),
        ({"crop": "center"}, r"Write crop=fastpipe\.CenterCrop"),
        ({"hflip": 2}, "hflip: expected"),
        ({"seed": -1}, "seed: expected 0 to"),
        ({"exact": None}, "exact: expected True or False"),
        ({"max_pixels": 0}, "max_pixels: expected 1 to"),
    ]
    for function in (fastpipe.wds.crop, fastpipe.wds.batch_crop):
        for options, words in mistakes:
            with pytest.raises(ConfigError, match=words):
                function(**options)
    for epoch in (-1, 1.5, None, 2**63):
        with pytest.raises(ConfigError, match="epoch: expected"):
            crop().set_epoch(epoch)
