"""A loader -> a sheet of some images, their crops, and the images that the model sees."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from fastpipe.arguments import refusing_unknown
from fastpipe.arrays import Int64s, Uint8s
from fastpipe.dataset.format.fields import Field
from fastpipe.dataset.format.folder import check_local
from fastpipe.device.augment import Augment
from fastpipe.device.patch_batch import put_together
from fastpipe.engine.slots import SlotRing
from fastpipe.engine.stats import Stats
from fastpipe.errors import ConfigError, flag, format_count, readable, whole
from fastpipe.loading.loader import Loader, make_transfer
from fastpipe.plan.batch import BatchPlan
from fastpipe.plan.crop_boxes import Crops
from fastpipe.plan.epoch import EpochPlan
from fastpipe.plan.recipe import Recipe
from fastpipe.tools.show.sheet_mark import may_replace

VARIANTS = 8
SIZE = 160
MOST_ROWS = 100
_SQUARES = 20  # of the checkerboard behind alpha, on the longer side
_MAX_DRAWS = 10_000  # of an epoch with weights, to find out which samples it has
_MIN_SHARE = 0.005  # of a class in a caption

Pixels = Uint8s
"""(height, width, 3) RGB, where nothing else is said."""


class Preview(NamedTuple):
    """A sheet that was drawn. A notebook shows it where it ends a cell."""

    path: Path  # of the PNG
    photos: int  # how many it shows

    def _repr_png_(self) -> bytes:
        return self.path.read_bytes()


@refusing_unknown("fastpipe.preview")
def preview(
    loader: Loader,
    out: str | os.PathLike[str] = "preview.png",
    *,
    rows: int = 6,
    overwrite: bool = False,
) -> Preview:
    """Draws one row for each image: the image, the crops on it, and each crop as the training loop
    gets it.

    Crops, mirroring and augmentation are those of the images in epochs 0 to 7 of this loader, made
    on its device by its own code. Only the normalising by mean= and std= is undone, and alpha is
    drawn over a checkerboard. Yellow is the crop of epoch 0. With soft labels, a caption names the
    classes with the largest shares. The loader's own iteration does not change.

    If the loader has fields, boxes with their labels, masks and points are drawn on the image, and
    on each crop as the training loop gets them. Equal labels and ids have equal colours. Texts and
    numbers stand below the row, cut to fit. A map and a list of images have a row of their own: the
    map in colours from its least number to its greatest one, the first images of the list as the
    training loop gets them.

    With several views, a row has each view of epoch 0 in place of the epochs. Yellow is the crop of
    the first view.

    Args:
        loader: made by fastpipe.loader, with any augment= and fields=.
        out: the PNG.
        rows: number of images, from 1 to 100. The loader's seed selects them.
        overwrite: replace the file if it exists. A sheet that fastpipe drew earlier is replaced
            without it.

    Returns:
        The sheet, which a notebook shows: its `path`, and `photos`, which is `rows`, or as many as
        there are.

    Raises:
        ConfigError: an argument is wrong, another file has the name of the PNG, or the augmentation returns no images.
        SampleError: an image cannot be decoded.
        DatasetError: a field cannot be read.

    Example:
        >>> loader = fastpipe.loader("data/train", batch_size=8, size=32)
        >>> sheet = fastpipe.preview(loader, "preview.png", rows=2)
    """
    if not isinstance(loader, Loader):
        raise ConfigError(
            f"preview: expected a loader, got {type(loader).__name__}; make one with "
            "fastpipe.loader(data, augment=...)"
        )
    check_local("preview", out, "file")
    can_overwrite = flag("overwrite", overwrite)
    if not can_overwrite and not may_replace(out):
        raise ConfigError(
            f"preview: {os.fspath(out)} exists, and fastpipe did not draw it; pass overwrite=True "
            "to replace it, or another name"
        )
    from fastpipe.tools.show.drawing import with_marks
    from fastpipe.tools.show.marks import marks_of_row, of_samples, visible
    from fastpipe.tools.show.sheet import contact_sheet, fitted, with_boxes, write_png

    data = loader.dataset
    recipe = loader.recipe
    if recipe.crop.is_per_part:
        raise ConfigError(
            f"preview: it cannot draw crop={type(recipe.crop).__name__}: it shows one crop of each image. "
            "Pass a loader with another crop="
        )
    if recipe.crop.rows > 1:
        raise ConfigError(
            f"preview: it cannot draw crop={type(recipe.crop).__name__}: it shows one crop of each image, "
            f"not {recipe.crop.rows}. Pass a loader with another crop="
        )
    has_images = loader.maker.with_images
    reader = loader.maker.fields
    has_lists = reader is not None and bool(reader.picture_lists)
    if not has_images and not has_lists:
        raise ConfigError(
            'preview: it draws the images of a loader, and this one has fields without "image"; pass '
            'a loader with fields=["image", ...]'
        )
    num_photos = whole("rows", rows, least=1, most=MOST_ROWS)
    ids = _some_samples(recipe, num_photos)

    # One column for each epoch, or for each view.
    num_epochs = VARIANTS
    column_kind = "epoch"
    if recipe.other_views:
        num_epochs = 1
        column_kind = "view"
    columns: list[Seen] = []
    for epoch in range(num_epochs):
        columns += preview_samples(loader, ids, epoch)
    names = []
    for number in range(len(columns)):
        names.append(f"{column_kind} {number}")
    pixels = []
    if has_images:
        augments = cycle(loader.augments)
        for column, augment in zip(columns, augments, strict=False):
            pixels_of_column = _pixels(column.images, augment)
            pixels.append(pixels_of_column)

    first_column = columns[0]
    plan = first_column.plan
    field_names: tuple[str, ...] = ()
    if reader:
        field_names = reader.names
    fields = visible(data, field_names)
    cells_per_row = 2 + len(columns)
    cells: list[Pixels] = []
    captions: list[str] = []
    notes: list[list[str]] = []

    def add_row(
        row_cells: Sequence[Pixels], row_captions: Sequence[str], lines: list[str]
    ) -> None:
        num_empty = cells_per_row - len(row_cells)
        cells.extend(row_cells)
        captions.extend(row_captions)
        for _ in range(num_empty):
            cells.append(_empty_cell())
            captions.append("")
        notes.append(lines)

    # A sample has a row of the sheet with the photo with its fields, the photo with the crops, and
    # each column; and one for each map and each list of pictures. Its texts are below the last row.
    for row, shown in enumerate(of_samples(data, plan, fields)):
        marks, lines, maps = shown
        no_lines = [""] * len(lines)
        rows_of_maps = _rows_of_maps(columns, row, maps)
        rows_of_lists = _rows_of_lists(first_column, row, fields, cells_per_row)
        further_rows = rows_of_maps + rows_of_lists
        if has_images:
            record = plan.records[row]
            photo = _photo(loader, plan, row)
            # Crops are in pixels of the stored picture, the photo has those of its cell.
            width = record["width"]
            height = record["height"]
            _, photo_width, _ = photo.shape
            scale = photo_width / width
            crop_boxes = []
            for column in columns:
                box_xywh = column.plan.crops.boxes[row]
                crop_boxes.append(box_xywh * scale)
            with_fields = with_marks(photo, marks)
            with_crops = with_boxes(photo, np.stack(crop_boxes))
            cell_of_fields = fitted(with_fields, SIZE)
            cell_of_crops = fitted(with_crops, SIZE)
            photo_cells = [cell_of_fields, cell_of_crops]
            label = int(record["label"])
            class_name = ""
            if label >= 0:
                class_name = loader.classes[label]
            size_caption = f"{width} x {height}"
            photo_captions = [class_name, size_caption]
            for name, column, images in zip(names, columns, pixels, strict=True):
                crop_size = column.plan.crops.size_of_row(row)
                moved_marks = marks_of_row(column.fields, row, fields, crop_size)
                image = _shrunk(images[row])
                marked_image = with_marks(image, moved_marks)
                photo_cells.append(fitted(marked_image, SIZE))
                label_of_row = column.labels[row]
                caption = _caption(name, label_of_row, data.classes)
                photo_captions.append(caption)
            photo_lines = lines
            if further_rows:
                photo_lines = no_lines
            add_row(photo_cells, photo_captions, photo_lines)
        num_further = len(further_rows)
        for number, (row_cells, row_captions) in enumerate(further_rows, 1):
            row_lines = no_lines
            if number == num_further:
                row_lines = lines
            add_row(row_cells, row_captions, row_lines)

    path = str(data.path)
    if has_images:
        has_fields = bool(fields)
        title = _title(path, len(ids), recipe.seed, names, has_fields=has_fields)
    else:
        samples = format_count(len(ids), "sample")
        title = [
            f"{readable(path)}: {samples}, seed {recipe.seed}",
            "The images of each list, as the model sees them in epoch 0.",
        ]
    sheet = contact_sheet(
        np.stack(cells),
        captions,
        columns=cells_per_row,
        notes=notes,
        title=title,
    )
    write_png(Path(out), sheet)
    sheet_path = Path(os.path.abspath(out))
    return Preview(sheet_path, len(ids))


def _empty_cell() -> Pixels:
    """A cell without a picture."""
    from fastpipe.tools.show.sheet import fitted

    no_pixels = np.empty((0, 0, 3), dtype=np.uint8)
    return fitted(no_pixels, SIZE)


def _rows_of_maps(
    columns: Sequence[Seen], row: int, maps: Mapping[str, NDArray[Any]]
) -> list[tuple[list[Pixels], list[str]]]:
    """For each map of a sample, below the photo the whole map, and below each crop its part of it.

    All cells of a row have the colours of the whole map's range.
    """
    from fastpipe.tools.show.map_colours import colours_of_map, range_of_map
    from fastpipe.tools.show.sheet import fitted

    rows = []
    for name, whole_map in maps.items():
        whole_map = whole_map.astype(np.float32)
        least, greatest = range_of_map(whole_map)
        values = [whole_map]
        for column in columns:
            part = column.fields[name][row]
            float_part = part.float()
            values.append(float_part.numpy())
        cells = []
        for value in values:
            coloured = colours_of_map(value, least, greatest)
            shrunk = _shrunk(coloured)
            cells.append(fitted(shrunk, SIZE))
        first_cell, *other_cells = cells
        height, width = whole_map.shape[-2:]
        size_caption = f"{name} {width} x {height}"
        range_caption = f"{least:g} to {greatest:g}"
        captions = [size_caption, range_caption]
        for _ in columns:
            captions.append("")
        row_cells = [first_cell, _empty_cell(), *other_cells]
        rows.append((row_cells, captions))
    return rows


def _rows_of_lists(
    seen: Seen, row: int, fields: Mapping[str, Field], most: int
) -> list[tuple[list[Pixels], list[str]]]:
    """For each list of pictures that a sample has, its first pictures as cells, with captions."""
    from fastpipe.tools.show.sheet import fitted

    rows = []
    for name, field in fields.items():
        if field.kind != "images":
            continue
        pictures = seen.fields[name]
        offsets = seen.fields.get(f"{name}_offsets")
        if offsets is None:
            pictures = pictures[row]
        else:
            first_and_end = offsets[row : row + 2]
            start, end = first_and_end.tolist()
            pictures = pictures[start:end]
        cells = []
        captions = []
        for number, picture in enumerate(pictures[:most]):
            height, width = picture.shape[-2:]
            batch_of_one = picture[None]
            (pixels,) = _pixels(batch_of_one, None)
            shown = _shrunk(pixels)
            cells.append(fitted(shown, SIZE))
            captions.append(f"{name}[{number}] {width} x {height}")
        # A sample without pictures has a row, too: its texts stand below it.
        rows.append((cells, captions))
    return rows


def _title(
    path: str, num_photos: int, seed: int, names: Sequence[str], *, has_fields: bool
) -> list[str]:
    """What the sheet shows, and a legend of its columns."""
    num_others = len(names) - 1
    crops = "the crop (yellow)"
    if num_others:
        first_name = names[0]
        crops = f"its crops (yellow: {first_name}; white: the other {num_others})"
    photo = "the image"
    if has_fields:
        photo += " with its fields"
    photos = format_count(num_photos, "image")
    return [
        f"{readable(path)}: {photos}, seed {seed}",
        f"From left to right: {photo}; {crops}; and what the model sees.",
    ]


def _some_samples(recipe: Recipe, rows: int) -> Int64s:
    """The ids of so many samples that epochs have, ascending; or of all, if they are fewer."""
    rng = np.random.default_rng(recipe.seed)
    if not recipe.picks:
        num_samples = len(recipe.content)
        count = min(rows, num_samples)
        chosen = rng.choice(num_samples, count, replace=False)
        ascending = np.sort(chosen)
        return ascending.astype(np.int64)
    # With weights, an epoch does not have all samples: choose among those of epoch 0.
    orders = EpochPlan(recipe, 0).orders
    draws = min(recipe.rows(0), _MAX_DRAWS)
    drawn = []
    for order in orders.values():
        rows_of_order = order.take(0, draws)
        drawn.append(rows_of_order.ids)
    all_drawn = np.concatenate(drawn)
    ids = np.unique(all_drawn)
    count = min(rows, len(ids))
    chosen = rng.choice(ids, count, replace=False)
    return np.sort(chosen)


class Seen(NamedTuple):
    """Some samples in one view, on the CPU, as the training loop gets them."""

    plan: BatchPlan
    # A tensor, or a list of tensors with sizes of their own; None: batches have no images.
    images: Any
    labels: torch.Tensor
    fields: dict[str, Any]  # values by name; none if the loop gets (images, labels)


def preview_samples(loader: Loader, ids: Int64s, epoch: int) -> list[Seen]:
    """Takes samples through a loader's decoder, device and augmentation.

    They are decoded exactly, as with exact=True.

    Args:
        loader: whose batches they are like.
        ids: (n,) of the samples.
        epoch: that decides their crops and augmentation.

    Returns:
        The samples in each view.
    """
    # Memory and figures of its own, and no thread but those of the engine.
    dtype = loader.maker.form.dtype
    slots: list[tuple[SlotRing, bool]] = []
    for _ in loader.augments:
        # The maker asks for memory of each batch's own shape. The ring keeps none of it.
        ring = SlotRing((0,), 0, loader.stream.slot, dtype)
        is_exact = True
        slots.append((ring, is_exact))
    maker = replace(
        loader.maker, views=slots, stats=Stats(), replace_bad=False, prepare=None
    )
    epoch_plan = EpochPlan(loader.recipe, epoch)
    batch_plan = epoch_plan.of(ids)
    begun = maker.begin(batch_plan, epoch_plan, number=0)
    host_batch = maker.end(begun)
    transfer = make_transfer(maker, loader.stream, loader.augments, loader.recipe)
    staged = transfer.begin(host_batch)
    batch = transfer.hand_over(staged)

    views = []
    for view, view_plan in enumerate(host_batch.plan.views):
        images = None
        if staged.images:
            images = _on_cpu(staged.images[view])
        if images is not None and view_plan.crops.layout is not None:
            images = put_together(images, view_plan.crops)
        values = {}
        if host_batch.fields is not None:
            for key, name in host_batch.fields.names.items():
                # Of several views, a batch has a list where each view has its own values.
                value = batch[key]
                if host_batch.plan.other_views and host_batch.fields.by_view(name):
                    value = value[view]
                values[name] = _on_cpu(value)
        plan = replace(view_plan, other_views=())
        labels = staged.labels.cpu()
        seen = Seen(plan=plan, images=images, labels=labels, fields=values)
        views.append(seen)
    return views


def _on_cpu(value: Any) -> Any:
    if isinstance(value, list):
        return [_on_cpu(item) for item in value]
    if isinstance(value, torch.Tensor):
        return value.cpu()
    return value


def _photo(loader: Loader, plan: BatchPlan, row: int) -> Pixels:
    """A whole photo in the loader's channels, resized to fit a cell, as it is drawn."""
    record = plan.records[row]
    width = int(record["width"])
    height = int(record["height"])
    size = _size_in_cell(height, width)
    channels = loader.maker.form.channels
    shape = (1, *size, channels)
    image = np.empty(shape, dtype=np.uint8)
    whole_box = np.array([[0, 0, width, height]])
    boxes = whole_box.astype(np.float64)
    bounds = whole_box.astype(np.int32)
    crops = Crops(boxes, bounds, size)
    flips = np.zeros(1, dtype=np.bool_)
    plan_of_row = plan.part(row, row + 1)
    whole_photo = replace(plan_of_row, crops=crops, flips=flips)
    # The engine returns the rows that failed; here is one row.
    failed_rows = loader.maker.engine.decode(whole_photo, image)
    for _, reason in failed_rows:
        sample = int(whole_photo.samples[0])
        raise loader.maker.index.sample_error(sample, reason)
    return _drawable(image[0])


