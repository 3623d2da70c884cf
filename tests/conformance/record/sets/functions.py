"""Elementwise functions, each between two linear layers."""
import torch
import torch.nn.functional as F

from case import CE, Case, vector_classes
from optimizers import optimizer
from sets.activations import Function, perceptron
from styles import styled

FUNCTIONS = {
    "sin_cos": lambda x: torch.sin(x) * torch.cos(0.5 * x), "exp_neg_square": lambda x: torch.exp(-x * x), "abs": torch.abs,
    "sqrt": lambda x: torch.sqrt(x * x + 0.5), "rsqrt": lambda x: x * torch.rsqrt(x * x + 1.0), "log": lambda x: torch.log(1.5 + x * x),
    "log1p": lambda x: torch.log1p(x.abs()), "expm1": lambda x: torch.expm1(0.5 * x), "erf": torch.erf, "atan": torch.atan, "asinh": torch.asinh,
    "sinh": torch.sinh, "cosh": torch.cosh, "tan": lambda x: torch.tan(0.3 * torch.tanh(x)), "asin": lambda x: torch.asin(0.8 * torch.tanh(x)),
    "acos": lambda x: torch.acos(0.8 * torch.sigmoid(x)), "acosh": lambda x: torch.acosh(1.5 + x * x), "atanh": lambda x: torch.atanh(0.7 * torch.tanh(x)),
    "pow_3": lambda x: x**3, "pow_half": lambda x: (x.abs() + 0.5) ** 0.5, "pow_of_two": lambda x: 2.0**x, "reciprocal": lambda x: 1.0 / (2.0 + x.abs()),
    "clamp": lambda x: x.clamp(-0.4, 0.6), "clamp_min": lambda x: x.clamp(min=-0.1), "maximum": lambda x: torch.maximum(x, 0.3 * x + 0.1),
    "minimum": lambda x: torch.minimum(x, x * x), "where": lambda x: torch.where(x > 0, x, 0.1 * x - 0.05), "sign": lambda x: x * torch.sign(x - 0.2) + x,
    "floor": lambda x: x + torch.floor(4 * x), "fmod": lambda x: x - 0.25 * torch.round(x), "swish_written": lambda x: x * torch.sigmoid(1.7 * x),
    "squared_relu": lambda x: F.relu(x) ** 2, "log_cosh": lambda x: torch.log(torch.cosh(x)),
}
DYNAMO_ONLY = ("expm1", "sinh", "cosh", "asinh", "acosh", "atanh", "log_cosh")  # the legacy exporter does not support these


def cases():
    for name, f in FUNCTIONS.items():
        yield styled(Case(f"fn_{name}", perceptron(lambda f=f: Function(f)), vector_classes(6, 4), CE, optimizer("sgd"), steps=3),
                     exporter="dynamo" if name in DYNAMO_ONLY else None)
