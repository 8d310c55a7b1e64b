"""What a user asks of a pack -> checked options."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from fastpipe.errors import ConfigError, choice, flag, size_bytes, whole
from fastpipe.format.folder import Place, Url
from fastpipe.format.layout import PICTURE_ENDINGS
from fastpipe.machine.cpus import granted_cpus
from fastpipe.packing.cluster import RAY, THREADS
from fastpipe.packing.fields.placement import MOVING
from fastpipe.sources.classes_from import ClassesFrom, class_names
from fastpipe.sources.listing import SHOWN
from fastpipe.sources.options import BOX_FORMATS, COORDINATES, UNLISTED, Format, SourceOptions, source_options
from fastpipe.sources.picture.background import background_color
from fastpipe.sources.picture.convert import DAMAGED, EncodeOptions
from fastpipe.store.remote.options import place_of, remote_options

READ_TIMEOUT_S = 20.0
DEFAULT_SHARD_BYTES = 256_000_000
BY_RULE = "coordinates"  # in the record of a pack: what boxes are of, where no option says it

# The words that a user chooses from, and the least and the greatest number, by the option's name.
CHOICES = {
    "format": tuple(each.value for each in Format),
    "on_error": ("report", "fail"),
    "damaged": DAMAGED,
    "exif": ("ignore", "apply"),
    "coordinates": COORDINATES,
    "storage": tuple(PICTURE_ENDINGS),
    "box_format": BOX_FORMATS,
    "unlisted": UNLISTED,
    "executor": (THREADS, RAY),
    "by": ("path", "content"),
    "changed": ("error", "replace", "skip"),
}
_LIMITS = {
    "workers": (1, 1024),
    "max_size": (1, 65500),
    "quality": (1, 100),
    "tile": (0, 65500),
    "shard_size": (100_000, 2**40),
    "seed": (0, 2**64 - 1),
    "max_pixels": (1, 65500 * 65500),
    "max_scans": (1, 2**31 - 1),
}


@dataclass(frozen=True)
class PackOptions:
    """What is packed and how; see `fastpipe.pack`."""

    encode: EncodeOptions = field(default_factory=EncodeOptions)
    source: SourceOptions = field(default_factory=SourceOptions, kw_only=True)
    shard_size: int = DEFAULT_SHARD_BYTES  # about; a Writer fills shards up to it
    seed: int = 0
    shuffle: bool = True
    fail_fast: bool = False
    overwrite: bool = False
    workers: int | None = None  # None: see `threads`
    spool: Place | None = None

    def __post_init__(self) -> None:
        for part in (self, self.encode):
            for each in fields(part):
                name, value = each.name, getattr(part, each.name)
                if name in _LIMITS and not (value is None and each.default is None):
                    least, most = _LIMITS[name]
                    whole(f"--{name.replace('_', '-')}", value, least=least, most=most)
                elif isinstance(each.default, bool):
                    flag(name, value)
        choice("--damaged", self.encode.damaged, CHOICES["damaged"])
        choice("--storage", self.encode.storage, CHOICES["storage"])
        if self.encode.quality is not None and self.encode.lossless:
            raise ConfigError("--lossless does not go with --quality, which is that of images with loss: leave out one")

    @property
    def threads(self) -> int:
        """How many threads work: `workers`, or the CPUs granted to this process."""
        return self.workers or min(granted_cpus(), _LIMITS["workers"][1])

    def shaping(self, kinds: Mapping[str, str] | None = None, coordinates: str | None = None) -> dict[str, Any]:
        """What decides the dataset's bytes: the options, and name -> kind of the fields, if there are any.

        Args:
            kinds: of the fields.
            coordinates: SHOWN or STORED, by the rule of the source's format: see Note [frames]. SHOWN is recorded
                where fields move with their image. Datasets without a record have it from before there was the rule.
        """
        encode = asdict(self.encode)
        moving = any(kind in MOVING for kind in (kinds or {}).values())
        by_rule = {BY_RULE: SHOWN} if moving and coordinates == SHOWN else {}
        if self.encode.background is None:  # as datasets have it that were packed before there was this option
            del encode["background"]
        return {
            **encode,
            "shard_size": self.shard_size,
            "seed": self.seed,
            "shuffle": self.shuffle,
            "source": self.source.recorded(),
            "fields": dict(kinds or {}),
            **by_rule,
        }


# Options that users say as PackOptions and EncodeOptions have them.
_OWN = {"seed", "shuffle", "overwrite", "workers"}
_OF_ENCODING = {each.name for each in fields(EncodeOptions)} - {"apply_exif"}
OPTIONS = _OWN | _OF_ENCODING | {"exif", "shard_size", "on_error", "storage_options", "read_timeout", "spool"}


def pack_options(
    *,
    exif: str = "ignore",
    shard_size: int | str = DEFAULT_SHARD_BYTES,
    on_error: str = "report",
    storage_options: Mapping[str, Any] | None = None,
    read_timeout: float = READ_TIMEOUT_S,
    spool: str | os.PathLike[str] | None = None,
    classes_from: ClassesFrom | None = None,
    **others: Any,
) -> PackOptions:
    """The options of `fastpipe.pack` and `fastpipe.Writer`, checked: OPTIONS and those of SourceOptions."""
    own, encode = ({name: others.pop(name) for name in names & others.keys()} for names in (_OWN, _OF_ENCODING))
    if storage_options is not None or read_timeout != READ_TIMEOUT_S:
        others["remote"] = remote_options(None, 0, storage_options, read_timeout)
    if classes_from is not None:
        others["classes"] = class_names(classes_from, others.get("remote"))
    encode["background"] = background_color(encode.get("background"))
    if spool is not None:
        place = place_of(spool)
        own["spool"] = place if isinstance(place, Url) else Path(os.path.abspath(os.path.expanduser(str(place))))
    return PackOptions(
        EncodeOptions(apply_exif=choice("--exif", exif, CHOICES["exif"]) == "apply", **encode),
        source=source_options(**others),
        shard_size=size_bytes("--shard-size", shard_size),
        fail_fast=choice("--on-error", on_error, CHOICES["on_error"]) == "fail",
        **own,
    )
