"""Builds the site of the documentation: python docs/site/build.py FOLDER."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SITE = Path(__file__).resolve().parent
DOCS = SITE.parent
# -W: a warning is an error. -n: so is a name that no page explains. -E: all pages are read anew,
# because llms.txt has all of them.
OPTIONS = ("-W", "--keep-going", "-n", "-q", "-E")


def build(folder: Path) -> None:
    command = [sys.executable, "-m", "sphinx", "-b", "html", "-c", SITE, *OPTIONS, DOCS, folder]
    if subprocess.run(command).returncode != 0:
        sys.exit("the site has errors: see above")


if __name__ == "__main__":
    build(Path(sys.argv[1]))
    print(f"open {sys.argv[1]}/index.html")
