"""Runs the programs in docs/how-to/recipes.md, on the CPU and with small numbers, so that they stay true."""

from __future__ import annotations

import gc
import re
import subprocess
import sys
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from support.checkout import ROOT
from support.datasets.field_scenes import write_scenes
from support.pictures.drawn import FLAT_IMAGES, smooth_noise
from support.ray.ray_cluster import QUIET
from support.running.soak import Tried, long_form
from support.sources.wds_tars import image_bytes, written

import fastpipe

RECIPES = ROOT / "docs" / "how-to" / "recipes.md"
EPOCHS, BATCH_SIZE = 2, 8
BATCHES = FLAT_IMAGES // BATCH_SIZE

# What stands in the recipes -> what the tests run instead.
SMALLER = {
    r'"cuda"': '"cpu"',
    r'"gpu"': '"cpu"',
    r"batch_size=(256|64)": f"batch_size={BATCH_SIZE}, size=32",
    r"\b4\b": "3",  # of accumulation, so that an epoch ends amid
    r"\b90\b": str(EPOCHS),
    r"batched\(256": f"batched({BATCH_SIZE}",
    r"\b00031\b": "00002",
    r"resnet50d": "test_resnet",
    r"\.cuda\(\)": "",
    r"< 80": "< 1",
    r'input_size=config\["input_size"\]': "input_size=32",
    r"\b120\b": str(EPOCHS + 1),
    r"torch\.compile\(model\)": 'torch.compile(model, backend="eager")',
    r">= 100 \* 100": ">= 1500",  # of pixels, which all but a few photos have
}


def sections() -> dict[str, list[str]]:
    """The programs under each heading of the second level, made smaller."""
    found: dict[str, list[str]] = {}
    for section in re.split(r"^## ", RECIPES.read_text(), flags=re.MULTILINE)[1:]:
        heading, text = section.split("\n", 1)
        found[heading] = re.findall(r"^```python\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    return found


def smaller(program: str) -> str:
    for text, run in SMALLER.items():
        program = re.sub(text, run, program)
    return program


@pytest.fixture(autouse=True)
def workplace(
    flat: Path,
    torchvision: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    one_thread: None,
) -> Iterator[None]:
    """A folder with data/train and data/val in it; one thread, since the steps are small.

    What a program leaves is freed here: a worker that a later test forks would wait forever, if its garbage collector
    came to a model in DistributedDataParallel.
    """
    (tmp_path / "data").mkdir()
    for name in ("train", "val"):
        (tmp_path / "data" / name).symlink_to(flat)
    for name in ("resnet18", "resnet50"):
        monkeypatch.setattr(torchvision.models, name, network)
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    yield
    gc.collect()


def network(num_classes: int) -> torch.nn.Module:
    """In place of a ResNet, which takes seconds a step where a CPU has no instructions for bfloat16; its last layers
    are named as there.
    """
    layers: dict[str, torch.nn.Module] = {
        "conv1": torch.nn.Conv2d(3, 8, 3, stride=4),
        "bn1": torch.nn.BatchNorm2d(8),
        "relu": torch.nn.ReLU(),
        "avgpool": torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()),
        "fc": torch.nn.Linear(8, num_classes),
    }
    return torch.nn.Sequential(OrderedDict(layers))


def run(
    heading: str, names: dict[str, Any], *, first: int = 0, last: int | None = None
) -> dict[str, Any]:
    """Runs a section's programs one after the other, as a reader would; returns the names that they leave."""
    for number, program in enumerate(sections()[heading][first:last], start=first):
        exec(compile(smaller(program), f"recipes.md: {heading}, program {number}", "exec"), names)
    return names


