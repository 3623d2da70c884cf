#!/usr/bin/env python3
"""Runs the tests of gpu_programs on this machine's first GPU, some also on the first two, and writes a report; called by run_on_gpu.sh.

An error of a kernel, such as an access outside of memory, ends CUDA for its process. So every test runs in a process of its own, and recorded
trainings in small groups; those of a group that failed are repeated one by one. Every step gets the time that is left, except for a share
that is kept for the steps after it, so tests that hang do not take all of it. What is not run for lack of time counts as failed. Only
compute-sanitizer, which comes last, may be left out.
"""
import argparse
import concurrent.futures
import datetime
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

OP_PARTS = 8  # processes for the table of operators
GROUP = 12  # recorded trainings in a process
MAX_AGAIN = 80  # of those that failed
ALONE = ("Gpu.", "StreamHazard.")  # they measure memory, or depend on timing
SANITIZED_OPS = ("MatMul,Gemm,Softmax,LayerNormalization,gradloom.LayerNormGrad,gradloom.CrossEntropy,gradloom.CrossEntropyTraining,"
                 "Gather,gradloom.GatherGrad,ReduceSum")
SANITIZED_KERNELS = "CudaKernels.*:RowGradient.*:RowNormalization.*:MaskedGradient.*:WeightGradient.*:PaddedRows.*Losses*:PaddedRows.*Words:"
SANITIZED_KERNELS += "PaddedRows.PointwisePrograms*"
SANITIZED_TESTS = SANITIZED_KERNELS + ":CudaRandomCalls.*:AttentionProducts.*Agree*"
# initcheck does not see what cuBLASLt's kernels for Hopper write, and reports every read of a product.
WITHOUT_PRODUCTS = (re.sub("MatMul,Gemm,", "", SANITIZED_OPS), SANITIZED_KERNELS)
# How devices share a model: the number of devices, and the flags. Gradients that are fetched would be summed for all devices.
SHARED = (("samples divided", 2, []),
          ("losses gathered", 2, ["--gather-to", "0"]),
          ("optimizer's state divided", 2, ["--shard-optimizer", "--gradients", "off"]),
          ("stages", 2, ["--stages", "2", "--place-seed", "2"]),
          ("pipelines", 4, ["--stages", "2", "--place-seed", "3", "--pipeline", "3"]))
SLOW_S = 20  # tests that take longer are listed
VERDICT = re.compile(r"^(\S+) .*\bloss +(\S+) .*\bparameter +(\S+) .*\b(passed|FAILED)$", re.M)


class Run:
    """A finished process: its exit status (-1: it ran out of time), its output and its seconds."""

    def __init__(self, name, command, limit, environment=None):
        self.name, begin = name, time.monotonic()
        self.status, self.output, self.seconds = -2, "", 0.0
        try:
            self.run(command, limit, environment)
        except OSError as error:
            self.output = f"Error: {error}"
        self.seconds = time.monotonic() - begin

    def run(self, command, limit, environment):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                                   env={**os.environ, **(environment or {})}, start_new_session=True)
        try:
            self.output, _ = process.communicate(timeout=max(limit, 1))
            self.status = process.returncode
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            self.status = -1
            try:
                self.output, _ = process.communicate(timeout=5)
            except subprocess.TimeoutExpired:
                self.output = "Error: it does not end, as if the driver held it"

    def why(self):
        return "out of time" if self.status == -1 else f"status {self.status}"

    def excerpt(self, lines=12):
        """The first lines that say what went wrong, or else the last ones."""
        said = [line for line in self.output.splitlines() if line.strip() and not line.startswith(("[---", "[===", "[  PASSED"))]
        first = next((i for i, line in enumerate(said) if "FAILED" in line or "Failure" in line or "rror" in line), None)
        chosen = said[-lines:] if first is None else said[first:first + lines]
        return "\n".join("    " + line[:300] for line in chosen)


