"""The sequences, tables, graphs and losses of uncommon.py."""
import itertools
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

from case import classes, pixels
from sets.everyday import styles
from sets.families import Net, weight
from sets.further import EDGES, L, lin, mlp, nodes, one, steps, tokens, vector

two_texts = lambda b: {"x": classes(11, b, 6), "other": classes(11, b, 5)}


# Recurrent cells


def peepholes(s, x):
    b = x.size(0)
    h, c, out = x.new_zeros(b, 6), x.new_zeros(b, 6), []
    for t in range(x.size(1)):
        i, f, g, o = (s.ih(x[:, t]) + s.hh(h)).chunk(4, 1)
        c = torch.sigmoid(f + s.peep[0] * c) * c + torch.sigmoid(i + s.peep[1] * c) * torch.tanh(g)
        h = torch.sigmoid(o + s.peep[2] * c) * torch.tanh(c)
        out += [h]
    return s.head(torch.stack(out, dim=1))


def clockwork(s, x):
    """Groups of units are updated every 1, 2 and 4 steps; faster groups read slower ones."""
    h, out = torch.zeros(x.size(0), 9), []
    for t in range(x.size(1)):
        new = torch.tanh(s.ih(x[:, t, :]) + F.linear(h, s.hh * s.mask))
        live = torch.cat([torch.full((3,), float(t % period == 0)) for period in (1, 2, 4)])
        h = live * new + (1 - live) * h
        out.append(h)
    return s.head(torch.stack(out)).permute(1, 0, 2)


def dilated(s, x):
    """Every d-th step forms a sequence of its own: the steps go into the batch axis and come back."""
    h = x.transpose(0, 1)
    for d, cell in zip((1, 2, 4), s.cells):
        t, b, c = h.shape
        y = cell(torch.cat([h[j::d] for j in range(d)], 1))[0]
        h = torch.stack([y[:, j * b : (j + 1) * b] for j in range(d)], 1).reshape(t, b, y.size(-1))
    return s.head(h[-1])


def simple_units(s, x):
    """SRU: all products at once, then an elementwise loop, in both directions."""
    def run(u, order):
        z, f, r, k = u.chunk(4, -1)
        c, out = torch.zeros_like(z[:, 0]), [None] * u.size(1)
        for t in order:
            gate = torch.sigmoid(f[:, t] + s.v[0] * c)
            reset = torch.sigmoid(r[:, t] + s.v[1] * c)
            c = gate * c + (1 - gate) * z[:, t]
            out[t] = reset * torch.tanh(c) + (1 - reset) * k[:, t]
        return torch.stack(out, 1)

    n = x.size(1)
    return s.head(torch.cat([run(s.forth(x), range(n)), run(s.back(x), range(n - 1, -1, -1))], -1))


def attentive_gru(s, x, item):
    """DIEN: the attention of the target scales the update gate."""
    e, q = s.items(x), s.items(item)
    a = torch.softmax(torch.einsum("btd,de,be->bt", e, s.w, q), 1)
    h = torch.zeros(x.shape[0], 5)
    for t in range(x.shape[1]):
        r, u = torch.sigmoid(s.gates(torch.cat([e[:, t], h], 1))).chunk(2, 1)
        n = torch.tanh(s.new(torch.cat([e[:, t], r * h], 1)))
        u = a[:, t : t + 1] * u
        h = (1.0 - u) * h + u * n
    return s.head(torch.cat([h, q, h * q], 1))


def soft_stack(s, x):
    """A stack that is pushed and popped by shares."""
    b = x.size(0)
    stack, h = x.new_zeros(b, 5, 4), x.new_zeros(b, 6)
    for t in range(x.size(1)):
        h = s.cell(torch.cat([x[:, t], stack[:, 0]], -1), h)
        push, pop, keep = s.action(h).softmax(-1).unsqueeze(-1).unsqueeze(-1).unbind(1)
        value = torch.sigmoid(s.value(h)).unsqueeze(1)
        pushed = torch.cat((value, stack[:, :-1]), 1)
        popped = torch.cat((stack[:, 1:], torch.zeros(b, 1, 4)), 1)
        stack = push * pushed + pop * popped + keep * stack
    return s.head(torch.cat([h, stack[:, 0]], -1))


def tree_sums(s, x):
    """A child-sum tree LSTM over a fixed tree of six nodes."""
    parents = [4, 4, 5, 5, 5, -1]
    iou, f = s.iou(x), s.f(x)
    h, c = [None] * 6, [None] * 6
    for n in range(6):
        kids = [k for k in range(6) if parents[k] == n]
        hs = sum((h[k] for k in kids), torch.zeros_like(f[:, n]))
        i, o, u = (iou[:, n] + s.uiou(hs)).split(4, dim=1)
        c[n] = i.sigmoid() * u.tanh() + sum((torch.sigmoid(f[:, n] + s.uf(h[k])) * c[k] for k in kids), torch.zeros_like(hs))
        h[n] = o.sigmoid() * c[n].tanh()
    return s.head(h[5])


# Attention


