"""Networks for what PyTorch's default exporter writes in an unusual way: searches, scatters, booleans as indices, Fourier transforms,
cumulative maxima and products, windows, norms of all orders, choices that are fed back. The styles are in defaults.py. Nothing is kept in
`recorded/`."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

from case import classes, pixels, term
from defaults import exported
from optimizers import optimizer

CE, LAST, MSE = term("cross_entropy"), term("cross_entropy", class_axis=-1), term("mse")


class Speech(nn.Module):
    """FastSpeech: predicted log-durations, and phonemes stretched to frames by counting the cumulative durations."""

    def __init__(self, frames=9):
        super().__init__()
        self.frames = frames
        self.table, self.conv, self.duration, self.out = nn.Embedding(11, 6), nn.Conv1d(6, 6, 3, padding=1), nn.Linear(6, 1), nn.Linear(6, 4)

    def forward(self, phonemes, durations):
        h = F.relu(self.conv(self.table(phonemes).transpose(1, 2))).transpose(1, 2)
        ends = durations.cumsum(1)
        at = (ends.unsqueeze(1) <= torch.arange(self.frames, device=ends.device).unsqueeze(1)).sum(-1).clamp(max=phonemes.size(1) - 1)
        frames = h.gather(1, at.unsqueeze(-1).expand(-1, -1, h.size(-1)))
        valid = (torch.arange(self.frames)[None] < ends[:, -1:]).unsqueeze(-1)
        return self.out(frames) * valid, self.duration(h.detach()).squeeze(-1)


class Cox(nn.Module):
    """Cox's partial likelihood over the samples sorted by time, by a cumulative sum of exponentials."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 1))

    def forward(self, x, time, event):
        r = self.net(x).squeeze(-1)[torch.argsort(time, descending=True)]
        e = event[torch.argsort(time, descending=True)]
        return -((r - torch.logcumsumexp(r, 0)) * e).sum() / e.sum().clamp(min=1.0)


class Sinc(nn.Module):
    """SincNet: band-pass filters from two trained frequencies each, log-compressed pooling."""

    def __init__(self):
        super().__init__()
        self.low, self.band = nn.Parameter(torch.rand(4) * 0.1 + 0.02), nn.Parameter(torch.rand(4) * 0.1 + 0.05)
        self.register_buffer("n", torch.arange(-5, 6).float())
        self.register_buffer("window", torch.hamming_window(11, periodic=False))
        self.head = nn.Linear(8, 3)

    def forward(self, wave):
        lo = self.low.abs().unsqueeze(1)
        hi = (lo + self.band.abs().unsqueeze(1)).clamp(max=0.5)
        f = (2 * hi * torch.sinc(2 * hi * self.n) - 2 * lo * torch.sinc(2 * lo * self.n)) * self.window
        h = F.conv1d(wave.unsqueeze(1), (f / f.abs().amax(1, keepdim=True)).unsqueeze(1), stride=2)
        h = F.avg_pool1d(h.abs(), 5, 3).clamp_min(1e-4).log()
        return self.head(torch.cat([h.mean(-1), h.std(-1, unbiased=False)], -1))


class Replaced(nn.Module):
    """Masked positions are overwritten by a token through a boolean index; a bilinear score of two texts."""

    def __init__(self):
        super().__init__()
        self.table, self.token, self.pair, self.out = nn.Embedding(13, 6), nn.Parameter(torch.randn(6) * 0.3), nn.Bilinear(6, 6, 3), nn.Linear(6, 13)

    def forward(self, a, b, masked):
        h = self.table(a).clone()
        h[masked] = self.token
        p, q = h.mean(1), self.table(b).mean(1)
        return self.out(h), self.pair(p, q)


class Gaussian(nn.Module):
    """The CRPS of a normal distribution by erf, and an entropy of mixture weights by xlogy."""

    def __init__(self):
        super().__init__()
        self.body, self.mu, self.sd, self.mix = nn.Linear(4, 8), nn.Linear(8, 1), nn.Linear(8, 1), nn.Linear(8, 3)

    def forward(self, x, value):
        h = torch.atan(self.body(x))
        sd = F.softplus(self.sd(h)).squeeze(-1) + 0.1
        z = (value - self.mu(h).squeeze(-1)) / sd
        crps = sd * (z * torch.erf(z / math.sqrt(2)) + math.sqrt(2 / math.pi) * torch.exp(-0.5 * z * z) - 1 / math.sqrt(math.pi))
        p = self.mix(h).softmax(-1)
        return crps, torch.special.xlogy(p, p).sum(-1) + torch.special.entr(p).amax(-1)


