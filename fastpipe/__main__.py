"""`python -m fastpipe`: the `fastpipe` command, where the folder of scripts is not on the PATH."""

from fastpipe.cli import main

main()
