"""Graphs of many shapes: several inputs and outputs, shared weights, indexing, masks, reductions, algebra."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

from case import CE, CE_LAST, MSE, Case, classes, pixels, sequence_classes, term, token_classes, vector_classes, vector_values
from optimizers import optimizer
from sets.activations import Function, perceptron
from styles import styled


def weight(*shape, scale=0.5):
    return nn.Parameter(scale * torch.randn(*shape))


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc, self.dec = nn.Sequential(nn.Linear(8, 5), nn.Tanh(), nn.Linear(5, 2)), nn.Sequential(nn.Linear(2, 5), nn.Tanh(), nn.Linear(5, 8))

    def forward(self, x):
        return self.dec(self.enc(x))


class VAE(nn.Module):
    """A reconstruction from the mean, and the divergence of each sample as a second output."""

    def __init__(self):
        super().__init__()
        self.enc, self.mu, self.logvar, self.dec = nn.Linear(8, 6), nn.Linear(6, 2), nn.Linear(6, 2), nn.Sequential(nn.Linear(2, 6), nn.ReLU(), nn.Linear(6, 8))

    def forward(self, x):
        h = torch.relu(self.enc(x))
        mu, logvar = self.mu(h), self.logvar(h)
        return self.dec(mu), -0.5 * (1 + logvar - mu**2 - logvar.exp()).sum(1)


class NoisyVAE(VAE):
    """The noise is an input."""

    def forward(self, x, noise):
        h = torch.relu(self.enc(x))
        mu, logvar = self.mu(h), self.logvar(h)
        return self.dec(mu + torch.exp(0.5 * logvar) * noise), -0.5 * (1 + logvar - mu**2 - logvar.exp()).sum(1)


class Siamese(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk, self.out = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4)), nn.Linear(4, 1)

    def forward(self, a, b):
        return self.out((torch.tanh(self.trunk(a)) - torch.tanh(self.trunk(b))).abs()).squeeze(1)


class Contrastive(nn.Module):
    """CLIP's logits: cosine similarities of two towers times a learned temperature."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.scale = nn.Linear(6, 4), nn.Linear(5, 4), nn.Parameter(torch.tensor(1.2))

    def forward(self, a, b):
        a, b = F.normalize(self.a(a), dim=1), F.normalize(self.b(b), dim=1)
        return self.scale.exp() * a @ b.t()


class Triplet(nn.Module):
    def __init__(self):
        super().__init__()
        self.f = nn.Linear(6, 4, bias=False)

    def forward(self, a, p, n):
        a, p, n = self.f(a), self.f(p), self.f(n)
        return F.relu(((a - p) ** 2).sum(1) - ((a - n) ** 2).sum(1) + 0.5)


class TwoInputs(nn.Module):
    def __init__(self):
        super().__init__()
        self.num, self.emb, self.out = nn.Linear(5, 6), nn.Embedding(7, 6), nn.Linear(12, 4)

    def forward(self, x, c):
        return self.out(torch.cat([torch.relu(self.num(x)), self.emb(c)], 1))


class Tabular(nn.Module):
    """Several categories in one int64 matrix, plus numbers."""

    def __init__(self):
        super().__init__()
        self.embs, self.norm, self.out = nn.ModuleList(nn.Embedding(n, 3) for n in (5, 4, 6)), nn.LayerNorm(4), nn.Linear(13, 1)

    def forward(self, x, c):
        return self.out(torch.cat([e(c[:, i]) for i, e in enumerate(self.embs)] + [self.norm(x)], 1))


