"""What a step gives."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class StepResult:
    """What a step gives."""

    loss: float
    """Of this batch, before the update."""
    lr: float
    """Of this update."""
    grad_norm: float | None
    """Before clipping; None where the plan does not compute it."""
    step: int
    """Updates done so far."""
    batch: int
    """Batches trained on so far."""
    updated: bool
    """False while gradients are being accumulated."""


def result_of(struct: Any) -> StepResult:
    return StepResult(struct.loss, struct.lr, None if struct.grad_norm < 0 else struct.grad_norm, struct.step, struct.batch, bool(struct.updated))
