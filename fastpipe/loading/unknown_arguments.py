"""Names of arguments in other loaders, or of attributes -> what to write in fastpipe.loader()."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence

from fastpipe.arguments import Advice, advise_single_transform, by_single_name
from fastpipe.errors import did_you_mean, did_you_mean_attribute

# Some arguments of other loaders are another argument here, or a method of the dataset.
_INSTEAD_BY_NAMES = {
    "collate_fn": "the loader collates images in C++, directly in the batch. fields= says what a "
    "batch has, and prepare=, a function of the batch's other fields, tokenizes or combines them",
    "worker_init_fn": "workers are C++ threads that run no Python; all randomness comes from seed=",
    "persistent_workers multiprocessing_context": "there are no worker processes, and threads "
    "live as long as the loader; leave it out",
    "pin_memory pin_memory_device": 'device="cuda" already uses pinned memory; leave it out',
    "in_order": "batches always come in order; leave it out",
    "batch_sampler": "pass the sampler that it makes batches of as sampler=, and batch_size=",
    "order": "pass shuffle=True, or False for the order of the dataset; sampler= for any other one",
    "generator": "pass seed=, a whole number",
    "timeout": "pass stall_timeout=, the seconds without a batch after which the log says why",
    "epoch": "call loader.set_epoch(), or load_state_dict() to resume",
    "num_replicas": "pass world_size=; with torch.distributed both it and rank= are known",
    "dataset root path folder urls": "pass a dataset of fastpipe.open, or the folder, as the "
    "first argument",
    "target_transform": "pass fastpipe.open(DATA).with_labels(labels) as the data, or change the "
    "labels of batches",
    "samples subset indices filter": "pass fastpipe.open(DATA).select(...) as the data, with "
    "numbers of samples, a mask, keys or a function of columns",
    "classes": "pass fastpipe.open(DATA).only(classes) as the data; keep_labels=True leaves "
    "labels as they are",
    "labels": 'it is an option of the data: fastpipe.mix({...}, labels="union"), '
    "fastpipe.open(DATA).only(classes, keep_labels=True), or .with_labels(labels) for other labels",
    "limit": "pass fastpipe.open(DATA).take(0.1) as the data",
    "kfold": "pass a part of the data: train, val = fastpipe.open(DATA).fold(0, of=5)",
    "weights class_weights sample_weights": "pass sampler=fastpipe.Weighted(weights), with "
    "weights of classes or samples, as of fastpipe.balanced(data). For weights of datasets pass "
    "fastpipe.mix({data: weight}) as the data",
    "replacement": "pass sampler=fastpipe.Weighted(weights, replacement=False)",
    "num_samples": "pass epoch_size=",
    "repeats num_repeats": "pass sampler=fastpipe.Repeated(3); with other samplers Repeated(3, "
    "sampler)",
    "canonical_nodes": "pass the number of nodes as partition=, for example partition=8",
    "max_pixels background cache_dir cache_limit storage_options read_timeout version split": "it "
    "is an option of opening: pass fastpipe.open(DATA, {name}=...) as the data",
    "mean std normalize": "pass augment=fastpipe.Augment.imagenet(), which takes mean=, std= and "
    "dtype=",
    "mode color_mode as_gray grayscale": 'pass channels="gray", "rgb", "rgba" or "own"',
    "image_size img_size resolution": "pass size=",
    "threads": "pass num_workers=; workers are C++ threads",
    "boxes min_box_size min_box_area": 'it is an option of a field: fields=["image", '
    'fastpipe.Boxes("boxes", form="pad", min_size=1.0, min_area=0.0)]',
    "flip_pairs": 'it is an option of a field: fields=["image", fastpipe.Points("joints", '
    "flip_pairs=[(0, 1)])]",
    "mask_fill": "pass it to the crop: crop=fastpipe.RandomResizedCrop(mask_fill=255)",
    "mirror horizontal_flip": "pass hflip=",
    "vflip vertical_flip": "pass augment=[kornia.augmentation.RandomVerticalFlip()], or the module of "
    "this name from torchvision.transforms.v2",
    "epochs num_epochs max_epochs": "iterate over the loader once for each epoch",
}


def _instead_of_transform(transform: object) -> str:
    return (
        "pass crop=, hflip= and size=, and as augment= what is for the batch of tensors. For "
        f"single images use {advise_single_transform(transform)}"
    )


# The same by single name.
INSTEAD: dict[str, Advice] = {
    **by_single_name(_INSTEAD_BY_NAMES),
    "transform": _instead_of_transform,
    "transforms": _instead_of_transform,
}

# Attributes that a program may set -> the method that does it.
_INSTEAD_OF_SETTING = {
    "size": "call loader.set_size(size)",
    "epoch": "call loader.set_epoch(epoch)",
    "weights": "call loader.set_weights(weights)",
    "dataset": "pass the dataset to fastpipe.loader(...)",
    "sampler": "pass sampler= to fastpipe.loader(...); loader.set_weights(weights) changes the "
    "weights of fastpipe.Weighted",
}

# Attributes that a program may read, by one name or by several -> what to write.
_INSTEAD_OF_READING = by_single_name(
    {
        "to cuda cpu": "pass device= to fastpipe.loader(...), and batches come on that device",
        "labels targets": "all labels are loader.dataset.targets; batches have those of their samples",
        "reset shuffle": "each loop over the loader begins the next epoch, in a new order",
        "get_batch next_batch get_next": "write batches = iter(loader), and next(batches)",
        "map filter select take fold": "it is a method of the data: "
        "fastpipe.loader(fastpipe.open(DATA).{name}(...))",
        "normalize mean std": "pass augment=fastpipe.Augment.imagenet() to fastpipe.loader(...)",
        "device": "batches have it: images.device",
        # prepare_data_loader of Accelerate and of Ray reads these to make a DataLoader anew. There
        # are none, so nothing makes a DataLoader that would be wrong.
        "drop_last worker_init_fn": "a loader is not a DataLoader, and none can be made of it: it "
        "shares epochs among the ranks and moves batches to device= itself. Iterate over it, without "
        "prepare_data_loader; accelerator.prepare leaves it as it is",
    }
)


def describe_setting(name: str, options: Collection[str]) -> str:
    """The message about an attribute of a loader that a program sets.

    `options`: the names of fastpipe.loader's arguments.
    """
    text = f"loader.{name} = ... has no effect on a loader: "
    if name in _INSTEAD_OF_SETTING:
        return text + _INSTEAD_OF_SETTING[name]
    if name in options:
        return f"{text}pass {name}= to fastpipe.loader(...)"
    advice = INSTEAD.get(name)
    if isinstance(advice, str):
        return f"{text}fastpipe.loader(...) has no {name}=; {advice}"
    return (
        f"{text}its options are the arguments of fastpipe.loader(...)"
        f"{did_you_mean(name, options)}"
    )


def describe_constructor(args: Sequence[object], options: Mapping[str, object]) -> str:
    """The message about a call of fastpipe.Loader(...) in place of fastpipe.loader(...)."""
    shown = "data"
    if args and isinstance(args[0], (str, os.PathLike)):
        shown = repr(os.fspath(args[0]))
    batch_size = options.get("batch_size", args[1] if len(args) > 1 else None)
    arguments = f"{shown}, batch_size=64"
    if isinstance(batch_size, int):
        arguments = f"{shown}, batch_size={batch_size}"
    return (
        f"fastpipe.Loader is the class of loaders, for type hints: make a loader with "
        f"fastpipe.loader({arguments})"
    )


def describe_reading(name: str, known: Iterable[str]) -> str:
    """The message about an attribute that a loader does not have; `known` are those it has."""
    text = f"a loader has no attribute {name!r}"
    if name in _INSTEAD_OF_READING:
        return f"{text}: {_INSTEAD_OF_READING[name]}"
    return text + did_you_mean_attribute(name, known)
