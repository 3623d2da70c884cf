#!/usr/bin/env python3
"""Derives cases from recorded ones: files are edited as by hand or rewritten by tools, with one edit or several in a row.

python edit.py --from DIR --out DIR [--seed N] [--count N] [--edits NAME ...] [--most N] [--only PATTERN]

The recording stays valid: an edit changes neither what the file computes (checked with onnxruntime) nor what is trained; otherwise the
expected arrays are converted to the form that the file has. Cases are named CASE~EDIT~EDIT."""
import argparse
import contextlib
import copy
import fnmatch
import importlib
import json
import os
import pathlib
import random
import shutil
import sys
import zlib

os.environ["OMP_NUM_THREADS"] = "1"
import numpy as np
import onnx
import onnxruntime

import edits
import edits_nested

EDITS = {n: f for m in (edits, edits_nested) for n, f in vars(m).items() if callable(f) and not n.startswith("_") and n not in ("Edit", "set_value", "Callable") and getattr(f, "__module__", "").startswith("edit")}


def run(model, feeds):
    o = onnxruntime.SessionOptions()
    o.intra_op_num_threads, o.log_severity_level = 1, 4
    o.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    s = onnxruntime.InferenceSession(model.SerializeToString(), o, providers=["CPUExecutionProvider"])
    return s.run(None, {i.name: feeds[i.name] for i in s.get_inputs() if i.name in feeds})


def still(model):
    """In inference mode, since onnxruntime has no BatchNormalization in training mode."""
    m = copy.deepcopy(model)
    for nodes in [m.graph.node, *(f.node for f in m.functions)]:
        for n in nodes:
            if n.op_type == "BatchNormalization":
                del n.output[1:]
                for a in [a for a in n.attribute if a.name == "training_mode"]:
                    n.attribute.remove(a)
    return m


def moved(model, values):
    """The model with other values for these tensors, including Constant nodes."""
    m = copy.deepcopy(model)
    for i in m.graph.initializer:
        if i.name in values:
            i.CopyFrom(onnx.numpy_helper.from_array(np.array(values[i.name], onnx.numpy_helper.to_array(i).dtype, order="C"), i.name))
    for n in m.graph.node:
        if n.op_type == "Constant" and n.output[0] in values:
            n.attribute[0].t.CopyFrom(onnx.numpy_helper.from_array(values[n.output[0]]))
    return m


def within(graph):
    """Names of initializers of inner graphs, which are not randomized."""
    inner = [a.g for n in graph.node for a in n.attribute if a.type == onnx.AttributeProto.GRAPH]
    return {i.name for g in inner for i in g.initializer} | {name for g in inner for name in within(g)}


def probe(v):
    return v.astype(np.float64).reshape(-1) @ np.sin(np.arange(1, v.size + 1))


