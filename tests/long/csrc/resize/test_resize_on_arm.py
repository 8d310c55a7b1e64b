"""The resize on an emulated ARM gives the bytes that it gives on this machine."""

from __future__ import annotations

from pathlib import Path

from support.native.bare_programs import CSRC, needs_arm, needs_compiler, output_of


@needs_compiler
@needs_arm
def test_arm_gives_the_same_bytes(tmp_path: Path) -> None:
    parts = sorted((CSRC / "resize").glob("*.cc"))
    assert {"resize.cc", "resize_neon.cc"} <= {part.name for part in parts}
    results, kernels = [], []
    for arm in (False, True):
        run = output_of("resize_agreement", parts, ["500"], tmp_path, arm=arm)
        assert run.returncode == 0, run.stdout
        compared, checksum = run.stdout.split()
        assert int(compared) > 1_000_000 or run.stderr.split() == ["scalar"]
        results.append(checksum)
        kernels.append(run.stderr.split())
    assert results[0] == results[1]
    assert kernels[1] == ["scalar", "neon"]
