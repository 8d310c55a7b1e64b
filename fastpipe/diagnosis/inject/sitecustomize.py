"""A Python program that starts with this folder on its PYTHONPATH -> one whose DataLoaders are watched.

Python imports a module of this name at every start. The one that it would have imported is imported after this.
"""

import importlib.machinery
import importlib.util
import os
import sys

if folder := os.environ.get("FASTPIPE_WATCH"):
    try:
        from fastpipe_probe.patch import install  # type: ignore[import-not-found] # beside this file, on sys.path

        install(folder)
    except Exception:  # the program has to run as it does without this
        import traceback

        with open(os.path.join(folder, "trouble.txt"), "a", encoding="utf-8") as file:
            traceback.print_exc(file=file)

    own = os.path.dirname(os.path.abspath(__file__))
    others = [path for path in sys.path if os.path.abspath(path or ".") != own]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)
