"""The output of `inspect` for all kinds of files."""
import json
import os
import subprocess
import sys
import unittest

import numpy as np

GRADLOOM = os.path.abspath(sys.argv.pop(1))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import sample_files  # noqa: E402
from sample_files import TRAIN  # noqa: E402

LOSS = ["--loss", "cross_entropy(logits, label)"]


class InspectTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = sample_files.in_folder_of(cls)
        cls.run_command(cls, [*TRAIN, "--name", "main"])

    def run_command(self, words, code=0):
        done = subprocess.run([GRADLOOM, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60)
        if done.returncode != code:
            raise AssertionError(f"{words}: exit {done.returncode}, not {code}\n{done.stderr}")
        return done

    def test_compile_emits_what_inspect_writes(self):
        self.run_command(["compile", "model.onnx", *LOSS, "-o", "e.plan", "--emit-onnx", "a.onnx", "--emit-dot", "a.dot", "--emit-html",
                          "a.html"])
        self.run_command(["inspect", "e.plan", "--onnx", "b.onnx", "--dot", "b.dot", "--html", "b.html"])
        for ending in ("onnx", "dot"):
            self.assertEqual(sample_files.read("a." + ending), sample_files.read("b." + ending))
        self.assertIn(b"<html", sample_files.read("a.html"))
        self.assertEqual(self.run_command(["inspect", "e.plan", "--graph"]).stdout, self.run_command(["inspect", "e.plan"]).stdout)

    def test_long_kernel_names_end_before_the_node(self):
        self.run_command(["compile", "model.onnx", *LOSS, "--target", "sm_90", "--devices", "cuda:0", "--precision", "bf16",
                          "--disable-pass", "fuse_loss_gradient", "-o", "gpu.plan"])
        for words in (["inspect", "gpu.plan", "--streams"], ["simulate", "gpu.plan"]):
            self.assertIn("cuda.gradloom.CrossEntropyLogSumGrad  ", self.run_command(words).stdout)

    def inspect(self, path):
        return json.loads(self.run_command(["inspect", path, "--json"]).stdout), self.run_command(["inspect", path]).stdout

    def test_inspects_models_and_weights(self):
        found, shown = self.inspect("model.onnx")
        self.assertEqual((found["inputs"], found["operators"]), ({"x": "float32[N,4]"}, {"Gemm": 2, "Relu": 1}))
        self.assertEqual(found["elements"], 4 * 8 + 8 + 8 * 3 + 3)
        self.assertIn("3 nodes: 2 Gemm, 1 Relu", shown)
        checkpoint = next(name for name in sorted(os.listdir("runs/main/checkpoints")) if name.startswith("step-"))
        for path in ("runs/main/checkpoints", f"runs/main/checkpoints/{checkpoint}"):
            found, shown = self.inspect(path)
            self.assertEqual((found["kind"], found["step"]), ("checkpoint", int(checkpoint[5:])))
            self.assertIn("w1/exp_avg ", shown)
        found, _ = self.inspect("runs/main/state.safetensors")
        self.assertIn({"name": "w1", "dtype": "float32", "shape": [4, 8]}, found["tensors"])
        self.assertIn("E-IO", self.run_command(["inspect", "nothing.safetensors"], 2).stderr)
        self.assertIn("need a plan", self.run_command(["inspect", "model.onnx", "--streams"], 4).stderr)

    def test_inspects_data(self):
        found, shown = self.inspect("train.csv")
        self.assertEqual([column["name"] for column in found["columns"]], ["a", "b", "c", "d", "label"])
        self.assertIn(f"{found['rows']} rows", shown)
        sample_files.write("bare.csv", "1,2\n3,\n5,six\n")
        found, shown = self.inspect("{train,bare}.csv")
        self.assertEqual([(one["path"], one["data"]["rows"]) for one in found["files"]], [("bare.csv", 3), ("train.csv", 60)])
        self.assertIn("train.csv   a table: 60 rows", shown)
        found, shown = self.inspect("bare.csv")
        self.assertEqual((found["rows"], found["columns"][1]), (3, {"name": "", "numbers": 1, "empty": 1}))
        np.savez("arrays.npz", x=np.zeros((5, 2), "float16"), label=np.arange(5))
        found, _ = self.inspect("arrays.npz")
        self.assertEqual({array["name"]: array["dtype"] for array in found["arrays"]}, {"x": "float16", "label": "int64"})
        sample_files.write("names.csv", "größe,b\n1,2\n")
        lines = self.inspect("names.csv")[1].splitlines()
        self.assertEqual(len({len(line) for line in lines[1:]}), 1, lines)
        sample_files.images(np.random.default_rng(0))
        self.assertIn("6 images, 2 classes\n", self.inspect("images")[1])
        # A missing path is reported as such, not as a run folder or anything else.
        self.assertIn("did you mean 'names.csv'?", self.run_command(["inspect", "name.csv"], 2).stderr)
        self.assertIn("error[E-IO]: cannot open the file: No such file", self.run_command(["inspect", "runs/nobody"], 2).stderr)


if __name__ == "__main__":
    unittest.main()
