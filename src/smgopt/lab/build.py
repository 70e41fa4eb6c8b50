"""From a configuration to data, networks and optimizers."""

from __future__ import annotations

import hashlib
import math
from typing import TYPE_CHECKING, Any

import torch
from pydantic_core import PydanticCustomError
from torch import nn

from smgopt.hierarchy import Hierarchy
from smgopt.lab.config import (
    Config,
    ConvResNetConfig,
    ResNetConfig,
    SMGOptConfig,
    TorchConfig,
    baselines,
    problem,
)
from smgopt.lab.errors import InputError
from smgopt.networks import ConvResNet, ResNet
from smgopt.optimizer import SMGOpt

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from smgopt.lab.data import Dataset


def _resnet(config: ResNetConfig, shape: Sequence[int], classes: int) -> nn.Module:
    return ResNet(
        math.prod(shape),
        classes,
        config.width,
        config.depth,
        config.T,
        activation=config.activation,
        closing_relu=config.closing_relu,
    )


def _convresnet(config: ConvResNetConfig, shape: Sequence[int], classes: int) -> nn.Module:
    net = ConvResNet(shape[0], classes, config.width, config.depth, norm=config.norm)
    for p in net.parameters():
        if p.ndim == 4:  # convolutions of few channels take less time with the channels last in memory
            p.data = p.data.contiguous(memory_format=torch.channels_last)
    return net


#: What makes a network of each kind from its section, the shape of one input and the number of classes.
NETWORKS: dict[str, Callable[[Any, Sequence[int], int], nn.Module]] = {
    "resnet": _resnet,
    "convresnet": _convresnet,
}


def refuse_other_shapes(config: Config, found: Dataset) -> None:
    """Whether the data are of a shape that the network takes.

    Raises:
        InputError: they are not.
    """
    if config.network.kind == "convresnet" and len(found.shape) != 3:
        raise InputError(
            f"network=convresnet takes images, channels × height × width; an input of {found.name} has the "
            f"shape {found.shape}"
        )


def hierarchy(config: Config, shape: Sequence[int], classes: int) -> Hierarchy:
    """The networks of a run with their initial weights, which depend on nothing but the seed.

    Args:
        config: of the run.
        shape: of one input.
        classes: what the networks tell apart.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.run.seed)
        net = NETWORKS[config.network.kind](config.network, shape, classes)
    return Hierarchy(net, config.hierarchy.levels)


def data(config: Config) -> Dataset:
    """The data of a run; downloaded if need be.

    Raises:
        DataError: they cannot be had.
        InputError: nothing is left after the holdout.
    """
    from smgopt.lab import data as sets

    found = sets.load(config.data.name, config.data.root, download=True)
    if not config.data.holdout:
        return found
    try:
        # The same samples for all seeds, so that they are compared on the same data.
        return found.holdout(config.data.holdout, seed=0)
    except ValueError as error:
        raise InputError(f"data.holdout={config.data.holdout}: {error}") from error


def description(found: Dataset) -> dict[str, Any]:
    """What tells whether a data set is the same one as before.

    Returns:
        ``name``, ``shape`` of one input, ``classes``, how many samples to ``train`` and to ``test``, and the
        ``sha256`` of all of it.
    """
    digest = hashlib.sha256()
    for tensor in (found.x, found.y, found.x_test, found.y_test):
        digest.update(tensor.contiguous().numpy().data)
    return {
        "name": found.name,
        "shape": list(found.shape),
        "classes": found.classes,
        "train": len(found.x),
        "test": len(found.x_test),
        "sha256": digest.hexdigest(),
    }


def multilevel(config: SMGOptConfig, networks: Hierarchy) -> SMGOpt:
    """sMG/OPT on a hierarchy.

    Raises:
        ValueError: a setting outside its range.
    """
    options = config.model_dump(exclude={"name", "smoothing"})
    return SMGOpt(networks, smoothing=config.steps(len(networks)), **options)


def baseline(config: TorchConfig, net: nn.Module) -> torch.optim.Optimizer:
    """One of torch's optimizers on one network.

    Raises:
        ValueError: a setting outside its range.
    """
    made: torch.optim.Optimizer = baselines()[config.name](net.parameters(), **config.arguments)
    return made


def _one_step(made: torch.optim.Optimizer, net: nn.Module) -> None:
    """Some optimizers look at their settings only when they use them."""

    def gradient() -> float:
        made.zero_grad()
        loss = net(torch.ones(2, *_ANY)).square().sum()
        loss.backward()
        return loss.item()  # type: ignore[no-any-return]

    made.step(gradient)


#: The shape of an input that any network takes.
_ANY = (1, 1, 1)


def rehearse(config: Config) -> None:
    """Make everything once on a device without memory, so that what is wrong shows before anything starts.

    The sentences are those of the method itself, so that there is one place that knows what is allowed.

    Raises:
        PydanticCustomError: with the setting that is wrong.
    """
    optimizer = config.optimizer
    if isinstance(optimizer, TorchConfig):
        small = config.model_copy(
            update={"network": config.network.model_copy(update={"depth": 2, "width": 2})}
        )
        with torch.random.fork_rng(devices=[]):
            net = NETWORKS[small.network.kind](small.network, _ANY, 1)
        _attempt("optimizer", lambda: _one_step(baseline(optimizer, net), net), f"{optimizer.name}: ")
    with torch.device("meta"):
        net = _attempt(
            "network",
            lambda: NETWORKS[config.network.kind](config.network, _ANY, 1),
            "there is no such network: ",
        )
        levels = _attempt("hierarchy.levels", lambda: Hierarchy(net, config.hierarchy.levels))
        if isinstance(optimizer, SMGOptConfig):
            _attempt("optimizer", lambda: multilevel(optimizer, levels))


def _attempt(key: str, make: Callable[[], Any], prefix: str = "") -> Any:
    try:
        return make()
    except PydanticCustomError:
        raise
    except (ValueError, TypeError, RuntimeError) as error:
        sentence = str(error).partition("\n")[0]  # behind it torch tells where in its own code it was
        raise problem(_blamed(key, sentence), f"{prefix}{sentence}") from error


def _blamed(key: str, sentence: str) -> str:
    """The setting that a sentence of the method's begins with, if it is one."""
    first = sentence.split(" ", 1)[0]
    if key == "optimizer" and first in SMGOptConfig.model_fields:
        return f"optimizer.{first}"
    return "optimizer.smoothing" if sentence.startswith("Table 1") else key
