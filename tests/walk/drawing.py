"""(seed, number) -> a draw: data, options of fastpipe.loader as Python's text, and what is done with the loader."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from walk.walked_data import Known
from walk.walked_values import FIXED_CROPS, MANY_CROPS, MODULES, MOVED, RANDOM_CROPS, UNSURE, WRONG

Texts = Sequence[str]


@dataclass
class Draw:
    """What is tried.

    Attributes:
        kind: "loader", or "Dataset".
        parts: the datasets, one or those of a mixture.
        data: text of it.
        options: of fastpipe.loader, as text.
        wrong: the options that no loader may take.
        unsure: those of which the docs do not say whether a loader takes them.
        deed: what is done with the loader.
        how: numbers for the deed.
        by_url: a server has the data.
    """

    number: int
    parts: list[Known]
    data: str
    options: dict[str, str] = field(default_factory=dict)
    wrong: set[str] = field(default_factory=set)
    unsure: set[str] = field(default_factory=set)
    deed: str = "epochs"
    how: dict[str, int] = field(default_factory=dict)
    by_url: bool = False
    kind: str = "loader"

    @property
    def mixed(self) -> bool:
        return len(self.parts) > 1

    def call(self) -> str:
        options = "".join(f", {name}={text}" for name, text in self.options.items())
        return f"fastpipe.{self.kind}({self.data}{options})"


def draw(seed: int, number: int, known: dict[str, Known], *, urls: bool = True) -> Draw:
    """The same for the same numbers."""
    rng = random.Random(f"{seed}/{number}")
    names = list(known)
    count = 1 if rng.random() < 0.85 else rng.choice((2, 2, 3))
    parts = rng.sample([known[name] for name in names], count)
    texts = [f"at({part.at!r})" for part in parts]
    if urls and rng.random() < 0.06:
        packed = [place for place, part in enumerate(parts) if part.packed]
        if packed and (count == 1 or all(part.packed for part in parts)):
            texts[packed[0]] = f"url({parts[packed[0]].at!r})"
    made = Draw(number, parts, texts[0])
    made.by_url = any(text.startswith("url") for text in texts)
    if made.mixed:
        weights = [rng.choice(("1", "0.3", "0.7", "2.5", "0.05")) for _ in parts]
        made.data = "{" + ", ".join(f"{text}: {weight}" for text, weight in zip(texts, weights, strict=True)) + "}"
    _Options(rng, made).draw()
    made.deed = rng.choices(
        ["epochs", "again", "resume", "ranks", "set_size", "close", "two", "part"], [3, 2, 4, 4, 1, 1, 1, 1]
    )[0]
    made.how = {name: rng.randrange(1 << 30) for name in ("a", "b", "c", "d")}
    return made


MORE = ("dtype=torch.bfloat16", "mean=None, std=None", "erasing=0.5", "mixup=0.2", "cutmix=1.0", "label_smoothing=0.1")


class _Options:
    def __init__(self, rng: random.Random, made: Draw) -> None:
        self.rng = rng
        self.made = made
        self.whole = made.parts[0]
        self.fields: dict[str, str] = {} if made.mixed else self.whole.fields

    def one(self, *texts: str) -> str:
        return self.rng.choice(texts)

    def often(self, share: float) -> bool:
        return self.rng.random() < share

    def draw(self) -> None:
        """Each option with a probability of its own; then, sometimes, one that is wrong."""
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
        ]
        for share, maker in makers:
            if self.often(share):
                maker(train)
        for share, table, kept in ((0.2, WRONG, self.made.wrong), (0.12, UNSURE, self.made.unsure)):
            if self.often(share):
                name = self.rng.choice(list(table))
                if name == "world_size" and "rank" in options:
                    continue
                options[name] = self.rng.choice(table[name])
                self.made.wrong.discard(name)
                kept.add(name)
        if "rank" in options:
            options["world_size"] = "1"
        elif "world_size" in options:
            options["rank"] = "0"

    def _sizes(self, train: bool) -> None:
        options = self.made.options
        options["size"] = self.one("8", "12", "16", "(10, 17)", "(20, 8)", "1", "70")
        kind = self.rng.random()
        if kind < 0.06:
            options["size"] = "lambda epoch: 8 + 4 * (epoch % 3)"
        elif kind < 0.12:
            del options["size"]
            options["size_choices"] = self.one("[8, 12]", "[(8, 12), 16, 4]", "[9]")
        elif kind < 0.2:
            options["size"] = self.one(
                "fastpipe.Buckets(area=300, size_divisible=4)",
                "fastpipe.Buckets(min_size=12, max_size=20, size_divisible=8)",
                "fastpipe.Buckets(area=400, size_divisible=1, fill=(1, 2, 3), interpolation='bicubic')",
                "fastpipe.Buckets(min_size=10)",
            )

    def _crop(self, train: bool) -> None:
        if "Buckets" in self.made.options.get("size", "") and self.often(0.9):
            return
        kinds = (FIXED_CROPS, RANDOM_CROPS) if train else (FIXED_CROPS, FIXED_CROPS, RANDOM_CROPS, MANY_CROPS)
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
        options, known = self.made.options, self.whole
        everything, names = len(known), known.names
        if not self.made.mixed and self.often(0.25):
            some = self.rng.sample(range(everything), self.rng.randint(1, everything))
            mask = [number in some for number in range(everything)]
            options["samples"] = self.one(
                str(some),
                f"np.array({sorted(some)})",
                f"torch.tensor({some})",
                f"np.array({mask})",
                f"torch.tensor({mask})",
                f"range({everything // 3}, {everything})",
            )
            if self.often(0.1):
                options["samples"] = self.one(
                    "[]",
                    "[0, 0]",
                    f"[{everything}]",
                    "[-1]",
                    "[0.5]",
                    "'all'",
                    f"np.ones({everything + 1}, bool)",
                    f"np.zeros({everything}, bool)",
                    "[[0]]",
                    "5",
                )
                self.made.wrong.add("samples")
        if names and self.often(0.25):
            options["classes"] = str(self.rng.sample(names, self.rng.randint(1, len(names))))
            if self.often(0.4):
                options["labels"] = self.one("'keep'", "'renumber'")
            if self.often(0.1):
                options["classes"] = self.one("['nothing']", repr([names[0]] * 2), "[]", repr(names[0] * 2), "[0]", "5")
                self.made.wrong.add("classes")
        if self.made.mixed and self.often(0.5):
            options["labels"] = self.one("'union'", "'offset'", "'own'")
        if self.often(0.15):
            options["limit"] = self.one("0.5", "0.9", "1.0")
        if self.often(0.15):
            options["kfold"] = self.one("(2, 0)", "(3, 2)", "(5, 0)", "(5, 4)")
        if not self.made.mixed and self.often(0.25):
            self._weights(everything, names)
        if self.often(0.15):
            options["repeats"] = self.one("2", "3", "5")
        if self.often(0.2):
            options["epoch_size"] = str(self.rng.randint(1, 2 * everything))
            if self.made.mixed and self.often(0.5):
                options["epoch_size"] = self.one("'smallest'", "'largest'")

    def _weights(self, everything: int, names: list[str]) -> None:
        options = self.made.options
        numbers = [self.rng.choice((0.0, 0.5, 1.0, 1.0, 3.0, 20.0)) for _ in range(everything)]
        options["weights"] = self.one(str(numbers), f"np.array({numbers})", f"torch.tensor({numbers})")
        if not any(numbers):
            self.made.wrong.add("weights")
        if names and self.often(0.5):
            options["weights"] = self.one(
                repr({names[0]: 3.0}),
                repr(dict.fromkeys(names, 1.5)),
                f"fastpipe.balanced(fastpipe.open({self.made.data}))",
            )
            self.made.wrong.discard("weights")
        if self.often(0.1):
            options["weights"] = self.one(
                f"[0.0] * {everything}",
                f"[1.0] * {everything + 1}",
                f"[-1.0] * {everything}",
                "'even'",
                "5",
                f"[float('nan')] * {everything}",
                f"[float('inf')] * {everything}",
                "{'nothing': 2.0}",
                f"['x'] * {everything}",
                "[]",
            )
            self.made.wrong.add("weights")
        if self.often(0.3):
            options["replacement"] = self.one("False", "False", "True")
            options["epoch_size"] = str(self.rng.randint(1, max(1, everything // 2)))

    def _augment(self, train: bool) -> None:
        if self.made.options.get("size") == "1":
            self.made.options["size"] = "6"  # kornia blurs no single pixel
        inner = self.rng.sample(MODULES, self.rng.randint(0, 2))
        options = ", ".join(
            self.rng.sample(
                MORE,
                self.rng.choice((0, 0, 1, 2)),
            )
        )
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
        options, usual = self.made.options, ["label", "id", "key", "valid", "epoch"]
        if self.made.mixed and self.often(0.5):
            usual.append("source")
        if "Buckets" in options.get("size", ""):
            usual += ["image_size", "pixel_mask"]
        augment = options.get("augment", "")
        if ("mixup" in augment or "cutmix" in augment) and self.often(0.7):
            usual += ["mix_lam", "mix_index"]
        some = self.rng.sample(usual, self.rng.randint(0, len(usual)))
        some += self.rng.sample(list(self.fields), self.rng.randint(0, min(5, len(self.fields))))
        self.rng.shuffle(some)
        if self.often(0.8):
            some += [name for name in ("id", "valid", "epoch") if name not in some]
        some.insert(self.rng.randint(0, len(some)), "image")
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
            (0.1, "partition", "'sample'", "'node'"),
            (0.05, "canonical_nodes", "1", "2"),
            (0.1, "max_pixels", "10_000", "4_000_000_000"),
            (0.1, "stall_timeout", "30", "1.5"),
        ):
            if self.often(float(share)):  # type: ignore[arg-type]
                options[str(name)] = self.one(*texts)  # type: ignore[arg-type]
        if self.made.by_url:
            options.update({"cache_dir": "cache", "read_timeout": "5"})
            if self.often(0.4):
                options["cache_limit"] = self.one("0", "'200GB'", "'2MB'")
