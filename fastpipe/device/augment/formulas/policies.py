"""Policies of kornia: operations that are chosen once a call, each by its formula."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fastpipe.device.augment import effects
from fastpipe.device.augment.formulas.formula import (
    Formula,
    Parameters,
    Prepared,
    Tensors,
)
from fastpipe.device.augment.operation import with_prefix


@dataclass(frozen=True)
class _Step:
    """One operation of a policy that was chosen.

    Attributes:
        formula: of its module.
        host: `Prepared.host` of the formula.
        changes_all: whether its probability chose all images.
    """

    formula: Formula
    host: Any
    changes_all: bool


def policy(
    module: Any, find_formula: Callable[[torch.nn.Module], Formula | None]
) -> Formula | None:
    """AutoAugment, RandAugment and TrivialAugment.

    Args:
        module: of kornia.
        find_formula: of the modules inside.
    """
    for part in module.modules():
        # A hook expects that the module is called.
        if part._forward_hooks or part._forward_pre_hooks:
            return None

    def prepare(parameters: Any, shape: torch.Size) -> Prepared | None:
        _, channels, height, width = shape
        tensors: dict[str, Tensor] = {}
        steps: list[_Step] = []
        for operation, drawn in _chosen_operations(module, parameters):
            is_changed = drawn["batch_prob"] > 0
            if not is_changed.any():
                continue
            formula = find_formula(operation.op)
            if formula is None or not formula.fits((height, width), channels):
                return None
            prepared = formula.prepare(drawn, shape)
            if prepared is None:
                return None
            number = len(steps)
            changes_all = bool(is_changed.all())
            if not changes_all:
                tensors[f"{number}.changed"] = is_changed.to(torch.float32)
            for name, tensor in prepared.tensors.items():
                tensors[f"{number}.of.{name}"] = tensor.detach()
            steps.append(_Step(formula, prepared.host, changes_all))
        return Prepared(tensors, host=tuple(steps))

    def change(images: Tensor, tensors: Tensors, host: tuple[_Step, ...]) -> Tensor:
        for number, step in enumerate(host):
            step_tensors = with_prefix(tensors, f"{number}.of.")
            if step.changes_all:
                images = step.formula.change(images, step_tensors, step.host)
                continue
            # The formula may overwrite its images, and some of these stay.
            copies = images.clone()
            changed = step.formula.change(copies, step_tensors, step.host)
            changed_numbers = effects.per_image(tensors[f"{number}.changed"])
            is_changed = changed_numbers > 0
            images = torch.where(is_changed, changed, images)
        return images

    # kornia refuses smaller images when it chooses sharpness.
    return Formula(prepare, change, least_size=(3, 3))


def _chosen_operations(module: Any, parameters: Any) -> list[tuple[Any, Parameters]]:
    """The operations that a call chose, in order, with the parameters that each drew."""
    operations = []
    for chosen in parameters:
        sequence = module.get_submodule(chosen.name)
        for drawn in chosen.data:
            operation = sequence.get_submodule(drawn.name)
            operations.append((operation, drawn.data))
    return operations
