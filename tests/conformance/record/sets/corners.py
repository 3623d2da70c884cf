"""Corner cases that the other sets leave out: inputs of other types and without a batch axis, targets by positions of all samples, regions
of other precisions, statistics used twice or partly frozen, gradients where functions are not differentiable, ties among quantized values,
recent layers. Each in two styles, with a recipe selected by name."""
import dataclasses
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

from case import classes, pixels
from drawing import two_styles
from sets.families import Net, weight
from sets.further import EDGES, L, block, conv, conv1, drawn, image, lin, mlp, one, steps, tokens, vector, wave

P = nn.Parameter


# Inputs


def bytes_image(s, x):
    """Images as they are stored, channels last."""
    h = (x.permute(0, 3, 1, 2).float() / 255 - s.mean[:, None, None]) / s.std[:, None, None]
    return s.head(F.relu(s.first(h)).mean((2, 3)))


def narrow_tokens(s, x):
    return s.head(torch.tanh(s.body(s.table(x) + s.places[:, : x.shape[1]])).mean(1))


def flags(s, x, keep):
    h = s.up(x).masked_fill(~keep[..., None], 0.0)
    score = (h @ h.transpose(1, 2) / 8**0.5).masked_fill(~keep[:, None], -torch.inf)
    return s.head((score.softmax(-1) @ h * keep[..., None]).sum(1) / keep.sum(1, keepdim=True))


def one_number(s, x, t):
    """A time value that all samples share."""
    angle = t * s.rates
    return s.head(torch.tanh(s.body(x) + s.time(torch.cat([angle.sin(), angle.cos()], -1))))


def shared_graph(s, x, adjacency):
    """A matrix shared by all samples, given with each batch."""
    a = adjacency / adjacency.sum(1, keepdim=True)
    h = F.relu(s.first(a @ x))
    return s.head((a @ h).mean(1))


def wide_numbers(s, x):
    """float64 inputs, float32 inside."""
    return s.head(torch.tanh(s.body((x - x.mean(1, keepdim=True)).float())))


def flat_places(s, x):
    """Logits of all positions of all samples in one list, as language models return them."""
    h = s.body(s.table(x))
    return s.head(h).view(-1, 11)


def flat_shifted(s, x):
    """The last position is removed before the list is made."""
    return s.head(torch.tanh(s.body(s.table(x))))[..., :-1, :].contiguous().view(-1, 11)


def per_pixel_list(s, x):
    return s.head(F.relu(s.first(x)).permute(0, 2, 3, 1)).reshape(-1, 3)


# Regions of another precision


def double_island(s, x):
    h = s.body(x)
    return s.head((h.double().cumsum(1).logsumexp(1, keepdim=True) - h.double()).float())


def bfloat_island(s, x):
    h = torch.tanh(s.body(x))
    return s.head(h + 0.1 * (h.bfloat16() * 2).float())


def half_softmax(s, x):
    """Scores in float16 computed from float32, as written for inference."""
    h = torch.tanh(s.body(x))
    return s.head(h * (h.half() * 0.5).softmax(-1).to(h.dtype))


def integer_arithmetic(s, x):
    bucket = (x * 2).floor().clamp(-4, 4).long()
    low, high = bucket % 3, torch.div(bucket + 4, 3, rounding_mode="floor")
    return s.head((s.low(low) * s.high(high)).flatten(1))


# Statistics


def seen_twice(s, x, other):
    """One normalization applied to two inputs, one after the other."""
    a, b = (s.head(F.relu(s.norm(s.first(v)))) for v in (x, other))
    return a - b


def by_places(s, x):
    """Samples and positions as the batch of a normalization."""
    b, t, _ = x.shape
    h = F.relu(s.norm(s.first(x).reshape(b * t, -1))).view(b, t, -1)
    return s.head(h.amax(1))


