"""Jobs whose processes are killed go on to the bits of an unbroken run.

GRADLOOM_KILLS says how many kills at random times there are, and GRADLOOM_EVERY_CALL=1 that each system call of the saves has its turn, for each
process: docs/verification.md has the figures of such a run.
"""
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from jobs import Job, digits  # noqa: E402

GRADLOOM, KILL_AT_CALL = map(os.path.abspath, (sys.argv.pop(1), sys.argv.pop(1)))
KILLS = int(os.environ.get("GRADLOOM_KILLS", "5"))
EVERY_CALL = os.environ.get("GRADLOOM_EVERY_CALL") == "1"
# Two saves, and the last.
SHORT = {"--steps": "11", "--eval-every": "never"}
# Each process has a part of the model, and saves that.
PARTS = {"--place": "block3*=cpu:1"}


class KilledJobsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.out = folder.name
        subprocess.run([GRADLOOM, *cls.train("unbroken", {"--devices": "cpu:2"})], check=True, capture_output=True, timeout=180)
        for name, short in (("short", SHORT), ("short_parts", {**SHORT, **PARTS})):
            subprocess.run([GRADLOOM, *cls.train(name, {"--devices": "cpu:2", **short})], check=True, capture_output=True, timeout=180)

    @classmethod
    def train(cls, name, changes=()):
        return ["train", *digits(dict(changes)), "--name", name, "--out", cls.out]

    def path(self, *names):
        return os.path.join(self.out, *names)

    def go_on(self, name, changes=()):
        """The words that start the run, or go on with it."""
        if os.path.exists(self.path(name, "plan.plan")):
            return ["resume", self.path(name)]
        # Killed before there was a run.
        shutil.rmtree(self.path(name), ignore_errors=True)
        return self.train(name, changes)

    def assert_same(self, name, other):
        for file in ("state.safetensors", "export/model.onnx"):
            with open(self.path(name, file), "rb") as ours, open(self.path(other, file), "rb") as theirs:
                self.assertTrue(ours.read() == theirs.read(), f"{file} of {name}")
        # A run has the step that its last checkpoint is of, and nothing half done beside it.
        left = [entry for entry in os.listdir(self.path(name, "checkpoints")) if re.search(r"\.(tmp|old)\.", entry)]
        self.assertEqual(left, [])

    def end(self, job, killed=()):
        """0 of each process, or how those end that are killed and those that miss them."""
        said = job.end()
        for code in job.codes():
            self.assertIn(code, (0, -9, 137, 140) if killed else (0,), "\n".join(said))
        return said

    def test_killed_at_random_times(self):
        seed = random.SystemRandom().randrange(10**6)
        print("seed", seed, flush=True)
        rng = random.Random(seed)
        kills = runs = 0
        while kills < KILLS or runs < 1:
            name = f"killed{runs}"
            while True:
                job = Job(GRADLOOM, 2, self.go_on(name))
                try:
                    # Where enough were killed, the run may end.
                    job.processes[0].wait(timeout=rng.uniform(0.1, 2) if kills < KILLS else 180)
                    self.end(job)
                    break
                except subprocess.TimeoutExpired:
                    # One of them, or both; a launcher ends who is left, as one that has not met the other yet would wait for it.
                    for process in rng.choice([job.processes[:1], job.processes[1:], job.processes]):
                        process.kill()
                    for process in job.processes:
                        try:
                            process.wait(timeout=3)
                        except subprocess.TimeoutExpired:
                            process.kill()
                    self.end(job, killed=True)
                    kills += 1
                finally:
                    job.kill()
            self.assert_same(name, "unbroken")
            runs += 1
        print(f"{kills} kills, {runs} runs", flush=True)

    def calls_of(self, name, short, number, traced, victim):
        """Trains under a count of what a rank changes in the checkpoints; how many such calls there were. At one of them the victim is killed."""
        part = self.path(name, "checkpoints") + "/"
        job = Job(GRADLOOM, 2, self.train(name, short), last=traced,
                  under=lambda others: [KILL_AT_CALL, part, str(number), str(0 if victim == traced else others[victim].pid), "--"])
        said = self.end(job, killed=number > 0)
        return int(re.search(r"^calls (\d+)$", said[traced], re.MULTILINE).group(1))

    def kill_at_calls(self, whole, short, traced, least):
        calls = self.calls_of(f"counted_{whole}{traced}", short, 0, traced, traced)
        self.assert_same(f"counted_{whole}{traced}", whole)
        self.assertGreater(calls, least)
        numbers = range(1, calls + 1) if EVERY_CALL else random.sample(range(1, calls + 1), 3)
        print(f"{calls} calls of rank {traced}, of which these: {'all' if EVERY_CALL else numbers}", flush=True)
        for number in numbers:
            for victim in (0, 1):
                with self.subTest(call=number, of=traced, victim=victim):
                    name = f"{whole}_at{number}of{traced}_{victim}"
                    self.calls_of(name, short, number, traced, victim)
                    # From the first save on there is one that loads, whenever that was.
                    saved = os.path.exists(self.path(name, "checkpoints", "LATEST"))
                    said = self.end(Job(GRADLOOM, 2, self.go_on(name, short)))
                    if saved:
                        self.assertNotIn("resume  from the start", said[0])
                    self.assert_same(name, whole)
                    shutil.rmtree(self.path(name))

    # Three files are written in each of the saves, with what makes them safe.
    def test_killed_at_the_calls_of_a_save(self):
        self.kill_at_calls("short", SHORT, 0, 3 * 12)

    def test_killed_at_the_calls_of_a_save_in_parts(self):
        self.kill_at_calls("short_parts", {**SHORT, **PARTS}, 0, 3 * 12)

    # Rank 1 writes a file in each.
    def test_killed_at_the_calls_of_a_part(self):
        self.kill_at_calls("short_parts", {**SHORT, **PARTS}, 1, 3 * 4)


if __name__ == "__main__":
    unittest.main(verbosity=2)
