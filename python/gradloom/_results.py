"""The result of a step."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class StepResult:
    """The result of a step."""

    loss: float
    """The loss of this batch, before the update."""
    lr: float
    """The learning rate of this update."""
    grad_norm: float | None
    """The gradient norm before clipping; None if the plan does not compute it."""
    step: int
    """The number of updates so far."""
    batch: int
    """The number of batches trained on so far."""
    updated: bool
    """False while gradients are being accumulated."""


def result_of(struct: Any) -> StepResult:
    return StepResult(struct.loss, struct.lr, None if struct.grad_norm < 0 else struct.grad_norm, struct.step, struct.batch, bool(struct.updated))
