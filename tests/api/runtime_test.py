"""The library without a compiler: it runs plans that the full library compiled, with the same bits, and reports what it lacks.

Arguments: the header, the full library, the library without a compiler, the model.
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


def in_a_process(*words):
    """Runs a function of this file in a separate process, because protobuf accepts the messages of only one library per process."""
    ran = subprocess.run([sys.executable, os.path.abspath(__file__), "--", *words], capture_output=True, text=True)
    assert ran.returncode == 0, f"{words}: {ran.returncode}\n{ran.stdout}{ran.stderr}"
    return ran.stdout


def compile_plan(header, library, model_path, plan_path):
    g = Gradloom(header, library)
    model, plan = ctypes.c_void_p(), ctypes.c_void_p()
    g.LoadModel(model_path.encode(), None, ctypes.byref(model))
    settings = g.array("GradloomSetting", [(b"loss.name", b"mse(value, target)"), (b"optimizer.name", b"adam")])
    batches = (ctypes.c_int64 * 1)(BATCH)
    options = g.struct("GradloomCompileOptions", settings=ctypes.addressof(settings), num_settings=2, batches=ctypes.addressof(batches),
                       num_batches=1)
    g.Compile(model, ctypes.byref(options), ctypes.byref(plan))
    g.SavePlan(plan, plan_path.encode())


def train(header, library, plan_path, folder):
    """Takes steps, saves a checkpoint, takes more steps from it, and leaves the resulting parameters in the folder. Prints the answers to a
    different batch size and to an export."""
    g = Gradloom(header, library)
    random = np.random.default_rng(3)
    arrays = [random.normal(size=(BATCH, 13)).astype(np.float32), random.normal(size=(BATCH, 1)).astype(np.float32)]
    shapes = [(ctypes.c_int64 * 2)(*array.shape) for array in arrays]
    inputs = g.array("GradloomTensor", [(array.ctypes.data, ctypes.addressof(shape), 2, 1) for array, shape in zip(arrays, shapes)])
    plan, session, checkpoint, resumed = (ctypes.c_void_p() for _ in range(4))
    path = os.path.join(folder, "checkpoint").encode()
    g.LoadPlan(plan_path.encode(), ctypes.byref(plan))
    g.CreateTrainingSession(plan, None, None, ctypes.byref(session))
    for _ in range(5):
        g.Step(session, None, inputs, 2, None)
    g.SaveCheckpoint(session, path, 1)
    g.LoadCheckpoint(path, ctypes.byref(checkpoint))
    g.CreateTrainingSession(plan, None, checkpoint, ctypes.byref(resumed))
    for _ in range(5):
        g.Step(resumed, None, inputs, 2, None)
    count = ctypes.c_size_t()
    g.GetParametersSize(resumed, 1, ctypes.byref(count))
    values = np.empty(count.value, np.float32)
    g.CopyParametersToBuffer(resumed, 1, values.ctypes.data_as(ctypes.c_void_p), count.value)
    np.save(os.path.join(folder, "parameters.npy"), values)
    shapes[0][0] = shapes[1][0] = BATCH - 1
    try:
        g.Step(resumed, None, inputs, 2, None)
        print("steps")
    except Gradloom.Error as error:
        print(error)
    try:
        g.ExportModelForInferencing(session, os.path.join(folder, "trained.onnx").encode(), None, 0)
        print("exports")
    except Gradloom.Error as error:
        print(error)


def load_model(header, library, model_path):
    try:
        Gradloom(header, library).LoadModel(model_path.encode(), None, ctypes.byref(ctypes.c_void_p()))
    except Gradloom.Error as error:
        print(error)


class RuntimeTest(unittest.TestCase):
    def test_runs_plans_of_the_full_library(self):
        header, full, runtime, model = ARGUMENTS
        with tempfile.TemporaryDirectory() as folder:
            plan = os.path.join(folder, "m.plan")
            in_a_process("compile_plan", header, full, model, plan)
            # Both list the available shapes for another batch size, since the plan was loaded and not compiled here.
            shapes = r"E-DATA: [^\n]*'features' is \[15,13\][^\n]*\n  help: the plan takes: features float32\[16,13\], target float32\[16,1\]\n"
            self.assertRegex(in_a_process("train", header, full, plan, folder), "^" + shapes + "exports\n$")
            expected = np.load(os.path.join(folder, "parameters.npy"))
            self.assertRegex(in_a_process("train", header, runtime, plan, folder), "^" + shapes + "E-UNSUPPORTED: .*not in this build")
            np.testing.assert_array_equal(np.load(os.path.join(folder, "parameters.npy")), expected)
        self.assertRegex(in_a_process("load_model", header, runtime, model), "E-UNSUPPORTED: .*not in this build")

    def test_contains_no_compiler(self):
        symbols = subprocess.run(["strings", "-n", "12", ARGUMENTS[2]], check=True, capture_output=True, text=True).stdout
        self.assertIn("cpu.Gemm", subprocess.run(["strings", "-n", "6", ARGUMENTS[2]], check=True, capture_output=True, text=True).stdout)
        self.assertNotIn("onnx.ModelProto", symbols)
        for library in ARGUMENTS[1:3]:
            code = f"import ctypes, time; t = time.perf_counter(); ctypes.CDLL({library!r}).GradloomGetApi(1); print(1e3 * (time.perf_counter() - t))"
            first = [float(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout) for _ in range(3)]
            print(f"{os.path.basename(library)}: {os.path.getsize(library) / 1e6:.1f} MB, opened in {min(first):.1f} ms")


if __name__ == "__main__" and "--" in sys.argv:
    globals()[sys.argv[2]](*sys.argv[3:])
elif __name__ == "__main__":
    ARGUMENTS = [os.path.abspath(word) for word in sys.argv[1:5]]
    del sys.argv[1:5]
    unittest.main()
