#!/usr/bin/env python3
"""Compares Gradloom with PyTorch eager, torch.compile and JAX on one GPU in one run: a table of step times.

python tests/gpu/bench.py FOLDER [--cache DIR] [--device cuda:0] [--json-out FILE] [--ops-out DIR] [NAME...]

FOLDER is the output of tests/gpu/pack.sh. The Python needs torch, torchvision and onnx, and another one, or the same, needs jax with CUDA,
flax and optax (--jax; "" leaves out that peer).

Peers compile side by side, since that takes most of the time: as many as fit into the device's memory, and meanwhile
tests/bench/peers/workloads.py writes the models to DIR. A peer that has done its first steps waits and uses only memory. Once all wait or
have failed, they are timed one at a time, and Gradloom just before the peers of the same workload. So time to first step and what
max-autotune measures are those of a busy machine for peers, and of an idle one for Gradloom.

A cell is the median step, including the transfer of inputs from the host and of the loss to it. `best peer / ours` is above 1 if Gradloom is
faster. `products` is the time that the step's products need at the rate of one large product on this card, measured in the same run, divided
by the step time. A peer that fails, or is not ready after --limit, is listed below the table; one that lacked memory is tried again alone.
Every result also goes to stderr as soon as it is there, and to FILE, with more fields (ms_p10, ms_p90). With --ops-out, Gradloom then runs
once more for each workload with single launches that are timed, and writes the times by kernel and of the slowest instructions to
DIR/NAME.txt."""
import argparse
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
PEERS = ROOT / "tests/bench/peers"
# By name: precision, steps, about how many seconds these take, and GiB of memory of a process of PyTorch, and of JAX or Gradloom, to decide
# how many compile side by side.
WORKLOADS = {"mlp_housing": ("fp32", 500, 1, 1, 1), "lenet": ("fp32", 500, 1, 1, 1), "resnet50_256": ("bf16", 30, 4, 20, 12),
             "bert_base": ("bf16", 50, 2, 5, 5), "gpt2_124m_1024": ("bf16", 30, 4, 17.5, 13)}
FILES = ("onnx", "npz", "json")
MODES = ("eager", "default", "reduce-overhead", "max-autotune")
AROUND_S, AROUND_OURS_S = 1.5, 5  # about how long the timing of one process takes in addition: warm-up, and all before it for ours
COMPILE_S = 45  # for a wave after the first, if time is short
NO_TIME = {"failed": "no time left"}

RATE = """
import json, sys, time, torch
device = torch.device(sys.argv[1])
n = 8192 if device.type == "cuda" else 512
def wait():
    if device.type == "cuda": torch.cuda.synchronize()
def rate(dtype):
    a, b = (torch.randn(n, n, device=device, dtype=dtype) for _ in range(2))
    best = 1e9
    for _ in range(10):
        wait(); begin = time.perf_counter(); a @ b; wait(); best = min(best, time.perf_counter() - begin)
    return 2 * n ** 3 / best
print("ready", flush=True)
if sys.stdin.readline(): print(json.dumps(dict(fp32=rate(torch.float32), bf16=rate(torch.bfloat16))))
"""


