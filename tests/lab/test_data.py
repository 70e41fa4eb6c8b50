"""Data sets in memory, MNIST-1D, names, a user's own files, and the real data where they are at hand."""

from __future__ import annotations

import os
import random
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from smgopt.lab import data
from smgopt.lab.data import images


def numbered(n: int, n_test: int = 3) -> data.Dataset:
    """Inputs whose value is their position, so that a row tells where it came from."""
    x, y = torch.arange(float(n)).reshape(n, 1, 1, 1).expand(n, 1, 2, 2), torch.arange(n)
    return data.Dataset("numbered", x, y, x[:n_test], y[:n_test], classes=n)


class TestDataset:
    def test_flat_keeps_the_values_and_the_shape_stays_with_the_original(self) -> None:
        ds = numbered(5)
        assert ds.shape == (1, 2, 2)
        assert ds.flat().shape == (4,)
        assert ds.flat().flat().shape == (4,)
        torch.testing.assert_close(ds.flat().x.reshape(5, 1, 2, 2), ds.x)
        assert ds.flat().y is ds.y

    @pytest.mark.parametrize(("part", "count"), [(3, 3), (0.3, 3), (9, 9), (0.05, None), (1, 1)])
    def test_holdout_divides_the_training_data_and_never_sees_the_test_data(
        self, part: float, count: int | None
    ) -> None:
        ds = numbered(10)
        if count is None:
            with pytest.raises(ValueError, match="part must be"):
                ds.holdout(part)
            return
        split = ds.holdout(part, seed=4)
        assert len(split.x_test) == count
        assert sorted([*split.y.tolist(), *split.y_test.tolist()]) == list(range(10))
        # A row keeps its label on either side.
        assert split.x[:, 0, 0, 0].tolist() == split.y.tolist()
        assert split.x_test[:, 0, 0, 0].tolist() == split.y_test.tolist()

    def test_holdout_is_chosen_by_its_seed_alone(self) -> None:
        ds = numbered(50)
        torch.manual_seed(1)
        first = ds.holdout(0.2, seed=7)
        before = torch.get_rng_state()
        again, other = ds.holdout(10, seed=7), ds.holdout(0.2, seed=8)
        assert torch.equal(first.y_test, again.y_test)
        assert not torch.equal(first.y_test, other.y_test)
        assert torch.equal(before, torch.get_rng_state())

    @pytest.mark.parametrize("part", [0, 10, -1, 0.0, 1.0, 1.5, -0.2, float("nan"), True])
    def test_holdout_refuses_an_empty_part(self, part: float) -> None:
        with pytest.raises(ValueError, match="part must be a count in 1 … 9 or a fraction"):
            numbered(10).holdout(part)

    @pytest.mark.parametrize(
        ("change", "says"),
        [
            ({"x": torch.zeros(5, 4, dtype=torch.float64)}, "float64"),
            ({"y": torch.zeros(5)}, "int64 wanted"),
            ({"y": torch.zeros(4, dtype=torch.int64)}, "one label for each"),
            ({"x": torch.zeros(0, 4), "y": torch.zeros(0, dtype=torch.int64)}, "at least one input"),
            ({"x_test": torch.zeros(2, 3)}, "those for testing"),
        ],
    )
    def test_tensors_that_do_not_fit_are_refused(self, change: dict[str, torch.Tensor], says: str) -> None:
        y = torch.zeros(5, dtype=torch.int64)
        tensors = {"x": torch.zeros(5, 4), "y": y, "x_test": torch.zeros(2, 4), "y_test": y[:2]} | change
        with pytest.raises(data.DataError, match=says):
            data.Dataset("odd", **tensors, classes=1)