class Vocoder(nn.Module):
    """A spectrogram loss by torch.stft of a generated wave against the given one; the wave comes from transposed convolutions."""

    def __init__(self):
        super().__init__()
        self.pre, self.up, self.post = nn.Conv1d(4, 6, 3, padding=1), nn.ConvTranspose1d(6, 4, 8, stride=4, padding=2), nn.Conv1d(4, 1, 5, padding=2)
        self.register_buffer("window", torch.hann_window(16))

    def spectrum(self, wave):
        s = torch.stft(wave, 16, 8, window=self.window, center=False, return_complex=True)
        return torch.view_as_real(s).square().sum(-1).add(1e-5).sqrt()

    def forward(self, mel, wave):
        y = torch.tanh(self.post(F.leaky_relu(self.up(F.leaky_relu(self.pre(mel), 0.1)), 0.1))).squeeze(1)
        a, b = self.spectrum(y), self.spectrum(wave)
        return y, (a - b).abs().mean() + (a.log() - b.log()).abs().mean()


class Memory(nn.Module):
    """Prototypes of classes: distances by norms, soft assignments added up by index_add, nearest rows by index_select."""

    def __init__(self):
        super().__init__()
        self.net, self.keys, self.values, self.head = nn.Linear(5, 4), nn.Parameter(torch.randn(6, 4)), nn.Parameter(torch.randn(6, 3) * 0.5), nn.Linear(7, 3)
        self.register_buffer("group", torch.tensor([0, 1, 2, 2, 1, 0]))

    def forward(self, x):
        h = torch.tanh(self.net(x))
        d = (h.unsqueeze(1) - self.keys).norm(dim=-1)
        p = (-d).softmax(1)
        by_class = p.new_zeros(x.size(0), 3).index_add(1, self.group, p)
        near = self.values.index_select(0, d.argmin(1))
        return self.head(torch.cat([p @ self.values + near, h], 1)) + by_class


class Robust(nn.Module):
    """A trimmed mean by sorting, vector norms of several orders, and a median as a pooled feature."""

    def __init__(self):
        super().__init__()
        self.each, self.head = nn.Linear(3, 5), nn.Linear(5 * 5, 2)

    def forward(self, x):
        h = F.elu(self.each(x))
        s = h.sort(1)[0]
        parts = [s[:, 2:-2].mean(1), torch.linalg.vector_norm(h, 3, dim=1), h.norm(p=float("inf"), dim=1), h.norm(p=1, dim=1), torch.linalg.vector_norm(h - s[:, :1], dim=1)]
        return self.head(torch.cat(parts, 1))


class Rotated(nn.Module):
    """One network over four rotations and two mirrored images, maxima over the group; filters rotated as well."""

    def __init__(self):
        super().__init__()
        self.w, self.b, self.c, self.head = nn.Parameter(torch.randn(4, 2, 3, 3) * 0.3), nn.Parameter(torch.randn(4) * 0.1), nn.Conv2d(4, 4, 3, padding=1), nn.Linear(4, 3)

    def forward(self, x):
        f = torch.cat([torch.rot90(self.w, k, (2, 3)) for k in range(4)])
        h = F.conv2d(x, f, self.b.repeat(4), padding=1).unflatten(1, (4, 4)).amax(1)
        h = F.relu(self.c(h)) + F.relu(self.c(h.flip(-1))).flip(-1)
        return self.head(h.flatten(2).logsumexp(-1))


class Shifted(nn.Module):
    """Channels rolled in four directions, wrapped, cropped by negative pads, and pooled to odd grids."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.head = nn.Conv2d(4, 8, 1), nn.Conv2d(8, 4, 1), nn.Linear(4 * 6, 3)

    def forward(self, x):
        h = F.gelu(self.a(x))
        g = h.chunk(4, 1)
        h = torch.cat([torch.roll(p, s, (2, 3)) for p, s in zip(g, ((1, 0), (-1, 0), (0, 1), (0, -2)))], 1)
        h = F.pad(F.pad(self.b(h), (2, 1, 1, 2), mode="circular"), (-1, -1, 0, -1))
        return self.head(F.adaptive_avg_pool2d(h, (3, 2)).flatten(1))


class Rendered(nn.Module):
    """Volume rendering: transparencies multiplied by sums of logarithms, expected depth."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3 * 4, 12), nn.Softplus(), nn.Linear(12, 4))
        self.register_buffer("bands", 2.0 ** torch.arange(2) * math.pi)

    def forward(self, origin, way, depth):
        p = origin[:, None] + way[:, None] * depth[..., None]
        e = (p[..., None] * self.bands).flatten(-2)
        raw = self.net(torch.cat([e.sin(), e.cos()], -1))
        sigma, color = F.softplus(raw[..., 0]), raw[..., 1:].sigmoid()
        step = torch.cat([depth[:, 1:] - depth[:, :-1], torch.full_like(depth[:, :1], 1.0)], 1)
        alpha = 1 - torch.exp(-sigma * step)
        clear = torch.exp(torch.cumsum(torch.log(torch.cat([torch.ones_like(alpha[:, :1]), 1 - alpha + 1e-10], 1)), 1))[:, :-1]
        w = alpha * clear
        return (w[..., None] * color).sum(1), (w * depth).sum(1), sigma.amax(1).mean()


