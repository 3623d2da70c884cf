"""Random models of layers with all options, for which the other random sets use defaults: normalizations without weights, without
statistics, partly or completely frozen, with any momentum; recurrent layers in all directions with given initial states and final states as
outputs; attention with other widths for keys and values, key biases, both kinds of masks; filters with one to three axes with every
padding, stride, dilation and group; embeddings with padding, frozen, tied, parametrized weights; inputs of other types; losses inside the
model with all their options, and the optimizers and schedules of everyday.py. The environment variables `random_COUNT` and `random_FIRST`
select the numbers. Nothing is kept in `recorded/` except cases that found a bug."""
import os
import random
import zlib

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils import parametrizations

from case import Case, classes, pixels, term
from sets.everyday import DYNAMO, LEGACY, recipe
from sets.random_mixes import Ending, With, small, terms
from sets.random_nets import Do, pointwise
from zoo import settled, still

CONVS = {1: (nn.Conv1d, nn.ConvTranspose1d, nn.BatchNorm1d, nn.InstanceNorm1d), 2: (nn.Conv2d, nn.ConvTranspose2d, nn.BatchNorm2d, nn.InstanceNorm2d), 3: (nn.Conv3d, nn.ConvTranspose3d, nn.BatchNorm3d, nn.InstanceNorm3d)}


class Frozen(nn.Module):
    """A layer that always stays in eval mode, with or without trained weights."""

    def __init__(self, layer, fixed):
        super().__init__()
        self.layer = layer
        if fixed:
            for name, p in list(layer.named_parameters(recurse=False)):
                del layer._parameters[name]
                layer.register_buffer(name, p.data)

    def train(self, mode=True):
        super().train(mode)
        self.layer.eval()
        return self

    def forward(self, x):
        return self.layer(x)


def normed(r, n, c):
    """A normalization of [batch, c, ...] with n further axes, with any of its options."""
    batch, instance = CONVS[n][2:]
    kind = r.randrange(9)
    eps = r.choice([1e-5, 1e-3, 0.1])
    if kind < 2:
        return batch(c, eps=eps, momentum=r.choice([0.0, 0.01, 0.3, 1.0]), affine=r.random() < 0.7)
    if kind == 2:
        return batch(c, eps=eps, affine=r.random() < 0.7, track_running_stats=False)
    if kind == 3:
        return Frozen(batch(c, eps=eps, affine=r.random() < 0.8), r.random() < 0.5)
    if kind == 4:
        return instance(c, eps=eps, affine=r.random() < 0.5)
    if kind == 5:
        return nn.GroupNorm(r.choice([g for g in (1, 2, c) if c % g == 0]), c, eps=eps, affine=r.random() < 0.6)
    if kind == 6:
        last = lambda m: With(lambda s, x: s.m(x.movedim(1, -1)).movedim(-1, 1), m=m)
        return last(r.choice([nn.LayerNorm(c, eps=eps, elementwise_affine=r.random() < 0.6), nn.LayerNorm(c, bias=False), nn.RMSNorm(c, eps=r.choice([None, 1e-6]), elementwise_affine=r.random() < 0.5)]))
    if kind == 7:
        return nn.LocalResponseNorm(r.choice([2, 3]), alpha=r.choice([1e-4, 0.1]), beta=r.choice([0.5, 0.75]), k=r.choice([1.0, 2.0]))
    return Do(lambda x: F.normalize(x, p=r2, dim=1, eps=1e-6) * 2) if (r2 := r.choice([1.0, 2.0])) else None


def parametrized(r, layer):
    kind = r.randrange(8)
    if kind == 0:
        return parametrizations.weight_norm(layer, dim=r.choice([0, 1]))
    if kind == 1:
        return nn.utils.weight_norm(layer, dim=r.choice([0, None]))
    return layer


