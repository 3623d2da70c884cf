"""Rows that a module writes one after the other into a buffer whose batch is not in front, elements that it writes by a mask, and learned
tensors that are not multiplied by anything: planes that are sampled, inputs of recurrent layers, a memory that is written to."""
import torch
import torch.nn as nn
import torch.nn.functional as F

from case import Case, pixels, term
from optimizers import optimizer

SEQUENCE = lambda b: {"x": pixels(b, 5, 6), "y": pixels(b, 5, 8)}


class TimeFirst(nn.Module):
    """The states of a cell, in a buffer with time in front; with a residual, which broadcasts."""

    def __init__(self, residual):
        super().__init__()
        self.cell = nn.Linear(14, 8)
        self.skip = nn.Linear(6, 8) if residual else None

    def forward(self, x):
        h, kept = torch.zeros(x.shape[0], 8), torch.zeros(x.shape[1], x.shape[0], 8)
        for t in range(x.shape[1]):
            h = torch.tanh(self.cell(torch.cat([x[:, t], h], 1)))
            kept[t] = h
        out = kept.transpose(0, 1)
        return out + self.skip(x) if self.skip else out


class HeadsFirst(nn.Module):
    """Results of several heads, which a mean joins."""

    def __init__(self):
        super().__init__()
        self.heads = nn.ModuleList(nn.Linear(6, 8) for _ in range(3))

    def forward(self, x):
        kept = torch.zeros(3, x.shape[0], x.shape[1], 8)
        for i, head in enumerate(self.heads):
            kept[i] = torch.tanh(head(x))
        return kept.mean(0)


class Masked(nn.Module):
    """A function of the chosen elements alone."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(6, 8), nn.Linear(8, 8)

    def forward(self, x):
        h = self.a(x)
        chosen = h > 0
        out = torch.zeros_like(h)
        out[chosen] = torch.tanh(h[chosen])
        return self.b(out)


class Decoder(nn.Module):
    """A recurrent decoder whose inputs are learned positions."""

    def __init__(self, kind):
        super().__init__()
        self.encoder, self.positions = nn.Linear(6, 8), nn.Parameter(torch.randn(5, 6) * 0.5)
        self.rnn, self.head = getattr(nn, kind)(6, 8, batch_first=True), nn.Linear(8, 8)

    def forward(self, x):
        h = torch.tanh(self.encoder(x.mean(1)))[None]
        asked = self.positions.unsqueeze(0).repeat(x.shape[0], 1, 1)
        state = (h, torch.zeros_like(h)) if isinstance(self.rnn, nn.LSTM) else h
        return self.head(self.rnn(asked, state)[0])


class Planes(nn.Module):
    """Features of points from learned planes (K-planes)."""

    def __init__(self):
        super().__init__()
        self.planes = nn.ParameterList(nn.Parameter(torch.randn(1, 4, 5, 6) * 0.5) for _ in range(3))
        self.head = nn.Linear(4, 8)

    def forward(self, x):
        places, f = torch.tanh(x[..., :3]), 1
        for plane, (i, j) in zip(self.planes, ((0, 1), (0, 2), (1, 2))):
            grid = places[..., [i, j]].reshape(1, 1, -1, 2)
            f = f * F.grid_sample(plane, grid, align_corners=True).reshape(4, -1)
        return self.head(f.t().reshape(x.shape[0], x.shape[1], 4))


class Memory(nn.Module):
    """A learned memory, one slot of which each sample overwrites."""

    def __init__(self):
        super().__init__()
        self.memory, self.write, self.head = nn.Parameter(torch.randn(5, 6) * 0.5), nn.Linear(6, 6), nn.Linear(6, 8)

    def forward(self, x):
        slot = x.sum(2).argmax(1)[:, None, None].expand(-1, 1, 6)
        kept = self.memory.expand(x.shape[0], 5, 6).scatter(1, slot, self.write(x.mean(1))[:, None])
        return self.head(torch.tanh(kept))


def cases():
    def case(name, module, **options):
        options = dict(exporter="legacy", opset=17) | options
        return Case(f"rows_{name}", module, SEQUENCE, [term("mse")], optimizer("momentum"), steps=6, **options)

    one = dict(batch_size=1, batch_sizes=[4, 4, 1, 4, 3, 4])
    yield case("time_first", lambda: TimeFirst(False), **one)
    yield case("time_first_residual", lambda: TimeFirst(True), **one)
    yield case("time_first_of_four", lambda: TimeFirst(True), batch_size=4, batch_sizes=[4, 4, 2, 4, 6, 4])
    yield case("heads_first", HeadsFirst, **one)
    yield case("masked_elements", Masked, exporter="dynamo", opset=18, optimize=True, dynamic_batch=True, batch_size=4)
    for kind in ("GRU", "LSTM", "RNN"):
        yield case(f"learned_inputs_{kind.lower()}", lambda kind=kind: Decoder(kind), dynamic_batch=True, batch_size=4)
    yield case("planes", Planes, batch_size=4)
    yield case("memory", Memory, dynamic_batch=True, batch_size=4)