class Fed(nn.Module):
    """A decoder that feeds its own choices back, with scheduled sampling by a given mask."""

    def __init__(self):
        super().__init__()
        self.table, self.cell, self.out = nn.Embedding(7, 4), nn.LSTMCell(4, 6), nn.Linear(6, 7)
        self.start = nn.Linear(5, 6)

    def forward(self, context, truth, forced):
        h = torch.tanh(self.start(context))
        c, token, outs = torch.zeros_like(h), truth[:, 0], []
        for t in range(1, truth.size(1)):
            h, c = self.cell(self.table(token), (h, c))
            logits = self.out(h)
            outs.append(logits)
            token = torch.where(forced[:, t], truth[:, t], logits.argmax(-1))
        return torch.stack(outs, 1)


class Hashed(nn.Module):
    """Instant NGP: corners hashed by products and exclusive ors, trilinear weights, two levels of tables."""

    def __init__(self):
        super().__init__()
        self.tables, self.net = nn.Parameter(torch.randn(2, 16, 2) * 0.3), nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))

    def forward(self, x):
        feats = []
        for level, size in enumerate((3, 5)):
            p = (x + 2) * size
            low = p.floor()
            f, i = p - low, low.long()
            total = 0
            for corner in range(4):
                dx, dy = corner & 1, corner >> 1
                index = torch.bitwise_xor(i[:, 0] + dx, (i[:, 1] + dy) * 265443) % 16
                w = (f[:, 0] if dx else 1 - f[:, 0]) * (f[:, 1] if dy else 1 - f[:, 1])
                total = total + w.unsqueeze(1) * self.tables[level][index]
            feats.append(total)
        return self.net(torch.cat(feats, 1))


class Spectral(nn.Module):
    """A Fourier neural operator: complex weights as two real ones, modes cut and written into zeros, inverse transform of odd length."""

    def __init__(self):
        super().__init__()
        self.lift, self.re, self.im, self.skip, self.out = nn.Linear(2, 4), nn.Parameter(torch.randn(4, 4, 3) * 0.2), nn.Parameter(torch.randn(4, 4, 3) * 0.2), nn.Conv1d(4, 4, 1), nn.Linear(4, 1)

    def forward(self, x):
        h = self.lift(x).transpose(1, 2)
        f = torch.fft.rfft(h, norm="ortho")
        low = torch.view_as_real(f)[:, :, :3]
        mix = lambda a, w: torch.einsum("bim,iom->bom", a, w)
        re = mix(low[..., 0], self.re) - mix(low[..., 1], self.im)
        im = mix(low[..., 0], self.im) + mix(low[..., 1], self.re)
        full = F.pad(torch.stack([re, im], -1), (0, 0, 0, f.shape[-1] - 3))
        y = torch.fft.irfft(torch.view_as_complex(full.contiguous()), n=h.shape[-1], norm="ortho")
        return self.out(F.gelu(y + self.skip(h)).transpose(1, 2)).squeeze(-1)


class Assigned(nn.Module):
    """In-place code: slices, steps and rows are overwritten; a running state per step; a triangle filled by index."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.entries = nn.Linear(4, 5), nn.Linear(5, 5), nn.Linear(5, 6)

    def forward(self, x):
        h = torch.zeros(x.shape[0], x.shape[1], 5)
        h[:, 0] = self.a(x[:, 0])
        for t in range(1, x.shape[1]):
            h[:, t] = torch.tanh(self.b(h[:, t - 1].clone()) + self.a(x[:, t]))
        h[:, ::2, 1:3] *= 0.5
        h[..., -1] += 1.0
        e = self.entries(h.mean(1))
        l = torch.zeros(x.shape[0], 3, 3)
        i, j = torch.tril_indices(3, 3)
        l[:, i, j] = e
        d = torch.arange(3)
        l[:, d, d] = F.softplus(l[:, d, d].clone()) + 0.1
        return l @ l.transpose(1, 2), l.diagonal(dim1=1, dim2=2).log().sum(1)


class Quantiles(nn.Module):
    """Quantile regression forests' cousin: sorted quantiles by cumulative softplus, a pinball loss by torch.where, coverage by counting."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(5, 8), nn.Hardswish(), nn.Linear(8, 5))
        self.register_buffer("q", torch.tensor([0.05, 0.25, 0.5, 0.75, 0.95]))

    def forward(self, x, value):
        r = self.net(x)
        y = torch.cat([r[:, :1], F.softplus(r[:, 1:])], 1).cumsum(1)
        e = value.unsqueeze(1) - y
        return y[:, 2], torch.where(e >= 0, self.q * e, (self.q - 1) * e).sum(1).mean(), (e[:, 0] > 0).logical_and(e[:, -1] < 0).float().mean()


