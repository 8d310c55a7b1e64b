"""Runs the programs of the tutorial, of the how-to pages and of others, on the CPU and with few small photos.

The programs of other pages are run by tests of their own, such as test_epochs_page.py.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import re
import shlex
import shutil
import signal
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import prometheus_client
import pytest
import torch
from PIL import Image
from support.checkout import ROOT
from support.pictures.drawn import smooth_noise
from support.programs.cli_run import succeeded
from support.ranks.torchrun import free_port, ranks
from torch.utils.data import DataLoader

import fastpipe
from fastpipe.loading.advice import STAGES
from fastpipe.tools.demo.photos import write_photos

DOCS = ROOT / "docs"
GUIDES = [
    "diffusion",
    "from-dali",
    "from-ffcv",
    "from-huggingface",
    "from-torchvision",
    "from-webdataset",
    "large-images",
    "latents",
    "multi-label",
    "notebooks",
    "operations",
    "own-labels",
    "performance",
    "predictions",
    "raw-bytes",
    "spot",
    "stopping",
    "subset",
    "transforms",
    "vision-language",
]
# Their programs begin in the middle: with a loader, a network, a batch.
OTHERS = [
    "explanation/augmentation",
    "explanation/how-it-works",
    "explanation/order",
    "how-to/diagnose",
    "how-to/growing",
    "how-to/single-samples",
    "how-to/slow-loop",
    "how-to/unpacked",
    "how-to/webdataset",
    "index",
    "reference/api/batch",
    "reference/loader",
]
# These have tests of their own; a cluster is for the long tier.
ELSEWHERE = {
    "how-to/cluster",
    "how-to/detection",
    "how-to/recipes",
    "how-to/remote",
    "reference/epochs",
    "reference/fields",
    "tutorial",
    "development/demo-photos",
}
# What stands in the pages -> what the tests run instead.
SMALLER = {
    r'"cuda"': '"cpu"',
    r"batch_size=(256|64|32)\b": "batch_size=4",
    r"num_workers=8": "num_workers=0",
    r"(pin_memory|persistent_workers)=True": r"\1=False",
    r"\b224\b": "32",
    r"size=64": "size=32",
    r"(< |range\(|total_steps=)(90|15)\b": r"\g<1>2",
    r"steps = 20": "steps = 2",
    r"shards/\{000\.\.099\}\.tar": "shards/train-{000..001}.tar",
    r'"data/train", size': '"data/train", 4, size',
    # A signature, cut short.
    r", \.\.\.\)": ")",
    # A bucket that is not there.
    r"s3://bucket/((coco-)?train)": r"data/\1",
    r', cache_dir="/nvme/fastpipe", cache_limit="\d+[GT]B"': "",
}
# Of `nvidia` alone, every CUDA build of torch has some part.
OF_OTHERS = ("albumentations", "ffcv", "nvidia.dali")
PHOTOS = 24


def programs(page: Path) -> list[str]:
    text = page.read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    for pattern, run in SMALLER.items():
        blocks = [re.sub(pattern, run, block) for block in blocks]
    return blocks


def is_runnable(program: str) -> bool:
    """Whether a program downloads nothing, and the libraries of others in it are installed."""
    needed = re.findall(rf"^(?:import|from) ({'|'.join(OF_OTHERS)})\b", program, re.MULTILINE)
    is_offline = "load_dataset" not in program
    return is_offline and all(is_installed(name) for name in needed)


def is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # the package around it is missing
        return False


def run(page: Path, names: dict[str, Any]) -> dict[str, Any]:
    """Runs a page's programs one after the other, as a reader would; returns their names."""
    for number, program in enumerate(programs(page)):
        code = compile(program, f"{page.name}, program {number}", "exec")
        if is_runnable(program):
            exec(code, names)
    return names


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """photos/, data/train, data/val and data/objects, shards/ and labels.db."""
    folder = tmp_path_factory.mktemp("guides")
    for number in range(PHOTOS):
        path = folder / "photos" / ("cat", "dog")[number % 2] / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        smooth_noise(36 + number, 60 - number, seed=number).save(path)
    for name in ("train", "val"):
        fastpipe.pack(folder / "photos", folder / "data" / name)
    with fastpipe.Writer(folder / "data" / "objects", {"boxes": "boxes"}) as writer:
        for path in sorted(folder.glob("photos/*/*.jpg")):
            writer.add(path, boxes={"boxes": [[3, 4, 20, 12], [9, 9, 30, 30]], "labels": [0, 1]})
    (folder / "shards").mkdir()
    for number, name in enumerate(("train", "val")):
        shard = folder / "data" / name / "shard-000000.tar"
        shutil.copy(shard, folder / "shards" / f"train-00{number}.tar")
    with sqlite3.connect(folder / "labels.db") as database:
        database.execute("CREATE TABLE photos (path TEXT, species TEXT)")
        rows = [(f"cat/{number}.jpg", "tabby") for number in range(0, PHOTOS - 4, 2)]
        rows += [(f"dog/{number}.jpg", "collie") for number in range(1, PHOTOS, 2)]
        database.executemany("INSERT INTO photos VALUES (?, ?)", rows)
    database.close()
    return folder


