#!/usr/bin/env python3
"""Writes the models of baked_batch_test: each network once with a fixed batch and once with a dynamic one.

export.py FOLDER        needs torch, onnx and onnxscript; the files are stored next to this script
"""
import pathlib
import sys

import onnx
import torch
from torch import nn


class Mlp(nn.Module):
    """Views with the batch as a number, with -1 elsewhere, and merged with another axis."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.last = nn.Linear(6, 8), nn.Linear(4, 3), nn.Linear(6, 2)

    def forward(self, x):
        batch = x.shape[0]
        h = torch.relu(self.first(x.reshape(batch, -1)))
        h = torch.tanh(self.second(h.reshape(batch * 2, 4)))
        return self.last(torch.flatten(h.reshape(batch, 2, 3), 1))


class Lstm(nn.Module):
    """Initial states with the size of the batch, one of them trained."""

    def __init__(self):
        super().__init__()
        self.lstm, self.last = nn.LSTM(3, 4, batch_first=True), nn.Linear(4, 2)
        self.start = nn.Parameter(torch.linspace(-0.5, 0.5, 4).reshape(1, 1, 4))

    def forward(self, x):
        state = self.start.expand(1, x.shape[0], 4).contiguous()
        out, _ = self.lstm(x, (state, torch.zeros(1, x.shape[0], 4)))
        return self.last(out[:, -1])


class Gru(nn.Module):
    """Time-major, default initial states."""

    def __init__(self):
        super().__init__()
        self.gru, self.last = nn.GRU(3, 4), nn.Linear(4, 2)

    def forward(self, x):
        out, _ = self.gru(x.transpose(0, 1))
        steps, batch, width = out.shape
        return self.last(out.reshape(steps * batch, width)).reshape(steps, batch, 2).mean(0)


class Transformer(nn.Module):
    """A class token expanded to the batch, learned positions, two heads, masks with the size of the batch."""

    def __init__(self):
        super().__init__()
        self.token, self.places = nn.Parameter(torch.randn(1, 1, 8) * 0.1), nn.Embedding(4, 8)
        self.inputs, self.qkv, self.out, self.last = nn.Linear(5, 8), nn.Linear(8, 24), nn.Linear(8, 8), nn.Linear(8, 2)
        self.norm = nn.LayerNorm(8)

    def forward(self, x):
        batch = x.shape[0]
        places = torch.arange(4).unsqueeze(0).expand(batch, 4)
        h = torch.cat([self.token.expand(batch, 1, 8), self.inputs(x)], 1) + self.places(places)
        q, k, v = self.qkv(self.norm(h)).view(batch, 4, 3, 2, 4).permute(2, 0, 3, 1, 4)
        scores = torch.matmul(q, k.transpose(-1, -2)) / 2 + torch.triu(torch.full((4, 4), -1e4), 1).expand(batch, 1, 4, 4)
        mixed = torch.matmul(scores.softmax(-1), v).transpose(1, 2).reshape(batch, 4, 8)
        return self.last((h + self.out(mixed))[:, -1])


class Attention(nn.Module):
    """torch's own attention merges the batch and the heads."""

    def __init__(self):
        super().__init__()
        self.attention, self.last = nn.MultiheadAttention(8, 2), nn.Linear(8, 2)

    def forward(self, x):
        x = x.transpose(0, 1)
        return self.last(self.attention(x, x, x, need_weights=False)[0].mean(0))


class Upsampler(nn.Module):
    """A resize to a fixed size."""

    def __init__(self):
        super().__init__()
        self.conv, self.last = nn.Conv2d(2, 4, 3, padding=1), nn.Linear(4, 2)

    def forward(self, x):
        h = nn.functional.interpolate(torch.relu(self.conv(x)), size=(6, 6), mode="nearest")
        return self.last(h.view(x.shape[0], 4, 36).mean(2))


def strip(path):
    """Removes what exporters write about themselves and the files they ran in."""
    model = onnx.load(path)
    model.doc_string = ""
    model.ClearField("metadata_props")
    graphs = [model.graph]
    for graph in graphs:
        graph.doc_string = ""
        graph.ClearField("value_info")
        graph.ClearField("metadata_props")
        for item in [*graph.node, *graph.initializer, *graph.input, *graph.output]:
            item.doc_string = ""
            item.ClearField("metadata_props")
    for function in model.functions:
        function.doc_string = ""
        function.ClearField("value_info")
        function.ClearField("metadata_props")
        for node in function.node:
            node.doc_string = ""
            node.ClearField("metadata_props")
    onnx.save(model, path)


NETWORKS = {
    "mlp": (Mlp, (2, 3), 4),
    "mlp_one": (Mlp, (2, 3), 1),
    "lstm": (Lstm, (5, 3), 4),
    "lstm_one": (Lstm, (5, 3), 1),
    "gru": (Gru, (5, 3), 3),
    "transformer": (Transformer, (3, 5), 4),
    "transformer_one": (Transformer, (3, 5), 1),
    "attention": (Attention, (3, 8), 5),
    "upsampler": (Upsampler, (2, 3, 3), 2),
}


def main():
    folder = pathlib.Path(sys.argv[1])
    for name, (network, shape, batch) in NETWORKS.items():
        for dynamo in (False, True):
            torch.manual_seed(1)
            module = network()
            for dynamic in (False, True):
                # The exporter does not make a batch of one symbolic.
                x = torch.randn(max(batch, 2) if dynamic else batch, *shape)
                options = {"input_names": ["x"], "output_names": ["z"], "dynamo": dynamo}
                if dynamic and dynamo:
                    options["dynamic_shapes"] = ({0: torch.export.Dim("batch", min=2, max=4096)},)
                elif dynamic:
                    options["dynamic_axes"] = {"x": {0: "batch"}}
                if not dynamo:
                    options["opset_version"] = 17
                path = folder / f"{name}_{'dynamo' if dynamo else 'script'}_{'dynamic' if dynamic else 'fixed'}.onnx"
                try:
                    torch.onnx.export(module.eval(), (x,), str(path), external_data=False, **options)
                    strip(path)
                except Exception as error:  # One of the two exporters may lack something.
                    path.unlink(missing_ok=True)
                    print(f"{path.name}: {str(error).splitlines()[0]}")


main()
