"""Names of classes that labels are to have -> an error where boxes, masks or fields of classes have other numbers.

Labels can be renumbered as they are read. The numbers in boxes, masks and fields of classes are stored: they stay.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from fastpipe.dataset.format.fields import CLASS_KINDS, Field
from fastpipe.errors import ConfigError


def check_fields_agree(
    fields: Mapping[str, Field], names: Sequence[str], option: str, remedy: str = ""
) -> None:
    """Raises ConfigError, which begins with `option`, if a class would have two numbers. Fields of other classes may
    stay. `remedy` is what else the user can do.
    """
    places = {name: number for number, name in enumerate(names)}
    for field in _named(fields):
        for number, name in enumerate(field.names):
            if places.get(name, number) != number:
                raise ConfigError(
                    f"{option}: {name!r} would be {places[name]} in labels, and is {number} in the field "
                    f"{field.name!r}, whose numbers are stored. Pack the source again with --classes-from{remedy}"
                )


def check_fields_alone(
    fields: Mapping[str, Field], names: Sequence[str], option: str, path: object
) -> bool:
    """Of a dataset without labels: whether its fields have these classes, with these numbers. ConfigError: they have
    others.
    """
    known = list(_named(fields))
    for field in known:
        if field.names != tuple(names):
            raise ConfigError(
                f"{option}: {path} has no labels, and the classes of its field {field.name!r} are "
                f"{', '.join(map(repr, field.names[:5]))}{' ...' if len(field.names) > 5 else ''}, whose numbers are "
                "stored. Pack the source again with --classes-from"
            )
    return bool(known)


def _named(fields: Mapping[str, Field]) -> Iterator[Field]:
    return (
        field for field in fields.values() if field.kind in CLASS_KINDS and field.names
    )
