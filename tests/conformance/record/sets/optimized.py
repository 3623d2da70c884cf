"""Files that onnxruntime's optimizers have rewritten, with its own operators (`com.microsoft`): its extended optimizations, which fuse
adjacent nodes, and its transformer tool (`onnxruntime.transformers`), which fuses complete attention layers. The exported module is the
reference."""
import contextlib
import io
import logging
import math
import tempfile
import warnings

import onnx
import onnxruntime
import torch
import torch.nn as nn
import torch.nn.functional as F

from case import Case, classes, pixels, term
from optimizers import optimizer
from sets.after_export import by_onnxruntime
from sets.families import Net, conv, lin, weight
from sets.hand_written import text


def residual_convs(s, x):
    h = F.relu(s.first(x))
    h = F.relu(h + s.second(h))
    h = F.leaky_relu(s.third(h), 0.2)
    h = torch.sigmoid(s.gate(h)) * torch.tanh(s.fourth(h)) + F.hardsigmoid(s.fifth(h))
    return s.head(torch.clamp(s.sixth(h), 0, 6).mean((2, 3)))


def perceptron(s, x):
    h = F.gelu(s.a(x))
    h = F.gelu(h @ s.w + s.b, approximate="tanh")
    h = h + h * torch.sigmoid(1.702 * h)
    return s.head(F.relu(s.c(h)))


class Layer(nn.Module):
    """BERT, as transformers writes it."""

    def __init__(self, width, heads, hidden, activation=F.gelu):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down, self.n1, self.n2 = nn.Linear(width, hidden), nn.Linear(hidden, width), nn.LayerNorm(width, eps=1e-5), nn.LayerNorm(width, eps=1e-5)
        self.heads, self.activation = heads, activation

    def forward(self, h, mask):
        def split(y):
            return y.view(y.size(0), y.size(1), self.heads, y.size(2) // self.heads).permute(0, 2, 1, 3)

        q, k, v = split(self.q(h)), split(self.k(h)), split(self.v(h))
        s = q @ k.transpose(-1, -2) / math.sqrt(q.size(-1)) + mask
        y = (s.softmax(-1) @ v).permute(0, 2, 1, 3).contiguous()
        h = self.n1(self.o(y.view(y.size(0), y.size(1), -1)) + h)
        return self.n2(self.down(self.activation(self.up(h))) + h)


def encoder(s, x, kind, mask):
    h = s.norm(s.words(x) + s.kinds(kind) + s.places(s.counted[:, : x.size(1)]))
    far = (1.0 - mask[:, None, None, :].to(h.dtype)) * -10000.0
    for layer in s.layers:
        h = layer(h, far)
    return s.head(torch.tanh(s.pool(h[:, 0])))


def plain_encoder(s, x):
    h = s.up(x)
    for layer in s.layers:
        h = layer(h, torch.zeros(1))
    return s.head(h.mean(1))


def scaled_products(s, x):
    q, k, v = ((x @ w).view(x.size(0), 6, 2, 4).transpose(1, 2) for w in (s.q, s.k, s.v))
    a = (q @ k.transpose(-1, -2) * 0.5).softmax(-1)
    h = (a.transpose(-1, -2) @ v * 0.7).transpose(1, 2).reshape(x.size(0), 6, 8)
    return h @ s.o.t() + s.bias


def normalised(s, x):
    h = s.up(x)
    for w, norm in zip(s.layers, s.norms):
        h = norm(h + w(F.silu(h)))
    h = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6) * s.scale
    return s.head(h.mean(1))


