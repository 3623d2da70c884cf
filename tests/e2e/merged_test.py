"""Tensors that PyTorch's exporters merge with equal ones or leave out: files exported with the defaults train as the modules do
(../onnx/merged/record.py)."""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

import numpy as np
import onnx
import onnxruntime
import safetensors.numpy

GRADLOOM, FOLDER = os.path.abspath(sys.argv.pop(1)), os.path.abspath(os.path.dirname(sys.argv.pop(1)))
FILES = [(name, exporter) for name in ("norms", "layers", "images", "attention") for exporter in ("default", "older")]
FILES += [(name, "default") for name in ("blocks", "constants", "forms", "branches", "modulated", "parallel", "clones")]
# Parameters that a file has in another form, by which the state names them.
FORMS = {"blocks.0.gamma": "view", "blocks.1.gamma": "blocks.1.gamma/view", "blocks.2.gamma": "blocks.2.gamma/view"}
# In the older exporter's file, a layer whose query, keys and values differ has three matrices and biases in place of one each.
PARTS = {("attention", "older"): 4}


def run(words, code=0):
    done = subprocess.run([GRADLOOM, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120)
    if done.returncode != code:
        raise AssertionError(f"{words}: exit {done.returncode}, not {code}\n{done.stderr}")
    return done


def path_of(name, exporter):
    return os.path.join(FOLDER, f"{name}_{exporter}.onnx")


def after_of(recorded):
    return {key.removeprefix("after/"): recorded[key] for key in recorded.files if key.startswith("after/")}


class MergedTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.out = folder.name

    def train(self, model, name, *flags, epochs=4, lr="0.05"):
        data = os.path.join(FOLDER, f"{name}.npz")
        run(["train", model, "--data", data, "--map", "x=x", "--map", "y=y", "--loss", "cross_entropy(out, y)", "--optimizer", "momentum",
             "--momentum", "0.9", "--lr", lr, "--batch", "8", "--epochs", str(epochs), "--no-shuffle", "--progress", "none", "--out", self.out,
             "--name", "run", *flags])
        with open(os.path.join(self.out, "run", "metrics.jsonl")) as lines:
            return [row["loss"] for row in map(json.loads, lines) if row["split"] == "train"]

    def test_trains_like_the_module(self):
        for name, exporter in [*FILES, ("shared", "default")]:
            with self.subTest(name=name, exporter=exporter):
                recorded = np.load(os.path.join(FOLDER, f"{name}.npz"))
                losses = self.train(path_of(name, exporter), name)
                np.testing.assert_allclose(losses, recorded["losses"], rtol=2e-6)
                exported = onnx.load(os.path.join(self.out, "run", "export", "model.onnx"))
                onnx.checker.check_model(exported)
                # Those of the module. The older exporter gives other names to some.
                after = after_of(recorded)
                parameters = self.trained(path_of(name, exporter))
                self.assertEqual(len(parameters), len(after) + PARTS.get((name, exporter), 0), sorted(parameters))
                if exporter == "default":
                    state = safetensors.numpy.load_file(os.path.join(self.out, "run", "state.safetensors"))
                    for parameter, value in after.items():
                        np.testing.assert_allclose(state[FORMS.get(parameter, parameter)].reshape(value.shape), value, rtol=1e-4, atol=2e-6,
                                                   err_msg=parameter)
                # The exported file is complete.
                session = onnxruntime.InferenceSession(exported.SerializeToString())
                # A branch is chosen for a batch.
                out = np.concatenate([session.run(["out"], {"x": x})[0] for x in np.split(recorded["x"], 3)])
                run(["predict", os.path.join(self.out, "run"), "--data", os.path.join(FOLDER, f"{name}.npz"), "-o",
                     os.path.join(self.out, "p.npz")])
                np.testing.assert_allclose(np.load(os.path.join(self.out, "p.npz"))["out"], out, rtol=1e-4, atol=1e-5)
                shutil.rmtree(os.path.join(self.out, "run"))

    def test_separated_layers_compute_what_the_file_computes(self):
        for name in ("modulated", "parallel", "shared"):
            model = path_of(name, "default")
            self.train(model, name, epochs=1, lr="0")
            exported = os.path.join(self.out, "run", "export", "model.onnx")
            x = np.load(os.path.join(FOLDER, f"{name}.npz"))["x"]
            for expected, got in zip(*[onnxruntime.InferenceSession(file).run(None, {"x": x}) for file in (model, exported)], strict=True):
                np.testing.assert_array_equal(got, expected, name)
            shutil.rmtree(os.path.join(self.out, "run"))

    def test_layers_of_the_module_are_not_separated(self):
        # The operators and parameters that the file has, but for biases that are restored: two calls of one layer stay one.
        self.assertEqual(len(self.trained(path_of("shared", "default"))), len(after_of(np.load(os.path.join(FOLDER, "shared.npz")))))
        self.train(path_of("shared", "default"), "shared", epochs=1)
        nodes = [[node.op_type for node in onnx.load(file).graph.node]
                 for file in (path_of("shared", "default"), os.path.join(self.out, "run", "export", "model.onnx"))]
        self.assertEqual(*map(sorted, nodes))

    def trained(self, model, *flags):
        return [reason["name"] for reason in json.loads(run(["check", model, "--json", *flags]).stdout)["trained"]]

    def test_padding_rows_keep_their_values(self):
        recorded = np.load(os.path.join(FOLDER, "words.npz"))
        model = path_of("words", "default")
        self.assertIn("the padding row of 1 embedding gets no gradient", run(["check", model]).stdout)
        np.testing.assert_allclose(self.train(model, "words"), recorded["losses"], rtol=2e-6)
        table = safetensors.numpy.load_file(os.path.join(self.out, "run", "state.safetensors"))["embedding.weight"]
        np.testing.assert_array_equal(table[0], np.zeros(8, np.float32))
        shutil.rmtree(os.path.join(self.out, "run"))
        self.assertGreater(np.abs(np.subtract(self.train(model, "words", "--no-detach"), recorded["losses"])).max(), 1e-4)

    def test_transposed_weights_read_detached_values(self):
        recorded = np.load(os.path.join(FOLDER, "detached.npz"))
        model = path_of("detached", "default")
        self.assertIn("2 values get no gradient", run(["check", model]).stdout)
        np.testing.assert_allclose(self.train(model, "detached"), recorded["losses"], rtol=2e-6)

    def check_with(self, name, edit):
        """What check says about a file whose signature was edited."""
        model = onnx.load(path_of(name, "default"))
        note = next(note for note in model.graph.metadata_props if note.key == "pkg.torch.export.ExportedProgram.graph_signature")
        note.value = edit(note.value)
        path = os.path.join(self.out, "edited.onnx")
        onnx.save(model, path)
        done = run(["check", path])
        return done.stdout + done.stderr

    def test_lost_parameters_are_named(self):
        self.assertNotIn("the file lacks", self.check_with("norms", lambda text: text))
        self.assertIn("the file lacks 1 parameter of the module (gone)",
                      self.check_with("norms", lambda text: text + "\np_gone: PARAMETER target='gone'\n"))

    def test_tensors_computed_of_parameters_are_named(self):
        text = run(["check", path_of("computed", "default")]).stdout
        self.assertIn("2 tensors trained in place of parameters of the module, of which the exporter computed them: "
                      "'add_1' of scale, 'mul_2' of weight; ", text)
        self.assertNotIn("of the module, of which", run(["check", path_of("forms", "default")]).stdout)

    def test_tensors_computed_of_parameters_under_other_names(self):
        # A matrix under a mask that is transposed, and a table of which a row is read twice.
        self.assertIn("2 tensors trained in place of parameters of the module, of which the exporter computed them: 'index' of places, "
                      "'val_18' of weight; ", run(["check", path_of("unrecorded", "default")]).stdout)

    def test_what_a_file_does_not_do_is_named(self):
        text = run(["check", path_of("unrecorded", "default")]).stdout
        self.assertIn("the module assigns new values to 1 buffer whenever it is called (mean), which the file does not do", text)
        self.assertIn("by how often a batch has each word (scale_grad_by_freq), which the file does not do", text)
        self.assertIn("nodes read 'alpha' in place of 'sub_1': a value that the exporter has computed and merged with a parameter", text)
        for name in ("norms", "words", "constants", "shared", "twice"):
            text = run(["check", path_of(name, "default")]).stdout
            for words in ("assigns new values", "by how often", "merged with a parameter"):
                self.assertNotIn(words, text, name)

    def test_normalization_that_is_called_twice(self):
        recorded = np.load(os.path.join(FOLDER, "twice.npz"))
        np.testing.assert_allclose(self.train(path_of("twice", "default"), "twice"), recorded["losses"], rtol=2e-6)
        exported = os.path.join(self.out, "run", "export", "model.onnx")
        means = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in onnx.load(exported).graph.initializer}
        np.testing.assert_allclose(means["norm.running_mean"], recorded["statistics/norm.running_mean"], rtol=1e-4, atol=1e-6)
        # Both calls use them.
        reads = [node.input[3:] for node in onnx.load(exported).graph.node if node.op_type == "BatchNormalization"]
        self.assertEqual([list(inputs) for inputs in reads], [["norm.running_mean", "norm.running_var"]] * 2)

    def test_signature_without_lines(self):
        # The time to read it does not grow with its square.
        self.check_with("words", lambda text: text + "".join(f" p{i}: PARAMETER target='w{i}'" for i in range(20_000)))

    def test_files_can_be_trained_as_they_are(self):
        for name, exporter in FILES:
            with self.subTest(name=name, exporter=exporter):
                recorded = np.load(os.path.join(FOLDER, f"{name}.npz"))
                model = path_of(name, exporter)
                self.assertLess(len(self.trained(model, "--no-restore")), len(after_of(recorded)))
                self.assertIn("restore ", run(["check", model]).stdout)
                self.assertNotIn("restore ", run(["check", model, "--no-restore"]).stdout)

    def test_an_exported_file_is_restored_already(self):
        for exporter in ("default", "older"):
            self.train(path_of("norms", exporter), "norms", epochs=2)
            exported = os.path.join(self.out, "run", "export", "model.onnx")
            self.assertNotIn("restore ", run(["check", exported]).stdout)
            self.assertEqual(sorted(self.trained(exported)), sorted(self.trained(path_of("norms", exporter))))
            shutil.rmtree(os.path.join(self.out, "run"))

    def test_weights_of_the_module_fit(self):
        for name in ("norms", "layers", "images", "blocks", "modulated", "parallel"):
            after = after_of(np.load(os.path.join(FOLDER, f"{name}.npz")))
            weights = os.path.join(self.out, "module.safetensors")
            safetensors.numpy.save_file(after, weights)
            self.train(path_of(name, "default"), name, "--init-weights", weights, epochs=1, lr="1e-30")
            written = os.path.join(self.out, "exported.safetensors")
            run(["export", os.path.join(self.out, "run"), "-o", written])
            exported = safetensors.numpy.load_file(written)
            os.remove(written)
            for parameter, value in after.items():
                np.testing.assert_array_equal(exported[parameter], value, parameter)
            shutil.rmtree(os.path.join(self.out, "run"))

    def test_runs_resume(self):
        whole = self.train(path_of("norms", "default"), "norms")
        run_folder = os.path.join(self.out, "run")
        state = safetensors.numpy.load_file(os.path.join(run_folder, "state.safetensors"))
        shutil.rmtree(run_folder)
        self.train(path_of("norms", "default"), "norms", epochs=2)
        run(["resume", run_folder, "--epochs", "4", "--progress", "none"])
        resumed = safetensors.numpy.load_file(os.path.join(run_folder, "state.safetensors"))
        self.assertEqual(len(whole), 4)
        for key, value in state.items():
            np.testing.assert_array_equal(resumed[key], value, key)


if __name__ == "__main__":
    unittest.main()
