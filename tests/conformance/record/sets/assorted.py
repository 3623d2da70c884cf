"""Whole networks that each combine several unusual parts, as an outside evaluator would assemble them. Here images, volumes, sets and graphs:
normalizations that are called twice, nodes and edges given with a batch, samples stacked in one input, volumes of small extents. Sequences,
tables and objectives are in assorted_series.py. Up to two styles of each (`everyday_STYLES`), as in everyday.py. Nothing is kept in
`recorded/` except cases that found a bug."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

from case import classes, pixels
from sets.everyday import styles
from sets.families import Net, weight
from sets.further import L, conv, conv1, image, lin, mlp

B1, B2, B3 = nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d
odd = lambda b: {"x": pixels(b, 3, 7, 9)}
views = lambda b: {"x": pixels(b, 3, 2, 6, 6)}
bags = lambda b: {"x": pixels(b, 5, 1, 6, 6), "count": 1 + classes(5, b)}
clip = lambda b: {"x": pixels(b, 4, 2, 6, 6)}
graph = lambda b: {"x": pixels(b, 6, 4), "edges": torch.stack([classes(6, b, 9), classes(6, b, 9)], 1), "kinds": classes(3, b, 9)}


# Normalizations and weights that are used more than once


def two_branches(s, x, other):
    """One encoder with BatchNorm is called for each image in turn, so its statistics move twice per step."""
    a, b = s.encoder(x), s.encoder(other)
    return s.head(torch.cat([(a - b).abs(), a * b], 1)), F.cosine_similarity(a, b).mean()


def refined(s, x):
    """One residual block, with its normalization, is applied three times; each result has the same head, as deep supervision."""
    h = F.relu(s.stem(x))
    outs = []
    for _ in range(3):
        h = F.relu(h + s.n2(s.c2(F.relu(s.n1(s.c1(h))))))
        outs.append(s.head(h.mean((2, 3))))
    return outs[-1], sum(o.square().mean() for o in outs[:-1])


def normalised_frames(s, x):
    """Frames fold into the batch for a BatchNorm over images, then time into the channels for one over signals."""
    b, t = x.shape[:2]
    h = F.relu(s.n1(s.c1(x.flatten(0, 1))))
    h = h.unflatten(2, (2, 3)).mean((3, 4)).reshape(b, t, -1).transpose(1, 2)
    h = F.relu(s.n2(s.c2(h)))
    return s.head(torch.cat([h.mean(2), h.amax(2), h.var(2)], 1))


def tied_autoencoder(s, x):
    """The decoder uses the transposed filters of the encoder; the code is normalized without a scale."""
    h1 = F.elu(F.conv2d(x, s.w1, s.b1, stride=2, padding=1))
    h2 = F.elu(F.conv2d(h1, s.w2, s.b2, stride=2, padding=1))
    z = s.norm(F.linear(h2.flatten(1), s.code, s.bias))
    h = F.linear(z, s.code.t()).view_as(h2)
    h = F.elu(F.conv_transpose2d(h, s.w2, s.b1, stride=2, padding=1, output_padding=1))
    return F.conv_transpose2d(h, s.w1, s.b0, stride=2, padding=1, output_padding=1), z.square().mean()


def ghosts(s, x):
    """BatchNorm over each half of the channels with the same layer, and an InstanceNorm over the rest (IBN)."""
    h = s.first(x)
    a, b, c = h.split([3, 3, 2], 1)
    h = torch.cat([s.batch(a), s.batch(b), s.instance(c)], 1)
    return s.head(F.max_pool2d(F.relu(h), (4, 3), (4, 2)).flatten(1))


# Several images per sample


def views_joined(s, x):
    """Multi-view network: views [sample, view] through one network, maxima over views, and attention among them."""
    b, v = x.shape[:2]
    h = s.encoder(x.view(b * v, *x.shape[2:])).mean((-2, -1)).view(b, v, -1)
    score = torch.einsum("bvd,d->bv", torch.tanh(s.attend(h)), s.query).softmax(1)
    return s.head(torch.cat([h.max(1)[0], (score.unsqueeze(-1) * h).sum(1)], -1)), h.permute(1, 0, 2)[0]


def instances(s, x, count):
    """Attention-based multiple instances, of which only the first `count` are valid; gated attention."""
    b, n = x.shape[:2]
    h = s.encoder(x.flatten(0, 1)).flatten(1).unflatten(0, (b, n))
    valid = torch.arange(n)[None, :] < count[:, None]
    a = s.score(torch.tanh(s.v(h)) * torch.sigmoid(s.u(h))).squeeze(-1).masked_fill(~valid, float("-inf")).softmax(1)
    m = torch.bmm(a[:, None], h)[:, 0]
    return s.head(m), s.each(h).squeeze(-1).masked_fill(~valid, 0.0)


def episodes(s, x, labels):
    """Prototypical network in episodes: each sample is an episode of support and query images; prototypes by one-hot products."""
    b = x.shape[0]
    h = s.encoder(x.reshape(-1, 2, 6, 6)).view(b, 6, -1)
    support, query = h[:, :4], h[:, 4:]
    hot = F.one_hot(labels, 2).to(h.dtype)
    proto = torch.einsum("bnc,bnd->bcd", hot, support) / hot.sum(1).clamp(min=1).unsqueeze(-1)
    return -torch.cdist(query, proto).square() * s.scale.exp()


def relation_scores(s, x):
    """Relation network over all pairs of frames: both sides are expanded and concatenated."""
    b, t = x.shape[:2]
    h = F.relu(s.encoder(x.flatten(0, 1)))
    h = h.view(b, t, *h.shape[1:])
    both = torch.cat([h.unsqueeze(1).expand(-1, t, -1, -1, -1, -1), h.unsqueeze(2).expand(-1, -1, t, -1, -1, -1)], 3)
    r = s.compare(both.reshape(b * t * t, *both.shape[3:])).mean((2, 3)).view(b, t, t)
    return (r + r.transpose(1, 2)) / 2


def moving_average(s, x):
    """ConvGRU over frames with a reset per sample, and a deconvolved forecast of the next two frames."""
    h = x.new_zeros(x.size(0), 4, 6, 6)
    for t in range(x.size(1)):
        z, r = torch.sigmoid(s.gates(torch.cat([x[:, t], h], 1))).chunk(2, 1)
        h = (1 - z) * h + z * torch.tanh(s.new(torch.cat([x[:, t], r * h], 1)))
    out = []
    for _ in range(2):
        y = s.frame(h)
        z, r = torch.sigmoid(s.gates(torch.cat([y, h], 1))).chunk(2, 1)
        h = (1 - z) * h + z * torch.tanh(s.new(torch.cat([y, r * h], 1)))
        out.append(y)
    return torch.stack(out, 1)


# Generators and flows


def denoiser(s, x, t, label):
    """A U-Net with time and class embeddings, scale and shift after GroupNorm, attention in the middle, and v-prediction weights."""
    freq = torch.exp(-math.log(100.0) * torch.arange(4) / 4)
    a = t.float()[:, None] * freq[None]
    e = s.time(torch.cat([a.sin(), a.cos()], -1)) + s.label(label)
    h = s.first(x)
    skips = [h]
    for block, down, film in zip(s.downs, s.pools, s.films):
        scale, shift = film(e)[:, :, None, None].chunk(2, 1)
        h = h + block(F.silu(s.norm(h) * (1 + scale) + shift))
        skips.append(h)
        h = down(h)
    b, c, p, q = h.shape
    query, key, value = s.qkv(h).reshape(b, 3, 2, c // 2, p * q).unbind(1)
    w = torch.einsum("bhci,bhcj->bhij", query, key).mul((c // 2) ** -0.5).softmax(-1)
    h = h + s.out(torch.einsum("bhij,bhcj->bhci", w, value).reshape(b, c, p, q))
    for up in s.ups:
        h = up(torch.cat([F.interpolate(h, size=skips[-1].shape[-2:], mode="nearest"), skips.pop()], 1))
    return s.last(h) * s.snr[t].view(-1, 1, 1, 1)


def glow(s, x):
    """Actnorm, an invertible product in LU form and an affine coupling, twice; the log determinants of all are one loss."""
    b, c, h, w = x.shape
    z = F.pixel_unshuffle(x, 2)
    total = 0.0
    for k in range(2):
        z = (z + s.shift[k].view(1, -1, 1, 1)) * s.logs[k].exp().view(1, -1, 1, 1)
        low = s.low[k].tril(-1) + torch.eye(4)
        up = s.up[k].triu(1) + torch.eye(4) * (s.sign * s.diag[k].exp())
        z = F.conv2d(z, (s.perm @ low @ up).view(4, 4, 1, 1))
        a, d = z.chunk(2, 1)
        scale, shift = s.nets[k](a)[:, 0::2], s.nets[k](a)[:, 1::2]
        scale = torch.sigmoid(scale + 2.0)
        z = torch.cat([a, (d + shift) * scale], 1)
        total = total + (h // 2) * (w // 2) * (s.logs[k].sum() + s.diag[k].sum()) + scale.log().sum((1, 2, 3))
    return 0.5 * (z.square() + math.log(2 * math.pi)).sum((1, 2, 3)) - total


def pixels_in_order(s, x):
    """PixelCNN: masked filters, gates, a conditioning vector, and a distribution over 4 levels at each pixel."""
    h = F.conv2d(x, s.first * s.mask_a, padding=2)
    for v, g, m in zip(s.filters, s.conditions, s.mixes):
        a, b = (F.conv2d(h, v * s.mask_b, padding=1) + g(x.mean((1, 2, 3), keepdim=True))).chunk(2, 1)
        h = h + m(torch.tanh(a) * torch.sigmoid(b))
    return s.head(F.elu(h))


def variational(s, x, noise, label):
    """A conditional VAE with a product of two experts, KL with free bits, and a discretized logistic likelihood."""
    e = torch.cat([s.encode(x.flatten(1)), s.label(label)], 1)
    m1, v1, m2, v2 = s.heads(e).chunk(4, 1)
    p1, p2 = torch.exp(-v1), torch.exp(-v2)
    var = 1 / (1 + p1 + p2)
    mean = var * (m1 * p1 + m2 * p2)
    z = mean + var.sqrt() * noise
    mu, log_scale = s.decode(torch.cat([z, s.label(label)], 1)).view(-1, 2, 36).unbind(1)
    inv = torch.exp(-log_scale.clamp(min=-4))
    plus, minus = torch.sigmoid(inv * (x.flatten(1) - mu + 0.1)), torch.sigmoid(inv * (x.flatten(1) - mu - 0.1))
    nll = -(plus - minus).clamp(min=1e-6).log().sum(1)
    kl = (0.5 * (mean.square() + var - var.log() - 1)).mean(0).clamp(min=0.05).sum()
    return mu, nll.mean() / 36 + kl


def two_heads(s, x, noise):
    """A generator and its critic in one graph: hinge terms for real and made images, and a minibatch deviation as one more channel."""
    made = torch.tanh(s.generate(s.project(noise).view(-1, 4, 4, 4)))
    h = s.critic(torch.cat([x, made]))
    g = h.view(2, -1, *h.shape[1:])
    spread = (g - g.mean(1, keepdim=True)).square().mean(1).add(1e-6).sqrt().mean((1, 2, 3))
    extra = spread.view(2, 1, 1, 1, 1).expand(-1, g.shape[1], 1, *h.shape[2:])
    real, fake = s.score(torch.cat([g, extra], 2).flatten(0, 1)).mean((1, 2, 3)).chunk(2)
    return F.relu(1 - real).mean() + F.relu(1 + fake).mean(), -fake


# Volumes and places


def gated_volume(s, x):
    """A 3D U-Net with attention gates, uneven strides, and supervision at two depths."""
    a = F.leaky_relu(s.n1(s.c1(x)))
    b = F.leaky_relu(s.n2(s.c2(a)))
    up = s.up(b)
    gate = torch.sigmoid(s.psi(F.relu(s.wa(a) + s.wg(F.interpolate(b, size=a.shape[2:], mode="trilinear", align_corners=False)))))
    return s.last(torch.cat([up, a * gate], 1)), F.interpolate(s.deep(b), scale_factor=(1, 2, 2), mode="nearest")


def looked_up(s, x, other):
    """RAFT: all-pairs correlation in two levels, looked up around the current flow with grid_sample, for two rounds."""
    f, g = s.features(x), s.features(other)
    b, c, h, w = f.shape
    corr = torch.einsum("bcij,bckl->bijkl", f, g).view(b * h * w, 1, h, w) / math.sqrt(c)
    levels = [corr, F.avg_pool2d(corr, 2)]
    ys, xs = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
    start = torch.stack([xs, ys], -1).float()[None].repeat(b, 1, 1, 1)
    around = torch.stack(torch.meshgrid(torch.arange(-1, 2), torch.arange(-1, 2), indexing="ij"), -1).float().view(1, 3, 3, 2)
    at, state = start, torch.tanh(s.context(x))
    for _ in range(2):
        found = []
        for k, level in enumerate(levels):
            place = at.reshape(b * h * w, 1, 1, 2) / 2**k + around
            found.append(F.grid_sample(level, place * (2.0 / (level.shape[-1] - 1)) - 1, align_corners=True).view(b, h, w, -1))
        state = torch.tanh(s.update(torch.cat([torch.cat(found, -1).permute(0, 3, 1, 2), (at - start).permute(0, 3, 1, 2), state], 1)))
        at = at + s.delta(state).permute(0, 2, 3, 1)
    return (at - start).permute(0, 3, 1, 2)


def peaks(s, x, at, kept):
    """CenterNet: a heat map with a focal loss, and offsets gathered at given pixels with a mask."""
    h = F.relu(s.first(x))
    heat, size = torch.sigmoid(s.heat(h)).clamp(1e-4, 1 - 1e-4), s.size(h)
    flat = size.view(size.size(0), 2, -1).permute(0, 2, 1).contiguous()
    found = flat.gather(1, at.unsqueeze(2).expand(at.size(0), at.size(1), 2))
    truth = torch.zeros(x.size(0), heat[0].numel()).scatter(1, at, kept).view_as(heat)
    pos, neg = truth.eq(1).float(), truth.lt(1).float()
    loss = -(heat.log() * (1 - heat) ** 2 * pos).sum() - ((1 - heat).log() * heat**2 * (1 - truth) ** 4 * neg).sum()
    return found * kept.unsqueeze(-1), loss / pos.sum().clamp(min=1)


def rendered(s, x, origin, way):
    """NeRF: points along rays, sines of positions, densities turned into weights by products, a white background."""
    t = torch.linspace(0.2, 2.0, 6)
    points = origin[:, None] + way[:, None] * t[None, :, None]
    enc = torch.cat([points] + [f(points * 2.0**k) for k in range(3) for f in (torch.sin, torch.cos)], -1)
    h = s.body(torch.cat([enc, s.look(x)[:, None].expand(-1, 6, -1)], -1))
    density, color = F.softplus(h[..., :1] - 1), torch.sigmoid(s.color(torch.cat([h[..., 1:], F.normalize(way, dim=-1)[:, None].expand(-1, 6, -1)], -1)))
    step = torch.cat([t[1:] - t[:-1], torch.tensor([1e2])])[None, :, None]
    alpha = 1 - torch.exp(-density * step)
    left = torch.cat([torch.ones_like(alpha[:, :1]), (1 - alpha).clamp(min=1e-6)], 1)
    seen = left.log().cumsum(1).exp()[:, :-1]
    w = alpha * seen
    return (w * color).sum(1) + (1 - w.sum(1)), (w[..., 0] * t).sum(1)


def pyramid_pools(s, x):
    """PSP over an odd size: windows that do not divide it, the last ones cut off."""
    h = F.relu(s.first(x))
    parts = [h] + [F.interpolate(F.relu(n(c(F.avg_pool2d(h, k, ceil_mode=True)))), h.shape[-2:], mode="bilinear", align_corners=True) for k, c, n in zip((7, 4, 3), s.convs, s.norms)]
    return s.head(torch.cat(parts, 1)), s.aux(h)


# Graphs given with the batch


def messages(s, x, edges, kinds):
    """Messages along given edges, with a relation each, summed by scatter_add; attention per target by scatter_reduce; a gated update."""
    b, n, d = x.shape
    source, target = edges[:, 0], edges[:, 1]
    for _ in range(2):
        h = torch.cat([torch.gather(x, 1, source[..., None].expand(-1, -1, d)), torch.gather(x, 1, target[..., None].expand(-1, -1, d)), s.kinds(kinds)], -1)
        score = F.leaky_relu(s.score(h).squeeze(-1))
        top = torch.full((b, n), -1e9).scatter_reduce(1, target, score, "amax")
        e = (score - top.gather(1, target)).exp()
        share = e / torch.zeros(b, n).scatter_add(1, target, e).gather(1, target).clamp(min=1e-9)
        m = torch.zeros(b, n, d).scatter_add(1, target[..., None].expand(-1, -1, d), s.message(h) * share[..., None])
        z, r = torch.sigmoid(s.gates(torch.cat([m, x], -1))).split(d, -1)
        x = z * x + (1 - z) * torch.tanh(s.new(torch.cat([m, r * x], -1)))
    return s.head(x.mean(1))


def joined_graphs(s, x, edges, kinds):
    """The same edges, with the nodes of all graphs numbered through (torch-geometric's batches), scatter_add and a sorted readout."""
    b, n, d = x.shape
    place = (edges + torch.arange(b).view(b, 1, 1) * n).permute(1, 0, 2).reshape(2, -1)
    h = x.reshape(b * n, d)
    for layer, norm in zip(s.layers, s.norms):
        m = layer(torch.cat([h[place[0]], s.kinds(kinds).reshape(-1, 3)], -1))
        count = torch.zeros(b * n).scatter_add(0, place[1], torch.ones(place.shape[1])).clamp(min=1)
        h = F.relu(norm(h + torch.zeros(b * n, d).scatter_add(0, place[1][:, None].expand(-1, d), m) / count[:, None]))
    owner = torch.arange(b)[:, None].expand(b, n).reshape(-1)
    return s.head(torch.zeros(b, d).scatter_add(0, owner[:, None].expand(-1, d), h))


def joined_graphs_added(s, x, edges, kinds):
    """The same with index_add."""
    b, n, d = x.shape
    place = (edges + torch.arange(b).view(b, 1, 1) * n).permute(1, 0, 2).reshape(2, -1)
    h = x.reshape(b * n, d)
    for layer, norm in zip(s.layers, s.norms):
        m = layer(torch.cat([h[place[0]], s.kinds(kinds).reshape(-1, 3)], -1))
        h = F.relu(norm(h + torch.zeros(b * n, d).index_add(0, place[1], m)))
    return s.head(h.view(b, n, d).sum(1))


def continuous_filters(s, x, z):
    """SchNet: distances in Gaussians, filters from them, a cosine cutoff, and a sum over atoms of two elements."""
    gap = (x[:, :, None] - x[:, None]).square().sum(-1).add(torch.eye(5)).sqrt()
    rbf = torch.exp(-2.0 * (gap[..., None] - s.centres).square())
    cut = 0.5 * (torch.cos(gap * math.pi / 3) + 1) * (gap < 3) * (1 - torch.eye(5))
    h = s.atoms(z)
    for f, u in zip(s.filters, s.updates):
        h = h + u((f(rbf) * cut[..., None] * h[:, None]).sum(2))
    return s.head(h).squeeze(-1).sum(1, keepdim=True)


def pooled_graph(s, x, edges, kinds):
    """A dense adjacency is made from the edges by index_put, normalized with its degrees, pooled by scores (top-k) and read out."""
    b = x.shape[0]
    a = torch.zeros(b, 6, 6).index_put((torch.arange(b)[:, None].expand(b, 9), edges[:, 0], edges[:, 1]), torch.ones(b, 9))
    a = ((a + a.transpose(1, 2)) > 0).float() + torch.eye(6)
    d = a.sum(-1).rsqrt()
    h = F.relu(s.first((d[:, :, None] * a * d[:, None, :]) @ x)) * s.kinds(kinds).mean(1, keepdim=True)
    score = h @ s.p / s.p.norm()
    top, place = score.topk(3, 1)
    h = h.gather(1, place[..., None].expand(-1, -1, h.shape[-1])) * torch.tanh(top)[..., None]
    sub = a.gather(1, place[..., None].expand(-1, -1, 6)).gather(2, place[:, None].expand(-1, 3, -1))
    h = F.relu(s.second(sub @ h))
    return s.head(torch.cat([h.mean(1), h.amax(1)], -1))


def inducing(s, x):
    """Set transformer: induced attention, pooling by learned seeds, and attention among these."""
    def attend(block, q, k):
        h = q + block["attn"](q, k, k, need_weights=False)[0]
        return block["norm"](h + F.relu(block["ff"](h)))

    h = s.first(x)
    i = attend(s.blocks[0], s.points.expand(x.size(0), -1, -1), h)
    h = attend(s.blocks[1], h, i)
    p = attend(s.blocks[2], s.seeds.repeat(x.size(0), 1, 1), h)
    return s.head(attend(s.blocks[3], p, p).flatten(1))


def routed_capsules(s, x):
    """Capsules with routing by agreement through all gradients, squashed, a margin loss's lengths, and a masked reconstruction."""
    def squash(v):
        n = v.square().sum(-1, keepdim=True)
        return n / (1 + n) * v / (n + 1e-8).sqrt()

    b = x.size(0)
    u = squash(s.primary(F.relu(s.first(x))).view(b, 4, 2, -1).permute(0, 1, 3, 2).reshape(b, -1, 2))
    hat = torch.einsum("nkij,bni->bknj", s.w, u)
    logits = torch.zeros(b, 3, u.size(1))
    for k in range(3):
        v = squash((logits.softmax(1)[..., None] * hat).sum(2))
        logits = logits + (hat * v[:, :, None]).sum(-1)
    length = v.norm(dim=-1)
    return length, s.decode((v * F.one_hot(length.argmax(1), 3).to(v.dtype)[..., None]).flatten(1))


mask5 = lambda kind: torch.ones(5, 5).index_put((torch.tensor([2]), torch.tensor([2])), torch.tensor(1.0 if kind == "b" else 0.0)) * torch.cat([torch.ones(2, 5), torch.tensor([[1.0, 1, 1, 0, 0]]), torch.zeros(2, 5)])
block = lambda: nn.ModuleDict({"attn": nn.MultiheadAttention(8, 2, batch_first=True), "norm": nn.LayerNorm(8), "ff": lin(8, 8)})
encoder = lambda i, o, norm=B2: nn.Sequential(conv(i, o, bias=False), norm(o), nn.ReLU(), nn.AvgPool2d(2))
ASSORTED = {
    "two_branches": (lambda: Net(two_branches, encoder=nn.Sequential(conv(3, 4, bias=False), B2(4), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), lin(16, 6), B1(6)), head=lin(12, 2)), lambda b: {"x": pixels(b, 3, 8, 8), "other": pixels(b, 3, 8, 8)}, [((2,), 1), None]),
    "refined": (lambda: Net(refined, stem=conv(3, 4), c1=conv(4, 4, bias=False), n1=B2(4), c2=conv(4, 4, bias=False), n2=B2(4, momentum=0.3), head=lin(4, 3)), image, [((3,), 1), None]),
    "normalised_frames": (lambda: Net(normalised_frames, c1=conv(2, 4, bias=False), n1=B2(4), c2=conv1(8, 6, bias=False), n2=B1(6, eps=1e-3), head=lin(18, 3)), clip, [((3,), 1)]),
    "tied_autoencoder": (lambda: Net(tied_autoencoder, w1=weight(4, 3, 3, 3), b1=weight(4), w2=weight(5, 4, 3, 3), b2=weight(5), b0=weight(3), code=weight(6, 20), bias=weight(6), norm=nn.LayerNorm(6, elementwise_affine=False)), image, [((3, 8, 8), 0), None]),
    "ghosts": (lambda: Net(ghosts, first=conv(3, 8, stride=2), batch=B2(3), instance=nn.InstanceNorm2d(2, affine=True), head=lin(16, 3)), odd, [((3,), 1)]),
    "views_joined": (lambda: Net(views_joined, encoder=encoder(2, 6), attend=lin(6, 4), query=weight(4), head=lin(12, 3)), views, [((3,), 1), ((6,), 0)]),
    "instances": (lambda: Net(instances, encoder=nn.Sequential(conv(1, 3, stride=2), nn.ReLU()), v=lin(27, 4), u=lin(27, 4), score=lin(4, 1, bias=False), head=lin(27, 2), each=lin(27, 1)), bags, [((2,), 1), ((5,), 0)]),
    "episodes": (lambda: Net(episodes, encoder=nn.Sequential(conv(2, 4, stride=2), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten(), lin(36, 5)), scale=weight(())), lambda b: {"x": pixels(b, 6, 2, 6, 6), "labels": torch.tensor([0, 1, 1, 0]).repeat(b, 1)}, [((2, 2), 2)]),
    "relation_scores": (lambda: Net(relation_scores, encoder=conv(2, 3), compare=nn.Sequential(conv(6, 4, stride=2), nn.ReLU(), conv(4, 1))), clip, [((4, 4), 0)]),
    "moving_average": (lambda: Net(moving_average, gates=conv(6, 8), new=conv(6, 4), frame=conv(4, 2)), clip, [((2, 2, 6, 6), 0)]),
    "denoiser": (lambda: Net(denoiser, time=mlp(8, 12, 8), label=nn.Embedding(5, 8), first=conv(3, 4), downs=L(conv(4, 4) for _ in range(2)), pools=L(conv(4, 4, stride=2) for _ in range(2)), films=L(lin(8, 8) for _ in range(2)), norm=nn.GroupNorm(2, 4, affine=False), qkv=nn.Conv2d(4, 12, 1), out=nn.Conv2d(4, 4, 1), ups=L(conv(8, 4) for _ in range(2)), last=conv(4, 3), snr=torch.linspace(1, 0.2, 10)), lambda b: odd(b) | {"t": classes(10, b), "label": classes(5, b)}, [((3, 7, 9), 0)]),
    "glow": (lambda: Net(glow, shift=weight(2, 4), logs=weight(2, 4), low=weight(2, 4, 4), up=weight(2, 4, 4), diag=weight(2, 4), sign=torch.tensor([1.0, -1, 1, -1]), perm=torch.eye(4)[[2, 0, 3, 1]], nets=L(nn.Sequential(conv(2, 6), nn.ReLU(), conv(6, 4)) for _ in range(2))), lambda b: {"x": pixels(b, 1, 6, 8)}, [None]),
    "pixels_in_order": (lambda: Net(pixels_in_order, first=weight(6, 1, 5, 5), mask_a=mask5("a"), mask_b=mask5("b")[1:4, 1:4], filters=nn.ParameterList([weight(12, 6, 3, 3) for _ in range(2)]), conditions=L(nn.Conv2d(1, 12, 1) for _ in range(2)), mixes=L(nn.Conv2d(6, 6, 1) for _ in range(2)), head=nn.Conv2d(6, 4, 1)), lambda b: {"x": pixels(b, 1, 7, 5)}, [((4, 7, 5), 1)]),
    "variational": (lambda: Net(variational, encode=mlp(36, 12, 8), label=nn.Embedding(3, 3), heads=lin(11, 16), decode=mlp(7, 12, 72)), lambda b: {"x": pixels(b, 1, 6, 6), "noise": pixels(b, 4), "label": classes(3, b)}, [((36,), 0), None]),
    "two_heads": (lambda: Net(two_heads, project=lin(5, 64), generate=nn.ConvTranspose2d(4, 3, 4, 2, 1), critic=nn.Sequential(conv(3, 4, stride=2), nn.LeakyReLU(0.2)), score=conv(5, 1)), lambda b: image(b) | {"noise": pixels(b, 5)}, [None, None]),
    "gated_volume": (lambda: Net(gated_volume, c1=nn.Conv3d(1, 3, 3, padding=1), n1=nn.InstanceNorm3d(3, affine=True), c2=nn.Conv3d(3, 4, (1, 3, 3), (1, 2, 2), (0, 1, 1)), n2=B3(4), up=nn.ConvTranspose3d(4, 3, (1, 2, 2), (1, 2, 2)), psi=nn.Conv3d(2, 1, 1), wa=nn.Conv3d(3, 2, 1), wg=nn.Conv3d(4, 2, 1), last=nn.Conv3d(6, 2, 1), deep=nn.Conv3d(4, 2, 1)), lambda b: {"x": pixels(b, 1, 3, 6, 4)}, [((2, 3, 6, 4), 1), ((2, 3, 6, 4), 0)]),
    "looked_up": (lambda: Net(looked_up, features=conv(3, 4, stride=2), context=conv(3, 4, stride=2), update=conv(24, 4), delta=conv(4, 2)), lambda b: {"x": pixels(b, 3, 8, 8), "other": pixels(b, 3, 8, 8)}, [((2, 4, 4), 0)]),
    "peaks": (lambda: Net(peaks, first=conv(3, 4), heat=nn.Conv2d(4, 1, 1), size=conv(4, 2)), lambda b: {"x": pixels(b, 3, 6, 6), "at": torch.stack([torch.randperm(36)[:3] for _ in range(b)]), "kept": (pixels(b, 3) > -0.5).float()}, [((3, 2), 0), None]),
    "rendered": (lambda: Net(rendered, look=lin(4, 3), body=mlp(24, 16, 9), color=mlp(11, 8, 3)), lambda b: {"x": pixels(b, 4), "origin": pixels(b, 3), "way": pixels(b, 3)}, [((3,), 0), ((), 0)]),
    "pyramid_pools": (lambda: Net(pyramid_pools, first=conv(3, 4, dilation=2, padding=2), convs=L(nn.Conv2d(4, 3, 1, bias=False) for _ in range(3)), norms=L(nn.GroupNorm(1, 3) for _ in range(3)), head=conv(13, 4), aux=nn.Conv2d(4, 4, 1)), odd, [((4, 7, 9), 1), ((4, 7, 9), 1)]),
    "messages": (lambda: Net(messages, kinds=nn.Embedding(3, 3), score=lin(11, 1), message=lin(11, 4), gates=lin(8, 8), new=lin(8, 4), head=lin(4, 3)), graph, [((3,), 1)]),
    "joined_graphs": (lambda: Net(joined_graphs, kinds=nn.Embedding(3, 3), layers=L(lin(7, 4) for _ in range(2)), norms=L(nn.LayerNorm(4) for _ in range(2)), head=lin(4, 3)), graph, [((3,), 1)]),
    "joined_graphs_added": (lambda: Net(joined_graphs_added, kinds=nn.Embedding(3, 3), layers=L(lin(7, 4) for _ in range(2)), norms=L(B1(4) for _ in range(2)), head=lin(4, 3)), graph, [((3,), 1)]),
    "continuous_filters": (lambda: Net(continuous_filters, centres=torch.linspace(0, 3, 5), atoms=nn.Embedding(4, 6), filters=L(mlp(5, 6, 6) for _ in range(2)), updates=L(mlp(6, 6, 6) for _ in range(2)), head=mlp(6, 4, 1)), lambda b: {"x": pixels(b, 5, 3), "z": classes(4, b, 5)}, [((1,), 0)]),
    "pooled_graph": (lambda: Net(pooled_graph, first=lin(4, 5), kinds=nn.Embedding(3, 5), p=weight(5), second=lin(5, 5), head=lin(10, 3)), graph, [((3,), 1)]),
    "inducing": (lambda: Net(inducing, first=lin(3, 8), points=weight(1, 3, 8), seeds=weight(1, 2, 8), blocks=L(block() for _ in range(4)), head=lin(16, 3)), lambda b: {"x": pixels(b, 7, 3)}, [((3,), 1)]),
    "routed_capsules": (lambda: Net(routed_capsules, first=conv(1, 4, padding=0), primary=conv(4, 8, stride=2), w=weight(16, 3, 2, 4), decode=mlp(12, 8, 36)), lambda b: {"x": pixels(b, 1, 6, 6)}, [((3,), 0), ((36,), 0)]),
}


def cases():
    return styles(ASSORTED, oldest=13)
