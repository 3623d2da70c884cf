"""gradloom export --training: files that contain their own training algorithm train in the same way as the run that they come from."""
import json
import os
import subprocess
import sys
import tempfile
import unittest

import numpy as np
import onnx
import onnxruntime
import safetensors.numpy
from onnx import TensorProto, helper, numpy_helper

GRADLOOM = os.path.abspath(sys.argv.pop(1))
ROWS, BATCH = 20, 8  # two full batches and a smaller one
TRAINING = "ai.onnx.preview.training"

OPTIMIZERS = {
    "sgd": "--optimizer sgd --weight-decay 0.01 --clip-value 0.05",
    "momentum": "--optimizer momentum --momentum 0.8 --weight-decay 0.01",
    "nesterov": "--optimizer nesterov --clip-norm 0.2",
    "adam": "--optimizer adam --weight-decay 0.02",
    "adam_of_onnx": "--optimizer adam --eps 0 --weight-decay 0.02",
    "adamw": "--optimizer adamw --weight-decay 0.05 --clip-norm 0.5",
    "rmsprop": "--optimizer rmsprop --momentum 0.5 --weight-decay 0.01",
    "adagrad": "--optimizer adagrad --weight-decay 0.01",
    "adadelta": "--optimizer adadelta --lr 1",
    "adamax": "--optimizer adamax",
    "nadam": "--optimizer nadam --weight-decay 0.01",
    # With this beta2, the steps become adaptive within the run.
    "radam": "--optimizer radam --beta2 0.9 --weight-decay 0.01",
    "lion": "--optimizer lion --weight-decay 0.01",
    "lamb": "--optimizer lamb --weight-decay 0.01",
}
SCHEDULES = {
    "linear": "--schedule linear",
    "cosine": "--schedule cosine --warmup 2 --min-lr 0.001",
    "step": "--schedule step --step-size 2 --gamma 0.3",
    "one_cycle": "--schedule one_cycle",
    "polynomial": "--schedule polynomial --power 2 --min-lr 0.001",
    "restarts": "--schedule cosine_restarts --cycles 2 --warmup 1",
    "milestones": "--schedule multi_step --milestones 1,50% --gamma 0.3",
    "wsd": "--schedule wsd --warmup 1 --decay-phase 50%",
    "exponential": "--schedule exponential --gamma 0.5",
    "inverse_sqrt": "--schedule inverse_sqrt --warmup 2",
    "warmup": "--warmup 3",
}
# For the outputs `scores` [N,3], `classes` [N,4,3] and `chance` [N,3], which lies in (0, 1).
LOSSES = {
    "classes": "cross_entropy(scores, label)",
    "ignored": "cross_entropy(scores, holes, ignore_index=1, class_weight=1:2:0.5)",
    "smooth": "cross_entropy(scores, holes, ignore_index=1, class_weight=1:2:0.5, label_smoothing=0.2)",
    "smooth_sum": "cross_entropy(scores, label, label_smoothing=0.1, reduction=sum)*0.05",
    "planes": "cross_entropy(classes, planes)",
    "distribution": "cross_entropy(scores, shares, probabilities=true, label_smoothing=0.1)",
    "nll": "nll(logs, holes, ignore_index=1)",
    "mse": "mse(scores, wanted)",
    "mse_sum": "mse(scores, wanted, reduction=sum)*0.1",
    "smooth_l1": "smooth_l1(scores, wanted, beta=0.5)",
    "huber": "huber(scores, wanted, delta=0.7)",
    "log_cosh": "log_cosh(scores, wanted)",
    "quantile": "quantile(scores, wanted, q=0.2)",
    "poisson": "poisson_nll(chance, bits, log_input=false)",
    "focal": "sigmoid_focal(scores, bits, alpha=0.4, gamma=1.5)",
    "margins": "soft_margin(scores, sides, reduction=sum)*0.1",
    "hinge": "hinge(scores, sides)",
    "bce": "bce(chance, bits)",
    "logits": "bce_with_logits(scores, bits, pos_weight=1:2:3)",
    "kl": "kl_div(logs, shares, reduction=batchmean)",
    "mean": "output(chance)",
    "file": "charbonnier.onnx(target=wanted)*0.5",
}


