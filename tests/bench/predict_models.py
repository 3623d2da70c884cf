#!/usr/bin/env python3
"""The networks of predict_peers.py as ONNX files with random weights, written with the onnx package alone. BatchNormalization has running
statistics, as in an export for inference, so that every runtime computes the same. The first dimension, the batch, is left open.

python predict_models.py --out DIR [NAME...]"""
import argparse
import pathlib

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class Net:
    """Appends nodes; values are names."""

    def __init__(self):
        self.nodes, self.weights, self.rng = [], [], np.random.default_rng(0)

    def constant(self, value, name=None):
        name = name or f"c{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(value, order="C"), name))
        return name

    def weight(self, *shape, fan_in):
        return self.constant(self.rng.standard_normal(shape, dtype=np.float32) * np.float32((2 / fan_in) ** 0.5), f"w{len(self.weights)}")

    def vector(self, size, low=-0.1, high=0.1):
        return self.constant(self.rng.uniform(low, high, size).astype(np.float32), f"v{len(self.weights)}")

    def op(self, kind, *inputs, outputs=1, **attributes):
        names = [f"{kind.lower()}{len(self.nodes)}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(kind, list(inputs), names, name=f"{kind}_{len(self.nodes)}", **attributes))
        return names[0] if outputs == 1 else names

    def linear(self, x, size, to):
        return self.op("Gemm", x, self.weight(to, size, fan_in=size), self.vector(to), transB=1)

    def project(self, x, size, to):
        return self.op("Add", self.op("MatMul", x, self.weight(size, to, fan_in=2 * size)), self.vector(to))

    def conv(self, x, channels, to, size, stride=1, groups=1, bias=False):
        w = self.weight(to, channels // groups, size, size, fan_in=channels // groups * size * size)
        return self.op("Conv", x, w, *([self.vector(to)] if bias else []), strides=[stride, stride], pads=[size // 2] * 4, group=groups,
                       kernel_shape=[size, size])

    def norm(self, x, channels):
        return self.op("BatchNormalization", x, self.vector(channels, 0.8, 1.2), self.vector(channels), self.vector(channels),
                       self.vector(channels, 0.8, 1.2))

    def layer_norm(self, x, size):
        return self.op("LayerNormalization", x, self.vector(size, 0.9, 1.1), self.vector(size), axis=-1)


def mlp(n, x):
    for size, to in ((784, 1024), (1024, 1024)):
        x = n.op("Relu", n.linear(x, size, to))
    return n.linear(x, 1024, 10)


def lenet(n, x):
    x = n.op("Relu", n.conv(x, 1, 6, 5, bias=True))
    x = n.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = n.op("Relu", n.op("Conv", x, n.weight(16, 6, 5, 5, fan_in=150), n.vector(16), kernel_shape=[5, 5]))
    x = n.op("Flatten", n.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2]))
    return n.linear(n.op("Relu", n.linear(n.op("Relu", n.linear(x, 400, 120)), 120, 84)), 84, 10)


def resnet18(small):
    """`small`: for 32 x 32, with 3 x 3 windows first."""

    def net(n, x):
        x = n.op("Relu", n.norm(n.conv(x, 3, 64, 3) if small else n.conv(x, 3, 64, 7, 2), 64))
        if not small:
            x = n.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
        channels = 64
        for to, stride in ((64, 1), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1)):
            y = n.op("Relu", n.norm(n.conv(x, channels, to, 3, stride), to))
            y = n.norm(n.conv(y, to, to, 3), to)
            if stride > 1:
                x = n.norm(n.conv(x, channels, to, 1, stride), to)
            x, channels = n.op("Relu", n.op("Add", y, x)), to
        return n.linear(n.op("Flatten", n.op("GlobalAveragePool", x)), 512, 10)

    return net


def mobilenet_v2(n, x):
    zero, six = n.constant(np.float32(0)), n.constant(np.float32(6))
    clipped = lambda v: n.op("Clip", v, zero, six)
    x, channels = clipped(n.norm(n.conv(x, 3, 32, 3, 2), 32)), 32
    for widen, to, repeats, stride in ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)):
        for i in range(repeats):
            wide, step, y = widen * channels, stride if i == 0 else 1, x
            if widen > 1:
                y = clipped(n.norm(n.conv(y, channels, wide, 1), wide))
            y = clipped(n.norm(n.conv(y, wide, wide, 3, step, groups=wide), wide))
            y = n.norm(n.conv(y, wide, to, 1), to)
            x, channels = n.op("Add", x, y) if step == 1 and channels == to else y, to
    x = clipped(n.norm(n.conv(x, channels, 1280, 1), 1280))
    return n.linear(n.op("Flatten", n.op("GlobalAveragePool", x)), 1280, 1000)


