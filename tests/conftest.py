import signal

import pytest
import torch

# A shell lets what it starts in the background ignore Ctrl-C, and runs leave it at that; the tests send some.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)
