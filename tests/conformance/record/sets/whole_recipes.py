"""Networks as whole classes with the recipes of the papers and examples that they come from (warm-up over the square root of the step,
decayed rates, clipped gradients, accumulated batches), made of library layers that no other set uses as they are: nn.Transformer,
AdaptiveLogSoftmaxWithLoss, stacked modules under vmap, lazy layers, layers with tied and masked weights. Each in two styles of export,
also as a program of torch.export and as a traced module. Nothing is kept in `recorded/`."""
import zlib

import torch
import torch.nn as nn
import torch.nn.functional as F

from case import Case, classes, pixels, term
from optimizers import optimizer

CE, MSE = term("cross_entropy"), term("mse")


class Translator(nn.Module):
    """Attention Is All You Need, time first, with masks of padding made from the tokens."""

    def __init__(self):
        super().__init__()
        self.source, self.target = nn.Embedding(13, 8), nn.Embedding(11, 8)
        self.core = nn.Transformer(d_model=8, nhead=2, num_encoder_layers=1, num_decoder_layers=1, dim_feedforward=12, dropout=0.0)
        self.out = nn.Linear(8, 11)
        position, step = torch.arange(9.0)[:, None], torch.arange(0, 8, 2.0)
        table = torch.zeros(9, 1, 8)
        table[:, 0, 0::2], table[:, 0, 1::2] = torch.sin(position / 10000 ** (step / 8)), torch.cos(position / 10000 ** (step / 8))
        self.register_buffer("positions", table)
        self.register_buffer("ahead", nn.Transformer.generate_square_subsequent_mask(6))

    def forward(self, source, target):
        padded = source == 0
        s = self.source(source.t()) * 8**0.5 + self.positions[: source.shape[1]]
        t = self.target(target.t()) * 8**0.5 + self.positions[: target.shape[1]]
        h = self.core(s, t, tgt_mask=self.ahead, src_key_padding_mask=padded, memory_key_padding_mask=padded)
        return self.out(h).transpose(0, 1)


class Captions(nn.Module):
    """Image features as the memory of a decoder of words."""

    def __init__(self):
        super().__init__()
        self.image = nn.Sequential(nn.Conv2d(2, 6, 3, stride=2, padding=1), nn.GELU(), nn.Conv2d(6, 8, 3, stride=2, padding=1))
        self.words, self.places = nn.Embedding(9, 8), nn.Parameter(torch.randn(5, 8) * 0.1)
        layer = nn.TransformerDecoderLayer(8, 2, 16, dropout=0.0, activation=F.gelu, norm_first=True, batch_first=True, bias=False)
        self.decoder = nn.TransformerDecoder(layer, 2, norm=nn.LayerNorm(8))

    def forward(self, image, words):
        memory = self.image(image).flatten(2).transpose(1, 2)
        h = self.words(words) + self.places
        ahead = torch.ones(5, 5, dtype=torch.bool).triu(1)
        h = self.decoder(h, memory, tgt_mask=ahead)
        return F.linear(h, self.words.weight)


