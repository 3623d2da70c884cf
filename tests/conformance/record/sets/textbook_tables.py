"""Tables, graphs, points, control and losses as tutorials and example repositories write them. See textbook.py."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

from case import classes, pixels
from sets.everyday import styles
from sets.families import weight
from sets.further import EDGES, NODES, L, lin, mlp, nodes, one, steps, vector

distributions = torch.distributions


class GraphAttention(nn.Module):
    """The GAT example: one graph, whose nodes are the rows of the batch, with its adjacency as an input."""

    def __init__(self):
        super().__init__()
        self.W, self.a, self.W2, self.a2 = weight(4, 2 * 3), weight(2, 6, 1), weight(6, 3), weight(1, 6, 1)

    def layer(self, h, W, a, heads, out, adj, concat):
        n = h.shape[0]
        ht = torch.mm(h, W).view(n, heads, out).permute(1, 0, 2)
        e = F.leaky_relu(torch.matmul(ht, a[:, :out, :]) + torch.matmul(ht, a[:, out:, :]).transpose(1, 2), 0.2)
        attention = torch.where(adj > 0, e, -9e16 * torch.ones_like(e))
        hp = torch.matmul(F.softmax(attention, dim=-1), ht)
        return hp.permute(1, 0, 2).contiguous().view(n, heads * out) if concat else hp.mean(dim=0)

    def forward(self, x, adj):
        adj = adj + torch.eye(adj.size(0)) * 2
        x = F.elu(self.layer(x, self.W, self.a, 2, 3, adj, True))
        return F.log_softmax(self.layer(x, self.W2, self.a2, 1, 3, adj, False), dim=1)


class GraphConvolution(nn.Module):
    """The GCN example: a given adjacency, degrees to the power of -1/2, dropout off."""

    def __init__(self):
        super().__init__()
        self.k1, self.k2, self.b = weight(4, 6), weight(6, 3), weight(3)

    def forward(self, x, adj):
        a = (adj > 0).float() + torch.eye(x.size(0))
        d = a.sum(1).pow(-0.5)
        a = d[:, None] * a * d[None]
        h = F.relu(torch.mm(a, torch.mm(x, self.k1)))
        return torch.mm(a, torch.mm(h, self.k2)) + self.b


class EdgeSet(nn.Module):
    """Batched message passing over a fixed edge list with index_add on the second axis, degree norms, gated updates and a readout by softmax."""

    def __init__(self):
        super().__init__()
        self.register_buffer("edge_index", EDGES)
        self.message, self.cell, self.gate, self.head = mlp(8 + 1, 8, 4), nn.GRUCell(4, 4), lin(4, 1), lin(4, 3)

    def forward(self, x):
        src, dst = self.edge_index
        deg = torch.zeros(NODES).index_add(0, dst, torch.ones(dst.numel()))
        for _ in range(2):
            a, b = x.index_select(1, src), x.index_select(1, dst)
            m = self.message(torch.cat([a, b, (a - b).norm(dim=-1, keepdim=True)], -1))
            agg = torch.zeros_like(x).index_add(1, dst, m) / deg.clamp(min=1)[None, :, None]
            x = self.cell(agg.reshape(-1, 4), x.reshape(-1, 4)).view_as(x)
        w = torch.softmax(self.gate(x), dim=1)
        return self.head((w * x).sum(1))


class Dgcnn(nn.Module):
    """Nearest neighbours by a distance from products, gathered through flat indices with an offset per sample."""

    def __init__(self):
        super().__init__()
        self.c1, self.c2, self.bn, self.head = nn.Conv2d(6, 6, 1, bias=False), nn.Conv1d(6, 8, 1, bias=False), nn.BatchNorm2d(6), lin(16, 3)

    def forward(self, x):
        x = x.transpose(2, 1).contiguous()
        batch_size, num_dims, num_points = x.size()
        inner = -2 * torch.matmul(x.transpose(2, 1), x)
        xx = torch.sum(x**2, dim=1, keepdim=True)
        idx = (-xx - inner - xx.transpose(2, 1)).topk(k=3, dim=-1)[1]
        idx = (idx + torch.arange(0, batch_size).view(-1, 1, 1) * num_points).view(-1)
        x = x.transpose(2, 1).contiguous()
        feature = x.view(batch_size * num_points, -1)[idx, :].view(batch_size, num_points, 3, num_dims)
        x = x.view(batch_size, num_points, 1, num_dims).repeat(1, 1, 3, 1)
        f = torch.cat((feature - x, x), dim=3).permute(0, 3, 1, 2).contiguous()
        h = F.leaky_relu(self.bn(self.c1(f)), 0.2).max(dim=-1, keepdim=False)[0]
        h = self.c2(h)
        return self.head(torch.cat((F.adaptive_max_pool1d(h, 1).view(batch_size, -1), F.adaptive_avg_pool1d(h, 1).view(batch_size, -1)), 1))


class PointNetPlus(nn.Module):
    """Set abstraction: balls around given centres by sorting masked indices, and features propagated back by inverse distances."""

    def __init__(self):
        super().__init__()
        self.sa, self.glob, self.fp = mlp(6, 8, 6), mlp(9, 8, 6), mlp(6 + 6 + 3, 8, 3)

    @staticmethod
    def index(points, idx):
        B = points.shape[0]
        view_shape, repeat_shape = list(idx.shape), list(idx.shape)
        view_shape[1:], repeat_shape[0] = [1] * (len(view_shape) - 1), 1
        batch_indices = torch.arange(B, dtype=torch.long).view(view_shape).repeat(repeat_shape)
        return points[batch_indices, idx, :]

    @staticmethod
    def square(src, dst):
        dist = -2 * torch.matmul(src, dst.permute(0, 2, 1))
        dist = dist + torch.sum(src**2, -1).unsqueeze(-1)
        return dist + torch.sum(dst**2, -1).unsqueeze(1)

    def forward(self, x):
        B, N, _ = x.shape
        new = x[:, ::2]
        S = new.shape[1]
        group = torch.arange(N, dtype=torch.long).view(1, 1, N).repeat([B, S, 1])
        group = torch.where(self.square(new, x) > 2.5, torch.full_like(group, N), group)
        group = group.sort(dim=-1)[0][:, :, :4]
        first = group[:, :, 0].view(B, S, 1).repeat([1, 1, 4])
        group = torch.where(group == N, first, group)
        g = self.index(x, group)
        g = torch.cat([g - new.view(B, S, 1, 3), g], -1)
        f = self.sa(g).max(2)[0]
        glob = self.glob(torch.cat([new, f], -1)).max(1, keepdim=True)[0]
        dists, idx = self.square(x, new).sort(dim=-1)
        dists, idx = dists[:, :, :3], idx[:, :, :3]
        recip = 1.0 / (dists + 1e-2)
        w = recip / torch.sum(recip, dim=2, keepdim=True)
        up = torch.sum(self.index(f, idx) * w.view(B, N, 3, 1), dim=2)
        return self.fp(torch.cat([x, up, glob.repeat(1, N, 1)], -1))


class Polynomial(nn.Module):
    """The regression example: features by powers of one number."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 1)

    def forward(self, x):
        return self.fc(torch.cat([x.unsqueeze(1) ** i for i in range(1, 5)], 1).flatten(1)).squeeze(-1)


