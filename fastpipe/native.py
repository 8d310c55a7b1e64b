"""The compiled engine, fastpipe._engine -> loaded, or an error that says why it cannot be."""

import importlib.util
from pathlib import Path

from fastpipe.distribution import REINSTALL

if importlib.util.find_spec("fastpipe._engine") is None:
    _folder = Path(__file__).parents[1]
    if (_folder / "setup.py").exists():
        raise ImportError(
            f"{_folder} is the source folder of fastpipe, and its C++ engine is not built there. "
            "Python looks in the current folder before it looks for installed packages: start it "
            "in another folder to use the installed fastpipe, or build here: pip install -e ."
        )
    raise ImportError(
        f"the C++ engine is missing from {_folder / 'fastpipe'}: expected a file _engine*.so for "
        f"this Python. Install fastpipe again: {REINSTALL}"
    )

# The engine imports numpy. Import it before, outside of the `try`, so that an error of numpy is
# raised as it is. The alias keeps linters from removing it as unused.
import numpy as numpy

try:
    import fastpipe._engine
except ImportError as problem:
    # pybind11 turns every exception in a module's initialisation into an ImportError, also Ctrl-C.
    if isinstance(problem.__cause__, KeyboardInterrupt):
        raise problem.__cause__ from None
    # glibc says this if there are no addresses left for a library.
    message = str(problem).lower()
    if "failed to map segment" in message or "cannot allocate memory" in message:
        raise MemoryError(
            f"not enough memory to load the C++ engine: {problem}"
        ) from problem
    raise

_engine = fastpipe._engine
