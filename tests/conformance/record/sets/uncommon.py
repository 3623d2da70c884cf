"""Networks of kinds that no other set has. Here images, sound and signals: rarely used pooling and folding layers, channel attention, cost
volumes, detection losses with mining, equivariant filters, flows over images. Sequences, tables and losses are in uncommon_data.py. Up to
two styles of each (`everyday_STYLES`), as in everyday.py. Nothing is kept in `recorded/` except cases that found a bug."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

from case import classes, pixels
from sets.everyday import styles
from sets.families import Net, weight
from sets.further import L, conv, conv1, image, lin, mlp, one, wave

pair = lambda b: {"x": pixels(b, 3, 8, 8), "other": pixels(b, 3, 8, 8)}
clip = lambda b: {"x": pixels(b, 3, 8, 6, 6)}


# Pooling, folding


def overlap_added(s, x):
    """Windows are taken apart, transformed as tokens and added up again, divided by how often each pixel is covered."""
    cut = F.unfold(x, 4, stride=2, padding=1)
    tokens = cut.transpose(1, 2)
    tokens = tokens + s.mix(tokens)
    covered = F.fold(torch.ones_like(cut), (8, 8), 4, stride=2, padding=1)
    return s.head(F.fold(tokens.transpose(1, 2), (8, 8), 4, stride=2, padding=1) / covered)


def space_to_depth(s, x):
    """Squeeze, affine coupling in halves with its log determinant, and back (an invertible block)."""
    z = F.pixel_unshuffle(x, 2)
    a, b = z.chunk(2, 1)
    shift, scale = s.net(a).chunk(2, 1)
    scale = torch.exp(torch.tanh(scale))
    z = torch.cat([a, b * scale + shift], 1)
    return F.pixel_shuffle(z, 2), scale.log().flatten(1).sum(1)


def power_pools(s, x):
    h = s.first(x).abs() + 0.1
    return s.head(torch.cat([F.lp_pool2d(h, 2.0, 2).flatten(1), F.lp_pool2d(h, 3.0, (3, 2), stride=(2, 3)).flatten(1)], 1))


def adaptive_both(s, x):
    """Maxima over uneven windows with their places, unpooled into a map again."""
    h = s.first(x)
    top, place = F.adaptive_max_pool2d(h, 4, return_indices=True)
    back = F.max_unpool2d(s.second(top), place, 2, 2, output_size=(8, 8))
    return s.head(torch.cat([h, back], 1).mean((2, 3)))


def soft_pooled(s, x):
    """SoftPool: a softmax-weighted mean of each window."""
    h = s.first(x)
    e = torch.exp(h)
    return s.head((F.avg_pool2d(h * e, 2) / (F.avg_pool2d(e, 2) + 1e-6)).flatten(1))


# Attention over channels and places


def selective_kernels(s, x):
    maps = torch.stack([F.relu(c(x)) for c in s.paths], 1)
    z = F.relu(s.squeeze(maps.sum(1).mean((-1, -2))))
    share = torch.stack([e(z) for e in s.excite], 1).softmax(1)
    return s.head((maps * share[..., None, None]).sum(1).mean((-2, -1)))


def channel_filter(s, x):
    """ECA: a short filter over the channels' means."""
    h = F.relu(s.first(x))
    y = s.filter(F.adaptive_avg_pool2d(h, 1).squeeze(-1).transpose(-1, -2)).transpose(-1, -2).unsqueeze(-1)
    return s.head((h * y.sigmoid().expand_as(h)).mean((2, 3)))


def without_parameters(s, x):
    """SimAM."""
    h = s.first(x)
    n = h.shape[2] * h.shape[3] - 1
    d = (h - h.mean(dim=[2, 3], keepdim=True)).pow(2)
    return s.head((h * torch.sigmoid(d / (4 * (d.sum(dim=[2, 3], keepdim=True) / n + 1e-4)) + 0.5)).amax((2, 3)))


def three_sides(s, x):
    """Triplet attention: pooled along each axis after rotations."""
    def gate(h, c):
        return h * torch.sigmoid(c(torch.cat([h.max(1, keepdim=True)[0], h.mean(1, keepdim=True)], 1)))

    h = s.first(x)
    a = gate(h.permute(0, 2, 1, 3).contiguous(), s.gates[0]).permute(0, 2, 1, 3).contiguous()
    b = gate(h.permute(0, 3, 2, 1).contiguous(), s.gates[1]).permute(0, 3, 2, 1).contiguous()
    return s.head(((a + b + gate(h, s.gates[2])) / 3).mean((2, 3)))


