"""A draw of a dataset and of the forms of its samples -> these, compared with the sources and with a loader's rows."""

from __future__ import annotations

import pickle
import random
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch
from support.walk.composed import Composed, Refused, composed
from support.walk.deeds import evaluated, names
from support.walk.drawing import Draw, Step, steps_of
from support.walk.model import PLACED, expect
from support.walk.taking import as_bytes
from support.walk.walked_data import Known
from support.walk.walked_values import FIXED_CROPS, MANY_CROPS, RANDOM_CROPS, UNSURE, WRONG, WRONG_STEPS
from torch.utils.data import DataLoader

import fastpipe

CROPPED = ("crop", "size", "hflip", "seed", "exact")
OPTIONS = (*CROPPED, "max_pixels", "fields")


def draw_dataset(seed: int, number: int, known: dict[str, Known], *, urls: bool = False) -> Draw:
    """The same for the same numbers."""
    rng = random.Random(f"dataset {seed}/{number}")
    part = known[rng.choice(list(known))]
    made = Draw(number, [part], [{}], [steps_of(rng, len(part), part.names)], kind="Dataset")
    if urls and part.packed and rng.random() < 0.05:
        made.urls.add(0)
        made.opening[0] = {"cache_dir": "cache", "read_timeout": "5"}
    options = made.options
    if rng.random() < 0.6:
        options["crop"] = rng.choice(FIXED_CROPS + RANDOM_CROPS + MANY_CROPS)
        for share, name, *texts in (
            (0.8, "size", "8", "(10, 17)", "40"),
            (0.4, "hflip", "True", "False", "0.3", "1.0"),
            (0.5, "seed", "0", "5", "2**64 - 1"),
            (0.3, "exact", "True", "False"),
        ):
            if rng.random() < float(share):  # type: ignore[arg-type]
                options[str(name)] = rng.choice(texts)  # type: ignore[arg-type]
    if rng.random() < 0.6:
        some = rng.sample(["label", "id", "key"], rng.randint(0, 3))
        some += rng.sample(list(part.fields), rng.randint(0, min(5, len(part.fields))))
        some += ["image"] if rng.random() < 0.8 or not some else []
        rng.shuffle(some)
        options["fields"] = str(some)
    if rng.random() < 0.2:
        made.opening[0]["max_pixels"] = rng.choice(("10_000", "4_000_000_000", "3000"))
    if rng.random() < 0.25:
        table, kept = (WRONG, made.wrong) if rng.random() < 0.7 else (UNSURE, made.unsure)
        names = ["crop", "fields", *(CROPPED[1:] if "crop" in options else ())]
        name = rng.choice([name for name in names if name in table])
        options[name] = rng.choice([text for text in table[name] if text != "None"])
        kept.add(name)
    elif rng.random() < 0.1:
        name = rng.choice(list(WRONG_STEPS))
        made.after.append(Step(name, rng.choice(WRONG_STEPS[name]), "[0]" if name == "fold" else ""))
        made.wrong.add(name)
    made.how = {name: rng.randrange(1 << 30) for name in ("a", "b", "c", "d")}
    return made


