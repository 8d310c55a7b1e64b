"""A dataset as a value: columns, samples by number, and datasets that are chosen from it."""

from __future__ import annotations

import logging
import operator
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Self

import numpy as np
import torch.utils.data
import xxhash
from numpy.typing import ArrayLike

from fastpipe.arguments import refusing_unknown
from fastpipe.arrays import Int64s
from fastpipe.dataset.base_dataset import BaseDataset
from fastpipe.dataset.choosing import draw_by_picture, parse_choice
from fastpipe.dataset.column_values import DerivedColumn
from fastpipe.dataset.cropping import Cropping
from fastpipe.dataset.divided_groups import warn_of_divided_groups
from fastpipe.dataset.field_classes import check_fields_agree, check_fields_alone
from fastpipe.dataset.fields import sample_fields
from fastpipe.dataset.folding import assign_parts, warn_of_missing_classes
from fastpipe.dataset.folds_of_versions import warn_of_changed_parts
from fastpipe.dataset.format.fields import check_name
from fastpipe.dataset.format.parts import parts_of, starts_of
from fastpipe.dataset.joining import join_selections
from fastpipe.dataset.order_of_keys import (
    warn_of_labels_in_order_of_keys,
    warn_of_values_in_order_of_keys,
)
from fastpipe.dataset.other_order import note_column_read
from fastpipe.dataset.relabelling import (
    check_field_classes,
    choose_classes,
    class_list_by_number,
    parse_class_list,
    parse_user_column,
    with_new_classes,
    with_user_labels,
)
from fastpipe.dataset.sample_reader import SampleFormat, SampleReader
from fastpipe.dataset.saved import save
from fastpipe.dataset.selection import Selection
from fastpipe.dataset.two_packs import check_one_pack
from fastpipe.dataset.unknown_attributes import describe_setting, describe_unknown
from fastpipe.errors import ConfigError, flag, real_number, whole
from fastpipe.plan.crops import Crop
from fastpipe.plan.draws import Stream

if TYPE_CHECKING:  # most programs give no classes
    from fastpipe.sources.class_names import ClassNames

_LOG = logging.getLogger("fastpipe")


