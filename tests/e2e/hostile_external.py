"""Invalid external data at every place of a model where a tensor can be. hostile_test.py runs these."""
import os

import numpy as np
import onnx
from onnx import TensorProto, helper

from hostile_build import WEIGHTS, floats, gemm, graph, put, sparse, sparse_weight

# The size of the tensor at each place: 12 floats, or 6 indices.
BYTES = 48


def external(tensor, entries):
    """The tensor with its elements in external data."""
    for name in ("raw_data", "float_data", "int64_data"):
        tensor.ClearField(name)
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.extend(onnx.StringStringEntryProto(key=key, value=value) for key, value in entries)
    return tensor


def bare(name, dims=(4, 3), data_type=TensorProto.FLOAT):
    return TensorProto(name=name, dims=dims, data_type=data_type)


def in_initializer(entries):
    return gemm(lambda m: m.graph.initializer[0].CopyFrom(external(bare("w"), entries)))


def in_sparse_values(entries):
    made = sparse(values=[0] * 12, indices=range(12))
    external(made.values, entries)
    return sparse_weight(made)


def in_sparse_indices(entries):
    made = sparse(values=[1] * 6, indices=range(6))
    external(made.indices, entries)
    return sparse_weight(made)


def in_constant(entries):
    def change(model):
        del model.graph.initializer[0]
        model.graph.node.insert(0, helper.make_node("Constant", [], ["w"], name="constant", value=external(bare("w"), entries)))
    return gemm(change)


def in_sparse_constant(entries):
    def change(model):
        del model.graph.initializer[0]
        made = sparse(values=[0] * 12, indices=range(12))
        external(made.values, entries)
        model.graph.node.insert(0, helper.make_node("Constant", [], ["w"], name="constant", sparse_value=made))
    return gemm(change)


def in_subgraph(entries):
    made = graph("""(float[2,4] x) => (float[2,3] y) { y = If (c) <then_branch = t () => (float[2,3] e) { e = Gemm (x, w, b) },
                                                                else_branch = f () => (float[2,3] e) { e = Gemm (x, w, b) }> }""",
                 c=np.array(True), b=WEIGHTS["b"])
    for branch in made.graph.node[0].attribute:
        branch.g.initializer.append(external(bare("w"), entries))
    return made


def in_function(entries):
    made = graph("(float[2,4] x) => (float[2,3] y) { y = my.F (x) }", more=', "my" : 1',
                 functions='<domain: "my", opset_import: ["" : 17]> F (a) => (r) { w = Constant <value_float = 1.0> ()  r = MatMul (a, w) }')
    constant = made.functions[0].node[0]
    constant.ClearField("attribute")
    constant.attribute.append(helper.make_attribute("value", external(bare("w"), entries)))
    return made


def in_training(entries):
    def change(model):
        put_in = model.training_info.add().algorithm
        put_in.CopyFrom(helper.make_graph([], "algorithm", [], []))
        put_in.initializer.append(external(bare("w"), entries))
    return gemm(change)


def in_training_start(entries):
    def change(model):
        put_in = model.training_info.add().initialization
        put_in.CopyFrom(helper.make_graph([], "start", [], []))
        put_in.initializer.append(external(bare("w"), entries))
    return gemm(change)


PLACES = {
    "initializer": in_initializer,
    "sparse values": in_sparse_values,
    "sparse indices": in_sparse_indices,
    "Constant": in_constant,
    "sparse Constant": in_sparse_constant,
    "subgraph": in_subgraph,
    "function": in_function,
    "training_info.algorithm": in_training,
    "training_info.initialization": in_training_start,
}


def layout(folder, place):
    """Creates outside/ with a file that must not be read, and outside/a/b, the model's folder, with the data. Returns the model's folder.
    """
    elements = np.arange(6, dtype="int64").tobytes() if place == "sparse indices" else floats(12)
    model = os.path.join(folder, "a", "b")
    os.makedirs(model)
    for path in (os.path.join(folder, "secret.bin"), os.path.join(model, "w.bin")):
        with open(path, "wb") as file:
            file.write(elements)
    return model


def at(location, **more):
    return lambda folder: [("location", location), *((key, str(value)) for key, value in more.items())]


def made(make, location):
    """`make` creates something under this name in the model's folder."""
    def place(folder):
        make(os.path.join(folder, location.split("/")[0]))
        return [("location", location)]
    return place


