"""Files in ONNX's text syntax that no exporter of PyTorch writes: valid, but unusual. Functions with default attributes, captures from two
enclosing graphs, absent outputs, weights used indirectly, reused names, and the output of TensorFlow's converters (channels last). A
PyTorch module defines what the file computes."""
import onnx
import torch
import torch.nn as nn
import torch.nn.functional as F
from onnx import helper, numpy_helper

from case import Case, classes, pixels, term
from sets.families import Net, weight

one = lambda *shape: nn.Parameter(1 + torch.randn(*shape) * 0.3)
vector, steps, image = (lambda b: {"x": pixels(b, 6)}), (lambda b: {"x": pixels(b, 5, 4)}), (lambda b: {"x": pixels(b, 8, 8, 3)})


def text(ir, opsets, body, functions="", layout=None, as_inputs=False):
    """Writes the graph with the module's parameters as initializers; `layout` says which are transposed."""

    def write(module, batch, path):
        imports = ", ".join(f'"{d}" : {v}' for d, v in opsets.items())
        model = onnx.parser.parse_model(f"<ir_version: {ir}, opset_import: [{imports}]>\n{body}\n{functions}")
        for name, p in module.named_parameters():
            value = p.detach().numpy()
            if layout and name in layout:
                value = value.transpose(layout[name])
            tensor = numpy_helper.from_array(value.copy(), name)
            model.graph.initializer.append(tensor)
            if as_inputs:
                model.graph.input.append(helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, value.shape))
        if "ai.onnx" not in opsets:
            onnx.checker.check_model(model, full_check=False)
        onnx.save(model, path)

    return write


def hidden(s, x):
    return torch.tanh(x @ s.w + s.b) @ s.v + s.c


def two_layers(n=6, h=5, o=3):
    return dict(w=weight(n, h), b=weight(h), v=weight(h, o), c=weight(o))


