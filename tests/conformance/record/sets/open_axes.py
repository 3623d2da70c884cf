"""Models whose control flow the exporter keeps, and models over axes of any length: nested branches and loops, scans with several states,
windows that pad the remainder, pyramids of any size, several independent lengths; cell states as inputs and outputs, parametrized recurrent
weights, whole files in float64. Exported by both exporters, with open and with fixed axes."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch._higher_order_ops.scan import scan
from torch.nn.utils import parametrizations, parametrize

from case import Case, classes, pixels, term
from optimizers import optimizer
from sets.families import Net, weight
from sets.further import L, conv, conv1, lin, one
from sets.lengths import some
from sets.stray import Made

# Branches and loops


def nested(s, x):
    """Two results of a branch, which contains further branches."""
    inner = lambda h: torch.cond(h.mean() > 0.1, lambda h: torch.tanh(s.c(h)), lambda h: s.c(h) * h.sigmoid(), (h,))
    a, b = torch.cond(x.sum() > 0, lambda x: (inner(s.a(x)), x.mean(1, keepdim=True)), lambda x: (s.b(x), s.b(x).amax(1, keepdim=True)), (x,))
    return s.head(a * b + a)


def asked(s, x, on):
    """A condition that is fed."""
    return s.head(torch.cond(on, lambda x: F.relu(s.a(x)), lambda x: s.b(F.relu(s.a(x * 2))), (x,)))


def two_states(s, x):
    step = lambda c, x: (((h := torch.tanh(x + c[0] @ s.u)), (m := 0.8 * c[1] + 0.2 * h * s.g)), (m.clone(), (h * m).clone()))
    (h, m), (ms, hs) = scan(step, (torch.zeros(x.shape[0], 6, dtype=x.dtype), torch.zeros(x.shape[0], 6, dtype=x.dtype)), s.w(x).transpose(0, 1).contiguous())
    return s.head(h + ms.mean(0) - hs.amax(0) + m)


def backwards(s, x):
    """From the last step to the first, two sequences at once."""
    step = lambda h, xs: ((n := torch.tanh(xs[0] * xs[1].sigmoid() + h @ s.u)), (n * 2).clone())
    h, hs = scan(step, torch.zeros(x.shape[0], 6, dtype=x.dtype), (s.w(x).transpose(0, 1).contiguous(), s.v(x).transpose(0, 1).contiguous()), reverse=True)
    return s.head(torch.cat([h, hs[1]], 1))


def branch_of_weights(s, x):
    """A condition on a trained number."""
    return s.head(torch.cond(s.g.sum() > 0, lambda x: torch.tanh(s.a(x)) * s.g, lambda x: s.a(x).sin() * s.g, (x,)))


def branch_per_layer(s, x):
    h = x
    for a in s.layers:
        h = torch.cond((h.square().mean() > 0.5), lambda h, a=a: h + F.gelu(a(h)), lambda h, a=a: a(h) * 0.5 + h, (h,))
    return s.head(h)


class Scripted(nn.Module):
    """What torch.jit.script preserves: lists, shapes and data-dependent conditions."""

    def __init__(self, **members):
        super().__init__()
        self.w, self.head = nn.Linear(5, 6), nn.Linear(6, 3)
        for name, member in members.items():
            setattr(self, name, member)


class Listed(Scripted):
    def forward(self, x):
        h = torch.zeros(x.size(0), 6, dtype=x.dtype)
        kept = []
        for t in range(x.size(1)):
            h = torch.tanh(self.w(x[:, t]) + self.u(h))
            kept.append(h)
        return self.head(torch.stack(kept, 1).mean(1))


class Shaped(Scripted):
    def forward(self, x):
        y = self.w(x)
        for layer in self.layers:
            if y.size(1) > 3:
                y = torch.relu(layer(y))[:, :-1]
            else:
                y = torch.sigmoid(layer(y))
        return self.head(y.sum(1))


class Counted(Scripted):
    def forward(self, x):
        h = torch.zeros(x.size(0), 6, dtype=x.dtype)
        i = 0
        while i < x.size(1):
            h = h + torch.sigmoid(self.u(h)) * self.w(x[:, i])
            i += 2
        return self.head(h)


class Branched(Scripted):
    def forward(self, x):
        h = torch.zeros(x.size(0), 6, dtype=x.dtype)
        total = torch.zeros(x.size(0), 6, dtype=x.dtype)
        for t in range(x.size(1)):
            y = self.w(x[:, t])
            for _ in range(2):
                y = torch.tanh(self.u(y) + h)
            if bool(y.sum() > 0):
                total = total + y
            else:
                total = total * 0.9
            h = y
        return self.head(total)


# Axes of any length


def padded_windows(s, x):
    """Windows of four; the remainder is padded, and cropped again."""
    b, t, _ = x.shape
    h = F.pad(s.up(x), (0, 0, 0, (-t) % 4))
    w = h.reshape(b, -1, 4, 8)
    q, k, v = s.qkv(w).chunk(3, -1)
    w = w + (q @ k.transpose(-1, -2) / 8**0.5).softmax(-1) @ v
    return s.head(w.reshape(b, -1, 8)[:, :t])


def strided(s, x):
    """Every second step, the steps in between, and both interleaved again."""
    h = s.up(x)
    t = h.shape[1] // 2 * 2
    a, b = h[:, :t:2], h[:, 1:t:2]
    d = b - torch.tanh(s.p(a))
    return s.head(torch.stack([a + torch.tanh(s.u(d)), d], 2).flatten(1, 2).mean(1))


def halves(s, x):
    n = x.shape[1] // 2
    h = s.up(x)
    return s.head(torch.cat([h[:, :n].amax(1), h[:, n:].mean(1), h[:, -1] - h[:, 0]], 1))


def relative(s, x):
    t = x.shape[1]
    q, k, v = s.qkv(s.up(x)).chunk(3, -1)
    place = torch.arange(t)[:, None] - torch.arange(t)[None] + 15
    bias = s.table[place]
    return s.head(((q @ k.transpose(1, 2) + torch.einsum("btd,tkd->btk", q, bias)) / 8**0.5).softmax(-1) @ v)


def linear_bias(s, x):
    t = x.shape[1]
    q, k, v = (y.unflatten(2, (2, 4)).transpose(1, 2) for y in s.qkv(s.up(x)).chunk(3, -1))
    far = (torch.arange(t)[None] - torch.arange(t)[:, None]).to(x.dtype).clamp(max=0)
    mask = torch.full((t, t), -math.inf).triu(1).to(x.dtype) + s.slopes[:, None, None] * far
    return s.head(F.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2).flatten(2))


def rolled(s, x):
    h = s.up(x)
    for d, a in enumerate(s.layers):
        h = F.silu(a(torch.cat([h, torch.roll(h, 1 + d, 1), h.flip(1)], 2)))
    return s.head(h.mean(1))


def sorted_steps(s, x):
    h = torch.tanh(s.up(x))
    score = s.score(h)[..., 0]
    order = score.argsort(1, descending=True)
    top = (h * score[..., None].sigmoid()).gather(1, order[:, : x.shape[1] // 2, None].expand(-1, -1, 8))
    return s.head(top.mean(1) + h.cumsum(1).amax(1))


def mixed_lengths(s, x, z):
    """Every step of one sequence with every step of the other, both of any length."""
    a, b = s.up(x), s.side(z)
    e = torch.tanh(a[:, :, None] + b[:, None]) @ s.g
    return s.head(torch.cat([(e.softmax(2) @ b).mean(1), (e.softmax(1).transpose(1, 2) @ a).amax(1)], 1))


def any_picture(s, x):
    """A U-Net for images of any size: cropped to the up-sampled size, and padded."""
    a = F.relu(s.a(x))
    b = F.relu(s.b(F.max_pool2d(a, 2, ceil_mode=True)))
    up = F.interpolate(b, scale_factor=2, mode="nearest")[:, :, : a.shape[2], : a.shape[3]]
    return s.c(torch.cat([a, up], 1))


def pooled_picture(s, x):
    h = F.relu(s.a(x))
    gate = torch.sigmoid(s.g(F.adaptive_avg_pool2d(h, 1)))
    y = s.b(h * gate)
    places = torch.stack(torch.meshgrid(torch.linspace(-1, 1, x.shape[2]), torch.linspace(-1, 1, x.shape[3]), indexing="ij")).to(x.dtype)
    soft = y.flatten(2).softmax(2)
    return s.head(torch.cat([soft @ places.flatten(1).t(), y.flatten(2).amax(2, keepdim=True)], 2).flatten(1))


def tokens_of_picture(s, x):
    h = s.patch(x)
    b, c, hh, ww = h.shape
    h = h.flatten(2).transpose(1, 2) + s.rows[:hh, None].expand(-1, ww, -1).reshape(hh * ww, c) + s.columns[None, :ww].expand(hh, -1, -1).reshape(hh * ww, c)
    h = torch.cat([s.cls.expand(b, -1, -1), h], 1)
    q, k, v = (y.unflatten(2, (2, 4)).transpose(1, 2) for y in s.qkv(s.norm(h)).chunk(3, -1))
    return s.head((h + F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))[:, 0])


def downsampled(s, x):
    h = s.c(F.gelu(s.b(F.gelu(s.a(x.transpose(1, 2))))))
    h = h[..., : x.shape[1]]
    return s.head(h.transpose(1, 2))


def causal_filters(s, x):
    h = s.up(x).transpose(1, 2)
    for k, c in enumerate(s.layers):
        h = h + torch.tanh(c(F.pad(h, (2 * 2**k, 0))))
    return s.head(h.transpose(1, 2))


def chunked(s, x):
    """Linear attention whose state is carried between chunks: sums within chunks, and sums before them."""
    q, k, v = (F.elu(y) + 1 for y in s.qkv(s.up(x)).chunk(3, -1))
    t = x.shape[1]
    near = (q @ k.transpose(1, 2)).tril()
    decay = s.decay.sigmoid() ** (torch.arange(t)[:, None] - torch.arange(t)[None]).clamp(min=0).to(x.dtype)
    return s.head((near * decay) @ v / (near.sum(2, keepdim=True) + 1))


def carried(s, x, h, c):
    """The states of the previous chunk of a text are inputs, and those of this one outputs."""
    y, (h2, c2) = s.lstm(s.table(x), (h.transpose(0, 1).contiguous(), c.transpose(0, 1).contiguous()))
    return s.head(y), h2.transpose(0, 1), c2.transpose(0, 1)


def remembered(s, x, past):
    """Keys and values of previous chunks, and of the current one."""
    h = s.table(x)
    q, k, v = s.qkv(h).chunk(3, -1)
    k, v = torch.cat([past[:, 0], k], 1), torch.cat([past[:, 1], v], 1)
    n, t = k.shape[1], x.shape[1]
    mask = torch.arange(n)[None] <= torch.arange(t)[:, None] + (n - t)
    return s.head(F.scaled_dot_product_attention(q, k, v, attn_mask=mask)), torch.stack([k, v], 1)


def wavefront(s, x):
    """A recurrence over both axes of an image of any height."""
    h = s.rows(x.transpose(2, 3).flatten(2))[0]
    y, last = s.back(h.flip(1))
    return s.head(y.mean(1) + last[0])


def double_file(s, x):
    h = torch.tanh(s.a(x))
    h = F.layer_norm(s.b(h) + h, (6,), s.g, s.c)
    return s.head(h * h.softmax(-1))


def double_images(s, x):
    return s.head(F.gelu(s.norm(s.second(F.relu(s.first(x))))).mean((2, 3)))


def double_recurrent(s, x):
    return s.head(s.gru(x)[0][:, -1])


def of_two(layer):
    parametrize.register_parametrization(layer, "weight", Made(lambda w: w - w.mean(1, keepdim=True)), unsafe=True)
    parametrize.register_parametrization(layer, "weight", Made(lambda w: torch.tanh(w) * 1.5), unsafe=True)
    parametrize.register_parametrization(layer, "bias", Made(F.softplus), unsafe=True)
    return layer


vector, steps = (lambda b: {"x": pixels(b, 6)}), (lambda b: {"x": pixels(b, 5, 5)})
line = lambda low=4, high=9: lambda b: {"x": pixels(b, some(low, high), 5)}
pair = lambda b: {"x": pixels(b, some(4, 8), 5), "z": pixels(b, some(3, 7), 4)}
picture = lambda b: {"x": pixels(b, 3, some(5, 9), some(6, 10))}
T, HW = {"x": {1: "steps"}}, {"x": {2: "high", 3: "wide"}}
one_class = lambda x: classes(3, x.shape[0])
a_step, a_pixel = (lambda x: classes(3, x.shape[0], x.shape[1])), (lambda x: classes(3, x.shape[0], x.shape[2], x.shape[3]))
up, qkv = lambda: lin(5, 8), lambda: lin(8, 24)
words = lambda b: {"x": classes(11, b, some(3, 7)), "h": pixels(b, 1, 6), "c": pixels(b, 1, 6)}
recent = lambda b: {"x": classes(11, b, some(2, 5)), "past": pixels(b, 2, some(3, 6), 8)}

# name: (module, inputs, open axes, target of x, ways)
FLOW = {
    "nested": (lambda: Net(nested, a=lin(6, 6), b=lin(6, 6), c=lin(6, 6), head=lin(6, 3)), vector, None, one_class, "d"),
    "asked": (lambda: Net(asked, a=lin(6, 6), b=lin(6, 6), head=lin(6, 3)), lambda b: vector(b) | {"on": torch.rand(()) < 0.5}, None, one_class, "d"),
    "two_states": (lambda: Net(two_states, w=lin(5, 6), u=weight(6, 6), g=one(6), head=lin(6, 3)), steps, None, one_class, "d"),
    "backwards": (lambda: Net(backwards, w=lin(5, 6), v=lin(5, 6), u=weight(6, 6), head=lin(12, 3)), steps, None, one_class, "d"),
    "branch_of_weights": (lambda: Net(branch_of_weights, a=lin(6, 6), g=weight(6), head=lin(6, 3)), vector, None, one_class, "d"),
    "branch_per_layer": (lambda: Net(branch_per_layer, layers=L(lin(6, 6) for _ in range(3)), head=lin(6, 3)), vector, None, one_class, "d"),
    "scripted_list": (lambda: Listed(u=lin(6, 6)), steps, None, one_class, "s"),
    "scripted_shapes": (lambda: Shaped(layers=L(lin(6, 6) for _ in range(3))), steps, None, one_class, "s"),
    "scripted_while": (lambda: Counted(u=lin(6, 6)), steps, None, one_class, "s"),
    "scripted_branch": (lambda: Branched(u=lin(6, 6)), steps, None, one_class, "s"),
    "padded_windows": (lambda: Net(padded_windows, up=up(), qkv=qkv(), head=lin(8, 3)), line(), T, a_step, "ldf"),
    "strided": (lambda: Net(strided, up=up(), p=lin(8, 8), u=lin(8, 8), head=lin(8, 3)), line(), T, one_class, "ldf"),
    "halves": (lambda: Net(halves, up=up(), head=lin(24, 3)), line(), T, one_class, "ldf"),
    "relative": (lambda: Net(relative, up=up(), qkv=qkv(), table=weight(31, 8), head=lin(8, 3)), line(), T, a_step, "ldf"),
    "linear_bias": (lambda: Net(linear_bias, up=up(), qkv=qkv(), slopes=nn.Parameter(torch.tensor([0.5, 0.25])), head=lin(8, 3)), line(), T, a_step, "ldf"),
    "rolled": (lambda: Net(rolled, up=up(), layers=L(lin(24, 8) for _ in range(2)), head=lin(8, 3)), line(), T, one_class, "ldf"),
    "sorted_steps": (lambda: Net(sorted_steps, up=up(), score=lin(8, 1), head=lin(8, 3)), line(), T, one_class, "ldf"),
    "mixed_lengths": (lambda: Net(mixed_lengths, up=lin(5, 6), side=lin(4, 6), g=weight(6), head=lin(12, 3)), pair, {"x": {1: "steps"}, "z": {1: "others"}}, one_class, "ldf"),
    "any_picture": (lambda: Net(any_picture, a=conv(3, 4), b=conv(4, 4), c=conv(8, 3, 1)), picture, HW, a_pixel, "ldf"),
    "pooled_picture": (lambda: Net(pooled_picture, a=conv(3, 4), g=conv(4, 4, 1), b=conv(4, 4), head=lin(12, 3)), picture, HW, one_class, "ldf"),
    "tokens_of_picture": (lambda: Net(tokens_of_picture, patch=nn.Conv2d(3, 8, 2, 2), rows=weight(5, 8), columns=weight(5, 8), cls=weight(1, 1, 8), norm=nn.LayerNorm(8), qkv=qkv(), head=lin(8, 3)), picture, HW, one_class, "ldf"),
    "downsampled": (lambda: Net(downsampled, a=nn.Conv1d(5, 6, 3, 2, 1), b=conv1(6, 6), c=nn.ConvTranspose1d(6, 6, 4, 2, 1, 1), head=lin(6, 3)), line(), T, a_step, "ldf"),
    "causal_filters": (lambda: Net(causal_filters, up=lin(5, 6), layers=L(nn.Conv1d(6, 6, 3, dilation=2**k) for k in range(2)), head=lin(6, 3)), line(), T, a_step, "ldf"),
    "chunked": (lambda: Net(chunked, up=up(), qkv=qkv(), decay=nn.Parameter(torch.tensor(1.5)), head=lin(8, 3)), line(), T, a_step, "ldf"),
    "carried": (lambda: Net(carried, table=nn.Embedding(11, 5), lstm=nn.LSTM(5, 6, batch_first=True), head=lin(6, 3)), words, T, a_step, "ldf"),
    "remembered": (lambda: Net(remembered, table=nn.Embedding(11, 8), qkv=qkv(), head=lin(8, 3)), recent, {"x": {1: "steps"}, "past": {2: "before"}}, a_step, "ldf"),
    "wavefront": (lambda: Net(wavefront, rows=nn.GRU(15, 4, batch_first=True, bidirectional=True), back=nn.GRU(8, 6, batch_first=True), head=lin(6, 3)), lambda b: {"x": pixels(b, some(4, 8), 3, 5)}, T, one_class, "ldf"),
    "double_file": (lambda: Net(double_file, a=lin(6, 6), b=lin(6, 6), g=one(6), c=weight(6), head=lin(6, 3)).double(), lambda b: {"x": pixels(b, 6).double()}, None, one_class, "ldf"),
    "double_images": (lambda: Net(double_images, first=conv(3, 4), second=conv(4, 6), norm=nn.GroupNorm(2, 6), head=lin(6, 3)).double(), lambda b: {"x": pixels(b, 3, 6, 6).double()}, None, one_class, "ldf"),
    "double_recurrent": (lambda: Net(double_recurrent, gru=nn.GRU(5, 4, 2, batch_first=True, bidirectional=True), head=lin(8, 3)).double(), lambda b: {"x": pixels(b, 5, 5).double()}, None, one_class, "ldf"),
    "made_twice": (lambda: Net(lambda s, x: s.b(torch.tanh(s.a(x))), a=of_two(lin(6, 6)), b=parametrizations.weight_norm(lin(6, 3), dim=None)), vector, None, one_class, "ldf"),
}
# exporter, opset, optimize, mode, dynamic batch and axes
WAYS = {"l": [("legacy", 17, True, "train", True), ("legacy", 15, False, "eval", True)], "d": [("dynamo", 20, True, "eval", True), ("dynamo", 18, False, "train", False)], "f": [("legacy", 16, True, "eval", False)], "s": [("legacy", 17, False, "train", True), ("legacy", 14, False, "eval", False)]}
SECOND = {"carried": ("h2", "c2"), "remembered": ("kept",)}


def cases():
    torch.manual_seed(0)
    rules = [optimizer("adam", lr=0.01), optimizer("momentum", lr=0.04, dampening=0.1), optimizer("adamw", lr=0.01, weight_decay=0.1, amsgrad=True), optimizer("adagrad", lr=0.05, lr_decay=0.01, initial_accumulator_value=0.1)]
    for k, (name, (module, inputs, axes, target, ways)) in enumerate(FLOW.items()):
        for w, (exporter, opset, optimize, mode, dynamic) in enumerate(way for kind in ways for way in WAYS[kind]):
            fixed = {n: v.shape[1:] for n, v in inputs(1).items()} if axes and not dynamic else None

            def batch(b, inputs=inputs, target=target, fixed=fixed):
                made = inputs(b) if fixed is None else {n: pixels(b, *fixed[n]) if v.is_floating_point() else classes(11, b, *fixed[n]) for n, v in inputs(b).items()}
                return made | {"y": target(made["x"])}

            terms = [term("cross_entropy", class_axis=-1) if target is a_step else term("cross_entropy")]
            outputs = ("out", *SECOND.get(name, ()))
            if len(outputs) > 1:
                terms.append(term("output", output=outputs[-1], target=None, weight=0.2))
            sizes = [4, 4, 3, 5, 4, 2] if dynamic and exporter == "legacy" else [4, 4, 3, 5, 4, 6] if dynamic else None
            yield Case(f"open_{name}_{exporter}{opset}{'' if dynamic else '_fixed'}", module, batch, terms, rules[(k + w) % 4], inputs=tuple(inputs(1)), outputs=outputs, exporter=exporter, opset=opset, mode=mode, optimize=optimize,
                       dynamic_batch=dynamic, dynamic_axes=axes if dynamic else None, batch_size=4, batch_sizes=sizes, steps=6, script="s" in ways, may_rest=True, keep_notes=exporter == "dynamo")
