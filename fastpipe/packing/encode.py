"""A model over a dataset, once -> a dataset of what it gives: latents, embeddings, a teacher's outputs."""

from __future__ import annotations

import contextlib
import inspect
import logging
import os
from collections.abc import Callable, Iterator
from typing import Any

import torch

from fastpipe.arguments import by_single_name, refuse
from fastpipe.dataset.dataset import Dataset
from fastpipe.dataset.fields import SAMPLE_FIELDS
from fastpipe.dataset.format.fields import Field
from fastpipe.dataset.format.layout import NO_LABEL
from fastpipe.dataset.opening import as_dataset
from fastpipe.errors import ConfigError, DatasetError, PackError, whole
from fastpipe.loading.factory import loader as make_loader
from fastpipe.packing.writer import Writer

_LOG = logging.getLogger("fastpipe.encode")
# Kinds of fields whose values do not depend on the image. They go to the new dataset, too.
_KEPT_KINDS = ("int", "floats", "classes", "text", "json", "bytes", "array")
# Options of the loader that encode() itself decides on.
_INSTEAD = by_single_name(
    {
        "train shuffle drop_last sampler epoch_size": "it encodes each sample once, in order",
        "fields views": "it gives the model the images, one view of each; the fields that do not "
        "lie on the image are kept",
        "on_error": "each sample of the dataset has an output; leave damaged ones out with "
        "data.select(...), or repair them: fastpipe verify DATA --repair SRC",
        "prepare": "it changes entries of batches, and the model gets the images alone",
    }
)


def encode(
    data: str | os.PathLike[str] | Dataset,
    model: Callable[[Any], torch.Tensor],
    out: str | os.PathLike[str],
    *,
    field: str = "latent",
    batch_size: int = 64,
    rank: int = 0,
    world_size: int = 1,
    **options: Any,
) -> Dataset:
    """Runs a model over all images of a dataset, and writes a dataset of its outputs.

    The new dataset has no images. Each sample has the output as a field of kind "array", and the
    source path, the label and the fields of the old sample that do not lie on the image: numbers,
    classes, texts, JSON and arrays. Lists of images, and columns of `with_column`, are left out.

    If the program is interrupted, call it again with the same arguments: samples in finished shards
    are not encoded again, and a dataset that is complete is returned as it is. Nothing compares the
    models and options of the two calls.

    Args:
        data: as for `fastpipe.loader`.
        model: called with the images of a batch, as a loader gives them; returns a tensor (N, ...)
            of their outputs, of one dtype for all batches. It runs without gradients; a
            torch.nn.Module is in eval mode meanwhile.
        out: the new dataset, a new or empty folder. With several ranks each writes a part of its own
            in it: OUT/0-of-8, OUT/1-of-8, ...
        field: name of the field.
        batch_size: images in a batch.
        rank, world_size: number of this process, and number of processes that share the work. Each
            encodes one stretch of the samples.
        **options: options of `fastpipe.loader`, such as size=, crop=, augment=, device=,
            num_workers=; crops are those of evaluation unless crop= says something else.

    Returns:
        The new dataset; with several ranks the part of this one. Join the parts when all have ended:
        fastpipe.concat("OUT/0-of-2", "OUT/1-of-2").

    Raises:
        ConfigError: an argument is wrong, or the model returns something else.
        PackError: the folder holds another dataset, or writing fails.

    Example:
        >>> average = lambda images: images.float().mean(dim=(2, 3))
        >>> colours = fastpipe.encode("data/train", average, "data/colours", field="colour", size=32)
        >>> batch = next(iter(fastpipe.loader(colours, batch_size=8, fields=["colour", "label"])))
        >>> batch["colour"].shape
        torch.Size([8, 3])
    """
    of_loader = inspect.signature(make_loader).parameters.keys() - _INSTEAD.keys()
    known = ["data", "model", "out", "field", *sorted(of_loader - {"data"})]
    unknown = {}
    for name, value in options.items():
        if name not in of_loader:
            unknown[name] = value
    refuse("fastpipe.encode", unknown, known, _INSTEAD)
    if not callable(model):
        raise ConfigError(f"model: expected a function or a module, got {model!r}")
    batch_size = whole("batch_size", batch_size, least=1, most=2**20)
    world_size = whole("world_size", world_size, least=1, most=2**20)
    rank = whole("rank", rank, least=0, most=world_size - 1)
    dataset = as_dataset(data)
    if field in dataset.fields or field in SAMPLE_FIELDS:
        raise ConfigError(
            f"field: {dataset.path} has {field!r} already; pass another name for what the model gives"
        )
    place = os.fspath(out)
    if world_size > 1:
        place = f"{place}/{rank}-of-{world_size}"
        if world_size > len(dataset):
            raise ConfigError(
                f"world_size: {dataset.path} has {len(dataset)} samples for {world_size} ranks; "
                "pass at most as many ranks"
            )
        first = rank * len(dataset) // world_size
        end = (rank + 1) * len(dataset) // world_size
        dataset = dataset.select(range(first, end))

    kept = {
        name: kept_field.kind
        for name, kept_field in dataset.fields.items()
        if kept_field.kind in _KEPT_KINDS
    }
    kinds = {**kept, field: "array"}
    complete = _complete(place, dataset, field)
    if complete is not None:
        _LOG.warning(
            "%s is complete, so nothing was encoded. If the model or an option has changed, remove "
            "the folder or choose another one",
            place,
        )
        return complete
    classes = dataset.classes or None
    with (
        Writer(place, kinds, classes=classes, on_error="fail") as writer,
        _in_eval_mode(model),
    ):
        # Of an interrupted run, the Writer only compares keys and labels.
        for key, label in _names_of(dataset, writer.finished):
            writer.add(key=key, label=label)
        rest = dataset.select(range(writer.finished, len(dataset)))
        if len(rest):
            for sample in _encoded(rest, model, field, kept, batch_size, options):
                writer.add(**sample)
    return as_dataset(place)


