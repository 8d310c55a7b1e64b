"""The variables and the program in docs/how-to/remote.md reach an S3 server that is not Amazon's."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from support.checkout import ROOT
from support.programs.cli_run import succeeded
from support.remote.s3 import Bucket
from support.sources.pack_sources import write_folder

PAGE = (ROOT / "docs" / "how-to" / "remote.md").read_text(encoding="utf-8")


def for_bucket(text: str, bucket: Bucket) -> str:
    """The text, with the bucket and the server of a test; the server takes all keys."""
    text = text.replace("s3://bucket", f"s3://{bucket.name}")
    return text.replace("http://minio.example:9000", bucket.options["endpoint"])


def test_the_variables_and_the_program_for_a_server_on_http(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_folder(tmp_path / "photos")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FASTPIPE_CACHE", str(tmp_path / "cache"))
    (variables,) = re.findall(r"^    export (.*)", PAGE, flags=re.MULTILINE)
    with monkeypatch.context() as environment:
        for variable in for_bucket(variables, bucket).split():
            environment.setenv(*variable.split("=", 1))
        succeeded("pack", "photos", f"s3://{bucket.name}/train")

    (program,) = re.findall(r"^```python\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    exec(for_bucket(program, bucket).replace("256", "4, size=32"), names)
    with names["loader"] as loader:
        images, _ = next(iter(loader))
    assert images.shape == (4, 3, 32, 32)
