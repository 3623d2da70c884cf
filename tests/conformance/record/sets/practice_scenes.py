"""What is trained in 2026 and no other set has, part two: merged tokens, images of planes and splats, detectors that assign their anchors,
spline flows, molecules, world models with categorical states, waves. One is kept in `recorded/`."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

from case import classes, pixels
from sets.everyday import act, styles
from sets.families import Net, weight
from sets.further import L, conv, conv1, image, lin, mlp, one, steps, vector

cloud = lambda b: {"x": pixels(b, 7, 3)}
wave = lambda b: {"x": pixels(b, 2, 16)}


# Images


def merged_tokens(s, x):
    """ToMe: the most similar pairs of two halves are merged, with their sizes tracked."""
    h = s.embed(x).flatten(2).transpose(1, 2)
    b, n, c = h.shape
    k = F.normalize(h @ s.key, dim=-1)
    score = k[:, ::2] @ k[:, 1::2].transpose(1, 2)
    best, at = score.max(-1)
    order = best.argsort(-1, descending=True)[..., None]
    merged, kept = order[:, :3], order[:, 3:]
    to = at[..., None].gather(1, merged)
    def merge(t):
        src, dst = t[:, ::2], t[:, 1::2]
        stay = src.gather(1, kept.expand(-1, -1, t.size(-1)))
        dst = dst.scatter_reduce(1, to.expand(-1, -1, t.size(-1)), src.gather(1, merged.expand(-1, -1, t.size(-1))), reduce="sum")
        return torch.cat([stay, dst], 1)
    size = merge(torch.ones_like(h[..., :1]))
    h = merge(h) / size
    return s.head((torch.tanh(s.body(h)) * size).sum(1) / n)


def turned_filters(s, x):
    """A group-equivariant network: one filter in four rotations, and the group axis rolled in the second layer."""
    h = F.relu(F.conv2d(x, torch.cat([torch.rot90(s.lift, k, (2, 3)) for k in range(4)], 0), padding=1))
    w = torch.stack([torch.rot90(s.group.roll(k, 2), k, (3, 4)) for k in range(4)], 1)
    h = F.relu(F.conv2d(h, w.reshape(12, -1, 3, 3), padding=1))
    return s.head(h.view(x.size(0), 3, 4, 8, 8).amax(2).mean((2, 3)))


def uncertain_points(s, x):
    """PointRend: the most uncertain points are sampled from fine features and predicted again."""
    f = act(s.fine(x))
    rough = s.rough(F.avg_pool2d(f, 2))
    up = F.interpolate(rough, scale_factor=2, mode="bilinear", align_corners=False)
    top = up.topk(2, 1)[0]
    index = (top[:, 1] - top[:, 0]).flatten(1).topk(6, 1)[1]
    grid = torch.stack([(index % 8 + 0.5) / 4 - 1, (index // 8 + 0.5) / 4 - 1], -1).unsqueeze(2)
    sample = lambda t: F.grid_sample(t, grid, align_corners=False).squeeze(3)
    told = s.point(torch.cat([sample(f), sample(rough)], 1))
    return up.flatten(2).scatter(2, index.unsqueeze(1).expand(-1, 3, -1), told).view_as(up)


def skeletons(s, x, mask):
    """clDice: skeletons by pooling, for prediction and target, with the loss in the file."""
    def thin(t):
        erode = lambda z: torch.min(-F.max_pool2d(-z, (3, 1), 1, (1, 0)), -F.max_pool2d(-z, (1, 3), 1, (0, 1)))
        opened = lambda z: F.max_pool2d(erode(z), 3, 1, 1)
        line = F.relu(t - opened(t))
        for _ in range(2):
            t = erode(t)
            delta = F.relu(t - opened(t))
            line = line + F.relu(delta - line * delta)
        return line
    p = torch.sigmoid(s.last(act(s.body(x))))
    lp, lt = thin(p), thin(mask)
    precision, recall = ((lp * mask).sum() + 1) / (lp.sum() + 1), ((lt * p).sum() + 1) / (lt.sum() + 1)
    return 1 - 2 * precision * recall / (precision + recall)


def soft_places(s, x):
    """Integral pose: the mean position of each heat map, and coordinates as classes."""
    heat = s.heat(act(s.body(x))).flatten(2).softmax(-1).view(-1, 4, 8, 8)
    px, py = (heat.sum(2) * s.line).sum(-1), (heat.sum(3) * s.line).sum(-1)
    var = ((s.line - px.unsqueeze(-1)) ** 2 * heat.sum(2)).sum(-1)
    return torch.stack([px, py, var], -1)


def three_planes(s, x):
    """A triplane field and its rendering: points on rays, density, color, transmittance."""
    origin, way = x[:, :3], F.normalize(x[:, 3:], dim=-1)
    t = torch.linspace(0.1, 1.6, 7)
    p = origin[:, None] + way[:, None] * t[:, None]
    f = 0
    for i, (a, c) in enumerate(((0, 1), (0, 2), (1, 2))):
        grid = p[..., [a, c]].tanh().unsqueeze(0)
        f = f + F.grid_sample(s.planes[i : i + 1], grid, mode="bilinear", padding_mode="border", align_corners=True)[0]
    out = s.net(f.permute(1, 2, 0))
    alpha = 1 - torch.exp(-F.softplus(out[..., 0]) * 0.25)
    clear = torch.cumprod(torch.cat([torch.ones_like(alpha[:, :1]), 1 - alpha + 1e-10], 1), 1)[:, :-1]
    w = alpha * clear
    return torch.cat([(w.unsqueeze(-1) * torch.sigmoid(out[..., 1:])).sum(1), (w * t).sum(1, keepdim=True)], -1)


def splats(s, x):
    """Gaussians in the plane, drawn from front to back by their depth."""
    m = s.net(x).view(-1, 5, 8)
    centre, scale, turn, depth, opacity = m[..., :2].tanh(), m[..., 2:4].exp(), m[..., 4], m[..., 5], m[..., 6].sigmoid()
    order = depth.argsort(1)
    d = s.places[None, None] - centre.unsqueeze(2)
    c, k = turn.cos()[..., None], turn.sin()[..., None]
    u, v = (d[..., 0] * c + d[..., 1] * k) * scale[..., :1], (d[..., 1] * c - d[..., 0] * k) * scale[..., 1:]
    a = opacity.unsqueeze(-1) * torch.exp(-0.5 * (u.square() + v.square()))
    a = a.gather(1, order.unsqueeze(-1).expand_as(a))
    colour = m[..., 7].gather(1, order)
    before = torch.cumprod(1 - a, 1).roll(1, 1)
    before = torch.cat([torch.ones_like(a[:, :1]), before[:, 1:]], 1)
    return (a * before * colour.unsqueeze(-1)).sum(1)


def patches_denoised(s, x, t, label):
    """DiT: adaptive norms initialized to zero, and patches assembled by einsum."""
    b = x.size(0)
    h = s.embed(x).flatten(2).transpose(1, 2) + s.places
    w = torch.exp(-math.log(1e4) * torch.arange(3) / 3)
    args = t[:, None] * w[None]
    c = s.time(torch.cat([args.cos(), args.sin()], -1)) + s.label(label)
    shift, scale, gate, shift2, scale2, gate2 = s.modulate(F.silu(c)).chunk(6, 1)
    n = lambda z, a, k: F.layer_norm(z, (8,)) * (1 + k.unsqueeze(1)) + a.unsqueeze(1)
    q, k, v = s.qkv(n(h, shift, scale)).reshape(b, -1, 3, 2, 4).permute(2, 0, 3, 1, 4).unbind(0)
    h = h + gate.unsqueeze(1) * s.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, -1, 8))
    h = h + gate2.unsqueeze(1) * s.mlp(n(h, shift2, scale2))
    y = s.last(F.layer_norm(h, (8,))).reshape(b, 4, 4, 2, 2, 3)
    return torch.einsum("nhwpqc->nchpwq", y).reshape(b, 3, 8, 8)


def batch_deviation(s, x):
    """StyleGAN's critic: the standard deviation over the batch as an additional feature of each sample."""
    h = F.leaky_relu(s.first(x), 0.2)
    y = (h - h.mean(0, keepdim=True)).square().mean(0).add(1e-8).sqrt()
    y = y.mean().view(1, 1, 1, 1).repeat(h.size(0), 1, h.size(2), h.size(3))
    return s.head(F.leaky_relu(s.second(torch.cat([h, y], 1)), 0.2).mean((2, 3)))


