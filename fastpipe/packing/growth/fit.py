"""New sources for a dataset -> their labels and fields as in the dataset, or an error."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from fastpipe.dataset.format.fields import Field
from fastpipe.dataset.format.layout import NO_LABEL
from fastpipe.dataset.format.packed_index import PackedIndex
from fastpipe.errors import PackError, format_count, readable
from fastpipe.packing.shard.options import PackOptions
from fastpipe.sources.folders.doubtful_classes import find_similar_class
from fastpipe.sources.listing import Assumption, Listing, SourceField, with_classes


def relabel(listing: Listing, classes: Sequence[str]) -> Listing:
    """The listing with the labels of a dataset; its sources change in place.

    New classes follow those of the dataset.
    """
    # The labels that models have learned stay the same.
    known = set(classes)
    new_classes = [name for name in listing.classes if name not in known]
    return with_classes(listing, [*classes, *new_classes])


def check_given_classes(
    listing: Listing, index: PackedIndex, options: PackOptions
) -> None:
    """Raises PackError if a user has named the classes, and the listing has others."""
    if options.source.classes is not None:
        first_classes = listing.classes[: len(index.classes)]
        if listing.classes and first_classes != index.classes:
            raise PackError(
                f"--classes-from: expected the {len(index.classes):,} classes of {index.path} "
                "first, in their order, and new ones behind them: labels that models have learned "
                "stay"
            )
        return
    # Classes that were given when packing have numbers that the user relies on.
    if "classes_from" not in index.info["packs"][0]["options"]["source"]:
        return
    for name in listing.classes:
        if name not in index.class_to_idx:
            raise PackError(
                f"{readable(listing.root)} has the class {name!r}, and {index.path} was "
                "packed with the classes of --classes-from, which are others. To add it, pass "
                "--classes-from with all of them, new ones last"
            )


def assumed_of_new_classes(
    index: PackedIndex, listing: Listing, options: PackOptions
) -> list[Assumption]:
    """Says which new classes are called nearly like one of the dataset, and which have another
    label than in a fresh pack, which sorts all classes.
    """
    assumed: list[Assumption] = []
    # A class that no new source has makes no difference yet.
    used_labels = {source.label for source in listing.sources}
    similar: set[str] = set()
    for label in range(len(index.classes), len(listing.classes)):
        name = listing.classes[label]
        known_name = None
        # Whoever names the classes has decided that both are classes.
        if label in used_labels and options.source.classes is None:
            known_name = find_similar_class(name, index.classes)
        if known_name is not None:
            similar.add(name)
            assumed.append(_similar_class(index, name, known_name))
    if index.classes != sorted(index.classes):
        # The user or the source has given this order. That of a fresh pack is not known.
        return assumed
    fresh_classes = sorted(listing.classes)
    fresh_labels = {name: label for label, name in enumerate(fresh_classes)}
    new_classes = listing.classes[len(index.classes) :]
    for label, name in enumerate(new_classes, start=len(index.classes)):
        if name in similar:
            continue
        if label in used_labels and fresh_labels[name] != label:
            assumed.append(
                Assumption(
                    f"the class {name!r} is new, and comes last here: it is {label}. A fresh pack "
                    f"would sort it, and number it {fresh_labels[name]}; for the same numbers "
                    f"there: --classes-from {index.path}"
                )
            )
    return assumed


def _similar_class(index: PackedIndex, name: str, known_name: str) -> Assumption:
    """Says that a new class is called nearly like one of the dataset, and how to undo it."""
    place = shlex.quote(readable(str(index.path)))
    return Assumption(
        f"the class {name!r} is new: it differs from {known_name!r}, which the dataset has, in letter "
        "case, spaces or separators alone, and is another class. If they mean the same, undo it: "
        f"fastpipe remove {place} --class {shlex.quote(name)}; then name the class {known_name!r} in "
        "the source, such as its folder, and add it again"
    )


def assumed_of_missing_labels(index: PackedIndex, listing: Listing) -> list[Assumption]:
    """Says that new samples have no label, where all samples of the dataset have one."""
    if not index.classes or sum(index.class_counts) != len(index):
        return []
    unlabelled = [source for source in listing.sources if source.label == NO_LABEL]
    if not unlabelled:
        return []
    samples = format_count(len(unlabelled), "new sample")
    verb = "has" if len(unlabelled) == 1 else "have"
    return [
        Assumption(
            f"labels: {samples} {verb} none (label -1), such as {readable(unlabelled[0].path)}, though "
            f"all {len(index):,} samples of {index.path} have one. If {readable(listing.root)} is the "
            "folder of one class, remove these samples again (fastpipe remove), and add the folder "
            "around it"
        )
    ]


def merge_fields(listing: Listing, index: PackedIndex) -> list[SourceField]:
    """The fields of the next version. PackError: the sources have other fields."""
    new_fields = {field.name: field for field in listing.fields}
    for name in (*index.fields, *new_fields):
        old_kind = _describe_kind(index.fields.get(name))
        new_kind = _describe_kind(new_fields.get(name))
        if old_kind != new_kind:
            raise PackError(
                f"field {name}: {index.path} has {old_kind}, and {listing.root} has {new_kind}; "
                "all samples of a dataset have the same fields. Choose them with "
                "--field NAME=COLUMN:KIND, or pack the sources into a dataset of their own"
            )
    return [
        _merge_field(new_fields[name], old, listing, index)
        for name, old in index.fields.items()
    ]


def _describe_kind(field: Field | SourceField | None) -> str:
    return "no such field" if field is None else f"the kind {field.kind}"


def _merge_field(
    new: SourceField, old: Field, listing: Listing, index: PackedIndex
) -> SourceField:
    """A field with the names of the dataset, and behind them those that only the sources have."""
    # One of the two lists must begin with the other one.
    num_common = min(len(old.names), len(new.names))
    old_names_common = old.names[:num_common]
    new_names_common = new.names[:num_common]
    has_other_names = old_names_common != new_names_common
    flip_pairs = old.flip_pairs or new.flip_pairs
    has_other_pairs = bool(new.flip_pairs) and new.flip_pairs != flip_pairs
    # The names of "classes" are joined when the shards are published.
    if old.kind != "classes" and (has_other_names or has_other_pairs):
        new_names = ", ".join(new.names) or "none"
        old_names = ", ".join(old.names) or "none"
        raise PackError(
            f"field {new.name}: its names in {listing.root} are {new_names}; expected those of "
            f"{index.path}, {old_names}, in the same order, and new ones behind them. "
            f"--classes-from {index.path} numbers them by name"
        )
    longer_names = max(old.names, new.names, key=len)
    return new._replace(names=longer_names, flip_pairs=flip_pairs)
