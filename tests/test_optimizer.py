import contextlib
import copy
import io
import warnings
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import smgopt
from tests.problems import Loss, bits, classification


@pytest.mark.parametrize("foreach", [True, False])
@pytest.mark.parametrize("weight_decay", [0.0, 0.01])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_one_level_is_exactly_sgd(dtype: torch.dtype, weight_decay: float, foreach: bool) -> None:
    hier, loss = classification(depth=8, levels=1, dtype=dtype)
    twin = copy.deepcopy(hier[-1])
    ours = smgopt.SMGOpt(hier, 0.3, weight_decay=weight_decay)
    theirs = torch.optim.SGD(twin.parameters(), 0.3, weight_decay=weight_decay, foreach=foreach)
    for _ in range(20):
        before = ours.step(loss)
        theirs.zero_grad()
        expected = loss(twin)
        expected.backward()  # type: ignore[no-untyped-call]
        theirs.step()
        assert torch.equal(before, expected)
        assert bits(hier[-1]) == bits(twin)
    assert ours.work.gradients == 20 * 8
    assert ours.work.forwards == 0


@pytest.mark.parametrize("levels", [1, 2, 4])
@pytest.mark.parametrize("options", [{}, {"coupling": "consistent", "gradient_restriction": "adjoint"}])
def test_the_loss_falls(levels: int, options: dict[str, Any]) -> None:
    hier, loss = classification(depth=16, levels=levels, dtype=torch.float32)
    opt = smgopt.SMGOpt(hier, 0.1, **options)
    losses = [opt.step(loss).item() for _ in range(50)]
    assert losses[-1] < 0.8 * losses[0]


def test_the_returned_loss_is_the_one_before_the_cycle_and_carries_no_graph() -> None:
    hier, loss = classification()
    expected = loss(hier[-1])
    value = smgopt.SMGOpt(hier).step(loss)
    assert torch.equal(value, expected)
    assert not value.requires_grad


@pytest.mark.parametrize("levels", [1, 2, 4, 8])
def test_the_tables_have_one_pair_a_level(levels: int) -> None:
    hier = smgopt.Hierarchy(smgopt.ResNet(3, 2, width=2, depth=128), levels)
    for table in (smgopt.TABLE_1, smgopt.TABLE_2):
        opt = smgopt.SMGOpt(hier, smoothing=table[levels])
        assert tuple(group["smoothing"] for group in opt.param_groups) == table[levels]
    assert tuple(g["smoothing"] for g in smgopt.SMGOpt(hier).param_groups) == smgopt.TABLE_2[levels]


def test_frozen_parameters_are_left_alone() -> None:
    hier, loss = classification(depth=8, levels=1)
    net = hier[-1]
    assert isinstance(net, smgopt.ResNet)
    net.opening.requires_grad_(False)
    net.stack.b.requires_grad_(False)
    hier = smgopt.Hierarchy(net, levels=3)
    before = copy.deepcopy(net)
    opt = smgopt.SMGOpt(hier, 0.1)
    for _ in range(3):
        opt.step(loss)
    for network in hier:
        assert isinstance(network, smgopt.ResNet)
        assert torch.equal(network.opening.weight, before.opening.weight)
    assert torch.equal(net.stack.b, before.stack.b)
    assert not torch.equal(net.stack.W, before.stack.W)


def test_tied_weights_are_trained_as_one() -> None:
    net = smgopt.ResNet(4, 4, width=4, depth=8, dtype=torch.float64)
    net.closing.weight = net.opening.weight
    hier = smgopt.Hierarchy(net, levels=3)
    x = torch.randn(10, 4, dtype=torch.float64)
    opt = smgopt.SMGOpt(hier, 0.1)
    losses = [opt.step(lambda n: (n(x) - x).square().mean()).item() for _ in range(30)]
    assert losses[-1] < losses[0]
    assert net.closing.weight is net.opening.weight


# -- A continuation is bit-identical ---------------------------------------------------------------


def save_and_load(state: dict[str, Any]) -> dict[str, Any]:
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    loaded: dict[str, Any] = torch.load(file, weights_only=True)
    return loaded


