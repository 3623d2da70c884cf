"""Files written by hand with operators and attributes that exporters seldom write: secondary outputs, trained operands that are usually
constant, recurrent cells with all their options, negative axes, other orders of samples. A PyTorch module defines what each computes.
Nothing is kept in `recorded/` except what its README names."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

from case import Case, classes, pixels, term
from optimizers import optimizer
from sets.families import Net, weight
from sets.hand_written import one, text

vector, steps, planes = (lambda b: {"x": pixels(b, 6)}), (lambda b: {"x": pixels(b, 5, 4)}), (lambda b: {"x": pixels(b, 4, 6, 6)})
V, S, I = (f"g (float[N, {dims}] x) => (float[N, 3] out)" for dims in ("6", "5, 4", "4, 6, 6"))
wv = lambda n=6, h=5, o=3: dict(w=weight(n, h), v=weight(h, o))


def gates_rnn(s, x):
    """Two directions, other activations, clipping, lengths, a trained initial state."""
    outs = []
    for d, (f, order) in enumerate(((lambda a: F.leaky_relu(a, 0.1), range(5)), (lambda a: 0.9 * torch.tanh(0.7 * a), range(4, -1, -1)))):
        h = s.start[d].expand(x.shape[0], 3)
        for t in order:
            a = x[:, t] @ s.w[d].t() + h @ s.r[d].t() + s.b[d, :3] + s.b[d, 3:]
            h = f(a.clamp(-1, 1))
        outs.append(h)
    return torch.cat(outs, 1) @ s.v


def gates_gru(s, x):
    h, total = torch.zeros(x.shape[0], 3, dtype=x.dtype), 0
    for t in range(5):
        z, r, n = (x[:, t] @ s.w[0].t() + s.b[0, :9]).chunk(3, 1)
        rz, rr, rn = s.r[0].chunk(3)
        bz, br, bn = s.b[0, 9:].chunk(3)
        z, r = F.hardsigmoid((z + h @ rz.t() + bz) * 6 * 0.2), F.hardsigmoid((r + h @ rr.t() + br) * 6 * 0.2)
        n = F.softsign(n + (r * h) @ rn.t() + bn)
        h = (1 - z) * n + z * h
        total = total + h
    return total @ s.v


def gates_lstm(s, x):
    """Peepholes, coupled input and forget gates, a clipping bound."""
    h = c = torch.zeros(x.shape[0], 3, dtype=x.dtype)
    for t in range(5):
        i, o, f, g = (x[:, t] @ s.w[0].t() + h @ s.r[0].t() + s.b[0, :12] + s.b[0, 12:]).chunk(4, 1)
        pi, po, pf = s.p[0].chunk(3)
        i = torch.sigmoid(i + pi * c)
        f = torch.sigmoid(f + pf * c)
        c = f * c + i * torch.tanh(g)
        h = torch.sigmoid(o + po * c) * torch.tanh(c)
    return torch.cat([h, c], 1) @ s.v


def reversed_parts(s, x, n):
    k = torch.arange(5)[None]
    y = x.gather(1, torch.where(k < n[:, None], n[:, None] - 1 - k, k)[..., None].expand_as(x))
    return (torch.tanh(y @ s.w).cumsum(1)[:, 2]) @ s.v


def statistics_out(s, x):
    """The mean and the inverse standard deviation, which a normalization returns besides its first output."""
    h = x @ s.w
    mean, inverse = h.mean(-1, keepdim=True), torch.rsqrt(h.var(-1, keepdim=True, unbiased=False) + 1e-5)
    return torch.cat([((h - mean) * inverse * s.g + s.b).mean(1), mean[:, :, 0], torch.log(inverse[:, :, 0])], 1) @ s.v


def deformed(s, x):
    import torchvision.ops

    return torchvision.ops.deform_conv2d(x, torch.tanh(F.conv2d(x, s.o, padding=1)), s.k, s.kb, padding=1, mask=torch.sigmoid(F.conv2d(x, s.m, padding=1))).mean((2, 3)) @ s.v


def kept_places(s, x):
    y, where = F.max_pool2d(F.conv2d(x, s.k, padding=1), 2, return_indices=True)
    return (F.max_unpool2d(torch.tanh(y), where, 2) * s.g).mean((2, 3)) @ s.v


def shuffled_pixels(s, x):
    h = F.conv2d(x, s.k, padding=1)
    b, c, hh, ww = h.shape
    y = h.view(b, 2, 2, 2, hh, ww).permute(0, 3, 4, 1, 5, 2).reshape(b, 2, 2 * hh, 2 * ww)  # DCR
    z = y.view(b, 2, hh, 2, ww, 2).permute(0, 3, 5, 1, 2, 4).reshape(b, 8, hh, ww)
    return torch.tanh(z).mean((2, 3)) @ s.v


def attended(s, x):
    q, k, v = ((x @ w).unflatten(2, (n, 4)).transpose(1, 2) for w, n in ((s.q, 4), (s.k, 2), (s.u, 2)))
    a = q @ k.repeat_interleave(2, 1).transpose(2, 3) * 0.6
    a = 2.0 * torch.tanh(a / 2.0)
    a = a.masked_fill(torch.ones(5, 5, dtype=torch.bool).triu(1), -math.inf)
    p = a.softmax(-1)
    return torch.cat([(p @ v.repeat_interleave(2, 1)).transpose(1, 2).flatten(2).mean(1), p[:, :, 4].flatten(1)], 1) @ s.v


def rotated(s, x):
    h = (x @ s.w).unflatten(2, (2, 4)).transpose(1, 2)
    angle = torch.arange(5)[:, None] * s.speed.exp()
    c, n = angle.cos(), angle.sin()
    a, b = h[..., 0:2:2], h[..., 1:2:2]
    turned = torch.stack([a * c - b * n, a * n + b * c], -1).flatten(-2)
    return torch.tanh(torch.cat([turned, h[..., 2:]], -1)).transpose(1, 2).flatten(2)[:, -1] @ s.v


def lrn(s, x):
    return F.local_response_norm(F.conv2d(x, s.k), 3, alpha=0.3, beta=0.6, k=1.5).mean((2, 3)) @ s.v


def powers(s, x):
    h = torch.sigmoid(x @ s.w) + 0.5
    return (h ** s.p + s.q.abs() ** h + h ** -1.5) @ s.v


def by_rows(s, x):
    h = torch.tanh(x @ s.w)
    best = h.abs().argmax(2)
    picked = h.gather(2, best[..., None])[..., 0]
    return picked @ s.v


def added_rows(s, x):
    h = torch.tanh(x @ s.w)
    base = s.base.expand(x.shape[0], -1, -1).clone()
    base[:, [1, 3]] += h[:, :2]
    return base.amax(1) @ s.v


def multiplied_elements(s, x):
    h = torch.sigmoid(x @ s.w)
    return h.scatter_reduce(1, torch.tensor([[0, 2, 2]]).expand(x.shape[0], -1), x[:, :3] + 2, "prod") @ s.v


def largest_elements(s, x):
    h = torch.sigmoid(x @ s.w)
    return h.scatter_reduce(1, torch.tensor([[0, 2, 4]]).expand(x.shape[0], -1), torch.tanh(x[:, :3]), "amax") @ s.v


def both_ends(s, x):
    h = x @ s.w
    return (h.flip(1).cumsum(1).flip(1) - h)[:, :3].flatten(1) @ s.v


def batch_last(s, x):
    return torch.tanh(s.w.t() @ x.t() + s.b[:, None]).t() @ s.v


def vectors_alone(s, x):
    h = torch.tanh(x @ s.w)
    return (h @ s.u)[:, None] * s.g + h @ s.v + (s.g @ s.p)


def trained_border(s, x):
    h = torch.tanh(x @ s.w)
    border = s.c.view(1, 1, 1)
    h = torch.cat([border.expand(x.shape[0], 1, 5), h, border.expand(x.shape[0], 2, 5)], 1)
    return F.conv1d(h.transpose(1, 2), s.k).amax(2) @ s.v


def trained_bounds(s, x):
    h = x @ s.w
    return torch.minimum(torch.maximum(h, s.low), s.high) @ s.v


def trained_hot(s, x, t):
    hot = F.one_hot(t, 5).to(x.dtype)
    return torch.tanh((s.u[0] + (s.u[1] - s.u[0]) * hot) * (x @ s.w)) @ s.v


def counted_hot(s, x, t):
    return torch.tanh(F.one_hot(t, 5).to(x.dtype) @ s.w + x @ s.u) @ s.v


def doubled_batch(s, x):
    """Both views of the batch through one layer, as one batch of twice the size."""
    a, b = torch.tanh(torch.cat([x, x * 0.5 + 0.1], 0) @ s.w).chunk(2, 0)
    return (a * b) @ s.v


def interleaved(s, x):
    """Each sample of the batch repeated, next to each other."""
    h = torch.tanh(torch.stack([x, -x], 1).flatten(0, 1) @ s.w)
    return h.unflatten(0, (-1, 2)).amax(1) @ s.v


def spectrum(s, x):
    f = torch.fft.rfft(x @ s.w, dim=1)
    return torch.cat([f.real.mean(2), f.imag.abs().mean(2)], 1) @ s.v


def short_spectra(s, x):
    frames = x.unfold(1, 4, 2) * s.window
    return torch.fft.rfft(frames, dim=2).abs().square().mean(1) @ s.v


def folded(s, x):
    h = torch.tanh(x @ s.w).transpose(1, 2)
    return F.fold(h[:, :, :4], (4, 4), 2, stride=2)[:, 0].flatten(1) @ s.v


def warped(s, x):
    theta = torch.eye(2, 3).to(x.dtype) + 0.2 * torch.tanh(x.mean((2, 3)) @ s.w).view(-1, 2, 3)
    return F.grid_sample(F.conv2d(x, s.k), F.affine_grid(theta, (x.shape[0], 3, 4, 5), align_corners=True), mode="bilinear", padding_mode="reflection", align_corners=True).mean((2, 3)) @ s.v


def own_variance(s, x):
    h = x @ s.w
    h = (h - h.mean((0, 2), keepdim=True)) / (h.var((0, 2), keepdim=True, unbiased=False).sqrt() + 1e-9)
    return torch.tanh(h).mean(1) @ s.v


def absolute_norms(s, x):
    h = x @ s.w
    return torch.cat([h / h.abs().sum(1, keepdim=True), F.normalize(h, dim=2)], 1).amax(1) @ s.v


def p_pools(s, x):
    h = F.conv2d(x, s.k)
    a = F.conv2d(h.abs() ** 3, torch.ones(6, 1, 2, 2).to(x.dtype), stride=2, groups=6) ** (1 / 3)
    return torch.cat([a.mean((2, 3)), h.square().sum((2, 3)).sqrt()], 1) @ s.v


def remainders(s, x):
    h = x @ s.w
    return (torch.fmod(h, 0.75) + torch.fmod(h * 2, s.d.abs() + 0.5)) @ s.v


def many_at_once(s, x):
    h = x @ s.w
    return (torch.maximum(torch.maximum(h, s.a), s.b[0] * x[:, :5]) + torch.minimum(torch.minimum(h, s.b), s.a * 2) + (h + s.a + s.b + h) + (h + s.b + s.a) / 3) @ s.v


def grown(s, x):
    """In TensorFlow's crop-and-resize form, with a value for points outside."""
    y = F.conv2d(x, s.k)
    at = lambda n, a, b, m: a * (m - 1) + torch.arange(n).to(x.dtype) * (b - a) * (m - 1) / (n - 1)
    ys, xs = at(5, 0.25, 1.0, 4), at(3, -0.1, 0.6, 4)
    def along(z, places, dim):
        low = places.floor().clamp(0, 3)
        w = (places - low).view([-1 if k == dim else 1 for k in range(4)])
        return z.index_select(dim, low.long()) * (1 - w) + z.index_select(dim, (low.long() + 1).clamp(max=3)) * w
    z = along(along(y, ys, 2), xs.clamp(0, 3), 3)
    out = (xs < 0) | (xs > 3)
    return torch.where(out[None, None, None], torch.tensor(0.3).to(x.dtype), z).amax((2, 3)) @ s.v