def masked_queries(s, x):
    """Mask2Former: queries attend within the last mask, or everywhere if it is empty."""
    f = act(s.pixel(x))
    memory = f.flatten(2).transpose(1, 2)
    q = s.queries.weight.unsqueeze(0).repeat(x.size(0), 1, 1)
    for layer, out in zip(s.layers, s.out):
        mask = torch.einsum("bqc,bchw->bqhw", s.mask(q), f).flatten(2).sigmoid() < 0.5
        mask = mask & ~mask.all(-1, keepdim=True)
        score = (layer(q) @ memory.transpose(1, 2)).masked_fill(mask, float("-inf"))
        q = F.layer_norm(q + out(score.softmax(-1) @ memory), (6,))
    return torch.einsum("bqk,bqhw->bkhw", s.kind(q).softmax(-1)[..., :-1], torch.einsum("bqc,bchw->bqhw", s.mask(q), f).sigmoid())


def matched_anchors(s, x, box, label):
    """Task-aligned assignment in the file: the best anchors of each box by score and overlap are its positives."""
    y = s.head(act(s.body(x))).flatten(2).transpose(1, 2)
    prob, ltrb = y[..., :3].sigmoid(), F.softplus(y[..., 3:])
    made = torch.cat([s.centres - ltrb[..., :2], s.centres + ltrb[..., 2:]], -1)
    lo, hi = torch.max(made[:, None, :, :2], box[:, :, None, :2]), torch.min(made[:, None, :, 2:], box[:, :, None, 2:])
    inter = (hi - lo).clamp(min=0).prod(-1)
    area = lambda t: (t[..., 2:] - t[..., :2]).prod(-1)
    iou = inter / (area(made)[:, None] + area(box)[:, :, None] - inter + 1e-7)
    own = prob.unsqueeze(1).expand(-1, 2, -1, -1).gather(3, label[:, :, None, None].expand(-1, -1, 16, 1)).squeeze(-1)
    align = own.sqrt() * iou.pow(2)
    positive = torch.zeros_like(align).scatter(2, align.topk(3, -1)[1], 1.0)
    lost = -(positive * (iou + 1e-3).log()).sum() / positive.sum().clamp(min=1)
    return lost + F.binary_cross_entropy(own.flatten(1), positive.flatten(1)) + prob.pow(2).mean()


