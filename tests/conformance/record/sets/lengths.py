"""Batches of several lengths and sizes in one run: axes that the file leaves open, with extents that differ from batch to batch."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

from case import Case, classes, pixels, term
from optimizers import optimizer
from sets.families import Net
from sets.further import L, conv, lin

some = lambda low, high: int(torch.randint(low, high, ()))


def decoder(s, x):
    """Positions from a table, and a causal mask computed from the length."""
    t = x.shape[1]
    h = s.table(x) + s.places(torch.arange(t))
    q, k, v = s.qkv(s.norm(h)).chunk(3, -1)
    mask = torch.triu(torch.full((t, t), float("-inf")), 1)
    return s.head(h + (q @ k.transpose(1, 2) / 8**0.5 + mask).softmax(-1) @ v)


def distances(s, x):
    """Attention heads by scaled_dot_product_attention, with a trained bias by distance."""
    t = torch.arange(x.shape[1])
    q, k, v = (s.qkv(s.table(x)).unflatten(2, (3, 2, 4)).permute(2, 0, 3, 1, 4)).unbind(0)
    bias = s.bias((t[:, None] - t[None]).clamp(-4, 4) + 4).permute(2, 0, 1)
    return s.head(F.scaled_dot_product_attention(q, k, v, bias).transpose(1, 2).flatten(2).mean(1))


def both_ways(s, x):
    h, (a, _) = s.lstm(s.table(x))
    keep = (x != 0).float()[..., None]
    return s.head(torch.cat([(h * keep).sum(1) / keep.sum(1), a[-1]], 1))


def filters(s, x):
    e = s.table(x).transpose(1, 2)
    return s.head(torch.cat([F.relu(c(e)).amax(2) for c in s.convs], 1))


def pyramid(s, x):
    a = F.relu(s.first(x))
    b = F.interpolate(F.relu(s.second(a)), size=a.shape[-2:], mode="bilinear", align_corners=False)
    return s.head(torch.cat([a, b, a.mean((2, 3), keepdim=True).expand_as(a)], 1))


def translated(s, x, z):
    """Two independent lengths."""
    m, h = s.encode(s.table(x))[0], s.table(z)
    a = (s.q(h) @ m.transpose(1, 2) / math.sqrt(6)).softmax(-1) @ m
    return s.head(torch.cat([h.cumsum(1) / torch.arange(1, z.shape[1] + 1)[:, None], a], -1))


def time_first(s, x):
    return s.head(s.gru(s.table(x))[0])


def sentence(b):
    t = some(4, 9)
    return {"x": torch.where(torch.arange(t)[None] < torch.randint(2, t + 1, (b, 1)), classes(10, b, t) + 1, 0)}


def words(b):
    t = some(4, 9)
    return {"x": classes(11, b, t), "y": classes(11, b, t)}


def plane(b):
    h, w = some(4, 7), some(5, 9)
    return {"x": pixels(b, 3, h, w), "y": classes(3, b, h, w)}


def pair(b):
    t = some(3, 7)
    return {"x": classes(11, b, some(4, 9)), "z": classes(11, b, t), "y": classes(11, b, t)}


def columns(b):
    t = some(4, 9)
    return {"x": classes(11, t, b), "y": classes(11, t, b)}


LENGTHS = {
    "decoder": (lambda: Net(decoder, table=nn.Embedding(11, 8), places=nn.Embedding(12, 8), norm=nn.LayerNorm(8), qkv=lin(8, 24), head=lin(8, 11)), words, {"x": {1: "words"}}, -1),
    "distances": (lambda: Net(distances, table=nn.Embedding(11, 8), qkv=lin(8, 24), bias=nn.Embedding(9, 2), head=lin(8, 3)), lambda b: sentence(b) | {"y": classes(3, b)}, {"x": {1: "words"}}, 1),
    "both_ways": (lambda: Net(both_ways, table=nn.Embedding(11, 5), lstm=nn.LSTM(5, 4, batch_first=True, bidirectional=True), head=lin(12, 3)), lambda b: sentence(b) | {"y": classes(3, b)}, {"x": {1: "words"}}, 1),
    "filters": (lambda: Net(filters, table=nn.Embedding(11, 5), convs=L([nn.Conv1d(5, 4, 2), nn.Conv1d(5, 4, 3, padding=2)]), head=lin(8, 3)), lambda b: sentence(b) | {"y": classes(3, b)}, {"x": {1: "words"}}, 1),
    "pyramid": (lambda: Net(pyramid, first=conv(3, 4), second=conv(4, 4, stride=2), head=conv(12, 3, 1)), plane, {"x": {2: "high", 3: "wide"}}, 1),
    "translated": (lambda: Net(translated, table=nn.Embedding(11, 6), encode=nn.GRU(6, 6, batch_first=True), q=lin(6, 6), head=lin(12, 11)), pair, {"x": {1: "heard"}, "z": {1: "said"}}, -1),
    "time_first": (lambda: Net(time_first, table=nn.Embedding(11, 5), gru=nn.GRU(5, 4), head=lin(4, 11)), columns, {"x": {0: "time", 1: "batch"}}, -1),
}


def cases():
    for name, (module, batch, axes, axis) in LENGTHS.items():
        for exporter, opset in (("legacy", 17), ("dynamo", 20)):
            first = name == "time_first"
            yield Case(f"lengths_{name}_{exporter}", module, batch, [term("cross_entropy", **(dict(class_axis=-1) if axis < 0 else {}))], optimizer("adam", lr=0.01), inputs=tuple(axes), exporter=exporter, opset=opset,
                       mode="eval" if exporter == "dynamo" else "train", dynamic_axes=axes, dynamic_batch=not first, batch_size=6, batch_sizes=None if first else [6, 6, 4, 6, 6, 2, 6, 6], steps=8,
                       clip_grad_norm=1.0, grad_accumulation=2 if name == "filters" else 1)
