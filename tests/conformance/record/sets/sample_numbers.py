"""Elements that a module gathers, or scatters, by the index of their sample: `h[torch.arange(batch), last]`, and what it becomes if the
batch size is a number in the file. Each by both exporters, for one batch size and for any; the last batch is smaller than the file's own.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torchvision

from case import Case, classes, pixels, term
from sets.families import Net, weight

lin = nn.Linear
BATCH, SIZES = 6, [6, 6, 6, 6, 4]
steps = lambda b: {"x": pixels(b, 8, 5)}
ended = lambda b: {"x": classes(11, b, 7)}
lengths = lambda b: steps(b) | {"n": torch.randint(1, 9, (b,))}
image = lambda b: {"x": pixels(b, 3, 8, 8)}


def own(x):
    return torch.arange(x.shape[0])


def end_token(s, x):
    """CLIP's text encoder: the state at the token with the largest number."""
    h = torch.tanh(s.body(s.table(x)))
    return s.head(h[own(x), x.argmax(-1)])


def last_step(s, x, n):
    """The last step of each sequence, time first."""
    h = s.rnn(x.transpose(0, 1))[0]
    return s.head(h[n - 1, own(x)])


def same_steps(s, x):
    """Given positions, the same for each sample."""
    h = torch.tanh(s.body(x))
    return s.head(h[own(x)[:, None], torch.tensor([1, 4, 6])].flatten(1))


def two_places(s, x):
    h = torch.tanh(s.body(x)).view(x.shape[0], 2, 4, 6)
    return s.head(h[own(x), x[:, 0, :2].argmax(-1), x[:, 1, :4].argmax(-1)])


def written(s, x, n):
    """A key cache that is written at each sample's own position."""
    h = torch.tanh(s.body(x)).clone()
    h[own(x), n - 1] = s.new(x[:, 0])
    return s.head(h.mean(1))


def added(s, x):
    h = torch.tanh(s.body(x))
    at = x[:, :, 0].topk(3, 1)[1]
    h = h.index_put((own(x)[:, None], at), s.new(x[:, :3]), accumulate=True)
    return s.head(h.mean(1))


def masked(s, x):
    """Positions by a mask in the file, the same for each sample."""
    mask = torch.tensor([0, 1, 1, 0, 1, 0, 0, 0]).bool().expand(x.shape[0], 8)
    h = torch.tanh(s.body(x))
    return s.head((h[mask].view(x.shape[0], 3, 6) * s.token).flatten(1))


def overwritten(s, x):
    mask = torch.tensor([0, 1, 1, 0, 1, 0, 0, 0]).bool().expand(x.shape[0], 8)
    h = torch.tanh(s.body(x)).clone()
    h[mask] = s.token
    return s.head(h.flatten(1))


def neighbours(s, x):
    """DGCNN: the rows of all samples in one list, where those of a sample start at its index times the number of points."""
    b, n, _ = x.shape
    near = (x[:, :, None] - x[:, None]).pow(2).sum(-1).topk(3, -1, largest=False)[1]
    near = near + own(x)[:, None, None] * n
    h = s.body(x)
    around = h.reshape(b * n, -1)[near.reshape(-1)].view(b, n, 3, -1)
    return s.head((around - h.unsqueeze(2)).amax(2).mean(1))


def pooled(s, x):
    """A graph per sample, all in one list of nodes: sums by the number of the graph."""
    b = x.shape[0]
    graph = own(x).repeat_interleave(8)
    h = torch.tanh(s.body(x.reshape(-1, 5)))
    return s.head(torch.zeros(b, 6).index_add(0, graph, h))


def scattered(s, x):
    b = x.shape[0]
    graph = own(x).repeat_interleave(8)[:, None].expand(-1, 6)
    h = torch.tanh(s.body(x.reshape(-1, 5)))
    return s.head(torch.zeros(b, 6).scatter_add(0, graph, h) / 8)


