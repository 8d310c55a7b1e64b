"""Columns that look like labels or classes -> assumptions, with the options that settle them."""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from fastpipe.dataset.format.layout import MAX_CLASSES
from fastpipe.dataset.format.picture_names import is_picture
from fastpipe.sources.column_choice import ColumnChoice
from fastpipe.sources.column_names import describe_columns, field_name
from fastpipe.sources.listing import Assumption
from fastpipe.sources.options import SourceOptions, quote_for_shell
from fastpipe.sources.tables.column_kinds import ColumnSummary

# Words in the name of a column that holds classes.
_LABELS = (
    "label labels class classes classid classname category categories target targets "
    "diagnosis diagnoses dx species breed variety genus disease finding findings grade severity "
    "level gt groundtruth tag tags emotion choice "
    # Other languages, without their accents.
    "klasse klassen kategorie etikett gattung befund diagnose classe categorie etiquette libelle "
    "espece clase clases categoria etiqueta rotulo especie diagnostico etichetta specie soort "
    "klasa kategoria etykieta gatunek trida stitek klass sinif sınıf etiket kategori kelas "
    "класс метка категория клас мітка 类 类别 類別 标签 標籤 分类 分類 种类 種類 "
    "ラベル クラス カテゴリ 라벨 레이블 클래스 카테고리 분류"
)
# Words in the name of a column that holds several classes for each image.
_SEVERAL = "labels classes categories targets diagnoses findings tags attributes keywords genres"
_SEVERAL_WORDS = frozenset(_SEVERAL.split())
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^\W0-9_A-Za-z]+")
# Words in the name of a column whose numbers name images or rows, and measure nothing.
_KEY_WORDS = frozenset(("id", "ids", "uuid", "key", "index", "idx", "unnamed"))
# A message with more columns would be too long to type.
_MAX_KEPT_COLUMNS = 8
# Words in the name of a column whose values name or count things, and are no classes.
_IDS = "id ids uuid key url uri date time path file number num nr index idx count fold split"
_ID_WORDS = frozenset(_IDS.split())
# Words in the name of a column that says where an image or its boxes come from, as in GWHD.
_ORIGINS = (
    "source origin domain site camera device dataset set subset sequence video location place "
    "country hospital user annotator labeler worker author license"
)
_ORIGIN_WORDS = frozenset(_ORIGINS.split())
# Between the classes of an image in one text. The first one that a column has counts.
_SEPARATORS = ("|", ";", ",", " ")
_RARE_SEPARATORS = ("/", "+", "&")  # which stand in names, too
_MAX_NAME_WORDS = 3  # in the name of a class, where commas separate classes
# Captions have more words than names of classes, and more characters where no spaces stand in them.
_MIN_SENTENCE_WORDS = 5
_CAPTION_NAMES = (
    "caption captions text texts sentence sentences description comment prompt report"
)
_CAPTION_WORDS = frozenset(_CAPTION_NAMES.split())
_MIN_CAPTION_WORDS = 2  # in a column that is called like captions
_MIN_SENTENCE_CHARACTERS = 40
# In fewer rows it says little that each one has a label of its own.
_MIN_ROWS = 10
_MIN_NUMBERED_ROWS = 6  # the same, of numbers
_MIN_FLAG_COLUMNS = 2  # fewer columns of 0 and 1 do not look like classes
# Words in the name of a column with paths of masks. A list without a header has column_2.
_MASKS = frozenset(
    (
        "mask",
        "masks",
        "seg",
        "segmentation",
        "annotation",
        "label",
        "gt",
        "target",
        "column",
    )
)
# Of a table without a header.
_NUMBERED_COLUMN = re.compile(r"column_[0-9]+")
_POINT_NAMES = "joint joints keypoint keypoints kpts landmark landmarks pose"
_POINTS = frozenset(_POINT_NAMES.split())
_DECIMAL_COMMA = re.compile(r"[-+]?\d+(?:,\d+)?")
_VIA_SHAPES = "region_shape_attributes"  # the column of VIA's CSV that has the boxes
# Kaggle's run lengths of masks: columns with starts and lengths, such as "10 5 31 7".
_RUN_LENGTH_COLUMN = re.compile(
    r"encoded_?pixels|(.*[_ ])?rle([_ ].*)?|run_?lengths?|segmentation|annotation|mask|pixels",
    re.IGNORECASE,
)
_WHOLE_NUMBER = re.compile(r"[0-9]{1,18}")
_RUN_LENGTHS = re.compile(r"\d+ \d+( \d+ \d+)*|-1|")


