"""Tables, graphs, objectives and policies through PyTorch's default exporter, and the ways of calling it: named arguments, dictionaries,
lists, absent inputs, programs of torch.export, any name for an input. The styles are in defaults.py. Nothing is kept in `recorded/`."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch._higher_order_ops.associative_scan import associative_scan

from case import Case, classes, pixels, term
from defaults import exported
from optimizers import optimizer

CE, MSE = term("cross_entropy"), term("mse")


class Click(nn.Module):
    """DLRM: categories of three widths (int32, one with a hash), numbers with missing values, factorized interactions."""

    def __init__(self):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(n, 4) for n in (7, 11, 5))
        self.bag = nn.EmbeddingBag(9, 4, mode="mean")
        self.missing, self.bottom = nn.Parameter(torch.randn(3) * 0.1), nn.Sequential(nn.Linear(3, 6), nn.ReLU(), nn.Linear(6, 4))
        self.top = nn.Sequential(nn.Linear(4 + 10, 8), nn.SiLU(), nn.Linear(8, 1))

    def forward(self, numbers, kinds, words):
        numbers = torch.where(torch.isnan(numbers), self.missing, torch.log1p(torch.nan_to_num(numbers).abs()))
        d = self.bottom(numbers)
        hashed = torch.remainder(kinds[:, 2] * 7 - 3, 5)
        e = [t(k) for t, k in zip(self.tables, (kinds[:, 0], kinds[:, 1], hashed))] + [self.bag(words), d]
        e = torch.stack(e, 1)
        pairs = torch.matmul(e, e.transpose(1, 2))
        i, j = torch.tril_indices(5, 5, -1)
        return self.top(torch.cat([d, pairs[:, i, j]], 1)).squeeze(-1)


class TabularTransformer(nn.Module):
    """FT-Transformer: tokens from numbers by trained scales and offsets, piecewise-linear bins by searching in buffers, ReGLU."""

    def __init__(self):
        super().__init__()
        self.register_buffer("edges", torch.linspace(-1.5, 1.5, 5))
        self.w, self.b, self.cls = nn.Parameter(torch.randn(4, 8) * 0.5), nn.Parameter(torch.randn(4, 8) * 0.2), nn.Parameter(torch.randn(1, 1, 8) * 0.2)
        self.bins = nn.Embedding(6, 8)
        self.norm, self.attn, self.n2, self.up, self.down = nn.LayerNorm(8), nn.MultiheadAttention(8, 4, batch_first=True), nn.LayerNorm(8), nn.Linear(8, 16), nn.Linear(8, 8)
        self.head = nn.Linear(8, 1)

    def forward(self, x):
        t = x.unsqueeze(-1) * self.w + self.b + self.bins(torch.bucketize(x, self.edges, right=True))
        h = torch.cat([self.cls.expand(x.size(0), -1, -1), t], 1)
        n = self.norm(h)
        h = h + self.attn(n[:, :1], n, n, need_weights=False)[0]
        a, g = self.up(self.n2(h)).chunk(2, -1)
        h = h + self.down(a * F.relu(g))
        return self.head(h[:, 0])


class Messages(nn.Module):
    """A padded graph per sample: means and maxima over neighbors by scatter_reduce, edges with kinds, GRU updates, attention readout."""

    def __init__(self):
        super().__init__()
        self.kinds, self.msg, self.gru = nn.Embedding(3, 4), nn.Linear(4 + 4 + 4, 5), nn.GRUCell(10, 4)
        self.gate, self.out = nn.Linear(4, 1), nn.Linear(4, 3)

    def forward(self, x, source, goal, kind):
        b, n, d = x.shape
        at = lambda i, w: i.unsqueeze(-1).expand(-1, -1, w)
        for _ in range(2):
            m = F.elu(self.msg(torch.cat([x.gather(1, at(source, d)), x.gather(1, at(goal, d)), self.kinds(kind)], -1)))
            mean = x.new_zeros(b, n, 5).scatter_reduce(1, at(goal, 5), m, "mean", include_self=False)
            most = x.new_zeros(b, n, 5).scatter_reduce(1, at(goal, 5), m, "amax", include_self=False)
            x = self.gru(torch.cat([mean, most], -1).flatten(0, 1), x.flatten(0, 1)).view(b, n, d)
        w = self.gate(x).softmax(1)
        return self.out((w * x).sum(1))


class Policy(nn.Module):
    """PPO in the module: ratios, clipping by tensors, entropy, a value loss; the log-probability of given actions."""

    def __init__(self):
        super().__init__()
        self.body, self.pi, self.v, self.log_std = nn.Sequential(nn.Linear(5, 8), nn.Tanh()), nn.Linear(8, 2), nn.Linear(8, 1), nn.Parameter(torch.full((2,), -0.4) + torch.rand(2) * 0.1)

    def forward(self, state, action, old, advantage):
        h = self.body(state)
        mu, std = self.pi(h), self.log_std.clamp(-5, 2).exp()
        logp = (-((action - mu) ** 2) / (2 * std**2) - std.log() - 0.5 * math.log(2 * math.pi)).sum(-1)
        ratio = torch.exp(logp - old)
        a = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        loss = -torch.min(ratio * a, torch.clamp(ratio, 0.8, 1.2) * a).mean()
        entropy = (0.5 + 0.5 * math.log(2 * math.pi) + std.log()).sum(-1)
        return loss - 0.01 * entropy, self.v(h).squeeze(-1)


class Survival(nn.Module):
    """Likelihoods in the module: Weibull with censoring, a normal one with its variance, a mixture of normals by logsumexp."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 8), nn.Softplus(), nn.Linear(8, 4 + 9))
        self.base = nn.Parameter(torch.tensor(0.3))

    def forward(self, x, time, event, value):
        a, k, mu, s, mix = self.net(x).split([1, 1, 1, 1, 9], -1)
        scale, shape = F.softplus(a.squeeze(-1)) + 0.5, F.softplus(k.squeeze(-1)) + 0.5
        u = time / scale
        weibull = -(event * (torch.log(shape / scale) + (shape - 1) * torch.log(u)) - u.pow(shape))
        var = F.softplus(s.squeeze(-1)) + 1e-3
        gauss = 0.5 * (var.log() + (mu.squeeze(-1) - value).square() / var).mean()
        logit, mean, log_sd = mix.chunk(3, -1)
        like = torch.logsumexp(logit.log_softmax(-1) - log_sd - 0.5 * ((value.unsqueeze(-1) - mean) / log_sd.exp()) ** 2, -1)
        return weibull + self.base * 0.1, gauss - like.mean()


