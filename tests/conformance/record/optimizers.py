"""The optimizers of case.json: those of torch.optim, LAMB and Lion."""
import torch

_SGD = dict(momentum=0.0, nesterov=False, dampening=0.0, weight_decay=0.0)
_ADAM = dict(betas=[0.9, 0.999], eps=1e-8)
DEFAULTS = {
    "sgd": dict(lr=0.1, **_SGD),
    "momentum": dict(lr=0.05, **_SGD | dict(momentum=0.9)),
    "nesterov": dict(lr=0.05, **_SGD | dict(momentum=0.9, nesterov=True)),
    "adam": dict(lr=0.01, **_ADAM, weight_decay=0.0, amsgrad=False),
    "adamw": dict(lr=0.01, **_ADAM, weight_decay=0.01, amsgrad=False),
    "nadam": dict(lr=0.01, **_ADAM, weight_decay=0.0, momentum_decay=4e-3),
    "radam": dict(lr=0.01, **_ADAM, weight_decay=0.0),
    "rmsprop": dict(lr=0.005, alpha=0.99, eps=1e-8, momentum=0.0, weight_decay=0.0, centered=False),
    "adagrad": dict(lr=0.05, lr_decay=0.0, eps=1e-10, initial_accumulator_value=0.0, weight_decay=0.0),
    "adadelta": dict(lr=1.0, rho=0.9, eps=1e-6, weight_decay=0.0),
    "adamax": dict(lr=0.01, **_ADAM, weight_decay=0.0),
    "lamb": dict(lr=0.01, betas=[0.9, 0.999], eps=1e-6, weight_decay=0.01),
    "lion": dict(lr=0.001, betas=[0.9, 0.99], weight_decay=0.0),
}


def optimizer(type: str, **options) -> dict:
    """The `optimizer` object of case.json with every option written out."""
    return {"type": type, **DEFAULTS[type], **options}


class Lamb(torch.optim.Optimizer):
    """You et al. 2020, algorithm 2: Adam's bias-corrected direction plus decay, scaled per tensor by norm(w) / norm(u)."""

    def __init__(self, params, lr, betas, eps, weight_decay):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                s = self.state[p]
                if not s:
                    s.update(step=0, m=torch.zeros_like(p), v=torch.zeros_like(p))
                s["step"] += 1
                s["m"].mul_(b1).add_(p.grad, alpha=1 - b1)
                s["v"].mul_(b2).addcmul_(p.grad, p.grad, value=1 - b2)
                u = (s["m"] / (1 - b1 ** s["step"])) / ((s["v"] / (1 - b2 ** s["step"])).sqrt() + group["eps"]) + group["weight_decay"] * p
                w_norm, u_norm = p.norm(), u.norm()
                ratio = w_norm / u_norm if w_norm > 0 and u_norm > 0 else 1.0
                p.sub_(group["lr"] * ratio * u)


class Lion(torch.optim.Optimizer):
    """Chen et al. 2023, algorithm 2: the sign of an average of the gradient and its moving average; the decay is decoupled."""

    def __init__(self, params, lr, betas, weight_decay):
        super().__init__(params, dict(lr=lr, betas=betas, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                c = (b1 * m + (1 - b1) * p.grad).sign()
                p.sub_(group["lr"] * (c + group["weight_decay"] * p))
                m.mul_(b2).add_(p.grad, alpha=1 - b2)


_CLASSES = dict(sgd=torch.optim.SGD, momentum=torch.optim.SGD, nesterov=torch.optim.SGD, adam=torch.optim.Adam, adamw=torch.optim.AdamW,
                rmsprop=torch.optim.RMSprop, adagrad=torch.optim.Adagrad, adadelta=torch.optim.Adadelta, adamax=torch.optim.Adamax,
                nadam=torch.optim.NAdam, radam=torch.optim.RAdam, lamb=Lamb, lion=Lion)


def build(spec: dict, params: list[torch.nn.Parameter]) -> torch.optim.Optimizer:
    options = dict(spec)
    cls, groups = _CLASSES[options.pop("type")], options.pop("groups", None)
    if "betas" in options:
        options["betas"] = tuple(options["betas"])
    if groups == "no_decay_1d":
        params = [{"params": [p for p in params if p.dim() >= 2]}, {"params": [p for p in params if p.dim() < 2], "weight_decay": 0.0}]
        params = [g for g in params if g["params"]]
    return cls(params, **options)
