"""Random models of realistic sizes: channels and widths that fill vectors and some that do not, images and sequences of odd extents,
filters of all forms, batches from 1 to 33. The other random sets are only a few elements wide, which fast kernels leave to plain ones. The
environment variables `random_FIRST` and `random_COUNT` select the numbers as in `random_nets`; nothing is kept."""
import os
import random
import zlib

import torch
import torch.nn as nn
import torch.nn.functional as F

from case import Case, classes, pixels, term
from sets import random_nets
from sets.everyday import recipe
from sets.random_nets import Around, Do

WIDTHS = [3, 7, 8, 12, 16, 20, 24, 31, 32, 33, 40, 48, 64]
ACTS = [nn.ReLU, nn.ReLU, nn.SiLU, nn.GELU, nn.Tanh, nn.Hardswish, nn.ReLU6, lambda: nn.LeakyReLU(0.1), nn.Identity]


def norm(r, c, n):
    batch = {1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d}[n]
    instance = {1: nn.InstanceNorm1d, 2: nn.InstanceNorm2d, 3: nn.InstanceNorm3d}[n]
    return r.choice([batch(c), batch(c), batch(c, momentum=0.3), nn.GroupNorm(next(g for g in (4, 3, 2, 1) if c % g == 0), c), instance(c, affine=True), nn.Identity(), nn.Identity()])


