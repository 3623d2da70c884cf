"""What is trained in 2026 and no other set has, part one: parts of recent language models, retrieval, tables that attend to other rows,
survival analysis, and PyTorch's higher-order functions (`torch.func`, `scan`, `cond`) inside a model. Images, physics and signals are in
practice_scenes.py. Each in two styles with a loss and a recipe selected by name (`everyday_STYLES`); `batches` exports them for one sample,
two and any number as well. Nothing is kept in `recorded/`."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch._higher_order_ops.associative_scan import associative_scan
from torch._higher_order_ops.scan import scan

from case import classes, pixels
from sets.everyday import styles
from sets.families import Net, weight
from sets.further import L, P, lin, mlp, one, steps, tokens, vector

rms = lambda x, scale: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * scale
heads = lambda x, n: x.view(x.size(0), x.size(1), n, -1).transpose(1, 2)
causal = lambda n: torch.ones(n, n, dtype=torch.bool).tril()


# Language models


def sinks(s, x):
    """gpt-oss: each head has an additional score (attention sink) without a value; every second layer has a sliding window."""
    h = s.table(x)
    n = x.size(1)
    for k, (qkv, out) in enumerate(zip(s.qkv, s.out)):
        q, key, v = (heads(t, 2) for t in qkv(rms(h, s.scale[k])).chunk(3, -1))
        seen = causal(n) & (torch.ones(n, n).triu(-2).bool() if k else torch.ones(n, n).bool())
        score = (q @ key.transpose(-1, -2) * 0.5).masked_fill(~seen, float("-inf"))
        score = torch.cat([score, s.sink[k].view(1, 2, 1, 1).expand(x.size(0), -1, n, -1)], -1)
        h = h + out((score.softmax(-1)[..., :-1] @ v).transpose(1, 2).flatten(2))
    return s.head(h)


def normalised_stream(s, x):
    """nGPT: normalized vectors everywhere, trained step lengths, logits with a trained scale."""
    unit = lambda t: F.normalize(t, dim=-1)
    h = unit(s.table(x))
    n = x.size(1)
    q, k, v = (heads(F.linear(h, unit(w)), 2) for w in (s.wq, s.wk, s.wv))
    q, k = unit(q) * s.qk, unit(k) * s.qk
    a = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=4**0.5)
    h = unit(h + s.alpha.abs() * (unit(F.linear(a.transpose(1, 2).reshape(x.size(0), n, 8), unit(s.wo))) - h))
    u, g = F.linear(h, unit(s.up)).chunk(2, -1)
    h = unit(h + s.beta.abs() * (unit(F.linear(u * F.silu(g * 8**0.5), unit(s.down))) - h))
    return F.linear(h, unit(s.table.weight)) * s.logits


def grouped_routing(s, x):
    """DeepSeek-V3: sigmoid scores, a bias that affects only the selection, the best groups and then the best experts in them; and a shared
    expert."""
    b, n, d = x.shape
    flat = x.reshape(-1, d)
    score = torch.sigmoid(s.gate(flat))
    choice = score + s.bias
    groups = choice.view(-1, 3, 2).topk(2, -1)[0].sum(-1)
    kept = torch.zeros_like(groups).scatter_(1, groups.topk(2, -1, sorted=False)[1], 1.0)
    masked = choice.masked_fill(~kept.bool().unsqueeze(-1).expand(-1, -1, 2).reshape(-1, 6), 0.0)
    index = masked.topk(2, -1, sorted=False)[1]
    w = score.gather(1, index)
    w = w / (w.sum(-1, keepdim=True) + 1e-20) * 1.5
    hidden = torch.einsum("td,edf->tef", flat, s.up)
    out = torch.einsum("tef,efd->ted", F.silu(hidden), s.down)
    chosen = out.gather(1, index.unsqueeze(-1).expand(-1, -1, d))
    return s.head((chosen * w.unsqueeze(-1)).sum(1).view(b, n, d) + s.shared(x))


def sparse_blocks(s, x):
    """Native sparse attention: compressed blocks select blocks, which are gathered per query."""
    b, n, _ = x.shape
    q, k, v = s.qkv(x).chunk(3, -1)
    kb, vb = (t.view(b, 4, 2, -1) for t in (k, v))
    coarse = (q @ kb.mean(2).transpose(1, 2)) / 2
    top = coarse.topk(2, -1)[1]
    take = lambda t: t.unsqueeze(1).expand(-1, n, -1, -1, -1).gather(2, top[..., None, None].expand(-1, -1, -1, 2, t.size(-1))).flatten(2, 3)
    fine = torch.einsum("bnd,bnmd->bnm", q, take(kb)).div(2).softmax(-1)
    a, c = torch.einsum("bnm,bnmd->bnd", fine, take(vb)), coarse.softmax(-1) @ vb.mean(2)
    g = torch.sigmoid(s.gate(x))
    return s.head(g[..., :1] * a + g[..., 1:] * c)


def log_space_scan(s, x):
    """minGRU: all steps at once, in log space (Heinsen)."""
    gate, hidden = s.gates(x).chunk(2, -1)
    keep, take = -F.softplus(gate), -F.softplus(-gate)
    log_h = torch.where(hidden >= 0, (F.relu(hidden) + 0.5).log(), -F.softplus(-hidden))
    a = F.pad(torch.cumsum(keep, 1), (0, 0, 1, 0))
    values = torch.cat([s.start.expand(x.size(0), 1, -1), take + log_h], 1)
    h = (a + torch.logcumsumexp(values - a, 1)).exp()[:, 1:]
    return s.head(h)


def looped_depth(s, x):
    """A block applied several times to its own result, with the input injected again."""
    e = s.table(x)
    h = s.start.expand(e.shape)
    for _ in range(3):
        z = s.join(torch.cat([h, e], -1))
        h = h + s.body(F.layer_norm(z, (8,))) + torch.cumsum(z, 1) / torch.arange(1, x.size(1) + 1, device=x.device).view(1, -1, 1)
    return s.head(h)


def spread_tokens(s, x, target):
    """Multi-token prediction heads with a shared trunk and the loss in the file: each head predicts one token further ahead, ignoring
    padding."""
    h = torch.tanh(s.table(x).cumsum(1))
    loss = 0.0
    for k, head in enumerate(s.heads):
        logits, y = head(h[:, : x.size(1) - k]), target[:, k:]
        loss = loss + F.cross_entropy(logits.flatten(0, 1), y.flatten(), ignore_index=0) * 0.5**k
    return loss


def copied_words(s, x, other):
    """A pointer-generator: copy probabilities are scattered into the vocabulary at the source words."""
    h, _ = s.encode(s.table(x))
    d, _ = s.decode(s.table(other))
    share = (s.score(d) @ h.transpose(1, 2)).softmax(-1)
    context = share @ h
    p = torch.sigmoid(s.switch(torch.cat([d, context], -1)))
    made = s.words(torch.cat([d, context], -1)).softmax(-1) * p
    return (made.scatter_add(2, x.unsqueeze(1).expand(-1, other.size(1), -1), (1 - p) * share) + 1e-9).log()


def biaffine(s, x):
    """Arcs and their labels between all pairs of words."""
    h, _ = s.lstm(s.table(x))
    dep, head = F.leaky_relu(s.dep(h), 0.1), F.leaky_relu(s.arc(h), 0.1)
    dep = torch.cat([dep, torch.ones_like(dep[..., :1])], -1)
    head = torch.cat([head, torch.ones_like(head[..., :1])], -1)
    return torch.einsum("bxi,oij,byj->boxy", dep, s.w, head)


def late_interaction(s, x, other):
    """ColBERT: all queries with all documents of the batch."""
    q, d = F.normalize(s.table(x), dim=-1), F.normalize(s.body(s.table(other)), dim=-1)
    score = torch.einsum("inh,jmh->ijnm", q, d).masked_fill((other == 0)[None, :, None], -1.0)
    score = score.max(-1)[0].sum(-1)
    return F.cross_entropy(score * 2, torch.arange(x.size(0), device=x.device))


def lexical(s, x):
    """SPLADE: the maximum per word over the text, and a penalty for all words that are used."""
    logits = s.head(torch.tanh(s.body(s.table(x))))
    out = torch.log1p(F.relu(logits)).mul((x != 0).unsqueeze(-1)).amax(1)
    return out, out.abs().mean(0).pow(2).sum().view(1).expand(x.size(0))


def own_adapters(s, x, which):
    """A low-rank update per sample (S-LoRA); shared fixed matrices with two trained vectors (VeRA)."""
    a, b = s.down[which], s.up[which]
    h = s.body(x) + torch.bmm(torch.bmm(x, a), b) * 0.5
    h = h + s.outer * F.linear(s.inner * F.linear(x, s.fixed_down), s.fixed_up)
    return s.head(torch.tanh(h))


def ternary(s, x):
    """BitNet: weights of -1, 0 and 1 scaled by their mean magnitude, activations by their maximum, both straight-through."""
    def layer(x, w):
        scale = 127.0 / x.abs().amax(-1, keepdim=True).clamp(min=1e-5)
        q = x + ((x * scale).round().clamp(-128, 127) / scale - x).detach()
        mean = w.abs().mean().clamp(min=1e-5)
        return F.linear(q, w + ((w / mean).round().clamp(-1, 1) * mean - w).detach())
    return s.head(torch.relu(layer(F.layer_norm(x, (6,)), s.w)) ** 2)


# Tables


def rows_attend(s, x):
    """SAINT: the rows of a table attend to each other as well."""
    h = x.unsqueeze(-1) * s.w + s.b
    h = h + s.columns(h, h, h, need_weights=False)[0]
    rows = h.flatten(1).unsqueeze(0)
    q, k, v = s.rows(rows).chunk(3, -1)
    h = rows + F.scaled_dot_product_attention(q, k, v)
    return s.head(h.squeeze(0))


def ensemble(s, x):
    """TabM: eight networks that share a matrix, each with its own vectors."""
    h = x.unsqueeze(1) * s.r0
    h = F.relu((h @ s.w0) * s.s0 + s.b0)
    h = F.relu((h * s.r1 @ s.w1) * s.s1 + s.b1)
    return torch.einsum("bkd,kdo->bko", h, s.heads).mean(1)


def neighbours(s, x, context, label):
    """ModernNCA: classes by distances to rows that all samples share."""
    q, k = s.body(x), s.body(context)
    d = (q.square().sum(1, keepdim=True) - 2 * q @ k.t() + k.square().sum(1)).clamp(min=1e-6).sqrt()
    return ((-d).softmax(-1) @ F.one_hot(label, 3).to(x.dtype) + 1e-6).log()


def piecewise(s, x):
    """Numbers as piecewise linear encodings (PLE), periodic features, and one exponential unit per feature (NAM)."""
    fill = ((x.unsqueeze(-1) - s.low) / s.width).clamp(0, 1)
    wave = 2 * math.pi * s.freq * x.unsqueeze(-1)
    e = torch.cat([fill, wave.cos(), wave.sin()], -1)
    h = F.relu(torch.einsum("bfk,fkd->bfd", e, s.w) + s.bias)
    unit = ((x.unsqueeze(-1) - s.c) * s.e.exp()).clamp(0, 1)
    return s.head(torch.cat([h.flatten(1), unit.flatten(1)], 1))


def sparse_shares(s, x):
    """entmax with alpha 1.5: sorted, with a threshold from the roots of variances."""
    z = (s.body(x) / 2)
    z = z - z.max(-1, keepdim=True)[0]
    top = z.sort(-1, descending=True)[0]
    rho = torch.arange(1, z.size(-1) + 1, dtype=z.dtype)
    mean, square = top.cumsum(-1) / rho, top.pow(2).cumsum(-1) / rho
    tau = mean - torch.sqrt(torch.clamp((1 - rho * (square - mean**2)) / rho, min=1e-9))
    count = (tau <= top).sum(-1, keepdim=True)
    p = (z - tau.gather(-1, count - 1)).clamp(min=0) ** 2
    return s.head(p * s.scale)


def field_aware(s, x):
    """FFM and FiBiNET: an embedding per other field, fields weighted by their contents, bilinear pairs."""
    index = x + s.offsets
    e = s.tables(index).view(-1, 4, 4, 3)
    i, j = torch.triu_indices(4, 4, 1)
    pairs = (e[:, i, j] * e[:, j, i]).sum(-1)
    own = e[:, range(4), range(4)]
    gate = s.excite(own.mean(-1))
    own = own * gate.unsqueeze(-1)
    forms = torch.einsum("bfd,fde->bfe", own[:, i], s.forms) * own[:, j]
    return s.head(torch.cat([pairs, forms.flatten(1)], 1)).squeeze(1)


def interests(s, x, item):
    """DIEN: states of a history, updated in proportion to their attention to the item."""
    e, t = s.table(x), s.table(item)
    h, _ = s.gru(e)
    share = (h @ (s.form @ t.unsqueeze(-1))).squeeze(-1).masked_fill(x == 0, -1e9).softmax(1)
    state = torch.zeros_like(h[:, 0])
    for k in range(x.size(1)):
        u, r = torch.sigmoid(s.gates(torch.cat([h[:, k], state], 1))).chunk(2, 1)
        new = torch.tanh(s.new(torch.cat([h[:, k], r * state], 1)))
        u = u * share[:, k : k + 1]
        state = (1 - u) * state + u * new
    return s.head(torch.cat([state, t], 1)).squeeze(1)


def pointwise_history(s, x, when):
    """HSTU: attention without softmax, time gaps in buckets, gated."""
    h = s.table(x)
    u, v, q, k = F.silu(s.uvqk(h)).chunk(4, -1)
    gap = (when.unsqueeze(2) - when.unsqueeze(1)).abs().clamp(min=1).float().log().div(0.7).long().clamp(0, 4)
    score = F.silu(q @ k.transpose(1, 2) + s.gap(gap).squeeze(-1)) / x.size(1)
    return s.head(s.norm(score * causal(x.size(1)) @ v) * u)


def hazards(s, x, time, event):
    """Survival by hazards of intervals; censored samples count as far as they were observed."""
    h = s.net(x)
    past = (s.intervals[None] < time[:, None]).float()
    now = F.one_hot(time, 5).float() * event.unsqueeze(1)
    log_likelihood = now * F.logsigmoid(h) + (past + (F.one_hot(time, 5) * (1 - event.unsqueeze(1)))) * F.logsigmoid(-h)
    return -log_likelihood.sum(1)


def later_events(s, x, time, event):
    """Weibull with censoring, and pairs in the right order (DeepHit)."""
    a, k = F.softplus(s.net(x)).add(0.1).unbind(1)
    z = (time / a).clamp(min=1e-4)
    like = event * (k.log() - a.log() + (k - 1) * z.log()) - z.pow(k)
    first = (time[:, None] < time[None]) & (event[:, None] > 0)
    rank = torch.where(first, torch.exp((a[:, None] - a[None]) / 0.5), 0.0)
    return -like.mean() + 0.1 * rank.sum() / first.sum().clamp(min=1)


def ensemble_score(s, x, y):
    """CRPS of an ensemble: distances to the truth minus half of those between members."""
    m = s.net(x).view(-1, 5, 2)
    return (m - y.unsqueeze(1)).abs().mean((1, 2)) - 0.5 * (m.unsqueeze(1) - m.unsqueeze(2)).abs().mean((1, 2, 3))


def mined(s, x, label):
    """Multi-similarity with mining, and proxies of the classes."""
    e = F.normalize(s.net(x), dim=1)
    sim = e @ e.t()
    same, eye = label[:, None] == label[None], torch.eye(x.size(0), dtype=torch.bool)
    pos, neg = same & ~eye, ~same
    hardest = sim.masked_fill(~pos, 2.0).amin(1, keepdim=True)
    nearest = sim.masked_fill(~neg, -2.0).amax(1, keepdim=True)
    pos, neg = pos & (sim - 0.1 < nearest), neg & (sim + 0.1 > hardest)
    p = torch.log1p((torch.exp(-2 * (sim - 0.5)) * pos).sum(1)) / 2
    n = torch.log1p((torch.exp(10 * (sim - 0.5)) * neg).sum(1)) / 10
    return (p + n).mean() + F.cross_entropy(4 * e @ F.normalize(s.proxies, dim=1).t(), label)


def centred(s, x, other):
    """DINO: a teacher's centered and sharpened probabilities, students on the other view; the teacher consists of buffers."""
    teacher = lambda t: ((F.linear(torch.tanh(F.linear(t, s.t0)), s.t1) - s.centre) / 0.5).softmax(-1)
    student = lambda t: s.net(t).log_softmax(-1)
    return -(teacher(x) * student(other)).sum(-1).mean() - (teacher(other) * student(x)).sum(-1).mean()


