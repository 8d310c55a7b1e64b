"""`fastpipe log`: a packed dataset -> a table of its versions."""

from __future__ import annotations

from datetime import datetime

from rich.table import Table

from fastpipe.cli.console import AsJson, Packed, exit_codes, out, place, print_json
from fastpipe.errors import readable
from fastpipe.packing.growth.version import versions


def log(data: Packed, as_json: AsJson = False) -> None:
    """List the versions of a dataset, the newest last: when each was made, and by which command.

    `fastpipe.open(DATA, version=N)` opens one, and a loader takes what it gives.
    """
    with exit_codes():
        found = versions(place(data))
        if as_json:
            print_json(found)
            return
        table = Table(box=None, pad_edge=False)
        table.add_column("version", justify="right")
        table.add_column("when", no_wrap=True)
        for name in ("samples", "added", "removed"):
            table.add_column(name, justify="right", no_wrap=True)
        table.add_column("command", overflow="fold")
        for entry in found:
            when = datetime.fromtimestamp(entry["time_ns"] / 1e9).strftime("%Y-%m-%d %H:%M")
            numbers = (f"{entry[name]:,}" for name in ("samples", "added", "removed"))
            table.add_row(str(entry["version"]), when, *numbers, readable(entry["command"]))
        out.print(table)
