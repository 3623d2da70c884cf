"""Further architectures for sequences: scans, forms of attention, fine-tuning, forecasting and speech; see further.py."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils import parametrizations

from case import classes, pixels
from drawing import two_styles
from sets import random_nets
from sets.families import Net, weight
from sets.further import L, block, conv, conv1, drawn, lin, mlp, one, series, steps, tokens, vector, wave


# Sequences and scans


def segsum(a):
    """Mamba-2: sums of a over each span below the diagonal."""
    t = a.shape[-1]
    sums = a.unsqueeze(-1).expand(*a.shape, t).masked_fill(~torch.ones(t, t, dtype=torch.bool).tril(-1), 0).cumsum(-2)
    return sums.masked_fill(~torch.ones(t, t, dtype=torch.bool).tril(), -torch.inf)


def dual(s, x):
    """Mamba-2's state space duality: chunks of 4, two heads, products within chunks and states between them."""
    b, t, _ = x.shape
    z, v, bc, dt = s.inner(x).split([8, 8, 6, 2], -1)
    dt = F.softplus(dt + s.bias)
    v = (v.view(b, t, 2, 4) * dt[..., None]).view(b, 2, 4, 2, 4)  # batch, chunks, length, heads, width
    keys, queries = (m.view(b, 2, 4, 1, 3).expand(-1, -1, -1, 2, -1) for m in bc.chunk(2, -1))
    a = (-s.a.exp() * dt).view(b, 2, 4, 2).permute(0, 3, 1, 2)
    sums = a.cumsum(-1)
    within = torch.einsum("bclhn,bcshn,bhcls,bcshp->bclhp", queries, keys, segsum(a).exp(), v)
    states = torch.einsum("bclhn,bhcl,bclhp->bchpn", keys, (sums[..., -1:] - sums).exp(), v)
    states = torch.cat([torch.zeros_like(states[:, :1]), states], 1)
    decay = segsum(F.pad(sums[..., -1], (1, 0))).exp()
    states = torch.einsum("bhzc,bchpn->bzhpn", decay, states)[:, :-1]
    between = torch.einsum("bclhn,bchpn,bhcl->bclhp", queries, states, sums.exp())
    y = (within + between).reshape(b, t, 8) + v.reshape(b, t, 8) * s.d
    return s.head((s.norm(y * F.silu(z))).mean(1))


def matrix_memory(s, x):
    """mLSTM, all steps at once, with its stabilizer."""
    q, k, v = s.q(x), s.k(x) / 2, s.v(x)
    i, f = s.gates(x).chunk(2, -1)
    f = F.logsigmoid(f).cumsum(1)
    d = (f - f.transpose(1, 2) + i.transpose(1, 2)).masked_fill(~torch.ones(8, 8).tril().bool(), -torch.inf)
    m = d.max(-1, keepdim=True)[0]
    c = q @ k.transpose(1, 2) * (d - m).exp()
    return s.head((c @ v / torch.maximum(c.sum(-1, keepdim=True).abs(), (-m).exp())).mean(1))


def hyena(s, x):
    """Long filters computed from positions, gates before and after; the convolution is a product with a gathered Toeplitz matrix."""
    t = x.shape[1]
    u, g, v = s.short(s.inner(x).transpose(1, 2))[..., :t].chunk(3, 1)
    h = (s.filters(s.places) * (-s.decay.exp() * torch.arange(t)[:, None])).t()
    gap = torch.arange(t)[:, None] - torch.arange(t)
    toeplitz = h[:, gap.clamp(min=0)] * (gap >= 0)
    y = torch.einsum("dts,bds->bdt", toeplitz, u * v) + s.skip[:, None] * v
    return s.head((y * g).transpose(1, 2))


def gated_linear(s, x):
    """Gated linear attention, one state update per step."""
    q, k, v = s.q(x), s.k(x), s.v(x)
    gate = torch.sigmoid(s.gate(x)) ** (1 / 4)
    state, out = x.new_zeros(x.shape[0], 4, 4), []
    for i in range(x.shape[1]):
        state = state * gate[:, i, :, None] + k[:, i, :, None] * v[:, i, None]
        out.append(torch.einsum("bk,bkv->bv", q[:, i], state))
    return s.head(F.group_norm(torch.stack(out, 1).flatten(0, 1), 2).view(x.shape[0], -1, 4).sum(1))


