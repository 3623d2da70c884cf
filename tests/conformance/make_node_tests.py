"""make_node_tests.py OUT.tar: writes ONNX's backend node tests, as the `onnx` package generates them, in ONNX's own layout:
NAME/model.onnx, NAME/test_data_set_0/input_0.pb, output_0.pb and so on."""

import io
import sys
import tarfile

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test import loader


def message(value, info):
    """The protobuf message of an operand, in the form that its declared type requires."""
    if isinstance(value, (onnx.TensorProto, onnx.SequenceProto, onnx.OptionalProto)):
        return value
    kind = info.type.WhichOneof("value")
    if kind == "sequence_type":
        return numpy_helper.from_list(value, info.name)
    if kind == "optional_type":
        return numpy_helper.from_optional(value, info.name)
    return numpy_helper.from_array(np.asarray(value), info.name)


def add(archive, path, data):
    info = tarfile.TarInfo(path)
    info.size = len(data)
    archive.addfile(info, io.BytesIO(data))


def main():
    with tarfile.open(sys.argv[1], "w") as archive:
        for case in loader.load_model_tests(kind="node"):
            add(archive, f"{case.name}/model.onnx", case.model.SerializeToString())
            for i, (inputs, outputs) in enumerate(case.data_sets):
                graph = case.model.graph
                for what, values, infos in (("input", inputs, graph.input), ("output", outputs, graph.output)):
                    for j, (value, info) in enumerate(zip(values, infos)):
                        path = f"{case.name}/test_data_set_{i}/{what}_{j}.pb"
                        add(archive, path, message(value, info).SerializeToString())


main()
