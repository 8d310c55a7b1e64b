"""On a CUDA device: the same batches as on the CPU, beside the training step, without waiting and without growing."""

from __future__ import annotations

import gc
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from support.checkout import ROOT, SUPPORT
from support.pictures.drawn import FLAT_IMAGES
from support.programs.scripts import run_script
from support.ranks.torchrun import torchrun

import fastpipe

sys.path.append(str(ROOT))  # last, so that fastpipe is the one under test

from bench.gpu.training import step_of

pytestmark = pytest.mark.gpu

BATCH = 4


@pytest.fixture
def no_synchronising() -> Iterator[None]:
    """Whatever makes the host wait for the device raises."""
    torch.cuda.set_sync_debug_mode("error")
    yield
    torch.cuda.set_sync_debug_mode("default")


def loader_of(dataset: Path, device: str, **options: object) -> fastpipe.Loader:
    return fastpipe.loader(dataset, BATCH, size=64, device=device, num_workers=2, **options)  # type: ignore[arg-type]


def test_batches_are_those_of_the_cpu(textured: Path) -> None:
    with loader_of(textured, "cuda") as there, loader_of(textured, "cpu") as here:
        for _ in range(3):
            for (images, labels), (expected, numbers) in zip(there, here, strict=True):
                assert images.device.type == labels.device.type == "cuda"
                assert images.is_contiguous(memory_format=torch.channels_last)
                assert torch.equal(images.cpu(), expected)
                assert torch.equal(labels.cpu(), numbers)


def test_views_fields_and_mixing_are_those_of_the_cpu(fielded: Path) -> None:
    boxes, points = fastpipe.Boxes("boxes", form="pad"), fastpipe.Points("joints", flip_pairs=[])
    mixed = fastpipe.Augment.randaugment(cutmix=1.0)
    for options in (
        {
            "views": [fastpipe.View(), fastpipe.View(32)],
            "fields": ["image", boxes, points, "caption"],
        },
        {"crop": fastpipe.FiveCrop(), "train": False, "fields": ["image", boxes, points]},
        {"channels": "rgba", "dtype": torch.uint16, "fields": ["image", "label"]},
        {
            "channels": "gray",
            "dtype": torch.uint16,
            "augment": fastpipe.Augment.simclr(),
            "fields": ["image", "label"],
        },
        {"channels": "gray", "dtype": torch.float32, "fields": ["image", "label"]},
        {
            "size": "bucket",
            "views": 2,
            "augment": mixed,
            "fields": ["image", "label", "pixel_mask", "mix_lam", "gaze"],
        },
    ):
        chosen: dict[str, Any] = {"size": 64, "num_workers": 2, **options}
        with (
            fastpipe.loader(fielded, BATCH, device="cuda", **chosen) as there,
            fastpipe.loader(fielded, BATCH, **chosen) as here,
        ):
            for batch, expected in zip(there, here, strict=True):
                alike(batch, expected)


def alike(there: Any, here: Any) -> None:
    """Values of a batch, in lists of lists; floats but for rounding."""
    if isinstance(here, torch.Tensor):
        assert there.device.type == "cuda"
        torch.testing.assert_close(there.cpu(), here, atol=1e-4, rtol=1e-4)
    elif isinstance(here, (list, dict)):
        assert len(there) == len(here)
        for key in here if isinstance(here, dict) else range(len(here)):
            alike(there[key], here[key])
    else:
        assert there == here


def test_buckets_are_those_of_the_cpu(textured: Path) -> None:
    names = ("image", "image_size", "pixel_mask")
    options: dict[str, object] = {
        "size": fastpipe.Buckets(area=64 * 64),
        "fields": names,
        "num_workers": 2,
    }
    with (
        fastpipe.loader(textured, BATCH, device="cuda", **options) as there,  # type: ignore[arg-type]
        fastpipe.loader(textured, BATCH, **options) as here,  # type: ignore[arg-type]
    ):
        for _ in range(2):
            for batch, expected in zip(there, here, strict=True):
                for name in names:
                    assert batch[name].device.type == "cuda"
                    assert torch.equal(batch[name].cpu(), expected[name])