def uneven(s, x):
    a, b, c = torch.tanh(x @ s.w).split([2, 2, 1], 1)
    return torch.cat([b * c, a, c], 1) @ s.v


def banded(s, x):
    return (torch.tanh(x @ (s.w.triu(-1) - s.w.tril(-3))) + (x @ s.u).unsqueeze(2).mul(torch.ones(5, 5).tril(1).to(x.dtype)).sum(1)) @ s.v


def swished(s, x):
    h = x @ s.w
    h = h * torch.sigmoid(1.3 * h)
    h = F.celu(h, 0.7) + F.threshold(h, 0.2, 0.0) + torch.where(h > 0.3, h - 0.1, torch.where(h < -0.3, h + 0.1, 0 * h))
    return F.hardsigmoid(h * 6 * 0.15) @ s.v


def reduced(s, x):
    h = torch.sigmoid(x @ s.w) + 0.2
    parts = [h.sum(2).log(), h.abs().sum(2), h.square().sum(2), h.prod(2), torch.logsumexp(h, 2), h.norm(dim=2)]
    return torch.cat(parts, 1) @ s.v


def picked_inside(s, x):
    """An index into a table that is itself computed from trained tables, with negative indices."""
    t = torch.tanh(s.a @ s.b)
    return x @ t[[-1, 0, 2, -1, 1, -6]] @ s.v