OK = ()
# Description, the entries of external_data (and what lies in the folder), the class of the error, and words of the message.
ROWS = {
    "H00": ("control: w.bin", at("w.bin"), OK, []),
    "H00b": ("control: with its range and a checksum", at("./w.bin", offset=0, length=BYTES, checksum="0"), OK, []),
    "H01": ("a path that climbs out", at("../../secret.bin"), "E-PATH", ['"../../secret.bin"', "outside of the folder"]),
    "H02": ("a path that goes in and climbs out", at("a/../../../secret.bin"), "E-PATH", ['"a/../../../secret.bin"']),
    "H03": ("an absolute path", lambda folder: [("location", os.path.join(folder, "w.bin"))], "E-PATH", ["by an absolute path", "/a/b/w.bin"]),
    "H04": ("a link that leads out", made(lambda path: os.symlink("../../secret.bin", path), "link.bin"), "E-PATH", ['"link.bin"', "link"]),
    "H04b": ("an absolute link within the folder", made(lambda path: os.symlink(path.replace("/link.bin", "/w.bin"), path), "link.bin"), OK, []),
    "H04c": ("an absolute link that leads out", made(lambda path: os.symlink(path.replace("/a/b/link.bin", "/secret.bin"), path), "link.bin"), "E-PATH",
             ['"link.bin"', "through a link"]),
    "H05b": ("an absolute link to the folder itself", made(lambda path: os.symlink(os.path.dirname(path), path), "sub/w.bin"), OK, []),
    "H05": ("a folder that is a link out", made(lambda path: os.symlink("../..", path), "sub/secret.bin"), "E-PATH", ['"sub/secret.bin"', "link"]),
    "H06": ("a hard link to a file outside", made(lambda path: os.link(path.replace("/a/b/hard.bin", "/secret.bin"), path), "hard.bin"), "E-PATH",
            ['"hard.bin"', "hard links", "--allow-hardlinks"]),
    "H07": ("no such file", at("absent.bin"), "E-IO", ['"absent.bin"', "is missing"]),
    "H08": ("an empty location", at(""), "E-PATH", ['""', "without a name"]),
    "H09": ("the folder itself", at("."), "E-PATH", ['"."', "not a regular file"]),
    "H09b": ("a folder in the folder", made(os.mkdir, "sub"), "E-PATH", ['"sub"', "not a regular file"]),
    "H10": ("a FIFO", made(os.mkfifo, "pipe"), "E-PATH", ['"pipe"', "not a regular file"]),
    "H11": ("/dev/zero", at("/dev/zero"), "E-PATH", ['"/dev/zero"']),
    "H12": ("/proc/self/environ", at("/proc/self/environ"), "E-PATH", ['"/proc/self/environ"']),
    "H13": ("an offset past the end", at("w.bin", offset=1000), "E-TENSOR", ['"w.bin"', "1048", "48 bytes"]),
    "H14": ("a length of 2^62", at("w.bin", length=1 << 62), "E-TENSOR", ["length", str(1 << 62), "48 bytes"]),
    "H15": ("an offset of -1", at("w.bin", offset=-1), "E-TENSOR", ["offset", '"-1"']),
    "H16": ("an offset that is no number", at("w.bin", offset="abc"), "E-TENSOR", ["offset", '"abc"']),
    "H17": ("44 bytes of 48", at("w.bin", length=44), "E-TENSOR", ["length 44", "48 bytes"]),
    "H18": ("an offset of 2^63-1", at("w.bin", offset=(1 << 63) - 1), "E-TENSOR", ["offset", str((1 << 63) - 1)]),
    "H19": ("a NUL byte", at("w.bin\0../../secret.bin"), "E-PATH", ["NUL", "w.bin\\x00../../secret.bin"]),
    "H20": ("a URL", at("http://example.com/w.bin"), "E-PATH", ["URL", '"http://example.com/w.bin"']),
    "H21": ("a key that names an attribute of Python", at("w.bin", __class__="evil"), OK, ["__class__"]),
    "H22": ("location twice", lambda folder: [("location", "w.bin"), ("location", "../../secret.bin")], "E-PATH", ["'location' twice", "../../secret.bin"]),
    "H23": ("memory of another process", at("*/_ORT_MEM_ADDR_/*", offset=140000000000000, length=BYTES), "E-PATH", ['"*/_ORT_MEM_ADDR_/*"']),
    "H24": ("no location", lambda folder: [("length", str(BYTES))], "E-TENSOR", ["location"]),
}
# Other ids of rows that are tested at one place.
ALIASES = {"H25": ("H01", "sparse values"), "H26": ("H01", "Constant")}
