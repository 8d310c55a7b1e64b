"""timm's `create_dataset` and `create_loader`, with their arguments, for packed datasets.

In a program that trains with timm, such as its train.py, change one import:

    from fastpipe.timm import create_dataset, create_loader

Arguments mean what they mean there, and so do `mixup_enabled` and `set_epoch`. Photos are decoded by threads. All
draws follow from (seed, epoch, batch, sample), so a resumed run repeats them. What differs:

- "rand-..." of `auto_augment` picks from torchvision's operations of RandAugment, with their ranges of magnitudes and
  black where nothing is; m, n, p, mstd and mmax mean what they mean in timm, inc has no effect.
- `interpolation="random"` is bicubic for all photos.
- `num_aug_repeats` also works in one process, and `num_batches` without sizes to choose from.

Note [classes as in timm]
timm numbers class folders in natural order without case: 1, 2, 10, ant, Bee. A checkpoint knows these numbers and no
names. So classes that are not packed have timm's numbers here. A packed dataset has its own: where they differ from
timm's, `create_dataset` refuses it until `class_map`, or the `classes_from` of its pack, has said which are meant.
timm numbers the classes of each split by itself. Here a split beside one for training has the numbers of that one, by
name: a class that is missing in ROOT/val would shift those behind it.

Source of names and defaults: timm 1.0, timm/data/loader.py, transforms_factory.py, mixup.py and auto_augment.py.
"""

from __future__ import annotations

import inspect
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import kornia.augmentation
import torch
from torch import Tensor

from fastpipe.augment import Augment
from fastpipe.augment.normalised import Erasing, Mixing
from fastpipe.augment.presets import LAST_BIN, RANDAUGMENT, Blur, Grayscale, Policy
from fastpipe.errors import ConfigError
from fastpipe.format.description import is_dataset
from fastpipe.format.packed_index import PackedIndex
from fastpipe.loading.classes import describe_other_classes
from fastpipe.loading.factory import loader
from fastpipe.loading.loader import Loader
from fastpipe.loading.samplers import Repeated
from fastpipe.plan.crops import CenterCrop, Crop, Letterbox, RandomResizedCrop, Resize
from fastpipe.plan.draws import Stream, key, uniform
from fastpipe.samples.dataset import Dataset
from fastpipe.samples.opening import as_dataset
from fastpipe.sources.classes_from import class_names
from fastpipe.sources.kinds import class_folders
from fastpipe.sources.options import SourceOptions

_SPLITS = (("train", "training"), ("val", "valid", "validation", "eval", "evaluation"))
_BINS = LAST_BIN / 10  # of fastpipe's RandAugment to one of timm's
_OF_OTHERS = ("repeats", "input_key", "target_key")
# Arguments of create_loader that name no choice here: threads need no seeds, no pinning and no processes that persist.
_WITHOUT_EFFECT = (
    *("pin_memory", "use_multi_epochs_loader", "persistent_workers", "worker_seeding"),
    *("batch_schedule_epochs", "batch_schedule_spread", "batch_schedule_random_mix"),
)
_OFF = (
    "crop_border_pixels",
    "fp16",
    "tf_preprocessing",
)  # what cannot be had, and may be passed as False or None
_NOISE = {"": None, "const": None, "rand": "box", "pixel": "pixel"}  # of re_mode


