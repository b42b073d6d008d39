"""The properties of a batch hold for other vector instructions, which torch chooses at import."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

PROPERTIES = Path(__file__).with_name("test_invariances.py")


@pytest.mark.parametrize("capability", ["default", "avx2"])
def test_a_batch_is_answered_as_its_episodes_alone(capability):
    if capability == "avx2" and not torch.backends.cpu.get_cpu_capability().startswith("AVX"):
        pytest.skip("needs a CPU with AVX2")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, str(PROPERTIES), "-k", "in_a_batch_as_alone or in_a_set_as_alone"],
        env={**os.environ, "ATEN_CPU_CAPABILITY": capability},
        cwd=PROPERTIES.parents[2],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