def half_frozen(s, x):
    h = F.batch_norm(s.first(x), s.norm.running_mean, s.norm.running_var, s.norm.weight, s.norm.bias, False, 0.1, 1e-5)
    return s.head(F.relu(s.second(h)).mean((2, 3)))


def no_history(s, x):
    """Batch statistics in training and in inference."""
    return s.head(F.relu(s.norm(s.first(x))).mean((2, 3)))


def instance_history(s, x):
    return s.head(F.relu(s.norm(s.first(x))).amax((2, 3)))


def layer_by_instance(s, x):
    """Layer normalization as an instance normalization of one channel."""
    h = s.first(x)
    h = F.instance_norm(h.reshape(1, h.shape[0], -1)).view_as(h) * s.scale[:, None, None] + s.shift[:, None, None]
    return s.head(F.silu(h).mean((2, 3)))


def global_response(s, x):
    """ConvNeXt V2."""
    h = F.gelu(s.up(s.first(x).permute(0, 2, 3, 1)))
    g = h.norm(p=2, dim=(1, 2), keepdim=True)
    h = s.scale * (h * g / (g.mean(-1, keepdim=True) + 1e-6)) + s.shift + h
    return s.head(s.down(h).mean((1, 2)))


# Points without a derivative


def same_point(s, x):
    """Pairwise distances of a point cloud, including those of each point to itself."""
    h = s.body(x)
    return s.head((h.unsqueeze(1) - h.unsqueeze(2)).norm(dim=-1).flatten(1))


def same_point_cdist(s, x):
    h = s.body(x)
    return s.head(torch.cdist(h, h, compute_mode="donot_use_mm_for_euclid_dist").flatten(1))


def same_point_expanded(s, x):
    """The same from squares and products, which may leave a distance of 0 a little negative."""
    h = s.body(x)
    return s.head(torch.exp(-torch.cdist(h, h, compute_mode="use_mm_for_euclid_dist").square()).flatten(1))


def same_point_manhattan(s, x):
    h = s.body(x)
    return s.head(torch.cdist(h, h, p=1.0).flatten(1))


def empty_rows(s, x):
    """Unit vectors of rows that are zero."""
    h = F.relu(s.body(x)) * s.keep[:, None]
    return s.head(F.normalize(h, dim=-1).flatten(1))


def constant_deviation(s, x):
    """A standard deviation over equal values."""
    h = torch.cat([s.body(x), s.token.expand(x.shape[0], 1, -1)], 1) * s.keep[:, None]
    return s.head(torch.cat([h[:, :4].std(1), h[:, 4:8].std(1), h.mean(1)], 1))


def empty_cosine(s, x):
    h = F.relu(s.body(x)) * s.keep[:, None]
    return s.head(F.cosine_similarity(h[:, :, None], h[:, None], dim=-1).flatten(1))


def barred_paths(s, x):
    """A chain some of whose transitions are forbidden."""
    e = s.body(x)
    t = s.steps.masked_fill(s.barred, -torch.inf)
    a = e[:, 0]
    for k in range(1, e.shape[1]):
        a = torch.logsumexp(a[:, :, None] + t, 1) + e[:, k]
    return a


def added_logs(s, x):
    h = s.body(x).masked_fill(s.barred, -torch.inf)
    return s.head(torch.logaddexp(h[:, :4], s.body(x)[:, 4:]))


def barred_actions(s, x, keep):
    return s.head(torch.tanh(s.body(x))).masked_fill(~keep, -torch.inf).log_softmax(-1).masked_fill(~keep, 0.0)


# Ties among quantized values


def quantised(h):
    return torch.fake_quantize_per_tensor_affine(h, 0.5, 0, -128, 127)


def tied_windows(s, x):
    return s.head(F.max_pool2d(quantised(s.first(x)), 3, 2, 1).flatten(1))


def tied_map(s, x):
    return s.head(F.adaptive_max_pool2d(quantised(s.first(x)), 1).flatten(1))


def tied_axis(s, x):
    return s.head(quantised(s.body(x)).max(1)[0])


