"""What data is checked for before a run trains on it: rows of embeddings, the numbers for which a loss or a metric is defined, the shapes of
targets. And what a run keeps that meets the rest in its middle."""
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

import numpy as np
import onnx
import onnx.parser
import safetensors.numpy

GRADLOOM = os.path.abspath(sys.argv.pop(1))
HEAD = '<ir_version: 8, opset_import: ["" : 17]> '


def numbers(count):
    return ", ".join(f"{0.01 * (i % 17 - 8):.2f}" for i in range(count))


def save(path, text):
    onnx.save(onnx.parser.parse_model(HEAD + text), path)


def models():
    # `of`: how the indices are computed of the input.
    for name, of in (("emb", "at = Reshape (ids, flat)"), ("computed", "at = Sub (ids, none)")):
        save(name + ".onnx", f"""g (int64[N, 4] ids) => (float[N, 3] y)
            <float[50, 8] table = {{{numbers(400)}}}, float[32, 3] w = {{{numbers(96)}}}, int64[2] flat = {{-1, 4}}, int64[1] none = {{0}}>
            {{ {of}  e = Gather (table, at)  f = Flatten (e)  y = MatMul (f, w) }}""")
    save("language.onnx", f"""g (int64[N, 4] ids) => (float[N, 4, 50] logits)
        <float[50, 8] table = {{{numbers(400)}}}, float[8, 50] w = {{{numbers(400)}}}> {{ e = Gather (table, ids)  logits = MatMul (e, w) }}""")
    for name, last, columns in (("linear", "Identity", 1), ("two", "Identity", 2), ("sigmoid", "Sigmoid", 1), ("softmax", "Softmax", 2),
                                ("log", "LogSoftmax", 2)):
        save(name + ".onnx", f"""g (float[N, 4] x) => (float[N, {columns}] y)
            <float[4, {columns}] w = {{{numbers(4 * columns)}}}> {{ h = MatMul (x, w)  y = {last} (h) }}""")
    # A text of at most 6 positions.
    save("positions.onnx", f"""g (float[N, seq, 4] x) => (float[N, 4] y) <float[1, 6, 4] p = {{{numbers(24)}}}, int64[1] zero = {{0}},
        int64[1] one = {{1}}, int64[1] two = {{2}}>
        {{ s = Shape (x)  n = Slice (s, one, two)  q = Slice (p, zero, n, one)  h = Add (x, q)  y = ReduceMean <axes = [1], keepdims = 0> (h) }}""")


class DataChecksTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        before = os.getcwd()
        os.chdir(self.folder)
        self.addCleanup(os.chdir, before)
        models()
        rng = np.random.default_rng(0)
        self.ids = rng.integers(0, 50, (40, 4))
        self.label = rng.integers(0, 3, 40)
        self.x = rng.standard_normal((40, 4)).astype("float32")
        self.bits = (self.x[:, :1] > 0).astype("float32")

    def tokens(self, name, **changes):
        ids = self.ids.copy()
        for row, value in changes.items():
            ids[int(row[1:]), 2] = value
        np.savez(name, ids=ids, label=self.label)

    def command(self, *words, code=0):
        done = subprocess.run([GRADLOOM, *words, *(["--progress", "none", "--threads", "1"] if words[0] in ("train", "resume") else [])],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120)
        self.assertEqual(done.returncode, code, done.stderr)
        return done.stderr

    def refused(self, code, *words):
        said = self.command(*words, code=code)
        error = said[said.rindex("error["):]
        self.assertFalse(os.path.exists("runs"), "a folder of a run is left: " + error)
        return error

    def expect(self, error, *words):
        for word in words:
            self.assertIn(word, error)

    def data(self, target, name="d.npz"):
        np.savez(name, x=self.x, t=np.asarray(target))
        return name

    # ---- Indices

    def train(self, model, *words, name="run"):
        return ["train", model, "--loss", "cross_entropy(y, label)", "--batch", "8", "--name", name, *words]

    def test_an_index_out_of_range_is_found_before_the_run(self):
        self.tokens("good.npz")
        self.tokens("bad.npz", r7=55)
        for words in (["--data", "bad.npz"], ["--data", "good.npz", "--eval-data", "bad.npz"]):
            self.expect(self.refused(5, *self.train("emb.onnx", *words)), "row 7 (counted from 0) has 55 in 'ids'", "0 to 49", "--> bad.npz")
        self.command(*self.train("emb.onnx", "--data", "good.npz"))
        error = self.command("predict", "runs/run", "--data", "bad.npz", "-o", "p.npz", code=5)
        self.expect(error, "row 7 (counted from 0) has 55 in 'ids'")
        np.savetxt("bad.csv", np.c_[np.load("bad.npz")["ids"], self.label], fmt="%d", delimiter=",", header="a,b,c,d,label", comments="")
        shutil.rmtree("runs")
        words = ["--map", "ids=a..d", "--map", "label=label"]
        self.expect(self.refused(5, *self.train("emb.onnx", "--data", "bad.csv", *words)), "row 7 (counted from 0) has 55 in 'ids'")

    def test_negative_indices_count_from_the_end_with_a_warning(self):
        self.tokens("negative.npz", r7=-1)
        self.expect(self.command(*self.train("emb.onnx", "--data", "negative.npz")), "warning 'ids' has -1 in row 7", "row 49 of a weight")
        self.tokens("negative.npz", r7=-51)
        shutil.rmtree("runs")
        self.expect(self.refused(5, *self.train("emb.onnx", "--data", "negative.npz")), "row 7", "-51")

    def state(self, run):
        return safetensors.numpy.load_file(os.path.join(run, "state.safetensors"))

    def check_same(self, run, other):
        ours, theirs = self.state(run), self.state(other)
        self.assertEqual(sorted(ours), sorted(theirs))
        for name in ours:
            np.testing.assert_array_equal(ours[name], theirs[name], name)

    def test_a_failed_evaluation_loses_no_step(self):
        self.tokens("good.npz")
        self.tokens("eval.npz", r7=55)
        words = ["computed.onnx", "--data", "good.npz", "--eval-data", "eval.npz", "--epochs", "2"]
        error = self.command(*self.train(*words), code=5)
        self.expect(error, "saved   runs/run/checkpoints/step-000005", "before the failure", "index 55 is out of range for an axis of 50",
                    "batch 1 of the evaluation")
        # The evaluation is still due.
        self.command("resume", "runs/run", code=5)
        self.tokens("eval.npz")
        self.command("resume", "runs/run")
        self.command(*self.train(*words, name="unbroken"))
        self.check_same("runs/run", "runs/unbroken")

    def test_a_failed_step_keeps_the_steps_before_it(self):
        self.tokens("train.npz", r27=55)
        words = ["computed.onnx", "--data", "train.npz", "--epochs", "1", "--no-shuffle", "--optimizer", "adam"]
        error = self.command(*self.train(*words), code=5)
        self.expect(error, "saved   runs/run/checkpoints/step-000003", "batch 4 of epoch 1")
        self.tokens("train.npz")
        self.assertIn("step 3", self.command("resume", "runs/run"))
        self.command(*self.train(*words, name="unbroken"))
        self.check_same("runs/run", "runs/unbroken")

    # ---- Targets

    def test_targets_that_a_loss_is_not_meant_for(self):
        price = self.x[:, :1] * 5 + 24
        for loss, model, target, says in (("bce_with_logits", "linear", price, "between 0 and 1"), ("bce", "sigmoid", price, "between 0 and 1"),
                                          ("sigmoid_focal", "linear", price, "between 0 and 1"), ("hinge", "linear", price, "between -1 and 1"),
                                          ("soft_margin", "linear", price, "between -1 and 1"), ("poisson_nll", "linear", -price, "0 or more"),
                                          ("kl_div", "log", np.c_[price, price], "between 0 and 1")):
            said = self.command("train", model + ".onnx", "--data", self.data(target), "--loss", f"{loss}(y, t)", "--dry-run")
            self.expect(said, "warning 't' has ", f"but {loss} is meant for targets {says}: ")
        # What the loss gets counts.
        scaled = ["train", "linear.onnx", "--data", self.data(price), "--loss", "bce_with_logits(y, t)", "--dry-run", "--transform"]
        self.assertNotIn("warning", self.command(*scaled, "t=scale 1/100"))
        self.expect(self.command("train", "linear.onnx", "--data", self.data(self.bits), "--loss", "hinge(y, t)", "--dry-run"),
                    "warning 't' has 0, for which", "trains nothing")
        for target, loss in ((2 * self.bits - 1, "hinge"), (self.bits, "bce_with_logits")):
            self.assertNotIn("warning", self.command("train", "linear.onnx", "--data", self.data(target), "--loss", f"{loss}(y, t)", "--dry-run"))

    def test_a_loss_of_another_kind_of_output_warns(self):
        classes, half = self.bits[:, 0].astype("int64"), np.full((40, 2), 0.5, "float32")
        warned = (("two", "nll(y, t)", classes, "log-probabilities", "cross_entropy'"), ("linear", "bce(y, t)", self.bits, "probabilities", "bce_with_logits'"),
                  ("two", "cross_entropy_of_probabilities(y, t)", classes, "probabilities", "cross_entropy'"),
                  ("two", "kl_div(y, t)", half, "log-probabilities", "cross_entropy(..., probabilities=true)'"),
                  ("softmax", "nll(y, t)", classes, "log-probabilities", "cross_entropy_of_probabilities'"),
                  ("sigmoid", "bce_with_logits(y, t)", self.bits, "scores", "bce'"))
        for model, loss, target, expects, instead in warned:
            said = self.command("train", model + ".onnx", "--data", self.data(target), "--loss", loss, "--dry-run")
            self.expect(said, f"warning {loss[:loss.index('(')]} expects {expects}, but the output 'y' is a", f"--loss '{instead}")
        for model, loss, target in (("log", "nll(y, t)", classes), ("sigmoid", "bce(y, t)", self.bits), ("log", "kl_div(y, t)", half),
                                    ("two", "cross_entropy(y, t)", classes), ("softmax", "cross_entropy_of_probabilities(y, t)", classes)):
            self.assertNotIn("warning", self.command("train", model + ".onnx", "--data", self.data(target), "--loss", loss, "--dry-run"))

    def test_metrics_of_decisions_need_targets_of_decisions(self):
        price = ["train", "linear.onnx", "--data", self.data(self.x[:, :1] * 5 + 24), "--loss", "mse(y, t)", "--eval-split", "20%"]
        for metric in ("accuracy", "f1", "auroc", "iou"):
            self.expect(self.refused(4, *price, "--metric", metric), f"{metric} needs a target of classes, or of yes and no as 1 and 0", "'t'", "rmse")
        self.command(*price, "--metric", "rmse")
        yes = ["train", "linear.onnx", "--data", self.data(self.bits), "--loss", "mse(y, t)", "--eval-split", "20%"]
        self.command(*yes, "--metric", "accuracy", "--metric", "auroc")
        soft = ["train", "linear.onnx", "--data", self.data(self.bits * 0.8 + 0.1), "--loss", "bce_with_logits(y, t)", "--eval-split", "20%"]
        self.command(*soft, "--metric", "accuracy")

    def test_labels_of_another_form_name_the_loss_for_them(self):
        one_hot = np.eye(2, dtype="float32")[self.bits[:, 0].astype(int)]
        words = ["train", "two.onnx", "--data", self.data(one_hot), "--loss"]
        self.expect(self.refused(2, *words, "cross_entropy(y, t)"), "--loss 'cross_entropy(y, t, probabilities=true)'")
        self.command(*words, "cross_entropy(y, t, probabilities=true)")
        shutil.rmtree("runs")
        words = ["train", "sigmoid.onnx", "--data", self.data(self.bits[:, 0].astype("int64")), "--loss", "cross_entropy(y, t)"]
        self.expect(self.refused(5, *words), "one score for each sample", "bce_with_logits(y, t)", "or bce")

    def test_tokens_for_a_language_model(self):
        np.tile(np.arange(50, dtype="<u2"), 9).tofile("tokens.bin")
        words = ["train", "language.onnx", "--data", "tokens.bin"]
        right = "--loss 'cross_entropy(logits, target, class_axis=2)'"
        self.expect(self.refused(4, *words, "--loss", "cross_entropy"), "rows of 4 tokens", "rows of 50", right)
        self.expect(self.refused(2, *words), "the loss mse(logits, target) was guessed", right)
        self.command(*words, "--loss", "cross_entropy(logits, target, class_axis=2)")

    def test_a_text_longer_than_the_model(self):
        np.savez("long.npz", x=np.zeros((8, 9, 4), "float32"), t=np.zeros((8, 4), "float32"))
        self.expect(self.refused(2, "train", "positions.onnx", "--data", "long.npz", "--loss", "mse(y, t)"), "seq=9", "'long.npz'")

    def test_the_batch_by_its_symbol(self):
        words = ["train", "linear.onnx", "--data", self.data(self.bits), "--loss", "mse(y, t)", "--eval-split", "25%", "--shape"]
        self.assertIn("batch 7", self.command(*words, "N=7", "--name", "run"))  # 30 rows: the last batch has two
        self.command("eval", "runs/run")
        self.command("resume", "runs/run", "--epochs", "12")
        self.expect(self.command(*words, "N=7", "--batch", "8", code=4), "--shape N=7 contradicts --batch 8")


if __name__ == "__main__":
    unittest.main()
