#!/usr/bin/env python3
"""Exports new modules, many of whose tensors are equal, with the defaults of torch's exporters, and trains the modules.

record.py [NAME ...] writes NAME_EXPORTER.onnx and NAME.npz beside itself: arrays for the input x and the target y, the mean loss of each
epoch, and after the last one the parameters (after/PARAMETER) and running means (statistics/BUFFER).
Needs torch and onnxscript; the files were made with torch 2.15."""
import pathlib
import sys

import numpy as np
import onnx
import torch
from torch import nn

HERE = pathlib.Path(__file__).resolve().parent
ROWS, BATCH, EPOCHS, RATE = 24, 8, 4, 0.05


class RootMeanSquare(nn.Module):
    """nn.RMSNorm, which the older exporter cannot export."""

    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(features))

    def forward(self, x):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * self.weight


class Norms(nn.Module):
    """Normalizations and scales that begin as ones and zeros."""

    def __init__(self):
        super().__init__()
        self.fc1, self.fc2, self.fc3 = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 3)
        self.bn1, self.bn2 = nn.BatchNorm1d(8), nn.BatchNorm1d(8)
        self.rms1, self.rms2 = RootMeanSquare(8), RootMeanSquare(8)
        self.ln1, self.ln2 = nn.LayerNorm(8), nn.LayerNorm(8)
        self.scale1, self.scale2 = nn.Parameter(torch.ones(8)), nn.Parameter(torch.ones(8))
        self.shift = nn.Parameter(torch.zeros(8))
        for layer in (self.fc1, self.fc2, self.fc3):
            nn.init.zeros_(layer.bias)

    def forward(self, x):
        x = self.bn1(self.fc1(x).tanh())
        x = x + self.bn2(self.fc2(x).tanh())
        x = self.rms2(self.rms1(x) * self.scale1) * self.scale2 + self.shift
        return self.fc3(self.ln2(self.ln1(x).tanh()).tanh())

    shape = (6,)