def written(e, folder, source, case, chain, external):
    """The edited case."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    shutil.copy(source / "batches.npz", folder)
    arrays = dict(np.load(source / "expected.npz"))
    case = json.loads(json.dumps(case))
    case["name"] = folder.name
    renamed = {old: [n for n, _ in parts] for old, parts in e.forms.items()}
    plain = all(parts == [old] for old, parts in renamed.items())
    if not plain:
        names = [str(n) for n in arrays["names"]]
        stale = {k: arrays.pop(k) for k in list(arrays) if k.startswith(("grad/", "param/"))}
        initial = {i.name: onnx.numpy_helper.to_array(i) for i in onnx.load(source / "model.onnx").graph.initializer}
        rows = []
        for old in names:
            for new, make in e.forms[old]:
                g, p = make(stale[f"grad/{old}"]), make(stale[f"param/{old}"])
                arrays[f"grad/{new}"], arrays[f"param/{new}"] = np.array(g, order="C"), np.array(p, order="C")
                rows.append((new, np.linalg.norm(g.astype(np.float64)), probe(g), np.linalg.norm(p.astype(np.float64)), probe(p), np.linalg.norm(p.astype(np.float64) - make(initial[old]))))
        for k, key in enumerate(("names", "grad_norm", "grad_probe", "param_norm", "param_probe", "delta_norm")):
            arrays[key] = np.array([r[k] for r in rows])
    for key in ("trainable", "ill_conditioned"):
        case[key] = [n for old in case[key] for n in renamed[old]]
    np.savez_compressed(folder / "expected.npz", **arrays)
    case["frozen"] = [] if "prefixed" in chain else case["frozen"]
    (folder / "case.json").write_text(json.dumps(case, indent=1) + "\n")
    if external:
        onnx.save(e.model, folder / "model.onnx", save_as_external_data=True, all_tensors_to_one_file=external == 1, location="data.bin" if external == 1 else None, size_threshold=0)
    else:
        onnx.save(e.model, folder / "model.onnx")


def edited(source, out, chain, seed):
    case = json.loads((source / "case.json").read_text())
    model = onnx.load(source / "model.onnx")
    have = {i.name for i in model.graph.initializer}
    if not all(t in have for t in case["trainable"]):
        return None
    e = edits.Edit(model, case["trainable"], seed)
    e.split = case["optimizer"]["type"] != "lamb" and "groups" not in case["optimizer"]
    before = copy.deepcopy(model)
    applied = []
    for name in chain:
        saved, forms = copy.deepcopy(e.model), copy.deepcopy(e.forms)
        names = e.trained
        try:
            ok = EDITS[name](e)
            if ok and case["expected"] != "full" and e.trained != names:
                ok = False
            if ok and name == "prefixed" and "buffer/" in str(np.load(source / "expected.npz").files):
                ok = False
            if ok and ("detach" in source.name or "stop_gradient" in source.name) and name in ("other_names", "no_names", "prefixed", "raised", "lowered"):
                ok = False
            # the checker needs shapes
            if ok and name not in ("open_outputs", "more_outputs") and not {"open_outputs", "more_outputs"} & set(applied):
                onnx.checker.check_model(e.model)
        except Exception as problem:
            print(f"? {source.name} {name}: {type(problem).__name__} {str(problem)[:150]!r}")
            ok = False
        if ok:
            applied.append(name)
        else:
            e.model, e.forms = saved, forms
    if not applied:
        return None
    feeds = {k: v for k, v in np.load(source / "batches.npz").items()}
    feeds = {n: feeds[f"{n}0"] for n in case["inputs"]}
    draw, start = np.random.default_rng(seed), {i.name: onnx.numpy_helper.to_array(i) for i in before.graph.initializer}
    hidden = within(e.model.graph)
    other = {t: (start[t] * (1 + 0.1 * draw.standard_normal(start[t].shape)) + 0.02 * draw.standard_normal(start[t].shape)).astype(start[t].dtype) for t in case["trainable"] if not hidden & {n for n, _ in e.forms[t]}}
    parts = {n: make(other[t]) for t in other for n, make in e.forms[t]}
    before, after = moved(before, other), moved(e.model, parts)  # reveals a tool that has folded a weight into another tensor
    try:
        a, b = run(still(before), feeds), run(still(after), feeds)
    except Exception as problem:
        print(f"? {source.name} {applied}: {str(problem)[:200]!r}")
        return None
    for x, y in zip(a, b):
        if x.shape != y.shape or np.abs(x.astype(np.float64) - y).max(initial=0) > 1e-5 * max(1, np.abs(x).max(initial=0)):
            print(f"? {source.name} {applied}: another result")
            return None
    name = "~".join([source.name, *applied])
    written(e, out / name, source, case, applied, random.Random(seed).choice([0, 0, 0, 1, 2]))
    return name


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--from", dest="source", type=pathlib.Path, required=True, nargs="+")
    p.add_argument("--out", type=pathlib.Path, required=True)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--count", type=int, default=1, help="of each case")
    p.add_argument("--most", type=int, default=1, help="edits in a row")
    p.add_argument("--edits", nargs="*", default=list(EDITS))
    p.add_argument("--only", nargs="*", default=["*"])
    a = p.parse_args()
    # once, before forking
    for tool in ("onnxsim", "onnxslim", "onnxoptimizer", "onnx_graphsurgeon", "onnxscript.optimizer", "onnx.inliner"):
        with contextlib.suppress(ImportError):
            importlib.import_module(tool)
    made = 0
    for source in sorted(f for s in a.source for f in s.iterdir() if (f / "case.json").exists()):
        if not any(fnmatch.fnmatch(source.name, o) for o in a.only):
            continue
        for k in range(a.count):
            seed = zlib.crc32(f"{source.name} {a.seed} {k}".encode())
            r = random.Random(seed)
            chain = [r.choice(a.edits) for _ in range(r.randint(1, a.most))]
            sys.stdout.flush()
            child = os.fork()  # some tools terminate the process that calls them
            if child == 0:
                try:
                    os._exit(0 if edited(source, a.out, chain, seed) else 1)
                except BaseException as problem:
                    print(f"? {source.name} {chain}: {problem!r}", flush=True)
                    os._exit(1)
                finally:
                    os._exit(1)
            made += os.waitpid(child, 0)[1] == 0
    print(f"{made} cases")


if __name__ == "__main__":
    sys.exit(main())
