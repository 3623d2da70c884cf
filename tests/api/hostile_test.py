"""Calls every function of the table with invalid arguments: null for each pointer, numbers that are not valid constants, tensors and
structs that describe nothing, calls at the wrong time. Each call must return a status; a crash ends this process and fails the test. The
functions are read from the header, so new ones are covered automatically.

Arguments: the header, the library, the model, its table.
"""
import ctypes
import itertools
import os
import sys
import tempfile
import unittest

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from header import Gradloom  # noqa: E402

# Not an extent of the model, so a batch tensor cannot be mistaken for a bias.
BATCH = 12
# Parameters that may be null.
OPTIONAL = {"options", "checkpoint", "result", "eval", "callbacks", "step", "batch"}
OPTIONAL_OF = {("Step", "names"), ("StepAsync", "names"), ("TrainStep", "names"), ("EvalStep", "names"), ("Predict", "names"),
               ("ExportModelForInferencing", "outputs"), ("ShareParameters", "name")}
NEEDED = {("GetCheckpointProperty", "checkpoint"), ("GetSkippedCheckpoints", "checkpoint")}
# Lengths of arrays, which the library cannot check.
COUNTS = ("num_bytes", "num_inputs", "num_columns", "num_outputs", "num_elements")
NUMBERS = (-(2**63), -(2**31), -1, 7, 2**31 - 1, 2**63 - 1)


