"""Small networks around the corners of a training run: outputs that no term reads, inputs that pass through or that all samples share,
parameters with gradients of zero or with none under weight decay, several terms on one output, weights below zero, sums of batches of
several sizes. Each in files for one batch size and for any, of both exporters."""
import torch
import torch.nn as nn
import torch.nn.functional as F

from case import Case, classes, pixels, term
from optimizers import optimizer
from sets.families import Net, weight
from sets.further import L, conv, lin, mlp

CE = term("cross_entropy")
# exporter, opset, optimize, mode, any batch size, batch size of the file, batches of the training
STYLES = {
    "legacy_any": ("legacy", 17, False, True, 5, [5, 7, 1, 3, 5, 2]),
    "legacy_fixed": ("legacy", 14, False, False, 4, [4, 4, 3, 4, 7, 1]),
    "legacy_one": ("legacy", 18, False, False, 1, [1, 3, 7, 2, 5, 1]),
    "dynamo_any": ("dynamo", 20, False, True, 5, [5, 7, 2, 3, 5, 2]),
    "dynamo_fixed": ("dynamo", 23, False, False, 3, [3, 3, 7, 3, 1, 2]),
}


def with_places(s, x):
    """The classes and places that were found are outputs as well, as integers and booleans."""
    h = s.net(x)
    return h, h.argmax(1), h > 0.5


def passed_through(s, x, mask):
    """An input is an output, one output is given twice, and a part of the network reaches none that the loss reads."""
    h = s.body(x) * mask
    y = s.head(h)
    return y, mask, y, s.other(h.detach())


def shared_inputs(s, x, table, temperature):
    """All samples share a table and a number."""
    return (s.body(x) @ s.keys(table).t()) / temperature + s.bias


def other_types(s, image, kinds, keep, when):
    """Pixels as bytes, categories as int32, a boolean mask, and a float64 number."""
    h = F.relu(s.first((image.to(s.missing.dtype) / 255 - 0.5) / 0.25)).mean((2, 3))
    e = torch.where(keep.unsqueeze(-1), s.table(kinds), s.missing).sum(1)
    return s.head(torch.cat([h, e, torch.log1p(when).to(s.missing.dtype).unsqueeze(1)], 1))


def zero_gradients(s, x):
    """Rounded, signed and masked parameters have gradients of zero, so they decay; those that are compared have none and stay."""
    h = s.net(x)
    return h * (1 + 0.1 * torch.round(s.rounded)) + s.masked * torch.tensor([0.0, 1.0, 1.0]) + 0.1 * torch.sign(s.signed) + (x[:, :3] > s.compared).float()


def second_rests(s, x):
    h = s.body(x)
    return s.head(h), s.rest(h)


def dictionary(s, ids, image):
    """Two inputs of different ranks and three outputs, one a number for the whole batch."""
    t, i = s.text(ids).mean(1), s.image(image).flatten(1)
    return s.head(torch.cat([t, i], 1)), (t * i[:, :4]).sum(1), (t.square().mean() + i.abs().mean())


def attended_pairs(s, x):
    h = s.table(x)
    return torch.einsum("bid,bjd->bij", s.q(h), s.k(h)).log_softmax(-1), s.head(h)


def grid(s, x):
    return s.net(x).permute(0, 2, 3, 1)


stacked = lambda b: {"x": pixels(b, 6), "others": pixels(3 * b, 6), "y": torch.zeros(b, dtype=torch.int64)}
vector = lambda b: {"x": pixels(b, 6), "y": classes(3, b)}
ADAMW = optimizer("adamw", weight_decay=0.1)


def soft(b, *shape):
    return (2 * torch.randn(b, *shape)).softmax(-1)


def ignoring(b, n, *shape):
    y = classes(n, b, *shape)
    y = torch.where(torch.rand(b, *shape) < 0.5, torch.full_like(y, 255), y)
    y.view(b, -1)[0, 0] = 1
    return y


def negatives(s, x, others):
    """Three negatives for each sample, stacked along the first axis of their own input."""
    a, n = F.normalize(s.net(x), dim=1), F.normalize(s.net(others), dim=1).view(x.shape[0], 3, -1)
    return torch.cat([(a * s.like).sum(1, keepdim=True), (n @ a.unsqueeze(2)).squeeze(2)], 1) * 4


