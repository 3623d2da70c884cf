"""Signals and images as in unheard.py."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

from case import classes, pixels
from sets.everyday import styles
from sets.families import Net, weight
from sets.further import L, P, conv, conv1, image, lin, mlp, one, steps, wave


# Signals


def biquad(s, x):
    """Two recursive filters in sequence, unrolled."""
    y = x.squeeze(1)[:, :12]
    for k in range(2):
        a1, a2 = 2 * torch.tanh(s.a[k, 0]) * 0.6, torch.tanh(s.a[k, 1]) * 0.5
        out, d1, d2 = [], torch.zeros_like(y[:, 0]), torch.zeros_like(y[:, 0])
        for v in y.unbind(-1):
            o = s.b[k, 0] * v + d1
            d1, d2 = s.b[k, 1] * v - a1 * o + d2, s.b[k, 2] * v - a2 * o
            out.append(o)
        y = torch.stack(out, -1)
    return s.head(y)


def harmonics(s, x):
    """Harmonics of a frequency, added with amplitudes that the network predicts."""
    h = s.body(x)[0]
    f0 = torch.sigmoid(s.pitch(h)) * 0.3
    phase = torch.cumsum(2 * math.pi * F.interpolate(f0.transpose(1, 2), scale_factor=4.0, mode="linear", align_corners=True), -1)
    n = torch.arange(1, 5).view(1, 4, 1)
    share = F.interpolate(s.share(h).softmax(-1).mT, size=32, mode="linear") * (f0.mT.repeat_interleave(4, -1) * n < 0.5)
    return (torch.sin(phase * n) * share).sum(1)


def energy_gain(s, x):
    """PCEN: each band divided by its smoothed energy, with trained exponents."""
    e = F.conv1d(x, s.bank, stride=4).square()
    m = [e[..., 0]]
    for k in range(1, e.shape[-1]):
        m.append((1 - s.smooth.sigmoid()) * m[-1] + s.smooth.sigmoid() * e[..., k])
    m = torch.stack(m, -1)
    y = (e / (1e-3 + m) ** s.alpha.clamp(max=1) + s.delta) ** s.root.reciprocal() - s.delta**s.root.reciprocal()
    return s.head(y.mean(-1))


def lifting(s, x):
    """Wavelets by prediction and update steps, which are networks."""
    even, odd = x[..., ::2], x[..., 1::2]
    details = []
    for k in range(2):
        d = odd - s.predict[k](even)
        a = even + s.update[k](d)
        details.append(d.abs().mean(-1))
        even, odd = a[..., ::2], a[..., 1::2]
    return s.head(torch.cat([even.flatten(1), *details], 1))


def haar(s, x):
    a, b, c, d = x[..., ::2, ::2], x[..., 1::2, ::2], x[..., ::2, 1::2], x[..., 1::2, 1::2]
    h = torch.cat([a + b + c + d, a - b + c - d, a + b - c - d, a - b - c + d], 1) / 2
    low, high = s.net(h).split([3, 9], 1)
    p, q, r, t = (low, *high.chunk(3, 1))
    up = torch.stack([torch.stack([p + q + r + t, p + q - r - t], -1), torch.stack([p - q + r - t, p - q - r + t], -1)], -3) / 2
    return up.flatten(-2).transpose(-3, -2).flatten(2, 3)


def compressed(s, x):
    """Mu-law, a frame's window and its cosine transform."""
    y = x.sign() * torch.log1p(255 * x.clamp(-3, 3).abs() / 3) / math.log(256)
    frames = y.squeeze(1).unfold(-1, 8, 4) * torch.hann_window(8)
    k = torch.arange(8)
    cosine = torch.cos(math.pi / 8 * (k[None] + 0.5) * k[:4, None])
    return s.head((frames @ cosine.T).abs().add(1e-3).log().mean(1))


# Pictures