def values(items):
    return [helper.make_tensor_value_info(name, dtype, shape) for name, dtype, shape in items]


def make_model(nodes, inputs, outputs, initializers, opset=20):
    graph = helper.make_graph(nodes, "model", values(inputs), values(outputs), [numpy_helper.from_array(v, n) for n, v in initializers.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def perceptron(opset=20):
    rng = np.random.default_rng(3)
    draw = lambda *shape: (rng.standard_normal(shape) * 0.4).astype(np.float32)
    node = helper.make_node
    nodes = [
        node("Gemm", ["x", "w1", "b1"], ["h"], name="first"), node("Tanh", ["h"], ["a"], name="tanh"),
        node("Gemm", ["a", "w2", "b2"], ["scores"], name="second"), node("Sigmoid", ["scores"], ["chance"], name="sigmoid"),
        node("LogSoftmax", ["scores"], ["logs"], axis=1, name="logs"),
        node("MatMul", ["a", "w3"], ["flat"], name="third"), node("Reshape", ["flat", "split"], ["classes"], name="split_classes"),
    ]
    float_of = lambda name, *shape: (name, TensorProto.FLOAT, ["N", *shape])
    return make_model(nodes, [float_of("x", 5)], [float_of("scores", 3), float_of("chance", 3), float_of("logs", 3), float_of("classes", 4, 3)], {
        "w1": draw(5, 6), "b1": draw(6), "w2": draw(6, 3), "b2": draw(3), "w3": draw(6, 12), "split": np.int64([-1, 4, 3])}, opset)


def normalized():
    """A model with batch statistics and dropout in training, and a weight in a Constant node."""
    rng = np.random.default_rng(5)
    draw = lambda *shape: (rng.standard_normal(shape) * 0.4).astype(np.float32)
    node = helper.make_node
    nodes = [
        node("Constant", [], ["w1"], value=numpy_helper.from_array(draw(5, 6))),
        node("MatMul", ["x", "w1"], ["h"], name="first"),
        node("BatchNormalization", ["h", "scale", "shift", "mean", "variance"], ["n"], name="norm"),
        node("Relu", ["n"], ["a"], name="relu"),
        node("Gemm", ["a", "w2", "b2"], ["scores"], name="second"),
    ]
    return make_model(nodes, [("x", TensorProto.FLOAT, ["N", 5])], [("scores", TensorProto.FLOAT, ["N", 3])], {
        "scale": np.ones(6, np.float32), "shift": np.zeros(6, np.float32), "mean": draw(6), "variance": np.full(6, 2, np.float32),
        "w2": draw(6, 3), "b2": draw(3)})


class ExportTrainingTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = folder.name
        rng = np.random.default_rng(11)
        floats = lambda *shape: rng.standard_normal(shape).astype(np.float32)
        shares = rng.random((ROWS, 3)).astype(np.float32)
        np.savez(cls.path("data.npz"), x=floats(ROWS, 5), label=rng.integers(0, 3, ROWS), holes=rng.integers(0, 3, ROWS),
                 planes=rng.integers(0, 4, (ROWS, 3)), shares=shares / shares.sum(1, keepdims=True), wanted=floats(ROWS, 3),
                 bits=rng.integers(0, 2, (ROWS, 3)).astype(np.float32), sides=np.sign(floats(ROWS, 3)))
        onnx.save(perceptron(), cls.path("model.onnx"))
        cls.save_weights("model.onnx", "first.safetensors")
        eps = numpy_helper.from_array(np.float32(0.01), "eps2")
        nodes = [helper.make_node(*parts) for parts in (("Sub", ["scores", "target"], ["d"]), ("Mul", ["d", "d"], ["square"]),
                                                        ("Add", ["square", "eps2"], ["shifted"]), ("Sqrt", ["shifted"], ["each"]))]
        nodes.append(helper.make_node("ReduceMean", ["each"], ["loss"], keepdims=0))
        graph = helper.make_graph(nodes, "charbonnier", values([(n, TensorProto.FLOAT, ["N", 3]) for n in ("scores", "target")]),
                                  values([("loss", TensorProto.FLOAT, [])]), [eps])
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), cls.path("charbonnier.onnx"))

    @classmethod
    def path(cls, name):
        return os.path.join(cls.folder, name)

    @classmethod
    def save_weights(cls, model, to):
        graph = onnx.load(cls.path(model)).graph
        tensors = {i.name: numpy_helper.to_array(i) for i in graph.initializer}
        tensors.update({n.output[0]: numpy_helper.to_array(n.attribute[0].t) for n in graph.node if n.op_type == "Constant"})
        safetensors.numpy.save_file(tensors, cls.path(to))

    def run_command(self, *words, code=0):
        done = subprocess.run([GRADLOOM, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120, cwd=self.folder)
        self.assertEqual(done.returncode, code, f"{words}\n{done.stdout}{done.stderr}")
        return done

    def train(self, model, name, *words):
        common = ["--data", "data.npz", "--threads", "1", "--progress", "none", "--log-every", "1"]
        if "--epochs" not in words:
            common += ["--epochs", "2"]
        if "--batch" not in words:
            common += ["--batch", str(BATCH)]
        self.run_command("train", model, *common, "--name", name, *words)

    def losses(self, run, first=0):
        with open(self.path(f"runs/{run}/metrics.jsonl"), encoding="utf-8") as file:
            lines = [json.loads(line) for line in file]
        return [line["loss"] for line in lines if line["split"] == "train" and line["step"] > first]

    def weights(self, run):
        self.run_command("export", f"runs/{run}", "-o", "weights.onnx")
        return {i.name: numpy_helper.to_array(i) for i in onnx.load(self.path("weights.onnx")).graph.initializer}

    def expect_same(self, run, other, first=0):
        a, b = self.losses(run, first), self.losses(other)
        self.assertEqual(len(a), len(b))
        self.assertGreater(len(a), 2)
        np.testing.assert_allclose(b, a, rtol=2e-5, atol=1e-7, err_msg=run)

    def round_trip(self, name, *words):
        """Trains a run, and trains the file that holds its recipe and its initial weights."""
        self.train("model.onnx", name, *words)
        self.run_command("export", f"runs/{name}", "--training", "--weights", "first.safetensors", "-o", f"{name}.onnx")
        self.train(f"{name}.onnx", f"{name}_again")
        self.expect_same(name, f"{name}_again")
        kept, again = self.weights(name), self.weights(f"{name}_again")
        for n, value in kept.items():
            np.testing.assert_allclose(again[n], value, rtol=1e-4, atol=2e-6, err_msg=f"{name} {n}")
        return onnx.load(self.path(f"{name}.onnx"))

    def check_file(self, model):
        """Checks that the file is valid ONNX, and that the model's graph followed by the algorithm is valid as one graph."""
        onnx.checker.check_model(model, full_check=True)
        whole = onnx.ModelProto()
        whole.CopyFrom(model)
        del whole.training_info[:]
        algorithm = model.training_info[0].algorithm
        for field in ("node", "initializer", "input", "value_info"):
            getattr(whole.graph, field).extend(getattr(algorithm, field))
        del whole.graph.output[:]
        whole.graph.output.extend(algorithm.output)
        onnx.checker.check_model(whole, full_check=True)
        known = {i.name for graph in (model.graph, algorithm) for i in graph.initializer}
        made = {o for node in algorithm.node for o in node.output}
        for binding in model.training_info[0].update_binding:
            self.assertIn(binding.key, known)
            self.assertIn(binding.value, made)
        return algorithm

    def test_targets_named_like_outputs(self):
        """One name stands for one value in a file, so the target gets another, which is told."""
        self.train("model.onnx", "named", "--loss", "mse(scores, scores)", "--map", "scores=wanted", "--lr", "0.02")
        said = self.run_command("export", "runs/named", "--training", "--weights", "first.safetensors", "-o", "named.onnx").stderr
        self.assertIn("the target 'scores' is 'scores.1' in the file, because the model has a value of that name: --map scores.1=scores", said)
        self.check_file(onnx.load(self.path("named.onnx")))
        self.train("named.onnx", "named_again", "--map", "scores.1=wanted")
        self.expect_same("named", "named_again")

    def test_optimizers(self):
        for name, words in OPTIMIZERS.items():
            with self.subTest(name):
                rate = [] if "--lr" in words else ["--lr", "0.02"]
                model = self.round_trip(name, "--loss", "mse(scores, wanted)", *rate, *words.split())
                algorithm = self.check_file(model)
                ops = {node.op_type for node in algorithm.node if node.domain == TRAINING}
                own = {"momentum": "Momentum", "nesterov": "Momentum", "adagrad": "Adagrad", "adam_of_onnx": "Adam"}
                self.assertEqual(ops, {"Gradient"} | ({own[name]} if name in own else set()))

    def test_schedules(self):
        for name, words in SCHEDULES.items():
            with self.subTest(name):
                self.check_file(self.round_trip(name, "--loss", "mse(scores, wanted)", "--optimizer", "sgd", "--lr", "0.1", *words.split()))

    def test_losses(self):
        for name, loss in LOSSES.items():
            with self.subTest(name):
                self.check_file(self.round_trip(f"loss_{name}", "--loss", loss, "--optimizer", "sgd", "--lr", "0.1"))

    def test_several_losses_with_frozen_and_divided_weights(self):
        model = self.round_trip("joined", "--loss", "cross_entropy(scores, label)*0.5", "--loss", LOSSES["file"], "--loss", "l1(chance, bits)",
                                "--optimizer", "adamw", "--lr", "0.02", "--weight-decay", "0.1", "--freeze", "b1")
        keys = {binding.key for binding in model.training_info[0].update_binding}
        self.assertNotIn("b1", keys)
        # The loss does not depend on it, so not even weight decay changes it.
        self.assertNotIn("w3", keys)

    def test_older_operator_sets(self):
        for opset in (13, 17):
            with self.subTest(opset):
                onnx.save(perceptron(opset), self.path("older.onnx"))
                self.train("older.onnx", f"opset{opset}", "--loss", LOSSES["smooth"], "--optimizer", "lamb", "--schedule", "cosine")
                self.run_command("export", f"runs/opset{opset}", "--training", "--weights", "first.safetensors", "-o", "older_again.onnx")
                self.check_file(onnx.load(self.path("older_again.onnx")))
                self.train("older_again.onnx", f"opset{opset}_again")
                self.expect_same(f"opset{opset}", f"opset{opset}_again")
        onnx.save(perceptron(9), self.path("older.onnx"))
        self.train("older.onnx", "opset9", "--loss", LOSSES["smooth"])
        done = self.run_command("export", "runs/opset9", "--training", "-o", "older_again.onnx", code=3)
        self.assertIn("SoftmaxCrossEntropyLoss", done.stderr)
        self.assertIn("newer opset", done.stderr)

    def test_training_goes_on_where_the_run_ended(self):
        for name in ("momentum", "adamw", "adadelta", "lamb"):
            with self.subTest(name):
                words = OPTIMIZERS[name].split() + ([] if "--lr" in OPTIMIZERS[name] else ["--lr", "0.02"])
                run, rest = f"half_{name}", f"rest_{name}"
                # An epoch is a single batch, so the order of the rows does not matter.
                self.train("model.onnx", run, "--loss", LOSSES["classes"], "--batch", str(ROWS), "--epochs", "3", "--schedule", "step",
                           "--step-size", "2", "--gamma", "0.5", "--save-every", "1ep", *words)
                self.run_command("export", f"runs/{run}", "--training", "-o", f"{rest}.onnx")
                self.run_command("export", f"runs/{run}", "--training", "--from", "step-000002", "-o", f"{rest}_2.onnx")
                self.run_command("resume", f"runs/{run}", "--epochs", "7", "--progress", "none")
                self.train(f"{rest}.onnx", rest, "--batch", str(ROWS), "--epochs", "4")
                self.expect_same(run, rest, first=3)
                self.train(f"{rest}_2.onnx", f"{rest}_2", "--batch", str(ROWS), "--epochs", "5")
                self.expect_same(run, f"{rest}_2", first=2)

    def test_batch_statistics(self):
        onnx.save(normalized(), self.path("normalized.onnx"))
        self.save_weights("normalized.onnx", "normalized.safetensors")
        self.train("normalized.onnx", "normal", "--loss", LOSSES["classes"], "--optimizer", "adam", "--lr", "0.02")
        self.run_command("export", "runs/normal", "--training", "--weights", "normalized.safetensors", "-o", "normal_again.onnx")
        again = onnx.load(self.path("normal_again.onnx"))
        algorithm = self.check_file(again)
        self.assertIn("BatchNormalization", [node.op_type for node in algorithm.node])
        self.assertIn("mean", {binding.key for binding in again.training_info[0].update_binding})
        self.train("normal_again.onnx", "normal_again")
        self.expect_same("normal", "normal_again")
        kept, trained = self.weights("normal"), self.weights("normal_again")
        for name in ("mean", "variance", "scale", "w2"):
            np.testing.assert_allclose(trained[name], kept[name], rtol=1e-4, atol=1e-6, err_msg=name)

    def test_layers_that_are_fused(self):
        """MatMul and Add, the form of a dense layer in TensorFlow's converter, are fused into one operator although the updates do not read
        it."""
        rng = np.random.default_rng(5)
        draw = lambda *shape: (rng.standard_normal(shape) * 0.4).astype(np.float32)
        node = helper.make_node
        width = int(np.load(self.path("data.npz"))["x"].shape[1])
        nodes = [
            node("MatMul", ["x", "w1"], ["p"], name="first"), node("Add", ["p", "b1"], ["h"], name="first_bias"), node("Relu", ["h"], ["a"], name="relu"),
            node("MatMul", ["a", "w2"], ["q"], name="second"), node("Add", ["q", "b2"], ["scores"], name="second_bias"),
        ]
        dense = make_model(nodes, [("x", TensorProto.FLOAT, ["N", width])], [("scores", TensorProto.FLOAT, ["N", 3])],
                           {"w1": draw(width, 5), "b1": draw(5), "w2": draw(5, 3), "b2": draw(3)})
        onnx.save(dense, self.path("dense.onnx"))
        self.save_weights("dense.onnx", "dense.safetensors")
        self.train("dense.onnx", "dense", "--loss", LOSSES["classes"], "--optimizer", "adam", "--lr", "0.02")
        self.run_command("export", "runs/dense", "--training", "--weights", "dense.safetensors", "-o", "dense_again.onnx")
        self.train("dense_again.onnx", "dense_again")
        self.expect_same("dense", "dense_again")
        kept, again, first = self.weights("dense"), self.weights("dense_again"), {i.name: numpy_helper.to_array(i) for i in dense.graph.initializer}
        for name, value in kept.items():
            np.testing.assert_allclose(again[name], value, rtol=1e-4, atol=2e-6, err_msg=name)
            self.assertFalse(np.array_equal(value, first[name]), name)

    def test_dropout(self):
        model = normalized()
        for node in model.graph.node:
            node.input[:] = ["dropped" if name == "a" else name for name in node.input]
        model.graph.node.insert(4, helper.make_node("Dropout", ["a", "ratio"], ["dropped"], name="drop"))
        model.graph.initializer.append(numpy_helper.from_array(np.float32(0.5), "ratio"))
        onnx.save(model, self.path("dropping.onnx"))
        self.train("dropping.onnx", "dropping", "--loss", LOSSES["classes"], "--epochs", "1")
        self.run_command("export", "runs/dropping", "--training", "-o", "dropping_again.onnx")
        algorithm = self.check_file(onnx.load(self.path("dropping_again.onnx")))
        self.assertIn("Dropout", [node.op_type for node in algorithm.node])
        # Different masks at every step, although nothing is updated.
        again = onnx.load(self.path("dropping_again.onnx"))
        for tensor in again.training_info[0].algorithm.initializer:
            if tensor.name == "training/learning_rate":
                tensor.CopyFrom(numpy_helper.from_array(np.float32(0), tensor.name))
        onnx.save(again, self.path("dropping_still.onnx"))
        self.train("dropping_still.onnx", "dropping_still", "--batch", str(ROWS), "--epochs", "4")
        self.assertEqual(len(set(self.losses("dropping_still"))), 4)

    def test_inference_graph_stays(self):
        self.train("model.onnx", "plain", "--loss", LOSSES["classes"], "--epochs", "1")
        self.run_command("export", "runs/plain", "-o", "plain.onnx")
        self.run_command("export", "runs/plain", "--training", "-o", "plain_training.onnx")
        plain, training = (onnx.load(self.path(name)) for name in ("plain.onnx", "plain_training.onnx"))
        self.assertEqual(plain.graph, training.graph)
        x = np.load(self.path("data.npz"))["x"]
        outputs = [onnxruntime.InferenceSession(self.path(name), providers=["CPUExecutionProvider"]).run(None, {"x": x})
                   for name in ("plain.onnx", "plain_training.onnx")]
        for a, b in zip(*outputs):
            np.testing.assert_array_equal(a, b)
        # The algorithm is the same, whichever file it is exported from.
        self.train("plain_training.onnx", "plain_again", "--epochs", "1")
        self.run_command("export", "runs/plain_again", "--training", "-o", "plain_thrice.onnx")
        self.assertEqual(len(onnx.load(self.path("plain_thrice.onnx")).training_info), 1)

    def test_a_declared_batch(self):
        model = perceptron()
        for info in [*model.graph.input, *model.graph.output]:
            info.type.tensor_type.shape.dim[0].dim_value = BATCH
        onnx.save(model, self.path("declared.onnx"))
        self.train("declared.onnx", "declared", "--loss", LOSSES["smooth"], "--optimizer", "sgd", "--lr", "0.1")
        self.run_command("export", "runs/declared", "--training", "--weights", "first.safetensors", "-o", "declared_again.onnx")
        self.check_file(onnx.load(self.path("declared_again.onnx")))
        self.train("declared_again.onnx", "declared_again")
        self.expect_same("declared", "declared_again")

    def test_what_cannot_be_written(self):
        for name, words, part in [("sums", ["--accumulate", "2"], "--accumulate 1"), ("halves", ["--precision", "bf16"], "--precision fp32"),
                                  ("scaled", ["--loss-scale", "1024"], "--loss-scale off"),
                                  ("plateau", ["--plateau-patience", "1", "--eval-split", "25%"], "--plateau-patience")]:
            with self.subTest(name):
                self.train("model.onnx", name, "--loss", LOSSES["mse"], "--epochs", "1", *words)
                done = self.run_command("export", f"runs/{name}", "--training", "-o", "refused.onnx", code=3)
                self.assertIn("E-UNSUPPORTED", done.stderr)
                self.assertIn(part, done.stderr)
                self.assertFalse(os.path.exists(self.path("refused.onnx")))
        done = self.run_command("export", "runs/sums/plan.plan", "--weights", "first.safetensors", "--training", "-o", "refused.onnx", code=4)
        self.assertIn("pass the folder of a run", done.stderr)


if __name__ == "__main__":
    unittest.main()