# Sequences and physics


def spline_flow(s, x):
    """Neural spline flow: bins found by search, a rational quadratic function in each, and its derivative."""
    a, b = x.chunk(2, 1)
    w, h, d = s.net(a).view(-1, 3, 13).split([4, 4, 5], -1)
    w, h, d = w.softmax(-1) * 0.9 + 0.025, h.softmax(-1) * 0.9 + 0.025, F.softplus(d) + 1e-3
    edges = lambda t: F.pad(t.cumsum(-1), (1, 0)) * 4 - 2
    cw, ch = edges(w), edges(h)
    inside = b.clamp(-1.99, 1.99)
    k = (torch.searchsorted(cw.contiguous(), inside.unsqueeze(-1).contiguous(), right=True) - 1).clamp(0, 3)
    pick = lambda t: t.gather(-1, k).squeeze(-1)
    width, height = pick(w * 4), pick(h * 4)
    z = (inside - pick(cw[..., :-1])) / width
    slope, d0, d1 = height / width, pick(d[..., :-1]), pick(d[..., 1:])
    zz = z * (1 - z)
    below = slope + (d0 + d1 - 2 * slope) * zz
    y = pick(ch[..., :-1]) + height * (slope * z.square() + d0 * zz) / below
    log_det = (slope.square() * (d1 * z.square() + 2 * slope * zz + d0 * (1 - z).square())).log() - 2 * below.log()
    y = torch.where((b > -1.99) & (b < 1.99), y, b)
    return torch.cat([a, y], 1) @ s.mix, log_det.sum(-1)


