#!/usr/bin/env python3
"""Compares Gradloom and its peers on the same workloads, in turns on a quiet machine: a table of step times and their ratio to the best
peer.

python compare_peers.py --cache DIR --peer torch_eager=P --peer torch_compile=P --peer jax_train=P --peer ort_training=O
[--threads 2] [--rounds 3] [--cpu-time] [--bf16] [NAME...]

DIR holds the output of peers/workloads.py. P and O are Python interpreters that can run peers/PEER.py (set_up_peers.sh creates them). The
binaries are taken from bazel-bin/tests/bench. A round runs one process of each, one after the other. A cell shows the median over the
rounds of the median step, followed by the worst round. `ratio` is the best peer's median divided by Gradloom's. `limit` is the least time
that the machine needs for the work of Gradloom's step, divided by the time it takes: compute-bound launches at the rate of a large product,
and memory-bound ones at the rate of a large copy, both measured beforehand (machine.cc). `others` is the largest share of all cores that
other processes used meanwhile. If it is above 0.05, measure again, or use --cpu-time, which measures the processes' CPU time: with one
thread this is the cost of a step, whatever else runs (except for shared caches).

With --bf16, Gradloom and the PyTorch peers compute in bfloat16; Gradloom in float32 has a column of its own.

First losses must agree where the initial weights are the same. JAX draws its own weights, and onnxruntime-training has neither momentum nor
this variant of Adam."""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
BINARIES = HERE.parents[1] / "bazel-bin/tests/bench"
sys.path.insert(0, str(HERE / "peers"))
from run_all import STEPS, busy, cpu, own, wait_quiet  # noqa: E402

OWN_START = {"jax_train"}  # peers with different initial weights, and so a different first loss


def run(command, quiet):
    """The JSON line of one process, with the share of the cores that other processes used while it ran, or the error."""
    if quiet:
        wait_quiet(60)
    clock, begin, mine = os.times().elapsed, busy(), own()
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    seconds = os.times().elapsed - clock
    if done.returncode != 0:
        return {"failed": (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1][-200:]}
    result = json.loads(done.stdout.strip().split("\n")[-1])
    result["others"] = (busy() - begin - (own() - mine)) / (seconds * os.cpu_count())
    return result


def milliseconds(value):
    return f"{value:.3f}" if value < 1 else f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 1000 else f"{value:.0f}"


def middle(rounds, key):
    return statistics.median(r[key] for r in rounds)


def step_cell(rounds):
    """The median step and the worst round, or the reason why a peer cannot run the workload."""
    if any("failed" in r for r in rounds):
        return "failed"
    return f"{milliseconds(middle(rounds, 'ms_per_step'))} ({milliseconds(max(r['ms_per_step'] for r in rounds))})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=pathlib.Path, required=True)
    parser.add_argument("--peer", action="append", required=True, metavar="PEER=PYTHON")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=8, help="of measured steps, at most, in one process")
    parser.add_argument("--cpu-time", action="store_true", help="of the processes, instead of the wall clock's; waits for no quiet machine")
    parser.add_argument("--bf16", action="store_true", help="in bfloat16, ours in float32 besides")
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    peers = dict(peer.split("=", 1) for peer in arguments.peer)
    quiet = not arguments.cpu_time
    machine = run([BINARIES / "machine", "--threads", str(arguments.threads)], quiet)
    print(f"{cpu()}; {arguments.threads} threads; {arguments.rounds} rounds{'; CPU time' if arguments.cpu_time else ''}; products at "
          f"{machine['product_flops_per_second'] * 1e-9:.0f} GFLOP/s, copies at {machine['copy_bytes_per_second'] * 1e-9:.1f} GB/s\n")
    in_float32 = "float32, ms | " if arguments.bf16 else ""
    print(f"| workload | gradloom, ms | {in_float32}" + " | ".join(f"{name}, ms" for name in peers) + " | ratio | limit | first step, s | peers | RSS, MiB | peers | others |")
    print("|---|" + "---|" * (len(peers) + 8 + arguments.bf16))
    notes = []
    for name in arguments.names or STEPS:
        common = ["--threads", str(arguments.threads), "--steps", str(STEPS.get(name, 30)), "--seconds", str(arguments.seconds), "--json"]
        common += ["--cpu-time"] if arguments.cpu_time else []
        files = [arguments.cache / f"{name}.{kind}" for kind in ("onnx", "npz", "json")]
        draws = json.loads(files[2].read_text()).get("draws", False)  # random numbers, which differ between peers
        ours, wide, theirs = [], [], {peer: [] for peer in peers}
        low, theirs_low = (["--precision", "bf16"], ["--bf16"]) if arguments.bf16 else ([], [])
        for _ in range(arguments.rounds):
            ours.append(run([BINARIES / "workload", *files, *common, *low], quiet))
            if arguments.bf16:
                wide.append(run([BINARIES / "workload", *files, *common], quiet))
            for peer, python in peers.items():
                theirs[peer].append(run([python, HERE / f"peers/{peer}.py", "--workload", name, "--cache", arguments.cache, *common, *theirs_low],
                                        quiet))
        if any("failed" in r for r in ours + wide):
            sys.exit(f"{name}: {ours} {wide}")
        able = {peer: rounds for peer, rounds in theirs.items() if not any("failed" in r for r in rounds)}
        for peer, rounds in theirs.items():
            if peer not in able:
                notes.append(f"{peer}, {name}: {next(r['failed'] for r in rounds if 'failed' in r)}")
            elif peer not in OWN_START and not draws and abs(rounds[0]["loss_first"] - ours[0]["loss_first"]) > (2e-2 if arguments.bf16 else 1e-3) * max(1, abs(ours[0]["loss_first"])):
                notes.append(f"{peer}, {name}: the first loss is {rounds[0]['loss_first']}, ours {ours[0]['loss_first']}")
            notes += [f"{peer}, {name}: {r['note']}" for r in rounds[:1] if r.get("note")]
        step = middle(ours, "ms_per_step")
        least = 1e3 * (ours[0]["computed_gflop"] * 1e9 / machine["product_flops_per_second"] +
                       2**20 * ours[0]["moved_mib"] / machine["copy_bytes_per_second"])
        cells = [step_cell(rounds) for rounds in ([ours, wide] if arguments.bf16 else [ours])]
        cells += [*(step_cell(rounds) for rounds in theirs.values())]
        best = min((middle(rounds, "ms_per_step") for rounds in able.values()), default=float("nan"))
        cells += [f"{best / step:.2f}", f"{100 * least / step:.0f} %"]
        for key, digits in (("first_step_s", 2), ("peak_rss_mib", 0)):
            cells.append(f"{middle(ours, key):.{digits}f}" + (f" (float32: {middle(wide, key):.{digits}f})" if wide else ""))
            cells.append(", ".join(f"{middle(rounds, key):.{digits}f}" for rounds in able.values()))
        cells.append(f"{max(r['others'] for rounds in (ours, wide, *able.values()) for r in rounds):.2f}")
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)
    for note in notes:
        print(f"\n- {note}", end="")
    print()


if __name__ == "__main__":
    main()
