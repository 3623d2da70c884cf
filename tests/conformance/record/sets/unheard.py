"""Models from recent papers and from fields that no other set has: memories that learn while reading, forget gates, data-dependent
positions, recursive splines, rounded codes, hash grids, rigid motions, unrolled signal filters, exponential smoothing, trees, mixture
likelihoods. Up to two styles of each (`everyday_STYLES`), as in everyday.py. Signals and images are in unheard_signals.py, graphs, tables
and likelihoods in unheard_tables.py. Nothing is kept in `recorded/` except cases that found a bug."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

from case import pixels
from sets.everyday import styles
from sets.families import Net, weight
from sets.further import L, conv, image, lin, mlp, one, series, steps, tokens, vector

cloud = lambda b: {"x": pixels(b, 7, 3)}


def heads(x, n):
    """[batch, position, width] as [batch, head, position, width of a head]."""
    return x.unflatten(-1, (n, -1)).transpose(1, 2)


# Sequences with a memory


def dynamic_state(s, x):
    """RWKV-7: a state from which each token removes a direction and into which it writes another."""
    h = s.table(x)
    mixed = h + (F.pad(h, (0, 0, 1, -1)) - h) * s.shift
    r, k, v = s.r(mixed), s.k(mixed), s.v(mixed)
    decay = torch.exp(-0.606531 * torch.sigmoid(s.w0 + torch.tanh(mixed @ s.w1) @ s.w2))
    rate = torch.sigmoid(s.a(mixed))
    key = F.normalize(k, dim=-1)
    state, out = h.new_zeros(h.shape[0], 8, 8), []
    for t in range(x.shape[1]):
        kt = key[:, t]
        state = state * decay[:, t, None, :] - (state @ kt[..., None]) @ (kt * rate[:, t])[:, None] + v[:, t, :, None] @ k[:, t, None, :]
        out.append((state @ r[:, t, :, None])[..., 0])
    return s.head(F.group_norm(torch.stack(out, 1).flatten(0, 1), 2, s.g, s.b).view_as(h) + (r * k * s.bonus).sum(-1, keepdim=True) * v)


def learning_memory(s, x):
    """A linear map that each token updates by its own gradient, written out (test-time training)."""
    h = s.table(x)
    q, k, v = s.qkv(h).chunk(3, -1)
    eta = torch.sigmoid(s.rate(h))
    w = s.w.expand(x.shape[0], -1, -1)
    out = []
    for t in range(x.shape[1]):
        error = torch.einsum("bi,bij->bj", k[:, t], w) - v[:, t]
        w = w - eta[:, t, :, None] * k[:, t, :, None] * error[:, None]
        out.append(torch.einsum("bi,bij->bj", q[:, t], w))
    return s.head(F.layer_norm(torch.stack(out, 1), (8,)) + h)


def surprised_memory(s, x):
    """A memory with momentum and forgetting, with gates computed from the token."""
    h = s.body(x)
    gate = torch.sigmoid(s.gates(x))
    m, velocity, out = s.start.repeat(x.shape[0], 1, 1), 0.0, []
    for t, token in enumerate(h.unbind(1)):
        k, v = token[:, :4], token[:, 4:]
        grad = torch.bmm(k.unsqueeze(2), torch.bmm(k.unsqueeze(1), m) - v.unsqueeze(1))
        velocity = gate[:, t, 0].view(-1, 1, 1) * velocity - 0.2 * grad
        m = (1 - gate[:, t, 1].view(-1, 1, 1)) * m + velocity
        out.append(torch.bmm(k.unsqueeze(1), m).squeeze(1))
    return s.head(torch.stack(out, 1))


def forgetting(s, x):
    """Softmax attention with a forget gate: cumulative log gates as a bias."""
    h = s.table(x)
    q, k, v = (heads(y, 2) for y in s.qkv(s.norm(h)).chunk(3, -1))
    c = F.logsigmoid(s.forget(h)).transpose(1, 2).cumsum(-1)
    bias = (c.unsqueeze(-1) - c.unsqueeze(-2)).masked_fill(torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1), float("-inf"))
    y = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
    return s.head(h + s.out(y.transpose(1, 2).flatten(2)))


def decided_positions(s, x):
    """CoPE: positions counted by gates, interpolated between two rows of a table."""
    h = s.table(x)
    q, k, v = s.qkv(h).chunk(3, -1)
    t = x.shape[1]
    scores = q @ k.transpose(-1, -2) / 8**0.5
    seen = torch.tril(torch.ones(t, t))
    place = (torch.sigmoid(scores) * seen).flip(-1).cumsum(-1).flip(-1).clamp(max=5)
    low, high = place.floor().long(), place.ceil().long()
    logits = q @ s.places
    part = place - place.floor()
    scores = scores + logits.gather(-1, high) * part + logits.gather(-1, low) * (1 - part)
    return s.head((scores.masked_fill(seen == 0, -1e9).softmax(-1) @ v) + h)


def capped_window(s, x):
    """Scores bounded by a tanh, local masks, an attention sink, talking heads."""
    h = s.table(x)
    q, k, v = (heads(y, 2) for y in s.qkv(h).split([8, 8, 8], -1))
    t = torch.arange(x.shape[1])
    away = t[:, None] - t[None]
    scores = 3.0 * torch.tanh(q @ k.mT / 2.0 / 3.0)
    scores = torch.einsum("bhqk,hg->bgqk", scores, s.before)
    scores = torch.where((away >= 0) & (away < 3), scores, float("-inf"))
    top = scores.amax(-1, keepdim=True).clamp(min=0).detach()
    e = torch.exp(scores - top)
    p = e / (e.sum(-1, keepdim=True) + torch.exp(-top))
    p = torch.einsum("bgqk,gh->bhqk", p, s.after)
    return s.head(h + torch.sigmoid(s.gate(h)) * (p @ v).transpose(1, 2).reshape(h.shape))


def sigmoid_scores(s, x):
    h = s.table(x) + s.places.weight[: x.shape[1]]
    q, k, v = (heads(y, 2) for y in s.qkv(h).chunk(3, -1))
    scores = torch.sigmoid(q @ k.transpose(-2, -1) * s.scale.exp() - math.log(x.shape[1]))
    return s.head(s.norm(h + (scores.tril() @ v).transpose(1, 2).flatten(-2)))


def many_streams(s, x):
    """Hyper-connections: copies of the residual stream, mixed by static and data-dependent weights."""
    h = s.table(x).unsqueeze(-2).repeat(1, 1, 3, 1)
    for k in range(2):
        normed = F.rms_norm(h, (8,))
        alpha = s.alpha[k] + torch.tanh(normed @ s.wa[k]) * s.small
        beta = s.beta[k] + torch.tanh(normed @ s.wb[k]).squeeze(-1) * s.small
        mixed = alpha.transpose(-1, -2) @ h
        h = mixed[..., 1:, :] + beta.unsqueeze(-1) * s.layers[k](mixed[..., 0, :]).unsqueeze(-2)
    return s.head(h.sum(-2))


def short_filters(s, x):
    """Causal filters after each projection (canon layers), and the first layer's values added in later layers."""
    h, first = s.table(x), None
    canon = lambda k, y: y + F.conv1d(F.pad(y.transpose(1, 2), (3, 0)), s.filters[k], groups=8).transpose(1, 2)
    for k in range(2):
        q, key, v = (canon(3 * k + j, y) for j, y in enumerate(s.qkv[k](F.rms_norm(h, (8,), s.scale[k])).chunk(3, -1)))
        first = v if first is None else first
        v = torch.lerp(v, first, torch.sigmoid(s.share[k]))
        h = h + s.out[k](F.scaled_dot_product_attention(heads(q, 2), heads(key, 2), heads(v, 2), is_causal=True).transpose(1, 2).flatten(2))
    return s.head(h)