def tied_amax(s, x):
    return s.head(quantised(s.body(x)).amax(1))


def tied_best(s, x):
    return s.head(quantised(s.body(x)).topk(3, 1)[0].flatten(1))


def tied_branches(s, x):
    return s.head(torch.maximum(quantised(s.left(x)), quantised(s.right(x))))


def tied_maxout(s, x):
    return s.head(quantised(s.body(x)).view(x.shape[0], -1, 4).max(-1)[0])


def tied_sorted(s, x):
    return s.head(quantised(s.body(x)).sort(1, stable=True)[0].flatten(1))


def tied_extremes(s, x):
    h = quantised(s.body(x))
    return s.head(torch.cat([h.amin(1), h.min(1)[0], torch.minimum(h[:, 0], h[:, 1])], -1))


# Recent layers


def register_tokens(s, x):
    """DINOv2 with registers and LayerScale, positions interpolated."""
    h = s.patch(x).flatten(2).transpose(1, 2)
    p = F.interpolate(s.places.view(1, 3, 3, 8).permute(0, 3, 1, 2), size=(4, 4), mode="bicubic", antialias=False, align_corners=False).flatten(2).transpose(1, 2)
    h = torch.cat([s.cls.expand(x.shape[0], -1, -1), s.registers.expand(x.shape[0], -1, -1), h + p], 1)
    q, k, v = s.qkv(s.norm(h)).view(x.shape[0], -1, 3, 2, 4).permute(2, 0, 3, 1, 4)
    h = h + s.gamma * F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
    return s.head(torch.cat([h[:, 0], h[:, 3:].mean(1)], 1))


def sliding_window(s, x):
    """Gemma: a window of three, soft-capped scores and logits, two queries per key, attention sinks."""
    b, t = x.shape
    h = s.table(x) * 8**0.5
    q, k, v = s.q(h).view(b, t, 4, 4).transpose(1, 2), s.k(h).view(b, t, 2, 4).transpose(1, 2), s.v(h).view(b, t, 2, 4).transpose(1, 2)
    k, v = (y.repeat_interleave(2, 1) for y in (k, v))
    at = torch.arange(t)
    gap = at[:, None] - at[None]
    score = 5 * torch.tanh(q @ k.transpose(-1, -2) / 10)
    score = score.masked_fill((gap < 0) | (gap >= 3), torch.finfo(score.dtype).min)
    sinks = s.sinks.view(1, 4, 1, 1).expand(b, -1, t, 1)
    p = torch.cat([score, sinks], -1).softmax(-1)[..., :-1]
    h = h + s.o((p @ v).transpose(1, 2).reshape(b, t, -1))
    return 3 * torch.tanh(F.rms_norm(h, (8,), s.norm, 1e-6) @ s.table.weight.t() / 3)


def experts_shared(s, x):
    """DeepSeek: sigmoid gates with a bias used only for the selection, expert groups, a shared expert, the load as a second loss."""
    h = s.table(x)
    score = s.router(h).sigmoid()
    choice = score.detach() + s.bias
    best = choice.view(*choice.shape[:-1], 2, 2).topk(2, -1)[0].sum(-1)
    group = torch.zeros_like(best).scatter_(-1, best.argmax(-1, keepdim=True), 1.0).repeat_interleave(2, -1)
    at = choice.masked_fill(group == 0, -1.0).topk(2, -1)[1]
    w = score.gather(-1, at)
    w = w / w.sum(-1, keepdim=True) * 1.5
    y = torch.stack([e(h) for e in s.experts], -2)
    y = (y.gather(-2, at[..., None].expand(*at.shape, 8)) * w[..., None]).sum(-2)
    return s.head(h + y + s.shared(h)), (F.one_hot(at, 4).float().sum((0, 1, 2)) / at.numel() * score.mean((0, 1))).sum() * 4


