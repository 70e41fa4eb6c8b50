"""The command ``smgopt``: what it is told goes to the laboratory, what comes back is printed."""

import os
from pathlib import Path
from typing import Annotated

import typer

# Threads that wait for others should sleep: spinning, they keep the core from whoever is waited for.
# It is read when torch is loaded, so it is set before.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

app = typer.Typer(no_args_is_help=True, help="Train very deep residual networks with stochastic MG/OPT.")


@app.callback()
def _commands() -> None:
    pass


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="The folder of the picture.")] = Path("runs/demo"),
) -> None:
    """Train on MNIST-1D with sMG/OPT and with SGD side by side: under a minute."""
    from smgopt.lab import demo

    demo.main(out)


def main() -> None:
    """The entry point of the command line."""
    app()
