import os
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from smgopt.lab import train
from smgopt.lab.errors import InputError, Interrupted, RunError, TrainingError
from smgopt.lab.lock import locked
from smgopt.lab.runs import Run
from tests.lab.support import Make, Signal, numbers


def test_a_run_is_recorded(make: Make, tmp_path: Path) -> None:
    run = train.run(make(), tmp_path / "run")
    assert [record["cycle"] for record in run.cycles] == list(range(1, 9))
    assert [record["cycle"] for record in run.metrics] == [0, 2, 4, 6, 8]
    assert run.finished == "8 cycles done"
    first, last = run.metrics[0], run.metrics[-1]
    assert first["train_loss"] is None
    assert first["alpha"] == [None, None]
    assert (last["epoch"], last["samples"]) == (8 / 3, 160)
    assert last["gradients"] == sum(N * Q for N, Q in zip((2, 4), last["gradients_by_level"], strict=True))
    assert len(last["test_loss"]) == len(last["test_accuracy"]) == len(last["alpha"]) == 2
    assert last["test_loss"][-1] < first["test_loss"][-1]
    assert last.keys() == first.keys()
    assert run.cycles[-1].items() <= last.items()
    assert (np.diff(run.metrics.column("seconds")) > 0).all()


def test_the_run_knows_its_networks(make: Make, tmp_path: Path) -> None:
    run = train.run(make(), tmp_path / "run")
    data = np.load(make().data.name)
    with torch.no_grad():
        answers = run.network(-1)(torch.from_numpy(data["x_test"])).argmax(1)
    right = (answers == torch.from_numpy(data["y_test"])).double().mean()
    assert float(right) == run.metrics[-1]["test_accuracy"][-1]
    with pytest.raises(InputError, match="levels 0 … 1, and no level 2"):
        run.network(2)


@pytest.mark.parametrize("changes", [{}, {"optimizer": "adam"}, {"drop_last": False, "batch": 25}])
def test_the_same_configuration_gives_the_same_bits(
    make: Make, tmp_path: Path, changes: dict[str, object]
) -> None:
    torch.manual_seed(1)
    one = numbers(train.run(make(**changes), tmp_path / "one").folder)
    torch.manual_seed(2)
    assert numbers(train.run(make(**changes), tmp_path / "two").folder) == one
    assert numbers(train.run(make(**changes, seed=1), tmp_path / "three").folder) != one


def test_training_leaves_the_random_numbers_and_threads_alone(make: Make, tmp_path: Path) -> None:
    before, threads = torch.get_rng_state(), torch.get_num_threads()
    train.run(make(), tmp_path / "run")
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.get_num_threads() == threads


def test_one_level_is_sgd(make: Make, tmp_path: Path) -> None:
    ours = train.run(make(levels=1, lr=0.2), tmp_path / "ours").metrics
    sgd = train.run(make(levels=1, optimizer="sgd", lr=0.2), tmp_path / "sgd").metrics
    for key in ("test_loss", "test_accuracy", "train_loss", "gradients", "samples"):
        assert [r[key] for r in ours] == [r[key] for r in sgd]


def test_a_baseline_pays_for_the_finest_network_only(make: Make, tmp_path: Path) -> None:
    metrics = train.run(make(optimizer="adam"), tmp_path / "run").metrics
    assert metrics[-1]["gradients_by_level"] == [0, 8]
    assert metrics[-1]["gradients"] == 8 * 4
    assert metrics[-1]["alpha"] == [None, None]


def test_lbfgs_pays_for_all_its_gradients(make: Make, tmp_path: Path) -> None:
    metrics = train.run(make(optimizer="lbfgs", lr=0.1, max_iter=3), tmp_path / "run").metrics
    assert metrics[-1]["gradients"] > 2 * 8 * 4


@pytest.mark.parametrize("cycle", range(1, 8))
def test_a_run_that_was_stopped_goes_on_as_if_it_had_not_been(make: Make, tmp_path: Path, cycle: int) -> None:
    whole = train.run(make(checkpoint=1000.0), tmp_path / "whole")
    with pytest.raises(Interrupted, match=f"stopped after cycle {cycle}, which is saved") as stopped:
        train.run(make(checkpoint=1000.0), tmp_path / "run", progress=Signal(cycle))
    assert stopped.value.exit_code == 130
    assert Run(tmp_path / "run").finished is None
    train.run(make(), tmp_path / "run", resume=True)
    assert numbers(tmp_path / "run") == numbers(whole.folder)