def without_attention(s, x):
    """AFT: exponentials of keys and position biases, causal."""
    h = s.table(x)
    q, k, v = s.qkv(h).chunk(3, -1)
    w = torch.exp(s.bias).tril()
    e = torch.exp(k - k.amax(1, keepdim=True))
    return s.head(torch.sigmoid(q) * (w @ (e * v)) / (w @ e))


def gated_unit(s, x):
    """GAU: one gated layer with squared ReLU attention over scaled and shifted shared keys."""
    h = s.table(x)
    y = s.norm(h)
    u, v, z = F.silu(s.in_(y)).split([12, 12, 4], -1)
    q, k = (z.unsqueeze(-2) * s.scale + s.shift).unbind(-2)
    a = F.relu(q @ k.transpose(1, 2) / x.size(1) + s.places) ** 2
    return s.head(h + s.out(u * (a.tril() @ v)))


def given_scores(s, x):
    """Synthesizer: scores from each token alone, and trained ones without any token."""
    h = s.table(x)
    dense = s.scores(h)
    a = (torch.softmax(dense, -1) + torch.softmax(s.fixed, -1)[None]) / 2
    return s.head(F.layer_norm(h + a @ s.v(h), [8]))


def cosine_distances(s, x):
    """cosFormer: linear attention with cosine and sine of the position."""
    h = s.table(x)
    q, k, v = F.relu(s.q(h)), F.relu(s.k(h)), s.v(h)
    at = math.pi / 2 * torch.arange(1, x.size(1) + 1).view(1, -1, 1).to(h.dtype) / x.size(1)
    q, k = torch.cat([q * torch.sin(at), q * torch.cos(at)], -1), torch.cat([k * torch.sin(at), k * torch.cos(at)], -1)
    kv = torch.einsum("nld,nlm->nldm", k, v).cumsum(1)
    z = 1 / torch.clamp_min(torch.einsum("nld,nld->nl", q, k.cumsum(1)), 1e-3)
    return s.head(torch.einsum("nld,nldm,nl->nlm", q, kv, z))


def toeplitz(s, x):
    """TNN: a relative-position network makes the numbers of a Toeplitz matrix."""
    h = s.table(x)
    n = x.size(1)
    u, v = F.silu(s.uv(h)).chunk(2, -1)
    rel = torch.arange(-n + 1, n).unsqueeze(-1).to(h.dtype)
    t = s.positions(rel) * 0.9 ** rel.abs()
    index = torch.arange(n)[:, None] - torch.arange(n)[None, :] + n - 1
    return s.head(h + s.out(u * torch.einsum("nmd,bmd->bnd", t[index], v)))


def halting(s, x):
    """Universal transformer: adaptive computation time with three shared steps."""
    h = s.table(x)
    b, n, d = h.shape
    halted, left, updates, out = torch.zeros(b, n), torch.zeros(b, n), torch.zeros(b, n), torch.zeros_like(h)
    for k in range(3):
        p = torch.sigmoid(s.halt(h + s.times[k])).squeeze(-1)
        running = (halted < 1.0).float()
        new = (halted + p * running > 0.9).float() * running
        running = (halted + p * running <= 0.9).float() * running
        halted = halted + p * running
        left = left + new * (1 - halted)
        halted = halted + new * left
        updates = updates + running + new
        share = p * running + new * left
        h = h + s.body(s.norm(h))
        out = h * share.unsqueeze(-1) + out * (1 - share.unsqueeze(-1))
    return s.head(out), (left + updates).mean(1)


def scaled_by_vectors(s, x):
    """IA3: frozen projections, whose keys, values and inner features are scaled."""
    h = s.table(x)
    q, k, v = s.q(h), s.k(h) * s.lk, s.v(h) * s.lv
    y = F.scaled_dot_product_attention(*(t.view(t.size(0), -1, 2, 4).transpose(1, 2) for t in (q, k, v)), is_causal=True)
    h = h + s.o(y.transpose(1, 2).reshape(h.shape))
    return s.head(h + s.down(F.gelu(s.up(h), approximate="tanh") * s.lff))


def inverted(s, x):
    """iTransformer: a series per token, standardized by its own statistics."""
    mean = x.mean(1, keepdim=True).detach()
    y = x - mean
    deviation = torch.sqrt(torch.var(y, dim=1, keepdim=True, unbiased=False) + 1e-5)
    y = s.embed((y / deviation).permute(0, 2, 1))
    y = s.project(s.layer(y)).permute(0, 2, 1)
    return y * deviation[:, 0, :].unsqueeze(1).repeat(1, 4, 1) + mean[:, 0, :].unsqueeze(1).repeat(1, 4, 1)


# Texts


