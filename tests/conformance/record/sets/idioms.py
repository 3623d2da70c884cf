"""How people write things: parts of tensors written in place, computed positions, masks from lengths, indices that are the same for each
sample or come from the data, in models for forecasting, recommendation, detection, generation and control. `batches` exports them for one
sample, two and any number as well. Nothing is kept in `recorded/`."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

from case import classes, pixels
from sets.everyday import act, styles
from sets.families import Net, weight
from sets.further import EDGES, L, P, conv, conv1, image, lin, mlp, one, steps, tokens, vector

lengths = lambda b: {"x": pixels(b, 6, 5), "n": torch.randint(1, 7, (b,))}
clip = lambda b: {"x": pixels(b, 4, 6, 5)}


# Written in place


def blanked_columns(s, x):
    h = s.body(x)
    h = h.index_fill(1, torch.tensor([1, 4]), 0.0)
    h = h.scatter(1, torch.tensor([[2, 6]]).expand(h.size(0), -1), 0.5)
    return s.head(torch.tanh(h))


def scaled_in_place(s, x):
    h = s.body(x)
    h[:, ::2] += s.scale
    h[:, -1] -= s.shift.squeeze()
    h[:, 2:4] = 0
    h[:, [0, 5]] = h[:, [5, 0]] * s.gate
    return s.head(torch.tanh(h))


def outputs_in_advance(s, x):
    b, n, _ = x.shape
    h, out = x.new_zeros(b, 4), torch.zeros(b, n, 4)
    for t in range(n):
        h = s.cell(x[:, t], h)
        out[:, t, :] = h
    return s.head(out.max(1)[0] + out[:, -1])


def shifted_in_time(s, x):
    """TSM."""
    out = torch.zeros_like(x)
    out[:, :-1, :2] = x[:, 1:, :2]
    out[:, 1:, 2:4] = x[:, :-1, 2:4]
    out[:, :, 4:] = x[:, :, 4:]
    return s.head(act(s.body(out)).mean((1, 2)))


def decoded_boxes(s, x):
    """YOLO: grids, and one part of the last axis at a time."""
    y = s.head(act(s.body(x)))
    b, _, h, w = y.shape
    y = y.view(b, 2, 7, h, w).permute(0, 1, 3, 4, 2).contiguous()
    gy, gx = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
    grid = torch.stack((gx, gy), 2).view(1, 1, h, w, 2).float()
    out, p = y.clone(), y.sigmoid()
    out[..., 0:2] = (p[..., 0:2] * 2.0 - 0.5 + grid) * 2
    out[..., 2:4] = (p[..., 2:4] * 2) ** 2 * s.anchors.view(1, 2, 1, 1, 2)
    return out.view(b, -1, 7)[:, :, :5].mean(1)


def swapped_halves(s, x):
    h = s.body(x)
    for k, layer in enumerate(s.layers):
        a, b = h.chunk(2, dim=1)
        scale, shift = layer(a).split([3, 3], dim=1)
        h = torch.cat([b * torch.exp(torch.tanh(scale)) + shift, a], 1)
        h[:, k] += s.shift[k]
    return s.head(h)


def masked_windows(s, x):
    """Swin: the mask of shifted windows is written at run time."""
    b, c, h, w = x.shape
    y = torch.roll(s.embed(x).permute(0, 2, 3, 1), (-1, -1), (1, 2))
    windows = y.view(b, h // 4, 4, w // 4, 4, 8).permute(0, 1, 3, 2, 4, 5).reshape(-1, 16, 8)
    img, count = torch.zeros(1, h, w, 1), 0
    for i in (slice(0, -4), slice(-4, -1), slice(-1, None)):
        for j in (slice(0, -4), slice(-4, -1), slice(-1, None)):
            img[:, i, j, :] = count
            count += 1
    parts = img.view(1, h // 4, 4, w // 4, 4, 1).permute(0, 1, 3, 2, 4, 5).reshape(-1, 16)
    mask = (parts.unsqueeze(1) - parts.unsqueeze(2)).ne(0).float() * -100.0
    q, k, v = s.qkv(windows).view(-1, 16, 3, 2, 4).permute(2, 0, 3, 1, 4).unbind(0)
    score = q @ k.transpose(-2, -1) * 0.5
    score = score.view(b, mask.shape[0], 2, 16, 16) + mask.unsqueeze(1).unsqueeze(0)
    out = (score.view(-1, 2, 16, 16).softmax(-1) @ v).transpose(1, 2).reshape(-1, 16, 8)
    out = out.view(b, h // 4, w // 4, 4, 4, 8).permute(0, 1, 3, 2, 4, 5).reshape(b, h, w, 8)
    return s.head(torch.roll(out, (1, 1), (1, 2)).mean((1, 2)))


# Selected elements


def sparse_queries(s, x):
    """Informer: only the queries far from the mean attend, the others get the mean of the values."""
    b, n, _ = x.shape
    q, k, v = (m(x).view(b, n, 2, 3).transpose(1, 2) for m in (s.q, s.k, s.v))
    score = q @ k[:, :, torch.tensor([0, 2, 5])].transpose(-2, -1)
    top = (score.max(-1)[0] - score.mean(-1)).topk(3, sorted=False)[1]
    index = (torch.arange(b)[:, None, None], torch.arange(2)[None, :, None], top)
    attend = (q[index] @ k.transpose(-2, -1) / 3**0.5).softmax(-1)
    context = v.mean(2, keepdim=True).expand(b, 2, n, 3).clone()
    context[index] = attend @ v
    return s.head(context.transpose(1, 2).reshape(b, n, 6))


def delayed_values(s, x):
    """Autoformer: values rolled by the delays with the largest correlation over all channels."""
    b, n, _ = x.shape
    q, v = s.q(x).transpose(1, 2), s.v(x).transpose(1, 2)
    shifts = (torch.arange(n)[None] + torch.arange(n)[:, None]) % n
    corr = (q.unsqueeze(2) * q[:, :, shifts]).mean((1, 3))
    w, delay = torch.topk(corr, 2, dim=1)
    w = w.softmax(1)
    twice = torch.cat([v, v], -1)
    out = torch.zeros_like(v)
    for i in range(2):
        place = torch.arange(n).view(1, 1, -1) + delay[:, i].view(-1, 1, 1)
        out = out + twice.gather(-1, place.expand(-1, v.shape[1], -1)) * w[:, i].view(-1, 1, 1)
    return s.head(out.transpose(1, 2))


def masked_patches(s, x, noise):
    """MAE: tokens are shuffled by noise, some are kept, mask tokens are inserted, and all are restored to their order."""
    h = s.embed(x) + s.places
    b, n, d = h.shape
    shuffle = noise.argsort(1)
    restore = shuffle.argsort(1)
    kept = h.gather(1, shuffle[:, :3].unsqueeze(-1).repeat(1, 1, d))
    kept = kept + torch.tanh(s.body(kept))
    full = torch.cat([kept, s.token.repeat(b, n - kept.shape[1], 1)], 1)
    full = torch.gather(full, 1, restore.unsqueeze(-1).expand(-1, -1, d)) + s.places
    return s.head(full)


def at_centres(s, x, place):
    """CenterNet: features at given positions of the map."""
    h = act(s.body(x))
    h = h.permute(0, 2, 3, 1).contiguous().view(h.size(0), -1, h.size(1))
    at = h.gather(1, place.unsqueeze(2).expand(place.size(0), place.size(1), h.size(2)))
    return s.head(at.flatten(1))


def last_by_length(s, x, n):
    y, _ = s.gru(x)
    last = y.gather(1, (n - 1).view(-1, 1, 1).expand(-1, 1, y.size(2))).squeeze(1)
    mask = (torch.arange(x.size(1))[None, :] < n[:, None]).unsqueeze(-1)
    mean = (y * mask).sum(1) / n.unsqueeze(1).to(y.dtype)
    top = y.masked_fill(~mask, torch.finfo(y.dtype).min).max(dim=1).values
    return s.head(torch.cat([last, mean, top], -1))


def margin(s, x, label):
    """ArcFace: a margin at the given class."""
    cosine = F.linear(F.normalize(s.body(x)), F.normalize(s.w)).clamp(-0.99, 0.99)
    sine = torch.sqrt(1.0 - cosine.pow(2))
    phi = cosine * math.cos(0.3) - sine * math.sin(0.3)
    hot = torch.zeros_like(cosine)
    hot.scatter_(1, label.view(-1, 1).long(), 1)
    return 4.0 * (hot * phi + (1.0 - hot) * cosine)


def best_experts(s, x):
    logits = s.gate(x)
    top, index = logits.topk(2, dim=1)
    gates = torch.zeros_like(logits).scatter_(1, index, top.softmax(1))
    out = sum(gates[:, e : e + 1] * expert(x) for e, expert in enumerate(s.experts))
    return s.head(out), gates.mean(0, keepdim=True).expand(x.size(0), -1) * logits.softmax(1)


def target_attention(s, x, item):
    """DIN: a history weighted by its similarity to the item, without padding."""
    e, t = s.table(x), s.table(item).unsqueeze(1)
    t = t.expand(-1, e.size(1), -1)
    score = s.score(torch.cat([t, e, t - e, t * e], -1)).squeeze(-1)
    score = torch.where(x != 0, score, torch.full_like(score, -1e4))
    pooled = torch.einsum("bt,btd->bd", score.softmax(-1), e)
    return s.head(torch.cat([pooled, t[:, 0]], 1)).squeeze(1)


def messages(s, x):
    src, dst = EDGES
    for layer in s.layers:
        m = layer(torch.cat([x.index_select(1, src), x.index_select(1, dst)], -1))
        degree = torch.zeros(x.size(1)).index_add(0, dst, torch.ones(dst.numel())).clamp_(min=1)
        x = x + torch.zeros_like(x).index_add(1, dst, m) / degree.view(1, -1, 1)
    return s.head(x.mean(1))


# Positions and masks


def relative_shift(s, x):
    """Transformer-XL: scores by distance are moved to positions by padding and a view."""
    b, n, _ = x.shape
    q, k, v = s.qkv(x).view(b, n, 3, 2, 4).permute(2, 0, 3, 1, 4)
    r = s.r.view(n, 2, 4).permute(1, 2, 0)
    bd = (q + s.bias.view(1, 2, 1, 4)) @ r
    bd = F.pad(bd, (1, 0)).view(b, 2, n + 1, n)[:, :, 1:].reshape(b, 2, n, n)
    score = (q @ k.transpose(-1, -2) + bd) / 2.0
    score = score.masked_fill(torch.ones(n, n, dtype=torch.bool).triu(1), float("-inf"))
    return s.head((score.softmax(-1) @ v).transpose(1, 2).reshape(b, n, 8))


def sliding_window(s, x):
    b, n = x.shape
    h = s.table(x)
    q, k, v = (m(h).view(b, n, -1, 4).transpose(1, 2) for m in (s.q, s.k, s.v))
    k, v = k.repeat_interleave(2, 1), v.repeat_interleave(2, 1)
    i = torch.arange(n)
    seen = (i[:, None] >= i[None, :]) & (i[:, None] - i[None, :] < 3)
    slopes = torch.tensor([2.0 ** -(k + 1) for k in range(2)]).view(1, 2, 1, 1)
    mask = torch.zeros(n, n).masked_fill(~seen, float("-inf"))[None, None] - slopes * (i[:, None] - i[None, :]).abs()
    y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask.expand(b, -1, -1, -1))
    return s.head(y.transpose(1, 2).flatten(2))


def prompted(s, x):
    b, n = x.shape
    start = torch.full((b, 1), 10, dtype=torch.long)
    h = s.table(torch.cat([start, x], 1)) + s.kinds(torch.zeros(b, n + 1, dtype=torch.long))
    h = torch.cat([s.prompt.unsqueeze(0).expand(b, -1, -1), h], 1)
    hidden = F.pad(x == 0, (3, 0), value=False)
    return s.head(s.body(h, src_key_padding_mask=hidden)[:, 2])


def noised(s, x, t):
    """A diffusion step: the schedule by time, sinusoidal embeddings, and the resulting scale and shift."""
    alpha = s.schedule.gather(-1, t).view(-1, 1, 1, 1)
    noisy = alpha.sqrt() * x + (1 - alpha).sqrt() * s.noise
    freqs = torch.exp(-math.log(100.0) * torch.arange(3) / 3)
    args = t[:, None].float() * freqs[None]
    scale, shift = s.time(torch.cat([args.cos(), args.sin()], -1))[:, :, None, None].chunk(2, 1)
    h = F.silu(s.norm(s.first(noisy)) * (1 + scale) + shift)
    down = F.avg_pool2d(h, 2)
    h = torch.cat([F.interpolate(torch.tanh(s.mid(down)), scale_factor=2, mode="nearest"), h], 1)
    return s.last(h)


def transformed(s, x):
    """A spatial transformer."""
    theta = s.locate(F.adaptive_avg_pool2d(act(s.body(x)), 2).flatten(1)).view(-1, 2, 3)
    grid = F.affine_grid(theta, x.size(), align_corners=False)
    return s.head(act(s.read(F.grid_sample(x, grid, padding_mode="border", align_corners=False))).mean((2, 3)))


def deformed(s, x):
    """Values sampled at offsets of each query, level by level."""
    b, n = x.size(0), 4
    q = s.queries.weight.unsqueeze(0).repeat(b, 1, 1)
    offsets = s.offset(q).view(b, n, 2, 3, 2).tanh() * 0.3
    weights = s.share(q).view(b, n, 6).softmax(-1).view(b, n, 2, 3)
    out = 0
    for level, (h, w) in enumerate([(8, 8), (4, 4)]):
        value = s.values[level](F.adaptive_avg_pool2d(x, (h, w)))
        grid = 2 * (s.points[None, :, None] + offsets[:, :, level]) - 1
        got = F.grid_sample(value, grid, mode="bilinear", padding_mode="zeros", align_corners=False)
        out = out + (got * weights[:, :, level].unsqueeze(1)).sum(-1)
    return s.head(out.transpose(1, 2) + q)


def patched(s, x):
    """PatchTST with its normalization, channels as samples."""
    mean, std = x.mean(1, keepdim=True), torch.sqrt(x.var(1, keepdim=True, unbiased=False) + 1e-5)
    z = ((x - mean) / std).permute(0, 2, 1)
    z = F.pad(z.unsqueeze(1), (0, 2, 0, 0), mode="replicate").squeeze(1).unfold(-1, 4, 2)
    b, c, m, _ = z.shape
    h = s.body(s.embed(z).reshape(b * c, m, -1) + s.places)
    y = s.head(h.view(b, c, -1)).permute(0, 2, 1)
    return y * std + mean


def gaussian_policy(s, x, action):
    h = torch.tanh(s.body(x))
    mean, std = s.mean(h), s.log_std.clamp(-2, 1).exp().expand_as(s.mean(h))
    log_prob = (-((action - mean) ** 2) / (2 * std**2) - std.log() - 0.5 * math.log(2 * math.pi)).sum(-1)
    return log_prob, s.value(h).squeeze(-1)


def by_buckets(s, x):
    """Numbers are bucketized, and the classes select rows."""
    at = (x.unsqueeze(-1) > s.bounds).sum(-1)
    hot = F.one_hot(at, 5).float()
    e = s.table(at + torch.arange(6) * 5)
    return s.head(torch.cat([(hot @ s.rows).flatten(1), e.mean(1), x.cumsum(1), torch.flip(x, [1]), x.diff(dim=1)], 1))


def ranked(s, x):
    """Item scores are sorted, discounted by rank, and put back in their order."""
    score = s.body(x).squeeze(-1)
    top, order = score.sort(dim=1, descending=True)
    gain = top / torch.log2(torch.arange(x.size(1)) + 2.0)
    back = torch.zeros_like(gain).scatter(1, order, gain)
    return back + s.shift


IDIOMS = {
    "blanked_columns": (lambda: Net(blanked_columns, body=lin(6, 8), head=lin(8, 3)), vector, [((3,), 1)]),
    "scaled_in_place": (lambda: Net(scaled_in_place, body=lin(6, 8), scale=one(4), shift=weight(1), gate=one(2), head=lin(8, 3)), vector, [((3,), 1)]),
    "outputs_in_advance": (lambda: Net(outputs_in_advance, cell=nn.GRUCell(5, 4), head=lin(4, 3)), steps, [((3,), 1)]),
    "shifted_in_time": (lambda: Net(shifted_in_time, body=lin(5, 6), head=lin(6, 3)), clip, [((3,), 1)]),
    "decoded_boxes": (lambda: Net(decoded_boxes, body=conv(3, 6, stride=2), head=conv(6, 14, 1), anchors=torch.tensor([[1.0, 2.0], [2.0, 1.5]])), image, [((5,), 0)]),
    "swapped_halves": (lambda: Net(swapped_halves, body=lin(6, 6), layers=L(mlp(3, 8, 6) for _ in range(3)), shift=weight(3), head=lin(6, 3)), vector, [((3,), 1)]),
    "masked_windows": (lambda: Net(masked_windows, embed=conv(3, 8, 1), qkv=lin(8, 24), head=lin(8, 3)), image, [((3,), 1)]),
    "sparse_queries": (lambda: Net(sparse_queries, q=lin(5, 6), k=lin(5, 6), v=lin(5, 6), head=lin(6, 3)), steps, [((8, 3), 2)]),
    "delayed_values": (lambda: Net(delayed_values, q=lin(5, 4), v=lin(5, 4), head=lin(4, 3)), steps, [((8, 3), 0)]),
    "masked_patches": (lambda: Net(masked_patches, embed=lin(5, 6), places=weight(1, 8, 6), token=weight(1, 1, 6), body=lin(6, 6), head=lin(6, 5)), lambda b: steps(b) | {"noise": torch.rand(b, 8)}, [((8, 5), 0)]),
    "at_centres": (lambda: Net(at_centres, body=conv(3, 5), head=lin(15, 4)), lambda b: image(b) | {"place": classes(64, b, 3)}, [((4,), 0)]),
    "last_by_length": (lambda: Net(last_by_length, gru=nn.GRU(5, 4, batch_first=True), head=lin(12, 3)), lengths, [((3,), 1)]),
    "margin": (lambda: Net(margin, body=lin(6, 5), w=weight(4, 5)), lambda b: vector(b) | {"label": classes(4, b).int()}, [((4,), 1)]),
    "best_experts": (lambda: Net(best_experts, gate=lin(6, 4), experts=L(mlp(6, 7, 5) for _ in range(4)), head=lin(5, 3)), vector, [((3,), 1), None]),
    "target_attention": (lambda: Net(target_attention, table=nn.Embedding(11, 4, padding_idx=0), score=mlp(16, 6, 1), head=mlp(8, 6, 1)), lambda b: tokens(b) | {"item": classes(11, b)}, [((), 0)]),
    "messages": (lambda: Net(messages, layers=L(mlp(8, 6, 4) for _ in range(2)), head=lin(4, 3)), lambda b: {"x": pixels(b, 6, 4)}, [((3,), 1)]),
    "relative_shift": (lambda: Net(relative_shift, qkv=lin(5, 24), r=weight(8, 8), bias=weight(8), head=lin(8, 3)), steps, [((8, 3), 2)]),
    "sliding_window": (lambda: Net(sliding_window, table=nn.Embedding(11, 8), q=lin(8, 8), k=lin(8, 4), v=lin(8, 4), head=lin(8, 11)), tokens, [((6, 11), 2)]),
    "prompted": (lambda: Net(prompted, table=nn.Embedding(11, 8), kinds=nn.Embedding(2, 8), prompt=weight(2, 8), body=nn.TransformerEncoderLayer(8, 2, 12, 0.0, batch_first=True), head=lin(8, 3)), tokens, [((3,), 1)]),
    "noised": (lambda: Net(noised, schedule=torch.linspace(0.9, 0.1, 9), noise=torch.randn(1, 3, 8, 8), time=mlp(6, 8, 12), first=conv(3, 6), norm=nn.GroupNorm(2, 6), mid=conv(6, 6), last=conv(12, 3)), lambda b: image(b) | {"t": classes(9, b)}, [((3, 8, 8), 0)]),
    "transformed": (lambda: Net(transformed, body=conv(3, 4), locate=lin(16, 6), read=conv(3, 6), head=lin(6, 3)), image, [((3,), 1)]),
    "deformed": (lambda: Net(deformed, queries=nn.Embedding(4, 6), offset=lin(6, 12), share=lin(6, 6), values=L(conv(3, 6, 1) for _ in range(2)), points=torch.rand(4, 2) * 0.6 + 0.2, head=lin(6, 3)), image, [((4, 3), 0)]),
    "patched": (lambda: Net(patched, embed=lin(4, 8), places=weight(4, 8), body=nn.TransformerEncoderLayer(8, 2, 12, 0.0, batch_first=True), head=lin(32, 2)), steps, [((2, 5), 0)]),
    "gaussian_policy": (lambda: Net(gaussian_policy, body=lin(6, 8), mean=lin(8, 2), log_std=P(torch.tensor([-0.5, 0.2])), value=lin(8, 1)), lambda b: vector(b) | {"action": pixels(b, 2)}, [((), 0), ((), 0)]),
    "by_buckets": (lambda: Net(by_buckets, bounds=torch.tensor([-1.0, -0.3, 0.3, 1.0]), rows=weight(5, 2), table=nn.Embedding(30, 4), head=lin(33, 3)), vector, [((3,), 1)]),
    "ranked": (lambda: Net(ranked, body=mlp(5, 6, 1), shift=weight(8)), steps, [((8,), 0)]),
}


def cases():
    return styles(IDIOMS)
