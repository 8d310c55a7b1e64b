"""Tests of the words where users of other loaders stumble: each error says what to write instead."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from PIL.Image import Resampling
from torch.utils.data import ConcatDataset, DataLoader, Subset, TensorDataset, random_split

import fastpipe
from fastpipe.errors import ConfigError, DatasetError, EngineError

FOLDER_OF_PHOTOS = "/photos/train"


@pytest.fixture
def loader(flat: Path) -> fastpipe.Loader:
    return fastpipe.loader(flat, 5, size=12, num_workers=1)


@pytest.mark.parametrize(
    "use",
    [
        lambda loader: loader[0],
        lambda loader: next(iter(DataLoader(loader))),
        lambda loader: next(iter(DataLoader(loader, batch_size=None))),
        lambda loader: next(
            iter(DataLoader(loader, 2, shuffle=True, num_workers=1, multiprocessing_context="fork"))
        ),
        lambda loader: Subset(loader, [0])[0],
        lambda loader: next(iter(DataLoader(Subset(loader, [0, 1]), batch_size=2))),
        lambda loader: random_split(loader, [0.5, 0.5])[1][0],
    ],
)
def test_a_loader_as_a_dataset(
    flat: Path, loader: fastpipe.Loader, use: Callable[[Any], object]
) -> None:
    with pytest.raises(TypeError, match="this is already a loader: iterate over it") as caught:
        use(loader)
    assert f"use fastpipe.open({str(flat)!r})" in str(caught.value)


def test_a_loader_as_the_dataset_of_spawned_workers(loader: fastpipe.Loader) -> None:
    with pytest.raises(
        EngineError, match="DataLoader takes no loader as its dataset: a loader gives the batches"
    ):
        next(iter(DataLoader(loader, num_workers=1, multiprocessing_context="spawn")))  # type: ignore[arg-type]


def test_a_loader_of_which_a_library_would_make_another(loader: fastpipe.Loader) -> None:
    """Accelerate's and Ray's prepare_data_loader begin with these."""
    from accelerate.data_loader import prepare_data_loader

    for use in (prepare_data_loader, lambda loader: loader.worker_init_fn):
        with pytest.raises(AttributeError, match="Iterate over it, without prepare_data_loader"):
            use(loader)
    assert not hasattr(loader, "drop_last")


def test_a_loader_as_an_iterator(loader: fastpipe.Loader) -> None:
    with pytest.raises(TypeError, match=r"write next\(iter\(loader\)\)"):
        next(loader)
    assert len(next(iter(loader))[1]) == 5


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        ("workers", TypeError, "unexpected argument 'workers'; did you mean num_workers=?"),
        ("batchsize", TypeError, "did you mean batch_size=?"),
        ("Shufle", TypeError, "did you mean shuffle=?"),
        ("augmentation", TypeError, "did you mean augment=?"),
        ("colour", TypeError, "it has data, batch_size, size,"),
        ("image_size", ConfigError, "pass size="),
        ("transform", ConfigError, "DataLoader(fastpipe.open(FOLDER).with_transform(transform))"),
        (
            "subset",
            ConfigError,
            "pass fastpipe.open(DATA).select(...) as the data, with numbers of samples, a mask,",
        ),
        ("normalize", ConfigError, "pass augment=fastpipe.Augment.imagenet()"),
        ("num_replicas", ConfigError, "pass world_size="),
    ],
)
def test_arguments_of_other_loaders(
    flat: Path, name: str, kind: type[Exception], words: str
) -> None:
    with pytest.raises(kind, match=re.escape(words)):
        fastpipe.loader(flat, **{name: 2})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("samples", "pass fastpipe.open(DATA).select(...) as the data"),
        ("classes", "pass fastpipe.open(DATA).only(classes) as the data; keep_labels=True"),
        (
            "labels",
            'fastpipe.mix({...}, labels="union"), fastpipe.open(DATA).only(classes, keep_labels=True)',
        ),
        ("limit", "pass fastpipe.open(DATA).take(0.1) as the data"),
        ("kfold", "train, val = fastpipe.open(DATA).fold(0, of=5)"),
        ("weights", "pass sampler=fastpipe.Weighted(weights), with weights of classes or samples"),
        ("replacement", "pass sampler=fastpipe.Weighted(weights, replacement=False)"),
        ("repeats", "pass sampler=fastpipe.Repeated(3)"),
        ("canonical_nodes", "pass the number of nodes as partition=, for example partition=8"),
        ("max_pixels", "pass fastpipe.open(DATA, max_pixels=...) as the data"),
        ("cache_dir", "pass fastpipe.open(DATA, cache_dir=...) as the data"),
        ("cache_limit", "pass fastpipe.open(DATA, cache_limit=...) as the data"),
        ("storage_options", "pass fastpipe.open(DATA, storage_options=...) as the data"),
        ("read_timeout", "pass fastpipe.open(DATA, read_timeout=...) as the data"),
        ("version", "pass fastpipe.open(DATA, version=...) as the data"),
    ],
)
def test_arguments_that_the_dataset_or_the_sampler_has(flat: Path, name: str, words: str) -> None:
    with pytest.raises(
        ConfigError, match=re.escape(f"fastpipe.loader() has no argument {name}: ")
    ) as caught:
        fastpipe.loader(flat, **{name: 2})  # type: ignore[arg-type]
    assert words in str(caught.value)


def test_a_loader_is_made_by_the_function(flat: Path) -> None:
    calls: list[tuple[Callable[[], object], str]] = [
        (lambda: fastpipe.Loader(str(flat), batch_size=8, num_workers=2), "8"),  # type: ignore[call-arg, arg-type]
        (lambda: fastpipe.Loader(flat, 16), "16"),  # type: ignore[call-arg, arg-type]
        (lambda: fastpipe.Loader(flat), "64"),  # type: ignore[call-arg, arg-type]
    ]
    for call, batch_size in calls:
        words = f"make a loader with fastpipe.loader({str(flat)!r}, batch_size={batch_size})"
        with pytest.raises(ConfigError, match=re.escape(words)):
            call()
    with pytest.raises(ConfigError, match=re.escape("fastpipe.loader(data, batch_size=8)")):
        fastpipe.Loader(fastpipe.open(flat), batch_size=8)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("DataLoader", "make a loader with fastpipe.loader(DATA, batch_size=64)"),
        ("Pipeline", "make a loader with fastpipe.loader(DATA, batch_size=64)"),
        ("make_loader", "make a loader with fastpipe.loader(DATA, batch_size=64)"),
        ("load", "open the data with fastpipe.open(DATA)"),
        ("ImageFolder", "open the data with fastpipe.open(DATA)"),
        ("RandomResizeCrop", "did you mean 'RandomResizedCrop'?"),
    ],
)
def test_names_of_other_libraries(name: str, words: str) -> None:
    with pytest.raises(AttributeError, match=f"has no attribute '{name}'") as caught:
        getattr(fastpipe, name)
    assert words in str(caught.value)


def test_single_samples_are_opened(flat: Path) -> None:
    for given in ((str(flat),), (flat, torch.nn.Identity())):
        with pytest.raises(
            ConfigError, match=re.escape(f"open it with fastpipe.open({str(flat)!r}); a transform,")
        ):
            fastpipe.Dataset(*given)  # type: ignore[arg-type]
    with pytest.raises(
        ConfigError, match=re.escape(".with_transform(...), .cropped(...) and .with_fields(...)")
    ):
        fastpipe.Dataset(flat, crop=fastpipe.Resize())  # type: ignore[arg-type, call-arg]
    with pytest.raises(TypeError, match="unexpected keyword argument 'crop'"):
        fastpipe.Dataset(fastpipe.open(flat)._selection, crop=fastpipe.Resize())  # type: ignore[call-arg]


def test_a_transform_that_is_set(flat: Path) -> None:
    """As timm.data.create_loader does it."""
    with pytest.raises(AttributeError, match=r"import create_loader from fastpipe\.timm, too"):
        fastpipe.open(flat).transform = torch.nn.Identity()


class Photos(TensorDataset):
    """A dataset like torchvision's, which know their folder."""

    root = FOLDER_OF_PHOTOS


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (
            lambda flat: [flat, flat],
            "got a list of 2. For all samples of several datasets pass fastpipe.concat(*data), for a part of each in",
        ),
        (
            lambda flat: [flat / "1.jpg", flat / "2.jpg"],
            "1.jpg'. Write them into a CSV file with the columns path and label, a row for each image, and pack it",
        ),
        (
            lambda flat: [("cat/1.JPG", 0)],
            "'cat/1.JPG'. Write them into a CSV file with the columns path and label",
        ),
        (lambda flat: {"photos": 2}, "got a dict. For a mixture pass fastpipe.mix({'photos': 2})"),
        (
            lambda flat: fastpipe.open(flat).index,
            "It is open already: pass fastpipe.loader the dataset itself",
        ),
        (
            lambda flat: Subset(fastpipe.open(flat), [0]),
            "got a torch Subset. Select the same samples from the fastpipe dataset: "
            "subset.dataset.select(subset.indices)",
        ),
        (
            lambda flat: ConcatDataset([fastpipe.open(flat), fastpipe.open(flat)]),
            "got a torch ConcatDataset. Pass fastpipe.concat(*dataset.datasets)",
        ),
        (
            lambda flat: ConcatDataset([fastpipe.open(flat), TensorDataset(torch.zeros(3))]),
            "got a ConcatDataset, a Dataset written in Python",
        ),
        (
            lambda flat: Photos(torch.zeros(3)),
            f"fastpipe pack {FOLDER_OF_PHOTOS} DST. Then pass DST. Otherwise write its images "
            "once with fastpipe.Writer",
        ),
        (lambda flat: TensorDataset(torch.zeros(3)), "fastpipe pack SRC DST. Then pass DST"),
        (
            lambda flat: DataLoader(fastpipe.open(flat)),
            "got a DataLoader. That is already a loader",
        ),
        (lambda flat: None, "expected a path, a URL or a dataset of fastpipe.open, got None"),
    ],
)
def test_data_that_is_no_folder(flat: Path, wrong: Callable[[Path], Any], words: str) -> None:
    for take in (fastpipe.loader, fastpipe.open):
        with pytest.raises(
            ConfigError,
            match=f"^data: expected a path, .*{re.escape(words.split(', got ')[-1])}",
        ):
            take(wrong(flat))


