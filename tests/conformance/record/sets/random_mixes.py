"""Random models of further kinds: signals and volumes, several inputs and outputs, decoders and masks, unrolled recurrent cells, gathers
and scatters, weights that reach the loss through arithmetic. As in `random_nets`, the environment variables `random_FIRST` and
`random_COUNT` select the numbers. Each model depends on its number alone, and nothing is kept in `recorded/`."""
import os
import random
import zlib

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils import parametrizations

from case import Case, classes, pixels, term
from sets.random_nets import Do, RmsNorm, pointwise, recipe, vector_layer
from styles import STYLES
from zoo import settled

NEWER = [("dynamo", 18, True, "eval", False), ("dynamo", 19, True, "train", True), ("dynamo", 24, True, "train", False), ("legacy", 12, True, "eval", True),
         ("legacy", 16, True, "train", False), ("legacy", 19, False, "train", True), ("dynamo", 23, True, "eval", True), ("legacy", 10, False, "eval", False),
         ("dynamo", 18, True, "eval", True), ("dynamo", 18, True, "train", False)]


class With(nn.Module):
    """A function of its own modules and parameters, which are its attributes."""

    def __init__(self, f, **parts):
        super().__init__()
        self.f = f
        for name, part in parts.items():
            setattr(self, name, nn.Parameter(part) if isinstance(part, torch.Tensor) else part)

    def forward(self, *x):
        return self.f(self, *x)


def small(*shape):
    return torch.randn(*shape) * 0.4


# Signals and volumes