def spatial(r):
    n = r.choice([1, 1, 2, 2, 2, 3])
    conv, deconv = CONVS[n][:2]
    c, size = r.choice([4, 6]), {1: (11,), 2: (7, 8), 3: (4, 5, 4)}[n]
    axes = lambda values: tuple(r.choice(values) for _ in range(n))
    i = r.choice([1, 2, 3])
    layers, width = [], i
    for _ in range(r.randrange(2, 5)):
        kind = r.randrange(6)
        if kind < 3:
            out = r.choice([c, 2 * c, 5])
            groups = r.choice([g for g in (1, 2, width) if width % g == 0 and out % g == 0])
            mode = r.choice(["zeros", "zeros", "reflect", "replicate", "circular"]) if not (n == 3 and r.random() < 0) else "zeros"
            layer = conv(width, out, axes([1, 2, 3]), axes([1, 1, 2]), axes([0, 1]), axes([1, 1, 2]) if r.random() < 0.4 else 1, groups, r.random() < 0.6, mode)
            layers.append(parametrized(r, layer))
            width = out
        elif kind == 3:
            groups = r.choice([g for g in (1, 2, width) if width % g == 0 and (2 * width) % g == 0])
            stride = axes([1, 2])
            layer = deconv(width, 2 * width, axes([1, 2, 3]), stride, axes([0, 1]), tuple(r.choice(range(s)) for s in stride), groups, r.random() < 0.6, r.choice([1, 2]) if min(stride) > 1 else 1)
            layers.append(layer)
            width *= 2
        elif kind == 4:
            pool = r.choice([nn.MaxPool1d, nn.AvgPool1d] if n == 1 else [nn.MaxPool2d, nn.AvgPool2d] if n == 2 else [nn.MaxPool3d, nn.AvgPool3d])
            options = dict(ceil_mode=r.random() < 0.4, stride=r.choice([1, 2]), padding=r.choice([0, 1]))
            if "Avg" in pool.__name__:
                options["count_include_pad"] = r.random() < 0.5
                if n > 1 and r.random() < 0.3:
                    options["divisor_override"] = 3
            elif r.random() < 0.2:
                options["dilation"] = 2
            layers.append(pool(r.choice([2, 3]), **options))
        else:
            layers.append(normed(r, n, width))
        if r.random() < 0.5:
            layers.append(pointwise(r))
    if r.random() < 0.6:
        layers.append(normed(r, n, width))
    o = r.choice([2, 3, 5])
    return nn.Sequential(*layers, Do(lambda x: x.flatten(2).mean(2)), nn.Linear(width, o)), {"x": lambda b: pixels(b, i, *size)}, [((o,), 1)]


class States(nn.Module):
    """A recurrent layer with random inputs for its states and a random choice of outputs."""

    def __init__(self, r):
        super().__init__()
        d, self.kind = r.choice([4, 5]), r.choice(["lstm", "lstm", "gru", "rnn"])
        self.first, self.two, self.layers = r.random() < 0.6, r.random() < 0.5, r.choice([1, 2, 3])
        self.h = r.choice([3, 4])
        options = dict(num_layers=self.layers, bias=r.random() < 0.7, batch_first=self.first, bidirectional=self.two, dropout=0.0)
        self.p = r.choice([0, 2]) if self.kind == "lstm" else 0
        if self.kind == "lstm":
            self.rnn = nn.LSTM(d, self.h, proj_size=self.p, **options)
        elif self.kind == "gru":
            self.rnn = nn.GRU(d, self.h, **options)
        else:
            self.rnn = nn.RNN(d, self.h, nonlinearity=r.choice(["tanh", "relu"]), **options)
        self.d, self.t = d, r.choice([3, 5])
        self.start, self.read = r.choice(["none", "given", "zeros", "learned"]), r.choice(["out", "last", "h", "c", "both"])
        self.tokens = r.random() < 0.4
        self.embed = nn.Embedding(9, d, padding_idx=r.choice([None, 0])) if self.tokens else nn.Linear(3, d)
        w, many = self.p or self.h, 2 if self.two else 1
        if self.start == "learned":
            self.h0, self.c0 = nn.Parameter(small(self.layers * many, 1, w)), nn.Parameter(small(self.layers * many, 1, self.h))
        wide = {"out": w * many, "last": w * many, "h": w * many * self.layers, "c": self.h * many * self.layers, "both": w * many + w}[self.read]
        if self.read == "c" and self.kind != "lstm":
            wide = w * many * self.layers
        self.head = nn.Linear(wide, 3)

    def forward(self, x, h0=None):
        b = x.shape[0]
        x = self.embed(x)
        if not self.first:
            x = x.transpose(0, 1)
        n, w = self.layers * (2 if self.two else 1), self.p or self.h
        given = None
        if self.start == "given":
            given = h0.transpose(0, 1).contiguous()
        if self.start == "zeros":
            given = torch.zeros(n, b, w)
        if self.start == "learned":
            given = self.h0.expand(-1, b, -1).contiguous()
        if given is not None and self.kind == "lstm":
            given = (given, torch.zeros(n, b, self.h) if self.start != "learned" else self.c0.repeat(1, b, 1))
        out, state = self.rnn(x, given)
        h, c = state if self.kind == "lstm" else (state, state)
        if not self.first:
            out = out.transpose(0, 1)
        if self.read == "out":
            return self.head(out.mean(1))
        if self.read == "last":
            return self.head(out[:, -1])
        if self.read == "both":
            return self.head(torch.cat([out[:, 0], h[-1]], 1))
        return self.head((h if self.read == "h" else c).transpose(0, 1).flatten(1))