def _pixels(images: Any, augment: Augment | None) -> Any:
    """Images of a training loop -> (n, height, width, 3) uint8, with the normalising undone.

    A list of images with sizes of their own -> a list of (height, width, 3).
    """
    if isinstance(images, list):  # they have sizes of their own
        pictures = []
        for image in images:
            batch_of_one = image[None]
            (picture,) = _pixels(batch_of_one, augment)
            pictures.append(picture)
        return pictures
    are_images = images.ndim == 4 and images.shape[1] in (1, 3, 4)
    if not are_images:
        raise ConfigError(
            f"preview: the augmentation returned shape {tuple(images.shape)}; expected images (N, "
            "channels, height, width) of 1, 3 or 4 channels, because only images can be drawn"
        )
    if images.dtype != torch.uint8:
        is_16_bit = images.dtype == torch.uint16
        images = images.float()
        if is_16_bit:
            images = images / 65535
        if augment is not None:
            channels = images.shape[1]
            mean, std = augment.moments(channels)
            deviations = images.new_tensor(std)
            means = images.new_tensor(mean)
            # (channels, 1, 1) each
            scale = deviations.view(-1, 1, 1)
            shift = means.view(-1, 1, 1)
            images = images * scale + shift
        visible = images.clamp(0, 1)
        levels = visible.mul(255).round()
        images = levels.to(torch.uint8)
    images_nhwc = images.permute(0, 2, 3, 1)
    return _drawable(images_nhwc.numpy())


