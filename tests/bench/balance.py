#!/usr/bin/env python3
"""How much of a step of the benchmark workloads more threads could share than this machine has cores: python balance.py --cache DIR
[--threads 16] [NAME...]

DIR holds the output of peers/workloads.py. The binaries are taken from bazel-bin/tests/bench (//tests/bench:workload and
//tests/bench:libteam_balance.so). `limit` is the processor time of a step divided by that of its longest threads and of the work between
parallel regions: how many times as fast a step could be with that many cores, if barriers and memory took no time (team_balance.cc). The
regions below lose most of it. Other load makes threads look uneven; the fewer steps are disturbed, the better."""
import argparse
import bisect
import collections
import os
import pathlib
import subprocess
import tempfile

BINARIES = pathlib.Path(__file__).resolve().parents[2] / "bazel-bin/tests/bench"
WARM_UP, STEPS = 3, 12  # steps of one run are subtracted from those of another, which leaves out all that happens once

Region = collections.namedtuple("Region", "runs all longest threads before")


def measure(cache, name, threads, steps):
    with tempfile.NamedTemporaryFile("r") as out:
        # Waiting threads must not take the cores of those that work.
        environment = dict(os.environ, LD_PRELOAD=str(BINARIES / "libteam_balance.so"), TEAM_BALANCE=out.name, OMP_WAIT_POLICY="passive",
                           GOMP_SPINCOUNT="0")
        subprocess.run([BINARIES / "workload", *(f"{cache}/{name}.{kind}" for kind in ("onnx", "npz", "json")), "--threads", str(threads),
                        "--steps", str(steps), "--seconds", "600"], env=environment, check=True, stdout=subprocess.DEVNULL)
        first, *lines = out.read().splitlines()
    return float(first.split()[1]), {tuple(line.split()[:2]): Region(*map(float, line.split()[2:])) for line in lines}


def symbols(path, cache={}):
    if path not in cache:
        lines = subprocess.run(["nm", "--demangle", path], capture_output=True, text=True).stdout.splitlines()
        cache[path] = sorted((int(at, 16), name) for at, _, name in (line.split(None, 2) for line in lines if line[0] != " "))
    return cache[path]


def name_of(path, offset):
    table, at = symbols(path), int(offset, 16)
    i = bisect.bisect_right(table, (at, "\x7f")) - 1
    name = table[i][1] if i >= 0 else f"{os.path.basename(path)}+{offset}"
    for noise in ("void ", "gradloom::", "(anonymous namespace)::", "ParallelRanges<", "ParallelTasks<", "ParallelFor<"):
        name = name.replace(noise, "")
    return name[:70]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", required=True)
    parser.add_argument("--threads", type=int, default=16)
    parser.add_argument("--regions", type=int, default=5)
    parser.add_argument("names", nargs="+")
    options = parser.parse_args()
    for name in options.names:
        few_serial, few = measure(options.cache, name, options.threads, WARM_UP)
        serial, many = measure(options.cache, name, options.threads, WARM_UP + STEPS)
        regions = {key: Region(*((a - b) / STEPS for a, b in zip(region, few.get(key, (0,) * 5)))) for key, region in many.items()}
        serial = (serial - few_serial) / STEPS
        work, longest = serial + sum(r.all for r in regions.values()), serial + sum(r.longest for r in regions.values())
        print(f"{name}, {options.threads} threads: limit {work / longest:.1f}; of {1e3 * work:.2f} ms, {1e3 * serial:.2f} are not in a region")
        lost = sorted(regions, key=lambda key: regions[key].all / options.threads - regions[key].longest)
        for key in lost[:options.regions]:
            r = regions[key]
            print(f"    {1e3 * r.longest:8.2f} ms instead of {1e3 * r.all / options.threads:8.2f} in {r.runs:5.1f} runs of "
                  f"{r.threads / max(r.runs, 1e-9):4.1f} threads, after {1e3 * r.before:6.2f} ms: {name_of(*key)}")


if __name__ == "__main__":
    main()
