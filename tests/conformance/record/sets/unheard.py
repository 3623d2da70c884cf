"""Nets of papers of the last years and of fields that no other set has: memories that learn while they read, gates that forget, positions that the text decides, splines by recursion, codes of
rounded numbers, grids found by a hash, rigid motions, filters of signals written out, smoothing by recursion, trees, likelihoods of mixtures. Up to two styles of each (`everyday_STYLES`), as in
everyday.py; nothing is kept in `recorded/` but what a mistake was found by."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

from case import classes, pixels
from sets.everyday import styles
from sets.families import Net, weight
from sets.further import EDGES, L, P, conv, conv1, image, lin, mlp, nodes, one, series, steps, tokens, vector, wave

cloud = lambda b: {"x": pixels(b, 7, 3)}


def heads(x, n):
    """[batch, place, width] as [batch, head, place, width of a head]."""
    return x.unflatten(-1, (n, -1)).transpose(1, 2)


# Sequences that are read with a memory


def dynamic_state(s, x):
    """RWKV-7: a state of which each token takes a direction away and puts another in."""
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
    """A linear map that each token moves by its own gradient, written out (test-time training)."""
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
    """A memory with momentum and forgetting, each gate from the token."""
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
    """Softmax attention with a forget gate: sums of logarithms as a bias."""
    h = s.table(x)
    q, k, v = (heads(y, 2) for y in s.qkv(s.norm(h)).chunk(3, -1))
    c = F.logsigmoid(s.forget(h)).transpose(1, 2).cumsum(-1)
    bias = (c.unsqueeze(-1) - c.unsqueeze(-2)).masked_fill(torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1), float("-inf"))
    y = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
    return s.head(h + s.out(y.transpose(1, 2).flatten(2)))


def decided_positions(s, x):
    """CoPE: positions that gates count, between two rows of a table."""
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
    """Scores between bounds by a tanh, local masks, one more in the softmax, heads that talk."""
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
    """Hyper-connections: copies of the stream, mixed by weights and by what is in them."""
    h = s.table(x).unsqueeze(-2).repeat(1, 1, 3, 1)
    for k in range(2):
        normed = F.rms_norm(h, (8,))
        alpha = s.alpha[k] + torch.tanh(normed @ s.wa[k]) * s.small
        beta = s.beta[k] + torch.tanh(normed @ s.wb[k]).squeeze(-1) * s.small
        mixed = alpha.transpose(-1, -2) @ h
        h = mixed[..., 1:, :] + beta.unsqueeze(-1) * s.layers[k](mixed[..., 0, :]).unsqueeze(-2)
    return s.head(h.sum(-2))


def short_filters(s, x):
    """Causal filters beside each projection (canon layers), values that flow from the first layer on."""
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
    """T5: distances in buckets, which grow like logarithms."""
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
    """Longformer: blocks look at themselves and their neighbours, by slices of a padded sequence."""
    q, k, v = s.qkv(x).chunk(3, -1)
    b, t, d = q.shape
    around = lambda y: F.pad(y, (0, 0, 2, 2)).unfold(1, 6, 2).transpose(-1, -2)
    scores = torch.einsum("bnqd,bnkd->bnqk", q.reshape(b, t // 2, 2, d), around(k)) / d**0.5
    inside = F.pad(torch.ones(t, dtype=torch.bool), (2, 2)).unfold(0, 6, 2)
    scores = scores.masked_fill(~inside[None, :, None], torch.finfo(torch.float32).min)
    return s.head(torch.einsum("bnqk,bnkd->bnqd", scores.softmax(-1), around(v)).reshape(b, t, d))


def axial_rotary(s, x):
    """Rotations by two axes of an image, as complex numbers would be multiplied."""
    h = s.patch(x).flatten(2).mT
    q, k, v = (heads(y, 2) for y in s.qkv(h).chunk(3, -1))
    row, column = torch.meshgrid(torch.arange(4.0), torch.arange(4.0), indexing="ij")
    angle = torch.cat([row.flatten()[:, None] * s.rates, column.flatten()[:, None] * s.rates], -1)
    cos, sin = angle.cos().repeat_interleave(2, -1), angle.sin().repeat_interleave(2, -1)
    turn = lambda y: y * cos + torch.stack((-y[..., 1::2], y[..., ::2]), -1).flatten(-2) * sin
    return s.head(F.scaled_dot_product_attention(turn(q), turn(k), v, scale=0.4).transpose(1, 2).flatten(2).mean(1))


def choice_of_depth(s, x):
    """Mixture of depths: half of the tokens, those with the largest gates in their order, pass a block."""
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
    """Residual codes over scales: what is left is pooled, rounded to signs and taken off."""
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
    """FSQ: each width of the latent rounded to a few levels, gradients straight through."""
    z = s.encode(x)
    half = (s.levels - 1) * (1 - 1e-3) / 2
    offset = torch.where(s.levels % 2 == 1, 0.0, 0.5)
    shift = (offset / half).atanh()
    z = torch.tanh(z + shift) * half - offset
    z = z + (z.round() - z).detach()
    return s.decode(z / (s.levels // 2))


# Functions by splines, hashes and waves


def spline_layer(s, x):
    """KAN: B-splines by Cox and de Boor's recursion on a fixed grid, beside a plain activation."""
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
    """Tables at several resolutions, whose rows a hash of the corner's whole numbers finds."""
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
    """Tri-plane features by grid_sample at projected points."""
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
    """A chain of joints turned one after the other, and points that hang on several."""
    turns = rodrigues(s.pose(x).view(-1, 3, 3))
    world, joints = [turns[:, 0]], [s.joints[0].expand(x.shape[0], 3)]
    for j in (1, 2):
        joints.append(joints[-1] + torch.einsum("bij,j->bi", world[-1], s.joints[j] - s.joints[j - 1]))
        world.append(torch.matmul(world[-1], turns[:, j]))
    moved = torch.stack([torch.einsum("bij,pj->bpi", w, s.points - s.joints[j]) + joints[j][:, None] for j, w in enumerate(world)], 1)
    return (moved * s.share.softmax(0)[None, :, :, None]).sum(1)


