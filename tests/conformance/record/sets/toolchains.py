"""Files that passed through more than one program: two exported separately and merged, a part extracted from a larger one, decomposed to
PyTorch's core operators, open axes fixed afterwards, rewritten by onnxoptimizer, onnx-graphsurgeon, onnxslim and onnxruntime's tools for
models other than BERT. Tools that are not installed are skipped."""
import contextlib
import copy
import importlib.util
import io
import logging
import math
import tempfile
import warnings

import onnx
import onnx.compose
import onnx.utils
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.fusion import fuse_conv_bn_eval

from case import Case, classes, pixels, term
from optimizers import optimizer
from sets.families import Net, conv, lin

tokens, steps, image, vector = (lambda b: {"x": classes(11, b, 6)}), (lambda b: {"x": pixels(b, 7, 5)}), (lambda b: {"x": pixels(b, 3, 8, 8)}), (lambda b: {"x": pixels(b, 6)})


class GPT2(nn.Module):
    """As transformers writes it: one product for queries, keys and values, its own mask, tanh activations."""

    def __init__(self, apart):
        super().__init__()
        block = lambda: nn.ModuleDict(dict(n1=nn.LayerNorm(8), qkv=nn.Linear(8, 24), o=nn.Linear(8, 8), n2=nn.LayerNorm(8), up=nn.Linear(8, 16), down=nn.Linear(16, 8)))
        self.words, self.places, self.blocks, self.norm = nn.Embedding(11, 8), nn.Embedding(6, 8), nn.ModuleList(block() for _ in range(2)), nn.LayerNorm(8)
        self.head = nn.Linear(8, 11, bias=False) if apart else None
        self.register_buffer("mask", torch.ones(6, 6, dtype=torch.bool).tril()[None, None])

    def forward(self, x):
        t = x.shape[1]
        h = self.words(x) + self.places(torch.arange(t)[None])
        for b in self.blocks:
            q, k, v = (y.view(*y.shape[:2], 2, 4).permute(0, 2, 1, 3) for y in b.qkv(b.n1(h)).split(8, 2))
            w = (q @ k.transpose(-1, -2)) / 2.0
            w = torch.where(self.mask[:, :, :t, :t], w, torch.full([], torch.finfo(w.dtype).min, dtype=w.dtype)).softmax(-1)
            h = h + b.o((w @ v).permute(0, 2, 1, 3).contiguous().view(x.shape[0], t, 8))
            y = b.up(b.n2(h))
            h = h + b.down(0.5 * y * (1.0 + torch.tanh(0.7978845608028654 * (y + 0.044715 * y.pow(3)))))
        return F.linear(self.norm(h), (self.head or self.words).weight)


class ViT(nn.Module):
    def __init__(self):
        super().__init__()
        self.patch, self.cls, self.places = nn.Conv2d(3, 8, 4, 4), nn.Parameter(torch.randn(1, 1, 8)), nn.Parameter(torch.randn(1, 5, 8) * 0.3)
        self.n1, self.n2, self.q, self.k, self.v, self.o = nn.LayerNorm(8), nn.LayerNorm(8), *(nn.Linear(8, 8) for _ in range(4))
        self.up, self.down, self.head = nn.Linear(8, 16), nn.Linear(16, 8), nn.Linear(8, 3)

    def forward(self, x):
        h = self.patch(x).flatten(2).transpose(1, 2)
        h = torch.cat([self.cls.expand(x.shape[0], -1, -1), h], 1) + self.places
        y = self.n1(h)
        q, k, v = (m(y).view(x.shape[0], -1, 2, 4).transpose(1, 2) for m in (self.q, self.k, self.v))
        h = h + self.o(((q @ k.transpose(-1, -2) * 0.5).softmax(-1) @ v).transpose(1, 2).flatten(2))
        h = h + self.down(F.gelu(self.up(self.n2(h))))
        return self.head(h[:, 0])


class RMS(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(n))

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