# Higher-order functions


def heat_equation(s, x):
    """A physics-informed network: derivatives of the inner network, per sample."""
    u = lambda p: s.net(p).squeeze(-1)
    first = torch.func.vmap(torch.func.grad(u))(x)
    second = torch.func.vmap(lambda p: torch.func.grad(lambda q: torch.func.grad(u)(q)[0])(p)[0])(x)
    return first[:, 1] - 0.3 * second + u(x)


def hamilton(s, x):
    """A Hamiltonian network: its gradient, rotated."""
    g = torch.func.grad(lambda p: s.net(p).sum())(x)
    q, p = g.chunk(2, -1)
    return torch.cat([p, -q], -1) + 0.1 * s.damp * x


def along(s, x, way):
    """The derivative of a network along a direction (divergence of a score by a probe)."""
    y, d = torch.func.jvp(s.net, (x,), (way,))
    return y, (d * way).sum(-1)


def penalised(s, x, other, share):
    """WGAN-GP: the norm of the critic's gradient between two samples."""
    mid = share.unsqueeze(1) * x + (1 - share.unsqueeze(1)) * other
    g = torch.func.grad(lambda p: s.net(p).sum())(mid)
    return s.net(other).mean() - s.net(x).mean() + 10 * ((g.square().sum(1) + 1e-12).sqrt() - 1).square().mean()


