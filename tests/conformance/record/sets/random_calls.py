"""One or two PyTorch functions between two layers, with random arguments: paddings, strides, axes, modes, equations, shapes of constants.
As in `random_nets`, the environment variables `random_FIRST` and `random_COUNT` select the numbers, and nothing is kept in `recorded/`."""
import os
import random
import string
import zlib

import torch
import torch.nn as nn
import torch.nn.functional as F

from case import Case, classes, pixels, term
from sets.random_mixes import With, small
from sets.random_nets import Do, pointwise, recipe
from styles import STYLES

MORE = [("dynamo", 18, True, "eval", False), ("dynamo", 19, False, "train", False), ("dynamo", 21, False, "train", True), ("dynamo", 24, True, "train", False), ("legacy", 9, False, "eval", False),
        ("legacy", 10, True, "train", True), ("legacy", 12, False, "train", False), ("legacy", 16, True, "train", True), ("legacy", 19, False, "eval", True)]


# Each takes r and the shape of one sample (without the batch) and returns a module, or None if it does not support such a shape.


def pad(r, s):
    n = len(s) - 1
    mode = r.choice(["constant", "constant", "reflect", "replicate", "circular"])
    if mode != "constant" and n not in (1, 2, 3):
        return None
    amounts = []
    for extent in reversed(s[1:]):
        least = -1 if mode == "constant" and extent > 3 else 0
        amounts += [r.randint(least, min(3, extent - 1)), r.randint(least, min(3, extent - 1))]
    if mode == "constant":
        amounts = amounts[: 2 * r.randint(1, n)]
        value = r.choice([0.0, 0.0, 0.5, -1.0])
        return Do(lambda x: F.pad(x, amounts, mode, value))
    return Do(lambda x: F.pad(x, amounts, mode))


def padded_convolution(r, s):
    if len(s) not in (2, 3, 4):
        return None
    n, k = len(s) - 1, r.choice([1, 2, 3])
    amounts = [r.randint(0, 4) for _ in range(2 * n)]
    layer = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}[n](s[0], 4, k, stride=r.choice([1, 2]), padding=r.choice([0, 1]), dilation=r.choice([1, 1, 2]), bias=r.random() < 0.5, groups=r.choice([1, s[0] if 4 % s[0] == 0 else 1]))
    f = lambda m, x: m.layer(F.pad(x, amounts))
    both = r.random() < 0.3  # something else reads the padded value
    return With((lambda m, x: m.layer(F.pad(x, amounts)) + F.pad(x, amounts).mean()) if both else f, layer=layer)


def resized(r, s):
    if len(s) not in (2, 3, 4):
        return None
    n = len(s) - 1
    modes = {1: ["nearest", "linear", "area", "nearest-exact"], 2: ["nearest", "bilinear", "bicubic", "area", "nearest-exact", "antialias"], 3: ["nearest", "trilinear", "area", "nearest-exact"]}[n]
    mode = r.choice(modes)
    options = {}
    if mode == "antialias":
        mode, options = r.choice(["bilinear", "bicubic"]), dict(antialias=True)
    if mode in ("linear", "bilinear", "trilinear", "bicubic"):
        options["align_corners"] = r.random() < 0.4 and "antialias" not in options
    if r.random() < 0.5:
        options["size"] = tuple(max(1, extent + r.randint(-3, 5)) for extent in s[1:])
    else:
        options["scale_factor"] = r.choice([0.5, 1.2, 1.5, 2.0, 2.3, 0.7, 3.0, 1.4, 0.3334]) if r.random() < 0.5 else tuple(r.choice([0.5, 0.8, 1.0, 1.5, 1.7, 2.0, 0.6]) for _ in range(n))
        if r.random() < 0.3:
            options["recompute_scale_factor"] = True
    return Do(lambda x: F.interpolate(x, mode=mode, **options))


