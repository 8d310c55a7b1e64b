"""What the columns of a table look like -> what is assumed of them, each with the option that settles it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from fastpipe.sources.listing import Assumption
from fastpipe.sources.options import ColumnChoice, SourceOptions, named

# Words in the name of a column that holds classes, in small letters.
_WORDS = (
    "label labels class classes classid classname category categories target targets diagnosis "
    "diagnoses dx species"
)
_MORE_WORDS = "breed variety genus disease finding findings grade severity level gt groundtruth tag tags emotion"
_LABEL_WORDS = frozenset([*_WORDS.split(), *_MORE_WORDS.split()])
_WORDS_OF_SEVERAL = (
    "labels classes categories targets diagnoses findings tags attributes keywords genres"
)
_SEVERAL = frozenset(_WORDS_OF_SEVERAL.split())
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
SEPARATORS = (
    "|",
    ";",
    ",",
    " ",
)  # between the classes of a picture; the first that a column has counts
_MOST_WORDS = 3  # in the name of a class that commas separate from others
_RARE_SEPARATORS = ("/", "+", "&")  # they are in names, too
_LEAST_FLAGS = 2  # columns of 0 and 1 that look like classes


class Known(NamedTuple):
    """What the type of a column tells of its values, where they are not read; see Values."""

    texts: Collection[str] = ()
    first: Collection[str] = ()
    flags: Collection[int] = ()
    repeats: bool = False
    are_fractions: bool = False
    are_lists: bool = False


class Values(Protocol):
    """What is known of the values of a column."""

    @property
    def texts(self) -> Collection[str]:
        """All values that differ, as texts; none where they are too many."""

    @property
    def first(self) -> Collection[str]:
        """The first values that differ, as texts."""

    @property
    def flags(self) -> Collection[int]: ...

    @property
    def repeats(self) -> bool: ...

    @property
    def are_fractions(self) -> bool: ...

    @property
    def are_lists(self) -> bool: ...


def named_as_label(column: str) -> bool:
    """Whether a column is called as if it held classes: class, fine_label, Finding Labels, ClassId, target."""
    words = [word.lower() for word in _WORD.findall(column)]
    return not _LABEL_WORDS.isdisjoint({*words, "".join(words)})


def separator_of(texts: Collection[str]) -> str:
    """What stands between the classes of a picture in a column's texts, as "cat|dog" has it; "": nothing."""
    for separator in SEPARATORS[:-1]:
        if any(separator in text.strip() for text in texts):
            return separator
    # Spaces are in names, too. Where they separate classes, most of the words come in several texts.
    words = Counter(word for text in texts for word in set(text.split()))
    several = sum(1 for count in words.values() if count > 1)
    surely = 2 * several > len(words) or all(map(str.isdigit, words))
    return " " if surely and any(" " in text.strip() for text in texts) else ""


class Joined(NamedTuple):
    """A text that looks like several classes."""

    text: str
    separator: str


def joined_classes(
    texts: Collection[str], *, are_labels: bool, are_several: bool = False
) -> Joined | None:
    """A text that looks like several classes, such as "cat|dog", and what separates them; None: none does.
    `are_labels`: the column is called as if it held classes; else it may hold sentences. `are_several`: as if it held
    several, as "tags" says.
    """
    for separator in (*SEPARATORS, *_RARE_SEPARATORS):
        parts = {
            text: [part.strip() for part in text.split(separator)]
            for text in texts
            if separator in text.strip()
        }
        parts = {text: found for text, found in parts.items() if all(found)}
        others = {text.strip() for text in texts}
        counted = Counter(part for found in parts.values() for part in set(found))
        for text in sorted(parts):
            # Each part is a class by itself, or with others: "scab rust" beside "rust", and "scab".
            alone = separator == " "
            are_classes = all(
                part in others or (not alone and counted[part] > 1) for part in parts[text]
            )
            if (
                are_classes
                or separator == "|"
                or (are_labels and _are_names(parts[text], separator))
            ):
                return Joined(text, separator)
    words = [text.split() for text in sorted(texts)]
    several = _with_moving_words(words) if are_labels else ()
    if not several and are_several:
        counted = Counter(word for found in words for word in set(found))
        several = next(
            (
                found
                for found in words
                if len(found) > 1 and any(counted[word] > 1 for word in found)
            ),
            (),
        )
    if several:
        return Joined(" ".join(several), " ")
    return None


def _are_names(parts: Sequence[str], separator: str) -> bool:
    """Whether the parts of a text are short enough for names of classes, and names have no such separator."""
    return separator in (";", ",") and all(len(part.split()) <= _MOST_WORDS for part in parts)


