"""What people train with beside the losses of a list: objectives written into the module (contrastive, adversarial, ranking, segmentation, variational,
quantised), and the blocks of recent models, each as the default exporter writes it and in one more style, with a recipe that is drawn by name. A module
that computes its objective gives it as its one output. None is kept; it is recorded where it is wanted."""
import math
import random
import zlib

import torch
import torch.nn as nn
import torch.nn.functional as F

from case import Case, classes, pixels, term
from sets import random_nets
from sets.families import Net, conv, lin, weight


L = nn.ModuleList
mlp = lambda i, h, o: nn.Sequential(lin(i, h), nn.ReLU(), lin(h, o))


# Objectives over pairs of samples: the batch is one.


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
    """Triplets of the farthest of a class and the nearest of another."""
    z = s.body(x)
    d = torch.cdist(z, z) if s.euclid else (z[:, None] - z[None]).square().sum(-1)
    same = label[:, None] == label[None]
    return F.relu((d * same).amax(1) - d.masked_fill(same, 1e4).amin(1) + 1)


# Of samples one by one.


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
    """Of a sample's errors in order."""
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
    """DPO: two answers under a trained and a fixed model."""
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
    """The generator's loss and the discriminator's, which does not reach the generator."""
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
    """A diffusion U-Net with time embedding, told to find the noise."""
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
    """Denoising score matching of an energy whose gradient is written out."""
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


# Quantised and compressed.


def fake_quantised(s, x):
    """Learned step sizes (LSQ), a channel each for weights."""
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
    """Residual quantisation, straight through, codebooks that are buffers."""
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


# Recent blocks.


def rotated(v, cos, sin):
    a, b = v.chunk(2, -1)
    return v * cos + torch.cat([-b, a], -1) * sin


def decoder(s, x):
    """RoPE, grouped queries, RMS norms, a gated feed-forward part, logits soft-capped."""
    b, t = x.shape
    h = s.embed(x) * 8**0.5
    rms = lambda v, w: v * torch.rsqrt(v.square().mean(-1, keepdim=True) + 1e-6) * (1 + w)
    angle = torch.arange(t)[:, None] * (1 / 100 ** (torch.arange(0, 4, 2) / 4))
    cos, sin = torch.cat([angle, angle], -1).cos(), torch.cat([angle, angle], -1).sin()
    y = rms(h, s.n1)
    q, k, v = s.q(y).view(b, t, 4, 4).transpose(1, 2), s.k(y).view(b, t, 2, 4).transpose(1, 2), s.v(y).view(b, t, 2, 4).transpose(1, 2)
    q, k = rotated(rms(q, s.nq), cos, sin), rotated(rms(k, s.nk), cos, sin)
    k, v = k.repeat_interleave(2, 1), v.repeat_interleave(2, 1)
    scores = 20 * torch.tanh(q @ k.transpose(2, 3) * 0.5 / 20)
    near = torch.ones(t, t).tril() - torch.ones(t, t).tril(-4)
    h = h + s.o((scores.masked_fill(near == 0, -1e9).softmax(-1) @ v).transpose(1, 2).reshape(b, t, -1))
    y = rms(h, s.n2)
    h = h + s.down(F.gelu(s.gate(y), approximate="tanh") * s.up(y))
    return 10 * torch.tanh(F.linear(h, s.embed.weight) / 10)


def latent_attention(s, x):
    """Keys and values of one small latent (MLA)."""
    b, t, _ = x.shape
    c = F.layer_norm(s.down(x), (4,), s.scale)
    k, v = s.up(c).view(b, t, 2, 8).transpose(1, 2).chunk(2, -1)
    k = torch.cat([k, s.shared(x)[:, None].expand(-1, 2, -1, -1)], -1)
    q = s.q(x).view(b, t, 2, 6).transpose(1, 2)
    return s.head(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2).mean(1))


def differential(s, x):
    b, t, _ = x.shape
    q, k = s.q(x).view(b, t, 2, 4).transpose(1, 2), s.k(x).view(b, t, 2, 4).transpose(1, 2)
    p = (q @ k.transpose(2, 3) / 2).softmax(-1)
    gate = (s.l1 * s.l2).sum().exp() - (s.l3 * s.l4).sum().exp() + 0.2
    return s.head(((p[:, 0] - gate * p[:, 1]) @ s.v(x)).mean(1))


