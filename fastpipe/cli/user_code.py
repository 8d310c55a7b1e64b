"""FILE.py:NAME -> what a user's program makes there: a function's result, or the object itself."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

from fastpipe.errors import ConfigError


def made_by(option: str, place: str) -> object:
    """Runs a file of the user as Python imports it, and calls the function that is named; its folder is on sys.path.

    Args:
        option: of the command line, for errors.
        place: "my_augment.py:build".

    Raises:
        ConfigError: there is no such file or name, or the code raises an error.
    """
    file, _, name = place.rpartition(":")
    path = Path(file)
    if not name.isidentifier() or path.suffix != ".py":
        raise ConfigError(f"{option}: expected FILE.py:NAME, for example my_augment.py:build, got {place!r}")
    if not path.is_file():
        raise ConfigError(f"{option}: there is no file {file}; give the path from the current folder")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{option}: Python cannot import {file}")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.resolve().parent))
    try:
        spec.loader.exec_module(module)
        if not hasattr(module, name):
            raise ConfigError(f"{option}: {file} has no {name!r}; define a function {name}() that returns it")
        found = getattr(module, name)
        # A module of torch can be called too, but it is the augmentation itself.
        return found() if callable(found) and not hasattr(found, "forward") else found
    except ConfigError:
        raise
    except Exception as problem:
        raise ConfigError(
            f"{option}: {place} raised {type(problem).__name__}: {problem}; correct it there"
        ) from problem
    finally:
        sys.path.remove(str(path.resolve().parent))