def attention_flow(s, x, other):
    """BiDAF: trilinear similarities, both directions of attention, masks from padding tokens."""
    c, q = s.rnn(s.table(x))[0], s.rnn(s.table(other))[0]
    similar = s.wc(c) + s.wq(q).transpose(1, 2) + torch.matmul(c * s.wm, q.transpose(1, 2))
    cm, qm = x.ne(0), other.ne(0)
    a = similar.masked_fill(~qm[:, None, :], -1e4).softmax(2) @ q
    top = similar.masked_fill(~cm[:, :, None], -1e4).max(2)[0].softmax(1).unsqueeze(1)
    b = (top @ c).expand(-1, c.size(1), -1)
    g = torch.cat([c, a, c * a, c * b], 2)
    return s.start(g).squeeze(2).masked_fill(~cm, -1e4), s.end(s.more(g)[0]).squeeze(2).masked_fill(~cm, -1e4)


def inferred(s, x, other):
    """ESIM: two texts are aligned, compared by difference and product, and pooled twice."""
    a, b = s.encode(s.table(x))[0], s.encode(s.table(other))[0]
    e = torch.bmm(a, b.permute(0, 2, 1))
    at, bt = F.softmax(e, 2).bmm(b), F.softmax(e, 1).transpose(1, 2).bmm(a)
    outs = []
    for p, q in ((a, at), (b, bt)):
        y = s.compose(F.relu(s.project(torch.cat([p, q, p - q, p * q], -1))))[0]
        outs += [y.mean(1), y.max(1).values]
    return s.head(torch.cat(outs, -1))


def spans(s, x):
    """Coreference: every span of up to three words by its ends, its width and an attention over its words."""
    h = s.rnn(s.table(x))[0]
    n = x.size(1)
    pairs = [(i, j) for i in range(n) for j in range(i, min(i + 3, n))]
    first, last = torch.tensor([p[0] for p in pairs]), torch.tensor([p[1] for p in pairs])
    inside = (torch.arange(n)[None] >= first[:, None]) & (torch.arange(n)[None] <= last[:, None])
    a = s.attend(h).squeeze(-1)[:, None].masked_fill(~inside, float("-inf")).softmax(-1)
    g = torch.cat([h[:, first], h[:, last], a @ s.table(x), s.widths(last - first)[None].expand(x.size(0), -1, -1)], -1)
    score = s.score(g).squeeze(-1)
    best, where = score.topk(4, 1)
    chosen = g.gather(1, where.unsqueeze(-1).expand(-1, -1, g.size(-1)))
    return s.link(chosen).bmm(chosen.transpose(1, 2)) + best[:, :, None] + best[:, None, :]


def memory_hops(s, x, query):
    """End-to-end memory: sentences with position encoding, three hops, adjacent tying of tables."""
    j, d = x.size(2), 6
    code = 1 - torch.arange(1, j + 1)[:, None] / j - (torch.arange(1, d + 1)[None] / d) * (1 - 2 * torch.arange(1, j + 1)[:, None] / j)
    u = s.tables[0](query).sum(1)
    for k in range(3):
        m = (s.tables[k](x) * code).sum(2) + s.time[k]
        c = (s.tables[k + 1](x) * code).sum(2) + s.time[k + 1]
        u = u + (torch.softmax((m * u.unsqueeze(1)).sum(-1), 1).unsqueeze(2) * c).sum(1)
    return u @ s.tables[3].weight.t()


def scalar_mix(s, x):
    """ELMo: a softmax over layers and a scale."""
    layers = [s.table(x)]
    for rnn in s.layers:
        layers.append(rnn(layers[-1])[0] + layers[-1])
    w = torch.softmax(s.shares, 0)
    return s.head(s.gamma * sum(w[i] * h for i, h in enumerate(layers)))


def rated_pairs(s, x):
    """GloVe: weighted squares of the logarithm of counts."""
    i, j, count = x[:, 0], x[:, 1], x[:, 2].float() + 1
    weigh = torch.clamp((count / 8) ** 0.75, max=1.0)
    inner = (s.words(i) * s.contexts(j)).sum(1) + s.bi(i).squeeze(1) + s.bj(j).squeeze(1)
    return (weigh * (inner - count.log()) ** 2).mean()


def frequent_words(s, x):
    """An adaptive softmax written out: a head with two clusters, whose words have smaller projections."""
    h = s.rnn(s.table(x))[0]
    head = F.log_softmax(s.head(h), -1)
    parts = [head[..., :4]]
    for k in range(2):
        parts.append(F.log_softmax(s.tails[k](h), -1) + head[..., 4 + k : 5 + k])
    return torch.cat(parts, -1)


# Tables, sets, graphs


def fields_bilinear(s, x):
    """FiBiNet: fields are weighted, and all pairs joined by a matrix per pair."""
    e = torch.stack([t(x[:, i]) for i, t in enumerate(s.tables)], 1)
    z = e * F.relu(s.up(F.relu(s.down(e.mean(-1))))).unsqueeze(-1)
    pairs = list(itertools.combinations(range(4), 2))
    a = torch.cat([(e[:, i] @ s.w[k]) * e[:, j] for k, (i, j) in enumerate(pairs)], -1)
    b = torch.cat([(z[:, i] @ s.w[k]) * z[:, j] for k, (i, j) in enumerate(pairs)], -1)
    return s.deep(torch.cat([a, b], -1))