class TestBatches:
    @pytest.mark.parametrize(
        ("size", "drop_last", "sizes"),
        [(4, False, [4, 4, 2]), (4, True, [4, 4]), (5, True, [5, 5]), (99, False, [10])],
    )
    def test_an_epoch_shows_every_example_once(self, size: int, drop_last: bool, sizes: list[int]) -> None:
        ds = numbered(10)
        epoch = list(data.batches(ds.x, ds.y, size, torch.Generator().manual_seed(0), drop_last=drop_last))
        assert [len(x) for x, _ in epoch] == sizes
        labels = torch.cat([y for _, y in epoch]).tolist()
        assert len(set(labels)) == len(labels) == sum(sizes)
        assert torch.cat([x for x, _ in epoch])[:, 0, 0, 0].tolist() == labels

    def test_the_generator_decides_and_moves_on_when_the_epoch_is_made(self) -> None:
        ds = numbered(10)
        generator = torch.Generator().manual_seed(3)
        state = generator.get_state()
        first = data.batches(ds.x, ds.y, 5, generator)
        moved = generator.get_state()
        labels = [y.tolist() for _, y in first]
        assert not torch.equal(state, moved)
        assert torch.equal(moved, generator.get_state())
        generator.set_state(state)
        assert [y.tolist() for _, y in data.batches(ds.x, ds.y, 5, generator)] == labels
        assert [y.tolist() for _, y in data.batches(ds.x, ds.y, 5, generator)] != labels

    def test_bad_arguments_are_refused_at_once(self) -> None:
        ds = numbered(10)
        generator = torch.Generator()
        with pytest.raises(ValueError, match="batch_size must be at least 1, got 0"):
            data.batches(ds.x, ds.y, 0, generator)
        with pytest.raises(ValueError, match="same length, got 10 and 9"):
            data.batches(ds.x, ds.y[:9], 2, generator)
        with pytest.raises(ValueError, match="batch_size=11 leaves no batch of 10"):
            data.batches(ds.x, ds.y, 11, generator, drop_last=True)


def test_mnist1d_is_the_same_every_time_and_leaves_the_global_generators_alone() -> None:
    random.seed(1)
    np.random.seed(2)  # noqa: NPY002 (the global state is the point)
    torch.manual_seed(3)
    before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()  # type: ignore[index] # noqa: NPY002
    ds = data.load("mnist1d")
    after = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()  # type: ignore[index] # noqa: NPY002
    assert before == after
    assert (ds.name, ds.classes, ds.shape, len(ds.x), len(ds.x_test)) == ("mnist1d", 10, (40,), 4000, 1000)
    assert set(ds.y.tolist()) == set(ds.y_test.tolist()) == set(range(10))
    torch.testing.assert_close(torch.cat([ds.x, ds.x_test]).std(), torch.tensor(1.0), rtol=1e-3, atol=0)
    random.seed(99)
    assert torch.equal(data.load("mnist1d").x, ds.x)


