"""Recurrent networks."""
import torch
import torch.nn as nn

from case import CE, CE_LAST, MSE, Case, classes, pixels, sequence_classes, term, token_classes
from optimizers import optimizer
from styles import styled


class Recurrent(nn.Module):
    """A recurrent layer over [batch, time, 5] (or time first); `take` selects the input of the linear layer."""

    def __init__(self, kind, take="last", hidden=6, **options):
        super().__init__()
        self.first = options.get("batch_first", True)
        self.rnn = {"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}[kind](5, hidden, **{"batch_first": True, **options})
        directions = 2 if options.get("bidirectional") else 1
        self.fc, self.take = nn.Linear(hidden * directions, 4), take

    def forward(self, x):
        out, state = self.rnn(x)
        if self.take == "state":
            h = state[0] if isinstance(state, tuple) else state
            return self.fc(torch.cat([h[-2], h[-1]], 1) if self.rnn.bidirectional else h[-1])
        if self.take == "cell":
            return self.fc(state[1][-1])
        if self.take == "last":
            return self.fc(out[:, -1] if self.first else out[-1])
        return self.fc(out.mean(1) if self.take == "mean" else out)


class WithState(nn.Module):
    """Initial states as inputs, final states as outputs."""

    def __init__(self):
        super().__init__()
        self.lstm, self.fc = nn.LSTM(5, 6, batch_first=True), nn.Linear(6, 4)

    def forward(self, x, h, c):
        out, (h, c) = self.lstm(x, (h, c))
        return self.fc(out[:, -1]), h, c


class LearnedStart(nn.Module):
    def __init__(self):
        super().__init__()
        self.start, self.gru, self.fc = nn.Parameter(0.3 * torch.randn(1, 1, 6)), nn.GRU(5, 6, batch_first=True), nn.Linear(6, 4)

    def forward(self, x):
        return self.fc(self.gru(x, self.start.expand(1, x.shape[0], 6).contiguous())[0][:, -1])


class Cells(nn.Module):
    """A cell called at each time step; the exporter unrolls the steps."""

    def __init__(self, kind):
        super().__init__()
        self.cell, self.fc, self.lstm = {"rnn": nn.RNNCell, "gru": nn.GRUCell, "lstm": nn.LSTMCell}[kind](5, 6), nn.Linear(6, 4), kind == "lstm"

    def forward(self, x):
        h = x.new_zeros(x.shape[0], 6)
        state = (h, h) if self.lstm else h
        for t in range(x.shape[1]):
            state = self.cell(x[:, t], state)
        return self.fc(state[0] if self.lstm else state)


class Encoder(nn.Module):
    """Sequence to sequence: one GRU encodes, another decodes from its state with teacher forcing."""

    def __init__(self):
        super().__init__()
        self.emb, self.enc, self.dec, self.out = nn.Embedding(9, 5), nn.GRU(5, 6, batch_first=True), nn.GRU(5, 6, batch_first=True), nn.Linear(6, 9)

    def forward(self, x, previous):
        _, h = self.enc(self.emb(x))
        return self.out(self.dec(self.emb(previous), h)[0])


class Tokens(nn.Module):
    def __init__(self, kind, **options):
        super().__init__()
        self.emb, self.rnn = nn.Embedding(11, 5), Recurrent(kind, **options)

    def forward(self, x):
        return self.rnn(self.emb(x))


class Written(nn.Module):
    """An Elman network written with matrices."""

    def __init__(self):
        super().__init__()
        self.w, self.u, self.b, self.v = (nn.Parameter(0.4 * torch.randn(*s)) for s in ((5, 6), (6, 6), (6,), (6, 4)))

    def forward(self, x):
        h = torch.zeros(x.shape[0], 6, dtype=x.dtype)
        for t in range(4):
            h = torch.tanh(x[:, t] @ self.w + h @ self.u + self.b)
        return h @ self.v


LEGACY = dict(exporter="legacy", opset=17, mode="train")
FOLDED = dict(exporter="legacy", opset=14, mode="eval", optimize=True)
DYNAMO = dict(exporter="dynamo", opset=18)


def cases():
    def rnn(name, module, batch=sequence_classes(4, 5, 4), losses=CE, opt="adam", **o):
        return Case(name, module, batch, losses, optimizer(opt), **{"batch_size": 4, "steps": 3, **o})

    every = lambda b: {"x": pixels(b, 4, 5), "y": classes(4, b, 4)}
    for kind in ("rnn", "gru", "lstm"):
        yield rnn(f"{kind}_legacy", lambda kind=kind: Recurrent(kind), **LEGACY)
        yield rnn(f"{kind}_legacy_folded", lambda kind=kind: Recurrent(kind), **FOLDED, notes="the weights lie in ONNX's layout in the file")
        yield rnn(f"{kind}_dynamo", lambda kind=kind: Recurrent(kind), **DYNAMO)
        if kind != "rnn":  # it is unrolled, and the bias of its first step is folded separately
            yield rnn(f"{kind}_dynamo_optimized", lambda kind=kind: Recurrent(kind), exporter="dynamo", opset=18, optimize=True, mode="eval")
        yield rnn(f"{kind}_bidirectional", lambda kind=kind: Recurrent(kind, bidirectional=True, take="state"), **LEGACY)
        yield rnn(f"{kind}_bidirectional_folded", lambda kind=kind: Recurrent(kind, bidirectional=True, take="mean"), **FOLDED)
        yield rnn(f"{kind}_two_layers", lambda kind=kind: Recurrent(kind, num_layers=2), **LEGACY)
        yield rnn(f"{kind}_two_layers_bidirectional", lambda kind=kind: Recurrent(kind, num_layers=2, bidirectional=True, hidden=4, take="mean"), **LEGACY)
        yield rnn(f"{kind}_time_first", lambda kind=kind: Recurrent(kind, batch_first=False, take="all"),
                  lambda b: {"x": pixels(4, b, 5), "y": classes(4, 4, b)}, CE_LAST, **LEGACY, notes="the batch is the second axis")
        yield rnn(f"{kind}_every_step", lambda kind=kind: Recurrent(kind, take="all"), every, CE_LAST, **LEGACY)
        yield rnn(f"{kind}_cell", lambda kind=kind: Cells(kind), **DYNAMO, opt="momentum")
        yield rnn(f"{kind}_tokens", lambda kind=kind: Tokens(kind, take="state"), token_classes(11, 5, 4), **LEGACY)
    yield rnn("rnn_relu", lambda: Recurrent("rnn", nonlinearity="relu"), **LEGACY)
    yield rnn("rnn_written", Written, **DYNAMO, opt="sgd")
    yield rnn("gru_no_bias", lambda: Recurrent("gru", bias=False), **LEGACY)
    yield rnn("gru_learned_start", LearnedStart, **DYNAMO)
    yield rnn("lstm_cell_state", lambda: Recurrent("lstm", take="cell"), **LEGACY)
    yield rnn("lstm_projection", lambda: Projected(), **DYNAMO)
    yield rnn("lstm_opset20", lambda: Recurrent("lstm"), exporter="legacy", opset=20, mode="train")
    yield rnn("lstm_state_inputs", WithState, lambda b: {"x": pixels(b, 4, 5), "h": pixels(1, b, 6), "c": pixels(1, b, 6), "y": classes(4, b)},
              inputs=("x", "h", "c"), outputs=("out", "h_n", "c_n"), **LEGACY)
    yield rnn("lstm_dynamic_batch", lambda: Recurrent("lstm"), dynamic_batch=True, batch_sizes=[4, 4, 2], **LEGACY)
    yield rnn("gru_seq2seq", Encoder, lambda b: {"x": classes(9, b, 5), "previous": classes(9, b, 4), "y": classes(9, b, 4)}, CE_LAST,
              inputs=("x", "previous"), **LEGACY)


class Projected(nn.Module):
    """A gated unit by hand, with slices of one matrix product."""

    def __init__(self):
        super().__init__()
        self.gates, self.fc = nn.Linear(5 + 6, 18), nn.Linear(6, 4)

    def forward(self, x):
        h = x.new_zeros(x.shape[0], 6)
        for t in range(3):
            r, z, n = self.gates(torch.cat([x[:, t], h], 1)).chunk(3, 1)
            h = torch.sigmoid(z) * h + (1 - torch.sigmoid(z)) * torch.tanh(torch.sigmoid(r) * n)
        return self.fc(h)