def shifted_positions(s, x):
    """Transformer-XL: relative distances by padding and cropping."""
    q, k, v = (m(x).view(-1, 8, 2, 4).transpose(1, 2) for m in (s.q, s.k, s.v))
    r = s.r(s.table).view(8, 2, 4).permute(1, 0, 2)
    bd = (q + s.vb[:, None]) @ r.transpose(-1, -2)
    bd = F.pad(bd, (1, 0)).view(-1, 2, 9, 8)[:, :, 1:]
    a = ((q + s.ub[:, None]) @ k.transpose(-1, -2) + bd) / 2
    a = a.masked_fill(torch.ones(8, 8, dtype=torch.bool).triu(1), -1e30).softmax(-1)
    return s.head((a @ v).transpose(1, 2).flatten(2))


def buckets(s, x):
    """T5's distances in logarithmic buckets."""
    gap = torch.arange(8)[None] - torch.arange(8)[:, None]
    n = gap.abs()
    large = 2 + (torch.log(n.float().clamp(min=1) / 2) / math.log(4) * 2).long()
    bias = s.bias((gap > 0).long() * 4 + torch.where(n < 2, n, large.clamp(max=3))).permute(2, 0, 1)
    q, k, v = (m(x).unflatten(-1, (2, 4)).transpose(1, 2) for m in (s.q, s.k, s.v))
    return s.head((((q @ k.transpose(-1, -2) + bias).softmax(-1)) @ v).transpose(1, 2).flatten(2)[:, 0])


def windows(s, x):
    """Longformer: neighbors by unfolding, and one position that attends to all."""
    q, k, v = s.q(x), s.k(x), s.v(x)
    near = lambda y: F.pad(y, (0, 0, 1, 1)).unfold(1, 3, 1)  # batch, steps, width, 3
    local = torch.einsum("btd,btdw->btw", q, near(k))
    seen = F.pad(torch.ones(1, 8), (1, 1)).unfold(1, 3, 1)
    local = local.masked_fill(seen == 0, torch.finfo(local.dtype).min)
    a = torch.cat([local, q @ k[:, :1].transpose(1, 2)], -1).softmax(-1)
    return s.head((torch.einsum("btw,btdw->btd", a[..., :3], near(v)) + a[..., 3:] * v[:, :1]).mean(1))


def nystrom(s, x):
    q, k, v = s.q(x) / 2, s.k(x) / 2, s.v(x)
    ql, kl = (y.reshape(-1, 4, 2, 4).mean(2) for y in (q, k))
    a, m, c = (q @ kl.transpose(1, 2)).softmax(-1), (ql @ kl.transpose(1, 2)).softmax(-1), (ql @ k.transpose(1, 2)).softmax(-1)
    z = m.transpose(1, 2) / (m.abs().sum(-2).amax() * m.abs().sum(-1).amax())
    i = torch.eye(4)
    for _ in range(3):
        mz = m @ z
        z = 0.25 * z @ (13 * i - mz @ (15 * i - mz @ (7 * i - mz)))
    return s.head((a @ z @ (c @ v)).mean(1))


def liquid(s, x):
    """Liquid time constants, three small steps per input."""
    h = x.new_zeros(x.shape[0], 6)
    for t in range(4):
        for _ in range(2):
            f = torch.sigmoid(s.inner(torch.cat([x[:, t], h], -1)))
            h = (h + 0.3 * f * s.a) / (1 + 0.3 * (F.softplus(s.tau) + f))
    return s.head(h)


def prefixed(s, x):
    """Trained prompts before the keys and values of a frozen layer."""
    b = x.shape[0]
    h = s.table(x)
    k, v = (torch.cat([p.expand(b, -1, -1), m(h)], 1) for p, m in ((s.pk, s.k), (s.pv, s.v)))
    mask = torch.cat([torch.ones(6, 2), torch.ones(6, 6).tril()], 1).bool()
    return s.head(F.scaled_dot_product_attention(s.q(h), k, v, attn_mask=mask) + h)


def adapted(s, x):
    """DoRA: a frozen weight plus a low-rank update, with separately trained column norms."""
    w = s.frozen.weight + s.b @ s.a * 0.5
    return s.head(F.relu(F.linear(x, s.m[:, None] * w / w.norm(dim=1, keepdim=True).detach(), s.frozen.bias)))