def _complete(place: str, dataset: Dataset, field: str) -> Dataset | None:
    """The new dataset if an earlier call has finished it; None if there is none yet.

    Raises:
        PackError: another dataset is there.
    """
    try:
        found = as_dataset(place)
    except DatasetError:
        return None
    # The whole list of keys would have to be read from the shards.
    ends = [0, len(dataset) - 1]
    is_same = len(found) == len(dataset) and field in found.fields
    if is_same and list(found["key"][ends]) == list(dataset["key"][ends]):
        return found
    raise PackError(
        f"{place} holds another dataset ({len(found):,} samples; expected {len(dataset):,} with a "
        f"field {field!r}). Choose another folder, or remove it"
    )


@contextlib.contextmanager
def _in_eval_mode(model: object) -> Iterator[None]:
    """In the `with` block, a module is in eval mode: no dropout, no running statistics."""
    if not isinstance(model, torch.nn.Module):
        yield
        return
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)


def _names_of(dataset: Dataset, count: int) -> Iterator[tuple[str, int | None]]:
    """Key and label of the first samples."""
    keys = dataset["key"][:count]
    labels = dataset["label"][:count]
    for key, label in zip(keys, labels.tolist(), strict=True):
        yield str(key), _as_given(label)


def _as_given(label: int) -> int | None:
    """A label as the Writer takes it."""
    return None if label == NO_LABEL else label


def _encoded(
    dataset: Dataset,
    model: Callable[[Any], torch.Tensor],
    field: str,
    kept: dict[str, str],
    batch_size: int,
    options: dict[str, Any],
) -> Iterator[dict[str, Any]]:
    """The arguments of Writer.add for each sample, in order."""
    loader = make_loader(
        dataset,
        min(batch_size, len(dataset)),
        train=False,
        fields=["image", "label", "key", *kept],
        rank=0,
        world_size=1,
        **options,
    )
    with loader, torch.no_grad():
        for batch in loader:
            count = len(batch["key"])
            outputs = _call(model, batch["image"])
            _check_outputs(outputs, count)
            rows = outputs.detach().cpu()
            labels = batch["label"].tolist()
            for place in range(count):
                sample: dict[str, Any] = {}
                for name in kept:
                    value = batch[name][place]
                    sample[name] = _value(value, dataset.fields[name])
                sample[field] = rows[place]
                sample["key"] = batch["key"][place]
                sample["label"] = _as_given(labels[place])
                yield sample


def _call(model: Callable[[Any], torch.Tensor], images: Any) -> torch.Tensor:
    """The outputs of a model. An error in it gets a note about the images, if these are uint8."""
    try:
        return model(images)
    except Exception as problem:
        if isinstance(images, torch.Tensor) and images.dtype == torch.uint8:
            problem.add_note(
                "fastpipe.encode gave the model images of uint8, 0 to 255. For normalised float32 "
                "pass augment=[]"
            )
        raise


def _check_outputs(outputs: object, count: int) -> None:
    """Raises ConfigError if a model has not returned a row for each of so many images."""
    expected = f"model: expected a tensor with {count} rows, one for each image, got"
    if not isinstance(outputs, torch.Tensor):
        raise ConfigError(
            f"{expected} {type(outputs).__name__}; return one tensor, such as output[0], "
            "output.last_hidden_state, or torch.from_numpy(output)"
        )
    if outputs.ndim == 0 or len(outputs) != count:
        raise ConfigError(f"{expected} the shape {tuple(outputs.shape)}")


def _value(value: Any, field: Field) -> Any:
    """A value of a batch as the Writer takes it."""
    if field.kind == "classes":
        # By name: parts of several ranks may have other classes, and are joined by their names.
        numbers = torch.nonzero(value).flatten().tolist()
        return [
            field.names[number] if field.names else str(number) for number in numbers
        ]
    if field.kind == "int":
        return int(value)
    if field.kind == "floats":
        return value.tolist()
    return value.cpu() if isinstance(value, torch.Tensor) else value
