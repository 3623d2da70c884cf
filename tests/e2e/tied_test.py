"""Matrices that a file has twice, once transposed, as exporters write tied weights: trained as one, like the model of one matrix."""
import json
import os
import subprocess
import sys
import unittest

import numpy as np
import onnx
import onnxruntime
import safetensors.numpy
from onnx import TensorProto, helper, numpy_helper

GRADLOOM = os.path.abspath(sys.argv.pop(1))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import sample_files  # noqa: E402

WORDS, FEATURES, LENGTH, ROWS = 11, 6, 5, 40
DATA = ["--data", "data.npz", "--loss", "cross_entropy(logits, next, class_axis=-1)"]
RECIPE = [*DATA, "--no-shuffle", "--optimizer", "adamw", "--lr", "0.05", "--weight-decay", "0.1", "--clip-norm", "0.5", "--batch", "16", "--progress", "none"]


def run(words, code=0):
    done = subprocess.run([GRADLOOM, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60)
    if done.returncode != code:
        raise AssertionError(f"{words}: exit {done.returncode}, not {code}\n{done.stderr}")
    return done


def write(path, twice, dtype=np.float32, output=None, name="val_7"):
    """A language model whose output layer is its embedding. `twice`: the file has the embedding's transpose as well, not a Transpose."""
    random = np.random.default_rng(3)
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    table = random.normal(size=(WORDS, FEATURES)).astype(dtype)
    tensors = [numpy_helper.from_array(table, "embed.weight"),
               numpy_helper.from_array(random.normal(size=(FEATURES, FEATURES)).astype(dtype), "hidden")]
    nodes = [helper.make_node("Gather", ["embed.weight", "words"], ["embedded"]), helper.make_node("MatMul", ["embedded", "hidden"], ["h"]),
             helper.make_node("Tanh", ["h"], ["active"])]
    if twice:
        tensors.append(numpy_helper.from_array(np.ascontiguousarray(table.T if output is None else output), name))
    else:
        nodes.append(helper.make_node("Transpose", ["embed.weight"], [name], perm=[1, 0]))
    nodes.append(helper.make_node("MatMul", ["active", name], ["logits"]))
    graph = helper.make_graph(nodes, "lm", [helper.make_tensor_value_info("words", TensorProto.INT64, ["N", LENGTH])],
                              [helper.make_tensor_value_info("logits", kind, ["N", LENGTH, WORDS])], tensors)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), path)


def weights_of(path):
    return {i.name: numpy_helper.to_array(i) for i in onnx.load(path).graph.initializer}


def losses_of(name):
    with open(f"runs/{name}/metrics.jsonl") as lines:
        return [row["loss"] for row in map(json.loads, lines) if row["split"] == "train"]


class TiedTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = sample_files.in_folder_of(cls)
        random = np.random.default_rng(4)
        words = random.integers(0, WORDS, size=(ROWS, LENGTH + 1))
        cls.words = words[:, :-1]
        np.savez("data.npz", words=words[:, :-1], next=words[:, 1:])
        for name, twice in (("twice", True), ("once", False)):
            write(f"{name}.onnx", twice)
            run(["train", f"{name}.onnx", *RECIPE, "--epochs", "3", "--name", name])
        cls.state = {name: safetensors.numpy.load_file(f"runs/{name}/state.safetensors") for name in ("twice", "once")}

    def logits(self, path):
        return onnxruntime.InferenceSession(path).run(["logits"], {"words": self.words})[0]

    def test_trains_as_one_matrix(self):
        self.assertEqual(set(self.state["twice"]), set(self.state["once"]))
        for name, want in self.state["once"].items():
            np.testing.assert_allclose(self.state["twice"][name], want, rtol=1e-5, atol=1e-6, err_msg=name)
        self.assertEqual(len(losses_of("twice")), 3)
        np.testing.assert_allclose(losses_of("twice"), losses_of("once"), rtol=1e-5)

    def test_says_so(self):
        line = "val_7 is embed.weight, transposed: one weight is trained; --no-tie trains two"
        self.assertIn(line, run(["check", "twice.onnx"]).stdout)
        self.assertNotIn("transposed", run(["check", "twice.onnx", "--no-tie"]).stdout)
        self.assertNotIn("transposed: one", run(["check", "once.onnx"]).stdout)
        self.assertIn("tied: 'val_7' is 'embed.weight', transposed", run(["inspect", "runs/twice/plan.plan"]).stdout)

    def test_exports_both(self):
        exported = weights_of("runs/twice/export/model.onnx")
        np.testing.assert_array_equal(exported["embed.weight"], self.state["twice"]["embed.weight"])
        np.testing.assert_array_equal(exported["val_7"], exported["embed.weight"].T)
        np.testing.assert_allclose(self.logits("runs/twice/export/model.onnx"), self.logits("runs/once/export/model.onnx"), rtol=1e-4, atol=1e-5)
        # It is one weight when it is trained again.
        again = [*RECIPE, "--epochs", "2"]
        for name in ("twice", "once"):
            run(["train", f"runs/{name}/export/model.onnx", *again, "--name", f"{name}_again"])
        np.testing.assert_allclose(losses_of("twice_again"), losses_of("once_again"), rtol=1e-5)

    def test_evaluates_predicts_and_resumes(self):
        loss = {name: json.loads(run(["eval", f"runs/{name}", *DATA[:2], "--json"]).stdout)["loss"] for name in ("twice", "once")}
        self.assertAlmostEqual(loss["twice"], loss["once"], 5)
        run(["predict", "runs/twice", *DATA[:2], "-o", "predicted.npz"])
        np.testing.assert_allclose(np.load("predicted.npz")["logits"], self.logits("runs/twice/export/model.onnx"), rtol=1e-4, atol=1e-5)
        run(["train", "twice.onnx", *RECIPE, "--epochs", "1", "--name", "part"])
        run(["resume", "runs/part", "--epochs", "3", "--progress", "none"])
        for name, want in self.state["twice"].items():
            np.testing.assert_array_equal(safetensors.numpy.load_file("runs/part/state.safetensors")[name], want, name)

    def test_begins_with_weights_of_a_run(self):
        # The frozen copy follows the frozen matrix.
        for name, freeze in (("twice", ["--freeze", "embed*", "--freeze", "val*"]), ("once", ["--freeze", "embed*"])):
            run(["train", f"{name}.onnx", *RECIPE, "--epochs", "1", "--init-weights", f"runs/{name}", *freeze, "--name", f"{name}_frozen"])
        np.testing.assert_allclose(losses_of("twice_frozen"), losses_of("once_frozen"), rtol=1e-5)
        exported = weights_of("runs/twice_frozen/export/model.onnx")
        np.testing.assert_array_equal(exported["val_7"], self.state["twice"]["embed.weight"].T)

    def test_can_be_trained_as_two(self):
        run(["train", "twice.onnx", *RECIPE, "--epochs", "1", "--no-tie", "--name", "two"])
        self.assertIn("val_7", safetensors.numpy.load_file("runs/two/state.safetensors"))
        exported = weights_of("runs/two/export/model.onnx")
        self.assertGreater(np.abs(exported["val_7"] - exported["embed.weight"].T).max(), 0.01)

    def test_frozen_copies_are_kept(self):
        before = weights_of("twice.onnx")
        run(["train", "twice.onnx", *RECIPE, "--epochs", "1", "--freeze", "val_7", "--name", "half_frozen"])
        exported = weights_of("runs/half_frozen/export/model.onnx")
        np.testing.assert_array_equal(exported["val_7"], before["val_7"])
        self.assertGreater(np.abs(exported["embed.weight"] - before["embed.weight"]).max(), 0.01)

    def test_others_are_not_tied(self):
        changed = weights_of("twice.onnx")["val_7"].copy()
        changed[2, 3] += 1e-3
        identity = np.eye(FEATURES, WORDS, dtype=np.float32)
        for output in (changed, identity):
            write("other.onnx", True, output=output)
            self.assertNotIn("transposed: one", run(["check", "other.onnx"]).stdout)
        # A module has it under this name, so it is another weight that began as a copy.
        write("other.onnx", True, name="head.weight")
        self.assertNotIn("transposed: one", run(["check", "other.onnx"]).stdout)
        for copy in ("onnx::MatMul_21", "/head/Transpose_output_0", "const_fold_opt__66"):
            write("other.onnx", True, name=copy)
            self.assertIn(f"{copy} is embed.weight, transposed: one", run(["check", "other.onnx"]).stdout)

    def test_half_precision(self):
        for name, twice in (("half_twice", True), ("half_once", False)):
            write(f"{name}.onnx", twice, np.float16)
            run(["train", f"{name}.onnx", *RECIPE, "--epochs", "2", "--name", name])
        np.testing.assert_allclose(losses_of("half_twice"), losses_of("half_once"), rtol=2e-3)
        exported = weights_of("runs/half_twice/export/model.onnx")
        self.assertEqual(exported["val_7"].dtype, np.float16)
        np.testing.assert_array_equal(exported["val_7"], exported["embed.weight"].T)

    def test_several_devices(self):
        for words in (["--devices", "cpu:2"], ["--devices", "cpu:2", "--place", "auto"]):
            name = "devices" + "_".join(words).replace(":", "")
            run(["train", "twice.onnx", *RECIPE, "--epochs", "3", *words, "--name", name])
            np.testing.assert_allclose(losses_of(name), losses_of("once"), rtol=1e-4)

    def test_algorithm(self):
        run(["export", "runs/twice", "--training", "-o", "with_training.onnx"])
        model = onnx.load("with_training.onnx")
        onnx.checker.check_model(model)
        self.assertNotIn("val_7", [i.name for i in model.graph.initializer])
        np.testing.assert_allclose(self.logits("with_training.onnx"), self.logits("runs/twice/export/model.onnx"), rtol=1e-4, atol=1e-5)
        run(["train", "with_training.onnx", *DATA[:2], "--loss", "algorithm", "--batch", "16", "--epochs", "2", "--no-shuffle", "--progress",
             "none", "--name", "algorithm"])
        run(["train", "once.onnx", *RECIPE, "--epochs", "5", "--name", "five"])
        np.testing.assert_allclose(losses_of("algorithm"), losses_of("five")[3:], rtol=1e-4)


if __name__ == "__main__":
    unittest.main()
