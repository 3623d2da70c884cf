"""Files written by hand in which trained weights are operands that are usually constants in the code (statistics, borders, step lengths,
initial values of loops), pooling and filters with all their attributes, and the output of converters from other frameworks: channels last,
shapes computed from shapes, cells as loops. Nothing is kept in `recorded/` except what its README names."""

import torch
import torch.nn as nn
import torch.nn.functional as F

from case import Case, classes, pixels, term
from optimizers import optimizer
from sets.families import weight
from sets.hand_operators import I, S, V, made, planes, steps, vector, write, wv
from sets.hand_written import one

scalar = lambda value: nn.Parameter(torch.tensor(float(value)))


def batch_statistics(s, x):
    """Batch statistics as operands of a normalization in inference form."""
    h = x @ s.w
    mean, var = h.mean(0), (h * h).mean(0) - h.mean(0).square()
    return torch.relu((h - mean) / (var + 1e-3).sqrt() * s.g + s.b) @ s.v


def trained_statistics(s, x):
    h = x @ s.w
    return torch.relu((h - s.m) / (s.k.exp() + 1e-5).sqrt() * s.g + s.b) @ s.v


def trained_range(s, x):
    places = s.start + torch.arange(5).to(x.dtype) * 0.5
    return torch.sin(x @ s.w + places * s.step) @ s.v


