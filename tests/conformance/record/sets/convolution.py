"""Convolutional networks: shapes of convolutions, pooling, resizing, padding, and the blocks of well-known architectures."""
import torch
import torch.nn as nn
import torch.nn.functional as F

from case import CE, MSE, Case, classes, image_classes, pixels, term
from optimizers import optimizer
from sets.activations import Function
from styles import styled


class Classifier(nn.Module):
    """A body, the mean over the spatial axes, a linear layer."""

    def __init__(self, body, channels):
        super().__init__()
        self.body, self.fc = body, nn.Linear(channels, 4)

    def forward(self, x):
        return self.fc(self.body(x).flatten(2).mean(2))


def conv(i, o, k=3, **options):
    return nn.Conv2d(i, o, k, padding=options.pop("padding", k // 2), **options)


def body(*layers, channels):
    return lambda: Classifier(nn.Sequential(*(l() if isinstance(l, type) else l for l in layers)), channels)


def case(name, module, channels=3, size=8, opt="momentum", exporter=None, **options):
    batch = options.pop("batch", image_classes(channels, size, 4))
    return styled(Case(name, module, batch, CE, optimizer(opt), **{"batch_size": 4, "steps": 3, **options}), exporter=exporter)


def _convolutions():
    one = lambda name, layer, c: case(f"conv_{name}", lambda: Classifier(nn.Sequential(conv(3, 6, 3), nn.ReLU(), layer(), nn.ReLU()), c))
    yield one("1x1", lambda: nn.Conv2d(6, 8, 1), 8)
    yield one("5x3", lambda: nn.Conv2d(6, 4, (5, 3), padding=(2, 1)), 4)
    yield one("strides", lambda: nn.Conv2d(6, 6, 3, stride=(2, 1), padding=(1, 0)), 6)
    yield one("stride_3_remainder", lambda: nn.Conv2d(6, 6, 2, stride=3), 6)
    yield one("dilation", lambda: nn.Conv2d(6, 6, 3, dilation=2, padding=2), 6)
    yield one("groups", lambda: nn.Conv2d(6, 9, 3, groups=3, padding=1), 9)
    yield one("depthwise", lambda: nn.Conv2d(6, 6, 3, groups=6, padding=1, bias=False), 6)
    yield one("depthwise_multiplier", lambda: nn.Conv2d(6, 12, 3, groups=6, padding=1, stride=2), 12)
    yield one("no_bias", lambda: nn.Conv2d(6, 6, 3, bias=False), 6)
    yield one("same_even", lambda: nn.Conv2d(6, 6, 4, padding="same"), 6)
    yield one("reflect", lambda: nn.Conv2d(6, 6, 3, padding=1, padding_mode="reflect"), 6)
    yield one("replicate", lambda: nn.Conv2d(6, 6, 3, padding=1, padding_mode="replicate"), 6)
    yield one("circular", lambda: nn.Conv2d(6, 6, 3, padding=1, padding_mode="circular"), 6)
    yield one("transpose", lambda: nn.ConvTranspose2d(6, 5, 2, stride=2), 5)
    yield one("transpose_output_padding", lambda: nn.ConvTranspose2d(6, 5, 3, stride=2, padding=1, output_padding=1), 5)
    yield one("transpose_groups_dilation", lambda: nn.ConvTranspose2d(6, 4, 3, groups=2, dilation=2, bias=False), 4)
    signal = lambda b: {"x": pixels(b, 3, 12), "y": classes(4, b)}
    volume = lambda b: {"x": pixels(b, 2, 4, 5, 6), "y": classes(4, b)}
    yield case("conv_1d", body(nn.Conv1d(3, 6, 5, padding=2), nn.ReLU, nn.Conv1d(6, 6, 3, stride=2), channels=6), batch=signal)
    yield case("conv_1d_transpose", body(nn.Conv1d(3, 6, 3), nn.ReLU, nn.ConvTranspose1d(6, 4, 4, stride=2, padding=1), channels=4), batch=signal)
    yield case("conv_1d_causal", body(nn.ConstantPad1d((4, 0), 0.0), nn.Conv1d(3, 6, 3, dilation=2), nn.ReLU, channels=6), batch=signal)
    yield case("conv_1d_maxpool", body(nn.Conv1d(3, 6, 3), nn.ReLU, nn.MaxPool1d(2), nn.Conv1d(6, 6, 3), nn.AvgPool1d(2), channels=6), batch=signal)
    yield case("conv_3d", body(nn.Conv3d(2, 4, 3, padding=1), nn.ReLU, nn.MaxPool3d(2), nn.Conv3d(4, 4, 2), channels=4), batch=volume)
    yield case("conv_3d_transpose", body(nn.Conv3d(2, 4, 3), nn.ReLU, nn.ConvTranspose3d(4, 3, 2, stride=2), nn.AvgPool3d(2), channels=3), batch=volume)


def _pools():
    one = lambda name, *layers, c=6, size=8: case(f"pool_{name}", body(conv(3, 6), nn.ReLU, *layers, channels=c), size=size)
    yield one("max", nn.MaxPool2d(2), conv(6, 6))
    yield one("max_overlap_padding", nn.MaxPool2d(3, stride=2, padding=1), conv(6, 6))
    yield one("max_ceil", nn.MaxPool2d(3, stride=2, ceil_mode=True), conv(6, 6))
    yield one("max_dilation", nn.MaxPool2d(2, stride=1, dilation=2), conv(6, 6))
    yield one("avg", nn.AvgPool2d(2), conv(6, 6))
    yield one("avg_padding", nn.AvgPool2d(3, stride=2, padding=1), conv(6, 6))
    yield one("avg_exclude_padding", nn.AvgPool2d(3, stride=2, padding=1, count_include_pad=False), conv(6, 6))
    yield one("avg_ceil", nn.AvgPool2d(3, stride=2, ceil_mode=True), conv(6, 6))
    yield one("adaptive_avg_1", nn.AdaptiveAvgPool2d(1))
    yield one("adaptive_avg_2", nn.AdaptiveAvgPool2d(2), conv(6, 6))
    yield one("adaptive_max", nn.AdaptiveMaxPool2d((4, 2)), conv(6, 6))
    yield one("lp", nn.LPPool2d(2, 2), conv(6, 6))
    yield one("global_max", Function(lambda x: x.amax((2, 3), keepdim=True)))
    yield one("mean_and_std", Function(lambda x: torch.cat([x.mean((2, 3)), x.std((2, 3))], 1).unsqueeze(2)), c=12)


def _resizes():
    one = lambda name, *layers, c=5, size=5: case(f"resize_{name}", body(conv(3, 5), nn.ReLU, *layers, conv(c, c), channels=c), size=size)
    yield one("nearest_2", nn.Upsample(scale_factor=2))
    yield one("nearest_size", nn.Upsample(size=(7, 9)))
    yield one("nearest_decimals", nn.Upsample(scale_factor=1.4), nn.Upsample(size=(10, 10)), nn.Upsample(scale_factor=1.2))
    yield one("bilinear", nn.Upsample(scale_factor=2, mode="bilinear"))
    yield one("bilinear_align", nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True))
    yield one("bilinear_size", nn.Upsample(size=(8, 6), mode="bilinear"))
    yield one("bilinear_down", nn.Upsample(size=(3, 2), mode="bilinear"))
    yield one("bicubic", nn.Upsample(scale_factor=2, mode="bicubic"))
    yield one("pixel_shuffle", conv(5, 8), nn.PixelShuffle(2), c=2)
    yield one("pixel_unshuffle", nn.PixelUnshuffle(2), c=20, size=4)
    yield one("zero_pad", nn.ZeroPad2d((1, 2, 0, 3)))
    yield one("constant_pad", nn.ConstantPad2d((1, 1, 2, 0), 0.5))
    yield one("reflection_pad", nn.ReflectionPad2d((1, 2, 2, 1)))
    yield one("replication_pad", nn.ReplicationPad2d(2))
    yield one("crop", Function(lambda x: x[:, :, 1:-1, 2:]))
    yield one("stride_slice", Function(lambda x: x[:, :, ::2, 1::2]))
    yield one("roll", Function(lambda x: torch.roll(x, (1, -2), (2, 3))))
    yield one("flip", Function(lambda x: x.flip(3)))
    signal = lambda b: {"x": pixels(b, 3, 7), "y": classes(4, b)}
    yield case("resize_linear_1d", body(nn.Conv1d(3, 5, 3), nn.ReLU, nn.Upsample(scale_factor=2, mode="linear"), nn.Conv1d(5, 5, 3), channels=5), batch=signal)


def _norms():
    one = lambda name, layer, c=6: case(f"norm_{name}", body(conv(3, 6), layer(), nn.ReLU, conv(6, c), channels=c))
    yield one("group", lambda: nn.GroupNorm(3, 6))
    yield one("group_1", lambda: nn.GroupNorm(1, 6))
    yield one("group_no_affine", lambda: nn.GroupNorm(2, 6, affine=False))
    yield one("instance", lambda: nn.InstanceNorm2d(6))
    yield one("instance_affine", lambda: nn.InstanceNorm2d(6, affine=True))
    yield one("layer_chw", lambda: nn.LayerNorm([6, 8, 8]))
    yield one("layer_channels_last", ChannelsLastNorm)
    yield one("response", lambda: nn.LocalResponseNorm(3, alpha=0.5))
    yield one("l2", lambda: Function(lambda x: F.normalize(x, dim=1)))
    yield one("rms_written", lambda: Function(lambda x: x * torch.rsqrt(x.pow(2).mean(1, keepdim=True) + 1e-5)))
    yield one("variance_written", lambda: Function(lambda x: (x - x.mean((2, 3), keepdim=True)) / torch.sqrt(x.var((2, 3), unbiased=False, keepdim=True) + 1e-3)))


class ChannelsLastNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(6)

    def forward(self, x):
        return self.norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class SqueezeExcite(nn.Module):
    def __init__(self, c, r=2, gate=torch.sigmoid):
        super().__init__()
        self.down, self.up, self.gate = nn.Conv2d(c, c // r, 1), nn.Conv2d(c // r, c, 1), gate

    def forward(self, x):
        return x * self.gate(self.up(F.relu(self.down(F.adaptive_avg_pool2d(x, 1)))))


class Residual(nn.Module):
    def __init__(self, *layers):
        super().__init__()
        self.inner = nn.Sequential(*layers)

    def forward(self, x):
        return x + self.inner(x)


class Dense(nn.Module):
    """DenseNet: each layer sees all previous ones."""

    def __init__(self, c=4, growth=3):
        super().__init__()
        self.layers = nn.ModuleList(conv(c + i * growth, growth) for i in range(3))

    def forward(self, x):
        for l in self.layers:
            x = torch.cat([x, F.relu(l(x))], 1)
        return x


class Inception(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.a, self.b, self.c = nn.Conv2d(c, 2, 1), nn.Sequential(nn.Conv2d(c, 3, 1), nn.ReLU(), conv(3, 4)), nn.Conv2d(c, 2, 1)

    def forward(self, x):
        return torch.cat([self.a(x), self.b(x), self.c(F.max_pool2d(x, 3, 1, 1))], 1)


class Shuffle(nn.Module):
    """ShuffleNet: half of the channels pass unchanged, then channels are interleaved."""

    def __init__(self, c):
        super().__init__()
        self.branch = nn.Sequential(nn.Conv2d(c // 2, c // 2, 1), nn.ReLU(), conv(c // 2, c // 2, groups=c // 2), nn.Conv2d(c // 2, c // 2, 1), nn.ReLU())

    def forward(self, x):
        a, b = x.chunk(2, 1)
        x = torch.cat([a, self.branch(b)], 1)
        n, c, h, w = x.shape
        return x.view(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w)


class ConvNeXt(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.dw, self.norm, self.up, self.down = conv(c, c, 7, groups=c), nn.LayerNorm(c, eps=1e-6), nn.Linear(c, 2 * c), nn.Linear(2 * c, c)
        self.scale = nn.Parameter(0.5 * torch.rand(c))

    def forward(self, x):
        y = self.down(F.gelu(self.up(self.norm(self.dw(x).permute(0, 2, 3, 1)))))
        return x + (self.scale * y).permute(0, 3, 1, 2)


class MobileV3(nn.Module):
    def __init__(self, c, h):
        super().__init__()
        self.expand, self.dw, self.se, self.project = nn.Conv2d(c, h, 1), conv(h, h, 5, groups=h), SqueezeExcite(h, 4, F.hardsigmoid), nn.Conv2d(h, c, 1)

    def forward(self, x):
        return x + self.project(self.se(F.hardswish(self.dw(F.hardswish(self.expand(x))))))


class Ghost(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.primary, self.cheap = nn.Conv2d(i, o // 2, 1), conv(o // 2, o // 2, groups=o // 2)

    def forward(self, x):
        a = F.relu(self.primary(x))
        return torch.cat([a, F.relu(self.cheap(a))], 1)


class SpatialAttention(nn.Module):
    """CBAM's second half."""

    def __init__(self):
        super().__init__()
        self.conv = conv(2, 1, 5)

    def forward(self, x):
        return x * torch.sigmoid(self.conv(torch.cat([x.mean(1, keepdim=True), x.max(1, keepdim=True)[0]], 1)))


class UNet(nn.Module):
    def __init__(self, up):
        super().__init__()
        self.d1, self.d2, self.c1, self.out = conv(3, 4), conv(4, 6), conv(8, 4), nn.Conv2d(4, 1, 1)
        self.up = nn.ConvTranspose2d(6, 4, 2, 2) if up == "transpose" else nn.Sequential(nn.Upsample(scale_factor=2, mode=up), conv(6, 4))

    def forward(self, x):
        a = F.relu(self.d1(x))
        b = F.relu(self.d2(F.max_pool2d(a, 2)))
        return self.out(F.relu(self.c1(torch.cat([a, self.up(b)], 1))))


class Pyramid(nn.Module):
    """A feature pyramid with a head shared by both levels; boxes and scores as two outputs."""

    def __init__(self):
        super().__init__()
        self.c1, self.c2, self.l1, self.l2 = conv(3, 4, stride=2), conv(4, 6, stride=2), nn.Conv2d(4, 4, 1), nn.Conv2d(6, 4, 1)
        self.box, self.cls = conv(4, 4), conv(4, 3)

    def forward(self, x):
        a = F.relu(self.c1(x))
        b = F.relu(self.c2(a))
        b2 = self.l2(b)
        levels = [self.l1(a) + F.interpolate(b2, size=a.shape[2:]), b2]
        flat = lambda head: torch.cat([head(l).flatten(2).transpose(1, 2) for l in levels], 1)
        return flat(self.box), flat(self.cls)


class WeightStandardised(nn.Conv2d):
    def forward(self, x):
        w = self.weight
        w = (w - w.mean((1, 2, 3), keepdim=True)) / (w.std((1, 2, 3), keepdim=True) + 1e-5)
        return F.conv2d(x, w, self.bias, padding=1)


class WarpingNet(nn.Module):
    """A spatial transformer: an affine grid from the image, sampled bilinearly."""

    def __init__(self):
        super().__init__()
        self.loc, self.conv, self.fc = nn.Linear(3 * 36, 6), conv(3, 4), nn.Linear(4, 4)
        nn.init.normal_(self.loc.weight, std=0.01)
        with torch.no_grad():
            self.loc.bias.copy_(torch.tensor([0.9, 0.11, 0.03, -0.12, 0.8, 0.07]))

    def forward(self, x):
        grid = F.affine_grid(self.loc(x.flatten(1)).view(-1, 2, 3), list(x.shape), align_corners=False)
        return self.fc(F.relu(self.conv(F.grid_sample(x, grid, align_corners=False))).mean((2, 3)))


def _blocks():
    one = lambda name, *layers, c=6, **o: case(f"block_{name}", body(conv(3, 6), nn.ReLU, *layers, channels=c), **o)
    yield one("squeeze_excite", SqueezeExcite(6))
    yield one("residual", Residual(conv(6, 6), nn.ReLU(), conv(6, 6)), nn.ReLU)
    yield one("residual_twice", Residual(conv(6, 6), nn.GELU()), Residual(conv(6, 6, groups=6), nn.SiLU()), opt="adam")
    yield one("dense", conv(6, 4), Dense(), c=13)
    yield one("inception", Inception(6), nn.ReLU, c=8)
    yield one("shuffle", Shuffle(6))
    yield one("convnext", ConvNeXt(6), opt="adamw")
    yield one("mobile_v3", MobileV3(6, 8), opt="rmsprop")
    yield one("ghost", Ghost(6, 8), c=8)
    yield one("spatial_attention", SpatialAttention())
    yield one("weight_standardised", WeightStandardised(6, 6, 3), nn.ReLU)
    yield one("dropout_0", nn.Dropout2d(0.0), conv(6, 6), nn.Dropout(0.0))
    yield one("separable_pools", conv(6, 6, groups=6), nn.AvgPool2d(2), nn.Hardswish(), nn.Conv2d(6, 8, 1), nn.MaxPool2d(2), c=8)
    yield case("block_flatten_fc", lambda: nn.Sequential(conv(3, 4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64, 4)))
    yield case("block_spatial_transformer", WarpingNet, size=6, exporter="dynamo")
    masks = lambda b: {"x": pixels(b, 3, 8, 8), "y": (torch.rand(b, 1, 8, 8) < 0.4).float()}
    for up in ("transpose", "nearest", "bilinear"):
        yield styled(Case(f"unet_{up}", lambda up=up: UNet(up), masks, [term("bce_with_logits")], optimizer("adam"), batch_size=3, steps=3))
    boxes = lambda b: {"x": pixels(b, 3, 8, 8), "boxes": pixels(b, 20, 4), "classes": classes(3, b, 20)}
    yield styled(Case("pyramid_detector", Pyramid, boxes, [term("smooth_l1", "box", "boxes"), term("cross_entropy", "cls", "classes", class_axis=-1)],
                      optimizer("momentum"), targets=("boxes", "classes"), outputs=("box", "cls"), batch_size=3, steps=3))
    small = lambda b: (lambda x: {"x": x, "y": x})(pixels(b, 1, 8, 8))
    auto = lambda: nn.Sequential(nn.Conv2d(1, 4, 3, 2, 1), nn.ReLU(), nn.Conv2d(4, 6, 3, 2, 1), nn.ReLU(), nn.ConvTranspose2d(6, 4, 4, 2, 1), nn.ReLU(),
                                 nn.ConvTranspose2d(4, 1, 4, 2, 1))
    yield styled(Case("autoencoder_conv", auto, small, MSE, optimizer("adam"), batch_size=4, steps=3))
    upscale = lambda b: {"x": pixels(b, 1, 4, 4), "y": pixels(b, 1, 8, 8)}
    yield styled(Case("super_resolution", lambda: nn.Sequential(conv(1, 6), nn.PReLU(), conv(6, 4), nn.PixelShuffle(2)), upscale, [term("l1")],
                      optimizer("adam"), batch_size=4, steps=3))


def cases():
    yield from _convolutions()
    yield from _pools()
    yield from _resizes()
    yield from _norms()
    yield from _blocks()