class Contrast(nn.Module):
    """Losses of torch.nn.functional in the module: cross entropy with smoothing and weights, triplet, cosine, margins, hinge, Poisson."""

    def __init__(self):
        super().__init__()
        self.net, self.head, self.rate = nn.Sequential(nn.Linear(6, 10), nn.GELU(), nn.Linear(10, 5)), nn.Linear(5, 4), nn.Linear(5, 1)
        self.register_buffer("weights", torch.tensor([1.0, 2.0, 0.5, 1.5]))

    def forward(self, x, positive, negative, label, sign, count):
        a, p, n = self.net(x), self.net(positive), self.net(negative)
        logits = self.head(a)
        total = F.cross_entropy(logits, label, weight=self.weights, label_smoothing=0.1)
        total = total + F.triplet_margin_loss(a, p, n, margin=0.7) + F.cosine_embedding_loss(a, p, sign, margin=0.2)
        total = total + F.multi_margin_loss(logits, label) + F.margin_ranking_loss(a.mean(1), n.mean(1), sign, margin=0.1) + F.soft_margin_loss(p[:, 0], sign)
        total = total + F.poisson_nll_loss(self.rate(a).squeeze(1), count, log_input=True, full=False) + F.hinge_embedding_loss((a - p).abs().sum(1), sign)
        return total, logits


class Experts(nn.Module):
    """MMoE with hard top-1 by argmax for one gate, temperature by a trained scalar, two tasks in a dictionary."""

    def __init__(self):
        super().__init__()
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 5)) for _ in range(3))
        self.gates = nn.ModuleDict({"click": nn.Linear(6, 3), "buy": nn.Linear(6, 3)})
        self.towers = nn.ModuleDict({"click": nn.Linear(5, 1), "buy": nn.Linear(5, 1)})
        self.temperature = nn.Parameter(torch.tensor(1.3))

    def forward(self, x):
        e = torch.stack([m(x) for m in self.experts], 1)
        out = {}
        for task in ("click", "buy"):
            g = (self.gates[task](x) / self.temperature).softmax(-1)
            if task == "buy":
                g = g * F.one_hot(g.argmax(-1), 3)
            out[task] = self.towers[task](torch.einsum("be,bed->bd", g, e)).squeeze(-1)
        return tuple(out.values())


