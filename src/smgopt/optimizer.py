"""SMGOpt: stochastic MG/OPT as a ``torch.optim.Optimizer``."""

import math
from collections.abc import Sequence
from typing import Any, NoReturn

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from smgopt.cycle import Correction, Coupling, Level, VCycle
from smgopt.hierarchy import Hierarchy
from smgopt.objective import Loss, Objective
from smgopt.search import Backtracking, FixedStep
from smgopt.smoothing import checked, pattern
from smgopt.transfer import Boundary, Column, GradientRestriction, Outer, Transfer
from smgopt.work import Work


class SMGOpt(Optimizer):
    r"""One V-cycle of MG/OPT over each mini-batch.

    A cycle smooths the finest network by a little gradient descent, restricts its weights, does the same on
    the coarser networks, prolongs what they learnt and takes as much of it as a line search allows. The
    coarse objectives carry a coupling term that makes them agree with the fine one to first order. With one
    level this is exactly SGD.

    ``param_groups`` holds one group a level, coarsest first, each with its ``lr``, ``weight_decay`` and
    ``smoothing``; schedulers of ``torch.optim.lr_scheduler`` work unchanged.

    Args:
        hierarchy: the networks, coarsest first.
        lr: the step of gradient descent, one for all levels or one a level.
        smoothing: one (ν, μ) a level, coarsest first, as in ``TABLE_1[8]``; without it, the pattern of the
            paper's Table 2.
        weight_decay: β of the regularisation β/2 ‖θ‖². A block of a coarse level stands for several of the
            finest ones and is weighted so.
        coupling: ``"consistent"``, as in Nash's MG/OPT, or ``"paper"``, see ``smgopt.cycle``.
        gradient_restriction: ``"adjoint"``, the transpose of prolongation, or ``"injection"``, the paper's,
            see ``smgopt.transfer``.
        boundary: ``"zero"`` or ``"constant"``, see ``smgopt.transfer``.
        line_search: False takes every correction with α = ``initial_step``: the full approximation scheme.
        initial_step: ᾱ, the first step that the line search tries.
        shrink: ρ, by which it shrinks.
        sufficient_decrease: c₁, the share of the promised decrease that it asks for.
        max_trials: after how many failures it gives up.

    Attributes:
        work: ``Work``, the evaluations so far.
        last_cycle: one ``Correction`` a level, coarsest first; None on the coarsest, which gets none. Empty
            before the first step.

    Raises:
        ValueError: an argument outside its range, or a network with nothing to train.

    Example:
        >>> import torch.nn.functional as F, smgopt
        >>> _ = torch.manual_seed(0)
        >>> net = smgopt.ResNet(inputs=4, outputs=2, width=3, depth=8)
        >>> opt = SMGOpt(smgopt.Hierarchy(net, levels=3), lr=0.1)
        >>> x, c = torch.randn(20, 4), torch.arange(20) % 2
        >>> losses = [opt.step(lambda network: F.cross_entropy(network(x), c)) for _ in range(10)]
        >>> bool(losses[-1] < losses[0])
        True
        >>> opt.work.gradients_by_level
        [10, 30, 20]
    """

    def __init__(
        self,
        hierarchy: Hierarchy,
        lr: float | Sequence[float] = 0.1,
        smoothing: Sequence[Sequence[int]] | None = None,
        *,
        weight_decay: float = 0.0,
        coupling: Coupling = "consistent",
        gradient_restriction: GradientRestriction = "adjoint",
        boundary: Boundary = "zero",
        line_search: bool = True,
        initial_step: float = 1.0,
        shrink: float = 0.5,
        sufficient_decrease: float = 0.5,
        max_trials: int = 10,
    ) -> None:
        if not isinstance(hierarchy, Hierarchy):
            raise TypeError(
                f"SMGOpt trains a smgopt.Hierarchy, not {type(hierarchy).__name__}: "
                "make one with smgopt.Hierarchy(net, levels=…)"
            )
        levels = len(hierarchy)
        rates = list(lr) if isinstance(lr, Sequence) else [float(lr)] * levels
        if len(rates) != levels:
            raise ValueError(f"lr has {len(rates)} entries for {levels} levels")
        if not all(0 < rate < math.inf for rate in rates):
            raise ValueError(f"lr must be positive, not {lr}")
        if not 0 <= weight_decay < math.inf:
            raise ValueError(f"weight_decay must be at least 0, not {weight_decay}")
        steps = checked(pattern(levels) if smoothing is None else smoothing, levels)

        finest = hierarchy.columns(levels - 1)
        for l in range(levels - 1):
            # What has been frozen since the hierarchy was made is frozen on every level.
            for (_, coarse), (_, fine) in zip(hierarchy.columns(l), finest, strict=True):
                for p in coarse:
                    p.requires_grad_(fine[0].requires_grad)
        trained = [_trained(hierarchy.columns(l)) for l in range(levels)]
        if not trained[-1]:
            raise ValueError("no parameter of the network requires a gradient: there is nothing to train")
        self.hierarchy = hierarchy
        self.work = Work(hierarchy.depths)
        self.last_cycle: tuple[Correction | None, ...] = ()
        self._columns = [[column for column, _ in columns] for columns in trained]
        self._options: dict[str, Any] = {
            "coupling": coupling,
            "gradient_restriction": gradient_restriction,
            "boundary": boundary,
            "line_search": line_search,
            "initial_step": initial_step,
            "shrink": shrink,
            "sufficient_decrease": sufficient_decrease,
            "max_trials": max_trials,
        }
        self._cycle, self._transfers = self._configured(self._options)
        groups = [
            {"params": [p for _, ps in columns for p in ps], "lr": rate, "smoothing": pair}
            for columns, rate, pair in zip(trained, rates, steps, strict=True)
        ]
        self._open = True
        super().__init__(groups, {"lr": rates[-1], "weight_decay": weight_decay})
        self._open = False

    def _configured(self, options: dict[str, Any]) -> tuple[VCycle, list[Transfer]]:
        search = (
            Backtracking(
                *(options[k] for k in ("initial_step", "shrink", "sufficient_decrease", "max_trials"))
            )
            if options["line_search"]
            else FixedStep(options["initial_step"])
        )
        transfers = [
            Transfer(columns, options["gradient_restriction"], options["boundary"])
            for columns in self._columns
        ]
        return VCycle(search, options["coupling"]), transfers

    @torch.no_grad()
    def step(self, objective: Loss | None = None) -> Tensor:  # type: ignore[override]
        """One V-cycle over one mini-batch.

        If anything fails on the way, the finest network is left as it was, bit for bit. What steps behind
        the correction of the finest level do (μ > 0 there, or a single level) shows in the next cycle only,
        as with SGD.

        Args:
            objective: called with the network of a level, returns the loss of the mini-batch, the same one
                every time. It must not call ``backward``. Trials of the line search run without gradients: a
                loss that takes gradients itself, as a penalty on them does, takes them under
                ``torch.enable_grad()``.

        Returns:
            The loss of the finest network before the cycle.

        Raises:
            TypeError: no objective, or one that does not return a tensor.
            ValueError: a loss that is not one number, or that does not depend on the network.
            FloatingPointError: the loss is not finite to begin with, or after smoothing.
            RuntimeError: the objective called ``backward``, the levels are not of one kind any more, or a
                coarse network does not call its blocks as modules.
        """
        if objective is None:
            raise TypeError(
                "SMGOpt.step() needs the loss as a function of a network, because a cycle evaluates it "
                "on every level: opt.step(lambda network: F.cross_entropy(network(x), y))"
            )
        self._refuse_moved_levels()
        self.hierarchy.follow_modes()
        # A gradient that appears later tells that the objective called backward().
        self.zero_grad()
        levels = [
            self._level(l, network, group, objective)
            for l, (network, group) in enumerate(zip(self.hierarchy, self.param_groups, strict=True))
        ]
        finest = levels[-1].objective
        start = finest.snapshot()
        buffers = [level.objective.repeat.buffers for level in levels]
        statistics = [b.read() for b in buffers]
        try:
            point = finest.evaluate(gradient_follows=True)
            if not math.isfinite(point.value):
                raise FloatingPointError(
                    f"the loss is {point.value} before the cycle: the weights stay as they are. "
                    "Look for a step (lr) that is too long, or for bad inputs"
                )
            self._cycle(levels)
            for l, level in enumerate(levels[:-1]):
                self.hierarchy.refuse_uncalled(l, level.objective.used)
            smoothed = levels[-1].correction
            if smoothed is not None and not math.isfinite(smoothed.loss_before):
                raise FloatingPointError(
                    f"smoothing has made the loss {smoothed.loss_before}: the weights are what they were "
                    "before the cycle. The step (lr) is too long"
                )
        except BaseException:
            finest.restore(start)
            for b, before in zip(buffers, statistics, strict=True):
                b.write(before)
            raise
        self.last_cycle = tuple(level.correction for level in levels)
        return point.loss.detach()

    def _level(self, l: int, network: nn.Module, group: dict[str, Any], loss: Loss) -> Level:
        # A block stands for as many of the finest level's as there are to each of its own.
        copies = 2 ** (len(self.hierarchy) - 1 - l)
        decay = [
            group["weight_decay"] * (1 if isinstance(column, Outer) else copies)
            for column in self._columns[l]
            for _ in range(column.fine)
        ]
        objective = Objective(network, group["params"], loss, decay, self.work, l)
        ν, μ = group["smoothing"]
        return Level(objective, group["lr"], ν, μ, self._transfers[l] if l else None)

    def _refuse_moved_levels(self) -> None:
        if not all(p.requires_grad for group in self.param_groups for p in group["params"]):
            raise RuntimeError(
                "a parameter has been frozen (requires_grad=False) since the optimizer was made: "
                "make a new SMGOpt"
            )
        kinds = [{f"{p.dtype} on {p.device}" for p in group["params"]} for group in self.param_groups]
        for level, kind in enumerate(kinds):
            if kind != kinds[-1]:
                raise RuntimeError(
                    f"the levels are not of one kind: level {level} is {', '.join(sorted(kind))}, the finest "
                    f"{', '.join(sorted(kinds[-1]))}. Move the whole hierarchy with hierarchy.to(…)"
                )

    def state_dict(self) -> dict[str, Any]:
        """All that a bit-identical continuation needs: the weights of all levels, options and work."""
        return {
            **super().state_dict(),
            "networks": [network.state_dict() for network in self.hierarchy],
            "options": dict(self._options),
            "work": [list(self.work.gradients_by_level), list(self.work.forwards_by_level)],
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from ``state_dict()`` of an optimizer of the same shape: its weights, options and work.

        Raises:
            ValueError: it belongs to a hierarchy of another shape, or is none of SMGOpt's. Nothing has
                changed then.
        """
        networks = state_dict.get("networks")
        if networks is None:
            raise ValueError("this is no state of SMGOpt: it holds no weights of its levels")
        if len(networks) != len(self.hierarchy):
            raise ValueError(
                f"this state has {len(networks)} levels, the hierarchy has {len(self.hierarchy)}"
            )
        for l, (network, saved) in enumerate(zip(self.hierarchy, networks, strict=True)):
            ours, theirs = _shapes(network.state_dict()), _shapes(saved)
            if ours != theirs:
                names = sorted(n for n in ours | theirs if ours.get(n) != theirs.get(n))
                raise ValueError(
                    f"the weights of level {l} in this state have another shape: {', '.join(names)}"
                )
        options = {**self._options, **state_dict["options"]}
        cycle, transfers = self._configured(options)
        gradients, forwards = map(list, state_dict["work"])
        super().load_state_dict({key: state_dict[key] for key in ("state", "param_groups")})
        for network, saved in zip(self.hierarchy, networks, strict=True):
            network.load_state_dict(saved)
        self._options, self._cycle, self._transfers = options, cycle, transfers
        self.work.gradients_by_level, self.work.forwards_by_level = gradients, forwards

    def __getstate__(self) -> dict[str, Any]:
        ours = ("hierarchy", "work", "last_cycle", "_columns", "_transfers", "_cycle", "_options", "_open")
        return {**super().__getstate__(), **{name: getattr(self, name) for name in ours}}

    @property
    def _step_supports_amp_scaling(self) -> NoReturn:
        # torch.amp.GradScaler asks for this before it does anything else with an optimizer.
        raise RuntimeError(
            "SMGOpt cannot be used with a GradScaler: a cycle takes many gradients and compares losses, "
            "so there is no one gradient to unscale. Use bfloat16 autocast, which needs no scaling"
        )

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Refused once the optimizer is made: its groups are the levels of the hierarchy."""
        if not self._open:
            raise RuntimeError(
                "SMGOpt has one param_group a level; to train other parameters, "
                "make a new Hierarchy and a new SMGOpt"
            )
        super().add_param_group(param_group)


def _trained(columns: list[tuple[Column, list[nn.Parameter]]]) -> list[tuple[Column, list[nn.Parameter]]]:
    """The columns whose parameters are trained.

    Raises:
        ValueError: a column is trained in some blocks only.
    """
    for _, parameters in columns:
        if len({p.requires_grad for p in parameters}) > 1:
            raise ValueError(
                "some blocks of a stack are frozen (requires_grad=False) and some are not: a coarse block "
                "stands for several, so freeze all of them, or none, or name a stack without the frozen ones"
            )
    return [(column, parameters) for column, parameters in columns if parameters[0].requires_grad]


def _shapes(weights: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(t.shape) for name, t in weights.items() if isinstance(t, Tensor)}
