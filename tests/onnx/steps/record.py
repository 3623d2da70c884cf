#!/usr/bin/env python3
"""Exports modules whose autograd functions have a backward() of their own, and trains the modules.

record.py [NAME ...] writes NAME_FORM.onnx and NAME.npz beside itself: arrays for the input x and the target y, the mean loss of each epoch,
and the parameters after the last one (after/PARAMETER). Form "default" is that of torch.onnx.export's defaults, "plain" that of
optimize=False.
Needs torch and onnxscript; the files were made with torch 2.15."""
import math
import pathlib
import sys

import numpy as np
import onnx
import torch
from torch import nn

HERE = pathlib.Path(__file__).resolve().parent
ROWS, BATCH, EPOCHS, RATE = 24, 8, 4, 0.2


class Atan(torch.autograd.Function):
    """A step with the surrogate gradient of spiking networks."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return (x > 0).float()

    @staticmethod
    def backward(ctx, gradient):
        return gradient / (1 + (math.pi * ctx.saved_tensors[0]).square())


class Neuron(nn.Module):
    """Leaky integrate-and-fire, whose reset is detached."""

    def __init__(self, threshold):
        super().__init__()
        self.register_buffer("threshold", torch.tensor(threshold))

    def forward(self, x, membrane):
        reset = Atan.apply(membrane - self.threshold).clone().detach()
        membrane = 0.9 * membrane + x - reset * self.threshold
        return Atan.apply(membrane - self.threshold), membrane


class Spikes(nn.Module):
    """A spiking network over [batch, time, features]. The exporter removes products with a threshold of 1."""

    def __init__(self, threshold=0.75):
        super().__init__()
        self.fc1, self.fc2, self.lif1, self.lif2 = nn.Linear(6, 8), nn.Linear(8, 3), Neuron(threshold), Neuron(threshold)

    def forward(self, x):
        m1, m2, outs = torch.zeros(len(x), 8), torch.zeros(len(x), 3), []
        for t in range(x.shape[1]):
            spikes, m1 = self.lif1(self.fc1(x[:, t]), m1)
            _, m2 = self.lif2(self.fc2(spikes), m2)
            outs.append(m2)
        return torch.stack(outs, 1).mean(1)

    shape = (3, 6)


class Units(Spikes):
    def __init__(self):
        super().__init__(1.0)


def without_places(path):
    """Shortens stack traces to the names of their files, since folders are those of the machine."""
    model = onnx.load(path)
    for node in model.graph.node:
        for note in node.metadata_props:
            if note.key == "pkg.torch.onnx.stack_trace":
                note.value = "\n".join(line.replace(str(HERE) + "/", "") for line in note.value.splitlines() if "/torch/" not in line)
    onnx.save(model, path)


def record(name, module):
    torch.manual_seed(0)
    model = module()
    x, y = 2 * torch.randn(ROWS, *module.shape), torch.randint(0, 3, (ROWS,))
    model.eval()
    for form in module.forms:
        path = str(HERE / f"{name}_{form}.onnx")
        torch.onnx.export(model, (x[:BATCH],), path, input_names=["x"], output_names=["out"], optimize=form == "default",
                          external_data=False, verbose=False)
        without_places(path)
    optimizer, losses = torch.optim.SGD(model.parameters(), RATE, momentum=0.9), []
    for _ in range(EPOCHS):
        sums = 0.0
        for i in range(0, ROWS, BATCH):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x[i:i + BATCH]), y[i:i + BATCH])
            loss.backward()
            optimizer.step()
            sums += loss.item() * BATCH / ROWS
        losses.append(sums)
    np.savez(HERE / f"{name}.npz", x=x.numpy(), y=y.numpy(), losses=losses,
             **{f"after/{parameter}": value.detach().numpy() for parameter, value in model.named_parameters()})
    print(name, losses)


Spikes.forms = ("default",)
Units.forms = ("default", "plain")

if __name__ == "__main__":
    modules = {"spikes": Spikes, "units": Units}
    for name in sys.argv[1:] or modules:
        record(name, modules[name])
