import json
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file

from smgopt.lab import checkpoint
from smgopt.lab.checkpoint import Checkpoint, decode, encode
from smgopt.lab.errors import RunError

PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
TENSORS = st.lists(st.floats(width=32, allow_nan=False), max_size=3).map(torch.tensor)
TREES = st.recursive(
    PLAIN | TENSORS,
    lambda part: (
        st.lists(part, max_size=3)
        | st.tuples(part, part)
        | st.dictionaries(st.text() | st.integers(), part, max_size=3)
    ),
    max_leaves=8,
)


def same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return isinstance(b, dict) and list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and a == b


@given(tree=TREES)
def test_a_tree_comes_back_through_json(tree: Any) -> None:
    tensors: dict[str, torch.Tensor] = {}
    code = json.loads(json.dumps(encode(tree, tensors)))
    assert same(decode(code, tensors), tree)


def test_nothing_else_is_stored() -> None:
    with pytest.raises(TypeError, match=r"cannot hold function \(a.0\)"):
        encode({"a": [lambda: 0]}, {})


def test_shared_memory_and_odd_layouts(tmp_path: Path) -> None:
    t = torch.arange(6.0).reshape(2, 3)
    saved = Checkpoint(
        3, {"a": 1}, {"t": t, "same": t, "turned": t.T, "none": torch.tensor(2.5), "k": {0: t[:, 1]}}
    )
    checkpoint.save(tmp_path, saved)
    found = checkpoint.load(tmp_path, 3)
    assert same(found.state, saved.state)
    assert found.facts == {"a": 1}
    assert load_file(tmp_path / "cycle-00000003.safetensors").keys() == {"t", "same", "turned", "none", "k.0"}


@pytest.mark.parametrize(
    "state",
    [
        {"tensor": "nowhere"},
        {"set": [1]},
        {"dict": 3},
        {"dict": [[[], 1]]},
        {"list": 1, "tuple": 2},
        {},
    ],
)
def test_a_forged_checkpoint_is_none(tmp_path: Path, state: Any) -> None:
    checkpoint.save(tmp_path, Checkpoint(1, {}, {}))
    file = tmp_path / "cycle-00000001.json"
    known = json.loads(file.read_text())["content"] | {"state": state}
    file.write_text(json.dumps({"checksum": checkpoint._checksum(known), "content": known}))
    with pytest.raises(RunError, match="it is no checkpoint"):
        checkpoint.load(tmp_path, 1)


def test_a_renamed_checkpoint_is_noticed(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, Checkpoint(1, {}, {}))
    (tmp_path / "cycle-00000001.json").rename(tmp_path / "cycle-00000002.json")
    with pytest.raises(RunError, match="belongs to cycle 1"):
        checkpoint.load(tmp_path, 2)


def test_a_later_format_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "FORMAT", 99)
        checkpoint.save(tmp_path, Checkpoint(1, {}, {}))
    with pytest.raises(RunError, match="has format 99, this smgopt reads 1"):
        checkpoint.load(tmp_path, 1)


def test_pruning_keeps_what_it_should_and_what_is_not_its_own(tmp_path: Path) -> None:
    for cycle in (1, 2, 3):
        checkpoint.save(tmp_path, Checkpoint(cycle, {}, {}))
    (tmp_path / ".cycle-00000004.json.part").touch()
    (tmp_path / "notes.txt").touch()
    checkpoint.prune(tmp_path, [2, 3])
    assert checkpoint.cycles(tmp_path) == [3, 2]
    assert (tmp_path / "notes.txt").exists()
    assert len(list(tmp_path.iterdir())) == 5
