"""The modules of kornia that are carried out by our own formulas: the same images, within 1e-5."""

from __future__ import annotations

import pytest
import torch
from support.batches.formula_cases import CASES, assert_kornias, colours, is_carried_out, k
from support.batches.formula_table import PAGE, page_with_table
from support.devices.simulated_gpu import simulated

import fastpipe
from fastpipe.device.augment import pixels
from fastpipe.device.augment.formulas import find_formula
from fastpipe.device.augment.formulas.table import KNOWN

pytestmark = pytest.mark.usefixtures("one_thread")


def test_each_formula_has_a_case() -> None:
    modules = {type(case.make(p=1.0)).__name__ for case in CASES.values()}
    assert modules == set(KNOWN)


@pytest.mark.parametrize("device", ["cpu", "accelerator"])
@pytest.mark.parametrize("name", CASES)
def test_images_are_kornias(name: str, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pixels, "on_cpu", lambda _: device == "cpu")
    torch.manual_seed(7)
    case = CASES[name]
    for channels in case.channels:
        for count, size in ((7, (3, 4)), (50, (16, 13)), (5, (40, 33))):
            images = colours(count, channels, *size, seed=channels)
            module = case.make(p=1.0)
            if size == (3, 4) and not is_carried_out(module, size, channels):
                continue
            assert_kornias(name, module, images, note=(channels, size))


# A policy refuses such images only when it chooses sharpness.
@pytest.mark.parametrize("name", [name for name in CASES if "Augment" not in name])
def test_images_of_one_pixel_and_line(name: str) -> None:
    torch.manual_seed(7)
    case = CASES[name]
    for size in ((1, 1), (1, 9), (9, 1)):
        module = case.make(p=1.0)
        if is_carried_out(module, size, 3):
            assert_kornias(name, module, colours(7, 3, *size, seed=1), note=size)
        else:
            with pytest.raises(ValueError, match="cannot filter"):
                module(colours(7, 3, *size, seed=1))


def augmented(name: str, images: torch.Tensor, same_on_batch: bool) -> torch.Tensor:
    module = CASES[name].make(p=0.6, same_on_batch=same_on_batch)
    augment = fastpipe.Augment(module, mean=None, std=None)
    result = augment(images, seed=3)
    assert isinstance(result, torch.Tensor)
    return result


@pytest.mark.parametrize("name", CASES)
def test_a_loaders_augmentation_is_that_of_the_module(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a probability, for uint8 images, which stay as they are, in batches of any size."""
    channels = CASES[name].channels[0]
    for count, same_on_batch in ((7, False), (5, False), (1, False), (6, True)):
        levels = colours(count, channels, 12, 10, seed=count) * 255
        images = levels.round().to(torch.uint8)
        before = images.clone()
        ours = augmented(name, images, same_on_batch)
        assert torch.equal(images, before)
        with monkeypatch.context() as patch:
            patch.setattr("fastpipe.device.augment.kornia_calls.find_formula", lambda _: None)
            theirs = augmented(name, images, same_on_batch)
        assert (ours - theirs).abs().max() < 1e-5, (count, same_on_batch)


def test_a_formula_changes_all_images_and_asks_the_device_for_nothing() -> None:
    """On a simulated GPU: no wait, and no copy."""
    prepared_of = {}
    for name, case in CASES.items():
        module = case.make(p=1.0)
        images = colours(3, 3, 24, 20, seed=1)
        formula = find_formula(module)
        assert formula is not None
        parameters = module.forward_parameters(images.shape)
        prepared_of[name] = formula, formula.prepare(parameters, images.shape)
    with simulated() as gpu:
        for name, (formula, prepared) in prepared_of.items():
            images = colours(3, 3, 24, 20, seed=1).to("cuda:0")
            tensors = {}
            for key, tensor in prepared.tensors.items():
                tensors[key] = tensor.contiguous().to("cuda:0")
            gpu.waits.clear()
            gpu.copies.clear()
            formula.change(images, tensors, prepared.host)
            assert gpu.waits == [], name
            assert gpu.copies == [], name


def test_other_modules_go_through_kornia() -> None:
    class Own(k.ColorJitter):  # type: ignore[misc]
        pass

    hooked = k.RandomHue((-0.1, 0.1))
    hooked.register_forward_hook(lambda *_: None)
    weights = torch.tensor([0.2, 0.3, 0.5])
    for module in (
        Own(0.1),
        hooked,
        k.RandomGrayscale(rgb_weights=weights),
        k.RandomBrightness((0.5, 1.5), clip_output=False),
        k.RandomAutoContrast(clip_output=False),
        k.RandomInvert(torch.tensor([0.5, 0.6, 0.7])),
        k.RandomPlasmaShadow(),
        torch.nn.Identity(),
    ):
        assert find_formula(module) is None


def test_gray_images_go_through_kornia_where_a_formula_is_of_rgb() -> None:
    formula = find_formula(k.ColorJitter(0.1))
    assert formula is not None
    assert not formula.fits((8, 8), 1)
    images = torch.randint(0, 256, (4, 1, 8, 8), dtype=torch.uint8)
    augment = fastpipe.Augment(k.RandomGamma((0.5, 2.0), p=1.0), mean=None, std=None)
    result = augment(images)
    assert isinstance(result, torch.Tensor)
    assert result.shape == (4, 1, 8, 8)


def test_the_page_has_the_modules_that_are_carried_out() -> None:
    advice = "run: .venv/bin/python scripts/write_formulas_table.py"
    assert PAGE.read_text() == page_with_table(), advice
