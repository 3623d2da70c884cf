"""Models that are invalid, or valid but difficult: a description, the bytes, and the required messages. hostile_test.py runs these."""
import random

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, helper

from hostile_build import (GEMM, WEIGHTS, chain, deep_ifs, derived_weight, field, floats, gemm, graph, info, nested_ifs, node, put, raw, renamed,
                           sparse, sparse_weight, tensor, varint, weight, wide_sum, with_graph)

BIG, HUGE = 1 << 40, 1 << 62


def whole():
    return gemm().SerializeToString()


def first(**fields):
    """The base model with fields of its first node set."""
    return lambda: gemm(lambda m: put(**fields)(m.graph.node[0]))


def attribute(**fields):
    """The base model with this attribute at its first node."""
    return lambda: gemm(lambda m: m.graph.node[0].attribute.append(AttributeProto(**fields)))


def within(declared):
    """A file that declares this for h[2,3] = Gemm(x, w, b)."""
    def made():
        model = after("[r] y = Relu (h)")()
        model.graph.value_info.append(declared)
        return model
    return made


def conv(flags="", w=(4, 3, 3, 3), x="float[2,3,8,8]"):
    return lambda: graph(f"({x} x) => (float[N,M,P,Q] y) {{ [conv] y = Conv {flags} (x, w) }}", w=w)


def pool(flags):
    return lambda: graph(f"(float[2,3,8,8] x) => (float[N,M,P,Q] y) {{ [fc] h = Conv (x, w)  [pool] y = MaxPool {flags} (h) }}", w=(4, 3, 3, 3))


def after(text, opset=17, shape="float[N,M]", **tensors):
    """Operators after h[2,3] = Gemm(x, w, b), so that training needs their gradients."""
    return lambda: graph(f"(float[2,4] x) => ({shape} y) {{ [fc] h = Gemm (x, w, b)  {text} }}", opset, **WEIGHTS, **tensors)


def masked(mask):
    """Attention of 3 queries to 5 keys, in 2 heads."""
    return after("[r] y = Attention (q, k, k, m)", 23, "float[A,B,C,D]", q=(1, 2, 3, 4), k=(1, 2, 5, 4), m=mask)


def loss(labels="int64[2] t", flags=""):
    return lambda: graph(f"(float[2,4] x, {labels}) => (float y) {{ [fc] h = Gemm (x, w, b)  [loss] y = SoftmaxCrossEntropyLoss {flags} (h, t) }}",
                         **WEIGHTS)


def function(body, name="F", calls="y = my.F (h)"):
    return lambda: graph(f"(float[2,4] x) => (float[2,3] y) {{ [fc] h = Gemm (x, w, b)  [call] {calls} }}", more=', "my" : 1',
                         functions=body, **WEIGHTS)


def one_function(text, name="F"):
    return f'<domain: "my", opset_import: ["" : 17, "my" : 1]> {name} (a) => (r) {{ {text} }} '


def doubling(count):
    """Each function calls the next one twice: 2^(count-1) calls of the last one."""
    bodies = "".join(one_function(f"[one] m = my.F{i + 1} (a)  [two] r = my.F{i + 1} (m)", f"F{i}") for i in range(count - 1))
    return function(bodies + one_function("r = Relu (a)", f"F{count - 1}"), calls="y = my.F0 (h)")


def branches(then_text, else_text="e = Identity (h)"):
    return lambda: graph(f"""(float[2,4] x) => (float[2,3] y) {{ [fc] h = Gemm (x, w, b)
        [choice] y = If (c) <then_branch = t () => (float[2,3] e) {{ {then_text} }}, else_branch = f () => (float[2,3] e) {{ {else_text} }}> }}""",
                         c=np.array(True), **WEIGHTS)


def undecided(then_text, else_text):
    """Branches that the data of a step select."""
    return lambda: graph(f"""(float[2,4] x, bool c) => (float[2,3] y) {{ [fc] h = Gemm (x, w, b)
        [choice] y = If (c) <then_branch = t () => (float[2,3] e) {{ {then_text} }}, else_branch = f () => (int64[2,3] e) {{ {else_text} }}> }}""", **WEIGHTS)


def with_input(model):
    model.graph.node[1].attribute[0].g.input.append(info("q", [2, 3]))
    return model


def loop(trips):
    return lambda: graph("""(float[2,4] x) => (float[2,3] y) { [fc] h = Gemm (x, w, b)
        [loop] y = Loop (n, c, h) <body = b (int64 i, bool k, float[2,3] s) => (bool k2, float[2,3] r) { k2 = Identity (k)  r = Relu (s) }> }""",
                         n=np.int64(trips), c=np.array(True), **WEIGHTS)


def scan():
    made = graph("""(float[2,4] x) => (float[2,3] y) { [fc] h = Gemm (x, w, b)
        [scan] y = Scan <num_scan_inputs = 1, body = b (float[3] s) => (float[3] r) { r = Relu (s) }> (h) }""", **WEIGHTS)
    next(a for a in made.graph.node[1].attribute if a.name == "num_scan_inputs").i = -4
    return made


def cycle(length):
    text = "[n0] a0 = Add (h, a1)  [n1] a1 = Relu (a0)" if length == 2 else "[n0] a0 = Add (h, a0)"
    return graph(f"(float[2,4] x) => (float[2,3] y) {{ [fc] h = Gemm (x, w, b)  {text}  [act] y = Relu (a0) }}", **WEIGHTS)


