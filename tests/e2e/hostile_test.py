"""Untrusted models (hostile_models.py, hostile_external.py): each invalid one is refused with its error class and exit code, naming file,
location and value, quickly and with little memory. Each valid one is accepted."""
import json
import os
import re
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
import hostile_build  # noqa: E402
import hostile_external  # noqa: E402
import hostile_models  # noqa: E402

# On an idle machine they are refused within one second and 256 MiB, but a test machine is not idle.
MOST_SECONDS, MOST_MIB = 10, 256
EXIT_CODES = {"E-UNSUPPORTED": 3, "E-VERSION": 3, "E-LIMIT": 8}
INTERNALS = re.compile(r"std::|basic_string|terminate|[Aa]ssert|\.cc:\d|\.h:\d|core dumped|Traceback|Sanitizer|runtime error|E-INTERNAL|E-RESOURCE")


def gradloom(*words, cwd=None, seconds=120):
    RUNS.stdin.write(json.dumps({"words": [GRADLOOM, *words], "cwd": cwd, "seconds": seconds}) + "\n")
    RUNS.stdin.flush()
    return json.loads(RUNS.stdout.readline())


class HostileTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.start_kib = gradloom("--version")["kib"]
        cls.worst = {}

    @classmethod
    def tearDownClass(cls):
        for what, (value, of) in sorted(cls.worst.items()):
            print(f"worst {what}: {value:.2f} ({of})")

    def note(self, what, value, of):
        if value > self.worst.get(what, (-1, ""))[0]:
            self.worst[what] = (value, of)

    def check(self, name, model, classes, words, folder, verb=("check",), file="model.onnx", seconds=1):
        with open(os.path.join(folder, file), "wb") as out:
            out.write(model if isinstance(model, bytes) else model.SerializeToString())
        done = gradloom(*verb, file, cwd=folder)
        said, mib = done["said"], (done["kib"] - self.start_kib) / 1024
        context = f"exit {done['code']} after {done['seconds']:.2f} s, {mib:.0f} MiB\n{said[:3000]}"
        self.assertNotRegex(said, INTERNALS)
        # Only characters that are safe for a terminal.
        self.assertRegex(said, r"\A[^\x00-\x08\x0b-\x1f\x7f]*\Z", context)
        self.assertLess(len(said), 20_000)
        for word in words:
            self.assertIn(word, said, context)
        self.assertLess(done["seconds"], MOST_SECONDS * seconds, context)
        if not classes:
            self.assertEqual(done["code"], 0, context)
            if seconds != 1:
                self.note(f"seconds of {name}", done["seconds"], f"{done['cpu']:.2f} s of CPU, {mib:.0f} MiB")
            return
        found = re.search(r"error\[(E-[A-Z]+)\]: ([^\n]*)\n  --> ([^\n]*)", said)
        self.assertIsNotNone(found, context)
        self.assertIn(found[1], (classes,) if isinstance(classes, str) else classes, context)
        self.assertEqual(done["code"], EXIT_CODES.get(found[1], 2), context)
        self.assertTrue(found[3].startswith(file), context)
        self.assertLess(mib, MOST_MIB, context)
        self.note("seconds of a refused model", done["seconds"], name)
        self.note("CPU seconds of a refused model", done["cpu"], name)
        self.note("MiB of a refused model", mib, name)

    def test_files_and_graphs(self):
        for name, (what, make, classes, words) in hostile_models.ROWS.items():
            with self.subTest(name, what=what), tempfile.TemporaryDirectory() as folder:
                model = make()
                self.check(name, model, classes, words, folder, seconds=hostile_models.SECONDS.get(name, 1))
                if classes:
                    self.check(name, model, classes, words, folder, verb=("compile", "-o", "out.plan"))
                    self.assertEqual(os.listdir(folder), ["model.onnx"])

    def test_external_data_in_every_place(self):
        for place, put in hostile_external.PLACES.items():
            for name, (what, entries, classes, words) in hostile_external.ROWS.items():
                with self.subTest(name, what=what, place=place), tempfile.TemporaryDirectory() as folder:
                    model_folder = hostile_external.layout(folder, place)
                    model = put(entries(model_folder))
                    self.check(f"{name} in {place}", model, classes, words if classes == () else [*words, "tensor '"], model_folder)

    def test_a_cache_of_links(self):
        """Hugging Face's: model and data are links to files of one folder of blobs."""
        model = hostile_external.PLACES["initializer"]([("location", "w.bin")])
        for data, classes, words in (("../../blobs/data", (), ["trained  w"]), ("../../secret.bin", "E-PATH", ["'w'", "through a link"])):
            with self.subTest(data), tempfile.TemporaryDirectory() as folder:
                snapshot = os.path.join(folder, "snapshots", "revision")
                os.makedirs(snapshot)
                os.mkdir(os.path.join(folder, "blobs"))
                for name in ("blobs/data", "secret.bin"):
                    with open(os.path.join(folder, name), "wb") as file:
                        file.write(hostile_build.floats(12))
                os.symlink("../../blobs/model", os.path.join(snapshot, "model.onnx"))
                os.symlink(data, os.path.join(snapshot, "w.bin"))
                self.check("a cache of links", model, classes, words, snapshot)

    def test_a_hard_link_is_a_decision(self):
        with tempfile.TemporaryDirectory() as folder:
            model_folder = hostile_external.layout(folder, "initializer")
            model = hostile_external.PLACES["initializer"](hostile_external.ROWS["H06"][1](model_folder))
            self.check("H06", model, "E-PATH", [], model_folder)
            self.check("H06", model, (), ["trained  w"], model_folder, verb=("check", "--allow-hardlinks"))

    def test_a_limit_is_raised(self):
        with tempfile.TemporaryDirectory() as folder:
            model = hostile_models.ROWS["C17"][1]()
            self.check("C17", model, "E-LIMIT", ["65536"], folder)
            self.check("C17", model, (), ["trained  w"], folder, verb=("check", "--limit", "name_bytes=2000000"))
            said = gradloom("check", "model.onnx", "--limit", "name_byte=5", cwd=folder)["said"]
            self.assertIn("error[E-CONFIG]: unknown limit 'name_byte'", said)
            self.assertIn("did you mean 'name_bytes'?", said)

    def test_external_data_in_a_folder_that_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            model_folder = hostile_external.layout(folder, "initializer")
            os.rename(os.path.join(model_folder, "w.bin"), os.path.join(folder, "w.bin"))
            model = hostile_external.PLACES["initializer"]([("location", "w.bin")])
            self.check("H07", model, "E-IO", ["--external-dir"], model_folder)
            self.check("H07", model, (), ["trained  w"], model_folder, verb=("check", "--external-dir", "../.."))
            climbs = hostile_external.PLACES["initializer"]([("location", "../w.bin")])
            self.check("H01", climbs, "E-PATH", ["../w.bin"], model_folder, verb=("check", "--external-dir", "../../a"))

    def test_the_table_is_whole(self):
        rows = {**hostile_models.ROWS, **hostile_external.ROWS}
        refused = {name for name, row in rows.items() if row[2] and len(name) == 3}
        refused |= {alias for alias, (name, place) in hostile_external.ALIASES.items() if name in rows and place in hostile_external.PLACES}
        self.assertEqual(len(refused), 143, sorted(refused))
        self.assertGreaterEqual(len(hostile_external.PLACES), 7)


if __name__ == "__main__":
    try:
        unittest.main()
    finally:
        RUNS.stdin.close()
        RUNS.wait()
