"""Seconds and bytes -> text for people."""

from __future__ import annotations


def format_ms(seconds: float) -> str:
    """0.012 -> 12 ms; 2.5 -> 2,500 ms."""
    milliseconds = seconds * 1e3
    if milliseconds >= 10:
        return f"{milliseconds:,.0f} ms"
    if milliseconds >= 0.1:
        return f"{milliseconds:.1f} ms"
    return f"{milliseconds:.2f} ms"


def format_size(size_bytes: float) -> str:
    """2500000 -> 2.5 MB."""
    if size_bytes >= 1e9:
        return f"{size_bytes / 1e9:.1f} GB"
    return f"{size_bytes / 1e6:.1f} MB"
