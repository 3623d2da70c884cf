"""What the screen says of a run and its results is what they are, on several devices, too."""
import json
import os
import re
import subprocess
import sys
import unittest

GRADLOOM = os.path.abspath(sys.argv.pop(1))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import sample_files  # noqa: E402
from sample_files import TRAIN  # noqa: E402

STAGES = ["--place", "/fc1=cpu:0", "--place", "/act=cpu:0", "--place", "/fc2=cpu:1"]


class ScreenTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        sample_files.in_folder_of(cls)
        cls.count = 0
        cls.run_command(cls, [*TRAIN, "--name", "main"])

    def run_command(self, words, code=0):
        done = subprocess.run([GRADLOOM, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120)
        if done.returncode != code:
            raise AssertionError(f"{words}: exit {done.returncode}, not {code}\n{done.stderr}")
        return done

    def train(self, *words):
        return self.run_command([*TRAIN, "--threads", "1", *words]).stderr

    def devices(self, *words):
        """The line of the header, with the whole text."""
        said = self.train(*words)
        return re.search(r"^devices \d* ?x? ?cpu.*instructions per step$", said, re.M)[0], said

    def test_a_device_without_work(self):
        line, said = self.devices("--devices", "cpu:2", "--place", "*=cpu:1")
        self.assertRegex(line, r"at most [1-9]\d* instructions per step")
        self.assertIn("warning device 1 of 2 has nothing to compute: use fewer --devices, or --place some nodes there\n", said)
        self.assertRegex(said, r"memory  .* allocated, .* cached, .* free on cpu:1, which uses most\n")
        self.assertNotIn("nothing to compute", self.train("--devices", "cpu:2"))

    def test_collectives_of_accumulated_batches(self):
        line, _ = self.devices("--devices", "cpu:2", "--batch", "32", "--micro-batch", "8")
        # The losses of four batches, and the gradients of 67 numbers in float32 that the devices have summed first.
        self.assertRegex(line, r"  5 all-reduces \(2[78]\d B\)")

    def test_micro_batches_that_there_are(self):
        line, _ = self.devices("--devices", "cpu:2", *STAGES, "--pipeline", "100")
        count = int(re.search(r"2 kinds of model parts  (\d+) micro-batches in a pipeline", line)[1])
        self.assertLessEqual(count, 32)
        self.assertIn("  4 micro-batches in a pipeline", self.devices("--devices", "cpu:2", *STAGES, "--pipeline", "4")[0])

    def test_one_device_that_gathers(self):
        self.assertNotIn("kinds of model parts", self.devices("--gather-to", "cpu:0")[0])

    def test_a_job_is_told_what_helps_it(self):
        said = self.run_command(["launch", "--nproc-per-node", "2", "--", *TRAIN, "--threads", "1"]).stderr
        self.assertRegex(said, r"warning 1 device would be faster than 2: .* predicted; start the job with fewer processes\n")
        self.assertNotIn("try --devices", said)

    def test_an_algorithm_of_the_file_has_its_own_rate(self):
        self.run_command(["export", "runs/main", "--training", "-o", "training.onnx"])
        rows = ["train", "training.onnx", "--data", "train.csv", "--map", "x=a..d", "--map", "label=label", "--epochs", "1"]
        for progress, lines in (("plain", r" step=\d+ .*loss="), ("json", r'"split":"train"')):
            said = self.run_command([*rows, "--progress", progress, "--log-every", "1"]).stderr
            shown = [line for line in said.split("\n") if re.search(lines, line)]
            self.assertTrue(shown, said)
            self.assertFalse([line for line in shown if re.search(r'\blr="?|"lr"', line)])
            self.assertTrue(all("samples" in line for line in shown))
        plain = ["plain" if word == "none" else word for word in TRAIN]
        self.assertIn(" lr=1.00e-03", self.run_command([*plain, "--log-every", "1"]).stderr)

    def test_weights_without_a_step(self):
        self.run_command(["export", "runs/main", "-o", "w.safetensors"])
        self.assertTrue(self.run_command(["inspect", "w.safetensors"]).stdout.startswith("a safetensors file\n"))
        self.assertIsNone(json.loads(self.run_command(["inspect", "w.safetensors", "--json"]).stdout)["step"])
        self.assertIn("a safetensors file, after 2 updates\n", self.run_command(["inspect", "runs/main/state.safetensors"]).stdout)

    def test_predictions_have_the_same_digits_in_all_texts(self):
        text = self.run_command(["predict", "runs/main", "--data", "train.csv"]).stdout
        self.run_command(["predict", "runs/main", "--data", "train.csv", "-o", "y.csv"])
        with open("y.csv") as file:
            table = [line.split(",") for line in file.read().split("\n")[1:] if line]
        rows = json.loads(text, parse_float=str)["logits"]
        self.assertEqual([[float(number) for number in row] for row in rows], [[float(number) for number in row] for row in table])
        self.assertEqual([[re.sub(r"\.0$", "", number) for number in row] for row in rows], table)


if __name__ == "__main__":
    unittest.main()
