"""torch's DataLoader over the photos' files, with simplejpeg and OpenCV."""

from __future__ import annotations

import contender
import opencv_photos
import simplejpeg


def decoder() -> opencv_photos.Decoder:
    return simplejpeg.decode_jpeg  # RGB, exact inverse DCT and upsampling


def read(task: contender.Task) -> contender.Loader:
    return opencv_photos.read(task, decoder)


if __name__ == "__main__":
    contender.main(("torch", "simplejpeg", "opencv-python-headless"), read)