def six_numbers(s, x):
    """Rotations from six numbers by Gram and Schmidt, and the angle between two of them."""
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
    """Three equations by elimination without a choice of rows, and their determinant."""
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
    """A likelihood whose covariance's factor is written out by columns."""
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
    """A filter's mean and variance for each place, with trained noises."""
    m, p, loss = s.m0.expand(x.shape[0]), s.p0.exp().expand(x.shape[0]), 0.0
    for y in x.unbind(1):
        m, p = m * s.f, p * s.f**2 + s.q.exp()
        total = p + s.r.exp()
        gain = p / total
        loss = loss + 0.5 * (total.log() + (y - m) ** 2 / total)
        m, p = m + gain * (y - m), (1 - gain) * p
    return loss.mean()


def orthogonal_by_steps(s, x):
    """Weights made orthogonal by five steps of Newton and Schulz."""
    w = s.w / (s.w.norm() + 1e-7)
    for _ in range(5):
        a = w @ w.mT
        w = 3.4445 * w + (-4.7750 * a + 2.0315 * (a @ a)) @ w
    return s.head(F.relu(x @ w.T))


# Signals


def biquad(s, x):
    """Two filters one after the other, their recursion written out."""
    y = x.squeeze(1)[:, :12]
    for k in range(2):
        a1, a2 = 2 * torch.tanh(s.a[k, 0]) * 0.6, torch.tanh(s.a[k, 1]) * 0.5
        out, d1, d2 = [], torch.zeros_like(y[:, 0]), torch.zeros_like(y[:, 0])
        for v in y.unbind(-1):
            o = s.b[k, 0] * v + d1
            d1, d2 = s.b[k, 1] * v - a1 * o + d2, s.b[k, 2] * v - a2 * o
            out.append(o)
        y = torch.stack(out, -1)
    return s.head(y)


def harmonics(s, x):
    """Sines of multiples of a frequency, added with shares that the net gives."""
    h = s.body(x)[0]
    f0 = torch.sigmoid(s.pitch(h)) * 0.3
    phase = torch.cumsum(2 * math.pi * F.interpolate(f0.transpose(1, 2), scale_factor=4.0, mode="linear", align_corners=True), -1)
    n = torch.arange(1, 5).view(1, 4, 1)
    share = F.interpolate(s.share(h).softmax(-1).mT, size=32, mode="linear") * (f0.mT.repeat_interleave(4, -1) * n < 0.5)
    return (torch.sin(phase * n) * share).sum(1)


def energy_gain(s, x):
    """PCEN: a smoothed energy by which each band is divided, with trained exponents."""
    e = F.conv1d(x, s.bank, stride=4).square()
    m = [e[..., 0]]
    for k in range(1, e.shape[-1]):
        m.append((1 - s.smooth.sigmoid()) * m[-1] + s.smooth.sigmoid() * e[..., k])
    m = torch.stack(m, -1)
    y = (e / (1e-3 + m) ** s.alpha.clamp(max=1) + s.delta) ** s.root.reciprocal() - s.delta**s.root.reciprocal()
    return s.head(y.mean(-1))