def scaled_batchnorm(s, x):
    scale = (s.g @ s.u).exp()
    h = (x @ s.w - s.mean) / (s.var + 1e-3).sqrt() * scale + s.b
    return torch.relu(h) @ s.v


torch.manual_seed(1)  # members are drawn again for each case, with the standard deviation that they have here
OPERATORS = {
    # name: (members, what is computed, inputs, opset, graph)
    "rnn_options": (dict(w=weight(2, 3, 4), r=weight(2, 3, 3), b=weight(2, 6), start=weight(2, 1, 3), v=weight(6, 3)), gates_rnn, steps, 14, S + """ <int64[1] two = {2}, int64[1] three = {3}, int64[1] minus = {-1}, int64[1] zero = {0}, int64[1] one = {1}> {
  t = Transpose <perm = [1, 0, 2]> (x) all = Shape (x) n = Slice (all, zero, one) shape = Concat <axis = 0> (two, n, three) h0 = Expand (start, shape)
  , last = RNN <hidden_size = 3, direction = "bidirectional", activations = ["LeakyRelu", "ScaledTanh"], activation_alpha = [0.1, 0.9], activation_beta = [0.7], clip = 1.0> (t, w, r, b, , h0)
  m = Transpose <perm = [1, 0, 2]> (last) flat = Concat <axis = 0> (n, minus) f = Reshape (m, flat) out = MatMul (f, v) }"""),
    "gru_options": (dict(w=weight(1, 9, 4), r=weight(1, 9, 3), b=weight(1, 18), v=weight(3, 3)), gates_gru, steps, 14, S + """ {
  t = Transpose <perm = [1, 0, 2]> (x) all, = GRU <hidden_size = 3, activations = ["HardSigmoid", "Softsign"], activation_alpha = [0.2], activation_beta = [0.5]> (t, w, r, b)
  axes = Constant <value_ints = [0, 1]> () total = ReduceSum <keepdims = 0> (all, axes) out = MatMul (total, v) }"""),
    "lstm_options": (dict(w=weight(1, 12, 4), r=weight(1, 12, 3), b=weight(1, 24), p=weight(1, 9), v=weight(6, 3)), gates_lstm, steps, 14, S + """ {
  t = Transpose <perm = [1, 0, 2]> (x) , h, c = LSTM <hidden_size = 3> (t, w, r, b, , , , p)
  both = Concat <axis = -1> (h, c) first = Constant <value_ints = [0]> () f = Squeeze (both, first) out = MatMul (f, v) }"""),
    "reversed_parts": (wv(4), reversed_parts, lambda b: steps(b) | {"n": torch.randint(1, 6, (b,))}, 18, "g (float[N, 5, 4] x, int64[N] n) => (float[N, 3] out)" + """ {
  y = ReverseSequence <batch_axis = 0, time_axis = 1> (x, n) h = MatMul (y, w) t = Tanh (h) axis = Constant <value_int = -2> () s = CumSum (t, axis)
  two = Constant <value_int = -3> () k = Gather <axis = 1> (s, two) out = MatMul (k, v) }"""),
    "statistics_out": (dict(w=weight(4, 6), g=one(6), b=weight(6), v=weight(16, 3)), statistics_out, steps, 17, S + """ {
  h = MatMul (x, w) y, mean, inverse = LayerNormalization (h, g, b) l = Log (inverse) a = ReduceMean <axes = [1], keepdims = 0> (y)
  last = Constant <value_ints = [-1]> () m = Squeeze (mean, last) k = Squeeze (l, last) j = Concat <axis = -1> (a, m, k) out = MatMul (j, v) }"""),
    "deformed": (dict(o=weight(18, 4, 3, 3, scale=0.1), m=weight(9, 4, 3, 3), k=weight(5, 4, 3, 3), kb=weight(5), v=weight(5, 3)), deformed, planes, 19, I + """ {
  a = Conv <pads = [1, 1, 1, 1]> (x, o) o2 = Tanh (a) b = Conv <pads = [1, 1, 1, 1]> (x, m) m2 = Sigmoid (b) y = DeformConv <pads = [1, 1, 1, 1]> (x, k, o2, kb, m2)
  axes = Constant <value_ints = [2, 3]> () f = ReduceMean <keepdims = 0> (y, axes) out = MatMul (f, v) }"""),
    "kept_places": (dict(k=weight(5, 4, 3, 3), g=one(5, 1, 1), v=weight(5, 3)), kept_places, planes, 11, I + """ {
  c = Conv <pads = [1, 1, 1, 1]> (x, k) y, where = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (c) t = Tanh (y) u = MaxUnpool <kernel_shape = [2, 2], strides = [2, 2]> (t, where)
  m = Mul (u, g) f = ReduceMean <axes = [-1, -2], keepdims = 0> (m) out = MatMul (f, v) }"""),
    "shuffled_pixels": (dict(k=weight(8, 4, 3, 3), v=weight(8, 3)), shuffled_pixels, planes, 13, I + """ {
  h = Conv <auto_pad = "SAME_LOWER"> (x, k) y = DepthToSpace <blocksize = 2> (h) z = SpaceToDepth <blocksize = 2> (y) t = Tanh (z) f = GlobalAveragePool (t) q = Flatten (f) out = MatMul (q, v) }"""),
    "attended": (dict(q=weight(4, 16), k=weight(4, 8), u=weight(4, 8), v=weight(36, 3)), attended, steps, 23, S + """ {
  q2 = MatMul (x, q) k2 = MatMul (x, k) v2 = MatMul (x, u)
  y, , , p = Attention <q_num_heads = 4, kv_num_heads = 2, is_causal = 1, softcap = 2.0, scale = 0.6, qk_matmul_output_mode = 3> (q2, k2, v2)
  one = Constant <value_ints = [1]> () a = ReduceMean <keepdims = 0> (y, one) four = Constant <value_int = 4> () r = Gather <axis = 2> (p, four) f = Flatten (r) j = Concat <axis = 1> (a, f) out = MatMul (j, v) }"""),
    "rotated": (dict(w=weight(4, 8), speed=weight(1), v=weight(8, 3)), rotated, steps, 23, S + """ <float[5, 1] counted = {0, 1, 2, 3, 4}> {
  h = MatMul (x, w) e = Exp (speed) a = Mul (counted, e) c = Cos (a) s = Sin (a) first = Constant <value_ints = [0]> () n = Shape <start = 0, end = 1> (x) rest = Constant <value_ints = [5, 1]> ()
  shape = Concat <axis = 0> (n, rest) c2 = Expand (c, shape) s2 = Expand (s, shape) y = RotaryEmbedding <num_heads = 2, rotary_embedding_dim = 2, interleaved = 1> (h, c2, s2)
  t = Tanh (y) last = Constant <value_int = -1> () l = Gather <axis = 1> (t, last) out = MatMul (l, v) }"""),
    "lrn": (dict(k=weight(5, 4, 3, 3), v=weight(5, 3)), lrn, planes, 13, I + """ { h = Conv (x, k) y = LRN <size = 3, alpha = 0.3, beta = 0.6, bias = 1.5> (h) f = ReduceMean <axes = [2, 3], keepdims = 0> (y) out = MatMul (f, v) }"""),
    "powers": (wv() | dict(p=weight(5), q=one(5)), powers, vector, 15, V + """ <float half = {0.5}, int32 neg = {-3}> {
  a = MatMul (x, w) b = Sigmoid (a) h = Add (b, half) c = Pow (h, p) d = Abs (q) e = Pow (d, h) f = Constant <value_float = -1.5> () i = Pow (h, f) j = Sum (c, e, i) out = MatMul (j, v) }"""),
    "by_rows": (dict(w=weight(4, 6), v=weight(5, 3)), by_rows, steps, 17, S + """ {
  h = MatMul (x, w) t = Tanh (h) a = Abs (t) best = ArgMax <axis = -1, keepdims = 1> (a) y = GatherND <batch_dims = 2> (t, best) out = MatMul (y, v) }"""),
    "added_rows": (dict(w=weight(4, 5), base=weight(1, 4, 5), v=weight(5, 3)), added_rows, steps, 18, S + """ <int64[1] rest1 = {4}, int64[1] rest2 = {5}, int64[2, 1] places = {1, 3}, int64[1] zero = {0}, int64[1] two = {2}, int64[1] one = {1}> {
  h0 = MatMul (x, w) h = Tanh (h0) n = Shape <start = 0, end = 1> (x) shape = Concat <axis = 0> (n, rest1, rest2) base2 = Expand (base, shape)
  t = Transpose <perm = [1, 0, 2]> (base2) u0 = Slice (h, zero, two, one) u = Transpose <perm = [1, 0, 2]> (u0) y = ScatterND <reduction = "add"> (t, places, u) m = ReduceMax <keepdims = 0> (y, zero) out = MatMul (m, v) }"""),
    "multiplied_elements": (wv(), multiplied_elements, vector, 18, V + """ <int64[1, 3] places = {0, 2, 2}, int64[1] three = {3}, int64[1] zero = {0}, int64[1] one = {1}, float two = {2}> {
  a = MatMul (x, w) h = Sigmoid (a) n = Shape <start = 0, end = 1> (x) shape = Concat <axis = 0> (n, three) at = Expand (places, shape) s = Slice (x, zero, three, one) u = Add (s, two)
  y = ScatterElements <axis = -1, reduction = "mul"> (h, at, u) out = MatMul (y, v) }"""),
    "largest_elements": (wv(), largest_elements, vector, 18, V + """ <int64[1, 3] places = {0, 2, -1}, int64[1] three = {3}, int64[1] zero = {0}, int64[1] one = {1}> {
  a = MatMul (x, w) h = Sigmoid (a) n = Shape <start = 0, end = 1> (x) shape = Concat <axis = 0> (n, three) at = Expand (places, shape) s = Slice (x, zero, three, one) u = Tanh (s)
  y = ScatterElements <axis = 1, reduction = "max"> (h, at, u) out = MatMul (y, v) }"""),
    "both_ends": (dict(w=weight(4, 5), v=weight(15, 3)), both_ends, steps, 14, S + """ <int64[1] zero = {0}, int64[1] three = {3}, int64[1] axis = {1}> {
  h = MatMul (x, w) k = Constant <value_int = 1> () c = CumSum <exclusive = 1, reverse = 1> (h, k) s = Slice (c, zero, three, axis) f = Flatten <axis = -2> (s) out = MatMul (f, v) }"""),
    "batch_last": (wv() | dict(b=weight(5)), batch_last, vector, 13, V + """ <int64[1] last = {1}> {
  t = Transpose (x) k = Transpose (w) m = MatMul (k, t) c = Unsqueeze (b, last) a = Add (m, c) h = Tanh (a) out = Gemm <transA = 1> (h, v) }"""),
    "vectors_alone": (wv() | dict(u=weight(5), g=one(3), p=weight(3)), vectors_alone, vector, 13, V + """ <int64[1] last = {1}> {
  a = MatMul (x, w) h = Tanh (a) d = MatMul (h, u) e = Unsqueeze (d, last) f = Mul (e, g) k = MatMul (h, v) l = MatMul (g, p) out = Sum (f, k, l) }"""),
    "trained_border": (dict(w=weight(4, 5), c=weight(1), k=weight(3, 5, 3), v=weight(3, 3)), trained_border, steps, 18, S + """ <int64[2] pads = {1, 2}, int64[1] axis = {-2}, int64 none = {0}> {
  a = MatMul (x, w) h = Tanh (a) z = Gather (c, none) p = Pad (h, pads, z, axis) t = Transpose <perm = [0, 2, 1]> (p) y = Conv (t, k) last = Constant <value_ints = [-1]> () m = ReduceMax <keepdims = 0> (y, last) out = MatMul (m, v) }"""),
    "trained_bounds": (wv() | dict(low=nn.Parameter(torch.tensor(-0.3)), high=nn.Parameter(torch.tensor(0.4))), trained_bounds, vector, 13, V + """ { h = MatMul (x, w) c = Clip (h, low, high) out = MatMul (c, v) }"""),
    "trained_hot": (wv() | dict(u=weight(2)), trained_hot, lambda b: vector(b) | {"t": classes(5, b)}, 13, """g (float[N, 6] x, int64[N] t) => (float[N, 3] out) <int64 five = {5}> {
  hot = OneHot (t, five, u) h = MatMul (x, w) m = Mul (hot, h) y = Tanh (m) out = MatMul (y, v) }"""),
    "counted_hot": (dict(w=weight(5, 5), u=weight(6, 5), v=weight(5, 3)), counted_hot, lambda b: vector(b) | {"t": classes(5, b)}, 13, """g (float[N, 6] x, int64[N] t) => (float[N, 3] out) <int64 five = {5}, float[2] ends = {0, 1}> {
  hot = OneHot <axis = 0> (t, five, ends) h = Gemm <transA = 1> (hot, w) k = MatMul (x, u) m = Add (h, k) y = Tanh (m) out = MatMul (y, v) }"""),
    "doubled_batch": (wv(), doubled_batch, vector, 13, V + """ <float half = {0.5}, float tenth = {0.1}> {
  a = Mul (x, half) b = Add (a, tenth) c = Concat <axis = 0> (x, b) d = MatMul (c, w) h = Tanh (d) p, q = Split <axis = 0> (h) m = Mul (p, q) out = MatMul (m, v) }"""),
    "interleaved": (wv(), interleaved, vector, 13, V + """ <int64[1] one = {1}, int64[2] flat = {-1, 6}, int64[3] apart = {-1, 2, 5}> {
  n = Neg (x) a = Unsqueeze (x, one) b = Unsqueeze (n, one) c = Concat <axis = 1> (a, b) d = Reshape (c, flat) e = MatMul (d, w) h = Tanh (e) i = Reshape (h, apart) m = ReduceMax <axes = [1], keepdims = 0> (i) out = MatMul (m, v) }"""),
    "spectrum": (dict(w=weight(4, 5), v=weight(6, 3)), spectrum, steps, 20, S + """ <int64 axis = {1}, int64[1] last = {-1}, int64 re = {0}, int64 im = {1}> {
  h = MatMul (x, w) u = Unsqueeze (h, last) f = DFT <onesided = 1> (u, , axis) a = Gather <axis = -1> (f, re) b = Gather <axis = -1> (f, im) c = Abs (b) d = ReduceMean <keepdims = 0> (a, last) e = ReduceMean <keepdims = 0> (c, last) j = Concat <axis = 1> (d, e) out = MatMul (j, v) }"""),
    "short_spectra": (dict(window=one(4), v=weight(3, 3)), short_spectra, lambda b: {"x": pixels(b, 12)}, 17, "g (float[N, 12] x) => (float[N, 3] out)" + """ <int64 hop = {2}, int64[1] last = {-1}> {
  f = STFT (x, hop, window) q = Mul (f, f) z = ReduceSum <keepdims = 0> (q, last) m = ReduceMean <axes = [1], keepdims = 0> (z) out = MatMul (m, v) }"""),
    "folded": (dict(w=weight(4, 4), v=weight(16, 3)), folded, steps, 18, S + """ <int64[2] size = {4, 4}, int64[2] block = {2, 2}, int64[1] zero = {0}, int64[1] four = {4}, int64[1] two = {2}> {
  h = MatMul (x, w) t = Tanh (h) p = Transpose <perm = [0, 2, 1]> (t) s = Slice (p, zero, four, two) y = Col2Im <strides = [2, 2]> (s, size, block) f = Flatten (y) out = MatMul (f, v) }"""),
    "warped": (dict(w=weight(4, 6), k=weight(3, 4, 3, 3), v=weight(3, 3)), warped, planes, 20, I + """ <float[2, 3] eye = {1, 0, 0, 0, 1, 0}, float fifth = {0.2}, int64[3] two = {-1, 2, 3}, int64[3] rest = {3, 4, 5}, int64[2] axes = {2, 3}> {
  m = ReduceMean <keepdims = 0> (x, axes) a = MatMul (m, w) t = Tanh (a) b = Reshape (t, two) c = Mul (b, fifth) theta = Add (eye, c) n = Shape <start = 0, end = 1> (x) size = Concat <axis = 0> (n, rest)
  grid = AffineGrid <align_corners = 1> (theta, size) y = Conv (x, k) z = GridSample <mode = "linear", padding_mode = "reflection", align_corners = 1> (y, grid) f = ReduceMean <keepdims = 0> (z, axes) out = MatMul (f, v) }"""),
    "own_variance": (wv(4), own_variance, steps, 13, S + """ { h = MatMul (x, w) y = MeanVarianceNormalization <axes = [0, 2]> (h) t = Tanh (y) m = ReduceMean <axes = [1], keepdims = 0> (t) out = MatMul (m, v) }"""),
    "absolute_norms": (wv(4), absolute_norms, steps, 13, S + """ { h = MatMul (x, w) a = LpNormalization <p = 1, axis = 1> (h) b = LpNormalization (h) c = Concat <axis = 1> (a, b) m = ReduceMax <axes = [1], keepdims = 0> (c) out = MatMul (m, v) }"""),
    "p_pools": (dict(k=weight(6, 4, 3, 3), v=weight(12, 3)), p_pools, planes, 13, I + """ {
  h = Conv (x, k) a = LpPool <kernel_shape = [2, 2], strides = [2, 2], p = 3> (h) b = GlobalLpPool (h) c = ReduceMean <axes = [2, 3], keepdims = 0> (a) d = Flatten (b) e = Concat <axis = 1> (c, d) out = MatMul (e, v) }"""),
    "remainders": (wv() | dict(d=one(5)), remainders, vector, 13, V + """ <float three = {0.75}, float two = {2}, float half = {0.5}> {
  h = MatMul (x, w) a = Mod <fmod = 1> (h, three) b = Mul (h, two) c = Abs (d) e = Add (c, half) f = Mod <fmod = 1> (b, e) i = Add (a, f) out = MatMul (i, v) }"""),
    "many_at_once": (wv() | dict(a=weight(5), b=weight(1, 5)), many_at_once, vector, 13, V + """ <int64[1] zero = {0}, int64[1] five = {5}, int64[1] one = {1}, float two = {2}> {
  h = MatMul (x, w) y = Slice (x, zero, five, one) z = Mul (b, y) m = Max (h, a, z) k = Mul (a, two) n = Min (h, b, k) s = Sum (h, a, b, h) e = Mean (h, b, a) t = Sum (m, n, s, e) out = MatMul (t, v) }"""),
    "grown": (dict(k=weight(5, 4, 3, 3), v=weight(5, 3)), grown, planes, 13, I + """ <float[8] roi = {0, 0, 0.25, -0.1, 1, 1, 1.0, 0.6}, int64[2] hw = {5, 3}> {
  h = Conv (x, k) n = Shape (h) zero = Constant <value_ints = [0]> () two = Constant <value_ints = [2]> () nc = Slice (n, zero, two) size = Concat <axis = 0> (nc, hw)
  y = Resize <mode = "linear", coordinate_transformation_mode = "tf_crop_and_resize", extrapolation_value = 0.3> (h, roi, , size) m = ReduceMax <axes = [2, 3], keepdims = 0> (y) out = MatMul (m, v) }"""),
    "uneven": (wv(), uneven, vector, 18, V + """ { h = MatMul (x, w) t = Tanh (h) a, b, c = Split <axis = -1, num_outputs = 3> (t) d = Mul (b, c) e = Concat <axis = 1> (d, a, c) out = MatMul (e, v) }"""),
    "banded": (wv(6, 5) | dict(u=weight(6, 5), v=weight(5, 3)), banded, vector, 14, V + """ <int64 a = {-1}, int64 b = {-3}, int64 c = {1}, float[5, 5] ones = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}> {
  up = Trilu (w, a) low = Trilu <upper = 0> (w, b) d = Sub (up, low) e = MatMul (x, d) t = Tanh (e) m = Trilu <upper = 0> (ones, c) k = MatMul (x, u) last = Constant <value_ints = [2]> () one = Constant <value_ints = [1]> ()
  i = Unsqueeze (k, last) j = Mul (i, m) l = ReduceSum <keepdims = 0> (j, one) o = Add (t, l) out = MatMul (o, v) }"""),
    "swished": (wv(), swished, vector, 24, V + """ {
  a = MatMul (x, w) h = Swish <alpha = 1.3> (a) b = Celu <alpha = 0.7> (h) c = ThresholdedRelu <alpha = 0.2> (h) d = Shrink <lambd = 0.3, bias = 0.1> (h) e = Sum (b, c, d) f = HardSigmoid <alpha = 0.15, beta = 0.5> (e) out = MatMul (f, v) }"""),
    "reduced": (dict(w=weight(4, 5), v=weight(30, 3)), reduced, steps, 18, S + """ <float fifth = {0.2}, int64[1] ax = {-1}> {
  a = MatMul (x, w) b = Sigmoid (a) h = Add (b, fifth) c = ReduceLogSum <keepdims = 0> (h, ax) d = ReduceL1 <keepdims = 0> (h, ax) e = ReduceSumSquare <keepdims = 0> (h, ax) f = ReduceProd <keepdims = 0> (h, ax)
  i = ReduceLogSumExp <keepdims = 0> (h, ax) j = ReduceL2 <keepdims = 0> (h, ax) k = Concat <axis = 1> (c, d, e, f, i, j) out = MatMul (k, v) }"""),
    "picked_inside": (dict(a=weight(6, 2), b=weight(2, 5), v=weight(5, 3)), picked_inside, vector, 13, V + """ <int64[6] places = {-1, 0, 2, -1, 1, -6}> { m = MatMul (a, b) t = Tanh (m) r = Gather (t, places) h = MatMul (x, r) out = MatMul (h, v) }"""),
    "scaled_batchnorm": (wv() | dict(g=weight(2), u=weight(2, 5), b=weight(5), mean=torch.randn(5) * 0.2, var=torch.rand(5) + 0.5), scaled_batchnorm, vector, 9, V + """ <MEAN> {
  h = MatMul (x, w) q = MatMul (g, u) s = Exp (q) y = BatchNormalization <epsilon = 0.001> (h, s, b, mean, var) r = Relu (y) out = MatMul (r, v) }"""),
}


