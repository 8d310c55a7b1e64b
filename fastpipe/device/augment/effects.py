"""Changes of images by a number or a matrix for each: colours, tones, blur, warps.

The results are torchvision's.

Images are (n, c, height, width) float32 in [0, 1] and may be overwritten; numbers are (n,) float32.
Colours are those of 3 channels. Gray images, of 1 channel, have none: only operations on brightness
change them.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from fastpipe.device.augment import pixels

Weights = tuple[float, float, float]  # of red, green and blue in grey
# ITU-R 601-2 luma, as in torchvision.
_GREY_WEIGHTS = (0.2989, 0.587, 0.114)
_BELOW_1 = 1 - 2**-24  # the greatest float32 below 1
_LANES = 32  # threads of a GPU that run in step


def grey(images: Tensor, weights: Weights = _GREY_WEIGHTS) -> Tensor:
    """(n, c, height, width) -> (n, 1, height, width), by weights of red, green and blue."""
    if images.shape[1] == 1:
        return images
    red, green, blue = images.unbind(1)
    red_weight, green_weight, blue_weight = weights
    luma = torch.mul(red, red_weight)
    luma.add_(green, alpha=green_weight)
    luma.add_(blue, alpha=blue_weight)
    return luma[:, None]


def grayscale(images: Tensor, weights: Weights = _GREY_WEIGHTS) -> Tensor:
    """Grey, in as many channels as before."""
    luma = grey(images, weights)
    return images.copy_(luma)


def brightness(images: Tensor, factors: Tensor) -> Tensor:
    """0: black, 1: as it is."""
    images.mul_(per_image(factors))
    return images.clamp_(0, 1)


def contrast(
    images: Tensor, factors: Tensor, weights: Weights = _GREY_WEIGHTS
) -> Tensor:
    """0: the image's mean grey, 1: as it is."""
    # factor * image + (1 - factor) * mean, with a mean (n, 1, 1, 1).
    mean_colours = images.mean((2, 3), keepdim=True)
    mean = grey(mean_colours, weights)
    shares_of_mean = 1 - factors
    mean.mul_(per_image(shares_of_mean))
    images.mul_(per_image(factors))
    images.add_(mean)
    return images.clamp_(0, 1)


def saturation(
    images: Tensor, factors: Tensor, weights: Weights = _GREY_WEIGHTS
) -> Tensor:
    """0: grey, 1: as it is."""
    if images.shape[1] == 1:
        return images
    luma = grey(images, weights)
    torch.lerp(luma, images, per_image(factors), out=images)
    return images.clamp_(0, 1)


def hue(images: Tensor, turns: Tensor) -> Tensor:
    """Turns the hue; -0.5 and 0.5 give the opposite colour. Overwrites the images.

    This is a turn in HSV, without computing HSV. The least and the greatest channel of a colour
    stay. Its position on a circle of six sixths says which channel is greatest, which is least, and
    how far the third is between.

    Args:
        images: (n, c, height, width)
        turns: (n,) in whole turns.
    """
    if images.shape[1] == 1:
        return images
    # All planes are (n, height, width).
    red, green, blue = images.unbind(1)
    most_of_two = torch.maximum(red, green)
    most = torch.maximum(most_of_two, blue)
    least_of_two = torch.minimum(red, green)
    least = torch.minimum(least_of_two, blue)
    span = most.sub_(least)  # in place: `most` is not needed any more
    position = _hue_position(red, green, blue, span)
    turns_of_images = turns[:, None, None]
    sixths = turns_of_images * 6
    position.add_(sixths)
    rounds = torch.floor(position / 6)
    sixths_of_rounds = rounds.mul_(6)
    position.sub_(sixths_of_rounds)  # from 0 to 6 again

    # Each channel is sign * |position - middle| + offset of the span above the least one, between 0
    # and 1. Middle, sign and offset of red, green and blue:
    ramps = (
        (3, 1, -1),  # red
        (2, -1, 2),  # green
        (4, -1, 2),  # blue
    )
    for channel, (middle, sign, offset) in enumerate(ramps):
        ramp = position.sub(middle)
        ramp.abs_()
        ramp.mul_(sign)
        ramp.add_(offset)
        ramp.clamp_(0, 1)
        plane = images[:, channel]
        torch.addcmul(least, span, ramp, out=plane)
    return images