class Dataset(BaseDataset, torch.utils.data.Dataset[Any]):
    """The samples of a packed dataset, of images and tars as they lie, or of several of these.

    It is immutable and cheap to make. `fastpipe.open` creates it; its methods,
    `fastpipe.concat` and `fastpipe.mix` create others.

    `len(data)`, `data.classes`. `data["label"]` is a column: also "width" and "height" in pixels,
    "channels" (1: gray, 3: RGB, 4: with alpha) and "bits" (8 or 16) as stored, "key" (the path of
    the source), "id", "source" (of which dataset a sample is) and the fields of numbers and texts.
    Columns are read when they are needed, and by ranges.

    `data[17]` is (image, label), a map-style dataset like torchvision's ImageFolder, also for
    torch's DataLoader: the image, decoded on the calling thread, and its label, an int. The image
    is a uint8 tensor of shape (3, height, width), RGB, 0 to 255, in its own memory, with the
    strides of torch.channels_last: resizing is fastest with them, and
    `image.permute(1, 2, 0).numpy()` copies nothing. `data[3:9]` is a list of samples. See
    `with_transform`, `cropped`, `with_pixels` and `with_fields` for other forms of a sample.

    You can use it in several threads, in forked children and in DataLoader workers of every start
    method (of a URL: "forkserver" or "spawn", since requests cannot be made in a forked child). Its
    pickle contains paths, fingerprints and what was chosen. Each process opens the files again at
    its first read.

    Example:
        >>> data = fastpipe.open("data/train")
        >>> len(data), data.classes
        (24, ['cat', 'dog'])
        >>> wide = data.select(data["width"] > 50)
        >>> train, val = wide.fold(0, of=3)
        >>> loader = fastpipe.loader(train, batch_size=2)
    """

    # The open files of this process, from the first read on.
    _reader: SampleReader | None = None

    def __new__(cls, *args: object, **options: object) -> Self:
        # Users who guess at the constructor pass a path, and options of other libraries, which
        # __init__ would refuse without a hint.
        if args and isinstance(args[0], (str, os.PathLike)):
            path = str(args[0])
            raise ConfigError(
                f"fastpipe.Dataset({path!r}): open it with fastpipe.open({path!r}); a transform, "
                "crops and fields of single samples come with .with_transform(...), .cropped(...) "
                "and .with_fields(...)"
            )
        return super().__new__(cls)

    def __init__(
        self, selection: Selection, sample_format: SampleFormat | None = None
    ) -> None:
        super().__init__(selection)
        self._sample_format = sample_format or SampleFormat()

    def __getitem__(self, which: Any) -> Any:
        """A column by its name; a sample by its number; some samples by a slice.

        Negative numbers count from the end.

        Raises:
            IndexError: there is no such sample.
            SampleError: it cannot be read or decoded.
            DatasetError: the index is damaged, or the folder now holds a different dataset.
        """
        if isinstance(which, str):
            note_column_read(self.index.fingerprint)
            return self.column(which)
        if isinstance(which, slice):
            return self.__getitems__(range(*which.indices(len(self))))
        return self.__getitems__([which])[0]

    def __getitems__(self, ids: Sequence[int]) -> list[Any]:
        """Several samples at once; DataLoader calls this for its batches.

        Raises the errors of `data[n]`.
        """
        # A forked child opens its own files.
        if self._reader is None or self._reader.process != os.getpid():
            check_one_pack(stored.index for stored in self.stored)
            self._reader = SampleReader(self, self._sample_format)
        parsed_ids = [self._parse_id(value) for value in ids]
        return self._reader.read(np.array(parsed_ids, dtype=np.int64))

    def __iter__(self) -> Iterator[Any]:
        for number in range(len(self)):
            yield self[number]

    def _parse_id(self, value: object) -> int:
        """The id of a sample from a number, which may be negative or numpy's."""
        try:
            number: int = operator.index(value)  # type: ignore[arg-type]
        except TypeError:
            raise ConfigError(
                "expected the number of a sample, a slice or the name of a column, got "
                f"{value!r}; for several samples: data.select(numbers)"
            ) from None
        count = len(self)
        if not -count <= number < count:
            raise IndexError(
                f"there is no sample {number}: {self.path} has {count}, numbered 0 to {count - 1}"
            )
        return number % count  # a negative number counts from the end

    # Other datasets

    @refusing_unknown("data.select")
    def select(self, chosen: Any) -> Dataset:
        """Some of the samples.

        Args:
            chosen: numbers of samples, each once: they come in this order; or a mask with True or
                False for each; or keys; or a function that gets the columns of some samples
                (`c["score"] > 0.5`) and returns their mask. With a function of columns the memory
                stays small, however many samples there are.

        Raises:
            ConfigError: it is no choice, or no sample is left.

        Example:
            >>> data = fastpipe.open("data/train")
            >>> data.select(data["width"] > 50)
            <fastpipe dataset 'data/train': 9 samples of 24, 2 classes>
            >>> data.select(lambda columns: columns["label"] == 1)
            <fastpipe dataset 'data/train': 12 samples of 24, 2 classes>
            >>> data.select(["cat/4.jpg", "dog/7.jpg"])["key"]
            <column 'key' of 2 samples: cat/4.jpg, dog/7.jpg>
        """
        return self._choose(parse_choice(self, chosen), "select")

    @refusing_unknown("data.only")
    def only(self, classes: Sequence[str], *, keep_labels: bool = False) -> Dataset:
        """The samples of some classes. A label is then the position in `classes`.

        Args:
            classes: their names.
            keep_labels: labels and `data.classes` stay as they are.

        Example:
            >>> fastpipe.open("data/train").only(["dog"]).classes
            ['dog']
        """
        ids, new_labels = choose_classes(self, classes)
        chosen = self._choose(ids, "only")
        if flag("keep_labels", keep_labels):
            return chosen
        check_fields_agree(self.fields, classes, "only", ", or pass keep_labels=True")
        return chosen._with_new_classes(classes, new_labels)

    @refusing_unknown("data.with_classes")
    def with_classes(self, classes: Sequence[str]) -> Dataset:
        """The same samples, whose labels are positions in `classes`, by name.

        Args:
            classes: names of all classes, each once, such as those of the training data. They
                include those that have samples; one may have none.

        Raises:
            ConfigError: they are no names, or a class that has samples is not among them.

        Example:
            >>> val = fastpipe.open("data/val").with_classes(["ant", "cat", "dog"])
            >>> val.class_counts
            [0, 12, 12]
        """
        # A dataset for detection has classes of fields only. They cannot be renumbered, so they
        # have to be these classes already.
        has_no_labels = not self.classes and not isinstance(classes, str)
        if has_no_labels and check_fields_alone(
            self.fields, classes, "with_classes", self.path
        ):
            return self
        names, new_labels = parse_class_list(self, classes)
        check_fields_agree(self.fields, names, "with_classes")
        return self._with_new_classes(names, new_labels)

    @refusing_unknown("data.take")
    def take(self, fraction: float) -> Dataset:
        """This fraction of the samples, the same whatever the seed.

        A hash of each source file decides, so a smaller fraction is a part of a larger one, and the
        same files are taken however and wherever they are stored. Of what is not packed 12 kB of
        each file are read for it, once.

        Example:
            >>> fastpipe.open("data/train").take(0.5)
            <fastpipe dataset 'data/train': ... samples of 24, 2 classes>
        """
        share = real_number(fraction)
        # A whole number is hardly meant as a fraction: all samples need no `take`.
        if share is None or isinstance(fraction, int) or not 0 < share <= 1:
            raise ConfigError(
                f"take: expected a fraction above 0 and at most 1, such as 0.1, got {fraction!r}. For "
                "a number of samples write select(range(number))"
            )
        # (samples,) in [0, 1), without seed and epoch.
        draws = draw_by_picture(self.content, Stream.LIMIT)
        return self._choose(np.flatnonzero(draws < share), "take")

    @refusing_unknown("data.fold")
    def fold(
        self,
        fold: int,
        *,
        of: int,
        stratify: str | None = None,
        groups: str | ArrayLike | None = None,
    ) -> tuple[Dataset, Dataset]:
        """(the rest, part `fold` of `of`) for cross-validation.

        A hash of each source file decides, as in `take`: the same file is never in two parts. Both
        can be divided again, by another hash. The log says which classes one of the two lacks.

        Args:
            fold, of: which part, from 0 on, and how many there are.
            stratify: "label": each part has an equal share of each class, as far as its samples can
                be divided. The part of a sample then depends on the other samples, too. None: large
                classes only have about that share.
            groups: what must stay together, such as patients or videos: the name of a column of
                whole numbers or texts, or a value for each sample. No group is in two parts.

        Raises:
            ConfigError: an argument is wrong, or one of the two has no sample.

        Example:
            >>> data = fastpipe.open("data/train")
            >>> train, val = data.fold(0, of=4, stratify="label")
            >>> len(train), val.class_counts
            (18, [3, 3])
        """
        num_parts = whole("fold: of", of, least=2, most=1 << 20)
        fold = whole("fold", fold, least=0, most=num_parts - 1)
        level = self.fold_level
        # (samples,) the part of each sample.
        parts = assign_parts(
            self, num_parts, level=level, stratify=stratify, groups=groups
        )
        is_inside = parts == fold
        if is_inside.all() or not is_inside.any():
            empty_side = "the rest" if is_inside.all() else "the part"
            units = "samples" if groups is None else "groups"
            remedy = ""
            if stratify is None:
                remedy = ', or pass stratify="label", which deals them out'
            raise ConfigError(
                f"fold({fold}, of={num_parts}): {empty_side} has no sample, for there are few "
                f"{units} in {self.path}; choose fewer parts{remedy}"
            )
        rest = self._choose(np.flatnonzero(~is_inside), "fold")
        part = self._choose(np.flatnonzero(is_inside), "fold")
        name = f"fold({fold}, of={num_parts}) of {self.path}"
        warn_of_missing_classes(
            self,
            part,
            rest,
            name,
            stratified=stratify is not None,
            grouped=groups is not None,
        )
        if groups is None:
            warn_of_divided_groups(rest, part)
        if stratify is not None and groups is None:
            warn_of_changed_parts(self, parts, fold, num_parts)
        # A fold of a fold needs another hash: by the same one, the part would not be divided again.
        next_level = level + 1
        return rest._with(fold_level=next_level), part._with(fold_level=next_level)

    @refusing_unknown("data.with_column")
    def with_column(
        self, name: str, values: ArrayLike | Path | str | Mapping[str, Any]
    ) -> Dataset:
        """One more field: scores, pseudo-labels, outputs of a teacher, texts.

        Nothing is packed again.

        Args:
            name: the field's name; an existing field of this name is replaced.
            values: {key: value}, with the keys of data["key"]; or a row for each sample, in the
                order of data["key"]: an array of numbers of any shape behind the first axis, a list
                of texts, or the path of an .npy file of these, of which only the rows of a batch
                are read. Packing changes the order of samples: values of a sorted table belong to
                other ones.

        Example:
            >>> data = fastpipe.open("data/train").with_column("score", np.linspace(0, 1, 24))
            >>> len(data.select(lambda columns: columns["score"] > 0.5))
            12
        """
        with_column = self._add_column(name, values)
        if not isinstance(values, (Mapping, str, os.PathLike)):
            column = with_column._selection.added[name]
            warn_of_values_in_order_of_keys(self, column)
        return with_column

    @refusing_unknown("data.with_labels")
    def with_labels(
        self,
        labels: ArrayLike | Path | str | Mapping[str, Any],
        *,
        classes: Sequence[str] | None = None,
    ) -> Dataset:
        """Other labels: corrected ones, pseudo-labels, coarser classes.

        Args:
            labels: whole numbers, -1 for a sample without a label, or names of classes: {key:
                label}, with the keys of data["key"]; or (samples,) in the order of data["key"],
                which is not that of a sorted table; or the path of an .npy file of numbers.
            classes: names of the classes. None: those that there are; of names, all that occur,
                sorted.

        Example:
            >>> data = fastpipe.open("data/train")
            >>> sizes = ["wide" if width > 50 else "narrow" for width in data["width"]]
            >>> data.with_labels(sizes).classes
            ['narrow', 'wide']
        """
        selection = with_user_labels(self, labels, classes)
        if not isinstance(labels, Mapping) and selection.labels is not None:
            warn_of_labels_in_order_of_keys(self, selection.labels)
        return Dataset(selection, self._sample_format)

    def _add_column(
        self, name: str, values: ArrayLike | Path | str | Mapping[str, Any]
    ) -> Dataset:
        """As `with_column`, without a look at the order of the values."""
        try:
            check_name(name)
        except ValueError as problem:
            raise ConfigError(f"with_column: {problem}") from problem
        column = parse_user_column(self, "with_column", values)
        return self._with(added={**self._selection.added, name: column})

    def _add_labels(
        self, labels: ArrayLike | Path, classes: Sequence[str] | None
    ) -> Dataset:
        """As `with_labels`, without a look at the order of the labels."""
        return Dataset(with_user_labels(self, labels, classes), self._sample_format)

    @refusing_unknown("data.save_columns")
    def save_columns(self, destination: str | Path) -> None:
        """Writes the columns and labels of `with_column` and `with_labels` beside the dataset.

        `fastpipe.open` finds them there again, in DST/columns. Upload that folder with the others,
        and it finds them behind the URL, too.

        Args:
            destination: the folder of the dataset, or of a copy of it.

        Raises:
            ConfigError: samples have been chosen, or another dataset is there.

        Example:
            >>> data = fastpipe.open("data/train").with_column("score", np.linspace(0, 1, 24))
            >>> data.save_columns("data/train")
            >>> fastpipe.open("data/train")["score"][:2].round(2)
            array([0.  , 0.04])
        """
        save(self, destination)

    # Single samples

    @refusing_unknown("data.with_transform")
    def with_transform(self, transform: object, *, images: str = "tensor") -> Dataset:
        """The same samples, each changed by a function.

        Args:
            transform: a function of the image that returns the image of the sample. It is called as
                transform(tensor). If it is an albumentations transform, or has a keyword-only
                parameter `image`, it is called as transform(image=array), with
                (height, width, channels), and "image" is taken from the returned dict. If that is
                an array of such a shape, it becomes a tensor of shape (channels, height, width),
                also without ToTensorV2. It may change its input. After `with_fields` it is called
                as transform(sample), with the dict. Of several crops, without fields, it is called
                with each.
            images: what the transform gets: "tensor", (channels, height, width); or "pil", Pillow's
                image, which torchvision's first transforms (ToTensor, for example) and processors
                of Hugging Face expect. After `with_fields` this is the entry of "image".

        Example:
            >>> data = fastpipe.open("data/train").with_transform(lambda image: image.float() / 255)
            >>> data[0][0].dtype
            torch.float32
        """
        return self._with_format(transform=transform, images=images)

    @refusing_unknown("data.cropped")
    def cropped(
        self,
        crop: Crop,
        size: int | tuple[int, int] = 224,
        *,
        hflip: bool | float = False,
        seed: int = 0,
        exact: bool = False,
    ) -> Dataset:
        """The same samples, each one crop, (channels, *size), or several, (K, channels, *size).

        Only what it needs is decoded, as fastpipe.loader does it, and resized: for samplers of your
        own this takes less time than a whole image alone. Boxes, points, masks and second images
        are cropped with the image.

        Args:
            crop: fastpipe.RandomResizedCrop, RandomCrop, CenterCrop, Resize, Letterbox, FiveCrop or
                TenCrop. Until `set_epoch`, torch's generator decides on random crops, as it does
                for torchvision's transforms.
            size: size of the crops in pixels: a number for a square, or (height, width).
            hflip: mirror crops left to right: True (half of them), False, or a probability.
            seed: seed of crops and mirroring after `set_epoch`.
            exact: True: always decode at full size. See fastpipe.loader.

        Example:
            >>> data = fastpipe.open("data/train").cropped(fastpipe.RandomResizedCrop(), 32, hflip=True)
            >>> batches = torch.utils.data.DataLoader(data, batch_size=8, shuffle=True)
            >>> next(iter(batches))[0].shape
            torch.Size([8, 3, 32, 32])
        """
        return self._with_format(
            cropping=Cropping(crop, size, hflip=hflip, seed=seed, exact=exact)
        )

    @refusing_unknown("data.with_pixels")
    def with_pixels(
        self, channels: str = "rgb", dtype: torch.dtype = torch.uint8
    ) -> Dataset:
        """The same samples, their images with other channels or another dtype.

        Second images have the same channels and bits, but are never floats, as in a loader.

        Args:
            channels: "rgb", "gray", "rgba" or "own".
            dtype: torch.uint8, torch.uint16 or torch.float32. See fastpipe.loader for both. A
                transform gets this.

        Raises:
            ConfigError: an argument is wrong, or with "own" samples have several numbers of
                channels.

        Example:
            >>> data = fastpipe.open("data/train").with_pixels("gray", torch.float32)
            >>> image, label = data[0]
            >>> image.shape[0], image.dtype
            (1, torch.float32)
        """
        # Imports the augmentation, which most programs with single samples do not need.
        from fastpipe.dataset.pixels import Pixels

        pixels = Pixels(channels, dtype)
        # Raises here what would otherwise be raised at the first sample.
        pixels.form(self)
        return self._with_format(pixels=pixels)

    @refusing_unknown("data.with_fields")
    def with_fields(self, fields: Sequence[Any] | Mapping[str, Any]) -> Dataset:
        """The same samples, each a dict of these.

        Where torchvision is installed, the image, boxes and points in it are tv_tensors, so that
        the transforms of torchvision.transforms.v2 move them together.

        Args:
            fields: the keys of a sample, in this order: "image", "label", "id", "key", and names of
                the dataset's fields; see fastpipe.loader. Labels of boxes come as NAME_labels;
                points as (M, K, 2), and NAME_visibility (M, K). Without "image" nothing is decoded.
                Or a dict: {"pixel_values": "image"}.

        Example:
            >>> data = fastpipe.open("data/objects").with_fields(["image", "boxes", "caption"])
            >>> sample = data[5]
            >>> sample["caption"], sample["boxes"].shape
            ('photo 5', torch.Size([1, 4]))
        """
        return self._with_format(fields=sample_fields(self, fields))

    def set_epoch(self, epoch: int) -> None:
        """Of a `cropped` dataset: makes crops and mirroring a function of (seed, epoch, sample).

        They are those of fastpipe.loader with the same seed and options. Call it before each epoch,
        in the process that iterates over the DataLoader, or not at all. Workers see it, also
        persistent ones. Whole images are the same in all epochs.

        Example:
            >>> data = fastpipe.open("data/train").cropped(fastpipe.RandomResizedCrop(), 32)
            >>> data.set_epoch(3)  # crops are now those of fastpipe.loader in epoch 3
        """
        if self._sample_format.cropping is not None:
            self._sample_format.cropping.set_epoch(epoch)

    @property
    def transform(self) -> Any:
        """The transform, as it was passed.

        Example:
            >>> fastpipe.open("data/train").transform is None
            True
        """
        return self._sample_format.transform

    @transform.setter
    def transform(self, transform: object) -> NoReturn:
        """Raises, since a dataset never changes. timm.data.create_loader sets this attribute."""
        raise AttributeError(
            "a dataset does not change: data.with_transform(transform) is one with a transform. In "
            "a program for timm, import create_loader from fastpipe.timm, too"
        )

    _NOT_PUBLIC = frozenset(["sample_format"])  # other folders of fastpipe use it

    if not TYPE_CHECKING:  # type checkers would allow every name

        def __getattr__(self, name: str) -> NoReturn:
            message = describe_unknown(name, dir(self))
            raise AttributeError(message, name=name, obj=self)

        def __setattr__(self, name: str, value: object) -> None:
            # Loaders would not see such an attribute. Those of this class begin with "_", and
            # `transform` has a setter that says more.
            if not name.startswith("_") and name != "transform":
                raise AttributeError(describe_setting(name), name=name, obj=self)
            super().__setattr__(name, value)

    def __add__(self, other: Any) -> Any:
        """All samples of both; with a dataset of another kind, torch's ConcatDataset."""
        if isinstance(other, Dataset):
            return Dataset._joined([self, other], "union")
        return super().__add__(other)

    def __repr__(self) -> str:
        samples = f"{len(self):,} samples"
        if self._selection.samples is not None:
            samples += f" of {len(self.index):,}"
        shares = ""
        if self.content.mixed:
            weights = " : ".join(f"{weight:g}" for weight in self.content.weights)
            shares = f", mixed {weights}"
        newest_version = self.stored[0].newest_version
        version = ""
        if 0 < self.version < newest_version:
            version = f", version {self.version} of {newest_version}"
        return (
            f"<fastpipe dataset {str(self.path)!r}{version}: {samples}, {len(self.classes):,} classes"
            f"{shares}{self._sample_format!r}>"
        )

    def _repr_html_(self) -> str:
        """Shown by a notebook: also the first samples, which are decoded for it."""
        from fastpipe.dataset.page import page

        return page(self)

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        state.pop("_reader", None)  # each process opens its own files
        return state

    @property
    def sample_format(self) -> SampleFormat:
        """The form in which single samples come, for a loader."""
        return self._sample_format

    # How the methods above make other datasets

    def _with(self, **changes: Any) -> Dataset:
        """A dataset of which some attributes of the selection are others."""
        return Dataset(replace(self._selection, **changes), self._sample_format)

    def _with_format(self, **changes: Any) -> Dataset:
        """A dataset of which some attributes of the samples' format are others."""
        return Dataset(self._selection, replace(self._sample_format, **changes))

    @classmethod
    def _joined(cls, parts: Sequence[Dataset], labels: str) -> Dataset:
        """All samples of several datasets; see `concat` in opening.py."""
        selection = join_selections(parts, labels)
        sample_format = parts[0]._sample_format
        for part in parts:
            if part._sample_format != sample_format:
                raise ConfigError(
                    "the datasets have other transforms, crops, pixels or fields of single "
                    "samples; leave these out, and call with_transform, cropped, with_pixels and "
                    "with_fields on the dataset of all"
                )
        return Dataset(selection, sample_format)

    def _choose(self, ids: Int64s, method: str) -> Dataset:
        """The samples with these ids, (n,), in this order; of a mixture share by share.

        All samples in their order are the dataset itself. `method` begins the message of an error.
        """
        has_all = len(ids) == len(self)
        if has_all and np.array_equal(ids, np.arange(len(ids))):
            return self
        content = self.content
        # (n,) the share of each sample, and (shares,) how many samples of it were chosen.
        share_of = parts_of(content.starts, ids)
        counts = np.bincount(share_of, minlength=len(content.weights))
        if not counts.all():
            share = ""
            if content.mixed:
                empty_share = int(np.argmin(counts))
                share = f" of share {empty_share}, and a mixture needs some of each"
            by_class = ""
            # The usual cause that is no error in itself: np.isin(labels, ["cat"]) is always False.
            if method == "select" and self.classes:
                by_class = (
                    f". To choose classes by name: data.only({self.classes[:1]!r})"
                )
            raise ConfigError(
                f"{method}: none of the {len(self):,} samples of {self.path} is left{share}; "
                f"choose more{by_class}"
            )
        # A share of a mixture is a run of ids, in whatever order the user chose the samples.
        if content.mixed:
            ids = ids[np.argsort(share_of, kind="stable")]

        selection = self._selection
        samples = content.numbers(ids)  # in the index
        # Labels and columns that were added have a value for each id, so the same rows of them are
        # chosen, when they are read.
        labels = selection.labels
        if labels is not None:
            labels = DerivedColumn(labels, ids=ids)
        added = {
            name: DerivedColumn(column, ids=ids)
            for name, column in selection.added.items()
        }
        # A loader's state has the digest, so that it is not loaded for other samples.
        digest = xxhash.xxh3_64_hexdigest(samples.astype("<i8").tobytes())
        return self._with(
            samples=samples,
            share_starts=starts_of(counts.tolist()),
            labels=labels,
            added=added,
            identity={**selection.identity, "samples": f"{len(samples)} {digest}"},
        )

    def _with_new_classes(
        self, classes: Sequence[str], new_labels: Sequence[int]
    ) -> Dataset:
        """The same samples with other classes.

        `new_labels` has the new label of each class that the dataset has now.
        """
        is_unchanged = list(new_labels) == list(range(len(classes)))
        if is_unchanged and list(classes) == self.classes:
            return self
        selection = with_new_classes(self._selection, classes, new_labels)
        return Dataset(selection, self._sample_format)

    def _with_classes_from(self, given: ClassNames) -> Dataset:
        """See `open(classes_from=)` in opening.py."""
        check_field_classes(self, given)
        if not given.labels and given.fields:
            return self  # the source has classes of fields only
        # Names for labels that are numbers, such as those of tars.
        numbered = class_list_by_number(self, given)
        if numbered is None:
            return self.with_classes(given.labels)
        _LOG.warning(
            "%s: assumed labels are numbers: number 0 is %r, and so on",
            self.path,
            given.labels[0],
        )
        check_fields_agree(self.fields, given.labels, "classes_from")
        return self._with_new_classes(*numbered)
