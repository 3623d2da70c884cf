"""Flags common to all verbs, configuration keys with flags, and the output of verbs."""
import json
import os
import pty
import re
import shutil
import socket
import subprocess
import sys
import time
import tomllib
import unittest

import numpy as np
import onnx
import safetensors.numpy

GRADLOOM = os.path.abspath(sys.argv.pop(1))
SCHEMA = os.path.abspath(sys.argv.pop(1))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import sample_files  # noqa: E402
from sample_files import TRAIN  # noqa: E402

LOSS = ["--loss", "cross_entropy(logits, label)"]
BARE = [word for word in TRAIN if word not in ("--progress", "none")]
ESCAPE = "\x1b["


class CommandTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = sample_files.in_folder_of(cls)
        cls.run_command(cls, [*TRAIN, "--name", "main", "--eval-split", "20%"])

    def run_command(self, words, code=0, **environment):
        done = subprocess.run([GRADLOOM, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60,
                              env={**os.environ, **environment})
        if done.returncode != code:
            raise AssertionError(f"{words}: exit {done.returncode}, not {code}\n{done.stderr}")
        return done

    def on_terminal(self, words, **environment):
        """What a terminal receives on stderr."""
        leader, follower = pty.openpty()
        child = subprocess.Popen([GRADLOOM, *words], stdout=subprocess.DEVNULL, stderr=follower,
                                 env={**os.environ, "TERM": "xterm", **environment})
        os.close(follower)
        shown = b""
        try:
            while piece := os.read(leader, 4096):
                shown += piece
        except OSError:
            pass
        child.wait(timeout=60)
        os.close(leader)
        return shown.decode()

    def verbs(self):
        found = re.findall(r"^  (\w+)  ", self.run_command(["--help"]).stdout, re.MULTILINE)
        self.assertGreater(len(found), 15)
        return found

    # Features of every verb.

    def test_flags_of_every_verb(self):
        for verb in self.verbs():
            shown = self.run_command([verb, "--help"]).stdout
            for flag in ("--json", "-v,--verbose", "-q,--quiet", "--color", "--log-file"):
                self.assertIn(flag, shown, verb)

    def test_colors(self):
        wrong = ["verify", "nothing.plan"]
        self.assertIn(ESCAPE, self.on_terminal(wrong))
        self.assertNotIn(ESCAPE, self.on_terminal(wrong, NO_COLOR="1"))
        self.assertIn(ESCAPE, self.on_terminal(wrong, NO_COLOR=""))
        self.assertNotIn(ESCAPE, self.on_terminal(wrong, TERM="dumb"))
        self.assertNotIn(ESCAPE, self.on_terminal([*wrong, "--color", "never"]))
        self.assertNotIn(ESCAPE, self.run_command(wrong, 2).stderr)
        colored = self.run_command([*wrong, "--color=always", "--log-file", "colors.log"], 2).stderr
        self.assertIn(ESCAPE, colored)
        # Also if the command line itself is wrong.
        self.assertIn(ESCAPE, self.run_command(["verify", "--color", "always", "--nothing"], 4).stderr)
        self.assertIn("expected auto, always or never", self.run_command([*wrong, "--color", "red"], 4).stderr)
        with open("colors.log") as file:
            kept = file.read()
        self.assertEqual(kept, re.sub(r"\x1b\[[0-9;]*m", "", colored))

    def test_quiet_and_verbose(self):
        compiled = ["compile", "model.onnx", *LOSS, "-o", "quiet.plan"]
        self.assertEqual(self.run_command([*compiled, "-q"]).stderr, "")
        self.assertIn("plan ", self.run_command(compiled).stderr)
        self.assertIn('config  loss.name = "cross_entropy(logits, label)"   from --loss', self.run_command([*compiled, "-v"]).stderr)
        # Warnings stay.
        few = self.run_command([*compiled, "--devices", "cpu:4", "-q"]).stderr
        self.assertTrue(all(line.startswith("warning ") for line in few.splitlines()), few)
        quiet = self.run_command([*BARE, "--name", "quiet", "-q", "--json", "--log-file", "quiet.log"])
        self.assertEqual(quiet.stderr, "")
        self.assertEqual(json.loads(quiet.stdout)["run"], "runs/quiet")
        with open("quiet.log") as file:
            self.assertIn("done in ", file.read())
        self.assertIn("excludes", self.run_command([*compiled, "-q", "-v"], 4).stderr)
        self.assertIn("write flags after the verb: gradloom train -q", self.run_command(["-q", *BARE], 4).stderr)
        self.run_command([*BARE, "--name", "refused", "--lr", "-1", "--log-file", "refused.log"], 4)
        with open("refused.log") as file:
            self.assertIn("optimizer.lr", file.read())

    def test_log_file_of_verbs_without_a_configuration(self):
        self.run_command(["export", "runs/main", "-o", "logged.onnx", "--log-file", "export.log"])
        with open("export.log") as file:
            self.assertIn("-> logged.onnx", file.read())

    def test_log_to_a_pipe_does_not_block(self):
        os.mkfifo("log.fifo")
        exported = ["export", "runs/main", "-o", "piped.onnx", "--log-file", "log.fifo"]
        self.assertIn("no process reads this FIFO", self.run_command(exported, 8).stderr)
        self.assertIn("no process reads this FIFO", self.train_with("piped", "--log-file", "log.fifo", code=8).stderr)
        self.assertFalse(os.path.exists("runs/piped"))
        reader = os.open("log.fifo", os.O_RDONLY | os.O_NONBLOCK)
        self.addCleanup(os.close, reader)
        self.run_command(exported)
        self.assertIn(b"-> piped.onnx", os.read(reader, 1 << 16))
        # A result must not replace a FIFO.
        self.assertIn("the path exists and is not a regular file", self.run_command(["export", "runs/main", "-o", "log.fifo"], 8).stderr)

    def test_log_to_a_pipe_that_nobody_empties_does_not_block(self):
        os.mkfifo("full.fifo")
        reader = os.open("full.fifo", os.O_RDONLY | os.O_NONBLOCK)
        words = [*(word for word in BARE if word not in ("--epochs", "1")), "--save-every", "never"]
        self.run_command([*words, "--epochs", "500", "--progress", "plain", "--log-every", "1", "--name", "full", "--log-file", "full.fifo"])
        lines = os.read(reader, 1 << 20).decode().splitlines()
        self.assertGreater(len(lines), 100)
        with open("runs/full/log.txt") as file:
            self.assertLessEqual({line for line in lines[:-1] if " step=" in line}, set(file.read().splitlines()))
        # A reader that ends does not end the run.
        process = subprocess.Popen([GRADLOOM, *words, "--epochs", "200", "--progress", "plain", "--log-every", "1", "--name", "left",
                                    "--log-file", "full.fifo"], stderr=subprocess.PIPE)
        while b" step=" not in process.stderr.readline():
            self.assertIsNone(process.poll())
        os.close(reader)
        process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0)

    # Streams.

    def test_results_that_cannot_be_written_are_an_error(self):
        for words in (["predict", "runs/main", "--data", "train.csv"], ["config"], ["inspect", "train.csv", "--json"]):
            with open("/dev/full", "w") as full:
                done = subprocess.run([GRADLOOM, *words], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
            self.assertEqual((done.returncode, "No space left" in done.stderr), (8, True), done.stderr)

    def test_stdout_has_one_json_object(self):
        """Also if the command fails after it has computed its result, if --report asks for it, and whatever the folder's name."""
        done = subprocess.run(["bash", "-c", 'ulimit -f 0; "$@" | cat; exit "${PIPESTATUS[0]}"', "bash", GRADLOOM, "predict", "runs/main",
                               "--data", "train.csv", "-o", "y.npz", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60)
        self.assertEqual(done.returncode, 8, done.stderr)
        self.assertEqual(json.loads(done.stdout)["errors"][0]["code"], "E-RESOURCE")
        sample_files.write("report.toml", '[log]\nreport = "json"\n')
        for report in (["--report", "json"], ["--report=json"], ["--json"], ["--set", "log.report=json"], ["-c", "report.toml"]):
            refused = self.run_command([*TRAIN, "--name", "main", *report], 4)
            self.assertEqual(json.loads(refused.stdout)["errors"][0]["code"], "E-CONFIG")
        # Errors in the configuration itself, before and after the key.
        sample_files.write("wrong.toml", '[data]\nshufle = 1\n[log]\nevery = "x"\nreport = "json"\n')
        sample_files.write("wrong_data.toml", '[data]\nshufle = 1\n')
        for words in (["-c", "wrong.toml"], ["-c", "report.toml", "-c", "wrong_data.toml"], ["-c", "wrong_data.toml", "-c", "report.toml"],
                      ["--set", "optimizer.lr=fast", "--set", "log.report=json"], ["--set=log.report=json", "--no-such-flag"],
                      ["-c", "report.toml", "--lr", "fast"]):
            refused = self.run_command([*TRAIN, "--name", "main", *words], 4)
            self.assertEqual(json.loads(refused.stdout)["errors"][0]["code"], "E-CONFIG", words)
        os.mkdir(b"f\xe4")
        done = subprocess.run([GRADLOOM, "doctor", "--json"], cwd=b"f\xe4", stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        json.loads(done.stdout)

    def test_closed_streams_are_not_taken_for_files(self):
        words = " ".join(f"'{word}'" for word in [*BARE, "--json", "--name"])
        for i, closed in enumerate((">&-", "2>&-", "<&-", ">&- 2>&- <&-")):
            name = f"closed{i}"
            self.assertEqual(subprocess.run(["sh", "-c", f"exec '{GRADLOOM}' {words} {name} {closed}"], stdout=subprocess.DEVNULL,
                                            stderr=subprocess.DEVNULL, timeout=60).returncode, 0)
            self.assertEqual(sample_files.read(f"runs/{name}/state.safetensors"), sample_files.read("runs/closed0/state.safetensors"))
            self.assertEqual(json.loads(self.run_command(["verify", f"runs/{name}", "--json"]).stdout)["sound"], True)

    def test_a_run_outlives_the_reader_of_its_screen(self):
        done = subprocess.run(["sh", "-c", f"'{GRADLOOM}' \"$@\" 2>&1 | head -n 1", "sh", *[word for word in BARE if word not in ("--epochs", "1")],
                               "--epochs", "200", "--log-every", "1", "--name", "unread"], stdout=subprocess.PIPE, timeout=60)
        self.assertEqual(done.returncode, 0)
        deadline = time.time() + 30
        while not os.path.exists("runs/unread/export/model.onnx") and time.time() < deadline:
            time.sleep(0.05)
        with open("runs/unread/log.txt") as file:
            self.assertIn("epoch=200.00", file.read())
        # The same for its results, with the exit code of the requested stop.
        run = subprocess.Popen([GRADLOOM, *[word for word in BARE if word not in ("--epochs", "1")], "--epochs", "100000", "--report", "json",
                                "--report-every", "1", "--name", "stopped"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        run.stdout.readline()
        run.stdout.close()
        run.terminate()
        self.assertEqual(run.wait(timeout=60), 138)

    # Keys.

    def test_schema_is_published(self):
        printed = self.run_command(["config", "--schema"]).stdout
        with open(SCHEMA) as file:
            self.assertEqual(file.read(), printed, "gradloom config --schema > docs/gradloom.schema.json")
        sections = json.loads(printed)["properties"]
        for key in json.loads(self.run_command(["config", "--keys", "--json"]).stdout):
            section, _, name = key["key"].partition(".")
            known = sections[section]["properties"][name]
            self.assertEqual(known["description"], key["help"])
            if key["words"]:
                self.assertEqual(known["enum"], key["words"])
        self.assertFalse(sections["optimizer"]["additionalProperties"])

    def updates(self, *flags):
        """The attributes of each parameter's update."""
        self.run_command(["compile", "model.onnx", *LOSS, "-o", "options.plan", *flags])
        text = self.run_command(["inspect", "options.plan"]).stdout
        lines = re.findall(r"s\d+ \S*\.(?:Sgd|Adam|RmsProp|Adadelta|Adagrad)\(.* \{(.*)\} update ; (\S+)$", text, re.M)
        return {name: dict(pair.split("=") for pair in attributes.split(", ") if pair) for attributes, name in lines}

    def test_options_of_optimizers(self):
        decayed = self.updates("--optimizer", "adamw", "--weight-decay", "0.1", "--no-decay", "1d", "--lr-scale", "w*=0.5", "--lr-scale", "w2=0.25",
                               "--amsgrad")
        self.assertEqual({name: (u.get("weight_decay"), u.get("lr_scale")) for name, u in decayed.items()},
                         {"w1": ("0.1", "0.5"), "b1": (None, None), "w2": ("0.1", "0.25"), "b2": (None, None)})
        self.assertIn("max_exp_avg_sq", self.run_command(["inspect", "options.plan"]).stdout)
        chosen = self.updates("--optimizer", "sgd", "--weight-decay", "0.1", "--no-decay", "w1", "--no-decay", "b*")
        self.assertEqual([name for name, u in chosen.items() if "weight_decay" in u], ["w2"])
        for rule, flags, wanted in (("momentum", ["--dampening", "0.25"], {"dampening": "0.25"}),
                                    ("rmsprop", ["--alpha", "0.5", "--centered"], {"alpha": "0.5", "centered": "1"}),
                                    ("adadelta", ["--rho", "0.5"], {"rho": "0.5"}),
                                    ("adagrad", ["--lr-decay", "0.25", "--initial-accumulator-value", "2"], {"lr_decay": "0.25"})):
            for update in self.updates("--optimizer", rule, *flags).values():
                self.assertEqual({**update, **wanted}, update, rule)
        # Weights whose learning rate is 0 keep their bits, also in a resumed run.
        self.train_with("scaled", "--lr-scale", "w*=0", "--steps", "2")
        self.run_command(["resume", "runs/scaled", "--steps", "4", "--progress", "none"])
        initial = {i.name: onnx.numpy_helper.to_array(i) for i in onnx.load("model.onnx").graph.initializer}
        self.assertEqual({name for name, value in self.weights("scaled").items() if name in initial and not np.array_equal(value, initial[name])},
                         {"b1", "b2"})

    def test_errors_in_maps_have_a_location(self):
        sample_files.write("map.toml", "version = 1\n[data]\nmap = { input = 'a..d', label = 'label' }\n")
        words = ["train", "-c", "map.toml", "model.onnx", "--data", "train.csv", *LOSS]
        self.assertIn("--> map.toml:3:1", self.run_command(words, 4).stderr)

    def test_check_includes_data(self):
        words = ["check", "model.onnx", *LOSS, "--data", "train.csv", "--map", "x=a..d", "--batch", "32"]
        found = json.loads(self.run_command([*words, "--json"]).stdout)
        self.assertEqual(found["data"], {"path": "train.csv", "rows": 60, "eval_rows": 0, "batches": [32, 28]})
        self.assertIn("train.csv   60 train, 0 eval, batches of 32, the last of 28", self.run_command(words).stdout)
        self.assertIn("class7.csv", self.run_command(["check", "model.onnx", *LOSS, "--data", "class7.csv", "--map", "x=a..d"], 5).stderr)

    def test_random_samples_are_data_everywhere(self):
        report = json.loads(self.run_command([*TRAIN, "--eval-data", "random:20", "--name", "random", "--json"]).stdout)
        self.assertGreater(report["eval_loss"], 0)
        self.assertEqual(json.loads(self.run_command(["eval", "runs/random", "--data", "random:9", "--json"]).stdout)["rows"], 9)
        self.assertEqual(len(json.loads(self.run_command(["predict", "runs/random", "--data", "random:7"]).stdout)["logits"]), 7)
        self.assertIn("random:256", self.run_command(["eval", "runs/random", "--data", "random:x"], 4).stderr)

    def test_best_metric_is_computed_and_has_two_names(self):
        sample_files.write("best.toml", "version = 1\n[checkpoint]\nbest = 'eval/acc:max'\n")
        report = json.loads(self.run_command([*TRAIN, "-c", "best.toml", "--eval-split", "20%", "--name", "best", "--json"]).stdout)
        self.assertEqual(report["best"], report["eval_accuracy"])
        evaluated = json.loads(self.run_command(["eval", "runs/best", "--json"]).stdout)
        self.assertEqual(evaluated["accuracy"], report["eval_accuracy"])

    def weights(self, run):
        return safetensors.numpy.load_file(f"runs/{run}/state.safetensors")

    def train_with(self, name, *flags, code=0, **environment):
        return self.run_command([*TRAIN, "--name", name, "--optimizer", "sgd", "--lr", "0.1", "--threads", "1", *flags], code, **environment)

    def test_micro_batch(self):
        # 60 rows: an epoch has two updates of 24 samples, and one of 12.
        self.train_with("whole", "--batch", "24")
        done = self.train_with("parts", "--batch", "24", "--micro-batch", "6")
        self.assertIn("batch 24 = 4 x 6", done.stderr)
        self.train_with("devices", "--batch", "24", "--micro-batch", "6", "--devices", "cpu:2")
        whole, parts, devices = map(self.weights, ("whole", "parts", "devices"))
        for name, value in whole.items():
            np.testing.assert_allclose(parts[name], value, rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(devices[name], value, rtol=1e-5, atol=1e-6)
        # The last micro-batch may have fewer samples than the others, and an epoch fewer batches than an update.
        self.train_with("short", "--batch", "24", "--micro-batch", "8")
        self.train_with("all_rows", "--batch", "60")
        done = self.train_with("one_update", "--batch", "8", "--accumulate", "100", "--accumulate-by", "samples")
        self.assertIn("update  once per epoch, which has 8 batches: fewer than the 100 of an update", done.stderr)
        for a, b in (("whole", "short"), ("all_rows", "one_update")):
            for name, value in self.weights(a).items():
                np.testing.assert_allclose(self.weights(b)[name], value, rtol=1e-5, atol=1e-6)
        # A sum is that over the batch, however it is computed. The last update has two micro-batches, of 8 and 4 samples.
        losses = []
        summed = [word.replace("label)", "label, reduction=sum)") for word in TRAIN]
        for name, flags in (("sum", []), ("sum_of_parts", ["--micro-batch", "8"])):
            self.run_command([*summed, "--name", name, "--optimizer", "sgd", "--lr", "0.001", "--threads", "1", "--batch", "24", "--log-every", "1", *flags])
            with open(f"runs/{name}/metrics.jsonl") as file:
                losses.append([line["loss"] for line in map(json.loads, file) if line["split"] in ("train", "epoch")])
        self.assertGreater(len(losses[0]), 2)
        np.testing.assert_allclose(losses[1], losses[0], rtol=1e-4)
        with open("runs/devices/config.toml") as file:
            kept = file.read()
        self.assertIn("batch = 12", kept)
        self.assertIn("accumulate = 2", kept)
        # The same command continues the run that it began.
        for flags in ([], ["--devices", "cpu:2"]):
            words = ["again" + str(len(flags)), "--batch", "24", "--micro-batch", "6", *flags, "--resume", "auto"]
            self.train_with(*words)
            self.assertNotIn(", was ", self.train_with(*words).stderr)
        job = ["launch", "--standalone", "--nproc-per-node", "2", "--", *TRAIN, "--name", "again_job", "--batch", "24", "--micro-batch", "6",
               "--devices", "cpu:1", "--resume", "auto"]
        self.run_command(job)
        self.assertNotIn(", was ", self.run_command(job).stderr)
        # Steps are updates, on the screen as in the records.
        shown = self.run_command([*BARE, "--batch", "24", "--micro-batch", "6", "--progress", "plain", "--log-every", "1"]).stderr
        self.assertEqual(re.findall(r" step=(\d+)", shown), ["1", "2", "3"])
        self.assertIn("use --batch 30, which", self.train_with("x", "--batch", "25", "--micro-batch", "6", code=4).stderr)
        self.assertIn("--batch 24 --micro-batch 6", self.train_with("x", "--micro-batch", "6", code=4).stderr)
        self.assertIn("--accumulate is 3", self.train_with("x", "--batch", "24", "--micro-batch", "6", "--accumulate", "3", code=4).stderr)

    def test_flags_leave_options_of_other_optimizers_and_schedules_behind(self):
        sample_files.write("step.toml", b'version = 1\n[optimizer]\nname = "adam"\nbeta1 = 0.8\n[schedule]\nname = "step"\ngamma = 0.5\n')
        self.run_command(["compile", "model.onnx", *LOSS, "-c", "step.toml", "--steps", "4", "-o", "step.plan"])
        data = ["--data", "train.csv", "--map", "x=a..d", "--epochs", "1"]
        self.run_command(["train", "--plan", "step.plan", *data, "--schedule", "cosine", "--name", "by_step_plan"])
        self.train_with("left_behind", "-c", "step.toml", "--schedule", "cosine")
        # The run does not keep them.
        self.run_command(["eval", "runs/left_behind", "--data", "train.csv"])
        self.run_command(["resume", "runs/left_behind", "--schedule", "step", "--gamma", "0.5", "--epochs", "5"])
        self.run_command(["resume", "runs/left_behind", "--schedule", "linear", "--epochs", "6"])
        self.run_command(["eval", "runs/left_behind", "--data", "train.csv"])
        # A file chooses for a run, too, and the same words again change nothing.
        sample_files.write("schedule.toml", b'version = 1\n[schedule]\nname = "step"\ngamma = 0.5\n')
        again = [*TRAIN, "--name", "same_schedule", "-c", "schedule.toml", "--schedule", "constant", "--resume", "auto"]
        self.run_command(again)
        self.assertNotIn(", was ", self.run_command(again).stderr)
        self.run_command(["resume", "runs/same_schedule", "-c", "schedule.toml", "--epochs", "5"])
        sample_files.write("schedule.toml", b'version = 1\n[schedule]\nname = "constant"\n')
        self.run_command(["resume", "runs/same_schedule", "-c", "schedule.toml", "--epochs", "6"])
        # Words of the same command contradict each other.
        self.run_command([*TRAIN, "--name", "both", "--set", "schedule.gamma=0.5", "--schedule", "constant"], 4)
        # The later of two files is stronger, but its own options must fit, and so must those that it adds to the earlier one's choice.
        sample_files.write("other.toml", b'version = 1\n[optimizer]\nname = "sgd"\n[schedule]\nname = "cosine"\nmin_lr = 1e-4\n')
        self.train_with("later_file", "-c", "step.toml", "-c", "other.toml")
        kept = tomllib.loads(sample_files.read("runs/later_file/config.toml").decode())
        self.assertEqual((kept["optimizer"]["name"], kept["schedule"]["name"]), ("sgd", "cosine"))
        self.assertNotEqual((kept["optimizer"].get("beta1"), kept["schedule"].get("gamma")), (0.8, 0.5))
        sample_files.write("option.toml", b"version = 1\n[schedule]\ngamma = 0.2\n")
        for files in (["other.toml", "option.toml"], ["option.toml", "other.toml", "option.toml"]):
            refused = self.train_with("x", *(word for file in files for word in ("-c", file)), code=4)
            self.assertIn("schedule.gamma is an option of step, multi_step, exponential, and the schedule is cosine\n  --> option.toml:3:1", refused.stderr)
        # Earlier releases stored and ignored options of others.
        path = "runs/same_schedule/config.toml"
        stored = sample_files.read(path)
        older = stored.replace(b"\n[schedule]\n", b"\n[schedule]\nmin_lr = 1e-4\n").replace(b"plateau_cooldown = 0", b"plateau_cooldown = 2")
        self.assertEqual(len(older), len(stored) + len("min_lr = 1e-4\n"))
        sample_files.write(path, older)
        self.run_command(["eval", "runs/same_schedule", "--data", "train.csv"])
        self.run_command(["resume", "runs/same_schedule", "--epochs", "7"])

    def test_trains_by_a_plan(self):
        recipe = [*LOSS, "--batch", "16", "--optimizer", "adamw", "--weight-decay", "0.1", "--threads", "1"]
        data = ["--data", "train.csv", "--map", "x=a..d", "--epochs", "2", "--eval-split", "20%", "--metric", "accuracy"]
        self.run_command(["compile", "model.onnx", *recipe, "-o", "t.plan"])
        # Epochs of 48 rows consist of full batches, evaluations do not.
        self.run_command(["train", "model.onnx", *recipe, *data, "--name", "by_model"])
        os.rename("model.onnx", "elsewhere.onnx")
        try:
            self.run_command(["train", "--plan", "t.plan", *data, "--name", "by_plan"])
            self.run_command(["resume", "runs/by_plan", "--epochs", "3"])
        finally:
            os.rename("elsewhere.onnx", "model.onnx")
        self.run_command(["resume", "runs/by_model", "--epochs", "3"])
        for file in ("state.safetensors", "export/model.onnx"):
            self.assertEqual(*(sample_files.read(f"runs/{run}/{file}") for run in ("by_model", "by_plan")))
        # A missing last batch is compiled, and a schedule and the size of evaluations may be changed.
        self.run_command(["train", "--plan", "t.plan", "--data", "train.csv", "--map", "x=a..d", "--lr", "0.1", "--schedule", "cosine",
                          "--eval-split", "20%", "--eval-batch", "7"])
        for flags, said in ((["--batch", "8"], "data.batch = 16, but this run has 8"), (["--optimizer", "sgd"], 'optimizer.name = "adamw"'),
                            (["--devices", "cpu:2"], "devices.use"), (["--model", "sequence.onnx"], "another model")):
            self.assertIn(said, self.run_command(["train", "--plan", "t.plan", *data, *flags], 6).stderr)
        self.run_command(["compile", "model.onnx", *recipe, "--devices", "cpu:2", "-o", "two.plan"])
        self.run_command(["launch", "--nproc-per-node", "2", "--standalone", "--", "train", "--plan", "two.plan", *data, "--devices", "cpu:1"])

    def test_recompute(self):
        def bytes_with(*flags):
            words = ["compile", "deep.onnx", "--loss", "mse(y, target)", "--batch", "256", "-o", "r.plan", "--json", *flags]
            return json.loads(self.run_command(words).stdout)["transient_bytes"]

        layers = "".join(f"h{i + 1} = MatMul(a{i}, w)  a{i + 1} = Tanh(h{i + 1})  " for i in range(8))
        text = """<ir_version: 8, opset_import: ["" : 17]> g (float[N, 8] x) => (float[N, 8] y) <float[8, 8] w = {%s}>
            { a0 = Identity(x)  %s y = Identity(a8) }""" % (", ".join(["0.1"] * 64), layers)
        onnx.save(onnx.parser.parse_model(text), "deep.onnx")
        kept = bytes_with()
        self.assertLess(bytes_with("--recompute", "full"), kept)
        limit = str(kept * 9 // 10)
        self.assertLess(bytes_with("--memory-limit", limit), kept)
        self.run_command(["compile", "deep.onnx", "--loss", "mse(y, target)", "--batch", "256", "-o", "r.plan", "--memory-limit", limit,
                          "--recompute", "none"], 8)

    def test_deterministic(self):
        done = self.train_with("det", "--deterministic", NCCL_ALGO="Ring", NCCL_DEBUG="WARN")
        self.assertIn("nccl    NCCL_DEBUG=WARN NCCL_ALGO=Ring", done.stderr)
        for name, value in (("NCCL_ALGO", "Tree"), ("CUBLAS_WORKSPACE_CONFIG", ":16:8")):
            self.assertIn(f"{name}={value} contradicts", self.train_with("x", "--deterministic", code=4, **{name: value}).stderr)
            self.train_with("free" + name, **{name: value})
        for flag, value in (("--sync", "hogwild"), ("--autotune", "on"), ("--sum-order", "any")):
            self.assertIn("contradict", self.train_with("x", "--deterministic", flag, value, code=4).stderr)

    def test_chaos_changes_no_bit(self):
        flags = ["--devices", "cpu:2", "--streams", "2"]
        self.train_with("calm", *flags)
        self.train_with("chaos", *flags, "--chaos", "7")
        calm, chaos = self.weights("calm"), self.weights("chaos")
        self.assertEqual({name: value.tobytes() for name, value in calm.items()}, {name: value.tobytes() for name, value in chaos.items()})

    def test_topology_decides_the_all_reduces(self):
        def collectives(*flags):
            self.run_command(["compile", "model.onnx", *LOSS, "--devices", "cpu:2", "-o", "t.plan", *flags])
            return self.run_command(["inspect", "t.plan"]).stdout.count("all_reduce")

        sample_files.write("fast.toml", "[node]\ndevices = 1\n[network]\nbytes_per_second = 1e3\nseconds = 1e-9\n")
        self.assertGreater(collectives("--topology", "fast.toml"), collectives())
        # Evaluations sum no gradients.
        self.train_with("cluster", "--devices", "cpu:2", "--topology", "fast.toml")
        os.remove("fast.toml")
        self.run_command(["eval", "runs/cluster", "--data", "train.csv"])
        self.assertIn("nothing.toml", self.run_command(["compile", "model.onnx", *LOSS, "-o", "t.plan", "--topology", "nothing.toml"], 2).stderr)

    def test_times_and_warm_ups_that_are_wrong_are_told_to_a_process_by_itself(self):
        self.assertIn("help: expected 90s or 10min", self.train_with("x", "--collective-timeout", "5x", code=4).stderr)
        self.assertIn("--warmup 5%", self.train_with("x", "--schedule", "cosine", "--warmup", "5000", code=4).stderr)

    def test_milestones(self):
        multi_step = ["--schedule", "multi_step", "--gamma", "0.5", "--batch", "5", "--log-every", "1"]
        self.train_with("milestones", *multi_step, "--milestones", "2, 50%,11")
        logged = [json.loads(line) for line in sample_files.read("runs/milestones/metrics.jsonl").splitlines()]
        rates = [line["lr"] for line in logged if line.get("split") == "train" and "samples_per_s" in line]
        np.testing.assert_allclose(rates, [0.1] * 2 + [0.05] * 4 + [0.025] * 5 + [0.0125], rtol=1e-6)
        for wrong, said in {"75%,50%": "the milestones must ascend", "": "there are no milestones", "3,x": "'x' is not a number",
                            "1e300": "schedule.milestones is out of range", "1.5": "must be a whole number of steps"}.items():
            self.assertIn(said, self.train_with("x", *multi_step, "--milestones", wrong, code=4).stderr)
        self.train_with("few", "--schedule", "multi_step", "--batch", "60", "--milestones", "50%,75%")  # a run of one update
        # Without a number of steps nothing is a share of the run.
        for share in (["--schedule", "multi_step", "--milestones", "50%"], ["--warmup", "5%"]):
            refused = self.run_command(["compile", "model.onnx", *LOSS, *share, "-o", "share.plan"], 4)
            self.assertIn("a share of the run, whose number of steps is unknown", refused.stderr)
            self.run_command(["compile", "model.onnx", *LOSS, *share, "--steps", "100", "-o", "share.plan"])

    def test_reports_during_a_run(self):
        done = self.train_with("reports", "--batch", "6", "--eval-split", "20%", "--eval-every", "3", "--report-every", "2", "--report", "json")
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertEqual([line["step"] for line in lines if line.get("split") == "train"], [2, 4, 6, 8])
        self.assertEqual([line["step"] for line in lines if line.get("split") == "eval"][:2], [3, 6])
        self.assertEqual(lines[-1]["run"], "runs/reports")

    def test_commands_that_are_shown_can_be_pasted(self):
        def paste(command):
            path = {"PATH": os.path.dirname(GRADLOOM) + os.pathsep + os.environ["PATH"]}
            done = subprocess.run(["bash", "-c", command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60, env={**os.environ, **path})
            self.assertEqual(done.returncode, 0, (command, done.stderr))

        name = "Anna's (first) $run"
        said = self.run_command(["init", "model.onnx", "--data", "train.csv", "--map", "x=a..d", *LOSS, "--epochs", "1", "-o", f"{name}.toml"]).stderr
        self.assertIn("# gradloom train -c 'Anna'\\''s (first) $run.toml'\n", sample_files.read(f"{name}.toml").decode())
        paste(said.split("next: ")[1].strip() + " --progress none --name 'a b'")
        os.remove("runs/a b/state.safetensors")
        shutil.rmtree("runs/a b/checkpoints")
        said = self.run_command(["export", "runs/a b", "-o", "t.onnx"], 7).stderr
        paste(re.search(r"help: (gradloom .*?)   continues", said)[1])

    def test_a_table_with_names_in_latin_1(self):
        table = sample_files.read("train.csv").replace(b"a,b,c,d,label", b"gr\xf6\xdfe,b,c,\xe4,label")
        sample_files.write("latin1.csv", table)
        words = ["train", "model.onnx", "--data", "latin1.csv", "--map", "x=größe..ä", "--map", "label=label", *LOSS, "--epochs", "1", "--eval-split", "20%"]
        self.run_command([*words, "--name", "latin1"])
        self.run_command(["resume", "runs/latin1", "--epochs", "2"])
        sample_files.write("utf8.csv", table.decode("latin-1"))
        losses = {json.loads(self.run_command(["eval", "runs/latin1", "--data", f"{name}.csv", "--json"]).stdout)["loss"] for name in ("latin1", "utf8")}
        self.assertEqual(len(losses), 1)

    def test_flags_without_a_value(self):
        self.assertIn("error[E-CONFIG]: --epochs needs a value\n  help: see: gradloom train --help", self.run_command([*TRAIN, "--epochs"], 4).stderr)

    def test_swapped_letters_of_a_metric(self):
        self.assertIn("did you mean 'rmse'?", self.run_command([*TRAIN, "--eval-split", "20%", "--metric", "rsme"], 4).stderr)

    def test_an_infinite_loss(self):
        sample_files.write("far.csv", "a,b,c,d,t,u,v\n" + "1,2,3,4,1e30,1e30,1e30\n" * 4)
        words = ["train", "model.onnx", "--data", "far.csv", "--map", "x=a..d", "--map", "t=t..v", "--loss", "mse(logits, t)", "--epochs", "1"]
        self.assertIn("error[E-DIVERGED]: the loss is inf at step 1, batch 1\n", self.run_command(words, 10).stderr)

    def test_a_missing_argument_is_named_as_in_the_help(self):
        self.assertIn("error[E-CONFIG]: gradloom diff lacks its argument 'b': another of the same kind\n", self.run_command(["diff", "runs/a"], 4).stderr)

    def test_pipes_are_not_files(self):
        os.mkfifo("pipe.csv")
        for words in (["train", "model.onnx", "--data", "pipe.csv"], ["check", "model.onnx", "--data", "pipe.csv"]):
            self.assertIn("a pipe cannot be read more than once", self.run_command(words, 2).stderr)

    def test_json_lines_have_null_for_nan(self):
        rows = sample_files.read("train.csv").decode().splitlines()
        sample_files.write("holes.csv", "\n".join([*rows[:9], re.sub("^[^,]*", "nan", rows[9]), *rows[10:]]) + "\n")
        words = [word.replace("train.csv", "holes.csv") for word in BARE]
        done = self.run_command([*words, "--batch", "6", "--on-nan", "skip", "--log-every", "1", "--log-format", "json"])
        steps = [line for line in map(json.loads, done.stderr.splitlines()) if line.get("split") == "train"]
        self.assertEqual([line["loss"] for line in steps].count(None), 1)
        self.assertEqual(len(steps), 10)

    def test_trace_for_chrome(self):
        self.train_with("traced", "--devices", "cpu:2", "--streams", "2", "--batch", "8", "--trace", "t.json", "--trace-format", "chrome-json")
        with open("t.json") as file:
            events = json.load(file)["traceEvents"]
        slices = [event for event in events if event["ph"] == "X"]
        self.assertEqual({event["args"]["step"] for event in slices}, {3, 4, 5})
        self.assertTrue(all(event["dur"] >= 0 for event in slices))
        self.assertEqual({event["args"]["name"] for event in events if event["name"] == "process_name"}, {"cpu:0", "cpu:1", "rank 0"})
        # What the devices do in a step lies within the step of the thread that drives them.
        host = [event for event in slices if event["cat"] == "host"]
        self.assertEqual([event["args"]["step"] for event in host if event["name"] == "wait for data"], [3, 4, 5])
        for step in (event for event in host if event["name"] == "step"):
            for event in slices:
                if event["cat"] != "host" and event["args"]["step"] == step["args"]["step"]:
                    self.assertTrue(step["ts"] <= event["ts"] and event["ts"] + event["dur"] <= step["ts"] + step["dur"], (step, event))
        # A resumed run leaves the trace of its first part unchanged.
        kept = sample_files.read("t.json")
        self.assertIn("so nothing is traced   (--trace-steps 9:11)", self.run_command(["resume", "runs/traced", "--epochs", "2"]).stderr)
        self.assertEqual(sample_files.read("t.json"), kept)
        begun, ended = ({event["id"] for event in events if event["ph"] in phases} for phases in ("s", "tf"))
        self.assertTrue(begun and ended <= begun)

    def test_unwritable_paths_are_reported_before_a_run_starts(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            for flags, code in ((["--trace", "nowhere/t.json"], 8), (["--profile", "runs"], 8), (["--trace", "t", "--profile", "p"], 4),
                                (["--trace", "t", "--trace-steps", "x"], 4), (["--metrics-port", str(taken.getsockname()[1])], 8),
                                (["--metrics-port", "0", "--metrics-address", "192.0.2.1"], 8), (["--log-file", "nowhere/l.txt"], 8)):
                done = self.train_with("unwritten", *flags, code=code)
                self.assertNotIn("model   model.onnx", done.stderr)
                self.assertFalse(os.path.exists("runs/unwritten"), flags)
        self.assertFalse(os.path.exists("t"))
        self.assertNotIn("model   model.onnx", self.train_with("main", code=4).stderr)

    # Contents of files.

    def test_every_output_that_is_asked_for_is_made(self):
        plan = ["inspect", "runs/main"]
        self.assertIn("programs", json.loads(self.run_command([*plan, "--json", "--html", "p.html", "--dot", "p.dot"]).stdout))
        self.assertIn("total", self.run_command([*plan, "--memory", "--onnx", "p.onnx"]).stdout)
        for name in ("p.html", "p.dot", "p.onnx"):
            self.assertTrue(os.path.getsize(name) > 0, name)
        self.assertRegex(self.run_command([*plan, "--memory", "--streams"]).stdout, r"(?s)total .*predicted .*program 0")
        for other in ("--graph", "--streams"):
            self.assertIn("excludes", self.run_command([*plan, "--json", other], 4).stderr)
        known = json.loads(self.run_command([*TRAIN, "--dry-run", "--json"]).stdout)
        self.assertEqual((known["dry_run"], known["train_rows"], known["batch"]), (True, 60, 32))
        for words in (["check", "model.onnx"], ["compile", "model.onnx", "-o", "none.plan"]):
            known = json.loads(self.run_command([*words, *LOSS, "--stop-after", "add_loss", "--json"]).stdout)
            self.assertEqual(known, {"model": "model.onnx", "stopped_after": "add_loss"})


if __name__ == "__main__":
    unittest.main()
