"""Whole networks of several unusual parts for tables, decisions and objectives; see assorted.py. Inputs have other types, weights come from
other weights or from the data, likelihoods and losses are written out in the module."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils import parametrizations

from case import classes, pixels
from sets.assorted_series import dense, words
from sets.everyday import styles
from sets.families import Net, weight
from sets.further import L, conv1, lin, mlp, one, steps, vector

B1 = nn.BatchNorm1d


# Experts, hypernetworks, layers computed from others


def capacity(s, x):
    """GShard: each token goes to its two best experts while their capacity lasts; the balance of the experts is a loss."""
    b, t, d = x.shape
    p = s.gate(x).softmax(-1)
    first = F.one_hot(p.argmax(-1), 3).to(p.dtype)
    second = F.one_hot((p - 2 * first).argmax(-1), 3).to(p.dtype)
    at1 = (first.cumsum(1) - 1) * first
    at2 = (second.cumsum(1) - 1 + first.sum(1, keepdim=True)) * second
    g = []
    for hot, at in ((first, at1), (second, at2)):
        kept = hot * (at < 4)
        place = F.one_hot(at.sum(-1).long().clamp(max=3), 4).to(p.dtype)
        g.append((p * kept)[..., None] * place[:, :, None])
    combine = g[0] + g[1]
    combine = combine / combine.sum((2, 3), keepdim=True).clamp(min=1e-9)
    given = torch.einsum("btec,btd->ebcd", (combine > 0).to(x.dtype), x)
    done = torch.einsum("ebch,ehd->ebcd", F.gelu(torch.einsum("ebcd,edh->ebch", given, s.up) + s.bias[:, None, None]), s.down)
    return s.head(x + torch.einsum("btec,ebcd->btd", combine, done)), 3 * (first.mean((0, 1)) * p.mean((0, 1))).sum()


def chosen_tokens(s, x):
    """Experts choose their tokens: a top-k along time for each expert, and a scatter back with its gates; a shared expert."""
    b, t, d = x.shape
    g, place = s.gate(x).softmax(-1).transpose(1, 2).topk(3, -1)
    given = x[:, None].expand(-1, 4, -1, -1).gather(2, place[..., None].expand(-1, -1, -1, d))
    done = F.silu(torch.einsum("bekd,edh->bekh", given, s.up)) @ s.down * g[..., None]
    y = torch.zeros_like(x).scatter_add(1, place.flatten(1)[..., None].expand(-1, -1, d), done.flatten(1, 2))
    return s.head(x + y + s.shared(x))


def generated(s, x, task):
    """A hypernetwork writes the weights of two layers for each sample, with the tasks' code and a low-rank change of a shared one."""
    z = s.tasks(task)
    w1 = s.base + (s.left(z).view(-1, 8, 2) @ s.right(z).view(-1, 2, 6))
    h = F.relu(torch.baddbmm(s.b1(z)[:, :, None], w1, x[:, :, None]))
    w2 = F.normalize(s.w2(z).view(-1, 3, 8), dim=-1)
    return (w2 @ h).squeeze(-1) * s.gain.exp()


def splines(s, x):
    """KAN: B-splines of order 3 by their recursion on a fixed grid, with a SiLU path and trained scales."""
    def layer(x, base, coef, scale):
        grid = torch.linspace(-2.5, 2.5, 11)
        z = x[..., None]
        b = ((z >= grid[:-1]) & (z < grid[1:])).to(x.dtype)
        for k in range(1, 4):
            b = (z - grid[: -(k + 1)]) / (grid[k:-1] - grid[: -(k + 1)]) * b[..., :-1] + (grid[k + 1 :] - z) / (grid[k + 1 :] - grid[1:-k]) * b[..., 1:]
        return base(F.silu(x)) + torch.einsum("bik,oik->bo", b, coef * scale[..., None])

    h = layer(x, s.base1, s.coef1, s.scale1)
    return layer(torch.tanh(h), s.base2, s.coef2, s.scale2)


