"""The command ``smgopt``. It reads what was typed, calls ``smgopt.lab``, and prints what comes back."""

from __future__ import annotations

import errno
import functools
import os
from collections.abc import Callable  # noqa: TC003
from pathlib import Path
from typing import Annotated, ParamSpec, TypeVar

import typer

from smgopt.lab.errors import Interrupted, UserError

# Before torch is loaded, which reads it once: a thread that waits for others by spinning keeps a core from
# whatever else runs on the machine. GNU's OpenMP may turn 5,000 times, some 50 µs, before it sleeps: as long
# as it takes to wake up, and long enough between a cycle's short operations. Whoever has set either decides.
WAITING = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "5000"}
if not WAITING.keys() & os.environ.keys():
    os.environ.update(WAITING)

P = ParamSpec("P")
T = TypeVar("T")

app = typer.Typer(
    name="smgopt",
    help="Train very deep residual networks through a hierarchy of shallower ones.\n\n"
    "Begin with: smgopt train --set data=mnist1d depth=64 cycles=100",
    no_args_is_help=True,
    rich_markup_mode="rich",
    # A traceback is for a mistake of ours; the ordinary one is the one to report.
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Json = Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write the table as JSON, too.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]


def command(function: Callable[P, T]) -> Callable[P, T]:
    """A command that says in a sentence what the user can do something about, and ends with its exit code."""

    @functools.wraps(function)
    def friendly(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except (UserError, Interrupted) as error:
            typer.echo(f"smgopt: {error}", err=True)
            raise typer.Exit(error.exit_code) from error
        except OSError as error:
            if error.errno == errno.EPIPE:  # whoever read the output has gone
                raise
            where = f"{error.filename}: " if error.filename else ""
            typer.echo(f"smgopt: {where}{error.strerror or error}", err=True)
            raise typer.Exit(1) from error
        except KeyboardInterrupt as error:
            typer.echo("smgopt: stopped at once; nothing was saved since the last checkpoint", err=True)
            raise typer.Exit(130) from error

    return friendly


def _version(wanted: bool) -> None:
    if wanted:
        import smgopt

        typer.echo(f"smgopt {smgopt.__version__}")
        raise typer.Exit


@app.callback()
def _smgopt(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command()
@command
def demo(
    out: Annotated[Path, typer.Option(metavar="DIR", help="The folder of the picture.")] = Path("runs/demo"),
    json: Json = None,
) -> None:
    """Train on MNIST-1D with sMG/OPT and with SGD side by side: under a minute."""
    from smgopt.lab import demo

    demo.main(out, json)


@app.command()
@command
def train(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[CONFIG.toml] [KEY=VALUE]...", help="A configuration file, and settings on top of it."
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change settings; several may follow one --set."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The run's folder; without it, a new one in runs.")
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Go on with the run in this folder; limits may be --set anew."),
    ] = None,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Write event files for TensorBoard.")
    ] = False,
    json: Json = None,
    quiet: Quiet = False,
) -> None:
    """Train a network, and record it in a folder.

    Ctrl-C saves the run and stops it; `smgopt train --resume DIR` goes on as if it had never been stopped.

    Examples:
        smgopt train --set data=mnist depth=2048 levels=8 smoothing=table-1 cycles=300

        smgopt train --set data=mnist depth=2048 optimizer=adam lr=0.001 --out runs/adam

        smgopt train --resume runs/adam --set cycles=600

    `smgopt settings` lists all settings.
    """
    from smgopt.lab import commands

    commands.train(arguments or [], settings or [], out, resume, tensorboard, json, quiet)


@app.command()
@command
def evaluate(
    run: Annotated[Path, typer.Argument(metavar="DIR", help="The run's folder.")],
    json: Json = None,
) -> None:
    """Print what each level of a run is worth: its accuracy and loss, and the time it takes."""
    from smgopt.lab import commands

    commands.evaluate(run, json)


@app.command()
@command
def export(
    run: Annotated[Path, typer.Argument(metavar="DIR", help="The run's folder.")],
    to: Annotated[Path, typer.Option(metavar="FILE", help="A name in .safetensors, .onnx or .pt2.")],
    level: Annotated[int, typer.Option(help="0 is the coarsest, -1 the finest.")] = -1,
    form: Annotated[
        str | None,
        typer.Option("--format", metavar="FORMAT", help="What to write if the name does not say it."),
    ] = None,
) -> None:
    """Write the network of one level to a file that needs no run, and check the file.

    Examples:
        smgopt export runs/first --to net.onnx

        smgopt export runs/first --level 0 --to smallest.safetensors
    """
    from smgopt.lab import commands

    commands.export(run, level, to, form)


