"""Arguments of fastpipe.Augment -> checked values."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from fastpipe.arguments import advise_single_transform
from fastpipe.device.augment import kornia_modules
from fastpipe.device.augment.contents import normaliser_in, parts_of
from fastpipe.device.augment.foreign import Foreign
from fastpipe.device.augment.kornia_modules import FieldKeys, field_keys
from fastpipe.device.augment.operation import Operation
from fastpipe.errors import ConfigError, real_number
from fastpipe.pages import name_page

Moments = float | tuple[float, ...]  # one for all channels, or one a channel
_LUMA = (0.299, 0.587, 0.114)  # of red, green and blue, as Pillow's convert("L")
_MAX_MOMENT = 16  # larger values are meant for pixels of 0 to 255
# Constructors of Augment.
PRESETS = ("imagenet", "simclr", "randaugment", "trivial_augment")
DTYPES = (torch.float32, torch.bfloat16, torch.float16)

_TABLE = name_page("transforms")


def parse_operations(operations: object, augment_class: type) -> list[Operation]:
    """A module or a sequence of modules -> operations.

    `augment_class` is Augment, which none may contain.
    """
    if isinstance(operations, torch.nn.Module) and not isinstance(
        operations, torch.nn.ModuleList
    ):
        operations = [operations]
    if not isinstance(operations, (Sequence, torch.nn.ModuleList)) or isinstance(
        operations, str
    ):
        raise ConfigError(
            "Augment: expected a torch.nn.Module or a list of them, got "
            f"{type(operations).__name__}; for no operations leave it out, or use a preset: "
            "Augment.imagenet()"
        )
    stages = []
    for position, module in enumerate(operations):
        _check_module(module, position, augment_class)
        stages += _list_operations(module)
    return stages


def _check_module(module: object, position: int, augment_class: type) -> None:
    """Raises ConfigError unless the module at this place of the list can be an operation."""
    if isinstance(module, type) and issubclass(module, torch.nn.Module):
        raise ConfigError(
            f"Augment: operation {position} is the class {module.__name__}; create an object of "
            f"it: {module.__name__}(...)"
        )
    if not isinstance(module, torch.nn.Module):
        raise ConfigError(
            f"Augment: operation {position}: expected a torch.nn.Module that takes and returns a "
            f"batch, got {type(module).__name__}; {_advise_callable(module)}"
        )
    if any(isinstance(part, augment_class) for part in module.modules()):
        raise ConfigError(
            f"Augment: operation {position} is an Augment; pass its operations instead"
        )


def _list_operations(
    module: torch.nn.Module, outer_keys: FieldKeys | None = None
) -> list[Operation]:
    """A user's module as an operation; a container that only calls its modules in turn as several.

    Args:
        module: of fastpipe, of kornia, or of somebody else.
        outer_keys: the `data_keys` of the containers around it, which say which fields it changes.

    Raises:
        ConfigError: a module inside it mixes images.
    """
    if isinstance(module, Operation):  # one of fastpipe's own, of a preset
        return [module]
    # Those of a container hold for all modules inside it, whatever these say.
    keys = outer_keys
    if keys is None or not keys.kinds:
        keys = field_keys(module)
    children = kornia_modules.children(module)
    if children is not None:
        operations = []
        for child in children:
            operations += _list_operations(child, keys)
        return operations
    # What carries out kornia's modules is imported here, because many programs have none.
    if kornia_modules.mixes(module):
        from fastpipe.device.augment.kornia_mixing import KorniaMixing

        return [KorniaMixing(module)]
    _check_no_batch_mixer(module)
    # A module that calls a mixing one hides from us how labels have to be mixed.
    for part in module.modules():
        if kornia_modules.mixes(part):
            mixer = type(part).__name__
            raise ConfigError(
                f"augment: {type(module).__name__} contains {mixer}, which mixes images; labels "
                f"would stay as they are. Pass {mixer} itself in the list"
            )
    if kornia_modules.is_policy(module):
        kornia_modules.warn_slow_policy(type(module).__name__)
    # Only kornia's own modules can draw their parameters with the plan, ahead of the batch.
    if kornia_modules.is_planned(module):
        from fastpipe.device.augment.kornia_operation import Kornia

        return [Kornia(module, keys)]
    return [Foreign(module)]


def _check_no_batch_mixer(module: torch.nn.Module) -> None:
    """Raises ConfigError if a module is, or holds, MixUp or CutMix of torchvision."""
    for part in parts_of(module):
        name = type(part).__name__
        is_of_torchvision = type(part).__module__.startswith("torchvision.")
        if is_of_torchvision and name in ("MixUp", "CutMix"):
            option = f"{name.lower()}={getattr(part, 'alpha', 1.0)}"
            raise ConfigError(
                f"augment: torchvision's {name} mixes images and their labels, and a module gets "
                f"images alone. Leave it out, and pass augment=fastpipe.Augment(modules, {option}), "
                "which mixes both"
            )


def check_normalised_once(operations: list[Operation], mean: object) -> None:
    """Raises ConfigError if a module, or one inside it, normalises and Augment does so, too."""
    if mean is None:
        return
    for operation in operations:
        module = getattr(operation, "module", None)
        if module is None:
            continue
        normaliser = normaliser_in(module)
        if normaliser is None:
            continue
        name = type(module).__name__
        container = "the list" if name == normaliser else name
        raise ConfigError(
            f"Augment: {container} contains {normaliser}, and Augment itself normalises with mean= "
            f"and std=, by default ImageNet's. Leave {normaliser} out, or pass mean=None, "
            "std=None: augment=fastpipe.Augment(modules, mean=None, std=None)"
        )


def compile_operations(operations: list[Operation]) -> None:
    """Lets fastpipe's own operations run through torch.compile."""
    own_operations = [
        operation for operation in operations if not hasattr(operation, "module")
    ]
    if not own_operations:
        raise ConfigError(
            "compile: these operations contain nothing that fastpipe can compile: normalising and "
            "mixing are one kernel each already, and fastpipe runs other modules unchanged. Leave "
            "it out, or pass torch.compile(module) as an operation"
        )
    for operation in own_operations:
        operation.compiles = True