def each_its_net(s, x):
    """vmap over the stacked weights of an ensemble."""
    f = lambda w, b, v: torch.tanh(v @ w + b)
    h = torch.func.vmap(f, in_dims=(0, 0, None))(s.w, s.b, x)
    return s.head(h.mean(0))


def scanned(s, x):
    def step(h, v):
        h = torch.tanh(h @ s.w + v)
        return h, h * 2
    last, all_of_them = scan(step, torch.zeros_like(s.body(x)[:, 0]), s.body(x), dim=1)
    return s.head(last), all_of_them.sum(1) if all_of_them.size(0) == x.size(0) else all_of_them.sum(0)


def associated(s, x):
    """A diagonal recurrence by an associative scan."""
    a, v = torch.sigmoid(s.decay(x)), s.body(x)
    both = lambda l, r: (l[0] * r[0], l[1] * r[0] + r[1])
    _, h = associative_scan(both, (a, v), 1, combine_mode="generic")
    return s.head(h)


def decided(s, x):
    """torch.cond on the whole batch."""
    h = s.body(x)
    h = torch.cond(h.mean() > 0, lambda t: torch.tanh(s.a(t)), lambda t: s.b(t).relu(), (h,))
    return s.head(h)


def compiled(s, x):
    return s.head(s.inner(x))


