"""Python drives the C interface through ctypes: trains on numpy buffers and exchanges tensors by DLPack. onnxruntime reads the exported
model.

Arguments: the header, the library, the model, the command.
"""
import ctypes
import os
import subprocess
import sys
import tempfile
import unittest

import numpy as np
import onnx
import onnxruntime
from safetensors.numpy import load_file

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from header import Gradloom  # noqa: E402

BATCH = 64


def tensor(g, array):
    """A GradloomTensor that borrows the array, and keeps the array and its shape alive."""
    code = {"float32": 1, "int64": 7}[array.dtype.name]
    shape = (ctypes.c_int64 * array.ndim)(*array.shape)
    made = g.struct("GradloomTensor", data=array.ctypes.data, shape=ctypes.addressof(shape), rank=array.ndim, dtype=code)
    made.keep = (array, shape)
    return made


class Capsule:
    """An object for numpy.from_dlpack, which returns a capsule with a DLManagedTensor."""

    def __init__(self, managed):
        self.managed = managed

    def __dlpack__(self, **_):
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return new(self.managed, b"dltensor", None)

    def __dlpack_device__(self):
        return (1, 0)


class PythonTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.g = Gradloom(*ARGUMENTS[:2])
        cls.model = ctypes.c_void_p()
        cls.g.LoadModel(ARGUMENTS[2].encode(), None, ctypes.byref(cls.model))
        settings = cls.g.array("GradloomSetting", [(b"loss.name", b"cross_entropy(logits, label)"), (b"optimizer.name", b"momentum"),
                                                   (b"optimizer.lr", b"0.02")])
        batches = (ctypes.c_int64 * 1)(BATCH)
        options = cls.g.struct("GradloomCompileOptions", settings=ctypes.addressof(settings), num_settings=len(settings),
                               batches=ctypes.addressof(batches), num_batches=1)
        cls.plan = ctypes.c_void_p()
        cls.g.Compile(cls.model, ctypes.byref(options), ctypes.byref(cls.plan))
        random = np.random.default_rng(1)
        # Separable classes: each has its own pattern plus noise.
        patterns = random.normal(size=(10, 1, 8, 8)).astype(np.float32)
        cls.labels = random.integers(0, 10, BATCH).astype(np.int64)
        cls.images = (patterns[cls.labels] + 0.3 * random.normal(size=(BATCH, 1, 8, 8))).astype(np.float32)

    def session(self):
        made = ctypes.c_void_p()
        self.g.CreateTrainingSession(self.plan, None, None, ctypes.byref(made))
        self.addCleanup(self.g.ReleaseTrainingSession, made)
        return made

    def step(self, session, images, labels):
        given = [tensor(self.g, images), tensor(self.g, labels)]
        inputs = self.g.array("GradloomTensor", given)
        names = (ctypes.c_char_p * 2)(b"image", b"label")
        result = self.g.struct("GradloomStepResult")
        self.g.Step(session, names, inputs, 2, ctypes.byref(result))
        return result.loss

    def test_trains_on_numpy_arrays(self):
        session = self.session()
        images, labels = self.images.copy(), self.labels.copy()
        losses = [self.step(session, images, labels) for _ in range(30)]
        self.assertLess(losses[-1], 0.2 * losses[0])
        np.testing.assert_array_equal(images, self.images)
        np.testing.assert_array_equal(labels, self.labels)

    def test_onnxruntime_matches_the_session(self):
        session = self.session()
        for _ in range(5):
            self.step(session, self.images, self.labels)
        images = tensor(self.g, self.images)
        self.g.Predict(session, None, ctypes.byref(images), 1)
        logits = np.empty((BATCH, 10), np.float32)
        self.g.CopyOutput(session, b"logits", logits.ctypes.data_as(ctypes.c_void_p), logits.nbytes)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "trained.onnx")
            self.g.ExportModelForInferencing(session, path.encode(), None, 0)
            onnx.checker.check_model(path, full_check=True)
            theirs = onnxruntime.InferenceSession(path).run(["logits"], {"image": self.images})[0]
            np.testing.assert_allclose(logits, theirs, atol=1e-5 * np.abs(theirs).max())
            # The weights are the same when read by Python's safetensors.
            self.g.SaveCheckpoint(session, path.encode(), 0)
            saved = load_file(path)
        count = ctypes.c_size_t()
        self.g.GetParameterCount(session, 0, ctypes.byref(count))
        self.assertEqual(len(saved), count.value)
        for name, value in saved.items():
            mine = np.empty(value.shape, value.dtype)
            self.g.GetParameter(session, name.encode(), mine.ctypes.data_as(ctypes.c_void_p), mine.nbytes)
            np.testing.assert_array_equal(mine, value)

    def test_plans_of_the_command(self):
        """Plans compiled with --gradients contain what TrainStep needs; without it the error explains how to get it. Steps of those with
        --input-gradients return these."""
        inputs = [tensor(self.g, self.images), tensor(self.g, self.labels)]
        inputs = self.g.array("GradloomTensor", inputs), inputs
        with tempfile.TemporaryDirectory() as folder:
            for flags in ([], ["--gradients", "--input-gradients", "image"]):
                path = os.path.join(folder, "m.plan")
                subprocess.run([ARGUMENTS[3], "compile", ARGUMENTS[2], "--loss", "cross_entropy(logits, label)", "--batch", str(BATCH), "-o", path] +
                               flags, check=True, capture_output=True)
                plan, session = ctypes.c_void_p(), ctypes.c_void_p()
                self.g.LoadPlan(path.encode(), ctypes.byref(plan))
                self.g.CreateTrainingSession(plan, None, None, ctypes.byref(session))
                if flags:
                    self.g.TrainStep(session, None, inputs[0], 2, None)
                    gradient = np.zeros_like(self.images)
                    self.g.CopyOutput(session, b"grad/image", gradient.ctypes.data_as(ctypes.c_void_p), gradient.nbytes)
                    self.assertTrue(gradient.any())
                    self.g.OptimizerStep(session, None)
                else:
                    with self.assertRaisesRegex(Gradloom.Error, "compile --gradients"):
                        self.g.TrainStep(session, None, inputs[0], 2, None)
                self.g.Step(session, None, inputs[0], 2, None)
                self.g.ReleaseTrainingSession(session)
                self.g.ReleasePlan(plan)

    def test_checkpoints_that_were_skipped(self):
        checkpoint, text = ctypes.c_void_p(), ctypes.c_void_p()

        def skipped(path):
            self.g.LoadCheckpoint(path.encode(), ctypes.byref(checkpoint))
            self.g.GetSkippedCheckpoints(checkpoint, ctypes.byref(text))
            lines = self.g.GetTextData(text).decode().splitlines()
            self.g.ReleaseText(text)
            self.g.ReleaseCheckpoint(checkpoint)
            return lines

        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([ARGUMENTS[3], "train", ARGUMENTS[2], "--data", "random:40", "--loss", "cross_entropy(logits, label)", "--batch", "10",
                            "--epochs", "1", "--save-every", "1", "--out", folder, "--name", "run", "--progress", "none"], check=True, capture_output=True)
            run, kept = os.path.join(folder, "run"), os.path.join(folder, "run", "checkpoints")
            self.assertEqual(skipped(run), [])
            names = sorted(name for name in os.listdir(kept) if name.startswith("step-"))
            with open(os.path.join(kept, names[-1], "rank-0.safetensors"), "r+b") as file:
                file.truncate(1000)
            for path in (run, kept):
                lines = skipped(path)
                self.assertEqual(len(lines), 1, lines)
                self.assertRegex(lines[0], f"/{names[-1]}: the file has 1000 bytes")
            self.assertEqual(skipped(os.path.join(kept, names[-2])), [])

    def test_exchanges_tensors_by_dlpack(self):
        for array in (self.images, self.labels, np.float32(3).reshape(()), np.zeros((0, 3), np.float32)):
            managed = ctypes.c_void_p()
            self.g.ToDLPack(ctypes.byref(tensor(self.g, np.ascontiguousarray(array).reshape(array.shape))), ctypes.byref(managed))
            copy = np.from_dlpack(Capsule(managed.value))
            self.assertEqual(copy.dtype, array.dtype)
            np.testing.assert_array_equal(copy, array)
        # In the other direction: a capsule from numpy.
        pointer = ctypes.pythonapi.PyCapsule_GetPointer
        pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        writable = self.images.copy()
        capsule = writable.__dlpack__()
        borrowed = self.g.struct("GradloomTensor")
        self.g.FromDLPack(pointer(capsule, b"dltensor"), ctypes.byref(borrowed))
        self.assertEqual((borrowed.data, borrowed.rank, borrowed.dtype), (writable.ctypes.data, 4, 1))
        self.assertEqual(list((ctypes.c_int64 * 4).from_address(borrowed.shape)), list(writable.shape))
        transposed = writable.transpose().__dlpack__()
        with self.assertRaisesRegex(Gradloom.Error, "not row-major"):
            self.g.FromDLPack(pointer(transposed, b"dltensor"), ctypes.byref(borrowed))

    def test_keeps_a_chosen_output(self):
        """One of a model's two outputs is exported, with only the nodes that it needs. Branches may refer to names of the enclosing graph.
        """
        helper = onnx.helper

        def value(name, shape, kind=1):
            return helper.make_tensor_value_info(name, kind, shape)

        def branch(weight):
            node = helper.make_node("MatMul", ["x", weight], ["product"])
            return helper.make_graph([node], weight + "_branch", [], [value("product", None)])

        inputs = [value("x", ["N", 4]), value("c", [], onnx.TensorProto.BOOL)]
        weights = [onnx.numpy_helper.from_array(np.full((4, 2), number, np.float32), name) for name, number in (("v", 1), ("w", 2), ("u", 3))]
        nodes = [helper.make_node("MatMul", ["x", "v"], ["y"]),
                 helper.make_node("If", ["c"], ["z"], then_branch=branch("w"), else_branch=branch("u"))]
        graph = helper.make_graph(nodes, "g", inputs, [value("y", ["N", 2]), value("z", ["N", 2])], weights)
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        data = made.SerializeToString()
        model, plan, session = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        self.g.LoadModelFromBuffer(data, len(data), None, ctypes.byref(model))
        settings = self.g.array("GradloomSetting", [(b"loss.name", b"['mse(y, a)', 'mse(z, b)']")])
        options = self.g.struct("GradloomCompileOptions", settings=ctypes.addressof(settings), num_settings=1)
        self.g.Compile(model, ctypes.byref(options), ctypes.byref(plan))
        self.g.CreateTrainingSession(plan, None, None, ctypes.byref(session))
        x = np.ones((3, 4), np.float32)
        with tempfile.TemporaryDirectory() as folder:
            for name, kept_weights, fed, expected in (("y", ["v"], {"x": x}, 4), ("z", ["u", "w"], {"x": x, "c": np.array(False)}, 12)):
                path = os.path.join(folder, name + ".onnx")
                self.g.ExportModelForInferencing(session, path.encode(), (ctypes.c_char_p * 1)(name.encode()), 1)
                kept = onnx.load(path)
                onnx.checker.check_model(kept, full_check=True)
                self.assertEqual([o.name for o in kept.graph.output], [name])
                self.assertEqual(sorted(i.name for i in kept.graph.initializer), kept_weights)
                self.assertEqual(len(kept.graph.node), 1)
                theirs = onnxruntime.InferenceSession(path).run(None, fed)[0]
                np.testing.assert_array_equal(theirs, np.full((3, 2), expected, np.float32))
        self.g.ReleaseTrainingSession(session)
        self.g.ReleasePlan(plan)
        self.g.ReleaseModel(model)


if __name__ == "__main__":
    ARGUMENTS = sys.argv[1:5]
    del sys.argv[1:5]
    unittest.main()
