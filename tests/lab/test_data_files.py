"""The files of MNIST and CIFAR-10, sound and damaged, and their download from a server on this machine."""

from __future__ import annotations

import gzip
import hashlib
import http.server
import io
import os
import pickle
import random
import stat
import struct
import tarfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from smgopt.lab import data
from smgopt.lab.data import cifar, download, inert

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

IDX = [f"{part}-{what}-ubyte" for part in ("train", "t10k") for what in ("images-idx3", "labels-idx1")]
BATCHES = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]
RECORDS = 4


def idx(array: np.ndarray[Any, np.dtype[np.uint8]]) -> bytes:
    return bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def idx_files(seed: int = 0) -> dict[str, bytes]:
    """Seven images to train and three to test, by file name."""
    rng = np.random.default_rng(seed)
    sizes = {"train": 7, "t10k": 3}
    return {
        stem: idx(
            rng.integers(0, 256, (sizes[stem[:5].rstrip("-")], 28, 28), np.uint8)
            if "images" in stem
            else rng.integers(0, 10, sizes[stem[:5].rstrip("-")], np.uint8)
        )
        for stem in IDX
    }


def write_idx(root: Path, files: dict[str, bytes], zipped: bool = True) -> None:
    folder = root / "MNIST" / "raw"
    folder.mkdir(parents=True, exist_ok=True)
    for stem, content in files.items():
        path = folder / (f"{stem}.gz" if zipped else stem)
        path.write_bytes(gzip.compress(content, mtime=0) if zipped else content)


class Python2(pickle._Pickler):
    """Writes as Python 2 did: bytes as its strings."""

    dispatch = pickle._Pickler.dispatch.copy()

    def save_bytes(self, value: bytes) -> None:
        self.write(pickle.BINSTRING + struct.pack("<i", len(value)) + value)  # type: ignore[attr-defined]
        self.memoize(value)  # type: ignore[attr-defined]

    dispatch[bytes] = save_bytes  # type: ignore[assignment]


def python2(value: object) -> bytes:
    stream = io.BytesIO()
    Python2(stream, protocol=2).dump(value)
    return stream.getvalue().replace(b"cnumpy._core.", b"cnumpy.core.")


def cifar_records(seed: int = 0) -> dict[str, tuple[Any, Any]]:
    rng = np.random.default_rng(seed)
    return {
        name: (rng.integers(0, 256, (RECORDS, 3072), np.uint8), rng.integers(0, 10, RECORDS, np.uint8))
        for name in BATCHES
    }


def cifar_binary(seed: int = 0) -> dict[str, bytes]:
    return {
        f"{name}.bin": np.concatenate([labels[:, None], pixels], axis=1).tobytes()
        for name, (pixels, labels) in cifar_records(seed).items()
    }


def cifar_python(write: Callable[[object], bytes] = python2) -> dict[str, bytes]:
    return {
        name: write(
            {b"batch_label": name.encode(), b"labels": labels.tolist(), b"data": pixels, b"filenames": [b"a"]}
        )
        for name, (pixels, labels) in cifar_records().items()
    }


def write(folder: Path, files: dict[str, bytes]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)


@pytest.fixture
def _few_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cifar, "RECORDS", RECORDS)


def damage(sound: bytes, count: int, seed: int = 0) -> Iterator[bytes]:
    """Copies cut off and copies with a flipped bit, more of them near the start, where headers are."""
    chance = random.Random(seed)
    for i in range(count):
        near = min(len(sound), 64) if i % 2 else len(sound)
        if i % 3 == 0:
            yield sound[: chance.randrange(near)]
        else:
            flipped = bytearray(sound)
            flipped[chance.randrange(near)] ^= 1 << chance.randrange(8)
            yield bytes(flipped)


def refusal(load: Callable[[], object]) -> str:
    """Why the file is refused, or nothing if it is not."""
    try:
        load()
    except data.DataError as error:
        return str(error)
    return ""


