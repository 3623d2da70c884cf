"""Training objectives beyond the list of losses, written into the module (contrastive, adversarial, ranking, segmentation, variational,
quantized), each in the default exporter's form and in one more style, with a recipe selected by name. A module that computes its objective
returns it as its only output. None is kept; they are recorded when needed."""
import math
import random
import zlib

import torch
import torch.nn as nn
import torch.nn.functional as F

from case import Case, classes, pixels, term
from drawing import target, two_styles
from sets import random_nets
from sets.families import Net, conv, lin, weight


L = nn.ModuleList
mlp = lambda i, h, o: nn.Sequential(lin(i, h), nn.ReLU(), lin(h, o))


# Objectives over pairs of samples: the whole batch is one.


def nt_xent(s, a, b):
    """SimCLR."""
    z = F.normalize(torch.cat([s.body(a), s.body(b)]), dim=1)
    n = a.shape[0]
    scores = z @ z.t() / 0.5 - 1e9 * torch.eye(2 * n)
    return F.cross_entropy(scores, torch.cat([torch.arange(n, 2 * n), torch.arange(n)]))


def clip_loss(s, a, b):
    p, q = F.normalize(s.left(a), dim=-1), F.normalize(s.right(b), dim=-1)
    scores = s.scale.exp() * p @ q.t()
    here = torch.arange(a.shape[0])
    return (F.cross_entropy(scores, here) + F.cross_entropy(scores.t(), here)) / 2


def sigmoid_pairs(s, a, b):
    """SigLIP."""
    scores = F.normalize(s.left(a), dim=-1) @ F.normalize(s.right(b), dim=-1).t() * s.scale.exp() + s.shift
    return -F.logsigmoid((2 * torch.eye(a.shape[0]) - 1) * scores).sum(-1)


def barlow(s, a, b):
    p, q = s.body(a), s.body(b)
    p, q = (p - p.mean(0)) / (p.std(0) + 1e-3), (q - q.mean(0)) / (q.std(0) + 1e-3)
    c = p.t() @ q / a.shape[0]
    on = torch.diagonal(c)
    return (on - 1).square().sum() + 0.05 * (c.square().sum() - on.square().sum())


def vicreg(s, a, b):
    p, q = s.body(a), s.body(b)
    spread = lambda z: F.relu(1 - (z.var(0) + 1e-4).sqrt()).mean()
    cov = lambda z: ((z - z.mean(0)).t() @ (z - z.mean(0)) / (z.shape[0] - 1)).fill_diagonal_(0).square().sum() / z.shape[1]
    return F.mse_loss(p, q) + spread(p) + spread(q) + 0.1 * (cov(p) + cov(q))


def supervised_pairs(s, x, label):
    z = F.normalize(s.body(x), dim=1)
    eye = torch.eye(x.shape[0])
    scores = z @ z.t() / 0.3
    scores = scores - scores.amax(1, keepdim=True).detach()
    same = (label[:, None] == label[None]).float() * (1 - eye)
    logp = scores - (scores.exp() * (1 - eye)).sum(1, keepdim=True).log()
    return -(same * logp).sum(1) / same.sum(1).clamp(min=1)


def hardest(s, x, label):
    """Triplets of the farthest sample of the class and the nearest of another."""
    z = s.body(x)
    d = torch.cdist(z, z) if s.euclid else (z[:, None] - z[None]).square().sum(-1)
    same = label[:, None] == label[None]
    return F.relu((d * same).amax(1) - d.masked_fill(same, 1e4).amin(1) + 1)


# Objectives per sample.


def triplet(s, x, good, bad):
    return F.triplet_margin_loss(s.body(x), s.body(good), s.body(bad), margin=0.5)


def cosine_pairs(s, a, b):
    return F.cosine_embedding_loss(s.body(a), s.body(b), torch.tensor([1.0, -1, 1, 1, -1, 1])[: a.shape[0]], margin=0.1)


def focal(s, x, label):
    logits = s.body(x)
    ce = F.cross_entropy(logits, label, reduction="none", label_smoothing=0.05)
    return (1 - torch.exp(-ce)) ** 2 * ce


def dice(s, x, label):
    p = s.body(x).softmax(1)
    y = F.one_hot(label, 3).permute(0, 3, 1, 2).float()
    return 1 - ((2 * (p * y).sum((2, 3)) + 1) / (p.sum((2, 3)) + y.sum((2, 3)) + 1)).mean(1)


