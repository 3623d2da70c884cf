"""Whole networks of several unusual parts for sequences, with lattices written out in the module; see assorted.py."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from case import classes, pixels
from sets.everyday import styles
from sets.families import Net, weight
from sets.further import L, conv1, lin, mlp, one, steps

words = lambda b: {"x": classes(11, b, 7)}
lengths = lambda b: {"x": classes(11, b, 7), "n": 2 + classes(6, b)}
dense = lambda b: {"x": pixels(b, 9, 4)}


# Attention


def turn(x, at):
    """Rotary positions in the form of pairs (GPT-J), by stacking and flattening."""
    angle = at[:, None] * 10.0 ** -(torch.arange(0, x.shape[-1], 2) / x.shape[-1])
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], -1).flatten(-2)


def grouped_decoder(s, x):
    """Four query heads share two key heads, RMS norms of both, rotary positions, a window with a sink, a cap, and a tied head."""
    h = s.table(x)
    b, t, d = h.shape
    near = torch.arange(t)[:, None] - torch.arange(t)[None]
    allowed = (near >= 0) & ((near < 3) | (torch.arange(t)[None] == 0))
    for norm, qkv, qn, kn, out, norm2, up, down in s.layers:
        q, k, v = qkv(norm(h)).split([16, 8, 8], -1)
        q, k, v = q.view(b, t, 4, 4), k.view(b, t, 2, 4), v.view(b, t, 2, 4)
        q, k = turn(qn(q).transpose(1, 2), torch.arange(t)), turn(kn(k).transpose(1, 2), torch.arange(t))
        q = q.reshape(b, 2, 2, t, 4)
        score = 5 * torch.tanh(torch.einsum("bgrtd,bgsd->bgrts", q, k) / 10)
        p = score.masked_fill(~allowed, torch.finfo(score.dtype).min).softmax(-1)
        h = h + out(torch.einsum("bgrts,bsgd->btgrd", p, v).reshape(b, t, 16))
        g, u = up(norm2(h)).chunk(2, -1)
        h = h + down(F.silu(g) * u)
    return F.linear(s.last(h), s.table.weight) * 0.5


def bucketed(s, x, other):
    """T5: relative buckets in logarithms, shared by the layers; a decoder that attends to an encoder with padding 0."""
    def bias(t, both, table):
        gap = torch.arange(t)[None] - torch.arange(t)[:, None]
        base = (gap > 0).long() * 3 if both else 0
        far = gap.abs() if both else (-gap).clamp(min=0)
        log = (2 + (far.float().clamp(min=1) / 2).log() / math.log(4) * 1).long().clamp(max=2)
        return table(base + torch.where(far < 2, far, log)).permute(2, 0, 1)[None]

    def attend(m, q, kv, add):
        b, t, d = q.shape
        a, k, v = (f(z).view(b, -1, 2, d // 2).transpose(1, 2) for f, z in zip((m["q"], m["k"], m["v"]), (q, kv, kv)))
        return m["o"]((torch.matmul(a, k.transpose(3, 2)) + add).softmax(-1).matmul(v).transpose(1, 2).contiguous().view(b, t, d))

    pad = (1.0 - (x != 0).float())[:, None, None, :] * -1e4
    h, y = s.table(x), s.table(other)
    low = torch.full((y.size(1), y.size(1)), -1e4).triu(1)
    shared = bias(h.size(1), True, s.buckets) + pad
    for n, m in zip(s.norms, s.encoder):
        h = h + attend(m, n(h), n(h), shared)
    for n, m, c in zip(s.norms2, s.decoder, s.cross):
        y = y + attend(m, n(y), n(y), bias(y.size(1), False, s.buckets2) + low)
        y = y + attend(c, n(y), h, pad)
    return s.head(y)


def whole_transformer(s, x, other, n):
    """nn.Transformer, time first, with both padding masks from lengths and its own causal mask."""
    src, tgt = s.table(x.t()) + s.places[:7, None], s.table(other.t()) + s.places[:5, None]
    pad = torch.arange(7)[None] >= n[:, None]
    causal = s.body.generate_square_subsequent_mask(5)
    out = s.body(src, tgt, tgt_mask=causal, src_key_padding_mask=pad, memory_key_padding_mask=pad)
    return s.head(out).transpose(0, 1)


def sparse_attention(s, x):
    """Sparsemax over scores with ALiBi slopes, and talking heads before and after."""
    b, t, d = x.shape
    q, k, v = s.qkv(x).view(b, t, 3, 2, 4).permute(2, 0, 3, 1, 4)
    slopes = torch.tensor([0.5, 0.25]).view(2, 1, 1)
    score = torch.einsum("bhts,hg->bgts", q @ k.transpose(-1, -2) / 2, s.before) - slopes * (torch.arange(t)[:, None] - torch.arange(t)).abs()
    top = score.sort(-1, descending=True)[0]
    sums = top.cumsum(-1)
    ks = torch.arange(1, t + 1)
    size = (1 + ks * top > sums).sum(-1, keepdim=True)
    tau = (sums.gather(-1, size - 1) - 1) / size
    p = torch.einsum("bhts,hg->bgts", (score - tau).clamp(min=0), s.after)
    return s.head((p @ v).transpose(1, 2).flatten(2))


def landmarks(s, x):
    """Nystroem attention: means of segments as landmarks, an iterated pseudoinverse, and a depthwise filter of values."""
    b, t, d = x.shape
    q, k, v = s.qkv(F.pad(x, (0, 0, 3, 0))).chunk(3, -1)
    ql, kl = q.unflatten(1, (4, 3)).mean(2), k.unflatten(1, (4, 3)).mean(2)
    a, m, c = (q @ kl.transpose(-2, -1)).softmax(-1), (ql @ kl.transpose(-2, -1)).softmax(-1), (ql @ k.transpose(-2, -1)).softmax(-1)
    z = m.transpose(-2, -1) / (m.abs().sum(-1).amax(-1, keepdim=True) * m.abs().sum(-2).amax(-1, keepdim=True))[..., None]
    eye = torch.eye(4)
    for _ in range(3):
        mz = m @ z
        z = 0.25 * z @ (13 * eye - mz @ (15 * eye - mz @ (7 * eye - mz)))
    out = a @ z @ (c @ v) + s.filter(v.transpose(1, 2)).transpose(1, 2)
    return s.head(out[:, -t:])


def queried(s, x, ask):
    """Perceiver IO: Fourier features, learned latents, weights shared by the rounds, and an output query per asked index."""
    b, t, _ = x.shape
    at = torch.linspace(-1, 1, t)[:, None] * torch.tensor([1.0, 2.0, 4.0]) * math.pi
    h = torch.cat([x, torch.cat([at.sin(), at.cos()], -1).expand(b, -1, -1)], -1)
    z = s.latents.unsqueeze(0).repeat(b, 1, 1)
    for _ in range(2):
        z = z + s.cross(s.n1(z), h, h)[0]
        z = z + s.own(z, z, z)[0]
        z = z + s.ff(z)
    return s.head(s.out(s.asked(ask), z, z)[0])


# Recurrence and scans


def packed_reader(s, x, n):
    """Two bidirectional layers over packed sequences, their last states, and additive attention over valid steps."""
    y, (h, c) = s.rnn(pack_padded_sequence(s.table(x), n, batch_first=True, enforce_sorted=False))
    y, _ = pad_packed_sequence(y, batch_first=True, total_length=7)
    a = s.v(torch.tanh(s.w(y) + s.u(torch.cat([h[-2], h[-1]], 1))[:, None])).squeeze(2)
    a = a.masked_fill(torch.arange(7) >= n[:, None], -1e30).softmax(1)
    return s.head(torch.cat([torch.einsum("bt,btd->bd", a, y), c.transpose(0, 1).flatten(1)], 1))


def selective(s, x):
    """Mamba: a causal depthwise filter, input-dependent steps, a scan over time written as a loop, a gate and a skip."""
    b, t, d = x.shape
    h, z = s.inner(s.norm(x)).chunk(2, -1)
    h = F.silu(s.filter(h.transpose(1, 2))[..., :t].transpose(1, 2))
    dt, bm, cm = s.steps(h).split([2, 3, 3], -1)
    dt = F.softplus(s.dt(dt))
    a = torch.exp(dt[..., None] * -torch.exp(s.log_a))
    u = dt[..., None] * bm[:, :, None] * h[..., None]
    state, ys = torch.zeros(b, h.shape[-1], 3), []
    for k in range(t):
        state = a[:, k] * state + u[:, k]
        ys.append((state * cm[:, k, None]).sum(-1))
    y = torch.stack(ys, 1) + s.d * h
    return s.head(x + s.out(y * F.silu(z)))


def exponential_gates(s, x):
    """xLSTM: a matrix memory in parallel form with stabilized gates, then scalar memories with block-diagonal recurrence."""
    b, t, d = x.shape
    q, k, v = s.qkv(x).chunk(3, -1)
    i, f = s.gates(x).unbind(-1)
    lf = F.logsigmoid(f).cumsum(1)
    log = lf[:, :, None] - lf[:, None] + i[:, None]
    log = log.masked_fill(~torch.ones(t, t, dtype=torch.bool).tril(), float("-inf"))
    m = log.max(-1, keepdim=True)[0]
    c = (q @ k.transpose(-2, -1) / math.sqrt(d)) * torch.exp(log - m)
    h = x + c @ v / torch.maximum(c.sum(-1, keepdim=True).abs(), torch.exp(-m))
    state = [torch.zeros(b, 2, 2) for _ in range(3)]
    mm, ys = torch.zeros(b, 2, 2), []
    for k in range(t):
        y = state[0]
        z, ii, ff, o = (s.wx(h[:, k]).view(b, 2, 8) + torch.einsum("bhi,hij->bhj", y, s.r)).chunk(4, -1)
        new = torch.maximum(F.logsigmoid(ff) + mm, ii)
        ig, fg = torch.exp(ii - new), torch.exp(F.logsigmoid(ff) + mm - new)
        cc, nn_ = fg * state[1] + ig * torch.tanh(z), fg * state[2] + ig
        state, mm = [torch.sigmoid(o) * cc / nn_.clamp(min=1e-6), cc, nn_], new
        ys.append(state[0].flatten(1))
    return s.head(torch.stack(ys, 1))


def doubled_scan(s, x):
    """LRU: complex states as pairs, summed over time in a logarithmic number of shifted steps."""
    mag, phase = torch.exp(-torch.exp(s.nu)), torch.exp(s.theta)
    u = s.inner(x) * torch.cat([(1 - mag**2).sqrt()] * 2)
    re, im = u.chunk(2, -1)
    gr, gi = mag * phase.cos(), mag * phase.sin()
    k = 1
    while k < x.shape[1]:
        pr, pi = F.pad(re, (0, 0, k, 0))[:, :-k], F.pad(im, (0, 0, k, 0))[:, :-k]
        re, im = re + gr * pr - gi * pi, im + gr * pi + gi * pr
        gr, gi = gr * gr - gi * gi, 2 * gr * gi
        k *= 2
    return s.head(F.gelu(s.out(torch.cat([re, -im], -1)) + s.d * x))


def retained(s, x):
    """RetNet in chunks of 3: decays within a chunk, a state between chunks, and a group norm per head."""
    b, t, d = x.shape
    q, k, v = s.qkv(x).view(b, t // 3, 3, 3, 2, 4).permute(3, 0, 4, 1, 2, 5)
    gamma = 1 - 2.0 ** (-2 - torch.arange(2.0))
    n = torch.arange(3)
    inner = torch.where(n[:, None] >= n, gamma.view(2, 1, 1) ** (n[:, None] - n).clamp(min=0), torch.tensor(0.0))
    state, out = torch.zeros(b, 2, 4, 4), []
    for c in range(t // 3):
        y = (q[:, :, c] @ k[:, :, c].transpose(-2, -1) * inner) @ v[:, :, c]
        y = y + q[:, :, c] @ state * (gamma[:, None] ** (n + 1))[None, :, :, None]
        state = state * (gamma**3).view(1, 2, 1, 1) + k[:, :, c].transpose(-2, -1) @ (v[:, :, c] * (gamma[:, None] ** (2 - n))[None, :, :, None])
        out.append(y)
    y = torch.cat(out, 2).transpose(1, 2).reshape(b * t, 8)
    return s.head(s.norm(y).view(b, t, 8) * F.silu(s.gate(x)))


def long_filter(s, x):
    """Hyena: filters from positions by a small network with a decaying window, applied by FFT; a short filter and gates before."""
    b, t, d = x.shape
    a, g, v = s.short(s.inner(x).transpose(1, 2))[..., :t].chunk(3, 1)
    at = torch.linspace(0, 1, t)[:, None]
    k = s.filters(torch.cat([at, (2 * math.pi * at).sin(), (2 * math.pi * at).cos()], -1)) * torch.exp(-at * s.decay.exp())
    y = torch.fft.irfft(torch.fft.rfft(v * g, n=2 * t) * torch.fft.rfft(k.t(), n=2 * t), n=2 * t)[..., :t] + s.skip[:, None] * v
    return s.head((y * a).transpose(1, 2))


def addressed(s, x):
    """A neural Turing machine: content addressing, interpolation, circular shifts, sharpening, erase and add."""
    b = x.shape[0]
    memory, w, h, r = s.start.expand(b, -1, -1), torch.softmax(s.w0, 0).expand(b, -1), x.new_zeros(b, 6), x.new_zeros(b, 3)
    out = []
    for t in range(x.size(1)):
        h = s.cell(torch.cat([x[:, t], r], 1), h)
        key, beta, g, shift, gamma, erase, add = s.control(h).split([3, 1, 1, 3, 1, 3, 3], 1)
        c = (F.softplus(beta) * F.cosine_similarity(memory, key[:, None], -1)).softmax(1)
        w = torch.sigmoid(g) * c + (1 - torch.sigmoid(g)) * w
        w = (torch.stack([w.roll(k - 1, 1) for k in range(3)], -1) * shift.softmax(1)[:, None]).sum(-1) ** (1 + F.softplus(gamma))
        w = w / w.sum(1, keepdim=True)
        memory = memory * (1 - w[..., None] * torch.sigmoid(erase)[:, None]) + w[..., None] * add[:, None]
        r = torch.einsum("bn,bnd->bd", w, memory)
        out.append(s.head(torch.cat([h, r], 1)))
    return torch.stack(out, 1)


def controlled(s, x):
    """A neural CDE over differences of the path, by the midpoint rule, and an RK4 block with time as an input afterwards."""
    h = s.start(x[:, 0])
    field = lambda h: torch.tanh(s.field(h)).view(-1, 5, 4)
    for k in range(x.shape[1] - 1):
        dx = (x[:, k + 1] - x[:, k]).unsqueeze(-1)
        mid = h + 0.5 * (field(h) @ dx).squeeze(-1)
        h = h + (field(mid) @ dx).squeeze(-1)
    f = lambda t, h: s.flow(torch.cat([h, torch.full_like(h[:, :1], t)], 1))
    for k in range(2):
        t = k / 2
        k1 = f(t, h)
        k2 = f(t + 0.25, h + k1 / 4)
        k3 = f(t + 0.25, h + k2 / 4)
        h = h + (k1 + 2 * k2 + 2 * k3 + f(t + 0.5, h + k3 / 2)) / 12
    return s.head(h)


# Lattices


def connectionist(s, x, labels, n):
    """CTC by its forward recursion over labels with blanks in between, of any number, in logarithms."""
    logp = s.head(s.rnn(x)[0]).log_softmax(-1)
    b, t, _ = logp.shape
    ext = torch.zeros(b, 7, dtype=torch.long).index_copy(1, torch.tensor([1, 3, 5]), labels)
    skip = torch.cat([torch.zeros(b, 2, dtype=torch.bool), (ext[:, 2:] != 0) & (ext[:, 2:] != ext[:, :-2])], 1)
    emit = logp.gather(2, ext[:, None].expand(b, t, 7))
    alpha = torch.full((b, 7), -1e30)
    alpha = torch.cat([emit[:, 0, :2], alpha[:, 2:]], 1)
    for k in range(1, t):
        a1, a2 = F.pad(alpha, (1, 0), value=-1e30)[:, :-1], F.pad(alpha, (2, 0), value=-1e30)[:, :-2]
        alpha = torch.logsumexp(torch.stack([alpha, a1, torch.where(skip, a2, torch.tensor(-1e30))], 0), 0) + emit[:, k]
    last = torch.stack([alpha.gather(1, (2 * n)[:, None]), alpha.gather(1, (2 * n - 1)[:, None])]).logsumexp(0)
    return -(last.squeeze(1) / n).mean()


def transduced(s, x, labels):
    """RNN-T: a joint network over time and labels, and its lattice by anti-diagonals of one row at a time."""
    f, g = s.encode(x)[0], s.predict(F.pad(s.table(labels), (0, 0, 1, 0)))[0]
    logp = s.joint(torch.tanh(f[:, :, None] + g[:, None])).log_softmax(-1)
    blank, emit = logp[..., 0], logp[:, :, :-1].gather(3, labels[:, None, :, None].expand(-1, x.size(1), -1, 1)).squeeze(3)
    row = F.pad(emit[:, 0].cumsum(1), (1, 0))
    for t in range(1, x.size(1)):
        up = row + blank[:, t - 1]
        cells = [up[:, 0]]
        for u in range(1, up.size(1)):
            cells.append(torch.logsumexp(torch.stack([up[:, u], cells[-1] + emit[:, t, u - 1]]), 0))
        row = torch.stack(cells, 1)
    return -(row[:, -1] + blank[:, -1, -1]).mean()


def random_field(s, x, n, tags):
    """A linear-chain CRF over a convolved text of given lengths: partition by a masked recursion, score by gathers."""
    e = s.head(F.relu(s.filter(s.table(x).transpose(1, 2))).transpose(1, 2))
    keep = (torch.arange(7)[None] < n[:, None]).float()
    alpha = s.start + e[:, 0]
    score = s.start[tags[:, 0]] + e[:, 0].gather(1, tags[:, :1]).squeeze(1)
    for t in range(1, 7):
        new = torch.logsumexp(alpha[:, :, None] + s.trans[None] + e[:, t, None], 1)
        alpha = torch.where(keep[:, t, None] > 0, new, alpha)
        score = score + keep[:, t] * (s.trans[tags[:, t - 1], tags[:, t]] + e[:, t].gather(1, tags[:, t, None]).squeeze(1))
    score = score + s.end[tags.gather(1, (n - 1)[:, None]).squeeze(1)]
    return (torch.logsumexp(alpha + s.end, 1) - score).mean()


def copied(s, x, other):
    """A pointer-generator: probabilities of words and of source positions, added at the source's words, with coverage."""
    h, c = s.encode(s.table(x))
    state, cover, out, over = c[0], torch.zeros(x.shape), [], 0.0
    for t in range(other.size(1)):
        state = s.decode(s.table(other[:, t]), state)
        a = s.v(torch.tanh(s.wh(h) + s.ws(state)[:, None] + s.wc(cover[..., None]))).squeeze(-1).softmax(-1)
        over = over + torch.min(a, cover).sum(1)
        cover = cover + a
        context = (a[:, None] @ h).squeeze(1)
        p = torch.sigmoid(s.switch(torch.cat([context, state], 1)))
        words = (p * s.head(torch.cat([context, state], 1)).softmax(-1)).scatter_add(1, x, (1 - p) * a)
        out.append((words + 1e-8).log())
    return torch.stack(out, 1), over


