"""(seed, number) -> a draw: a dataset and options of fastpipe.loader as Python's text, and what is done with it."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from support.walk.walked_data import Known
from support.walk.walked_values import (
    FIXED_CROPS,
    GRIDS,
    MANY_CROPS,
    MODULES,
    MOVED,
    OBJECT_CROPS,
    RANDOM_CROPS,
)

USUAL = ("label", "id", "key", "source", "valid", "epoch")
OF_BUCKETS = ("image_size", "pixel_mask")
OF_PATCHES = ("coords", "cu_seqlens", "patch_valid", "grids")
OF_MIXING = ("mix_lam", "mix_index")
OF_PARTS = ("patch",)


class Step(NamedTuple):
    """A method of a dataset that gives another one: its arguments as text, and which of its results."""

    method: str
    args: str
    end: str = ""

    def __str__(self) -> str:
        return f".{self.method}({self.args}){self.end}"


@dataclass
class Draw:
    """What is tried.

    Attributes:
        parts: the datasets, one or those that are joined.
        opening: of each, options of fastpipe.open, as text.
        steps: of each, what is made of it.
        join: "mix" or "concat", the weights, and `labels`, as text; None: there is one dataset.
        after: what is made of all.
        options: of fastpipe.loader, as text, in which `data` is the dataset.
        deed: what is done with the loader.
        how: numbers for the deed.
        urls: the parts that a server has.
        by_path: the loader gets a path, not a dataset.
    """

    number: int
    parts: list[Known]
    opening: list[dict[str, str]]
    steps: list[list[Step]]
    join: tuple[str, list[str], str] | None = None
    after: list[Step] = field(default_factory=list)
    options: dict[str, str] = field(default_factory=dict)
    deed: str = "epochs"
    how: dict[str, int] = field(default_factory=dict)
    urls: set[int] = field(default_factory=set)
    by_path: bool = False

    @property
    def mixed(self) -> bool:
        """Whether batches have shares."""
        return self.join is not None and self.join[0] == "mix"

    @property
    def data(self) -> str:
        """Text of the dataset."""
        places = [
            f"{'url' if each in self.urls else 'at'}({part.at!r})"
            for each, part in enumerate(self.parts)
        ]
        if self.by_path:
            return places[0]
        texts = []
        for place, opening, steps in zip(places, self.opening, self.steps, strict=True):
            given = "".join(f", {name}={text}" for name, text in opening.items())
            texts.append(f"fastpipe.open({place}{given})" + "".join(map(str, steps)))
        after = "".join(map(str, self.after))
        if self.join is None:
            return f"{texts[0]}{after}"
        how, weights, labels = self.join
        more = f", labels={labels}" if labels else ""
        if how == "concat":
            return f"fastpipe.concat({', '.join(texts)}{more}){after}"
        pairs = [f"{text}: {weight}" for text, weight in zip(texts, weights, strict=True)]
        return f"fastpipe.mix({{{', '.join(pairs)}}}{more}){after}"

    def call(self) -> str:
        """The program."""
        options = "".join(f", {name}={text}" for name, text in self.options.items())
        return f"data = {self.data}\nfastpipe.loader(data{options})"


def draw(seed: int, number: int, known: dict[str, Known], *, urls: bool = False) -> Draw:
    """The same for the same numbers. With `urls`, a server has some of the datasets."""
    rng = random.Random(f"{seed}/{number}")
    count = 1 if rng.random() < 0.8 else rng.choice((2, 2, 3))
    parts = rng.sample(list(known.values()), count)
    made = Draw(number, parts, [{} for _ in parts], [[] for _ in parts])
    if count > 1:
        weights = [rng.choice(("1", "0.3", "0.7", "2.5", "0.05")) for _ in parts]
        labels = rng.choice(("", "'union'", "'offset'", "'own'"))
        made.join = (rng.choice(("mix", "mix", "concat")), weights, labels)
    if urls and rng.random() < 0.08:
        made.urls.update([place for place, part in enumerate(parts) if part.packed][:1])
    for place in made.urls:
        made.opening[place] = {"cache_dir": "cache", "read_timeout": "5"}
        if rng.random() < 0.4:
            made.opening[place]["cache_limit"] = rng.choice(("0", "'200GB'", "'2MB'"))
    _Options(rng, made).draw()
    deeds = ["epochs", "again", "resume", "ranks", "set_size", "set_weights"]
    made.deed = rng.choices(deeds, [3, 2, 4, 4, 1, 1])[0]
    made.how = {name: rng.randrange(1 << 30) for name in ("a", "b", "c", "d")}
    made.by_path = (
        made.join is None
        and not (made.opening[0] or made.steps[0] or made.after)
        and not any("data" in text for text in made.options.values())
        and rng.random() < 0.5
    )
    return made


def steps_of(
    rng: random.Random, count: int | None, names: Sequence[str], *, again: bool = False
) -> list[Step]:
    """What is made of a dataset.

    Args:
        count: its samples; None: nobody knows.
        names: of classes that it may have.
        again: of what is joined, which has classes of other names.
    """
    found: list[Step] = []
    if count is not None and rng.random() < 0.12:
        kinds = [
            f"np.arange({count}) % 2, classes=['even', 'odd']",
            f"{['ab'[each % 2] for each in range(count)]}",
        ]
        found.append(Step("with_labels", rng.choice(kinds)))
        names = ["even", "odd"] if "classes" in found[-1].args else ["a", "b"][: min(count, 2)]
    if count is not None and rng.random() < 0.15:
        found.append(Step("with_column", f"'extra', np.arange({count}) * 0.5"))
    if rng.random() < 0.25:
        texts = [
            "lambda c: c['id'] % 3 != 1",
            "lambda c: c['width'] >= 20",
            "lambda c: c['label'] >= 0",
        ]
        if count is not None:
            some = rng.sample(range(count), rng.randint(1, count))
            mask = [each in some for each in range(count)]
            texts += [
                str(some),
                f"np.array({sorted(some)})",
                f"torch.tensor({some})",
                f"torch.tensor({mask})",
            ]
            texts += [f"np.array({mask})", f"range({count // 3}, {count})"]
        found.append(Step("select", rng.choice(texts)))
    if names and not again and rng.random() < 0.2:
        some_names = rng.sample(list(names), rng.randint(1, len(names)))
        found.append(Step("only", repr(some_names) + rng.choice(("", "", ", keep_labels=True"))))
    if rng.random() < 0.12:
        found.append(Step("take", rng.choice(("0.5", "0.9", "1.0"))))
    if rng.random() < 0.12:
        found.append(
            Step(
                "fold",
                rng.choice(("0, of=2", "2, of=3", "0, of=5", "4, of=5")),
                rng.choice(("[0]", "[1]")),
            )
        )
    return found


MORE = (
    "dtype=torch.bfloat16",
    "mean=None, std=None",
    "erasing=0.5",
    "mixup=0.2",
    "cutmix=1.0",
    "label_smoothing=0.1",
)


class _Options:
    def __init__(self, rng: random.Random, made: Draw) -> None:
        self.rng = rng
        self.made = made
        self.whole = made.parts[0]
        self.fields = fields_of(made)

    def one(self, *texts: str) -> str:
        return self.rng.choice(texts)

    def often(self, share: float) -> bool:
        return self.rng.random() < share

    def draw(self) -> None:
        """Each option with a probability of its own."""
        options = self.made.options
        options["batch_size"] = str(self.rng.choice((1, 2, 3, 4, 4, 5, 7, 8)))
        train = not self.often(0.5)
        if self.often(0.8):
            options["train"] = str(train)
        else:
            train = True
        makers: list[tuple[float, Callable[[bool], None]]] = [
            (1.0, self._sizes),
            (0.35, self._crop),
            (0.12, self._views),
            (0.35, self._chosen),
            (0.2, self._augment),
            (0.55, self._fields),
            (1.0, self._others),
            (0.8, self._without_refusals_of_parts),
        ]
        for share, maker in makers:
            if self.often(share):
                maker(train)

    def _sizes(self, train: bool) -> None:
        options = self.made.options
        options["size"] = self.one("8", "12", "16", "(10, 17)", "(20, 8)", "1", "70")
        kind = self.rng.random()
        if kind < 0.06:
            options["size"] = "lambda epoch: 16 - 4 * (epoch % 3)"
        elif kind < 0.12:
            del options["size"]
            options["size_choices"] = self.one("[8, 12]", "[(8, 12), 16, 4]", "[9]")
        elif kind < 0.2:
            options["size"] = self.one(
                "fastpipe.Buckets(area=300, size_divisible=4)",
                "fastpipe.Buckets(min_size=12, max_size=20, size_divisible=8)",
                "fastpipe.Buckets(area=400, size_divisible=1, fill=(1, 2, 3), interpolation='bicubic')",
                "fastpipe.Buckets(min_size=10)",
                "fastpipe.Buckets(sizes=[(8, 12), 12, (20, 6)])",
                "fastpipe.Buckets(sizes=[(8, 12), 12, (20, 6)], fit='cover')",
                "fastpipe.Buckets(area=300, size_divisible=4, fit='cover', interpolation='bicubic')",
                "fastpipe.Native(max_pixels=300, multiple=5)",
                "fastpipe.Native(max_pixels=20 * 16, multiple=4, enlarge=True, interpolation='bilinear')",
                "fastpipe.Buckets(area=300, size_divisible=4, pixels=2000)",
                "fastpipe.Buckets(sizes=[(8, 12), 12, (20, 6)], fit='cover', pixels=700)",
                "fastpipe.Patches(5, max_tokens=12)",
                "fastpipe.Patches(3, max_tokens=9, merge=2, enlarge=True, form='padded')",
                "fastpipe.Patches(4, tokens=50, max_tokens=16)",
                "fastpipe.Patches(2, tokens=30, max_tokens=9, merge=2, channels_first=True, frames=2)",
            )

    def _crop(self, train: bool) -> None:
        size = self.made.options.get("size", "")
        is_whole = any(kind in size for kind in ("Buckets", "Native", "Patches"))
        if is_whole and self.often(0.9):
            return
        if self.often(0.3 if "boxes" in self.fields else 0.03):
            self.made.options["crop"] = self.one(*OBJECT_CROPS)
            return
        if self.often(0.05):
            self.made.options["crop"] = self.one(*GRIDS)
            if self.often(0.95):
                self.made.options["size"] = self.one("12", "16", "(20, 18)", "70")
            return
        kinds = (
            (FIXED_CROPS, RANDOM_CROPS)
            if train
            else (FIXED_CROPS, FIXED_CROPS, RANDOM_CROPS, MANY_CROPS)
        )
        self.made.options["crop"] = self.one(*self.rng.choice(kinds))

    def _views(self, train: bool) -> None:
        self.made.options["views"] = self.one(
            "2",
            "3",
            "[fastpipe.View(count=2)]",
            "[fastpipe.View(14, count=2), fastpipe.View((6, 9), crop=fastpipe.RandomResizedCrop(scale=(0.05, 0.4)))]",
            "[fastpipe.View(hflip=1.0), fastpipe.View(crop=fastpipe.Resize(), hflip=False)]",
            "[fastpipe.View(), fastpipe.View(augment=fastpipe.Augment.simclr())]",
            "[fastpipe.View(), fastpipe.View(9), fastpipe.View(hflip=1.0)]",
        )

    def _chosen(self, train: bool) -> None:
        made, options = self.made, self.made.options
        for place, part in enumerate(made.parts):
            made.steps[place] += steps_of(self.rng, len(part), part.names)
        if made.join is not None:
            made.after += steps_of(self.rng, None, [], again=True)
        if self.often(0.45):
            options["sampler"] = self._sampler()
        if self.often(0.2) and "epoch_size" not in options:
            options["epoch_size"] = str(self.rng.randint(1, 2 * len(self.whole)))
            if made.mixed and self.often(0.5):
                options["epoch_size"] = self.one("'smallest'", "'largest'")

    def _without_refusals_of_parts(self, train: bool) -> None:
        """Leaves out what does not go with CropAt and Grid: most options that are drawn."""
        options = self.made.options
        crop = options.get("crop", "")
        if "CropAt" not in crop and "Grid" not in crop:
            return
        for name in ("sampler", "epoch_size", "partition", "views", "size_choices", "on_error"):
            options.pop(name, None)
        if "lambda" in options.get("size", "lambda"):
            options["size"] = "12"

    def _sampler(self) -> str:
        names, kind = self.whole.names, self.rng.random()
        if kind < 0.3:
            weights = [
                "[0.5, 3.0] * (len(data) // 2) + [1.0] * (len(data) % 2)",
                "np.arange(len(data)) % 4",
                "torch.arange(len(data)) + 0.25",
                "np.full(len(data), 20.0)",
                "{data.classes[0]: 3.0}",
                "fastpipe.balanced(data)",
            ]
            if self.made.join is None and not self.often(0.5):
                weights.append("{data['key'][0]: 5.0}")
            weighted = self.one(*(weights if names else weights[:4]))
            if self.often(0.3):
                self.made.options["epoch_size"] = str(
                    self.rng.randint(1, max(1, len(self.whole) // 2))
                )
                weighted += ", replacement=" + self.one("False", "False", "True")
            made = f"fastpipe.Weighted({weighted})"
        elif kind < 0.5:
            samples = self.rng.choice((1, 1, 2, 3))
            many = self.rng.choice((None, None, 1, 2, 3))
            self.made.options["batch_size"] = str(samples * (many or self.rng.choice((1, 2))))
            made = f"fastpipe.PerClass({samples}{'' if many is None else f', classes={many}'})"
        elif kind < 0.8:
            made = self.one(
                "lambda epoch: np.random.default_rng(epoch).permutation(len(data))",
                "lambda epoch: [*range(len(data))][::-1]",
                "[0] * 7 + [*range(len(data))]",
                "torch.utils.data.RandomSampler(range(len(data)))",
                "torch.utils.data.SubsetRandomSampler(range(0, len(data), 2))",
                "torch.utils.data.DistributedSampler(range(len(data)), num_replicas=1, rank=0)",
            )
            if self.often(0.9):
                self.made.options.pop("epoch_size", None)
        else:
            made = "fastpipe.Sequential()" if self.often(0.4) else "None"
        if self.often(0.3):
            times = self.rng.choice((2, 3))
            if "PerClass" in made:
                self.made.options["batch_size"] = str(times * int(self.made.options["batch_size"]))
            made = (
                f"fastpipe.Repeated({times}, {made})"
                if made != "None"
                else f"fastpipe.Repeated({times})"
            )
        return made

    def _augment(self, train: bool) -> None:
        if self.made.options.get("size") == "1":
            self.made.options["size"] = "6"  # kornia blurs no single pixel
        inner = self.rng.sample(MODULES, self.rng.randint(0, 2))
        options = ", ".join(self.rng.sample(MORE, self.rng.choice((0, 0, 1, 2))))
        self.made.options["augment"] = self.one(
            f"fastpipe.Augment([{', '.join(inner)}], **dict({options}))",
            f"[{', '.join(inner or MODULES[:1])}]",
            f"fastpipe.Augment.imagenet({options})",
            f"fastpipe.Augment.simclr({options})",
            f"fastpipe.Augment.randaugment({options})",
            f"fastpipe.Augment.trivial_augment({options})",
            MOVED,
            MODULES[0],
        )

    def _fields(self, train: bool) -> None:
        options, usual = self.made.options, [*USUAL]
        if "Buckets" in options.get("size", ""):
            usual += OF_BUCKETS
        if "Native" in options.get("size", ""):
            usual.append("image_size")
        if "Patches" in options.get("size", ""):
            usual += OF_PATCHES
            if "padded" in options["size"]:
                usual.remove("cu_seqlens")
        crop = options.get("crop", "")
        if "CropAt" in crop or "Grid" in crop:
            usual += OF_PARTS
        augment = options.get("augment", "")
        if ("mixup" in augment or "cutmix" in augment) and self.often(0.7):
            usual += OF_MIXING
        some = self.rng.sample(usual, self.rng.randint(0, len(usual)))
        some += self.rng.sample(list(self.fields), self.rng.randint(0, min(5, len(self.fields))))
        self.rng.shuffle(some)
        if self.often(0.8):
            some += [name for name in ("id", "valid", "epoch") if name not in some]
        several = "views" in options or "Crop" in options.get("crop", "").replace("CenterCrop", "")
        if several or self.often(0.85):
            some.insert(self.rng.randint(0, len(some)), "image")
        elif not some:
            some.append("id")
        texts = {name: repr(name) for name in some}
        if "boxes" in some and self.often(0.8):
            area = f", min_area={self.one('0', '10.0')}" if self.often(0.3) else ""
            form, least = self.one("'list'", "'flat'", "'pad'"), self.one("0", "0.0", "1.0", "4")
            texts["boxes"] = f"fastpipe.Boxes('boxes', form={form}, min_size={least}{area})"
        if "pose" in some and self.often(0.85):
            pairs = self.one("[]", "[(1, 2)]", "[(0, 1), (2, 3)]", "((3, 4),)")
            texts["pose"] = f"fastpipe.Points('pose', flip_pairs={pairs})"
        options["fields"] = f"[{', '.join(texts[name] for name in some)}]"

    def _others(self, train: bool) -> None:
        options = self.made.options
        for share, name, *texts in (
            (0.2, "hflip", "True", "False", "0.0", "1.0", "0.3"),
            (0.2, "shuffle", "True", "False"),
            (0.5, "seed", "0", "1", "77", "2**64 - 1", "2**63"),
            (0.3, "drop_last", "True", "False"),
            (0.7, "num_workers", "1", "1", "2", "3"),
            (0.3, "prefetch_factor", "1", "3", "7"),
            (0.1, "device", "'cpu'", "torch.device('cpu')", "None"),
            (0.2, "exact", "True", "False"),
            (0.15, "on_error", "'replace'", "'raise'"),
            (0.15, "verify", "True", "False"),
            (0.15, "partition", "'sample'", "'node'", "1", "2", "4"),
            (0.1, "stall_timeout", "30", "1.5"),
        ):
            if self.often(float(share)):  # type: ignore[arg-type]
                options[str(name)] = self.one(*texts)  # type: ignore[arg-type]
        if (
            "augment" not in options
            and "augment" not in options.get("views", "")
            and self.often(0.3)
        ):
            options["channels"] = self.one("'rgb'", "'gray'", "'rgba'")
            options["dtype"] = self.one("torch.uint8", "torch.uint16", "torch.float32")
        if self.often(0.1):
            for opening in self.made.opening:
                opening["max_pixels"] = self.one("10_000", "4_000_000_000")


def fields_of(made: Draw) -> dict[str, str]:
    """Names and kinds of the fields that all of the datasets have."""
    first, *others = (part.fields for part in made.parts)
    return {
        name: kind for name, kind in first.items() if all(each.get(name) == kind for each in others)
    }