def create_dataset(
    name: str = "",
    root: Any = None,
    split: str = "validation",
    search_split: bool = True,
    class_map: Any = None,
    **options: Any,
) -> Dataset:
    """Opens the dataset of a split: ROOT/SPLIT, or ROOT/val for "validation" and the like, if it exists; else ROOT.

    Classes of folders have timm's numbers, by Note [classes as in timm]; those of another split have the numbers of
    ROOT/train, if there is one.

    Args:
        name: "" or "fastpipe". timm's other datasets have to be packed first.
        root: a folder with a packed dataset for each split; or a URL or what else `fastpipe.open` takes, as it is.
        split: "train", "training", "val", "valid", "validation", "eval", "evaluation" or another folder's name.
        search_split: whether to look for folders of splits in root.
        class_map: names of the classes by number: a text file with a name on each line, or a dict of name -> number, as
            in timm; or what else `classes_from` of `fastpipe.open` takes, such as the training's dataset. As in timm,
            samples of other classes are left out. None or "": see above.
        options: timm's others, such as batch_size and seed, which have no effect on a packed dataset.

    Raises:
        ConfigError: another kind of dataset, one of repeats, input_key and target_key, or a packed dataset whose
            classes have other numbers than in timm.
        DatasetError: there is no dataset.
    """
    if name not in ("", "folder", "fastpipe") or root is None:
        raise ConfigError(
            f'fastpipe.timm.create_dataset: expected name="" and root=FOLDER, got {name!r} and {root!r}'
        )
    if refused := {name: options[name] for name in _OF_OTHERS if options.get(name)}:
        raise ConfigError(
            f"fastpipe.timm.create_dataset cannot do {refused}; choose samples with fastpipe.open(...)"
        )
    if "[" in split:
        raise ConfigError(
            f"split={split!r}: choose samples with fastpipe.open(...).select(...), without [...]"
        )
    place = root
    if search_split and isinstance(root, (str, os.PathLike)):
        words = next((words for words in _SPLITS if split in words), ())
        folders = [os.path.join(root, word) for word in dict.fromkeys((split, *words))]
        place = next((folder for folder in folders if os.path.exists(folder)), root)
    data = as_dataset(place)
    if class_map:
        return _with_class_map(data, class_map, root)
    if isinstance(root, Dataset):
        return data
    data = _with_timms_classes(data)
    training = next((folder for folder in _training_folders(root) if os.path.exists(folder)), None)
    if place is root or training is None or training == place or not data.classes:
        return data
    return data.with_classes(_classes_of_training(training))


def _training_folders(root: Any) -> list[str]:
    """The folders of the split for training, one of which a root may have."""
    if not isinstance(root, (str, os.PathLike)):
        return []
    return [os.path.join(root, word) for word in _SPLITS[0]]


def _classes_of_training(folder: str) -> list[str]:
    """The classes of the split for training, by timm's numbers. Of class folders no image is looked at."""
    if os.path.isdir(folder) and is_dataset(Path(folder)):
        return _with_timms_classes(as_dataset(folder)).classes
    folders = class_folders(Path(folder), SourceOptions()) if os.path.isdir(folder) else None
    if folders is None:
        return _with_timms_classes(as_dataset(folder)).classes
    names = [name for name in folders.classes if _has_files(os.path.join(folder, name))]
    return sorted(names, key=lambda name: (_natural(name), name))


def _has_files(folder: str) -> bool:
    with os.scandir(folder) as entries:
        return next(entries, None) is not None


def _with_class_map(data: Dataset, class_map: Any, root: Any) -> Dataset:
    if isinstance(class_map, Mapping):
        names = sorted(class_map, key=class_map.__getitem__)
        if [class_map[name] for name in names] != list(range(len(names))):
            raise ConfigError(
                f"class_map: expected the numbers 0 to {len(names) - 1:,}, each once, got {class_map!r:.200}"
            )
    else:
        names = _names_in(class_map, root)
    there = [name for name, count in zip(data.classes, data.class_counts, strict=True) if count]
    known = [name for name in there if name in set(names)]
    if len(known) < len(there) and known:
        data = data.only(known)
    return data.with_classes(names)


def _names_in(class_map: Any, root: Any) -> list[str]:
    """The classes that a file, a dataset or a source names, by number."""
    if isinstance(class_map, (str, os.PathLike)):
        if isinstance(root, (str, os.PathLike)) and not os.path.exists(
            class_map
        ):  # in timm, also one in ROOT
            inside = os.path.join(root, class_map)
            class_map = inside if os.path.exists(inside) else class_map
        if os.path.isdir(class_map):
            data = as_dataset(class_map)
            return data.classes if data.index.packed else _with_timms_classes(data).classes
    return list(class_names(class_map).labels)


