"""The theorems that the method rests on, in double precision on tiny networks."""

import copy
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import smgopt
from smgopt.cycle import Level, VCycle
from smgopt.objective import Objective
from smgopt.search import Backtracking
from smgopt.transfer import Transfer
from tests.problems import Loss, Quadratics, bits, classification, flat
from tests.reference import Reference


def levels_of(hier: smgopt.Hierarchy, loss: Loss, lr: float = 0.1) -> list[Level]:
    work = smgopt.Work(hier.depths)
    return [
        Level(
            Objective(net, list(net.parameters()), loss, [0.0] * 6, work, l),
            lr,
            1,
            int(0 < l < len(hier) - 1),
        )
        for l, net in enumerate(hier)
    ]


@pytest.mark.parametrize("gradient_restriction", ["injection", "adjoint"])
@pytest.mark.parametrize("coupling", ["paper", "consistent"])
def test_the_coarse_gradient_is_the_restricted_fine_one_on_four_levels(
    coupling: Any, gradient_restriction: Any
) -> None:
    """∇f^l(θ^{l,0}) = R g^{l+1}, with g^{l+1} = ∇ℓ^{l+1} or ∇f^{l+1}."""
    hier, loss = classification(depth=16, levels=4)
    levels = levels_of(hier, loss)
    transfer = Transfer([column for column, _ in hier.columns(1)], gradient_restriction)
    cycle = VCycle(Backtracking(), coupling)
    with torch.no_grad():
        for l in (2, 1, 0):
            fine, coarse = levels[l + 1].objective, levels[l].objective
            levels[l + 1].smooth(1)
            coarse.place(transfer.restrict(fine.theta))
            coarse.v = cycle._couple(coarse, fine, transfer)
            g = fine.loss_gradient() if coupling == "paper" else fine.gradient()
            for ours, theirs in zip(coarse.gradient(), transfer.restrict_gradient(g), strict=True):
                torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("line_search", [True, False])
@pytest.mark.parametrize("boundary", ["zero", "constant"])
@pytest.mark.parametrize("gradient_restriction", ["injection", "adjoint"])
@pytest.mark.parametrize("coupling", ["paper", "consistent"])
def test_convex_quadratics_agree_with_the_dense_reference(
    coupling: Any, gradient_restriction: Any, boundary: Any, line_search: bool
) -> None:
    net = smgopt.ResNet(2, 2, width=2, depth=8, dtype=torch.float64)
    hier = smgopt.Hierarchy(net, levels=4)
    problem = Quadratics(hier)
    smoothing = ((2, 0), (2, 1), (1, 2), (1, 1))
    reference = Reference.of(
        hier,
        boundary,
        losses=[
            lambda θ, A=A, b=b: float(θ @ A @ θ / 2 - b @ θ)
            for A, b in zip(problem.A, problem.b, strict=True)
        ],
        gradients=[lambda θ, A=A, b=b: A @ θ - b for A, b in zip(problem.A, problem.b, strict=True)],
        smoothing=smoothing,
        lr=0.2,
        coupling=coupling,
        adjoint=gradient_restriction == "adjoint",
        line_search=line_search,
    )
    opt = smgopt.SMGOpt(
        hier,
        0.2,
        smoothing,
        coupling=coupling,
        gradient_restriction=gradient_restriction,
        boundary=boundary,
        line_search=line_search,
    )
    θ = flat(net)
    for _ in range(5):
        θ = reference.cycle(θ)
        opt.step(problem)
        torch.testing.assert_close(flat(net), θ, rtol=1e-10, atol=1e-12)


def test_the_dense_reference_agrees_on_a_real_network_too() -> None:
    hier, loss = classification(depth=8, levels=3)
    shapes = [[p.shape for p in net.parameters()] for net in hier]

    def at(l: int, θ: Tensor) -> Tensor:
        names = [name for name, _ in hier[l].named_parameters()]
        parts = torch.split(θ, [s.numel() for s in shapes[l]])
        weights = {n: p.reshape(s) for n, p, s in zip(names, parts, shapes[l], strict=True)}

        class With(nn.Module):
            def forward(self, x: Tensor) -> Tensor:
                y: Tensor = torch.func.functional_call(hier[l], weights, (x,))
                return y

        return loss(With())

    def gradient(l: int, θ: Tensor) -> Tensor:
        θ = θ.detach().requires_grad_()
        return torch.autograd.grad(at(l, θ), θ)[0]

    smoothing = ((2, 0), (2, 2), (1, 0))
    reference = Reference.of(
        hier,
        "zero",
        losses=[lambda θ, l=l: float(at(l, θ)) for l in range(3)],
        gradients=[lambda θ, l=l: gradient(l, θ) for l in range(3)],
        smoothing=smoothing,
        lr=0.3,
        coupling="paper",
        adjoint=False,
    )
    opt = smgopt.SMGOpt(hier, 0.3, smoothing, coupling="paper", gradient_restriction="injection")
    θ = flat(hier[-1])
    for _ in range(5):
        θ = reference.cycle(θ)
        opt.step(loss)
        torch.testing.assert_close(flat(hier[-1]), θ, rtol=1e-10, atol=1e-12)


