"""Moving averages of weights: what runs, evaluations, exports and further runs take."""
import json
import os
import subprocess
import sys
import unittest

import numpy as np
import onnx
import onnxruntime
import safetensors.numpy

GRADLOOM = os.path.abspath(sys.argv.pop(1))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import sample_files  # noqa: E402
from sample_files import TRAIN  # noqa: E402

WEIGHTS = ("w1", "b1", "w2", "b2")
EPOCHS = TRAIN.index("--epochs")
PLAIN = [*TRAIN[:EPOCHS], *TRAIN[EPOCHS + 2:], "--eval-split", "20%", "--metric", "accuracy", "--optimizer", "adam", "--batch", "8"]
RECIPE = [*PLAIN, "--lr", "0.05", "--ema", "0.9"]


def run(words, code=0):
    done = subprocess.run([GRADLOOM, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60)
    if done.returncode != code:
        raise AssertionError(f"{words}: exit {done.returncode}, not {code}\n{done.stderr}")
    return done


def weights_of(path):
    return {i.name: onnx.numpy_helper.to_array(i) for i in onnx.load(path).graph.initializer}


class AveragesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = sample_files.in_folder_of(cls)
        run([*RECIPE, "--epochs", "6", "--name", "main"])
        cls.state = safetensors.numpy.load_file("runs/main/state.safetensors")
        cls.averages = {name: cls.state[f"{name}/average"] for name in WEIGHTS}
        cls.last = {name: cls.state[name] for name in WEIGHTS}

    def expect(self, got, want):
        for name in WEIGHTS:
            np.testing.assert_array_equal(got[name], want[name], name)

    def loss(self, words):
        return json.loads(run(["eval", *words, "--data", "train.csv", "--json"]).stdout)["loss"]

    def test_exports(self):
        self.assertTrue(any((self.averages[name] != self.last[name]).any() for name in WEIGHTS))
        self.expect(weights_of("runs/main/export/model.onnx"), self.averages)
        for words, want in (([], self.averages), (["--no-ema"], self.last)):
            run(["export", "runs/main", "-o", "exported.onnx", *words])
            self.expect(weights_of("exported.onnx"), want)
            run(["export", "runs/main", "-o", "exported.safetensors", *words])
            self.expect(safetensors.numpy.load_file("exported.safetensors"), want)

    def test_evaluations_and_predictions(self):
        table = np.loadtxt("train.csv", delimiter=",", skiprows=1, dtype=np.float32)
        x, label = table[:, :4], table[:, 4].astype(int)
        for words in ([], ["--no-ema"]):
            run(["export", "runs/main", "-o", "model_now.onnx", *words])
            logits = onnxruntime.InferenceSession("model_now.onnx").run(["logits"], {"x": x})[0].astype(np.float64)
            loss = np.mean(np.log(np.exp(logits).sum(1)) - logits[np.arange(len(x)), label])
            self.assertAlmostEqual(self.loss(["runs/main", *words]), loss, 5)
            run(["predict", "runs/main", "--data", "train.csv", "-o", "predicted.npz", *words])
            np.testing.assert_allclose(np.load("predicted.npz")["logits"], logits, rtol=1e-4, atol=1e-5)
        self.assertNotEqual(self.loss(["runs/main"]), self.loss(["runs/main", "--no-ema"]))

    def test_training_is_that_without_averages(self):
        run([*PLAIN, "--lr", "0.05", "--epochs", "6", "--name", "plain"])
        self.expect(safetensors.numpy.load_file("runs/plain/state.safetensors"), self.last)
        run(["eval", "runs/plain", "--data", "train.csv", "--no-ema"])

    def test_resuming_continues_both(self):
        run([*RECIPE, "--epochs", "3", "--name", "half"])
        run(["resume", "runs/half", "--epochs", "6", "--progress", "none"])
        resumed = safetensors.numpy.load_file("runs/half/state.safetensors")
        self.assertEqual(resumed.keys(), self.state.keys())
        for name, value in self.state.items():
            np.testing.assert_array_equal(resumed[name], value, name)

    def test_a_further_run_begins_with_them(self):
        for i, start in enumerate(("runs/main", "runs/main/state.safetensors")):
            run([*PLAIN, "--lr", "0", "--ema", "0.9", "--epochs", "1", "--name", f"further{i}", "--init-weights", start])
            begun = safetensors.numpy.load_file(f"runs/further{i}/state.safetensors")
            self.expect(begun, self.averages)
            self.expect({name: begun[f"{name}/average"] for name in WEIGHTS}, self.averages)

    def test_the_training_algorithm_has_both(self):
        run(["export", "runs/main", "-o", "training.onnx", "--training"])
        self.expect(weights_of("training.onnx"), self.last)
        info = onnx.load("training.onnx").training_info[0]
        states = {i.name: onnx.numpy_helper.to_array(i) for i in [*info.algorithm.initializer, *onnx.load("training.onnx").graph.initializer]}
        self.expect({name: states[f"{name}/average"] for name in WEIGHTS}, self.averages)
        self.assertIn("w1/average", {binding.key for binding in info.update_binding})

    def test_evaluations_of_a_run_take_them(self):
        """Whatever an update consists of, and whatever the run was compiled from."""
        run(["compile", "model.onnx", "--loss", "cross_entropy(logits, label)", "--optimizer", "adam", "--lr", "0.05", "--batch", "8", "--ema", "0.9",
             "-o", "averages.plan"])
        for i, words in enumerate(([], ["--accumulate", "3"], ["--micro-batch", "4"], ["--devices", "cpu:2"], ["--precision", "bf16"],
                                   ["--plan", "averages.plan"])):
            recipe = [word for word in RECIPE if word != "model.onnx"] if "--plan" in words else RECIPE
            run([*recipe, "--epochs", "3", "--name", f"evaluated{i}", *words])
            with open(f"runs/evaluated{i}/results.csv") as file:
                rows = [line.split(",") for line in file.read().splitlines()]
            last = float(rows[-1][rows[0].index("eval/loss")])
            by_eval = [json.loads(run(["eval", f"runs/evaluated{i}", "--json", *more]).stdout)["loss"] for more in ([], ["--no-ema"])]
            tolerance = 1e-2 if "bf16" in words else 1e-4
            self.assertAlmostEqual(last, by_eval[0], delta=tolerance * abs(by_eval[0]), msg=words)
            self.assertGreater(abs(by_eval[0] - by_eval[1]), 2 * tolerance * abs(by_eval[0]), words)

    def test_weights_that_are_named_like_averages(self):
        """Such a model is trained without averages as it is, and with averages refused."""
        text = """<ir_version: 8, opset_import: ["" : 17]> g (float[N, 4] x) => (float[N, 3] logits)
            <float[4, 3] w = {%s}, float[4, 3] "w/average" = {%s}> { a = MatMul (x, w)  b = MatMul (x, "w/average")  logits = Add (a, b) }"""
        numbers = [", ".join(str(round(0.01 * (i + k), 2)) for i in range(12)) for k in (0, 7)]
        model = onnx.parser.parse_model((text % tuple(numbers)).replace('"w/average"', "w_average"))
        for names in [model.graph.node[1].input]:
            names[1] = "w/average"
        model.graph.initializer[1].name = "w/average"
        onnx.save(model, "named.onnx")
        recipe = [word if word != "model.onnx" else "named.onnx" for word in PLAIN]
        run([*recipe, "--epochs", "1", "--name", "named"])
        run(["export", "runs/named", "-o", "named_now.onnx"])
        state = safetensors.numpy.load_file("runs/named/state.safetensors")
        self.assertTrue((state["w"] != state["w/average"]).any())
        for path in ("named_now.onnx", "runs/named/export/model.onnx"):
            for name in ("w", "w/average"):
                np.testing.assert_array_equal(weights_of(path)[name], state[name])
        run([*recipe, "--epochs", "1", "--lr", "0", "--name", "named_again", "--init-weights", "runs/named"])
        np.testing.assert_array_equal(safetensors.numpy.load_file("runs/named_again/state.safetensors")["w"], state["w"])
        self.assertIn("'w/average'", run([*recipe, "--epochs", "1", "--ema", "0.9", "--name", "refused"], 4).stderr)

    def test_unusable_decays(self):
        for words in (["--ema", "1"], ["--ema", "-0.5"], ["--ema", "nan"]):
            self.assertIn("--ema", run([*PLAIN, "--name", "unusable", *words], 4).stderr)
        self.assertIn("--ema", run([*TRAIN, "--ema-warmup", "--name", "unusable"], 4).stderr)


if __name__ == "__main__":
    unittest.main()