def einsum(r, s):
    """x with one or two weights, axes in any order, some summed, some in one operand only."""
    letters = string.ascii_lowercase[1:]
    axes = letters[: len(s)]
    new = letters[len(s): len(s) + 2]
    extent = dict(zip(axes, s)) | {c: r.choice([2, 3]) for c in new}
    batch, dots = r.choice([("a", ""), ("a", ""), ("...", "...")]) if r.random() < 0.8 else ("a", "")
    count = r.choice([1, 1, 2])
    weights, terms = [], []
    for k in range(count):
        own = [c for c in axes + (new if r.random() < 0.8 else "") if r.random() < 0.5] or [axes[-1]]
        r.shuffle(own)
        shape = [1 if r.random() < 0.1 else extent[c] for c in own]
        weights.append(small(*shape)), terms.append("".join(own))
    seen = list(dict.fromkeys("".join(terms) + axes))
    out = [c for c in seen if r.random() < 0.6] or [seen[0]]
    r.shuffle(out)
    place = r.randint(0, len(out)) if batch == "a" else 0
    result = "".join(out[:place]) + batch + "".join(out[place:])
    x_first = r.random() < 0.6
    all_terms = [batch + axes, *terms] if x_first else [*terms, batch + axes]
    equation = ",".join(all_terms) + "->" + result
    twice = r.random() < 0.2 and batch == "a" and x_first

    def run(m, x):
        operands = [x, *m.weights] if x_first else [*m.weights, x]
        e = equation
        if twice:
            operands, e = [x, *operands], equation.split("->")[0].split(",")[0] + "," + equation
        y = torch.einsum(e, operands)
        return y.movedim(result.index("a"), 0) if batch == "a" else y

    return With(run, weights=nn.ParameterList(nn.Parameter(w) for w in weights))


def group_norm(r, s):
    if len(s) < 1:
        return None
    g = r.choice([k for k in range(1, s[0] + 1) if s[0] % k == 0])
    if len(s) == 1 and s[0] == g:
        return None
    if r.random() < 0.5:
        return nn.GroupNorm(g, s[0], eps=r.choice([1e-5, 1e-3, 0.1]), affine=r.random() < 0.7)
    # written out, or something similar
    kind = r.randrange(5)
    if kind == 0:
        return With(lambda m, x: F.group_norm(x, g) * m.scale + m.shift, scale=1 + small(s[0], *[1] * (len(s) - 1)), shift=small(1, s[0], *[1] * (len(s) - 1)))
    if kind == 1:  # one scale per position, none per channel
        return With(lambda m, x: F.group_norm(x, g) * m.scale, scale=1 + small(*s))
    if kind == 2 and len(s) > 1:
        return With(lambda m, x: F.instance_norm(x.reshape(x.shape[0], g, -1), weight=m.scale, bias=m.shift).view_as(x), scale=1 + small(g), shift=small(g))
    if kind == 3:  # scale and shift computed from the sample itself
        return With(lambda m, x: F.group_norm(x, g) * (1 + m.affine(x.flatten(1)).view(-1, s[0], *[1] * (len(s) - 1))), affine=nn.Linear(int(torch.tensor(s).prod()), s[0]))
    return With(lambda m, x: (lambda y: y * m.scale + y)(F.group_norm(x, g)), scale=small(s[0], *[1] * (len(s) - 1)))


def norms(r, s):
    last = r.randint(1, len(s))
    if r.random() < 0.4:
        return nn.LayerNorm(s[-last:], eps=r.choice([1e-5, 1e-2]), elementwise_affine=r.random() < 0.7, bias=r.random() < 0.7)
    if r.random() < 0.4:
        return nn.RMSNorm(s[-last:], eps=r.choice([None, 1e-3]), elementwise_affine=r.random() < 0.7)
    axes, eps = r.sample(range(1, len(s) + 1), r.randint(1, len(s))), r.choice([1e-5, 1e-2])
    p = r.choice([1, 2, 3, 0.5 if r.random() < 0.2 else 2])
    kinds = [lambda x: x * torch.rsqrt(x.square().mean(axes, keepdim=True) + eps), lambda x: x / (x.pow(2).sum(axes, keepdim=True) + eps).sqrt(), lambda x: (x - x.mean(axes, keepdim=True)) / (x.var(axes, keepdim=True, unbiased=False) + eps) ** 0.5,
             lambda x: F.normalize(x, p=2, dim=axes[0], eps=1e-6), lambda x: x / (torch.linalg.vector_norm(x, p, axes, keepdim=True) + 0.1), lambda x: (x - x.amin(axes, keepdim=True)) / (x.amax(axes, keepdim=True) - x.amin(axes, keepdim=True) + 0.5),
             lambda x: x / (x.abs().mean(axes, keepdim=True) + eps)]
    return Do(r.choice(kinds))