class Adaptive(nn.Module):
    """A language model whose rare words share smaller projections."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(20, 6)
        self.rnn = nn.LSTM(6, 8, num_layers=2, batch_first=True)
        self.out = nn.AdaptiveLogSoftmaxWithLoss(8, 20, cutoffs=[5, 12], div_value=2.0, head_bias=True)

    def forward(self, x):
        h, _ = self.rnn(self.words(x))
        return self.out.log_prob(h.flatten(0, 1)).view(x.shape[0], x.shape[1], 20)


class Ensemble(nn.Module):
    """Three networks with stacked weights, evaluated by vmap over functional_call."""

    def __init__(self):
        super().__init__()
        nets = [nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 3)) for _ in range(3)]
        stacked, _ = torch.func.stack_module_state(nets)
        self.names = [n.replace(".", "_") for n in stacked]
        for n, p in stacked.items():
            self.register_parameter(n.replace(".", "_"), nn.Parameter(p.detach().clone()))

    def forward(self, x):
        def one(w0, b0, w1, b1):
            return F.linear(torch.tanh(F.linear(x, w0, b0)), w1, b1)

        return torch.func.vmap(one)(*(getattr(self, n) for n in self.names)).mean(0)


class Siren(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(2, 12), nn.Linear(12, 12)])
        self.out = nn.Linear(12, 3)
        with torch.no_grad():
            self.layers[0].weight.uniform_(-0.5, 0.5)
            self.layers[1].weight.uniform_(-((6 / 12) ** 0.5) / 10, (6 / 12) ** 0.5 / 10)

    def forward(self, x):
        for layer in self.layers:
            x = torch.sin(10 * layer(x))
        return self.out(x)


class ConvLstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.gates = nn.Conv2d(2 + 3, 12, 3, padding=1)
        self.peep = nn.Parameter(torch.randn(3, 3, 1, 1) * 0.2)
        self.out = nn.Conv2d(3, 2, 1)

    def forward(self, x):
        h = c = torch.zeros(x.shape[0], 3, *x.shape[3:], dtype=x.dtype)
        for t in range(x.shape[1]):
            i, f, o, g = self.gates(torch.cat([x[:, t], h], 1)).chunk(4, 1)
            c = torch.sigmoid(f + self.peep[0] * c) * c + torch.sigmoid(i + self.peep[1] * c) * torch.tanh(g)
            h = torch.sigmoid(o + self.peep[2] * c) * torch.tanh(c)
        return self.out(h)


class MemoryNetwork(nn.Module):
    """End-to-end memory with adjacent weights: the output table of a hop is the input table of the next, and the last one scores words."""

    def __init__(self):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(11, 6) for _ in range(4))
        self.when = nn.Parameter(torch.randn(4, 6) * 0.1)
        j, k = torch.arange(1, 6.0)[:, None], torch.arange(1, 7.0)[None]
        self.register_buffer("encoding", 1 + 4 * (j - 3) * (k - 3.5) / 30)

    def forward(self, story, question):
        u = (self.tables[0](question) * self.encoding).sum(1)
        for a, c in zip(self.tables, self.tables[1:]):
            m = (a(story) * self.encoding).sum(2) + self.when
            p = torch.einsum("bd,bmd->bm", u, m).softmax(1)
            u = u + torch.einsum("bm,bmd->bd", p, (c(story) * self.encoding).sum(2))
        return u @ self.tables[-1].weight.t()


class CharHighway(nn.Module):
    """Character filters of several widths, two highways, and a recurrent network over words."""

    def __init__(self):
        super().__init__()
        self.chars = nn.Embedding(15, 4, padding_idx=0)
        self.filters = nn.ModuleList(nn.Conv1d(4, n, w) for w, n in ((1, 3), (2, 4), (3, 5)))
        self.gates, self.layers = nn.ModuleList(nn.Linear(12, 12) for _ in range(2)), nn.ModuleList(nn.Linear(12, 12) for _ in range(2))
        self.rnn, self.out = nn.GRU(12, 7, batch_first=True), nn.Linear(7, 6)

    def forward(self, x):
        b, w, c = x.shape
        h = self.chars(x.reshape(-1, c)).transpose(1, 2)
        h = torch.cat([torch.tanh(f(h)).max(-1)[0] for f in self.filters], 1)
        for gate, layer in zip(self.gates, self.layers):
            t = torch.sigmoid(gate(h) - 2)
            h = t * F.relu(layer(h)) + (1 - t) * h
        return self.out(self.rnn(h.view(b, w, -1))[0])


class Interest(nn.Module):
    """Deep interest: attention of a candidate over a history, with the Dice activation, which normalizes without weights of its own."""

    def __init__(self):
        super().__init__()
        self.items = nn.Embedding(17, 5)
        self.score = nn.Sequential(nn.Linear(20, 8), nn.PReLU(), nn.Linear(8, 1))
        self.first, self.norm, self.alpha, self.out = nn.Linear(10, 8), nn.BatchNorm1d(8, affine=False, eps=1e-3), nn.Parameter(torch.randn(8) * 0.1), nn.Linear(8, 1)

    def forward(self, history, candidate):
        h, c = self.items(history), self.items(candidate).unsqueeze(1)
        e = c.expand_as(h)
        weights = self.score(torch.cat([h, e, h - e, h * e], -1)).squeeze(-1)
        weights = weights.masked_fill(history == 0, -1e9).softmax(-1)
        z = self.first(torch.cat([(weights.unsqueeze(1) @ h).squeeze(1), c.squeeze(1)], 1))
        p = torch.sigmoid(self.norm(z))
        return self.out(p * z + (1 - p) * self.alpha * z).squeeze(1)


class SkipGram(nn.Module):
    """word2vec with negative samples; the network computes its loss for each pair."""

    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Embedding(19, 6), nn.Embedding(19, 6)

    def forward(self, word, near, others):
        v = self.inner(word)
        positive = F.logsigmoid((v * self.outer(near)).sum(1))
        negative = F.logsigmoid(-torch.bmm(self.outer(others), v.unsqueeze(2)).squeeze(2)).sum(1)
        return -(positive + negative)


class Glove(nn.Module):
    def __init__(self):
        super().__init__()
        self.w, self.v, self.b, self.c = nn.Embedding(12, 5), nn.Embedding(12, 5), nn.Embedding(12, 1), nn.Embedding(12, 1)

    def forward(self, i, j, count):
        weight = (count / 20).clamp(max=1) ** 0.75
        error = (self.w(i) * self.v(j)).sum(1) + self.b(i).squeeze(1) + self.c(j).squeeze(1) - torch.log(count)
        return weight * error**2


class MaskedConv(nn.Conv2d):
    def __init__(self, kind, *args, **options):
        super().__init__(*args, **options)
        k = self.kernel_size[0]
        mask = torch.ones(k, k)
        mask[k // 2, k // 2 + (kind == "B"):], mask[k // 2 + 1:] = 0, 0
        self.register_buffer("mask", mask)

    def forward(self, x):
        return self._conv_forward(x, self.weight * self.mask, self.bias)


class PixelCnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(MaskedConv("A", 1, 6, 5, padding=2), nn.BatchNorm2d(6), nn.ReLU(), MaskedConv("B", 6, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(), nn.Conv2d(6, 4, 1))

    def forward(self, x):
        return self.net(x)


class Documents(nn.Module):
    """Hierarchical attention: words of sentences, then sentences of a text."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(14, 5)
        self.low, self.high = nn.GRU(5, 3, batch_first=True, bidirectional=True), nn.GRU(6, 3, batch_first=True, bidirectional=True)
        self.a, self.b = nn.Linear(6, 4), nn.Linear(6, 4)
        self.u, self.v = nn.Parameter(torch.randn(4)), nn.Parameter(torch.randn(4))
        self.out = nn.Linear(6, 4)

    @staticmethod
    def attend(h, layer, context):
        p = (torch.tanh(layer(h)) @ context).softmax(1)
        return torch.einsum("bt,btd->bd", p, h)

    def forward(self, x):
        b, s, w = x.shape
        h = self.attend(self.low(self.words(x.flatten(0, 1)))[0], self.a, self.u).view(b, s, 6)
        return self.out(self.attend(self.high(h)[0], self.b, self.v)).log_softmax(1)


