"""Blocks of recent models, built by hand as published: grouped queries, latent attention, experts, selective scans, recurrences, graphs.
Each in the default exporter's form and in one more style, with a recipe selected by name. None is kept; they are recorded when needed."""
import torch
import torch.nn as nn
import torch.nn.functional as F

from case import classes, pixels
from drawing import two_styles
from sets.families import Net, conv, lin, weight
from sets.objectives import L, drawn, mlp, steps, vector


def rotated(v, cos, sin):
    a, b = v.chunk(2, -1)
    return v * cos + torch.cat([-b, a], -1) * sin


def decoder(s, x):
    """RoPE, grouped queries, RMS norms, a gated feed-forward layer, soft-capped logits."""
    b, t = x.shape
    h = s.embed(x) * 8**0.5
    rms = lambda v, w: v * torch.rsqrt(v.square().mean(-1, keepdim=True) + 1e-6) * (1 + w)
    angle = torch.arange(t)[:, None] * (1 / 100 ** (torch.arange(0, 4, 2) / 4))
    cos, sin = torch.cat([angle, angle], -1).cos(), torch.cat([angle, angle], -1).sin()
    y = rms(h, s.n1)
    q, k, v = s.q(y).view(b, t, 4, 4).transpose(1, 2), s.k(y).view(b, t, 2, 4).transpose(1, 2), s.v(y).view(b, t, 2, 4).transpose(1, 2)
    q, k = rotated(rms(q, s.nq), cos, sin), rotated(rms(k, s.nk), cos, sin)
    k, v = k.repeat_interleave(2, 1), v.repeat_interleave(2, 1)
    scores = 20 * torch.tanh(q @ k.transpose(2, 3) * 0.5 / 20)
    near = torch.ones(t, t).tril() - torch.ones(t, t).tril(-4)
    h = h + s.o((scores.masked_fill(near == 0, -1e9).softmax(-1) @ v).transpose(1, 2).reshape(b, t, -1))
    y = rms(h, s.n2)
    h = h + s.down(F.gelu(s.gate(y), approximate="tanh") * s.up(y))
    return 10 * torch.tanh(F.linear(h, s.embed.weight) / 10)


def latent_attention(s, x):
    """Keys and values from one small latent vector (MLA)."""
    b, t, _ = x.shape
    c = F.layer_norm(s.down(x), (4,), s.scale)
    k, v = s.up(c).view(b, t, 2, 8).transpose(1, 2).chunk(2, -1)
    k = torch.cat([k, s.shared(x)[:, None].expand(-1, 2, -1, -1)], -1)
    q = s.q(x).view(b, t, 2, 6).transpose(1, 2)
    return s.head(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2).mean(1))


def differential(s, x):
    b, t, _ = x.shape
    q, k = s.q(x).view(b, t, 2, 4).transpose(1, 2), s.k(x).view(b, t, 2, 4).transpose(1, 2)
    p = (q @ k.transpose(2, 3) / 2).softmax(-1)
    gate = (s.l1 * s.l2).sum().exp() - (s.l3 * s.l4).sum().exp() + 0.2
    return s.head(((p[:, 0] - gate * p[:, 1]) @ s.v(x)).mean(1))


def routed(s, x):
    """The two best of four experts with renormalized weights, and a load balancing loss."""
    p = s.gate(x).softmax(-1)
    best, where = p.topk(2, -1)
    best = best / best.sum(-1, keepdim=True)
    hidden = F.silu(torch.einsum("bi,eih->beh", x, s.w1)) * torch.einsum("bi,eih->beh", x, s.w3)
    out = torch.einsum("beh,eho->beo", hidden, s.w2)
    y = (out.gather(1, where[:, :, None].expand(-1, -1, out.shape[-1])) * best[:, :, None]).sum(1)
    return y, p.var(-1)


def expert_choice(s, x):
    """Expert choice: each expert selects tokens, per sample."""
    p = s.gate(x).softmax(-1)
    best, where = p.transpose(1, 2).topk(2, -1)
    chosen = x.gather(1, where.flatten(1)[:, :, None].expand(-1, -1, x.shape[-1])).unflatten(1, (3, 2))
    made = torch.einsum("betd,edf->betf", chosen, s.w) * best[..., None]
    return s.head((x + torch.zeros_like(x).scatter_add(1, where.flatten(1)[:, :, None].expand(-1, -1, x.shape[-1]), made.flatten(1, 2))).mean(1))


