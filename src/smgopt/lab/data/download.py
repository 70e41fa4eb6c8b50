"""Fetches public files: checked against pinned SHA-256, and under their name only when complete."""

from __future__ import annotations

import logging
import shutil
import tarfile
import tempfile
import zlib
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pooch  # type: ignore[import-untyped]
import requests
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from smgopt.lab.data.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

CIFAR_ARCHIVE = "cifar-10-binary.tar.gz"

# Where the files of a data set are, in the order in which they are tried.
MIRRORS: dict[str, tuple[str, ...]] = {
    "mnist": (
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
    ),
    "fashion-mnist": (
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
    ),
    "cifar10": ("https://www.cs.toronto.edu/~kriz/",),
}

# As tensorflow/datasets publishes them (tensorflow_datasets/url_checksums).
SHA256: dict[str, dict[str, str]] = {
    "mnist": {
        "train-images-idx3-ubyte.gz": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        "train-labels-idx1-ubyte.gz": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
        "t10k-images-idx3-ubyte.gz": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        "t10k-labels-idx1-ubyte.gz": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
    },
    "fashion-mnist": {
        "train-images-idx3-ubyte.gz": "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
        "train-labels-idx1-ubyte.gz": "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
        "t10k-images-idx3-ubyte.gz": "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
        "t10k-labels-idx1-ubyte.gz": "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
    },
    "cifar10": {CIFAR_ARCHIVE: "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"},
}

TIMEOUT = 30.0  # seconds without a byte


def fetch(name: str, folder: Path, files: Collection[str]) -> None:
    """Downloads files of the data set ``name`` into a folder, from the first mirror that has them.

    pooch writes under a temporary name and renames after the comparison of the SHA-256, so that an
    interrupted download leaves no file that looks finished.

    Raises:
        DataError: no mirror gave the right file, or the folder cannot be written.
    """
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with _pooch_quiet(), Progress(*columns, console=Console(stderr=True)) as progress:
        for file in files:
            _fetch_one(name, folder, file, _Bar(progress, file))


def _fetch_one(name: str, folder: Path, file: str, bar: _Bar) -> None:
    failures = []
    for mirror in MIRRORS[name]:
        # "identity": a server that offered the .gz as compressed transport would have it unpacked on the way.
        downloader = pooch.HTTPDownloader(
            progressbar=bar, chunk_size=2**16, timeout=TIMEOUT, headers={"Accept-Encoding": "identity"}
        )
        try:
            pooch.retrieve(mirror + file, f"sha256:{SHA256[name][file]}", file, folder, downloader=downloader)
            # pooch's temporary file is for the user alone; the finished one is for whom the folder is.
            (folder / file).chmod(folder.stat().st_mode & 0o666)
        except requests.RequestException as error:
            failures.append(f"{mirror} {_reason(error)}")
        except OSError as error:
            raise DataError(f"{folder} cannot be written: {error.strerror or error}") from error
        except ValueError:
            failures.append(f"{mirror} sent something else, the SHA-256 differs")
        else:
            return
    raise DataError(
        f"{file} could not be downloaded ({'; '.join(failures)}): "
        f"check the connection and try again, or put the file into {folder} by hand"
    )


def _reason(error: requests.RequestException) -> str:
    """What went wrong with a mirror, in a few words."""
    if isinstance(error, requests.HTTPError) and error.response is not None:
        return f"answered {error.response.status_code}"
    if isinstance(error, requests.Timeout):
        return f"was silent for {TIMEOUT:g} seconds"
    if isinstance(error, requests.exceptions.ChunkedEncodingError):
        return "broke off"
    return "could not be reached"


class _Bar:
    """What pooch asks of a progress bar, drawn by rich."""

    def __init__(self, progress: Progress, file: str) -> None:
        self._progress, self._task = progress, progress.add_task(file, total=None)

    @property
    def total(self) -> float | None:
        return self._progress.tasks[self._task].total

    @total.setter
    def total(self, size: int) -> None:
        # The next mirror begins here too: the bar goes back to its start. Zero means an unknown size.
        self._progress.update(self._task, total=size or None, completed=0)

    def update(self, count: int) -> None:
        self._progress.advance(self._task, count)

    def reset(self) -> None:
        self._progress.update(self._task, completed=0)

    def close(self) -> None:
        """Nothing: all bars end together."""


@contextmanager
def _pooch_quiet() -> Iterator[None]:
    """The bars say what pooch would log."""
    logger = pooch.get_logger()
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)


def unpack(archive: Path, folder: Path, files: Collection[str], size: int) -> None:
    """Takes the named files, and nothing else, out of a ``.tar.gz`` whose members lie in ``folder.name``.

    No path of the archive is ever used for writing: a member is only compared with the names that are
    wanted, so that nothing can land elsewhere. The files appear under their names when all of them are
    complete; one that is there already is left alone.

    Args:
        archive: the ``.tar.gz``.
        folder: where the files go.
        files: their names.
        size: what each of them must have, in bytes.

    Raises:
        DataError: the archive is damaged or lacks one of the files, or the folder cannot be written.
    """
    wanted = {f"{folder.name}/{file}": file for file in files}
    try:
        with tempfile.TemporaryDirectory(prefix=".unpacking-", dir=folder.parent) as temporary:
            with tarfile.open(archive, "r:gz") as tar:
                for member in tar:
                    # Regular files only: a link's content would be read from wherever it points.
                    content = tar.extractfile(member) if member.isreg() and member.size == size else None
                    if content is not None and member.name in wanted:
                        with (Path(temporary) / wanted.pop(member.name)).open("wb") as target:
                            shutil.copyfileobj(content, target)
            if wanted:
                raise DataError(f"{archive} lacks {', '.join(wanted.values())}: delete it and try again")
            folder.mkdir(exist_ok=True)
            for file in files:
                if not (folder / file).exists():
                    (Path(temporary) / file).rename(folder / file)
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise DataError(f"{archive} is damaged ({error}): delete it and try again") from error
    except OSError as error:
        raise DataError(f"{archive} cannot be unpacked: {error.strerror or error}") from error