@pytest.mark.parametrize(
    "changes",
    [
        {"optimizer": "sgd", "momentum": 0.9},
        {"optimizer": "adam", "amsgrad": True},
        {"optimizer": "rmsprop", "centered": True, "momentum": 0.5},
        {"optimizer": "lbfgs", "lr": 0.1, "max_iter": 3},
        {"optimizer": "adafactor"},
        {"optimizer": "rprop"},
        {"line_search": False, "initial_step": 0.5, "lr": [0.1, 0.2]},
        {"drop_last": False, "batch": 25},
        {"holdout": 0.5, "weight_decay": 0.1, "coupling": "consistent"},
    ],
)
def test_whatever_was_stopped_goes_on(make: Make, tmp_path: Path, changes: dict[str, object]) -> None:
    whole = train.run(make(**changes), tmp_path / "whole")
    with pytest.raises(Interrupted):
        train.run(make(**changes), tmp_path / "run", progress=Signal(5, signal.SIGTERM))
    train.run(make(**changes), tmp_path / "run", resume=True)
    assert numbers(tmp_path / "run") == numbers(whole.folder)


def test_seconds_go_on_too(make: Make, tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        train.run(make(), tmp_path / "run", progress=Signal(5))
    before = Run(tmp_path / "run").cycles.column("seconds")
    after = train.run(make(), tmp_path / "run", resume=True).cycles.column("seconds")
    assert list(before) == list(after[:5])
    assert (np.diff(after) > 0).all()


def test_what_was_written_after_the_checkpoint_is_cut_off(make: Make, tmp_path: Path) -> None:
    whole = numbers(train.run(make(), tmp_path / "whole").folder)
    with pytest.raises(Interrupted):
        train.run(make(), tmp_path / "run", progress=Signal(5))
    with (tmp_path / "run/cycles.jsonl").open("a") as file:
        file.write('{"cycle": 6, "train_loss": 1.0}\n{"cyc')
    assert len(Run(tmp_path / "run").cycles) == 6
    train.run(make(), tmp_path / "run", resume=True)
    assert numbers(tmp_path / "run") == whole


def test_a_second_signal_stops_at_once(make: Make, tmp_path: Path) -> None:
    class Twice(Signal):
        def cycle(self, record: dict[str, object]) -> None:
            if record["cycle"] == 3:
                signal.raise_signal(signal.SIGINT)
                signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt) as stopped:
        train.run(make(checkpoint=1000.0), tmp_path / "run", progress=Twice())
    assert not isinstance(stopped.value, Interrupted)
    whole = train.run(make(), tmp_path / "whole")
    train.run(make(), tmp_path / "run", resume=True)
    assert numbers(tmp_path / "run") == numbers(whole.folder)


def test_training_works_in_a_thread(make: Make, tmp_path: Path) -> None:
    thread = threading.Thread(target=train.run, args=(make(), tmp_path / "run"))
    thread.start()
    thread.join()
    assert Run(tmp_path / "run").finished


def test_a_run_can_be_read_while_it_goes_on(make: Make, tmp_path: Path) -> None:
    thread = threading.Thread(target=train.run, args=(make(cycles=300), tmp_path / "run"))
    thread.start()
    while not (tmp_path / "run/checkpoints/cycle-00000000.json").exists():
        time.sleep(0.001)
    found, reads = Run(tmp_path / "run"), 0
    while thread.is_alive() or not reads:
        complaints: list[str] = []
        assert found.checkpoint(complaints).cycle <= 300
        assert complaints == []
        assert found.network().training
        assert len(found.cycles) >= len(found.metrics) - 1
        reads += 1
    thread.join()
    assert found.finished


def test_limits(make: Make, tmp_path: Path) -> None:
    assert train.run(make(cycles=None, epochs=1.5), tmp_path / "epochs").cycles[-1]["cycle"] == 5
    run = train.run(make(cycles=500, lr=0.5, target_accuracy=0.7), tmp_path / "target")
    assert run.metrics[-1]["test_accuracy"][-1] >= 0.7
    assert all(record["test_accuracy"][-1] < 0.7 for record in run.metrics[:-1])
    assert str(run.finished).startswith("accuracy 0.")