def implicit_items(s, user, item, seen):
    """SVD++: biases, and the items that a user has seen, of which zeros are padding."""
    mask = (seen != 0).float()
    y = (s.implicit(seen) * mask.unsqueeze(-1)).sum(1) / mask.sum(1, keepdim=True).clamp(min=1).sqrt()
    return s.mean + s.bu(user).squeeze(-1) + s.bi(item).squeeze(-1) + ((s.users(user) + y) * s.items(item)).sum(-1)


def pairwise_ranks(s, user, good, bad):
    """BPR with a penalty on the rows that the batch reads."""
    u, p, n = s.users(user), s.items(good), s.items(bad)
    return -F.logsigmoid((u * p).sum(1) - (u * n).sum(1)).mean() + 0.01 * (u.pow(2).sum() + p.pow(2).sum() + n.pow(2).sum()) / user.size(0)


def layered_experts(s, x):
    """PLE: own and shared experts of two tasks in two levels."""
    own, shared = [x, x], x
    for level in s.levels:
        ours = [torch.stack([e(own[k]) for e in level["own"][k]], 1) for k in range(2)]
        common = torch.stack([e(shared) for e in level["shared"]], 1)
        new = [(torch.softmax(level["gates"][k](own[k]), 1).unsqueeze(2) * torch.cat([ours[k], common], 1)).sum(1) for k in range(2)]
        every = torch.cat([*ours, common], 1)
        shared = torch.einsum("be,bed->bd", torch.softmax(level["all"](shared), 1), every)
        own = new
    return s.heads[0](own[0]), s.heads[1](own[1])


def cross_stitched(s, x):
    a, b = x, x
    for k in range(2):
        a, b = F.relu(s.first[k](a)), F.relu(s.second[k](b))
        both = torch.stack((a, b), dim=-1) @ s.mix[k]
        a, b = both[..., 0], both[..., 1]
    return s.heads[0](a), s.heads[1](b)


def fuzzy_rules(s, x):
    """ANFIS: bell functions, rules for all combinations, normalized strengths, linear consequences."""
    x = x[:, :3]
    member = 1 / (1 + ((x[:, :, None] - s.c) / s.a).abs() ** (2 * s.b.abs()))
    strength = torch.stack([member[:, 0, i] * member[:, 1, j] * member[:, 2, k] for i, j, k in itertools.product(range(2), repeat=3)], 1)
    strength = F.normalize(strength, p=1, dim=1)
    return torch.einsum("br,brk->bk", strength, torch.einsum("bi,rik->brk", F.pad(x, (0, 1), value=1.0), s.p))


def radial(s, x):
    d = torch.norm(x.unsqueeze(1) - s.centres.unsqueeze(0), dim=2)
    phi = torch.exp(-(s.log_scale.exp() * d).pow(2))
    return s.head(phi / (phi.sum(1, keepdim=True) + 1e-6))


def calibrated(s, x):
    """Monotone piecewise-linear calibrators, then a multilinear lattice over three of them."""
    heights = torch.cumsum(torch.cat([s.low, F.softplus(s.gaps)], 1), 1)
    keys = torch.linspace(-2, 2, 6)
    share = ((x[:, :3, None] - keys[:-1]) / (keys[1:] - keys[:-1])).clamp(0, 1)
    y = torch.sigmoid(heights[:, 0] + (share * (heights[:, 1:] - heights[:, :-1])).sum(-1))
    corners = torch.tensor(list(itertools.product([0.0, 1.0], repeat=3)))
    w = (y[:, None] * corners + (1 - y[:, None]) * (1 - corners)).prod(-1)
    return w @ s.lattice


def entmax(z):
    """1.5-entmax by its sorted solution."""
    z = (z - z.max(-1, keepdim=True)[0]) / 2
    top, _ = torch.sort(z, descending=True, dim=-1)
    rho = torch.arange(1, z.size(-1) + 1, dtype=z.dtype)
    mean, square = top.cumsum(-1) / rho, (top**2).cumsum(-1) / rho
    delta = torch.clamp((1 - rho * (square - mean**2)) / rho, min=1e-6)
    tau = mean - torch.sqrt(delta)
    size = (tau <= top).sum(-1, keepdim=True)
    return torch.clamp(z - tau.gather(-1, size - 1), min=0) ** 2


def sparse_experts(s, x):
    share = entmax(s.gate(x))
    return torch.einsum("be,bek->bk", share, torch.stack([e(x) for e in s.experts], 1))


def sorted_softly(s, x):
    """NeuralSort: a relaxed permutation, and a loss against the true order."""
    score = s.net(x).squeeze(-1)
    n = score.size(1)
    a = (score[:, :, None] - score[:, None, :]).abs().sum(-1)
    scaling = (n + 1 - 2 * torch.arange(1, n + 1)).to(score.dtype)
    p = torch.softmax(score[:, None, :] * scaling[None, :, None] - a[:, None, :], -1)
    order = torch.argsort(x[..., 0], 1, descending=True)
    truth, p = F.one_hot(order, n).to(p.dtype), p.clamp(1e-6, 1 - 1e-6)
    return -(truth * p.log() + (1 - truth) * (1 - p).log()).mean()