def test_every_program_is_run() -> None:
    counts = {heading: len(programs) for heading, programs in sections().items()}
    expected = {
        "Plain PyTorch": 4,
        "Boxes, masks, captions": 3,
        "Lightning": 2,
        "Accelerate": 1,
        "WebDataset": 1,
    }
    expected |= {
        "ImageNet with progressive sizes": 1,
        "Images of any shape": 1,
        "Self-supervised learning": 2,
    }
    expected |= {
        "Ray Train": 1,
        "Hugging Face Trainer": 1,
        "Clean data, and more of what is hard": 1,
    }
    expected |= {
        "Sharded checkpoints: torch.distributed.checkpoint and torchtitan": 1,
        "torchdata.nodes": 1,
        "JAX": 1,
    }
    expected |= {"timm": 1, "Composer": 0}  # Composer wants an older torch than these tests have
    expected |= {
        "Keras 3 on torch": 0
    }  # tried by hand: Keras is not among the libraries of these tests
    assert counts == expected
    written = "".join(program for programs in sections().values() for program in programs)
    assert written.count("```") == 0
    assert all(re.search(pattern, written) for pattern in SMALLER)


def test_plain_pytorch(capsys: pytest.CaptureFixture[str]) -> None:
    names = run("Plain PyTorch", {}, last=1)
    assert names["train"].stats().batches == EPOCHS * BATCHES
    assert names["schedule"].get_last_lr() == pytest.approx([0])
    assert names["images"].dtype == torch.bfloat16
    run("Plain PyTorch", names, first=1, last=2)
    assert capsys.readouterr().out.endswith(f" % of {FLAT_IMAGES} samples\n")
    run("Plain PyTorch", names, first=2, last=3)
    assert names["labels"].shape == (BATCH_SIZE, 3)
    assert len(names["labels"].unique()) > 2
    torch._dynamo.reset()
    graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    run("Plain PyTorch", names, first=3)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == graphs + 1
    assert all(parameter.grad.isfinite().all() for parameter in names["model"].parameters())


def test_timm(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("timm")
    monkeypatch.setitem(SMALLER, "batch_size=256", f"batch_size={BATCH_SIZE}")
    monkeypatch.delitem(SMALLER, r"batch_size=(256|64)")
    names = run("timm", {})
    assert names["train"].loader.stats().batches == EPOCHS * BATCHES
    assert names["labels"].shape == (BATCH_SIZE, 3)
    assert not names["train"].mixup_enabled
    assert len(names["labels"].unique()) == 2, "smoothed, and of one class each"


def test_clean_data_and_more_of_what_is_hard() -> None:
    names = run("Clean data, and more of what is hard", {})
    rest, held_out = names["rest"], names["held_out"]
    large = names["data"].select(lambda columns: columns["width"] * columns["height"] >= 1500)
    assert len(rest) + len(held_out) == len(large) < FLAT_IMAGES
    assert names["val"].dataset is held_out
    losses = names["losses"]
    assert len(losses) == len(rest)
    assert (losses != 1).sum() > len(rest) / 2
    worst = int(losses.argmax())
    drawn = [number for _ in range(3) for batch in names["train"] for number in batch.ids.tolist()]
    assert drawn.count(worst) >= 3 * drawn.count(int(losses.argmin()))


def test_self_supervised_learning(monkeypatch: pytest.MonkeyPatch) -> None:
    """SimCLR, and DINO with eight views: an epoch each."""
    monkeypatch.setitem(SMALLER, r"range\(90\)", "range(1)")
    monkeypatch.setitem(SMALLER, r"View\(\d+", "View(32")
    monkeypatch.setitem(SMALLER, r"\b4096\b", "64")
    names = run("Self-supervised learning", {}, last=1)
    assert [tuple(view.shape) for view in names["views"]] == [(BATCH_SIZE, 3, 32, 32)] * 2
    assert names["loss"].isfinite()
    names = run("Self-supervised learning", {}, first=1)
    assert len(names["views"]) == len(names["guesses"]) == 8
    assert len(names["pairs"]) == 14
    assert names["loss"].isfinite()
    assert names["center"].abs().sum() > 0


def test_progressive_sizes() -> None:
    (program,) = sections()["ImageNet with progressive sizes"]
    smaller_still = {
        '"cuda"': '"cpu"',
        "512": str(BATCH_SIZE),
        "[6, 12], [160, 192]": "[1, 2], [32, 64]",
        "size=256": "size=64",
        "range(16)": "range(3)",
    }
    for said, run in smaller_still.items():
        assert said in program
        program = program.replace(said, run)
    seen: set[int] = set()
    loop = "for images, labels in train:\n"
    program = program.replace(loop, f"{loop}        seen.add(len(images[0, 0]))\n")
    names: dict[str, Any] = {"seen": seen}
    exec(compile(program, "recipes.md: progressive sizes", "exec"), names)
    assert seen == {32, 64}
    assert names["train"].stats().batches == 3 * BATCHES
    assert names["val"].stats().samples == FLAT_IMAGES
    assert names["loss"].isfinite()


def test_images_of_any_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SMALLER, r"batch_size=(256|64)", f"batch_size={BATCH_SIZE}")
    monkeypatch.setitem(SMALLER, r"256 \* 256", "64 * 64")
    names = run("Images of any shape", {})
    assert names["train"].stats().batches == EPOCHS * BATCHES
    assert names["images"].shape[2:] == names["batch"].pixel_mask.shape[1:]
    assert names["loss"].isfinite()


