"""Common mistakes with the command, one row each (mistakes.txt). Checks the exact answer to each, and that its help works: suggested
commands run when pasted, and the corrected command runs."""
import json
import os
import re
import resource
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest

GRADLOOM, TABLE = (os.path.abspath(word) for word in sys.argv[1:3])
sys.argv[1:3] = []
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import sample_files  # noqa: E402

# Internals that users should never see.
INTERNALS = re.compile(r"std::|gradloom::|basic_string|terminate|[Aa]ssert|\.cc:\d|\.h:\d|0x[0-9a-f]{6}|core dumped|Traceback|_ZN|Sanitizer")
EXIT_CODES = {"E-UNSUPPORTED": 3, "E-VERSION": 3, "E-CONFIG": 4, "E-DATA": 5, "E-PLAN": 6, "E-CHECKPOINT": 7, "E-DEVICE": 9, "E-LIMIT": 8,
              "E-RESOURCE": 8, "E-DIVERGED": 10}
# Errors that occur only after the start: a broken or missing image, a diverging loss and a full disk.
MET_IN_TRAINING = ("--data broken", "--data list.csv", "--lr 1e30", "--name full")


def rows():
    """Blocks of mistakes.txt: "$ " precedes the command, "~ " says how the help corrects it, then follows the output."""
    with open(TABLE) as file:
        blocks = re.split(r"\n\s*\n", re.sub(r"^#.*\n", "", file.read(), flags=re.M).strip())
    for block in blocks:
        lines = block.split("\n")
        repairs = [line[2:] for line in lines if line.startswith("~ ")]
        yield {"command": lines[0][2:], "repair": repairs[0] if repairs else "", "said": [line for line in lines[1:] if line[:2] != "~ "]}


def without_sizes(line):
    """Replaces file sizes, line numbers and numbers of runs, which change for unrelated reasons."""
    return re.sub(r"(?<=config.toml:)\d+|(?<=runs/exp)\d+|\d{3,}", "N", line)


def words_of(command):
    """`train ...` stands for a complete training command that these flags modify: --data other.csv, model=other.onnx."""
    words = shlex.split(command)
    if words[:2] != ["train", "..."]:
        return words
    model, flags, given = "model.onnx", [], words[2:]
    if given and given[0].startswith("model="):
        model = given.pop(0)[6:]
    mapped = "--map" in given
    for flag, value in zip(sample_files.TRAIN[2::2], sample_files.TRAIN[3::2]):
        if flag == "--map" and (mapped or "--no-map" in given) or flag in given and flag != "--map":
            continue
        flags += [flag, value]
    return ["train", model, *flags, *(word for word in given if word != "--no-map")]


class MistakesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.base = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, cls.base)
        cls.files = os.path.join(cls.base, "files")
        os.makedirs(cls.files)
        cls.folder = cls.files
        before = os.getcwd()
        os.chdir(cls.files)
        sample_files.make_all(lambda words: cls.right(cls, words))
        os.chdir(before)
        cls.count = 0

    def gradloom(self, words, file_bytes=None):
        # Without a function to call in between, Python does not have to copy its own memory map for each command.
        limit = None if file_bytes is None else lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, file_bytes))
        return subprocess.run([GRADLOOM, *words], cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60,
                              preexec_fn=limit, env={**os.environ, "OMP_NUM_THREADS": "1", "GRADLOOM_CUDA_LIBRARY": "/nowhere/libgradloom_cuda.so"})

    def right(self, words):
        done = MistakesTest.gradloom(self, words)
        if done.returncode != 0:
            raise AssertionError(f"{shlex.join(words)}: exit {done.returncode}\n{done.stderr}")

    def fresh(self):
        """A copy of the original files, without any corrections."""
        MistakesTest.count += 1
        self.folder = os.path.join(self.base, str(MistakesTest.count))
        shutil.copytree(self.files, self.folder)

    def runs(self, folder):
        return sorted(os.listdir(os.path.join(folder, "runs")))

    def check(self, row):
        words = words_of(row["command"])
        limited = re.match(r"ulimit=(\d+) ", row["command"])
        if limited:
            words = words_of(row["command"][limited.end():])
        self.fresh()
        done = self.gradloom(words, int(limited[1]) if limited else None)
        self.assertNotRegex(done.stderr + done.stdout, INTERNALS)
        at = done.stderr.rfind("error[")
        self.assertGreaterEqual(at, 0, f"exit {done.returncode}: {done.stderr}")
        said = done.stderr[at:].strip().split("\n")
        self.assertEqual([without_sizes(line) for line in said[:-1]], [without_sizes(line) for line in row["said"]])
        code = re.match(r"error\[(E-[A-Z]+)\]", said[0])[1]
        self.assertEqual(done.returncode, EXIT_CODES.get(code, 2))
        self.assertEqual(said[-1], f"gradloom: stopped with 1 error (exit {done.returncode})")
        # An error before the first step must leave no folder behind, whose name would be taken.
        if words[:1] == ["train"] and not any(met in row["command"] for met in MET_IN_TRAINING):
            self.assertEqual(self.runs(self.folder), self.runs(self.files), "a folder of a run is left")
        self.check_json(words, code, limited, said)
        help_text = next(line for line in said if line.startswith("  help: "))[len("  help: "):]
        self.check_help(help_text, words, row["repair"])
        shutil.rmtree(self.folder)

    def check_json(self, words, code, limited, said):
        """The same for programs."""
        if not words or words[0].startswith("-") or limited:
            return
        self.fresh()
        done = self.gradloom([*words, "--json"])
        error = json.loads(done.stdout)["errors"][0]
        self.assertEqual(error["code"], code)
        self.assertEqual(f"error[{code}]: {error['message']}", said[0])
        self.assertTrue(error["help"])

    def check_help(self, text, words, repair):
        for command in re.findall(r"\bgradloom [a-z]+(?: .*?)?(?=   |'|\?|$)", text):
            if command.endswith(" --check-numerics"):
                continue  # it repeats the error; tests/e2e/resume_test.py follows it
            self.fresh()
            self.right(shlex.split(command)[1:])
        near = re.search(r"did you mean '([^']*)'\?", text)
        if not repair:
            self.assertTrue(near is None or near[1].startswith("gradloom "), "a word that is meant is not tried")
            return
        self.fresh()
        kind, _, rest = repair.partition(" ")
        if kind == "meant":  # the wrong word
            self.assertIsNotNone(near, text)
            mended = [word.replace(rest, near[1].split(" ")[-1]) for word in words]
            self.assertNotEqual(mended, words)
        elif kind == "file":  # the file and the word in it
            path, wrong = rest.split(" ")
            sample_files.mend(os.path.join(self.folder, path), wrong, near[1].split(".")[-1])
            mended = words
        elif kind == "add":
            self.assertIn(rest, text)
            mended = [*words, *shlex.split(rest)]
        else:  # swap WRONG RIGHT: words for which the help has the right one
            self.assertEqual(kind, "swap")
            wrong, right = shlex.split(rest)
            self.assertIn(right.rstrip(",="), text)
            mended = [word.replace(wrong, right) for word in words]
            self.assertNotEqual(mended, words)
        self.right(mended)

    def test_all(self):
        table = list(rows())
        self.assertGreaterEqual(len(table), 40)
        for row in table:
            with self.subTest(row["command"]):
                self.check(row)
        print(f"{len(table)} mistakes")


if __name__ == "__main__":
    unittest.main()