def steps_first(s, x, n):
    """Time first, with lengths; one output per step and one per sample."""
    h, _ = s.rnn(x)
    keep = (torch.arange(x.shape[0])[:, None] < n[None]).to(h.dtype).unsqueeze(2)
    return s.each(h), s.whole((h * keep).sum(0) / keep.sum(0))


def nodes_of_graph(s, x, edges):
    """The nodes of one graph, with its edges as an input that has no samples (torch-geometric without batches)."""
    for layer, own in zip(s.layers, s.own):
        m = torch.zeros_like(x).scatter_add(0, edges[1][:, None].expand(-1, x.shape[1]), x[edges[0]])
        count = torch.zeros_like(x[:, 0]).scatter_add(0, edges[1], torch.ones_like(edges[1], dtype=x.dtype))
        x = F.elu(layer(m / count.clamp(min=1)[:, None]) + own(x))
    return s.head(x)


def nodes_of_graphs(s, x, edges, owner):
    """The nodes of several graphs, with the graph of each; one output per graph."""
    for layer, own in zip(s.layers, s.own):
        m = torch.zeros_like(x).scatter_add(0, edges[1][:, None].expand(-1, x.shape[1]), x[edges[0]])
        x = F.elu(layer(m) + own(x))
    return s.head(torch.zeros(s.graphs.shape[0], x.shape[1]).to(x.dtype).scatter_add(0, owner[:, None].expand(-1, x.shape[1]), x))


def others_first(s, others, x):
    return s.inner(x, others)


def one_step_more(s, x, ahead):
    """A text, and the same one step longer, as teacher forcing has it."""
    h = torch.cat([s.a(x), s.b(ahead[:, 1:])], 2)
    return s.head(F.silu(h) + h.mean(1, keepdim=True))


def chained(b, n):
    """Edges within each of b graphs of n nodes."""
    return torch.cat([torch.stack([classes(n, 2 * n), classes(n, 2 * n)]) + k * n for k in range(b)], 1)


