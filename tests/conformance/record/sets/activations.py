"""Activation functions, each between two linear layers."""
import torch.nn as nn
import torch.nn.functional as F

from case import CE, MSE, Case, pixels, vector_classes, vector_values
from optimizers import optimizer
from styles import styled


class Function(nn.Module):
    def __init__(self, f):
        super().__init__()
        self.f = f

    def forward(self, x):
        return self.f(x)


def perceptron(act, hidden=8, into=None):
    return lambda: nn.Sequential(nn.Linear(6, hidden), act(), nn.Linear(into or hidden, 4))


LAYERS = {
    "relu": nn.ReLU, "relu6": nn.ReLU6, "leaky_relu": lambda: nn.LeakyReLU(0.2), "prelu": nn.PReLU, "prelu_channels": lambda: nn.PReLU(8),
    "elu": lambda: nn.ELU(0.7), "selu": nn.SELU, "celu": lambda: nn.CELU(1.5), "silu": nn.SiLU, "mish": nn.Mish, "gelu": nn.GELU,
    "gelu_tanh": lambda: nn.GELU(approximate="tanh"), "hardswish": nn.Hardswish, "hardsigmoid": nn.Hardsigmoid,
    "hardtanh": lambda: nn.Hardtanh(-0.5, 0.75), "sigmoid": nn.Sigmoid, "log_sigmoid": nn.LogSigmoid, "tanh": nn.Tanh, "tanhshrink": nn.Tanhshrink,
    "softplus": nn.Softplus, "softplus_beta": lambda: nn.Softplus(beta=2.0, threshold=5.0), "softsign": nn.Softsign,
    "softshrink": lambda: nn.Softshrink(0.2), "hardshrink": lambda: nn.Hardshrink(0.3), "threshold": lambda: nn.Threshold(0.1, -0.2),
    "softmax": lambda: nn.Softmax(dim=1), "softmin": lambda: nn.Softmin(dim=-1), "log_softmax": lambda: nn.LogSoftmax(dim=-1),
}


def cases():
    simple = lambda name, module, exporter=None: styled(Case(f"act_{name}", module, vector_classes(6, 4), CE, optimizer("sgd"), steps=3), exporter=exporter)
    for name, layer in LAYERS.items():
        yield simple(name, perceptron(layer), "dynamo" if name == "threshold" else None)
    yield simple("glu", perceptron(lambda: nn.GLU(dim=1), 8, 4))
    yield simple("swiglu", perceptron(lambda: Function(lambda x: F.silu(x[:, :5]) * x[:, 5:]), 10, 5))
    yield simple("maxout", perceptron(lambda: Function(lambda x: x.view(x.shape[0], 4, 3).amax(2)), 12, 4))
    image = lambda b: {"x": pixels(b, 2, 4, 4), "y": pixels(b, 3, 4, 4)}
    yield styled(Case("act_prelu_image", lambda: nn.Sequential(nn.Conv2d(2, 5, 3, padding=1), nn.PReLU(5), nn.Conv2d(5, 3, 1)), image, MSE,
                      optimizer("adam"), batch_size=3, steps=3))
    yield styled(Case("act_softmax_channels", lambda: nn.Sequential(nn.Conv2d(2, 5, 3, padding=1), nn.Softmax2d(), nn.Conv2d(5, 3, 1)), image, MSE,
                      optimizer("sgd"), batch_size=3, steps=3))
    yield styled(Case("act_identity", lambda: nn.Sequential(nn.Identity(), nn.Linear(5, 3), nn.Dropout(0.0)), vector_values(5, 3), MSE,
                      optimizer("sgd"), steps=3))
