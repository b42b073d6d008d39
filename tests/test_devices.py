import pytest
import torch

from fewlabels.devices import choose_device
from fewlabels.errors import InputError


def test_auto_is_a_device_that_works():
    assert torch.zeros(1, device=choose_device("auto")).sum() == 0


def test_unknown_and_absent_devices_are_said():
    with pytest.raises(InputError, match="device must be one of auto, cpu, cuda, mps, got 'gpu'"):
        choose_device("gpu")
    if not torch.cuda.is_available():
        with pytest.raises(
            InputError, match=r"device 'cuda' is not available here\. Use device='cpu'"
        ):
            choose_device("cuda")
