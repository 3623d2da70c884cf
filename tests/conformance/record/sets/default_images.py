"""Images, volumes and signals through PyTorch's default exporter, as whole classes with written-out recipes. The styles are in defaults.py.
Nothing is kept in `recorded/`."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils import parametrizations

from case import classes, pixels, term
from defaults import exported
from optimizers import optimizer

CE = term("cross_entropy")


class Bytes(nn.Module):
    """Images as bytes, normalized inside by buffers; padding in all modes; a global maximum."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.tensor([0.48, 0.45, 0.41]).view(1, 3, 1, 1))
        self.register_buffer("std", torch.tensor([0.23, 0.22, 0.225]).view(1, 3, 1, 1))
        self.a = nn.Conv2d(3, 6, 3, padding=2, padding_mode="reflect", stride=2)
        self.b = nn.Conv2d(6, 6, 3, padding=1, padding_mode="circular", groups=3)
        self.c = nn.Conv2d(6, 8, (3, 1), padding=(1, 0), padding_mode="replicate", bias=False)
        self.norm = nn.GroupNorm(2, 8)
        self.head = nn.Linear(8, 4)

    def forward(self, image):
        x = (image.float() / 255.0 - self.mean) / self.std
        x = F.hardswish(self.a(x))
        x = F.mish(self.b(x))
        x = F.gelu(self.norm(self.c(x)), approximate="tanh")
        return self.head(F.adaptive_max_pool2d(x, 1).flatten(1))


