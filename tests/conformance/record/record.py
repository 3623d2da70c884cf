#!/usr/bin/env python3
"""Records training cases with PyTorch.

python record.py --out DIR [--sets losses optimizers ...] [--only PATTERN ...]

Records every case of the sets, or with --only those whose names match a shell PATTERN. Cases that already exist in DIR are kept unless
--again is given. Prints a line per case and ends with the number of cases that failed."""
import argparse
import fnmatch
import importlib
import os
import pathlib
import sys
import time

os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = "1"
HERE = pathlib.Path(__file__).resolve().parent
SETS = sorted(p.stem for p in (HERE / "sets").glob("*.py"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--sets", nargs="*", default=SETS, choices=SETS)
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--only", nargs="*", metavar="PATTERN")
    parser.add_argument("--refused", type=pathlib.Path, metavar="DIR", help="where the file of a case that cannot be recorded is kept")
    a = parser.parse_args()
    import torch

    import recorder

    torch.set_num_threads(1)
    failed, names = 0, set()
    for s in a.sets:
        for case in importlib.import_module(f"sets.{s}").cases():
            if case.name in names:
                raise SystemExit(f"two cases are named {case.name}")
            names.add(case.name)
            if a.only and not any(fnmatch.fnmatch(case.name, p) for p in a.only):
                continue
            if (a.out / case.name / "case.json").exists() and not a.again:
                continue
            start = time.time()
            try:
                d = recorder.record(case, a.out, a.refused)
            except Exception as e:
                failed += 1
                print(f"FAILED {case.name}: {type(e).__name__}: {str(e).strip().splitlines()[0][:300] if str(e).strip() else ''}", flush=True)
                continue
            t, size = d["tolerance"], sum(f.stat().st_size for f in (a.out / case.name).iterdir())
            print(f"{case.name:40s} {size / 1024:6.1f} KiB {d['parameters']:6d} parameters  grad {t['grad_atol']:.1e} param {t['param_atol']:.1e} "
                  f"loss {max(t['loss_rtol_steps']):.1e} ill {len(d['ill_conditioned'])} renamed {len(d['renamed'])} {time.time() - start:.1f} s", flush=True)
    print(f"{failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