def trained_states(s, x):
    """An LSTM whose outputs are all read, and whose initial states are all trained."""
    b = x.shape[0]
    h, c = s.h0[0].expand(b, 3), s.c0[0].expand(b, 3)
    ys = []
    for t in range(5):
        i, o, f, g = (x[:, t] @ s.w[0].t() + h @ s.r[0].t()).chunk(4, 1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        ys.append(h)
    return torch.cat([torch.stack(ys).amax(0), h * c], 1) @ s.v


def past_keys(s, x):
    q, k, v = ((x @ w).unflatten(2, (2, 4)).transpose(1, 2) for w in (s.q, s.k, s.u))
    b = x.shape[0]
    k, v = torch.cat([s.pk.expand(b, -1, -1, -1), k], 2), torch.cat([s.pv.expand(b, -1, -1, -1), v], 2)
    p = ((q @ k.transpose(2, 3)) * 0.5 + s.bias).softmax(-1)
    return torch.cat([(p @ v).transpose(1, 2).flatten(2).mean(1), k.mean((1, 2))], 1) @ s.v


def diagonals(s, x):
    h = torch.einsum("nij,jk->nik", x[:, :4], s.w)
    return torch.cat([torch.einsum("nii->ni", h), torch.einsum("nij->ni", h) * s.g, torch.einsum("nij,nkj,kl->nl", h, h, s.u)], 1) @ s.v


def outer_everything(s, x):
    return torch.einsum("...i,ij,...k,kjl->...l", x, s.w, torch.tanh(x), s.u)


def reversed_trained(s, x, n):
    h = torch.tanh(x @ s.w)
    k = torch.arange(5)[None]
    y = h.gather(1, torch.where(k < n[:, None], n[:, None] - 1 - k, k)[..., None].expand_as(h))
    return (y * s.g[:, None]).mean(1) @ s.v


def own_in_branches(s, x):
    """Weights defined inside the branches."""
    h = torch.tanh(x @ s.w)
    return torch.where(x.sum() > 0, h @ s.v, (h * 2) @ s.v + s.c)


def dilated_pools(s, x):
    h = F.conv2d(x, s.k, padding=1)
    a = F.max_pool2d(F.pad(h, (1, 0, 1, 0), value=-1e9), 2, 2, dilation=2, ceil_mode=False)
    b = F.avg_pool2d(h, 3, 2, padding=1, ceil_mode=True, count_include_pad=True)
    c = F.avg_pool2d(h, 3, 2, padding=1, count_include_pad=False)
    return torch.cat([a.mean((2, 3)), b.amax((2, 3)), c.sum((2, 3))], 1) @ s.v


def same_pools(s, x):
    h = F.conv2d(F.pad(x, (0, 1, 0, 1)), s.k, stride=2)
    a = F.max_pool2d(F.pad(h, (0, 1, 0, 1), value=-1e9), 2, 1)
    b = F.conv_transpose2d(a, s.t, stride=2, padding=1, output_padding=1, dilation=1, groups=2)
    return b.amax((2, 3)) @ s.v


def transposed_options(s, x):
    a = F.conv_transpose1d(x, s.k, s.b, stride=3, padding=1, output_padding=2, dilation=2, groups=2)
    return torch.tanh(a).mean(2) @ s.v


def filters_of_filters(s, x):
    """Filters computed from others in the graph, sliced per group, and a computed bias."""
    k = torch.cat([s.k * s.g.view(-1, 1, 1, 1), (s.k * 0.5).flip(3)], 0)
    return F.relu(F.conv2d(x, k, bias=torch.cat([s.g, -s.g]), groups=2, padding=1)).mean((2, 3)) @ s.v


def old_log_softmax(s, x):
    return (x @ s.w).flatten(1).log_softmax(1) @ s.v


def deep_channels_last(s, x):
    """In tf2onnx's form: channels last, transposed around each convolution, statistics folded into a product and a sum."""
    h = x.permute(0, 3, 1, 2)
    h = F.relu(F.conv2d(F.pad(h, (0, 1, 0, 1)), s.k, stride=2) * s.g.view(-1, 1, 1) + s.b.view(-1, 1, 1))
    h = F.relu6(F.conv2d(h, s.d, padding=1, groups=4) + s.e.view(-1, 1, 1))
    return torch.softmax(h.mean((2, 3)) @ s.w + s.c, 1).log()


def keras_dense(s, x):
    h = x.reshape(-1, 4) @ s.w
    h = torch.relu(h.view(x.shape[0], -1, 6) + s.b)
    m = h.mean(-1, keepdim=True)
    v = (h - m).square().mean(-1, keepdim=True)
    inv = torch.rsqrt(v + 0.001) * s.g
    return (h * inv + (s.e - m * inv)).amax(1) @ s.v


def looped_cell(s, x):
    """A cell as a Loop with an array of rows, like TensorFlow's while."""
    h, ys = torch.zeros(x.shape[0], 5).to(x.dtype), []
    for t in range(5):
        z, n = (torch.cat([x[:, t], h], 1) @ s.w + s.b).split(5, 1)
        h = torch.sigmoid(z) * h + (1 - torch.sigmoid(z)) * torch.tanh(n)
        ys.append(h)
    return torch.stack(ys, 1).mean(1) @ s.v


def image_mean(s, x):
    """In MATLAB's form: an image's mean subtracted, and a normalization across channels."""
    h = F.relu(F.conv2d((x - s.mean) / 1.7, s.k, s.b))
    return F.log_softmax(F.max_pool2d(h, 2, 2).flatten(1) @ s.v.t() + s.c, 1)


def boxes_of_cells(s, x):
    """In the form of Darknet converters: an older Upsample, split cells, positions added."""
    h = F.leaky_relu(F.conv2d(x, s.k, s.b, padding=1), 0.1)
    y = F.interpolate(F.max_pool2d(h, 2, 2), scale_factor=2, mode="nearest")
    z = F.conv2d(torch.cat([y, h], 1), s.d)
    z = z.view(-1, 2, 3, 6, 6).permute(0, 1, 3, 4, 2)
    xy = torch.sigmoid(z[..., :2]) + torch.stack(torch.meshgrid(torch.arange(6), torch.arange(6), indexing="ij")[::-1], -1).to(x.dtype)
    return torch.cat([xy.mean((1, 2, 3)), z[..., 2:].exp().mean((1, 2, 3))], 1)


def seq_first(s, x):
    """In CNTK's form: steps first, then samples."""
    h = torch.tanh(x @ s.w + s.b)
    return h[-1] @ s.v


def double_within(s, x):
    """Weights in float64, an input in float32."""
    return torch.tanh(x @ s.w + s.b) @ s.v


def sequence_map(s, x):
    a, b = (x @ s.w).split([2, 3], 1)
    return torch.cat([torch.tanh(a * s.g).mean(1), torch.tanh(b * s.g).mean(1)], 1) @ s.v


def scanned_pairs(s, x):
    h, m, ys = torch.zeros(x.shape[0], 5).to(x.dtype), torch.zeros(x.shape[0], 5).to(x.dtype), []
    for t in range(5):
        h = torch.tanh(x[:, t] @ s.w + h * s.g + (x[:, 4 - t] @ s.u))
        m = torch.maximum(m, h)
        ys.append(h * m)
    return (torch.stack(ys, 1).mean(1) + m) @ s.v


def smallest(s, x):
    h = torch.tanh(x @ s.w)
    low, where = h.topk(2, 1, largest=False)
    return (low * (where.to(x.dtype) + 1) * s.g).sum(1, keepdim=True) * s.u + h @ s.v


torch.manual_seed(2)  # the same seed as there
OPERANDS = {
    "batch_statistics": (wv() | dict(g=one(5), b=weight(5)), batch_statistics, vector, 15, V + """ <int64[1] zero = {0}> {
  h = MatMul (x, w) m = ReduceMean <axes = [0], keepdims = 0> (h) q = Mul (h, h) e = ReduceMean <axes = [0], keepdims = 0> (q) mm = Mul (m, m) var = Sub (e, mm)
  y = BatchNormalization <epsilon = 0.001> (h, g, b, m, var) r = Relu (y) out = MatMul (r, v) }"""),
    "trained_statistics": (wv() | dict(g=one(5), b=weight(5), m=weight(5), k=weight(5)), trained_statistics, vector, 15, V + """ {
  h = MatMul (x, w) mm = Mul (m, two) var = Exp (k) y = BatchNormalization (h, g, b, m, var) r = Relu (y) out = MatMul (r, v) }""".replace("mm = Mul (m, two) ", "")),
    "trained_range": (wv() | dict(start=scalar(0.3), step=scalar(0.7)), trained_range, vector, 15, V + """ <float far = {2.3}, float half = {0.5}, float more = {0.1}> {
  none = Sub (start, start) limit0 = Add (start, far) a0 = Range (none0, far, half) a = Add (a0, start) b = Mul (a, step) h = MatMul (x, w) c = Add (h, b) d = Sin (c) out = MatMul (d, v) }""".replace("none = Sub (start, start) limit0 = Add (start, far) ", "").replace("none0", "zero").replace("float more = {0.1}", "float zero = {0}")),
    "trained_states": (dict(w=weight(1, 12, 4), r=weight(1, 12, 3), h0=weight(1, 1, 3), c0=weight(1, 1, 3), v=weight(6, 3)), trained_states, steps, 14, S + """ <int64[1] one = {1}, int64[1] three = {3}, int64[1] zero = {0}> {
  t = Transpose <perm = [1, 0, 2]> (x) all = Shape (x) n = Slice (all, zero, one) shape = Concat <axis = 0> (one, n, three) h1 = Expand (h0, shape) c1 = Expand (c0, shape)
  y, hn, cn = LSTM <hidden_size = 3> (t, w, r, , , h1, c1) m = ReduceMax <axes = [0, 1], keepdims = 0> (y) p = Mul (hn, cn) q = Squeeze (p, zero) j = Concat <axis = 1> (m, q) out = MatMul (j, v) }"""),
    "past_keys": (dict(q=weight(4, 8), k=weight(4, 8), u=weight(4, 8), pk=weight(1, 2, 3, 4), pv=weight(1, 2, 3, 4), bias=weight(2, 5, 8), v=weight(12, 3)), past_keys, steps, 23, S + """ <int64[3] rest = {2, 3, 4}, int64[2] mid = {1, 2}> {
  q2 = MatMul (x, q) k2 = MatMul (x, k) v2 = MatMul (x, u) n = Shape <start = 0, end = 1> (x) shape = Concat <axis = 0> (n, rest) a = Expand (pk, shape) b = Expand (pv, shape) one = Constant <value_ints = [1]> ()
  y, keys, values = Attention <q_num_heads = 2, kv_num_heads = 2> (q2, k2, v2, bias, a, b) c = ReduceMean <keepdims = 0> (y, one) d = ReduceMean <keepdims = 0> (keys, mid) j = Concat <axis = 1> (c, d) out = MatMul (j, v) }"""),
    "diagonals": (dict(w=weight(4, 4), g=one(4), u=weight(4, 4), v=weight(12, 3)), diagonals, steps, 13, S + """ <int64[1] zero = {0}, int64[1] four = {4}, int64[1] one = {1}> {
  y = Slice (x, zero, four, one) h = Einsum <equation = "nij,jk->nik"> (y, w) a = Einsum <equation = "nii->ni"> (h) b0 = Einsum <equation = "nij->ni"> (h) b = Mul (b0, g) c = Einsum <equation = "nij, nkj, kl -> nl"> (h, h, u)
  j = Concat <axis = 1> (a, b, c) out = MatMul (j, v) }"""),
    "outer_everything": (dict(w=weight(6, 4), u=weight(6, 4, 3)), outer_everything, vector, 13, V + """ { t = Tanh (x) out = Einsum <equation = "...i,ij,...k,kjl->...l"> (x, w, t, u) }"""),
    "reversed_trained": (dict(w=weight(4, 5), g=one(5), v=weight(5, 3)), reversed_trained, lambda b: steps(b) | {"n": torch.randint(1, 6, (b,))}, 18, """g (float[N, 5, 4] x, int64[N] n) => (float[N, 3] out) <int64[1] one = {1}> {
  a = MatMul (x, w) h = Tanh (a) t = Transpose <perm = [1, 0, 2]> (h) r = ReverseSequence <batch_axis = 1, time_axis = 0> (t, n) y = Transpose <perm = [1, 0, 2]> (r) k = Unsqueeze (g, one) z = Mul (y, k) m = ReduceMean <keepdims = 0> (z, one) out = MatMul (m, v) }"""),
    "dilated_pools": (dict(k=weight(5, 4, 3, 3), v=weight(15, 3)), dilated_pools, planes, 19, I + """ <int64[2] hw = {2, 3}> {
  h = Conv <pads = [1, 1, 1, 1]> (x, k) a0 = MaxPool <kernel_shape = [2, 2], strides = [2, 2], dilations = [2, 2], pads = [1, 1, 0, 0]> (h) b0 = AveragePool <kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1], ceil_mode = 1, count_include_pad = 1> (h)
  c0 = AveragePool <kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]> (h) a = ReduceMean <keepdims = 0> (a0, hw) b = ReduceMax <keepdims = 0> (b0, hw) c = ReduceSum <keepdims = 0> (c0, hw) j = Concat <axis = 1> (a, b, c) out = MatMul (j, v) }"""),
    "same_pools": (dict(k=weight(4, 4, 3, 3), t=weight(4, 2, 3, 3), v=weight(4, 3)), same_pools, planes, 13, I + """ {
  h = Conv <auto_pad = "SAME_UPPER", strides = [2, 2]> (x, k) a = MaxPool <kernel_shape = [2, 2], auto_pad = "SAME_UPPER"> (h) b = ConvTranspose <strides = [2, 2], group = 2, output_shape = [6, 6]> (a, t) c = ReduceMax <axes = [2, 3], keepdims = 0> (b) out = MatMul (c, v) }"""),
    "transposed_options": (dict(k=weight(4, 3, 3), b=weight(6), v=weight(6, 3)), transposed_options, lambda b: {"x": pixels(b, 4, 5)}, 13, """g (float[N, 4, 5] x) => (float[N, 3] out) {
  a = ConvTranspose <strides = [3], pads = [1, 1], output_padding = [2], dilations = [2], group = 2> (x, k, b) h = Tanh (a) c = ReduceMean <axes = [-1], keepdims = 0> (h) out = MatMul (c, v) }"""),
    "filters_of_filters": (dict(k=weight(4, 2, 3, 3), g=one(4), v=weight(8, 3)), filters_of_filters, planes, 13, I + """ <int64[4] apart = {-1, 1, 1, 1}, float half = {0.5}, int64[1] last = {-1}, int64[1] end = {-9}, int64[1] axis = {3}> {
  g4 = Reshape (g, apart) a = Mul (k, g4) b0 = Mul (k, half) b = Slice (b0, last, end, axis, last) kk = Concat <axis = 0> (a, b) n = Neg (g) bias = Concat <axis = 0> (g, n)
  h = Conv <group = 2, pads = [1, 1, 1, 1]> (x, kk, bias) r = Relu (h) f = ReduceMean <axes = [2, 3], keepdims = 0> (r) out = MatMul (f, v) }"""),
    "old_log_softmax": (dict(w=weight(4, 3), v=weight(15, 3)), old_log_softmax, steps, 11, S + """ { a = MatMul (x, w) p = LogSoftmax <axis = 1> (a) f = Flatten (p) out = MatMul (f, v) }"""),
    "deep_channels_last": (dict(k=weight(4, 3, 3, 3), g=one(4), b=weight(4), d=weight(4, 1, 3, 3), e=weight(4), w=weight(4, 3), c=weight(3)), deep_channels_last, lambda b: {"x": pixels(b, 8, 8, 3)}, 13, """g (float[N, 8, 8, 3] x) => (float[N, 3] out) <int64[4] four = {1, 4, 1, 1}, float zero = {0}, float six = {6}> {
  t = Transpose <perm = [0, 3, 1, 2]> (x) y = Conv <auto_pad = "SAME_UPPER", strides = [2, 2]> (t, k) back = Transpose <perm = [0, 2, 3, 1]> (y) m = Mul (back, g) n = Add (m, b) r = Relu (n)
  t2 = Transpose <perm = [0, 3, 1, 2]> (r) q0 = Conv <group = 4, auto_pad = "SAME_UPPER"> (t2, d) e4 = Reshape (e, four) q = Add (q0, e4) back2 = Transpose <perm = [0, 2, 3, 1]> (q) c6 = Clip (back2, zero, six)
  pool = ReduceMean <axes = [1, 2], keepdims = 0> (c6) z0 = MatMul (pool, w) z = Add (z0, c) p = Softmax (z) out = Log (p) }"""),
    "keras_dense": (dict(w=weight(4, 6), b=weight(6), g=one(6), e=weight(6), v=weight(6, 3)), keras_dense, steps, 13, S + """ <int64[2] flat = {-1, 4}, int64[1] zero = {0}, int64[1] one = {1}, int64[1] two = {2}, int64[1] six = {6}, float eps = {0.001}> {
  r = Reshape (x, flat) m0 = MatMul (r, w) n = Shape (x) s0 = Slice (n, zero, two) s = Concat <axis = 0> (s0, six) m = Reshape (m0, s) a = Add (m, b) h = Relu (a)
  mean = ReduceMean <axes = [-1]> (h) d = Sub (h, mean) sq = Mul (d, d) var = ReduceMean <axes = [-1]> (sq) ve = Add (var, eps) rt = Sqrt (ve) inv0 = Reciprocal (rt) inv = Mul (inv0, g)
  p = Mul (h, inv) q0 = Mul (mean, inv) q = Sub (e, q0) o = Add (p, q) k = ReduceMax <axes = [1], keepdims = 0> (o) out = MatMul (k, v) }"""),
    "looped_cell": (dict(w=weight(9, 10), b=weight(10), v=weight(5, 3)), looped_cell, steps, 13, S + """ <int64[1] zero = {0}, int64[1] one = {1}, int64[1] five = {5}, bool yes = {1}, float unit = {1}, int64 at = {1}, float[1] none = {0}> {
  n = Shape (x) b1 = Slice (n, zero, one) shape = Concat <axis = 0> (b1, five) h0 = Expand (none, shape) t5 = Slice (n, one, two) trips = Squeeze (t5, zero) tx = Transpose <perm = [1, 0, 2]> (x)
  last, all = Loop (trips, yes, h0) <body = body (int64 i, bool go, float[M, 5] h) => (bool on, float[M, 5] next, float[M, 5] kept) {
      on = Identity (go) xt = Gather (tx, i) xh = Concat <axis = 1> (xt, h) g0 = MatMul (xh, w) g = Add (g0, b) z0, n0 = Split <axis = 1> (g) z = Sigmoid (z0) nn = Tanh (n0) zh = Mul (z, h) iz = Sub (unit, z) zn = Mul (iz, nn) next = Add (zh, zn) kept = Identity (next) }>
  m = ReduceMean <axes = [0], keepdims = 0> (all) out = MatMul (m, v) }""".replace("int64[1] five = {5},", "int64[1] five = {5}, int64[1] two = {2},")),
    "image_mean": (dict(mean=torch.randn(4, 1, 1) * 0.3 + 1, k=weight(5, 4, 3, 3), b=weight(5), v=weight(3, 20), c=weight(3)), image_mean, planes, 9, I + """ <MEAN4> {
  a = Sub (x, mean) d = Div (a, dev) y = Conv (d, k, b) r = Relu (y) p = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (r) f = Flatten (p) z = Gemm <transB = 1> (f, v, c) out = LogSoftmax <axis = 1> (z) }"""),
    "boxes_of_cells": (dict(k=weight(5, 4, 3, 3), b=weight(5), d=weight(6, 10, 1, 1, scale=0.15)), boxes_of_cells, planes, 9, I + """ <float[4] grow = {1, 1, 2, 2}, int64[5] cells = {-1, 2, 3, 6, 6}> {
  y = Conv <pads = [1, 1, 1, 1]> (x, k, b) h = LeakyRelu <alpha = 0.1> (y) p = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (h) u = Upsample <mode = "nearest"> (p, grow) j = Concat <axis = 1> (u, h) z0 = Conv (j, d) z1 = Reshape (z0, cells) z = Transpose <perm = [0, 1, 3, 4, 2]> (z1)
  a0 = Slice <axes = [4], starts = [0], ends = [2]> (z) a1 = Sigmoid (a0) a2 = Add (a1, grid) a = ReduceMean <axes = [1, 2, 3], keepdims = 0> (a2) c0 = Slice <axes = [-1], starts = [2], ends = [9223372036854775807]> (z) c1 = Exp (c0) c = ReduceMean <axes = [1, 2, 3], keepdims = 0> (c1) out = Concat <axis = 1> (a, c) }"""),
    "seq_first": (wv(4) | dict(b=weight(5)), seq_first, lambda b: {"x": pixels(5, b, 4)}, 9, """g (float[5, N, 4] x) => (float[N, 3] out) <int64 last = {4}> { a = MatMul (x, w) c = Add (a, b) h = Tanh (c) l = Gather <axis = 0> (h, last) out = MatMul (l, v) }"""),
    "double_within": (wv() | dict(b=weight(5)), double_within, vector, 13, V + """ { y = Cast <to = 11> (x) w2 = Cast <to = 11> (w) a = MatMul (y, w2) b2 = Cast <to = 11> (b) c = Add (a, b2) h = Tanh (c) v2 = Cast <to = 11> (v) z = MatMul (h, v2) out = Cast <to = 1> (z) }"""),
    "sequence_map": (dict(w=weight(4, 5), g=one(5), v=weight(10, 3)), sequence_map, steps, 17, S + """ <int64[2] parts = {2, 3}> {
  h = MatMul (x, w) q = SplitToSequence <axis = 1> (h, parts) r = SequenceMap (q) <body = body (float[A, B, 5] y) => (float[A, 5] z) { m = Mul (y, g) t = Tanh (m) z = ReduceMean <axes = [1], keepdims = 0> (t) }> j = ConcatFromSequence <axis = 1> (r) out = MatMul (j, v) }"""),
    "scanned_pairs": (dict(w=weight(4, 5), u=weight(4, 5), g=one(5), v=weight(5, 3)), scanned_pairs, steps, 11, S + """ <float[1, 5] none = {0, 0, 0, 0, 0}, int64[1] five = {5}> {
  n = Shape (x) n0 = Slice <axes = [0]> (n, zero, one) s = Concat <axis = 0> (n0, five) start = Expand (none, s) a = MatMul (x, w) b = MatMul (x, u)
  h, m, ys = Scan <num_scan_inputs = 2, scan_input_axes = [1, 1], scan_input_directions = [0, 1], scan_output_axes = [-2], body = body (float[M, 5] h0, float[M, 5] m0, float[M, 5] p, float[M, 5] q) => (float[M, 5] h1, float[M, 5] m1, float[M, 5] y) {
      hg = Mul (h0, g) c = Sum (p, hg, q) h1 = Tanh (c) m1 = Max (m0, h1) y = Mul (h1, m1) }> (start, start, a, b)
  e = ReduceMean <axes = [1], keepdims = 0> (ys) f = Add (e, m) out = MatMul (f, v) }""".replace("Slice <axes = [0]> (n, zero, one)", "Slice (n, zero, one)").replace("int64[1] five = {5}>", "int64[1] five = {5}, int64[1] zero = {0}, int64[1] one = {1}>")),
    "smallest": (wv() | dict(g=one(2), u=weight(3)), smallest, vector, 13, V + """ <int64[1] two = {2}, int64[1] axis = {1}, float unit = {1}> {
  a = MatMul (x, w) h = Tanh (a) low, at = TopK <largest = 0, axis = 1> (h, two) f = Cast <to = 1> (at) f1 = Add (f, unit) p = Mul (low, f1) q = Mul (p, g) r = ReduceSum (q, axis) m = Mul (r, u) n = MatMul (h, v) out = Add (m, n) }"""),
    "own_in_branches": (dict(w=weight(6, 5), v=weight(5, 3), c=weight(3)), own_in_branches, vector, 13, V + """ <float none = {0}> {
  a = MatMul (x, w) h = Tanh (a) s = ReduceSum <keepdims = 0> (x) p = Greater (s, none)
  out = If (p) <then_branch = t () => (float[N, 3] y) { y = MatMul (h, v) }, else_branch = e () => (float[N, 3] z) <float two = {2}> { k = Mul (h, two) l = MatMul (k, v) z = Add (l, c) }> }"""),
}


def with_constants(opset, graph):
    """Substitutes parts that are too long to be written out."""
    def writer(module, batch, path):
        listed = lambda t: ", ".join(repr(float(k)) for k in t.reshape(-1))
        body = graph
        if "<MEAN4>" in body:
            body = body.replace("<MEAN4>", f"<float[4, 1, 1] mean = {{{listed(module.mean)}}}, float dev = {{1.7}}>")
        if "(a1, grid)" in body:
            grid = torch.stack(torch.meshgrid(torch.arange(6), torch.arange(6), indexing="ij")[::-1], -1).float()
            body = body.replace("<float[4] grow", f"<float[1, 1, 6, 6, 2] grid = {{{listed(grid)}}}, float[4] grow")
        write(opset, body)(module, batch, path)

    return writer


def cases():
    rules = [optimizer("adam", lr=0.01), optimizer("momentum", lr=0.04), optimizer("adadelta", lr=0.5, rho=0.8, eps=1e-4, weight_decay=0.01), optimizer("nesterov", lr=0.02), optimizer("lamb", lr=0.01)]
    for k, (name, (members, run, inputs, opset, graph)) in enumerate(OPERANDS.items()):
        yield Case(f"operand_{name}", lambda members=members, run=run: made(run, members), lambda b, inputs=inputs: inputs(b) | {"y": classes(3, b)}, [term("nll")] if name in ("image_mean",) else [term("cross_entropy")], rules[k % 5], inputs=tuple(inputs(1)),
                   exporter="hand", opset=opset, mode="eval", dynamic_batch=True, batch_size=6, batch_sizes=[6, 6, 5, 6, 2, 4], steps=6, grad_accumulation=1 + k % 2, write=with_constants(opset, graph))
