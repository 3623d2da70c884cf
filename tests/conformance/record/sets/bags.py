"""`nn.EmbeddingBag` in all its forms. Exporters write its loop over the bags out: files for one sample, for two and for any number, as in
`batches`. Bags of any length, whose beginnings are data, are exported for the file's batch size, and for any number of bags and words."""
import torch
import torch.nn as nn
import torch.nn.functional as F

from case import CE, MSE, Case, classes, pixels
from sets.batches import STYLES
from sets.families import Net, weight
from sets.further import L, lin, mlp

words = lambda b: {"x": classes(11, b, 5)}
weighted = lambda b: words(b) | {"w": torch.rand(b, 5) + 0.1}
some = lambda b: {"x": torch.where(torch.rand(b, 5) < 0.4, 0, classes(11, b, 5))}  # 0 is padding; a bag may consist of padding only
fields = lambda b: {"x": classes(11, b, 3, 4), "dense": pixels(b, 3)}


def plain(s, x):
    return s.head(s.bag(x))


def with_weights(s, x, w):
    return s.head(s.bag(x, per_sample_weights=w))


def trained_weights(s, x):
    """Weights that are computed from the words themselves."""
    return s.head(s.bag(x, per_sample_weights=torch.softmax(s.score(x).squeeze(-1), 1)))


def by_function(s, x):
    table = torch.tanh(s.table) * s.scale
    return s.head(F.embedding_bag(x, table, mode="mean") + F.embedding_bag(x, s.table, mode="max"))


def own_offsets(s, x):
    b, n = x.shape
    return s.head(s.bag(x.reshape(-1), torch.arange(0, b * n, n)))


def last_offset(s, x):
    b, n = x.shape
    return s.head(s.bag(x.reshape(-1), torch.arange(0, b * n + 1, n)))


def several_tables(s, x, dense):
    """DLRM: a bag per field, and their pairwise products."""
    e = torch.stack([s.bottom(dense), *(bag(x[:, k]) for k, bag in enumerate(s.bags))], 1)
    i, j = torch.tril_indices(4, 4, -1)
    z = torch.bmm(e, e.transpose(1, 2))[:, i, j]
    return s.top(torch.cat([e[:, 0], z], 1))


def fields_as_bags(s, x, dense):
    e = s.bag(x.view(-1, x.shape[-1])).view(x.shape[0], -1)
    return s.head(torch.cat([e, dense], 1))


def two_towers(s, x, y_in):
    u, v = F.normalize(s.user(s.bag(x)), dim=-1), F.normalize(s.items(s.bag(y_in)), dim=-1)
    return (u * v).sum(-1, keepdim=True) * s.scale.exp()


def residual(s, x):
    e = s.table(x)
    return s.head(e * s.bag(x).unsqueeze(1)).mean(1)


bag = lambda mode="mean", **options: nn.EmbeddingBag(11, 4, mode=mode, **options)
BAGS = {
    "summed": (lambda: Net(plain, bag=bag("sum"), head=lin(4, 3)), words),
    "averaged": (lambda: Net(plain, bag=bag(), head=lin(4, 3)), words),
    "greatest": (lambda: Net(plain, bag=bag("max"), head=lin(4, 3)), words),
    "single": (lambda: Net(plain, bag=bag(), head=lin(4, 3)), lambda b: {"x": classes(11, b, 1)}),
    "weighted": (lambda: Net(with_weights, bag=bag("sum"), head=lin(4, 3)), weighted),
    "trained_weights": (lambda: Net(trained_weights, bag=bag("sum"), score=nn.Embedding(11, 1), head=lin(4, 3)), words),
    "by_function": (lambda: Net(by_function, table=weight(11, 4), scale=weight(4), head=lin(4, 3)), words),
    "own_offsets": (lambda: Net(own_offsets, bag=bag(), head=lin(4, 3)), words),
    "last_offset": (lambda: Net(last_offset, bag=bag("sum", include_last_offset=True), head=lin(4, 3)), words),
    "several_tables": (lambda: Net(several_tables, bags=L([bag("sum"), bag("mean"), bag("max")]), bottom=mlp(3, 6, 4), top=mlp(10, 8, 3)), fields),
    "fields_as_bags": (lambda: Net(fields_as_bags, bag=bag("mean"), head=lin(15, 3)), fields),
    "two_towers": (lambda: Net(two_towers, bag=bag("mean"), user=mlp(4, 6, 3), items=lin(4, 3), scale=nn.Parameter(torch.tensor([0.5]))), lambda b: words(b) | {"y_in": classes(11, b, 3)}),
    "residual": (lambda: Net(residual, bag=bag("sum"), table=nn.Embedding(11, 4), head=lin(4, 3)), words),
    "padded_mean": (lambda: Net(plain, bag=bag("mean", padding_idx=0), head=lin(4, 3)), some),
    "padded_sum": (lambda: Net(plain, bag=bag("sum", padding_idx=0), head=lin(4, 3)), some),
    "padded_max": (lambda: Net(plain, bag=bag("max", padding_idx=-11), head=lin(4, 3)), some),
}


