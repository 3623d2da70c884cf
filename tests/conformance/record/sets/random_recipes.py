"""Training runs drawn from everything that the format of a case can say: several inputs of several types, heads of all shapes, one or two
terms for each head with all their options at once, every option of every optimizer, schedules with zeros, clipping, accumulation, batches of
several sizes, frozen parts, tied weights, batch statistics, names with dots and slashes, and any style of export. The networks are plain.

`random_FIRST` and `random_COUNT` in the environment set which numbers are drawn."""
import os
import random

import torch
import torch.nn as nn
import torch.nn.functional as F

from case import Case, classes, pixels, term
from optimizers import optimizer
from sets.random_nets import RATES

WIDTH = 6
INPUTS = {
    "vector": lambda b: pixels(b, 5),
    "image": lambda b: pixels(b, 2, 7, 6),
    "signal": lambda b: pixels(b, 3, 9),
    "tokens": lambda b: classes(11, b, 7),
    "narrow": lambda b: classes(11, b, 4).int(),
    "switch": lambda b: pixels(b, 5) > 0,
    "level": lambda b: 0.5 + torch.rand(b),
    "bytes": lambda b: classes(256, b, 2, 5, 5).to(torch.uint8),
    "steps": lambda b: pixels(b, 6, 4),
}


class Encoder(nn.Module):
    """One input as a vector of WIDTH numbers for each sample."""

    def __init__(self, kind, r, table):
        super().__init__()
        self.kind = kind
        norm = lambda n: r.choice([nn.BatchNorm2d(n), nn.GroupNorm(2, n), nn.Identity(), nn.InstanceNorm2d(n, affine=True)])
        if kind in ("vector", "switch"):
            self.layer = nn.Sequential(nn.Linear(5, WIDTH), r.choice([nn.LayerNorm(WIDTH), nn.Identity(), nn.BatchNorm1d(WIDTH)]), r.choice([nn.GELU(), nn.ELU(), nn.Mish()]))
        elif kind in ("image", "bytes"):
            self.layer = nn.Sequential(nn.Conv2d(2, 4, 3, stride=r.choice([1, 2]), padding=1, bias=r.random() < 0.5), norm(4), r.choice([nn.ReLU(), nn.SiLU(), nn.Hardswish()]), nn.Conv2d(4, WIDTH, 2))
        elif kind == "signal":
            self.layer = nn.Sequential(nn.Conv1d(3, WIDTH, 3, padding=1, dilation=1, groups=3), nn.PReLU(WIDTH), nn.AvgPool1d(2))
        elif kind == "steps":
            self.layer = r.choice([nn.GRU, nn.LSTM, nn.RNN])(4, WIDTH, batch_first=True)
        elif kind == "level":
            self.layer = nn.Linear(1, WIDTH)
        else:
            self.layer = table

    def forward(self, x):
        if self.kind in ("vector", "switch"):
            return self.layer(x.to(self.layer[0].weight.dtype))
        if self.kind in ("image", "bytes"):
            x = x if self.kind == "image" else (x.to(self.layer[0].weight.dtype) - 127.5) / 127.5
            return self.layer(x).mean((2, 3))
        if self.kind == "signal":
            return self.layer(x).amax(2)
        if self.kind == "steps":
            return self.layer(x)[0][:, -1]
        if self.kind == "level":
            return torch.tanh(self.layer(x.log().unsqueeze(1)))
        return self.layer(x.long()).mean(1)


# The shape of a head's output per sample, and the axis (counted without the batch) that holds classes.
HEADS = {"classes": ((5,), 0), "sequence": ((4, 5), 1), "channels": ((5, 4), 0), "picture": ((3, 4, 2), 0), "volume": ((3, 2, 2, 2), 0), "number": ((), None), "column": ((1,), None), "values": ((4,), None), "grid": ((2, 3), None)}


