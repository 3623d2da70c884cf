"""Runs that begin with the weights of others: in several files, of other types, in part, or unusable."""
import json
import os
import random
import re
import shutil
import subprocess
import sys
import unittest

import ml_dtypes
import numpy as np
import onnx
import safetensors.numpy

GRADLOOM = os.path.abspath(sys.argv.pop(1))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import sample_files  # noqa: E402
from sample_files import TRAIN  # noqa: E402

SEED = int(os.environ.get("GRADLOOM_SEED", random.SystemRandom().randrange(1 << 31)))


def write_shards(tensors, folder):
    """Writes the tensors as three files with an index, in the form of Hugging Face's libraries. Returns the path of the index."""
    os.makedirs(folder)
    parts, weight_map = [{}, {}, {}], {}
    for i, name in enumerate(tensors):
        parts[i % 3][name] = tensors[name]
        weight_map[name] = f"model-0000{i % 3 + 1}-of-00003.safetensors"
    for i, part in enumerate(parts):
        safetensors.numpy.save_file(part, f"{folder}/model-0000{i + 1}-of-00003.safetensors", metadata={"format": "pt"})
    index = f"{folder}/model.safetensors.index.json"
    with open(index, "w", encoding="utf-8") as file:
        total = sum(tensor.nbytes for tensor in tensors.values())
        file.write(json.dumps({"metadata": {"total_size": total}, "weight_map": weight_map}, indent=2, sort_keys=True) + "\n")
    return index


class WeightsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = sample_files.in_folder_of(cls)
        cls.run_command(cls, [*TRAIN, "--eval-split", "20%", "--name", "main"])
        print("seed", SEED)

    def setUp(self):
        self.rng = np.random.default_rng(SEED)

    def run_command(self, words, code=0):
        done = subprocess.run([GRADLOOM, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60)
        if done.returncode != code:
            raise AssertionError(f"{words}: exit {done.returncode}, not {code}\n{done.stderr}")
        return done

    def json(self, words, code=0):
        return json.loads(self.run_command(words, code).stdout)

    def test_weights_of_a_part_of_a_model(self):
        self.run_command([*TRAIN, "--init-weights", "runs/main", "--freeze", "w1", "--name", "a_part", "--optimizer", "adam"])
        said = self.run_command([*TRAIN, "--init-weights", "runs/a_part", "--freeze", "w2", "--name", "other_part"]).stderr
        self.assertNotIn("does not have", said)

    def test_foreign_weights(self):
        tensors = safetensors.numpy.load_file("runs/main/state.safetensors")
        words = ["export", "runs/main", "-o", "other.onnx", "--weights", "other.safetensors"]
        safetensors.numpy.save_file(tensors, "other.safetensors")
        self.assertNotIn("ignored: ", self.run_command(words).stderr)
        safetensors.numpy.save_file({**tensors, "head.bias": np.zeros(3, np.float32), "w1/ema": tensors["w1"]}, "other.safetensors")
        for words in (words, ["eval", "runs/main", "--data", "train.csv", "--weights", "other.safetensors"],
                      [*TRAIN, "--init-weights", "other.safetensors", "--name", "initial"]):
            lines = [line for line in self.run_command(words).stderr.splitlines() if "ignored: " in line]
            self.assertEqual(len(lines), 1, words)
            self.assertIn("'head.bias'", lines[0])
            self.assertNotIn("w1", lines[0])
        safetensors.numpy.save_file({**tensors, "w1": tensors["w1"].astype(np.int32)}, "other.safetensors")
        for words in (["export", "runs/main", "-o", "other.onnx", "--weights", "other.safetensors"],
                      [*TRAIN, "--init-weights", "other.safetensors", "--name", "integers"]):
            error = self.run_command(words, 7).stderr
            for part in ("'w1'", "int32", "other.safetensors"):
                self.assertIn(part, error)

    def test_another_run_takes_weights_alone(self):
        """Without the optimizer's state, since updates that count from 1 would apply its bias correction as if they were the first."""
        with open("runs/main/checkpoints/LATEST") as file:
            checkpoint = "runs/main/checkpoints/" + file.read().strip()
        self.run_command(["export", "runs/main", "-o", "weights.safetensors"])
        write_shards(safetensors.numpy.load_file("weights.safetensors"), "divided")
        states = []
        for i, start in enumerate(("weights.safetensors", "runs/main/state.safetensors", checkpoint, "divided/model.safetensors.index.json",
                                   "runs/main")):
            self.run_command([*TRAIN, "--init-weights", start, "--name", f"begins{i}"])
            with open(f"runs/begins{i}/state.safetensors", "rb") as file:
                states.append(file.read())
        self.assertTrue(all(state == states[0] for state in states))

    def test_a_run_takes_weights_of_other_floating_point_types(self):
        """Weights of 16 bits, as they are usually published, and of 64."""
        tensors = safetensors.numpy.load_file("runs/main/state.safetensors")
        floats = {name: tensor for name, tensor in tensors.items() if tensor.dtype == np.float32}
        for dtype in (np.float16, ml_dtypes.bfloat16, np.float64):
            states = []
            for to in (dtype, np.float32):
                safetensors.numpy.save_file({name: tensor.astype(dtype).astype(to) for name, tensor in floats.items()}, "typed.safetensors")
                name = f"from_{np.dtype(dtype).name}_{np.dtype(to).name}"
                self.run_command([*TRAIN, "--init-weights", "typed.safetensors", "--name", name])
                with open(f"runs/{name}/state.safetensors", "rb") as file:
                    states.append(file.read())
            self.assertEqual(states[0], states[1], dtype)

    def test_warns_of_weights_that_are_not_finite(self):
        tensors = safetensors.numpy.load_file("runs/main/state.safetensors")
        tensors["w1"][1, 2:4] = np.nan, -np.inf
        tensors["b2"][0] = np.inf
        safetensors.numpy.save_file(tensors, "infinite.safetensors")
        warning = "warning weights infinite.safetensors has values that are NaN or infinite: "
        found = {"1 of 'b2'", "2 of 'w1'"}
        for words, code in ((["export", "runs/main", "-o", "other.safetensors", "--weights", "infinite.safetensors"], 0),
                            (["eval", "runs/main", "--weights", "infinite.safetensors"], 0),
                            ([*TRAIN, "--init-weights", "infinite.safetensors", "--name", "infinite"], 10)):
            [line] = [line for line in self.run_command(words, code).stderr.splitlines() if line.startswith(warning)]
            self.assertEqual(set(line.removeprefix(warning).split(", ")), found, words)

    def test_weights_in_several_files(self):
        """All uses of weights read an index with its shards like the one file."""
        self.run_command(["export", "runs/main", "-o", "whole.safetensors"])
        index = write_shards(safetensors.numpy.load_file("whole.safetensors"), "several")
        self.run_command(["export", "runs/main", "--weights", index, "-o", "joined.safetensors"])
        with open("whole.safetensors", "rb") as whole, open("joined.safetensors", "rb") as joined:
            self.assertEqual(whole.read(), joined.read())
        for words in (["eval", "runs/main", "--json"], ["predict", "runs/main", "--data", "train.csv", "--json"]):
            one, several = (self.json([*words, "--weights", weights]) for weights in ("whole.safetensors", index))
            self.assertEqual(one.pop("weights", "whole.safetensors"), "whole.safetensors")
            self.assertEqual(several.pop("weights", index), index)
            self.assertEqual(one, several)
        found = self.json(["inspect", index, "--json"])
        self.assertEqual((found["kind"], found["tensors"]), ("weights", self.json(["inspect", "whole.safetensors", "--json"])["tensors"]))
        self.assertIn("weights in 3 safetensors files", self.run_command(["inspect", index]).stdout)
        same = self.json(["diff", "whole.safetensors", index, "--json"])
        self.assertEqual((same["kind"], same["same"]), ("weights", True))

    def test_another_run_takes_some_weights(self):
        words = [*TRAIN, "--lr", "0", "--init-weights", "runs/main", "--name"]
        stderr = self.run_command([*words, "head", "--init-except", "w2", "--init-except", "b?"]).stderr
        self.assertIn("weights begin as the model has them, not from runs/main/state.safetensors: b1, w2, b2", re.sub(r"\s+", " ", stderr))
        model = {w.name: onnx.numpy_helper.to_array(w) for w in onnx.load("model.onnx").graph.initializer}
        trained, head = (safetensors.numpy.load_file(f"runs/{name}/state.safetensors") for name in ("main", "head"))
        for name, values in {**model, "w1": trained["w1"]}.items():
            np.testing.assert_array_equal(head[name], values, err_msg=name)
        shutil.copytree("runs/main", "begun")
        self.assertNotIn("weights begin", self.run_command([*TRAIN, "--init-weights", "begun", "--name", "entire"]).stderr)
        shutil.rmtree("begun")
        self.run_command(["resume", "runs/entire", "--epochs", "2"])
        self.assertIn("begun", self.run_command(["resume", "runs/entire", "--from", "start"], 2).stderr)
        error = self.run_command([*words, "none", "--init-except", "w9*"], 4).stderr
        self.assertIn("--init-except 'w9*' matches none of its tensors", error)
        self.assertIn("gradloom inspect runs/main/state.safetensors", error)

    def state(self, name):
        return safetensors.numpy.load_file(f"runs/{name}/state.safetensors")

    def exported(self, name):
        return {w.name: onnx.numpy_helper.to_array(w) for w in onnx.load(f"runs/{name}/export/model.onnx").graph.initializer}

    def others(self, path, dtype=np.float32, names=("w1", "b1", "w2", "b2")):
        """Random weights of the sample model, in a file."""
        model = {w.name: onnx.numpy_helper.to_array(w) for w in onnx.load("model.onnx").graph.initializer}
        values = {name: self.rng.standard_normal(model[name].shape).astype(dtype) for name in names}
        safetensors.numpy.save_file(values, path)
        return {name: value.astype(np.float32) for name, value in values.items()}

    def test_frozen_weights_begin_with_those_of_the_file(self):
        frozen = [*TRAIN, "--freeze", "?1", "--lr", "0.1"]
        for dtype in (np.float32, np.float16, np.float64):
            name = np.dtype(dtype).name
            given = self.others("backbone.safetensors", dtype)
            self.assertNotIn("ignored", self.run_command([*frozen, "--init-weights", "backbone.safetensors", "--name", name]).stderr)
            exported = self.exported(name)
            for weight in ("w1", "b1"):
                np.testing.assert_array_equal(exported[weight], given[weight], err_msg=weight)
                self.assertFalse(np.array_equal(exported[weight.replace("1", "2")], given[weight.replace("1", "2")]), weight)
            # The weights alone are those of the whole model.
            self.run_command(["export", f"runs/{name}", "-o", "all.safetensors"])
            written = safetensors.numpy.load_file("all.safetensors")
            self.assertEqual(set(written), set(exported))
            for weight, values in exported.items():
                np.testing.assert_array_equal(written[weight], values, err_msg=weight)
        # A file of frozen weights alone; what it lacks begins as the model has it.
        given = self.others("backbone.safetensors", names=("w1", "b1"))
        said = self.run_command([*frozen, "--init-weights", "backbone.safetensors", "--init-except", "b1", "--name", "alone"]).stderr
        self.assertIn("weights begin as the model has them, not from backbone.safetensors: w2, b2", said)
        model = {w.name: onnx.numpy_helper.to_array(w) for w in onnx.load("model.onnx").graph.initializer}
        np.testing.assert_array_equal(self.exported("alone")["w1"], given["w1"])
        np.testing.assert_array_equal(self.exported("alone")["b1"], model["b1"])

    def test_a_run_takes_the_frozen_weights_of_another(self):
        """First the head of a pretrained model, then all of it."""
        given = self.others("pretrained.safetensors")
        self.run_command([*TRAIN, "--freeze", "*", "--trainable", "?2", "--init-weights", "pretrained.safetensors", "--name", "head_first"])
        said = self.run_command([*TRAIN, "--lr", "0", "--init-weights", "runs/head_first", "--name", "all"]).stderr
        self.assertNotIn("weights begin as the model has them", said)
        after, head = self.state("all"), self.state("head_first")
        for name, values in {**given, "w2": head["w2"], "b2": head["b2"]}.items():
            np.testing.assert_array_equal(after[name], values, err_msg=name)

    def test_a_saved_run_needs_its_first_weights_no_more(self):
        """Neither if their path has another model's weights by now, nor if a job resumes it without them."""
        self.others("first.safetensors")
        self.run_command([*TRAIN, "--init-weights", "first.safetensors", "--devices", "cpu:2", "--name", "first"])
        safetensors.numpy.save_file({"other": np.zeros(3, "float32")}, "first.safetensors")
        self.run_command(["resume", "runs/first", "--epochs", "2"])
        os.remove("first.safetensors")
        self.run_command(["launch", "--standalone", "--nproc-per-node", "2", "--", "resume", "runs/first", "--epochs", "3"])
        self.assertIn("first.safetensors", self.run_command(["resume", "runs/first", "--from", "start"], 2).stderr)

    def test_a_run_with_frozen_weights_resumes_without_their_file(self):
        self.others("source.safetensors")
        words = [*TRAIN, "--freeze", "?1", "--init-weights", "source.safetensors", "--name", "parts"]
        self.run_command(words)
        words[words.index("--epochs") + 1], words[-1] = "3", "once"
        self.run_command(words)
        self.others("source.safetensors")  # not those that the run began with
        self.run_command(["resume", "runs/parts", "--epochs", "2"])
        os.remove("source.safetensors")
        self.run_command(["resume", "runs/parts", "--epochs", "3"])
        for name, values in self.exported("once").items():
            np.testing.assert_array_equal(self.exported("parts")[name], values, err_msg=name)
        evaluated = [self.json(["eval", f"runs/{name}", "--data", "train.csv", "--json"])["loss"] for name in ("once", "parts")]
        self.assertEqual(*evaluated)

    def test_jobs_begin_with_the_frozen_weights_of_a_file(self):
        """Two processes that each hold a copy of the model, and after a resume."""
        self.others("job.safetensors")
        words = [*TRAIN, "--freeze", "?1", "--init-weights", "job.safetensors"]
        self.run_command([*words, "--devices", "cpu:2", "--name", "one_process"])
        launched = ["launch", "--nproc-per-node", "2", "--"]
        self.run_command([*launched, *words, "--name", "two_processes"])
        for run in ("one_process", "two_processes"):
            self.others("job.safetensors")
            self.run_command([*(launched if run == "two_processes" else []), "resume", f"runs/{run}", "--epochs", "2"])
        one, two = self.exported("one_process"), self.exported("two_processes")
        for name, values in one.items():
            np.testing.assert_array_equal(two[name], values, err_msg=name)

    def test_frozen_weights_that_do_not_fit(self):
        tensors = self.others("fits.safetensors")
        words = [*TRAIN, "--freeze", "w1", "--init-weights", "other.safetensors", "--name", "misfit"]
        for wrong, part in ((tensors["w1"][:, :5], "[4,5]"), (tensors["w1"].astype(np.int32), "int32")):
            safetensors.numpy.save_file({**tensors, "w1": np.ascontiguousarray(wrong)}, "other.safetensors")
            error = self.run_command(words, 7).stderr
            for word in ("'w1'", part, "other.safetensors", "--init-except"):
                self.assertIn(word, error)
        # A plan has its own.
        self.run_command(["compile", "model.onnx", "--loss", "cross_entropy(logits, label)", "--batch", "32", "--freeze", "w1", "-o", "frozen.plan"])
        said = self.run_command(["train", "--plan", "frozen.plan", "--data", "train.csv", "--map", "x=a..d", "--map", "label=label", "--epochs", "1",
                                 "--init-weights", "fits.safetensors", "--name", "planned"]).stderr
        self.assertIn("warning frozen weights are those of the plan, not from fits.safetensors: w1", said)

    def test_a_model_is_used_with_all_weights_of_a_file(self):
        """Frozen ones, too."""
        self.others("one.safetensors")
        self.run_command([*TRAIN, "--freeze", "?1", "--init-weights", "one.safetensors", "--name", "used"])
        other = self.others("two.safetensors")
        table = np.loadtxt("train.csv", delimiter=",", skiprows=1)[:, :4].astype("float32")
        wanted = np.maximum(table @ other["w1"] + other["b1"], 0) @ other["w2"] + other["b2"]
        predicted = self.json(["predict", "runs/used", "--data", "train.csv", "--weights", "two.safetensors"])["logits"]
        np.testing.assert_allclose(predicted, wanted, rtol=1e-4, atol=1e-4)
        self.run_command(["export", "runs/used", "--weights", "two.safetensors", "-o", "two.onnx"])
        for weight in onnx.load("two.onnx").graph.initializer:
            np.testing.assert_array_equal(onnx.numpy_helper.to_array(weight), other[weight.name], err_msg=weight.name)


if __name__ == "__main__":
    unittest.main()
