"""What people train every day, each model in a form that the other sets lack: pooling with indices, odd pads, layers with rare options,
states, several inputs and outputs, integers, shape arithmetic. everyday_data.py has sequences, tables and graphs. Each in two styles of
export (`everyday_STYLES` sets how many), with losses and a recipe selected by name. Nothing is kept in `recorded/`."""
import dataclasses
import os
import random
import zlib

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils import parametrizations

from case import Case, classes, pixels, term
from optimizers import optimizer
from sets import random_nets
from sets.families import Net, weight
from sets.further import L, conv, conv1, image, lin, mlp, one
from sets.random_mixes import Ending, terms
from zoo import settled, still

B2, act = nn.BatchNorm2d, F.relu
wide = lambda b: {"x": pixels(b, 3, 9, 7)}
volume = lambda b: {"x": pixels(b, 1, 4, 6, 6)}
signal = lambda b: {"x": pixels(b, 3, 17)}


# Images


def segnet(s, x):
    h, first = F.max_pool2d(act(s.n1(s.first(x))), 2, return_indices=True)
    h, second = F.max_pool2d(act(s.second(h)), 2, return_indices=True)
    h = act(s.third(F.max_unpool2d(h, second, 2)))
    return s.last(F.max_unpool2d(h, first, 2))


def densely(s, x):
    h = s.first(x)
    for norm, layer in zip(s.norms, s.layers):
        h = torch.cat([h, layer(act(norm(h)))], 1)
    return s.head(F.avg_pool2d(act(s.middle(h)), 2).flatten(1))


def asymmetric(s, x):
    a = s.a2(act(s.a1(x)))
    b = s.b2(F.avg_pool2d(x, 3, 1, 1, count_include_pad=False))
    c = F.max_pool2d(x, 3, 1, 1)
    return s.head(act(s.norm(torch.cat([a, b, c], 1))).mean((2, 3)))


def grouped(s, x):
    h = act(s.n1(s.first(x)))
    y = s.n3(s.third(act(s.n2(s.second(h)))))
    y = y * F.hardsigmoid(s.up(F.hardswish(s.down(y.mean((2, 3), keepdim=True)))))
    return s.head(act(h + y).mean((2, 3)))


def atrous_pyramid(s, x):
    h = s.first(x)
    parts = [b(h) for b in s.branches]
    parts.append(F.interpolate(s.pooled(F.adaptive_avg_pool2d(h, 1)), h.shape[2:], mode="bilinear", align_corners=False))
    return F.interpolate(s.last(act(s.mix(torch.cat(parts, 1)))), x.shape[2:], mode="bilinear", align_corners=True)


def feature_levels(s, x):
    a = act(s.c1(x))
    b = act(s.c2(a))
    c = act(s.c3(b))
    p = [s.l3(c)]
    for lateral, below in ((s.l2, b), (s.l1, a)):
        p.append(lateral(below) + F.interpolate(p[-1], size=below.shape[-2:], mode="nearest"))
    return (s.label(torch.cat([q.amax((2, 3)) for q in p], 1)), torch.cat([s.box(q).flatten(2).transpose(1, 2) for q in p], 1))


def deep_volume(s, x):
    a = act(s.n1(s.c1(x)))
    b = act(s.n2(s.c2(F.max_pool3d(a, 2))))
    return s.last(torch.cat([s.up(b), a], 1))


def hourglass(s, x):
    def fold(h, k):
        low = act(s.down[k](F.avg_pool2d(h, 3, 2, 1, ceil_mode=True, count_include_pad=False)))
        if k:
            low = fold(low, k - 1)
        return s.skip[k](h) + F.interpolate(low, size=h.shape[2:], mode="bicubic", align_corners=False)
    return s.head(fold(s.first(x), 1))


def asked_sizes(s, x):
    h = act(s.down(x))
    h = act(s.up1(h, output_size=[5, 5]))
    return s.up2(h, output_size=x.shape[2:])