def test_a_dataset_is_opened_once(flat: Path) -> None:
    data = fastpipe.open(flat)
    with pytest.raises(
        ConfigError,
        match=r"37 samples.*It is open already: pass fastpipe\.loader the dataset itself",
    ):
        fastpipe.open(data)  # type: ignore[arg-type]
    with fastpipe.loader(data, 5, size=12, num_workers=1) as loader:
        assert len(loader) == 7


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/no-data/train/*.tar", "/no-data/train/*.tar matches no tar file"),
        (
            "/no-data/train-{000..146}.tar",
            "/no-data/train-000.tar does not exist, and /no-data/train-{0",
        ),
        (
            "~/fastpipe-is-not-there",
            f"Python does not expand ~: pass {Path.home()}/fastpipe-is-not-there",
        ),
    ],
)
def test_paths_that_python_does_not_expand(path: str, words: str) -> None:
    with pytest.raises(DatasetError, match=re.escape(words)):
        fastpipe.loader(path)


def test_a_tar_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "a.tar").touch()
    with pytest.raises(DatasetError, match=re.escape(str(tmp_path / "a.tar"))):
        fastpipe.loader(tmp_path / "a.tar")


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ("randaugment", "write augment=fastpipe.Augment.randaugment()"),
        ("TrivialAugmentWide", "write augment=fastpipe.Augment.trivial_augment()"),
        (fastpipe.Augment.simclr, "write augment=fastpipe.Augment.simclr()"),
        (fastpipe.Augment, "create an object: Augment(...)"),
        ("strong", "other presets: simclr, randaugment, trivial_augment"),
        (lambda images: images, "write a module whose forward() calls it"),
        ([lambda images: images], "write a module whose forward() calls it"),
    ],
)
def test_augmentations_in_other_words(flat: Path, wrong: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(words)):
        fastpipe.loader(flat, augment=wrong)


def test_presets_are_those_of_augment() -> None:
    from fastpipe.device.augment.options import PRESETS
    from fastpipe.tools.cli import preview

    assert all(isinstance(getattr(fastpipe.Augment, name)(), fastpipe.Augment) for name in PRESETS)
    assert set(PRESETS) - {"imagenet"} == set(preview._PRESETS) - {"none"}


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (fastpipe.Resize, "Create an object: fastpipe.Resize()"),
        (224, "got 224. That is a size: write size=224, and leave crop= out"),
        ((192, 224), "That is a size: write size=(192, 224), and leave crop= out"),
        ("random_resized_crop", "Write crop=fastpipe.RandomResizedCrop()"),
        ("center", "Write crop=fastpipe.CenterCrop()"),
        (lambda image: image, "crop= says only which part of an image becomes the row"),
    ],
)
def test_crops_in_other_words(flat: Path, wrong: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(words)):
        fastpipe.loader(flat, crop=wrong)


def test_torchvisions_transforms(flat: Path, torchvision: ModuleType) -> None:
    from torchvision import transforms
    from torchvision.transforms import v2

    for module in (transforms, v2):
        pairs = {
            module.RandomResizedCrop(160, scale=(0.2, 1.0), ratio=(0.5, 2.0)): (
                "Write size=(160, 160), crop=fastpipe.RandomResizedCrop(scale=(0.2, 1.0), ratio=(0.5, 2.0))"
            ),
            module.CenterCrop(160): "Write size=(160, 160), crop=fastpipe.CenterCrop()",
            transforms.Resize(
                256
            ): "Of the shorter side: write crop=fastpipe.CenterCrop(resize=256)",
            transforms.Resize((96, 128)): "Write size=(96, 128), crop=fastpipe.Resize()",
            transforms.RandomCrop(32, padding=4, padding_mode="reflect"): (
                "Write size=(32, 32), crop=fastpipe.RandomCrop(padding=4, padding_mode='reflect')"
            ),
            module.RandomCrop(
                32, pad_if_needed=True
            ): "crop=fastpipe.RandomCrop(pad_if_needed=True)",
            module.TenCrop(96): "Write size=(96, 96), crop=fastpipe.TenCrop()",
            module.RandomResizedCrop(96, interpolation=module.InterpolationMode.BICUBIC): (
                "ratio=(0.75, 1.3333333333333333), interpolation='bicubic')"
            ),
            module.CenterCrop: "Write crop=fastpipe.CenterCrop()",
            module.Compose(
                [module.CenterCrop(160)]
            ): "crop= says only which part of an image becomes the row",
        }
        for crop, words in pairs.items():
            with pytest.raises(ConfigError, match=re.escape(words)):
                fastpipe.loader(flat, crop=crop)  # type: ignore[arg-type]


def test_a_pipeline_with_to_tensor_is_answered_with_a_line_that_works(flat: Path) -> None:
    """ToTensor takes no tensor, so Pillow's images are proposed for it."""
    transforms = pytest.importorskip("torchvision.transforms")
    inner = transforms.Compose([transforms.Resize((8, 8)), transforms.ToTensor()])
    pipeline = transforms.Compose([transforms.Normalize(0.5, 0.5)])
    pipeline.transforms.insert(0, inner)
    line = 'DataLoader(fastpipe.open(FOLDER).with_transform(transform, images="pil"))'
    for option in ("augment", "crop", "transform"):
        with pytest.raises(ConfigError, match=re.escape(line)):
            fastpipe.loader(flat, **{option: pipeline})  # type: ignore[arg-type]
    data = fastpipe.open(flat).with_transform(pipeline, images="pil")
    assert data[0][0].shape == (3, 8, 8)
    # One that takes tensors gets them.
    with pytest.raises(ConfigError, match=r"with_transform\(transform\)\)$"):
        fastpipe.loader(flat, transform=transforms.Compose([transforms.Resize(8)]))  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda: fastpipe.Resize(256),
            "Resize: expected interpolation=, antialias= and mask_fill= by name, got 256",
        ),
        (lambda: fastpipe.Resize(256), "crop=fastpipe.CenterCrop(resize=256)"),
        (
            lambda: fastpipe.Resize(size=256),
            "fastpipe.loader(..., size=256, crop=fastpipe.Resize())",
        ),
        (lambda: fastpipe.RandomResizedCrop(size=224), "fastpipe.loader(..., size=224, crop="),
        (
            lambda: fastpipe.CenterCrop(224),
            "CenterCrop: expected resize=, interpolation=, antialias= and mask_fill= by name, got 224",
        ),
        (
            lambda: fastpipe.RandomResizedCrop(fill=0),
            "ratio=, interpolation=, antialias= and mask_fill= by name, got fill=",
        ),
        (
            lambda: fastpipe.Resize(interpolation=2),
            "expected 'bilinear', 'bicubic' or 'nearest', got 2",
        ),
        (lambda: fastpipe.Resize(interpolation=Resampling.LANCZOS), "or 'nearest', got 'lanczos'"),
        (lambda: fastpipe.Resize(antialias=None), "antialias: expected True or False, got None"),
        (
            lambda: fastpipe.Resize(interpolation="nearest", antialias=False),
            "antialias: it has no effect with interpolation='nearest'",
        ),
    ],
)
def test_arguments_of_torchvisions_crops(make: Callable[[], object], words: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(words)):
        make()


def test_the_repr_of_a_loader(flat: Path) -> None:
    loader = fastpipe.loader(flat, 5, size=(12, 16), num_workers=1, drop_last=False)
    assert (
        repr(loader) == f"<fastpipe loader {str(flat)!r}: 8 batches of 5, 12 x 16 pixels, on cpu>"
    )
    second = fastpipe.loader(flat, 5, size=12, num_workers=1, rank=1, world_size=3)
    assert repr(second).endswith("2 batches of 5, 12 x 12 pixels, on cpu, rank 1 of 3>")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("cuda", r"pass device= to fastpipe.loader\(...\), and batches come on that device"),
        ("labels", "all labels are loader.dataset.targets"),
        ("select", r"fastpipe.loader\(fastpipe.open\(DATA\).select\(...\)\)"),
        ("batchsize", "a loader has no attribute 'batchsize'; did you mean 'batch_size'"),
        ("_batchsize", "a loader has no attribute '_batchsize'$"),
        ("qqq", "a loader has no attribute 'qqq'$"),
    ],
)
def test_attributes_that_a_loader_does_not_have(
    loader: fastpipe.Loader, name: str, words: str
) -> None:
    with pytest.raises(AttributeError, match=words):
        getattr(loader, name)
    assert getattr(loader, name, None) is None


def test_arrays_are_named_by_their_shape(flat: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"got an array of shape \(4, 8, 8, 3\)\. Write its images"
    ):
        fastpipe.loader(np.zeros((4, 8, 8, 3), np.uint8))  # type: ignore[arg-type]


def test_columns_and_fields_that_are_not_there(flat: Path) -> None:
    data = fastpipe.open(flat)
    with pytest.raises(ConfigError, match="the source path of a sample is 'key'"):
        data["path"]
    for take in (
        lambda: data["caption"],
        lambda: fastpipe.loader(data, 5, fields=["image", "caption"]),
    ):
        with pytest.raises(ConfigError, match=r"come in when you pack \(--field NAME=COLUMN\)"):
            take()