def lifting(s, x):
    """Wavelets by steps of prediction and update, which are nets."""
    even, odd = x[..., ::2], x[..., 1::2]
    details = []
    for k in range(2):
        d = odd - s.predict[k](even)
        a = even + s.update[k](d)
        details.append(d.abs().mean(-1))
        even, odd = a[..., ::2], a[..., 1::2]
    return s.head(torch.cat([even.flatten(1), *details], 1))


def haar(s, x):
    a, b, c, d = x[..., ::2, ::2], x[..., 1::2, ::2], x[..., ::2, 1::2], x[..., 1::2, 1::2]
    h = torch.cat([a + b + c + d, a - b + c - d, a + b - c - d, a - b - c + d], 1) / 2
    low, high = s.net(h).split([3, 9], 1)
    p, q, r, t = (low, *high.chunk(3, 1))
    up = torch.stack([torch.stack([p + q + r + t, p + q - r - t], -1), torch.stack([p - q + r - t, p - q - r + t], -1)], -3) / 2
    return up.flatten(-2).transpose(-3, -2).flatten(2, 3)


def compressed(s, x):
    """Mu-law, a frame's window and its cosines."""
    y = x.sign() * torch.log1p(255 * x.clamp(-3, 3).abs() / 3) / math.log(256)
    frames = y.squeeze(1).unfold(-1, 8, 4) * torch.hann_window(8)
    k = torch.arange(8)
    cosine = torch.cos(math.pi / 8 * (k[None] + 0.5) * k[:4, None])
    return s.head((frames @ cosine.T).abs().add(1e-3).log().mean(1))


# Pictures


def warped_plane(s, x):
    """A homography from eight numbers and what it makes of an image."""
    h = torch.cat([s.net(F.adaptive_avg_pool2d(x, 2).flatten(1)) * 0.1, x.new_ones(x.shape[0], 1)], 1).view(-1, 3, 3) + torch.diag(torch.tensor([1.0, 1.0, 0.0]))
    v, u = torch.meshgrid(torch.linspace(-1, 1, 8), torch.linspace(-1, 1, 8), indexing="ij")
    p = torch.stack([u, v, torch.ones_like(u)], -1).reshape(-1, 3) @ h.transpose(1, 2)
    grid = (p[..., :2] / p[..., 2:].clamp(min=0.2)).view(-1, 8, 8, 2)
    return s.head(F.grid_sample(x, grid, padding_mode="reflection", align_corners=False))


def morphology(s, x):
    """Dilation and erosion with trained elements."""
    b, c, h, w = x.shape
    patches = F.unfold(F.pad(x, (1, 1, 1, 1), mode="replicate"), 3).view(b, c, 9, h * w)
    up = (patches.unsqueeze(1) + s.up[None, :, :, :, None]).amax(3).sum(2)
    down = (patches.unsqueeze(1) - s.down[None, :, :, :, None]).amin(3).sum(2)
    return s.head((up - down).view(b, -1, h, w))


def own_blur(s, x):
    """A Gaussian whose width is trained, edges by it, and a soft histogram."""
    t = torch.arange(-2, 3).float()
    g = torch.exp(-t.square() / (2 * F.softplus(s.width) ** 2))
    g = g / g.sum()
    k = torch.outer(g, g).expand(3, 1, 5, 5)
    blurred = F.conv2d(F.pad(x, [2] * 4, mode="reflect"), k, groups=3)
    sharp = x + s.amount * (x - blurred)
    edges = (sharp[..., 1:] - sharp[..., :-1]).abs().mean((2, 3))
    histogram = torch.exp(-0.5 * ((sharp.flatten(2).unsqueeze(-1) - s.centres) / 0.5).square()).mean(2)
    return s.head(torch.cat([edges, histogram.flatten(1)], 1))


def soft_places(s, x):
    """Where heat maps are largest, in the mean, and how wide they are there."""
    h = s.net(x)
    p = h.flatten(2).softmax(-1).view_as(h)
    r = torch.linspace(0, 1, 8)
    u, v = (p.sum(2) * r).sum(-1), (p.sum(3) * r).sum(-1)
    spread = (p * ((r - u[..., None, None]) ** 2 + (r[:, None] - v[..., None, None]) ** 2)).sum((2, 3))
    return torch.stack([u, v], -1), spread.mean()