@pytest.mark.parametrize("preset", ["imagenet", "simclr", "randaugment", "trivial_augment"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_augmentation_is_that_of_the_cpu(textured: Path, preset: str, dtype: torch.dtype) -> None:
    options = {"dtype": dtype, "erasing": 0.5, "mixup": 0.2, "cutmix": 1.0, "label_smoothing": 0.1}
    ours, theirs = (getattr(fastpipe.Augment, preset)(**options) for _ in range(2))
    with (
        loader_of(textured, "cuda", augment=ours) as there,
        loader_of(textured, "cpu", augment=theirs) as here,
    ):
        for (images, labels), (expected, numbers) in zip(there, here, strict=True):
            assert images.dtype == dtype
            # Warped pixels that fall on an edge between two may go to either.
            close = (images.cpu().float() - expected.float()).abs() < 0.05
            assert close.float().mean() > 0.995
            torch.testing.assert_close(labels.cpu(), numbers)


@pytest.mark.parametrize("preset", [None, "imagenet", "simclr", "randaugment", "trivial_augment"])
def test_the_host_never_waits_for_the_device(
    textured: Path, preset: str | None, request: pytest.FixtureRequest
) -> None:
    options = {"mixup": 0.2, "cutmix": 1.0, "erasing": 0.5}
    augment = getattr(fastpipe.Augment, preset)(**options) if preset else None
    with loader_of(textured, "cuda", augment=augment) as loader:
        list(loader)  # what is allocated and compiled once
        request.getfixturevalue("no_synchronising")
        assert len(list(loader)) == len(loader)


def test_slow_steps_see_their_own_batch(textured: Path) -> None:
    """Steps that are queued for long must not find the next batch in their memory."""
    with loader_of(textured, "cpu") as here:
        expected = [images.double().sum().item() for images, _ in here]
    work = torch.randn(2048, 2048, device="cuda")
    with loader_of(textured, "cuda") as there:
        sums = []
        for images, _ in there:
            for _ in range(20):
                work = torch.tanh(work @ work)
            sums.append(images.double().sum())
        assert [value.item() for value in sums] == expected


def test_another_stream_of_the_users_gets_whole_batches(textured: Path) -> None:
    users = torch.cuda.Stream()
    with (
        loader_of(textured, "cpu") as here,
        loader_of(textured, "cuda") as there,
        torch.cuda.stream(users),
    ):
        for (images, _), (expected, _) in zip(there, here, strict=True):
            assert torch.equal(images.clone().cpu(), expected)


def test_memory_does_not_grow_over_1000_batches(textured: Path) -> None:
    """record_stream gives memory back by timing, so peaks differ a little; what must not be is growth."""
    with loader_of(textured, "cuda", augment=fastpipe.Augment.simclr()) as loader:
        peaks, pinned = [], []
        for _ in range(4):
            torch.cuda.reset_peak_memory_stats()
            for _ in range(-(-250 // len(loader))):
                for images, _ in loader:
                    images.mean()
            peaks.append(torch.cuda.max_memory_allocated())
            pinned.append(loader.stats().pinned_bytes)
    batch_bytes = BATCH * 3 * 64 * 64 * 4
    assert max(peaks) <= peaks[0] + 8 * batch_bytes
    assert max(pinned) <= 8 * BATCH * 3 * 64 * 64
    assert min(pinned) >= BATCH * 3 * 64 * 64


def test_breaking_off_again_and_again_keeps_no_memory(textured: Path) -> None:
    def one() -> None:
        with loader_of(textured, "cuda", augment=fastpipe.Augment.randaugment()) as loader:
            for _ in range(3):
                for _ in loader:
                    break

    one()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    for _ in range(20):
        one()
    gc.collect()
    torch.cuda.synchronize()
    assert torch.cuda.memory_allocated() <= before + 8 * BATCH * 3 * 64 * 64 * 4


def test_device_time_is_measured(textured: Path) -> None:
    with loader_of(textured, "cuda", augment=fastpipe.Augment.simclr()) as loader:
        started = time.perf_counter()
        for _ in range(3):
            list(loader)
            torch.cuda.synchronize()
        assert 0 < loader.stats().device_s < time.perf_counter() - started


def test_a_loop_that_queues_faster_than_the_gpu_is_held_back_and_told_nothing(
    textured: Path, caplog: pytest.LogCaptureFixture
) -> None:
    work = torch.randn(8192, 8192, device="cuda")
    with loader_of(textured, "cuda") as loader:
        for _ in range(60 // len(loader) + 1):
            for _ in loader:
                for _ in range(4):
                    work = torch.tanh(work @ work)
        stats = loader.stats()
    torch.cuda.synchronize()
    assert stats.held_s > 0.5 * stats.step_s
    assert stats.load_ratio < 0.1
    assert not [record for record in caplog.records if "waited for data" in record.message]


def test_a_graph_can_be_captured_while_a_monitor_asks_for_stats(textured: Path) -> None:
    """In mode "global" an event that any thread queries breaks the capture."""
    model = torch.nn.Conv2d(3, 8, 3).cuda()
    ended = threading.Event()
    with loader_of(textured, "cuda", augment=fastpipe.Augment.imagenet()) as loader:

        def watch() -> None:
            while not ended.is_set():
                loader.stats()

        monitor = threading.Thread(target=watch)
        monitor.start()
        try:
            batches = iter(loader)
            static = next(batches)[0].clone()
            model(static)
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                for _ in range(200):
                    out = model(static)
            for images, _ in batches:
                static.copy_(images)
                graph.replay()
                torch.testing.assert_close(out, model(images))
        finally:
            ended.set()
            monitor.join()


@pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning"
)  # of Inductor
@pytest.mark.parametrize("mode", ["eager", "compile", "graph"])
def test_training_with_the_loader(textured: Path, mode: str) -> None:
    """The step, however it is run, sees what a loader on the CPU gives."""
    options = {"augment": fastpipe.Augment.imagenet(), "seed": 3}
    losses = []
    for device in ("cuda", "cpu"):
        step, found = step_of("resnet18", 2, torch.device("cuda"), mode), []
        with loader_of(textured, device, **options) as loader:
            for _ in range(2):
                for images, labels in loader:
                    found.append(step(images.cuda(), labels.cuda()).clone())
        losses.append(torch.stack(found).cpu())
    there, here = losses
    assert torch.isfinite(there).all()
    torch.testing.assert_close(there, here, atol=0.1, rtol=0.1)


def test_two_processes_on_one_gpu(flat: Path, tmp_path: Path) -> None:
    made = tmp_path / "made.pt"
    program, model = (
        SUPPORT / "ranks" / "train_imagenet_rank.py",
        ["--model=resnet18", "--size=32", "--batch-size=16"],
    )
    printed = torchrun(
        program, tmp_path, flat, flat, "--checkpoint", made, *model, "--epochs=2", "--warmup=1"
    )
    lines = [line for line in printed.splitlines() if line.startswith("epoch")]
    assert [line.split(":")[0] for line in lines] == ["epoch 1 of 2", "epoch 2 of 2"]
    assert f"of {FLAT_IMAGES} samples" in lines[-1]
    assert made.exists()


def test_an_error_of_the_program_is_raised_as_it_is(textured: Path) -> None:
    run = run_script(
        """
        import sys, torch, fastpipe
        with fastpipe.loader(sys.argv[1], 4, size=64, device="cuda", num_workers=2) as loader:
            try:
                for number, (images, labels) in enumerate(loader):
                    if number == 1:
                        torch.zeros(4, device="cuda")[labels + 1000]  # an index that is not there: found out later
                torch.cuda.synchronize()
            except RuntimeError as problem:
                assert "device-side assert" in str(problem), problem
                assert not isinstance(problem, fastpipe.FastpipeError), problem
                print("raised")
        """,
        textured,
    )
    assert run.stdout.strip() == "raised", run.stdout + run.stderr
    assert "cannot pin" not in run.stderr


def test_a_forked_child_drops_page_locked_memory_in_silence() -> None:
    run = run_script(
        """
        import os, torch
        from fastpipe.device.streams import stream_of
        stream = stream_of("cuda")
        slot = torch.from_numpy(stream.slot((1000, 1001)))
        slot.fill_(1)
        child = os.fork()
        if child == 0:
            del slot
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        slot.fill_(2)  # to the pages that the GPU knows
        with stream.work():
            there = stream.copy(slot)
        torch.cuda.synchronize()
        print(int(there.min()), slot.is_pinned())
        """
    )
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout.split() == ["2", "True"]


def test_dropping_a_loader_while_it_copies(textured: Path) -> None:
    """Its page-locked memory goes only after the copies: what they brought is what a loader on the CPU gives."""
    with loader_of(textured, "cpu") as here:
        expected = next(iter(here))[0]
    for _ in range(30):
        loader = loader_of(textured, "cuda")
        images, _ = next(iter(loader))
        del loader
        assert torch.equal(images.cpu(), expected)