class Legendre(nn.Module):
    """The autograd tutorials: four numbers as parameters, a polynomial and its Legendre form."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c, self.d = (nn.Parameter(torch.randn(())) for _ in range(4))

    def forward(self, x):
        z = self.c + self.d * x
        return self.a + self.b * (0.5 * (5 * z**3 - 3 * z)) + (self.c * x) ** 2 / (1 + self.d**2)


class Wide(nn.Module):
    """float64 from inputs to outputs."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))

    def forward(self, x):
        return self.net(x)


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.affine1, self.action_head, self.value_head = lin(6, 8), lin(8, 3), lin(8, 1)

    def forward(self, state, action, returns):
        x = F.relu(self.affine1(state))
        prob, value = F.softmax(self.action_head(x), dim=-1), self.value_head(x)
        m = distributions.Categorical(prob, validate_args=False)
        returns = (returns - returns.mean()) / (returns.std() + 1e-6)
        advantage = returns - value.squeeze(1).detach()
        policy = -m.log_prob(action) * advantage
        return policy.sum() + F.smooth_l1_loss(value.squeeze(1), returns, reduction="none").sum() - 0.01 * m.entropy().mean()


class PPO(nn.Module):
    """Gaussian policy with a state-independent deviation, clipped ratio, clipped values, approximate divergence as an output."""

    def __init__(self):
        super().__init__()
        self.actor, self.critic, self.log_std = nn.Sequential(lin(6, 8), nn.Tanh(), lin(8, 2)), nn.Sequential(lin(6, 8), nn.Tanh(), lin(8, 1)), nn.Parameter(torch.zeros(1, 2) - 0.3)

    def forward(self, obs, act, old_logp, adv, ret, old_value):
        mean = self.actor(obs)
        dist = distributions.Normal(mean, torch.exp(self.log_std.expand_as(mean)), validate_args=False)
        logp, v = dist.log_prob(act).sum(1), self.critic(obs).view(-1)
        logratio = logp - old_logp - 3
        ratio = logratio.exp()
        adv = (adv - adv.mean()) / (adv.std() + 1e-8)
        pg = torch.max(-adv * ratio, -adv * torch.clamp(ratio, 1 - 0.2, 1 + 0.2)).mean()
        v_clipped = old_value + torch.clamp(v - old_value, -0.2, 0.2)
        v_loss = 0.5 * torch.max((v - ret) ** 2, (v_clipped - ret) ** 2).mean()
        return pg - 0.01 * dist.entropy().sum(1).mean() + v_loss * 0.5


