"""The Python package with GPUs, on the emulated device: tensors in GPU memory are used as inputs without a copy to the host.

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
USED = b"used_dltensor"  # kept alive, since a capsule does not copy its name


class DLTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32),
                ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16), ("shape", ctypes.c_void_p),
                ("strides", ctypes.c_void_p), ("byte_offset", ctypes.c_uint64), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class GpuTensor:
    """float32 elements in GPU memory, exported like a PyTorch tensor."""

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
        return ctypes.string_at(self.memory, self.bytes)  # emulated device memory is host memory

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

    def test_gpu_inputs_are_read_in_place(self):
        # With one GPU, and with two that share the batch, of which one holds the inputs.
        for devices in ("cuda:0", "cuda:0,1"):
            plan = self.compiled(devices)
            ours, theirs = gradloom.Session(plan), gradloom.Session(plan)
            x = self.on_gpu(self.x)
            for _ in range(3):
                expected = theirs.step(features=self.x, target=self.y).loss
                # One input on the GPU and the other on the host, in both combinations.
                self.assertEqual(ours.step(features=x, target=self.y).loss, expected)
            self.assertEqual(ours.step(features=self.x, target=self.on_gpu(self.y)).loss, theirs.step(features=self.x, target=self.y).loss)
            np.testing.assert_array_equal(ours.predict(features=x)["value"], theirs.predict(features=self.x)["value"])
            self.assertEqual(x.read(), self.x.tobytes(), "an input was altered")

    def test_outputs_stay_on_the_gpu(self):
        """A copy on the GPU, which keeps the output's bits after later steps and after the session's end, and can be used as an input."""
        session = gradloom.Session(self.compiled("cuda:0"))
        self.assertEqual((session.devices, session.default_device), (["cuda:0"], "cuda:0"))
        session.predict(features=self.x)
        place = session.location("value", "output")
        expected = session.output("value")
        self.assertEqual((place.device, place.num_devices, place.bytes), ("cuda:0", 1, expected.nbytes))
        self.assertEqual(ctypes.string_at(place.address, place.bytes), expected.tobytes())
        value = session.on_device("value")
        self.assertEqual((value.__dlpack_device__(), value.shape), ((KDL_CUDA, 0), (32, 1)))
        weight = session.on_device("layer1.weight", "state")
        start = session.parameter("layer1.weight")
        # An output as target: it is not copied to the host, and the loss is that of a perfect prediction.
        self.assertEqual(session.evaluate(features=self.x, target=value).loss, 0)
        with self.assertRaisesRegex(BufferError, "already been exported"):
            value.__dlpack__()
        for _ in range(3):
            session.step(features=self.x, target=self.y)
        weight = self.taken(weight)
        self.assertFalse(np.array_equal(session.parameter("layer1.weight"), start))
        kept = self.taken(session.on_device("layer1.bias", "state")), session.parameter("layer1.bias")
        del session
        self.assertEqual(self.elements(weight), start.tobytes())
        self.assertEqual(self.elements(kept[0]), kept[1].tobytes())
        with self.assertRaises(BufferError):
            gradloom.Session(self.compiled("cuda:0")).on_device("layer1.bias", "state").__dlpack__(dl_device=(1, 0))

    def taken(self, tensor):
        """Imports the struct as another library would. Its deleter frees it when the test has ended."""
        capsule = tensor.__dlpack__(stream=1)
        pointer, rename = ctypes.pythonapi.PyCapsule_GetPointer, ctypes.pythonapi.PyCapsule_SetName
        pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        rename.argtypes = [ctypes.py_object, ctypes.c_char_p]
        managed = DLTensor.from_address(pointer(capsule, b"dltensor"))
        rename(capsule, USED)
        self.addCleanup(ctypes.CFUNCTYPE(None, ctypes.c_void_p)(managed.deleter), ctypes.addressof(managed))
        return managed

    def elements(self, managed):
        self.assertEqual((managed.device_type, managed.code, managed.bits), (KDL_CUDA, 2, 32))
        count = int(np.prod((ctypes.c_int64 * managed.ndim).from_address(managed.shape)))
        return ctypes.string_at(managed.data, 4 * count)

    def test_gradients_and_several_devices(self):
        plan = gradloom.compile("models/housing_mlp.onnx", loss="mse(value, target)", optimizer="sgd", batch=32, devices="cuda:0", gradients=True)
        session = gradloom.Session(plan)
        session.backward(features=self.x, target=self.y)
        self.assertEqual(self.elements(self.taken(session.on_device("layer2.weight", "gradient"))), session.gradient("layer2.weight").tobytes())
        # Two devices share the batch: each holds the parameters, and an output is divided between them.
        session = gradloom.Session(self.compiled("cuda:0,1"))
        self.assertEqual(session.devices, ["cuda:0", "cuda:1"])
        session.predict(features=self.x)
        self.assertEqual(session.location("value", "output").num_devices, 0)
        with self.assertRaisesRegex(gradloom.Error, "E-DEVICE.*'value' is split over several devices"):
            session.on_device("value")
        self.assertEqual(self.elements(self.taken(session.on_device("layer1.bias", "state"))), session.parameter("layer1.bias").tobytes())
        with self.assertRaisesRegex(gradloom.Error, "E-CONFIG.*no state 'nothing'"):
            session.on_device("nothing", "state")

    def test_the_threads_current_gpu_stays(self):
        """Another library makes its next tensor on the current GPU, whatever Gradloom has done in between."""
        def current():
            device = ctypes.c_int(-1)
            self.runtime.cudaGetDevice(ctypes.byref(device))
            return device.value

        for mine, devices in ((0, "cuda:1"), (1, "cuda:0"), (0, "cuda:0,1")):
            self.on_gpu(self.x, mine)
            plan = self.compiled(devices)
            session = gradloom.Session(plan)
            self.assertEqual(current(), mine)
            for _ in range(3):
                session.step(features=self.x, target=self.y)
                self.assertEqual(current(), mine)
            session.evaluate(features=self.x, target=self.y)
            self.assertEqual(current(), mine)
            bias = self.taken(session.on_device("layer1.bias", "state"))
            self.assertEqual(current(), mine)
            del session
            self.assertEqual(current(), mine)
            self.doCleanups()  # frees the copy of the bias
            self.assertEqual(current(), mine)

    def test_unused_capsules_are_freed(self):
        session = gradloom.Session(self.compiled("cuda:0"))
        session.predict(features=self.x)
        session.on_device("value")  # the first use opens the device
        free = session.memory().free_bytes
        for _ in range(50):
            session.on_device("value")
            session.on_device("value").__dlpack__()
        self.assertEqual(session.memory().free_bytes, free)

    def test_default_devices(self):
        self.assertIsNone(gradloom.default_devices())
        self.addCleanup(gradloom.set_default_devices, None)
        gradloom.set_default_devices("cuda:1")
        self.assertEqual(gradloom.default_devices(), "cuda:1")
        compiled = lambda **options: gradloom.compile("models/housing_mlp.onnx", loss="mse(value, target)", batch=32, **options)
        self.assertEqual(gradloom.Session(compiled(), ordinals=[1]).devices, ["cuda:1"])
        self.assertEqual(gradloom.Session(compiled(devices="cpu")).devices, ["cpu"])
        with self.assertRaisesRegex(gradloom.Error, "E-CONFIG"):
            gradloom.set_default_devices("abacus")
        self.assertEqual(gradloom.default_devices(), "cuda:1")
        gradloom.set_default_devices(None)
        self.assertEqual(gradloom.Session(compiled()).devices, ["cpu"])

    def test_other_devices_are_refused(self):
        session = gradloom.Session(self.compiled("cuda:0"))
        with self.assertRaisesRegex(gradloom.Error, r"E-DEVICE.*input 'features' is on cuda:1, but the session is on cuda:0"):
            session.step(features=self.on_gpu(self.x, 1), target=self.y)
        with self.assertRaisesRegex(gradloom.Error, r"E-DEVICE.*is on cuda:0, but this call reads host memory"):
            session.set_parameter("layer3.bias", self.on_gpu(np.zeros(1, np.float32)))
        with self.assertRaisesRegex(gradloom.Error, r"E-DEVICE.*input 'features' is on cuda:0, but this call reads host memory"):
            gradloom.Session(self.compiled("cpu")).step(features=self.on_gpu(self.x), target=self.y)


if __name__ == "__main__":
    unittest.main(verbosity=2)
