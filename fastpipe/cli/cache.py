"""`fastpipe cache`: the folder that keeps what remote datasets have sent, and scans -> listed, checked, or removed."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from fastpipe.cli.console import AsJson, exit_codes, out, print_json
from fastpipe.cli.tables import count
from fastpipe.errors import readable
from fastpipe.sources.scan.cache import kept_scans
from fastpipe.store.remote import contents
from fastpipe.store.remote.options import RemoteOptions

app = typer.Typer(
    help="Show, check or remove what is kept on this machine: data of remote datasets, and scans of unpacked sources.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Folder = Annotated[
    Path | None,
    typer.Option(
        "--cache-dir", metavar="DIR", help="The cache.", show_default="that of fastpipe.loader"
    ),
]
Which = Annotated[
    str | None,
    typer.Argument(metavar="[DATA]", help="URL or fingerprint of one dataset.", show_default="all"),
]


@app.command("ls")
def list_datasets(cache_dir: Folder = None, as_json: AsJson = False) -> None:
    """List the datasets in the cache, and how much of each is there. Without --cache-dir, also the scans: what is known
    of the files of sources that are not packed.
    """
    with exit_codes():
        root = cache_dir or RemoteOptions().cache_dir
        found = contents.kept_datasets(root)
        scans = kept_scans() if cache_dir is None else []
        if as_json:
            kept = {
                "datasets": [asdict(each) for each in found],
                "scans": [asdict(each) for each in scans],
            }
            print_json({"cache_dir": str(root), **kept})
            return
        for scan in scans:
            size = f"{scan.disk_bytes / 1e6:,.2f} MB on the disk"
            out.print(
                f"scan of {readable(scan.source) or 'nothing: damaged'}: {count(scan.files, 'file')}, {size}"
            )
        if not found:
            _tell_empty(root)
            return
        for each in found:
            share = f"{each.resident_bytes / max(each.shard_bytes, 1):.0%} of {each.shard_bytes / 1e9:,.2f} GB"
            used = ", in use" if each.in_use else ""
            out.print(readable(each.url))
            out.print(
                f"  {share} here, {each.disk_bytes / 1e9:,.2f} GB on the disk{used}; {each.fingerprint}"
            )
        out.print(f"{count(len(found), 'dataset')} in {readable(str(root))}")


@app.command("verify")
def verify_datasets(data: Which = None, cache_dir: Folder = None, as_json: AsJson = False) -> None:
    """Compare the hash of each sample in the cache, and forget those that are damaged: they are fetched again when they
    are needed. Exit code 1 if there were any.
    """
    with exit_codes():
        root = cache_dir or RemoteOptions().cache_dir
        found = [(each, *contents.check_kept(each)) for each in contents.chosen(root, data)]
        if as_json:
            names = ("url", "fingerprint", "checked", "damaged")
            print_json(
                [
                    dict(zip(names, (each.url, each.fingerprint, *counts), strict=True))
                    for each, *counts in found
                ]
            )
        else:
            if not found:
                _tell_empty(root)
            for each, checked, damaged in found:
                bad = f"{count(damaged, 'sample')} damaged and forgotten" if damaged else "sound"
                out.print(f"{readable(each.url)}: {bad}; {count(checked, 'sample')} in the cache")
        if any(damaged for _, _, damaged in found):
            raise typer.Exit(1)


@app.command("clear")
def clear_datasets(data: Which = None, cache_dir: Folder = None) -> None:
    """Remove one dataset, or all, from the cache. What a process uses stays. Without --cache-dir, DATA may also be the
    folder, tar or pattern of a scan, and without DATA all scans are removed, too.
    """
    with exit_codes():
        root = cache_dir or RemoteOptions().cache_dir
        left = 0
        scans = kept_scans() if cache_dir is None else []
        if data is not None:
            scans = [scan for scan in scans if scan.source == readable(os.path.abspath(data))]
        for scan in scans:
            Path(scan.file).unlink(missing_ok=True)
            out.print(f"removed: scan of {readable(scan.source)}, {scan.disk_bytes / 1e6:,.2f} MB")
        found = [] if data is not None and scans else contents.chosen(root, data)
        if not found and not scans:
            _tell_empty(root)
        for each in found:
            if contents.clear(root, each):
                out.print(f"removed: {readable(each.url)}, {each.disk_bytes / 1e9:,.2f} GB")
            else:
                left += 1
                out.print(f"in use, not removed: {readable(each.url)}")
        if left:
            raise typer.Exit(1)


def _tell_empty(root: Path) -> None:
    out.print(f"{readable(str(root))} holds no dataset")
