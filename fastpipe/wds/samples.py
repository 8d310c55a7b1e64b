"""A sample of a WebDataset, or one of its members -> the same with its pictures cropped."""

from __future__ import annotations

from typing import Any

import torch

from fastpipe.engine.limits import MAX_PIXELS
from fastpipe.errors import ConfigError, SampleError, readable
from fastpipe.plan.crops import Crop
from fastpipe.sources.options import PICTURES
from fastpipe.wds.cropping import JPEG_MAGIC, Cropping

_WAYS = "webdataset.WebDataset(...).map(CROP), .decode(CROP) or .map_dict(jpg=CROP)"
_FILMS = frozenset(["mjpeg", "mjpg"])  # which begin as a JPEG does


def crop(
    size: int | tuple[int, int] = 224,
    *,
    train: bool = True,
    crop: Crop | None = None,
    hflip: bool | float | None = None,
    seed: int = 0,
    exact: bool = False,
    max_pixels: int = MAX_PIXELS,
) -> SampleCrop:
    """A function for webdataset's `.map`, `.decode` and `.map_dict` that makes crops of pictures.

    A picture becomes a uint8 tensor (3, height, width), RGB, 0 to 255, contiguous, as `torch.stack` likes it. JPEGs
    and PNGs are decoded by fastpipe's engine, as far as the crop needs; progressive and CMYK JPEGs as `fastpipe pack`
    stores them; WebP and others by Pillow. Other members stay as they are, also `seg.png` and the like, which may be
    masks.

    In `.map(CROP)` the draws are named by the sample's `__key__`; so several JPEGs of a sample that have one size get
    the same crop and flip. In `.decode(CROP)` and `.map_dict(jpg=CROP)` the key is not known, and the hash of the bytes
    stands for it.

    Args:
        size: size of the output in pixels: a number for a square, or (height, width).
        train: True: RandomResizedCrop and mirroring. False: CenterCrop.
        crop: how an image becomes a row: fastpipe.RandomResizedCrop, RandomCrop, CenterCrop, Resize or Letterbox; None:
            `train` decides.
        hflip: mirror images left to right: True (half of them), False, or a probability; None: `train` decides.
        seed: seed of crops and flips; whole number in [0, 2**64).
        exact: True: always decode at full size. See fastpipe.loader.
        max_pixels: largest number of pixels of one stored image; a larger one cannot be decoded.

    Returns:
        A SampleCrop: a function, with `set_epoch`.

    Raises:
        ConfigError: an argument is wrong.
    """
    return SampleCrop(size, train=train, crop=crop, hflip=hflip, seed=seed, exact=exact, max_pixels=max_pixels)


class SampleCrop(Cropping):
    """What `fastpipe.wds.crop` returns. Use it in any process and thread; it can be pickled."""

    def __call__(self, *given: Any) -> Any:
        """The sample with its pictures cropped; or the crop of one member.

        Args:
            *given: a sample, a dict (`.map`); an extension and bytes (`.decode`); or bytes (`.map_dict`).

        Returns:
            A dict, or a tensor; None in `.decode` for a member that is no picture, so that others decode it.

        Raises:
            SampleError: a picture cannot be decoded.
        """
        if len(given) == 1 and isinstance(given[0], dict):
            return self._sample(given[0])
        if len(given) == 1 and isinstance(given[0], bytes):
            return self._member("", given[0])
        if len(given) == 2 and isinstance(given[0], str) and isinstance(given[1], bytes):
            extension = given[0].removeprefix(".")
            return self._member(extension, given[1]) if _is_picture(extension, given[1]) else None
        kinds = ", ".join(type(one).__name__ for one in given)
        raise ConfigError(f"fastpipe.wds.crop: expected a sample, or a member's bytes, got {kinds}; use it as {_WAYS}")

    def _sample(self, sample: dict[str, Any]) -> dict[str, Any]:
        pictures = pictures_of(sample)
        if not pictures:
            return sample
        draws, made = self.draws([name_of(sample)]), {}
        for extension, data in pictures.items():
            rows, failed = self.rows([data], draws, planar=True)
            if failed:
                raise sample_error(sample, failed[0], extension)
            made[extension] = torch.from_numpy(rows[0])
        return {**sample, **made}

    def _member(self, extension: str, data: bytes) -> torch.Tensor:
        rows, failed = self.rows([data], self.draws([data]), planar=True)
        if failed:
            what = f"a member {extension}".rstrip()
            raise SampleError(f"{what} of {len(data):,} bytes cannot be decoded: {failed[0]}", reason=failed[0])
        return torch.from_numpy(rows[0])


def _is_picture(extension: str, data: object) -> bool:
    """Whether a member is to be cropped.

    Those are members of a picture's extension (`jpg`, `png`), and JPEGs of any other (`left.jpg`, `bin`). A PNG of
    another extension (`seg.png`) may be a mask, whose ids must not be mixed: it is left alone.
    """
    extension = extension.lower()
    if extension in PICTURES:
        return True
    jpeg = isinstance(data, bytes) and data.startswith(JPEG_MAGIC)
    return jpeg and extension.rpartition(".")[2] not in _FILMS


def pictures_of(sample: dict[str, Any]) -> dict[str, bytes]:
    """A sample's pictures, by extension.

    Raises:
        ConfigError: one has been decoded already, or it is not certain which one is meant.
    """
    found = {}
    for extension, data in sample.items():
        if extension.startswith("__") or not _is_picture(extension, data):
            continue
        if not isinstance(data, bytes):
            raise ConfigError(
                f"fastpipe.wds: expected the bytes of the member {extension!r}, got {type(data).__name__}; crop before "
                "other stages decode or change the picture"
            )
        found[extension] = data
    if len(plain := sorted(found.keys() & PICTURES)) > 1:
        raise ConfigError(
            f"fastpipe.wds: expected one picture in the sample {sample.get('__key__')!r}, got {' and '.join(plain)}. A "
            "resize would mix a mask's ids: rename a mask before, .rename(**{'mask.png': 'png'}), or crop one member "
            "only, .map_dict(jpg=fastpipe.wds.crop(...))"
        )
    return found


def name_of(sample: dict[str, Any]) -> bytes:
    """What names a sample in the draws."""
    return str(sample.get("__key__", "")).encode(errors="surrogateescape")


def sample_error(sample: dict[str, Any], reason: str, member: str | None = None, advice: str = "") -> SampleError:
    """Names the sample, or a member of it, its tar, and the reason."""
    key, url = readable(str(sample.get("__key__", ""))), readable(str(sample.get("__url__", "")))
    what = f"the sample {key!r} cannot be cropped"
    if member is not None:
        what = f"the member {member!r} of the sample {key!r} cannot be decoded"
    return SampleError(
        f"{what}: {reason}\n"
        f"  in {url or 'an unknown tar'}\n"
        f"  {advice}to train without such samples, pass handler=webdataset.warn_and_continue to this stage",
        shard=url,
        key=key,
        reason=reason,
    )
