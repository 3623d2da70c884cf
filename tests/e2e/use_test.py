"""The results of a run and their uses, read and recomputed by other software: TensorBoard's reader, safetensors, numpy, onnxruntime. Every
verb with --json."""
import csv
import glob
import itertools
import json
import os
import re
import signal
import shutil
import subprocess
import sys
import time
import tomllib
import unittest

import numpy as np
import onnx
import onnxruntime
import safetensors.numpy
from tensorboard.backend.event_processing import event_accumulator
from tensorboard.plugins.hparams import plugin_data_pb2

GRADLOOM = os.path.abspath(sys.argv.pop(1))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import sample_files  # noqa: E402
from sample_files import TRAIN  # noqa: E402

onnxruntime.disable_telemetry_events()
TRAIN_LONG = [*TRAIN, "--eval-split", "20%", "--metric", "accuracy", "--metric", "auroc", "--threads", "1"]
TRAIN_LONG[TRAIN_LONG.index("--epochs") + 1] = "6"


def softmax(logits):
    exponentials = np.exp(logits - logits.max(1, keepdims=True))
    return exponentials / exponentials.sum(1, keepdims=True)


class UseTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = sample_files.in_folder_of(cls)
        cls.report = cls.json(cls, [*TRAIN_LONG, "--name", "main", "--log-every", "2", "--clip-norm", "1", "--json"])
        table = np.loadtxt("train.csv", delimiter=",", skiprows=1)
        cls.x, cls.label = table[:, :4].astype("float32"), table[:, 4].astype(int)

    def run_command(self, words, code=0, environment=None):
        done = subprocess.run([GRADLOOM, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60, env=environment)
        if done.returncode != code:
            raise AssertionError(f"{words}: exit {done.returncode}, not {code}\n{done.stderr}")
        return done

    def json(self, words, code=0):
        return json.loads(UseTest.run_command(self, words, code).stdout)

    def ort(self, path, x):
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        return session.run(None, {session.get_inputs()[0].name: x})[0]

    # The results of a run.

    def test_tensorboard_compares_runs_by_hyperparameters(self):
        events = event_accumulator.EventAccumulator(glob.glob("runs/main/events.out.tfevents.*")[0]).Reload()
        content = events.PluginTagToContent("hparams")["_hparams_/session_start_info"]
        told = plugin_data_pb2.HParamsPluginData.FromString(content).session_start_info.hparams
        self.assertEqual((told["optimizer.name"].string_value, told["optimizer.lr"].number_value, told["optimizer.clip_norm"].number_value),
                         ("adam", 0.001, 1))
        self.assertEqual((told["train.epochs"].number_value, told["loss.name"].string_value), (6, "cross_entropy(logits, label)"))

    def test_records_are_readable_by_others(self):
        with open("runs/main/metrics.jsonl") as file:
            lines = [json.loads(line) for line in file]
        train, evals = ([line for line in lines if line["split"] == split] for split in ("train", "eval"))
        self.assertEqual([line["step"] for line in evals], [2, 4, 6, 8, 10, 12])
        self.assertTrue(all(line["mem_mb"] > 1 and "gpu_mem_mb" not in line for line in train))
        events = event_accumulator.EventAccumulator(glob.glob("runs/main/events.out.tfevents.*")[0]).Reload()
        tags = events.Tags()["scalars"]
        self.assertEqual(set(tags), {"train/loss", "train/lr", "train/samples_per_sec", "train/grad_norm", "eval/loss", "eval/accuracy",
                                     "eval/auroc", "eval/auroc/0", "eval/auroc/1", "eval/auroc/2"})
        for tag, lines_of_split, name in (("train/loss", train, "loss"), ("train/grad_norm", train, "gnorm"), ("eval/accuracy", evals, "accuracy"),
                                          ("eval/loss", evals, "loss")):
            scalars = events.Scalars(tag)
            self.assertEqual([s.step for s in scalars], [line["step"] for line in lines_of_split])
            np.testing.assert_allclose([s.value for s in scalars], [line[name] for line in lines_of_split], rtol=1e-6)
        with open("runs/main/results.csv", newline="") as file:
            table = list(csv.DictReader(file))
        self.assertEqual([float(row["eval/accuracy"]) for row in table], [line["accuracy"] for line in evals])
        self.assertEqual(self.report["eval_accuracy"], evals[-1]["accuracy"])
        self.assertGreater(self.report["peak_bytes"], self.report["planned_bytes"])
        held = self.report["memory"][0]
        # Besides the plan's arenas there is only memory for the step's parameters.
        self.assertLess(0, held["allocated_bytes"] + held["cached_bytes"] - self.report["planned_bytes"])
        self.assertLess(held["allocated_bytes"] + held["cached_bytes"] - self.report["planned_bytes"], 1024)
        self.assertGreater(held["free_bytes"], 0)
        recorded = self.json(["devices", "runs/main", "--json"])
        self.assertEqual((recorded["step"], recorded["devices"][0]["allocated_bytes"]), (self.report["steps"], held["allocated_bytes"]))
        self.assertRegex(self.run_command(["devices", "runs/main"]).stdout, r"process \d+, after step \d+\ncpu  .* allocated  .* cached  .* free")

    def test_without_tensorboard(self):
        self.run_command([*TRAIN, "--no-tensorboard", "--name", "silent"])
        self.assertEqual(glob.glob("runs/silent/events*"), [])

    def test_weights_and_model_are_readable_by_others(self):
        state = safetensors.numpy.load_file("runs/main/state.safetensors")
        self.assertEqual({name for name in state if "/" not in name}, {"w1", "b1", "w2", "b2"})
        model = onnx.load("runs/main/export/model.onnx")
        onnx.checker.check_model(model, full_check=True)
        for initializer in model.graph.initializer:
            np.testing.assert_array_equal(onnx.numpy_helper.to_array(initializer), state[initializer.name])
        self.run_command(["export", "runs/main", "-o", "weights.safetensors"])
        weights = safetensors.numpy.load_file("weights.safetensors")
        self.assertEqual(set(weights), {"w1", "b1", "w2", "b2"})
        for name, value in weights.items():
            np.testing.assert_array_equal(value, state[name])

    def test_json_lines_of_a_resumed_run(self):
        words = [*TRAIN, "--name", "lines", "--resume", "auto"]
        self.run_command([*words, "--log-format", "json"])
        words[words.index("--epochs") + 1] = "2"
        list(map(json.loads, self.run_command(words).stderr.splitlines()))

    def test_a_complete_run_reports_its_last_epoch_again(self):
        first, again = (self.json([*TRAIN_LONG, "--name", "reported", "--resume", "auto", "--json"]) for _ in range(2))
        for key in ("steps", "train_loss", "eval_loss", "eval_accuracy", "eval_auroc", "best", "best_step"):
            self.assertEqual(again[key], first[key], key)

    def test_resume_after_an_early_stop(self):
        said = self.run_command([*TRAIN_LONG, "--lr", "0", "--early-stop", "1", "--name", "stopped_early"]).stderr
        self.assertIn("gradloom resume runs/stopped_early --early-stop 0", said)
        self.assertNotIn("stopped early", self.run_command(["resume", "runs/stopped_early", "--early-stop", "0"]).stderr)

    # The uses of a run.

    def test_eval(self):
        measured = self.json(["eval", "runs/main", "--data", "train.csv", "--json"])
        logits = self.ort("runs/main/export/model.onnx", self.x)
        probability = softmax(logits.astype("float64"))[np.arange(60), self.label]
        self.assertEqual(measured["rows"], 60)
        self.assertAlmostEqual(measured["accuracy"], np.mean(logits.argmax(1) == self.label), places=12)
        self.assertAlmostEqual(measured["loss"], -np.log(probability).mean(), delta=1e-5)
        # The held-out part is found again and gives the results that the run reported, also with another batch size.
        for flags in ([], ["--batch", "5"]):
            held = self.json(["eval", "runs/main", "--json", *flags])
            self.assertEqual(held["rows"], 12)
            self.assertAlmostEqual(held["loss"], self.report["eval_loss"], delta=1e-5)
            self.assertEqual(held["accuracy"], self.report["eval_accuracy"])
        other = self.json(["eval", "runs/main", "--metric", "top2", "--json"])
        self.assertGreaterEqual(other["top2"], held["accuracy"])
        text = self.run_command(["eval", "runs/main"]).stdout
        self.assertIn("12 rows of the run's evaluation data", text)

    def test_rows_of_the_ignored_class(self):
        """Means of losses and metrics are over the other rows, although some batches have more of them than others."""
        label = self.label.copy()
        label[: len(label) // 3] = -100
        label[-1] = -100
        np.savez("holes.npz", x=self.x, label=label)
        words = ["train", "model.onnx", "--data", "holes.npz", "--eval-data", "holes.npz", "--loss", "cross_entropy(logits, label)", "--batch", "10",
                 "--epochs", "1", "--lr", "0", "--metric", "accuracy", "--json"]
        report = self.json([*words, "--name", "holes"])
        logits, kept = self.ort("model.onnx", self.x), label >= 0
        loss = -np.log(softmax(logits[kept].astype("float64"))[np.arange(kept.sum()), label[kept]]).mean()
        self.assertAlmostEqual(report["eval_loss"], loss, delta=1e-5)
        self.assertAlmostEqual(report["eval_accuracy"], (logits[kept].argmax(1) == label[kept]).mean(), delta=1e-6)
        self.assertAlmostEqual(self.json(["eval", "runs/holes", "--data", "holes.npz", "--json"])["loss"], loss, delta=1e-5)

    def test_several_files_are_one_data_set(self):
        with open("train.csv") as file:
            header, *rows = file.read().splitlines()
        os.makedirs("shards")
        for name, part in (("b", rows[20:45]), ("a", rows[:20]), ("c", rows[45:])):
            with open(f"shards/{name}.dat", "w") as file:
                file.write("\n".join([header, *part]) + "\n")
        # A configuration next to them has the same effect as the flags.
        with open("shards/own.toml", "w") as file:
            file.write('version = 1\n[data]\ntrain = "*.dat"\nformat = "csv"\n')
        place = TRAIN_LONG.index("--data")
        one = self.json([*TRAIN_LONG, "--name", "one_file", "--json"])
        several = self.json([*TRAIN_LONG[:place], *TRAIN_LONG[place + 2:], "-c", "shards/own.toml", "--name", "shards", "--json"])
        for key in ("train_loss", "eval_loss", "eval_accuracy"):
            self.assertEqual(one[key], several[key], key)
        with open("runs/one_file/export/model.onnx", "rb") as ours, open("runs/shards/export/model.onnx", "rb") as theirs:
            self.assertEqual(ours.read(), theirs.read())
        # The run's own format applies to its own data, not to the files named here.
        held = self.json(["eval", "runs/shards", "--json"])
        self.assertEqual(held["loss"], self.json(["eval", "runs/one_file", "--json"])["loss"])
        whole = self.json(["eval", "runs/shards", "--data", "shards/?.dat", "--data-format", "csv", "--json"])
        self.assertEqual((whole["rows"], whole["loss"]), (60, self.json(["eval", "runs/shards", "--data", "train.csv", "--json"])["loss"]))
        self.assertIn("--data-format csv", self.run_command(["eval", "runs/shards", "--data", "shards/a.dat"], 5).stderr)
        self.run_command(["predict", "runs/shards", "--data", "shards/[a-c].dat", "--data-format", "csv", "-o", "shards/y.npz"])
        with np.load("shards/y.npz") as arrays:
            self.assertEqual(arrays["logits"].shape, (60, 3))
        # The same number of rows does not mean the same rows.
        self.run_command(["resume", "runs/shards", "--epochs", "7"])
        os.rename("shards/b.dat", "shards/d.dat")
        refused = self.run_command(["resume", "runs/shards", "--epochs", "8"], 7).stderr
        self.assertIn("file 2 of the data was 'b.dat' with 25 rows, now it is 'c.dat' with 15 rows", refused)
        os.rename("shards/d.dat", "shards/b.dat")
        self.run_command(["resume", "runs/shards", "--epochs", "8"])

    def test_predict(self):
        wanted = self.ort("runs/main/export/model.onnx", self.x)
        self.run_command(["predict", "runs/main", "--data", "train.csv", "-o", "y.npz"])
        with np.load("y.npz") as arrays:
            np.testing.assert_allclose(arrays["logits"], wanted, rtol=1e-5, atol=1e-6)
        self.run_command(["predict", "runs/main", "--data", "train.csv", "-o", "y.csv"])
        with np.load("y.npz") as arrays, open("y.csv") as file:
            self.assertEqual(file.readline(), "logits.0,logits.1,logits.2\n")
            np.testing.assert_array_equal(np.loadtxt(file, delimiter=",", dtype="float32"), arrays["logits"])
        # Before anything is computed.
        self.assertNotIn("logits", self.run_command(["predict", "runs/main", "--data", "train.csv", "-o", "nowhere/y.csv"], 8).stderr)
        # Neither the target's column nor a batch size that divides the rows is needed.
        np.savez("x.npz", x=self.x)
        for flags in ([], ["--batch", "7"], ["--batch", "60"]):
            printed = self.json(["predict", "runs/main", "--data", "x.npz", "--map", "x=x", "--json", *flags])
            np.testing.assert_allclose(printed["logits"], wanted, rtol=1e-5, atol=1e-6)
        self.run_command(["predict", "runs/main", "--data", "train.csv", "-o", "y.json"])
        with open("y.json") as file:
            self.assertEqual(np.array(json.load(file)["logits"]).shape, (60, 3))
        # A plan with weights is equivalent to the run.
        self.run_command(["compile", "model.onnx", "--loss", "cross_entropy(logits, label)", "-o", "p.plan"])
        self.assertEqual(self.json(["predict", "runs/main", "--data", "x.npz", "--map", "x=x", "-o", "both.npz", "--json"]),
                         self.json(["predict", "runs/main", "--data", "x.npz", "--map", "x=x"]))
        self.assertTrue(os.path.exists("both.npz"))
        by_plan = self.json(["predict", "p.plan", "--weights", "runs/main/state.safetensors", "--data", "x.npz", "--map", "x=x", "--json"])
        np.testing.assert_allclose(by_plan["logits"], wanted, rtol=1e-5, atol=1e-6)

    def test_predictions_whose_rows_depend_on_the_batch(self):
        """The columns that are positive somewhere in the batch."""
        onnx.save(onnx.parser.parse_model('''<ir_version: 8, opset_import: ["" : 17]>
            g (float[N, 4] x) => (float[N, 1] z, float[N, K] kept) <float[4, 1] w = {1, 2, 3, 4}, float zero = {0}>
            { z = MatMul (x, w)  most = ReduceMax <axes = [0], keepdims = 0> (x)  used = Greater (most, zero)
              kept = Compress <axis = 1> (x, used) }'''), "columns.onnx")
        x = -np.ones((6, 4), "float32")
        x[:3, 0] = x[3:, 1:] = 1
        np.savez("columns.npz", x=x, t=x[:, :1])
        self.run_command(["train", "columns.onnx", "--data", "columns.npz", "--loss", "mse(z, t)", "--epochs", "1", "--name", "columns", "--progress", "none"])
        words = ["predict", "runs/columns", "--data", "columns.npz", "-o", "columns-made.npz", "--batch"]
        said = self.run_command([*words, "3"], 4).stderr
        self.assertIn("output 'kept' is [3,3] for a batch of 3, and [3,1] for the first one, so batches cannot be concatenated", said)
        self.run_command([*words, "6"])
        with np.load("columns-made.npz") as arrays:
            np.testing.assert_array_equal(arrays["kept"], x)

    def test_errors_of_passes_name_the_file(self):
        words = [*TRAIN, "--name", "nowhere"]
        words[words.index("--loss") + 1] = "cross_entropy(logits, label, class_axis=7)"
        self.assertIn("--> model.onnx  loss cross_entropy", self.run_command(words, 2).stderr)

    def test_the_table_of_many_epochs_is_short(self):
        words = TRAIN_LONG.copy()
        words[words.index("--epochs") + 1] = "2500"
        words += ["--save-every", "100000", "--eval-every", "1000", "--name", "many"]
        said = self.run_command(words).stderr.splitlines()
        first = next(i for i, line in enumerate(said) if line.startswith("epoch ")) + 1
        rows = list(itertools.takewhile(lambda line: line[:1].isdigit(), said[first:]))
        self.assertEqual(len(rows), 10)
        for row, tenth in zip(rows, range(250, 2501, 250)):
            self.assertAlmostEqual(int(row.split()[0]), tenth, delta=4)
        self.assertEqual(rows[-1].split()[0], "2500")

    def test_a_finished_schedule(self):
        for schedule in ("one_cycle", "cosine", "linear"):
            report = self.json([*TRAIN_LONG, "--schedule", schedule, "--name", schedule, "--json"])
            self.assertAlmostEqual(self.json(["eval", f"runs/{schedule}", "--json"])["loss"], report["eval_loss"], delta=1e-6)
            self.assertIn("logits", self.json(["predict", f"runs/{schedule}", "--data", "train.csv"]))
            words = ["model.onnx", "--loss", "cross_entropy(logits, label)", "--schedule", schedule]
            self.run_command(["check", *words])
            self.assertIn("--steps N", self.run_command(["compile", *words, "-o", "s.plan"], 4).stderr)
            self.run_command(["compile", *words, "-o", "s.plan", "--steps", "12"])

    def test_diff(self):
        self.run_command([*TRAIN_LONG, "--name", "again", "--log-every", "2", "--clip-norm", "1"])
        self.run_command([*TRAIN_LONG, "--name", "other", "--log-every", "2", "--clip-norm", "1", "--seed", "5"])
        same = self.json(["diff", "runs/main/state.safetensors", "runs/again/state.safetensors", "--json"])
        self.assertEqual((same["kind"], same["same"]), ("weights", True))
        self.assertTrue(self.json(["diff", "runs/main/plan.plan", "runs/again/plan.plan", "--json"])["same"])
        runs = self.json(["diff", "runs/main", "runs/other", "--json"], 11)
        self.assertFalse(runs["same"])
        self.assertTrue(any("train.seed" in line for line in runs["differences"]), runs)
        self.assertIn("w1", self.run_command(["diff", "runs/main/state.safetensors", "runs/other/state.safetensors"], 11).stdout)
        with open("runs/main/checkpoints/LATEST") as file:
            checkpoint = "runs/main/checkpoints/" + file.read().strip()
        self.assertTrue(self.json(["diff", checkpoint, checkpoint.replace("main", "again"), "--json"])["same"])
        self.assertTrue(self.json(["diff", checkpoint, checkpoint + "/rank-0.safetensors", "--json"])["same"])
        error = self.run_command(["diff", "runs/main/state.safetensor", "runs/other/state.safetensors"], 2).stderr
        self.assertIn("did you mean 'runs/main/state.safetensors'?", error)
        self.run_command(["compile", "model.onnx", "--loss", "cross_entropy(logits, label)", "--optimizer", "sgd", "-o", "sgd.plan"])
        self.assertRegex(self.run_command(["diff", "runs/main/plan.plan", "sgd.plan"], 11).stdout, r"(?s)^plan: .*\nmemory of a device: .*\nlaunches of ")

    def test_an_interrupted_run(self):
        name = "stopped"
        words = [*TRAIN_LONG, "--name", name, "--save-every", "7"]
        words[words.index("--epochs") + 1] = "100000"
        process = subprocess.Popen([GRADLOOM, *words], stderr=subprocess.DEVNULL)
        while not os.path.exists(f"runs/{name}/checkpoints/BEST"):
            self.assertIsNone(process.poll())
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.wait()
        self.assertFalse(os.path.exists(f"runs/{name}/state.safetensors"))
        self.assertIn("tensor 'w1': ", self.run_command(["diff", "runs/main", f"runs/{name}"], 11).stdout)  # by its checkpoint
        exported = self.json(["export", f"runs/{name}", "-o", "stopped.onnx", "--json"])
        # LATEST may not name the newest one yet if the process was killed.
        newest = exported["weights"].split("/")[-2]
        with open(f"runs/{name}/checkpoints/LATEST") as file:
            self.assertGreaterEqual(newest, file.read().strip())
        state = safetensors.numpy.load_file(f"runs/{name}/checkpoints/{newest}/rank-0.safetensors")
        for initializer in onnx.load("stopped.onnx").graph.initializer:
            np.testing.assert_array_equal(onnx.numpy_helper.to_array(initializer), state[initializer.name])
        best = self.json(["eval", f"runs/{name}", "--from", "best", "--json"])
        self.assertIn("/step-", best["weights"])
        self.assertAlmostEqual(self.json(["eval", f"runs/{name}", "--from", newest, "--json"])["loss"],
                               self.json(["eval", f"runs/{name}", "--json"])["loss"])
        # --resume auto resumes it, or starts it if there is none.
        steps = int(newest.split("-")[1].split(".")[0]) + 20
        report = self.json([*words, "--resume", "auto", "--steps", str(steps), "--json"])
        self.assertEqual((report["run"], report["steps"]), (f"runs/{name}", steps))
        report = self.json([*TRAIN, "--name", "begun", "--resume", "auto", "--json"])
        self.assertEqual(report["steps"], 2)
        report = self.json([*TRAIN, "--name", "begun", "--resume", "auto", "--json"])
        self.assertEqual(report["steps"], 2)
        more = [*TRAIN, "--name", "begun", "--resume", "auto", "--json"]
        more[more.index("--epochs") + 1] = "3"
        self.assertEqual(self.json(more)["steps"], 6)

    def test_resume_by_path(self):
        words = [*TRAIN_LONG, "--save-every", "2", "--keep", "9"]
        whole = self.json([*words, "--name", "whole", "--json"])
        shutil.copytree("runs/whole", "runs/part")
        report = self.json(["train", *words[1:], "--name", "part", "--resume", "runs/part/checkpoints/step-000004", "--json"])
        self.assertEqual((report["steps"], report["eval_loss"]), (12, whole["eval_loss"]))
        self.assertTrue(self.json(["diff", "runs/whole/state.safetensors", "runs/part/state.safetensors", "--json"])["same"])

    def test_a_run_that_went_back_is_as_new_as_its_last_save(self):
        words = [*TRAIN_LONG, "--save-every", "2", "--keep", "9"]
        self.run_command([*words, "--name", "back"])
        weights = lambda: self.json(["eval", "runs/back", "--json"])["weights"]
        self.assertEqual(weights(), "runs/back/state.safetensors")
        # It ends at an earlier step than it had reached before, after a save.
        self.run_command(["resume", "runs/back", "--from", "step-000004", "--save-every", "1", "--lr", "1e30"], 10)
        self.assertEqual(weights(), "runs/back/checkpoints/step-000005/rank-0.safetensors")
        # A complete run that is resumed keeps its state.
        self.run_command([*words, "--name", "complete"])
        self.run_command(["resume", "runs/complete"])
        self.assertEqual(self.json(["eval", "runs/complete", "--json"])["weights"], "runs/complete/state.safetensors")

    def test_a_renamed_folder_resumes(self):
        """By its new name, with and without naming it, and in another folder of runs."""
        def words(epochs):
            return [epochs if word == "6" else word for word in [*TRAIN_LONG, "--save-every", "2", "--keep", "9"]]

        whole = self.json([*words("6"), "--name", "before", "--json"])
        os.rename("runs/before", "runs/after")
        resumed = self.json([*words("8"), "--name", "after", "--resume", "auto", "--json"])
        self.assertGreater(resumed["steps"], whole["steps"])
        os.makedirs("archive")
        os.rename("runs/after", "archive/again")
        done = self.run_command(["resume", "archive/again/", "--epochs", "9"])
        self.assertIn("train.epochs = 9, was 8", done.stderr)
        self.assertNotIn("run.name", done.stderr)
        self.run_command([*words("10"), "--out", "archive/", "--name", "again", "--resume", "auto"])
        # A run that got its name by itself has it, too.
        self.run_command([*words("6"), "--out", "unnamed"])
        self.run_command([*words("7"), "--out", "unnamed", "--name", "exp1", "--resume", "auto"])
        # Another name is still not that of the folder.
        self.assertIn("--name cannot be changed", self.run_command(["resume", "archive/again", "--name", "other"], 4).stderr)

    def test_only_different_values_are_noted(self):
        sample_files.write("noted.toml", '[optimizer]\nlr = 0.01\nname = "adam"\n[data]\nbatch = 32\n')
        done = self.run_command([*TRAIN, "-c", "noted.toml", "--lr", "0.01", "--optimizer", "adam", "--batch", "16", "--name", "noted"])
        self.assertEqual(re.findall(r"^config .*", done.stderr, re.M), ["config  data.batch from --batch (over noted.toml:5:1)"])

    def test_a_loss_inside_the_model(self):
        """Predicting needs no label, and metrics know what the model's own loss ignores."""
        onnx.save(onnx.parser.parse_model('''<ir_version: 8, opset_import: ["" : 17]>
            g (float[N, 4] x, int64[N] label) => (float loss, float[N, 3] logits) <float[4, 3] w = {1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0}>
            { logits = MatMul (x, w)  loss = SoftmaxCrossEntropyLoss <ignore_index = 2> (logits, label) }'''), "inside.onnx")
        words = ["inside.onnx", "--data", "train.csv", "--map", "x=a..d", "--map", "label=label", "--loss", "output(loss)", "--lr", "0",
                 "--eval-data", "train.csv", "--metric", "accuracy(logits, label)", "--epochs", "1", "--progress", "none"]
        report = self.json(["train", *words, "--name", "inside", "--json"])
        counted = self.label != 2
        right = (self.x[:, :3].argmax(1) == self.label)[counted]
        self.assertAlmostEqual(report["eval_accuracy"], right.mean(), 5)
        self.assertEqual(self.json(["eval", "runs/inside", "--data", "train.csv", "--json"])["accuracy"], report["eval_accuracy"])
        np.savetxt("unlabelled.csv", self.x, delimiter=",", header="a,b,c,d", comments="")
        printed = self.json(["predict", "runs/inside", "--data", "unlabelled.csv", "--json"])
        self.assertEqual(list(printed), ["logits"])
        np.testing.assert_allclose(printed["logits"], self.x[:, :3], rtol=1e-4)
        refused = self.run_command(["eval", "runs/inside", "--data", "unlabelled.csv"], 5).stderr
        self.assertIn("label", refused)

    def test_plateau(self):
        words = [*TRAIN_LONG, "--save-every", "1ep", "--keep", "99", "--optimizer", "sgd", "--lr", "0.5", "--plateau-patience", "1",
                 "--plateau-factor", "0.5", "--plateau-threshold", "0.05", "--plateau-cooldown", "1", "--plateau-min-lr", "0.01"]
        words[words.index("--epochs") + 1] = "24"
        shown = self.run_command([*words, "--name", "plateau"]).stderr
        with open("runs/plateau/metrics.jsonl") as file:
            lines = [json.loads(line) for line in file]
        losses = [line["loss"] for line in lines if line["split"] == "eval"]
        with open("runs/plateau/results.csv", newline="") as file:
            rates = [float(row["lr"]) for row in csv.DictReader(file)]
        # PyTorch's rule, implemented again: rates[i] is the rate of the updates before evaluation i.
        lr, best, bad, cooling, wanted = 0.5, None, 0, 0, []
        for loss in losses:
            wanted.append(lr)
            if best is None or loss < best * (1 - 0.05):
                best, bad = loss, 0
            else:
                bad += 1
            if cooling > 0:
                cooling, bad = cooling - 1, 0
            if bad > 1:
                lr, cooling, bad = max(lr * 0.5, 0.01), 1, 0
        self.assertEqual(rates, wanted)
        self.assertGreater(len(set(rates)), 2, "the learning rate was not reduced twice")
        self.assertIn("no progress", shown)
        # Resumes from these epochs with the same bits.
        for epoch in (3, 9, 17):
            shutil.rmtree("runs/half", ignore_errors=True)
            shutil.copytree("runs/plateau", "runs/half")
            self.run_command(["resume", "runs/half", "--from", f"step-{2 * epoch:06}"])
            same = self.json(["diff", "runs/plateau/state.safetensors", "runs/half/state.safetensors", "--json"])
            self.assertTrue(same["same"], (epoch, same))
        # A new rate replaces the reduced one.
        shutil.copytree("runs/plateau", "runs/faster")
        self.run_command(["resume", "runs/faster", "--from", "step-000034", "--lr", "0.4"])
        with open("runs/faster/results.csv", newline="") as file:
            faster = [float(row["lr"]) for row in csv.DictReader(file)]
        self.assertEqual(faster[:17], rates[:17])
        self.assertLess(rates[17], 0.5)
        self.assertEqual(faster[17], 0.4)
        self.assertLessEqual(set(faster[17:]), {0.4, 0.2, 0.1, 0.05})

    def test_generate(self):
        # Scores of the next token: by the weights the next one of a ring, otherwise by chance.
        weights = np.full((96, 96), -1.0, "float32")
        weights[np.arange(96), (np.arange(96) + 1) % 96] = 2.0
        numbers = ", ".join(map(str, weights.ravel()))
        model = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 17]>
            ring (int64[N, 8] tokens) => (float[N, 8, 96] logits) <float[96, 96] w = {{{numbers}}}> {{ logits = Gather (w, tokens) }}""")
        onnx.save(model, "ring.onnx")
        tokens = np.arange(4096, dtype="uint16") % 96
        sample_files.write("ring.bin", tokens.tobytes())
        self.run_command(["train", "ring.onnx", "--data", "ring.bin", "--loss", "cross_entropy(logits, next, class_axis=-1)", "--lr", "1e-4",
                          "--epochs", "1", "--name", "ring"])
        sure = self.run_command(["predict", "runs/ring", "--generate", "30", "--prompt", "abc", "--temperature", "0"]).stdout
        self.assertEqual(sure, "".join(chr(c) for c in range(ord("a"), 127)) + "\n !" + "\n")
        drawn = [self.json(["predict", "runs/ring", "--generate", "600", "--prompt", "a", "--seed", seed, "--json"]) for seed in "112"]
        self.assertEqual(drawn[0], drawn[1])
        self.assertNotEqual(drawn[0]["tokens"], drawn[2]["tokens"])
        # The probability by the softmax is e^2 / (e^2 + 95 e^-1) = 0.1744; five standard deviations of 600 draws.
        steps = [(b - a) % 96 for a, b in zip([66, *drawn[0]["tokens"]], drawn[0]["tokens"])]
        share = np.mean(np.array(steps) == 1)
        self.assertAlmostEqual(share, 0.1744, delta=5 * np.sqrt(0.1744 * 0.8256 / 600))
        cold = self.json(["predict", "runs/ring", "--generate", "200", "--prompt", "a", "--temperature", "0.2", "--json"])
        self.assertGreater(np.mean([(b - a) % 96 == 1 for a, b in zip([66, *cold["tokens"]], cold["tokens"])]), 0.99)
        # Tokens given by a file of characters.
        letters = "".join(chr(0x4E00 + i) for i in range(96))
        sample_files.write("letters.txt", letters.encode())
        for other in (["--data", "x.npz"], ["-o", "text.json"], ["--classes"], ["--target-units"]):
            self.assertIn("excludes", self.run_command(["predict", "runs/ring", "--generate", "3", *other], 4).stderr)
        line = self.run_command(["predict", "runs/ring", "--generate", "3", "--prompt", letters[5], "--temperature", "0", "--alphabet",
                                 "letters.txt"]).stdout
        self.assertEqual(line, letters[5:9] + "\n")
        self.assertIn("not a token", self.run_command(["predict", "runs/ring", "--generate", "3", "--prompt", "é"], 4).stderr)
        # Tokens of a tokenizer, in numbers.
        numbers = ", ".join(map(str, (np.roll(np.eye(300), 1, 1) * 9).ravel()))
        onnx.save(onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 17]>
            ring (int64[N, 8] tokens) => (float[N, 8, 300] logits) <float[300, 300] w = {{{numbers}}}> {{ logits = Gather (w, tokens) }}"""), "wide.onnx")
        self.run_command(["train", "wide.onnx", "--data", "ring.bin", "--loss", "cross_entropy(logits, next, class_axis=-1)", "--lr", "1e-4",
                          "--steps", "1", "--name", "wide"])
        words = ["predict", "runs/wide", "--generate", "3", "--temperature", "0", "--prompt"]
        self.assertEqual(self.run_command([*words, "7, 296"]).stdout, "7, 296 297 298 299\n")
        self.assertEqual(self.json([*words, "298", "--json"])["tokens"], [299, 0, 1])
        for prompt in ("300", "7 -1", "the", "1.5"):
            self.assertIn("not a token", self.run_command([*words, prompt], 4).stderr)
        self.assertIn("not a language model", self.run_command(["predict", "runs/main", "--generate", "3"], 4).stderr)

    # Before and around a run.

    def test_init_trains_as_it_stands(self):
        made = self.json(["init", "model.onnx", "--data", "train.csv", "-o", "made.toml", "--json"])
        self.assertEqual(made, {"output": "made.toml", "model": "model.onnx"})
        with open("made.toml", "rb") as file:
            keys = tomllib.load(file)
        self.assertEqual(keys["model"]["path"], "model.onnx")
        self.assertIn("x", keys["data"]["map"])
        self.run_command(["train", "-c", "made.toml", "--epochs", "1", "--name", "from-init"])
        # Every commented-out key exists.
        with open("made.toml") as file:
            commented = re.findall(r"^# ([a-z_]+) =", file.read(), re.M)
        known = {key["key"].split(".")[1] for key in self.json(["config", "--keys", "--json"])}
        self.assertLessEqual(set(commented), known)
        # A key without a value, which TOML does not have.
        self.run_command(["init", "model.onnx", "--data", "train.csv", "--eval-split", "", "-o", "whole.toml"])
        with open("whole.toml", "rb") as file:
            self.assertNotIn("eval_split", tomllib.load(file)["data"])
        self.run_command(["init", "model.onnx", "-o", "random.toml"])
        self.run_command(["train", "-c", "random.toml", "--epochs", "1", "--name", "from-random"])

    def test_config(self):
        sample_files.write("a.toml", 'version = 1\n[optimizer]\nlr = 0.5\nname = "sgd"\n')
        resolved = self.json(["config", "-c", "a.toml", "--lr", "0.25", "--set", "train.seed=7", "--json"])
        self.assertEqual(resolved["optimizer.lr"], {"value": 0.25, "origin": "--lr (over a.toml:3:1)"})
        self.assertEqual(resolved["optimizer.name"], {"value": "sgd", "origin": "a.toml:4:1"})
        self.assertEqual(resolved["train.seed"]["value"], 7)
        self.assertEqual(resolved["train.epochs"], {"value": 10, "origin": "default"})
        # The printed configuration gives the same configuration.
        sample_files.write("b.toml", self.run_command(["config", "-c", "a.toml", "--lr", "0.25"]).stdout)
        once, again = (self.json(["config", *words, "--json"]) for words in (["-c", "a.toml", "--lr", "0.25"], ["-c", "b.toml"]))
        self.assertEqual(again.pop("run.out")["value"], os.path.abspath(once.pop("run.out")["value"]))
        self.assertEqual({key: known["value"] for key, known in again.items()}, {key: known["value"] for key, known in once.items()})

    def test_config_of_a_run(self):
        with open("runs/main/config.toml") as file:
            self.assertEqual(self.run_command(["config", "runs/main"]).stdout, file.read())
        told = self.json(["config", "runs/main", "--json"])
        self.assertEqual(told["train.epochs"], {"value": 6, "origin": "--epochs"})
        self.assertEqual(told["optimizer.beta1"], {"value": 0.9, "origin": "default"})
        # What was written by hand has no recorded origin.
        shutil.copytree("runs/main", "runs/by_hand")
        path = "runs/by_hand/config.toml"
        with open(path) as file:
            lines = file.read().splitlines()
        at = next(i for i, line in enumerate(lines) if line.startswith("epochs = "))
        lines[at] = "epochs = 7"
        sample_files.write(path, "\n".join(lines) + "\n")
        told = self.json(["config", "runs/by_hand", "--json"])
        self.assertEqual(told["train.epochs"], {"value": 7, "origin": f"{path}:{at + 1}:1"})
        self.assertEqual(told["optimizer.beta1"]["origin"], "default")
        # A resumed run keeps them.
        self.run_command(["resume", "runs/by_hand", "--epochs", "7", "--keep", "9"])
        told = self.json(["config", "runs/by_hand", "--json"])
        self.assertEqual(told["optimizer.lr"]["origin"], self.json(["config", "runs/main", "--json"])["optimizer.lr"]["origin"])
        self.assertTrue(told["checkpoint.keep"]["origin"].startswith("--keep"), told["checkpoint.keep"])
        self.assertIn("without other flags", self.run_command(["config", "runs/main", "--lr", "1"], 4).stderr)

    def test_check_compile_inspect_verify(self):
        loss = ["--loss", "cross_entropy(logits, label)"]
        checked = self.json(["check", "model.onnx", *loss, "--json"])
        self.assertEqual(checked["parameters_trained"], 67)
        made = self.json(["compile", "model.onnx", *loss, "-o", "m.plan", "--json"])
        self.assertTrue(self.json(["verify", "m.plan", "--json"])["sound"])
        inspected = self.json(["inspect", "m.plan", "--json"])
        self.assertEqual(inspected["plan"], made["plan"])
        # 67 numbers of 4 bytes, each tensor at a multiple of 64 bytes.
        self.assertGreaterEqual(inspected["parameter_bytes"], 67 * 4)
        self.assertIn("step, batch 32", self.run_command(["inspect", "m.plan"]).stdout)

    def test_explain_doctor_devices(self):
        self.assertEqual([line["class"] for line in self.json(["explain", "7", "--json"])], ["E-CHECKPOINT"])
        classes = self.json(["explain", "--json"])
        self.assertGreater(len(classes), 20)
        for known in classes:
            told = self.json(["explain", known["class"], "--json"])
            self.assertEqual(told["exit_code"], known["exit_code"])
            self.assertTrue(told["causes"] and told["remedy"])
        self.assertEqual(self.run_command(["explain", "error[E-SHAPE]:"]).stdout, self.run_command(["explain", "shape"]).stdout)
        doctor = self.json(["doctor", "--json"])
        self.assertEqual({f["what"]: f["verdict"] for f in doctor["findings"]}["training"], "ok")
        self.assertIn("version", doctor["environment"])
        device = self.json(["devices", "--json"])["devices"][0]
        self.assertEqual(device["cores"], len(os.sched_getaffinity(0)))
        self.assertLessEqual(device["memory_free_bytes"], device["memory_total_bytes"])
        # Of one core, and where OpenMP binds its threads, the main one included.
        first = str(min(os.sched_getaffinity(0)))
        for under, environment, cores in ((["taskset", "-c", first], {}, 1), ([], {"OMP_PROC_BIND": "true"}, device["cores"]),
                                          ([], {"OMP_PLACES": "{%s}" % first}, 1)):
            said = subprocess.run([*under, GRADLOOM, "devices", "--json"], capture_output=True, text=True, env={**os.environ, **environment}, check=True)
            self.assertEqual(json.loads(said.stdout)["devices"][0]["cores"], cores, (under, environment))
            if cores == 1:
                said = subprocess.run([*under, GRADLOOM, "devices"], capture_output=True, text=True, env={**os.environ, **environment}, check=True)
                self.assertIn("  cpu  1 core, ", said.stdout)
        self.assertIn("not the folder of a run", self.run_command(["devices", "runs/mian"], 4).stderr)
        shutil.copytree("runs/main", "runs/young")
        os.remove("runs/young/memory.json")
        self.assertIn("no record of its memory yet", self.run_command(["devices", "runs/young"], 5).stderr)
        lines = self.run_command(["devices"]).stdout.splitlines()
        self.assertRegex(lines[0], r"^\d+ devices? found$")
        self.assertRegex(lines[1], r"^1\. .* \d+\.\d+ GiB, \d+\.\d+ [GM]iB free$")

    def test_every_verb_has_help_and_json(self):
        verbs = re.search(r"verbs: (.*?)   see", self.run_command([], 4).stderr)[1].split(", ")
        self.assertEqual(len(verbs), 18)
        for verb in verbs:
            text = self.run_command([verb, "--help"]).stdout
            self.assertIn(f"gradloom {verb}", text)
            self.assertIn("--json", text)


if __name__ == "__main__":
    unittest.main()