def states(r):
    net = States(r)
    inputs = {"x": lambda b: classes(9, b, net.t) if net.tokens else pixels(b, net.t, 3)}
    if net.start == "given":
        n, w = net.layers * (2 if net.two else 1), net.p or net.h
        inputs["h0"] = lambda b: pixels(b, n, w)
    return net, inputs, [((3,), 1)]


class Attends(nn.Module):
    def __init__(self, r):
        super().__init__()
        d, self.first = 8, r.random() < 0.6
        self.kw, self.vw = r.choice([None, None, 6]), r.choice([None, None, 5])
        self.mha = nn.MultiheadAttention(d, r.choice([1, 2, 4]), bias=r.random() < 0.7, add_bias_kv=r.random() < 0.2, add_zero_attn=r.random() < 0.2, kdim=self.kw, vdim=self.vw, batch_first=self.first)
        self.t, self.s = r.choice([3, 4]), r.choice([4, 5])
        self.table = nn.Embedding(11, d)
        self.k, self.v = nn.Linear(3, self.kw or d), nn.Linear(3, self.vw or d)
        self.mask, self.padding = r.choice(["none", "bool", "float"]), r.choice(["none", "bool", "lengths"])
        self.weights, self.average = r.random() < 0.4, r.random() < 0.5
        self.norm = r.choice([nn.LayerNorm(d), nn.LayerNorm(d, elementwise_affine=False), nn.RMSNorm(d, elementwise_affine=False), nn.RMSNorm(d)])
        self.head = nn.Linear(d, 11, bias=r.random() < 0.5)
        if r.random() < 0.4:
            self.head.weight = self.table.weight

    def forward(self, x, memory, keep=None):
        h = self.table(x)
        k, v = self.k(memory), self.v(memory)
        mask = None if self.mask == "none" else torch.ones(self.t, self.s, dtype=torch.bool).triu(2)
        if self.mask == "float":
            mask = torch.zeros(self.t, self.s).masked_fill(mask, -1e9)
        padding = None
        if self.padding == "bool":
            padding = ~keep
        if self.padding == "lengths":
            padding = torch.arange(self.s)[None] >= keep[:, None]
        if padding is not None and self.mask == "float":
            padding = torch.zeros(padding.shape).masked_fill(padding, -1e9)
        if not self.first:
            h, k, v = (y.transpose(0, 1) for y in (h, k, v))
        y, w = self.mha(h, k, v, attn_mask=mask, key_padding_mask=padding, need_weights=self.weights, average_attn_weights=self.average)
        y = self.norm(h + y)
        if not self.first:
            y = y.transpose(0, 1)
        out = self.head(y)
        return out if w is None else (out, w.flatten(1))


