"""The reference of the site has an entry for every public name and attribute, and for no internal one."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

import fastpipe
from fastpipe.device.image_batch import ImageBatch
from fastpipe.engine.stats import Stats

# Classes whose attributes are those that completion shows.
SHOWN_BY_DIR = (
    fastpipe.Dataset,
    fastpipe.Loader,
    fastpipe.Stats,
    fastpipe.Writer,
    fastpipe.GridAggregator,
)
# What completion shows of others is torch's, prometheus_client's or of a tuple.
LISTED = {
    "fastpipe.Augment": {"imagenet", "simclr", "randaugment", "trivial_augment", "forward"},
    "fastpipe.prometheus.LoaderCollector": {"collect"},
    "fastpipe.wds.SampleCrop": {"set_epoch"},
    "fastpipe.wds.BatchCrop": {"set_epoch"},
    "fastpipe.FastpipeError": {"option", "problem"},
    "fastpipe.SampleError": {"shard", "key", "member", "sample", "offset", "reason"},
    "fastpipe.timm.TimmLoader": {"mixup_enabled"},
}
BATCH = "fastpipe.device.image_batch.ImageBatch"
NO_PAGE = {"__version__"}


def shown_by_dir(value: type) -> set[str]:
    """The public attributes that completion shows of an object of a class."""
    empty = object.__new__(value)
    names = {name for name in dir(empty) if not name.startswith("_")}
    return names | {name for name in value.__annotations__ if not name.startswith("_")}


def attributes_of_batches() -> set[str]:
    properties = {name for name, value in vars(ImageBatch).items() if isinstance(value, property)}
    return properties | {name for name in ImageBatch.__annotations__ if not name.startswith("_")}


def expected_members() -> dict[str, set[str]]:
    members = {f"fastpipe.{value.__name__}": shown_by_dir(value) for value in SHOWN_BY_DIR}
    return {**members, **LISTED, BATCH: attributes_of_batches()}


def classes_of_options() -> list[type]:
    """The public classes that are made of options, such as crops and samplers."""
    values = [getattr(fastpipe, name) for name in fastpipe.__all__]
    return [value for value in values if dataclasses.is_dataclass(value) and value is not Stats]


@pytest.fixture(scope="module")
def entries(site: Path) -> set[str]:
    pages = (site / "reference" / "api").glob("*.html")
    found: set[str] = set()
    for page in pages:
        found |= set(re.findall(r'id="(fastpipe\.[\w.]+)"', page.read_text()))
    return found


def test_every_public_name_has_an_entry(entries: set[str]) -> None:
    names = {f"fastpipe.{name}" for name in set(fastpipe.__all__) - NO_PAGE - {"wds"}}
    names |= {f"fastpipe.wds.{name}" for name in fastpipe.wds.__all__}
    names |= {f"fastpipe.timm.{name}" for name in ("create_dataset", "create_loader")}
    assert sorted(names - entries) == []


def test_every_public_attribute_has_an_entry(entries: set[str]) -> None:
    missing = [
        f"{name}.{member}"
        for name, members in expected_members().items()
        for member in members
        if f"{name}.{member}" not in entries
    ]
    assert sorted(missing) == []


def test_no_internal_attribute_has_an_entry(entries: set[str]) -> None:
    members = expected_members()
    internal = []
    for entry in entries:
        owner, _, member = entry.rpartition(".")
        is_special = member.startswith("__")  # such as data[17], which the pages show on purpose
        if owner in members and not is_special and member not in members[owner]:
            internal.append(entry)
    assert sorted(internal) == []


def test_entries_that_users_of_torchvision_look_for(entries: set[str]) -> None:
    for name in ("classes", "class_to_idx", "class_counts", "targets"):
        assert f"fastpipe.Dataset.{name}" in entries
    assert "fastpipe.Dataset.sample_format" not in entries


def parameters_of(page: str, name: str) -> set[str]:
    """The options that the entry of a class describes."""
    entry = page.partition(f'id="{name}"')[2].partition('<dl class="py')[0]
    return set(re.findall(r"<strong>(\w+)</strong>", entry))


@pytest.mark.parametrize("value", classes_of_options(), ids=lambda value: value.__name__)
def test_every_option_of_a_class_is_described(value: Any, site: Path) -> None:
    name = f"fastpipe.{value.__name__}"
    pages = [page.read_text() for page in (site / "reference" / "api").glob("*.html")]
    page = next(page for page in pages if f'id="{name}"' in page)
    options = {field.name for field in dataclasses.fields(value)}
    assert sorted(options - parameters_of(page, name)) == []


def test_every_entry_has_text(site: Path) -> None:
    empty = []
    for page in (site / "reference" / "api").glob("*.html"):
        found = re.findall(r'id="(fastpipe\.[\w.]+)".*?<dd>(.*?)</dd>', page.read_text(), re.DOTALL)
        empty += [name for name, text in found if not text.strip()]
    assert empty == []