def _with_timms_classes(data: Dataset) -> Dataset:
    """See Note [classes as in timm]."""
    index = data.stored[0].index
    if index.has_deeper_folders:
        raise ConfigError(
            f"{data.path} has folders in its class folders: timm takes the innermost folder of an image as its class, "
            f"and fastpipe the outermost. To train on the outermost: root=fastpipe.open({str(data.path)!r})"
        )
    counts = dict(zip(data.classes, data.class_counts, strict=True))
    if data.classes == [str(number) for number in range(len(counts))] and (
        index.in_tars or not counts
    ):
        return data  # there are no classes, or they are called after their numbers
    in_order = sorted(counts, key=lambda name: (_natural(name), name))
    timms = [name for name in in_order if counts[name]]  # timm sees no empty folder
    if not isinstance(index, PackedIndex):
        return data.with_classes(timms)
    moved = [name for number, name in enumerate(timms) if data.class_to_idx[name] != number]
    if not moved or "classes_from" in index.info["packs"][0]["options"]["source"]:
        return data
    raise ConfigError(
        f"{data.path} numbers its classes otherwise than timm, in natural order without case: {moved[0]!r} is "
        f"{data.class_to_idx[moved[0]]} here, and {timms.index(moved[0])} in timm and its checkpoints. To keep the "
        f"numbers of the dataset, with which a model was trained here, pass class_map={str(data.path)!r} "
        "(--class-map); for timm's, class_map=FILE with a name on each line in timm's order, or pack it with "
        "--classes-from FILE"
    )


def _natural(name: str) -> list[Any]:
    """What timm sorts names by: parts without case, of which every second one is a number."""
    return [
        int(part) if at % 2 else part for at, part in enumerate(re.split(r"(\d+)", name.lower()))
    ]