def cases():
    yield from exported("speech", Speech, lambda b: {"phonemes": classes(11, b, 5), "durations": classes(4, b, 5), "y": pixels(b, 9, 4), "z": torch.rand(b, 5)}, [term("l1"), term("mse", "duration", "z")], optimizer("adam"), inputs="phonemes durations", targets="y z", outputs="out duration", keep_notes=True)
    yield from exported("cox", Cox, lambda b: {"x": pixels(b, 5), "time": torch.rand(b), "event": torch.ones(b)}, [term("output", target=None)], optimizer("rmsprop"), inputs="x time event", targets="", size=6)
    yield from exported("sinc", Sinc, lambda b: {"wave": pixels(b, 61), "y": classes(3, b)}, [CE], optimizer("adam", lr=0.003), inputs="wave")
    yield from exported("replaced", Replaced, lambda b: {"a": classes(13, b, 6), "b": classes(13, b, 4), "masked": torch.rand(b, 6) < 0.4, "y": classes(13, b, 6), "z": classes(3, b)}, [LAST, term("cross_entropy", "pair", "z")], optimizer("adamw"), inputs="a b masked", targets="y z", outputs="out pair")
    yield from exported("gaussian", Gaussian, lambda b: {"x": pixels(b, 4), "value": pixels(b)}, [term("output", target=None), term("output", "mix", None, weight=0.1)], optimizer("nesterov"), inputs="x value", targets="", outputs="out mix")
    yield from exported("vocoder", Vocoder, lambda b: {"mel": pixels(b, 4, 8), "wave": torch.rand(b, 32) - 0.5}, [term("output", "loss", None)], optimizer("adamw", betas=[0.8, 0.99]), inputs="mel wave", targets="", outputs="out loss")
    yield from exported("memory", Memory, lambda b: {"x": pixels(b, 5), "y": classes(3, b)}, [CE], optimizer("adagrad"))
    yield from exported("robust", Robust, lambda b: {"x": pixels(b, 9, 3), "y": pixels(b, 2)}, [term("huber", delta=0.7)], optimizer("momentum"))
    yield from exported("rotated", Rotated, lambda b: {"x": pixels(b, 2, 6, 6), "y": classes(3, b)}, [CE], optimizer("adamax"))
    yield from exported("shifted", Shifted, lambda b: {"x": pixels(b, 4, 6, 7), "y": classes(3, b)}, [CE], optimizer("sgd", weight_decay=0.01))
    yield from exported("rendered", Rendered, lambda b: {"origin": pixels(b, 3), "way": pixels(b, 3), "depth": torch.rand(b, 6).sort(1)[0] * 2, "y": torch.rand(b, 3), "z": torch.rand(b)}, [MSE, term("smooth_l1", "depths", "z", weight=0.3), term("output", "most", None, weight=0.05)], optimizer("adam"), inputs="origin way depth", targets="y z", outputs="out depths most")
    yield from exported("fed", Fed, lambda b: {"context": pixels(b, 5), "truth": classes(7, b, 5), "forced": torch.rand(b, 5) < 0.5, "y": classes(7, b, 4)}, [LAST], optimizer("adam"), inputs="context truth forced", clip_grad_norm=1.0)
    yield from exported("hashed", Hashed, lambda b: {"x": 2 * torch.rand(b, 2) - 1, "y": torch.rand(b, 3)}, [MSE], optimizer("adam", eps=1e-15, betas=[0.9, 0.99]), size=6)
    yield from exported("spectral", Spectral, lambda b: {"x": pixels(b, 11, 2), "y": pixels(b, 11)}, [MSE], optimizer("adam", weight_decay=1e-4))
    yield from exported("assigned", Assigned, lambda b: {"x": pixels(b, 5, 4), "y": pixels(b, 3, 3)}, [MSE, term("output", "logdet", None, weight=-0.1)], optimizer("adamw"), outputs="out logdet")
    yield from exported("quantiles", Quantiles, lambda b: {"x": pixels(b, 5), "value": pixels(b), "y": pixels(b)}, [term("output", "pinball", None), term("l1", weight=0.1)], optimizer("lamb"), inputs="x value", outputs="out pinball cover")
