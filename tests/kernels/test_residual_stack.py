"""The compiled stack computes what the plain one computes, and the same bits every time."""

from __future__ import annotations

import contextlib
import os
import threading
import warnings
from typing import TYPE_CHECKING

import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from smgopt import kernels
from smgopt.kernels import cpu, memory, reference

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

pytest.importorskip("numba")


@pytest.fixture(autouse=True)
def _restore_threads() -> Iterator[None]:
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def problem(
    depth: int, width: int, *batch: int, dtype: torch.dtype = torch.float64, seed: int = 0
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """y, W and b, which want gradients, and a gradient of the output."""
    g = torch.Generator().manual_seed(seed)
    y = torch.randn(*batch, width, dtype=torch.float64, generator=g)
    W = torch.randn(depth, width, width, dtype=torch.float64, generator=g) / width**0.5
    b = torch.randn(depth, width, dtype=torch.float64, generator=g)
    grad = torch.randn(*batch, width, dtype=torch.float64, generator=g)
    y, W, b = (t.to(dtype).requires_grad_() for t in (y, W, b))
    return y, W, b, grad.to(dtype)


@contextlib.contextmanager
def _every_state_kept(unless: bool) -> Iterator[None]:
    """As if caches were small: then checkpoints make a difference for shallow stacks, too."""
    scratch = cpu.SCRATCH
    cpu.SCRATCH = scratch if unless else 0
    cpu.plan.cache_clear()
    try:
        yield
    finally:
        cpu.SCRATCH = scratch
        cpu.plan.cache_clear()


def value_and_gradients(
    backend: str,
    y: Tensor,
    W: Tensor,
    b: Tensor,
    grad: Tensor,
    dt: float = 0.125,
    activation: str = "relu",
    checkpoint: bool = False,
) -> tuple[Tensor, ...]:
    with _every_state_kept(unless=not checkpoint):
        out = kernels.residual_stack(y, W, b, dt, activation, checkpoint=checkpoint, backend=backend)
        return out, *torch.autograd.grad(out, (y, W, b), grad)


def far_from_kinks(y: Tensor, W: Tensor, b: Tensor, dt: float, distance: float) -> bool:
    """Whether no argument of relu is so near to 0 that rounding could decide its sign."""
    y, W, b = y.detach().double(), W.detach().double(), b.detach().double()
    for W_n, b_n in zip(W, b, strict=True):
        z = y @ W_n.T + b_n
        if z.numel() and z.abs().min() < distance:
            return False
        y = y + dt * torch.relu(z)
    return True


def assert_agree(found: tuple[Tensor, ...], expected: tuple[Tensor, ...], tolerance: float) -> None:
    for f, e in zip(found, expected, strict=True):
        assert f.shape == e.shape
        assert f.dtype == e.dtype
        assert (f - e).norm() <= tolerance * (1 + e.norm())


# Few widths, because each is compiled: one, an odd one, the paper's, one beyond what is unrolled at once, one
# whose rows do not fit into the registers at once.
@settings(deadline=None, max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    width=st.sampled_from([1, 3, 10]),
    depth=st.integers(1, 70),
    batch=st.one_of(st.sampled_from([1, 15, 16, 17, 37, 128, 129]), st.integers(0, 600)),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    activation=st.sampled_from(["relu", "tanh"]),
    dt=st.sampled_from([1.0, 0.125, 1e-3, 0.0, -0.125]),
    threads=st.integers(1, 3),
    checkpoint=st.booleans(),
    seed=st.integers(0, 2**20),
)
def test_kernel_agrees_with_reference(
    width: int,
    depth: int,
    batch: int,
    dtype: torch.dtype,
    activation: str,
    dt: float,
    threads: int,
    checkpoint: bool,
    seed: int,
) -> None:
    torch.set_num_threads(threads)
    if abs(dt) == 1.0:
        depth = min(depth, 8)  # or the states grow without bound
    y, W, b, grad = problem(depth, width, batch, dtype=dtype, seed=seed)
    single = dtype == torch.float32
    assume(activation == "tanh" or not single or far_from_kinks(y, W, b, dt, 2e-5))
    found = value_and_gradients("numba", y, W, b, grad, dt, activation, checkpoint)
    expected = value_and_gradients("torch", y, W, b, grad, dt, activation)
    assert_agree(found, expected, 3e-5 if single else 1e-12)


@pytest.mark.parametrize(
    ("width", "dtype", "activation"),
    [(17, torch.float32, "tanh"), (40, torch.float64, "relu"), (128, torch.float32, "tanh")],
)
def test_great_widths(width: int, dtype: torch.dtype, activation: str) -> None:
    problems = problem(5, width, 70, dtype=dtype)
    found = value_and_gradients("numba", *problems, activation=activation)
    expected = value_and_gradients("torch", *problems, activation=activation)
    assert_agree(found, expected, 3e-5 if dtype == torch.float32 else 1e-12)


@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("checkpoint", [False, True])
def test_derivatives_are_the_limits_of_differences(activation: str, checkpoint: bool) -> None:
    for seed in range(3):
        y, W, b, _ = problem(7, 3, 5, seed=seed)
        if activation == "relu" and not far_from_kinks(y, W, b, 0.3, 1e-3):
            continue

        def stack(y: Tensor, W: Tensor, b: Tensor) -> Tensor:
            return kernels.residual_stack(y, W, b, 0.3, activation, checkpoint=checkpoint, backend="numba")

        with _every_state_kept(unless=not checkpoint):
            assert torch.autograd.gradcheck(stack, (y, W, b))


def test_second_derivatives() -> None:
    y, W, b, _ = problem(4, 3, 5)

    def stack(y: Tensor, W: Tensor, b: Tensor) -> Tensor:
        return kernels.residual_stack(y, W, b, 0.3, "tanh", backend="numba")

    assert torch.autograd.gradgradcheck(stack, (y, W, b))
    (first,) = torch.autograd.grad(stack(y, W, b.detach()).sum(), W, create_graph=True)
    assert torch.autograd.grad(first.square().sum(), W)[0].abs().sum() > 0


@pytest.mark.parametrize("create_graph", [False, True])
def test_weights_that_the_input_comes_from(create_graph: bool) -> None:
    y, W, b, _ = problem(4, 3, 5)
    found = []
    for backend in ("numba", "torch"):
        once = kernels.residual_stack(y, W, b, 0.3, "tanh", backend=backend)
        twice = kernels.residual_stack(once, W, b, 0.3, "tanh", backend=backend)
        found.append(torch.autograd.grad(twice.sum(), (y, W, b), create_graph=create_graph))
    assert_agree(found[0], found[1], 1e-12)
    if create_graph:
        sums = [torch.stack([g.square().sum() for g in first]).sum() for first in found]
        ours, theirs = (torch.autograd.grad(total, (y, W, b)) for total in sums)
        assert_agree(ours, theirs, 1e-12)


@pytest.mark.parametrize("checkpoint", [False, True])
def test_bits_depend_neither_on_threads_nor_on_the_run(checkpoint: bool) -> None:
    # more tiles than groups of tiles, and enough work for all threads
    problems = problem(60, 10, 2500, dtype=torch.float32)
    results = []
    for threads in (1, 2, 3, 2, 1, 5):
        torch.set_num_threads(threads)
        results.append(value_and_gradients("numba", *problems, checkpoint=checkpoint))
    for result in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], result, strict=True))