def rational_flow(s, x):
    """Rational quadratic splines in a coupling, bins found by comparisons, with their log determinants; then a MADE layer."""
    a, d = x[:, :3], x[:, 3:]
    w, h, g = s.net(a).view(-1, 3, 11).split([4, 4, 3], -1)
    cut = lambda v: F.pad((0.04 + (1 - 0.16) * v.softmax(-1)).cumsum(-1), (1, 0)) * 6 - 3
    cw, ch = cut(w), cut(h)
    g = F.pad(0.01 + F.softplus(g), (1, 1), value=1.0)
    inside = (d > -3) & (d < 3)
    z = d.clamp(-2.999, 2.999)
    k = (z[..., None] >= cw[..., 1:-1]).sum(-1, keepdim=True)
    pick = lambda v: v.gather(-1, k).squeeze(-1)
    width, height = pick(cw[..., 1:] - cw[..., :-1]), pick(ch[..., 1:] - ch[..., :-1])
    d0, d1, slope = pick(g[..., :-1]), pick(g[..., 1:]), height / width
    u = (z - pick(cw[..., :-1])) / width
    below = slope + (d1 + d0 - 2 * slope) * u * (1 - u)
    y = pick(ch[..., :-1]) + height * (slope * u**2 + d0 * u * (1 - u)) / below
    det = 2 * slope.log() + (d1 * u**2 + 2 * slope * u * (1 - u) + d0 * (1 - u) ** 2).log() - 2 * below.log()
    z = torch.cat([a, torch.where(inside, y, d)], 1)[:, [3, 0, 4, 1, 5, 2]]
    hidden = F.elu(F.linear(z, s.w1 * s.mask1, s.b1))
    mean, log = F.linear(hidden, s.w2 * s.mask2, s.b2).chunk(2, 1)
    v = (z - mean) * torch.exp(-torch.tanh(log))
    return (0.5 * v.square().sum(1) + torch.tanh(log).sum(1) - torch.where(inside, det, torch.zeros_like(det)).sum(1)).mean()


def trains_of_tensors(s, x):
    """A layer in tensor-train form, a matrix product state over the features, and a Tucker core, all by einsum."""
    h = torch.einsum("bijk,ipr,rjqs,skt->bpqt", x.view(-1, 2, 3, 2), s.g1, s.g2, s.g3).flatten(1)
    phi = torch.stack([torch.cos(x[:, :4]), torch.sin(x[:, :4])], -1)
    v = s.left.expand(x.shape[0], -1)
    for k in range(4):
        v = torch.einsum("bl,bp,lpr->br", v, phi[:, k], s.sites[k])
        v = v / v.norm(dim=1, keepdim=True).clamp(min=1e-6)
    t = torch.einsum("bi,bj,ia,jc,aco->bo", x[:, :6], x[:, 6:], s.u1, s.u2, s.core)
    return s.head(torch.cat([F.relu(h), v, t], 1))