def test_a_finished_run_is_not_run_again_but_can_be_longer(make: Make, tmp_path: Path) -> None:
    train.run(make(), tmp_path / "run")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "run").rglob("*.*")}
    watch = Signal()
    train.run(make(), tmp_path / "run", resume=True, progress=watch)
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "run").rglob("*.*")} == before
    assert watch.ended == ["8 cycles done, some time ago"]
    longer = train.run(make(cycles=12), tmp_path / "run", resume=True)
    assert numbers(longer.folder) == numbers(train.run(make(cycles=12), tmp_path / "twelve").folder)


def test_another_configuration_is_refused(make: Make, tmp_path: Path) -> None:
    train.run(make(), tmp_path / "run")
    with pytest.raises(InputError, match="holds a run already"):
        train.run(make(), tmp_path / "run")
    with pytest.raises(InputError, match=r"another configuration: optimizer.lr was 0.1, is 0.3"):
        train.run(make(lr=0.3), tmp_path / "run", resume=True)


def test_a_folder_with_something_else_in_it_is_refused(make: Make, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(InputError, match=r"not empty \(it has thesis.tex\)"):
        train.run(make(), tmp_path)
    with pytest.raises(InputError, match="is a file"):
        train.run(make(), tmp_path / "thesis.tex")
    with pytest.raises(RunError, match="cannot be made: Not a directory"):
        train.run(make(), tmp_path / "thesis.tex/run")


def test_nothing_is_made_if_the_data_do_not_fit(make: Make, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="batch=61 is more than the 60 samples"):
        train.run(make(batch=61), tmp_path / "run")
    with pytest.raises(InputError):
        train.run(make(data=str(tmp_path / "none.npz")), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_runs_without_a_name_get_one(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    one, two = train.run(make()), train.run(make())
    assert one.folder != two.folder
    assert one.folder.parent == Path("runs")
    assert "tiny-smgopt" in one.folder.name


def test_two_that_begin_in_the_same_second_get_two_folders(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made = [train._new_folder(make()) for _ in range(5)]
    assert len(set(made)) == 5
    assert all(folder.is_dir() for folder in made)


def test_a_folder_of_runs_that_leads_nowhere(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("runs").symlink_to("unmounted")
    with pytest.raises(RunError, match="runs cannot be made"):
        train.run(make())


def test_changed_data_are_noticed(make: Make, tmp_path: Path, samples: Path) -> None:
    mine = tmp_path / "mine.npz"
    mine.write_bytes(samples.read_bytes())
    with pytest.raises(Interrupted):
        train.run(make(data=str(mine)), tmp_path / "run", progress=Signal(2))
    data = dict(np.load(mine))
    data["x"][0, 0] += 1
    np.savez(mine, **data)
    with pytest.raises(RunError, match="the data have changed since"):
        train.run(make(data=str(mine)), tmp_path / "run", resume=True)


def test_one_process_at_a_time(make: Make, tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        train.run(make(), tmp_path / "run", progress=Signal(2))
    with locked(tmp_path / "run"), pytest.raises(RunError, match="is being trained by another process"):
        train.run(make(), tmp_path / "run", resume=True)
    train.run(make(), tmp_path / "run", resume=True)


@pytest.mark.parametrize("optimizer", ["smgopt", "sgd"])
def test_a_loss_that_is_not_finite(make: Make, tmp_path: Path, optimizer: str) -> None:
    with pytest.raises(TrainingError, match=r"cycle \d+ of .* failed: .*loss.* nan"):
        train.run(make(optimizer=optimizer, lr=1e30, cycles=50, levels=1), tmp_path / "run")
    assert Run(tmp_path / "run").finished is None


def test_not_enough_memory_is_said(make: Make, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="not enough memory"):
        train.run(make(depth=2**40), tmp_path / "run")


def test_the_environment_has_an_entry_a_session(make: Make, tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        train.run(make(), tmp_path / "run", progress=Signal(3))
    sessions = train.run(make(), tmp_path / "run", resume=True).environment["sessions"]
    assert [session["from_cycle"] for session in sessions] == [0, 3]
    assert sessions[0]["torch"] == torch.__version__
    assert sessions[0]["threads"] == 1


def test_other_versions_are_said(make: Make, tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        train.run(make(), tmp_path / "run", progress=Signal(3))
    file = tmp_path / "run/environment.json"
    file.write_text(file.read_text().replace(torch.__version__, "1.0"))
    watch = Signal()
    train.run(make(), tmp_path / "run", resume=True, progress=watch)
    assert "torch was 1.0" in watch.said[0]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written(make: Make, tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(RunError, match="Permission denied"):
        train.run(make(), tmp_path / "run")