class HostileTest(unittest.TestCase):
    names_used = 0

    @classmethod
    def setUpClass(cls):
        cls.g = g = Gradloom(*ARGUMENTS[:2])
        cls.folder = tempfile.TemporaryDirectory()
        cls.keep = []
        cls.model, cls.plan, cls.dataset = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        g.LoadModel(ARGUMENTS[2].encode(), None, ctypes.byref(cls.model))
        settings = g.array("GradloomSetting", [(b"loss.name", b"mse(value, target)")])
        batches = (ctypes.c_int64 * 1)(BATCH)
        cls.compile_options = g.struct("GradloomCompileOptions", settings=ctypes.addressof(settings), num_settings=1,
                                       batches=ctypes.addressof(batches), num_batches=1, **{"with": 7})
        cls.keep += [settings, batches]
        g.Compile(cls.model, ctypes.byref(cls.compile_options), ctypes.byref(cls.plan))
        cls.features = np.ones((BATCH, 13), np.float32)
        cls.target = np.ones((BATCH, 1), np.float32)
        cls.inputs = g.array("GradloomTensor", [cls.tensor(cls.features), cls.tensor(cls.target)])
        cls.names = (ctypes.c_char_p * 2)(b"features", b"target")
        g.CreateDataset(cls.names, cls.inputs, 2, ctypes.byref(cls.dataset))
        with open(ARGUMENTS[2], "rb") as file:
            cls.model_bytes = file.read()

    @classmethod
    def tearDownClass(cls):
        cls.g.ReleaseDataset(cls.dataset)
        cls.g.ReleasePlan(cls.plan)
        cls.g.ReleaseModel(cls.model)
        cls.folder.cleanup()

    @classmethod
    def tensor(cls, array, **fields):
        shape = (ctypes.c_int64 * max(array.ndim, 1))(*array.shape)
        cls.keep.append((array, shape))
        given = {"data": array.ctypes.data, "shape": ctypes.addressof(shape), "rank": array.ndim, "dtype": 1, **fields}
        return cls.g.struct("GradloomTensor", **given)

    def session(self, **options):
        made = ctypes.c_void_p()
        given = self.g.struct("GradloomSessionOptions", **options)
        self.g.CreateTrainingSession(self.plan, ctypes.byref(given), None, ctypes.byref(made))
        self.addCleanup(self.g.ReleaseTrainingSession, made)
        return made

    def unused_name(self):
        HostileTest.names_used += 1
        return b"hostile_test-%d-%d" % (os.getpid(), HostileTest.names_used)

    def path(self, name):
        return os.path.join(self.folder.name, name).encode()

    def good_arguments(self, name):
        """Valid arguments by parameter name. The function succeeds with them, or (for some) fails only because of its state."""
        g = self.g
        handle, number, text = ctypes.c_void_p(), ctypes.c_int64(), ctypes.c_char_p()
        bias = np.zeros(16, np.float32)
        flat = np.zeros(13 * 16 + 16 + 16 * 32 + 32 + 32 + 1, np.float32)
        self.keep += [handle, number, text, bias, flat]
        session = self.session(check_numerics=int(name == "GetNonFiniteOrigin"))
        out = {"TypeAndShape": "GradloomTensorInfo", "DeviceInfo": "GradloomDeviceInfo", "Info": "GradloomTensorInfo", "Location": "GradloomLocation",
               "DeviceMemory": "GradloomDeviceMemory", "GetOutput": "GradloomTensor", "FromDLPack": "GradloomTensor"}
        struct = next((kind for part, kind in out.items() if name.endswith(part)), None)
        place = ctypes.byref(g.struct(struct) if struct else handle)
        given = {"session": session, "plan": self.plan, "model": self.model, "out": place, "train": self.dataset, "dataset": self.dataset,
                 "names": self.names, "inputs": self.inputs, "columns": self.inputs, "num_inputs": 2, "num_columns": 2, "index": 0, "entry": 0,
                 "name": b"layer1.bias", "parameter": b"layer1.bias", "key": b"loss", "value": b"text", "what": 0, "kind": 0, "device": 0,
                 "seed": 1, "lr": 0.1, "warmup_steps": 1, "total_steps": 4, "initial_lr": 0.1, "trainable_only": 1, "step": ctypes.byref(number),
                 "batch": ctypes.byref(number), "include_optimizer_state": 1, "outputs": None, "num_outputs": 0, "eval": None, "callbacks": None,
                 "result": ctypes.byref(g.struct("GradloomStepResult")), "options": None, "checkpoint": None,
                 "buffer": bias.ctypes.data_as(ctypes.c_void_p), "num_bytes": bias.nbytes, "num_elements": flat.size, "path": self.path("file")}
        if name in ("CopyParametersToBuffer", "CopyBufferToParameters"):
            given["buffer"] = flat.ctypes.data_as(ctypes.c_void_p)
        if name == "ShareParameters":
            given["name"] = self.unused_name()
        if "Attach" in name:
            shared, attached = self.unused_name(), ctypes.c_void_p()
            g.ShareParameters(session, shared)
            g.AttachParameters(shared, ctypes.byref(attached))
            self.addCleanup(g.ReleaseAttached, attached)
            # The bias of the first layer is the parameter of this size.
            index = [g.GetParameterName(session, i, ctypes.byref(text)) or text.value for i in range(6)].index(b"layer1.bias")
            given.update(name=ctypes.byref(text) if name == "GetAttached" else shared, attached=attached, index=index)
            if name == "GetAttached":
                given["out"] = ctypes.byref(g.struct("GradloomTensor"))
        if name in ("GetCheckpointProperty", "GetSkippedCheckpoints"):
            checkpoint = ctypes.c_void_p()
            g.SaveCheckpoint(session, self.path("checkpoint"), 1)
            g.LoadCheckpoint(self.path("checkpoint"), ctypes.byref(checkpoint))
            self.addCleanup(g.ReleaseCheckpoint, checkpoint)
            given["checkpoint"] = checkpoint
        if name in ("UpdateParameter", "SetGradient"):
            given["value"] = ctypes.byref(self.tensor(bias))
        if name == "Predict":
            given["num_inputs"] = 1
        if name in ("OptimizerStep", "GetGradient"):
            g.TrainStep(session, None, self.inputs, 2, None)
        if name in ("GetOutput", "CopyOutput"):
            g.EvalStep(session, None, self.inputs, 2, None)
            given["name"] = b"value"
            given["num_bytes"] = BATCH * 4
        if name == "SetDefaultDevices":
            given["devices"] = b"cpu"
        if name == "Wait":
            g.StepAsync(session, None, self.inputs, 2)
        if name == "SchedulerStep":
            g.RegisterLinearLRScheduler(session, 1, 4, 0.1)
        if name == "LoadModel":
            given["path"] = ARGUMENTS[2].encode()
        if name == "LoadModelFromBuffer":
            given["bytes"], given["num_bytes"] = self.model_bytes, len(self.model_bytes)
        if name == "Compile":
            given["options"] = ctypes.byref(self.compile_options)
        if name.startswith("LoadPlan"):
            g.SavePlan(self.plan, self.path("plan"))
            with open(self.path("plan"), "rb") as file:
                content = file.read()
            given["path"], given["bytes"], given["num_bytes"] = self.path("plan"), content, len(content)
        if name.startswith("LoadCheckpoint"):
            g.SaveCheckpoint(session, self.path("checkpoint"), 1)
            with open(self.path("checkpoint"), "rb") as file:
                content = file.read()
            given["path"], given["bytes"], given["num_bytes"] = self.path("checkpoint"), content, len(content)
        if name == "LoadDataset":
            given["path"] = ARGUMENTS[3].encode()
            given["train"] = place
            given["eval"] = ctypes.byref(ctypes.c_void_p())
        if name == "CreateBatches":
            given["options"] = ctypes.byref(g.struct("GradloomBatchOptions", batch=4))
        if name in ("GetBatch", "GetBatchCount"):
            batches = ctypes.c_void_p()
            g.CreateBatches(self.dataset, ctypes.byref(g.struct("GradloomBatchOptions", batch=4)), ctypes.byref(batches))
            self.addCleanup(g.ReleaseBatches, batches)
            places = [ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_size_t()]
            self.keep.append(places)
            given.update(zip(("names", "columns", "count"), map(ctypes.byref, places)), batches=batches)
        if name == "Fit":
            given["options"] = ctypes.byref(g.struct("GradloomFitOptions", batch=4))
            given["result"] = ctypes.byref(g.struct("GradloomFitResult"))
        if name == "ToDLPack":
            given["tensor"] = ctypes.byref(self.inputs[0])
        if name == "FromDLPack":
            managed = ctypes.c_void_p()
            g.ToDLPack(ctypes.byref(self.inputs[0]), ctypes.byref(managed))
            given["managed"] = managed
        return given

    def functions(self):
        for name, (returns, parameters) in self.g.header.functions.items():
            yield name, returns.replace(" ", "") == "GradloomStatus*", parameters

    def call(self, name, arguments):
        """Returns whether the call succeeded; otherwise the status must describe the error."""
        status = getattr(self.g.api, name)(*arguments)
        if not status:
            return True
        self.assertNotEqual(self.g.api.GetErrorCode(status), 0)
        self.assertTrue(self.g.api.GetErrorMessage(status))
        self.assertNotEqual(self.g.api.GetErrorName(status), b"E-INTERNAL", f"{name}: {self.g.api.GetErrorMessage(status)}")
        self.g.api.ReleaseStatus(status)
        return False

    def test_all_null(self):
        for name, fails, parameters in self.functions():
            with self.subTest(function=name):
                zeros = [None if issubclass(kind, (ctypes.c_void_p, ctypes.c_char_p)) else 0 for kind, _, _ in parameters]
                if fails:
                    self.assertFalse(self.call(name, zeros))
                else:
                    getattr(self.g.api, name)(*zeros)

    def test_each_null(self):
        for name, fails, parameters in self.functions():
            if not fails:
                continue
            given = self.good_arguments(name)
            self.assertTrue(self.call(name, [given[p] for _, p, _ in parameters]), f"{name} fails with good arguments")
            for kind, parameter, _ in parameters:
                if not issubclass(kind, (ctypes.c_void_p, ctypes.c_char_p)):
                    continue
                with self.subTest(function=name, parameter=parameter):
                    given = self.good_arguments(name)
                    given[parameter] = None
                    well = self.call(name, [given[p] for _, p, _ in parameters])
                    optional = (parameter in OPTIONAL and (name, parameter) not in NEEDED) or (name, parameter) in OPTIONAL_OF
                    self.assertEqual(well, optional)

    def test_wrong_numbers(self):
        for name, fails, parameters in self.functions():
            for kind, parameter, _ in parameters:
                if issubclass(kind, (ctypes.c_void_p, ctypes.c_char_p)) or parameter in COUNTS:
                    continue
                numbers = (float("nan"), float("inf"), -1.0, 1e308) if kind is ctypes.c_double else NUMBERS
                for number in numbers:
                    given = self.good_arguments(name) if fails else {}
                    given[parameter] = number if kind is ctypes.c_double else kind(number).value
                    if fails:
                        self.call(name, [given[p] for _, p, _ in parameters])
                    else:
                        getattr(self.g.api, name)(given[parameter])
        for name, parameter in (("GetInputCount", "entry"), ("GetOutputInfo", "entry"), ("DescribePlan", "what"), ("GetLocation", "kind"),
                                ("GetInputInfo", "index"), ("GetParameterName", "index"), ("GetBatch", "index"), ("GetDeviceMemory", "device"),
                                ("GetDeviceInfo", "index"), ("CopyToDLPack", "kind")):
            with self.subTest(function=name, parameter=parameter):
                given = self.good_arguments(name)
                given[parameter] = 1 << 30
                self.assertFalse(self.call(name, [given[p] for _, p, _ in self.g.header.functions[name][1]]))

    def test_invalid_tensors(self):
        bad = [{"dtype": d} for d in (-1, 0, 8, 14, 15, 29, 1 << 30, 7)]
        bad += [{"rank": r} for r in (-1, -(2**31), 1, 33, 2**31 - 1)]
        bad += [{"shape": None}, {"data": None}, {"data": self.features.ctypes.data + 1}]
        for extents in ((BATCH, -13), (2**62, 2**62), (2**63 - 1, 13), (-1, -1), (0, 13), (BATCH + 1, 13)):
            shape = (ctypes.c_int64 * 2)(*extents)
            self.keep.append(shape)
            bad.append({"shape": ctypes.addressof(shape)})
        more = ctypes.addressof(self.keep[-1])  # longer than the array, which nobody can detect
        session = self.session()
        out = ctypes.c_void_p()
        for fields in bad:
            with self.subTest(fields=str(fields)):
                inputs = self.g.array("GradloomTensor", [self.tensor(self.features, **fields), self.tensor(self.target)])
                for name in ("Step", "TrainStep", "EvalStep"):
                    self.assertFalse(self.call(name, (session, None, inputs, 2, None)), name)
                if self.call("StepAsync", (session, None, inputs, 2)):
                    self.assertFalse(self.call("Wait", (session, None)))
                self.assertFalse(self.call("UpdateParameter", (session, b"layer1.bias", ctypes.byref(inputs[0]))))
                if fields.get("dtype") != 7 and fields.get("shape") != more:
                    self.call("ToDLPack", (ctypes.byref(inputs[0]), ctypes.byref(out)))
        # Names: too few, duplicate, unknown, or null.
        for names in ((b"features", b"features"), (b"features", b"other"), (b"features", None), (b"", b"target")):
            self.assertFalse(self.call("Step", (session, (ctypes.c_char_p * 2)(*names), self.inputs, 2, None)), names)
        for count in (0, 1):
            self.assertFalse(self.call("Step", (session, None, self.inputs, count, None)))
            self.assertFalse(self.call("Step", (session, self.names, self.inputs, count, None)))
        self.assertTrue(self.call("Step", (session, self.names, self.inputs, 2, None)))

    def test_structs_without_size(self):
        calls = {"CreateTrainingSession": "GradloomSessionOptions", "Compile": "GradloomCompileOptions", "LoadModel": "GradloomLoadOptions",
                 "LoadDataset": "GradloomDataOptions", "CreateBatches": "GradloomBatchOptions", "Fit": "GradloomFitOptions"}
        for (name, struct), size in itertools.product(calls.items(), (0, 1, 7, 1 << 40)):
            with self.subTest(function=name, size=size):
                given = self.good_arguments(name)
                made = self.g.struct(struct)
                made.size = size
                given["options"] = ctypes.byref(made)
                self.assertFalse(self.call(name, [given[p] for _, p, _ in self.g.header.functions[name][1]]))
        # From a newer caller: fields that this library does not have may only be zero.
        for (name, struct), value in itertools.product(calls.items(), (0, 1)):
            with self.subTest(function=name, field=value):
                given = self.good_arguments(name)
                known = given["options"]._obj if given["options"] else self.g.struct(struct)
                longer = type("Longer", (self.g.header.structs[struct],), {"_fields_": [("added", ctypes.c_int64)]})
                made = longer.from_buffer_copy(bytes(known).ljust(ctypes.sizeof(longer), b"\0"))
                made.size, made.added = ctypes.sizeof(made), value
                given["options"] = ctypes.byref(made)
                self.assertEqual(self.call(name, [given[p] for _, p, _ in self.g.header.functions[name][1]]), value == 0)
        result = self.g.struct("GradloomStepResult")
        result.size = 0
        self.assertFalse(self.call("Step", (self.session(), None, self.inputs, 2, ctypes.byref(result))))
        # From an older caller that knows only the loss: nothing may be written after it.
        result.size, result.lr = 16, 123
        self.assertTrue(self.call("Step", (self.session(), None, self.inputs, 2, ctypes.byref(result))))
        self.assertGreater(result.loss, 0)
        self.assertEqual((result.size, result.lr), (16, 123))

    def test_wrong_times(self):
        session = self.session()
        for name in ("OptimizerStep", "Wait"):
            self.assertFalse(self.call(name, (session, None)), name)
        self.assertFalse(self.call("SchedulerStep", (session,)))
        self.assertFalse(self.call("GetOutput", (session, b"loss", ctypes.byref(self.g.struct("GradloomTensor")))))
        self.assertTrue(self.call("TrainStep", (session, None, self.inputs, 2, None)))
        self.assertFalse(self.call("Step", (session, None, self.inputs, 2, None)))
        self.assertTrue(self.call("LazyResetGrad", (session,)))
        self.assertTrue(self.call("StepAsync", (session, None, self.inputs, 2)))
        for name in ("Step", "TrainStep"):
            self.assertFalse(self.call(name, (session, None, self.inputs, 2, None)), name)
        self.assertTrue(self.call("Wait", (session, None)))
        self.assertTrue(self.call("ReleaseMemory", (session,)))
        self.assertFalse(self.call("GetOutput", (session, b"loss", ctypes.byref(self.g.struct("GradloomTensor")))))
        self.assertTrue(self.call("Step", (session, None, self.inputs, 2, None)))
        # Within a callback of Fit, training is an error and reading is allowed.
        session = self.session()
        answers = []

        def on_step(_, __):
            answers.append([self.call("Step", (session, None, self.inputs, 2, None)), self.call("StepAsync", (session, None, self.inputs, 2)),
                            self.call("Fit", (session, self.dataset, None, None, None, None)), self.call("ReleaseMemory", (session,)),
                            self.call("GetPosition", (session, None, None)), self.call("SaveCheckpoint", (session, self.path("within"), 1))])
            return 0

        callbacks = self.g.struct("GradloomCallbacks")
        kind = dict(callbacks._fields_)["on_step"]
        callbacks.on_step = kind(on_step)
        self.assertTrue(self.call("Fit", (session, self.dataset, None, None, ctypes.byref(callbacks), None)))
        self.assertEqual(answers, [[False, False, False, False, True, True]])

    def test_invalid_files(self):
        out = ctypes.c_void_p()
        with open(self.path("noise"), "wb") as file:
            file.write(b"\x07 no file of any kind" * 100)
        for name in ("LoadPlan", "LoadCheckpoint"):
            for path in (b"", b"no such file", self.path("noise"), self.folder.name.encode(), b"\xff\xfe", b"/dev/null"):
                self.assertFalse(self.call(name, (path, ctypes.byref(out))), (name, path))
                self.assertIsNone(out.value)
        for name in ("LoadPlanFromBuffer", "LoadCheckpointFromBuffer"):
            for content in (b"", b"x", b"\0" * 4096, self.model_bytes):
                self.assertFalse(self.call(name, (content, len(content), ctypes.byref(out))), (name, content[:9]))
        session = self.session()
        for name, rest in (("SaveCheckpoint", (1,)), ("ExportModelForInferencing", (None, 0))):
            self.assertFalse(self.call(name, (session, b"/no such folder/file", *rest)), name)
        self.assertFalse(self.call("SavePlan", (self.plan, b"/no such folder/file")))


if __name__ == "__main__":
    ARGUMENTS = sys.argv[1:5]
    del sys.argv[1:5]
    unittest.main()
