"""Tests of bench.profile_crop: each function of the engine counts for one part, and parts add up to the whole."""

from __future__ import annotations

from bench.profile_crop import REST, median, part_of

ENGINE = "_engine.cpython-311-x86_64-linux-gnu.so;fastpipe::"


PARTS = {
    "[kernel.kallsyms];_copy_to_iter": "reading the file",
    "[kernel.kallsyms];finish_task_switch": REST,
    "libc.so.6;__libc_pread": "reading the file",
    "libc.so.6;__memset_avx512_unaligned_erms": "clearing coefficients",
    f"{ENGINE}(anonymous namespace)::next_marker_avx2": "finding the tiles",
    f"{ENGINE}EntropyDecoder::step_both": "entropy decoding",
    f"{ENGINE}EntropyDecoder::build": "header, Huffman lookups",
    f"{ENGINE}(anonymous namespace)::read": "reading blocks",
    f"{ENGINE}(anonymous namespace)::idct_quad_8": "inverse DCT",
    f"{ENGINE}(anonymous namespace)::ycc_to_rgbx": "upsampling, colour",
    f"{ENGINE}ResizeAxis::weigh<Triangle>": "weights of the resize",
    f"{ENGINE}(anonymous namespace)::horizontal": "resize",
    f"{ENGINE}Engine::work": REST,
}


def test_a_function_counts_for_its_part() -> None:
    assert {function: part_of(function) for function in PARTS} == PARTS


def test_a_part_is_the_sum_of_its_functions_and_the_median_of_the_turns() -> None:
    turns = [
        {"libc.so.6;memset": us, "libc.so.6;__memset_avx2": 1.0, f"{ENGINE}idct_quad": 50.0}
        for us in (2, 9, 4)
    ]
    assert median(turns, "clearing coefficients") == "5.0"
    assert median(turns, "resize") == ""