def _hue_position(red: Tensor, green: Tensor, blue: Tensor, span: Tensor) -> Tensor:
    """The position of each colour on the circle of six sixths: red is at 0, green at 2, blue at 4.

    It is from -1 to 5. `span` is the greatest channel without the least one: 0 for grey, which has
    no position, and gets any.
    """
    divisor = span.clamp_min(1e-12)
    if_green_is_most = blue.sub(red)
    if_green_is_most.div_(divisor)
    if_green_is_most.add_(2)
    if_blue_is_most = red.sub(green)
    if_blue_is_most.div_(divisor)
    if_blue_is_most.add_(4)
    is_green_above_blue = green >= blue
    position = torch.where(is_green_above_blue, if_green_is_most, if_blue_is_most)
    if_red_is_most = green.sub(blue)
    if_red_is_most.div_(divisor)
    is_red_above_green = red >= green
    is_red_above_blue = red >= blue
    is_red_most = is_red_above_green & is_red_above_blue
    return torch.where(is_red_most, if_red_is_most, position)


def posterize(images: Tensor, bits: Tensor) -> Tensor:
    """Leaves as many tones as so many bits can tell apart."""
    level_counts = torch.exp2(bits)
    levels = per_image(level_counts)
    # floor(1.0 * levels) would be one tone too many.
    images.clamp_max_(_BELOW_1)
    images.mul_(levels)
    images.floor_()
    return images.div_(levels)


def solarize(images: Tensor, thresholds: Tensor) -> Tensor:
    """Inverts all values from the threshold up."""
    # 1 from the threshold up, else 0, as float32.
    above = torch.empty_like(images)
    torch.ge(images, per_image(thresholds), out=above)
    images.sub_(above)
    return images.abs_()  # exactly x or 1 - x


def sharpness(images: Tensor, factors: Tensor) -> Tensor:
    """0: blurred, 1: as it is, 2: sharper. The outermost pixels stay."""
    height, width = images.shape[2:]
    # A smaller image has no pixel that is not at the border.
    if height < 3 or width < 3:
        return images
    inner = images[:, :, 1:-1, 1:-1]
    # The kernel is 5 in the middle and 1 around it, divided by 13: the sum of all nine pixels, and
    # 4 times the middle.
    if not pixels.on_cpu(images.device):
        # lerp with the mean of all nine, whose share of a blurred pixel is 9 / 13.
        share_of_means = 9 / 13
        share = torch.rsub(factors, share_of_means, alpha=share_of_means)
        means = functional.avg_pool2d(images, kernel_size=3, stride=1)
        inner.lerp_(means, per_image(share))
        return images.clamp_(0, 1)
    # The sums of three neighbours in a column, and then of three such sums in a row: nine pixels
    # by four additions.
    upper_rows = images[:, :, :-2]
    middle_rows = images[:, :, 1:-1]
    lower_rows = images[:, :, 2:]
    column_sums = upper_rows + middle_rows
    column_sums += lower_rows
    left_sums = column_sums[..., :-2]
    middle_sums = column_sums[..., 1:-1]
    right_sums = column_sums[..., 2:]
    blurred = left_sums + middle_sums
    blurred += right_sums
    blurred.add_(inner, alpha=4)
    blurred.div_(13)
    # inner + (1 - factor) * (blurred - inner), in the memory of both.
    difference = blurred.sub_(inner)
    shares_of_blurred = 1 - per_image(factors)
    difference.mul_(shares_of_blurred)
    inner.add_(difference)
    return images.clamp_(0, 1)


def autocontrast(images: Tensor) -> Tensor:
    """Stretches each channel to the range 0 to 1; a channel of a single tone stays."""
    # (n, c, 1, 1) each.
    least = images.amin((2, 3), keepdim=True)
    span = images.amax((2, 3), keepdim=True)
    span.sub_(least)
    is_flat = span == 0
    least.masked_fill_(is_flat, 0)
    span.masked_fill_(is_flat, 1)
    images.sub_(least)
    return images.div_(span)