class Net(nn.Module):
    def __init__(self, kinds, heads, ends, r):
        super().__init__()
        table = nn.Embedding(11, WIDTH)
        self.encoders = nn.ModuleList(Encoder(k, r, table) for k in kinds)
        self.join = r.choice(["sum", "concat", "product"])
        self.body = nn.Sequential(nn.Linear(WIDTH * len(kinds) if self.join == "concat" else WIDTH, WIDTH), nn.Tanh())
        self.tied = r.choice([k for k in kinds if k in ("tokens", "narrow")] or [None])
        self.shapes = [HEADS[h][0] for h in heads]
        self.axes = [HEADS[h][1] for h in heads]
        self.ends = ends
        self.heads = nn.ModuleList(nn.Linear(WIDTH, torch.Size(s).numel()) for s in self.shapes)
        self.similar = nn.Linear(WIDTH, WIDTH, bias=False) if self.tied else None

    def forward(self, *inputs):
        parts = [e(x) for e, x in zip(self.encoders, inputs)]
        if self.join == "concat":
            h = torch.cat(parts, 1)
        else:
            h = parts[0]
            for p in parts[1:]:
                h = h + p if self.join == "sum" else h * p
        h = self.body(h)
        if self.tied:  # the table once more, as the weights of a layer
            table = next(e.layer for e in self.encoders if e.kind == self.tied).weight
            h = h + (self.similar(h) @ table.t()).softmax(1) @ table
        outs = []
        for layer, shape, axis, end in zip(self.heads, self.shapes, self.axes, self.ends):
            y = layer(h).reshape(h.shape[0], *shape)
            if end == "log":
                y = y.log_softmax(1 + axis)
            elif end == "chance":
                y = torch.sigmoid(y)
            outs.append(y)
        return tuple(outs) if len(outs) > 1 else outs[0]


def labels(r, shape, axis, ignored):
    n, rest = shape[axis], [s for k, s in enumerate(shape) if k != axis]

    def make(b):
        y = classes(n, b, *rest)
        if ignored is not None and not 0 <= ignored < n:
            y = torch.where(torch.rand(y.shape) < 0.3, torch.full_like(y, ignored), y)
            y.view(-1)[0] = 1
        return y

    return make


def terms_of(r, head, output, target):
    """Terms for a head, what the head ends with, and a function that creates the target."""
    shape, axis = HEADS[head]
    common = dict(weight=r.choice([0.3, 0.7, 1.5])) if r.random() < 0.6 else {}
    if axis is not None and r.random() < 0.75:
        place = dict(class_axis=-1) if axis == len(shape) - 1 and (len(shape) > 1 or r.random() < 0.3) else {}
        if axis == 0 or place:
            kind = r.choice(["cross_entropy", "cross_entropy", "nll", "kl_div"])
            if kind == "kl_div":
                return [term("kl_div", output, target, **common)], "log", lambda b: torch.randn(b, *shape).softmax(1 + axis)
            options = dict(common, **place)
            ignored = r.choice([None, None, -100, 255, -1, 1])
            if ignored is not None and (ignored != -100 or r.random() < 0.5):
                options["ignore_index"] = ignored
            if r.random() < 0.4:
                options["class_weight"] = [r.choice([0.25, 1.0, 2.0, 3.5]) for _ in range(shape[axis])]
            if kind == "cross_entropy" and r.random() < 0.4:
                options["label_smoothing"] = r.choice([0.05, 0.3])
            if r.random() < 0.25:
                options |= dict(reduction="sum", weight=0.03)
            found = [term(kind, output, target, **options)]
            if kind == "cross_entropy" and r.random() < 0.3:  # a second term with the same target
                found.append(term("cross_entropy", output, target, **place, weight=0.2, ignore_index=ignored if ignored is not None else -100))
            return found, "log" if kind == "nll" else None, labels(r, shape, axis, ignored)
    kind = r.choice(["mse", "l1", "smooth_l1", "huber", "bce", "bce_with_logits", "output"])
    if kind == "output":
        return [term("output", output, None, weight=r.choice([-0.2, 0.3]))], r.choice([None, "chance"]), None
    if r.random() < 0.25:
        common = dict(reduction="sum", weight=0.05)
    if kind in ("bce", "bce_with_logits"):
        if kind == "bce_with_logits" and r.random() < 0.6:
            common["pos_weight"] = [r.choice([0.3, 2.0, 5.0]) for _ in range(r.choice([1, shape[-1]]) if shape else 1)]
        return [term(kind, output, target, **common)], "chance" if kind == "bce" else None, r.choice([lambda b: torch.rand(b, *shape), lambda b: (torch.rand(b, *shape) < 0.3).float()])
    if kind == "smooth_l1":
        common["beta"] = r.choice([1.0, 0.1, 2.5])
    if kind == "huber":
        common["delta"] = r.choice([1.0, 0.2, 3.0])
    found = [term(kind, output, target, **common)]
    if r.random() < 0.3:
        found.append(term(r.choice(["mse", "l1"]), output, target, weight=0.1))
    return found, r.choice([None, "chance"]), lambda b: pixels(b, *shape)


