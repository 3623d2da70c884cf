"""Forms of operators that are valid, but that onnx's shape inference refuses or takes for others: results and gradients are onnxruntime's."""
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

GRADLOOM = os.path.abspath(sys.argv.pop(1))


def run(words, code=0):
    done = subprocess.run([GRADLOOM, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60)
    if done.returncode != code:
        raise AssertionError(f"{words}: exit {done.returncode}, not {code}\n{done.stderr}")
    return done


def compute(model, feeds):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # its shape inference is onnx's
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"]).run(None, feeds)


class OperatorFormsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, folder)
        os.chdir(folder)
        cls.addClassCleanup(os.chdir, "/")

    def setUp(self):
        self.rng = np.random.default_rng(5)

    def model(self, nodes, tensors, opset):
        """`nodes` make y of x and the tensors; the loss weighs its elements differently."""
        shape = compute(helper.make_model(helper.make_graph(nodes, "g", [self.x], [onnx.ValueInfoProto(name="y")], tensors),
                                          opset_imports=[helper.make_opsetid("", opset)], ir_version=8), self.feeds)[0].shape
        weights = numpy_helper.from_array(self.rng.standard_normal(shape).astype("float32"), "weights")
        loss = [helper.make_node("Mul", ["y", "weights"], ["weighed"]), helper.make_node("ReduceSum", ["weighed"], ["loss"], keepdims=0)]
        values = {"y": helper.make_tensor_value_info("y", TensorProto.FLOAT, shape), "loss": helper.make_tensor_value_info("loss", TensorProto.FLOAT, [])}
        graph = helper.make_graph([*nodes, *loss], "g", [self.x], list(values.values()), [*tensors, weights])
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)

    def compare(self, name, nodes, tensors, opset=17):
        """The outputs, and a step of gradient descent with the rate 1 on w, in which the loss is linear."""
        model = self.model(nodes, tensors, opset)
        onnx.save(model, "model.onnx")
        np.savez("data.npz", **self.feeds)
        want = compute(model, self.feeds)
        shutil.rmtree("runs", ignore_errors=True)
        run(["train", "model.onnx", "--data", "data.npz", "--loss", "output(loss)", "--optimizer", "sgd", "--lr", "1", "--batch", str(self.feeds["x"].shape[0]), "--steps", "1",
             "--trainable", "w", "--freeze", "weights", "--progress", "none", "--name", "step"])
        run(["export", "runs/step", "-o", "trained.onnx"])
        before, after = ({i.name: numpy_helper.to_array(i) for i in m.graph.initializer}["w"] for m in (model, onnx.load("trained.onnx")))
        gradient = np.zeros_like(before)
        for at in np.ndindex(before.shape):
            moved = onnx.ModelProto.FromString(model.SerializeToString())
            tensor = next(i for i in moved.graph.initializer if i.name == "w")
            value = before.copy()
            value[at] += 1
            tensor.CopyFrom(numpy_helper.from_array(value, "w"))
            gradient[at] = compute(moved, self.feeds)[1] - want[1]
        np.testing.assert_allclose(before - after, gradient, atol=2e-4, err_msg=name)
        run(["predict", "runs/step", "--data", "data.npz", "-o", "predicted.npz"])
        again = compute(onnx.load("trained.onnx"), self.feeds)
        np.testing.assert_allclose(np.load("predicted.npz")["y"].reshape(again[0].shape), again[0], atol=1e-4, err_msg=name)

    def given(self, *shape):
        self.x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
        self.feeds = {"x": self.rng.standard_normal(shape).astype("float32")}

    def tensor(self, name, *shape):
        return numpy_helper.from_array(self.rng.standard_normal(shape).astype("float32"), name)

    def test_transposed_convolutions(self):
        for name, extents, kernel, attributes in (
                ("same upper", (4, 4), (3, 3), {"auto_pad": "SAME_UPPER", "strides": [3, 3], "output_padding": [2, 2]}),
                ("same lower", (4, 5), (3, 3), {"auto_pad": "SAME_LOWER", "strides": [2, 2], "output_padding": [1, 1]}),
                ("smaller than the input", (6, 5), (3, 2), {"output_shape": [3, 4]}),
                ("smaller along one axis", (6, 3), (3, 3), {"output_shape": [4, 6], "strides": [1, 2]}),
                ("output shape", (4, 4), (3, 3), {"output_shape": [8, 9], "strides": [2, 2]})):
            self.given(2, 2, *extents)
            self.compare(name, [helper.make_node("ConvTranspose", ["x", "w"], ["y"], **attributes)], [self.tensor("w", 2, 1, *kernel)])

    def test_elements_by_their_positions(self):
        self.given(3, 2)
        one = numpy_helper.from_array(np.array([1, 2]), "one")
        gather = [helper.make_node("GatherND", ["w", "one"], ["element"]), helper.make_node("Mul", ["x", "element"], ["y"])]
        self.compare("GatherND of one element", gather, [self.tensor("w", 2, 3), one])
        for reduction in ("none", "add"):
            scatter = [helper.make_node("ScatterND", ["table", "one", "w"], ["written"], reduction=reduction), helper.make_node("MatMul", ["x", "written"], ["y"])]
            self.compare(f"ScatterND of one element, {reduction}", scatter, [self.tensor("w"), self.tensor("table", 2, 3), one], opset=18)

    def test_axes_of_a_pad(self):
        self.given(2, 3)
        pads, axes = numpy_helper.from_array(np.array([1, 2]), "pads"), numpy_helper.from_array(np.array([1], "int32"), "axes")
        nodes = [helper.make_node("Pad", ["x", "pads", "", "axes"], ["padded"]), helper.make_node("MatMul", ["padded", "w"], ["y"])]
        try:
            self.compare("Pad", nodes, [self.tensor("w", 6, 2), pads, axes], opset=19)
        except onnxruntime.capi.onnxruntime_pybind11_state.Fail as error:  # its copy of the inference may refuse it
            self.assertIn("ParseData", str(error))
            onnx.save(helper.make_model(helper.make_graph(nodes, "g", [self.x], [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 2])],
                                                          [self.tensor("w", 6, 2), pads, axes]), opset_imports=[helper.make_opsetid("", 19)], ir_version=8), "pad.onnx")
            run(["check", "pad.onnx", "--loss", "mse"])

    def test_outputs_that_depend_on_weights_alone(self):
        self.given(4, 2)
        self.x = [self.x]
        graph = helper.make_graph([helper.make_node("ReduceSum", ["w"], ["size"], keepdims=0), helper.make_node("MatMul", ["x", "w"], ["h"]),
                                   helper.make_node("ReduceSum", ["h"], ["loss"], keepdims=0)], "g", self.x,
                                  [helper.make_tensor_value_info(name, TensorProto.FLOAT, []) for name in ("size", "loss")], [self.tensor("w", 2, 3)])
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), "model.onnx")
        np.savez("data.npz", **self.feeds)
        run(["train", "model.onnx", "--data", "data.npz", "--loss", "output(loss)", "--steps", "1", "--progress", "none", "--name", "alone"])
        self.assertIn("no output of the model depends on the data", run(["predict", "runs/alone", "--data", "data.npz", "-o", "p.npz"], 4).stderr)


if __name__ == "__main__":
    unittest.main()
