"""uint8 or uint16 batches -> augmented, normalised batches: plan (numpy), carry_out (torch)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fastpipe.arguments import refusing_unknown
from fastpipe.arrays import Int64s
from fastpipe.device.augment import presets
from fastpipe.device.augment.chain import Chain
from fastpipe.device.augment.inputs import check_images
from fastpipe.device.augment.normalised import Erasing, Mixing
from fastpipe.device.augment.operation import Operation
from fastpipe.device.augment.options import (
    DTYPES,
    check_normalised_once,
    compile_operations,
    describe_equivalent,
    parse_number,
    parse_operations,
)
from fastpipe.device.augment.pixels import IMAGENET_MEAN, IMAGENET_STD
from fastpipe.errors import ConfigError, flag, whole
from fastpipe.plan.draws import Stream, key

# Arguments that people look for here -> what to write instead.
_INSTEAD = {
    "p": "each module has its own probability: K.ColorJitter(0.4, 0.4, 0.4, 0.1, p=0.8). For mixup= "
    "and cutmix= the argument is the alpha",
    "size": "it is an argument of the loader: fastpipe.loader(data, size=224)",
    "crop": "it is an argument of the loader: fastpipe.loader(data, crop=...)",
    "hflip": "it is an argument of the loader: fastpipe.loader(data, hflip=0.5)",
}


class Augment(Chain):
    """Augments, normalises and mixes batches of images on their device.

    Images are (N, C, height, width), uint8 (0 to 255) or uint16 (0 to 65535); C is 1 (gray), 3
    (RGB) or 4 (RGB and alpha). Saturation, hue and grayscale leave gray images as they are. Alpha
    moves with the pixels; only normalising, erasing and mixing change it. The draws depend neither
    on channels nor on bits.

    `plan` draws every random choice in advance, only from (seed, epoch, batch, sample). `carry_out`
    applies the plan without waiting for the device. Pass an Augment to
    fastpipe.loader(augment=...), or call it.

    Args:
        operations: kornia's augmentations or other modules, one or a list; done before normalising.
            Each takes and returns a batch: (N, C, height, width) float32 in [0, 1], channels_last.
            nn.Sequential and kornia's containers count as the list of their modules. Modules of
            kornia that mix images make labels soft.
        dtype: dtype of the output images: torch.float32, bfloat16 or float16. Operations always
            compute in float32.
        mean, std: mean and standard deviation of pixels in [0, 1]: a number for each channel, or
            one for all. Three numbers are those of red, green and blue: gray images get their luma
            (0.299 R + 0.587 G + 0.114 B, as Pillow's), and alpha stays as it is. Default:
            ImageNet's. None for both: no normalising, and the operations may return any shape (N,
            ...).
        erasing: probability that a box of an image becomes blank, after normalising (Zhong et al.,
            2020).
        mixup: alpha of mixup (Zhang et al., 2018; 0.2 is usual); 0: no mixup. Labels become soft.
        cutmix: alpha of cutmix (Yun et al., 2019; 1.0 is usual); 0: no cutmix. With both, each
            sample gets one of them.
        label_smoothing: share of each label that is spread over all classes, in [0, 1). Labels
            become soft. Leave it out of the loss then, or labels are smoothed twice.
        num_classes: number of classes of soft labels; None: the number of classes of the loader's
            dataset.
        compile: run fastpipe's own operations, except blur, through torch.compile. For other
            modules, pass compiled modules.
        merge_geometry: sample images once for neighbouring modules of kornia that move pixels (flips,
            affine, rotation, shear, translation, perspective), by the product of their matrices.
            Faster and sharper than module by module; pixels differ from kornia's.
        after: operations of fastpipe.device.augment.normalised that come after normalising, last;
            `fastpipe.timm` has some.

    Raises:
        ConfigError: an argument is wrong.

    Example:
        >>> import kornia.augmentation as K
        >>> augment = fastpipe.Augment([K.ColorJitter(0.4, 0.4, 0.4, 0.1, p=0.8)], mixup=0.2)
        >>> loader = fastpipe.loader("data/train", batch_size=8, size=32, augment=augment)
        >>> images, labels = next(iter(loader))
        >>> images.dtype, labels.shape  # labels are mixed, too
        (torch.float32, torch.Size([8, 2]))
    """

    _NOT_PUBLIC = frozenset(["label_options"])  # loaders use it

    @refusing_unknown("fastpipe.Augment", _INSTEAD)
    def __init__(
        self,
        operations: torch.nn.Module | Sequence[torch.nn.Module] = (),
        *,
        dtype: torch.dtype = torch.float32,
        mean: float | Sequence[float] | None = IMAGENET_MEAN,
        std: float | Sequence[float] | None = IMAGENET_STD,
        erasing: float = 0.0,
        mixup: float = 0.0,
        cutmix: float = 0.0,
        label_smoothing: float = 0.0,
        num_classes: int | None = None,
        compile: bool = False,
        merge_geometry: bool = False,
        after: Sequence[Operation] = (),
    ) -> None:
        # The class, since operations may not contain an Augment.
        before = parse_operations(operations, Augment)
        check_normalised_once(before, mean)
        if flag("compile", compile):
            compile_operations(before)
        label_smoothing = parse_number(
            "label_smoothing", label_smoothing, most=1, exclusive=True
        )
        if num_classes is not None:
            num_classes = whole("num_classes", num_classes, least=1, most=2**31)

        options_after: list[Operation] = []
        erasing = parse_number("erasing", erasing, most=1)
        if erasing:
            options_after.append(Erasing(erasing))
        mixup = parse_number("mixup", mixup)
        cutmix = parse_number("cutmix", cutmix)
        if mixup or cutmix:
            options_after.append(Mixing(mixup, cutmix))
        if dtype not in DTYPES:
            raise ConfigError(
                f"dtype: expected {' or '.join(map(str, DTYPES))}, got {dtype!r}"
            )
        super().__init__(before, [*options_after, *after], dtype, mean, std)
        self.label_smoothing = label_smoothing
        self.num_classes = num_classes
        self.merge_geometry = flag("merge_geometry", merge_geometry)
        self._erasing = erasing
        self._alphas = (mixup, cutmix)
        self._keyless_call_count = 0  # calls without seed and batch

    @classmethod
    def imagenet(cls, **options: Any) -> Augment:
        """Only normalises: with the loader's crop and flip, the usual recipe for ImageNet.

        Args:
            options: the options of Augment.

        Example:
            >>> augment = fastpipe.Augment.imagenet(dtype=torch.bfloat16)
            >>> loader = fastpipe.loader("data/train", batch_size=8, size=32, augment=augment)
            >>> next(iter(loader))[0].dtype
            torch.bfloat16
        """
        return cls(**options)

    @classmethod
    def simclr(cls, *, strength: float = 1.0, **options: Any) -> Augment:
        """Colour jitter, grayscale and blur as in SimCLR (Chen et al., 2020).

        The loader does crop and flip.

        Args:
            strength: strength of the jitter, from 0 to 2.5; the paper uses 1 for ImageNet and 0.5
                for CIFAR-10.
            options: the options of Augment.

        Example:
            >>> augment = fastpipe.Augment.simclr()
            >>> loader = fastpipe.loader("data/train", batch_size=8, size=32, views=2, augment=augment)
            >>> (first, second), labels = next(iter(loader))
        """
        strength = parse_number("strength", strength, most=2.5)
        operations = [
            presets.ColourJitter(strength),
            presets.Grayscale(0.2),
            presets.Blur(0.5),
        ]
        return cls(operations, **options)

    @classmethod
    def randaugment(cls, n: int = 2, m: int = 9, **options: Any) -> Augment:
        """RandAugment (Cubuk et al., 2020): n operations per sample, each with magnitude m.

        Torchvision's operations.

        Args:
            n: number of operations, applied in sequence, from 0 to 16.
            m: magnitude, from 0 (weakest) to 30 (strongest).
            options: the options of Augment.

        Example:
            >>> augment = fastpipe.Augment.randaugment()
            >>> loader = fastpipe.loader("data/train", batch_size=8, size=32, augment=augment)
        """
        layers = whole("n", n, least=0, most=presets.MAX_LAYERS)
        magnitude = whole("m", m, least=0, most=presets.LAST_BIN)
        return cls(presets.Policy(presets.RANDAUGMENT, layers, magnitude), **options)

    @classmethod
    def trivial_augment(cls, **options: Any) -> Augment:
        """TrivialAugment, wide (Müller and Hutter, 2021): one operation per sample, at any
        magnitude; torchvision's.

        Args:
            options: the options of Augment.

        Example:
            >>> augment = fastpipe.Augment.trivial_augment()
            >>> loader = fastpipe.loader("data/train", batch_size=8, size=32, augment=augment)
        """
        return cls(presets.Policy(presets.TRIVIAL_AUGMENT, 1, None), **options)

    @property
    def label_options(self) -> tuple[object, ...] | None:
        """The options that decide the soft labels of a batch, to be compared; None: labels stay as
        they are.
        """
        if not self.soft:
            return None
        # A mixing module draws by its position, so at another one it mixes otherwise.
        mixers = []
        for position, stage in enumerate(self.stages):
            if stage.mixes:
                mixers.append((position, stage.module))
        return self.label_smoothing, self.num_classes, self._alphas, mixers

    def forward(
        self,
        images: Tensor,
        labels: Tensor | None = None,
        *,
        seed: int | None = None,
        epoch: int = 0,
        batch: int | None = None,
        samples: Int64s | Sequence[int] | None = None,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Augments a batch without a loader.

        For several views of each image, each with a crop of its own, pass `fastpipe.loader` views=2.

        Args:
            images: (N, C, height, width) uint8 or uint16, on any device.
            labels: (N,) int64; required if labels become soft.
            seed, epoch, batch: keys of the draws; see `plan`. Without seed and batch, each call
                draws new numbers, so two views of the same images differ. With one of them, the
                result is the same each time.
            samples: (N,) numbers of the samples; None: batch * N to batch * N + N - 1.

        Returns:
            images, or (images, labels) if labels were given; see `carry_out`.

        Raises:
            ConfigError: an argument is wrong.

        Example:
            >>> images = torch.randint(0, 256, (8, 3, 32, 32), dtype=torch.uint8)
            >>> labels = torch.tensor([0, 1] * 4)
            >>> augment = fastpipe.Augment(mixup=0.2, num_classes=2)
            >>> mixed, soft_labels = augment(images, labels)
            >>> mixed.dtype, soft_labels.shape
            (torch.float32, torch.Size([8, 2]))
        """
        check_images(images)
        if labels is None and self.soft:
            raise ConfigError(
                "Augment: mixing and label_smoothing need labels; pass labels, (N,) int64"
            )
        # Each call without keys gets a seed of its own. The first one has the seed 0.
        if seed is None and batch is None:
            seed = 0
            if self._keyless_call_count:
                seed = key(0, self._keyless_call_count, Stream.CALL)
            self._keyless_call_count += 1
        batch = whole("batch", batch or 0, least=0, most=2**63 - 1)
        plan = self.plan(
            _sample_numbers(samples, len(images), batch),
            (images.shape[2], images.shape[3]),
            seed=whole("seed", seed or 0, least=0, most=2**64 - 1),
            epoch=whole("epoch", epoch, least=0, most=2**63 - 1),
            batch=batch,
            channels=images.shape[1],
            bits=8 * images.element_size(),
        )
        tensors = {
            name: torch.from_numpy(array).to(images.device)
            for name, array in plan.arrays.items()
        }
        if labels is None:
            no_labels = torch.zeros(
                len(images), dtype=torch.int64, device=images.device
            )
            augmented, _ = self.carry_out(images, no_labels, plan, tensors)
            return augmented
        return self.carry_out(images, labels, plan, tensors)

    def extra_repr(self) -> str:
        """The options that are not modules."""
        mixup, cutmix = self._alphas
        options = {
            "dtype": self.dtype,
            "mean": self.mean,
            "std": self.std,
            "erasing": self._erasing,
            "mixup": mixup,
            "cutmix": cutmix,
            "label_smoothing": self.label_smoothing,
            "num_classes": self.num_classes,
            "merge_geometry": self.merge_geometry,
        }
        texts = []
        for name, value in options.items():
            if value:
                texts.append(f"{name}={value}")
        return ", ".join(texts)


def _sample_numbers(
    samples: Int64s | Sequence[int] | None, count: int, batch: int
) -> Int64s:
    """Checks the sample numbers of a batch; None: those of a dataset in batches of `count`."""
    if samples is None:
        return np.arange(count) + batch * count
    numbers = np.asarray(samples)
    if numbers.shape != (count,) or numbers.dtype.kind not in "iu":
        raise ConfigError(
            f"samples: expected {count} whole numbers, one per image, got shape {numbers.shape} of "
            f"{numbers.dtype}"
        )
    return numbers.astype(np.int64)


def as_augment(value: object) -> Augment:
    """Checks fastpipe.loader(augment=...): an Augment, or modules, which become one.

    Raises:
        ConfigError: it is something else.
    """
    if isinstance(value, Augment):
        return value
    if isinstance(value, (list, tuple, torch.nn.Module)):
        return Augment(value)
    raise ConfigError(
        "augment: expected a fastpipe.Augment, a torch.nn.Module that takes and returns a batch, "
        f"or a list of such modules, got {value!r}; {describe_equivalent(value)}"
    )