HEAD = "g (float[N, 6] x) => (float[N, 3] out)"
FORMS = {
    # name: (module, inputs, outputs per sample, writer)
    "unnamed_old": (lambda: Net(hidden, **two_layers()), vector, 3, text(3, {"": 9}, HEAD + """ {
  a = MatMul (x, w) d = Add (a, b) e = Tanh (d) f = MatMul (e, v) out = Add (f, c) }""", as_inputs=True)),
    "domain_spelled": (lambda: Net(hidden, **two_layers()), vector, 3, text(10, {"ai.onnx": 21}, HEAD + """ {
  a = ai.onnx.MatMul (x, w) d = Add (a, b) e = ai.onnx.Tanh (d) f = MatMul (e, v) out = Add (f, c) }""")),
    "function_defaults": (lambda: Net(lambda s, x: F.leaky_relu(F.leaky_relu(x @ s.w, 0.3), 0.05) @ s.v, w=weight(6, 5), v=weight(5, 3)), vector, 3, text(10, {"": 18, "own": 1}, HEAD + """ {
  a = MatMul (x, w) d = own.Twice <slope = 0.05> (a) out = MatMul (d, v) }""", """
<domain: "own", opset_import: ["" : 18, "own" : 1]> Twice <slope: float = 0.5> (y) => (z) { m = own.Leak (y) z = own.Leak <alpha: float = @slope> (m) }
<domain: "own", opset_import: ["" : 18]> Leak <alpha: float = 0.3> (y) => (z) { z = LeakyRelu <alpha: float = @alpha> (y) }""")),
    "nested_captures": (lambda: Net(lambda s, x, on, also: torch.relu(x @ s.w + s.b) @ s.v, w=weight(6, 5), b=weight(5), v=weight(5, 3)), lambda b: vector(b) | {"on": torch.tensor(True), "also": torch.tensor(True)}, 3, text(10, {"": 18}, """
g (float[N, 6] x, bool on, bool also) => (float[N, 3] out) {
  out = If (on) <then_branch = t () => (float[N, 3] y) {
      h = MatMul (x, w)
      k = If (also) <then_branch = tt () => (float[N, 5] p) { q = Add (h, b) p = Relu (q) }, else_branch = te () => (float[N, 5] r) { r = Identity (h) }>
      y = MatMul (k, v) },
    else_branch = e () => (float[N, 3] y2) { h2 = MatMul (x, w) y2 = MatMul (h2, v) }> }""")),
    "loop_captures": (lambda: Net(lambda s, x: unrolled(s, x), w=weight(6, 5), u=weight(5, 5), b=weight(5), v=weight(5, 3)), vector, 3, text(10, {"": 18}, HEAD + """
<int64 three = {3}, bool yes = {1}> {
  h = MatMul (x, w)
  k, all = Loop (three, yes, h) <body = body (int64 i, bool go, float[N, 5] s) => (bool on, float[N, 5] next, float[N, 5] kept) {
      on = Identity (go) m = MatMul (s, u) a = Add (m, b) next = Tanh (a) kept = Relu (next) }>
  axes = Constant <value_ints = [0]> ()
  some = ReduceSum <keepdims = 0> (all, axes) both = Add (some, k) out = MatMul (both, v) }""")),
    "scan_reversed": (lambda: Net(lambda s, x: scanned(s, x), w=weight(4, 5), u=weight(5, 5), v=weight(5, 3)), steps, 3, text(10, {"": 18}, """
g (float[N, 5, 4] x) => (float[N, 3] out) <float[1, 5] none = {0, 0, 0, 0, 0}> {
  first = Constant <value_ints = [0]> () shape = Shape <start = 0, end = 1> (x) five = Constant <value_ints = [5]> () s = Concat <axis = 0> (shape, five) start = Expand (none, s)
  last, all = Scan <num_scan_inputs = 1, scan_input_axes = [1], scan_input_directions = [1], scan_output_axes = [1], body = body (float[N, 5] h, float[N, 4] y) => (float[N, 5] next, float[N, 5] kept) {
      a = MatMul (y, w) m = MatMul (h, u) t = Add (a, m) next = Tanh (t) kept = Sigmoid (next) }> (start, x)
  one = Constant <value_ints = [1]> () mean = ReduceMean <keepdims = 0> (all, one) both = Add (mean, last) out = MatMul (both, v) }""")),
    "absent_outputs": (lambda: Net(lambda s, x: absent(s, x), w=weight(1, 12, 4), r=weight(1, 12, 3), b=weight(1, 24), g=one(3), v=weight(3, 3)), steps, 3, text(8, {"": 14}, """
g (float[N, 5, 4] x) => (float[N, 3] out) {
  t = Transpose <perm = [1, 0, 2]> (x)
  , last = LSTM <hidden_size = 3> (t, w, r, b)
  first = Constant <value_ints = [0]> () h = Squeeze (last, first) k = Constant <value_ints = [2]> ()
  top, unused = TopK <axis = 1> (h, k) zero = Constant <value_float = 0.0> () d, mask = Dropout (h) n = Mul (d, g)
  m = MatMul (n, v) rest = ReduceMean <axes = [1], keepdims = 1> (top) out = Add (m, rest) }""")),
    "weights_by_detours": (lambda: Net(lambda s, x: torch.tanh(x @ s.w.t() + s.b) @ s.v, w=weight(5, 6), b=weight(5), v=weight(5, 3)), vector, 3, text(10, {"": 18}, HEAD + """
<int64[2] flat = {5, 3}> {
  i = Identity (w) j = Identity (i) t = Transpose (j) a = MatMul (x, t) u = Unsqueeze (b, first) d = Add (a, u) e = Tanh (d)
  first = Constant <value_ints = [0]> () r = Reshape (v, flat) out = MatMul (e, r) }""".replace("u = Unsqueeze (b, first) d = Add (a, u) e = Tanh (d)\n  first = Constant <value_ints = [0]> ()", "first = Constant <value_ints = [0]> () u = Unsqueeze (b, first) d = Add (a, u) e = Tanh (d)"))),
    "outputs_again": (lambda: Net(lambda s, x: (hidden(s, x), torch.tanh(x @ s.w + s.b), x, s.b * 1, torch.tanh(x @ s.w + s.b)), **two_layers()), vector, 3, text(10, {"": 18}, """g (float[N, 6] x) => (float[N, 3] out, float[N, 5] side, float[N, 6] x, float[5] b, float[N, 5] side2) {
  a = MatMul (x, w) d = Add (a, b) side = Tanh (d) side2 = Identity (side) f = MatMul (side, v) out = Add (f, c) }""")),
    "channels_last": (lambda: Net(channels_last, k=weight(4, 3, 3, 3), b=weight(4), d=weight(4, 1, 3, 3), w=weight(64, 3), c=weight(3)), image, 3, text(8, {"": 13}, """
g (float[N, 8, 8, 3] x) => (float[N, 3] out) <int64[4] grown = {0, 1, 1, 0}, int64[8] pads = {0, 0, 0, 0, 0, 1, 1, 0}, int64[1] minus = {-1}, int64[4] bias_shape = {1, 1, 1, 4}> {
  p = Pad (x, pads) t = Transpose <perm = [0, 3, 1, 2]> (p) y = Conv <strides = [2, 2]> (t, k) back = Transpose <perm = [0, 2, 3, 1]> (y) biased = Add (back, b) r = Relu (biased)
  t2 = Transpose <perm = [0, 3, 1, 2]> (r) q = Conv <group = 4, auto_pad = "SAME_UPPER"> (t2, d) n = Transpose <perm = [0, 2, 3, 1]> (q) six = Clip (n)
  shape = Shape (six) b0 = Slice (shape, zero, one) target = Concat <axis = 0> (b0, minus) flat = Reshape (six, target) m = MatMul (flat, w) out = BiasAdd_ (m, c) }""".replace("BiasAdd_", "Add").replace(
        "{\n  p = Pad", "{\n  zero = Constant <value_ints = [0]> () one = Constant <value_ints = [1]> () p = Pad"))),
    "sequences": (lambda: Net(lambda s, x: torch.cat([x[:, 0] @ s.w, torch.tanh(x[:, 3] @ s.w)], 1) @ s.v, w=weight(4, 5), v=weight(10, 3)), steps, 3, text(10, {"": 18}, """
g (float[N, 5, 4] x) => (float[N, 3] out) {
  q = SplitToSequence <axis = 1, keepdims = 0> (x) i = Constant <value_int = 0> () k = Constant <value_int = -2> ()
  a = SequenceAt (q, i) d = SequenceAt (q, k) m = MatMul (a, w) n = MatMul (d, w) t = Tanh (n) e = SequenceEmpty () f = SequenceInsert (e, t) z = SequenceInsert (f, m, i)
  j = ConcatFromSequence <axis = 1> (z) out = MatMul (j, v) }""")),
    "softmax_of_eleven": (lambda: Net(lambda s, x: (x @ s.w).flatten(1).softmax(-1) @ s.v, w=weight(4, 3), v=weight(15, 3)), steps, 3, text(6, {"": 11}, """
g (float[N, 5, 4] x) => (float[N, 3] out) { a = MatMul (x, w) p = Softmax (a) f = Flatten (p) out = MatMul (f, v) }""")),
    "gemm_odd": (lambda: Net(lambda s, x: 0.5 * (x.t().t() @ s.w.t()) + 2 * s.b[:1] + 0 * s.b.sum(), w=weight(3, 6), b=weight(1)), vector, 3, text(10, {"": 13}, HEAD + """ {
  t = Transpose (x) out = Gemm <alpha = 0.5, beta = 2.0, transA = 1, transB = 1> (t, w, b) }""")),
    "norms_without": (lambda: Net(lambda s, x: F.layer_norm(x @ s.w, (5, 5), s.g.expand(5, 5), None).flatten(1) @ s.v, w=weight(4, 5), g=one(5), v=weight(25, 3)), steps, 3, text(10, {"": 17}, """
g (float[N, 5, 4] x) => (float[N, 3] out) <int64[2] square = {5, 5}> { a = MatMul (x, w) e = Expand (g, square) n, , = LayerNormalization <axis = 1> (a, e) f = Flatten (n) out = MatMul (f, v) }""")),
    "shadowed": (lambda: Net(lambda s, x, on: torch.tanh(torch.sigmoid(x @ s.w) @ s.v), w=weight(6, 5), v=weight(5, 3)), lambda b: vector(b) | {"on": torch.tensor(True)}, 3, text(10, {"": 18}, """
g (float[N, 6] x, bool on) => (float[N, 3] out) { h = MatMul (x, w)
  k = If (on) <then_branch = t () => (float[N, 5] z) { z = Sigmoid (h) }, else_branch = e () => (float[N, 5] z) { z = Tanh (h) }> z = MatMul (k, v) out = Tanh (z) }""")),
}