def powers(r, s):
    p = r.choice([2, 3, 4, 0.5, -0.5, -1, -2, 1.5, 0.25, 1, 0, 5, 2.0, 3.0])
    kinds = [lambda x: (x.abs() + 0.3) ** p, lambda x: (x.abs() + 0.3).pow(torch.tensor(float(p))) + x, lambda x: x + (x.abs() + 0.5).pow(torch.tensor([float(p)])), lambda x: p ** x if p > 0 else x, lambda x: x ** 3 + x ** 2 * 0.5,
             lambda x: 0.5 * x * (1 + torch.tanh(0.7978845608 * (x + 0.044715 * x ** 3))), lambda x: x * 0.5 * (1.0 + torch.erf(x / 1.4142135)), lambda x: x / (1 + torch.exp(-1.702 * x)),
             lambda x: torch.pow(x.abs() + 0.2, x * 0.3 + 1), lambda x: (x ** 2).sqrt() + x, lambda x: torch.float_power(x.abs() + 0.4, 2).float() + x]
    return Do(r.choice(kinds))


def reduced(r, s):
    axes = sorted(r.sample(range(1, len(s) + 1), r.randint(1, len(s))))
    if r.random() < 0.3:
        axes = [a - len(s) - 1 for a in axes]
    keep = r.random() < 0.5
    one = axes[0]
    kinds = [lambda x: x.sum(axes, keepdim=keep), lambda x: x.mean(axes, keepdim=keep), lambda x: x.amax(axes, keepdim=keep), lambda x: x.amin(axes, keepdim=keep), lambda x: x.logsumexp(axes, keepdim=keep), lambda x: x.std(axes, keepdim=keep),
             lambda x: x.var(axes, unbiased=False, keepdim=keep), lambda x: x.norm(dim=axes[:2], keepdim=keep), lambda x: (x.abs() + 0.5).prod(one, keepdim=keep), lambda x: x.max(one, keepdim=keep).values, lambda x: x.min(one, keepdim=keep)[0],
             lambda x: torch.linalg.vector_norm(x, 1, axes, keepdim=keep), lambda x: torch.linalg.vector_norm(x, float("inf"), axes, keepdim=keep), lambda x: x.median(one, keepdim=keep)[0], lambda x: x.abs().sum(axes, keepdim=keep).log1p(), lambda x: x.square().sum(axes, keepdim=keep)]
    f = r.choice(kinds)
    return Do(lambda x: torch.cat([f(x).flatten(1), x.flatten(1)[:, :3]], 1)) if r.random() < 0.3 else Do(f if len(axes) < len(s) or keep else (lambda x: f(x)[:, None]))


