"""The measurements of `bench`: what it prints, writes and refuses."""
import json
import os
import subprocess
import sys
import unittest

GRADLOOM = os.path.abspath(sys.argv.pop(1))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import sample_files  # noqa: E402


class BenchTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = sample_files.in_folder_of(cls)

    def run_command(self, words, code=0, environment=None):
        done = subprocess.run([GRADLOOM, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60, env=environment)
        if done.returncode != code:
            raise AssertionError(f"{words}: exit {done.returncode}, not {code}\n{done.stderr}")
        return done

    def json(self, words, code=0):
        return json.loads(self.run_command(words, code).stdout)

    def test_bench_runs_in_one_process(self):
        words = ["bench", "model.onnx", "--loss", "cross_entropy(logits, label)", "--batch", "16", "--steps", "1", "--repeats", "1"]
        refused = self.run_command(["launch", "--standalone", "--nproc-per-node", "2", "--", *words], 3).stderr
        self.assertIn("bench measures one process, but this job has 2, which would disturb each other", refused)
        alone = {**os.environ, "RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1", "GRADLOOM_WORLD_SIZE": "1",
                 "GRADLOOM_RANK": "0"}
        self.run_command(words, environment=alone)

    def test_bench(self):
        words = ["bench", "model.onnx", "--loss", "cross_entropy(logits, label)", "--batch", "16", "--steps", "20", "--repeats", "3"]
        line = self.json([*words, "-o", "bench.json", "--json"])
        with open("bench.json") as file:
            self.assertEqual(json.load(file), line)
        self.assertEqual((line["steps"], line["batch"], len(line["repeat_medians_ms"])), (60, 16, 3))
        self.assertLessEqual(line["ms_min"], line["ms_per_step"])
        self.assertLessEqual(line["ms_per_step"], line["ms_p99"])
        self.assertAlmostEqual(line["samples_per_s"], 16e3 / line["ms_per_step"], delta=1e-6 * line["samples_per_s"])
        self.assertAlmostEqual(sum(op["share"] for op in line["ops"]), 1, places=6)
        self.assertGreater(line["first_step_s"], line["compile_s"])
        self.assertGreater(line["peak_bytes"], line["planned_bytes"])
        self.assertEqual((line["devices"], line["precision"]), ("cpu", "fp32"))
        # One device has no collectives, and it is busy for a part of the step.
        self.assertTrue(0 < line["device_busy"] <= 1, line)
        self.assertEqual(line["exposed_allreduce_ms"], 0)
        self.assertTrue(line["host_ms"] > 0 and 0 <= line["wait_share"] < 1, line)
        self.assertIn("bench/nowhere", self.run_command([*words, "-o", "bench/nowhere"], 8).stderr)
        text = self.run_command([*words, "--data", "train.csv"]).stdout
        for word in ("step time", "throughput", "device busy", "first step", "memory", "top ops", "advice", "RESULT"):
            self.assertIn(f"\n{word}", text)
        # With several devices and another precision, all operators are named, and waits are not counted as operators.
        line = self.json([*words, "--devices", "cpu:2", "--threads", "1", "--precision", "bf16", "--json"])
        self.assertEqual((line["devices"], line["precision"]), ("2 x cpu", "bf16"))
        self.assertIn("all-reduce", [op["op"] for op in line["ops"]])
        self.assertGreater(line["exposed_allreduce_ms"], 0)
        self.assertTrue(0 < line["device_busy"] < 1, line)
        self.assertTrue(all(op["op"] for op in line["ops"]))
        self.assertIn("  2 x cpu, 1 thread each  bf16  ", self.run_command([*words, "--devices", "cpu:2", "--threads", "1", "--precision", "bf16"]).stdout)


if __name__ == "__main__":
    unittest.main()
