#!/usr/bin/env python3
"""Predicts the efficiency of three models on many GPUs: ResNet-50, BERT-base and GPT-2 124M in mixed precision, on nodes of eight.

python scaling.py --cache DIR [--topology models/clusters/h200_nodes.toml] [--one-gpu]

Writes the models' ONNX files to DIR with PyTorch if they are missing (0.5 GB each), compiles each for eight GPUs, which need not be
present, and simulates the plan on 8 to 4,096 of them: the table of docs/scaling.md. Also shows the effect of one change at a time. With
--one-gpu it prints the table of docs/gpu.md: a step on one GPU, and a step of two small models in float32, whose files peers/workloads.py
writes to DIR. The binary is bazel-bin/tools/gradloom/gradloom."""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
GRADLOOM = ROOT / "bazel-bin/tools/gradloom/gradloom"
sys.path.insert(0, str(ROOT / "tests/bench/peers"))

COUNTS = (1, 8, 64, 512, 4096)
# By model: samples per device, optimizer, and what a sample is called.
MODELS = {"resnet50": (256, "momentum", "images"), "bert_base": (64, "adamw", "sequences of 128"), "gpt2_124m_1024": (16, "adamw", "sequences of 1,024")}


# In float32, by model: samples, loss and optimizer.
SMALL = {"mlp_housing": (64, "mse", "adam"), "lenet": (64, "cross_entropy", "sgd")}


def export(name, folder):
    import workloads as w
    if name in w.GPU:
        w.W[name] = (*w.GPU[name][:2], 2, *w.GPU[name][3:])  # tells the compiler the batch size
    w.write(name, folder)


def compiled(model, optimizer, batch, plan, devices=8, loss="cross_entropy", precision="bf16", accumulate=1):
    command = [GRADLOOM, "compile", model, "--loss", loss, "--optimizer", optimizer, "--lr", "0.001", "--batch", str(devices * batch), "--devices",
               "cuda:" + ",".join(map(str, range(devices))), "--target", "sm_90", "--precision", precision, "--accumulate", str(accumulate), "-o", plan]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return plan


def simulated(plan, topology, counts=COUNTS):
    counts = ",".join(map(str, counts))
    text = subprocess.run([GRADLOOM, "simulate", plan, "--topology", topology, "--devices", counts, "--json"], check=True, capture_output=True, text=True).stdout
    return {row["devices"]: row for row in json.loads(text)["simulations"]}


def efficiency(rows, count):
    return rows[1]["step_ms"] / rows[count]["step_ms"]


def changed(topology, folder, key, factor):
    """The topology with one number multiplied."""
    section, name = key.split(".")
    lines, inside = [], False
    for line in pathlib.Path(topology).read_text().splitlines():
        if line.startswith("["):
            inside = line.startswith(f"[{section}]")
        if inside and line.startswith(name + " "):
            line = f"{name} = {float(line.split('=')[1]) * factor:g}"
        lines.append(line)
    path = pathlib.Path(folder) / "changed.toml"
    path.write_text("\n".join(lines) + "\n")
    return path


def one_gpu(cache, topology, folder):
    print("| model, samples, precision | step, ms | samples/s | launches one after another | memory, GiB |\n|---|---|---|---|---|")
    rows = [(name, batch, "cross_entropy", optimizer, "bf16") for name, (batch, optimizer, _) in MODELS.items()]
    rows += [(name, batch, loss, optimizer, "fp32") for name, (batch, loss, optimizer) in SMALL.items()]
    for name, batch, loss, optimizer, precision in rows:
        plan = compiled(cache / f"{name}.onnx", optimizer, batch, folder / "one.plan", 1, loss, precision)
        row = simulated(plan, topology, [1])[1]
        memory = json.loads(subprocess.run([GRADLOOM, "inspect", plan, "--json"], check=True, capture_output=True, text=True).stdout)["total_bytes"]
        print(f"| {name}, {batch}, {precision} | {row['step_ms']:.3g} | {row['samples_per_second']:,.0f} | {row['critical_instructions']} | {memory / 2**30:.3g} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=pathlib.Path, required=True)
    parser.add_argument("--topology", type=pathlib.Path, default=ROOT / "models/clusters/h200_nodes.toml")
    parser.add_argument("--one-gpu", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for name in MODELS:
            if not (arguments.cache / f"{name}.onnx").exists():
                export(name, arguments.cache)
        if arguments.one_gpu:
            return one_gpu(arguments.cache, arguments.topology, folder)
        base, variants = {}, {}
        for name, (batch, optimizer, _) in MODELS.items():
            model = arguments.cache / f"{name}.onnx"
            plan = compiled(model, optimizer, batch, folder / f"{name}.plan")
            base[name] = simulated(plan, arguments.topology)
            variants[name] = {
                "twice the samples per device": simulated(compiled(model, optimizer, 2 * batch, folder / "twice.plan"), arguments.topology),
                "half the samples per device": simulated(compiled(model, optimizer, batch // 2, folder / "half.plan"), arguments.topology),
                "four batches per update": simulated(compiled(model, optimizer, batch, folder / "four.plan", accumulate=4), arguments.topology),
                "a network of twice the bandwidth": simulated(plan, changed(arguments.topology, folder, "network.bytes_per_second", 2)),
                "a network of half the delay": simulated(plan, changed(arguments.topology, folder, "network.seconds", 0.5)),
            }
        print("| model, samples per device | 1 GPU: step, ms |" + "".join(f" {n:,} GPUs |" for n in COUNTS[1:]) + "\n|---|---|" + "---|" * (len(COUNTS) - 1))
        for name, (batch, _, what) in MODELS.items():
            cells = "".join(f" {100 * efficiency(base[name], n):.1f} % ({base[name][n]['exposed_ms']:.2f}) |" for n in COUNTS[1:])
            print(f"| {name}, {batch} {what} | {base[name][1]['step_ms']:.2f} |{cells}")
        for name in MODELS:
            print(f"\n| {name} |" + "".join(f" {n:,} GPUs |" for n in COUNTS[1:]) + "\n|---|" + "---|" * (len(COUNTS) - 1))
            for what, rows in {"as above": base[name], **variants[name]}.items():
                print(f"| {what} |" + "".join(f" {100 * efficiency(rows, n):.1f} % |" for n in COUNTS[1:]))


if __name__ == "__main__":
    main()