def _with_moving_words(texts: Sequence[Sequence[str]]) -> Sequence[str]:
    """Of texts, as their words, the first of several words, one of which stands at various places. Its words are
    classes, as "primary" in "haze primary" and "agriculture clear primary water". In a name a word keeps its place, as
    "retriever" in "golden retriever" and "labrador retriever".
    """
    places: dict[str, set[int]] = {}  # from the start
    places_from_end: dict[str, set[int]] = {}
    for words in texts:
        for place, word in enumerate(words):
            places.setdefault(word, set()).add(place)
            places_from_end.setdefault(word, set()).add(len(words) - place)
    moving = {word for word in places if len(places[word]) > 1 and len(places_from_end[word]) > 1}
    return next((words for words in texts if len(words) > 1 and not moving.isdisjoint(words)), ())


def assumed_of_columns(
    seen: Mapping[str, Values], columns: ColumnChoice, how: SourceOptions
) -> tuple[Assumption, ...]:
    """What the columns of a table leave open about labels: none is taken, though one looks like it; several in one."""
    claimed = {
        columns.image,
        *(each for field in how.fields or () for each in field.columns_of(seen)),
    }
    free = [column for column in seen if column not in claimed]
    if columns.label is not None and columns.label not in seen:
        return ()
    if columns.label is not None:
        joined = _joined(seen, columns.label)
        if joined is None:
            return ()
        text = f"labels: {joined.text!r} in column {columns.label!r} is one class, not several"
        return (Assumption(text, _field_of_classes(columns.label, joined)),)
    found = [*_one_of_flags(seen, free)]
    flags = {column for column in free if seen[column].flags}
    likely = [
        column for column in free if named_as_label(column) and not seen[column].are_fractions
    ]
    if not likely and not found and len(free) == 1 and not seen[free[0]].are_fractions:
        likely = [
            column for column in free if seen[column].repeats or _joined(seen, column) is not None
        ]
    likely = [column for column in likely if not found or column not in flags]
    if not likely:
        return tuple(found)
    option = f"--label-column {_quoted(likely[0])}"
    for column in likely:
        joined = _joined(seen, column)
        if joined is not None or seen[column].are_lists:
            option = _field_of_classes(column, joined)
            break
    like = f"column {likely[0]!r} looks like one"
    if len(likely) > 1:
        like = f"columns {named(likely)} look like them"
    return (Assumption(f"labels: none, though {like}", option), *found)


def _joined(seen: Mapping[str, Values], column: str) -> Joined | None:
    """Several classes in one text of a column."""
    values = seen[column]
    words = {word.lower() for word in _WORD.findall(column)}
    return joined_classes(
        values.texts or values.first,
        are_labels=named_as_label(column),
        are_several=not _SEVERAL.isdisjoint(words),
    )


def _field_of_classes(column: str, joined: Joined | None) -> str:
    """The option that makes a field of a column with several classes an image."""
    option = f"--field {_quoted(f'tags={column}:classes')}"
    return option if joined is None else f"{option} --separator '{joined.separator}'"


def _one_of_flags(seen: Mapping[str, Values], free: Iterable[str]) -> Iterable[Assumption]:
    """Columns of 0 and 1, or -1 and 1, that may be a class each."""
    flags = [column for column in free if seen[column].flags]
    both: set[int] = set().union(*(seen[column].flags for column in flags))
    if len(flags) < _LEAST_FLAGS or not {0, -1} & both or 1 not in both or both == {-1, 0, 1}:
        return
    zero = min(both)
    few = ",".join(flags) if len(flags) <= 4 else "*"
    yield Assumption(
        f"classes: none, though {len(flags)} columns of {zero} and 1 look like a class each: {named(flags[:5])}",
        f"--field {_quoted(f'tags={few}:classes')}",
    )


def _quoted(text: str) -> str:
    """As a shell takes it."""
    return text if re.fullmatch(r"[\w.,:=-]+", text) else f"'{text}'"


def numbers_as_texts(classes: Sequence[str]) -> str | None:
    """Of classes that are numbers and sorted as texts, the first that is out of place; None: there is none."""
    if len(classes) < 2 or not all(re.fullmatch(r"[0-9]{1,18}", name) for name in classes):
        return None
    return next(iter(out_of_place(classes)), None)


def out_of_place(numbers: Sequence[str]) -> list[str]:
    """Of whole numbers as texts, those that stand elsewhere than in the order of the numbers."""
    in_order = sorted(numbers, key=lambda name: (int(name), name))
    return [name for name, other in zip(numbers, in_order, strict=True) if name != other]