class Process:
    """A process that ends by printing a line of JSON. With a gate, it prints "ready" before, and waits for a line of input."""

    def __init__(self, command, environment=None):
        self.begin = time.monotonic()
        self.stderr = tempfile.TemporaryFile("w+", errors="replace")
        self.lines = []
        self.process = subprocess.Popen(list(map(str, command)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.stderr, text=True,
                                        errors="replace", env=environment, start_new_session=True)
        self.reader = threading.Thread(target=lambda: self.lines.extend(iter(self.process.stdout.readline, "")), daemon=True)
        self.reader.start()

    def ready(self):
        return "ready\n" in self.lines

    def ended(self):
        if self.process.returncode is None and os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            return False
        self.reader.join(1)  # processes that it has started may keep its output open
        return True

    def why(self):
        """Of a process that has ended."""
        self.stop()
        self.stderr.seek(0)
        said = [line.strip() for line in self.stderr.read().splitlines() if line.strip()]
        # Errors of devices are followed by advice.
        return next((line for line in reversed(said) if "Error" in line), (said or [f"exit status {self.process.returncode}"])[-1])[-300:]

    def result(self, limit):
        """Lets it through the gate, and waits. The JSON line, or the reason why there is none."""
        end = time.monotonic() + limit
        try:
            print(file=self.process.stdin, flush=True)
        except OSError:
            pass  # it has died
        try:
            while True:
                ended = self.ended()
                found = next((line for line in reversed(self.lines) if line.startswith("{") and line.endswith("}\n")), None)
                if found:
                    return json.loads(found)
                if ended:
                    return {"failed": self.why()}
                if time.monotonic() > end:
                    return {"failed": f"took more than {limit:.0f} s"}
                time.sleep(0.01)
        finally:
            self.stop()

    def stop(self):
        if self.process.returncode is None:  # until then nobody else can have its number
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


def memory_total(device):
    """In GiB; for the CPU, without limit."""
    kind, _, ordinal = device.partition(":")
    if kind == "cpu":
        return float("inf")
    query = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits", "-i", ordinal or "0"]
    return float(subprocess.run(query, capture_output=True, text=True, check=True).stdout) / 1024


def memory(name, who):
    return WORKLOADS[name][3 if who.startswith("torch") else 4]


def waves(names, peers, capacity):
    """What compiles side by side: a list of {workload: peers}. A workload's peers are together if they fit."""
    made, used = [{}], 0
    for name in names:
        alone = memory(name, "gradloom")  # it is timed while others wait
        if made[-1] and used + alone + sum(memory(name, who) for who in peers) > capacity:
            made.append({})
            used = 0
        made[-1][name] = []
        used += alone
        for who in peers:
            if used + memory(name, who) > capacity and made[-1][name]:
                made.append({name: []})
                used = alone
            made[-1][name].append(who)
            used += memory(name, who)
    return made


def milliseconds(result):
    return "failed" if "failed" in result else f"{result['ms_per_step']:.3g}"


class Bench:
    def __init__(self, arguments):
        self.a = arguments
        self.end = time.monotonic() + arguments.budget
        self.names = arguments.names or list(WORKLOADS)
        self.peers = [f"torch {mode}" for mode in arguments.modes] + (["jax"] if arguments.jax else [])
        self.results = {name: {} for name in self.names}
        self.rates = None
        self.processes = []
        libraries = subprocess.run([ROOT / "tests/gpu/cuda_libraries.sh"], capture_output=True, text=True, check=True).stdout.strip()
        self.environment = dict(os.environ, LD_LIBRARY_PATH=f"{arguments.folder.resolve()}:{libraries}:{os.environ.get('LD_LIBRARY_PATH', '')}")

    def start(self, command, environment=None):
        self.processes.append(Process(command, environment))
        return self.processes[-1]

    def command(self, who, name):
        a = self.a
        precision, steps, *_ = WORKLOADS[name]
        common = ["--steps", steps, "--warmup", 10, "--seconds", a.seconds, "--precision", precision, "--json"]
        if who == "gradloom":
            files = [a.cache / f"{name}.{kind}" for kind in FILES]
            return [a.folder / "gpu_programs", "workload", *files, *common, "--devices", a.device, "--streams", 0, "--autotune", a.autotune,
                    "--sum-order", a.sum_order]
        peer = ["--workload", name, "--device", a.device, "--gate", *common]
        return [a.jax, PEERS / "jax_train.py", *peer] if who == "jax" else [sys.executable, PEERS / "torch_cuda.py", "--mode", who.split()[1], *peer]

    def left(self):
        return self.end - time.monotonic()

    def note(self, who, name, result):
        self.results[name][who] = result
        print(f"{who}, {name}: {json.dumps(result)}", file=sys.stderr, flush=True)
        if self.a.json_out:
            self.a.json_out.write_text(json.dumps(dict(device=self.a.device, flops_per_s=self.rates, results=self.results), indent=1) + "\n")

    def run(self):
        exports = {name: self.start([sys.executable, PEERS / "workloads.py", "--out", self.a.cache, name]) for name in self.names
                   if not all((self.a.cache / f"{name}.{kind}").exists() for kind in FILES)}
        rate = self.start([sys.executable, "-c", RATE, self.a.device])
        planned = waves(self.names, self.peers, 0.95 * memory_total(self.a.device) - 1)
        repeated = False
        while planned and not (repeated and self.left() < 60):
            wave = planned.pop(0)
            started = self.compile(wave, exports, rate, self.left() - self.timing_s([wave, *planned]) - COMPILE_S * len(planned))
            if self.rates is None:
                self.rates = rate.result(max(1, min(60, self.left())))
            for name in wave:
                self.time(name, started, exports)
            if not planned and not repeated:
                repeated = True
                planned = [{name: [who]} for name, of in self.results.items() for who in self.peers if "memory" in of[who].get("failed", "").lower()]

    def write_ops(self, folder):
        folder.mkdir(parents=True, exist_ok=True)
        for name in self.names:
            limit = min(self.a.limit, self.left())
            if "failed" in self.results[name]["gradloom"] or limit < 2:
                print(f"{name}: no times of kernels", file=sys.stderr, flush=True)
                continue
            command = [str(word) for word in self.command("gradloom", name) if word != "--json"]
            with open(folder / f"{name}.txt", "w") as file:
                try:
                    subprocess.run([*command, "--ops"], stdout=file, stderr=subprocess.STDOUT, env=self.environment, timeout=limit)
                except subprocess.TimeoutExpired:
                    print(f"{name}: no time left for the times of kernels", file=sys.stderr, flush=True)

    def timing_s(self, waves):
        """About how long it takes to time the peers of these waves, and Gradloom where that is left to do."""
        peers = [name for wave in waves for name, whos in wave.items() for _ in whos]
        ours = [name for name, of in self.results.items() if "gradloom" not in of]
        return sum(min(self.a.seconds, WORKLOADS[name][2]) for name in peers + ours) + AROUND_S * len(peers) + AROUND_OURS_S * len(ours)

    def compile(self, wave, exports, rate, seconds):
        """Starts the peers of a wave; returns, by workload and peer, those that are ready."""
        began = time.monotonic()
        end = began + min(self.a.limit, seconds)
        compiled = sum(who.startswith("torch") and not who.endswith("eager") for whos in wave.values() for who in whos)
        workers = max(2, 2 * (os.cpu_count() or 2) // max(compiled, 1))
        environment = dict(os.environ, XLA_PYTHON_CLIENT_PREALLOCATE="false")
        environment.setdefault("TORCHINDUCTOR_COMPILE_THREADS", str(workers))
        wanted = [(name, who) for name, whos in wave.items() for who in whos]
        if seconds < 20:
            for name, who in wanted:
                self.note(who, name, NO_TIME)
            wanted = []
        started = {key: self.start(self.command(key[1], key[0]), environment) for key in wanted}
        waits = dict(started)
        while waits and time.monotonic() < end:
            time.sleep(0.05)
            for key, process in list(waits.items()):
                if process.ready() or process.ended():
                    del waits[key]
                    state = "ready" if process.ready() else "failed"
                    print(f"{key[1]}, {key[0]}: {state} after {time.monotonic() - process.begin:.0f} s", file=sys.stderr, flush=True)
        for (name, who), process in list(started.items()):
            if (name, who) in waits:
                process.stop()
            if not process.ready():
                late = {"failed": f"not ready after {time.monotonic() - process.begin:.0f} s"}
                self.note(who, name, late if (name, who) in waits else {"failed": process.why()})
                del started[name, who]
        # Nothing else may run while something is timed, and without a model there is no time of ours.
        end = max(end, began + seconds, time.monotonic() + 1)
        while not all(each.ended() for each in exports.values()) and time.monotonic() < end:
            time.sleep(0.05)
        for export in exports.values():
            export.stop()
        while not rate.ready() and not rate.ended() and time.monotonic() < end:
            time.sleep(0.05)
        return started

    def time(self, name, started, exports):
        """Times Gradloom and the peers that are ready, one at a time."""
        if "gradloom" not in self.results[name]:
            if name in exports and exports[name].process.returncode != 0:
                result = {"failed": "the model was not written: " + exports[name].why()}
            elif self.left() < 2:
                result = NO_TIME
            else:
                result = self.start(self.command("gradloom", name), self.environment).result(min(self.a.limit, self.left()))
            self.note("gradloom", name, result)
        for who in [who for other, who in started if other == name]:
            process, seconds = started[name, who], self.left() - self.timing_s([])
            if seconds < 2:
                process.stop()
                self.note(who, name, NO_TIME)
            else:
                self.note(who, name, process.result(min(2 * self.a.seconds + 30, seconds)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--cache", type=pathlib.Path, default=pathlib.Path("/tmp/gradloom_bench"))
    parser.add_argument("--device", default="cuda:0", help="cpu: to try the script, with the names of small nets")
    parser.add_argument("--jax", default=sys.executable, help="the Python for JAX")
    parser.add_argument("--autotune", choices=("on", "off"), default="off", help="of ours: as max-autotune is of torch.compile")
    parser.add_argument("--sum-order", choices=("fixed", "any"), default="fixed", help="of ours; that of peers may differ from run to run")
    parser.add_argument("--limit", type=int, default=150, help="seconds until a peer must be ready")
    parser.add_argument("--budget", type=int, default=10 ** 6, help="seconds for all; what does not fit counts as failed")
    parser.add_argument("--seconds", type=float, default=10, help="of measured steps, at most, in one process")
    parser.add_argument("--modes", type=lambda text: [mode for mode in text.split(",") if mode], default=MODES,
                        help="of PyTorch, separated by commas: " + ", ".join(MODES))
    parser.add_argument("--ops-out", type=pathlib.Path, metavar="DIR", help="times of our kernels, by workload")
    parser.add_argument("--json-out", type=pathlib.Path, metavar="FILE", help="all results")
    parser.add_argument("names", nargs="*")
    a = parser.parse_intermixed_args()
    if not (a.folder / "gpu_programs").exists():
        subprocess.run(["tar", "-xzf", a.folder / "programs.tar.gz", "-C", a.folder], check=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
    bench = Bench(a)
    try:
        bench.run()
        print_table(a.device, bench.results, bench.peers, bench.rates)
        if a.ops_out:
            bench.write_ops(a.ops_out)
    finally:
        for process in bench.processes:
            process.stop()


def print_table(device, results, peers, rates):
    if "failed" not in rates:
        print(f"{device}: a large product at {rates['fp32'] * 1e-12:.3g} TFLOP/s in float32, {rates['bf16'] * 1e-12:.3g} in bfloat16\n")
    columns = ["workload", "gradloom, ms", *(f"{peer}, ms" for peer in peers), "best peer / ours", "products", "first step, s", "memory, MiB", "torch eager"]
    print("| " + " | ".join(columns) + " |")
    print("|---|" + "---|" * (len(peers) + 6))
    notes = [] if "failed" not in rates else [f"the rate of a large product: {rates['failed']}"]
    for name, of in results.items():
        precision, ours = WORKLOADS[name][0], of["gradloom"]
        notes += [f"{who}, {name}: {r['failed']}" for who, r in of.items() if "failed" in r]
        cells = [milliseconds(ours), *(milliseconds(of[peer]) for peer in peers)]
        if "failed" in ours:
            cells += [""] * 5
        else:
            best = min((of[peer]["ms_per_step"] for peer in peers if "failed" not in of[peer]), default=float("nan"))
            eager = of.get("torch eager", {})
            products_ms = ours["computed_gflop"] * 1e12 / rates.get(precision, float("nan"))
            cells += [f"{best / ours['ms_per_step']:.2f}", f"{100 * products_ms / ours['ms_per_step']:.0f} %", f"{ours['first_step_s']:.2f}",
                      f"{ours['planned_mib']:.0f}", f"{eager.get('device_mib', float('nan')):.0f}"]
            if abs(eager.get("loss_first", ours["loss_first"]) - ours["loss_first"]) > 2e-2 * max(1, abs(ours["loss_first"])):
                notes.append(f"{name}: our first loss is {ours['loss_first']}, PyTorch's {eager['loss_first']}")
        print(f"| {name}, {precision} | " + " | ".join(cells) + " |")
    for note in notes:
        print(f"\n- {note}", end="")
    print()


if __name__ == "__main__":
    main()
