"""The errors that fastpipe raises, names as messages show them, and checks of a user's values.

    FastpipeError
    ├── ConfigError (ValueError)     an argument or option is wrong
    ├── DatasetError                 a packed dataset is missing, unfinished or damaged
    │   └── SampleError              one sample of a dataset cannot be read or decoded
    ├── ImageError (ValueError)      one source image cannot be packed
    ├── PackError                    packing cannot continue
    ├── ClusterError                 a Ray cluster cannot be reached, or its machines fail a task
    └── EngineError (RuntimeError)   the native engine cannot start or continue, or was misused

Each message has the expected value, the actual value, the place and the next step.
"""

from __future__ import annotations

import math
import operator
import os
import re
from collections.abc import Iterable, Sequence
from itertools import islice
from numbers import Real
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_MAX_CLASSES_SHOWN = 5
_MAX_NAMES = 10_000  # of a folder that are compared with a wrong name
# Control characters, without tab and line end.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_UNITS = {
    "": 1,
    "k": 10**3,
    "m": 10**6,
    "g": 10**9,
    "t": 10**12,
    "ki": 2**10,
    "mi": 2**20,
    "gi": 2**30,
    "ti": 2**40,
}
_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([kmgt]i?)?b?\s*", re.IGNORECASE)


class FastpipeError(Exception):
    """Base of every error that fastpipe raises on purpose.

    Attributes:
        option: the argument that is wrong, as Python calls it, such as "shard_size"; "": none. The
            message begins with it. The command line shows --shard-size in its place.
        problem: the message without that argument.

    Example:
        >>> try:
        ...     fastpipe.loader("data/tarin")
        ... except fastpipe.FastpipeError as error:
        ...     print(type(error).__name__)
        DatasetError
    """

    def __init__(self, problem: str = "", *, option: str = "") -> None:
        self.option = option
        self.problem = problem
        message = f"{option}: {problem}" if option else problem
        super().__init__(message)


class ConfigError(FastpipeError, ValueError):
    """An argument or option has a wrong value; the message lists the accepted values.

    Example:
        >>> fastpipe.loader("data/train", batch_size=0)
        Traceback (most recent call last):
            ...
        fastpipe.errors.ConfigError: ...
    """


class DatasetError(FastpipeError):
    """A packed dataset is missing, unfinished, damaged or of another format version.

    Example:
        >>> fastpipe.open("data/tarin")
        Traceback (most recent call last):
            ...
        fastpipe.errors.DatasetError: ...
    """


class SampleError(DatasetError):
    """One sample cannot be read or decoded.

    torch's DataLoader creates the error of a worker process again, only from its text. Then
    `str(error)` is complete, and the attributes have the values in brackets.

    Attributes:
        shard: path of the shard file [""].
        key: the sample's source path, such as "cat/10.jpg", as `data["key"]` has it, if it can be
            read; of a WebDataset sample its `__key__` [""].
        member: the sample's name in that shard of a packed dataset, such as "000000-00000297" [""].
        sample: the sample's number in the dataset (row of the index) [-1].
        offset: byte offset of the image in the shard [-1].
        reason: the cause, as text [""].

    Example:
        >>> with open("data/train/shard-000000.tar", "r+b") as shard:  # as a failing disk leaves it
        ...     num_written = shard.write(bytes(5_000))
        >>> data = fastpipe.open("data/train")
        >>> try:
        ...     image, label = data[0]
        ... except fastpipe.SampleError as error:
        ...     print(error.sample, error.shard)
        0 data/train/shard-000000.tar
    """

    def __init__(
        self,
        message: str | None = None,
        *,
        shard: str = "",
        key: str = "",
        member: str = "",
        sample: int = -1,
        offset: int = -1,
        reason: str = "",
        replace: bool = False,
        remedy: str = "",
    ) -> None:
        self.shard = shard
        self.key = key
        self.member = member
        self.sample = sample
        self.offset = offset
        self.reason = reason
        if message is None:
            advice = "to train without it: fastpipe.loader(..., on_error='replace')"
            if replace:  # the loader has tried that already
                advice = (
                    "on_error='replace' found no other sample for its place; to list the damage: "
                    "fastpipe verify DATA"
                )
            advice += (
                "; to repair the dataset: fastpipe verify DATA --repair SRC, or pack it again with "
                "--overwrite"
            )
            name = f"sample {sample}"
            if key:
                name += f" ({readable(key)})"
            message = (
                f"{name} cannot be decoded: {reason}\n"
                f"  shard {shard}, member {member}, byte {offset}\n"
                f"  {remedy or advice}"
            )
        super().__init__(message)


class ImageError(FastpipeError, ValueError):
    """One source image cannot be packed; the message is the reason, without the path.

    `fastpipe.pack` does not raise it: it writes the reason to rejected.jsonl, or raises a PackError
    with it if on_error="fail".

    Example:
        >>> with open("photos/cat/broken.jpg", "wb") as file:
        ...     num_written = file.write(b"no image")
        >>> summary = fastpipe.pack("photos", "data/new")
        >>> with open("data/new/rejected.jsonl") as lines:
        ...     print(lines.readline().strip())
        {"path": "cat/broken.jpg", "reason": "not an image of a known format: ..."}
    """


