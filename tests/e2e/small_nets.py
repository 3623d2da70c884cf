"""Small models of every family, with training data, from which tests of flag combinations draw."""
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class Net:
    """A model under construction: nodes, weights and inputs."""

    def __init__(self, rng):
        self.rng, self.nodes, self.weights, self.inputs, self.outputs, self.count = rng, [], [], [], [], 0

    def input(self, name, *shape, dtype=TensorProto.FLOAT):
        self.inputs.append(helper.make_tensor_value_info(name, dtype, ["N", *shape]))
        return name

    def weight(self, name, *shape, value=None):
        array = np.full(shape, value, "float32") if value is not None else (self.rng.standard_normal(shape) * 0.4).astype("float32")
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def constant(self, array):
        self.count += 1
        self.weights.append(numpy_helper.from_array(np.asarray(array), f"const{self.count}"))
        return f"const{self.count}"

    def node(self, op, *inputs, outputs=1, name=None, **attributes):
        self.count += 1
        name = name or f"{op.lower()}{self.count}"
        made = [f"{name}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(op, list(inputs), made, name=name, **attributes))
        return made[0]

    def linear(self, x, wide, narrow, name):
        return self.node("Gemm", x, self.weight(f"{name}.weight", wide, narrow), self.weight(f"{name}.bias", narrow), name=name)

    def norm(self, x, channels, name):
        return self.node("BatchNormalization", x, self.weight(f"{name}.scale", channels, value=1), self.weight(f"{name}.bias", channels, value=0),
                         self.weight(f"{name}.mean", channels, value=0), self.weight(f"{name}.var", channels, value=1), name=name)

    def dropout(self, x, ratio):
        return self.node("Dropout", x, self.constant(np.float32(ratio)), self.constant(np.bool_(False)), outputs=2) if ratio else x

    def output(self, value, name, *shape):
        self.nodes.append(helper.make_node("Identity", [value], [name], name=f"{name}_node"))
        self.outputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", *shape]))

    def model(self):
        graph = helper.make_graph(self.nodes, "net", self.inputs, self.outputs, self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        onnx.checker.check_model(model, full_check=True)
        return model


def dense(net, ratio, norm):
    x = net.linear(net.input("x", 6), 6, 12, "fc1")
    x = net.dropout(net.node("Relu", net.norm(x, 12, "bn") if norm else x), ratio)
    net.output(net.linear(x, 12, 3, "fc2"), "logits", 3)


def conv(net, ratio, norm):
    x = net.input("x", 2, 8, 8)
    for i, (wide, narrow) in enumerate(((2, 4), (4, 6))):
        x = net.node("Conv", x, net.weight(f"conv{i}.weight", narrow, wide, 3, 3), net.weight(f"conv{i}.bias", narrow), pads=[1] * 4, name=f"conv{i}")
        x = net.node("Relu", net.norm(x, narrow, f"bn{i}") if norm else x)
        x = net.node("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = net.dropout(net.node("Flatten", x), ratio)
    net.output(net.linear(x, 24, 3, "head"), "logits", 3)


def lstm(net, ratio, norm):
    x = net.node("Transpose", net.input("x", 5, 4), perm=[1, 0, 2])
    net.node("LSTM", x, net.weight("lstm.w", 1, 24, 4), net.weight("lstm.r", 1, 24, 6), net.weight("lstm.b", 1, 48), outputs=3, hidden_size=6,
             name="lstm")
    x = net.dropout(net.node("Squeeze", "lstm_1", net.constant(np.array([0], "int64"))), ratio)
    net.output(net.linear(net.norm(x, 6, "bn") if norm else x, 6, 3, "head"), "logits", 3)


def attention(net, ratio, norm):
    x = net.input("x", 5, 4)
    q, k, v = (net.node("MatMul", x, net.weight(f"{name}.weight", 4, 8), name=name) for name in ("query", "key", "value"))
    scores = net.node("Mul", net.node("MatMul", q, net.node("Transpose", k, perm=[0, 2, 1])), net.constant(np.float32(8**-0.5)))
    x = net.node("MatMul", net.dropout(net.node("Softmax", scores, axis=-1), ratio), v)
    x = net.node("LayerNormalization", x, net.weight("ln.scale", 8, value=1), net.weight("ln.bias", 8, value=0), name="ln")
    x = net.node("ReduceMean", x, axes=[1], keepdims=0)
    net.output(net.linear(net.norm(x, 8, "bn") if norm else x, 8, 3, "head"), "logits", 3)


def embedding(net, ratio, norm):
    x = net.node("Gather", net.weight("table.weight", 9, 6), net.input("x", 4, dtype=TensorProto.INT64), name="table")
    x = net.node("ReduceMean", x, axes=[1], keepdims=0)
    net.output(net.linear(net.dropout(net.norm(x, 6, "bn") if norm else x, ratio), 6, 3, "head"), "logits", 3)


def language(net, ratio, norm):
    """Scores of the next token for each token."""
    x = net.node("Gather", net.weight("table.weight", 9, 6), net.input("x", 5, dtype=TensorProto.INT64), name="table")
    x = net.node("MatMul", x, net.weight("mix.weight", 6, 8), name="mix")
    x = net.dropout(net.node("Tanh", x), ratio)
    net.output(net.node("MatMul", x, net.weight("head.weight", 8, 9), name="head"), "logits", 5, 9)


def picture(net, ratio, norm):
    """With the pixel values of files, 0 to 255."""
    x = net.node("Mul", net.input("x", 3, 8, 8), net.constant(np.float32(1 / 255)))
    x = net.node("Conv", x, net.weight("conv.weight", 4, 3, 3, 3), net.weight("conv.bias", 4), strides=[2, 2], name="conv")
    x = net.dropout(net.node("Relu", net.norm(x, 4, "bn") if norm else x), ratio)
    net.output(net.linear(net.node("Flatten", x), 36, 3, "head"), "logits", 3)


def two_inputs(net, ratio, norm):
    x = net.node("Concat", net.linear(net.input("x", 6), 6, 5, "left"), net.linear(net.input("y", 3), 3, 4, "right"), axis=1)
    x = net.dropout(net.node("Tanh", net.norm(x, 9, "bn") if norm else x), ratio)
    net.output(net.linear(x, 9, 3, "head"), "logits", 3)
    net.output(net.linear(x, 9, 2, "other"), "value", 2)


def layers(model):
    """Prefixes of the names of each layer's node and weights, in the order of the file. Batch statistics are not a layer."""
    names = dict.fromkeys(weight.name.split(".")[0] for weight in model.graph.initializer if "." in weight.name)
    return [name for name in names if not name.startswith("bn")]


def is_language(model):
    return len(model.graph.output[0].type.tensor_type.shape.dim) == 3


def is_picture(model):
    return [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim[1:]] == [3, 8, 8]


FAMILIES = {f.__name__: f for f in (dense, conv, lstm, attention, embedding, language, picture, two_inputs)}


def make(family, rng, ratio, norm):
    net = Net(rng)
    FAMILIES[family](net, ratio, norm)
    return net.model()


def samples(model, rng, rows):
    """Arrays for the model's inputs and for the targets of all losses."""
    arrays = {}
    for value in model.graph.input:
        shape = [rows] + [d.dim_value for d in value.type.tensor_type.shape.dim[1:]]
        whole = value.type.tensor_type.elem_type == TensorProto.INT64
        arrays[value.name] = rng.integers(0, 9, shape) if whole else rng.standard_normal(shape).astype("float32")
    arrays["label"] = rng.integers(0, 3, rows)
    if is_language(model):
        stream = rng.integers(0, 9, rows * 5 + 1)
        arrays["x"], arrays["label"] = (stream[first:first + rows * 5].reshape(rows, 5) for first in (0, 1))
    if is_picture(model):
        arrays["x"] = rng.integers(0, 256, (rows, 3, 8, 8)).astype("float32")
    if len(model.graph.output) > 1:
        arrays["t"] = rng.standard_normal((rows, 2)).astype("float32")
    return arrays
