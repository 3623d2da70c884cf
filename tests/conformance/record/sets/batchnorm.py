"""BatchNormalization as exporters write it: trained as written, with the training view, frozen, folded."""
import copy

import torch
import torch.fx.experimental.optimization
import torch.nn as nn

from case import CE, MSE, Case, classes, image_classes, pixels, vector_classes
from optimizers import optimizer
from sets.convolution import Classifier, Residual, conv


class Flat(nn.Module):
    """An MLP with BatchNorm1d."""

    def __init__(self, **options):
        super().__init__()
        self.fc1, self.bn, self.fc2 = nn.Linear(6, 8), nn.BatchNorm1d(8, **options), nn.Linear(8, 4)

    def forward(self, x):
        return self.fc2(torch.relu(self.bn(self.fc1(x))))


def conv_bn():
    """conv1 has a bias, which has no effect before a BatchNormalization in training mode; conv2 has none."""
    return Classifier(nn.Sequential(conv(3, 5), nn.BatchNorm2d(5), nn.ReLU(), conv(5, 6, stride=2, bias=False), nn.BatchNorm2d(6), nn.ReLU()), 6)


def residual():
    return Classifier(nn.Sequential(conv(3, 5, bias=False), nn.BatchNorm2d(5), nn.ReLU(),
                                    Residual(conv(5, 5, bias=False), nn.BatchNorm2d(5), nn.ReLU(), conv(5, 5, bias=False), nn.BatchNorm2d(5)), nn.ReLU()), 5)


def preactivation():
    return Classifier(nn.Sequential(conv(3, 5), Residual(nn.BatchNorm2d(5), nn.ReLU(), conv(5, 5)), nn.BatchNorm2d(5), nn.ReLU()), 5)


def depthwise():
    return Classifier(nn.Sequential(conv(3, 6, bias=False), nn.BatchNorm2d(6), nn.ReLU6(), conv(6, 6, groups=6, bias=False), nn.BatchNorm2d(6), nn.ReLU6(),
                                    nn.Conv2d(6, 4, 1, bias=False), nn.BatchNorm2d(4)), 4)


def transposed():
    return Classifier(nn.Sequential(conv(3, 5), nn.ReLU(), nn.ConvTranspose2d(5, 4, 2, 2, bias=False), nn.BatchNorm2d(4), nn.ReLU()), 4)


def one(layer):
    return lambda: Classifier(nn.Sequential(conv(3, 5), layer(), nn.ReLU(), conv(5, 5)), 5)


class Attended(nn.Module):
    """Attention over time steps, then BatchNormalization over samples and time steps."""

    def __init__(self):
        super().__init__()
        self.attention, self.bn, self.fc = nn.MultiheadAttention(8, 2, batch_first=True), nn.BatchNorm1d(8), nn.Linear(8, 4)

    def forward(self, x):
        h = x + self.attention(x, x, x, need_weights=False)[0]
        return self.fc(self.bn(h.transpose(1, 2)).relu().mean(2))


def folded(module):
    """The result of the exporters' folding: convolutions with folded BatchNormalization."""
    return torch.fx.experimental.optimization.fuse(copy.deepcopy(module).eval())


LEGACY_TRAIN = dict(exporter="legacy", opset=17, mode="train")
LEGACY_EVAL = dict(exporter="legacy", opset=15, mode="eval", optimize=False)
DYNAMO = dict(exporter="dynamo", opset=18, mode="eval")
AS_TRAIN = dict(semantics="train")


