"""Modules of kornia that fastpipe carries out itself, from kornia's parameters."""

from __future__ import annotations

import torch

from fastpipe.device.augment.formulas.formula import Formula, Prepared

__all__ = ["Formula", "Prepared", "find_formula"]


def find_formula(module: torch.nn.Module) -> Formula | None:
    """How fastpipe carries out a module of kornia; None: kornia does."""
    # The table imports all formulas, which a program without kornia's modules does not need.
    from fastpipe.device.augment.formulas import table

    return table.find_formula(module)