tokens = lambda b: {"x": classes(13, b, 6), "kind": classes(2, b, 6), "mask": (torch.arange(6) < classes(5, b)[:, None] + 2).long()}
steps, vector, image = (lambda b: {"x": pixels(b, 6, 5)}), (lambda b: {"x": pixels(b, 6)}), (lambda b: {"x": pixels(b, 3, 8, 8)})
MODULES = {
    "residual_convs": (lambda: Net(residual_convs, first=conv(3, 6), second=conv(6, 6), third=conv(6, 6, 3, groups=2), gate=conv(6, 6, 1), fourth=conv(6, 6), fifth=conv(6, 6, 1), sixth=conv(6, 6), head=lin(6, 3)), image, (3,)),
    "perceptron": (lambda: Net(perceptron, a=lin(6, 8), w=weight(8, 8), b=weight(8), c=lin(8, 8), head=lin(8, 3)), vector, (3,)),
    "encoder": (lambda: Net(encoder, words=nn.Embedding(13, 8), kinds=nn.Embedding(2, 8), places=nn.Embedding(9, 8), counted=torch.arange(9)[None], norm=nn.LayerNorm(8, eps=1e-5), layers=nn.ModuleList(Layer(8, 2, 12) for _ in range(2)), pool=lin(8, 8), head=lin(8, 3)), tokens, (3,)),
    "plain_encoder": (lambda: Net(plain_encoder, up=lin(5, 8), layers=nn.ModuleList(Layer(8, 2, 12, lambda y: F.gelu(y, approximate="tanh")) for _ in range(2)), head=lin(8, 3)), steps, (3,)),
    "torch_encoder": (lambda: Net(lambda s, x: s.head(s.body(s.up(x)).mean(1)), up=lin(5, 8), body=nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 12, 0.0, "gelu", batch_first=True), 2, enable_nested_tensor=False), head=lin(8, 3)), steps, (3,)),
    "scaled_products": (lambda: Net(scaled_products, q=weight(5, 8), k=weight(5, 8), v=weight(5, 8), o=weight(3, 8), bias=weight(3)), steps, (6, 3)),
    "normalised": (lambda: Net(normalised, up=lin(5, 8), layers=nn.ModuleList(nn.Linear(8, 8) for _ in range(2)), norms=nn.ModuleList(nn.LayerNorm(8) for _ in range(2)), scale=nn.Parameter(1 + torch.randn(8) * 0.2), head=lin(8, 3)), steps, (3,)),
}


def for_transformers(model):
    from onnxruntime.transformers import optimizer as transformers

    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as folder:
        onnx.save(model, f"{folder}/m.onnx")
        made = transformers.optimize_model(f"{folder}/m.onnx", model_type="bert", num_heads=2, hidden_size=8, opt_level=0, use_gpu=False)
        made.save_model_to_file(f"{folder}/n.onnx")
        return onnx.load(f"{folder}/n.onnx")


def rotated(x, angles):
    """(batch, heads, length, width); rotary positions pair the two halves of the width, as in onnxruntime and Llama."""
    a, b = x.chunk(2, -1)
    return torch.cat([a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()], -1)


def grouped(q, k, v, cap=0.0, window=0, sink=None):
    """Two query heads over one key head, causal."""
    s = q @ k.transpose(-1, -2) / math.sqrt(q.size(-1))
    s = cap * torch.tanh(s / cap) if cap else s
    far = torch.arange(q.size(2))[:, None] - torch.arange(k.size(2))
    s = s.masked_fill((far < 0) | ((far >= window) if window else False), -math.inf)
    if sink is not None:
        s = torch.cat([s, sink.view(1, -1, 1, 1).expand(*s.shape[:3], 1)], -1)
    return (s.softmax(-1)[..., : k.size(2)] @ v).transpose(1, 2).flatten(2)


ANGLES = torch.arange(8)[:, None] * 0.5 ** torch.arange(8)
heads = lambda x, n: x.view(x.size(0), x.size(1), n, -1).transpose(1, 2)
rms = lambda x, scale: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * scale


def llama(s, x, mask):
    h = s.words[x]
    y = rms(h, s.n1)
    q, k, v = heads(y @ s.q, 2), heads(y @ s.k, 1), heads(y @ s.v, 1)
    angles = ANGLES[: x.size(1)]
    h = h + grouped(rotated(q, angles), rotated(k, angles), v) @ s.o
    y = rms(h, s.n2)
    return (h + (F.silu(y @ s.gate) * (y @ s.up)) @ s.down).transpose(1, 2).mean(2) @ s.head