class RareLayers(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.ConstantPad2d((1, 0, 2, 1), 0.25), nn.Conv2d(2, 6, 3, groups=2), nn.ChannelShuffle(2), nn.LocalResponseNorm(3, alpha=0.1, beta=0.6, k=1.5), nn.CELU(0.7),
            nn.UpsamplingBilinear2d(scale_factor=2), nn.Conv2d(6, 4, (2, 3), stride=(2, 1), padding="valid", dilation=(1, 2)), nn.Softmax2d(), nn.LPPool2d(2, 2), nn.AlphaDropout(0.0), nn.Hardshrink(0.05))
        self.both = nn.Bilinear(4, 4, 5)
        self.last = nn.Sequential(nn.RReLU(0.2, 0.2), nn.LogSigmoid(), nn.Linear(5, 3), nn.Softsign())

    def forward(self, x):
        h = self.net(x)
        return self.last(self.both(h.mean((2, 3)), h.amax((2, 3))))


class Lazy(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.LazyConv1d(4, 3, padding=1, padding_mode="circular"), nn.LazyInstanceNorm1d(affine=True), nn.Mish(), nn.Flatten(), nn.LazyLinear(6), nn.Unflatten(1, (2, 3)), nn.Softmin(2))
        self.net(torch.zeros(2, 3, 8))

    def forward(self, x):
        return self.net(x)


class TiedCoder(nn.Module):
    """An autoencoder whose decoder uses the encoder's weights, transposed, and only has biases of its own."""

    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(10, 6), nn.Linear(6, 3)
        self.back_two, self.back_one = nn.Parameter(torch.randn(6) * 0.1), nn.Parameter(torch.randn(10) * 0.1)

    def forward(self, x):
        code = torch.sigmoid(self.two(torch.sigmoid(self.one(x))))
        h = torch.sigmoid(F.linear(code, self.two.weight.t(), self.back_two))
        return torch.sigmoid(F.linear(h, self.one.weight.t(), self.back_one)), code


