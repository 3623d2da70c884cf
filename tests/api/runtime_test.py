"""The library without a compiler: runs plans that the full one made to the same bits, and says what it does not have.

Arguments: the header, the full library, the one without a compiler, the model.
"""
import ctypes
import os
import subprocess
import sys
import tempfile
import unittest

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from header import Gradloom  # noqa: E402

BATCH = 16


class RuntimeTest(unittest.TestCase):
    def test_runs_plans_of_the_full_library(self):
        full, runtime = Gradloom(ARGUMENTS[0], ARGUMENTS[1]), Gradloom(ARGUMENTS[0], ARGUMENTS[2])
        model, plan = ctypes.c_void_p(), ctypes.c_void_p()
        full.LoadModel(ARGUMENTS[3].encode(), None, ctypes.byref(model))
        settings = full.array("GradloomSetting", [(b"loss.name", b"mse(value, target)"), (b"optimizer.name", b"adam")])
        batches = (ctypes.c_int64 * 1)(BATCH)
        options = full.struct("GradloomCompileOptions", settings=ctypes.addressof(settings), num_settings=2, batches=ctypes.addressof(batches),
                              num_batches=1)
        full.Compile(model, ctypes.byref(options), ctypes.byref(plan))
        random = np.random.default_rng(3)
        arrays = [random.normal(size=(BATCH, 13)).astype(np.float32), random.normal(size=(BATCH, 1)).astype(np.float32)]
        shapes = [(ctypes.c_int64 * 2)(*array.shape) for array in arrays]
        inputs = full.array("GradloomTensor", [(array.ctypes.data, ctypes.addressof(shape), 2, 1) for array, shape in zip(arrays, shapes)])
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "m.plan").encode()
            full.SavePlan(plan, path)
            ended = []
            for library in (full, runtime):
                loaded, session, count = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_size_t()
                library.LoadPlan(path, ctypes.byref(loaded))
                library.CreateTrainingSession(loaded, None, None, ctypes.byref(session))
                for _ in range(10):
                    library.Step(session, None, inputs, 2, None)
                library.GetParametersSize(session, 1, ctypes.byref(count))
                values = np.empty(count.value, np.float32)
                library.CopyParametersToBuffer(session, 1, values.ctypes.data_as(ctypes.c_void_p), count.value)
                ended.append(values)
                checkpoint = os.path.join(folder, "checkpoint").encode()
                library.SaveCheckpoint(session, checkpoint, 1)
                resumed, state = ctypes.c_void_p(), ctypes.c_void_p()
                library.LoadCheckpoint(checkpoint, ctypes.byref(state))
                library.CreateTrainingSession(loaded, None, state, ctypes.byref(resumed))
                if library is runtime:
                    with self.assertRaisesRegex(Gradloom.Error, "E-UNSUPPORTED.*not in this build"):
                        library.ExportModelForInferencing(session, checkpoint, None, 0)
                for release, handle in (("TrainingSession", session), ("TrainingSession", resumed), ("Checkpoint", state), ("Plan", loaded)):
                    getattr(library, "Release" + release)(handle)
            np.testing.assert_array_equal(*ended)
        with self.assertRaisesRegex(Gradloom.Error, "E-UNSUPPORTED.*not in this build"):
            runtime.LoadModel(ARGUMENTS[3].encode(), None, ctypes.byref(model))
        runtime.ReleaseModel(None)

    def test_has_no_trace_of_the_compiler(self):
        symbols = subprocess.run(["strings", "-n", "12", ARGUMENTS[2]], check=True, capture_output=True, text=True).stdout
        self.assertIn("cpu.Gemm", subprocess.run(["strings", "-n", "6", ARGUMENTS[2]], check=True, capture_output=True, text=True).stdout)
        self.assertNotIn("onnx.ModelProto", symbols)
        for library in ARGUMENTS[1:3]:
            code = f"import ctypes, time; t = time.perf_counter(); ctypes.CDLL({library!r}).GradloomGetApi(1); print(1e3 * (time.perf_counter() - t))"
            first = [float(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout) for _ in range(3)]
            print(f"{os.path.basename(library)}: {os.path.getsize(library) / 1e6:.1f} MB, opened in {min(first):.1f} ms")


if __name__ == "__main__":
    ARGUMENTS = [os.path.abspath(word) for word in sys.argv[1:5]]
    del sys.argv[1:5]
    unittest.main()
