"""Sphinx's directives in a page of the API -> the signatures and docstrings that it shows for them."""

from __future__ import annotations

import functools
import inspect
import pkgutil
import re
from collections.abc import Iterator
from typing import Any

from sphinx.errors import PycodeError
from sphinx.pycode import ModuleAnalyzer
from sphinx.util.inspect import stringify_signature

_BLOCK = re.compile(r"^```\{eval-rst\}\n(.*?)^```\n?", re.MULTILINE | re.DOTALL)
_NAME = re.compile(r"^ *\.\. auto(\w+):: ([\w.]+)(?:\(\))?$((?:\n +:.*)*)", re.MULTILINE)
_MEMBER_KINDS = (property, functools.cached_property, classmethod, staticmethod)


def with_docstrings(markdown: str) -> str:
    """The page with a Markdown section for each name, in place of the directives."""

    def describe_block(block: re.Match[str]) -> str:
        sections = []
        for name in _NAME.finditer(block[1]):
            sections += _describe_name(name[2], name[3])
        return "\n\n".join(sections) + "\n"

    return _BLOCK.sub(describe_block, markdown)


def _describe_name(name: str, options: str) -> Iterator[str]:
    """A Markdown section for a public name, and for those of its members that the page shows."""
    value = pkgutil.resolve_name(name)
    owner = pkgutil.resolve_name(name.rpartition(".")[0])
    if inspect.isclass(owner):
        yield _describe_member(name, owner)
        return
    yield _describe_value(name, value)
    shown = re.search(r":members:(.*)", options)
    if shown is None:
        return
    names = _words_in(shown[1]) or _documented_members(value)
    left_out = re.search(r":exclude-members:(.*)", options)
    for member in names:
        if left_out is None or member not in _words_in(left_out[1]):
            yield _describe_member(f"{name}.{member}", value)


def _documented_members(value: type) -> list[str]:
    """The public methods and properties of a class, which Sphinx shows if the page lists none."""
    names = []
    for name, member in vars(value).items():
        is_shown = inspect.isroutine(member) or isinstance(member, _MEMBER_KINDS)
        if is_shown and not name.startswith("_") and inspect.getdoc(member):
            names.append(name)
    return names


def _words_in(text: str) -> list[str]:
    return re.findall(r"\w+", text)


def _describe_member(name: str, owner: type) -> str:
    member = name.rpartition(".")[2]
    is_plain_value = not (
        inspect.isroutine(getattr(owner, member)) or isinstance(inspect.getattr_static(owner, member), _MEMBER_KINDS)
    )
    if is_plain_value:
        # Its own docstring would be that of int or tuple.
        return f"## {name}\n\n{_comment_on(owner, member)}"
    return _describe_value(name, getattr(owner, member))


def _comment_on(owner: type, member: str) -> str:
    """The comment that begins with "#:", above an attribute of a class or of one of its bases."""
    for base in owner.__mro__:
        try:
            comments = ModuleAnalyzer.for_module(base.__module__).find_attr_docs()
        except PycodeError:  # a class of C
            continue
        if (base.__qualname__, member) in comments:
            return "\n".join(comments[base.__qualname__, member]).strip()
    return ""


def _describe_value(name: str, value: Any) -> str:
    signature = ""
    if callable(value):
        try:
            signature = stringify_signature(inspect.signature(value))
        except (TypeError, ValueError):  # an exception, or a class of C
            pass
    text = inspect.getdoc(value) or ""
    return f"## {name}\n\n```python\n{name}{signature}\n```\n\n{text}"
