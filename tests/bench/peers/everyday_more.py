"""The second half of everyday.py: tables, texts, point sets, and layers named after their activation."""
import torch
import torch.nn as nn
import torch.nn.functional as F

from everyday import perceptron


class StandardisedConv(nn.Conv2d):
    def forward(self, x):
        w = self.weight
        w = (w - w.mean((1, 2, 3), keepdim=True)) / (w.std((1, 2, 3), keepdim=True) + 1e-5)
        return F.conv2d(x, w, self.bias, self.stride, self.padding)


class GroupNormNet(nn.Module):
    """Weight standardization and group normalization."""

    def __init__(self):
        super().__init__()
        layers = []
        for i, o, s in ((3, 32, 1), (32, 64, 2), (64, 64, 1), (64, 128, 2), (128, 128, 1)):
            layers += [StandardisedConv(i, o, 3, s, 1), nn.GroupNorm(8, o), nn.SiLU()]
        self.net, self.head = nn.Sequential(*layers), nn.Linear(128, 10)

    def forward(self, x):
        return self.head(self.net(x).mean((2, 3)))


class FactorisationMachine(nn.Module):
    """DeepFM: pairwise products of fields by the square of a sum, and an MLP."""

    def __init__(self, fields=24, words=2000, width=16):
        super().__init__()
        self.register_buffer("first", torch.arange(fields) * words)
        self.table, self.line = nn.Embedding(fields * words, width), nn.Embedding(fields * words, 1)
        self.deep = nn.Sequential(nn.Linear(fields * width, 256), nn.BatchNorm1d(256), nn.ReLU(), nn.Dropout(0.2), nn.Linear(256, 64), nn.BatchNorm1d(64), nn.ReLU(),
                                  nn.Linear(64, 10))

    def forward(self, x):
        x = x + self.first
        v = self.table(x)
        pairs = 0.5 * (v.sum(1).pow(2) - v.pow(2).sum(1)).sum(1, keepdim=True)
        return self.deep(v.flatten(1)) + pairs + self.line(x).sum(1)


class Contrast(nn.Module):
    """Similarities of each sample to a table of prototypes, with a trained temperature."""

    def __init__(self):
        super().__init__()
        self.net, self.prototypes, self.scale = perceptron(256, 512, 128), nn.Parameter(torch.randn(1000, 128)), nn.Parameter(torch.tensor(2.6))

    def forward(self, x):
        return self.scale.exp() * F.normalize(self.net(x), dim=-1) @ F.normalize(self.prototypes, dim=-1).t()


class Sines(nn.Module):
    """SIREN: the value of an image as a function of the position."""

    def __init__(self, width=128, layers=4):
        super().__init__()
        self.layers, self.head = nn.ModuleList(nn.Linear(i, width) for i in (13, *[width] * (layers - 1))), nn.Linear(width, 1)

    def forward(self, x):
        for n, layer in enumerate(self.layers):
            x = torch.sin((30 if n == 0 else 1) * layer(x))
        return self.head(x)