# Lightning 2.6 asks torch's trees in a way that torch 2.13 is about to drop.
@pytest.mark.filterwarnings(
    "ignore:`isinstance\\(treespec, LeafSpec\\)` is deprecated:FutureWarning"
)
@pytest.mark.filterwarnings("ignore:Starting from v1.9.0, `tensorboardX` has been removed")
@pytest.mark.filterwarnings("ignore:Precision bf16-mixed is not supported by the model summary")
@pytest.mark.filterwarnings("ignore:The dirpath has changed")
# So few batches that it finds its logging too seldom.
@pytest.mark.filterwarnings("ignore:The number of training batches")
def test_lightning() -> None:
    names = run("Lightning", {}, last=1)
    trainer, train, val = (names[name] for name in ("trainer", "train", "val"))
    assert (trainer.current_epoch, trainer.global_step) == (EPOCHS, EPOCHS * BATCHES)
    assert 0 <= trainer.callback_metrics["top1"] <= 1
    assert (train.stats().batches, train.stats().epoch) == (EPOCHS * BATCHES, EPOCHS - 1)
    assert val.stats().samples >= EPOCHS * FLAT_IMAGES
    images, labels = next(iter(train))  # kornia's mixup, in the loader
    assert (images.shape[1:], labels.shape) == ((3, 32, 32), (BATCH_SIZE, 3))
    assert ((labels > 0) & (labels < 1)).any()
    run("Lightning", names, first=1)
    assert names["trainer"].current_epoch == EPOCHS + 1
    assert (names["train"].stats().batches, names["train"].stats().epoch) == (BATCHES, EPOCHS), (
        "its third epoch"
    )


@pytest.mark.parametrize("number", range(3))
def test_fields(number: int, scenes: Path) -> None:
    Path("data/train").unlink()
    Path("data/train").symlink_to(scenes)
    smaller_still = {
        "batch_size=32, device": "batch_size=4, size=64, device",
        "batch_size=32": "batch_size=4",
        "size=320": "size=64",
        "range(60)": "range(1)",
        '"cuda"': '"cpu"',
    }
    program = sections()["Boxes, masks, captions"][number]
    for said, run in smaller_still.items():
        program = program.replace(said, run)
    names: dict[str, Any] = {}
    exec(compile(program, f"recipes.md: fields, program {number}", "exec"), names)
    assert names["train"].stats().batches == 2
    assert names["loss"].isfinite()
    names["train"].close()


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_scenes(tmp_path_factory.mktemp("scenes") / "data", 8)


def test_accelerate(capsys: pytest.CaptureFixture[str]) -> None:
    names = run("Accelerate", {})
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == EPOCHS
    assert all(line.endswith(f" % of {FLAT_IMAGES} samples") for line in lines)
    # A step after each three batches, whichever epochs they are of; AcceleratedOptimizer counts no steps.
    assert names["schedule"].scheduler.last_epoch == EPOCHS * BATCHES // 3
    assert names["accelerator"].prepare(names["train"]) is names["train"]