def preconditioned(s, x, y0, noise, sigma):
    """EDM: a denoiser between scales that the noise gives, weighted by it, with a time embedding in its normalisation."""
    sd = 0.5
    sg = sigma.exp()[:, None, None, None]
    skip, out, inp = sd**2 / (sg**2 + sd**2), sg * sd / (sg**2 + sd**2).sqrt(), 1 / (sg**2 + sd**2).sqrt()
    f = torch.outer(sigma / 4, s.freqs * 2 * math.pi)
    e = s.time(torch.cat([f.cos(), f.sin()], 1)) + s.label(y0)
    h = F.silu(s.first((x + noise * sg) * inp))
    scale, shift = s.scale(e)[..., None, None].chunk(2, 1)
    h = h + s.second(F.silu(F.group_norm(h, 2, s.g, s.b) * (1 + scale) + shift))
    d = skip * (x + noise * sg) + out * s.last(F.interpolate(s.down(h), scale_factor=2, mode="nearest") + h)
    return (((sg**2 + sd**2) / (sg * sd) ** 2) * (d - x) ** 2).mean()


def resized_inside(s, x):
    """The preprocessing of torchvision within the net: antialias, crop, grey, normalise."""
    y = F.interpolate(x, size=(6, 6), mode="bilinear", antialias=True, align_corners=False)[..., 1:5, 1:5]
    grey = (y * torch.tensor([0.2989, 0.587, 0.114]).view(3, 1, 1)).sum(1, keepdim=True)
    y = (torch.cat([y, grey], 1) - s.mean[:, None, None]) / s.std[:, None, None]
    return s.head(F.relu(s.first(y)).flatten(1))


def iou_losses(s, x, box):
    """Boxes and their complete overlap."""
    p = s.net(x.mean((2, 3)))
    lo, hi = p[:, :2] - p[:, 2:].exp() / 2, p[:, :2] + p[:, 2:].exp() / 2
    tlo, thi = box[:, :2], box[:, :2] + box[:, 2:].abs() + 0.1
    inter = (torch.min(hi, thi) - torch.max(lo, tlo)).clamp(min=0).prod(1)
    area, tarea = (hi - lo).prod(1), (thi - tlo).prod(1)
    iou = inter / (area + tarea - inter + 1e-7)
    hull = torch.max(hi, thi) - torch.min(lo, tlo)
    away = ((lo + hi - tlo - thi) / 2).square().sum(1) / (hull.square().sum(1) + 1e-7)
    v = 4 / math.pi**2 * (torch.atan((thi - tlo)[:, 0] / (thi - tlo)[:, 1]) - torch.atan((hi - lo)[:, 0] / (hi - lo)[:, 1])).square()
    return (1 - iou + away + 0.3 * v).mean()


# Graphs and clouds


def attended_edges(s, x):
    """GAT: a softmax over each node's edges by scattering, largest and sum."""
    a, b = EDGES
    h = s.first(x)
    e = F.leaky_relu((h * s.left).sum(-1)[:, a] + (h * s.right).sum(-1)[:, b], 0.2)
    index = b.expand(x.shape[0], -1)
    top = torch.full((x.shape[0], 6), -1e9).scatter_reduce(1, index, e, "amax", include_self=True)
    e = (e - top.gather(1, index).detach()).exp()
    total = torch.zeros(x.shape[0], 6).scatter_add(1, index, e)
    e = e / (total.gather(1, index) + 1e-9)
    return s.head(torch.zeros_like(h).index_add(1, b, h[:, a] * e.unsqueeze(-1)).relu().mean(1))


def many_sums(s, x):
    """PNA: mean, largest, smallest and deviation of the neighbours, scaled by their number."""
    a, b = EDGES
    m = F.relu(s.first(torch.cat([x[:, a], x[:, b]], -1)))
    index = b.view(1, -1, 1).expand_as(m)
    zero = m.new_zeros(x.shape[0], 6, m.shape[-1])
    mean = zero.scatter_reduce(1, index, m, "mean", include_self=False)
    square = zero.scatter_reduce(1, index, m * m, "mean", include_self=False)
    top = zero.scatter_reduce(1, index, m, "amax", include_self=False)
    low = zero.scatter_reduce(1, index, m, "amin", include_self=False)
    h = torch.cat([mean, top, low, (square - mean**2).relu().add(1e-5).sqrt()], -1)
    degree = torch.bincount(b, minlength=6).float().log1p().view(1, -1, 1)
    return s.head(torch.cat([h, h * degree, h / degree], -1).sum(1))


def radial_filters(s, x):
    """SchNet: distances as Gaussians, cut off by a cosine, and forces' size beside."""
    d = (x.unsqueeze(1) - x.unsqueeze(2)).square().sum(-1).add(1e-6).sqrt()
    g = torch.exp(-4 * (d.unsqueeze(-1) - torch.linspace(0, 4, 6)).square())
    cut = 0.5 * (torch.cos(d * math.pi / 4) + 1) * (d < 4)
    h = s.kinds.expand(x.shape[0], -1, -1)
    for f, out in zip(s.filters, s.out):
        h = h + out((h.unsqueeze(1) * f(g) * cut.unsqueeze(-1) * (1 - torch.eye(7)).unsqueeze(-1)).sum(2))
    return s.head(h).sum(1)


