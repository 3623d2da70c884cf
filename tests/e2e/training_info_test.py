"""ONNX's training standard on the command line: files with training_info train by their own algorithm, compared with numpy; and ONNX's
tests of Gradient."""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.backend.test import loader

GRADLOOM, NODE_TESTS = (os.path.abspath(sys.argv.pop(1)) for _ in range(2))
TRAINING = "ai.onnx.preview.training"
ROWS, BATCH, EPOCHS = 24, 8, 4


def graph(name, nodes, inputs, outputs, initializers):
    info = lambda items: [helper.make_tensor_value_info(n, t, s) for n, t, s in items]
    return helper.make_graph(nodes, name, info(inputs), info(outputs), [numpy_helper.from_array(v, n) for n, v in initializers.items()])


def bind(pairs, field):
    for key, value in pairs.items():
        field.add(key=key, value=value)


class Optimizers:
    """The update of one tensor, as ONNX's documentation specifies its optimizers."""

    @staticmethod
    def momentum(r, t, x, g, state, nesterov=False, alpha=0.9, beta=0.8, norm=0.01):
        g = norm * x + g
        v = alpha * state[0] + (beta if t > 0 else 1.0) * g
        return x - r * (g + alpha * v if nesterov else v), [v]

    @staticmethod
    def adagrad(r, t, x, g, state, epsilon=1e-6, decay=0.1, norm=0.01):
        g = norm * x + g
        h = state[0] + g * g
        return x - r / (1 + t * decay) * g / (np.sqrt(h) + epsilon), [h]

    @staticmethod
    def adam(r, t, x, g, state, alpha=0.9, beta=0.99, epsilon=1e-6, norm=0.01):
        g = norm * x + g
        v, h = alpha * state[0] + (1 - alpha) * g, beta * state[1] + (1 - beta) * g * g
        step = r * np.sqrt(1 - beta**t) / (1 - alpha**t) if t > 0 else r
        return x - step * v / (np.sqrt(h) + epsilon), [v, h]


OPTIMIZERS = {
    "momentum": (Optimizers.momentum, 1, "Momentum", dict(alpha=0.9, beta=0.8, norm_coefficient=0.01, mode="standard")),
    "nesterov": (lambda *a: Optimizers.momentum(*a, nesterov=True), 1, "Momentum",
                 dict(alpha=0.9, beta=0.8, norm_coefficient=0.01, mode="nesterov")),
    "adagrad": (Optimizers.adagrad, 1, "Adagrad", dict(epsilon=1e-6, decay_factor=0.1, norm_coefficient=0.01)),
    "adam": (Optimizers.adam, 2, "Adam", dict(alpha=0.9, beta=0.99, epsilon=1e-6, norm_coefficient=0.01)),
}


def training_model(states, op, attributes, initialization=False):
    """A linear model whose algorithm is the mean squared error and one optimizer node for both weights."""
    rng = np.random.default_rng(3)
    start = {"w": rng.standard_normal((4, 2)).astype(np.float32), "b": np.float32([0.5, -0.5])}
    inference = graph("linear", [helper.make_node("Gemm", ["x", "w", "b"], ["y"], name="layer")],
                      [("x", TensorProto.FLOAT, ["N", 4])], [("y", TensorProto.FLOAT, ["N", 2])], start)
    moments = [f"{s}_{p}" for s in "vh"[:states] for p in "wb"]
    names = ["w", "b", *moments]
    nodes = [
        helper.make_node("Sub", ["y", "t"], ["difference"]),
        helper.make_node("Mul", ["difference", "difference"], ["square"]),
        helper.make_node("ReduceMean", ["square"], ["loss"], keepdims=0),
        helper.make_node("Gradient", ["w", "b", "x", "t"], ["dw", "db"], domain=TRAINING, xs=["w", "b"], zs=["x", "t"], y="loss"),
        helper.make_node(op, ["rate", "count", "w", "b", "dw", "db", *moments], [f"{n}_new" for n in names], domain=TRAINING, **attributes),
        helper.make_node("Add", ["count", "one"], ["count_new"]),
    ]
    first = {"rate": np.float32(0.05), "count": np.int64(0), "one": np.int64(1)}
    first.update({m: np.zeros_like(start[m[2:]]) for m in moments})
    algorithm = graph("sgd", nodes, [("t", TensorProto.FLOAT, ["N", 2])],
                      [("loss", TensorProto.FLOAT, []), ("count_new", TensorProto.INT64, [])]
                      + [(f"{n}_new", TensorProto.FLOAT, list(start[n[-1]].shape)) for n in names], first)
    model = helper.make_model(inference, opset_imports=[helper.make_opsetid("", 20), helper.make_opsetid(TRAINING, 1)], ir_version=9)
    info = model.training_info.add()
    info.algorithm.CopyFrom(algorithm)
    bind({n: f"{n}_new" for n in [*names, "count"]}, info.update_binding)
    if initialization:
        shape = numpy_helper.from_array(np.int64([4, 2]))
        info.initialization.CopyFrom(graph("start", [
            helper.make_node("RandomNormal", [], ["w_start"], shape=[4, 2], mean=5.0, scale=0.1),
            helper.make_node("ConstantOfShape", ["two"], ["b_start"], value=numpy_helper.from_array(np.float32([7])))],
            [], [("w_start", TensorProto.FLOAT, [4, 2]), ("b_start", TensorProto.FLOAT, [2])], {"two": np.int64([2])}))
        del shape
        bind({"w": "w_start", "b": "b_start"}, info.initialization_binding)
    return model, start


class TrainingInfoTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        rng = np.random.default_rng(11)
        self.x = rng.standard_normal((ROWS, 4)).astype(np.float32)
        self.t = rng.standard_normal((ROWS, 2)).astype(np.float32)
        np.savez(self.path("data.npz"), x=self.x, t=self.t)

    def path(self, name):
        return os.path.join(self.folder, name)

    def run_command(self, *words, code=0):
        done = subprocess.run([GRADLOOM, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120, cwd=self.folder)
        self.assertEqual(done.returncode, code, f"{words}\n{done.stdout}{done.stderr}")
        return done

    def train(self, *words):
        epochs = [] if "--epochs" in words else ["--epochs", str(EPOCHS)]
        self.run_command("train", "model.onnx", "--data", "data.npz", "--batch", str(ROWS), "--threads", "1", "--progress", "none", *epochs,
                         *words)

    def exported(self, run):
        self.run_command("export", f"runs/{run}", "-o", f"{run}.onnx")
        return onnx.load(self.path(f"{run}.onnx"))

    def test_algorithms_train_as_they_are_written(self):
        for name, (update, states, op, attributes) in OPTIMIZERS.items():
            with self.subTest(name):
                model, start = training_model(states, op, attributes)
                onnx.save(model, self.path("model.onnx"))
                self.train("--name", name)
                weights = {n: v.astype(np.float64) for n, v in start.items()}
                kept = {n: [np.zeros_like(v) for _ in range(states)] for n, v in weights.items()}
                for t in range(EPOCHS):
                    difference = self.x @ weights["w"] + weights["b"] - self.t
                    gradients = {"w": self.x.T @ difference * 2 / difference.size, "b": difference.sum(0) * 2 / difference.size}
                    for n in weights:
                        weights[n], kept[n] = update(0.05, t, weights[n], gradients[n], kept[n])
                trained = self.exported(name)
                tensors = {i.name: numpy_helper.to_array(i) for i in trained.graph.initializer}
                for n in weights:
                    np.testing.assert_allclose(tensors[n], weights[n], rtol=2e-5, atol=2e-6, err_msg=f"{name} {n}")
                # The exported file continues where the run ended: it contains the algorithm and its state.
                inside = {i.name: numpy_helper.to_array(i) for i in trained.training_info[0].algorithm.initializer}
                self.assertEqual(inside["count"], EPOCHS)
                for n in weights:
                    np.testing.assert_allclose(inside[f"v_{n}"], kept[n][0], rtol=1e-4, atol=1e-6, err_msg=f"{name} v_{n}")

    def test_training_continues_from_an_export(self):
        update, states, op, attributes = OPTIMIZERS["adam"]
        onnx.save(training_model(states, op, attributes)[0], self.path("model.onnx"))
        self.train("--name", "half")
        self.train("--name", "whole", "--epochs", str(2 * EPOCHS))
        onnx.save(self.exported("half"), self.path("model.onnx"))
        self.train("--name", "rest")
        whole, rest = ({i.name: numpy_helper.to_array(i) for i in self.exported(r).graph.initializer} for r in ("whole", "rest"))
        for n in whole:
            np.testing.assert_allclose(rest[n], whole[n], rtol=1e-6, atol=1e-7)

    def test_initialization(self):
        _, states, op, attributes = OPTIMIZERS["momentum"]
        onnx.save(training_model(states, op, attributes, initialization=True)[0], self.path("model.onnx"))
        self.train("--name", "drawn", "--epochs", "1", "--steps", "1")
        tensors = {i.name: numpy_helper.to_array(i) for i in self.exported("drawn").graph.initializer}
        self.assertTrue(np.all(np.abs(tensors["w"] - 5) < 2) and np.std(tensors["w"]) > 0, tensors["w"])
        self.assertTrue(np.all(np.abs(tensors["b"] - 7) < 2), tensors["b"])

    def test_the_algorithm_can_be_ignored(self):
        _, states, op, attributes = OPTIMIZERS["momentum"]
        onnx.save(training_model(states, op, attributes)[0], self.path("model.onnx"))
        self.assertIn("algorithm", self.run_command("check", "model.onnx").stdout)
        self.train("--name", "ours", "--loss", "mse(y, t)", "--optimizer", "sgd", "--lr", "0.05")
        for words, code, part in [(["--loss", "algorithm", "--lr", "0.1"], 4, "--lr cannot be combined with the file's own training algorithm"),
                                  (["--loss", "algorithm", "--accumulate", "2"], 4, "--accumulate cannot be combined"),
                                  (["--loss", "algorithm(training_info=3)"], 4, "no algorithm 3"),
                                  (["--loss", "algorithm", "--loss", "mse(y, t)"], 4, "cannot be combined with another")]:
            with self.subTest(words):
                done = self.run_command("train", "model.onnx", "--data", "data.npz", "--name", "refused", "--progress", "none", *words, code=code)
                self.assertIn(part, done.stderr)

    def test_states_become_old_values_of_others(self):
        rng = np.random.default_rng(5)
        start = {n: rng.standard_normal((4, 2)).astype(np.float32) for n in ("w", "previous", "left", "right")}
        inference = graph("linear", [helper.make_node("MatMul", ["x", "w"], ["y"])], [("x", TensorProto.FLOAT, ["N", 4])],
                          [("y", TensorProto.FLOAT, ["N", 2])], {"w": start["w"]})
        nodes = [
            helper.make_node("Sub", ["y", "t"], ["difference"]),
            helper.make_node("Mul", ["difference", "difference"], ["square"]),
            helper.make_node("ReduceMean", ["square"], ["loss"], keepdims=0),
            helper.make_node("Gradient", ["w", "x", "t"], ["dw"], domain=TRAINING, xs=["w"], zs=["x", "t"], y="loss"),
            helper.make_node("Mul", ["dw", "rate"], ["step"]),
            helper.make_node("Sub", ["w", "step"], ["w_new"]),
            helper.make_node("Identity", ["w"], ["previous_new"]),
            helper.make_node("Identity", ["right"], ["left_new"]),
            helper.make_node("Identity", ["left"], ["right_new"]),
        ]
        algorithm = graph("sgd", nodes, [("t", TensorProto.FLOAT, ["N", 2])], [(f"{n}_new", TensorProto.FLOAT, [4, 2]) for n in start],
                          {"rate": np.float32(0.05), **{n: v for n, v in start.items() if n != "w"}})
        weights = [start["w"].astype(np.float64)]
        for _ in range(3):
            difference = self.x @ weights[-1] - self.t
            weights.append(weights[-1] - 0.05 * (self.x.T @ difference * 2 / difference.size))
        wanted = {"w": weights[3], "previous": weights[2], "left": start["right"], "right": start["left"]}
        for names in (list(start), list(reversed(start))):
            for streams in "1", "2":
                with self.subTest(names=names, streams=streams):
                    model = helper.make_model(inference, opset_imports=[helper.make_opsetid("", 20), helper.make_opsetid(TRAINING, 1)], ir_version=9)
                    info = model.training_info.add()
                    info.algorithm.CopyFrom(algorithm)
                    bind({n: f"{n}_new" for n in names}, info.update_binding)
                    onnx.save(model, self.path("model.onnx"))
                    run = f"{names[0]}{streams}"
                    self.train("--name", run, "--epochs", "3", "--streams", streams)
                    trained = self.exported(run)
                    tensors = {i.name: numpy_helper.to_array(i) for i in [*trained.graph.initializer,
                                                                          *trained.training_info[0].algorithm.initializer]}
                    for n, value in wanted.items():
                        np.testing.assert_allclose(tensors[n], value, rtol=2e-5, atol=2e-6, err_msg=n)

    def test_evaluation_and_prediction(self):
        _, states, op, attributes = OPTIMIZERS["adam"]
        onnx.save(training_model(states, op, attributes)[0], self.path("model.onnx"))
        self.train("--name", "judged", "--eval-split", "25%", "--metric", "mse(y, t)")
        result = json.loads(self.run_command("eval", "runs/judged", "--data", "data.npz", "--json").stdout)
        trained = {i.name: numpy_helper.to_array(i) for i in self.exported("judged").graph.initializer}
        wanted = np.mean((self.x @ trained["w"] + trained["b"] - self.t) ** 2)
        self.assertAlmostEqual(result["loss"], wanted, delta=1e-4 * wanted)

    def run_node_tests(self, cases):
        """Runs node tests of the form (name, model, inputs, outputs), written in ONNX's layout."""
        for name, model, inputs, outputs in cases:
            folder = os.path.join(self.folder, "tests", name)
            os.makedirs(os.path.join(folder, "test_data_set_0"))
            onnx.save(model, os.path.join(folder, "model.onnx"))
            for what, values, infos in (("input", inputs, model.graph.input), ("output", outputs, model.graph.output)):
                for i, (value, info) in enumerate(zip(values, infos)):
                    with open(os.path.join(folder, "test_data_set_0", f"{what}_{i}.pb"), "wb") as file:
                        file.write(numpy_helper.from_array(np.asarray(value), info.name).SerializeToString())
        self.expect_passed(len(cases))

    def expect_passed(self, count):
        done = subprocess.run([NODE_TESTS, os.path.join(self.folder, "tests")], stdout=subprocess.PIPE, text=True, timeout=120)
        self.assertEqual(done.stdout.strip().splitlines()[-1], f"{count} passed, 0 failed, 0 skipped", done.stdout)

    def test_gradient_passes_onnx_tests(self):
        cases = [c for c in loader.load_model_tests(kind="simple") if "gradient" in c.name]
        self.assertGreaterEqual(len(cases), 2)
        for case in cases:
            shutil.copytree(case.model_dir, os.path.join(self.folder, "tests", case.name))
        self.expect_passed(len(cases))

    def test_gradients_of_gradients_and_elsewhere(self):
        derive = lambda inputs, output, y, **xs: helper.make_node("Gradient", inputs, [output], domain=TRAINING, y=y, **xs)
        nodes = [
            helper.make_node("Tanh", ["x"], ["h"]), helper.make_node("Mul", ["h", "x"], ["p"]), helper.make_node("Mul", ["p", "c"], ["y"]),
            derive(["x"], "d1", "y", xs=["x"]), derive(["x"], "d2", "d1", xs=["x"]),
            # The gradient at x = c, with the inputs swapped, and with respect to an intermediate value that is treated as independent of x.
            derive(["c", "x"], "swapped", "y", xs=["x"], zs=["c"]), derive(["h", "x"], "inner", "y", xs=["h"], zs=["x"]),
        ]
        vector = lambda names: [(n, TensorProto.FLOAT, [3]) for n in names]
        model = helper.make_model(graph("derived", nodes, vector("xc"), vector(["y", "d1", "d2", "swapped", "inner"]), {}),
                                  opset_imports=[helper.make_opsetid("", 20), helper.make_opsetid(TRAINING, 1)], ir_version=9)
        x, c = np.float32([0.5, -1, 2]), np.float32([2, 3, -0.25])
        tanh, slope = np.tanh, lambda v: 1 - np.tanh(v) ** 2
        first = lambda v, k: k * (tanh(v) + v * slope(v))
        second = lambda v, k: k * (2 * slope(v) - 2 * v * tanh(v) * slope(v))
        outputs = [tanh(x) * x * c, first(x, c), second(x, c), first(c, x), x * c]
        self.run_node_tests([("test_derived", model, [x, c], [o.astype(np.float32) for o in outputs])])

    def test_gradient_through_a_branch(self):
        # Compilation changes the bodies of the If and of its copy for the gradient apart.
        def branch(name, factor):
            nodes = [helper.make_node("Constant", [], [f"{name}_k"], value=numpy_helper.from_array(np.float32([factor]))),
                     helper.make_node("Mul", ["h", f"{name}_k"], [f"{name}_scaled"]),
                     helper.make_node("Sin", [f"{name}_scaled"], [f"{name}_y"])]
            return helper.make_graph(nodes, name, [], [helper.make_tensor_value_info(f"{name}_y", TensorProto.FLOAT, [3])])
        nodes = [
            helper.make_node("Mul", ["x", "x"], ["h"]), helper.make_node("ReduceSum", ["c"], ["sum"], keepdims=0),
            helper.make_node("Greater", ["sum", "zero"], ["positive"]),
            helper.make_node("If", ["positive"], ["y"], then_branch=branch("then", 2), else_branch=branch("else", 3)),
            helper.make_node("Gradient", ["x"], ["d"], domain=TRAINING, xs=["x"], y="y"),
        ]
        vector = lambda names: [(n, TensorProto.FLOAT, [3]) for n in names]
        model = helper.make_model(graph("branches", nodes, vector("xc"), vector("yd"), {"zero": np.float32(0)}),
                                  opset_imports=[helper.make_opsetid("", 20), helper.make_opsetid(TRAINING, 1)], ir_version=9)
        x = np.float32([0.5, -1, 2])
        cases = []
        for name, sign, k in ("test_then", 1, 2), ("test_else", -1, 3):
            outputs = [np.sin(k * x * x), 2 * k * x * np.cos(k * x * x)]
            cases.append((name, model, [x, np.float32([sign, sign, sign])], [o.astype(np.float32) for o in outputs]))
        self.run_node_tests(cases)


if __name__ == "__main__":
    unittest.main()
