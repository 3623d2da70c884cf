"""The command on real data with the settings of tools/quickstart.sh: digits and housing, several seeds each.

Each training uses one thread, so as many run at once as there are cores.
"""
import concurrent.futures
import csv
import gzip
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import unittest

import numpy as np
import onnxruntime

GRADLOOM, QUICKSTART = os.path.abspath(sys.argv.pop(1)), os.path.abspath(sys.argv.pop(1))
ROOT = os.path.dirname(os.path.dirname(QUICKSTART))
onnxruntime.disable_telemetry_events()
SEEDS = [1, 2, 3, 4, 5]


def settings(model, *without):
    """The flags with which the quick start trains a model, except those that a test sets itself."""
    with open(QUICKSTART) as file:
        lines = file.read().replace("\\\n", " ").splitlines()
    words = next(shlex.split(line) for line in lines if line.startswith('"$gradloom" train ' + model))[3:]
    pairs = list(zip(words[::2], words[1::2]))
    return [word for flag, value in pairs if flag not in ("--name", "--out", "--seed", *without) for word in (flag, value)]


class CommandTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.out = folder.name

    def train(self, model, name, seed, *flags):
        """The report of a run."""
        done = subprocess.run(
            [GRADLOOM, "train", model, "--name", name, "--out", self.out, "--seed", str(seed), "--threads", "1", "--report", "json",
             "--progress", "none", *flags],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def outputs(self, report, inputs):
        """What onnxruntime computes with the exported model."""
        session = onnxruntime.InferenceSession(report["model"], providers=["CPUExecutionProvider"])
        return session.run(None, {session.get_inputs()[0].name: inputs.astype("float32")})[0]


class DigitsTest(CommandTest):
    MODEL = "models/digits_cnn.onnx"

    def runs(self, seeds, *split):
        flags = [*settings(self.MODEL, "--eval-split"), *split]
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            reports = list(pool.map(lambda seed: self.train(self.MODEL, f"run{seed}", seed, *flags), seeds))
        accuracies = [r["eval_accuracy"] for r in reports]
        print(f"digits, {' '.join(split)}: accuracy {', '.join(f'{a:.4f}' for a in accuracies)}, median {statistics.median(accuracies):.4f};"
              f" training took {', '.join(format(r['train_s'], '.1f') for r in reports)} s")
        return reports

    def test_random_part_held_back(self):
        reports = self.runs(SEEDS, "--eval-split", "20%")
        self.assertGreaterEqual(statistics.median(r["eval_accuracy"] for r in reports), 0.98)

    def test_unshuffled_tail_held_back(self):
        reports = self.runs(SEEDS[:3], "--eval-split", "tail:20%")
        self.assertGreaterEqual(statistics.median(r["eval_accuracy"] for r in reports), 0.96)
        with gzip.open(f"{ROOT}/models/data/digits.csv.gz", "rt") as file:
            table = np.loadtxt(file, delimiter=",", skiprows=1)
        tail = table[-round(0.2 * len(table)):]
        logits = self.outputs(reports[0], tail[:, :64].reshape(-1, 1, 8, 8) / 16)
        self.assertAlmostEqual(np.mean(logits.argmax(1) == tail[:, 64]), reports[0]["eval_accuracy"], delta=1.5 / len(tail))


class HousingTest(CommandTest):
    MODEL = "models/housing_mlp.onnx"

    def test_better_than_linear_regression(self):
        with open(f"{ROOT}/models/data/boston.csv") as file:
            header, *rows = csv.reader(file)
        table = np.array(rows, "float64")
        ours, linear, seconds = [], [], []
        for seed in SEEDS:
            order = np.random.default_rng(seed).permutation(len(table))
            held = round(0.2 * len(table))
            parts = {"test": table[order[:held]], "train": table[order[held:]]}
            for name, part in parts.items():
                with open(f"{self.out}/{name}.csv", "w", newline="") as file:
                    csv.writer(file).writerows([header, *part.tolist()])
            report = self.train(
                self.MODEL, f"run{seed}", seed, *settings(self.MODEL, "--data", "--eval-split"),
                "--data", f"{self.out}/train.csv", "--eval-data", f"{self.out}/test.csv",
            )  # fmt: skip
            ours.append(report["eval_rmse"])
            seconds.append(report["train_s"])
            x, y, x_test, y_test = [part for name in ("train", "test") for part in (parts[name][:, :13], parts[name][:, 13])]
            ones = lambda a: np.hstack([a, np.ones((len(a), 1))])
            weights = np.linalg.lstsq(ones(x), y, rcond=None)[0]
            linear.append(float(np.sqrt(np.mean((ones(x_test) @ weights - y_test) ** 2))))
            # Fed independently of Gradloom, the exported model is as good as the command reports.
            values = self.outputs(report, (x_test - x.mean(0)) / x.std(0))[:, 0]
            self.assertAlmostEqual(float(np.sqrt(np.mean((values - y_test) ** 2))), ours[-1], delta=1e-3 * ours[-1])
        print(f"housing: test RMSE {', '.join(f'{r:.3f}' for r in ours)}, median {statistics.median(ours):.3f};"
              f" linear regression {', '.join(f'{r:.3f}' for r in linear)}, median {statistics.median(linear):.3f};"
              f" training took {', '.join(format(s, '.2f') for s in seconds)} s")
        self.assertLess(statistics.median(ours), statistics.median(linear))


if __name__ == "__main__":
    unittest.main()