def triangles(s, x):
    """Evoformer: pairs updated over triangles, gated, masks of pairs."""
    z = s.pair(x.unsqueeze(2) * x.unsqueeze(1))
    n = s.norm(z)
    a, b = (s.ab(n) * torch.sigmoid(s.gab(n))).chunk(2, -1)
    z = z + torch.sigmoid(s.gate(n)) * s.out(F.layer_norm(torch.einsum("bikc,bjkc->bijc", a, b), (4,)))
    q, k, v, bias = s.qkvb(z).split([4, 4, 4, 1], -1)
    w = torch.einsum("bijc,bikc->bijk", q, k) / 2 + bias.permute(0, 3, 1, 2)
    z = z + torch.einsum("bijk,bikc->bijc", w.softmax(-1), v)
    return s.head((z + z.transpose(1, 2)).mean((1, 2)))


def grouped_points(s, x):
    """PointNet++: centres far from each other, neighbours within a ball, the nearest again where there are too few."""
    d = torch.cdist(x, x)
    far, chosen = d[:, 0], [torch.zeros(x.shape[0], dtype=torch.long)]
    for _ in range(2):
        chosen.append(far.argmax(-1))
        far = torch.minimum(far, d.gather(1, chosen[-1].view(-1, 1, 1).expand(-1, 1, 7)).squeeze(1))
    index = torch.stack(chosen, 1)
    centre = x.gather(1, index.unsqueeze(-1).expand(-1, -1, 3))
    away = d.gather(1, index.unsqueeze(-1).expand(-1, -1, 7))
    near = torch.arange(7).expand_as(away).masked_fill(away > 1.5, 7).sort(-1).values[..., :4]
    near = torch.where(near == 7, near[..., :1], near)
    group = x.gather(1, near.flatten(1).unsqueeze(-1).expand(-1, -1, 3)).view(*near.shape, 3) - centre.unsqueeze(2)
    return s.head(s.net(group).amax(2).amax(1))


# Tables, forecasts, likelihoods


def soft_tree(s, x):
    """Oblivious trees: entmax of the features, steps between 0 and 1, leaves as products."""
    w = s.choose / 2
    top, _ = torch.sort(w, 0, descending=True)
    rho = torch.arange(1, 7).view(-1, 1)
    mean, square = top.cumsum(0) / rho, (top**2).cumsum(0) / rho
    delta = (1 - rho * (square - mean**2)) / rho
    tau = mean - delta.clamp(min=0).sqrt()
    size = (tau <= top).sum(0, keepdim=True)
    share = (w - tau.gather(0, size - 1)).clamp(min=0) ** 2
    gate = ((x @ share - s.threshold) * s.scale.exp()).add(1).div(2).clamp(0, 1).view(-1, 2, 3)
    side = torch.stack([gate, 1 - gate], -1)
    leaves = torch.einsum("bta,btc,btd->btacd", *side.unbind(2)).flatten(2)
    return torch.einsum("btl,tlc->bc", leaves, s.leaves)


def holt_winters(s, x):
    """ES-RNN: level, trend and season smoothed with trained shares."""
    a, b, g = s.shares.sigmoid()
    season = list(s.season.exp().expand(x.shape[0], -1).unbind(-1))
    x = x.exp()
    level, trend, out = x[:, 0] / season[0], 0.0, []
    for t in range(12):
        last = level
        level = a * x[:, t] / season[t] + (1 - a) * (level + trend)
        trend = b * (level - last) + (1 - b) * trend
        season.append(g * x[:, t] / level + (1 - g) * season[t])
        out.append((x[:, t] / (level * season[t])).log())
    future = torch.stack([(level + trend * (k + 1)) * season[12 + k] for k in range(3)], -1)
    return future.log() + s.head(torch.stack(out, -1))


def correlated_delays(s, x):
    """Autoformer: products over all delays, the largest of which roll the values."""
    h = s.first(x)
    q, k, v = s.qkv(h).chunk(3, -1)
    t = x.shape[1]
    rolled = torch.stack([torch.roll(k, shift, 1) for shift in range(t)], 1)
    r = (q.unsqueeze(1) * rolled).sum(-1).mean(-1)
    w, delay = r.topk(2, -1)
    place = (torch.arange(t).view(1, 1, -1) + delay.unsqueeze(-1)) % t
    values = v.gather(1, place.flatten(1).unsqueeze(-1).expand(-1, -1, v.shape[-1])).view(x.shape[0], 2, t, -1)
    return s.head((values * w.softmax(-1)[..., None, None]).sum(1).flatten(1))


