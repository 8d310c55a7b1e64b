"""Captions and tags of samples -> the texts of a batch: chosen, shuffled, dropped by draws."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np

from fastpipe.arguments import refusing_unknown_fields
from fastpipe.arrays import Int64s
from fastpipe.errors import ConfigError, DatasetError, choice, flag, real_number, whole
from fastpipe.plan.draws import Stream, bits, key, uniform, up_to

_MAX_KEPT = 1 << 20


@refusing_unknown_fields("fastpipe.Text")
@dataclass(frozen=True)
class Text:
    """A field of texts for training, in `fields=` of fastpipe.loader; the batch has a list of str.

    The field is of kind "text", or of kind "json" with lists of texts, such as five captions for
    each image. All draws are of (seed, epoch, sample): they are the same on any number of ranks, and
    after a resume.

    Args:
        name: the field's name.
        choose: which text of a list: "random", another one in each epoch; or "first".
        drop: probability that the text is "" instead, for classifier-free guidance.
        shuffle_tags: whether the text is a list of tags, whose order is shuffled.
        separator: between two tags. In the batch a space follows it.
        keep: the number of first tags that keep their places.

    Example:
        >>> caption = fastpipe.Text("caption", drop=0.5)
        >>> loader = fastpipe.loader("data/objects", batch_size=8, size=32, fields=("image", caption))
        >>> batch = next(iter(loader))
        >>> len(batch["caption"]), "" in batch["caption"]
        (8, True)
    """

    name: str
    _: KW_ONLY
    choose: str = "random"
    drop: float = 0.0
    shuffle_tags: bool = False
    separator: str = ","
    keep: int = 0

    def __post_init__(self) -> None:
        choice("Text(choose=)", self.choose, ("random", "first"))
        drop = real_number(self.drop)
        if drop is None or not 0 <= drop <= 1:
            raise ConfigError(
                f"Text(drop=): expected a probability, 0 to 1, got {self.drop!r}"
            )
        flag("Text(shuffle_tags=)", self.shuffle_tags)
        if not isinstance(self.separator, str) or not self.separator.strip():
            raise ConfigError(
                f'Text(separator=): expected what stands between two tags, such as ",", got '
                f"{self.separator!r}"
            )
        whole("Text(keep=)", self.keep, least=0, most=_MAX_KEPT)
        if self.keep and not self.shuffle_tags:
            raise ConfigError(
                "Text(keep=): it is about tags; pass shuffle_tags=True, or leave keep out"
            )


def draw_texts(
    request: Text, values: Sequence[Any], *, seed: int, epoch: int, names: Int64s
) -> list[str]:
    """The texts of n samples.

    Args:
        request: how they are drawn.
        values: of the field: texts, or lists of texts.
        seed, epoch, names: of the draws; names is (n,).

    Raises:
        DatasetError: a value is neither.
    """
    # (n,) each
    choice_key = key(seed, epoch, Stream.TEXT_CHOICE)
    drop_key = key(seed, epoch, Stream.TEXT_DROP)
    tags_key = key(seed, epoch, Stream.TEXT_TAGS)
    choice_draws = uniform(choice_key, names)
    is_dropped = uniform(drop_key, names) < request.drop
    tag_keys = bits(tags_key, names)
    texts = []
    for row, value in enumerate(values):
        candidates = _candidates(request.name, value)
        text = ""
        if candidates and not is_dropped[row]:
            text_index = 0
            if request.choose == "random":
                last_index = len(candidates) - 1
                text_index = int(up_to(choice_draws[row], last_index))
            text = candidates[text_index]
            if request.shuffle_tags:
                text = _shuffle_tags(request, text, int(tag_keys[row]))
        texts.append(text)
    return texts


def _candidates(name: str, value: Any) -> list[str]:
    """The texts of a sample; none if it has no value."""
    if value is None:
        return []
    candidates = [value] if isinstance(value, str) else value
    are_texts = isinstance(candidates, list) and all(
        isinstance(text, str) for text in candidates
    )
    if not are_texts:
        raise DatasetError(
            f"fields: Text({name!r}): expected a text, or a list of texts, for each sample; got "
            f'{value!r:.60}. Pass the name "{name}" alone, and choose in prepare='
        )
    return candidates


def _shuffle_tags(request: Text, text: str, tag_key: int) -> str:
    """The tags of a text, of which the first ones stay where they are."""
    tags = []
    for part in text.split(request.separator):
        tag = part.strip()
        if tag:
            tags.append(tag)
    kept = tags[: request.keep]
    others = tags[request.keep :]
    sort_keys = bits(tag_key, np.arange(len(others)))
    order = np.argsort(sort_keys)
    shuffled = [others[place] for place in order]
    return f"{request.separator} ".join([*kept, *shuffled])