def warped_plane(s, x):
    """A homography from eight numbers, applied to an image."""
    h = torch.cat([s.net(F.adaptive_avg_pool2d(x, 2).flatten(1)) * 0.1, x.new_ones(x.shape[0], 1)], 1).view(-1, 3, 3) + torch.diag(torch.tensor([1.0, 1.0, 0.0]))
    v, u = torch.meshgrid(torch.linspace(-1, 1, 8), torch.linspace(-1, 1, 8), indexing="ij")
    p = torch.stack([u, v, torch.ones_like(u)], -1).reshape(-1, 3) @ h.transpose(1, 2)
    grid = (p[..., :2] / p[..., 2:].clamp(min=0.2)).view(-1, 8, 8, 2)
    return s.head(F.grid_sample(x, grid, padding_mode="reflection", align_corners=False))


def morphology(s, x):
    """Dilation and erosion with trained structuring elements."""
    b, c, h, w = x.shape
    patches = F.unfold(F.pad(x, (1, 1, 1, 1), mode="replicate"), 3).view(b, c, 9, h * w)
    up = (patches.unsqueeze(1) + s.up[None, :, :, :, None]).amax(3).sum(2)
    down = (patches.unsqueeze(1) - s.down[None, :, :, :, None]).amin(3).sum(2)
    return s.head((up - down).view(b, -1, h, w))


def own_blur(s, x):
    """A Gaussian with trained width, edges by it, and a soft histogram."""
    t = torch.arange(-2, 3).float()
    g = torch.exp(-t.square() / (2 * F.softplus(s.width) ** 2))
    g = g / g.sum()
    k = torch.outer(g, g).expand(3, 1, 5, 5)
    blurred = F.conv2d(F.pad(x, [2] * 4, mode="reflect"), k, groups=3)
    sharp = x + s.amount * (x - blurred)
    edges = (sharp[..., 1:] - sharp[..., :-1]).abs().mean((2, 3))
    histogram = torch.exp(-0.5 * ((sharp.flatten(2).unsqueeze(-1) - s.centres) / 0.5).square()).mean(2)
    return s.head(torch.cat([edges, histogram.flatten(1)], 1))


def soft_places(s, x):
    """The mean positions of heat maps, and their spread."""
    h = s.net(x)
    p = h.flatten(2).softmax(-1).view_as(h)
    r = torch.linspace(0, 1, 8)
    u, v = (p.sum(2) * r).sum(-1), (p.sum(3) * r).sum(-1)
    spread = (p * ((r - u[..., None, None]) ** 2 + (r[:, None] - v[..., None, None]) ** 2)).sum((2, 3))
    return torch.stack([u, v], -1), spread.mean()


def preconditioned(s, x, y0, noise, sigma):
    """EDM: a denoiser with noise-dependent scales and weighting, and a time embedding in its normalization."""
    sd = 0.5
    sg = sigma.exp()[:, None, None, None]
    skip, out, inp = sd**2 / (sg**2 + sd**2), sg * sd / (sg**2 + sd**2).sqrt(), 1 / (sg**2 + sd**2).sqrt()
    f = torch.outer(sigma / 4, s.freqs * 2 * math.pi)
    e = s.time(torch.cat([f.cos(), f.sin()], 1)) + s.label(y0)
    h = F.silu(s.first((x + noise * sg) * inp))
    scale, shift = s.scale(e)[..., None, None].chunk(2, 1)
    h = h + s.second(F.silu(F.group_norm(h, 2, s.g, s.b) * (1 + scale) + shift))
    d = skip * (x + noise * sg) + out * s.last(F.interpolate(s.down(h), scale_factor=2, mode="nearest") + h)
    return (((sg**2 + sd**2) / (sg * sd) ** 2) * (d - x) ** 2).mean()


def resized_inside(s, x):
    """torchvision's preprocessing inside the model: antialiasing, cropping, grayscale, normalization."""
    y = F.interpolate(x, size=(6, 6), mode="bilinear", antialias=True, align_corners=False)[..., 1:5, 1:5]
    grey = (y * torch.tensor([0.2989, 0.587, 0.114]).view(3, 1, 1)).sum(1, keepdim=True)
    y = (torch.cat([y, grey], 1) - s.mean[:, None, None]) / s.std[:, None, None]
    return s.head(F.relu(s.first(y)).flatten(1))