def write(opset, graph):
    def writer(module, batch, path):
        body = graph
        if "<MEAN>" in body:
            listed = lambda t: ", ".join(repr(float(k)) for k in t)
            body = body.replace("<MEAN>", f"<float[5] mean = {{{listed(module.mean)}}}, float[5] var = {{{listed(module.var)}}}>")
        text(8 if opset < 19 else 10, {"": opset}, body)(module, batch, path)

    return writer


def cases():
    rules = [optimizer("momentum", lr=0.05), optimizer("adam", lr=0.01, amsgrad=True), optimizer("nesterov", lr=0.03, weight_decay=0.01), optimizer("rmsprop", lr=0.005, centered=True, momentum=0.5, eps=1e-4), optimizer("adamax", lr=0.01)]
    for k, (name, (members, run, inputs, opset, graph)) in enumerate(OPERATORS.items()):
        yield Case(f"operator_{name}", lambda members=members, run=run: made(run, members), lambda b, inputs=inputs: inputs(b) | {"y": classes(3, b)}, [term("cross_entropy", label_smoothing=0.1 * (k % 2))], rules[k % 5], inputs=tuple(inputs(1)),
                   exporter="hand", opset=opset, mode="eval", dynamic_batch=True, batch_size=6, batch_sizes=[6, 6, 5, 6, 2, 1], steps=6, clip_grad_norm=[None, 1.0][k % 2], write=write(opset, graph))


def made(run, members):
    """The members, drawn again with the case's seed."""
    return Net(run, **{n: nn.Parameter(torch.randn_like(m) * m.detach().std() + m.detach().mean()) if isinstance(m, nn.Parameter) and m.numel() > 2 else nn.Parameter(m.detach().clone()) if isinstance(m, nn.Parameter) else m.clone() for n, m in members.items()})
