"""Further architectures, of fields that the other sets touch little: forecasting, recommendation, speech, detection, graphs by scattering, embeddings
of knowledge, flows, fine-tuning. Each as the default exporter writes it and in one more style, with a loss and a recipe that are drawn by name.
Nothing is kept in `recorded/`."""
import math
import random
import zlib

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils import parametrizations

from case import Case, classes, pixels, term
from sets import random_nets
from sets.families import Net, weight
from zoo import _folded

one = lambda *shape: nn.Parameter(1 + torch.randn(*shape) * 0.3)
lin, L, P = nn.Linear, nn.ModuleList, nn.Parameter
conv = lambda i, o, k=3, **options: nn.Conv2d(i, o, k, padding=options.pop("padding", k // 2), **options)
conv1 = lambda i, o, k=3, **options: nn.Conv1d(i, o, k, padding=options.pop("padding", k // 2), **options)
mlp = lambda *widths: nn.Sequential(*[m for a, b in zip(widths, widths[1:]) for m in (nn.Linear(a, b), nn.SiLU())][:-1])
image, vector, steps, tokens = (lambda b: {"x": pixels(b, 3, 8, 8)}), (lambda b: {"x": pixels(b, 6)}), (lambda b: {"x": pixels(b, 8, 5)}), (lambda b: {"x": classes(11, b, 6)})
series = lambda b: {"x": pixels(b, 12)}
wave = lambda b: {"x": pixels(b, 1, 32)}
fields = lambda b: {"x": classes(9, b, 4), "dense": pixels(b, 3)}
NODES, EDGES = 6, torch.tensor([[0, 1, 2, 3, 4, 5, 0, 2, 4, 1], [1, 2, 3, 4, 5, 0, 3, 5, 1, 4]])
nodes = lambda b: {"x": pixels(b, NODES, 4)}


# Sequences and scans


def segsum(a):
    """Mamba-2: sums of a over each span below the diagonal."""
    t = a.shape[-1]
    sums = a.unsqueeze(-1).expand(*a.shape, t).masked_fill(~torch.ones(t, t, dtype=torch.bool).tril(-1), 0).cumsum(-2)
    return sums.masked_fill(~torch.ones(t, t, dtype=torch.bool).tril(), -torch.inf)


def dual(s, x):
    """Mamba-2's state space duality: chunks of 4, two heads, products within and states between them."""
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
    """mLSTM, all steps at once, with its stabiliser."""
    q, k, v = s.q(x), s.k(x) / 2, s.v(x)
    i, f = s.gates(x).chunk(2, -1)
    f = F.logsigmoid(f).cumsum(1)
    d = (f - f.transpose(1, 2) + i.transpose(1, 2)).masked_fill(~torch.ones(8, 8).tril().bool(), -torch.inf)
    m = d.max(-1, keepdim=True)[0]
    c = q @ k.transpose(1, 2) * (d - m).exp()
    return s.head((c @ v / torch.maximum(c.sum(-1, keepdim=True).abs(), (-m).exp())).mean(1))


def hyena(s, x):
    """Long filters made of positions, gates before and after; the convolution is a product with a Toeplitz matrix that is gathered."""
    t = x.shape[1]
    u, g, v = s.short(s.inner(x).transpose(1, 2))[..., :t].chunk(3, 1)
    h = (s.filters(s.places) * (-s.decay.exp() * torch.arange(t)[:, None])).t()
    gap = torch.arange(t)[:, None] - torch.arange(t)
    toeplitz = h[:, gap.clamp(min=0)] * (gap >= 0)
    y = torch.einsum("dts,bds->bdt", toeplitz, u * v) + s.skip[:, None] * v
    return s.head((y * g).transpose(1, 2))


def gated_linear(s, x):
    """Gated linear attention, a state for each step."""
    q, k, v = s.q(x), s.k(x), s.v(x)
    gate = torch.sigmoid(s.gate(x)) ** (1 / 4)
    state, out = x.new_zeros(x.shape[0], 4, 4), []
    for i in range(x.shape[1]):
        state = state * gate[:, i, :, None] + k[:, i, :, None] * v[:, i, None]
        out.append(torch.einsum("bk,bkv->bv", q[:, i], state))
    return s.head(F.group_norm(torch.stack(out, 1).flatten(0, 1), 2).view(x.shape[0], -1, 4).sum(1))


def shifted_positions(s, x):
    """Transformer-XL: distances by padding and cutting off."""
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
    """Longformer: neighbours by unfolding, and one place that sees all."""
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
    """Liquid time constants, three small steps for each input."""
    h = x.new_zeros(x.shape[0], 6)
    for t in range(4):
        for _ in range(2):
            f = torch.sigmoid(s.inner(torch.cat([x[:, t], h], -1)))
            h = (h + 0.3 * f * s.a) / (1 + 0.3 * (F.softplus(s.tau) + f))
    return s.head(h)


def prefixed(s, x):
    """Prompts before keys and values, of a frozen layer."""
    b = x.shape[0]
    h = s.table(x)
    k, v = (torch.cat([p.expand(b, -1, -1), m(h)], 1) for p, m in ((s.pk, s.k), (s.pv, s.v)))
    mask = torch.cat([torch.ones(6, 2), torch.ones(6, 6).tril()], 1).bool()
    return s.head(F.scaled_dot_product_attention(s.q(h), k, v, attn_mask=mask) + h)


def adapted(s, x):
    """DoRA: a frozen weight, a low rank beside it, its columns' norms trained apart."""
    w = s.frozen.weight + s.b @ s.a * 0.5
    return s.head(F.relu(F.linear(x, s.m[:, None] * w / w.norm(dim=1, keepdim=True).detach(), s.frozen.bias)))


def scaled_keys(s, x):
    """(IA)3 over a frozen block with a normalisation."""
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
    """N-HiTS: pooled at several rates, its forecast interpolated."""
    rest, total = x, 0
    for k, (back, fore) in zip((4, 2, 1), s.blocks):
        pooled = F.max_pool1d(rest[:, None], k, k).squeeze(1)
        theta = fore(pooled)
        total = total + F.interpolate(theta[:, None], size=6, mode="linear").squeeze(1)
        if k > 1:
            rest = rest - F.interpolate(back(pooled)[:, None], size=12, mode="nearest").squeeze(1)
    return total


def periods(s, x):
    """TimesNet with periods that are given: a row folded into an image, mixed by their amplitudes."""
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
    """TFT: gated residual networks choose among variables."""
    def grn(m, y):
        h = m[1](F.elu(m[0](y)))
        a, g = m[2](h).chunk(2, -1)
        return m[3](y + a * torch.sigmoid(g))

    e = x[..., None] * s.w + s.b
    chosen = grn(s.choose, e.flatten(2)).softmax(-1)
    h = (torch.stack([grn(m, e[:, :, i]) for i, m in enumerate(s.each)], -1) * chosen[:, :, None]).sum(-1)
    return s.head(s.rnn(h)[0][:, -1])


def mixer(s, x):
    """TSMixer and its batch normalisation over steps and features."""
    y = x + F.relu(s.time(s.n1(x.flatten(1)).view_as(x).transpose(1, 2))).transpose(1, 2)
    return s.head((y + s.down(F.relu(s.up(s.n2(y.flatten(1)).view_as(y))))).transpose(1, 2)).squeeze(-1)


def autoregressed(s, x):
    """DeepAR: parameters of Student's t for each step."""
    h, _ = s.rnn(F.pad(x[:, :-1], (1, 0))[..., None])
    loc, scale, df = s.head(h).unbind(-1)
    scale, df = F.softplus(scale) + 0.05, 2 + F.softplus(df)
    z = (x - loc) / scale
    return -(torch.lgamma((df + 1) / 2) - torch.lgamma(df / 2) - 0.5 * torch.log(df * math.pi) - torch.log(scale) - (df + 1) / 2 * torch.log1p(z * z / df)).mean() if s.exact else (scale.log() + (df + 1) / 2 * torch.log1p(z * z / df)).mean()


# Speech


def separated(s, x):
    """Conv-TasNet: encoder, masks by a stack with global normalisation, overlap and add."""
    w = F.relu(s.encoder(x))
    y = s.first(w)
    for i, (up, norm, deep, down) in enumerate(zip(s.ups, s.norms, s.deeps, s.downs)):
        h = norm(s.prelu(up(y)))
        y = y + down(deep(F.pad(h, (2**i, 2**i))))
    masks = torch.sigmoid(s.masks(y)).unflatten(1, (2, -1))
    return torch.stack([s.decoder(w * m).squeeze(1) for m in masks.unbind(1)], 1)


def signal_noise(s, x, y):
    """SI-SNR over both orders of the sources."""
    e = separated(s, x)
    e, y = e - e.mean(-1, keepdim=True), y - y.mean(-1, keepdim=True)
    def snr(a, b):
        p = (a * b).sum(-1, keepdim=True) * b / (b.square().sum(-1, keepdim=True) + 1e-8)
        return 10 * torch.log10(p.square().sum(-1) / ((a - p).square().sum(-1) + 1e-8) + 1e-8)
    return -torch.maximum(snr(e, y).mean(-1), snr(e, y.flip(1)).mean(-1)).mean()


def contrasted(s, x):
    """wav2vec: a grouped convolution with weight norm for places, masked steps told from others of the same row."""
    z = F.gelu(s.norm(s.c2(F.gelu(s.n1(s.c1(x))))).transpose(1, 2))
    t = z.shape[1]
    masked = torch.arange(t) % 3 == 1
    y = torch.where(masked[:, None], s.mask, s.project(z))
    y = y + F.gelu(s.places(y.transpose(1, 2))[..., :t]).transpose(1, 2)
    c, q = s.out(s.body(y))[:, masked], s.target(z)[:, masked]
    return F.cross_entropy((F.cosine_similarity(c[:, :, None], q[:, None], dim=-1) / 0.2).flatten(0, 1), torch.arange(int(masked.sum())).repeat(x.shape[0]))


def alignments(s, x, y):
    """CTC, written out in logarithms."""
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
    """Tacotron: attention that looks at where it was, a decoder of three steps."""
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


# Images and detection


def response(s, x):
    """ConvNeXt V2 with its global response normalisation, channels last."""
    y = s.stem(x)
    h = s.norm(s.deep(y).permute(0, 2, 3, 1))
    h = F.gelu(s.up(h))
    g = torch.norm(h, p=2, dim=(1, 2), keepdim=True)
    h = s.gamma * (h * (g / (g.mean(-1, keepdim=True) + 1e-6))) + s.beta + h
    return s.head((y + s.down(h).permute(0, 3, 1, 2)).mean((2, 3)))


def mobile(s, x):
    """MobileViT: places that go together, folded out and in again."""
    y = s.first(x)
    b, c, h, w = y.shape
    p = y.reshape(b * c * h // 2, 2, w // 2, 2).transpose(1, 2).reshape(b, c, -1, 4).transpose(1, 3).reshape(b * 4, -1, c)
    p = s.body(p)
    p = p.view(b, 4, -1, c).transpose(1, 3).reshape(b * c * h // 2, w // 2, 2, 2).transpose(1, 2).reshape(b, c, h, w)
    return s.head(s.last(torch.cat([y, p], 1)).mean((2, 3)))


def shifted(s, x):
    """Swin: windows that are rolled, a mask by region, a table of distances."""
    y = s.first(x).permute(0, 2, 3, 1)
    b = y.shape[0]
    y2 = torch.roll(s.norm(y), (-2, -2), (1, 2))
    w = y2.view(b, 2, 4, 2, 4, 8).permute(0, 1, 3, 2, 4, 5).reshape(-1, 16, 8)
    q, k, v = s.qkv(w).view(-1, 16, 3, 2, 4).permute(2, 0, 3, 1, 4).unbind(0)
    q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
    a = q @ k.transpose(-1, -2) * s.scale.clamp(max=math.log(100)).exp() + s.table[s.index.view(-1)].view(16, 16, 2).permute(2, 0, 1)[None]
    a = (a.view(b, 4, 2, 16, 16) + s.mask[None, :, None]).view(-1, 2, 16, 16).softmax(-1)
    w = s.out((a @ v).transpose(1, 2).reshape(-1, 16, 8))
    w = torch.roll(w.view(b, 2, 2, 4, 4, 8).permute(0, 1, 3, 2, 4, 5).reshape(b, 8, 8, 8), (2, 2), (1, 2))
    return s.head((y + w).mean((1, 2)))


def perceiver(s, x):
    latents = s.latents.expand(x.shape[0], -1, -1)
    places = torch.cat([s.embed(x), s.waves.expand(x.shape[0], -1, -1)], -1)
    for _ in range(2):
        latents = latents + s.cross(s.n1(latents), s.n2(places), s.n2(places), need_weights=False)[0]
        latents = latents + s.body(latents)
    return s.head(latents.mean(1))


def transformed(s, x, t):
    """DiT: patches, a class token dropped for none, scales and shifts of a time that begin at zero; v-prediction."""
    angle = t[:, None].float() * torch.exp(torch.arange(4) * -math.log(100.0) / 4)
    c = s.time(torch.cat([angle.cos(), angle.sin()], -1))
    y = s.patch(x).flatten(2).transpose(1, 2) + s.places
    s1, b1, g1, s2, b2, g2 = s.ada(F.silu(c)).chunk(6, -1)
    h = F.layer_norm(y, (8,), eps=1e-6) * (1 + s1[:, None]) + b1[:, None]
    y = y + g1[:, None] * s.attend(h, h, h, need_weights=False)[0]
    y = y + g2[:, None] * s.mlp(F.layer_norm(y, (8,), eps=1e-6) * (1 + s2.unsqueeze(1)) + b2.unsqueeze(1))
    shift, scale = s.last(F.silu(c)).chunk(2, 1)
    y = s.out(F.layer_norm(y, (8,)) * (1 + scale[:, None]) + shift[:, None])
    return torch.einsum("nhwpqc->nchpwq", y.view(-1, 4, 4, 2, 2, 2)).reshape(-1, 2, 8, 8)


def anchored(s, x):
    """RetinaNet's heads over two levels with shared weights, all in one row."""
    low = F.relu(s.c1(x))
    high = F.relu(s.c2(low))
    top = s.l2(high)
    levels = [s.o1(s.l1(low) + F.interpolate(top, size=low.shape[-2:], mode="nearest")), s.o2(top)]
    rows = [s.head(F.relu(s.norm(s.tower(level)))).view(x.shape[0], 2, -1, *level.shape[-2:]).permute(0, 3, 4, 1, 2).reshape(x.shape[0], -1, 7) for level in levels]
    return torch.cat(rows, 1)


def boxes_loss(s, x, target):
    """YOLO v8: distances as distributions, complete IoU, focal classes; the targets are boxes on the grid."""
    out = anchored_grid(s, x)
    dist, logits = out.split([16, 3], -1)
    p = dist.unflatten(-1, (4, 4)).softmax(-1) @ torch.arange(4.0)
    centre = torch.stack(torch.meshgrid(torch.arange(4) + 0.5, torch.arange(4) + 0.5, indexing="xy"), -1).view(-1, 2)
    box = torch.cat([centre - p[..., :2], centre + p[..., 2:]], -1)
    a, size = target[..., :2].sigmoid() * 2, target[..., 2:4].sigmoid() * 2 + 0.3
    want = torch.cat([a, a + size], -1)[:, None]
    lt, rb = torch.max(box[..., :2], want[..., :2]), torch.min(box[..., 2:], want[..., 2:])
    inter = (rb - lt).clamp(min=0).prod(-1)
    area = lambda v: (v[..., 2] - v[..., 0]) * (v[..., 3] - v[..., 1])
    iou = inter / (area(box) + area(want) - inter + 1e-7)
    hull = torch.max(box[..., 2:], want[..., 2:]) - torch.min(box[..., :2], want[..., :2])
    gap = (box[..., :2] + box[..., 2:] - want[..., :2] - want[..., 2:]).square().sum(-1) / 4
    shape = lambda v: torch.atan((v[..., 2] - v[..., 0]) / (v[..., 3] - v[..., 1] + 1e-7))
    v = 4 / math.pi**2 * (shape(want) - shape(box)).square()
    with torch.no_grad():
        alpha = v / (v - iou + 1 + 1e-7)
    ciou = iou - gap / (hull.square().sum(-1) + 1e-7) - v * alpha.detach()
    score = logits.sigmoid()
    good = (inter > 0).float().unsqueeze(-1) * torch.tensor([1.0, 0, 0])
    focal = (F.binary_cross_entropy_with_logits(logits, good, reduction="none") * (good - score).abs().pow(2)).mean()
    return (1 - ciou).mean() + focal


def anchored_grid(s, x):
    return s.head(F.silu(s.norm(s.c1(x)))).flatten(2).transpose(1, 2)


def queried(s, x):
    """DETR without matching: learned queries, auxiliary heads of each layer, giou against given boxes."""
    y = s.first(x)
    b, c, h, w = y.shape
    ys = torch.linspace(0, 1, h)[:, None].expand(h, w).flatten()
    xs = torch.linspace(0, 1, w)[None].expand(h, w).flatten()
    pos = torch.stack([xs.sin(), xs.cos(), ys.sin(), ys.cos()], -1).repeat(1, 2)
    memory = y.flatten(2).transpose(1, 2)
    q, out = torch.zeros(b, 3, c), []
    for layer in s.layers:
        q = layer(q + s.queries, memory + pos)
        out.append(s.boxes(s.norm(q)).sigmoid())
    return torch.stack(out).sum(0)


def masked_regions(s, x, boxes):
    """Mask heads over regions of given boxes."""
    import torchvision
    y = F.relu(s.first(x))
    lo, size = boxes[..., :2].sigmoid() * 4, boxes[..., 2:].sigmoid() * 3 + 1
    rows = torch.cat([torch.arange(x.shape[0])[:, None, None].float().expand(-1, boxes.shape[1], 1), lo, lo + size], -1).flatten(0, 1)
    r = torchvision.ops.roi_align(y, rows, 4, 1.0, 2, True)
    return s.last(F.relu(s.up(F.relu(s.body(r))))).view(x.shape[0], -1, 3, 8, 8)


def two_ways(s, x):
    """HRNet: two resolutions that exchange."""
    a = F.relu(s.a1(x))
    b = F.relu(s.b1(a))
    a, b = F.relu(s.na(s.a2(a) + F.interpolate(s.ba(b), scale_factor=2, mode="bilinear", align_corners=True))), F.relu(s.nb(s.b2(b) + s.ab(a)))
    return s.head(torch.cat([a, F.interpolate(b, size=a.shape[-2:], mode="bilinear", align_corners=False)], 1))


def capsules(s, x):
    squash = lambda v: v * v.square().sum(-1, keepdim=True) / (1 + v.square().sum(-1, keepdim=True)) / (v.square().sum(-1, keepdim=True) + 1e-8).sqrt()
    u = squash(s.first(x).flatten(1).unflatten(1, (-1, 4)))
    votes = torch.einsum("bic,ijcd->bijd", u, s.w)
    logits = torch.zeros(x.shape[0], u.shape[1], 3)
    for k in range(3):
        v = squash((logits.softmax(2)[..., None] * votes).sum(1))
        if k < 2:
            logits = logits + (votes.detach() * v[:, None]).sum(-1)
    return v.norm(dim=-1)


def gated_units(s, x):
    """gMLP over patches, SGU."""
    y = s.patch(x).flatten(2).transpose(1, 2)
    u, v = F.gelu(s.up(s.norm(y))).chunk(2, -1)
    v = s.spatial(s.inner(v).transpose(1, 2)).transpose(1, 2)
    return s.head((y + s.down(u * v)).mean(1))


def large_kernels(s, x):
    y = s.first(x)
    a = s.mix(s.wide(F.pad(s.near(y), (6, 6, 6, 6))))
    return s.head((y * a).flatten(2).transpose(1, 2).mean(1))


def attentive_pool(s, x):
    """GeM and a blur pool with reflection."""
    y = F.relu(s.norm(s.first(x)))
    y = F.conv2d(F.pad(y, (1, 2, 1, 2), mode="reflect"), s.blur.repeat(4, 1, 1, 1), stride=2, groups=4)
    return s.head(F.avg_pool2d(y.clamp(min=1e-6).pow(s.p), y.shape[-2:]).pow(1.0 / s.p).flatten(1))


# Recommendation and tables


def embedded(s, x):
    return torch.stack([t(x[:, i]) for i, t in enumerate(s.tables)], 1)


def deep_fm(s, x, dense):
    e = embedded(s, x)
    first = sum(t(x[:, i]) for i, t in enumerate(s.linear)) + s.dense(dense)
    second = 0.5 * (e.sum(1).pow(2) - e.pow(2).sum(1)).sum(1, keepdim=True)
    return first + second + s.deep(torch.cat([e.flatten(1), dense], 1))


def compressed_interactions(s, x, dense):
    """xDeepFM."""
    e = embedded(s, x)
    h, out = e, []
    for c in s.layers:
        z = torch.einsum("bhd,bmd->bhmd", h, e)
        h = F.relu(c(z.reshape(x.shape[0], -1, 3)))
        out.append(h.sum(-1))
    return s.head(torch.cat([*out, dense], 1))


def two_towers(s, x, dense, item):
    """In-batch softmax with the logarithm of the items' frequencies taken off."""
    u = F.normalize(s.user(torch.cat([embedded(s, x).flatten(1), dense], 1)))
    v = F.normalize(s.items(item))
    logits = u @ v.t() / 0.2 - s.frequency[item].log()
    same = (item[:, None] == item[None]) & ~torch.eye(x.shape[0], dtype=torch.bool)
    return F.cross_entropy(logits.masked_fill(same, -1e9), torch.arange(x.shape[0]))


def experts(s, x):
    """MMoE with two tasks, one the product of both (ESMM)."""
    h = torch.stack([e(x) for e in s.experts], 1)
    click, buy = ((torch.einsum("be,bed->bd", g(x).softmax(-1), h)) for g in s.gates)
    p = torch.sigmoid(s.click(click))
    return torch.cat([p, p * torch.sigmoid(s.buy(buy))], 1)


def sequential_pairs(s, x):
    """SASRec and BPR with a positive and a negative for each place."""
    h = s.table(x[:, :6]) * 8**0.5 + s.places
    keep = (x[:, :6] != 0)[..., None]
    h = s.body(h * keep, src_mask=torch.ones(6, 6).triu(1).bool()) * keep
    good, bad = s.table(x[:, 6:12]), s.table(x[:, 12:])
    gap = (h * good).sum(-1) - (h * bad).sum(-1)
    mask = (x[:, 6:12] != 0).float()
    return -(F.logsigmoid(gap) * mask).sum() / mask.sum().clamp(min=1)


def negatives(s, x):
    """Skip-gram with negative samples."""
    u = s.inner(x[:, 0])
    v = s.outer(x[:, 1:])
    score = torch.bmm(v, u.unsqueeze(2)).squeeze(2)
    return -(F.logsigmoid(score[:, 0]) + F.logsigmoid(-score[:, 1:]).sum(1)).mean()


def rotated_relations(s, x):
    """RotatE with self-adversarial negatives."""
    h, t = s.entities(x[:, 0]), s.entities(x[:, 2:])
    phase = s.relations(x[:, 1] % 3) / (0.5 / math.pi)
    re_h, im_h = h.chunk(2, -1)
    re_t, im_t = t.chunk(2, -1)
    re, im = re_h * phase.cos() - im_h * phase.sin(), re_h * phase.sin() + im_h * phase.cos()
    d = torch.stack([re[:, None] - re_t, im[:, None] - im_t], 0).norm(dim=0).sum(-1)
    score = 3.0 - d
    good, bad = score[:, :1], score[:, 1:]
    return -(F.logsigmoid(good).mean() + (F.softmax(bad, 1).detach() * F.logsigmoid(-bad)).sum(1).mean()) / 2


def hyperbolic(s, x):
    """Distances in the Poincare ball."""
    def into(y):
        n = y.norm(dim=-1, keepdim=True).clamp(min=1e-5)
        return torch.tanh(n) * y / n
    u, v = into(s.body(x))[:, None], into(s.centres)
    d2 = (u - v).square().sum(-1)
    return -torch.acosh(1 + 2 * d2 / ((1 - u.square().sum(-1)) * (1 - v.square().sum(-1))).clamp(min=1e-5))


def partial_likelihood(s, x, event):
    """Cox: rows by time, risks by cumulated logsumexp."""
    risk = s.body(x).squeeze(1)
    order = x[:, 0].argsort(descending=True)
    risk, seen = risk[order], event[order]
    return -((risk - torch.logcumsumexp(risk, 0)) * seen).sum() / seen.sum().clamp(min=1)


def mixture_density(s, x, y):
    w, m, d = s.body(x).split(3, -1)
    return -torch.logsumexp(w.log_softmax(-1) - 0.5 * ((y - m) / (F.softplus(d) + 0.1)).square() - (F.softplus(d) + 0.1).log(), -1).mean()


# Graphs and points


def graph_layers(s, x):
    """GCN, GIN and GAT by gathering along edges and summing into nodes."""
    src, dst = s.edges[0], s.edges[1]
    b = x.shape[0]
    degree = torch.zeros(NODES).index_add(0, dst, torch.ones(dst.shape[0])) + 1
    scale = (degree[src] * degree[dst]).rsqrt()
    h = s.gcn(x)
    h = F.relu(torch.zeros_like(h).index_add(1, dst, h[:, src] * scale[:, None]) + h / degree[:, None])
    h = s.gin((1 + s.eps) * h + torch.zeros_like(h).scatter_add(1, dst[None, :, None].expand(b, -1, h.shape[-1]), h[:, src]))
    z = s.gat(h)
    e = F.leaky_relu((z * s.left).sum(-1)[:, src] + (z * s.right).sum(-1)[:, dst], 0.2)
    top = torch.full((b, NODES), -1e9).scatter_reduce(1, dst.expand(b, -1), e, "amax")
    w = (e - top[:, dst]).exp()
    w = w / (torch.zeros(b, NODES).index_add(1, dst, w)[:, dst] + 1e-16)
    h = torch.zeros_like(z).index_add(1, dst, z[:, src] * w[..., None])
    return s.head(torch.cat([h.mean(1), h.amax(1)], -1))


def aggregates(s, x):
    """PNA: mean, extremes and deviation of neighbours by scatter_reduce."""
    src, dst = s.edges[0], s.edges[1]
    m = s.message(torch.cat([x[:, src], x[:, dst]], -1))
    index = dst[None, :, None].expand(m.shape[0], -1, m.shape[-1])
    zero = m.new_zeros(m.shape[0], NODES, m.shape[-1])
    mean = zero.scatter_reduce(1, index, m, "mean", include_self=False)
    most = zero.scatter_reduce(1, index, m, "amax", include_self=False)
    least = zero.scatter_reduce(1, index, m, "amin", include_self=False)
    square = zero.scatter_reduce(1, index, m * m, "mean", include_self=False)
    return s.head(torch.cat([mean, most, least, (square - mean * mean).clamp(min=1e-5).sqrt()], -1)).mean(1)


def light_graph(s, x):
    """LightGCN: products with a fixed adjacency, pairs scored."""
    e, layers = s.table.weight, [s.table.weight]
    for _ in range(2):
        e = s.adjacency @ e
        layers.append(e)
    e = torch.stack(layers).mean(0)
    return (e[x[:, 0]][:, None] * e[x[:, 1:]]).sum(-1)


def sampled_points(s, x):
    """PointNet++: farthest points, a ball of neighbours, features interpolated back."""
    b, n, _ = x.shape
    d = torch.full((b, n), 1e9)
    far, chosen = torch.zeros(b, dtype=torch.long), []
    for _ in range(3):
        chosen.append(far)
        c = torch.gather(x, 1, far[:, None, None].expand(-1, 1, 3))
        d = torch.minimum(d, (x - c).square().sum(-1))
        far = d.argmax(-1)
    index = torch.stack(chosen, 1)
    centre = torch.gather(x, 1, index[..., None].expand(-1, -1, 3))
    near = torch.cdist(centre, x).topk(3, dim=-1, largest=False, sorted=False).indices
    group = torch.gather(x[:, None].expand(-1, 3, -1, -1), 2, near[..., None].expand(-1, -1, -1, 3)) - centre[:, :, None]
    f = s.mlp(group).amax(2)
    d = (x[:, :, None] - centre[:, None]).square().sum(-1)
    w = 1 / (d + 1e-2)
    w = w / w.sum(-1, keepdim=True)
    return s.head(torch.cat([w @ f, x], -1))


def relational(s, x):
    """R-GCN with bases, an edge's kind chosen by its number."""
    src, dst = s.edges[0], s.edges[1]
    w = torch.einsum("rb,bio->rio", s.mix, s.bases)
    m = torch.einsum("nei,eio->neo", x[:, src], w[torch.arange(src.shape[0]) % 3])
    return s.head(F.relu(torch.zeros(x.shape[0], NODES, 5).index_add(1, dst, m) + s.own(x)).sum(1))


# Flows, fields, physics


def coupled(s, x):
    """Glow: a map by its LU, an actnorm, an affine coupling; the likelihood itself."""
    y = (x + s.shift) * s.scale.exp()
    lower, upper = s.lower.tril(-1) + torch.eye(6), s.upper.triu(1) + torch.diag(s.sign * s.diagonal.exp())
    y = y @ (s.permutation @ lower @ upper).t()
    a, b = y.chunk(2, 1)
    log_s, t = s.net(a).chunk(2, 1)
    log_s = torch.tanh(log_s)
    b = b * log_s.exp() + t
    z = torch.cat([a, b], 1)
    return (0.5 * z.square().sum(1) - log_s.sum(1)).mean() - s.scale.sum() - s.diagonal.sum()


def stepped(s, x):
    """A neural ODE by Runge and Kutta."""
    f = lambda t, y: s.b(torch.tanh(s.a(torch.cat([y, torch.full_like(y[:, :1], t)], 1))))
    h = 0.5
    for k in range(2):
        t = k * h
        k1 = f(t, x)
        k2 = f(t + h / 2, x + h / 2 * k1)
        k3 = f(t + h / 2, x + h / 2 * k2)
        k4 = f(t + h, x + h * k3)
        x = x + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    return s.head(x)


def hashed(s, x):
    """Instant NGP: corners hashed into tables, their features interpolated."""
    out = []
    for level, table in zip((2.0, 3.0), s.tables):
        p = x[:, :2].sigmoid() * level
        low = p.floor()
        f = p - low
        low = low.long()
        total = 0
        for i in (0, 1):
            for j in (0, 1):
                at = ((low[:, 0] + i) * 1 ^ (low[:, 1] + j) * 2654435761) % 16 if s.xor else ((low[:, 0] + i) * 7 + (low[:, 1] + j) * 13) % 16
                w = (f[:, 0] if i else 1 - f[:, 0]) * (f[:, 1] if j else 1 - f[:, 1])
                total = total + table(at) * w[:, None]
        out.append(total)
    return s.mlp(torch.cat(out, 1))


def spectral(s, x):
    """FNO with PyTorch's own transforms."""
    f = torch.fft.rfft(x.transpose(1, 2), norm="ortho")
    y = torch.view_as_real(f)[..., :3, :]
    re = torch.einsum("bim,iom->bom", y[..., 0], s.wr) - torch.einsum("bim,iom->bom", y[..., 1], s.wi)
    im = torch.einsum("bim,iom->bom", y[..., 0], s.wi) + torch.einsum("bim,iom->bom", y[..., 1], s.wr)
    return s.head((torch.stack([re, im], -1).square().sum(-1) + 1e-3).sqrt().flatten(1))


def framed(s, x):
    """A spectrogram by torch.stft in front of a convolution."""
    f = torch.stft(s.scale * x.squeeze(1), 8, 4, window=s.window, center=False, return_complex=True)
    return s.head(F.relu(s.first((torch.view_as_real(f).square().sum(-1) + 1e-4).log()[:, None])).mean((2, 3)))


def routed_depth(s, x):
    """Mixture of depths: the tokens of the highest weight go through a block, the others around it."""
    h = s.table(x)
    w = s.router(h).squeeze(-1)
    top, index = w.topk(3, 1)
    index, order = index.sort(1)
    top = top.gather(1, order)
    at = index[..., None].expand(-1, -1, 8)
    y = s.block(h.gather(1, at)) * top.sigmoid()[..., None]
    return s.head(h.scatter_add(1, at, y))


def top_experts(s, x):
    """Switch: one expert for each token, loads balanced, all experts as one product."""
    h = s.table(x)
    p = s.router(h).softmax(-1)
    top, index = p.topk(2, -1)
    top = top / top.sum(-1, keepdim=True)
    gate = torch.zeros_like(p).scatter(-1, index, top)
    y = torch.einsum("btd,edh->bteh", h, s.up)
    y = torch.einsum("bteh,ehd,bte->btd", F.silu(y), s.down, gate)
    load = F.one_hot(index, 4).float().sum(2).mean((0, 1)) * p.mean((0, 1))
    return s.head(h + y), load.sum() * 4


def multi_token(s, x):
    """Heads for the next and the one after, one table for all; logits capped."""
    h = s.body(s.table(x), src_mask=torch.full((6, 6), -torch.inf).triu(1), is_causal=True)
    cap = lambda y: 5 * torch.tanh(y / 5)
    return cap(s.norm(h) @ s.table.weight.t()) + cap(s.second(torch.cat([h[:, :-1], s.table(x)[:, 1:]], -1)) @ s.table.weight.t()).mean(1, keepdim=True)


def quantised_steps(s, x):
    """LSQ: trained steps, gradients through rounding by detaching."""
    def q(v, step, low, high):
        g = 1 / math.sqrt(v.numel() * high)
        step = (step - step * g).detach() + step * g
        u = (v / step).clamp(low, high)
        return ((u.round() - u).detach() + u) * step
    h = F.relu(F.linear(q(x, s.sx, -8, 7), q(s.first.weight, s.sw, -8, 7), s.first.bias))
    return s.head(q(h, s.sh, 0, 15))


def fake_quantised_range(s, x):
    """Seven bits of eight: the exporter clips what is quantised."""
    w = torch.fake_quantize_per_tensor_affine(s.first.weight, 0.02, 10, 0, 127)
    h = F.relu(F.linear(torch.fake_quantize_per_tensor_affine(x, 0.03, 60, 0, 127), w, s.first.bias))
    return s.head(h)


SHIFT_REGIONS = torch.tensor([[0] * 4 + [1] * 2 + [2] * 2]).repeat(8, 1) + 3 * torch.tensor([0] * 4 + [1] * 2 + [2] * 2)[:, None]
SHIFT_WINDOWS = SHIFT_REGIONS.view(2, 4, 2, 4).permute(0, 2, 1, 3).reshape(4, 16)
SHIFT_MASK = torch.where(SHIFT_WINDOWS[:, None] != SHIFT_WINDOWS[:, :, None], -100.0, 0.0)
GRID = torch.stack(torch.meshgrid(torch.arange(4), torch.arange(4), indexing="ij")).flatten(1)
DISTANCES = ((GRID[:, :, None] - GRID[:, None]) + 3).mul(torch.tensor([7, 1])[:, None, None]).sum(0)
block = lambda d, h=2: nn.TransformerEncoderLayer(d, h, 2 * d, 0.0, batch_first=True, norm_first=True)
grn = lambda i, d: L([lin(i, d), lin(d, d), lin(d, 2 * d), nn.LayerNorm(d)])
tables = lambda n, d: L(nn.Embedding(9, d) for _ in range(n))

# name: the module, its inputs, what it gives for one sample (None: the objective itself), the axis of classes
FURTHER = {
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
    "signal_noise": (lambda: Net(signal_noise, **dict(FURTHER["separated"][0]().named_children())), lambda b: {"x": pixels(b, 1, 32), "y": pixels(b, 2, 32)}, None, 0),
    "contrasted": (lambda: Net(contrasted, c1=nn.Conv1d(1, 4, 4, 2), n1=nn.GroupNorm(4, 4), c2=nn.Conv1d(4, 6, 3, 2), norm=nn.GroupNorm(1, 6), project=lin(6, 8), mask=weight(8), places=parametrizations.weight_norm(nn.Conv1d(8, 8, 4, padding=2, groups=2), dim=2), body=block(8), out=lin(8, 4), target=lin(6, 4)), wave, None, 0),
    "alignments": (lambda: Net(alignments, rnn=nn.GRU(5, 4, bidirectional=True, batch_first=True), head=lin(8, 5)), lambda b: {"x": pixels(b, 8, 5), "y": classes(4, b, 3)}, None, 0),
    "spectra": (lambda: Net(spectra, first=conv1(1, 6), ups=L([nn.ConvTranspose1d(6, 4, 4, 2, 1)]), kinds=L([L([conv1(4, 4, 3), nn.Conv1d(4, 4, 3, padding=3, dilation=3)])]), last=conv1(4, 1, 7), window=torch.hann_window(16), cos=torch.cos(2 * math.pi / 16 * torch.arange(16.0)[:, None] * torch.arange(9)), sin=torch.sin(2 * math.pi / 16 * torch.arange(16.0)[:, None] * torch.arange(9)), bands=torch.rand(9, 4)), wave, (7, 4), 0),
    "located": (lambda: Net(located, k=lin(5, 4), q=lin(6, 4), v=lin(4, 1), location=conv1(2, 4, 5, bias=False), pre=lin(3, 4), cell=nn.LSTMCell(9, 6), out=lin(11, 3)), steps, (3, 3), 0),
    "response": (lambda: Net(response, stem=nn.Conv2d(3, 4, 2, 2), deep=conv(4, 4, 7, groups=4), norm=nn.LayerNorm(4), up=lin(4, 8), gamma=weight(1, 1, 1, 8), beta=weight(1, 1, 1, 8), down=lin(8, 4), head=lin(4, 3)), image, (3,), 1),
    "mobile": (lambda: Net(mobile, first=conv(3, 8), body=block(8), last=conv(16, 8), head=lin(8, 3)), image, (3,), 1),
    "shifted": (lambda: Net(shifted, first=conv(3, 8), norm=nn.LayerNorm(8), qkv=lin(8, 24), scale=weight(2, 1, 1), table=weight(49, 2), index=DISTANCES, mask=SHIFT_MASK, out=lin(8, 8), head=lin(8, 3)), image, (3,), 1),
    "perceiver": (lambda: Net(perceiver, latents=weight(1, 3, 8), embed=lin(5, 4), waves=torch.randn(1, 8, 4), cross=nn.MultiheadAttention(8, 1, batch_first=True), n1=nn.LayerNorm(8), n2=nn.LayerNorm(8), body=nn.Sequential(nn.LayerNorm(8), lin(8, 16), nn.GELU(), lin(16, 8)), head=lin(8, 3)), steps, (3,), 1),
    "transformed": (lambda: Net(transformed, time=mlp(8, 8, 8), patch=nn.Conv2d(2, 8, 2, 2), places=torch.randn(1, 16, 8), ada=lin(8, 48), attend=nn.MultiheadAttention(8, 2, batch_first=True), mlp=nn.Sequential(lin(8, 16), nn.GELU(approximate="tanh"), lin(16, 8)), last=lin(8, 16), out=lin(8, 8)), lambda b: {"x": pixels(b, 2, 8, 8), "t": classes(50, b)}, (2, 8, 8), 0),
    "anchored": (lambda: Net(anchored, c1=conv(3, 4, stride=2), c2=conv(4, 6, stride=2), l1=conv(4, 4, 1), l2=conv(6, 4, 1), o1=conv(4, 4), o2=conv(4, 4), tower=conv(4, 4), norm=nn.GroupNorm(2, 4), head=conv(4, 14)), image, (40, 7), 2),
    "boxes_loss": (lambda: Net(boxes_loss, c1=conv(3, 6, stride=2, bias=False), norm=nn.BatchNorm2d(6), head=conv(6, 19, 1)), lambda b: {"x": pixels(b, 3, 8, 8), "target": pixels(b, 4)}, None, 0),
    "queried": (lambda: Net(queried, first=conv(3, 8, stride=2), queries=weight(3, 8), layers=L(nn.TransformerDecoderLayer(8, 2, 16, 0.0, batch_first=True) for _ in range(2)), norm=nn.LayerNorm(8), boxes=mlp(8, 8, 4)), image, (3, 4), 0),
    "masked_regions": (lambda: Net(masked_regions, first=conv(3, 4), body=conv(4, 4), up=nn.ConvTranspose2d(4, 4, 2, 2), last=conv(4, 3, 1)), lambda b: {"x": pixels(b, 3, 8, 8), "boxes": pixels(b, 2, 4)}, (2, 3, 8, 8), 0),
    "two_ways": (lambda: Net(two_ways, a1=conv(3, 4), b1=conv(4, 6, stride=2), a2=conv(4, 4), b2=conv(6, 6), ba=conv(6, 4, 1), ab=conv(4, 6, stride=2), na=nn.BatchNorm2d(4), nb=nn.BatchNorm2d(6), head=conv(10, 3, 1)), image, (3, 8, 8), 1),
    "capsules": (lambda: Net(capsules, first=conv(3, 8, 3, stride=2), w=weight(32, 3, 4, 5)), image, (3,), 0),
    "gated_units": (lambda: Net(gated_units, patch=nn.Conv2d(3, 6, 2, 2), norm=nn.LayerNorm(6), up=lin(6, 16), inner=nn.LayerNorm(8), spatial=lin(16, 16), down=lin(8, 6), head=lin(6, 3)), image, (3,), 1),
    "large_kernels": (lambda: Net(large_kernels, first=conv(3, 4), near=conv(4, 4, 5, groups=4), wide=conv(4, 4, 5, padding=0, dilation=3, groups=4), mix=conv(4, 4, 1), head=lin(4, 3)), image, (3,), 1),
    "attentive_pool": (lambda: Net(attentive_pool, first=conv(3, 4, bias=False), norm=nn.BatchNorm2d(4), blur=torch.tensor([[1.0, 3, 3, 1]]).t() @ torch.tensor([[1.0, 3, 3, 1]]) / 64, p=P(torch.tensor([3.0])), head=lin(4, 3)), image, (3,), 1),
    "deep_fm": (lambda: Net(deep_fm, tables=tables(4, 3), linear=tables(4, 1), dense=lin(3, 1), deep=mlp(15, 8, 1)), fields, (1,), 0),
    "compressed": (lambda: Net(compressed_interactions, tables=tables(4, 3), layers=L([nn.Conv1d(16, 5, 1), nn.Conv1d(20, 4, 1)]), head=lin(12, 3)), fields, (3,), 1),
    "two_towers": (lambda: Net(two_towers, tables=tables(4, 3), user=mlp(15, 8, 4), items=nn.Embedding(9, 4), frequency=torch.rand(9) + 0.1), lambda b: fields(b) | {"item": classes(9, b)}, None, 0),
    "experts": (lambda: Net(experts, experts=L(nn.Sequential(lin(6, 5), nn.ReLU()) for _ in range(3)), gates=L(lin(6, 3, bias=False) for _ in range(2)), click=lin(5, 1), buy=lin(5, 1)), vector, (2,), 0),
    "sequential_pairs": (lambda: Net(sequential_pairs, table=nn.Embedding(11, 8), places=weight(6, 8), body=block(8)), lambda b: {"x": classes(11, b, 18)}, None, 0),
    "negatives": (lambda: Net(negatives, inner=nn.Embedding(11, 5), outer=nn.Embedding(11, 5)), tokens, None, 0),
    "rotated_relations": (lambda: Net(rotated_relations, entities=nn.Embedding(11, 8), relations=nn.Embedding(3, 4)), tokens, None, 0),
    "hyperbolic": (lambda: Net(hyperbolic, body=mlp(6, 8, 3), centres=weight(4, 3)), vector, (4,), 1),
    "partial_likelihood": (lambda: Net(partial_likelihood, body=mlp(6, 8, 1)), lambda b: {"x": pixels(b, 6), "event": classes(2, b).float()}, None, 0),
    "mixture_density": (lambda: Net(mixture_density, body=mlp(6, 8, 9)), lambda b: {"x": pixels(b, 6), "y": pixels(b, 1)}, None, 0),
    "graph_layers": (lambda: Net(graph_layers, edges=EDGES, gcn=lin(4, 6, bias=False), gin=mlp(6, 8, 6), eps=P(torch.tensor([0.1])), gat=lin(6, 5, bias=False), left=weight(5), right=weight(5), head=lin(10, 3)), nodes, (3,), 1),
    "aggregates": (lambda: Net(aggregates, edges=EDGES, message=mlp(8, 6, 4), head=lin(16, 3)), nodes, (3,), 1),
    "light_graph": (lambda: Net(light_graph, table=nn.Embedding(11, 4), adjacency=torch.rand(11, 11) / 5), tokens, (5,), 1),
    "sampled_points": (lambda: Net(sampled_points, mlp=nn.Sequential(lin(3, 6), nn.ReLU(), lin(6, 6)), head=lin(9, 3)), lambda b: {"x": pixels(b, 7, 3)}, (7, 3), 2),
    "relational": (lambda: Net(relational, edges=EDGES, mix=weight(3, 2), bases=weight(2, 4, 5), own=lin(4, 5), head=lin(5, 3)), nodes, (3,), 1),
    "coupled": (lambda: Net(coupled, shift=weight(6), scale=weight(6), lower=weight(6, 6), upper=weight(6, 6), sign=torch.tensor([1.0, -1, 1, 1, -1, 1]), diagonal=weight(6), permutation=torch.eye(6)[torch.randperm(6)], net=mlp(3, 8, 6)), vector, None, 0),
    "stepped": (lambda: Net(stepped, a=lin(7, 8), b=lin(8, 6), head=lin(6, 3)), vector, (3,), 1),
    "hashed": (lambda: Net(hashed, tables=L(nn.Embedding(16, 3) for _ in range(2)), mlp=mlp(6, 8, 3), xor=False), vector, (3,), 0),
    "spectral": (lambda: Net(spectral, wr=weight(5, 4, 3), wi=weight(5, 4, 3), head=lin(12, 3)), steps, (3,), 1),
    "framed": (lambda: Net(framed, scale=P(torch.tensor([1.1])), window=torch.hann_window(8), first=conv(1, 4), head=lin(4, 3)), wave, (3,), 1),
    "routed_depth": (lambda: Net(routed_depth, table=nn.Embedding(11, 8), router=lin(8, 1), block=mlp(8, 12, 8), head=lin(8, 11)), tokens, (6, 11), 2),
    "top_experts": (lambda: Net(top_experts, table=nn.Embedding(11, 8), router=lin(8, 4, bias=False), up=weight(4, 8, 6), down=weight(4, 6, 8), head=lin(8, 11)), tokens, (6, 11), 2),
    "multi_token": (lambda: Net(multi_token, table=nn.Embedding(11, 8), body=block(8), norm=random_nets.RmsNorm(8), second=lin(16, 8)), tokens, (6, 11), 2),
    "quantised_steps": (lambda: Net(quantised_steps, first=lin(6, 8), sx=P(torch.tensor([0.3])), sw=P(torch.tensor([0.1])), sh=P(torch.tensor([0.1])), head=lin(8, 3)), vector, (3,), 1),
    "fake_range": (lambda: Net(fake_quantised_range, first=lin(6, 8), head=lin(8, 3)), vector, (3,), 1),
}
TWO = {"top_experts": "load"}
FROZEN = {"adapted": ("frozen",), "prefixed": ("table", "q.", "k.", "v."), "scaled_keys": ("norm", "q.", "k.", "v.")}


def case(name, again):
    r = random.Random(zlib.crc32(f"further {name}{again}".encode()))
    module, inputs, out, axis = FURTHER[name]
    if out is None:
        terms, y = [term("output", target=None)], None
    else:
        terms, y = random_nets.loss(r, out, axis)
        if axis == 0 and terms[0]["type"] in ("cross_entropy", "nll"):
            terms, y = [term(r.choice(["mse", "l1", "huber", "smooth_l1"]))], lambda b: pixels(b, *out)
    outputs = ("out", "side") if name in TWO else ("out",)
    if name in TWO:
        terms = [*terms, term("output", output="side", target=None, weight=0.1)]
    options = random_nets.recipe(r)
    exporter, optimize = r.choice([("legacy", False), ("dynamo", False), ("legacy", True)]) if again else ("dynamo", r.random() < 0.6)
    if options["optimizer"]["type"] == "lamb" or "groups" in options["optimizer"]:
        optimize = False
    opset = r.choice([18, 20, 22, 23, 25]) if exporter == "dynamo" else r.choice([16, 17, 17, 18, 20])
    made = module()
    folds = optimize and any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in made.modules())
    mode = r.choice(["train", "eval"])
    dynamic = out is not None and r.random() < (0.3 if exporter == "dynamo" else 0.6)
    sizes = [6, 6, 6, 6, 6, 4] if out is not None and r.random() < 0.5 else None
    return Case(f"further_{name}_{exporter}{opset}{'' if optimize else '_plain'}", module, lambda b: inputs(b) | ({} if y is None else {"y": y(b)}) if y is not None else inputs(b), terms, inputs=tuple(inputs(1)),
                targets=() if y is None else ("y",), outputs=outputs, exporter=exporter, opset=opset, optimize=optimize, mode=mode, dynamic_batch=dynamic, batch_size=6, batch_sizes=sizes, may_rest=True, frozen=FROZEN.get(name, ()),
                as_file=_folded if folds else None, keep_notes=exporter == "dynamo", **options)


def cases():
    for name in FURTHER:
        first, second = case(name, 0), case(name, 1)
        yield first
        if second.name != first.name:
            yield second
