"""The compiled engine, fastpipe._engine -> loaded, or the reason why it cannot be."""

import importlib.util
from pathlib import Path

if importlib.util.find_spec("fastpipe._engine") is None:
    _folder = Path(__file__).parents[1]
    if (_folder / "setup.py").exists():
        raise ImportError(
            f"{_folder} is the source folder of fastpipe, and its C++ engine is not built there. Python looks in the "
            "current folder before it looks for installed packages: start it in another folder to use the installed "
            "fastpipe, or build here: pip install -e ."
        )
    raise ImportError(
        f"the C++ engine is missing from {_folder / 'fastpipe'}: expected a file _engine*.so for this Python. Install "
        "fastpipe again: pip install --force-reinstall --no-deps fastpipe"
    )

import numpy as numpy  # before the engine, which would import it: its errors are its own

try:
    import fastpipe._engine
except ImportError as problem:
    # pybind11 turns every exception in a module's initialisation into an ImportError, also Ctrl-C.
    if isinstance(problem.__cause__, KeyboardInterrupt):
        raise problem.__cause__ from None
    # glibc's words where there are no addresses left for a library.
    if "failed to map segment" in str(problem) or "cannot allocate memory" in str(problem).lower():
        raise MemoryError(f"not enough memory to load the C++ engine: {problem}") from problem
    raise

_engine = fastpipe._engine