def ragged(s, x, starts):
    return s.head(s.bag(x, starts))


def ragged_weights(s, x, starts, w):
    return s.head(s.bag(x, starts, per_sample_weights=w))


def cuts(b, last=False, empty=False):
    """b bags of slightly more than four words on average, none of them empty unless requested."""
    n = 4 * b + b % 2
    at = torch.randperm(n - 1)[: b - 1].sort()[0] + 1
    starts = torch.cat([torch.zeros(1, dtype=torch.long), at, *([torch.tensor([n])] if last else [])])
    if empty and b > 2:
        starts[1] = starts[2]
    return {"x": classes(11, n), "starts": starts}


RAGGED = {
    "summed": (lambda: Net(ragged, bag=bag("sum"), head=lin(4, 3)), cuts),
    "averaged": (lambda: Net(ragged, bag=bag("mean"), head=lin(4, 3)), cuts),
    "greatest": (lambda: Net(ragged, bag=bag("max"), head=lin(4, 3)), cuts),
    "empty": (lambda: Net(ragged, bag=bag("mean"), head=lin(4, 3)), lambda b: cuts(b, empty=True)),
    "last_offset": (lambda: Net(ragged, bag=bag("mean", include_last_offset=True), head=lin(4, 3)), lambda b: cuts(b, last=True)),
    "weighted": (lambda: Net(ragged_weights, bag=bag("sum"), head=lin(4, 3)), lambda b: cuts(b) | {"w": torch.rand(4 * b + b % 2)}),
    "padded": (lambda: Net(ragged, bag=bag("sum", padding_idx=0), head=lin(4, 3)), cuts),
}


def cases():
    for name, (module, inputs) in BAGS.items():
        towers = name == "two_towers"
        target = (lambda b: pixels(b, 1)) if towers else (lambda b: classes(3, b))
        for style, (exporter, opset, optimize, batch, sizes) in STYLES.items():
            if exporter == "legacy" and name.startswith("padded"):  # it does not support these
                continue
            yield Case(f"bags_{name}__{style}", module, lambda b, inputs=inputs, target=target: inputs(b) | {"y": target(b)}, MSE if towers else CE, {"type": "adam", "lr": 0.02}, inputs=tuple(inputs(1)), exporter=exporter, opset=opset,
                       optimize=optimize, dynamic_batch=batch is None, batch_size=batch or sizes[0], batch_sizes=sizes, may_rest=True)
    for name, (module, inputs) in RAGGED.items():
        for style in ("legacy", "dynamo", "plain"):
            yield Case(f"bags_ragged_{name}__{style}", module, lambda b, inputs=inputs: inputs(b) | {"y": classes(3, b)}, CE, {"type": "sgd", "lr": 0.1}, inputs=tuple(inputs(2)), exporter="legacy" if style == "legacy" else "dynamo", opset=18,
                       optimize=style != "plain", batch_size=6, may_rest=True)
        # The number of words differs from the number of bags.
        open_axes = {"x": {0: "words"}} | ({"w": {0: "words"}} if name == "weighted" else {}) | ({"starts": {0: "cuts"}} if name == "last_offset" else {})
        for style in ("legacy", "dynamo", "plain"):
            yield Case(f"bags_ragged_{name}__any_{style}", module, lambda b, inputs=inputs: inputs(b) | {"y": classes(3, b)}, CE, {"type": "adam", "lr": 0.02}, inputs=tuple(inputs(2)), exporter="legacy" if style == "legacy" else "dynamo", opset=18,
                       optimize=style != "plain", dynamic_batch=True, dynamic_axes=open_axes, batch_size=6, batch_sizes=[6, 3, 9, 4, 3, 6], may_rest=True)