def test_checkpoints_keep_fewer_states() -> None:
    with _every_state_kept(unless=False):
        assert cpu.plan(40, 300, 10, 4, False).stride == 1
        assert cpu.plan(40, 300, 10, 4, True).stride == 18
    assert cpu.plan(1000, 65_536, 10, 4, False).stride < cpu.plan(1000, 65_536, 10, 4, True).stride == 256


def test_checkpoints_do_not_change_a_bit() -> None:
    problems = problem(300, 10, 40, dtype=torch.float32)
    kept = value_and_gradients("numba", *problems)
    recomputed = value_and_gradients("numba", *problems, checkpoint=True)
    assert all(torch.equal(a, b) for a, b in zip(kept, recomputed, strict=True))


def test_loss_only_and_training_give_the_same_bits() -> None:
    y, W, b, _ = problem(50, 10, 200, dtype=torch.float32)
    with torch.no_grad():
        bare = kernels.residual_stack(y, W, b, 0.1, backend="numba")
    assert not bare.requires_grad
    assert torch.equal(bare, kernels.residual_stack(y, W, b, 0.1, backend="numba"))


def test_shapes_and_strides_of_every_kind() -> None:
    y, W, b, grad = problem(4, 10, 2, 3, 7)
    expected = value_and_gradients("torch", y, W, b, grad)
    assert_agree(value_and_gradients("numba", y, W, b, grad), expected, 1e-12)
    # the same numbers, laid out backwards
    y2 = y.detach().permute(3, 2, 1, 0).contiguous().permute(3, 2, 1, 0).requires_grad_()
    W2 = W.detach().transpose(1, 2).contiguous().transpose(1, 2).requires_grad_()
    b2 = b.detach().t().contiguous().t().requires_grad_()
    assert_agree(value_and_gradients("numba", y2, W2, b2, grad), expected, 1e-12)
    # one sample without a batch, no sample at all, a gradient that is expanded from one number
    one, _, _, one_grad = problem(4, 10)
    single = value_and_gradients("numba", one, W, b, one_grad)
    assert_agree(single, value_and_gradients("torch", one, W, b, one_grad), 1e-12)
    none = y.detach()[:0].requires_grad_()
    empty = value_and_gradients("numba", none, W, b, grad[:0])
    assert empty[0].shape == none.shape
    assert all(not t.any() for t in empty)
    ones = torch.ones_like(y)
    out = kernels.residual_stack(y, W, b, 0.1, backend="numba")
    expanded, full = torch.autograd.grad(out.sum(), y, retain_graph=True), torch.autograd.grad(out, y, ones)
    assert torch.equal(expanded[0], full[0])


