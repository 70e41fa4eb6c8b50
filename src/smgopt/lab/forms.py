"""The kinds of files that a network can become: how each is made, and how it is run.

Every file takes batches of any size. Its metadata say, under ``smgopt`` and as JSON, where it comes from.
"""

from __future__ import annotations

import io
import json
import logging
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import safetensors.torch
import torch
from torch.export import Dim

import smgopt
from smgopt.hierarchy import Hierarchy
from smgopt.lab import build
from smgopt.lab.config import Config
from smgopt.lab.looped import looped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor, nn

#: Changes when an older smgopt could not load what this one writes.
FORMAT = 1

_KEY = "smgopt"
_ANY_BATCH = ({0: Dim("batch", min=1)},)


class Form(NamedTuple):
    """A kind of file.

    Attributes:
        needs: the packages without which it cannot be made or checked.
        write: the file's content, from a network, an input and the metadata.
        read: what runs that content.
    """

    needs: tuple[str, ...]
    write: Callable[[nn.Module, Tensor, str], bytes]
    read: Callable[[bytes], Callable[[Tensor], Tensor]]


def _to_safetensors(network: nn.Module, _: Tensor, origin: str) -> bytes:
    tensors = {name: tensor.contiguous() for name, tensor in network.state_dict().items()}
    return safetensors.torch.save(tensors, {_KEY: origin})


def rebuilt(content: bytes) -> nn.Module:
    """The network in the content of a ``.safetensors`` file.

    Raises:
        SafetensorError, ValueError, TypeError, LookupError, RuntimeError: it is no such content.
    """
    # The header is JSON, and its length stands before it in 8 bytes; the reader of bytes gives tensors only.
    tensors = safetensors.torch.load(content)
    length = int.from_bytes(content[:8], "little")
    origin = json.loads(json.loads(content[8 : 8 + length])["__metadata__"][_KEY])
    if origin["format"] != FORMAT:
        raise ValueError(f"it has format {origin['format']}, this smgopt {smgopt.__version__} reads {FORMAT}")
    levels = origin["levels"]
    section = Config.model_validate({"network": origin["network"], "hierarchy": {"levels": levels}}).network
    # Without memory until the weights come, and without drawing any. A coarse level is more than its weights:
    # its blocks count several times.
    with torch.device("meta"):
        finest = build.NETWORKS[section.kind](section, origin["shape"], origin["classes"])
        network: nn.Module = Hierarchy(finest, levels)[origin["level"]]
    network.load_state_dict(tensors, assign=True)
    return network.eval()


def _to_program(network: nn.Module, x: Tensor, origin: str) -> bytes:
    program = torch.export.export(looped(network), (x,), dynamic_shapes=_ANY_BATCH)
    content = io.BytesIO()
    torch.export.save(program, content, extra_files={f"{_KEY}.json": origin})
    return content.getvalue()


def _run_program(content: bytes) -> Callable[[Tensor], Tensor]:
    return torch.export.load(io.BytesIO(content)).module()


def _to_onnx(network: nn.Module, x: Tensor, origin: str) -> bytes:
    program = torch.onnx.export(
        looped(network),
        (x,),
        dynamo=True,
        dynamic_shapes=_ANY_BATCH,
        input_names=["x"],
        output_names=["y"],
        verbose=False,
    )
    assert program is not None
    program.model.metadata_props[_KEY] = origin
    content: bytes = program.model_proto.SerializeToString()
    return content


def _run_onnx(content: bytes) -> Callable[[Tensor], Tensor]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(content, options)
    return lambda x: torch.from_numpy(session.run(None, {"x": x.numpy()})[0])


@contextmanager
def quiet() -> Iterator[None]:
    """Keep back what the exporters say of their own insides."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "torch._export", "onnx_ir", "onnxscript")]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        with warnings.catch_warnings():
            # torch uses what torch has deprecated.
            warnings.simplefilter("ignore", FutureWarning)
            warnings.simplefilter("ignore", DeprecationWarning)
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


#: The kinds of files, by suffix.
FORMS = {
    "safetensors": Form((), _to_safetensors, rebuilt),
    "onnx": Form(("onnx", "onnxscript", "onnxruntime"), _to_onnx, _run_onnx),
    "pt2": Form((), _to_program, _run_program),
}