class MultiTask(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk, self.cls, self.reg, self.tags = nn.Linear(6, 8), nn.Linear(8, 3), nn.Linear(8, 1), nn.Linear(8, 5)

    def forward(self, x):
        h = torch.relu(self.trunk(x))
        return self.cls(h), self.reg(h).squeeze(-1), self.tags(h)


class Factorisation(nn.Module):
    def __init__(self):
        super().__init__()
        self.user, self.item, self.ub, self.ib, self.mean = nn.Embedding(9, 4), nn.Embedding(7, 4), nn.Embedding(9, 1), nn.Embedding(7, 1), nn.Parameter(torch.tensor([0.3]))

    def forward(self, u, i):
        return (self.user(u) * self.item(i)).sum(1) + self.ub(u).squeeze(1) + self.ib(i).squeeze(1) + self.mean


class FactorisationMachine(nn.Module):
    """Second-order interactions as half of square of sum minus sum of squares."""

    def __init__(self):
        super().__init__()
        self.w, self.v = nn.Linear(6, 1), weight(6, 3)

    def forward(self, x):
        return self.w(x) + 0.5 * ((x @ self.v) ** 2 - (x**2) @ self.v**2).sum(1, keepdim=True)


class DeepSets(nn.Module):
    def __init__(self):
        super().__init__()
        self.phi, self.rho = nn.Linear(4, 6), nn.Linear(6, 4)

    def forward(self, x, mask):
        return self.rho((torch.relu(self.phi(x)) * mask[:, :, None]).sum(1) / mask.sum(1, keepdim=True).clamp(min=1.0))


class BagOfWords(nn.Module):
    def __init__(self, mode):
        super().__init__()
        self.emb, self.fc, self.mode = nn.Embedding(11, 5), nn.Linear(5, 4), mode

    def forward(self, x):
        e = self.emb(x)
        return self.fc({"mean": e.mean(1), "sum": e.sum(1), "max": e.max(1)[0]}[self.mode])


class Padded(BagOfWords):
    def __init__(self):
        super().__init__("sum")
        self.emb = nn.Embedding(11, 5, padding_idx=0)


class Convolved(nn.Module):
    """A dense graph convolution with the adjacency matrix as an input."""

    def __init__(self):
        super().__init__()
        self.w1, self.w2 = nn.Linear(4, 6), nn.Linear(6, 3)

    def forward(self, x, a):
        a = a + torch.eye(a.shape[-1], dtype=a.dtype)
        d = a.sum(-1).pow(-0.5)
        a = a * d[..., :, None] * d[..., None, :]
        return self.w2(a @ torch.relu(self.w1(a @ x)))


class Messages(nn.Module):
    """Messages along a list of edges, summed at their targets."""

    def __init__(self, how):
        super().__init__()
        self.msg, self.upd, self.how = nn.Linear(8, 6), nn.Linear(10, 3), how

    def forward(self, x, source, sink):
        m = torch.relu(self.msg(torch.cat([x[source], x[sink]], 1)))
        zero = torch.zeros(x.shape[0], 6, dtype=x.dtype)
        if self.how == "index_add":
            total = zero.index_add(0, sink, m)
        elif self.how == "scatter_add":
            total = zero.scatter_add(0, sink[:, None].expand(-1, 6), m)
        else:
            total = F.one_hot(sink, x.shape[0]).to(x.dtype).t() @ m
        return self.upd(torch.cat([x, total], 1))


class WeightNorm(nn.Module):
    """The direction and the length of each row, separately."""

    def __init__(self):
        super().__init__()
        self.v, self.g, self.b, self.out = weight(8, 6), nn.Parameter(torch.rand(8, 1) + 0.5), weight(8), nn.Linear(8, 4)

    def forward(self, x):
        return self.out(torch.tanh(F.linear(x, self.g * self.v / self.v.norm(dim=1, keepdim=True), self.b)))


class WrittenNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.gain, self.shift, self.fc2 = nn.Linear(6, 8), nn.Parameter(torch.rand(8) + 0.5), weight(8), nn.Linear(8, 4)

    def forward(self, x):
        h = self.fc1(x)
        c = h - h.mean(-1, keepdim=True)
        return self.fc2(torch.relu(self.gain * (c / torch.sqrt(c.pow(2).mean(-1, keepdim=True) + 1e-5)) + self.shift))


class Hyper(nn.Module):
    """A network that computes the weights of another, per sample."""

    def __init__(self):
        super().__init__()
        self.make, self.out = nn.Linear(3, 6 * 5), nn.Linear(5, 4)

    def forward(self, x, z):
        return self.out(torch.tanh(torch.bmm(x[:, None, :], self.make(z).view(-1, 6, 5)).squeeze(1)))


class FiLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.mod, self.fc2 = nn.Linear(6, 8), nn.Linear(3, 16), nn.Linear(8, 4)

    def forward(self, x, z):
        gain, shift = self.mod(z).chunk(2, dim=1)
        return self.fc2(torch.relu((1 + gain) * self.fc1(x) + shift))


class Experts(nn.Module):
    """A soft mixture of experts; with k, only the best k count."""

    def __init__(self, k=None):
        super().__init__()
        self.gate, self.w, self.b, self.k = nn.Linear(6, 3), weight(3, 6, 4), weight(3, 4), k

    def forward(self, x):
        g = self.gate(x)
        if self.k:
            best = torch.topk(g, self.k, dim=1).values[:, -1:]
            g = torch.where(g >= best, g, torch.full_like(g, -1e9))
        y = torch.einsum("bi,eio->beo", x, self.w) + self.b
        return (torch.softmax(g, 1)[:, :, None] * y).sum(1)


class Highway(nn.Module):
    def __init__(self):
        super().__init__()
        self.t, self.h, self.out = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 4)

    def forward(self, x):
        t = torch.sigmoid(self.t(x))
        return self.out(t * torch.tanh(self.h(x)) + (1 - t) * x)


