"""Files with 16-bit weights are trained in float32 and written back in 16 bits."""
import os
import subprocess
import sys
import tempfile
import unittest

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

GRADLOOM = os.path.abspath(sys.argv.pop(1))
STEPS, BATCH = 60, 8
TYPES = {"float16": (TensorProto.FLOAT16, np.float16), "bfloat16": (TensorProto.BFLOAT16, ml_dtypes.bfloat16)}


def linear(dtype, weight, shuffled):
    """x, cast to 16 bits, times a 16-bit weight; the result is float32. `shuffled` puts casts after their readers, as converters do."""
    nodes = [
        helper.make_node("Cast", ["x"], ["narrow"], name="in", to=dtype),
        helper.make_node("MatMul", ["narrow", "w"], ["product"], name="fc"),
        helper.make_node("Cast", ["product"], ["y"], name="out", to=TensorProto.FLOAT),
    ]
    if shuffled:
        nodes = [nodes[1], nodes[2], nodes[0]]
    typed = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["N", k]) for n, k in (("x", 4), ("y", 2))]
    graph = helper.make_graph(nodes, "half", typed[:1], typed[1:], [numpy_helper.from_array(weight, "w")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


class HalfTest(unittest.TestCase):
    def run_gradloom(self, folder, *words):
        done = subprocess.run([GRADLOOM, *words], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def test_steps_that_16_bits_would_lose(self):
        random = np.random.default_rng(4)
        x = random.integers(-4, 5, (BATCH, 4)).astype("float32") / 4  # exact in both types
        target = np.full((BATCH, 2), 3.0, "float32")
        for name, (dtype, narrow) in TYPES.items():
            with self.subTest(name), tempfile.TemporaryDirectory() as folder:
                weight, eps = np.ones((4, 2)).astype(narrow), float(ml_dtypes.finfo(narrow).eps)
                rate = eps / 10
                onnx.save(linear(dtype, weight, shuffled=True), f"{folder}/model.onnx")
                np.savez(f"{folder}/data.npz", x=x, target=target)
                done = self.run_gradloom(folder, "train", "model.onnx", "--data", "data.npz", "--loss", "mse(y, target)", "--optimizer", "sgd", "--lr", str(rate), "--batch", str(BATCH),
                                         "--epochs", str(STEPS), "--name", "half", "--progress", "plain")  # fmt: skip
                self.assertIn("1 parameter is stored in 16 bits in the file", done.stdout + done.stderr)
                self.run_gradloom(folder, "export", "runs/half", "-o", "trained.onnx")
                exported = onnx.load(f"{folder}/trained.onnx")
                onnx.checker.check_model(exported, full_check=True)  # also requires sorted nodes
                (tensor,) = exported.graph.initializer
                self.assertEqual(tensor.data_type, dtype)
                # In float64, except that the product's weights and result, and its gradient, are rounded to 16 bits.
                kept = weight.astype("float64")
                for _ in range(STEPS):
                    y = (x @ kept.astype("float32").astype(narrow).astype("float64")).astype(narrow).astype("float64")
                    gradient = (2 * (y - target) / y.size).astype("float32").astype(narrow).astype("float64")
                    kept -= rate * (x.T @ gradient).astype(narrow).astype("float64")
                got = numpy_helper.to_array(tensor).astype("float64")
                step = np.abs(rate * x.T @ (2 * (x @ weight.astype("float64") - target) / target.size)).max()
                self.assertLess(step, eps / 4, "one step alone is lost")
                self.assertGreater(np.abs(kept - 1).max(), 2 * eps, "all together are not")
                np.testing.assert_allclose(got, kept, rtol=0, atol=eps)


if __name__ == "__main__":
    unittest.main()
