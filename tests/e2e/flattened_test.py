"""Language models that flatten their scores to [batch * positions, tokens] for the loss, as PyTorch's usual training loop does, with the
positions of a sample together or those of all samples in turn: they are trained, evaluated and used with the same rows as the model that does not
flatten them, from data of every form."""
import csv
import json
import os
import random
import subprocess
import sys
import unittest

import numpy as np
import onnx
import safetensors.numpy
from onnx import helper, numpy_helper

GRADLOOM = os.path.abspath(sys.argv.pop(1))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import sample_files  # noqa: E402

SEED = int(os.environ.get("GRADLOOM_SEED", random.SystemRandom().randrange(1 << 31)))
WINDOW, TOKENS, WIDTH, ROWS = 6, 11, 8, 21
MODELS = {"rows": ("n", None), "flat": ("n", [-1, TOKENS]), "inside": ("i", [-1, TOKENS]), "fixed": ("f", [-1, TOKENS])}


def save(path, rng, order, flat, window=WINDOW):
    """Scores of the next token from the means over the tokens so far. `order`: "i" has the positions of all samples in turn; "f" is a file for
    four samples."""
    weights = [numpy_helper.from_array(rng.standard_normal(shape).astype("float32"), name)
               for name, shape in (("embedding", (TOKENS, WIDTH)), ("w", (WIDTH, WIDTH)), ("head", (WIDTH, TOKENS)))]
    nodes = [helper.make_node("Gather", ["embedding", "x"], ["e"]), helper.make_node("CumSum", ["e", "one"], ["c"]),
             helper.make_node("MatMul", ["c", "w"], ["m"]), helper.make_node("Tanh", ["m"], ["t"]), helper.make_node("MatMul", ["t", "head"], ["s"])]
    if order == "i":
        nodes.append(helper.make_node("Transpose", ["s"], ["r"], perm=[1, 0, 2]))
    end = "r" if order == "i" else "s"
    nodes.append(helper.make_node("Reshape", [end, "flat"], ["out"]) if flat else helper.make_node("Identity", [end], ["out"]))
    batch = 4 if order == "f" else "batch"
    shape = [None, TOKENS] if flat else [batch, window, TOKENS]
    constants = [numpy_helper.from_array(np.int64(1), "one")] + ([numpy_helper.from_array(np.array(flat), "flat")] if flat else [])
    graph = helper.make_graph(nodes, "text", [helper.make_tensor_value_info("x", 7, [batch, window])],
                              [helper.make_tensor_value_info("out", 1, shape)], weights + constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


class FlattenedTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = sample_files.in_folder_of(cls)
        print("seed", SEED)
        for name, (order, flat) in MODELS.items():
            save(name + ".onnx", np.random.default_rng(SEED), order, flat)
        rng = np.random.default_rng(SEED + 1)
        tokens = rng.integers(0, TOKENS, ROWS * WINDOW + 1)
        tokens.astype("uint16").tofile("tokens.bin")
        x, y = tokens[:-1].reshape(ROWS, WINDOW), tokens[1:].reshape(ROWS, WINDOW)
        np.savez("rows.npz", x=x, y=y)
        left_out = y.copy()
        left_out[:, :2] = -100
        left_out[3] = -100
        np.savez("some.npz", x=x, y=left_out)

    def run_command(self, *words, code=0):
        done = subprocess.run([GRADLOOM, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120)
        self.assertEqual(done.returncode, code, f"{words}\n{done.stderr}")
        return done

    def loss(self, model):
        return "cross_entropy(out, y, class_axis=2)" if model == "rows" else "cross_entropy(out, y)"

    def train(self, model, name, *words):
        """The results after each epoch, and the weights."""
        split = [] if "--eval-split" in words else ["--eval-data", "rows.npz"]
        self.run_command("train", model + ".onnx", "--loss", self.loss(model), "--metric", "accuracy", "--metric", "perplexity", "--metric", "f1",
                         *([] if "--steps" in words else ["--epochs", "2"]), "--lr", "0.02", "--progress", "none", "--name", name, *split, *words)
        with open(f"runs/{name}/results.csv") as file:
            return list(csv.DictReader(file)), safetensors.numpy.load_file(f"runs/{name}/state.safetensors")

    def assert_close(self, first, second):
        for ours, theirs in zip(first[0], second[0], strict=True):
            for name in ours:
                if name.split("/")[0] in ("eval", "train", "loss", "accuracy", "perplexity", "f1") and ours[name]:
                    np.testing.assert_allclose(float(theirs[name]), float(ours[name]), rtol=2e-4, atol=1e-5, err_msg=name)
        for name, tensor in first[1].items():
            np.testing.assert_allclose(second[1][name], tensor, rtol=1e-3, atol=1e-5, err_msg=name)

    def test_trains_like_the_model_with_rows(self):
        """21 rows leave a batch of one, 15 one of three; with a share held back, evaluations have another size."""
        for data, words in (("some", ["--batch", "4"]), ("rows", ["--batch", "5", "--eval-split", "30%"]), ("rows", ["--micro-batch", "2", "--batch", "8"]),
                            ("some", ["--batch", "4", "--devices", "cpu:2", "--eval-split", "30%"]), ("rows", ["--batch", "5", "--devices", "cpu:2"]),
                            ("some", ["--batch", "4", "--accumulate", "3"]), ("rows", ["--batch", "1", "--steps", "4"]),
                            ("some", ["--batch", "4", "--devices", "cpu:2", "--gather-to", "cpu:0"])):
            with self.subTest(words=words, data=data):
                name = "-".join(words).replace("-", "").replace("%", "").replace(":", "")
                first = self.train("rows", "rows" + name, "--data", data + ".npz", *words)
                for model in ("flat", "inside") + (("fixed",) if words == ["--batch", "4"] else ()):
                    self.assert_close(first, self.train(model, model + name, "--data", data + ".npz", *words))

    def test_flat_labels_are_no_rows(self):
        """Whether the positions of a sample are together is not known of an array."""
        with np.load("rows.npz") as rows:
            np.savez("flat.npz", x=rows["x"], y=rows["y"].reshape(-1))
        said = self.run_command("train", "flat.onnx", "--loss", self.loss("flat"), "--data", "flat.npz", code=5).stderr
        self.assertIn(f"if 'y' has {WINDOW} positions of each, give it the shape [{ROWS}, {WINDOW}, ...]", said)

    def test_data_of_every_form_has_the_same_rows(self):
        for model in ("flat", "inside"):
            with self.subTest(model=model):
                forms = [self.train(model, f"{model}-{data}", "--data", data, "--batch", "4")[1] for data in ("rows.npz", "tokens.bin")]
                for name, tensor in forms[0].items():
                    np.testing.assert_array_equal(forms[1][name], tensor, err_msg=name)
        names = ["rows", "flat", "inside"]
        made = [self.train(model, model + "-random", "--data", "random:9", "--eval-split", "30%", "--batch", "4") for model in names]
        for other in made[1:]:
            self.assert_close(made[0], other)

    def test_evaluates_and_predicts_rows(self):
        for words in (["--batch", "4"], ["--batch", "8", "--devices", "cpu:2"]):
            scores, values, classes, probabilities = {}, {}, {}, {}
            for model in ("rows", "flat", "inside"):
                name = f"{model}-{len(words)}"
                self.train(model, name, "--data", "rows.npz", *words)
                # The weights of all are those of the first.
                weights = ["--weights", f"runs/rows-{len(words)}/state.safetensors", *words[2:]]
                values[model] = json.loads(self.run_command("eval", "runs/" + name, "--data", "some.npz", "--json", *weights).stdout)
                for form, made in (([], scores), (["--classes"], classes), (["--probabilities"], probabilities)):
                    self.run_command("predict", "runs/" + name, "--data", "rows.npz", "-o", "made.npz", *form, *weights)
                    with np.load("made.npz") as arrays:
                        made[model] = {array: arrays[array] for array in arrays}
            for model in ("flat", "inside"):
                with self.subTest(model=model, words=words):
                    self.assertEqual(scores[model]["out"].shape, (ROWS, WINDOW, TOKENS))
                    np.testing.assert_allclose(scores[model]["out"], scores["rows"]["out"], rtol=1e-4, atol=1e-5)
                    self.assertEqual(classes[model]["y"].shape, (ROWS, WINDOW))
                    np.testing.assert_array_equal(classes[model]["y"], scores[model]["out"].argmax(2))
                    np.testing.assert_allclose(probabilities[model]["y.probabilities"], probabilities["rows"]["y.probabilities"], rtol=1e-3, atol=1e-5)
                    for key, value in values["rows"].items():
                        if isinstance(value, float):
                            self.assertAlmostEqual(values[model][key], value, 4, key)
        said = self.run_command("predict", "runs/flat-2", "--prompt", "1 2 3", "--generate", "5", "--seed", "1")
        self.assertEqual(said.stdout, self.run_command("predict", "runs/rows-2", "--weights", "runs/flat-2/state.safetensors", "--prompt", "1 2 3",
                                                       "--generate", "5", "--seed", "1").stdout)

    def test_processes_divide_the_rows(self):
        words = ["--data", "some.npz", "--batch", "8", "--epochs", "1", "--progress", "none", "--loss", "cross_entropy(out, y)", "--devices", "cpu"]
        for model in ("flat", "inside"):
            with self.subTest(model=model):
                self.run_command("launch", "--nproc-per-node", "2", "--", "train", model + ".onnx", *words, "--name", model + "-job")
                self.run_command("train", model + ".onnx", *words[:-2], "--devices", "cpu:2", "--name", model + "-alone")
                job, alone = (safetensors.numpy.load_file(f"runs/{model}-{name}/state.safetensors") for name in ("job", "alone"))
                for name, tensor in alone.items():
                    np.testing.assert_array_equal(job[name], tensor, err_msg=name)

    def test_batches_without_labels(self):
        """Most batches have none. Rows of this length stay in the file, so that a process has only its own."""
        window, rng = 40, np.random.default_rng(SEED + 2)
        x, y = (rng.integers(0, TOKENS, (64, window)) for _ in range(2))
        y[3:] = -100
        np.savez("few.npz", x=x, y=y)
        weights = {}
        for model in ("rows", "flat", "inside"):
            save(f"{model}-long.onnx", np.random.default_rng(SEED), *MODELS[model], window)
            words = ["train", model + "-long.onnx", "--data", "few.npz", "--loss", self.loss(model), "--batch", "8", "--epochs", "1", "--progress", "none"]
            self.run_command(*words, "--devices", "cpu:2", "--name", model + "-few")
            self.run_command("launch", "--nproc-per-node", "2", "--", *words, "--devices", "cpu", "--name", model + "-few-job")
            for name in (model + "-few", model + "-few-job"):
                weights[name] = safetensors.numpy.load_file(f"runs/{name}/state.safetensors")
        for name, made in weights.items():
            for tensor, value in weights["rows-few"].items():
                np.testing.assert_allclose(made[tensor], value, rtol=1e-4, atol=1e-6, err_msg=f"{name} {tensor}")

    def test_other_verbs(self):
        for model in ("flat", "inside"):
            with self.subTest(model=model):
                words = ["--loss", "cross_entropy(out, y)", "--batch", "4"]
                self.run_command("bench", model + ".onnx", *words, "--steps", "3", "--warmup", "1")
                self.run_command("check", model + ".onnx", *words, "--data", "rows.npz")
                self.run_command("init", "--model", model + ".onnx", *words, "--data", "rows.npz", "-o", model + ".toml")
                with open(model + ".toml") as file:
                    self.assertIn("#   y  int64[4,6]" if model == "flat" else "#   y  int64[6,4]", file.read())

    def test_messages_name_the_rows(self):
        with np.load("rows.npz") as rows:
            np.savez("short.npz", x=rows["x"], y=rows["y"][:, :3])
            np.savez("wrong.npz", x=rows["x"], y=np.where(np.arange(WINDOW) == 2, TOKENS, rows["y"]))
        train = ["train", "flat.onnx", "--loss", "cross_entropy(out, y)", "--progress", "none", "--batch", "4"]
        said = self.run_command(*train, "--data", "short.npz", code=2).stderr
        self.assertIn("store 'y' with rows of shape [6]", said)
        said = self.run_command(*train, "--data", "wrong.npz", code=5).stderr
        self.assertIn("row 0 (counted from 0) has class 11 in 'y'", said)


if __name__ == "__main__":
    unittest.main()