def token_shift_conv(s, x):
    """A causal short convolution with a gate before a recurrence written as a cumulative sum (minGRU in log space)."""
    h = s.short(F.pad(x.transpose(1, 2), (2, 0))).transpose(1, 2)
    gate, value = s.gates(h).chunk(2, -1)
    log_keep, log_take = -F.softplus(gate), -F.softplus(-gate)
    log_value = torch.where(value >= 0, (F.relu(value) + 0.5).log(), -F.softplus(-value))
    total = F.pad(log_keep.cumsum(1), (0, 0, 1, 0))[:, 1:]
    return s.head((total + (log_take + log_value - total).logcumsumexp(1)).exp()[:, -1])


def relative_gather(s, x):
    """DeBERTa: content-to-position and position-to-content scores, by gathered distances."""
    b, t = x.shape
    h = s.table(x)
    q, k, r_q, r_k = s.q(h), s.k(h), s.q(s.distances), s.k(s.distances)
    at = (torch.arange(t)[:, None] - torch.arange(t)[None]).clamp(-3, 3) + 3
    c2p = (q @ r_k.t()).gather(-1, at.expand(b, t, t))
    p2c = (k @ r_q.t()).gather(-1, at.expand(b, t, t)).transpose(-1, -2)
    p = ((q @ k.transpose(-1, -2) + c2p + p2c) / math.sqrt(3 * 8)).softmax(-1)
    return s.head(h + p @ s.v(h))


def bias_buckets(s, x):
    """T5's relative buckets, logarithmic in the upper half."""
    b, t = x.shape
    h = s.table(x)
    gap = torch.arange(t)[None] - torch.arange(t)[:, None]
    n = gap.abs()
    large = 2 + (torch.log(n.float().clamp(min=1) / 2) / math.log(8 / 2) * 2).long()
    bucket = (gap > 0).long() * 4 + torch.where(n < 2, n, large.clamp(max=3))
    bias = s.bias(bucket).permute(2, 0, 1)
    q, k, v = (m(h).view(b, t, 2, 4).transpose(1, 2) for m in (s.q, s.k, s.v))
    return s.head((((q @ k.transpose(-1, -2) + bias).softmax(-1)) @ v).transpose(1, 2).flatten(2) + h)


def time_embedded(s, x, t):
    """A step of a diffusion model: sinusoidal time embedding, scale and shift in the blocks, group norms."""
    f = torch.exp(-math.log(1000.0) * torch.arange(4) / 4)
    e = t[:, None].float() * f[None]
    e = s.time(torch.cat([e.cos(), e.sin()], -1))
    h = s.first(x)
    scale, shift = s.affine(F.silu(e))[:, :, None, None].chunk(2, 1)
    y = s.second(F.silu(s.norm(h) * (1 + scale) + shift))
    down = F.avg_pool2d(h + y, 2)
    up = F.interpolate(s.third(down), scale_factor=2, mode="nearest")
    return s.last(torch.cat([h, up], 1))


def gated_delta(s, x):
    """A state that each step rotates and writes, in chunks of four steps."""
    q, k, v = (F.normalize(m(x), dim=-1) for m in (s.q, s.k, s.v))
    beta, decay = s.beta(x).sigmoid(), s.decay(x).sigmoid()
    state, out = torch.zeros(x.shape[0], 4, 4), []
    for i in range(x.shape[1]):
        kept = state * decay[:, i, :, None]
        old = torch.einsum("bkv,bk->bv", kept, k[:, i])
        state = kept + torch.einsum("bk,bv->bkv", k[:, i], beta[:, i] * (v[:, i] - old))
        out.append(torch.einsum("bkv,bk->bv", state, q[:, i]))
    return s.head(torch.stack(out, 1).flatten(1))


def inner_gradient(s, x):
    """The derivative of a network by an explicit chain rule: a network that is trained through its derivative."""
    h = x @ s.w1.t() + s.b1
    u = torch.tanh(h) @ s.w2
    du = ((1 - torch.tanh(h).square()) * s.w2) @ s.w1
    return torch.cat([u[:, None], du], 1)