def shifted_windows(s, x):
    h = s.embed(x).permute(0, 2, 3, 1)
    h = torch.roll(h, (-1, -1), (1, 2))
    b, p, q, c = h.shape
    w = h.view(b, p // 2, 2, q // 2, 2, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, 4, c)
    qkv = s.qkv(s.norm(w)).reshape(-1, 4, 3, 2, c // 2).permute(2, 0, 3, 1, 4)
    attn = (qkv[0] * (c // 2) ** -0.5) @ qkv[1].transpose(-2, -1) + s.bias[s.places].permute(2, 0, 1).unsqueeze(0)
    attn = attn.view(b, p * q // 4, 2, 4, 4) + s.mask.unsqueeze(1).unsqueeze(0)
    w = w + (attn.view(-1, 2, 4, 4).softmax(-1) @ qkv[2]).transpose(1, 2).reshape(-1, 4, c)
    h = torch.roll(w.view(b, p // 2, q // 2, 2, 2, c).permute(0, 1, 3, 2, 4, 5).reshape(b, p, q, c), (1, 1), (1, 2))
    merged = torch.cat([h[:, 0::2, 0::2], h[:, 1::2, 0::2], h[:, 0::2, 1::2], h[:, 1::2, 1::2]], -1)
    return s.head(s.reduce(merged).mean((1, 2)))


def grown_positions(s, x):
    h = s.patch(x)
    p = F.interpolate(s.places.reshape(1, 3, 3, 8).permute(0, 3, 1, 2), size=h.shape[2:], mode="bicubic", align_corners=False)
    h = torch.cat([s.cls.expand(x.shape[0], -1, -1), (h + p).flatten(2).transpose(1, 2)], 1)
    return s.head(s.body(h)[:, 0])


def coded(s, x):
    h, i = F.max_pool2d(act(s.first(x)), 2), None
    z = s.code(h.flatten(1))
    h = s.decode(z).view(-1, 4, 4, 4)
    return torch.sigmoid(s.last(act(s.middle(s.grow(h)))))


def noised_code(s, x, noise):
    mean, log = s.body(act(s.first(x)).flatten(1)).chunk(2, dim=1)
    z = mean + torch.exp(0.5 * log) * noise
    return s.decode(z).view(x.shape), -0.5 * torch.sum(1 + log - mean.pow(2) - log.exp(), dim=1)


def straight(s, x):
    return s.net(x)


def compared(s, x, other):
    a, b = (F.normalize(s.head(act(s.first(v)).amax((2, 3))), dim=1) for v in (x, other))
    return F.pairwise_distance(a, b), F.cosine_similarity(a, b)


def attended(s, x):
    h = act(s.first(x))
    h = h * torch.sigmoid(s.mlp(h.mean((2, 3))) + s.mlp(h.amax((2, 3))))[..., None, None]
    h = h * torch.sigmoid(s.plane(torch.cat([h.mean(1, keepdim=True), h.max(1, keepdim=True)[0]], 1)))
    return s.head(h.mean((2, 3)))


def patches_of(s, x):
    u = F.unfold(x, 3, padding=1, stride=2).transpose(1, 2)
    h = s.body(u)
    return s.head(F.fold(h.transpose(1, 2), x.shape[2:], 3, padding=1, stride=2))


def enlarged(s, x):
    return F.pixel_shuffle(s.up(act(s.first(x)) + s.gain * s.first(x)), 2) + F.interpolate(x, scale_factor=2, mode="bicubic", align_corners=True)


def halves(s, x):
    """ShuffleNet's units, with the batch shape unpacked."""
    h = s.first(x)
    for layer in s.layers:
        a, b = h.chunk(2, 1)
        h = torch.cat((a, layer(b)), 1)
        n, c, p, q = h.size()
        h = h.view(n, 2, c // 2, p, q).transpose(1, 2).contiguous().view(n, -1, p, q)
    return s.head(h.mean([2, 3]))


def padded_ways(s, x):
    h = s.first(F.pad(x, (1, 2, 0, 3)))
    h = s.second(F.pad(h, (2, 1, 1, 1), "reflect"))
    h = s.third(F.pad(h, (0, 1, 2, 0), "circular"))
    return s.head(F.pad(h, (-1, 0, 0, -2), value=0.5).flatten(2).mean(2))


def two_resolutions(s, x):
    """Parallel branches that exchange features (HRNet)."""
    a, b = s.high(x), s.low(x)
    for up, down in zip(s.ups, s.downs):
        a, b = act(a + F.interpolate(up(b), scale_factor=2.0, mode="bilinear", align_corners=False)), act(b + down(a))
    return s.head(torch.cat([a, F.interpolate(b, size=(8, 8))], 1))


def bottlenecks(s, x):
    """Feature maps split in two, one of them passed through all blocks, all of them concatenated (YOLO's C2f), followed by pooling
    pyramids."""
    y = list(s.stem(x).chunk(2, 1))
    for block in s.blocks:
        y.append(y[-1] + block(y[-1]))
    h = s.join(torch.cat(y, 1))
    p1 = F.max_pool2d(h, 5, 1, 2)
    p2 = F.max_pool2d(p1, 5, 1, 2)
    out = s.out(F.silu(torch.cat((h, p1, p2), 1))).flatten(2)
    box, cls = out.split((8, 3), 1)
    at = box.view(-1, 2, 4, 64).transpose(2, 1).softmax(1).mul(s.bins).sum(1)
    return torch.cat([at, cls], 1).transpose(1, 2)


def unpooled_mean(s, x):
    h = s.first(x)
    m, v = h.mean(1, keepdim=True), h.var(1, keepdim=True, unbiased=False)
    h = s.scale[:, None, None] * (h - m) / torch.sqrt(v + 1e-6) + s.shift[:, None, None]
    return s.head(F.lp_pool2d(h.abs() + 0.1, 3.0, 2).flatten(1))


def by_blocks(s, x):
    """Space to depth and back by views, written by hand in both orders."""
    b, c, p, q = x.shape
    h = x.view(b, c, p // 2, 2, q // 2, 2).permute(0, 3, 5, 1, 2, 4).reshape(b, 4 * c, p // 2, q // 2)
    h = s.first(h)
    h = h.view(b, -1, 2, 2, p // 2, q // 2).permute(0, 1, 4, 2, 5, 3).reshape(b, -1, p, q)
    return s.head(h)


def moving_pictures(s, x):
    """Frames through one network, then filters over time only (R(2+1)D)."""
    h = act(s.space(x))
    h = act(s.time(h))
    return s.head(F.adaptive_max_pool3d(F.avg_pool3d(h, (1, 2, 2), (1, 2, 2), (0, 1, 1)), (2, 1, 1)).flatten(1))


def sub_pixels_1d(s, x):
    h = F.max_pool1d(act(s.first(x)), 3, 2, 1, ceil_mode=True)
    h = s.norm(s.up(h))
    return s.head(F.adaptive_avg_pool1d(h, 3).flatten(1))


def blended(s, x, coarse):
    """An image at two sizes, where one gates the other."""
    g = torch.sigmoid(s.gate(F.interpolate(coarse, size=x.shape[2:], mode="bilinear")))
    return s.head((g * s.fine(x) + (1 - g) * F.interpolate(s.rough(coarse), scale_factor=2)).flatten(2).std(2))


def convs(*channels, norm=True, **options):
    return nn.Sequential(*[m for i, o in zip(channels, channels[1:]) for m in (conv(i, o, bias=not norm, **options), B2(o) if norm else nn.Identity(), nn.ReLU())])


windows_mask = lambda: torch.zeros(4, 4, 4).masked_fill(torch.eye(4).bool()[None] & (torch.arange(4) == 3)[:, None, None], -100.0)
sharp = lambda m: parametrizations.spectral_norm(m)
normed = lambda m, dim=0: parametrizations.weight_norm(m, dim=dim)

IMAGES = {
    "segnet": (lambda: Net(segnet, first=conv(3, 4), n1=B2(4), second=conv(4, 6), third=conv(6, 4), last=conv(4, 3)), image, [((3, 8, 8), 1)]),
    "densely": (lambda: Net(densely, first=conv(3, 4), norms=L(B2(c) for c in (4, 7)), layers=L(conv(c, 3, bias=False) for c in (4, 7)), middle=B2(10), head=lin(160, 3)), image, [((3,), 1)]),
    "asymmetric": (lambda: Net(asymmetric, a1=nn.Conv2d(3, 4, (1, 5), padding=(0, 2)), a2=nn.Conv2d(4, 4, (5, 1), padding=(2, 0), bias=False), b2=nn.Conv2d(3, 3, 1), norm=B2(10, eps=1e-3, momentum=0.3), head=lin(10, 3)), wide, [((3,), 1)]),
    "grouped": (lambda: Net(grouped, first=conv(3, 8, bias=False), n1=B2(8), second=conv(8, 8, groups=4, bias=False), n2=B2(8), third=nn.Conv2d(8, 8, 1, bias=False), n3=B2(8), down=nn.Conv2d(8, 3, 1), up=nn.Conv2d(3, 8, 1), head=lin(8, 3)), image, [((3,), 1)]),
    "atrous_pyramid": (lambda: Net(atrous_pyramid, first=conv(3, 4, stride=2), branches=L([nn.Conv2d(4, 3, 1), *(nn.Conv2d(4, 3, 3, padding=d, dilation=d) for d in (2, 3))]), pooled=nn.Conv2d(4, 3, 1), mix=nn.Conv2d(12, 5, 1), last=nn.Conv2d(5, 3, 1)), wide, [((3, 9, 7), 1)]),
    "feature_levels": (lambda: Net(feature_levels, c1=conv(3, 4), c2=conv(4, 5, stride=2), c3=conv(5, 6, stride=2), l1=nn.Conv2d(4, 4, 1), l2=nn.Conv2d(5, 4, 1), l3=nn.Conv2d(6, 4, 1), label=lin(12, 3), box=conv(4, 2)), wide, [((3,), 1), ((6 + 20 + 63, 2), 0)]),
    "deep_volume": (lambda: Net(deep_volume, c1=nn.Conv3d(1, 3, 3, padding=1), n1=nn.BatchNorm3d(3), c2=nn.Conv3d(3, 4, 3, padding=1, bias=False), n2=nn.BatchNorm3d(4), up=nn.ConvTranspose3d(4, 3, 2, 2), last=nn.Conv3d(6, 3, 1)), volume, [((3, 4, 6, 6), 1)]),
    "hourglass": (lambda: Net(hourglass, first=conv(3, 4), down=L(conv(4, 4) for _ in range(2)), skip=L(conv(4, 4, 1) for _ in range(2)), head=conv(4, 3, 1)), wide, [((3, 9, 7), 1)]),
    "asked_sizes": (lambda: Net(asked_sizes, down=nn.Conv2d(3, 4, 3, 2, 1), up1=nn.ConvTranspose2d(4, 4, 2, 1), up2=nn.ConvTranspose2d(4, 3, 3, 2, 2)), image, [((3, 8, 8), 1)]),
    "shifted_windows": (lambda: Net(shifted_windows, embed=nn.Conv2d(3, 8, 2, 2), norm=nn.LayerNorm(8), qkv=lin(8, 24), bias=weight(9, 2), places=torch.randint(0, 9, (4, 4)), mask=windows_mask(), reduce=lin(32, 8, bias=False), head=lin(8, 3)), image, [((3,), 1)]),
    "grown_positions": (lambda: Net(grown_positions, patch=nn.Conv2d(3, 8, 2, 2), places=weight(1, 9, 8), cls=weight(1, 1, 8), body=nn.TransformerEncoderLayer(8, 2, 12, 0.0, "gelu", batch_first=True, norm_first=True), head=lin(8, 3)), image, [((3,), 1)]),
    "coded": (lambda: Net(coded, first=conv(3, 4, stride=1), code=lin(64, 5), decode=lin(5, 64), grow=nn.Upsample(scale_factor=2), middle=conv(4, 4), last=conv(4, 3)), image, [((3, 8, 8), 0)]),
    "noised_code": (lambda: Net(noised_code, first=conv(3, 4, stride=2), body=lin(64, 8), decode=mlp(4, 12, 192)), lambda b: image(b) | {"noise": pixels(b, 4)}, [((3, 8, 8), 0), None]),
    "sharp_critic": (lambda: Net(straight, net=nn.Sequential(sharp(nn.Conv2d(3, 4, 3, 2, 1)), nn.LeakyReLU(0.2), sharp(nn.Conv2d(4, 6, 4, 2, 1, bias=False)), nn.LeakyReLU(0.2), nn.Flatten(), sharp(lin(24, 2)))), image, [((2,), 0)]),
    "sharp_critic_old": (lambda: Net(straight, net=nn.Sequential(nn.utils.spectral_norm(nn.Conv2d(3, 4, 3, 2, 1)), nn.LeakyReLU(0.2), nn.Flatten(), nn.utils.spectral_norm(lin(64, 2)))), image, [((2,), 0)]),
    "weight_normed": (lambda: Net(straight, net=nn.Sequential(normed(conv(3, 4)), nn.ELU(), normed(nn.ConvTranspose2d(4, 4, 4, 2, 1), 1), nn.ELU(), nn.AvgPool2d(4, 4), nn.Flatten(), normed(lin(64, 3), None))), image, [((3,), 1)]),
    "weight_normed_old": (lambda: Net(straight, net=nn.Sequential(nn.utils.weight_norm(conv(3, 4)), nn.ELU(), nn.utils.weight_norm(nn.Conv2d(4, 4, 2, 2), dim=1), nn.Flatten(), nn.utils.weight_norm(lin(64, 3), dim=None))), image, [((3,), 1)]),
    "compared": (lambda: Net(compared, first=conv(3, 6), head=lin(6, 4)), lambda b: image(b) | {"other": pixels(b, 3, 8, 8)}, [((), 0), ((), 0)]),
    "attended": (lambda: Net(attended, first=conv(3, 6), mlp=nn.Sequential(lin(6, 3, bias=False), nn.ReLU(), lin(3, 6, bias=False)), plane=nn.Conv2d(2, 1, 7, padding=3, bias=False), head=lin(6, 3)), image, [((3,), 1)]),
    "patches_of": (lambda: Net(patches_of, body=nn.Sequential(lin(27, 8), nn.GELU(), lin(8, 27)), head=nn.Conv2d(3, 3, 1)), wide, [((3, 9, 7), 1)]),
    "enlarged": (lambda: Net(enlarged, first=conv(3, 4), gain=weight(4, 1, 1), up=conv(4, 12)), lambda b: {"x": pixels(b, 3, 5, 6)}, [((3, 10, 12), 0)]),
    "halves": (lambda: Net(halves, first=conv(3, 8, stride=2), layers=L(nn.Sequential(nn.Conv2d(4, 4, 1, bias=False), B2(4), nn.ReLU(), conv(4, 4, groups=4, bias=False), B2(4)) for _ in range(2)), head=lin(8, 3)), image, [((3,), 1)]),
    "padded_ways": (lambda: Net(padded_ways, first=nn.Conv2d(3, 4, 3), second=nn.Conv2d(4, 4, (2, 3), dilation=(2, 1)), third=nn.Conv2d(4, 4, 3, 2), head=lin(4, 3)), wide, [((3,), 1)]),
    "two_resolutions": (lambda: Net(two_resolutions, high=conv(3, 4), low=conv(3, 6, stride=2), ups=L(nn.Conv2d(6, 4, 1) for _ in range(2)), downs=L(conv(4, 6, stride=2) for _ in range(2)), head=nn.Conv2d(10, 3, 1)), image, [((3, 8, 8), 1)]),
    "bottlenecks": (lambda: Net(bottlenecks, stem=convs(3, 8), blocks=L(convs(4, 4) for _ in range(2)), join=nn.Conv2d(16, 6, 1), out=nn.Conv2d(18, 11, 1), bins=torch.arange(4.0)[None, :, None, None]), image, [((64, 5), 0)]),
    "by_deviation": (lambda: Net(unpooled_mean, first=conv(3, 4), scale=one(4), shift=weight(4), head=lin(64, 3)), image, [((3,), 1)]),
    "by_blocks": (lambda: Net(by_blocks, first=conv(12, 16), head=nn.Conv2d(4, 3, 1)), image, [((3, 8, 8), 1)]),
    "moving_pictures": (lambda: Net(moving_pictures, space=nn.Conv3d(1, 4, (1, 3, 3), (1, 2, 1), (0, 1, 1)), time=nn.Conv3d(4, 4, (3, 1, 1), padding="same", padding_mode="replicate"), head=lin(8, 3)), volume, [((3,), 1)]),
    "sub_pixels_1d": (lambda: Net(sub_pixels_1d, first=nn.Conv1d(3, 4, 4, padding="same"), up=nn.ConvTranspose1d(4, 6, 5, 3, 2, 1, groups=2, bias=False), norm=nn.BatchNorm1d(6), head=lin(18, 3)), signal, [((3,), 1)]),
    "blended": (lambda: Net(blended, gate=nn.Conv2d(2, 1, 1), fine=conv(3, 4), rough=conv(2, 4), head=lin(4, 3)), lambda b: image(b) | {"coarse": pixels(b, 2, 4, 4)}, [((3,), 1)]),
    "norm_options": (lambda: Net(straight, net=nn.Sequential(conv(3, 6), B2(6, affine=False), nn.CELU(0.5), nn.Conv2d(6, 6, 3, 2), nn.InstanceNorm2d(6, eps=1e-3), conv(6, 6), B2(6, momentum=0.9, eps=0.05), nn.ReLU6(), nn.GroupNorm(6, 6), nn.AdaptiveAvgPool2d((None, 1)), nn.Flatten(), nn.BatchNorm1d(18), lin(18, 3))), image, [((3,), 1)]),
    "norm_volumes": (lambda: Net(straight, net=nn.Sequential(nn.Conv3d(1, 4, 3, 1, 1), nn.GroupNorm(2, 4), nn.SiLU(), nn.InstanceNorm3d(4, affine=True), nn.Conv3d(4, 4, 3, 2, 1), nn.BatchNorm3d(4), nn.Mish(), nn.AdaptiveAvgPool3d((1, 3, 1)), nn.Flatten(), nn.LayerNorm(12), lin(12, 3))), volume, [((3,), 1)]),
    "pool_options": (lambda: Net(straight, net=nn.Sequential(conv(3, 4), nn.MaxPool2d((3, 2), (2, 1), (1, 0), (1, 2), ceil_mode=True), nn.AvgPool2d((2, 3), (1, 2), (1, 1), ceil_mode=True), conv(4, 4), nn.AvgPool2d(3, 2, divisor_override=5), nn.LPPool2d(1.5, (1, 1)), nn.Flatten(), nn.LazyLinear(3))), lambda b: {"x": pixels(b, 3, 11, 10)}, [((3,), 1)]),
    "upsampled": (lambda: Net(straight, net=nn.Sequential(conv(3, 4), nn.UpsamplingBilinear2d(scale_factor=2), conv(4, 4, stride=2), nn.UpsamplingNearest2d(size=(11, 9)), conv(4, 4), nn.Upsample(size=(7, 13), mode="bilinear"), nn.Upsample(scale_factor=(2, 1.5), mode="nearest"), conv(4, 4, stride=3), nn.Flatten(), nn.LazyLinear(3))), image, [((3,), 1)]),
    "dropped": (lambda: Net(straight, net=nn.Sequential(conv(3, 6), nn.Dropout2d(0.0), nn.RReLU(0.1, 0.3), nn.Conv2d(6, 6, 3, groups=3), nn.AlphaDropout(0.0), nn.SELU(), nn.FeatureAlphaDropout(0.0), nn.Softmax2d(), nn.Flatten(), nn.Dropout(0.0), nn.Threshold(0.05, 0.01), nn.LazyLinear(3))), image, [((3,), 1)]),
}


# Recipes: every option of every optimizer, schedules of all forms.

OPTIONS = dict(momentum=lambda r: dict(momentum=r.choice([0.5, 0.9, 0.99])), nesterov=lambda r: dict(momentum=r.choice([0.6, 0.95])), adam=lambda r: dict(betas=r.choice([[0.9, 0.999], [0.5, 0.9], [0.0, 0.99]]), amsgrad=r.random() < 0.4, eps=r.choice([1e-8, 1e-4])),
               adamw=lambda r: dict(betas=r.choice([[0.9, 0.95], [0.8, 0.99]]), amsgrad=r.random() < 0.4), rmsprop=lambda r: dict(alpha=r.choice([0.9, 0.99]), centered=r.random() < 0.5, momentum=r.choice([0.0, 0.5, 0.9]), eps=r.choice([1e-4, 1e-3])),
               adagrad=lambda r: dict(lr_decay=r.choice([0.0, 0.2]), initial_accumulator_value=r.choice([0.0, 0.1]), eps=1e-6), adadelta=lambda r: dict(rho=r.choice([0.5, 0.9]), eps=r.choice([1e-6, 1e-3])), adamax=lambda r: dict(betas=[r.choice([0.5, 0.9]), 0.9], eps=1e-6),
               lamb=lambda r: dict(betas=[0.9, r.choice([0.9, 0.999])], eps=1e-6))
SCHEDULES = [None, None, lambda k: 1 / (1 + k), lambda k: min(1.0, (k + 1) / 3), lambda k: 0.0 if k == 1 else 1.0, lambda k: [1.0, 0.5, 2.0, 0.1][k % 4]]


def recipe(r):
    kind = r.choice(list(random_nets.RATES))
    options = dict(lr=random_nets.RATES[kind], weight_decay=r.choice([0.0, 0.0, 0.01, 0.1]), **OPTIONS.get(kind, lambda r: {})(r))
    if r.random() < 0.2:
        options["groups"] = "no_decay_1d"
    n, updates = r.choice([(1, 3), (1, 5), (1, 6), (2, 3), (2, 4), (3, 3)])  # up to ten: with y1 as a target, y10 is its first array
    schedule = r.choice(SCHEDULES)
    return dict(optimizer=optimizer(kind, **options), grad_accumulation=n, clip_grad_norm=r.choice([None, None, 0.1, 1.0, 100.0]), steps=n * updates, lr_schedule=schedule and [schedule(k // n) for k in range(n * updates)])


LEGACY = [(7, "eval"), (8, "train"), (9, "train"), (10, "eval"), (11, "train"), (12, "eval"), (13, "train"), (14, "train"), (15, "eval"), (16, "train"), (17, "eval"), (18, "train"), (19, "eval"), (20, "train")]
DYNAMO = [(18, "train"), (19, "eval"), (20, "eval"), (21, "train"), (22, "eval"), (23, "train"), (24, "train"), (25, "eval")]


def case(name, entry, again, oldest=7):
    r = random.Random(zlib.crc32(f"everyday {name}{again}".encode()))
    module, inputs, outputs = entry
    asked = [o for o in outputs if o is not None]
    losses, targets, end = terms(r, [o if o[0] else ((1,), 0) for o in asked]) if asked else ([], {}, None)
    names = ["out", "out1", "out2"]
    for k, o in enumerate(outputs):  # one number per sample, or an output without target
        if o is None:
            losses = [*losses, term("output", output=names[k], target=None, weight=r.choice([1.0, 0.05]))]
        elif not o[0]:
            targets[f"y{k}" if k else "y"] = lambda b: pixels(b)

    def whole():
        net = still(Ending(module(), end) if end else module())
        example = inputs(6)
        with torch.no_grad():
            net(*example.values())  # initializes lazy layers
        net = settled(net, example, tuple(example))
        with torch.no_grad():
            net(*example.values())  # weights computed by hooks become leaf tensors again, which can be copied
        return net

    legacy = r.random() < (0.5, 0.7, 0.3)[again % 3]
    opset, mode = r.choice([o for o in LEGACY if o[0] >= oldest] if legacy else DYNAMO)
    optimize, dynamic = r.random() < 0.5, r.random() < 0.5
    torch.manual_seed(0)
    net = module()
    statistics = any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in net.modules())
    still_needed = any("spectral" in type(m).__name__.lower() or any("spectral" in type(h).__name__.lower() for h in m._forward_pre_hooks.values()) for m in net.modules())
    if still_needed:  # a training pass updates the power iteration vectors of the norm, which are not in a file
        mode = "eval"
    options = recipe(r)
    if statistics or options["optimizer"]["type"] == "lamb" or "groups" in options["optimizer"]:
        optimize = False
    steps, batch = options["steps"], r.choice([2, 3, 6])
    sizes = [batch if not k else r.choice([batch, 2, 5]) for k in range(steps)] if dynamic and r.random() < 0.6 else None
    parameters = [n for n, _ in net.named_parameters()]
    frozen = (r.choice(parameters),) if r.random() < 0.2 and len(parameters) > 3 else ()
    optimize = optimize and not frozen  # the exporter concatenates a recurrent layer's biases
    return Case(f"everyday_{name}_{'legacy' if legacy else 'dynamo'}{opset}{'' if optimize else '_plain'}", whole, lambda b: inputs(b) | {k: f(b) for k, f in targets.items()}, losses, inputs=tuple(inputs(1)), targets=tuple(targets),
                outputs=tuple(names[: len(outputs)]), exporter="legacy" if legacy else "dynamo", opset=opset, optimize=optimize, mode=mode, dynamic_batch=dynamic, semantics=r.choice(["train", "as_graph"]) if statistics and mode == "eval" else "as_graph",
                external_data=r.random() < 0.1, batch_size=batch, batch_sizes=sizes, frozen=frozen, may_rest=True, keep_notes=not legacy, **options)


def styles(table, oldest=7):
    """`oldest`: the first opset that has the operators of these networks."""
    seen = set()
    for name, entry in table.items():
        for again in range(int(os.environ.get("everyday_STYLES", 2))):
            made = case(name, entry, again, oldest)
            if made.name not in seen:
                seen.add(made.name)
                yield made


def cases():
    return styles(IMAGES)
