"""Compares operators of onnxruntime's own domain (compiler/onnx/translate/contrib_operators.h), in every supported form, those of TensorFlow that
tf2onnx leaves, and those of scikit-learn's preprocessing (compiler/onnx/translate/own_bodies.h) and linear models (linear_models.h) with onnxruntime,
or with ONNX's own reference implementation where onnxruntime refuses them.

contrib_operators_test.py RUNNER

Writes one node per test in the layout of ONNX's own tests, with the outputs that onnxruntime computes, and runs RUNNER, the runner of those
tests."""
import itertools
import math
import os
import subprocess
import sys
import tempfile
import unittest

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

RUNNER = sys.argv.pop(1)
SAMPLES, STEPS, KEYS, WIDTH, HEADS = 2, 5, 7, 8, 2
MICROSOFT, ML = "com.microsoft", "ai.onnx.ml"
onnxruntime.disable_telemetry_events()


class Node:
    """One node. Absent inputs are None, absent outputs "". `beside` is (op, inputs, attributes) of a node with the same outputs, for forms
    that onnxruntime's CPU provider lacks; `results` are the outputs of an operator that it does not have at all."""

    def __init__(self, name, op, inputs, outputs=("y",), domain=MICROSOFT, opset=17, beside=None, results=None, **attributes):
        self.name, self.op, self.inputs, self.outputs, self.domain, self.opset, self.beside, self.attributes = name, op, inputs, outputs, domain, opset, beside, attributes
        self.results = results

    def model(self, op, inputs, attributes):
        names = [f"x{k}" if a is not None else "" for k, a in enumerate(inputs)]
        node = helper.make_node(op, names, self.outputs, domain=self.domain, **attributes)
        given = {n: a for n, a in zip(names, inputs) if n}
        typed = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in given.items()]
        graph = helper.make_graph([node], "g", typed, [helper.make_empty_tensor_value_info(o) for o in self.outputs if o])
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset), helper.make_opsetid(MICROSOFT, 1), helper.make_opsetid(ML, 3)], ir_version=8), given

    def write(self, folder):
        model, given = self.model(self.op, self.inputs, self.attributes)
        other, fed = self.model(*self.beside) if self.beside else (model, given)
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level, options.log_severity_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL, 3
        results = self.results or onnxruntime.InferenceSession(other.SerializeToString(), options, providers=["CPUExecutionProvider"]).run(None, fed)
        del model.graph.output[:]
        names = [o for o in self.outputs if o]
        model.graph.output.extend(helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(r.dtype), r.shape) for n, r in zip(names, results))
        root = os.path.join(folder, f"test_{self.name}")
        os.makedirs(f"{root}/test_data_set_0")
        onnx.save(model, f"{root}/model.onnx")
        for kind, tensors in (("input", given.items()), ("output", zip(names, results))):
            for k, (name, value) in enumerate(tensors):
                with open(f"{root}/test_data_set_0/{kind}_{k}.pb", "wb") as file:
                    file.write(numpy_helper.from_array(value, name).SerializeToString())


def by_reference(name, op, inputs, **options):
    node = Node(name, op, inputs, **options)
    model, given = node.model(op, inputs, node.attributes)
    node.results = ReferenceEvaluator(model).run(None, given)
    return node


random = np.random.default_rng(1)
fl = lambda *shape: (random.standard_normal(shape) * 0.7).astype(np.float32)
i32 = lambda values: np.array(values, np.int32)
some = lambda *shape: i32((random.random(shape) < 0.5) | (np.arange(shape[-1]) == 0))  # a mask with at least one visible key in each row


def activations():
    yield Node("gelu", "Gelu", [fl(3, 4)])
    yield Node("bias_gelu", "BiasGelu", [fl(2, 3, 4), fl(4)])
    yield Node("fast_gelu", "FastGelu", [fl(2, 3, 4)])
    yield Node("fast_gelu_bias", "FastGelu", [fl(2, 3, 4), fl(4)])
    yield Node("quick_gelu", "QuickGelu", [fl(2, 3, 4)])
    yield Node("quick_gelu_alpha", "QuickGelu", [fl(2, 3, 4)], alpha=1.3)