def scaled_keys(s, x):
    """(IA)3 over a frozen block with a normalization."""
    h = s.norm(x)
    a = (s.q(h) @ (s.k(h) * s.lk).transpose(1, 2) / 2).softmax(-1) @ (s.v(h) * s.lv)
    return s.head((x[..., :4] + a * s.lf).mean(1))


def whisper(s, x):
    y = F.gelu(s.c2(F.gelu(s.c1(x.transpose(1, 2))))).transpose(1, 2) + s.places
    m = s.encoder(y)
    t = s.table.weight[torch.tensor([1, 4, 2])].expand(x.shape[0], -1, -1) + s.learned
    return s.decoder(t, m, tgt_mask=torch.full((3, 3), -torch.inf).triu(1), tgt_is_causal=True) @ s.table.weight.t()


# Forecasting


def reversible(s, x):
    """RevIN, patches and a flat head: PatchTST."""
    mean, std = x.mean(1, keepdim=True).detach(), (x.var(1, keepdim=True, unbiased=False) + 1e-5).sqrt().detach()
    y = (x - mean) / std * s.scale + s.shift
    p = F.pad(y, (0, 2), "replicate").unfold(-1, 4, 2)
    y = s.head(s.body(s.embed(p) + s.places).flatten(1))
    return (y - s.shift) / (s.scale + 1e-10) * std + mean


def hierarchical(s, x):
    """N-HiTS: pooled at several rates, with an interpolated forecast."""
    rest, total = x, 0
    for k, (back, fore) in zip((4, 2, 1), s.blocks):
        pooled = F.max_pool1d(rest[:, None], k, k).squeeze(1)
        theta = fore(pooled)
        total = total + F.interpolate(theta[:, None], size=6, mode="linear").squeeze(1)
        if k > 1:
            rest = rest - F.interpolate(back(pooled)[:, None], size=12, mode="nearest").squeeze(1)
    return total


def periods(s, x):
    """TimesNet with given periods: a row folded into an image, mixed by their amplitudes."""
    y = s.embed(x[..., None]).transpose(1, 2)
    parts = [F.pad(y, (0, -12 % p)).unflatten(-1, (-1, p)) for p in (3, 4, 5)]
    parts = [s.mix(p).flatten(2)[..., :12] for p in parts]
    amplitude = (y @ s.waves).square().sum(1).sqrt().softmax(-1)
    return s.head((torch.stack(parts, -1) * amplitude[:, None, None]).sum(-1) + y).flatten(1)


def decomposed(s, x):
    """DLinear: a moving average with repeated ends."""
    padded = torch.cat([x[:, :1].repeat(1, 2), x, x[:, -1:].repeat(1, 2)], 1)
    trend = F.avg_pool1d(padded[:, None], 5, 1).squeeze(1)
    return s.trend(trend) + s.season(x - trend)


def selection(s, x):
    """TFT: gated residual networks select variables."""
    def grn(m, y):
        h = m[1](F.elu(m[0](y)))
        a, g = m[2](h).chunk(2, -1)
        return m[3](y + a * torch.sigmoid(g))

    e = x[..., None] * s.w + s.b
    chosen = grn(s.choose, e.flatten(2)).softmax(-1)
    h = (torch.stack([grn(m, e[:, :, i]) for i, m in enumerate(s.each)], -1) * chosen[:, :, None]).sum(-1)
    return s.head(s.rnn(h)[0][:, -1])


def mixer(s, x):
    """TSMixer with its batch normalization over steps and features."""
    y = x + F.relu(s.time(s.n1(x.flatten(1)).view_as(x).transpose(1, 2))).transpose(1, 2)
    return s.head((y + s.down(F.relu(s.up(s.n2(y.flatten(1)).view_as(y))))).transpose(1, 2)).squeeze(-1)


def autoregressed(s, x):
    """DeepAR: the parameters of a Student's t per step."""
    h, _ = s.rnn(F.pad(x[:, :-1], (1, 0))[..., None])
    loc, scale, df = s.head(h).unbind(-1)
    scale, df = F.softplus(scale) + 0.05, 2 + F.softplus(df)
    z = (x - loc) / scale
    return -(torch.lgamma((df + 1) / 2) - torch.lgamma(df / 2) - 0.5 * torch.log(df * math.pi) - torch.log(scale) - (df + 1) / 2 * torch.log1p(z * z / df)).mean() if s.exact else (scale.log() + (df + 1) / 2 * torch.log1p(z * z / df)).mean()