def tversky(s, x, label):
    p, y = s.body(x).sigmoid()[:, 0], (label > 0).float()
    hit, extra, miss = (p * y).sum((1, 2)), (p * (1 - y)).sum((1, 2)), ((1 - p) * y).sum((1, 2))
    return (1 - (hit + 1) / (hit + 0.3 * extra + 0.7 * miss + 1)) ** 0.75


def lovasz(s, x, label):
    """By the sorted errors of a sample."""
    logits, y = s.body(x)[:, 0].flatten(1), (label > 0).float().flatten(1)
    errors, order = torch.sort(1 - logits * (2 * y - 1), dim=1, descending=True)
    y = y.gather(1, order)
    total = y.sum(1, keepdim=True)
    jaccard = 1 - (total - y.cumsum(1)) / (total + (1 - y).cumsum(1))
    return (F.relu(errors) * torch.cat([jaccard[:, :1], jaccard[:, 1:] - jaccard[:, :-1]], 1)).sum(1)


def structural(s, x, y):
    """SSIM of a restored image."""
    p = s.body(x)
    window = lambda z: F.avg_pool2d(z, 3, 1)
    mp, my = window(p), window(y)
    vp, vy, c = window(p * p) - mp * mp, window(y * y) - my * my, window(p * y) - mp * my
    ssim = (2 * mp * my + 0.01) * (2 * c + 0.03) / ((mp * mp + my * my + 0.01) * (vp + vy + 0.03))
    edges = (p[..., 1:] - p[..., :-1]).abs().mean((1, 2, 3)) + (p[..., 1:, :] - p[..., :-1, :]).abs().mean((1, 2, 3))
    return 1 - ssim.mean((1, 2, 3)) + 0.1 * edges + torch.sqrt((p - y).square() + 1e-6).mean((1, 2, 3))


def quantiles(s, x, y):
    q = torch.tensor([0.1, 0.5, 0.9])
    e = y - s.body(x)
    return torch.maximum(q * e, (q - 1) * e).sum(-1)


def gaussian(s, x, y):
    mean, raw = s.body(x).chunk(2, -1)
    return F.gaussian_nll_loss(mean, y, F.softplus(raw) + 1e-3, reduction="none")


def poisson(s, x, y):
    return F.poisson_nll_loss(s.body(x), y.abs(), log_input=True, full=False, reduction="none")


def evidential(s, x, label):
    alpha = F.softplus(s.body(x)) + 1
    total, y = alpha.sum(1, keepdim=True), F.one_hot(label, 3).float()
    p = alpha / total
    return ((y - p) ** 2 + p * (1 - p) / (total + 1)).sum(1)


def ordinal(s, x, label):
    cuts = torch.cat([s.first, s.first + F.softplus(s.steps).cumsum(0)])
    logits = cuts[None] - s.body(x)
    return F.binary_cross_entropy_with_logits(logits, (label[:, None] <= torch.arange(3)).float(), reduction="none").sum(1)


def listwise(s, x, relevance):
    scores = s.body(x).squeeze(-1)
    return -(relevance.softmax(-1) * F.log_softmax(scores, -1)).sum(-1) + F.relu(1 - (scores[:, :, None] - scores[:, None]) * torch.sign(relevance[:, :, None] - relevance[:, None])).mean((1, 2))


def sinkhorn(s, x, y):
    a, b = s.body(x), s.body(y)
    cost = (a[:, :, None] - b[:, None]).square().sum(-1)
    f = g = torch.zeros_like(cost[:, 0])
    for _ in range(3):
        f = -0.5 * torch.logsumexp((g[:, None] - cost) / 0.5, 2)
        g = -0.5 * torch.logsumexp((f[:, :, None] - cost) / 0.5, 1)
    return (torch.exp((f[:, :, None] + g[:, None] - cost) / 0.5) * cost).sum((1, 2))


def soft_dtw(s, x, y):
    cost = (s.body(x)[:, :, None] - y[:, None]).square().sum(-1)
    n, m = 4, 3
    far = torch.full_like(cost[:, 0, 0], 1e4)
    r = [[far] * (m + 1) for _ in range(n + 1)]
    r[0][0] = torch.zeros_like(far)
    for i in range(1, n + 1):
        for j in range(1, m + 1):
            r[i][j] = cost[:, i - 1, j - 1] - torch.logsumexp(-torch.stack([r[i - 1][j], r[i][j - 1], r[i - 1][j - 1]]), 0)
    return r[n][m]