def equalize(images: Tensor) -> Tensor:
    """Evens out how often each of 256 tones occurs in each channel, by Pillow's rule.

    Also 16 bits become 256 tones.
    """
    count, channels, height, width = images.shape
    area = height * width
    # 256 - 0.001, so that 1.0 becomes tone 255.
    images.mul_(256 - 1e-3)
    tones = images.to(torch.int64)
    tones = tones.view(count, channels, area)
    histogram = count_tones(tones)
    table, step = equalizing_table(histogram, area)
    # A step of 0 would divide by 0: Pillow leaves such a channel as it is.
    identity = torch.arange(256, device=images.device)
    has_step = step > 0
    table = torch.where(has_step, table, identity)
    shares = table.mul(1 / 255)
    equalized = shares.gather(2, tones)
    return equalized.view_as(images)


def equalizing_table(histogram: Tensor, area: int) -> tuple[Tensor, Tensor]:
    """Pillow's new tone for each tone, and how many pixels make one step of it.

    Args:
        histogram: (n, c, 256) of how often each tone occurs.
        area: pixels of a channel.

    Returns:
        (n, c, 256) and (n, c, 1), int64. Where the step is 0, the tones are of no use.
    """
    # How often each tone or a darker one occurs.
    cumulative = histogram.cumsum(2)
    # Pillow does not count the last tone that occurs. From this tone on the sum is `area`, which
    # the modulo makes 0.
    cumulative_or_0 = cumulative % area
    counted = cumulative_or_0.amax(2, keepdim=True)
    step = counted // 255

    # (pixels below + step / 2) / step, rounded down.
    half_step = step // 2
    divisor = step.clamp_min(1)
    table = cumulative.sub_(histogram)
    table.add_(half_step)
    table.div_(divisor, rounding_mode="floor")
    table.clamp_max_(255)
    return table, step


def count_tones(tones: Tensor) -> Tensor:
    """(n, c, pixels) of 256 tones -> (n, c, 256), how often each occurs.

    On a GPU, neighbouring pixels count in tables of their own: in a flat image all of them would
    add to one number, one after the other.
    """
    count, channels, area = tones.shape
    shape: tuple[int, ...] = (count, channels, 256)
    if not pixels.on_cpu(tones.device):
        lanes = _LANES
        while area % lanes:
            lanes //= 2
        pixels_per_lane = area // lanes
        shape = (*shape, lanes)
        tones = tones.view(count, channels, pixels_per_lane, lanes)
    # A view of one number in place of an array of ones.
    one = torch.ones((), dtype=torch.int32, device=tones.device)
    ones = one.expand_as(tones)
    histogram = torch.zeros(shape, dtype=torch.int32, device=tones.device)
    histogram.scatter_add_(2, tones, ones)
    if histogram.ndim == 4:
        return histogram.sum(3)
    return histogram


def warp(images: Tensor, matrices: Tensor) -> Tensor:
    """Moves pixels; takes the nearest pixel, and black from outside.

    A matrix (n, 6) a b c d e f says where an output pixel (x', y') comes from: x = a x' + b y' + c
    and y = d x' + e y' + f. x' and y' are in pixels from the middle, x and y from -1 to 1, as in
    grid_sample.
    """
    height, width = images.shape[2:]
    x = _from_middle(width, images.device)
    y = _from_middle(height, images.device)
    # (n, x and y, 1) each: the matrix's columns a d, b e and c f.
    rows_and_columns = matrices.view(-1, 2, 3, 1)
    slope_x, slope_y, offset = rows_and_columns.unbind(2)
    # (n, x and y, width) and (n, x and y, height): the two terms of each coordinate.
    along_rows = slope_x * x
    along_columns = torch.addcmul(offset, slope_y, y)
    # (n, x and y, 1, width) and (n, x and y, height, 1)
    term_of_columns = along_rows[:, :, None]
    term_of_rows = along_columns[:, :, :, None]
    coordinates = term_of_columns + term_of_rows
    # (n, x and y, height, width) -> (n, height, width, x and y)
    grid = coordinates.permute(0, 2, 3, 1)
    return functional.grid_sample(
        images, grid, mode="nearest", padding_mode="zeros", align_corners=False
    )


def _from_middle(length: int, device: torch.device) -> Tensor:
    """(length,) the pixels' places, counted from the middle of all."""
    first = -(length - 1) / 2
    end = length / 2
    return torch.arange(first, end, dtype=torch.float32, device=device)


