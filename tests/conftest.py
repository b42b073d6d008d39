"""One thread for torch: its tensors here are tiny, and threads that wait for each other cost more than they do."""

import hypothesis
import torch

torch.set_num_threads(1)

# No test is a timed test: the machine is shared.
hypothesis.settings.register_profile("ptmap", deadline=None)
hypothesis.settings.load_profile("ptmap")
