"""The folders of MVTec AD -> pairs of the class folders of a split with the masks of defects.

Note [masks of defects]
MVTec AD and BTAD have test/good/000.png, test/crack/000.png and ground_truth/crack/000_mask.png.
The folders in a split are the classes of images. Those that ground_truth lacks, as good, show no
defect: their masks are 0 everywhere. train has good images alone.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePosixPath

from fastpipe.dataset.format.picture_names import is_picture
from fastpipe.sources.annotations.annotation_folders import FolderPair
from fastpipe.sources.files import Names, SourcePath, names_in
from fastpipe.sources.folders.splits import FEW, first_paths, split_folders
from fastpipe.sources.listing import Assumption

_DEFECT_MASKS = re.compile(r"ground[-_ ]?truths?", re.IGNORECASE)


def find_defect_pairs(root: SourcePath, names: Names) -> list[FolderPair]:
    """A pair for each split of a category of MVTec AD; none if the source is something else."""
    mask_folders = [name for name in names.folders if _DEFECT_MASKS.fullmatch(name)]
    if len(mask_folders) != 1:
        return []
    masks = root / mask_folders[0]
    defects = set(names_in(masks, FEW).folders)
    splits = split_folders(root, names)
    classes: set[str] = set()
    have_all_defects = False
    for folder in splits.values():
        names_of_split = names_in(folder, FEW)
        if any(map(is_picture, names_of_split.files)):
            return []
        classes.update(names_of_split.folders)
        have_all_defects = have_all_defects or defects <= set(names_of_split.folders)
    # If each class has masks, no image is without a defect, and the folders are something else.
    if not defects or not have_all_defects or defects == classes:
        return []
    pairs: list[FolderPair] = []
    for split, folder in splits.items():
        pair = FolderPair("masks", folder, masks, split, classes=tuple(sorted(classes)))
        pairs.append(pair)
    return pairs


def class_folder(path: str, top: str) -> str:
    """The first folder of an image, or of a mask, below `top`; "" if it lies in `top` itself."""
    parts = PurePosixPath(path).relative_to(top).parts
    return parts[0] if len(parts) > 1 else ""


def assume_no_defects(field: str, images: Sequence[str], top: str) -> list[Assumption]:
    """Says which images have a mask of zeros. `images`: those in folders without masks."""
    if not images:
        return []
    folders = sorted({class_folder(image, top) for image in images})
    return [
        Assumption(
            f"field {field}: images without a mask: {len(images):,}, in the folders "
            f"{first_paths(folders)}; they show no defect, so their masks are 0 everywhere"
        )
    ]
