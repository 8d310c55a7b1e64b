"""ResNet-18, -34 and -50 (v1.5), with the parameter names of torchvision's, so that weights go from one to the other.

The network is that of He et al., "Deep Residual Learning for Image Recognition" (arXiv:1512.03385). v1.5 has the stride
of a bottleneck in its 3x3 convolution. The last norm of each block begins at zero, so that a block begins as the
identity (Goyal et al., arXiv:1706.02677, section 5.1).
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

DEPTHS = {"resnet18": (2, 2, 2, 2), "resnet34": (3, 4, 6, 3), "resnet50": (3, 4, 6, 3)}


class Block(nn.Module):
    """Two 3x3 convolutions, or, for a bottleneck, 1x1, 3x3 and 1x1; and what goes around them."""

    def __init__(self, channels_in: int, width: int, stride: int, *, bottleneck: bool) -> None:
        super().__init__()
        channels = width * 4 if bottleneck else width
        if bottleneck:
            shapes = [
                (channels_in, width, 1, 1),
                (width, width, 3, stride),
                (width, channels, 1, 1),
            ]
        else:
            shapes = [(channels_in, width, 3, stride), (width, channels, 3, 1)]
        self.steps = len(shapes)
        for number, shape in enumerate(shapes, start=1):
            self.add_module(f"conv{number}", convolution(*shape))
            self.add_module(f"bn{number}", nn.BatchNorm2d(shape[1]))
        nn.init.zeros_(self.get_submodule(f"bn{self.steps}").weight)
        self.downsample = None
        if stride != 1 or channels_in != channels:
            self.downsample = nn.Sequential(
                convolution(channels_in, channels, 1, stride), nn.BatchNorm2d(channels)
            )

    def forward(self, x: Tensor) -> Tensor:
        around = x if self.downsample is None else self.downsample(x)
        for number in range(1, self.steps + 1):
            x = getattr(self, f"bn{number}")(getattr(self, f"conv{number}")(x))
            if number < self.steps:
                x = functional.relu(x)
        return functional.relu(x + around)


class ResNet(nn.Module):
    """Images float (N, 3, H, W) -> logits (N, classes).

    Args:
        name: one of DEPTHS.
        classes: how many classes there are.
    """

    def __init__(self, name: str, classes: int) -> None:
        super().__init__()
        bottleneck = name == "resnet50"
        self.conv1 = convolution(3, 64, 7, 2)
        self.bn1 = nn.BatchNorm2d(64)
        channels = 64
        for number, blocks in enumerate(DEPTHS[name], start=1):
            width, layer = 32 * 2**number, []
            for block in range(blocks):
                stride = 2 if block == 0 and number > 1 else 1
                layer.append(Block(channels, width, stride, bottleneck=bottleneck))
                channels = width * 4 if bottleneck else width
            self.add_module(f"layer{number}", nn.Sequential(*layer))
        self.fc = nn.Linear(channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.relu(self.bn1(self.conv1(x)))
        x = functional.max_pool2d(x, kernel_size=3, stride=2, padding=1)
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(x.mean((2, 3)))


def convolution(channels_in: int, channels_out: int, size: int, stride: int) -> nn.Conv2d:
    """A convolution without bias that keeps the size but for its stride, with He's initialisation."""
    conv = nn.Conv2d(channels_in, channels_out, size, stride, padding=size // 2, bias=False)
    nn.init.kaiming_normal_(conv.weight, mode="fan_out", nonlinearity="relu")
    return conv