class T5(nn.Module):
    """An encoder and a decoder, each with a table of biases, and RMS norms."""

    def __init__(self, apart):
        super().__init__()
        self.head = nn.Linear(8, 11, bias=False) if apart else None
        attend = lambda: nn.ModuleDict(dict(n=RMS(8), q=nn.Linear(8, 8, bias=False), k=nn.Linear(8, 8, bias=False), v=nn.Linear(8, 8, bias=False), o=nn.Linear(8, 8, bias=False)))
        feed = lambda: nn.ModuleDict(dict(n=RMS(8), up=nn.Linear(8, 16, bias=False), gate=nn.Linear(8, 16, bias=False), down=nn.Linear(16, 8, bias=False)))
        self.words, self.near, self.last = nn.Embedding(11, 8), nn.Embedding(9, 2), RMS(8)
        self.own, self.cross, self.feed, self.enc, self.encfeed = attend(), attend(), feed(), attend(), feed()

    def attend(self, m, h, memory, bias):
        y = m.n(h)
        memory = y if memory is None else memory
        q, k, v = (f(z).view(z.shape[0], -1, 2, 4).transpose(1, 2) for f, z in ((m.q, y), (m.k, memory), (m.v, memory)))
        return h + m.o((F.softmax((q @ k.transpose(3, 2) + bias).float(), -1).type_as(q) @ v).transpose(1, 2).contiguous().view(h.shape[0], -1, 8))

    def forward(self, x, z):
        def bias(t, causal):
            d = torch.arange(t)[None] - torch.arange(t)[:, None]
            b = self.near(d.clamp(-4, 4) + 4).permute(2, 0, 1)[None]
            return b + torch.where(d > 0, -1e4, 0.0)[None, None] if causal else b

        feed = lambda m, h: h + m.down(F.gelu(m.gate(m.n(h)), approximate="tanh") * m.up(m.n(h)))
        m = feed(self.encfeed, self.attend(self.enc, self.words(x), None, bias(x.shape[1], False)))
        h = self.attend(self.own, self.words(z), None, bias(z.shape[1], True))
        h = feed(self.feed, self.attend(self.cross, h, self.last(m), torch.zeros(1)))
        return F.linear(self.last(h) * 8**-0.5, (self.head or self.words).weight)


def small_unet(s, x):
    h = s.first(x)
    a = h + s.c2(F.silu(s.n2(s.c1(F.silu(s.n1(h))))))
    b, c, hh, w = a.shape
    y = s.na(a).flatten(2).transpose(1, 2)
    q, k, v = (m(y).view(b, -1, 2, 4).transpose(1, 2) for m in (s.q, s.k, s.v))
    a = a + s.o(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, hh * w, c)).transpose(1, 2).reshape(b, c, hh, w)
    y, gate = s.geglu(a.mean((2, 3))).chunk(2, -1)
    return s.head(F.interpolate(a, scale_factor=2.0, mode="nearest") + (y * F.gelu(gate))[:, :, None, None])


def small_mobile(s, x):
    h = F.hardswish(s.n1(s.c1(x)))
    g = F.hardsigmoid(s.e2(F.relu(s.e1(F.adaptive_avg_pool2d(h, 1)))))
    h = s.n2(s.c2(h * g))
    return s.head(F.adaptive_avg_pool2d(F.relu6(h), (2, 1)).flatten(1))


def folded(m):
    m = m.eval()
    for k in "12":
        setattr(m, f"c{k}", fuse_conv_bn_eval(getattr(m, f"c{k}"), getattr(m, f"n{k}")))
        setattr(m, f"n{k}", nn.Identity())
    return m


def small_lstm(s, x):
    h, (a, c) = s.rnn(s.up(x))
    return s.head(torch.cat([h[:, -1], a[-1], c[0]], 1))


def small_table(s, x):
    h = s.n(F.elu(s.a(x)))
    h = h + F.dropout(F.mish(s.b(h)), 0.0, s.training)
    return F.log_softmax(s.head(h * torch.sigmoid(s.g(h))), -1)


CE, LAST, NLL, MSE = [term("cross_entropy")], [term("cross_entropy", class_axis=-1)], [term("nll")], [term("mse")]
MODULES = {
    "gpt2": (lambda: GPT2(False), tokens, lambda b: classes(11, b, 6), LAST),
    "vit": (ViT, image, lambda b: classes(3, b), CE),
    "t5": (lambda: T5(False), lambda b: {"x": classes(11, b, 6), "z": classes(11, b, 5)}, lambda b: classes(11, b, 5), LAST),
    "unet": (lambda: Net(small_unet, first=conv(3, 8), n1=nn.GroupNorm(2, 8), c1=conv(8, 8), n2=nn.GroupNorm(4, 8), c2=conv(8, 8), na=nn.GroupNorm(2, 8), q=lin(8, 8, bias=False), k=lin(8, 8, bias=False), v=lin(8, 8, bias=False), o=lin(8, 8), geglu=lin(8, 16), head=conv(8, 2)), image, lambda b: pixels(b, 2, 16, 16), MSE),
    "mobile": (lambda: Net(small_mobile, c1=conv(3, 6, bias=False), n1=nn.BatchNorm2d(6), e1=conv(6, 3, 1), e2=conv(3, 6, 1), c2=conv(6, 8, groups=2, bias=False), n2=nn.BatchNorm2d(8), head=lin(16, 3)), image, lambda b: classes(3, b), CE),
    "lstm": (lambda: Net(small_lstm, up=lin(5, 4), rnn=nn.LSTM(4, 4, 2, batch_first=True), head=lin(12, 3)), steps, lambda b: classes(3, b), CE),
    "table": (lambda: Net(small_table, a=lin(6, 8), n=nn.BatchNorm1d(8), b=lin(8, 8), g=lin(8, 8), head=lin(8, 3)), vector, lambda b: classes(3, b), NLL),
}