class DatasetWalk:
    """One draw, done."""

    def __init__(self, draw: Draw, folder: Path, url: str, counts: Counter[str]) -> None:
        self.draw = draw
        self.folder = folder
        self.names = names(folder, url)
        self.counts = counts
        self.options: dict[str, Any] = {}
        self.samples: Composed

    def do(self) -> str:
        """How it ended.

        Raises:
            Wrong: not as the docs say.
        """
        draw, known = self.draw, self.draw.parts[0]
        try:
            self.data = dataset = self._evaluate(draw.data)
            self.options = {name: self._evaluate(text) for name, text in draw.options.items()}
            crop = [self.options[name] for name in CROPPED[:1] if name in self.options]
            more = {name: self.options[name] for name in CROPPED[1:] if name in self.options}
            fields = self.options.get("fields")
            if fields is not None and draw.how["d"] % 2:
                dataset = dataset.with_fields(fields)
            if crop:
                dataset = dataset.cropped(*crop, **more)
            if fields is not None and not draw.how["d"] % 2:
                dataset = dataset.with_fields(fields)
            expect(not (draw.wrong - {"fields"}), "a Dataset takes", {name: draw.options[name] for name in draw.wrong})
            self.samples = composed(draw, self._evaluate)
            self._look(dataset)
        except fastpipe.ConfigError as error:
            many = "FiveCrop" in draw.options.get("crop", "") or "TenCrop" in draw.options.get("crop", "")
            small = "resize" in draw.options.get("crop", "")
            known_reason = draw.wrong or draw.unsure or self._refused() or many or small
            mirrored = "TenCrop" in draw.options.get("crop", "") or getattr(self, "options", {}).get("hflip")
            expect(
                known_reason or (mirrored and "pose" in draw.options.get("fields", "")),
                "a ConfigError that the docs do not announce:",
                error,
            )
            expect(
                any(
                    name in str(error)
                    for name in (
                        *OPTIONS,
                        *("select", "only", "take", "fold", "with_labels", "with_column"),
                        "Boxes",
                        "Points",
                        "antialias",
                        "interpolation",
                        "padding",
                        "fill",
                        "centered",
                        "scale",
                        "ratio",
                        "resize",
                        "area",
                        "sides",
                        "pad_if_needed",
                    )
                ),
                "names no option:",
                error,
            )
            return "dataset refused"
        except fastpipe.SampleError:
            if not known.damaged:
                raise
            return "bad sample"
        except fastpipe.DatasetError:
            if "max_pixels" not in draw.opening[0]:
                raise
            return "too many pixels"
        self.counts["datasets"] += 1
        return "dataset done"

    def _evaluate(self, text: str) -> Any:
        return evaluated(text, self.names)

    def _refused(self) -> bool:
        """Whether a method leaves nothing."""
        try:
            composed(self.draw, self._evaluate)
        except Refused:
            return True
        return False

    def _look(self, dataset: fastpipe.Dataset) -> None:
        draw, known, samples = self.draw, self.draw.parts[0], self.samples
        count, labels = len(samples), [row.label for row in samples.rows]
        expect(len(dataset) == count, "len", len(dataset), "not", count)
        expect(dataset.classes == samples.classes, "classes", dataset.classes)
        expect(dataset.targets.tolist() == labels, "targets", dataset.targets, "not", labels)
        expect(dataset.class_to_idx == {name: place for place, name in enumerate(dataset.classes)}, "class_to_idx")
        counted = [labels.count(label) for label in range(len(dataset.classes))]
        expect(dataset.class_counts == counted, "class_counts", dataset.class_counts, "not", counted)
        self._look_at_columns(dataset)
        rng = random.Random(draw.number)
        numbers = [rng.randrange(count) for _ in range(4)]
        crop = "crop" in draw.options
        if crop:
            epoch = draw.how["a"] % 5
            dataset.set_epoch(epoch)
        else:
            dataset.set_epoch(1)  # changes nothing of whole images
        single = {number: dataset[number] for number in numbers}
        for number, sample in single.items():
            self._check(sample, number)
        again = pickle.loads(pickle.dumps(dataset))  # noqa: S301
        for number, sample in single.items():
            expect(_bytes(again[number]) == _bytes(sample), "another sample", number, "after pickling")
        expect(_bytes(dataset[-1]) == _bytes(dataset[count - 1]), "dataset[-1] is not the last")
        for wrong in (count, -count - 1):
            try:
                dataset[wrong]
            except IndexError:
                continue
            expect(False, "dataset takes number", wrong, "of", count)
        if draw.how["b"] % 4 == 0 and not known.damaged:
            workers = 0 if draw.by_url or draw.how["c"] % 8 else 2
            batches = list(DataLoader(dataset, batch_size=3, num_workers=workers, collate_fn=list))
            got = [sample for batch in batches for sample in batch]
            expect(len(got) == count, "DataLoader gives", len(got))
            for number, sample in single.items():
                expect(_bytes(got[number]) == _bytes(sample), "another sample", number, "from DataLoader")
            self.counts["DataLoaders"] += 1
        if (
            crop
            and "fields" not in draw.options
            and not known.damaged
            and "TenCrop" not in draw.options["crop"]
            and "FiveCrop" not in draw.options["crop"]
        ):
            self._compare(single, epoch)

    def _compare(self, single: dict[int, Any], epoch: int) -> None:
        """With a loader's rows."""
        options = {name: value for name, value in self.options.items() if name in CROPPED}
        options.setdefault("hflip", False)
        with fastpipe.loader(self.data, 5, drop_last=False, num_workers=1, train=True, **options) as loader:
            loader.set_epoch(epoch)
            rows = {n: image for batch in loader for n, image in zip(batch.ids.tolist(), batch[0], strict=True)}
        for number, (image, _) in single.items():
            expect(torch.equal(rows[number], torch.as_tensor(image)), "sample", number, "is not the loader's row")
        self.counts["rows of Datasets"] += len(single)

    def _look_at_columns(self, dataset: fastpipe.Dataset) -> None:
        """Those of numbers and texts: all at once, and one value."""
        known, rows = self.draw.parts[0], self.samples.rows
        numbers = [row.number for row in rows]
        expect(dataset["width"][:].tolist() == [known.sizes[n][0] for n in numbers], "widths")
        expect(np.asarray(dataset["height"]).tolist() == [known.sizes[n][1] for n in numbers], "heights")
        expect(dataset["id"][:].tolist() == list(range(len(rows))), "ids")
        keys = dataset["key"]
        expect(all(key.endswith(known.keys[n]) for key, n in zip(keys[:], numbers, strict=True)), "keys")
        place = self.draw.how["c"] % len(rows)
        expect(keys[place] == keys[:][place] and dataset["label"][place] == rows[place].label, "one value of a column")
        for name in {"score", "caption", "extra"} & {*dataset.columns}:
            values = known.values.get(name)
            wanted = [dict(row.added)[name] if values is None else values[row.number] for row in rows]
            expect(dataset[name][:].tolist() == wanted, "column", name, dataset[name][:], "not", wanted)
            expect(dataset[name][[place, 0]].tolist() == [wanted[place], wanted[0]], "two values of column", name)

    def _check(self, sample: Any, place: int) -> None:
        fields, known, row = self.options.get("fields"), self.draw.parts[0], self.samples.rows[place]
        number = row.number
        if fields is None:
            image, label = sample
            expect(label == row.label and isinstance(label, int), "label", label)
            self._check_image(image, number, known)
            return
        keys = [key for key in sample if not key.endswith(("_labels", "_visibility"))]
        expect(keys == list(fields), "keys", list(sample), "for", fields)
        for key, value in sample.items():
            if key == "image":
                self._check_image(value, number, known)
            elif key == "label":
                expect(value == row.label, "label", value)
            elif key == "id":
                expect(value == place, "id", value)
            elif key == "key":
                expect(value.endswith(known.keys[number]), "key", value)
            elif key in known.values:
                wanted = known.values[key][number]
                if key == "embedding":
                    same = np.array_equal(np.asarray(value), np.asarray(wanted, dtype=np.float32))
                elif key == "tags":
                    same = {each for each, on in enumerate(value.tolist()) if on} == {int(tag[4:]) for tag in wanted}
                else:
                    same = value == wanted
                expect(same, "field", key, "of sample", number, "is", value, "not", wanted)
            elif known.fields.get(key) in PLACED:
                rows = value if isinstance(value, list) else [value]
                many = {fastpipe.FiveCrop: 5, fastpipe.TenCrop: 10}.get(type(self.options.get("crop")), 1)
                expect(len(rows) == (many if known.fields[key] in ("boxes", "keypoints") else 1), "field", key, value)
                expect(all(isinstance(row, torch.Tensor) for row in rows), "field", key, type(value))

    def _check_image(self, image: Any, number: int, known: Known) -> None:
        expect(image.dtype == torch.uint8, "dtype", image.dtype)
        if "crop" not in self.draw.options:
            wide, high = known.sizes[number]
            expect(tuple(image.shape) == (3, high, wide), "shape", tuple(image.shape), "of", known.sizes[number])
            return
        size = self.options.get("size") or 224
        high, wide = (size, size) if isinstance(size, (int, np.integer)) else tuple(size)
        expect(tuple(image.shape[-3:]) == (3, int(high), int(wide)), "shape", tuple(image.shape))


def _bytes(sample: Any) -> Any:
    parts = sample.values() if isinstance(sample, dict) else sample
    return [as_bytes(torch.as_tensor(part)) if isinstance(part, torch.Tensor) else as_bytes(part) for part in parts]
