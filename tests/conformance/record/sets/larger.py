"""Complete models of the size with which people first try a trainer, with their usual optimizers and schedules."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

from case import CE, CE_LAST, Case, classes, image_classes, next_tokens, pixels, term, vector_classes
from optimizers import optimizer

LEGACY_TRAIN = dict(exporter="legacy", opset=17, mode="train")
LEGACY_EVAL = dict(exporter="legacy", opset=13, mode="eval", optimize=True)
DYNAMO = dict(exporter="dynamo", opset=18, mode="train")
DEFAULT = dict(exporter="dynamo", opset=20, mode="eval", optimize=True)
AS_TRAIN = dict(exporter="dynamo", opset=18, mode="eval", semantics="train")


def conv_bn(i, o, k=3, s=1, g=1, act=nn.ReLU):
    return nn.Sequential(nn.Conv2d(i, o, k, s, k // 2, groups=g, bias=False), nn.BatchNorm2d(o), *([act()] if act else []))


class Residual(nn.Module):
    def __init__(self, i, o, s):
        super().__init__()
        self.body, self.skip = nn.Sequential(conv_bn(i, o, 3, s), conv_bn(o, o, act=None)), conv_bn(i, o, 1, s, act=None) if s > 1 or i != o else nn.Identity()

    def forward(self, x):
        return F.relu(self.body(x) + self.skip(x))


def resnet(width=8):
    w = width
    return nn.Sequential(conv_bn(3, w), Residual(w, w, 1), Residual(w, 2 * w, 2), Residual(2 * w, 4 * w, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * w, 10))


class Inverted(nn.Module):
    def __init__(self, i, o, s, t=4):
        super().__init__()
        self.body, self.add = nn.Sequential(conv_bn(i, i * t, 1, act=nn.ReLU6), conv_bn(i * t, i * t, 3, s, i * t, nn.ReLU6), conv_bn(i * t, o, 1, act=None)), s == 1 and i == o

    def forward(self, x):
        return x + self.body(x) if self.add else self.body(x)


def mobile():
    return nn.Sequential(conv_bn(3, 8, 3, 2, act=nn.ReLU6), Inverted(8, 8, 1), Inverted(8, 12, 2), Inverted(12, 12, 1), conv_bn(12, 32, 1, act=nn.ReLU6), nn.AdaptiveAvgPool2d(1),
                         nn.Flatten(), nn.Dropout(0.0), nn.Linear(32, 10))


def digits():
    return nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
                         nn.MaxPool2d(2), nn.Flatten(), nn.Linear(128, 64), nn.ReLU(), nn.Dropout(0.0), nn.Linear(64, 10))


class Block(nn.Module):
    def __init__(self, d, h, causal):
        super().__init__()
        self.h, self.causal = h, causal
        self.ln1, self.ln2, self.qkv, self.proj = nn.LayerNorm(d), nn.LayerNorm(d), nn.Linear(d, 3 * d, bias=False), nn.Linear(d, d)
        self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d), nn.Dropout(0.0))

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (z.view(b, t, self.h, d // self.h).transpose(1, 2) for z in self.qkv(self.ln1(x)).chunk(3, -1))
        x = x + self.proj(F.scaled_dot_product_attention(q, k, v, is_causal=self.causal).transpose(1, 2).reshape(b, t, d))
        return x + self.mlp(self.ln2(x))


class GPT(nn.Module):
    def __init__(self, v=65, d=32, n=2, h=4, t=24):
        super().__init__()
        self.wte, self.wpe, self.blocks = nn.Embedding(v, d), nn.Embedding(t, d), nn.Sequential(*(Block(d, h, True) for _ in range(n)))
        self.ln, self.head = nn.LayerNorm(d), nn.Linear(d, v, bias=False)
        self.head.weight = self.wte.weight
        nn.init.normal_(self.wte.weight, std=0.1)

    def forward(self, x):
        return self.head(self.ln(self.blocks(self.wte(x) + self.wpe(torch.arange(x.shape[1])))))


class ViT(nn.Module):
    def __init__(self, d=32):
        super().__init__()
        self.patch, self.pos, self.blocks, self.fc = nn.Conv2d(3, d, 4, 4), nn.Parameter(0.1 * torch.randn(1, 16, d)), nn.Sequential(*(Block(d, 4, False) for _ in range(2))), nn.Linear(d, 10)

    def forward(self, x):
        return self.fc(self.blocks(self.patch(x).flatten(2).transpose(1, 2) + self.pos).mean(1))


class Language(nn.Module):
    """A two-layer LSTM language model."""

    def __init__(self, kind=nn.LSTM):
        super().__init__()
        self.emb, self.rnn, self.out = nn.Embedding(50, 16), kind(16, 24, 2, batch_first=True), nn.Linear(24, 50)

    def forward(self, x):
        return self.out(self.rnn(self.emb(x))[0])


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.rnn, self.out = nn.Embedding(60, 16), nn.GRU(16, 12, batch_first=True, bidirectional=True), nn.Linear(24, 7)

    def forward(self, x):
        return self.out(self.rnn(self.emb(x))[0])


class UNet(nn.Module):
    def __init__(self, n=3):
        super().__init__()
        double = lambda i, o: nn.Sequential(conv_bn(i, o), conv_bn(o, o))
        self.d1, self.d2, self.d3 = double(3, 8), double(8, 12), double(12, 16)
        self.u2, self.c2, self.c1, self.out = nn.ConvTranspose2d(16, 12, 2, 2), double(24, 12), double(20, 8), nn.Conv2d(8, n, 1)

    def forward(self, x):
        a = self.d1(x)
        b = self.d2(F.max_pool2d(a, 2))
        m = self.c2(torch.cat([self.u2(self.d3(F.max_pool2d(b, 2))), b], 1))
        return self.out(self.c1(torch.cat([F.interpolate(m, scale_factor=2, mode="bilinear", align_corners=False), a], 1)))


class Recommender(nn.Module):
    """DLRM: embeddings and dense features meet in dot products."""

    def __init__(self):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(n, 8) for n in (100, 50, 200))
        self.bottom, self.top = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 8), nn.ReLU()), nn.Sequential(nn.Linear(8 + 6, 16), nn.ReLU(), nn.Linear(16, 1))
        i, j = torch.tril_indices(4, 4, -1)
        self.register_buffer("pairs", i * 4 + j)

    def forward(self, x, c):
        d = self.bottom(x)
        z = torch.stack([d] + [t(c[:, k]) for k, t in enumerate(self.tables)], 1)
        return self.top(torch.cat([d, (z @ z.transpose(1, 2)).flatten(1)[:, self.pairs]], 1)).squeeze(1)


class Dueling(nn.Module):
    """A Q network with value and advantage; the action taken is given as one-hot."""

    def __init__(self):
        super().__init__()
        self.body, self.value, self.advantage = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU()), nn.Linear(32, 1), nn.Linear(32, 4)

    def forward(self, x, action):
        h = self.body(x)
        a = self.advantage(h)
        return ((self.value(h) + a - a.mean(1, keepdim=True)) * action).sum(1)


class Temporal(nn.Module):
    """A temporal convolutional network for forecasting."""

    def __init__(self):
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv1d(i, 12, 3, dilation=d) for i, d in ((3, 1), (12, 2), (12, 4)))
        self.out = nn.Linear(12, 5)

    def forward(self, x):
        for c in self.convs:
            y = F.relu(c(F.pad(x, (2 * c.dilation[0], 0))))
            x = y + x if x.shape[1] == 12 else y
        return self.out(x[:, :, -1])


class Forecast(nn.Module):
    """N-BEATS: each block subtracts its backcast."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(16, 24), nn.ReLU(), nn.Linear(24, 24), nn.ReLU(), nn.Linear(24, 16 + 4)) for _ in range(3))

    def forward(self, x):
        total = 0
        for b in self.blocks:
            back, ahead = b(x).split([16, 4], 1)
            x, total = x - back, total + ahead
        return total


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 8, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(8, 16, 4, 2, 1), nn.InstanceNorm2d(16, affine=True), nn.LeakyReLU(0.2), nn.Flatten(),
                                  nn.Linear(16 * 16, 1, bias=False))

    def forward(self, real, fake):
        return self.body(fake) - self.body(real)


