"""Runs the blocks of every documentation page from top to bottom, as a new user would paste them, and compares their output with the page.

A block that another test runs is listed in ELSEWHERE, one that no test can run in PARSED with the reason. For these, and for commands in
the text, the verbs, flags, targets and scripts must exist. A block that is in no list is run.

Three things are not repeated within a test: packages are not installed, and the build and the test suite are not started. `bazel` only
checks that its targets exist, or runs a program that the test provides.

Arguments: the command, WORKSPACE (whose real path leads to the source tree), and TARGET=PROGRAM for what `bazel run` runs.
"""
import functools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import numpy as np
import onnx
import onnxruntime
from onnx import helper

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import pages  # noqa: E402

GRADLOOM = os.path.abspath(sys.argv[1])
ROOT = os.path.dirname(os.path.realpath(sys.argv[2]))
PROGRAMS = {target: os.path.abspath(path) for target, path in (word.split("=") for word in sys.argv[3:] if "=" in word)}
sys.argv[1:] = [word for word in sys.argv[3:] if "=" not in word]
onnxruntime.disable_telemetry_events()

# Page and language: the test that runs these blocks.
ELSEWHERE = {
    ("docs/embedding.md", "c"): "tests/api:embedding_test",
    ("docs/embedding.md", "cpp"): "tests/api:embedding_test",
    ("docs/embedding.md", "sh"): "tests/api:embedding_test",
    ("docs/install.md", "sh"): "tests/api:dist_test",
    ("docs/python.md", "python"): "tests/api:package_test",
    ("docs/python.md", "sh"): "tests/api:package_test",
    ("docs/training-loops.md", "cpp"): "tests/api:training_loops_test",
    ("docs/watching.md", "sh"): "tests/e2e:watching_test",
}

# Page and beginning of a block: why it is not run.
PARSED = {
    ("README.md", "housing_mlp.onnx ─"): "a picture",
    ("docs/architecture.md", "include/gradloom/"): "folders, which are looked for",
    ("docs/benchmarks.md", "tests/bench/set_up_peers.sh"): "environments of several GB",
    ("docs/checkpoints.md", "checkpoints/"): "files, which are looked for",
    ("docs/coming-from.md", "import numpy as np\nimport torch"): "PyTorch",
    ("docs/coming-from.md", "import keras"): "Keras",
    ("docs/coming-from.md", "import numpy as np\nfrom skl2onnx"): "scikit-learn",
    ("docs/coming-from.md", "import numpy as np\nimport onnx\nfrom onnxruntime.training"): "onnxruntime-training",
    ("docs/fine-tuning.md", "import torch"): "PyTorch",
    ("docs/fine-tuning.md", "import safetensors.torch"): "PyTorch",
    ("docs/launching.md", "gradloom launch --nnodes 2"): "several hosts, and launchers that are not there",
    ("docs/operators.md", "bazel run //tests/conformance:onnx_node_tests"): "minutes; onnx_node_test compares the page",
    ("docs/processes.md", "GRADLOOM_RANK=0"): "two hosts",
    ("docs/processes.md", "torchrun"): "GPUs",
    ("docs/processes.md", "straggler"): "takes a process that something else slows down",
    ("docs/run.md", "import json, subprocess, optuna"): "Optuna; command_test reads the same lines",
    ("tests/bench/peers/README.md", "python workloads.py"): "environments of several GB",
    ("tests/conformance/README.md", "bazel run //tests/conformance:onnx_node_tests"): "minutes; onnx_node_test does the same",
    ("tests/conformance/record/README.md", "python record.py --out ../recorded"): "PyTorch",
    ("tests/conformance/record/README.md", "KERAS_BACKEND=jax TENSORFLOW_PYTHON="): "Keras, JAX, TensorFlow",
    ("tests/conformance/record/README.md", "python edit.py --from ../recorded"): "onnxsim, onnxslim",
    ("tests/conformance/record/README.md", "python record.py --out /big/zoo"): "PyTorch, timm, transformers",
    ("tests/gradient_suite/README.md", "bazel run"): "half a minute; gradient_suite_test does the same",
}