def random_features(s, x):
    """Performer: positive features of fixed directions."""
    q, k, v = s.qkv(x).chunk(3, -1)
    phi = lambda y: torch.exp(y @ s.directions - y.square().sum(-1, keepdim=True) / 2 - (y @ s.directions).amax(-1, keepdim=True).detach()) + 1e-4
    a, b = phi(q), phi(k)
    return s.head(torch.einsum("btr,brd->btd", a, torch.einsum("btr,btd->brd", b, v)) / torch.einsum("btr,br->bt", a, b.sum(1)).unsqueeze(-1))


def buckets(s, x):
    """T5: distances in logarithmic buckets."""
    h = s.table(x)
    t = torch.arange(x.shape[1])
    away = t[None] - t[:, None]
    n = away.abs()
    large = 2 + (torch.log(n.float().clamp(min=1) / 2) / math.log(4) * 2).to(torch.long)
    bucket = (away > 0).long() * 4 + torch.where(n < 2, n, large.clamp(max=3))
    q, k, v = (heads(y, 2) for y in s.qkv(h).chunk(3, -1))
    scores = q @ k.transpose(3, 2) + s.bias(bucket).permute(2, 0, 1).unsqueeze(0)
    return s.head(h + (F.softmax(scores.float(), -1).type_as(scores) @ v).transpose(1, 2).reshape(*x.shape, -1))


