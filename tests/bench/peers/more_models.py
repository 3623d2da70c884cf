"""Models with operators that the ten workloads lack: group normalization and resizing, Einsum, asymmetric padding, elementwise gathers and
scatters, dropout."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Block(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(inputs, outputs, 3, padding=1), nn.GroupNorm(8, outputs)
        self.conv2, self.norm2 = nn.Conv2d(outputs, outputs, 3, padding=1), nn.GroupNorm(8, outputs)
        self.skip = nn.Conv2d(inputs, outputs, 1)

    def forward(self, x):
        h = F.silu(self.norm1(self.conv1(x)))
        return F.silu(self.norm2(self.conv2(h))) + self.skip(x)


class UNet(nn.Module):
    """A two-level U-Net as in diffusion models: [N, 3, H, W] to a vector per sample."""

    def __init__(self):
        super().__init__()
        self.down1, self.down2, self.middle = Block(3, 32), Block(32, 64), Block(64, 64)
        self.up2, self.up1, self.out = Block(128, 32), Block(64, 32), nn.Conv2d(32, 3, 1)

    def forward(self, x):
        a = self.down1(x)
        b = self.down2(F.avg_pool2d(a, 2))
        m = F.interpolate(self.middle(F.avg_pool2d(b, 2)), scale_factor=2.0, mode="bilinear", align_corners=False)
        y = F.interpolate(self.up2(torch.cat([m, b], 1)), scale_factor=2.0, mode="nearest")
        return self.out(self.up1(torch.cat([y, a], 1))).flatten(1)


class EinsumAttention(nn.Module):
    """One layer of attention by Einsum after an RMS normalization: [N, T, D] to 10 classes."""

    def __init__(self, width=128, heads=4):
        super().__init__()
        self.heads, self.scale = heads, (width // heads) ** -0.5
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))
        self.weight, self.head = nn.Parameter(torch.ones(width)), nn.Linear(width, 10)

    def forward(self, x):
        n = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight
        b, t, d = x.shape
        q, k, v = (layer(n).view(b, t, self.heads, d // self.heads) for layer in (self.q, self.k, self.v))
        scores = torch.einsum("bihd,bjhd->bhij", q, k) * self.scale
        y = torch.einsum("bhij,bjhd->bihd", scores.softmax(-1), v).reshape(b, t, d)
        return self.head((x + self.out(y)).mean(1))


class SamePadding(nn.Module):
    """Strided convolutions with TensorFlow's padding, and instance normalization."""

    def __init__(self):
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(i, o, 3, stride=2) for i, o in ((3, 32), (32, 64), (64, 96)))
        self.norms = nn.ModuleList(nn.InstanceNorm2d(o, affine=True) for o in (32, 64, 96))
        self.head = nn.Linear(96, 10)

    def forward(self, x):
        for conv, norm in zip(self.convs, self.norms):
            x = F.relu(norm(conv(F.pad(x, (0, 1, 0, 1)))))
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))


class MessagePassing(nn.Module):
    """Message passing on a fixed ring of nodes with chords: [N, nodes, features] to 10 classes."""

    def __init__(self, nodes=2000, features=64):
        super().__init__()
        self.layer, self.head = nn.Linear(features, features), nn.Linear(features, 10)
        ring = torch.arange(nodes)
        self.register_buffer("source", torch.cat([ring, ring]))
        self.register_buffer("target", torch.cat([(ring + 1) % nodes, (ring * 7) % nodes]))

    def forward(self, x):
        h = self.layer(x)
        edges = (h.shape[0], self.source.shape[0], h.shape[2])
        messages = torch.gather(h, 1, self.source[None, :, None].expand(edges))
        summed = torch.zeros_like(h).scatter_add(1, self.target[None, :, None].expand(edges), messages)
        return self.head(F.relu(summed).mean(1))


class DropoutEncoder(nn.Module):
    """BERT's layers with dropout in the original places, on embeddings, attention and both halves of a layer: [N, T] to 4 classes."""

    def __init__(self, words=5000, width=256, layers=4, heads=4, length=128, p=0.1):
        super().__init__()
        self.heads, self.p = heads, p
        self.words, self.places, self.norm = nn.Embedding(words, width), nn.Embedding(length, width), nn.LayerNorm(width)
        self.layers = nn.ModuleList(nn.ModuleDict(dict(
            qkv=nn.Linear(width, 3 * width), proj=nn.Linear(width, width), fc1=nn.Linear(width, 4 * width), fc2=nn.Linear(4 * width, width),
            norm1=nn.LayerNorm(width), norm2=nn.LayerNorm(width))) for _ in range(layers))
        self.head = nn.Linear(width, 4)

    def drop(self, x):
        return F.dropout(x, self.p, self.training)

    def forward(self, x):
        x = self.drop(self.norm(self.words(x) + self.places(torch.arange(x.shape[1], device=x.device))))
        b, t, d = x.shape
        for layer in self.layers:
            q, k, v = (z.view(b, t, self.heads, d // self.heads).transpose(1, 2) for z in layer["qkv"](x).split(d, -1))
            scores = q @ k.transpose(-1, -2) * (d // self.heads) ** -0.5
            y = (self.drop(scores.softmax(-1)) @ v).transpose(1, 2).reshape(b, t, d)
            x = layer["norm1"](x + self.drop(layer["proj"](y)))
            x = layer["norm2"](x + self.drop(layer["fc2"](F.gelu(layer["fc1"](x)))))
        return self.head(x.mean(1))


class RmsNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


class RelativeEncoder(nn.Module):
    """T5's layers: unscaled scores with a trained bias by relative position that all layers share, and RMS norms before each half. [N, T]
    to 4 classes."""

    def __init__(self, words=5000, width=256, layers=4, heads=4, length=256, distances=64):
        super().__init__()
        self.heads = heads
        self.words, self.bias, self.norm = nn.Embedding(words, width), nn.Embedding(2 * distances + 1, heads), RmsNorm(width)
        places = torch.arange(length)
        self.register_buffer("distance", (places[None] - places[:, None]).clamp(-distances, distances) + distances)
        self.layers = nn.ModuleList(nn.ModuleDict(dict(
            qkv=nn.Linear(width, 3 * width, bias=False), proj=nn.Linear(width, width, bias=False), fc1=nn.Linear(width, 4 * width, bias=False),
            fc2=nn.Linear(4 * width, width, bias=False), norm1=RmsNorm(width), norm2=RmsNorm(width))) for _ in range(layers))
        self.head = nn.Linear(width, 4)

    def forward(self, x):
        x = self.words(x)
        b, t, d = x.shape
        bias = self.bias(self.distance).permute(2, 0, 1)[None]
        for layer in self.layers:
            q, k, v = (z.view(b, t, self.heads, d // self.heads).transpose(1, 2) for z in layer["qkv"](layer["norm1"](x)).split(d, -1))
            y = ((q @ k.transpose(-1, -2) + bias).softmax(-1) @ v).transpose(1, 2).reshape(b, t, d)
            x = x + layer["proj"](y)
            x = x + layer["fc2"](F.relu(layer["fc1"](layer["norm2"](x))))
        return self.head(self.norm(x).mean(1))