class Judge(nn.Module):
    """A value, a policy over masked actions and a bound on both, trained with their entropy."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh())
        self.policy, self.value = nn.Linear(8, 4), nn.Linear(8, 1)

    def forward(self, x, allowed):
        h = self.body(x)
        logits = self.policy(h).masked_fill(~allowed, torch.finfo(torch.float32).min / 2)
        log = logits.log_softmax(1)
        return log, self.value(h).squeeze(-1), -(log.exp() * log).sum(1)


def some_allowed(b):
    mask = torch.rand(b, 4) < 0.6
    mask[:, 0] = True
    return mask


def padded(b, n, vocabulary):
    t = 1 + classes(vocabulary - 1, b, n)
    t[:, -1] = torch.where(torch.rand(b) < 0.5, 0, t[:, -1])
    return t


def noam(steps, warm=3):
    return [0.5 * min((k + 1) ** -0.5, (k + 1) * warm**-1.5) for k in range(steps)]


# module, batch, inputs, targets, outputs, terms, recipe
RUNS = {
    "translator": (Translator, lambda b: {"source": padded(b, 7, 13), "target": classes(11, b, 6), "next": torch.where(torch.rand(b, 6) < 0.2, 0, 1 + classes(10, b, 6))}, "source target", "next", "scores",
                   [term("cross_entropy", "scores", "next", class_axis=-1, ignore_index=0, label_smoothing=0.1)], dict(optimizer=optimizer("adam", lr=0.02, betas=[0.9, 0.98], eps=1e-9), lr_schedule=noam(6), clip_grad_norm=1.0)),
    "captions": (Captions, lambda b: {"image": pixels(b, 2, 9, 8), "words": classes(9, b, 5), "next": classes(9, b, 5)}, "image words", "next", "scores",
                 [term("cross_entropy", "scores", "next", class_axis=-1)], dict(optimizer=optimizer("adamw", lr=0.003, betas=[0.9, 0.95], weight_decay=0.1, groups="no_decay_1d"), grad_accumulation=2, clip_grad_norm=0.5)),
    "adaptive": (Adaptive, lambda b: {"x": classes(20, b, 5), "y": classes(20, b, 5)}, "x", "y", "log",
                 [term("nll", "log", class_axis=-1)], dict(optimizer=optimizer("sgd", lr=2.0), clip_grad_norm=0.25, lr_schedule=[1, 1, 1, 0.25, 0.25, 0.0625])),
    "ensemble": (Ensemble, lambda b: {"x": pixels(b, 5), "y": classes(3, b)}, "x", "y", "out", [CE | dict(class_weight=[1.0, 0.2, 4.0])], dict(optimizer=optimizer("lamb", lr=0.02), grad_accumulation=3)),
    "siren": (Siren, lambda b: {"x": torch.rand(b, 2) * 2 - 1, "y": torch.rand(b, 3)}, "x", "y", "out", [MSE], dict(optimizer=optimizer("adam", lr=1e-4))),
    "conv_lstm": (ConvLstm, lambda b: {"x": pixels(b, 4, 2, 5, 6), "y": (torch.rand(b, 2, 5, 6) < 0.3).float()}, "x", "y", "out", [term("bce_with_logits", pos_weight=[3.0])], dict(optimizer=optimizer("rmsprop", lr=0.003, alpha=0.9, eps=1e-5, momentum=0.5), clip_grad_norm=0.1)),
    "memories": (MemoryNetwork, lambda b: {"story": classes(11, b, 4, 5), "question": classes(11, b, 5), "y": classes(11, b)}, "story question", "y", "out", [CE | dict(reduction="sum", weight=0.2)], dict(optimizer=optimizer("sgd", lr=0.05), clip_grad_norm=40.0, lr_schedule=[1, 1, 0.5, 0.5, 0.25, 0.25])),
    "char_highway": (CharHighway, lambda b: {"x": classes(15, b, 3, 6), "y": torch.where(torch.rand(b, 3) < 0.3, -100, classes(6, b, 3))}, "x", "y", "out", [term("cross_entropy", class_axis=-1)], dict(optimizer=optimizer("adagrad", lr=0.05, initial_accumulator_value=0.1, lr_decay=0.01))),
    "interest": (Interest, lambda b: {"history": padded(b, 6, 17), "candidate": 1 + classes(16, b), "y": (torch.rand(b) < 0.4).float()}, "history candidate", "y", "out", [term("bce_with_logits")], dict(optimizer=optimizer("adagrad", weight_decay=0.01), semantics="train", mode="eval")),
    "skip_gram": (SkipGram, lambda b: {"word": classes(19, b), "near": classes(19, b), "others": classes(19, b, 4)}, "word near others", "", "each", [term("output", "each", None)], dict(optimizer=optimizer("sgd", lr=0.5), lr_schedule=[1 - k / 6 for k in range(6)])),
    "glove": (Glove, lambda b: {"i": classes(12, b), "j": classes(12, b), "count": 1 + classes(40, b).float()}, "i j count", "", "each", [term("output", "each", None, weight=2.0)], dict(optimizer=optimizer("adagrad", lr=0.05))),
    "pixel_cnn": (PixelCnn, lambda b: {"x": pixels(b, 1, 6, 7), "y": classes(4, b, 6, 7)}, "x", "y", "out", [CE | dict(label_smoothing=0.05)], dict(optimizer=optimizer("adamax", lr=0.003, weight_decay=0.001), semantics="train", mode="eval")),
    "documents": (Documents, lambda b: {"x": classes(14, b, 3, 5), "y": classes(4, b)}, "x", "y", "log", [term("nll", "log", class_weight=[2.0, 1.0, 0.5, 1.0], ignore_index=3)], dict(optimizer=optimizer("momentum", lr=0.03, weight_decay=1e-3), lr_schedule=[0.1, 0.4, 0.7, 1.0, 1.0, 0.5])),
    "rare_layers": (RareLayers, lambda b: {"x": pixels(b, 2, 6, 7), "y": pixels(b, 3)}, "x", "y", "out", [term("smooth_l1", beta=0.25), term("huber", delta=2.0, weight=0.25)], dict(optimizer=optimizer("nesterov", lr=0.02, weight_decay=0.05))),
    "lazy": (Lazy, lambda b: {"x": pixels(b, 3, 8), "y": torch.rand(b, 2, 3)}, "x", "y", "out", [term("bce"), term("l1", weight=0.3)], dict(optimizer=optimizer("adadelta", lr=1.0, rho=0.8))),
    "tied_coder": (TiedCoder, lambda b: {"x": torch.rand(b, 10), "y": torch.rand(b, 10)}, "x", "y", "out code", [term("bce"), term("output", "code", None, weight=0.02)], dict(optimizer=optimizer("momentum", lr=0.5, dampening=0.1), grad_accumulation=2)),
    "judge": (Judge, lambda b: {"x": pixels(b, 6), "allowed": some_allowed(b), "taken": torch.zeros(b, dtype=torch.int64), "returns": pixels(b)}, "x allowed", "taken returns", "log value entropy",
              [term("nll", "log", "taken"), term("huber", "value", "returns", weight=0.5), term("output", "entropy", None, weight=-0.01)], dict(optimizer=optimizer("rmsprop", lr=7e-4, alpha=0.99, eps=1e-5), clip_grad_norm=0.5)),
}

# exporter, opset, optimize, any batch size, how the module becomes a file
STYLES = [("dynamo", 18, False, False, None), ("legacy", 17, True, True, "traced"), ("dynamo", 22, False, True, "program"), ("legacy", 14, False, False, None), ("dynamo", 25, True, True, None), ("legacy", 18, True, False, None),
          ("dynamo", 20, False, True, "strict"), ("legacy", 16, False, True, None), ("dynamo", 24, True, False, "program")]


def written(case, how):
    """Writes the file as users do who have more than the module: its trace, or its program."""

    def write(module, batch, path):
        args = tuple(batch[i] for i in case.inputs)
        names = dict(input_names=list(case.inputs), output_names=list(case.outputs), opset_version=case.opset)
        axes = {i: {0: "batch"} for i in case.inputs}
        if how == "traced":
            traced = torch.jit.trace(module.eval(), args)
            torch.onnx.export(traced, args, path, dynamo=False, do_constant_folding=case.optimize, dynamic_axes=axes | {o: {0: "batch"} for o in case.outputs} if case.dynamic_batch else None, **names)
            return
        shapes = tuple({0: torch.export.Dim.DYNAMIC} for _ in args) if case.dynamic_batch else None
        program = torch.export.export(module, args, dynamic_shapes=shapes, strict=how == "strict")
        torch.onnx.export(program, args, path, dynamo=True, optimize=case.optimize, external_data=False, verbose=False, **names)

    return write


def cases():
    for name, (module, batch, inputs, targets, outputs, losses, options) in RUNS.items():
        start = zlib.crc32(name.encode())
        for k in (0, 1, 2):
            exporter, opset, optimize, dynamic, how = STYLES[(start + k * 4) % len(STYLES)]
            if "semantics" in options and (exporter == "legacy" or how or optimize):  # they fold or decompose the normalization
                exporter, opset, optimize, how = "dynamo", 18 + 2 * k, False, None
            case = Case(f"whole_{name}_{exporter}{opset}_{how or k}", module, batch, losses, inputs=tuple(inputs.split()), targets=tuple(targets.split()), outputs=tuple(outputs.split()), exporter=exporter, opset=opset, optimize=optimize,
                        dynamic_batch=dynamic, batch_size=6, batch_sizes=[6, 6, 3, 7, 6, 4] if dynamic else [6] * 6, steps=6, may_rest=True, **options)
            if how:
                case.write = written(case, how)
            yield case
