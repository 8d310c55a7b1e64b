"""Arguments that fastpipe.loader() does not have -> an error that says what to write instead."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable

from fastpipe.errors import ConfigError

_ORDER = "the order comes from seed=, shuffle= and set_epoch()"
_NORMALISE = "pass augment=fastpipe.Augment.imagenet(), which takes mean=, std= and dtype="
_PART = "pass samples=, the numbers of samples or a mask"
_WEIGHTS = "pass weights=, for classes or samples; fastpipe.balanced(index) makes them"
_TRANSFORM = (
    "pass crop=, hflip= and size=, and for everything else augment=, which gets the batch of tensors. A transform of "
    "single images works with torch's DataLoader(fastpipe.Dataset(FOLDER, transform))"
)
_DATASET = "the first argument is the folder that `fastpipe pack` wrote"

_INSTEAD = {
    "collate_fn": "the loader collates images in C++, directly in the batch; combine tensors after the loader",
    "worker_init_fn": "workers are C++ threads that run no Python; all randomness comes from seed=",
    "persistent_workers": "the threads always live as long as the loader; leave it out",
    "pin_memory": 'device="cuda" already uses pinned memory; leave it out',
    "pin_memory_device": "pass device=; leave it out",
    "sampler": _ORDER,
    "batch_sampler": _ORDER,
    "generator": "pass seed=, a whole number",
    "multiprocessing_context": "there are no worker processes; leave it out",
    "in_order": "batches always come in order; leave it out",
    "timeout": "pass stall_timeout=, the seconds without a batch after which the log says why",
    "epoch": "call loader.set_epoch(), or load_state_dict() to resume",
    "num_replicas": "pass world_size=; with torch.distributed both it and rank= are known",
    "dataset": _DATASET,
    "root": _DATASET,
    "path": _DATASET,
    "folder": _DATASET,
    "urls": _DATASET,
    "transform": _TRANSFORM,
    "transforms": _TRANSFORM,
    "target_transform": "change the labels after the loader: it gives them as an int64 tensor",
    "subset": _PART,
    "indices": _PART,
    "class_weights": _WEIGHTS,
    "sample_weights": _WEIGHTS,
    "num_samples": "pass epoch_size=",
    "num_repeats": "pass repeats=",
    "filter": "pass classes=, or samples= with a mask",
    "mean": _NORMALISE,
    "std": _NORMALISE,
    "dtype": _NORMALISE,
    "normalize": _NORMALISE,
    "image_size": "pass size=",
    "img_size": "pass size=",
    "resolution": "pass size=",
    "threads": "pass num_workers=; workers are C++ threads",
    "mask_fill": "pass it to the crop: crop=fastpipe.RandomResizedCrop(mask_fill=255)",
    "mirror": "pass hflip=",
    "horizontal_flip": "pass hflip=",
}


def refuse(names: Iterable[str], known: Collection[str]) -> None:
    """Raises for the first name.

    Raises:
        ConfigError: other loaders have this argument, and here something else does its work.
        TypeError: nobody has it; as Python says it.
    """
    for name in names:
        if name in _INSTEAD:
            raise ConfigError(f"fastpipe.loader() has no argument {name}: {_INSTEAD[name]}")
        near = difflib.get_close_matches(name.lower(), known, n=1)
        hint = f"did you mean {near[0]}=?" if near else f"it has {', '.join(known)}"
        raise TypeError(f"fastpipe.loader() got an unexpected argument {name!r}; {hint}")
