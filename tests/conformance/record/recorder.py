"""Records one case: exports, trains several times, derives the tolerances, validates, and writes the folder."""
from __future__ import annotations

import copy
import dataclasses
import json
import pathlib
import shutil

import numpy as np
import onnx
import onnx.numpy_helper
import onnx.reference
import onnxruntime
import torch
import torch.nn as nn

import exporting
import tolerance
import training
from case import Batch, Case

FULL_LIMIT = 60_000  # maximum number of parameters; larger cases store norms and probes instead of arrays
PERTURBED = 3  # number of repetitions from a start that is one rounding error away


class Wrong(Exception):
    """The recording would not be a fair test."""


def record(case: Case, out: pathlib.Path, refused: pathlib.Path | None = None) -> dict:
    """Writes `out`/NAME and returns its case.json. If a check fails, nothing is left there; an exported file is then moved to
    `refused`/NAME.onnx, if that is given."""
    folder = out / case.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        return _record(case, folder)
    except BaseException:
        if refused and (folder / "model.onnx").exists():
            refused.mkdir(parents=True, exist_ok=True)
            shutil.move(folder / "model.onnx", refused / f"{case.name}.onnx")
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _record(case: Case, folder: pathlib.Path) -> dict:
    batches, module = training.seeded_batches(case), training.seeded_module(case)
    torch.manual_seed(case.seed + 2)
    declared = [b for b, n in zip(batches, case.sizes) if n == case.batch_size]
    model = exporting.export(case, copy.deepcopy(module), declared[0], folder / "model.onnx")
    if "onnxruntime" not in case.exporter:  # it writes its own operators into ONNX's domain
        onnx.checker.check_model(str(folder / "model.onnx"))
    trained = case.as_file(copy.deepcopy(module)) if case.as_file else copy.deepcopy(module)
    exporting.take_statistics(trained, model)
    for m in trained.modules():
        if isinstance(m, nn.Embedding):
            m.padding_idx = None  # it stops a row's gradient in PyTorch only; the file does not record it
    trained.train(case.semantics == "train" or exporting.trains_batchnorm(model))
    for name, p in trained.named_parameters():
        p.requires_grad_(not name.startswith(case.frozen))
    places = exporting.places(case, module, model, declared[0], trained)
    check_outputs(case, trained, model, declared[0])

    runs = [training.train(case, trained, batches), training.train(case, trained, batches, torch.float64)]
    runs += [training.train(case, training.one_ulp_away(trained, case.seed + i), batches) for i in range(PERTURBED)]
    learned = {n for n, p in trained.named_parameters() if p.requires_grad}
    trainable = [k for k, p in places.items() if p.parameter in learned]
    shapes = {n: p.detach().numpy() for n, p in trained.named_parameters()}
    in_file = lambda values: {k: places[k].take({n: values.get(n, shapes[n]) for n in shapes}) for k in trainable}
    initial, grads, params = in_file({}), [in_file(r.grads) for r in runs], [in_file(r.params) for r in runs]
    ill = tolerance.ill_conditioned(initial, grads, params)
    if case.may_rest:
        ill += [k for k in initial if k not in ill and np.array_equal(initial[k], params[0][k])]
    if case.semantics == "as_graph" or not case.keep_constants:  # otherwise the file may store a scale and a variance as one initializer
        check_outputs(case, runs[0].module, with_values(model, params[0] | runs[0].buffers), declared[-1])
    case = dataclasses.replace(case, expected="full" if case.expected == "full" and sum(v.size for v in initial.values()) <= FULL_LIMIT else "norms")
    _write_arrays(folder, case, batches, runs, initial, grads[0], params[0], {i.name for i in model.graph.initializer})
    description = {
        "name": case.name, "model": "model.onnx", "inputs": list(case.inputs), "targets": list(case.targets), "outputs": list(case.outputs),
        "losses": case.losses, "optimizer": case.optimizer, "clip_grad_norm": case.clip_grad_norm,
        "lr_schedule": case.lr_schedule,
        "grad_accumulation": case.grad_accumulation, "steps": len(batches), "batch_size": case.batch_size, "batch_sizes": case.sizes,
        "exporter": case.exporter, "opset": exporting.actual_opset(model),
        "export_options": {"mode": case.mode, "optimize" if case.exporter == "dynamo" else "do_constant_folding": case.optimize},
        "mode": case.mode, "semantics": case.semantics, "dynamic_batch": case.dynamic_batch, "external_data": case.external_data,
        "trainable": trainable, "frozen": [k for k, p in places.items() if p.parameter not in learned],
        "renamed": {k: places[k].parameter for k in trainable if not places[k].same},
        "detached": list(case.detached), "ill_conditioned": ill, "expected": case.expected, "parameters": sum(v.size for v in initial.values()),
        "tolerance": tolerance.tolerances([r.losses for r in runs], grads, [p | r.buffers for p, r in zip(params, runs)], ill), "notes": case.notes,
    }
    description |= {k: v for k, v in (("clip_grad_value", case.clip_grad_value), ("ema", case.ema)) if v is not None}
    (folder / "case.json").write_text(json.dumps(description, indent=1) + "\n")
    _check_worth(case, description, runs[0], initial, params[0])
    return description


