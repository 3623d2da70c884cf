"""Trained models that Gradloom exports are valid for ONNX's checker and onnxruntime.

Every recorded case is trained for a few batches and exported. The file must pass the full check, be the original graph except for its
weights, and give the same predictions in onnxruntime as in Gradloom.
"""
import glob
import json
import os
import subprocess
import sys
import tempfile
import unittest

import numpy as np
import onnx
import onnx.checker
import onnx.parser
import onnxruntime
from onnx import helper, numpy_helper

EXPORT_CASES, PENDING = sys.argv.pop(1), sys.argv.pop(1)
CASES = os.path.dirname(PENDING)

onnxruntime.disable_telemetry_events()

# Relative to the largest output.
TOLERANCE = 1e-5
# onnxruntime's own operators in ONNX's domain, which ONNX's checker does not know.
UNKNOWN = {"SimplifiedLayerNormalization"}
RANDOM = {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial"}


def folders():
    with open(PENDING) as file:
        pending = set(file.read().split())
    found = sorted(glob.glob(f"{CASES}/cases/*/case.json") + glob.glob(f"{CASES}/recorded/*/case.json"))
    return [os.path.dirname(path) for path in found if os.path.basename(os.path.dirname(path)) not in pending]


def original(folder):
    with open(f"{folder}/case.json") as file:
        path = f"{folder}/{json.load(file)['model']}"
    # Resolves links, because onnx does not follow links to external data.
    return onnx.load(os.path.realpath(path))


def interface(model):
    """The parts of the file that the export must not change."""
    graph = model.graph
    return {
        "opset": sorted((o.domain, o.version) for o in model.opset_import),
        "ir_version": model.ir_version,
        "inputs": [i.SerializeToString() for i in graph.input],
        "outputs": [o.SerializeToString() for o in graph.output],
        "initializers": [(t.name, t.data_type, tuple(t.dims)) for t in graph.initializer],
        "nodes": [(n.name, n.op_type, tuple(n.input), tuple(n.output)) for n in graph.node],
        "functions": [(f.domain, f.name) for f in model.functions],
    }


def is_random(model):
    nodes = list(model.graph.node) + [n for f in model.functions for n in f.node]
    return any(n.op_type in RANDOM for n in nodes)


def trains_in_graph(model):
    """Whether the file has nodes whose inference form differs."""
    return any(n.op_type in ("BatchNormalization", "Dropout") for n in model.graph.node)


class ExportTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.out = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.out.cleanup)
        cls.folders = folders()
        done = subprocess.run([EXPORT_CASES, cls.out.name, *cls.folders], stdout=subprocess.PIPE, text=True)
        cls.trained = done.returncode
        cls.messages = done.stdout

    def exported(self, folder):
        return os.path.join(self.out.name, os.path.basename(folder))

    def test_all_cases_are_exported(self):
        self.assertGreater(len(self.folders), 400)
        self.assertEqual((self.trained, self.messages), (0, ""))

    def test_full_check(self):
        for folder in self.folders:
            with self.subTest(os.path.basename(folder)):
                if UNKNOWN.isdisjoint(n.op_type for n in original(folder).graph.node):
                    onnx.checker.check_model(self.exported(folder) + ".onnx", full_check=True)
                else:
                    self.assertIn("No Op registered", str(self.refusal(folder)))

    def refusal(self, folder):
        with self.assertRaises(onnx.checker.ValidationError) as refused:
            onnx.checker.check_model(self.exported(folder) + ".onnx", full_check=True)
        return refused.exception

    def test_the_graph_is_the_original(self):
        for folder in self.folders:
            with self.subTest(os.path.basename(folder)):
                before, after = original(folder), onnx.load(self.exported(folder) + ".onnx")
                ours, theirs = interface(after), interface(before)
                if trains_in_graph(before):
                    # Outputs and attributes that exist only in training are removed.
                    self.assertLessEqual(set(ours.pop("initializers")), set(theirs.pop("initializers")))
                    self.assertEqual(*[[n[:2] for n in i.pop("nodes") if n[1] != "Constant"] for i in (ours, theirs)])
                self.assertEqual(ours, theirs)

    def test_weights_are_trained(self):
        for folder in self.folders:
            with self.subTest(os.path.basename(folder)):
                before, after = original(folder), onnx.load(self.exported(folder) + ".onnx")
                old = {t.name: onnx.numpy_helper.to_array(t) for t in before.graph.initializer}
                new = {t.name: onnx.numpy_helper.to_array(t) for t in after.graph.initializer}
                self.assertTrue(any(not np.array_equal(old[name], new[name]) for name in new))

    def test_onnxruntime_gives_the_same_outputs(self):
        worst, where, compared = 0, "", 0
        for folder in self.folders:
            name = os.path.basename(folder)
            with self.subTest(name):
                errors = compare(self, self.exported(folder))
                if is_random(original(folder)):
                    continue
                for output, error in errors.items():
                    self.assertLessEqual(error, TOLERANCE, output)
                    if error >= worst:
                        worst, where = error, f"{name}/{output}"
                    compared += 1
        print(f"{compared} outputs compared; the worst differs by {worst:.1e} of the largest ({where})")
        self.assertGreater(compared, 400)

    def test_large_models_have_external_data(self):
        with tempfile.TemporaryDirectory() as out:
            case = f"{CASES}/cases/lenet"
            subprocess.run([EXPORT_CASES, "--inline-bytes", "10000", out, case], check=True)
            self.assertLess(os.path.getsize(out + "/lenet.onnx"), 10000)
            self.assertGreater(os.path.getsize(out + "/lenet.onnx.data"), 100000)
            onnx.checker.check_model(out + "/lenet.onnx", full_check=True)
            for output, error in compare(self, out + "/lenet").items():
                self.assertLessEqual(error, TOLERANCE, output)
            # The external data of a previous export must not be left next to a model that would read it.
            os.remove(out + "/lenet.onnx")
            os.mkdir(out + "/lenet.onnx")
            with open(out + "/lenet.onnx.data", "w") as file:
                file.write("of the model that was there")
            done = subprocess.run([EXPORT_CASES, "--inline-bytes", "10000", out, case], stdout=subprocess.PIPE, text=True)
            self.assertEqual(done.returncode, 11)
            self.assertIn("the path exists and is not a regular file", done.stdout)
            self.assertEqual(os.path.getsize(out + "/lenet.onnx.data"), len("of the model that was there"))
            self.assertEqual(sorted(os.listdir(out)), ["lenet.npz", "lenet.onnx", "lenet.onnx.data"])