@pytest.mark.parametrize("wanted", ["y", "W", "b", "yW", "Wb"])
def test_only_what_is_wanted_gets_a_gradient(wanted: str) -> None:
    y, W, b, grad = problem(6, 3, 20)
    tensors = {"y": y, "W": W, "b": b}
    for name, tensor in tensors.items():
        tensor.requires_grad_(name in wanted)
    inputs = [tensors[name] for name in wanted]
    found, expected = (
        torch.autograd.grad(kernels.residual_stack(y, W, b, 0.1, backend=backend), inputs, grad)
        for backend in ("numba", "torch")
    )
    assert_agree(found, expected, 1e-12)


def test_backward_may_run_twice() -> None:
    y, W, b, grad = problem(6, 3, 20)
    out = kernels.residual_stack(y, W, b, 0.1, backend="numba")
    first = torch.autograd.grad(out, (y, W, b), grad, retain_graph=True)
    second = torch.autograd.grad(out, (y, W, b), grad)
    assert all(torch.equal(f, s) for f, s in zip(first, second, strict=True))


def test_a_changed_weight_is_noticed() -> None:
    y, W, b, _ = problem(6, 3, 20)
    out = kernels.residual_stack(y, W, b, 0.1, backend="numba")
    with torch.no_grad():
        W.add_(1.0)
    with pytest.raises(RuntimeError, match="inplace"):
        torch.autograd.grad(out.sum(), W)


