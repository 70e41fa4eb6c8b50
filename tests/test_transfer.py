import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from smgopt.transfer import Blocks, Depth, Outer, Transfer, adjoint, inject, interpolate
from tests.reference import injection_1d, prolongation_1d

boundaries = st.sampled_from(["zero", "constant"])
sizes = st.integers(1, 9)


@given(sizes, boundaries, st.integers(0, 2**32 - 1))
def test_adjoint_pair(n: int, boundary: str, seed: int) -> None:
    """⟨Pᵀ g, c⟩ = ⟨g, P c⟩."""
    random = torch.Generator().manual_seed(seed)
    g = torch.randn(2 * n, 3, 2, dtype=torch.float64, generator=random)
    c = torch.randn(n, 3, 2, dtype=torch.float64, generator=random)
    left = (adjoint(g, boundary) * c).sum()  # type: ignore[arg-type]
    right = (g * interpolate(c, boundary)).sum()  # type: ignore[arg-type]
    torch.testing.assert_close(left, right, rtol=1e-12, atol=1e-12)


@given(sizes, boundaries)
def test_operators_are_the_matrices_of_the_definition(n: int, boundary: str) -> None:
    fine, coarse = torch.eye(2 * n, dtype=torch.float64), torch.eye(n, dtype=torch.float64)
    P = prolongation_1d(n, boundary)
    assert torch.equal(interpolate(coarse, boundary), P)  # type: ignore[arg-type]
    assert torch.equal(adjoint(fine, boundary), P.T)  # type: ignore[arg-type]
    assert torch.equal(inject(fine), injection_1d(n))


@given(sizes, boundaries)
def test_restriction_undoes_prolongation(n: int, boundary: str) -> None:
    """R P = 1: what a coarse level learnt is what it finds again."""
    c = torch.randn(n, 2)
    assert torch.equal(inject(interpolate(c, boundary)), c)  # type: ignore[arg-type]


@pytest.mark.parametrize(("boundary", "last"), [("zero", 0.0), ("constant", 7.0)])
def test_the_last_odd_block_follows_the_boundary_rule(boundary: str, last: float) -> None:
    fine = interpolate(torch.tensor([1.0, 3.0, 7.0]), boundary)  # type: ignore[arg-type]
    assert fine.tolist() == [1, 2, 3, 5, 7, last]


def test_what_is_not_stacked_passes_unchanged() -> None:
    transfer = Transfer([Outer(), Depth()], "adjoint")
    outer, stack = torch.randn(5), torch.randn(4, 2)
    assert transfer.restrict([outer, stack])[0] is outer
    assert transfer.restrict_gradient([outer, stack])[0] is outer
    assert transfer.prolong([outer, stack])[0] is outer


@given(sizes, boundaries, st.sampled_from(["injection", "adjoint"]))
def test_a_list_of_tensors_is_moved_as_one_tensor_is(n: int, boundary: str, gradients: str) -> None:
    fine, coarse = torch.randn(2 * n, 3), torch.randn(n, 3)
    whole, blocks = (Transfer([c], gradients, boundary) for c in (Depth(), Blocks(2 * n)))  # type: ignore[arg-type]
    assert torch.equal(torch.stack(blocks.restrict(list(fine))), whole.restrict([fine])[0])
    assert torch.equal(torch.stack(blocks.restrict_gradient(list(fine))), whole.restrict_gradient([fine])[0])
    assert torch.equal(torch.stack(blocks.prolong(list(coarse))), whole.prolong([coarse])[0])


def test_unknown_names_are_refused() -> None:
    with pytest.raises(ValueError, match="gradient_restriction must be"):
        Transfer([Outer()], "copy")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="boundary must be"):
        Transfer([Outer()], boundary="periodic")  # type: ignore[arg-type]
