import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import safetensors
import torch
from torch import Tensor, nn
from typer.testing import CliRunner, Result

import smgopt
from smgopt import cli
from smgopt.lab import export, forms, train
from smgopt.lab.errors import InputError, RunError
from smgopt.lab.looped import looped
from smgopt.lab.runs import Run
from tests.lab.support import Make

FORMS = list(forms.FORMS)


def smg(*arguments: object) -> Result:
    return CliRunner().invoke(cli.app, [str(argument) for argument in arguments])


@pytest.fixture
def run(make: Make, tmp_path: Path) -> Run:
    return train.run(make(cycles=2), tmp_path / "run")


def reopened(file: Path) -> Callable[[Tensor], Tensor]:
    """What a user would call, without the help of this project where it is not needed."""
    if file.suffix == ".safetensors":
        return export.load(file)
    if file.suffix == ".pt2":
        with forms.quiet():
            return torch.export.load(file).module()
    session = onnxruntime.InferenceSession(file)
    return lambda x: torch.from_numpy(session.run(None, {"x": x.numpy()})[0])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("level", [0, 1])
def test_a_file_computes_what_the_network_computes(run: Run, tmp_path: Path, form: str, level: int) -> None:
    file = tmp_path / f"net.{form}"
    made = export.export(run, file, level)
    assert (made.form, made.level, made.blocks, made.cycle) == (form, level, (2, 4)[level], 2)
    assert made.size == file.stat().st_size
    assert made.deviation < 1e-5
    network, exported = run.network(level), reopened(file)
    for size in (1, 2, 17):
        x = torch.randn(size, 6)
        with torch.no_grad():
            torch.testing.assert_close(exported(x), network(x), rtol=1e-5, atol=1e-6)
    assert {path.name for path in tmp_path.iterdir()} == {"run", file.name}


@pytest.mark.parametrize("form", FORMS)
def test_all_that_a_network_can_be(form: str) -> None:
    """An image as input, tanh, a relu at the end, one block only, another T."""
    shapes: list[tuple[int, dict[str, Any]]] = [
        (1, {"activation": "tanh", "T": 3.0}),
        (8, {"closing_relu": True, "width": 1}),
    ]
    for depth, options in shapes:
        network = smgopt.ResNet(12, 5, **{"width": 3, "depth": depth, **options}).eval()
        origin = {
            "network": {"kind": "resnet", "width": 3, "depth": depth, **options},
            "levels": 1,
            "level": 0,
        }
        text = json.dumps({"format": forms.FORMAT, "shape": [3, 2, 2], "classes": 5, **origin})
        _, deviation = export.checked(network, form, text, [3, 2, 2])
        assert deviation < 1e-5


@pytest.mark.parametrize("form", FORMS)
def test_a_file_says_where_it_comes_from(run: Run, tmp_path: Path, form: str) -> None:
    file = tmp_path / f"net.{form}"
    export.export(run, file, level=-2)
    if form == "safetensors":
        with safetensors.safe_open(file, "pt") as opened:
            text = opened.metadata()["smgopt"]
    elif form == "onnx":
        text = next(prop.value for prop in onnx.load(file).metadata_props if prop.key == "smgopt")
    else:
        extra = {"smgopt.json": ""}
        with forms.quiet():
            torch.export.load(file, extra_files=extra)
        text = extra["smgopt.json"]
    origin = json.loads(text)
    assert (origin["network"]["depth"], origin["levels"]) == (4, 2)
    assert (origin["shape"], origin["classes"], origin["level"], origin["cycle"]) == ([6], 3, 0, 2)


def test_an_onnx_file_is_valid_and_names_its_sizes(run: Run, tmp_path: Path) -> None:
    export.export(run, tmp_path / "net.onnx")
    model = onnx.load(tmp_path / "net.onnx")
    onnx.checker.check_model(model, full_check=True)
    (x,), (y,) = model.graph.input, model.graph.output
    sizes = [[d.dim_param or d.dim_value for d in v.type.tensor_type.shape.dim] for v in (x, y)]
    assert (x.name, y.name, sizes) == ("x", "y", [["batch", 6], ["batch", 3]])


