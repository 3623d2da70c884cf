"""Exports a case's module and finds each parameter among the file's initializers."""
from __future__ import annotations

import contextlib
import copy
import dataclasses
import inspect
import io
import logging
import pathlib
import tempfile
import warnings

import numpy as np
import onnx
import onnx.numpy_helper
import torch
import torch.nn as nn

from case import Batch, Case


def export(case: Case, module: nn.Module, batch: Batch, path: pathlib.Path) -> onnx.ModelProto:
    """Writes the file as a user of the exporter would get it, except for source notes, and reads it back. The module's mode is restored."""
    args, was = tuple(batch[i] for i in case.inputs), module.training
    dynamic = {i: dict(case.dynamic_axes.get(i, {})) if case.dynamic_axes else {} for i in case.inputs}
    if case.dynamic_batch:
        # not for inputs that all samples share
        dynamic = {i: ({0: "batch"} if batch[i].shape[:1] == (case.batch_size,) else {}) | axes for i, axes in dynamic.items()}
    common = dict(opset_version=case.opset, input_names=list(case.inputs), output_names=list(case.outputs))
    logging.disable(logging.WARNING)
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        if case.write:
            case.write(module, batch, str(path))
        elif case.exporter == "dynamo":
            shapes = tuple(dynamic[i] or None for i in case.inputs) if any(dynamic.values()) else None
            if shapes and any(p.kind is p.VAR_POSITIONAL for p in inspect.signature(module.forward).parameters.values()):
                shapes = (shapes,)  # the structure of the arguments: one tuple
            torch.onnx.export(module, args, str(path), dynamo=True, optimize=case.optimize, dynamic_shapes=shapes,
                              external_data=case.external_data, verbose=False, **common)
        else:
            training = torch.onnx.TrainingMode.TRAINING if case.mode == "train" else torch.onnx.TrainingMode.EVAL
            if case.dynamic_batch:
                dynamic |= {o: {0: "batch"} for o in case.outputs}
            torch.onnx.export(torch.jit.script(module) if case.script else module, args, str(path), dynamo=False, training=training, do_constant_folding=case.optimize,
                              dynamic_axes=dynamic if any(dynamic.values()) else None, **common)
    logging.disable(logging.NOTSET)
    module.train(was)
    model = onnx.load(path)
    _strip(model.graph, case.keep_notes)
    for f in model.functions:
        f.ClearField("metadata_props")
        for n in f.node:
            _strip_node(n, case.keep_notes)
    external = dict(save_as_external_data=True, location=path.name + ".data", size_threshold=0) if case.external_data else {}
    path.with_name(path.name + ".data").unlink(missing_ok=True)
    onnx.save(copy.deepcopy(model), path, **external)
    return model


def _strip(graph: onnx.GraphProto, keep_notes: bool):
    """Removes the notes about the source file of each node, which take up most of a small file and contain paths of one machine."""
    graph.ClearField("metadata_props")
    for v in [*graph.input, *graph.output, *graph.value_info, *graph.initializer]:
        v.ClearField("metadata_props")
        v.ClearField("doc_string")
    for n in graph.node:
        _strip_node(n, keep_notes)


def _strip_node(node: onnx.NodeProto, keep_notes: bool):
    lines = [p for p in node.metadata_props if keep_notes and p.key == "pkg.torch.onnx.fx_node"]
    node.ClearField("metadata_props")
    node.metadata_props.extend(lines)
    node.ClearField("doc_string")
    for a in node.attribute:
        for g in [a.g, *a.graphs] if a.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS) else []:
            _strip(g, keep_notes)