class Bilinear(nn.Module):
    def __init__(self):
        super().__init__()
        self.f, self.out = nn.Bilinear(4, 3, 5), nn.Linear(5, 4)

    def forward(self, x, z):
        return self.out(torch.tanh(self.f(x, z)))


class Radial(nn.Module):
    """Radial basis functions around learned centres."""

    def __init__(self):
        super().__init__()
        self.centre, self.width, self.out = weight(7, 6, scale=1.0), nn.Parameter(torch.full((7,), 0.15)), nn.Linear(7, 4)

    def forward(self, x):
        return self.out(torch.exp(-(self.width * ((x[:, None] - self.centre) ** 2).sum(-1))))


class Fourier(nn.Module):
    def __init__(self):
        super().__init__()
        self.freq, self.out = weight(6, 5), nn.Linear(10, 4)

    def forward(self, x):
        p = 2 * math.pi * 0.2 * x @ self.freq
        return self.out(torch.cat([p.sin(), p.cos()], -1))


class Coupling(nn.Module):
    """Two affine couplings of a flow, with the parts of the density as outputs."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 6)), nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 6))

    def forward(self, x):
        u, v = x[:, :3], x[:, 3:]
        s, t = self.a(u).split(3, 1)
        v = v * torch.exp(torch.tanh(s)) + t
        r, q = self.b(v).split([3, 3], 1)
        u = u * torch.exp(torch.tanh(r)) + q
        return 0.5 * (u**2).sum(1) + 0.5 * (v**2).sum(1) - torch.tanh(s).sum(1) - torch.tanh(r).sum(1)


class Euler(nn.Module):
    """A differential equation in four steps, which share the weights."""

    def __init__(self):
        super().__init__()
        self.f, self.out = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 6)), nn.Linear(6, 4)

    def forward(self, x):
        for _ in range(4):
            x = x + 0.25 * self.f(x)
        return self.out(x)


class PointNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.c1, self.c2, self.fc = nn.Conv1d(3, 8, 1), nn.Conv1d(8, 8, 1), nn.Linear(8, 4)

    def forward(self, x):
        return self.fc(torch.relu(self.c2(torch.relu(self.c1(x.transpose(1, 2))))).max(-1)[0])


class Mixture(nn.Module):
    """The negative log-likelihood of a mixture density network, with the target as an input."""

    def __init__(self):
        super().__init__()
        self.fc, self.out = nn.Linear(6, 8), nn.Linear(8, 9)

    def forward(self, x, y):
        pi, mu, s = self.out(torch.tanh(self.fc(x))).chunk(3, 1)
        log = F.log_softmax(pi, 1) - s - 0.5 * ((y - mu) * torch.exp(-s)) ** 2
        return -torch.logsumexp(log, 1)


class FieldCRF(nn.Module):
    """The log partition function of a chain by the forward recursion, minus the score of the given one-hot labels."""

    def __init__(self):
        super().__init__()
        self.emit, self.move = nn.Linear(4, 3), weight(3, 3)

    def forward(self, x, labels):
        e = self.emit(x)
        alpha = e[:, 0]
        for t in range(1, 4):
            alpha = torch.logsumexp(alpha[:, :, None] + self.move, 1) + e[:, t]
        pairs = labels[:, :-1, :, None] * labels[:, 1:, None, :]
        return torch.logsumexp(alpha, 1) - (labels * e).sum((1, 2)) - (pairs * self.move).sum((1, 2, 3))


class Squash(nn.Module):
    """Capsules: one routing iteration."""

    def __init__(self):
        super().__init__()
        self.w, self.fc = weight(3, 4, 6, 5), nn.Linear(20, 4)

    def forward(self, x):
        u = torch.einsum("bi,jkio->bjko", x, self.w)
        s = (torch.softmax((u * u.mean(1, keepdim=True)).sum(-1, keepdim=True), 2) * u).sum(1)
        n = (s * s).sum(-1, keepdim=True)
        return self.fc((n / (1 + n) * s / torch.sqrt(n + 1e-6)).flatten(1))


class Spline(nn.Module):
    """A Kolmogorov-Arnold layer with hat functions."""

    def __init__(self):
        super().__init__()
        self.c, self.out = weight(6, 7, 5), nn.Linear(5, 4)
        self.register_buffer("grid", torch.linspace(-3, 3, 7))

    def forward(self, x):
        return self.out(torch.einsum("big,igo->bo", F.relu(1 - (x[:, :, None] - self.grid).abs()), self.c))


class LowRank(nn.Module):
    """A frozen matrix with a trained low-rank update (LoRA)."""

    def __init__(self):
        super().__init__()
        self.base, self.a, self.b, self.head = nn.Linear(6, 8), weight(2, 6), weight(8, 2), nn.Linear(8, 4)

    def forward(self, x):
        return self.head(torch.relu(self.base(x) + 0.5 * (x @ self.a.t()) @ self.b.t()))


class Scalars(nn.Module):
    """Parameters of rank 0 and of one element."""

    def __init__(self):
        super().__init__()
        self.fc, self.gain, self.shift, self.power = nn.Linear(6, 4), nn.Parameter(torch.tensor(1.3)), nn.Parameter(torch.tensor([0.2])), nn.Parameter(torch.tensor(1.5))

    def forward(self, x):
        return self.gain * self.fc(x) + self.shift * x[:, 1:5] + torch.tanh(x[:, :4]).abs().add(0.1) ** self.power


def between(f, hidden=8, into=None):
    """A function between two linear layers."""
    return perceptron(lambda: Function(f), hidden, into)


def sequence(f, into=5):
    """A function of [batch, 6, 5] after a linear layer, flattened into the next."""
    return lambda: nn.Sequential(nn.Linear(5, 5), Function(f), nn.Flatten(), nn.Linear(into, 4))


SHAPES = {  # on [batch, 8]; the second number is the resulting width
    "slice": (lambda x: x[:, 1:7:2], 3), "slice_negative": (lambda x: x[:, -5:-1], 4), "split": (lambda x: x.split([3, 5], 1)[1], 5),
    "chunk_product": (lambda x: x.chunk(2, 1)[0] * x.chunk(2, 1)[1], 4), "stack": (lambda x: torch.stack([x, x * x], 2).flatten(1), 16),
    "unbind": (lambda x: sum(x.view(-1, 4, 2).unbind(2)), 4), "repeat": (lambda x: x.repeat(1, 2), 16), "tile_view": (lambda x: (x.view(-1, 4, 2).permute(0, 2, 1)).reshape(-1, 8), 8),
    "expand": (lambda x: (x[:, :, None].expand(-1, 8, 3) * x[:, None, :3]).sum(2), 8), "repeat_interleave": (lambda x: x.repeat_interleave(2, 1), 16),
    "index_select": (lambda x: x[:, [0, 3, 3, 7]], 4), "gather": (lambda x: x.gather(1, torch.argsort(x, 1)[:, :3]), 3), "topk": (lambda x: x.topk(3, dim=1)[0], 3),
    "sort": (lambda x: x.sort(dim=1)[0], 8), "flip": (lambda x: x.flip(1), 8), "roll": (lambda x: x.roll(3, 1), 8), "pad": (lambda x: F.pad(x, (1, 2)), 11),
    "cumsum": (lambda x: x.cumsum(1), 8), "cumprod": (lambda x: (1 + 0.1 * x).log().cumsum(1).exp(), 8), "diff": (lambda x: x[:, 1:] - x[:, :-1], 7),
    "where_mask": (lambda x: torch.where(torch.arange(8) % 2 == 0, x, -x), 8), "masked_fill": (lambda x: x.masked_fill(x > 1, 0.5), 8),
    "triu": (lambda x: (x[:, :, None] * x[:, None, :]).triu(1).sum(2), 8), "one_hot": (lambda x: x * F.one_hot(x.argmax(1), 8).to(x.dtype), 8),
    "max_dim": (lambda x: x.view(-1, 2, 4).max(1)[0], 4), "min_dim": (lambda x: x.view(-1, 2, 4).amin(1), 4), "mean_keep": (lambda x: x - x.mean(1, keepdim=True), 8),
    "sum_square": (lambda x: x / (x.pow(2).sum(1, keepdim=True) + 1), 8), "norm_l1": (lambda x: x / (x.abs().sum(1, keepdim=True) + 1), 8),
    "norm_l2": (lambda x: x / (x.norm(dim=1, keepdim=True) + 0.1), 8), "prod": (lambda x: x.view(-1, 4, 2).prod(2), 4), "logsumexp": (lambda x: x.view(-1, 4, 2).logsumexp(2), 4),
    "std": (lambda x: x / x.std(1, keepdim=True), 8), "softmax_temperature": (lambda x: (x / 0.5).softmax(1), 8), "outer": (lambda x: (x[:, :4, None] @ x[:, None, 4:]).flatten(1), 16),
    "einsum_outer": (lambda x: torch.einsum("bi,bj->bij", x[:, :3], x[:, 3:]).flatten(1), 15), "scatter": (lambda x: torch.zeros_like(x).scatter(1, x.argsort(1)[:, :4], x[:, :4]), 8),
    "cosine": (lambda x: F.cosine_similarity(x.view(-1, 4, 2), x.view(-1, 4, 2).roll(1, 1), dim=2), 4), "movedim": (lambda x: x.view(-1, 2, 2, 2).movedim(1, 3).flatten(1), 8),
    "clamp_bounds": (lambda x: x.clamp(-0.5, 0.5) + 0.01 * x, 8), "reduce_none": (lambda x: x + x.mean() * 0.1, 8), "meshed_add": (lambda x: (x.view(-1, 4, 2) + x.view(-1, 4, 2).mean(1, keepdim=True)).flatten(1), 8),
}


def cases():
    def graph(name, module, batch=vector_classes(6, 4), losses=CE, opt="momentum", exporter=None, style=True, **o):
        o = {"batch_size": 5, "steps": 3, **o}
        case = Case(name, module, batch, losses, optimizer(opt), **o)
        return styled(case, exporter=exporter) if style else case

    values = lambda *names: lambda b: {n: pixels(b, w) for n, w in names} | {"y": classes(4, b)}
    binary = lambda b: (torch.rand(b) < 0.5).float()
    BCE = [term("bce_with_logits")]
    reconstruct = lambda b: (lambda x: {"x": x, "y": x})(pixels(b, 8))
    yield graph("autoencoder", Autoencoder, reconstruct, MSE, "adam")
    vae = dict(losses=[term("mse"), term("output", "kl", None, weight=0.1)], opt="adam", outputs=("out", "kl"))
    yield graph("vae", VAE, reconstruct, **vae)
    yield graph("vae_noise_input", NoisyVAE, lambda b: reconstruct(b) | {"noise": pixels(b, 2)}, inputs=("x", "noise"), **vae)
    yield graph("siamese", Siamese, lambda b: {"a": pixels(b, 6), "b": pixels(b, 6), "y": binary(b)}, BCE, inputs=("a", "b"))
    yield graph("contrastive", Contrastive, lambda b: {"a": pixels(b, 6), "b": pixels(b, 5), "y": torch.arange(b)}, inputs=("a", "b"))
    yield graph("triplet", Triplet, lambda b: {k: pixels(b, 6) for k in "apn"}, [term("output", target=None)], inputs=("a", "p", "n"), targets=())
    yield graph("two_inputs", TwoInputs, lambda b: {"x": pixels(b, 5), "c": classes(7, b), "y": classes(4, b)}, inputs=("x", "c"))
    yield graph("tabular", Tabular, lambda b: {"x": pixels(b, 4), "c": classes(4, b, 3), "y": pixels(b, 1)}, [term("huber")], "adam", inputs=("x", "c"))
    tasks = [term("cross_entropy", "cls", "k", label_smoothing=0.1), term("mse", "reg", "r", weight=0.5), term("bce_with_logits", "tags", "t")]
    yield graph("multi_task", MultiTask, lambda b: {"x": pixels(b, 6), "k": classes(3, b), "r": pixels(b), "t": (torch.rand(b, 5) < 0.3).float()}, tasks,
                targets=("k", "r", "t"), outputs=("cls", "reg", "tags"))
    yield graph("matrix_factorisation", Factorisation, lambda b: {"u": classes(9, b), "i": classes(7, b), "y": pixels(b)}, MSE, "adagrad", inputs=("u", "i"))
    yield graph("factorisation_machine", FactorisationMachine, lambda b: {"x": pixels(b, 6), "y": pixels(b, 1)}, MSE, "sgd")
    mask = lambda b: (torch.rand(b, 5) < 0.7).float()
    yield graph("deep_sets_mask", DeepSets, lambda b: {"x": pixels(b, 5, 4), "mask": mask(b), "y": classes(4, b)}, inputs=("x", "mask"))
    for mode in ("mean", "sum", "max"):
        yield graph(f"bag_of_words_{mode}", lambda mode=mode: BagOfWords(mode), token_classes(11, 5, 4))
    yield graph("embedding_padding_idx", Padded, token_classes(11, 5, 4), notes="as the graph is written, the padding row trains too")
    yield graph("embedding_frozen", lambda: BagOfWords("mean"), token_classes(11, 5, 4), frozen=("emb",))
    nodes = lambda b: {"x": pixels(b, 6, 4), "a": (torch.rand(b, 6, 6) < 0.4).float(), "y": classes(3, b, 6)}
    yield graph("graph_convolution", Convolved, nodes, CE_LAST, inputs=("x", "a"))
    edges = lambda b: {"x": pixels(b, 4), "source": classes(b, 9), "sink": classes(b, 9), "y": classes(3, b)}
    for how in ("index_add", "scatter_add", "one_hot"):
        yield graph(f"graph_messages_{how}", lambda how=how: Messages(how), edges, style=False, inputs=("x", "source", "sink"), batch_size=6,
                    notes="the nodes are the batch; as many edges in every batch")
    yield graph("weight_norm", WeightNorm, style=False, opset=18)
    yield graph("weight_norm_legacy", WeightNorm, style=False, exporter="legacy", opset=17)
    yield graph("norm_written", WrittenNorm)
    yield graph("hyper_network", Hyper, values(("x", 6), ("z", 3)), inputs=("x", "z"))
    yield graph("film", FiLM, values(("x", 6), ("z", 3)), inputs=("x", "z"))
    yield graph("experts_soft", Experts)
    yield graph("experts_top_2", lambda: Experts(2))
    yield graph("highway", Highway)
    yield graph("bilinear", Bilinear, values(("x", 4), ("z", 3)), inputs=("x", "z"), exporter="dynamo")
    yield graph("radial", Radial, opt="adam")
    yield graph("fourier_features", Fourier)
    yield graph("flow_coupling", Coupling, lambda b: {"x": pixels(b, 6)}, [term("output", target=None)], "adam", targets=())
    yield graph("euler_steps", Euler)
    yield graph("point_net", PointNet, lambda b: {"x": pixels(b, 7, 3), "y": classes(4, b)})
    yield graph("mixture_density", Mixture, lambda b: {"x": pixels(b, 6), "t": pixels(b, 1)}, [term("output", target=None)], inputs=("x", "t"), targets=())
    yield graph("chain_crf", FieldCRF, lambda b: {"x": pixels(b, 4, 4), "labels": F.one_hot(classes(3, b, 4), 3).float()}, [term("output", target=None)],
                inputs=("x", "labels"), targets=())
    yield graph("capsules", Squash)
    yield graph("kan_splines", Spline)
    yield graph("lora", LowRank, frozen=("base",))
    yield graph("scalar_parameters", Scalars, opt="sgd")
    yield graph("linear_on_3d", lambda: nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 4)), lambda b: {"x": pixels(b, 3, 5), "y": classes(4, b, 3)}, CE_LAST)
    yield graph("linear_no_bias", lambda: nn.Sequential(nn.Linear(6, 5, bias=False), nn.ReLU(), nn.Linear(5, 4, bias=False)))
    yield graph("mlp_deep", lambda: nn.Sequential(*(m for _ in range(6) for m in (nn.Linear(6, 6), nn.LeakyReLU(0.3))), nn.Linear(6, 4)))
    yield graph("mlp_frozen_layer", lambda: nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 5), nn.Tanh(), nn.Linear(5, 4)), frozen=("2.",),
                notes="a frozen layer in the middle: gradients flow through it")
    yield graph("mlp_external_data", lambda: nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 4)), style=False, external_data=True)
    yield graph("mlp_external_data_legacy", lambda: nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 4)), style=False, external_data=True,
                exporter="legacy", opset=17)
    yield graph("mlp_zero_bias_dropped", _zero_biases, style=False, optimize=True, keep_constants=True, as_file=_without_zero_biases,
                notes="two biases of zero: the default export drops them, so there is nothing to train")
    for opset in (9, 12, 16, 19, 24):
        yield graph(f"mlp_opset{opset}", lambda: nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Dropout(0.0), nn.Linear(5, 4)), style=False, opset=opset,
                    exporter="legacy" if opset < 21 else "dynamo")
    for name, (f, width) in SHAPES.items():
        yield graph(f"shape_{name}", between(f, 8, width), exporter="dynamo" if name == "repeat_interleave" else None, opt="sgd")
    yield graph("sequence_shift", sequence(lambda x: torch.cat([x[:, :1] * 0, x[:, :-1]], 1), 30), sequence_classes(6, 5, 4))
    yield graph("sequence_strided", sequence(lambda x: x[:, ::2].mean(1)), sequence_classes(6, 5, 4))
    yield graph("sequence_argmax_pool", sequence(lambda x: x.max(1).values), sequence_classes(6, 5, 4))
    yield graph("sequence_unfold", sequence(lambda x: x.unfold(1, 3, 1).mean(-1), 20), sequence_classes(6, 5, 4), exporter="dynamo")


def _zero_biases():
    m = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 4))
    nn.init.zeros_(m[0].bias), nn.init.zeros_(m[2].bias)
    return m


def _without_zero_biases(module):
    module[0].bias = module[2].bias = None
    return module
