#!/usr/bin/env python3
"""The character GPT of this folder, written with the plain onnx package.

python3 make_model.py            writes char_gpt.onnxtxt: the graph, its weights as inputs (kept in the repository) python3 make_model.py
--onnx F   writes F, the same graph with weights drawn from a fixed seed

4 layers, width 128, 4 heads, pre-normalization, learned positions; the head shares the embedding's table. The logits are [batch, 128, 96]:
train it with cross_entropy(logits, next, class_axis=-1)."""
import argparse
import pathlib

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

VOCABULARY, LENGTH, WIDTH, HEADS, LAYERS = 96, 128, 128, 4, 4
HERE = pathlib.Path(__file__).parent


class Graph:
    def __init__(self):
        self.nodes, self.weights = [], {}

    def op(self, kind, inputs, output, **attributes):
        self.nodes.append(helper.make_node(kind, inputs, [output], name=output, **attributes))
        return output

    def weight(self, name, *shape):
        self.weights[name] = shape
        return name

    def ints(self, name, values):
        return self.op("Constant", [], name, value_ints=values)

    def linear(self, x, name, inputs, outputs):
        y = self.op("MatMul", [x, self.weight(f"{name}.weight", inputs, outputs)], f"{name}.product")
        return self.op("Add", [y, self.weight(f"{name}.bias", outputs)], f"{name}.out")

    def norm(self, x, name):
        return self.op("LayerNormalization", [x, self.weight(f"{name}.scale", WIDTH), self.weight(f"{name}.bias", WIDTH)], f"{name}.out",
                       axis=-1, epsilon=1e-5)

    def attention(self, x, name):
        qkv = self.linear(x, f"{name}.qkv", WIDTH, 3 * WIDTH)
        self.nodes.append(helper.make_node("Split", [qkv], [f"{name}.{p}" for p in "qkv"], name=f"{name}.split", axis=-1, num_outputs=3))
        parts = []
        for p in "qkv":
            heads = self.op("Reshape", [f"{name}.{p}", "heads"], f"{name}.{p}.heads")
            parts.append(self.op("Transpose", [heads], f"{name}.{p}.by_head", perm=[0, 2, 3, 1] if p == "k" else [0, 2, 1, 3]))
        scores = self.op("MatMul", parts[:2], f"{name}.scores")
        scaled = self.op("Mul", [scores, "scale"], f"{name}.scaled")
        masked = self.op("Add", [scaled, "mask"], f"{name}.masked")
        weights = self.op("Softmax", [masked], f"{name}.weights", axis=-1)
        mixed = self.op("MatMul", [weights, parts[2]], f"{name}.mixed")
        back = self.op("Transpose", [mixed], f"{name}.by_token", perm=[0, 2, 1, 3])
        flat = self.op("Reshape", [back, "flat"], f"{name}.flat")
        return self.linear(flat, f"{name}.proj", WIDTH, WIDTH)

    def mlp(self, x, name):
        wide = self.linear(x, f"{name}.up", WIDTH, 4 * WIDTH)
        return self.linear(self.op("Gelu", [wide], f"{name}.gelu", approximate="tanh"), f"{name}.down", 4 * WIDTH, WIDTH)


def build():
    g = Graph()
    g.ints("heads", [0, 0, HEADS, WIDTH // HEADS])
    g.ints("flat", [0, 0, WIDTH])
    g.op("Constant", [], "scale", value_float=float((WIDTH // HEADS) ** -0.5))
    # 0 on and below the diagonal, a large negative number above.
    g.op("Constant", [], "lengths", value_ints=[LENGTH, LENGTH])
    g.op("Constant", [], "low", value_float=-1e9)
    g.op("Expand", ["low", "lengths"], "all_low")
    g.op("Constant", [], "one", value_int=1)
    g.op("Trilu", ["all_low", "one"], "mask", upper=1)
    table = g.weight("embedding", VOCABULARY, WIDTH)
    x = g.op("Gather", [table, "tokens"], "embedded", axis=0)
    x = g.op("Add", [x, g.weight("positions", LENGTH, WIDTH)], "h0")
    for i in range(LAYERS):
        a = g.attention(g.norm(x, f"layer{i}.norm1"), f"layer{i}.attention")
        x = g.op("Add", [x, a], f"layer{i}.middle")
        m = g.mlp(g.norm(x, f"layer{i}.norm2"), f"layer{i}.mlp")
        x = g.op("Add", [x, m], f"h{i + 1}")
    x = g.norm(x, "norm")
    g.op("Transpose", [table], "head", perm=[1, 0])
    g.op("MatMul", [x, "head"], "logits")
    return g


def model_of(g, initializers):
    tokens = helper.make_tensor_value_info("tokens", TensorProto.INT64, ["batch", LENGTH])
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", LENGTH, VOCABULARY])
    weights = [] if initializers else [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in g.weights.items()]
    graph = helper.make_graph(g.nodes, "char_gpt", [tokens, *weights], [logits], initializer=initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10, producer_name="gradloom models")


def initial(name, shape, random):
    if name.endswith(".scale"):
        return np.ones(shape, np.float32)
    if name.endswith(".bias"):
        return np.zeros(shape, np.float32)
    # As in GPT-2, projections into the residual stream have smaller initial weights, depending on the depth.
    narrow = name.endswith(("proj.weight", "down.weight"))
    return random.normal(0, 0.02 / (2 * LAYERS) ** 0.5 if narrow else 0.02, shape).astype(np.float32)


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--onnx", help="the model file to write")
    arguments.add_argument("--seed", type=int, default=0)
    a = arguments.parse_args()
    g = build()
    if not a.onnx:
        (HERE / "char_gpt.onnxtxt").write_text(onnx.printer.to_text(model_of(g, [])) + "\n")
        return
    random = np.random.default_rng(a.seed)
    model = model_of(g, [numpy_helper.from_array(initial(n, s, random), n) for n, s in g.weights.items()])
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, a.onnx)


main()
