"""Methods of other libraries' datasets -> what to write with a dataset of fastpipe."""

from __future__ import annotations

from collections.abc import Iterable

from fastpipe.arguments import by_single_name
from fastpipe.errors import did_you_mean_attribute

_INSTEAD_BY_NAMES = {
    "map": "for a new column use data.with_column(name, values); for images pass crop=, hflip= and "
    "augment= to fastpipe.loader; for single images use data.with_transform(function)",
    "filter": "use data.select(lambda columns: columns['width'] > 64)",
    "train_test_split random_split": "use train, val = data.fold(0, of=5)",
    "shuffle": "fastpipe.loader shuffles in each epoch; leave it out",
    "batch": "pass batch_size= to fastpipe.loader(data, batch_size)",
    "set_transform": "use data.with_transform(function)",
    "set_format with_format": "samples and batches are torch tensors; leave it out",
    "features column_names": "use data.columns, data.fields and data.classes",
    "add_column": "use data.with_column(name, values)",
    "rename_column remove_columns select_columns": "choose the entries of a batch with "
    "fields= of fastpipe.loader",
    "concatenate": "use fastpipe.concat(data, other)",
    "repeat": "iterate again: each loop over a loader is an epoch",
    "num_rows": "use len(data)",
    "imgs samples": "use data.targets for the labels and data['key'] for the source paths",
    "labels label": "use data.targets for the labels",
}
_INSTEAD = by_single_name(_INSTEAD_BY_NAMES)

# Attributes that other libraries' datasets have, and that a program may set there.
_INSTEAD_OF_SETTING_BY_NAMES = {
    "targets labels label samples imgs": "data.with_labels(labels) is one with other labels",
    "classes class_to_idx class_names": "data.with_classes(classes) is one whose labels are "
    "positions in `classes`, and data.with_labels(labels, classes=classes) one with other labels",
    "target_transform": "data.with_labels(labels) is one with other labels",
    "transforms": "data.with_transform(transform) is one with a transform",
    "fields": "data.with_fields(fields) is one whose samples are dicts of these fields",
}
_INSTEAD_OF_SETTING = by_single_name(_INSTEAD_OF_SETTING_BY_NAMES)


def describe_unknown(name: str, known: Iterable[str]) -> str:
    """The message about an attribute that a dataset does not have."""
    text = f"a fastpipe dataset has no {name!r}"
    if name in _INSTEAD:
        return f"{text}: {_INSTEAD[name]}"
    return text + did_you_mean_attribute(name, known)


def describe_setting(name: str) -> str:
    """The message about an attribute that a program sets."""
    default = f"data.with_column({name!r}, values) is one with a value for each sample"
    return f"a dataset does not change: {_INSTEAD_OF_SETTING.get(name, default)}"