def convolution(r, i, o, n):
    layer = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}[n]
    k = [r.choice([1, 2, 3, 3, 3, 5, 7] if n < 3 else [1, 2, 3]) for _ in range(n)] if r.random() < 0.3 else [r.choice([1, 1, 3, 3, 3, 3, 5, 7] if n < 3 else [1, 3, 3])] * n
    dilation = [r.choice([1, 1, 1, 2]) if max(k) <= 3 else 1] * n
    stride = [r.choice([1, 1, 1, 2, 3]) for _ in range(n)] if r.random() < 0.2 else [r.choice([1, 1, 1, 2])] * n
    padding = [r.choice([d * (q - 1) // 2, d * (q - 1) // 2, 0, 1, 2]) for q, d in zip(k, dilation)]
    groups = r.choice([g for g in (1, 1, 1, 1, 2, 4, i, i) if i % g == 0 and o % g == 0] or [1])
    return layer(i, o, tuple(k), tuple(stride), tuple(padding), tuple(dilation), groups, r.random() < 0.6)


def transposed(r, i, o, n):
    layer = {1: nn.ConvTranspose1d, 2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}[n]
    k, s = r.choice([(2, 2), (4, 2), (3, 2), (3, 1), (5, 3)])
    groups = r.choice([g for g in (1, 1, 2, 4, i) if i % g == 0 and o % g == 0] or [1])
    return layer(i, o, k, s, r.choice([0, (k - s + 1) // 2]), r.choice([0, s - 1]), groups, r.random() < 0.6)


def pooling(r, n):
    most, mean = {1: (nn.MaxPool1d, nn.AvgPool1d), 2: (nn.MaxPool2d, nn.AvgPool2d), 3: (nn.MaxPool3d, nn.AvgPool3d)}[n]
    k = r.choice([2, 3])
    padding, ceil = r.choice([0, 1]), r.random() < 0.3
    return most(k, r.choice([1, 2, 3]), padding, ceil_mode=ceil) if r.random() < 0.5 else mean(k, r.choice([1, 2, 3]), padding, ceil, r.random() < 0.5)


def space(r, n):
    c = r.choice([1, 3, 3, 4, 16])
    extents = [r.choice({1: [15, 32, 50], 2: [7, 9, 13, 16, 17, 28, 32], 3: [4, 6, 9]}[n]) for _ in range(n)]
    x, layers, first = torch.zeros(2, c, *extents), [], c
    for _ in range(r.choice([1, 2, 2, 3])):
        o = r.choice(WIDTHS)
        kind = r.random()
        if kind < 0.6:
            made = [convolution(r, c, o, n), norm(r, o, n), r.choice(ACTS)()]
        elif kind < 0.7:
            made = [transposed(r, c, o, n), norm(r, o, n), r.choice(ACTS)()]
        elif kind < 0.8:
            made, o = [pooling(r, n)], c
        elif kind < 0.9:
            wide = r.choice([c, 2 * c])
            inner = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}[n]
            made, o = [Around("add", nn.Sequential(inner(c, wide, 1, bias=False), norm(r, wide, n), nn.ReLU6(), inner(wide, wide, 3, 1, 1, groups=wide, bias=False), norm(r, wide, n), nn.ReLU(), inner(wide, c, 1)), nn.Identity(), 1)], c
        else:
            inner = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}[n]
            made, o = [Around("join", inner(c, r.choice([5, 8, 16]), 3, padding=1), nn.Identity(), 1)], None
        try:
            with torch.no_grad():
                y = nn.Sequential(*made).eval()(x)
        except RuntimeError:
            continue
        if y.numel() > 120000 or min(y.shape) == 0:
            continue
        x, c, layers = y, y.shape[1], layers + made
    out = r.choice([2, 5, 10])
    if r.random() < 0.3 and x[0, 0].numel() <= 400:
        last = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}[n](c, out, 1)
        return nn.Sequential(*layers, last), (lambda b: pixels(b, first, *extents)), (out, *x.shape[2:]), 1
    pool = r.choice([[Do(lambda x: x.flatten(2).mean(2))], [Do(lambda x: x.flatten(2).amax(2))], [nn.Flatten()]])
    with torch.no_grad():
        width = nn.Sequential(*pool)(x).shape[1]
    if width > 6000:
        pool, width = [Do(lambda x: x.flatten(2).mean(2))], c
    return nn.Sequential(*layers, *pool, nn.Linear(width, out)), (lambda b: pixels(b, first, *extents)), (out,), 1


class Block(nn.Module):
    """Multi-head attention and a layer, with pre-norm or post-norm."""

    def __init__(self, r, d):
        super().__init__()
        self.heads, self.causal, self.fused = r.choice([h for h in (1, 2, 4, 8) if d % h == 0]), r.random() < 0.5, r.random() < 0.5
        self.a, self.b = (nn.LayerNorm(d), nn.LayerNorm(d)) if r.random() < 0.6 else (random_nets.RmsNorm(d), random_nets.RmsNorm(d))
        self.qkv, self.out = nn.Linear(d, 3 * d, bias=r.random() < 0.6), nn.Linear(d, d)
        self.mlp = nn.Sequential(nn.Linear(d, 2 * d), r.choice(ACTS)(), nn.Linear(2 * d, d))

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.a(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        if self.fused:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        else:
            score = q @ k.transpose(-2, -1) * (d // self.heads) ** -0.5
            y = (score + torch.full((t, t), -1e9).triu(1) if self.causal else score).softmax(-1) @ v
        x = x + self.out(y.transpose(1, 2).reshape(b, t, d))
        return x + self.mlp(self.b(x))


class Recurrent(nn.Module):
    def __init__(self, r, d):
        super().__init__()
        both = r.random() < 0.4
        self.net = r.choice([nn.LSTM, nn.GRU, nn.RNN])(d, d if not both else d // 2, r.choice([1, 2]), batch_first=True, bidirectional=both)

    def forward(self, x):
        return self.net(x)[0]


def sequence(r):
    d, t, out, tokens = r.choice([16, 24, 32, 48, 64, 80]), r.choice([5, 9, 16, 17, 33]), r.choice([3, 7, 40]), r.random() < 0.5
    layers = [nn.Embedding(50, d) if tokens else nn.Linear(13, d)]
    for _ in range(r.choice([1, 2])):
        layers.append(r.choice([lambda: Block(r, d), lambda: Block(r, d), lambda: Recurrent(r, d), lambda: nn.TransformerEncoderLayer(d, 4, 2 * d, 0.0, batch_first=True, norm_first=r.random() < 0.5)])())
    inputs = (lambda b: classes(50, b, t)) if tokens else (lambda b: pixels(b, t, 13))
    if r.random() < 0.5:
        return nn.Sequential(*layers, nn.Linear(d, out)), inputs, (t, out), 2
    return nn.Sequential(*layers, r.choice([Do(lambda x: x[:, -1]), Do(lambda x: x.mean(1))]), nn.Linear(d, out)), inputs, (out,), 1


def table(r):
    widths = [r.choice([5, 13, 30]), *(r.choice([17, 64, 100, 129, 256]) for _ in range(r.choice([1, 2, 3])))]
    layers = []
    for a, b in zip(widths, widths[1:]):
        layers += [nn.Linear(a, b, bias=r.random() < 0.8), r.choice([nn.BatchNorm1d(b), nn.LayerNorm(b), nn.Identity(), nn.Identity()]), r.choice(ACTS)()]
    out = r.choice([1, 2, 10, 33])
    return nn.Sequential(*layers, nn.Linear(widths[-1], out)), (lambda b: pixels(b, widths[0])), (out,), 1 if out > 1 else 0


FAMILIES = [lambda r: space(r, 2), lambda r: space(r, 2), lambda r: space(r, 2), lambda r: space(r, 1), lambda r: space(r, 3), sequence, sequence, table]


def case(number):
    name = f"wide_{number}"
    r = random.Random(zlib.crc32(name.encode()))
    family, seed = r.choice(FAMILIES), r.randrange(1 << 30)
    net, x, out, axis = family(random.Random(seed))
    terms, y = random_nets.loss(r, out, axis) if axis else ([term(r.choice(["mse", "l1", "huber", "smooth_l1"]))], lambda b: pixels(b, *out))
    statistics = any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in net.modules())
    legacy = r.random() < 0.85
    opset, mode, optimize, dynamic = (r.choice([11, 13, 16, 17, 18, 20]) if legacy else r.choice([18, 20, 23, 25])), r.choice(["train", "eval"]), not statistics and r.random() < 0.5, r.random() < 0.5
    options = recipe(r)
    options |= dict(steps=3 * options["grad_accumulation"])
    options["lr_schedule"] = options["lr_schedule"] and options["lr_schedule"][: options["steps"]]
    options["optimizer"]["lr"] *= 0.3
    if options["optimizer"]["type"] == "lamb" or "groups" in options["optimizer"]:
        optimize = False
    batch = r.choice([1, 2, 3, 8, 16, 17, 33])
    if statistics and batch < 8:
        batch = 8
    sizes = [batch if not k else r.choice([batch, max(1, batch - 3)]) for k in range(options["steps"])] if dynamic else None
    return Case(name, lambda: family(random.Random(seed))[0], lambda b: {"x": x(b), "y": y(b)}, terms, exporter="legacy" if legacy else "dynamo", opset=opset, optimize=optimize, mode=mode, dynamic_batch=dynamic,
                semantics=r.choice(["train", "as_graph"]) if statistics and mode == "eval" else "as_graph", batch_size=batch, batch_sizes=sizes, may_rest=True, **options)


def cases():
    first = int(os.environ.get("random_FIRST", 0))
    for number in range(first, first + int(os.environ.get("random_COUNT", 100))):
        yield case(number)