def molecule(s, x, kind):
    """SchNet and PaiNN: radial functions with a smooth cutoff, filters computed from them, vector and scalar features."""
    v = x[:, :, None] - x[:, None]
    dist = (v.square().sum(-1) + 1e-6).sqrt()
    radial = torch.exp(-2 * (dist.unsqueeze(-1) - s.centres) ** 2)
    cut = 0.5 * (torch.cos(math.pi * dist / 3) + 1) * (dist < 3) * (1 - torch.eye(x.size(1)))
    h = s.table(kind)
    w = s.filter(radial) * cut.unsqueeze(-1)
    scalar, along, turn = torch.einsum("bijc,bjc->bijc", w, s.message(h)).chunk(3, -1)
    h = h + scalar.sum(2)
    vectors = torch.einsum("bijc,bijk->bick", along, v / dist.unsqueeze(-1)) + (turn.mean(2) * s.scale).unsqueeze(-1)
    norm = (vectors.square().sum(-1) + 1e-8).sqrt()
    return s.head(F.silu(s.update(torch.cat([h, norm], -1)))).sum((1, 2))


def voxels(s, x, feature):
    """Points are averaged per grid cell, and the grid is convolved."""
    cell = ((x.tanh() + 1) * 1.5).floor().clamp(0, 2).long()
    index = (cell[..., 0] * 9 + cell[..., 1] * 3 + cell[..., 2]).unsqueeze(-1)
    h = s.point(torch.cat([x, feature], -1))
    zero = h.new_zeros(x.size(0), 27, 4)
    mean = zero.scatter_reduce(1, index.expand(-1, -1, 4), h, reduce="mean", include_self=False)
    top = zero.scatter_reduce(1, index.expand(-1, -1, 4), h, reduce="amax", include_self=False)
    grid = torch.cat([mean, top], -1).transpose(1, 2).reshape(-1, 8, 3, 3, 3)
    return s.head(F.relu(s.conv(grid)).flatten(1))


def edge_softmax(s, x, edges):
    """GATv2 with edges per sample: a softmax over the edges into each node."""
    src, dst = edges[..., 0], edges[..., 1]
    take = lambda t, i: t.gather(1, i.unsqueeze(-1).expand(-1, -1, t.size(-1)))
    h = s.body(x)
    e = (F.leaky_relu(take(h, src) + take(h, dst), 0.2) * s.a).sum(-1)
    top = torch.full(x.shape[:2], float("-inf")).scatter_reduce(1, dst, e, "amax").detach()
    w = (e - top.gather(1, dst)).exp()
    total = torch.zeros(x.shape[:2]).scatter_add(1, dst, w)
    w = w / (total.gather(1, dst) + 1e-16)
    out = torch.zeros_like(h).scatter_add(1, dst.unsqueeze(-1).expand(-1, -1, h.size(-1)), w.unsqueeze(-1) * take(h, src))
    return s.head(F.elu(out))


def dreamt(s, x, action):
    """Dreamer: straight-through categories, a recurrent state, prior and posterior, free bits; the objective in the file."""
    h, z = torch.zeros(x.size(0), 6), torch.zeros(x.size(0), 6)
    lost, guess = 0.0, []
    for t in range(4):
        h = s.cell(torch.cat([z, action[:, t]], -1), h)
        prior = s.prior(h).view(-1, 2, 3).log_softmax(-1)
        post = s.post(torch.cat([h, x[:, t]], -1)).view(-1, 2, 3).log_softmax(-1)
        p = post.exp()
        hard = F.one_hot(post.argmax(-1), 3).float()
        z = (hard + p - p.detach()).flatten(1)
        kl = (p * (post - prior)).sum((1, 2))
        lost = lost + torch.clamp(kl, min=0.05)
        guess.append(s.decode(torch.cat([h, z], -1)))
    return torch.stack(guess, 1), lost