@pytest.fixture
def workplace(
    template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_thread: None
) -> Iterator[Path]:
    folder = shutil.copytree(template, tmp_path / "work")
    monkeypatch.chdir(folder)
    on_sigterm = signal.getsignal(signal.SIGTERM)
    yield folder
    signal.signal(signal.SIGTERM, on_sigterm)


def given() -> dict[str, Any]:
    """The network and its optimizer, which the pages do not repeat."""
    torch.manual_seed(0)
    layers = [torch.nn.Conv2d(3, 8, 3, stride=4), torch.nn.AdaptiveAvgPool2d(1)]
    model = torch.nn.Sequential(*layers, torch.nn.Flatten(), torch.nn.Linear(8, 2))
    return {"model": model, "optimizer": torch.optim.SGD(model.parameters(), lr=0.1)}


@pytest.fixture(autouse=True)
def one_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    """As torchrun starts a program with one process: the page on predictions starts torch.distributed."""
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    for name, value in {**address, "RANK": "0", "WORLD_SIZE": "1"}.items():
        monkeypatch.setenv(name, value)


# webdataset leaves a tar open.
@pytest.mark.filterwarnings("ignore:unclosed file <_io.BufferedReader name='shards:ResourceWarning")
@pytest.mark.parametrize("name", GUIDES)
def test_programs_run(name: str, workplace: Path, torchvision: ModuleType) -> None:
    if name == "from-torchvision":
        for split in ("train", "val"):
            shutil.copytree("photos", f"photos-by-split/{split}")
        shutil.rmtree("photos")
        Path("photos-by-split").rename("photos")
    torch.save(given()["model"], "model.pt")
    run(DOCS / "how-to" / f"{name}.md", given())


