"""Losses given as ONNX files, used from the command line: check, train, resume, eval; and targets of a wrong shape."""
import json
import os
import subprocess
import sys
import tempfile
import unittest

import numpy as np
import onnx
import onnx.parser

GRADLOOM = os.path.abspath(sys.argv.pop(1))

MODEL = """<ir_version: 10, opset_import: ["" : 17]>
g (float[N, 4] x) => (float[N, 2] z) <float[4, 2] w = {0.5, -1, 0.25, 2, -0.5, 1, 0.125, -0.25}, float[2] b = {0, 0.1}>
{ z = Gemm (x, w, b) }"""

SQUARES = """<ir_version: 10, opset_import: ["" : 17]>
l (float[N, 2] z, float[N, 2] y) => (float loss) <float scale = {1.0}>
{
  d = Sub (z, y)
  s = Mul (d, d)
  t = Mul (s, scale)
  loss = ReduceMean <keepdims = 0> (t)
}"""

NAMED = SQUARES.replace("float[N, 2] z", "float[N, 2] prediction").replace("(z, y)", "(prediction, y)")


class LossGraphTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.save("model.onnx", MODEL)
        self.save("my_loss.onnx", SQUARES)
        rng = np.random.default_rng(7)
        x = rng.standard_normal((30, 4)).astype(np.float32)
        self.y = (x @ rng.standard_normal((4, 2))).astype(np.float32)
        np.savez(self.path("data.npz"), x=x, y=self.y)
        np.savez(self.path("wrong.npz"), x=x, y=np.zeros((30, 2, 3), np.float32))

    def path(self, name):
        return os.path.join(self.folder, name)

    def save(self, name, text):
        onnx.save(onnx.parser.parse_model(text), self.path(name))

    def run_command(self, *words, code=0, cwd=None):
        done = subprocess.run([GRADLOOM, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120,
                              cwd=cwd or self.folder)
        self.assertEqual(done.returncode, code, f"{words}\n{done.stdout}{done.stderr}")
        return done

    def train(self, name, *words):
        """The report of a run over batches of 8, 8, 8 and 6, from its last line."""
        done = self.run_command("train", "model.onnx", "--data", "data.npz", "--batch", "8", "--epochs", "20", "--lr", "0.05",
                                "--threads", "1", "--progress", "none", "--report", "json", "--name", name, *words)
        return json.loads(done.stdout)

    def test_trains_as_the_built_in_loss(self):
        built_in = self.train("built_in", "--loss", "mse(z, y)")["train_loss"]
        self.assertLess(built_in, float(np.mean(self.y**2)))
        self.save("named.onnx", NAMED)
        for i, words in enumerate([["--loss", "my_loss.onnx"], ["--loss-onnx", "my_loss.onnx"],
                                   ["--loss", "named.onnx(prediction=z)"],
                                   ["--loss", "my_loss.onnx*0.75", "--loss", "mse(z, y)*0.25"]]):
            self.assertAlmostEqual(self.train(f"graph{i}", *words)["train_loss"], built_in, delta=1e-5 * built_in, msg=words)

    def test_check_trains_no_constant_of_the_loss(self):
        report = json.loads(self.run_command("check", "model.onnx", "--loss", "my_loss.onnx", "--json").stdout)
        self.assertEqual([entry["name"] for entry in report["trained"]], ["w", "b"])

    def test_files_are_relative_to_the_configuration_and_kept_by_the_run(self):
        with open(self.path("gradloom.toml"), "w") as file:
            file.write('version = 1\n[model]\npath = "model.onnx"\n[data]\ntrain = "data.npz"\neval = "data.npz"\nbatch = 8\n'
                       '[loss]\nname = ["my_loss.onnx*0.5", "mse(z, y)*0.5"]\n[train]\nepochs = 2\n[devices]\nthreads = 1\n'
                       '[run]\nname = "kept"\n')
        with tempfile.TemporaryDirectory() as elsewhere:
            self.run_command("train", "-c", self.path("gradloom.toml"), "--out", self.path("runs"), cwd=elsewhere)
            run = self.path("runs/kept")
            with open(os.path.join(run, "config.toml")) as file:
                self.assertIn(f'"{self.path("my_loss.onnx")}*0.5"', file.read())
            self.assertIn("loss", self.run_command("eval", run, cwd=elsewhere).stdout + self.run_command("eval", run, cwd=elsewhere).stderr)
            self.run_command("resume", run, "--epochs", "3", cwd=elsewhere)
            # A different loss under the same name makes it a different run.
            self.save("my_loss.onnx", SQUARES.replace("1.0", "3.0"))
            self.assertIn("loss: my_loss.onnx", self.run_command("resume", run, code=7, cwd=elsewhere).stderr)

    def test_mismatched_losses_are_refused(self):
        self.save("unknown.onnx", SQUARES.replace("s = Mul (d, d)", "[odd] s = Soften (d)"))
        self.save("vector.onnx", SQUARES.replace("float loss", "float[2] loss").replace("<keepdims = 0>", "<axes = [0], keepdims = 0>"))
        self.save("named.onnx", NAMED)
        for loss, code, words in [
                ("unknown.onnx", 3, ["E-UNSUPPORTED", "Soften", "'odd'"]),
                ("vector.onnx", 2, ["E-SHAPE", "a loss must be a scalar, but the output 'loss' is [2]", "vector.onnx"]),
                ("named.onnx", 4, ["E-CONFIG", "reads no output of the model: its inputs are prediction, y", "outputs are: z"]),
                ("named.onnx(predicton=z)", 4, ["no input 'predicton'", "did you mean 'prediction'?"]),
                ("named.onnx(z, y)", 4, ["the inputs of a loss graph must be bound by name"]),
                ("nowhere.onnx", 2, ["nowhere.onnx"])]:
            done = self.run_command("check", "model.onnx", "--loss", loss, code=code)
            for word in words:
                self.assertIn(word, done.stderr)

    def test_targets_of_another_shape_are_refused(self):
        done = self.run_command("train", "model.onnx", "--data", "wrong.npz", "--loss", "mse(z, y)", "--batch", "8",
                                code=2)
        for word in ["E-SHAPE", "column 'y' has rows of shape [2,3], but the model expects [2]", "help:"]:
            self.assertIn(word, done.stderr)


if __name__ == "__main__":
    unittest.main()
