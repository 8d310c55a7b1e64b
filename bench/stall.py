"""How long a training waits for its data, step by step, with DataLoader in several ways and with fastpipe.

    .venv/bin/python -m bench.stall [PHOTOS] [--forms large,transform,photos] [--feeds workers,fastpipe] [--out DIR]

Writes stalls.json, stalls.md and a timeline stalls-FORM.png for each form. PHOTOS, a folder with one folder of JPEG
files a class, is for the form "photos"; the others are made. docs/development/stalls.md says what is compared.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench import stall_chart
from bench.roster import ROOT
from bench.run import machine
from bench.stall_data import FORMS, make
from bench.stall_feeds import LABELS
from fastpipe.machine.cpus import count_granted_cpus

_GRACE_S = 120.0


def main(arguments: Sequence[str] | None = None) -> None:
    """Makes the data, runs every way of feeding on it and writes what came out."""
    options = _arguments().parse_args(arguments)
    forms = _chosen(
        "--forms",
        options.forms,
        [form for form in FORMS if form != "photos" or options.photos],
        FORMS,
    )
    options.feeds = _chosen("--feeds", options.feeds, list(LABELS), LABELS)
    if "photos" in forms and options.photos is None:
        sys.exit(
            "bench.stall: the form photos needs a folder of photos; name one, or leave the form out"
        )
    options.out.mkdir(parents=True, exist_ok=True)
    results: dict[str, Any] = {"machine": machine(), "forms": {}}
    for form in forms:
        results["forms"][form] = measure(form, options)
    for name in ("workers", "batch_size", "size", "samples", "seconds", "rounds"):
        results[name] = getattr(options, name)
    (options.out / "stalls.json").write_text(json.dumps(results) + "\n")
    (options.out / "stalls.md").write_text(markdown(results))
    _say(
        "\n"
        + markdown(results)
        + f"\nstalls.json, stalls.md and the timelines are in {options.out}"
    )


def measure(form: str, options: argparse.Namespace) -> dict[str, Any]:
    """Every way of feeding one form, and its timeline."""
    files, packed = make(
        form, options.photos, options.work.resolve(), options.samples, options.workers
    )
    rate = options.rate or FORMS[form].rate_per_worker * options.workers
    order = {
        **{name: getattr(options, name) for name in ("workers", "batch_size", "size", "seconds")},
        "form": form,
        "files": str(files),
        "packed": str(packed),
        "step_s": options.batch_size / rate,
    }
    # Its loader runs no Python of the user's.
    feeds = [name for name in options.feeds if name != "fastpipe" or not FORMS[form].heavy]
    rounds: list[list[dict[str, Any]]] = []
    for number in range(options.rounds):
        rounds.append([])
        for name in feeds:
            run = {"name": name, "label": LABELS[name], **_run({**order, "feed": name})}
            if "steps" in run:
                run |= figures(run["steps"], options.batch_size, order["step_s"])
                run["caption"] = caption(run)
            rounds[-1].append(run)
            _say(
                f"{form} {number + 1}/{options.rounds}: {run['label']}: {run.get('caption', run.get('refused'))}"
            )
    runs = [middle(each) for each in zip(*rounds, strict=True)]
    title = f"{FORMS[form].title}; training at {rate:.0f} images/s, {options.workers} CPUs"
    stall_chart.draw(
        options.out / f"stalls-{form}.png", title, [run for run in runs if "steps" in run]
    )
    return {"rate": rate, "runs": runs}


def middle(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The run with the median of images/s, which stands for all; the slowest and the fastest are told with it."""
    if "refused" in runs[0]:
        return runs[0]
    ordered = sorted(runs, key=lambda run: float(run["images_per_s"]))
    slowest, fastest = ordered[0]["images_per_s"], ordered[-1]["images_per_s"]
    return {**ordered[(len(ordered) - 1) // 2], "slowest": slowest, "fastest": fastest}


def figures(
    steps: Sequence[tuple[float, float, bool]], batch_size: int, step_s: float
) -> dict[str, float]:
    """What is told of a run; its very first wait, in which everything starts, stands apart."""
    later = np.array([waited for _, waited, _ in steps[1:]])
    seconds = steps[-1][0] + steps[-1][1] - steps[0][1]
    return {
        "images_per_s": len(later) * batch_size / seconds,
        "median_wait_ms": 1000 * float(np.percentile(later, 50)),
        "p99_wait_ms": 1000 * float(np.percentile(later, 99)),
        "longest_wait_ms": 1000 * float(later.max()),
        "waiting_share": float(later.sum() / (later.sum() + len(later) * step_s)),
        "first_batch_s": steps[0][1],
    }


def caption(run: dict[str, Any]) -> str:
    """A run's figures in one line."""
    return (
        f"{run['images_per_s']:,.0f} images/s; waits: median {run['median_wait_ms']:.0f} ms, "
        f"99 % {run['p99_wait_ms']:,.0f} ms"
    )


def markdown(results: dict[str, Any]) -> str:
    """The tables."""
    about = results["machine"]
    lines = [
        f"{about['cpu']}, {about['cpus']} CPUs, {about['system']}; {results['samples']:,} photos, batches of "
        f"{results['batch_size']}, {results['size']} x {results['size']}, {results['seconds']:g} s a run, "
        f"{results['rounds']} rounds in turn; of each the run with the median of images/s"
    ]
    for form, found in results["forms"].items():
        lines += [
            *("", f"**{FORMS[form].title}; the training takes {found['rate']:,.0f} images/s**", ""),
            "| fed by | images/s | slowest to fastest | median wait | 99 % wait | longest | waiting | first batch |",
            "|---|---|---|---|---|---|---|---|",
        ]
        for run in found["runs"]:
            if "refused" in run:
                reason = run["refused"].partition(".")[0]
                lines.append(f"| {run['label']} | does not start: `{reason}` |  |  |  |  |  |  |")
                continue
            waits = [
                f"{run[key]:,.0f} ms"
                for key in ("median_wait_ms", "p99_wait_ms", "longest_wait_ms")
            ]
            cells = [
                f"{run['images_per_s']:,.0f}",
                f"{run['slowest']:,.0f} to {run['fastest']:,.0f}",
                *waits,
                f"{run['waiting_share']:.0%}",
                f"{run['first_batch_s']:.2f} s",
            ]
            lines.append(f"| {run['label']} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _chosen(option: str, names: str | None, default: list[str], known: Iterable[str]) -> list[str]:
    chosen = names.split(",") if names else default
    unknown = [name for name in chosen if name not in known]
    if unknown:
        sys.exit(
            f"bench.stall: {option}: expected some of {', '.join(known)}; got {', '.join(unknown)}"
        )
    return chosen


def _run(order: dict[str, Any]) -> dict[str, Any]:
    """One way of feeding, in a process of its own."""
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "bench.stall_feeds"],
        input=json.dumps(order),
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=10 * order["seconds"] + _GRACE_S,
    )
    if run.returncode != 0:
        sys.exit(f"bench.stall: {order['feed']} failed:\n{run.stderr.strip()[-2000:]}")
    return dict(json.loads(run.stdout.splitlines()[-1]))


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.stall", description="How long a training loop waits for data."
    )
    parser.add_argument(
        "photos",
        type=Path,
        nargs="?",
        metavar="PHOTOS",
        help="folder with one folder of JPEG files for each class",
    )
    parser.add_argument(
        "--forms", help=f"separated by commas: {', '.join(FORMS)} (all that can be made)"
    )
    parser.add_argument("--feeds", help=f"separated by commas: {', '.join(LABELS)} (all)")
    parser.add_argument("--rounds", type=int, default=3, help="number of runs of each, in turn (3)")
    parser.add_argument("--seconds", type=float, default=10.0, help="duration of each run (10)")
    parser.add_argument("--samples", type=int, default=3200, help="number of photos (3200)")
    parser.add_argument("--batch-size", type=int, default=64, help="samples in a batch (64)")
    parser.add_argument("--size", type=int, default=224, help="output size in pixels (224)")
    parser.add_argument(
        "--workers",
        type=int,
        default=count_granted_cpus(),
        help="number of threads or processes (the CPUs granted)",
    )
    parser.add_argument(
        "--rate",
        type=float,
        help="images/s that the training loop takes (default: depends on form and workers)",
    )
    parser.add_argument(
        "--work", type=Path, default=ROOT / "build" / "stalls", help="folder for the data"
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=ROOT / "build" / "stalls" / "results",
        help="folder for the results",
    )
    return parser


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
