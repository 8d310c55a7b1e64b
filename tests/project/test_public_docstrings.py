"""The docstrings of public names, which the pages of the API show."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import pytest

import fastpipe
from fastpipe.timm import create_dataset, create_loader


def public_docstrings() -> Iterator[tuple[str, str]]:
    named = {name: getattr(fastpipe, name) for name in fastpipe.__all__}
    named |= {"timm.create_dataset": create_dataset, "timm.create_loader": create_loader}
    for name, value in named.items():
        yield name, inspect.getdoc(value) or ""
        if inspect.isclass(value):
            for member, described in vars(value).items():
                if not member.startswith("_"):
                    yield f"{name}.{member}", inspect.getdoc(described) or ""


DOCSTRINGS = dict(public_docstrings())


@pytest.mark.parametrize("name", DOCSTRINGS)
def test_no_note_of_the_source_is_cited(name: str) -> None:
    """A reader of the site does not have the source beside the page."""
    assert "Note [" not in DOCSTRINGS[name]
