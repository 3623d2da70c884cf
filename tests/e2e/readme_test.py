"""The README from top to bottom, as somebody new would paste it: each block is run, in a copy of the repository.

Three things are not done again inside of a test: packages are not installed, and the build and the test suite are not
started; `bazel` only says that it was called with targets that there are.
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import numpy as np
import onnxruntime

GRADLOOM, README = (os.path.abspath(word) for word in sys.argv[1:3])
sys.argv[1:3] = []
ROOT = os.path.dirname(README)
onnxruntime.disable_telemetry_events()

BAZEL = """#!/bin/bash
case "$1 $*" in
  "build "*//tools/gradloom*) test -x bazel-bin/tools/gradloom/gradloom ;;
  "test "*//...*) echo "//tests/all:tests PASSED in 1.0s" ;;
  *) echo "no such call: bazel $*" >&2; exit 1 ;;
esac
"""


def blocks(page):
    with open(page) as file:
        return re.findall(r"^```sh\n(.*?)^```$", file.read(), re.M | re.S)


def executable(path, text):
    with open(path, "w") as file:
        file.write(text)
    os.chmod(path, 0o755)


class ReadmeTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        os.makedirs(f"{self.folder}/bazel-bin/tools/gradloom")
        os.makedirs(f"{self.folder}/bin")
        shutil.copytree(f"{ROOT}/models", f"{self.folder}/models")
        shutil.copytree(f"{ROOT}/tools", f"{self.folder}/tools", ignore=lambda folder, names: [n for n in names if not n.endswith(".sh")])
        executable(f"{self.folder}/tools/install_deps.sh", "#!/bin/bash\n")
        executable(f"{self.folder}/tools/python_env.sh", "#!/bin/bash\n")
        executable(f"{self.folder}/bazel-bin/tools/gradloom/gradloom", f'#!/bin/bash\nexec {GRADLOOM} "$@"\n')
        executable(f"{self.folder}/bin/bazel", BAZEL)

    def run_all(self, scripts):
        """One shell for all blocks, as a person has one."""
        script = "set -euo pipefail\n" + "\n".join(f"echo '### block {i}' >&2\n{text}" for i, text in enumerate(scripts))
        done = subprocess.run(["bash"], input=script, cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=240,
                              env={**os.environ, "PATH": f"{self.folder}/bin:{os.environ['PATH']}", "CI": "1"})
        self.assertEqual(done.returncode, 0, done.stderr[-4000:])
        return done

    def test_readme(self):
        scripts = blocks(README)
        self.assertEqual(len(scripts), 5)
        done = self.run_all(scripts)
        self.assertIn("1 passed, 0 failed", done.stdout)
        self.assertIn("trained models: ", done.stdout)
        self.assertRegex(done.stdout, r"4096 .* ms .*%")
        self.assertTrue(os.path.exists(f"{self.folder}/plan.html"))
        evaluation = next(json.loads(line) for line in done.stdout.splitlines() if line.startswith("{"))
        self.assertLess(evaluation["rmse"], 6)
        table = np.loadtxt(f"{self.folder}/models/data/boston.csv", delimiter=",", skiprows=1, dtype="float32")
        with np.load(f"{self.folder}/predictions.npz") as predictions:
            values = predictions["value"]
        self.assertAlmostEqual(float(np.sqrt(np.mean((values - table[:, 13:]) ** 2))), evaluation["rmse"], delta=1e-4)
        with open(f"{self.folder}/runs/second/data.json") as file:
            transform = json.load(file)["transforms"]["features"][0]
        inputs = (table[:, :13] - np.float32(transform["shift"])) * np.float32(transform["scale"])
        session = onnxruntime.InferenceSession(f"{self.folder}/trained.onnx", providers=["CPUExecutionProvider"])
        np.testing.assert_allclose(session.run(None, {"features": inputs})[0], values, rtol=1e-4, atol=1e-4)

    def test_troubleshooting(self):
        done = self.run_all(['export PATH="$PWD/bazel-bin/tools/gradloom:$PATH"', *blocks(f"{ROOT}/docs/troubleshooting.md")])
        self.assertIn("E-DIVERGED", done.stderr)
        self.assertTrue(os.path.exists(f"{self.folder}/runs/converges/export/model.onnx"))

    def test_coming_from(self):
        done = self.run_all(['export PATH="$PWD/bazel-bin/tools/gradloom:$PATH"', *blocks(f"{ROOT}/docs/coming-from.md")])
        self.assertRegex(done.stdout, r"rmse +[\d.]+")
        self.assertTrue(os.path.exists(f"{self.folder}/housing.onnx"))


if __name__ == "__main__":
    unittest.main()
