"""The residual stack y ← y + Δt·σ(W_n y + b_n), n = 1 … N, as one operation with several back ends."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import torch

from . import reference

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["choose", "choose_for", "residual_stack"]

BACKENDS = ("auto", "numba", "torch")
# The width that the compiled kernel goes up to. At 64 it takes two thirds of the time of torch operations,
# at 128 the same.
WIDEST = 128


@functools.cache
def _missing() -> str | None:
    """Why compiled kernels are not to be had in this process, or None."""
    try:
        import numba
    except Exception as error:  # an installation that does not fit its NumPy fails in many ways
        return f"numba cannot be imported ({error})"
    disabled: bool = getattr(numba.config, "DISABLE_JIT")  # noqa
    return "NUMBA_DISABLE_JIT is set" if disabled else None


def _obstacle_for(width: int, dtype: torch.dtype, device: torch.device, activation: str) -> str | None:
    if device.type != "cpu":
        return f"the tensors are on {device}, it computes on the CPU"
    if dtype not in (torch.float32, torch.float64):
        return f"the numbers are {dtype}, it computes with torch.float32 and torch.float64"
    if not 1 <= width <= WIDEST:
        return f"the width is {width}, it takes 1 to {WIDEST}"
    if activation not in ("relu", "tanh"):
        return f"the activation is {activation!r}, it knows 'relu' and 'tanh'"
    return _missing()


def _traced(tensors: tuple[Tensor, ...]) -> bool:
    """Whether something wants to see torch operations and not only their results.

    Such as a compiler, an exporter, vmap, forward-mode differentiation, a mode that counts operations.
    """
    return bool(
        torch.compiler.is_compiling()
        or torch._C._get_tracing_state() is not None
        or any(type(t) not in (torch.Tensor, torch.nn.Parameter) for t in tensors)
        or torch._C._len_torch_dispatch_stack()
        or torch._C._functorch.peek_interpreter_stack() is not None
        or torch.autograd.forward_ad._current_level >= 0
    )


def _obstacle(y: Tensor, W: Tensor, b: Tensor, activation: str) -> str | None:
    if _traced((y, W, b)):
        return "the operations are being traced, transformed or intercepted"
    if not y.dtype == W.dtype == b.dtype or not y.device == W.device == b.device:
        return "y, W and b differ in dtype or device"
    if any(t.layout != torch.strided for t in (y, W, b)):
        return "it takes dense tensors"
    if not W.numel():
        return "there are no layers"
    if y.device.type == "cpu" and torch.is_autocast_enabled("cpu"):
        return "autocast is on, which asks for matrix products in lower precision"
    return _obstacle_for(y.shape[-1], y.dtype, y.device, activation)


def _decide(backend: str, obstacle: str | None) -> str:
    if backend not in BACKENDS:
        raise ValueError(f"backend must be one of {', '.join(map(repr, BACKENDS))}, not {backend!r}")
    if backend == "numba" and obstacle is not None:
        raise RuntimeError(f"backend='numba' cannot run here: {obstacle}")
    if backend == "auto":
        return "torch" if obstacle is not None else "numba"
    return backend


def choose(y: Tensor, W: Tensor, b: Tensor, activation: str = "relu", backend: str = "auto") -> str:
    """The back end that `residual_stack` takes for these tensors in the present context: "numba" or "torch".

    Raises:
        ValueError: the back end has no such name.
        RuntimeError: `backend="numba"` is asked for and cannot run; the message says why.

    >>> choose(torch.ones(4, 3), torch.ones(2, 3, 3), torch.ones(2, 3), backend="torch")
    'torch'
    """
    return _decide(backend, _obstacle(y, W, b, activation) if backend != "torch" else None)


def choose_for(
    width: int,
    dtype: torch.dtype,
    device: torch.device | str = "cpu",
    activation: str = "relu",
    backend: str = "auto",
) -> str:
    """What `choose` answers for ordinary tensors of this width, dtype and device, outside of any tracing.

    >>> choose_for(10, torch.bfloat16)
    'torch'
    """
    obstacle = _obstacle_for(width, dtype, torch.device(device), activation) if backend != "torch" else None
    return _decide(backend, obstacle)


def residual_stack(
    y: Tensor,
    W: Tensor,
    b: Tensor,
    dt: float,
    activation: str = "relu",
    *,
    checkpoint: bool = False,
    backend: str = "auto",
) -> Tensor:
    """The stack y ← y + Δt·σ(W_n y + b_n), n = 1 … N, of residual blocks.

    Samples are rows, as for `torch.nn.functional.linear`: z = y @ W_n.T + b_n. The result is differentiable
    with respect to y, W and b, as often as you like; only the first derivative is fast.

    Args:
        y: the state, (…, w).
        W: the weights of all layers, (N, w, w).
        b: their biases, (N, w).
        dt: the step Δt.
        activation: σ, "relu" or "tanh".
        checkpoint: keep every ~√N-th state for the way back and compute the others again.
        backend: "numba" (compiled, on the CPU), "torch" (plain operations), or "auto": see `choose`.

    The compiled back end gives the same bits on every run and for every number of threads
    (`torch.get_num_threads()`). It is compiled when a width, dtype and activation is first met, which takes
    seconds, and cached on disk.

    Raises:
        ValueError: shapes do not fit, or the activation or back end has no such name.
        RuntimeError: `backend="numba"` is asked for and cannot run.

    >>> y, W, b = torch.ones(5, 2), torch.zeros(8, 2, 2), torch.ones(8, 2)
    >>> residual_stack(y, W, b, dt=1 / 8)[0]
    tensor([2., 2.])
    """
    if (
        torch._C._get_tracing_state() is None
    ):  # a tracer takes sizes for data and warns when they are compared
        _check_shapes(y, W, b)
    if activation not in reference.ACTIVATIONS:
        raise ValueError(
            f"activation must be one of {', '.join(map(repr, reference.ACTIVATIONS))}, not {activation!r}"
        )
    if choose(y, W, b, activation, backend) == "numba":
        from . import cpu  # numba takes a second to import: only those wait who use it

        return cpu.residual_stack(y, W, b, dt, activation, checkpoint=checkpoint)
    return reference.residual_stack(y, W, b, dt, activation, checkpoint=checkpoint)


def _check_shapes(y: Tensor, W: Tensor, b: Tensor) -> None:
    if W.dim() != 3 or W.shape[1] != W.shape[2]:
        raise ValueError(f"W must be (N, w, w), not {tuple(W.shape)}")
    if tuple(b.shape) != tuple(W.shape[:2]):
        raise ValueError(f"b must be (N, w) = {tuple(W.shape[:2])} to fit W, not {tuple(b.shape)}")
    if y.dim() < 1 or y.shape[-1] != W.shape[2]:
        raise ValueError(f"y must be (…, {W.shape[2]}) to fit W, not {tuple(y.shape)}")
