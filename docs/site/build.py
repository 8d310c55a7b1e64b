"""Builds the site of the documentation: python docs/site/build.py FOLDER."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

SITE = Path(__file__).resolve().parent
DOCS = SITE.parent
# -W: a warning is an error. -n: so is a name that no page explains. -E: all pages are read anew,
# because llms.txt has all of them.
OPTIONS = ("-W", "--keep-going", "-n", "-q", "-E")


def build(folder: Path) -> None:
    # Sphinx's own cache would lie in the site, and be published with it.
    with tempfile.TemporaryDirectory() as cache:
        folders = ["-d", cache, "-c", SITE, DOCS, folder]
        command = [sys.executable, "-m", "sphinx", "-b", "html", *OPTIONS, *folders]
        if subprocess.run(command).returncode != 0:
            sys.exit("the site has errors: see above")


if __name__ == "__main__":
    build(Path(sys.argv[1]))
    print(f"open {sys.argv[1]}/index.html")