def attends(r):
    net = Attends(r)
    inputs = {"x": lambda b: classes(11, b, net.t), "memory": lambda b: pixels(b, net.s, 3)}
    if net.padding == "bool":
        inputs["keep"] = lambda b: torch.cat([torch.ones(b, 1), torch.randint(0, 2, (b, net.s - 1))], 1).bool()
    if net.padding == "lengths":
        kind = r.choice([torch.int64, torch.int32, torch.uint8])
        inputs["keep"] = lambda b: torch.randint(1, net.s + 1, (b,)).to(kind)
    with torch.no_grad():
        made = net(*(f(2) for f in inputs.values()))
    outputs = [((net.t, 11), 2)]
    return net, inputs, outputs + ([(tuple(made[1].shape[1:]), 0)] if isinstance(made, tuple) else [])


TYPES = {"int64": lambda b: classes(7, b, 5), "int32": lambda b: classes(7, b, 5).int(), "uint8": lambda b: classes(7, b, 5).byte(), "int8": lambda b: (classes(7, b, 5) - 3).to(torch.int8), "int16": lambda b: classes(7, b, 5).short(),
         "bool": lambda b: torch.randint(0, 2, (b, 5)).bool(), "float64": lambda b: pixels(b, 5).double(), "float16": lambda b: pixels(b, 5).half(), "float32": lambda b: pixels(b, 5)}


def types(r):
    """Several inputs of different types, each turned into features of its own width."""
    names = r.sample(list(TYPES), r.choice([2, 3]))
    parts, ways = [], []
    for name in names:
        way = r.choice(["table", "number"]) if name in ("int64", "int32", "uint8", "int16") else "number"
        ways.append(way)
        parts.append(nn.Embedding(7, 4, padding_idx=r.choice([None, 0, 3])) if way == "table" else nn.Linear(5, 4, bias=r.random() < 0.7))
    deep, norm = nn.Linear(4 * len(names), 8), r.choice([nn.BatchNorm1d(8, affine=False), nn.BatchNorm1d(8, momentum=0.4), nn.LayerNorm(8), nn.Identity(), nn.BatchNorm1d(8, track_running_stats=False)])

    def run(s, *xs):
        made = [p(x.long() if x.dtype in (torch.uint8, torch.int16) else x).mean(1) if w == "table" else p(x.to(s.deep.weight.dtype)) for p, w, x in zip(s.parts, ways, xs)]
        return s.head(s.act(s.norm(s.deep(torch.cat(made, 1)))))

    o = r.choice([2, 4])
    return With(run, parts=nn.ModuleList(parts), deep=deep, norm=norm, act=pointwise(r), head=nn.Linear(8, o)), {f"x{'abc'[k]}": TYPES[n] for k, n in enumerate(names)}, [((o,), 1)]


