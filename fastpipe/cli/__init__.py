"""The `fastpipe` command: arguments of a command line -> the work, and a readable report. One module per command."""

from fastpipe.cli.interrupts import end_at_ctrl_c


def main() -> None:
    """The console script."""
    end_at_ctrl_c()
    from fastpipe.cli.commands import app

    app()
