"""ONNX's multi-device annotations: written by export --placement, read if no flag says otherwise, and ignored with a note if unsupported.
Models that relate samples, for which one device gathers them.
"""
import json
import os
import subprocess
import sys
import tempfile
import unittest

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

GRADLOOM = os.path.abspath(sys.argv.pop(1))
ROWS, BATCH = 24, 8
LOSS = ["--loss", "mse(y, t)"]


def make_model():
    rng = np.random.default_rng(3)
    weights = {n: (rng.standard_normal(s) * 0.4).astype(np.float32) for n, s in {"w1": (5, 6), "w2": (6, 6), "w3": (6, 2)}.items()}
    nodes = [helper.make_node("MatMul", ["x", "w1"], ["a"], name="first"), helper.make_node("Tanh", ["a"], ["b"]),
             helper.make_node("MatMul", ["b", "w2"], ["c"], name="/second/MatMul"), helper.make_node("Relu", ["c"], ["d"], name="/second/Relu"),
             helper.make_node("MatMul", ["d", "w3"], ["y"], name="third")]
    info = lambda name, n: helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", n])
    graph = helper.make_graph(nodes, "model", [info("x", 5)], [info("y", 2)], [numpy_helper.from_array(v, n) for n, v in weights.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def annotate(model, devices, stages=None, specs=()):
    """`stages` by node; `specs`: (node, tensor, devices, axis, shards)."""
    model.ir_version = 11
    model.configuration.add(name="plan", num_devices=devices)
    for i, node in enumerate(model.graph.node):
        part = node.device_configurations.add(configuration_id="plan")
        if stages is not None:
            part.pipeline_stage = stages[i]
        for at, tensor, on, axis, shards in specs:
            if at != i:
                continue
            spec = part.sharding_spec.add(tensor_name=tensor, device=on)
            if axis is not None:
                spec.sharded_dim.add(axis=axis).simple_sharding.add(num_shards=shards)
    return model


class PlacementTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        rng = np.random.default_rng(11)
        np.savez(self.path("data.npz"), x=rng.standard_normal((ROWS, 5)).astype(np.float32), t=rng.standard_normal((ROWS, 2)).astype(np.float32))
        onnx.save(make_model(), self.path("model.onnx"))

    def path(self, name):
        return os.path.join(self.folder, name)

    def run_command(self, *words, code=0):
        done = subprocess.run([GRADLOOM, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120, cwd=self.folder)
        self.assertEqual(done.returncode, code, f"{words}\n{done.stdout}{done.stderr}")
        return done

    def train(self, model, name, *words):
        return self.run_command("train", model, "--data", "data.npz", *LOSS, "--threads", "1", "--batch", str(BATCH), "--epochs", "2",
                                "--progress", "none", "--log-every", "1", "--name", name, *words)

    def losses(self, run):
        with open(self.path(f"runs/{run}/metrics.jsonl"), encoding="utf-8") as file:
            return [line["loss"] for line in map(json.loads, file) if line["split"] == "train"]

    def ranks(self, run):
        """The state of each device, if devices hold different parts of the model."""
        return json.loads(self.run_command("inspect", f"runs/{run}", "--json").stdout).get("devices", [None])

    def test_round_trip_of_stages_and_replicas(self):
        self.train("model.onnx", "one")
        for name, words, stages in [
                ("stages", ["--place", "second.*=cpu:1", "--place", "third=cpu:2", "--devices", "cpu:3"], [0, 0, 1, 1, 2]),
                ("both", ["--place", "second.*=cpu:1", "--devices", "cpu:4"], [0, 0, 1, 1, 1]),
                ("copies", ["--devices", "cpu:2"], None)]:
            with self.subTest(name):
                self.train("model.onnx", name, *words)
                self.run_command("export", f"runs/{name}", "--placement", "-o", f"{name}.onnx")
                model = onnx.load(self.path(f"{name}.onnx"))
                onnx.checker.check_model(model, full_check=True)
                self.assertEqual(model.ir_version, 11)
                self.assertEqual(model.configuration[0].num_devices, int(words[-1][-1]))
                parts = [node.device_configurations[0] for node in model.graph.node]
                if stages is not None:
                    self.assertEqual([part.pipeline_stage for part in parts], stages)
                divided = [(spec.tensor_name, spec.sharded_dim[0].axis, spec.sharded_dim[0].simple_sharding[0].num_shards,
                            spec.sharded_dim[0].simple_sharding[0].dim_param, list(spec.device))
                           for part in parts for spec in part.sharding_spec if spec.sharded_dim]
                wanted = {"stages": [], "both": [("x", 0, 2, "N", [0, 2]), ("y", 0, 2, "N", [1, 3])],
                          "copies": [("x", 0, 2, "N", [0, 1]), ("y", 0, 2, "N", [0, 1])]}
                self.assertEqual(divided, wanted[name])
                # Read back: the same number of devices, each with the same state, and the losses of one device.
                done = self.train(f"{name}.onnx", f"{name}_again")
                self.assertIn("the file's annotations", done.stdout + done.stderr)
                self.assertEqual(self.ranks(f"{name}_again"), self.ranks(name))
                with open(self.path(f"runs/{name}_again/config.toml"), encoding="utf-8") as file:
                    self.assertIn(f'use = "{words[-1]}"', file.read())
                self.run_command("export", f"runs/{name}_again", "--placement", "-o", "again.onnx")
                again = onnx.load(self.path("again.onnx"))
                self.assertEqual([node.device_configurations[0] for node in again.graph.node], parts)
                x = np.load(self.path("data.npz"))["x"]
                made = [onnxruntime.InferenceSession(self.path(f), providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
                        for f in (f"{name}.onnx",)]
                self.run_command("predict", f"runs/{name}", "--data", "data.npz", "-o", "y.npz")
                np.testing.assert_allclose(np.load(self.path("y.npz"))["y"], made[0], rtol=1e-5, atol=1e-6)
                np.testing.assert_allclose(self.losses(name), self.losses("one"), rtol=1e-5)
                # The placement from the file is stored with the run.
                self.run_command("resume", f"runs/{name}_again", "--epochs", "3", "--progress", "none")

    def test_a_placement_without_devices_can_be_resumed(self):
        self.train("model.onnx", "placed", "--place", "third=cpu:1")
        self.run_command("resume", "runs/placed", "--epochs", "3", "--progress", "none")

    def test_a_placed_run_is_used_on_other_devices(self):
        self.train("model.onnx", "one")
        self.train("model.onnx", "parts", "--place", "third=cpu:1", "--devices", "cpu:2")
        self.train("model.onnx", "tail", "--place", "third=cpu:2", "--gather-to", "cpu:2", "--devices", "cpu:3")
        for run in ("parts", "tail"):
            self.run_command("predict", f"runs/{run}", "--data", "data.npz", "-o", "own.npz")
            for devices in ("cpu", "cpu:2"):
                self.run_command("predict", f"runs/{run}", "--data", "data.npz", "--devices", devices, "-o", "other.npz")
                np.testing.assert_allclose(np.load(self.path("other.npz"))["y"], np.load(self.path("own.npz"))["y"], rtol=1e-5, atol=1e-6)
                self.run_command("eval", f"runs/{run}", "--data", "data.npz", "--devices", devices)
        # More copies of the parts fit, one device does not. The run then has no placement any more.
        self.run_command("resume", "runs/parts", "--epochs", "3", "--devices", "cpu:4", "--progress", "none")
        self.assertEqual(len(self.ranks("parts")), 4)
        for run in ("one", "parts", "tail"):
            self.run_command("resume", f"runs/{run}", "--epochs", "4", "--devices", "cpu", "--progress", "none")
            self.run_command("resume", f"runs/{run}", "--epochs", "5", "--progress", "none")
            self.assertEqual(self.ranks(run), [None])
            np.testing.assert_allclose(self.losses(run), self.losses("one"), rtol=1e-4)
        refused = self.run_command("train", "model.onnx", "--data", "data.npz", *LOSS, "--place", "third=cpu:1", "--devices", "cpu", code=4)
        self.assertIn("1 devices are not a multiple", refused.stderr)

    def test_single_devices_without_stages(self):
        on = [0, 0, 1, 1, 1]
        specs = [(i, node.output[0], [on[i]], None, 1) for i, node in enumerate(make_model().graph.node)]
        onnx.save(annotate(make_model(), 2, None, specs), self.path("single.onnx"))
        self.train("single.onnx", "single")
        self.train("model.onnx", "placed", "--place", "second.*=cpu:1", "--place", "third=cpu:1", "--devices", "cpu:2")
        self.assertEqual(self.ranks("single"), self.ranks("placed"))

    def test_a_pipeline_that_an_automatic_placement_does_not_have(self):
        made = self.run_command("compile", "model.onnx", *LOSS, "--devices", "cpu:2", "--place", "auto", "--pipeline", "4", "-o", "made.plan", "--json")
        self.assertIn("warning --pipeline has no effect: each device has the whole model", made.stderr)
        self.assertIn("--pipeline has no effect", json.loads(made.stdout)["warnings"][0])

    def test_unsupported_annotations_are_reported(self):
        stages = [0, 0, 1, 1, 1]
        for name, model, part in [
                ("weights", annotate(make_model(), 2, None, [(0, "w1", [0, 1], 1, 2)]), "the weight 'w1'"),
                ("features", annotate(make_model(), 2, None, [(0, "x", [0, 1], 1, 2)]), "axis 1"),
                ("odd", annotate(make_model(), 3, stages), "3 devices are not a multiple"),
                ("far", annotate(make_model(), 2, [0, 0, 1, 1, 7]), "stage 7 of 2"),
                ("none", annotate(make_model(), 0, stages), "0 devices"),
                ("shards", annotate(make_model(), 4, stages, [(0, "x", [0, 2], 0, 3)]), "sharded into 3 parts"),
                ("elsewhere", annotate(make_model(), 2, None, [(0, "x", [0, 5], 0, 2)]), "device 5 of 2")]:
            with self.subTest(name):
                onnx.save(model, self.path(f"{name}.onnx"))
                done = self.train(f"{name}.onnx", name)
                lines = [line for line in (done.stdout + done.stderr).splitlines() if "is ignored" in line]
                self.assertEqual(len(lines), 1, done.stdout + done.stderr)
                self.assertIn(part, lines[0])
                self.assertEqual(len(self.ranks(name)), 1)
                self.assertIn(part, self.run_command("train", f"{name}.onnx", "--data", "data.npz", *LOSS, "--place", "file", code=4).stderr)
        model = annotate(make_model(), 2, stages)
        del model.configuration[:]
        onnx.save(model, self.path("nameless.onnx"))
        self.assertIn("but the model has none", self.train("nameless.onnx", "nameless").stderr)

    def test_flags_override_annotations(self):
        onnx.save(annotate(make_model(), 2, [0, 0, 1, 1, 1]), self.path("staged.onnx"))
        done = self.train("staged.onnx", "flag", "--devices", "cpu")
        self.assertIn("ignored: --devices is cpu", done.stdout + done.stderr)
        self.assertEqual(len(self.ranks("flag")), 1)
        self.run_command("resume", "runs/flag", "--epochs", "3", "--progress", "none")
        self.train("staged.onnx", "place", "--place", "third=cpu:1")
        self.assertEqual(len(self.ranks("place")), 2)
        self.train("staged.onnx", "more", "--place", "file", "--devices", "cpu:4")
        self.assertEqual(len(self.ranks("more")), 4)
        self.run_command("train", "staged.onnx", "--data", "data.npz", *LOSS, "--place", "file", "--place", "third=cpu:1", code=4)
        self.assertIn("has no placement", self.run_command("train", "model.onnx", "--data", "data.npz", *LOSS, "--place", "file", code=4).stderr)

    def test_what_cannot_be_written(self):
        self.train("model.onnx", "gathered", "--devices", "cpu:2", "--gather-to", "cpu:0")
        done = self.run_command("export", "runs/gathered", "--placement", "-o", "refused.onnx", code=3)
        self.assertIn("ONNX's annotations cannot express", done.stderr)

    def test_related_samples_are_gathered(self):
        model = make_model()
        model.graph.node[-1].output[0] = "own"
        for op, operands, made, name in (("Transpose", ["own"], "turned", "turn"), ("MatMul", ["own", "turned"], "pairs", "similarity"),
                                         ("Softmax", ["pairs"], "shares", "softmax"), ("MatMul", ["shares", "own"], "y", "mix")):
            model.graph.node.append(helper.make_node(op, operands, [made], name=name))
        onnx.save(model, self.path("pairs.onnx"))
        self.train("pairs.onnx", "one")
        done = self.train("pairs.onnx", "three", "--devices", "cpu:3")
        self.assertRegex(done.stderr, "gather  samples are related from [A-Za-z]+ 'similarity' on .*the first device gathers all samples")
        np.testing.assert_allclose(self.losses("three"), self.losses("one"), rtol=1e-5)
        for verb in (["check"], ["compile", "-o", "pairs.plan"]):
            done = self.run_command(*verb, "pairs.onnx", *LOSS, "--batch", str(BATCH), "--devices", "cpu:3")
            self.assertRegex(done.stdout + done.stderr, "samples are related from [A-Za-z]+ 'similarity' on")
        # Resumed, the same device gathers.
        self.train("pairs.onnx", "stopped", "--devices", "cpu:3", "--steps", "4", "--save-every", "2")
        self.run_command("resume", "runs/stopped", "--set", "train.steps=6")
        self.assertEqual(self.losses("stopped"), self.losses("three")[:6])
        refused = self.run_command("train", "pairs.onnx", "--data", "data.npz", *LOSS, "--batch", str(BATCH), "--devices", "cpu:3", "--gather-to",
                                   "none", code=3)
        self.assertIn("similarity", refused.stderr)
        refused = self.run_command("export", "runs/three", "--placement", "-o", "placed.onnx", code=3)
        self.assertIn("cannot express a placement that gathers samples", refused.stderr)


if __name__ == "__main__":
    unittest.main()
