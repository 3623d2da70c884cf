"""Graphs, point clouds, tables, forecasts and likelihoods as in unheard.py."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

from case import classes, pixels
from sets.everyday import styles
from sets.families import Net, weight
from sets.further import EDGES, L, lin, mlp, nodes, series, steps, vector
from sets.unheard import cloud


# Graphs and point clouds


def attended_edges(s, x):
    """GAT: a softmax over each node's edges by scattering the maximum and the sum."""
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
    """PNA: mean, maximum, minimum and standard deviation of the neighbors, scaled by their number."""
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
    """SchNet: distances as Gaussians with a cosine cutoff, and the magnitudes of forces."""
    d = (x.unsqueeze(1) - x.unsqueeze(2)).square().sum(-1).add(1e-6).sqrt()
    g = torch.exp(-4 * (d.unsqueeze(-1) - torch.linspace(0, 4, 6)).square())
    cut = 0.5 * (torch.cos(d * math.pi / 4) + 1) * (d < 4)
    h = s.kinds.expand(x.shape[0], -1, -1)
    for f, out in zip(s.filters, s.out):
        h = h + out((h.unsqueeze(1) * f(g) * cut.unsqueeze(-1) * (1 - torch.eye(7)).unsqueeze(-1)).sum(2))
    return s.head(h).sum(1)


def triangles(s, x):
    """Evoformer: pairs updated over triangles, gated, with pair masks."""
    z = s.pair(x.unsqueeze(2) * x.unsqueeze(1))
    n = s.norm(z)
    a, b = (s.ab(n) * torch.sigmoid(s.gab(n))).chunk(2, -1)
    z = z + torch.sigmoid(s.gate(n)) * s.out(F.layer_norm(torch.einsum("bikc,bjkc->bijc", a, b), (4,)))
    q, k, v, bias = s.qkvb(z).split([4, 4, 4, 1], -1)
    w = torch.einsum("bijc,bikc->bijk", q, k) / 2 + bias.permute(0, 3, 1, 2)
    z = z + torch.einsum("bijk,bikc->bijc", w.softmax(-1), v)
    return s.head((z + z.transpose(1, 2)).mean((1, 2)))


def grouped_points(s, x):
    """PointNet++: farthest point centers, neighbors within a ball, padded with the nearest one."""
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
    """Oblivious trees: entmax over the features, soft thresholds, leaves as products."""
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
    """ES-RNN: level, trend and season smoothed with trained factors."""
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
    """Autoformer: correlations over all delays, the largest of which roll the values."""
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
    """CORAL and CORN: ordered thresholds, and each conditional on the previous one."""
    z = s.net(x) + torch.cat([s.b0, s.b0 - F.softplus(s.gaps).cumsum(0)])
    above = (y0.unsqueeze(1) > torch.arange(4)).float()
    coral = -(F.logsigmoid(z) * above + (F.logsigmoid(z) - z) * (1 - above)).sum(1).mean()
    w = s.other(x)
    seen = (y0.unsqueeze(1) > torch.arange(4) - 1).float()
    corn = -(seen * (F.logsigmoid(w) * above + (F.logsigmoid(w) - w) * (1 - above))).sum() / seen.sum()
    return coral + corn


def projected_returns(s, x, reward, action):
    """C51: a distribution of returns shifted along its own support."""
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
    """SAC: a bounded action, its density, and the minimum of two critics."""
    mean, log_std = s.net(x).chunk(2, -1)
    log_std = -2 + 0.5 * 3 * (torch.tanh(log_std) + 1)
    u = mean + log_std.exp() * noise
    a = torch.tanh(u)
    logp = (-0.5 * noise**2 - log_std - 0.5 * math.log(2 * math.pi)).sum(-1) - (2 * (math.log(2) - u - F.softplus(-2 * u))).sum(-1)
    q = torch.min(s.q1(torch.cat([x, a], -1)), s.q2(torch.cat([x, a], -1))).squeeze(-1)
    return (s.log_alpha.exp() * logp - q).mean()


def traced_returns(s, x, reward, ratio):
    """V-trace: corrected returns computed backwards, and the resulting policy loss."""
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
    """Glow: an invertible factored linear map, couplings, and the density."""
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
    """MADE: weight masks by degrees, residual noise scales, in order."""
    h = F.relu(F.linear(x, s.w1 * s.m1, s.b1))
    mean, log_s = F.linear(h, s.w2 * s.m2, s.b2).chunk(2, -1)
    u = (x - mean) * torch.exp(-log_s.clamp(-3, 3))
    return 0.5 * u.square().sum(-1).mean() + log_s.clamp(-3, 3).sum(-1).mean()


def temperature_teacher(s, x, y0):
    """Distillation from a frozen network, including intermediate features."""
    with torch.no_grad():
        t = s.teacher(x)
    h = s.body(x)
    z = s.head(F.relu(h))
    soft = F.kl_div(F.log_softmax(z / 3, -1), F.log_softmax(t / 3, -1), reduction="batchmean", log_target=True) * 9
    return F.cross_entropy(z, y0) * 0.3 + 0.7 * soft


def made_weights(s, x):
    """A hypernetwork: it computes the weights of each layer from that layer's embedding."""
    for k in range(2):
        w = (s.up(F.relu(s.down(s.codes[k]))) / 6**0.5).view(6, 6)
        x = torch.tanh(F.linear(x, w, s.bias(s.codes[k])))
    return s.head(x)


def classical_steps(s, x):
    """An equation of motion by four Runge-Kutta steps, with time next to the state."""
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
    """The divergence of a continuous flow by forward derivatives along the axes."""
    total = 0.0
    for k in range(3):
        way = torch.zeros_like(x).index_fill(1, torch.tensor([k]), 1.0)
        value, slope = torch.func.jvp(s.net, (x,), (way,))
        total = total + slope[:, k]
    return value, total


TABLES = {
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
    return styles(TABLES)
