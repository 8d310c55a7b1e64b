"""Arguments of fastpipe.Augment -> checked values."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch

from fastpipe.augment import kornia_modules
from fastpipe.augment.contents import normaliser_in
from fastpipe.augment.foreign import Foreign
from fastpipe.augment.kornia_mixing import KorniaMixing
from fastpipe.augment.kornia_modules import FieldKeys, field_keys
from fastpipe.augment.kornia_operation import Kornia
from fastpipe.augment.operation import Operation
from fastpipe.errors import ConfigError, real_number

Moments = float | tuple[float, ...]  # one for all channels, or one a channel
_LUMA = (0.299, 0.587, 0.114)  # of red, green and blue, as Pillow's convert("L")
PRESETS = ("imagenet", "simclr", "randaugment", "trivial_augment")  # constructors of Augment
DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def checked_operations(operations: object, outer: type) -> list[Operation]:
    """A module or a sequence of them -> stages; what is not ours becomes one. No module may be an `outer`."""
    if isinstance(operations, torch.nn.Module) and not isinstance(operations, torch.nn.ModuleList):
        operations = [operations]
    if not isinstance(operations, (Sequence, torch.nn.ModuleList)) or isinstance(operations, str):
        raise ConfigError(
            f"Augment: expected a torch.nn.Module or a list of them, got {type(operations).__name__}; for no "
            "operations leave it out, or use a preset: Augment.imagenet()"
        )
    for place, module in enumerate(operations):
        if isinstance(module, type) and issubclass(module, torch.nn.Module):
            raise ConfigError(
                f"Augment: operation {place} is the class {module.__name__}; create an object of it: "
                f"{module.__name__}(...)"
            )
        if not isinstance(module, torch.nn.Module):
            raise ConfigError(
                f"Augment: operation {place}: expected a torch.nn.Module that takes and returns a batch, got "
                f"{type(module).__name__}; for a function, write a module whose forward() calls it. A transform of "
                "single images works with torch's DataLoader(fastpipe.open(FOLDER).with_transform(transform))"
            )
        if any(isinstance(part, outer) for part in module.modules()):
            raise ConfigError(f"Augment: operation {place} is an Augment; pass its operations instead")
    return [stage for module in operations for stage in stages_of(module)]


def stages_of(module: torch.nn.Module, keys: FieldKeys | None = None) -> list[Operation]:
    """A module, or those of a container that only calls them in turn -> stages; `keys`: of the containers around.
    ConfigError: it mixes images somewhere inside.
    """
    if isinstance(module, Operation):
        return [module]
    keys = keys if keys is not None and keys.kinds else field_keys(module)
    if (inside := kornia_modules.children(module)) is not None:
        return [stage for child in inside for stage in stages_of(child, keys)]
    if kornia_modules.mixes(module):
        return [KorniaMixing(module)]
    if hidden := [type(part).__name__ for part in module.modules() if kornia_modules.mixes(part)]:
        raise ConfigError(
            f"augment: {type(module).__name__} contains {hidden[0]}, which mixes images; labels would stay as they "
            f"are. Pass {hidden[0]} itself in the list"
        )
    if kornia_modules.is_policy(module):
        kornia_modules.recommend_presets(type(module).__name__)
    return [Kornia(module, keys) if kornia_modules.is_planned(module) else Foreign(module)]


def check_normalised_once(operations: list[Operation], mean: object) -> None:
    """Raises ConfigError where a module normalises, or one inside it, and Augment would do it again."""
    if mean is None:
        return
    for operation in operations:
        module = getattr(operation, "module", None)
        normaliser = None if module is None else normaliser_in(module)
        if normaliser is None:
            continue
        place = "the list" if type(module).__name__ == normaliser else type(module).__name__
        raise ConfigError(
            f"Augment: {place} contains {normaliser}, and Augment itself normalises with mean= and std=, by default "
            f"ImageNet's. Leave {normaliser} out, or pass mean=None, std=None: "
            "augment=fastpipe.Augment(modules, mean=None, std=None)"
        )


def compile_operations(operations: list[Operation]) -> None:
    """Has our own operations run through torch.compile."""
    ours = [operation for operation in operations if not hasattr(operation, "module")]
    if not ours:
        raise ConfigError(
            "compile: these operations contain nothing that fastpipe can compile: normalising and mixing are one "
            "kernel each already, and fastpipe runs other modules unchanged. Leave it out, or pass "
            "torch.compile(module) as an operation"
        )
    for operation in ours:
        operation.compiles = True


def checked_moments(mean: object, std: object) -> tuple[Moments | None, Moments | None]:
    """Mean and std of pixels in [0, 1]; None for both: no normalising."""
    if (mean is None) != (std is None):
        raise ConfigError(f"mean and std: expected both, or None for both (no normalising), got {mean!r} and {std!r}")
    if mean is None:
        return None, None
    means, stds = _moments("mean", mean), _moments("std", std)
    if min(np.atleast_1d(stds)) <= 0:
        raise ConfigError(f"std: expected numbers above 0, got {std!r}")
    if max(np.abs([*np.atleast_1d(means), *np.atleast_1d(stds)])) > 16:
        raise ConfigError(
            f"mean and std: expected values for pixels in [0, 1], got {mean!r} and {std!r}; divide values for bytes "
            "by 255"
        )
    return means, stds


def _moments(name: str, value: object) -> Moments:
    if (single := real_number(value)) is not None and math.isfinite(single):
        return single
    try:
        numbers = tuple(float(number) for number in value)  # type: ignore[attr-defined]
    except (TypeError, ValueError):
        numbers = ()
    if len(numbers) not in (1, 3, 4) or not all(map(math.isfinite, numbers)):
        raise ConfigError(
            f"{name}: expected one number for all channels, or one per channel: 1 (gray), 3 (red, green, blue) or 4 "
            f"(and alpha), got {value!r}"
        )
    return numbers


def of_channels(name: str, given: Moments | None, channels: int, neutral: float) -> tuple[float, ...]:
    """mean or std -> a number for each of so many channels. Three numbers are those of RGB: gray gets their luma, and
    alpha the neutral one, 0 or 1, as all channels of None.
    """
    if not isinstance(given, tuple):
        return (neutral if given is None else given,) * channels
    if len(given) == 3 and channels == 1:
        return (sum(weight * number for weight, number in zip(_LUMA, given, strict=True)),)
    if len(given) == 3 and channels == 4:
        return (*given, neutral)
    if len(given) != channels:
        raise ConfigError(
            f"{name}: expected one number for all channels, or one per channel, and the images have {channels}; got "
            f"{given!r}. Pass Augment({name}=) as many, or load images with {len(given)}: fastpipe.loader(channels=)"
        )
    return given


def number(name: str, value: object, *, most: float = math.inf, below: bool = False) -> float:
    """Checks a number from 0 to most; `below`: most itself is too much."""
    checked = real_number(value)
    if checked is not None and 0 <= checked <= most and math.isfinite(checked) and not (below and checked == most):
        return checked
    span = "at least 0" if most == math.inf else f"from 0 to {'below ' * below}{most:g}"
    raise ConfigError(f"{name}: expected a number {span}, got {value!r}")


def instead(value: object) -> str:
    """How a preset's name, a preset that was not called, or a transform of single images is written here."""
    preset = value if isinstance(value, str) else getattr(value, "__name__", "")
    preset = {"trivialaugment": "trivial_augment", "trivialaugmentwide": "trivial_augment"}.get(preset.lower(), preset)
    if preset.lower() in PRESETS:
        return f"write augment=fastpipe.Augment.{preset.lower()}()"
    if isinstance(value, type):
        return f"create an object: {value.__name__}(...)"
    if callable(value):
        return (
            "for a function of the batch, write a module whose forward() calls it. A transform of single images works "
            "with torch's DataLoader(fastpipe.open(FOLDER).with_transform(transform))"
        )
    return f"for the usual normalisation: fastpipe.Augment.imagenet(); other presets: {', '.join(PRESETS[1:])}"
