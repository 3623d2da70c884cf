"""Graphs in which the data says how many elements there are: masks as indices, and experts that see some of the samples."""
import torch
import torch.nn as nn

from case import CE, Case, classes, token_classes, vector_classes
from optimizers import optimizer


class MaskedMean(nn.Module):
    """Adds the mean of the samples whose first number is above zero."""

    def __init__(self):
        super().__init__()
        self.a, self.out = nn.Linear(6, 6), nn.Linear(6, 4)

    def forward(self, x):
        h = torch.tanh(self.a(x))
        return self.out(h + h[x[:, 0] > 0].mean(0))


class Assigned(nn.Module):
    """Another function for the elements above a half, put in their places."""

    def __init__(self):
        super().__init__()
        self.a, self.scale, self.out = nn.Linear(6, 6), nn.Parameter(torch.tensor([1.5])), nn.Linear(6, 4)

    def forward(self, x):
        h = self.a(x)
        mask = h > 0.5
        z = h.clone()
        z[mask] = torch.sin(h[mask]) * self.scale
        return self.out(z)


class Experts(nn.Module):
    """Each sample goes to the expert that a router chooses, and comes back times the router's confidence."""

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(6, 3)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 6)) for _ in range(3))
        self.out = nn.Linear(6, 4)

    def forward(self, x):
        weight, chosen = torch.softmax(self.router(x), -1).max(-1)
        z = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            index = torch.where(chosen == i)[0]
            z = z.index_add(0, index, expert(x[index]) * weight[index].unsqueeze(-1))
        return self.out(x + z)


class Packed(nn.Module):
    """A network over the tokens that are no padding, packed together; its results go back to their places."""

    def __init__(self):
        super().__init__()
        self.table, self.f, self.norm, self.out = nn.Embedding(12, 6), nn.Linear(6, 6), nn.LayerNorm(6), nn.Linear(6, 4)

    def forward(self, x):
        mask = x > 2
        h = self.table(x)
        packed = self.norm(torch.relu(self.f(h[mask])))
        z = torch.zeros_like(h)
        z[mask] = packed
        return self.out(z.sum(1) + packed.mean(0))


class Among(nn.Module):
    """Each sample looks at those whose first number is above zero."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.out = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 4)

    def forward(self, x):
        seen = x[torch.nonzero(x[:, 0] > 0).squeeze(1)]
        p = torch.softmax(self.q(x) @ self.k(seen).transpose(0, 1), -1)
        return self.out(x + p @ self.v(seen))


class SelectedLoss(nn.Module):
    """Gives its own loss, of the samples whose first number is above zero."""

    def __init__(self):
        super().__init__()
        self.a, self.out = nn.Linear(6, 6), nn.Linear(6, 4)

    def forward(self, x, y):
        mask = x[:, 0] > 0
        h = self.out(torch.tanh(self.a(x)))
        return nn.functional.cross_entropy(h[mask], y[mask])


def cases():
    def extent(name, module, batch, **o):
        o = {"losses": CE, "opset": 18, "batch_size": 8, "steps": 4, **o}
        return Case(f"extent_{name}", module, batch, optimizer=optimizer("momentum"), **o)

    legacy = {"exporter": "legacy", "opset": 17}
    yield extent("masked_mean", MaskedMean, vector_classes(6, 4), **legacy)
    yield extent("assigned", Assigned, vector_classes(6, 4), **legacy)
    yield extent("experts", Experts, vector_classes(6, 4), **legacy)
    yield extent("experts_dynamo", Experts, vector_classes(6, 4))
    yield extent("packed", Packed, token_classes(12, 5, 4), **legacy)
    yield extent("among", Among, vector_classes(6, 4), **legacy)
    yield extent("among_dynamo", Among, vector_classes(6, 4))
    yield extent("own_loss", SelectedLoss, lambda b: {**vector_classes(6, 4)(b)}, losses=[{"type": "output", "output": "out"}],
                 inputs=("x", "y"), targets=(), **legacy)