def unrolled(s, x):
    h, total = x @ s.w, 0
    for _ in range(3):
        h = torch.tanh(h @ s.u + s.b)
        total = total + torch.relu(h)
    return (total + h) @ s.v


def scanned(s, x):
    h, kept = torch.zeros(x.shape[0], 5, dtype=x.dtype), []
    for k in reversed(range(5)):
        h = torch.tanh(x[:, k] @ s.w + h @ s.u)
        kept.append(torch.sigmoid(h))
    return (torch.stack(kept, 1).mean(1) + h) @ s.v


def absent(s, x):
    """ONNX's LSTM: gates i, o, f, c."""
    h = c = torch.zeros(x.shape[0], 3, dtype=x.dtype)
    for k in range(5):
        i, o, f, g = (x[:, k] @ s.w[0].t() + s.b[0, :12] + h @ s.r[0].t() + s.b[0, 12:]).chunk(4, 1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
    return (h * s.g) @ s.v + h.topk(2, 1)[0].mean(1, keepdim=True)


def channels_last(s, x):
    h = F.relu(F.conv2d(F.pad(x.permute(0, 3, 1, 2), (0, 1, 0, 1)), s.k, stride=2) + s.b[:, None, None])
    return F.conv2d(h, s.d, padding=1, groups=4).permute(0, 2, 3, 1).flatten(1) @ s.w + s.c


def cases():
    for name, (module, inputs, out, write) in FORMS.items():
        outputs = ("out", "side", "x", "b", "side2") if name == "outputs_again" else ("out",)
        terms = [term("cross_entropy")] + ([term("output", output="side", target=None, weight=0.1)] if len(outputs) > 1 else [])
        yield Case(f"hand_{name}", module, lambda b, inputs=inputs, out=out: inputs(b) | {"y": classes(out, b)}, terms, {"type": "momentum", "lr": 0.05, "momentum": 0.9}, inputs=tuple(inputs(1)), outputs=outputs,
                   exporter="hand", mode="eval", dynamic_batch=True, batch_size=6, batch_sizes=[6, 6, 6, 4], steps=4, write=write)
