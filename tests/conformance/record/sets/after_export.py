"""Files after the tools that people run on exported models: onnxsim, onnxslim, onnxruntime's own optimizations, onnxscript's, other opsets
by ONNX's version converter, inlined functions; and rarer options of the exporters (initializers as inputs, traced modules, bounded
batches). Tools that are not installed are skipped."""
import importlib.util
import io
import contextlib
import warnings

import onnx
import onnx.inliner
import onnx.version_converter
import onnxruntime
import torch
import torch.nn as nn
import torch.nn.functional as F

from case import Case, classes, pixels, term
from optimizers import optimizer
from sets.families import Net, conv, lin, weight


def small_conv(s, x):
    h = F.relu(s.norm1(s.first(x)))
    h = h + F.relu(s.norm2(s.second(h)))
    return s.head(F.dropout(h, 0.0, s.training).mean((2, 3)))


def small_decoder(s, x):
    b, t = x.shape
    h = s.table(x) + s.places[:t]
    q, k, v = s.qkv(F.layer_norm(h, (8,), s.scale, s.shift)).chunk(3, -1)
    q, k, v = (y.view(b, t, 2, 4).transpose(1, 2) for y in (q, k, v))
    h = h + s.out((F.scaled_dot_product_attention(q, k, v, is_causal=True)).transpose(1, 2).reshape(b, t, 8))
    return F.gelu(s.up(h)) @ s.table.weight.t()


def small_recurrent(s, x):
    h, _ = s.lstm(s.up(x))
    h, last = s.gru(h)
    return s.head(torch.cat([h.mean(1), last[-1]], 1))


def small_unet(s, x):
    a = F.leaky_relu(s.a(x), 0.1)
    b = F.silu(s.norm(s.b(F.max_pool2d(a, 2))))
    up = F.interpolate(b, scale_factor=2, mode="bilinear", align_corners=False) + s.t(b)
    return s.c(torch.cat([a, up], 1))


def small_mlp(s, x):
    h = F.linear(x, s.w, s.b) * 2 - 1
    h = F.hardswish(h / (1 + h.abs().mean(-1, keepdim=True)))
    return F.log_softmax(s.head(torch.cat([h, x.clamp(-1, 1)], 1)), 1)


def small_transformer(s, x):
    return s.head(s.body(s.up(x)).mean(1))


MODULES = {
    "conv": (lambda: Net(small_conv, first=conv(3, 5, bias=False), norm1=nn.BatchNorm2d(5), second=conv(5, 5), norm2=nn.BatchNorm2d(5), head=lin(5, 4)), lambda b: pixels(b, 3, 8, 8), lambda b: classes(4, b), [term("cross_entropy")]),
    "decoder": (lambda: Net(small_decoder, table=nn.Embedding(11, 8), places=weight(6, 8), scale=weight(8), shift=weight(8), qkv=lin(8, 24), out=lin(8, 8), up=lin(8, 8)), lambda b: classes(11, b, 6), lambda b: classes(11, b, 6), [term("cross_entropy", class_axis=-1)]),
    "recurrent": (lambda: Net(small_recurrent, up=lin(5, 4), lstm=nn.LSTM(4, 4, batch_first=True, bidirectional=True), gru=nn.GRU(8, 4, batch_first=True), head=lin(8, 3)), lambda b: pixels(b, 7, 5), lambda b: classes(3, b), [term("cross_entropy")]),
    "unet": (lambda: Net(small_unet, a=conv(3, 4), b=conv(4, 6), norm=nn.GroupNorm(2, 6), t=nn.ConvTranspose2d(6, 6, 2, 2), c=conv(10, 2, 1)), lambda b: pixels(b, 3, 8, 8), lambda b: classes(2, b, 8, 8), [term("cross_entropy")]),
    "mlp": (lambda: Net(small_mlp, w=weight(8, 6), b=weight(8), head=lin(14, 3)), lambda b: pixels(b, 6), lambda b: classes(3, b), [term("nll")]),
    "transformer": (lambda: Net(small_transformer, up=lin(5, 8), body=nn.TransformerEncoderLayer(8, 2, 12, 0.0, batch_first=True), head=lin(8, 3)), lambda b: pixels(b, 7, 5), lambda b: classes(3, b), [term("cross_entropy")]),
}


def simplified(model):
    import onnxsim

    return onnxsim.simplify(model)[0]


def slimmed(model):
    import onnxslim

    return onnxslim.slim(model)


def scripted(model):
    import onnxscript.optimizer

    return onnxscript.optimizer.optimize(model)


