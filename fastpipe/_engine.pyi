"""Types of the native engine (csrc/python)."""

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

_Ids = TypeVar("_Ids", np.uint8, np.int32)

TASK_DTYPE: np.dtype[np.void]
RANGE_DTYPE: np.dtype[np.void]
MAX_PIXELS: int
LIBJPEG_TURBO_VERSION: str
LIBDEFLATE_VERSION: str

class Code:
    """How native work ended; csrc/base/status.h lists them all."""

    cancelled: Code
    open_failed: Code
    shard_changed: Code
    read_failed: Code
    shard_too_short: Code
    hash_mismatch: Code
    not_jpeg: Code
    truncated: Code
    corrupt: Code
    unsupported: Code
    too_many_scans: Code
    size_mismatch: Code
    png_surplus: Code
    out_of_memory: Code

class Reason(str):
    """Why a row failed."""

    code: Code | None  # None: other code than the engine's refused it

class StatusError(ValueError):
    """The engine refuses what it was given."""

    code: Code

def reason(code: Code, detail: str) -> Reason: ...

class Engine:
    def __init__(
        self,
        shards: list[tuple[bytes, int]],
        threads: int,
        max_open_files: int,
        mtimes_ns: list[int] = ...,
        cpus: int = ...,
    ) -> None: ...
    def read_ahead(self, ranges: NDArray[np.void], restart: bool) -> None: ...
    def counters(self) -> dict[str, Any]: ...
    def levels(self) -> dict[str, int]: ...
    def activities(self) -> list[tuple[str, int, int, float]]: ...
    def close(self, patience_s: float) -> bool: ...
    def closed(self) -> bool: ...

class Job:
    def __init__(
        self,
        engine: Engine,
        tasks: NDArray[np.void],
        views: Sequence[
            tuple[NDArray[Any], bool, dict[str, Any]]
        ],  # Slot, with its Rendering as a dict
        verify: bool,
    ) -> None: ...
    def wait(self, timeout_s: float) -> bool: ...
    def cancel(self, patience_s: float) -> None: ...
    def errors(self) -> list[tuple[int, Reason]]: ...

def fill_batches(
    sizes: NDArray[np.int64], budget: int, most: int
) -> tuple[NDArray[np.int64], int]: ...

class Descriptor:
    def __init__(self, number: int) -> None: ...
    def number(self) -> int: ...

class Shard:
    def __init__(self, path: bytes, size_bytes: int, mtime_ns: int = ...) -> None: ...
    def read_picture(self, offset: int, size: int, image: NDArray[Any]) -> None: ...
    def read_mask(
        self, offset: int, size: int, mask: NDArray[np.uint8] | NDArray[np.int32]
    ) -> None: ...
    def fill_rows(
        self,
        tasks: NDArray[np.void],
        images: NDArray[Any],
        exact: bool,
        **rendering: Any,
    ) -> None: ...
    def read_bytes(self, offset: int, out: NDArray[np.uint8]) -> None: ...

def read_headers(
    paths: list[bytes], offsets: NDArray[np.uint64], sizes: NDArray[np.uint64]
) -> NDArray[np.void]: ...
def xxh3_64(data: bytes, scalar: bool = False) -> int: ...
def picture_size(picture: bytes, max_pixels: int = ...) -> tuple[int, int]: ...
def decode(
    picture: bytes,
    region: tuple[int, int, int, int] | None = None,
    denominator: int = 1,
    max_pixels: int = ...,
    method: str = "",
    kernels: str = "",
    channels: int = 3,
    bits: int = 8,
) -> NDArray[Any]: ...
def check_picture(picture: bytes, max_pixels: int = ...) -> None: ...
def decode_methods() -> list[str]: ...
def fill_rows(
    pictures: list[bytes],
    tasks: NDArray[np.void],
    images: NDArray[Any],
    exact: bool,
    threads: int = 1,
    planar: bool = False,
    **rendering: Any,
) -> list[tuple[int, Reason]]: ...
def resize(
    image: NDArray[Any],
    height: int,
    width: int,
    box: tuple[float, float, float, float] | None = None,
    bounds: tuple[int, int, int, int] | None = None,
    flip: bool = False,
    kernels: str = "",
    rows_at_once: int = 8,
    **rendering: Any,
) -> NDArray[Any]: ...
def resize_kernels() -> list[str]: ...
def png_header(png: bytes, max_pixels: int = ...) -> dict[str, Any]: ...
def png_samples(
    png: bytes, max_pixels: int = ...
) -> NDArray[np.uint8] | NDArray[np.uint16]: ...
def filter_rows(
    rows: NDArray[np.uint8], pixel_bytes: int, strip_rows: int
) -> NDArray[np.uint8]: ...
def decode_mask(
    png: bytes, max_pixels: int = ...
) -> NDArray[np.uint8] | NDArray[np.int32]: ...
def resize_mask(
    mask: NDArray[_Ids],
    height: int,
    width: int,
    box: tuple[float, float, float, float] | None = None,
    bounds: tuple[int, int, int, int] | None = None,
    flip: bool = False,
    **rendering: Any,
) -> NDArray[_Ids]: ...
def transcode(
    jpeg: bytes,
    segments: list[tuple[int, bytes]] = ...,
    max_pixels: int = ...,
    max_scans: int = 256,
    check_only: bool = False,
    tile: int = 0,
    coefficients: bool = False,
) -> tuple[bytes | None, dict[str, int]]: ...
def restore_jpeg(fpc: bytes, kernels: str = "") -> bytes: ...
def coefficients_of(fpc: bytes, kernels: str = "") -> list[NDArray[np.int16]]: ...
def block_kernels() -> list[str]: ...