def inner_losses(r):
    """(name of an additional input, a function that creates it, the loss of 4 scores and this input)."""
    red = r.choice(["mean", "mean", "sum"])
    scale = 0.1 if red == "sum" else 1.0
    sign = lambda b: torch.randint(0, 2, (b,)).float() * 2 - 1
    binary = lambda b: torch.randint(0, 2, (b, 4)).float()
    spread = lambda b: torch.softmax(pixels(b, 4), -1)
    w4 = torch.tensor([0.5, 1.0, 2.0, 0.25])
    label = lambda b: classes(4, b)
    m = r.choice([0.0, 0.5, 1.0])
    options = [
        (sign, lambda z, y: F.margin_ranking_loss(z[:, 0], z[:, 1], y, margin=m, reduction=red)),
        (lambda b: torch.randint(0, 2, (b, 4)).float() * 2 - 1, lambda z, y: F.hinge_embedding_loss(z, y, margin=m + 0.5, reduction=red)),
        (lambda b: torch.randint(0, 2, (b, 4)).float() * 2 - 1, lambda z, y: F.soft_margin_loss(z, y, reduction=red)),
        (binary, lambda z, y: F.multilabel_soft_margin_loss(z, y, weight=w4.to(z.dtype) if m else None, reduction=red)),
        (label, lambda z, y: F.multi_margin_loss(z, y, p=2 if m else 1, margin=m + 0.5, weight=w4.to(z.dtype) if m else None, reduction=red)),
        (lambda b: classes(5, b, 4).float(), lambda z, y: F.poisson_nll_loss(z if m else z.exp(), y, log_input=bool(m), full=m == 0.5, reduction=red)),
        (lambda b: pixels(b, 2), lambda z, y: F.gaussian_nll_loss(z[:, :2], y, F.softplus(z[:, 2:]), full=bool(m), eps=1e-3, reduction=red)),
        (spread, lambda z, y: F.kl_div(z.log_softmax(-1), (y + 1e-3).log() if m else y, log_target=bool(m), reduction=r2)),
        (lambda b: pixels(b, 2), lambda z, y: F.triplet_margin_loss(z[:, :2], z[:, 2:], y, margin=m + 0.5, p=r3, swap=bool(m), reduction=red)),
        (sign, lambda z, y: F.cosine_embedding_loss(z[:, :2], z[:, 2:], y, margin=m * 0.4, reduction=red)),
        (spread, lambda z, y: F.cross_entropy(z, y, weight=w4.to(z.dtype) if m else None, label_smoothing=0.1 if m == 1 else 0.0, reduction=red)),
        (binary, lambda z, y: F.binary_cross_entropy(z.sigmoid(), y, weight=w4.to(z.dtype) if m else None, reduction=red)),
        (binary, lambda z, y: F.binary_cross_entropy_with_logits(z, y, weight=w4.to(z.dtype) if m else None, pos_weight=w4.to(z.dtype) if m == 1 else None, reduction=red)),
        (label, lambda z, y: F.cross_entropy(z, y, weight=w4.to(z.dtype) if m else None, ignore_index=2, label_smoothing=0.2 if m == 1 else 0.0, reduction=red)),
        (label, lambda z, y: (F.cross_entropy(z, y, reduction="none") * torch.linspace(0.5, 1.0, 4, dtype=z.dtype)[y]).sum() / 3),
        (lambda b: pixels(b, 4), lambda z, y: F.smooth_l1_loss(z, y, beta=m, reduction=red)),
        (lambda b: pixels(b, 4), lambda z, y: F.huber_loss(z, y, delta=m + 0.25, reduction=red)),
        (label, lambda z, y: F.nll_loss(F.log_softmax(z, 1), y, weight=w4.to(z.dtype), ignore_index=0, reduction=red)),
        (label, lambda z, y: (1 - z.softmax(-1).gather(1, y[:, None]).squeeze(1)).pow(2).mul(F.cross_entropy(z, y, reduction="none")).mean()),
        (binary, lambda z, y: F.multilabel_margin_loss(z, torch.where(y > 0, 0, -1).long(), reduction=red)),
        (lambda b: pixels(b, 2), lambda z, y: F.pairwise_distance(z[:, :2], y, p=r3, eps=1e-6, keepdim=True).mean() + (1 - F.cosine_similarity(z[:, 2:], y, dim=1, eps=1e-4)).mean()),
    ]
    r2, r3 = r.choice(["batchmean", "mean", "sum"]), r.choice([1.0, 2.0, 2.0, 3.0])
    other, f = r.choice(options)
    return other, lambda z, y: f(z, y) * scale