def exported(module, batch, names, exporter="legacy", opset=17, dynamic=True, mode="eval", folding=True, **options):
    values = tuple(batch[n] for n in names)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        path = f"{folder}/m.onnx"
        if exporter == "legacy":
            training = torch.onnx.TrainingMode.TRAINING if mode == "train" else torch.onnx.TrainingMode.EVAL
            torch.onnx.export(module, values, path, dynamo=False, opset_version=opset, input_names=list(names), output_names=["out"], training=training, do_constant_folding=folding,
                              dynamic_axes={n: {0: "batch"} for n in (*names, "out")} if dynamic else None, **options)
        else:
            shapes = tuple({0: "batch"} for _ in names) if dynamic else None
            torch.onnx.export(module, values, path, dynamo=True, opset_version=opset, input_names=list(names), output_names=["out"], external_data=False, verbose=False, optimize=folding,
                              dynamic_shapes=(shapes,) if dynamic and isinstance(module, Net) else shapes, **options)
        return onnx.load(path)


def core(module, batch, names):
    """torch.export's program, decomposed to PyTorch's core operators before the export."""
    shapes = tuple({0: torch.export.Dim.DYNAMIC} for _ in names)
    program = torch.export.export(module, tuple(batch[n] for n in names), dynamic_shapes=(shapes,) if isinstance(module, Net) else shapes).run_decompositions()
    return exported(program, batch, names, "dynamo", 18, False, folding=False)


def passes(module, batch, names):
    import onnxoptimizer

    return onnxoptimizer.optimize(exported(module, batch, names, opset=16, mode="train", folding=False), [p for p in onnxoptimizer.get_fuse_and_elimination_passes() if "bn_into" not in p])


def surgeon(module, batch, names):
    import onnx_graphsurgeon

    return onnx_graphsurgeon.export_onnx(onnx_graphsurgeon.import_onnx(exported(module, batch, names, folding=False)).fold_constants().cleanup().toposort())


def slim(module, batch, names):
    import onnxslim

    return onnxslim.slim(exported(module, batch, names, "dynamo", 20, folding=False))


def inferred(module, batch, names):
    from onnxruntime.tools.symbolic_shape_infer import SymbolicShapeInference

    return SymbolicShapeInference.infer_shapes(exported(module, batch, names, opset=15, folding=False), auto_merge=True)


def preprocessed(module, batch, names):
    from onnxruntime.quantization.shape_inference import quant_pre_process

    with tempfile.TemporaryDirectory() as folder:
        onnx.save(exported(module, batch, names, opset=17, mode="train"), f"{folder}/m.onnx")
        quant_pre_process(f"{folder}/m.onnx", f"{folder}/n.onnx", skip_optimization=False)
        return onnx.load(f"{folder}/n.onnx")


def fixed(module, batch, names):
    from onnxruntime.tools.onnx_model_utils import make_dim_param_fixed

    model = exported(module, batch, names, opset=16)
    make_dim_param_fixed(model.graph, "batch", 1)
    return model


def reopened(module, batch, names):
    """Exported for one sample, with the first axes renamed afterwards, as people do."""
    model = exported(module, {n: v[:1] for n, v in batch.items()}, names, dynamic=False)
    for v in [*model.graph.input, *model.graph.output]:
        v.type.tensor_type.shape.dim[0].dim_param = "N"
    return model


def prefixed(module, batch, names):
    return onnx.compose.add_prefix(exported(module, batch, names, opset=14), "net/", rename_inputs=False, rename_outputs=False)