def packed(s, x):
    q, k, v = (x @ s.w).split([32, 16, 16], -1)
    return (grouped(heads(q, 2), heads(k, 1), heads(v, 1), cap=1.5, window=2, sink=s.sink) @ s.o).mean(1)


def prefix(s, x):
    """Trained keys and values before all others (prefix tuning)."""
    b = x.size(0)
    k, v = (torch.cat([p.expand(b, -1, -1, -1), heads(x @ w, 2)], 2) for p, w in ((s.keys, s.k), (s.values, s.v)))
    return (torch.softmax(heads(x @ s.q, 2) @ k.transpose(-1, -2) / 2.0, -1) @ v).transpose(1, 2).flatten(2).mean(1) @ s.o


def write_llama(module, batch, path):
    """In the form of onnxruntime-genai and optimum: lengths from the mask, and an absent past."""
    write_text(LLAMA)(module, batch, path)
    model = onnx.load(path)
    for name, of in (("cos", torch.cos), ("sin", torch.sin)):
        model.graph.initializer.append(onnx.numpy_helper.from_array(of(ANGLES).numpy(), f"{name}_cache"))
    onnx.save(model, path)


one = lambda n: nn.Parameter(1 + torch.randn(n) * 0.2)
write_text = lambda body: text(8, {"ai.onnx": 17, "com.microsoft": 1}, body)
LLAMA = """g (int64[N, T] x, int64[N, T] mask) => (float[N, 3] out) <int64[1] last = {1}, int64 one = {1}> {
  shape = Shape (mask) total_long = Gather <axis = 0> (shape, one) total = Cast <to = 6> (total_long)
  counted = ReduceSum <keepdims = 0> (mask, last) ends_long = Sub (counted, last) ends = Cast <to = 6> (ends_long)
  h = Gather (words, x) y = SimplifiedLayerNormalization <axis = -1, epsilon = 1.0e-6> (h, n1)
  a = MatMul (y, q) b = MatMul (y, k) c = MatMul (y, v)
  d, keys, values = com.microsoft.GroupQueryAttention <num_heads = 2, kv_num_heads = 1, do_rotary = 1, rotary_interleaved = 0, local_window_size = -1> (a, b, c, , , ends, total, cos_cache, sin_cache)
  e = MatMul (d, o) f, , , sum = com.microsoft.SkipSimplifiedLayerNormalization <epsilon = 1.0e-6> (h, e, n2)
  g1 = MatMul (f, gate) g2 = Sigmoid (g1) g3 = Mul (g1, g2) g4 = MatMul (f, up) g5 = Mul (g3, g4) g6 = MatMul (g5, down)
  z = Add (sum, g6) pooled = ReduceMean <axes = [1], keepdims = 0> (z) out = MatMul (pooled, head) }"""
PACKED = """g (float[N, T, 5] x, int32[N] ends, int32 total) => (float[N, 3] out) {
  y = MatMul (x, w)
  d = com.microsoft.GroupQueryAttention <num_heads = 2, kv_num_heads = 1, softcap = 1.5, local_window_size = 2> (y, , , , , ends, total, , , , , sink)
  e = MatMul (d, o) out = ReduceMean <axes = [1], keepdims = 0> (e) }"""
PREFIX = """g (float[N, T, 5] x) => (float[N, 3] out) <int64[3] rest = {2, 3, 4}> {
  n = Shape <start = 0, end = 1> (x) s = Concat <axis = 0> (n, rest) pk = Expand (keys, s) pv = Expand (values, s)
  a = MatMul (x, q) b = MatMul (x, k) c = MatMul (x, v)
  d, keys_now, values_now = com.microsoft.MultiHeadAttention <num_heads = 2> (a, b, c, , , , pk, pv) e = ReduceMean <axes = [1], keepdims = 0> (d) out = MatMul (e, o) }"""