def test_state_dict_holds_all_that_a_continuation_needs() -> None:
    options: dict[str, Any] = {"coupling": "consistent", "initial_step": 2.0, "weight_decay": 1e-3}
    hier, loss = classification(dtype=torch.float32)
    opt = smgopt.SMGOpt(hier, 0.2, **options)
    for _ in range(3):
        opt.step(loss)
    state = save_and_load(opt.state_dict())
    for _ in range(3):
        opt.step(loss)

    # Made with other weights and other options: the state brings all of them.
    again = smgopt.Hierarchy(smgopt.ResNet(6, 3, width=4, depth=16), levels=4)
    resumed = smgopt.SMGOpt(again, 0.7, smoothing=smgopt.TABLE_1[4], line_search=False)
    resumed.load_state_dict(state)
    for _ in range(3):
        resumed.step(loss)
    assert [bits(network) for network in again] == [bits(network) for network in hier]
    assert resumed.work.gradients_by_level == opt.work.gradients_by_level
    assert resumed.work.forwards_by_level == opt.work.forwards_by_level
    assert resumed.last_cycle == opt.last_cycle


def test_a_copy_goes_on_alike_and_apart() -> None:
    hier, loss = classification(dtype=torch.float32)
    opt = smgopt.SMGOpt(hier, 0.2)
    opt.step(loss)
    twin = copy.deepcopy(opt)
    opt.step(loss)
    assert bits(twin.hierarchy[-1]) != bits(hier[-1])
    twin.step(loss)
    assert bits(twin.hierarchy[-1]) == bits(hier[-1])


def _of_another_depth() -> dict[str, Any]:
    return smgopt.SMGOpt(smgopt.Hierarchy(smgopt.ResNet(6, 3, width=4, depth=32), levels=4)).state_dict()


def _of_unknown_options(state: dict[str, Any]) -> None:
    state["options"]["coupling"] = "loose"


def _without_work(state: dict[str, Any]) -> None:
    del state["work"]


@pytest.mark.parametrize(("spoil", "error"), [(_of_unknown_options, ValueError), (_without_work, KeyError)])
def test_a_state_that_cannot_be_used_changes_nothing(spoil: Any, error: type[Exception]) -> None:
    opt = smgopt.SMGOpt(classification()[0], 0.2)
    state = copy.deepcopy(smgopt.SMGOpt(classification()[0], 0.7).state_dict())
    spoil(state)
    before = [bits(network) for network in opt.hierarchy]
    with pytest.raises(error):
        opt.load_state_dict(state)
    assert [bits(network) for network in opt.hierarchy] == before
    assert opt.param_groups[0]["lr"] == 0.2


def test_a_loss_with_gradients_inside() -> None:
    hier, _ = classification(depth=8, levels=3)
    x = torch.randn(10, 6, dtype=torch.float64)

    def penalised(network: nn.Module) -> Tensor:
        with torch.enable_grad():
            at = x.clone().requires_grad_()
            out = network(at)
            (slope,) = torch.autograd.grad(out.sum(), at, create_graph=True)
        loss: Tensor = out.square().mean() + slope.square().mean()
        return loss

    opt = smgopt.SMGOpt(hier, 0.1)
    losses = [opt.step(penalised).item() for _ in range(10)]
    assert losses[-1] < losses[0]


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (lambda: torch.optim.SGD(nn.Linear(1, 1).parameters()).state_dict(), "no state of SMGOpt"),
        (lambda: smgopt.SMGOpt(classification(levels=2)[0]).state_dict(), "2 levels, the hierarchy has 4"),
        (_of_another_depth, "level 0 .* another shape: stack.W, stack.b"),
    ],
)
def test_states_of_another_shape_are_refused_and_change_nothing(state: Any, message: str) -> None:
    hier, _ = classification()
    opt = smgopt.SMGOpt(hier, 0.123)
    before = [bits(network) for network in hier]
    with pytest.raises(ValueError, match=message):
        opt.load_state_dict(state())
    assert [bits(network) for network in hier] == before
    assert opt.param_groups[0]["lr"] == 0.123


# -- It is an optimizer of torch -------------------------------------------------------------------


def test_schedulers_work() -> None:
    hier, loss = classification(levels=2)
    opt = smgopt.SMGOpt(hier, lr=[0.4, 0.2])
    scheduler = torch.optim.lr_scheduler.StepLR(opt, step_size=2, gamma=0.5)
    seen = []
    for _ in range(4):
        opt.step(loss)
        scheduler.step()
        seen.append([group["lr"] for group in opt.param_groups])
    assert seen == [[0.4, 0.2], [0.2, 0.1], [0.2, 0.1], [0.1, 0.05]]


