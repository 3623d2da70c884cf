#!/usr/bin/env python3
"""Compares predictions of a Gradloom session with onnxruntime's, both in Python, on the networks of predict_models.py.

python predict_peers.py --models DIR [--threads 1] [--batch 1 --batch 64] [--rounds 3] [NAME...]

DIR holds the output of predict_models.py. Needs numpy, onnx and onnxruntime, and `bazel build //:gradloom`. The session is made from a plan
that trains, as a program that trains and serves would have it. A round runs one process of each, one after the other; a process predicts
the same batch again and again for --seconds. A cell shows the least median of a process in milliseconds; with --cpu-time the process's CPU
time, least over the calls, which with one thread other programs disturb only through shared caches. `difference` is the largest difference
of the outputs, relative to the largest output."""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path += [str(HERE), str(HERE / "peers")]


def predictor(runtime, path, name, batch, threads):
    """A function that predicts a batch."""
    if runtime == "onnxruntime":
        import onnxruntime
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        return lambda x: session.run(None, {"x": x})[0]
    sys.path.append(str(ROOT / "python"))
    os.environ.setdefault("GRADLOOM_LIBRARY", str(ROOT / "bazel-bin/tools/api/libgradloom.so"))
    os.environ.setdefault("GRADLOOM_HEADER", str(ROOT / "include/gradloom/gradloom_c.h"))
    import gradloom
    plan = gradloom.compile(path, loss="cross_entropy(out, y)", optimizer="sgd", lr=0.01, batch=batch, evaluate=False, devices="cpu",
                            settings={"devices.threads": threads})
    session = gradloom.Session(plan)
    return lambda x: session.predict(x=x)["out"]


def measure(a, runtime, name, batch):
    """Of one process: the time of a call and a digest of its result."""
    import numpy as np
    from predict_models import samples
    clock = time.process_time if a.cpu_time else time.perf_counter
    x = samples(name, batch)
    predict = predictor(runtime, a.models / f"{name}.onnx", name, batch, a.threads)
    begin = time.perf_counter()
    out = predict(x)
    first = time.perf_counter() - begin
    np.save(a.result, out)
    # Calls of less than a millisecond are measured in groups, for the clock's sake.
    begin = time.perf_counter()
    predict(x), predict(x)
    group = max(1, int(1e-3 / ((time.perf_counter() - begin) / 2)))
    ms, end = [], time.perf_counter() + a.seconds
    while time.perf_counter() < end or len(ms) < 3:
        begin = clock()
        for _ in range(group):
            predict(x)
        ms.append((clock() - begin) * 1e3 / group)
    print(json.dumps({"ms": min(ms) if a.cpu_time else statistics.median(ms), "first_ms": first * 1e3, "calls": group * len(ms)}))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=pathlib.Path, required=True)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batch", type=int, action="append")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--cpu-time", action="store_true")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--result", help=argparse.SUPPRESS)
    parser.add_argument("names", nargs="*")
    a = parser.parse_args()
    if a.one:
        return measure(a, a.one, a.names[0], a.batch[0])
    import tempfile

    import numpy as np
    from predict_models import MODELS
    from run_all import busy, cpu, own
    print(f"{cpu()}; {a.threads} thread{'s' if a.threads > 1 else ''}; {a.rounds} rounds{'; CPU time' if a.cpu_time else ''}\n")
    print("| network | batch | Gradloom, ms | onnxruntime, ms | ratio | difference | others |\n|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for name in a.names or MODELS:
            for batch in a.batch or (1, 64):
                times, outputs, others = {}, {}, 0
                for _ in range(a.rounds):
                    for runtime in ("gradloom", "onnxruntime"):
                        result = pathlib.Path(folder) / f"{runtime}.npy"
                        command = [sys.executable, __file__, "--models", a.models, "--threads", str(a.threads), "--batch", str(batch), "--seconds",
                                   str(a.seconds), "--one", runtime, "--result", result, name, *(["--cpu-time"] if a.cpu_time else [])]
                        clock, begin, mine = time.perf_counter(), busy(), own()
                        line = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
                        others = max(others, (busy() - begin - (own() - mine)) / ((time.perf_counter() - clock) * os.cpu_count()))
                        times.setdefault(runtime, []).append(json.loads(line)["ms"])
                        outputs[runtime] = np.load(result)
                ours, theirs = (min(times[runtime]) for runtime in ("gradloom", "onnxruntime"))
                difference = np.abs(outputs["gradloom"] - outputs["onnxruntime"]).max() / np.abs(outputs["onnxruntime"]).max()
                print(f"| {name} | {batch} | {ours:.3g} | {theirs:.3g} | {theirs / ours:.2f} | {difference:.0e} | {others:.2f} |", flush=True)


if __name__ == "__main__":
    main()
