"""A dataset as a value: its columns, its samples by number, and other datasets that are chosen from it."""

from __future__ import annotations

import logging
import operator
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import torch.utils.data
import xxhash
from numpy.typing import ArrayLike

from fastpipe.errors import ConfigError, flag, real_number, whole
from fastpipe.format.columns import starts_of
from fastpipe.format.fields import check_name
from fastpipe.format.layout import NO_LABEL
from fastpipe.plan.crops import Crop
from fastpipe.plan.draws import Int64s, Stream
from fastpipe.samples.by_id import Derived, Values, spans
from fastpipe.samples.choosing import array_of, chosen_ids, draws_of_pictures, near
from fastpipe.samples.data import Data, StoredDataset, joined
from fastpipe.samples.field_classes import check_fields_agree, check_fields_alone
from fastpipe.samples.fields import sample_fields
from fastpipe.samples.folding import parts_of, warn_of_missing_classes
from fastpipe.samples.saved import save
from fastpipe.samples.single import Cropping, SampleReader, Single

if TYPE_CHECKING:  # most programs give no classes
    from fastpipe.sources.class_names import ClassNames

_LOG = logging.getLogger("fastpipe")


class Dataset(Data, torch.utils.data.Dataset[Any]):
    """The samples of a packed dataset, of photos and tars as they lie, or of several of these: a value that is cheap to
    make and never changes. `fastpipe.open` creates it; its methods, `fastpipe.concat` and `fastpipe.mix` create others.

    `len(data)`, `data.classes`. `data["label"]` is a column: also "width" and "height" in pixels, "channels" (1: gray,
    3: RGB, 4: with alpha) and "bits" (8 or 16) as stored, "key" (the path of the source), "id", "source" (of which
    dataset a sample is) and the fields of numbers and texts. Columns are read when they are needed, and by ranges.

    `data[17]` is (image, label), a map-style dataset like torchvision's ImageFolder, also for torch's DataLoader: the
    image, decoded on the calling thread, and its label, an int. The image is a uint8 tensor of shape (3, height,
    width), RGB, 0 to 255, in its own memory, with the strides of torch.channels_last: resizing is fastest with them,
    and `image.permute(1, 2, 0).numpy()` copies nothing. `data[3:9]` is a list of samples. See `with_transform`,
    `cropped`, `with_pixels` and `with_fields` for other forms of a sample.

    You can use it in several threads, in forked children and in DataLoader workers of every start method (of a URL:
    "forkserver" or "spawn", since requests cannot be made in a forked child). Its pickle contains paths, fingerprints
    and what was chosen. Each process opens the files again at its first read.
    """

    _single: Single
    _opened: SampleReader | None = None

    def __init__(self, stored: Sequence[StoredDataset], *_: object, **__: object) -> None:
        if isinstance(stored, (str, os.PathLike)):
            raise ConfigError(
                f"fastpipe.Dataset({str(stored)!r}): open it with fastpipe.open({str(stored)!r}); a transform, crops "
                "and fields of single samples come with .with_transform(...), .cropped(...) and .with_fields(...)"
            )
        super().__init__(stored)
        self._single = Single()

    def __getitem__(self, which: Any) -> Any:
        """A column by its name; a sample by its number, where negative numbers count from the end; some samples by a
        slice.

        Raises:
            IndexError: there is no such sample.
            SampleError: it cannot be read or decoded.
            DatasetError: the index is damaged, or the folder now holds a different dataset.
        """
        if isinstance(which, str):
            return self.column(which)
        if isinstance(which, slice):
            return self.__getitems__(range(*which.indices(len(self))))
        return self.__getitems__([which])[0]

    def __getitems__(self, ids: Sequence[int]) -> list[Any]:
        """Several samples at once; DataLoader calls this for its batches. Raises the errors of `data[n]`."""
        if self._opened is None or self._opened.process != os.getpid():
            self._opened = SampleReader(self, self._single)
        return self._opened.of(np.array([self._id(each) for each in ids], dtype=np.int64))

    def __iter__(self) -> Iterator[Any]:
        return (self[number] for number in range(len(self)))

    def _id(self, number: object) -> int:
        try:
            found: int = operator.index(number)  # type: ignore[arg-type]
        except TypeError:
            raise ConfigError(
                f"expected the number of a sample, a slice or the name of a column, got {number!r}; for several "
                "samples: data.select(numbers)"
            ) from None
        count = len(self)
        if not -count <= found < count:
            raise IndexError(f"there is no sample {found}: {self.path} has {count}, numbered 0 to {count - 1}")
        return found % count

    # Other datasets

    def select(self, chosen: Any) -> Dataset:
        """Some of the samples.

        Args:
            chosen: numbers of samples, each once: they come in this order; or a mask with True or False for each; or
                keys; or a function that gets the columns of some samples (`c["score"] > 0.5`) and returns their mask.
                With a function of columns the memory stays small, however many samples there are.

        Raises:
            ConfigError: it is no choice, or no sample is left.
        """
        return self._chosen(chosen_ids(self, chosen), "select")

    def only(self, classes: Sequence[str], *, keep_labels: bool = False) -> Dataset:
        """The samples of some classes. A label is then the position in `classes`.

        Args:
            classes: their names.
            keep_labels: labels and `data.classes` stay as they are.
        """
        if not isinstance(classes, (list, tuple)) or not classes:
            raise ConfigError(f"only: expected names of classes, for example {self.classes[:2]!r}, got {classes!r}")
        known = self.class_to_idx
        for name in classes:
            if not isinstance(name, str) or name not in known:
                raise ConfigError(f"only: {self.path} has no class {name!r}{near(name, self.classes)}")
            if classes.count(name) > 1:
                raise ConfigError(f"only: expected each name once, got {name!r} again")
        new = np.full(len(known) + 1, NO_LABEL, dtype=np.int64)  # the last one is that of NO_LABEL
        new[[known[name] for name in classes]] = np.arange(len(classes))
        masks = [new[self.by_id("label").take(ids)] != NO_LABEL for ids in spans(len(self))]
        found = self._chosen(np.flatnonzero(np.concatenate(masks)), "only")
        if flag("keep_labels", keep_labels):
            return found
        check_fields_agree(self.fields, classes, "only", ", or pass keep_labels=True")
        return found._renumbered(classes, new[:-1].tolist())

    def with_classes(self, classes: Sequence[str]) -> Dataset:
        """The same samples, whose labels are positions in `classes`, by name: such as those of the training data.

        Args:
            classes: names of all classes, each once. They include those that have samples; one may have none.

        Raises:
            ConfigError: they are no names, or a class that has samples is not among them.
        """
        from fastpipe.sources.classes_from import checked_names  # most programs give no classes

        if not isinstance(classes, (list, tuple)):
            raise ConfigError(f"with_classes: expected a list of the names of all classes, got {classes!r:.100}")
        names = checked_names(classes, "with_classes")
        if not self.classes:
            if check_fields_alone(self.fields, names, "with_classes", self.path):
                return self
            raise ConfigError(f"with_classes: {self.path} has no classes; with_labels(labels, classes=) gives it some")
        places = {name: number for number, name in enumerate(names)}
        numbers = [places.get(name, NO_LABEL) for name in self.classes]
        if NO_LABEL in numbers:
            counted = zip(self.classes, self.class_counts, numbers, strict=True)
            for name, count, number in counted:
                if count and number == NO_LABEL:
                    raise ConfigError(
                        f"with_classes: {count:,} samples of {self.path} are of the class {name!r}, which is not among "
                        f"the {len(names):,} names{near(name, names)}. Add it, or leave its samples out: "
                        "data.only(classes)"
                    )
        check_fields_agree(self.fields, names, "with_classes")
        return self._renumbered(names, numbers)

    def take(self, fraction: float) -> Dataset:
        """This fraction of the samples, the same whatever the seed. A hash of each source file decides, so a smaller
        fraction is a part of a larger one, and the same files are taken however and wherever they are stored. Of what
        is not packed 12 kB of each file are read for it, once.
        """
        found = real_number(fraction)
        if found is None or not 0 < found <= 1:
            raise ConfigError(f"take: expected a fraction above 0 and at most 1, got {fraction!r}; or use select()")
        return self._chosen(np.flatnonzero(draws_of_pictures(self.content, Stream.LIMIT) < found), "take")

    def fold(
        self, fold: int, *, of: int, stratify: str | None = None, groups: str | ArrayLike | None = None
    ) -> tuple[Dataset, Dataset]:
        """(the rest, part `fold` of `of`) for cross-validation. A hash of each source file decides, as in `take`: the
        same file is never in two parts. Both can be divided again, by another hash. The log says which classes one of
        the two lacks.

        Args:
            fold, of: which part, from 0 on, and how many there are.
            stratify: "label": each part has an equal share of each class, as far as its samples can be divided. The
                part of a sample then depends on the other samples, too. None: large classes only have about that share.
            groups: what must stay together, such as patients or videos: the name of a column of whole numbers or texts,
                or a value for each sample. No group is in two parts.

        Raises:
            ConfigError: an argument is wrong, or one of the two has no sample.
        """
        of = whole("fold: of", of, least=2, most=1 << 20)
        fold = whole("fold", fold, least=0, most=of - 1)
        inside = parts_of(self, of, level=self._folds, stratify=stratify, groups=groups) == fold
        if inside.all() or not inside.any():
            remedy = "" if stratify else ', or pass stratify="label", which deals them out'
            raise ConfigError(
                f"fold({fold}, of={of}): {'the rest' if inside.all() else 'the part'} has no sample, for there are few "
                f"{'samples' if groups is None else 'groups'} in {self.path}; choose fewer parts{remedy}"
            )
        rest, part = (self._chosen(np.flatnonzero(each), "fold") for each in (~inside, inside))
        what = f"fold({fold}, of={of}) of {self.path}"
        warn_of_missing_classes(self, part, rest, what, stratified=stratify is not None)
        return rest._with(folds=self._folds + 1), part._with(folds=self._folds + 1)

    def with_column(self, name: str, values: ArrayLike | Path | str) -> Dataset:
        """One more field: scores, pseudo-labels, outputs of a teacher, texts. Nothing is packed again.

        Args:
            name: of the field; one that is there already is replaced.
            values: a row for each sample: an array of numbers of any shape behind the first axis, a list of texts, or
                the path of an .npy file of these, of which only the rows of a batch are read.
        """
        try:
            check_name(name)
        except ValueError as problem:
            raise ConfigError(f"with_column: {problem}") from problem
        return self._with(added={**self._added, name: self._values("with_column", values)})

    def with_labels(self, labels: ArrayLike | Path | str, *, classes: Sequence[str] | None = None) -> Dataset:
        """Other labels: corrected ones, pseudo-labels, coarser classes.

        Args:
            labels: (samples,) whole numbers, -1 for a sample without a label, or names of classes; or the path of an
                .npy file of numbers.
            classes: names of the classes. None: those that there are; of names, all that occur, sorted.
        """
        given = self._values("with_labels", labels)
        if classes is not None and (isinstance(classes, str) or len({*map(str, classes)}) < len(classes)):
            raise ConfigError(f"with_labels: expected names of classes, each once, got {classes!r}")
        if given.rows.dtype.kind == "U":
            names = sorted(set(given.rows.tolist())) if classes is None else list(classes)
            places = {name: label for label, name in enumerate(names)}
            if unknown := [name for name in given.rows.tolist() if name not in places][:1]:
                raise ConfigError(f"with_labels: expected names of {names[:5]!r}, got {unknown[0]!r}")
            given, classes = Values(np.array([places[name] for name in given.rows.tolist()], dtype=np.int64)), names
        names = self.classes if classes is None else [*map(str, classes)]
        rows = given.rows
        if rows.ndim != 1 or rows.dtype.kind not in "iu":
            raise ConfigError(f"with_labels: expected whole numbers or names, got {rows.dtype} of shape {rows.shape}")
        low, high = int(rows.min()), int(rows.max())
        if low < NO_LABEL or high >= len(names):
            raise ConfigError(
                f"with_labels: expected labels from -1 to {len(names) - 1}, of {len(names)} classes, got "
                f"{low if low < NO_LABEL else high}; pass classes=, the names of all classes"
            )
        stay = [np.where(each < len(names), each, NO_LABEL) for each in self._stored_labels]
        found = Derived(given, partial(np.asarray, dtype=np.int64))
        hashed = xxhash.xxh3_64()
        for ids in spans(len(self)):
            hashed.update(found.take(ids).tobytes())
        identity = {**self._identity, "with_labels": hashed.hexdigest()}
        return self._with(relabelled=(names, stay), labels=found, identity=identity)

    def save_columns(self, destination: str | Path) -> None:
        """Writes the columns and labels of `with_column` and `with_labels` beside the dataset; `fastpipe.open` finds
        them there again.

        Args:
            destination: the folder of the dataset, or of a copy of it.

        Raises:
            ConfigError: samples have been chosen, or another dataset is there.
        """
        save(self, Path(destination))

    # Single samples

    def with_transform(self, transform: object, *, images: str = "tensor") -> Dataset:
        """The same samples, each changed by a function.

        Args:
            transform: a function of the image that returns the image of the sample. It is called as transform(tensor).
                If it is an albumentations transform, or has a keyword-only parameter `image`, it is called as
                transform(image=array), with (height, width, channels), and "image" is taken from the returned dict.
                If that is an array of such a shape, it becomes a tensor of shape (channels, height, width), also
                without ToTensorV2. It may change its input. After `with_fields` it is called as transform(sample), with
                the dict. Of several crops, without fields, it is called with each.
            images: what the transform gets: "tensor", (channels, height, width); or "pil", Pillow's image, which
                torchvision's first transforms (ToTensor, for example) and processors of Hugging Face expect. After
                `with_fields` this is the entry of "image".
        """
        return self._with(single=replace(self._single, transform=transform, images=images))

    def cropped(
        self,
        crop: Crop,
        size: int | tuple[int, int] = 224,
        *,
        hflip: bool | float = False,
        seed: int = 0,
        exact: bool = False,
    ) -> Dataset:
        """The same samples, each one crop, (channels, *size), or several, (K, channels, *size). Only what it needs is
        decoded, as fastpipe.loader does it, and resized: for samplers of your own this takes less time than a whole
        image alone.
        Boxes, points, masks and second images are cropped with the image.

        Args:
            crop: fastpipe.RandomResizedCrop, RandomCrop, CenterCrop, Resize, Letterbox, FiveCrop or TenCrop. Until
                `set_epoch`, torch's generator decides on random crops, as it does for torchvision's transforms.
            size: of the crops in pixels: a number for a square, or (height, width).
            hflip: mirror crops left to right: True (half of them), False, or a probability.
            seed: of crops and mirroring after `set_epoch`.
            exact: True: always decode at full size. See fastpipe.loader.
        """
        cropping = Cropping(crop, size, hflip=hflip, seed=seed, exact=exact)
        return self._with(single=replace(self._single, cropping=cropping))

    def with_pixels(self, channels: str = "rgb", dtype: torch.dtype = torch.uint8) -> Dataset:
        """The same samples, their images with other channels or another dtype. Second images have the same channels
        and bits, but are never floats, as in a loader.

        Args:
            channels: "rgb", "gray", "rgba" or "own".
            dtype: torch.uint8, torch.uint16 or torch.float32. See fastpipe.loader for both. A transform gets this.

        Raises:
            ConfigError: an argument is wrong, or with "own" samples have several numbers of channels.
        """
        from fastpipe.samples.pixels import Pixels

        pixels = Pixels(channels, dtype)
        pixels.form(self)  # said now, not at the first sample
        return self._with(single=replace(self._single, pixels=pixels))

    def with_fields(self, fields: Sequence[Any] | Mapping[str, Any]) -> Dataset:
        """The same samples, each a dict of these. Where torchvision is installed, the image, boxes and points in it are
        tv_tensors, so that the transforms of torchvision.transforms.v2 move them together.

        Args:
            fields: the keys of a sample, in this order: "image", "label", "id", "key", and names of the dataset's
                fields; see fastpipe.loader. Labels of boxes come as NAME_labels; points as (M, K, 2), and
                NAME_visibility (M, K). Without "image" nothing is decoded. Or a dict: {"pixel_values": "image"}.
        """
        return self._with(single=replace(self._single, fields=sample_fields(self, fields)))

    def set_epoch(self, epoch: int) -> None:
        """Of a `cropped` dataset: makes crops and mirroring a function of (seed, epoch, sample): those of
        fastpipe.loader with the same seed and options. Call it before each epoch, in the process that iterates over the
        DataLoader, or not at all. Workers see it, also persistent ones. Whole images are the same in all epochs.
        """
        if self._single.cropping is not None:
            self._single.cropping.set_epoch(epoch)

    @property
    def transform(self) -> Any:
        """The transform, as it was passed."""
        return self._single.transform

    @transform.setter
    def transform(self, transform: object) -> NoReturn:
        """timm.data.create_loader does this."""
        raise AttributeError(
            "a dataset does not change: data.with_transform(transform) is one with a transform. In a program for timm, "
            "import create_loader from fastpipe.timm, too"
        )

    # Inside

    def _renumbered(self, classes: Sequence[str], numbers: Sequence[int]) -> Dataset:
        """The same samples with other classes; `numbers` has the new label of each of the old ones."""
        names = list(classes)
        if names == self.classes and list(numbers) == list(range(len(names))):
            return self
        new = np.array([*numbers, NO_LABEL], dtype=np.int64)  # the last one is that of NO_LABEL
        said = names if len(names) <= 16 else xxhash.xxh3_64_hexdigest(repr(names).encode())
        return self._with(
            relabelled=(names, [new[each] for each in self._stored_labels]),
            labels=None if self._labels is None else Derived(self._labels, new.__getitem__),
            identity={**self._identity, "classes": said},
        )

    def _with_given(self, given: ClassNames) -> Dataset:
        """As `open` with classes_from."""
        from fastpipe.sources.class_names import are_positions  # most programs give no classes

        for name, names in given.fields:
            field = self.index.fields.get(name)
            if field is not None and field.names and field.names != names:
                raise ConfigError(
                    f"classes_from: the classes of the field {name!r} have other numbers in {self.path}; only labels "
                    "can be renumbered here. Pack its source again with classes_from"
                )
        if not given.labels and given.fields:
            return self  # there are only fields
        used = [name for name, count in zip(self.classes, self.class_counts, strict=True) if count]
        if not are_positions(self.classes, used, given.labels):
            return self.with_classes(given.labels)
        _LOG.warning("%s: assumed labels are numbers: number 0 is %r, and so on", self.path, given.labels[0])
        check_fields_agree(self.fields, given.labels, "classes_from")
        places = (number if number < len(given.labels) else NO_LABEL for number in range(len(self.classes)))
        return self._renumbered(given.labels, list(places))

    def _chosen(self, ids: Int64s, method: str) -> Dataset:
        """The samples with these ids, share by share. All of them in their order are the dataset itself."""
        if len(ids) == len(self) and np.array_equal(ids, np.arange(len(ids))):
            return self
        content = self.content
        shares = np.searchsorted(content.starts, ids, side="right") - 1
        counts = np.bincount(shares, minlength=len(content.weights))
        if not counts.all():
            share = f" of share {int(np.argmin(counts))}, and a mixture needs some of each" if content.mixed else ""
            raise ConfigError(f"{method}: none of the {len(self):,} samples of {self.path} is left{share}; choose more")
        if content.mixed:
            ids = ids[np.argsort(shares, kind="stable")]
        samples = content.numbers(ids)
        said = f"{len(samples)} {xxhash.xxh3_64_hexdigest(samples.astype('<i8').tobytes())}"
        return self._with(
            samples=samples,
            starts=starts_of(counts.tolist()),
            labels=None if self._labels is None else Derived(self._labels, ids=ids),
            added={name: Derived(column, ids=ids) for name, column in self._added.items()},
            identity={**self._identity, "samples": said},
        )

    def _values(self, method: str, given: Any) -> Values:
        if isinstance(given, (str, os.PathLike)):
            found = Values(Path(given).absolute())
        else:
            given = given.detach().cpu() if isinstance(given, torch.Tensor) else given
            array = array_of(given, f"{method}: expected rows of one shape").copy()  # the user may go on with theirs
            if array.dtype == object and all(isinstance(each, str) for each in array.ravel().tolist()):
                array = array.astype(str)
            found = Values(array)
        rows = found.rows
        if rows.dtype.kind not in "biufU" or rows.ndim < 1 or len(rows) != len(self):
            raise ConfigError(
                f"{method}: expected {len(self):,} rows of numbers or texts, one for each sample, got {rows.dtype} of "
                f"shape {rows.shape}"
            )
        return found

    def __add__(self, other: Any) -> Any:  # torch's ConcatDataset, of a dataset of another kind
        return joined([self, other], "union") if isinstance(other, Dataset) else super().__add__(other)

    def __repr__(self) -> str:
        count, classes = f"{len(self):,} samples", f"{len(self.classes):,} classes"
        whole = f" of {len(self.index):,}" if self._samples is not None else ""
        shares = f", mixed {' : '.join(f'{weight:g}' for weight in self._weights)}" if self.content.mixed else ""
        return f"<fastpipe dataset {str(self.path)!r}: {count}{whole}, {classes}{shares}{self._single!r}>"

    def _repr_html_(self) -> str:
        """What a notebook shows: the first samples, too, which are decoded for it."""
        from fastpipe.samples.page import page

        return page(self)
