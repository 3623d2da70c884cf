"""Every loss term and option, on models small enough that nothing else matters."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

from case import CE, Case, classes, pixels, term, vector_classes, vector_values
from optimizers import optimizer


class Net(nn.Module):
    """A two-layer MLP, and a function of its output."""

    def __init__(self, inputs=6, outputs=5, last=None):
        super().__init__()
        self.fc1, self.fc2, self.last = nn.Linear(inputs, 8), nn.Linear(8, outputs), last

    def forward(self, x):
        x = self.fc2(torch.tanh(self.fc1(x)))
        return self.last(x) if self.last else x


class Pixelwise(nn.Module):
    def __init__(self, channels, last=None):
        super().__init__()
        self.conv1, self.conv2, self.last = nn.Conv2d(2, 4, 3, padding=1), nn.Conv2d(4, channels, 1), last

    def forward(self, x):
        x = self.conv2(torch.tanh(self.conv1(x)))
        return self.last(x) if self.last else x


class Tokenwise(nn.Module):
    """[batch, time] tokens to [batch, time, classes]."""

    def __init__(self, n):
        super().__init__()
        self.emb, self.fc = nn.Embedding(12, 6), nn.Linear(6, n)

    def forward(self, x):
        return self.fc(torch.tanh(self.emb(x)))


class Heads(nn.Module):
    """A box and class scores from one trunk, as in detectors."""

    def __init__(self):
        super().__init__()
        self.trunk, self.box, self.cls = nn.Linear(6, 8), nn.Linear(8, 4), nn.Linear(8, 3)

    def forward(self, x):
        h = torch.relu(self.trunk(x))
        return self.box(h), self.cls(h)


class Penalised(nn.Module):
    """A prediction, and a penalty on the hidden units as a second output."""

    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(6, 8), nn.Linear(8, 2)

    def forward(self, x):
        h = torch.tanh(self.fc1(x))
        return self.fc2(h), (h * h).sum(1)


SGD = optimizer("sgd")
WEIGHTS = [0.5, 2.0, 1.0, 0.25, 1.5]


def _ignoring(n, value, *shape):
    y = classes(n, *shape)
    return torch.where(torch.rand(*shape) < 0.3, torch.full_like(y, value), y)


def _classification():
    def ce(name, batch=vector_classes(6, 5), module=Net, type="cross_entropy", **options):
        return Case(f"loss_{name}", module, batch, [term(type, **options)], SGD, dynamic_batch=True, steps=4)

    log_softmax = lambda: Net(last=nn.LogSoftmax(dim=1))
    ignoring = lambda v: lambda b: {"x": pixels(b, 6), "y": _ignoring(5, v, b)}
    image = lambda b: {"x": pixels(b, 2, 5, 6), "y": classes(3, b, 5, 6)}
    image_ignoring = lambda b: {"x": pixels(b, 2, 5, 6), "y": _ignoring(3, 255, b, 5, 6)}
    text = lambda b: {"x": classes(12, b, 7), "y": classes(4, b, 7)}
    text_ignoring = lambda v: lambda b: {"x": classes(12, b, 7), "y": _ignoring(4, v, b, 7)}
    signal = lambda b: {"x": pixels(b, 6), "y": classes(5, b, 2)}
    yield ce("ce")
    yield ce("ce_sum", reduction="sum", weight=0.125)
    yield ce("ce_label_smoothing", label_smoothing=0.1)
    yield ce("ce_class_weight", class_weight=WEIGHTS)
    yield ce("ce_class_weight_sum", class_weight=WEIGHTS, reduction="sum", weight=0.1)
    yield ce("ce_ignore_index_default", ignoring(-100))
    yield ce("ce_ignore_index_class", ignoring(2), ignore_index=2)
    yield ce("ce_ignore_index_weight", ignoring(-1), ignore_index=-1, class_weight=WEIGHTS)
    yield ce("ce_ignore_index_sum", ignoring(-1), ignore_index=-1, reduction="sum", weight=0.1)
    yield ce("ce_smoothing_weight", class_weight=WEIGHTS, label_smoothing=0.2)
    yield ce("ce_smoothing_ignore_index", ignoring(-1), ignore_index=-1, label_smoothing=0.2)
    yield ce("ce_all_options", ignoring(3), ignore_index=3, label_smoothing=0.15, class_weight=WEIGHTS)
    yield ce("ce_image", image, lambda: Pixelwise(3))
    yield ce("ce_image_ignore_weight", image_ignoring, lambda: Pixelwise(3), ignore_index=255, class_weight=[1.0, 2.0, 0.5])
    yield ce("ce_image_smoothing_weight", image, lambda: Pixelwise(3), label_smoothing=0.1, class_weight=[1.0, 2.0, 0.5])
    yield ce("ce_axis_1_of_3", signal, lambda: Net(outputs=10, last=nn.Unflatten(1, (5, 2))))
    yield ce("ce_last_axis", text, lambda: Tokenwise(4), class_axis=-1)
    yield ce("ce_last_axis_ignore", text_ignoring(0), lambda: Tokenwise(4), class_axis=-1, ignore_index=0)
    yield ce("ce_last_axis_ignore_smoothing_weight", text_ignoring(-100), lambda: Tokenwise(4), class_axis=-1, label_smoothing=0.1,
             class_weight=[1.0, 0.5, 2.0, 1.25])
    yield ce("ce_two_classes", vector_classes(6, 2), lambda: Net(outputs=2))
    yield ce("ce_large_logits", module=lambda: Net(last=Scale(40.0)))
    yield ce("nll", module=log_softmax, type="nll")
    yield ce("nll_weight_ignore", ignoring(-1), module=log_softmax, type="nll", class_weight=WEIGHTS, ignore_index=-1)
    yield ce("nll_image", image, lambda: Pixelwise(3, nn.LogSoftmax(dim=1)), type="nll")
    yield ce("nll_last_axis", text, lambda: nn.Sequential(Tokenwise(4), nn.LogSoftmax(dim=-1)), type="nll", class_axis=-1)
    # If all samples of a batch are ignored, PyTorch's mean is NaN, so its sum is recorded instead.
    only_first = lambda b: {"x": pixels(b, 6), "y": torch.tensor([1] + [-100] * (b - 1))}
    yield ce("ce_one_sample_left", only_first)
    yield ce("ce_sum_all_ignored", lambda b: {"x": pixels(b, 6), "y": torch.where(torch.rand(()) < 0.4, torch.full((b,), -100), classes(5, b))},
             reduction="sum", weight=0.1)


class Scale(nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, x):
        return x * self.factor


def _regression():
    def reg(name, batch=vector_values(6, 3), module=lambda: Net(outputs=3), type="mse", **options):
        return Case(f"loss_{name}", module, batch, [term(type, **options)], SGD, dynamic_batch=True, steps=4)

    image = lambda b: {"x": pixels(b, 2, 4, 5), "y": pixels(b, 2, 4, 5)}
    scalar = lambda b: {"x": pixels(b, 6), "y": pixels(b)}
    wide = lambda b: {"x": pixels(b, 6), "y": 3 * pixels(b, 3)}
    signs = lambda b: {"x": pixels(b, 6), "y": torch.where(torch.rand(b, 3) < 0.5, -torch.ones(b, 3), torch.ones(b, 3))}
    counts = lambda b: {"x": pixels(b, 6), "y": torch.poisson(2 * torch.rand(b, 3))}
    marks = lambda b: {"x": pixels(b, 6), "y": (torch.rand(b, 3) < 0.2).float()}
    yield reg("log_cosh", wide, type="log_cosh")
    yield reg("log_cosh_large", lambda b: {"x": pixels(b, 6), "y": 60 * pixels(b, 3)}, type="log_cosh", reduction="sum", weight=0.01)
    yield reg("quantile", wide, type="quantile", q=0.9)
    yield reg("quantile_median", wide, type="quantile", reduction="sum", weight=0.1)
    yield reg("poisson_nll", counts, type="poisson_nll")
    yield reg("poisson_nll_rate", counts, lambda: Net(outputs=3, last=nn.Softplus()), type="poisson_nll", log_input=False)
    yield reg("hinge", signs, type="hinge")
    yield reg("soft_margin", signs, type="soft_margin", reduction="sum", weight=0.1)
    yield reg("sigmoid_focal", marks, type="sigmoid_focal")
    yield reg("sigmoid_focal_options", marks, type="sigmoid_focal", alpha=-1, gamma=1.5, reduction="sum", weight=0.1)
    yield reg("sigmoid_focal_sure", marks, lambda: Net(outputs=3, last=Scale(40.0)), type="sigmoid_focal", gamma=1)
    yield reg("mse")
    yield reg("mse_sum", reduction="sum", weight=0.05)
    yield reg("mse_image", image, lambda: Pixelwise(2))
    yield reg("mse_scalar", scalar, lambda: Net(outputs=1, last=nn.Flatten(0)))
    yield reg("l1", type="l1")
    yield reg("l1_sum", type="l1", reduction="sum", weight=0.05)
    yield reg("smooth_l1", wide, type="smooth_l1")
    yield reg("smooth_l1_beta", wide, type="smooth_l1", beta=0.25)
    yield reg("smooth_l1_sum", wide, type="smooth_l1", beta=2.0, reduction="sum", weight=0.05)
    yield reg("huber", wide, type="huber")
    yield reg("huber_delta", wide, type="huber", delta=2.5)
    yield reg("huber_small_delta_sum", wide, type="huber", delta=0.3, reduction="sum", weight=0.05)


def _probabilities():
    def prob(name, batch, module, type, **options):
        return Case(f"loss_{name}", module, batch, [term(type, **options)], SGD, dynamic_batch=True, steps=4)

    binary = lambda *s: lambda b: {"x": pixels(b, 6), "y": (torch.rand(b, *s) < 0.4).float()}
    soft = lambda *s: lambda b: {"x": pixels(b, 6), "y": (torch.rand(b, *s) * 64).round() / 64}
    mask = lambda b: {"x": pixels(b, 2, 5, 6), "y": (torch.rand(b, 1, 5, 6) < 0.3).float()}
    net = lambda n, last=None: lambda: Net(outputs=n, last=last)
    yield prob("bcel", binary(1), net(1), "bce_with_logits")
    yield prob("bcel_scalar", binary(), net(1, nn.Flatten(0)), "bce_with_logits")
    yield prob("bcel_multi_label", binary(5), net(5), "bce_with_logits")
    yield prob("bcel_soft_labels", soft(5), net(5), "bce_with_logits")
    yield prob("bcel_pos_weight_one", binary(1), net(1), "bce_with_logits", pos_weight=[3.0])
    yield prob("bcel_pos_weight", binary(5), net(5), "bce_with_logits", pos_weight=[1.0, 2.0, 0.5, 4.0, 1.5])
    yield prob("bcel_pos_weight_soft_sum", soft(5), net(5), "bce_with_logits", pos_weight=[1.0, 2.0, 0.5, 4.0, 1.5], reduction="sum", weight=0.05)
    yield prob("bcel_mask", mask, lambda: Pixelwise(1), "bce_with_logits")
    yield prob("bcel_large_logits", binary(5), net(5, Scale(60.0)), "bce_with_logits")
    yield prob("bce", binary(1), net(1, nn.Sigmoid()), "bce")
    yield prob("bce_multi_label_sum", binary(5), net(5, nn.Sigmoid()), "bce", reduction="sum", weight=0.05)
    yield prob("bce_soft_labels", soft(4), net(4, nn.Sigmoid()), "bce")
    yield prob("bce_softmax", lambda b: {"x": pixels(b, 6), "y": F.one_hot(classes(4, b), 4).float()}, net(4, nn.Softmax(dim=1)), "bce")
    yield prob("bce_mask", mask, lambda: Pixelwise(1, nn.Sigmoid()), "bce")
    teacher = lambda b: {"x": pixels(b, 6), "y": torch.softmax(torch.randn(b, 5), 1)}
    hard = lambda b: {"x": pixels(b, 6), "y": F.one_hot(classes(5, b), 5).float()}  # contains 0 * log 0
    yield prob("kl_div", teacher, net(5, nn.LogSoftmax(dim=1)), "kl_div")
    yield prob("kl_div_zeros", hard, net(5, nn.LogSoftmax(dim=1)), "kl_div")
    yield prob("kl_div_sequence", lambda b: {"x": classes(12, b, 5), "y": torch.softmax(torch.randn(b, 5, 4), 2)},
               lambda: nn.Sequential(Tokenwise(4), nn.LogSoftmax(dim=-1)), "kl_div")


def _sums():
    boxes = lambda b: {"x": pixels(b, 6), "boxes": 2 * pixels(b, 4), "classes": classes(3, b)}
    heads = dict(outputs=("box", "cls"), targets=("boxes", "classes"), dynamic_batch=True, steps=4)
    box = lambda type, **o: term(type, "box", "boxes", **o)
    cls = lambda **o: term("cross_entropy", "cls", "classes", **o)
    yield Case("loss_two_terms", Heads, boxes, [box("smooth_l1", beta=0.5), cls(weight=0.5)], SGD, **heads)
    yield Case("loss_two_terms_last_axis", Heads, boxes, [box("smooth_l1", beta=0.5), cls(class_axis=-1, weight=0.5)], SGD, **heads)
    yield Case("loss_three_terms", Heads, boxes, [box("mse", weight=0.3), box("l1", weight=0.7), cls(label_smoothing=0.1, weight=2.0)], SGD, **heads)
    yield Case("loss_first_output_only", Heads, boxes, [box("huber")], SGD, outputs=("box", "cls"), targets=("boxes",), dynamic_batch=True, steps=4,
               frozen=("cls",), notes="the second output takes no part in the loss")
    yield Case("loss_output_term", Penalised, vector_values(6, 2), [term("mse"), term("output", "penalty", None, weight=0.01)], SGD,
               outputs=("out", "penalty"), dynamic_batch=True, steps=4)
    yield Case("loss_output_scalar", lambda: nn.Sequential(Net(outputs=1), Square()), lambda b: {"x": pixels(b, 6)}, [term("output", target=None)], SGD,
               targets=(), steps=4, notes="the graph computes the loss itself")
    one = lambda b: {"x": pixels(b, 6), "y": classes(5, b), "z": torch.softmax(torch.randn(b, 5), 1)}
    yield Case("loss_distillation", lambda: nn.Sequential(Net(), Both()), one, [term("cross_entropy", weight=0.3), term("kl_div", "log", "z", weight=0.7)],
               SGD, outputs=("out", "log"), targets=("y", "z"), dynamic_batch=True, steps=4)


class Square(nn.Module):
    def forward(self, x):
        return (x * x).mean()


class Both(nn.Module):
    def forward(self, x):
        return x, F.log_softmax(x / math.sqrt(2.0), 1)


def cases():
    yield from _classification()
    yield from _regression()
    yield from _probabilities()
    yield from _sums()