class Orthogonal(nn.Module):
    """Parametrized weights: symmetric, skew through a matrix exponential of a series, lower triangular, positive, tied and transposed."""

    def __init__(self):
        super().__init__()
        self.skew, self.sym, self.low, self.pos = (nn.Parameter(torch.randn(5, 5) * 0.3) for _ in range(4))
        self.a, self.b = nn.Linear(4, 5), nn.Linear(5, 4, bias=False)

    def forward(self, x):
        k = self.skew.tril(-1) - self.skew.tril(-1).T
        i = torch.eye(5)
        q = i + k + k @ k / 2 + k @ k @ k / 6
        s = (self.sym + self.sym.mT) / 2
        l = torch.tril(self.low, -1) + torch.diag_embed(F.softplus(torch.diagonal(self.low)))
        h = torch.tanh(self.a(x)) @ q
        h = torch.sin(h @ s) @ l.T
        h = F.linear(h, self.pos.exp() / self.pos.exp().sum(1, keepdim=True))
        return self.b(h) + F.linear(h, self.a.weight.t())


class Deeper(nn.Module):
    """A fixed point of four steps over a running average by an associative scan."""

    def __init__(self):
        super().__init__()
        self.w, self.u, self.decay, self.head = nn.Linear(4, 6), nn.Linear(6, 6), nn.Parameter(torch.randn(6) * 0.3), nn.Linear(6, 3)

    def forward(self, x):
        h = self.w(x)
        g = torch.sigmoid(self.decay).expand_as(h)
        _, a = associative_scan(lambda p, q: (p[0] * q[0], p[1] * q[0] + q[1]), (g, h), dim=1, combine_mode="generic")
        z = torch.zeros_like(a[:, 0])
        for _ in range(4):
            z = torch.tanh(a.mean(1) + 0.5 * self.u(z))
        return self.head(z)


class Branching(nn.Module):
    """torch.cond on a mean of the batch's features, with closures over layers in both branches."""

    def __init__(self):
        super().__init__()
        self.first, self.a, self.b, self.head = nn.Linear(5, 6), nn.Linear(6, 6), nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 6)), nn.Linear(6, 2)

    def forward(self, x):
        h = self.first(x)
        h = torch.cond(x.mean() > 0.0, lambda h: F.silu(self.a(h)), lambda h: self.b(h) + h, (h,))
        return self.head(h)


class Kinds(nn.Module):
    """Types inside: a half-precision island, sums in float64, integer arithmetic on positions, booleans as numbers, masks by bits."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.table, self.head = nn.Linear(6, 8), nn.Linear(8, 8), nn.Embedding(12, 8), nn.Linear(8, 3)

    def forward(self, x, code):
        h = F.relu(self.a(x))
        h = (h.to(torch.float64) - h.to(torch.float64).mean(1, keepdim=True)).float() * 1.5
        index = torch.div(code, 3, rounding_mode="floor") % 4 + 4 * (code & 1) + torch.clamp(code >> 3, 0, 4)
        h = h + self.table(index) * ((code % 2) == 0).unsqueeze(-1)
        h = torch.where((code.unsqueeze(-1) > 10) | (h < -1), torch.sign(h) * torch.sqrt(h.abs() + 1e-3), h)
        return self.head(self.b(h).clamp(min=torch.tensor(-0.8), max=h.detach().abs().mean() + 1))


class Averages(nn.Module):
    """A buffer that holds an average of the features."""

    def __init__(self):
        super().__init__()
        self.net, self.head = nn.Linear(5, 6), nn.Linear(6, 3)
        self.register_buffer("seen", torch.rand(6) * 0.1)

    def forward(self, x):
        h = torch.tanh(self.net(x))
        return self.head(h - self.seen)


class Ranker(nn.Module):
    """ListNet and pairwise losses with a validity mask, ranks by argsort, discounts, top-k selection."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 1))

    def forward(self, items, relevance, valid):
        s = self.net(items).squeeze(-1)
        m = s.masked_fill(~valid, torch.finfo(s.dtype).min)
        top, place = m.topk(3, dim=-1, sorted=True)
        rank = m.argsort(-1, descending=True).argsort(-1)
        gain = (2.0**relevance - 1) / torch.log2(rank.float() + 2)
        pair = (relevance.unsqueeze(2) > relevance.unsqueeze(1)) & valid.unsqueeze(2) & valid.unsqueeze(1)
        d = F.softplus(-(s.unsqueeze(2) - s.unsqueeze(1)))
        loss = (d * pair * gain.unsqueeze(2).abs()).sum() / pair.sum().clamp(min=1)
        return m.log_softmax(-1).masked_fill(~valid, 0.0), loss + 0.1 * (top * relevance.gather(1, place)).mean()


