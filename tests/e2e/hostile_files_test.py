"""Runs the catalogs of malformed files: each file is refused with its error class, its exit code and a message that names the file and the
location, in bounded time and memory. Every id of the lists has a row, or a reason."""
import concurrent.futures
import importlib
import os
import re
import shutil
import sys
import tempfile
import unittest

GRADLOOM, SEAL, PLAN_PROTO, CHECKPOINT_PROTO = (os.path.abspath(word) for word in sys.argv[1:5])
sys.argv[1:5] = []
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import hostile_files  # noqa: E402
from hostile_files import Elsewhere, Row  # noqa: E402

# The number of ids in each list, counted from 1.
LISTS = {"hostile_plans": ("P", 36), "hostile_checkpoints": ("S", 34), "hostile_data": ("X", 25), "hostile_config": ("K", 12)}
INTERNALS = re.compile(r"std::|basic_string|terminate|[Aa]ssert|\.cc:\d|core dumped|Traceback|_ZN|Sanitizer|E-INTERNAL")


class HostileFilesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.base = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, cls.base)

    def right(self, command, folder):
        answer = hostile_files.ask(GRADLOOM, command, folder)
        self.assertEqual(answer.code, 0, f"{command}: {answer.err}")

    def check(self, row, folder):
        answer = hostile_files.ask(GRADLOOM, row.command, folder, row.environment)
        said = answer.out + answer.err
        self.assertEqual(answer.code, hostile_files.EXIT_CODES[row.wanted], f"wanted {row.wanted}: {said[-2000:]}")
        self.assertNotRegex(said, INTERNALS)
        self.assertLess(answer.seconds, hostile_files.MOST_SECONDS)
        self.assertLess(answer.resident_mb, hostile_files.MOST_RESIDENT_MB)
        if row.says:
            self.assertRegex(said, row.says)
        # Raw bytes of the file must not reach the terminal.
        self.assertNotRegex(said, r"[\x00-\x08\x0b-\x1f\x7f]")
        if row.wanted in ("OK", "DIFFERS"):
            self.assertNotIn("error[", said)
            return
        self.assertLess(len(said), 8000)
        error = said[said.rfind("error["):]
        self.assertTrue(error.startswith(f"error[{row.wanted}]: "), said)
        if row.says and not row.before:
            self.assertRegex(error, row.says)
        if row.place:
            self.assertRegex(error, r"\n  --> .*" + row.place)
        self.assertIn(f"stopped with 1 error (exit {answer.code})", error)

    def catalogue(self, name):
        module = importlib.import_module(name)
        letter, count = LISTS[name]
        good = os.path.join(self.base, name)
        os.mkdir(good)
        os.chdir(good)
        rows = module.rows(hostile_files.Tools(lambda command: self.right(command, good), SEAL, PLAN_PROTO, CHECKPOINT_PROTO))
        wanted = {f"{letter}{i:02}" for i in range(1, count + 1)}
        self.assertEqual({row.id[:3] for row in rows} - {letter + "00"}, wanted)
        tried = [row for row in rows if isinstance(row, Row)]
        folders = []
        for i, row in enumerate(tried):
            folders.append(os.path.join(self.base, f"{name}-{i}"))
            shutil.copytree(good, folders[-1], symlinks=True)
            os.chdir(folders[-1])
            row.make()
        os.chdir(self.base)
        failed = []
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            for row, done in [(row, pool.submit(self.check, row, folder)) for row, folder in zip(tried, folders)]:
                try:
                    done.result()
                except AssertionError as failure:
                    failed.append(f"{row.id} {row.what} ({row.command}): {failure}")
        if failed:
            self.fail("\n\n".join(failed))
        for row in rows:
            self.assertTrue(isinstance(row, Row) or (isinstance(row, Elsewhere) and row.why), row.id)
        print(f"{name}: {len(tried)} files, {len({row.id for row in tried})} ids; "
              f"{len({row.id for row in rows if isinstance(row, Elsewhere)})} ids elsewhere")

    def test_plans(self):
        self.catalogue("hostile_plans")

    def test_checkpoints(self):
        self.catalogue("hostile_checkpoints")

    def test_data(self):
        self.catalogue("hostile_data")

    def test_config(self):
        self.catalogue("hostile_config")


if __name__ == "__main__":
    unittest.main()
