"""Modules of kinds that are rare in the other sets: parametrized weights, complex numbers, packed sequences, time-major inputs, several
lengths, teachers, activation checkpointing, several tasks, and functions of weights alone. Each in the default exporter's form and in one
more style. Nothing is kept in `recorded/`."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils import parametrizations, parametrize
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.utils.checkpoint import checkpoint

from case import classes, pixels
from drawing import two_styles
from sets.families import Net, weight
from sets.further import L, P, conv, conv1, drawn, image, lin, mlp, one, series, steps, tokens, vector, wave

lengths = lambda b: {"x": pixels(b, 7, 5), "n": torch.sort(torch.cat([torch.tensor([7]), torch.randint(2, 8, (b - 1,))]), descending=True).values}
any_lengths = lambda b: {"x": pixels(b, 7, 5), "n": torch.randint(1, 8, (b,))}


class Made(nn.Module):
    """A parametrization by a function."""

    def __init__(self, f, inverse=None):
        super().__init__()
        self.f = f

    def forward(self, w):
        return self.f(w)


def made(layer, f, name="weight"):
    parametrize.register_parametrization(layer, name, Made(f), unsafe=True)
    return layer


def straight(s, x):
    return s.net(x)


# Weights computed from others


def standardised(s, x):
    def w(c):
        v = c.weight
        return (v - v.mean((1, 2, 3), keepdim=True)) / (v.std((1, 2, 3), keepdim=True) + 1e-5)
    h = F.relu(F.group_norm(F.conv2d(x, w(s.first), s.first.bias, padding=1), 2))
    return s.head(F.conv2d(h, w(s.second) * s.gain, padding=1).amax((2, 3)))


def hashed_weights(s, x):
    return s.head(torch.tanh(F.linear(x, s.pool[s.places] * s.signs)))


def circulant(s, x):
    k = torch.arange(6)
    return s.head(F.gelu(x @ s.c[(k[:, None] - k[None]) % 6] + s.bias))


def kronecker(s, x):
    return s.head(F.silu(x @ torch.kron(s.a, s.b)))


def butterfly(s, x):
    h = F.pad(x, (0, 2))
    for k, f in enumerate(s.factors):
        step = 2**k
        v = h.unflatten(1, (8 // (2 * step), 2, step))
        h = torch.einsum("bgik,gkij->bgjk", v, f).flatten(1)
    return s.head(h)


def cayley(s, x):
    """Orthogonal by Newton's iteration on a skew-symmetric matrix."""
    a = s.a - s.a.t()
    q = torch.eye(6) + a + a @ a / 2 + a @ a @ a / 6
    for _ in range(3):
        q = 1.5 * q - 0.5 * q @ q.t() @ q
    return s.head(torch.relu(x @ q))


def householder(s, x):
    for v in s.v:
        u = v / v.norm()
        x = x - 2 * (x @ u)[:, None] * u
    return s.head(torch.tanh(x * s.scale))


def triangular(s, x):
    l, u = torch.tril(s.l, -1) + torch.eye(6), torch.triu(s.u, 1) + torch.diag(s.d.exp())
    h = x @ (l @ u)
    return s.head(h) + s.d.sum()


def monotone(s, x):
    h = torch.tanh(F.linear(x, F.softplus(s.first.weight), s.first.bias))
    return F.linear(h, s.second.weight.square(), s.second.bias)


def stochastic(s, x):
    return torch.log(x.softmax(1) @ s.moves.softmax(1) @ s.emit.softmax(1) + 1e-6)


def sparse_masked(s, x):
    return s.head(F.relu(F.linear(x, s.first.weight * s.mask, s.first.bias)))


def cumulative(s, x):
    """Ordered thresholds."""
    cuts = torch.cumsum(torch.cat([s.start, F.softplus(s.gaps)]), 0)
    return s.body(x) - cuts