def masked_language(s, x, y, mask):
    h = s.body(s.embed(torch.where(mask > 0, torch.full_like(x, 10), x)) + s.places)
    loss = F.cross_entropy((h @ s.embed.weight.t() + s.bias).transpose(1, 2), y, reduction="none")
    return (loss * mask).sum() / mask.sum().clamp(min=1)


def preference(s, good, bad, base):
    """DPO: two answers under a trained and a frozen model."""
    def logp(m, t):
        return m(t[:, :-1]).log_softmax(-1).gather(-1, t[:, 1:, None]).squeeze(-1).sum(-1)

    return -F.logsigmoid(0.3 * (logp(s.policy, good) - logp(s.policy, bad) - base))


def clipped_policy(s, x, action, old, advantage):
    """PPO."""
    h = torch.tanh(s.body(x))
    logp = s.policy(h).log_softmax(-1)
    ratio = torch.exp(logp.gather(1, action[:, None]).squeeze(1) - old)
    value = s.value(h).squeeze(1)
    return -torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage) + 0.5 * (value - advantage).square() + 0.01 * (logp.exp() * logp).sum(1)


def adversarial(s, noise, real):
    """The losses of the generator and the discriminator; the latter does not reach the generator."""
    fake = s.generator(noise)
    return F.softplus(-s.critic(fake)).squeeze(1) * 0.1 + F.softplus(-s.critic(real)).squeeze(1) + F.softplus(s.critic(fake.detach())).squeeze(1)


def hinge_pair(s, noise, real):
    fake = s.generator(noise.view(-1, 4, 2, 2))
    return F.relu(1 - s.critic(real)).mean((1, 2, 3)) + F.relu(1 + s.critic(fake)).mean((1, 2, 3))


def bound(s, x, noise):
    """A VAE's evidence lower bound, with free bits."""
    mean, logvar = s.encoder(x).chunk(2, -1)
    z = mean + noise * (0.5 * logvar).exp()
    kl = -0.5 * (1 + logvar - mean.square() - logvar.exp())
    return F.binary_cross_entropy_with_logits(s.decoder(z), x.sigmoid(), reduction="none").sum(-1) + kl.clamp(min=0.05).sum(-1)


def denoise(s, x, noise, t):
    """A diffusion U-Net with a time embedding that predicts the noise."""
    keep = torch.cos(t.float() / 10 * math.pi / 2)[:, None, None, None]
    angle = t.float()[:, None] * torch.exp(torch.arange(4) * (-math.log(100.0) / 3))
    e = s.time(torch.cat([angle.sin(), angle.cos()], -1))
    a = s.first(x * keep + noise * (1 - keep * keep).clamp(min=0).sqrt())
    b = F.silu(s.norm1(s.down(a))) + s.to1(e)[:, :, None, None]
    q, k, v = s.qkv(s.norm2(b)).flatten(2).chunk(3, 1)
    b = b + s.out(F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)).transpose(1, 2).unflatten(2, b.shape[2:]))
    c = torch.cat([F.interpolate(b, scale_factor=2.0, mode="nearest"), a], 1)
    scale, shift = s.to2(e)[:, :, None, None].chunk(2, 1)
    return (s.last(F.silu(s.up(c) * (1 + scale) + shift)) - noise).square().mean((1, 2, 3))


def flow_matching(s, x, noise, t):
    t = t.float()[:, None] / 10
    return (s.body(torch.cat([x * t + noise * (1 - t), t, (6 * t).sin()], -1)) - (x - noise)).square().mean(-1)


def score_energy(s, x, noise):
    """Denoising score matching of an energy with an explicit gradient."""
    y = x + 0.3 * noise
    h = torch.tanh(s.a(y))
    score = -((1 - h * h) * s.b.weight) @ s.a.weight
    return (0.3 * score + noise).square().sum(-1)


def distilled(s, x):
    h = s.student(x)
    with torch.no_grad():
        soft = (s.teacher(x) / 2).softmax(-1)
    return F.kl_div((h / 2).log_softmax(-1), soft, reduction="none").sum(-1) * 4


