"""Who is measured: each peer's environment, script and data, and the dataset that fastpipe reads beside it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SCRIPTS = ROOT / "bench" / "peers"
INSTALLED = ROOT / "build" / "peers"

PHOTOS, SHRUNK_PHOTOS = "photos", "photos-500"
PACKED, PACKED_500, PACKED_SHRUNK = "fastpipe", "fastpipe-500", "fastpipe-of-photos-500"
COEFFICIENTS, COEFFICIENTS_500 = "fastpipe-coefficients", "fastpipe-coefficients-500"
PNGS, PACKED_PNGS = "photos-png", "fastpipe-of-photos-png"
SMALL, PACKED_SMALL = (
    "small",
    "small-fastpipe",
)  # the names of all datasets of small images begin so
PACKED_GRAY, COEFFICIENTS_GRAY = "fastpipe-gray", "fastpipe-gray-coefficients"


@dataclass(frozen=True)
class Peer:
    """One row of the table.

    Attributes:
        name: as on the command line.
        label: as in the table.
        environment: of build/peers, with the requirements of the same name; "" is the checkout's own.
        script: of bench/peers.
        data: the dataset that it reads.
        beside: the dataset that fastpipe reads in the runs next to it.
        variant: of the script.
        workers: other than the number asked for.
        system: Debian's packages that its environment needs.
    """

    name: str
    label: str
    environment: str
    script: str
    data: str
    beside: str = PACKED
    variant: str = ""
    workers: int | None = None
    system: tuple[str, ...] = ()

    @property
    def small(self) -> bool:
        """Whether it reads images of 32 x 32 pixels, in larger batches, whole and moved by up to 4 pixels."""
        return self.data.startswith(SMALL)


def fastpipe(data: str) -> Peer:
    """What every peer is compared with: every crop decoded at full size."""
    variant = {PACKED_SMALL: "small", PACKED_GRAY: "gray", COEFFICIENTS_GRAY: "gray"}.get(
        data, "exact"
    )
    return Peer("fastpipe", "fastpipe", "", "fastpipe_packed.py", data, data, variant)


def _ffcv(name: str, label: str, stored: str, beside: str, data: str = "") -> Peer:
    needs = ("g++", "pkg-config", "libopencv-dev", "libturbojpeg0-dev")
    return Peer(
        name, label, "ffcv", "ffcv_beton.py", data or f"ffcv-{stored}", beside, stored, system=needs
    )


def _torchvision(name: str, label: str, data: str, beside: str, variant: str = "") -> Peer:
    return Peer(
        f"torchvision-{name}", label, "torchvision_pil", "torchvision_pil.py", data, beside, variant
    )


_JPEG, _TURBOJPEG, _FFMPEG = ("libjpeg62-turbo-dev",), ("libturbojpeg0",), ("ffmpeg",)

_OTHERS = (
    Peer(
        "libjpeg",
        "libjpeg-turbo, decoding alone",
        "libjpeg",
        "libjpeg_decode.c",
        PHOTOS,
        system=_JPEG,
    ),
    Peer(
        "torchvision",
        "DataLoader, torchvision, Pillow",
        "torchvision_pil",
        "torchvision_pil.py",
        PHOTOS,
    ),
    Peer(
        "turbojpeg",
        "DataLoader, PyTurboJPEG, OpenCV",
        "turbojpeg_cv2",
        "turbojpeg_cv2.py",
        PHOTOS,
        system=_TURBOJPEG,
    ),
    Peer(
        "simplejpeg",
        "DataLoader, simplejpeg, OpenCV",
        "simplejpeg_cv2",
        "simplejpeg_cv2.py",
        PHOTOS,
    ),
    Peer("webdataset", "WebDataset", "webdataset", "webdataset_tars.py", "webdataset"),
    Peer("streaming", "MosaicML Streaming", "streaming", "mosaic_streaming.py", "streaming"),
    Peer("litdata", "LitData", "litdata", "litdata_chunks.py", "litdata"),
    Peer("spdl", "SPDL", "spdl", "spdl_threads.py", PHOTOS, system=_FFMPEG),
    Peer("dali", "DALI on the CPU", "dali", "dali_cpu.py", PHOTOS),
    _ffcv("ffcv-jpg", "FFCV, JPEG", "jpg", PACKED_500),
    _ffcv("ffcv-jpg-same", "FFCV, JPEG", "jpg", PACKED_SHRUNK),
    _ffcv("ffcv-raw", "FFCV, raw pixels", "raw", PACKED_500),
)
# The strongest of them, beside the same photos stored as coefficients.
_BESIDE_COEFFICIENTS = {
    **dict.fromkeys(("libjpeg", "torchvision", "turbojpeg", "simplejpeg", "dali"), COEFFICIENTS),
    "ffcv-raw": COEFFICIENTS_500,
}
PEERS = (
    *_OTHERS,
    *(
        replace(peer, name=f"{peer.name}-coefficients", beside=_BESIDE_COEFFICIENTS[peer.name])
        for peer in _OTHERS
        if peer.name in _BESIDE_COEFFICIENTS
    ),
    Peer(
        "fastpipe-jpeg", "fastpipe, JPEGs", "", "fastpipe_packed.py", PACKED, COEFFICIENTS, "exact"
    ),
    Peer(
        "fastpipe-jpeg-500",
        "fastpipe, JPEGs",
        "",
        "fastpipe_packed.py",
        PACKED_500,
        COEFFICIENTS_500,
        "exact",
    ),
    Peer("fastpipe-default", "fastpipe, exact=False", "", "fastpipe_packed.py", PACKED),
    Peer(
        "fastpipe-default-500",
        "fastpipe, exact=False",
        "",
        "fastpipe_packed.py",
        PACKED_500,
        PACKED_500,
    ),
    _torchvision("png", "DataLoader, torchvision, Pillow", PNGS, PACKED_PNGS),
    _torchvision("png-unpacked", "DataLoader, torchvision, Pillow", PNGS, PNGS),
    _torchvision(
        "small",
        "DataLoader, torchvision, Pillow, an array in memory",
        f"{SMALL}-arrays",
        PACKED_SMALL,
        "small",
    ),
    _ffcv("ffcv-small", "FFCV, raw pixels", "small", PACKED_SMALL, f"{SMALL}-ffcv"),
    Peer(
        "fastpipe-colour",
        "fastpipe, in colour",
        "",
        "fastpipe_packed.py",
        PACKED,
        PACKED_GRAY,
        "exact",
    ),
    Peer(
        "fastpipe-colour-coefficients",
        "fastpipe, in colour",
        "",
        "fastpipe_packed.py",
        COEFFICIENTS,
        COEFFICIENTS_GRAY,
        "exact",
    ),
    Peer(
        "fastpipe-1-thread",
        "fastpipe, one thread",
        "",
        "fastpipe_packed.py",
        PACKED,
        variant="exact",
        workers=1,
    ),
)


def chosen(names: Iterable[str]) -> Sequence[Peer]:
    """The peers of these names, in the table's order.

    Raises:
        ValueError: a name is unknown.
    """
    wanted = set(names)
    unknown = wanted - {peer.name for peer in PEERS}
    if unknown:
        known = ", ".join(peer.name for peer in PEERS)
        raise ValueError(f"expected some of {known}; got {', '.join(sorted(unknown))}")
    return [peer for peer in PEERS if peer.name in wanted]


def failure_note(environment: str) -> Path:
    """The file that says why an environment could not be made."""
    return INSTALLED / f"{environment}.failed"


def missing(peer: Peer) -> str | None:
    """Why a peer cannot run here; None if it can."""
    if not peer.environment:
        return None
    try:
        return failure_note(peer.environment).read_text().strip()
    except FileNotFoundError:
        pass
    if not (INSTALLED / peer.environment / "ready").exists():
        return "not installed; run `make bench-peers`"
    return None