def with_values(model: onnx.ModelProto, values: dict[str, np.ndarray]) -> onnx.ModelProto:
    """A copy of the file with other initial values."""
    model = copy.deepcopy(model)
    for i in model.graph.initializer:
        if i.name in values:
            i.CopyFrom(onnx.numpy_helper.from_array(values[i.name].astype(onnx.helper.tensor_dtype_to_np_dtype(i.data_type)), i.name))
    return model


def check_outputs(case: Case, module: nn.Module, model: onnx.ModelProto, batch: Batch):
    """Checks that the file and the module that is trained in its place compute the same. onnxruntime has no BatchNormalization in training
    mode, so in that case, and if only the trainer is to use batch statistics, both are compared in inference mode."""
    module = copy.deepcopy(module)
    proto = copy.deepcopy(model)
    if any(batch[i].dtype == torch.float64 for i in case.inputs):
        module.double()
    if case.semantics == "train" or exporting.trains_batchnorm(model):
        module.eval()
        for n in proto.graph.node:
            if n.op_type == "BatchNormalization":
                del n.output[1:]
                for a in [a for a in n.attribute if a.name == "training_mode"]:
                    n.attribute.remove(a)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL  # folding some loop bodies crashes it
    feeds = {i.name: batch[i.name].numpy() for i in proto.graph.input if i.name in batch}
    try:
        got = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"]).run(None, feeds)
    except (onnxruntime.capi.onnxruntime_pybind11_state.NotImplemented, onnxruntime.capi.onnxruntime_pybind11_state.RuntimeException):
        if not any(a.dtype == np.float64 for a in feeds.values()):
            raise
        got = onnx.reference.ReferenceEvaluator(proto).run(None, feeds)  # onnxruntime has no float64 convolutions and recurrent cells
    with torch.no_grad():
        want = module(*(batch[i] for i in case.inputs))
    want = want if isinstance(want, (tuple, list)) else (want,)
    for name, a, b in zip(case.outputs, got, want, strict=True):
        a, b = np.asarray(a, np.float64), b.numpy().astype(np.float64)  # booleans have no difference
        if a.shape != b.shape or not np.abs(a - b).max() <= 1e-4 * max(1.0, np.abs(b).max()):  # also true for NaN
            raise Wrong(f"output {name} of the file {a.shape} is not the module's {b.shape}: {np.abs(a - b).max() if a.shape == b.shape else ''}")


def _write_arrays(folder, case, batches, runs, initial, grads, params, in_model):
    arrays = {f"{name}{k}": batch[name].numpy() for k, batch in enumerate(batches) for name in (*case.inputs, *case.targets)}
    np.savez_compressed(folder / "batches.npz", **arrays)
    norm = lambda values: np.array([np.linalg.norm(v.astype(np.float64).reshape(-1)) for v in values])
    probe = lambda values: np.array([v.astype(np.float64).reshape(-1) @ np.sin(np.arange(1, v.size + 1)) for v in values])
    expected = {
        "losses": runs[0].losses, "losses_f64": runs[1].losses, "names": np.array(list(initial)),
        "grad_norm": norm(grads.values()), "grad_probe": probe(grads.values()),
        "param_norm": norm(params.values()), "param_probe": probe(params.values()),
        "delta_norm": norm([params[k].astype(np.float64) - initial[k] for k in initial]),
    }
    if case.expected == "full":
        expected |= {f"grad/{k}": v for k, v in grads.items()} | {f"param/{k}": v for k, v in params.items()}
    if runs[0].module.training:
        expected |= {f"buffer/{k}": v for k, v in runs[0].buffers.items() if k in in_model}
        expected |= {f"buffer_onnx/{k}": v for k, v in runs[0].onnx_vars.items() if k in in_model}
    np.savez_compressed(folder / "expected.npz", **expected)


def _check_worth(case: Case, description: dict, run: training.Run, initial: dict, params: dict):
    """A recording must be finite, change every tensor that it does not exempt, and have tolerances that can fail."""
    arrays = [run.losses, *run.grads.values(), *run.params.values()]
    if not all(np.isfinite(a).all() for a in arrays):
        raise Wrong("losses, gradients or parameters are not finite")
    ill, tol = description["ill_conditioned"], description["tolerance"]
    if len(ill) == len(initial):
        raise Wrong("every tensor is ill-conditioned")
    if max(tol["loss_rtol_steps"]) > 5e-3:
        raise Wrong(f"losses are not reproducible: {tol['loss_rtol_steps']}")
    still = [k for k in initial if k not in ill and np.array_equal(initial[k], params[k])]
    if still:
        raise Wrong(f"nothing trains {still}")
    if len(initial) != len(set(initial)) or not initial:
        raise Wrong("no initializer is trained")