def refusals(name: str, root: Path, path: Path) -> int:
    """How many damaged copies of the file are refused, each in one line that names it."""
    refused = 0
    for content in damage(path.read_bytes(), 300):
        path.write_bytes(content)
        message = refusal(lambda: data.load(name, root))
        if message:
            assert path.name in message
            assert "\n" not in message
            refused += 1
        else:
            ds = data.load(name, root)
            assert ds.x.isfinite().all()
            assert ds.y.max() < 10
    return refused


class TestIdx:
    @pytest.mark.parametrize("zipped", [True, False])
    def test_values_are_scaled_and_labelled(self, zipped: bool, tmp_path: Path) -> None:
        files = idx_files()
        write_idx(tmp_path, files, zipped)
        ds = data.load("mnist", tmp_path)
        assert (ds.name, ds.classes, ds.shape, len(ds.x), len(ds.x_test)) == ("mnist", 10, (1, 28, 28), 7, 3)
        pixels = np.frombuffer(files[IDX[0]], np.uint8, offset=16).reshape(7, 1, 28, 28)
        torch.testing.assert_close(ds.x, torch.tensor((pixels / 255 - 0.1307) / 0.3081, dtype=torch.float32))
        assert ds.y.tolist() == list(files[IDX[1]][8:])

    def test_the_gzipped_file_is_preferred_for_its_checksum(self, tmp_path: Path) -> None:
        write_idx(tmp_path, idx_files(1), zipped=False)
        unpacked = data.load("mnist", tmp_path)
        write_idx(tmp_path, idx_files(0), zipped=True)
        assert not torch.equal(data.load("mnist", tmp_path).x, unpacked.x)

    @pytest.mark.parametrize("zipped", [True, False])
    @pytest.mark.parametrize("stem", IDX[:2])
    def test_damage_anywhere_gives_a_data_set_or_one_clear_error(
        self, stem: str, zipped: bool, tmp_path: Path
    ) -> None:
        write_idx(tmp_path, idx_files(), zipped)
        path = tmp_path / "MNIST" / "raw" / (f"{stem}.gz" if zipped else stem)
        assert refusals("mnist", tmp_path, path) > 100

    @pytest.mark.parametrize(
        ("stem", "content", "says"),
        [
            (IDX[0], idx(np.zeros((7, 27, 28), np.uint8)), r"entries have shape \(27, 28\)"),
            (IDX[0], idx(np.zeros((0, 28, 28), np.uint8)), "announces 0 entries"),
            (
                IDX[0],
                bytes((0, 0, 8, 3)) + struct.pack(">3I", 2**32 - 1, 28, 28),
                "announces 4294967295 entries",
            ),
            (IDX[0], idx(np.zeros((9, 28, 28), np.uint8)), "7 labels for the 9 images"),
            (IDX[0], idx(np.zeros((7, 28, 28), np.uint8))[:-1], "announces 5488 bytes, it has only 5487"),
            (IDX[0], idx(np.zeros((7, 28, 28), np.uint8)) + b"\0", "it has more"),
            (IDX[1], idx(np.full(7, 10, np.uint8)), "the label 10, there are 10 classes"),
            (IDX[1], b"", "no IDX header"),
        ],
    )
    def test_what_is_wrong_is_said(self, stem: str, content: bytes, says: str, tmp_path: Path) -> None:
        write_idx(tmp_path, idx_files() | {stem: content})
        with pytest.raises(data.DataError, match=f"is damaged .*{says}.*delete it and load again"):
            data.load("mnist", tmp_path)

    def test_a_folder_in_the_place_of_a_file_is_refused(self, tmp_path: Path) -> None:
        write_idx(tmp_path, idx_files())
        path = tmp_path / "MNIST" / "raw" / f"{IDX[0]}.gz"
        path.unlink()
        path.mkdir()
        with pytest.raises(data.DataError, match="cannot be read: Is a directory"):
            data.load("mnist", tmp_path)


