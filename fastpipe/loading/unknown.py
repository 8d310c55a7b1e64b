"""Arguments that fastpipe.loader() does not have -> an error that says what to write instead."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable

from fastpipe.errors import ConfigError

# The names that other loaders have for what something else does here -> what to write.
_SAME = {
    "collate_fn": "the loader collates images in C++, directly in the batch; combine tensors after the loader",
    "worker_init_fn": "workers are C++ threads that run no Python; all randomness comes from seed=",
    "persistent_workers": "the threads always live as long as the loader; leave it out",
    "pin_memory pin_memory_device": 'device="cuda" already uses pinned memory; leave it out',
    "sampler batch_sampler": "the order comes from seed=, shuffle= and set_epoch()",
    "generator": "pass seed=, a whole number",
    "multiprocessing_context": "there are no worker processes; leave it out",
    "in_order": "batches always come in order; leave it out",
    "timeout": "pass stall_timeout=, the seconds without a batch after which the log says why",
    "epoch": "call loader.set_epoch(), or load_state_dict() to resume",
    "num_replicas": "pass world_size=; with torch.distributed both it and rank= are known",
    "dataset root path folder urls": "the first argument is the folder that `fastpipe pack` wrote",
    "transform transforms": (
        "pass crop=, hflip= and size=, and for everything else augment=, which gets the batch of tensors. A transform "
        "of single images works with torch's DataLoader(fastpipe.Dataset(FOLDER, transform))"
    ),
    "target_transform": "change the labels after the loader: it gives them as an int64 tensor",
    "subset indices": "pass samples=, the numbers of samples or a mask",
    "class_weights sample_weights": ("pass weights=, for classes or samples; fastpipe.balanced(index) makes them"),
    "num_samples": "pass epoch_size=",
    "num_repeats": "pass repeats=",
    "filter": "pass classes=, or samples= with a mask",
    "mean std dtype normalize": "pass augment=fastpipe.Augment.imagenet(), which takes mean=, std= and dtype=",
    "image_size img_size resolution": "pass size=",
    "threads": "pass num_workers=; workers are C++ threads",
    "boxes min_box_size min_box_area": "it is an option of a field: "
    'fields=["image", fastpipe.Boxes("boxes", form="pad", min_size=1.0, min_area=0.0)]',
    "flip_pairs": 'it is an option of a field: fields=["image", fastpipe.Points("joints", flip_pairs=[(0, 1)])]',
    "mask_fill": "pass it to the crop: crop=fastpipe.RandomResizedCrop(mask_fill=255)",
    "mirror horizontal_flip": "pass hflip=",
}
_INSTEAD = {name: words for names, words in _SAME.items() for name in names.split()}


def refuse(names: Iterable[str], known: Collection[str]) -> None:
    """For the first name: ConfigError where other loaders have this argument, else TypeError, as Python's own."""
    for name in names:
        if name in _INSTEAD:
            raise ConfigError(f"fastpipe.loader() has no argument {name}: {_INSTEAD[name]}")
        near = difflib.get_close_matches(name.lower(), known, n=1)
        hint = f"did you mean {near[0]}=?" if near else f"it has {', '.join(known)}"
        raise TypeError(f"fastpipe.loader() got an unexpected argument {name!r}; {hint}")