def mixture_density(s, x, y0):
    h = s.net(x)
    logit, mean, log_sigma = h.split([4, 4, 4], -1)
    e = (y0 - mean) * torch.exp(-log_sigma)
    return -torch.logsumexp(F.log_softmax(logit, -1) - log_sigma - 0.5 * e.square() - 0.5 * math.log(2 * math.pi), -1).mean()


def tasks_by_uncertainty(s, x, y0, y1):
    h = s.net(x)
    a = F.mse_loss(h[:, 0], y0)
    b = F.cross_entropy(h[:, 1:], y1)
    return torch.exp(-s.log_var[0]) * a / 2 + s.log_var[0] / 2 + torch.exp(-s.log_var[1]) * b + s.log_var[1] / 2


def ordered_classes(s, x, y0):
    """CORAL and CORN: bounds in order, and each given the one before."""
    z = s.net(x) + torch.cat([s.b0, s.b0 - F.softplus(s.gaps).cumsum(0)])
    above = (y0.unsqueeze(1) > torch.arange(4)).float()
    coral = -(F.logsigmoid(z) * above + (F.logsigmoid(z) - z) * (1 - above)).sum(1).mean()
    w = s.other(x)
    seen = (y0.unsqueeze(1) > torch.arange(4) - 1).float()
    corn = -(seen * (F.logsigmoid(w) * above + (F.logsigmoid(w) - w) * (1 - above))).sum() / seen.sum()
    return coral + corn


def projected_returns(s, x, reward, action):
    """C51: a distribution of returns moved along its own support."""
    z, n = torch.linspace(-2, 2, 5), 5
    p = s.net(x).view(-1, 3, n).log_softmax(-1)
    chosen = p.gather(1, action.view(-1, 1, 1).expand(-1, 1, n)).squeeze(1)
    following = s.target(x).view(-1, 3, n).softmax(-1)[:, 0].detach()
    at = ((reward.unsqueeze(1) + 0.9 * z).clamp(-2, 2) + 2) / 1.0
    low, high = at.floor(), at.ceil()
    same = (low == high).float()
    m = torch.zeros_like(following).scatter_add(1, low.long(), following * (high - at + same)).scatter_add(1, high.long(), following * (at - low))
    return -(m * chosen).sum(-1).mean()


def squashed_policy(s, x, noise):
    """SAC: a bounded action, its density, and two critics of which the smaller counts."""
    mean, log_std = s.net(x).chunk(2, -1)
    log_std = -2 + 0.5 * 3 * (torch.tanh(log_std) + 1)
    u = mean + log_std.exp() * noise
    a = torch.tanh(u)
    logp = (-0.5 * noise**2 - log_std - 0.5 * math.log(2 * math.pi)).sum(-1) - (2 * (math.log(2) - u - F.softplus(-2 * u))).sum(-1)
    q = torch.min(s.q1(torch.cat([x, a], -1)), s.q2(torch.cat([x, a], -1))).squeeze(-1)
    return (s.log_alpha.exp() * logp - q).mean()


def traced_returns(s, x, reward, ratio):
    """V-trace: corrected returns from behind, and the policy's loss by them."""
    v = s.value(x).squeeze(-1)
    rho, last = ratio.exp().clamp(max=1.0), v[:, -1]
    acc, vs = torch.zeros_like(last), []
    for t in reversed(range(7)):
        delta = rho[:, t] * (reward[:, t] + 0.9 * v[:, t + 1] - v[:, t])
        acc = delta + 0.9 * rho[:, t] * acc
        vs.insert(0, acc + v[:, t])
    vs = torch.stack(vs, 1).detach()
    return (vs - v[:, :-1]).square().mean() * 0.5 - last.mean() * 0.1


def flow_by_factors(s, x):
    """Glow: invertible mixing by factors, couplings, and the density."""
    z, logdet = x, 0.0
    for k in range(2):
        low = torch.tril(s.low[k], -1) + torch.eye(6)
        up = torch.triu(s.up[k], 1) + torch.diag(s.sign[k] * s.log_s[k].exp())
        z = z @ (s.perm[k] @ low @ up).t()
        a, b = z.chunk(2, -1)
        shift, scale = s.nets[k](a).chunk(2, -1)
        scale = torch.sigmoid(scale + 2)
        z = torch.cat([a, (b + shift) * scale], -1)
        logdet = logdet + s.log_s[k].sum() + scale.log().sum(-1)
    return -(-0.5 * (z**2 + math.log(2 * math.pi)).sum(-1) + logdet).mean()


