"""A folder of images beside folders of labels, annotations or masks -> what kind of source it is, and which folders."""

from __future__ import annotations

from collections.abc import Sequence

from fastpipe.errors import PackError, readable
from fastpipe.sources.annotation_folders import Beside, beside_images, is_flat_voc
from fastpipe.sources.darknet import darknet_folders, is_flat_yolo
from fastpipe.sources.files import Names, SourcePath
from fastpipe.sources.splits import chosen_split, fitting, some, split_word
from fastpipe.sources.yolo_yaml import YOLO_FOLDERS, yaml_folders

VOC_FOLDERS = ("Annotations", "JPEGImages")
USUAL_FOLDERS = {"voc": VOC_FOLDERS, "yolo": YOLO_FOLDERS, "masks": ("images", "masks")}


def label_kinds(root: SourcePath, names: Names, others: Sequence[str]) -> list[str]:
    """What lies beside a folder of images; `others`: what the folder may be, by its files."""
    if yaml_folders(root, names) or darknet_folders(root, names):
        return ["yolo"]
    pairs = beside_images(root, names)
    if not pairs:
        if is_flat_voc(names):
            return ["voc"]
        return ["yolo"] if is_flat_yolo(root, names) else []
    kinds = {each.kind for each in pairs} - {""}
    if "voc" in kinds and set(VOC_FOLDERS) <= {*names.folders}:
        kinds.discard("masks")  # those of VOC are a further task
    if not kinds and set(YOLO_FOLDERS) <= {*names.folders}:
        kinds.add("yolo")  # no image has a box
    if not kinds and set(VOC_FOLDERS) <= {*names.folders}:
        kinds.add("voc")
    if not kinds and not others and not any(each.part for each in pairs):
        both = " beside ".join(each.name for each in (pairs[0].images, pairs[0].labels))
        raise PackError(
            f"{readable(str(root))} holds {both}, which has no masks, no texts of YOLO and no annotations of VOC. "
            "Write what it says into a CSV or JSONL file, or pass the file of COCO in it. --format imagefolder takes "
            "the folders as classes"
        )
    return sorted(kinds)


def chosen_pair(kind: str, root: SourcePath, names: Names, split: str | None) -> Beside:
    """The folder of images and that of their labels or masks; of several such pairs, which are splits, the chosen one.
    PackError: there is none, or the user has to say which.
    """
    pairs = pairs_of(kind, root, names)
    if not pairs:
        wanted = " and ".join(USUAL_FOLDERS[kind])
        raise PackError(f"--format {kind}: expected the folders {wanted} in {readable(str(root))}")
    parts = {each.part: each for each in pairs}
    if len(parts) < len(pairs):
        labels = some(each.labels.name for each in pairs)
        raise PackError(
            f"{readable(str(root))} has the folders {labels} beside its images; expected one. Move the rest"
        )
    if "" in parts:
        return parts[""]
    alone = [name for name in names.folders if split_word(name) and fitting(name, parts) is None]
    chosen = chosen_split(root, split, dict.fromkeys([*parts, *alone]))
    if chosen not in parts:
        raise PackError(
            f"the split {chosen} of {readable(str(root))} has no labels or masks; pass "
            f"{readable(str(root / chosen))} to pack its images alone"
        )
    return parts[chosen]


def pairs_of(kind: str, root: SourcePath, names: Names) -> list[Beside]:
    """The folders of images and of labels of a kind; those that hold nothing count where there is no other."""
    if kind == "yolo":
        listed = yaml_folders(root, names) or darknet_folders(root, names)
        if listed:
            return listed
    pairs = beside_images(root, names)
    found = [each for each in pairs if each.kind == kind] or [
        each for each in pairs if not each.kind
    ]
    if not found and kind == "voc" and is_flat_voc(names):
        return [Beside("voc", root, root, "")]
    if not found and kind == "yolo" and is_flat_yolo(root, names):
        return [Beside("yolo", root, root, "")]
    return found