def gaussian_blur(images: Tensor, sigmas: Tensor, radius: int) -> Tensor:
    """Blurs along rows, then along columns, with reflected borders.

    Args:
        images: (n, c, height, width).
        sigmas: (n,) in pixels.
        radius: the kernel has 2 * radius + 1 taps; smaller than both sides.
    """
    num_taps = radius + 1  # of one side, with the middle
    taps = torch.arange(num_taps, dtype=torch.float32, device=images.device)
    # (n, radius + 1), from the middle outwards: exp(-(tap / sigma)^2 / 2), divided by the sum of
    # both sides, which have the middle in common.
    deviations = taps / sigmas[:, None]
    exponents = -0.5 * deviations**2
    heights = torch.exp(exponents)
    middle = heights[:, :1]
    sums_of_one_side = heights.sum(1, keepdim=True)
    sums_of_both_sides = 2 * sums_of_one_side
    sums = sums_of_both_sides - middle
    weights = heights / sums
    # A depthwise convolution is one kernel on a GPU, and on a CPU slower than adding shifted images
    # up.
    blur = _by_convolution
    if pixels.on_cpu(images.device):
        blur = _by_shifts
    for dimension in (3, 2):
        images = blur(images, weights, radius, dimension)
    return images


def _padded(images: Tensor, radius: int, dimension: int) -> Tensor:
    # torch's order: left, right, top, bottom.
    padding = (0, 0, radius, radius)
    if dimension == 3:
        padding = (radius, radius, 0, 0)
    return functional.pad(images, padding, mode="reflect")


def _by_shifts(images: Tensor, weights: Tensor, radius: int, dimension: int) -> Tensor:
    """Adds up shifted images. Two with the same distance from the middle have one weight."""
    padded = _padded(images, radius, dimension)
    length = images.shape[dimension]
    # For each tap (n, 1, 1, 1).
    broadcast_weights = weights[:, :, None, None, None]
    weight_of_tap = broadcast_weights.unbind(1)
    unshifted = padded.narrow(dimension, radius, length)
    out = unshifted * weight_of_tap[0]
    pair = torch.empty_like(out)  # used again by all taps
    for tap in range(1, radius + 1):
        before = padded.narrow(dimension, radius - tap, length)
        after = padded.narrow(dimension, radius + tap, length)
        torch.add(before, after, out=pair)
        out.addcmul_(pair, weight_of_tap[tap])
    return out


def _by_convolution(
    images: Tensor, weights: Tensor, radius: int, dimension: int
) -> Tensor:
    """Convolves all planes in one call."""
    # (n, taps): the weights from the outside to the middle, and out again.
    from_outside = weights.flip(1)
    before_middle = from_outside[:, :-1]
    kernels = torch.cat([before_middle, weights], 1)
    # (n, 1, 1, taps) along rows, (n, 1, taps, 1) along columns.
    if dimension == 3:
        kernels = kernels[:, None, None, :]
    else:
        kernels = kernels[:, None, :, None]
    return convolve(images, kernels, "reflect")


def convolve(images: Tensor, kernels: Tensor, border: str) -> Tensor:
    """Convolves all planes in one call, each with the kernel of its image: a group a plane.

    Args:
        images: (n, c, height, width).
        kernels: (n, c, kernel height, kernel width), not mirrored; (n, 1, ...) for all channels.
        border: what lies outside the images, by kornia's name.
    """
    count, channels, height, width = images.shape
    kernel_height, kernel_width = kernels.shape[2:]
    # Of an even number of pixels, one more lies after the middle, as in kornia.
    num_neighbours_in_row = kernel_width - 1
    num_neighbours_in_column = kernel_height - 1
    left = num_neighbours_in_row // 2
    top = num_neighbours_in_column // 2
    right = num_neighbours_in_row - left
    bottom = num_neighbours_in_column - top
    padding = (left, right, top, bottom)
    padded = functional.pad(images, padding, mode=border)

    num_planes = count * channels
    padded_height, padded_width = padded.shape[2:]
    planes = padded.reshape(1, num_planes, padded_height, padded_width)
    # (n, c, ...) -> (n * c, 1, ...)
    kernels_of_channels = kernels.expand(-1, channels, -1, -1)  # -1: as before
    shape_of_kernels = (num_planes, 1, kernel_height, kernel_width)
    kernel_of_plane = kernels_of_channels.reshape(shape_of_kernels)
    filtered = functional.conv2d(planes, kernel_of_plane, groups=num_planes)
    return filtered.view(count, channels, height, width)


def per_image(values: Tensor) -> Tensor:
    """(n,) -> (n, 1, 1, 1)."""
    return values[:, None, None, None]