def masked_density(s, x):
    """MADE: masks of weights by degrees, residual noise scales, in order."""
    h = F.relu(F.linear(x, s.w1 * s.m1, s.b1))
    mean, log_s = F.linear(h, s.w2 * s.m2, s.b2).chunk(2, -1)
    u = (x - mean) * torch.exp(-log_s.clamp(-3, 3))
    return 0.5 * u.square().sum(-1).mean() + log_s.clamp(-3, 3).sum(-1).mean()


def temperature_teacher(s, x, y0):
    """Distillation from a net that stands still, and the features between."""
    with torch.no_grad():
        t = s.teacher(x)
    h = s.body(x)
    z = s.head(F.relu(h))
    soft = F.kl_div(F.log_softmax(z / 3, -1), F.log_softmax(t / 3, -1), reduction="batchmean", log_target=True) * 9
    return F.cross_entropy(z, y0) * 0.3 + 0.7 * soft


def made_weights(s, x):
    """A net makes the weights of another, for each layer from what stands for it."""
    for k in range(2):
        w = (s.up(F.relu(s.down(s.codes[k]))) / 6**0.5).view(6, 6)
        x = torch.tanh(F.linear(x, w, s.bias(s.codes[k])))
    return s.head(x)


def classical_steps(s, x):
    """An equation of motion by four steps of Runge and Kutta, time beside the state."""
    f = lambda t, y: s.net(torch.cat([y, t.expand(y.shape[0], 1)], -1))
    h, t, y = 0.25, torch.zeros(1, 1), x
    for _ in range(4):
        k1 = f(t, y)
        k2 = f(t + h / 2, y + h / 2 * k1)
        k3 = f(t + h / 2, y + h / 2 * k2)
        y = y + h / 6 * (k1 + 2 * k2 + 2 * k3 + f(t + h, y + h * k3))
        t = t + h
    return s.head(y)