@pytest.mark.usefixtures("_few_records")
class TestCifar:
    def test_both_versions_are_the_same_data(self, tmp_path: Path) -> None:
        write(tmp_path / "binary" / "cifar-10-batches-bin", cifar_binary())
        write(tmp_path / "python" / "cifar-10-batches-py", cifar_python())
        write(
            tmp_path / "repacked" / "cifar-10-batches-py", cifar_python(lambda value: pickle.dumps(value, 3))
        )
        binary = data.load("cifar10", tmp_path / "binary")
        assert (binary.shape, binary.classes, len(binary.x), len(binary.x_test)) == ((3, 32, 32), 10, 20, 4)
        pixels, labels = cifar_records()["data_batch_2"]
        mean, std = np.array([0.4914, 0.4822, 0.4465]), np.array([0.2470, 0.2435, 0.2616])
        scaled = (pixels.reshape(-1, 3, 1024) / 255 - mean[:, None]) / std[:, None]
        torch.testing.assert_close(binary.x[4:8].flatten(2), torch.tensor(scaled, dtype=torch.float32))
        assert binary.y[4:8].tolist() == labels.tolist()
        for version in ("python", "repacked"):
            other = data.load("cifar10", tmp_path / version)
            assert torch.equal(other.x, binary.x)
            assert torch.equal(other.x_test, binary.x_test)
            assert torch.equal(other.y, binary.y)

    @pytest.mark.parametrize(
        ("folder", "name"),
        [("cifar-10-batches-bin", "test_batch.bin"), ("cifar-10-batches-py", "test_batch")],
    )
    def test_damage_anywhere_gives_a_data_set_or_one_clear_error(
        self, folder: str, name: str, tmp_path: Path
    ) -> None:
        write(tmp_path / folder, cifar_binary() if "bin" in folder else cifar_python())
        path = tmp_path / folder / name
        assert refusals("cifar10", tmp_path, path) > 100

    @pytest.mark.parametrize(
        ("content", "says"),
        [
            ([1, 2], "lacks an array of images and a list of labels"),
            ({b"labels": [0] * RECORDS}, "lacks an array of images"),
            ({b"data": [0], b"labels": [0] * RECORDS}, "no array of bytes where one belongs"),
            ({b"data": np.zeros((RECORDS, 8)), b"labels": [0]}, "no array of bytes where one belongs"),
            (
                {b"data": np.zeros((RECORDS, 3), np.uint8), b"labels": [0]},
                r"shape \(4, 3\) instead of \(4, 3072\)",
            ),
            ({b"data": np.zeros((RECORDS, 3072), np.uint8), b"labels": [0, 1, 2, 300]}, "4 small numbers"),
            ({b"data": np.zeros((RECORDS, 3072), np.uint8), b"labels": [0, 1, 2]}, "4 small numbers"),
            ({b"data": np.zeros((RECORDS, 3072), np.uint8), b"labels": [0, 1, 2, 77]}, "label 77"),
        ],
    )
    def test_a_pickle_that_is_no_batch_is_refused(self, content: object, says: str, tmp_path: Path) -> None:
        write(tmp_path / "cifar-10-batches-py", cifar_python() | {"data_batch_3": python2(content)})
        with pytest.raises(data.DataError, match=f"data_batch_3 is damaged .*{says}"):
            data.load("cifar10", tmp_path)

    @pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
    def test_a_pickle_that_runs_something_is_refused_and_does_not(
        self, protocol: int, tmp_path: Path
    ) -> None:
        sprung = tmp_path / "sprung"

        class Trap:
            def __reduce__(self) -> tuple[Any, ...]:
                return os.mkdir, (str(sprung),)

        sound = {b"data": np.zeros((RECORDS, 3072), np.uint8), b"labels": [0] * RECORDS}
        for content in (Trap(), sound | {b"more": Trap()}, sound | {b"data": np.array([Trap()], object)}):
            evil = pickle.dumps(content, protocol)
            write(tmp_path / "cifar-10-batches-py", cifar_python() | {"data_batch_3": evil})
            with pytest.raises(data.DataError, match="data_batch_3 is damaged"):
                data.load("cifar10", tmp_path)
            assert not sprung.exists()