def momentum_views(s, a, b):
    """BYOL, with the slow network as buffers."""
    slow = F.normalize(F.linear(F.relu(F.linear(b, s.slow_a)), s.slow_b), dim=-1)
    return 2 - 2 * (F.normalize(s.predictor(s.online(a)), dim=-1) * slow.detach()).sum(-1)


# Quantized and compressed.


def fake_quantised(s, x):
    """Learned step sizes (LSQ), one per channel for weights."""
    def through(v, step, low, high):
        step = step + (step / math.sqrt(v.numel() / step.numel() * high) - step).detach() * 0 + 1e-6
        u = (v / step).clamp(low, high)
        return (u + (u.round() - u).detach()) * step

    h = F.relu(F.linear(x, through(s.first.weight, s.steps1.abs(), -8, 7), s.first.bias))
    return F.linear(through(h, s.act.abs(), 0, 15), through(s.second.weight, s.steps2.abs(), -8, 7), s.second.bias)


def torch_fake(s, x):
    h = F.relu(s.first(torch.fake_quantize_per_tensor_affine(x, 0.0437, 0, -128, 127)))
    return s.second(torch.fake_quantize_per_tensor_affine(h, 0.0173, 10, 0, 255))


def torch_fake_channels(s, x):
    w = torch.fake_quantize_per_channel_affine(s.first.weight, torch.full((8,), 0.0117, dtype=torch.float32), torch.zeros(8, dtype=torch.int32), 0, -128, 127)
    return s.second(F.relu(F.linear(x, w, s.first.bias)))


def residual_codes(s, x):
    """Residual quantization, straight-through, with codebooks as buffers."""
    z, rest, q = s.encoder(x), s.encoder(x), 0
    for book in (s.book1, s.book2):
        code = book[torch.cdist(rest[:, None], book[None].expand(x.shape[0], -1, -1)).squeeze(1).argmin(1)]
        rest, q = rest - code, q + code
    return s.decoder(z + (q - z).detach()) + 0 * rest.sum(-1, keepdim=True)


def finite_levels(s, x):
    """FSQ."""
    z = torch.tanh(s.encoder(x)) * torch.tensor([1.0, 2.0, 3.0])
    return s.decoder(z + (z.round() - z).detach())


def binary(s, x):
    w = s.first.weight
    sign = torch.where(w >= 0, 1.0, -1.0) * w.abs().mean(1, keepdim=True)
    return s.second(F.hardtanh(F.linear(x, w + (sign - w).detach(), s.first.bias)))


pair = lambda b: {"a": pixels(b, 6), "b": pixels(b, 6)}
labelled = lambda b: {"x": pixels(b, 6), "label": classes(3, b)}
pictures = lambda b: {"x": pixels(b, 3, 6, 6), "label": classes(3, b, 6, 6)}
steps = lambda b: {"x": pixels(b, 6, 5)}
vector = lambda b: {"x": pixels(b, 6)}
body = lambda o=4: mlp(6, 8, o)
small = lambda o: nn.Sequential(conv(3, 4), nn.ReLU(), conv(4, o))
language = lambda: nn.Sequential(nn.Embedding(9, 6), lin(6, 9))

