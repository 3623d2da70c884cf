"""Architectures that people build by hand and that no other set has, each in the default exporter's form and in one more style, with a loss
and a recipe selected by name. Two of these are kept; the rest is recorded when needed."""
import math
import random
import zlib

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils import parametrizations

from case import Case, classes, pixels
from drawing import target, two_styles
from sets import random_nets
from zoo import _folded


class Net(nn.Module):
    """A module of named members and the function that uses them."""

    def __init__(self, forward, **members):
        super().__init__()
        self.run = forward
        for name, member in members.items():
            if isinstance(member, torch.Tensor) and not isinstance(member, nn.Parameter):
                self.register_buffer(name, member)
            else:
                setattr(self, name, member)

    def forward(self, *inputs):
        return self.run(self, *inputs)


def weight(*shape, scale=0.3):
    return nn.Parameter(torch.randn(*shape) * scale)


lin, conv = nn.Linear, lambda i, o, k=3, **options: nn.Conv2d(i, o, k, padding=options.pop("padding", k // 2), **options)
image, vector, steps, tokens = (lambda b: {"x": pixels(b, 3, 8, 8)}), (lambda b: {"x": pixels(b, 6)}), (lambda b: {"x": pixels(b, 6, 5)}), (lambda b: {"x": classes(11, b, 6)})
cloud = lambda b: {"x": pixels(b, 7, 3)}


# Images


def modulated(s, x, style):
    """StyleGAN2: a filter per sample, with the batch as groups."""
    b, c, h, w = x.shape
    scale = s.affine(style).view(b, 1, c, 1, 1) + 1
    filters = s.weight[None] * scale
    filters = filters * torch.rsqrt(filters.square().sum((2, 3, 4), keepdim=True) + 1e-6)
    y = F.conv2d(x.reshape(1, b * c, h, w), filters.view(-1, c, 3, 3), padding=1, groups=b)
    return s.head(F.leaky_relu(y.view(b, -1, h, w) + s.bias[:, None, None], 0.2).mean((2, 3)))


def mixed_filters(s, x):
    """CondConv: each sample mixes a few filters."""
    b, c, h, w = x.shape
    route = torch.sigmoid(s.route(x.mean((2, 3))))
    filters = (route @ s.weight.flatten(1)).view(b * 4, c, 3, 3)
    return s.head(F.relu(F.conv2d(x.reshape(1, b * c, h, w), filters, padding=1, groups=b).view(b, 4, h, w)).mean((2, 3)))


def involution(s, x):
    b, c, h, w = x.shape
    kernel = s.span(F.relu(s.reduce(x))).view(b, 2, 1, 9, h, w)
    patches = F.unfold(x, 3, padding=1).view(b, 2, c // 2, 9, h, w)
    return s.head((kernel * patches).sum(3).reshape(b, c, h, w).mean((2, 3)))


def adaptive_norm(s, x, style):
    scale, shift = s.affine(style)[:, :, None, None].chunk(2, 1)
    y = s.first(x)
    y = (y - y.mean((2, 3), keepdim=True)) / (y.var((2, 3), keepdim=True, unbiased=True) + 1e-5).sqrt()
    return s.head(F.relu(y * (1 + scale) + shift).mean((2, 3)))


def pyramid_pool(s, x):
    y = s.first(x)
    pooled = [F.interpolate(m(F.adaptive_avg_pool2d(y, k)), size=y.shape[2:], mode="bilinear", align_corners=False) for k, m in zip((1, 2, 4), s.levels)]
    return s.head(torch.cat([y, *pooled], 1))


def atrous(s, x):
    y = s.first(x)
    whole = F.interpolate(s.whole(y.mean((2, 3), keepdim=True)), size=y.shape[2:])
    return s.head(torch.cat([F.relu(m(y)) for m in s.branches] + [whole], 1))


def non_local(s, x):
    b, c, h, w = x.shape
    q, k, v = (m(x).flatten(2) for m in (s.q, s.k, s.v))
    return s.head((s.out((v @ (q.transpose(1, 2) @ k).softmax(-1).transpose(1, 2)).view(b, -1, h, w)) + x).mean((2, 3)))


def coordinate(s, x):
    b, c, h, w = x.shape
    rows, columns = x.mean(3, keepdim=True), x.mean(2, keepdim=True).transpose(2, 3)
    y = F.hardswish(s.mix(torch.cat([rows, columns], 2)))
    rows, columns = y.split([h, w], 2)
    return s.head((x * s.rows(rows).sigmoid() * s.columns(columns.transpose(2, 3)).sigmoid()).mean((2, 3)))


def axial(s, x):
    def along(y, m):
        b, c, h, w = y.shape
        z = y.permute(0, 2, 3, 1).reshape(b * h, w, c)
        return m(z, z, z, need_weights=False)[0].view(b, h, w, c).permute(0, 3, 1, 2)

    y = s.first(x)
    y = along(y, s.rows) + along(y.transpose(2, 3), s.columns).transpose(2, 3)
    return s.head(y.mean((2, 3)))


def masked_filters(s, x):
    """PixelCNN."""
    y = F.relu(F.conv2d(x, s.first * s.mask_a, padding=1))
    return s.head(F.relu(F.conv2d(y, s.second * s.mask_b, padding=1)))


def coordinates(s, x):
    b, _, h, w = x.shape
    ys, xs = torch.meshgrid(torch.linspace(-1, 1, h), torch.linspace(-1, 1, w), indexing="ij")
    return s.head(F.relu(s.first(torch.cat([x, torch.stack([ys, xs]).expand(b, -1, -1, -1)], 1))).amax((2, 3)))


def upscaled(s, x):
    y = s.first(x)
    return F.pixel_shuffle(s.up(y + s.body(y) * 0.1), 2) + F.interpolate(x, scale_factor=2, mode="bicubic", align_corners=False)


def blurred(s, x):
    y = F.max_pool2d(F.relu(s.first(x)), 2, 1)
    return s.head(F.conv2d(F.pad(y, (1, 1, 1, 1), "reflect"), s.filter.expand(6, 1, 3, 3), stride=2, groups=6).flatten(1))


def filter_response(s, x):
    y = s.first(x)
    y = y * torch.rsqrt(y.square().mean((2, 3), keepdim=True) + s.eps.abs())
    return s.head(torch.max(s.gamma * y + s.beta, s.tau).mean((2, 3)))


def focus(s, x):
    """YOLO: space to depth, and boxes decoded from a grid."""
    y = torch.cat([x[..., ::2, ::2], x[..., 1::2, ::2], x[..., ::2, 1::2], x[..., 1::2, 1::2]], 1)
    p = s.head(F.silu(s.norm(s.first(y))))
    b, _, h, w = p.shape
    p = p.view(b, 2, 5, h, w).permute(0, 1, 3, 4, 2).sigmoid()
    gy, gx = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
    grid = torch.stack([gx, gy], -1).float()
    return torch.cat([(p[..., :2] * 2 - 0.5 + grid) / h, (p[..., 2:4] * 2) ** 2 * s.anchors[:, None, None], p[..., 4:]], -1).flatten(1, 3)


def volume(s, x):
    y = F.elu(s.norm(s.first(x[:, None].expand(-1, 2, -1, -1, -1))))
    return s.head(F.interpolate(F.elu(s.down(y)), scale_factor=2, mode="trilinear", align_corners=False) + y).mean((3, 4)).flatten(1)


def conv_lstm(s, x):
    h = c = torch.zeros(x.shape[0], 4, 8, 8)
    for t in range(3):
        i, f, o, g = s.gates(torch.cat([x[:, t:t + 1], h], 1)).chunk(4, 1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
    return s.head(h.mean((2, 3)))


# Tables and recommendation


def sparsemax(z):
    ordered = z.sort(-1, descending=True)[0]
    sums = ordered.cumsum(-1)
    k = torch.arange(1, z.shape[-1] + 1, dtype=z.dtype)
    support = (1 + k * ordered > sums).sum(-1, keepdim=True)
    tau = (sums.gather(-1, support - 1) - 1) / support
    return (z - tau).clamp(min=0)


def tabnet(s, x):
    prior, total = torch.ones_like(x), 0
    for attend, transform in zip(s.attends, s.transforms):
        mask = sparsemax(attend(x) * prior)
        prior = prior * (1.3 - mask)
        a, g = transform(mask * x).chunk(2, -1)
        total = total + F.relu(a * g.sigmoid())
    return s.head(total)


def trees(s, x):
    """Soft oblivious trees."""
    choice = s.features.softmax(0)
    split = ((x @ choice.flatten(1)).view(-1, 4, 3) - s.thresholds) * s.temperatures.exp()
    p = torch.stack([split, -split], -1).sigmoid()
    leaves = torch.einsum("bta,btc,btd->btacd", p[:, :, 0], p[:, :, 1], p[:, :, 2]).flatten(2)
    return torch.einsum("btl,tlo->bo", leaves, s.response)


def cross(s, x):
    y = x
    for layer in s.layers:
        y = x * layer(y) + y
    return s.head(torch.cat([y, s.deep(x)], -1))


def interactions(s, x):
    """DLRM: products of each pair of embeddings, below the diagonal."""
    e = torch.stack([t(x[:, i]) for i, t in enumerate(s.tables)], 1)
    pairs = e @ e.transpose(1, 2)
    i, j = torch.tril_indices(4, 4, -1)
    return s.head(torch.cat([pairs[:, i, j], e.flatten(1)], 1))


def interest(s, x):
    """DIN: a history weighted by the candidate; 0 is padding."""
    e = s.table(x)
    candidate, history = e[:, :1].expand(-1, 5, -1), e[:, 1:]
    w = s.attend(torch.cat([candidate, history, candidate - history, candidate * history], -1)).squeeze(-1)
    w = w.masked_fill(x[:, 1:] == 0, -1e9).softmax(-1)
    return s.head(torch.cat([(w[..., None] * history).sum(1), candidate[:, 0]], -1))


def field_tokens(s, x):
    """FT-Transformer."""
    t = x[:, :, None] * s.scale + s.shift
    t = torch.cat([s.cls.expand(x.shape[0], -1, -1), t], 1)
    return s.head(s.body(t)[:, 0])


# Sequences


def wavenet(s, x):
    y, skips = s.first(x.transpose(1, 2)), 0
    for k, (f, g, o) in enumerate(zip(s.filters, s.gates, s.outs)):
        padded = F.pad(y, (2**k, 0))
        z = torch.tanh(f(padded)) * torch.sigmoid(g(padded))
        skips, y = skips + o(z), y + z
    return s.head(F.relu(skips)).mean(-1)


def nbeats(s, x):
    rest, forecast = x, 0
    for block in s.blocks:
        back, fore = block(rest).split([6, 4], -1)
        rest, forecast = rest - back @ s.basis, forecast + fore
    return forecast


def additive(s, x):
    """Bahdanau's attention in a decoder that carries its own states."""
    keys, _ = s.encoder(s.embed(x))
    h, out = keys[:, -1], []
    for _ in range(3):
        score = s.v(torch.tanh(s.k(keys) + s.q(h)[:, None])).softmax(1)
        h = s.cell((score * keys).sum(1), h)
        out.append(s.head(h))
    return torch.stack(out, 1)


def pointer(s, x):
    h, (last, _) = s.encoder(x)
    return s.v(torch.tanh(s.k(h) + s.q(last.transpose(0, 1)))).squeeze(-1)


def state_space(s, x):
    """A selective scan, unrolled."""
    b, t, d = x.shape
    delta, bx, cx = F.softplus(s.delta(x)), s.b(x), s.c(x)
    a = torch.exp(delta[..., None] * -s.a.exp())
    h, ys = torch.zeros(b, d, 4), []
    for k in range(t):
        h = a[:, k] * h + delta[:, k, :, None] * bx[:, k, None] * x[:, k, :, None]
        ys.append((h * cx[:, k, None]).sum(-1))
    return s.head((torch.stack(ys, 1) + x * s.d).mean(1))


def diagonal_kernel(s, x):
    """S4D, as a convolution with its own kernel."""
    t = x.shape[1]
    decay = -s.real.exp()[..., None] * torch.arange(t)
    kernel = (s.c[..., None] * decay.exp() * torch.cos(s.imaginary[..., None] * torch.arange(t))).sum(1)
    y = F.conv1d(F.pad(x.transpose(1, 2), (t - 1, 0)), kernel.flip(-1)[:, None], groups=5)
    return s.head(F.gelu(y).mean(-1))


def retention(s, x):
    q, k, v = (m(x).unflatten(-1, (2, 4)).transpose(1, 2) for m in (s.q, s.k, s.v))
    n = torch.arange(x.shape[1])
    gap = n[:, None] - n
    decay = torch.where(gap >= 0, s.gamma[:, None, None] ** gap.clamp(min=0), 0.0)
    y = ((q @ k.transpose(-1, -2)) * decay) @ v
    return s.head(s.norm(y.transpose(1, 2).reshape(-1, 8)).view(x.shape[0], -1, 8).mean(1))


def random_features(s, x):
    """Performer: positive features of a fixed projection."""
    q, k, v = s.q(x), s.k(x), s.v(x)
    phi = lambda y: torch.exp(y @ s.projection - y.square().sum(-1, keepdim=True) / 2 - (y @ s.projection).amax((-1, -2), keepdim=True)) + 1e-4
    q, k = phi(q * 0.5), phi(k * 0.5)
    return s.head((q @ (k.transpose(1, 2) @ v) / (q @ k.sum(1, keepdim=True).transpose(1, 2))).mean(1))


def low_rank(s, x):
    k, v = s.e @ s.k(x), s.e @ s.v(x)
    return s.head(F.scaled_dot_product_attention(s.q(x), k, v).amax(1))


def convolved(s, x):
    """Conformer's module."""
    y = F.glu(s.up(s.norm(x).transpose(1, 2)), 1)
    return s.head((x + s.down(F.silu(s.batch(s.depthwise(y)))).transpose(1, 2)).mean(1))


def crnn(s, x):
    y = F.relu(s.first(x)).flatten(1, 2).transpose(1, 2)
    return F.log_softmax(s.head(s.rnn(y)[0]), -1)


def joint(s, x):
    """A transducer's lattice."""
    audio, text = s.audio(x[:, :4])[0], s.text(x[:, 4:])[0]
    return s.head(torch.tanh(audio[:, :, None] + text[:, None]))


# Points, graphs, sets


def edge_conv(s, x):
    """DGCNN: the nearest neighbors of each point."""
    d = (x[:, :, None] - x[:, None]).square().sum(-1)
    near = d.topk(3, -1, largest=False)[1]
    other = torch.gather(x[:, None].expand(-1, 7, -1, -1), 2, near[..., None].expand(-1, -1, -1, 3))
    here = x[:, :, None].expand_as(other)
    return s.head(F.leaky_relu(s.mlp(torch.cat([here, other - here], -1)), 0.2).amax(2).amax(1))


def induced(s, x):
    i = s.points.expand(x.shape[0], -1, -1)
    e = s.embed(x)
    h, _ = s.down(i, e, e)
    y, _ = s.up(e, h, h)
    return s.head((y + e).mean(1))


def slots(s, x):
    e = s.norm(s.embed(x))
    k, v, q = s.k(e), s.v(e), s.start.expand(x.shape[0], -1, -1)
    for _ in range(2):
        a = (s.q(q) @ k.transpose(1, 2)).softmax(1) + 1e-6
        q = s.cell(((a / a.sum(-1, keepdim=True)) @ v).flatten(0, 1), q.flatten(0, 1)).view_as(q)
    return s.head(q.flatten(1))


def rendered(s, x):
    """NeRF: positional encoding, densities, light along a ray."""
    t = torch.linspace(0.1, 1, 6)
    points = x[:, None, :3] + t[:, None] * x[:, None, 3:]
    f = (points[..., None] * 2.0 ** torch.arange(3) * math.pi).flatten(-2)
    y = s.mlp(torch.cat([f.sin(), f.cos()], -1))
    alpha = 1 - torch.exp(-F.softplus(y[..., 3]) * 0.15)
    light = torch.cumprod(torch.cat([torch.ones_like(alpha[:, :1]), 1 - alpha + 1e-10], 1), 1)[:, :-1]
    return ((alpha * light)[..., None] * y[..., :3].sigmoid()).sum(1)


def sines(s, x):
    for layer in s.layers:
        x = torch.sin(3 * layer(x))
    return s.head(x)


def operator_net(s, x):
    return torch.einsum("bpk,bpk->bp", s.branch(x)[:, None].expand(-1, 5, -1), s.trunk(s.where.expand(x.shape[0], -1, -1))) + s.bias


def equilibrium(s, x):
    z = torch.zeros(x.shape[0], 8)
    for _ in range(4):
        z = s.norm(torch.tanh(s.inner(z) + s.outer(x)))
    return s.head(z)


def memory(s, x):
    q = s.question(x[:, 0])
    for a, c in zip(s.keys, s.values):
        q = q + ((a(x[:, 1:]) @ q[..., None]).softmax(1) * c(x[:, 1:])).sum(1)
    return s.head(q)


def hopfield(s, x):
    q = s.q(x)
    for _ in range(2):
        q = (2.0 * q @ s.stored.t()).softmax(-1) @ s.stored
    return s.head(q)


def margin(s, x):
    """ArcFace without the label's margin: scaled cosines."""
    return 8 * F.normalize(s.body(x)) @ F.normalize(s.centres).t()


def prototypes(s, x):
    return -torch.cdist(s.body(x)[:, None], s.body(s.support).view(3, 2, -1).mean(1)[None].expand(x.shape[0], -1, -1)).squeeze(1).square()


def variational(s, x, noise):
    mean, log_variance = s.encoder(x).chunk(2, -1)
    return s.decoder(mean + noise * torch.exp(0.5 * log_variance))


def masked_layers(s, x):
    """MADE."""
    return F.linear(F.relu(F.linear(x, s.first * s.mask_in, s.b)), s.second * s.mask_out, s.c)


def gumbel(s, x, noise):
    p = ((s.logits(x) + noise) / 0.7).softmax(-1)
    hard = F.one_hot(p.argmax(-1), 4).float()
    return s.head(hard * p + p)


def adapters(s, x):
    y = s.frozen(x)
    return s.head(F.relu(y + s.up(F.relu(s.down(y))) + (x @ s.a.t() @ s.b.t()) * 0.5))


def batch_as_time(s, x):
    """Batch-first outside, time-first inside, with a learned initial state."""
    y, _ = s.rnn(x.transpose(0, 1), s.start.expand(-1, x.shape[0], -1).contiguous())
    return s.head(y[-1])


def fft_mixed(s, x):
    """A Fourier operator, as products with tables of cosines and sines."""
    re, im = torch.einsum("btd,tk->bkd", x, s.cos), torch.einsum("btd,tk->bkd", x, s.sin)
    a, b = torch.einsum("bkd,kde->bke", re, s.wr) - torch.einsum("bkd,kde->bke", im, s.wi), torch.einsum("bkd,kde->bke", re, s.wi) + torch.einsum("bkd,kde->bke", im, s.wr)
    return s.head(F.gelu(torch.einsum("bke,tk->bte", a, s.cos) + torch.einsum("bke,tk->bte", b, s.sin) + s.skip(x)).mean(1))


def weighted_bins(s, x):
    """A quantile head: ordered bins by construction, and their mean."""
    width = F.softplus(s.width(x)).cumsum(-1)
    return torch.cat([width, (s.bins(x).softmax(-1) * width).sum(-1, keepdim=True), width[:, 1:] - width[:, :-1]], -1)


L = nn.ModuleList
TIMES = torch.arange(6)[:, None] * torch.arange(3) * (2 * math.pi / 6)
triangle = lambda last: torch.tensor([[1, 1, 1], [1, last, 0], [0, 0, 0]]).float()
noisy = lambda n: lambda b: {"x": pixels(b, 6), "noise": pixels(b, n)}
styled_image = lambda c: lambda b: {"x": pixels(b, c, 8, 8), "style": pixels(b, 5)}
ids = lambda n, t: lambda b: {"x": classes(n, b, t)}

# name: (module, its inputs, shape of the output of one sample, class axis)
FAMILIES = {
    "modulated_filters": (lambda: Net(modulated, affine=lin(5, 3), weight=weight(4, 3, 3, 3), bias=weight(4), head=lin(4, 3)), styled_image(3), (3,), 1),
    "mixed_filters": (lambda: Net(mixed_filters, route=lin(3, 3), weight=weight(3, 4, 3, 3, 3), head=lin(4, 3)), image, (3,), 1),
    "involution": (lambda: Net(involution, reduce=conv(4, 2, 1), span=conv(2, 18, 1), head=lin(4, 3)), lambda b: {"x": pixels(b, 4, 8, 8)}, (3,), 1),
    "adaptive_norm": (lambda: Net(adaptive_norm, affine=lin(5, 8), first=conv(3, 4), head=lin(4, 3)), styled_image(3), (3,), 1),
    "pyramid_pool": (lambda: Net(pyramid_pool, first=conv(3, 4), levels=L(conv(4, 2, 1) for _ in range(3)), head=conv(10, 3, 1)), image, (3, 8, 8), 1),
    "atrous": (lambda: Net(atrous, first=conv(3, 4), whole=conv(4, 2, 1), branches=L(conv(4, 2, 3, padding=d, dilation=d) for d in (1, 2, 4)), head=conv(8, 3, 1)), image, (3, 8, 8), 1),
    "non_local": (lambda: Net(non_local, q=conv(3, 4, 1), k=conv(3, 4, 1), v=conv(3, 4, 1), out=conv(4, 3, 1), head=lin(3, 3)), image, (3,), 1),
    "coordinate": (lambda: Net(coordinate, mix=conv(3, 4, 1), rows=conv(4, 3, 1), columns=conv(4, 3, 1), head=lin(3, 3)), image, (3,), 1),
    "axial": (lambda: Net(axial, first=conv(3, 4), rows=nn.MultiheadAttention(4, 2, batch_first=True), columns=nn.MultiheadAttention(4, 2, batch_first=True), head=lin(4, 3)), image, (3,), 1),
    "masked_filters": (lambda: Net(masked_filters, first=weight(6, 3, 3, 3), second=weight(6, 6, 3, 3), mask_a=triangle(0), mask_b=triangle(1), head=conv(6, 4, 1)), image, (4, 8, 8), 1),
    "coordinates": (lambda: Net(coordinates, first=conv(5, 6), head=lin(6, 3)), image, (3,), 1),
    "upscaled": (lambda: Net(upscaled, first=conv(3, 6), body=nn.Sequential(conv(6, 6), nn.ReLU(), conv(6, 6)), up=conv(6, 12)), image, (3, 16, 16), 1),
    "blurred": (lambda: Net(blurred, first=conv(3, 6), filter=torch.tensor([[1.0, 2, 1], [2, 4, 2], [1, 2, 1]]) / 16, head=lin(96, 3)), image, (3,), 1),
    "filter_response": (lambda: Net(filter_response, first=conv(3, 6), eps=weight(1, 6, 1, 1), gamma=weight(1, 6, 1, 1), beta=weight(1, 6, 1, 1), tau=weight(1, 6, 1, 1), head=lin(6, 3)), image, (3,), 1),
    "focus": (lambda: Net(focus, first=conv(12, 6, bias=False), norm=nn.BatchNorm2d(6), head=conv(6, 10, 1), anchors=torch.tensor([[1.0, 2.0], [3.0, 1.5]])), image, (32, 5), 0),
    "volume": (lambda: Net(volume, first=nn.Conv3d(2, 4, 3, padding=1), norm=nn.InstanceNorm3d(4, affine=True), down=nn.Conv3d(4, 4, 2, 2), head=nn.Conv3d(4, 3, 1)), lambda b: {"x": pixels(b, 4, 4, 4)}, (12,), 1),
    "conv_lstm": (lambda: Net(conv_lstm, gates=conv(5, 16), head=lin(4, 3)), image, (3,), 1),
    "tabnet": (lambda: Net(tabnet, attends=L(nn.Sequential(lin(6, 6, bias=False), nn.BatchNorm1d(6)) for _ in range(2)), transforms=L(lin(6, 8) for _ in range(2)), head=lin(4, 3)), vector, (3,), 1),
    "soft_trees": (lambda: Net(trees, features=weight(6, 4, 3), thresholds=weight(4, 3), temperatures=weight(4, 3), response=weight(4, 8, 3)), vector, (3,), 1),
    "cross_net": (lambda: Net(cross, layers=L(lin(6, 6) for _ in range(2)), deep=nn.Sequential(lin(6, 8), nn.ReLU(), nn.Dropout(0.0)), head=lin(14, 3)), vector, (3,), 1),
    "dlrm": (lambda: Net(interactions, tables=L(nn.Embedding(9, 4) for _ in range(4)), head=nn.Sequential(lin(22, 8), nn.ReLU(), lin(8, 1))), ids(9, 4), (1,), 0),
    "interest": (lambda: Net(interest, table=nn.Embedding(9, 4, padding_idx=0), attend=nn.Sequential(lin(16, 8), nn.PReLU(), lin(8, 1)), head=lin(8, 2)), ids(9, 6), (2,), 1),
    "field_tokens": (lambda: Net(field_tokens, scale=weight(6, 8), shift=weight(6, 8), cls=weight(1, 1, 8), body=nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, 0.0, "gelu", batch_first=True, norm_first=True), 1, enable_nested_tensor=False), head=lin(8, 3)), vector, (3,), 1),
    "wavenet": (lambda: Net(wavenet, first=nn.Conv1d(5, 4, 1), filters=L(nn.Conv1d(4, 4, 2, dilation=2**k) for k in range(3)), gates=L(nn.Conv1d(4, 4, 2, dilation=2**k) for k in range(3)), outs=L(nn.Conv1d(4, 4, 1) for _ in range(3)), head=nn.Conv1d(4, 3, 1)), steps, (3,), 1),
    "nbeats": (lambda: Net(nbeats, blocks=L(nn.Sequential(lin(6, 8), nn.ReLU(), lin(8, 10)) for _ in range(3)), basis=torch.eye(6) * 0.5 + 0.05), vector, (4,), 0),
    "additive_decoder": (lambda: Net(additive, embed=nn.Embedding(11, 5), encoder=nn.GRU(5, 6, batch_first=True), k=lin(6, 4, bias=False), q=lin(6, 4), v=lin(4, 1, bias=False), cell=nn.GRUCell(6, 6), head=lin(6, 7)), tokens, (3, 7), 2),
    "pointer": (lambda: Net(pointer, encoder=nn.LSTM(5, 6, batch_first=True), k=lin(6, 4), q=lin(6, 4, bias=False), v=lin(4, 1)), steps, (6,), 1),
    "state_space": (lambda: Net(state_space, delta=lin(5, 5), b=lin(5, 4), c=lin(5, 4), a=weight(5, 4), d=weight(5), head=lin(5, 3)), steps, (3,), 1),
    "diagonal_kernel": (lambda: Net(diagonal_kernel, real=weight(5, 3), imaginary=weight(5, 3, scale=1.0), c=weight(5, 3), head=lin(5, 3)), steps, (3,), 1),
    "retention": (lambda: Net(retention, q=lin(5, 8), k=lin(5, 8), v=lin(5, 8), gamma=torch.tensor([0.9, 0.75]), norm=nn.GroupNorm(2, 8), head=lin(8, 3)), steps, (3,), 1),
    "performer": (lambda: Net(random_features, q=lin(5, 4), k=lin(5, 4), v=lin(5, 4), projection=torch.randn(4, 6), head=lin(4, 3)), steps, (3,), 1),
    "linformer": (lambda: Net(low_rank, e=weight(3, 6), q=lin(5, 4), k=lin(5, 4), v=lin(5, 4), head=lin(4, 3)), steps, (3,), 1),
    "conformer_module": (lambda: Net(convolved, norm=nn.LayerNorm(5), up=nn.Conv1d(5, 10, 1), depthwise=nn.Conv1d(5, 5, 3, padding=1, groups=5, bias=False), batch=nn.BatchNorm1d(5), down=nn.Conv1d(5, 5, 1), head=lin(5, 3)), steps, (3,), 1),
    "crnn": (lambda: Net(crnn, first=nn.Conv2d(3, 4, 3, (2, 1), 1), rnn=nn.LSTM(16, 5, bidirectional=True, batch_first=True), head=lin(10, 7)), image, (8, 7), 2),
    "transducer": (lambda: Net(joint, audio=nn.LSTM(5, 6, batch_first=True), text=nn.GRU(5, 6, batch_first=True), head=lin(6, 4)), steps, (4, 2, 4), 3),
    "edge_conv": (lambda: Net(edge_conv, mlp=nn.Sequential(lin(6, 8), nn.LeakyReLU(), lin(8, 6)), head=lin(6, 3)), cloud, (3,), 1),
    "set_transformer": (lambda: Net(induced, embed=lin(3, 8), points=weight(1, 2, 8), down=nn.MultiheadAttention(8, 2, batch_first=True), up=nn.MultiheadAttention(8, 2, batch_first=True), head=lin(8, 3)), cloud, (3,), 1),
    "slots": (lambda: Net(slots, embed=lin(3, 6), norm=nn.LayerNorm(6), k=lin(6, 6, bias=False), v=lin(6, 6, bias=False), q=lin(6, 6, bias=False), start=weight(1, 2, 6), cell=nn.GRUCell(6, 6), head=lin(12, 3)), cloud, (3,), 1),
    "rendered": (lambda: Net(rendered, mlp=nn.Sequential(lin(18, 8), nn.ReLU(), lin(8, 4))), vector, (3,), 0),
    "sines": (lambda: Net(sines, layers=L([lin(6, 8), lin(8, 8)]), head=lin(8, 2)), vector, (2,), 0),
    "operator_net": (lambda: Net(operator_net, branch=nn.Sequential(lin(6, 8), nn.Tanh(), lin(8, 4)), trunk=nn.Sequential(lin(2, 8), nn.Tanh(), lin(8, 4)), where=torch.rand(1, 5, 2), bias=weight(1)), vector, (5,), 0),
    "equilibrium": (lambda: Net(equilibrium, inner=lin(8, 8, bias=False), outer=lin(6, 8), norm=nn.LayerNorm(8), head=lin(8, 3)), vector, (3,), 1),
    "memory_net": (lambda: Net(memory, question=nn.Embedding(11, 6), keys=L(nn.Embedding(11, 6) for _ in range(2)), values=L(nn.Embedding(11, 6) for _ in range(2)), head=lin(6, 4)), tokens, (4,), 1),
    "hopfield": (lambda: Net(hopfield, q=lin(6, 5), stored=weight(7, 5, scale=1.0), head=lin(5, 3)), vector, (3,), 1),
    "margin": (lambda: Net(margin, body=nn.Sequential(lin(6, 8), nn.BatchNorm1d(8)), centres=weight(4, 8)), vector, (4,), 1),
    "prototypes": (lambda: Net(prototypes, body=nn.Sequential(lin(6, 8), nn.ReLU(), lin(8, 4)), support=torch.randn(6, 6)), vector, (3,), 1),
    "variational": (lambda: Net(variational, encoder=nn.Sequential(lin(6, 8), nn.ReLU(), lin(8, 6)), decoder=nn.Sequential(lin(3, 8), nn.ReLU(), lin(8, 6))), noisy(3), (6,), 0),
    "masked_layers": (lambda: Net(masked_layers, first=weight(8, 6), second=weight(6, 8), b=weight(8), c=weight(6), mask_in=(torch.rand(8, 6) > 0.5).float(), mask_out=(torch.rand(6, 8) > 0.5).float()), vector, (6,), 0),
    "gumbel": (lambda: Net(gumbel, logits=lin(6, 4), head=lin(4, 3)), noisy(4), (3,), 1),
    "adapters": (lambda: Net(adapters, frozen=lin(6, 8), down=lin(8, 2), up=lin(2, 8), a=weight(2, 6), b=weight(8, 2), head=lin(8, 3)), vector, (3,), 1),
    "batch_as_time": (lambda: Net(batch_as_time, rnn=nn.GRU(5, 6, 2), start=weight(2, 1, 6), head=lin(6, 3)), steps, (3,), 1),
    "fourier_operator": (lambda: Net(fft_mixed, cos=TIMES.cos(), sin=TIMES.sin(), wr=weight(3, 5, 5), wi=weight(3, 5, 5), skip=lin(5, 5), head=lin(5, 3)), steps, (3,), 1),
    "weighted_bins": (lambda: Net(weighted_bins, width=lin(6, 4), bins=lin(6, 4)), vector, (8,), 0),
    "spectral_norm": (lambda: nn.Sequential(parametrizations.spectral_norm(conv(3, 4)), nn.LeakyReLU(0.2), nn.Flatten(), parametrizations.spectral_norm(lin(256, 3))).eval(), image, (3,), 1),
    "weight_norm": (lambda: nn.Sequential(parametrizations.weight_norm(conv(3, 4)), nn.ReLU(), nn.Flatten(), parametrizations.weight_norm(lin(256, 3))), image, (3,), 1),
    "orthogonal": (lambda: nn.Sequential(lin(6, 8), nn.Tanh(), parametrizations.orthogonal(lin(8, 8), orthogonal_map="cayley"), lin(8, 3)), vector, (3,), 1),
}


def case(name, again):
    r = random.Random(zlib.crc32(f"{name}{again}".encode()))
    module, inputs, out, axis = FAMILIES[name]
    terms, y = target(r, out, axis)
    options = random_nets.recipe(r)
    if again:
        exporter, optimize = r.choice([("legacy", False), ("dynamo", False), ("dynamo", True), ("legacy", True)])
    else:
        exporter, optimize = "dynamo", True
    if options["optimizer"]["type"] == "lamb" or "groups" in options["optimizer"]:
        optimize = False
    opset = r.choice([18, 18, 20, 22, 23, 25]) if exporter == "dynamo" else r.choice([13, 15, 17, 17, 18, 20])
    mode, dynamic = r.choice(["train", "eval"]), r.random() < (0.2 if exporter == "dynamo" else 0.6)
    folds = optimize and any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in module().modules())
    return Case(f"family_{name}_{exporter}{opset}{'' if optimize else '_plain'}", module, lambda b: inputs(b) | {"y": y(b)}, terms, inputs=tuple(inputs(1)), exporter=exporter, opset=opset, optimize=optimize, mode=mode, dynamic_batch=dynamic,
                semantics=r.choice(["train", "as_graph"]) if mode == "eval" and not folds else "as_graph", batch_size=6, batch_sizes=[6, 6, 6, 6, 6, 4] if r.random() < 0.5 and options["steps"] == 6 else None, may_rest=True,
                as_file=_folded if folds else None, **options)


def cases():
    return two_styles(case, FAMILIES)