class Captions(nn.Module):
    """A convolutional network initializes a GRU that reads the caption so far."""

    def __init__(self):
        super().__init__()
        self.cnn, self.emb = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 12, 3, 2, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()), nn.Embedding(30, 12)
        self.gru, self.out = nn.GRU(12, 12, batch_first=True), nn.Linear(12, 30)

    def forward(self, image, x):
        return self.out(self.gru(self.emb(x), self.cnn(image).unsqueeze(0))[0])


class Strips(nn.Module):
    """Convolutions, then an LSTM along the width of the image (text recognition)."""

    def __init__(self):
        super().__init__()
        self.cnn = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 12, 3, padding=1), nn.ReLU(), nn.MaxPool2d((4, 1)))
        self.rnn, self.out = nn.LSTM(12, 10, batch_first=True, bidirectional=True), nn.Linear(20, 11)

    def forward(self, x):
        return self.out(self.rnn(self.cnn(x).squeeze(2).transpose(1, 2))[0])


class ConvVAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Sequential(nn.Conv2d(1, 8, 4, 2, 1), nn.ReLU(), nn.Conv2d(8, 12, 4, 2, 1), nn.ReLU(), nn.Flatten())
        self.mu, self.logvar, self.fc = nn.Linear(192, 4), nn.Linear(192, 4), nn.Linear(4, 192)
        self.dec = nn.Sequential(nn.ConvTranspose2d(12, 8, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(8, 1, 4, 2, 1), nn.Sigmoid())

    def forward(self, x, noise):
        h = self.enc(x)
        mu, logvar = self.mu(h), self.logvar(h)
        z = mu + torch.exp(0.5 * logvar) * noise
        return self.dec(self.fc(z).view(-1, 12, 4, 4)), (-0.5 * (1 + logvar - mu**2 - logvar.exp())).sum(1)


def cases():
    cosine = lambda n: [0.5 * (1 + math.cos(math.pi * k / n)) for k in range(n)]
    warm = lambda n: [min(1.0, (k + 1) / 3) for k in range(n)]

    def large(name, module, batch, losses, opt, **o):
        return Case(f"large_{name}", module, batch, losses, opt, **{"batch_size": 8, "steps": 6, **o})

    cifar = image_classes(3, 16, 10)
    momentum = optimizer("momentum", lr=0.01, weight_decay=5e-4)
    yield large("resnet_legacy", resnet, cifar, CE, momentum, lr_schedule=warm(6), **LEGACY_TRAIN)
    yield large("resnet_as_train", resnet, cifar, CE, momentum, lr_schedule=cosine(6), **AS_TRAIN)
    yield large("resnet_as_graph", resnet, cifar, [term("cross_entropy", label_smoothing=0.1)], momentum, **DYNAMO)
    yield large("resnet_fine_tuning", resnet, cifar, CE, momentum, frozen=("0.", "1.", "2."), **AS_TRAIN, notes="the first layers' weights are frozen; their statistics still move")
    yield large("mobile_legacy", mobile, cifar, CE, optimizer("rmsprop", lr=0.0005, momentum=0.9, alpha=0.9, eps=1e-3), **LEGACY_TRAIN)
    yield large("mobile_as_train", mobile, cifar, CE, momentum, **AS_TRAIN)
    digit = lambda b: {"x": torch.randint(0, 17, (b, 1, 8, 8)) / 16.0, "y": classes(10, b)}
    yield large("digits_one_cycle", digits, digit, CE, optimizer("adam", lr=0.003, eps=1e-5), lr_schedule=[0.1, 0.5, 1.0, 0.7, 0.3, 0.01], **LEGACY_TRAIN, dynamic_batch=True, batch_size=32,
                batch_sizes=[32, 32, 32, 32, 32, 21])
    yield large("digits_as_train", digits, digit, CE, optimizer("nesterov", lr=0.01), **AS_TRAIN, batch_size=32)
    text = next_tokens(65, 24)
    adamw = optimizer("adamw", lr=0.001, betas=[0.9, 0.95], weight_decay=0.1, eps=1e-6)
    yield large("gpt_legacy", GPT, text, CE_LAST, adamw | {"groups": "no_decay_1d"}, clip_grad_norm=1.0, lr_schedule=warm(6), **LEGACY_TRAIN)
    yield large("gpt_dynamo", GPT, text, CE_LAST, adamw, clip_grad_norm=0.5, grad_accumulation=2, batch_size=4, **DYNAMO)
    yield large("gpt_dynamic", GPT, text, CE_LAST, adamw, **DYNAMO, dynamic_batch=True, batch_sizes=[8, 8, 5])
    yield large("gpt_lamb", GPT, text, CE_LAST, optimizer("lamb", lr=0.005), **DYNAMO)
    yield large("vit_default", ViT, cifar, CE, adamw, **DEFAULT, dynamic_batch=True)
    yield large("vit_legacy", ViT, cifar, CE, adamw, **LEGACY_EVAL | {"opset": 16})
    yield large("lstm_language", Language, next_tokens(50, 12), CE_LAST, optimizer("adam", lr=0.002, eps=1e-5), clip_grad_norm=0.25, **LEGACY_TRAIN)
    yield large("gru_language", lambda: Language(nn.GRU), next_tokens(50, 12), CE_LAST, optimizer("sgd", lr=1.0), clip_grad_norm=0.25, **DYNAMO)
    ignored = lambda b: {"x": classes(60, b, 10), "y": torch.where(torch.arange(10) < 3 + classes(8, b)[:, None], classes(7, b, 10), -100)}
    yield large("tagger", Tagger, ignored, CE_LAST, optimizer("adagrad", lr=0.05), **LEGACY_TRAIN)
    yield large("tagger_weighted", Tagger, ignored, [term("cross_entropy", class_axis=-1, class_weight=[0.1, 1.0, 1.0, 2.0, 2.0, 1.0, 0.5])], optimizer("adadelta"), **LEGACY_EVAL | {"opset": 14})
    masks = lambda b: {"x": pixels(b, 3, 16, 16), "y": torch.where(torch.rand(b, 16, 16) < 0.1, 255, classes(3, b, 16, 16))}
    segment = [term("cross_entropy", ignore_index=255, class_weight=[0.5, 1.0, 2.0])]
    yield large("unet_legacy", UNet, masks, segment, optimizer("adam", lr=0.001, eps=1e-5), batch_size=4, **LEGACY_TRAIN)
    yield large("unet_as_train", UNet, masks, segment, momentum, batch_size=4, **AS_TRAIN)
    yield large("unet_as_graph", UNet, masks, segment, optimizer("adamax", lr=0.002), batch_size=4, **DYNAMO)
    clicks = lambda b: {"x": pixels(b, 6), "c": classes(50, b, 3), "y": (torch.rand(b) < 0.2).float()}
    for name, style in (("legacy", LEGACY_TRAIN), ("default", DEFAULT)):
        yield large(f"recommender_{name}", Recommender, clicks, [term("bce_with_logits", pos_weight=[4.0])], optimizer("adagrad", lr=0.05, initial_accumulator_value=0.1), batch_size=32,
                    dynamic_batch=True, batch_sizes=[32, 32, 32, 17], inputs=("x", "c"), **style)
    play = lambda b: {"x": pixels(b, 8), "action": F.one_hot(classes(4, b), 4).float(), "y": pixels(b)}
    yield large("q_network", Dueling, play, [term("huber")], optimizer("rmsprop", lr=0.001, centered=True, alpha=0.95, eps=0.01), inputs=("x", "action"), clip_grad_norm=10.0, batch_size=32, **DEFAULT)
    yield large("temporal", Temporal, lambda b: {"x": pixels(b, 3, 20), "y": pixels(b, 5)}, [term("smooth_l1", beta=0.5)], optimizer("adam", lr=0.002), **DEFAULT)
    yield large("forecast", Forecast, lambda b: {"x": pixels(b, 16), "y": pixels(b, 4)}, [term("l1"), term("mse", weight=0.5)], optimizer("adam", lr=0.002), **LEGACY_EVAL, dynamic_batch=True)
    yield large("critic", Critic, lambda b: {"real": pixels(b, 1, 16, 16), "fake": pixels(b, 1, 16, 16)}, [term("output", target=None)], optimizer("rmsprop", lr=0.0005), inputs=("real", "fake"),
                targets=(), **LEGACY_TRAIN)
    yield large("captions", Captions, lambda b: {"image": pixels(b, 3, 12, 12)} | next_tokens(30, 7)(b), CE_LAST, optimizer("adam", lr=0.003, eps=1e-5), inputs=("image", "x"), **LEGACY_TRAIN)
    yield large("text_strips", Strips, lambda b: {"x": pixels(b, 1, 8, 24), "y": classes(11, b, 12)}, CE_LAST, optimizer("adadelta"), **LEGACY_TRAIN)
    yield large("conv_vae", ConvVAE, lambda b: (lambda x: {"x": x, "noise": pixels(b, 4), "y": x})(torch.randint(0, 17, (b, 1, 16, 16)) / 16.0),
                [term("bce", reduction="sum", weight=1 / 8), term("output", "kl", None, weight=0.5)], optimizer("adam", lr=0.001), inputs=("x", "noise"), outputs=("out", "kl"), **DYNAMO)
    yield large("mlp_wide", lambda: nn.Sequential(nn.Linear(196, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10)), vector_classes(196, 10), CE, optimizer("sgd", lr=0.05),
                batch_size=32, dynamic_batch=True, **LEGACY_EVAL)
    yield large("mlp_selu_external", lambda: nn.Sequential(*(m for i in range(5) for m in (nn.Linear(64, 64), nn.SELU())), nn.Linear(64, 5)), vector_classes(64, 5), CE,
                optimizer("nesterov", lr=0.02), external_data=True, **DYNAMO)