class DQN(nn.Module):
    """A frozen target network, values of taken actions, masked values of final states, double choice."""

    def __init__(self):
        super().__init__()
        self.policy, self.target = mlp(6, 8, 3), mlp(6, 8, 3)
        for i, p in list(self.target.named_parameters()):
            p.requires_grad_(False)

    def forward(self, state, action, following, reward, final):
        q = self.policy(state).gather(1, action.unsqueeze(1)).squeeze(1)
        with torch.no_grad():
            best = self.policy(following).argmax(1, keepdim=True)
            nxt = self.target(following).gather(1, best).squeeze(1)
            nxt = torch.where(final > 0, torch.zeros_like(nxt), nxt)
        return F.smooth_l1_loss(q, reward + 0.9 * nxt)


class SacActor(nn.Module):
    """A squashed Gaussian with clamped logarithms, and twin critics of which the smaller counts."""

    def __init__(self):
        super().__init__()
        self.body, self.mean, self.log_std = mlp(6, 8), lin(8, 2), lin(8, 2)
        self.q1, self.q2, self.log_alpha = mlp(8, 8, 1), mlp(8, 8, 1), nn.Parameter(torch.tensor([0.2]))

    def forward(self, obs, noise):
        h = F.relu(self.body(obs))
        mean, log_std = self.mean(h), torch.tanh(self.log_std(h))
        log_std = -5 + 0.5 * (2 - -5) * (log_std + 1)
        std = log_std.exp()
        x_t = mean + std * noise
        y_t = torch.tanh(x_t)
        log_prob = distributions.Normal(mean, std, validate_args=False).log_prob(x_t) - torch.log(1 * (1 - y_t.pow(2)) + 1e-6)
        log_prob = log_prob.sum(1, keepdim=True)
        a = torch.cat([obs, y_t], 1)
        return (torch.exp(self.log_alpha) * log_prob - torch.min(self.q1(a), self.q2(a))).mean()