class Report:
    def __init__(self, folder, seconds, jobs):
        self.folder, self.jobs = pathlib.Path(folder), jobs
        (self.folder / "logs").mkdir(parents=True, exist_ok=True)
        self.file = open(self.folder / "report.txt", "w")
        self.begin, self.seconds, self.share = time.monotonic(), seconds, 1
        self.failed = False

    def until(self, share):
        """What follows, up to the next call, ends when this share of the time has passed."""
        self.share = share

    def left(self):
        return self.begin + self.share * self.seconds - time.monotonic()

    def say(self, text):
        print(text, flush=True)
        print(text, file=self.file, flush=True)

    def run_all(self, wanted, limit):
        """Runs (name, command, environment) in parallel, each for at most `limit` seconds. Yields a Run for each, None where no time was left."""
        def one(each):
            if self.left() < 1:
                return each[0], None
            return each[0], Run(each[0], each[1], min(limit, self.left()), each[2])
        with concurrent.futures.ThreadPoolExecutor(self.jobs) as pool:
            for name, run in pool.map(one, wanted):
                if run is not None:
                    (self.folder / "logs" / (re.sub(r"[^\w.-]", "_", name) + ".txt")).write_text(run.output)
                yield name, run

    def close(self, what, begin, passed, failures):
        """`failures`: a text for each."""
        self.failed = self.failed or bool(failures)
        self.say(f"== {what}: {passed} passed, {len(failures)} failed, {time.monotonic() - begin:.0f} s")
        for text in failures:
            self.say("  " + text)

    def tests(self, what, wanted, limit, jobs=None):
        begin, passed, failures, slow = time.monotonic(), 0, [], []
        kept, self.jobs = self.jobs, jobs or self.jobs
        for name, run in self.run_all(wanted, limit):
            if run is not None and run.seconds > SLOW_S:
                slow.append(f"{name} {run.seconds:.0f} s")
            if run is not None and run.status == 0:
                passed += 1
                notes = [line for line in run.output.splitlines() if "instead of" in line or "not on CUDA" in line or "compared" in line]
                for line in notes[:20]:
                    self.say(f"  {name}: {line[:300]}")
            else:
                failures.append(f"{name}: no time left" if run is None else f"{name}: {run.why()}\n{run.excerpt()}")
        self.jobs = kept
        self.close(what, begin, passed, failures)
        if slow:
            self.say("  slow: " + ", ".join(slow))

    def replay(self, what, program, cases, limit, arguments, cpu):
        """Recorded trainings, in groups; then, one by one, those that failed or that a group did not reach. If the CPU's reference kernels
        deviate from the recording by the same figures, so would any device: an element was within rounding errors of a kink, such as a
        ReLU's, and the recording is on the other side. Such trainings are listed, but do not count as failed."""
        begin, good = time.monotonic(), set()
        command = [program, "replay", *arguments]
        # Neighbors are alike. Mixed, groups take about equally long.
        count = min(len(cases), max(self.jobs, len(cases) // GROUP))
        groups = [(f"{what} {i}", [*command, *cases[i::count]], None) for i in range(count)]
        for _, run in self.run_all(groups, limit):
            good.update(verdict[1] for verdict in VERDICT.finditer(run.output if run else "") if verdict[4] == "passed")
        missing = {pathlib.Path(case).name: case for case in cases if pathlib.Path(case).name not in good}
        again = [(name, [*command, case], None) for name, case in list(missing.items())[:MAX_AGAIN]]
        failures = [f"{name}: not repeated alone" for name in list(missing)[MAX_AGAIN:]]
        deviating = {}
        for name, run in self.run_all(again, limit):
            if run is not None and run.status == 0:
                good.add(name)
                self.say(f"  {name}: passed alone, but had failed, or was not reached, together with others")
            elif run is not None and (verdict := VERDICT.search(run.output)):
                deviating[name] = (verdict, run)
            else:
                failures.append(f"{name}: no time left" if run is None else f"{name}: {run.why()}\n{run.excerpt()}")
        on_cpu = [(name, [program, "replay", *cpu, missing[name]], None) for name in deviating]
        for name, run in self.run_all(on_cpu, limit):
            verdict, on_gpu = deviating[name]
            same = run and VERDICT.search(run.output)
            if same and same[4] == "FAILED" and all(near(float(verdict[k]), float(same[k])) for k in (2, 3)):
                good.add(name)
                self.say(f"  {name}: deviates from the recording as the CPU's reference kernels do, loss {verdict[2]} of the tolerance")
            else:
                failures.append(f"{name}: {on_gpu.why()}\n{on_gpu.excerpt()}")
        self.close(what, begin, len(good), failures)


def near(a, b):
    return abs(a - b) <= 0.05 * max(abs(a), abs(b))


def cases_in(*folders):
    return sorted(str(path.parent) for folder in folders for path in pathlib.Path(folder).glob("*/case.json"))


def listed_tests(program):
    """The names of all tests, as --gtest_list_tests prints them."""
    names, suite = [], ""
    for line in subprocess.run([program, "tests", "--gtest_list_tests"], check=True, capture_output=True, text=True).stdout.splitlines():
        word = line.split("#")[0].strip()
        if line[:1] not in (" ", ""):
            suite = word if word.endswith(".") else ""
        elif suite and word:
            names.append(suite + word)
    return names


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", help="gpu_programs")
    parser.add_argument("report", help="folder for report.txt and the outputs of all processes")
    parser.add_argument("--cases", default="tests/conformance", help="folder with cases/ and recorded/")
    parser.add_argument("--seconds", type=float, default=520)
    parser.add_argument("--gpus", type=int, help="of this machine; two or more also train together (as nvidia-smi says)")
    parser.add_argument("--jobs", type=int, default=max(1, min(8, (os.cpu_count() or 2) // 2)))
    arguments = parser.parse_args()
    program = arguments.program
    report = Report(arguments.report, arguments.seconds, arguments.jobs)
    report.say(datetime.datetime.now(datetime.timezone.utc).strftime("%FT%TZ"))
    for command in (["git", "rev-parse", "HEAD"], ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]):
        if shutil.which(command[0]):
            said = Run("", command, 20).output.strip()
            report.say(said)
            if command[0] == "nvidia-smi" and arguments.gpus is None:
                visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
                arguments.gpus = len(visible.split(",")) if visible else len(said.splitlines())

    wanted = []
    for name in listed_tests(program):
        command = [program, "tests", f"--gtest_filter={name}"]
        if name == "CudaKernels.AgreeWithTheReference":
            wanted += [(f"{name} {i}", command, {"GRADLOOM_OP_PART": f"{i}/{OP_PARTS}"}) for i in range(OP_PARTS)]
        else:
            wanted.append((name, command, None))
    report.until(0.52)
    report.tests("kernels", [each for each in wanted if not each[0].startswith(ALONE)], 150)
    report.until(0.59)
    report.tests("streams and memory", [each for each in wanted if each[0].startswith(ALONE)], 60, jobs=1)

    small, all_cases = cases_in(f"{arguments.cases}/cases"), cases_in(f"{arguments.cases}/cases", f"{arguments.cases}/recorded")
    report.until(0.8)
    report.replay("recorded trainings on cuda:0", program, all_cases, 90, ["--devices", "cuda:0"], ["--devices", "cpu"])
    parts = [("without graphs", arguments.jobs, ["--devices", "cuda:0", "--cuda-graph", "off"], ["--devices", "cpu"]),
             ("three streams, random delays", arguments.jobs, ["--devices", "cuda:0", "--streams", "3", "--chaos", "1"], ["--devices", "cpu"]),
             ("sums in any order", arguments.jobs, ["--devices", "cuda:0", "--sum-order", "any"], ["--devices", "cpu"])]
    for second in range(min(arguments.gpus or 1, 2)):
        # GPUs that wait for each other are slow if several processes share them.
        jobs = arguments.jobs if second == 0 else min(arguments.jobs, 2)
        for what, number, flags in SHARED:
            devices = ",".join(["cuda:0", f"cuda:{second}"] * (number // 2))
            parts.append((f"{what} on {devices}", jobs, ["--devices", devices, *flags], ["--devices", f"cpu:{number}", *flags]))
    for i, (what, report.jobs, on_gpu, on_cpu) in enumerate(parts):
        report.until(0.8 + 0.2 * (i + 1) / len(parts))
        report.replay(what, program, small, 60, on_gpu, on_cpu)
    report.jobs = arguments.jobs

    tools = ("memcheck", "racecheck", "initcheck", "synccheck")
    if shutil.which("compute-sanitizer") is None:
        report.say("== compute-sanitizer: not installed")
    elif report.left() < 60:
        report.say("== compute-sanitizer: not run, no time left")
    else:
        filters = {tool: (SANITIZED_OPS, SANITIZED_TESTS) for tool in tools} | {"initcheck": WITHOUT_PRODUCTS}
        report.tests("compute-sanitizer",
                     [(tool, ["compute-sanitizer", "--tool", tool, "--error-exitcode", "1", program, "tests", f"--gtest_filter={filters[tool][1]}"],
                       {"GRADLOOM_OPS": filters[tool][0]}) for tool in tools], report.left() - 5)
    report.say("something FAILED" if report.failed else "everything passed")
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())
