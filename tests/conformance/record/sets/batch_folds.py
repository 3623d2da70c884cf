"""Networks that fold other axes into the batch axis (copies of each sample, windows, views, beams) or compute numbers of the whole batch
(norms of features, class weights, whitening, cluster means), in files for four samples, for one and for any number. Nothing is kept."""
import inspect

import torch
import torch.nn as nn
import torch.nn.functional as F

from case import Case, classes, pixels, term
from optimizers import optimizer
from sets.families import Net, lin


# Folds


def beams(s, x):
    """Three copies of each sample, one after the other, each with its own embedding."""
    b = x.size(0)
    h = x.repeat_interleave(3, dim=0) + s.code.repeat(b, 1)
    return s.head(torch.tanh(s.net(h)).view(b, 3, -1).amax(1))


def tiled(s, x):
    """Three whole batches one after the other."""
    b = x.size(0)
    h = torch.tanh(s.net(x.repeat(3, 1))).view(3, b, -1)
    return s.head((h * s.code[:, None, :5]).sum(0))


def augmented(s, x):
    both = torch.cat([x, x.flip(-1), -x], 0)
    a, b, c = torch.tanh(s.net(both)).chunk(3)
    return s.head((a + b) / 2 - c)


def drawn(s, x, noise):
    """Several draws of each sample through one decoder, and their mean."""
    m, v = s.net(x).unsqueeze(1), s.other(x).unsqueeze(1)
    z = m + noise * torch.exp(0.5 * v)
    return s.head(torch.relu(z.flatten(0, 1))).unflatten(0, (-1, noise.size(1))).mean(1)


def windows(s, x):
    w = x.unfold(1, 3, 1)
    b, n, k = w.shape
    h = torch.tanh(s.window(w.reshape(b * n, k))).view(b, n, -1)
    return s.head(h.max(dim=1)[0])


def window_filters(s, x):
    """Convolutions over windows in the batch axis."""
    w = x.unfold(-1, 4, 2).permute(0, 1, 2)
    b, n, k = w.shape
    h = F.relu(s.filter(w.reshape(-1, 1, k)))
    return s.head(h.reshape(b, n, -1).mean(1))


def all_pairs(s, x):
    h = s.net(x).unflatten(-1, (5, 1))
    b, n, c = h.shape
    p = torch.cat([h.unsqueeze(2).expand(b, n, n, c), h.unsqueeze(1).expand(b, n, n, c)], -1).reshape(b * n * n, 2 * c)
    return s.head(torch.tanh(s.pair(p)).view(b, n * n, -1).sum(1))


def views(s, x):
    """Contrast within a sample: the first of three views is the query, the label is always the first key."""
    b = x.size(0)
    h = F.normalize(s.net(torch.stack([x, x * 0.5, -x], 1).view(b * 3, -1)), dim=1).view(b, 3, -1)
    return F.cross_entropy(torch.bmm(h[:, 1:], h[:, :1].transpose(1, 2)).squeeze(2) * 3, torch.zeros(b, dtype=torch.long))


def steps_in_batch(s, x):
    """Time-distributed layers, then a recurrence over time first."""
    t = x.unflatten(1, (3, 2)).transpose(0, 1)
    n, b, _ = t.shape
    h = torch.relu(s.step(t.reshape(n * b, 2))).view(n, b, -1)
    return s.head(s.rnn(h)[0][-1])


def sorted_by_length(s, x, n):
    """Samples are sorted by length and put back, as for packed sequences."""
    order = torch.argsort(n, descending=True)
    h = s.net(x[order]) * n[order].unsqueeze(1).to(x.dtype)
    return s.head(torch.tanh(h)[torch.argsort(order)])


def neighbours(s, x):
    """Each sample is compared with the one before it."""
    h = s.net(x)
    return s.head(h), F.relu(1 - (h - h.roll(1, 0)).pow(2).sum(1)).mean().view(1)


def couples(s, x):
    """Two neighbouring samples form a pair."""
    h = s.net(x).view(-1, 2, 5)
    return (h[:, 0] - h[:, 1]).pow(2).sum(1).mean()


# Numbers of the whole batch


def normalised_features(s, x):
    return s.head(F.normalize(s.net(x), dim=0))


