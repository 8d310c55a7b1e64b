"""timm's `create_loader`: a dataset and timm's arguments -> a loader for timm's training loop."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from typing import Any

import kornia.augmentation
import torch
from torch import Tensor

from fastpipe.dataset.dataset import Dataset
from fastpipe.dataset.opening import as_dataset
from fastpipe.device.augment import Augment
from fastpipe.device.augment.normalised import Erasing, Mixing
from fastpipe.errors import ConfigError
from fastpipe.loading.classes import describe_other_classes
from fastpipe.loading.factory import loader
from fastpipe.loading.loader import Loader
from fastpipe.loading.pairs import waiting_partner
from fastpipe.loading.samplers import Repeated
from fastpipe.plan.crops import CenterCrop, Crop, RandomResizedCrop, Resize
from fastpipe.plan.draws import Stream, key, uniform
from fastpipe.timm.operations import (
    evaluation_crop,
    image_operations,
    mixing_of,
    parse_shape,
)

# Arguments that have no effect here: threads need no seeds, no pinning and no processes that
# persist.
_WITHOUT_EFFECT = (
    "pin_memory",
    "use_multi_epochs_loader",
    "persistent_workers",
    "worker_seeding",
    "batch_schedule_epochs",
    "batch_schedule_spread",
    "batch_schedule_random_mix",
)
# Arguments that cannot be had, and may be passed as False or None.
_MUST_BE_OFF = ("crop_border_pixels", "fp16", "tf_preprocessing")
# timm's re_mode -> the noise of Erasing.
_NOISE = {"": None, "const": None, "rand": "box", "pixel": "pixel"}


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
    """timm's create_loader.

    The dataset is one of `create_dataset` or `fastpipe.open`, or timm's AugMixDataset of one.

    Args:
        collate_fn: timm's FastCollateMixup, for its parameters, in mode "batch" or "elem".
        num_workers: threads, at least 1.
        seed: seed of order, crops and augmentation, on all ranks. None: batch_choice_seed, which is
            train.py's --seed.
        others: pin_memory, persistent_workers, worker_seeding and the like, which have no effect
            here.

    Raises:
        ConfigError: an argument is wrong, or is one of timm's that cannot be had: train_crop_mode
            but "rrc", crop_mode "border" or "squash" without crop_pct=1, crop_border_pixels,
            tf_preprocessing, fp16, sizes with batch sizes, weights or a schedule of their own,
            AutoAugment and AugMix policies, evaluation of images that are no squares but by these
            two, and splits with mixing or sizes.
    """
    is_augmented = is_training and not no_aug
    num_splits = 1
    if is_augmented and num_aug_splits > 1:
        num_splits = num_aug_splits

    # Arguments of timm that mean something which fastpipe cannot do, and their values.
    unsupported: dict[str, Any] = {}
    for name, value in others.items():
        is_off = name in _MUST_BE_OFF and not value
        if name not in _WITHOUT_EFFECT and not is_off:
            unsupported[name] = value
    if train_crop_mode not in (None, "rrc"):
        unsupported["train_crop_mode"] = train_crop_mode
    if batch_choice_weights:
        unsupported["batch_choice_weights"] = batch_choice_weights
    if batch_choice_schedule != "constant":
        unsupported["batch_choice_schedule"] = batch_choice_schedule
    if batch_size_choices and set(batch_size_choices) != {batch_size}:
        unsupported["batch_size_choices"] = batch_size_choices
    if num_splits > 1 and (collate_fn is not None or input_size_choices is not None):
        unsupported["num_aug_splits"] = num_aug_splits
    if re_mode.lower() not in _NOISE:
        unsupported["re_mode"] = re_mode
    if num_aug_repeats != int(num_aug_repeats):
        unsupported["num_aug_repeats"] = num_aug_repeats
    if unsupported:
        _raise_unsupported(unsupported)

    # timm's train.py wraps the dataset in an AugMixDataset, which would make the splits. Here
    # TimmLoader makes them, of the dataset inside.
    if num_aug_splits > 1 and not isinstance(dataset, Dataset):
        dataset = dataset.dataset
    data = as_dataset(dataset)
    partner = waiting_partner(train=is_training)
    problems: Iterable[str] = ()
    if partner is not None:
        training = data if is_training else partner.dataset
        evaluation = partner.dataset if is_training else data
        problems = describe_other_classes(training, evaluation)
    for problem in problems:
        raise ConfigError(
            f"{problem}; in timm's programs: --class-map with the data for training"
        )

    channels, height, width = parse_shape(input_size, len(mean))
    if interpolation == "random":
        # timm draws bilinear or bicubic for each photo; without augmentation it takes bilinear.
        interpolation = "bilinear"
        if is_augmented:
            interpolation = "bicubic"
    # Without augmentation timm resizes training photos: of a number their shorter side, of a pair
    # both sides.
    crop: Crop
    if is_augmented:
        crop = RandomResizedCrop(
            scale=scale or (0.08, 1.0),
            ratio=ratio or (3 / 4, 4 / 3),
            interpolation=interpolation,
        )
    elif is_training and isinstance(input_size, int):
        crop = CenterCrop(resize=input_size, interpolation=interpolation)
    elif is_training:
        crop = Resize(interpolation=interpolation)
    else:
        size = (height, width)
        crop = evaluation_crop(crop_pct or 0.875, crop_mode, size, interpolation, mean)

    options: dict[str, Any] = {
        "mean": mean,
        "std": std,
        "dtype": img_dtype or torch.float32,
    }
    flips: list[torch.nn.Module] = []
    operations: list[torch.nn.Module] = []
    if is_augmented:
        if vflip:
            flips.append(kornia.augmentation.RandomVerticalFlip(p=vflip))
        # As in timm, a policy replaces the colour jitter, except with "3a" in its name.
        if auto_augment and "3a" not in auto_augment:
            color_jitter = None
        operations = image_operations(
            color_jitter,
            color_jitter_prob,
            grayscale_prob,
            gaussian_blur_prob,
            auto_augment,
        )
    after: list[Any] = []  # operations on normalised images
    if is_training and collate_fn is not None:
        after.append(mixing_of(collate_fn))
        options["label_smoothing"] = collate_fn.label_smoothing
        options["num_classes"] = collate_fn.num_classes
    if is_augmented and re_prob:
        # With re_split, timm spares the first split. Without splits it spares the first half of the
        # batch.
        spared = 0.0
        if re_split and num_splits == 1:
            spared = 0.5
        noise = _NOISE[re_mode.lower()]
        after.append(
            Erasing(re_prob, noise=noise, most=max(1, re_count), spared=spared)
        )

    # With splits, the loader gives uint8 images, and TimmLoader flips and augments each split.
    splits: list[Augment] = []
    if num_splits == 1:
        augment = Augment([*flips, *operations], after=after, **options)
    else:
        # The first split shows the photos as they are.
        first_after = [] if re_split else after
        augment = Augment([], after=first_after, **options)
        other_split = Augment(operations, after=after, **options)
        splits = [augment, *repeat(other_split, num_splits - 1)]

    # Arguments of fastpipe.loader that are given only where timm's ask for them.
    loading: dict[str, Any] = {}
    world_size = 1
    if distributed:
        world_size = torch.distributed.get_world_size()
    else:
        # Also where torch.distributed is initialised, this process reads all samples.
        loading["rank"] = 0
        loading["world_size"] = 1
    if num_aug_repeats and is_training:
        # As in timm, repeats make an epoch no longer.
        loading["sampler"] = Repeated(int(num_aug_repeats))
        loading["epoch_size"] = len(data)
    if num_batches is not None and is_training:
        loading["epoch_size"] = num_batches * batch_size * world_size
    num_sizes = 1
    if input_size_choices is not None:
        sizes = []
        for size_choice in input_size_choices:
            shape = parse_shape(size_choice, channels)
            sizes.append(shape[1:])
        loading["size_choices"] = sizes
        num_sizes = len(sizes)
    else:
        loading["size"] = (height, width)
    if not splits:
        loading["augment"] = augment
    if channels == 1:
        loading["channels"] = "gray"
    if seed is None:
        seed = batch_choice_seed
    photo_loader = loader(
        data,
        batch_size,
        train=is_training,
        crop=crop,
        hflip=hflip if is_augmented else False,
        seed=seed,
        num_workers=max(1, num_workers),
        device=device if use_prefetcher else "cpu",
        **loading,
    )
    return TimmLoader(photo_loader, augment, splits, vflip, num_sizes)


def _raise_unsupported(unsupported: dict[str, Any]) -> None:
    """Raises the error that names the unsupported arguments, and those that are supported."""
    options = [f"{name}={value!r}" for name, value in unsupported.items()]
    names = ", ".join(options)
    parameters = list(inspect.signature(create_loader).parameters)
    parameters.remove("others")
    known = ", ".join(parameters)
    raise ConfigError(
        f"fastpipe.timm.create_loader cannot do {names}; it knows {known}"
    )


class TimmLoader:
    """A loader as timm's training loop uses it.

    All else, such as `dataset`, `sampler`, `state_dict`, `load_state_dict` and `close`, is that of
    `loader`, a fastpipe.Loader.
    """

    def __init__(
        self,
        loader: Loader,
        augment: Augment,
        splits: Sequence[Augment],
        vflip: float,
        num_sizes: int,
    ) -> None:
        """Wraps a loader.

        Args:
            loader: of the images.
            augment: of the loader, or of the first split.
            splits: the augmentation of each split; empty: the loader augments.
            vflip: with splits, the probability that an image is upside down, in all of them.
            num_sizes: how many sizes of images there are to choose from.
        """
        self.loader = loader
        self._augment = augment
        self._splits = splits
        self._vflip = vflip
        self.batch_sampler = loader.batch_sampler  # has `set_epoch`
        # timm's train.py reads these of its ScheduledBatchSampler.
        attributes = vars(self.batch_sampler)
        attributes["batch_sizes"] = (loader.batch_size,) * num_sizes
        attributes["average_batch_size"] = float(loader.batch_size)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Pairs of images, (N, C, height, width) normalised, and labels.

        With splits, images and labels are (splits * N, ...), one split after another.
        """
        if not self._splits:
            yield from self.loader
            return
        seed = self.loader.recipe.seed
        for batch in self.loader:
            images, labels = batch
            samples = batch.ids.numpy(force=True)
            # `remaining` has counted this batch already.
            batch_index = len(self.loader) - self.loader.remaining - 1

            # A photo is upside down in all splits or in none.
            flip_key = key(seed, batch.epoch, Stream.UPSIDE_DOWN)
            is_flipped = uniform(flip_key, samples) < self._vflip  # (N,)
            if is_flipped.any():
                is_row_flipped = torch.from_numpy(is_flipped).to(images.device)
                is_pixel_flipped = is_row_flipped[:, None, None, None]
                images = torch.where(is_pixel_flipped, images.flip(2), images)
                images = images.contiguous(memory_format=torch.channels_last)

            parts = []
            for split_index, augment in enumerate(self._splits):
                # Each split has a seed of its own, so that the splits of a photo differ. No stream
                # has the number 0, so it is no other draw's key.
                split_seed = key(seed, split_index, 0)
                # A copy, because an augmentation may overwrite its images.
                part = augment(
                    images.clone(),
                    seed=split_seed,
                    epoch=batch.epoch,
                    batch=batch_index,
                    samples=samples,
                )
                parts.append(part)
            yield torch.cat(parts), labels.repeat(len(parts))

    def __len__(self) -> int:
        return len(self.loader)

    @property
    def mixup_enabled(self) -> bool:
        """Whether mixup or cutmix is done. Set it to False between epochs: labels stay soft."""
        for mixer in self._augment.mixers:
            if isinstance(mixer, Mixing) and mixer.enabled:
                return True
        return False

    @mixup_enabled.setter
    def mixup_enabled(self, enabled: bool) -> None:
        for mixer in self._augment.mixers:
            if isinstance(mixer, Mixing):
                mixer.enabled = enabled
        # Batches that were made ahead are mixed as before.
        self.loader.discard_prefetched()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.loader, name)