def gpt2(words=5000, size=256, layers=4, heads=8, time=128):
    """Pre-norm decoder as PyTorch's legacy exporter writes it: attention as products, and GELU's tanh form."""

    def gelu(n, x):
        cube = n.op("Mul", n.op("Pow", x, n.constant(np.float32(3))), n.constant(np.float32(0.044715)))
        inner = n.op("Mul", n.op("Add", x, cube), n.constant(np.float32((2 / np.pi) ** 0.5)))
        return n.op("Mul", n.op("Mul", x, n.constant(np.float32(0.5))), n.op("Add", n.op("Tanh", inner), n.constant(np.float32(1))))

    def net(n, x):
        table = n.constant(n.rng.standard_normal((words, size), dtype=np.float32) * np.float32(0.02))
        places = n.constant(n.rng.standard_normal((1, time, size), dtype=np.float32) * np.float32(0.02))
        mask = n.constant(np.triu(np.full((1, 1, time, time), -np.inf, np.float32), 1))
        split, parts = n.constant(np.array([size] * 3, np.int64)), n.constant(np.array([0, time, heads, size // heads], np.int64))
        whole = n.constant(np.array([0, time, size], np.int64))
        h = n.op("Add", n.op("Gather", table, x), places)
        for _ in range(layers):
            q, k, v = n.op("Split", n.project(n.layer_norm(h, size), size, 3 * size), split, outputs=3, axis=2)
            turned = lambda value, perm: n.op("Transpose", n.op("Reshape", value, parts), perm=perm)
            q, k, v = turned(q, [0, 2, 1, 3]), turned(k, [0, 2, 3, 1]), turned(v, [0, 2, 1, 3])
            scores = n.op("Mul", n.op("MatMul", q, k), n.constant(np.float32((size / heads) ** -0.5)))
            seen = n.op("MatMul", n.op("Softmax", n.op("Add", scores, mask), axis=-1), v)
            seen = n.op("Reshape", n.op("Transpose", seen, perm=[0, 2, 1, 3]), whole)
            h = n.op("Add", h, n.project(seen, size, size))
            h = n.op("Add", h, n.project(gelu(n, n.project(n.layer_norm(h, size), size, 4 * size)), 4 * size, size))
        head = n.op("MatMul", n.layer_norm(h, size), n.weight(size, words, fan_in=2 * size))
        return n.op("Reshape", head, n.constant(np.array([-1, words], np.int64)))

    return net


def lstm(n, x, words=1000, size=128, hidden=256):
    table = n.constant(n.rng.standard_normal((words, size), dtype=np.float32))
    steps = n.op("Transpose", n.op("Gather", table, x), perm=[1, 0, 2])
    w, r = n.weight(1, 4 * hidden, size, fan_in=8 * size), n.weight(1, 4 * hidden, hidden, fan_in=8 * hidden)
    y = n.op("LSTM", steps, w, r, n.constant(n.rng.uniform(-0.1, 0.1, (1, 8 * hidden)).astype(np.float32)), hidden_size=hidden)
    last = n.op("Gather", n.op("Squeeze", y, n.constant(np.array([1], np.int64))), n.constant(np.array(-1, np.int64)), axis=0)
    return n.linear(last, hidden, 10)


# name: (network, shape of a sample, number of words or 0 if samples are numbers)
MODELS = dict(
    mlp=(mlp, (784,), 0),
    lenet=(lenet, (1, 28, 28), 0),
    resnet18_cifar=(resnet18(True), (3, 32, 32), 0),
    resnet18=(resnet18(False), (3, 224, 224), 0),
    mobilenet_v2=(mobilenet_v2, (3, 224, 224), 0),
    gpt2_mini=(gpt2(), (128,), 5000),
    lstm=(lstm, (64,), 1000),
)


def samples(name, batch):
    """A batch for a network."""
    _, shape, words = MODELS[name]
    rng = np.random.default_rng(1)
    return rng.integers(0, words, (batch, *shape)) if words else rng.standard_normal((batch, *shape), dtype=np.float32)


def write(name, out):
    net, shape, words = MODELS[name]
    n = Net()
    result = net(n, "x")
    n.nodes.append(helper.make_node("Identity", [result], ["out"], name="out"))
    x = helper.make_tensor_value_info("x", TensorProto.INT64 if words else TensorProto.FLOAT, ["batch", *shape])
    classes = {"mobilenet_v2": 1000, "gpt2_mini": words}.get(name, 10)
    out_info = helper.make_tensor_value_info("out", TensorProto.FLOAT, ["rows", classes] if name == "gpt2_mini" else ["batch", classes])
    model = helper.make_model(helper.make_graph(n.nodes, name, [x], [out_info], n.weights), opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, out / f"{name}.onnx")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("names", nargs="*")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    for one in given.names or MODELS:
        write(one, given.out)