class Known(NamedTuple):
    """As `ColumnSummary`, of a column of which only the type and a few values were read."""

    texts: Collection[str] = ()
    first: Collection[str] = ()
    flags: Collection[int] = ()
    repeats: bool = False
    has_fractions: bool = False
    are_lists: bool = False


_Columns = Mapping[str, ColumnSummary | Known]


class _Joined(NamedTuple):
    """A text that looks like several classes."""

    text: str
    separator: str


def _without_accents(text: str) -> str:
    """The text without accents: étiquette is etiquette."""
    # An accent becomes a character of its own, a combining one.
    characters = unicodedata.normalize("NFKD", text)
    return "".join(itertools.filterfalse(unicodedata.combining, characters))


_LABEL_WORDS = frozenset(_without_accents(_LABELS).split())


def _words_in(name: str) -> list[str]:
    """The words in the name of a column, in small letters and without accents."""
    return [word.lower() for word in _WORD.findall(_without_accents(name))]


def is_label_name(column: str) -> bool:
    """Whether a column's name says that it holds classes: class, fine_label, ClassId, target."""
    words = _words_in(column)
    return not _LABEL_WORDS.isdisjoint({*words, "".join(words)})


def are_captions(column: str, values: ColumnSummary | Known) -> bool:
    """Whether the values of a column are sentences, most of which come once."""
    texts = [text for text in values.first if text]
    if not texts or values.repeats:
        return False
    min_words = _MIN_SENTENCE_WORDS
    if not _CAPTION_WORDS.isdisjoint(_words_in(column)):
        min_words = _MIN_CAPTION_WORDS
    num_words = 0
    num_characters = 0
    for text in texts:
        # Lists, objects and paths are long, too.
        if text[0] in "[{" or is_picture(text):
            return False
        num_words += len(text.split())
        num_characters += len(text)
    # The means decide, because among captions a few are short.
    has_words = num_words >= min_words * len(texts)
    has_characters = num_characters >= _MIN_SENTENCE_CHARACTERS * len(texts)
    return has_words or has_characters


def _has_class_a_row(column: str, values: ColumnSummary | Known) -> bool:
    """Whether a column of labels has other texts in each row, such as captions or words to read."""
    if are_captions(column, values):
        return True
    if not isinstance(values, ColumnSummary) or values.count < _MIN_ROWS:
        return False
    return values.kind == "text" and values.are_all_different


def _has_number_a_row(values: ColumnSummary | Known) -> bool:
    """Whether a column has another whole number in each row, as the ids of images are."""
    if not isinstance(values, ColumnSummary) or values.count < _MIN_NUMBERED_ROWS:
        return False
    return values.kind == "int" and values.are_all_different


def _has_few_names(column: str, values: ColumnSummary | Known) -> bool:
    """Whether a column has a few short texts that come again, as names of classes do."""
    if not values.repeats or not _ID_WORDS.isdisjoint(_words_in(column)):
        return False
    for name in values.texts:
        has_letters = any(map(str.isalpha, name))
        is_sentence = len(name.split()) >= _MIN_SENTENCE_WORDS
        if not has_letters or is_sentence or is_picture(name):
            return False
    return len(values.texts) > 1