@app.command()
@command
def plot(
    runs: Annotated[list[Path], typer.Argument(metavar="DIR", help="The folders of the runs.")],
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="The folder of the pictures; else figures, a single run's in its own."
        ),
    ] = None,
    x: Annotated[str, typer.Option(metavar="X", help="Over cycle, work, samples, seconds, or all.")] = "all",
    quantity: Annotated[
        str, typer.Option(metavar="QUANTITY", help="Of accuracy, loss, alpha, delta, or all.")
    ] = "all",
    form: Annotated[
        str, typer.Option("--format", metavar="FORMATS", help="Some of png, pdf, svg, or all.")
    ] = "png,pdf",
) -> None:
    """Draw accuracy, loss, and what the corrections did, of one run or of several to compare.

    Runs that differ only in the seed become one curve: their mean, and a band of ±1 standard deviation.

    Examples:
        smgopt plot runs/first

        smgopt plot runs/* --quantity accuracy --x work --format pdf --out paper/figures
    """
    from smgopt.lab import commands

    commands.plot(runs, out, x, quantity, form)


@app.command()
@command
def bench(
    rounds: Annotated[int, typer.Option(min=1, help="How often what is compared alternates.")] = 15,
    json: Json = None,
) -> None:
    """Measure how fast this machine runs it, as ratios: two or three minutes, with nothing else running."""
    from smgopt.lab import commands

    commands.bench(rounds, json)


@app.command()
@command
def settings(json: Json = None) -> None:
    """List all settings with their defaults."""
    from smgopt.lab import commands

    commands.settings(json)


@app.command()
@command
def reproduce(
    items: Annotated[
        list[str] | None,
        typer.Argument(metavar="[ITEM]...", help="What to reproduce; without any, everything. See --list."),
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(metavar="N", help="How many seeds; 5, and 1 with --quick.")
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(metavar="J", help="Runs at a time; as many as there are cores.")
    ] = None,
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="The folder of the runs, the report and its figures.")
    ] = Path("runs/reproduction"),
    quick: Annotated[
        bool, typer.Option("--quick", help="One seed, at most 256 blocks, 100 cycles: three minutes.")
    ] = False,
    listed: Annotated[
        bool, typer.Option("--list", help="Print the items and what they cost, and do nothing.")
    ] = False,
    publish: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Write docs/reproduction.md and results/reproduction in this repository, too.",
        ),
    ] = None,
    json: Json = None,
) -> None:
    """Repeat the paper's experiments, and print every number of the paper beside ours.

    Runs that are there are not run again: after Ctrl-C the same command goes on.

    Examples:
        smgopt reproduce --list

        smgopt reproduce cycles pruning --seeds 2

        smgopt reproduce --quick --out runs/quick
    """
    from smgopt.lab.reproduce import command

    command.reproduce(items or [], seeds, jobs, out, quick, listed, publish, json)


@app.command()
@command
def compare(
    files: Annotated[list[Path], typer.Argument(metavar="CONTEST.toml...", help="Who is compared on what.")],
    seeds: Annotated[int, typer.Option(metavar="N", help="How many runs with the chosen steps.")] = 3,
    jobs: Annotated[
        int | None, typer.Option(metavar="J", help="Runs at a time; as many as there are cores.")
    ] = None,
    out: Annotated[Path, typer.Option(metavar="DIR", help="The folder of the runs and the figures.")] = Path(
        "runs/compare"
    ),
    publish: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Write docs/comparison.md and results/comparison in this repository, too."
        ),
    ] = None,
    json: Json = None,
) -> None:
    """Compare optimizers on a network and data of yours, each with a tuned step and for the same work.

    A contest is a file: see benchmarks/ for some. Runs that are there are not run again: after Ctrl-C the
    same command goes on.

    Examples:
        smgopt compare benchmarks/mnist1d.toml

        smgopt compare benchmarks/*.toml --seeds 5
    """
    from smgopt.lab.compare import command

    command.compare(files, seeds, jobs, out, publish, json)


def main() -> None:
    """Run the command line."""
    app()


if __name__ == "__main__":
    main()
