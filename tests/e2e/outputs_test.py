"""No command writes over a file that it reads, or that what it reads was made from, under whatever name."""
import os
import subprocess
import sys
import unittest

import numpy as np
import onnx

GRADLOOM = os.path.abspath(sys.argv.pop(1))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import sample_files  # noqa: E402
from sample_files import TRAIN, read, write  # noqa: E402

LOSS = ["--loss", "cross_entropy(logits, label)"]


class OutputsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        sample_files.in_folder_of(cls)
        model = onnx.load("model.onnx")
        onnx.save(model, "external.onnx", save_as_external_data=True, all_tensors_to_one_file=True, location="w.onnx.data", size_threshold=0)
        cls.right(cls, ["train", "external.onnx", *TRAIN[2:], "--name", "main"])
        cls.right(cls, ["compile", "model.onnx", *LOSS, "-o", "model.plan"])
        cls.right(cls, ["export", "runs/main", "-o", "weights.safetensors"])
        os.symlink("train.csv", "link.csv")
        os.link("train.csv", "hard.csv")
        os.mkdir("parts")
        for i in range(2):
            write(f"parts/{i}.csv", read("train.csv"))

    def right(self, words):
        done = subprocess.run([GRADLOOM, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60)
        if done.returncode != 0:
            raise AssertionError(f"{words}: exit {done.returncode}\n{done.stderr}")
        return done

    def files(self):
        return {os.path.join(folder, name): read(os.path.join(folder, name)) for folder, _, names in os.walk(".") for name in names}

    def refused(self, words, writes, what):
        with self.subTest(" ".join(words)):
            before = self.files()
            done = subprocess.run([GRADLOOM, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60)
            self.assertEqual(done.returncode, 4, done.stderr)
            self.assertIn(f"error[E-CONFIG]: {writes} would overwrite {what}\n", done.stderr)
            self.assertIn(f"help: name another file with {writes}", done.stderr)
            self.assertEqual(self.files(), before)

    def test_data(self):
        np.savez("rows.npz", x=np.zeros((3, 4), "float32"))
        for name in ("train.csv", "./train.csv", "link.csv", "hard.csv"):
            self.refused(["predict", "runs/main", "--data", "train.csv", "-o", name], "-o", "what --data names")
        self.refused(["predict", "runs/main", "--data", "rows.npz", "--map", "x=x", "-o", "rows.npz"], "-o", "what --data names")
        self.refused(["predict", "runs/main", "--data", "parts/*.csv", "-o", "parts/1.csv"], "-o", "what --data names")
        # The data of a run that is used with other data.
        self.refused(["predict", "runs/main", "--data", "parts/0.csv", "-o", "train.csv"], "-o", "what --data of the run runs/main names")
        self.refused([*TRAIN, "--trace", "train.csv"], "--trace", "what --data names")
        self.refused([*TRAIN, "--profile", "train.csv"], "--profile", "what --data names")
        self.refused([*TRAIN, "--log-file", "hard.csv"], "--log-file", "what --data names")
        self.refused([*TRAIN, "--eval-data", "parts/0.csv", "--trace", "parts/0.csv"], "--trace", "what --eval-data names")
        self.refused(["eval", "runs/main", "--data", "train.csv", "--log-file", "train.csv"], "--log-file", "what --data names")
        self.refused(["resume", "runs/main", "--trace", "train.csv"], "--trace", "what --data names")
        self.refused(["init", "model.onnx", "--data", "train.csv", "-o", "train.csv"], "-o", "what --data names")

    def test_models_and_configurations(self):
        self.refused(["compile", "model.onnx", *LOSS, "-o", "model.onnx"], "-o", "what --model names")
        self.refused(["compile", "external.onnx", *LOSS, "-o", "w.onnx.data"], "-o", "what --model names")
        self.refused(["compile", "model.onnx", *LOSS, "-o", "new.plan", "--emit-dot", "model.onnx"], "--emit-dot", "what --model names")
        write("run.toml", '[model]\npath = "model.onnx"\n[data]\ntrain = "train.csv"\n[log]\ntrace = "model.onnx"\n')
        self.refused(["train", "-c", "run.toml"], "--trace", "what --model names")
        self.refused(["train", "-c", "run.toml", "--trace", "run.toml"], "--trace", "what -c names")
        self.refused(["train", "-c", "run.toml", "--set", "log.trace=train.csv"], "--trace", "what --data names")
        self.refused(["bench", "model.onnx", *LOSS, "-o", "model.onnx"], "-o", "what --model names")
        self.refused(["export", "runs/main", "-o", "external.onnx"], "-o", "what --model of the run runs/main names")
        # An exported model has its weights beside it.
        self.refused(["export", "runs/main", "-o", "w.onnx"], "-o", "what --model of the run runs/main names")

    def test_plans_runs_and_weights(self):
        self.refused(["inspect", "model.plan", "--html", "model.plan"], "--html", "what the argument 'path' names")
        self.refused(["inspect", "runs/main", "--dot", "runs/main/plan.plan"], "--dot", "what the argument 'path' names")
        self.refused(["export", "runs/main", "-o", "runs/main/state.safetensors"], "-o", "what the argument 'run' names")
        checkpoint = f"runs/main/checkpoints/{read('runs/main/checkpoints/LATEST').decode().strip()}"
        self.refused(["export", "runs/main", "-o", f"{checkpoint}/rank-0.safetensors"], "-o", "what the argument 'run' names")
        self.refused(["export", "runs/main", "--weights", checkpoint, "-o", f"{checkpoint}/rank-0.safetensors"], "-o", "what the argument 'run' names")
        self.refused(["export", "model.plan", "--weights", "weights.safetensors", "-o", "weights.safetensors"], "-o", "what --weights names")
        self.refused(["predict", "runs/main", "--data", "train.csv", "-o", "runs/main/results.csv"], "-o", "what the argument 'run' names")
        self.refused([*TRAIN, "--init-weights", "weights.safetensors", "--log-file", "weights.safetensors"], "--log-file",
                     "what --init-weights names")

    def test_two_outputs(self):
        self.refused(["compile", "model.onnx", *LOSS, "-o", "both", "--emit-html", "both"], "--emit-html", "the file of -o")
        self.refused([*TRAIN, "--trace", "both", "--log-file", "./both"], "--trace", "the file of --log-file")

    def test_results_are_replaced(self):
        for _ in range(2):
            self.right(["predict", "runs/main", "--data", "train.csv", "-o", "y.csv", "--log-file", "lines.txt"])
            self.right(["predict", "runs/main", "--data", "train.csv", "-o", "runs/main/y.csv"])
            self.right(["export", "runs/main", "-o", "trained.onnx"])
            self.right(["compile", "model.onnx", *LOSS, "-o", "again.plan"])
        self.right(["inspect", "model.plan", "--dot", "page.dot", "--html", "page.html", "--log-file", "/dev/null"])


if __name__ == "__main__":
    unittest.main()