def _are_ids_of_classes(column: str, values: ColumnSummary | Known) -> bool:
    """Whether a column `Id` has texts that come again, as the whales of Humpback: w_f48451c."""
    if column.lower() != "id":
        return False
    # There may be too many to keep them all.
    comes_again = values.repeats
    if isinstance(values, ColumnSummary):
        comes_again = values.names_come_again
    have_letters = all(any(map(str.isalpha, text)) for text in values.first)
    return comes_again and have_letters and len(set(values.first)) > 1


def columns_of_ids(summaries: _Columns) -> list[str]:
    """The columns that may have the names of images, such as id, id_code and patientId."""
    columns = []
    for column in summaries:
        words = set(_words_in(column))
        is_id = not words.isdisjoint(("id", "uuid", "key", "name"))
        if is_id and not is_label_name(column) and not summaries[column].has_fractions:
            columns.append(column)
    return columns


def find_separator(texts: Collection[str]) -> str:
    """The separator between the classes in a column's texts, such as "|"; "" if there is none."""
    for separator in _SEPARATORS:
        if separator != " " and any(separator in text.strip() for text in texts):
            return separator

    # Names have spaces, too. Where spaces separate classes, most words come in several texts.
    text_counts = _count_texts_with(text.split() for text in texts)
    repeated_count = len(_in_several_texts(text_counts))
    are_classes = 2 * repeated_count > len(text_counts)
    # Numbers of classes may come once each; numbers stand in no name.
    are_numbers = all(map(str.isdigit, text_counts))
    if (are_classes or are_numbers) and any(" " in text.strip() for text in texts):
        return " "
    return ""


def _count_texts_with(parts_of_texts: Iterable[Iterable[str]]) -> Counter[str]:
    """The number of texts that each part is in; a part that stands twice in a text counts once."""
    text_counts: Counter[str] = Counter()
    for parts in parts_of_texts:
        text_counts.update(set(parts))
    return text_counts


def _in_several_texts(text_counts: Counter[str]) -> set[str]:
    return {part for part, count in text_counts.items() if count > 1}


def _has_class_numbers(column: str, values: ColumnSummary | Known) -> bool:
    """Whether a column has all whole numbers from 0 or 1 on, up to some, and they come again."""
    texts = values.texts
    if not values.repeats or not _ID_WORDS.isdisjoint(_words_in(column)):
        return False
    if not all(text.isascii() and text.isdigit() for text in texts):
        return False
    numbers = sorted(map(int, texts))
    count = len(numbers)
    # 0 and 1 alone say yes and no, of whatever it is.
    is_from_0 = numbers == list(range(count))
    is_from_1 = numbers == list(range(1, count + 1))
    return count > 2 and (is_from_0 or is_from_1)


def _find_joined(column: str, values: ColumnSummary | Known) -> _Joined | None:
    """The first text of a column that looks like several classes, such as "cat|dog"."""
    texts = values.texts or values.first
    is_label = is_label_name(column)  # other columns may hold sentences
    for separator in (*_SEPARATORS, *_RARE_SEPARATORS):
        text = _find_separated(texts, separator, is_label)
        if text is not None:
            return _Joined(text, separator)

    word_lists = [text.split() for text in sorted(texts)]
    words = None
    if is_label:
        words = _find_moving_words(word_lists)
    if words is None and not _SEVERAL_WORDS.isdisjoint(_words_in(column)):
        words = _find_repeated_words(word_lists)
    if words is None:
        return None
    return _Joined(" ".join(words), " ")


def _find_separated(
    texts: Collection[str], separator: str, is_label: bool
) -> str | None:
    """The first text whose parts between separators look like classes."""
    parts_of_text = {}
    for text in texts:
        parts = [part.strip() for part in text.split(separator)]
        if separator in text.strip() and all(parts):
            parts_of_text[text] = parts
    if not parts_of_text:
        return None

    # Classes that an image has alone, and parts of several texts; but in names words repeat, too.
    classes = {text.strip() for text in texts}
    if separator != " ":
        classes |= _in_several_texts(_count_texts_with(parts_of_text.values()))

    for text, parts in sorted(parts_of_text.items()):
        if separator == "|" or classes.issuperset(parts):
            return text
        # Such separators do not stand in names of classes, which are short.
        are_short = all(len(part.split()) <= _MAX_NAME_WORDS for part in parts)
        if is_label and are_short and separator in (";", ","):
            return text
    return None


