#!/usr/bin/env python3
"""Compares two processes that train one model with PyTorch's DistributedDataParallel, and shows the speed-up of the second process.

python processes.py --cache DIR --python P [--rounds 5] [NAME...]

DIR holds the output of peers/workloads.py; P is a Python that can run peers/torch_*.py. Runs in turns, each with one thread per process:
one process of PyTorch, two of them (DDP over gloo), one process of Gradloom, one with two devices, and two processes with one device each,
which communicate through shared memory, over TCP and, if there is mpirun, by MPI. The batch is that of the whole job. A cell shows the
median over the rounds of samples per second, followed by the least and the most. The table below it divides the rate of two by that of one,
which is 2 for ideal scaling. `others` is the largest share of all cores that other processes used; if it is above 0.05, measure again."""
import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
GRADLOOM = ROOT / "bazel-bin/tools/gradloom/gradloom"
sys.path.insert(0, str(HERE / "peers"))
from run_all import busy, cpu, own, wait_quiet  # noqa: E402

NAMES = ("lenet", "mlp_wide", "resnet18_cifar")
SECONDS = 6  # approximate duration of the measured steps in one process
LOSSES = {"cross_entropy": "cross_entropy(out, y)", "mse": "mse(out, y)"}
MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", "2"]


def training(name, cache, folder, repeats, steps):
    """The gradloom command for a job of any form. An epoch consists of the four batches, repeated this often."""
    import numpy as np
    case = json.loads((cache / f"{name}.json").read_text())
    data = folder / f"{name}.npz"
    if not data.exists():
        batches = np.load(cache / f"{name}.npz")
        count = len(batches.files) // 2
        np.savez(data, **{key: np.concatenate([batches[f"{key}{i}"] for i in range(count)] * repeats) for key in "xy"})
    kind = case["optimizer"]["type"]
    flags = ["--optimizer", kind, "--lr", str(case["optimizer"]["lr"])]
    flags += ["--momentum", "0.9"] if kind == "momentum" else []
    return ["train", cache / f"{name}.onnx", "--data", data, "--loss", LOSSES[case["losses"][0]["type"]], *flags, "--threads", "1",
            "--batch", str(case["batch_size"]), "--steps", str(steps), "--save-every", "never", "--progress", "none", "--out", folder]


def ours(name, cache, folder, repeats, steps, start, devices, *flags):
    """Samples per second in the median epoch after the first."""
    words = training(name, cache, folder, repeats, steps)
    run = f"{name}{len(os.listdir(folder))}"
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OMPI_MCA_btl_vader_single_copy_mechanism": "none"}
    command = [*start, *words, "--name", run, "--devices", devices, *flags]
    subprocess.run(command, check=True, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    rows = [line.split(",") for line in (folder / run / "results.csv").read_text().splitlines()]
    column = rows[0].index("samples_per_s")
    shutil.rmtree(folder / run)
    return statistics.median(float(row[column]) for row in rows[2:])


def torchs(peer, name, python, steps, processes):
    done = subprocess.run([python, HERE / f"peers/{peer}.py", "--workload", name, "--threads", str(processes), "--steps", str(steps), "--json"], check=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    return json.loads(done.stdout.strip().splitlines()[-1])["samples_per_s"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=pathlib.Path, required=True)
    parser.add_argument("--python", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--busy", action="store_true", help="wait for no quiet machine")
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    launch = [GRADLOOM, "launch", "--standalone", "--nproc-per-node", "2", "--"]
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        table = {}
        for name in arguments.names or NAMES:
            first = torchs("torch_eager", name, arguments.python, 10, 1)
            batch = json.loads((arguments.cache / f"{name}.json").read_text())["batch_size"]
            rate = first / batch
            repeats = max(1, min(8, int(SECONDS * rate / 12)))
            steps = 4 * repeats * max(3, int(SECONDS * rate / (4 * repeats)))

            def own_job(start, devices, *flags):
                return lambda: ours(name, arguments.cache, folder, repeats, steps, start, devices, *flags)
            kinds = {
                "PyTorch": lambda: torchs("torch_eager", name, arguments.python, steps, 1),
                "PyTorch, DDP of 2": lambda: torchs("torch_ddp", name, arguments.python, steps, 2),
                "Gradloom": own_job([GRADLOOM], "cpu:1"),
                "2 devices": own_job([GRADLOOM], "cpu:2"),
                "2 processes": own_job(launch, "cpu:1"),
                "TCP": own_job(launch, "cpu:1", "--transport", "tcp"),
            }
            if shutil.which("mpirun"):
                kinds["MPI"] = own_job([*MPIRUN, GRADLOOM], "cpu:1", "--transport", "mpi")
            rates, others = {kind: [] for kind in kinds}, 0
            for _ in range(arguments.rounds):
                for kind, measure in kinds.items():
                    if not arguments.busy:
                        wait_quiet(60)
                    clock, begin, mine = os.times().elapsed, busy(), own()
                    rates[kind].append(measure())
                    others = max(others, (busy() - begin - (own() - mine)) / ((os.times().elapsed - clock) * os.cpu_count()))
            table[name] = (rates, others)
            print(name, {kind: [round(rate) for rate in measured] for kind, measured in rates.items()}, f"others {others:.2f}",
                  file=sys.stderr, flush=True)
    kinds = list(next(iter(table.values()))[0])
    print(f"{cpu()}; {arguments.rounds} rounds; samples a second, median (least to most)\n")
    print("| net | " + " | ".join(kinds) + " | others |\n|---|" + "---|" * (len(kinds) + 1))
    for name, (rates, others) in table.items():
        cells = [f"{statistics.median(r):,.0f} ({min(r):,.0f} to {max(r):,.0f})" for r in rates.values()]
        print(f"| {name} | " + " | ".join(cells) + f" | {others:.2f} |")
    pairs = [kind for kind in kinds if kind not in ("PyTorch", "Gradloom")]
    print("\n| net | " + " | ".join(pairs) + " |\n|---|" + "---|" * len(pairs))
    for name, (rates, _) in table.items():
        def over(kind):
            alone = rates["PyTorch" if kind.startswith("PyTorch") else "Gradloom"]
            return statistics.median(a / b for a, b in zip(rates[kind], alone))
        print(f"| {name} | " + " | ".join(f"{over(kind):.2f}" for kind in pairs) + " |")


if __name__ == "__main__":
    main()
