"""The results of a run -> Markdown tables, ready to be pasted into docs/development/benchmarks.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_FORMS = {
    "fastpipe": "the photos as they are",
    "fastpipe-coefficients": "the photos as they are, fastpipe with --storage coefficients",
    "fastpipe-500": (
        "photos of at most 500 pixels: fastpipe shrinks only the larger photos, FFCV encodes every photo again"
    ),
    "fastpipe-coefficients-500": "photos of at most 500 pixels, fastpipe with --storage coefficients",
    "fastpipe-of-photos-500": "exactly the images that FFCV stores, at most 500 pixels, quality 90",
    "fastpipe-of-photos-png": "the photos stored as PNG, fastpipe from packed PNGs",
    "photos-png": "the photos stored as PNG, fastpipe from the same files",
    "small-fastpipe": "8 images of 32 x 32 pixels for each photo, batches 4 times as large, padded by 4 and cropped",
    "fastpipe-gray": "the photos as they are, fastpipe in gray",
    "fastpipe-gray-coefficients": "the photos stored as coefficients, fastpipe in gray",
}


def markdown(results: Mapping[str, Any]) -> str:
    """The whole report of one run, as in results.json."""
    parts = [_conditions(results)]
    for form, title in _FORMS.items():
        duels = [duel for duel in results["duels"] if duel["beside"] == form]
        if duels:
            ours = results["fastpipe"].get(form)
            parts.append(f"**Reading {title}**\n\n{_speeds(ours, duels, form, results['bytes'])}")
    if results["packing"]:
        parts.append(f"**Packing**\n\n{_packing(results['packing'])}")
    parts.append("**Versions**\n\n" + _versions(results["versions"]))
    return "\n\n".join(parts) + "\n"


def _conditions(results: Mapping[str, Any]) -> str:
    machine, load = results["machine"], results["load"]
    return (
        f"{results['date']}, {machine['cpu']}, {machine['cpus']} CPUs, {machine['memory_gb']:.0f} GB, "
        f"{machine['system']}; {results['samples']:,} photos, {load['workers']} workers, batches of "
        f"{load['batch_size']}, {load['seconds']:g} s a run, {results['rounds']} rounds:\n\n    {results['command']}"
    )


def _speeds(
    ours: Mapping[str, Any] | None,
    duels: Sequence[Mapping[str, Any]],
    form: str,
    sizes: Mapping[str, int],
) -> str:
    def costs(figures: Mapping[str, Any], data: str) -> tuple[str, ...]:
        return *_costs(figures), f"{sizes[data] / 1e6:,.0f} MB"

    rows = [
        (
            "loader",
            "images/s",
            "slowest to fastest",
            "fastpipe is",
            "by CPU time",
            "first batch",
            "memory",
            "on disk",
        ),
        ("---",) * 8,
    ]
    if ours:
        rows.append(
            (
                "**fastpipe**",
                f"**{ours['images_per_s']:,.0f}**",
                _span(ours),
                "",
                "",
                *costs(ours, form),
            )
        )
    for duel in sorted(duels, key=lambda duel: duel.get("ratio", float("inf"))):
        if "missing" in duel:
            rows.append((duel["label"], "missing", duel["missing"].replace("|", "\\|"), *[""] * 5))
            continue
        theirs = duel["theirs"]
        ratio = f"{duel['ratio']:.2f} x ({duel['ratio_lowest']:.2f} to {duel['ratio_highest']:.2f})"
        by_cpu = f"{duel['ratio_by_cpu_time']:.2f} x"
        rows.append(
            (
                duel["label"],
                f"{theirs['images_per_s']:,.0f}",
                _span(theirs),
                ratio,
                by_cpu,
                *costs(theirs, duel["data"]),
            )
        )
    return _table(rows)


def _packing(packing: Sequence[Mapping[str, Any]]) -> str:
    rows = [("writer", "photos/s", "slowest to fastest", "written"), ("---",) * 4]
    for entry in packing:
        if "missing" in entry:
            rows.append((entry["label"], "missing", entry["missing"].replace("|", "\\|"), ""))
        else:
            written = f"{entry['bytes'] / 1e6:,.0f} MB"
            rows.append((entry["label"], f"{entry['images_per_s']:,.0f}", _span(entry), written))
    return _table(rows)


def _versions(versions: Mapping[str, Mapping[str, str]]) -> str:
    rows = [("environment", "versions"), ("---",) * 2]
    for name, packages in versions.items():
        rows.append(
            (name, ", ".join(f"{package} {version}" for package, version in packages.items()))
        )
    return _table(rows)


def _span(figures: Mapping[str, Any]) -> str:
    return f"{figures['slowest']:,.0f} to {figures['fastest']:,.0f}"


def _costs(figures: Mapping[str, Any]) -> tuple[str, str]:
    first, memory = figures["first_batch_s"], figures["memory_mb"]
    return "" if first is None else f"{first:.2f} s", "" if memory is None else f"{memory:,.0f} MB"


def _table(rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(
        "| " + " | ".join(row) + " |" if row[0] != "---" else "|" + "---|" * len(row)
        for row in rows
    )
