"""`python -m fastpipe`: the `fastpipe` command, where the folder of scripts is not on the PATH."""

from fastpipe.tools.cli import main

main()