PRACTICE = {
    "sinks": (lambda: Net(sinks, table=nn.Embedding(11, 8), scale=one(2, 8), qkv=L(lin(8, 24) for _ in range(2)), out=L(lin(8, 8) for _ in range(2)), sink=weight(2, 2), head=lin(8, 11)), tokens, [((6, 11), 2)]),
    "normalised_stream": (lambda: Net(normalised_stream, table=nn.Embedding(11, 8), wq=weight(8, 8), wk=weight(8, 8), wv=weight(8, 8), wo=weight(8, 8), qk=one(4), alpha=weight(8), beta=weight(8), up=weight(24, 8), down=weight(8, 12), logits=P(torch.rand(11) + 2)), tokens, [((6, 11), 2)]),
    "grouped_routing": (lambda: Net(grouped_routing, gate=lin(5, 6, bias=False), bias=torch.randn(6) * 0.1, up=weight(6, 5, 7), down=weight(6, 7, 5), shared=mlp(5, 6, 5), head=lin(5, 3)), steps, [((8, 3), 2)]),
    "sparse_blocks": (lambda: Net(sparse_blocks, qkv=lin(5, 12), gate=lin(5, 2), head=lin(4, 3)), steps, [((8, 3), 2)]),
    "log_space_scan": (lambda: Net(log_space_scan, gates=lin(5, 8), start=weight(4), head=lin(4, 3)), steps, [((8, 3), 2)]),
    "looped_depth": (lambda: Net(looped_depth, table=nn.Embedding(11, 8), start=weight(1, 1, 8), join=lin(16, 8), body=mlp(8, 12, 8), head=lin(8, 11)), tokens, [((6, 11), 2)]),
    "spread_tokens": (lambda: Net(spread_tokens, table=nn.Embedding(11, 8), heads=L(lin(8, 11) for _ in range(3))), lambda b: tokens(b) | {"target": classes(11, b, 6)}, [None]),
    "copied_words": (lambda: Net(copied_words, table=nn.Embedding(11, 5), encode=nn.GRU(5, 4, batch_first=True, bidirectional=True), decode=nn.GRU(5, 8, batch_first=True), score=lin(8, 8), switch=lin(16, 1), words=lin(16, 11)), lambda b: tokens(b) | {"other": classes(11, b, 4)}, [((4, 11), 0)]),
    "biaffine": (lambda: Net(biaffine, table=nn.Embedding(11, 5), lstm=nn.LSTM(5, 4, batch_first=True, bidirectional=True), dep=lin(8, 4), arc=lin(8, 4), w=weight(3, 5, 5)), tokens, [((3, 6, 6), 1)]),
    "late_interaction": (lambda: Net(late_interaction, table=nn.Embedding(11, 6), body=lin(6, 6)), lambda b: tokens(b) | {"other": classes(11, b, 5)}, [None]),
    "lexical": (lambda: Net(lexical, table=nn.Embedding(11, 6), body=lin(6, 8), head=lin(8, 11)), tokens, [((11,), 0), None]),
    "own_adapters": (lambda: Net(own_adapters, body=lin(5, 6), down=weight(3, 5, 2), up=weight(3, 2, 6), inner=weight(3), outer=weight(6), fixed_down=torch.randn(3, 5), fixed_up=torch.randn(6, 3), head=lin(6, 3)), lambda b: steps(b) | {"which": classes(3, b)}, [((8, 3), 2)]),
    "ternary": (lambda: Net(ternary, w=weight(8, 6), head=lin(8, 3)), vector, [((3,), 1)]),
    "rows_attend": (lambda: Net(rows_attend, w=weight(6, 4), b=weight(6, 4), columns=nn.MultiheadAttention(4, 2, batch_first=True), rows=lin(24, 72), head=lin(24, 3)), vector, [((3,), 1)]),
    "ensemble": (lambda: Net(ensemble, r0=one(4, 6), w0=weight(6, 8), s0=one(4, 8), b0=weight(4, 8), r1=one(4, 8), w1=weight(8, 8), s1=one(4, 8), b1=weight(4, 8), heads=weight(4, 8, 3)), vector, [((3,), 1)]),
    "neighbours": (lambda: Net(neighbours, body=mlp(6, 8, 4)), lambda b: vector(b) | {"context": pixels(7, 6), "label": classes(3, 7)}, [((3,), 0)]),
    "piecewise": (lambda: Net(piecewise, low=torch.sort(torch.randn(6, 4))[0], width=torch.rand(6, 4) + 0.3, freq=weight(6, 3), w=weight(6, 10, 3), bias=weight(6, 3), c=weight(6, 2), e=weight(6, 2), head=lin(30, 3)), vector, [((3,), 1)]),
    "sparse_shares": (lambda: Net(sparse_shares, body=lin(6, 8), scale=one(8), head=lin(8, 3)), vector, [((3,), 1)]),
    "field_aware": (lambda: Net(field_aware, tables=nn.Embedding(36, 12), offsets=torch.arange(4) * 9, excite=mlp(4, 2, 4), forms=weight(6, 3, 3), head=lin(24, 1)), lambda b: {"x": classes(9, b, 4)}, [((), 0)]),
    "interests": (lambda: Net(interests, table=nn.Embedding(11, 4), gru=nn.GRU(4, 4, batch_first=True), form=weight(4, 4), gates=lin(8, 8), new=lin(8, 4), head=lin(8, 1)), lambda b: tokens(b) | {"item": classes(11, b)}, [((), 0)]),
    "pointwise_history": (lambda: Net(pointwise_history, table=nn.Embedding(11, 6), uvqk=lin(6, 24), gap=nn.Embedding(5, 1), norm=nn.LayerNorm(6), head=lin(6, 11)), lambda b: tokens(b) | {"when": classes(40, b, 6)}, [((6, 11), 2)]),
    "hazards": (lambda: Net(hazards, net=mlp(6, 8, 5), intervals=torch.arange(5)), lambda b: vector(b) | {"time": classes(5, b), "event": (torch.rand(b) < 0.6).float()}, [None]),
    "later_events": (lambda: Net(later_events, net=mlp(6, 8, 2)), lambda b: vector(b) | {"time": torch.rand(b) * 4 + 0.1, "event": (torch.rand(b) < 0.6).float()}, [None]),
    "ensemble_score": (lambda: Net(ensemble_score, net=mlp(6, 8, 10)), lambda b: vector(b) | {"y0": pixels(b, 2)}, [None]),
    "mined": (lambda: Net(mined, net=mlp(6, 8, 4), proxies=weight(3, 4)), lambda b: vector(b) | {"label": classes(3, b)}, [None]),
    "centred": (lambda: Net(centred, net=mlp(6, 8, 5), t0=torch.randn(8, 6), t1=torch.randn(5, 8), centre=torch.randn(5) * 0.1), lambda b: vector(b) | {"other": pixels(b, 6)}, [None]),
    "heat_equation": (lambda: Net(heat_equation, net=nn.Sequential(lin(2, 8), nn.Tanh(), lin(8, 8), nn.Tanh(), lin(8, 1))), lambda b: {"x": pixels(b, 2)}, [((), 0)]),
    "hamilton": (lambda: Net(hamilton, net=nn.Sequential(lin(6, 8), nn.Tanh(), lin(8, 1)), damp=weight(6)), vector, [((6,), 0)]),
    "along": (lambda: Net(along, net=nn.Sequential(lin(6, 8), nn.SiLU(), lin(8, 6))), lambda b: vector(b) | {"way": pixels(b, 6)}, [((6,), 0), ((), 0)]),
    "penalised": (lambda: Net(penalised, net=nn.Sequential(lin(6, 8), nn.Softplus(), lin(8, 1))), lambda b: vector(b) | {"other": pixels(b, 6), "share": torch.rand(b)}, [None]),
    "each_its_net": (lambda: Net(each_its_net, w=weight(3, 6, 5), b=weight(3, 5), head=lin(5, 3)), vector, [((3,), 1)]),
    "scanned": (lambda: Net(scanned, w=weight(4, 4), body=lin(5, 4), head=lin(4, 3)), steps, [((3,), 1), ((4,), 0)]),
    "associated": (lambda: Net(associated, decay=lin(5, 4), body=lin(5, 4), head=lin(4, 3)), steps, [((8, 3), 2)]),
    "decided": (lambda: Net(decided, body=lin(6, 8), a=lin(8, 8), b=lin(8, 8), head=lin(8, 3)), vector, [((3,), 1)]),
    "compiled": (lambda: Net(compiled, inner=torch.compile(mlp(6, 8, 5), backend="eager"), head=lin(5, 3)), vector, [((3,), 1)]),
}


def cases():
    return styles(PRACTICE)