def create_loader(
    dataset: Any,
    input_size: int | Sequence[int],
    batch_size: int,
    is_training: bool = False,
    no_aug: bool = False,
    re_prob: float = 0.0,
    re_mode: str = "const",
    re_count: int = 1,
    re_split: bool = False,
    train_crop_mode: str | None = None,
    scale: tuple[float, float] | None = None,
    ratio: tuple[float, float] | None = None,
    hflip: float = 0.5,
    vflip: float = 0.0,
    color_jitter: float | Sequence[float] | None = 0.4,
    color_jitter_prob: float | None = None,
    grayscale_prob: float = 0.0,
    gaussian_blur_prob: float = 0.0,
    auto_augment: str | None = None,
    num_aug_repeats: float = 0,
    num_aug_splits: int = 0,
    interpolation: str = "bilinear",
    mean: Sequence[float] = (0.485, 0.456, 0.406),
    std: Sequence[float] = (0.229, 0.224, 0.225),
    num_workers: int = 1,
    distributed: bool = False,
    crop_pct: float | None = None,
    crop_mode: str | None = None,
    collate_fn: Any = None,
    img_dtype: torch.dtype | None = torch.float32,
    device: str | torch.device = "cuda",
    use_prefetcher: bool = True,
    input_size_choices: Sequence[Any] | None = None,
    batch_size_choices: Sequence[int] | None = None,
    batch_choice_weights: Sequence[float] | None = None,
    batch_choice_seed: int = 0,
    batch_choice_schedule: str = "constant",
    num_batches: int | None = None,
    seed: int | None = None,
    **others: Any,
) -> TimmLoader:
    """timm's create_loader for a dataset of `create_dataset` or `fastpipe.open`, or timm's AugMixDataset of one.

    Args:
        collate_fn: timm's FastCollateMixup, for its parameters, in mode "batch" or "elem".
        num_workers: threads, at least 1.
        seed: of order, crops and augmentation, on all ranks. None: batch_choice_seed, which is train.py's --seed.
        others: pin_memory, persistent_workers, worker_seeding and the like, which have no effect here.

    Raises:
        ConfigError: an argument is wrong, or is one of timm's that cannot be had: train_crop_mode but "rrc", crop_mode
            "border" or "squash" with a crop_pct, crop_border_pixels, tf_preprocessing, fp16, sizes with batch sizes,
            weights or a schedule of their own, AutoAugment and AugMix policies, evaluation of images that are no
            squares, but for "squash", and splits with mixing or sizes.
    """
    off = {name for name in _OFF if not others.get(name)}
    said = {name: value for name, value in others.items() if name not in (*_WITHOUT_EFFECT, *off)}
    augmented = is_training and not no_aug
    splits = num_aug_splits if augmented and num_aug_splits > 1 else 1
    asked: tuple[tuple[str, Any, bool], ...] = (
        ("train_crop_mode", train_crop_mode, train_crop_mode in (None, "rrc")),
        ("batch_choice_weights", batch_choice_weights, not batch_choice_weights),
        ("batch_choice_schedule", batch_choice_schedule, batch_choice_schedule == "constant"),
        (
            "batch_size_choices",
            batch_size_choices,
            set(batch_size_choices or [batch_size]) == {batch_size},
        ),
        (
            "num_aug_splits",
            num_aug_splits,
            splits == 1 or (collate_fn is None and input_size_choices is None),
        ),
        ("re_mode", re_mode, re_mode.lower() in _NOISE),
        ("num_aug_repeats", num_aug_repeats, num_aug_repeats == int(num_aug_repeats)),
    )
    said |= {name: value for name, value, possible in asked if not possible}
    if said:
        names = ", ".join(f"{name}={value!r}" for name, value in said.items())
        known = [name for name in inspect.signature(create_loader).parameters if name != "others"]
        raise ConfigError(
            f"fastpipe.timm.create_loader cannot do {names}; it knows {', '.join(known)}"
        )
    data = dataset.dataset if num_aug_splits > 1 and not isinstance(dataset, Dataset) else dataset
    data = as_dataset(data)
    for problem in describe_other_classes(data, train=is_training):
        raise ConfigError(f"{problem}; in timm's programs: --class-map with the data for training")
    channels, height, width = _shape(input_size, len(mean))
    if interpolation == "random":
        interpolation = "bicubic" if augmented else "bilinear"
    crop: Crop
    if augmented:
        crop = RandomResizedCrop(
            scale=scale or (0.08, 1.0), ratio=ratio or (3 / 4, 4 / 3), interpolation=interpolation
        )
    elif is_training and isinstance(input_size, int):
        crop = CenterCrop(resize=input_size, interpolation=interpolation)
    elif is_training:
        crop = Resize(interpolation=interpolation)
    else:
        crop = _crop_of_evaluation(
            crop_pct or 0.875, crop_mode, (height, width), interpolation, mean
        )
    options: dict[str, Any] = {"mean": mean, "std": std, "dtype": img_dtype or torch.float32}
    jitter = None if auto_augment and "3a" not in auto_augment else color_jitter
    flip = [kornia.augmentation.RandomVerticalFlip(p=vflip)] if augmented and vflip else []
    operations = _operations(
        jitter, color_jitter_prob, grayscale_prob, gaussian_blur_prob, auto_augment
    )
    after: list[Any] = []
    if is_training and collate_fn is not None:
        after.append(_mixing(collate_fn))
        options |= {
            "label_smoothing": collate_fn.label_smoothing,
            "num_classes": collate_fn.num_classes,
        }
    if augmented and re_prob:  # of splits, the first is what re_split spares
        spared = 0.5 if re_split and splits == 1 else 0.0
        after.append(
            Erasing(re_prob, noise=_NOISE[re_mode.lower()], most=max(1, re_count), spared=spared)
        )
    if splits == 1:
        inside = Augment([*flip, *(operations if augmented else [])], after=after, **options)
    else:
        inside = Augment([], after=[] if re_split else after, **options)
    loading: dict[str, Any] = {}
    if num_aug_repeats and is_training:
        loading = {"sampler": Repeated(int(num_aug_repeats)), "epoch_size": len(data)}
    ranks = 1 if not distributed else torch.distributed.get_world_size()
    if num_batches is not None and is_training:
        loading["epoch_size"] = num_batches * batch_size * ranks
    if not distributed:
        loading |= {"rank": 0, "world_size": 1}
    if input_size_choices is not None:
        loading["size_choices"] = [_shape(each, channels)[1:] for each in input_size_choices]
    else:
        loading["size"] = height, width
    opened = loader(
        data,
        batch_size,
        train=is_training,
        crop=crop,
        hflip=hflip if augmented else False,
        seed=batch_choice_seed if seed is None else seed,
        num_workers=max(1, num_workers),
        device=device if use_prefetcher else "cpu",
        channels="gray" if channels == 1 else "rgb",
        augment=None if splits > 1 else inside,
        **loading,
    )
    branches = (
        []
        if splits == 1
        else [inside, *(Augment(operations, after=after, **options),) * (splits - 1)]
    )
    return TimmLoader(opened, inside, branches, vflip, len(input_size_choices or [input_size]))


