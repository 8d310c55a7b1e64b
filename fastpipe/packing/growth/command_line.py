"""The options of a pack or an add -> words of the command line, for the history of a dataset."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastpipe.errors import option_name
from fastpipe.packing.shard.options import PackOptions
from fastpipe.sources.field_columns import FieldColumn


def pack_command(pack: Mapping[str, Any]) -> list[str]:
    """The command of a pack, from its entry in "packs" of dataset.json.

    The entry does not have the paths of the source and the dataset.
    """
    if "made_by" in pack["source"]:
        return [pack["source"]["made_by"]]
    words = ["fastpipe", "pack", "SRC", "DST"]
    words += source_words(pack["options"]["source"])
    # Only options that differ from the defaults are shown, as a user would write them.
    defaults = PackOptions().shaping()
    for name, value in pack["options"].items():
        if name in ("source", "fields", "coordinates") or value == defaults.get(name):
            continue
        if name == "apply_exif":
            words += ["--exif", "apply"]
        elif name == "shuffle":
            words.append("--no-shuffle")
        elif value is True:
            words.append(option_name(name))
        else:
            words += [option_name(name), str(value)]
    return words


def source_words(recorded: Mapping[str, Any]) -> list[str]:
    """The options of a source that differ from the defaults, as dataset.json records them."""
    words: list[str] = []
    for name, value in recorded.items():
        if name == "fields":
            for column in value:
                words += ["--field", FieldColumn(*column).written()]
        elif name == "classes_from":
            # Only the names are recorded, not where they came from.
            words += ["--classes-from", "NAMES"]
        else:
            words += [option_name(name), str(value)]
    return words
