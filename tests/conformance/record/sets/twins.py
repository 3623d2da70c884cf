"""Several batches of samples joined along the batch axis, passed through one network, and taken apart again, in every way that code does
this: chunks, parts of one or of given sizes, slices, a view, and three batches. In files for one sample, for four and for any number. Three
are kept."""
import itertools

import torch
import torch.nn as nn

from case import MSE, Case, pixels
from optimizers import optimizer
from sets.families import Net, lin


def chunked(s, x, z):
    a, b = s.net(torch.cat([x, z], 0)).chunk(2, 0)
    return s.head(a * b)


def split(s, x, z):
    a, b = s.net(torch.cat([x, z], 0)).split(x.size(0), 0)
    return s.head(a * b)


def sizes(s, x, z):
    a, b = torch.split(s.net(torch.cat([x, z], 0)), [x.size(0), z.size(0)], 0)
    return s.head(a * b)


def sliced(s, x, z):
    h = s.net(torch.cat([x, z], 0))
    return s.head(h[: x.size(0)] * h[x.size(0) :])


def viewed(s, x, z):
    h = s.net(torch.cat([x, z], 0)).view(2, x.size(0), -1)
    return s.head(h[0] * h[1])


def three(s, x, z):
    a, b, c = s.net(torch.cat([x, z, x + z], 0)).chunk(3)
    return s.head(a * b - c)


def halves(s, x, z):
    a, b = torch.tensor_split(s.net(torch.cat([x, z], 0)), 2)
    return s.head(a * b)


def stacked(s, x, z):
    a, b = s.net(torch.stack([x, z], 0).flatten(0, 1)).unflatten(0, (2, -1)).unbind(0)
    return s.head(a * b)


def images(s, x, z):
    a, b = s.net(torch.cat([x.view(-1, 1, 2, 3), z.view(-1, 1, 2, 3)])).chunk(2)
    return s.head((a * b).flatten(1))


FORMS = [chunked, split, sizes, sliced, viewed, three, halves, stacked, images]
# exporter, opset, optimize / do_constant_folding, samples in the file (0: any)
STYLES = [("legacy", 17, True, 0), ("legacy", 17, False, 1), ("legacy", 16, True, 4), ("dynamo", 18, False, 0), ("dynamo", 20, False, 1),
          ("dynamo", 18, False, 4), ("dynamo", 21, True, 0), ("dynamo", 18, True, 1), ("dynamo", 23, True, 4)]


def cases():
    for form, (exporter, opset, optimize, samples) in itertools.product(FORMS, STYLES):
        net = (lambda: nn.Conv2d(1, 3, 3, padding=1)) if form is images else (lambda: nn.Sequential(lin(6, 8), nn.Tanh(), lin(8, 5)))
        name = f"twins_{form.__name__}_{({0: 'any', 1: 'one'}).get(samples, 'four')}_{exporter}{'' if optimize else '_plain'}"
        yield Case(name, lambda form=form, net=net: Net(form, net=net(), head=lin(18 if form is images else 5, 3)),
                   lambda b: {"x": pixels(b, 6), "z": pixels(b, 6), "y": pixels(b, 3)}, MSE, optimizer("adam"), inputs=("x", "z"), exporter=exporter,
                   opset=opset, optimize=optimize, dynamic_batch=not samples, batch_size=samples or 4, batch_sizes=[samples or 4, 4, 3, 5, 2, 4])
