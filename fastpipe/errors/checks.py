"""Numbers and choices of a user -> checked values; the message of every error says what to pass instead."""

from __future__ import annotations

import math
import operator
import re
from numbers import Real

from fastpipe.errors import ConfigError

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}
_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([kmgt]i?)?b?\s*", re.IGNORECASE)


def whole(name: str, value: object, *, least: int, most: int, hint: str = "") -> int:
    """Checks a whole number; numpy's integers are accepted, True and False are not. The hint ends the message."""
    hint = hint and f"; {hint}"
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = None
    if number is None or isinstance(value, bool) or "bool" in str(getattr(value, "dtype", "")):
        raise ConfigError(f"{name}: expected a whole number, got {value!r}{hint}")
    if not least <= number <= most:
        raise ConfigError(f"{name}: expected {least} to {most}, got {number}{hint}")
    return number


def flag(name: str, value: object) -> bool:
    """Checks a yes or no."""
    if not isinstance(value, bool):
        raise ConfigError(f"{name}: expected True or False, got {value!r}")
    return value


def positive(name: str, value: object) -> float:
    """Checks a finite number above 0."""
    number = real_number(value)
    if number is None or not 0 < number < math.inf:
        raise ConfigError(f"{name}: expected a number above 0, got {value!r}")
    return number


def choice(name: str, value: object, choices: tuple[str, ...]) -> str:
    """Checks one of a few words."""
    if value not in choices:
        raise ConfigError(f"{name}: expected {' or '.join(map(repr, choices))}, got {value!r}")
    return str(value)


def pair(name: str, value: object, *, most: float = math.inf) -> tuple[float, float]:
    """Checks two numbers (least, greatest), above 0."""
    if isinstance(value, (tuple, list)) and len(value) == 2:
        low, high = real_number(value[0]), real_number(value[1])
        if low is not None and high is not None and 0 < low <= high <= most and math.isfinite(high):
            return low, high
    bound = "" if most == math.inf else f" and at most {most:g}"
    raise ConfigError(f"{name}: expected two numbers (minimum, maximum), above 0{bound}, got {value!r}")


def size_bytes(name: str, value: object) -> int:
    """Checks a number of bytes, as a number or as text with a unit: 1000000, "256MB", "1.5TB", "512MiB"."""
    number = real_number(value)
    if number is not None and 0 <= number < 2**63:
        return int(number)
    found = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise ConfigError(f'{name}: expected a number of bytes, or text such as "256MB" or "1GiB", got {value!r}')
    return round(float(found[1]) * _UNITS[(found[2] or "").lower()])


def real_number(value: object) -> float | None:
    """A real number as a float; None for anything else, True and False included."""
    return float(value) if isinstance(value, Real) and not isinstance(value, bool) else None
