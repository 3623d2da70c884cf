"""The ways in which people export. A case that does not ask for one gets one by its name, so that a family of models covers them all."""
from __future__ import annotations

import dataclasses
import zlib

from case import Case

# exporter, opset, optimize / do_constant_folding, mode, dynamic batch
STYLES = [
    ("dynamo", 18, False, "train", False),
    ("legacy", 17, False, "train", True),
    ("dynamo", 18, True, "eval", True),
    ("legacy", 13, True, "eval", False),
    ("dynamo", 20, True, "train", False),
    ("legacy", 15, False, "eval", True),
    ("dynamo", 23, False, "train", True),
    ("legacy", 18, True, "eval", True),
    ("dynamo", 22, True, "eval", False),
    ("legacy", 14, False, "train", False),
    ("dynamo", 25, True, "eval", True),
    ("legacy", 11, True, "eval", True),
    ("dynamo", 21, False, "eval", False),
    ("legacy", 20, False, "train", False),
]


def styled(case: Case, shift: int = 0, exporter: str | None = None) -> Case:
    """The case in the style that its name selects, or `shift` styles further, optionally among those of one exporter."""
    styles = [s for s in STYLES if exporter in (None, s[0])]
    exporter, opset, optimize, mode, dynamic = styles[(zlib.crc32(case.name.encode()) + shift) % len(styles)]
    return dataclasses.replace(case, exporter=exporter, opset=opset, optimize=optimize, mode=mode, dynamic_batch=dynamic)