# Commands before and after those of a page: they create what the page mentions but does not create itself, and repeat commands whose output
# it shows without them.
HOUSING = "models/housing_mlp.onnx --data models/data/boston.csv --map features=CRIM..LSTAT --map target=MEDV --loss 'mse(value, target)'"
AROUND = {
    "README.md": ("", f"gradloom compile {HOUSING.split(' --data')[0]} --loss 'mse(value, target)' --optimizer adam --batch 128 -o housing.plan\n"
                  "gradloom inspect housing.plan"),
    "docs/checkpoints.md": ("", "ls -R runs/exp1/checkpoints"),
    "docs/devices.md": ("", "gradloom compile models/digits_cnn.onnx --batch 64 --devices cpu:2 -o two.plan\n"
                        "gradloom compile pair.onnx --loss 'mse(a_y, t)' --loss 'mse(b_y, u)' --place 'a_*=cpu:0' --place 'b_*=cpu:1' "
                        "--devices cpu:2 -o pair.plan\ngradloom verify pair.plan\n"
                        # tests of these folders compare them
                        "cat models/data_parallel/transcript_3.txt models/stream_hazard/transcript.txt"),
    "docs/errors.md": ("mv wrong.onnx model.onnx; gradloom check model.onnx || test $? = 2", ""),
    "docs/launching.md": ("", "port=$(python3 -c 'import socket; s = socket.socket(); s.bind((\"127.0.0.1\", 0)); print(s.getsockname()[1])')\n"
                          "for rank in 0 1; do RANK=$rank WORLD_SIZE=2 LOCAL_RANK=$rank LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port "
                          "TORCHELASTIC_RUN_ID=job SLURM_PROCID=0 SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=1 "
                          "gradloom train model.onnx --data train.csv --epochs 1 & done\nwait\n"
                          "gradloom launch --nproc-per-node 2 -- bash -c 'test $RANK = 0 && exec sleep 100; "
                          "exec gradloom train model.onnx --data wrong.csv --world-size 1 --rank 0' || test $? = 5"),
    "tests/gradient_suite/README.md": ("mkdir -p suite/gradient/test_gradient_x/test_data_set_0; cp model.onnx suite/gradient/test_gradient_x", ""),
}

# Page: text, and its replacement, for commands that would take too long.
SHORTER = {
    "models/char_gpt/README.md": [("--steps 500", "--steps 2"), ("--generate 300", "--generate 10")],
}

BAZEL = """#!/bin/bash
case "$1 $*" in
  "build "*//tools/gradloom*) test -x bazel-bin/tools/gradloom/gradloom ;;
  "test "*//...*) echo "//tests/all:tests PASSED in 1.0s" ;;
%s  *) echo "no such call: bazel $*" >&2; exit 1 ;;
esac
"""


@functools.lru_cache(maxsize=None)
def help_of(*verb):
    return subprocess.run([GRADLOOM, *verb, "--help"], check=True, capture_output=True, text=True).stdout


def flags_of(verb):
    """None if there is no such verb."""
    if verb and not re.search(rf"^  {re.escape(verb)}  ", help_of(), re.M):
        return None
    return set(re.findall(r"--[a-z][\w-]*", help_of(*filter(None, [verb]))))


def read(*names):
    with open(os.path.join(ROOT, *names)) as file:
        return file.read()


def executable(path, text):
    with open(path, "w") as file:
        file.write(text)
    os.chmod(path, 0o755)


def reason(block):
    return next((key for key in PARSED if key[0] == block.page and block.text.startswith(key[1])), None)


