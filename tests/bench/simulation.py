#!/usr/bin/env python3
"""Compares simulated steps with measured ones: the table of "Simulation compared with measurement" in docs/benchmarks.md.

python simulation.py --cache DIR [--devices 1,2,4] [--rounds 3] [--busy] [NAME...]

DIR holds the output of peers/workloads.py. Each plan is simulated, and run by `gradloom bench`, with one thread for each device. A cell shows
the median over the rounds of the median step. `others` is the largest share of all cores that other processes used; if it is above 0.05,
measure again."""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
GRADLOOM = HERE.parents[1] / "bazel-bin/tools/gradloom/gradloom"
sys.path.insert(0, str(HERE / "peers"))
from processes import LOSSES  # noqa: E402
from run_all import busy, cpu, own, wait_quiet  # noqa: E402

NAMES = ("mlp_housing", "lenet", "mlp_wide", "lstm", "gpt2_mini", "resnet18_cifar", "mobilenet_v2")
SECONDS = 4  # approximate duration of the measured steps of a round


def command(*words):
    done = subprocess.run([GRADLOOM, *words], check=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    return done.stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=pathlib.Path, required=True)
    parser.add_argument("--devices", default="1,2,4")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--busy", action="store_true", help="wait for no quiet machine")
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    print(f"{cpu()}; {arguments.rounds} rounds\n")
    print("| model, batch | devices | measured, ms | predicted, ms | error | exposed, ms | others |\n|---|---|---|---|---|---|---|")
    for name in arguments.names or NAMES:
        case = json.loads((arguments.cache / f"{name}.json").read_text())
        batch = case["batch_size"]
        for devices in arguments.devices.split(","):
            recipe = [arguments.cache / f"{name}.onnx", "--loss", LOSSES[case["losses"][0]["type"]], "--optimizer", case["optimizer"]["type"],
                      "--batch", str(batch), "--devices", f"cpu:{devices}", "--threads", "1"]
            with tempfile.TemporaryDirectory() as folder:
                plan = pathlib.Path(folder) / "step.plan"
                command("compile", *recipe, "-o", plan, "-q")
                predicted = json.loads(command("simulate", plan, "--json", "-q"))["simulations"][0]
            steps, measured, others = 20, [], 0.0
            for _ in range(arguments.rounds):
                if not arguments.busy:
                    wait_quiet(60)
                clock, begin, mine = os.times().elapsed, busy(), own()
                step = json.loads(command("bench", *recipe, "--steps", str(steps), "--json", "-q"))["ms_per_step"]
                others = max(others, (busy() - begin - (own() - mine)) / ((os.times().elapsed - clock) * os.cpu_count()))
                measured.append(step)
                steps = max(20, min(2000, int(SECONDS * 1000 / step / 5)))
            step = statistics.median(measured)
            error = predicted["step_ms"] / step - 1
            print(f"| {name}, {batch} | {devices} | {step:.3g} | {predicted['step_ms']:.3g} | {error:+.0%} | {predicted['exposed_ms']:.3g} | "
                  f"{others:.2f} |", flush=True)


if __name__ == "__main__":
    main()
