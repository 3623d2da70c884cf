"""Losses and layers that relate the samples of a batch: contrastive losses over all pairs, sorted batches, kernels between samples, statistics
of the batch. In files for one batch size and for any."""
import inspect

import torch
import torch.nn as nn
import torch.nn.functional as F

from case import Case, pixels, term
from optimizers import optimizer
from sets.families import Net, lin


def unit(x):
    return F.normalize(x, dim=-1)


def clip(s, x, z):
    logits = 3 * unit(s.net(x)) @ unit(s.other(z)).t()
    labels = torch.arange(x.size(0))
    return (F.cross_entropy(logits, labels) + F.cross_entropy(logits.t(), labels)) / 2


def siglip(s, x, z):
    logits = 3 * unit(s.net(x)) @ unit(s.other(z)).t()
    return -F.logsigmoid((2 * torch.eye(x.size(0)) - 1) * logits).sum() / x.size(0)


def nt_xent(s, x, z):
    h = unit(s.net(torch.cat([x, z])))
    n = x.size(0)
    similar = h @ h.t() / 0.5
    similar = similar.masked_fill(torch.eye(2 * n, dtype=torch.bool), -1e9)
    return F.cross_entropy(similar, (torch.arange(2 * n) + n) % (2 * n))


def interleaved(s, x, z):
    h = unit(s.net(torch.stack([x, z], 1).flatten(0, 1)))
    a, b = h[0::2], h[1::2]
    return F.cross_entropy(a @ b.t() * 2, torch.arange(a.size(0)))


def cox(s, x, z):
    risk, time, event = s.head(s.net(x)).squeeze(-1), z[:, 0], (z[:, 1] > -0.5).float()
    order = torch.argsort(time, descending=True)
    r, e = risk[order], event[order]
    return -((r - r.exp().cumsum(0).log()) * e).sum() / (e.sum() + 1)


def batch_hard(s, x, z):
    h, labels = s.net(x), (z[:, 0] > 0).long()
    d = ((h[:, None] - h[None]) ** 2).sum(-1)
    same = labels[:, None] == labels[None]
    near = torch.where(same, d, torch.zeros_like(d)).max(1).values
    far = torch.where(same, torch.full_like(d, 1e3), d).min(1).values
    return F.relu(near - far + 2).mean()


def supervised_contrast(s, x, z):
    h, labels = unit(s.net(x)), (z[:, 0] > 0).long()
    n = x.size(0)
    similar = h @ h.t() / 0.5
    others = 1 - torch.eye(n)
    log_p = similar - (similar.exp() * others).sum(1, keepdim=True).log()
    positive = (labels[:, None] == labels[None]).float() * others
    return -((positive * log_p).sum(1) / (positive.sum(1) + 1)).mean()


def barlow(s, x, z):
    a, b = s.net(x), s.other(z)
    a, b = (a - a.mean(0)) / (a.std(0) + 0.1), (b - b.mean(0)) / (b.std(0) + 0.1)
    c = a.t() @ b / x.size(0)
    return (c.diagonal() - 1).pow(2).sum() + 0.1 * (c - torch.diag(c.diagonal())).pow(2).sum()


def vicreg(s, x, z):
    a, b = s.net(x), s.other(z)
    a0 = a - a.mean(0)
    cov = a0.t() @ a0 / (x.size(0) - 1)
    return F.mse_loss(a, b) + F.relu(1 - (a.var(0) + 0.01).sqrt()).mean() + (cov * (1 - torch.eye(5))).pow(2).sum() / 5


def mmd(s, x, z):
    a, b = s.net(x), s.net(z)

    def kernel(p, q):
        return torch.exp(-torch.cdist(p, q).pow(2) / 2).mean()

    return kernel(a, a) + kernel(b, b) - 2 * kernel(a, b)


def rank_net(s, x, z):
    score, relevance = s.head(s.net(x)).squeeze(-1), z[:, 0]
    difference = score[:, None] - score[None]
    wanted = (relevance[:, None] > relevance[None]).float()
    return (F.softplus(-difference) * wanted).sum() / (wanted.sum() + 1)


