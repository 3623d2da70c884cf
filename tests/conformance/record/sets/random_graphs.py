"""Random graphs instead of chains: each step takes any previous values, often one twice, and weights that others have used as well. Parts
are split and joined in other orders, products and scores share their operands, norms their scales, so the patterns that a compiler knows
occur with additional readers. As in `random_nets`, the environment variables `random_FIRST` and `random_COUNT` select the numbers, and
nothing is kept in `recorded/`."""
import os
import random
import zlib

import torch
import torch.nn as nn
import torch.nn.functional as F

from case import Case, pixels
from sets.everyday import recipe
from sets.random_mixes import small
from sets.random_nets import loss
from styles import STYLES
from zoo import settled

SMOOTH = [F.gelu, F.silu, torch.tanh, torch.sigmoid, torch.relu, F.softplus, torch.sin, lambda x: x * x, lambda x: x.abs().add(0.1).sqrt(), lambda x: x.neg(), lambda x: x * 0.5, lambda x: x + 0.1, lambda x: (-x.abs()).exp(),
          lambda x: x.clamp(-1, 1), lambda x: x.abs().add(1).reciprocal(), lambda x: x.square().mul(0.3), lambda x: 1 - x, lambda x: x / 2, lambda x: x.abs().add(1).log()]
T, D = 4, 6


def halves(x, axis):
    return x.chunk(2, axis)


# [batch, T, D] of one or two such values and the model's weights
ONE = [
    lambda s, x: torch.cat(halves(x, -1)[::-1], -1), lambda s, x: torch.cat([-halves(x, -1)[1], halves(x, -1)[0]], -1), lambda s, x: torch.cat([x[..., :2], x[..., 2:]], -1), lambda s, x: torch.stack(x.unbind(1)[::-1], 1),
    lambda s, x: torch.cat([x[:, 1:], x[:, :1]], 1), lambda s, x: halves(x, -1)[0].repeat(1, 1, 2), lambda s, x: F.glu(torch.cat([x, x], -1), -1), lambda s, x: x.flip(1), lambda s, x: x.transpose(1, 2).reshape(x.shape),
    lambda s, x: x.view(-1, T, 2, D // 2).transpose(2, 3).flatten(2), lambda s, x: x.unflatten(-1, (2, -1)).flip(-2).flatten(-2), lambda s, x: x[:, [2, 0, 1, 3]], lambda s, x: x[:, :, [5, 4, 3, 2, 1, 0]],
    lambda s, x: x.softmax(-1), lambda s, x: x.softmax(1), lambda s, x: x.log_softmax(-1) * 0.3, lambda s, x: x - x.mean(-1, keepdim=True), lambda s, x: x - x.mean(1, keepdim=True), lambda s, x: x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-3),
    lambda s, x: x.cumsum(1) * 0.3, lambda s, x: x.amax(1, keepdim=True).expand_as(x), lambda s, x: x.sum(-1, keepdim=True) * 0.2 + x, lambda s, x: F.layer_norm(x, (D,), s.g, s.b), lambda s, x: F.layer_norm(x, (D,)),
    lambda s, x: (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True, unbiased=False) + 1e-3).sqrt() * s.g + s.b, lambda s, x: x @ s.w, lambda s, x: x @ s.w.t(), lambda s, x: x @ s.v + s.b, lambda s, x: F.linear(x, s.v, s.b),
    lambda s, x: F.linear(F.gelu(F.linear(x, s.up)), s.down), lambda s, x: F.linear(F.relu(F.linear(x, s.up, s.c)), s.down, s.b), lambda s, x: x * s.g, lambda s, x: x + s.b, lambda s, x: x + s.g, lambda s, x: s.g * x + s.g,
    lambda s, x: F.conv1d(x.transpose(1, 2), s.filters, padding=1).transpose(1, 2), lambda s, x: F.conv1d(F.pad(x, (1, 1)), s.along, s.e), lambda s, x: x.masked_fill(x > 0.5, 0.2), lambda s, x: torch.where(x > 0, x, 0.2 * x),
    lambda s, x: torch.stack([x[:, k] * (k + 1) * 0.3 for k in range(T)], 1), lambda s, x: torch.stack([x[:, 0], x[:, 0], x[:, 1], x[:, 3]], 1), lambda s, x: F.pad(x[:, :-1], (0, 0, 1, 0)), lambda s, x: x + torch.einsum("btd,de->bte", x, s.w),
    lambda s, x: x.roll(1, 1), lambda s, x: torch.cat([x[:, ::2], x[:, 1::2]], 1), lambda s, x: x.view(-1, T * D).view(-1, T, D), lambda s, x: x.unsqueeze(1).repeat(1, 2, 1, 1).mean(1), lambda s, x: torch.split(x, [1, 2, 1], 1)[1].repeat(1, 2, 1),
    lambda s, x: F.group_norm(x.transpose(1, 2), 2, s.g, s.b).transpose(1, 2), lambda s, x: F.instance_norm(x), lambda s, x: F.normalize(x, dim=-1), lambda s, x: x.gather(1, x.argsort(1)), lambda s, x: x.topk(T, 1).values,
]
TWO = [
    lambda s, x, y: x + y, lambda s, x, y: x + y, lambda s, x, y: x - y, lambda s, x, y: x * y, lambda s, x, y: x * torch.sigmoid(y), lambda s, x, y: torch.maximum(x, y), lambda s, x, y: x / (y.abs() + 1), lambda s, x, y: torch.where(x > y, x, y * 0.5),
    lambda s, x, y: torch.cat([halves(x, -1)[0], halves(y, -1)[0]], -1), lambda s, x, y: torch.cat([x[:, :2], y[:, 2:]], 1), lambda s, x, y: F.linear(torch.cat([x, y], -1), s.join, s.b), lambda s, x, y: (x @ y.transpose(1, 2)).softmax(-1) @ x,
    lambda s, x, y: ((x @ s.w) @ (y @ s.w).transpose(1, 2) * 0.4).softmax(-1) @ (y @ s.v), lambda s, x, y: F.scaled_dot_product_attention(x, y, y), lambda s, x, y: F.scaled_dot_product_attention(x, x, y, is_causal=True),
    lambda s, x, y: (lambda a: (a + a).softmax(-1) @ y + a @ x)(x @ y.transpose(1, 2) * 0.3), lambda s, x, y: (lambda p: p @ x + p.transpose(1, 2) @ y)((x @ y.transpose(1, 2)).softmax(-1)), lambda s, x, y: torch.addcmul(x, x, y, value=0.5),
    lambda s, x, y: (x @ y.transpose(1, 2)).tril() @ x * 0.2, lambda s, x, y: x.mean(1, keepdim=True) * y, lambda s, x, y: F.relu(x @ s.w + y @ s.w + s.b), lambda s, x, y: torch.lerp(x, y, 0.3), lambda s, x, y: F.linear(x, s.w) * F.linear(y, s.w),
    lambda s, x, y: torch.stack([x, y, x], 0).mean(0), lambda s, x, y: F.layer_norm(x + y, (D,), s.g, s.b) + (x + y), lambda s, x, y: (lambda h: h + F.linear(F.gelu(F.linear(F.layer_norm(h, (D,), s.g, s.b), s.up, s.c)), s.down, s.b))(x + y),
    lambda s, x, y: torch.einsum("btd,bsd,bse->bte", x, y, y) * 0.1, lambda s, x, y: x.cos() * y + torch.cat([-halves(y, -1)[1], halves(y, -1)[0]], -1) * x.sin(), lambda s, x, y: torch.min(x, y) + torch.max(x, y), lambda s, x, y: torch.bmm(x, y.transpose(1, 2)) @ y * 0.2,
]


