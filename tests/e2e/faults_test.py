"""Every call by which the command writes a file is made to fail. Afterwards the old or the new file must be complete, and the message must
name the file and the reason. A run must resume to the bits of one without faults.

A test draws some of the calls. GRADLOOM_SEED=N draws others, GRADLOOM_FAULTS=N sets how many for each command."""
import dataclasses
import errno
import json
import os
import random
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

GRADLOOM, FAILING_CALL = (os.path.abspath(sys.argv.pop(1)) for _ in range(2))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import sample_files  # noqa: E402
from jobs import assert_same_run, changed  # noqa: E402
from sanitized import SANITIZED  # noqa: E402

SEED = int(os.environ.get("GRADLOOM_SEED", "1"))
FAULTS = int(os.environ.get("GRADLOOM_FAULTS", "6"))
OLD = b"what was there before"
ERRORS = {str(number) + more: f"{errno.errorcode[number]}{more}" for number in (errno.ENOSPC, errno.EIO, errno.EROFS, errno.EDQUOT) for more in ("", "+")}


@dataclasses.dataclass
class Command:
    """A command that writes `outputs` into the folder outputs. `varies` tells how to check that an output is complete if it differs between
    runs."""
    words: str
    outputs: tuple
    varies: object = None


def is_json(content):
    return isinstance(json.loads(content), dict)


TRAIN = ["train", "model.onnx", "--data", "train.npz", "--loss", "cross_entropy(logits, label)", "--epochs", "2", "--batch", "8", "--eval-split", "20%",
         "--eval-every", "3", "--save-every", "2", "--keep", "2", "--log-every", "1", "--threads", "1", "--progress", "none"]
COMMANDS = {
    "predict npz": Command("predict runs/done --data inputs.npz -o outputs/y.npz", ("y.npz",)),
    "predict csv": Command("predict runs/done --data inputs.npz -o outputs/y.csv", ("y.csv",)),
    "predict json": Command("predict runs/done --data inputs.npz -o outputs/y.json", ("y.json",)),
    "export onnx": Command("export runs/done -o outputs/m.onnx", ("m.onnx",)),
    "export safetensors": Command("export runs/done -o outputs/w.safetensors", ("w.safetensors",)),
    "export training": Command("export runs/done --training -o outputs/t.onnx", ("t.onnx",)),
    "compile": Command("compile model.onnx --loss 'cross_entropy(logits, label)' -o outputs/p.plan --emit-onnx outputs/s.onnx --emit-dot outputs/s.dot --emit-html outputs/s.html",
                       ("p.plan", "s.onnx", "s.dot", "s.html")),
    "inspect": Command("inspect good.plan --onnx outputs/s.onnx --dot outputs/s.dot --html outputs/s.html", ("s.onnx", "s.dot", "s.html")),
    "bench": Command("bench model.onnx --loss 'cross_entropy(logits, label)' --steps 2 --repeats 1 --before 1 -o outputs/b.json", ("b.json",), is_json),
    "trace": Command("train model.onnx --data train.npz --loss 'cross_entropy(logits, label)' --epochs 1 --progress none --name traced --trace outputs/t.json "
                     "--trace-format chrome-json", ("t.json",), is_json),
    "profile": Command("train model.onnx --data train.npz --loss 'cross_entropy(logits, label)' --epochs 1 --progress none --name traced --profile outputs/t.json",
                       ("t.json",), is_json),
    "init": Command("init --model model.onnx --data train.npz --loss 'cross_entropy(logits, label)' -o outputs/g.toml", ("g.toml",)),
}


class FaultsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.files = sample_files.in_folder_of(cls)
        cls.command(["compile", "model.onnx", "--loss", "cross_entropy(logits, label)", "-o", "good.plan"])
        cls.train(cls.files, "done")
        sample_files.np.savez("inputs.npz", x=sample_files.np.load("train.npz")["x"])
        cls.base = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, cls.base)

    @staticmethod
    def environment(part="", call=0, how=""):
        around = {"LD_PRELOAD": FAILING_CALL, "GRADLOOM_FAIL_PATH": part, "GRADLOOM_FAIL_CALL": str(call), "GRADLOOM_FAIL_HOW": how} if part else {}
        return {**os.environ, "OMP_NUM_THREADS": "1", **around}

    @classmethod
    def command(cls, words, folder=".", file_bytes=None, **fault):
        # Without a function to call in between, Python does not have to copy its own memory map for each command.
        limit = None if file_bytes is None else lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, file_bytes))
        return subprocess.run([GRADLOOM, *words], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120, preexec_fn=limit,
                              env=cls.environment(**fault))

    @classmethod
    def train(cls, folder, name, changes=(), **fault):
        done = cls.command([*changed(TRAIN, changes), "--name", name], folder, **fault)
        if not fault and done.returncode != 0:
            raise AssertionError(done.stderr)
        return done

    def fresh(self, name, out=True):
        """A copy of the files in which the outputs already exist."""
        folder = os.path.join(self.base, name)
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.files, folder)
        if out:
            os.mkdir(f"{folder}/outputs")
        return folder

    def made(self, folder):
        return {name: sample_files.read(f"{folder}/outputs/{name}") for name in os.listdir(f"{folder}/outputs")}

    def refused(self, done, place):
        """Expects one error with a location and a remedy."""
        error = done.stderr[done.stderr.rfind("error["):]
        self.assertTrue(error.startswith("error[E-RESOURCE]: "), done.stderr)
        self.assertRegex(error, r"\n  --> .*" + re.escape(place), done.stderr)
        self.assertIn("\n  help: ", error)
        self.assertIn("stopped with 1 error (exit 8)", error)
        self.assertEqual(done.returncode, 8, done.stderr)
        if "failed sync" not in done.stderr and f"{errno.ENOSPC}" in self.how:
            self.assertIn("bytes free", error)

    def drawn(self, rng, calls):
        """Pairs of a call's number and how it fails."""
        everything = [(call, how) for call in range(1, calls + 1) for how in [*ERRORS, "kill", "short"]]
        return rng.sample(everything, min(FAULTS, len(everything)))

    def fault(self, name, command, good, call, how):
        words = shlex.split(command.words)
        folder = self.fresh("fault")
        if name != "init":
            for output in command.outputs:
                sample_files.write(f"{folder}/outputs/{output}", OLD)
        self.how = how
        fault = {"part": "outputs", "call": call, "how": how} if how != "rlimit" else {"file_bytes": call}
        done = self.command(words, folder, **fault)
        made = self.made(folder)
        left = [entry for entry in made if ".tmp." in entry]
        for entry in set(made) - set(left):
            whole = command.varies(made[entry]) if command.varies and made[entry] != OLD else made[entry] in (good[entry], OLD)
            self.assertTrue(whole, f"{entry} is neither the old file nor the new one")
        if name != "init":
            self.assertEqual(set(command.outputs) - set(made), set())
        if how == "kill":
            self.assertEqual(done.returncode, -signal.SIGKILL, done.stderr)
        elif how == "short" or done.returncode == 0:
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertNotIn(OLD, made.values(), done.stderr)
        else:
            self.refused(done, "outputs")
        # A file that cannot be removed may stay.
        if how != "kill" and "failed unlink" not in done.stderr and not how.endswith("+"):
            self.assertEqual(left, [])
        if done.returncode != 0 and name not in ("trace", "profile", "init"):
            # What is left behind does not prevent another attempt.
            again = self.command(words, folder)
            self.assertEqual(again.returncode, 0, again.stderr)
            made = self.made(folder)
            for entry in command.outputs:
                self.assertTrue(command.varies(made[entry]) if command.varies else made[entry] == good[entry], entry)

    def test_commands(self):
        for name, command in COMMANDS.items():
            rng = random.Random(f"{SEED} {name}")
            words = shlex.split(command.words)
            folder = self.fresh("good")
            done = self.command(words, folder, part="outputs")
            self.assertEqual(done.returncode, 0, done.stderr)
            good = self.made(folder)
            self.assertEqual(set(good), set(command.outputs))
            calls = int(re.search(r"^calls (\d+)$", done.stderr, re.MULTILINE)[1])
            self.assertGreaterEqual(calls, 4 * len(command.outputs))
            tried = self.drawn(rng, calls)
            smallest = min(len(content) for content in good.values())
            for call, how in [*tried, (0, "rlimit"), (smallest // 2, "rlimit")] if name not in ("trace", "profile") else tried:
                with self.subTest(name, call=call, how=ERRORS.get(how, how)):
                    self.fault(name, command, good, call, how)
            print(f"{name}: {calls} calls, {len(tried)} faults", flush=True)

    def go_on(self, folder, name, changes):
        """Starts or resumes a run."""
        if os.path.exists(f"{folder}/runs/{name}/plan.plan"):
            done = self.command(changed(["resume", f"runs/{name}"], changes), folder)
        else:
            done = self.command([*changed(TRAIN, changes), "--name", name, "--resume", "auto"], folder)
        self.assertEqual(done.returncode, 0, done.stderr)

    def same_run(self, folder, whole, leaves=False):
        run = f"{folder}/runs/r"
        assert_same_run(self, run, whole)
        left = [name for _, folders, names in os.walk(run) for name in folders + names if re.search(r"\.(tmp|old)\.", name)]
        self.assertTrue(leaves or not left, left)

    def fault_of_run(self, start, begin, whole, call, how, changes):
        """Starts a run in the folder `start` by `begin`, with a fault."""
        folder = os.path.join(self.base, "fault")
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(start, folder)
        self.how = how
        done = begin(folder, part="runs/r", call=call, how=how)
        if how == "kill":
            self.assertEqual(done.returncode, -signal.SIGKILL, done.stderr)
        elif done.returncode != 0:
            self.assertNotEqual(how, "short", done.stderr)
            self.refused(done, "runs/r")
        if done.returncode != 0:
            self.go_on(folder, "r", changes)
        # A folder that could not be removed is removed by the next process.
        self.same_run(folder, whole, "failed unlink" in done.stderr)

    def faults_of_run(self, kind, start, begin, whole, changes=()):
        folder = os.path.join(self.base, "good")
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(start, folder)
        done = begin(folder, part="runs/r", call=0, how="")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.same_run(folder, whole)
        calls = int(re.search(r"^calls (\d+)$", done.stderr, re.MULTILINE)[1])
        self.assertGreater(calls, 30)
        tried = self.drawn(random.Random(f"{SEED} {kind}"), calls)
        for call, how in tried:
            with self.subTest(kind, call=call, how=ERRORS.get(how, how)):
                self.fault_of_run(start, begin, whole, call, how, dict(changes))
        print(f"{kind}: {calls} calls, {len(tried)} faults", flush=True)

    def test_runs(self):
        """A new run, and a resumed run, also with more epochs."""
        whole = self.fresh("whole", out=False)
        self.train(whole, "r")
        longer = self.fresh("longer", out=False)
        self.train(longer, "r", {"--epochs": "3"})
        half = self.fresh("half", out=False)
        self.assertEqual(self.train(half, "r", part="runs/r", call=110, how="kill").returncode, -signal.SIGKILL)
        self.assertTrue(os.path.exists(f"{half}/runs/r/checkpoints/LATEST"))
        self.faults_of_run("train", self.fresh("none", out=False), lambda folder, **fault: self.train(folder, "r", **fault), f"{whole}/runs/r")
        self.faults_of_run("resume", half, lambda folder, **fault: self.command(["resume", "runs/r"], folder, **fault), f"{whole}/runs/r")
        more = {"--epochs": "3"}
        self.faults_of_run("resume for longer", whole, lambda folder, **fault: self.command(changed(["resume", "runs/r"], more), folder, **fault),
                           f"{longer}/runs/r", more)

    def test_the_default_cadence_on_a_slow_disk(self):
        """Epochs that end while a checkpoint is being written are not saved, but the best evaluation and the end are."""
        epochs, pointer = 40, "runs/r/checkpoints/LATEST"
        changes = {"--epochs": str(epochs), "--eval-every": "1ep", "--save-every": "auto"}
        each = self.fresh("each", out=False)
        done = self.train(each, "r", {**changes, "--save-every": "1ep"}, part=pointer)
        # A save creates, writes, syncs and renames the file.
        self.assertIn(f"\ncalls {4 * epochs}\n", done.stderr)
        slow = {"part": pointer, "call": 1, "how": "slow+"}
        few = self.fresh("few", out=False)
        done = self.train(few, "r", changes, **slow)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertLess(int(re.search(r"^calls (\d+)$", done.stderr, re.MULTILINE)[1]), 4 * epochs / 2)
        killed = self.fresh("killed", out=False)
        process = subprocess.Popen([GRADLOOM, *changed(TRAIN, changes), "--name", "r"], cwd=killed, stderr=subprocess.DEVNULL,
                                   env=self.environment(**slow))
        while not os.path.exists(f"{killed}/{pointer}") and process.poll() is None:
            time.sleep(0.01)
        process.kill()
        self.assertEqual(process.wait(), -signal.SIGKILL)
        self.go_on(killed, "r", {})
        for folder in (few, killed):
            self.same_run(folder, f"{each}/runs/r")
            for name in ("LATEST", "BEST"):
                self.assertEqual(*(sample_files.read(f"{run}/runs/r/checkpoints/{name}") for run in (folder, each)), f"{name} of {folder}")


if __name__ == "__main__":
    unittest.main()
