"""New names of classes, and the fields of a dataset -> an error if they contradict each other.

Labels can be renumbered when they are read. The numbers of classes in boxes, masks and fields of
classes are stored, and stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from fastpipe.dataset.format.fields import CLASS_KINDS, Field
from fastpipe.errors import ConfigError, first_names

_MAX_NAMES_SHOWN = 5


def check_fields_agree(
    fields: Mapping[str, Field], names: Sequence[str], option: str, remedy: str = ""
) -> None:
    """Raises ConfigError if a class would have one number in labels, and another in a field.

    A field may have classes that labels do not have.

    Args:
        fields: of the dataset.
        names: of the new classes of labels.
        option: begins the message.
        remedy: ends it: what else the user can do.
    """
    label_by_name = {name: label for label, name in enumerate(names)}
    for field in _fields_with_names(fields):
        for number, name in enumerate(field.names):
            label = label_by_name.get(name, number)
            if label != number:
                raise ConfigError(
                    f"{option}: {name!r} would be {label} in labels, and is {number} in the "
                    f"field {field.name!r}, whose numbers are stored. Pack the source again with "
                    f"--classes-from{remedy}"
                )


def check_fields_alone(
    fields: Mapping[str, Field], names: Sequence[str], option: str, path: object
) -> bool:
    """Whether fields of a dataset without labels have names of classes; if so, exactly `names`.

    Raises:
        ConfigError: a field has other names, or in another order.
    """
    named_fields = list(_fields_with_names(fields))
    for field in named_fields:
        if field.names == tuple(names):
            continue
        shown_names = first_names(
            [repr(name) for name in field.names], _MAX_NAMES_SHOWN
        )
        raise ConfigError(
            f"{option}: {path} has no labels, and the classes of its field {field.name!r} are "
            f"{shown_names}, whose numbers are stored. Pack the source again with --classes-from"
        )
    return bool(named_fields)


def _fields_with_names(fields: Mapping[str, Field]) -> Iterator[Field]:
    """The fields whose values are numbers of classes, and whose classes have names."""
    for field in fields.values():
        if field.kind in CLASS_KINDS and field.names:
            yield field