class TestNames:
    @pytest.mark.parametrize(
        ("wrong", "right"),
        [
            ("minst", "mnist"),
            ("CIFAR10", "cifar10"),
            ("fashion_mnist", "fashion-mnist"),
            ("mnist-1d", "mnist1d"),
        ],
    )
    def test_an_unknown_name_is_told_the_nearest(self, wrong: str, right: str) -> None:
        with pytest.raises(data.DataError, match=f"unknown data set '{wrong}', did you mean '{right}'"):
            data.load(wrong)

    @pytest.mark.parametrize("name", ["", "imagenet", "x" * 400])
    def test_a_name_like_no_other_is_told_all(self, name: str) -> None:
        with pytest.raises(data.DataError, match="mnist1d, mnist, fashion-mnist, cifar10, or the path"):
            data.load(name)

    @pytest.mark.parametrize("name", ["mnist", "fashion-mnist", "cifar10"])
    def test_missing_files_are_named_with_what_to_do(
        self, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("SMGOPT_DATA", str(tmp_path / "nothing"))
        with pytest.raises(data.DataError, match=rf"{name}: .*nothing.* lacks .*download=True \(\d+ MB\)"):
            data.load(name)
        assert not (tmp_path / "nothing").exists()

    def test_the_root_is_the_argument_then_the_variable_then_the_cache(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        monkeypatch.setenv("SMGOPT_DATA", "~/variable")
        roots = []
        for root in ("~/argument", None):
            with pytest.raises(data.DataError) as caught:
                data.load("mnist", root)
            roots.append(str(caught.value))
        monkeypatch.setenv("SMGOPT_DATA", "")
        with pytest.raises(data.DataError) as caught:
            data.load("mnist")
        assert str(tmp_path / "argument" / "MNIST") in roots[0]
        assert str(tmp_path / "variable" / "MNIST") in roots[1]
        assert "smgopt" in str(caught.value)
        assert "variable" not in str(caught.value)

    @pytest.mark.parametrize("root", ["~nobody-of-this-name/x", "x" * 400])
    def test_a_root_that_cannot_be_is_refused(self, root: str) -> None:
        with pytest.raises(data.DataError, match="cannot be"):
            data.load("mnist", root)


def arrays(**change: Any) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    sound = {
        "x": rng.normal(size=(6, 3)),
        "y": np.arange(6) % 3,
        "x_test": rng.normal(size=(2, 3)),
        "y_test": [0, 2],
    }
    return sound | change


def refusal(path: Path) -> str:
    """Why the file is refused, or nothing if it is a sound data set."""
    try:
        assert data.load(path).x.isfinite().all()
    except data.DataError as error:
        return str(error)
    return ""


class TestOwnFiles:
    @pytest.mark.parametrize("dtype", ["f2", "f4", ">f8", "u1", "?"])
    def test_arrays_come_back_as_tensors(self, dtype: str, tmp_path: Path) -> None:
        content = arrays(x=np.arange(6 * 4).reshape(6, 2, 2).astype(dtype), x_test=np.ones((2, 2, 2), dtype))
        np.savez_compressed(tmp_path / "own.npz", **content, notes=np.array("more may be inside"))
        ds = data.load(tmp_path / "own.npz")
        assert (ds.name, ds.classes, ds.shape) == ("own", 3, (2, 2))
        np.testing.assert_array_equal(ds.x.numpy(), content["x"].astype(np.float32))
        assert ds.y.tolist() == content["y"].tolist()

    def test_a_folder_that_holds_one_file_stands_for_it(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        (tmp_path / "mnist").mkdir()
        np.savez("mnist/own.npz", **arrays())
        np.savez("one.npz", **arrays())
        for name in ("./mnist", Path("mnist"), str(tmp_path / "mnist"), "one.npz", "./one.npz"):
            assert data.load(name).classes == 3
        np.savez("mnist/other.npz", **arrays())
        with pytest.raises(data.DataError, match=r"one \.npz file, it holds other\.npz, own\.npz"):
            data.load("./mnist")
        (tmp_path / "empty").mkdir()
        with pytest.raises(data.DataError, match="it holds none"):
            data.load("empty")

    @pytest.mark.parametrize(
        ("change", "says"),
        [
            ({"x": np.full((6, 3), np.nan)}, "x has 18 values that are NaN"),
            ({"x_test": np.full((2, 3), 1e300)}, "x_test has 6 values"),
            ({"x": np.full((6, 3), "a")}, "x is of type <U1, numbers wanted"),
            ({"x": np.full((6, 3), 1j)}, "complex128, numbers wanted"),
            ({"x": np.zeros(6)}, r"x has shape \(6,\)"),
            ({"x": np.zeros((5, 3))}, "one label for each"),
            ({"x": np.zeros((0, 3)), "y": np.zeros(0, int)}, r"y is int64 of shape \(0,\)"),
            ({"x_test": np.zeros((2, 4))}, r"shape \(3,\), those for testing \(4,\)"),
            ({"y": np.zeros(6)}, "y is float64 .* whole number"),
            ({"y": np.zeros((6, 3), int)}, "one whole number for each input"),
            ({"y": np.array([0, 1, 2, -1, 0, 1])}, "y has labels in -1 … 2"),
            ({"y": np.array([0, 1, 2, 2**63, 0, 1], np.uint64)}, "number the classes from 0"),
            ({"y": np.array([0, 1, 2, 70_000, 0, 1])}, "y has 70001 classes for 6 inputs"),
            ({"y_test": np.array([0, 3])}, "y_test has the label 3, the largest of y is 2"),
        ],
    )
    def test_arrays_that_are_no_data_set_are_refused(
        self, change: dict[str, Any], says: str, tmp_path: Path
    ) -> None:
        np.savez(tmp_path / "own.npz", **arrays(**change))
        with pytest.raises(data.DataError, match=rf"own\.npz: .*{says}"):
            data.load(tmp_path / "own.npz")

    def test_pickled_objects_are_refused_and_not_run(self, tmp_path: Path) -> None:
        class Trap:
            def __reduce__(self) -> tuple[Any, ...]:
                return Path.touch, (tmp_path / "sprung",)

        np.savez(tmp_path / "own.npz", **arrays(x=np.array([Trap()] * 6, dtype=object)), allow_pickle=True)
        with pytest.raises(data.DataError, match="plain arrays"):
            data.load(tmp_path / "own.npz")
        assert not (tmp_path / "sprung").exists()

    def test_other_files_are_refused(self, tmp_path: Path) -> None:
        with pytest.raises(data.DataError, match=r"none\.npz is missing"):
            data.load(tmp_path / "none.npz")
        np.save(tmp_path / "single.npy", np.zeros(3))
        with pytest.raises(data.DataError, match="single array"):
            data.load(tmp_path / "single.npy")
        (tmp_path / "text.npz").write_text("x, y")
        with pytest.raises(data.DataError, match=r"text\.npz is damaged"):
            data.load(tmp_path / "text.npz")
        (tmp_path / "empty.npz").touch()
        with pytest.raises(data.DataError, match=r"empty\.npz is damaged"):
            data.load(tmp_path / "empty.npz")
        np.savez(tmp_path / "part.npz", x=np.zeros(3), y=np.zeros(3))
        with pytest.raises(data.DataError, match=r"lacks x_test, y_test \(it holds x, y\)"):
            data.load(tmp_path / "part.npz")
        (tmp_path / "folder.npz").mkdir()
        with pytest.raises(data.DataError, match=r"one \.npz file, it holds none"):
            data.load(tmp_path / "folder.npz")

    def test_a_header_that_announces_terabytes_is_refused(self, tmp_path: Path) -> None:
        with zipfile.ZipFile(tmp_path / "own.npz", "w") as archive:
            for name in ("x", "y", "x_test", "y_test"):
                with archive.open(f"{name}.npy", "w") as member:
                    header = {"descr": "<f8", "fortran_order": False, "shape": (2**45, 8)}
                    np.lib.format.write_array_header_1_0(member, header)
        with pytest.raises(data.DataError, match="damaged"):
            data.load(tmp_path / "own.npz")

    @pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
    def test_damage_anywhere_gives_a_data_set_or_one_clear_error(self, save: Any, tmp_path: Path) -> None:
        path = tmp_path / "own.npz"
        save(path, **arrays())
        sound = path.read_bytes()
        chance = random.Random(0)
        broken = [sound[: chance.randrange(len(sound))] for _ in range(40)]
        for _ in range(300):
            flipped = bytearray(sound)
            flipped[chance.randrange(len(sound))] ^= 1 << chance.randrange(8)
            broken.append(bytes(flipped))
        refused = 0
        for content in broken:
            path.write_bytes(content)
            message = refusal(path)
            if message:
                assert str(path) in message
                assert "\n" not in message
                refused += 1
        assert refused > len(broken) // 2


@pytest.mark.skipif("SMGOPT_DATA" not in os.environ, reason="SMGOPT_DATA names no folder with the real data")
class TestRealData:
    @pytest.mark.parametrize(
        ("name", "train", "shape"),
        [
            ("mnist", 60_000, (1, 28, 28)),
            ("fashion-mnist", 60_000, (1, 28, 28)),
            ("cifar10", 50_000, (3, 32, 32)),
        ],
    )
    def test_size_range_and_standardisation(self, name: str, train: int, shape: tuple[int, ...]) -> None:
        ds = data.load(name)
        assert (len(ds.x), len(ds.x_test), ds.shape, ds.classes) == (train, 10_000, shape, 10)
        assert set(ds.y_test.tolist()) == set(range(10))
        # CIFAR-10 may be here as a copy that went through lossy compression, which moves both a little.
        tolerance = 0.01 if name == "cifar10" else 1e-3
        channels = ds.x.transpose(0, 1).flatten(1)
        torch.testing.assert_close(channels.mean(1), torch.zeros(shape[0]), rtol=0, atol=tolerance)
        torch.testing.assert_close(channels.std(1), torch.ones(shape[0]), rtol=0, atol=tolerance)

    def test_the_first_digit_of_mnist_is_a_five_in_the_paper_s_scaling(self) -> None:
        ds = data.load("mnist")
        assert ds.y[:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]
        torch.testing.assert_close(ds.x.min(), torch.tensor((0 - 0.1307) / 0.3081))
        torch.testing.assert_close(ds.x.max(), torch.tensor((1 - 0.1307) / 0.3081))
        assert images.MNIST.mean == (0.1307,)
