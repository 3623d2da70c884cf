"""Styles of PyTorch's default exporter (dynamo=True), which the `default_` sets go through in turn: opsets below 18, to which it converts its
files down, and above; optimized or not; for one batch size, for one sample, and with symbolic axes of all kinds."""
from __future__ import annotations

import os
import zlib
from typing import Callable, Iterator

import torch.nn as nn

from case import Batch, Case
from zoo import still

# opset, optimize, mode, dynamic batch, keeps torch.export's notes of each node
STYLES = [
    (18, True, "eval", True, False),
    (23, False, "train", False, False),
    (20, True, "train", True, True),
    (18, False, "train", True, False),
    (24, True, "eval", False, False),
    (17, False, "train", False, False),
    (21, False, "eval", True, False),
    (25, True, "train", False, True),
    (16, True, "eval", True, False),
    (22, False, "eval", False, True),
]
SIZES = {4: [4, 4, 3, 4, 2, 4], 6: [6, 6, 5, 6, 2, 6], 8: [8, 8, 3, 8, 8, 5], 3: [3, 3, 2, 3, 3, 2]}


def exported(name: str, module: Callable[[], nn.Module], batch: Callable[[int], Batch], losses: list[dict], optimizer: dict, *, inputs="x", targets="y", outputs="out",
             size: int = 4, again: int = 2, styles: tuple[int, ...] | None = None, **options) -> Iterator[Case]:
    """The case in `default_STYLES` (two) styles, which follow from its name, or in the given ones. A module with BatchNormalization is not
    optimized, since the exporter folds its statistics into weights."""
    count = int(os.environ.get("default_STYLES", again))
    first = zlib.crc32(name.encode())
    for k in range(count) if styles is None else range(min(count, len(styles))):
        opset, optimize, mode, dynamic, notes = STYLES[(first + 3 * k) % len(STYLES) if styles is None else styles[k]]
        net = module()
        folds = any(isinstance(m, nn.modules.batchnorm._NormBase) for m in net.modules()) or optimizer["type"] == "lamb" or "groups" in optimizer
        changes = dict(opset=opset, optimize=optimize and not folds, mode=mode, dynamic_batch=dynamic, keep_notes=notes, batch_sizes=SIZES[size] if dynamic else None) | options
        yield Case(f"default_{name}_{changes['opset']}{'' if changes['optimize'] else '_plain'}", lambda: still(module()), batch, losses, optimizer, inputs=tuple(inputs.split()), targets=tuple(targets.split()),
                   outputs=tuple(outputs.split()), batch_size=size, may_rest=True, **changes)
