"""A Python program with this folder on its PYTHONPATH -> one whose DataLoaders are watched.

Python imports a module of this name at every start. If the program has a sitecustomize of its own,
this one hides it, so this one runs it in the end.
"""

import importlib.machinery
import importlib.util
import os
import sys

folder = os.environ.get("FASTPIPE_WATCH")
if folder:
    try:
        # The package lies beside this file, which is on sys.path.
        from fastpipe_probe.patch import install  # type: ignore[import-not-found]

        install(folder)
    except Exception:  # the program has to run as it does without this
        import traceback

        with open(os.path.join(folder, "trouble.txt"), "a", encoding="utf-8") as file:
            traceback.print_exc(file=file)

    this_folder = os.path.dirname(os.path.abspath(__file__))
    other_paths = [
        path for path in sys.path if os.path.abspath(path or ".") != this_folder
    ]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", other_paths)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)