def scaled_after(module, batch, names):
    """Merged with a preceding file that scales the inputs by constants."""
    model = exported(module, batch, names, opset=17, dynamic=True)
    if names != ("x",) or batch["x"].dtype != torch.float32:
        return model
    rest = ", ".join(str(k) for k in batch["x"].shape[1:])
    front = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> front (float[batch, {rest}] x) => (float[batch, {rest}] scaled) <float half = {{0.5}}, float two = {{2.0}}> {{ y = Mul (x, half) scaled = Mul (y, two) }}')
    front.ir_version = model.ir_version
    return onnx.compose.merge_models(onnx.compose.add_prefix(front, "front/", rename_inputs=False), onnx.compose.add_prefix(model, "net/", rename_outputs=False), io_map=[("front/scaled", "net/x")])


def cut_out(module, batch, names):
    """The model extracted from a larger file that continues after it."""
    class Larger(nn.Module):
        def __init__(self, net):
            super().__init__()
            self.net, self.extra = net, nn.Parameter(torch.randn(1))

        def forward(self, *inputs):
            out = self.net(*inputs)
            return out, (out * self.extra).sum()

    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(Larger(module), tuple(batch[n] for n in names), f"{folder}/m.onnx", dynamo=False, opset_version=17, input_names=list(names), output_names=["out", "sum"], dynamic_axes={n: {0: "batch"} for n in (*names, "out")})
        onnx.utils.extract_model(f"{folder}/m.onnx", f"{folder}/n.onnx", list(names), ["out"])
        return onnx.load(f"{folder}/n.onnx")


def for_kind(kind, **options):
    def tool(module, batch, names):
        from onnxruntime.transformers import optimizer as transformers

        logging.disable(logging.CRITICAL)
        with tempfile.TemporaryDirectory() as folder:
            onnx.save(exported(module, batch, names, opset=options.get("opset", 17), folding=options.get("folding", True)), f"{folder}/m.onnx")
            transformers.optimize_model(f"{folder}/m.onnx", model_type=kind, num_heads=2, hidden_size=8, opt_level=options.get("level", 0), use_gpu=False).save_model_to_file(f"{folder}/n.onnx")
            return onnx.load(f"{folder}/n.onnx")

    return tool


ALL = tuple(MODULES)
# tool, modules, required package
TOOLS = {
    "core": (core, ALL, None), "passes": (passes, ALL, "onnxoptimizer"), "surgeon": (surgeon, ALL, "onnx_graphsurgeon"),
    "slim": (slim, ALL, "onnxslim"), "inferred": (inferred, ALL, None), "preprocessed": (preprocessed, ALL, None), "fixed": (fixed, ALL, None), "reopened": (reopened, ALL, None), "prefixed": (prefixed, ALL, None), "joined": (scaled_after, ("vit", "unet", "mobile", "lstm", "table"), None),
    "cut": (cut_out, ALL, None), "gpt2": (for_kind("gpt2"), ("gpt2",), None), "gpt2_level1": (for_kind("gpt2", level=1), ("gpt2",), None), "vit": (for_kind("vit"), ("vit",), None), "t5": (for_kind("t5"), ("t5",), None), "bart": (for_kind("bart"), ("t5", "gpt2"), None), "unet": (for_kind("unet"), ("unet", "vit"), None),
    "clip": (for_kind("clip", opset=14), ("vit", "gpt2"), None), "bert_level2": (for_kind("bert", level=2), ("gpt2", "vit", "table", "lstm"), None), "swin": (for_kind("swin"), ("vit",), None), "phi": (for_kind("gpt_neox", folding=False), ("gpt2", "t5"), None),
}


class Pipeline(nn.Module):
    """What scikit-learn's preprocessing steps compute, followed by the network."""

    def __init__(self, steps):
        super().__init__()
        self.steps, net = [(name, step) for name, step in steps[:-1]], steps[-1][1]
        self.w, self.b = (nn.ParameterList(nn.Parameter(torch.tensor(v, dtype=torch.float32)) for v in values) for values in (net.coefs_, net.intercepts_))
        self.classes = hasattr(net, "classes_")

    def forward(self, x):
        like = lambda v: torch.tensor(v).to(x.dtype)
        for name, step in self.steps:
            if name == "simpleimputer":
                x = torch.where(x.isnan(), like(step.statistics_), x)
            elif name == "standardscaler":
                x = (x - like(step.mean_)) / (1.0 if step.scale_ is None else like(step.scale_))
            elif name == "normalizer":
                x = x / (x.abs().amax(1, keepdim=True) if step.norm == "max" else x.norm(p=1 if step.norm == "l1" else 2, dim=1, keepdim=True))
        for k, (w, b) in enumerate(zip(self.w, self.b)):
            x = torch.tanh(x @ w + b) if k + 1 < len(self.w) else x @ w + b
        return x.softmax(-1) if self.classes else x


