"""The name of a file of MATLAB -> what its user can do, as far as possible a program to run.

fastpipe reads no files of MATLAB, as SciPy would be one more thing to install. Datasets of many
papers have their labels in one. Each program here is one line of Python, which a shell takes, and
writes a CSV file with the columns path and label. `tests/sources/people/test_matlab_labels.py` runs
them.
"""

from __future__ import annotations

import re

from fastpipe.pages import name_page

_PAGE = name_page("own-labels")
_FLOWERS = (
    "from scipy.io import loadmat; "
    "labels = loadmat('imagelabels.mat')['labels'].ravel(); "
    "print('path,label', *(f'image_{i:05d}.jpg,{n}' for i, n in enumerate(labels, 1)), sep='\\n')"
)
_CARS = (
    "from scipy.io import loadmat; "
    "cars = loadmat('NAME', squeeze_me=True)['annotations']; "
    "rows = zip(cars['fname'], cars['class']); "
    "print('path,label', *(f'{path},{n}' for path, n in rows), sep='\\n')"
)
_GROUND_TRUTH = (
    "from pathlib import Path; from scipy.io import loadmat; "
    "s = loadmat('meta.mat', squeeze_me=True)['synsets']; "
    "names = dict(zip(s['ILSVRC2012_ID'], s['WNID'])); "
    "lines = Path('ILSVRC2012_validation_ground_truth.txt').read_text().split(); "
    "rows = (f'ILSVRC2012_val_{i:08d}.JPEG,{names[int(n)]}' for i, n in enumerate(lines, 1)); "
    "print('path,label', *rows, sep='\\n')"
)
_CARS_NAME = re.compile(r"cars_(train|test)_annos(_withlabels)?\.mat", re.IGNORECASE)
# Stanford's test set without labels has the same columns but that of the class.
_CARS_TEST = "cars_test_annos.mat"

# What to do with ImageNet's ground truth, whose numbers are those of meta.mat.
GROUND_TRUTH_REMEDY = (
    "meta.mat of the development kit says which number is which class; they are not in the order "
    "of the folders of train. In the folder of both files, run: "
    f'python -c "{_GROUND_TRUTH}" > val.csv; then pack val.csv, with --image-root for the folder '
    "of the images. So that classes have the numbers of training, add --classes-from with your "
    "packed training set, or with the folder of train"
)


def matlab_remedy(name: str) -> str:
    """What to do with the labels in a file of MATLAB."""
    file = name.rpartition("/")[2]
    program = ""
    more = ""
    image_folder = ""
    if file.lower() == "imagelabels.mat":
        program = _FLOWERS
        image_folder = "jpg"
        more = (
            ". setid.mat beside it has the splits, by the numbers of the images: trnid, valid and "
            "tstid; with a column split in the CSV file, --split picks one"
        )
    elif _CARS_NAME.fullmatch(file) and file.lower() != _CARS_TEST:
        program = _CARS.replace("NAME", file)
        image_folder = file.partition("_annos")[0]
    if not program:
        return (
            "write a CSV file with the columns path and label, by SciPy's loadmat "
            f"({_PAGE} has programs for it), and pack that"
        )
    return (
        "write a CSV file with the columns path and label, and pack that. In the folder of this "
        f'file, run: python -c "{program}" > labels.csv; then: fastpipe pack labels.csv DST '
        f"--image-root {image_folder} --first-label 1, with the path of your folder "
        f"{image_folder}{more}"
    )
