"""The loss terms of case.json, computed by PyTorch."""
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


TERMS = {
    "cross_entropy": _cross_entropy,
    "nll": _nll,
    "mse": lambda t, o, y, r: F.mse_loss(o, y, reduction=r),
    "l1": lambda t, o, y, r: F.l1_loss(o, y, reduction=r),
    "smooth_l1": lambda t, o, y, r: F.smooth_l1_loss(o, y, beta=t.get("beta", 1.0), reduction=r),
    "huber": lambda t, o, y, r: F.huber_loss(o, y, delta=t.get("delta", 1.0), reduction=r),
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