def _find_moving_words(word_lists: Sequence[Sequence[str]]) -> Sequence[str] | None:
    """The words of the first text in which a word stands that has different places in the texts.

    Such words are classes, as "primary" in "haze primary" and "agriculture clear primary water". In
    a name a word keeps its place from one end, as "retriever" in "golden retriever" and "labrador
    retriever".
    """
    from_start: dict[str, set[int]] = {}
    from_end: dict[str, set[int]] = {}
    for words in word_lists:
        for position, word in enumerate(words):
            from_start.setdefault(word, set()).add(position)
            from_end.setdefault(word, set()).add(len(words) - position)

    for words in word_lists:
        if len(words) > 1:
            for word in words:
                if len(from_start[word]) > 1 and len(from_end[word]) > 1:
                    return words
    return None


def _find_repeated_words(word_lists: Sequence[Sequence[str]]) -> Sequence[str] | None:
    """The words of the first text of several words, one of which is in another text, too."""
    repeated_words = _in_several_texts(_count_texts_with(word_lists))
    for words in word_lists:
        if len(words) > 1 and not repeated_words.isdisjoint(words):
            return words
    return None


def find_column_assumptions(
    summaries: _Columns, columns: ColumnChoice, options: SourceOptions
) -> tuple[Assumption, ...]:
    """The assumptions on labels: a column looks like them and is none, or has several in a text."""
    of_shapes = _assumed_of_shapes(summaries, columns)
    label = columns.label
    if label is not None:
        if label not in summaries:
            return of_shapes
        of_label = _assumed_of_label(label, summaries[label])
        return (*_in_place_of_label_column(of_label, options), *of_shapes)

    used = {columns.image}
    for field in options.fields or ():
        used.update(field.columns_of(summaries))
    free = [column for column in summaries if column not in used]
    of_flags: tuple[Assumption, ...] = ()
    # region_count and region_id of VIA's CSV may have 0 and 1 alone, and are no classes.
    if _VIA_SHAPES not in summaries:
        of_flags = _assumed_of_flags(summaries, free)

    likely = []
    for column in free:
        # Columns of 0 and 1 are already in the assumption on these.
        is_flag = bool(of_flags and summaries[column].flags)
        if is_flag and not _is_y(column, summaries):
            continue
        if _is_y(column, summaries) or _is_named_as_label(column, summaries[column]):
            likely.append(column)
    # The values say less than the names, so they count only where no name says anything.
    if not likely and not of_flags:
        likely = _likely_by_values(summaries, free)
    if not likely:
        of_numbers = () if of_flags else _assumed_of_numbered_columns(summaries, free)
        return (*of_flags, *of_numbers, *of_shapes)

    if len(likely) == 1:
        text = f"labels: none, though column {likely[0]!r} looks like one"
    else:
        text = f"labels: none, though columns {describe_columns(likely)} look like them"
    option = _option_of_likely(summaries, likely)
    return (Assumption(text, option), *of_flags, *of_shapes)


def _assumed_of_numbered_columns(
    summaries: _Columns, free: Sequence[str]
) -> tuple[Assumption, ...]:
    """The assumption on a table without a header, whose columns have numbers in place of names."""
    if not free or not all(map(_NUMBERED_COLUMN.fullmatch, free)):
        return ()
    candidates = []
    for column in free:
        values = summaries[column]
        is_other = _are_paths_of_pictures(values) or are_captions(column, values)
        if not is_other and not values.has_fractions:
            candidates.append(column)
    if not candidates:
        return ()
    text = (
        "labels: none, for the columns have no names; these may be labels: "
        f"{describe_columns(candidates)}"
    )
    return (Assumption(text, f"--label-column {candidates[0]}"),)