def object_pairs(s, x, question):
    n = x.size(1)
    a, b = x.unsqueeze(2).expand(-1, -1, n, -1), x.unsqueeze(1).expand(-1, n, -1, -1)
    q = question[:, None, None].expand(-1, n, n, -1)
    return s.f(s.g(torch.cat([a, b, q], -1).reshape(-1, 13)).reshape(x.size(0), n * n, -1).sum(1))


def aligned_points(s, x):
    """PointNet with its alignment network and the penalty for matrices that are not orthogonal."""
    h = F.relu(s.first(x.transpose(2, 1)))
    m = s.align(h.max(2)[0]).view(-1, 6, 6) + torch.eye(6)
    h = torch.bmm(h.transpose(2, 1), m).transpose(2, 1)
    penalty = torch.norm(torch.bmm(m, m.transpose(2, 1)) - torch.eye(6).repeat(x.size(0), 1, 1), dim=(1, 2))
    return s.head(F.relu(s.second(h)).max(2)[0]), penalty


def reduced_edges(s, x):
    """Messages reduced by index in four ways."""
    a, b = EDGES
    m = s.message(torch.cat([x[:, a], x[:, b]], -1))
    index = b.view(1, -1, 1).expand_as(m)
    base = s.own(x)
    kinds = [base.scatter_reduce(1, index, m, reduce=r, include_self=keep) for r, keep in (("amax", True), ("mean", True), ("sum", True), ("amin", True))]
    return s.head(torch.cat(kinds, -1))


def spread_labels(s, x):
    """APPNP: degrees and messages by scatter_add."""
    degree = x.new_zeros(6).scatter_add_(0, EDGES[1], x.new_ones(EDGES.size(1))) + 1
    norm = (degree[EDGES[0]] * degree[EDGES[1]]).rsqrt()
    h = z = s.net(x)
    for _ in range(3):
        sent = z[:, EDGES[0]] * norm.view(-1, 1)
        z = 0.9 * torch.zeros_like(h).scatter_add(1, EDGES[1].view(1, -1, 1).expand_as(sent), sent) + 0.1 * h
    return z


# Flows, energies, losses


def planar(s, x):
    total, z = 0.0, x
    for u, w, b in zip(s.u, s.w, s.b):
        wu = w @ u
        u = u + (F.softplus(wu) - 1 - wu) * w / (w @ w)
        a = torch.tanh(z @ w + b)
        total = total + torch.log(torch.abs(1 + (1 - a**2) * (w @ u)) + 1e-6)
        z = z + u * a.unsqueeze(-1)
    return (0.5 * z.pow(2).sum(1) - total).mean()


def free_energy(s, x, noise):
    """A Boltzmann machine's free energies of data and noise, by contrastive divergence."""
    f = lambda v: -v @ s.bv - F.softplus(F.linear(v, s.w, s.bh)).sum(1)
    return torch.mean(f(x)) - torch.mean(f(noise)) + 0.01 * (f(x) ** 2 + f(noise) ** 2).mean()


def noisy_layers(s, x, a, b):
    """Factorized noise, given as an input, on weights and biases."""
    f = lambda v: v.sign() * v.abs().sqrt()
    h = F.relu(s.first(x))
    w = s.mu + s.sigma * torch.einsum("bo,bi->boi", f(b), f(a))
    return torch.einsum("boi,bi->bo", w, h) + s.bias_mu + s.bias_sigma * f(b)


def physical(s, x):
    """u'' = -u by derivatives written out through two tanh layers, and a boundary term."""
    def jet(t):
        a = s.first(t)
        h = torch.tanh(a)
        d = (1 - h**2) * s.first.weight[:, 0]
        dd = -2 * h * d * s.first.weight[:, 0]
        g = torch.tanh(s.second(h))
        p, pp = d @ s.second.weight.t(), dd @ s.second.weight.t()
        return s.head(g), s.head((1 - g**2) * p) - s.head.bias, s.head((1 - g**2) * pp - 2 * g * (1 - g**2) * p**2) - s.head.bias

    u, _, uu = jet(x[:, :1])
    u0, du0, _ = jet(x.new_zeros(1, 1))
    return ((uu + u) ** 2).mean() + (u0**2).squeeze() + ((du0 - 1) ** 2).squeeze()


def many_margins(s, x, label, many):
    """Torch's margin losses next to each other."""
    z = s.net(x)
    signs = many * 2 - 1
    return F.multi_margin_loss(z, label, p=2, margin=0.7) + F.multilabel_soft_margin_loss(z, many) + F.soft_margin_loss(z, signs) + F.hinge_embedding_loss(z.abs(), signs, margin=0.8) + F.margin_ranking_loss(z[:, 0], z[:, 1], signs[:, 0], margin=0.2)


