"""Random models with random recipes, for combinations that nobody thought of. The environment variables `random_COUNT` (default 100) and
`random_FIRST` select how many and the first number. Each model depends on its number alone, and nothing is kept in `recorded/`."""
import os
import random
import zlib

import torch
import torch.nn as nn
import torch.nn.functional as F

from case import Case, classes, pixels, term
from optimizers import optimizer
from styles import STYLES

POINTWISE = [F.relu, F.gelu, F.silu, F.elu, torch.tanh, torch.sigmoid, F.softplus, F.hardswish, F.hardsigmoid, F.leaky_relu, F.mish, F.selu, F.softsign, torch.sin, torch.cos,
             torch.erf, torch.atan, lambda x: x * x, lambda x: x.abs().add(0.1).sqrt(), lambda x: x.abs().add(1).log(), lambda x: x.clamp(-1.5, 0.75), torch.asinh,
             lambda x: torch.where(x > 0.2, x, 0.1 * x), lambda x: x.abs().add(1).reciprocal(), lambda x: x.abs().add(1).rsqrt() * x, lambda x: (-x.abs()).exp() - x,
             lambda x: torch.maximum(x, -0.3 * x), lambda x: torch.minimum(x, x.new_tensor(0.4)), lambda x: torch.nn.functional.hardtanh(x, -2, 1.5), F.relu6,
             lambda x: x.pow(3) * 0.1, lambda x: torch.expm1(x.clamp(max=1)), lambda x: torch.log1p(x.abs()), lambda x: F.tanhshrink(x) + x, lambda x: F.softshrink(x, 0.2),
             lambda x: x.sign() * x.abs().add(0.2).pow(0.7), lambda x: F.threshold(x, 0.1, -0.2), lambda x: x.masked_fill(x < -1, 0.5), lambda x: torch.lerp(x, x.tanh(), 0.3)]


class Do(nn.Module):
    """A function as a module."""

    def __init__(self, f):
        super().__init__()
        self.f = f

    def forward(self, x):
        return self.f(x)


class RmsNorm(nn.Module):
    """Written out, because the exporters support nn.RMSNorm only for new opsets."""

    def __init__(self, width):
        super().__init__()
        self.w = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return x * (x.pow(2).mean(-1, keepdim=True) + 1e-5).rsqrt() * self.w


class Around(nn.Module):
    """Two branches on one value: added, multiplied, gated, or concatenated along `axis`."""

    def __init__(self, how, a, b, axis):
        super().__init__()
        self.how, self.a, self.b, self.axis = how, a, b, axis

    def forward(self, x):
        a, b = self.a(x), self.b(x)
        if self.how == "add":
            return a + b
        if self.how == "gate":
            return a * torch.sigmoid(b)
        if self.how == "difference":
            return a - 0.5 * b
        return torch.cat([a, b], self.axis)


class Weighted(nn.Module):
    """A parameter of its own, used in one of the usual ways."""

    def __init__(self, how, width):
        super().__init__()
        self.how = how
        self.w = nn.Parameter(torch.randn(width) * 0.3 + (1 if how != "shift" else 0))
        self.m = nn.Parameter(torch.randn(width, width) * 0.3) if how in ("einsum", "matmul", "normed") else None

    def forward(self, x):  # width is the last axis
        if self.how == "scale":
            return x * self.w
        if self.how == "shift":
            return x + self.w
        if self.how == "power":
            return x * F.softplus(self.w).sqrt()
        if self.how == "einsum":
            return torch.einsum("...i,ij->...j", x, self.m) * self.w
        if self.how == "normed":
            return x @ (self.m / self.m.norm(dim=0, keepdim=True)) * self.w
        return x @ self.m.t() + self.w


def pointwise(r):
    return Do(r.choice(POINTWISE))


def branches(r, make, width):
    """Two branches that preserve the shape."""
    how = r.choice(["add", "add", "gate", "difference"])
    return Around(how, make(r, width), nn.Identity() if how != "gate" and r.random() < 0.6 else make(r, width), -1)


