import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from typer.testing import CliRunner, Result

from smgopt import cli
from smgopt.lab import groups, plots, style, train
from smgopt.lab.errors import InputError, RunError
from smgopt.lab.groups import Group, grouped
from smgopt.lab.runs import Run
from tests.lab.support import Make

SEEDS = (1, 2, 3)


def smg(*arguments: object) -> Result:
    return CliRunner().invoke(cli.app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture
def runs(make: Make, root: Path) -> list[Run]:
    """Three seeds of 1 and of 2 levels, trained once."""
    wanted = [(levels, seed) for levels in (1, 2) for seed in SEEDS]
    return [
        train.run(make(levels=levels, seed=seed, evaluate=3 - levels), root / f"{levels}-{seed}", resume=True)
        for levels, seed in wanted
    ]


def panels(figure: Figure) -> list[Axes]:
    FigureCanvasAgg(figure).draw()  # type: ignore[no-untyped-call]
    return figure.axes


def points(line: Line2D) -> tuple[Any, Any]:
    x, y = np.asarray(line.get_xydata()).T
    return x, y


def legend_of(figure: Figure) -> list[str]:
    return [text.get_text() for legend in figure.legends for text in legend.get_texts()]


def edited(run: Run, to: Path, name: str, change: Any) -> Run:
    """A copy of a run with other records."""
    to.mkdir(exist_ok=True)
    for file in run.folder.glob("*.*"):
        (to / file.name).write_bytes(file.read_bytes())
    lines = (to / name).read_text().splitlines()
    records = [change(json.loads(line)) for line in lines]
    (to / name).write_text("".join(json.dumps(record) + "\n" for record in records))
    return Run(to)


def test_runs_are_grouped_by_all_but_the_seed(runs: list[Run]) -> None:
    found = grouped(runs)
    assert [(group.label, group.runs) for group in found] == [
        ("1 level", tuple(runs[:3])),
        ("2 levels", tuple(runs[3:])),
    ]
    assert [group.label for group in grouped(runs[:3])] == [""]


def test_a_seed_counts_once(runs: list[Run], tmp_path: Path) -> None:
    again = edited(runs[0], tmp_path / "again", "metrics.jsonl", lambda record: record)
    complaints: list[str] = []
    (group,) = grouped([*runs[:3], again], complaints)
    assert group.runs == tuple(runs[:3])
    assert complaints == [f"{again.folder} is left out: {runs[0].folder} has the same configuration and seed"]


def test_labels_say_what_differs(make: Make, tmp_path: Path) -> None:
    changes: list[dict[str, Any]] = [
        {"lr": 0.1},
        {"lr": 0.1, "line_search": False},
        {"lr": 0.2, "smoothing": "table-1"},
        {"optimizer": "sgd", "lr": 0.5, "levels": 1},
        {"optimizer": "sgd", "lr": 0.5, "levels": 1, "momentum": 0.9},
    ]
    made = [train.run(make(cycles=1, **c), tmp_path / f"{i}") for i, c in enumerate(changes)]
    assert [group.label for group in grouped(made)] == [
        "sMG/OPT, lr = 0.1, Table 2, line search",
        "sMG/OPT, lr = 0.1, Table 2, no line search",
        "sMG/OPT, lr = 0.2, Table 1, line search",
        "SGD, momentum = 0",
        "SGD, momentum = 0.9",
    ]


@pytest.mark.parametrize("x", plots.X)
@pytest.mark.parametrize("y", ["test_accuracy", "test_loss"])
def test_curves_are_the_mean_and_the_spread_of_the_records(runs: list[Run], x: str, y: str) -> None:
    axes = style.figure(6).subplots()
    plots.curves(axes, grouped(runs), x, y)
    lines, bands = axes.get_lines(), axes.collections
    assert len(lines) == len(bands) == 2
    for line, band, members in zip(lines, bands, (runs[:3], runs[3:]), strict=True):
        key = plots.X[x][0]
        values = np.array([[record[y][-1] for record in run.metrics] for run in members])
        over = np.array([[record[key] for record in run.metrics] for run in members])
        np.testing.assert_allclose(points(line)[0], over.mean(0))
        np.testing.assert_allclose(points(line)[1], values.mean(0))
        assert isinstance(band, PolyCollection)
        corners = band.get_paths()[0].vertices
        for edge in (values.mean(0) - values.std(0, ddof=1), values.mean(0) + values.std(0, ddof=1)):
            for point in zip(over.mean(0), edge, strict=True):
                assert np.isclose(corners, point).all(1).any()


def test_the_training_loss_is_drawn_for_every_cycle(runs: list[Run]) -> None:
    for x in plots.X:
        axes = style.figure(6).subplots()
        plots.curves(axes, grouped(runs[:3]), x, "train_loss")
        (line,) = axes.get_lines()
        wanted = np.mean([[record["train_loss"] for record in run.cycles] for run in runs[:3]], 0)
        np.testing.assert_allclose(points(line)[1], wanted)
        assert len(points(line)[0]) == 8
        if x == "samples":  # recorded at every second cycle only
            np.testing.assert_allclose(points(line)[0], 20 * np.arange(1, 9))


def test_corrections_by_level(make: Make, tmp_path: Path) -> None:
    run = train.run(make(depth=8, levels=3), tmp_path / "three")
    small = train.run(make(depth=4, levels=2), tmp_path / "two")
    both = grouped([run, small])
    assert [group.corrected for group in both] == [{8: 2, 4: 1}, {4: 1}]
    names = dict(plots.pictures(both, ["alpha", "delta"], []))
    for key, figure in names.items():
        top, bottom = panels(figure)
        assert (top.get_title("right"), bottom.get_title("right")) == ("8 blocks", "4 blocks")
        curves = [line for line in bottom.get_lines() if len(points(line)[0]) == 8]
        assert [line.get_label() for line in curves] == ["8 blocks, 3 levels", "4 blocks, 2 levels"]
        for line, one in zip(curves, (run, small), strict=True):
            wanted = [
                record["alpha"][1] if key == "alpha" else record["loss_after"][1] - record["loss_before"][1]
                for record in one.cycles
            ]
            np.testing.assert_allclose(points(line)[1], wanted)
    assert legend_of(figure) == ["8 blocks, 3 levels", "4 blocks, 2 levels"]


def test_only_what_is_drawn_is_in_the_legend(runs: list[Run]) -> None:
    one_level, two_levels = grouped(runs)
    drawn = dict(plots.pictures([one_level, two_levels], list(plots.QUANTITIES), ["cycle"]))
    assert legend_of(drawn["accuracy-cycle"]) == legend_of(drawn["loss-cycle"]) == ["1 level", "2 levels"]
    assert legend_of(drawn["alpha"]) == []  # there is but one
    line = next(line for line in panels(drawn["alpha"])[0].get_lines() if line.get_label() == "2 levels")
    assert line.get_color() == style.look(1)["color"]  # the same as in all other pictures


@pytest.mark.parametrize("count", [2, 6, 12])
def test_nothing_overlaps(runs: list[Run], count: int) -> None:
    many = [Group(f"{'a long label, ' * (i % 7)}number {i}", (runs[3 + i % 3],)) for i in range(count)]
    with style.paper():
        for name, figure in plots.pictures(many, list(plots.QUANTITIES), ["work"]):
            axes = panels(figure)
            boxes = [a.get_tightbbox() for a in axes]
            boxes += [legend.get_window_extent() for legend in figure.legends]
            for i, box in enumerate(boxes):
                assert box is not None
                assert box.x0 >= -1, name
                assert box.y0 >= -1, name
                assert box.x1 <= figure.bbox.x1 + 1, name
                assert box.y1 <= figure.bbox.y1 + 1, name
                assert not any(other is None or box.overlaps(other) for other in boxes[i + 1 :]), name
            for a in axes:
                for axis in (a.xaxis, a.yaxis):
                    labels = [label.get_window_extent() for label in axis.get_ticklabels()]
                    shown = [box for box in labels if box.width > 0]
                    assert not any(p.overlaps(q) for p, q in pairwise(shown)), name


def test_no_two_curves_look_alike() -> None:
    looks = [style.look(number) for number in range(28)]
    assert len({(look["color"], str(look["linestyle"])) for look in looks}) == 28


def test_a_style_ends_with_its_block() -> None:
    import matplotlib

    before = dict(matplotlib.rcParams)
    with style.paper():
        assert matplotlib.rcParams["font.size"] == 8
    assert dict(matplotlib.rcParams) == before


def test_the_same_picture_is_the_same_file(runs: list[Run], tmp_path: Path) -> None:
    for folder in ("a", "b"):
        plots.plot(grouped(runs), tmp_path / folder, ["accuracy"], ["cycle"], style.FORMATS)
    files = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert files == ["accuracy-cycle.pdf", "accuracy-cycle.png", "accuracy-cycle.svg"]
    for file in files:
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


def test_text_in_vector_pictures_is_text(runs: list[Run], tmp_path: Path) -> None:
    plots.plot(grouped(runs), tmp_path, ["accuracy"], ["work"], ["svg"])
    text = (tmp_path / "accuracy-work.svg").read_text()
    for words in ("1 level", "2 levels", "test accuracy (%)", "work (gradients of one block)"):
        assert f">{words}<" in text


def test_runs_of_different_lengths_are_compared_where_all_are(make: Make, tmp_path: Path) -> None:
    long = train.run(make(seed=1), tmp_path / "long")
    short = train.run(make(seed=2, cycles=5), tmp_path / "short")
    (group,) = grouped([long, short])
    assert group.evaluations("cycle", "test_loss").x.tolist() == [0, 2, 4]
    assert group.training("cycle").x.tolist() == [1, 2, 3, 4, 5]
    assert group.cut == [f"{long.folder} is shown up to cycle 5 of 8, where {short.folder} is"]


def test_what_diverges_does_not_hide_the_rest(runs: list[Run], tmp_path: Path) -> None:
    def diverge(record: dict[str, Any]) -> dict[str, Any]:
        return {**record, "loss_after": [None, 10.0 ** record["cycle"]], "loss_before": [None, 0.0]}

    def fail(record: dict[str, Any]) -> dict[str, Any]:
        return {**record, "test_loss": [None, 1e300 if record["cycle"] < 5 else None]}

    far = edited(runs[3], tmp_path / "far", "cycles.jsonl", diverge)
    gone = edited(runs[3], tmp_path / "gone", "metrics.jsonl", fail)
    shown = [Group("far", (far,)), Group("near", (runs[4],)), Group("gone", (gone, gone))]
    with style.paper():
        drawn = dict(plots.pictures(shown, ["loss", "delta"], ["cycle"]))
        (axes,) = panels(drawn["delta"])
        training, test = panels(drawn["loss-cycle"])
    assert axes.get_yscale() == "symlog"
    assert training.get_yscale() == "linear"
    assert test.get_yscale() == "log"


def test_the_command(runs: list[Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other").mkdir()
    folders = [run.folder for run in runs]
    result = smg("plot", *folders, folders[0], "other", "--x", "work", "--format", "png, svg")
    assert result.exit_code == 0, result.output
    *said, accuracy, loss, alpha, delta = result.output.splitlines()
    assert said == [
        "other is no run: there is no other/config.toml",
        f"1 level: {', '.join(map(str, folders[:3]))}",
        f"2 levels: {', '.join(map(str, folders[3:]))}",
    ]
    assert accuracy == "figures/accuracy-work.png figures/accuracy-work.svg"
    assert loss.startswith("figures/loss-work.png")
    for line in (accuracy, loss, alpha, delta):
        assert all(Path(file).stat().st_size > 1000 for file in line.split())
    assert len(list(Path("figures").iterdir())) == 8
    # One run keeps its pictures; 1 level has no corrections to show.
    result = smg("plot", folders[0])
    assert result.exit_code == 0, result.output
    assert len(list((folders[0] / "figures").iterdir())) == 2 * 4 * 2
    result = smg("plot", folders[3], "--quantity", "delta", "--out", "deep/er", "--format", "pdf")
    assert result.output == "deep/er/delta.pdf\n"


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["nowhere"], 2, "nowhere is no run"),
        (["."], 2, ". is no run"),
        ([".", "other"], 2, "other is no run"),
        (["RUN", "nowhere"], 2, "nowhere is no run"),
        (["RUN", "--x", "time"], 2, "--x time: there is cycle, work, samples, seconds, and all"),
        (["RUN", "--quantity", "beauty"], 2, "there is accuracy, loss, alpha, delta, and all"),
        (["RUN", "--format", "png,jpg"], 2, "--format jpg: there is png, pdf, svg, and all"),
        (["RUN", "--quantity", "alpha"], 2, "it takes sMG/OPT with two levels or more"),
        (["RUN", "--out", "file"], 1, "file cannot be made: File exists"),
        ([], 2, "Missing argument"),
    ],
)
def test_what_is_wrong_is_a_sentence(
    runs: list[Run],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    code: int,
    sentence: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    Path("other").mkdir()
    result = smg("plot", *(str(runs[0].folder) if a == "RUN" else a for a in arguments))
    assert result.exit_code == code, result.output
    assert sentence in result.output


def test_a_run_without_records_is_named(runs: list[Run], tmp_path: Path) -> None:
    for name, what in (("metrics.jsonl", "evaluations"), ("cycles.jsonl", "cycles")):
        run = edited(runs[0], tmp_path / what, name, lambda record: record)
        (run.folder / name).unlink()
        with pytest.raises(RunError, match=f"{run.folder} has no {what} yet"):
            plots.plot([Group("", (run,))], tmp_path, ["loss"], ["cycle"], ["png"])


def test_damaged_records_are_a_sentence(runs: list[Run], tmp_path: Path) -> None:
    random, said = np.random.default_rng(0), []
    whole = edited(runs[3], tmp_path / "damaged", "metrics.jsonl", lambda record: record)
    with style.paper():
        for name in ("metrics.jsonl", "cycles.jsonl"):
            content = (whole.folder / name).read_bytes()
            for _ in range(20):
                damaged = bytearray(content)
                for place in random.integers(len(content), size=3):
                    damaged[place] ^= 1 << random.integers(8)
                (whole.folder / name).write_bytes(damaged)
                shown = grouped([whole, runs[4]])
                try:
                    for _, figure in plots.pictures(shown, ["loss", "delta", "alpha"], ["samples"]):
                        panels(figure)
                except (RunError, InputError) as error:
                    said.append(str(error))
            (whole.folder / name).write_bytes(content)
    assert len(said) > 10
    assert not any("\n" in sentence for sentence in said)


def test_words() -> None:
    assert groups._words("data.name", "/somewhere/of/mine.npz") == "mine"
    assert groups._words("data.name", "fashion-mnist") == "Fashion-MNIST"
    assert groups._words("network.depth", 1) == "1 block"
    assert groups._words("optimizer.initial_step", 3.0) == "ᾱ = 3"
