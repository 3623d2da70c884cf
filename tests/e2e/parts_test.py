"""The stages of a replica lie in several processes: training gives the bits of one process with the same devices, and each process saves
its own part."""
import glob
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import unittest

import numpy as np
import safetensors.numpy

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from jobs import Job, JobTest  # noqa: E402

GRADLOOM = os.path.abspath(sys.argv.pop(1))

TWO = ["--place", "block3*=cpu:1"]
PIPELINE = [*TWO, "--pipeline", "4"]
SHARDED = ["--shard-optimizer"]
THREE = [*TWO, "--place", "logits_node=cpu:2"]

# A command whose rank 1 sees a different folder at the path given by the first word.
OTHER_FOLDER = r"""out=$1; shift; [ "$GRADLOOM_RANK" = 1 ] && { mount -t tmpfs none "$out" && mkdir -p "$out/$NAME/checkpoints" || exit 99; }; exec "$@" """

SHORT_FILES = r"""[ "$GRADLOOM_RANK" = 1 ] && { trap "" XFSZ; ulimit -f 8; }; exec "$@" """


class PartsTest(JobTest):
    gradloom = GRADLOOM

    def train(self, name, place, **changes):
        return [*super().train(name, **changes), *place]

    def newest(self, run):
        with open(self.path(run, "checkpoints", "LATEST")) as file:
            return self.path(run, "checkpoints", file.read().strip())

    def parts(self, checkpoint):
        """The tensors of each part."""
        return [safetensors.numpy.load_file(path) for path in sorted(glob.glob(os.path.join(checkpoint, "rank-*.safetensors")))]

    def assert_same_checkpoint(self, ours, theirs, files):
        parts = self.parts(ours)
        self.assertEqual(len(parts), files)
        names = [name for part in parts for name in part]
        self.assertEqual(len(names), len(set(names)), "a tensor is in two parts")
        ours, theirs = ({name: value for part in parts for name, value in part.items()} for parts in (parts, self.parts(theirs)))
        self.assertEqual(sorted(ours), sorted(theirs))
        for name, value in ours.items():
            self.assertEqual(value.tobytes(), theirs[name].tobytes(), name)

    def test_bits_of_one_process(self):
        # Processes, devices of each, stages of a replica, files of a checkpoint.
        short = {"epochs": "1"}
        cases = [(2, 1, TWO, 2, {}), (3, 1, THREE, 3, {"transport": "tcp", **short}), (4, 1, TWO, 2, short), (3, 2, THREE, 2, short),
                 (2, 1, TWO, 2, {"precision": "fp16", **short}), (2, 2, TWO, 1, short), (2, 1, ["--gather-to", "cpu:0"], 1, short), (3, 1, SHARDED, 3, {}),
                 (2, 1, PIPELINE, 2, short), (4, 1, PIPELINE, 2, {"precision": "bf16", **short}),
                 (2, 2, SHARDED, 2, {"precision": "fp16", **short})]
        for i, (world, each, place, files, changes) in enumerate(cases):
            with self.subTest(processes=world, devices_each=each, place=place, **changes):
                self.one(self.train(f"one{i}", place, devices=f"cpu:{world * each}", **changes))
                said = self.job(world, self.train(f"job{i}", place, devices=f"cpu:{each}", **changes))
                self.assertEqual(said[1:], [""] * (world - 1), "rank 0 alone shows what happens")
                self.assert_same_run(f"job{i}", f"one{i}")
                self.assert_same_checkpoint(self.newest(f"job{i}"), self.newest(f"one{i}"), files)

    def test_resume_with_any_number_of_processes(self):
        self.one(self.train("whole", TWO, devices="cpu:4"))
        self.stopped(4, self.train("stopped", TWO, devices="cpu:1"), "stopped")
        self.assertEqual(len(self.parts(self.newest("stopped"))), 2)
        for world in (4, 3, 2, 1):
            run = f"on{world}"
            shutil.copytree(self.path("stopped"), self.path(run))
            said = self.job(world, ["resume", self.path(run)]) if world > 1 else [self.one(["resume", self.path(run)]).stderr]
            self.assertNotIn("resume  from the start", said[0])
            self.assert_same_run(run, "whole")
        # From one process to several.
        self.stopped(1, self.train("stopped_one", TWO, devices="cpu:4"), "stopped_one")
        self.assertEqual(len(self.parts(self.newest("stopped_one"))), 1)
        self.job(4, ["resume", self.path("stopped_one")])
        self.assert_same_run("stopped_one", "whole")

    def test_resume_with_and_without_shared_out_state(self):
        """Whether devices share out the optimizer's state is a matter of each run."""
        self.one(self.train("never_shared", [], devices="cpu:3"))
        for i, (before, after) in enumerate(((SHARDED, ["--set", "devices.shard_optimizer=false"]), ([], SHARDED))):
            run = f"switched{i}"
            self.stopped(1, self.train(run, before, devices="cpu:3"), run)
            said = self.one(["resume", self.path(run), *after]).stderr
            self.assertNotIn("changed optimizer", said)
            self.assert_same_run(run, "never_shared")

    def test_users_of_a_checkpoint_read_all_parts(self):
        changes = {"steps": "12", "save_every": "4", "eval_every": "4", "accumulate": "1"}
        self.one(self.train("used_one", TWO, devices="cpu:2", **changes))
        self.job(2, self.train("used", TWO, devices="cpu:1", best="eval/accuracy:max", **changes))
        data = ["--data", "models/data/digits.csv.gz"]
        for verb, made in ((["export", "-o", "{}.onnx"], ".onnx"), (["export", "--training", "-o", "{}.onnx"], ".onnx"),
                           (["export", "-o", "{}.safetensors"], ".safetensors"), (["predict", *data, "-o", "{}.npz"], ".npz"), (["eval", *data, "--json"], "")):
            for source in ("step-000004", "step-000008"):
                answers = []
                for run in ("used_one", "used"):
                    words = [verb[0], self.path(run), "--from", source, *(word.format(self.path(run)) for word in verb[1:])]
                    answers.append(self.one(words).stdout.replace(self.path(run), "RUN"))
                with self.subTest(verb=verb, source=source):
                    if made:
                        with open(self.path("used_one") + made, "rb") as a, open(self.path("used") + made, "rb") as b:
                            self.assertTrue(a.read() == b.read())
                    else:
                        first, second = map(json.loads, answers)
                        self.assertEqual([second.pop("weights"), first.pop("weights")],
                                         [f"RUN/checkpoints/{source}", f"RUN/checkpoints/{source}/rank-0.safetensors"])
                        self.assertEqual(first, second)
        self.one(["export", self.path("used"), "--from", "best", "-o", self.path("best.onnx")])
        # Several processes use a model as they trained it. If there are more of them than devices, they divide whole batches.
        for world in (2, 3):
            said = self.job(world, ["predict", self.path("used"), *data, "-o", self.path(f"by{world}.npz"), "--from", "step-000008"])[0]
            self.assertEqual("devices cpu:2 of 2 processes, which run each batch together" in said, world == 2, said)
            with open(self.path("used.npz"), "rb") as a, open(self.path(f"by{world}.npz"), "rb") as b:
                self.assertTrue(a.read() == b.read())
            judge = ["eval", self.path("used"), "--from", "step-000008", *data, "--json"]
            job = Job(GRADLOOM, world, judge)
            judged = [process.communicate(timeout=180) for process in job.processes]
            self.assertEqual(job.codes(), [0] * world, judged)
            self.assertEqual([out for out, _ in judged], [self.one(judge).stdout] + [""] * (world - 1))
        # The weights of a checkpoint start another run; each process reads those that it needs.
        start = self.path("used", "checkpoints", "step-000008")
        self.one(self.train("begun_one", TWO, devices="cpu:2", steps="3", init_weights=start))
        self.job(2, self.train("begun", TWO, devices="cpu:1", steps="3", init_weights=start))
        self.assert_same_run("begun", "begun_one")

    def test_damaged_checkpoints_are_skipped(self):
        changes = {"steps": "12", "save_every": "4", "keep": "9", "eval_every": "never"}
        self.one(self.train("sound", TWO, devices="cpu:2", **changes))
        self.job(2, self.train("damaged", TWO, devices="cpu:1", **changes))
        folder = self.path("damaged", "checkpoints")
        shutil.copy(os.path.join(folder, "step-000012", "rank-1.safetensors"), os.path.join(folder, "step-000012", "rank-2.safetensors"))
        with open(os.path.join(folder, "step-000008", "rank-1.safetensors"), "r+b") as file:
            file.seek(-3, os.SEEK_END)
            byte = file.read(1)
            file.seek(-3, os.SEEK_END)
            file.write(bytes([byte[0] ^ 4]))
        said = self.job(2, ["resume", self.path("damaged")])[0]
        self.assertRegex(said, r"skipped .*step-000012: 'rank-2.safetensors' does not belong to the checkpoint: .*")
        self.assertRegex(said, r"skipped .*step-000008: the file is damaged: .* \(.*rank-1.safetensors\)")
        self.assertRegex(said, r"resume +.*step-000004")
        self.assert_same_run("damaged", "sound")
        os.remove(os.path.join(self.newest("damaged"), "rank-1.safetensors"))
        said = self.one(["eval", self.path("damaged"), "--from", os.path.basename(self.newest("damaged"))], code=7).stderr
        self.assertIn("E-CHECKPOINT]: 'rank-1.safetensors' is missing", said)

    def test_saves_at_time_intervals(self):
        self.one(self.train("clock_one", TWO, devices="cpu:2", epochs="8"))
        self.job(2, self.train("clock", TWO, devices="cpu:1", epochs="8", save_every="1s", keep="1000"))
        self.assert_same_run("clock", "clock_one")
        # Saves at intervals, and a final one. How many there are depends on the machine.
        steps = [name for name in os.listdir(self.path("clock", "checkpoints")) if name.startswith("step-")]
        self.assertGreaterEqual(len(steps), 1, steps)
        self.assertEqual({len(self.parts(self.path("clock", "checkpoints", step))) for step in steps}, {2})

    def test_saves_that_fall_due_during_evaluations(self):
        """Most of the time goes to evaluations of many batches, between which the processes agree on signals and saves, too. The first
        evaluation stays the best, so that there are few other saves."""
        for epochs in (8, 32, 128, 512):
            name = f"evaluated{epochs}"
            start = time.monotonic()
            self.job(2, self.train(name, TWO, devices="cpu:1", epochs=str(epochs), batch="8", accumulate="1", eval_split="95%", save_every="1s",
                                   best="eval/loss:max", keep="1000"))
            if time.monotonic() - start > 6:
                break
        steps = [step for step in os.listdir(self.path(name, "checkpoints")) if step.startswith("step-")]
        self.assertGreaterEqual(len(steps), 4, steps)

    def test_all_skip_non_finite_batches(self):
        with open("models/data/digits.csv.gz", "rb") as file:
            table = subprocess.run(["gzip", "-dc"], stdin=file, stdout=subprocess.PIPE, check=True).stdout.decode().splitlines()
        for row in (40, 700):
            fields = table[row].split(",")
            fields[3] = "nan"
            table[row] = ",".join(fields)
        data = self.path("nan.csv")
        with open(data, "w") as file:
            file.write("\n".join(table) + "\n")
        words = {"data": data, "on_nan": "skip", "eval_every": "never", "accumulate": "1", "epochs": "1"}
        said = self.one(self.train("nan_one", TWO, devices="cpu:2", **words)).stderr
        self.assertRegex(said, r"skipped [1-9]\d* batches")
        self.job(2, self.train("nan", TWO, devices="cpu:1", **words))
        self.assert_same_run("nan", "nan_one")

    def test_a_part_that_cannot_be_written(self):
        """Files of rank 1 are limited to 8 KiB, less than its part needs."""
        for name, answer, code in (("full", "stop", 8), ("full_on", "continue", 0)):
            words = self.train(name, TWO, devices="cpu:1", transport="tcp", steps="12", save_every="4", eval_every="never", on_save_error=answer)
            job = Job(GRADLOOM, 2, words, around=["bash", "-c", SHORT_FILES, "bash"])
            said = job.end()
            self.assertEqual(job.codes(), [code, 140 if code else 0], "\n".join(said))
            self.assertRegex(said[0], r"rank 1 \(host \S+, pid \d+\): cannot write .*; the checkpoint needs \d+ bytes")
            # Nothing is left of it that could be taken for a checkpoint.
            self.assertEqual(os.listdir(self.path(name, "checkpoints")), ["LOCK"])

    def test_a_folder_missing_on_one_host(self):
        """Rank 1 sees an empty folder of the same name."""
        name = "apart"
        words = ["unshare", "--user", "--map-root-user", "--mount", "bash", "-c", OTHER_FOLDER, "bash", self.out]
        job = Job(GRADLOOM, 2, self.train(name, TWO, devices="cpu:1"), around=words, environment={"NAME": name})
        said = job.end()
        if job.codes()[1] == 99 or any("unshare: " in text for text in said):
            self.skipTest("no folders of its own can be had here: " + "\n".join(said))
        self.assertEqual(job.codes(), [4, 4], "\n".join(said))
        for text in said:
            self.assertRegex(text, r"E-CONFIG\]: rank 1 \(host \S+, pid \d+\) does not see the run's folder, where it must save its part")
            self.assertIn(self.path(name, "checkpoints"), text)
        self.assertEqual([entry for entry in os.listdir(self.path(name, "checkpoints")) if entry != "LOCK"], [])

    def test_a_job_with_a_killed_rank_ends_and_resumes(self):
        self.one(self.train("unbroken", THREE, devices="cpu:3"))
        for victim in (0, 1, 2):
            name = f"killed{victim}"
            self.interrupted(name, 3, self.train(name, THREE, devices="cpu:1"), victim, signal.SIGKILL,
                             [-9 if rank == victim else 140 for rank in range(3)])
            self.job(3, ["resume", self.path(name)])
            self.assert_same_run(name, "unbroken")


if __name__ == "__main__":
    unittest.main(verbosity=2)
