#!/usr/bin/env python3
"""Compares simulated steps with measured ones: the table of "Simulation compared with measurement" in docs/benchmarks.md.

python simulation.py --cache DIR [--devices 1,2,4] [--rounds 3] [--busy] [--topology FILE] [--kernels [N]] [NAME...]

DIR holds the output of peers/workloads.py. The machine is measured before each model (`gradloom devices --measure`), unless FILE has its
figures. Each plan is simulated with them and with the compiler's own, and run by `gradloom bench`, with one thread for each device. A cell
shows the median over the rounds of the median step. `others` is the largest share of all cores that other processes used; if it is above
0.05, measure again.

--kernels compares the launches of one device instead (`gradloom train --profile`, `gradloom inspect --streams`): for each kernel, the sum of
the medians of its launches, and the predicted sum; with a number, only those that take most time."""
import argparse
import collections
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
GRADLOOM = pathlib.Path(os.environ.get("GRADLOOM", HERE.parents[1] / "bazel-bin/tools/gradloom/gradloom"))
sys.path.insert(0, str(HERE / "peers"))
from processes import LOSSES  # noqa: E402
from run_all import busy, cpu, own, wait_quiet  # noqa: E402

NAMES = ("mlp_housing", "lenet", "mlp_wide", "lstm", "gpt2_mini", "resnet18_cifar", "mobilenet_v2")
SECONDS = 4  # approximate duration of the measured steps of a round


def command(*words):
    done = subprocess.run([GRADLOOM, *words], check=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    return done.stdout


class Quiet:
    """The share of the cores that other processes used while a block ran, which begins when they are quiet."""

    def __init__(self, waits):
        self.waits, self.others = waits, 0.0

    def __enter__(self):
        if self.waits:
            wait_quiet(60)
        self.clock, self.begin, self.mine = os.times().elapsed, busy(), own()

    def __exit__(self, *_):
        self.others = max(self.others, (busy() - self.begin - (own() - self.mine)) / ((os.times().elapsed - self.clock) * os.cpu_count()))


class Model:
    def __init__(self, name, cache, devices, threads):
        case = json.loads((cache / f"{name}.json").read_text())
        self.name, self.batch = name, case["batch_size"]
        self.recipe = [cache / f"{name}.onnx", "--loss", LOSSES[case["losses"][0]["type"]], "--optimizer", case["optimizer"]["type"],
                       "--batch", str(self.batch), "--devices", f"cpu:{devices}", "--threads", str(threads)]

    def compile(self, plan):
        command("compile", *self.recipe, "-o", plan, "-q")


def simulated(plan, *topology):
    return json.loads(command("simulate", plan, "--json", "-q", *topology))["simulations"][0]


def compare_steps(name, topology, folder, arguments):
    for devices in arguments.devices.split(","):
        model, plan = Model(name, arguments.cache, devices, 1), folder / "step.plan"
        model.compile(plan)
        predicted, usual = simulated(plan, "--topology", topology), simulated(plan)
        steps, measured, quiet = 20, [], Quiet(not arguments.busy)
        for _ in range(arguments.rounds):
            with quiet:
                step = json.loads(command("bench", *model.recipe, "--steps", str(steps), "--json", "-q"))["ms_per_step"]
            measured.append(step)
            steps = max(20, min(2000, int(SECONDS * 1000 / step / 5)))
        step = statistics.median(measured)
        print(f"| {name}, {model.batch} | {devices} | {step:.3g} | {predicted['step_ms']:.3g} | {predicted['step_ms'] / step:.2f} | "
              f"{predicted['exposed_ms']:.3g} | {usual['step_ms'] / step:.2f} | {quiet.others:.2f} |", flush=True)


def launches_of(text):
    """Milliseconds and kernel of the first program's launches, by instruction, from the tables of `inspect --streams`."""
    found = {}
    for line in text[text.index("\nprogram 0\n"):].split("\nprogram ", 2)[1].splitlines():
        row = re.match(r"\s+#(\d+)\s+[\d.]+\s+([\d.]+)  (\S+)", line)
        if row:
            found[int(row[1])] = (float(row[2]), row[3])
    return found


def compare_kernels(name, topology, folder, arguments):
    model, plan, profile, quiet = Model(name, arguments.cache, 1, arguments.threads), folder / "step.plan", folder / "profile", Quiet(not arguments.busy)
    model.compile(plan)
    steps = max(13, min(100, int(1e3 / simulated(plan)["step_ms"])))
    with quiet:
        command("train", "--plan", plan, "--data", f"random:{4 * model.batch}", "--epochs", str(steps // 4 + 1), "--profile", profile, "--progress",
                "none", "--out", folder / "runs", "-q")
    sums = collections.defaultdict(lambda: [0, 0.0, 0.0])
    measured = json.loads(profile.read_text())["seconds"][0]
    for index, (predicted, kernel) in launches_of(command("inspect", plan, "--streams", "-q", "--topology", topology)).items():
        if measured[index] >= 0:
            for key in (kernel, "all"):
                sums[key] = [sums[key][0] + 1, sums[key][1] + 1e3 * measured[index], sums[key][2] + predicted]
    shown = sorted(sums.items(), key=lambda item: -item[1][1])[:arguments.kernels + 1 if arguments.kernels > 0 else None]
    for kernel, (count, took, predicted) in shown:
        print(f"| {name}, {model.batch} | {kernel} | {count} | {took:.4g} | {predicted:.4g} | {predicted / took:.2f} | {quiet.others:.2f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=pathlib.Path, required=True)
    parser.add_argument("--devices", default="1,2,4")
    parser.add_argument("--threads", type=int, default=1, help="with --kernels: threads of the device")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--busy", action="store_true", help="wait for no quiet machine")
    parser.add_argument("--topology", type=pathlib.Path)
    parser.add_argument("--kernels", type=int, nargs="?", const=0)
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    arguments.cache = arguments.cache.resolve()
    print(f"{cpu()}; {arguments.rounds} rounds\n")
    head = ("model, batch", "kernel", "launches", "measured, ms", "predicted, ms", "predicted / measured", "others")
    if arguments.kernels is None:
        head = ("model, batch", "devices", "measured, ms", "predicted, ms", "predicted / measured", "exposed, ms", "unmeasured / measured", "others")
    print("| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    for name in arguments.names or NAMES:
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            topology = arguments.topology
            if topology is None:
                topology = folder / "machine.toml"
                command("devices", "--measure", "-o", topology, "-q")
            (compare_steps if arguments.kernels is None else compare_kernels)(name, topology, folder, arguments)


if __name__ == "__main__":
    main()
