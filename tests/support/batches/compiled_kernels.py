"""The kernels of a colour pass, compiled for an H100, which need not be there."""

from __future__ import annotations

from typing import Any

from fastpipe.device.augment.triton_passes import launch

POINTERS = {
    "sums": "*fp32",
    "codes": "*i64",
    "values": "*fp32",
    "flips": "*i64",
    "contrast_at": "*i64",
    "factors": "*fp32",
    "shifts": "*fp32",
    "weights": "*fp32",
    "are_changed": "*i64",
}


def compile_all() -> None:
    """Compiles the kernels for every kind of images and outputs."""
    from fastpipe.device.augment.triton_passes import kernel

    block_size = launch.BLOCK_SIZE
    for images in ("*u8", "*u16", "*fp32"):
        _compile(kernel.sum_greys, images, "", block_size=block_size)
        for out in ("*fp32", "*bf16", "*fp16"):
            for normalises in (True, False):
                constants = {"num_sums": 64, "normalises": normalises}
                _compile(kernel.change_pixels, images, out, block_size=block_size, **constants)


def _compile(function: Any, images: str, out: str, **constants: Any) -> None:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    types = {**POINTERS, "images": images, "out": out, "scale": "fp32"}
    signature = {}
    values = {}
    for place, name in enumerate(function.arg_names):
        signature[name] = types.get(name, "i32")
        if name in constants:
            signature[name] = "constexpr"
            values[(place,)] = constants[name]
    source = ASTSource(function, signature, constexprs=values)
    target = GPUTarget("cuda", 90, 32)
    compiled = triton.compile(source, target=target, options=launch.OPTIONS)
    assert ".entry" in compiled.asm["ptx"]