class TestInert:
    @pytest.mark.parametrize(
        "program",
        [
            b"\x80\x02cos\nsystem\n(U\x02lstR.",  # GLOBAL, REDUCE
            b"(U\x02lsios\nsystem\n.",  # INST
            b"(cos\nsystem\nU\x02lso.",  # OBJ
            b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x02ls\x85R.",  # STACK_GLOBAL
            b"\x80\x02cos\nsystem\n)\x81.",  # NEWOBJ
            b"\x80\x02cnumpy\nload\nU\x01a\x85R.",  # another name of numpy
            b"\x80\x02cnumpy.core.multiarray\nscalar\n)R.",
            b"\x80\x02cnumpy\ndtype.mro\n)R.",  # a dotted path from a name that is admitted
            b"\x80\x02U\x01aQ.",  # BINPERSID
            b"Pabc\n.",  # PERSID
            b"\x82\x01.",  # EXT1
            b"\x80\x05\x96\xff\xff\xff\xff\xff\xff\xff\x00.",  # BYTEARRAY8 of 2^56 bytes
            b"\x80\x02K\x01r\xff\xff\xff\x7fK\x02r\xff\xff\xff\xff0.",  # memo far away, then POP
            b"\x80\x63.",
            b".",
            b"",
        ],
    )
    def test_programs_are_refused(self, program: bytes) -> None:
        with pytest.raises(pickle.UnpicklingError):
            inert.load(program)

    def test_the_names_of_arrays_give_objects_that_do_nothing(self) -> None:
        value = inert.load(pickle.dumps(np.arange(6, dtype=np.uint8).reshape(2, 3), protocol=3))
        assert isinstance(value, inert.Inert)
        np.testing.assert_array_equal(inert.array(value), [[0, 1, 2], [3, 4, 5]])
        fortran = np.asfortranarray(np.arange(6, dtype=np.uint8).reshape(2, 3))
        np.testing.assert_array_equal(inert.array(inert.load(pickle.dumps(fortran, protocol=3))), fortran)

    @pytest.mark.parametrize(
        "state",
        [
            None,
            (1, (2,), "u1", False, b"ab"),
            (1, (3,), inert.Inert("u1"), False, b"ab"),
            (1, (-1, -2), inert.Inert("u1"), False, b"ab"),
            (1, (2,), inert.Inert("O"), False, b"ab"),
            (1, (2,), inert.Inert(), False, b"ab"),
            (1, ([2],), inert.Inert("u1"), False, b"ab"),
            (1, (2,), inert.Inert("u1"), False, ["a", "b"]),
            (1, (2,)),
        ],
    )
    def test_forged_states_are_refused(self, state: object) -> None:
        value = inert.Inert()
        value.__setstate__(state)
        with pytest.raises(pickle.UnpicklingError, match="no array of bytes"):
            inert.array(value)


