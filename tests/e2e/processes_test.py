"""Several processes train one run: to the bits of as many devices in one process, and to a clear end where one of them is lost."""
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

GRADLOOM = os.path.abspath(sys.argv.pop(1))
# 1,437 rows in batches of 50: the last one has 37, and no number of devices divides it. Dropout, batch statistics, accumulation.
DIGITS = ["models/digits_cnn.onnx", "--mode", "train", "--data", "models/data/digits.csv.gz", "--map", "image=p0..p63", "--map", "label=label",
          "--eval-split", "20%", "--loss", "cross_entropy(logits, label)", "--metric", "accuracy", "--metric", "top_k(3)", "--optimizer", "adamw",
          "--lr", "0.01", "--schedule", "one_cycle", "--accumulate", "2", "--clip-norm", "1", "--batch", "50", "--epochs", "2", "--eval-every", "7",
          "--save-every", "5", "--log-every", "3", "--threads", "1", "--progress", "none"]


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def without_times(path):
    with open(path) as file:
        return re.sub(r'"(t|samples_per_s|mem_mb)":("[^"]*"|[0-9.e+-]+|null),?', "", file.read())


class Job:
    """The processes of a job, started and not yet ended."""

    def __init__(self, world, words, own=(), environment=None):
        port = free_port()
        self.processes = []
        for rank in range(world):
            job = {"GRADLOOM_RANK": rank, "GRADLOOM_WORLD_SIZE": world, "GRADLOOM_LOCAL_RANK": rank, "GRADLOOM_LOCAL_WORLD_SIZE": world,
                   "GRADLOOM_MASTER_ADDR": "127.0.0.1", "GRADLOOM_MASTER_PORT": port}
            extra = dict(own).get(rank, [])
            self.processes.append(subprocess.Popen(
                [GRADLOOM, *words, *extra], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                env={**os.environ, **{name: str(value) for name, value in job.items()}, **(environment or {})}))

    def end(self, timeout=180):
        """What each process printed on stderr; the codes are theirs."""
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


class ProcessesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.out = cls.folder.name

    def one(self, words, code=0):
        done = subprocess.run([GRADLOOM, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=180)
        self.assertEqual(done.returncode, code, done.stderr)
        return done

    def job(self, world, words, code=0, **options):
        job = Job(world, words, **options)
        said = job.end()
        self.assertEqual(job.codes(), [code] * world, "\n".join(said))
        return said

    def path(self, *names):
        return os.path.join(self.out, *names)

    def train(self, name, *flags):
        return ["train", *DIGITS, "--name", name, "--out", self.out, *flags]

    def assert_same_run(self, ours, theirs):
        """Weights, optimizer state, the model and all numbers that are no times."""
        for name in ("state.safetensors", "export/model.onnx"):
            with open(self.path(ours, name), "rb") as a, open(self.path(theirs, name), "rb") as b:
                self.assertTrue(a.read() == b.read(), f"{name} of {ours} and {theirs}")
        self.assertEqual(without_times(self.path(ours, "metrics.jsonl")), without_times(self.path(theirs, "metrics.jsonl")))

    def wait_for(self, path, job):
        end = time.monotonic() + 120
        while not os.path.exists(path):
            self.assertEqual(job.codes(), [None] * len(job.processes), "a process ended")
            self.assertLess(time.monotonic(), end, f"no {path}")
            for process in job.processes:
                process.poll()
            time.sleep(0.01)

    def test_bits_of_one_process(self):
        for world, each in ((2, 1), (3, 1), (5, 1), (2, 2)):
            with self.subTest(processes=world, devices_each=each):
                self.one(self.train(f"one{world}x{each}", "--devices", f"cpu:{world * each}"))
                said = self.job(world, self.train(f"job{world}x{each}", "--devices", f"cpu:{each}"))
                self.assertIn("done in", said[0])
                self.assertEqual(said[1:], [""] * (world - 1), "rank 0 alone shows what happens")
                self.assert_same_run(f"job{world}x{each}", f"one{world}x{each}")

    def test_resume_with_any_number_of_processes(self):
        self.one(self.train("whole", "--devices", "cpu:3"))
        job = Job(3, self.train("stopped"))
        try:
            self.wait_for(self.path("stopped", "checkpoints", "LATEST"), job)
            job.processes[1].send_signal(signal.SIGTERM)
            said = job.end()
        finally:
            job.kill()
        self.assertEqual(job.codes(), [138] * 3, "\n".join(said))
        self.assertIn("stopped by SIGTERM after step", said[0])
        for world in (3, 2, 1):
            run = f"on{world}"
            shutil.copytree(self.path("stopped"), self.path(run))
            if world > 1:
                self.job(world, ["resume", self.path(run)])
            else:
                self.one(["resume", self.path(run)])
            self.assert_same_run(run, "whole")

    def test_a_killed_rank_ends_the_job(self):
        for victim in (1, 0, 2):
            name = f"killed{victim}"
            job = Job(3, self.train(name, "--epochs", "100000"))
            try:
                self.wait_for(self.path(name, "checkpoints", "LATEST"), job)
                pid = job.processes[victim].pid
                start = time.monotonic()
                job.processes[victim].kill()
                said = job.end(timeout=60)
                took = time.monotonic() - start
            finally:
                job.kill()
            self.assertEqual(job.codes(), [-9 if rank == victim else 140 for rank in range(3)], "\n".join(said))
            self.assertLess(took, 5)
            for rank in {0, 1, 2} - {victim}:
                self.assertRegex(said[rank], rf"error\[E-PEER\]: rank {victim} \(host \S+, pid {pid}\) is gone: .*, at step [\d,]+\n"
                                             rf"  --> rank {rank} waited in .*#\d+.*; last checkpoint: step [\d,]+ \(complete\)\n"
                                             rf"  help: gradloom resume {self.path(name)}\n")
            resume = re.search(r"help: gradloom (resume \S+)", said[1 if victim != 1 else 0]).group(1).split()
            self.one([*resume, "--steps", "40"])

    def test_a_stopped_rank_ends_the_job(self):
        job = Job(3, self.train("hung", "--epochs", "100000", "--collective-timeout", "4s"))
        try:
            self.wait_for(self.path("hung", "checkpoints", "LATEST"), job)
            job.processes[2].send_signal(signal.SIGSTOP)
            said = [process.communicate(timeout=60)[1] for process in job.processes[:2]]
            job.processes[2].send_signal(signal.SIGCONT)
            said += [job.processes[2].communicate(timeout=60)[1]]
        finally:
            job.kill()
        self.assertEqual(job.codes(), [140] * 3, "\n".join(said))
        for rank in (0, 1):
            self.assertRegex(said[rank], r"E-PEER\]: rank 2 \(host \S+, pid \d+\) has not answered within the collective timeout of 4 s")

    def test_differences_are_refused(self):
        said = self.job(2, self.train("differs"), code=4, own={1: ["--lr", "0.5"]})
        for text in said:
            self.assertRegex(text, r"E-CONFIG\]: the processes of the job differ: rank 0 \(.*\) has optimizer.lr = 0.01, and rank 1 \(.*\) has "
                                   r"optimizer.lr = 0.5\n")
        self.assertFalse(os.path.exists(self.path("differs")))
        with open("models/data/digits.csv.gz", "rb") as file:
            rows = file.read()
        import gzip
        with gzip.open(self.path("fewer.csv.gz"), "wb") as file:
            file.write(b"".join(gzip.decompress(rows).splitlines(True)[:-9]))

    def test_an_error_of_one_rank_is_told_to_all(self):
        # Rank 1 cannot read the model; the others learn why it stopped.
        job = Job(2, self.train("alone"), own={1: ["--model", self.path("missing.onnx")]})
        said = job.end()
        self.assertEqual(job.codes()[0] != 0, True, said[0])

    def test_a_rank_that_does_not_come(self):
        port = free_port()
        environment = {"GRADLOOM_RANK": "0", "GRADLOOM_WORLD_SIZE": "2", "GRADLOOM_MASTER_ADDR": "127.0.0.1", "GRADLOOM_MASTER_PORT": str(port)}
        done = subprocess.run([GRADLOOM, *self.train("lonely", "--collective-timeout", "2s")], env={**os.environ, **environment},
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60)
        self.assertEqual(done.returncode, 140, done.stderr)
        self.assertIn("of the job's 2 processes these have not come: rank 1", done.stderr)

    def test_report(self):
        job = Job(2, self.train("report", "--report", "json"))
        outputs = [process.communicate(timeout=180) for process in job.processes]
        self.assertEqual(job.codes(), [0, 0], outputs)
        self.assertEqual(json.loads(outputs[0][0])["run"], self.path("report"))
        self.assertEqual(outputs[1][0], "")


if __name__ == "__main__":
    unittest.main(verbosity=2)
