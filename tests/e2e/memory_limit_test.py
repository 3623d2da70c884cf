"""Limits of memory, and evaluations in batches of their own size, by the command."""
import json
import os
import re
import subprocess
import sys
import unittest

import onnx

GRADLOOM = os.path.abspath(sys.argv.pop(1))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import sample_files  # noqa: E402
from sample_files import TRAIN  # noqa: E402


class MemoryLimitTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = sample_files.in_folder_of(cls)

    def run_command(self, words, code=0):
        done = subprocess.run([GRADLOOM, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60)
        self.assertEqual(done.returncode, code, f"{words}\n{done.stderr}")
        return done

    def json(self, words, code=0):
        return json.loads(self.run_command(words, code).stdout)

    def test_memory_limit(self):
        refused = self.json(["check", "model.onnx", "--batch", "4096", "--loss", "cross_entropy(logits, label)", "--memory-limit", "256KiB",
                             "--json"], 8)["errors"][0]
        for limit in ("256Ki", "0.25Mi", "262144", "262144 B"):
            again = self.json(["check", "model.onnx", "--batch", "4096", "--loss", "cross_entropy(logits, label)", "--memory-limit", limit, "--json"], 8)
            self.assertEqual(again["errors"][0]["message"], refused["message"])
        self.run_command(["check", "model.onnx", "--loss", "cross_entropy(logits, label)", "--memory-limit", "64M"])
        batch = int(re.match(r"use --batch (\d+), which fits", refused["help"])[1])
        self.assertGreater(batch, 100)
        self.assertIn("weights and optimizer", refused["where"])

        def planned(size):
            self.run_command(["compile", "model.onnx", "--batch", str(size), "--loss", "cross_entropy(logits, label)", "-o", "l.plan"])
            return self.json(["inspect", "l.plan", "--json"])["total_bytes"]

        self.assertLessEqual(planned(batch), 256 << 10)
        self.assertGreater(planned(batch * 5 // 4), 256 << 10)
        self.run_command([*TRAIN, "--memory-limit", "1MiB"])
        self.assertFalse(os.path.exists("runs/never"))
        self.run_command([*TRAIN, "--memory-limit", "1KiB", "--name", "never"], 8)
        self.assertFalse(os.path.exists("runs/never"))

    def test_evaluation_batch(self):
        last = {}
        for name, flags in (("evaluated", []), ("evaluated_in_parts", ["--eval-batch", "7"])):
            self.run_command([*TRAIN, "--eval-split", "20%", "--metric", "accuracy", "--metric", "auroc", "--threads", "1", "--name", name, *flags])
            with open(f"runs/{name}/metrics.jsonl") as file:
                last[name] = [line for line in map(json.loads, file) if line["split"] == "eval"][-1]
            self.assertEqual("eval, batch 7" in self.run_command(["inspect", f"runs/{name}/plan.plan"]).stdout, name == "evaluated_in_parts")
        whole, parts = last.values()
        for key in ("loss", "accuracy", "auroc"):
            self.assertAlmostEqual(whole[key], parts[key], delta=1e-5)
        self.assertEqual(*(sample_files.read(f"runs/{name}/state.safetensors") for name in last))
        # Scores of 1001 classes in 16 bits, which a GPU pads: only an evaluation has them in float32.
        text = """<ir_version: 8, opset_import: ["" : 17]> g (float[N, 64] x) => (float[N, 1001] y) <float[64, 1001] w> { y = MatMul(x, w) }"""
        model = onnx.parser.parse_model(text.replace("<float[64, 1001] w>", "<float[64, 1001] w = {%s}>" % ", ".join(["0.1"] * 64 * 1001)))
        onnx.save(model, "wide.onnx")
        words = ["compile", "wide.onnx", "--loss", "cross_entropy(y, label)", "--batch", "17000", "--target", "sm_90", "--precision", "bf16",
                 "--memory-limit", "90MiB", "-o", "wide.plan"]
        help = re.search(r"training fits the memory limit, but an evaluation batch of 17000 needs .*use --eval-batch (\d+), which fits",
                         self.run_command(words, 8).stderr, re.DOTALL)
        self.run_command([*words, "--eval-batch", help[1]])
        self.assertGreater(int(help[1]), 10000)


if __name__ == "__main__":
    unittest.main()
