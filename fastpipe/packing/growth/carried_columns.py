"""The columns that `save_columns` wrote for a version -> those of the next version.

Samples that stay keep their rows. Samples that are added have none, and no value is invented for
them. Only corrected labels can be carried over then: if they have the classes of the dataset, the
added samples keep the labels that they were packed with.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fastpipe.arrays import Bools
from fastpipe.dataset.format.packed_index import PackedIndex
from fastpipe.errors import format_count
from fastpipe.packing.shard.entry import Entry
from fastpipe.pages import name_page
from fastpipe.sources.listing import Assumption
from fastpipe.store.saved_columns import (
    LABEL,
    SavedColumns,
    read_saved,
    write_column,
    write_list,
)
from fastpipe.store.store import Store

NO_SAVED_COLUMNS = SavedColumns({}, None, {})


def saved_columns_of(index: PackedIndex) -> SavedColumns:
    """The saved columns of a version."""
    return read_saved(index) or NO_SAVED_COLUMNS


def is_carried(name: str, saved: SavedColumns, index: PackedIndex) -> bool:
    """Whether a saved column is carried over although samples are added."""
    return name == LABEL and saved.classes == list(index.classes)


def carry_over(
    saved: SavedColumns,
    index: PackedIndex,
    is_kept: Bools,
    entries: Sequence[Entry],
    store: Store,
    info: dict[str, Any],
) -> None:
    """Writes the saved columns of the next version, before its dataset.json appears.

    Args:
        saved: the columns of the version that grows or shrinks.
        index: of that version.
        is_kept: (n,) which of its samples stay.
        entries: of the new shards.
        store: the destination.
        info: the content of the next version's dataset.json.
    """
    if saved == NO_SAVED_COLUMNS:
        return
    left_behind = dict(saved.left_behind)
    columns = {}
    for name in saved.files:
        if entries and not is_carried(name, saved, index):
            left_behind[name] = index.version
            continue
        rows = saved.open(name, len(index))[is_kept]
        if entries:
            added_labels = [entry.records(store)["label"] for entry in entries]
            rows = np.concatenate([rows, *added_labels]).astype(rows.dtype)
        columns[name] = write_column(store, name, rows)
    classes = saved.classes if LABEL in columns else None
    if classes is not None and entries:
        # Classes of added samples come behind those of the dataset.
        classes = info["classes"]
    write_list(store, info["fingerprint"], columns, classes, left_behind)


def assumed_of_carried(
    saved: SavedColumns, index: PackedIndex, num_added: int
) -> list[Assumption]:
    """What `fastpipe add` says of saved columns."""
    lost = []
    has_carried_labels = False
    for name in saved.files:
        if is_carried(name, saved, index):
            has_carried_labels = True
        else:
            lost.append(name)
    version = index.version
    added = format_count(num_added, "added sample")
    assumed = []
    if has_carried_labels:
        verb = "has its label" if num_added == 1 else "have their labels"
        assumed.append(
            Assumption(
                f"label: the samples of version {version} keep the labels that save_columns wrote; "
                f"the {added} {verb} from the source"
            )
        )
    if lost:
        names = ", ".join(lost)
        it = "it" if len(lost) == 1 else "them"
        verb = "has no value" if num_added == 1 else "have no values"
        page = name_page("growing")
        assumed.append(
            Assumption(
                f"{names}: save_columns wrote {it} for version {version}, and version {version + 1} "
                f"lacks {it}, because the {added} {verb}. To carry {it} over, give the added "
                f'samples a value: {_lines(lost[0], index)}. See {page}, section "Saved labels and '
                'columns"'
            )
        )
    return assumed


def _lines(name: str, index: PackedIndex) -> str:
    """Lines of Python that give the next version a column of this one."""
    path = repr(str(index.path))
    if name == LABEL:
        call = "with_labels([values.get(key, -1) for key in new['key']], classes=old.classes)"
    else:
        call = f"with_column({name!r}, [values.get(key, VALUE) for key in new['key']])"
    return (
        f"old = fastpipe.open({path}, version={index.version}); new = fastpipe.open({path}); "
        f"values = dict(zip(old['key'], old[{name!r}])); new.{call}.save_columns({path})"
    )
