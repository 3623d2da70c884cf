"""Runs run_on_gpu.py with a program that stands in for gpu_programs: tests and recorded trainings that pass, fail, crash, hang, and spoil what
follows in the same process."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = sys.argv.pop(1)

PROGRAM = r"""#!/usr/bin/env python3
import os, pathlib, signal, sys, time
if sys.argv[1] == "tests" and "--gtest_list_tests" in sys.argv:
    hangs = "  Hangs\n" if os.path.exists(sys.argv[0] + ".hangs") else ""
    print("Running main()\nGpu.\n  Memory\nCudaKernels.\n  AgreeWithTheReference\nMath.\n" + hangs + "  Good\n  Bad\n  Crashes\nTyped/Run.\n  One/0  # GetParam() = 1")
elif sys.argv[1] == "tests":
    name = sys.argv[2].split("=")[1]
    if name == "Math.Hangs":
        time.sleep(60)
    if name == "Math.Bad":
        print("x.cc:7: Failure\nexpected 1\n[  FAILED  ] Math.Bad")
        sys.exit(1)
    if name == "Math.Crashes":
        os.kill(os.getpid(), signal.SIGSEGV)
    if name == "CudaKernels.AgreeWithTheReference":
        print(os.environ["GRADLOOM_OP_PART"] + " calls of operators compared")
else:
    spoiled, on_gpu = False, not any(word.startswith("cpu") for word in sys.argv)
    for case in sys.argv[2:]:
        if case.startswith("--") or not os.path.isdir(case):
            continue
        name = pathlib.Path(case).name
        if name == "hangs":
            time.sleep(60)
        spoiled = spoiled or (name == "spoils" and on_gpu)
        placed, pipelined = "--stages" in sys.argv, "--pipeline" in sys.argv
        loss = 2.73 if name == "kinked" or (name == "kinked_in_pipelines" and pipelined) else 5.0 if (name == "worse" or (name == "wrong_in_stages" and placed)) and on_gpu else 2.0 if name == "worse" or spoiled else 0.01
        print(f"{name:40} loss {loss:8.3}  gradient 0  parameter 0.1  " + ("FAILED" if loss > 1 else "passed"), flush=True)
        spoiled = spoiled or loss > 1
    sys.exit(spoiled)
"""


class RunOnGpu(unittest.TestCase):
    def run_script(self, cases, *arguments, hangs=False, small=()):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            program = folder / "gpu_programs"
            program.write_text(PROGRAM)
            program.chmod(0o755)
            if hangs:
                (folder / "gpu_programs.hangs").touch()
            for case in [folder / "recorded" / case for case in cases] + [folder / "cases" / case for case in small]:
                case.mkdir(parents=True)
                (case / "case.json").write_text("{}")
            # The tests here must not depend on what this machine has.
            done = subprocess.run([sys.executable, SCRIPT, str(program), str(folder / "report"), "--cases", str(folder), "--jobs", "4", *arguments],
                                  capture_output=True, text=True, env={**os.environ, "PATH": "/usr/bin:/bin"})
            self.assertEqual(done.stderr, "")
            self.assertEqual(done.stdout, (folder / "report" / "report.txt").read_text())
            self.assertTrue((folder / "report" / "logs" / "Math.Bad.txt").exists() or "--seconds" in arguments)
            return done

    def test_reports_each_failure(self):
        done = self.run_script([f"case_{i}" for i in range(20)] + ["spoils", "kinked", "worse"], "--gpus", "1")
        self.assertEqual(done.returncode, 1)
        text = done.stdout
        # Good, One/0 and the eight parts of the table of operators.
        self.assertIn("== kernels: 10 passed, 2 failed", text)
        self.assertIn("Math.Bad: status 1\n    x.cc:7: Failure\n    expected 1", text)
        self.assertIn("Math.Crashes: status -11", text)
        self.assertIn("7/8 calls of operators compared", text)
        self.assertIn("== streams and memory: 1 passed, 0 failed", text)
        # Nothing but the trainings that failed themselves, and not as they do on the CPU.
        self.assertIn("== recorded trainings on cuda:0: 21 passed, 2 failed", text)
        self.assertIn("  spoils: status 1", text)
        self.assertIn("  worse: status 1", text)
        self.assertIn("kinked: deviates from the recording as the CPU's reference kernels do, loss 2.73 of the tolerance", text)
        self.assertEqual(text.splitlines()[-1], "something FAILED")

    def test_time_that_runs_out_is_a_failure(self):
        done = self.run_script(["case_0", "hangs"], "--seconds", "6")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stdout, "hangs: (out of time|no time left)")
        self.assertIn("== recorded trainings on cuda:0: 1 passed, 1 failed", done.stdout)

    def test_a_test_that_hangs_leaves_time_for_the_rest(self):
        done = self.run_script([f"case_{i}" for i in range(20)], "--seconds", "12", "--gpus", "2", hangs=True)
        self.assertIn("Math.Hangs: out of time", done.stdout)
        self.assertIn("== recorded trainings on cuda:0: 20 passed, 0 failed", done.stdout)
        self.assertIn("== samples divided on cuda:0,cuda:1: 0 passed, 0 failed", done.stdout)

    def test_devices_share_a_model_in_each_way(self):
        text = self.run_script([], "--gpus", "1", small=["case_0", "case_1", "kinked_in_pipelines", "wrong_in_stages"]).stdout
        for what in ("recorded trainings on cuda:0", "without graphs", "three streams, random delays", "sums in any order"):
            self.assertIn(f"== {what}: 4 passed, 0 failed", text)
        for what in ("samples divided", "losses gathered", "optimizer's state divided"):
            self.assertIn(f"== {what} on cuda:0,cuda:0: 4 passed, 0 failed", text)
        self.assertIn("== stages on cuda:0,cuda:0: 3 passed, 1 failed", text)
        self.assertIn("== pipelines on cuda:0,cuda:0,cuda:0,cuda:0: 3 passed, 1 failed", text)
        self.assertIn("kinked_in_pipelines: deviates from the recording as the CPU's reference kernels do", text)
        self.assertNotIn("cuda:1", text)


if __name__ == "__main__":
    unittest.main()