def double_attention(s, x):
    h = F.relu(s.first(x))
    a, b, v = (f(h).flatten(2) for f in (s.a, s.b, s.v))
    g = torch.bmm(a, F.softmax(b, -1).permute(0, 2, 1))
    z = torch.bmm(g, F.softmax(v, 1)).view(x.size(0), -1, x.size(2), x.size(3))
    return s.head((h + s.back(z)).mean((2, 3)))


def criss_cross(s, x):
    """Each pixel attends to its row and its column; its own place is barred in the column."""
    h = s.first(x)
    q, k, v = s.q(h), s.k(h), s.v(h)
    b, _, n, m = q.shape
    rows = torch.einsum("bchw,bchv->bhwv", q, k)
    columns = torch.einsum("bchw,bcgw->bhwg", q, k).masked_fill(torch.eye(n, dtype=torch.bool).view(1, n, 1, n), float("-inf"))
    p = torch.cat([rows, columns], -1).softmax(-1)
    out = torch.einsum("bhwv,bchv->bchw", p[..., :m], v) + torch.einsum("bhwg,bcgw->bchw", p[..., m:], v)
    return s.head(s.gamma * out + h)


# Detectors, depth, equivariance


def weighted_pyramid(s, x):
    """BiFPN: levels are joined with weights that are made positive and sum to one."""
    a = s.first(x)
    b, c = F.max_pool2d(a, 3, 2, 1), F.max_pool2d(a, 5, 4, 2)
    w1, w2 = F.relu(s.w1), F.relu(s.w2)
    w1, w2 = w1 / (w1.sum(0) + 1e-4), w2 / (w2.sum(0) + 1e-4)
    mid = s.convs[0](w1[0, 0] * b + w1[1, 0] * F.interpolate(c, scale_factor=2, mode="nearest"))
    top = s.convs[1](w1[0, 1] * a + w1[1, 1] * F.interpolate(mid, scale_factor=2, mode="nearest"))
    out = s.convs[2](w2[0] * b + w2[1] * mid + w2[2] * F.max_pool2d(top, 2))
    return s.head(out), s.other(top)


def mined_boxes(s, x, label):
    """SSD's loss: three negatives per positive, those of the largest loss, found by sorting twice."""
    scores = s.cls(F.relu(s.first(x))).flatten(2).transpose(1, 2)
    loss = F.cross_entropy(scores.reshape(-1, 4), label.reshape(-1), reduction="none").view(label.shape)
    positive = label > 0
    rank = loss.detach().masked_fill(positive, 0.0).sort(1, descending=True)[1].sort(1)[1]
    negative = rank < (3 * positive.long().sum(1, keepdim=True)).clamp(max=label.size(1) - 1)
    return (loss * (positive | negative).float()).sum() / positive.float().sum().clamp(min=1.0)


def hard_pixels(s, x, label):
    """OHEM: the mean over the pixels of the batch with the largest losses."""
    loss = F.cross_entropy(s.second(F.relu(s.first(x))), label, reduction="none", ignore_index=3).flatten()
    return loss.topk(24)[0].mean()


def responsible(s, x, box):
    """YOLO's first loss: of two boxes per cell, the one that overlaps more learns."""
    p = s.second(F.relu(s.first(x))).permute(0, 2, 3, 1).unflatten(-1, (2, 5))
    wanted = box.sigmoid()[:, None, None, None, :]
    at, size = p[..., :2].sigmoid(), p[..., 2:4].sigmoid()
    low = torch.maximum(at - size / 2, wanted[..., :2] - wanted[..., 2:] / 2)
    high = torch.minimum(at + size / 2, wanted[..., :2] + wanted[..., 2:] / 2)
    both = (high - low).clamp(min=0).prod(-1)
    iou = both / (size.prod(-1) + wanted[..., 2:].prod(-1) - both)
    best = F.one_hot(iou.argmax(-1), 2).to(p.dtype)
    place = ((at - wanted[..., :2]) ** 2 + (size.sqrt() - wanted[..., 2:].sqrt()) ** 2).sum(-1)
    sure = (p[..., 4].sigmoid() - iou.detach()) ** 2
    return (best * (5 * place + sure) + 0.5 * (1 - best) * p[..., 4].sigmoid() ** 2).sum((1, 2, 3)).mean()