def test_with_the_adjoint_a_consistent_correction_descends() -> None:
    """⟨∇f, P s⟩ = ⟨Pᵀ ∇f, s⟩, and Pᵀ ∇f is the coarse gradient: downhill there is downhill here."""
    hier, loss = classification(depth=16, levels=4)
    opt = smgopt.SMGOpt(hier, 0.01, coupling="consistent", gradient_restriction="adjoint")
    for _ in range(20):
        opt.step(loss)
        for correction in opt.last_cycle[1:]:
            assert correction is not None
            assert correction.slope < 0
            assert correction.alpha > 0


def test_with_line_search_no_correction_raises_its_objective() -> None:
    hier, loss = classification(depth=16, levels=4, dtype=torch.float32)
    opt = smgopt.SMGOpt(hier, 0.5, initial_step=8.0)
    steps = []
    for _ in range(30):
        opt.step(loss)
        for correction in opt.last_cycle[1:]:
            assert correction is not None
            assert correction.change <= 0
            steps.append(correction.alpha)
        finest = opt.last_cycle[-1]
        assert finest is not None
        assert finest.loss_after <= finest.loss_before
    assert min(steps) < 8.0, "no step was ever shortened, so this has shown nothing"


@pytest.mark.parametrize(("coarse_lr", "trials"), [(-0.1, 0), (1e6, 3)], ids=["uphill", "much too far"])
def test_a_rejected_correction_restores_every_bit(coarse_lr: float, trials: int) -> None:
    hier, loss = classification(depth=8, levels=2, dtype=torch.float32)
    alone = smgopt.Hierarchy(copy.deepcopy(hier[-1]), levels=1)
    opt = smgopt.SMGOpt(hier, 0.1, smoothing=((1, 0), (1, 1)), max_trials=3)
    opt.param_groups[0]["lr"] = coarse_lr
    opt.step(loss)
    assert opt.last_cycle[-1] is not None
    assert (opt.last_cycle[-1].alpha, opt.last_cycle[-1].trials) == (0, trials)
    # What is left of the cycle is its two steps of smoothing.
    sgd = smgopt.SMGOpt(alone, 0.1)
    sgd.step(loss)
    sgd.step(loss)
    assert bits(hier[-1]) == bits(alone[-1])
    # And the gradient at the point that was restored has been used again.
    assert opt.work.gradients_by_level[-1] == 2


@pytest.mark.parametrize(("smoothing", "gradients"), [(((2, 0), (1, 0)), [2, 2]), (((1, 0), (1, 1)), [1, 3])])
def test_no_gradient_is_computed_twice(smoothing: Any, gradients: list[int]) -> None:
    """A coupling term's gradient is the first step's too, the one after smoothing also the search's."""
    hier, loss = classification(depth=8, levels=2)
    opt = smgopt.SMGOpt(hier, 0.1, smoothing)
    opt.step(loss)
    assert opt.last_cycle[-1] is not None
    assert opt.last_cycle[-1].trials == 1
    assert opt.work.gradients_by_level == gradients
    # The accepted trial is the forward pass of the gradient that post-smoothing takes.
    assert opt.work.forwards_by_level == [0, 1 - smoothing[-1][1]]


def test_a_correction_is_recorded() -> None:
    hier, loss = classification(depth=8, levels=3)
    opt = smgopt.SMGOpt(hier, 0.1, smoothing=((1, 0), (1, 0), (0, 0)))
    start = loss(hier[-1]).item()
    opt.step(loss)
    coarsest, _, finest = opt.last_cycle
    assert coarsest is None
    assert finest is not None
    assert finest.loss_before == pytest.approx(start)
    assert finest.loss_after == pytest.approx(loss(hier[-1]).item())
    assert finest.change == pytest.approx(finest.loss_after - finest.loss_before)
    assert finest.slope < 0
    assert finest.trials >= 1


def test_without_line_search_a_correction_that_leads_nowhere_is_refused() -> None:
    hier, loss = classification(depth=8, levels=2)
    before = bits(hier[-1])

    def walled(network: nn.Module) -> Tensor:
        inside = network is hier[0] or bits(network) == before
        return loss(network) if inside else loss(network) * math.inf

    opt = smgopt.SMGOpt(hier, 0.1, smoothing=((4, 0), (0, 0)), line_search=False)
    opt.step(walled)
    assert opt.last_cycle[-1] is not None
    assert opt.last_cycle[-1].alpha == 0
    assert bits(hier[-1]) == before


def test_unknown_coupling() -> None:
    with pytest.raises(ValueError, match="coupling must be"):
        VCycle(Backtracking(), "nash")  # type: ignore[arg-type]


def test_regularisation_weighs_a_coarse_block_as_the_fine_ones_that_it_stands_for() -> None:
    """For weights constant in time, ‖θ‖² is the same on every level, and so is the loss."""
    net = smgopt.ResNet(2, 2, width=2, depth=8, dtype=torch.float64)
    with torch.no_grad():
        net.stack.W.copy_(net.stack.W[:1].expand_as(net.stack.W))
        net.stack.b.copy_(net.stack.b[:1].expand_as(net.stack.b))
    hier = smgopt.Hierarchy(net, levels=3)
    opt = smgopt.SMGOpt(hier, weight_decay=0.1)
    values = [
        opt._level(l, n, opt.param_groups[l], lambda n: 0 * next(n.parameters()).sum())
        .objective.evaluate()
        .value
        for l, n in enumerate(hier)
    ]
    assert values == pytest.approx([0.05 * sum(p.square().sum().item() for p in net.parameters())] * 3)
    assert all(math.isfinite(v) for v in values)