def many_distances(s, x, good, bad):
    a, p, n = s.net(x), s.net(good), s.net(bad)
    swapped = F.triplet_margin_with_distance_loss(a, p, n, distance_function=nn.PairwiseDistance(p=1.0, keepdim=True), margin=1.5, swap=True)
    cosine = F.cosine_embedding_loss(a, n, torch.where(good[:, 0] > 0, 1.0, -1.0), margin=0.1)
    return swapped + cosine + s.same(a, p).pow(2).mean() + F.pairwise_distance(a, p, p=3.0).mean()


def given_rates(s, x, y):
    z = s.net(x)
    return F.poisson_nll_loss(z[:, 0], y[:, 0].abs(), log_input=True) + F.gaussian_nll_loss(z[:, 1], y[:, 1], F.softplus(z[:, 2]), full=True)


def class_centres(s, x, label):
    h = s.net(x)
    return s.head(h), 0.5 * (h - s.centres[label]).pow(2).sum(1)


def first_hits(s, x, time, event):
    """DeepHit: a likelihood over time bins and a ranking over pairs of samples."""
    p = torch.softmax(s.net(x), 1)
    at = p.gather(1, time[:, None]).squeeze(1)
    cumulative = p.cumsum(1)
    survived = 1 - cumulative.gather(1, time[:, None]).squeeze(1)
    e = (event > 0).float()
    likelihood = -(e * (at + 1e-6).log() + (1 - e) * (survived + 1e-6).log()).mean()
    f = cumulative[:, time]
    own = torch.diagonal(f)
    earlier = ((time[:, None] < time[None]).float() * e[:, None]).t()
    return likelihood + 0.2 * (earlier * torch.exp((f - own[None]) / 0.5)).mean()


def mixed_samples(s, x, share, other, label):
    """Mixup with an order of the batch given as input."""
    h = s.net(share[:, None] * x + (1 - share[:, None]) * x[other])
    return (share * F.cross_entropy(h, label, reduction="none") + (1 - share) * F.cross_entropy(h, label[other], reduction="none")).mean()


def binned(s, x):
    """Soft histograms of each sample's features as its descriptor."""
    h = torch.sigmoid(s.net(x))
    centres = torch.arange(0.1, 1.0, 0.2)
    soft = torch.exp(-((h.unsqueeze(-1) - centres) ** 2) / (2 * s.width**2))
    return s.head((soft / soft.sum(-1, keepdim=True)).mean(1))


def janossy(s, x):
    """A mean over all orders of three elements."""
    orders = torch.tensor(list(itertools.permutations(range(3))))
    return s.head(F.relu(s.f(x[:, :3][:, orders].flatten(2))).mean(1))