def operators(s, x):
    """A Fourier neural operator: complex weights as pairs on the lowest modes, a pointwise path, and coordinates as channels."""
    b, t, _ = x.shape
    h = s.lift(torch.cat([x, torch.linspace(0, 1, t).view(1, t, 1).expand(b, t, 1)], -1)).transpose(1, 2)
    for w, p, n in zip(s.weights, s.paths, s.norms):
        f = torch.view_as_real(torch.fft.rfft(n(h), norm="ortho"))[:, :, :3]
        re = torch.einsum("bik,iok->bok", f[..., 0], w[0]) - torch.einsum("bik,iok->bok", f[..., 1], w[1])
        im = torch.einsum("bik,iok->bok", f[..., 0], w[1]) + torch.einsum("bik,iok->bok", f[..., 1], w[0])
        full = F.pad(torch.stack([re, im], -1), (0, 0, 0, t // 2 + 1 - 3))
        h = F.gelu(torch.fft.irfft(torch.view_as_complex(full), n=t, norm="ortho") + p(h))
    return s.head(h.transpose(1, 2))


def lifted(s, x):
    """A wavelet network: a Daubechies pair and trained lifting steps over three scales, each with its own gate."""
    low = torch.tensor([0.4830, 0.8365, 0.2241, -0.1294])
    high = low.flip(0) * torch.tensor([1.0, -1, 1, -1])
    filters = torch.stack([low, high])[:, None].repeat(4, 1, 1)
    h, out = s.first(x), []
    for k in range(3):
        z = F.conv1d(F.pad(h, (1, 1), mode="circular"), filters, stride=2, groups=4)
        a, d = z[:, 0::2], z[:, 1::2]
        d = d - s.predict[k](a)
        a = a + s.update[k](d)
        out.append((d * torch.sigmoid(s.gates[k])[:, None]).abs().mean(2))
        h = a
    return s.head(torch.cat([*out, h.flatten(1)], 1))


def constrained(s, x):
    """An orthogonal layer by Householder reflections, a spectral norm by fixed power steps, a Sinkhorn layer, a positive one."""
    h = s.orthogonal(x)
    v = s.v
    for _ in range(3):
        u = F.normalize(s.w @ v, dim=0)
        v = F.normalize(s.w.t() @ u, dim=0)
    h = F.relu(F.linear(h, s.w / (u @ s.w @ v)))
    m = s.logits
    for _ in range(4):
        m = m - m.logsumexp(1, keepdim=True)
        m = m - m.logsumexp(0, keepdim=True)
    return F.linear(h @ m.exp(), F.softplus(s.positive), s.bias)


# Tables, decisions, likelihoods


def mixed_table(s, x, kinds, flags, when):
    """Columns of four types: floats with missing values, int32 categories, booleans, and float64 times with a period."""
    missing = torch.isnan(x)
    x = torch.where(missing, s.fill, x)
    e = torch.stack([t(kinds[:, k]) for k, t in enumerate(s.tables)], 1)
    angle = (when / 24.0).to(s.scale.dtype)[:, None] * s.turns
    c = torch.where(missing[..., None], s.absent, x[..., None] * s.scale + s.shift)
    cls = s.cls.expand(x.size(0), 1, 6)
    h = torch.cat([cls, c, e, s.flags[flags.long()][:, :, :], s.time(torch.cat([angle.sin(), angle.cos()], 1))[:, None]], 1)
    return s.head(s.layer(h)[:, 0])


def interacting(s, x, sparse, history, item, n):
    """DLRM and DIN: products of all pairs below the diagonal, and target attention with Dice over a history of given length."""
    e = torch.stack([t(sparse[:, k]) for k, t in enumerate(s.tables)] + [s.bottom(x)], 1)
    z = e @ e.transpose(1, 2)
    i, j = [1, 2, 2, 3, 3, 3], [0, 0, 1, 0, 1, 2]
    past, target = s.items(history), s.items(item)
    both = torch.cat([past, target[:, None].expand_as(past), past - target[:, None], past * target[:, None]], -1)
    h = s.att1(both)
    p = torch.sigmoid(s.dice(h.flatten(0, 1)).view_as(h))
    h = p * h + (1 - p) * s.alpha * h
    score = s.att2(h).squeeze(-1) * (torch.arange(5)[None] < n[:, None])
    return s.head(torch.cat([z[:, i, j], e[:, -1], (score[:, None] @ past).squeeze(1)], 1))


def clipped_policy(s, x, action, old, advantage, returns, values):
    """PPO over a squashed Gaussian and a discrete action: ratio and value clipping, entropy, advantages normalized over the batch."""
    h = s.body(x)
    logits, value = s.actor(h), s.critic(h).squeeze(-1)
    logp = logits.log_softmax(-1)
    chosen = logp.gather(1, action[:, None]).squeeze(1)
    adv = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    ratio = (chosen - old).exp()
    policy = -torch.min(ratio * adv, ratio.clamp(0.8, 1.2) * adv).mean()
    bounded = values + (value - values).clamp(-0.2, 0.2)
    critic = 0.5 * torch.max((value - returns) ** 2, (bounded - returns) ** 2).mean()
    return logits, policy + 0.5 * critic + 0.01 * (logp.exp() * logp).sum(-1).mean()


def projected_returns(s, x, action, reward, following, done):
    """C51: the target distribution is shifted, clamped and spread over its two neighbouring atoms by index_add; a dueling head."""
    def q(h):
        h = s.body(h)
        a = s.advantage(h).view(-1, 3, 5)
        return (s.value(h)[:, None] + a - a.mean(1, keepdim=True)).log_softmax(-1)

    b = x.shape[0]
    atoms = torch.linspace(-1, 1, 5)
    best = (q(following).exp() * atoms).sum(-1).argmax(1)
    p = s.target(following).view(b, 3, 5).softmax(-1)[torch.arange(b), best]
    at = ((reward[:, None] + 0.9 * (1 - done[:, None]) * atoms).clamp(-1, 1) + 1) / 0.5
    low = at.floor().long()
    high = (low + 1).clamp(max=4)
    share = at - low
    m = torch.zeros(b, 5).scatter_add(1, low, p * (1 - share)).scatter_add(1, high, p * share)
    return -(m * q(x)[torch.arange(b), action]).sum(1).mean()


def mixtures(s, x, y):
    """A mixture density network with full 2 x 2 Cholesky factors, and a quantile head with crossing penalties."""
    h = s.body(x)
    pi, mu, raw = s.mix(h).log_softmax(-1), s.mean(h).view(-1, 3, 2), s.factor(h).view(-1, 3, 3)
    l11, l22, l21 = F.softplus(raw[..., 0]) + 0.1, F.softplus(raw[..., 1]) + 0.1, raw[..., 2]
    d = y[:, None] - mu
    z1 = d[..., 0] / l11
    z2 = (d[..., 1] - l21 * z1) / l22
    nll = -torch.logsumexp(pi - 0.5 * (z1**2 + z2**2) - l11.log() - l22.log(), 1)
    q = s.quantiles(h)
    e = y[:, :1] - q
    level = torch.tensor([0.1, 0.5, 0.9])
    return nll.mean() + torch.max(level * e, (level - 1) * e).sum(1).mean() + F.relu(q[:, :-1] - q[:, 1:]).sum(1).mean()


def sorted_scores(s, x, rank):
    """NeuralSort of scores within a list, a differentiable NDCG with it, and a ListNet term; lists have a padding of -1."""
    score = s.net(x).squeeze(-1).masked_fill(rank < 0, -5.0)
    n = score.size(1)
    gap = (score[:, :, None] - score[:, None]).abs().sum(2)
    scale = n + 1 - 2 * torch.arange(1, n + 1).to(score.dtype)
    p = (scale[None, :, None] * score[:, None] - gap[:, None]).softmax(-1)
    gain = torch.pow(2.0, rank.clamp(min=0).float()) - 1
    discount = s.discount
    dcg = ((p @ gain[..., None]).squeeze(-1) * discount).sum(1)
    ideal = (gain.sort(1, descending=True)[0] * discount).sum(1).clamp(min=1e-3)
    share = rank.float().masked_fill(rank < 0, float("-inf")).softmax(1)
    return -(dcg / ideal).mean() - (share * score.log_softmax(1)).sum(1).mean()


def inner_step(s, x, label, query):
    """MAML: one gradient step of a linear head on the sample's own support set, written out, and its answer to a query."""
    b, n, _ = x.shape
    h, z = torch.tanh(s.body(x)), torch.tanh(s.body(query))
    w = s.head.expand(b, -1, -1)
    for k in range(2):
        p = (h @ w).softmax(-1)
        grad = h.transpose(-2, -1) @ (p - F.one_hot(label, 3).to(p.dtype)) / n
        w = w - s.rates[k].exp() * grad
    return (z @ w).transpose(1, 2)


def ahead(s, x, static, future):
    """N-BEATS after a reversible normalization, gated residual networks with variable selection, three blocks with fixed bases."""
    mean, std = x.mean(1, keepdim=True), (x.var(1, keepdim=True, unbiased=False) + 1e-5).sqrt()
    r = (x - mean) / std * s.scale + s.shift
    c = s.static(static)
    share = s.select(c).softmax(-1)
    f = (future * share[:, None]).sum(-1)
    t = torch.arange(12) / 12.0
    bases = [torch.stack([t**k for k in range(3)]), torch.cat([torch.cos(2 * math.pi * k * t)[None] for k in range(3)] + [torch.sin(2 * math.pi * k * t)[None] for k in range(1, 3)])]
    total = 0.0
    for k, block in enumerate(s.blocks):
        theta = block(torch.cat([r, f, c], 1))
        if k < 2:
            size = bases[k].shape[0]
            back, fore = theta[:, :size] @ bases[k][:, :8], theta[:, size:] @ bases[k][:, 8:]
        else:
            back, fore = theta[:, :8], theta[:, 8:]
        r, total = r - back, total + fore
    return (total - s.shift) / (s.scale + 1e-8) * std + mean


def triplets(s, x, good, bad):
    """Three texts through one encoder stacked along the batch; a triplet, a cosine and a circle term over their distances."""
    b = x.shape[0]
    h = F.normalize(s.head(s.rnn(s.table(torch.cat([x, good, bad])))[1].transpose(0, 1).flatten(1)), dim=1)
    a, p, n = h[:b], h[b : 2 * b], h[2 * b :]
    sp, sn = (a * p).sum(1), (a * n).sum(1)
    circle = F.softplus(4 * (F.relu(sn + 0.2).detach() * (sn - 0.2)) - 4 * (F.relu(1.2 - sp).detach() * (sp - 0.8)))
    return F.relu((a - p).norm(dim=1) - torch.min((a - n).norm(dim=1), (p - n).norm(dim=1)) + 0.3).mean() + F.cosine_embedding_loss(a, n, -torch.ones(b), margin=0.1) + circle.mean()


def blank_words(s, x, segment, n):
    """BERT: three embeddings, a padding mask from lengths, a tied decoder with its own bias, and a pooled second output."""
    h = s.norm(s.table(x) + s.places(torch.arange(7))[None] + s.segments(segment))
    h = s.body(h, src_key_padding_mask=torch.arange(7)[None] >= n[:, None])
    return F.linear(s.transform(h), s.table.weight, s.bias), s.next(torch.tanh(s.pool(h[:, 0])))


def quantised(s, x):
    """Quantization-aware layers: fake quantization of weights per channel and of activations per tensor, with a BatchNorm between."""
    w = torch.fake_quantize_per_channel_affine(s.w, s.scales, s.zeros, 0, -127, 127)
    h = F.relu(s.norm(F.linear(torch.fake_quantize_per_tensor_affine(x, 0.05, 0, -128, 127), w, s.b)))
    return s.head(torch.fake_quantize_per_tensor_affine(h, 0.03, 3, 0, 255))


below = lambda a, b: (torch.arange(b)[:, None] % 6 >= torch.arange(a)[None] % 6 + 1).float()
TABLES = {
    "capacity": (lambda: Net(capacity, gate=lin(5, 3), up=weight(3, 5, 6), bias=weight(3, 6), down=weight(3, 6, 5), head=lin(5, 3)), steps, [((8, 3), 2), None]),
    "chosen_tokens": (lambda: Net(chosen_tokens, gate=lin(5, 4), up=weight(4, 5, 6), down=weight(4, 6, 5), shared=mlp(5, 6, 5), head=lin(5, 3)), steps, [((8, 3), 2)]),
    "generated": (lambda: Net(generated, tasks=nn.Embedding(4, 5), base=weight(8, 6), left=lin(5, 16), right=lin(5, 12), b1=lin(5, 8), w2=lin(5, 24), gain=weight(1)), lambda b: vector(b) | {"task": classes(4, b)}, [((3,), 1)]),
    "splines": (lambda: Net(splines, base1=lin(6, 5), coef1=weight(5, 6, 7), scale1=one(5, 6), base2=lin(5, 3), coef2=weight(3, 5, 7), scale2=one(3, 5)), vector, [((3,), 1)]),
    "rational_flow": (lambda: Net(rational_flow, net=mlp(3, 10, 33), w1=weight(12, 6), mask1=below(6, 12), b1=weight(12), w2=weight(12, 12), mask2=(torch.arange(12)[:, None] % 6 >= torch.arange(12)[None] % 6).float(), b2=weight(12)), vector, [None]),
    "trains_of_tensors": (lambda: Net(trains_of_tensors, g1=weight(2, 2, 3), g2=weight(3, 3, 2, 3), g3=weight(3, 2, 2), left=one(3), sites=nn.ParameterList([weight(3, 2, 3) for _ in range(4)]), u1=weight(6, 2), u2=weight(6, 2), core=weight(2, 2, 3), head=lin(14, 3)), lambda b: {"x": pixels(b, 12)}, [((3,), 1)]),
    "operators": (lambda: Net(operators, lift=lin(5, 6), weights=nn.ParameterList([weight(2, 6, 6, 3) for _ in range(2)]), paths=L(nn.Conv1d(6, 6, 1) for _ in range(2)), norms=L(nn.InstanceNorm1d(6, affine=True) for _ in range(2)), head=mlp(6, 5, 2)), dense, [((9, 2), 0)]),
    "lifted": (lambda: Net(lifted, first=conv1(2, 4), predict=L(conv1(4, 4, groups=4) for _ in range(3)), update=L(conv1(4, 4, groups=2) for _ in range(3)), gates=weight(3, 4), head=lin(24, 3)), lambda b: {"x": pixels(b, 2, 24)}, [((3,), 1)]),
    "constrained": (lambda: Net(constrained, orthogonal=parametrizations.orthogonal(lin(6, 6), orthogonal_map="householder"), w=weight(5, 6), v=torch.randn(6), logits=weight(5, 5), positive=weight(3, 5), bias=weight(3)), vector, [((3,), 1)]),
    "mixed_table": (lambda: Net(mixed_table, turns=2 * math.pi * torch.tensor([1.0, 2.0]), fill=weight(3), tables=L(nn.Embedding(n, 6) for n in (4, 7)), absent=weight(3, 6), scale=one(3, 6), shift=weight(3, 6), cls=weight(1, 1, 6), flags=weight(2, 6), time=lin(4, 6), layer=nn.TransformerEncoderLayer(6, 2, 8, 0.0, batch_first=True, norm_first=True), head=lin(6, 2)), lambda b: {"x": pixels(b, 3).masked_fill(torch.rand(b, 3) < 0.3, float("nan")), "kinds": classes(4, b, 2).int(), "flags": pixels(b, 2) > 0, "when": torch.rand(b).double() * 48}, [((2,), 1)]),
    "interacting": (lambda: Net(interacting, tables=L(nn.Embedding(9, 4) for _ in range(3)), bottom=mlp(3, 6, 4), items=nn.Embedding(9, 4), att1=lin(16, 6), dice=B1(6, affine=False, eps=1e-3), alpha=weight(6), att2=lin(6, 1), head=mlp(14, 8, 1)), lambda b: {"x": pixels(b, 3), "sparse": classes(9, b, 3), "history": classes(9, b, 5), "item": classes(9, b), "n": 1 + classes(5, b)}, [((1,), 0)]),
    "clipped_policy": (lambda: Net(clipped_policy, body=mlp(6, 8, 8), actor=lin(8, 4), critic=lin(8, 1)), lambda b: vector(b) | {"action": classes(4, b), "old": -pixels(b).abs() - 0.5, "advantage": pixels(b), "returns": pixels(b), "values": pixels(b)}, [((4,), 0), None]),
    "projected_returns": (lambda: Net(projected_returns, body=mlp(6, 8, 8), value=lin(8, 5), advantage=lin(8, 15), target=lin(6, 15).requires_grad_(False)), lambda b: vector(b) | {"action": classes(3, b), "reward": pixels(b), "following": pixels(b, 6), "done": (pixels(b) > 0.5).float()}, [None]),
    "mixtures": (lambda: Net(mixtures, body=mlp(6, 8, 8), mix=lin(8, 3), mean=lin(8, 6), factor=lin(8, 9), quantiles=lin(8, 3)), lambda b: vector(b) | {"y_true": pixels(b, 2)}, [None]),
    "sorted_scores": (lambda: Net(sorted_scores, discount=1 / torch.log2(torch.arange(9) + 2.0), net=mlp(4, 6, 1)), lambda b: dense(b) | {"rank": torch.cat([classes(3, b, 6), classes(4, b, 3) - 1], 1)}, [None]),
    "inner_step": (lambda: Net(inner_step, body=mlp(4, 8, 6), head=weight(6, 3), rates=weight(2)), lambda b: dense(b) | {"label": classes(3, b, 9), "query": pixels(b, 2, 4)}, [((3, 2), 1)]),
    "ahead": (lambda: Net(ahead, scale=one(1), shift=weight(1), static=nn.Embedding(4, 3), select=lin(3, 2), blocks=L(mlp(15, 10, n) for n in (6, 10, 12))), lambda b: {"x": pixels(b, 8), "static": classes(4, b), "future": pixels(b, 4, 2)}, [((4,), 0)]),
    "triplets": (lambda: Net(triplets, table=nn.Embedding(11, 5), rnn=nn.GRU(5, 4, bidirectional=True, batch_first=True), head=lin(8, 5)), lambda b: words(b) | {"good": classes(11, b, 7), "bad": classes(11, b, 7)}, [None]),
    "blank_words": (lambda: Net(blank_words, table=nn.Embedding(11, 8), places=nn.Embedding(7, 8), segments=nn.Embedding(2, 8), norm=nn.LayerNorm(8, eps=1e-12), body=nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 12, 0.0, "gelu", batch_first=True), 2, enable_nested_tensor=False), transform=nn.Sequential(lin(8, 8), nn.GELU(), nn.LayerNorm(8)), bias=weight(11), next=lin(8, 2), pool=lin(8, 8)), lambda b: {"x": classes(11, b, 7), "segment": classes(2, b, 7), "n": 2 + classes(6, b)}, [((7, 11), 2), ((2,), 1)]),
    "quantised": (lambda: Net(quantised, w=weight(8, 6), b=weight(8), scales=torch.full((8,), 0.01), zeros=torch.zeros(8, dtype=torch.int32), norm=B1(8), head=lin(8, 3)), vector, [((3,), 1)]),
}


def cases():
    return styles(TABLES, oldest=13)