def divergence(s, x):
    """A continuous flow's divergence by forward derivatives along the axes."""
    total = 0.0
    for k in range(3):
        way = torch.zeros_like(x).index_fill(1, torch.tensor([k]), 1.0)
        value, slope = torch.func.jvp(s.net, (x,), (way,))
        total = total + slope[:, k]
    return value, total


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
    "biquad": (lambda: Net(biquad, a=weight(2, 2), b=weight(2, 3), head=lin(12, 3)), wave, [((3,), 1)]),
    "harmonics": (lambda: Net(harmonics, body=nn.GRU(5, 6, batch_first=True), pitch=lin(6, 1), share=lin(6, 4)), steps, [((32,), 0)]),
    "energy_gain": (lambda: Net(energy_gain, bank=weight(4, 1, 8), smooth=weight(1), alpha=P(torch.rand(4, 1) * 0.3 + 0.5), delta=P(torch.rand(4, 1) + 1.5), root=P(torch.rand(4, 1) + 1.8), head=lin(4, 3)), wave, [((3,), 1)]),
    "lifting": (lambda: Net(lifting, predict=L(conv1(1, 1) for _ in range(2)), update=L(conv1(1, 1) for _ in range(2)), head=lin(6, 3)), wave, [((3,), 1)]),
    "haar": (lambda: Net(haar, net=conv(12, 12)), image, [((3, 8, 8), 0)]),
    "compressed": (lambda: Net(compressed, head=lin(4, 3)), wave, [((3,), 1)]),
    "warped_plane": (lambda: Net(warped_plane, net=lin(12, 8), head=conv(3, 2)), image, [((2, 8, 8), 1)]),
    "morphology": (lambda: Net(morphology, up=weight(2, 3, 9), down=weight(2, 3, 9), head=conv(2, 2)), image, [((2, 8, 8), 0)]),
    "own_blur": (lambda: Net(own_blur, width=weight(1), amount=weight(1), centres=torch.linspace(-2, 2, 5), head=lin(18, 3)), image, [((3,), 1)]),
    "soft_places": (lambda: Net(soft_places, net=conv(3, 4)), image, [((4, 2), 0), None]),
    "preconditioned": (lambda: Net(preconditioned, freqs=torch.randn(3), time=lin(6, 8), label=nn.Embedding(4, 8), first=conv(3, 4), scale=lin(8, 8), g=one(4), b=weight(4), second=conv(4, 4), down=nn.Conv2d(4, 4, 2, 2), last=conv(4, 3)),
                       lambda b: image(b) | {"y0": classes(4, b), "noise": pixels(b, 3, 8, 8), "sigma": pixels(b) - 1}, [None]),
    "resized_inside": (lambda: Net(resized_inside, mean=torch.rand(4), std=torch.rand(4) + 0.5, first=conv(4, 4), head=lin(64, 3)), image, [((3,), 1)]),
    "iou_losses": (lambda: Net(iou_losses, net=mlp(3, 8, 4)), lambda b: image(b) | {"box": pixels(b, 4)}, [None]),
    "attended_edges": (lambda: Net(attended_edges, first=lin(4, 5), left=weight(5), right=weight(5), head=lin(5, 3)), nodes, [((3,), 1)]),
    "many_sums": (lambda: Net(many_sums, first=lin(8, 4), head=lin(48, 3)), nodes, [((3,), 1)]),
    "radial_filters": (lambda: Net(radial_filters, kinds=weight(1, 7, 5), filters=L(mlp(6, 5, 5) for _ in range(2)), out=L(lin(5, 5) for _ in range(2)), head=mlp(5, 4, 1)), cloud, [((1,), 0)]),
    "triangles": (lambda: Net(triangles, pair=lin(5, 4), norm=nn.LayerNorm(4), ab=lin(4, 8), gab=lin(4, 8), gate=lin(4, 4), out=lin(4, 4), qkvb=lin(4, 13), head=lin(4, 3)), steps, [((3,), 1)]),
    "grouped_points": (lambda: Net(grouped_points, net=mlp(3, 8, 6), head=lin(6, 3)), cloud, [((3,), 1)]),
    "soft_tree": (lambda: Net(soft_tree, choose=weight(6, 6), threshold=weight(6), scale=weight(6), leaves=weight(2, 8, 3)), vector, [((3,), 1)]),
    "holt_winters": (lambda: Net(holt_winters, shares=weight(3), season=weight(1, 4), head=lin(12, 3)), series, [((3,), 0)]),
    "correlated_delays": (lambda: Net(correlated_delays, first=lin(5, 4), qkv=lin(4, 12), head=lin(32, 3)), steps, [((3,), 1)]),
    "mixture_density": (lambda: Net(mixture_density, net=mlp(6, 8, 12)), lambda b: vector(b) | {"y0": pixels(b, 1)}, [None]),
    "tasks_by_uncertainty": (lambda: Net(tasks_by_uncertainty, net=mlp(6, 8, 4), log_var=weight(2)), lambda b: vector(b) | {"y0": pixels(b), "y1": classes(3, b)}, [None]),
    "ordered_classes": (lambda: Net(ordered_classes, net=mlp(6, 8, 1), b0=weight(1), gaps=weight(3), other=mlp(6, 8, 4)), lambda b: vector(b) | {"y0": classes(5, b)}, [None]),
    "projected_returns": (lambda: Net(projected_returns, net=mlp(6, 8, 15), target=mlp(6, 8, 15)), lambda b: vector(b) | {"reward": pixels(b), "action": classes(3, b)}, [None]),
    "squashed_policy": (lambda: Net(squashed_policy, net=mlp(6, 8, 4), q1=mlp(8, 8, 1), q2=mlp(8, 8, 1), log_alpha=weight(1)), lambda b: vector(b) | {"noise": pixels(b, 2)}, [None]),
    "traced_returns": (lambda: Net(traced_returns, value=mlp(5, 8, 1)), lambda b: steps(b) | {"reward": pixels(b, 8), "ratio": pixels(b, 8)}, [None]),
    "flow_by_factors": (lambda: Net(flow_by_factors, low=weight(2, 6, 6), up=weight(2, 6, 6), sign=torch.tensor([[1.0, -1, 1, 1, -1, 1]] * 2), log_s=weight(2, 6), perm=torch.stack([torch.eye(6)[torch.randperm(6)] for _ in range(2)]), nets=L(mlp(3, 8, 6) for _ in range(2))), vector, [None]),
    "masked_density": (lambda: Net(masked_density, w1=weight(8, 6), b1=weight(8), m1=(torch.arange(8)[:, None] % 5 >= torch.arange(6)[None]).float(), w2=weight(12, 8), b2=weight(12), m2=(torch.arange(6)[:, None] > torch.arange(8)[None] % 5).float().repeat(2, 1)), vector, [None]),
    "temperature_teacher": (lambda: Net(temperature_teacher, teacher=mlp(6, 8, 3), body=lin(6, 8), head=lin(8, 3)), lambda b: vector(b) | {"y0": classes(3, b)}, [None]),
    "made_weights": (lambda: Net(made_weights, codes=weight(2, 4), down=lin(4, 5), up=lin(5, 36), bias=lin(4, 6), head=lin(6, 3)), vector, [((3,), 1)]),
    "classical_steps": (lambda: Net(classical_steps, net=mlp(7, 8, 6), head=lin(6, 3)), vector, [((3,), 1)]),
    "divergence": (lambda: Net(divergence, net=nn.Sequential(lin(3, 8), nn.Tanh(), lin(8, 3))), lambda b: {"x": pixels(b, 3)}, [((3,), 0), None]),
}


def cases():
    return styles(UNHEARD)