def routed(s, x):
    """The two best of four experts, weighted anew; what balances them beside."""
    p = s.gate(x).softmax(-1)
    best, where = p.topk(2, -1)
    best = best / best.sum(-1, keepdim=True)
    hidden = F.silu(torch.einsum("bi,eih->beh", x, s.w1)) * torch.einsum("bi,eih->beh", x, s.w3)
    out = torch.einsum("beh,eho->beo", hidden, s.w2)
    y = (out.gather(1, where[:, :, None].expand(-1, -1, out.shape[-1])) * best[:, :, None]).sum(1)
    return y, p.var(-1)


def expert_choice(s, x):
    """Tokens that each expert chooses, of each sample."""
    p = s.gate(x).softmax(-1)
    best, where = p.transpose(1, 2).topk(2, -1)
    chosen = x.gather(1, where.flatten(1)[:, :, None].expand(-1, -1, x.shape[-1])).unflatten(1, (3, 2))
    made = torch.einsum("betd,edf->betf", chosen, s.w) * best[..., None]
    return s.head((x + torch.zeros_like(x).scatter_add(1, where.flatten(1)[:, :, None].expand(-1, -1, x.shape[-1]), made.flatten(1, 2))).mean(1))


def selective(s, x):
    """Mamba: a convolution, and a scan whose steps the input decides, in the logarithm."""
    z, gate = s.inner(x).chunk(2, -1)
    z = F.silu(s.conv(z.transpose(1, 2))[..., :-2].transpose(1, 2))
    delta, b, c = s.param(z).split([5, 3, 3], -1)
    delta = F.softplus(delta)
    decay = delta[..., None] * -s.a.exp()
    total = decay.cumsum(1)
    h = ((delta * z)[..., None] * b[:, :, None] * (-total).exp()).cumsum(1) * total.exp()
    return s.head((((h * c[:, :, None]).sum(-1) + s.d * z) * F.silu(gate)).mean(1))


def receptance(s, x):
    """RWKV: time mixing with a running maximum, and channel mixing."""
    before = F.pad(x, (0, 0, 1, -1))
    mix = lambda m: x * m + before * (1 - m)
    r, k, v = s.r(mix(s.mr)).sigmoid(), s.k(mix(s.mk)), s.v(mix(s.mv))
    num = den = torch.zeros_like(k[:, 0])
    top = torch.full_like(num, -1e30)
    out = []
    for t in range(x.shape[1]):
        q = torch.maximum(top, s.first + k[:, t])
        e1, e2 = (top - q).exp(), (s.first + k[:, t] - q).exp()
        out.append((e1 * num + e2 * v[:, t]) / (e1 * den + e2))
        q = torch.maximum(top - s.decay.exp(), k[:, t])
        e1, e2 = (top - s.decay.exp() - q).exp(), (k[:, t] - q).exp()
        num, den, top = e1 * num + e2 * v[:, t], e1 * den + e2, q
    y = x + s.o(r * torch.stack(out, 1))
    return s.head((y + s.cr(y).sigmoid() * s.cv(F.relu(s.ck(y)).square())).mean(1))


def delta_rule(s, x):
    """A memory that is corrected at each step."""
    q, k, v, beta = F.normalize(s.q(x), dim=-1), F.normalize(s.k(x), dim=-1), s.v(x), s.beta(x).sigmoid()
    memory = torch.zeros(x.shape[0], 4, 4)
    out = []
    for t in range(x.shape[1]):
        wrong = v[:, t] - torch.einsum("bij,bi->bj", memory, k[:, t])
        memory = memory + torch.einsum("bi,bj->bij", k[:, t], beta[:, t] * wrong)
        out.append(torch.einsum("bij,bi->bj", memory, q[:, t]))
    return s.head(torch.stack(out, 1).mean(1))


def gated_recurrence(s, x):
    """RG-LRU."""
    gate = s.ga(x).sigmoid()
    a = torch.exp(-8 * F.softplus(s.decay) * gate)
    u, h, out = torch.sqrt(1 - a * a + 1e-6) * s.gx(x).sigmoid() * x, torch.zeros_like(x[:, 0]), []
    for t in range(x.shape[1]):
        h = a[:, t] * h + u[:, t]
        out.append(h)
    return s.head(torch.stack(out, -1).amax(-1))


