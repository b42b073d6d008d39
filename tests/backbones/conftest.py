"""Small members of each family, under names of their own: same code, same layouts, few channels."""

import pytest

from fewlabels.backbones import (
    BACKBONES,
    conv4,
    dct,
    densenet,
    mobilenet,
    resnet,
    resnet12,
    wrn,
    wrn_simpleshot,
)
from fewlabels.backbones.registry import DROPOUT, IMAGE_SIZE, Architecture

NARROW = (4, 6, 8, 10)
TINY = {
    "tiny-wrn": Architecture(wrn.build_wrn, {"depth": 16, "width": 2}, DROPOUT, (wrn.S2M2,)),
    "tiny-wrn-dct": Architecture(dct.build_wrn_dct, {"depth": 16, "width": 2}, DROPOUT),
    "tiny-resnet10-dct": Architecture(
        dct.build_resnet_dct, {"n_blocks": 1, "channels": NARROW}, IMAGE_SIZE
    ),
    "tiny-resnet12-dct": Architecture(dct.build_resnet12_dct, {"channels": NARROW}, DROPOUT),
    "tiny-wrn-simpleshot": Architecture(
        wrn_simpleshot.build_wrn_simpleshot,
        {"depth": 16, "width": 2},
        DROPOUT,
        (wrn_simpleshot.SIMPLESHOT,),
    ),
    "tiny-resnet12": Architecture(resnet12.build_resnet12, {"channels": NARROW}, DROPOUT),
    "tiny-resnet10": Architecture(
        resnet.build_resnet, {"n_blocks": 1, "channels": NARROW}, IMAGE_SIZE
    ),
    "tiny-resnet18-3x3": Architecture(
        resnet.build_resnet,
        {"n_blocks": 2, "channels": NARROW, "image_size": 32},
        layouts=(resnet.AUTHORS, resnet.SIMPLESHOT),
    ),
    "tiny-conv4": Architecture(conv4.build_conv4, {"channels": NARROW}),
    "tiny-conv4-flat": Architecture(
        conv4.build_conv4_flat, {"channels": NARROW}, IMAGE_SIZE, (conv4.SIMPLESHOT,)
    ),
    "tiny-mobilenet": Architecture(
        mobilenet.build_mobilenet,
        {"stem_channels": 4, "stages": ((4, 1), (6, 2), (8, 2), (10, 6), (12, 2))},
        layouts=(mobilenet.SIMPLESHOT,),
    ),
    "tiny-densenet": Architecture(
        densenet.build_densenet, {"growth": 2, "stem_channels": 4}, layouts=(densenet.SIMPLESHOT,)
    ),
}


@pytest.fixture(scope="session", autouse=True)
def tiny_backbones():
    for name, architecture in TINY.items():
        BACKBONES[name] = architecture
    yield list(TINY)
    for name in TINY:
        del BACKBONES[name]


@pytest.fixture(params=TINY)
def tiny(request):
    return request.param
