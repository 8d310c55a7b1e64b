"""torch's DataLoader over the photos' files, with PyTurboJPEG and OpenCV."""

from __future__ import annotations

from functools import partial

import contender
import opencv_photos
import turbojpeg


def decoder() -> opencv_photos.Decoder:
    return partial(turbojpeg.TurboJPEG().decode, pixel_format=turbojpeg.TJPF_RGB)


def read(task: contender.Task) -> contender.Loader:
    return opencv_photos.read(task, decoder)


if __name__ == "__main__":
    contender.main(("torch", "PyTurboJPEG", "opencv-python-headless"), read)