class GraphAttention(nn.Module):
    """Attention over the neighbors of 64 nodes, with a graph per sample."""

    def __init__(self, width=64, heads=4):
        super().__init__()
        self.maps, self.a, self.b = nn.ModuleList(nn.Linear(i, width) for i in (16, width)), *(nn.Parameter(0.1 * torch.randn(2, heads, width // heads)) for _ in range(2))
        self.heads, self.head = heads, nn.Linear(width, 10)
        self.register_buffer("neighbours", (torch.rand(64, 64, generator=torch.Generator().manual_seed(0)) < 0.15) | torch.eye(64, dtype=torch.bool))

    def forward(self, x):
        for n, layer in enumerate(self.maps):
            h = layer(x).unflatten(-1, (self.heads, -1))
            scores = (h * self.a[n]).sum(-1)[:, :, None] + (h * self.b[n]).sum(-1)[:, None]
            scores = F.leaky_relu(scores, 0.2).masked_fill(~self.neighbours[None, :, :, None], -1e9)
            x = F.elu(torch.einsum("bijh,bjhd->bihd", scores.softmax(2), h).flatten(2))
        return self.head(x.mean(1))


class Prototypes(nn.Module):
    def __init__(self):
        super().__init__()
        self.net, self.points = perceptron(128, 256, 64), nn.Parameter(torch.randn(200, 64))

    def forward(self, x):
        return -torch.cdist(self.net(x), self.points)


class Translator(nn.Module):
    """A GRU encoder and an attention cell that decodes 16 words."""

    def __init__(self, words=500, width=128):
        super().__init__()
        self.words, self.read, self.cell = nn.Embedding(words, width), nn.GRU(width, width, batch_first=True), nn.GRUCell(2 * width, width)
        self.key, self.query, self.value, self.head = nn.Linear(width, width), nn.Linear(width, width), nn.Linear(width, 1), nn.Linear(2 * width, words)

    def forward(self, x):
        x = self.words(x)
        seen, h = self.read(x)
        h, keys, out = h[0], self.key(seen), []
        for t in range(16):
            weight = self.value(torch.tanh(keys + self.query(h)[:, None])).softmax(1)
            context = (weight * seen).sum(1)
            h = self.cell(torch.cat([x[:, t], context], -1), h)
            out.append(self.head(torch.cat([h, context], -1)))
        return torch.stack(out, 1).flatten(0, 1)


class TabularTransformer(nn.Module):
    """FT-Transformer: a token per number, PyTorch's own layers with dropout."""

    def __init__(self, numbers=20, width=64):
        super().__init__()
        self.weight, self.bias, self.cls = (nn.Parameter(0.1 * torch.randn(n, width)) for n in (numbers, numbers, 1))
        layer = nn.TransformerEncoderLayer(width, 4, 128, 0.1, "gelu", batch_first=True, norm_first=True)
        self.net, self.head = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False), nn.Linear(width, 10)

    def forward(self, x):
        tokens = x[..., None] * self.weight + self.bias
        return self.head(self.net(torch.cat([self.cls.expand(x.shape[0], -1, -1), tokens], 1))[:, 0])


class Perceiver(nn.Module):
    def __init__(self, width=96, latents=32):
        super().__init__()
        self.first, self.latents = nn.Linear(16, width), nn.Parameter(torch.randn(latents, width))
        self.cross, self.inner = (nn.ModuleList(nn.MultiheadAttention(width, 4, batch_first=True) for _ in range(2)) for _ in range(2))
        self.norms, self.mlps = (nn.ModuleList(make() for _ in range(2)) for make in (lambda: nn.LayerNorm(width), lambda: perceptron(width, 2 * width, width, activation=nn.GELU)))
        self.head = nn.Linear(width, 10)

    def forward(self, x):
        x, y = self.first(x), self.latents.expand(x.shape[0], -1, -1)
        for cross, inner, norm, mlp in zip(self.cross, self.inner, self.norms, self.mlps):
            y = y + cross(norm(y), x, x, need_weights=False)[0]
            y = y + inner(y, y, y, need_weights=False)[0]
            y = y + mlp(y)
        return self.head(y.mean(1))


class CodeBook(nn.Module):
    """A VQ-VAE: the nearest of 128 codes at each position, followed by the decoder."""

    def __init__(self, width=32):
        super().__init__()
        self.encode = nn.Sequential(nn.Conv2d(3, width, 4, 2, 1), nn.ReLU(), nn.Conv2d(width, width, 4, 2, 1))
        self.codes = nn.Embedding(128, width)
        self.decode = nn.Sequential(nn.ConvTranspose2d(width, width, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(width, 3, 4, 2, 1))

    def forward(self, x):
        z = self.encode(x).permute(0, 2, 3, 1)
        flat, table = z.flatten(0, 2), self.codes.weight
        nearest = (flat.pow(2).sum(1, keepdim=True) - 2 * flat @ table.t() + table.pow(2).sum(1)).argmin(1)
        return self.decode((self.codes(nearest).view_as(z) + z).permute(0, 3, 1, 2)).flatten(1)


class Mixer(nn.Module):
    def __init__(self, width=128, patches=64, layers=4):
        super().__init__()
        self.first, self.head = nn.Conv2d(3, width, 8, 8), nn.Linear(width, 10)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2 * layers))
        self.tokens, self.channels = (nn.ModuleList(perceptron(n, 2 * n, n, activation=nn.GELU) for _ in range(layers)) for n in (patches, width))

    def forward(self, x):
        x = self.first(x).flatten(2).transpose(1, 2)
        for n, (tokens, channels) in enumerate(zip(self.tokens, self.channels)):
            x = x + tokens(self.norms[2 * n](x).transpose(1, 2)).transpose(1, 2)
            x = x + channels(self.norms[2 * n + 1](x))
        return self.head(x.mean(1))


def activations():
    kinds = (nn.Mish, nn.SiLU, nn.Hardswish, nn.Softplus, nn.ELU, nn.PReLU, nn.SELU, nn.LeakyReLU, nn.GELU, nn.Tanh)
    return nn.Sequential(nn.Linear(100, 512), *(m for kind in kinds for m in (kind(), nn.Linear(512, 512))), nn.Linear(512, 10))


class TabularResidual(nn.Module):
    def __init__(self, width=256, blocks=6):
        super().__init__()
        self.first, self.head = nn.Linear(100, width), nn.Linear(width, 10)
        self.blocks = nn.ModuleList(nn.Sequential(nn.BatchNorm1d(width), nn.Linear(width, width), nn.ReLU(), nn.Dropout(0.1), nn.Linear(width, width)) for _ in range(blocks))

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = x + block(x)
        return self.head(F.relu(x))


class SuperResolution(nn.Module):
    """ESPCN to twice the size, then the mean of each 2 x 2 pixels, so that targets have the size of the images."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(3, 64, 5, padding=2), nn.Tanh(), nn.Conv2d(64, 32, 3, padding=1), nn.Tanh(), nn.Conv2d(32, 12, 3, padding=1), nn.PixelShuffle(2),
                                 nn.AvgPool2d(2))

    def forward(self, x):
        return self.net(x).flatten(1)


class TextReader(nn.Module):
    """CRNN: the columns of an image's features, read in both directions."""

    def __init__(self):
        super().__init__()
        layers = []
        for i, o, pool in ((1, 32, 2), (32, 64, 2), (64, 64, (2, 1))):
            layers += [nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU(), nn.MaxPool2d(pool)]
        self.net, self.read, self.head = nn.Sequential(*layers), nn.LSTM(256, 64, 2, batch_first=True, bidirectional=True), nn.Linear(128, 10)

    def forward(self, x):
        return self.head(self.read(self.net(x).permute(0, 3, 1, 2).flatten(2))[0].mean(1))


class MaskedEncoder(nn.Module):
    """PyTorch's own encoder over texts of different lengths; 0 is padding."""

    def __init__(self, words=1000, width=128):
        super().__init__()
        layer = nn.TransformerEncoderLayer(width, 4, 256, 0.1, batch_first=True)
        self.words, self.net, self.head = nn.Embedding(words, width, padding_idx=0), nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(width, 4)

    def forward(self, x):
        empty = x.remainder(5) == 0
        y = self.net(self.words(x), src_key_padding_mask=empty).masked_fill(empty[..., None], 0)
        return self.head(y.sum(1) / (~empty).sum(1, keepdim=True).clamp(min=1))


class SkipGram(nn.Module):
    """A large table of which a step touches only a few rows, with Adam."""

    def __init__(self, words=50000, width=64):
        super().__init__()
        self.inner, self.outer = nn.Embedding(words, width), nn.Embedding(words, width)

    def forward(self, x):
        return (self.inner(x[:, :1]) * self.outer(x[:, 1:])).sum(-1)


class Forecast(nn.Module):
    """N-BEATS: each block subtracts its part of the past and adds its part of the forecast."""

    def __init__(self, past=96, future=10, blocks=6, width=256):
        super().__init__()
        self.blocks = nn.ModuleList(perceptron(past, width, width, width, past + future) for _ in range(blocks))
        self.past = past

    def forward(self, x):
        total = 0
        for block in self.blocks:
            y = block(x)
            x, total = x - y[:, :self.past], total + y[:, self.past:]
        return total
