"""Arguments and names that fastpipe does not have -> an error that names the one to write."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Mapping
from typing import Any, ParamSpec, TypeVar

from fastpipe.errors import ConfigError, did_you_mean, format_count, nearest_name

_MAX_LISTED_NAMES = 12
P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", bound=type)
# A text, or a function of an argument's value that returns it.
Advice = str | Callable[[object], str]
# Transforms of torchvision and timm that take Pillow's image and no tensor, by their names: a
# program that has passed one has imported its library, and fastpipe need not.
_FROM_PILLOW = (
    "ToTensor",
    "PILToTensor",
    "MaybeToTensor",
    "MaybePILToTensor",
    "ToNumpy",
)


def by_single_name(by_names: Mapping[str, str]) -> dict[str, str]:
    """Texts by one name or by several, as "transform transforms" -> the text of each single name.

    {name} in a text becomes the name.
    """
    texts = {}
    for names, text in by_names.items():
        for name in names.split():
            texts[name] = text.replace("{name}", name)
    return texts


# Names of other libraries, by one name or by several -> what to write.
_INSTEAD_OF_NAMES = by_single_name(
    {
        "DataLoader FastLoader dataloader data_loader get_loader make_loader create_loader Pipeline "
        "pipeline Compose": "make a loader with fastpipe.loader(DATA, batch_size=64); it decodes, "
        "crops, mirrors and collates by itself",
        "ImageFolder DatasetFolder ImageDataset ImageNet CIFAR10 CocoDetection WebDataset "
        "create_dataset load load_dataset read from_folder": "open the data with "
        "fastpipe.open(DATA): a packed dataset, a folder of classes, or tars",
        "DatasetWriter ShardWriter TarWriter write": "write samples with fastpipe.Writer, or pack "
        "a folder with fastpipe.pack(SRC, DST)",
        "Concat ConcatDataset concatenate": "write fastpipe.concat([one, two])",
        "Subset random_split": "write fastpipe.open(DATA).select(...), or .fold(0, of=5) for a "
        "random part",
        "Normalize ToTensor transforms": "pass augment=fastpipe.Augment.imagenet() to "
        "fastpipe.loader(...)",
        "timm prometheus": "it is a module of its own: import fastpipe.{name}",
    }
)


def describe_missing_name(name: str, names: Collection[str]) -> str:
    """The message about a name that the module fastpipe does not have; `names` are those it has."""
    text = f"module 'fastpipe' has no attribute {name!r}"
    if name in _INSTEAD_OF_NAMES:
        return f"{text}: {_INSTEAD_OF_NAMES[name]}"
    return f"{text}{did_you_mean(name, names)}"


def advise_single_transform(transform: object) -> str:
    """What to write with a transform of single images, which no loader takes."""
    images = ', images="pil"' if _wants_pillow(transform) else ""
    return (
        f"torch's DataLoader(fastpipe.open(FOLDER).with_transform(transform{images}))"
    )


def _wants_pillow(transform: object) -> bool:
    """Whether a transform, or one in it, makes a tensor of Pillow's image, and takes no tensor."""
    if type(transform).__name__ in _FROM_PILLOW:
        return True
    parts = getattr(transform, "transforms", ())
    return isinstance(parts, (list, tuple)) and any(map(_wants_pillow, parts))


def refuse(
    function: str,
    unknown: Mapping[str, object],
    known: Collection[str],
    instead: Mapping[str, Advice] | None = None,
) -> None:
    """Raises for the first name: ConfigError if `instead` says what to write, else TypeError.

    Args:
        function: as the user calls it, such as "fastpipe.loader".
        unknown: arguments that the function does not have, and their values.
        known: the arguments that it has.
        instead: names of arguments elsewhere -> what to write in this function, or a function of
            the argument's value that says so.
    """
    for name, value in unknown.items():
        if instead and name in instead:
            advice = instead[name]
            text = advice(value) if callable(advice) else advice
            raise ConfigError(f"{function}() has no argument {name}: {text}")
        near = nearest_name(name, known)
        hint = f"; it has {', '.join(known)}"
        if near is not None:
            hint = f"; did you mean {near}=?"
        raise TypeError(f"{function}() got an unexpected argument {name!r}{hint}")


def refusing_unknown(
    name: str, instead: Mapping[str, Advice] | None = None, *, position: str = ""
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """A decorator: the function answers an argument that it does not have with the one to pass, and
    a call without one that it needs with the call to write.

    `position`: what to do about an argument too many by position; "": the names are listed.

    A type checker sees the arguments of the function itself, and no other ones. The function has
    no positional-only arguments, and no **kwargs.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        parameters = dict(inspect.signature(function).parameters)
        # A method gets its object as the first argument, which no message counts or shows.
        self_parameter = parameters.pop("self", None)
        num_self = 0 if self_parameter is None else 1
        kinds = [parameter.kind for parameter in parameters.values()]
        most_positional = kinds.count(inspect.Parameter.POSITIONAL_OR_KEYWORD)
        takes_any_number = inspect.Parameter.VAR_POSITIONAL in kinds

        @functools.wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            unknown = {}
            for key, value in kwargs.items():
                if key not in parameters:
                    unknown[key] = value
            refuse(name, unknown, parameters, instead)
            passed = args[num_self:]
            if len(passed) > most_positional and not takes_any_number:
                names = list(parameters)
                _refuse_position(name, names, most_positional, passed, position)
            _check_complete(name, parameters, len(passed), kwargs)
            return function(*args, **kwargs)

        return checked

    return decorate


def refusing_unknown_fields(
    name: str, instead: Mapping[str, Advice] | None = None
) -> Callable[[C], C]:
    """The same decorator for a dataclass, whose __init__ nobody writes."""

    def decorate(cls: C) -> C:
        cls.__init__ = refusing_unknown(name, instead)(cls.__init__)  # type: ignore[misc]
        return cls

    return decorate


def _check_complete(
    function: str,
    parameters: Mapping[str, inspect.Parameter],
    num_by_position: int,
    by_name: Collection[str],
) -> None:
    """Raises TypeError if a call lacks arguments.

    Args:
        function: as the user calls it.
        parameters: of the function, by name.
        num_by_position: the number of arguments that the call passes by position.
        by_name: those that it passes by name.
    """
    required = []
    missing = []
    for position, (name, parameter) in enumerate(parameters.items()):
        is_variable = parameter.kind is parameter.VAR_POSITIONAL
        if is_variable or parameter.default is not parameter.empty:
            continue
        is_by_name = parameter.kind is parameter.KEYWORD_ONLY
        required.append(f"{name}=..." if is_by_name else name)
        is_passed = name in by_name or (not is_by_name and position < num_by_position)
        if not is_passed:
            missing.append(name)
    if missing:
        raise TypeError(
            f"{function}() lacks {' and '.join(missing)}: write {function}({', '.join(required)})"
        )


def _refuse_position(
    function: str, known: list[str], most: int, passed: tuple[Any, ...], advice: str
) -> None:
    by_name = ""
    names = known[most:]
    if advice:
        by_name = f": {advice}"
    elif len(names) > _MAX_LISTED_NAMES:
        by_name = f"; pass the others by name, such as {names[0]}={passed[most]!r}"
    elif names:
        listed = ", ".join(f"{name}=" for name in names)
        by_name = f"; pass the others by name: {listed}"
    raise TypeError(
        f"{function}() takes {format_count(most, 'argument')} by position, got {len(passed)}{by_name}"
    )
