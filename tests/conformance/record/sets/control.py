"""Graphs with control flow: loops and branches that an exporter kept."""
import torch
import torch.nn as nn

from case import CE, Case, sequence_classes, vector_classes
from optimizers import optimizer


class Scripted(nn.Module):
    """A loop over time with a fixed number of steps."""

    def __init__(self):
        super().__init__()
        self.w, self.u, self.out = nn.Linear(5, 6), nn.Linear(6, 6), nn.Linear(6, 4)

    def forward(self, x):
        h = torch.zeros(x.size(0), 6, dtype=x.dtype)
        for t in range(x.size(1)):
            h = torch.tanh(self.w(x[:, t]) + self.u(h))
        return self.out(h)


class Repeated(nn.Module):
    """The same layer three times, as a loop that carries one value."""

    def __init__(self):
        super().__init__()
        self.f, self.out = nn.Linear(6, 6), nn.Linear(6, 4)

    def forward(self, x):
        for _ in range(3):
            x = x + torch.tanh(self.f(x))
        return self.out(x)


class Branch(nn.Module):
    """One of two layers, selected by the data."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.out = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 4)

    def forward(self, x):
        h = torch.cond(x.sum() > 0, lambda x: torch.tanh(self.a(x)), lambda x: torch.sigmoid(self.b(x)), (x,))
        return self.out(h)


class Scanned(nn.Module):
    def __init__(self):
        super().__init__()
        self.w, self.u, self.out = nn.Linear(5, 6), nn.Parameter(0.4 * torch.randn(6, 6)), nn.Linear(6, 4)

    def forward(self, x):
        from torch._higher_order_ops.scan import scan

        step = lambda h, z: ((n := torch.tanh(z + h @ self.u)), n.clone())
        h, _ = scan(step, torch.zeros(x.shape[0], 6, dtype=x.dtype), self.w(x).transpose(0, 1).contiguous())
        return self.out(h)


class Gated(nn.Module):
    """Two consecutive branches, the second on the result of the first. One weight is used in all of them."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.out = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 4)

    def forward(self, x):
        h = torch.cond(x.mean() > 0, lambda x: torch.tanh(self.a(x)), lambda x: self.a(x) * x, (x,))
        h = torch.cond(h.sum() > 0.5, lambda h: self.b(torch.sin(h)), lambda h: self.a(self.b(h)).clone(), (h,))
        return self.out(h)


class Until(nn.Module):
    """A layer repeated until its result is large enough."""

    def __init__(self):
        super().__init__()
        self.f, self.out = nn.Linear(6, 6), nn.Linear(6, 4)

    def forward(self, x):
        from torch._higher_order_ops.while_loop import while_loop

        go_on = lambda i, h: (h.abs().sum() < 30) & (i < 12)
        i, h = while_loop(go_on, lambda i, h: (i + 1, h + torch.tanh(self.f(h)) * 0.5), (torch.tensor(0), x))
        return self.out(h)


class PlainUntil(Until):
    """The same as a Python loop: the gradients of torch 2.15's while_loop differ from those of the unrolled iterations."""

    def __init__(self, exported):
        super().__init__()
        self.load_state_dict(exported.state_dict())

    def forward(self, x):
        i, h = 0, x
        while h.abs().sum() < 30 and i < 12:
            i, h = i + 1, h + torch.tanh(self.f(h)) * 0.5
        return self.out(h)


def cases():
    def control(name, module, batch, **o):
        return Case(f"control_{name}", module, batch, CE, optimizer("momentum"), **{"batch_size": 4, "steps": 4, **o})

    yield control("loop_repeated", Repeated, vector_classes(6, 4), exporter="legacy", opset=17, script=True)
    yield control("loop_over_time", Scripted, sequence_classes(4, 5, 4), exporter="legacy", opset=17, script=True)
    yield control("branch", Branch, vector_classes(6, 4), opset=18)
    yield control("scan", Scanned, sequence_classes(4, 5, 4), opset=18)
    yield control("branches", Gated, vector_classes(6, 4), opset=18)
    yield control("until", Until, vector_classes(6, 4), opset=18, as_file=PlainUntil)
