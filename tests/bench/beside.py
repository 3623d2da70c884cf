#!/usr/bin/env python3
"""Gradloom and one peer on the same workloads, in turns on a quiet machine: a table of step times and their ratio.

    python beside.py --cache DIR --peer-python P [--peer torch_eager] [--threads 2] [--rounds 3] [--cpu-time] [NAME...]

DIR holds what peers/workloads.py writes; P: a Python that can run peers/PEER.py. The binary is bazel-bin/tests/bench/workload. A round is one
process of each, first the one and then the other; a cell is the median over the rounds of the median step, the worst round behind it, and the
ratio is taken of those medians. `others` is the share of all cores that other processes used meanwhile, at its worst: above 0.05 measure again,
or with --cpu-time, which counts the processes' own time: with one thread that is what a step costs, whatever else runs (but for caches)."""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "peers"))
from run_all import STEPS, busy, cpu, own, wait_quiet  # noqa: E402


def run(command, quiet):
    """The JSON line of one process, with the share of the cores that others used while it ran."""
    if quiet:
        wait_quiet(60)
    clock, begin, mine = os.times().elapsed, busy(), own()
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    seconds = os.times().elapsed - clock
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: exit {done.returncode}\n{done.stderr[-2000:]}")
    result = json.loads(done.stdout.strip().split("\n")[-1])
    result["others"] = (busy() - begin - (own() - mine)) / (seconds * os.cpu_count())
    return result


def milliseconds(value):
    return f"{value:.3f}" if value < 1 else f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 1000 else f"{value:.0f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=pathlib.Path, required=True)
    parser.add_argument("--peer-python", required=True)
    parser.add_argument("--peer", default="torch_eager")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=8, help="of measured steps, at most, in one process")
    parser.add_argument("--cpu-time", action="store_true", help="of the processes, instead of the wall clock's; waits for no quiet machine")
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    binary = HERE.parents[1] / "bazel-bin/tests/bench/workload"
    print(f"{cpu()}; {arguments.threads} threads; {arguments.rounds} rounds{'; CPU time' if arguments.cpu_time else ''}\n")
    print(f"| workload | gradloom, ms | {arguments.peer}, ms | ratio | gradloom to first step, s | peer, s | gradloom RSS, MiB | peer, MiB | others |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name in arguments.names or STEPS:
        common = ["--threads", str(arguments.threads), "--steps", str(STEPS[name]), "--seconds", str(arguments.seconds), "--json"]
        common += ["--cpu-time"] if arguments.cpu_time else []
        files = [arguments.cache / f"{name}.{kind}" for kind in ("onnx", "npz", "json")]
        ours, peers = [], []
        for _ in range(arguments.rounds):
            ours.append(run([binary, *files, *common], not arguments.cpu_time))
            peers.append(run([arguments.peer_python, HERE / f"peers/{arguments.peer}.py", "--workload", name, "--cache", arguments.cache, *common],
                             not arguments.cpu_time))
        middle = [statistics.median(r["ms_per_step"] for r in side) for side in (ours, peers)]
        cells = [f"{milliseconds(m)} ({milliseconds(max(r['ms_per_step'] for r in side))})" for m, side in zip(middle, (ours, peers))]
        cells.append(f"{middle[1] / middle[0]:.2f}")
        cells += [f"{statistics.median(r['first_step_s'] for r in side):.2f}" for side in (ours, peers)]
        cells += [f"{statistics.median(r['peak_rss_mib'] for r in side):.0f}" for side in (ours, peers)]
        cells.append(f"{max(r['others'] for r in ours + peers):.2f}")
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
