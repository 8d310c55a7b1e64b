"""Modules that users pass, of kornia, torchvision or their own -> stages of an augmentation."""

from __future__ import annotations

import torch

from fastpipe.augment import kornia_modules
from fastpipe.augment.foreign import Foreign
from fastpipe.augment.kornia_fields import FieldKeys, field_keys
from fastpipe.augment.kornia_mixing import KorniaMixing
from fastpipe.augment.kornia_operation import Kornia
from fastpipe.augment.operation import Operation
from fastpipe.errors import ConfigError


def stages_of(module: torch.nn.Module, keys: FieldKeys | None = None) -> list[Operation]:
    """A module, or the modules of a container that only calls them in turn -> stages.

    Args:
        module: of ours or of others.
        keys: of the containers around it.

    Raises:
        ConfigError: it mixes images somewhere inside.
    """
    if isinstance(module, Operation):
        return [module]
    keys = keys if keys is not None and keys.kinds else field_keys(module)
    if (inside := kornia_modules.children(module)) is not None:
        return [stage for child in inside for stage in stages_of(child, keys)]
    if kornia_modules.mixes(module):
        return [KorniaMixing(module)]
    hidden = [type(part).__name__ for part in module.modules() if kornia_modules.mixes(part)]
    if hidden:
        raise ConfigError(
            f"augment: {type(module).__name__} contains {hidden[0]}, which mixes images; labels would stay as they "
            f"are. Pass {hidden[0]} itself in the list"
        )
    if kornia_modules.is_policy(module):
        kornia_modules.recommend_presets(type(module).__name__)
    return [Kornia(module, keys) if kornia_modules.is_planned(module) else Foreign(module)]
