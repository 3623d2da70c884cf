"""The definition of a recording: one Case per folder, with short ways to write the common ones."""
from __future__ import annotations

import dataclasses
import zlib
from typing import Callable

import torch
import torch.nn as nn

Batch = dict[str, torch.Tensor]


@dataclasses.dataclass
class Case:
    """One recording. `module` and `batch` are called with torch's generator seeded by `name`."""

    name: str
    module: Callable[[], nn.Module]  # the module to export; called with the inputs in the order of `inputs`
    batch: Callable[[int], Batch]  # batch size -> one array per input and target
    losses: list[dict]
    optimizer: dict
    inputs: tuple[str, ...] = ("x",)
    targets: tuple[str, ...] = ("y",)
    outputs: tuple[str, ...] = ("out",)
    exporter: str = "dynamo"  # or "legacy"
    opset: int = 18
    mode: str = "train"  # the module's mode during the export
    optimize: bool = False  # dynamo's `optimize`, legacy's `do_constant_folding`
    semantics: str = "as_graph"
    dynamic_batch: bool = False
    dynamic_axes: dict[str, dict] | None = None  # dynamic axes other than the batch: a name, or an expression of torch.export.Dim
    external_data: bool = False
    script: bool = False  # export torch.jit.script of the module, which preserves its loops
    steps: int = 6
    batch_size: int = 8
    batch_sizes: list[int] | None = None
    clip_grad_norm: float | None = None
    clip_grad_value: float | None = None
    ema: dict | None = None  # decay, warmup: the parameters after training are their moving averages
    lr_schedule: list[float] | None = None
    grad_accumulation: int = 1
    frozen: tuple[str, ...] = ()  # prefixes of the names of parameters that are not trained
    detached: tuple[str, ...] = ()  # values of the file that the module detaches without a trace in the file, for --detach
    expected: str = "full"
    notes: str = ""
    # If the file trains differently from the exported module (because the exporter folded, copied or merged weights): turns a copy of the
    # module into one that trains like the file.
    as_file: Callable[[nn.Module], nn.Module] | None = None
    may_rest: bool = False  # do not compare parameters on which the output hardly depends; otherwise they make the case invalid
    # Writes the file if it does not come from PyTorch's exporters. Called with the module, the first batch and the path.
    write: Callable[[nn.Module, Batch, str], None] | None = None
    keep_notes: bool = False  # keep torch.export's metadata of each node, which is usually dropped because of its size
    keep_constants: bool = False  # keep constant initial values (biases of 0, scales of 1) instead of randomizing them

    @property
    def seed(self) -> int:
        return zlib.crc32(self.name.encode())

    @property
    def sizes(self) -> list[int]:
        return self.batch_sizes or [self.batch_size] * self.steps


def pixels(*shape: int) -> torch.Tensor:
    """Normally distributed numbers in steps of 1/16: small once compressed, and exact in every float type."""
    return (torch.randn(*shape) * 16).round() / 16


def classes(n: int, *shape: int) -> torch.Tensor:
    return torch.randint(0, n, shape)


def image_classes(channels: int, size: int, n: int) -> Callable[[int], Batch]:
    return lambda b: {"x": pixels(b, channels, size, size), "y": classes(n, b)}


def vector_classes(width: int, n: int) -> Callable[[int], Batch]:
    return lambda b: {"x": pixels(b, width), "y": classes(n, b)}


def vector_values(width: int, n: int) -> Callable[[int], Batch]:
    return lambda b: {"x": pixels(b, width), "y": pixels(b, n)}


def token_classes(vocabulary: int, length: int, n: int) -> Callable[[int], Batch]:
    return lambda b: {"x": classes(vocabulary, b, length), "y": classes(n, b)}


def sequence_classes(length: int, width: int, n: int) -> Callable[[int], Batch]:
    return lambda b: {"x": pixels(b, length, width), "y": classes(n, b)}


def next_tokens(vocabulary: int, length: int) -> Callable[[int], Batch]:
    def make(b: int) -> Batch:
        t = classes(vocabulary, b, length + 1)
        return {"x": t[:, :-1].contiguous(), "y": t[:, 1:].contiguous()}

    return make


def term(type: str, output: str = "out", target: str | None = "y", **options) -> dict:
    """One loss term in the form of case.json."""
    return {"type": type, "output": output, **({"target": target} if target else {}), **options}


CE, CE_LAST, MSE = [term("cross_entropy")], [term("cross_entropy", class_axis=-1)], [term("mse")]