# module, batch, inputs, targets, outputs, losses, further options
RECIPES = {
    "with_places": (lambda: Net(with_places, net=mlp(6, 8, 3)), vector, "x", "y", "out place sure", [CE], dict(optimizer=optimizer("nesterov", weight_decay=0.02))),
    "passed_through": (lambda: Net(passed_through, body=mlp(6, 8, 5), head=lin(5, 3), other=lin(5, 2)), lambda b: vector(b) | {"mask": (pixels(b, 5) > -0.5).float()}, "x mask", "y", "out kept again rest", [term("cross_entropy", weight=0.5), term("cross_entropy", "again", weight=0.7, label_smoothing=0.2)],
                       dict(optimizer=ADAMW, frozen=("other",))),
    "shared_inputs": (lambda: Net(shared_inputs, body=mlp(6, 8, 5), keys=lin(4, 5), bias=weight(7)), lambda b: {"x": pixels(b, 6), "table": pixels(7, 4), "temperature": 0.5 + torch.rand(()), "y": classes(7, b)}, "x table temperature", "y", "out", [CE], dict(optimizer=optimizer("rmsprop", centered=True))),
    "other_types": (lambda: Net(other_types, first=conv(2, 4), table=nn.Embedding(5, 4), missing=weight(4), head=lin(9, 3)), lambda b: {"image": classes(256, b, 2, 5, 7).to(torch.uint8), "kinds": classes(5, b, 3).int(), "keep": pixels(b, 3) > 0, "when": 9 * torch.rand(b, dtype=torch.float64), "y": classes(3, b)},
                    "image kinds keep when", "y", "out", [CE], dict(optimizer=optimizer("adagrad", lr_decay=0.3, initial_accumulator_value=0.1), clip_grad_norm=0.2)),
    "zero_gradients": (lambda: Net(zero_gradients, net=mlp(6, 8, 3), rounded=weight(3, scale=2.0), masked=weight(3), signed=weight(3), compared=weight(3)), vector, "x", "y", "out", [CE], dict(optimizer=optimizer("sgd", weight_decay=0.1), frozen=("compared",))),
    "zero_gradients_adam": (lambda: Net(zero_gradients, net=mlp(6, 8, 3), rounded=weight(3, scale=2.0), masked=weight(3), signed=weight(3), compared=weight(3)), vector, "x", "y", "out", [CE], dict(optimizer=optimizer("adam", weight_decay=0.1, amsgrad=True), frozen=("compared",))),
    "second_rests": (lambda: Net(second_rests, body=mlp(6, 8, 5), head=lin(5, 3), rest=lin(5, 2)), vector, "x", "y", "out rest", [CE], dict(optimizer=ADAMW, frozen=("rest",), clip_grad_norm=0.5)),
    "mixed_up": (lambda: mlp(6, 8, 3), lambda b: vector(b) | {"z": classes(3, b)}, "x", "y z", "out", [term("cross_entropy", weight=0.7, label_smoothing=0.1), term("cross_entropy", target="z", weight=0.3)], dict(optimizer=optimizer("lamb"), lr_schedule=[0.0, 0.5, 1.0, 1.0, 0.3, 0.0])),
    "confused": (lambda: Net(second_rests, body=mlp(6, 8, 5), head=lin(5, 3), rest=lin(5, 2)), lambda b: vector(b) | {"z": classes(2, b)}, "x", "y z", "out rest", [CE, term("cross_entropy", "rest", "z", weight=-0.3), term("output", "rest", None, weight=0.0)], dict(optimizer=optimizer("adamax", weight_decay=0.05), grad_accumulation=2)),
    "dictionary": (lambda: Net(dictionary, text=nn.Embedding(9, 4), image=nn.Sequential(conv(1, 2, stride=2), nn.ReLU()), head=lin(22, 2)), lambda b: {"ids": classes(9, b, 4), "image": pixels(b, 1, 5, 6), "y": pixels(b, 2), "z": pixels(b), "w": torch.rand(b)}, "ids image", "y z w", "out match size",
                   [term("huber", delta=0.4), term("bce_with_logits", "match", "w", weight=0.5), term("output", "size", None, weight=0.05), term("smooth_l1", "match", "z", beta=0.1, weight=0.2)], dict(optimizer=optimizer("momentum", dampening=0.3, weight_decay=0.01), grad_accumulation=3)),
    "attended_pairs": (lambda: Net(attended_pairs, table=nn.Embedding(9, 5), q=lin(5, 4), k=lin(5, 4), head=lin(5, 4)), lambda b: {"x": classes(9, b, 6), "y": soft(b, 6, 6), "z": ignoring(b, 4, 6)}, "x", "y z", "out tags", [term("kl_div", weight=0.2), term("cross_entropy", "tags", "z", class_axis=-1, ignore_index=255, class_weight=[1.0, 3.0, 0.2, 1.0], label_smoothing=0.05)],
                       dict(optimizer=optimizer("adadelta", weight_decay=0.01), clip_grad_norm=1.0, grad_accumulation=2)),
    "grid": (lambda: Net(grid, net=nn.Sequential(conv(2, 4), nn.Hardswish(), nn.Conv2d(4, 3, 1))), lambda b: {"x": pixels(b, 2, 4, 5), "y": ignoring(b, 3, 4, 5)}, "x", "y", "out", [term("cross_entropy", class_axis=-1, ignore_index=255, reduction="sum", weight=0.02)], dict(optimizer=optimizer("adam", betas=[0.0, 0.9], eps=1e-3), clip_grad_norm=0.01, grad_accumulation=2)),
    "rare_classes": (lambda: nn.Sequential(conv(2, 4), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 5, 1)), lambda b: {"x": pixels(b, 2, 4, 5), "y": (torch.rand(b, 5, 4, 5) < 0.1).float()}, "x", "y", "out", [term("bce_with_logits", pos_weight=[8.0])], dict(optimizer=optimizer("adamw", groups="no_decay_1d", weight_decay=0.3), semantics="train", mode="eval")),
    "one_number": (lambda: nn.Sequential(lin(6, 8), nn.BatchNorm1d(8), nn.Softplus(), lin(8, 1), nn.Flatten(0)), lambda b: {"x": pixels(b, 6), "y": 3 * pixels(b)}, "x", "y", "out", [term("smooth_l1", beta=0.5), term("l1", weight=0.1)], dict(optimizer=optimizer("momentum", momentum=0.99, lr=0.01), semantics="train", mode="eval")),
}
# The same for files whose samples do not lie along the first axis of each input: for one batch size only.
ARRANGED = {
    "steps_first": (lambda: Net(steps_first, rnn=nn.GRU(4, 5), each=lin(5, 3), whole=lin(5, 2)), lambda b: {"x": pixels(6, b, 4), "n": 1 + classes(6, b), "y": pixels(6, b, 3), "z": classes(2, b)}, "x n", "y z", "out all", [term("mse"), term("cross_entropy", "all", "z")], dict(optimizer=ADAMW)),
    "negatives": (lambda: Net(negatives, net=mlp(6, 8, 5), like=weight(5)), stacked, "x others", "y", "out", [CE], dict(optimizer=optimizer("momentum"))),
    "nodes_of_graph": (lambda: Net(nodes_of_graph, layers=L(lin(4, 4) for _ in range(2)), own=L(lin(4, 4, bias=False) for _ in range(2)), head=lin(4, 3)), lambda b: {"x": pixels(b, 4), "edges": torch.stack([classes(b, 2 * b), classes(b, 2 * b)]), "y": ignoring(b, 3)}, "x edges", "y", "out", [term("cross_entropy", ignore_index=255)], dict(optimizer=ADAMW)),
    "nodes_of_graphs": (lambda: Net(nodes_of_graphs, layers=L(lin(4, 4) for _ in range(2)), own=L(lin(4, 4, bias=False) for _ in range(2)), head=lin(4, 3), graphs=torch.zeros(6)), lambda b: {"x": pixels(5 * b, 4), "edges": chained(b, 5), "owner": torch.arange(b).repeat_interleave(5), "y": classes(3, b)}, "x edges owner", "y", "out", [CE], dict(optimizer=ADAMW)),
}