class Graph(nn.Module):
    def __init__(self, r):
        super().__init__()
        for name, shape in dict(w=(D, D), v=(D, D), up=(2 * D, D), down=(D, 2 * D), join=(D, 2 * D), filters=(D, D, 3), along=(T, T, 3)).items():
            setattr(self, name, nn.Parameter(small(*shape)))
        for name, n in dict(b=D, c=2 * D, e=T).items():
            setattr(self, name, nn.Parameter(small(n)))
        self.g = nn.Parameter(1 + small(D))
        self.plan, n = [], 1
        for _ in range(r.randrange(3, 9)):
            kind, recent = r.random(), lambda: max(0, n - 1 - int(r.expovariate(0.6)))
            a = recent()
            b = a if r.random() < 0.4 else recent()
            self.plan.append((r.choice(SMOOTH), [a]) if kind < 0.2 else (r.choice(ONE), [a]) if kind < 0.6 else (r.choice(TWO), [a, b]))
            n += 1
        self.kept = [n - 1, recent(), recent()][: r.choice([1, 1, 2, 3])]
        self.pooled = r.random() < 0.5
        self.head = nn.Linear(D, 3)

    def forward(self, x):
        values = [x]
        for f, places in self.plan:
            made = [values[k] for k in places]
            values.append(f(made[0]) if f in SMOOTH else f(self, *made))
        total = values[self.kept[0]]
        for k in self.kept[1:]:
            total = total + values[k]
        return self.head(total.mean(1) if self.pooled else total)


def case(number):
    name = f"graph_{number}"
    r = random.Random(zlib.crc32(name.encode()))
    seed = r.randrange(1 << 30)
    net = Graph(random.Random(seed))
    out, axis = ((3,), 1) if net.pooled else ((T, 3), 2)
    terms, y = loss(r, out, axis)

    def whole():
        return settled(nn.Sequential(nn.Linear(5, D), Graph(random.Random(seed))), {"x": pixels(6, T, 5)}, ("x",))

    exporter, opset, optimize, mode, dynamic = r.choice([s for s in STYLES if s[0] == "legacy" and s[1] > 13] if r.random() < float(os.environ.get("random_LEGACY", 0.7)) else [s for s in STYLES if s[0] == "dynamo"])
    options = recipe(r)
    if options["optimizer"]["type"] == "lamb" or "groups" in options["optimizer"]:
        optimize = False
    sizes = [r.choice([4, 6]) if dynamic and k else 6 for k in range(options["steps"])] if r.random() < 0.4 else None
    return Case(name, whole, lambda b: {"x": pixels(b, T, 5), "y": y(b)}, terms, exporter=exporter, opset=opset, optimize=optimize, mode=mode, dynamic_batch=dynamic, batch_size=6, batch_sizes=sizes, may_rest=True, notes="graph", **options)


def cases():
    first = int(os.environ.get("random_FIRST", 0))
    for number in range(first, first + int(os.environ.get("random_COUNT", 100))):
        yield case(number)