def exponential_gates(s, x):
    """sLSTM."""
    h = c = n = m = torch.zeros(x.shape[0], 4)
    for t in range(x.shape[1]):
        z, i, f, o = (s.w(x[:, t]) + s.r(h)).chunk(4, -1)
        f = F.logsigmoid(f)
        top = torch.maximum(f + m, i)
        c, n, m = (f + m - top).exp() * c + (i - top).exp() * z.tanh(), (f + m - top).exp() * n + (i - top).exp(), top
        h = o.sigmoid() * c / n
    return s.head(h)


def splines(s, x):
    """KAN."""
    grid = torch.linspace(-2, 2, 8)
    basis = ((x[..., None] >= grid[:-1]) & (x[..., None] < grid[1:])).float()
    for k in (1, 2):
        basis = (x[..., None] - grid[: -(k + 1)]) / (grid[k:-1] - grid[: -(k + 1)]) * basis[..., :-1] + (grid[k + 1 :] - x[..., None]) / (grid[k + 1 :] - grid[1:-k]) * basis[..., 1:]
    return F.silu(x) @ s.base.t() + torch.einsum("big,oig->bo", basis, s.coefficients)


def messages(s, x, edges):
    """A graph a sample: messages along edges that are fed, summed, averaged and with attention."""
    src, dst = (edges[:, k, :, None].expand(-1, -1, 4) for k in (0, 1))
    h = s.embed(x)
    m = s.message(torch.cat([h.gather(1, src), h.gather(1, dst)], -1))
    score = s.score(m).exp()
    total = torch.zeros(x.shape[0], 5, 1).scatter_add(1, edges[:, 1, :, None], score)
    h = h + torch.zeros_like(h).scatter_add(1, dst, m * score) / (total + 1e-6)
    return s.head(torch.cat([h.mean(1), h.amax(1)], -1))


def pooled_graph(s, x, adjacency):
    """DiffPool, and its two further losses."""
    a = adjacency.sigmoid()
    a = (a + a.transpose(1, 2)) / 2
    z, p = F.relu(a @ s.embed(x)), (a @ s.assign(x)).softmax(-1)
    coarse = p.transpose(1, 2) @ z
    link = (a - p @ p.transpose(1, 2)).square().mean((1, 2)) + (-p * (p + 1e-6).log()).sum(-1).mean(-1)
    return s.head(coarse.flatten(1)), link


def equivariant(s, x):
    """EGNN: places move along differences."""
    h = s.start.expand(x.shape[0], 5, -1)
    for edge, move, node in zip(s.edges, s.moves, s.nodes):
        d = x[:, :, None] - x[:, None]
        m = edge(torch.cat([h[:, :, None].expand(-1, -1, 5, -1), h[:, None].expand(-1, 5, -1, -1), d.square().sum(-1, keepdim=True)], -1))
        x = x + (d * torch.tanh(move(m))).mean(2)
        h = h + node(torch.cat([h, m.sum(2)], -1))
    return torch.cat([x, h], -1)


def deformable(s, x):
    """Points that each place looks at, by grid_sample."""
    b, c, h, w = x.shape
    ys, xs = torch.meshgrid(torch.linspace(-1, 1, h), torch.linspace(-1, 1, w), indexing="ij")
    where = torch.stack([xs, ys], -1) + 0.4 * torch.tanh(s.offset(x)).permute(0, 2, 3, 1)
    return s.head(F.grid_sample(s.value(x), where, mode=s.mode, padding_mode=s.padding, align_corners=s.mode == "bilinear").mean((2, 3)))


def warped(s, x, theta):
    grid = F.affine_grid(torch.eye(2, 3) + 0.3 * torch.tanh(theta).view(-1, 2, 3), (x.shape[0], 3, 6, 6), align_corners=False)
    return s.head(F.grid_sample(s.first(x), grid, mode="bicubic", padding_mode="border", align_corners=False).flatten(1))


def free_norm(s, x):
    """Dynamic tanh in a norm's place, layer scale, a learned pooling by attention."""
    h = x + s.gamma * s.mlp(torch.tanh(s.alpha * x) * s.w + s.b)
    p = (h @ s.query).softmax(1)
    return s.head((p[..., None] * h).sum(1))


