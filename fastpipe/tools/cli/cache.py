"""`fastpipe cache`: what is kept of remote datasets and scans -> listed, checked, or removed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from fastpipe.errors import ConfigError, format_count, readable
from fastpipe.sources.scan.cache import KeptScan, list_kept_scans
from fastpipe.store.remote import contents
from fastpipe.store.remote.options import RemoteOptions
from fastpipe.tools.cli import options
from fastpipe.tools.cli.console import exit_codes, out, print_json
from fastpipe.tools.cli.help import PlainCommand

app = typer.Typer(
    help="Show or remove what is kept of remote datasets and of scans.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

CacheDir = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR", help="The cache.", show_default="that of fastpipe.loader"
    ),
]
Which = Annotated[
    str | None,
    typer.Argument(
        metavar="DATA", help="URL or fingerprint of one dataset; without it: all."
    ),
]


@app.command("ls", cls=PlainCommand, epilog="fastpipe cache ls")
def list_datasets(cache_dir: CacheDir = None, as_json: options.AsJson = False) -> None:
    """List what is kept: datasets and scans.

    For each dataset in the cache: how much of it is there. Without --cache-dir also the scans: what
    is known of the files of sources that are not packed.
    """
    with exit_codes():
        root = cache_dir or RemoteOptions().cache_dir
        datasets = contents.kept_datasets(root)
        scans = []
        if cache_dir is None:
            scans = list_kept_scans()
        if as_json:
            print_json(
                {
                    "cache_dir": str(root),
                    "datasets": [asdict(dataset) for dataset in datasets],
                    "scans": [asdict(scan) for scan in scans],
                }
            )
            return
        for scan in scans:
            size = f"{scan.disk_bytes / 1e6:,.2f} MB on the disk"
            files = format_count(scan.files, "file")
            out.print(f"{_scan_name(scan)}: {files}, {size}")
        if not datasets:
            _print_empty(root)
            return
        for dataset in datasets:
            share = dataset.resident_bytes / max(dataset.shard_bytes, 1)
            use = ", in use" if dataset.in_use else ""
            out.print(readable(dataset.url))
            out.print(
                f"  {share:.0%} of {dataset.shard_bytes / 1e9:,.2f} GB here, "
                f"{dataset.disk_bytes / 1e9:,.2f} GB on the disk{use}; {dataset.fingerprint}"
            )
        count = format_count(len(datasets), "dataset")
        out.print(f"{count} in {readable(root)}")


@app.command("verify", cls=PlainCommand, epilog="fastpipe cache verify")
def verify_datasets(
    data: Which = None, cache_dir: CacheDir = None, as_json: options.AsJson = False
) -> None:
    """Check the samples in the cache, and forget damaged ones.

    The hash of each sample is compared. Samples that are forgotten are fetched again when they are
    needed. Exit code 1 if any was damaged.
    """
    with exit_codes():
        root = cache_dir or RemoteOptions().cache_dir
        results = []
        for dataset in contents.kept_datasets(root, data):
            num_checked, num_damaged = contents.check_kept(dataset)
            results.append(
                {
                    "url": dataset.url,
                    "fingerprint": dataset.fingerprint,
                    "checked": num_checked,
                    "damaged": num_damaged,
                }
            )
            if not as_json:
                state = "sound"
                if num_damaged:
                    state = (
                        f"{format_count(num_damaged, 'sample')} damaged and forgotten"
                    )
                checked = f"{format_count(num_checked, 'sample')} in the cache"
                out.print(f"{readable(dataset.url)}: {state}; {checked}")
        if as_json:
            print_json(results)
        elif not results:
            _print_empty(root)
        if any(result["damaged"] for result in results):
            raise typer.Exit(1)


@app.command(
    "clear",
    cls=PlainCommand,
    epilog="fastpipe cache clear s3://bucket/train\nfastpipe cache clear --all",
)
def clear_datasets(
    data: Annotated[
        str | None,
        typer.Argument(metavar="DATA", help="URL or fingerprint of one dataset."),
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Remove all datasets and scans.")
    ] = False,
    cache_dir: CacheDir = None,
) -> None:
    """Remove one dataset, or all, from the cache.

    Datasets that a process uses stay. Without --cache-dir, DATA may also be the folder, tar or
    pattern of a scan, and --all removes all scans as well.
    """
    with exit_codes():
        root = cache_dir or RemoteOptions().cache_dir
        scans = []
        if cache_dir is None:
            scans = list_kept_scans()
        if every and data is not None:
            raise ConfigError(f"pass either {data} or --all")
        if not every and data is None:
            _refuse_to_clear_all(root, scans)
        if data is not None:
            source = readable(os.path.abspath(data))
            scans = [scan for scan in scans if scan.source == source]
        for scan in scans:
            Path(scan.file).unlink(missing_ok=True)
            out.print(f"removed: {_scan_name(scan)}, {scan.disk_bytes / 1e6:,.2f} MB")
        if data is not None and scans:
            return  # DATA is a scan

        datasets = contents.kept_datasets(root, data)
        if not datasets and not scans:
            _print_empty(root)
        num_in_use = 0
        for dataset in datasets:
            if contents.clear(root, dataset):
                out.print(
                    f"removed: {readable(dataset.url)}, {dataset.disk_bytes / 1e9:,.2f} GB"
                )
            else:
                num_in_use += 1
                out.print(f"in use, not removed: {readable(dataset.url)}")
        if num_in_use:
            raise typer.Exit(1)


def _refuse_to_clear_all(root: Path, scans: Sequence[KeptScan]) -> None:
    """Raises ConfigError if there is anything to remove: to fetch it again may take hours."""
    datasets = contents.kept_datasets(root)
    kept = []
    if datasets:
        size_gb = sum(dataset.disk_bytes for dataset in datasets) / 1e9
        count = format_count(len(datasets), "dataset")
        kept.append(f"{count} in {readable(root)} ({size_gb:,.2f} GB)")
    if scans:
        size_mb = sum(scan.disk_bytes for scan in scans) / 1e6
        kept.append(f"{format_count(len(scans), 'scan')} ({size_mb:,.2f} MB)")
    if kept:
        raise ConfigError(
            f"say what to remove: the cache has {' and '.join(kept)}. To remove one of those that "
            "`fastpipe cache ls` lists: fastpipe cache clear DATA. To remove all: fastpipe cache "
            "clear --all"
        )


def _scan_name(scan: KeptScan) -> str:
    source = readable(scan.source) or "nothing: damaged"
    return f"scan of {source}"


def _print_empty(root: Path) -> None:
    out.print(f"{readable(root)} holds no dataset")
