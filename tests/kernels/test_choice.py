"""Which back end runs, and what it says when the one that is asked for cannot."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad

from smgopt import kernels

if TYPE_CHECKING:
    from torch import Tensor

pytest.importorskip("numba")


def tensors(
    width: int = 3, depth: int = 4, dtype: torch.dtype = torch.float32, device: str = "cpu"
) -> tuple[Tensor, Tensor, Tensor]:
    return (
        torch.randn(5, width, dtype=dtype, device=device),
        torch.randn(depth, width, width, dtype=dtype, device=device),
        torch.randn(depth, width, dtype=dtype, device=device),
    )


def refused(match: str, y: Tensor, W: Tensor, b: Tensor) -> None:
    assert kernels.choose(y, W, b) == "torch"
    with pytest.raises(RuntimeError, match=f"backend='numba' cannot run here: .*{match}"):
        kernels.choose(y, W, b, backend="numba")


def test_ordinary_tensors_run_compiled() -> None:
    assert kernels.choose(*tensors()) == "numba"
    assert kernels.choose(*tensors(dtype=torch.float64), "tanh") == "numba"
    assert kernels.choose(*tensors(), backend="torch") == "torch"
    assert kernels.choose_for(10, torch.float32) == "numba"
    assert kernels.choose_for(10, torch.float32, "cuda") == "torch"


def test_width_is_bounded() -> None:
    assert kernels.choose(*tensors(kernels.WIDEST)) == "numba"
    refused("width is 129", *tensors(129))


def test_what_is_not_covered_runs_as_torch_operations() -> None:
    refused("bfloat16", *tensors(dtype=torch.bfloat16))
    refused("on meta", *tensors(device="meta"))
    refused("no layers", *tensors(depth=0))
    y, W, b = tensors()
    refused("differ", y.double(), W, b)
    assert kernels.residual_stack(*tensors(device="meta"), 0.1).device.type == "meta"
    assert torch.equal(kernels.residual_stack(y, W[:0], b[:0], 0.1), y)


def test_autocast_is_followed() -> None:
    y, W, b = tensors()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        refused("autocast", y, W, b)
        found = kernels.residual_stack(y, W, b, 0.1)
        expected = y
        for W_n, b_n in zip(W, b, strict=True):
            expected = expected + 0.1 * torch.relu(torch.nn.functional.linear(expected, W_n, b_n))
    assert torch.equal(found, expected)
    assert not torch.equal(found, kernels.residual_stack(y, W, b, 0.1))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch.func, about torch.jit
def test_transforms_see_torch_operations() -> None:
    y, W, b = tensors(dtype=torch.float64)

    def stack(y: Tensor) -> Tensor:
        return kernels.residual_stack(y, W, b, 0.1)

    expected = stack(y)
    torch.testing.assert_close(torch.func.vmap(stack)(y), expected)
    gradient = torch.func.grad(lambda y: stack(y).sum())(y)
    y.requires_grad_()
    torch.testing.assert_close(torch.autograd.grad(stack(y).sum(), y)[0], gradient)
    y.requires_grad_(False)
    tangent = torch.ones_like(y)
    moved = torch.func.jvp(stack, (y,), (tangent,))[1]
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(y, tangent)  # type: ignore[no-untyped-call]
        found = forward_ad.unpack_dual(stack(dual))  # type: ignore[no-untyped-call]
        torch.testing.assert_close(found.tangent, moved)
    with FakeTensorMode() as mode:
        fake = kernels.residual_stack(mode.from_tensor(y), mode.from_tensor(W), mode.from_tensor(b), 0.1)
    assert fake.shape == y.shape


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        _, W, b = tensors()
        self.W, self.b = torch.nn.Parameter(W), torch.nn.Parameter(b)

    def forward(self, y: Tensor) -> Tensor:
        return kernels.residual_stack(y, self.W, self.b, 0.1)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
def test_networks_can_be_exported() -> None:
    net, (y, _, _) = Net(), tensors()
    expected = net(y)
    assert kernels.choose(y, net.W, net.b) == "numba"
    torch.testing.assert_close(torch.export.export(net, (y,)).module()(y), expected)
    torch.testing.assert_close(torch.compile(net, backend="eager", fullgraph=True)(y), expected)
    traced = torch.jit.trace(net, (y,), check_trace=False)  # type: ignore[no-untyped-call]
    torch.testing.assert_close(traced(y), expected)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"W": torch.zeros(4, 3, 2)}, r"W must be \(N, w, w\), not \(4, 3, 2\)"),
        ({"b": torch.zeros(4, 2)}, r"b must be \(N, w\) = \(4, 3\) to fit W, not \(4, 2\)"),
        ({"y": torch.zeros(5, 2)}, r"y must be \(…, 3\) to fit W, not \(5, 2\)"),
        ({"activation": "sine"}, "activation must be one of 'relu', 'tanh', not 'sine'"),
        ({"backend": "cuda"}, "backend must be one of 'auto', 'numba', 'torch', not 'cuda'"),
    ],
)
def test_wrong_arguments_are_named(change: dict[str, Any], message: str) -> None:
    y, W, b = tensors()
    with pytest.raises(ValueError, match=message):
        kernels.residual_stack(**{"y": y, "W": W, "b": b, "dt": 0.1, **change})


def run(program: str) -> None:
    setting = "import sys, torch\nfrom smgopt import kernels\n"
    arguments = "y, W, b = torch.randn(5, 3), torch.randn(4, 3, 3), torch.randn(4, 3)\n"
    done = subprocess.run(
        [sys.executable, "-c", setting + arguments + program], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_it_works_without_numba() -> None:
    run(
        "assert 'numba' not in sys.modules  # nobody waits for it who does not use it\n"
        "sys.modules['numba'] = None\n"
        "assert kernels.choose(y, W, b) == kernels.choose_for(10, torch.float32) == 'torch'\n"
        "kernels.residual_stack(y, W, b, 0.1)\n"
        "try:\n"
        "    kernels.residual_stack(y, W, b, 0.1, backend='numba')\n"
        "except RuntimeError as error:\n"
        "    assert 'numba cannot be imported' in str(error)\n"
        "else:\n"
        "    raise AssertionError\n"
    )


@pytest.mark.parametrize(
    "trouble",
    [
        # there is no directory for what is compiled; it is there, but nothing can be written
        "for kind in vars(caching).values():\n"
        "    if hasattr(kind, '_locator_classes'):\n        kind._locator_classes = []\n",
        "def full(*_):\n    raise OSError('disk full')\n"
        "caching.IndexDataCacheFile._load_index = lambda self: {}\n"
        "caching.IndexDataCacheFile.save = full\n",
    ],
)
def test_it_works_without_a_cache_on_disk(trouble: str) -> None:
    run(
        "from numba.core import caching\n"
        + trouble
        + "found = kernels.residual_stack(y, W, b, 0.1, backend='numba')\n"
        "torch.testing.assert_close(found, kernels.residual_stack(y, W, b, 0.1, backend='torch'))\n"
    )


def test_what_is_compiled_is_found_again_by_the_next_process() -> None:
    kernels.residual_stack(*tensors(), 0.1, backend="numba")
    run(
        "kernels.residual_stack(y, W, b, 0.1, backend='numba')\n"
        "from smgopt.kernels import sweeps\n"
        "assert sum(sweeps.forward(3, 'relu', 'float32').stats.cache_hits.values()) == 1\n"
    )