def test_a_deep_network_is_a_small_graph() -> None:
    """The number of operations does not depend on the depth."""
    counts = []
    for depth in (8, 512):
        network = smgopt.ResNet(4, 3, width=2, depth=depth).eval()
        content, _ = export.checked(network, "onnx", "{}", [4])
        counts.append(len(onnx.load_from_string(content).graph.node))
        with forms.quiet():
            program = torch.export.load(io.BytesIO(export.checked(network, "pt2", "{}", [4])[0]))
        counts.append(len(program.graph.nodes))
    assert counts[:2] == counts[2:]


def test_looped_leaves_the_network_as_it_is() -> None:
    network = smgopt.ResNet(4, 3, width=2, depth=8)
    before = {name: value.clone() for name, value in network.state_dict().items()}
    assert not any(p.requires_grad for p in looped(network).parameters())
    assert all(p.requires_grad for p in network.parameters())
    assert network.training
    assert isinstance(network.stack, smgopt.ResidualStack)
    torch.testing.assert_close(network.state_dict(), before, rtol=0, atol=0)


def test_a_loaded_network_can_be_trained_and_halved(run: Run, tmp_path: Path) -> None:
    export.export(run, tmp_path / "net.safetensors")
    state = torch.random.get_rng_state()
    network = export.load(tmp_path / "net.safetensors")
    assert torch.equal(torch.random.get_rng_state(), state)
    torch.testing.assert_close(network.state_dict(), run.network().state_dict(), rtol=0, atol=0)
    opt = smgopt.SMGOpt(smgopt.Hierarchy(network, 2), lr=0.1)
    opt.step(lambda net: net(torch.ones(5, 6)).square().mean())
    assert not torch.equal(network(torch.ones(1, 6)), run.network()(torch.ones(1, 6)))


FRESH = {
    "safetensors": "from smgopt.lab.export import load; run = load(sys.argv[1])",
    "onnx": "import onnxruntime; s = onnxruntime.InferenceSession(sys.argv[1]); "
    "run = lambda x: torch.from_numpy(s.run(None, {'x': x.numpy()})[0]); "
    "assert 'smgopt' not in sys.modules",
    "pt2": "run = torch.export.load(sys.argv[1]).module(); assert 'smgopt' not in sys.modules",
}