def selective(s, x):
    """Mamba: a convolution, and a scan with input-dependent steps, in log space."""
    z, gate = s.inner(x).chunk(2, -1)
    z = F.silu(s.conv(z.transpose(1, 2))[..., :-2].transpose(1, 2))
    delta, b, c = s.param(z).split([5, 3, 3], -1)
    delta = F.softplus(delta)
    decay = delta[..., None] * -s.a.exp()
    total = decay.cumsum(1)
    h = ((delta * z)[..., None] * b[:, :, None] * (-total).exp()).cumsum(1) * total.exp()
    return s.head((((h * c[:, :, None]).sum(-1) + s.d * z) * F.silu(gate)).mean(1))


def receptance(s, x):
    """RWKV: time mixing with a running maximum, and channel mixing."""
    before = F.pad(x, (0, 0, 1, -1))
    mix = lambda m: x * m + before * (1 - m)
    r, k, v = s.r(mix(s.mr)).sigmoid(), s.k(mix(s.mk)), s.v(mix(s.mv))
    num = den = torch.zeros_like(k[:, 0])
    top = torch.full_like(num, -1e30)
    out = []
    for t in range(x.shape[1]):
        q = torch.maximum(top, s.first + k[:, t])
        e1, e2 = (top - q).exp(), (s.first + k[:, t] - q).exp()
        out.append((e1 * num + e2 * v[:, t]) / (e1 * den + e2))
        q = torch.maximum(top - s.decay.exp(), k[:, t])
        e1, e2 = (top - s.decay.exp() - q).exp(), (k[:, t] - q).exp()
        num, den, top = e1 * num + e2 * v[:, t], e1 * den + e2, q
    y = x + s.o(r * torch.stack(out, 1))
    return s.head((y + s.cr(y).sigmoid() * s.cv(F.relu(s.ck(y)).square())).mean(1))


def delta_rule(s, x):
    """The delta rule: a memory that is corrected at each step."""
    q, k, v, beta = F.normalize(s.q(x), dim=-1), F.normalize(s.k(x), dim=-1), s.v(x), s.beta(x).sigmoid()
    memory = torch.zeros(x.shape[0], 4, 4)
    out = []
    for t in range(x.shape[1]):
        wrong = v[:, t] - torch.einsum("bij,bi->bj", memory, k[:, t])
        memory = memory + torch.einsum("bi,bj->bij", k[:, t], beta[:, t] * wrong)
        out.append(torch.einsum("bij,bi->bj", memory, q[:, t]))
    return s.head(torch.stack(out, 1).mean(1))


def gated_recurrence(s, x):
    """RG-LRU."""
    gate = s.ga(x).sigmoid()
    a = torch.exp(-8 * F.softplus(s.decay) * gate)
    u, h, out = torch.sqrt(1 - a * a + 1e-6) * s.gx(x).sigmoid() * x, torch.zeros_like(x[:, 0]), []
    for t in range(x.shape[1]):
        h = a[:, t] * h + u[:, t]
        out.append(h)
    return s.head(torch.stack(out, -1).amax(-1))


def exponential_gates(s, x):
    """sLSTM."""
    h = c = n = m = torch.zeros(x.shape[0], 4)
    for t in range(x.shape[1]):
        z, i, f, o = (s.w(x[:, t]) + s.r(h)).chunk(4, -1)
        f = F.logsigmoid(f)
        top = torch.maximum(f + m, i)
        c, n, m = (f + m - top).exp() * c + (i - top).exp() * z.tanh(), (f + m - top).exp() * n + (i - top).exp(), top
        h = o.sigmoid() * c / n
    return s.head(h)


def splines(s, x):
    """KAN."""
    grid = torch.linspace(-2, 2, 8)
    basis = ((x[..., None] >= grid[:-1]) & (x[..., None] < grid[1:])).float()
    for k in (1, 2):
        basis = (x[..., None] - grid[: -(k + 1)]) / (grid[k:-1] - grid[: -(k + 1)]) * basis[..., :-1] + (grid[k + 1 :] - x[..., None]) / (grid[k + 1 :] - grid[1:-k]) * basis[..., 1:]
    return F.silu(x) @ s.base.t() + torch.einsum("big,oig->bo", basis, s.coefficients)


