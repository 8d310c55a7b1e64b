"""The options of a pack as a user gives them -> checked options."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from fastpipe.dataset.format.fields import SPATIAL_KINDS
from fastpipe.dataset.format.folder import Place, Url
from fastpipe.dataset.format.layout import PICTURE_ENDINGS
from fastpipe.errors import ConfigError, choice, flag, size_bytes, whole
from fastpipe.machine.cpus import count_granted_cpus
from fastpipe.packing.cluster import RAY, THREADS
from fastpipe.sources.annotations.run_lengths import RUN_ORDERS
from fastpipe.sources.classes_from import ClassesFrom, class_names
from fastpipe.sources.listing import SHOWN
from fastpipe.sources.options import (
    BAD_BOXES,
    BOX_FORMATS,
    COORDINATES,
    UNLISTED,
    Format,
    SourceOptions,
    parse_source_options,
)
from fastpipe.sources.picture.background import parse_background
from fastpipe.sources.picture.convert import DAMAGED, EncodeOptions
from fastpipe.store.remote.options import place_of, remote_options

READ_TIMEOUT_S = 20.0
DEFAULT_SHARD_BYTES = 256_000_000
# The entry of a pack's recorded options that says what boxes are of, if no option says it.
BY_RULE = "coordinates"

# The values that a user chooses from, by the option's name.
CHOICES = {
    "format": tuple(format.value for format in Format),
    "on_error": ("report", "fail"),
    "damaged": DAMAGED,
    "exif": ("ignore", "apply"),
    "coordinates": COORDINATES,
    "storage": tuple(PICTURE_ENDINGS),
    "box_format": BOX_FORMATS,
    "run_order": RUN_ORDERS,
    "unlisted": UNLISTED,
    "bad_boxes": BAD_BOXES,
    "executor": (THREADS, RAY),
    "by": ("path", "content"),
    "changed": ("error", "replace", "skip"),
}
# The smallest and the largest value, by the option's name. A JPEG has at most 65,500 pixels a side.
_LIMITS = {
    "workers": (1, 1024),
    "max_size": (1, 65500),
    "quality": (1, 100),
    "tile": (0, 65500),
    "shard_size": (100_000, 2**40),
    "seed": (0, 2**64 - 1),
    "max_pixels": (1, 2**60),
    "level": (0, 100),
    "max_scans": (1, 2**31 - 1),
}
_HINTS = {"shard_size": "a number is one of bytes; for 256 megabytes write 256MB"}


@dataclass(frozen=True)
class PackOptions:
    """The sources that are packed, and how they are packed; see `fastpipe.pack`."""

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
        _check_values(self)
        _check_values(self.encode)
        choice("damaged", self.encode.damaged, CHOICES["damaged"])
        choice("storage", self.encode.storage, CHOICES["storage"])
        if self.encode.quality is not None and self.encode.lossless:
            raise ConfigError(
                "--lossless does not go with --quality, which is that of images with loss: leave "
                "out one"
            )

    @property
    def threads(self) -> int:
        """How many threads work: `workers`, or the CPUs granted to this process."""
        return thread_count(self.workers)

    def shaping(
        self, kinds: Mapping[str, str] | None = None, coordinates: str | None = None
    ) -> dict[str, Any]:
        """All that decides the dataset's bytes: these options, and name -> kind of the fields.

        Args:
            kinds: of the fields.
            coordinates: SHOWN or STORED, by the rule of the source's format: see Note [frames].
                SHOWN is recorded if fields move with their image. Datasets without a record were
                packed before there was the rule.
        """
        encode = asdict(self.encode)
        # Datasets that were packed before these options existed lack them in dataset.json.
        if self.encode.background is None:
            del encode["background"]
        if self.encode.level == 0:
            del encode["level"]
        shaping = {
            **encode,
            "shard_size": self.shard_size,
            "seed": self.seed,
            "shuffle": self.shuffle,
            "source": self.source.recorded(),
            "fields": dict(kinds or {}),
        }
        has_moving_fields = any(
            kind in SPATIAL_KINDS for kind in shaping["fields"].values()
        )
        if has_moving_fields and coordinates == SHOWN:
            shaping[BY_RULE] = SHOWN
        return shaping


def thread_count(workers: int | None) -> int:
    """The number of threads for --workers; None: the CPUs granted to this process.

    ConfigError: the number is out of range.
    """
    least, most = _LIMITS["workers"]
    if workers is None:
        return min(count_granted_cpus(), most)
    return whole("workers", workers, least=least, most=most)


def _check_values(options: PackOptions | EncodeOptions) -> None:
    """Checks the numbers against their limits, and that yes/no options are bools."""
    for option in fields(options):
        value = getattr(options, option.name)
        if isinstance(option.default, bool):
            flag(option.name, value)
        if option.name not in _LIMITS:
            continue
        is_optional = option.default is None
        if value is not None or not is_optional:
            least, most = _LIMITS[option.name]
            hint = _HINTS.get(option.name, "")
            whole(option.name, value, least=least, most=most, hint=hint)


# The options of a user that PackOptions and EncodeOptions have under the same name.
_PACK_OPTIONS = {"seed", "shuffle", "overwrite", "workers"}
_ENCODE_OPTIONS = {option.name for option in fields(EncodeOptions)} - {"apply_exif"}
_PARSED_OPTIONS = {
    "exif",
    "shard_size",
    "on_error",
    "storage_options",
    "read_timeout",
    "spool",
}
OPTIONS = _PACK_OPTIONS | _ENCODE_OPTIONS | _PARSED_OPTIONS


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
    """The options of a user, checked: OPTIONS and those of SourceOptions."""
    pack = {name: others.pop(name) for name in _PACK_OPTIONS & others.keys()}
    encode = {name: others.pop(name) for name in _ENCODE_OPTIONS & others.keys()}
    if storage_options is not None or read_timeout != READ_TIMEOUT_S:
        others["remote"] = remote_options(None, 0, storage_options, read_timeout)
    source = parse_source_options(**others)
    if classes_from is not None:
        classes = class_names(classes_from, source.remote, source)
        source = replace(source, classes=classes)

    encode["background"] = parse_background(encode.get("background"))
    encode["apply_exif"] = choice("exif", exif, CHOICES["exif"]) == "apply"
    if spool is not None:
        place = place_of(spool)
        if not isinstance(place, Url):
            expanded = os.path.expanduser(str(place))
            place = Path(os.path.abspath(expanded))
        pack["spool"] = place
    return PackOptions(
        EncodeOptions(**encode),
        source=source,
        shard_size=size_bytes("shard_size", shard_size),
        fail_fast=choice("on_error", on_error, CHOICES["on_error"]) == "fail",
        **pack,
    )
