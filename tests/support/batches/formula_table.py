"""The modules of kornia that fastpipe carries out -> the table of docs/explanation/augmentation.md."""

from __future__ import annotations

from support.batches.formula_cases import CASES
from support.batches.kornia_cases import MIXING, NOT_MADE, REFUSED, all_2d
from support.checkout import ROOT

from fastpipe.device.augment.formulas import find_formula
from fastpipe.device.augment.formulas.table import KNOWN
from fastpipe.device.augment.kornia_mixing import _ARRAYS_OF_CLASS

PAGE = ROOT / "docs" / "explanation" / "augmentation.md"
POLICIES = ("AutoAugment", "RandAugment", "TrivialAugment")
_BEGIN = "<!-- made by scripts/write_formulas_table.py: begin -->\n"
_END = "<!-- made by scripts/write_formulas_table.py: end -->\n"
_IMAGES = {(3,): "RGB", (1, 3, 4): "gray, RGB, RGB and alpha"}


def table() -> str:
    """The rows, and a sentence with the modules that kornia carries out."""
    lines = [
        "| module | images | one pass with its neighbours | through kornia with |",
        "|---|---|---|---|",
    ]
    for name, known in KNOWN.items():
        formula = find_formula(CASES[name].make(p=1.0))
        assert formula is not None
        images = _IMAGES[formula.channels]
        if name == "Normalize":
            images = "as many channels as numbers"
        if name in POLICIES:
            images = "those of the operations that it chooses"
        in_pass = "RGB" if formula.steps is not None else ""
        lines.append(f"| `{name}` | {images} | {in_pass} | {known.unknown} |")
    for name in _ARRAYS_OF_CLASS:
        if name != "RandomMosaic":
            lines.append(f"| `{name}` | gray, RGB, RGB and alpha |  |  |")
    others = all_2d() - KNOWN.keys() - MIXING - REFUSED - NOT_MADE
    names = ", ".join(f"`{name}`" for name in sorted(others | {"RandomMosaic"}))
    return "\n".join(lines) + f"\n\nkornia carries out: {names}.\n"


def page_with_table() -> str:
    """The page with the table made anew."""
    before, _, rest = PAGE.read_text().partition(_BEGIN)
    _, _, after = rest.partition(_END)
    return before + _BEGIN + table() + _END + after
