"""The distribution that pip installs: its name, its extras, another package in its folder.

`fastpipe` on PyPI is another project with the same import name, so the distribution of this one is
called `fastpipe-loader`. Both install into the folder `fastpipe/`, and each of them overwrites and
removes files of the other.
"""

from __future__ import annotations

import os

DISTRIBUTION = "fastpipe-loader"
# Where the package is installed: site-packages, or a checkout.
INSTALL_FOLDER = os.path.dirname(os.path.dirname(__file__))
# pip writes the metadata of the other project to a folder fastpipe-VERSION.dist-info, and ours to
# fastpipe_loader-VERSION.dist-info.
_OTHER_METADATA = ("fastpipe-", ".dist-info")

UPGRADE = f"pip install --upgrade {DISTRIBUTION}"
# The command that writes all files of this package anew, for messages.
REINSTALL = f"pip install --force-reinstall --no-deps {DISTRIBUTION}"
_REMEDY = f"Run: pip uninstall fastpipe, and then: {REINSTALL}"


def install_extra(extra: str) -> str:
    """The command that installs the libraries of an extra, for messages."""
    return f"pip install '{DISTRIBUTION}[{extra}]'"


def other_package_message() -> str:
    """What to do if the other project is installed in the same folder; "" if it is not.

    It runs at each import, so it lists one folder instead of importing importlib.metadata, which
    takes 20 ms, and pathlib, which takes 3 ms.
    """
    try:
        names = os.listdir(INSTALL_FOLDER)
    except OSError:  # a zip file, or a folder that cannot be listed
        return ""
    start, end = _OTHER_METADATA
    for name in names:
        if name.startswith(start) and name.endswith(end):
            version = name.removeprefix(start).removesuffix(end)
            return (
                f"the package fastpipe {version} of another project is also installed in "
                f"{INSTALL_FOLDER}, and overwrites or removes files of {DISTRIBUTION}. "
                f"{_REMEDY}"
            )
    return ""


def overwritten_message() -> str:
    """What to do if `import fastpipe` gives the other project's package, or an empty one."""
    return (
        f"the folder {os.path.join(INSTALL_FOLDER, 'fastpipe')} does not have the __init__.py of {DISTRIBUTION}: "
        "installing or uninstalling the package fastpipe of another project has changed it. "
        f"{_REMEDY}"
    )