def _drawable(images: Pixels) -> Pixels:
    """(..., height, width, channels) -> (..., height, width, 3); alpha shows a checkerboard."""
    *_, height, width, channels = images.shape
    if channels < 4:
        rgb_shape = (*images.shape[:-1], 3)
        rgb = np.broadcast_to(images, rgb_shape)
        return rgb.copy()
    # A checkerboard of two grays: (height, width, 1).
    longer_side = max(height, width)
    square = -(-longer_side // _SQUARES)  # the side of a square in pixels, rounded up
    rows_and_columns = np.indices((height, width))
    down, across = rows_and_columns // square
    square_numbers = down + across
    is_light = square_numbers % 2 == 1
    grays = np.where(is_light, 255.0, 200.0)
    board = grays[..., None]
    colour = images[..., :3]
    alpha_levels = images[..., 3:]
    alpha = alpha_levels / 255
    transparency = 1 - alpha
    visible_colour = colour * alpha
    visible_board = board * transparency
    blended = visible_colour + visible_board
    return np.rint(blended).astype(np.uint8)


def _size_in_cell(height: int, width: int) -> tuple[int, int]:
    longer_side = max(height, width)
    scale = SIZE / longer_side
    scaled_height = round(height * scale)
    scaled_width = round(width * scale)
    return max(1, scaled_height), max(1, scaled_width)


def _shrunk(image: Pixels) -> Pixels:
    """No larger than a cell: the mean of each pixel's area."""
    height, width, _ = image.shape
    if max(height, width) <= SIZE:
        return image
    image_hwc = torch.from_numpy(image)
    planes = image_hwc.permute(2, 0, 1).float()
    size = _size_in_cell(height, width)
    batch = planes[None]
    (shrunk,) = torch.nn.functional.interpolate(batch, size, mode="area")
    levels = shrunk.round()
    rounded = levels.to(torch.uint8)
    pixels = rounded.permute(1, 2, 0)  # (height, width, channels)
    return np.asarray(pixels.numpy())


def _caption(name: str, label: torch.Tensor, classes: list[str]) -> str:
    """The name of a column; with soft labels its number, and the two largest shares."""
    if label.ndim == 0:
        return name
    from fastpipe.tools.show.drawing import name_of  # needs cv2

    num_shown = min(2, len(label))
    largest = label.topk(num_shown)
    shares: list[float] = largest.values.tolist()
    labels: list[int] = largest.indices.tolist()
    texts = []
    for class_label, share in zip(labels, shares, strict=True):
        if share > _MIN_SHARE:
            # An augmentation may return more classes than the dataset has.
            class_name = name_of(class_label, classes)
            texts.append(f"{class_name} {share:.2f}")
    *_, number = name.split()
    return f"{number}: {', '.join(texts)}"