# name: (module, its inputs, shape of the output of one sample (None: the output is the objective), class axis)
OBJECTIVES = {
    "nt_xent": (lambda: Net(nt_xent, body=body()), pair, None, 0),
    "clip_loss": (lambda: Net(clip_loss, left=body(), right=body(), scale=nn.Parameter(torch.tensor(1.3))), pair, None, 0),
    "sigmoid_pairs": (lambda: Net(sigmoid_pairs, left=body(), right=body(), scale=nn.Parameter(torch.tensor([1.0])), shift=nn.Parameter(torch.tensor([-2.0]))), pair, None, 0),
    "barlow": (lambda: Net(barlow, body=body()), pair, None, 0),
    "vicreg": (lambda: Net(vicreg, body=body()), pair, None, 0),
    "supervised_pairs": (lambda: Net(supervised_pairs, body=body()), labelled, None, 0),
    "hardest": (lambda: Net(hardest, body=body(), euclid=False), labelled, None, 0),
    "triplet": (lambda: Net(triplet, body=body()), lambda b: {"x": pixels(b, 6), "good": pixels(b, 6), "bad": pixels(b, 6)}, None, 0),
    "cosine_pairs": (lambda: Net(cosine_pairs, body=body()), pair, None, 0),
    "focal": (lambda: Net(focal, body=body(3)), labelled, None, 0),
    "dice": (lambda: Net(dice, body=small(3)), pictures, None, 0),
    "tversky": (lambda: Net(tversky, body=small(1)), pictures, None, 0),
    "lovasz": (lambda: Net(lovasz, body=small(1)), pictures, None, 0),
    "structural": (lambda: Net(structural, body=small(3)), lambda b: {"x": pixels(b, 3, 6, 6), "y": pixels(b, 3, 6, 6)}, None, 0),
    "quantiles": (lambda: Net(quantiles, body=body(3)), lambda b: {"x": pixels(b, 6), "y": pixels(b, 1)}, None, 0),
    "gaussian": (lambda: Net(gaussian, body=body(4)), lambda b: {"x": pixels(b, 6), "y": pixels(b, 2)}, None, 0),
    "poisson": (lambda: Net(poisson, body=body(2)), lambda b: {"x": pixels(b, 6), "y": pixels(b, 2)}, None, 0),
    "evidential": (lambda: Net(evidential, body=body(3)), labelled, None, 0),
    "ordinal": (lambda: Net(ordinal, body=body(1), first=nn.Parameter(torch.tensor([-0.5])), steps=weight(2)), labelled, None, 0),
    "listwise": (lambda: Net(listwise, body=mlp(5, 8, 1)), lambda b: {"x": pixels(b, 6, 5), "relevance": pixels(b, 6)}, None, 0),
    "sinkhorn": (lambda: Net(sinkhorn, body=mlp(3, 8, 2)), lambda b: {"x": pixels(b, 4, 3), "y": pixels(b, 5, 3)}, None, 0),
    "soft_dtw": (lambda: Net(soft_dtw, body=mlp(3, 8, 2)), lambda b: {"x": pixels(b, 4, 3), "y": pixels(b, 3, 2)}, None, 0),
    "masked_language": (lambda: Net(masked_language, embed=nn.Embedding(11, 6), places=weight(5, 6), bias=weight(11), body=nn.TransformerEncoderLayer(6, 2, 8, 0.0, batch_first=True)), lambda b: {"x": classes(10, b, 5), "y": classes(10, b, 5), "mask": classes(2, b, 5).float()}, None, 0),
    "preference": (lambda: Net(preference, policy=language()), lambda b: {"good": classes(9, b, 5), "bad": classes(9, b, 5), "base": pixels(b)}, None, 0),
    "clipped_policy": (lambda: Net(clipped_policy, body=lin(6, 8), policy=lin(8, 3), value=lin(8, 1)), lambda b: {"x": pixels(b, 6), "action": classes(3, b), "old": -pixels(b).abs() - 0.5, "advantage": pixels(b)}, None, 0),
    "adversarial": (lambda: Net(adversarial, generator=mlp(4, 8, 6), critic=nn.Sequential(lin(6, 8), nn.LeakyReLU(0.2), lin(8, 1))), lambda b: {"noise": pixels(b, 4), "real": pixels(b, 6)}, None, 0),
    "hinge_pair": (lambda: Net(hinge_pair, generator=nn.Sequential(nn.ConvTranspose2d(4, 4, 4, 2, 1), nn.InstanceNorm2d(4, affine=True), nn.ReLU(), nn.ConvTranspose2d(4, 3, 4, 2, 1), nn.Tanh()), critic=nn.Sequential(conv(3, 4, 4, stride=2, padding=1), nn.LeakyReLU(0.2), conv(4, 1, 2, padding=0))), lambda b: {"noise": pixels(b, 16), "real": pixels(b, 3, 8, 8)}, None, 0),
    "bound": (lambda: Net(bound, encoder=body(6), decoder=mlp(3, 8, 6)), lambda b: {"x": pixels(b, 6), "noise": pixels(b, 3)}, None, 0),
    "denoise": (lambda: Net(denoise, time=nn.Sequential(lin(8, 8), nn.SiLU()), first=conv(2, 4), down=conv(4, 8, 3, stride=2), norm1=nn.GroupNorm(2, 8), to1=lin(8, 8), norm2=nn.GroupNorm(4, 8), qkv=conv(8, 24, 1), out=conv(8, 8, 1), up=conv(12, 6), to2=lin(8, 12), last=conv(6, 2)), lambda b: {"x": pixels(b, 2, 6, 6), "noise": pixels(b, 2, 6, 6), "t": classes(10, b)}, None, 0),
    "flow_matching": (lambda: Net(flow_matching, body=mlp(8, 12, 6)), lambda b: {"x": pixels(b, 6), "noise": pixels(b, 6), "t": classes(10, b)}, None, 0),
    "score_energy": (lambda: Net(score_energy, a=lin(6, 8), b=lin(8, 1, bias=False)), lambda b: {"x": pixels(b, 6), "noise": pixels(b, 6)}, None, 0),
    "distilled": (lambda: Net(distilled, student=body(3), teacher=Frozen(body(3))), vector, None, 0),
    "momentum_views": (lambda: Net(momentum_views, online=body(), predictor=mlp(4, 6, 4), slow_a=torch.randn(8, 6) * 0.3, slow_b=torch.randn(4, 8) * 0.3), pair, None, 0),
    "fake_quantised": (lambda: Net(fake_quantised, first=lin(6, 8), second=lin(8, 3), steps1=nn.Parameter(torch.full((8, 1), 0.06)), steps2=nn.Parameter(torch.full((3, 1), 0.05)), act=nn.Parameter(torch.tensor([0.1]))), vector, (3,), 1),
    "torch_fake": (lambda: Net(torch_fake, first=lin(6, 8), second=lin(8, 3)), vector, (3,), 1),
    "torch_fake_channels": (lambda: Net(torch_fake_channels, first=lin(6, 8), second=lin(8, 3)), vector, (3,), 1),
    "residual_codes": (lambda: Net(residual_codes, encoder=body(), decoder=mlp(4, 8, 6), book1=torch.randn(5, 4), book2=torch.randn(5, 4) * 0.5), vector, (6,), 0),
    "finite_levels": (lambda: Net(finite_levels, encoder=body(3), decoder=mlp(3, 8, 6)), vector, (6,), 0),
    "binary": (lambda: Net(binary, first=lin(6, 8), second=lin(8, 3)), vector, (3,), 1),
}


