"""The loss terms of case.json, computed by PyTorch."""
import math

import torch
import torch.nn.functional as F


def _classes(term, out, y):
    """Moves the class axis to position 1; with class_axis -1 all other axes become the batch."""
    return (out.flatten(0, -2), y.flatten()) if term.get("class_axis", 1) == -1 else (out, y)


def _cross_entropy(term, out, y, reduction):
    out, y = _classes(term, out, y)
    weight = term.get("class_weight")
    return F.cross_entropy(out, y, weight=None if weight is None else out.new_tensor(weight), ignore_index=term.get("ignore_index", -100),
                           label_smoothing=term.get("label_smoothing", 0.0), reduction=reduction)


def _nll(term, out, y, reduction):
    out, y = _classes(term, out, y)
    weight = term.get("class_weight")
    return F.nll_loss(out, y, weight=None if weight is None else out.new_tensor(weight), ignore_index=term.get("ignore_index", -100),
                      reduction=reduction)


def _bce_with_logits(term, out, y, reduction):
    weight = term.get("pos_weight")
    return F.binary_cross_entropy_with_logits(out, y, pos_weight=None if weight is None else out.new_tensor(weight), reduction=reduction)


def _reduced(values, reduction):
    return values.sum() if reduction == "sum" else values.mean()


def _quantile(term, out, y, reduction):
    more = y - out
    return _reduced(torch.maximum(term.get("q", 0.5) * more, (term.get("q", 0.5) - 1) * more), reduction)


def _log_cosh(term, out, y, reduction):
    """As keras.losses.log_cosh."""
    d = out - y
    return _reduced(d + F.softplus(-2 * d) - math.log(2), reduction)


def _sigmoid_focal(term, out, y, reduction):
    """As torchvision.ops.sigmoid_focal_loss."""
    p, alpha, gamma = torch.sigmoid(out), term.get("alpha", 0.25), term.get("gamma", 2.0)
    loss = F.binary_cross_entropy_with_logits(out, y, reduction="none") * (1 - (p * y + (1 - p) * (1 - y))) ** gamma
    return _reduced(loss if alpha < 0 else loss * (alpha * y + (1 - alpha) * (1 - y)), reduction)


TERMS = {
    "cross_entropy": _cross_entropy,
    "nll": _nll,
    "mse": lambda t, o, y, r: F.mse_loss(o, y, reduction=r),
    "l1": lambda t, o, y, r: F.l1_loss(o, y, reduction=r),
    "smooth_l1": lambda t, o, y, r: F.smooth_l1_loss(o, y, beta=t.get("beta", 1.0), reduction=r),
    "huber": lambda t, o, y, r: F.huber_loss(o, y, delta=t.get("delta", 1.0), reduction=r),
    "log_cosh": _log_cosh,
    "quantile": _quantile,
    "poisson_nll": lambda t, o, y, r: F.poisson_nll_loss(o, y, log_input=t.get("log_input", True), reduction=r),
    "hinge": lambda t, o, y, r: _reduced(torch.relu(1 - y * o), r),
    "soft_margin": lambda t, o, y, r: F.soft_margin_loss(o, y, reduction=r),
    "sigmoid_focal": _sigmoid_focal,
    "bce": lambda t, o, y, r: F.binary_cross_entropy(o, y, reduction=r),
    "bce_with_logits": _bce_with_logits,
    "kl_div": lambda t, o, y, r: F.kl_div(o, y, reduction="batchmean" if r == "mean" else r),
    "output": lambda t, o, y, r: o.mean(),
}


def total(terms: list[dict], outputs: dict[str, torch.Tensor], batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """The weighted sum of the terms."""
    loss = None
    for t in terms:
        target = batch[t["target"]] if "target" in t else None
        value = TERMS[t["type"]](t, outputs[t["output"]], target, t.get("reduction", "mean")) * t.get("weight", 1.0)
        loss = value if loss is None else loss + value
    return loss