class RealNVP(nn.Module):
    """Couplings with permutations, normalized activations with trained log scales, an LU-decomposed matrix, a base density."""

    def __init__(self):
        super().__init__()
        self.nets, self.loc, self.log_scale = L(mlp(3, 8, 6) for _ in range(2)), weight(2, 6), weight(2, 6)
        self.lower, self.upper, self.log_s = weight(6, 6), weight(6, 6), weight(6)
        self.register_buffer("p", torch.eye(6)[torch.tensor([3, 0, 5, 1, 4, 2])])
        self.register_buffer("sign", torch.tensor([1.0, -1, 1, 1, -1, 1]))
        self.register_buffer("l_mask", torch.tril(torch.ones(6, 6), -1))
        self.register_buffer("eye", torch.eye(6))

    def forward(self, x):
        ldj = torch.zeros(x.size(0))
        for i, net in enumerate(self.nets):
            x = (x + self.loc[i]) * torch.exp(self.log_scale[i])
            ldj = ldj + self.log_scale[i].sum()
            w = self.p @ (self.lower * self.l_mask + self.eye) @ ((self.upper * self.l_mask.T) + torch.diag(self.sign * torch.exp(self.log_s)))
            x = F.linear(x, w)
            ldj = ldj + torch.sum(self.log_s)
            a, b = x.chunk(2, -1)
            log_s, t = net(a).chunk(2, -1)
            s = torch.sigmoid(log_s + 2)
            x = torch.cat([a, (b + t) * s], -1).flip(-1)
            ldj = ldj + torch.sum(torch.log(s), -1)
        return x, -(distributions.Normal(0.0, 1.0, validate_args=False).log_prob(x).sum(-1) + ldj).mean()


class TabTransformer(nn.Module):
    """Columns as tokens with offsets into one table, numbers as tokens by their own weights, a class token, feature gating."""

    def __init__(self):
        super().__init__()
        self.register_buffer("offsets", torch.tensor([0, 4, 9]))
        self.cat, self.cat_bias, self.w, self.b, self.cls = nn.Embedding(12, 8), weight(3, 8), weight(2, 8), weight(2, 8), weight(8)
        self.layer, self.head = nn.TransformerEncoderLayer(8, 2, 12, 0.0, "relu", batch_first=True, norm_first=True), nn.Sequential(nn.LayerNorm(8), nn.ReLU(), lin(8, 3))

    def forward(self, x_num, x_cat):
        x_cat = x_cat % torch.tensor([4, 5, 3])
        tokens = torch.cat([x_num.unsqueeze(-1) * self.w + self.b, self.cat(x_cat + self.offsets) + self.cat_bias], 1)
        h = torch.cat([tokens, self.cls.expand(len(tokens), 1, -1)], dim=1)
        return self.head(self.layer(h)[:, -1])


class DLRM(nn.Module):
    """Dot products of all pairs below the diagonal, by listed indices, joined with the dense part."""

    def __init__(self):
        super().__init__()
        self.bottom, self.tables, self.top = mlp(3, 6, 4), L(nn.Embedding(9, 4) for _ in range(3)), mlp(4 + 6, 8, 1)

    def forward(self, dense, sparse):
        x = self.bottom(dense)
        ly = [t(sparse[:, k]) for k, t in enumerate(self.tables)]
        (batch_size, d) = x.shape
        T = torch.cat([x] + ly, dim=1).view((batch_size, -1, d))
        Z = torch.bmm(T, torch.transpose(T, 1, 2))
        _, ni, nj = Z.shape
        li = torch.tensor([i for i in range(ni) for j in range(i)])
        lj = torch.tensor([j for i in range(nj) for j in range(i)])
        return self.top(torch.cat([x] + [Z[:, li, lj]], dim=1))