def of_tensorflow():
    x = fl(3, 4)
    yield Node("erfc", "Erfc", [x], domain="", results=[np.vectorize(math.erfc)(x).astype(np.float32)])
    yield Node("expm1", "Expm1", [x], domain="", results=[np.expm1(x)])
    for tanh in (0, 1):
        yield Node(f"lite_gelu_{tanh}", "TFL_GELU", [x], domain="", opset=20, beside=("Gelu", [x], {"approximate": "tanh" if tanh else "none"}), approximate=tanh)


def of_caffe2():
    x = fl(3, 4)
    yield Node("fill_shape", "ConstantFill", [], domain="", opset=9, results=[np.full((2, 3), 0.5, np.float32)], shape=[2, 3], value=0.5)
    yield Node("fill_like", "ConstantFill", [x], domain="", opset=9, results=[np.full((3, 4, 2), 3)], extra_shape=[2], value=3.0, dtype=7)


def products():
    for bits in range(16):
        ta, tb, ba, bb = (bits >> k & 1 for k in range(4))
        shape = lambda turned, batch, rows, columns: (lambda last: (last[0], 2, 3, last[1]) if batch else (2, 3, *last))((columns, rows) if turned else (rows, columns))
        yield Node(f"matmul_{ta}{tb}{ba}{bb}", "FusedMatMul", [fl(*shape(ta, ba, 4, 5)), fl(*shape(tb, bb, 5, 6))], transA=ta, transB=tb, transBatchA=ba, transBatchB=bb, alpha=0.5)
    yield Node("matmul_matrices", "FusedMatMul", [fl(5, 4), fl(5, 6)], transA=1)
    yield Node("matmul_vector", "FusedMatMul", [fl(5), fl(5, 6)], transA=1)
    yield Node("matmul_shared", "FusedMatMul", [fl(2, 3, 5), fl(4, 5)], transB=1, alpha=2.0)
    yield Node("matmul_rotated", "FusedMatMul", [fl(4, 3, 5), fl(3, 5, 6)], transBatchA=1)
    yield Node("matmul_old", "TransposeMatMul", [fl(5, 4), fl(6, 5)], transA=1, transB=1, alpha=0.3)
    hard, selu = dict(activation_alpha=0.3, activation_beta=0.4), dict(activation_alpha=1.5, activation_gamma=1.1)
    for name, options in (("Relu", {}), ("LeakyRelu", dict(activation_alpha=0.2)), ("HardSigmoid", hard), ("Tanh", {}), ("Sigmoid", {}), ("Softplus", {}), ("Softsign", {}),
                          ("Elu", dict(activation_alpha=0.7)), ("ThresholdedRelu", dict(activation_alpha=0.3)), ("Selu", selu)):
        yield Node(f"gemm_{name}", "FusedGemm", [fl(3, 5), fl(4, 5), fl(4)], transB=1, alpha=0.5, beta=2.0, activation=name, **options)
    yield Node("gemm_no_bias", "FusedGemm", [fl(3, 5), fl(5, 4)], activation="Relu")
    for name, numbers in (("Relu", []), ("Tanh", []), ("Sigmoid", []), ("LeakyRelu", [0.2]), ("Clip", [-0.5, 0.5]), ("HardSigmoid", [0.3, 0.4])):
        options = dict(activation_params=numbers) if numbers else {}
        yield Node(f"conv_{name}", "FusedConv", [fl(2, 3, 6, 6), fl(4, 3, 3, 3), fl(4)], pads=[1, 1, 1, 1], strides=[2, 1], activation=name, **options)
    added = [fl(2, 4, 6, 6), fl(4, 2, 3, 3), fl(4), fl(2, 4, 6, 6)]
    yield Node("conv_sum", "FusedConv", added, pads=[1, 1, 1, 1], group=2, activation="Relu")
    yield Node("conv_sum_no_bias", "FusedConv", [*added[:2], None, added[3]], auto_pad="SAME_UPPER", group=2, activation="Relu")
    yield Node("distances", "CDist", [fl(3, 4), fl(5, 4)], metric="sqeuclidean")
    yield Node("distances_root", "CDist", [fl(3, 4), fl(5, 4)], metric="euclidean")