def test_a_schedule_is_obeyed() -> None:
    hier, loss = classification(levels=1)
    opt = smgopt.SMGOpt(hier, lr=0.4)
    torch.optim.lr_scheduler.LambdaLR(opt, lambda _: 0.0)
    before = bits(hier[-1])
    opt.step(loss)
    assert bits(hier[-1]) == before


def test_param_groups_are_the_levels() -> None:
    hier, _ = classification()
    opt = smgopt.SMGOpt(hier)
    assert [g["params"] for g in opt.param_groups] == [list(n.parameters()) for n in hier]
    with pytest.raises(RuntimeError, match="one param_group a level"):
        opt.add_param_group({"params": [nn.Parameter(torch.ones(1))]})


def test_hooks_are_called() -> None:
    hier, loss = classification()
    opt = smgopt.SMGOpt(hier)
    calls = []
    opt.register_step_post_hook(lambda *_: calls.append("post"))
    opt.step(loss)
    assert calls == ["post"]


def test_a_grad_scaler_is_refused_in_words() -> None:
    hier, loss = classification(dtype=torch.float32)
    opt = smgopt.SMGOpt(hier)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scaler = torch.amp.GradScaler("cpu")
    scaler.scale(loss(hier[-1]))
    with pytest.raises(RuntimeError, match="cannot be used with a GradScaler"):
        scaler.step(opt, loss)


# -- Precision -------------------------------------------------------------------------------------


def test_bfloat16_autocast_inside_the_objective() -> None:
    hier, loss = classification(dtype=torch.float32)

    def mixed(network: nn.Module) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return loss(network)

    opt = smgopt.SMGOpt(hier, 0.1)
    losses = [opt.step(mixed).item() for _ in range(40)]
    assert losses[-1] < 0.8 * losses[0]
    assert {p.dtype for p in hier[-1].parameters()} == {torch.float32}


def test_autocast_around_the_step_is_the_same() -> None:
    results = []
    for around in (True, False):
        torch.manual_seed(0)
        hier, loss = classification(dtype=torch.float32)
        opt = smgopt.SMGOpt(hier, 0.1)
        for _ in range(5):
            with torch.autocast("cpu", torch.bfloat16, enabled=around):

                def inside(network: nn.Module, loss: Loss = loss, inside: bool = not around) -> Tensor:
                    with torch.autocast(
                        "cpu", torch.bfloat16, enabled=inside or torch.is_autocast_enabled("cpu")
                    ):
                        return loss(network)

                opt.step(inside)
        results.append(bits(hier[-1]))
    assert results[0] == results[1]


# -- Bad input gets a clear error, and nothing is lost ---------------------------------------------


def _backward(network: nn.Module, loss: Loss) -> Tensor:
    value = loss(network)
    value.backward()  # type: ignore[no-untyped-call]
    return value


@pytest.mark.parametrize(
    ("objective", "error", "message"),
    [
        (lambda n, loss: loss(n).expand(3), ValueError, "one number"),
        (lambda n, loss: loss(n).item(), TypeError, "as a tensor"),
        (_backward, RuntimeError, "called backward"),
        (lambda n, loss: loss(n) * float("nan"), FloatingPointError, "nan before the cycle"),
        (lambda n, loss: loss(n) * float("inf"), FloatingPointError, "inf before the cycle"),
        (lambda _, loss: torch.tensor(1.0), ValueError, "does not depend"),  # noqa: ARG005
    ],
)
def test_bad_objectives(objective: Any, error: type[Exception], message: str) -> None:
    hier, loss = classification(dtype=torch.float32)
    opt = smgopt.SMGOpt(hier)
    before = bits(hier[-1])
    with pytest.raises(error, match=message):
        opt.step(lambda network: objective(network, loss))
    assert bits(hier[-1]) == before


def test_an_objective_that_forgets_its_argument() -> None:
    hier, loss = classification()
    opt = smgopt.SMGOpt(hier)
    before = bits(hier[-1])
    with pytest.raises(
        ValueError, match="network of level 2: the objective must use the network that it is given"
    ):
        opt.step(lambda _: loss(hier[-1]))
    assert bits(hier[-1]) == before