heads = lambda: nn.ModuleDict({k: lin(8, 8, bias=False) for k in "qkvo"})
attn = lambda d=8: nn.MultiheadAttention(d, 2, batch_first=True)
rms = lambda d: Net(lambda s, x: x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * s.weight, weight=one(d))
grouped_layer = lambda: L([rms(8), lin(8, 32, bias=False), rms(4), rms(4), lin(16, 8, bias=False), rms(8), lin(8, 24, bias=False), lin(12, 8, bias=False)])
SERIES = {
    "grouped_decoder": (lambda: Net(grouped_decoder, table=nn.Embedding(11, 8), layers=L(grouped_layer() for _ in range(2)), last=rms(8)), words, [((7, 11), 2)]),
    "bucketed": (lambda: Net(bucketed, table=nn.Embedding(11, 8), buckets=nn.Embedding(6, 2), buckets2=nn.Embedding(3, 2), norms=L(rms(8) for _ in range(2)), encoder=L(heads() for _ in range(2)), norms2=L([rms(8)]), decoder=L([heads()]), cross=L([heads()]), head=lin(8, 11, bias=False)), lambda b: words(b) | {"other": classes(11, b, 5)}, [((5, 11), 2)]),
    "whole_transformer": (lambda: Net(whole_transformer, table=nn.Embedding(11, 8), places=weight(7, 8), body=nn.Transformer(8, 2, 1, 1, 12, 0.0, "gelu", norm_first=True), head=lin(8, 11)), lambda b: {"x": classes(11, b, 7), "other": classes(11, b, 5), "n": 2 + classes(6, b)}, [((5, 11), 2)]),
    "sparse_attention": (lambda: Net(sparse_attention, qkv=lin(5, 24), before=one(2, 2), after=one(2, 2), head=lin(8, 3)), steps, [((8, 3), 2)]),
    "landmarks": (lambda: Net(landmarks, qkv=lin(4, 18), filter=nn.Conv1d(6, 6, 3, padding=1, groups=6, bias=False), head=lin(6, 3)), dense, [((9, 3), 2)]),
    "queried": (lambda: Net(queried, latents=weight(3, 8), n1=nn.LayerNorm(8), cross=nn.MultiheadAttention(8, 2, kdim=10, vdim=10, batch_first=True), own=attn(), ff=mlp(8, 12, 8), asked=nn.Embedding(6, 8), out=attn(), head=lin(8, 3)), lambda b: dense(b) | {"ask": classes(6, b, 4)}, [((4, 3), 2)]),
    "packed_reader": (lambda: Net(packed_reader, table=nn.Embedding(11, 5), rnn=nn.LSTM(5, 4, 2, bidirectional=True, batch_first=True), w=lin(8, 6), u=lin(8, 6), v=lin(6, 1), head=lin(24, 3)), lengths, [((3,), 1)]),
    "selective": (lambda: Net(selective, norm=rms(5), inner=lin(5, 12), filter=nn.Conv1d(6, 6, 3, padding=2, groups=6), steps=lin(6, 8), dt=lin(2, 6), log_a=weight(6, 3), d=one(6), out=lin(6, 5), head=lin(5, 3)), steps, [((8, 3), 2)]),
    "exponential_gates": (lambda: Net(exponential_gates, qkv=lin(5, 15), gates=lin(5, 2), wx=lin(5, 16), r=weight(2, 2, 8), head=lin(4, 3)), steps, [((8, 3), 2)]),
    "doubled_scan": (lambda: Net(doubled_scan, nu=weight(3), theta=weight(3), inner=lin(5, 6), out=lin(6, 5), d=one(5), head=lin(5, 3)), steps, [((8, 3), 2)]),
    "retained": (lambda: Net(retained, qkv=lin(4, 24), norm=nn.GroupNorm(2, 8), gate=lin(4, 8), head=lin(8, 3)), dense, [((9, 3), 2)]),
    "long_filter": (lambda: Net(long_filter, inner=lin(5, 12), short=nn.Conv1d(12, 12, 3, padding=2, groups=12), filters=mlp(3, 6, 4), decay=weight(4), skip=one(4), head=lin(4, 3)), steps, [((8, 3), 2)]),
    "addressed": (lambda: Net(addressed, start=weight(4, 3), w0=weight(4), cell=nn.GRUCell(8, 6), control=lin(6, 15), head=lin(9, 2)), lambda b: {"x": pixels(b, 4, 5)}, [((4, 2), 0)]),
    "controlled": (lambda: Net(controlled, start=lin(4, 5), field=mlp(5, 6, 20), flow=mlp(6, 6, 5), head=lin(5, 3)), lambda b: {"x": pixels(b, 5, 4)}, [((3,), 1)]),
    "connectionist": (lambda: Net(connectionist, rnn=nn.GRU(4, 6, batch_first=True), head=lin(6, 5)), lambda b: dense(b) | {"labels": 1 + classes(4, b, 3), "n": 1 + classes(3, b)}, [None]),
    "transduced": (lambda: Net(transduced, encode=nn.LSTM(4, 6, batch_first=True), table=nn.Embedding(5, 4), predict=nn.GRU(4, 6, batch_first=True), joint=lin(6, 5)), lambda b: {"x": pixels(b, 5, 4), "labels": 1 + classes(4, b, 3)}, [None]),
    "random_field": (lambda: Net(random_field, table=nn.Embedding(11, 5), filter=conv1(5, 6), head=lin(6, 4), start=weight(4), end=weight(4), trans=weight(4, 4)), lambda b: lengths(b) | {"tags": classes(4, b, 7)}, [None]),
    "copied": (lambda: Net(copied, table=nn.Embedding(11, 5), encode=nn.GRU(5, 6, batch_first=True), decode=nn.GRUCell(5, 6), wh=lin(6, 4), ws=lin(6, 4), wc=lin(1, 4), v=lin(4, 1), switch=lin(12, 1), head=lin(12, 11)), lambda b: words(b) | {"other": classes(11, b, 4)}, [((4, 11), 2), None]),
}


def cases():
    return styles(SERIES, oldest=13)