def make_files(folder, random=np.random.default_rng(1)):
    """Creates model.onnx with stages `encoder` and `decoder` and train.csv, which the pages mention, and other files that single pages
    need."""
    def weight(name, *shape):
        return onnx.numpy_helper.from_array(random.standard_normal(shape).astype(np.float32), name)

    def save(name, nodes, inputs, outputs, weights):
        tensors = [[helper.make_tensor_value_info(one, onnx.TensorProto.FLOAT, ["N", extent]) for one, extent in some] for some in (inputs, outputs)]
        graph = helper.make_graph([helper.make_node(op, ins, outs, name=where) for op, ins, outs, where in nodes], "g", *tensors, weights)
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), os.path.join(folder, name))

    body = [("MatMul", ["x", "encoder.weight"], ["hidden"], "/encoder/MatMul"), ("Relu", ["hidden"], ["active"], "/encoder/Relu"),
            ("MatMul", ["active", "decoder.weight"], ["logits"], "/decoder/MatMul")]
    weights = [weight("encoder.weight", 4, 8), weight("decoder.weight", 8, 3)]
    save("model.onnx", body, [("x", 4)], [("logits", 3)], weights)
    save("boxes.onnx", [*body, ("MatMul", ["active", "box.weight"], ["box"], "/box/MatMul")], [("x", 4)], [("logits", 3), ("box", 4)],
         [*weights, weight("box.weight", 8, 4)])
    save("pair.onnx", [("MatMul", [f"{p}_x", f"{p}_w"], [f"{p}_y"], f"{p}_MatMul") for p in "ab"], [("a_x", 4), ("b_x", 4)], [("a_y", 2), ("b_y", 2)],
         [weight("a_w", 4, 2), weight("b_w", 4, 2)])
    save("wrong.onnx", [("MatMul", ["x", "fc.weight"], ["y"], "/fc/MatMul")], [("x", 3)], [("y", 10)], [weight("fc.weight", 4, 10)])
    x = random.standard_normal((600, 4)).round(4)
    label = x[:, :3].argmax(1)
    np.savez(os.path.join(folder, "data.npz"), x=x.astype(np.float32), label=label, boxes=x.astype(np.float32))
    for name, last in (("train.csv", "0"), ("wrong.csv", "7")):
        rows = [",".join(map(str, [*row, kind])) for row, kind in zip(x, label)]
        rows[-1] = rows[-1][:-1] + last
        with open(os.path.join(folder, name), "w") as file:
            file.write("\n".join(["a,b,c,d,label", *rows]) + "\n")


class PagesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.texts = {page: read(page) for page in pages.pages(ROOT)}
        cls.blocks = {page: pages.blocks(page, text) for page, text in cls.texts.items()}
        cls.checker = pages.Checker(ROOT, flags_of)

    def folder(self):
        """A new folder with the necessary files of the source tree."""
        # In memory if there is room, since runs sync their files to disk and disks are not under test.
        memory = os.access("/dev/shm", os.W_OK) and shutil.disk_usage("/dev/shm").free > 1 << 30
        folder = tempfile.TemporaryDirectory(dir="/dev/shm" if memory else None)
        self.addCleanup(folder.cleanup)
        folder = folder.name
        os.makedirs(f"{folder}/bazel-bin/tools/gradloom")
        os.makedirs(f"{folder}/bin")
        for part in ("models", "tools"):
            shutil.copytree(f"{ROOT}/{part}", f"{folder}/{part}", ignore=shutil.ignore_patterns("__pycache__"))
        executable(f"{folder}/tools/install_deps.sh", "#!/bin/bash\n")
        executable(f"{folder}/tools/python_env.sh", "#!/bin/bash\n")
        for place in ("bin", "bazel-bin/tools/gradloom"):
            executable(f"{folder}/{place}/gradloom", f'#!/bin/bash\nexec {GRADLOOM} "$@"\n')
        runs = "".join(f'  "run run {target} "*) shift 3; exec {path} "$@" ;;\n' for target, path in PROGRAMS.items())
        executable(f"{folder}/bin/bazel", BAZEL % runs)
        executable(f"{folder}/bin/python3", f'#!/bin/bash\nexec {sys.executable} "$@"\n')
        executable(f"{folder}/bin/bible", f"#!/bin/bash\nhead -c 60000 {ROOT}/docs/operators.md\n")
        make_files(folder)
        return folder

    def run_page(self, page, folder):
        """Runs all blocks in one shell, like a user. Returns the output of each, stdout and stderr."""
        before, after = AROUND.get(page, ("", ""))
        scripts = [before]
        for block in self.blocks[page]:
            if reason(block) is None and (page, block.language) not in ELSEWHERE:
                if block.language == "sh":
                    scripts.append(block.text)
                elif block.language == "python":
                    scripts.append(f"python3 - <<'END OF BLOCK'\n{block.text}\nEND OF BLOCK")
        script = "set -euo pipefail\n" + "\n".join([*scripts, after])
        for old, new in SHORTER.get(page, []):
            self.assertIn(old, script)
            script = script.replace(old, new)
        done = subprocess.run(["bash"], input=script, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=240,
                              env={**os.environ, "PATH": f"{folder}/bin:{os.environ['PATH']}", "CI": "1", "PET_STANDALONE": "1"})
        self.assertEqual(done.returncode, 0, f"{page}\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
        for block in self.blocks[page]:
            if block.language == "text" and reason(block) is None:
                self.assertTrue(pages.says(done.stdout, block.text) or pages.says(done.stderr, block.text),
                                f"{block.where()} is not what was said:\n{block.text}\n{done.stdout[-6000:]}\n{done.stderr[-6000:]}")
        return done

    def test_pages(self):
        """All pages except those with a test of their own below."""
        for page, blocks in self.blocks.items():
            runs = any(reason(block) is None and (page, block.language) not in ELSEWHERE for block in blocks)
            if runs and page not in ("README.md", "docs/troubleshooting.md", "docs/coming-from.md", "docs/checkpoints.md"):
                with self.subTest(page):
                    folder = self.folder()
                    if page == "docs/losses.md":
                        shutil.move(f"{folder}/boxes.onnx", f"{folder}/model.onnx")
                    self.run_page(page, folder)

    def test_lists(self):
        """Every block that is not run is in a list, and the lists have no stale entries."""
        blocks = [block for some in self.blocks.values() for block in some]
        self.assertGreater(len(blocks), 60)
        languages = {(block.page, block.language) for block in blocks}
        self.assertLessEqual(set(ELSEWHERE), languages)
        self.assertEqual(set(PARSED), {reason(block) for block in blocks} - {None})
        for (page, _), test in ELSEWHERE.items():
            folder, name = test.split(":")
            self.assertTrue(pages.names_target(ROOT, folder, name), test)
            self.assertIn(page, read(folder, "BUILD"))
        # C and C++ programs are compiled by the test of their page, or quote files that the build compiles.
        for block in blocks:
            if block.language in ("c", "cpp") and (block.page, block.language) not in ELSEWHERE:
                self.assertTrue(self.quoted(block), f"{block.where()} is not in the file that the line before it names")

    def quoted(self, block):
        """Whether the last file named before the block contains it: its lines in order, in parts separated by `...`."""
        before = "\n".join(self.texts[block.page].split("\n")[:block.line - 1])
        path = re.findall(r"`([\w/]+\.\w+)`", before)[-1]
        parts = [" ".join(part.split()) for part in re.split(r"^ *\.\.\.$", block.text, flags=re.M)]
        return re.search(".*".join(map(re.escape, parts)), " ".join(read(path).split())) is not None

    def test_commands_that_are_not_run_exist(self):
        for page, text in self.texts.items():
            for block in self.blocks[page]:
                if block.language == "sh" and (reason(block) is not None or (page, "sh") in ELSEWHERE):
                    subprocess.run(["bash", "-nc", block.text], check=True)
                    if reason(block) is not None:
                        for words in pages.commands(block.text):
                            self.assertEqual(list(self.checker.faults(page, words)), [], f"{block.where()}: {words}")
                elif block.language == "python" and reason(block) is not None:
                    compile(block.text, block.where(), "exec")
            for span in pages.inline_commands(text):
                for words in pages.commands(span):
                    self.assertEqual(list(self.checker.faults(page, words)), [], f"{page}: {span}")

    def test_directory_layout(self):
        """docs/architecture.md lists the existing folders."""
        block = next(block for block in self.blocks["docs/architecture.md"] if reason(block) is not None)
        named = []
        for line in block.text.splitlines():
            if not line.startswith(" "):
                room = line.split()[0]
            named.append(room if line.startswith(room) else room + line.split()[0])
        for name in named:
            self.assertTrue(os.path.exists(os.path.join(ROOT, name)), name)
        for room in ("compiler", "runtime", "tools"):
            for name in os.listdir(os.path.join(ROOT, room)):
                if os.path.isdir(os.path.join(ROOT, room, name)) and name != "__pycache__":
                    self.assertIn(f"{room}/{name}/", named)

    def test_detects_errors(self):
        """With a page that was written for this test."""
        for text in ("```\nls\n```\n", "text\n\n    ls\n", "```sh\nls\n"):
            with self.assertRaises(ValueError):
                pages.blocks("page.md", text)
        self.assertEqual([(b.language, b.text) for b in pages.blocks("p", "- x\n  ```sh\n  a\n    b\n  ```\n")], [("sh", "a\n  b\n")])
        for command in ("gradloom trian m.onnx", "gradloom train m.onnx --lrr 1", "gradloom launch --nproc-per-node 2 -- train --no-such 1",
                        "srun ls", "A=1 gradloom inspect x --no-such", "bazel run //tests/e2e:no_such", "bazel test //no/such/...",
                        "python3 tools/no_such.py", "python3 models/char_gpt/make_model.py --no-such x", "tools/no_such.sh", "no_such_program"):
            with self.subTest(command):
                self.assertEqual(len([fault for words in pages.commands(command) for fault in self.checker.faults("README.md", words)]), 1)
        for command in ("gradloom train m.onnx --lr 1 && gradloom eval runs/x", "gradloom launch --nproc-per-node 2 -- train m.onnx --lr=1",
                        "torchrun --no-python --any gradloom train ...", "bazel run //models/stream_hazard", "gradloom --version > x"):
            self.assertEqual([fault for words in pages.commands(command) for fault in self.checker.faults("README.md", words)], [], command)
        self.assertTrue(pages.says("took 3.25 s, pid 77\n 12 rows", "took 1.5 s, pid 9   as always\n12 rows"))
        self.assertFalse(pages.says("took 3.25 s\n13 rows", "took 1.5 s\n12 rows"))

    def test_readme(self):
        folder = self.folder()
        done = self.run_page("README.md", folder)
        self.assertIn("1 passed, 0 failed", done.stdout)
        self.assertIn("trained models: ", done.stdout)
        self.assertRegex(done.stdout, r"4096 .* ms .*%")
        self.assertTrue(os.path.exists(f"{folder}/plan.html"))
        evaluation = next(json.loads(line) for line in done.stdout.splitlines() if line.startswith("{"))
        self.assertLess(evaluation["rmse"], 6)
        table = np.loadtxt(f"{folder}/models/data/boston.csv", delimiter=",", skiprows=1, dtype="float32")
        with np.load(f"{folder}/predictions.npz") as predictions:
            values = predictions["value"]
        self.assertAlmostEqual(float(np.sqrt(np.mean((values - table[:, 13:]) ** 2))), evaluation["rmse"], delta=1e-4)
        with open(f"{folder}/runs/second/data.json") as file:
            transform = json.load(file)["transforms"]["features"][0]
        inputs = (table[:, :13] - np.float32(transform["shift"])) * np.float32(transform["scale"])
        session = onnxruntime.InferenceSession(f"{folder}/trained.onnx", providers=["CPUExecutionProvider"])
        np.testing.assert_allclose(session.run(None, {"features": inputs})[0], values, rtol=1e-4, atol=1e-4)

    def test_troubleshooting(self):
        folder = self.folder()
        self.assertIn("E-DIVERGED", self.run_page("docs/troubleshooting.md", folder).stderr)
        self.assertTrue(os.path.exists(f"{folder}/runs/converges/export/model.onnx"))

    def test_coming_from(self):
        folder = self.folder()
        self.assertRegex(self.run_page("docs/coming-from.md", folder).stdout, r"rmse +[\d.]+")
        self.assertTrue(os.path.exists(f"{folder}/housing.onnx"))

    def test_checkpoints(self):
        """The files that the page lists are those of the run."""
        folder = self.folder()
        self.run_page("docs/checkpoints.md", folder)
        block = next(block for block in self.blocks["docs/checkpoints.md"] if reason(block) is not None)
        names = " ".join(re.split(r" {2,}", line.strip())[0] for line in block.text.splitlines())
        named = {re.sub(r"step-\d+", "step-N", name.strip("/,")) for name in names.split()}
        for where, folders, names in os.walk(f"{folder}/runs/exp1/checkpoints"):
            for name in [*folders, *names]:
                self.assertIn(re.sub(r"step-\d+", "step-N", name), named)


if __name__ == "__main__":
    unittest.main()