def spatial_layer(r, n, c):
    """Preserves the shape of (batch, c, ...) with n spatial axes."""
    conv, deconv, norm, pool, mean = {1: (nn.Conv1d, nn.ConvTranspose1d, nn.BatchNorm1d, nn.MaxPool1d, nn.AvgPool1d), 2: (nn.Conv2d, nn.ConvTranspose2d, nn.BatchNorm2d, nn.MaxPool2d, nn.AvgPool2d),
                                      3: (nn.Conv3d, nn.ConvTranspose3d, nn.BatchNorm3d, nn.MaxPool3d, nn.AvgPool3d)}[n]
    instance = {1: nn.InstanceNorm1d, 2: nn.InstanceNorm2d, 3: nn.InstanceNorm3d}[n]
    axes = tuple(range(2, n + 2))
    kind = r.randrange(13)
    if kind < 2:
        return nn.Sequential(conv(c, c, 3, padding="same" if r.random() < 0.4 else 1, groups=r.choice([1, 2, c]), bias=r.random() < 0.7),
                             r.choice([norm(c), instance(c, affine=True), nn.GroupNorm(2, c), nn.Identity()]), pointwise(r))
    if kind == 2:
        return nn.Sequential(conv(c, 2 * c, 2, 2), nn.GELU(), deconv(2 * c, c, 2, 2, groups=r.choice([1, 2])))
    if kind == 3:
        return nn.Sequential(pool(2), nn.Upsample(scale_factor=2, mode="nearest"))
    if kind == 4:
        return nn.Sequential(conv(c, c, 3, 2, 1), pointwise(r), deconv(c, c, 3, 2, 1, output_padding=1, bias=r.random() < 0.5))
    if kind == 5:
        return nn.Sequential(mean(3, 1, 1, count_include_pad=r.random() < 0.5), conv(c, c, 1))
    if kind == 6:
        return With(lambda s, x: x * s.scale.view(1, -1, *[1] * n) + s.shift.view(-1, *[1] * n), scale=1 + small(c), shift=small(c))
    if kind == 7:
        return r.choice([Do(lambda x: x - x.mean(axes, keepdim=True)), Do(lambda x: F.normalize(x, dim=1) * 2), Do(lambda x: x / x.flatten(2).norm(dim=-1).view(x.shape[0], c, *[1] * n).add(1)),
                         nn.LocalResponseNorm(3), Do(lambda x: F.softmax(x, 1) + x), Do(lambda x: x + x.amax(axes, keepdim=True)), Do(lambda x: x.flip(2))])
    if kind == 8:
        return With(lambda s, x: x * torch.sigmoid(s.b(F.relu(s.a(x.mean(axes, keepdim=True))))), a=conv(c, 2, 1), b=conv(2, c, 1))
    if kind == 9:
        return With(lambda s, x: torch.cat([s.a(x), s.b(x)], 1), a=conv(c, c // 2, 3, padding=1), b=conv(c, c // 2, 1))
    if kind == 10:
        return parametrizations.weight_norm(conv(c, c, 3, padding=1))
    if kind == 11:
        pads = {1: nn.ReflectionPad1d, 2: nn.ReflectionPad2d, 3: nn.ReplicationPad3d}[n]
        return nn.Sequential(pads(1), conv(c, c, 3), nn.PReLU(c))
    return With(lambda s, x: (lambda a, b: a * torch.sigmoid(b))(*s.conv(x).chunk(2, 1)), conv=conv(c, 2 * c, 3, padding=1))


def spatial(r):
    n = r.choice([1, 1, 2, 3, 3])
    c, size, o, i = r.choice([4, 6]), {1: 12, 2: 8, 3: 4}[n], r.choice([3, 5]), r.choice([1, 2])
    conv = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}[n]
    body = [spatial_layer(r, n, c) for _ in range(r.randrange(1, 5))]
    adaptive = {1: nn.AdaptiveAvgPool1d, 2: nn.AdaptiveAvgPool2d, 3: nn.AdaptiveAvgPool3d}[n]
    shape = (i, *[size] * n)
    if r.random() < 0.3:
        return nn.Sequential(conv(i, c, 3, padding=1), *body, conv(c, o, 1)), {"x": lambda b: pixels(b, *shape)}, [((o, *[size] * n), 1)]
    return nn.Sequential(conv(i, c, 3, padding=1), *body, adaptive(2), nn.Flatten(), nn.Linear(c * 2**n, o)), {"x": lambda b: pixels(b, *shape)}, [((o,), 1)]


# Images through grids and patches


def grids(r):
    c, size, o = 4, 8, 3
    kind = r.randrange(8)
    first = nn.Conv2d(2, c, 3, padding=1)
    if kind == 0:  # spatial transformer
        body = With(lambda s, x: F.grid_sample(x, F.affine_grid(s.theta(x.mean((2, 3))).view(-1, 2, 3) * 0.3 + s.base, [x.shape[0], c, size, size], align_corners=False), mode=s.mode,
                                               padding_mode=s.padding, align_corners=False), theta=nn.Linear(c, 6), base=torch.tensor([[1.0, 0, 0.1], [0, 1, -0.1]]))
        body.mode, body.padding = r.choice(["bilinear", "bilinear", "bicubic"]), r.choice(["zeros", "border", "reflection"])
    elif kind == 1:
        body = With(lambda s, x: F.fold(s.mix(F.unfold(x, 3, padding=1, stride=1).transpose(1, 2)).transpose(1, 2), (size, size), 3, padding=1) * 0.2, mix=nn.Linear(9 * c, 9 * c))
    elif kind == 2:
        body = With(lambda s, x: F.conv2d(x, F.normalize(s.w.flatten(1), dim=1).view_as(s.w), s.b, padding=1), w=small(c, c, 3, 3), b=small(c))
    elif kind == 3:
        body = With(lambda s, x: s.norm(s.mix(x.unfold(2, 2, 2).unfold(3, 2, 2).flatten(4))).mean(-1).repeat_interleave(2, 2).repeat_interleave(2, 3), mix=nn.Linear(4, 4), norm=nn.LayerNorm(4))
    elif kind == 4:
        body = With(lambda s, x: F.interpolate(s.conv(F.interpolate(x, size=(5, 7), mode=s.mode)), size=(size, size), mode="nearest"), conv=nn.Conv2d(c, c, 1))
        body.mode = r.choice(["nearest", "bilinear", "bicubic", "area"])
    elif kind == 5:
        body = With(lambda s, x: s.norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2) * s.gamma[:, None, None] + x, norm=nn.LayerNorm(c), gamma=small(c))
    elif kind == 6:
        body = With(lambda s, x: (lambda v, k: F.max_unpool2d(v, k, 2))(*F.max_pool2d(s.conv(x), 2, return_indices=True)) + x, conv=nn.Conv2d(c, c, 1))
    else:
        body = With(lambda s, x: (s.proj(x).flatten(2).transpose(1, 2) + s.pos).transpose(1, 2).unflatten(2, (4, 4)).repeat(1, 1, 2, 2), proj=nn.Conv2d(c, c, 2, 2), pos=small(1, 16, c))
    head = r.choice([nn.Sequential(nn.AdaptiveAvgPool2d((3, 2)), nn.Flatten(), nn.Linear(6 * c, o)), nn.Sequential(nn.LPPool2d(2, 2), nn.Flatten(), nn.Linear(16 * c, o)),
                     nn.Sequential(nn.AdaptiveMaxPool2d(2), nn.Flatten(), nn.Linear(4 * c, o))])
    return nn.Sequential(first, pointwise(r), body, pointwise(r), head), {"x": lambda b: pixels(b, 2, size, size)}, [((o,), 1)]


