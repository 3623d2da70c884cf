"""Further architectures from fields that the other sets barely touch: recommendation, graphs by scattering, knowledge embeddings, flows,
experts. Sequences and images are in further_series.py and further_images.py. Each in the default exporter's form and in one more style,
with a loss and a recipe selected by name.
Nothing is kept in `recorded/`."""
import math
import random
import zlib

import torch
import torch.nn as nn
import torch.nn.functional as F

from case import Case, classes, pixels, term
from drawing import target, two_styles
from sets import random_nets
from sets.families import Net, weight
from zoo import _folded

one = lambda *shape: nn.Parameter(1 + torch.randn(*shape) * 0.3)
lin, L, P = nn.Linear, nn.ModuleList, nn.Parameter
conv = lambda i, o, k=3, **options: nn.Conv2d(i, o, k, padding=options.pop("padding", k // 2), **options)
conv1 = lambda i, o, k=3, **options: nn.Conv1d(i, o, k, padding=options.pop("padding", k // 2), **options)
mlp = lambda *widths: nn.Sequential(*[m for a, b in zip(widths, widths[1:]) for m in (nn.Linear(a, b), nn.SiLU())][:-1])
image, vector, steps, tokens = (lambda b: {"x": pixels(b, 3, 8, 8)}), (lambda b: {"x": pixels(b, 6)}), (lambda b: {"x": pixels(b, 8, 5)}), (lambda b: {"x": classes(11, b, 6)})
series = lambda b: {"x": pixels(b, 12)}
wave = lambda b: {"x": pixels(b, 1, 32)}
fields = lambda b: {"x": classes(9, b, 4), "dense": pixels(b, 3)}
NODES, EDGES = 6, torch.tensor([[0, 1, 2, 3, 4, 5, 0, 2, 4, 1], [1, 2, 3, 4, 5, 0, 3, 5, 1, 4]])
nodes = lambda b: {"x": pixels(b, NODES, 4)}


# Recommendation and tables


def embedded(s, x):
    return torch.stack([t(x[:, i]) for i, t in enumerate(s.tables)], 1)


def deep_fm(s, x, dense):
    e = embedded(s, x)
    first = sum(t(x[:, i]) for i, t in enumerate(s.linear)) + s.dense(dense)
    second = 0.5 * (e.sum(1).pow(2) - e.pow(2).sum(1)).sum(1, keepdim=True)
    return first + second + s.deep(torch.cat([e.flatten(1), dense], 1))


def compressed_interactions(s, x, dense):
    """xDeepFM."""
    e = embedded(s, x)
    h, out = e, []
    for c in s.layers:
        z = torch.einsum("bhd,bmd->bhmd", h, e)
        h = F.relu(c(z.reshape(x.shape[0], -1, 3)))
        out.append(h.sum(-1))
    return s.head(torch.cat([*out, dense], 1))


def two_towers(s, x, dense, item):
    """In-batch softmax with the logarithm of the items' frequencies subtracted."""
    u = F.normalize(s.user(torch.cat([embedded(s, x).flatten(1), dense], 1)))
    v = F.normalize(s.items(item))
    logits = u @ v.t() / 0.2 - s.frequency[item].log()
    same = (item[:, None] == item[None]) & ~torch.eye(x.shape[0], dtype=torch.bool)
    return F.cross_entropy(logits.masked_fill(same, -1e9), torch.arange(x.shape[0]))


def experts(s, x):
    """MMoE with two tasks, one the product of both (ESMM)."""
    h = torch.stack([e(x) for e in s.experts], 1)
    click, buy = ((torch.einsum("be,bed->bd", g(x).softmax(-1), h)) for g in s.gates)
    p = torch.sigmoid(s.click(click))
    return torch.cat([p, p * torch.sigmoid(s.buy(buy))], 1)


def sequential_pairs(s, x):
    """SASRec and BPR with a positive and a negative item per position."""
    h = s.table(x[:, :6]) * 8**0.5 + s.places
    keep = (x[:, :6] != 0)[..., None]
    h = s.body(h * keep, src_mask=torch.ones(6, 6).triu(1).bool()) * keep
    good, bad = s.table(x[:, 6:12]), s.table(x[:, 12:])
    gap = (h * good).sum(-1) - (h * bad).sum(-1)
    mask = (x[:, 6:12] != 0).float()
    return -(F.logsigmoid(gap) * mask).sum() / mask.sum().clamp(min=1)


def negatives(s, x):
    """Skip-gram with negative sampling."""
    u = s.inner(x[:, 0])
    v = s.outer(x[:, 1:])
    score = torch.bmm(v, u.unsqueeze(2)).squeeze(2)
    return -(F.logsigmoid(score[:, 0]) + F.logsigmoid(-score[:, 1:]).sum(1)).mean()


def rotated_relations(s, x):
    """RotatE with self-adversarial negatives."""
    h, t = s.entities(x[:, 0]), s.entities(x[:, 2:])
    phase = s.relations(x[:, 1] % 3) / (0.5 / math.pi)
    re_h, im_h = h.chunk(2, -1)
    re_t, im_t = t.chunk(2, -1)
    re, im = re_h * phase.cos() - im_h * phase.sin(), re_h * phase.sin() + im_h * phase.cos()
    d = torch.stack([re[:, None] - re_t, im[:, None] - im_t], 0).norm(dim=0).sum(-1)
    score = 3.0 - d
    good, bad = score[:, :1], score[:, 1:]
    return -(F.logsigmoid(good).mean() + (F.softmax(bad, 1).detach() * F.logsigmoid(-bad)).sum(1).mean()) / 2


def hyperbolic(s, x):
    """Distances in the Poincare ball."""
    def into(y):
        n = y.norm(dim=-1, keepdim=True).clamp(min=1e-5)
        return torch.tanh(n) * y / n
    u, v = into(s.body(x))[:, None], into(s.centres)
    d2 = (u - v).square().sum(-1)
    return -torch.acosh(1 + 2 * d2 / ((1 - u.square().sum(-1)) * (1 - v.square().sum(-1))).clamp(min=1e-5))


def partial_likelihood(s, x, event):
    """Cox: rows sorted by time, risks by cumulative logsumexp."""
    risk = s.body(x).squeeze(1)
    order = x[:, 0].argsort(descending=True)
    risk, seen = risk[order], event[order]
    return -((risk - torch.logcumsumexp(risk, 0)) * seen).sum() / seen.sum().clamp(min=1)


def mixture_density(s, x, y):
    w, m, d = s.body(x).split(3, -1)
    return -torch.logsumexp(w.log_softmax(-1) - 0.5 * ((y - m) / (F.softplus(d) + 0.1)).square() - (F.softplus(d) + 0.1).log(), -1).mean()


# Graphs and points


def graph_layers(s, x):
    """GCN, GIN and GAT by gathering along edges and summing into nodes."""
    src, dst = s.edges[0], s.edges[1]
    b = x.shape[0]
    degree = torch.zeros(NODES).index_add(0, dst, torch.ones(dst.shape[0])) + 1
    scale = (degree[src] * degree[dst]).rsqrt()
    h = s.gcn(x)
    h = F.relu(torch.zeros_like(h).index_add(1, dst, h[:, src] * scale[:, None]) + h / degree[:, None])
    h = s.gin((1 + s.eps) * h + torch.zeros_like(h).scatter_add(1, dst[None, :, None].expand(b, -1, h.shape[-1]), h[:, src]))
    z = s.gat(h)
    e = F.leaky_relu((z * s.left).sum(-1)[:, src] + (z * s.right).sum(-1)[:, dst], 0.2)
    top = torch.full((b, NODES), -1e9).scatter_reduce(1, dst.expand(b, -1), e, "amax")
    w = (e - top[:, dst]).exp()
    w = w / (torch.zeros(b, NODES).index_add(1, dst, w)[:, dst] + 1e-16)
    h = torch.zeros_like(z).index_add(1, dst, z[:, src] * w[..., None])
    return s.head(torch.cat([h.mean(1), h.amax(1)], -1))


def aggregates(s, x):
    """PNA: mean, extremes and standard deviation of neighbors by scatter_reduce."""
    src, dst = s.edges[0], s.edges[1]
    m = s.message(torch.cat([x[:, src], x[:, dst]], -1))
    index = dst[None, :, None].expand(m.shape[0], -1, m.shape[-1])
    zero = m.new_zeros(m.shape[0], NODES, m.shape[-1])
    mean = zero.scatter_reduce(1, index, m, "mean", include_self=False)
    most = zero.scatter_reduce(1, index, m, "amax", include_self=False)
    least = zero.scatter_reduce(1, index, m, "amin", include_self=False)
    square = zero.scatter_reduce(1, index, m * m, "mean", include_self=False)
    return s.head(torch.cat([mean, most, least, (square - mean * mean).clamp(min=1e-5).sqrt()], -1)).mean(1)


def light_graph(s, x):
    """LightGCN: products with a fixed adjacency matrix, scored pairs."""
    e, layers = s.table.weight, [s.table.weight]
    for _ in range(2):
        e = s.adjacency @ e
        layers.append(e)
    e = torch.stack(layers).mean(0)
    return (e[x[:, 0]][:, None] * e[x[:, 1:]]).sum(-1)


def sampled_points(s, x):
    """PointNet++: farthest points, a ball of neighbors, features interpolated back."""
    b, n, _ = x.shape
    d = torch.full((b, n), 1e9)
    far, chosen = torch.zeros(b, dtype=torch.long), []
    for _ in range(3):
        chosen.append(far)
        c = torch.gather(x, 1, far[:, None, None].expand(-1, 1, 3))
        d = torch.minimum(d, (x - c).square().sum(-1))
        far = d.argmax(-1)
    index = torch.stack(chosen, 1)
    centre = torch.gather(x, 1, index[..., None].expand(-1, -1, 3))
    near = torch.cdist(centre, x).topk(3, dim=-1, largest=False, sorted=False).indices
    group = torch.gather(x[:, None].expand(-1, 3, -1, -1), 2, near[..., None].expand(-1, -1, -1, 3)) - centre[:, :, None]
    f = s.mlp(group).amax(2)
    d = (x[:, :, None] - centre[:, None]).square().sum(-1)
    w = 1 / (d + 1e-2)
    w = w / w.sum(-1, keepdim=True)
    return s.head(torch.cat([w @ f, x], -1))


def relational(s, x):
    """R-GCN with bases; the type of an edge selects its weight."""
    src, dst = s.edges[0], s.edges[1]
    w = torch.einsum("rb,bio->rio", s.mix, s.bases)
    m = torch.einsum("nei,eio->neo", x[:, src], w[torch.arange(src.shape[0]) % 3])
    return s.head(F.relu(torch.zeros(x.shape[0], NODES, 5).index_add(1, dst, m) + s.own(x)).sum(1))


# Flows, fields, physics


def coupled(s, x):
    """Glow: an LU-factored linear map, an actnorm, an affine coupling; the output is the likelihood."""
    y = (x + s.shift) * s.scale.exp()
    lower, upper = s.lower.tril(-1) + torch.eye(6), s.upper.triu(1) + torch.diag(s.sign * s.diagonal.exp())
    y = y @ (s.permutation @ lower @ upper).t()
    a, b = y.chunk(2, 1)
    log_s, t = s.net(a).chunk(2, 1)
    log_s = torch.tanh(log_s)
    b = b * log_s.exp() + t
    z = torch.cat([a, b], 1)
    return (0.5 * z.square().sum(1) - log_s.sum(1)).mean() - s.scale.sum() - s.diagonal.sum()


def stepped(s, x):
    """A neural ODE by the Runge-Kutta method."""
    f = lambda t, y: s.b(torch.tanh(s.a(torch.cat([y, torch.full_like(y[:, :1], t)], 1))))
    h = 0.5
    for k in range(2):
        t = k * h
        k1 = f(t, x)
        k2 = f(t + h / 2, x + h / 2 * k1)
        k3 = f(t + h / 2, x + h / 2 * k2)
        k4 = f(t + h, x + h * k3)
        x = x + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    return s.head(x)


def hashed(s, x):
    """Instant NGP: corners hashed into tables, with interpolated features."""
    out = []
    for level, table in zip((2.0, 3.0), s.tables):
        p = x[:, :2].sigmoid() * level
        low = p.floor()
        f = p - low
        low = low.long()
        total = 0
        for i in (0, 1):
            for j in (0, 1):
                at = ((low[:, 0] + i) * 1 ^ (low[:, 1] + j) * 2654435761) % 16 if s.xor else ((low[:, 0] + i) * 7 + (low[:, 1] + j) * 13) % 16
                w = (f[:, 0] if i else 1 - f[:, 0]) * (f[:, 1] if j else 1 - f[:, 1])
                total = total + table(at) * w[:, None]
        out.append(total)
    return s.mlp(torch.cat(out, 1))


def spectral(s, x):
    """FNO with PyTorch's own transforms."""
    f = torch.fft.rfft(x.transpose(1, 2), norm="ortho")
    y = torch.view_as_real(f)[..., :3, :]
    re = torch.einsum("bim,iom->bom", y[..., 0], s.wr) - torch.einsum("bim,iom->bom", y[..., 1], s.wi)
    im = torch.einsum("bim,iom->bom", y[..., 0], s.wi) + torch.einsum("bim,iom->bom", y[..., 1], s.wr)
    return s.head((torch.stack([re, im], -1).square().sum(-1) + 1e-3).sqrt().flatten(1))


def framed(s, x):
    """A spectrogram by torch.stft before a convolution."""
    f = torch.stft(s.scale * x.squeeze(1), 8, 4, window=s.window, center=False, return_complex=True)
    return s.head(F.relu(s.first((torch.view_as_real(f).square().sum(-1) + 1e-4).log()[:, None])).mean((2, 3)))


def routed_depth(s, x):
    """Mixture of depths: the tokens with the largest weights pass through a block, the others bypass it."""
    h = s.table(x)
    w = s.router(h).squeeze(-1)
    top, index = w.topk(3, 1)
    index, order = index.sort(1)
    top = top.gather(1, order)
    at = index[..., None].expand(-1, -1, 8)
    y = s.block(h.gather(1, at)) * top.sigmoid()[..., None]
    return s.head(h.scatter_add(1, at, y))


def top_experts(s, x):
    """Switch: one expert per token, load balancing, all experts as one product."""
    h = s.table(x)
    p = s.router(h).softmax(-1)
    top, index = p.topk(2, -1)
    top = top / top.sum(-1, keepdim=True)
    gate = torch.zeros_like(p).scatter(-1, index, top)
    y = torch.einsum("btd,edh->bteh", h, s.up)
    y = torch.einsum("bteh,ehd,bte->btd", F.silu(y), s.down, gate)
    load = F.one_hot(index, 4).float().sum(2).mean((0, 1)) * p.mean((0, 1))
    return s.head(h + y), load.sum() * 4


def multi_token(s, x):
    """Heads for the next token and the one after, with one shared table; soft-capped logits."""
    h = s.body(s.table(x), src_mask=torch.full((6, 6), -torch.inf).triu(1), is_causal=True)
    cap = lambda y: 5 * torch.tanh(y / 5)
    return cap(s.norm(h) @ s.table.weight.t()) + cap(s.second(torch.cat([h[:, :-1], s.table(x)[:, 1:]], -1)) @ s.table.weight.t()).mean(1, keepdim=True)


def quantised_steps(s, x):
    """LSQ: trained step sizes, gradients through rounding by detaching."""
    def q(v, step, low, high):
        g = 1 / math.sqrt(v.numel() * high)
        step = (step - step * g).detach() + step * g
        u = (v / step).clamp(low, high)
        return ((u.round() - u).detach() + u) * step
    h = F.relu(F.linear(q(x, s.sx, -8, 7), q(s.first.weight, s.sw, -8, 7), s.first.bias))
    return s.head(q(h, s.sh, 0, 15))


def fake_quantised_range(s, x):
    """Seven of eight bits: the exporter clips quantized values."""
    w = torch.fake_quantize_per_tensor_affine(s.first.weight, 0.02, 10, 0, 127)
    h = F.relu(F.linear(torch.fake_quantize_per_tensor_affine(x, 0.03, 60, 0, 127), w, s.first.bias))
    return s.head(h)


block = lambda d, h=2: nn.TransformerEncoderLayer(d, h, 2 * d, 0.0, batch_first=True, norm_first=True)
tables = lambda n, d: L(nn.Embedding(9, d) for _ in range(n))

# name: (module, its inputs, shape of the output of one sample (None: the output is the objective), class axis)
FURTHER = {
    "deep_fm": (lambda: Net(deep_fm, tables=tables(4, 3), linear=tables(4, 1), dense=lin(3, 1), deep=mlp(15, 8, 1)), fields, (1,), 0),
    "compressed": (lambda: Net(compressed_interactions, tables=tables(4, 3), layers=L([nn.Conv1d(16, 5, 1), nn.Conv1d(20, 4, 1)]), head=lin(12, 3)), fields, (3,), 1),
    "two_towers": (lambda: Net(two_towers, tables=tables(4, 3), user=mlp(15, 8, 4), items=nn.Embedding(9, 4), frequency=torch.rand(9) + 0.1), lambda b: fields(b) | {"item": classes(9, b)}, None, 0),
    "experts": (lambda: Net(experts, experts=L(nn.Sequential(lin(6, 5), nn.ReLU()) for _ in range(3)), gates=L(lin(6, 3, bias=False) for _ in range(2)), click=lin(5, 1), buy=lin(5, 1)), vector, (2,), 0),
    "sequential_pairs": (lambda: Net(sequential_pairs, table=nn.Embedding(11, 8), places=weight(6, 8), body=block(8)), lambda b: {"x": classes(11, b, 18)}, None, 0),
    "negatives": (lambda: Net(negatives, inner=nn.Embedding(11, 5), outer=nn.Embedding(11, 5)), tokens, None, 0),
    "rotated_relations": (lambda: Net(rotated_relations, entities=nn.Embedding(11, 8), relations=nn.Embedding(3, 4)), tokens, None, 0),
    "hyperbolic": (lambda: Net(hyperbolic, body=mlp(6, 8, 3), centres=weight(4, 3)), vector, (4,), 1),
    "partial_likelihood": (lambda: Net(partial_likelihood, body=mlp(6, 8, 1)), lambda b: {"x": pixels(b, 6), "event": classes(2, b).float()}, None, 0),
    "mixture_density": (lambda: Net(mixture_density, body=mlp(6, 8, 9)), lambda b: {"x": pixels(b, 6), "y": pixels(b, 1)}, None, 0),
    "graph_layers": (lambda: Net(graph_layers, edges=EDGES, gcn=lin(4, 6, bias=False), gin=mlp(6, 8, 6), eps=P(torch.tensor([0.1])), gat=lin(6, 5, bias=False), left=weight(5), right=weight(5), head=lin(10, 3)), nodes, (3,), 1),
    "aggregates": (lambda: Net(aggregates, edges=EDGES, message=mlp(8, 6, 4), head=lin(16, 3)), nodes, (3,), 1),
    "light_graph": (lambda: Net(light_graph, table=nn.Embedding(11, 4), adjacency=torch.rand(11, 11) / 5), tokens, (5,), 1),
    "sampled_points": (lambda: Net(sampled_points, mlp=nn.Sequential(lin(3, 6), nn.ReLU(), lin(6, 6)), head=lin(9, 3)), lambda b: {"x": pixels(b, 7, 3)}, (7, 3), 2),
    "relational": (lambda: Net(relational, edges=EDGES, mix=weight(3, 2), bases=weight(2, 4, 5), own=lin(4, 5), head=lin(5, 3)), nodes, (3,), 1),
    "coupled": (lambda: Net(coupled, shift=weight(6), scale=weight(6), lower=weight(6, 6), upper=weight(6, 6), sign=torch.tensor([1.0, -1, 1, 1, -1, 1]), diagonal=weight(6), permutation=torch.eye(6)[torch.randperm(6)], net=mlp(3, 8, 6)), vector, None, 0),
    "stepped": (lambda: Net(stepped, a=lin(7, 8), b=lin(8, 6), head=lin(6, 3)), vector, (3,), 1),
    "hashed": (lambda: Net(hashed, tables=L(nn.Embedding(16, 3) for _ in range(2)), mlp=mlp(6, 8, 3), xor=False), vector, (3,), 0),
    "spectral": (lambda: Net(spectral, wr=weight(5, 4, 3), wi=weight(5, 4, 3), head=lin(12, 3)), steps, (3,), 1),
    "framed": (lambda: Net(framed, scale=P(torch.tensor([1.1])), window=torch.hann_window(8), first=conv(1, 4), head=lin(4, 3)), wave, (3,), 1),
    "routed_depth": (lambda: Net(routed_depth, table=nn.Embedding(11, 8), router=lin(8, 1), block=mlp(8, 12, 8), head=lin(8, 11)), tokens, (6, 11), 2),
    "top_experts": (lambda: Net(top_experts, table=nn.Embedding(11, 8), router=lin(8, 4, bias=False), up=weight(4, 8, 6), down=weight(4, 6, 8), head=lin(8, 11)), tokens, (6, 11), 2),
    "multi_token": (lambda: Net(multi_token, table=nn.Embedding(11, 8), body=block(8), norm=random_nets.RmsNorm(8), second=lin(16, 8)), tokens, (6, 11), 2),
    "quantised_steps": (lambda: Net(quantised_steps, first=lin(6, 8), sx=P(torch.tensor([0.3])), sw=P(torch.tensor([0.1])), sh=P(torch.tensor([0.1])), head=lin(8, 3)), vector, (3,), 1),
    "fake_range": (lambda: Net(fake_quantised_range, first=lin(6, 8), head=lin(8, 3)), vector, (3,), 1),
}


def drawn(name, entry, again, frozen=(), side=False):
    """A case of an entry of a table like FURTHER, in its first or in a second style. With `side`, the mean of a second output is a loss
    term."""
    r = random.Random(zlib.crc32(f"further {name}{again}".encode()))
    module, inputs, out, axis = entry
    if out is None:
        terms, y = [term("output", target=None)], None
    else:
        terms, y = target(r, out, axis)
    outputs = ("out", "side") if side else ("out",)
    if side:
        terms = [*terms, term("output", output="side", target=None, weight=0.1)]
    options = random_nets.recipe(r)
    exporter, optimize = r.choice([("legacy", False), ("dynamo", False), ("legacy", True)]) if again else ("dynamo", r.random() < 0.6)
    if options["optimizer"]["type"] == "lamb" or "groups" in options["optimizer"]:
        optimize = False
    opset = r.choice([18, 20, 22, 23, 25]) if exporter == "dynamo" else r.choice([16, 17, 17, 18, 20])
    made = module()
    folds = optimize and any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in made.modules())
    mode = r.choice(["train", "eval"])
    dynamic = out is not None and r.random() < (0.3 if exporter == "dynamo" else 0.6)
    sizes = [6, 6, 6, 6, 6, 4] if out is not None and r.random() < 0.5 else None
    return Case(f"further_{name}_{exporter}{opset}{'' if optimize else '_plain'}", module, lambda b: inputs(b) | ({} if y is None else {"y": y(b)}), terms, inputs=tuple(inputs(1)),
                targets=() if y is None else ("y",), outputs=outputs, exporter=exporter, opset=opset, optimize=optimize, mode=mode, dynamic_batch=dynamic, batch_size=6, batch_sizes=sizes, may_rest=True, frozen=frozen,
                as_file=_folded if folds else None, keep_notes=exporter == "dynamo", **options)


def cases():
    return two_styles(lambda name, again: drawn(name, FURTHER[name], again, side=name == "top_experts"), FURTHER)