@pytest.mark.parametrize("page", OTHERS)
@pytest.mark.filterwarnings("ignore:unclosed file <_io.BufferedReader name='shards:ResourceWarning")
def test_programs_that_begin_in_the_middle_run(
    page: str, workplace: Path, torchvision: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nothing of a program stays behind.
    monkeypatch.setattr(prometheus_client, "REGISTRY", prometheus_client.CollectorRegistry())
    monkeypatch.setattr(prometheus_client, "start_http_server", lambda port: None)
    small: dict[str, Any] = {"batch_size": 4, "size": 32, "num_workers": 1}
    names = given() | {"fastpipe": fastpipe, "np": np, "torch": torch, "modules": []}
    names["loader"] = names["train"] = fastpipe.loader("data/train", **small)
    names["val"] = fastpipe.loader("data/val", train=False, dtype=torch.float32, **small)
    names["images"], names["labels"] = next(iter(names["loader"]))
    names |= {"hits": 0, "count": 0, "train_step": lambda batch: None}
    if page == "how-to/diagnose":
        names["loader"] = DataLoader(fastpipe.open("data/train"), batch_size=None)
    run(DOCS / f"{page}.md", names)
    for loader in (names["loader"], names["train"], names["val"]):
        if isinstance(loader, fastpipe.Loader):
            loader.close()


def test_every_page_is_run() -> None:
    pages = {
        page.relative_to(DOCS).with_suffix("").as_posix()
        for page in DOCS.rglob("*.md")
        if programs(page)
    }
    assert pages - ELSEWHERE - set(OTHERS) == {f"how-to/{name}" for name in GUIDES}


def test_the_program_that_predicts_runs_alone_and_with_ranks(
    workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = DOCS / "how-to" / "predictions.md"
    Path("predict.py").write_text(programs(page)[0])
    torch.save(given()["model"], "model.pt")
    monkeypatch.delenv("RANK")
    monkeypatch.delenv("WORLD_SIZE")
    exec(compile(Path("predict.py").read_text(), "predict.py", "exec"), {})
    alone = list(csv.reader(Path("predictions.csv").read_text().splitlines()))

    for exit_code, output in ranks("predict.py"):
        assert exit_code == 0, output
    joining = re.findall(r"^    ((?:head|tail) .*)", page.read_text(), flags=re.MULTILINE)
    subprocess.run("\n".join(joining), shell=True, check=True)
    joined = list(csv.reader(Path("predictions.csv").read_text().splitlines()))

    assert alone[0] == joined[0] == ["file", "class", "probability"]
    keys = sorted(str(key) for key in fastpipe.open("data/val")["key"])
    assert sorted(row[0] for row in joined[1:]) == keys
    assert sorted(row[:2] for row in joined[1:]) == sorted(row[:2] for row in alone[1:])


def test_saved_labels_are_undone_as_the_page_says(workplace: Path) -> None:
    labels = ["saved"] * PHOTOS
    fastpipe.open("data/train").with_labels(labels).save_columns("data/train")
    assert fastpipe.open("data/train").classes == ["saved"]
    assert "saved" not in succeeded("inspect", "data/train")
    shutil.rmtree("data/train/columns")
    assert fastpipe.open("data/train").classes == ["cat", "dog"]


@pytest.mark.parametrize("has_grown", [False, True])
def test_the_stored_image_is_that_of_the_sample(workplace: Path, has_grown: bool) -> None:
    if has_grown:
        photos_of("photos", ["added"])
        fastpipe.add("photos", "data/train")
        fastpipe.remove("data/train", keys=["cat/0.jpg"])
    names = run(DOCS / "how-to" / "raw-bytes.md", {})
    stored = torch.from_numpy(np.array(Image.open(io.BytesIO(names["stored"]))))
    assert torch.equal(stored.permute(2, 0, 1), names["image"])


def test_unpacked_files_are_called_as_the_page_says(workplace: Path) -> None:
    succeeded("unpack", "data/train", "photos-again")
    for path in Path("photos-again").glob("*/*"):
        assert re.fullmatch(
            r"(cat|dog)/\d{6}-\d{8}\.jpg", path.relative_to("photos-again").as_posix()
        )


def photos_of(folder: str, classes: list[str]) -> None:
    """Photos in class folders with these names; "": in no class folder."""
    for number in range(10):
        path = Path(folder, classes[number % len(classes)], f"{number}.jpg")
        path.parent.mkdir(parents=True, exist_ok=True)
        smooth_noise(40, 50, seed=number).save(path)


@pytest.mark.parametrize("classes", [[""], ["dog"], ["bird", "fish", "dog"]])
def test_predictions_have_the_names_of_the_training_set(
    workplace: Path, monkeypatch: pytest.MonkeyPatch, classes: list[str]
) -> None:
    photos_of("others", classes)
    program = programs(DOCS / "how-to" / "predictions.md")[0]
    Path("predict.py").write_text(program.replace("data/val", "others"))
    model = given()["model"]
    with torch.no_grad():
        model[-1].bias.copy_(torch.tensor([-100.0, 100.0]))  # always the second class
    torch.save(model, "model.pt")
    monkeypatch.delenv("RANK")
    monkeypatch.delenv("WORLD_SIZE")
    exec(compile(Path("predict.py").read_text(), "predict.py", "exec"), {})
    for exit_code, output in ranks("predict.py"):
        assert exit_code == 0, output

    names = []
    for path in sorted(Path().glob("predictions*.csv")):
        names.append([row["class"] for row in csv.DictReader(path.read_text().splitlines())])
    assert names == [["dog"] * 5, ["dog"] * 5, ["dog"] * 10]


def test_the_page_on_a_slow_loop_has_a_row_for_each_stage() -> None:
    page = (DOCS / "how-to" / "slow-loop.md").read_text()
    rows = [row.split("|")[2] for row in page.splitlines() if row.startswith("| above")]
    assert set(re.findall(r"`(\w+)`", "".join(rows))) == set(STAGES)


def test_a_loop_that_waits_for_augmentation_is_in_the_row_of_the_table(workplace: Path) -> None:
    page = (DOCS / "how-to" / "slow-loop.md").read_text()
    slow = torch.nn.Identity()
    slow.register_forward_hook(lambda *_: time.sleep(0.05))
    augment = fastpipe.Augment(slow)
    with fastpipe.loader("data/train", 4, size=32, augment=augment) as loader:
        for _ in loader:
            time.sleep(0.002)
            stats = loader.stats()
            if stats.batches == 3:
                break
    assert stats.load_ratio > 0.1
    row = f"| above | `{stats.slowest}` | none | {stats.rows_waiting} | `prefetch_factor` |"
    assert stats.slowest == "augment_s"
    assert stats.threads_busy == 0
    assert stats.batches_ready == 2
    assert row in page


def test_the_keys_held_out_are_not_taken_for_annotations(
    workplace: Path, caplog: pytest.LogCaptureFixture
) -> None:
    exec(programs(DOCS / "how-to" / "growing.md")[-1], {})
    assert len(list(Path().rglob("val-keys.json"))) == 1
    summary = fastpipe.pack("photos", "packed-again")
    assert "val-keys" not in str(summary.assumed)
    assert "val-keys" not in caplog.text


def test_a_stopped_training_goes_on(workplace: Path) -> None:
    stopping = programs(DOCS / "how-to" / "spot.md")[0].replace("stop.is_set()", "True")
    with pytest.raises(SystemExit):
        exec(compile(stopping, "spot.md", "exec"), given())
    names = run(DOCS / "how-to" / "spot.md", given())
    saved = torch.load("checkpoint.pt")["loader"]
    assert saved["epoch"] == 2
    assert names["train"].stats().batches == 2 * (PHOTOS // 4) - 1  # one came before the stop


@pytest.mark.parametrize("is_stopping", [True, False])
def test_ranks_stop_together(workplace: Path, is_stopping: bool) -> None:
    names = run(DOCS / "how-to" / "spot.md", given())
    if is_stopping:
        names["stop"].set()
    torch.distributed.init_process_group("gloo")
    try:
        assert names["should_stop"]() is is_stopping
    finally:
        torch.distributed.destroy_process_group()


def test_a_break_leaves_the_state_in_its_epoch(workplace: Path) -> None:
    """As the page on stopping says."""
    with fastpipe.loader("data/train", 4, size=32) as loader:
        for epoch in range(3):
            next(iter(loader))
            assert loader.state_dict()["epoch"] == epoch
        loader.set_epoch(epoch + 1)
        assert loader.state_dict()["epoch"] == 3


def test_patches_are_those_of_the_processor(workplace: Path, torchvision: ModuleType) -> None:
    module = "transformers.models.qwen2_vl.image_processing_pil_qwen2_vl"
    processing = pytest.importorskip(module)
    names = run(DOCS / "how-to" / "vision-language.md", given())
    image = smooth_noise(90, 131, seed=0)
    with fastpipe.Writer("picture", {"images": "images"}) as writer:
        writer.add(key="0", images=[image])
    with fastpipe.loader(
        "picture", 1, size=names["size"], fields=names["fields"][:1], train=False
    ) as loader:
        (batch,) = loader
    expected = processing.Qwen2VLImageProcessorPil()(image, return_tensors="pt")
    assert batch["images_grids"].tolist() == expected["image_grid_thw"][:, 1:].tolist()
    assert torch.equal(names["normalise"](batch["images"]), expected["pixel_values"])
    assert sum(text.count("<|image_pad|>") for text in names["texts"]) * 4 == len(
        names["inputs"]["pixel_values"]
    )


class Detector(torch.nn.Module):
    """Called as torchvision's detectors are: a box in the middle of each image is its answer."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(()))
        self.seen: set[int] = set()

    def forward(self, images: list[torch.Tensor], targets: Any = None) -> Any:
        if targets is None:
            box = torch.tensor([[80.0, 80.0, 240.0, 160.0]])
            answer = {"boxes": box, "labels": torch.tensor([2]), "scores": torch.tensor([0.5])}
            return [answer for _ in images]
        for target in targets:
            assert target["boxes"].shape == (len(target["labels"]), 4)
            self.seen |= set(target["labels"].tolist())
        return {"loss": self.weight * images[0].mean()}


def test_the_page_on_detection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_thread: None
) -> None:
    monkeypatch.chdir(tmp_path)
    write_photos(tmp_path / "photos", 12, scale=0.3, truth=tmp_path / "truth")
    fields = ["--field", "boxes", "--field", "iscrowd", "--field", "image_id"]
    for name in ("coco-train", "coco-val"):
        paths = ["truth/photos.json", f"data/{name}", "--image-root", "photos"]
        succeeded("pack", *paths, *fields)
    model = Detector()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run(DOCS / "how-to" / "detection.md", {"model": model, "optimizer": optimizer})
    assert model.seen <= set(range(2, 12)), "the ids of the categories, and 1 more"
    results = {
        result["image_id"]: result for result in json.loads(Path("results.json").read_text())
    }
    truth = json.loads(Path("truth/photos.json").read_text())
    for image in truth["images"]:
        width, height = image["width"], image["height"]
        expected = [width / 4, height / 4, width / 2, height / 4]
        assert results[image["id"]]["bbox"] == pytest.approx(expected, rel=1e-5)
        assert results[image["id"]]["category_id"] == 1


def test_the_tutorial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_thread: None) -> None:
    monkeypatch.chdir(tmp_path)
    write_photos(tmp_path / "fastpipe-demo" / "photos", 40, scale=0.3)
    page = DOCS / "tutorial.md"
    for block in re.findall(r"^```sh\n(.*?)^```", page.read_text(), flags=re.MULTILINE | re.DOTALL):
        for line in block.splitlines():
            command = shlex.split(line)
            if command[0] == "fastpipe" and command[1] != "demo":
                succeeded(*command[1:])
    run(page, {})
    rows = Path("predictions.csv").read_text().splitlines()
    held_out = fastpipe.open("data/shapes").fold(0, of=5, stratify="label")[1]
    assert [row.split(",")[0] for row in rows[1:]] == [str(key) for key in held_out["key"]]


def test_the_notebook_is_that_of_the_page() -> None:
    spec = importlib.util.spec_from_file_location("notebook", DOCS / "site" / "notebook.py")
    assert spec is not None
    assert spec.loader is not None
    notebook = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(notebook)
    expected = notebook.notebook_of(notebook.PAGE.read_text(encoding="utf-8"))
    is_same = notebook.NOTEBOOK.read_text(encoding="utf-8") == expected
    assert is_same, "run: python docs/site/notebook.py"


def test_the_pictures_are_those_of_the_script(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(DOCS / "pictures")
    import draw

    for name, drawing in draw.DRAWINGS.items():
        is_same = (DOCS / "pictures" / name).read_text(encoding="utf-8") == drawing().render()
        assert is_same, f"{name}: run: python docs/pictures/draw.py"