def normalizations():
    x, skip, g, b = fl(SAMPLES, STEPS, WIDTH), fl(SAMPLES, STEPS, WIDTH), fl(WIDTH), fl(WIDTH)
    both = ("y", "", "", "sum")
    yield Node("skip", "SkipLayerNormalization", [x, skip, g, b], epsilon=1e-5)
    yield Node("skip_bias", "SkipLayerNormalization", [x, skip, g, b, fl(WIDTH)], both)
    yield Node("skip_no_shift", "SkipLayerNormalization", [x, skip, g, None, fl(WIDTH)], both)
    yield Node("skip_shared", "SkipLayerNormalization", [x, skip[:1], g, b], both)
    yield Node("skip_shared_matrix", "SkipLayerNormalization", [x, skip[0], g, b])
    yield Node("skip_rms", "SkipSimplifiedLayerNormalization", [x, skip, g], both)
    yield Node("skip_rms_bias", "SkipSimplifiedLayerNormalization", [x, skip, g, b], epsilon=1e-6)
    yield Node("rms", "SimplifiedLayerNormalization", [x, g], domain="", axis=-1, epsilon=1e-6)
    yield Node("rms_of_two", "SimplifiedLayerNormalization", [x, fl(STEPS, WIDTH)], domain="", axis=1, opset=14)
    yield Node("layer_norm_of_twelve", "LayerNormalization", [x, g, b], domain="", axis=-1, epsilon=1e-6, opset=12)
    yield Node("layer_norm_of_nine", "LayerNormalization", [x, g], domain="", opset=9)
    # A scale of another type than the input, which onnxruntime refuses.
    for given, scale in itertools.permutations((np.float16, np.float32, np.float64), 2):
        for scales, options in ((g, {"epsilon": 1e-3}), (fl(STEPS, WIDTH), {"axis": -2})):
            inputs, options = [x.astype(given), scales.astype(scale)], dict(options, domain="", opset=23)
            # The reference computes in the input's type, whatever `stash_type` says.
            wide = [a.astype(np.result_type(given, scale, np.float32)) for a in inputs]
            results = [y.astype(given) for y in by_reference("", "RMSNormalization", wide, **options).results]
            yield Node(f"rms_{np.dtype(given)}_{np.dtype(scale)}_{scales.ndim}", "RMSNormalization", inputs, results=results, **options)


