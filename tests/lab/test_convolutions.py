"""Runs of a convolutional network, which has batch normalisation and blocks that are modules."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from smgopt.lab import build, evaluate, export, train
from smgopt.lab.config import Config
from smgopt.lab.errors import InputError, Interrupted
from smgopt.lab.forms import FORMS
from smgopt.lab.runs import Run
from tests.lab.support import Make, Signal, numbers


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    random = np.random.default_rng(0)
    y = random.integers(3, size=60)
    x = (random.normal(size=(60, 2, 8, 8)) + y[:, None, None, None]).astype(np.float32)
    path = tmp_path_factory.mktemp("data") / "images.npz"
    np.savez(path, x=x[:40], y=y[:40], x_test=x[40:], y_test=y[40:])
    return path


@pytest.fixture
def conv(make: Make, images: Path) -> Make:
    def made(**changes: object) -> Config:
        return make(**{"network": "convresnet", "data": str(images), "batch": 10, "cycles": 4, **changes})

    return made


def test_a_run_is_recorded(conv: Make, tmp_path: Path) -> None:
    run = train.run(conv(cycles=8), tmp_path / "run")
    first, last = run.metrics[0], run.metrics[-1]
    assert last["train_loss"] < run.cycles[0]["train_loss"]
    assert last["gradients"] == sum(N * Q for N, Q in zip((6, 12), last["gradients_by_level"], strict=True))
    assert len(first["test_accuracy"]) == 2
    found = evaluate.evaluate(run)
    assert [level.blocks for level in found.levels] == [6, 12]
    assert [level.accuracy for level in found.levels] == last["test_accuracy"]


@pytest.mark.parametrize("optimizer", ["smgopt", "adam"])
def test_what_was_stopped_goes_on(conv: Make, tmp_path: Path, optimizer: str) -> None:
    whole = train.run(conv(optimizer=optimizer), tmp_path / "whole")
    with pytest.raises(Interrupted):
        train.run(conv(optimizer=optimizer, checkpoint=1000.0), tmp_path / "run", progress=Signal(3))
    train.run(conv(optimizer=optimizer), tmp_path / "run", resume=True)
    assert numbers(tmp_path / "run") == numbers(whole.folder)


def test_a_coarse_level_is_saved_with_statistics_that_fit_its_weights(conv: Make, tmp_path: Path) -> None:
    run = train.run(conv(), tmp_path / "run")
    coarse, x = run.network(0), build.data(run.config).x
    kept = [b.clone() for b in coarse.buffers()]
    for module in coarse.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.reset_running_stats()
            module.momentum = None
    coarse.train()
    with torch.no_grad():
        for part in torch.split(x, 10):
            coarse(part)
    for ours, theirs in zip(kept, coarse.buffers(), strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("level", [0, 1])
def test_any_level_can_be_exported(conv: Make, tmp_path: Path, form: str, level: int) -> None:
    run = train.run(conv(), tmp_path / "run")
    made = export.export(run, tmp_path / f"net.{form}", level)
    assert made.blocks == (6, 12)[level]
    assert made.deviation < 1e-4
    if form == "safetensors":
        x = torch.randn(3, 2, 8, 8)
        with torch.no_grad():
            torch.testing.assert_close(export.load(made.file)(x), run.network(level).eval()(x))


def test_inputs_must_be_images(make: Make, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"network=convresnet takes images, channels × height × width"):
        train.run(make(network="convresnet"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_levels_are_those_of_a_stage(conv: Make) -> None:
    with pytest.raises(InputError, match="4 levels halve the depth 3 times, but the 4 blocks of 'stage1'"):
        conv(levels=4)


def test_it_is_read_back(conv: Make, tmp_path: Path) -> None:
    run = train.run(conv(), tmp_path / "run")
    assert Run(run.folder).config == run.config