class Frozen(nn.Module):
    """A model whose weights are not trained."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner.requires_grad_(False)

    def forward(self, x):
        return self.inner(x)


def drawn(family, name, entry, again, side=False):
    """A case of an entry of a table like OBJECTIVES, in its first or in a second style. With `side`, the mean of a second output is a loss
    term."""
    r = random.Random(zlib.crc32(f"{name}{again}".encode()))
    module, inputs, out, axis = entry
    if out is None:
        terms, y = [term("output", target=None)], None
    else:
        terms, y = target(r, out, axis)
    outputs = ("out", "side") if side else ("out",)
    if side:
        terms = [*terms, term("output", output="side", target=None, weight=0.1)]
    options = random_nets.recipe(r)
    exporter, optimize = r.choice([("legacy", False), ("dynamo", False), ("legacy", True)]) if again else ("dynamo", r.random() < 0.7)
    if options["optimizer"]["type"] == "lamb" or "groups" in options["optimizer"]:
        optimize = False
    opset = r.choice([18, 18, 20, 22, 23, 25]) if exporter == "dynamo" else r.choice([16, 17, 17, 18, 20])
    batch = lambda b: inputs(b) | ({} if y is None else {"y": y(b)})
    # An objective over all samples is specific to one batch size; another size would need another file.
    sizes = [6, 6, 6, 6, 6, 4] if out is not None and r.random() < 0.5 and options["steps"] == 6 else None
    frozen = ("teacher",) if name == "distilled" else ()
    return Case(f"{family}_{name}_{exporter}{opset}{'' if optimize else '_plain'}", module, batch, terms, inputs=tuple(inputs(1)), targets=() if y is None else ("y",), outputs=outputs, exporter=exporter, opset=opset,
                optimize=optimize, mode=r.choice(["train", "eval"]), dynamic_batch=out is not None and r.random() < (0.3 if exporter == "dynamo" else 0.6), batch_size=6, batch_sizes=sizes, may_rest=True, frozen=frozen, **options)


def cases():
    return two_styles(lambda name, again: drawn("objective", name, OBJECTIVES[name], again), OBJECTIVES)