def cut_episodes(s, x, done):
    """A recurrent policy whose state is reset where an episode ends."""
    h, c = (t.repeat(x.size(0), 1) for t in (s.h0, s.c0))
    out = []
    for t in range(x.size(1)):
        keep = (~done[:, t]).unsqueeze(-1)
        h, c = s.cell(x[:, t], (h * keep, c * keep))
        out.append(h)
    h = torch.stack(out, 1)
    return s.policy(h), s.value(h).squeeze(-1)


def corrected_returns(s, x, ratio, reward):
    """V-trace, computed backwards; the loss in the file."""
    v = s.value(x).squeeze(-1)
    rho = ratio.exp().clamp(max=1.0)
    following = torch.cat([v[:, 1:], v[:, -1:]], 1)
    delta = rho * (reward + 0.9 * following - v)
    a, back = torch.zeros_like(v[:, 0]), []
    for t in reversed(range(v.size(1))):
        a = delta[:, t] + 0.9 * rho[:, t] * a
        back.insert(0, a)
    target = (v + torch.stack(back, 1)).detach()
    return 0.5 * (target - v).square().sum(1)


def values_as_classes(s, x, y):
    """MuZero: a number between two classes, after a compressing square root."""
    z = y.sign() * ((y.abs() + 1).sqrt() - 1) + 0.001 * y
    z = z.clamp(-3, 3)
    low = z.floor()
    p = z - low
    support = torch.zeros(x.size(0), 7)
    support = support.scatter(1, (low + 3).long().unsqueeze(1), (1 - p).unsqueeze(1))
    support = support.scatter_add(1, (low + 4).clamp(max=6).long().unsqueeze(1), p.unsqueeze(1))
    return -(support * s.net(x).log_softmax(1)).sum(1).mean()


# Signals


def causal_filters(s, x):
    """A TCN: dilated, cropped at the end, with weight norm."""
    h = x
    for k, (c, skip) in enumerate(zip(s.layers, s.skips)):
        pad = 2 * 2**k
        h = F.relu(F.relu(c(F.pad(h, (pad, 0)))) + skip(h))
    return s.head(h[:, :, -1])


def made_waves(s, x):
    """HiFi-GAN: transposed convolutions and dilated residuals, and a loss on both spectra."""
    h = s.pre(x)
    for up, blocks in zip(s.ups, s.blocks):
        h = up(F.leaky_relu(h, 0.1))
        h = sum(b(F.leaky_relu(h, 0.1)) + h for b in blocks) / len(s.blocks[0])
    y = torch.tanh(s.post(F.leaky_relu(h)))
    frames = F.pad(y, (4, 4), mode="reflect").squeeze(1).unfold(-1, 8, 4) * s.window
    return y.flatten(1), (frames @ s.cos).square().add((frames @ s.sin).square()).add(1e-6).log().mean(1)


def folded_patches(s, x):
    """Attention between image patches, assembled by fold where they overlap."""
    p = F.unfold(x, 4, padding=1, stride=2)
    q = s.q(p.transpose(1, 2))
    w = (q @ q.transpose(1, 2) / 3).softmax(-1)
    y = (w @ s.v(p.transpose(1, 2))).transpose(1, 2)
    count = F.fold(F.unfold(torch.ones_like(x), 4, padding=1, stride=2), (8, 8), 4, padding=1, stride=2)
    return s.last(F.fold(y, (8, 8), 4, padding=1, stride=2) / count)


def several_periods(s, x):
    """A wave folded by several periods, and pooled at several rates."""
    out = []
    for p, c in zip((2, 3, 5), s.layers):
        n = x.size(-1)
        h = F.pad(x, (0, (p - n % p) % p), "reflect")
        out.append(F.leaky_relu(c(h.view(x.size(0), 2, -1, p)), 0.1).mean((2, 3)))
    return s.head(torch.cat(out, 1))


def chebyshev(s, x):
    """KAN with Chebyshev polynomials."""
    t = torch.tanh(x)
    t = t.unsqueeze(-1).expand(-1, -1, 5).clamp(-1 + 1e-6, 1 - 1e-6).acos() * torch.arange(5)
    h = torch.einsum("bid,iod->bo", t.cos(), s.c)
    z = torch.tanh(h).unsqueeze(-1) * s.k
    return torch.einsum("bid,iod->bo", torch.cat([z.cos(), z.sin()], -1), s.f) + s.bias


