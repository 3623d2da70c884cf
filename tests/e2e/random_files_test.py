"""Random data files and configurations: whatever is read must match other readers, and whatever is rejected must be rejected with one
screen of output that says what, where and what to do, immediately, in little memory, and without leaving anything behind.

GRADLOOM_SEED=N draws others, GRADLOOM_FILES=N sets how many of each kind. Failures are printed with the seed of their own file, which is
kept in $GRADLOOM_KEEP."""
import collections
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

GRADLOOM = os.path.abspath(sys.argv.pop(1))
HERE = os.path.dirname(os.path.abspath(__file__))
# Before anything large is imported; measured_runs.py explains why.
RUNS = subprocess.Popen([sys.executable, "-S", os.path.join(HERE, "measured_runs.py")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                        env={**os.environ, "OMP_NUM_THREADS": "1", "GRADLOOM_CUDA_LIBRARY": "/nowhere/libgradloom_cuda.so"})
sys.path.insert(0, HERE)
import numpy as np  # noqa: E402
import onnx  # noqa: E402
import random_configurations  # noqa: E402
import random_data  # noqa: E402
from sanitized import SANITIZED  # noqa: E402

SEED = int(os.environ.get("GRADLOOM_SEED", "1"))
FILES = int(os.environ.get("GRADLOOM_FILES", "60"))
# CPU time, since a process may have to wait for a processor.
MOST_SECONDS, MOST_MIB = (20, 3000) if SANITIZED else (1, 256)
CODES = {"E-CONFIG": 4, "E-DATA": 5, "E-LIMIT": 8, "E-IO": 2, "E-SHAPE": 2}
INTERNALS = re.compile(r"std::|basic_string|terminate|[Aa]ssert|\.cc:\d|\.h:\d|core dumped|Traceback|_ZN|Sanitizer|runtime error|E-INTERNAL|E-RESOURCE")

# Each returns its input in addition to what is trained.
MODELS = {"floats": ("float[N, 4] x", "float[N, 4] same", "c = Identity (x)", 4, "float32", (4,)),
          "wholes": ("int64[N, 3] x", "int64[N, 3] same", "c = Cast <to = 1> (x)", 3, "int64", (3,)),
          "pixels": ("float[N, 3, 8, 8] x", "float[N, 3, 8, 8] same", "c = Flatten (x)", 192, "float32", (3, 8, 8))}


def make_model(name):
    given, same, prepared, width, _, _ = MODELS[name]
    numbers = ", ".join(["0.01"] * 2 * width)
    onnx.save(onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 17]> g ({given}) => (float[N, 2] logits, {same})
        <float[{width}, 2] w = {{{numbers}}}> {{ {prepared}  logits = MatMul (c, w)  same = Identity (x) }}"""), f"{name}.onnx")


class RandomFilesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.base = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, cls.base)
        os.chdir(cls.base)
        cls.addClassCleanup(os.chdir, "/")
        for name, (_, _, _, _, dtype, row) in MODELS.items():
            make_model(name)
            np.savez("train.npz", x=np.ones((4, *row), dtype), label=np.arange(4) % 2)
            done = cls.gradloom("train", f"{name}.onnx", "--data", "train.npz", "--loss", "cross_entropy(logits, label)", "--epochs", "1", "--progress", "none",
                                "--name", name)
            assert done["code"] == 0, done["said"]
        cls.start_kib = cls.gradloom("--version")["kib"]

    @classmethod
    def gradloom(cls, *words, cwd=None):
        RUNS.stdin.write(json.dumps({"words": [GRADLOOM, *words], "cwd": cwd or getattr(cls, "base", None), "seconds": 120}) + "\n")
        RUNS.stdin.flush()
        return json.loads(RUNS.stdout.readline())

    def refused(self, done, classes, place):
        said = done["said"]
        error = said[said.rfind("error["):]
        found = re.match(r"error\[(E-[A-Z]+)\]: [^\n]+\n  --> [^\n]*" + place, error)
        self.assertIsNotNone(found, said[-2000:])
        self.assertIn(found[1], classes, said[-2000:])
        self.assertEqual(done["code"], CODES[found[1]], said[-2000:])
        self.assertIn("\n  help: ", error)
        self.assertIn(f"stopped with 1 error (exit {done['code']})", error)
        self.assertLess(len(said), 4000)

    def sound(self, done):
        self.assertNotRegex(done["said"], INTERNALS)
        self.assertNotRegex(done["said"], r"[\x00-\x08\x0b-\x1f]", "what steers a terminal")
        self.assertLess(done["cpu"], MOST_SECONDS)
        self.assertLess((done["kib"] - self.start_kib) / 1024, MOST_MIB)

    def kept(self, case, seed):
        """Keeps the file of a failed case for inspection."""
        if "GRADLOOM_KEEP" in os.environ:
            with open(os.path.join(os.environ["GRADLOOM_KEEP"], f"{seed}-{case.name}"), "wb") as file:
                file.write(case.content)

    def read(self, case, model, folder, path):
        """The rows that the command reads, or None."""
        done = self.gradloom("predict", f"{self.base}/runs/{model}", "--data", path.split("/")[0], *case.words, "-o", "out.npz", cwd=folder)
        self.sound(done)
        left = set(os.listdir(folder)) - {path.split("/")[0]}
        if done["code"] != 0:
            self.refused(done, ("E-DATA", "E-LIMIT", "E-CONFIG", "E-SHAPE"), re.escape(path))
            self.assertEqual(left, set())
            return None, done["said"]
        self.assertEqual(left, {"out.npz"})
        with np.load(f"{folder}/out.npz") as made:
            return made["same"], done["said"]

    def same(self, case, rows, slack=0):
        self.assertIsNotNone(case.rows, f"read as {rows!r:.300}, but: {case.why}")
        self.assertEqual(rows.shape, case.rows.shape)
        if slack:  # decoders of JPEG may differ
            np.testing.assert_allclose(rows, case.rows, atol=slack, rtol=0)
        else:
            np.testing.assert_array_equal(rows.view(f"i{rows.itemsize}"), np.ascontiguousarray(case.rows).view(f"i{rows.itemsize}"))

    def walk(self, kind, draw):
        ends = collections.Counter()
        for i in range(FILES):
            seed = SEED * 10**6 + i
            case, model, place = draw(random.Random(f"{kind} {seed}"))
            with self.subTest(kind=kind, seed=seed, name=case.name, why=case.why), tempfile.TemporaryDirectory() as folder:
                ends["failed"] += 1
                path = os.path.join(place, case.name)
                os.makedirs(os.path.dirname(os.path.join(folder, path)), exist_ok=True)
                with open(os.path.join(folder, path), "wb") as file:
                    file.write(case.content)
                try:
                    rows, said = self.read(case, model, folder, path)
                    if rows is not None:
                        self.same(case, rows, {"JPEG": 3, "JPEG?": 255}.get(case.kind, 0))
                    elif case.rows is not None:
                        ends["more than is read"] += 1
                        self.assertRegex(said, random_data.LEFT_OUT, f"read by others as {case.rows!r:.300}")
                except AssertionError:
                    self.kept(case, seed)
                    raise
                ends["failed"] -= 1
                ends["refused" if rows is None else "read"] += 1
        print(f"{kind}: {dict(ends)}", flush=True)
        self.assertGreater(ends["read"], FILES // 4)

    def numbers(self, rng):
        model = rng.choice(["floats", "wholes"])
        return model, MODELS[model][4], MODELS[model][5]

    def test_tables(self):
        def draw(rng):
            model, dtype, row = self.numbers(rng)
            return random_data.Tables(rng).draw("x", dtype, row[0]), model, ""
        self.walk("tables", draw)

    def test_arrays(self):
        def draw(rng):
            model, dtype, row = self.numbers(rng)
            return random_data.Arrays(rng).draw("x", dtype, row), model, ""
        self.walk("arrays", draw)

    def test_idx(self):
        def draw(rng):
            model, dtype, row = self.numbers(rng)
            return random_data.Idx(rng).draw("x", dtype, row), model, ""
        self.walk("idx", draw)

    def test_tokens(self):
        self.walk("tokens", lambda rng: (random_data.Tokens(rng).draw("x", "int64", (3,)), "wholes", ""))

    def test_images(self):
        self.walk("images", lambda rng: (random_data.Images(rng).draw(), "pixels", "images/cat"))

    def test_configurations(self):
        keys = json.loads(self.gradloom("config", "--keys", "--json")["said"])
        by_name = {key["key"]: key for key in keys}
        ends = collections.Counter()
        for i in range(2 * FILES):
            seed = SEED * 10**6 + i
            drawn = random_configurations.Drawn(random.Random(f"configuration {seed}"), keys)
            with self.subTest(kind="configuration", seed=seed, text=drawn.data.decode("utf-8", "backslashreplace")), tempfile.TemporaryDirectory() as folder:
                with open(f"{folder}/f.toml", "wb") as file:
                    file.write(drawn.data)
                done = self.gradloom("config", "-c", "f.toml", "--json", cwd=folder)
                self.sound(done)
                self.assertEqual(os.listdir(folder), ["f.toml"])
                try:
                    version, wanted = random_configurations.read(drawn.data, {name.split(".")[0] for name in by_name})
                    wanted = {name: random_configurations.as_held(value, by_name[name]) for name, value in wanted.items()}
                    if version != 1:
                        raise ValueError("version")
                except (ValueError, KeyError, RecursionError) as error:
                    self.assertNotEqual(done["code"], 0, f"Python: {error!r}")
                    self.refused(done, ("E-CONFIG",), "f.toml:")
                    ends["refused by both"] += 1
                    continue
                if done["code"] != 0:
                    self.refused(done, ("E-CONFIG",), "f.toml:")
                    self.assertRegex(done["said"], random_configurations.LEFT_OUT)
                    ends["refused"] += 1
                    continue
                told = {name: random_configurations.as_printed(entry["value"], by_name[name]) for name, entry in json.loads(done["said"]).items()}
                for name, value in wanted.items():
                    self.assertEqual(told[name], None if value in ("", [], {}) else value, name)
                # As a run stores it and is resumed from it.
                written = self.gradloom("config", "-c", "f.toml", cwd=folder)
                if written["code"] != 0:
                    self.refused(written, ("E-CONFIG",), "")
                    ends["cannot be kept"] += 1
                    continue
                with open(f"{folder}/again.toml", "w") as file:
                    file.write(written["said"])
                again = self.gradloom("config", "-c", "again.toml", "--json", cwd=folder)
                self.assertEqual(again["code"], 0, again["said"])
                back = {name: random_configurations.as_printed(entry["value"], by_name[name]) for name, entry in json.loads(again["said"]).items()}
                for name, value in told.items():
                    # By then a path is absolute, and a list with one element is a text. An empty text is rejected for a key with a default.
                    if by_name[name]["type"] not in ("path", "text or list") and (value is not None or not by_name[name]["default"]):
                        self.assertEqual(back[name], value, name)
                ends["read"] += 1
        print(f"configurations: {dict(ends)}", flush=True)
        self.assertGreater(ends["read"], FILES // 3)


if __name__ == "__main__":
    try:
        unittest.main()
    finally:
        RUNS.stdin.close()
        RUNS.wait()
