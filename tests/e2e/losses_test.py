"""Losses of a run: several terms, what is recorded of each, and the loss that a model computes itself."""
import json
import os
import subprocess
import sys
import unittest

import onnx

GRADLOOM = os.path.abspath(sys.argv.pop(1))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import sample_files  # noqa: E402


class LossesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        sample_files.in_folder_of(cls)

    def run_command(self, words, code=0):
        done = subprocess.run([GRADLOOM, *words], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, code, f"{words}\n{done.stderr}")
        return done

    def test_a_model_that_computes_its_loss(self):
        text = f"""<ir_version: 8, opset_import: ["" : 17]> g (float[N, 4] x, int64[N] target) => (float loss, float[N, 3] y) <float[4, 3] w = {{{", ".join(["0.1", "-0.2"] * 6)}}}>
            {{ y = MatMul (x, w)  loss = SoftmaxCrossEntropyLoss (y, target) }}"""
        onnx.save(onnx.parser.parse_model(text), "own_loss.onnx")
        data = ["--data", "train.csv", "--map", "x=a..d", "--map", "target=label", "--eval-split", "20%", "--epochs", "3", "--lr", "0.05", "--report", "json"]
        guessed = self.run_command(["train", "own_loss.onnx", *data, "--name", "guessed"])
        self.assertIn("output(loss)   [guessed, because the output is a single number:", guessed.stderr)
        self.run_command(["init", "own_loss.onnx", "-o", "own_loss.toml"])
        self.assertIn(b'name = "output(loss)"', sample_files.read("own_loss.toml"))
        losses = [json.loads(guessed.stdout)["eval_loss"]]
        for loss, more in (("output(loss)", []), ("cross_entropy(y, label)", ["--map", "label=label"])):
            done = self.run_command(["train", "own_loss.onnx", *data, *more, "--loss", loss, "--name", loss[:6]])
            losses.append(json.loads(done.stdout)["eval_loss"])
        self.assertEqual(losses[0], losses[1])
        self.assertAlmostEqual(losses[0], losses[2], delta=1e-5)

    def test_forms_of_probabilities(self):
        """An output that is another name of a softmax and, of two classes, both probabilities of one score, as skl2onnx writes them."""
        for scores, last, guess in ((3, "s = Softmax (z)  y = Identity (s)", "cross_entropy_of_probabilities"),
                                    (1, "p = Sigmoid (z)  q = Sub (one, p)  y = Concat <axis = 1> (q, p)", "cross_entropy_of_probabilities"),
                                    (1, "n = Neg (z)  s = Concat <axis = 1> (n, z)  y = Sigmoid (s)", "cross_entropy_of_probabilities"),
                                    (1, "s = Concat <axis = 1> (z, z)  y = Sigmoid (s)", "bce"),
                                    (1, "p = Sigmoid (z)  y = Concat <axis = 1> (p, p)", "cross_entropy")):
            with self.subTest(last):
                text = f"""<ir_version: 8, opset_import: ["" : 17]> g (float[N, 4] x) => (float[N, {max(scores, 2)}] y)
                    <float[4, {scores}] w = {{{", ".join(["0.1"] * 4 * scores)}}}, float one = {{1.0}}> {{ z = MatMul (x, w)  {last} }}"""
                onnx.save(onnx.parser.parse_model(text), "probabilities.onnx")
                self.assertIn(f"loss    {guess}(y, target)   [guessed from", self.run_command(["check", "probabilities.onnx", "--batch", "4"]).stdout)

    def test_export_of_one_output(self):
        text = """<ir_version: 8, opset_import: ["" : 17]> g (float[N, 4] x) => (float[N, 1] a, float[N, 1] b)
            <float[4, 1] v = {1, 2, 3, 4}, float[4, 1] w = {4, 3, 2, 1}> { a = MatMul (x, v)  b = MatMul (x, w) }"""
        onnx.save(onnx.parser.parse_model(text), "two.onnx")
        self.run_command(["train", "two.onnx", "--data", "train.csv", "--map", "x=a..d", "--map", "t=label", "--loss", "mse(a, t)", "--loss", "mse(b, t)",
                          "--epochs", "1", "--name", "two"])
        whole = {value.name: value for value in onnx.load("runs/two/export/model.onnx").graph.initializer}
        self.run_command(["export", "runs/two", "--outputs", "b", "-o", "one.onnx"])
        model = onnx.load("one.onnx")
        onnx.checker.check_model(model, full_check=True)
        self.assertEqual([output.name for output in model.graph.output], ["b"])
        self.assertEqual(list(model.graph.initializer), [whole["w"]])
        self.run_command(["export", "runs/two", "--outputs", "b", "--outputs", "a", "-o", "both.onnx"])
        self.assertEqual([output.name for output in onnx.load("both.onnx").graph.output], ["a", "b"])
        self.assertIn("'c'", self.run_command(["export", "runs/two", "--outputs", "c", "-o", "none.onnx"], 4).stderr)
        self.run_command(["export", "runs/two", "--outputs", "b", "-o", "b.safetensors"], 4)
        self.run_command(["export", "runs/two", "--outputs", "b", "--training", "-o", "b.onnx"], 4)

    def test_one_metric_on_several_outputs(self):
        text = """<ir_version: 8, opset_import: ["" : 17]> g (float[N, 4] x) => (float[N, 1] a, float[N, 1] b)
            <float[4, 1] v = {1, 2, 3, 4}, float[4, 1] w = {4, 3, 2, 1}> { a = MatMul (x, v)  b = MatMul (x, w) }"""
        onnx.save(onnx.parser.parse_model(text), "heads.onnx")
        words = ["train", "heads.onnx", "--data", "train.csv", "--map", "x=a..d", "--map", "t=label", "--map", "u=a", "--loss", "mse(a, t)", "--loss", "mse(b, u)",
                 "--eval-split", "20%", "--epochs", "2", "--name", "heads"]
        metrics = ["--metric", "rmse(a, t)", "--metric", "rmse(b, u)", "--metric", "rmse(a, t)", "--metric", "mae(a, t)"]
        self.run_command([*words, *metrics])
        names = ["loss", "loss/a", "loss/b", "rmse/a", "rmse/b", "mae"]
        header, *rows = sample_files.read("runs/heads/results.csv").decode().splitlines()
        self.assertTrue(header.endswith("," + ",".join(f"eval/{name}" for name in names)), header)
        a, b = (float(rows[-1].split(",")[header.split(",").index(f"eval/rmse/{name}")]) for name in "ab")
        loss = float(rows[-1].split(",")[header.split(",").index("eval/loss")])
        self.assertAlmostEqual(a * a + b * b, loss, delta=1e-4 * loss)
        self.assertEqual(set(json.loads(self.run_command(["eval", "runs/heads", "--json"]).stdout)) & {*names, "rmse"}, set(names))
        # The first metric determines the best checkpoint by default, but any of them can.
        self.assertIn("best eval/rmse/a ", self.run_command(["resume", "runs/heads", "--epochs", "3"]).stderr)
        self.assertIn("best eval/rmse/b ", self.run_command([*words[:-1], "by_b", *metrics, "--best", "eval/rmse/b:min"]).stderr)
        self.assertIn("eval/rmse/a, eval/rmse/b", self.run_command([*words[:-1], "by_none", *metrics, "--best", "eval/rmse:min"], 4).stderr)
        # Names of outputs written by TensorFlow contain colons.
        model = onnx.load("heads.onnx")
        model.graph.node[1].output[0] = "b:0"
        model.graph.output[1].name = "b:0"
        onnx.save(model, "colon.onnx")
        words = [word.replace("heads", "colon").replace("mse(b,", "mse(b:0,") for word in words]
        metrics = [word.replace("(b,", "(b:0,") for word in metrics]
        self.assertIn("best eval/rmse/b:0 ", self.run_command([*words, *metrics[2:], "--best", "eval/rmse/b:0:min"]).stderr)
        self.assertIn("best eval/rmse/b:0 ", self.run_command([*words[:-1], "first", *metrics[2:6]]).stderr)

    def test_targets_named_like_outputs(self):
        """Wherever a name is written, the loss, a metric, the data or a prediction says whether it is that of an output or of a target."""
        text = """<ir_version: 8, opset_import: ["" : 17]> g (float[N, 4] x) => (float[N, 1] %s, float[N, 3] s, int64[N] label)
            <float[4, 1] v = {1, 2, 3, 4}, float[4, 3] w = {%s}> { %s = MatMul (x, v)  s = MatMul (x, w)  label = ArgMax <axis = 1, keepdims = 0> (s) }"""
        weights = ", ".join(["0.1", "-0.2"] * 6)
        onnx.save(onnx.parser.parse_model(text % ("y", weights, "y")), "same.onnx")
        onnx.save(onnx.parser.parse_model(text % ("value", weights, "value")), "other.onnx")
        reports = []
        for name, value in (("same", "y"), ("other", "value")):
            words = ["--loss", f"mse({value}, y)", "--loss", "cross_entropy(s, label)", "--metric", f"rmse({value}, y)", "--metric", "accuracy(s, label)"]
            done = self.run_command(["train", f"{name}.onnx", "--data", "train.csv", "--map", "x=a..d", "--map", "y=c", "--transform", "y=standardize",
                                     "--map", "label=label", *words, "--eval-split", "20%", "--epochs", "2", "--name", name, "--report", "json"])
            report = {key.replace("value", "y"): number for key, number in json.loads(done.stdout).items() if "loss" in key or "rmse" in key or "accuracy" in key}
            self.run_command(["resume", f"runs/{name}", "--epochs", "3"])
            evaluated = json.loads(self.run_command(["eval", f"runs/{name}", "--confusion", "--json"]).stdout)
            predict = ["predict", f"runs/{name}", "--data", "train.csv"]
            predicted, units = (json.loads(self.run_command([*predict, *more]).stdout) for more in ([], ["--target-units"]))
            self.assertEqual(set(predicted), {value, "s", "label"})
            self.assertNotEqual(predicted[value], units[value])
            classes = json.loads(self.run_command([*predict, "--classes"]).stdout)
            self.assertEqual(set(classes), {value, "label", "label.probability"})
            self.assertEqual(classes["label"], predicted["label"])
            both = json.loads(self.run_command([*predict, "--probabilities"]).stdout)
            self.assertEqual(both["label"], predicted["label"])
            reports.append((report, evaluated["rmse"], evaluated["confusion"], predicted[value], units[value], both["label.1"]))
        self.assertGreater(len(reports[0][0]), 5)
        self.assertEqual(*reports)
        # Classes take the place of the scores that have the name of their target.
        text = """<ir_version: 8, opset_import: ["" : 17]> g (float[N, 4] x) => (float[N, 3] label) <float[4, 3] w = {%s}> { label = MatMul (x, w) }"""
        onnx.save(onnx.parser.parse_model(text % weights), "scores.onnx")
        self.run_command(["train", "scores.onnx", "--data", "train.csv", "--loss", "cross_entropy(label, label)", "--epochs", "1", "--name", "scores"])
        predict = ["predict", "runs/scores", "--data", "train.csv"]
        scores, classes = (json.loads(self.run_command([*predict, *more]).stdout) for more in ([], ["--classes"]))
        self.assertEqual(classes["label"], [row.index(max(row)) for row in scores["label"]])

    def test_terms_of_a_loss(self):
        text = """<ir_version: 8, opset_import: ["" : 17]> g (float[N, 4] x) => (float[N, 1] a, float[N, 1] b)
            <float[4, 1] v = {1, 2, 3, 4}, float[4, 1] w = {4, 3, 2, 1}> { a = MatMul (x, v)  b = MatMul (x, w) }"""
        onnx.save(onnx.parser.parse_model(text), "terms.onnx")
        words = ["train", "terms.onnx", "--data", "train.csv", "--map", "x=a..d", "--map", "t=label", "--map", "u=a", "--loss", "mse(a, t)*0.5",
                 "--loss", "mse(b, u)", "--eval-split", "20%", "--batch", "8", "--best", "eval/loss/b:min", "--report", "json"]
        parts = ["loss/a", "loss/b"]
        done = self.run_command([*words, "--log-every", "2", "--epochs", "3", "--name", "terms", "--metric", "rmse(a, t)", "--metric", "rmse(b, u)"])
        report = json.loads(done.stdout)
        for split in ("train", "eval"):
            self.assertAlmostEqual(report[f"{split}_loss"], sum(report[f"{split}_{part}"] for part in parts), places=4)
        self.assertAlmostEqual(report["eval_loss/a"], 0.5 * report["eval_rmse/a"] ** 2, places=4)
        self.assertAlmostEqual(report["eval_loss/b"], report["eval_rmse/b"] ** 2, places=4)
        self.assertRegex(done.stderr, r"epoch +train loss +train loss/a +train loss/b +eval loss +eval loss/a +eval loss/b +eval rmse/a")
        self.assertRegex(done.stderr, r" step=2 epoch=\S+ loss=\S+ loss/a=\S+ loss/b=\S+ lr=")
        self.assertIn("best eval/loss/b ", done.stderr)
        lines = [json.loads(line) for line in sample_files.read("runs/terms/metrics.jsonl").splitlines()]
        self.assertEqual({line["split"] for line in lines}, {"train", "eval"})
        for line in lines:
            self.assertAlmostEqual(line["loss"], sum(line[part] for part in parts), places=4)
        header, *rows = sample_files.read("runs/terms/results.csv").decode().splitlines()
        self.assertTrue(header.startswith("epoch,step,time,train/loss,lr,samples_per_s,train/loss/a,train/loss/b,eval/loss,eval/loss/a,eval/loss/b,"),
                        header)
        self.assertEqual(float(rows[-1].split(",")[7]), report["train_loss/b"])
        (events,) = [name for name in os.listdir("runs/terms") if name.startswith("events")]
        for part in parts:
            for split in ("train", "eval"):
                self.assertIn(f"{split}/{part}".encode(), sample_files.read(f"runs/terms/{events}"))
        self.assertEqual({name for name in json.loads(self.run_command(["eval", "runs/terms", "--json"]).stdout) if name.startswith("loss")},
                         {"loss", *parts})
        # A run that goes on within an epoch, and between two lines, goes on with its sums.
        self.run_command([*words[:-2], "--steps", "9", "--name", "part", "--log-every", "4", "--save-every", "3"])

        def recorded():
            lines = [json.loads(line) for line in sample_files.read("runs/part/metrics.jsonl").splitlines()]
            rows = [row.split(b",") for row in sample_files.read("runs/part/results.csv").splitlines()]
            return [[line[name] for name in ("step", "split", "loss", *parts)] for line in lines], [row[1:2] + row[3:5] + row[6:] for row in rows]

        whole = recorded()
        self.assertIn([4, "train"], [line[:2] for line in whole[0]])
        self.run_command(["resume", "runs/part", "--from", "step-000003"])
        self.assertEqual(recorded(), whole)
        # JSON on stderr, and devices that have a term each.
        done = self.run_command([*words, "--log-every", "2", "--steps", "4", "--name", "placed", "--devices", "cpu:2", "--place", "w=cpu:1", "--log-format", "json"])
        placed = [line for line in map(json.loads, done.stderr.splitlines()) if line.get("split") == "train"]
        self.assertEqual([line["step"] for line in placed], [2, 4])
        for line in placed:
            self.assertAlmostEqual(line["loss"], sum(line[part] for part in parts), places=4)


if __name__ == "__main__":
    unittest.main()
