"""Every optimizer and option, clipping, schedules, accumulation and batches of several sizes, on a small MLP."""
import math

import torch
import torch.nn as nn

from case import CE, Case, pixels, classes, term, vector_classes
from optimizers import optimizer


class Net(nn.Module):
    """An MLP with a LayerNormalization, so that there are tensors of rank 1 that are not biases."""

    def __init__(self):
        super().__init__()
        self.fc1, self.norm, self.fc2 = nn.Linear(6, 9), nn.LayerNorm(9), nn.Linear(9, 4)

    def forward(self, x):
        return self.fc2(torch.tanh(self.norm(self.fc1(x))))


def case(name, spec, **options):
    return Case(name, Net, options.pop("batch", vector_classes(6, 4)), CE, spec, **{"dynamic_batch": True, "steps": 6, **options})


def _optimizers():
    opt = lambda name, type, **options: case(f"opt_{name}", optimizer(type, **options))
    yield opt("sgd", "sgd")
    yield opt("sgd_weight_decay", "sgd", weight_decay=0.05)
    yield opt("momentum", "momentum")
    yield opt("momentum_weight_decay", "momentum", weight_decay=0.05)
    yield opt("momentum_dampening", "momentum", dampening=0.3)
    yield opt("nesterov", "nesterov")
    yield opt("nesterov_weight_decay", "nesterov", weight_decay=0.05, momentum=0.8)
    yield opt("adam", "adam")
    yield opt("adam_weight_decay", "adam", weight_decay=0.05)
    yield opt("adam_betas_eps", "adam", betas=[0.7, 0.9], eps=1e-3)
    yield opt("adam_amsgrad", "adam", amsgrad=True, betas=[0.8, 0.6])
    yield opt("adamw", "adamw", weight_decay=0.1)
    yield opt("adamw_no_decay", "adamw", weight_decay=0.0)
    yield opt("adamw_amsgrad", "adamw", amsgrad=True, weight_decay=0.1, betas=[0.8, 0.6])
    yield opt("rmsprop", "rmsprop")
    yield opt("rmsprop_momentum", "rmsprop", momentum=0.9, alpha=0.9, lr=0.002)
    yield opt("rmsprop_centered", "rmsprop", centered=True, alpha=0.9, eps=1e-3)
    yield opt("rmsprop_all", "rmsprop", centered=True, momentum=0.5, weight_decay=0.05, alpha=0.8, eps=1e-3)
    yield opt("adagrad", "adagrad")
    yield opt("adagrad_lr_decay", "adagrad", lr_decay=0.2)
    yield opt("adagrad_initial", "adagrad", initial_accumulator_value=0.1, weight_decay=0.05)
    yield opt("adadelta", "adadelta")
    yield opt("adadelta_rho", "adadelta", rho=0.7, eps=1e-4, lr=0.5, weight_decay=0.05)
    yield opt("adamax", "adamax")
    yield opt("adamax_weight_decay", "adamax", weight_decay=0.05, betas=[0.8, 0.9])
    yield opt("nadam", "nadam")
    yield opt("nadam_weight_decay", "nadam", weight_decay=0.05, betas=[0.8, 0.9], momentum_decay=0.3)
    yield opt("radam", "radam")
    yield opt("radam_adaptive", "radam", weight_decay=0.05, betas=[0.8, 0.9])
    yield opt("lion", "lion")
    yield opt("lion_weight_decay", "lion", weight_decay=0.1, betas=[0.8, 0.9])
    yield opt("lamb", "lamb")
    yield opt("lamb_no_decay", "lamb", weight_decay=0.0, betas=[0.8, 0.9])
    for type in ("sgd", "momentum", "adam", "adamw", "lamb"):
        yield opt(f"{type}_no_decay_1d", type, weight_decay=0.1, groups="no_decay_1d")
    zero = case("opt_lamb_zero_tensor", optimizer("lamb"))
    zero.module, zero.keep_constants = _zero_bias, True
    zero.notes = "a bias that starts at zero: its first step is not scaled"
    yield zero


def _zero_bias():
    net = Net()
    nn.init.zeros_(net.fc2.bias)
    return net


def _clipping():
    yield case("clip_sgd", optimizer("sgd"), clip_grad_norm=0.25)
    yield case("clip_sometimes", optimizer("momentum"), clip_grad_norm=0.9, notes="some batches are below the bound")
    yield case("clip_never", optimizer("momentum"), clip_grad_norm=50.0)
    yield case("clip_adamw", optimizer("adamw"), clip_grad_norm=0.5)
    yield case("clip_weight_decay", optimizer("sgd", weight_decay=0.2), clip_grad_norm=0.25, notes="decay is added to the clipped gradient")
    yield case("clip_accumulate", optimizer("sgd"), clip_grad_norm=0.25, grad_accumulation=2, notes="the accumulated gradient is clipped, once")
    yield case("clip_value_sgd", optimizer("sgd"), clip_grad_value=0.03)
    yield case("clip_value_adamw_accumulate", optimizer("adamw", weight_decay=0.1), clip_grad_value=0.02, grad_accumulation=2,
               notes="the elements of the accumulated gradient are clipped, once; decay is not")
    yield case("clip_frozen", optimizer("sgd"), clip_grad_norm=0.25, frozen=("fc1",), notes="frozen parameters do not count in the norm")


