"""Options and kinds of data, drawn three at a time: what the table of the impossible does not name works together, is
resumed, is shared by ranks, and gives the rows that the simplest loader gives.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.pictures.drawn import smooth_noise
from support.remote.range_server import RangeServer
from support.running.soak import Tried, times
from torch.utils.data import DistributedSampler, RandomSampler

import fastpipe
from fastpipe.errors import ConfigError
from fastpipe.plan.impossible import IMPOSSIBLE

COUNT, CLASSES = 40, ["ant", "bee", "cow", "dog"]
DRAWS = times(60, 2000)
BATCH = 8  # of all ranks
Draw = dict[str, Any]


def write(folder: Path, count: int, *, seed: int) -> Path:
    """Pictures of several shapes with a field of each kind that batches treat in their own way."""
    rng = np.random.default_rng(seed)
    fields = {"boxes": "boxes", "caption": "text", "mask": "mask", "joints": "keypoints", "score": "floats"}
    with fastpipe.Writer(folder, fields=fields, classes=CLASSES) as writer:
        for number in range(count):
            width, height = rng.integers(24, 60, 2).tolist()
            writer.add(
                smooth_noise(width, height, seed=seed + number),
                label=number % 4,
                boxes={"boxes": [(3, 4, width - 5, height - 6)], "labels": [number % 3]},
                caption=f"picture {seed + number}",
                mask=rng.integers(0, 5, (height, width), dtype=np.uint8),
                joints=[[(5, 6, 1), (width - 4, height - 7, 2)]],
                score=[number / count],
            )
    return folder


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Callable[[], fastpipe.Dataset]]]:
    """Each kind of data, made anew."""
    root = tmp_path_factory.mktemp("pairs")
    first, second = write(root / "first", COUNT, seed=0), write(root / "second", COUNT // 2, seed=1000)
    photos = root / "photos"
    for number in range(COUNT):
        (photos / CLASSES[number % 4]).mkdir(parents=True, exist_ok=True)
        name = f"{number}.{'png' if number % 9 == 0 else 'jpg'}"
        smooth_noise(25 + number, 60 - number, seed=number).save(photos / CLASSES[number % 4] / name)
    fastpipe.pack(first, root / "coefficients", storage="coefficients", workers=1)
    cache = root / "cache"
    with RangeServer(second) as server:

        def packed() -> fastpipe.Dataset:
            return fastpipe.open(first)

        def there() -> fastpipe.Dataset:
            return fastpipe.open(server.url, cache_dir=cache)

        def unpacked() -> fastpipe.Dataset:
            return fastpipe.open(photos)

        def added(data: fastpipe.Dataset) -> fastpipe.Dataset:
            return data.with_column("extra", np.arange(len(data), dtype=np.float32))

        yield {
            "packed": packed,
            "coefficients": lambda: fastpipe.open(root / "coefficients"),
            "URL": there,
            "unpacked": unpacked,
            "selected": lambda: packed().select(np.arange(COUNT)[::-1][:-3]),
            "classes": lambda: packed().only(["dog", "ant", "bee"]),
            "fold": lambda: packed().fold(1, of=5)[0].take(0.95),
            "column": lambda: added(packed()).select(lambda columns: columns["extra"] > 2),
            "labels": lambda: packed().with_labels(np.arange(COUNT) % 3, classes=["x", "y", "z"]),
            "concat": lambda: fastpipe.concat(packed(), second, labels="offset"),
            "concat of all": lambda: fastpipe.concat(packed().select(range(30)), there(), unpacked()),
            "mix": lambda: fastpipe.mix({first: 0.6, second: 0.4}),
            "mix of chosen": lambda: fastpipe.mix({added(packed()).only(["ant", "dog"]): 2, added(there()): 1}),
            "mix with photos": lambda: fastpipe.mix({there(): 1, unpacked(): 1, first: 1}, labels="union"),
            "mix in a mix": lambda: fastpipe.mix({fastpipe.mix({first: 1, second: 1}): 1, unpacked(): 1}).take(0.9),
        }


def fields_of(names: tuple[str, ...]) -> Callable[[fastpipe.Dataset], Any]:
    """Those of some fields that a dataset has."""

    def chosen(data: fastpipe.Dataset) -> Any:
        own = ("image", "label", "id", "valid", "key", "source")
        found = [name for name in names if name in own or name in data.fields]
        return [fastpipe.Points(name, flip_pairs=[(0, 1)]) if name == "joints" else name for name in found]

    return chosen


def each(value: Any) -> Callable[[fastpipe.Dataset], Any]:
    """An option that is the same for all data."""
    return lambda _: value


# Option -> its values, as functions of the data.
OPTIONS: dict[str, list[Callable[[fastpipe.Dataset], Any]]] = {
    "sampler": [
        lambda data: fastpipe.Weighted(fastpipe.balanced(data)),
        lambda data: fastpipe.Weighted(np.arange(len(data)) % 3 + 0.5),
        lambda data: fastpipe.Weighted(np.arange(len(data)) + 1.0, replacement=False),
        lambda data: fastpipe.Repeated(2, fastpipe.Weighted(np.arange(len(data)) % 2 + 1.0)),
        each(fastpipe.Repeated(2)),
        each(fastpipe.Sequential()),
        each(fastpipe.PerClass(samples=4)),
        lambda data: lambda epoch: np.random.default_rng(epoch).permutation(len(data)),
        lambda data: RandomSampler(range(len(data))),
        lambda data: DistributedSampler(range(len(data)), num_replicas=2, rank=0),
    ],
    "size": [each("bucket"), each((12, 20)), each(lambda epoch: 12 + 4 * epoch)],
    "size_choices": [each([12, (16, 20)])],
    "crop": [
        each(fastpipe.RandomCrop(padding=4, pad_if_needed=True, mask_fill=255)),
        each(fastpipe.CenterCrop()),
        each(fastpipe.Letterbox()),
        each(fastpipe.FiveCrop()),
        each(fastpipe.TenCrop()),
    ],
    "views": [each(2), each([fastpipe.View(), fastpipe.View(10, count=2, hflip=False)])],
    "hflip": [each(True), each(False)],
    "shuffle": [each(False)],
    "train": [each(False)],
    "channels": [each("gray"), each("rgba"), each("own")],
    "dtype": [each(torch.uint16), each(torch.float32)],
    "augment": [
        each(fastpipe.Augment.simclr()),
        each(fastpipe.Augment.imagenet(label_smoothing=0.1)),
        each(fastpipe.Augment.imagenet(cutmix=1.0)),
        each(fastpipe.Augment.imagenet(mixup=0.4, cutmix=1.0)),
        each(fastpipe.Augment.randaugment()),
    ],
    "fields": [
        fields_of(("image", "label", "boxes", "caption", "mask", "id", "valid")),
        fields_of(("image", "joints", "score", "extra", "source", "key", "label", "id", "valid")),
        fields_of(("image", "label", "caption", "extra", "id", "valid")),
    ],
    "epoch_size": [each(24)],
    "partition": [each("node"), each(2)],
    "drop_last": [each(False)],
    "exact": [each(True)],
    "on_error": [each("replace")],
    "verify": [each(True)],
    "num_workers": [each(2)],
}


def drawn(number: int, kinds: dict[str, Callable[[], fastpipe.Dataset]]) -> tuple[str, fastpipe.Dataset, Draw]:
    """A kind of data, and two or three options beside those that a loader needs."""
    rng = random.Random(number)
    kind = rng.choice(list(kinds))
    data = kinds[kind]()
    options = {name: rng.choice(OPTIONS[name])(data) for name in rng.sample(list(OPTIONS), rng.choice([2, 3]))}
    if {"size", "size_choices"} <= options.keys():
        del options["size"]
    if isinstance(sampler := options.get("sampler"), fastpipe.Weighted) and not sampler.replacement:
        options["epoch_size"] = min(24, len(data))
    elif sampler is not None and not isinstance(sampler, (fastpipe.Weighted, fastpipe.Repeated, fastpipe.PerClass)):
        options.pop("epoch_size", None)
    return kind, data, options


def opened(data: fastpipe.Dataset, options: Draw, rank: int = 0, world: int = 1) -> fastpipe.Loader:
    usual = {"num_workers": 1, "seed": 5, "fields": ["image", "label", "id", "valid"]}
    if not {"size", "size_choices"} & options.keys():
        usual["size"] = 16
    return fastpipe.loader(data, BATCH // world, rank=rank, world_size=world, **{**usual, **options})


def plain(value: Any) -> Any:
    """A value that can be compared."""
    if isinstance(value, torch.Tensor):
        return value.dtype, tuple(value.shape), value.contiguous().numpy().tobytes()
    return [plain(one) for one in value] if isinstance(value, (list, tuple)) else value


def ids_of(batch: dict[str, Any]) -> list[int]:
    """The samples of the rows that count, sorted."""
    found: list[int] = sorted(batch["id"][batch["valid"]].tolist())
    return found


@pytest.mark.parametrize("first", range(0, DRAWS, 20))
def test_what_is_not_impossible_works_together(
    kinds: dict[str, Callable[[], fastpipe.Dataset]], first: int, monkeypatch: pytest.MonkeyPatch, tried: Tried
) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "1")
    worked = 0
    for number in range(first, first + 20):
        kind, data, options = drawn(number, kinds)
        about = f"draw {number}: {kind}, {options}"
        if "partition" in options:
            worlds: tuple[int, ...] = (2,)
        else:
            worlds = (1, 2)
        try:
            loader = opened(data, options, 0, worlds[0])
        except ConfigError as refused:
            words = str(refused)
            rows = [f"{pair.one} does not go with {pair.other}".replace("`", "") for pair in IMPOSSIBLE.values()]
            assert any(words.startswith(row) for row in rows), f"{about}: {words}"
            continue
        worked += 1
        shares = []
        for world in worlds:
            found: list[list[int]] = [[], []]
            for rank in range(world):
                with opened(data, options, rank, world) as loader:
                    batches = iter(loader)
                    one = next(batches)
                    state = json.loads(json.dumps(loader.state_dict()))
                    rest = [next(batches, None)]
                    for step, batch in enumerate((one, rest[0])):
                        found[step] += ids_of(batch) if batch is not None else []
                with opened(data, options, rank, world) as loader:
                    loader.load_state_dict(state)
                    again = next(iter(loader), None) if rest[0] is not None else None
                    assert plain(again and list(again.items())) == plain(rest[0] and list(rest[0].items())), about
            shares.append([sorted(step) for step in found])
        assert all(share == shares[0] for share in shares), f"{about}: {shares}"
        assert all(0 <= each < len(data) for step in shares[0] for each in step), about
    assert worked >= 8
    tried("two or three options and a kind of data, drawn", worked, "two batches, resumed, and shared by ranks")


def row_of(batch: dict[str, Any], row: int) -> dict[str, Any]:
    """The entries of one row, and for which sample they are."""
    return {key: plain(values[row]) for key, values in batch.items() if key != "valid"}


@pytest.mark.parametrize("first", range(0, times(20, 200), 10))
def test_rows_are_those_of_the_simplest_loader(
    kinds: dict[str, Callable[[], fastpipe.Dataset]], first: int, tried: Tried
) -> None:
    """Whatever was chosen, joined, mixed, listed, shuffled or dealt out: of a sample come its own pixels, boxes,
    points, masks and values. Where a sample is drawn several times, only crops without a random draw are compared.
    """
    names = ("image", "label", "boxes", "caption", "mask", "joints", "score", "extra", "source", "key", "id", "valid")
    compared = 0
    for number in range(first, first + 10):
        rng = random.Random(1000 + number)
        data = kinds[rng.choice(list(kinds))]()
        sampler = rng.choice([None, None, *OPTIONS["sampler"]])
        random_crops = sampler is None
        crop = rng.choice([None, *(option(data) for option in OPTIONS["crop"][:3])] if random_crops else [None])
        usual: Draw = {"train": random_crops, "crop": crop, "fields": fields_of(names)(data), "size": 14}
        options = {**usual, "epoch_size": 24} if sampler is not None else usual
        if sampler is not None:
            options = {**usual, "sampler": sampler(data)}
            if isinstance(options["sampler"], fastpipe.Weighted) and not options["sampler"].replacement:
                options["epoch_size"] = min(24, len(data))
        try:
            loader = opened(data, options)
        except ConfigError:  # the other test looks at these
            continue
        with loader, opened(fastpipe.concat(data), {**usual, "shuffle": False, "drop_last": False}) as simplest:
            rows = {int(batch["id"][at]): row_of(batch, at) for batch in simplest for at in range(len(batch["id"]))}
            for _, batch in zip(range(2), loader, strict=False):
                for at, sample in enumerate(batch["id"].tolist()):
                    assert row_of(batch, at) == rows[sample], f"draw {number}, sample {sample}: {data}, {options}"
                    compared += 1
    assert compared > 50
    tried("rows of a composed dataset", compared, "the pixels, places and values of the simplest loader")
