"""The Python package with GPUs, on the emulated device: tensors of a GPU are inputs where they lie.

Arguments: the header, the library, the emulated device, the folder of the package.
"""
import ctypes
import os
import sys
import tempfile
import unittest

import numpy as np

HEADER, LIBRARY, PLUGIN, PACKAGE = (os.path.abspath(argument) for argument in sys.argv[1:5])
del sys.argv[1:5]
CODE = tempfile.TemporaryDirectory()
os.environ.update(GRADLOOM_HEADER=HEADER, GRADLOOM_LIBRARY=LIBRARY, GRADLOOM_CUDA_LIBRARY=PLUGIN, GRADLOOM_EMULATED_DEVICES="2",
                  GRADLOOM_EMULATED_CODE=CODE.name)
sys.path.insert(0, PACKAGE)
import gradloom  # noqa: E402

CUDA_HOST_TO_DEVICE, KDL_CUDA = 1, 2


class DLTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32),
                ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16), ("shape", ctypes.c_void_p),
                ("strides", ctypes.c_void_p), ("byte_offset", ctypes.c_uint64), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class GpuTensor:
    """float32 elements in a GPU's memory, as PyTorch would give them."""

    def __init__(self, runtime, array, ordinal):
        self.runtime, self.device, self.bytes = runtime, ordinal, array.nbytes
        runtime.cudaSetDevice(ordinal)
        self.memory = ctypes.c_void_p()
        runtime.cudaMalloc(ctypes.byref(self.memory), ctypes.c_size_t(array.nbytes))
        runtime.cudaMemcpy(self.memory, ctypes.c_void_p(array.ctypes.data), ctypes.c_size_t(array.nbytes), CUDA_HOST_TO_DEVICE)
        self.shape = (ctypes.c_int64 * array.ndim)(*array.shape)
        self.managed = DLTensor(self.memory, KDL_CUDA, ordinal, array.ndim, 2, 32, 1, ctypes.addressof(self.shape), None, 0, None, None)

    def __dlpack_device__(self):
        return (KDL_CUDA, self.device)

    def __dlpack__(self, *, stream):
        assert stream == 1, "the default stream is what the copy comes behind"
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return new(ctypes.addressof(self.managed), b"dltensor", None)

    def read(self):
        return ctypes.string_at(self.memory, self.bytes)  # emulated memory is the host's

    def free(self):
        self.runtime.cudaFree(self.memory)


class GpuTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.runtime = ctypes.CDLL(PLUGIN)
        random = np.random.default_rng(7)
        cls.x = random.normal(size=(32, 13)).astype(np.float32)
        cls.y = random.normal(size=(32, 1)).astype(np.float32)

    def compiled(self, devices):
        return gradloom.compile("models/housing_mlp.onnx", loss="mse(value, target)", optimizer="momentum", lr=0.01, batch=32, devices=devices)

    def on_gpu(self, array, ordinal=0):
        tensor = GpuTensor(self.runtime, array, ordinal)
        self.addCleanup(tensor.free)
        return tensor

    def test_inputs_of_a_gpu_are_read_where_they_lie(self):
        # One GPU; and two that share the batch, of which one has the inputs.
        for devices in ("cuda:0", "cuda:0,1"):
            plan = self.compiled(devices)
            ours, theirs = gradloom.Session(plan), gradloom.Session(plan)
            x = self.on_gpu(self.x)
            for _ in range(3):
                expected = theirs.step(features=self.x, target=self.y).loss
                # From a GPU and from the host together, in either part.
                self.assertEqual(ours.step(features=x, target=self.y).loss, expected)
            self.assertEqual(ours.step(features=self.x, target=self.on_gpu(self.y)).loss, theirs.step(features=self.x, target=self.y).loss)
            np.testing.assert_array_equal(ours.predict(features=x)["value"], theirs.predict(features=self.x)["value"])
            self.assertEqual(x.read(), self.x.tobytes(), "an input was altered")

    def test_other_devices_are_refused(self):
        session = gradloom.Session(self.compiled("cuda:0"))
        with self.assertRaisesRegex(gradloom.Error, r"E-DEVICE.*input 'features' is on cuda:1, and the session on cuda:0"):
            session.step(features=self.on_gpu(self.x, 1), target=self.y)
        with self.assertRaisesRegex(gradloom.Error, r"E-DEVICE.*is on cuda:0, and is read from host memory"):
            session.set_parameter("layer3.bias", self.on_gpu(np.zeros(1, np.float32)))
        with self.assertRaisesRegex(gradloom.Error, r"E-DEVICE.*input 'features' is on cuda:0, and is read from host memory"):
            gradloom.Session(self.compiled("cpu")).step(features=self.on_gpu(self.x), target=self.y)


if __name__ == "__main__":
    unittest.main(verbosity=2)