def list_net(s, x, z):
    return -(F.softmax(z[:, 0], 0) * F.log_softmax(s.head(s.net(x)).squeeze(-1), 0)).sum()


def prototypes(s, x, z):
    labels = F.one_hot((z[:, 0] > 0).long(), 2).float()
    h = s.net(x)
    means = labels.t() @ h / (labels.sum(0)[:, None] + 1)
    return F.cross_entropy(-torch.cdist(h, means), (z[:, 1] > 0).long())


def sinkhorn(s, x, z):
    cost = torch.cdist(s.net(x), s.other(z))
    k = torch.exp(-cost)
    u = torch.ones(x.size(0))
    for _ in range(3):
        v = 1 / (k.t() @ u)
        u = 1 / (k @ v)
    return (u[:, None] * k * v[None] * cost).sum() / x.size(0)


def set_attention(s, x, z):
    h = s.net(x)
    a = torch.softmax(h @ h.t() / 2, -1) @ h
    return F.mse_loss(s.head(a + h).squeeze(-1), z[:, 0])


def discrimination(s, x, z):
    h = s.net(x)
    near = torch.exp(-(h[:, None] - h[None]).abs().sum(-1)).sum(1, keepdim=True)
    return F.mse_loss(s.joined(torch.cat([h, near], 1)).squeeze(-1), z[:, 0])


def two_losses(s, x, z):
    a, b = s.net(x), s.other(z)
    return F.cross_entropy(unit(a) @ unit(b).t() * 3, torch.arange(x.size(0))) + F.mse_loss(s.head(a).squeeze(-1), z[:, 0])


def hsic(s, x, z):
    a, b = s.net(x), s.other(z)
    n = x.size(0)
    h = torch.eye(n) - 1 / n
    return torch.trace(a @ a.t() @ h @ (b @ b.t()) @ h) / (n - 1) ** 2


FORMS = [clip, siglip, nt_xent, interleaved, cox, batch_hard, supervised_contrast, barlow, vicreg, mmd, rank_net, list_net, prototypes, sinkhorn,
         set_attention, discrimination, two_losses, hsic]
# exporter, opset, optimize / do_constant_folding, samples in the file (0: any)
STYLES = [("legacy", 17, True, 0), ("legacy", 16, True, 6), ("dynamo", 18, False, 0), ("dynamo", 20, True, 0), ("dynamo", 18, False, 6),
          ("dynamo", 21, True, 6)]


def logits(s, x, z):
    return 3 * unit(s.net(x)) @ unit(s.other(z)).t()


def cases():
    def made(form, losses, batch, inputs, targets, suffix=""):
        for exporter, opset, optimize, samples in STYLES:
            name = f"related_{form.__name__}{suffix}_{'six' if samples else 'any'}_{exporter}{'' if optimize else '_plain'}"
            net = lambda: nn.Sequential(lin(6, 8), nn.Tanh(), lin(8, 5))
            members = {"net": net, "other": net, "head": lambda: lin(5, 1), "joined": lambda: lin(6, 1)}
            used = [m for m in members if f"s.{m}(" in inspect.getsource(form)]
            yield Case(name, lambda form=form, used=used, members=members: Net(form, **{m: members[m]() for m in used}), batch, losses,
                       optimizer("adam"), inputs=inputs, targets=targets, exporter=exporter, opset=opset, optimize=optimize,
                       dynamic_batch=not samples, batch_size=6, batch_sizes=[6] * 4 if samples else [6, 7, 6, 4, 3, 8])

    for form in FORMS:
        yield from made(form, [term("output", target=None)], lambda b: {"x": pixels(b, 6), "z": pixels(b, 6)}, ("x", "z"), ())
    yield from made(logits, [term("cross_entropy")], lambda b: {"x": pixels(b, 6), "z": pixels(b, 6), "y": torch.arange(b)}, ("x", "z"), ("y",))
    yield from made(logits, [term("bce_with_logits")], lambda b: {"x": pixels(b, 6), "z": pixels(b, 6), "y": (pixels(b, b) > 0).float()}, ("x", "z"),
                    ("y",), "_table")