class ShuffleUnit(nn.Module):
    """ShuffleNet's unit with shuffled channels, batch statistics and a drop path of probability 0 that still draws."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8, momentum=0.2), nn.ReLU6())
        self.branch = nn.Sequential(nn.Conv2d(4, 4, 1, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 3, 1, 1, groups=4, bias=False), nn.BatchNorm2d(4, eps=1e-3))
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.0), nn.Linear(8, 5))

    def drop_path(self, x, drop=0.0):
        keep = 1 - drop
        mask = (keep + torch.rand((x.shape[0],) + (1,) * (x.ndim - 1), dtype=x.dtype, device=x.device)).floor()
        return x.div(keep) * mask

    def forward(self, x):
        x = self.stem(x)
        a, b = x.chunk(2, 1)
        x = torch.cat((a, self.drop_path(self.branch(b))), 1)
        n, c, h, w = x.shape
        x = x.view(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w)
        return self.head(x)


class ResizedUNet(nn.Module):
    """A U-Net over images of any size: skips are reached by interpolation to their size, and the output by another."""

    def __init__(self):
        super().__init__()
        self.d1, self.d2, self.mid = nn.Conv2d(2, 4, 3, padding=1), nn.Conv2d(4, 6, 3, 2, 1), nn.Conv2d(6, 8, 3, 2, 1)
        self.u1, self.u2, self.out = nn.Conv2d(14, 6, 3, padding=1), nn.Conv2d(10, 4, 3, padding=1), nn.Conv2d(4, 3, 1)
        self.n1, self.n2 = nn.InstanceNorm2d(6, affine=True), nn.GroupNorm(2, 8)

    def forward(self, x):
        a = F.leaky_relu(self.d1(x), 0.1)
        b = F.leaky_relu(self.n1(self.d2(a)), 0.1)
        m = F.silu(self.n2(self.mid(b)))
        h = F.interpolate(m, size=b.shape[-2:], mode="bilinear", align_corners=False)
        h = F.elu(self.u1(torch.cat([h, b], 1)))
        h = F.interpolate(h, size=a.shape[2:], mode="nearest")
        return self.out(F.celu(self.u2(torch.cat([h, a], 1)), 0.5))


class Localised(nn.Module):
    """A spatial transformer whose grid is regressed, with zeros outside."""

    def __init__(self):
        super().__init__()
        self.loc = nn.Sequential(nn.Conv2d(1, 4, 3, 2), nn.MaxPool2d(2, 1), nn.ReLU(True), nn.Flatten(), nn.Linear(4 * 3 * 3, 8), nn.ReLU(True))
        self.theta = nn.Linear(8, 6)
        with torch.no_grad():
            self.theta.bias.copy_(torch.tensor([1.0, 0.1, 0.05, -0.1, 0.9, 0.02]))
            self.theta.weight.mul_(0.1)
        self.body = nn.Sequential(nn.Conv2d(1, 6, 3), nn.PReLU(6), nn.AvgPool2d(2, ceil_mode=True, count_include_pad=False), nn.Flatten(), nn.Linear(6 * 4 * 4, 4))

    def forward(self, x):
        grid = F.affine_grid(self.theta(self.loc(x)).view(-1, 2, 3), list(x.size()), align_corners=False)
        x = F.grid_sample(x, grid, mode="bilinear", padding_mode="zeros", align_corners=False)
        return F.log_softmax(self.body(x), dim=1)


class Upscaler(nn.Module):
    """Super-resolution: pixel shuffle and a bicubic base; the target is larger than the input."""

    def __init__(self):
        super().__init__()
        self.head = nn.Conv2d(1, 6, 5, padding="same")
        self.body = nn.ModuleList(nn.Conv2d(6, 6, 3, padding="same") for _ in range(2))
        self.scale = nn.Parameter(torch.full((2, 1, 1, 1), 0.1) + torch.rand(2, 1, 1, 1) * 0.1)
        self.tail = nn.Sequential(nn.Conv2d(6, 4, 3, padding=1), nn.PixelShuffle(2))

    def forward(self, x):
        h = self.head(x)
        for k, layer in enumerate(self.body):
            h = h + self.scale[k] * F.relu(layer(h))
        return self.tail(h) + F.interpolate(x, scale_factor=2, mode="bicubic", align_corners=False)


class Volumes(nn.Module):
    """V-Net: 3-D convolutions, transposed ones with output padding and groups, deep supervision."""

    def __init__(self):
        super().__init__()
        self.c1 = nn.Conv3d(1, 4, 3, padding=1)
        self.n1 = nn.BatchNorm3d(4)
        self.down = nn.Conv3d(4, 6, 2, stride=2)
        self.c2 = nn.Conv3d(6, 6, 3, padding="same", groups=2)
        self.n2 = nn.InstanceNorm3d(6, affine=True, track_running_stats=False)
        self.up = nn.ConvTranspose3d(6, 4, 3, stride=2, padding=1, output_padding=(0, 1, 1), groups=2)
        self.out, self.aux = nn.Conv3d(8, 2, 1), nn.Conv3d(6, 2, 1)

    def forward(self, x):
        a = F.elu(self.n1(self.c1(x)))
        b = F.elu(self.n2(self.c2(self.down(F.pad(a, (0, 0, 0, 0, 0, 1))))))
        u = self.up(b)[:, :, : a.shape[2]]
        return self.out(torch.cat([u, a], 1)), F.interpolate(self.aux(b), size=x.shape[2:], mode="trilinear", align_corners=True)


class Patches(nn.Module):
    """A ViT over unfolded patches with a class token, layer scale, registers and positions resized to the grid."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(3 * 16, 16)
        self.cls, self.registers = nn.Parameter(torch.randn(1, 1, 16) * 0.1), nn.Parameter(torch.randn(1, 2, 16) * 0.1)
        self.pos = nn.Parameter(torch.randn(1, 16, 3, 3) * 0.1)
        self.layers = nn.ModuleList(nn.ModuleDict(dict(
            n1=nn.LayerNorm(16, bias=False), qkv=nn.Linear(16, 48, bias=False), proj=nn.Linear(16, 16), n2=nn.LayerNorm(16), up=nn.Linear(16, 32), down=nn.Linear(32, 16))) for _ in range(2))
        self.gamma = nn.ParameterList(nn.Parameter(torch.full((16,), 0.3) + torch.rand(16) * 0.1) for _ in range(4))
        self.norm, self.head = nn.LayerNorm(16, eps=1e-6), nn.Linear(16, 5)

    def forward(self, x):
        b = x.shape[0]
        p = F.unfold(x, 4, stride=4).transpose(1, 2)
        pos = F.interpolate(self.pos, size=(2, 3), mode="bilinear", align_corners=False).flatten(2).transpose(1, 2)
        h = torch.cat([self.cls.expand(b, -1, -1), self.registers.repeat(b, 1, 1), self.embed(p) + pos], 1)
        for k, m in enumerate(self.layers):
            q, key, v = m["qkv"](m["n1"](h)).unflatten(-1, (3, 2, 8)).permute(2, 0, 3, 1, 4)
            a = F.scaled_dot_product_attention(q, key, v).transpose(1, 2).flatten(2)
            h = h + self.gamma[2 * k] * m["proj"](a)
            h = h + self.gamma[2 * k + 1] * m["down"](F.gelu(m["up"](m["n2"](h))))
        h = self.norm(h)
        return self.head(torch.cat([h[:, 0]], 1) + h[:, 3:].mean(1))