def compare(test, stem):
    """Runs an exported model in onnxruntime. Returns the error of each output relative to its largest element."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(stem + ".onnx", options, providers=["CPUExecutionProvider"])
    arrays = np.load(stem + ".npz")
    names = [o.name for o in session.get_outputs()]
    test.assertEqual(sorted("output/" + n for n in names), sorted(k for k in arrays if k.startswith("output/")))
    errors = {}
    for name, theirs in zip(names, session.run(names, {i.name: arrays["input/" + i.name] for i in session.get_inputs()})):
        ours = arrays["output/" + name]
        test.assertEqual((ours.dtype, ours.shape), (theirs.dtype, theirs.shape), name)
        test.assertTrue(np.isfinite(theirs).all(), name)
        largest = np.abs(theirs.astype("float64")).max(initial=0)
        errors[name] = np.abs(ours.astype("float64") - theirs).max(initial=0) / max(largest, 1e-30)
    return errors


HEADER = '<ir_version: 10, opset_import: ["" : 17, "my" : 1]>\n'
STATISTICS = {"s": [1, 2], "b": [0, 1], "m": [0, 0], "v": [1, 1]}
W = [[0.1, 0.2], [-0.3, 0.4], [0.5, 0.6], [0.7, -0.8]]

# Models that no recorded case has: (model, initializers, what is trained).
HAND_MADE = {
    # A block called twice, with operators in training form and statistics that both calls update.
    "function": (
        HEADER
        + """g (float[N, 2] x) => (float[N, 2] y) <bool training = {1}, float ratio = {0.5}>
        { h = my.block (x, w, s, b, m, v, ratio, training)
          y = my.block (h, w, s, b, m, v, ratio, training) }
        <domain: "my", opset_import: ["" : 17]> block (x, w, s, b, m, v, ratio, training) => (y)
        { h = MatMul (x, w)
          n, m1, v1 = BatchNormalization <training_mode = 1> (h, s, b, m, v)
          d, mask = Dropout (n, ratio, training)
          y = Relu (d) }""",
        {"w": [[1, 2], [-1, 0.5]], **STATISTICS},
        ["w", "s", "b"],
    ),
    "weights_in_constants": (
        HEADER
        + """g (float[N, 2] x) => (float[N, 2] y)
        { w = Constant <value = float[2, 3] {0.1, 0.2, 0.3, 0.4, 0.5, -0.6}> ()
          h = MatMul (x, w)
          y = my.out (h) }
        <domain: "my", opset_import: ["" : 17]> out (x) => (y)
        { w = Constant <value = float[3, 2] {0.1, 0.2, 0.3, 0.4, 0.5, -0.6}> ()
          y = MatMul (x, w) }""",
        {},
        ["w", "my.out/w"],
    ),
    "weights_in_a_branch": (
        HEADER
        + """g (float[N, 4] x) => (float[N, 2] y) <bool c = {1}>
        { h = Relu (x)
          y = If (c) <
            then_branch = a () => (float[N, 2] p) <float[4, 2] w = {1, 2, 3, 4, 5, 6, 7, 8}> { p = MatMul (h, w) },
            else_branch = b () => (float[N, 2] q) <float[4, 2] w2 = {1, 2, 3, 4, 5, 6, 7, 8}> { q = MatMul (h, w2) }> }""",
        {},
        ["y/then_branch/w"],
    ),
    "float64": (HEADER + "g (double[N, 4] x) => (double[N, 2] y) { h = MatMul (x, w)\n y = Tanh (h) }", {"w": np.array(W)}, ["w"]),
    "mask": (
        HEADER
        + """g (float[N, 4] x) => (float[N, 2] y, bool[N, 2] mask) <float ratio = {0.5}, bool training = {1}>
        { h = MatMul (x, w)
          y, mask = Dropout (h, ratio, training) }""",
        {"w": W},
        ["w"],
    ),
    # An input with a default value, as files of old IR versions have for each initializer.
    "flag_is_an_input": (
        HEADER + "g (float[N, 4] x, bool training = {1}) => (float[N, 2] y) <float ratio = {0.5}> { h = MatMul (x, w)\n y = Dropout (h, ratio, training) }",
        {"w": W},
        ["w"],
    ),
    "statistics_are_read": (
        HEADER
        + """g (float[N, 2] x) => (float[N, 2] y, float[2] mean)
        { h, mean, variance = BatchNormalization <training_mode = 1> (x, s, b, m, v)
          r = Add (variance, s)
          y = Mul (h, r) }""",
        STATISTICS,
        ["s", "b"],
    ),
    "outputs_are_weights": (
        HEADER + "g (float[N, 4] x) => (float[N, 2] y, float[4, 2] w, float[4, 2] copy) { y = MatMul (x, w)\n copy = Identity (w) }",
        {"w": W},
        ["w"],
    ),
    "opset_7": (
        """<ir_version: 3, opset_import: ["" : 7]>
        g (float[3, 4] x, float[4, 2] w, float[2] s, float[2] b, float[2] m, float[2] v) => (float[3, 2] y)
        { a = MatMul (x, w)
          d = Dropout <ratio = 0.5> (a)
          y, m1, v1, saved_m, saved_v = BatchNormalization (d, s, b, m, v) }""",
        {"w": W, **STATISTICS},
        ["w", "s", "b"],
    ),
    "sparse_initializer": (HEADER + "g (float[N, 4] x) => (float[N, 2] y) { y = MatMul (x, w) }", {}, ["w"]),
    "sparse_constant": (
        HEADER + "g (float[N, 4] x) => (float[N, 2] y) { w = Constant <value_float = 0.0> ()\n y = MatMul (x, w) }",
        {},
        ["w"],
    ),
}


def sparse_weight():
    values = helper.make_tensor("w", onnx.TensorProto.FLOAT, [3], [1.0, 2.0, 3.0])
    return helper.make_sparse_tensor(values, helper.make_tensor("w_indices", onnx.TensorProto.INT64, [3], [0, 3, 5]), [4, 2])


class HandMadeTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def make_case(self, name):
        """A case without a recording, and the model before training."""
        text, initializers, trainable = HAND_MADE[name]
        model = onnx.parser.parse_model(text)
        for key, value in initializers.items():
            array = value if isinstance(value, np.ndarray) else np.array(value, "float32")
            model.graph.initializer.append(numpy_helper.from_array(array, key))
        if name == "sparse_initializer":
            model.graph.sparse_initializer.append(sparse_weight())
        if name == "sparse_constant":
            model.graph.node[0].attribute[0].CopyFrom(helper.make_attribute("sparse_value", sparse_weight()))
        folder = os.path.join(self.folder.name, "cases", name)
        os.makedirs(folder)
        onnx.save(model, folder + "/model.onnx")
        rng = np.random.default_rng(5)
        x, y = model.graph.input[0], model.graph.output[0]
        arrays = {}
        for feed, info in (("x", x), ("target", y)):
            extents = [d.dim_value or 3 for d in info.type.tensor_type.shape.dim]
            for step in range(3):
                arrays[feed + str(step)] = rng.standard_normal(extents).astype(helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type))
        np.savez(folder + "/batches.npz", **arrays)
        np.savez(folder + "/expected.npz")
        tolerance = dict.fromkeys(["loss_atol", "loss_rtol", "grad_atol", "grad_rtol", "param_atol", "param_rtol"], 0)
        case = dict(
            name=name,
            model="model.onnx",
            inputs=["x"],
            outputs=["y"],
            targets=["target"],
            losses=[dict(type="mse", output="y", target="target")],
            optimizer=dict(type="sgd", lr=0.1),
            steps=3,
            batch_size=3,
            semantics="train",
            trainable=trainable,
            tolerance=tolerance,
        )
        with open(folder + "/case.json", "w") as file:
            json.dump(case, file)
        return folder

    def test_hand_made_models(self):
        for name in HAND_MADE:
            with self.subTest(name):
                case = self.make_case(name)
                subprocess.run([EXPORT_CASES, self.folder.name, case], check=True)
                stem = os.path.join(self.folder.name, name)
                onnx.checker.check_model(stem + ".onnx", full_check=True)
                for output, error in compare(self, stem).items():
                    self.assertLessEqual(error, TOLERANCE, output)
                before, after = onnx.load(case + "/model.onnx"), onnx.load(stem + ".onnx")
                self.assertEqual(before.opset_import, after.opset_import)
                self.assertEqual([o.SerializeToString() for o in before.graph.output], [o.SerializeToString() for o in after.graph.output])


if __name__ == "__main__":
    unittest.main()