# Extents that the exporter computes from others, and names by the expression: 3*batch, t + 1.
BATCH, LENGTH = torch.export.Dim("batch"), torch.export.Dim("t", min=2)
DERIVED = {
    "rows_of_samples": (lambda: Net(negatives, net=mlp(6, 8, 5), like=weight(5)), stacked, CE, {"x": {0: BATCH}, "others": {0: 3 * BATCH}}),
    "others_first": (lambda: Net(others_first, inner=Net(negatives, net=mlp(6, 8, 5), like=weight(5))), stacked, CE, {"others": {0: 3 * BATCH}, "x": {0: BATCH}}),
    "one_step_more": (lambda: Net(one_step_more, a=lin(4, 4), b=lin(4, 4), head=lin(8, 3)), lambda b: {"x": pixels(b, 5, 4), "ahead": pixels(b, 6, 4), "y": classes(3, b, 5)}, term("cross_entropy", class_axis=-1),
                      {"x": {0: BATCH, 1: LENGTH}, "ahead": {0: BATCH, 1: LENGTH + 1}}),
}


def derived():
    for name, (module, batch, loss, axes) in DERIVED.items():
        yield Case(f"recipe_{name}_derived", module, batch, [loss], optimizer("momentum"), inputs=tuple(axes), opset=20, dynamic_batch=True, dynamic_axes=axes, batch_size=5, batch_sizes=[5, 7, 2, 4], steps=4)


def arranged():
    for name, (module, batch, inputs, targets, outputs, losses, options) in ARRANGED.items():
        for style in ("legacy_fixed", "dynamo_fixed"):
            exporter, opset, optimize = STYLES[style][:3]
            yield Case(f"recipe_{name}_{style}", module, batch, losses, inputs=tuple(inputs.split()), targets=tuple(targets.split()), outputs=tuple(outputs.split()), exporter=exporter, opset=max(opset, 16), optimize=optimize,
                       batch_size=6, steps=4, may_rest=True, **options)


def cases():
    yield from arranged()
    yield from derived()
    for name, (module, batch, inputs, targets, outputs, losses, options) in RECIPES.items():
        for style, (exporter, opset, optimize, dynamic, size, sizes) in STYLES.items():
            if "semantics" in options:  # there are no statistics of one sample
                size, sizes = max(2, size), [max(2, n) for n in sizes]
            yield Case(f"recipe_{name}_{style}", module, batch, losses, inputs=tuple(inputs.split()), targets=tuple(targets.split()), outputs=tuple(outputs.split()), exporter=exporter, opset=opset, optimize=optimize,
                       dynamic_batch=dynamic, batch_size=size, batch_sizes=sizes, steps=6, may_rest=True, **options)