def _is_named_as_label(column: str, values: ColumnSummary | Known) -> bool:
    """Whether the name of a column says that it holds classes, and its values may be some."""
    if not is_label_name(column) or values.has_fractions:
        return False
    # tif_label_path has the files of masks.
    if _has_decimal_commas(values) or _are_paths_of_pictures(values):
        return False
    return not are_captions(column, values)


def _is_y(column: str, summaries: _Columns) -> bool:
    """Whether a column is called y as targets are, and not as the coordinate beside x."""
    if column.strip().lower() != "y":
        return False
    values = summaries[column]
    if values.has_fractions or not values.repeats:
        return False
    return not any(other.strip().lower() == "x" for other in summaries)


def _option_of_likely(summaries: _Columns, likely: Sequence[str]) -> str:
    """The option that takes a column for labels; several classes in a row need a field."""
    for column in likely:
        joined = _find_joined(column, summaries[column])
        if joined is not None or summaries[column].are_lists:
            return _field_of_classes(column, joined)
    chosen = likely[0]
    if all(map(str.isdigit, summaries[chosen].texts)):
        chosen = _column_of_names(summaries, likely)
    return f"--label-column {quote_for_shell(chosen)}"


def _column_of_names(summaries: _Columns, likely: Sequence[str]) -> str:
    """The column with the names of the classes whose numbers the first column has, or that column.

    Birds 525 has "class id" and "labels".
    """
    class_count = len(summaries[likely[0]].texts)
    for column in likely[1:]:
        values = summaries[column]
        if len(values.texts) == class_count and _has_few_names(column, values):
            return column
    return likely[0]


def _in_place_of_label_column(
    of_label: Iterable[Assumption], options: SourceOptions
) -> Iterator[Assumption]:
    """The same assumptions, which say that --field goes with no --label-column of that column."""
    for assumption in of_label:
        option = assumption.option
        if options.label_column is not None and option.startswith("--field "):
            label_column = quote_for_shell(options.label_column)
            option += f", in place of --label-column {label_column}"
        yield assumption._replace(option=option)


def _assumed_of_label(
    label: str, values: ColumnSummary | Known
) -> tuple[Assumption, ...]:
    """The assumption on a column of labels: its texts are captions, or have several classes."""
    if _has_class_a_row(label, values):
        text = (
            f"labels: each text in column {label!r} is a class of its own, and is not stored as "
            "text"
        )
        return (Assumption(text, f"--field {quote_for_shell(f'text={label}')}"),)
    if isinstance(values, ColumnSummary) and values.are_ids:
        text = (
            f"labels: the numbers in column {label!r} go beyond {MAX_CLASSES - 1:,}, the largest "
            "label, so they are taken as names of classes"
        )
        return (Assumption(text),)
    if _has_number_a_row(values):
        text = (
            f"labels: each row has another number in column {label!r}; if it numbers the images, it is "
            "no class"
        )
        return (Assumption(text, "--label-column COLUMN"),)
    joined = _find_joined(label, values)
    if joined is None:
        return ()
    text = f"labels: {joined.text!r} in column {label!r} is one class, not several"
    return (Assumption(text, _field_of_classes(label, joined)),)


def _likely_by_values(summaries: _Columns, free: Sequence[str]) -> list[str]:
    """The columns whose values look like classes, where no name of a column says it."""
    if len(free) == 1:
        # The only column besides the images is likely what the table was written for.
        column = free[0]
        values = summaries[column]
        is_id = not _ID_WORDS.isdisjoint(_words_in(column))
        if _are_ids_of_classes(column, values):
            return [column]
        if is_id or values.has_fractions or are_captions(column, values):
            return []
        if _has_decimal_commas(values):
            return []
        if values.repeats or _find_joined(column, values):
            return [column]
        return []

    with_names = []
    with_numbers = []
    for column in free:
        if _has_few_names(column, summaries[column]):
            with_names.append(column)
        elif _has_class_numbers(column, summaries[column]):
            with_numbers.append(column)
    return with_names or with_numbers