class Windows(nn.Module):
    """Swin's blocks: rolled windows, an attention mask computed in forward, and relative positions looked up in a trained table."""

    def __init__(self, size=6, window=3, shift=1, dim=8, heads=2):
        super().__init__()
        self.window, self.shift, self.heads = window, shift, heads
        self.embed, self.norm1, self.norm2 = nn.Conv2d(3, dim, 2, 2), nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.proj, self.mlp = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim), nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))
        self.table = nn.Parameter(torch.randn((2 * window - 1) ** 2, heads) * 0.2)
        at = torch.stack(torch.meshgrid(torch.arange(window), torch.arange(window), indexing="ij")).flatten(1)
        rel = (at[:, :, None] - at[:, None, :]).permute(1, 2, 0) + window - 1
        self.register_buffer("index", rel[..., 0] * (2 * window - 1) + rel[..., 1], persistent=False)
        self.reduce, self.head = nn.Linear(4 * dim, dim, bias=False), nn.Linear(dim, 4)

    def attend(self, x, shift):
        b, h, w, c = x.shape
        n = self.window
        x = torch.roll(x, (-shift, -shift), (1, 2)) if shift else x
        x = x.view(b, h // n, n, w // n, n, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, n * n, c)
        q, k, v = self.qkv(x).reshape(x.shape[0], n * n, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        bias = self.table[self.index.view(-1)].view(n * n, n * n, -1).permute(2, 0, 1).unsqueeze(0)
        if shift:
            part = torch.zeros(1, h, w, 1)
            count = 0
            for rows in (slice(0, -n), slice(-n, -shift), slice(-shift, None)):
                for columns in (slice(0, -n), slice(-n, -shift), slice(-shift, None)):
                    part[:, rows, columns] = count
                    count += 1
            part = part.view(1, h // n, n, w // n, n, 1).permute(0, 1, 3, 2, 4, 5).reshape(-1, n * n)
            mask = (part[:, None] - part[:, :, None]).masked_fill(part[:, None] != part[:, :, None], -100.0).clamp(max=0)
            s = (q * q.shape[-1] ** -0.5) @ k.transpose(-2, -1) + bias
            s = s.view(b, mask.shape[0], self.heads, n * n, n * n) + mask.unsqueeze(1).unsqueeze(0)
            x = s.view(-1, self.heads, n * n, n * n).softmax(-1) @ v
        else:
            x = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
        x = self.proj(x.permute(0, 2, 1, 3).flatten(2))
        x = x.view(b, h // n, w // n, n, n, c).permute(0, 1, 3, 2, 4, 5).reshape(b, h, w, c)
        return torch.roll(x, (shift, shift), (1, 2)) if shift else x

    def forward(self, x):
        x = self.embed(x).permute(0, 2, 3, 1)
        for shift in (0, self.shift):
            x = x + self.attend(self.norm1(x), shift)
            x = x + self.mlp(self.norm2(x))
        x = torch.cat([x[:, 0::2, 0::2], x[:, 1::2, 0::2], x[:, 0::2, 1::2], x[:, 1::2, 1::2]], -1)
        return self.head(self.reduce(x).mean((1, 2)))


class Folded(nn.Module):
    """Overlapping patches are filtered and added up again with the number of patches at each pixel."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(2 * 9, 2 * 9) * 0.2)
        self.bias = nn.Parameter(torch.randn(2 * 9, 1) * 0.1)
        self.mix = nn.Conv2d(2, 2, 1)

    def forward(self, x):
        p = F.unfold(x, 3, padding=1, stride=2)
        p = torch.tanh(torch.einsum("oi,bil->bol", self.w, p) + self.bias)
        y = F.fold(p, x.shape[-2:], 3, padding=1, stride=2)
        count = F.fold(F.unfold(torch.ones_like(x), 3, padding=1, stride=2), x.shape[-2:], 3, padding=1, stride=2)
        return self.mix(y / count.clamp(min=1))


class Discriminator(nn.Module):
    """Spectral and weight normalization by parametrizations, minibatch deviation, odd adaptive pooling."""

    def __init__(self):
        super().__init__()
        self.a = parametrizations.weight_norm(nn.Conv2d(3, 6, 4, 2, 1))
        self.b = parametrizations.weight_norm(nn.ConvTranspose2d(6, 4, 3, 2, 1, output_padding=1), dim=1)
        self.c = nn.Conv2d(4, 4, 3, dilation=2)
        self.head = parametrizations.weight_norm(nn.Linear(4 * 3 * 2, 1))

    def forward(self, x):
        h = F.leaky_relu(self.a(x), 0.2)
        h = F.leaky_relu(self.b(h), 0.2)
        h = F.softplus(self.c(h), beta=2)
        return self.head(F.adaptive_avg_pool2d(h, (3, 2)).flatten(1)).squeeze(1)


class Detector(nn.Module):
    """CenterNet's heads: a dictionary of outputs, features gathered at given places."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 6, 3, 2, 1), nn.SiLU(), nn.Conv2d(6, 6, 3, 1, 1), nn.SiLU())
        self.heat, self.size, self.offset = nn.Conv2d(6, 3, 1), nn.Conv2d(6, 2, 1), nn.Conv2d(6, 2, 1)

    def forward(self, image, where):
        h = self.body(image)
        gather = lambda m: m.flatten(2).gather(2, where[:, None].expand(-1, m.shape[1], -1)).transpose(1, 2)
        return self.heat(h), gather(self.size(h)).exp(), gather(self.offset(h)).sigmoid()


class Spectrum(nn.Module):
    """A spectrogram by the FFT, its logarithm, and convolutions over time and frequency."""

    def __init__(self):
        super().__init__()
        self.register_buffer("window", torch.hann_window(16))
        self.gain = nn.Parameter(torch.ones(9) + torch.rand(9) * 0.1)
        self.conv = nn.Conv1d(9, 8, 3, padding=1)
        self.gru = nn.GRU(8, 6, batch_first=True, bidirectional=True)
        self.head = nn.Linear(12, 4)

    def forward(self, wave):
        frames = wave.unfold(-1, 16, 8) * self.window
        power = torch.fft.rfft(frames, dim=-1).abs().square()
        h = torch.log1p(power * self.gain.exp())
        h = F.relu(self.conv(h.transpose(1, 2))).transpose(1, 2)
        y, last = self.gru(h)
        return self.head(y.mean(1) + last.transpose(0, 1).flatten(1))


class Stereo(nn.Module):
    """A correlation volume over shifted features, a soft argmin, and warping of the other image by the disparity."""

    def __init__(self):
        super().__init__()
        self.f = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.Tanh(), nn.Conv2d(4, 4, 3, padding=1))
        self.agg = nn.Conv3d(1, 1, 3, padding=1)

    def forward(self, left, right):
        a, b = self.f(left), self.f(right)
        w = a.shape[-1]
        volume = torch.stack([(a * F.pad(b, (d, 0))[..., :w]).mean(1) for d in range(4)], 1)
        cost = self.agg(volume.unsqueeze(1)).squeeze(1)
        p = F.softmin(cost, dim=1)
        disparity = (p * torch.arange(4, dtype=p.dtype, device=p.device).view(1, 4, 1, 1)).sum(1, keepdim=True)
        ys, xs = torch.meshgrid(torch.linspace(-1, 1, left.shape[2]), torch.linspace(-1, 1, w), indexing="ij")
        grid = torch.stack([xs.expand(a.shape[0], -1, -1) - 2 * disparity.squeeze(1) / (w - 1), ys.expand(a.shape[0], -1, -1)], -1)
        warped = F.grid_sample(right, grid, padding_mode="border", align_corners=True)
        return disparity.squeeze(1), (warped - left).abs().mean()


class Statistics(nn.Module):
    """BatchNorm without affine parts, with cumulative averages, over sequences, and without running statistics."""

    def __init__(self):
        super().__init__()
        self.a, self.na = nn.Conv1d(3, 6, 5, stride=2, padding=2), nn.BatchNorm1d(6, affine=False)
        self.b, self.nb = nn.Conv1d(6, 6, 3, padding=1, groups=6), nn.BatchNorm1d(6)
        self.c, self.nc = nn.Conv1d(6, 8, 1, bias=False), nn.BatchNorm1d(8, eps=1e-2, momentum=0.5)
        self.lrn, self.head = nn.LocalResponseNorm(3, alpha=0.1), nn.Linear(16, 3)

    def forward(self, x):
        x = F.selu(self.na(self.a(x)))
        x = F.hardtanh(self.nb(self.b(x)), -1.5, 1.5)
        x = self.lrn(F.tanhshrink(self.nc(self.c(x))))
        return self.head(torch.cat([x.amax(-1), x.std(-1)], 1))


class Steered(nn.Module):
    """Squeeze-and-excite, blur pooling with a fixed filter, channel attention by 1-D convolution, CoordConv, GeM pooling."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(5, 6, 3, padding=1)
        self.register_buffer("blur", torch.tensor([1.0, 2.0, 1.0])[None, :] * torch.tensor([1.0, 2.0, 1.0])[:, None] / 16)
        self.eca, self.p = nn.Conv1d(1, 1, 3, padding=1, bias=False), nn.Parameter(torch.tensor([2.7]))
        self.down, self.up, self.head = nn.Conv2d(6, 2, 1), nn.Conv2d(2, 6, 1), nn.Linear(6, 3)

    def forward(self, x):
        b, _, h, w = x.shape
        ys = torch.linspace(-1, 1, h).view(1, 1, h, 1).expand(b, 1, h, w)
        xs = torch.linspace(-1, 1, w).view(1, 1, 1, w).expand(b, 1, h, w)
        x = F.relu6(self.first(torch.cat([x, xs, ys], 1)))
        x = F.conv2d(F.pad(x, (1, 1, 1, 1), mode="reflect"), self.blur.expand(6, 1, 3, 3), stride=2, groups=6)
        s = x.mean((2, 3))
        x = x * self.eca(s.unsqueeze(1)).transpose(1, 2).unsqueeze(-1).sigmoid()
        x = x * F.hardsigmoid(self.up(F.relu(self.down(F.adaptive_avg_pool2d(x, 1)))))
        return self.head(x.clamp(min=1e-6).pow(self.p).mean((-2, -1)).pow(1.0 / self.p))


bytes_ = lambda b: {"image": classes(256, b, 3, 9, 8).to(torch.uint8), "y": classes(4, b)}
maps = lambda c, h, w, n: lambda b: {"x": pixels(b, c, h, w), "y": classes(n, b)}


def cases():
    yield from exported("bytes", Bytes, bytes_, [term("cross_entropy", label_smoothing=0.1)], optimizer("adamw", groups="no_decay_1d", weight_decay=0.05), inputs="image", clip_grad_norm=1.0)
    yield from exported("shuffle", ShuffleUnit, maps(3, 8, 10, 5), [term("cross_entropy", class_weight=[1.0, 0.5, 2.0, 1.0, 3.0])], optimizer("nesterov", weight_decay=1e-3), lr_schedule=[0.2, 0.6, 1.0, 1.0, 0.5, 0.1])
    yield from exported("resized_unet", ResizedUNet, lambda b: {"x": pixels(b, 2, 9, 7), "y": torch.where(torch.rand(b, 9, 7) < 0.2, torch.tensor(255), classes(3, b, 9, 7))}, [term("cross_entropy", ignore_index=255)], optimizer("adam", amsgrad=True))
    yield from exported("resized_unet_any", ResizedUNet, lambda b: {"x": pixels(b, 2, 9, 7), "y": classes(3, b, 9, 7)}, [CE], optimizer("rmsprop", momentum=0.9), styles=(0, 3), dynamic_axes={"x": {2: "height", 3: "width"}})
    yield from exported("localised", Localised, maps(1, 9, 9, 4), [term("nll")], optimizer("adagrad", lr_decay=0.01))
    yield from exported("upscaler", Upscaler, lambda b: {"x": pixels(b, 1, 5, 6), "y": pixels(b, 1, 10, 12)}, [term("l1"), term("huber", delta=0.3, weight=0.5)], optimizer("lamb"))
    yield from exported("volumes", Volumes, lambda b: {"x": pixels(b, 1, 5, 6, 4), "y": classes(2, b, 5, 6, 4)}, [CE, term("cross_entropy", output="aux", weight=0.4)], optimizer("momentum", lr=0.01), outputs="out aux", semantics="train", mode="eval")
    yield from exported("patches", Patches, maps(3, 8, 12, 5), [CE], optimizer("adamw", weight_decay=0.1), grad_accumulation=2)
    yield from exported("windows", Windows, maps(3, 12, 12, 4), [CE], optimizer("adamax"), clip_grad_norm=0.5)
    yield from exported("folded", Folded, lambda b: {"x": pixels(b, 2, 7, 5), "y": pixels(b, 2, 7, 5)}, [term("smooth_l1", beta=0.3)], optimizer("sgd", weight_decay=0.01))
    yield from exported("discriminator", Discriminator, lambda b: {"x": pixels(b, 3, 8, 6), "y": (torch.rand(b) < 0.4).float()}, [term("bce_with_logits", pos_weight=[2.5])], optimizer("adam", betas=[0.5, 0.99], lr=0.002))
    yield from exported("detector", Detector, lambda b: {"image": pixels(b, 3, 8, 8), "where": classes(16, b, 3), "y": torch.rand(b, 3, 4, 4), "size": 3 * torch.rand(b, 3, 2), "at": torch.rand(b, 3, 2)},
                        [term("bce_with_logits", "heat"), term("l1", "extent", "size", weight=0.1), term("smooth_l1", "offset", "at", beta=0.2)], optimizer("adamw"), inputs="image where", targets="y size at", outputs="heat extent offset")
    yield from exported("spectrum", Spectrum, lambda b: {"wave": pixels(b, 64), "y": classes(4, b)}, [CE], optimizer("adam"), inputs="wave", clip_grad_norm=2.0)
    yield from exported("stereo", Stereo, lambda b: {"left": pixels(b, 1, 5, 8), "right": pixels(b, 1, 5, 8), "y": 3 * torch.rand(b, 5, 8)}, [term("smooth_l1"), term("output", "photo", None, weight=0.3)], optimizer("momentum"), inputs="left right", outputs="out photo")
    yield from exported("statistics", Statistics, lambda b: {"x": pixels(b, 3, 17), "y": classes(3, b)}, [CE], optimizer("rmsprop", centered=True), size=6)
    yield from exported("steered", Steered, maps(3, 8, 7, 3), [CE], optimizer("adadelta", lr=0.5), grad_accumulation=3)
