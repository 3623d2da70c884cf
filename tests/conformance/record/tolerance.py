"""How far a correct trainer may deviate from the recording: twenty times the deviation of PyTorch itself when the run is repeated in
float64 and from a start one rounding error away, and never less than the floors."""
from __future__ import annotations

import math

import numpy as np

MARGIN = 20
LOSS_RTOL, LOSS_ATOL, LOSS_STEP_FLOOR = 1e-4, 1e-6, 2e-5
PARAM_RTOL, PARAM_FLOOR = 1e-3, 1e-5
GRAD_RTOL, GRAD_FLOOR = 1e-3, 1e-6
OUTLIERS = 1e-3
Arrays = dict[str, np.ndarray]


def _round_up(x: float) -> float:
    """Rounds to two significant digits."""
    if x == 0:
        return 0.0
    unit = 10.0 ** (math.floor(math.log10(x)) - 1)
    return float(f"{math.ceil(round(x / unit, 9)) * unit:.1e}")


def _farthest(a: np.ndarray, b: np.ndarray) -> float:
    """The largest difference, without the outliers that a comparison may drop."""
    d = np.sort(np.abs(a.astype(np.float64) - b.astype(np.float64)).reshape(-1))
    return float(d[d.size - 1 - int(OUTLIERS * d.size)]) if d.size else 0.0


def _norm(a: np.ndarray) -> float:
    return float(np.linalg.norm(a.astype(np.float64).reshape(-1)))


def ill_conditioned(initial: Arrays, grads: list[Arrays], params: list[Arrays]) -> list[str]:
    """Tensors whose gradient or movement is little more than rounding error. The first of `grads` and `params` is the recording."""
    out = []
    for k, start in initial.items():
        size = _norm(grads[0][k])
        noise = max(_norm(g[k].astype(np.float64) - grads[0][k]) for g in grads[1:])
        moved = _norm(params[0][k].astype(np.float64) - start)
        wander = max(_farthest(p[k], params[0][k]) for p in params[1:])
        shift = max(abs(_norm(p[k].astype(np.float64) - start) - moved) for p in params[1:])
        lost_gradient = size > 0 and noise > 0.01 * size
        lost_movement = moved > 0 and (MARGIN * wander > 0.5 * moved / math.sqrt(start.size) or shift > 0.01 * moved + 1e-8 * _norm(start))
        if lost_gradient or (lost_movement and wander > 1e-7):
            out.append(k)
    return out


def tolerances(losses: list[np.ndarray], grads: list[Arrays], params: list[Arrays], ill: list[str]) -> dict:
    """The `tolerance` object of case.json. The first of each list is the recording, the others are its repetitions. `params` includes the
    running statistics."""
    steps = np.max([np.abs(l - losses[0]) for l in losses[1:]], axis=0) / np.maximum(np.abs(losses[0]), 1e-12)
    far = lambda runs: max((_farthest(r[k], runs[0][k]) for r in runs[1:] for k in runs[0] if k not in ill), default=0.0)
    return {
        "loss_rtol": LOSS_RTOL,
        "loss_atol": LOSS_ATOL,
        "loss_rtol_steps": [max(LOSS_STEP_FLOOR, _round_up(MARGIN * s)) for s in steps],
        "param_rtol": PARAM_RTOL,
        "param_atol": max(PARAM_FLOOR, _round_up(MARGIN * far(params))),
        "grad_rtol": GRAD_RTOL,
        "grad_atol": max(GRAD_FLOOR, _round_up(MARGIN * far(grads))),
        "outlier_fraction": OUTLIERS,
    }
