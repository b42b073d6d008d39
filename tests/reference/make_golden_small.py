"""Makes golden_small.npz: the first golden tasks with only the features that they use.

    .venv/bin/python tests/reference/make_golden_small.py

reads ../shared/features/cifar-fs-wrn28-10 beside the repository. `rows` are numbers of rows of
`features`.
"""

from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parents[1].parent / "shared" / "features" / "cifar-fs-wrn28-10"
SETTINGS = ("s1_a0.3", "s1_a0.4", "s5_a0.2")
N_TASKS = 10
IMAGES_PER_CLASS = 600


def main() -> None:
    golden = np.load(SOURCE / "golden.npz")
    rows = (
        golden["classes"][:N_TASKS, :, None].astype(np.int64) * IMAGES_PER_CLASS
        + golden["images"][:N_TASKS]
    )  # (tasks, ways, images)
    used, numbers = np.unique(rows, return_inverse=True)
    answers = {
        f"{key}_{part}": golden[f"{key}_{part}"][:N_TASKS]
        for key in SETTINGS
        for part in ("pred", "plan")
    }
    features = np.load(SOURCE / "novel.npy", mmap_mode="r")[used]
    np.savez_compressed(
        HERE / "golden_small.npz",
        features=features,
        rows=numbers.reshape(rows.shape).astype(np.int32),
        **answers,
    )


if __name__ == "__main__":
    main()