@pytest.mark.parametrize("ranks", [1, 3])
def test_hugging_face_trainer(monkeypatch: pytest.MonkeyPatch, ranks: int) -> None:
    """Of several ranks, each evaluates its own part, one after the other; together they count each sample once."""
    small = "embedding_size=8, hidden_sizes=[8], depths=[1]"
    monkeypatch.setitem(SMALLER, r"ResNetConfig\(num", f"ResNetConfig({small}, num")
    monkeypatch.setitem(
        SMALLER,
        r"save_steps=1000",
        'save_steps=3, use_cpu=True, disable_tqdm=True, logging_strategy="no"',
    )
    counted = []
    for rank in range(ranks):
        monkeypatch.setitem(
            SMALLER, r"train=False", f"train=False, rank={rank}, world_size={ranks}"
        )
        names = run("Hugging Face Trainer", {})
        trainer = names["trainer"]
        counted.append(int(trainer.evaluate()["eval_samples"]))
        if rank == 0:
            assert trainer.state.global_step == names["train"].stats().batches == EPOCHS * BATCHES
            assert sorted(Path("resnet").glob("checkpoint-*"))
        assert names["val"].stats().samples == (EPOCHS + 1) * len(names["val"].sampler)
        assert len(trainer.predict(names["val"].dataset).predictions) == len(names["val"].sampler)
    assert sum(counted) == FLAT_IMAGES
    assert (len(set(counted)) > 1) == (FLAT_IMAGES % ranks > 0)


# Before the recipe: each worker notes the samples of its batches; in the long form one dies once, in its second epoch.
OBSERVED = """
import ray
ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False)

def note(epoch, ids, train):
    import os, fastpipe, ray.train
    rank = ray.train.get_context().get_world_rank()
    with open(f"{folder}/rank-{rank}", "a") as file:
        print(epoch, *ids.tolist(), file=file)
    if epoch == 2 and train.remaining == 1:  # as after an interruption here
        again = fastpipe.loader(train.dataset, 6, size=32, num_workers=1)
        again.load_state_dict(train.state_dict())
        with open(f"{folder}/rest-{rank}", "w") as file:
            print(*next(iter(again)).ids.tolist(), file=file)
    if dies and epoch == 1 and rank == 1 and not os.path.exists(f"{folder}/died"):
        open(f"{folder}/died", "x").close()
        os._exit(1)

def small(num_classes):
    from torch import nn
    return nn.Sequential(nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(48, num_classes))
"""