def expanded(s, x):
    """Each node receives the value of its graph."""
    b = x.shape[0]
    graph = own(x).repeat_interleave(8)
    h = torch.tanh(s.body(x))
    rows = h.reshape(-1, 6) * torch.sigmoid(s.gate(h.mean(1)))[graph]
    return s.head(rows.view(b, 8, 6).amax(1))


def gathered(s, x):
    """Constant positions expanded to all samples."""
    at = torch.tensor([5, 0, 3])[None, :, None].expand(x.shape[0], 3, 6)
    return s.head(torch.tanh(s.body(x)).gather(1, at).flatten(1))


def shuffled(s, x):
    """MAE: the kept positions, and the mask token at the others."""
    order = torch.tensor([3, 0, 6, 1, 7, 2, 5, 4])
    keep, back = (y.expand(x.shape[0], -1)[..., None].expand(-1, -1, 6) for y in (order[:4], order.argsort()))
    h = torch.tanh(s.body(x)).gather(1, keep)
    h = torch.cat([h, s.token.expand(x.shape[0], 4, 6)], 1)
    return s.head(h.gather(1, back).flatten(1))


def boxes(s, x):
    """A region of each image."""
    h = F.relu(s.body(x))
    rois = torch.cat([own(x)[:, None].float(), torch.tensor([[0.5, 1, 6, 7]]).expand(x.shape[0], 4)], 1)
    return s.head(torchvision.ops.roi_align(h, rois, (2, 2), aligned=True).flatten(1))


def picked_loss(s, x, n):
    """The logarithm of the chosen action's probability."""
    p = F.log_softmax(s.head(torch.tanh(s.body(x[:, 0]))), -1)
    return -(p[own(x), n - 1] * x[:, 1, 0]).mean()


def noised(s, x, n):
    """Diffusion: the schedule's values at each sample's step."""
    a = torch.linspace(0.99, 0.1, 9)[n][:, None, None]
    return s.head((a.sqrt() * s.body(x) + (1 - a).sqrt() * 0.3).mean(1))


def rolled(s, x, n):
    """Each sample rolled by its own number of steps."""
    at = (torch.arange(8)[None] + n[:, None]) % 8
    return s.head(torch.tanh(s.body(x))[own(x)[:, None], at].flatten(1))


def triangle(s, x):
    i, j = torch.triu_indices(4, 4, 1)
    h = s.body(x)[:, :4]
    return s.head((h @ h.transpose(1, 2))[:, i, j])


def attended(s, x):
    """Heads and samples merged into one axis, as in nn.MultiheadAttention."""
    return s.head(s.body(s.up(x)).mean(1))


def queried(s, x):
    """Queries that are weights, the same for each sample."""
    h = s.up(x)
    return s.head(s.attend(s.queries.expand(x.shape[0], -1, -1), h, h, need_weights=False)[0].flatten(1))


def gated(s, x):
    """The weights of the two best experts, scattered into zeros."""
    p = s.router(x).softmax(-1)
    top, index = p.topk(2, -1)
    return s.head(torch.einsum("bte,btd,edo->bo", torch.zeros_like(p).scatter(-1, index, top), x, s.experts))