def optimizer_of(r):
    kind = r.choice([*RATES])
    o = dict(lr=RATES[kind])
    if r.random() < 0.6:
        o["weight_decay"] = r.choice([0.003, 0.05, 0.2])
    if r.random() < 0.4:
        o["groups"] = "no_decay_1d"
    if kind in ("adam", "adamw"):
        o["amsgrad"] = r.random() < 0.4
    if kind in ("adam", "adamw", "lamb", "adamax"):
        o["betas"] = r.choice([[0.9, 0.999], [0.5, 0.9], [0.0, 0.99], [0.9, 0.98]])
        o["eps"] = r.choice([1e-8, 1e-3, 1e-6])
    if kind == "momentum":
        o |= dict(momentum=r.choice([0.9, 0.5, 0.99]), dampening=r.choice([0.0, 0.0, 0.5]))
    if kind == "nesterov":
        o["momentum"] = r.choice([0.9, 0.6])
    if kind == "rmsprop":
        o |= dict(alpha=r.choice([0.99, 0.5]), eps=r.choice([1e-3, 1e-6]), momentum=r.choice([0.0, 0.9]), centered=r.random() < 0.5)
    if kind == "adagrad":
        o |= dict(lr_decay=r.choice([0.0, 0.1]), initial_accumulator_value=r.choice([0.0, 0.2]), eps=r.choice([1e-10, 1e-4]))
    if kind == "adadelta":
        o |= dict(rho=r.choice([0.9, 0.5]), eps=r.choice([1e-6, 1e-3]))
    return optimizer(kind, **o)


NAMES = [("{}", "{}_y", "{}_out"), ("input.{}", "target/{}", "{}.logits"), ("{}:0", "{}/label:0", "StatefulPartitionedCall/{}:0"), ("x {}", "y {}", "out {}")]


def case(number):
    r = random.Random(7919 * number + 31)
    kinds = r.sample(list(INPUTS), r.choice([1, 1, 2, 3]))
    heads = r.sample(list(HEADS), r.choice([1, 1, 2, 3]))
    exporter = r.choice(["legacy", "dynamo", "dynamo"])
    of_inputs, of_targets, of_outputs = NAMES[0] if exporter == "dynamo" else r.choice(NAMES)
    losses, ends, made = [], [], {}
    for h in heads:
        target = of_targets.format(h)
        more, end, make = terms_of(r, h, of_outputs.format(h), target)
        losses += more
        ends.append(end)
        if make:
            made[target] = make
    inputs = {of_inputs.format(k): INPUTS[k] for k in kinds}
    drawn = r.randrange(2**30)
    module = lambda: Net(kinds, heads, ends, random.Random(drawn))
    has_norm = any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in module().modules())
    accumulation = r.choice([1, 1, 1, 2, 3])
    steps = 6
    dynamic = r.random() < 0.5
    size = r.choice([4, 6, 7]) if dynamic else r.choice([1, 2, 5])
    least = 2 if has_norm else 1
    size = max(size, least)
    sizes = [size] * steps if r.random() < 0.3 else [size] + [r.randint(least, 9) for _ in range(steps - 1)]
    factors = [r.choice([0.0, 0.25, 0.5, 1.0, 1.0, 1.7]) for _ in range(steps // accumulation)]
    factors[r.randrange(len(factors))] = 1.0
    optimize = r.random() < 0.4 and not has_norm  # else the exporter folds normalizations into convolutions
    mode = r.choice(["train", "eval"])
    semantics = "train" if has_norm and (mode == "eval" or exporter == "dynamo") and r.random() < 0.7 else "as_graph"
    parts = ["encoders.0", "heads.0.bias", "body", "similar", "encoders.0.layer.0.weight"]
    frozen = tuple(r.sample(parts, 1)) if r.random() < 0.3 and (len(kinds) > 1 or len(heads) > 1) else ()
    return Case(f"drawn_recipe_{number:05d}", module, lambda b: {k: f(b) for k, f in inputs.items()} | {k: f(b) for k, f in made.items()}, losses, optimizer_of(r), inputs=tuple(inputs), targets=tuple(made),
                outputs=tuple(of_outputs.format(h) for h in heads), exporter=exporter, opset=r.choice([10, 11, 12, 13, 14, 16, 17, 19]) if exporter == "legacy" else r.choice([18, 19, 20, 22, 24, 25]), mode=mode, optimize=optimize, semantics=semantics, dynamic_batch=dynamic,
                external_data=r.random() < 0.2, steps=steps, batch_size=size, batch_sizes=sizes, clip_grad_norm=r.choice([None, None, 0.1, 1.0, 5.0]),
                lr_schedule=[f for f in factors for _ in range(accumulation)] if r.random() < 0.5 else None, grad_accumulation=accumulation, frozen=frozen, may_rest=True, keep_notes=r.random() < 0.3)


def cases():
    first, count = int(os.environ.get("random_FIRST", 0)), int(os.environ.get("random_COUNT", 30))
    for number in range(first, first + count):
        yield case(number)