# Speech


def separated(s, x):
    """Conv-TasNet: encoder, masks by a stack with global normalization, overlap-add."""
    w = F.relu(s.encoder(x))
    y = s.first(w)
    for i, (up, norm, deep, down) in enumerate(zip(s.ups, s.norms, s.deeps, s.downs)):
        h = norm(s.prelu(up(y)))
        y = y + down(deep(F.pad(h, (2**i, 2**i))))
    masks = torch.sigmoid(s.masks(y)).unflatten(1, (2, -1))
    return torch.stack([s.decoder(w * m).squeeze(1) for m in masks.unbind(1)], 1)


def signal_noise(s, x, y):
    """SI-SNR over both permutations of the sources."""
    e = separated(s, x)
    e, y = e - e.mean(-1, keepdim=True), y - y.mean(-1, keepdim=True)
    def snr(a, b):
        p = (a * b).sum(-1, keepdim=True) * b / (b.square().sum(-1, keepdim=True) + 1e-8)
        return 10 * torch.log10(p.square().sum(-1) / ((a - p).square().sum(-1) + 1e-8) + 1e-8)
    return -torch.maximum(snr(e, y).mean(-1), snr(e, y.flip(1)).mean(-1)).mean()


def contrasted(s, x):
    """wav2vec: a grouped convolution with weight norm as positions; masked steps are distinguished from others of the same row."""
    z = F.gelu(s.norm(s.c2(F.gelu(s.n1(s.c1(x))))).transpose(1, 2))
    t = z.shape[1]
    masked = torch.arange(t) % 3 == 1
    y = torch.where(masked[:, None], s.mask, s.project(z))
    y = y + F.gelu(s.places(y.transpose(1, 2))[..., :t]).transpose(1, 2)
    c, q = s.out(s.body(y))[:, masked], s.target(z)[:, masked]
    return F.cross_entropy((F.cosine_similarity(c[:, :, None], q[:, None], dim=-1) / 0.2).flatten(0, 1), torch.arange(int(masked.sum())).repeat(x.shape[0]))


def alignments(s, x, y):
    """CTC, written out in log space."""
    p = s.head(s.rnn(x)[0]).log_softmax(-1)
    b, t, _ = p.shape
    blank = torch.zeros_like(y)
    states = torch.cat([torch.stack([blank, y + 1], -1).flatten(1), blank[:, :1]], 1)
    n = states.shape[1]
    emit = torch.gather(p, 2, states[:, None].expand(-1, t, -1))
    skip = F.pad((states[:, 2:] != states[:, :-2]) & (states[:, 2:] != 0), (2, 0), value=False)
    alpha = torch.where(torch.arange(n) < 2, emit[:, 0], torch.full_like(emit[:, 0], -1e5))
    for k in range(1, t):
        one, two = F.pad(alpha, (1, 0), value=-1e5)[:, :-1], F.pad(alpha, (2, 0), value=-1e5)[:, :-2]
        alpha = torch.stack([alpha, one, torch.where(skip, two, -1e5)], 0).logsumexp(0) + emit[:, k]
    return -torch.logsumexp(alpha[:, -2:], -1).mean()


def spectra(s, x):
    """HiFi-GAN's upsampler and the loss of its mel bands: frames by unfolding, products with cosines and sines."""
    y = s.first(x)
    for up, kinds in zip(s.ups, s.kinds):
        y = up(F.leaky_relu(y, 0.1))
        y = sum(c(F.leaky_relu(y, 0.1)) for c in kinds) / len(kinds)
    frames = torch.tanh(s.last(y)).squeeze(1).unfold(-1, 16, 8) * s.window
    power = torch.matmul(frames, s.cos).square() + torch.matmul(frames, s.sin).square()
    return torch.log(torch.clamp((power + 1e-9).sqrt() @ s.bands, min=1e-5))


