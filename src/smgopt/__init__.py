"""Stochastic MG/OPT: train very deep residual networks through a hierarchy of shallower ones.

>>> import torch, torch.nn.functional as F, smgopt
>>> net = smgopt.ResNet(inputs=40, outputs=10, width=10, depth=64)
>>> hier = smgopt.Hierarchy(net, levels=4)
>>> opt = smgopt.SMGOpt(hier, lr=0.1, smoothing=smgopt.TABLE_1[4])
>>> x, c = torch.randn(100, 40), torch.randint(10, (100,))
>>> loss = opt.step(lambda network: F.cross_entropy(network(x), c))
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from smgopt.cycle import Correction
    from smgopt.hierarchy import Hierarchy
    from smgopt.networks import ConvResNet, ResidualStack, ResNet
    from smgopt.optimizer import SMGOpt
    from smgopt.smoothing import TABLE_1, TABLE_2
    from smgopt.work import Work

__version__ = "0.1.0"

__all__ = [
    "TABLE_1",
    "TABLE_2",
    "ConvResNet",
    "Correction",
    "Hierarchy",
    "ResNet",
    "ResidualStack",
    "SMGOpt",
    "Work",
]

# Where the names are. They are imported when they are used: the command line has to choose how OpenMP waits
# before torch is loaded, and to print its help without waiting for it.
_HOMES = {
    "ConvResNet": "networks",
    "Correction": "cycle",
    "Hierarchy": "hierarchy",
    "ResNet": "networks",
    "ResidualStack": "networks",
    "SMGOpt": "optimizer",
    "TABLE_1": "smoothing",
    "TABLE_2": "smoothing",
    "Work": "work",
}
# The method's modules are there without an import of their own, too.
_MODULES = {*_HOMES.values(), "kernels", "objective", "repeat", "scaling", "search", "stacks", "transfer"}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"smgopt.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'smgopt' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"smgopt.{_HOMES[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})
