"""Architectures and objectives from corners that the other sets leave out: reinforcement learning by distributions and returns, chains and
point clouds, retrieval, optical flow, recurrences by cells, audio filters. Each in the default exporter's form and in one more style, with
a loss and a recipe selected by name."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

from case import classes, pixels
from drawing import two_styles
from sets.families import Net, weight
from sets.further import L, conv, conv1, drawn, image, lin, mlp, one, series, steps, tokens, vector, wave

P = nn.Parameter
cloud = lambda b: {"x": pixels(b, 9, 3)}


# Decisions


def dueling(s, x, action, reward, following):
    """Double DQN with dueling heads: a separate target network evaluates the action that the other network selects."""
    def q(y):
        h = s.body(y)
        a = s.advantage(h)
        return s.value(h) + a - a.mean(1, keepdim=True)

    best = q(following).argmax(1, keepdim=True)
    aim = reward + 0.9 * s.target(following).gather(1, best).squeeze(1)
    return F.smooth_l1_loss(q(x).gather(1, action[:, None]).squeeze(1), aim)


def projected_returns(s, x, reward):
    """C51: a distribution shifted by the reward and projected onto the fixed support."""
    atoms = torch.linspace(-2, 2, 7)
    p = s.target(x).softmax(-1)
    at = ((reward[:, None] + 0.9 * atoms).clamp(-2, 2) + 2) / (4 / 6)
    low = at.floor().clamp(0, 5)
    up = at - low
    m = torch.zeros_like(p).scatter_add(1, low.long(), p * (1 - up)).scatter_add(1, low.long() + 1, p * up)
    return -(m * s.body(x).log_softmax(-1)).sum(1).mean()


def squashed_policy(s, x, noise):
    mean, scale = s.body(x).chunk(2, 1)
    scale = scale.clamp(-3, 1).exp()
    raw = mean + scale * noise
    action = torch.tanh(raw)
    log = (-0.5 * noise.pow(2) - scale.log() - 0.5 * math.log(2 * math.pi) - 2 * (math.log(2) - raw - F.softplus(-2 * raw))).sum(1)
    return (0.2 * log - s.critic(torch.cat([x, action], 1)).squeeze(1)).mean()


def returns_backwards(s, x, reward):
    """Generalized advantage estimation, a loop from the last step to the first."""
    v = s.value(torch.tanh(s.body(x))).squeeze(-1)
    after, advantage, out = torch.zeros_like(v[:, 0]), torch.zeros_like(v[:, 0]), []
    for k in range(v.shape[1] - 1, -1, -1):
        delta = reward[:, k] + 0.95 * after - v[:, k]
        advantage = delta + 0.95 * 0.9 * advantage
        after = v[:, k]
        out.insert(0, advantage)
    return torch.stack(out, 1).pow(2).mean()


# Chains


def chain_field(s, x, tag):
    """A conditional random field: the score of the given tags minus the log-sum over all tag sequences."""
    e = s.emit(x)
    score = s.first[tag[:, 0]] + e[:, 0].gather(1, tag[:, :1]).squeeze(1)
    alpha = s.first + e[:, 0]
    for k in range(1, e.shape[1]):
        score = score + s.moves[tag[:, k - 1], tag[:, k]] + e[:, k].gather(1, tag[:, k:k + 1]).squeeze(1)
        alpha = torch.logsumexp(alpha[:, :, None] + s.moves, 1) + e[:, k]
    return (torch.logsumexp(alpha, 1) - score).mean()


def hidden_markov(s, x):
    log_t, log_e, a = s.moves.log_softmax(1), s.emit.log_softmax(1), s.first.log_softmax(0) + s.emit.log_softmax(1)[:, x[:, 0]].t()
    for k in range(1, x.shape[1]):
        a = torch.logsumexp(a[:, :, None] + log_t, 1) + log_e[:, x[:, k]].t()
    return -torch.logsumexp(a, 1).mean()


def kalman(s, x):
    """A filter whose gain follows from scalar covariances with trained noise."""
    mean, cov, loss = torch.zeros(x.shape[0]), torch.ones(x.shape[0]), 0
    for k in range(x.shape[1]):
        mean, cov = s.a * mean, s.a**2 * cov + F.softplus(s.q)
        seen = cov + F.softplus(s.r)
        error = x[:, k] - mean
        loss = loss + 0.5 * (error**2 / seen + seen.log())
        gain = cov / seen
        mean, cov = mean + gain * error, (1 - gain) * cov
    return loss.mean()


def intensities(s, x):
    """Hawkes process: events excite later ones."""
    t = F.softplus(x).cumsum(1)
    gap = (t[:, :, None] - t[:, None]).tril(-1)
    excite = (F.softplus(s.alpha) * torch.exp(-F.softplus(s.beta) * gap)).tril(-1).sum(-1)
    rate = F.softplus(s.mu) + excite
    whole = F.softplus(s.mu) * t[:, -1] + (F.softplus(s.alpha) / F.softplus(s.beta) * (1 - torch.exp(-F.softplus(s.beta) * (t[:, -1:] - t)))).sum(1)
    return (whole - rate.log().sum(1)).mean()


# Points, images, audio


def farthest(s, x):
    """PointNet++: farthest point sampling, the neighborhood of each point, a maximum over it."""
    b, n, _ = x.shape
    best, at, picked = torch.full((b, n), 1e10), torch.zeros(b, 1, dtype=torch.long), []
    for _ in range(3):
        picked.append(at)
        p = x.gather(1, at[..., None].expand(-1, -1, 3))
        best = torch.minimum(best, (x - p).pow(2).sum(-1))
        at = best.argmax(1, keepdim=True)
    centre = x.gather(1, torch.cat(picked, 1)[..., None].expand(-1, -1, 3))
    d = (centre[:, :, None] - x[:, None]).pow(2).sum(-1)
    near = d.topk(4, -1, largest=False)[1]
    group = x[:, None].expand(-1, 3, -1, -1).gather(2, near[..., None].expand(-1, -1, -1, 3)) - centre[:, :, None]
    return s.head(s.mlp(group).amax(2).flatten(1))


def chamfer(s, x):
    y = s.decoder(s.encoder(x).amax(1)).view(-1, 6, 3)
    d = (x[:, :, None] - y[:, None]).norm(dim=-1)
    return d.min(1)[0].mean() + d.min(2)[0].mean()


def vlad(s, x):
    h = F.normalize(s.body(x), dim=1).flatten(2)
    a = s.assign(h).softmax(1)
    v = torch.einsum("bkn,bdn->bkd", a, h) - a.sum(-1)[..., None] * s.centres
    return s.head(F.normalize(F.normalize(v, dim=2).flatten(1), dim=1))


def generalized_mean(s, x):
    return s.head(F.relu(s.body(x)).clamp(min=1e-4).pow(s.p).mean((2, 3)).pow(1 / s.p))


def correlated(s, x):
    """A small RAFT: all pairs of positions, looked up around the target of the flow."""
    a, c = s.body(x[:, :3]), s.body(x[:, 3:])
    b, d, h, w = a.shape
    volume = torch.einsum("bdij,bdkl->bijkl", a, c).reshape(b * h * w, 1, h, w) / d**0.5
    ys, xs = torch.meshgrid(torch.arange(h).float(), torch.arange(w).float(), indexing="ij")
    at = torch.stack([xs, ys]).expand(b, 2, h, w)
    for _ in range(2):
        window = at.permute(0, 2, 3, 1).reshape(-1, 1, 1, 2) + s.window.view(1, 3, 3, 2)
        seen = F.grid_sample(volume, window / (torch.tensor([w, h]) - 1) * 2 - 1, align_corners=True).view(b, h, w, 9).permute(0, 3, 1, 2)
        at = at + s.update(torch.cat([seen, a], 1))
    return at


def reassembled(s, x):
    """CARAFE: each new pixel from its own filter over its source neighborhood."""
    b, c, h, w = x.shape
    k = F.pixel_shuffle(s.encode(s.squeeze(x)), 2).softmax(1)
    around = F.unfold(x, 3, padding=1).view(b, c * 9, h, w)
    around = F.interpolate(around, scale_factor=2.0, mode="nearest").view(b, c, 9, 2 * h, 2 * w)
    return s.head(torch.einsum("bcnhw,bnhw->bchw", around, k)).mean((2, 3))


def octave(s, x):
    low = F.avg_pool2d(x, 2)
    h = s.hh(x) + F.interpolate(s.lh(low), scale_factor=2.0)
    l = s.ll(low) + s.hl(F.avg_pool2d(x, 2))
    return s.head(torch.cat([h.mean((2, 3)), l.amax((2, 3))], 1))


def sinc_filters(s, x):
    low = s.low.abs()
    high = (low + s.band.abs()).clamp(max=0.5)
    n = torch.arange(-8, 9).float()
    band = 2 * high[:, None] * torch.special.sinc(2 * high[:, None] * n) - 2 * low[:, None] * torch.special.sinc(2 * low[:, None] * n)
    y = F.conv1d(x, (band * torch.hamming_window(17, periodic=False))[:, None], padding=8).abs()
    return s.head(torch.log1p(F.max_pool1d(y, 4)).flatten(1))


def plain_sinc_filters(s, x):
    """The same with the quotient written out."""
    low = s.low.abs()
    high = low + s.band.abs()
    n = torch.arange(1, 9).float() * 2 * math.pi
    left = (torch.sin(high[:, None] * n) - torch.sin(low[:, None] * n)) / (n / 2)
    band = torch.cat([left.flip(1), 2 * (high - low)[:, None], left], 1)
    y = F.conv1d(x, (band * s.window)[:, None], padding=8).abs()
    return s.head(torch.log1p(F.max_pool1d(y, 4)).flatten(1))


def statistics_pooled(s, x):
    """ECAPA: hierarchical scales, squeeze-and-excitation, weighted mean and standard deviation."""
    h = s.first(x)
    parts, y = h.chunk(4, 1), 0
    out = [parts[0]]
    for p, c in zip(parts[1:], s.scales):
        y = F.relu(c(p + y))
        out.append(y)
    h = torch.cat(out, 1)
    h = h * torch.sigmoid(s.up(F.relu(s.down(h.mean(2))))).unsqueeze(2)
    a = s.attention(h).softmax(2)
    mean = (a * h).sum(2)
    return s.head(torch.cat([mean, ((a * h * h).sum(2) - mean * mean).clamp(min=1e-4).sqrt()], 1))


def multi_period(s, x):
    out = []
    for p, c in zip((2, 3, 5), s.periods):
        y = F.pad(x, (0, (p - x.shape[2] % p) % p), mode="reflect")
        out.append(c(y.view(y.shape[0], 1, -1, p)).mean((2, 3)))
    return s.head(torch.cat(out, 1))


# Sequences


def cells(s, x):
    h, c, g = (torch.zeros(x.shape[0], 4) for _ in range(3))
    for k in range(x.shape[1]):
        h, c = s.lstm(x[:, k], (h, c))
        g = s.gru(h, g)
    return s.head(torch.cat([g, s.rnn(c, g)], 1))


def complex_states(s, x):
    """LRU: diagonal states of complex numbers, a scan by doubling."""
    size, angle = torch.exp(-torch.exp(s.nu)), torch.exp(s.theta)
    re, im = (size * angle.cos()), (size * angle.sin())
    u = s.inner(x) * (1 - size * size).sqrt()
    ur, ui = u, torch.zeros_like(u)
    step = 1
    while step < x.shape[1]:
        pr, pi = F.pad(ur, (0, 0, step, 0))[:, :x.shape[1]], F.pad(ui, (0, 0, step, 0))[:, :x.shape[1]]
        ur, ui = ur + re * pr - im * pi, ui + re * pi + im * pr
        re, im = re * re - im * im, 2 * re * im
        step *= 2
    return s.head(torch.cat([ur, ui], -1)[:, -1])


def learner_within(s, x):
    """Weights that take a gradient step at each position (test-time training)."""
    k, v, q = s.k(x), s.v(x), s.q(x)
    w, out = s.start.expand(x.shape[0], 4, 4), []
    for i in range(x.shape[1]):
        error = torch.einsum("bi,bij->bj", k[:, i], w) - v[:, i]
        w = w - torch.sigmoid(s.rate(x[:, i]))[..., None] * torch.einsum("bi,bj->bij", k[:, i], error)
        out.append(torch.einsum("bi,bij->bj", q[:, i], w))
    return s.head(s.norm(torch.stack(out, 1)).mean(1))


def turing(s, x):
    """A memory addressed by content, by a gate and by shifts, with sharpening."""
    memory, at = s.memory.expand(x.shape[0], 6, 4), F.one_hot(torch.zeros(x.shape[0], dtype=torch.long), 6).float()
    for k in range(3):
        key, gate, shift, sharp, write = s.control(x[:, k]).split([4, 1, 3, 1, 4], 1)
        content = (F.cosine_similarity(memory, key[:, None], dim=2) * 3).softmax(1)
        g = torch.sigmoid(gate)
        w = g * content + (1 - g) * at
        turn = shift.softmax(1)
        w = turn[:, :1] * w.roll(1, 1) + turn[:, 1:2] * w + turn[:, 2:] * w.roll(-1, 1)
        w = w ** (1 + F.softplus(sharp))
        at = w / w.sum(1, keepdim=True)
        memory = memory * (1 - at[..., None] * 0.5) + at[..., None] * torch.tanh(write)[:, None]
    return s.head(torch.einsum("bn,bnd->bd", at, memory))


def with_extras(s, x):
    y, _ = s.attend(x, x, x, need_weights=False)
    return s.head(s.decode(y, x).mean(1))


def bags(s, x):
    """Sums, means and maxima of embeddings."""
    e = s.table(x)
    w = F.softplus(s.by(x))
    return s.head(torch.cat([s.summed(x), (e * w).mean(1), e.amax(1)], 1))


# Distances and likelihoods


def moment_matching(s, x, other):
    a, c = s.body(x), s.body(other)
    k = lambda p, q: sum(torch.exp(-(p[:, None] - q[None]).pow(2).sum(-1) / w) for w in (1.0, 4.0))
    return k(a, a).mean() + k(c, c).mean() - 2 * k(a, c).mean()


def circle(s, x, label):
    e = F.normalize(s.body(x), dim=1)
    sim = e @ F.normalize(s.proxies, dim=1).t()
    hot = F.one_hot(label, 4).bool()
    good = torch.where(hot, -(1.25 - sim).clamp(min=0) * (sim - 0.75) * 4, torch.full_like(sim, -1e4))
    bad = torch.where(hot, torch.full_like(sim, -1e4), (sim + 0.25).clamp(min=0) * (sim - 0.25) * 4)
    return F.softplus(torch.logsumexp(good, 1) + torch.logsumexp(bad, 1)).mean()


def box_distance(s, x, box):
    """Complete IoU with the aspect ratio term."""
    c, size = s.body(x).chunk(2, 1)
    p, q = torch.cat([c - size.exp() / 2, c + size.exp() / 2], 1), torch.cat([box[:, :2], box[:, :2] + box[:, 2:].abs() + 0.1], 1)
    low, high = torch.max(p[:, :2], q[:, :2]), torch.min(p[:, 2:], q[:, 2:])
    area = lambda r: (r[:, 2] - r[:, 0]) * (r[:, 3] - r[:, 1])
    inter = (high - low).clamp(min=0).prod(1)
    iou = inter / (area(p) + area(q) - inter)
    span = (torch.max(p[:, 2:], q[:, 2:]) - torch.min(p[:, :2], q[:, :2])).pow(2).sum(1)
    apart = ((p[:, :2] + p[:, 2:]) / 2 - (q[:, :2] + q[:, 2:]) / 2).pow(2).sum(1)
    angle = lambda r: torch.atan((r[:, 2] - r[:, 0]) / (r[:, 3] - r[:, 1]))
    v = 4 / math.pi**2 * (angle(p) - angle(q)) ** 2
    return (1 - iou + apart / span + v * v / (1 - iou + v + 1e-6)).mean()


def logistic_mixture(s, x, y):
    """PixelCNN++."""
    pi, mean, scale = s.body(x).chunk(3, 1)
    inv = torch.exp(-scale.clamp(min=-3))
    up, down = torch.sigmoid(inv * (y - mean + 0.1)), torch.sigmoid(inv * (y - mean - 0.1))
    log = torch.where(y < -0.9, F.logsigmoid(inv * (y - mean + 0.1)), torch.where(y > 0.9, F.logsigmoid(-inv * (y - mean - 0.1)), (up - down).clamp(min=1e-6).log()))
    return -torch.logsumexp(log + pi.log_softmax(1), 1).mean()


def wings(s, x, y):
    d = (s.body(x) - y).abs()
    return torch.where(d < 1, 1 * torch.log1p(d / 0.5), d - (1 - math.log1p(2))).mean()


def glow(s, x):
    """A flow: actnorm, a linear map by LU, affine coupling over squeezed images."""
    h = F.pixel_unshuffle(x, 2)
    h = (h + s.shift[:, None, None]) * s.scale.exp()[:, None, None]
    lower, upper = s.lower.tril(-1) + torch.eye(12), s.upper.triu(1) + torch.diag(s.sign * s.diagonal.exp())
    h = F.conv2d(h, (lower @ upper)[..., None, None])
    a, c = h.chunk(2, 1)
    t, g = s.net(a).chunk(2, 1)
    g = torch.sigmoid(g + 2)
    c = (c + t) * g
    det = 16 * (s.scale.sum() + s.diagonal.sum()) + g.log().flatten(1).sum(1)
    return (0.5 * torch.cat([a, c], 1).pow(2).flatten(1).sum(1) - det).mean()


RARER = {
    "dueling": (lambda: Net(dueling, body=mlp(6, 8, 5), value=lin(5, 1), advantage=lin(5, 4), target=mlp(6, 8, 4)), lambda b: vector(b) | {"action": classes(4, b), "reward": pixels(b), "following": pixels(b, 6)}, None, 0),
    "projected_returns": (lambda: Net(projected_returns, body=mlp(6, 8, 7), target=mlp(6, 8, 7)), lambda b: vector(b) | {"reward": pixels(b)}, None, 0),
    "squashed_policy": (lambda: Net(squashed_policy, body=mlp(6, 8, 4), critic=mlp(8, 8, 1)), lambda b: vector(b) | {"noise": pixels(b, 2)}, None, 0),
    "returns_backwards": (lambda: Net(returns_backwards, body=lin(5, 6), value=lin(6, 1)), lambda b: steps(b) | {"reward": pixels(b, 8)}, None, 0),
    "chain_field": (lambda: Net(chain_field, emit=lin(5, 4), first=weight(4), moves=weight(4, 4)), lambda b: steps(b) | {"tag": classes(4, b, 8)}, None, 0),
    "hidden_markov": (lambda: Net(hidden_markov, moves=weight(4, 4), emit=weight(4, 11), first=weight(4)), tokens, None, 0),
    "kalman": (lambda: Net(kalman, a=P(torch.tensor([0.8])), q=P(torch.tensor([0.1])), r=P(torch.tensor([0.2]))), series, None, 0),
    "intensities": (lambda: Net(intensities, mu=P(torch.tensor([0.3])), alpha=P(torch.tensor([0.1])), beta=P(torch.tensor([0.9]))), series, None, 0),
    "farthest": (lambda: Net(farthest, mlp=mlp(3, 6, 5), head=lin(15, 3)), cloud, (3,), 1),
    "chamfer": (lambda: Net(chamfer, encoder=mlp(3, 8, 6), decoder=mlp(6, 8, 18)), cloud, None, 0),
    "vlad": (lambda: Net(vlad, body=conv(3, 5), assign=nn.Conv1d(5, 4, 1), centres=weight(4, 5), head=lin(20, 3)), image, (3,), 1),
    "generalized_mean": (lambda: Net(generalized_mean, body=conv(3, 6), p=P(torch.tensor([3.0])), head=lin(6, 3)), image, (3,), 1),
    "correlated": (lambda: Net(correlated, body=conv(3, 4), update=conv(13, 2), window=torch.stack(torch.meshgrid(torch.arange(-1, 2).float(), torch.arange(-1, 2).float(), indexing="xy"), -1)), lambda b: {"x": pixels(b, 6, 5, 5)}, (2, 5, 5), 0),
    "reassembled": (lambda: Net(reassembled, squeeze=conv(3, 4, 1), encode=conv(4, 36), head=conv(3, 3, 1)), image, (3,), 1),
    "octave": (lambda: Net(octave, hh=conv(3, 4), hl=conv(3, 4), lh=conv(3, 4), ll=conv(3, 4), head=lin(8, 3)), image, (3,), 1),
    "sinc_filters": (lambda: Net(sinc_filters, low=P(torch.rand(4) * 0.2), band=P(torch.rand(4) * 0.2 + 0.05), head=lin(32, 3)), wave, (3,), 1),
    "plain_sinc_filters": (lambda: Net(plain_sinc_filters, low=P(torch.rand(4) * 0.2), band=P(torch.rand(4) * 0.2 + 0.05), window=torch.hann_window(17, periodic=False) + 0.1, head=lin(32, 3)), wave, (3,), 1),
    "statistics_pooled": (lambda: Net(statistics_pooled, first=conv1(1, 8), scales=L(conv1(2, 2) for _ in range(3)), down=lin(8, 3), up=lin(3, 8), attention=nn.Sequential(nn.Conv1d(8, 4, 1), nn.Tanh(), nn.Conv1d(4, 8, 1)), head=lin(16, 3)), wave, (3,), 1),
    "multi_period": (lambda: Net(multi_period, periods=L(nn.Conv2d(1, 3, (3, 1), (2, 1), (1, 0)) for _ in range(3)), head=lin(9, 3)), wave, (3,), 1),
    "cells": (lambda: Net(cells, lstm=nn.LSTMCell(5, 4), gru=nn.GRUCell(4, 4), rnn=nn.RNNCell(4, 4, nonlinearity="relu"), head=lin(8, 3)), steps, (3,), 1),
    "complex_states": (lambda: Net(complex_states, nu=weight(6), theta=weight(6), inner=lin(5, 6), head=lin(12, 3)), steps, (3,), 1),
    "learner_within": (lambda: Net(learner_within, k=lin(5, 4), v=lin(5, 4), q=lin(5, 4), rate=lin(5, 1), start=weight(4, 4), norm=nn.LayerNorm(4), head=lin(4, 3)), steps, (3,), 1),
    "turing": (lambda: Net(turing, memory=weight(6, 4), control=lin(5, 13), head=lin(4, 3)), steps, (3,), 1),
    "with_extras": (lambda: Net(with_extras, attend=nn.MultiheadAttention(8, 2, batch_first=True, add_bias_kv=True, add_zero_attn=True), decode=nn.TransformerDecoderLayer(8, 2, 12, 0.0, F.gelu, batch_first=True, norm_first=True), head=lin(8, 3)), lambda b: {"x": pixels(b, 5, 8)}, (3,), 1),
    "bags": (lambda: Net(bags, table=nn.Embedding(11, 4), by=nn.Embedding(11, 1), summed=nn.EmbeddingBag(11, 4, mode="sum"), head=lin(12, 3)), tokens, (3,), 1),
    "moment_matching": (lambda: Net(moment_matching, body=mlp(6, 8, 4)), lambda b: vector(b) | {"other": pixels(b, 6) + 0.5}, None, 0),
    "circle": (lambda: Net(circle, body=mlp(6, 8, 5), proxies=weight(4, 5)), lambda b: vector(b) | {"label": classes(4, b)}, None, 0),
    "box_distance": (lambda: Net(box_distance, body=mlp(6, 8, 4)), lambda b: vector(b) | {"box": pixels(b, 4)}, None, 0),
    "logistic_mixture": (lambda: Net(logistic_mixture, body=mlp(6, 8, 9)), lambda b: vector(b) | {"y": pixels(b, 1).clamp(-1, 1)}, None, 0),
    "wings": (lambda: Net(wings, body=mlp(6, 8, 4)), lambda b: vector(b) | {"y": pixels(b, 4)}, None, 0),
    "glow": (lambda: Net(glow, shift=weight(12), scale=weight(12), lower=weight(12, 12), upper=weight(12, 12), sign=torch.where(torch.rand(12) > 0.5, 1.0, -1.0), diagonal=weight(12), net=nn.Sequential(conv(6, 6), nn.ReLU(), conv(6, 12))), image, None, 0),
}


def cases():
    return two_styles(lambda name, again: drawn(name, RARER[name], again), RARER)