class SasRec(nn.Module):
    """Next items: causal blocks, positive and negative scores, masked binary losses; padding is item 0."""

    def __init__(self):
        super().__init__()
        self.items, self.pos, self.attn = nn.Embedding(12, 8, padding_idx=0), nn.Embedding(6, 8), nn.MultiheadAttention(8, 1)
        self.n1, self.n2, self.c1, self.c2 = nn.LayerNorm(8, eps=1e-8), nn.LayerNorm(8, eps=1e-8), nn.Conv1d(8, 8, 1), nn.Conv1d(8, 8, 1)

    def forward(self, seq, pos, neg):
        h = self.items(seq) * 8**0.5
        poss = torch.arange(1, seq.shape[1] + 1).repeat(seq.shape[0], 1) - 1
        h = (h + self.pos(poss)) * (seq != 0).unsqueeze(-1)
        tl = seq.shape[1]
        mask = ~torch.tril(torch.ones((tl, tl), dtype=torch.bool))
        h = h.transpose(0, 1)
        q = self.n1(h)
        a, _ = self.attn(q, h, h, attn_mask=mask)
        h = (q + a).transpose(0, 1)
        y = self.n2(h)
        h = y + self.c2(F.relu(self.c1(y.transpose(-1, -2)))).transpose(-1, -2)
        p, n = (h * self.items(pos)).sum(-1), (h * self.items(neg)).sum(-1)
        valid = (pos != 0).float()
        bce = F.binary_cross_entropy_with_logits
        return (bce(p, torch.ones_like(p), reduction="none") * valid).sum() / valid.sum() + (bce(n, torch.zeros_like(n), reduction="none") * valid).sum() / valid.sum()


class LossFamily(nn.Module):
    """Overlap losses over maps: Tversky, focal Tversky, boundary weights, generalized Dice with class volumes, log-cosh."""

    def __init__(self):
        super().__init__()
        self.net = nn.Conv2d(3, 3, 3, padding=1)

    def forward(self, x, label):
        p = F.softmax(self.net(x), 1)
        t = F.one_hot(label, 3).permute(0, 3, 1, 2).float()
        tp, fp, fn = (p * t).sum((0, 2, 3)), (p * (1 - t)).sum((0, 2, 3)), ((1 - p) * t).sum((0, 2, 3))
        tversky = (tp + 1e-3) / (tp + 0.3 * fp + 0.7 * fn + 1e-3)
        w = 1 / (t.sum((0, 2, 3)) ** 2).clamp(min=1e-6)
        gdl = 1 - 2 * (w * tp).sum() / (w * (p + t).sum((0, 2, 3))).sum()
        edge = (F.max_pool2d(t, 3, 1, 1) - -F.max_pool2d(-t, 3, 1, 1)).sum(1).clamp(max=1)
        ce = (F.nll_loss(torch.log(p + 1e-6), label, reduction="none") * (1 + 2 * edge)).mean()
        pt = (p * t).sum(1).clamp(1e-6, 1)
        focal = (-((1 - pt) ** 2) * torch.log(pt)).mean()
        return (1 - tversky).pow(0.75).sum() + torch.log(torch.cosh(gdl)), ce + focal


class Likelihoods(nn.Module):
    """Negative log likelihoods of several distributions from heads of one network."""

    def __init__(self):
        super().__init__()
        self.net = mlp(6, 10, 9)

    def forward(self, x, y):
        o = self.net(x)
        pos = y.abs() + 0.1
        student = -distributions.StudentT(torch.tensor(4.0), o[:, 0], F.softplus(o[:, 1]) + 0.1, validate_args=False).log_prob(y[:, 0])
        laplace = -distributions.Laplace(o[:, 2], o[:, 3].exp(), validate_args=False).log_prob(y[:, 1])
        lognormal = -distributions.LogNormal(o[:, 4], F.softplus(o[:, 5]) + 0.1, validate_args=False).log_prob(pos[:, 0])
        weibull = -(torch.log(F.softplus(o[:, 6]) + 0.1) - (pos[:, 1] * (F.softplus(o[:, 6]) + 0.1)))
        kl = distributions.kl_divergence(distributions.Normal(o[:, 7], o[:, 8].exp()), distributions.Normal(torch.zeros(1), torch.ones(1)))
        return student.mean() + laplace.mean(), (lognormal + weibull).mean() + 0.1 * kl.mean()


