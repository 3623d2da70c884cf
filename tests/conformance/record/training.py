"""Runs a case in PyTorch: the recorded run, and the same run in float64 and from a start one rounding error away."""
from __future__ import annotations

import copy
import dataclasses

import numpy as np
import torch
import torch.nn as nn

import losses
import optimizers
from case import Batch, Case


@dataclasses.dataclass
class Run:
    losses: np.ndarray  # float64[steps]
    grads: dict[str, np.ndarray]  # of the first batch, by parameter name, in the run's type
    params: dict[str, np.ndarray]  # after the last step
    buffers: dict[str, np.ndarray]  # running statistics after the last step, by PyTorch's rule
    onnx_vars: dict[str, np.ndarray]  # running_var by ONNX's rule
    module: nn.Module


def seeded_batches(case: Case) -> list[Batch]:
    torch.manual_seed(case.seed + 1)
    return [case.batch(n) for n in case.sizes]


def seeded_module(case: Case) -> nn.Module:
    """The module with its initial values. Repeated values (biases of 0, scales of 1) are perturbed as training would do, because equal
    tensors hide mistakes, and exporters merge them into one initializer."""
    torch.manual_seed(case.seed)
    module = case.module()
    for name, p in module.named_parameters():
        if not case.keep_constants and 2 * p.unique().numel() <= p.numel() + 1:
            with torch.no_grad():
                p.add_(torch.randn_like(p) * 0.1)
    for name, b in module.named_buffers():
        if not case.keep_constants and name.endswith("running_mean"):
            b.copy_(torch.randn_like(b) * 0.1)
        if not case.keep_constants and name.endswith("running_var"):
            b.copy_(torch.rand_like(b) * 0.5 + 0.75)
    for name, p in module.named_parameters():
        p.requires_grad_(not name.startswith(case.frozen))
    return module.train(case.mode == "train")


def one_ulp_away(module: nn.Module, seed: int) -> nn.Module:
    """A copy in which every trainable value is the next float up or down."""
    module, rng = copy.deepcopy(module), np.random.default_rng(seed)
    for p in module.parameters():
        if p.requires_grad:
            a = p.detach().numpy()
            towards = np.where(rng.integers(0, 2, a.shape) == 1, np.float32(np.inf), np.float32(-np.inf))
            p.data = torch.from_numpy(np.asarray(np.nextafter(a, towards), dtype=np.float32))
    return module


class _OnnxVariances:
    """Tracks running_var by ONNX's rule, which uses the biased variance of a batch where PyTorch uses the unbiased one."""

    def __init__(self, module: nn.Module):
        self.values: dict[str, torch.Tensor] = {}
        for name, m in module.named_modules():
            if isinstance(m, nn.modules.batchnorm._BatchNorm) and m.running_var is not None:
                key = f"{name}.running_var" if name else "running_var"
                self.values[key] = m.running_var.clone()
                m.register_forward_pre_hook(lambda m, args, key=key: self._see(m, args[0], key))

    def _see(self, m, x, key):
        if m.training:
            var = x.detach().transpose(0, 1).flatten(1).var(1, unbiased=False)
            self.values[key] = (1 - m.momentum) * self.values[key] + m.momentum * var


def _cast(batch: Batch, dtype: torch.dtype) -> Batch:
    return {k: v.to(dtype) if v.is_floating_point() else v for k, v in batch.items()}


def train(case: Case, module: nn.Module, batches: list[Batch], dtype: torch.dtype = torch.float32) -> Run:
    """Trains a copy of `module` in its current mode."""
    module = copy.deepcopy(module).to(dtype)
    default = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        return _train(case, module, [_cast(b, dtype) for b in batches])
    finally:
        torch.set_default_dtype(default)


def _moving_average(ema: dict):
    """As get_ema_multi_avg_fn; with a warm-up, the decay after t updates is that of diffusers' EMAModel."""

    @torch.no_grad()
    def move(averages, current, updates):
        t = float(updates)
        decay = min(ema["decay"], (1 + t) / (10 + t)) if ema.get("warmup") else ema["decay"]
        torch._foreach_lerp_(averages, current, 1 - decay)

    return move


def _train(case: Case, module: nn.Module, batches: list[Batch]) -> Run:
    named = {n: p for n, p in module.named_parameters() if p.requires_grad}
    optimizer = optimizers.build(case.optimizer, list(named.values()))
    base = [g["lr"] for g in optimizer.param_groups]
    variances = _OnnxVariances(module)
    averaged = torch.optim.swa_utils.AveragedModel(module, multi_avg_fn=_moving_average(case.ema)) if case.ema else None
    values, grads, n = [], {}, case.grad_accumulation
    for k, batch in enumerate(batches):
        if k % n == 0:
            optimizer.zero_grad(set_to_none=False)
        out = module(*(batch[i] for i in case.inputs))
        outputs = dict(zip(case.outputs, out if isinstance(out, (tuple, list)) else (out,)))
        loss = losses.total(case.losses, outputs, batch)
        values.append(loss.item())
        if k == 0:
            grads = {name: g.numpy() for name, g in zip(named, torch.autograd.grad(loss, list(named.values()), retain_graph=True))}
        (loss / n).backward()
        if (k + 1) % n == 0:
            if case.clip_grad_norm is not None:
                nn.utils.clip_grad_norm_(named.values(), case.clip_grad_norm)
            if case.clip_grad_value is not None:
                nn.utils.clip_grad_value_(named.values(), case.clip_grad_value)
            for group, lr in zip(optimizer.param_groups, base):
                group["lr"] = lr * (case.lr_schedule[k] if case.lr_schedule else 1.0)
            optimizer.step()
            if averaged:
                averaged.update_parameters(module)
    if averaged:
        module = averaged.module
        named = {n: p for n, p in module.named_parameters() if n in named}
    numpy = lambda tensors: {k: v.detach().clone().numpy() for k, v in tensors}
    norms = tuple(n for n, m in module.named_modules() if isinstance(m, nn.modules.batchnorm._BatchNorm))
    statistics = [(k, b) for k, b in module.named_buffers() if k.endswith(("running_mean", "running_var")) and k.rpartition(".")[0] in norms]
    return Run(np.array(values, np.float64), grads, numpy(named.items()), numpy(statistics), numpy(variances.values.items()), module)