class Bundle(nn.Module):
    """Called with a dictionary, a list and a named argument, another is absent; gives a dictionary with a nested tuple."""

    def __init__(self):
        super().__init__()
        self.text, self.image, self.extra, self.head, self.aux = nn.Embedding(9, 5), nn.Conv2d(2, 5, 3), nn.Linear(3, 5), nn.Linear(5, 3), nn.Linear(5, 2)

    def forward(self, batch, views=None, *, scale=None, absent=None):
        h = self.text(batch["ids"]).mean(1)
        for v in views:
            h = h + F.relu(self.image(v)).amax((2, 3))
        h = h + self.extra(batch["numbers"]) * scale
        if absent is not None:
            h = h * absent
        return {"logits": self.head(h), "more": (self.aux(h), [h.square().mean(1)])}


class Flat(nn.Module):
    """The bundle with a list of tensors as inputs and outputs, as the recording calls it."""

    def __init__(self):
        super().__init__()
        b = Bundle()
        for name, m in b.named_children():
            setattr(self, name, m)
        self.call = Bundle.forward

    def forward(self, ids, numbers, left, right, scale):
        d = self.call(self, {"ids": ids, "numbers": numbers}, [left, right], scale=scale)
        return d["logits"], d["more"][0], d["more"][1][0]


def bundled(module, batch, path):
    """Exports the bundle as its users call it: a dictionary, a list, a named argument; every first axis is a batch."""
    net = Bundle()
    net.load_state_dict(module.state_dict())
    dim = torch.export.Dim("batch", min=1, max=512)
    torch.onnx.export(net, ({"ids": batch["ids"], "numbers": batch["numbers"]}, [batch["left"], batch["right"]]), path, kwargs={"scale": batch["scale"]}, dynamo=True, optimize=True, verbose=False, opset_version=18, external_data=False,
                      input_names=["ids", "numbers", "left", "right", "scale"], output_names=["out", "aux", "size"],
                      dynamic_shapes={"batch": {"ids": {0: dim}, "numbers": {0: dim}}, "views": [{0: dim}, {0: dim}], "scale": {0: dim}})


def dynamic(module, batch, path):
    """By Dim.DYNAMIC for every axis, through a program of torch.export that is decomposed and saved by the ONNXProgram."""
    program = torch.export.export(module, tuple(v for k, v in batch.items() if not k.startswith("y")), dynamic_shapes=tuple({i: torch.export.Dim.AUTO if i else torch.export.Dim.DYNAMIC for i in range(v.dim())} for k, v in batch.items() if not k.startswith("y")))
    made = torch.onnx.export(program.run_decompositions(), dynamo=True, verbose=False, opset_version=20, input_names=[k for k in batch if not k.startswith("y")], output_names=["out"])
    made.optimize()
    made.save(path)


def kept(module, batch, path):
    """With initializers that are inputs as well, in files beside the model."""
    names = [k for k in batch if not k.startswith("y")]
    torch.onnx.export(module, tuple(batch[k] for k in names), path, dynamo=True, verbose=False, opset_version=18, input_names=names, output_names=["out"], keep_initializers_as_inputs=True, external_data=True,
                      dynamic_shapes=tuple({0: "N"} for _ in names))


def table(b):
    n = 3 * pixels(b, 3)
    return {"numbers": torch.where(torch.rand(b, 3) < 0.2, torch.tensor(float("nan")), n), "kinds": torch.stack([classes(7, b), classes(11, b), classes(50, b)], 1).int(), "words": classes(9, b, 3), "y": (torch.rand(b) < 0.3).float()}


def listed(b):
    n = torch.randint(3, 7, (b, 1))
    return {"items": pixels(b, 6, 5), "relevance": classes(3, b, 6).float(), "valid": torch.arange(6)[None] < n, "y": torch.randn(b, 6).softmax(-1)}


vector = lambda b: {"x": pixels(b, 6), "y": classes(3, b)}
bundle = lambda b: {"ids": classes(9, b, 4), "numbers": pixels(b, 3), "left": pixels(b, 2, 5, 4), "right": pixels(b, 2, 4, 6), "scale": torch.rand(b, 1) + 0.5, "y": classes(3, b), "z": pixels(b, 2)}
mlp = lambda: nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))


