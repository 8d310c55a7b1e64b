"""The kernels of Triton: pixels are read once, changed by all steps or blurred, and written once.

A program has some pixels of one image. So all its pixels have the same steps, and a step that an
image does not get costs nothing. The formulas are those of `device/augment/formulas`, step by step.
Batches have other numbers of steps, and would be compiled for each if it were specialised.
"""

from __future__ import annotations

import triton
import triton.language as tl

from fastpipe.device.augment.pixel_steps import NUM_VALUES, Code

_ADD = tl.constexpr(int(Code.ADD))
_MULTIPLY = tl.constexpr(int(Code.MULTIPLY))
_CONTRAST = tl.constexpr(int(Code.CONTRAST))
_SATURATE = tl.constexpr(int(Code.SATURATE))
_SATURATE_IN_HSV = tl.constexpr(int(Code.SATURATE_IN_HSV))
_TURN_HUE = tl.constexpr(int(Code.TURN_HUE))
_GREY = tl.constexpr(int(Code.GREY))
_GAMMA = tl.constexpr(int(Code.GAMMA))
_SOLARIZE = tl.constexpr(int(Code.SOLARIZE))
_POSTERIZE = tl.constexpr(int(Code.POSTERIZE))
_INVERT = tl.constexpr(int(Code.INVERT))
_ERASE = tl.constexpr(int(Code.ERASE))
_VALUES = tl.constexpr(NUM_VALUES)


@triton.jit
def clamp_unit(channel):
    return tl.minimum(tl.maximum(channel, 0.0), 1.0)


@triton.jit
def grey_of(red, green, blue):
    return red * 0.299 + green * 0.587 + blue * 0.114


@triton.jit
def contrasted(channel, factor, mean):
    return clamp_unit(channel * factor + (1.0 - factor) * mean)


@triton.jit
def saturated(channel, grey, factor):
    return clamp_unit(grey + factor * (channel - grey))


@triton.jit
def saturated_in_hsv(red, green, blue, factor):
    most = tl.maximum(tl.maximum(red, green), blue)
    least = tl.minimum(tl.minimum(red, green), blue)
    span = most - least
    new_span = clamp_unit(span / (most + 1e-8) * factor) * most
    # Grey has a span of 0, and nothing is left to scale.
    scale = new_span / tl.maximum(span, 1e-12)
    lowest = most - new_span
    red = clamp_unit((red - least) * scale + lowest)
    green = clamp_unit((green - least) * scale + lowest)
    blue = clamp_unit((blue - least) * scale + lowest)
    return red, green, blue


@triton.jit
def turned(red, green, blue, turns):
    """A turn on the circle of six sixths: red is at 0, green at 2, blue at 4."""
    most = tl.maximum(tl.maximum(red, green), blue)
    least = tl.minimum(tl.minimum(red, green), blue)
    span = most - least
    divisor = tl.maximum(span, 1e-12)
    if_green_is_most = (blue - red) / divisor + 2.0
    if_blue_is_most = (red - green) / divisor + 4.0
    position = tl.where(green >= blue, if_green_is_most, if_blue_is_most)
    is_red_most = (red >= green) & (red >= blue)
    position = tl.where(is_red_most, (green - blue) / divisor, position)
    position = position + turns * 6.0
    position = position - tl.floor(position / 6.0) * 6.0
    red = least + span * clamp_unit(tl.abs(position - 3.0) - 1.0)
    green = least + span * clamp_unit(2.0 - tl.abs(position - 2.0))
    blue = least + span * clamp_unit(2.0 - tl.abs(position - 4.0))
    return red, green, blue


@triton.jit
def raised(channel, exponent, gain):
    # 0 has no logarithm. Its power is 0, but for an exponent of 0, for which it is 1.
    positive = tl.where(channel > 0.0, channel, 1.0)
    power = tl.exp2(tl.log2(positive) * exponent)
    of_zero = tl.where(exponent == 0.0, 1.0, 0.0)
    return clamp_unit(tl.where(channel > 0.0, power, of_zero) * gain)


@triton.jit
def solarized(channel, threshold, addition):
    channel = clamp_unit(channel + addition)
    return tl.where(channel < threshold, channel, 1.0 - channel)


@triton.jit
def posterized(channel, scale):
    tone = tl.floor(tl.floor(channel * 255.0) / scale / 255.0 * 255.0)
    return tl.where(scale == 1.0, channel, tone * scale / 255.0)