def by_onnxruntime(level):
    def optimise(model):
        with tempfile_path() as path:
            options = onnxruntime.SessionOptions()
            options.graph_optimization_level, options.optimized_model_filepath, options.log_severity_level = level, path, 3
            onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
            return onnx.load(path)

    return optimise


@contextlib.contextmanager
def tempfile_path():
    import os
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        yield os.path.join(folder, "m.onnx")


def converted(version):
    return lambda model: onnx.version_converter.convert_version(model, version)


def prefixed(model):
    import onnx.compose

    return onnx.compose.add_prefix(model, "net/", rename_inputs=False, rename_outputs=False, rename_initializers=False)


# tool, exporter, opset, optimize, mode, dynamic batch, options of the exporter
TOOLS = {
    "simplified": (simplified, "legacy", 17, False, "train", True, {}),
    "simplified_fixed": (simplified, "legacy", 13, True, "eval", False, {}),
    "slimmed": (slimmed, "legacy", 16, True, "train", True, {}),
    "slimmed_dynamo": (slimmed, "dynamo", 18, True, "eval", False, {}),
    "scripted": (scripted, "legacy", 18, True, "train", False, {}),
    "basic": (by_onnxruntime(onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC), "legacy", 17, True, "train", True, {}),
    "basic_dynamo": (by_onnxruntime(onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC), "dynamo", 20, False, "eval", False, {}),
    "extended": (by_onnxruntime(onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED), "legacy", 17, True, "eval", False, {}),
    "raised": (converted(23), "legacy", 13, True, "train", True, {}),
    "lowered": (converted(15), "legacy", 18, False, "train", False, {}),
    "inlined": (onnx.inliner.inline_local_functions, "dynamo", 18, False, "train", False, {}),
    "prefixed": (prefixed, "dynamo", 18, True, "train", False, {}),
    "listed": (None, "legacy", 17, True, "train", True, {"keep_initializers_as_inputs": True}),
    "listed_fixed": (None, "legacy", 12, False, "train", False, {"keep_initializers_as_inputs": True}),
    "traced": (None, "legacy", 17, True, "eval", True, {"traced": True}),
    "bounded": (None, "dynamo", 18, True, "eval", False, {"bounded": True}),
}
NEEDS = {"simplified": "onnxsim", "simplified_fixed": "onnxsim", "slimmed": "onnxslim", "slimmed_dynamo": "onnxslim"}


def writer(tool, exporter, opset, optimize, mode, dynamic, options):
    def write(module, batch, path):
        options_ = dict(options)
        x = batch["x"]
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            if exporter == "legacy":
                training = torch.onnx.TrainingMode.TRAINING if mode == "train" else torch.onnx.TrainingMode.EVAL
                if options_.pop("traced", False):
                    module, training = torch.jit.trace(module, x), torch.onnx.TrainingMode.EVAL
                torch.onnx.export(module, (x,), path, dynamo=False, opset_version=opset, input_names=["x"], output_names=["out"], training=training, do_constant_folding=optimize,
                                  dynamic_axes={"x": {0: "batch"}, "out": {0: "batch"}} if dynamic else None, **options_)
            else:
                shapes = ({0: torch.export.Dim("batch", min=2, max=64)},) if options_.pop("bounded", False) else ({0: "batch"},) if dynamic else None
                torch.onnx.export(module, (x,), path, dynamo=True, opset_version=opset, input_names=["x"], output_names=["out"], optimize=optimize, dynamic_shapes=shapes, external_data=False, verbose=False, **options_)
            if tool:
                onnx.save(tool(onnx.load(path)), path)

    return write


def cases():
    for kind, (tool, exporter, opset, optimize, mode, dynamic, options) in TOOLS.items():
        if kind in NEEDS and importlib.util.find_spec(NEEDS[kind]) is None:
            continue
        for name, (module, x, y, losses) in MODULES.items():
            if name == "decoder" and opset < 14:
                continue  # there is no older form of attention
            yield Case(f"after_{kind}_{name}", module, lambda b, x=x, y=y: {"x": x(b), "y": y(b)}, losses, optimizer("adamw") if len(name) % 2 else optimizer("momentum", lr=0.02), exporter=exporter, opset=opset,
                       optimize=optimize, mode=mode, dynamic_batch=dynamic, batch_size=4, batch_sizes=[4, 4, 3, 5, 2, 4], may_rest=True, write=writer(tool, exporter, opset, optimize, mode, dynamic, options))
