"""The kernels of a colour pass: compiled for a GPU, and in Triton's interpreter the images of the stages one by one."""

from __future__ import annotations

import pytest
from support.checkout import ROOT
from support.programs.scripts import run_script

pytest.importorskip("triton")

# Triton reads the variable when it is imported, so each test is a program of its own.
PROGRAM = """
    import os, sys, warnings
    os.environ["TRITON_INTERPRET"] = sys.argv[2]
    sys.path[:0] = [sys.argv[1], sys.argv[1] + "/tests"]
    warnings.simplefilter("ignore")  # of Triton itself
    import torch
    torch.set_num_threads(1)
    from support.batches.{module} import {function}
    {function}()
"""


def run(module: str, function: str, *, interpret: bool) -> None:
    code = PROGRAM.format(module=module, function=function)
    result = run_script(code, ROOT, int(interpret))
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("function", ["compare_steps", "compare_runs", "compare_16_bits"])
def test_a_pass_gives_what_its_stages_give(function: str) -> None:
    run("triton_passes", function, interpret=True)


def test_kernels_compile_for_a_gpu_without_one() -> None:
    run("compiled_kernels", "compile_all", interpret=False)