NAMED = {
    "attended": (lambda: Net(attended, up=lin(5, 8), body=nn.TransformerEncoderLayer(8, 2, 12, 0.0, batch_first=True), head=lin(8, 3)), steps, 3),
    "queried": (lambda: Net(queried, up=lin(5, 8), queries=weight(1, 3, 8), attend=nn.MultiheadAttention(8, 2, batch_first=True), head=lin(24, 3)), steps, 3),
    "gated": (lambda: Net(gated, router=lin(5, 4), experts=weight(4, 5, 6), head=lin(6, 3)), steps, 3),
    "end_token": (lambda: Net(end_token, table=nn.Embedding(11, 5), body=lin(5, 6), head=lin(6, 3)), ended, 3),
    "last_step": (lambda: Net(last_step, rnn=nn.GRU(5, 6), head=lin(6, 3)), lengths, 3),
    "same_steps": (lambda: Net(same_steps, body=lin(5, 6), head=lin(18, 3)), steps, 3),
    "two_places": (lambda: Net(two_places, body=lin(5, 6), head=lin(6, 3)), steps, 3),
    "written": (lambda: Net(written, body=lin(5, 6), new=lin(5, 6), head=lin(6, 3)), lengths, 3),
    "added": (lambda: Net(added, body=lin(5, 6), new=lin(5, 6), head=lin(6, 3)), steps, 3),
    "masked": (lambda: Net(masked, body=lin(5, 6), token=weight(6), head=lin(18, 3)), steps, 3),
    "overwritten": (lambda: Net(overwritten, body=lin(5, 6), token=weight(6), head=lin(48, 3)), steps, 3),
    "neighbours": (lambda: Net(neighbours, body=lin(5, 6), head=lin(6, 3)), steps, 3),
    "pooled": (lambda: Net(pooled, body=lin(5, 6), head=lin(6, 3)), steps, 3),
    "scattered": (lambda: Net(scattered, body=lin(5, 6), head=lin(6, 3)), steps, 3),
    "expanded": (lambda: Net(expanded, body=lin(5, 6), gate=lin(6, 6), head=lin(6, 3)), steps, 3),
    "gathered": (lambda: Net(gathered, body=lin(5, 6), head=lin(18, 3)), steps, 3),
    "shuffled": (lambda: Net(shuffled, body=lin(5, 6), token=weight(6), head=lin(48, 3)), steps, 3),
    "boxes": (lambda: Net(boxes, body=nn.Conv2d(3, 4, 3, padding=1), head=lin(16, 3)), image, 3),
    "picked_loss": (lambda: Net(picked_loss, body=lin(5, 6), head=lin(6, 8)), lengths, 0),
    "noised": (lambda: Net(noised, body=lin(5, 6), head=lin(6, 3)), lengths, 3),
    "rolled": (lambda: Net(rolled, body=lin(5, 6), head=lin(48, 3)), lengths, 3),
    "triangle": (lambda: Net(triangle, body=lin(5, 6), head=lin(6, 3)), steps, 3),
}


def cases():
    for name, (module, inputs, out) in NAMED.items():
        terms = [term("cross_entropy")] if out else [term("output", target=None)]
        y = lambda b, out=out: {"y": classes(out, b)} if out else {}
        for style, options in {
            "legacy": dict(exporter="legacy", opset=17, optimize=True),
            "dynamo": dict(exporter="dynamo", opset=18, optimize=True),
            "plain": dict(exporter="dynamo", opset=20, optimize=False),
            "one": dict(exporter="legacy", opset=17, optimize=True, batch_size=1, batch_sizes=[1, 6, 4, 6]),
            "one_dynamo": dict(exporter="dynamo", opset=18, optimize=True, batch_size=1, batch_sizes=[1, 6, 4, 6]),
            "one_plain": dict(exporter="dynamo", opset=20, optimize=False, batch_size=1, batch_sizes=[1, 6, 4, 6]),
            "any": dict(exporter="legacy", opset=16, optimize=True, dynamic_batch=True),
            "any_plain": dict(exporter="dynamo", opset=18, optimize=False, dynamic_batch=True),
        }.items():
            if not out and style not in ("legacy", "dynamo", "plain"):
                continue
            options = dict(batch_size=BATCH, batch_sizes=SIZES if out else None) | options
            yield Case(f"sample_{name}_{style}", module, lambda b, inputs=inputs, y=y: inputs(b) | y(b), terms, {"type": "momentum", "lr": 0.05, "momentum": 0.9}, inputs=tuple(inputs(1)), targets=("y",) if out else (),
                       steps=5, **options)
