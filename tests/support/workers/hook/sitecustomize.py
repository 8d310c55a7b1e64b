"""For a program that has torch from its start (warm.py): its DataLoaders are changed now, not as torch is imported."""

import os
import sys

loaded = sys.modules.get("torch.utils.data.dataloader")
if loaded is not None:
    from fastpipe_probe import patch  # beside the sitecustomize that has imported this one

    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, patch._Finder)]
    patch.patch(loaded, os.environ[patch.FOLDER])
