"""Jobs whose processes are killed, or run out of memory, resume to the bits of an uninterrupted run.

GRADLOOM_KILLS is the number of kills at random times. GRADLOOM_EVERY_CALL=1 tries each system call of the saves, for each process, and
GRADLOOM_ALLOCATIONS is the number of allocations that fail in each process. docs/verification.md has the figures of such a run.
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
from jobs import HOUSING, Job, changed, digits  # noqa: E402
from sanitized import SANITIZED  # noqa: E402

GRADLOOM, KILL_AT_CALL, FAILING_ALLOCATION = (os.path.abspath(sys.argv.pop(1)) for _ in range(3))
KILLS = int(os.environ.get("GRADLOOM_KILLS", "5"))
ALLOCATIONS = int(os.environ.get("GRADLOOM_ALLOCATIONS", "3"))
EVERY_CALL = os.environ.get("GRADLOOM_EVERY_CALL") == "1"
# Two saves, and the last. What is between them matters little, so the batches are small.
SHORT = {"--steps": "11", "--eval-every": "never", "--batch": "10"}
# Leak detection does not work under ptrace, which stops the processes at their calls.
if SANITIZED:
    os.environ["ASAN_OPTIONS"] = os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"
# Each process has a stage of the model and saves it.
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
        """The command that starts or resumes the run."""
        if os.path.exists(self.path(name, "plan.plan")):
            return ["resume", self.path(name)]
        # The run was killed before its folder was complete.
        shutil.rmtree(self.path(name), ignore_errors=True)
        return self.train(name, changes)

    def assert_same(self, name, other):
        for file in ("state.safetensors", "export/model.onnx"):
            with open(self.path(name, file), "rb") as ours, open(self.path(other, file), "rb") as theirs:
                self.assertTrue(ours.read() == theirs.read(), f"{file} of {name}")
        # A run has exactly the step of its last checkpoint, and no partial files.
        left = [entry for entry in os.listdir(self.path(name, "checkpoints")) if re.search(r"\.(tmp|old)\.", entry)]
        self.assertEqual(left, [])

    def end(self, job, killed=()):
        """Each process ends with 0, or with the codes of killed processes and of those that lost a peer."""
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
                    # After enough kills, the run may finish.
                    job.processes[0].wait(timeout=rng.uniform(0.1, 2) if kills < KILLS else 180)
                    self.end(job)
                    break
                except subprocess.TimeoutExpired:
                    # Kills one of them, or both. A launcher would end the remaining one, which waits for its peer if they have not
                    # connected yet.
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
        """Trains while counting a rank's calls that change the checkpoints, and returns their number. The victim is killed at one of them.
        """
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
                    # After the first save, some checkpoint must always load.
                    saved = os.path.exists(self.path(name, "checkpoints", "LATEST"))
                    said = self.end(Job(GRADLOOM, 2, self.go_on(name, short)))
                    if saved:
                        self.assertNotIn("resume  from the start", said[0])
                    self.assert_same(name, whole)
                    shutil.rmtree(self.path(name))

    # Each save writes three files, and makes the calls that make them durable.
    def test_killed_at_the_calls_of_a_save(self):
        self.kill_at_calls("short", SHORT, 0, 3 * 12)

    def test_killed_at_the_calls_of_a_save_in_parts(self):
        self.kill_at_calls("short_parts", {**SHORT, **PARTS}, 0, 3 * 12)

    # Rank 1 writes one file per save.
    def test_killed_at_the_calls_of_a_part(self):
        self.kill_at_calls("short_parts", {**SHORT, **PARTS}, 1, 3 * 4)

    def brief(self, name):
        return ["train", *changed(HOUSING, {"--steps": "7", "--connect-timeout": "20s", "--name": name, "--out": self.out})]

    def without(self, name, victim, number):
        """Trains with one failing allocation in the rank `victim`. Returns the output and exit codes of its processes."""
        job = Job(GRADLOOM, 2, self.brief(name), last=victim,
                  under=lambda _: ["env", f"LD_PRELOAD={FAILING_ALLOCATION}", f"GRADLOOM_FAIL_ALLOCATION={number}"])
        return job.end(timeout=120), job.codes()

    @unittest.skipIf(SANITIZED, "what is preloaded is in a sanitizer's place")
    def test_an_allocation_that_fails(self):
        """An allocation of one rank fails, anywhere in main: either the rank can do without, or all processes end with errors that state
        the reason, and the run can be resumed."""
        seed = random.SystemRandom().randrange(10**6)
        print("seed", seed, flush=True)
        rng = random.Random(seed)
        ends = {}
        for victim in (0, 1):
            said, codes = self.without(f"enough{victim}", victim, 0)
            self.assertEqual(codes, [0, 0], said)
            count = int(re.search(r"^allocations (\d+)$", said[victim], re.MULTILINE).group(1))
            self.assertGreater(count, 10000)
            # An eighth of the allocations happen before the processes are connected. If one of these fails, the other process waits for its
            # timeout.
            first = 1 if "GRADLOOM_ALLOCATIONS" in os.environ else count // 5
            numbers = rng.sample(range(first, count + 1), min(ALLOCATIONS, count + 1 - first))
            for number in numbers:
                with self.subTest(allocation=number, of=count, rank=victim):
                    name = f"lacks{number}of{victim}"
                    said, codes = self.without(name, victim, number)
                    ends[victim, *codes] = ends.get((victim, *codes), 0) + 1
                    if codes != [0, 0]:
                        self.assertEqual(codes[victim], 8, "\n".join(said))
                        self.assertIn("error[E-RESOURCE]", said[victim])
                        # What rank 0 writes at the end no longer concerns the others.
                        self.assertIn(codes[1 - victim], (140,) if victim == 1 else (140, 0), "\n".join(said))
                        if codes[1 - victim] == 140:
                            self.assertRegex(said[1 - victim], rf"error\[E-PEER\]: (rank {victim} \(host \S+, pid \d+\) (stopped: E-RESOURCE: |is gone: )"
                                             rf"|rank 0 does not answer|some of the job's 2 processes have not connected: rank 1)")
                        begun = os.path.exists(self.path(name, "plan.plan"))
                        if not begun:
                            shutil.rmtree(self.path(name), ignore_errors=True)
                        self.end(Job(GRADLOOM, 2, ["resume", self.path(name)] if begun else self.brief(name)))
                    self.assert_same(name, f"enough{victim}")
                shutil.rmtree(self.path(f"lacks{number}of{victim}"), ignore_errors=True)
        for (victim, *codes), times in sorted(ends.items()):
            print(f"rank {victim} lacked memory, exits {codes}: {times}", flush=True)


if __name__ == "__main__":
    unittest.main(verbosity=2)
