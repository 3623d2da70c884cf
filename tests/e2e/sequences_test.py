"""Models of sequences. Those whose inputs and outputs have the samples along their second axis, as PyTorch's recurrent layers do, are trained,
evaluated and used with the same rows as the same model with the samples first, with the same results, whether or not a batch has as many samples
as steps. The data tells the length of sequences, and the axis of the classes if the loss was given another one."""
import csv
import json
import os
import random
import subprocess
import sys
import unittest

import numpy as np
import onnx
from onnx import helper, numpy_helper

GRADLOOM = os.path.abspath(sys.argv.pop(1))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import sample_files  # noqa: E402

SEED = int(os.environ.get("GRADLOOM_SEED", random.SystemRandom().randrange(1 << 31)))
STEPS, WIDTH, CLASSES, ROWS = 4, 3, 5, 22


def save(path, rng, samples_first, steps=STEPS):
    """Scores of each step, of the classes and of one binary label, from the step and the mean over the steps."""
    weights = [numpy_helper.from_array(rng.standard_normal(shape).astype("float32"), name)
               for name, shape in (("w1", (WIDTH, 8)), ("w2", (8, CLASSES)), ("w3", (8, 2)))]
    def end(a, b):
        return helper.make_node("Transpose", [a], [b], perm=[1, 0, 2]) if samples_first else helper.make_node("Identity", [a], [b])

    nodes = [end("x", "t"), helper.make_node("MatMul", ["t", "w1"], ["h"]), helper.make_node("ReduceMean", ["h"], ["m"], axes=[0], keepdims=1),
             helper.make_node("CumSum", ["h", "zero"], ["c"]), helper.make_node("Add", ["c", "m"], ["s"]), helper.make_node("Tanh", ["s"], ["a"]),
             helper.make_node("MatMul", ["a", "w2"], ["y"]), helper.make_node("MatMul", ["a", "w3"], ["z"]), end("y", "scores"), end("z", "flags")]
    front = ["batch", steps] if samples_first else [steps, "batch"]
    graph = helper.make_graph(nodes, "steps", [helper.make_tensor_value_info("x", 1, [*front, WIDTH])],
                              [helper.make_tensor_value_info("scores", 1, [*front, CLASSES]), helper.make_tensor_value_info("flags", 1, [*front, 2])],
                              [*weights, numpy_helper.from_array(np.int64(0), "zero")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


class SequencesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = sample_files.in_folder_of(cls)
        print("seed", SEED)
        for path, samples_first, steps in (("first.onnx", True, STEPS), ("second.onnx", False, STEPS), ("open.onnx", True, "T"), ("open2.onnx", False, "T")):
            save(path, np.random.default_rng(SEED), samples_first, steps)
        rng = np.random.default_rng(SEED + 1)
        x = rng.standard_normal((ROWS, STEPS, WIDTH)).astype("float32")
        np.savez("rows.npz", x=x, label=rng.integers(0, CLASSES, (ROWS, STEPS)), flag=(x[:, :, :2].cumsum(1) > 0).astype("float32"))

    def run_command(self, *words, code=0):
        done = subprocess.run([GRADLOOM, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60)
        self.assertEqual(done.returncode, code, f"{words}\n{done.stderr}")
        return done

    def train(self, model, name, *words):
        self.run_command("train", model + ".onnx", "--loss", "cross_entropy(scores, label, class_axis=2)",
                         "--loss", "bce_with_logits(flags, flag)", "--metric", "accuracy(scores, label)", "--metric", "f1(flags, flag)",
                         "--metric", "auroc(flags, flag)", "--epochs", "2", "--lr", "0.01", "--progress", "none", "--name", name, *words)
        with open(f"runs/{name}/results.csv") as file:
            return list(csv.DictReader(file))

    def assert_same(self, first, second):
        """Of the numbers that do not depend on the clock."""
        names = [name for name in first if name.split("/")[0] in ("eval", "loss", "train", "accuracy", "f1", "auroc")]
        self.assertTrue(names)
        for name in names:
            np.testing.assert_allclose(float(second[name] or 0), float(first[name] or 0), rtol=2e-4, atol=1e-5, err_msg=name)

    def test_rows_are_samples(self):
        for batch, devices in ((4, "cpu"), (5, "cpu"), (8, "cpu"), (4, "cpu:2"), (5, "cpu:2")):
            with self.subTest(batch=batch, devices=devices):
                words = ["--data", "rows.npz", "--eval-split", "30%", "--batch", str(batch), "--devices", devices]
                names = [f"{model}-{batch}-{devices[3:].strip(':')}" for model in ("first", "second")]
                results = [self.train(model, name, *words) for model, name in zip(("first", "second"), names)]
                for first, second in zip(*results):
                    self.assert_same(first, second)
                self.assert_same(*[json.loads(self.run_command("eval", "runs/" + name, "--data", "rows.npz", "--json").stdout) for name in names])
                outputs = []
                for name in names:
                    self.run_command("predict", "runs/" + name, "--data", "rows.npz", "-o", name + ".npz")
                    self.run_command("predict", "runs/" + name, "--data", "rows.npz", "--classes", "-o", name + "-classes.npz")
                    with np.load(name + ".npz") as numbers, np.load(name + "-classes.npz") as classes:
                        outputs.append((numbers["scores"], numbers["flags"], classes["label"]))
                self.assertEqual(outputs[1][0].shape, (ROWS, STEPS, CLASSES))
                np.testing.assert_allclose(outputs[1][0], outputs[0][0], rtol=1e-3, atol=1e-4)
                np.testing.assert_allclose(outputs[1][1], outputs[0][1], rtol=1e-3, atol=1e-4)
                self.assertEqual(outputs[1][2].shape, (ROWS, STEPS))
                np.testing.assert_array_equal(outputs[1][2], outputs[1][0].argmax(2))

    def test_random_data_and_other_shapes(self):
        self.train("second", "random", "--data", "random:9", "--eval-split", "30%", "--batch", "4")
        with np.load("rows.npz") as rows:
            np.savez("wrong.npz", x=rows["x"][:, :3], label=rows["label"], flag=rows["flag"])
        said = self.run_command("train", "second.onnx", "--loss", "cross_entropy(scores, label, class_axis=2)", "--data", "wrong.npz", "--batch", "4",
                                code=2).stderr
        self.assertIn("rows of shape [3,3], but the model expects [4,3]", said)

    def test_data_tells_the_length(self):
        loss = ["--loss", "cross_entropy(scores, label, class_axis=2)", "--epochs", "1", "--progress", "none", "--batch", "5"]
        with np.load("rows.npz") as rows:
            np.savez_compressed("short.npz", x=rows["x"][:7, :3], label=rows["label"][:7, :3])
        for model in ("open", "open2"):
            with self.subTest(model=model):
                said = self.run_command("train", model + ".onnx", *loss, "--data", "rows.npz", "--name", model).stderr
                self.assertIn("shape   T=4   [of the data", said)
                self.run_command("train", model + ".onnx", *loss, "--data", "short.npz", "--name", model + "-short")
                for data, steps in (("rows.npz", 4), ("short.npz", 3)):
                    self.run_command("eval", "runs/" + model, "--data", data)
                    self.run_command("predict", "runs/" + model, "--data", data, "-o", "p.npz")
                    with np.load("p.npz") as made, np.load(data) as given:
                        self.assertEqual(made["scores"].shape, (len(given["x"]), steps, CLASSES))
                # The run knows the extent.
                self.run_command("resume", "runs/" + model, "--epochs", "2")
                self.assertIn("shape   T=4", self.run_command("check", model + ".onnx", *loss[:2], "--data", "rows.npz").stdout)
                self.run_command("init", "--model", model + ".onnx", *loss[:2], "--data", "rows.npz", "-o", model + ".toml")
                with open(model + ".toml") as file:
                    self.assertRegex(file.read(), r"\nshape = \{ ?T = 4 ?\}")
        said = self.run_command("predict", "runs/open", "--data", "short.npz", "--shape", "T=4", "-o", "p.npz", code=2).stderr
        self.assertIn("rows of shape [3,3], but the model expects [4,3]", said)
        # Only the arrays that feed the model's inputs matter, under the names that --map gives them, and predictions need no labels.
        with np.load("rows.npz") as rows:
            np.savez("named.npz", steps=rows["x"], label=rows["label"], y=rows["label"], words=np.array(["a"] * ROWS))
            np.savez_compressed("unlabelled.npz", steps=rows["x"][:, :3])
        said = self.run_command("train", "open.onnx", *loss, "--data", "named.npz", "--map", "x=steps", "--map", "label=y", "--name", "named").stderr
        self.assertIn("shape   T=4   [of the data", said)
        self.run_command("predict", "runs/named", "--data", "unlabelled.npz", "-o", "p.npz")
        with np.load("p.npz") as made:
            self.assertEqual(made["scores"].shape, (ROWS, 3, CLASSES))
        # If the batch is a number in the file, nothing says along which axis the samples are.
        save("ambiguous.onnx", np.random.default_rng(SEED), False, 1)
        model = onnx.load("ambiguous.onnx")
        for value in (*model.graph.input, *model.graph.output):
            value.type.tensor_type.shape.dim[1].dim_param = "T"
        onnx.save(model, "ambiguous.onnx")
        with np.load("rows.npz") as rows:
            np.savez("single.npz", x=rows["x"][:, :1], label=rows["label"][:, :1])
        for data in ("rows.npz", "single.npz"):
            said = self.run_command("train", "ambiguous.onnx", *loss, "--data", data, "--name", "none", code=4).stderr
            self.assertIn("--shape T=", said)

    def test_labels_name_the_class_axis(self):
        train = ["train", "first.onnx", "--data", "rows.npz", "--epochs", "1", "--progress", "none", "--batch", "8", "--name", "axis"]
        said = self.run_command(*train, "--loss", "cross_entropy(scores, label)", code=2).stderr
        self.assertIn("use --loss 'cross_entropy(scores, label, class_axis=2)'", said)
        # As many classes as steps: labels of the same shape.
        save("square.onnx", np.random.default_rng(SEED), True, CLASSES)
        rng = np.random.default_rng(SEED)
        np.savez("square.npz", x=rng.standard_normal((9, CLASSES, WIDTH)).astype("float32"), label=rng.integers(0, CLASSES, (9, CLASSES)))
        train[1:4] = ["square.onnx", "--data", "square.npz"]
        said = self.run_command(*train, "--loss", "cross_entropy(scores, label)").stderr
        self.assertIn("along axis 1 of the output scores [8,5,5]; if they are along axis 2, set class_axis=2", said)
        train[-1] = "axis2"
        self.assertNotIn("along axis", self.run_command(*train, "--loss", "cross_entropy(scores, label, class_axis=2)").stderr)


if __name__ == "__main__":
    unittest.main()