def shared_transposed(s, x):
    h = torch.relu(F.linear(x, s.w, s.b))
    h = torch.relu(F.linear(h, s.w.t(), s.c))
    return F.linear(h, s.w[:3] + s.w[3:6] * s.mix)


def lora(s, x):
    base = lambda k, h: F.linear(h, s.base[k].weight, s.base[k].bias) + (h @ s.down[k].t()) @ s.up[k].t() * (8 / 2)
    return base(1, F.gelu(base(0, x)))


def dora(s, x):
    w = s.base.weight + s.up @ s.down
    return s.head(torch.relu(F.linear(x, s.m * w / w.norm(dim=1, keepdim=True).detach(), s.base.bias)))


def scaled_by_elements(s, x):
    """IA3."""
    a = s.attend
    q, k, v = (F.linear(x, w, b).unflatten(2, (2, 4)).transpose(1, 2) for w, b in zip(a.in_proj_weight.chunk(3), a.in_proj_bias.chunk(3)))
    h = F.scaled_dot_product_attention(q, k * s.lk, v * s.lv).transpose(1, 2).flatten(2)
    return s.head((a.out_proj(h) * s.lo).mean(1))


# Complex numbers


def complex_layers(s, x):
    z = torch.view_as_complex(x.unflatten(1, (3, 2)).contiguous())
    w = torch.complex(s.re, s.im)
    h = z @ w
    return s.head(torch.cat([h.abs(), torch.view_as_real(h * h.conj()).flatten(1)], 1))


def spectral_operator(s, x):
    """A Fourier layer along a line."""
    h = s.lift(x.unsqueeze(-1)).transpose(1, 2)
    f = torch.fft.rfft(h, norm="ortho")
    g = torch.einsum("bik,iok->bok", f[:, :, :4], torch.view_as_complex(s.modes))
    out = torch.fft.irfft(F.pad(torch.view_as_real(g), (0, 0, 0, 3)).contiguous().view(torch.complex64).squeeze(-1) if False else torch.cat([g, torch.zeros(g.shape[0], g.shape[1], 3, dtype=g.dtype)], -1), n=12, norm="ortho")
    return s.head(F.gelu(out + s.skip(h)).flatten(1))


def spectrum(s, x):
    f = torch.fft.rfft(x.squeeze(1))
    return s.head(torch.log1p(f.abs().square()))


def plane(s, x):
    f = torch.fft.fft2(x)
    return s.head((f.real.abs() + f.imag.abs()).mean((2, 3)) * s.scale)


def turned(s, x):
    """Rotary positions by complex numbers, as in the first Llama."""
    h = s.table(x)
    freqs = torch.polar(torch.ones(6, 4), torch.outer(torch.arange(6).float(), 1 / 10 ** (torch.arange(4) / 4)))
    turn = lambda v: torch.view_as_real(torch.view_as_complex(v.unflatten(-1, (4, 2)).contiguous()) * freqs).flatten(-2)
    q, k = turn(s.q(h)), turn(s.k(h))
    return s.head((q @ k.transpose(1, 2) / 8**0.5).softmax(-1) @ h)


def holographic(s, x):
    """Binding by circular convolution."""
    a, b = s.table(x[:, 0]), s.table(x[:, 1])
    return s.head(torch.fft.irfft(torch.fft.rfft(a) * torch.fft.rfft(b), n=8))


# Sequences


def packed(s, x, n):
    h, _ = s.lstm(pack_padded_sequence(x, n, batch_first=True))
    h, _ = pad_packed_sequence(h, batch_first=True, total_length=7)
    return s.head(h.sum(1) / n[:, None])


def packed_last(s, x, n):
    _, h = s.gru(pack_padded_sequence(x, n, batch_first=True))
    return s.head(torch.cat([h[-2], h[-1]], 1))


