"""The Python package with a language model that flattens its scores: labels in the model's shape and by samples, from arrays and files.

Arguments: the header, the library, the folder of the package.
"""
import os
import sys
import tempfile
import unittest

import numpy as np
import onnx
from onnx import helper, numpy_helper

HEADER, LIBRARY, PACKAGE = (os.path.abspath(argument) for argument in sys.argv[1:4])
del sys.argv[1:4]
os.environ.update(GRADLOOM_HEADER=HEADER, GRADLOOM_LIBRARY=LIBRARY)
sys.path.insert(0, PACKAGE)
import gradloom  # noqa: E402

BATCH, WINDOW, TOKENS, ROWS = 4, 6, 5, 10


def text_model(inside):
    """Scores [batch * WINDOW, TOKENS]; `inside`: with the positions of all samples in turn."""
    random = np.random.default_rng(1)
    weights = [numpy_helper.from_array(random.standard_normal(shape).astype("float32"), name) for name, shape in (("e", (TOKENS, 3)), ("w", (3, TOKENS)))]
    order = helper.make_node("Transpose", ["m"], ["t"], perm=[1, 0, 2]) if inside else helper.make_node("Identity", ["m"], ["t"])
    nodes = [helper.make_node("Gather", ["e", "x"], ["g"]), helper.make_node("MatMul", ["g", "w"], ["m"]), order,
             helper.make_node("Reshape", ["t", "flat"], ["out"])]
    graph = helper.make_graph(nodes, "text", [helper.make_tensor_value_info("x", 7, ["batch", WINDOW])],
                              [helper.make_tensor_value_info("out", 1, [None, TOKENS])], [*weights, numpy_helper.from_array(np.array([-1, TOKENS]), "flat")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


class FlattenedTest(unittest.TestCase):
    def setUp(self):
        random = np.random.default_rng(2)
        self.x, self.y = (random.integers(0, TOKENS, (ROWS, WINDOW)) for _ in range(2))

    def session(self, inside):
        plan = gradloom.compile(text_model(inside), loss="cross_entropy(out, y)", optimizer="sgd", lr=0.1, batch=BATCH)
        return plan, gradloom.Session(plan)

    def rows(self, inside, first):
        """Inputs, and labels by samples as the model has them."""
        x, y = self.x[first:first + BATCH], self.y[first:first + BATCH]
        return x, np.ascontiguousarray(y.T) if inside else y

    def test_steps_take_both_shapes(self):
        for inside in (False, True):
            with self.subTest(inside=inside):
                (plan, flat), (_, by_samples) = self.session(inside), self.session(inside)
                self.assertEqual([(info.shape, info.batch_axis) for info in plan.inputs()], [((BATCH, WINDOW), 0), ((BATCH * WINDOW,), 0)])
                for first in (0, 4, 8):  # the last batch has two rows
                    x, y = self.rows(inside, first)
                    self.assertEqual(flat.step(x=x, y=y.reshape(-1)).loss, by_samples.step(x=x, y=y).loss)
                for name in ("e", "w"):
                    np.testing.assert_array_equal(flat.parameters()[name], by_samples.parameters()[name])
                x, y = self.rows(inside, 0)
                with self.assertRaises(gradloom.Error) as refused:
                    flat.step(x=x, y=np.ascontiguousarray(y.T))
                self.assertEqual(refused.exception.code, "E-DATA")
                self.assertIn(f"the plan expects [24] or [{y.shape[0]},{y.shape[1]}]", refused.exception.message)

    def test_data_has_rows(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "rows.npz")
            np.savez(path, x=self.x, y=self.y)
            for inside in (False, True):
                with self.subTest(inside=inside):
                    (plan, stepped), (_, fitted), (_, from_arrays), (_, laid) = (self.session(inside) for _ in range(4))
                    arrays = gradloom.Dataset.from_arrays(x=self.x, y=self.y)
                    data = gradloom.Dataset(path, plan)
                    self.assertEqual(len(data), ROWS)
                    for epoch in range(2):
                        for batch in data.batches(BATCH, epoch=epoch):
                            stepped.step(batch)
                        for batch in arrays.batches(BATCH, epoch=epoch, plan=plan):
                            laid.step(batch)
                    fitted.fit(data, data, epochs=2, batch=BATCH, metrics=["accuracy(out, y)"])
                    from_arrays.fit(arrays, epochs=2, batch=BATCH)
                    for name in ("e", "w"):
                        np.testing.assert_array_equal(fitted.parameters()[name], stepped.parameters()[name])
                        np.testing.assert_array_equal(from_arrays.parameters()[name], stepped.parameters()[name])
                        np.testing.assert_array_equal(laid.parameters()[name], stepped.parameters()[name])


if __name__ == "__main__":
    unittest.main()