def matrix_inverse_series(s, x):
    """The exponential and the inverse of a small matrix by their series."""
    a = s.a - s.a.t()
    e, p = torch.eye(6), torch.eye(6)
    for k in range(1, 5):
        p = p @ a / k
        e = e + p
    n = torch.eye(6) * 0.2
    for _ in range(3):
        n = 2 * n - n @ (torch.eye(6) * 2 + 0.1 * a @ a.t()) @ n
    return s.head(x @ e @ n)


def attention_over_channels(s, x):
    """Restormer: attention between channels, with a temperature per head."""
    b, c, h, w = x.shape
    q, k, v = s.depth(s.qkv(x)).chunk(3, 1)
    q, k, v = (y.reshape(b, 2, 4, h * w) for y in (q, k, v))
    a = (F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).transpose(-2, -1) * s.temperature).softmax(-1)
    return s.head((a @ v).reshape(b, 8, h, w).mean((2, 3)))


def by_regions(s, x):
    """BiFormer: each region attends to the two regions that are most similar."""
    b = x.shape[0]
    r = s.up(x.permute(0, 2, 3, 1)).view(b, 2, 4, 2, 4, 8).transpose(2, 3).reshape(b, 4, 16, 8)
    q, k, v = s.q(r), s.k(r), s.v(r)
    near = (q.mean(2) @ k.mean(2).transpose(1, 2)).topk(2, -1)[1]
    at = near[..., None, None].expand(-1, -1, -1, 16, 8)
    kk, vv = (y[:, None].expand(-1, 4, -1, -1, -1).gather(2, at).flatten(2, 3) for y in (k, v))
    y = (q @ kk.transpose(-1, -2) / 8**0.5).softmax(-1) @ vv
    return s.head(y.mean((1, 2)))


def snake(s, x):
    h = s.first(x)
    h = h + (1 / (s.a[:, None] + 1e-9)) * torch.sin(s.a[:, None] * h).square()
    return s.head(F.glu(s.second(h), 1).mean(2))


def scanned_four_ways(s, x):
    """VMamba: four scan orders of the positions, one scan each, merged again."""
    b, c, h, w = x.shape
    y = s.up(x)
    a = torch.stack([y.flatten(2), y.transpose(2, 3).flatten(2)], 1)
    a = torch.cat([a, a.flip(-1)], 1)
    delta = F.softplus(torch.einsum("bkcl,kc->bkl", a, s.delta))
    state = (delta[:, :, None] * a).cumsum(-1) * torch.exp(-delta.cumsum(-1)[:, :, None] * 0.1)
    state = state[:, :2] + state[:, 2:].flip(-1)
    y = state[:, 0] + state[:, 1].view(b, 4, w, h).transpose(2, 3).flatten(2)
    return s.head(y.mean(-1))


def segment_softmax(s, x):
    """Attention over the edges of a graph, with a softmax over the edges that end at a node."""
    source, aim = s.edges
    h = s.first(x)
    score = F.leaky_relu((torch.cat([h[:, source], h[:, aim]], -1) * s.a).sum(-1), 0.2)
    top = torch.full((x.shape[0], 6), -torch.inf).scatter_reduce(1, aim.expand(x.shape[0], -1), score, "amax")
    e = (score - top[:, aim]).exp()
    total = torch.zeros(x.shape[0], 6).scatter_add(1, aim.expand(x.shape[0], -1), e)
    p = e / (total[:, aim] + 1e-9)
    out = torch.zeros_like(h).index_add(1, aim, p[..., None] * h[:, source])
    return s.head(F.elu(out).mean(1))


NORM = lambda n: nn.BatchNorm2d(n)
points = lambda b: {"x": pixels(b, 8, 5)}
keep = lambda b, *shape: torch.cat([torch.ones(b, 1), torch.randint(0, 2, (b, shape[-1] - 1)).float()], 1).bool()
quad = lambda: dict(q=lin(5, 4), k=lin(5, 4), v=lin(5, 4))
half = lambda n, k: torch.tensor([1.0] * k + [0.0] * (n - k))