def along(r, s):
    axis = r.randint(1, len(s))
    n = s[axis - 1]
    a = axis - len(s) - 1 if r.random() < 0.4 else axis
    k = r.randint(1, n)
    shift = r.randint(-n, n)
    index = torch.tensor([r.randrange(n) for _ in range(r.randint(1, n + 1))])
    kinds = [lambda x: x.softmax(a) + x * 0.1, lambda x: x.log_softmax(a), lambda x: x.cumsum(a), lambda x: x.flip(a), lambda x: x.roll(shift, a), lambda x: x.topk(k, a)[0], lambda x: x.topk(k, a, largest=False)[0], lambda x: x.sort(a, descending=True)[0],
             lambda x: x.index_select(a, index), lambda x: torch.gather(x, a, x.argsort(a)), lambda x: x.narrow(a, n - k, k), lambda x: torch.cat(x.chunk(2, a)[::-1], a), lambda x: x.repeat_interleave(2, a), lambda x: x.select(a, k - 1)[:, None],
             lambda x: torch.cat(x.split(max(1, k), a)[::-1], a), lambda x: x.unfold(a, k, 1).mean(-1), lambda x: torch.stack(x.unbind(a), -1), lambda x: x.logcumsumexp(a), lambda x: x.cumprod(a), lambda x: x.movedim(a, 1), lambda x: x.diff(dim=a) if n > 1 else x,
             lambda x: x.kthvalue(k, a, keepdim=True)[0], lambda x: F.glu(x, a) if n % 2 == 0 else x, lambda x: x.unflatten(axis, (n // 2, 2)).sum(axis) if n % 2 == 0 else x, lambda x: x.unfold(a, k, max(1, k - 1)).amax(-1), lambda x: x.cummax(a)[0]]
    return Do(r.choice(kinds))


def gathered(r, s):
    """Indices as data or constants, along an axis or per element; and scatter-adds."""
    axis = r.randint(1, len(s))
    n, k = s[axis - 1], r.randint(1, 5)
    part = [r.randint(1, e) if r.random() < 0.3 else e for e in s]
    part[axis - 1] = k
    index = torch.randint(0, n, (1, *part), generator=torch.Generator().manual_seed(r.randrange(1 << 30)))
    reduce = r.choice(["amax", "amin", "prod", "mean", "sum"])
    mask = torch.rand(*s, generator=torch.Generator().manual_seed(r.randrange(1 << 30))) > 0.6
    rows = torch.tensor([r.randrange(n) for _ in range(k)])

    def scattered(x, f):
        i = index.expand(x.shape[0], *part)
        return f(x, axis, i, x[tuple([slice(None)] + [slice(0, min(p, e)) for p, e in zip(part, s)])].repeat_interleave(1, 0) if k <= n else None)

    kinds = [lambda x: torch.gather(x, axis, index.expand(x.shape[0], *part)), lambda x: scattered(x, lambda x, a, i, u: x if u is None else x.scatter(a, i, u * 0.5)) if True else x,
             lambda x: scattered(x, lambda x, a, i, u: x if u is None else x.scatter_add(a, i, u)), lambda x: scattered(x, lambda x, a, i, u: x if u is None else x.scatter_reduce(a, i, u.abs() + 0.5, reduce)),
             lambda x: x.scatter(axis, index.expand(x.shape[0], *part), 0.7), lambda x: x.masked_fill(mask, -0.5), lambda x: torch.where(mask, x, x.flip(1) * 0.5), lambda x: x.index_add(axis, rows, x.index_select(axis, rows)),
             lambda x: x.index_copy(axis, rows.unique(), x.index_select(axis, rows.unique()) * 2), lambda x: x.index_fill(axis, rows, 0.3), lambda x: x[(slice(None),) * axis + (rows,)], lambda x: x[:, mask], lambda x: (x * mask).flatten(1)[:, torch.arange(0, int(torch.tensor(s).prod()), 2)],
             lambda x: torch.take_along_dim(x, x.argmax(axis, keepdim=True), axis), lambda x: x.clone().index_put((torch.arange(x.shape[0])[:, None], rows % s[0]), torch.tensor(0.2), accumulate=r.random() < 0),
             lambda x: torch.zeros(x.shape[0], 9).index_add(1, torch.arange(int(torch.tensor(s).prod())) % 9, x.flatten(1)), lambda x: torch.bucketize(x.detach(), torch.tensor([-0.5, 0.2, 0.9])).float() * x]
    return Do(r.choice(kinds))


def pooled(r, s):
    if len(s) not in (2, 3, 4) or min(s[1:]) < 3:
        return None
    n = len(s) - 1
    k, stride = r.choice([2, 3]), r.choice([1, 2, 3])
    padding, ceil, count = r.choice([0, 1]), r.random() < 0.4, r.random() < 0.5
    average, most, lp = {1: (F.avg_pool1d, F.max_pool1d, F.lp_pool1d), 2: (F.avg_pool2d, F.max_pool2d, F.lp_pool2d), 3: (F.avg_pool3d, F.max_pool3d, F.lp_pool3d if hasattr(F, "lp_pool3d") else None)}[n]
    adaptive = {1: (F.adaptive_avg_pool1d, F.adaptive_max_pool1d), 2: (F.adaptive_avg_pool2d, F.adaptive_max_pool2d), 3: (F.adaptive_avg_pool3d, F.adaptive_max_pool3d)}[n]
    size = [r.choice([d for d in range(1, e + 1) if e % d == 0] if r.random() < 0.8 else [2, 3]) for e in s[1:]]
    dilation = r.choice([1, 2]) if k == 2 else 1
    kinds = [lambda x: average(x, k, stride, padding, ceil, count), lambda x: most(x, k, stride, padding, dilation, ceil), lambda x: lp(x, 2, k, stride, ceil) if lp else x, lambda x: adaptive[0](x, size), lambda x: adaptive[1](x, size)]
    if n == 2:
        kinds += [lambda x: F.avg_pool2d(x, (k, 1), (1, stride), (padding, 0), ceil, count, divisor_override=r.choice([None, 3]) if False else None), lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, 2, return_indices=True), 2, 2, output_size=x.shape[2:])]
    return Do(r.choice(kinds))


def convolved(r, s):
    if len(s) not in (2, 3, 4):
        return None
    n, c = len(s) - 1, s[0]
    k = [r.choice([1, 2, 3]) for _ in range(n)]
    groups = r.choice([g for g in (1, 2, c) if c % g == 0])
    stride, dilation = [r.choice([1, 1, 2, 3]) for _ in range(n)], [r.choice([1, 1, 2]) for _ in range(n)]
    if r.random() < 0.5:
        padding = "same" if max(stride) == 1 and r.random() < 0.3 else "valid" if r.random() < 0.1 else [r.choice([0, 1, 2, 3]) for _ in range(n)]
        if padding == "valid" or any(e + 2 * (p if not isinstance(padding, str) else 9) < d * (q - 1) + 1 for e, p, d, q in zip(s[1:], padding if not isinstance(padding, str) else [0] * n, dilation, k)):
            padding = [3] * n
        return {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}[n](c, groups * r.choice([1, 2]), k, stride, padding, dilation, groups, r.random() < 0.6, r.choice(["zeros", "zeros", "zeros", "circular", "reflect"]) if not isinstance(padding, str) and all(p < e for p, e in zip(padding, s[1:])) else "zeros")
    padding = [r.randint(0, d * (q - 1)) for d, q in zip(dilation, k)]
    return {1: nn.ConvTranspose1d, 2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}[n](c, groups * r.choice([1, 2]), k, stride, padding, [r.randint(0, max(a, b) - 1) for a, b in zip(stride, dilation)], groups, r.random() < 0.6, dilation)


def multiplied(r, s):
    """Products of x with weights of various ranks, and with itself."""
    d, n = s[-1], s[-2] if len(s) > 1 else 1
    o = r.choice([1, 2, 5])
    kinds = [With(lambda m, x: x @ m.w, w=small(d, o)), With(lambda m, x: x @ m.w, w=small(d)[:, None]), With(lambda m, x: F.linear(x, m.w, m.b), w=small(o, d), b=small(o)), With(lambda m, x: torch.tensordot(x, m.w, ([len(s)], [1])), w=small(o, d))]
    if len(s) > 1:
        kinds += [With(lambda m, x: m.w @ x, w=small(o, n)), With(lambda m, x: m.w @ x, w=small(*s[:-2], o, n)), Do(lambda x: x @ x.transpose(-1, -2)), Do(lambda x: x.transpose(-1, -2) @ x), With(lambda m, x: torch.matmul(m.w, x).flatten(1), w=small(1, *s[:-2], o, n)),
                  With(lambda m, x: (x.transpose(-1, -2) @ m.w), w=small(n, o)), With(lambda m, x: m.w.t() @ x, w=small(n, o)), Do(lambda x: torch.cdist(x, x[..., :1, :] * 0.5)), Do(lambda x: torch.cdist(x + 0.1, x.flip(-2), p=1))]
    if len(s) == 2:
        kinds += [With(lambda m, x: torch.baddbmm(m.b, x, m.w.expand(x.shape[0], -1, -1), beta=0.5, alpha=2), b=small(1, n, o), w=small(d, o)), Do(lambda x: torch.bmm(x, x.transpose(1, 2)).flatten(1)), Do(lambda x: F.scaled_dot_product_attention(x, x, x, scale=r.choice([None, 0.3]) if False else 0.3)),
                  With(lambda m, x: F.bilinear(x, x.flip(1), m.w, m.b), w=small(o, d, d), b=small(o)), Do(lambda x: x + torch.kron(torch.eye(1), x.mean((1, 2))[:, None])[:, :, None])]
    if len(s) == 1:
        kinds += [With(lambda m, x: torch.addmm(m.b, x, m.w, beta=0.3, alpha=1.7), b=small(o), w=small(d, o)), With(lambda m, x: x @ m.w + x @ m.w.abs(), w=small(d, o)), Do(lambda x: (x[:, :, None] * x[:, None]).triu(1).flatten(1)), Do(lambda x: torch.diag_embed(x).flatten(1)),
                  With(lambda m, x: torch.mv(m.w, x.mean(0)) + x[:, :1], w=small(o, d))]
    return r.choice(kinds)


def shaped(r, s):
    order = list(range(1, len(s) + 1))
    r.shuffle(order)
    total = int(torch.tensor(s).prod())
    kinds = [lambda x: x.permute(0, *order).contiguous(), lambda x: x.flatten(1), lambda x: x.reshape(x.shape[0], -1, s[0]), lambda x: x.unsqueeze(r.randint(1, 1)).expand(-1, 2, *[-1] * len(s)).flatten(1, 2), lambda x: x.repeat(1, *[2] * len(s)), lambda x: torch.stack([x, x * 0.5], -1).flatten(-2),
             lambda x: torch.cat([x, x.flip(1)], -1), lambda x: x[..., ::2], lambda x: x[:, -1:], lambda x: x[..., 1:, None].squeeze(-1), lambda x: x.tile((1,) + (1,) * (len(s) - 1) + (3,)), lambda x: torch.cat([x.new_zeros(x.shape[0], *s[:-1], 2), x], -1), lambda x: x.view(x.size(0), total)[:, torch.arange(total - 1, -1, -1)],
             lambda x: x.tril(-1) + x.triu(1) if len(s) > 1 else x, lambda x: torch.cat([x.mean((*range(1, len(s) + 1),)).view(-1, 1), x.reshape(x.shape[0], -1)], 1), lambda x: x.swapaxes(-1, 1), lambda x: torch.rot90(x, 1, [-1, -2]) if len(s) > 1 else x, lambda x: x.diagonal(0, -2, -1) if len(s) > 1 else x,
             lambda x: torch.broadcast_to(x[:, :1], x.shape) + x, lambda x: x.as_strided(x.shape, x.stride()) * 1.1, lambda x: torch.meshgrid(x[:, 0].flatten(1).mean(0), torch.ones(3), indexing="ij")[0].sum() * 0.1 + x]
    if len(s) == 3 and s[0] % 4 == 0 and s[1] % 2 == 0 and s[2] % 2 == 0:
        kinds += [lambda x: F.pixel_shuffle(x, 2), lambda x: F.pixel_unshuffle(x, 2), lambda x: F.channel_shuffle(x, 2), lambda x: F.unfold(x, 2, stride=2), lambda x: F.fold(F.unfold(x, 3, padding=1), x.shape[2:], 3, padding=1), lambda x: F.unfold(x, (1, 2), dilation=(1, 2), padding=(0, 1))]
    return Do(r.choice(kinds))


def between(r, s):
    """Elementwise with constants and weights of other shapes."""
    rank = r.randint(0, len(s))
    form = [1 if r.random() < 0.3 else e for e in s[len(s) - rank:]]
    low, high = -r.random(), r.random()
    kinds = [lambda m, x: x * m.w + m.w, lambda m, x: torch.maximum(x, m.w), lambda m, x: torch.minimum(x, m.w * 2), lambda m, x: x / (m.w.abs() + 0.5), lambda m, x: m.w / (x.abs() + 0.5), lambda m, x: m.w - x, lambda m, x: torch.where(x > m.w, x, m.w), lambda m, x: x.clamp(low, high) * m.w, lambda m, x: torch.clamp(x, min=m.w) + x,
             lambda m, x: torch.lerp(x, m.w.expand_as(x), 0.3), lambda m, x: torch.atan2(x, m.w.abs() + 0.4), lambda m, x: F.softplus(x, beta=2, threshold=1) * m.w, lambda m, x: F.elu(x, 0.4) + m.w, lambda m, x: F.leaky_relu(x, -0.2) * m.w, lambda m, x: F.hardtanh(x, low, high) + m.w, lambda m, x: torch.fmod(x, 0.6) + m.w,
             lambda m, x: torch.remainder(x, -0.7) * m.w, lambda m, x: torch.copysign(m.w.expand_as(x), x) + x, lambda m, x: torch.sinc(x) * m.w, lambda m, x: torch.nan_to_num(x / (x - x)) + m.w * x, lambda m, x: torch.special.xlogy(x.abs(), m.w.abs() + 0.3) + x, lambda m, x: x.sign() * m.w + x, lambda m, x: torch.heaviside(x, torch.tensor(0.5)) * m.w + x,
             lambda m, x: F.huber_loss(x, m.w.expand_as(x), reduction="none"), lambda m, x: F.smooth_l1_loss(x, m.w.expand_as(x), reduction="none"), lambda m, x: F.binary_cross_entropy_with_logits(x, m.w.expand_as(x).sigmoid(), reduction="none"), lambda m, x: F.kl_div(x.log_softmax(-1), m.w.expand_as(x).softmax(-1), reduction="none"),
             lambda m, x: F.cosine_similarity(x, m.w.expand_as(x), dim=1)[:, None].expand_as(x) + x, lambda m, x: torch.addcmul(m.w, x, x, value=0.3), lambda m, x: torch.polar(x.abs(), x).real if False else x.exp2() * m.w, lambda m, x: torch.logaddexp(x, m.w), lambda m, x: torch.dist(x, m.w.expand_as(x)) + x]
    return With(r.choice(kinds), w=0.7 + torch.randn(form) * 0.4)


KINDS = [pad, padded_convolution, resized, einsum, group_norm, norms, powers, reduced, along, gathered, pooled, convolved, multiplied, shaped, between]
FIRST = {1: lambda r: (nn.Linear(5, 8), (5,)), 2: lambda r: r.choice([(nn.Linear(5, 6), (4, 5)), (nn.Conv1d(2, 4, 3, padding=1), (2, 7))]), 3: lambda r: (nn.Conv2d(2, 4, 3, padding=1), (2, r.choice([5, 6, 8]), 6)), 4: lambda r: (nn.Conv3d(1, 4, 3, padding=1), (1, 3, 4, 4))}


def made(r):
    first, form = FIRST[r.choice([1, 2, 2, 3, 3, 3, 4])](r)
    net, names = [first], []
    with torch.no_grad():
        x = first(torch.zeros(6, *form))
    wanted = r.choice([1, 2, 2])
    for _ in range(40):
        if len(names) == wanted:
            break
        kind = r.choice(KINDS)
        try:
            layer = kind(r, tuple(x.shape[1:]))
            with torch.no_grad():
                y = layer(torch.randn(x.shape)) if layer else x
        except (RuntimeError, ValueError, IndexError, TypeError):  # the arguments do not fit the shape
            continue
        if layer is None:
            continue
        if y.dim() < 2 or y.shape[0] != 6 or y.numel() > 20000 or y.numel() == 0 or not y.isfinite().all():
            continue
        net += [pointwise(r), layer] if r.random() < 0.5 else [layer]
        names.append(kind.__name__)
        x = y
    return nn.Sequential(*net, nn.Flatten(), nn.Linear(x[0].numel(), 3)), form, names


def case(number):
    name = f"call_{number}"
    seed = zlib.crc32(name.encode())

    def module():
        torch.manual_seed(seed)
        return made(random.Random(seed))

    net, form, names = module()
    r = random.Random(seed + 1)
    # The older exporter takes a tenth of the time.
    exporter, opset, optimize, mode, dynamic = r.choice([s for s in STYLES + MORE if s[0] == "legacy"] if r.random() < 0.6 else STYLES + MORE)
    options = recipe(r)
    if options["optimizer"]["type"] == "lamb" or "groups" in options["optimizer"]:
        optimize = False
    labels = r.random() < 0.5
    sizes = [6, 3, 6, 1, 6, 5] if dynamic and r.random() < 0.5 else None
    return Case(name, lambda: module()[0], lambda b: {"x": pixels(b, *form), "y": classes(3, b) if labels else pixels(b, 3)}, [term("cross_entropy" if labels else "mse")], exporter=exporter, opset=opset, optimize=optimize, mode=mode,
                dynamic_batch=dynamic, batch_size=6, batch_sizes=sizes, may_rest=True, notes=" ".join(names), **options)


def cases():
    first = int(os.environ.get("random_FIRST", 0))
    for number in range(first, first + int(os.environ.get("random_COUNT", 100))):
        yield case(number)