# Several inputs and outputs


class Pairs(nn.Module):
    """Two towers, joined in one of the usual ways; one or two outputs."""

    def __init__(self, r):
        super().__init__()
        self.d, self.how, self.two = 8, r.choice(["cat", "dot", "bilinear", "cosine", "film", "cross", "distance", "outer", "bag"]), r.random() < 0.4
        self.users, self.items = nn.Embedding(20, 8), nn.Embedding(12, 8)
        self.dense = nn.Sequential(nn.Linear(5, 8), pointwise(r), vector_layer(r, 8))
        self.bilinear = nn.Bilinear(8, 8, 8) if self.how == "bilinear" else None
        self.film = nn.Linear(8, 16) if self.how == "film" else None
        self.cross = nn.MultiheadAttention(8, 2, batch_first=True) if self.how == "cross" else None
        self.bag = nn.EmbeddingBag(12, 8, mode=r.choice(["mean", "sum"])) if self.how == "bag" else None
        self.head, self.side = nn.Linear(16, 3), nn.Linear(8, 2)

    def forward(self, user, items, x):
        u, d = self.users(user), self.dense(x)
        v = self.items(items)  # (batch, 4, 8)
        m = v.mean(1)
        if self.how == "cat":
            z = u * d - m
        elif self.how == "dot":
            z = (v * u[:, None]).sum(-1, keepdim=True).softmax(1).mul(v).sum(1)
        elif self.how == "bilinear":
            z = self.bilinear(u, d)
        elif self.how == "cosine":
            z = F.cosine_similarity(v, u[:, None], dim=-1)[..., None].mul(v).sum(1)
        elif self.how == "film":
            scale, shift = self.film(d).chunk(2, -1)
            z = u * (1 + scale) + shift
        elif self.how == "cross":
            z = self.cross(u[:, None], v, v, need_weights=False)[0].squeeze(1)
        elif self.how == "distance":
            z = torch.cdist(u[:, None], v).transpose(1, 2).mul(v).sum(1)
        elif self.how == "outer":
            z = torch.einsum("bi,bj,btj->bi", u, d, v) * 0.1
        else:
            z = self.bag(items)
        out = self.head(torch.cat([z + m, d], -1))
        return (out, self.side(u + d).tanh()) if self.two else out


def pairs(r):
    net = Pairs(r)
    return net, {"user": lambda b: classes(20, b), "items": lambda b: classes(12, b, 4), "x": lambda b: pixels(b, 5)}, [((3,), 1), ((2,), 0)][: 2 if net.two else 1]


# Decoders, masks, positions


def rotary(x):
    t, d = x.shape[-2], x.shape[-1]
    angle = torch.arange(t)[:, None] * (10000.0 ** (-torch.arange(0, d, 2) / d))[None]
    a, b = x.chunk(2, -1)
    return torch.cat([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], -1)