def cases():
    yield from exported("click", Click, table, [term("bce_with_logits", pos_weight=[3.0])], optimizer("adagrad", weight_decay=1e-3), inputs="numbers kinds words")
    yield from exported("tabular", TabularTransformer, lambda b: {"x": pixels(b, 4), "y": pixels(b, 1)}, [MSE], optimizer("adamw", groups="no_decay_1d"))
    yield from exported("messages", Messages, lambda b: {"x": pixels(b, 5, 4), "source": classes(5, b, 8), "goal": classes(5, b, 8), "kind": classes(3, b, 8), "y": classes(3, b)}, [CE], optimizer("adam", weight_decay=0.01), inputs="x source goal kind", clip_grad_norm=0.5)
    yield from exported("policy", Policy, lambda b: {"state": pixels(b, 5), "action": pixels(b, 2), "old": -2 - torch.rand(b), "advantage": pixels(b), "y": pixels(b)}, [term("output", "loss", None), term("huber", "value", "y", weight=0.5)], optimizer("adam", eps=1e-5), inputs="state action old advantage", outputs="loss value", clip_grad_norm=0.5)
    yield from exported("survival", Survival, lambda b: {"x": pixels(b, 6), "time": 0.2 + 2 * torch.rand(b), "event": (torch.rand(b) < 0.6).float(), "value": pixels(b)}, [term("output", "out", None), term("output", "gauss", None, weight=0.5)], optimizer("rmsprop"), inputs="x time event value", targets="", outputs="out gauss")
    yield from exported("contrast", Contrast, lambda b: {"x": pixels(b, 6), "positive": pixels(b, 6), "negative": pixels(b, 6), "label": classes(4, b), "sign": torch.where(torch.rand(b) < 0.5, -1.0, 1.0), "count": classes(5, b).float(), "y": classes(4, b)},
                        [term("output", "loss", None), term("cross_entropy", "logits", weight=0.2)], optimizer("nesterov", lr=0.02), inputs="x positive negative label sign count", outputs="loss logits")
    yield from exported("experts", Experts, lambda b: {"x": pixels(b, 6), "y": (torch.rand(b) < 0.5).float(), "z": (torch.rand(b) < 0.2).float()}, [term("bce_with_logits", "click"), term("bce_with_logits", "buy", "z", pos_weight=[4.0], weight=2.0)], optimizer("lamb", weight_decay=0.1), targets="y z", outputs="click buy")
    yield from exported("orthogonal", Orthogonal, lambda b: {"x": pixels(b, 4), "y": pixels(b, 4)}, [term("l1")], optimizer("adamax"))
    yield from exported("deeper", Deeper, lambda b: {"x": pixels(b, 5, 4), "y": classes(3, b)}, [CE], optimizer("adam"))
    yield from exported("branching", Branching, lambda b: {"x": pixels(b, 5), "y": pixels(b, 2)}, [MSE], optimizer("momentum", weight_decay=0.01))
    yield from exported("kinds", Kinds, lambda b: {"x": pixels(b, 6), "code": classes(23, b), "y": classes(3, b)}, [CE], optimizer("adadelta", lr=0.7, weight_decay=0.01), inputs="x code", again=3)
    yield from exported("averages", Averages, lambda b: {"x": pixels(b, 5), "y": classes(3, b)}, [CE], optimizer("sgd"))
    yield from exported("ranker", Ranker, listed, [term("kl_div"), term("output", "pairs", None)], optimizer("adam"), inputs="items relevance valid", outputs="out pairs")
    flat = Case("default_bundle", Flat, bundle, [CE, term("mse", "aux", "z", weight=0.5), term("output", "size", None, weight=0.1)], optimizer("adamw"), inputs=("ids", "numbers", "left", "right", "scale"), targets=("y", "z"), outputs=("out", "aux", "size"), dynamic_batch=True, optimize=True, batch_size=4, batch_sizes=[4, 3, 5, 4, 2, 4], write=bundled)
    yield flat
    yield Case("default_dynamic_axes", mlp, vector, [term("cross_entropy", label_smoothing=0.2)], optimizer("adamw"), dynamic_batch=True, batch_size=4, batch_sizes=[4, 3, 5, 4, 2, 4], write=dynamic)
    yield Case("default_kept_inputs", mlp, vector, [CE], optimizer("momentum"), dynamic_batch=True, external_data=True, batch_size=4, batch_sizes=[4, 3, 5, 4, 2, 4], write=kept)