def cost_volume(s, x, other):
    """Stereo: features side by side for each disparity, written into zeros, filtered, and a soft minimum."""
    a, b = s.features(x), s.features(other)
    cost = a.new_zeros(a.size(0), 2 * a.size(1), 4, a.size(2), a.size(3))
    for d in range(4):
        if d == 0:
            cost[:, : a.size(1), d] = a
            cost[:, a.size(1) :, d] = b
        else:
            cost[:, : a.size(1), d, :, d:] = a[:, :, :, d:]
            cost[:, a.size(1) :, d, :, d:] = b[:, :, :, :-d]
    p = F.softmax(-s.filter(cost).squeeze(1), 1)
    return (p * torch.arange(4, dtype=p.dtype).view(1, 4, 1, 1)).sum(1)


def photometric(s, x, other):
    """A disparity warps one image onto the other; SSIM, an L1 distance and edge-aware smoothness."""
    disparity = 0.3 * torch.sigmoid(s.net(x))
    b, _, h, w = x.shape
    ys, xs = torch.meshgrid(torch.linspace(-1, 1, h), torch.linspace(-1, 1, w), indexing="ij")
    grid = torch.stack([xs.expand(b, h, w) + disparity[:, 0], ys.expand(b, h, w)], -1)
    made = F.grid_sample(other, grid, padding_mode="border", align_corners=True)
    pool = lambda v: F.avg_pool2d(F.pad(v, (1, 1, 1, 1), mode="reflect"), 3, 1)
    ma, mb = pool(x), pool(made)
    va, vb, vab = pool(x * x) - ma**2, pool(made * made) - mb**2, pool(x * made) - ma * mb
    ssim = ((2 * ma * mb + 0.01) * (2 * vab + 0.03)) / ((ma**2 + mb**2 + 0.01) * (va + vb + 0.03))
    smooth = ((disparity[..., 1:] - disparity[..., :-1]).abs() * torch.exp(-(x[..., 1:] - x[..., :-1]).abs().mean(1, True))).mean()
    return (0.85 * ((1 - ssim) / 2).clamp(0, 1) + 0.15 * (x - made).abs()).mean() + 0.1 * smooth


def four_turns(s, x):
    """A filter in four rotations; the second layer also shifts the channels of each rotation."""
    w = torch.cat([torch.rot90(s.first, k, (-2, -1)) for k in range(4)])
    h = F.relu(F.conv2d(x, w, padding=1)).view(x.size(0), 4, 2, 8, 8)
    turned = torch.stack([torch.rot90(s.second.roll(k, 1), k, (-2, -1)) for k in range(4)])
    h = F.conv2d(h.flatten(1, 2), turned.flatten(0, 1).flatten(1, 2), padding=1).view(x.size(0), 4, 3, 8, 8)
    return s.head(h.amax(1).mean((2, 3)))


def mean_field(s, x):
    """CRF as RNN over an image: a fixed blur as pairwise kernel, a trained compatibility, three iterations."""
    u = s.unary(x)
    q = u
    for _ in range(3):
        m = F.conv2d(F.pad(q.softmax(1), (1, 1, 1, 1), mode="replicate"), s.blur.repeat(4, 1, 1, 1), groups=4)
        q = u - torch.einsum("bchw,dc->bdhw", m * s.strength.view(1, -1, 1, 1), s.compatible)
    return q


def spatial_denorm(s, x, label):
    """SPADE: a class map scales and shifts normalized features."""
    y = F.one_hot(label, 4).permute(0, 3, 1, 2).to(x.dtype)
    h = s.body(x)
    e = F.relu(s.shared(y))
    return s.head(F.leaky_relu(F.instance_norm(h) * (1 + s.gamma(e)) + s.beta(e), 0.2))


def checkerboard(s, x):
    """RealNVP over an image: alternating checkerboard masks, log determinants and a normal prior."""
    z, total = x, x.new_zeros(x.size(0))
    for k, net in enumerate(s.nets):
        mask = s.mask if k % 2 == 0 else 1 - s.mask
        scale, shift = net(z * mask).chunk(2, 1)
        scale = torch.tanh(scale) * s.range[k] * (1 - mask)
        z = z * mask + (1 - mask) * (z * scale.exp() + shift)
        total = total + scale.sum((1, 2, 3))
    prior = -0.5 * (z**2 + math.log(2 * math.pi)).sum((1, 2, 3))
    return -(prior + total).mean() / (x[0].numel() * math.log(2))


