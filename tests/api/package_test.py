"""Tests the wheel as installed by pip: its structure, docs/python.md from top to bottom, the notebook, errors, and other libraries'
tensors.

Arguments: the wheel, docs/python.md, pyproject.toml, build_backend.py, a folder of models and data (with models/housing.py).
"""
import base64
import contextlib
import copy
import csv
import gc
import hashlib
import inspect
import io
import os
import pathlib
import pickle
import re
import runpy
import shutil
import subprocess
import sys
import tempfile
import threading
import tomllib
import unittest
import warnings
import weakref
import zipfile

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import installed_package  # noqa: E402

WHEEL, PAGE, PYPROJECT, BACKEND, MODELS = (os.path.abspath(word) for word in sys.argv[1:6])
sys.argv[1:6] = []
# The system libraries that a manylinux wheel may depend on.
OF_THE_SYSTEM = {"libc.so.6", "libm.so.6", "libgcc_s.so.1", "libstdc++.so.6", "libz.so.1", "ld-linux-x86-64.so.2", "libpthread.so.0", "libdl.so.2"}


def setUpModule():
    global FOLDER
    FOLDER = installed_package.install(WHEEL, MODELS)


def readelf(flags, file):
    return subprocess.run(["readelf", flags, file], check=True, capture_output=True, text=True).stdout