def masked_mean(s, x, n):
    h, _ = s.lstm(x)
    mask = torch.arange(7)[None] < n[:, None]
    h = (h * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
    return s.head(h)


def last_step(s, x, n):
    h, _ = s.gru(x)
    return s.head(h.gather(1, (n - 1)[:, None, None].expand(-1, 1, h.shape[2])).squeeze(1))


def reversed_by_length(s, x, n):
    k = torch.arange(7)[None]
    back = torch.where(k < n[:, None], n[:, None] - 1 - k, k)
    y = torch.gather(x, 1, back[..., None].expand_as(x))
    a, _ = s.forth(x)
    b, _ = s.back(y)
    return s.head(a + torch.gather(b, 1, back[..., None].expand_as(b)))


def key_padding(s, x, n):
    mask = torch.arange(7)[None] >= n[:, None]
    h = s.encoder(s.up(x), src_key_padding_mask=mask)
    return s.head(h.masked_fill(mask[..., None], 0).sum(1))


def time_first(s, x):
    h, _ = s.lstm(x.transpose(0, 1))
    h = s.encoder(h)
    return s.head(h).transpose(0, 1)


def projected_lstm(s, x):
    h, (a, c) = s.lstm(x)
    return s.head(torch.cat([h[:, -1], a[-1], c[0]], 1))


def seq2seq(s, x):
    """A decoder that is fed its own output."""
    _, h = s.encoder(x)
    y, h = x[:, -1, :2], h[0]
    out = []
    for _ in range(4):
        h = s.decoder(y, h)
        y = s.head(h)
        out.append(y)
    return torch.stack(out, 1)


def zoneout(s, x):
    """Cells by hand, with gates in blocks and layer normalization inside."""
    h = c = torch.zeros(x.shape[0], 4)
    for t in range(x.shape[1]):
        i, f, g, o = (s.n1(s.wi(x[:, t])) + s.n2(s.wh(h))).chunk(4, 1)
        c2 = (f + 1).sigmoid() * c + i.sigmoid() * g.tanh()
        h2 = o.sigmoid() * s.n3(c2).tanh()
        h, c = 0.1 * h + 0.9 * h2, 0.2 * c + 0.8 * c2
    return s.head(h)


# Networks within networks


def checkpointed(s, x):
    h = x
    for block in s.blocks:
        h = h + checkpoint(block, h, use_reentrant=False)
    return s.head(h)


def checkpointed_again(s, x):
    h = s.first(x)
    for block in s.blocks:
        h = h + checkpoint(block, h, use_reentrant=True)
    return s.head(h.mean((2, 3)))


def two_tasks(s, x):
    h = s.body(x)
    a = s.a(h)
    w = s.scale.exp()
    return a * w, s.b(torch.cat([h, a.softmax(1)], 1)).square().mean(1) + s.scale


def uncertainty(s, x, y2):
    """Tasks weighted by trained variances."""
    h = s.body(x)
    l2 = F.smooth_l1_loss(s.b(h), y2)
    return s.a(h) * (-0.5 * s.log_var[0]).exp(), l2 * (-s.log_var[1]).exp() + s.log_var.sum()


def queue(s, x, key):
    """MoCo: a constant queue of keys."""
    q, k = F.normalize(s.body(x), dim=1), F.normalize(s.body(key), dim=1).detach()
    logits = torch.cat([(q * k).sum(1, keepdim=True), q @ s.queue.t()], 1) / 0.2
    return F.cross_entropy(logits, torch.zeros(x.shape[0], dtype=torch.long))


def bootstrap(s, x, key):
    """BYOL with an averaged teacher."""
    p = s.predict(s.body(x))
    with torch.no_grad():
        z = s.teacher(key)
    return 2 - 2 * F.cosine_similarity(p, z.detach(), dim=-1).mean()


def early_exits(s, x):
    outs, h = [], x
    for block, head in zip(s.blocks, s.heads):
        h = torch.relu(block(h))
        outs.append(head(h))
    return sum(o * w for o, w in zip(outs, s.mix.softmax(0)))


def pooled_by_mask(s, x):
    m = torch.sigmoid(s.gate(x))
    w = m.flatten(2).softmax(-1)
    return s.head(torch.einsum("bhn,bcn->bhc", w, s.body(x).flatten(2)).flatten(1))


def cached(s, x):
    """Step by step, with appended keys and values."""
    h, ks, vs, out = s.table(x), None, None, []
    for t in range(6):
        q, k, v = s.qkv(h[:, t:t + 1]).chunk(3, -1)
        ks, vs = (k, v) if ks is None else (torch.cat([ks, k], 1), torch.cat([vs, v], 1))
        out.append((q @ ks.transpose(1, 2) / 8**0.5).softmax(-1) @ vs)
    return s.head(torch.cat(out, 1))


def preallocated(s, x):
    h = s.table(x)
    k, v = s.k(h), s.v(h)
    cache = torch.zeros(x.shape[0], 8, 8)
    cache[:, 1:7] = k
    keep = torch.zeros(x.shape[0], 8, 8)
    keep[:, 1:7] = v
    return s.head((s.q(h) @ cache.transpose(1, 2)).softmax(-1) @ keep)


def thresholds(s, x):
    h = s.body(x)
    return s.head(torch.where(h.abs() > s.t.abs(), h - torch.sign(h) * s.t.abs(), torch.zeros_like(h)))


def unrolled_prox(s, x):
    """LISTA."""
    shrink = lambda v, t: torch.sign(v) * F.relu(v.abs() - t)
    z = shrink(s.w(x), s.t[0])
    for k in range(3):
        z = shrink(s.w(x) + s.s(z), s.t[k])
    return z @ s.d


def implicit_step(s, x):
    """An explicit gradient inside the model."""
    y = torch.zeros(x.shape[0], 4)
    for _ in range(3):
        e = torch.tanh(y @ s.a + x @ s.b)
        y = y - s.rate * ((1 - e * e) * (e - 0.3)) @ s.a.t()
    return y


def energy(s, x):
    return torch.logsumexp(s.net(x), 1) - 0.1 * s.net(x).square().sum(1)


def pixel_norm(s, x):
    for c in s.convs:
        x = F.leaky_relu(c(x) * math.sqrt(2 / (c.in_channels * 9)), 0.2)
        x = x * torch.rsqrt(x.square().mean(1, keepdim=True) + 1e-8)
    sd = x.std(0).mean()
    x = torch.cat([x, sd.expand(x.shape[0], 1, *x.shape[2:])], 1)
    return s.head(x.mean((2, 3)))


def ghost_batches(s, x):
    a, b = x.unflatten(0, (2, -1)).unbind(0)
    return torch.cat([s.head(F.relu(s.norm(s.first(v)))) for v in (a, b)])


def conditional_norm(s, x, label):
    n = F.batch_norm(s.first(x), s.mean, s.var, training=False)
    g, b = s.embed(label).chunk(2, 1)
    return s.head(F.relu(n * (1 + g[..., None, None]) + b[..., None, None]).mean((2, 3)))


def volume_sampled(s, x, grid):
    v = s.lift(x).unsqueeze(2).expand(-1, -1, 3, -1, -1)
    return s.head(F.grid_sample(v, grid.tanh(), align_corners=False, padding_mode="border").flatten(2).amax(2))


def wavelets(s, x):
    def split(v):
        a, b = v[..., ::2], v[..., 1::2]
        d = b - s.p * a
        return a + s.u * d, d
    low, d1 = split(x)
    low, d2 = split(low)
    return s.head(torch.cat([low, d2, d1.abs()], -1).squeeze(1))


def grouped_rows(s, x):
    """Products of every pair of groups."""
    g = s.proj(x).unflatten(1, (4, 3))
    i, j = torch.triu_indices(4, 4, 1)
    return s.head(torch.cat([(g[:, i] * g[:, j]).sum(-1), torch.linalg.vector_norm(g, 3, -1)], 1))


STRAY = {
    "weight_norm_conv": (lambda: Net(straight, net=nn.Sequential(parametrizations.weight_norm(nn.Conv2d(3, 4, 3)), nn.ELU(), nn.Flatten(), parametrizations.weight_norm(nn.Linear(144, 3), dim=None))), image, (3,), 1),
    "weight_norm_transposed": (lambda: Net(straight, net=nn.Sequential(parametrizations.weight_norm(nn.ConvTranspose1d(1, 4, 4, 2, 1), dim=1), nn.SiLU(), nn.AdaptiveAvgPool1d(4), nn.Flatten(), nn.Linear(16, 3))), wave, (3,), 1),
    "spectral_norm": (lambda: Net(straight, net=nn.Sequential(parametrizations.spectral_norm(nn.Conv2d(3, 4, 3)), nn.LeakyReLU(0.1), nn.Flatten(), parametrizations.spectral_norm(nn.Linear(144, 3)))).eval(), image, (3,), 1),
    "symmetric": (lambda: Net(straight, net=nn.Sequential(made(lin(6, 6), lambda w: w.triu() + w.triu(1).t()), nn.Tanh(), made(lin(6, 3), lambda w: w.exp() / w.exp().sum(1, keepdim=True)))), vector, (3,), 1),
    "standardised": (lambda: Net(standardised, first=conv(3, 4), second=nn.Conv2d(4, 6, 3, bias=False), gain=one(6, 1, 1, 1), head=lin(6, 3)), image, (3,), 1),
    "hashed_weights": (lambda: Net(hashed_weights, pool=weight(13), places=torch.randint(0, 13, (8, 6)), signs=torch.randint(0, 2, (8, 6)).float() * 2 - 1, head=lin(8, 3)), vector, (3,), 1),
    "circulant": (lambda: Net(circulant, c=weight(6), bias=weight(6), head=lin(6, 3)), vector, (3,), 1),
    "kronecker": (lambda: Net(kronecker, a=weight(2, 4), b=weight(3, 2), head=lin(8, 3)), vector, (3,), 1),
    "butterfly": (lambda: Net(butterfly, factors=nn.ParameterList([weight(4 >> k, 1 << k, 2, 2, scale=0.7) for k in range(3)]), head=lin(8, 3)), vector, (3,), 1),
    "cayley": (lambda: Net(cayley, a=weight(6, 6), head=lin(6, 3)), vector, (3,), 1),
    "householder": (lambda: Net(householder, v=nn.ParameterList([weight(6) for _ in range(3)]), scale=one(6), head=lin(6, 3)), vector, (3,), 1),
    "triangular": (lambda: Net(triangular, l=weight(6, 6), u=weight(6, 6), d=weight(6), head=lin(6, 3)), vector, (3,), 1),
    "monotone": (lambda: Net(monotone, first=lin(6, 8), second=lin(8, 3)), vector, (3,), 1),
    "stochastic": (lambda: Net(stochastic, moves=weight(6, 5), emit=weight(5, 3)), vector, (3,), 1),
    "sparse_masked": (lambda: Net(sparse_masked, first=lin(6, 8), mask=(torch.rand(8, 6) > 0.5).float(), head=lin(8, 3)), vector, (3,), 1),
    "cumulative": (lambda: Net(cumulative, body=mlp(6, 8, 1), start=weight(1), gaps=weight(3)), vector, (4,), 1),
    "shared_transposed": (lambda: Net(shared_transposed, w=weight(8, 6), b=weight(8), c=weight(6), mix=P(torch.tensor(0.3))), vector, (3,), 1),
    "lora": (lambda: Net(lora, base=L([lin(6, 8), lin(8, 3)]), down=nn.ParameterList([weight(2, 6), weight(2, 8)]), up=nn.ParameterList([weight(8, 2), weight(3, 2)])), vector, (3,), 1),
    "dora": (lambda: Net(dora, base=lin(6, 8), down=weight(2, 6), up=weight(8, 2), m=one(8, 1), head=lin(8, 3)), vector, (3,), 1),
    "scaled_by_elements": (lambda: Net(scaled_by_elements, attend=nn.MultiheadAttention(8, 2), lk=one(4), lv=one(4), lo=one(8), head=lin(8, 3)), lambda b: {"x": pixels(b, 5, 8)}, (3,), 1),
    "complex_layers": (lambda: Net(complex_layers, re=weight(3, 4), im=weight(3, 4), head=lin(12, 3)), vector, (3,), 1),
    "spectral_operator": (lambda: Net(spectral_operator, lift=lin(1, 3), modes=weight(3, 3, 4, 2), skip=nn.Conv1d(3, 3, 1), head=lin(36, 3)), series, (3,), 1),
    "spectrum": (lambda: Net(spectrum, head=mlp(17, 8, 3)), wave, (3,), 1),
    "plane": (lambda: Net(plane, scale=one(3), head=lin(3, 3)), image, (3,), 1),
    "turned": (lambda: Net(turned, table=nn.Embedding(11, 8), q=lin(8, 8), k=lin(8, 8), head=lin(8, 11)), tokens, (6, 11), 2),
    "holographic": (lambda: Net(holographic, table=nn.Embedding(11, 8), head=lin(8, 3)), tokens, (3,), 1),
    "packed": (lambda: Net(packed, lstm=nn.LSTM(5, 4, 2, batch_first=True, bidirectional=True), head=lin(8, 3)), lengths, (3,), 1),
    "packed_last": (lambda: Net(packed_last, gru=nn.GRU(5, 4, 1, batch_first=True, bidirectional=True), head=lin(8, 3)), lengths, (3,), 1),
    "masked_mean": (lambda: Net(masked_mean, lstm=nn.LSTM(5, 4, batch_first=True), head=lin(4, 3)), any_lengths, (3,), 1),
    "last_step": (lambda: Net(last_step, gru=nn.GRU(5, 4, batch_first=True), head=lin(4, 3)), any_lengths, (3,), 1),
    "reversed_by_length": (lambda: Net(reversed_by_length, forth=nn.LSTM(5, 4, batch_first=True), back=nn.LSTM(5, 4, batch_first=True), head=lin(4, 3)), any_lengths, (7, 3), 2),
    "key_padding": (lambda: Net(key_padding, up=lin(5, 8), encoder=nn.TransformerEncoderLayer(8, 2, 12, 0.0, batch_first=True), head=lin(8, 3)), any_lengths, (3,), 1),
    "time_first": (lambda: Net(time_first, lstm=nn.LSTM(5, 8), encoder=nn.TransformerEncoderLayer(8, 2, 12, 0.0), head=lin(8, 3)), steps, (8, 3), 2),
    "projected_lstm": (lambda: Net(projected_lstm, lstm=nn.LSTM(5, 6, 1, batch_first=True, proj_size=3), head=lin(12, 3)), steps, (3,), 1),
    "seq2seq": (lambda: Net(seq2seq, encoder=nn.GRU(5, 6, batch_first=True), decoder=nn.GRUCell(2, 6), head=lin(6, 2)), steps, (4, 2), 0),
    "zoneout": (lambda: Net(zoneout, wi=lin(5, 16), wh=lin(4, 16, bias=False), n1=nn.LayerNorm(16), n2=nn.LayerNorm(16), n3=nn.LayerNorm(4), head=lin(4, 3)), steps, (3,), 1),
    "checkpointed": (lambda: Net(checkpointed, blocks=L([mlp(6, 8, 6), mlp(6, 8, 6)]), head=lin(6, 3)), vector, (3,), 1),
    "checkpointed_again": (lambda: Net(checkpointed_again, first=conv(3, 4), blocks=L([nn.Sequential(conv(4, 4), nn.ReLU())]), head=lin(4, 3)), image, (3,), 1),
    "two_tasks": (lambda: Net(two_tasks, body=mlp(6, 8, 5), a=lin(5, 3), b=lin(8, 4), scale=P(torch.tensor(0.1))), vector, (3,), 1),
    "uncertainty": (lambda: Net(uncertainty, body=mlp(6, 8, 5), a=lin(5, 3), b=lin(5, 2), log_var=P(torch.tensor([0.1, -0.2]))), lambda b: vector(b) | {"y2": pixels(b, 2)}, (3,), 1),
    "queue": (lambda: Net(queue, body=mlp(6, 8, 4), queue=F.normalize(torch.randn(5, 4), dim=1)), lambda b: vector(b) | {"key": pixels(b, 6)}, None, 0),
    "bootstrap": (lambda: Net(bootstrap, body=mlp(6, 8, 4), predict=mlp(4, 6, 4), teacher=mlp(6, 8, 4).requires_grad_(False)), lambda b: vector(b) | {"key": pixels(b, 6)}, None, 0),
    "early_exits": (lambda: Net(early_exits, blocks=L([lin(6, 6) for _ in range(3)]), heads=L([lin(6, 3) for _ in range(3)]), mix=weight(3)), vector, (3,), 1),
    "pooled_by_mask": (lambda: Net(pooled_by_mask, gate=conv(3, 2, 1), body=conv(3, 4), head=lin(8, 3)), image, (3,), 1),
    "cached": (lambda: Net(cached, table=nn.Embedding(11, 8), qkv=lin(8, 24), head=lin(8, 11)), tokens, (6, 11), 2),
    "preallocated": (lambda: Net(preallocated, table=nn.Embedding(11, 8), q=lin(8, 8), k=lin(8, 8), v=lin(8, 8), head=lin(8, 11)), tokens, (6, 11), 2),
    "thresholds": (lambda: Net(thresholds, body=lin(6, 8), t=P(torch.rand(8) * 0.3), head=lin(8, 3)), vector, (3,), 1),
    "unrolled_prox": (lambda: Net(unrolled_prox, w=lin(6, 8, bias=False), s=lin(8, 8, bias=False), t=P(torch.rand(3, 8) * 0.2), d=weight(8, 6)), vector, (6,), 0),
    "implicit_step": (lambda: Net(implicit_step, a=weight(4, 5), b=weight(6, 5), rate=P(torch.tensor(0.2))), vector, (4,), 0),
    "energy": (lambda: Net(energy, net=mlp(6, 8, 4)), vector, None, 0),
    "pixel_norm": (lambda: Net(pixel_norm, convs=L([conv(3, 4), conv(4, 4)]), head=lin(5, 3)), image, (3,), 1),
    "ghost_batches": (lambda: Net(ghost_batches, first=lin(6, 8), norm=nn.LayerNorm(8), head=lin(8, 3)), vector, (3,), 1),
    "conditional_norm": (lambda: Net(conditional_norm, first=conv(3, 4), mean=torch.randn(4) * 0.1, var=torch.rand(4) + 0.5, embed=nn.Embedding(5, 8), head=lin(4, 3)), lambda b: image(b) | {"label": classes(5, b)}, (3,), 1),
    "volume_sampled": (lambda: Net(volume_sampled, lift=conv(3, 4), head=lin(4, 3)), lambda b: image(b) | {"grid": pixels(b, 2, 3, 4, 3)}, (3,), 1),
    "wavelets": (lambda: Net(wavelets, p=P(torch.tensor([0.9])), u=P(torch.tensor([0.4])), head=lin(32, 3)), wave, (3,), 1),
    "grouped_rows": (lambda: Net(grouped_rows, proj=lin(6, 12), head=lin(10, 3)), vector, (3,), 1),
}
SIDES = ("two_tasks", "uncertainty")


def cases():
    return two_styles(lambda name, again: drawn(name, STRAY[name], again, side=name in SIDES, frozen=("base", "attend") if name in ("lora", "scaled_by_elements") else ()), STRAY)