class Layers(nn.Module):
    """Layers that begin as copies of each other, on [batch, time, features]."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0), 2)
        self.out = nn.Linear(8, 3)
        nn.init.zeros_(self.out.bias)

    def forward(self, x):
        return self.out(self.encoder(x).mean(1))

    shape = (4, 8)


class Images(nn.Module):
    """Convolutions without a bias that is not zero."""

    def __init__(self):
        super().__init__()
        self.conv1, self.conv2, self.depth = nn.Conv2d(2, 4, 3), nn.Conv2d(4, 4, 1), nn.Conv2d(4, 4, 3, groups=4)
        self.up = nn.ConvTranspose2d(4, 4, 2, groups=2)
        self.gn1, self.gn2 = nn.GroupNorm(2, 4), nn.GroupNorm(2, 4)
        self.in1 = nn.InstanceNorm2d(4, affine=True)
        self.act1, self.act2 = nn.PReLU(4), nn.PReLU(4)
        self.out = nn.Linear(4, 3)
        for layer in (self.conv1, self.conv2, self.depth, self.up, self.out):
            nn.init.zeros_(layer.bias)

    def forward(self, x):
        x = self.act1(self.gn1(self.conv1(x)))
        x = self.act2(self.gn2(self.conv2(x) + x))
        return self.out(self.in1(self.up(self.depth(x))).square().mean((2, 3)))

    shape = (2, 8, 8)


class Blocks(nn.Module):
    """Normalizations that the default exporter folds into the layers before them."""

    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(2, 4, 3, bias=False), nn.Conv2d(4, 4, 3, padding=1, groups=2, bias=False)
        self.up, self.fc = nn.ConvTranspose2d(4, 6, 2, groups=2, bias=False), nn.Linear(6, 5, bias=False)
        self.bn1, self.bn2, self.bn3 = nn.BatchNorm2d(4), nn.BatchNorm2d(4, eps=1e-3), nn.BatchNorm2d(6, momentum=0.2)
        self.bn4, self.out = nn.BatchNorm1d(5), nn.Linear(5, 3)

    def forward(self, x):
        x = self.bn1(self.conv1(x)).relu()
        x = self.bn3(self.up(x + self.bn2(self.conv2(x)))).relu()
        return self.out(self.bn4(self.fc(x.mean((2, 3)))).tanh())

    shape = (2, 8, 8)
    only_default = True


class Words(nn.Module):
    """An embedding whose row 0 has no gradient, which only the default exporter says."""

    def __init__(self):
        super().__init__()
        self.embedding, self.out = nn.Embedding(7, 8, padding_idx=0), nn.Linear(8, 3)

    def forward(self, x):
        return self.out(self.embedding(x).tanh().mean(1))

    shape = (5,)
    words = 7
    only_default = True


class Constants(nn.Module):
    """Numbers in the code that equal parameters, some of which a normalization does not have."""

    def __init__(self):
        super().__init__()
        self.fc1, self.fc2, self.out = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 3)
        self.ln1, self.ln2 = nn.LayerNorm(8), nn.LayerNorm(8, elementwise_affine=False)
        self.bn1, self.bn2 = nn.BatchNorm1d(8), nn.BatchNorm1d(8, affine=False)
        self.gn1, self.in1, self.in2 = nn.GroupNorm(8, 8), nn.InstanceNorm1d(8), nn.InstanceNorm1d(8, affine=True)
        self.scale, self.power = nn.Parameter(torch.tensor(1.)), nn.Parameter(torch.tensor(2.))
        self.weight = nn.Parameter(torch.tensor(0.5))

    def forward(self, x):
        x = self.ln2(self.ln1(self.fc1(x)).tanh())
        x = self.bn2(self.bn1(x.square()).tanh()) + self.scale
        x = (1.0 - self.fc2(x).sigmoid()) * self.weight + x ** 2.0 / (1.0 + x.abs() ** self.power) * 0.5
        x = torch.maximum(x - torch.ones(8), torch.zeros(8)) + x
        x = torch.stack([x, x * x, x.tanh()], 2)
        return self.out(self.in2(self.in1(self.gn1(x).tanh()).exp())[:, :, 0])

    shape = (6,)
    only_default = True


class Block(nn.Module):
    """A residual block with a scale that is read in another shape, and one of zeros in a product."""

    def __init__(self):
        super().__init__()
        self.conv, self.gamma = nn.Conv1d(4, 4, 1), nn.Parameter(torch.full((4,), 0.01))
        self.down, self.up = nn.Parameter(torch.randn(4, 2)), nn.Parameter(torch.zeros(2, 4))

    def forward(self, x):
        x = x + self.conv(x).tanh() * self.gamma.view(1, -1, 1)
        return x + (x.mT @ self.down @ self.up).mT


class Forms(nn.Module):
    """Equal tensors that are operands of other operators than normalizations and layers, or that are read in another form."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(Block(), Block(), Block())
        self.alpha, self.beta = nn.Parameter(torch.ones(4)), nn.Parameter(torch.zeros(4))
        self.low, self.high = nn.Parameter(torch.zeros(4)), nn.Parameter(torch.ones(4))
        self.mix1, self.mix2 = nn.Parameter(torch.zeros(4, 4)), nn.Parameter(torch.zeros(4, 4))
        self.table1, self.table2 = nn.Parameter(torch.zeros(2, 4)), nn.Parameter(torch.zeros(2, 4))
        self.out = nn.Linear(4, 3)

    def forward(self, x):
        x = self.blocks(x).mean(2)
        x = torch.addcmul(self.beta, self.alpha, x)
        x = torch.where(x > 0, x + torch.maximum(x, self.low), torch.minimum(x, self.high) + self.low)
        x = x + torch.einsum("bi,ij->bj", x, self.mix1) + torch.einsum("bi,ij->bj", x.tanh(), self.mix2)
        x = x + self.table1[(x[:, 0] > 0).long()] + self.table2[(x[:, 1] > 0).long()] * x.tanh()
        return self.out(x)

    shape = (4, 5)
    only_default = True