def find_columns_of_box_classes(
    summaries: _Columns, others: Collection[str | None]
) -> list[str]:
    """The columns of a table of boxes with names that come again, though none is called a class.

    BCCD has cell_type. `others`: columns that have something else.
    """
    columns = []
    for column, values in summaries.items():
        is_origin = not _ORIGIN_WORDS.isdisjoint(_words_in(column))
        if column in others or is_origin or not _has_few_names(column, values):
            continue
        # Each image of BCCD has several rows, so the names of images come again, too.
        if not _are_paths_of_pictures(values):
            columns.append(column)
    return columns


def _assumed_of_shapes(
    summaries: _Columns, columns: ColumnChoice
) -> tuple[Assumption, ...]:
    """The assumptions on columns with boxes or masks in forms that are stored as they are."""
    assumptions = []
    for field in columns.fields:
        values = summaries.get(field.column)
        if field.column == _VIA_SHAPES:
            text = (
                f"boxes: none, for the shapes in column {_VIA_SHAPES!r} of VIA's CSV are not read. "
                "Export the project from VIA as COCO, and pack that file"
            )
            assumptions.append(Assumption(text))
        elif field.kind in ("json", "floats") and _are_called_points(field.column):
            text = (
                f"column {field.column!r} looks like points, and is stored as numbers that crops and "
                "mirroring leave as they are. "
            )
            wish = f"--field {quote_for_shell(f'keypoints={field.column}:keypoints')}"
            if isinstance(values, ColumnSummary) and values.has_point_lists:
                # MPII's joints are the points of one object, without their visibility.
                text += (
                    "For keypoints, write each value as a list of objects, each a list of points x, "
                    f"y, visibility, [[[10, 20, 2], [12, 25, 0]]], and pass {wish}"
                )
                assumptions.append(Assumption(text))
                continue
            text += (
                "If each value is a list of objects, each a list of points x, y, visibility, "
                "[[[10, 20, 2], [12, 25, 0]]], they can be keypoints"
            )
            assumptions.append(Assumption(text, wish))
        elif field.kind == "text" and _are_paths_of_pictures(values):
            text = f"column {field.column!r} of paths is stored as text"
            wish = f"{field.name}={field.column}:image"
            if not _MASKS.isdisjoint(_words_in(field.column)):
                wish = f"mask={field.column}:mask"
            assumptions.append(Assumption(text, f"--field {quote_for_shell(wish)}"))
        elif (
            field.kind == "text" and values is not None and _has_decimal_commas(values)
        ):
            text = (
                f"column {field.column!r} has numbers with a decimal comma, and is stored as text; "
                "to store numbers, write them with a point"
            )
            assumptions.append(Assumption(text))
        elif isinstance(values, ColumnSummary) and holds_runs(field.column, values):
            text = f"masks: none, and the run lengths in column {field.column!r} are stored as text"
            wish = quote_for_shell(f"mask={field.column}:mask")
            assumptions.append(Assumption(text, f"--field {wish}"))
        elif values is not None and _has_run_lengths(field.column, values):
            text = (
                f"masks: none, for the run lengths in column {field.column!r} are not decoded: "
                "fastpipe reads those of CSV and JSONL whose starts increase. A program can decode "
                "them, and write the masks with fastpipe.Writer"
            )
            assumptions.append(Assumption(text))
    return tuple(assumptions)


def _are_called_points(column: str) -> bool:
    """Whether a column is called like points of bodies or faces: joints, keypoints, landmarks.

    Not joints_vis, which says of each point whether it is visible.
    """
    words = _words_in(column)
    return bool(words) and words[-1] in _POINTS


def _are_paths_of_pictures(values: ColumnSummary | Known | None) -> bool:
    return isinstance(values, ColumnSummary) and values.are_pictures


def _has_decimal_commas(values: ColumnSummary | Known) -> bool:
    """Whether the texts of a column are numbers such as 3,5, as Excel writes them in Europe."""
    texts = values.texts or values.first
    if not any("," in text for text in texts):
        return False
    return all(_DECIMAL_COMMA.fullmatch(text.strip()) for text in texts)