def test_smoothing_that_diverges_is_undone() -> None:
    hier, loss = classification(dtype=torch.float32)
    opt = smgopt.SMGOpt(hier, lr=1e30)
    before = bits(hier[-1])
    with pytest.raises(FloatingPointError, match="smoothing has made the loss"):
        opt.step(loss)
    assert bits(hier[-1]) == before


@pytest.mark.parametrize("at", range(1, 12))
def test_an_interruption_at_any_evaluation_leaves_the_finest_network_as_it_was(at: int) -> None:
    hier, loss = classification(levels=3, dtype=torch.float32)
    opt = smgopt.SMGOpt(hier)
    before, count = bits(hier[-1]), 0

    def interrupted(network: nn.Module) -> Tensor:
        nonlocal count
        count += 1
        if count == at:
            raise KeyboardInterrupt
        return loss(network)

    with contextlib.suppress(KeyboardInterrupt):
        while True:
            before = bits(hier[-1])
            opt.step(interrupted)
    assert bits(hier[-1]) == before


def test_a_missing_objective_is_asked_for() -> None:
    opt = smgopt.SMGOpt(classification()[0])
    with pytest.raises(TypeError, match=r"opt\.step\(lambda network: F\.cross_entropy"):
        opt.step()


def test_a_gradient_left_over_from_elsewhere_does_no_harm() -> None:
    hier, loss = classification()
    loss(hier[-1]).backward()  # type: ignore[no-untyped-call]
    smgopt.SMGOpt(hier).step(loss)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lr": 0.0}, "lr must be positive"),
        ({"lr": -1.0}, "lr must be positive"),
        ({"lr": float("nan")}, "lr must be positive"),
        ({"lr": [0.1, 0.1]}, "lr has 2 entries for 4 levels"),
        ({"smoothing": smgopt.TABLE_1[8]}, "smoothing has 8 entries for 4 levels"),
        ({"smoothing": ((1, 0), (1, -1), (1, 1), (1, 0))}, "smoothing of level 1"),
        ({"smoothing": ((1, 1), (1, 1), (1, 1), (1, 0))}, "coarsest level"),
        ({"smoothing": ((0, 0), (1, 1), (1, 1), (1, 0))}, "coarsest level"),
        ({"weight_decay": -1.0}, "weight_decay"),
        ({"shrink": 1.0}, "shrink"),
        ({"shrink": 0.0}, "shrink"),
        ({"initial_step": 0.0}, "initial_step"),
        ({"sufficient_decrease": 2.0}, "sufficient_decrease"),
        ({"max_trials": 0}, "max_trials"),
        ({"coupling": "none"}, "coupling"),
        ({"gradient_restriction": "mean"}, "gradient_restriction"),
        ({"boundary": "open"}, "boundary"),
    ],
)
def test_bad_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        smgopt.SMGOpt(classification()[0], **options)


def test_a_network_is_not_a_hierarchy() -> None:
    with pytest.raises(TypeError, match=r"smgopt\.Hierarchy\(net, levels=…\)"):
        smgopt.SMGOpt(smgopt.ResNet(3, 2, width=2, depth=4))  # type: ignore[arg-type]


def test_nothing_to_train() -> None:
    net = smgopt.ResNet(3, 2, width=2, depth=4).requires_grad_(False)
    with pytest.raises(ValueError, match="nothing to train"):
        smgopt.SMGOpt(smgopt.Hierarchy(net, levels=2))


def test_one_network_moved_without_the_others() -> None:
    hier, loss = classification(dtype=torch.float32)
    opt = smgopt.SMGOpt(hier)
    hier[-1].double()
    with pytest.raises(RuntimeError, match="Move the whole hierarchy"):
        opt.step(lambda network: loss(network.double()))


def test_any_loss_will_do() -> None:
    net = smgopt.ResNet(3, 1, width=4, depth=8, activation="tanh")
    x = torch.randn(50, 3)
    target = torch.sin(x.sum(1, keepdim=True))
    opt = smgopt.SMGOpt(smgopt.Hierarchy(net, levels=3), 0.1)
    losses = [opt.step(lambda n: F.huber_loss(n(x), target)).item() for _ in range(50)]
    assert losses[-1] < 0.5 * losses[0]
