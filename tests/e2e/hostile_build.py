"""Building blocks of the models in hostile_models.py."""
import struct

import numpy as np
import onnx
import onnx.parser
from onnx import TensorProto, helper, numpy_helper

# y[2,3] = Relu(x[2,4] . w + b), to which most of the table makes one change.
GEMM = "(float[2,4] x) => (float[2,3] y) { [fc] h = Gemm (x, w, b)  [act] y = Relu (h) }"
WEIGHTS = {"w": (4, 3), "b": (3,)}


def graph(text, opset=17, more="", functions="", **tensors):
    """A model from ONNX's text syntax. In `tensors`, a shape creates a float weight, and a list creates int64 numbers."""
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset}{more}]> g {text} {functions}')
    for name, value in tensors.items():
        model.graph.initializer.append(tensor(name, value))
    return model


def tensor(name, value):
    if isinstance(value, tuple):
        value = np.linspace(0.1, 0.4, int(np.prod(value)), dtype="float32").reshape(value)
    return numpy_helper.from_array(np.asarray(value), name)


def gemm(change=None):
    model = graph(GEMM, **WEIGHTS)
    if change is not None:
        change(model)
    return model


def put(**fields):
    """A function that sets fields of a message."""
    def change(message):
        for name, value in fields.items():
            setattr(message, name, value)
    return change


def node(op, inputs, outputs, name="fc", **attributes):
    return helper.make_node(op, inputs, outputs, name=name, **attributes)


def info(name, shape=(2, 4), dtype=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, dtype, shape)


def field(number, content):
    """A length-delimited field of a message."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def varint(value):
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def with_graph(content):
    """A model around the bytes of a graph, for graphs that Python's protobuf cannot represent."""
    return b"\x08\x0a" + field(7, content) + field(8, b"\x10\x11")


def deep_ifs(depth):
    """Nested branches, built as bytes: deeper than Python's protobuf permits."""
    named_y = field(2, b"b") + field(12, field(1, b"y"))
    branch = field(1, field(1, b"c") + field(2, b"y") + field(4, b"Identity")) + named_y
    for _ in range(depth):
        then = field(1, b"then_branch") + field(6, branch) + b"\xa0\x01\x05"
        branch = field(1, field(1, b"c") + field(2, b"y") + field(4, b"If") + field(5, then)) + named_y
    cond = field(1, b"c") + field(2, field(1, b"\x08\x09" + field(2, b"")))
    return with_graph(branch + field(11, cond))


def nested_ifs(depth, shape=None):
    """A model of nested branches whose outputs have this shape, or no type."""
    def body(level):
        if shape is not None and level == 0:
            return helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "b", [], [info("y", shape)])
        made = (helper.make_node("Identity", ["c"], ["y"]) if level == 0 else
                helper.make_node("If", ["c"], ["y"], name=f"if{level}", then_branch=body(level - 1), else_branch=body(0)))
        return helper.make_graph([made], "b", [], [onnx.ValueInfoProto(name="y") if shape is None else info("y", shape)])
    main = body(depth)
    main.input.append(info("c", (), TensorProto.BOOL))
    if shape is not None:
        main.input.append(info("x", shape))
    return helper.make_model(main, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)


def renamed(model, old, new):
    """The model's bytes with a name replaced by one of the same length that Python would reject."""
    assert len(old) == len(new)
    data = model.SerializeToString()
    assert old in data
    return data.replace(old, new)


def raw(name="w", dims=(4, 3), data_type=TensorProto.FLOAT, **fields):
    """A tensor as described, valid or not."""
    made = TensorProto(name=name, dims=dims, data_type=data_type)
    for key, value in fields.items():
        if isinstance(value, list):
            getattr(made, key).extend(value)
        else:
            setattr(made, key, value)
    return made


def weight(proto):
    """The base model with this tensor as its weight."""
    def change(model):
        model.graph.initializer[0].CopyFrom(proto)
    return gemm(change)


def floats(count):
    return struct.pack(f"<{count}f", *(0.01 * i for i in range(count)))


def sparse(name="w", dims=(4, 3), values=(1.0, 2.0), indices=(1, 5), shape=None):
    made = onnx.SparseTensorProto(dims=dims)
    made.values.CopyFrom(numpy_helper.from_array(np.asarray(values, "float32"), name))
    made.indices.CopyFrom(numpy_helper.from_array(np.asarray(indices, "int64").reshape(shape or (len(indices),)), ""))
    return made


def sparse_weight(proto):
    def change(model):
        del model.graph.initializer[0]
        model.graph.sparse_initializer.append(proto)
    return gemm(change)


def chain(length):
    """A deep graph from the input to the weights."""
    nodes = [helper.make_node("Relu", [f"v{i}" if i else "x"], [f"v{i + 1}"]) for i in range(length - 1)]
    nodes.append(node("Gemm", [f"v{length - 1}", "w", "b"], ["y"]))
    made = helper.make_graph(nodes, "g", [info("x", ("N", 4))], [info("y", ("N", 3))], [tensor(n, s) for n, s in WEIGHTS.items()])
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)


def derived_weight(length):
    """A weight that is the last of a chain of constants."""
    nodes = [helper.make_node("Neg", [f"w{i}" if i else "w"], [f"w{i + 1}"]) for i in range(length)]
    nodes.append(node("Gemm", ["x", f"w{length}", "b"], ["y"]))
    made = helper.make_graph(nodes, "g", [info("x", ("N", 4))], [info("y", ("N", 3))], [tensor(n, s) for n, s in WEIGHTS.items()])
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)


def wide_sum(count):
    """A Gemm of x that is added to itself this many times."""
    def change(model):
        model.graph.node[0].input[0] = "s"
        model.graph.node.insert(0, node("Sum", ["x"] * count, ["s"], "sum"))
    return gemm(change)
