"""Processes that train one set of parameters in shared memory without locks: what is guaranteed, and what remains afterwards."""
import csv
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import numpy as np
import onnx
import safetensors.numpy
from onnx import helper

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from jobs import Job, digits, write_png  # noqa: E402

GRADLOOM = os.path.abspath(sys.argv.pop(1))
HOGWILD = {"--sync": "hogwild", "--accumulate": "1", "--transport": "auto"}


def memory_of(processes):
    """The processes that have the parameters of a job mapped."""
    found = []
    for pid in processes:
        try:
            with open(f"/proc/{pid}/maps") as maps:
                if "gradloom-parameters" in maps.read():
                    found.append(pid)
        except OSError:
            pass
    return found


def named_memory():
    return {name for name in os.listdir("/dev/shm") if "gradloom" in name}


class HogwildTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.out = folder.name

    def path(self, *names):
        return os.path.join(self.out, *names)

    def train(self, name, **changes):
        flags = {"--" + key.replace("_", "-"): value for key, value in changes.items()}
        return ["train", *digits({**HOGWILD, **flags}), "--name", name, "--out", self.out]

    def lines(self, name, split):
        with open(self.path(name, "metrics.jsonl")) as file:
            return [line for line in map(json.loads, file) if line["split"] == split]

    def ended(self, job, codes):
        """The output of the processes of a job, which must have ended with these codes."""
        said = job.end()
        self.assertEqual(job.codes(), codes, "\n".join(said))
        self.assertEqual(named_memory(), set())
        return said

    def wait_for(self, what, job):
        end = time.monotonic() + 120
        while not what():
            self.assertEqual([process.poll() for process in job.processes], [None] * len(job.processes), "a process ended")
            self.assertLess(time.monotonic(), end)
            time.sleep(0.01)

    def wait_for_checkpoint(self, name, job):
        self.wait_for(lambda: os.path.exists(self.path(name, "checkpoints", "LATEST")), job)

    def test_every_update_is_counted(self):
        """The gradient of this loss is 1 for each weight, whatever the weights are, so the amount that is missing in the end shows the lost
        updates."""
        weights = np.zeros((64, 1), "float32")
        graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "linear",
                                  [helper.make_tensor_value_info("x", 1, ["N", 64])], [helper.make_tensor_value_info("y", 1, ["N", 1])],
                                  [onnx.numpy_helper.from_array(weights, "w")])
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), self.path("linear.onnx"))
        np.savez(self.path("ones.npz"), x=np.ones((64, 64), "float32"), t=np.full((64, 1), 1e6, "float32"))
        done = subprocess.run(
            [GRADLOOM, "launch", "--standalone", "--nproc-per-node", "4", "--", "train", self.path("linear.onnx"), "--data",
             self.path("ones.npz"), "--loss", "l1(y, t)", "--optimizer", "sgd", "--lr", "0.0009765625", "--batch", "8", "--epochs", "500",
             "--sync", "hogwild", "--eval-every", "never", "--log-every", "1000", "--threads", "1", "--progress", "none", "--report", "json",
             "--out", self.out, "--name", "linear"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=180)
        self.assertEqual(done.returncode, 0, done.stderr)
        said = json.loads(done.stdout.strip().splitlines()[-1])
        self.assertEqual(said["steps"], 4000)
        self.assertEqual(said["hogwild"]["updates"], 4000)
        trained = safetensors.numpy.load_file(self.path("linear", "state.safetensors"))["w"]
        had = trained.astype("float64") / 0.0009765625
        np.testing.assert_array_equal(had, np.round(had), "a part of an update")
        lost = 4000 - had
        self.assertGreaterEqual(lost.min(), 0)
        # There is no guarantee, but the method relies on most updates arriving.
        self.assertLess(lost.mean(), 2000)
        self.assertGreaterEqual(said["hogwild"]["marks_lost"], 0)
        print(f"of {had.size * 4000} updates of a weight {int(lost.sum())} were lost; of {said['hogwild']['marks']} marks "
              f"{said['hogwild']['marks_lost']}; {said['hogwild']['updates_meanwhile']:.2f} updates of others during one", flush=True)

    def test_it_trains(self):
        job = Job(GRADLOOM, 4, self.train("digits", epochs="8", optimizer="momentum", lr="0.02", schedule="constant"))
        said = self.ended(job, [0] * 4)
        self.assertIn("hogwild: 4 processes", said[0])
        self.assertEqual(said[1:], [""] * 3, "rank 0 alone shows what happens")
        self.assertGreater(self.lines("digits", "eval")[-1]["accuracy"], 0.8)
        steps = [line["step"] for line in self.lines("digits", "train")]
        self.assertEqual(steps, sorted(set(steps)))
        # 29 batches per epoch, each trained on once by some process.
        self.assertRegex(said[0], r"hogwild 4 processes, 232 updates")
        with open(self.path("digits", "results.csv")) as file:
            epochs = list(csv.DictReader(file))
        self.assertEqual((epochs[-1]["epoch"], epochs[-1]["step"]), ("8", "232"))
        with open(self.path("digits", "log.txt")) as file:
            self.assertIn("memory", file.read())

    def test_killed_ranks(self):
        for victim in (0, 1):
            name = f"killed{victim}"
            job = Job(GRADLOOM, 3, self.train(name, epochs="100000"))
            try:
                self.wait_for_checkpoint(name, job)
                pids = [process.pid for process in job.processes]
                self.assertEqual(memory_of(pids), pids)
                job.processes[victim].kill()
                said = self.ended(job, [-9 if rank == victim else 140 for rank in range(3)])
            finally:
                job.kill()
            for rank in {0, 1, 2} - {victim}:
                self.assertRegex(said[rank], rf"E-PEER\]: rank {victim} \(host \S+, pid {pids[victim]}\) is gone: .*, at step [\d,]+\n")
        # With another number of processes, and with accumulated gradients.
        run = self.path("killed1")
        self.ended(Job(GRADLOOM, 2, ["resume", run, "--steps", "3000", "--eval-every", "never", "--save-every", "never"]), [0, 0])
        self.assertTrue(os.path.isdir(self.path("killed1", "checkpoints", "step-003000")))
        self.ended(Job(GRADLOOM, 2, ["resume", run, "--steps", "3010", "--sync", "allreduce", "--devices", "cpu:1"]), [0, 0])

    def test_stop_and_resume(self):
        job = Job(GRADLOOM, 3, self.train("stopped", epochs="100000"))
        try:
            self.wait_for_checkpoint("stopped", job)
            job.processes[2].send_signal(signal.SIGTERM)
            said = self.ended(job, [138] * 3)
        finally:
            job.kill()
        step = int(re.search(r"stopped by SIGTERM after step (\d+)", said[0]).group(1))
        self.assertTrue(os.path.isdir(self.path("stopped", "checkpoints", f"step-{step:06}")))
        said = self.ended(Job(GRADLOOM, 3, ["resume", self.path("stopped"), "--steps", str(step + 50)]), [0] * 3)
        # All batches before that had been trained on.
        self.assertRegex(said[0], r"hogwild 3 processes, 50 updates")

    def test_a_reduced_learning_rate_is_resumed(self):
        words = self.train("plateau", schedule="constant", steps="60", eval_every="10", plateau_patience="0", plateau_threshold="1",
                           plateau_factor="0.5")
        self.ended(Job(GRADLOOM, 2, words), [0, 0])
        self.ended(Job(GRADLOOM, 2, ["resume", self.path("plateau"), "--steps", "90"]), [0, 0])
        rates = [line["lr"] for line in self.lines("plateau", "train")]
        self.assertEqual(rates, sorted(rates, reverse=True))
        self.assertLess(rates[-1], rates[0])

    def test_a_stopped_rank_delays_nobody(self):
        job = Job(GRADLOOM, 3, self.train("hung", epochs="100000", collective_timeout="5s"))
        try:
            self.wait_for_checkpoint("hung", job)
            job.processes[1].send_signal(signal.SIGSTOP)
            latest = self.path("hung", "checkpoints", "LATEST")
            with open(latest) as file:
                seen = file.read()

            def later():
                with open(latest) as file:
                    return file.read() != seen
            self.wait_for(later, job)
            # They wait for it only at the end.
            job.processes[0].send_signal(signal.SIGTERM)
            said = [job.processes[rank].communicate(timeout=100)[1] for rank in (0, 2)]
            job.processes[1].send_signal(signal.SIGCONT)
            job.processes[1].communicate(timeout=60)
        finally:
            job.kill()
        self.assertEqual(job.codes(), [140] * 3, "\n".join(said))
        self.assertRegex(said[0], r"E-PEER\]: rank 1 \(host \S+, pid \d+\) has not answered within the collective timeout of 5 s")

    def test_images(self):
        for i in range(67):
            os.makedirs(self.path("pictures", f"class{i % 10}"), exist_ok=True)
            write_png(self.path("pictures", f"class{i % 10}", f"{i}.png"), [[(x * 31 + y * 17 + i * 29) % 256 for x in range(8)] for y in range(8)])
        words = ["train", "models/digits_cnn.onnx", "--mode", "train", "--data", self.path("pictures"), "--loss", "cross_entropy(logits, label)",
                 "--transform", "image=random_crop 2", "--batch", "10", "--epochs", "7", "--threads", "1", "--progress", "none", "--sync",
                 "hogwild", "--out", self.out, "--name", "images"]
        said = self.ended(Job(GRADLOOM, 2, words), [0, 0])
        self.assertRegex(said[0], r"hogwild 2 processes, 49 updates")

    def test_refusals(self):
        for flags, message in (({"devices": "cpu:2"}, "with hogwild each process must have one device"),
                               ({"accumulate": "2"}, "with hogwild each process updates after each of its batches"),
                               ({"ema": "0.9"}, "with hogwild each process would average the weights after its own updates only"),
                               ({"micro_batch": "25"}, "with hogwild each process updates after each of its batches"),
                               ({"on_nan": "skip"}, "with hogwild an update cannot be undone")):
            said = self.ended(Job(GRADLOOM, 2, self.train("refused", **flags)), [3, 3])
            self.assertIn("error[E-UNSUPPORTED]: " + message, said[0])
        words = [*self.train("refused"), "--nnodes", "2", "--local-rank", "0", "--local-world-size", "1", "--node-rank"]
        said = self.ended(Job(GRADLOOM, 2, words, own={rank: [*words, str(rank)] for rank in (0, 1)}), [3, 3])
        self.assertIn("error[E-UNSUPPORTED]: hogwild needs all processes on one host, but the job has 2", said[0])
        self.assertFalse(os.path.exists(self.path("refused")))


if __name__ == "__main__":
    unittest.main(verbosity=2)