def em_capsules(s, x):
    """Votes are clustered by two rounds of expectation and maximization."""
    u = s.first(x).unflatten(1, (4, 4)).flatten(3).permute(0, 3, 1, 2).flatten(1, 2)[:, ::9]
    votes = torch.einsum("bid,jde->bije", u, s.w)
    r = torch.full(votes.shape[:3], 1 / 3)
    for _ in range(2):
        total = r.sum(1, keepdim=True).unsqueeze(-1)
        mean = (r.unsqueeze(-1) * votes).sum(1, keepdim=True) / total
        var = (r.unsqueeze(-1) * (votes - mean).pow(2)).sum(1, keepdim=True) / total + 1e-3
        cost = (s.bias.view(1, 1, -1, 1) + 0.5 * var.log()) * total
        act = torch.sigmoid(s.rate * (s.offset - cost.sum(-1)))
        log_p = -(0.5 * (votes - mean).pow(2) / var + 0.5 * var.log()).sum(-1)
        r = torch.softmax(log_p + (act + 1e-6).log(), 2)
    return act.squeeze(1)


# Sound, video


def pyramid_listener(s, x):
    """LAS: pairs of steps are joined between bidirectional layers."""
    h = x
    for layer in s.layers:
        h = layer(h)[0]
        b, t, c = h.shape
        h = h[:, : t // 2 * 2].reshape(b, t // 2, 2 * c)
    return s.head(h)


def looking_ahead(s, x):
    """DeepSpeech's lookahead filter per feature, over padded future steps."""
    h = s.rnn(x)[0].transpose(1, 2)
    return s.head(F.hardtanh(s.ahead(F.pad(h, (0, 2))), 0.0, 20.0).transpose(1, 2))


def channel_statistics(s, x):
    """ECAPA: Res2Net blocks, squeeze and excitation, attentive statistics with the global context."""
    h = s.first(x)
    parts = list(h.chunk(4, 1))
    for k in range(1, 4):
        parts[k] = F.relu(s.steps[k - 1](parts[k] + (parts[k - 1] if k > 1 else 0)))
    y = torch.cat(parts, 1)
    h = h + y * torch.sigmoid(s.up(F.relu(s.down(y.mean(2, keepdim=True)))))
    t = h.size(-1)
    context = torch.cat([h, h.mean(2, keepdim=True).repeat(1, 1, t), torch.sqrt(h.var(2, keepdim=True).clamp(min=1e-4)).repeat(1, 1, t)], 1)
    a = F.softmax(s.score(torch.tanh(s.context(context))), 2)
    mean = (a * h).sum(2)
    deviation = torch.sqrt(((a * h**2).sum(2) - mean**2).clamp(min=1e-4))
    return s.head(torch.cat([mean, deviation], 1))


def two_rates(s, x):
    """SlowFast: a path over every fourth frame with many channels, one over all with few, and a lateral connection."""
    slow = F.relu(s.slow(x[:, :, ::4]))
    fast = F.relu(s.fast(x))
    slow = torch.cat([slow, s.lateral(fast)], 1)
    return s.head(torch.cat([s.slow2(slow).mean((2, 3, 4)), s.fast2(fast).mean((2, 3, 4))], 1))


def wave_u_net(s, x):
    h, kept = x, []
    for c in s.down:
        h = F.leaky_relu(c(h), 0.1)
        kept.append(h)
        h = h[:, :, ::2]
    for c in s.up:
        h = F.interpolate(h, scale_factor=2, mode="linear", align_corners=True)
        h = F.leaky_relu(c(torch.cat([h, kept.pop()], 1)), 0.1)
    return torch.tanh(s.head(torch.cat([h, x], 1)))


def gated_demucs(s, x):
    mean, deviation = x.mean(-1, keepdim=True), x.std(-1, keepdim=True)
    h = (x - mean) / (deviation + 1e-3)
    h = F.glu(s.widen(F.relu(s.encode(h))), 1)
    y = s.rnn(h.permute(2, 0, 1))[0]
    h = F.glu(s.mix(s.lin(y).permute(1, 2, 0) + h), 1)
    return s.decode(h)[..., : x.size(-1)] * deviation + mean


def interleaved_halves(s, x):
    """SCINet: even and odd steps exchange information, recursively, and are interleaved again."""
    def apart(h, k):
        even, odd = h[:, :, ::2], h[:, :, 1::2]
        c = even * torch.exp(torch.tanh(s.phi[k](odd)))
        d = odd * torch.exp(torch.tanh(s.psi[k](even)))
        a, b = c + s.rho[k](d), d - s.eta[k](c)
        if k == 0:
            a, b = apart(a, 1), apart(b, 2)
        return torch.stack([a, b], -1).flatten(-2)

    return s.head(apart(x, 0) + x)


UNCOMMON = {
    "overlap_added": (lambda: Net(overlap_added, mix=mlp(48, 16, 48), head=conv(3, 2)), image, [((2, 8, 8), 1)]),
    "space_to_depth": (lambda: Net(space_to_depth, net=nn.Sequential(conv(6, 8), nn.ReLU(), conv(8, 12))), image, [((3, 8, 8), 0), None]),
    "power_pools": (lambda: Net(power_pools, first=conv(3, 4), head=lin(4 * 16 + 4 * 9, 3)), image, [((3,), 1)]),
    "adaptive_both": (lambda: Net(adaptive_both, first=conv(3, 4), second=conv(4, 4, 1), head=lin(8, 3)), image, [((3,), 1)]),
    "soft_pooled": (lambda: Net(soft_pooled, first=conv(3, 4), head=lin(64, 3)), image, [((3,), 1)]),
    "selective_kernels": (lambda: Net(selective_kernels, paths=L([conv(3, 6), nn.Conv2d(3, 6, 3, padding=2, dilation=2, bias=False)]), squeeze=lin(6, 4), excite=L(lin(4, 6) for _ in range(2)), head=lin(6, 3)), image, [((3,), 1)]),
    "channel_filter": (lambda: Net(channel_filter, first=conv(3, 8), filter=nn.Conv1d(1, 1, 3, padding=1, bias=False), head=lin(8, 3)), image, [((3,), 1)]),
    "without_parameters": (lambda: Net(without_parameters, first=conv(3, 6), head=lin(6, 3)), image, [((3,), 1)]),
    "three_sides": (lambda: Net(three_sides, first=conv(3, 6), gates=L(conv(2, 1, 3, bias=False) for _ in range(3)), head=lin(6, 3)), image, [((3,), 1)]),
    "double_attention": (lambda: Net(double_attention, first=conv(3, 6), a=conv(6, 4, 1), b=conv(6, 5, 1), v=conv(6, 5, 1), back=conv(4, 6, 1), head=lin(6, 3)), image, [((3,), 1)]),
    "criss_cross": (lambda: Net(criss_cross, first=conv(3, 6), q=conv(6, 2, 1), k=conv(6, 2, 1), v=conv(6, 6, 1), gamma=weight(1), head=conv(6, 2, 1)), image, [((2, 8, 8), 1)]),
    "weighted_pyramid": (lambda: Net(weighted_pyramid, first=conv(3, 5), w1=one(2, 2), w2=one(3), convs=L(nn.Sequential(nn.Conv2d(5, 5, 3, padding=1, groups=5), conv(5, 5, 1)) for _ in range(3)), head=conv(5, 4, 1), other=conv(5, 2, 1)), image, [((4, 4, 4), 0), ((2, 8, 8), 1)]),
    "mined_boxes": (lambda: Net(mined_boxes, first=conv(3, 6, 3, stride=2), cls=conv(6, 4)), lambda b: {"x": pixels(b, 3, 8, 8), "label": classes(4, b, 16) * (torch.rand(b, 16) < 0.3)}, [None]),
    "hard_pixels": (lambda: Net(hard_pixels, first=conv(3, 6), second=conv(6, 3)), lambda b: {"x": pixels(b, 3, 8, 8), "label": classes(4, b, 8, 8)}, [None]),
    "responsible": (lambda: Net(responsible, first=conv(3, 6, 3, stride=2), second=conv(6, 10, 3, stride=2)), lambda b: {"x": pixels(b, 3, 8, 8), "box": pixels(b, 4)}, [None]),
    "cost_volume": (lambda: Net(cost_volume, features=conv(3, 3), filter=nn.Sequential(nn.Conv3d(6, 4, 3, padding=1), nn.ReLU(), nn.Conv3d(4, 1, 3, padding=1))), pair, [((8, 8), 0)]),
    "photometric": (lambda: Net(photometric, net=nn.Sequential(conv(3, 4), nn.ELU(), conv(4, 1))), pair, [None]),
    "four_turns": (lambda: Net(four_turns, first=weight(2, 3, 3, 3), second=weight(3, 4, 2, 3, 3), head=lin(3, 3)), image, [((3,), 1)]),
    "mean_field": (lambda: Net(mean_field, unary=conv(3, 4), blur=torch.tensor([[1.0, 2, 1], [2, 0, 2], [1, 2, 1]])[None, None] / 12, strength=one(4), compatible=weight(4, 4)), image, [((4, 8, 8), 1)]),
    "spatial_denorm": (lambda: Net(spatial_denorm, body=conv(3, 5), shared=conv(4, 6), gamma=conv(6, 5), beta=conv(6, 5), head=conv(5, 3)), lambda b: {"x": pixels(b, 3, 8, 8), "label": classes(4, b, 8, 8)}, [((3, 8, 8), 0)]),
    "checkerboard": (lambda: Net(checkerboard, nets=L(nn.Sequential(conv(2, 6), nn.ReLU(), conv(6, 4)) for _ in range(3)), range=one(3), mask=(torch.arange(36).view(1, 1, 6, 6) // 6 + torch.arange(36).view(1, 1, 6, 6)) % 2 * 1.0), lambda b: {"x": pixels(b, 2, 6, 6)}, [None]),
    "em_capsules": (lambda: Net(em_capsules, first=conv(3, 16, 3, stride=2), w=weight(3, 4, 4), bias=weight(3), rate=one(1), offset=weight(3)), image, [((3,), 0)]),
    "pyramid_listener": (lambda: Net(pyramid_listener, layers=L([nn.LSTM(5, 4, bidirectional=True, batch_first=True), nn.LSTM(16, 3, bidirectional=True, batch_first=True)]), head=lin(12, 4)), lambda b: {"x": pixels(b, 11, 5)}, [((2, 4), 2)]),
    "looking_ahead": (lambda: Net(looking_ahead, rnn=nn.RNN(5, 6, batch_first=True, nonlinearity="relu"), ahead=nn.Conv1d(6, 6, 3, groups=6, bias=False), head=lin(6, 4)), lambda b: {"x": pixels(b, 7, 5)}, [((7, 4), 2)]),
    "channel_statistics": (lambda: Net(channel_statistics, first=conv1(5, 8), steps=L(nn.Conv1d(2, 2, 3, padding=2, dilation=2) for _ in range(3)), down=conv1(8, 3, 1), up=conv1(3, 8, 1), context=conv1(24, 4, 1), score=conv1(4, 8, 1), head=lin(16, 3)), lambda b: {"x": pixels(b, 5, 9)}, [((3,), 1)]),
    "two_rates": (lambda: Net(two_rates, slow=nn.Conv3d(3, 6, (1, 3, 3), padding=(0, 1, 1)), fast=nn.Conv3d(3, 2, 3, padding=1), lateral=nn.Conv3d(2, 4, (5, 1, 1), stride=(4, 1, 1), padding=(2, 0, 0), bias=False), slow2=nn.Conv3d(10, 6, 3, padding=1), fast2=nn.Conv3d(2, 2, 3, padding=1), head=lin(8, 4)), clip, [((4,), 1)]),
    "wave_u_net": (lambda: Net(wave_u_net, down=L([conv1(1, 4, 5), conv1(4, 6, 5)]), up=L([conv1(6 + 6, 6), conv1(6 + 4, 4)]), head=conv1(5, 1, 1)), wave, [((1, 32), 0)]),
    "gated_demucs": (lambda: Net(gated_demucs, encode=nn.Conv1d(2, 6, 8, 4), widen=conv1(6, 12, 1), rnn=nn.LSTM(6, 4, num_layers=2, bidirectional=True), lin=lin(8, 6), mix=conv1(6, 12), decode=nn.ConvTranspose1d(6, 2, 8, 4)), lambda b: {"x": pixels(b, 2, 32)}, [((2, 32), 0)]),
    "interleaved_halves": (lambda: Net(interleaved_halves, **{m: L(nn.Sequential(nn.ReplicationPad1d(1), nn.Conv1d(3, 3, 3)) for _ in range(3)) for m in ("phi", "psi", "rho", "eta")}, head=conv1(3, 2, 1)), lambda b: {"x": pixels(b, 3, 12)}, [((2, 12), 0)]),
}


def cases():
    return styles(UNCOMMON, oldest=13)