def lookup_free(s, x):
    """LFQ: signs as a code, straight-through, with entropies per sample and overall."""
    z = s.enc(x)
    q = torch.where(z > 0, 1.0, -1.0)
    code = z + (q - z).detach()
    p = torch.stack([torch.sigmoid(-4 * z), torch.sigmoid(4 * z)], -1)
    each, all_of_them = -(p * (p + 1e-6).log()).sum(-1).mean(), p.mean(0)
    index = ((q > 0).long() * s.power).sum(-1)
    return s.dec(code) + s.table(index), (each + (all_of_them * (all_of_them + 1e-6).log()).sum(-1).mean()).view(1).expand(x.size(0))


edges_of = lambda b: {"x": pixels(b, 6, 4), "edges": classes(6, b, 9, 2)}
boxes_of = lambda b: (lambda lo: torch.cat([lo, lo + torch.rand(b, 2, 2) * 3 + 1], -1))(torch.rand(b, 2, 2) * 4)
dct = lambda f: torch.stack([f(torch.arange(8.0) * 2 * math.pi * k / 8) for k in range(5)], 1)
grid8 = torch.stack(torch.meshgrid(torch.arange(4.0) * 2 + 1, torch.arange(4.0) * 2 + 1, indexing="xy"), -1).view(1, 16, 2)
plane6 = torch.stack(torch.meshgrid(torch.linspace(-1, 1, 6), torch.linspace(-1, 1, 6), indexing="ij"), -1).view(36, 2)
normed = nn.utils.parametrizations.weight_norm