def pipelines():
    import numpy as np
    import skl2onnx
    from sklearn.impute import SimpleImputer
    from sklearn.neural_network import MLPClassifier, MLPRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import Normalizer, StandardScaler

    common = dict(hidden_layer_sizes=(6, 5), max_iter=2, activation="tanh", random_state=1)
    forms = {"scaled": ([StandardScaler()], MLPRegressor(**common)), "imputed": ([SimpleImputer(), StandardScaler(), Normalizer("l2")], MLPClassifier(**common)), "by_sums": ([StandardScaler(with_std=False), Normalizer("l1")], MLPRegressor(**common))}
    for name, (steps, net) in forms.items():
        rng = np.random.default_rng(1)
        classes_ = isinstance(net, MLPClassifier)
        made = make_pipeline(*steps, net).fit(rng.normal(size=(40, 4)) * 3 + 1, np.arange(40) % 3 if classes_ else rng.normal(size=40))

        def write(module, batch, path, made=made, classes_=classes_):
            made[-1].coefs_, made[-1].intercepts_ = ([p.detach().numpy() for p in values] for values in (module.w, module.b))
            onx = skl2onnx.to_onnx(made, batch["x"].numpy(), options={id(made): {"zipmap": False, "output_class_labels": False}} if classes_ else {})
            if classes_:
                onx = onnx.utils.Extractor(onx).extract_model(["X"], ["probabilities"])
            names = {onx.graph.input[0].name: "x", onx.graph.output[0].name: "out"}
            for values in [onx.graph.input, onx.graph.output]:
                values[0].name = names[values[0].name]
            for node in onx.graph.node:
                for values in (node.input, node.output):
                    values[:] = [names.get(v, v) for v in values]
            onnx.save(onx, path)

        def batch(b, name=name, classes_=classes_):
            x = pixels(b, 4) * 3 + 1
            return {"x": torch.where(torch.rand(b, 4) < 0.2, math.nan, x) if name == "imputed" else x, "y": torch.rand(b, 3) if classes_ else pixels(b, 1)}

        yield Case(f"chain_pipeline_{name}", lambda made=made: Pipeline(made.steps), batch, [term("bce" if classes_ else "mse")], optimizer("adam", lr=0.005), exporter="skl2onnx", mode="eval", dynamic_batch=True, batch_size=4,
                   batch_sizes=[4, 4, 3, 5], steps=4, write=write)


def cases():
    if importlib.util.find_spec("skl2onnx") is not None:
        yield from pipelines()
    for kind, (tool, modules, needs) in TOOLS.items():
        if needs and importlib.util.find_spec(needs) is None:
            continue
        for k, name in enumerate(modules):
            module, inputs, y, terms = MODULES[name]
            folds = kind not in ("core", "passes", "inferred", "phi")
            if folds and name in ("gpt2", "t5"):  # a tied weight would occur twice
                module = (lambda: GPT2(True)) if name == "gpt2" else lambda: T5(True)
            names = tuple(inputs(1))

            def write(module, batch, path, tool=tool, names=names):
                with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()), warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    onnx.save(tool(copy.deepcopy(module), batch, names), path)

            ours = kind in ("gpt2", "gpt2_level1", "vit", "t5", "bart", "unet", "clip", "bert_level2", "swin", "phi", "preprocessed")
            sizes = [1, 1, 3, 2, 4] if kind in ("fixed", "reopened") else [4, 4, 3, 5, 4]
            yield Case(f"chain_{kind}_{name}", module, lambda b, inputs=inputs, y=y: inputs(b) | {"y": y(b)}, terms, optimizer("adamw", lr=0.005) if (len(kind) + k) % 2 else optimizer("momentum", lr=0.02), inputs=names,
                       exporter=f"chain{', onnxruntime' if ours else ''}", mode="train" if kind in ("passes", "preprocessed", "surgeon") else "eval", optimize=True, dynamic_batch=True, batch_size=sizes[0], batch_sizes=sizes, steps=5, may_rest=True, write=write, as_file=folded if name == "mobile" and kind in ("fixed", "reopened", "prefixed", "joined", "cut") else None)
