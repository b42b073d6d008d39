"""Rules of the whole test run: what is not collected, and which tests may be skipped.

A skip is expected only for a reason that this file knows and that holds on this machine. Skips are
printed with their reasons and counted; an unexpected one fails the run.
"""

import os
import re
import shutil
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import pytest

SHARED = Path(__file__).resolve().parents[1] / "shared"

collect_ignore_glob = [] if find_spec("triton") else ["src/fewlabels/kernels/cuda*.py"]

EXPECTED_SKIPS = {  # reason, as a regular expression: whether it holds here
    r"needs (a )?CUDA": lambda: not _has_cuda(),
    r"CUDA is here": lambda: _has_cuda(),
    r"shared|not here|images of CIFAR-FS|CIFAR-FS beside": lambda: not SHARED.is_dir(),
    r"no Chromium": lambda: not (shutil.which("chromium") or os.environ.get("CHROMIUM")),
    r"could not import '(timm|torchvision|transformers|datasets|pillow_heif|av)'": lambda: True,
    r"could not import '(ultralytics|fiftyone|datumaro|label_studio_sdk)'": lambda: True,
    r"could not import 'efficientnet_lite2": lambda: True,
    r"a text encoder is not installed": lambda: (
        not (find_spec("tokenizers") and find_spec("wordllama") and find_spec("all_minilm_l6_v2"))
    ),
    r"could not import 'schemathesis'": lambda: not find_spec("schemathesis"),
    r"root may write everywhere": lambda: hasattr(os, "geteuid") and os.geteuid() == 0,
    r"no SIGINT|no such signals|needs /proc": lambda: os.name == "nt",
    r"needs a CPU with AVX2": lambda: True,
    r"needs strace": lambda: True,
    r"^Skipping check|SciPy|array.api|scikit-learn": lambda: True,  # scikit-learn's own checks
}


def _has_cuda() -> bool:
    import torch

    return torch.cuda.is_available()


def _reason(report: pytest.TestReport) -> str:
    found = report.longrepr
    text = found[2] if isinstance(found, tuple) else str(found)
    return text.removeprefix("Skipped: ")


def _skips(reporter: pytest.TerminalReporter) -> tuple[int, dict[str, int]]:
    """How many tests were skipped, and the unexpected reasons with their numbers."""
    reasons = Counter(_reason(report) for report in reporter.stats.get("skipped", []))
    expected = [known for known, holds in EXPECTED_SKIPS.items() if holds()]
    unexpected = {
        reason: n
        for reason, n in reasons.items()
        if not any(re.search(known, reason) for known in expected)
    }
    return reasons.total(), unexpected


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a run that skipped a test unexpectedly."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and not hasattr(session.config, "workerinput"):
        _, unexpected = _skips(reporter)
        if unexpected and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many tests were skipped, and which of them unexpectedly."""
    total, unexpected = _skips(terminalreporter)
    terminalreporter.write_line(f"{total} skipped, {sum(unexpected.values())} unexpectedly.")
    for reason, n in unexpected.items():
        terminalreporter.write_line(f"unexpected skip ({n}): {reason}", red=True)
