"""Models from many fields, written as people write them, at sizes that two cores train in a fraction of a second: a third set of workloads.
"""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F


def perceptron(*widths, activation=nn.ReLU):
    layers = []
    for i, o in zip(widths, widths[1:]):
        layers += [nn.Linear(i, o), activation()]
    return nn.Sequential(*layers[:-1])


class Rms(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


class Llama(nn.Module):
    """Rotary position embeddings, grouped-query attention, gated MLPs; logits [batch * time, vocab]."""

    def __init__(self, words=2000, width=256, layers=3, heads=8, groups=2, length=128):
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, width // heads
        angle = torch.arange(length)[:, None] / 10000 ** (torch.arange(0, self.size, 2) / self.size)
        self.register_buffer("cos", angle.cos().repeat(1, 2)), self.register_buffer("sin", angle.sin().repeat(1, 2))
        self.register_buffer("mask", torch.full((length, length), -1e9).triu(1))
        self.words, self.norm, self.head = nn.Embedding(words, width), Rms(width), nn.Linear(width, words, bias=False)
        self.layers = nn.ModuleList(nn.ModuleDict(dict(
            q=nn.Linear(width, width, bias=False), kv=nn.Linear(width, 2 * groups * self.size, bias=False), o=nn.Linear(width, width, bias=False),
            gate=nn.Linear(width, 2 * width, bias=False), up=nn.Linear(width, 2 * width, bias=False), down=nn.Linear(2 * width, width, bias=False),
            norm1=Rms(width), norm2=Rms(width))) for _ in range(layers))

    def turn(self, x):
        a, b = x.chunk(2, -1)
        return x * self.cos + torch.cat([-b, a], -1) * self.sin

    def forward(self, x):
        x = self.words(x)
        b, t, d = x.shape
        for layer in self.layers:
            y = layer["norm1"](x)
            q = self.turn(layer["q"](y).view(b, t, self.heads, self.size).transpose(1, 2))
            k, v = (z.view(b, t, self.groups, self.size).transpose(1, 2) for z in layer["kv"](y).chunk(2, -1))
            k, v = (z.repeat_interleave(self.heads // self.groups, 1) for z in (self.turn(k), v))
            scores = q @ k.transpose(-1, -2) / math.sqrt(self.size) + self.mask
            x = x + layer["o"]((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, t, d))
            y = layer["norm2"](x)
            x = x + layer["down"](F.silu(layer["gate"](y)) * layer["up"](y))
        return self.head(self.norm(x)).flatten(0, 1)


class StateSpace(nn.Module):
    """Mamba's selective scan, unrolled step by step."""

    def __init__(self, width=128, states=16):
        super().__init__()
        self.words, self.conv, self.head = nn.Embedding(1000, width), nn.Conv1d(width, width, 4, padding=3, groups=width), nn.Linear(width, 10)
        self.gate, self.select, self.delta = nn.Linear(width, width), nn.Linear(width, 2 * states), nn.Linear(width, width)
        self.decay, self.skip = nn.Parameter(torch.arange(1, states + 1).float().log().repeat(width, 1)), nn.Parameter(torch.ones(width))

    def forward(self, x):
        x = self.words(x)
        u = F.silu(self.conv(x.transpose(1, 2))[..., :x.shape[1]].transpose(1, 2))
        delta, (b, c) = F.softplus(self.delta(u)), self.select(u).chunk(2, -1)
        decay = torch.exp(-delta[..., None] * self.decay.exp())
        inputs = (delta * u)[..., None] * b[:, :, None]
        state, out = torch.zeros_like(inputs[:, 0]), []
        for t in range(x.shape[1]):
            state = decay[:, t] * state + inputs[:, t]
            out.append((state * c[:, t, None]).sum(-1))
        return self.head(((torch.stack(out, 1) + self.skip * u) * F.silu(self.gate(x))).mean(1))


class Splines(nn.Module):
    """A Kolmogorov-Arnold network: trained cubic splines on each edge."""

    def __init__(self, widths=(64, 64, 10), grid=5):
        super().__init__()
        self.register_buffer("knots", torch.linspace(-2.2, 2.2, grid + 7))
        self.base = nn.ModuleList(nn.Linear(i, o) for i, o in zip(widths, widths[1:]))
        self.edges = nn.ParameterList(nn.Parameter(0.1 * torch.randn(o, i * (grid + 3))) for i, o in zip(widths, widths[1:]))

    def bases(self, x):
        x, t = x[..., None], self.knots
        b = ((x >= t[:-1]) & (x < t[1:])).to(x.dtype)
        for k in (1, 2, 3):
            b = (x - t[:-k - 1]) / (t[k:-1] - t[:-k - 1]) * b[..., :-1] + (t[k + 1:] - x) / (t[k + 1:] - t[1:-k]) * b[..., 1:]
        return b.flatten(-2)

    def forward(self, x):
        for base, edge in zip(self.base, self.edges):
            x = base(F.silu(x)) + F.linear(self.bases(x), edge)
        return x


class Experts(nn.Module):
    """The best two of eight experts, weighted by their gate."""

    def __init__(self, width=128, count=8):
        super().__init__()
        self.gate, self.head = nn.Linear(width, count), nn.Linear(width, 10)
        self.experts = nn.ModuleList(perceptron(width, 256, width, activation=nn.GELU) for _ in range(count))

    def forward(self, x):
        best, places = self.gate(x).topk(2, -1)
        weight = torch.zeros(x.shape[0], len(self.experts)).scatter(1, places, best.softmax(-1))
        y = torch.stack([expert(x) for expert in self.experts], 1)
        return self.head(x + (weight[..., None] * y).sum(1))


class LinearAttention(nn.Module):
    """Katharopoulos et al. 2020, causal attention with running sums."""

    def __init__(self, width=64, heads=4):
        super().__init__()
        self.words, self.qkv, self.head, self.heads = nn.Embedding(1000, width), nn.Linear(width, 3 * width), nn.Linear(width, 10), heads

    def forward(self, x):
        q, k, v = (z.unflatten(-1, (self.heads, -1)) for z in self.qkv(self.words(x)).chunk(3, -1))
        q, k = F.elu(q) + 1, F.elu(k) + 1
        sums = (k[..., :, None] * v[..., None, :]).cumsum(1)
        y = (q[..., None] * sums).sum(-2) / ((q * k.cumsum(1)).sum(-1, keepdim=True) + 1e-6)
        return self.head(y.flatten(2).mean(1))


class WaveNet(nn.Module):
    def __init__(self, width=32, layers=8):
        super().__init__()
        self.first = nn.Conv1d(1, width, 1)
        self.gates = nn.ModuleList(nn.Conv1d(width, 2 * width, 2, dilation=2**n) for n in range(layers))
        self.skips, self.ways = (nn.ModuleList(nn.Conv1d(width, width, 1) for _ in range(n)) for n in (layers, layers - 1))
        self.head = nn.Linear(width, 10)

    def forward(self, x):
        x, total = self.first(x.transpose(1, 2)), 0
        for n, (gate, skip) in enumerate(zip(self.gates, self.skips)):
            a, b = gate(F.pad(x, (2**n, 0))).chunk(2, 1)
            y = torch.tanh(a) * torch.sigmoid(b)
            total = total + skip(y)
            if n < len(self.ways):
                x = x + self.ways[n](y)
        return self.head(F.relu(total).mean(-1))


class ConvLstm(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.width, self.gates, self.head = width, nn.Conv2d(1 + width, 4 * width, 3, padding=1), nn.Linear(width, 10)

    def forward(self, x):
        h = c = torch.zeros(x.shape[0], self.width, *x.shape[3:])
        for t in range(x.shape[2]):
            i, f, o, g = self.gates(torch.cat([x[:, :, t], h], 1)).chunk(4, 1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
        return self.head(h.mean((2, 3)))


class SpatialTransformer(nn.Module):
    """PyTorch's tutorial."""

    def __init__(self):
        super().__init__()
        self.places = nn.Sequential(nn.Conv2d(1, 8, 7), nn.MaxPool2d(2), nn.ReLU(), nn.Conv2d(8, 10, 5), nn.MaxPool2d(2), nn.ReLU())
        self.affine = nn.Sequential(nn.Linear(90, 32), nn.ReLU(), nn.Linear(32, 6))
        self.affine[2].weight.data.zero_(), self.affine[2].bias.data.copy_(torch.tensor([1, 0, 0, 0, 1, 0.0]))
        self.net = nn.Sequential(nn.Conv2d(1, 10, 5), nn.MaxPool2d(2), nn.ReLU(), nn.Conv2d(10, 20, 5), nn.MaxPool2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(320, 10))
        line = torch.linspace(-1, 1, 28)
        self.register_buffer("grid", torch.stack([*torch.meshgrid(line, line, indexing="xy"), torch.ones(28, 28)], -1).view(1, -1, 3))

    def forward(self, x):
        theta = self.affine(self.places(x).flatten(1)).view(-1, 2, 3)
        places = (self.grid @ theta.transpose(1, 2)).view(-1, 28, 28, 2)
        return self.net(F.grid_sample(x, places, align_corners=False))


class Deeplab(nn.Module):
    """Parallel dilated convolutions, pooled context, bilinear resizing; one number per pixel."""

    def __init__(self):
        super().__init__()
        def block(i, o, k=3, d=1, s=1): return nn.Sequential(nn.Conv2d(i, o, k, s, d * (k // 2), d, bias=False), nn.BatchNorm2d(o), nn.ReLU())
        self.stem = nn.Sequential(block(3, 32, s=2), block(32, 64, s=2), block(64, 64))
        self.branches = nn.ModuleList([block(64, 32, 1), *(block(64, 32, d=d) for d in (2, 4, 6))])
        self.pooled, self.join, self.head = nn.Conv2d(64, 32, 1), block(160, 64), nn.Conv2d(64, 3, 1)

    def forward(self, x):
        y = self.stem(x)
        context = F.relu(self.pooled(y.mean((2, 3), keepdim=True))).expand(-1, -1, *y.shape[2:])
        y = self.head(self.join(torch.cat([branch(y) for branch in self.branches] + [context], 1)))
        return F.interpolate(y, scale_factor=4, mode="bilinear", align_corners=False).flatten(1)


class UNetTransposed(nn.Module):
    """The usual U-Net: double convolutions, and transposed convolutions on the way up."""

    def __init__(self, widths=(16, 32, 64)):
        super().__init__()
        def double(i, o): return nn.Sequential(*(m for a in (i, o) for m in (nn.Conv2d(a, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU())))
        self.down = nn.ModuleList(double(i, o) for i, o in zip((3, *widths), widths))
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * o, o, 2, 2) for o in widths[-2::-1])
        self.joins, self.head = nn.ModuleList(double(2 * o, o) for o in widths[-2::-1]), nn.Conv2d(widths[0], 3, 1)

    def forward(self, x):
        kept = []
        for n, down in enumerate(self.down):
            x = down(F.max_pool2d(x, 2) if n else x)
            kept.append(x)
        for up, join, side in zip(self.up, self.joins, kept[-2::-1]):
            x = join(torch.cat([up(x), side], 1))
        return self.head(x).flatten(1)


class Style(nn.Module):
    """Johnson et al. 2016: reflection padding, instance normalization, nearest-neighbour resizing."""

    def __init__(self):
        super().__init__()
        def block(i, o, k, s=1, u=1): return nn.Sequential(*([nn.Upsample(scale_factor=u)] if u > 1 else []), nn.ReflectionPad2d(k // 2), nn.Conv2d(i, o, k, s),
                                                           nn.InstanceNorm2d(o, affine=True), nn.ReLU())
        self.net = nn.Sequential(block(3, 16, 9), block(16, 32, 3, 2), block(32, 64, 3, 2), block(64, 64, 3), block(64, 32, 3, u=2), block(32, 16, 3, u=2),
                                 nn.ReflectionPad2d(4), nn.Conv2d(16, 3, 9))

    def forward(self, x):
        return self.net(x).flatten(1)