CORNERS = {
    "bytes_image": (lambda: Net(bytes_image, mean=torch.tensor([0.48, 0.45, 0.4]), std=torch.tensor([0.23, 0.22, 0.225]), first=conv(3, 4), head=lin(4, 3)), lambda b: {"x": torch.randint(0, 256, (b, 8, 8, 3), dtype=torch.uint8)}, (3,), 1),
    "narrow_tokens": (lambda: Net(narrow_tokens, table=nn.Embedding(11, 8), places=weight(1, 8, 8), body=lin(8, 8), head=lin(8, 3)), lambda b: {"x": classes(11, b, 6).int()}, (3,), 1),
    "flags": (lambda: Net(flags, up=lin(5, 8), head=lin(8, 3)), lambda b: steps(b) | {"keep": keep(b, 8)}, (3,), 1),
    "one_number": (lambda: Net(one_number, body=lin(6, 8), time=lin(6, 8), rates=P(torch.tensor([1.0, 2.0, 4.0])), head=lin(8, 3)), lambda b: vector(b) | {"t": torch.rand(1) * 3}, (3,), 1),
    "shared_graph": (lambda: Net(shared_graph, first=lin(4, 6), head=lin(6, 3)), lambda b: {"x": pixels(b, 7, 4), "adjacency": torch.rand(7, 7) + 0.1}, (3,), 1),
    "wide_numbers": (lambda: Net(wide_numbers, body=lin(6, 8), head=lin(8, 3)), lambda b: {"x": pixels(b, 6).double()}, (3,), 1),
    "double_island": (lambda: Net(double_island, body=lin(6, 8), head=lin(8, 3)), vector, (3,), 1),
    "bfloat_island": (lambda: Net(bfloat_island, body=lin(6, 8), head=lin(8, 3)), vector, (3,), 1),
    "half_softmax": (lambda: Net(half_softmax, body=lin(6, 8), head=lin(8, 3)), vector, (3,), 1),
    "integer_arithmetic": (lambda: Net(integer_arithmetic, low=nn.Embedding(3, 4), high=nn.Embedding(4, 4), head=lin(24, 3)), vector, (3,), 1),
    "seen_twice": (lambda: Net(seen_twice, first=lin(6, 8), norm=nn.BatchNorm1d(8), head=lin(8, 3)), lambda b: vector(b) | {"other": pixels(b, 6)}, (3,), 1),
    "by_places": (lambda: Net(by_places, first=lin(5, 8), norm=nn.BatchNorm1d(8), head=lin(8, 3)), steps, (3,), 1),
    "half_frozen": (lambda: Net(half_frozen, first=conv(3, 4), norm=NORM(4), second=conv(4, 5), head=lin(5, 3)), image, (3,), 1),
    "no_history": (lambda: Net(no_history, first=conv(3, 4), norm=nn.BatchNorm2d(4, track_running_stats=False), head=lin(4, 3)), image, (3,), 1),
    "instance_history": (lambda: Net(instance_history, first=conv(3, 4), norm=nn.InstanceNorm2d(4, affine=True, track_running_stats=True), head=lin(4, 3)), image, (3,), 1),
    "layer_by_instance": (lambda: Net(layer_by_instance, first=conv(3, 4), scale=one(4), shift=weight(4), head=lin(4, 3)), image, (3,), 1),
    "global_response": (lambda: Net(global_response, first=conv(3, 4, 7, groups=1), up=lin(4, 8), scale=weight(8), shift=weight(8), down=lin(8, 4), head=lin(4, 3)), image, (3,), 1),
    "same_point": (lambda: Net(same_point, body=lin(5, 4), head=lin(64, 3)), points, (3,), 1),
    "same_point_cdist": (lambda: Net(same_point_cdist, body=lin(5, 4), head=lin(64, 3)), points, (3,), 1),
    "same_point_expanded": (lambda: Net(same_point_expanded, body=lin(5, 4), head=lin(64, 3)), points, (3,), 1),
    "same_point_manhattan": (lambda: Net(same_point_manhattan, body=lin(5, 4), head=lin(64, 3)), points, (3,), 1),
    "empty_rows": (lambda: Net(empty_rows, body=lin(5, 4), keep=half(8, 5), head=lin(32, 3)), points, (3,), 1),
    "constant_deviation": (lambda: Net(constant_deviation, body=lin(5, 4), token=weight(1, 1, 4), keep=half(9, 4), head=lin(12, 3)), points, (3,), 1),
    "empty_cosine": (lambda: Net(empty_cosine, body=lin(5, 4), keep=half(8, 5), head=lin(64, 3)), points, (3,), 1),
    "barred_paths": (lambda: Net(barred_paths, body=lin(5, 4), steps=weight(4, 4), barred=torch.tensor([[0, 1, 0, 1], [0, 0, 1, 0], [1, 1, 1, 1], [0, 0, 0, 0]]).bool().t().contiguous()), steps, (4,), 1),
    "added_logs": (lambda: Net(added_logs, body=lin(6, 8), barred=torch.tensor([0, 1, 0, 1, 0, 0, 0, 0]).bool(), head=lin(4, 3)), vector, (3,), 1),
    "barred_actions": (lambda: Net(barred_actions, body=lin(6, 8), head=lin(8, 4)), lambda b: vector(b) | {"keep": keep(b, 4)}, (4,), 0),
    "tied_windows": (lambda: Net(tied_windows, first=conv(3, 4), head=lin(64, 3)), image, (3,), 1),
    "tied_map": (lambda: Net(tied_map, first=conv(3, 4), head=lin(4, 3)), image, (3,), 1),
    "tied_axis": (lambda: Net(tied_axis, body=lin(5, 6), head=lin(6, 3)), steps, (3,), 1),
    "tied_amax": (lambda: Net(tied_amax, body=lin(5, 6), head=lin(6, 3)), steps, (3,), 1),
    "tied_best": (lambda: Net(tied_best, body=lin(5, 6), head=lin(18, 3)), steps, (3,), 1),
    "tied_branches": (lambda: Net(tied_branches, left=lin(6, 8), right=lin(6, 8), head=lin(8, 3)), vector, (3,), 1),
    "tied_maxout": (lambda: Net(tied_maxout, body=lin(6, 24), head=lin(6, 3)), vector, (3,), 1),
    "tied_sorted": (lambda: Net(tied_sorted, body=lin(5, 4), head=lin(32, 3)), steps, (3,), 1),
    "tied_extremes": (lambda: Net(tied_extremes, body=lin(5, 6), head=lin(18, 3)), steps, (3,), 1),
    "register_tokens": (lambda: Net(register_tokens, patch=nn.Conv2d(3, 8, 2, 2), places=weight(1, 9, 8), cls=weight(1, 1, 8), registers=weight(1, 2, 8), norm=nn.LayerNorm(8), qkv=lin(8, 24), gamma=weight(8), head=lin(16, 3)), image, (3,), 1),
    "sliding_window": (lambda: Net(sliding_window, table=nn.Embedding(11, 8), q=lin(8, 16), k=lin(8, 8), v=lin(8, 8), o=lin(16, 8), sinks=weight(4), norm=one(8)), tokens, (6, 11), 2),
    "experts_shared": (lambda: Net(experts_shared, table=nn.Embedding(11, 8), router=lin(8, 4, bias=False), bias=torch.tensor([0.1, -0.1, 0.05, 0.0]), experts=L(mlp(8, 6, 8) for _ in range(4)), shared=mlp(8, 6, 8), head=lin(8, 11)), tokens, (6, 11), 2),
    "token_shift_conv": (lambda: Net(token_shift_conv, short=nn.Conv1d(5, 5, 3, groups=5), gates=lin(5, 12), head=lin(6, 3)), steps, (3,), 1),
    "relative_gather": (lambda: Net(relative_gather, table=nn.Embedding(11, 8), distances=weight(7, 8), q=lin(8, 8), k=lin(8, 8), v=lin(8, 8), head=lin(8, 11)), tokens, (6, 11), 2),
    "bias_buckets": (lambda: Net(bias_buckets, table=nn.Embedding(11, 8), bias=nn.Embedding(8, 2), q=lin(8, 8), k=lin(8, 8), v=lin(8, 8), head=lin(8, 11)), tokens, (6, 11), 2),
    "time_embedded": (lambda: Net(time_embedded, time=mlp(8, 12, 8), first=conv(3, 8), norm=nn.GroupNorm(2, 8), affine=lin(8, 16), second=conv(8, 8), third=conv(8, 8), last=conv(16, 3)), lambda b: image(b) | {"t": classes(1000, b)}, (3, 8, 8), 0),
    "gated_delta": (lambda: Net(gated_delta, **quad(), beta=lin(5, 4), decay=lin(5, 4), head=lin(32, 3)), steps, (3,), 1),
    "inner_gradient": (lambda: Net(inner_gradient, w1=weight(8, 6), b1=weight(8), w2=weight(8)), vector, (7,), 0),
    "inverse_series": (lambda: Net(matrix_inverse_series, a=weight(6, 6), head=lin(6, 3)), vector, (3,), 1),
    "over_channels": (lambda: Net(attention_over_channels, qkv=nn.Conv2d(3, 24, 1), depth=conv(24, 24, groups=24), temperature=one(2, 1, 1), head=lin(8, 3)), image, (3,), 1),
    "by_regions": (lambda: Net(by_regions, up=lin(3, 8), q=lin(8, 8), k=lin(8, 8), v=lin(8, 8), head=lin(8, 3)), image, (3,), 1),
    "snake": (lambda: Net(snake, first=conv1(1, 6, 7), a=one(6), second=conv1(6, 8), head=lin(4, 3)), wave, (3,), 1),
    "four_ways": (lambda: Net(scanned_four_ways, up=conv(3, 4), delta=weight(4, 4), head=lin(4, 3)), image, (3,), 1),
    "segment_softmax": (lambda: Net(segment_softmax, edges=EDGES, first=lin(4, 6), a=weight(12), head=lin(6, 3)), lambda b: {"x": pixels(b, 6, 4)}, (3,), 1),
}