class TimmLoader:
    """What timm's training loop uses of a loader. All else, such as `dataset`, `sampler`, `state_dict`,
    `load_state_dict` and `close`, is that of `loader`, a fastpipe.Loader.
    """

    def __init__(
        self, opened: Loader, augment: Augment, splits: Sequence[Augment], vflip: float, sizes: int
    ) -> None:
        self.loader, self._augment, self._splits, self._vflip = opened, augment, splits, vflip
        self.batch_sampler = opened.batch_sampler  # has `set_epoch`
        said = {
            "batch_sizes": (opened.batch_size,) * sizes,
            "average_batch_size": float(opened.batch_size),
        }
        vars(self.batch_sampler).update(
            said
        )  # as timm's ScheduledBatchSampler tells train.py of several sizes

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Pairs of images, (N, C, height, width) normalised, and labels; of splits, (splits * N, ...), one by one."""
        if not self._splits:
            yield from self.loader
            return
        seed = self.loader.recipe.seed
        for batch in self.loader:
            images, labels = batch
            samples, number = (
                batch.ids.numpy(force=True),
                len(self.loader) - self.loader.remaining - 1,
            )
            turned = (
                uniform(key(seed, batch.epoch, Stream.UPSIDE_DOWN), samples) < self._vflip
            )  # in all splits
            if turned.any():
                rows = torch.from_numpy(turned).to(images.device)[:, None, None, None]
                images = torch.where(rows, images.flip(2), images).contiguous(
                    memory_format=torch.channels_last
                )
            made = [
                augment(
                    images.clone(),
                    seed=key(seed, split, 0),
                    epoch=batch.epoch,
                    batch=number,
                    samples=samples,
                )
                for split, augment in enumerate(self._splits)
            ]
            yield torch.cat(made), labels.repeat(len(made))

    def __len__(self) -> int:
        return len(self.loader)

    @property
    def mixup_enabled(self) -> bool:
        """Whether mixup or cutmix is done. Set it to False between epochs: labels stay soft, as in timm."""
        return any(mixer.enabled for mixer in self._augment.mixers if isinstance(mixer, Mixing))

    @mixup_enabled.setter
    def mixup_enabled(self, enabled: bool) -> None:
        for mixer in self._augment.mixers:
            if isinstance(mixer, Mixing):
                mixer.enabled = enabled
        self.loader.discard_prefetched()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.loader, name)


def _shape(size: int | Sequence[int], channels: int) -> tuple[int, int, int]:
    """timm's size, a number, (height, width) or (channels, height, width), as the last of these."""
    found = (size, size) if isinstance(size, int) else tuple(size)
    found = (channels, *found) if len(found) == 2 else found
    if len(found) != 3 or found[0] not in (1, 3):
        raise ConfigError(
            f"input_size: expected a number, (height, width) or (1 or 3, height, width), got {size}"
        )
    return found


