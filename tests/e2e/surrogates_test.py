"""Spiking networks, whose surrogate gradients no file records: what check says, and that they train as the modules do with --surrogate
(../onnx/steps/record.py)."""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

import numpy as np
import safetensors.numpy

GRADLOOM, FOLDER = os.path.abspath(sys.argv.pop(1)), os.path.abspath(os.path.dirname(sys.argv.pop(1)))
LOSS = ["--loss", "cross_entropy(out, y)"]
SURROGATE = ["--surrogate", "atan(2)"]


def run(words, code=0):
    done = subprocess.run([GRADLOOM, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120)
    if done.returncode != code:
        raise AssertionError(f"{words}: exit {done.returncode}, not {code}\n{done.stderr}")
    return done


def check(name, *flags, code=0):
    done = run(["check", os.path.join(FOLDER, f"{name}.onnx"), *LOSS, *flags], code)
    return done.stdout + done.stderr


class SurrogatesTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.out = folder.name

    def train(self, name, form, *flags):
        recorded = np.load(os.path.join(FOLDER, f"{name}.npz"))
        run(["train", os.path.join(FOLDER, f"{name}_{form}.onnx"), "--data", os.path.join(FOLDER, f"{name}.npz"), "--map", "x=x", "--map",
             "y=y", *LOSS, "--optimizer", "momentum", "--momentum", "0.9", "--lr", "0.2", "--batch", "8", "--epochs", "4", "--no-shuffle",
             "--progress", "none", "--out", self.out, "--name", "run", *flags])
        folder = os.path.join(self.out, "run")
        with open(os.path.join(folder, "metrics.jsonl")) as lines:
            losses = [row["loss"] for row in map(json.loads, lines) if row["split"] == "train"]
        state = safetensors.numpy.load_file(os.path.join(folder, "state.safetensors"))
        shutil.rmtree(folder)
        return np.array(losses), state, recorded

    def assert_as_recorded(self, losses, state, recorded):
        np.testing.assert_allclose(losses, recorded["losses"], rtol=2e-6)
        for key in recorded.files:
            if key.startswith("after/"):
                np.testing.assert_allclose(state[key.removeprefix("after/")], recorded[key], rtol=1e-4, atol=2e-6, err_msg=key)

    def test_trains_like_the_module(self):
        self.assert_as_recorded(*self.train("spikes", "default", *SURROGATE))
        self.assert_as_recorded(*self.train("units", "plain", *SURROGATE))

    def test_check_says_what_is_missing(self):
        for name in ("spikes_default", "units_plain"):
            plain = check(name)
            self.assertIn("warning 2 weights are not trained (fc1.weight, fc1.bias): they reach the outputs only through steps", plain)
            self.assertIn("nodes come from a forward() that is no module's (record.py:27)", plain)
            given = check(name, *SURROGATE)
            self.assertNotIn("warning", given)
            self.assertNotIn("no module's", given)
            self.assertIn("trained  fc1.weight", given)
        losses, _, recorded = self.train("spikes", "default")
        self.assertGreater(np.abs(losses - recorded["losses"]).max(), 0.01)

    def test_detach_that_the_exporter_removed(self):
        # The reset, a detached spike, is multiplied by a threshold of 1.
        self.assertIn("4 nodes read steps in place of the result of an operator that the exporter has removed", check("units_default", *SURROGATE))
        losses, _, recorded = self.train("units", "default", *SURROGATE)
        self.assertGreater(np.abs(losses - recorded["losses"]).max(), 0.01)
        self.assert_as_recorded(*self.train("units", "default", *SURROGATE, "--detach", "_to_copy*@node_sub*"))

    def test_mistakes(self):
        for text in ("atan", "atan(2", "tanh(2)", "straight_through(1)", "atan(2)@", "atan(2)x", ""):
            self.assertIn("cannot read --surrogate", check("spikes_default", "--surrogate", text, code=4))
        self.assertIn("'x' is not a number", check("spikes_default", "--surrogate", "atan(x)", code=4))
        for text in ("atan(0)", "atan(-1)", "sigmoid(inf)"):
            self.assertIn("must be above 0", check("spikes_default", "--surrogate", text, code=4))
        wrong = check("spikes_default", "--surrogate", "atan(2)@spike*", code=4)
        self.assertIn("no step of a value that depends on a weight with a name like 'spike*'", wrong)
        self.assertIn("the model has: _to_copy", wrong)


if __name__ == "__main__":
    unittest.main()