class PairLosses(nn.Module):
    """Embedding losses of nn with their margins, over given pairs, with swapped distances."""

    def __init__(self):
        super().__init__()
        self.net, self.triplet = mlp(6, 8, 4), nn.TripletMarginLoss(margin=0.7, p=2, swap=True)
        self.cosine, self.ranking, self.hinge = nn.CosineEmbeddingLoss(margin=0.1), nn.MarginRankingLoss(0.3), nn.HingeEmbeddingLoss(1.5)

    def forward(self, x, good, bad, sign):
        a, p, n = self.net(x), self.net(good), self.net(bad)
        s = torch.where(sign > 0, 1.0, -1.0)
        d = F.pairwise_distance(a, p)
        return self.triplet(a, p, n) + self.cosine(a, p, s) + self.ranking(d, F.pairwise_distance(a, n), s) + self.hinge(d, s) + nn.SoftMarginLoss()(a, s[:, None].expand_as(a))


class Distilled(nn.Module):
    """The distillation tutorial: a frozen teacher, softened targets, hidden features compared by cosine."""

    def __init__(self):
        super().__init__()
        self.teacher, self.student, self.h1, self.h2 = mlp(6, 10, 4), lin(6, 5), lin(5, 10), lin(5, 4)
        for p in self.teacher.parameters():
            p.requires_grad_(False)

    def forward(self, x):
        with torch.no_grad():
            t = self.teacher(x)
        s = torch.relu(self.student(x))
        logits = self.h2(s)
        soft = F.softmax(t / 2, dim=-1)
        kd = torch.sum(soft * (soft.log() - F.log_softmax(logits / 2, dim=-1))) / logits.size()[0] * 4
        hint = F.cosine_embedding_loss(self.h1(s), F.silu(self.teacher[0](x)).detach(), target=torch.ones(x.size(0)))
        return logits, 0.25 * kd + hint


class GroupedNorms(nn.Module):
    """Spectral and weight norms, and an orthogonal layer, as parametrizations in evaluation form."""

    def __init__(self):
        super().__init__()
        self.a = torch.nn.utils.parametrizations.weight_norm(nn.Linear(6, 8), dim=None)
        self.b = torch.nn.utils.parametrizations.weight_norm(nn.Linear(8, 8), dim=1)
        self.c = lin(8, 3)

    def forward(self, x):
        return self.c(F.selu(self.b(F.celu(self.a(x), 0.7))))


class MixedInputs(nn.Module):
    """Bytes, flags, narrow integers and half floats as inputs."""

    def __init__(self):
        super().__init__()
        self.conv, self.flag, self.day, self.head = nn.Conv2d(1, 3, 3), nn.Embedding(2, 3), nn.Embedding(7, 3), lin(12, 3)

    def forward(self, image, flag, day, extra):
        h = F.relu(self.conv(image.float() / 255.0)).amax((2, 3))
        f = torch.where(flag.unsqueeze(-1), self.flag.weight[1], self.flag.weight[0])
        e = extra.to(torch.float32) @ torch.eye(3)
        return self.head(torch.cat([h, f, self.day(day.long()), e], 1))