def cases():
    def bn(name, module, batch=image_classes(3, 6, 4), **o):
        return Case(f"bn_{name}", module, batch, CE, optimizer(o.pop("opt", "momentum")), **{"batch_size": 6, "steps": 3, **o})

    vector = vector_classes(6, 4)
    yield bn("legacy_train", conv_bn, **LEGACY_TRAIN)
    yield bn("legacy_train_opset13", conv_bn, exporter="legacy", opset=13)
    yield bn("legacy_train_opset11", conv_bn, exporter="legacy", opset=11)
    yield bn("legacy_eval_as_graph", conv_bn, **LEGACY_EVAL)
    yield bn("legacy_eval_as_train", conv_bn, **LEGACY_EVAL, **AS_TRAIN)
    yield bn("legacy_folded_as_graph", conv_bn, exporter="legacy", opset=17, mode="eval", optimize=True, as_file=folded,
             notes="the exporter folded each BatchNormalization into its convolution; the folded weights are trained")
    yield bn("dynamo_train_mode_as_graph", conv_bn, exporter="dynamo", mode="train", notes="exported in train mode, yet in inference form in the file")
    yield bn("dynamo_train_mode_as_train", conv_bn, exporter="dynamo", mode="train", **AS_TRAIN)
    yield bn("dynamo_eval_as_graph", conv_bn, **DYNAMO)
    yield bn("dynamo_eval_as_train", conv_bn, **DYNAMO, **AS_TRAIN)
    yield bn("dynamo_folded_as_graph", conv_bn, exporter="dynamo", opset=18, optimize=True, mode="train", as_file=folded,
             notes="the default export folds BatchNormalization, even of a module in train mode")
    yield bn("residual_legacy_train", residual, **LEGACY_TRAIN)
    yield bn("residual_as_train", residual, **DYNAMO, **AS_TRAIN)
    yield bn("residual_folded", residual, exporter="dynamo", opset=20, optimize=True, mode="eval", as_file=folded)
    yield bn("preactivation_as_train", preactivation, exporter="dynamo", opset=21, optimize=True, mode="eval", **AS_TRAIN, notes="nothing to fold into")
    yield bn("preactivation_as_graph", preactivation, exporter="dynamo", opset=21, optimize=True, mode="eval")
    yield bn("depthwise_legacy_train", depthwise, exporter="legacy", opset=16, opt="adam")
    yield bn("depthwise_as_train", depthwise, **DYNAMO, **AS_TRAIN, opt="rmsprop")
    yield bn("transposed_as_train", transposed, **DYNAMO, **AS_TRAIN)
    yield bn("transposed_legacy_train", transposed, **LEGACY_TRAIN)
    yield bn("1d_legacy_train", Flat, vector, **LEGACY_TRAIN, dynamic_batch=True)
    yield bn("1d_as_train", Flat, vector, **DYNAMO, **AS_TRAIN, dynamic_batch=True)
    yield bn("1d_as_graph", Flat, vector, **DYNAMO, dynamic_batch=True)
    yield bn("1d_last_batch_smaller", Flat, vector, **LEGACY_TRAIN, dynamic_batch=True, batch_sizes=[6, 6, 3, 6, 2])
    yield bn("1d_accumulate", Flat, vector, **DYNAMO, **AS_TRAIN, dynamic_batch=True, steps=4, grad_accumulation=2,
             notes="statistics move with every batch, weights with every second")
    yield bn("1d_momentum_eps", lambda: Flat(momentum=0.3, eps=1e-2), vector, **DYNAMO, **AS_TRAIN)
    yield bn("1d_no_affine", lambda: Flat(affine=False), vector, **DYNAMO, **AS_TRAIN)
    yield bn("1d_signal", lambda: Classifier(nn.Sequential(nn.Conv1d(3, 5, 3), nn.BatchNorm1d(5), nn.ReLU()), 5),
             lambda b: {"x": pixels(b, 3, 9), "y": classes(4, b)}, **LEGACY_TRAIN)
    yield bn("3d", lambda: Classifier(nn.Sequential(nn.Conv3d(2, 4, 3, padding=1), nn.BatchNorm3d(4), nn.ReLU()), 4),
             lambda b: {"x": pixels(b, 2, 4, 4, 4), "y": classes(4, b)}, **LEGACY_TRAIN)
    yield bn("attention_one", Attended, lambda b: {"x": pixels(b, 5, 8), "y": classes(4, b)}, **LEGACY_TRAIN, batch_size=1, batch_sizes=[1, 4, 3],
             notes="exported for one sample: where samples lie in the attention's reshapes follows from their staying apart")
    yield bn("no_affine", one(lambda: nn.BatchNorm2d(5, affine=False)), **LEGACY_TRAIN)
    yield bn("momentum_eps", one(lambda: nn.BatchNorm2d(5, momentum=0.25, eps=0.01)), **LEGACY_TRAIN)
    yield bn("on_input", lambda: Classifier(nn.Sequential(nn.BatchNorm2d(3), conv(3, 5), nn.ReLU()), 5), **LEGACY_TRAIN)
    yield bn("frozen_scale_and_bias", conv_bn, **DYNAMO, frozen=("body.1.", "body.4."), notes="BatchNormalization frozen altogether, as in fine-tuning")
    yield bn("frozen_backbone", conv_bn, **LEGACY_EVAL, frozen=("body.",), notes="only the head is trained")
    yield bn("unset_statistics", conv_bn, **LEGACY_EVAL, **AS_TRAIN, keep_constants=True,
             notes="exported before any training: each running variance is an Identity of the scale, each running mean of the bias")
    image = lambda b: (lambda x: {"x": x, "y": x})(pixels(b, 1, 8, 8))
    auto = lambda: nn.Sequential(nn.Conv2d(1, 4, 3, 2, 1, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.ConvTranspose2d(4, 4, 4, 2, 1, bias=False), nn.BatchNorm2d(4), nn.ReLU(), conv(4, 1))
    yield Case("bn_autoencoder_as_train", auto, image, MSE, optimizer("adam"), **DYNAMO, **AS_TRAIN, batch_size=4, steps=3)
