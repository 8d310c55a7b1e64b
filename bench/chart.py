"""results.json -> a bar chart; runs in an environment of its own, build/peers/chart.

python bench/chart.py RESULTS.json CHART.png
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

_TITLES = {
    "fastpipe": "photos as they are",
    "fastpipe-coefficients": "photos as they are, stored as coefficients",
    "fastpipe-500": "at most 500 pixels; FFCV encodes every photo again, fastpipe only the larger photos",
    "fastpipe-coefficients-500": "at most 500 pixels, stored as coefficients",
    "fastpipe-of-photos-500": "exactly the images that FFCV stores",
    "fastpipe-of-photos-png": "photos as PNG, packed",
    "photos-png": "photos as PNG, in files",
    "small-fastpipe": "images of 32 x 32 pixels",
    "fastpipe-gray": "photos as they are, fastpipe in gray",
    "fastpipe-gray-coefficients": "photos stored as coefficients, fastpipe in gray",
}
_OURS, _THEIRS = "#d1495b", "#8d99ae"


def main(results: Path, chart: Path) -> None:
    """Draws one panel for each dataset of fastpipe's, a bar a loader, with whiskers from slowest to fastest run."""
    content = json.loads(results.read_text())
    panels = []
    forms = {
        form: ours for form, ours in content["fastpipe"].items() if not form.startswith("small")
    }
    for form, ours in (
        forms or content["fastpipe"]
    ).items():  # small images would need another scale
        bars = [("fastpipe", ours, _OURS, "")]
        for duel in content["duels"]:
            if duel["beside"] == form and "missing" not in duel:
                colour = _OURS if duel["name"].startswith("fastpipe") else _THEIRS
                bars.append(
                    (duel["label"], duel["theirs"], colour, f"  fastpipe is {duel['ratio']:.2f} x")
                )
        panels.append((_TITLES[form], sorted(bars, key=lambda bar: bar[1]["images_per_s"])))
    heights = [len(bars) + 1.2 for _, bars in panels]
    figure, axes = plt.subplots(
        len(panels),
        1,
        figsize=(9, 0.34 * sum(heights) + 0.9),
        height_ratios=heights,
        sharex=True,
        squeeze=False,
    )
    for axis, (title, bars) in zip(axes[:, 0], panels, strict=True):
        draw(axis, title, bars)
    axes[-1, 0].set_xlim(
        0, 1.25 * max(figures["fastest"] for _, bars in panels for _, figures, *_ in bars)
    )
    axes[-1, 0].tick_params(labelsize=8)
    axes[-1, 0].set_xlabel(
        f"images/s with {content['load']['workers']} threads or processes", fontsize=8
    )
    figure.suptitle(
        f"Random-resized crop to {content['load']['size']}, flip, uint8 batches of {content['load']['batch_size']}; "
        f"{content['machine']['cpu']}, {content['machine']['cpus']} CPUs",
        fontsize=10,
    )
    figure.tight_layout()
    figure.savefig(chart, dpi=150)


def draw(axis, title: str, bars) -> None:
    """One panel."""
    labels = [label for label, *_ in bars]
    speeds = [figures["images_per_s"] for _, figures, *_ in bars]
    below = [figures["images_per_s"] - figures["slowest"] for _, figures, *_ in bars]
    above = [figures["fastest"] - figures["images_per_s"] for _, figures, *_ in bars]
    axis.barh(range(len(bars)), speeds, color=[colour for *_, colour, _ in bars], height=0.7)
    axis.errorbar(
        speeds,
        range(len(bars)),
        xerr=[below, above],
        fmt="none",
        ecolor="#2b2d42",
        elinewidth=1,
        capsize=2,
    )
    for place, (_, figures, _, note) in enumerate(bars):
        axis.text(
            figures["fastest"],
            place,
            f"  {figures['images_per_s']:,.0f}{note}",
            va="center",
            fontsize=8,
        )
    axis.set_yticks(range(len(bars)), labels, fontsize=8)
    axis.set_title(title, loc="left", fontsize=9)
    axis.set_ylim(-0.7, len(bars) - 0.3)
    axis.spines[["top", "right"]].set_visible(False)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
