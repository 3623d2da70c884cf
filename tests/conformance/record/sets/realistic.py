"""Models of a hundred thousand to a million parameters at their usual input sizes and batches, as people train them first on CIFAR, small
texts and tables. The other sets are narrower or smaller; these show how long a compilation takes and how rounding adds up. Nothing is kept."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

from case import CE, CE_LAST, MSE, Case, classes, image_classes, next_tokens, pixels, term
from optimizers import optimizer
from sets.larger import GPT, Block, Inverted, Residual, conv_bn

B2 = nn.BatchNorm2d


class DenseBlock(nn.Module):
    def __init__(self, i, growth, n):
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(B2(i + k * growth), nn.ReLU(), nn.Conv2d(i + k * growth, growth, 3, padding=1, bias=False)) for k in range(n))

    def forward(self, x):
        for layer in self.layers:
            x = torch.cat([x, layer(x)], 1)
        return x


def densenet():
    return nn.Sequential(nn.Conv2d(3, 24, 3, padding=1), DenseBlock(24, 12, 6), B2(96), nn.ReLU(), nn.Conv2d(96, 48, 1), nn.AvgPool2d(2), DenseBlock(48, 12, 6), B2(120), nn.ReLU(), nn.AvgPool2d(2), DenseBlock(120, 12, 6), B2(192), nn.ReLU(),
                         nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(192, 10))


def vgg():
    layers, i = [], 3
    for o in (32, 32, "M", 64, 64, "M", 128, 128, "M"):
        layers += [nn.MaxPool2d(2)] if o == "M" else [nn.Conv2d(i, o, 3, padding=1), nn.ReLU(inplace=True)]
        i = i if o == "M" else o
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(128 * 16, 128), nn.ReLU(), nn.Dropout(0.0), nn.Linear(128, 10))


class SqueezeExcite(nn.Module):
    def __init__(self, c, r):
        super().__init__()
        self.a, self.b = nn.Conv2d(c, r, 1), nn.Conv2d(r, c, 1)

    def forward(self, x):
        return x * torch.sigmoid(self.b(F.silu(self.a(x.mean((2, 3), keepdim=True)))))


class MBConv(nn.Module):
    def __init__(self, i, o, s, t, k):
        super().__init__()
        h = i * t
        self.body = nn.Sequential(*([conv_bn(i, h, 1, act=nn.SiLU)] if t > 1 else []), conv_bn(h, h, k, s, h, nn.SiLU), SqueezeExcite(h, max(i // 4, 2)), conv_bn(h, o, 1, act=None))
        self.add = s == 1 and i == o

    def forward(self, x):
        return x + self.body(x) if self.add else self.body(x)


def efficientnet():
    return nn.Sequential(conv_bn(3, 24, 3, 2, act=nn.SiLU), MBConv(24, 16, 1, 1, 3), MBConv(16, 24, 2, 4, 3), MBConv(24, 24, 1, 4, 3), MBConv(24, 40, 2, 4, 5), MBConv(40, 40, 1, 4, 5), MBConv(40, 64, 2, 4, 3), conv_bn(64, 160, 1, act=nn.SiLU), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.0), nn.Linear(160, 10))


class ConvNeXtBlock(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.dw, self.norm, self.up, self.down, self.gamma = nn.Conv2d(d, d, 7, padding=3, groups=d), nn.LayerNorm(d, eps=1e-6), nn.Linear(d, 4 * d), nn.Linear(4 * d, d), nn.Parameter(0.1 * torch.ones(d))

    def forward(self, x):
        y = self.down(F.gelu(self.up(self.norm(self.dw(x).permute(0, 2, 3, 1)))))
        return x + (self.gamma * y).permute(0, 3, 1, 2)


class ChannelNorm(nn.LayerNorm):
    def forward(self, x):
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


def convnext():
    return nn.Sequential(nn.Conv2d(3, 32, 4, 4), ChannelNorm(32), ConvNeXtBlock(32), ConvNeXtBlock(32), ChannelNorm(32), nn.Conv2d(32, 64, 2, 2), ConvNeXtBlock(64), ConvNeXtBlock(64), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LayerNorm(64), nn.Linear(64, 10))


class ViT(nn.Module):
    def __init__(self, d=96, depth=3):
        super().__init__()
        self.patch, self.cls, self.pos = nn.Conv2d(3, d, 4, 4), nn.Parameter(torch.randn(1, 1, d) * 0.02), nn.Parameter(torch.randn(1, 65, d) * 0.02)
        self.blocks, self.norm, self.head = nn.Sequential(*(Block(d, 3, False) for _ in range(depth))), nn.LayerNorm(d), nn.Linear(d, 10)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(x.shape[0], -1, -1), x], 1) + self.pos
        return self.head(self.norm(self.blocks(x))[:, 0])


class WordLSTM(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.rnn, self.head = nn.Embedding(1000, 64), nn.LSTM(64, 128, 2, batch_first=True), nn.Linear(128, 1000)

    def forward(self, x):
        return self.head(self.rnn(self.table(x))[0])


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.rnn, self.head = nn.Embedding(2000, 50), nn.GRU(50, 64, 2, batch_first=True, bidirectional=True), nn.Linear(128, 12)

    def forward(self, x):
        return self.head(self.rnn(self.table(x))[0])


class Translator(nn.Module):
    def __init__(self):
        super().__init__()
        self.src, self.tgt, self.pos = nn.Embedding(500, 64), nn.Embedding(500, 64), nn.Parameter(torch.randn(1, 24, 64) * 0.02)
        self.net, self.head = nn.Transformer(64, 4, 2, 2, 128, 0.0, batch_first=True, norm_first=True), nn.Linear(64, 500)

    def forward(self, x, t):
        mask = torch.triu(torch.full((t.size(1), t.size(1)), float("-inf")), 1)
        return self.head(self.net(self.src(x) + self.pos[:, : x.size(1)], self.tgt(t) + self.pos[:, : t.size(1)], tgt_mask=mask))


class UNet(nn.Module):
    def __init__(self, w=16):
        super().__init__()
        pair = lambda i, o: nn.Sequential(conv_bn(i, o), conv_bn(o, o))
        self.d = nn.ModuleList([pair(3, w), pair(w, 2 * w), pair(2 * w, 4 * w)])
        self.up, self.u = nn.ModuleList([nn.ConvTranspose2d(4 * w, 2 * w, 2, 2), nn.ConvTranspose2d(2 * w, w, 2, 2)]), nn.ModuleList([pair(4 * w, 2 * w), pair(2 * w, w)])
        self.head = nn.Conv2d(w, 4, 1)

    def forward(self, x):
        a = self.d[0](x)
        b = self.d[1](F.max_pool2d(a, 2))
        h = self.d[2](F.max_pool2d(b, 2))
        for up, u, skip in zip(self.up, self.u, (b, a)):
            h = u(torch.cat([skip, up(h)], 1))
        return self.head(h)


class ConvVAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Sequential(nn.Conv2d(1, 32, 4, 2, 1), nn.ReLU(), nn.Conv2d(32, 64, 4, 2, 1), nn.ReLU(), nn.Flatten())
        self.mu, self.logvar, self.fc = nn.Linear(64 * 49, 16), nn.Linear(64 * 49, 16), nn.Linear(16, 64 * 49)
        self.dec = nn.Sequential(nn.Unflatten(1, (64, 7, 7)), nn.ReLU(), nn.ConvTranspose2d(64, 32, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(32, 1, 4, 2, 1))

    def forward(self, x, eps):
        h = self.enc(x)
        mu, logvar = self.mu(h), self.logvar(h)
        kl = (-0.5 * (1 + logvar - mu**2 - logvar.exp())).sum(1)
        return self.dec(self.fc(mu + eps * (0.5 * logvar).exp())), kl


class TextCNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.convs, self.head = nn.Embedding(3000, 64), nn.ModuleList(nn.Conv2d(1, 32, (k, 64)) for k in (3, 4, 5)), nn.Linear(96, 5)

    def forward(self, x):
        h = self.table(x).unsqueeze(1)
        return self.head(torch.cat([F.max_pool1d(F.relu(c(h)).squeeze(3), c(h).size(2)).squeeze(2) for c in self.convs], 1))


class PointNet(nn.Module):
    def __init__(self):
        super().__init__()
        block = lambda i, o: nn.Sequential(nn.Conv1d(i, o, 1), nn.BatchNorm1d(o), nn.ReLU())
        self.a, self.b, self.head = nn.Sequential(block(3, 32), block(32, 64), block(64, 128)), nn.Sequential(nn.Linear(128, 64), nn.BatchNorm1d(64), nn.ReLU()), nn.Linear(64, 10)

    def forward(self, x):
        return self.head(self.b(self.a(x.transpose(1, 2)).max(2)[0]))


def c3d():
    return nn.Sequential(nn.Conv3d(3, 16, 3, padding=1), nn.ReLU(), nn.MaxPool3d((1, 2, 2)), nn.Conv3d(16, 32, 3, padding=1), nn.BatchNorm3d(32), nn.ReLU(), nn.MaxPool3d(2), nn.Conv3d(32, 48, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(48, 6))


class Espcn(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(1, 64, 5, padding=2), nn.Tanh(), nn.Conv2d(64, 32, 3, padding=1), nn.Tanh(), nn.Conv2d(32, 9, 3, padding=1), nn.PixelShuffle(3))

    def forward(self, x):
        return self.net(x)


class TCN(nn.Module):
    def __init__(self):
        super().__init__()
        self.convs = nn.ModuleList(torch.nn.utils.parametrizations.weight_norm(nn.Conv1d(i, 32, 3, dilation=d)) for i, d in ((8, 1), (32, 2), (32, 4), (32, 8)))
        self.skip, self.head = nn.Conv1d(8, 32, 1), nn.Linear(32, 1)

    def forward(self, x):
        h = x
        for k, c in enumerate(self.convs):
            y = F.relu(c(F.pad(h, (2 * c.dilation[0], 0))))
            h = F.relu(y + (self.skip(h) if k == 0 else h))
        return self.head(h[:, :, -1])


class Bert(nn.Module):
    def __init__(self):
        super().__init__()
        self.word, self.pos, self.kind, self.norm = nn.Embedding(800, 64), nn.Embedding(48, 64), nn.Embedding(2, 64), nn.LayerNorm(64)
        self.body = nn.TransformerEncoder(nn.TransformerEncoderLayer(64, 4, 128, 0.0, "gelu", batch_first=True), 2, enable_nested_tensor=False)
        self.bias = nn.Parameter(torch.randn(800) * 0.02)
        nn.init.normal_(self.word.weight, std=0.1)

    def forward(self, x, mask):
        h = self.norm(self.word(x) + self.pos(torch.arange(x.size(1))) + self.kind(torch.zeros_like(x)))
        return F.linear(self.body(h, src_key_padding_mask=mask == 0), self.word.weight, self.bias)


def masked(b):
    y = classes(800, b, 32)
    return {"x": torch.where(torch.rand(b, 32) < 0.15, torch.tensor(1), y), "mask": (torch.arange(32)[None] < torch.randint(8, 33, (b, 1))).long(), "y": torch.where(torch.rand(b, 32) < 0.3, y, torch.tensor(-100))}


cifar = image_classes(3, 32, 10)
ROWS = {
    "resnet_wide": (lambda: nn.Sequential(conv_bn(3, 24), Residual(24, 24, 1), Residual(24, 48, 2), Residual(48, 96, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(96, 10)), cifar, CE, optimizer("nesterov", lr=0.02, weight_decay=5e-4), {}),
    "densenet": (densenet, cifar, CE, optimizer("nesterov", lr=0.02, weight_decay=1e-4), {}),
    "vgg": (vgg, cifar, CE, optimizer("momentum", lr=0.01, weight_decay=5e-4), dict(batch_size=30)),
    "mobile_wide": (lambda: nn.Sequential(conv_bn(3, 16, 3, 1, act=nn.ReLU6), Inverted(16, 24, 2, 6), Inverted(24, 24, 1, 6), Inverted(24, 40, 2, 6), Inverted(40, 40, 1, 6), conv_bn(40, 160, 1, act=nn.ReLU6), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(160, 10)), cifar, CE, optimizer("rmsprop", lr=0.001, alpha=0.9, momentum=0.9, eps=1e-2), {}),
    "efficientnet": (efficientnet, image_classes(3, 64, 10), [term("cross_entropy", label_smoothing=0.1)], optimizer("adamw", lr=1e-3), {}),
    "convnext": (convnext, cifar, CE, optimizer("adamw", lr=1e-3, weight_decay=0.05), {}),
    "vit": (ViT, cifar, CE, optimizer("adamw", lr=5e-4, weight_decay=0.05, groups="no_decay_1d"), dict(lr_schedule=[0.2, 0.6, 1.0, 0.9, 0.7, 0.4])),
    "gpt": (lambda: GPT(v=200, d=96, n=3, h=4, t=64), next_tokens(200, 64), CE_LAST, optimizer("adamw", lr=1e-3, betas=[0.9, 0.95], weight_decay=0.1), dict(clip_grad_norm=1.0)),
    "bert": (Bert, masked, [term("cross_entropy", class_axis=-1)], optimizer("lamb", lr=2e-3), dict(inputs=("x", "mask"))),
    "word_lstm": (WordLSTM, next_tokens(1000, 35), CE_LAST, optimizer("sgd", lr=1.0), dict(clip_grad_norm=0.25, batch_size=20)),
    "tagger": (Tagger, lambda b: {"x": classes(2000, b, 30), "y": classes(12, b, 30)}, CE_LAST, optimizer("adam", lr=1e-3), {}),
    "translator": (Translator, lambda b: {"x": classes(500, b, 18), "t": classes(500, b, 20), "y": classes(500, b, 20)}, [term("cross_entropy", class_axis=-1, ignore_index=0, label_smoothing=0.1)], optimizer("adam", lr=1e-3, betas=[0.9, 0.98], eps=1e-9), dict(inputs=("x", "t"))),
    "unet": (UNet, lambda b: {"x": pixels(b, 3, 48, 48), "y": classes(4, b, 48, 48)}, CE, optimizer("adam", lr=1e-3), dict(batch_size=6)),
    "conv_vae": (ConvVAE, lambda b: {"x": pixels(b, 1, 28, 28), "eps": pixels(b, 16), "y": torch.rand(b, 1, 28, 28)}, [term("bce_with_logits", reduction="sum", weight=0.01), term("output", output="kl", target=None)], optimizer("adam", lr=1e-3), dict(inputs=("x", "eps"), outputs=("out", "kl"))),
    "text_cnn": (TextCNN, lambda b: {"x": classes(3000, b, 40), "y": classes(5, b)}, CE, optimizer("adadelta", lr=1.0, rho=0.95), {}),
    "point_net": (PointNet, lambda b: {"x": pixels(b, 256, 3), "y": classes(10, b)}, CE, optimizer("adam", lr=1e-3), {}),
    "c3d": (c3d, lambda b: {"x": pixels(b, 3, 8, 24, 24), "y": classes(6, b)}, CE, optimizer("momentum", lr=0.01), dict(batch_size=6)),
    "espcn": (Espcn, lambda b: {"x": pixels(b, 1, 24, 24), "y": pixels(b, 1, 72, 72)}, MSE, optimizer("adamax", lr=2e-3), dict(batch_size=6)),
    "tcn": (TCN, lambda b: {"x": pixels(b, 8, 60), "y": pixels(b, 1)}, [term("huber")], optimizer("adagrad", lr=0.01), dict(batch_size=32)),
}
STYLES = {"legacy": dict(exporter="legacy", opset=17), "plain": dict(exporter="dynamo", opset=18), "as_train": dict(exporter="dynamo", opset=20, mode="eval", semantics="train")}


def cases():
    for name, (module, batch, losses, recipe, options) in ROWS.items():
        for k, (style, form) in enumerate(STYLES.items()):
            torch.manual_seed(0)
            if style == "as_train" and not any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in module().modules()):
                form = form | dict(semantics="as_graph", opset=23, optimize="groups" not in recipe and recipe["type"] != "lamb")
            size = options.get("batch_size", 16)
            dynamic = k == 1
            yield Case(f"realistic_{name}_{style}", module, batch, losses, recipe, **(form | {"steps": 6, "batch_size": size, "dynamic_batch": dynamic, "batch_sizes": [size] * 5 + [max(size // 3, 2)] if dynamic else None} | options), may_rest=True)
