"""Modules of kornia that fastpipe carries out itself, from kornia's parameters."""

from __future__ import annotations

from fastpipe.device.augment.formulas.formula import Formula, Prepared
from fastpipe.device.augment.formulas.table import find_formula

__all__ = ["Formula", "Prepared", "find_formula"]