VECTOR_GLUE = [lambda x: x.flip(-1), lambda x: torch.cat(x.chunk(2, -1)[::-1], -1), lambda x: x.roll(1, -1), lambda x: x - x.mean(-1, keepdim=True), lambda x: F.normalize(x, dim=-1) * 2,
               lambda x: x / (x.std(-1, keepdim=True) + 0.5), lambda x: x.cumsum(-1) * 0.2, lambda x: x + x.softmax(-1), lambda x: x - x.logsumexp(-1, keepdim=True) * 0.1,
               lambda x: torch.stack([x, -x], -1).amax(-1), lambda x: x[..., torch.arange(x.shape[-1] - 1, -1, -1)], lambda x: x.unflatten(-1, (2, -1)).transpose(-1, -2).flatten(-2),
               lambda x: x + x.amax(-1, keepdim=True), lambda x: x * x.mean(-1, keepdim=True).sigmoid(), lambda x: x + x.sort(-1).values * 0.3, lambda x: F.pad(x[..., :-1], (1, 0)),
               lambda x: x + x.topk(2, -1).values.sum(-1, keepdim=True) * 0.2, lambda x: torch.cat([x[..., ::2], x[..., 1::2]], -1), lambda x: x - x.var(-1, keepdim=True) * 0.1,
               lambda x: torch.stack(x.unbind(-1)[::-1], -1) * 0.9, lambda x: torch.cat(x.split([1, x.shape[-1] - 1], -1)[::-1], -1), lambda x: F.layer_norm(x, x.shape[-1:]),
               lambda x: x + (x.unsqueeze(-1) * x.unsqueeze(-2)).mean(-1), lambda x: x + x.norm(dim=-1, keepdim=True), lambda x: x.where(x > x.mean(-1, keepdim=True), x * 0.5),
               lambda x: x.repeat_interleave(2, -1)[..., : x.shape[-1]], lambda x: x.narrow(-1, 0, x.shape[-1] // 2).repeat(*[1] * (x.dim() - 1), 2), lambda x: x.log_softmax(-1) * 0.2,
               lambda x: torch.gather(x, -1, x.argsort(-1)) * 0.5 + x, lambda x: x.abs().add(0.1).prod(-1, keepdim=True).clamp(max=2) + x]


def vector_layer(r, d):
    kind = r.randrange(9)
    if kind == 0:
        return nn.Sequential(nn.Linear(d, d, bias=r.random() < 0.7), pointwise(r))
    if kind == 1:
        return nn.LayerNorm(d, elementwise_affine=r.random() < 0.8)
    if kind == 2:
        return Weighted(r.choice(["scale", "shift", "power", "einsum", "normed", "matmul"]), d)
    if kind == 3:
        return Do(r.choice(VECTOR_GLUE))
    if kind == 4:
        h = r.choice([3, 2 * d])
        return nn.Sequential(nn.Linear(d, h), pointwise(r), nn.Linear(h, d))
    if kind == 5:
        return nn.Sequential(nn.Linear(d, 2 * d), nn.GLU(-1))
    if kind == 6:
        return branches(r, vector_layer, d)
    if kind == 7:
        return RmsNorm(d) if r.random() < 0.5 else nn.PReLU()
    return pointwise(r)


def vectors(r):
    i, d, o = r.choice([3, 5, 12]), r.choice([6, 8, 12]), r.choice([2, 4, 7])
    norm = [nn.BatchNorm1d(d)] if r.random() < 0.3 else []
    net = nn.Sequential(nn.Linear(i, d), *norm, *(vector_layer(r, d) for _ in range(r.randrange(2, 6))), nn.Linear(d, o))
    return net, (lambda b: pixels(b, i)), (o,), 1


class Attend(nn.Module):
    def __init__(self, r, d):
        super().__init__()
        self.h, self.how, self.causal = r.choice([1, 2]), r.choice(["sdpa", "written", "mask"]), r.random() < 0.5
        self.qkv, self.out = nn.Linear(d, 3 * d, bias=r.random() < 0.5), nn.Linear(d, d)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.h, d // self.h).permute(2, 0, 3, 1, 4)
        if self.how == "sdpa":
            y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        else:
            s = q @ k.transpose(-1, -2) * (d // self.h) ** -0.5
            if self.how == "mask":
                s = s.masked_fill(torch.ones(t, t).triu(1).bool(), float("-inf"))
            y = s.softmax(-1) @ v
        return self.out(y.transpose(1, 2).reshape(b, t, d))


class Recurrent(nn.Module):
    def __init__(self, r, d):
        super().__init__()
        two = r.random() < 0.4
        kind = r.choice([nn.LSTM, nn.GRU, nn.RNN])
        self.rnn = kind(d, d // 2 if two else d, r.choice([1, 1, 2]), batch_first=True, bidirectional=two, bias=r.random() < 0.8)

    def forward(self, x):
        return self.rnn(x)[0]


class Along(nn.Module):
    """A layer that expects (batch, width, length)."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x.transpose(1, 2)).transpose(1, 2)


def sequence_layer(r, d):
    kind = r.randrange(8)
    if kind == 0:
        return Around("add", nn.Sequential(nn.LayerNorm(d), Attend(r, d)), nn.Identity(), -1)
    if kind == 1:
        return Recurrent(r, d)
    if kind == 2:
        k = r.choice([2, 3, 5])
        return Along(nn.Sequential(nn.ConstantPad1d((k - 1, 0), 0.0), nn.Conv1d(d, d, k, groups=r.choice([1, 2, d]))))
    if kind == 3:
        return Along(r.choice([nn.GroupNorm(2, d), nn.InstanceNorm1d(d, affine=True), nn.BatchNorm1d(d)]))
    if kind == 4:
        return Do(r.choice([lambda x: x - x.mean(1, keepdim=True), lambda x: x.cumsum(1) * 0.3, lambda x: x.flip(1), lambda x: x + x.roll(1, 1), lambda x: x * x.softmax(1),
                            lambda x: torch.cat([x[:, 1:], x[:, :1]], 1), lambda x: x + x.amax(1, keepdim=True), lambda x: x + torch.einsum("btd,bsd->bts", x, x).softmax(-1) @ x,
                            lambda x: x + torch.bmm(x, x.transpose(1, 2)).tanh() @ x * 0.2, lambda x: x + torch.linspace(0, 1, x.shape[1])[None, :, None]]))
    if kind == 5:
        return Around("add", nn.Sequential(nn.LayerNorm(d), nn.Linear(d, 2 * d), nn.GELU(approximate=r.choice(["none", "tanh"])), nn.Linear(2 * d, d)), nn.Identity(), -1)
    if kind == 6:
        return nn.TransformerEncoderLayer(d, 2, 2 * d, 0.0, batch_first=True, norm_first=r.random() < 0.5, activation=r.choice(["relu", "gelu"]))
    return vector_layer(r, d)


def sequences(r):
    d, t, o, tokens = 8, r.choice([4, 7]), r.choice([3, 5]), r.random() < 0.6
    first = nn.Embedding(20, d) if tokens else nn.Linear(5, d)
    body = [sequence_layer(r, d) for _ in range(r.randrange(1, 5))]
    head = r.randrange(4)
    pool = [[], [Do(lambda x: x[:, -1])], [Do(lambda x: x.mean(1))], [Do(lambda x: x.amax(1))]][head]
    net = nn.Sequential(first, *body, *pool, nn.Linear(d, o))
    return net, (lambda b: classes(20, b, t) if tokens else pixels(b, t, 5)), ((t, o) if head == 0 else (o,)), (2 if head == 0 else 1)


def image_layer(r, c):
    kind = r.randrange(10)
    if kind < 3:
        k, dilation = r.choice([(1, 1), (3, 1), (3, 2), (5, 1)])
        conv = nn.Conv2d(c, c, k, padding=dilation * (k // 2), dilation=dilation, groups=r.choice([1, 1, 2, c]), bias=r.random() < 0.6,
                         padding_mode=r.choice(["zeros", "zeros", "reflect", "replicate", "circular"]))
        norm = r.choice([nn.BatchNorm2d(c), nn.BatchNorm2d(c), nn.GroupNorm(2, c), nn.InstanceNorm2d(c, affine=True), nn.Identity(), nn.Identity()])
        return nn.Sequential(conv, norm, pointwise(r))
    if kind == 3:
        return Around(r.choice(["add", "gate"]), image_layer(r, c), nn.Conv2d(c, c, 1), 1)
    if kind == 4:
        return nn.Sequential(Around("join", nn.Conv2d(c, c, 3, padding=1), nn.Identity(), 1), nn.Conv2d(2 * c, c, 1))
    if kind == 5:
        squeeze = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(c, 2, 1), nn.ReLU(), nn.Conv2d(2, c, 1))
        return Around("gate", nn.Identity(), squeeze, 1)
    if kind == 6:
        return r.choice([nn.MaxPool2d(3, 1, 1), nn.AvgPool2d(3, 1, 1, count_include_pad=r.random() < 0.5), nn.LocalResponseNorm(3), nn.PReLU(c)])
    if kind == 7:
        scale = r.choice([lambda x: F.interpolate(x, scale_factor=2, mode="nearest"), lambda x: F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False),
                          lambda x: F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=True), lambda x: F.interpolate(x, scale_factor=2, mode="bicubic")])
        return nn.Sequential(Do(scale), r.choice([nn.AvgPool2d(2), nn.MaxPool2d(2), nn.Conv2d(c, c, 2, 2), nn.Conv2d(c, c, 3, 2, 1)]))
    if kind == 8:
        return nn.Sequential(nn.PixelUnshuffle(2), nn.Conv2d(4 * c, 4 * c, 1, groups=4), nn.PixelShuffle(2))
    return r.choice([Do(lambda x: x.transpose(2, 3)), Do(lambda x: x.flip(3)), Do(lambda x: x.roll((1, -1), (2, 3))), Do(lambda x: F.pad(x[:, :, 1:-1, 1:-1], (1, 1, 1, 1), "reflect")),
                     Do(lambda x: x - x.mean((2, 3), keepdim=True)), Do(lambda x: x * x.flatten(2).softmax(-1).view_as(x)), pointwise(r),
                     nn.Sequential(nn.ChannelShuffle(2), pointwise(r))])


def images(r):
    c, size, o = r.choice([4, 6]), r.choice([6, 8]), r.choice([2, 5])
    first = nn.Conv2d(r.choice([1, 3]), c, 3, padding=1)
    body = [image_layer(r, c) for _ in range(r.randrange(1, 5))]
    dense = r.random() < 0.3
    down = r.choice([nn.MaxPool2d(2), nn.AvgPool2d(2), nn.MaxPool2d(3, 2, 1), nn.MaxPool2d(3, 2, ceil_mode=True), nn.Conv2d(c, c, 3, 2, 1)])
    if dense:
        up = r.choice([nn.ConvTranspose2d(c, c, 2, 2), nn.ConvTranspose2d(c, c, 4, 2, 1), nn.Upsample(scale_factor=2), nn.ConvTranspose2d(c, c, 3, 2, 1, 1)])
        middle = Around("add", nn.Sequential(nn.MaxPool2d(2), image_layer(r, c), up), nn.Identity(), 1)
        net = nn.Sequential(first, *body, middle, nn.Conv2d(c, o, 1))
        return net, (lambda b: pixels(b, first.in_channels, size, size)), (o, size, size), 1
    pool = r.choice([[nn.AdaptiveAvgPool2d(1), nn.Flatten()], [nn.AdaptiveMaxPool2d(1), nn.Flatten()], [Do(lambda x: x.mean((2, 3)))], [Do(lambda x: x.amax((2, 3)))],
                     [Do(lambda x: x.flatten(2).logsumexp(-1))], [Do(lambda x: x.flatten(2).std(-1))]])
    return nn.Sequential(first, *body, down, *pool, nn.Linear(c, o)), (lambda b: pixels(b, first.in_channels, size, size)), (o,), 1


RATES = dict(sgd=0.05, momentum=0.02, nesterov=0.02, adam=0.005, adamw=0.005, rmsprop=0.002, adagrad=0.02, adadelta=0.5, adamax=0.005, lamb=0.01)


def recipe(r):
    kind = r.choice(list(RATES))
    options = dict(lr=RATES[kind])
    if r.random() < 0.5:
        options["weight_decay"] = r.choice([0.01, 0.1])
    if kind in ("adam", "adamw") and r.random() < 0.3:
        options["amsgrad"] = True
    if kind in ("adam", "adamw", "lamb") and r.random() < 0.3:
        options |= dict(betas=[0.8, 0.95], eps=1e-5)
    if kind == "rmsprop":
        options |= dict(centered=r.random() < 0.3, momentum=r.choice([0.0, 0.8]), eps=1e-5)
    if r.random() < 0.3:
        options["groups"] = "no_decay_1d"
    accumulation = r.choice([1, 1, 1, 2, 3])
    steps = 6
    return dict(optimizer=optimizer(kind, **options), grad_accumulation=accumulation, clip_grad_norm=r.choice([None, None, 0.5, 2.0]), steps=steps,
                lr_schedule=[1 - 0.15 * (k // accumulation) for k in range(steps)] if r.random() < 0.3 else None)


def loss(r, out, axis):
    """The terms and a function that creates their targets; `axis` is the class axis."""
    n, last = out[axis - 1], axis == len(out) and len(out) > 1
    labels = lambda b: classes(n, b, *(s for k, s in enumerate(out) if k != axis - 1))
    place = dict(class_axis=-1) if last else {}
    kind = r.randrange(7)
    if kind < 3:
        options = dict(place)
        if r.random() < 0.3:
            options["label_smoothing"] = 0.1
        if r.random() < 0.3:
            options["class_weight"] = [0.5 + 0.25 * k for k in range(n)]
        if r.random() < 0.3:
            options["ignore_index"] = 1
        if r.random() < 0.15:
            options |= dict(reduction="sum", weight=0.1)
        return [term("cross_entropy", **options)], labels
    if kind == 3:
        return [term(r.choice(["mse", "l1", "huber", "smooth_l1"]))], lambda b: pixels(b, *out)
    if kind == 4:
        return [term("bce_with_logits")], lambda b: torch.randint(0, 2, (b, *out)).float()
    if kind == 5:
        return [term("mse", weight=0.3), term("output", target=None, weight=0.05)], lambda b: pixels(b, *out)
    return [term("huber", delta=0.5), term("smooth_l1", beta=0.3, weight=0.5)], lambda b: pixels(b, *out)


FAMILIES = dict(vectors=vectors, sequences=sequences, images=images)


def case(number):
    name = f"random_{number}"
    r = random.Random(zlib.crc32(name.encode()))
    family = r.choice(list(FAMILIES))
    shape_seed = r.randrange(1 << 30)
    made = lambda: FAMILIES[family](random.Random(shape_seed))
    net, x, out, axis = made()
    terms, y = loss(r, out, axis)
    exporter, opset, optimize, mode, dynamic = r.choice(STYLES)
    statistics = any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in net.modules())
    if statistics:  # otherwise the exporters fold it
        optimize = False
    options = recipe(r)
    if options["optimizer"]["type"] == "lamb" or "groups" in options["optimizer"]:
        # the optimizer depends on ranks and norms of tensors: a folded file has a bias with other extents, or several weights as one
        optimize = False
    sizes = [r.choice([4, 6]) if dynamic and k else 6 for k in range(options["steps"])] if r.random() < 0.4 else None
    return Case(name, lambda: made()[0], lambda b: {"x": x(b), "y": y(b)}, terms, exporter=exporter, opset=opset, optimize=optimize, mode=mode, dynamic_batch=dynamic,
                semantics=r.choice(["train", "as_graph"]) if statistics and mode == "eval" else "as_graph", external_data=r.random() < 0.1 and exporter == "dynamo",
                batch_size=6, batch_sizes=sizes, may_rest=True, notes=family, **options)


def cases():
    first = int(os.environ.get("random_FIRST", 0))
    for number in range(first, first + int(os.environ.get("random_COUNT", 100))):
        yield case(number)
