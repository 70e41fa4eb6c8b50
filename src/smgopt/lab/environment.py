"""What a run depends on besides its configuration: the machine, the versions, the number of threads."""

from __future__ import annotations

import json
import os
import platform
import sys
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from smgopt.lab.errors import RunError
from smgopt.lab.files import reported, write_atomically

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_PACKAGES = ("smgopt", "torch", "numpy", "numba", "safetensors", "pydantic")


def begin_session(path: Path, seed: int, cycle: int, say: Callable[[str], None]) -> None:
    """Add this process to a run's ``environment.json``.

    A file that is damaged is put aside, since a run does not depend on it.

    Args:
        path: the file, which may not exist yet.
        seed: of the run.
        cycle: the cycle that this session begins with.
        say: called with a sentence if something should be known.

    Raises:
        RunError: the file cannot be written.
    """
    sessions = []
    if path.exists():
        try:
            sessions = read(path)["sessions"]
        except RunError as error:
            aside = path.with_name("environment.json.damaged")
            with reported(f"{path} cannot be put aside"):
                path.replace(aside)
            say(f"{error}; it is {aside.name} now, and a new one is begun")
    now = _session(seed, cycle)
    before = sessions[-1] if sessions else now
    changed = [key for key in ("torch", "threads") if before.get(key) != now[key]]
    if changed:
        said = ", ".join(f"{key} was {before.get(key)}, is {now[key]}" for key in changed)
        say(f"the last bits of the numbers may not be those of a run never stopped: {said}")
    write_atomically(path, json.dumps({"sessions": [*sessions, now]}, indent=1).encode())


def read(path: Path) -> dict[str, Any]:
    """The contents of ``environment.json``.

    Raises:
        RunError: it is damaged, or cannot be read.
    """
    with reported(f"{path} cannot be read"):
        content = path.read_bytes()
    try:
        found = json.loads(content)
        if all(isinstance(session, dict) for session in found["sessions"]):
            return dict(found)
    except (ValueError, TypeError, LookupError, RecursionError):
        pass
    raise RunError(f"{path} is damaged: it is not what smgopt writes")


def _session(seed: int, cycle: int) -> dict[str, Any]:
    """A description of this process."""
    import torch

    return {
        "started": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "from_cycle": cycle,
        "seed": seed,
        "command": sys.argv,
        "host": platform.node(),
        "platform": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        **{name: _version(name) for name in _PACKAGES},
    }


def _version(package: str) -> str | None:
    if package == "smgopt":
        import smgopt

        return smgopt.__version__
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as info:  # noqa: PTH123
            names = [line.partition(":")[2].strip() for line in info if line.startswith("model name")]
    except OSError:
        names = []
    return names[0] if names else platform.processor()