class Branches(nn.Module):
    """Layers in branches, with tensors that equal those of other layers."""

    def __init__(self):
        super().__init__()
        self.fc1, self.fc2, self.out = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 3)
        self.ln1, self.ln2, self.ln3 = nn.LayerNorm(6), nn.LayerNorm(6), nn.LayerNorm(6)
        nn.init.zeros_(self.fc2.bias)

    def forward(self, x):
        x = self.ln1(self.fc1(x))
        x = torch.cond(x[:, 0].sum() > 0, lambda x: self.ln2(self.fc2(x).relu()), lambda x: self.ln3(self.fc2(x).tanh()), (x,))
        return self.out(self.fc2(x.unsqueeze(1)).mean(1))

    shape = (6,)
    only_default = True


class Detached(nn.Module):
    """A layer over sequences, whose transposed weight gets its form back, of a value without a gradient."""

    def __init__(self):
        super().__init__()
        self.fc1, self.fc2, self.fc3, self.out = nn.Linear(8, 6), nn.Linear(6, 5), nn.Linear(6, 5, bias=False), nn.Linear(5, 3)

    def forward(self, x):
        x = self.fc1(x).tanh()
        return self.out((self.fc2(x.detach()).tanh() + self.fc3(x.detach().square()) + x[:, :, :5]).mean(1))

    shape = (4, 8)
    only_default = True


def zero(layer):
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


class ModulatedBlock(nn.Module):
    """A block of a diffusion transformer, whose modulation begins with zeros (adaLN-Zero)."""

    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(6, elementwise_affine=False), nn.LayerNorm(6, elementwise_affine=False)
        self.mix, self.mlp = nn.Linear(6, 6), nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 6))
        self.modulation = nn.Sequential(nn.SiLU(), zero(nn.Linear(6, 36)))

    def forward(self, x, c):
        shift1, scale1, gate1, shift2, scale2, gate2 = self.modulation(c).chunk(6, dim=1)
        x = x + gate1.unsqueeze(1) * self.mix(self.norm1(x) * (1 + scale1.unsqueeze(1)) + shift1.unsqueeze(1))
        return x + gate2.unsqueeze(1) * self.mlp(self.norm2(x) * (1 + scale2.unsqueeze(1)) + shift2.unsqueeze(1))


class Modulated(nn.Module):
    """Layers of several blocks that the default exporter merges to one."""

    def __init__(self):
        super().__init__()
        self.embed, self.condition = nn.Linear(6, 6), nn.Linear(6, 6)
        self.blocks = nn.ModuleList([ModulatedBlock() for _ in range(3)])
        self.final, self.out = zero(nn.Linear(6, 12)), nn.Linear(6, 3)

    def forward(self, x):
        c, x = self.condition(x.mean(1)), self.embed(x)
        for block in self.blocks:
            x = block(x, c)
        shift, scale = self.final(c.tanh()).chunk(2, dim=1)
        return self.out((x * (1 + scale.unsqueeze(1)) + shift.unsqueeze(1)).mean(1))

    shape = (4, 6)
    only_default = True


class ParallelBlock(nn.Module):
    """Branches with normalizations of one value."""

    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(6), nn.LayerNorm(6)
        self.mix, self.mlp = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x):
        return x + self.mix(self.norm1(x)).tanh() + self.mlp(self.norm2(x)).relu()


class Parallel(nn.Module):
    """Layers of branches, gates and heads that the default exporter merges, and one whose weight alone is merged."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(ParallelBlock(), ParallelBlock())
        self.norm_q, self.norm_k = RootMeanSquare(6), RootMeanSquare(6)
        self.fc_q, self.fc_k, self.lift = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(4, 6)
        self.gates = nn.ModuleList([zero(nn.Linear(6, 4)) for _ in range(2)])
        self.scale1, self.scale2 = nn.Parameter(torch.ones(6)), nn.Parameter(torch.ones(6))
        self.heads = nn.ModuleList([zero(nn.Linear(6, 1)) for _ in range(3)])

    def forward(self, x):
        x = self.blocks(x)
        x = (self.fc_q(self.norm_q(x)).tanh() * self.fc_k(self.norm_k(x)) + x).mean(1)
        x = x + self.lift(torch.cat([gate(x).sigmoid().chunk(2, 1)[0] for gate in self.gates], 1))
        x = (x * self.scale1).tanh() + (x * self.scale2).sin()
        heads = [head(x) for head in self.heads]
        return torch.cat(heads, 1), *heads

    shape = (4, 6)
    outputs = ["out", "head0", "head1", "head2"]
    only_default = True


class Attention(nn.Module):
    """Attention whose query, keys and values differ, of which the exporters write parts of in_proj_weight and in_proj_bias."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 6)
        self.mixed, self.cross1, self.cross2 = [nn.MultiheadAttention(6, 2, batch_first=True) for _ in range(3)]
        self.decoder = nn.TransformerDecoderLayer(6, 2, 8, dropout=0, batch_first=True)
        self.out = nn.Linear(6, 3)
        nn.init.zeros_(self.out.bias)

    def forward(self, x):
        y = self.fc(x).tanh()
        x = x + self.mixed(x, y, x * y, need_weights=False)[0]
        x = x + self.cross1(x, y, y, need_weights=False)[0] + self.cross2(y, x, x, need_weights=False)[0]
        # Modules that are called twice.
        x = x + self.cross2(x, y, y, need_weights=False)[0].sin() + self.mixed(y, y * x, x, need_weights=False)[0].tanh()
        return self.out(self.decoder(x, y).mean(1))

    shape = (4, 6)