def embeddings():
    tokens, kinds, mask = i32(random.integers(0, 11, (SAMPLES, STEPS))), i32(random.integers(0, 2, (SAMPLES, STEPS))), i32([[1, 1, 1, 0, 0], [1] * 5])
    tables, scale = [fl(11, WIDTH), fl(9, WIDTH), fl(2, WIDTH)], [fl(WIDTH), fl(WIDTH)]
    counted = ("y", "lengths")
    yield Node("embed", "EmbedLayerNormalization", [tokens, kinds, *tables, *scale, mask], counted)
    yield Node("embed_sum", "EmbedLayerNormalization", [tokens, kinds, *tables, *scale, mask], (*counted, "sum"), epsilon=1e-5)
    yield Node("embed_one_kind", "EmbedLayerNormalization", [tokens, None, *tables[:2], None, *scale], counted)
    yield Node("embed_places", "EmbedLayerNormalization", [tokens, kinds, *tables, *scale, mask, i32([[4, 3, 2, 1, 0]])], counted)
    yield Node("embed_places_each", "EmbedLayerNormalization", [tokens, kinds, *tables, *scale, None, i32(random.integers(0, 9, (SAMPLES, STEPS)))], counted)
    angles = random.random((9, 2)).astype(np.float32) * 3
    places, tables = random.integers(0, 9, (SAMPLES, STEPS)), [np.cos(angles), np.sin(angles)]
    of = lambda name, x, at, **options: Node(f"rotary_{name}", "RotaryEmbedding", [x, np.array(at, np.int64), *tables], **options)
    yield of("places", fl(SAMPLES, STEPS, WIDTH), places)
    yield of("first", fl(SAMPLES, STEPS, WIDTH), [2])
    yield of("interleaved", fl(SAMPLES, STEPS, WIDTH), places, interleaved=1)
    yield of("heads", fl(SAMPLES, HEADS, STEPS, 4), places)
    yield of("heads_first", fl(SAMPLES, HEADS, STEPS, 4), [0], interleaved=1)
    yield of("part", fl(SAMPLES, STEPS, 16), places, num_heads=2, rotary_embedding_dim=4)
    yield of("heads_part", fl(SAMPLES, HEADS, STEPS, 8), places, num_heads=2, rotary_embedding_dim=4)