def hyper_connections(s, x):
    """Several residual streams that are mixed."""
    h = x[:, None].expand(-1, 3, -1)
    for mix, read, write, layer in zip(s.mix, s.read, s.write, s.layers):
        h = mix @ h + write[:, None] * torch.tanh(layer((read.softmax(0)[:, None] * h).sum(1)))[:, None]
    return s.head(h.sum(1))


pair = lambda b: {"a": pixels(b, 6), "b": pixels(b, 6)}
labelled = lambda b: {"x": pixels(b, 6), "label": classes(3, b)}
pictures = lambda b: {"x": pixels(b, 3, 6, 6), "label": classes(3, b, 6, 6)}
steps = lambda b: {"x": pixels(b, 6, 5)}
vector = lambda b: {"x": pixels(b, 6)}
body = lambda o=4: mlp(6, 8, o)
small = lambda o: nn.Sequential(conv(3, 4), nn.ReLU(), conv(4, o))
language = lambda: nn.Sequential(nn.Embedding(9, 6), lin(6, 9))

# name: the module, its inputs, what it gives for one sample (None: the objective itself), the axis of classes
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
    "decoder": (lambda: Net(decoder, embed=nn.Embedding(11, 8), n1=weight(8), n2=weight(8), nq=weight(4), nk=weight(4), q=lin(8, 16, bias=False), k=lin(8, 8, bias=False), v=lin(8, 8, bias=False), o=lin(16, 8, bias=False), gate=lin(8, 12, bias=False), up=lin(8, 12, bias=False), down=lin(12, 8, bias=False)), lambda b: {"x": classes(11, b, 6)}, (6, 11), 2),
    "latent_attention": (lambda: Net(latent_attention, down=lin(5, 4), scale=weight(4), up=lin(4, 16), shared=lin(5, 2), q=lin(5, 12), head=lin(8, 3)), steps, (3,), 1),
    "differential": (lambda: Net(differential, q=lin(5, 8), k=lin(5, 8), v=lin(5, 4), l1=weight(4), l2=weight(4), l3=weight(4), l4=weight(4), head=lin(4, 3)), steps, (3,), 1),
    "routed": (lambda: Net(routed, gate=lin(6, 4, bias=False), w1=weight(4, 6, 5), w3=weight(4, 6, 5), w2=weight(4, 5, 3)), vector, (3,), 1),
    "expert_choice": (lambda: Net(expert_choice, gate=lin(5, 3), w=weight(3, 5, 5), head=lin(5, 3)), steps, (3,), 1),
    "selective": (lambda: Net(selective, inner=lin(5, 10), conv=nn.Conv1d(5, 5, 3, padding=2, groups=5), param=lin(5, 11), a=weight(5, 3), d=weight(5), head=lin(5, 3)), steps, (3,), 1),
    "receptance": (lambda: Net(receptance, **{m: nn.Parameter(torch.rand(5)) for m in ("mr", "mk", "mv")}, r=lin(5, 4), k=lin(5, 4), v=lin(5, 4), first=weight(4), decay=weight(4), o=lin(4, 5), cr=lin(5, 5), ck=lin(5, 8), cv=lin(8, 5), head=lin(5, 3)), steps, (3,), 1),
    "delta_rule": (lambda: Net(delta_rule, q=lin(5, 4), k=lin(5, 4), v=lin(5, 4), beta=lin(5, 1), head=lin(4, 3)), steps, (3,), 1),
    "gated_recurrence": (lambda: Net(gated_recurrence, ga=lin(5, 5), gx=lin(5, 5), decay=weight(5), head=lin(5, 3)), steps, (3,), 1),
    "exponential_gates": (lambda: Net(exponential_gates, w=lin(5, 16), r=lin(4, 16, bias=False), head=lin(4, 3)), steps, (3,), 1),
    "splines": (lambda: Net(splines, base=weight(3, 6), coefficients=weight(3, 6, 5)), vector, (3,), 1),
    "messages": (lambda: Net(messages, embed=lin(3, 4), message=mlp(8, 8, 4), score=lin(4, 1), head=lin(8, 3)), lambda b: {"x": pixels(b, 5, 3), "edges": classes(5, b, 2, 7)}, (3,), 1),
    "pooled_graph": (lambda: Net(pooled_graph, embed=lin(3, 4), assign=lin(3, 2), head=lin(8, 3)), lambda b: {"x": pixels(b, 5, 3), "adjacency": pixels(b, 5, 5)}, (3,), 1),
    "equivariant": (lambda: Net(equivariant, start=weight(1, 1, 4), edges=L(mlp(9, 8, 4) for _ in range(2)), moves=L(lin(4, 1) for _ in range(2)), nodes=L(mlp(8, 8, 4) for _ in range(2))), lambda b: {"x": pixels(b, 5, 3)}, (5, 7), 0),
    "deformable": (lambda: Net(deformable, offset=conv(3, 2), value=conv(3, 4, 1), head=lin(4, 3), mode="bilinear", padding="zeros"), lambda b: {"x": pixels(b, 3, 6, 6)}, (3,), 1),
    "deformable_reflected": (lambda: Net(deformable, offset=conv(3, 2), value=conv(3, 4, 1), head=lin(4, 3), mode="bicubic", padding="reflection"), lambda b: {"x": pixels(b, 3, 6, 6)}, (3,), 1),
    "warped": (lambda: Net(warped, first=conv(3, 3), head=lin(108, 3)), lambda b: {"x": pixels(b, 3, 6, 6), "theta": pixels(b, 6)}, (3,), 1),
    "free_norm": (lambda: Net(free_norm, gamma=weight(5), mlp=mlp(5, 8, 5), alpha=nn.Parameter(torch.tensor([0.5])), w=weight(5), b=weight(5), query=weight(5), head=lin(5, 3)), steps, (3,), 1),
    "hyper_connections": (lambda: Net(hyper_connections, mix=nn.ParameterList(weight(3, 3) for _ in range(2)), read=nn.ParameterList(weight(3) for _ in range(2)), write=nn.ParameterList(weight(3) for _ in range(2)), layers=L(lin(6, 6) for _ in range(2)), head=lin(6, 3)), vector, (3,), 1),
}
TWO = {"routed": "side", "pooled_graph": "side"}  # a second output, whose mean is a term


