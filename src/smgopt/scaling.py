"""The step of a block that knows of none: hooks that let its residual branch count several times."""

from typing import Any

import torch
from torch import Tensor, nn


class Scaled:
    """Hooks that make a block y ← y + factor · (block(y) - y), for the first tensor that it takes and gives.

    Args:
        factor: how often the residual branch counts.

    Raises:
        ValueError: the block does not keep the shape of its input, or overwrites it.
    """

    def __init__(self, factor: int) -> None:
        self.factor = factor
        self.version: int | None = None
        self.called = False

    @classmethod
    def on(cls, block: nn.Module, factor: int) -> None:
        """Let the branch of a block count ``factor`` times, however often it counted before."""
        for hooks in (block._forward_pre_hooks, block._forward_hooks):
            for key, hook in list(hooks.items()):
                if isinstance(getattr(hook, "__self__", None), cls):
                    del hooks[key]
                    block._forward_pre_hooks_with_kwargs.pop(key, None)
                    block._forward_hooks_with_kwargs.pop(key, None)
        scaled = cls(factor)
        block.register_forward_pre_hook(scaled.before, with_kwargs=True)
        block.register_forward_hook(scaled.after, with_kwargs=True)

    @classmethod
    def of(cls, block: nn.Module) -> int:
        """How often the branch of a block counts."""
        found = cls._on(block)
        return found.factor if found else 1

    @classmethod
    def called_on(cls, block: nn.Module) -> bool:
        """Whether the branch of a block has been scaled yet: hooks run if a block is called as a module."""
        found = cls._on(block)
        return found is not None and found.called

    @classmethod
    def _on(cls, block: nn.Module) -> "Scaled | None":
        owners = (getattr(hook, "__self__", None) for hook in block._forward_hooks.values())
        return next((owner for owner in owners if isinstance(owner, cls)), None)

    def before(self, block: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:  # noqa: ARG002
        """Remember the state of the input."""
        y = _first_tensor(args, kwargs)
        # torch.compile can follow neither question, and its graphs keep a state that is needed later.
        known = y is not None and not torch.compiler.is_compiling() and not y.is_inference()
        self.version = y._version if known and y is not None else None

    def after(self, block: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
        """The scaled output; whatever else the block gives passes unchanged."""
        y = _first_tensor(args, kwargs)
        first = output[0] if isinstance(output, tuple) else output
        # A nested tensor, as torch's encoder makes of a padded batch, has no shape to compare.
        same = isinstance(first, Tensor) and y is not None and (y.is_nested or first.shape == y.shape)
        if y is None or not same:
            raise ValueError(
                f"{type(block).__name__} is no residual block: it makes {_shape(first)} of {_shape(y)}. "
                "Name the stacks yourself, with stacks=…"
            )
        if self.version is not None and y._version != self.version:
            raise ValueError(
                f"{type(block).__name__} overwrites its input, so that its residual branch cannot be told "
                "from it: let it make a new tensor, y = y + … instead of y += …"
            )
        self.called = True
        scaled = y + self.factor * (first - y)
        return (scaled, *output[1:]) if isinstance(output, tuple) else scaled


def _first_tensor(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
    return next((a for a in (*args, *kwargs.values()) if isinstance(a, Tensor)), None)


def _shape(value: Any) -> str:
    return str(tuple(value.shape)) if isinstance(value, Tensor) else type(value).__name__