class Computed(nn.Module):
    """Parameters of which the default exporter computes what the module reads: as in the RMSNorm of Gemma, under a mask, in another form."""

    def __init__(self):
        super().__init__()
        self.scale, self.weight, self.shift = nn.Parameter(torch.randn(6) / 8), nn.Parameter(torch.randn(6, 6)), nn.Parameter(torch.randn(6))
        self.register_buffer("mask", torch.ones(6, 6).tril())
        self.out = nn.Linear(6, 3)

    def forward(self, x):
        x = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * (1.0 + self.scale)
        return self.out((x @ (self.weight * self.mask)).tanh() + self.shift.view(1, 6))

    shape = (6,)
    only_default = True


class SharedBlock(nn.Module):
    """A block with a layer that others have too, and one that it gets the result of."""

    def __init__(self, modulation):
        super().__init__()
        self.modulation, self.fc = modulation, nn.Linear(6, 6)

    def forward(self, x, e, c):
        shift, scale = e.chunk(2, dim=1)
        shift2, scale2 = self.modulation(c).chunk(2, dim=1)
        return x + self.fc(x * (1 + scale) + shift).tanh() * (1 + scale2) + shift2


class Shared(nn.Module):
    """What merged layers look like, but of the module's own: layers of several blocks, beside one of their form that is not used."""

    def __init__(self):
        super().__init__()
        self.embed1, self.embed2 = nn.Linear(6, 12), nn.Linear(6, 12)
        self.pool1, self.pool2 = zero(nn.Linear(6, 12)), zero(nn.Linear(6, 12))
        modulation = zero(nn.Linear(6, 12))
        self.blocks = nn.ModuleList([SharedBlock(modulation) for _ in range(3)])
        self.out = nn.Linear(6, 3)

    def forward(self, x):
        c = x.tanh()
        e = self.embed1(c) + self.pool1(x.sin())
        for block in self.blocks:
            x = block(x, e, c)
        return self.out(x)

    shape = (6,)
    only_default = True


class ClonesBlock(nn.Module):
    """Two normalizations of one value. What the first layer computes is read twice, by way of an operator that the exporter removes."""

    def __init__(self):
        super().__init__()
        self.norm1, self.norm2, self.fc1, self.fc2 = nn.LayerNorm(6), nn.LayerNorm(6), nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x):
        y = self.fc1(self.norm1(x)).clone()
        return x + y.sin() * y.cos() + self.fc2(self.norm2(x)).tanh()