def parse_moments(mean: object, std: object) -> tuple[Moments | None, Moments | None]:
    """Mean and std of pixels in [0, 1]; None for both: no normalising."""
    if (mean is None) != (std is None):
        raise ConfigError(
            f"mean and std: expected both, or None for both (no normalising), got {mean!r} and "
            f"{std!r}"
        )
    if mean is None:
        return None, None
    means = _parse_moment("mean", mean)
    stds = _parse_moment("std", std)
    if min(_numbers(stds)) <= 0:
        raise ConfigError(f"std: expected numbers above 0, got {std!r}")
    moments = _numbers(means) + _numbers(stds)
    if max(map(abs, moments)) > _MAX_MOMENT:
        raise ConfigError(
            f"mean and std: expected values for pixels in [0, 1], got {mean!r} and {std!r}; divide "
            "values for bytes by 255"
        )
    if _are_exchanged(_numbers(means), _numbers(stds)):
        raise ConfigError(
            f"mean and std: got mean={mean!r} and std={std!r}, and no pixels in [0, 1] of this mean "
            f"spread so far. They look exchanged: pass mean={std!r}, std={mean!r}"
        )
    return means, stds


def _are_exchanged(means: tuple[float, ...], stds: tuple[float, ...]) -> bool:
    """Whether pixels in [0, 1] cannot have these moments, and could have them exchanged."""
    pairs = list(zip(means, stds, strict=False))
    are_possible = all(_can_spread(mean, std) for mean, std in pairs)
    would_be_possible = all(_can_spread(std, mean) for mean, std in pairs)
    return not are_possible and would_be_possible and min(means) > 0