def messages(s, x, edges):
    """A graph per sample: messages along edges that are fed, aggregated by sum, mean and attention."""
    src, dst = (edges[:, k, :, None].expand(-1, -1, 4) for k in (0, 1))
    h = s.embed(x)
    m = s.message(torch.cat([h.gather(1, src), h.gather(1, dst)], -1))
    score = s.score(m).exp()
    total = torch.zeros(x.shape[0], 5, 1).scatter_add(1, edges[:, 1, :, None], score)
    h = h + torch.zeros_like(h).scatter_add(1, dst, m * score) / (total + 1e-6)
    return s.head(torch.cat([h.mean(1), h.amax(1)], -1))


def pooled_graph(s, x, adjacency):
    """DiffPool, with its two auxiliary losses."""
    a = adjacency.sigmoid()
    a = (a + a.transpose(1, 2)) / 2
    z, p = F.relu(a @ s.embed(x)), (a @ s.assign(x)).softmax(-1)
    coarse = p.transpose(1, 2) @ z
    link = (a - p @ p.transpose(1, 2)).square().mean((1, 2)) + (-p * (p + 1e-6).log()).sum(-1).mean(-1)
    return s.head(coarse.flatten(1)), link


def equivariant(s, x):
    """EGNN: positions move along differences."""
    h = s.start.expand(x.shape[0], 5, -1)
    for edge, move, node in zip(s.edges, s.moves, s.nodes):
        d = x[:, :, None] - x[:, None]
        m = edge(torch.cat([h[:, :, None].expand(-1, -1, 5, -1), h[:, None].expand(-1, 5, -1, -1), d.square().sum(-1, keepdim=True)], -1))
        x = x + (d * torch.tanh(move(m))).mean(2)
        h = h + node(torch.cat([h, m.sum(2)], -1))
    return torch.cat([x, h], -1)


def deformable(s, x):
    """Points sampled by each position, by grid_sample."""
    b, c, h, w = x.shape
    ys, xs = torch.meshgrid(torch.linspace(-1, 1, h), torch.linspace(-1, 1, w), indexing="ij")
    where = torch.stack([xs, ys], -1) + 0.4 * torch.tanh(s.offset(x)).permute(0, 2, 3, 1)
    return s.head(F.grid_sample(s.value(x), where, mode=s.mode, padding_mode=s.padding, align_corners=s.mode == "bilinear").mean((2, 3)))


def warped(s, x, theta):
    grid = F.affine_grid(torch.eye(2, 3) + 0.3 * torch.tanh(theta).view(-1, 2, 3), (x.shape[0], 3, 6, 6), align_corners=False)
    return s.head(F.grid_sample(s.first(x), grid, mode="bicubic", padding_mode="border", align_corners=False).flatten(1))


def free_norm(s, x):
    """Dynamic tanh instead of a norm, layer scale, learned attention pooling."""
    h = x + s.gamma * s.mlp(torch.tanh(s.alpha * x) * s.w + s.b)
    p = (h @ s.query).softmax(1)
    return s.head((p[..., None] * h).sum(1))


def hyper_connections(s, x):
    """Several residual streams that are mixed."""
    h = x[:, None].expand(-1, 3, -1)
    for mix, read, write, layer in zip(s.mix, s.read, s.write, s.layers):
        h = mix @ h + write[:, None] * torch.tanh(layer((read.softmax(0)[:, None] * h).sum(1)))[:, None]
    return s.head(h.sum(1))


