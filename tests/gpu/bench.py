#!/usr/bin/env python3
"""Compares Gradloom with PyTorch eager, torch.compile and JAX on one GPU in one run: a table of step times.

python tests/gpu/bench.py FOLDER [--cache DIR] [--device cuda:0] [NAME...]

FOLDER is the output of tests/gpu/pack.sh. The Python needs torch, torchvision and onnx, and another one, or the same, needs jax with CUDA,
flax and optax (--jax; "" leaves out that peer). The models are first written to DIR by tests/bench/peers/workloads.py. A cell is the median
step, including the transfer of inputs from the host and of the loss to it. `best peer / ours` is above 1 if Gradloom is faster. `products`
is the time that the step's products need at the rate of one large product on this card, measured beforehand, divided by the step time. A
peer that fails, or takes longer than --limit, is listed below the table. Every result also goes to stderr as soon as it is there."""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
PEERS = ROOT / "tests/bench/peers"
# By name: precision, steps.
WORKLOADS = {"mlp_housing": ("fp32", 500), "lenet": ("fp32", 500), "resnet50_256": ("bf16", 30), "bert_base": ("bf16", 50), "gpt2_124m_1024": ("bf16", 30)}
FILES = ("onnx", "npz", "json")
MODES = ("eager", "default", "reduce-overhead", "max-autotune")

RATE = """
import sys, time, torch
device, dtype = torch.device(sys.argv[1]), dict(fp32=torch.float32, bf16=torch.bfloat16)[sys.argv[2]]
n = 8192 if device.type == "cuda" else 512
a, b = (torch.randn(n, n, device=device, dtype=dtype) for _ in range(2))
def wait():
    if device.type == "cuda": torch.cuda.synchronize()
best = 1e9
for _ in range(10):
    wait(); begin = time.perf_counter(); a @ b; wait(); best = min(best, time.perf_counter() - begin)
print(2 * n ** 3 / best)
"""


def run(command, limit, environment=None):
    """The JSON line of one process, or the reason why there is none."""
    try:
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=limit, env=environment)
    except subprocess.TimeoutExpired:
        return {"failed": f"took more than {limit} s"}
    if done.returncode != 0:
        return {"failed": (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1][-200:]}
    return json.loads(done.stdout.strip().splitlines()[-1])


def milliseconds(result):
    return "failed" if "failed" in result else f"{result['ms_per_step']:.3g}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--cache", type=pathlib.Path, default=pathlib.Path("/tmp/gradloom_bench"))
    parser.add_argument("--device", default="cuda:0", help="cpu: to try the script, with the names of small nets")
    parser.add_argument("--jax", default=sys.executable, help="the Python for JAX")
    parser.add_argument("--autotune", choices=("on", "off"), default="off", help="of ours: as max-autotune is of torch.compile")
    parser.add_argument("--limit", type=int, default=150, help="seconds for one process")
    parser.add_argument("--budget", type=int, default=10 ** 6, help="seconds for all; what does not fit counts as failed")
    parser.add_argument("--seconds", type=float, default=10, help="of measured steps, at most, in one process")
    parser.add_argument("--modes", type=lambda text: text.split(","), default=MODES, help="of PyTorch, separated by commas: " + ", ".join(MODES))
    parser.add_argument("names", nargs="*")
    a = parser.parse_intermixed_args()
    end = time.monotonic() + a.budget
    if not (a.folder / "gpu_programs").exists():
        subprocess.run(["tar", "-xzf", a.folder / "programs.tar.gz", "-C", a.folder], check=True)
    libraries = subprocess.run([ROOT / "tests/gpu/cuda_libraries.sh"], capture_output=True, text=True, check=True).stdout.strip()
    environment = dict(os.environ, LD_LIBRARY_PATH=f"{a.folder.resolve()}:{libraries}:{os.environ.get('LD_LIBRARY_PATH', '')}")
    rates = {p: float(subprocess.run([sys.executable, "-c", RATE, a.device, p], capture_output=True, text=True, check=True).stdout) for p in ("fp32", "bf16")}
    print(f"{a.device}: a large product at {rates['fp32'] * 1e-12:.3g} TFLOP/s in float32, {rates['bf16'] * 1e-12:.3g} in bfloat16\n", flush=True)
    names = a.names or list(WORKLOADS)
    absent = [name for name in names if not all((a.cache / f"{name}.{kind}").exists() for kind in FILES)]
    if absent:
        subprocess.run([sys.executable, PEERS / "workloads.py", "--out", a.cache, *absent], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def command(who, name):
        precision, steps = WORKLOADS[name]
        common = ["--steps", steps, "--warmup", 10, "--seconds", a.seconds, "--precision", precision, "--json"]
        if who == "gradloom":
            files = [a.cache / f"{name}.{kind}" for kind in FILES]
            return [a.folder / "gpu_programs", "workload", *files, *common, "--devices", a.device, "--streams", 0, "--autotune", a.autotune]
        peer = ["--workload", name, "--device", a.device, *common]
        return [a.jax, PEERS / "jax_train.py", *peer] if who == "jax" else [sys.executable, PEERS / "torch_cuda.py", "--mode", who.split()[1], *peer]

    peers = [f"torch {mode}" for mode in a.modes] + (["jax"] if a.jax else [])
    results = {name: {} for name in names}
    # If time runs out, all workloads have been run by us and by the same peers.
    for who in ["gradloom", *peers]:
        for name in names:
            left = int(end - time.monotonic())
            results[name][who] = run(command(who, name), min(a.limit, left), environment if who == "gradloom" else None) if left > 5 else {"failed": "no time left"}
            print(f"{who}, {name}: {json.dumps(results[name][who])}", file=sys.stderr, flush=True)
    print_table(results, peers, rates)


def print_table(results, peers, rates):
    print("| workload | gradloom, ms | " + " | ".join(f"{peer}, ms" for peer in peers) + " | best peer / ours | products | first step, s | memory, MiB | torch eager |")
    print("|---|" + "---|" * (len(peers) + 6))
    notes = []
    for name, of in results.items():
        precision, ours = WORKLOADS[name][0], of["gradloom"]
        notes += [f"{who}, {name}: {r['failed']}" for who, r in of.items() if "failed" in r]
        cells = [milliseconds(ours), *(milliseconds(of[peer]) for peer in peers)]
        if "failed" in ours:
            cells += [""] * 5
        else:
            best = min((of[peer]["ms_per_step"] for peer in peers if "failed" not in of[peer]), default=float("nan"))
            eager = of.get("torch eager", {})
            cells += [f"{best / ours['ms_per_step']:.2f}", f"{100 * ours['computed_gflop'] * 1e12 / rates[precision] / ours['ms_per_step']:.0f} %",
                      f"{ours['first_step_s']:.2f}", f"{ours['planned_mib']:.0f}", f"{eager.get('device_mib', float('nan')):.0f}"]
            if abs(eager.get("loss_first", ours["loss_first"]) - ours["loss_first"]) > 2e-2 * max(1, abs(ours["loss_first"])):
                notes.append(f"{name}: our first loss is {ours['loss_first']}, PyTorch's {eager['loss_first']}")
        print(f"| {name}, {precision} | " + " | ".join(cells) + " |")
    for note in notes:
        print(f"\n- {note}", end="")
    print()


if __name__ == "__main__":
    main()