def _can_spread(mean: float, std: float) -> bool:
    """Whether numbers in [0, 1] of this mean can have this standard deviation.

    They spread most if they are 0 and 1 alone: Bhatia and Davis, 2000.
    """
    return 0 <= mean <= 1 and std**2 <= mean * (1 - mean)


def _numbers(moment: Moments) -> tuple[float, ...]:
    return moment if isinstance(moment, tuple) else (moment,)


def _parse_moment(name: str, value: object) -> Moments:
    single = real_number(value)
    if single is not None and math.isfinite(single):
        return single
    # A list, a tuple, an array or a tensor.
    try:
        numbers = tuple(float(number) for number in value)  # type: ignore[attr-defined]
    except (TypeError, ValueError):
        numbers = ()
    are_finite = all(map(math.isfinite, numbers))
    if len(numbers) not in (1, 3, 4) or not are_finite:
        raise ConfigError(
            f"{name}: expected one number for all channels, or one per channel: 1 (gray), 3 (red, "
            f"green, blue) or 4 (and alpha), got {value!r}"
        )
    return numbers


def moment_of_channels(
    name: str, moment: Moments | None, channels: int, neutral: float
) -> tuple[float, ...]:
    """mean or std -> a number for each of so many channels.

    Three numbers are those of RGB: gray images get their luma, and alpha gets the neutral one, 0 or
    1. With None all channels get it.
    """
    if moment is None:
        return (neutral,) * channels
    if not isinstance(moment, tuple):
        return (moment,) * channels
    if len(moment) == 3 and channels == 1:
        return (
            sum(weight * number for weight, number in zip(_LUMA, moment, strict=True)),
        )
    if len(moment) == 3 and channels == 4:
        return (*moment, neutral)
    if len(moment) != channels:
        raise ConfigError(
            f"{name}: expected one number for all channels, or one per channel, and the images "
            f"have {channels}; got {moment!r}. Pass Augment({name}=) as many, or load images with "
            f"{len(moment)}: fastpipe.loader(channels=)"
        )
    return moment


def parse_number(
    name: str, value: object, *, most: float = math.inf, exclusive: bool = False
) -> float:
    """Checks a number from 0 to `most`; `exclusive`: `most` itself is too much."""
    number = real_number(value)
    if number is not None and math.isfinite(number):
        is_small_enough = number < most if exclusive else number <= most
        if number >= 0 and is_small_enough:
            return number
    if most == math.inf:
        expected = "at least 0"
    elif exclusive:
        expected = f"from 0 to below {most:g}"
    else:
        expected = f"from 0 to {most:g}"
    raise ConfigError(f"{name}: expected a number {expected}, got {value!r}")


def _advise_callable(function: object) -> str:
    """What to do with a function, or a transform of torchvision."""
    return (
        "for a function of the batch, write a module whose forward() calls it. The loader itself "
        "crops (crop=, size=), mirrors (hflip=), makes tensors and normalises. Leave out ToTensor and "
        f"Normalize, and pass mean= and std= of Normalize to Augment: {_TABLE} has a table. "
        f"A transform of single images works with {advise_single_transform(function)}"
    )


def describe_equivalent(value: object) -> str:
    """How a preset's name, or another kind of augmentation, is written here."""
    if isinstance(value, str):
        preset = value
    else:
        preset = getattr(value, "__name__", "")
    preset = preset.lower()
    if preset in ("trivialaugment", "trivialaugmentwide"):
        preset = "trivial_augment"
    if preset in PRESETS:
        return f"write augment=fastpipe.Augment.{preset}()"
    if isinstance(value, type):
        return f"create an object: {value.__name__}(...)"
    if callable(value):
        return _advise_callable(value)
    others = ", ".join(PRESETS[1:])
    return f"for the usual normalisation: fastpipe.Augment.imagenet(); other presets: {others}"