@triton.jit
def changed(red, green, blue, x, y, code, value, mean):
    """Red, green and blue after the step with this code.

    value: pointer to the step's numbers; `Code` says what they are.
    """
    first = tl.load(value)
    second = tl.load(value + 1)
    # All other steps clamp their input first. Code.CLAMP does nothing else, so it has no branch.
    takes_any_input = (
        (code == _GREY) | (code == _INVERT) | (code == _ERASE) | (code == 0)
    )
    if not takes_any_input:
        red = clamp_unit(red)
        green = clamp_unit(green)
        blue = clamp_unit(blue)
    if code == _ADD:
        # kornia's factor: 1 adds nothing.
        red = clamp_unit(red + (first - 1.0))
        green = clamp_unit(green + (first - 1.0))
        blue = clamp_unit(blue + (first - 1.0))
    elif code == _MULTIPLY:
        red = clamp_unit(red * first)
        green = clamp_unit(green * first)
        blue = clamp_unit(blue * first)
    elif code == _CONTRAST:
        red = contrasted(red, first, mean)
        green = contrasted(green, first, mean)
        blue = contrasted(blue, first, mean)
    elif code == _SATURATE:
        grey = grey_of(red, green, blue)
        red = saturated(red, grey, first)
        green = saturated(green, grey, first)
        blue = saturated(blue, grey, first)
    elif code == _SATURATE_IN_HSV:
        red, green, blue = saturated_in_hsv(red, green, blue, first)
    elif code == _TURN_HUE:
        red, green, blue = turned(red, green, blue, first)
    elif code == _GREY:
        grey = grey_of(red, green, blue)
        red = grey
        green = grey
        blue = grey
    elif code == _GAMMA:
        red = raised(red, first, second)
        green = raised(green, first, second)
        blue = raised(blue, first, second)
    elif code == _SOLARIZE:
        red = solarized(red, first, second)
        green = solarized(green, first, second)
        blue = solarized(blue, first, second)
    elif code == _POSTERIZE:
        red = posterized(red, first)
        green = posterized(green, first)
        blue = posterized(blue, first)
    elif code == _INVERT:
        red = first - red
        green = first - green
        blue = first - blue
    elif code == _ERASE:
        bottom = tl.load(value + 2)
        right = tl.load(value + 3)
        colour = tl.load(value + 4)
        is_inside = (y >= first) & (y < bottom) & (x >= second) & (x < right)
        red = tl.where(is_inside, colour, red)
        green = tl.where(is_inside, colour, green)
        blue = tl.where(is_inside, colour, blue)
    return red, green, blue


@triton.jit
def load_pixels(
    images,
    flips,
    row,
    x,
    y,
    is_pixel,
    height,
    width,
    row_stride,
    channel_stride,
    y_stride,
    x_stride,
    scale,
):
    """Red, green and blue of the pixels at x, y of a mirrored image, in [0, 1]."""
    source_x = tl.where(tl.load(flips + 2 * row) == 1, width - 1 - x, x)
    source_y = tl.where(tl.load(flips + 2 * row + 1) == 1, height - 1 - y, y)
    place = images + row.to(tl.int64) * row_stride
    place = place + source_y * y_stride + source_x * x_stride
    red = tl.load(place, mask=is_pixel, other=0).to(tl.float32) * scale
    place = place + channel_stride
    green = tl.load(place, mask=is_pixel, other=0).to(tl.float32) * scale
    place = place + channel_stride
    blue = tl.load(place, mask=is_pixel, other=0).to(tl.float32) * scale
    return red, green, blue


@triton.jit(do_not_specialize=["num_steps"])
def sum_greys(
    images,
    sums,
    codes,
    values,
    flips,
    contrast_at,
    num_steps,
    height,
    width,
    row_stride,
    channel_stride,
    y_stride,
    x_stride,
    scale,
    block_size: tl.constexpr,
):
    """Sums (n, blocks) of the grey of some pixels each, as it is before the step of contrast.

    codes, values, flips and contrast_at are the arrays of a ColourRun.
    """
    block = tl.program_id(0)
    row = tl.program_id(1)
    end = tl.load(contrast_at + row)
    if end < num_steps:
        pixel = block * block_size + tl.arange(0, block_size)
        is_pixel = pixel < height * width
        x = pixel % width
        y = pixel // width
        red, green, blue = load_pixels(
            images,
            flips,
            row,
            x,
            y,
            is_pixel,
            height,
            width,
            row_stride,
            channel_stride,
            y_stride,
            x_stride,
            scale,
        )
        for step in range(end):
            number = row * num_steps + step
            code = tl.load(codes + number)
            value = values + number * _VALUES
            red, green, blue = changed(red, green, blue, x, y, code, value, 0.0)
        grey = grey_of(clamp_unit(red), clamp_unit(green), clamp_unit(blue))
        total = tl.sum(tl.where(is_pixel, grey, 0.0))
        tl.store(sums + row * tl.num_programs(0) + block, total)