def located(s, x):
    """Tacotron: location-sensitive attention, and a decoder of three steps."""
    keys = s.k(x)
    w = total = torch.zeros(x.shape[0], x.shape[1])
    h, c, context, frames = torch.zeros(x.shape[0], 6), torch.zeros(x.shape[0], 6), torch.zeros(x.shape[0], 5), []
    frame = torch.zeros(x.shape[0], 3)
    for _ in range(3):
        h, c = s.cell(torch.cat([F.relu(s.pre(frame)), context], -1), (h, c))
        places = s.location(torch.stack([w, total], 1)).transpose(1, 2)
        w = s.v(torch.tanh(s.q(h)[:, None] + keys + places)).squeeze(-1).softmax(-1)
        total = total + w
        context = torch.bmm(w[:, None], x).squeeze(1)
        frame = s.out(torch.cat([h, context], -1))
        frames.append(frame)
    return torch.stack(frames, 1)


grn = lambda i, d: L([lin(i, d), lin(d, d), lin(d, 2 * d), nn.LayerNorm(d)])

# name: (module, its inputs, shape of the output of one sample (None: the output is the objective), class axis)
SERIES = {
    "dual": (lambda: Net(dual, inner=lin(5, 24), bias=weight(2), a=weight(2), d=weight(8), norm=random_nets.RmsNorm(8), head=lin(8, 3)), steps, (3,), 1),
    "matrix_memory": (lambda: Net(matrix_memory, q=lin(5, 4), k=lin(5, 4), v=lin(5, 4), gates=lin(5, 2), head=lin(4, 3)), steps, (3,), 1),
    "hyena": (lambda: Net(hyena, inner=lin(5, 12), short=nn.Conv1d(12, 12, 3, padding=2, groups=12), filters=mlp(3, 6, 4), places=torch.randn(8, 3), decay=weight(4), skip=weight(4), head=lin(4, 3)), steps, (8, 3), 2),
    "gated_linear": (lambda: Net(gated_linear, q=lin(5, 4), k=lin(5, 4), v=lin(5, 4), gate=lin(5, 4), head=lin(4, 3)), steps, (3,), 1),
    "shifted_positions": (lambda: Net(shifted_positions, q=lin(5, 8), k=lin(5, 8), v=lin(5, 8), r=lin(4, 8), table=torch.randn(8, 4), ub=weight(2, 4), vb=weight(2, 4), head=lin(8, 3)), steps, (8, 3), 2),
    "buckets": (lambda: Net(buckets, q=lin(5, 8), k=lin(5, 8), v=lin(5, 8), bias=nn.Embedding(8, 2), head=lin(8, 3)), steps, (3,), 1),
    "windows": (lambda: Net(windows, q=lin(5, 4), k=lin(5, 4), v=lin(5, 4), head=lin(4, 3)), steps, (3,), 1),
    "nystrom": (lambda: Net(nystrom, q=lin(5, 4), k=lin(5, 4), v=lin(5, 4), head=lin(4, 3)), steps, (3,), 1),
    "liquid": (lambda: Net(liquid, inner=lin(11, 6), a=weight(6), tau=weight(6), head=lin(6, 3)), steps, (3,), 1),
    "prefixed": (lambda: Net(prefixed, table=nn.Embedding(11, 4), pk=weight(1, 2, 4), pv=weight(1, 2, 4), q=lin(4, 4), k=lin(4, 4), v=lin(4, 4), head=lin(4, 11)), tokens, (6, 11), 2),
    "adapted": (lambda: Net(adapted, frozen=lin(6, 8), a=weight(2, 6), b=weight(8, 2), m=one(8), head=lin(8, 3)), vector, (3,), 1),
    "scaled_keys": (lambda: Net(scaled_keys, norm=nn.LayerNorm(5), q=lin(5, 4), k=lin(5, 4), v=lin(5, 4), lk=one(4), lv=one(4), lf=one(4), head=lin(4, 3)), steps, (3,), 1),
    "whisper": (lambda: Net(whisper, c1=conv1(5, 8), c2=conv1(8, 8, stride=2), places=torch.randn(4, 8), encoder=block(8), table=nn.Embedding(11, 8), learned=weight(3, 8), decoder=nn.TransformerDecoderLayer(8, 2, 16, 0.0, batch_first=True, norm_first=True)), steps, (3, 11), 2),
    "reversible": (lambda: Net(reversible, scale=one(1), shift=weight(1), embed=lin(4, 8), places=weight(6, 8), body=block(8), head=lin(48, 5)), series, (5,), 0),
    "hierarchical": (lambda: Net(hierarchical, blocks=L(L([mlp(12 // k, 8, b) if k > 1 else nn.Identity(), mlp(12 // k, 8, f)]) for k, b, f in ((4, 3, 2), (2, 6, 3), (1, 12, 6)))), series, (6,), 0),
    "periods": (lambda: Net(periods, embed=lin(1, 4), mix=nn.Sequential(conv(4, 6), nn.GELU(), conv(6, 4)), waves=torch.randn(12, 3), head=conv1(4, 1)), series, (12,), 0),
    "decomposed": (lambda: Net(decomposed, trend=lin(12, 5), season=lin(12, 5)), series, (5,), 0),
    "selection": (lambda: Net(selection, w=weight(5, 4), b=weight(5, 4), choose=L([lin(20, 20), lin(20, 20), lin(20, 40), nn.Sequential(nn.LayerNorm(20), lin(20, 5))]), each=L(grn(4, 4) for _ in range(5)), rnn=nn.LSTM(4, 6, batch_first=True), head=lin(6, 3)), steps, (3,), 0),
    "mixer": (lambda: Net(mixer, n1=nn.BatchNorm1d(40), n2=nn.BatchNorm1d(40), time=lin(8, 8), up=lin(5, 8), down=lin(8, 5), head=lin(8, 1)), steps, (5,), 0),
    "autoregressed": (lambda: Net(autoregressed, rnn=nn.GRU(1, 6, batch_first=True), head=lin(6, 3), exact=False), series, None, 0),
    "separated": (lambda: Net(separated, encoder=nn.Conv1d(1, 6, 4, 2, bias=False), first=nn.Conv1d(6, 4, 1), ups=L(nn.Conv1d(4, 6, 1) for _ in range(2)), norms=L(nn.GroupNorm(1, 6, eps=1e-8) for _ in range(2)), deeps=L(nn.Conv1d(6, 6, 3, dilation=2**i, groups=6) for i in range(2)), downs=L(nn.Conv1d(6, 4, 1) for _ in range(2)), prelu=nn.PReLU(), masks=nn.Conv1d(4, 12, 1), decoder=nn.ConvTranspose1d(6, 1, 4, 2, bias=False)), wave, (2, 32), 0),
    "signal_noise": (lambda: Net(signal_noise, **dict(SERIES["separated"][0]().named_children())), lambda b: {"x": pixels(b, 1, 32), "y": pixels(b, 2, 32)}, None, 0),
    "contrasted": (lambda: Net(contrasted, c1=nn.Conv1d(1, 4, 4, 2), n1=nn.GroupNorm(4, 4), c2=nn.Conv1d(4, 6, 3, 2), norm=nn.GroupNorm(1, 6), project=lin(6, 8), mask=weight(8), places=parametrizations.weight_norm(nn.Conv1d(8, 8, 4, padding=2, groups=2), dim=2), body=block(8), out=lin(8, 4), target=lin(6, 4)), wave, None, 0),
    "alignments": (lambda: Net(alignments, rnn=nn.GRU(5, 4, bidirectional=True, batch_first=True), head=lin(8, 5)), lambda b: {"x": pixels(b, 8, 5), "y": classes(4, b, 3)}, None, 0),
    "spectra": (lambda: Net(spectra, first=conv1(1, 6), ups=L([nn.ConvTranspose1d(6, 4, 4, 2, 1)]), kinds=L([L([conv1(4, 4, 3), nn.Conv1d(4, 4, 3, padding=3, dilation=3)])]), last=conv1(4, 1, 7), window=torch.hann_window(16), cos=torch.cos(2 * math.pi / 16 * torch.arange(16.0)[:, None] * torch.arange(9)), sin=torch.sin(2 * math.pi / 16 * torch.arange(16.0)[:, None] * torch.arange(9)), bands=torch.rand(9, 4)), wave, (7, 4), 0),
    "located": (lambda: Net(located, k=lin(5, 4), q=lin(6, 4), v=lin(4, 1), location=conv1(2, 4, 5, bias=False), pre=lin(3, 4), cell=nn.LSTMCell(9, 6), out=lin(11, 3)), steps, (3, 3), 0),
}
FROZEN = {"adapted": ("frozen",), "prefixed": ("table", "q.", "k.", "v."), "scaled_keys": ("norm", "q.", "k.", "v.")}


def cases():
    return two_styles(lambda name, again: drawn(name, SERIES[name], again, FROZEN.get(name, ())), SERIES)