def _averages():
    yield case("ema_adam", optimizer("adam"), ema={"decay": 0.9})
    yield case("ema_warmup_momentum", optimizer("momentum"), ema={"decay": 0.6, "warmup": True}, steps=12)
    yield case("ema_low_lamb", optimizer("lamb"), ema={"decay": 0.25})
    yield case("ema_adamw_accumulate", optimizer("adamw"), ema={"decay": 0.8}, grad_accumulation=2, steps=8)


def _schedules(n=6):
    factors = {
        "constant": [1.0] * n,
        "linear": [1 - k / n for k in range(n)],
        "cosine": [0.5 * (1 + math.cos(math.pi * k / n)) for k in range(n)],
        "step": [0.3 ** (k // 2) for k in range(n)],
        "warmup": [min(1.0, (k + 1) / 4) for k in range(n)],
        "warmup_cosine": [min(1.0, k / 3) * 0.5 * (1 + math.cos(math.pi * max(0, k - 3) / (n - 3))) for k in range(n)],
        "zeros": [1.0, 0.0, 1.0, 0.5, 0.0, 2.0],
    }
    dummy = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
    one_cycle = torch.optim.lr_scheduler.OneCycleLR(dummy, max_lr=1.0, total_steps=n, cycle_momentum=False)
    factors["one_cycle"] = []
    for _ in range(n):
        factors["one_cycle"].append(one_cycle.get_last_lr()[0])
        dummy.step()
        if len(factors["one_cycle"]) < n:
            one_cycle.step()
    for name, values in factors.items():
        yield case(f"schedule_{name}", optimizer("momentum"), lr_schedule=values)
    yield case("schedule_adamw_cosine", optimizer("adamw", weight_decay=0.1), lr_schedule=factors["cosine"])
    yield case("schedule_adagrad_linear", optimizer("adagrad", lr_decay=0.1), lr_schedule=factors["linear"])
    yield case("schedule_accumulate", optimizer("adam"), lr_schedule=[0.25, 0.25, 1.0, 1.0, 0.5, 0.5], grad_accumulation=2)


def _batches():
    yield case("accumulate_2", optimizer("sgd"), grad_accumulation=2)
    yield case("accumulate_4_adam", optimizer("adam"), grad_accumulation=4, steps=8)
    yield case("accumulate_3_momentum", optimizer("momentum", weight_decay=0.05), grad_accumulation=3, steps=9)
    yield case("accumulate_all", optimizer("sgd"), grad_accumulation=6, notes="one update")
    yield case("batches_last_smaller", optimizer("momentum"), batch_sizes=[8, 8, 3, 8, 8, 3])
    yield case("batches_last_one", optimizer("adam"), batch_sizes=[8, 8, 8, 1], notes="a last batch of one sample")
    yield case("batches_many_sizes", optimizer("momentum"), batch_sizes=[8, 5, 2, 7, 1, 6, 4, 3])
    yield case("batches_fixed_in_file", optimizer("momentum"), batch_sizes=[8, 8, 8, 5], dynamic_batch=False,
               notes="the file declares batches of 8; the last is smaller")
    yield case("batches_larger_than_declared", optimizer("momentum"), batch_sizes=[8, 16, 8], dynamic_batch=False,
               notes="the file declares batches of 8; the second is larger")
    yield case("batches_legacy_fixed", optimizer("adam"), batch_sizes=[8, 8, 3], dynamic_batch=False, exporter="legacy", opset=17)
    yield case("batches_accumulate_uneven", optimizer("sgd"), batch_sizes=[8, 8, 8, 5, 8, 3], grad_accumulation=2,
               notes="each batch's gradient counts alike, whatever its size")
    weighted = lambda b: {"x": pixels(b, 6), "y": torch.where(torch.rand(b) < 0.3, torch.full((b,), -100), classes(4, b))}
    ignoring = case("batches_uneven_ignore_index", optimizer("sgd"), batch=weighted, batch_sizes=[8, 8, 5, 8, 3])
    ignoring.losses = [term("cross_entropy", class_weight=[1.0, 0.5, 2.0, 1.5])]
    yield ignoring


def cases():
    yield from _optimizers()
    yield from _clipping()
    yield from _averages()
    yield from _schedules()
    yield from _batches()