def test_relu_has_derivative_zero_at_zero() -> None:
    y = torch.ones(1, 3, requires_grad=True)
    W, b = torch.zeros(1, 3, 3, requires_grad=True), torch.zeros(1, 3, requires_grad=True)
    out = kernels.residual_stack(y, W, b, 1.0, backend="numba")
    assert not torch.autograd.grad(out.sum(), W)[0].any()


@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
def test_what_is_not_finite_stays_so(activation: str, poison: float) -> None:
    y, W, b, grad = problem(5, 3, 20, dtype=torch.float32)
    with torch.no_grad():
        y[7, 1] = poison
    found = value_and_gradients("numba", y, W, b, grad, 0.1, activation)
    expected = value_and_gradients("torch", y, W, b, grad, 0.1, activation)
    for f, e in zip(found, expected, strict=True):
        assert torch.equal(f.isfinite(), e.isfinite())
    clean = [i for i in range(20) if i != 7]
    assert found[0][clean].isfinite().all()


def test_tanh_is_accurate_everywhere() -> None:
    for dtype, rounding in ((torch.float32, 2**-24), (torch.float64, 2**-53)):
        size = torch.logspace(-12, 3, 4001, dtype=torch.float64).to(dtype)
        z = torch.cat([-size, size, torch.zeros(1, dtype=dtype)])[:, None]
        identity, zero = torch.ones(1, 1, 1, dtype=dtype), torch.zeros(1, 1, dtype=dtype)
        found = kernels.residual_stack(z, identity, zero, 1.0, "tanh", backend="numba").double() - z.double()
        exact = torch.tanh(z.double())
        assert ((found - exact).abs() <= 12 * rounding * (exact.abs() + z.double().abs())).all()


def test_threads_of_the_program_may_use_it_at_once() -> None:
    problems = problem(60, 10, 900, dtype=torch.float32)
    expected = value_and_gradients("numba", *problems)
    results: list[tuple[Tensor, ...]] = []
    threads = [
        threading.Thread(target=lambda: results.append(value_and_gradients("numba", *problems)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4
    assert all(torch.equal(a, b) for result in results for a, b in zip(expected, result, strict=True))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_can_use_it() -> None:
    torch.set_num_threads(2)
    y, W, b, _ = problem(60, 10, 900, dtype=torch.float32)
    with torch.no_grad():
        expected = kernels.residual_stack(y, W, b, 0.1, backend="numba")  # starts the helping thread
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # Python warns of forks beside threads
            child = os.fork()
        if child == 0:
            same = torch.equal(kernels.residual_stack(y, W, b, 0.1, backend="numba"), expected)
            os._exit(0 if same else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


def test_reference_checkpoints_do_not_change_a_bit() -> None:
    y, W, b, grad = problem(11, 3, 6)
    plain = reference.residual_stack(y, W, b, 0.1)
    recomputed = reference.residual_stack(y, W, b, 0.1, checkpoint=True)
    assert torch.equal(plain, recomputed)
    for p, r in zip(
        torch.autograd.grad(plain, (y, W, b), grad),
        torch.autograd.grad(recomputed, (y, W, b), grad),
        strict=True,
    ):
        assert torch.equal(p, r)


def test_memory_is_used_again_and_given_up_for_what_is_asked_for_lately(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memory, "KEPT", 1 << 20)
    monkeypatch.setattr(memory, "_free", {})
    monkeypatch.setattr(memory, "_kept", 0)

    def place(count: int) -> int:
        return memory.room(count, "uint8").ctypes.data

    def idle() -> int:
        return sum(len(found) for found in memory._free.values())

    place(700_000)
    assert idle() == 1
    place(400_000)  # both together are too much: the older one goes
    assert idle() == 1
    assert memory._kept == sum(size * len(found) for size, found in memory._free.items()) < 1 << 20
    held = memory.room(400_000, "uint8")
    assert idle() == 0
    del held
    place(5_000_000)  # more than is ever kept
    assert idle() == 1
