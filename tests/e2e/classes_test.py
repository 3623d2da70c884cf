"""What a classifier says of each class: predictions by name, of images with their files, and the confusion matrix; recomputed with numpy and
onnxruntime."""
import csv
import json
import os
import random
import re
import subprocess
import sys
import unittest

import numpy as np
import onnx
import onnxruntime
import PIL.Image
from onnx import helper

GRADLOOM = os.path.abspath(sys.argv.pop(1))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import sample_files  # noqa: E402

onnxruntime.disable_telemetry_events()
SEED = int(os.environ.get("GRADLOOM_SEED", random.SystemRandom().randrange(1 << 31)))
CLASSES = ["big horse", "cat, small", "dög"]


def softmax(scores, axis=1):
    exponentials = np.exp(scores - scores.max(axis, keepdims=True))
    return exponentials / exponentials.sum(axis, keepdims=True)


def linear_model(path, inputs, outputs, rng, activation="Identity", per_position=False):
    """x [N, inputs] to scores [N, outputs], or of images x [N, inputs, H, W] to [N, outputs, H, W]."""
    weights = rng.standard_normal((outputs, inputs, 1, 1) if per_position else (inputs, outputs)).astype("float32")
    nodes = [helper.make_node("Conv", ["x", "w"], ["z"]) if per_position else helper.make_node("MatMul", ["x", "w"], ["z"]),
             helper.make_node(activation, ["z"], ["scores"])]
    extents = [4, 5] if per_position else []
    graph = helper.make_graph(nodes, "linear", [helper.make_tensor_value_info("x", 1, ["N", inputs, *extents])],
                              [helper.make_tensor_value_info("scores", 1, ["N", outputs, *extents])], [onnx.numpy_helper.from_array(weights, "w")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


class ClassesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = sample_files.in_folder_of(cls)
        print("seed", SEED)
        rng = np.random.default_rng(SEED)
        for part, count in (("photos", 8), ("new", 3)):
            for label, name in enumerate(CLASSES):
                folder = f"{part}/{name}" if part == "photos" else part
                os.makedirs(folder, exist_ok=True)
                for i in range(count):
                    pixels = rng.integers(0, 150, (6, 5, 3))
                    pixels[..., label] += 100
                    PIL.Image.fromarray(pixels.astype("uint8")).save(f"{folder}/{label} {i}.png")
        flat = helper.make_node("Flatten", ["x"], ["f"])
        weights = onnx.numpy_helper.from_array(rng.standard_normal((90, 3)).astype("float32") / 10, "w")
        graph = helper.make_graph([flat, helper.make_node("MatMul", ["f", "w"], ["scores"])], "images",
                                  [helper.make_tensor_value_info("x", 1, ["N", 3, 6, 5])],
                                  [helper.make_tensor_value_info("scores", 1, ["N", 3])], [weights])
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), "images.onnx")
        cls.run_command(cls, ["train", "images.onnx", "--data", "photos", "--transform", "x=scale 1/255", "--loss", "cross_entropy(scores, label)",
                              "--epochs", "2", "--progress", "none", "--name", "images"])

    def setUp(self):
        self.rng = np.random.default_rng(SEED)

    def run_command(self, words, code=0):
        done = subprocess.run([GRADLOOM, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60)
        if done.returncode != code:
            raise AssertionError(f"{words}: exit {done.returncode}, not {code}\n{done.stderr}")
        return done

    def json(self, words):
        return json.loads(self.run_command(words).stdout)

    def rows(self, path):
        with open(path, encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))

    def scores_of_images(self, files):
        pixels = np.stack([np.asarray(PIL.Image.open(file)) for file in files]).transpose(0, 3, 1, 2).astype("float32") / 255
        session = onnxruntime.InferenceSession("runs/images/export/model.onnx", providers=["CPUExecutionProvider"])
        return session.run(None, {"x": pixels})[0]

    def check_confusion(self, told, names, target, said):
        """Against the definitions. target, said: numbers of classes."""
        wanted = np.zeros((len(names), len(names)), int)
        np.add.at(wanted, (target, said), 1)
        self.assertEqual(told["classes"], names)
        self.assertEqual(told["counts"], wanted.tolist())
        for c in range(len(names)):
            right, rows, taken = wanted[c, c], wanted[c].sum(), wanted[:, c].sum()
            shares = {"precision": right / max(taken, 1), "recall": right / max(rows, 1), "f1": 2 * right / max(rows + taken, 1)}
            for name, share in shares.items():
                if rows + taken == 0:
                    self.assertIsNone(told[name][c])
                else:
                    self.assertAlmostEqual(told[name][c], share, msg=f"{name} {c}")

    def test_images_by_file_and_name(self):
        files = sorted(f"new/{name}" for name in os.listdir("new"))
        scores = self.scores_of_images(files)
        said, probability = scores.argmax(1), softmax(scores).max(1)
        for data in ("new", "new/*.png"):  # a folder without classes, and files by a pattern
            self.run_command(["predict", "runs/images", "--data", data, "--classes", "--batch", "4", "-o", "y.csv"])
            rows = self.rows("y.csv")
            self.assertEqual(list(rows[0]), ["file", "label", "label.probability"])
            self.assertEqual([row["file"] for row in rows], files)
            self.assertEqual([row["label"] for row in rows], [CLASSES[c] for c in said])
            np.testing.assert_allclose([float(row["label.probability"]) for row in rows], probability, rtol=1e-4)
        self.run_command(["predict", "runs/images", "--data", files[2], "-o", "one.csv"])
        [row] = self.rows("one.csv")
        np.testing.assert_allclose([float(row[f"scores.{c}"]) for c in range(3)], scores[2], rtol=1e-4, atol=1e-5)
        told = self.json(["predict", "runs/images", "--data", "new", "--classes"])
        self.assertEqual((told["file"], told["label"]), (files, [CLASSES[c] for c in said]))
        said_of_numbers = self.run_command(["predict", "runs/images", "--data", "new", "--classes", "-o", "y.npz"]).stderr
        self.assertIn("classes label from 0: big horse, 'cat, small', dög", said_of_numbers)
        with np.load("y.npz") as arrays:
            np.testing.assert_array_equal(arrays["label"], said)
        # Folders of classes have files, too.
        self.run_command(["predict", "runs/images", "--data", "photos", "-o", "y.csv"])
        self.assertEqual(self.rows("y.csv")[8]["file"], "photos/cat, small/1 0.png")

    def test_images_without_classes_are_only_for_predictions(self):
        words = ["train", "images.onnx", "--loss", "cross_entropy(scores, label)", "--epochs", "1", "--data"]
        for data in ("new", "new/*.png"):
            error = self.run_command([*words, data], 5).stderr
            self.assertIn("the images are in no sub-folders", error)
            self.assertIn("folder named after it", error)
        with open("new/notes.txt", "w") as file:
            file.write("no image\n")
        self.assertIn("not an image", self.run_command(["predict", "runs/images", "--data", "new/*"], 5).stderr)
        os.remove("new/notes.txt")
        self.assertIn("9 images, no classes", self.run_command(["inspect", "new"]).stdout)

    def test_confusion_of_images(self):
        files = sorted(f"photos/{name}/{file}" for name in CLASSES for file in os.listdir(f"photos/{name}"))
        target = [CLASSES.index(file.split("/")[1]) for file in files]
        words = ["eval", "runs/images", "--data", "photos", "--metric", "f1", "--batch", "7", "--confusion"]
        told = self.json([*words, "--json"])
        self.check_confusion(told["confusion"], CLASSES, target, self.scores_of_images(files).argmax(1))
        self.assertAlmostEqual(told["f1"], np.mean(told["confusion"]["f1"]))
        shown = self.run_command(words).stdout
        for name in CLASSES:
            self.assertIn(name, shown)
        self.assertIn("precision", shown)
        # Several processes divide the batches.
        launched = self.run_command(["launch", "--nproc-per-node", "2", "--", *words, "--json"]).stdout
        self.assertEqual(json.loads(launched)["confusion"], told["confusion"])

    def test_classes_of_tables(self):
        names = ["no", "yes"]
        for outputs, loss, activation in ((2, "cross_entropy", "Identity"), (2, "cross_entropy_of_probabilities", "Softmax"),
                                          (2, "nll", "LogSoftmax"), (1, "bce_with_logits", "Identity"), (1, "bce", "Sigmoid")):
            linear_model("linear.onnx", 4, outputs, self.rng, activation)
            x = self.rng.standard_normal((40, 4)).astype("float32")
            target = self.rng.integers(0, 2, 40)
            with open("named.csv", "w") as file:
                file.write("a,b,c,d,answer\n" + "".join(",".join(map(repr, map(float, row))) + f",{names[t]}\n" for row, t in zip(x, target)))
            self.run_command(["train", "linear.onnx", "--data", "named.csv", "--map", "x=a..d", "--loss", f"{loss}(scores, answer)", "--epochs", "1",
                              "--progress", "none", "--name", loss])
            session = onnxruntime.InferenceSession(f"runs/{loss}/export/model.onnx", providers=["CPUExecutionProvider"])
            scores = session.run(None, {"x": x})[0].astype(np.float64)
            if outputs == 1:
                yes = scores if loss == "bce" else 1 / (1 + np.exp(-scores))
                scores = np.log(np.concatenate([1 - yes, yes], 1))
            elif loss == "cross_entropy_of_probabilities":
                scores = np.log(scores)
            self.run_command(["predict", f"runs/{loss}", "--data", "named.csv", "--classes", "-o", "y.csv"])
            rows = self.rows("y.csv")
            self.assertEqual(list(rows[0]), ["answer", "answer.probability"])
            self.assertEqual([row["answer"] for row in rows], [names[c] for c in scores.argmax(1)], loss)
            np.testing.assert_allclose([float(row["answer.probability"]) for row in rows], softmax(scores).max(1), rtol=1e-4)
            told = self.json(["eval", f"runs/{loss}", "--data", "named.csv", "--confusion", "--json"])
            self.check_confusion(told["confusion"], names, target, scores.argmax(1))

    def test_classes_of_pixels(self):
        linear_model("pixels.onnx", 3, 4, self.rng, per_position=True)
        images = self.rng.standard_normal((10, 3, 4, 5)).astype("float32")
        masks = self.rng.integers(0, 4, (10, 4, 5))
        masks[:, 0, :2] = 255
        np.savez("pixels.npz", x=images, mask=masks)
        said = self.run_command(["train", "pixels.onnx", "--data", "pixels.npz", "--loss", "cross_entropy(scores, mask, ignore_index=255)", "--epochs",
                                 "1", "--eval-split", "20%", "--metric", "iou", "--best", "eval/iou:max", "--name", "pixels"]).stderr
        self.assertIn("eval iou", said)
        session = onnxruntime.InferenceSession("runs/pixels/export/model.onnx", providers=["CPUExecutionProvider"])
        wanted = session.run(None, {"x": images})[0].argmax(1)
        self.run_command(["predict", "runs/pixels", "--data", "pixels.npz", "--classes", "-o", "masks.npz"])
        with np.load("masks.npz") as arrays:
            np.testing.assert_array_equal(arrays["mask"], wanted)
        told = self.json(["eval", "runs/pixels", "--data", "pixels.npz", "--confusion", "--json"])
        counted = masks != 255
        self.check_confusion(told["confusion"], ["0", "1", "2", "3"], masks[counted], wanted[counted])
        overlap = [((wanted == c) & (masks == c)).sum() / (((wanted == c) | (masks == c)) & counted).sum() for c in range(4)]
        self.assertAlmostEqual(told["iou"], np.mean(overlap))

    def test_masks_of_one_score(self):
        """Yes or no per pixel: one column with all pixels."""
        linear_model("mask.onnx", 3, 1, self.rng, per_position=True)
        images = self.rng.standard_normal((10, 3, 4, 5)).astype("float32")
        masks = self.rng.random((10, 1, 4, 5)) < 0.4
        np.savez("mask.npz", x=images, mask=masks.astype("float32"))
        metrics = ["--metric", "iou", "--metric", "iou(scores, mask, threshold=0.5)"]
        self.run_command(["train", "mask.onnx", "--data", "mask.npz", "--loss", "bce_with_logits(scores, mask)", "--epochs", "1", "--eval-split", "20%",
                          *metrics, "--best", "eval/iou/threshold=0.5:max", "--name", "mask"])
        session = onnxruntime.InferenceSession("runs/mask/export/model.onnx", providers=["CPUExecutionProvider"])
        scores = session.run(None, {"x": images})[0]
        self.run_command(["predict", "runs/mask", "--data", "mask.npz", "--classes", "-o", "said.npz"])
        with np.load("said.npz") as arrays:
            np.testing.assert_array_equal(arrays["mask"], scores > 0)
        told = self.json(["eval", "runs/mask", "--data", "mask.npz", "--confusion", "--json"])
        self.assertEqual([name for name in told if name.startswith("iou")], ["iou", "iou/threshold=0.5"])
        for name, threshold in (("iou", 0), ("iou/threshold=0.5", 0.5)):
            said = scores > threshold
            self.assertAlmostEqual(told[name], (said & masks).sum() / (said | masks).sum())
        self.check_confusion(told["confusion"], ["0", "1"], masks.astype(int).ravel(), (scores > 0).astype(int).ravel())

    def test_one_hot_labels(self):
        linear_model("one_hot.onnx", 4, 3, self.rng)
        x, target = self.rng.standard_normal((40, 4)).astype("float32"), self.rng.integers(0, 3, 40)
        np.savez("one_hot.npz", x=x, label=np.eye(3, dtype="float32")[target])
        self.run_command(["train", "one_hot.onnx", "--data", "one_hot.npz", "--loss", "cross_entropy(scores, label, probabilities=true)", "--epochs",
                          "1", "--eval-split", "20%", "--metric", "accuracy", "--name", "one_hot"])
        session = onnxruntime.InferenceSession("runs/one_hot/export/model.onnx", providers=["CPUExecutionProvider"])
        said = session.run(None, {"x": x})[0].argmax(1)
        self.run_command(["predict", "runs/one_hot", "--data", "one_hot.npz", "--classes", "-o", "said.npz"])
        with np.load("said.npz") as arrays:
            np.testing.assert_array_equal(arrays["label"], said)
        told = self.json(["eval", "runs/one_hot", "--data", "one_hot.npz", "--confusion", "--json"])
        self.assertAlmostEqual(told["accuracy"], (said == target).mean())
        self.check_confusion(told["confusion"], ["0", "1", "2"], target, said)

    def test_weights_of_named_classes(self):
        linear_model("weighed.onnx", 2, 3, self.rng)
        x = self.rng.standard_normal((24, 2))
        names = ["lo"] * 4 + ["mid"] * 12 + ["hi"] * 8
        with open("weighed.csv", "w", encoding="utf-8") as file:
            file.write("a,b,label\n" + "".join(f"{a},{b},{name}\n" for (a, b), name in zip(x, names)))
        train = ["train", "weighed.onnx", "--data", "weighed.csv", "--map", "x=a,b", "--map", "label=label", "--epochs", "2", "--batch", "8"]

        def trained(name, weights):
            said = self.run_command([*train, "--loss", f"cross_entropy(scores, label, class_weight={weights})", "--name", name]).stderr
            model = onnx.load(f"runs/{name}/export/model.onnx")
            return said, onnx.numpy_helper.to_array(model.graph.initializer[0])

        # The classes are sorted: hi, lo, mid.
        said, by_order = trained("by_order", "3:1:2")
        told = "weights of the classes of label: hi (3), lo (1), mid (2)"
        self.assertIn(told, said)
        said, by_name = trained("by_name", "lo=1:mid=2:hi=3")
        self.assertIn(told, said)
        np.testing.assert_array_equal(by_name, by_order)
        _, balanced = trained("balanced", "balanced")
        np.testing.assert_array_equal(balanced, trained("counted", "1:2:0.6666666666666666")[1])
        # A run's weights are those of its plan.
        for name in ("by_name", "balanced"):
            same = {"by_name": "by_order", "balanced": "counted"}[name]
            losses = [self.json(["eval", f"runs/{run}", "--data", "weighed.csv", "--json"])["loss"] for run in (name, same)]
            self.assertEqual(*losses)
            self.run_command(["resume", f"runs/{name}", "--epochs", "3"])
            self.run_command(["export", f"runs/{name}", "--training", "-o", "training.onnx"])
        for weights, what in (("lo=1:mid=2:high=3", "'high', which is not a class"), ("lo=1:mid=2", "no weight for the class 'hi'"),
                              ("lo=1:mid=2:hi", "'hi' in class_weight has no weight"), ("lo=1:lo=2:mid=1:hi=1", "two weights for the class 'lo'")):
            loss = ["--loss", f"cross_entropy(scores, label, class_weight={weights})"]
            self.assertIn(what, self.run_command([*train, *loss], 4).stderr)
        loss = ["--loss", "cross_entropy(scores, label, class_weight=lo=1:mid=2:hi=3)"]
        self.run_command(["check", "weighed.onnx", *loss])
        self.assertIn("needs the training data", self.run_command(["compile", "weighed.onnx", *loss, "-o", "weighed.plan"], 4).stderr)

    def test_probabilities_by_name_and_kept_columns(self):
        linear_model("shares.onnx", 2, 3, self.rng)
        x = self.rng.standard_normal((9, 2)).astype("float32")
        with open("shares.csv", "w", encoding="utf-8") as file:
            file.write("id,note,a,b,label\n" + "".join(f'00{i},"a, {i}",{a},{b},{CLASSES[i % 3]!r}\n'.replace("'", '"') for i, (a, b) in enumerate(x)))
        self.run_command(["train", "shares.onnx", "--data", "shares.csv", "--map", "x=a,b", "--map", "label=label", "--loss",
                          "cross_entropy(scores, label)", "--epochs", "1", "--name", "shares"])
        session = onnxruntime.InferenceSession("runs/shares/export/model.onnx", providers=["CPUExecutionProvider"])
        wanted = softmax(session.run(None, {"x": x})[0])
        predict = ["predict", "runs/shares", "--data", "shares.csv", "--probabilities"]
        self.run_command([*predict, "--classes", "--keep", "id,note", "--batch", "4", "-o", "shares_out.csv"])
        rows = self.rows("shares_out.csv")
        self.assertEqual(list(rows[0]), ["id", "note", "label", "label.big horse", "label.cat, small", "label.dög", "label.probability"])
        self.assertEqual([(row["id"], row["note"]) for row in rows], [(f"00{i}", f"a, {i}") for i in range(9)])
        self.assertEqual([row["label"] for row in rows], [CLASSES[c] for c in wanted.argmax(1)])
        shares = np.array([[float(row[f"label.{name}"]) for name in CLASSES] for row in rows])
        np.testing.assert_allclose(shares, wanted, rtol=1e-5)
        told = self.json([*predict, "--keep", "id"])
        self.assertEqual(set(told), {"id", *(f"label.{name}" for name in CLASSES)})
        np.testing.assert_allclose(told["label.dög"], wanted[:, 2], rtol=1e-5)
        self.run_command([*predict, "--keep", "id", "-o", "shares.npz"])
        with np.load("shares.npz") as arrays:
            np.testing.assert_allclose(arrays["label.probabilities"], wanted, rtol=1e-5)
            self.assertEqual(arrays["id"].tolist(), list(range(9)))
        for words, what in ((["--keep", "note", "-o", "x.npz"], "'note' has text"), (["--keep", "label", "--classes"], "a column 'label', too"),
                            (["--keep", "nothing"], "nothing")):
            self.assertIn(what, self.run_command([*predict, *words], 5 if words == ["--keep", "nothing"] else 4).stderr)
        # A number of an output is a column of a table.
        with open("named.csv", "w", encoding="utf-8") as file:
            file.write("scores.1,a,b\n1,2,3\n")
        words = ["predict", "runs/shares", "--data", "named.csv", "--keep", "scores.1"]
        self.assertIn("a column 'scores.1', too", self.run_command(words, 4).stderr)
        np.savez("shares_in.npz", x=x)
        error = self.run_command(["predict", "runs/shares", "--data", "shares_in.npz", "--map", "x=x", "--keep", "id"], 4).stderr
        self.assertIn("only tables", error)

    def test_kept_columns_keep_their_digits_and_letters(self):
        linear_model("kept.onnx", 2, 3, self.rng)
        self.run_command(["train", "kept.onnx", "--data", "random:8", "--loss", "mse(scores, y)", "--epochs", "1", "--name", "kept"])
        predict = ["predict", "runs/kept", "--data", "kept.csv", "--map", "x=a,b", "--keep", "größe"]

        def keep(*values, encoding="utf-8"):
            with open("kept.csv", "w", encoding=encoding) as file:
                file.write("größe,a,b\n" + "".join(f"{value},1,2\n" for value in values))

        for values, dtype in (((2**63 - 1, -5), "int64"), ((2**63 - 1, 2**64 - 1, 12345678901234567891), "uint64"), ((0.5, 2**53), "float64"),
                              ((1e300, "1e25"), "float64")):
            keep(*values)
            self.run_command([*predict, "-o", "kept.npz"])
            with np.load("kept.npz") as arrays:
                self.assertEqual(arrays["größe"].dtype, dtype)
                self.assertEqual(arrays["größe"].tolist(), [float(value) if dtype == "float64" else value for value in values])
        for values in ((-1, 2**64 - 1), (2**64 + 1, 1), (0.5, 2**63 - 1)):
            keep(*values)
            self.assertIn("would round", self.run_command([*predict, "-o", "kept.npz"], 4).stderr)
            self.run_command([*predict, "-o", "kept_out.csv"])
            self.assertEqual([row["größe"] for row in self.rows("kept_out.csv")], [str(value) for value in values])
        names = ["Müller", " José ", "plain"]
        for encoding in ("utf-8", "latin-1"):
            keep(*names, encoding=encoding)
            self.run_command([*predict, "-o", "kept_out.csv"])
            self.assertEqual([row["größe"] for row in self.rows("kept_out.csv")], names)
            self.assertEqual(self.json(predict)["größe"], names)

    def test_probabilities_of_a_binary_score(self):
        linear_model("binary.onnx", 2, 1, self.rng)
        x = self.rng.standard_normal((6, 2)).astype("float32")
        with open("binary.csv", "w", encoding="utf-8") as file:
            file.write("a,b,paid\n" + "".join(f"{a},{b},{['no', 'yes'][i % 2]}\n" for i, (a, b) in enumerate(x)))
        self.run_command(["train", "binary.onnx", "--data", "binary.csv", "--map", "x=a,b", "--map", "paid=paid", "--loss",
                          "bce_with_logits(scores, paid)", "--epochs", "1", "--name", "binary"])
        session = onnxruntime.InferenceSession("runs/binary/export/model.onnx", providers=["CPUExecutionProvider"])
        yes = 1 / (1 + np.exp(-session.run(None, {"x": x})[0][:, 0]))
        self.run_command(["predict", "runs/binary", "--data", "binary.csv", "--probabilities", "-o", "paid.csv"])
        rows = self.rows("paid.csv")
        self.assertEqual(list(rows[0]), ["paid.no", "paid.yes"])
        np.testing.assert_allclose([float(row["paid.yes"]) for row in rows], yes, rtol=1e-5)
        np.testing.assert_allclose([float(row["paid.no"]) for row in rows], 1 - yes, rtol=1e-5, atol=1e-7)

    def test_what_has_no_classes(self):
        linear_model("numbers.onnx", 4, 1, self.rng)
        self.run_command(["train", "numbers.onnx", "--data", "random:16", "--loss", "mse(scores, y)", "--epochs", "1", "--name", "numbers"])
        for words in (["eval", "runs/numbers", "--data", "random:16", "--confusion"], ["predict", "runs/numbers", "--data", "random:16", "--classes"]):
            error = self.run_command(words, 4).stderr
            self.assertIn("does not compare an output with classes", error)
            self.assertIn(words[-1], error)

    def test_many_classes_show_what_is_confused_most(self):
        linear_model("many.onnx", 4, 30, self.rng)
        np.savez("many.npz", x=self.rng.standard_normal((200, 4)).astype("float32"), label=self.rng.integers(0, 30, 200))
        self.run_command(["train", "many.onnx", "--data", "many.npz", "--loss", "cross_entropy(scores, label)", "--epochs", "1", "--name", "many"])
        words = ["eval", "runs/many", "--data", "many.npz", "--confusion"]
        counts = np.array(self.json([*words, "--json"])["confusion"]["counts"])
        np.fill_diagonal(counts, 0)
        lines = self.run_command(words).stdout.splitlines()
        first = lines.index(next(line for line in lines if "taken for" in line)) + 1
        is_, taken, rows = lines[first].split()
        self.assertEqual((counts[int(is_), int(taken)], int(rows)), (counts.max(), counts.max()))


    def test_undefined_metrics_do_not_count(self):
        """Of a single class the area under the ROC curve is NaN, which is no reason to stop."""
        rng = np.random.default_rng(SEED)
        linear_model("flat.onnx", 4, 3, rng)
        x = rng.standard_normal((30, 4)).astype("float32")
        np.savez("three.npz", x=x, label=np.arange(30) % 3)
        np.savez("one.npz", x=x[:6], label=np.zeros(6, "int64"))
        said = self.run_command(["train", "flat.onnx", "--data", "three.npz", "--eval-data", "one.npz", "--loss", "cross_entropy(scores, label)",
                                 "--metric", "auroc", "--best", "eval/auroc:max", "--early-stop", "1", "--epochs", "4", "--progress", "none",
                                 "--name", "undefined"]).stderr
        self.assertEqual(said.count("eval/auroc is undefined on the evaluation data"), 1)
        self.assertNotIn("stopped early", said)
        with open("runs/undefined/results.csv") as file:
            self.assertEqual(len(list(csv.DictReader(file))), 4)

    def test_a_linear_model_of_scikit_learn(self):
        """LogisticRegression as skl2onnx writes it: the predicted class is the first output, the probabilities are divided by their sum."""
        text = f"""<ir_version: 8, opset_import: ["ai.onnx.ml" : 1, "" : 17]> g (float[N, 4] x) => (int64[N] label, float[N, 3] probabilities) {{
            label, scores = ai.onnx.ml.LinearClassifier <classlabels_ints = [0, 1, 2], coefficients = [{", ".join(["0.1", "-0.2", "0.3"] * 4)}],
                intercepts = [0.0, 0.1, 0.2], multi_class = 1, post_transform = "SOFTMAX"> (x)
            probabilities = ai.onnx.ml.Normalizer <norm = "L1"> (scores) }}"""
        onnx.save(onnx.parser.parse_model(text), "logistic.onnx")
        checked = self.run_command(["check", "logistic.onnx"])
        self.assertIn("label/coefficients   (a weight of MatMul", checked.stdout + checked.stderr)
        data = ["--data", "train.csv", "--map", "x=a..d", "--map", "target=label", "--eval-split", "20%", "--metric", "accuracy", "--lr", "0.05"]
        done = self.run_command(["train", "logistic.onnx", *data, "--epochs", "20", "--name", "logistic", "--report", "json"])
        self.assertIn("cross_entropy_of_probabilities(probabilities, target)   [guessed from the output [32,3], a softmax:", done.stderr)
        first = self.run_command(["train", "logistic.onnx", *data, "--epochs", "1", "--name", "once", "--report", "json", "--devices", "cpu:2"])
        self.assertLess(json.loads(done.stdout)["eval_loss"], json.loads(first.stdout)["eval_loss"])
        self.run_command(["export", "runs/logistic", "-o", "logistic_trained.onnx"])
        model = onnx.load("logistic_trained.onnx")
        weights = {i.name: onnx.numpy_helper.to_array(i) for i in model.graph.initializer}
        onnx.checker.check_model(model)
        x = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
        np.savez("points.npz", x=x)
        self.run_command(["predict", "runs/logistic", "--data", "points.npz", "--map", "x=x", "-o", "predicted.npz"])
        predicted = np.load("predicted.npz")
        scores = x @ weights["label/coefficients"] + weights["label/intercepts"]
        e = np.exp(scores - scores.max(1, keepdims=True))
        np.testing.assert_allclose(predicted["probabilities"], e / e.sum(1, keepdims=True), atol=1e-6)
        np.testing.assert_array_equal(predicted["label"], scores.argmax(1))

    def test_a_model_that_ends_with_a_softmax(self):
        def save(name, last):
            text = f"""<ir_version: 8, opset_import: ["" : 17]> g (float[N, 4] x) => (float[N, 3] y) <float[4, 3] w = {{{", ".join(["0.1", "-0.2"] * 6)}}}>
                {{ z = MatMul (x, w)  y = {last} (z) }}"""
            onnx.save(onnx.parser.parse_model(text), name)

        data = ["--data", "train.csv", "--map", "x=a..d", "--map", "target=label", "--eval-split", "20%", "--epochs", "3", "--lr", "0.05"]
        metrics = [word for name in ("accuracy", "top2", "f1", "auroc", "perplexity") for word in ("--metric", name)]
        results = {}
        for last in ("Identity", "Softmax"):
            save(f"{last}.onnx", last)
            done = self.run_command(["train", f"{last}.onnx", *data, *metrics, "--name", last, "--report", "json"])
            self.assertEqual("cross_entropy_of_probabilities(y, target)   [guessed from the output [32,3], a softmax:" in done.stderr, last == "Softmax")
            self.assertNotIn("warning", done.stderr)
            results[last] = {name: value for name, value in json.loads(done.stdout).items() if name == "train_loss" or name.startswith("eval_")}
        self.assertGreater(len(results["Softmax"]), 8)
        for name, value in results["Identity"].items():
            self.assertAlmostEqual(results["Softmax"][name], value, delta=2e-6, msg=name)
        evaluated = json.loads(self.run_command(["eval", "runs/Softmax", "--json"]).stdout)
        self.assertAlmostEqual(evaluated["loss"], results["Identity"]["eval_loss"], delta=2e-6)
        self.run_command(["export", "runs/Softmax", "--training", "-o", "again.onnx"])
        self.run_command(["train", "again.onnx", *data[:-2], "--name", "again"])
        # A softmax of a softmax is permitted, with a warning.
        self.assertIn("warning cross_entropy expects scores, but the output 'y' is a softmax",
                      self.run_command(["train", "Softmax.onnx", *data, "--loss", "cross_entropy"]).stderr)
        save("Sigmoid.onnx", "Sigmoid")
        # One binary column per output.
        data = [word.replace("target=label", "target=label,label,label") for word in data]
        sample_files.write("yes.csv", "\n".join(re.sub(r"[12]$", "1", line) for line in sample_files.read("train.csv").decode().splitlines()) + "\n")
        done = self.run_command(["train", "Sigmoid.onnx", *[word.replace("train.csv", "yes.csv") for word in data]])
        self.assertIn("bce(y, target)   [guessed from the output [32,3], a sigmoid:", done.stderr)


if __name__ == "__main__":
    unittest.main()
