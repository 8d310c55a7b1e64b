"""Types of the native engine (csrc/bindings.cc)."""

import numpy as np
from numpy.typing import NDArray

TASK_DTYPE: np.dtype[np.void]
RANGE_DTYPE: np.dtype[np.void]
MAX_PIXELS: int
LIBJPEG_TURBO_VERSION: str

class Engine:
    def __init__(self, shards: list[tuple[bytes, int]], threads: int, max_open_files: int) -> None: ...
    def read_ahead(self, ranges: NDArray[np.void], restart: bool) -> None: ...
    def counters(self) -> dict[str, float]: ...
    def close(self) -> None: ...

class Job:
    def __init__(
        self, engine: Engine, tasks: NDArray[np.void], images: NDArray[np.uint8], exact: bool, verify: bool
    ) -> None: ...
    def wait(self, timeout_s: float) -> bool: ...
    def cancel(self) -> None: ...
    def errors(self) -> list[tuple[int, str]]: ...

class Shard:
    def __init__(self, path: bytes, size_bytes: int) -> None: ...
    def read_picture(self, offset: int, size: int, image: NDArray[np.uint8]) -> None: ...

def xxh3_64(data: bytes, scalar: bool = False) -> int: ...
def jpeg_size(jpeg: bytes, max_pixels: int = ...) -> tuple[int, int]: ...
def decode(
    jpeg: bytes,
    region: tuple[int, int, int, int] | None = None,
    denominator: int = 1,
    max_pixels: int = ...,
    method: str = "",
) -> NDArray[np.uint8]: ...
def decode_methods() -> list[str]: ...
def resize(
    image: NDArray[np.uint8],
    height: int,
    width: int,
    box: tuple[float, float, float, float] | None = None,
    bounds: tuple[int, int, int, int] | None = None,
    flip: bool = False,
    kernels: str = "",
    rows_at_once: int = 8,
) -> NDArray[np.uint8]: ...
def resize_kernels() -> list[str]: ...
def transcode(
    jpeg: bytes,
    segments: list[tuple[int, bytes]] = ...,
    max_pixels: int = ...,
    max_scans: int = 256,
    check_only: bool = False,
    tile: int = 0,
) -> tuple[bytes | None, dict[str, int]]: ...
