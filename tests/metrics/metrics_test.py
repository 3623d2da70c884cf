"""Compares metrics with their formulas, implemented again in numpy over all samples at once."""
import json
import os
import random
import subprocess
import sys
import tempfile
import unittest

import numpy as np

PRINT_METRICS = os.path.abspath(sys.argv.pop(1))
SEED = int(os.environ.get("GRADLOOM_SEED", random.SystemRandom().randrange(1 << 31)))


def softmax(x, axis):
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def auroc(scores, yes):
    """By definition: the share of (positive, negative) pairs in the right order, where ties count one half."""
    a, b = scores[yes], scores[~yes]
    if len(a) == 0 or len(b) == 0:
        return None
    difference = a[:, None] - b[None, :]
    return float(((difference > 0) + 0.5 * (difference == 0)).mean())


def f1(said, yes):
    true_positive = (said & yes).sum()
    precision = true_positive / said.sum() if said.sum() else 0.0
    recall = true_positive / yes.sum() if yes.sum() else 0.0
    if not said.any() and not yes.any():
        return None
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


def iou(said, yes):
    return float((said & yes).sum() / (said | yes).sum()) if (said | yes).any() else None


def share(right, of):
    """Precision of the predicted, recall of the others; None where neither occurs."""
    if not right.any() and not of.any():
        return None
    return float((right & of).sum() / of.sum()) if of.any() else 0.0


def by_column(name, values):
    named = {f"{name}/{c}": value for c, value in enumerate(values)} if len(values) > 1 else {}
    return {name: mean(values), **named}


def mean(values):
    values = [v for v in values if v is not None]
    return sum(values) / len(values) if values else None


class MetricsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        print("seed", SEED)

    def setUp(self):
        self.rng = np.random.default_rng(SEED)
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def run_print(self, output, target, metrics, batch, axis=1, ignore="none", threshold=0, kind="plain"):
        path = os.path.join(self.folder.name, "a.npz")
        np.savez(path, output=output, target=target)
        words = [PRINT_METRICS, path, str(batch), str(axis), str(ignore), str(threshold), kind, *metrics]
        return subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60)

    def values(self, *args, **kwargs):
        done = self.run_print(*args, **kwargs)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def check(self, ours, wanted, tolerance=1e-9):
        self.assertEqual(set(ours), set(wanted))
        for name, value in wanted.items():
            if value is None:
                self.assertIsNone(ours[name], name)
            else:
                self.assertAlmostEqual(ours[name], value, delta=tolerance * max(1.0, abs(value)), msg=name)

    def wanted_of_classes(self, flat, target):
        """flat: [samples, classes]."""
        n, classes = flat.shape
        own = flat[np.arange(n), target][:, None]
        before = ((flat > own) | ((flat == own) & (np.arange(classes) < target[:, None]))).sum(1)
        said = flat.argmax(1)
        p = softmax(flat.astype(np.float64), 1)
        per_class = [auroc(p[:, c], target == c) for c in range(classes)]
        wanted = {"accuracy": float((said == target).mean()), "top3": float((before < 3).mean()),
                  "f1": mean([f1(said == c, target == c) for c in range(classes)]), "auroc": mean(per_class),
                  "perplexity": float(np.exp(-np.log(p[np.arange(n), target]).mean()))}
        wanted.update(by_column("auroc", per_class))
        wanted.update(by_column("iou", [iou(said == c, target == c) for c in range(classes)]))
        wanted.update(by_column("precision", [share(target == c, said == c) for c in range(classes)]))
        wanted.update(by_column("recall", [share(said == c, target == c) for c in range(classes)]))
        return wanted

    CLASS_METRICS = ("accuracy", "top3", "f1", "iou", "precision", "recall", "auroc", "perplexity")

    def test_classes(self):
        for batch in (7, 50, 100, 1):
            output = self.rng.standard_normal((50, 5)).astype("float32")
            target = self.rng.integers(0, 4, 50)  # one class never occurs
            self.check(self.values(output, target, self.CLASS_METRICS, batch), self.wanted_of_classes(output, target))

    def test_ties_and_large_logits(self):
        output = self.rng.integers(0, 3, (64, 4)).astype("float32")
        target = self.rng.integers(0, 4, 64)
        # Probabilities that are mathematically equal differ in their last digits, which changes the area under the curve, so it is left out
        # here (binary columns have ties below).
        metrics = [m for m in self.CLASS_METRICS if m != "auroc"]
        wanted = {name: value for name, value in self.wanted_of_classes(output, target).items() if name.split("/")[0] in metrics}
        self.check(self.values(output, target, metrics, 9), wanted)
        large = (output * 300).astype("float64")
        ours = self.values(large, target, ("perplexity", "accuracy"), 9)
        log_p = large - large.max(1, keepdims=True)
        log_p -= np.log(np.exp(log_p).sum(1, keepdims=True))
        self.check(ours, {"perplexity": float(np.exp(-log_p[np.arange(64), target].mean())),
                          "accuracy": float((large.argmax(1) == target).mean())})

    def test_axes_and_ignored_classes(self):
        target = self.rng.integers(-1, 6, (11, 3, 2))
        kept = target.reshape(-1) >= 0
        middle = self.rng.standard_normal((11, 6, 3, 2)).astype("float32")
        flat = np.moveaxis(middle, 1, -1).reshape(-1, 6)
        self.check(self.values(middle, target, self.CLASS_METRICS, 4, ignore=-1), self.wanted_of_classes(flat[kept], target.reshape(-1)[kept]))
        last = self.rng.standard_normal((11, 3, 2, 6)).astype("float32")
        flat = last.reshape(-1, 6)
        self.check(self.values(last, target, self.CLASS_METRICS, 4, axis=-1, ignore=-1),
                   self.wanted_of_classes(flat[kept], target.reshape(-1)[kept]))

    def test_the_default_ignored_class(self):
        output, target = self.rng.standard_normal((30, 5)).astype("float32"), self.rng.integers(0, 4, 30)
        target[[0, 7, 29]] = -100  # what errors about classes advise for rows to exclude
        kept = target >= 0
        self.check(self.values(output, target, self.CLASS_METRICS, 4), self.wanted_of_classes(output[kept], target[kept]))

    def test_probabilities_as_targets(self):
        """Of one-hot and of soft labels, the class with the largest probability is the right one."""
        for axis, shape in ((1, (30, 5)), (1, (11, 5, 3, 2)), (-1, (11, 3, 2, 5))):
            output = self.rng.standard_normal(shape).astype("float32")
            soft = softmax(self.rng.standard_normal(shape), axis).astype("float32")
            target = soft.argmax(axis)
            one_hot = np.moveaxis(np.eye(5, dtype="float32")[target], -1, axis)
            flat = np.moveaxis(output, axis, -1).reshape(-1, 5)
            for labels in (soft, one_hot):
                self.check(self.values(output, labels, self.CLASS_METRICS, 4, axis=axis, kind="probabilities"),
                           self.wanted_of_classes(flat, target.reshape(-1)))

    def test_yes_or_no(self):
        for shape, axis in (((41, 1), 1), ((41, 6), 1), ((9, 1, 4, 3), 1), ((9, 6, 4, 3), 1), ((9, 4, 3, 6), -1)):
            for threshold in (0, 0.5):
                output = self.rng.standard_normal(shape).astype("float32").round(1)
                yes = self.rng.random(shape) < 0.3
                columns = shape[axis]
                # A column has all positions along the other axes.
                scores, answers = np.moveaxis(output, axis, -1).reshape(-1, columns), np.moveaxis(yes, axis, 0)
                answers[0].flat[0] = True
                if columns > 1:
                    answers[1] = False  # no area
                answers, said = np.moveaxis(yes, axis, -1).reshape(-1, columns), scores > threshold
                areas = [auroc(scores[:, c].astype(np.float64), answers[:, c]) for c in range(columns)]
                wanted = {"accuracy": float((said == answers).mean()), "auroc": mean(areas),
                          "f1": mean([f1(said[:, c], answers[:, c]) for c in range(columns)])}
                wanted.update(by_column("auroc", areas))
                wanted.update(by_column("iou", [iou(said[:, c], answers[:, c]) for c in range(columns)]))
                wanted.update(by_column("precision", [share(answers[:, c], said[:, c]) for c in range(columns)]))
                wanted.update(by_column("recall", [share(said[:, c], answers[:, c]) for c in range(columns)]))
                metrics = ("accuracy", "auroc", "f1", "iou", "precision", "recall")
                ours = self.values(output, yes.astype("float32"), metrics, 8, axis=axis, threshold=threshold)
                self.check(ours, wanted)

    def test_errors(self):
        output = self.rng.standard_normal((33, 4)).astype("float32")
        target = self.rng.standard_normal((33, 4)).astype("float32")
        difference = output.astype("float64") - target
        wanted = {"mse": float((difference**2).mean()), "mae": float(abs(difference).mean()), "rmse": float(np.sqrt((difference**2).mean()))}
        for batch in (10, 33, 1):
            self.check(self.values(output, target, ("mse", "mae", "rmse"), batch), wanted)

    def test_nothing_and_nan(self):
        output = np.full((4, 3), np.nan, "float32")
        ours = self.values(output, np.array([0, 1, 2, 0]), ("accuracy", "auroc", "perplexity"), 2)
        self.assertEqual(ours["accuracy"], 0)
        self.assertIsNone(ours["auroc"])
        self.assertIsNone(ours["perplexity"])
        ours = self.values(np.zeros((4, 3), "float32"), np.full(4, -1), self.CLASS_METRICS, 2, ignore=-1)
        self.assertTrue(all(value is None for value in ours.values()), ours)

    def test_refusals(self):
        for output, target, metrics, code, word in [
            (np.zeros((4, 3), "float32"), np.array([0, 1, 3, 0]), ["accuracy"], 5, "class 3"),
            (np.zeros((4, 3), "float32"), np.array([0, 1, -2, 0]), ["perplexity"], 5, "class -2"),
            (np.zeros((4, 3), "float32"), np.zeros((4, 2), "int64"), ["f1"], 4, "[4,2]"),
            (np.zeros((4,), "float32"), np.zeros((4,), "int64"), ["accuracy"], 4, "axis 1"),
            (np.zeros((4, 3), "float32"), np.zeros((4, 2), "float32"), ["mse"], 4, "[4,2]"),
            (np.zeros((4, 3), "float32"), np.zeros((4, 3), "float32"), ["top5"], 4, "classes"),
            (np.zeros((4, 3), "float32"), np.zeros((4, 3), "float32"), ["perplexity"], 4, "classes"),
            (np.zeros((4, 3), "float32"), np.zeros(4, "int64"), ["acuracy"], 4, "did you mean 'accuracy'"),
            (np.zeros((4, 3), "float32"), np.zeros(4, "int64"), ["top0"], 4, "unknown metric 'top0'"),
        ]:
            done = self.run_print(output, target, metrics, 4)
            self.assertEqual(done.returncode, code, done.stderr)
            self.assertIn(word, done.stderr)


if __name__ == "__main__":
    unittest.main()