class OnlyVectors(nn.Module):
    """Inputs and outputs without a second axis."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.table = nn.Parameter(torch.randn(3)), nn.Parameter(torch.randn(1)), nn.Embedding(9, 1)

    def forward(self, x, item):
        return torch.stack([x, x**2, torch.sin(x)], -1) @ self.a + self.b + self.table(item).squeeze(-1)


class HyperTask(nn.Module):
    """Uncertainty-weighted tasks, an inner step of gradient descent written out, and a prototype head."""

    def __init__(self):
        super().__init__()
        self.net, self.log_vars, self.w, self.lr = mlp(6, 8, 5), nn.Parameter(torch.zeros(2)), weight(5, 3), nn.Parameter(torch.tensor(-1.0))

    def forward(self, x, y, query):
        h, q = self.net(x), self.net(query)
        err = h @ self.w - y
        fast = self.w - F.softplus(self.lr) * h.transpose(0, 1) @ err * 2 / err.numel()
        losses = torch.stack([err.pow(2).mean(), (q @ fast).abs().mean()])
        return (torch.exp(-self.log_vars) * losses + self.log_vars).sum()


class EnergyLangevin(nn.Module):
    """An energy, its gradient by hand, two noisy steps downhill and a contrastive loss with regularized energies."""

    def __init__(self):
        super().__init__()
        self.w1, self.b1, self.w2 = weight(8, 4), weight(8), weight(8)

    def forward(self, x, noise):
        energy = lambda z: F.softplus(z @ self.w1.T + self.b1) @ self.w2
        z = noise
        for _ in range(2):
            grad = (torch.sigmoid(z @ self.w1.T + self.b1) * self.w2) @ self.w1
            z = z - 0.1 * grad.clamp(-0.5, 0.5)
        z = z.detach()
        ep, en = energy(x), energy(z)
        return (ep - en).mean() + 0.1 * (ep**2 + en**2).mean()


class SetScores(nn.Module):
    """LambdaRank-like weights by sorted gains, listwise losses over masked lists."""

    def __init__(self):
        super().__init__()
        self.net = mlp(5, 8, 1)

    def forward(self, x, gain):
        s = self.net(x).squeeze(-1)
        valid = gain > 0
        order = gain.float().argsort(dim=1, descending=True, stable=True)
        sorted_s = s.gather(1, order).masked_fill(~valid.gather(1, order), -1e4)
        rev = sorted_s.flip(1)
        lse = torch.logsumexp(torch.where(torch.tril(torch.ones(8, 8)).bool(), rev[:, None, :], torch.tensor(-1e4)), -1).flip(1)
        ok = valid.gather(1, order).float()
        mle = ((lse - sorted_s) * ok).sum(1) / ok.sum(1).clamp(min=1)
        d = 1.0 / torch.log2(2.0 + torch.arange(8))
        diff = s[:, :, None] - s[:, None, :]
        g = (2.0**gain.float())[:, :, None] - (2.0**gain.float())[:, None, :]
        ranknet = (F.softplus(-diff) * (g > 0).float() * (d[None, :, None] - d[None, None, :]).abs()).sum((1, 2))
        return mle.mean() + 0.1 * ranknet.mean()


class TemporalFusion(nn.Module):
    """Gated residual networks, variable selection, static context, quantile heads with their pinball loss."""

    def __init__(self):
        super().__init__()
        self.vars, self.sel = L(lin(1, 4) for _ in range(5)), lin(20, 5)
        self.g1, self.g2, self.gate, self.norm, self.lstm, self.q = lin(4, 4), lin(4, 4), lin(4, 8), nn.LayerNorm(4), nn.LSTM(4, 4, batch_first=True), lin(4, 3)
        self.static = nn.Embedding(6, 4)

    def forward(self, x, series, actual):
        ctx = self.static(series)
        parts = torch.stack([v(x[..., i : i + 1]) for i, v in enumerate(self.vars)], dim=-1)
        w = F.softmax(self.sel(parts.flatten(-2)), -1).unsqueeze(2)
        h = (parts * w).sum(-1)
        h = self.norm(h + F.glu(self.gate(self.g2(F.elu(self.g1(h) + ctx[:, None]))), -1))
        out, _ = self.lstm(h, (ctx[None], torch.tanh(ctx)[None]))
        p = self.q(out[:, -3:])
        losses = []
        for i, q in enumerate((0.1, 0.5, 0.9)):
            errors = actual - p[..., i]
            losses.append(torch.max((q - 1) * errors, q * errors).unsqueeze(-1))
        return p, torch.cat(losses, dim=2).mean()


edges = lambda b: (torch.rand(b, b) < 0.5).float()
TEXTBOOK = {
    "graph_attention": (GraphAttention, lambda b: {"x": pixels(b, 4), "adj": edges(b)}, [((3,), 1)]),
    "graph_convolution": (GraphConvolution, lambda b: {"x": pixels(b, 4), "adj": edges(b)}, [((3,), 1)]),
    "edge_set": (EdgeSet, nodes, [((3,), 1)]),
    "dgcnn": (Dgcnn, lambda b: {"x": pixels(b, 7, 3)}, [((3,), 1)]),
    "pointnet_plus": (PointNetPlus, lambda b: {"x": pixels(b, 8, 3)}, [((8, 3), 2)]),
    "polynomial": (Polynomial, lambda b: {"x": pixels(b)}, [((), 0)]),
    "legendre": (Legendre, lambda b: {"x": pixels(b)}, [((), 0)]),
    "actor_critic": (ActorCritic, lambda b: {"state": pixels(b, 6), "action": classes(3, b), "returns": pixels(b)}, [None]),
    "ppo": (PPO, lambda b: {"obs": pixels(b, 6), "act": pixels(b, 2), "old_logp": pixels(b), "adv": pixels(b), "ret": pixels(b), "old_value": pixels(b)}, [None]),
    "dqn": (DQN, lambda b: {"state": pixels(b, 6), "action": classes(3, b), "following": pixels(b, 6), "reward": pixels(b), "final": pixels(b)}, [None]),
    "sac_actor": (SacActor, lambda b: {"obs": pixels(b, 6), "noise": pixels(b, 2)}, [None]),
    "real_nvp": (RealNVP, vector, [((6,), 0), None]),
    "tab_transformer": (TabTransformer, lambda b: {"x_num": pixels(b, 2), "x_cat": classes(60, b, 3)}, [((3,), 1)]),
    "dlrm": (DLRM, lambda b: {"dense": pixels(b, 3), "sparse": classes(9, b, 3)}, [((1,), 0)]),
    "sas_rec": (SasRec, lambda b: {"seq": classes(12, b, 6), "pos": classes(12, b, 6), "neg": classes(12, b, 6)}, [None]),
    "loss_family": (LossFamily, lambda b: {"x": pixels(b, 3, 8, 8), "label": classes(3, b, 8, 8)}, [None, None]),
    "likelihoods": (Likelihoods, lambda b: {"x": pixels(b, 6), "y": pixels(b, 2)}, [None, None]),
    "pair_losses": (PairLosses, lambda b: {"x": pixels(b, 6), "good": pixels(b, 6), "bad": pixels(b, 6), "sign": pixels(b)}, [None]),
    "distilled_hint": (Distilled, vector, [((4,), 1), None]),
    "grouped_norms": (GroupedNorms, vector, [((3,), 1)]),
    "mixed_inputs": (MixedInputs, lambda b: {"image": torch.randint(0, 256, (b, 1, 6, 6), dtype=torch.uint8), "flag": torch.rand(b) > 0.5, "day": torch.randint(0, 7, (b,), dtype=torch.int32), "extra": pixels(b, 3)}, [((3,), 1)]),
    "only_vectors": (OnlyVectors, lambda b: {"x": pixels(b), "item": classes(9, b)}, [((), 0)]),
    "inner_step": (HyperTask, lambda b: {"x": pixels(b, 6), "y": pixels(b, 3), "query": pixels(b, 6)}, [None]),
    "energy_langevin": (EnergyLangevin, lambda b: {"x": pixels(b, 4), "noise": pixels(b, 4)}, [None]),
    "set_scores": (SetScores, lambda b: {"x": pixels(b, 8, 5), "gain": classes(4, b, 8)}, [None]),
    "temporal_fusion": (TemporalFusion, lambda b: {"x": pixels(b, 8, 5), "series": classes(6, b), "actual": pixels(b, 3)}, [((3, 3), 0), None]),
}


def cases():
    return styles(TEXTBOOK, oldest=13)
