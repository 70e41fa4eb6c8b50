import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smgopt.search import Backtracking, FixedStep, Step

REJECTED = Step(0.0, 0.0, 10)


@given(st.floats(0.01, 100), st.floats(-10, -0.01), st.floats(0.1, 8), st.floats(0.01, 0.9))
def test_an_accepted_step_satisfies_armijo_and_the_one_before_did_not(
    curvature: float, slope: float, initial_step: float, c1: float
) -> None:
    def φ(α: float) -> float:
        return slope * α + curvature * α**2 / 2

    step = Backtracking(initial_step, 0.5, c1, max_trials=60)(φ, slope)
    assert φ(step.alpha) == step.change <= c1 * step.alpha * slope < 0
    assert step.alpha == initial_step * 0.5 ** (step.trials - 1)
    if step.trials > 1:
        assert φ(2 * step.alpha) > c1 * 2 * step.alpha * slope


@pytest.mark.parametrize("slope", [0.0, 1.0, math.nan, math.inf, -math.inf])
def test_no_descent_direction_is_not_tried(slope: float) -> None:
    tried = []

    def φ(α: float) -> float:
        tried.append(α)
        return -α

    assert Backtracking()(φ, slope) == Step(0.0, 0.0, 0)
    assert not tried


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 0.0, 1.0])
def test_trials_that_do_not_help_are_rejected(value: float) -> None:
    assert Backtracking()(lambda _: value, -1.0) == REJECTED


def test_a_trial_that_is_not_finite_is_shrunk_away() -> None:
    step = Backtracking()(lambda α: math.nan if α > 0.3 else -α, -1.0)
    assert step == Step(0.25, -0.25, 3)


def test_a_fixed_step_goes_uphill_but_not_into_the_void() -> None:
    assert FixedStep(3.0)(lambda α: α, 1.0) == Step(3.0, 3.0, 1)
    assert FixedStep()(lambda _: math.nan, -1.0) == Step(0.0, 0.0, 1)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"initial_step": 0.0}, "initial_step"),
        ({"initial_step": math.inf}, "initial_step"),
        ({"shrink": 1.0}, "shrink"),
        ({"shrink": 0.0}, "shrink"),
        ({"sufficient_decrease": 0.0}, "sufficient_decrease"),
        ({"sufficient_decrease": 1.0}, "sufficient_decrease"),
        ({"max_trials": 0}, "max_trials"),
    ],
)
def test_bad_arguments_are_named(arguments: dict[str, float], name: str) -> None:
    with pytest.raises(ValueError, match=name):
        Backtracking(**arguments)  # type: ignore[arg-type]
    if name == "initial_step":
        with pytest.raises(ValueError, match=name):
            FixedStep(**arguments)