ids = lambda *shape: lambda b: classes(9, b, *shape)
UNCOMMON = {
    "peepholes": (lambda: Net(peepholes, ih=lin(5, 24), hh=lin(6, 24, bias=False), peep=weight(3, 6), head=lin(6, 3)), steps, [((8, 3), 2)]),
    "clockwork": (lambda: Net(clockwork, ih=lin(5, 9), hh=weight(9, 9), mask=torch.ones(3, 3).triu().repeat_interleave(3, 0).repeat_interleave(3, 1), head=lin(9, 3)), steps, [((8, 3), 2)]),
    "dilated": (lambda: Net(dilated, cells=L([nn.GRU(5, 4), nn.GRU(4, 4), nn.RNN(4, 4)]), head=lin(4, 3)), steps, [((3,), 1)]),
    "simple_units": (lambda: Net(simple_units, forth=lin(5, 16), back=lin(5, 16), v=weight(2, 4), head=lin(8, 3)), steps, [((8, 3), 2)]),
    "attentive_gru": (lambda: Net(attentive_gru, items=nn.Embedding(11, 5), w=weight(5, 5), gates=lin(10, 10), new=lin(10, 5), head=lin(15, 2)), lambda b: {"x": classes(11, b, 6), "item": classes(11, b)}, [((2,), 1)]),
    "soft_stack": (lambda: Net(soft_stack, cell=nn.GRUCell(9, 6), action=lin(6, 3), value=lin(6, 4), head=lin(10, 3)), steps, [((3,), 1)]),
    "tree_sums": (lambda: Net(tree_sums, iou=lin(4, 12), f=lin(4, 4), uiou=lin(4, 12, bias=False), uf=lin(4, 4, bias=False), head=lin(4, 3)), nodes, [((3,), 1)]),
    "without_attention": (lambda: Net(without_attention, table=nn.Embedding(11, 8), qkv=lin(8, 24), bias=weight(6, 6), head=lin(8, 11)), tokens, [((6, 11), 2)]),
    "gated_unit": (lambda: Net(gated_unit, table=nn.Embedding(11, 8), norm=nn.LayerNorm(8), in_=lin(8, 28), scale=one(2, 4), shift=weight(2, 4), places=weight(6, 6), out=lin(12, 8), head=lin(8, 11)), tokens, [((6, 11), 2)]),
    "given_scores": (lambda: Net(given_scores, table=nn.Embedding(11, 8), scores=mlp(8, 8, 6), fixed=weight(6, 6), v=lin(8, 8), head=lin(8, 11)), tokens, [((6, 11), 2)]),
    "cosine_distances": (lambda: Net(cosine_distances, table=nn.Embedding(11, 8), q=lin(8, 6), k=lin(8, 6), v=lin(8, 8), head=lin(8, 11)), tokens, [((6, 11), 2)]),
    "toeplitz": (lambda: Net(toeplitz, table=nn.Embedding(11, 8), uv=lin(8, 16), positions=mlp(1, 6, 8), out=lin(8, 8), head=lin(8, 11)), tokens, [((6, 11), 2)]),
    "halting": (lambda: Net(halting, table=nn.Embedding(11, 8), halt=lin(8, 1), times=weight(3, 8), norm=nn.LayerNorm(8), body=mlp(8, 12, 8), head=lin(8, 11)), tokens, [((6, 11), 2), None]),
    "scaled_by_vectors": (lambda: Net(scaled_by_vectors, table=nn.Embedding(11, 8), **{m: lin(8, 8) for m in "qkvo"}, lk=one(8), lv=one(8), up=lin(8, 12), lff=one(12), down=lin(12, 8), head=lin(8, 11)), tokens, [((6, 11), 2)]),
    "inverted": (lambda: Net(inverted, embed=lin(8, 12), layer=nn.TransformerEncoderLayer(12, 2, 16, dropout=0.0, activation="gelu", batch_first=True, norm_first=True), project=lin(12, 4)), steps, [((4, 5), 0)]),
    "attention_flow": (lambda: Net(attention_flow, table=nn.Embedding(11, 6), rnn=nn.LSTM(6, 3, bidirectional=True, batch_first=True), wc=lin(6, 1), wq=lin(6, 1, bias=False), wm=weight(6), start=lin(24, 1), more=nn.GRU(24, 4, batch_first=True), end=lin(4, 1)), lambda b: {"x": torch.cat([1 + classes(10, b, 1), classes(11, b, 5)], 1), "other": torch.cat([1 + classes(10, b, 1), classes(11, b, 4)], 1)}, [((6,), 1), ((6,), 1)]),
    "inferred": (lambda: Net(inferred, table=nn.Embedding(11, 6), encode=nn.LSTM(6, 3, bidirectional=True, batch_first=True), project=lin(24, 5), compose=nn.LSTM(5, 3, bidirectional=True, batch_first=True), head=mlp(24, 6, 3)), two_texts, [((3,), 1)]),
    "spans": (lambda: Net(spans, table=nn.Embedding(11, 6), rnn=nn.GRU(6, 4, batch_first=True, bidirectional=True), attend=lin(8, 1), widths=nn.Embedding(3, 2), score=mlp(24, 8, 1), link=lin(24, 24)), tokens, [((4, 4), 0)]),
    "memory_hops": (lambda: Net(memory_hops, tables=L(nn.Embedding(11, 6) for _ in range(4)), time=weight(4, 3, 6)), lambda b: {"x": classes(11, b, 3, 4), "query": classes(11, b, 4)}, [((11,), 1)]),
    "scalar_mix": (lambda: Net(scalar_mix, table=nn.Embedding(11, 6), layers=L(nn.LSTM(6, 3, bidirectional=True, batch_first=True) for _ in range(2)), shares=weight(3), gamma=one(1), head=lin(6, 4)), tokens, [((6, 4), 2)]),
    "rated_pairs": (lambda: Net(rated_pairs, words=nn.Embedding(11, 5), contexts=nn.Embedding(11, 5), bi=nn.Embedding(11, 1), bj=nn.Embedding(11, 1)), lambda b: {"x": classes(11, b, 3)}, [None]),
    "frequent_words": (lambda: Net(frequent_words, table=nn.Embedding(11, 6), rnn=nn.GRU(6, 6, batch_first=True), head=lin(6, 6, bias=False), tails=L([nn.Sequential(lin(6, 3, bias=False), lin(3, 4, bias=False)), nn.Sequential(lin(6, 2, bias=False), lin(2, 3, bias=False))])), tokens, [((6, 11), 2)]),
    "fields_bilinear": (lambda: Net(fields_bilinear, tables=L(nn.Embedding(9, 3) for _ in range(4)), down=lin(4, 2, bias=False), up=lin(2, 4, bias=False), w=weight(6, 3, 3), deep=mlp(36, 8, 2)), lambda b: {"x": classes(9, b, 4)}, [((2,), 1)]),
    "implicit_items": (lambda: Net(implicit_items, users=nn.Embedding(9, 4), items=nn.Embedding(9, 4), implicit=nn.Embedding(9, 4), bu=nn.Embedding(9, 1), bi=nn.Embedding(9, 1), mean=weight(1)), lambda b: {"user": classes(9, b), "item": classes(9, b), "seen": classes(9, b, 5)}, [((), 0)]),
    "pairwise_ranks": (lambda: Net(pairwise_ranks, users=nn.Embedding(9, 4), items=nn.Embedding(9, 4)), lambda b: {"user": classes(9, b), "good": classes(9, b), "bad": classes(9, b)}, [None]),
    "layered_experts": (lambda: Net(layered_experts, levels=L(nn.ModuleDict({"own": L(L(mlp(n, 5) for _ in range(2)) for _ in range(2)), "shared": L(mlp(n, 5) for _ in range(2)), "gates": L(lin(n, 4) for _ in range(2)), "all": lin(n, 6)}) for n in (6, 5)), heads=L([lin(5, 2), lin(5, 3)])), vector, [((2,), 0), ((3,), 1)]),
    "cross_stitched": (lambda: Net(cross_stitched, first=L([lin(6, 5), lin(5, 4)]), second=L([lin(6, 5), lin(5, 4)]), mix=weight(2, 2, 2), heads=L([lin(4, 2), lin(4, 3)])), vector, [((2,), 0), ((3,), 1)]),
    "fuzzy_rules": (lambda: Net(fuzzy_rules, a=one(3, 2), b=one(3, 2), c=weight(3, 2), p=weight(8, 4, 2)), vector, [((2,), 0)]),
    "radial": (lambda: Net(radial, centres=weight(5, 6), log_scale=weight(5), head=lin(5, 3)), vector, [((3,), 1)]),
    "calibrated": (lambda: Net(calibrated, low=weight(3, 1), gaps=weight(3, 5), lattice=weight(8, 2)), vector, [((2,), 0)]),
    "sparse_experts": (lambda: Net(sparse_experts, gate=lin(6, 4), experts=L(lin(6, 3) for _ in range(4))), vector, [((3,), 1)]),
    "sorted_softly": (lambda: Net(sorted_softly, net=mlp(5, 8, 1)), steps, [None]),
    "object_pairs": (lambda: Net(object_pairs, g=mlp(13, 8, 6), f=mlp(6, 6, 3)), lambda b: {"x": pixels(b, 4, 5), "question": pixels(b, 3)}, [((3,), 1)]),
    "aligned_points": (lambda: Net(aligned_points, first=nn.Conv1d(3, 6, 1), align=mlp(6, 8, 36), second=nn.Conv1d(6, 8, 1), head=lin(8, 3)), lambda b: {"x": pixels(b, 7, 3)}, [((3,), 1), None]),
    "reduced_edges": (lambda: Net(reduced_edges, message=lin(8, 5), own=lin(4, 5), head=lin(20, 3)), nodes, [((6, 3), 2)]),
    "spread_labels": (lambda: Net(spread_labels, net=mlp(4, 8, 3)), nodes, [((6, 3), 2)]),
    "planar": (lambda: Net(planar, u=weight(3, 6), w=weight(3, 6), b=weight(3)), vector, [None]),
    "free_energy": (lambda: Net(free_energy, w=weight(5, 6), bv=weight(6), bh=weight(5)), lambda b: {"x": (pixels(b, 6) > 0).float(), "noise": (pixels(b, 6) > 0).float()}, [None]),
    "noisy_layers": (lambda: Net(noisy_layers, first=lin(6, 8), mu=weight(3, 8), sigma=weight(3, 8), bias_mu=weight(3), bias_sigma=weight(3)), lambda b: {"x": pixels(b, 6), "a": pixels(b, 8), "b": pixels(b, 3)}, [((3,), 0)]),
    "physical": (lambda: Net(physical, first=lin(1, 8), second=lin(8, 8), head=lin(8, 1)), vector, [None]),
    "many_margins": (lambda: Net(many_margins, net=mlp(6, 8, 4)), lambda b: {"x": pixels(b, 6), "label": classes(4, b), "many": (pixels(b, 4) > 0).float()}, [None]),
    "many_distances": (lambda: Net(many_distances, net=mlp(6, 8, 4), same=nn.Bilinear(4, 4, 2)), lambda b: {"x": pixels(b, 6), "good": pixels(b, 6), "bad": pixels(b, 6)}, [None]),
    "given_rates": (lambda: Net(given_rates, net=mlp(6, 8, 3)), lambda b: {"x": pixels(b, 6), "y": pixels(b, 2)}, [None]),
    "class_centres": (lambda: Net(class_centres, net=mlp(6, 8, 4), centres=weight(3, 4), head=lin(4, 3)), lambda b: {"x": pixels(b, 6), "label": classes(3, b)}, [((3,), 1), None]),
    "first_hits": (lambda: Net(first_hits, net=mlp(6, 8, 5)), lambda b: {"x": pixels(b, 6), "time": classes(5, b), "event": pixels(b)}, [None]),
    "mixed_samples": (lambda: Net(mixed_samples, net=mlp(6, 8, 4)), lambda b: {"x": pixels(b, 6), "share": torch.rand(b), "other": torch.randperm(b), "label": classes(4, b)}, [None]),
    "binned": (lambda: Net(binned, net=mlp(6, 8), width=one(1), head=lin(5, 3)), vector, [((3,), 1)]),
    "janossy": (lambda: Net(janossy, f=lin(15, 6), head=lin(6, 3)), steps, [((3,), 1)]),
}


def cases():
    return styles(UNCOMMON, oldest=13)