@pytest.mark.parametrize("form", FRESH)
def test_in_a_fresh_process(run: Run, tmp_path: Path, form: str) -> None:
    file, x = tmp_path / f"net.{form}", torch.arange(30.0).reshape(5, 6) / 30
    export.export(run, file)
    program = f"import sys, torch; {FRESH[form]}; x = torch.arange(30.0).reshape(5, 6) / 30; "
    done = subprocess.run(
        [sys.executable, "-c", f"{program} print(run(x).tolist())", file], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    with torch.no_grad():
        np.testing.assert_allclose(json.loads(done.stdout), run.network()(x), rtol=1e-5, atol=1e-6)


class Wrong(nn.Module):
    def __init__(self, network: nn.Module, error: float) -> None:
        super().__init__()
        self.network, self.error = network, error

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.network(x)
        # One sample only, in the larger of the batches.
        return torch.cat([y[:-1], y[-1:] + self.error]) if len(x) > 1 else y


@pytest.mark.parametrize(
    ("error", "sentence"), [(0.01, "other answers, by up to 0.01"), (np.nan, "not finite")]
)
def test_a_file_that_computes_something_else_is_not_written(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: float, sentence: str
) -> None:
    right = forms.FORMS["safetensors"]
    wrong = right._replace(read=lambda content: Wrong(forms.rebuilt(content), error))
    monkeypatch.setitem(forms.FORMS, "safetensors", wrong)
    file = tmp_path / "net.safetensors"
    file.write_text("the old one")
    with pytest.raises(RunError, match=sentence):
        export.export(run, file)
    assert file.read_text() == "the old one"
    assert {path.name for path in tmp_path.iterdir()} == {"run", file.name}


def test_an_exporter_that_fails_is_a_sentence(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> bytes:
        raise NotImplementedError("no such operation\nand much more")

    monkeypatch.setitem(forms.FORMS, "onnx", forms.FORMS["onnx"]._replace(write=fail))
    with pytest.raises(RunError, match=r"cannot export this network as onnx: no such operation$"):
        export.export(run, tmp_path / "net.onnx")


@pytest.mark.parametrize("package", ["onnx", "onnxscript", "onnxruntime"])
def test_a_missing_package_is_named(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(InputError, match=rf"needs {package}, .*pip install 'smgopt\[export\]'"):
        export.export(run, tmp_path / "net.onnx")
    export.export(run, tmp_path / "net.pt2")


def test_the_command(run: Run, tmp_path: Path) -> None:
    result = smg("export", run.folder, "--level", -2, "--to", tmp_path / "net", "--format", "safetensors")
    assert result.exit_code == 0, result.output
    assert f"level 0 of {run.folder} after 2 cycles, 2 blocks, as safetensors" in result.output
    assert "deviates from the network by at most 0\n" in result.output
    assert isinstance(export.load(tmp_path / "net"), smgopt.ResNet)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nowhere", "--to", "a.onnx"], "nowhere is no run"),
        (["RUN", "--to", "a.h5"], "a.h5 does not say in which format"),
        (["RUN", "--to", "a.onnx", "--format", "h5"], "there is no format 'h5'; there are safetensors, onnx"),
        (["RUN", "--to", "no/where.onnx"], "its folder does not exist"),
        (["RUN", "--to", "a.onnx", "--level", "2"], "has levels 0 … 1, and no level 2"),
        (["RUN", "--to", "a.onnx", "--level", "-3"], "has levels 0 … 1, and no level -3"),
    ],
)
def test_what_is_wrong_is_a_sentence(
    run: Run, monkeypatch: pytest.MonkeyPatch, arguments: list[str], sentence: str
) -> None:
    monkeypatch.chdir(run.folder.parent)
    result = smg("export", *(str(run.folder) if a == "RUN" else a for a in arguments))
    assert result.exit_code == 2
    assert sentence in result.output
    assert not list(run.folder.parent.glob("a.*"))


def test_what_is_no_export_is_a_sentence(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "net.safetensors"
    with pytest.raises(RunError, match="cannot be read: No such file"):
        export.load(file)
    export.export(run, file)
    whole = file.read_bytes()
    wrong = [b"", b"{}", whole[:100], whole[:-1], whole.replace(b'"format', b'"fromat')]
    wrong += [
        whole.replace(b'\\"depth\\": 4', b'\\"depth\\": 8'),
        whole.replace(b'depth\\": 4', b'depth\\":-4'),
    ]
    wrong += [whole.replace(b'\\"format\\": 1', b'\\"format\\": 2')]
    for content in wrong:
        file.write_bytes(content)
        with pytest.raises(RunError, match=r"is no network that smgopt has exported: \S"):
            export.load(file)
    file.write_bytes(wrong[4])
    with pytest.raises(RunError, match="exported: there is no 'format' in it"):
        export.load(file)
    # Whatever else is changed, it loads or says that it does not.
    random, said = np.random.default_rng(0), []
    for _ in range(300):
        damaged = bytearray(whole)
        damaged[random.integers(1000)] ^= 1 << random.integers(8)
        file.write_bytes(damaged)
        try:
            export.load(file)
        except RunError as error:
            said.append(str(error))
    assert len(said) > 100
    assert not any("\n" in sentence for sentence in said)