def banded(s, x):
    """Longformer: blocks attend to themselves and their neighbors, by slices of a padded sequence."""
    q, k, v = s.qkv(x).chunk(3, -1)
    b, t, d = q.shape
    around = lambda y: F.pad(y, (0, 0, 2, 2)).unfold(1, 6, 2).transpose(-1, -2)
    scores = torch.einsum("bnqd,bnkd->bnqk", q.reshape(b, t // 2, 2, d), around(k)) / d**0.5
    inside = F.pad(torch.ones(t, dtype=torch.bool), (2, 2)).unfold(0, 6, 2)
    scores = scores.masked_fill(~inside[None, :, None], torch.finfo(torch.float32).min)
    return s.head(torch.einsum("bnqk,bnkd->bnqd", scores.softmax(-1), around(v)).reshape(b, t, d))


def axial_rotary(s, x):
    """Rotations by two axes of an image, like a product of complex numbers."""
    h = s.patch(x).flatten(2).mT
    q, k, v = (heads(y, 2) for y in s.qkv(h).chunk(3, -1))
    row, column = torch.meshgrid(torch.arange(4.0), torch.arange(4.0), indexing="ij")
    angle = torch.cat([row.flatten()[:, None] * s.rates, column.flatten()[:, None] * s.rates], -1)
    cos, sin = angle.cos().repeat_interleave(2, -1), angle.sin().repeat_interleave(2, -1)
    turn = lambda y: y * cos + torch.stack((-y[..., 1::2], y[..., ::2]), -1).flatten(-2) * sin
    return s.head(F.scaled_dot_product_attention(turn(q), turn(k), v, scale=0.4).transpose(1, 2).flatten(2).mean(1))


def choice_of_depth(s, x):
    """Mixture of depths: half of the tokens, those with the largest gates, pass through a block in their order."""
    h = s.table(x) + s.places
    score = s.router(h).squeeze(-1)
    value, place = score.topk(3, -1)
    place, order = place.sort(-1)
    value = value.gather(-1, order)
    index = place.unsqueeze(-1).expand(-1, -1, 8)
    chosen = h.gather(1, index)
    return s.head(h.scatter_add(1, index, s.block(chosen) * torch.sigmoid(value).unsqueeze(-1)))


def expert_choice(s, x):
    """Experts that choose their tokens."""
    b, t, d = x.shape
    p = s.gate(x).softmax(-1)
    g, i = p.transpose(1, 2).topk(3, -1)
    taken = torch.gather(x.unsqueeze(1).expand(-1, 3, -1, -1), 2, i.unsqueeze(-1).expand(-1, -1, -1, d))
    y = torch.einsum("bekf,efd->bekd", F.gelu(torch.einsum("bekd,edf->bekf", taken, s.up)), s.down) * g.unsqueeze(-1)
    place = F.one_hot(i, t).to(y.dtype)
    return s.head(x + torch.einsum("bekt,bekd->btd", place, y))


def next_scale(s, x):
    """Residual codes over scales: the remainder is pooled, rounded to signs and subtracted."""
    h = s.first(x)
    rest, total = h, 0.0
    for k, size in enumerate((1, 2, 4)):
        z = F.interpolate(rest, size=(size, size), mode="area")
        code = torch.where(z > 0, 1.0, -1.0) * 0.3
        code = z + (code - z).detach()
        up = s.convs[k](F.interpolate(code, size=(8, 8), mode="bicubic"))
        total, rest = total + up, rest - up
    return s.head(total)


def finite_scalars(s, x):
    """FSQ: each channel of the latent is rounded to a few levels, with straight-through gradients."""
    z = s.encode(x)
    half = (s.levels - 1) * (1 - 1e-3) / 2
    offset = torch.where(s.levels % 2 == 1, 0.0, 0.5)
    shift = (offset / half).atanh()
    z = torch.tanh(z + shift) * half - offset
    z = z + (z.round() - z).detach()
    return s.decode(z / (s.levels // 2))


# Functions by splines, hashes and waves


def spline_layer(s, x):
    """KAN: B-splines by the Cox-de Boor recursion on a fixed grid, plus a plain activation."""
    h = torch.tanh(s.first(x)).unsqueeze(-1)
    g = s.grid
    basis = ((h >= g[:, :-1]) & (h < g[:, 1:])).to(h.dtype)
    for k in range(1, 4):
        basis = (h - g[:, : -(k + 1)]) / (g[:, k:-1] - g[:, : -(k + 1)]) * basis[..., :-1] + (g[:, k + 1:] - h) / (g[:, k + 1:] - g[:, 1:-k]) * basis[..., 1:]
    return F.linear(F.silu(h.squeeze(-1)), s.base) + F.linear(basis.flatten(1), (s.spline * s.scale.unsqueeze(-1)).flatten(1))


def chebyshev_layer(s, x):
    t = torch.tanh(x).unsqueeze(-1).expand(-1, -1, 5)
    angle = (t.clamp(-0.999, 0.999).acos() * torch.arange(5)).cos()
    y = torch.einsum("bid,iod->bo", angle, s.first)
    return s.head(F.layer_norm(y, (6,), s.g))


def wave_layer(s, x):
    k = torch.arange(1, 4)
    turn = x.unsqueeze(-1) * k
    return s.head(torch.einsum("bik,oik->bo", turn.cos(), s.c) + torch.einsum("bik,oik->bo", turn.sin(), s.s) + s.b)


def hashed_grid(s, x):
    """Tables at several resolutions, whose rows are found by hashing the integer corners."""
    x = torch.sigmoid(x)
    features = []
    for level, size in enumerate((3, 5, 8)):
        at = x * size
        low = at.floor()
        part = at - low
        low, total = low.long(), 0.0
        for corner in range(4):
            bit = torch.tensor([corner & 1, corner >> 1])
            place = low + bit
            key = torch.remainder(torch.bitwise_xor(place[..., 0], place[..., 1] * 2654435761), 16)
            share = torch.where(bit == 1, part, 1 - part).prod(-1, keepdim=True)
            total = total + s.tables[level][key] * share
        features.append(total)
    return s.net(torch.cat(features, -1))


def sine_net(s, x):
    h = torch.sin(30 * s.first(x) * 0.1)
    return s.head(torch.sin(s.second(h)) * torch.exp(-(10 * s.third(h) * 0.1).square()))


def planes(s, x):
    """Triplane features by grid_sample at projected points."""
    p = torch.tanh(x)
    total = 0.0
    for k, axes in enumerate(([0, 1], [0, 2], [1, 2])):
        grid = p[..., axes].unsqueeze(1)
        total = total + F.grid_sample(s.planes[k : k + 1].expand(x.shape[0], -1, -1, -1), grid, mode="bilinear", padding_mode="border", align_corners=True).squeeze(2)
    return s.net(total.transpose(1, 2)).mean(1)


# Bodies and motions


def rodrigues(v):
    angle = (v.square().sum(-1, keepdim=True) + 1e-8).sqrt()
    a = v / angle
    zero = torch.zeros_like(a[..., 0])
    k = torch.stack([zero, -a[..., 2], a[..., 1], a[..., 2], zero, -a[..., 0], -a[..., 1], a[..., 0], zero], -1).unflatten(-1, (3, 3))
    angle = angle.unsqueeze(-1)
    return torch.eye(3) + angle.sin() * k + (1 - angle.cos()) * (k @ k)


def skinned(s, x):
    """A chain of joints rotated one after the other, and points attached to several joints."""
    turns = rodrigues(s.pose(x).view(-1, 3, 3))
    world, joints = [turns[:, 0]], [s.joints[0].expand(x.shape[0], 3)]
    for j in (1, 2):
        joints.append(joints[-1] + torch.einsum("bij,j->bi", world[-1], s.joints[j] - s.joints[j - 1]))
        world.append(torch.matmul(world[-1], turns[:, j]))
    moved = torch.stack([torch.einsum("bij,pj->bpi", w, s.points - s.joints[j]) + joints[j][:, None] for j, w in enumerate(world)], 1)
    return (moved * s.share.softmax(0)[None, :, :, None]).sum(1)


def six_numbers(s, x):
    """Rotations from six numbers by Gram-Schmidt, and the angle between two of them."""
    a, b = s.net(x).split(3, -1)
    a = F.normalize(a, dim=-1)
    b = F.normalize(b - (a * b).sum(-1, keepdim=True) * a, dim=-1)
    r = torch.stack((a, b, torch.cross(a, b, dim=-1)), -2)
    trace = (r @ s.target).diagonal(dim1=-2, dim2=-1).sum(-1)
    return r.flatten(1), torch.acos(((trace - 1) / 2).clamp(-0.95, 0.95))


def quaternions(s, x):
    q = F.normalize(s.net(x).view(-1, 2, 4), dim=-1)
    (a, b, c, d), (e, f, g, h) = q[:, 0].unbind(-1), q[:, 1].unbind(-1)
    p = torch.stack((a * e - b * f - c * g - d * h, a * f + b * e + c * h - d * g, a * g - b * h + c * e + d * f, a * h + b * g - c * f + d * e), -1)
    return s.head(p)


def small_systems(s, x):
    """Three equations by elimination without pivoting, and their determinant."""
    a = s.a(x).view(-1, 3, 3) + 3 * torch.eye(3)
    b, det = s.b(x), 1.0
    m = torch.cat([a, b.unsqueeze(-1)], -1)
    for k in range(3):
        pivot = m[:, k, k].view(-1, 1)
        det = det * pivot.squeeze(-1)
        row = m[:, k] / pivot
        m = torch.stack([row if j == k else m[:, j] - m[:, j, k, None] * row for j in range(3)], 1)
    return m[..., -1], det.abs().log()


def cholesky_factor(s, x):
    """A Gaussian likelihood whose Cholesky factor is written out column by column."""
    v = s.net(x)
    mean, low = v[:, :3], v[:, 3:].reshape(-1, 3, 3)
    a = low @ low.mT + 0.5 * torch.eye(3)
    rows = [[None] * 3 for _ in range(3)]
    for i in range(3):
        for j in range(i + 1):
            rest = a[:, i, j] - sum(rows[i][k] * rows[j][k] for k in range(j))
            rows[i][j] = rest.clamp(min=1e-6).sqrt() if i == j else rest / rows[j][j]
    z = []
    for i in range(3):
        z.append((s.y[i] - mean[:, i] - sum(rows[i][k] * z[k] for k in range(i))) / rows[i][i])
    return (0.5 * torch.stack(z, -1).square().sum(-1) + sum(rows[i][i].log() for i in range(3))).mean()


def determinant(s, x):
    a = s.a(x).view(-1, 3, 3) + 2 * torch.eye(3)
    return torch.linalg.det(a).unsqueeze(-1) * s.scale


def kalman(s, x):
    """A Kalman filter's mean and variance per step, with trained noises."""
    m, p, loss = s.m0.expand(x.shape[0]), s.p0.exp().expand(x.shape[0]), 0.0
    for y in x.unbind(1):
        m, p = m * s.f, p * s.f**2 + s.q.exp()
        total = p + s.r.exp()
        gain = p / total
        loss = loss + 0.5 * (total.log() + (y - m) ** 2 / total)
        m, p = m + gain * (y - m), (1 - gain) * p
    return loss.mean()


def orthogonal_by_steps(s, x):
    """Weights made orthogonal by five Newton-Schulz iterations."""
    w = s.w / (s.w.norm() + 1e-7)
    for _ in range(5):
        a = w @ w.mT
        w = 3.4445 * w + (-4.7750 * a + 2.0315 * (a @ a)) @ w
    return s.head(F.relu(x @ w.T))


UNHEARD = {
    "dynamic_state": (lambda: Net(dynamic_state, table=nn.Embedding(11, 8), shift=weight(8), r=lin(8, 8), k=lin(8, 8), v=lin(8, 8), w0=weight(8), w1=weight(8, 4), w2=weight(4, 8), a=lin(8, 8), g=one(8), b=weight(8), bonus=weight(8), head=lin(8, 11)), tokens, [((6, 11), 2)]),
    "learning_memory": (lambda: Net(learning_memory, table=nn.Embedding(11, 8), qkv=lin(8, 24), rate=lin(8, 1), w=weight(1, 8, 8), head=lin(8, 11)), tokens, [((6, 11), 2)]),
    "surprised_memory": (lambda: Net(surprised_memory, body=lin(5, 8), gates=lin(5, 2), start=weight(1, 4, 4), head=lin(4, 3)), steps, [((8, 3), 2)]),
    "forgetting": (lambda: Net(forgetting, table=nn.Embedding(11, 8), norm=nn.LayerNorm(8), qkv=lin(8, 24), forget=lin(8, 2), out=lin(8, 8), head=lin(8, 11)), tokens, [((6, 11), 2)]),
    "decided_positions": (lambda: Net(decided_positions, table=nn.Embedding(11, 8), qkv=lin(8, 24), places=weight(8, 6), head=lin(8, 11)), tokens, [((6, 11), 2)]),
    "capped_window": (lambda: Net(capped_window, table=nn.Embedding(11, 8), qkv=lin(8, 24), before=weight(2, 2), after=weight(2, 2), gate=lin(8, 8), head=lin(8, 11)), tokens, [((6, 11), 2)]),
    "sigmoid_scores": (lambda: Net(sigmoid_scores, table=nn.Embedding(11, 8), places=nn.Embedding(9, 8), qkv=lin(8, 24), scale=weight(2, 1, 1), norm=nn.LayerNorm(8), head=lin(8, 11)), tokens, [((6, 11), 2)]),
    "many_streams": (lambda: Net(many_streams, table=nn.Embedding(11, 8), alpha=weight(2, 3, 4), beta=weight(2, 3), wa=weight(2, 8, 4), wb=weight(2, 8, 1), small=weight(1), layers=L(mlp(8, 12, 8) for _ in range(2)), head=lin(8, 11)), tokens, [((6, 11), 2)]),
    "short_filters": (lambda: Net(short_filters, table=nn.Embedding(11, 8), filters=weight(6, 8, 1, 4), qkv=L(lin(8, 24) for _ in range(2)), scale=one(2, 8), share=weight(2), out=L(lin(8, 8) for _ in range(2)), head=lin(8, 11)), tokens, [((6, 11), 2)]),
    "random_features": (lambda: Net(random_features, qkv=lin(5, 12), directions=torch.randn(4, 6), head=lin(4, 3)), steps, [((8, 3), 2)]),
    "buckets": (lambda: Net(buckets, table=nn.Embedding(11, 8), qkv=lin(8, 24, bias=False), bias=nn.Embedding(8, 2), head=lin(8, 11)), tokens, [((6, 11), 2)]),
    "banded": (lambda: Net(banded, qkv=lin(5, 12), head=lin(4, 3)), steps, [((8, 3), 2)]),
    "axial_rotary": (lambda: Net(axial_rotary, patch=nn.Conv2d(3, 8, 2, 2), qkv=lin(8, 24), rates=torch.tensor([1.0]), head=lin(8, 4)), image, [((4,), 1)]),
    "choice_of_depth": (lambda: Net(choice_of_depth, table=nn.Embedding(11, 8), places=weight(6, 8), router=lin(8, 1), block=mlp(8, 12, 8), head=lin(8, 11)), tokens, [((6, 11), 2)]),
    "expert_choice": (lambda: Net(expert_choice, gate=lin(5, 3), up=weight(3, 5, 7), down=weight(3, 7, 5), head=lin(5, 3)), steps, [((8, 3), 2)]),
    "next_scale": (lambda: Net(next_scale, first=conv(3, 4), convs=L(conv(4, 4) for _ in range(3)), head=conv(4, 2)), image, [((2, 8, 8), 1)]),
    "finite_scalars": (lambda: Net(finite_scalars, encode=mlp(6, 8, 4), levels=torch.tensor([5, 4, 3, 8]), decode=mlp(4, 8, 6)), vector, [((6,), 0)]),
    "spline_layer": (lambda: Net(spline_layer, first=lin(6, 4), grid=torch.linspace(-1.9, 1.9, 12).expand(4, -1).contiguous(), base=weight(3, 4), spline=weight(3, 4, 8), scale=one(3, 4)), vector, [((3,), 1)]),
    "chebyshev_layer": (lambda: Net(chebyshev_layer, first=weight(6, 6, 5), g=one(6), head=lin(6, 3)), vector, [((3,), 1)]),
    "wave_layer": (lambda: Net(wave_layer, c=weight(5, 6, 3), s=weight(5, 6, 3), b=weight(5), head=lin(5, 3)), vector, [((3,), 1)]),
    "hashed_grid": (lambda: Net(hashed_grid, tables=weight(3, 16, 2), net=mlp(6, 8, 3)), lambda b: {"x": pixels(b, 2)}, [((3,), 0)]),
    "sine_net": (lambda: Net(sine_net, first=lin(6, 8), second=lin(8, 8), third=lin(8, 8), head=lin(8, 3)), vector, [((3,), 0)]),
    "planes": (lambda: Net(planes, planes=weight(3, 4, 5, 5), net=mlp(4, 8, 3)), cloud, [((3,), 0)]),
    "skinned": (lambda: Net(skinned, pose=lin(6, 9), joints=torch.randn(3, 3), points=weight(5, 3), share=weight(3, 5)), vector, [((5, 3), 0)]),
    "six_numbers": (lambda: Net(six_numbers, net=mlp(6, 8, 6), target=torch.linalg.qr(torch.randn(3, 3))[0]), vector, [((9,), 0), None]),
    "quaternions": (lambda: Net(quaternions, net=mlp(6, 8, 8), head=lin(4, 3)), vector, [((3,), 1)]),
    "small_systems": (lambda: Net(small_systems, a=lin(6, 9), b=lin(6, 3)), vector, [((3,), 0), None]),
    "cholesky_factor": (lambda: Net(cholesky_factor, net=mlp(6, 8, 12), y=torch.randn(3)), vector, [None]),
    "determinant": (lambda: Net(determinant, a=lin(6, 9), scale=one(2)), vector, [((2,), 0)]),
    "kalman": (lambda: Net(kalman, m0=weight(1), p0=weight(1), f=one(1), q=weight(1), r=weight(1)), series, [None]),
    "orthogonal_by_steps": (lambda: Net(orthogonal_by_steps, w=weight(8, 6), head=lin(8, 3)), vector, [((3,), 1)]),
}


def cases():
    return styles(UNHEARD)
