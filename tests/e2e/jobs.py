"""Runs jobs of several processes, and defines what they train."""
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time
import unittest
import zlib

# 1,437 rows in batches of 50: the last batch has 37 rows, and no number of devices divides it. With dropout, batch statistics, and gradient
# accumulation.
DIGITS = ["models/digits_cnn.onnx", "--mode", "train", "--data", "models/data/digits.csv.gz", "--map", "image=p0..p63", "--map", "label=label",
          "--eval-split", "20%", "--loss", "cross_entropy(logits, label)", "--metric", "accuracy", "--metric", "top5", "--optimizer", "adamw",
          "--lr", "0.01", "--schedule", "one_cycle", "--accumulate", "2", "--clip-norm", "1", "--batch", "50", "--epochs", "2", "--eval-every", "7",
          "--save-every", "5", "--log-every", "3", "--threads", "1", "--progress", "none"]

# A model without convolutions, which trains fast: 404 rows in batches of 64, the last one of 20.
HOUSING = ["models/housing_mlp.onnx", "--data", "models/data/boston.csv", "--map", "features=CRIM..LSTAT", "--map", "target=MEDV", "--transform",
           "features=standardize", "--eval-split", "20%", "--loss", "mse(value, target)", "--optimizer", "adam", "--lr", "0.01", "--batch", "64",
           "--epochs", "3", "--save-every", "5", "--threads", "1", "--progress", "none"]


def changed(words, changes):
    """The words of a command with other values, such as {"--epochs": "4"}, and with additional flags."""
    words, left = list(words), dict(changes)
    for i in range(1, len(words) - 1):
        if words[i] in left:
            words[i + 1] = left.pop(words[i])
    return words + [word for pair in left.items() for word in pair]


def digits(changes):
    return changed(DIGITS, changes)


def write_png(path, rows):
    """Writes a grayscale image."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    with open(path, "wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", len(rows[0]), len(rows), 8, 0, 0, 0, 0)) +
                   chunk(b"IDAT", zlib.compress(b"".join(b"\0" + bytes(row) for row in rows))) + chunk(b"IEND", b""))


def without_times(path):
    """The lines of a metrics.jsonl without the fields that differ between runs."""
    with open(path) as file:
        return re.sub(r'"(t|samples_per_s|(?:gpu_)?mem_mb)":("[^"]*"|[0-9.e+-]+|null),?', "", file.read())


def assert_same_run(test, ours, theirs):
    """Compares the folders of two runs: weights, optimizer state, the model, and all numbers except times."""
    for name in ("state.safetensors", "export/model.onnx"):
        with open(os.path.join(ours, name), "rb") as a, open(os.path.join(theirs, name), "rb") as b:
            test.assertTrue(a.read() == b.read(), f"{name} of {ours} and {theirs}")
    test.assertEqual(*(without_times(os.path.join(run, "metrics.jsonl")) for run in (ours, theirs)))


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Job:
    """The processes of a job, which have been started and may still run."""

    def __init__(self, gradloom, world, words, own=(), environment=None, under=None, last=0, around=()):
        """`own` maps a rank to the words that replace the common command. `under`, called with the other processes by rank once they run,
        returns a command prefix for rank `last`. `around` is a command prefix for each process."""
        port = free_port()
        started = {}
        for rank in [rank for rank in reversed(range(world)) if rank != last] + [last]:
            job = {"GRADLOOM_RANK": rank, "GRADLOOM_WORLD_SIZE": world, "GRADLOOM_LOCAL_RANK": rank, "GRADLOOM_LOCAL_WORLD_SIZE": world,
                   "GRADLOOM_MASTER_ADDR": "127.0.0.1", "GRADLOOM_MASTER_PORT": port}
            before = under(started) if under is not None and rank == last else around
            started[rank] = subprocess.Popen(
                [*before, gradloom, *dict(own).get(rank, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                env={**os.environ, **{name: str(value) for name, value in job.items()}, **(environment or {})})
        self.processes = [started[rank] for rank in range(world)]

    def end(self, timeout=180):
        """What each process printed to stderr. The exit codes must be these."""
        try:
            return [process.communicate(timeout=timeout)[1] for process in self.processes]
        finally:
            self.kill()

    def codes(self):
        return [process.returncode for process in self.processes]

    def kill(self):
        for process in self.processes:
            if process.poll() is None:
                process.kill()
                process.communicate()


class JobTest(unittest.TestCase):
    """Runs commands in a folder of the class, which provides the path of the command as `gradloom`."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.out = cls.folder.name

    def one(self, words, code=0):
        done = subprocess.run([self.gradloom, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=180)
        self.assertEqual(done.returncode, code, done.stderr)
        return done

    def job(self, world, words, code=0, **options):
        job = Job(self.gradloom, world, words, **options)
        said = job.end()
        self.assertEqual(job.codes(), [code] * world, "\n".join(said))
        return said

    def path(self, *names):
        return os.path.join(self.out, *names)

    def read(self, *names):
        with open(self.path(*names)) as file:
            return file.read()

    def train(self, name, **changes):
        """A training command with the flags of DIGITS, changed by keyword arguments: epochs="4"."""
        flags = {"--" + key.replace("_", "-"): value for key, value in changes.items()}
        return ["train", *digits(flags), "--name", name, "--out", self.out]

    def assert_same_run(self, ours, theirs):
        assert_same_run(self, self.path(ours), self.path(theirs))

    def interrupted(self, run, world, words, victim, signal_number, codes):
        """The output of the processes of a run that a signal to one rank ends after its first checkpoint. On a busy machine the run may
        have finished before that; then this is tried again."""
        for _ in range(10):
            shutil.rmtree(self.path(run), ignore_errors=True)
            job = Job(self.gradloom, world, words)
            try:
                end = time.monotonic() + 120
                while not os.path.exists(self.path(run, "checkpoints", "LATEST")) and None in job.codes():
                    self.assertLess(time.monotonic(), end)
                    for process in job.processes:
                        process.poll()
                    time.sleep(0.01)
                job.processes[victim].send_signal(signal_number)
                said = job.end()
            finally:
                job.kill()
            if 0 not in job.codes():
                break
        self.assertEqual(job.codes(), codes, "\n".join(said))
        return said

    def stopped(self, world, words, run):
        """The same with SIGTERM to the last rank, which stops all."""
        return self.interrupted(run, world, words, world - 1, signal.SIGTERM, [138] * world)

    def wait_for(self, path, job):
        self.wait_until(lambda: os.path.exists(path), path, job)

    def wait_until(self, condition, what, job):
        end = time.monotonic() + 120
        while not condition():
            self.assertEqual(job.codes(), [None] * len(job.processes), "a process ended")
            self.assertLess(time.monotonic(), end, f"no {what}")
            for process in job.processes:
                process.poll()
            time.sleep(0.01)