class Decoder(nn.Module):
    """One block of attention over tokens in one of many forms, with or without a mask as an input."""

    def __init__(self, r, length, masked):
        super().__init__()
        d, self.h = 8, 2
        self.position, self.how, self.tied = r.choice(["learned", "rotary", "alibi", "relative", "none"]), r.choice(["sdpa", "written", "module", "gqa", "encoder", "linear"]), r.random() < 0.5
        self.length, self.masked, self.normed = length, masked, r.random() < 0.3
        self.embed = nn.Embedding(11, d)
        self.table = nn.Parameter(small(1, length, d)) if self.position == "learned" else nn.Parameter(small(self.h, 2 * length - 1)) if self.position == "relative" else None
        self.norm = r.choice([nn.LayerNorm(d), RmsNorm(d), nn.LayerNorm(d, bias=False)])
        self.q, self.k, self.v = nn.Linear(d, d), nn.Linear(d, d if self.how != "gqa" else d // 2, bias=False), nn.Linear(d, d if self.how != "gqa" else d // 2)
        self.module = nn.MultiheadAttention(d, 2, batch_first=True) if self.how == "module" else nn.TransformerDecoderLayer(d, 2, 16, 0.0, batch_first=True) if self.how == "encoder" else None
        self.out, self.gate, self.up, self.down = nn.Linear(d, d), nn.Linear(d, 12), nn.Linear(d, 12), nn.Linear(12, d)
        self.head = nn.Linear(d, 11, bias=False)
        if self.tied:
            self.head.weight = self.embed.weight

    def attend(self, x, mask):
        b, t, d = x.shape
        if self.how in ("module", "encoder"):
            causal = nn.Transformer.generate_square_subsequent_mask(t)
            if self.how == "encoder":
                return self.module(x, x.flip(1), tgt_mask=causal, tgt_key_padding_mask=None if mask is None else torch.zeros(mask.shape).masked_fill(~mask, -1e9)) - x
            return self.module(x, x, x, attn_mask=causal, key_padding_mask=None if mask is None else torch.zeros(mask.shape).masked_fill(~mask, -1e9), need_weights=False)[0]
        q, k, v = (m(x).view(b, t, -1, d // self.h).transpose(1, 2) for m in (self.q, self.k, self.v))
        if self.how == "gqa":
            k, v = k.repeat_interleave(2, 1), v.repeat_interleave(2, 1)
        if self.position == "rotary":
            q, k = rotary(q), rotary(k)
        if self.normed:
            q, k = F.normalize(q, dim=-1) * 2, F.normalize(k, dim=-1) * 2
        bias = torch.zeros(t, t)
        if self.position == "alibi":
            bias = (torch.arange(t)[None] - torch.arange(t)[:, None]) * torch.tensor([0.5, 0.25])[:, None, None]
        if self.position == "relative":
            bias = self.table[:, torch.arange(t)[:, None] - torch.arange(t)[None] + t - 1]
        causal = torch.ones(t, t, dtype=torch.bool).tril()
        if self.how == "linear":
            q, k = F.elu(q) + 1, F.elu(k) + 1
            y = torch.einsum("bhtd,bhsd,ts,bhse->bhte", q, k, causal.float(), v) * 0.2
        elif self.how == "sdpa" or self.how == "gqa":
            seen = causal if mask is None else causal & mask[:, None, None]
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=bias.masked_fill(~seen, -1e9) if mask is not None else bias.masked_fill(~seen, float("-inf")))
        else:
            s = q @ k.transpose(-1, -2) / (d // self.h) ** 0.5 + bias
            s = s.masked_fill(~causal, torch.finfo(s.dtype).min)
            if mask is not None:
                s = torch.where(mask[:, None, None], s, -1e4)
            y = s.softmax(-1) @ v
        return self.out(y.transpose(1, 2).reshape(b, t, d))

    def forward(self, x, mask=None):
        x = self.embed(x)
        if self.position == "learned":
            x = x + self.table[:, : x.shape[1]]
        x = x + self.attend(self.norm(x), mask)
        x = x + self.down(F.silu(self.gate(x)) * self.up(x))
        return self.head(x)


def decoders(r):
    t, masked = r.choice([4, 6]), r.random() < 0.4
    inputs = {"x": lambda b: classes(11, b, t)}
    if masked:
        inputs["mask"] = lambda b: torch.arange(t)[None] < torch.randint(2, t + 1, (b, 1))
    return Decoder(r, t, masked), inputs, [((t, 11), 2)]


# Unrolled recurrent cells


class Cells(nn.Module):
    def __init__(self, r):
        super().__init__()
        self.how, self.back = r.choice(["lstm", "gru", "rnn", "qrnn", "ssm", "projected", "states", "ragged"]), r.random() < 0.3
        d = 6
        self.embed = nn.Embedding(9, d)
        self.lstm, self.gru, self.rnn = nn.LSTMCell(d, d), nn.GRUCell(d, d), nn.RNNCell(d, d, nonlinearity=r.choice(["tanh", "relu"]))
        self.conv, self.a, self.b = nn.Conv1d(d, 3 * d, 2), nn.Parameter(small(d)), nn.Linear(d, d)
        self.projected = nn.LSTM(d, 8, proj_size=d if self.how == "projected" else 0, batch_first=True)
        self.two = nn.GRU(d, 3, 2, bidirectional=True)
        self.start = nn.Parameter(small(1, d))
        self.head = nn.Linear({"states": 12, "ragged": 8}.get(self.how, d), 4)
        used = {"lstm": ("lstm",), "gru": ("gru",), "rnn": ("rnn",), "qrnn": ("conv",), "ssm": ("a", "b"), "projected": ("projected",), "states": ("two",), "ragged": ("projected",)}[self.how]
        for name in ("lstm", "gru", "rnn", "conv", "a", "b", "projected", "two", "start"):
            if name not in used and not (name == "start" and self.how in ("lstm", "gru", "rnn", "ssm", "qrnn")):
                setattr(self, name, None)

    def forward(self, x):
        x = self.embed(x)
        if self.back:
            x = x.flip(1)
        b, t, d = x.shape
        h = self.start.expand(b, -1) if self.start is not None else None
        if self.how == "lstm":
            c = torch.zeros_like(h)
            for k in range(t):
                h, c = self.lstm(x[:, k], (h, c))
        elif self.how in ("gru", "rnn"):
            cell = self.gru if self.how == "gru" else self.rnn
            hs = []
            for k in range(t):
                h = cell(x[:, k], h)
                hs.append(h)
            h = torch.stack(hs, 1).mean(1)
        elif self.how == "qrnn":
            z, f, o = self.conv(F.pad(x.transpose(1, 2), (1, 0))).chunk(3, 1)
            f = torch.sigmoid(f)
            for k in range(t):
                h = f[..., k] * h + (1 - f[..., k]) * torch.tanh(z[..., k])
            h = h * torch.sigmoid(o[..., -1])
        elif self.how == "ssm":
            decay = torch.exp(-F.softplus(self.a))
            for v in self.b(x).unbind(1):
                h = decay * h + v
        elif self.how == "projected":
            h = self.projected(x)[0][:, -1]
        elif self.how == "states":
            h = self.two(x.transpose(0, 1))[1].transpose(0, 1).flatten(1)
        else:
            out, (h, c) = self.projected(x, (torch.zeros(1, b, 8), torch.ones(1, b, 8) * 0.1))
            h = out.amax(1) + h[0] * c[0]
        return self.head(h)


def cells(r):
    t = r.choice([3, 5])
    return Cells(r), {"x": lambda b: classes(9, b, t)}, [((4,), 1)]


# Gathers, scatters, shapes

INDEXED = [
    lambda x: x + torch.zeros_like(x).scatter(-1, x.argmax(-1, keepdim=True), 0.5), lambda x: x + torch.zeros_like(x).scatter_add(-1, torch.tensor([[0, 0, 1, 2]]).expand(x.shape[0], 4), x[:, :4]),
    lambda x: x.index_select(-1, torch.tensor([2, 0, 1, 2, 5, 4, 3, 7])), lambda x: x.index_add(-1, torch.tensor([1, 3]), x[:, :2] * 0.5), lambda x: torch.cat([x[:, 3:5] * 2, x[:, :3], x[:, 5:]], 1),
    lambda x: x + (x[:, :, None] - x[:, None]).abs().mean(-1), lambda x: x + torch.tril(x[:, :, None] * x[:, None]).sum(-1) * 0.1, lambda x: x + torch.diagonal(x[:, :, None] * x[:, None], dim1=1, dim2=2),
    lambda x: x.cumsum(-1) / torch.arange(1, 9), lambda x: x + x.diff(dim=-1, prepend=x[:, :1]), lambda x: torch.tensordot(x, x[0:1].detach() * 0 + 1, ([1], [1])) * 0.1 + x,
    lambda x: x + F.one_hot(x.argmax(-1), 8).float() * x, lambda x: x.clamp(min=x.mean(-1, keepdim=True) - 1, max=x.amax(-1, keepdim=True)), lambda x: x + torch.fmod(x, 0.7),
    lambda x: x + torch.remainder(x, 1.1), lambda x: x * (x > 0).all(-1, keepdim=True).logical_not(), lambda x: torch.where(x.isnan(), torch.zeros_like(x), x) + x.nan_to_num(), lambda x: x + x.median(-1, keepdim=True).values,
    lambda x: x + torch.kthvalue(x, 3, -1, keepdim=True).values, lambda x: x + torch.linalg.norm(x, ord=1, dim=-1, keepdim=True) * 0.2, lambda x: x + x.norm(p=3, dim=-1, keepdim=True),
    lambda x: x.view(-1, 2, 4).rot90(1, [1, 2]).flatten(1), lambda x: x.reshape(-1, 2, 2, 2).movedim(1, 3).flatten(1), lambda x: torch.stack([x[:, :4], x[:, 4:]], 2).flatten(1),
    lambda x: torch.hstack([x[:, 4:], x[:, :4]]), lambda x: x + torch.logaddexp(x, x.flip(-1)), lambda x: x + torch.logcumsumexp(x, -1) * 0.1, lambda x: x + torch.cumprod(x.sigmoid(), -1),
    lambda x: x + torch.hypot(x, x.flip(-1) + 0.1), lambda x: x + torch.atan2(x, x.flip(-1).abs() + 0.5), lambda x: x + torch.outer(x.mean(-1), torch.ones(8)), lambda x: x + x.round() * x,
    lambda x: x + x.frac(), lambda x: x * x.floor(), lambda x: x + x.trunc().detach() * x, lambda x: x + torch.special.erfc(x), lambda x: x + torch.logit(x.sigmoid() * 0.8 + 0.1), lambda x: x + F.logsigmoid(x),
    lambda x: F.celu(x, 0.7), lambda x: F.hardshrink(x, 0.1) + x, lambda x: x + F.softmin(x, -1), lambda x: x.reshape(x.size(0) * 2, -1).reshape(x.size(0), -1),
    lambda x: x.repeat(1, 2).view(-1, 2, 8).mean(1), lambda x: x.new_full((x.size(0), 8), 0.5) * x, lambda x: x + torch.arange(x.size(1)).float().mul(0.1), lambda x: x.expand(2, *x.shape).mean(0),
    lambda x: x[:, torch.tensor([True, False] * 4)].repeat(1, 2), lambda x: x.masked_scatter(x > 0.5, x * 0.5 + 0.1), lambda x: (lambda y: y.index_put((torch.arange(4), torch.arange(4)), x[:4, 0] * 0 + 1.0))(x.clone()),
    lambda x: x + torch.var_mean(x, -1, keepdim=True)[0], lambda x: x / x.square().sum(-1, keepdim=True).clamp(min=1e-6).sqrt(), lambda x: x * torch.exp2(-x.abs()), lambda x: x.abs().add(0.5).log2() + x,
    lambda x: x.take_along_dim(x.argsort(-1, descending=True), -1), lambda x: F.pad(x[:, None], (1, 1), "circular")[:, 0, 1:-1] + x, lambda x: x + x.unfold(1, 3, 1).mean(-1).repeat(1, 2)[:, :8], lambda x: torch.addcmul(x, x, x.sigmoid(), value=0.5),
    lambda x: torch.addcdiv(x, x, x.abs() + 1, value=0.5), lambda x: torch.baddbmm(x[:, None], x[:, None], torch.eye(8).expand(x.size(0), 8, 8), beta=0.5, alpha=0.7)[:, 0], lambda x: x + x.std(-1, keepdim=True, unbiased=False),
    lambda x: torch.block_diag(x[:1]).repeat(x.size(0), 1) * 0 + x, lambda x: x + torch.pairwise_distance(x, x.flip(-1) + 1)[:, None], lambda x: x + torch.bucketize(x.detach(), torch.tensor([-1.0, 0, 1])).float(), lambda x: torch.swapaxes(x.view(-1, 4, 2), 1, 2).reshape(-1, 8),
    lambda x: torch.sinh(x.clamp(-2, 2)) + x.cosh().clamp(max=3), lambda x: x.tan().clamp(-2, 2) + x, lambda x: x.sigmoid().asin() + x.tanh().mul(0.9).acos() + (x.abs() + 1.1).acosh() + x.tanh().mul(0.9).atanh(), lambda x: x.roll(2, 1).square() * x,
]


def own_layer(r, d):
    """A layer whose weights reach the output through arithmetic."""
    return r.choice([
        lambda: With(lambda s, x: F.linear(x, s.w * s.mask, s.b), w=small(d, d), b=small(d), mask=Constant(torch.ones(d, d).tril())), lambda: With(lambda s, x: x @ torch.linalg.norm(s.w, dim=0).diag() * 0.5, w=small(d, d)),
        lambda: With(lambda s, x: F.linear(x, s.a @ s.b) + s.base(x), a=small(d, 2), b=small(2, d), base=nn.Linear(d, d)), lambda: With(lambda s, x: F.linear(F.relu(F.linear(x, s.w)), s.w.t()), w=small(d, d)),
        lambda: parametrizations.weight_norm(nn.Linear(d, d)), lambda: With(lambda s, x: x * s.log_scale.exp() + s.shift.clamp(-1, 1), log_scale=small(d), shift=small(d)),
        lambda: With(lambda s, x: F.linear(x, F.softmax(s.w, -1)), w=small(d, d)), lambda: With(lambda s, x: torch.einsum("bi,eij,be->bj", x, s.w, s.gate(x).softmax(-1)), w=small(3, d, d), gate=nn.Linear(d, 3)),
        lambda: With(lambda s, x: x + (s.table[x.argmax(-1)] * s.scale), table=small(d, d), scale=small(1)), lambda: With(lambda s, x: F.linear(x, torch.cat([s.a, s.b.flip(0)], 0)), a=small(d // 2, d), b=small(d // 2, d)),
        lambda: With(lambda s, x: torch.exp(-torch.cdist(x, s.centers).square() * F.softplus(s.width)) @ s.out, centers=small(5, d), width=small(1), out=small(5, d)),
        lambda: With(lambda s, x: s.bn(x.unsqueeze(-1).expand(-1, -1, 3)).mean(-1), bn=nn.BatchNorm1d(d)), lambda: With(lambda s, x: s.a(x) + s.a(x.flip(-1)) * s.alpha, a=nn.Linear(d, d), alpha=torch.tensor(0.3)),
        lambda: With(lambda s, x: x + F.linear(x, s.u) * s.v.unsqueeze(0), u=small(d, d), v=small(d)), lambda: With(lambda s, x: x @ (s.w - s.w.t()), w=small(d, d)),
        lambda: With(lambda s, x: F.layer_norm(x, (d,), s.g + 1, s.b), g=small(d), b=small(d)), lambda: With(lambda s, x: s.conv(x[:, None]).flatten(1) @ s.w, conv=nn.Conv1d(1, 2, 3, padding=1), w=small(2 * d, d)),
        lambda: With(lambda s, x: F.bilinear(x, x, s.w, s.b), w=small(d, d, d) * 0.3, b=small(d)), lambda: With(lambda s, x: torch.stack([f(x) for f in s.fs]).mean(0), fs=nn.ModuleList([nn.Linear(d, d) for _ in range(3)])),
        lambda: With(lambda s, x: torch.bmm(s.w.expand(x.shape[0], d, d), x.unsqueeze(-1)).squeeze(-1), w=small(1, d, d)), lambda: With(lambda s, x: F.group_norm(x, 2, s.g, s.b), g=1 + small(d), b=small(d)),
        lambda: With(lambda s, x: torch.addmm(s.b, x, s.w, beta=0.5, alpha=2.0), b=small(d), w=small(d, d)), lambda: With(lambda s, x: F.prelu(x, s.a.abs()), a=small(d)), lambda: With(lambda s, x: x - s.mean.detach() * s.k, mean=small(d), k=small(1)),
    ])()


class Constant(nn.Module):
    """A buffer among modules; multiplications by it read the tensor."""

    def __init__(self, value):
        super().__init__()
        self.register_buffer("value", value)

    def __rmul__(self, other):
        return other * self.value


def indexed(r):
    d, o, two = 8, r.choice([2, 4]), r.random() < 0.25
    layers = [Do(r.choice(INDEXED)) if r.random() < 0.5 else own_layer(r, d) if r.random() < 0.7 else vector_layer(r, d) for _ in range(r.randrange(2, 6))]
    body = nn.Sequential(nn.Linear(5, d), *layers)
    heads = [nn.Linear(d, o), nn.Sequential(pointwise(r), nn.Linear(d, 3))]
    net = With(lambda s, x: (lambda y: (s.a(y), s.b(y)))(s.body(x)), body=body, a=heads[0], b=heads[1]) if two else nn.Sequential(body, heads[0])
    return net, {"x": lambda b: pixels(b, 5)}, [((o,), 1), ((3,), 0)][: 2 if two else 1]


class Ending(nn.Module):
    """The model with a final function on its first output, for losses of probabilities."""

    def __init__(self, net, f):
        super().__init__()
        self.net, self.f = net, f

    def forward(self, *x):
        y = self.net(*x)
        return (self.f(y[0]), *y[1:]) if isinstance(y, tuple) else self.f(y)


def terms(r, outputs):
    """Terms, targets, and the final function of the first output. Classes lie on `axis`; 0 means values."""
    made, targets, end = [], {}, None
    for k, (shape, axis) in enumerate(outputs):
        name, target = f"out{k}" if k else "out", f"y{k}" if k else "y"
        last, n = axis == len(shape) and len(shape) > 1, shape[axis - 1]
        place = dict(class_axis=-1) if last else {}
        labels = lambda b, n=n, shape=shape, axis=axis: classes(n, b, *(s for j, s in enumerate(shape) if j != axis - 1))
        values = lambda b, shape=shape: pixels(b, *shape)
        weight = dict(weight=r.choice([0.3, 2.0])) if k or r.random() < 0.2 else {}
        kind = r.randrange(10) if axis else 5
        if kind < 3:
            options = dict(label_smoothing=r.choice([0.0, 0.0, 0.2]), class_weight=[0.5 + 0.25 * j for j in range(n)] if r.random() < 0.4 else None, ignore_index=r.choice([-100, 0, n - 1]),
                           reduction=r.choice(["mean", "mean", "sum"]))
            made.append(term("cross_entropy", name, target, **place, **{k: v for k, v in options.items() if v is not None}, **weight))
            targets[target] = labels
        elif kind == 3:
            end = lambda y, dim=-1 if last else 1: F.log_softmax(y, dim)
            made.append(term("nll", name, target, **place, **(dict(class_weight=[0.5 + 0.5 * j for j in range(n)]) if r.random() < 0.5 else {}), **(dict(ignore_index=n - 1) if r.random() < 0.5 else {}), **weight))
            targets[target] = labels
        elif kind == 4 and not k:
            end = lambda y: F.log_softmax(y, -1)
            made.append(term("kl_div", name, target, **weight, **r.choice([{}, {}, dict(reduction="sum")])))
            targets[target] = lambda b, shape=shape: torch.randn(b, *shape).softmax(-1)
        elif kind == 5:
            made.append(term(r.choice(["mse", "l1", "smooth_l1", "huber"]), name, target, **weight, **r.choice([{}, {}, dict(reduction="sum")])))
            targets[target] = values
        elif kind == 6:
            made.append(term("bce_with_logits", name, target, pos_weight=[1 + 0.5 * j for j in range(shape[-1])], **weight))
            targets[target] = lambda b, shape=shape: torch.randint(0, 2, (b, *shape)).float()
        elif kind == 7 and not k:
            end = torch.sigmoid
            made.append(term("bce", name, target, **weight))
            targets[target] = lambda b, shape=shape: torch.rand(b, *shape)
        elif kind == 8:
            made += [term("cross_entropy", name, target, **place, **weight), term("output", name, target=None, weight=0.1)]
            targets[target] = labels
        else:
            made += [term("huber", name, target, delta=0.3, **weight), term("smooth_l1", name, target, beta=2.0, weight=0.2)]
            targets[target] = values
    return made, targets, end


FAMILIES = dict(spatial=spatial, grids=grids, pairs=pairs, decoders=decoders, cells=cells, indexed=indexed, indexed2=indexed)


def case(number):
    name = f"mix_{number}"
    r = random.Random(zlib.crc32(name.encode()))
    family = r.choice(list(FAMILIES))
    shape_seed = r.randrange(1 << 30)
    made = lambda: FAMILIES[family](random.Random(shape_seed))
    torch.manual_seed(number)
    net, inputs, outputs = made()
    losses, targets, end = terms(r, outputs)

    def whole():
        net = Ending(made()[0], end) if end else made()[0]
        return settled(net, {k: f(6) for k, f in inputs.items()}, tuple(inputs))

    exporter, opset, optimize, mode, dynamic = r.choice(STYLES + NEWER)
    statistics = any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in net.modules())
    if statistics:  # otherwise the exporters fold it
        optimize = False
    options = recipe(r)
    kind = options["optimizer"]["type"]
    extra = dict(adagrad=dict(lr_decay=0.1, initial_accumulator_value=0.1), adadelta=dict(rho=0.7), rmsprop=dict(alpha=0.9), momentum=dict(momentum=0.5), adamax=dict(betas=[0.7, 0.9])).get(kind)
    if extra and r.random() < 0.4:
        options["optimizer"] |= extra
    if kind == "lamb" or "groups" in options["optimizer"]:
        # the optimizer depends on ranks and norms of tensors: a folded file has a bias with other extents, or several weights as one
        optimize = False
    sizes = [r.choice([4, 6]) if dynamic and k else 6 for k in range(options["steps"])] if r.random() < 0.4 else None
    names = [n for n, _ in net.named_parameters()]
    frozen = (names[0],) if r.random() < 0.15 and len(names) > 3 else ()
    return Case(name, whole, lambda b: {k: f(b) for k, f in (inputs | targets).items()}, losses, inputs=tuple(inputs), targets=tuple(targets), outputs=("out", "out1")[: len(outputs)], exporter=exporter, opset=opset,
                optimize=optimize, mode=mode, dynamic_batch=dynamic, semantics=r.choice(["train", "as_graph"]) if statistics and mode == "eval" else "as_graph", frozen=frozen,
                external_data=r.random() < 0.1 and exporter == "dynamo", batch_size=6, batch_sizes=sizes, may_rest=True, notes=family, **options)


def cases():
    first = int(os.environ.get("random_FIRST", 0))
    for number in range(first, first + int(os.environ.get("random_COUNT", 100))):
        yield case(number)