# name: (module, its inputs, shape of the output of one sample, class axis)
BLOCKS = {
    "decoder": (lambda: Net(decoder, embed=nn.Embedding(11, 8), n1=weight(8), n2=weight(8), nq=weight(4), nk=weight(4), q=lin(8, 16, bias=False), k=lin(8, 8, bias=False), v=lin(8, 8, bias=False), o=lin(16, 8, bias=False), gate=lin(8, 12, bias=False), up=lin(8, 12, bias=False), down=lin(12, 8, bias=False)), lambda b: {"x": classes(11, b, 6)}, (6, 11), 2),
    "latent_attention": (lambda: Net(latent_attention, down=lin(5, 4), scale=weight(4), up=lin(4, 16), shared=lin(5, 2), q=lin(5, 12), head=lin(8, 3)), steps, (3,), 1),
    "differential": (lambda: Net(differential, q=lin(5, 8), k=lin(5, 8), v=lin(5, 4), l1=weight(4), l2=weight(4), l3=weight(4), l4=weight(4), head=lin(4, 3)), steps, (3,), 1),
    "routed": (lambda: Net(routed, gate=lin(6, 4, bias=False), w1=weight(4, 6, 5), w3=weight(4, 6, 5), w2=weight(4, 5, 3)), vector, (3,), 1),
    "expert_choice": (lambda: Net(expert_choice, gate=lin(5, 3), w=weight(3, 5, 5), head=lin(5, 3)), steps, (3,), 1),
    "selective": (lambda: Net(selective, inner=lin(5, 10), conv=nn.Conv1d(5, 5, 3, padding=2, groups=5), param=lin(5, 11), a=weight(5, 3), d=weight(5), head=lin(5, 3)), steps, (3,), 1),
    "receptance": (lambda: Net(receptance, **{m: nn.Parameter(torch.rand(5)) for m in ("mr", "mk", "mv")}, r=lin(5, 4), k=lin(5, 4), v=lin(5, 4), first=weight(4), decay=weight(4), o=lin(4, 5), cr=lin(5, 5), ck=lin(5, 8), cv=lin(8, 5), head=lin(5, 3)), steps, (3,), 1),
    "delta_rule": (lambda: Net(delta_rule, q=lin(5, 4), k=lin(5, 4), v=lin(5, 4), beta=lin(5, 1), head=lin(4, 3)), steps, (3,), 1),
    "gated_recurrence": (lambda: Net(gated_recurrence, ga=lin(5, 5), gx=lin(5, 5), decay=weight(5), head=lin(5, 3)), steps, (3,), 1),
    "exponential_gates": (lambda: Net(exponential_gates, w=lin(5, 16), r=lin(4, 16, bias=False), head=lin(4, 3)), steps, (3,), 1),
    "splines": (lambda: Net(splines, base=weight(3, 6), coefficients=weight(3, 6, 5)), vector, (3,), 1),
    "messages": (lambda: Net(messages, embed=lin(3, 4), message=mlp(8, 8, 4), score=lin(4, 1), head=lin(8, 3)), lambda b: {"x": pixels(b, 5, 3), "edges": classes(5, b, 2, 7)}, (3,), 1),
    "pooled_graph": (lambda: Net(pooled_graph, embed=lin(3, 4), assign=lin(3, 2), head=lin(8, 3)), lambda b: {"x": pixels(b, 5, 3), "adjacency": pixels(b, 5, 5)}, (3,), 1),
    "equivariant": (lambda: Net(equivariant, start=weight(1, 1, 4), edges=L(mlp(9, 8, 4) for _ in range(2)), moves=L(lin(4, 1) for _ in range(2)), nodes=L(mlp(8, 8, 4) for _ in range(2))), lambda b: {"x": pixels(b, 5, 3)}, (5, 7), 0),
    "deformable": (lambda: Net(deformable, offset=conv(3, 2), value=conv(3, 4, 1), head=lin(4, 3), mode="bilinear", padding="zeros"), lambda b: {"x": pixels(b, 3, 6, 6)}, (3,), 1),
    "deformable_reflected": (lambda: Net(deformable, offset=conv(3, 2), value=conv(3, 4, 1), head=lin(4, 3), mode="bicubic", padding="reflection"), lambda b: {"x": pixels(b, 3, 6, 6)}, (3,), 1),
    "warped": (lambda: Net(warped, first=conv(3, 3), head=lin(108, 3)), lambda b: {"x": pixels(b, 3, 6, 6), "theta": pixels(b, 6)}, (3,), 1),
    "free_norm": (lambda: Net(free_norm, gamma=weight(5), mlp=mlp(5, 8, 5), alpha=nn.Parameter(torch.tensor([0.5])), w=weight(5), b=weight(5), query=weight(5), head=lin(5, 3)), steps, (3,), 1),
    "hyper_connections": (lambda: Net(hyper_connections, mix=nn.ParameterList(weight(3, 3) for _ in range(2)), read=nn.ParameterList(weight(3) for _ in range(2)), write=nn.ParameterList(weight(3) for _ in range(2)), layers=L(lin(6, 6) for _ in range(2)), head=lin(6, 3)), vector, (3,), 1),
}


def cases():
    return two_styles(lambda name, again: drawn("block", name, BLOCKS[name], again, name in ("routed", "pooled_graph")), BLOCKS)
