"""Every 2D augmentation of kornia 0.9, as small as it can be made: name -> a function that makes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import kornia.augmentation
import torch

k: Any = kornia.augmentation
Make = Callable[[], torch.nn.Module]

_HALF = (0.5, 0.5, 0.5)
_ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "CenterCrop": ((24, 24),),
    "ColorJiggle": (0.4, 0.4, 0.4, 0.1),
    "ColorJitter": (0.4, 0.4, 0.4, 0.1),
    "Denormalize": (_HALF, _HALF),
    "LongestMaxSize": (28,),
    "Normalize": (_HALF, _HALF),
    "PadTo": ((44, 44),),
    "RandomAffine": (15.0, (0.1, 0.1), (0.8, 1.2), 10.0),
    "RandomAutoContrast": (),
    "RandomBoxBlur": (),
    "RandomBrightness": ((0.5, 1.5),),
    "RandomChannelDropout": (),
    "RandomChannelShuffle": (),
    "RandomClahe": (),
    "RandomContrast": ((0.5, 1.5),),
    "RandomCrop": ((24, 32),),
    "RandomElasticTransform": (),
    "RandomEqualize": (),
    "RandomErasing": (),
    "RandomFisheye": (
        torch.tensor([-0.3, 0.3]),
        torch.tensor([-0.3, 0.3]),
        torch.tensor([0.9, 1.0]),
    ),
    "RandomGamma": ((0.5, 1.5),),
    "RandomGaussianBlur": ((3, 3), (0.1, 2.0)),
    "RandomGaussianIllumination": (),
    "RandomGaussianNoise": (),
    "RandomGrayscale": (),
    "RandomHorizontalFlip": (),
    "RandomHue": ((-0.2, 0.2),),
    "RandomInvert": (),
    "RandomJPEG": (),
    "RandomJigsaw": (),
    "RandomLinearCornerIllumination": (),
    "RandomLinearIllumination": (),
    "RandomMedianBlur": (),
    "RandomMotionBlur": (3, 35.0, 0.5),
    "RandomPerspective": (),
    "RandomPlanckianJitter": (),
    "RandomPlasmaBrightness": (),
    "RandomPlasmaContrast": (),
    "RandomPlasmaShadow": (),
    "RandomPosterize": (3,),
    "RandomRGBShift": (),
    "RandomRain": ((5, 20),),
    "RandomResizedCrop": ((24, 32),),
    "RandomRotation": (30.0,),
    "RandomRotation90": ((0, 3),),
    "RandomSaltAndPepperNoise": (),
    "RandomSaturation": ((0.5, 1.5),),
    "RandomSharpness": (),
    "RandomShear": (10.0,),
    "RandomSnow": (),
    "RandomSolarize": (),
    "RandomThinPlateSpline": (),
    "RandomTranslate": ((0.1, 0.1), (0.1, 0.1)),
    "RandomVerticalFlip": (),
    "Resize": ((24, 24),),
    "SmallestMaxSize": (28,),
}
# Their results hold several images, so they depend on the batch; labels follow them.
MIXING = {"PatchMix", "RandomCutMixV2", "RandomMixUpV2", "RandomMosaic"}
MIXING_CASES: dict[str, Make] = {
    "RandomMixUpV2": lambda: k.RandomMixUpV2(),
    "RandomMixUpV2, half": lambda: k.RandomMixUpV2((0.2, 0.4), p=0.5),
    "RandomCutMixV2": lambda: k.RandomCutMixV2(use_correct_lambda=True),
    "RandomCutMixV2, half": lambda: k.RandomCutMixV2(use_correct_lambda=True, p=0.5),
    "RandomCutMixV2, small": lambda: k.RandomCutMixV2(use_correct_lambda=True, cut_size=(0.4, 0.6)),
    "PatchMix": lambda: k.PatchMix(patch_size=11),
    "RandomMosaic": lambda: k.RandomMosaic(p=1.0),
    "RandomMosaic, some": lambda: k.RandomMosaic(),
    "RandomMosaic, 3 x 2": lambda: k.RandomMosaic(
        mosaic_grid=(3, 2), start_ratio_range=(0.1, 0.9), p=1.0
    ),
}
# It copies objects between images by their masks, which a classification dataset does not have.
REFUSED = {"RandomTransplantation"}
# It downloads a diffusion model when it is made.
NOT_MADE = {"RandomDissolving"}
# They draw nothing.
FIXED = {
    "CenterCrop",
    "Denormalize",
    "LongestMaxSize",
    "Normalize",
    "PadTo",
    "RandomSnow",
    "Resize",
    "SmallestMaxSize",
}
FIXED |= {"RandomAutoContrast"}  # its p is 1


def _made(name: str) -> Make:
    return lambda: getattr(k, name)(*_ARGUMENTS[name])


CASES: dict[str, Make] = {name: _made(name) for name in _ARGUMENTS} | {
    "RandomMotionBlur, several sizes": lambda: k.RandomMotionBlur((3, 7), 35.0, 0.5),
    "AugmentationSequential": lambda: k.AugmentationSequential(
        k.RandomGrayscale(), k.RandomAffine(15.0)
    ),
    "AugmentationSequential, random_apply": lambda: k.AugmentationSequential(
        k.RandomGrayscale(), k.RandomInvert(), k.RandomAffine(15.0), random_apply=(1, 2)
    ),
    "ImageSequential, random_apply, with maps": lambda: k.ImageSequential(
        k.RandomGaussianNoise(p=1.0), k.RandomPlasmaShadow(p=1.0), k.RandomInvert(), random_apply=2
    ),
    "ImageSequential in another": lambda: k.ImageSequential(
        k.ImageSequential(k.RandomInvert(), k.RandomSolarize()), k.ColorJitter(0.4, 0.4, 0.4, 0.1)
    ),
    "PatchSequential": lambda: k.PatchSequential(
        *(k.ColorJitter(0.4, 0.4, 0.4, 0.1) for _ in range(4)), grid_size=(2, 2)
    ),
    "auto.AutoAugment": lambda: k.auto.AutoAugment(),
    "auto.RandAugment": lambda: k.auto.RandAugment(2, 10),
    "auto.TrivialAugment": lambda: k.auto.TrivialAugment(),
}


def all_2d() -> set[str]:
    """The names of all 2D augmentations in the kornia that is installed."""
    kinds = (k.AugmentationBase2D, k.MixAugmentationBaseV2)
    names = {
        name
        for name in k.__all__
        if isinstance(getattr(k, name), type) and issubclass(getattr(k, name), kinds)
    }
    bases = {
        "GeometricAugmentationBase2D",
        "IntensityAugmentationBase2D",
        "RigidAffineAugmentationBase2D",
    }
    return (
        names
        - bases
        - {kind.__name__ for kind in kinds}
        - {name for name in names if name.endswith("3D")}
    )
