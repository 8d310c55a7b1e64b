"""A worker process of torch's DataLoader -> a process whose libraries use one thread."""

from __future__ import annotations

import os
import sys

from torch.utils.data import get_worker_info


def keep_to_one_thread() -> None:
    """In a worker process, has OpenCV work on the calling thread; elsewhere does nothing.

    Workers run side by side already; and OpenCV's threads do not live through a fork. torch limits its own (OpenMP) to
    one when it starts a worker, and fastpipe's decoder has none. OpenCV is not imported for this: where it has not
    been, the variable that it reads at its import says the same.
    """
    if get_worker_info() is None:
        return
    os.environ["OPENCV_FOR_THREADS_NUM"] = "1"
    opencv = sys.modules.get("cv2")
    if opencv is not None:
        opencv.setNumThreads(0)
