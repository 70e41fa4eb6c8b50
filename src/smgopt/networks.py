"""Residual networks whose depth can be halved."""

import math
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.utils import skip_init

from smgopt import kernels

Activation = Literal["relu", "tanh"]
Backend = Literal["auto", "numba", "torch"]
Norm = Literal["batch", "group", "none"]
ACTIVATIONS = ("relu", "tanh")
NORMS = ("batch", "group", "none")


class ResidualStack(nn.Module):
    r"""N residual blocks in a row: the explicit Euler steps of one ODE.

    .. math:: y_n = y_{n-1} + Δt \, σ(W_n y_{n-1} + b_n), \quad n = 1, …, N, \quad Δt = T / N

    The depth is the first dimension of the parameters, ``W`` (N × w × w) and ``b`` (N × w), so that
    taking every second block is a slice and not a loop over modules.

    Args:
        width: w, the number of components of the state y.
        depth: N, the number of blocks.
        T: the length of the time interval that the blocks share.
        activation: σ, ``"relu"`` or ``"tanh"``.
        checkpoint: keep only every √N-th state for the backward pass and compute the others again: memory
            for time.
        backend: what computes it, ``"numba"`` (compiled), ``"torch"`` (plain operations), or ``"auto"``: the
            compiled kernel wherever it can be had, see ``smgopt.kernels``.
        device, dtype: of the parameters.

    Raises:
        ValueError: a width, depth or T that is not positive, an unknown activation or back end.

    Example:
        >>> stack = ResidualStack(width=3, depth=8)
        >>> stack(torch.ones(5, 3)).shape
        torch.Size([5, 3])
        >>> stack.coarsen()
        ResidualStack(width=3, depth=4, T=1.0, activation=relu, backend=auto: numba)
    """

    def __init__(
        self,
        width: int,
        depth: int,
        T: float = 1.0,
        activation: Activation = "relu",
        *,
        checkpoint: bool = False,
        backend: Backend = "auto",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if width < 1 or depth < 1:
            raise ValueError(f"width and depth must be at least 1, not {width} and {depth}")
        if not 0 < T < math.inf:
            raise ValueError(f"T must be a positive number, not {T}")
        if activation not in ACTIVATIONS:
            raise ValueError(f"activation must be one of {', '.join(ACTIVATIONS)}, not {activation!r}")
        self.width, self.depth, self.T, self.activation = width, depth, T, activation
        self.checkpoint, self.backend = checkpoint, backend
        if backend not in kernels.BACKENDS:
            raise ValueError(f"backend must be one of {', '.join(kernels.BACKENDS)}, not {backend!r}")
        self.W = nn.Parameter(torch.empty(depth, width, width, device=device, dtype=dtype))
        self.b = nn.Parameter(torch.empty(depth, width, device=device, dtype=dtype))
        self.reset_parameters()

    @property
    def dt(self) -> float:
        """Δt = T / N, the step of the Euler scheme."""
        return self.T / self.depth

    def reset_parameters(self) -> None:
        """Draw the weights anew: each W_n by Xavier's normal rule, each b_n as in ``nn.Linear``."""
        nn.init.normal_(self.W, std=1 / math.sqrt(self.width))
        bound = 1 / math.sqrt(self.width)
        nn.init.uniform_(self.b, -bound, bound)

    def coarsen(self) -> "ResidualStack":
        """A stack of half the depth and twice the Δt; its weights are this one's, of every second block.

        Raises:
            ValueError: an odd depth.
            TypeError: a subclass that does not say how it is coarsened.
        """
        if self.depth % 2:
            raise ValueError(f"a stack of {self.depth} blocks cannot be halved")
        if type(self) is not ResidualStack:
            raise TypeError(f"{type(self).__name__} must say itself how it is coarsened: override coarsen()")
        # Made without drawing weights, so that a hierarchy does not disturb the random numbers around it.
        coarse: ResidualStack = skip_init(  # type: ignore[no-untyped-call]
            ResidualStack,
            self.width,
            self.depth // 2,
            self.T,
            self.activation,
            checkpoint=self.checkpoint,
            backend=self.backend,
            device=self.W.device,
            dtype=self.W.dtype,
        )
        for half, whole in zip(coarse.parameters(), self.parameters(), strict=True):
            half.data.copy_(whole.data[::2])
            half.requires_grad_(whole.requires_grad)
        return coarse

    def forward(self, y: Tensor) -> Tensor:
        """y_N from y_0, whose last dimension is the width."""
        return kernels.residual_stack(
            y, self.W, self.b, self.dt, self.activation, checkpoint=self.checkpoint, backend=self.backend
        )

    def extra_repr(self) -> str:
        """The arguments, and which back end runs, for ``print``."""
        shown = f"width={self.width}, depth={self.depth}, T={self.T}, activation={self.activation}"
        if self.checkpoint:
            shown += ", checkpoint=True"
        if self.backend != "auto":
            return f"{shown}, backend={self.backend}"
        runs = kernels.choose_for(self.width, self.W.dtype, self.W.device, self.activation)
        return f"{shown}, backend=auto: {runs}"


class ResNet(nn.Module):
    r"""The network of the paper: an opening map, N residual blocks of one width, a closing map.

    .. math:: y_0 = A x + a, \quad y_n = y_{n-1} + Δt \, σ(W_n y_{n-1} + b_n), \quad y = C y_N + c

    Args:
        inputs: the number of components of one input; an image is flattened.
        outputs: the number of components of the answer, for a classifier the classes.
        width: w, the number of components of every y_n.
        depth: N, the number of blocks.
        T: the length of the time interval; Δt = T / depth.
        activation: σ, ``"relu"`` or ``"tanh"``.
        closing_relu: put a relu behind the closing map. The authors' experiments did; it can silence
            an output for good, so it is off unless asked for.
        checkpoint, backend: how the blocks are computed, see ``ResidualStack``.
        device, dtype: of the parameters.

    Raises:
        ValueError: a number that is not positive, or an unknown activation.

    Example:
        >>> net = ResNet(inputs=784, outputs=10, width=10, depth=2048)
        >>> net(torch.zeros(5, 1, 28, 28)).shape
        torch.Size([5, 10])
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        width: int,
        depth: int,
        T: float = 1.0,
        *,
        activation: Activation = "relu",
        closing_relu: bool = False,
        checkpoint: bool = False,
        backend: Backend = "auto",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if min(inputs, outputs, width) < 1:
            raise ValueError(
                f"inputs, outputs and width must be at least 1, not {inputs}, {outputs} and {width}"
            )
        self.opening = nn.Linear(inputs, width, device=device, dtype=dtype)
        self.stack = ResidualStack(
            width, depth, T, activation, checkpoint=checkpoint, backend=backend, device=device, dtype=dtype
        )
        self.closing = nn.Linear(width, outputs, device=device, dtype=dtype)
        self.closing_relu = closing_relu

    def forward(self, x: Tensor) -> Tensor:
        """The answer (batch × outputs) to a batch of inputs (batch × …, flattened to ``inputs``)."""
        y: Tensor = self.closing(self.stack(self.opening(x.flatten(1))))
        return torch.relu(y) if self.closing_relu else y

    def extra_repr(self) -> str:
        """What the parts do not show."""
        return "closing_relu=True" if self.closing_relu else ""


class ConvBlock(nn.Module):
    """A pre-activation block of two convolutions: y ← y + conv(relu(norm(conv(relu(norm(y)))))).

    Args:
        channels: of its input and its output.
        norm: ``"batch"``, ``"group"`` (eight groups, or as many as divide the channels) or ``"none"``.
    """

    def __init__(self, channels: int, norm: Norm = "batch") -> None:
        super().__init__()
        self.norm1, self.conv1 = (
            _norm(norm, channels),
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
        )
        self.norm2, self.conv2 = (
            _norm(norm, channels),
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
        )

    def forward(self, y: Tensor) -> Tensor:
        """The next state."""
        branch: Tensor = self.conv2(torch.relu(self.norm2(self.conv1(torch.relu(self.norm1(y))))))
        return y + branch


class ConvResNet(nn.Module):
    """A pre-activation residual network for images, as it is known from CIFAR: three stages of blocks.

    Between the stages a strided convolution halves the image and doubles the channels; the stages are lists
    of equal blocks, so that a ``Hierarchy`` halves all three. It has 6 · depth + 4 layers with weights.

    Args:
        inputs: channels of an image.
        outputs: classes.
        width: channels of the first stage.
        depth: blocks a stage.
        norm: ``"batch"``, ``"group"`` or ``"none"``.

    Raises:
        ValueError: a number that is not positive, or an unknown norm.

    Example:
        >>> net = ConvResNet(inputs=3, outputs=10, width=16, depth=8)
        >>> net(torch.zeros(5, 3, 32, 32)).shape
        torch.Size([5, 10])
    """

    def __init__(self, inputs: int, outputs: int, width: int, depth: int, *, norm: Norm = "batch") -> None:
        super().__init__()
        if min(inputs, outputs, width, depth) < 1:
            raise ValueError(
                "inputs, outputs, width and depth must be at least 1, "
                f"not {inputs}, {outputs}, {width} and {depth}"
            )
        if norm not in NORMS:
            raise ValueError(f"norm must be one of {', '.join(NORMS)}, not {norm!r}")
        self.opening = nn.Conv2d(inputs, width, 3, padding=1, bias=False)
        self.stage1 = self._stage(width, depth, norm)
        self.halving1 = nn.Conv2d(width, 2 * width, 3, stride=2, padding=1, bias=False)
        self.stage2 = self._stage(2 * width, depth, norm)
        self.halving2 = nn.Conv2d(2 * width, 4 * width, 3, stride=2, padding=1, bias=False)
        self.stage3 = self._stage(4 * width, depth, norm)
        self.norm, self.closing = _norm(norm, 4 * width), nn.Linear(4 * width, outputs)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    @staticmethod
    def _stage(channels: int, depth: int, norm: Norm) -> nn.Sequential:
        return nn.Sequential(*(ConvBlock(channels, norm) for _ in range(depth)))

    def forward(self, x: Tensor) -> Tensor:
        """The classes' scores (batch × outputs) of a batch of images (batch × inputs × height × width)."""
        y = self.stage1(self.opening(x))
        y = self.stage2(self.halving1(y))
        y = self.stage3(self.halving2(y))
        scores: Tensor = self.closing(torch.relu(self.norm(y)).mean((2, 3)))
        return scores


def _norm(norm: Norm, channels: int) -> nn.Module:
    if norm == "batch":
        return nn.BatchNorm2d(channels)
    return nn.GroupNorm(math.gcd(8, channels), channels) if norm == "group" else nn.Identity()
