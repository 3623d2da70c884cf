"""A run that is stopped, killed or out of disk space resumes to the bits of an uninterrupted one, by the command."""
import contextlib
import csv
import glob
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import numpy as np

GRADLOOM = os.path.abspath(sys.argv.pop(1))
DIGITS = ["models/digits_cnn.onnx", "--data", "models/data/digits.csv.gz", "--map", "image=p0..p63", "--map", "label=label",
          "--eval-split", "20%", "--loss", "cross_entropy(logits, label)", "--metric", "accuracy", "--optimizer", "adamw",
          "--lr", "0.01", "--schedule", "one_cycle", "--accumulate", "2", "--batch", "64", "--epochs", "2", "--eval-every", "9",
          "--save-every", "4", "--log-every", "3", "--threads", "1", "--progress", "none"]


def digits(**changes):
    """DIGITS with other values: eval_every="4" for --eval-every."""
    flags = dict(zip(DIGITS[1::2], DIGITS[2::2]))
    maps = [word for flag, value in zip(DIGITS[1::2], DIGITS[2::2]) if flag == "--map" for word in (flag, value)]
    flags.pop("--map")
    flags.update({"--" + key.replace("_", "-"): value for key, value in changes.items()})
    return [DIGITS[0], *maps, *(word for pair in flags.items() for word in pair)]


def without_times(path):
    with open(path) as file:
        return re.sub(r'"(t|samples_per_s|mem_mb)":("[^"]*"|[0-9.e+-]+|null),?', "", file.read())


class ResumeTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.out = cls.folder.name
        cls.unbroken = os.path.join(cls.out, "unbroken")
        cls.command(cls, ["train", *DIGITS, "--name", "unbroken"])

    def command(self, words, code=0, **options):
        done = subprocess.run([GRADLOOM, *words, *(["--out", self.out] if words[0] == "train" else [])], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, timeout=120, **options)
        if done.returncode != code:
            raise AssertionError(f"{words}: exit {done.returncode}, not {code}\n{done.stderr}")
        return done

    def start(self, words, **options):
        return subprocess.Popen([GRADLOOM, *words, *(["--out", self.out] if words[0] == "train" else [])], stdout=subprocess.DEVNULL,
                                stderr=subprocess.PIPE, text=True, **options)

    def run_folder(self, name):
        return os.path.join(self.out, name)

    def last(self, run):
        with open(os.path.join(run, "checkpoints", "LATEST")) as file:
            return os.path.join(run, "checkpoints", file.read().strip())

    def wait_for(self, path, process):
        for _ in range(6000):
            if os.path.exists(path):
                return
            self.assertIsNone(process.poll(), "the process ended")
            time.sleep(0.005)
        self.fail(f"no {path}")

    def assert_unbroken(self, run):
        """State, records and the exported model are those of the uninterrupted run."""
        for name in (os.path.join(self.last(run), "rank-0.safetensors"), os.path.join(run, "export", "model.onnx")):
            other = name.replace(run, self.unbroken)
            other = re.sub(r"(step-\d+)\.\d+", r"\1", other)
            with open(name, "rb") as ours, open(other, "rb") as theirs:
                self.assertTrue(ours.read() == theirs.read(), f"{name} differs")
        self.assertEqual(without_times(os.path.join(run, "metrics.jsonl")), without_times(os.path.join(self.unbroken, "metrics.jsonl")))

    def test_killed_at_random_times(self):
        seed = random.SystemRandom().randrange(10**6)
        print("seed", seed, flush=True)
        rng = random.Random(seed)
        kills = resumes = runs = 0
        end = time.monotonic() + 40
        while kills < 48 or runs < 2:
            # A slow machine does fewer rounds, but never none.
            if time.monotonic() > end and kills >= 12 and runs >= 1:
                break
            name, run = f"killed{runs}", self.run_folder(f"killed{runs}")
            while True:
                made = os.path.exists(os.path.join(run, "plan.plan"))
                # If it was killed before there was a run, the original command starts it again.
                process = self.start(["resume", run] if made else ["train", *DIGITS, "--name", name, "--resume", "auto"])
                resumes += made
                try:
                    process.communicate(timeout=rng.choice([0.1, 0.2, 0.4, 0.8]) * (0.5 + rng.random()))
                    self.assertEqual(process.returncode, 0)
                    break
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.communicate()
                    kills += 1
            self.assert_unbroken(run)
            runs += 1
        print(f"{kills} kills, {resumes} resumes, {runs} runs", flush=True)

    def test_runs_that_ended_before_they_began(self):
        """Killed before the plan was written, any number of times: what each attempt leaves does not keep the next from starting."""
        run = self.run_folder("unbegun")
        for _ in range(2):
            os.makedirs(os.path.join(run, "checkpoints"), exist_ok=True)
            self.assertIn("ended before it began", self.command(["resume", run], 4).stderr)
            self.command(["train", *DIGITS, "--name", "unbegun", "--resume", "auto"])
            # As if the process had been killed just before the plan was written.
            for name in os.listdir(run):
                path = os.path.join(run, name)
                if os.path.isdir(path):
                    shutil.rmtree(path)
                elif not name.startswith(("config", "data", "environment")):
                    os.remove(path)
        self.assertEqual([name for name in os.listdir(run) if name.startswith("environment")], ["environment.json"])

    def test_signals_save(self):
        for sent, code in ((signal.SIGINT, 130), (signal.SIGTERM, 138), (signal.SIGUSR1, 138), (signal.SIGHUP, 138)):
            run = self.run_folder(sent.name)
            process = self.start(["train", *DIGITS, "--name", sent.name])
            self.wait_for(os.path.join(run, "checkpoints", "LATEST"), process)
            process.send_signal(sent)
            said = process.communicate(timeout=60)[1]
            self.assertEqual(process.returncode, code, said)
            self.assertIn(f"stopped by {sent.name} after step", said)
            self.assertIn("saved " + self.last(run), said)
            # The printed command resumes it.
            self.command(re.search(r"gradloom (resume \S+)", said).group(1).split())
            self.assert_unbroken(run)

    def test_a_stop_interrupts_an_evaluation(self):
        """Which the run repeats when it is resumed, also if it is the last one: with the same records as if it had not been stopped."""
        words = ["train", "models/housing_mlp.onnx", "--data", "random:20000", "--eval-split", "tail:99.9%", "--loss", "mse(value, target)",
                 "--batch", "2", "--epochs", "3", "--log-every", "4", "--threads", "1", "--plateau-patience", "0", "--progress", "none"]
        self.command([*words, "--name", "judged"])
        whole, run = self.run_folder("judged"), self.run_folder("judging")

        def lines():
            path = os.path.join(run, "metrics.jsonl")
            if not os.path.exists(path):
                return 0
            with open(path) as file:
                return file.read().count("\n")

        command = [*words, "--name", "judging"]
        for _ in range(3):
            # An epoch has three lines of updates, of which the last is written when its evaluation begins, and one of the evaluation.
            begins = (lines() + 1) // 4 * 4 + 3
            process = self.start(command)
            while process.poll() is None and lines() < begins:
                time.sleep(0.001)
            process.send_signal(signal.SIGTERM)
            said = process.communicate(timeout=60)[1]
            if process.returncode == 0:
                break
            self.assertEqual(process.returncode, 138, said)
            command = ["resume", run]
        self.command(["resume", run])
        for name in ("metrics.jsonl", "state.safetensors", "export/model.onnx"):
            ours, theirs = (os.path.join(folder, name) for folder in (run, whole))
            with open(ours, "rb") as one, open(theirs, "rb") as other:
                same = without_times(ours) == without_times(theirs) if name.endswith("jsonl") else one.read() == other.read()
            self.assertTrue(same, name)

    def test_nohup_survives_a_hangup(self):
        process = self.start(["train", *DIGITS, "--name", "nohup"], preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
        self.wait_for(os.path.join(self.run_folder("nohup"), "checkpoints", "LATEST"), process)
        process.send_signal(signal.SIGHUP)
        said = process.communicate(timeout=60)[1]
        self.assertEqual(process.returncode, 0, said)
        self.assert_unbroken(self.run_folder("nohup"))

    def test_a_second_interrupt_ends_at_once(self):
        # An update takes minutes, and a single interrupt waits for it, because each device has a part of its gradients.
        process = self.start(["train", "models/housing_mlp.onnx", "--data", "random:600000", "--loss", "mse(value, target)", "--batch", "2",
                              "--devices", "cpu:2", "--accumulate", "1000000", "--name", "twice", "--progress", "none"])
        self.wait_for(os.path.join(self.run_folder("twice"), "results.csv"), process)
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        with self.assertRaises(subprocess.TimeoutExpired):
            process.communicate(timeout=1)
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=10)[1]
        self.assertEqual(process.returncode, 130, said)
        self.assertNotIn("stopped by", said)

    def test_damaged_checkpoints_are_reported_and_skipped(self):
        run = self.run_folder("damaged")
        shutil.copytree(self.unbroken, run)
        names = sorted(os.path.basename(path) for path in glob.glob(os.path.join(run, "checkpoints", "step-*")))
        self.assertGreaterEqual(len(names), 3)
        newest = os.path.join(run, "checkpoints", names[-1])
        with open(os.path.join(newest, "rank-0.safetensors"), "r+b") as file:
            file.seek(5000)
            byte = file.read(1)
            file.seek(5000)
            file.write(bytes([byte[0] ^ 1]))
        os.remove(os.path.join(run, "checkpoints", names[-2], "MANIFEST"))
        said = self.command(["resume", run]).stderr
        self.assertRegex(said, f"skipped \\S+{names[-1]}: the file is damaged")
        self.assertRegex(said, f"skipped \\S+{names[-2]}: not a checkpoint: it has no MANIFEST")
        self.assertRegex(said, f"resume  \\S+{names[-3]}  step")
        self.assert_unbroken(run)
        # With an explicit name, the help works as printed.
        with open(os.path.join(newest, "rank-0.safetensors"), "r+b") as file:
            file.truncate(100)
        refused = self.command(["resume", run, "--from", names[-1]], 7).stderr
        self.assertIn("error[E-CHECKPOINT]", refused)
        self.command(re.search(r"help: gradloom (resume \S+ --from \S+)$", refused, re.M).group(1).split())
        # None at all.
        for path in glob.glob(os.path.join(run, "checkpoints", "step-*", "MANIFEST")):
            os.remove(path)
        refused = self.command(["resume", run], 7).stderr
        self.assertIn("no checkpoint of the run can be loaded", refused)
        self.command(["resume", run, "--from", "start"])
        self.assert_unbroken(run)

    def test_differences_are_refused(self):
        run = self.run_folder("differs")
        shutil.copytree(self.unbroken, run)
        self.assertIn("seed 1234, this run has 5", self.command(["resume", run, "--seed", "5"], 7).stderr)
        self.assertIn("'block1.bn.bias/exp_avg' is not in the plan", self.command(["resume", run, "--optimizer", "sgd"], 7).stderr)
        self.assertIn("trained in batches of 64", self.command(["resume", run, "--batch", "32"], 7).stderr)
        # As many rows, but others.
        self.assertIn("other rows were held back", self.command(["resume", run, "--eval-split", "tail:20%"], 7).stderr)
        self.assertIn("cannot be changed", self.command(["resume", run, "--name", "x"], 4).stderr)
        self.assertIn("not the folder of a run", self.command(["resume", run + "x"], 4).stderr)
        # If its configuration was edited, it is refused instead of giving other bits.
        config = os.path.join(run, "config.toml")
        with open(config) as file:
            text = file.read()
        with open(config, "w") as file:
            file.write(re.sub(r'(?m)^weight_decay = [^ ]*', "weight_decay = 0.5", text))
        self.assertIn("optimizer:", self.command(["resume", run], 7).stderr)

    def test_a_run_without_checkpoints_starts_again(self):
        words = ["train", *DIGITS, "--name", "early"]
        run = self.run_folder("early")
        os.makedirs(os.path.join(run, "export"))
        for name in ("config.toml.tmp.4194305.0", "data.json"):
            with open(os.path.join(run, name), "w") as file:
                file.write("half")
        refused = self.command(["resume", run], code=4)
        self.assertIn("ended before it began", refused.stderr)
        self.assertIn("a run with this name exists", self.command(words, code=4).stderr)
        # Foreign files are kept.
        with open(os.path.join(run, "precious"), "w"):
            pass
        self.command([*words, "--resume", "auto"], code=4)
        os.remove(os.path.join(run, "precious"))
        self.command([*words, "--resume", "auto"])
        self.assert_unbroken(run)
        self.assertEqual([name for name in os.listdir(run) if ".tmp." in name], [])

    def test_another_number_of_cores(self):
        at = DIGITS.index("--threads")
        words = DIGITS[:at] + DIGITS[at + 2:]
        one, two = ({**os.environ, "OMP_NUM_THREADS": count} for count in "12")
        self.command(["train", *words, "--name", "cores"], env=one)
        run = self.run_folder("cores")
        # Threads that were not given explicitly are those of the run.
        step = min(name for name in os.listdir(os.path.join(run, "checkpoints")) if name.startswith("step-"))
        self.assertNotIn("changed", self.command(["resume", run, "--from", step], env=two).stderr)
        self.assert_unbroken(run)
        again = self.command(["train", *words, "--name", "cores", "--devices", "cpu", "--resume", "auto"], env=two).stderr
        self.assertNotIn("devices.threads", again)
        # For another number of devices they are chosen again, and this is reported.
        said = self.command(["resume", run, "--devices", "cpu:2", "--epochs", "3"], env=two).stderr
        self.assertIn("devices.threads = 0, was 1", said)

    def test_leftovers_of_dead_processes_are_removed(self):
        run = self.run_folder("left")
        self.command(["train", *DIGITS, "--name", "left"])
        alive = os.path.join(run, f"state.safetensors.tmp.{os.getpid()}.0")
        dead = [os.path.join(run, name) for name in ("state.safetensors.tmp.4194305.3", "export/model.onnx.tmp.4194305.4")]
        for path in (alive, *dead):
            with open(path, "w"):
                pass
        # A save that was interrupted after the rename of its folder.
        newest = self.last(run)
        for pointer in ("LATEST", "BEST"):
            with open(os.path.join(run, "checkpoints", pointer), "w") as file:
                file.write("step-000001\n")
        self.command(["resume", run])
        self.assertEqual(self.last(run), newest)
        self.assertTrue(os.path.exists(alive))
        self.assertEqual([path for path in dead if os.path.exists(path)], [])

    def test_more_epochs(self):
        run = self.run_folder("longer")
        shutil.copytree(self.unbroken, run)
        said = self.command(["resume", run]).stderr
        self.assertIn("the run is complete", said)
        self.assert_unbroken(run)
        said = self.command(["resume", run, "--epochs", "3"]).stderr
        self.assertIn("config  train.epochs = 3, was 2", said)
        self.assertRegex(said, "changed learning rate: one_cycle .* in the checkpoint, one_cycle .* in this run")
        # It stays complete.
        self.assertIn("the run is complete", self.command(["resume", run]).stderr)

    def test_one_process_trains_a_run(self):
        run = self.run_folder("busy")
        process = self.start(["train", *digits(name="busy", epochs="100000")])
        try:
            self.wait_for(os.path.join(run, "checkpoints", "LATEST"), process)
            self.assertIn("another process is training this run", self.command(["resume", run], 7).stderr)
        finally:
            process.kill()
            process.communicate()

    def test_a_full_disk(self):
        disk = os.path.join(self.out, "disk")
        os.mkdir(disk)
        script = 'mount -t tmpfs -o size=1050k tmpfs "$1" || exit 99; shift; "$@"; code=$?; cp -r "$OUT/full" "$COPY"; exit $code'
        words = [GRADLOOM, "train", *DIGITS, "--name", "full", "--out", disk]
        done = subprocess.run(["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, "sh", disk, *words],
                              env={**os.environ, "OUT": disk, "COPY": self.run_folder("full")}, stderr=subprocess.PIPE, text=True, timeout=60)
        if "unshare" in done.stderr or done.returncode == 99:
            self.skipTest("no file system of its own can be had here: " + done.stderr)
        self.assertEqual(done.returncode, 8, done.stderr)
        self.assertRegex(done.stderr, r"error\[E-RESOURCE\].*No space left on device \(\d+ bytes free\); the checkpoint needs \d+ bytes")
        self.assertIn(os.path.join(disk, "full", "checkpoints", "step-"), done.stderr)
        run = self.run_folder("full")
        self.assertEqual(glob.glob(os.path.join(run, "checkpoints", "*.tmp.*")), [])
        self.assertEqual(len(glob.glob(os.path.join(run, "checkpoints", "step-*"))), 1)
        # It resumes once there is space.
        self.command(["resume", run])
        self.assert_unbroken(run)

    def test_records_that_cannot_be_written(self):
        """With --on-save-error continue, metrics.jsonl reaches the largest size of a file, and the run goes on without its lines."""
        words = ["models/housing_mlp.onnx", "--data", "models/data/boston.csv", "--map", "features=CRIM..LSTAT", "--map", "target=MEDV",
                 "--loss", "mse(value, target)", "--epochs", "40", "--log-every", "1", "--progress", "none", "--log-format", "text"]
        limited = ["bash", "-c", 'ulimit -f 64; exec "$@"', "bash", GRADLOOM, "train", *words, "--out", self.out]
        for policy, code in (("continue", 0), ("stop", 8)):
            done = subprocess.run([*limited, "--on-save-error", policy, "--name", f"records_{policy}"], stderr=subprocess.PIPE, text=True,
                                  timeout=120)
            self.assertEqual(done.returncode, code, done.stderr)
            run = self.run_folder(f"records_{policy}")
            with open(os.path.join(run, "metrics.jsonl")) as file:
                lines = file.read()
            self.assertTrue(lines.endswith("}\n"))
            for line in lines.splitlines():
                json.loads(line)
            if code == 0:
                self.assertEqual(done.stderr.count("records of the run are left out: "), 1)
                self.assertRegex(done.stderr, r"warning \d+ records of the run could not be written")
                self.assertTrue(os.path.exists(os.path.join(run, "export", "model.onnx")))
            else:
                self.assertRegex(done.stderr, r"error\[E-RESOURCE\].*\n.*metrics.jsonl")

    def test_a_record_that_lost_its_end(self):
        """As after a power failure: the line is cut off, and the next one is whole."""
        run = self.run_folder("torn")
        self.command(["train", *digits(name="torn", save_every="1ep")])
        for name in ("metrics.jsonl", "results.csv"):
            path = os.path.join(run, name)
            os.truncate(path, os.path.getsize(path) - 7)
        self.command(["resume", run, "--epochs", "3"])
        with open(os.path.join(run, "metrics.jsonl")) as file:
            for line in file:
                json.loads(line)
        with open(os.path.join(run, "results.csv")) as file:
            self.assertEqual([row["epoch"] for row in csv.DictReader(file)], ["1", "3"])

    def test_damaged_final_weights(self):
        """Any flipped byte of state.safetensors is found, and the newest checkpoint is offered."""
        run = self.run_folder("flipped")
        self.command(["train", *DIGITS, "--name", "flipped"])
        path, newest = os.path.join(run, "state.safetensors"), os.path.basename(self.last(run))
        with open(path, "rb") as file:
            whole = file.read()
        for at in (3, 60, whole.index(b'"batch":"') + 9, len(whole) // 2, len(whole) - 1):
            with open(path, "wb") as file:
                file.write(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1:])
            said = self.command(["eval", run], 7).stderr
            self.assertIn(f"--from {newest}", said)
            self.command(["train", *DIGITS, "--init-weights", path, "--dry-run"], 7)
        self.command(["eval", run, "--from", newest])
        # Without final weights, a newer checkpoint that does not load is reported.
        os.remove(path)
        with open(os.path.join(self.last(run), "rank-0.safetensors"), "r+b") as file:
            file.truncate(100)
        for words in (["eval", run], ["export", run, "-o", os.path.join(self.out, "flipped.onnx")]):
            self.assertRegex(self.command(words).stderr, f"warning +skipped \\S+{newest}: the file has 100 bytes, but the manifest")

    def test_signals_end_process_1_of_a_container(self):
        """The system drops signals for it that have no handler: before a run has begun, and while predictions are written."""
        unshare = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"]
        if not shutil.which("unshare") or subprocess.run([*unshare, "true"], capture_output=True).returncode != 0:
            self.skipTest("no process numbers of one's own here")
        for words in (["bench", DIGITS[0], "--batch", "64"], ["predict", self.unbroken, "--data", "random:200000", "-o", os.path.join(self.out, "p.npz")]):
            for sent in (signal.SIGTERM, signal.SIGINT):
                process = subprocess.Popen([*unshare, GRADLOOM, *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
                # Again and again, since the first ones may come before the command has begun.
                while process.poll() is None:
                    with open(f"/proc/{process.pid}/task/{process.pid}/children") as file:
                        for child in file.read().split():
                            with contextlib.suppress(ProcessLookupError):
                                os.kill(int(child), sent)
                    time.sleep(0.05)
                self.assertEqual(process.returncode, 128 + sent, (words, process.communicate()[1]))
        self.assertFalse(os.path.exists(os.path.join(self.out, "p.npz")))

    def test_a_disk_that_refuses_the_folder(self):
        disk = os.path.join(self.out, "read_only")
        os.mkdir(disk)
        script = 'mount -t tmpfs -o ro tmpfs "$1" || exit 99; shift; exec "$@"'
        done = subprocess.run(["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, "sh", disk, GRADLOOM, "train", *DIGITS,
                               "--name", "none", "--out", disk], stderr=subprocess.PIPE, text=True, timeout=60)
        if "unshare" in done.stderr or done.returncode == 99:
            self.skipTest("no file system of its own can be had here: " + done.stderr)
        self.assertEqual(done.returncode, 8, done.stderr)
        self.assertIn("error[E-RESOURCE]: cannot create the folder: Read-only file system", done.stderr)

    def test_best_keep_and_early_stop(self):
        words = ["train", *digits(name="best", epochs="30", eval_every="4", keep="1", best="eval/loss:min", early_stop="2", lr="0.05",
                                  report="json")]
        report = json.loads(self.command(words).stdout)
        run = self.run_folder("best")
        self.assertTrue(report["stopped_early"])
        with open(os.path.join(run, "metrics.jsonl")) as file:
            losses = {line["step"]: line["loss"] for line in map(json.loads, file) if line["split"] == "eval"}
        best = min(losses, key=losses.get)
        self.assertEqual(report["best_step"], best)
        self.assertEqual(max(losses), list(losses)[list(losses).index(best) + 2])
        with open(os.path.join(run, "checkpoints", "BEST")) as file:
            self.assertEqual(file.read(), f"step-{best:06d}\n")
        self.assertEqual(sorted(os.listdir(os.path.join(run, "checkpoints"))),
                         ["BEST", "LATEST", "LOCK", f"step-{best:06d}", f"step-{max(losses):06d}"])
        self.command(["resume", run, "--from", "best"])

    def test_another_watched_value_begins_anew(self):
        """A loss and an accuracy cannot be compared, so neither the best value nor the evaluations without improvement count."""
        self.command(["train", *digits(name="watched", best="eval/loss:min", early_stop="2")])
        run = self.run_folder("watched")
        done = self.command(["resume", run, "--best", "eval/accuracy:max", "--epochs", "3", "--report", "json"])
        self.assertIn("best    begins anew: the run compared eval/loss:min, now it compares eval/accuracy:max", done.stderr)
        with open(os.path.join(run, "metrics.jsonl")) as file:
            found = [line for line in map(json.loads, file) if line["split"] == "eval"]
        report = json.loads(done.stdout)
        began = int(re.search(r"resume  \S+  step (\d+)", done.stderr).group(1))
        later = {line["step"]: line["accuracy"] for line in found if line["step"] > began}
        self.assertEqual(report["best_step"], max(later, key=later.get))
        self.assertNotIn("begins anew", self.command(["resume", run, "--epochs", "4"]).stderr)

    def test_results_get_columns_of_later_metrics(self):
        run = self.run_folder("columns")
        self.command(["train", *digits(name="columns", eval_every="1ep", schedule="constant", keep="99")])
        self.command(["resume", run, "--metric", "f1", "--epochs", "3"])

        def results():
            with open(os.path.join(run, "results.csv"), newline="") as file:
                return list(csv.DictReader(file))

        rows = results()
        self.assertEqual([row["epoch"] for row in rows], ["1", "2", "3"])
        self.assertTrue(all(row["eval/loss"] and None not in row for row in rows))
        self.assertEqual([bool(row["eval/f1"]) for row in rows], [False, False, True])
        # A checkpoint from before the column knows which lines follow it.
        first = min(name for name in os.listdir(os.path.join(run, "checkpoints")) if name.startswith("step-"))
        self.command(["resume", run, "--from", first, "--epochs", "3"])
        again = results()
        self.assertEqual([row["epoch"] for row in again], ["1", "2", "3"])
        self.assertTrue(all(row["eval/f1"] for row in again))


class NotFiniteTest(unittest.TestCase):
    def train(self, code, *flags):
        with tempfile.TemporaryDirectory() as out:
            rng = np.random.default_rng(0)
            features = rng.standard_normal((256, 13)).astype("float32")
            features[100, 3] = np.nan
            np.savez(os.path.join(out, "rows.npz"), features=features, target=features[:, :1] * 0 + 1)
            done = subprocess.run([GRADLOOM, "train", "models/housing_mlp.onnx", "--data", os.path.join(out, "rows.npz"), "--loss",
                                   "mse(value, target)", "--batch", "16", "--epochs", "2", "--out", out, "--progress", "none", "--report",
                                   "json", *flags], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60)
            self.assertEqual(done.returncode, code, done.stderr)
            return done

    def test_stops(self):
        said = self.train(10).stderr
        self.assertRegex(said, r"error\[E-DIVERGED\]: the loss is -?nan at step \d+, batch \d+\n +--> not finite after it: '")

    def search(self, *flags, saved):
        """The message of a run that ends with E-DIVERGED and is resumed to find the node, as its own message says."""
        with tempfile.TemporaryDirectory() as out:
            words = ["train", "models/housing_mlp.onnx", "--data", "models/data/boston.csv", "--map", "features=CRIM..LSTAT", "--map",
                     "target=MEDV", "--loss", "mse(value, target)", "--optimizer", "sgd", "--out", out, "--name", "n",
                     "--progress", "none", *flags]
            run = lambda words: subprocess.run([GRADLOOM, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120)
            first = run(words)
            self.assertEqual(first.returncode, 10, first.stderr)
            self.assertEqual(bool(os.listdir(os.path.join(out, "n", "checkpoints")).count("LATEST")), saved)
            command = re.search(r"gradloom (resume \S+ --check-numerics)", first.stderr)
            self.assertTrue(command, first.stderr)
            again = run(command[1].split())
            self.assertEqual(again.returncode, 10, again.stderr)
            line = r"error\[E-DIVERGED\]: (.*)\n"
            self.assertEqual(re.search(line, first.stderr)[1], re.search(line, again.stderr)[1])
            self.assertNotIn("to see which node", again.stderr)
            self.assertNotIn(", was ", again.stderr)  # no changed configuration
            return again.stderr

    def test_names_the_origin(self):
        """Parameters grow until a product overflows: forward, backward or in the update, with and without a checkpoint."""
        place = r" in the (forward pass|backward pass|update) of step \d+"
        said = self.search("--lr", "10", "--epochs", "2", saved=False)
        self.assertRegex(said, r"--> \w+ ?('\w+')?" + place + r"(, on device 0)?: '.*' float32\[.*\] has ")
        self.assertRegex(said, "resume  from the start")
        said = self.search("--lr", "1e-3", "--epochs", "9", "--save-every", "1", "--devices", "cpu:2", saved=True)
        self.assertRegex(said, place)
        self.assertRegex(said, r"resume  \S+step-\d+ ")

    def test_names_the_data(self):
        said = self.train(10, "--check-numerics").stderr
        self.assertRegex(said, r"--> input 'features' of step \d+ has 1 NaN of 208 elements, the first at \[\d+, 3\], in sample \d+ of the batch")
        self.train(0, "--check-numerics", "--on-nan", "skip")

    def test_skips_a_bad_batch(self):
        for flags in ([], ["--accumulate", "4"]):
            done = self.train(0, "--on-nan", "skip", *flags)
            report = json.loads(done.stdout)
            self.assertEqual(report["batches_left_out"], 2)
            self.assertTrue(np.isfinite(report["train_loss"]))
            self.assertRegex(done.stderr, r"warning batch \d+ is skipped: its loss is -?nan")

    def test_a_scaled_loss_handles_overflow(self):
        """Accumulated gradients that overflow skip their update: no batch counts as skipped because of them, and no save fails, also after
        a resume."""
        with tempfile.TemporaryDirectory() as out:
            rng = np.random.default_rng(0)
            features = rng.standard_normal((48, 13)).astype("float32")
            np.savez(os.path.join(out, "rows.npz"), features=features, target=features[:, :1] * 300)
            words = ["train", "models/housing_mlp.onnx", "--data", os.path.join(out, "rows.npz"), "--loss", "mse(value, target)", "--batch",
                     "16", "--accumulate", "4", "--precision", "fp16", "--loss-scale", "16777216", "--epochs", "4", "--out", out, "--progress",
                     "none", "--report", "json"]
            reports = {}
            for name in ("stop", "skip"):
                done = subprocess.run([GRADLOOM, *words, "--on-nan", name, "--name", name], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                      text=True, timeout=60)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertRegex(done.stderr, r"skipped \d updates whose gradients were not finite")
                reports[name] = {key: value for key, value in json.loads(done.stdout).items() if key in ("steps", "train_loss")}
                self.assertEqual(json.loads(done.stdout).get("batches_left_out", 0), 0)
            self.assertEqual(reports["stop"], reports["skip"])
            # An epoch has three of the four batches of an update, and ends it.
            run = os.path.join(out, "stop")
            first = min(name for name in os.listdir(os.path.join(run, "checkpoints")) if name.startswith("step-"))
            with open(os.path.join(run, "state.safetensors"), "rb") as file:
                unbroken = file.read()
            done = subprocess.run([GRADLOOM, "resume", run, "--from", first], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                  timeout=60)
            self.assertEqual(done.returncode, 0, done.stderr)
            with open(os.path.join(run, "state.safetensors"), "rb") as file:
                self.assertTrue(file.read() == unbroken)


if __name__ == "__main__":
    unittest.main()
