"""SqueezeNet 1.1, GoogLeNet and Inception-v3: image classifiers made of blocks with parallel branches."""

from __future__ import annotations

from torch import nn

from tests.models.layers import Branches, Built, Conv, Head, on_meta


def _fire(inner: int, squeeze: int, expand: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(inner, squeeze, 1),
        nn.ReLU(),
        Branches(
            nn.Sequential(nn.Conv2d(squeeze, expand, 1), nn.ReLU()),
            nn.Sequential(nn.Conv2d(squeeze, expand, 3, padding=1), nn.ReLU()),
        ),
    )


def _pool(stride: int = 2, padding: int = 0, *, ceil: bool = True) -> nn.Module:
    return nn.MaxPool2d(3, stride, padding, ceil_mode=ceil)


def squeezenet(batch: int = 1) -> Built:
    """Return SqueezeNet 1.1 (Iandola et al., 2016; 1,235,496 parameters) on 224 x 224 images."""

    def build() -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(3, 64, 3, 2),
            nn.ReLU(),
            _pool(),
            _fire(64, 16, 64),
            _fire(128, 16, 64),
            _pool(),
            _fire(128, 32, 128),
            _fire(256, 32, 128),
            _pool(),
            _fire(256, 48, 192),
            _fire(384, 48, 192),
            _fire(384, 64, 256),
            _fire(512, 64, 256),
            nn.Conv2d(512, 1000, 1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
        )

    return on_meta(build, 224, batch)


def _inception(inner: int, one: int, three: tuple[int, int], five: tuple[int, int], pool: int) -> nn.Module:
    """The block of GoogLeNet; as in the common implementations its 5 x 5 branch has a kernel of 3."""
    return Branches(
        Conv(inner, one),
        nn.Sequential(Conv(inner, three[0]), Conv(three[0], three[1], 3)),
        nn.Sequential(Conv(inner, five[0]), Conv(five[0], five[1], 3)),
        nn.Sequential(_pool(1, 1), Conv(inner, pool)),
    )


def googlenet(batch: int = 1) -> Built:
    """Return GoogLeNet (Szegedy et al., 2014) with batch normalisation, no auxiliary heads (6,624,904 parameters), 224 x 224."""

    def build() -> nn.Module:
        return nn.Sequential(
            Conv(3, 64, 7, 2),
            _pool(),
            Conv(64, 64),
            Conv(64, 192, 3),
            _pool(),
            _inception(192, 64, (96, 128), (16, 32), 32),
            _inception(256, 128, (128, 192), (32, 96), 64),
            _pool(),
            _inception(480, 192, (96, 208), (16, 48), 64),
            _inception(512, 160, (112, 224), (24, 64), 64),
            _inception(512, 128, (128, 256), (24, 64), 64),
            _inception(512, 112, (144, 288), (32, 64), 64),
            _inception(528, 256, (160, 320), (32, 128), 128),
            nn.MaxPool2d(2, 2, ceil_mode=True),
            _inception(832, 256, (160, 320), (32, 128), 128),
            _inception(832, 384, (192, 384), (48, 128), 128),
            Head(1024),
        )

    return on_meta(build, 224, batch)


def _mean() -> nn.Module:
    return nn.AvgPool2d(3, 1, 1)


def _block_a(inner: int, pool: int) -> nn.Module:
    return Branches(
        Conv(inner, 64),
        nn.Sequential(Conv(inner, 48), Conv(48, 64, 5)),
        nn.Sequential(Conv(inner, 64), Conv(64, 96, 3), Conv(96, 96, 3)),
        nn.Sequential(_mean(), Conv(inner, pool)),
    )


def _block_b(inner: int) -> nn.Module:
    return Branches(
        Conv(inner, 384, 3, 2, padding=0),
        nn.Sequential(Conv(inner, 64), Conv(64, 96, 3), Conv(96, 96, 3, 2, padding=0)),
        _pool(ceil=False),
    )


def _block_c(width: int) -> nn.Module:
    wide, tall = (1, 7), (7, 1)
    return Branches(
        Conv(768, 192),
        nn.Sequential(Conv(768, width), Conv(width, width, wide), Conv(width, 192, tall)),
        nn.Sequential(
            Conv(768, width), Conv(width, width, tall), Conv(width, width, wide), Conv(width, width, tall), Conv(width, 192, wide)
        ),
        nn.Sequential(_mean(), Conv(768, 192)),
    )


def _block_d() -> nn.Module:
    return Branches(
        nn.Sequential(Conv(768, 192), Conv(192, 320, 3, 2, padding=0)),
        nn.Sequential(Conv(768, 192), Conv(192, 192, (1, 7)), Conv(192, 192, (7, 1)), Conv(192, 192, 3, 2, padding=0)),
        _pool(ceil=False),
    )


def _block_e(inner: int) -> nn.Module:
    def fork() -> nn.Module:
        return Branches(Conv(384, 384, (1, 3)), Conv(384, 384, (3, 1)))

    return Branches(
        Conv(inner, 320),
        nn.Sequential(Conv(inner, 384), fork()),
        nn.Sequential(Conv(inner, 448), Conv(448, 384, 3), fork()),
        nn.Sequential(_mean(), Conv(inner, 192)),
    )


def inception_v3(batch: int = 1) -> Built:
    """Return Inception-v3 (Szegedy et al., 2015), no auxiliary head (23,834,568 parameters), on 299 x 299 images."""

    def build() -> nn.Module:
        return nn.Sequential(
            Conv(3, 32, 3, 2, padding=0),
            Conv(32, 32, 3, padding=0),
            Conv(32, 64, 3),
            _pool(ceil=False),
            Conv(64, 80),
            Conv(80, 192, 3, padding=0),
            _pool(ceil=False),
            _block_a(192, 32),
            _block_a(256, 64),
            _block_a(288, 64),
            _block_b(288),
            *(_block_c(width) for width in (128, 160, 160, 192)),
            _block_d(),
            _block_e(1280),
            _block_e(2048),
            Head(2048),
        )

    return on_meta(build, 299, batch)