def holds_runs(column: str, values: ColumnSummary) -> bool:
    """Whether the name and the values of a column say that it has run lengths of masks."""
    return _RUN_LENGTH_COLUMN.fullmatch(column) is not None and values.are_runs


def _has_run_lengths(column: str, values: ColumnSummary | Known) -> bool:
    """Whether a column looks like run lengths, also in forms that are not read."""
    texts = values.texts or values.first
    if not any(texts) or not _RUN_LENGTH_COLUMN.fullmatch(column):
        return False
    return all(map(_RUN_LENGTHS.fullmatch, texts))


def _field_of_classes(column: str, joined: _Joined | None) -> str:
    """The option that makes a field of a column with several classes for each image."""
    option = f"--field {quote_for_shell(f'tags={column}:classes')}"
    if joined is not None:
        option += f" --separator '{joined.separator}'"
    return option


def _assumed_of_flags(
    summaries: _Columns, free: Sequence[str]
) -> tuple[Assumption, ...]:
    """The assumption on columns of 0 and 1, or -1 and 1, that may be a class each; or none."""
    columns = []
    numbers: set[int] = set()
    differ = False
    for column in free:
        flags = summaries[column].flags
        letters = re.sub(r"[^a-z0-9]", "", column.lower())
        # A column that is called "Label" has the numbers of two classes.
        is_label = letters in _LABEL_WORDS or _is_y(column, summaries)
        if flags and not is_label:
            columns.append(column)
            numbers.update(flags)
            differ = differ or len(flags) > 1
    # Columns without any difference, such as throttle and brake, say nothing of images.
    is_each_class = differ and numbers in ({0, 1}, {-1, 1})
    if len(columns) < _MIN_FLAG_COLUMNS or not is_each_class:
        return ()
    pattern = "*"  # takes the columns of flags among all
    if len(columns) <= 4:
        pattern = ",".join(columns)
    text = (
        f"classes: none, though {len(columns)} columns of {min(numbers)} and 1 look like a class "
        f"each: {describe_columns(columns[:5])}"
    )
    kept = _columns_of_numbers(summaries, free, columns)
    if len(kept) > _MAX_KEPT_COLUMNS:
        text += f". A field of them leaves out the columns that --field does not name, such as {kept[0]}"
        return (Assumption(text),)
    option = f"--field {quote_for_shell(f'tags={pattern}:classes')}"
    names = {"tags"}
    for column in kept:
        name = field_name(column.lower(), names)
        names.add(name)
        option += f" --field {quote_for_shell(f'{name}={column}')}"
    return (Assumption(text, option),)


def _columns_of_numbers(
    summaries: _Columns, free: Iterable[str], flags: Collection[str]
) -> list[str]:
    """The columns with other numbers than 0 and 1, one of which may be what a model predicts.

    Pawpularity has 12 columns of 0 and 1, and the score of each photo beside them.
    """
    columns = []
    for column in free:
        values = summaries[column]
        is_number = isinstance(values, ColumnSummary) and values.is_numeric
        is_key = not _KEY_WORDS.isdisjoint(_words_in(column))
        if is_number and column not in flags and not is_key:
            columns.append(column)
    return columns


def find_number_out_of_place(classes: Sequence[str]) -> str | None:
    """The first class out of order if classes are numbers sorted as texts; else None."""
    if len(classes) < 2 or not all(map(_WHOLE_NUMBER.fullmatch, classes)):
        return None
    misplaced = out_of_place(classes)
    if not misplaced:
        return None
    return misplaced[0]


def out_of_place(numbers: Sequence[str]) -> list[str]:
    """The texts of whole numbers that are elsewhere than in the order of the numbers."""
    in_order = sorted(numbers, key=lambda name: (int(name), name))
    misplaced = []
    for name, name_in_order in zip(numbers, in_order, strict=True):
        if name != name_in_order:
            misplaced.append(name)
    return misplaced
