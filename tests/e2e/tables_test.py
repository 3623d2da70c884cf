"""Tables as they come: columns of names, missing numbers, classes by name. Training on them has the same bits as training on arrays in which names
are numbered and missing numbers are NaN."""
import json
import os
import random
import subprocess
import sys
import tempfile
import unittest

import numpy as np
import onnx
import safetensors.numpy
from onnx import TensorProto, helper, numpy_helper

GRADLOOM = os.path.abspath(sys.argv.pop(1))
SEED = random.SystemRandom().randrange(2**32)
COLORS, CITIES, KINDS = ["", "blue", "green", "red"], ["Bonn", "Lima", "Oslo", "Paris", "Rome"], ["setosa", "versicolor", "virginica"]
MISSING = ["", "NA", "n/a", "?", "null", " None ", "nan"]


def models(rng):
    def weight(name, *shape):
        return numpy_helper.from_array((rng.standard_normal(shape) * 0.3).astype("float32"), name)

    def save(path, nodes, inputs, output, weights):
        graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info(*i) for i in inputs], [helper.make_tensor_value_info(*output)], weights)
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)

    save("houses.onnx",
         [helper.make_node("Gather", ["color.weight", "color"], ["c"]), helper.make_node("Gather", ["city.weight", "city"], ["d"]),
          helper.make_node("Reshape", ["d", "shape"], ["e"]), helper.make_node("Concat", ["numbers", "c", "e"], ["all"], axis=1),
          helper.make_node("Gemm", ["all", "fc1.weight", "fc1.bias"], ["h"]), helper.make_node("Tanh", ["h"], ["t"]),
          helper.make_node("Gemm", ["t", "fc2.weight", "fc2.bias"], ["y"])],
         [("numbers", 1, ["N", 3]), ("color", TensorProto.INT64, ["N"]), ("city", TensorProto.INT64, ["N", 1])], ("y", 1, ["N", 2]),
         [weight("color.weight", 4, 4), weight("city.weight", 5, 4), weight("fc1.weight", 11, 8), weight("fc1.bias", 8), weight("fc2.weight", 8, 2),
          weight("fc2.bias", 2), numpy_helper.from_array(np.array([-1, 4]), "shape")])
    save("flowers.onnx", [helper.make_node("Gemm", ["x", "w", "b"], ["logits"])], [("x", 1, ["N", 4])], ("logits", 1, ["N", 3]),
         [weight("w", 4, 3), weight("b", 3)])


def houses(rng, name, rows):
    """NAME.csv, and NAME.npz with the same rows in numbers."""
    numbers = rng.normal(5, 2, (rows, 3)).round(2).astype("float32")
    numbers[rng.random((rows, 3)) < 0.15] = np.nan
    color, city = rng.integers(0, 4, rows), rng.integers(0, 5, rows)
    if name == "train":
        color[:4], city[:5], numbers[5] = range(4), range(5), 1
    targets = np.stack([color + 0.5 * city, city - color], 1).astype("float32")
    with open(name + ".csv", "w") as file:
        file.write("age,income,height,color,city,price,rating\n")
        for row in range(rows):
            cells = [rng.choice(MISSING) if np.isnan(v) else f"{v:.2f}" for v in numbers[row]]
            file.write(",".join([*cells, COLORS[color[row]], CITIES[city[row]], *map(str, targets[row])]) + "\n")
    np.savez(name + ".npz", numbers=numbers, color=color, city=city, target=targets)


def flowers(rng, name, rows):
    kind = np.arange(rows) % 3
    features = rng.normal(kind[:, None], 1, (rows, 4)).round(2)
    with open(name, "w") as file:
        file.write("a,b,c,d,kind\n" + "".join(",".join([*map(str, f), KINDS[k]]) + "\n" for f, k in zip(features, kind)))


class TablesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        print("seed", SEED)
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        os.chdir(folder.name)
        rng = np.random.default_rng(SEED)
        models(rng)
        houses(rng, "train", 90)
        houses(rng, "test", 31)
        flowers(rng, "flowers.csv", 60)
        flowers(rng, "more.csv", 30)

    def run_command(self, words, code=0):
        done = subprocess.run([GRADLOOM, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60)
        self.assertEqual(done.returncode, code, f"{words}\n{done.stderr}")
        return done

    COLUMNS = ["--map", "numbers=age..height", "--map", "color=color", "--map", "city=city", "--map", "target=price,rating"]
    TRAIN = ["train", "houses.onnx", "--loss", "mse(y, target)", "--transform", "numbers=fill mean", "--transform", "numbers=standardize",
             "--metric", "mae", "--epochs", "3", "--lr", "0.01", "--batch", "16", "--progress", "none"]

    def test_names_and_missing_numbers(self):
        done = self.run_command([*self.TRAIN, "--data", "train.csv", "--eval-data", "test.csv", *self.COLUMNS, "--name", "table"])
        self.assertIn("classes color: '', blue, green, red", done.stderr)
        self.assertIn("classes city: Bonn, Lima, Oslo, Paris, Rome", done.stderr)
        self.assertNotIn("warning", done.stderr)
        self.run_command([*self.TRAIN, "--data", "train.npz", "--eval-data", "test.npz", "--name", "arrays"])
        table, arrays = (safetensors.numpy.load_file(f"runs/{name}/state.safetensors") for name in ("table", "arrays"))
        for name, values in arrays.items():
            np.testing.assert_array_equal(table[name], values, err_msg=name)
        # What uses the run reads other tables as it read the training data.
        evaluated = [json.loads(self.run_command(["eval", f"runs/{run}", "--json", *data]).stdout)
                     for run, data in (("arrays", []), ("table", []), ("table", ["--data", "test.csv"]), ("arrays", ["--data", "test.npz"]))]
        for other in evaluated:
            self.assertEqual((other["loss"], other["mae"]), (evaluated[0]["loss"], evaluated[0]["mae"]))
        for run in ("table", "arrays"):
            self.run_command(["predict", f"runs/{run}", "--data", "test.csv" if run == "table" else "test.npz", "-o", f"{run}.npz"])
        np.testing.assert_array_equal(np.load("table.npz")["y"], np.load("arrays.npz")["y"])
        self.run_command(["resume", "runs/table", "--epochs", "4"])
        with open("teal.csv", "w") as file:
            file.write("age,income,height,color,city\n1,2,3,teal,Rome\n")
        error = self.run_command(["predict", "runs/table", "--data", "teal.csv"], 5).stderr
        self.assertIn("'teal' is not a class of the training data\n  --> teal.csv:2:4", error)

    def test_predictions_in_the_units_of_the_target(self):
        words = [*self.TRAIN, "--data", "train.csv", *self.COLUMNS, "--eval-split", "20%"]
        self.run_command([*words, "--transform", "target=scale 1/10", "--transform", "target=standardize", "--name", "units"])
        done = self.run_command(["predict", "runs/units", "--data", "test.csv", "-o", "scaled.npz"])
        self.assertIn("'y' is in the units of the transformed target 'target'; --target-units undoes its transform", done.stderr)
        done = self.run_command(["predict", "runs/units", "--data", "test.csv", "--target-units", "-o", "units.npz"])
        self.assertNotIn("units   ", done.stderr)
        with open("runs/units/data.json") as file:
            first, second = json.load(file)["transforms"]["target"]
        wanted = np.load("scaled.npz")["y"].astype(np.float64)
        for fitted in (second, first):
            wanted = wanted / np.array(fitted["scale"]) + np.array(fitted["shift"])
        np.testing.assert_allclose(np.load("units.npz")["y"], wanted, rtol=1e-5, atol=1e-4)
        self.assertGreater(np.abs(second["shift"]).min(), 0)
        # Without such a target there is nothing to undo.
        self.run_command([*words, "--name", "plain"])
        error = self.run_command(["predict", "runs/plain", "--data", "test.csv", "--target-units"], 4).stderr
        self.assertIn("no loss compares an output with a target that has a transform", error)

    def test_what_is_not_filled_in_is_an_error_with_the_remedy(self):
        words = [word for word in self.TRAIN if word != "numbers=fill mean"]
        words.remove("--transform")
        error = self.run_command([*words, "--data", "train.csv", *self.COLUMNS, "--eval-split", "20%", "--name", "missing"], 5).stderr
        self.assertIn("--transform INPUT='fill mean'", error)
        # An embedding with too few rows.
        columns = [word.replace("color=color", "color=city") for word in self.COLUMNS]
        error = self.run_command([*self.TRAIN, "--data", "train.csv", *columns, "--eval-split", "20%", "--name", "narrow"], 5).stderr
        self.assertIn("color", error)

    def test_other_formats_have_their_own_defaults(self):
        rng = np.random.default_rng(SEED)
        np.savez("flowers.npz", x=rng.normal(size=(9, 4)).astype("float32"), target=np.arange(9) % 3)
        self.run_command(["train", "flowers.onnx", "--data", "flowers.csv", "--eval-data", "flowers.npz", "--epochs", "1", "--name", "formats"])
        own, given = (json.loads(self.run_command(["eval", "runs/formats", "--json", *data]).stdout) for data in ([], ["--data", "flowers.npz"]))
        self.assertEqual({**own, "data": ""}, {**given, "data": ""})
        self.run_command(["predict", "runs/formats", "--data", "flowers.npz", "-o", "formats.npz"])
        # One map replaces one guess.
        os.rename("flowers.npz", "renamed.npz")
        with np.load("renamed.npz") as arrays:
            np.savez("other.npz", features=arrays["x"], target=arrays["target"])
        self.run_command(["predict", "runs/formats", "--data", "other.npz", "--map", "x=features", "-o", "other-made.npz"])
        np.testing.assert_array_equal(np.load("other-made.npz")["logits"], np.load("formats.npz")["logits"])

    def test_an_infinity_leaves_the_run_usable(self):
        x = np.random.default_rng(SEED).normal(size=(60, 4)).astype("float32")
        x[5, 1], x[7, 2] = np.inf, np.nan
        np.savez("infinite.npz", x=x, target=np.arange(60) % 3)
        np.savez("finite.npz", x=x[:1], target=np.zeros(1, int))
        self.run_command(["train", "flowers.onnx", "--data", "infinite.npz", "--transform", "x=fill mean", "--on-nan", "skip", "--epochs", "1",
                          "--name", "infinite"])
        with open("runs/infinite/data.json") as file:
            fitted, = json.load(file)["transforms"]["x"]
        np.testing.assert_allclose(fitted["fill"], np.nanmean(np.where(np.isinf(x), np.nan, x), 0), rtol=1e-5)
        for words in (["predict", "runs/infinite", "--data", "finite.npz"], ["eval", "runs/infinite", "--data", "finite.npz"],
                      ["resume", "runs/infinite", "--epochs", "2"]):
            self.run_command(words)

    def test_a_run_evaluates_classes_by_name_on_its_own_data(self):
        data = ["--data", "flowers.csv", "--epochs", "5", "--lr", "0.05", "--metric", "accuracy", "--metric", "recall"]
        self.run_command(["train", "flowers.onnx", *data, "--eval-data", "more.csv", "--name", "given"])
        own, said = (json.loads(self.run_command(["eval", "runs/given", "--json", *words]).stdout) for words in ([], ["--data", "more.csv"]))
        self.assertEqual({**own, "data": ""}, {**said, "data": ""})
        trained = json.loads(self.run_command(["train", "flowers.onnx", *data, "--eval-split", "20%", "--name", "split", "--json"]).stdout)
        split = json.loads(self.run_command(["eval", "runs/split", "--json"]).stdout)
        self.assertEqual(split["rows"], 12)
        for metric in ("accuracy", "recall", "recall/0", "recall/1", "recall/2"):
            self.assertEqual(split[metric], trained["eval_" + metric], metric)


    def test_a_resumed_run_records_what_it_trains_with(self):
        words = ["--data", "measured.csv", "--eval-data", "more.csv", "--map", "kind=kind", "--loss", "cross_entropy(logits, kind)"]
        warning = "warning the run goes on with other inputs or targets than it has trained with: "

        def write(scale):
            with open("flowers.csv") as file, open("measured.csv", "w") as changed:
                changed.write(file.readline())
                for line in file:
                    first, rest = line.split(",", 1)
                    changed.write(f"{float(first) * scale},{rest}")

        def check():
            """The run's last evaluation, and those by what it has recorded."""
            with open("runs/measured/results.csv") as file:
                last = float(file.read().split()[-1].split(",")[-1])
            for data in ([], ["--data", "more.csv"]):
                loss = json.loads(self.run_command(["eval", "runs/measured", "--json", *data]).stdout)["loss"]
                self.assertAlmostEqual(loss, last, delta=1e-5, msg=data)

        write(1)
        self.run_command(["train", "flowers.onnx", *words, "--map", "x=a..d", "--epochs", "1", "--name", "measured"])
        said = self.run_command(["resume", "runs/measured", "--epochs", "2", "--transform", "x=standardize"]).stderr
        self.assertIn(warning + "the transforms of 'x';", said)
        check()
        said = self.run_command(["train", "flowers.onnx", *words, "--epochs", "3", "--name", "measured", "--resume", "auto",
                                 "--transform", "x=standardize", "--map", "x=d,c,b,a"]).stderr
        self.assertIn(warning + "the columns of 'x', the transforms of 'x';", said)
        check()
        # Without an option, other numbers are measured if the file has them.
        self.assertNotIn(warning, self.run_command(["resume", "runs/measured", "--epochs", "4"]).stderr)
        write(10)
        self.assertIn(warning + "the transforms of 'x';", self.run_command(["resume", "runs/measured", "--epochs", "5"]).stderr)
        check()
        self.assertNotIn(warning, self.run_command(["resume", "runs/measured", "--from", "start"]).stderr)

    def test_a_run_is_evaluated_as_it_was_trained(self):
        """Whatever classes, transforms and rows its files would have by now."""
        with open("flowers.csv") as file:
            table = file.read()
        words = ["--data", "changing.csv", "--loss", "cross_entropy(logits, kind)", "--transform", "x=standardize", "--epochs", "2"]

        def write(more=""):
            with open("changing.csv", "w") as file:
                file.write(table + more)

        def evaluated(run):
            return self.run_command(["eval", run, "--json"]).stdout

        write()
        self.run_command(["train", "flowers.onnx", *words, "--eval-split", "25%", "--name", "held"])
        self.run_command(["train", "flowers.onnx", *words, "--eval-data", "more.csv", "--name", "own"])
        held, own = evaluated("runs/held"), evaluated("runs/own")
        write("1,2,3,4,setosa\n1e6,2,3,4,setosa\n")
        error = self.run_command(["eval", "runs/held"], 5).stderr
        self.assertIn("has changed: the data had 60 rows, now it has 62", error)
        self.assertIn("--data test.csv", error)
        self.assertEqual(evaluated("runs/own"), own)
        write("1,2,3,4,acetosa\n")
        self.assertIn("'acetosa' is not a class of the training data", self.run_command(["eval", "runs/held"], 5).stderr)
        self.assertEqual(evaluated("runs/own"), own)
        os.remove("changing.csv")
        self.assertEqual(evaluated("runs/own"), own)
        write()
        self.assertEqual(evaluated("runs/held"), held)
        # Older releases recorded less.
        with open("runs/held/data.json") as file:
            recorded = json.load(file)
        self.assertEqual(recorded.pop("rows"), 60)
        with open("runs/held/data.json", "w") as file:
            json.dump(recorded, file)
        self.assertEqual(evaluated("runs/held"), held)


if __name__ == "__main__":
    unittest.main()
