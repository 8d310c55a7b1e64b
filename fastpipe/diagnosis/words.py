"""Figures -> words that are the same in all findings."""

from __future__ import annotations


def milliseconds(seconds: float) -> str:
    """0.012 -> 12 ms; 2.5 -> 2,500 ms."""
    value = seconds * 1e3
    return f"{value:,.0f} ms" if value >= 10 else f"{value:.1f} ms" if value >= 0.1 else f"{value:.2f} ms"


def size(size_bytes: float) -> str:
    """2500000 -> 2.5 MB."""
    return f"{size_bytes / 1e9:.1f} GB" if size_bytes >= 1e9 else f"{size_bytes / 1e6:.1f} MB"


def count(number: int, word: str) -> str:
    """2, worker -> 2 workers; 2, batch -> 2 batches."""
    ending = "" if number == 1 else "es" if word.endswith(("s", "ch")) else "s"
    return f"{number:,} {word}{ending}"
