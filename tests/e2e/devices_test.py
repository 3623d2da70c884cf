"""The figures of this machine that `devices --measure` finds, and the verbs that predict with them."""
import json
import os
import re
import subprocess
import sys
import unittest

GRADLOOM = os.path.abspath(sys.argv.pop(1))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import sample_files  # noqa: E402

LOSS = ["--loss", "cross_entropy(logits, label)", "--batch", "8"]


def run(words, code=0, **variables):
    done = subprocess.run([GRADLOOM, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120, env={**os.environ, **variables})
    if done.returncode != code:
        raise AssertionError(f"{words}: exit {done.returncode}, not {code}\n{done.stderr}")
    return done


class DevicesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = sample_files.in_folder_of(cls)
        cls.measured = json.loads(run(["devices", "--measure", "-o", "machine.toml", "--json"]).stdout)
        with open("machine.toml") as file:
            cls.text = file.read()

    def test_figures_are_those_of_a_computer(self):
        device, node = self.measured["device"], self.measured["node"]
        ranges = {"flops_per_second": (1e8, 1e12), "functions_per_second": (1e7, 1e12), "bytes_per_second": (1e8, 1e12),
                  "cache_bytes_per_second": (1e8, 1e13), "cache_bytes": (1e5, 1e10), "bandwidth_threads": (1, 1024), "launch_seconds": (1e-9, 1e-3),
                  "team_seconds": (0, 0.1), "step_seconds": (1e-9, 0.01), "wake_seconds": (0, 0.1), "event_seconds": (0, 0.1)}
        for key, (least, most) in ranges.items():
            self.assertTrue(least <= device[key] <= most, f"{key} = {device[key]}")
        self.assertGreaterEqual(device["cache_bytes_per_second"], device["bytes_per_second"])
        self.assertTrue(1e-8 < node["link_seconds"] < 0.1 and 1e7 < node["link_bytes_per_second"] < 1e12, node)
        self.assertEqual(node["shared_cores"], self.measured["cores"])
        self.assertLess(self.measured["seconds"], 60)
        self.assertEqual(self.measured["busy"], self.measured["variation"] > 0.25 or self.measured["waited"] > 0.05)
        self.assertTrue(0 <= self.measured["waited"] < 1)

    def test_the_file_says_what_was_measured(self):
        first, rest = self.text.split("\n", 1)
        self.assertRegex(first, r"^# .*: measured by 'gradloom devices --measure' on \d{4}-\d\d-\d\dT")
        self.assertIn(self.measured["cpu"], first)
        self.assertIn('[device]\nkind = "cpu"\n', rest)
        for section in ("device", "node", "network"):
            for key, value in self.measured[section].items():
                found = re.search(rf"\[{section}\]\n(?:[^\[]*\n)?{key} = (\S+)\n", rest)
                self.assertEqual(float(found[1]), value, key)

    def test_people_read_them_too(self):
        text = run(["devices", "--measure"]).stdout
        for line in ("cpu", "products", "functions", "memory", "caches", "launch", "step", "event", "all-reduce"):
            self.assertRegex(text, rf"(?m)^{line} ")

    def test_every_verb_predicts_with_the_file(self):
        plan = ["compile", "model.onnx", *LOSS, "--devices", "cpu:2", "-o", "t.plan", "--topology", "machine.toml", "--emit-html", "compiled.html"]
        self.assertIn("predicted step: 1 device", run(plan).stderr)

        def step(topology):
            return json.loads(run(["simulate", "t.plan", "--topology", topology, "--json"]).stdout)["simulations"][0]["step_ms"]

        # With everything a thousand times slower, a step takes a thousand times as long.
        slow = re.sub(r"(?m)^(\w+_per_second) = (\S+)", lambda m: f"{m[1]} = {float(m[2]) / 1000!r}", self.text)
        slow = re.sub(r"(?m)^(\w*seconds) = (\S+)", lambda m: f"{m[1]} = {float(m[2]) * 1000!r}", slow)
        sample_files.write("slow.toml", slow)
        measured, slower = step("machine.toml"), step("slow.toml")
        self.assertAlmostEqual(slower / measured, 1000, delta=1)
        run(["simulate", "t.plan", "--topology", "machine.toml", "--devices", "1,2,64"])
        run(["check", "model.onnx", *LOSS, "--devices", "cpu:2", "--topology", "machine.toml"])
        run(["train", "model.onnx", "--data", "train.csv", *LOSS, "--devices", "cpu:2", "--topology", "machine.toml", "--epochs", "1", "--progress",
             "none"])

        def predicted(*flags):
            found = re.search(r"predicted ([\d.]+) (m?s)", run(["inspect", "t.plan", "--streams", *flags]).stdout)
            return float(found[1]) * (1 if found[2] == "ms" else 1000)

        self.assertAlmostEqual(predicted("--topology", "machine.toml"), measured, delta=1e-3 * measured)
        self.assertAlmostEqual(predicted("--topology", "slow.toml"), slower, delta=1e-3 * slower)
        run(["inspect", "t.plan", "--html", "machine.html", "--topology", "machine.toml"])
        run(["inspect", "t.plan", "--html", "slow.html", "--topology", "slow.toml"])
        pages = []
        for page in ("machine.html", "slow.html", "compiled.html"):
            with open(page) as file:
                pages.append(file.read())
        self.assertNotEqual(pages[0], pages[1])
        self.assertEqual(pages[0], pages[2])

    def test_the_instruction_set_is_that_of_the_kernels(self):
        def isa(allowed):
            return json.loads(run(["devices", "--json"], ONEDNN_MAX_CPU_ISA=allowed).stdout)["devices"][0]["isa"]

        self.assertEqual(isa("SSE41"), "baseline")
        self.assertIn(isa("AVX2"), ("avx2", "baseline"))

    def test_what_is_refused(self):
        run(["compile", "model.onnx", *LOSS, "-o", "one.plan"])
        self.assertIn("only --streams and --html show predicted times", run(["inspect", "one.plan", "--topology", "machine.toml"], 4).stderr)
        self.assertIn("--topology", run(["inspect", "model.onnx", "--topology", "machine.toml"], 4).stderr)
        run(["inspect", "one.plan", "--streams", "--topology", "nowhere.toml"], 2)
        run(["devices", "-o", "machine2.toml"], 4)
        run(["devices", "runs/none", "--measure"], 4)
        run(["devices", "--measure", "-o", "nowhere/machine.toml"], 8)


if __name__ == "__main__":
    unittest.main()