# name: (module, inputs, writer)
PAST = {
    "llama": (lambda: Net(llama, words=weight(13, 32), n1=one(32), q=weight(32, 32), k=weight(32, 16), v=weight(32, 16), o=weight(32, 32), n2=one(32), gate=weight(32, 12), up=weight(32, 12), down=weight(12, 32), head=weight(32, 3)),
              lambda b: {"x": classes(13, b, 6), "mask": torch.ones(b, 6, dtype=torch.long)}, write_llama),
    "packed": (lambda: Net(lambda s, x, ends, total: packed(s, x), w=weight(5, 64), o=weight(32, 3), sink=weight(2)), lambda b: steps(b) | {"ends": torch.full((b,), 5, dtype=torch.int32), "total": torch.tensor(6, dtype=torch.int32)}, write_text(PACKED)),
    "prefix": (lambda: Net(prefix, q=weight(5, 8), k=weight(5, 8), v=weight(5, 8), keys=weight(1, 2, 3, 4), values=weight(1, 2, 3, 4), o=weight(8, 3)), steps, write_text(PREFIX)),
}


TOOLS = {"extended": by_onnxruntime(onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED), "transformers": for_transformers}
# exporter, opset, mode, dynamic batch
STYLES = [("legacy", 17, "eval", True), ("legacy", 12, "eval", False), ("legacy", 14, "train", True), ("dynamo", 18, "eval", True)]


def writer(tool, exporter, opset, mode, dynamic, inputs):
    def write(module, batch, path):
        values, names = tuple(batch[i] for i in inputs), list(inputs)
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            if exporter == "legacy":
                training = torch.onnx.TrainingMode.TRAINING if mode == "train" else torch.onnx.TrainingMode.EVAL
                torch.onnx.export(module, values, path, dynamo=False, opset_version=opset, input_names=names, output_names=["out"], training=training, do_constant_folding=mode == "eval",
                                  dynamic_axes={n: {0: "batch"} | ({1: "length"} if not values[0].is_floating_point() and n != "out" else {}) for n in (*names, "out")} if dynamic else None)
            else:
                torch.onnx.export(module, values, path, dynamo=True, opset_version=opset, input_names=names, output_names=["out"], external_data=False, verbose=False,
                                  dynamic_shapes=(tuple({0: "batch"} | ({1: "length"} if not values[0].is_floating_point() else {}) for _ in names),) if dynamic else None)
            onnx.save(TOOLS[tool](onnx.load(path)), path)

    return write


def cases():
    for tool in TOOLS:
        for name, (module, inputs, out) in MODULES.items():
            for exporter, opset, mode, dynamic in STYLES:
                terms = [term("mse")] if len(out) > 1 else [term("cross_entropy")]
                y = (lambda b, out=out: pixels(b, *out)) if len(out) > 1 else (lambda b, out=out: classes(out[0], b))
                rule = optimizer("adam", lr=0.005) if (len(name) + opset) % 2 else optimizer("momentum", lr=0.02)
                yield Case(f"optimized_{tool}_{name}_{exporter}{opset}", module, lambda b, inputs=inputs, y=y: inputs(b) | {"y": y(b)}, terms, rule, inputs=tuple(inputs(1)), exporter=f"{exporter}, onnxruntime", opset=opset, mode=mode,
                           optimize=mode == "eval", dynamic_batch=dynamic, batch_size=4, batch_sizes=[4, 4, 3, 5, 4] if dynamic else None, steps=5, may_rest=True, write=writer(tool, exporter, opset, mode, dynamic, tuple(inputs(1))))
    for name, (module, inputs, write) in PAST.items():
        yield Case(f"optimized_grouped_{name}", module, lambda b, inputs=inputs: inputs(b) | {"y": classes(3, b)}, [term("cross_entropy")], optimizer("adam", lr=0.01), inputs=tuple(inputs(1)), exporter="by hand, onnxruntime", opset=17, dynamic_batch=True, batch_size=4,
                   batch_sizes=[4, 4, 3, 5, 4], steps=5, write=write)