class PackError(FastpipeError):
    """Packing cannot continue, because of the destination, the source folder or the disk.

    Example:
        >>> fastpipe.pack("fotos", "data/new")
        Traceback (most recent call last):
            ...
        fastpipe.errors.PackError: ...
    """


class ClusterError(FastpipeError):
    """A Ray cluster cannot be reached, or a task has failed repeatedly.

    Example:
        >>> fastpipe.pack("photos", "data/new", executor="ray", address="127.0.0.1:1")
        Traceback (most recent call last):
            ...
        fastpipe.errors.ClusterError: ...
    """


class EngineError(FastpipeError, RuntimeError):
    """The native engine cannot start or continue, or was misused.

    It has too little memory, gets no answer, or was used after close or in a forked child.

    Example:
        >>> loader = fastpipe.loader("data/train", batch_size=8, size=32)
        >>> loader.close()
        >>> next(iter(loader))
        Traceback (most recent call last):
            ...
        fastpipe.errors.EngineError: ...
    """


def readable(path: object) -> str:
    """A path, or a name in it, as text that every terminal and file can hold.

    Bytes that are not UTF-8 become a backslash, x and two digits: `caf\\xe9.jpg`. So do control
    characters, which a terminal would act on, except line ends and tabs. Halves of a character,
    which no file has in its name but a program may pass, become a backslash, u and four digits.
    """
    name = str(path)
    try:
        text = os.fsencode(name).decode("utf-8", "backslashreplace")
    except UnicodeEncodeError:
        text = name.encode("utf-8", "backslashreplace").decode()
    return _CONTROL.sub(lambda control: f"\\x{ord(control[0]):02x}", text)


def first_names(names: Sequence[str], most: int) -> str:
    """The first names of a list for a message, and how many follow: `cat, dog and 12 more`."""
    text = ", ".join(names[:most])
    num_more = len(names) - most
    if num_more > 0:
        text += f" and {num_more:,} more"
    return text


def format_count(number: int, noun: str) -> str:
    """A number and its noun: 1 file, 2,000 files, 3 classes, 4 boxes, 5 categories, 6 keys."""
    if number == 1:
        return f"1 {noun}"
    if noun.endswith("y") and not noun.endswith("ey"):
        return f"{number:,} {noun.removesuffix('y')}ies"
    ending = "es" if noun.endswith(("s", "x", "ch")) else "s"
    return f"{number:,} {noun}{ending}"


def format_share(number: int, total: int, noun: str) -> str:
    """How many of all, with their noun: 1 file, 1 of 3 files, 2,000 of 3,000 files."""
    if total == 1:
        return f"1 {noun}"
    return f"{number:,} of {format_count(total, noun)}"


def no_permission(error: OSError) -> str:
    """The message about a file or folder that may not be read, if that is the cause; else ""."""
    if not isinstance(error, PermissionError) or not error.filename:
        return ""
    return closed_path(os.fsdecode(error.filename))


def closed_path(path: str | Path) -> str:
    """The message about a path that may not be read, or a folder above it; "": it may be read."""
    from pathlib import Path

    path = Path(path)
    # A file may not even exist: what may not be read is the folder that would have it.
    for parent in reversed(path.parents):
        # To read what is in a folder, nobody has to list it.
        if os.path.isdir(parent) and not os.access(parent, os.X_OK):
            return _permission_denied(f"the folder {readable(parent)}", "rx", parent)
    if os.path.isdir(path) and not os.access(path, os.R_OK | os.X_OK):
        return _permission_denied(f"the folder {readable(path)}", "rx", path)
    if os.path.exists(path) and not os.access(path, os.R_OK):
        return _permission_denied(readable(path), "r", path)
    return ""


def _permission_denied(name: str, rights: str, path: Path) -> str:
    """The message, with the command for those who may give the rights: the owner, who may be another user."""
    import shlex  # only here: most programs never need it

    quoted = shlex.quote(str(path))
    owner = path.stat().st_uid
    if owner == os.geteuid():
        remedy = f"To allow it: chmod u+{rights} {quoted}"
    else:
        remedy = (
            f"Its owner, {_user_name(owner)}, can allow it: chmod a+{rights} {quoted}"
        )
    return f"cannot read {name}: permission denied. {remedy}"


