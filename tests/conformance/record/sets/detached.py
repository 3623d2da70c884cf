"""Modules that detach values: straight-through estimators, targets without gradients, weights that are only read. torch.export's file has
an Identity of that name, or its optimizer has removed it and the metadata of neighboring nodes still name it."""
import torch
import torch.nn as nn
import torch.nn.functional as F

from case import Case, classes, pixels, term
from optimizers import optimizer


class Quantized(nn.Module):
    """A VQ-VAE of vectors: the nearest entry of a table, straight-through gradients, and the two losses of the table."""

    def __init__(self):
        super().__init__()
        self.encoder, self.decoder, self.table = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4)), nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 6)), nn.Embedding(5, 4)

    def forward(self, x):
        z = self.encoder(x)
        q = self.table((z[:, None] - self.table.weight.detach()).square().sum(-1).argmin(1))
        side = (q - z.detach()).square().mean() + 0.25 * (z - q.detach()).square().mean()
        return self.decoder(z + (q - z).detach()), side


class Siamese(nn.Module):
    """SimSiam: each view's prediction against the detached projection of the other."""

    def __init__(self):
        super().__init__()
        self.body, self.predictor = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 4)), nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 4))

    def forward(self, a, b):
        za, zb = self.body(a), self.body(b)
        return (F.cosine_similarity(self.predictor(za), zb.detach(), dim=-1) + F.cosine_similarity(self.predictor(zb), za.detach(), dim=-1)) * -0.5


class Rounded(nn.Module):
    """Activations and weights, fake-quantized to eight bits."""

    def __init__(self, weights=True):
        super().__init__()
        self.weights = weights
        self.first, self.second = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x):
        through = lambda v, step: v + ((v / step).round() * step - v).detach()
        rounded = lambda layer: through(layer.weight, 0.125) if self.weights else layer.weight
        h = torch.relu(F.linear(x, rounded(self.first), self.first.bias))
        return F.linear(through(h, 0.25), rounded(self.second), self.second.bias)


class SevenBits(nn.Module):
    """To eight bits; the older exporter clips quantized values."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x):
        few = lambda v, step, zero: torch.fake_quantize_per_tensor_affine(v, step, zero, 0, 127)
        return self.second(F.relu(F.linear(few(x, 2**-5, 60), few(self.first.weight, 2**-8, 64), self.first.bias)))


class Parts(nn.Module):
    """A value read with and without gradient, a weight read without being trained there, and a head from which the body does not learn."""

    def __init__(self):
        super().__init__()
        self.body, self.head, self.side = nn.Linear(6, 6), nn.Linear(6, 3), nn.Linear(6, 3)

    def forward(self, x):
        h = torch.relu(self.body(x))
        gated = h * torch.sigmoid(h).detach() + h @ self.body.weight.detach()
        return self.head(gated), self.side(h.detach())


class Decomposed(nn.Module):
    """DoRA: directions of a weight plus a low-rank update, divided by a norm without gradient, and trained lengths."""

    def __init__(self):
        super().__init__()
        self.base, self.head = nn.Linear(6, 8).requires_grad_(False), nn.Linear(8, 3)
        self.down, self.up, self.length = (nn.Parameter(torch.randn(*shape) * 0.3) for shape in ((2, 6), (8, 2), (8, 1)))

    def forward(self, x):
        w = self.base.weight + self.up @ self.down
        return self.head(torch.relu(F.linear(x, self.length * w / w.norm(dim=1, keepdim=True).detach(), self.base.bias)))


# The detached values in the older exporter's files: a value, or a value as read by one node.
NAMED = {
    "quantized": ("/encoder/encoder.2/Gemm_output_0@/Sub_1", "/table/Gather_output_0@/Sub_2", "/Sub_3_output_0"),
    "siamese": ("/body/body.2_1/Gemm_output_0@/Mul", "/body/body.2_1/Gemm_output_0@/Mul_2", "/body/body.2/Gemm_output_0@/Mul_4", "/body/body.2/Gemm_output_0@/Mul_6"),
    "parts": ("/Sigmoid_output_0", "body.weight@/MatMul", "/Relu_output_0@/side/Gemm"),
}


def cases():
    vectors = lambda b: {"x": pixels(b, 6), "y": pixels(b, 6)}
    views = lambda b: {"a": pixels(b, 6), "b": pixels(b, 6)}
    labelled = lambda b: {"x": pixels(b, 6), "y": classes(3, b)}
    # The optimizer folds what is computed from weights alone.
    for style, options in {"kept": dict(opset=18), "taken_out": dict(opset=20, optimize=True, keep_notes=True), "eval": dict(opset=23, mode="eval", dynamic_batch=True)}.items():
        case = lambda name, *rest, **own: Case(f"detach_{name}_{style}", *rest, **options | own)
        yield case("quantized", Quantized, vectors, [term("mse"), term("output", output="side", target=None)], optimizer("adam", lr=0.01), outputs=("out", "side"))
        yield case("siamese", Siamese, views, [term("output", target=None)], optimizer("momentum", lr=0.02), inputs=("a", "b"), targets=())
        yield case("rounded", lambda style=style: Rounded(weights=style != "taken_out"), labelled, [term("cross_entropy")], optimizer("sgd", lr=0.05))
        yield case("parts", Parts, labelled, [term("cross_entropy"), term("cross_entropy", output="side", weight=0.5)], optimizer("adamw", lr=0.01), outputs=("out", "side"))
    # The older exporter's traces of a detach().
    for name, module in {"rounded": Rounded, "seven_bits": SevenBits}.items():
        yield Case(f"detach_{name}_legacy", module, labelled, [term("cross_entropy")], optimizer("sgd", lr=0.05), exporter="legacy", opset=17)
    # The same by name.
    named = lambda name, *rest, **own: Case(f"detach_{name}_named", *rest, exporter="legacy", opset=17, dynamic_batch=True, detached=NAMED[name], **own)
    yield named("quantized", Quantized, vectors, [term("mse"), term("output", output="side", target=None)], optimizer("adam", lr=0.01), outputs=("out", "side"))
    yield named("siamese", Siamese, views, [term("output", target=None)], optimizer("momentum", lr=0.02), inputs=("a", "b"), targets=())
    yield named("parts", Parts, labelled, [term("cross_entropy"), term("cross_entropy", output="side", weight=0.5)], optimizer("adamw", lr=0.01), outputs=("out", "side"))
    yield Case("detach_decomposed_named", Decomposed, labelled, [term("cross_entropy")], optimizer("adam", lr=0.01), exporter="legacy", opset=14, mode="eval", frozen=("base",), detached=("/ReduceL2*",))