def attention():
    x, w, b = fl(SAMPLES, STEPS, WIDTH), fl(WIDTH, 3 * WIDTH), fl(3 * WIDTH)
    mask, square = i32([[1, 1, 1, 0, 0], [1] * 5]), some(SAMPLES, STEPS, STEPS)
    of = lambda name, *inputs, outputs=("y",), **options: Node(f"attention_{name}", "Attention", list(inputs), outputs, **{"num_heads": HEADS, **options})
    yield of("plain", x, w, b)
    # onnxruntime 1.31 crashes without a bias
    yield of("no_bias", x, w, beside=("Attention", [x, w, np.zeros_like(b)], dict(num_heads=HEADS)))
    yield of("causal", x, w, b, unidirectional=1)
    yield of("scale", x, w, b, scale=0.2)
    yield of("mask", x, w, b, mask)
    yield of("mask_filter", x, w, b, mask, mask_filter_value=-3.4e38)
    yield of("mask_causal", x, w, b, mask, unidirectional=1)
    yield of("lengths", x, w, b, i32([3, 5]))
    yield of("lengths_causal", x, w, b, i32([3, 5]), unidirectional=1)
    yield of("mask_of_pairs", x, w, b, square)
    larger = np.zeros((SAMPLES, 1, 9, 9), np.int32)
    larger[:, 0, :STEPS, :STEPS] = square
    yield of("mask_larger", x, w, b, larger, beside=("Attention", [x, w, b, square], dict(num_heads=HEADS)))
    yield of("added", x, w, b, None, None, fl(1, HEADS, STEPS, STEPS))
    yield of("added_masked", x, w, b, mask, None, fl(SAMPLES, HEADS, STEPS, STEPS))
    yield of("present", x, w, b, outputs=("y", "present"), unidirectional=1)
    past = fl(2, SAMPLES, HEADS, 3, WIDTH // HEADS)
    yield of("past", x, w, b, None, past, outputs=("y", "present"))
    yield of("past_causal", x, w, b, None, past, outputs=("y", "present"), unidirectional=1)
    yield of("past_mask", x, w, b, i32([[1, 1, 0, 1, 1, 1, 0, 0], [1] * 8]), past, outputs=("y", "present"), unidirectional=1)
    rows = some(SAMPLES, STEPS, STEPS + 3)
    larger = np.zeros((SAMPLES, 1, 9, 9), np.int32)
    larger[:, 0, 3 : STEPS + 3, : STEPS + 3] = rows
    yield of("past_mask_larger", x, w, b, larger, past, outputs=("y", "present"), beside=("Attention", [x, w, b, rows, past], dict(num_heads=HEADS)))
    yield of("sizes", x, fl(WIDTH, 14), fl(14), qkv_hidden_sizes=[4, 4, 6])
    yield of("narrow_input", fl(SAMPLES, STEPS, 6), fl(6, 24), b)

    q, k, v = fl(SAMPLES, STEPS, WIDTH), fl(SAMPLES, KEYS, WIDTH), fl(SAMPLES, KEYS, WIDTH)
    of = lambda name, *inputs, outputs=("y",), **options: Node(f"heads_{name}", "MultiHeadAttention", list(inputs), outputs, **{"num_heads": HEADS, **options})
    past = lambda: [fl(SAMPLES, HEADS, 3, WIDTH // HEADS) for _ in "kv"]
    yield of("past", q, q, q, None, None, None, *past(), outputs=("y", "keys", "values"))
    yield of("past_causal", q, q, q, fl(3 * WIDTH), None, None, *past(), outputs=("y", "keys", "values"), unidirectional=1)
    yield of("past_mask", q, q, q, None, some(SAMPLES, STEPS + 3), None, *past(), outputs=("y", "keys", "values"))
    yield of("past_empty", q, q, q, None, None, None, *[fl(SAMPLES, HEADS, 0, WIDTH // HEADS)] * 2, outputs=("y", "keys", "values"), unidirectional=1)
    yield of("plain", q, k, v)
    yield of("bias", q, k, v, fl(3 * WIDTH))
    yield of("narrow_values", q, k, fl(SAMPLES, KEYS, 6), fl(2 * WIDTH + 6))
    yield of("lengths", q, k, v, None, i32([3, 7]))
    yield of("mask", q, k, v, None, some(SAMPLES, KEYS))
    yield of("mask_of_pairs", q, k, v, None, some(SAMPLES, STEPS, KEYS))
    yield of("added", q, k, v, None, None, fl(1, HEADS, STEPS, KEYS))
    yield of("added_shared", q, k, v, None, None, fl(SAMPLES, 1, STEPS, KEYS), scale=0.3)
    yield of("causal", q, q, q, unidirectional=1)
    yield of("present", q, k, v, outputs=("y", "keys", "values"))
    parted = lambda t: np.ascontiguousarray(t.reshape(SAMPLES, -1, HEADS, WIDTH // HEADS))
    plain = lambda *inputs: ("MultiHeadAttention", list(inputs), dict(num_heads=HEADS))
    yield of("parted", q, parted(k).transpose(0, 2, 1, 3).copy(), parted(v).transpose(0, 2, 1, 3).copy())
    yield of("pairs", q, np.stack([parted(k), parted(v)], 3), beside=plain(q, k, v))
    yield of("packed", np.stack([parted(k), parted(v), parted(k + v)], 3), beside=plain(k, v, k + v))


def grouped():
    """Llama's attention: four heads of queries over two of keys. onnxruntime requires head sizes that are multiples of 16, and a past with
    one sample or one token only."""
    heads, groups, width, room = 4, 2, 16, 16
    parts = lambda samples, steps, width=width: [fl(samples, steps, n * width) for n in (heads, groups, groups)]
    some, (token_q, token_k, token_v), single = parts(SAMPLES, STEPS), parts(SAMPLES, 1), parts(1, STEPS)
    packed = np.concatenate(some, 2)
    angles = random.random((room, width // 2)).astype(np.float32) * 3
    tables = [np.cos(angles), np.sin(angles)]

    def of(name, parts, rest=(), past=None, lengths=None, **options):
        samples, steps = parts[0].shape[:2]
        wide = parts[0].shape[2] // (heads if len(parts) == 3 else heads + 2 * groups)
        before = [None, None] if past is None else [fl(samples, groups, past, wide) for _ in "kv"]
        total = steps + (past or 0)
        ends = i32([total - 1] * samples if lengths is None else lengths)
        inputs = [*parts, *[None] * (3 - len(parts)), *before, ends, np.array(total, np.int32), *rest]
        return Node(f"grouped_{name}", "GroupQueryAttention", inputs, ("y", "keys", "values"), num_heads=heads, kv_num_heads=groups, **options)

    yield of("plain", some)
    yield of("packed", [packed])
    yield of("empty_past", some, past=0)
    yield of("scale", some, scale=0.3)
    yield of("cap", some, softcap=0.5)
    yield of("window", some, local_window_size=2)
    yield of("window_cap", some, local_window_size=1, softcap=2.0)
    yield of("rotary", some, tables, do_rotary=1)
    yield of("rotary_packed", [packed], tables, do_rotary=1)
    yield of("rotary_interleaved", some, tables, do_rotary=1, rotary_interleaved=1)
    yield of("rotary_part", parts(SAMPLES, STEPS, 32), tables, do_rotary=1)
    # onnxruntime 1.32 uses the first position of the first sample for all samples and counts up from it.
    yield of("rotary_places", some, [*tables, np.array([[3, 4, 5, 6, 7]] * SAMPLES, np.int64)], do_rotary=1)
    yield of("bias", some, [None, None, None, fl(1, heads, STEPS, STEPS)])
    yield of("bias_cap", some, [None, None, None, fl(SAMPLES, 1, STEPS, STEPS)], softcap=0.7)
    yield of("smooth", some, smooth_softmax=1)
    yield of("sink", some, [None, None, None, None, fl(heads)])
    yield of("past", single, past=3)
    yield of("past_rotary", single, tables, past=3, do_rotary=1)
    yield of("past_window", single, past=4, local_window_size=3)
    yield of("past_cap_sink", single, [None, None, None, None, fl(heads)], past=2, softcap=1.0)
    token = [token_q, token_k, token_v]
    yield of("past_of_samples", token, past=4)
    yield of("past_of_lengths", token, past=4, lengths=[2, 4])
    yield of("past_of_lengths_rotary", token, tables, past=4, lengths=[3, 4], do_rotary=1)
    yield of("past_of_lengths_window", token, past=5, lengths=[2, 5], local_window_size=2)
    yield of("past_of_lengths_packed", [np.concatenate(token, 2)], tables, past=4, lengths=[1, 4], do_rotary=1)


def others():
    yield Node("trilu", "Trilu", [fl(3, 4, 4)])
    yield Node("trilu_below", "Trilu", [fl(4, 5), np.array(1, np.int64)], upper=0)
    yield Node("expand_first", "ExpandDims", [fl(3, 4), i32(1)])
    yield Node("expand_last", "ExpandDims", [fl(3, 4), i32(-1)])
    for mode, padding, corners in (("bilinear", "zeros", 0), ("nearest", "border", 1), ("bicubic", "reflection", 0)):
        yield Node(f"grid_{mode}", "GridSample", [fl(1, 2, 4, 4), fl(1, 3, 3, 2)], mode=mode, padding_mode=padding, align_corners=corners)
    yield Node("quantize", "QuantizeLinear", [fl(3, 4), np.array(0.05, np.float32), np.array(9, np.uint16)])
    yield Node("quantize_columns", "QuantizeLinear", [fl(3, 4), np.abs(fl(4)) + 0.1, np.arange(4, dtype=np.uint8)], axis=1)
    yield Node("dequantize", "DequantizeLinear", [random.integers(0, 60000, (3, 4)).astype(np.uint16), np.array(0.05, np.float32), np.array(9, np.uint16)])
    yield Node("dequantize_rows", "DequantizeLinear", [random.integers(-9, 9, (3, 4)).astype(np.int8), np.abs(fl(3)) + 0.1], axis=0)


def resized():
    for k, scale in enumerate((2.0, 1.5, 0.6)):
        yield Node(f"resize_{k}", "Resize", [fl(1, 2, 5, 4), np.zeros(0, np.float32), np.array([1, 1, scale, scale], np.float32)], domain="", opset=11, mode="nearest",
                   coordinate_transformation_mode="tf_half_pixel_for_nn", nearest_mode="floor")


def windows():
    """Over more axes than three, as jax2onnx writes the pooling of images with channels last: onnxruntime loads such files and does not run them."""
    x = fl(1, 1, 2, 5, 6, 3)
    seen = lambda a, k, s: np.lib.stride_tricks.sliding_window_view(a, (k, k), (3, 4))[:, :, :, ::s, ::s]
    yield Node("max_of_last", "MaxPool", [x], domain="", kernel_shape=[1, 2, 2, 1], strides=[1, 2, 2, 1], results=[seen(x, 2, 2).max((-1, -2))])
    yield Node("mean_of_last", "AveragePool", [x], domain="", kernel_shape=[1, 3, 3, 1], strides=[1, 1, 1, 1], results=[seen(x, 3, 1).mean((-1, -2))])
    padded = np.pad(x, [(0, 0)] * 3 + [(1, 0), (0, 1), (0, 0)], constant_values=-np.inf)
    yield Node("max_of_padded", "MaxPool", [x], domain="", kernel_shape=[1, 2, 2, 1], pads=[0, 1, 0, 0, 0, 0, 1, 0], results=[seen(padded, 2, 1).max((-1, -2))])
    rows = x[:, :, :, 0]
    yield Node("max_of_rows", "MaxPool", [rows], domain="", kernel_shape=[1, 2, 1], strides=[1, 2, 1])
    yield Node("sum_of_rows", "Conv", [rows, np.ones((1, 1, 1, 3, 1), np.float32)], domain="")
    one = fl(2, 1, 1, 5, 6, 3)
    yield Node("sum_of_last", "Conv", [one, np.ones((1, 1, 1, 3, 3, 1), np.float32)], domain="", results=[seen(one, 3, 1).sum((-1, -2))])
    yield Node("sum_of_rest", "Conv", [x, np.full((1, 1, 1, 3, 3, 1), 0.5, np.float32)], domain="", strides=[1, 2, 2, 1], results=[seen(x, 3, 2).sum((-1, -2)) / 2])
    yield Node("max_of_points", "MaxPool", [one], domain="", kernel_shape=[1, 2, 2, 1], results=[seen(one, 2, 1).max((-1, -2))])


def preprocessing():
    some, holes = fl(4, 3), fl(4, 3)
    holes[1, 2] = holes[3, 0] = np.nan
    some[2] = 0
    numbers = [0.5, -1.0, 2.0]
    yield Node("scaler", "Scaler", [some], domain=ML, offset=numbers, scale=[2.0, 0.1, 1.5])
    yield Node("scaler_one", "Scaler", [some], domain=ML, offset=[0.3], scale=[2.0])
    yield Node("scaler_integers", "Scaler", [random.integers(-9, 9, (4, 3))], domain=ML, offset=numbers, scale=numbers)
    for norm in ("MAX", "L1", "L2"):
        yield Node(f"normalizer_{norm}", "Normalizer", [np.abs(some) if norm == "MAX" else some], domain=ML, norm=norm)
    yield Node("imputer", "Imputer", [holes], domain=ML, imputed_value_floats=numbers, replaced_value_float=float("nan"))
    yield Node("imputer_one", "Imputer", [some], domain=ML, imputed_value_floats=[7.0], replaced_value_float=0.0)
    yield Node("imputer_infinite", "Imputer", [np.where(np.isnan(holes), np.inf, holes).astype(np.float32)], domain=ML, imputed_value_floats=numbers, replaced_value_float=float("inf"))
    yield Node("imputer_least", "Imputer", [np.where(np.isnan(holes), -np.inf, holes).astype(np.float32)], domain=ML, imputed_value_floats=numbers, replaced_value_float=float("-inf"))
    yield Node("imputer_integers", "Imputer", [random.integers(-2, 2, (4, 3))], domain=ML, imputed_value_int64s=[5, 6, 7], replaced_value_int64=-1)
    yield Node("one_hot", "OneHotEncoder", [random.integers(0, 5, (6,))], domain=ML, cats_int64s=[1, 4, 2], zeros=1)
    yield Node("one_hot_matrix", "OneHotEncoder", [random.integers(0, 3, (4, 2))], domain=ML, cats_int64s=[0, 1, 2], zeros=1)


def linear_models():
    x, rows = fl(4, 3), fl(3, 3)
    flat = lambda values: [float(v) for v in np.ravel(values)]
    yield Node("regressor", "LinearRegressor", [x], domain=ML, coefficients=flat(rows[0]), intercepts=[0.3])
    yield Node("regressor_targets", "LinearRegressor", [x], domain=ML, coefficients=flat(rows[:2]), intercepts=[0.3, -0.2], targets=2)
    yield Node("regressor_no_intercept", "LinearRegressor", [x], domain=ML, coefficients=flat(rows[:2]), targets=2)
    whole = random.integers(-9, 9, (4, 3))
    yield Node("regressor_integers", "LinearRegressor", [whole], domain=ML, coefficients=flat(rows[0]), intercepts=[0.3], results=[(whole @ rows[0][:, None] + 0.3).astype(np.float32)])
    for post in ("NONE", "LOGISTIC", "SOFTMAX"):
        three = dict(coefficients=flat(rows), intercepts=[0.1, -0.4, 0.2], classlabels_ints=[4, 2, 9], post_transform=post)
        yield Node(f"classifier_{post}", "LinearClassifier", [x], ("y", "z"), domain=ML, **three)
        two = dict(coefficients=flat(rows[:2]), intercepts=[0.1, -0.4], classlabels_ints=[0, 1], post_transform=post)
        yield Node(f"classifier_two_{post}", "LinearClassifier", [x], ("y", "z"), domain=ML, **two)
        tied = dict(coefficients=flat([-rows[0], rows[0]]), intercepts=[-0.2, 0.2], classlabels_ints=[0, 1], post_transform=post)
        yield Node(f"classifier_tied_{post}", "LinearClassifier", [x], ("y", "z"), domain=ML, **tied)
    one = dict(coefficients=flat(rows[0]), intercepts=[0.2], classlabels_ints=[5, 3], post_transform="LOGISTIC")
    yield Node("classifier_one", "LinearClassifier", [x], ("y", "z"), domain=ML, **one)
    # A single vector: one sample for a classifier, and no samples for a regression.
    for post in ("NONE", "LOGISTIC", "SOFTMAX"):
        three = dict(coefficients=flat(rows), intercepts=[0.1, -0.4, 0.2], classlabels_ints=[4, 2, 9], post_transform=post)
        yield Node(f"classifier_vector_{post}", "LinearClassifier", [x[0]], ("y", "z"), domain=ML, **three)
    yield Node("classifier_vector_one", "LinearClassifier", [x[1]], ("y", "z"), domain=ML, **one)
    yield by_reference("regressor_vector", "LinearRegressor", [x[0]], domain=ML, coefficients=flat(rows[0]), intercepts=[0.3])
    yield by_reference("regressor_vector_targets", "LinearRegressor", [x[0]], domain=ML, coefficients=flat(rows[:2]), intercepts=[0.3, -0.2], targets=2)


class ContribOperatorsTest(unittest.TestCase):
    def test_matches_onnxruntime(self):
        for family in (activations, of_tensorflow, products, normalizations, embeddings, attention, grouped, others, resized, windows, preprocessing, linear_models, of_caffe2):
            with self.subTest(family.__name__), tempfile.TemporaryDirectory() as folder:
                nodes = list(family())
                for node in nodes:
                    node.write(folder)
                done = subprocess.run([RUNNER, folder], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
                self.assertEqual(done.stdout.strip().splitlines()[-1:], [f"{len(nodes)} passed, 0 failed, 0 skipped"], done.stdout)


if __name__ == "__main__":
    unittest.main()