@triton.jit(do_not_specialize=["num_steps"])
def change_pixels(
    images,
    out,
    sums,
    codes,
    values,
    flips,
    contrast_at,
    factors,
    shifts,
    num_steps,
    height,
    width,
    row_stride,
    channel_stride,
    y_stride,
    x_stride,
    out_row_stride,
    out_channel_stride,
    out_y_stride,
    out_x_stride,
    scale,
    block_size: tl.constexpr,
    num_sums: tl.constexpr,
    normalises: tl.constexpr,
):
    """Carries all steps out on some pixels of an image, and normalises them.

    codes, values, flips and contrast_at are the arrays of a ColourRun; factors and shifts, a number
    a channel, normalise. contrast_at is num_steps for an image without a step of contrast, whose
    `sums` are not read. num_sums is the number of `sums` of an image, rounded up to a power of
    two, as tl.arange takes it.
    """
    block = tl.program_id(0)
    row = tl.program_id(1)
    num_blocks = tl.num_programs(0)
    mean = 0.0
    if tl.load(contrast_at + row) < num_steps:
        sum_block = tl.arange(0, num_sums)
        is_sum = sum_block < num_blocks
        block_sums = tl.load(
            sums + row * num_blocks + sum_block, mask=is_sum, other=0.0
        )
        mean = tl.sum(block_sums) / (height * width)

    pixel = block * block_size + tl.arange(0, block_size)
    is_pixel = pixel < height * width
    x = pixel % width
    y = pixel // width
    red, green, blue = load_pixels(
        images,
        flips,
        row,
        x,
        y,
        is_pixel,
        height,
        width,
        row_stride,
        channel_stride,
        y_stride,
        x_stride,
        scale,
    )
    for step in range(num_steps):
        number = row * num_steps + step
        code = tl.load(codes + number)
        value = values + number * _VALUES
        red, green, blue = changed(red, green, blue, x, y, code, value, mean)
    if normalises:
        red = red * tl.load(factors) + tl.load(shifts)
        green = green * tl.load(factors + 1) + tl.load(shifts + 1)
        blue = blue * tl.load(factors + 2) + tl.load(shifts + 2)
    place = out + row.to(tl.int64) * out_row_stride
    place = place + y * out_y_stride + x * out_x_stride
    tl.store(place, red, mask=is_pixel)
    tl.store(place + out_channel_stride, green, mask=is_pixel)
    tl.store(place + 2 * out_channel_stride, blue, mask=is_pixel)


@triton.jit
def neighbour_of(place, length, border: tl.constexpr):
    """The place of the pixel that stands for one outside [0, length).

    It reflects once: the formulas keep the taps shorter than the image.
    """
    if border == "reflect":
        place = tl.where(place < 0, -place, place)
        return tl.where(place >= length, 2 * (length - 1) - place, place)
    if border == "circular":
        place = tl.where(place < 0, place + length, place)
        return tl.where(place >= length, place - length, place)
    # Of constant, what lies outside is not looked at.
    return tl.minimum(tl.maximum(place, 0), length - 1)


@triton.jit(do_not_specialize=["num_taps"])
def blur_along(
    images,
    out,
    weights,
    are_changed,
    factors,
    shifts,
    num_taps,
    channels,
    height,
    width,
    row_stride,
    channel_stride,
    y_stride,
    x_stride,
    out_row_stride,
    out_channel_stride,
    out_y_stride,
    out_x_stride,
    scale,
    block_size: tl.constexpr,
    is_down: tl.constexpr,
    border: tl.constexpr,
    normalises: tl.constexpr,
):
    """Blurs some pixels of a channel along rows, or with is_down along columns; normalises them.

    weights: (n, num_taps). are_changed: (n,); other images are only scaled, by `scale`, which
    makes numbers in [0, 1] of the input.
    """
    plane = tl.program_id(1)
    row = plane // channels
    channel = plane % channels
    pixel = tl.program_id(0) * block_size + tl.arange(0, block_size)
    is_pixel = pixel < height * width
    x = pixel % width
    y = pixel // width
    place = images + row.to(tl.int64) * row_stride + channel * channel_stride
    if tl.load(are_changed + row) == 1:
        # Of an even number of taps, one more lies after the pixel.
        before = (num_taps - 1) // 2
        value = tl.zeros([block_size], tl.float32)
        for tap in range(num_taps):
            source_x = x
            source_y = y
            if is_down:
                source_y = y + (tap - before)
            else:
                source_x = x + (tap - before)
            is_read = is_pixel
            if border == "constant":
                is_read = is_read & (source_x >= 0) & (source_x < width)
                is_read = is_read & (source_y >= 0) & (source_y < height)
            source_x = neighbour_of(source_x, width, border)
            source_y = neighbour_of(source_y, height, border)
            source = place + source_y * y_stride + source_x * x_stride
            neighbour = tl.load(source, mask=is_read, other=0).to(tl.float32) * scale
            value = value + neighbour * tl.load(weights + row * num_taps + tap)
    else:
        source = place + y * y_stride + x * x_stride
        value = tl.load(source, mask=is_pixel, other=0).to(tl.float32) * scale
    if normalises:
        value = value * tl.load(factors + channel) + tl.load(shifts + channel)
    target = out + row.to(tl.int64) * out_row_stride + channel * out_channel_stride
    target = target + y * out_y_stride + x * out_x_stride
    tl.store(target, value, mask=is_pixel)