class Frozen(nn.Module):
    """A model whose weights are not trained."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner.requires_grad_(False)

    def forward(self, x):
        return self.inner(x)


def case(name, again):
    r = random.Random(zlib.crc32(f"{name}{again}".encode()))
    module, inputs, out, axis = OBJECTIVES[name]
    if out is None:
        terms, y = [term("output", target=None)], None
    else:
        terms, y = random_nets.loss(r, out, axis)
        if axis == 0 and terms[0]["type"] in ("cross_entropy", "nll"):
            terms, y = [dict(type=r.choice(["mse", "l1", "huber", "smooth_l1"]), output="out", target="y")], lambda b: pixels(b, *out)
    outputs = ("out", "side") if name in TWO else ("out",)
    if name in TWO:
        terms = [*terms, term("output", output="side", target=None, weight=0.1)]
    options = random_nets.recipe(r)
    exporter, optimize = r.choice([("legacy", False), ("dynamo", False), ("legacy", True)]) if again else ("dynamo", r.random() < 0.7)
    if options["optimizer"]["type"] == "lamb" or "groups" in options["optimizer"]:
        optimize = False
    opset = r.choice([18, 18, 20, 22, 23, 25]) if exporter == "dynamo" else r.choice([16, 17, 17, 18, 20])
    batch = lambda b: inputs(b) | ({} if y is None else {"y": y(b)})
    # Of a number over samples there is one for each batch: the next is another file's.
    sizes = [6, 6, 6, 6, 6, 4] if out is not None and r.random() < 0.5 and options["steps"] == 6 else None
    frozen = ("teacher",) if name == "distilled" else ()
    return Case(f"objective_{name}_{exporter}{opset}{'' if optimize else '_plain'}", module, batch, terms, inputs=tuple(inputs(1)), targets=() if y is None else ("y",), outputs=outputs, exporter=exporter, opset=opset,
                optimize=optimize, mode=r.choice(["train", "eval"]), dynamic_batch=out is not None and r.random() < (0.3 if exporter == "dynamo" else 0.6), batch_size=6, batch_sizes=sizes, may_rest=True, frozen=frozen, **options)


def cases():
    for name in OBJECTIVES:
        first, second = case(name, 0), case(name, 1)
        yield first
        if second.name != first.name:
            yield second