class WheelTest(unittest.TestCase):
    def test_record_lists_all_files(self):
        with zipfile.ZipFile(WHEEL) as archive:
            names = archive.namelist()
            info = next(name for name in names if name.endswith(".dist-info/RECORD"))[:-len("RECORD")]
            recorded = {row[0]: row[1:] for row in csv.reader(io.StringIO(archive.read(info + "RECORD").decode()))}
            self.assertEqual(sorted(recorded), sorted(names))
            for name, (digest, size) in recorded.items():
                data = archive.read(name)
                if name != info + "RECORD":
                    self.assertEqual(digest, "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode(), name)
                    self.assertEqual(int(size), len(data))
            self.assertIn("gradloom/py.typed", names)
            tag = re.findall(r"^Tag: (.+)$", archive.read(info + "WHEEL").decode(), re.M)
            metadata = archive.read(info + "METADATA").decode()
        self.assertEqual(os.path.basename(WHEEL).split("-", 2)[2], tag[0] + ".whl")
        import gradloom
        self.assertEqual(re.findall(r"^Version: (.+)$", metadata, re.M), [gradloom.version()])
        self.assertEqual(gradloom.__version__, gradloom.version())
        with self.assertRaises(AttributeError):
            gradloom.__author__

    def test_types_and_docstrings(self):
        """Everything public has a docstring and type annotations."""
        import gradloom
        self.assertTrue(os.path.exists(os.path.join(os.path.dirname(gradloom.__file__), "py.typed")))
        for name in gradloom.__all__:
            public = getattr(gradloom, name)
            members = {} if inspect.isfunction(public) else {member: value for member, value in vars(public).items() if not member.startswith("_")}
            # a dataclass generates this docstring by itself
            self.assertTrue(public.__doc__ and not public.__doc__.startswith(f"{name}("), name)
            for member, value in {name: public, **members}.items():
                function = value.fget if isinstance(value, property) else value
                if inspect.isfunction(function):
                    signature = inspect.signature(function)
                    self.assertTrue(function.__doc__, f"{name}.{member}")
                    self.assertIsNot(signature.return_annotation, inspect.Signature.empty, f"{name}.{member}")
                    for parameter in list(signature.parameters.values())[0 if function is public else 1:]:
                        self.assertIsNot(parameter.annotation, inspect.Parameter.empty, f"{name}.{member}({parameter.name})")

    def test_system_dependencies_match_the_tag(self):
        """Depends only on libraries that every Linux system has, and on no newer version of the C library than its tag declares."""
        lib = f"{FOLDER}/site/gradloom/lib"
        allowed = tuple(int(number) for number in re.findall(r"manylinux_(\d+)_(\d+)", WHEEL)[0])
        newest = (0, 0)
        for name in os.listdir(lib):
            dynamic = readelf("-dW", f"{lib}/{name}")
            if name == "libgradloom_cuda.so":
                continue  # opened only if there is a driver; NVIDIA's libraries belong to the machine
            for needed in re.findall(r"\(NEEDED\).*\[(.+)\]", dynamic):
                self.assertTrue(needed in OF_THE_SYSTEM or os.path.exists(f"{lib}/{needed}"), f"{name} needs {needed}")
            self.assertEqual(re.findall(r"\((?:RUNPATH|RPATH)\).*\[(.*)\]", dynamic), ["$ORIGIN"], name)
            newest = max([newest] + [(int(a), int(b)) for a, b in re.findall(r"GLIBC_(\d+)\.(\d+)", readelf("-VW", f"{lib}/{name}"))])
        self.assertLessEqual(newest, allowed)

    def test_pip_builds_from_the_repository(self):
        """With a fake bazel that records its arguments and provides the finished wheel."""
        source, out = f"{FOLDER}/source", f"{FOLDER}/built"
        for path in ("python", "bin", "made/tools/dist"):
            os.makedirs(f"{source}/{path}")
        shutil.copy(PYPROJECT, source)
        shutil.copy(BACKEND, f"{source}/python")
        shutil.copy(WHEEL, f"{source}/made/tools/dist")
        with open(f"{source}/bin/bazel", "w") as file:
            file.write(f'#!/bin/sh\ncase "$*" in "build //:wheel") ;; "info bazel-bin") echo {source}/made ;; *) exit 1 ;; esac\n')
        os.chmod(f"{source}/bin/bazel", 0o755)
        subprocess.run([sys.executable, "-I", "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-index", "--disable-pip-version-check",
                        "--wheel-dir", out, source], check=True, env={**os.environ, "PATH": f"{source}/bin:{os.environ['PATH']}"})
        self.assertEqual(os.listdir(out), [os.path.basename(WHEEL)])


class PageTest(unittest.TestCase):
    def test_page(self):
        with open(PAGE) as file:
            page = file.read()
        blocks = re.findall(r"^```python\n(.*?)^```$", page, re.M | re.S)
        self.assertEqual(len(blocks), 9)
        said = self.run_in_folder(lambda: exec(compile("\n".join(blocks), "python.md", "exec"), {"__name__": "page"}))
        self.assertGreater(float(re.findall(r"right: ([\d.]+)", said)[0]), 0.9)
        import onnxruntime
        session = onnxruntime.InferenceSession(f"{FOLDER}/trained.onnx", providers=["CPUExecutionProvider"])
        self.assertEqual(session.run(None, {"image": np.zeros((2, 1, 8, 8), np.float32)})[0].shape, (2, 10))
        self.assertIn(os.path.basename(WHEEL), page)

    def test_notebook(self):
        said = self.run_in_folder(lambda: runpy.run_path(f"{MODELS}/housing.py", run_name="__main__"))
        network, linear = (float(re.findall(rf"{what}: ([\d.]+) thousand", said)[0]) for what in ("network", "least squares"))
        self.assertLess(network, linear)
        self.assertIn("predicts the same: True", said)

    def run_in_folder(self, call):
        said, before = io.StringIO(), os.getcwd()
        os.chdir(FOLDER)
        try:
            with contextlib.redirect_stdout(said):
                call()
        finally:
            os.chdir(before)
        return said.getvalue()


class SessionTest(installed_package.HousingTest):
    def test_steps_match_the_formula(self):
        """An SGD step computed in numpy: the gradient of the last layer's bias is twice the mean error."""
        plan = self.gradloom.compile(f"{FOLDER}/housing_mlp.onnx", loss="mse(value, target)", optimizer="sgd", lr=0.1, batch=16)
        session = self.gradloom.Session(plan)
        value = session.predict(features=self.x)["value"]
        before = session.parameter("layer3.bias")
        result = session.step({"features": self.x}, target=self.y)
        self.assertAlmostEqual(result.loss, float(np.mean((value - self.y) ** 2)), places=5)
        np.testing.assert_allclose(session.parameter("layer3.bias"), before - 0.1 * np.mean(2 * (value - self.y)), rtol=1e-4, atol=1e-5)
        self.assertEqual((result.step, result.batch, result.updated, session.num_updates), (1, 1, True, 1))

    def test_gradients_are_set_and_those_of_inputs_returned(self):
        """The gradient of the target of a mean squared error is twice the mean error, and that of the last bias is minus their sum."""
        plan = self.gradloom.compile(f"{FOLDER}/housing_mlp.onnx", loss="mse(value, target)", optimizer="sgd", lr=0.1, batch=16, gradients=True,
                                     input_gradients=["features", "target"])
        session = self.gradloom.Session(plan)
        error = self.y - session.predict(features=self.x)["value"]
        session.backward(features=self.x, target=self.y)
        np.testing.assert_allclose(session.output("grad/target"), 2 * error / len(error), rtol=1e-4, atol=1e-5)
        self.assertEqual(session.output("grad/features").shape, self.x.shape)
        gradient, before = session.gradient("layer3.bias"), session.parameter("layer3.bias")
        np.testing.assert_allclose(gradient, -session.output("grad/target").sum(0), rtol=1e-4, atol=1e-5)
        session.set_gradient("layer3.bias", np.clip(gradient, -0.5, 0.5).astype(np.float64))
        session.update()
        np.testing.assert_allclose(session.parameter("layer3.bias"), before - 0.1 * np.clip(gradient, -0.5, 0.5), rtol=1e-5)
        with self.assertRaisesRegex(self.gradloom.Error, "the gradient of 'layer3.bias' must be float32\\[1\\], got float32\\[2\\]"):
            session.set_gradient("layer3.bias", [1, 2])

    def test_accepts_arrays_of_any_order_and_lists(self):
        losses = []
        unaligned = np.frombuffer(b"-" + self.x.tobytes(), np.float32, offset=1).reshape(self.x.shape)
        self.assertFalse(unaligned.flags.aligned)
        for x in (self.x, np.asfortranarray(self.x), np.repeat(self.x, 2, axis=0)[::2], self.x.astype(">f4"), self.x.tolist(), unaligned):
            losses.append(self.gradloom.Session(self.plan).step(features=x, target=self.y).loss)
        self.assertEqual(losses, losses[:1] * len(losses))

    def test_converts_arrays_of_the_same_kind(self):
        """numpy, pandas and scikit-learn make float64 and int32 where nobody asks for a type."""
        wanted = self.gradloom.Session(self.plan).step(features=self.x, target=self.y).loss
        for x in (self.x.astype(np.float64), self.x.astype(">f8"), np.asfortranarray(self.x.astype(np.float64))):
            session = self.gradloom.Session(self.plan)
            self.assertEqual(session.step(features=x, target=self.y.astype(np.float64)).loss, wanted)
            session.step_async(features=x, target=self.y)
            session.wait()
        digits = self.gradloom.Session(self.gradloom.compile(f"{FOLDER}/digits_cnn.onnx", loss="cross_entropy(logits, label)", batch=2))
        image, label = np.zeros((2, 1, 8, 8)), np.array([3, 1])
        losses = [digits.evaluate(image=image, label=label.astype(kind)).loss for kind in (np.int64, np.int32, np.uint8)]
        self.assertEqual(losses, losses[:1] * 3)
        with self.assertRaisesRegex(self.gradloom.Error, "'label' is float64, but the model expects int64"):
            digits.step(image=image, label=label.astype(np.float64))
        with self.assertRaisesRegex(self.gradloom.Error, "'label' is uint64, but the model expects int64"):
            digits.step(image=image, label=np.array([3, 1 << 63], np.uint64))
        with self.assertRaisesRegex(self.gradloom.Error, "'image' is float64, but the model expects float32"):
            digits.step(image=np.full((2, 1, 8, 8), 1e39), label=label)

    def test_inputs_that_the_plan_lacks_may_be_anything(self):
        wanted = self.gradloom.Session(self.plan).step(features=self.x, target=self.y).loss
        session = self.gradloom.Session(self.plan)
        row = {"features": self.x, "target": self.y, "id": np.array(["a", "b"]), "note": None}
        self.assertEqual(session.evaluate(row).loss, wanted)
        self.assertEqual(session.step(row).loss, wanted)
        with self.assertRaisesRegex(self.gradloom.Error, "E-TYPE"):
            session.step({**row, "target": np.array(["a", "b"])})

    def test_sessions_have_plans_with_types_that_numpy_lacks(self):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "narrow.onnxtxt").write_text("""<ir_version: 9, opset_import: ["" : 19]>
                m (float8e4m3fn[N,4] x) => (float[N,1] z) <float[4,1] w = {1,2,3,4}> { a = Cast<to=1>(x) z = MatMul(a, w) }""")
            plan = self.gradloom.compile(f"{folder}/narrow.onnxtxt", loss="mse(z, t)", batch=2)
        session = self.gradloom.Session(plan)
        with self.assertRaisesRegex(self.gradloom.Error, "'x' is uint8, but the model expects float8e4m3fn"):
            session.step(x=np.zeros((2, 4), np.uint8), t=np.zeros((2, 1), np.float32))

    def test_accepts_integral_numpy_numbers_only(self):
        for batch, rows in ((np.int64(16), 16), (np.array([16, 8]), 16), ([8, 16], 8)):
            plan = self.gradloom.compile(f"{FOLDER}/housing_mlp.onnx", loss="mse(value, target)", batch=batch)
            self.assertEqual(plan.inputs()[0].shape, (rows, 13))
        with self.assertRaises(TypeError):
            self.gradloom.compile(f"{FOLDER}/housing_mlp.onnx", loss="mse(value, target)", batch=1.5)
        digits = self.gradloom.Session(self.gradloom.compile(f"{FOLDER}/digits_cnn.onnx", loss="cross_entropy(logits, label)", batch=2))
        image = np.zeros((2, 1, 8, 8), np.float32)
        self.assertGreater(digits.step(image=image, label=[3, 1]).loss, 0)
        with self.assertRaisesRegex(self.gradloom.Error, "'label' is float64, but the model expects int64"):
            digits.step(image=image, label=[3.5, 1])  # converting it to 3 would silently select another class

    def test_reads_patterns_of_files_in_a_given_format(self):
        with tempfile.TemporaryDirectory() as folder, open(f"{FOLDER}/boston.csv") as table:
            header, *lines = table.read().splitlines(keepends=True)
            for name, part in (("part-0", lines[:200]), ("part-1", lines[200:])):
                with open(os.path.join(folder, name), "w") as file:
                    file.writelines([header, *part])
            columns = {"features": "CRIM..LSTAT", "target": "MEDV"}
            data = self.gradloom.Dataset(f"{folder}/part-*", self.plan, columns=columns, format="csv")
            self.assertEqual(len(data), 506)
            self.assertEqual(data.notes(), [])
            guessed = self.gradloom.Dataset(f"{folder}/part-*", self.plan, format="csv")
            self.assertEqual(guessed.notes(), ["columns features=CRIM..LSTAT  target=MEDV   [guessed: set --map to change]"])
            self.assertEqual(self.gradloom.Dataset.from_arrays(features=self.x).notes(), [])
            with self.assertRaisesRegex(self.gradloom.Error, "unknown data format 'xls'"):
                self.gradloom.Dataset(f"{folder}/part-*", self.plan, columns=columns, format="xls")

    def test_sessions_cannot_be_copied_or_pickled(self):
        """A copy would share the handle."""
        data = self.gradloom.Dataset.from_arrays(features=self.x)
        for owner in (self.gradloom.Session(self.plan), self.plan, data):
            for duplicate in (copy.copy, copy.deepcopy, pickle.dumps):
                with self.assertRaisesRegex(TypeError, f"a {type(owner).__name__} is neither copied nor pickled"):
                    duplicate(owner)
        error = pickle.loads(pickle.dumps(self.gradloom.Error("E-DATA", "what", "where", "help")))
        self.assertEqual((error.code, error.message, error.where, error.help), ("E-DATA", "what", "where", "help"))

    def test_objects_show_what_they_are(self):
        self.assertEqual(repr(self.gradloom.Dataset.from_arrays(features=self.x)), f"<gradloom.Dataset: {len(self.x)} rows>")
        session = self.gradloom.Session(self.plan)
        self.assertEqual(repr(session), "<gradloom.Session: 0 updates, 1 device(s)>")
        seen = []
        with session._calls:  # as during a call of this thread's
            other = threading.Thread(target=lambda: seen.append(repr(session)))
            other.start()
            other.join()
        self.assertEqual(seen, ["<gradloom.Session: in use elsewhere>"])
        session.close()
        self.assertEqual(repr(session), "<gradloom.Session: closed>")

    def test_accepts_dlpack_tensors(self):
        class Tensor:
            def __init__(self, array, device=1):
                self.array, self.device = array, device

            def __dlpack__(self):
                return self.array.__dlpack__()

            def __dlpack_device__(self):
                return (self.device, 0)

            def is_contiguous(self):
                return self.array.flags.c_contiguous

            def contiguous(self):
                return Tensor(np.ascontiguousarray(self.array), self.device)

        session = self.gradloom.Session(self.plan)
        plain = self.gradloom.Session(self.plan).step(features=self.x, target=self.y).loss
        owner = Tensor(self.x.copy())
        held = weakref.ref(owner.array)
        self.assertEqual(session.evaluate(features=owner, target=Tensor(self.y)).loss, plain)
        self.assertEqual(session.step(features=Tensor(np.asfortranarray(self.x)), target=Tensor(self.y)).loss, plain)
        del owner
        gc.collect()
        self.assertIsNone(held(), "the array is still held")
        class Bare(Tensor):  # of a library whose tensors cannot be asked for another order
            is_contiguous = contiguous = property()

        self.assertEqual(self.gradloom.Session(self.plan).step(features=Bare(np.asfortranarray(self.x)), target=Bare(self.y)).loss, plain)

        class Negated(Tensor):  # as of torch: it exports the elements as they are stored
            def is_neg(self):
                return True

            def resolve_neg(self):
                return Tensor(-self.array)

        self.assertEqual(self.gradloom.Session(self.plan).step(features=Negated(-self.x), target=self.y).loss, plain)
        with self.assertRaisesRegex(self.gradloom.Error, r"E-DEVICE.*host or GPU memory(.|\n)*tensor.cpu"):
            session.step(features=Tensor(self.x, device=4), target=self.y)

    def test_pytorch(self):
        try:
            import torch
        except ImportError:
            self.skipTest("no PyTorch in this environment")
        session = self.gradloom.Session(self.plan)
        plain = self.gradloom.Session(self.plan).step(features=self.x, target=self.y).loss
        transposed = torch.tensor(self.x.T.copy()).T
        self.assertEqual(session.step(features=transposed, target=torch.tensor(self.y)).loss, plain)
        negated = torch.complex(torch.zeros(self.x.shape), torch.tensor(-self.x)).conj().imag
        self.assertEqual(self.gradloom.Session(self.plan).step(features=negated, target=self.y).loss, plain)
        self.assertEqual(float(torch.from_dlpack(session.output("loss"))), np.float32(plain))
        session.set_parameter("layer1.bias", torch.arange(16, dtype=torch.float32))
        np.testing.assert_array_equal(session.parameter("layer1.bias"), np.arange(16, dtype=np.float32))

    def test_settings_read_as_toml(self):
        strange = "a\"b\\c\n\x7f'''d \N{SNOWMAN} \N{ROCKET}"
        for value in ({"words": 16, "a b": "x", strange: [True, strange]}, ["a", 2, strange], [], {}, 1.5, False):
            self.assertEqual(tomllib.loads(f"key = {self.gradloom._plan._setting_text(value)}")["key"], value)
        for settings in ({"model.freeze": ["\N{ROCKET}"]}, {"optimizer.lr_scale": {"\N{ROCKET}": 0.5}}):
            with self.assertRaisesRegex(self.gradloom.Error, "E-CONFIG.*'\N{ROCKET}' matches no"):
                self.gradloom.compile(f"{FOLDER}/housing_mlp.onnx", loss="mse(value, target)", settings=settings)

    def test_mistakes_are_errors(self):
        error = self.gradloom.Error
        session = self.gradloom.Session(self.plan)
        for expected, call in (("E-IO", lambda: self.gradloom.compile("no such.onnx")), ("E-PARSE", lambda: self.gradloom.compile(b"no model")),
                               ("E-CONFIG", lambda: self.gradloom.compile(f"{FOLDER}/housing_mlp.onnx", settings={"optimizer.learning": 1})),
                               ("E-DATA", lambda: session.step(features=self.x)),
                               ("E-TYPE", lambda: session.step(features=self.x.astype(str), target=self.y)),
                               ("E-CONFIG", lambda: session.parameter("no such")), ("E-CONFIG", session.wait),
                               ("E-PLAN", lambda: self.gradloom.load_plan(b"no plan")), ("E-CHECKPOINT", lambda: self.gradloom.Checkpoint(b"none"))):
            with self.assertRaises(error) as caught:
                call()
            self.assertEqual(caught.exception.code, expected, caught.exception)
        many = self.gradloom.compile(f"{FOLDER}/housing_mlp.onnx", loss="mse(value, target)", batch=16, devices="cpu:600")
        with self.assertRaisesRegex(error, r"E-LIMIT.*600 CPU devices need"):
            self.gradloom.Session(many)
        with self.assertRaises(ValueError):
            self.plan.inputs("training")
        with self.assertRaises(ValueError):
            session.location("layer1.bias", "parameter")
        with self.assertRaisesRegex(TypeError, "a session needs a Plan"):
            self.gradloom.Session("housing.plan")
        with self.assertRaisesRegex(TypeError, "fit needs a Dataset"):
            session.fit([self.x, self.y])
        data = self.gradloom.Dataset.from_arrays(features=self.x, target=self.y)
        for call in (session.predict, session.evaluate, session.step):
            with self.assertRaisesRegex(TypeError, r"inputs are given by name, as in features=x .* not as a ndarray"):
                call(self.x)
            with self.assertRaisesRegex(TypeError, r"a Dataset has many batches.*data\.batches\(32\)"):
                call(data)
        with self.assertRaisesRegex(error, "must be written as .onnx"):
            session.export(f"{FOLDER}/exported.txt")
        self.assertFalse(os.path.exists(f"{FOLDER}/exported.txt"))
        session.close()
        with self.assertRaises(error):
            session.step(features=self.x, target=self.y)

    def test_callbacks_stop_and_raise(self):
        data = self.gradloom.Dataset.from_arrays(features=np.tile(self.x, (4, 1)), target=np.tile(self.y, (4, 1)))
        self.assertEqual(len(data), 64)
        session = self.gradloom.Session(self.plan)
        result = session.fit(data, epochs=9, batch=16, on_step=lambda step: step.step < 3)
        self.assertEqual((result.stopped, result.step, result.best), ("callback", 3, None))

        def fails(step):
            raise ZeroDivisionError(step.step)

        with self.assertRaisesRegex(ZeroDivisionError, "4"):
            session.fit(data, epochs=9, batch=16, on_step=fails)
        # A comparison of numpy's numbers is False, too; other values that count as false are not.
        self.assertEqual(session.fit(data, epochs=9, batch=16, on_step=lambda step: np.float64(step.loss) < 0).step, 5)
        self.assertEqual(session.fit(data, epochs=2, batch=16, on_step=lambda step: 0).step, 8)
        with self.assertRaisesRegex(OverflowError, "epochs"):
            session.fit(data, epochs=2**64 + 1, batch=16)

    def test_a_fit_says_what_it_leaves_out(self):
        data = self.gradloom.Dataset.from_arrays(features=np.tile(self.x, (4, 1)), target=np.tile(self.y, (4, 1)))
        session = self.gradloom.Session(self.plan)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            first = session.fit(data, epochs=2, batch=16)
        self.assertTrue(np.isfinite(first.train_loss))
        for total in ({"epochs": 2}, {"updates": 5}):
            with self.assertWarnsRegex(UserWarning, "fit trained nothing: .* already made 8 updates") as warned:
                again = session.fit(data, batch=16, **total)
            self.assertEqual((again.train_loss, again.stopped, again.step), (None, "done", 8))
            self.assertEqual(warned.filename, __file__)
        self.assertEqual(session.fit(data, epochs=3, batch=16).step, 12)
        for asked in ({"patience": 2}, {"watch": "eval/loss:min"}, {"metrics": ["mae(value, target)"]}):
            with self.assertRaisesRegex(self.gradloom.Error, "E-CONFIG.*needs evaluation data"):
                session.fit(data, epochs=5, batch=16, **asked)
        # A metric compares what the loss compares, but these numbers are neither yes nor no.
        other = self.gradloom.Session(self.plan)
        self.assertEqual(other.fit(data, data, epochs=1, batch=16, metrics=["mae"], watch="eval/mae").best_step, 4)
        with self.assertRaisesRegex(self.gradloom.Error, "accuracy needs a target of classes"):
            other.fit(data, data, epochs=5, batch=16, metrics=["accuracy"])
        with self.assertRaisesRegex(self.gradloom.Error, "E-CONFIG.*never due"):
            session.fit(data, data, epochs=5, batch=16, patience=2, evaluate_every="never")
        # Zeros, which stand for the defaults in the table.
        for asked in ({"epochs": 0}, {"epochs": 9, "batch": 0}, {"epochs": 9, "plateau": self.gradloom.Plateau(factor=0)}):
            with self.assertRaisesRegex(self.gradloom.Error, "E-CONFIG.*must not be 0"):
                session.fit(data, data, **asked)
        self.assertEqual(session.fit(data, epochs=0, updates=13, batch=16).step, 13)

    def test_a_plateau_reduces_the_learning_rate(self):
        data = self.gradloom.Dataset.from_arrays(features=self.x, target=self.y)
        session = self.gradloom.Session(self.plan)
        plateau = self.gradloom.Plateau(factor=0.5, patience=0, threshold=1.0, cooldown=1, min_lr=1e-3)
        rates = []
        session.fit(data, data, epochs=5, batch=16, plateau=plateau, on_epoch=lambda epoch: rates.append(session.learning_rate))
        self.assertEqual(session.learning_rate, 0.0025)
        self.assertEqual(rates, sorted(rates, reverse=True))
        with self.assertRaisesRegex(self.gradloom.Error, "E-CONFIG.*needs evaluation data"):
            session.fit(data, epochs=5, plateau=plateau)

    def test_fit_takes_rows_in_order(self):
        data = self.gradloom.Dataset.from_arrays(features=np.tile(self.x, (3, 1)), target=np.tile(self.y, (3, 1)))
        fitted, stepped = self.gradloom.Session(self.plan), self.gradloom.Session(self.plan)
        fitted.fit(data, batch=16, in_order=True)
        for batch in data.batches(16, in_order=True):
            stepped.step(batch)
        for name, value in stepped.parameters().items():
            np.testing.assert_array_equal(fitted.parameters()[name], value)
        with self.assertRaisesRegex(self.gradloom.Error, "E-CONFIG.*at least 1, got 0"):
            data.batches(0)

    def test_batches_that_are_not_finite_are_left_out(self):
        bad = self.y.copy()
        bad[3] = np.nan
        data = self.gradloom.Dataset.from_arrays(features=np.tile(self.x, (3, 1)), target=np.concatenate([self.y, bad, self.y]))
        session = self.gradloom.Session(self.plan)
        with self.assertRaisesRegex(self.gradloom.Error, "E-DIVERGED"):
            session.fit(data, batch=16)
        session = self.gradloom.Session(self.plan)
        session.fit(data, batch=16, skip_non_finite=True)
        self.assertTrue(all(np.isfinite(value).all() for value in session.parameters().values()))

    def test_names_where_a_nan_began(self):
        bad = self.y.copy()
        bad[3] = np.nan
        session = self.gradloom.Session(self.plan, check_numerics=True)
        session.step(features=self.x, target=self.y)
        self.assertEqual(session.non_finite_origin(), "")
        session.step(features=self.x, target=bad)
        self.assertRegex(session.non_finite_origin(), r"^input 'target' of step 2 has 1 NaN of 16 elements, .* in sample 3 of the batch")
        data = self.gradloom.Dataset.from_arrays(features=self.x, target=bad)
        with self.assertRaisesRegex(self.gradloom.Error, "(?s)E-DIVERGED.*input 'target' of step 1 has 1 NaN"):
            self.gradloom.Session(self.plan, check_numerics=True).fit(data, batch=16)
        with self.assertRaisesRegex(self.gradloom.Error, "(?s)E-CONFIG.*check_numerics"):
            self.gradloom.Session(self.plan).non_finite_origin()

    def test_resumes_to_the_same_bits(self):
        """Also if a batch size was compiled in the meantime, and if the plan and the checkpoint were read from files."""
        plan, session = self.plan, self.gradloom.Session(self.plan, seed=9)
        session.step(features=self.x, target=self.y)
        session.step(features=self.x[:5], target=self.y[:5])
        session.set_property("data", "five rows")
        session.save(f"{FOLDER}/five.ckpt")
        plan.save(f"{FOLDER}/five.plan")
        checkpoint = self.gradloom.Checkpoint(f"{FOLDER}/five.ckpt")
        self.assertEqual((checkpoint.get_property("data"), checkpoint.get_property("none")), ("five rows", None))
        resumed = self.gradloom.Session(self.gradloom.load_plan(f"{FOLDER}/five.plan"), checkpoint=checkpoint)
        self.assertEqual((resumed.num_updates, resumed.get_property("data"), resumed.get_property("none")), (2, "five rows", None))
        for one in (session, resumed):
            one.learning_rate = 0.5
            one.step(features=self.x, target=self.y)
        np.testing.assert_array_equal(session.flat_parameters(), resumed.flat_parameters())
        from safetensors.numpy import load_file
        np.testing.assert_array_equal(load_file(f"{FOLDER}/five.ckpt")["layer3.bias"].shape, (1,))

    def test_every_function_of_the_table_is_used(self):
        """Whatever is possible in C is possible in Python, except for what the package does by itself."""
        from gradloom import _library
        sources = "".join(path.read_text() for path in pathlib.Path(_library.__file__).parent.glob("*.py"))
        left_out = {"GetErrorCode",  # part of the exception's name
                    "GetDTypeName", "GetDTypeBytes",  # numpy has these
                    "GetModelInputCount", "GetModelInputName",  # a model can only be compiled; its plan has the inputs
                    "CopyOutput",  # GetOutput and a copy
                    "RegisterLinearLRScheduler", "SchedulerStep",  # learning_rate can be set, or the plan has a schedule
                    "GetDeviceCount", "GetDeviceInfo",  # devices() has this and more
                    "ToDLPack"}  # numpy arrays support DLPack
        missing = {name for name in _library.library().header.functions if not re.search(rf'\b{name}\b', sources)}
        missing -= {"GetInputCount", "GetInputInfo", "GetOutputCount", "GetOutputInfo"}  # Get{kind}Count
        self.assertEqual(missing, left_out)


if __name__ == "__main__":
    unittest.main()
