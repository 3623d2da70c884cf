"""The memory that commands take in relation to the weights of a model, and models for which there is none."""
import os
import resource
import subprocess
import sys
import tempfile
import unittest

import numpy as np
import onnx
from onnx import helper

GRADLOOM = os.path.abspath(sys.argv.pop(1))

LAYERS, WIDTH = 16, 1024
WEIGHTS = LAYERS * WIDTH * WIDTH * 4 / 2**20  # MiB
# What the command takes for a model of no size.
BASE = 100
# Writes the peak of a command's resident memory in KiB to a file. A process begins with the peak of the one that starts it, which is large here.
MEASURE = """import os, sys
child = os.posix_spawn(sys.argv[2], sys.argv[2:], os.environ)
_, status, usage = os.wait4(child, 0)
with open(sys.argv[1], 'w') as file:
    file.write(str(usage.ru_maxrss))
sys.exit(os.waitstatus_to_exitcode(status))
"""
LOSS = f"mse(h{LAYERS - 1}, target)"


def layers(random):
    nodes, weights, last = [], [], "x"
    for i in range(LAYERS):
        weights.append(onnx.numpy_helper.from_array((random.standard_normal((WIDTH, WIDTH)) / 32).astype(np.float32), f"w{i}"))
        nodes.append(helper.make_node("MatMul", [last, f"w{i}"], [f"h{i}"], name=f"/layer{i}"))
        last = f"h{i}"
    shape = ["N", WIDTH]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", 1, shape)], [helper.make_tensor_value_info(last, 1, shape)], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def run(words, mib=None):
    """With a limit on the memory of the process, in MiB."""
    limit = None if mib is None else lambda: resource.setrlimit(resource.RLIMIT_DATA, (mib << 20, mib << 20))
    return subprocess.run([GRADLOOM, *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=120, preexec_fn=limit)


class HostMemoryTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        # In memory, since runs sync their files to disk: the files of a run are fifteen times as large as its weights.
        folder = tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
        cls.addClassCleanup(folder.cleanup)
        os.chdir(folder.name)
        cls.addClassCleanup(os.chdir, "/")
        random = np.random.default_rng(1)
        onnx.save(layers(random), "model.onnx")
        np.savez("data.npz", x=random.standard_normal((8, WIDTH)).astype(np.float32), target=random.standard_normal((8, WIDTH)).astype(np.float32))
        cls.train = ["train", "model.onnx", "--data", "data.npz", "--loss", LOSS, "--optimizer", "adam", "--lr", "1e-5", "--batch", "4",
                     "--threads", "1", "--progress", "none"]
        cls.peak_of([*cls.train, "--epochs", "1", "--name", "run"])

    @staticmethod
    def peak_of(words):
        """The peak of a command's resident memory in MiB."""
        done = subprocess.run([sys.executable, "-I", "-S", "-c", MEASURE, "peak", GRADLOOM, *words], stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, text=True, timeout=120)
        assert done.returncode == 0, f"{words}\n{done.stderr}"
        with open("peak") as file:
            return int(file.read()) / 1024

    def expect(self, most, words):
        peak = self.peak_of(words)
        self.assertLess(peak, BASE + most * WEIGHTS, f"{words}: {(peak - BASE) / WEIGHTS:.2f} times the weights")

    def test_training(self):
        """Weights and two moments are three times the weights."""
        self.expect(4, [*self.train, "--epochs", "1", "--name", "once"])

    def test_saves_while_training(self):
        """With a copy of the state, but of nothing else."""
        self.expect(7, [*self.train, "--epochs", "3", "--save-every", "1ep", "--name", "saves"])
        self.expect(7, ["resume", "runs/saves", "--epochs", "5"])

    def test_exports(self):
        for words in (["-o", "trained.onnx"], ["-o", "trained.safetensors"], ["--outputs", f"h{LAYERS - 1}", "-o", "output.onnx"]):
            self.expect(0.5, ["export", "runs/run", *words])
        with open("trained.onnx", "rb") as whole, open("runs/run/export/model.onnx", "rb") as trained, open("output.onnx", "rb") as output:
            bytes_of_run = trained.read()
            self.assertEqual(whole.read(), bytes_of_run)
            self.assertEqual(output.read(), bytes_of_run)
        # The model is imported to write its training; the state of the optimizer is only copied.
        self.expect(2, ["export", "runs/run", "--training", "-o", "training.onnx"])
        self.assertGreater(os.path.getsize("training.onnx"), 3 * WEIGHTS * 2**20)

    def test_use(self):
        """The weights of the model, and the constants of a plan."""
        self.expect(2.5, ["eval", "runs/run", "--data", "data.npz", "--batch", "4"])
        self.expect(2.5, ["predict", "runs/run", "--data", "data.npz", "--batch", "4", "-o", "predictions.npz"])

    def test_plans(self):
        self.expect(1.5, ["compile", "model.onnx", "--loss", LOSS, "--optimizer", "adam", "--batch", "4", "-o", "model.plan"])
        self.expect(1.5, ["inspect", "model.plan", "--memory"])

    def test_no_memory_for_a_copy(self):
        """Training waits for the saves."""
        def final(name, limit=None):
            done = run([*self.train, "--epochs", "2", "--save-every", "1ep", "--name", name], limit)
            self.assertEqual(done.returncode, 0, done.stderr)
            with open(f"runs/{name}/state.safetensors", "rb") as file:
                return done.stderr, file.read()

        said, state = final("copied")
        self.assertNotIn("training waits", said)
        limited, same = final("waited", 384)
        self.assertRegex(limited, r"warning training waits for each save: a copy of the state takes 19\d MiB of memory, which are not free")
        self.assertEqual(limited.count("training waits"), 1)
        self.assertEqual(same, state)

    def test_no_memory_for_a_plan(self):
        run(["compile", "model.onnx", "--loss", LOSS, "--batch", "4", "-o", "refused.plan"])
        done = run(["inspect", "refused.plan", "--memory"], 64)
        self.assertEqual(done.returncode, 8, done.stderr)
        self.assertRegex(done.stderr, r"error\[E-RESOURCE\]: the plan needs 6\d MiB of memory, but \d+ MiB are free")


def varint(number):
    some = b""
    while number >= 128:
        some += bytes([number & 127 | 128])
        number >>= 7
    return some + bytes([number])


class ShortageTest(unittest.TestCase):
    """Models whose weights are holes in files."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        os.chdir(folder.name)
        cls.addClassCleanup(os.chdir, "/")

    def model(self, weight):
        columns = weight.dims[1]
        graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [helper.make_tensor_value_info("x", 1, ["N", 4])],
                                  [helper.make_tensor_value_info("y", 1, ["N", columns])], [weight])
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)

    def expect_refusal(self, path):
        done = run(["check", path], 512)
        self.assertEqual(done.returncode, 8, done.stderr)
        self.assertRegex(done.stderr, r"error\[E-RESOURCE\]: the model needs 102[45] MiB of memory, but \d+ MiB are free")

    def test_external_data(self):
        weight = onnx.TensorProto(name="w", data_type=1, dims=[4, 2**26], data_location=onnx.TensorProto.EXTERNAL)
        weight.external_data.add(key="location", value="w.bin")
        with open("w.bin", "wb") as file:
            file.truncate(2**30)
        onnx.save(self.model(weight), "external.onnx")
        self.expect_refusal("external.onnx")
        # What the file claims is checked first.
        weight.dims[1] = 2**27
        onnx.save(self.model(weight), "claims.onnx")
        done = run(["check", "claims.onnx"], 512)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("E-TENSOR", done.stderr)

    def test_one_file(self):
        weight = onnx.TensorProto(name="w", data_type=1, dims=[4, 2**26])
        model = self.model(weight)
        del model.graph.initializer[:]
        graph = model.graph.SerializeToString()
        model.ClearField("graph")
        # raw_data of the tensor, the initializer of the graph, the graph of the model
        tensor = weight.SerializeToString() + b"\x4a" + varint(2**30)
        graph += b"\x2a" + varint(len(tensor) + 2**30) + tensor
        with open("inline.onnx", "wb") as file:
            file.write(model.SerializeToString() + b"\x3a" + varint(len(graph) + 2**30) + graph)
            file.truncate(file.tell() + 2**30)
        self.expect_refusal("inline.onnx")


if __name__ == "__main__":
    unittest.main()