WITHOUT_BATCH = ("shared_graph", "one_number")  # one input of these has no batch axis, and the recorder would open the first axis of all

# name: as above, and how many positions of a sample are in the list
LISTS = {
    "flat_places": (lambda: Net(flat_places, table=nn.Embedding(11, 8), body=block(8), head=lin(8, 11)), tokens, 6, 11),
    "flat_shifted": (lambda: Net(flat_shifted, table=nn.Embedding(11, 8), body=lin(8, 8), head=lin(8, 11)), tokens, 5, 11),
    "per_pixel_list": (lambda: Net(per_pixel_list, first=conv(3, 4), head=lin(4, 3)), image, 64, 3),
}


def listed(name, again):
    """Targets are also one list of all positions of all samples."""
    module, inputs, places, n = LISTS[name]
    case = drawn(name, (module, inputs, (n,), 1), again)
    return dataclasses.replace(case, name=case.name.replace("further", "corner"), batch=lambda b: inputs(b) | {"y": classes(n, b * places)}, losses=[{"type": "cross_entropy", "output": "out", "target": "y"}])


def cases():
    def case(name, again):
        made = drawn(name, CORNERS[name], again, side=name == "experts_shared")
        return dataclasses.replace(made, name=made.name.replace("further", "corner"), dynamic_batch=made.dynamic_batch and name not in WITHOUT_BATCH)

    yield from two_styles(case, CORNERS)
    yield from two_styles(listed, LISTS)