def balanced(s, x, label):
    """Class weights from the labels of the batch."""
    count = F.one_hot(label, 3).to(x.dtype).sum(0)
    w = 1 / (count + 1)
    loss = F.cross_entropy(s.wide(x), label, reduction="none") * w[label]
    return loss.sum() / w[label].sum()


def whitened(s, x):
    h = s.net(x)
    h = h - h.mean(0, keepdim=True)
    c = h.t() @ h / (x.size(0) - 1 + 1e-3)
    return s.head(h), ((c - torch.eye(5)) ** 2).sum().view(1)


def clusters(s, x):
    a = torch.softmax(s.wide(x), 1)
    h = s.net(x)
    means = (a.t() @ h) / (a.sum(0).unsqueeze(1) + 1e-3)
    return ((h - a @ means) ** 2).sum(1).mean() - 0.1 * (a.mean(0) * (a.mean(0) + 1e-6).log()).sum()


def weighted_mean(s, x, share):
    e = (s.head(s.net(x)).squeeze(1) - share) ** 2
    w = share.abs()
    return (w * e).sum() / w.sum() + (w * e).max() * 0.1


def scaled_by_batch(s, x):
    h = s.net(x)
    return s.head(h / (h.std() + 0.1) + h.max(0, keepdim=True)[0] * 0.1)


FORMS = [beams, tiled, augmented, drawn, windows, window_filters, all_pairs, views, steps_in_batch, sorted_by_length, neighbours, couples, normalised_features,
         balanced, whitened, clusters, weighted_mean, scaled_by_batch]
NUMBERS = {"noise": lambda b: pixels(b, 4, 5), "n": lambda b: classes(6, b) + 1, "label": lambda b: classes(3, b), "share": lambda b: pixels(b)}
# exporter, opset, optimize / do_constant_folding, samples in the file (0: any)
STYLES = [("legacy", 17, True, 0), ("legacy", 15, True, 4), ("legacy", 20, True, 1), ("dynamo", 18, False, 0), ("dynamo", 20, True, 0), ("dynamo", 21, False, 4), ("dynamo", 23, True, 4),
          ("dynamo", 18, True, 1)]


def cases():
    members = {"net": lambda: nn.Sequential(lin(6, 8), nn.Tanh(), lin(8, 5)), "other": lambda: lin(6, 5), "head": lambda: lin(5, 1), "wide": lambda: lin(6, 3), "code": lambda: nn.Parameter(torch.randn(3, 6) * 0.3),
               "window": lambda: lin(3, 5), "filter": lambda: nn.Conv1d(1, 5, 4), "pair": lambda: lin(2, 5), "step": lambda: lin(2, 5), "rnn": lambda: nn.GRU(5, 5)}
    for form in FORMS:
        source, inputs = inspect.getsource(form), list(inspect.signature(form).parameters)[1:]
        used = [m for m in members if f"s.{m}(" in source or f"s.{m}." in source or f"s.{m}[" in source]
        returns = source.rstrip().splitlines()[-1].strip()
        alone = "s.head(" not in returns
        two = returns.endswith(".view(1)")
        losses = [term("output", target=None)] if alone else [term("mse")] + ([term("output", output="out1", target=None, weight=0.3)] if two else [])
        for exporter, opset, optimize, samples in STYLES:
            if samples == 1 and (alone or two or form in (sorted_by_length, normalised_features, scaled_by_batch)):
                continue  # the file of one sample shows nothing of the others
            sizes = {0: [6, 4, 6, 2, 8], 1: [1, 4, 6, 2], 4: [4, 4, 4]}[samples]
            if form not in (couples, neighbours, whitened, clusters, normalised_features) and samples == 4 and not alone:
                sizes = [4, 6, 2, 4]
            name = f"folded_{form.__name__}_{ {0: 'any', 1: 'one', 4: 'four'}[samples]}_{exporter}{'' if optimize else '_plain'}"
            yield Case(name, lambda form=form, used=used: Net(form, **{m: members[m]() for m in used}),
                       lambda b, inputs=inputs, alone=alone: {"x": pixels(b, 6)} | {i: NUMBERS[i](b) for i in inputs[1:]} | ({} if alone else {"y": pixels(b, 1)}), losses,
                       optimizer("adam"), inputs=tuple(inputs), targets=() if alone else ("y",), outputs=("out", "out1") if two else ("out",), exporter=exporter, opset=opset, optimize=optimize,
                       dynamic_batch=not samples, batch_size=samples or 6, batch_sizes=sizes)
