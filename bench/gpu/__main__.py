"""A packed dataset and a GPU -> all figures of the GPU path in one call, as JSON.

    .venv/bin/python -m bench.gpu DATA [--photos PHOTOS] [--only rates,training] [--json FILE]

| question | answer |
|---|---|
| tests | what `pytest -m gpu` says, two processes on one GPU included |
| rates | images/s on the device by threads; against the CPU with as many threads |
| peers | images/s of DALI on the CPU, DataLoader + Pillow and torchvision's nvJPEG from PHOTOS, with as many threads |
| training | ms a step with the loader against the same step on one resident batch; plain, compiled, as a CUDA graph |
| overlap | how much of the side stream's work runs beside the step; its kernels and copies a step |
| memory | bytes reserved after 100 and 1,000 batches, page-locked bytes |
| operations | ms of each operation: kornia's module and function, torchvision's, ours |

With --device cpu, the questions that need no GPU are answered: rates, peers, training (without a graph), operations.
A question that fails says why; the others are answered all the same.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from bench import augment_ops
from bench.contest import RunError, python, run
from bench.gpu.loads import Loads, against_cpu, by_threads
from bench.gpu.profile import memory, overlap
from bench.gpu.training import MODES, against_resident
from bench.roster import INSTALLED, ROOT, SCRIPTS
from bench.run import machine

# Label: script, and the environment that `make bench-peers` makes for it; without that, this one.
_PEERS = {
    "DALI on the CPU": ("dali_cpu.py", "dali"),
    "DataLoader, torchvision, Pillow": ("torchvision_pil.py", "torchvision_pil"),
}
_PEERS_ON_GPU = {"torchvision, nvJPEG": ("torchvision_nvjpeg.py", "torchvision_pil")}


def main(arguments: Sequence[str] | None = None) -> None:
    """Asks the questions and prints the answers."""
    options = _arguments().parse_args(arguments)
    device = torch.device(options.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        sys.exit(
            "bench: there is no CUDA device; pass --device cpu to measure everything that needs no GPU"
        )
    answers: dict[str, Any] = {
        "command": "python -m bench.gpu "
        + " ".join(sys.argv[1:] if arguments is None else arguments),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "machine": machine(),
        "torch": torch.__version__,
        "batch_size": options.batch_size,
    }
    questions = (
        QUESTIONS if device.type == "cuda" else {name: QUESTIONS[name] for name in WITHOUT_A_GPU}
    )
    wanted = options.only.split(",") if options.only else list(questions)
    if unknown := set(wanted) - set(questions):
        sys.exit(
            f"bench: --only: expected some of {', '.join(questions)}; got {', '.join(sorted(unknown))}"
        )
    loads = Loads(options.data, options.batch_size, options.size, options.seconds)
    for name in wanted:
        sys.stderr.write(f"{name} ...\n")
        try:
            answers[name] = questions[name](loads, device, options)
        except Exception as problem:  # one question less
            answers[name] = f"failed: {type(problem).__name__}: {problem}"
        text = json.dumps(answers, indent=1)
        if options.json is not None:
            options.json.write_text(text + "\n")
    sys.stdout.write(text + "\n")


def _tests(loads: Loads, device: torch.device, options: argparse.Namespace) -> str:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-m",
        "gpu",
        "-p",
        "no:cacheprovider",
        "tests",
        "tests/long",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout[-4000:]


def _rates(loads: Loads, device: torch.device, options: argparse.Namespace) -> dict[str, Any]:
    threads = _threads(options)
    found: dict[str, Any] = {"images_per_s_by_threads": by_threads(loads, device, threads)}
    if device.type == "cuda":
        found["against_cpu"] = against_cpu(loads, device, max(threads), options.rounds)
    return found


def _peers(loads: Loads, device: torch.device, options: argparse.Namespace) -> dict[str, Any]:
    if options.photos is None:
        return {"not asked": "pass --photos, a folder with one folder of JPEG files for each class"}
    found: dict[str, Any] = {}
    peers = _PEERS | _PEERS_ON_GPU if device.type == "cuda" else _PEERS
    for label, (script, environment) in peers.items():
        found[label] = {}
        environment = environment if (INSTALLED / environment / "ready").exists() else ""
        for threads in _threads(options):
            task = [
                "--workers",
                str(threads),
                "--batch-size",
                str(options.batch_size),
                "--size",
                str(options.size),
            ]
            task += ["--warmup", "1", "--seconds", str(options.seconds)]
            command = [
                python(environment),
                str(SCRIPTS / script),
                "read",
                str(options.photos.resolve()),
                *task,
            ]
            try:
                found[label][threads] = run(command, environment, ROOT, 60 + 10 * options.seconds)[
                    "images_per_s"
                ]
            except RunError as problem:
                found[label][threads] = f"failed: {problem}"
    return found


def _training(loads: Loads, device: torch.device, options: argparse.Namespace) -> dict[str, Any]:
    modes = options.modes.split(",")
    if unknown := set(modes) - set(MODES):
        sys.exit(
            f"bench: --modes: expected some of {', '.join(MODES)}; got {', '.join(sorted(unknown))}"
        )
    found = {}
    for mode in modes:
        if mode == "graph" and device.type != "cuda":
            continue
        found[mode] = against_resident(
            loads,
            device,
            max(_threads(options)),
            model=options.model,
            mode=mode,
            steps=options.steps,
            rounds=options.rounds,
            size=options.size,
        )
    return found


def _overlap(loads: Loads, device: torch.device, options: argparse.Namespace) -> dict[str, Any]:
    return overlap(loads, device, max(_threads(options)), model=options.model, size=options.size)


def _memory(loads: Loads, device: torch.device, options: argparse.Namespace) -> dict[str, Any]:
    return memory(loads, device, max(_threads(options)), model=options.model, size=options.size)


def _operations(
    loads: Loads, device: torch.device, options: argparse.Namespace
) -> dict[str, dict[str, float]]:
    return augment_ops.figures(options.operations_batch, options.size, device, options.rounds)


def _threads(options: argparse.Namespace) -> list[int]:
    return [int(word) for word in options.threads.split(",")]


Question = Callable[[Loads, torch.device, argparse.Namespace], Any]
QUESTIONS: dict[str, Question] = {
    "tests": _tests,
    "rates": _rates,
    "peers": _peers,
    "training": _training,
    "overlap": _overlap,
    "memory": _memory,
    "operations": _operations,
}
WITHOUT_A_GPU = ("rates", "peers", "training", "operations")


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.gpu", description="Figures of the GPU path."
    )
    add = parser.add_argument
    add("data", type=Path, metavar="DATA", help="a folder that `fastpipe pack` wrote")
    add("--only", metavar="NAMES", help=f"separated by commas: {', '.join(QUESTIONS)} (all)")
    add("--photos", type=Path, help="the photos that were packed, for peers")
    add("--device", default="cuda", help="cuda, cuda:1 or cpu (cuda)")
    add("--batch-size", type=int, default=256, help="samples in a batch (256)")
    add("--size", type=int, default=224, help="output size in pixels (224)")
    add(
        "--threads",
        default="1,2,4,8,16",
        help="numbers of threads, separated by commas (1,2,4,8,16)",
    )
    add("--seconds", type=float, default=4.0, help="duration of each run of rates and peers (4)")
    add("--rounds", type=int, default=3, help="rounds of what is measured in turn (3)")
    add("--model", default="resnet50", help="of training, overlap and memory (resnet50)")
    add(
        "--modes",
        default=",".join(MODES),
        help=f"of training, separated by commas ({','.join(MODES)})",
    )
    add("--steps", type=int, default=40, help="steps a round of training (40)")
    add("--operations-batch", type=int, default=256, help="images in a batch of operations (256)")
    add(
        "--json",
        type=Path,
        metavar="FILE",
        help="also write the answers to this file, after each question",
    )
    return parser


if __name__ == "__main__":
    main()