def _crop_of_evaluation(
    share: float, mode: str | None, size: tuple[int, int], interpolation: str, mean: Sequence[float]
) -> Crop:
    if mode in (None, "center") and size[0] == size[1]:
        return CenterCrop(resize=math.floor(size[0] / share), interpolation=interpolation)
    if mode == "squash" and share == 1:
        return Resize(interpolation=interpolation)
    if mode == "border" and share == 1:
        red, green, blue = (
            round(255 * each) for each in (mean if len(mean) == 3 else [mean[0]] * 3)
        )
        return Letterbox(fill=(red, green, blue), rounded=True, interpolation=interpolation)
    raise ConfigError(
        f'crop_mode={mode!r}: expected "center" and a square input_size, or "squash" or "border" with crop_pct=1; got '
        f"input_size {size} and crop_pct={share}"
    )


def _operations(
    jitter: float | Sequence[float] | None,
    jitter_p: float | None,
    gray_p: float,
    blur_p: float,
    policy: str | None,
) -> list[torch.nn.Module]:
    """What happens to photos after crop and mirroring, in timm's order."""
    found: list[torch.nn.Module] = [] if not policy else [_rand_augment(policy)]
    if jitter:
        parts = (jitter,) * 3 if isinstance(jitter, (int, float)) else tuple(jitter)
        found.append(
            kornia.augmentation.ColorJitter(*parts, p=1.0 if jitter_p is None else jitter_p)
        )
    return found + ([Grayscale(gray_p)] if gray_p else []) + ([Blur(blur_p)] if blur_p else [])


def _rand_augment(policy: str) -> Policy:
    """ "rand-m9-mstd0.5-inc1" and the like."""
    name, *parts = policy.split("-")
    numbers = {"m": 10.0, "n": 2.0, "p": 0.5, "mstd": 0.0, "mmax": 10.0}
    for part in parts:
        found = re.fullmatch(r"(m|n|p|mstd|mmax|inc)(\d+(?:\.\d+)?)", part)
        if found is None or name != "rand":
            break
        numbers[found[1]] = float(found[2])
    else:
        if name == "rand" and numbers["mmax"] <= 10:
            magnitude, most, spread = (numbers[each] * _BINS for each in ("m", "mmax", "mstd"))
            spread = math.inf if numbers["mstd"] > 100 else spread
            return Policy(
                RANDAUGMENT,
                int(numbers["n"]),
                magnitude,
                spread=spread,
                most=most,
                probability=numbers["p"],
            )
    raise ConfigError(
        f'auto_augment={policy!r}: expected "rand-mM-nN-pP-mstdS-mmaxX-incI" with X of at most 10, such as '
        '"rand-m9-mstd0.5-inc1"'
    )


def _mixing(mixup: Any) -> Mixing:
    """timm's FastCollateMixup or Mixup, of which only the parameters are used."""
    if getattr(mixup, "mode", None) not in ("batch", "elem"):
        raise ConfigError(
            f'collate_fn: expected timm\'s FastCollateMixup with mode="batch" or "elem", got {mixup!r}'
        )
    if getattr(mixup, "multi_label", False) or not getattr(mixup, "correct_lam", True):
        raise ConfigError("collate_fn: expected multi_label=False and correct_lam=True")
    if not mixup.mixup_alpha and not mixup.cutmix_alpha:
        raise ConfigError(
            "collate_fn: expected a mixup_alpha or cutmix_alpha above 0, or cutmix_minmax"
        )
    mixing = Mixing(
        mixup.mixup_alpha,
        mixup.cutmix_alpha,
        probability=mixup.mix_prob,
        cutting=mixup.switch_prob,
        sides=mixup.cutmix_minmax,
        at_once=mixup.mode == "batch",
        from_the_end=True,
    )
    mixing.enabled = getattr(mixup, "mixup_enabled", True)
    return mixing