def from_sequence():
    made = gemm()
    made.graph.input[0].CopyFrom(helper.make_tensor_sequence_value_info("x", TensorProto.FLOAT, [2, 4]))
    return made


def sparse_of_rows(**kwargs):
    return lambda: sparse_weight(sparse(**kwargs))


def input_dims(*dims):
    return lambda: gemm(lambda m: m.graph.input[0].CopyFrom(info("x", dims)))


OK = ()
# Description, how the model is made, the permitted error classes (none: the model is valid), and words that the message must contain.
ROWS = {
    "A00": ("control: Gemm and Relu", gemm, OK, ["trained  w"]),
    "A01": ("a file of 0 bytes", lambda: b"", "E-PARSE", ["empty"]),
    "A02": ("4 KiB of random bytes", lambda: random.Random(2).randbytes(4096), "E-PARSE", ["byte "]),
    "A03": ("cut at half its length", lambda: whole()[:len(whole()) // 2], "E-PARSE", ["byte ", "claims"]),
    "A04": ("its last byte missing", lambda: whole()[:-1], "E-PARSE", ["byte "]),
    "A05": ("a page of a web site", lambda: b"<!DOCTYPE html>\n<html><body>404 Not Found</body></html>\n", "E-PARSE", ["this looks like an HTML page"]),
    "A06": ("a pointer of git-lfs", lambda: b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n", "E-PARSE", ["git lfs pull"]),
    "A07": ("4 bytes too many", lambda: whole() + b"\xde\xad\xbe\xef", "E-PARSE", ["byte "]),
    "A08": ("a field that claims 2 GiB", lambda: b"\x08\x0a" + b"\x3a" + varint((1 << 31) - 1), "E-PARSE", ["claims 2147483647 bytes"]),
    "A09": ("a number of 11 bytes", lambda: b"\x08" + b"\xff" * 10 + b"\x01", "E-PARSE", ["more than ten bytes"]),
    "A10": ("If 30 deep without types", lambda: nested_ifs(30), "E-LIMIT", ["nested more than 16 deep", "if30"]),
    "A11": ("If 2,000 deep", lambda: deep_ifs(2000), "E-PARSE", ["nested deeper than 64"]),
    "A12": ("a checkpoint of onnxruntime-training", lambda: b"\x08\x00\x00\x00ODTC\xf4\xff\xff\xff" + bytes(90), "E-PARSE",
            ["this is a checkpoint of onnxruntime-training", "export_model_for_inferencing"]),
    "A10b": ("If 18 deep", lambda: nested_ifs(18, (2, 4)), "E-LIMIT", ["nested more than 16 deep", "if2"]),
    "B01": ("no graph", lambda: gemm(lambda m: m.ClearField("graph")), "E-SCHEMA", ["no graph"]),
    "B02": ("no ir_version", lambda: gemm(lambda m: m.ClearField("ir_version")), "E-SCHEMA", ["ir_version"]),
    "B03": ("an ir_version of the future", lambda: gemm(put(ir_version=999)), "E-VERSION", ["ir_version 999"]),
    "B04": ("no operator set", lambda: gemm(lambda m: m.ClearField("opset_import")), "E-SCHEMA", ["operator set"]),
    "B05": ("opset 999", lambda: gemm(lambda m: put(version=999)(m.opset_import[0])), "E-VERSION", ["opset 999"]),
    "B06": ("opset -5", lambda: gemm(lambda m: put(version=-5)(m.opset_import[0])), "E-VERSION", ["opset -5"]),
    "B07": ("one domain at two versions", lambda: gemm(lambda m: m.opset_import.append(helper.make_opsetid("ai.onnx", 16))), "E-SCHEMA", ["twice", "17", "16"]),
    "B08": ("a domain that is not imported", first(domain="com.evil"), "E-UNSUPPORTED", ["com.evil.Gemm", "'fc'"]),
    "B09": ("an operator that does not exist", first(op_type="GemmX"), "E-UNSUPPORTED", ["GemmX", "'fc'", "did you mean 'Gemm'?"]),
    "B10": ("an operator without a name", first(op_type=""), "E-SCHEMA", ["op_type", "'fc'"]),
    "B11": ("a graph without a name", lambda: gemm(lambda m: put(name="")(m.graph)), OK, ["warning", "the graph has no name"]),
    "B12": ("a key of the metadata twice", lambda: gemm(lambda m: m.metadata_props.extend([onnx.StringStringEntryProto(key="who", value=v) for v in "ab"])),
            "E-SCHEMA", ["metadata_props", "'who'"]),
    "C01": ("a cycle of two nodes", lambda: cycle(2), "E-GRAPH", ["cycle", "'n0'", "'n1'"]),
    "C02": ("a node that eats its own output", lambda: cycle(1), "E-GRAPH", ["'n0'", "'a0'"]),
    "C03": ("an input that names no value", lambda: gemm(lambda m: m.graph.node[1].input.__setitem__(0, "hh")), "E-GRAPH", ["'hh'", "'act'", "did you mean 'h'?"]),
    "C04": ("two nodes that make one value", lambda: gemm(lambda m: m.graph.node.append(node("Relu", ["h"], ["y"], "again"))), "E-GRAPH", ["'y'", "'act'", "'again'"]),
    "C05": ("an output that nobody makes", lambda: gemm(lambda m: m.graph.output.append(info("z"))), "E-GRAPH", ["output 'z'"]),
    "C06": ("nodes out of order", lambda: gemm(lambda m: (m.graph.node.append(m.graph.node[0]), m.graph.node.pop(0))), OK, ["warning", "they were sorted"]),
    "C07": ("an initializer twice", lambda: gemm(lambda m: m.graph.initializer.append(m.graph.initializer[0])), "E-GRAPH", ["initializer", "'w'"]),
    "C08": ("an initializer without a name", lambda: gemm(lambda m: m.graph.initializer.append(tensor("", (2,)))), "E-GRAPH", ["initializer 2", "no name"]),
    "C09": ("a graph input twice", lambda: gemm(lambda m: m.graph.input.append(info("x"))), "E-GRAPH", ["input 'x'"]),
    "C10": ("a node without inputs and outputs", lambda: gemm(lambda m: m.graph.node.append(node("Relu", [], [], "alone"))), "E-GRAPH", ["Relu 'alone'"]),
    "C11": ("Gemm without inputs", lambda: gemm(lambda m: m.graph.node[0].ClearField("input")), "E-ARITY", ["'Gemm' expects 2 to 3 inputs, but this node has 0", "'fc'"]),
    "C12": ("Gemm with nine inputs", lambda: gemm(lambda m: m.graph.node[0].input.extend(["b"] * 6)), "E-ARITY", ["'Gemm' expects 2 to 3 inputs, but this node has 9", "'fc'"]),
    "C13": ("an input and its initializer differ in type", lambda: gemm(lambda m: m.graph.input.append(info("w", (4, 3), TensorProto.INT64))), "E-TYPE", ["'w'", "int64", "float32"]),
    "C14": ("a graph without outputs", lambda: gemm(lambda m: m.graph.ClearField("output")), "E-GRAPH", ["no output"]),
    "C15": ("a graph without nodes", lambda: gemm(lambda m: m.graph.ClearField("node")), "E-GRAPH", ["output 'y'"]),
    "C16": ("names with NUL, ESC and newline", lambda: renamed(graph(GEMM.replace("fc", "evil_node"), **WEIGHTS), b"evil_node", b"a\0\x1b[31mb\n"), "E-NAME",
            ["a\\x00\\x1b[31mb\\x0a", "Gemm"]),
    "C17": ("a name of 1 MiB", lambda: gemm(lambda m: put(name="n" * (1 << 20))(m.graph.node[1])), "E-LIMIT", ["65536", "1048576", "nnnn..."]),
    "C18": ("a name that is no UTF-8", lambda: renamed(graph(GEMM.replace("fc", "evil"), **WEIGHTS), b"evil", b"\xff\xfe\xc0\x80"), "E-NAME",
            ["UTF-8", "\\xff\\xfe\\xc0\\x80"]),
    "D01": ("a graph input without a type", lambda: gemm(lambda m: m.graph.input[0].ClearField("type")), "E-TYPE", ["input 'x'"]),
    "D02": ("elem_type 0", lambda: gemm(lambda m: m.graph.input[0].CopyFrom(info("x", (2, 4), 0))), "E-TYPE", ["input 'x'", "element type 0"]),
    "D03": ("elem_type 9999", lambda: gemm(lambda m: m.graph.input[0].CopyFrom(info("x", (2, 4), 9999))), "E-TYPE", ["input 'x'", "element type 9999"]),
    "D04": ("an extent of -4", input_dims(2, -4), "E-SHAPE", ["input 'x'", "-4"]),
    "D04b": ("an extent of -4 in front", input_dims(-4, 4), "E-SHAPE", ["input 'x'", "-4"]),
    "D05": ("an extent of 2^63-1", input_dims(2, (1 << 63) - 1), ("E-SHAPE", "E-LIMIT"), ["input 'x'", "9223372036854775807"]),
    "D05b": ("an extent of 2^63-1 in front", input_dims((1 << 63) - 1, 4), ("E-SHAPE", "E-LIMIT"), ["input 'x'", "9223372036854775807"]),
    "D06": ("a scalar into Gemm", input_dims(), "E-SHAPE", ["Gemm 'fc'", "'x' float32[]"]),
    "D07": ("Gemm of 7 and 4", input_dims(2, 7), "E-SHAPE", ["Gemm 'fc'", "float32[2,7]", "float32[4,3]"]),
    "D08": ("an output of another type than is made", lambda: gemm(lambda m: m.graph.output[0].CopyFrom(info("y", (2, 3), TensorProto.INT64))), "E-TYPE", ["output 'y'", "int64", "float32"]),
    "D08b": ("a value within of another type than is made", within(info("h", (2, 3), TensorProto.INT64)), "E-TYPE", ["'h'", "int64", "float32", "Gemm 'fc'"]),
    "D08c": ("a value within that is declared as a sequence", within(helper.make_tensor_sequence_value_info("h", TensorProto.FLOAT, [2, 3])), "E-TYPE", ["'h'", "sequence", "Gemm 'fc'"]),
    "D08d": ("a value within of element type 9999", within(info("h", (2, 3), 9999)), "E-TYPE", ["'h'", "9999", "Gemm 'fc'"]),
    "D08e": ("a value within with another number of axes", within(info("h", (2, 3, 1))), OK, ["warning", "'h'", "rank 3", ",3]", "Gemm 'fc'"]),
    "D09": ("a sequence into Gemm", from_sequence, "E-TYPE", ["'x'", "sequence", "Gemm 'fc'"]),
    "D09b": ("a sequence made in the graph into Gemm", after("s = SequenceConstruct (h, h)  [seq] y = Gemm (s, v)", v=(3, 3)), "E-TYPE", ["'s'", "sequence", "Gemm 'seq'"]),
    "D10": ("an input of rank 1,000", input_dims(*[1] * 1000), ("E-SHAPE", "E-LIMIT"), ["input 'x'", "rank 1000"]),
    "E01": ("an attribute twice", lambda: gemm(lambda m: m.graph.node[0].attribute.extend([helper.make_attribute("alpha", v) for v in (1.0, 2.0)])), "E-ATTR", ["'alpha'", "twice", "'fc'"]),
    "E02": ("a string for a number", attribute(name="alpha", type=AttributeProto.STRING, s=b"str"), "E-ATTR", ["'alpha'", "str", "'fc'"]),
    "E03": ("an attribute that there is not", attribute(name="zalpha", type=AttributeProto.INT, i=1), "E-ATTR", ["'zalpha'", "'fc'", "did you mean 'alpha'?"]),
    "E03b": ("an attribute like no other", attribute(name="zzz", type=AttributeProto.INT, i=1), "E-ATTR", ["'zzz'", "'fc'", "alpha, beta, transA, transB"]),
    "E04": ("a number and an integer both", attribute(name="alpha", type=AttributeProto.FLOAT, f=1.0, i=3), "E-ATTR", ["'alpha'", "'fc'"]),
    "E05": ("an attribute without a type", attribute(name="alpha", f=1.0), "E-ATTR", ["'alpha'", "no type", "'fc'"]),
    "E06": ("a NaN for a number", attribute(name="alpha", type=AttributeProto.FLOAT, f=float("nan")), OK, ["trained  w"]),
    "E07": ("ref_attr_name outside of a function", attribute(name="alpha", type=AttributeProto.FLOAT, ref_attr_name="outer"), "E-ATTR", ["'alpha'", "'outer'", "'fc'"]),
    "F00a": ("control: Conv", conv("<strides = [2,2], pads = [1,1,1,1]>"), OK, ["trained  w"]),
    "F00b": ("control: Reshape", after("[r] y = Reshape (h, s)", s=[-1, 1, 3], shape="float[M,N,K]"), OK, ["trained  w"]),
    "F00c": ("control: SoftmaxCrossEntropyLoss", loss(), OK, ["trained  w"]),
    "F00d": ("control: Split", after("[r] y, z = Split <axis = 1> (h, s)", s=[1, 2]), OK, ["trained  w"]),
    "F00e": ("control: Dropout", after("[r] y = Dropout (h, p, t)", p=np.float32(0.5), t=np.array(True)), OK, ["trained  w"]),
    "F00f": ("control: Expand", after("[r] y = Expand (h, s)", s=[2, 3], shape="float[M,N]"), OK, ["trained  w"]),
    "F01": ("Conv: strides 0", conv("<strides = [0,0]>"), "E-ATTR", ["Conv 'conv'", "strides", "0"]),
    "F02": ("Conv: group 0", conv("<group = 0>"), "E-ATTR", ["Conv 'conv'", "group", "0"]),
    "F03": ("Conv: pads -9", conv("<pads = [-9,-9,-9,-9]>"), "E-ATTR", ["Conv 'conv'", "pads", "-9"]),
    "F04": ("Conv: a weight of rank 5", conv(w=(4, 3, 3, 3, 3)), "E-SHAPE", ["Conv 'conv'", "float32[4,3,3,3,3]", "float32[2,3,8,8]"]),
    "F05": ("Conv: a scalar for its weight", conv(w=()), "E-SHAPE", ["Conv 'conv'", "'w' float32[]"]),
    # Opset 6 is older than any supported version.
    "F06": ("Gemm of opset 6 with a scalar", lambda: graph("(float[2,4] x) => (float[2,3] y) { [fc] y = Gemm <broadcast = -436> (x, w, c) }", 6, w=(4, 3), c=()),
            ("E-SHAPE", "E-VERSION"), ["6"]),
    "F07": ("Conv: dilations 2^62", conv(f"<dilations = [{HUGE},{HUGE}]>"), "E-ATTR", ["Conv 'conv'", "dilations", str(HUGE)]),
    "F08": ("MaxPool: kernel 0", pool("<kernel_shape = [0,0]>"), "E-ATTR", ["MaxPool 'pool'", "kernel_shape", "0"]),
    "F09": ("MaxPool: no kernel", pool(""), "E-ATTR", ["MaxPool", "'pool'", "kernel_shape"]),
    "F10": ("Reshape: -1 twice", after("[r] y = Reshape (h, s)", s=[-1, -1]), "E-SHAPE", ["Reshape 'r'", "-1"]),
    "F11": ("Reshape: 6 elements to 5x5", after("[r] y = Reshape (h, s)", s=[5, 5]), "E-SHAPE", ["Reshape 'r'", "[2,3]", "[5,5]"]),
    "F12": ("Reshape: [2^62,2^62,-1]", after("[r] y = Reshape (h, s)", s=[HUGE, HUGE, -1]), "E-SHAPE", ["Reshape 'r'", str(HUGE)]),
    "F13": ("Concat: axis 99", after("[r] y = Concat <axis = 99> (h, h)"), "E-ATTR", ["Concat 'r'", "axis", "99"]),
    "F14": ("Transpose: [0,0]", after("[r] y = Transpose <perm = [0,0]> (h)"), "E-ATTR", ["Transpose 'r'", "perm", "[0,0]"]),
    "F15": ("Transpose: [0,7]", after("[r] y = Transpose <perm = [0,7]> (h)"), "E-ATTR", ["Transpose 'r'", "perm", "7"]),
    "F16": ("Split: [100,-97]", after("[r] y, z = Split <axis = 1> (h, s)", s=[100, -97]), "E-SHAPE", ["Split 'r'", "-97"]),
    "F17": ("Gather: axis -9", after("[r] y = Gather <axis = -9> (h, s)", s=[0]), "E-ATTR", ["Gather 'r'", "axis", "-9"]),
    "F18": ("Gather: index 2^40", after("[r] y = Gather (h, s)", s=[BIG]), "E-VALUE", ["Gather 'r'", str(BIG)]),
    "F18b": ("Gather: index 2^40 into integers", after("[r] k = Gather (v, s)  y = Reshape (h, k)", v=[2, 3, 1, 1], s=[0, BIG]), "E-VALUE", ["Gather 'r'", str(BIG)]),
    "F19": ("Cast: to 999", after("[r] y = Cast <to = 999> (h)"), "E-ATTR", ["Cast 'r'", "to", "999"]),
    "F20": ("Einsum: 2 terms, 1 input", after('[r] y = Einsum <equation = "ij,jk->ik"> (h)'), "E-ATTR", ["Einsum 'r'", "equation", "ij,jk->ik"]),
    "F21": ("Einsum: i->i of a scalar", after('[m] k = ReduceSum <keepdims = 0> (h)  [r] y = Einsum <equation = "i->i"> (k)'), "E-ATTR", ["Einsum 'r'", "equation", "i->i"]),
    "F22": ("OneHot: depth -5", after("k = ArgMax <axis = 1, keepdims = 0> (h)  [r] y = OneHot (k, d, v)", d=np.int64(-5), v=np.array([0, 1], "float32")),
            "E-VALUE", ["OneHot 'r'", "depth", "-5"]),
    "F23": ("Expand to 4 TiB", after("[r] e = Expand (o, s)  k = ReduceSum <keepdims = 0> (e)  y = Mul (h, k)", o=np.ones(1, "float32"), s=[BIG]), "E-LIMIT", ["Expand 'r'", str(BIG)]),
    "F24": ("ConstantOfShape of 256 GiB", after("[r] e = ConstantOfShape (s)  k = ReduceSum <keepdims = 0> (e)  y = Mul (h, k)", s=[1 << 36]), "E-LIMIT", ["ConstantOfShape 'r'", str(1 << 36)]),
    "F25": ("Tile 2^36 times", after("[r] e = Tile (h, s)  k = ReduceSum <keepdims = 0> (e)  y = Mul (h, k)", s=[1, 1 << 36]), "E-LIMIT", ["Tile 'r'", str(3 << 36)]),
    "F26": ("Range of 10^12 numbers", after("[r] e = Range (a, z, d)  k = ReduceSum <keepdims = 0> (e)  y = Mul (h, k)", a=np.float32(0), z=np.float32(1e12), d=np.float32(1)), "E-LIMIT", ["Range 'r'"]),
    "F27": ("Range: delta 0", after("[r] e = Range (a, z, d)  k = ReduceSum <keepdims = 0> (e)  y = Mul (h, k)", a=np.float32(0), z=np.float32(5), d=np.float32(0)), "E-VALUE", ["Range 'r'", "delta", "0"]),
    "F28": ("Pad: 2^62", after("[r] y = Pad (h, s)", s=[0, HUGE, 0, HUGE]), "E-LIMIT", ["Pad 'r'", str(HUGE)]),
    "F29": ("Slice of a scalar", after("[m] k = ReduceSum <keepdims = 0> (h)  [r] y = Slice (k, s, e)", s=[0], e=[1]), "E-SHAPE", ["Slice 'r'", "float32[]"]),
    "F30": ("Softmax: axis 5", after("[r] y = Softmax <axis = 5> (h)"), "E-ATTR", ["Softmax 'r'", "axis", "5"]),
    "F30b": ("Softmax of opset 11: axis 5", after("[r] y = Softmax <axis = 5> (h)", opset=11), "E-ATTR", ["Softmax 'r'", "axis", "5"]),
    "F31": ("MatMul of 3 and 4", after("[r] y = MatMul (h, v)", v=(4, 5)), "E-SHAPE", ["MatMul 'r'", "float32[2,3]", "float32[4,5]"]),
    "F32": ("Add of [2,3] and [4,5]", after("[r] y = Add (h, v)", v=(4, 5)), "E-SHAPE", ["Add 'r'", "float32[2,3]", "float32[4,5]"]),
    "F33": ("Add of float and int64", after("[r] y = Add (h, v)", v=[1, 2, 3]), "E-TYPE", ["Add 'r'", "int64", "float32"]),
    "F34": ("BatchNormalization: 99 scales for 3 channels, epsilon -1",
            after("[r] y = BatchNormalization <epsilon = -1.0> (h, s, b2, m, v)", s=(99,), b2=(3,), m=(3,), v=(3,)), "E-SHAPE", ["BatchNormalization 'r'", "float32[99]", "float32[2,3]"]),
    "F35": ("labels of rank 3 for logits of rank 2", loss("int64[2,1,1] t"), "E-SHAPE", ["SoftmaxCrossEntropyLoss 'loss'", "int64[2,1,1]", "float32[2,3]"]),
    "F36": ("reduction avg", loss(flags='<reduction = "avg">'), "E-ATTR", ["SoftmaxCrossEntropyLoss 'loss'", "reduction", "avg"]),
    "F37": ("Dropout: ratio 2", after("[r] y = Dropout (h, p, t)", p=np.float32(2), t=np.array(True)), "E-VALUE", ["Dropout 'r'", "ratio", "2"]),
    # Words, numbers and axes that ONNX's schemas do not check.
    "F01b": ("Conv: a padding that there is not", after('[r] y = Conv <auto_pad = "NOPE"> (i, k)', i=(1, 1, 4, 4), k=(1, 1, 3, 3)),
             "E-ATTR", ["Conv 'r'", "auto_pad", "NOPE", "SAME_UPPER"]),
    "F05b": ("RotaryEmbedding: caches of one pair for two", after("[r] y = RotaryEmbedding (i, k, k, s)", 23, "float[A,B,C,D]", i=(1, 2, 3, 4), k=(5, 1), s=[[0, 1, 2]]),
             "E-SHAPE", ["RotaryEmbedding 'r'", "[5,1]", "2 pairs"]),
    "F05c": ("RotaryEmbedding: caches for one place of three", after("[r] y = RotaryEmbedding (i, k, k)", 23, "float[A,B,C,D]", i=(1, 2, 3, 4), k=(1, 1, 2)),
             "E-SHAPE", ["RotaryEmbedding 'r'", "[1,1,2]", "3 positions"]),
    "F05d": ("DFT: numbers of three parts", after("[r] y = DFT (i, , s)", 20, "float[A,B,C]", i=(1, 4, 3), s=np.int64(1)), "E-SHAPE", ["DFT 'r'", "last axis", "3"]),
    "F05e": ("DFT: of length 0", after("[r] y = DFT (i, l, s)", 20, "float[A,B,C]", i=(1, 4, 1), l=np.int64(0), s=np.int64(1)), "E-VALUE", ["DFT 'r'", "dft_length", "0"]),
    "F08b": ("LRN of no channels", after("[r] y = LRN <size = 0> (i)", i=(1, 1, 4, 4)), "E-ATTR", ["LRN 'r'", "size", "0"]),
    "F08c": ("LpPool: p 0", after("[r] y = LpPool <kernel_shape = [2,2], p = 0> (i)", i=(1, 1, 4, 4)), "E-ATTR", ["LpPool 'r'", "'p'"]),
    "F12b": ("SpaceToDepth: blocks of 3 in 4", after("[r] y = SpaceToDepth <blocksize = 3> (i)", i=(1, 1, 4, 4)), "E-SHAPE", ["SpaceToDepth 'r'", "'blocksize' is 3"]),
    "F12c": ("DepthToSpace: blocks of 0", after("[r] y = DepthToSpace <blocksize = 0> (i)", i=(1, 4, 4, 4)), "E-ATTR", ["DepthToSpace 'r'", "blocksize"]),
    "F17b": ("ScatterElements: axis 5", after("[r] y = ScatterElements <axis = 5> (h, s, u)", s=[[0]], u=(1, 1)), "E-ATTR", ["ScatterElements 'r'", "axis", "5"]),
    "F17c": ("CumSum: axis 9", after("[r] y = CumSum (h, s)", s=np.int64(9)), "E-VALUE", ["CumSum 'r'", "9", "from -2 to 1"]),
    "F17d": ("ReverseSequence: one axis for both", after("[r] y = ReverseSequence <batch_axis = 1, time_axis = 1> (h, s)", s=[1, 1, 1]),
             "E-ATTR", ["ReverseSequence 'r'", "time_axis"]),
    "F18c": ("GatherND: index 2^40", after("[r] y = GatherND (v, s)", v=(4, 3), s=[[BIG]]), "E-VALUE", ["GatherND 'r'", str(BIG)]),
    "F18d": ("ScatterND: index -9", after("[r] y = ScatterND (v, s, u)", v=(4, 3), s=[[-9]], u=(1, 3)), "E-VALUE", ["ScatterND 'r'", "-9"]),
    "F19b": ("Cast: to 0", after("[r] y = Cast <to = 0> (h)"), "E-ATTR", ["Cast 'r'", "'to'", "0"]),
    "F20b": ("Einsum: a letter for 3 and for 4", after('[r] y = Einsum <equation = "ij,kj->ik"> (h, v)', v=(5, 4)), "E-ATTR", ["Einsum 'r'", "ij,kj->ik", "extents 3 and 4"]),
    "F20c": ("Einsum: a letter of the output alone", after('[r] y = Einsum <equation = "ij->iz"> (h)'), "E-ATTR", ["Einsum 'r'", "ij->iz", "occurs in no input"]),
    "F20d": ("Einsum: a letter twice in the output", after('[r] y = Einsum <equation = "ij->iij"> (h)'), "E-ATTR", ["Einsum 'r'", "ij->iij", "twice"]),
    "F20e": ("Einsum: a digit", after('[r] y = Einsum <equation = "i1->i"> (h)'), "E-ATTR", ["Einsum 'r'", "i1->i", "unexpected character"]),
    "F20f": ("Einsum: three letters for a matrix", after('[r] y = Einsum <equation = "ijk->ij"> (h)'), "E-ATTR", ["Einsum 'r'", "ijk->ij", "[2,3]"]),
    "F20g": ("Einsum: no letters", after('[r] y = Einsum <equation = ""> (h)'), "E-ATTR", ["Einsum 'r'", "equation ''", "[2,3]"]),
    "F20h": ("Einsum: two ellipses in a term", after('[r] y = Einsum <equation = "...i...j->ij"> (h)'), "E-ATTR", ["Einsum 'r'", "...i...j->ij"]),
    "F20i": ("Einsum: two arrows", after('[r] y = Einsum <equation = "ij->i->j"> (h)'), "E-ATTR", ["Einsum 'r'", "ij->i->j"]),
    "F20j": ("Einsum: the diagonal of a matrix that is not square", after('[r] y = Einsum <equation = "ii->i"> (h)'), "E-ATTR", ["Einsum 'r'", "ii->i", "extents 2 and 3"]),
    "F20k": ("Einsum: two dots", after('[r] y = Einsum <equation = "i..j->ij"> (h)'), "E-ATTR", ["Einsum 'r'", "i..j->ij"]),
    "F32b": ("Attention: a mask of 7 queries for 3", masked((7, 5)), "E-SHAPE", ["Attention 'r'", "float32[7,5]", "[1,2,3,5]"]),
    "F32c": ("Attention: a mask of 7 keys for 5", masked((3, 7)), "E-SHAPE", ["Attention 'r'", "float32[3,7]", "[1,2,3,5]"]),
    "F32d": ("Attention: a mask of rank 5", masked((1, 1, 1, 3, 5)), "E-SHAPE", ["Attention 'r'", "float32[1,1,1,3,5]", "[1,2,3,5]"]),
    "F32e": ("Attention: a mask of 3 batches for 1", masked((3, 2, 3, 5)), "E-SHAPE", ["Attention 'r'", "float32[3,2,3,5]", "[1,2,3,5]"]),
    "F32f": ("Attention: a mask of no queries", masked((0, 5)), "E-SHAPE", ["Attention 'r'", "float32[0,5]", "[1,2,3,5]"]),
    "F33b": ("Attention: a mask of integers", masked(np.zeros((3, 5), "int64")), "E-TYPE", ["Attention 'r'", "int64[3,5]"]),
    "F33c": ("Attention: a mask of float64", masked(np.zeros((3, 5), "float64")), "E-TYPE", ["Attention 'r'", "float64[3,5]"]),
    "F32g": ("Where: a mask of 4 rows for 2", after("[r] y = Where (m, h, h)", m=np.ones((4, 3), bool)), "E-SHAPE", ["Where 'r'", "bool[4,3]", "float32[2,3]"]),
    "F33d": ("Where: a mask of integers", after("[r] y = Where (m, h, h)", m=np.ones((2, 3), "int64")), "E-TYPE", ["Where 'r'", "'m'", "int64"]),
    "F32h": ("Compress: a mask of 5 for 3", after("[r] y = Compress <axis = 1> (h, m)", m=np.ones(5, bool)), "E-VALUE", ["Compress 'r'", "element 4", "extent 3"]),
    "F32i": ("Compress: a mask of rank 2", after("[r] y = Compress <axis = 1> (h, m)", m=np.ones((2, 2), bool)), "E-SHAPE", ["Compress 'r'", "rank 1"]),
    "F22b": ("TopK: k -1", after("[r] y, z = TopK (h, s)", s=[-1]), "E-VALUE", ["TopK 'r'", "-1"]),
    "F25b": ("Tile: -1 times", after("[r] y = Tile (h, s)", s=[-1, 2]), "E-VALUE", ["Tile 'r'", "-1"]),
    "F27b": ("Slice: steps of 0", after("[r] y = Slice (h, s, e, a, t)", s=[0], e=[1], a=[0], t=[0]), "E-VALUE", ["Slice 'r'", "step", "0"]),
    "F28b": ("Pad: a mode that there is not", after('[r] y = Pad <mode = "mirror"> (h, p)', p=[0, 0, 0, 0]), "E-ATTR", ["Pad 'r'", "mirror", "reflect"]),
    "F28c": ("Resize: a scale that is no number", after("[r] y = Resize (h, , s)", s=np.array([1, np.nan], "float32")), "E-VALUE", ["Resize 'r'", "scale"]),
    "F28d": ("Resize: a mode that there is not", after('[r] y = Resize <mode = "magic"> (h, , s)', s=np.ones(2, "float32")), "E-ATTR", ["Resize 'r'", "magic"]),
    "F30c": ("Softmax: axis 2^63-1", after(f"[r] y = Softmax <axis = {(1 << 63) - 1}> (h)"), "E-ATTR", ["Softmax 'r'", "axis", str((1 << 63) - 1)]),
    "F34b": ("Clip: bounds that are no scalars", after("[r] y = Clip (h, v)", v=(3,)), "E-SHAPE", ["Clip 'r'", "min", "[3]"]),
    "F36b": ("LSTM: an activation that there is not", after('[r] y = LSTM <hidden_size = 1, activations = ["Foo", "Tanh", "Tanh"]> (i, k, v)',
             i=(2, 1, 1), k=(1, 4, 1), v=(1, 4, 1)), "E-ATTR", ["LSTM 'r'", "Foo", "sigmoid"]),
    "G01": ("raw_data 5 bytes short", lambda: weight(raw(raw_data=floats(12)[:-5])), "E-TENSOR", ["'w'", "48 bytes", "43"]),
    "G02": ("raw_data 64 bytes long", lambda: weight(raw(raw_data=floats(12) + bytes(64))), "E-TENSOR", ["'w'", "48 bytes", "112"]),
    "G03": ("dims [2^33,2^33]", lambda: weight(raw(dims=(1 << 33, 1 << 33), raw_data=floats(12))), "E-TENSOR", ["'w'", str(1 << 33)]),
    "G04": ("dims [-4,-3]", lambda: weight(raw(dims=(-4, -3), raw_data=floats(12))), "E-TENSOR", ["'w'", "-4"]),
    "G05": ("2^40 elements, no data", lambda: weight(raw(dims=(BIG,))), "E-TENSOR", ["'w'", str(BIG)]),
    "G06": ("raw_data and float_data", lambda: weight(raw(raw_data=floats(12), float_data=[0.0] * 12)), "E-TENSOR", ["'w'", "raw_data", "float_data"]),
    "G07": ("FLOAT with int64_data", lambda: weight(raw(int64_data=[0] * 12)), "E-TENSOR", ["'w'", "float32", "int64_data"]),
    "G08": ("data_type 999", lambda: weight(raw(data_type=999, raw_data=floats(12))), "E-TENSOR", ["'w'", "999"]),
    "G09": ("data_type 0", lambda: weight(raw(data_type=0, raw_data=floats(12))), "E-TENSOR", ["'w'", "element type 0"]),
    "G10": ("STRING in raw_data", lambda: weight(raw(data_type=TensorProto.STRING, raw_data=floats(12))), "E-TENSOR", ["'w'", "strings", "raw_data"]),
    "G11": ("a segment from 5 to 2", lambda: gemm(lambda m: (put(begin=5, end=2)(m.graph.initializer[0].segment))), "E-TENSOR", ["'w'", "segment", "5", "2"]),
    "G12": ("0 elements with data", lambda: weight(raw(dims=(0, 3), raw_data=floats(12))), "E-TENSOR", ["'w'", "[0,3]", "48"]),
    "G13": ("all weights NaN", lambda: weight(raw(raw_data=b"\0\0\xc0\x7f" * 12)), OK, ["initial weights contain NaN: 'w'"]),
    "G14": ("sparse: index 2^40", sparse_of_rows(indices=(1, BIG)), "E-TENSOR", ["'w'", str(BIG), "[4,3]"]),
    "G15": ("sparse: indices out of order", sparse_of_rows(indices=(5, 1)), "E-TENSOR", ["'w'", "order", "1"]),
    "G16": ("sparse: 2 values, 3 indices", sparse_of_rows(indices=(1, 2, 3)), "E-TENSOR", ["'w'", "2 values", "[3]"]),
    "G17": ("sparse: 2 values of 4 TiB", sparse_of_rows(dims=(1 << 20, 1 << 20)), "E-LIMIT", ["'w'", str(1 << 20)]),
    "I01": ("a function that calls itself", function(one_function("[again] r = my.F (a)")), "E-GRAPH", ["'my.F'", "calls itself", "'again'"]),
    "I02": ("F calls G calls F", function(one_function("r = my.G (a)") + one_function("r = my.F (a)", "G")), "E-GRAPH", ["'my.F'", "'my.G'"]),
    "I03": ("31 functions, each calls the next twice", doubling(31), "E-LIMIT", ["1000000", "'my.F"]),
    "I04": ("a function twice", function(one_function("r = Relu (a)") * 2), "E-GRAPH", ["'my.F'", "twice"]),
    "I05": ("a function whose output nobody makes", function(one_function("q = Relu (a)")), "E-GRAPH", ["'my.F'", "'r'"]),
    "I06": ("a branch that captures no value", branches("[inner] e = Relu (nothing)"), "E-GRAPH", ["'nothing'", "'inner'"]),
    "I06b": ("the same in the branch not taken", branches("e = Identity (h)", "[inner] e = Relu (nothing)"), "E-GRAPH", ["'nothing'", "'inner'"]),
    "I07": ("If without branches", lambda: gemm(lambda m: m.graph.node[1].CopyFrom(node("If", ["h"], ["y"], "choice"))), "E-ATTR", ["If 'choice'", "then_branch"]),
    "I05b": ("a function with an output twice", function(one_function("r = Relu (a)").replace("=> (r)", "=> (r, r)"), calls="y, z = my.F (h)"),
             "E-GRAPH", ["'my.F'", "'r'", "twice"]),
    "I07b": ("branches of two types", undecided("e = Identity (h)", "e = Cast <to = 7> (h)"), "E-TYPE", ["If 'choice'", "float32[2,3]", "int64[2,3]"]),
    "I07c": ("a branch with an input", lambda: with_input(branches("e = Identity (h)")()), "E-GRAPH", ["If 'choice'", "inputs"]),
    "I08": ("a Loop of 2^62 rounds", loop(HUGE), ("E-LIMIT", "E-UNSUPPORTED"), ["Loop 'loop'"]),
    "I09": ("num_scan_inputs -4", scan, "E-ATTR", ["Scan 'scan'", "num_scan_inputs", "-4"]),
    "J01": ("a chain of 200,000 nodes", lambda: chain(200_000), OK, ["trained  w"]),
    "J02": ("Sum of 300,000 inputs", lambda: wide_sum(300_000), OK, ["trained  w"]),
    "J03": ("a weight after a chain of 30,000 constants", lambda: derived_weight(30_000), OK, ["trained  w"]),
}
# Time limits in seconds, where more than one is allowed.
SECONDS = {"J01": 10, "J02": 2, "J03": 10}