def test_ray_train(
    many_shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tried: Tried
) -> None:
    (program,) = sections()["Ray Train"]
    smaller_still = {
        "/shared/data/train": str(many_shards),
        "/shared/runs": str(tmp_path / "runs"),
        '"batch_size": 128, "epochs": 90': '"batch_size": 6, "epochs": 3',
        'use_gpu=True, resources_per_worker={"CPU": 8, "GPU": 1}': 'resources_per_worker={"CPU": 1}',
        "size=224": "size=32, num_workers=1",
        "resnet50(": "small(",
        "    from torchvision.models import resnet50\n": "",
        "for images, labels in train:": "for images, labels, ids in ((*batch, batch.ids) for batch in train):",
        "            loss.backward()\n": "            loss.backward()\n            note(epoch, ids, train)\n",
    }
    for said, instead in smaller_still.items():
        assert said in program
        program = program.replace(said, instead)
    given = f"folder, dies = {str(tmp_path)!r}, {long_form()}"
    (tmp_path / "train.py").write_text(f"{given}\n{OBSERVED}\n{program}\nprint(result.metrics)\n")
    monkeypatch.setenv("HOME", str(tmp_path))  # Ray keeps its token there
    for name, value in {
        **QUIET,
        "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",
    }.items():  # which is one process less
        monkeypatch.setenv(name, value)
    ran = subprocess.run(
        [sys.executable, "train.py"], capture_output=True, text=True, timeout=600, check=False
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert "'epoch': 2, 'loss': " in ran.stdout
    seen = [
        [list(map(int, line.split())) for line in Path(f"rank-{rank}").read_text().splitlines()]
        for rank in (0, 1)
    ]
    for epoch in range(3):
        first, second = ([line[1:] for line in lines if line[0] == epoch][-2:] for lines in seen)
        for rank, batches in enumerate((first, second)):
            given = {"size": 32, "num_workers": 1, "rank": rank, "world_size": 2}
            with fastpipe.loader(many_shards, 6, **given) as direct:
                direct.set_epoch(epoch)
                assert batches == [batch.ids.tolist() for batch in direct]
        assert sorted(sample for batch in first + second for sample in batch) == list(
            range(24)
        )  # no sample is of both
    for rank, lines in enumerate(seen):
        assert list(map(int, Path(f"rest-{rank}").read_text().split())) == lines[-1][1:]
    if not long_form():
        assert [line[0] for line in seen[0]] == [line[0] for line in seen[1]] == [0, 0, 1, 1, 2, 2]
        return
    lived, again = seen[1][:3], seen[1][3:]  # the checkpoint of epoch 0 may have come too late
    assert [line[0] for line in again] in ([1, 1, 2, 2], [0, 0, 1, 1, 2, 2])
    assert all(
        line in again for line in lived if line[0] >= again[0][0]
    )  # the same batches once more
    tried(
        "a worker of Ray Train is killed",
        1,
        "the training ends, with the same batches once more from the checkpoint",
    )


def test_sharded_checkpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Interrupted after the second checkpoint, it goes on with the third batch. More ranks: test_stateful.py."""
    monkeypatch.setitem(SMALLER, r"256 //", f"{BATCH_SIZE} //")
    monkeypatch.setitem(SMALLER, r'device="cuda"', 'device="cpu", size=32')
    monkeypatch.setitem(SMALLER, r"% 1000", "% 2")
    monkeypatch.setitem(SMALLER, r"torch\.cuda\.set_device.*", "")
    monkeypatch.setitem(
        SMALLER,
        r"init_process_group\(\)",
        f'init_process_group("gloo", init_method="file://{tmp_path}/met", rank=0, world_size=1)',
    )
    heading = "Sharded checkpoints: torch.distributed.checkpoint and torchtitan"
    try:
        names = run(heading, {})
        assert names["train"].stats().batches == BATCHES
        saved = BATCHES // 2 * 2
        torch.distributed.destroy_process_group()
        (tmp_path / "met").unlink(missing_ok=True)
        names = run(heading, {})
        assert names["train"].stats().batches == BATCHES - saved
    finally:
        torch.distributed.destroy_process_group()


def test_torchdata_nodes() -> None:
    names = run("torchdata.nodes", {})
    assert (names["train"].stats().epoch, names["batch"]["pixel_values"].shape) == (
        EPOCHS - 1,
        (BATCH_SIZE, 3, 32, 32),
    )
    assert names["state"]["num_yielded"] == BATCHES


# After the recipe. JAX warns of each fork in its process, so it gets one of its own.
JAX_TAKES = """
import numpy
assert pixels.unsafe_buffer_pointer() == images.data_ptr()
assert numpy.array_equal(numpy.asarray(pixels), images.permute(0, 2, 3, 1).numpy())
assert numpy.allclose(light, images.float().mean(dim=(1, 2, 3)) / 255, atol=1e-5)
assert classes.tolist() == labels.tolist()
print(train.stats().batches, "batches")
"""


def test_jax() -> None:
    (program,) = sections()["JAX"]
    command = [sys.executable, "-c", smaller(program) + JAX_TAKES]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert (ran.returncode, ran.stdout) == (0, f"{BATCHES} batches\n"), ran.stderr[-3000:]


@pytest.mark.filterwarnings("ignore:This DataLoader will create")  # more workers than CPUs
@pytest.mark.filterwarnings(
    "ignore:unclosed file:ResourceWarning"
)  # webdataset leaves closing to the collector
def test_webdataset(tmp_path: Path) -> None:
    (tmp_path / "clip").mkdir()
    for tar in range(3):
        samples = (
            {
                "__key__": f"{tar:05d}{n:04d}",
                "jpg": image_bytes(smooth_noise(90, 70, seed=n)),
                "txt": f"ein Bär, {n}",
                "json": {"n": n},
            }
            for n in range(2 * BATCH_SIZE)
        )
        written(tmp_path / "clip", samples, f"{tar:05d}.tar")
    names = run("WebDataset", {})
    assert names["epoch"] == EPOCHS - 1
    assert names["pixels"].shape == (BATCH_SIZE, 3, 224, 224)
    assert names["pixels"].is_contiguous(memory_format=torch.channels_last)
    assert names["pixels"].dtype == torch.bfloat16
    assert names["captions"] == [f"ein Bär, {note['n']}" for note in names["notes"]]
    assert len(names["captions"]) == BATCH_SIZE