def iou_losses(s, x, box):
    """Boxes and their complete IoU."""
    p = s.net(x.mean((2, 3)))
    lo, hi = p[:, :2] - p[:, 2:].exp() / 2, p[:, :2] + p[:, 2:].exp() / 2
    tlo, thi = box[:, :2], box[:, :2] + box[:, 2:].abs() + 0.1
    inter = (torch.min(hi, thi) - torch.max(lo, tlo)).clamp(min=0).prod(1)
    area, tarea = (hi - lo).prod(1), (thi - tlo).prod(1)
    iou = inter / (area + tarea - inter + 1e-7)
    hull = torch.max(hi, thi) - torch.min(lo, tlo)
    away = ((lo + hi - tlo - thi) / 2).square().sum(1) / (hull.square().sum(1) + 1e-7)
    v = 4 / math.pi**2 * (torch.atan((thi - tlo)[:, 0] / (thi - tlo)[:, 1]) - torch.atan((hi - lo)[:, 0] / (hi - lo)[:, 1])).square()
    return (1 - iou + away + 0.3 * v).mean()


SIGNALS = {
    "biquad": (lambda: Net(biquad, a=weight(2, 2), b=weight(2, 3), head=lin(12, 3)), wave, [((3,), 1)]),
    "harmonics": (lambda: Net(harmonics, body=nn.GRU(5, 6, batch_first=True), pitch=lin(6, 1), share=lin(6, 4)), steps, [((32,), 0)]),
    "energy_gain": (lambda: Net(energy_gain, bank=weight(4, 1, 8), smooth=weight(1), alpha=P(torch.rand(4, 1) * 0.3 + 0.5), delta=P(torch.rand(4, 1) + 1.5), root=P(torch.rand(4, 1) + 1.8), head=lin(4, 3)), wave, [((3,), 1)]),
    "lifting": (lambda: Net(lifting, predict=L(conv1(1, 1) for _ in range(2)), update=L(conv1(1, 1) for _ in range(2)), head=lin(6, 3)), wave, [((3,), 1)]),
    "haar": (lambda: Net(haar, net=conv(12, 12)), image, [((3, 8, 8), 0)]),
    "compressed": (lambda: Net(compressed, head=lin(4, 3)), wave, [((3,), 1)]),
    "warped_plane": (lambda: Net(warped_plane, net=lin(12, 8), head=conv(3, 2)), image, [((2, 8, 8), 1)]),
    "morphology": (lambda: Net(morphology, up=weight(2, 3, 9), down=weight(2, 3, 9), head=conv(2, 2)), image, [((2, 8, 8), 0)]),
    "own_blur": (lambda: Net(own_blur, width=weight(1), amount=weight(1), centres=torch.linspace(-2, 2, 5), head=lin(18, 3)), image, [((3,), 1)]),
    "soft_places": (lambda: Net(soft_places, net=conv(3, 4)), image, [((4, 2), 0), None]),
    "preconditioned": (lambda: Net(preconditioned, freqs=torch.randn(3), time=lin(6, 8), label=nn.Embedding(4, 8), first=conv(3, 4), scale=lin(8, 8), g=one(4), b=weight(4), second=conv(4, 4), down=nn.Conv2d(4, 4, 2, 2), last=conv(4, 3)),
                       lambda b: image(b) | {"y0": classes(4, b), "noise": pixels(b, 3, 8, 8), "sigma": pixels(b) - 1}, [None]),
    "resized_inside": (lambda: Net(resized_inside, mean=torch.rand(4), std=torch.rand(4) + 0.5, first=conv(4, 4), head=lin(64, 3)), image, [((3,), 1)]),
    "iou_losses": (lambda: Net(iou_losses, net=mlp(3, 8, 4)), lambda b: image(b) | {"box": pixels(b, 4)}, [None]),
}


def cases():
    return styles(SIGNALS)