def _user_name(user_id: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(user_id).pw_name
    except KeyError:
        return f"user {user_id}"


def in_one_line(problem: object, most: int | None = None) -> str:
    """The text of another library's error without line breaks, cut after `most` characters."""
    return " ".join(str(problem).split())[:most]


def whole(name: str, value: object, *, least: int, most: int, hint: str = "") -> int:
    """Checks a whole number; the hint ends the message if it is wrong.

    Accepts numpy's integers. True and False, also numpy's and torch's, are no numbers.
    """
    hint = f"; {hint}" if hint else ""
    is_flag = isinstance(value, bool) or "bool" in str(getattr(value, "dtype", ""))
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = None
    if number is None or is_flag:
        raise ConfigError(f"expected a whole number, got {value!r}{hint}", option=name)
    if not least <= number <= most:
        raise ConfigError(
            f"expected {least} to {most}, got {number}{hint}", option=name
        )
    return number


def flag(name: str, value: object) -> bool:
    """Checks a yes or no."""
    if not isinstance(value, bool):
        raise ConfigError(f"expected True or False, got {value!r}", option=name)
    return value


def positive(name: str, value: object) -> float:
    """Checks a finite number above 0."""
    number = real_number(value)
    if number is None or not 0 < number < math.inf:
        raise ConfigError(f"expected a number above 0, got {value!r}", option=name)
    return number


def option_name(name: str) -> str:
    """A parameter of Python as an option of the command line: `max_size` is --max-size."""
    return "--" + name.replace("_", "-")


def nearest_name(name: str, names: Iterable[str]) -> str | None:
    """The most similar one of some names; None: no name is similar."""
    import difflib  # takes milliseconds, which an import of fastpipe should not

    by_small_letters = {known.lower(): known for known in names}
    near = difflib.get_close_matches(name.lower(), by_small_letters, n=1)
    if near:
        return by_small_letters[near[0]]
    return None


def did_you_mean(name: object, names: Iterable[str]) -> str:
    """The end of a message about a wrong name: the most similar one, or nothing."""
    near = nearest_name(str(name), names)
    return "" if near is None else f"; did you mean {near!r}?"


def suggest_class(name: object, names: Sequence[str]) -> str:
    """The end of a message about a class that a dataset does not have: a similar name, or all."""
    if not names:
        return ": it has no classes"
    hint = did_you_mean(name, names)
    if hint:
        return hint
    shown = first_names([repr(known) for known in names], _MAX_CLASSES_SHOWN)
    return f"; it has {shown}"


def did_you_mean_attribute(name: str, names: Iterable[str]) -> str:
    """The same of a wrong attribute: the most similar public one."""
    if name.startswith("_"):
        return ""  # IPython and numpy look for many such names
    return did_you_mean(name, [known for known in names if not known.startswith("_")])


def did_you_mean_path(path: Path) -> str:
    """The end of a message about a path that does not exist: the most similar one, or nothing."""
    import difflib  # as above

    existing = path
    missing: list[str] = []
    # A Path's own exists() raises PermissionError for a closed folder.
    while not os.path.exists(existing):
        if existing == existing.parent:
            return ""
        missing.insert(0, existing.name)
        existing = existing.parent
    try:
        # A folder may have millions of files, and one that is wrong may be any of them.
        with os.scandir(existing) as entries:
            names = [entry.name for entry in islice(entries, _MAX_NAMES)]
    except OSError:
        return ""
    near = (
        difflib.get_close_matches(missing[0], names, n=1, cutoff=0.7) if missing else []
    )
    if not near:
        return ""
    candidate = existing.joinpath(near[0], *missing[1:])
    if not os.path.exists(candidate):
        candidate = existing / near[0]
    return f"; did you mean {readable(candidate)}?"


def choice(
    name: str, value: object, choices: tuple[str, ...], *, hint: str = ""
) -> str:
    """Checks one of a few words; the hint ends the message if it is none of them."""
    if value not in choices:
        hint = f"; {hint}" if hint else ""
        *first, last = map(repr, choices)
        expected = last
        if first:
            expected = f"{', '.join(first)} or {last}"
        raise ConfigError(
            f"expected {expected}, got {value!r}{did_you_mean(value, choices)}{hint}",
            option=name,
        )
    return str(value)


def pair(name: str, value: object, *, most: float = math.inf) -> tuple[float, float]:
    """Checks two numbers (least, greatest), above 0."""
    if isinstance(value, (tuple, list)) and len(value) == 2:
        low = real_number(value[0])
        high = real_number(value[1])
        if (
            low is not None
            and high is not None
            and 0 < low <= high <= most
            and high < math.inf
        ):
            return low, high
    limit = ""
    if most != math.inf:
        limit = f" and at most {most:g}"
    raise ConfigError(
        f"expected two numbers (minimum, maximum), above 0{limit}, got {value!r}",
        option=name,
    )


def size_bytes(name: str, value: object) -> int:
    """Checks a number of bytes: a number, or text with a unit, such as "256MB" or "1.5TiB"."""
    number = real_number(value)
    if number is not None and 0 <= number < 2**63:
        return int(number)
    match = None
    if isinstance(value, str):
        match = _SIZE.fullmatch(value)
    if match is None:
        raise ConfigError(
            f'expected a number of bytes, or text such as "256MB" or "1GiB", got {value!r}',
            option=name,
        )
    unit = (match[2] or "").lower()
    return round(float(match[1]) * _UNITS[unit])


def real_number(value: object) -> float | None:
    """A real number as a float; None for anything else, True and False included."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return None
    return float(value)
