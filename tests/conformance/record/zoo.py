"""Library models as cases: any model of torchvision, timm or transformers, made small and deterministic, in three styles of export."""
from __future__ import annotations

import copy
import hashlib
import zlib
from typing import Callable, Iterator

import torch
import torch.fx.experimental.optimization
import torch.nn as nn

from case import Batch, Case, classes, pixels, term
from optimizers import optimizer

# opset, mode, semantics where the model has BatchNormalization
LEGACY = [(17, "train", "as_graph"), (14, "eval", "train"), (16, "eval", "train"), (20, "train", "as_graph"), (18, "eval", "train"), (14, "train", "as_graph")]
DYNAMO = [(18, "eval", "train"), (20, "train", "train"), (23, "eval", "train"), (21, "eval", "train"), (25, "train", "train"), (24, "eval", "train")]
DEFAULT = [(18, "eval"), (20, "eval"), (18, "train"), (23, "eval")]
OPTIMIZERS = [optimizer("momentum", lr=0.002), optimizer("adamw", lr=0.0005), optimizer("sgd", lr=0.005)]


def still(module: nn.Module) -> nn.Module:
    """Without randomness."""
    for m in module.modules():
        for name in ("p", "drop_prob", "dropout", "attn_dropout_rate", "dropout_p", "attention_dropout", "layerdrop"):
            if isinstance(getattr(m, name, None), float):
                setattr(m, name, 0.0)
    return module


def thin(module: nn.Module, keep: int = 2) -> nn.Module:
    """Keeps at most `keep` consecutive layers of the same form, since more depth only repeats what one layer shows."""
    for m in list(module.modules()):
        if isinstance(m, (nn.Sequential, nn.ModuleList)):
            form = lambda child: repr(child) + str([tuple(p.shape) for p in child.parameters()])
            kept, last, times = [], None, 0
            for name, child in m.named_children():
                now = form(child)
                times = times + 1 if now == last and any(True for _ in child.parameters()) else 1
                last = now
                if times <= keep:
                    kept.append((name, child))
            if len(kept) < len(m):
                m._modules.clear()
                for i, (name, child) in enumerate(kept):
                    m._modules[str(i) if name.isdigit() else name] = child
    return module


class First(nn.Module):
    """The model with a single tensor as its output: the member, key or index `out` of its result."""

    def __init__(self, model, names=None, out=None, **options):
        super().__init__()
        self.model, self.names, self.out, self.options = model, names, out, options

    def forward(self, *inputs):
        given = self.model(**dict(zip(self.names, inputs)), **self.options) if self.names else self.model(*inputs)
        if isinstance(self.out, str):
            return given[self.out] if isinstance(given, dict) and self.out in given else getattr(given, self.out)
        return given[self.out] if self.out is not None else given


def settled(module: nn.Module, batch: Batch, inputs: tuple[str, ...]) -> nn.Module:
    """Turns parameters on which the output does not depend into buffers, since the file does not contain them."""
    module.train()
    with torch.enable_grad():
        given = module(*(batch[i].clone() for i in inputs))
        sum((out * torch.randn_like(out)).sum() for out in (given if isinstance(given, tuple) else (given,))).backward()
    for m in module.modules():
        for name, p in list(m._parameters.items()):
            if p is not None and p.grad is None:
                del m._parameters[name]
                m.register_buffer(name, p.data)
            elif p is not None:
                p.requires_grad_(True)
    for p in module.parameters():
        p.grad = None
    return module


def _folded(module: nn.Module) -> nn.Module:
    """What the default export produces: convolutions with folded BatchNormalization."""
    norms = [(n, m) for n, m in module.named_modules() if isinstance(m, nn.BatchNorm2d)]
    if not norms:
        return module
    for name, m in norms:  # those of timm include an activation
        if type(m) is not nn.BatchNorm2d and hasattr(m, "act"):
            plain = nn.BatchNorm2d(m.num_features, m.eps, m.momentum)
            plain.load_state_dict(m.state_dict(), strict=False)
            module.set_submodule(name, nn.Sequential(plain, m.act))
    return torch.fx.experimental.optimization.fuse(module.eval())


def cases_of(name: str, make: Callable[[], nn.Module], inputs: dict[str, Callable[[int], torch.Tensor]], target: str | Callable[[int], torch.Tensor] = "classes",
             styles: tuple[str, ...] = ("legacy", "dynamo", "default"), dynamic: bool = True, **options) -> Iterator[Case]:
    """The cases of one model. `target` is "classes" for logits on axis 1, "tokens" for logits on the last axis, "values" for any output, or
    a function that creates the targets of "values"."""
    names = tuple(inputs)

    def module():
        torch.manual_seed(zlib.crc32(name.encode()))
        net = still(make())
        return settled(net, {k: f(size) for k, f in inputs.items()}, names)

    shapes: dict[str, tuple] = {}

    def batch(b: int) -> Batch:
        made = {k: f(b) for k, f in inputs.items()}
        if not shapes:
            with torch.random.fork_rng(), torch.no_grad():
                shapes["out"] = tuple(module()(*(v.clone() for v in made.values())).shape)
        s = shapes["out"]
        y = classes(s[1], s[0], *s[2:]) if target == "classes" else classes(s[-1], *s[:-1]) if target == "tokens" else pixels(*s) if target == "values" else target(b)
        return made | {"y": y}

    loss = [term("cross_entropy")] if target == "classes" else [term("cross_entropy", class_axis=-1)] if target == "tokens" else [term("mse")]
    size = options.pop("batch_size", 2)
    common = dict(module=module, batch=batch, losses=loss, inputs=names, steps=options.pop("steps", 3), batch_size=size, may_rest=True)
    pick = lambda among, salt: among[hashlib.md5((name + salt).encode()).digest()[0] % len(among)]
    common["optimizer"] = options.pop("optimizer", pick(OPTIMIZERS, "optimizer"))
    common |= options
    if "legacy" in styles:
        opset, mode, semantics = pick(LEGACY, "legacy")
        yield Case(f"{name}_legacy{opset}_{mode}", exporter="legacy", opset=opset, mode=mode, semantics=semantics, **common)
    if "dynamo" in styles:
        opset, mode, semantics = pick(DYNAMO, "dynamo")
        yield Case(f"{name}_dynamo{opset}_{mode}", exporter="dynamo", opset=opset, mode=mode, semantics=semantics, **common)
    if "default" in styles:
        opset, mode = pick(DEFAULT, "default")
        yield Case(f"{name}_default{opset}_{mode}", exporter="dynamo", opset=opset, mode=mode, optimize=True, as_file=_folded, dynamic_batch=dynamic, **common)