class Clones(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(ClonesBlock(), ClonesBlock())
        self.out = nn.Linear(6, 3)

    def forward(self, x):
        return self.out(self.blocks(x))

    shape = (6,)
    only_default = True


class Twice(nn.Module):
    """A normalization that is called twice, in a file that was exported in training mode."""

    def __init__(self):
        super().__init__()
        self.fc, self.norm, self.out = nn.Linear(6, 8, bias=False), nn.BatchNorm1d(8), nn.Linear(8, 3)

    def forward(self, x):
        return self.out(self.norm(self.fc(x)).tanh() + self.norm(self.fc(x.square())).sin())

    shape = (6,)
    only_default = in_training = True


class Unrecorded(nn.Module):
    """What a file of the default exporter does not do, or with tensors that are computed of parameters or merged with them."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(8, 6, scale_grad_by_freq=True)
        self.alpha = nn.Parameter(torch.tensor(0.5))
        self.places, self.weight = nn.Parameter(torch.randn(3, 6)), nn.Parameter(torch.randn(6, 6))
        self.register_buffer("mask", torch.ones(6, 6).tril())
        self.register_buffer("mean", torch.zeros(6))
        self.out = nn.Linear(6, 3)

    def forward(self, x):
        with torch.no_grad():
            self.mean.mul_(0.9).add_(x.mean((0, 1)), alpha=0.1)
        x = x - self.mean + self.places[torch.tensor([0, 1, 1, 2])]
        x = self.alpha * x.sin() + (1 - self.alpha) * self.words((x > 0).long().sum(-1))
        return self.out(nn.functional.linear(x, self.weight * self.mask).mean(1))

    shape = (4, 6)
    only_default = in_training = True


def without_traces(path):
    """Removes stack traces, which name files of the machine."""

    def strip(graph):
        for node in graph.node:
            notes = [note for note in node.metadata_props if note.key != "pkg.torch.onnx.stack_trace"]
            del node.metadata_props[:]
            node.metadata_props.extend(notes)
            for attribute in node.attribute:
                for nested in [*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs]:
                    strip(nested)

    model = onnx.load(path)
    strip(model.graph)
    onnx.save(model, path)


def scores(model, x):
    out = model(x)
    return out[0] if isinstance(out, tuple) else out


def parameters(model):
    """By the last of its names, as torch.export has it: each parameter that the module uses."""
    names = {parameter: name for name, parameter in model.named_parameters(remove_duplicate=False)}
    return {name: parameter for parameter, name in names.items() if parameter.grad is not None}


def record(name, module):
    torch.manual_seed(0)
    model = module()
    words = getattr(module, "words", 0)
    x = torch.randint(0, words, (ROWS, *module.shape)) if words else torch.randn(ROWS, *module.shape)
    y = torch.randint(0, 3, (ROWS,))
    model.train(getattr(module, "in_training", False))
    torch.onnx.export(model, (x[:2],), str(HERE / f"{name}_default.onnx"), input_names=["x"],
                      output_names=getattr(module, "outputs", ["out"]),
                      dynamic_shapes=({0: torch.export.Dim("N", min=1, max=64)},), external_data=False, verbose=False)
    without_traces(str(HERE / f"{name}_default.onnx"))
    if not getattr(module, "only_default", False):
        torch.onnx.export(model, (x[:2],), str(HERE / f"{name}_older.onnx"), input_names=["x"], output_names=["out"],
                          dynamic_axes={"x": {0: "N"}, "out": {0: "N"}}, dynamo=False, opset_version=17)
    model.train()
    optimizer, losses = torch.optim.SGD(model.parameters(), RATE, momentum=0.9), []
    for _ in range(EPOCHS):
        sums = 0.0
        for i in range(0, ROWS, BATCH):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(scores(model, x[i:i + BATCH]), y[i:i + BATCH])
            loss.backward()
            optimizer.step()
            sums += loss.item() * BATCH / ROWS
        losses.append(sums)
    np.savez(HERE / f"{name}.npz", x=x.numpy(), y=y.numpy(), losses=losses,
             **{f"after/{parameter}": value.detach().numpy() for parameter, value in parameters(model).items()},
             **{f"statistics/{buffer}": value.numpy() for buffer, value in model.named_buffers() if buffer.endswith("running_mean")})
    print(name, losses)


if __name__ == "__main__":
    modules = {
        "norms": Norms, "layers": Layers, "images": Images, "blocks": Blocks, "words": Words, "constants": Constants, "forms": Forms,
        "branches": Branches, "detached": Detached, "modulated": Modulated, "parallel": Parallel, "shared": Shared,
        "attention": Attention, "computed": Computed,
        "clones": Clones, "twice": Twice, "unrecorded": Unrecorded
    }
    for name in sys.argv[1:] or modules:
        record(name, modules[name])