def initializers(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    return {i.name: onnx.numpy_helper.to_array(i) for i in model.graph.initializer}


def actual_opset(model: onnx.ModelProto) -> int:
    return next(o.version for o in model.opset_import if o.domain in ("", "ai.onnx"))


def take_statistics(module: nn.Module, model: onnx.ModelProto):
    """Resets running statistics to the file's, because an export in training mode runs the module, which updates them."""
    have = initializers(model)
    for name, b in module.named_buffers():
        if name in have and have[name].shape == tuple(b.shape):
            b.copy_(torch.from_numpy(have[name].copy()))


def trains_batchnorm(model: onnx.ModelProto) -> bool:
    """Whether the file contains a BatchNormalization that uses batch statistics."""
    nodes = list(model.graph.node) + [n for f in model.functions for n in f.node]
    return any(n.op_type == "BatchNormalization" and (len(n.output) > 1 or any(a.name == "training_mode" and a.i for a in n.attribute)) for n in nodes)


@dataclasses.dataclass
class Place:
    """Where the elements of an initializer lie in the concatenation of all parameters in the order of named_parameters."""

    index: np.ndarray  # int64, the initializer's shape
    parameter: str  # the parameter that holds the first element
    same: bool  # same name and layout as that parameter

    def take(self, values: dict[str, np.ndarray]) -> np.ndarray:
        """Arranges `values`, one array per parameter in the order of named_parameters, in the form of the initializer."""
        return np.concatenate([v.reshape(-1) for v in values.values()])[self.index]


class Unmatched(Exception):
    pass


def places(case: Case, module: nn.Module, model: onnx.ModelProto, batch: Batch, trained: nn.Module) -> dict[str, Place]:
    """The position of every initializer that holds parameters of `trained`, the module that trains like the file. Its values are set to the
    file's where they differ because of the exporter's arithmetic."""
    params = dict(trained.named_parameters())
    starts = dict(zip(params, np.cumsum([0] + [p.numel() for p in params.values()])))
    have, found = initializers(model), {}
    for name, value in have.items():
        if name in params and tuple(params[name].shape) == value.shape and _close(params[name], value):
            found[name] = Place(starts[name] + np.arange(value.size).reshape(value.shape), name, True)
    missing = set(params) - {p.parameter for p in found.values()}
    if missing:
        rest = {k: v for k, v in have.items() if k not in found and v.dtype in (np.float32, np.float64)}
        found |= _by_value(rest, {k: params[k] for k in missing}, starts)
        missing -= {p.parameter for p in found.values()}
    if missing:
        found |= _by_tags(case, module, batch, {k: v for k, v in have.items() if k not in found}, params, starts)
    _check(found, params)
    with torch.no_grad():
        flat = torch.cat([p.reshape(-1) for p in params.values()])
        for name, place in found.items():
            flat[torch.from_numpy(place.index.reshape(-1))] = torch.from_numpy(have[name].reshape(-1).copy())
        for name, p in params.items():
            p.copy_(flat[starts[name]:starts[name] + p.numel()].view_as(p))
    return {k: found[k] for k in have if k in found}


def _close(p: torch.Tensor, value: np.ndarray) -> bool:
    return np.allclose(p.detach().numpy(), value, rtol=1e-5, atol=1e-6)


def _by_value(rest: dict[str, np.ndarray], params: dict[str, torch.Tensor], starts: dict[str, int]) -> dict[str, Place]:
    """Initializers that are a parameter under another name, transposed or reshaped."""
    found = {}
    for name, p in params.items():
        index = starts[name] + torch.arange(p.numel()).view(p.shape)
        for k, v in rest.items():
            if k in found or v.size != p.numel():
                continue
            for q, i in [(p, index)] + ([(p.t(), index.t())] if p.dim() == 2 else []):
                if _close(q.reshape(v.shape), v) and (v.size > 1 or v.shape == tuple(p.shape)):
                    found[k] = Place(i.reshape(v.shape).numpy(), name, False)
                    break
            if k in found:
                break
    return found


def _by_tags(case: Case, module: nn.Module, batch: Batch, rest: dict[str, np.ndarray], params, starts) -> dict[str, Place]:
    """Exports the module once more with every element numbered. The numbers in the initializers show where each element went."""
    tagged, scale, at = copy.deepcopy(module), 2.0**-16, 1
    numbers = {}
    for name, p in tagged.named_parameters():
        numbers[name] = at
        p.data = (torch.arange(at, at + p.numel()) * scale).view(p.shape).to(p.dtype)
        at += p.numel()
    if at >= 2**24 or list(numbers) != list(params):
        raise Unmatched(f"{case.name}: cannot number the parameters")
    with tempfile.TemporaryDirectory() as folder:
        model = export(case, tagged, batch, pathlib.Path(folder) / "m.onnx")
    found, names = {}, list(params)
    begins = np.array([starts[n] for n in names])
    for k, v in initializers(model).items():
        if k in rest and v.dtype in (np.float32, np.float64) and rest[k].shape == v.shape:
            number = v / scale
            if np.all(number == np.round(number)) and number.min() >= 1 and number.max() < at:
                index = np.asarray(number, np.int64) - 1
                found[k] = Place(index, names[int(np.searchsorted(begins, index.reshape(-1)[0], "right")) - 1], False)
    return found


def _check(found: dict[str, Place], params: dict[str, torch.Tensor]):
    total = sum(p.numel() for p in params.values())
    times = np.bincount(np.concatenate([p.index.reshape(-1) for p in found.values()]), minlength=total)
    at = 0
    for name, p in params.items():
        t = times[at:at + p.numel()]
        at += p.numel()
        if t.max() > 1:
            raise Unmatched(f"parameter {name} is in the file more than once: {[k for k, v in found.items() if v.parameter == name]}")
        if t.min() == 0 and p.requires_grad:
            raise Unmatched(f"parameter {name} is not in the file as it is")