def objectives(r):
    """One or two losses inside the module, summed with factors that may be trained."""
    d = r.choice([6, 8])
    (ya, fa), (yb, fb) = inner_losses(r), inner_losses(r)
    two, trained = r.random() < 0.6, r.random() < 0.3
    body = nn.Sequential(nn.Linear(5, d), r.choice([nn.Identity(), normed(r, 1, d) if False else nn.BatchNorm1d(d, affine=False), nn.LayerNorm(d)]), pointwise(r))

    def run(s, x, ya, yb=None):
        h = s.body(x)
        total = fa(s.a(h), ya)
        if two:
            total = total + (s.factor.exp() if trained else 0.3) * fb(s.b(h), yb)
        return (total, s.a(h)) if shown else total

    shown = r.random() < 0.3
    parts = dict(body=body, a=nn.Linear(d, 4)) | (dict(b=nn.Linear(d, 4)) if two else {}) | (dict(factor=small(1)[0]) if two and trained else {})
    return With(run, **parts), {"x": lambda b: pixels(b, 5), "ya": ya} | ({"yb": yb} if two else {}), [None, ((4,), 0)][: 2 if shown else 1]


FAMILIES = dict(spatial=spatial, spatial2=spatial, states=states, attends=attends, types=types, objectives=objectives, objectives2=objectives)


def drawn(r, family, number):
    """A function that creates the model, and one instance. A model whose filters and pooling leave nothing of an image is drawn again."""
    while True:
        seed = r.randrange(1 << 30)
        made = lambda: FAMILIES[family](random.Random(seed))
        torch.manual_seed(number)
        try:
            net, inputs, outputs = made()
            with torch.no_grad():
                net(*(f(6) for f in inputs.values()))
        except RuntimeError:
            continue
        return made, made()


def case(number):
    name = f"option_{number}"
    r = random.Random(zlib.crc32(name.encode()))
    family = r.choice(list(FAMILIES))
    made, (net, inputs, outputs) = drawn(r, family, number)
    asked = [o for o in outputs if o is not None]
    losses, targets, end = terms(r, asked) if asked and outputs[0] is not None else ([], {}, None)
    if outputs[0] is None:
        losses = [term("output", output="out", target=None, weight=r.choice([1.0, 0.5]))]
        if len(outputs) > 1 and r.random() < 0.5:
            losses, targets = [*losses, term("mse", "out1", "y1", weight=0.2)], {"y1": lambda b: pixels(b, 4)}
    example = {k: f(6) for k, f in inputs.items()}

    def whole():
        net = still(Ending(made()[0], end) if end else made()[0])
        net = settled(net, example, tuple(example))
        with torch.no_grad():
            net(*example.values())  # weights computed by hooks become leaf tensors again, which can be copied
        return net

    legacy = r.random() < float(os.environ.get("random_LEGACY", 0.7))
    opset, mode = r.choice([s for s in LEGACY if s[0] > 10 or r.random() < 0.3] if legacy else DYNAMO)
    optimize, dynamic = r.random() < 0.5, r.random() < 0.5
    statistics = any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in net.modules())
    options = recipe(r)
    names = [n for n, _ in net.named_parameters()]
    frozen = (r.choice(names),) if r.random() < 0.2 and len(names) > 3 else ()
    if statistics or frozen or options["optimizer"]["type"] == "lamb" or "groups" in options["optimizer"]:
        optimize = False
    # in a file for training, and used as written; otherwise all would be in one mode
    partly = any(isinstance(m, Frozen) for m in net.modules())
    if partly:
        mode = "train"
    batch = r.choice([3, 4, 6])
    sizes = [batch if not k else r.choice([batch, 2, 5]) for k in range(options["steps"])] if dynamic and r.random() < 0.6 else None
    return Case(name, whole, lambda b: {k: f(b) for k, f in (inputs | targets).items()}, losses, inputs=tuple(inputs), targets=tuple(targets), outputs=("out", "out1")[: len(outputs)], exporter="legacy" if legacy else "dynamo",
                opset=opset, optimize=optimize, mode=mode, dynamic_batch=dynamic, semantics=r.choice(["train", "as_graph"]) if statistics and mode == "eval" else "as_graph", frozen=frozen,
                external_data=r.random() < 0.1 and not legacy, batch_size=batch, batch_sizes=sizes, may_rest=True, keep_notes=not legacy, notes=family, **options)


def cases():
    first = int(os.environ.get("random_FIRST", 0))
    for number in range(first, first + int(os.environ.get("random_COUNT", 100))):
        yield case(number)