class Server(http.server.ThreadingHTTPServer):
    """Serves ``files`` by path; ``ways`` says of a path how to fail."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.ways: dict[str, str] = {}
        self.asked: list[str] = []
        self.release = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/"


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        path = self.path.lstrip("/")
        self.server.asked.append(path)
        content, way = self.server.files.get(path), self.server.ways.get(path)
        if content is None:
            self.send_error(404)
            return
        if way == "flip":
            content = content[:-9] + bytes((content[-9] ^ 1,)) + content[-8:]
        self.send_response(200)
        if way != "no length":
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if way == "silence":
            self.server.release.wait(10)
        self.wfile.write(content[: len(content) // 2] if way in ("half", "silence") else content)

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A mirror with small made-up archives, the only one that the downloads know."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with Server() as made:
        zipped = {f"{stem}.gz": gzip.compress(content, mtime=0) for stem, content in idx_files().items()}
        made.files = zipped | {download.CIFAR_ARCHIVE: archive(cifar_binary())}
        sums = {name: hashlib.sha256(content).hexdigest() for name, content in made.files.items()}
        monkeypatch.setattr(download, "SHA256", dict.fromkeys(download.SHA256, sums))
        monkeypatch.setattr(download, "MIRRORS", dict.fromkeys(download.MIRRORS, (made.url,)))
        thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield made
        made.release.set()
        made.shutdown()
        thread.join()


def archive(files: dict[str, bytes], folder: str = "cifar-10-batches-bin/") -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(folder + name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return stream.getvalue()


def everything(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if not path.is_dir())


class TestDownload:
    @pytest.mark.parametrize(("name", "folder"), [("mnist", "MNIST"), ("fashion-mnist", "FashionMNIST")])
    def test_files_come_once_and_are_kept(
        self, server: Server, name: str, folder: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        ds = data.load(name, tmp_path / "new" / "root", download=True)
        assert len(ds.x) == 7
        assert sorted(server.asked) == sorted(f"{stem}.gz" for stem in IDX)
        assert everything(tmp_path) == sorted(f"new/root/{folder}/raw/{stem}.gz" for stem in IDX)
        output = capfd.readouterr()
        assert output.out == ""
        assert "train-images-idx3-ubyte.gz" in output.err
        again = data.load(name, tmp_path / "new" / "root", download=True)
        assert len(server.asked) == 4
        assert torch.equal(again.x, ds.x)

    def test_only_what_is_missing_is_fetched(self, server: Server, tmp_path: Path) -> None:
        write_idx(
            tmp_path, {stem: content for stem, content in idx_files().items() if "images" in stem}, False
        )
        data.load("mnist", tmp_path, download=True)
        assert server.asked == [f"{stem}.gz" for stem in IDX if "labels" in stem]

    def test_nothing_is_fetched_without_permission(self, server: Server, tmp_path: Path) -> None:
        with pytest.raises(data.DataError, match="download=True"):
            data.load("mnist", tmp_path)
        assert server.asked == []

    @pytest.mark.parametrize(
        ("way", "says"),
        [
            ("half", "broke off"),
            ("flip", "SHA-256 differs"),
            ("silence", r"was silent for 0\.2 seconds|could not be reached"),
            ("missing", "answered 404"),
        ],
    )
    def test_a_failed_download_leaves_nothing_that_looks_finished_and_can_be_repeated(
        self, server: Server, way: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        file = f"{IDX[0]}.gz"
        monkeypatch.setattr(download, "TIMEOUT", 0.2)
        content = server.files[file]
        if way == "missing":
            del server.files[file]
        server.ways[file] = way
        with pytest.raises(
            data.DataError, match=f"{file} could not be downloaded .*{says}.*try again"
        ) as caught:
            data.load("mnist", tmp_path, download=True)
        assert "\n" not in str(caught.value)
        assert everything(tmp_path) == []
        server.ways.clear()
        server.files[file] = content
        assert len(data.load("mnist", tmp_path, download=True).x) == 7

    def test_the_next_mirror_helps_out(
        self, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        mirrors = tuple(server.url + part for part in ("none/", "half/", "flip/", ""))
        for way in ("half", "flip"):
            for stem in IDX:
                server.files[f"{way}/{stem}.gz"] = server.files[f"{stem}.gz"]
                server.ways[f"{way}/{stem}.gz"] = way
        monkeypatch.setitem(download.MIRRORS, "mnist", ("http://127.0.0.1:9/", *mirrors))
        assert len(data.load("mnist", tmp_path, download=True).x) == 7
        assert len(server.asked) == 16

    def test_ctrl_c_in_the_middle_leaves_nothing(
        self, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def interrupt(*_: object) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(download._Bar, "update", interrupt)
            with pytest.raises(KeyboardInterrupt):
                data.load("mnist", tmp_path, download=True)
        assert everything(tmp_path) == []
        assert len(data.load("mnist", tmp_path, download=True).x) == 7
        assert server.asked

    def test_an_unknown_length_is_no_obstacle(self, server: Server, tmp_path: Path) -> None:
        server.ways = dict.fromkeys(server.files, "no length")
        assert len(data.load("mnist", tmp_path, download=True).x) == 7

    def test_a_file_in_the_way_of_the_folder_is_named(self, server: Server, tmp_path: Path) -> None:
        (tmp_path / "MNIST").touch()
        with pytest.raises(data.DataError, match=r"MNIST.* cannot be"):
            data.load("mnist", tmp_path, download=True)
        assert server.asked == []

    def test_others_may_read_what_was_downloaded(self, server: Server, tmp_path: Path) -> None:
        data.load("mnist", tmp_path, download=True)
        (tmp_path / "plain").touch()
        usual = stat.S_IMODE((tmp_path / "plain").stat().st_mode)
        assert stat.S_IMODE((tmp_path / "MNIST" / "raw" / f"{IDX[0]}.gz").stat().st_mode) == usual
        assert server.asked


@pytest.mark.usefixtures("_few_records")
class TestArchive:
    def test_cifar10_is_fetched_unpacked_and_read(self, server: Server, tmp_path: Path) -> None:
        ds = data.load("cifar10", tmp_path, download=True)
        assert len(ds.x) == 20
        files = [f"cifar-10-batches-bin/{name}.bin" for name in BATCHES]
        assert everything(tmp_path) == sorted([*files, download.CIFAR_ARCHIVE])
        assert data.load("cifar10", tmp_path).y.tolist() == ds.y.tolist()
        assert server.asked == [download.CIFAR_ARCHIVE]

    def test_files_that_are_there_stay_as_they_are(self, server: Server, tmp_path: Path) -> None:
        mine = cifar_binary(seed=5)["data_batch_2.bin"]
        write(tmp_path / "cifar-10-batches-bin", {"data_batch_2.bin": mine})
        data.load("cifar10", tmp_path, download=True)
        assert (tmp_path / "cifar-10-batches-bin" / "data_batch_2.bin").read_bytes() == mine
        assert server.asked

    @pytest.mark.parametrize("way", ["half", "flip"])
    def test_a_failed_download_leaves_nothing(self, server: Server, way: str, tmp_path: Path) -> None:
        server.ways[download.CIFAR_ARCHIVE] = way
        with pytest.raises(data.DataError, match="could not be downloaded"):
            data.load("cifar10", tmp_path, download=True)
        assert everything(tmp_path) == []

    def unpack(self, root: Path, content: bytes) -> None:
        root.mkdir(exist_ok=True)
        (root / "a.tar.gz").write_bytes(content)
        files = list(cifar_binary())
        download.unpack(root / "a.tar.gz", root / "cifar-10-batches-bin", files, RECORDS * 3073)

    @pytest.mark.parametrize(
        "path", ["../evil", "/tmp/smgopt-evil", "cifar-10-batches-bin/../../evil", "evil"]
    )
    def test_no_member_is_written_where_it_says(self, path: str, tmp_path: Path) -> None:
        sound = {f"cifar-10-batches-bin/{name}": content for name, content in cifar_binary().items()}
        evil = bytes(RECORDS * 3073)
        self.unpack(tmp_path / "root", archive({path: evil} | sound, folder=""))
        files = [f"root/{name}" for name in sound]
        assert everything(tmp_path) == sorted([*files, "root/a.tar.gz"])
        assert not Path("/tmp/smgopt-evil").exists()

    @pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE])
    def test_links_and_devices_are_not_taken_for_files(self, kind: bytes, tmp_path: Path) -> None:
        (tmp_path / "secret").write_bytes(bytes(RECORDS * 3073))
        stream = io.BytesIO()
        with tarfile.open(fileobj=stream, mode="w:gz") as tar:
            for name in cifar_binary():
                member = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
                member.type, member.linkname = kind, str(tmp_path / "secret")
                tar.addfile(member)
        with pytest.raises(data.DataError, match=r"a\.tar\.gz lacks data_batch_1\.bin"):
            self.unpack(tmp_path / "root", stream.getvalue())
        assert everything(tmp_path) == ["root/a.tar.gz", "secret"]

    def test_a_damaged_archive_gives_all_files_or_none(self, tmp_path: Path) -> None:
        sound = archive(cifar_binary())
        refused = 0
        for i, content in enumerate(damage(sound, 60)):
            root = tmp_path / str(i)
            message = refusal(lambda root=root, content=content: self.unpack(root, content))  # type: ignore[misc]
            assert len(everything(root)) == (1 if message else 7)
            assert "a.tar.gz" in message or not message
            refused += bool(message)
        # Not all: what stands after the last file, the checksum among it, is only seen by the SHA-256.
        assert refused > 30