SCENES = {
    "merged_tokens": (lambda: Net(merged_tokens, embed=nn.Conv2d(3, 6, 2, 2), key=torch.randn(6, 4), body=lin(6, 6), head=lin(6, 3)), image, [((3,), 1)]),
    "turned_filters": (lambda: Net(turned_filters, lift=weight(3, 3, 3, 3), group=weight(3, 3, 4, 3, 3), head=lin(3, 3)), image, [((3,), 1)]),
    "uncertain_points": (lambda: Net(uncertain_points, fine=conv(3, 4), rough=conv(4, 3), point=nn.Conv1d(7, 3, 1)), image, [((3, 8, 8), 1)]),
    "skeletons": (lambda: Net(skeletons, body=conv(3, 4), last=conv(4, 1)), lambda b: image(b) | {"mask": (torch.rand(b, 1, 8, 8) > 0.5).float()}, [None]),
    "soft_places": (lambda: Net(soft_places, body=conv(3, 5), heat=conv(5, 4), line=torch.linspace(-1, 1, 8)), image, [((4, 3), 0)]),
    "three_planes": (lambda: Net(three_planes, planes=weight(3, 4, 5, 5, scale=1.0), net=mlp(4, 8, 4)), vector, [((4,), 0)]),
    "splats": (lambda: Net(splats, net=lin(6, 40), places=plane6), vector, [((36,), 0)]),
    "patches_denoised": (lambda: Net(patches_denoised, embed=nn.Conv2d(3, 8, 2, 2), places=weight(1, 16, 8), time=mlp(6, 8, 8), label=nn.Embedding(4, 8), modulate=lin(8, 48), qkv=lin(8, 24), out=lin(8, 8), mlp=mlp(8, 12, 8), last=lin(8, 12)), lambda b: image(b) | {"t": classes(100, b), "label": classes(4, b)}, [((3, 8, 8), 0)]),
    "batch_deviation": (lambda: Net(batch_deviation, first=conv(3, 4, stride=2), second=conv(5, 4), head=lin(4, 1)), image, [((1,), 0)]),
    "masked_queries": (lambda: Net(masked_queries, pixel=conv(3, 6, stride=2), queries=nn.Embedding(4, 6), layers=L(lin(6, 6) for _ in range(2)), out=L(lin(6, 6) for _ in range(2)), mask=mlp(6, 6, 6), kind=lin(6, 4)), image, [((3, 4, 4), 0)]),
    "matched_anchors": (lambda: Net(matched_anchors, body=conv(3, 5, stride=2), head=conv(5, 7), centres=grid8), lambda b: image(b) | {"box": boxes_of(b), "label": classes(3, b, 2)}, [None]),
    "spline_flow": (lambda: Net(spline_flow, net=mlp(3, 10, 39), mix=weight(6, 6)), vector, [((6,), 0), None]),
    "molecule": (lambda: Net(molecule, table=nn.Embedding(5, 4), centres=torch.linspace(0, 3, 5), filter=mlp(5, 6, 12), message=mlp(4, 6, 12), scale=weight(4), update=lin(8, 6), head=lin(6, 1)), lambda b: cloud(b) | {"kind": classes(5, b, 7)}, [((), 0)]),
    "voxels": (lambda: Net(voxels, point=lin(5, 4), conv=nn.Conv3d(8, 3, 2), head=lin(24, 3)), lambda b: cloud(b) | {"feature": pixels(b, 7, 2)}, [((3,), 1)]),
    "edge_softmax": (lambda: Net(edge_softmax, body=lin(4, 5), a=weight(5), head=lin(5, 3)), edges_of, [((6, 3), 2)]),
    "dreamt": (lambda: Net(dreamt, cell=nn.GRUCell(8, 6), prior=lin(6, 6), post=lin(11, 6), decode=lin(12, 5)), lambda b: {"x": pixels(b, 4, 5), "action": pixels(b, 4, 2)}, [((4, 5), 0), None]),
    "cut_episodes": (lambda: Net(cut_episodes, h0=weight(1, 5), c0=weight(1, 5), cell=nn.LSTMCell(5, 5), policy=lin(5, 3), value=lin(5, 1)), lambda b: steps(b) | {"done": torch.rand(b, 8) < 0.3}, [((8, 3), 2), ((8,), 0)]),
    "corrected_returns": (lambda: Net(corrected_returns, value=mlp(5, 8, 1)), lambda b: steps(b) | {"ratio": pixels(b, 8), "reward": pixels(b, 8)}, [None]),
    "values_as_classes": (lambda: Net(values_as_classes, net=mlp(6, 8, 7)), lambda b: vector(b) | {"y0": pixels(b) * 3}, [None]),
    "causal_filters": (lambda: Net(causal_filters, layers=L(normed(nn.Conv1d(a, 4, 3, dilation=2**k)) for k, a in enumerate((2, 4, 4))), skips=L(nn.Conv1d(a, 4, 1) for a in (2, 4, 4)), head=lin(4, 3)), wave, [((3,), 1)]),
    "made_waves": (lambda: Net(made_waves, pre=conv1(2, 6, 7), ups=L([nn.ConvTranspose1d(6, 4, 4, 2, 1), nn.ConvTranspose1d(4, 3, 5, 2, 2, output_padding=1)]), blocks=L(L(nn.Conv1d(c, c, 3, dilation=d, padding=d) for d in (1, 3)) for c in (4, 3)), post=conv1(3, 1, 7), window=torch.hann_window(8), cos=dct(torch.cos), sin=dct(torch.sin)), wave, [((64,), 0), ((5,), 0)]),
    "folded_patches": (lambda: Net(folded_patches, q=lin(48, 9), v=lin(48, 48), last=conv(3, 3)), image, [((3, 8, 8), 0)]),
    "several_periods": (lambda: Net(several_periods, layers=L(nn.Conv2d(2, 4, (3, 1), padding=(1, 0)) for _ in range(3)), head=lin(12, 3)), wave, [((3,), 1)]),
    "chebyshev": (lambda: Net(chebyshev, c=weight(6, 5, 5), k=torch.arange(1.0, 4.0), f=weight(5, 3, 6), bias=weight(3)), vector, [((3,), 1)]),
    "lookup_free": (lambda: Net(lookup_free, enc=mlp(6, 8, 4), dec=mlp(4, 8, 6), table=nn.Embedding(16, 6), power=2 ** torch.arange(4)), vector, [((6,), 0), None]),
}


def cases():
    return styles(SCENES)
