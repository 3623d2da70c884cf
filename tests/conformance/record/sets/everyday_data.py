"""Sequences, tables, graphs and reinforcement learning as people train them every day; everyday.py has images. Nothing is kept in
`recorded/`."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils import parametrizations

from case import classes, pixels
from sets.everyday import act, straight, styles
from sets.families import Net, weight
from sets.further import EDGES, L, P, conv, conv1, image, lin, mlp, one, steps, tokens, vector

frames = lambda b: {"x": pixels(b, 7, 5)}
marked = lambda b: {"x": torch.cat([classes(10, b, 4) + 1, classes(2, b, 1) * 3, torch.zeros(b, 2, dtype=torch.long)], 1)}  # 0 is padding
columns = lambda b: {"x": classes(5, b, 4), "dense": pixels(b, 3)}
graph = lambda b: {"x": pixels(b, 6, 4), "a": ((torch.rand(b, 6, 6) < 0.4) | torch.eye(6).bool()).float()}


# Recurrent


def states(s, x):
    """The last hidden states of all layers and directions, and the cell states."""
    y, (h, c) = s.lstm(x)
    return s.head(torch.cat([h.transpose(0, 1).flatten(1), c.permute(1, 0, 2).reshape(x.size(0), -1), y[:, -1]], 1))


def projected_both_ways(s, x):
    y, (h, _) = s.lstm(x)
    return s.head(y.mean(1) + torch.cat((h[-2], h[-1]), -1))


def started(s, x):
    h0 = s.start.expand(-1, x.size(0), -1).contiguous()
    y, h = s.gru(x, h0)
    return s.head(torch.cat([act(y).amax(1), h[0]], 1))


def elman(s, x):
    y, h = s.rnn(x.permute(1, 0, 2))
    return s.head(y.permute(1, 0, 2) + h.mean(0).unsqueeze(1))


def encoded_and_repeated(s, x):
    _, (h, _) = s.encode(x)
    z = h[-1].unsqueeze(1).repeat(1, x.size(1), 1)
    y, _ = s.decode(z)
    return s.head(y)


def attended_states(s, x):
    y, _ = s.lstm(s.table(x))
    score = s.v(torch.tanh(s.w(y))).squeeze(-1).masked_fill(x == 0, float("-inf"))
    return s.head(torch.bmm(torch.softmax(score, 1).unsqueeze(1), y).squeeze(1))


def given_states(s, x, h, c):
    y, (h, c) = s.lstm(x, (h.unsqueeze(0), c.unsqueeze(0)))
    return s.head(y[:, -1]), c.squeeze(0)


def by_cells(s, x):
    """Two layers of different cells, called step by step, with outputs fed back."""
    b = x.size(0)
    h, c, g, last, out = x.new_zeros(b, 6), torch.zeros(b, 6), torch.zeros(b, 4), torch.zeros(b, 3), []
    for t in range(x.shape[1]):
        h, c = s.first(torch.cat([x[:, t], last], 1), (h, c))
        g = s.second(h, g)
        last = s.head(g)
        out.append(last)
    return torch.stack(out, dim=1)


def translated(s, x, y):
    e, h = s.encode(s.table(x))
    h, out = torch.tanh(s.bridge(torch.cat([h[0], h[1]], 1))), []
    for t in range(y.shape[1]):
        score = s.v(torch.tanh(s.we(e) + s.wh(h)[:, None])).squeeze(2)
        context = torch.einsum("bt,btd->bd", score.softmax(1), e)
        h = s.cell(torch.cat([s.table(y[:, t]), context], 1), h)
        out.append(s.head(torch.cat([h, context], 1)))
    return torch.stack(out, 1)


def character_filters(s, x):
    e = s.table(x).transpose(1, 2)
    h = torch.cat([act(c(e)).max(dim=2).values for c in s.filters], 1)
    g = torch.sigmoid(s.gate(h))
    return s.head(g * act(s.body(h)) + (1 - g) * h)


def mean_of_words(s, x):
    mask = (x != 0).unsqueeze(-1).float()
    return s.head((s.table(x) * mask).sum(1) / mask.sum(1).clamp(min=1e-9))


def convolved_in_time(s, x):
    h = x.transpose(1, 2)
    for k, (a, b, skip) in enumerate(zip(s.a, s.b, s.skip)):
        y = F.leaky_relu(a(h)[:, :, : -2 * 2**k].contiguous())
        y = F.leaky_relu(b(y)[:, :, : -2 * 2**k].contiguous())
        h = act(y + skip(h))
    return s.head(h[:, :, -1])


def likelihood_of_steps(s, x):
    """Probabilistic forecasting: scaled by each series' own mean, with a Student's t head."""
    v = x.abs().mean(1, keepdim=True) + 1e-3
    y, _ = s.lstm((x / v).unsqueeze(-1)[:, :-1])
    mu, sigma, nu = s.head(y).unbind(-1)
    sigma, nu, z = F.softplus(sigma) + 1e-3, 2 + F.softplus(nu), (x / v)[:, 1:]
    d = (z - mu) / sigma
    return (0.5 * (nu + 1) * torch.log1p(d * d / nu) + sigma.log() + 0.5 * nu.log()).mean()


def double_residual(s, x):
    out = 0
    for body, back, fore in zip(s.body, s.back, s.fore):
        h = body(x)
        x = x - back(h)
        out = out + fore(h)
    return out


def linear_by_channel(s, x):
    """DLinear: a moving average with repeated ends, a linear map per channel."""
    h = torch.cat([x[:, :1].repeat(1, 1, 1), x, x[:, -1:].repeat(1, 1, 1)], 1)
    trend = F.avg_pool1d(h.permute(0, 2, 1), 3, 1)
    rest = x.permute(0, 2, 1) - trend
    return (torch.stack([l(rest[:, i]) for i, l in enumerate(s.season)], 1) + s.trend(trend)).permute(0, 2, 1)


def normalised_instance(s, x):
    """RevIN around patches."""
    m, v = x.mean(1, keepdim=True).detach(), torch.sqrt(x.var(1, keepdim=True, unbiased=False) + 1e-5).detach()
    h = (x - m) / v * s.scale + s.shift
    h = h.transpose(1, 2).unfold(-1, 3, 2)
    h = s.body(s.embed(h).flatten(0, 1)).reshape(x.shape[0], 5, -1)
    return (s.head(h).transpose(1, 2) - s.shift) / (s.scale + 1e-4) * v + m


# Attention


def encoder_with_padding(s, x):
    h = s.table(x) * math.sqrt(8) + s.places[:, : x.size(1)]
    h = s.encoder(h, src_key_padding_mask=(x == 0))
    return s.head(h[:, 0])


def decoder_with_memory(s, x, memory):
    n = x.size(1)
    mask = torch.triu(torch.full((n, n), float("-inf")), diagonal=1)
    h = s.decoder(s.table(x) + s.places(torch.arange(n)), s.up(memory), tgt_mask=mask)
    return F.linear(h, s.table.weight, s.bias)


def whole_transformer(s, x, y):
    mask = nn.Transformer.generate_square_subsequent_mask(y.shape[1])
    h = s.body(s.table(x).transpose(0, 1), s.table(y).transpose(0, 1), tgt_mask=mask)
    return s.head(h).transpose(0, 1)


def other_widths(s, x, y):
    h, p = s.attend(x, y, s.values(y), average_attn_weights=False)
    return s.head(h), p


def extended_keys(s, x):
    h, _ = s.attend(x, x, x, need_weights=False)
    return s.head(h.mean(1))


def two_pretrainings(s, x, kind):
    h = s.norm(s.words(x) + s.places.weight[: x.size(1)].unsqueeze(0) + s.kinds(kind))
    h = s.body(h)
    words = F.linear(s.mid(F.gelu(s.turn(h))), s.words.weight) + s.bias
    return words, s.next(torch.tanh(s.pool(h[:, 0])))


def rotated_decoder(s, x):
    """Grouped queries, half-split rotary positions, normalized queries and keys, a gated layer."""
    b, t = x.shape
    h = s.table(x)
    n = s.first(h)
    q, k, v = s.q(n).view(b, t, 4, 4).transpose(1, 2), s.k(n).view(b, t, 2, 4).transpose(1, 2), s.v(n).view(b, t, 2, 4).transpose(1, 2)
    angle = torch.arange(t)[:, None] * (1.0 / 100 ** (torch.arange(0, 4, 2) / 4))
    cos, sin = torch.cat([angle.cos()] * 2, -1), torch.cat([angle.sin()] * 2, -1)
    turn = lambda z: z * cos + torch.cat((-z[..., 2:], z[..., :2]), -1) * sin
    q, k = turn(F.rms_norm(q, (4,), s.nq)), turn(F.rms_norm(k, (4,), s.nk))
    k, v = k.repeat_interleave(2, dim=1), v.repeat_interleave(2, 1)
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, -1)
    h = h + s.o(y)
    n = s.second(h)
    return s.head(h + s.down(F.silu(s.gate(n)) * s.up(n)))


def positions_by_counting(s, x):
    """Fairseq's positions: the number of tokens so far, not counting padding."""
    mask = x.ne(0).int()
    at = (torch.cumsum(mask, dim=1).type_as(mask) * mask).long()
    h = s.table(x) + s.places(at)
    return s.head(s.body(h)).masked_fill(mask.unsqueeze(-1) == 0, 0.0)


# Tables and recommendation


def recommended(s, x, dense):
    e = [t(x[:, i]) for i, t in enumerate(s.tables)] + [s.bottom(dense)]
    t = torch.stack(e, dim=1)
    z = torch.bmm(t, t.transpose(1, 2))
    i, j = torch.tril_indices(5, 5, -1)
    return s.top(torch.cat([e[-1], z[:, i, j]], 1)).squeeze(1)


def crossed(s, x, dense):
    hot = F.one_hot(x, 5).flatten(1).float()
    cross = (x[:, 0] * 5 + x[:, 1]) % 7
    return s.wide(torch.cat([hot, F.one_hot(cross, 7).float()], 1)) + s.deep(torch.cat([s.table(x).flatten(1), s.norm(dense)], 1))


def collaborative(s, user, item):
    return s.head(torch.cat([s.gu(user) * s.gi(item), s.mlp(torch.cat([s.mu(user), s.mi(item)], -1))], -1)).view(-1) + s.bu(user).squeeze(-1) + s.bi(item).squeeze(-1) + s.mean


def by_session(s, x):
    y, h = s.gru(s.table(x))
    return h[-1] @ s.table.weight[1:].t() / s.t.exp()


def rated(s, x):
    seen = (x > 0).float()
    h = torch.sigmoid(F.linear(F.dropout(x, 0.0), s.w, s.b))
    y = F.linear(h, s.w.t(), s.c)
    return ((y - x).pow(2) * seen).sum() / seen.sum()


def mixed_table(s, table, kind, words):
    a = s.numbers(table)
    k = F.one_hot(kind.long(), 3).to(table.dtype)
    w = s.words(words.long()).mean(1)
    return s.head(torch.cat([a, k, w, a * s.scale(k)], 1))


def gathered_columns(s, x):
    """One tensor holds everything; class indices are cast inside."""
    i = x[:, :2].round().long().clamp(0, 4)
    h = torch.cat([s.a(i[:, 0]), s.b(i[:, 1]), s.norm(x[:, 2:])], 1)
    return s.head(act(h))


# Graphs


def normalised_adjacency(s, x, a):
    d = a.sum(-1).pow(-0.5)
    n = d[:, :, None] * a * d[:, None, :]
    h = act(n @ s.first(x))
    return (n @ s.second(h)).mean(1)


def attended_neighbours(s, x, a):
    h = s.w(x).view(x.size(0), 6, 2, 3)
    e = F.leaky_relu((h * s.left).sum(-1).unsqueeze(2) + (h * s.right).sum(-1).unsqueeze(1), 0.2)
    e = torch.where(a.unsqueeze(-1) > 0, e, torch.full_like(e, -9e15)).softmax(dim=2)
    return s.head(F.elu(torch.einsum("bijk,bjkd->bikd", e, h).flatten(2)))


def sampled_neighbours(s, x, a):
    near = torch.matmul(a, x) / a.sum(-1, keepdim=True).clamp(min=1)
    far = torch.where(a[..., None] > 0, x.unsqueeze(1).expand(-1, 6, -1, -1), -1e4).amax(2)
    h = F.normalize(act(s.own(x) + s.near(near) + s.far(far)), p=2.0, dim=-1)
    return s.head(h.sum(1))


def polynomials(s, x, a):
    l = torch.eye(6) - a / a.sum(2, keepdim=True)
    t = [x, l @ x]
    for _ in range(2):
        t.append(2 * l @ t[-1] - t[-2])
    return s.head(torch.cat(t, -1)).max(1)[0]


def gated_graph(s, x, a):
    h = F.pad(x, (0, 2))
    for _ in range(3):
        m = a.transpose(1, 2) @ s.message(h)
        h = s.cell(m.reshape(-1, 6), h.reshape(-1, 6)).view(x.size(0), 6, 6)
    gate = torch.sigmoid(s.gate(torch.cat([h[..., :4], x], -1)))
    return s.head((gate * torch.tanh(s.body(h))).sum(1))


# Decisions, several inputs and outputs, scalars


def actor_and_critic(s, x):
    h = torch.tanh(s.body(x))
    return s.actor(h), s.critic(h).squeeze(-1)


def taken_action(s, x, action):
    h = act(s.body(x))
    a = s.advantage(h)
    q = s.value(h) + a - a.mean(dim=1, keepdim=True)
    return q.gather(1, action.unsqueeze(-1)).squeeze(-1)


def quantile_returns(s, x, tau):
    """IQN: cosines of drawn fractions times the state's features."""
    cos = torch.cos(tau.unsqueeze(-1) * torch.arange(1, 6) * math.pi)
    return s.head(act(s.body(x)).unsqueeze(1) * act(s.cosine(cos))).mean(1)


def decision_transformer(s, states, actions, returns):
    h = torch.stack((s.r(returns), s.s(states), s.a(actions)), dim=1).permute(0, 2, 1, 3).reshape(states.shape[0], 3 * states.shape[1], 8)
    h = s.body(s.norm(h + s.places.repeat_interleave(3, 0)), s.mask)
    h = h.reshape(states.shape[0], -1, 3, 8).permute(0, 2, 1, 3)
    return s.head(h[:, 1])


def with_penalties(s, x):
    y = s.second(act(s.first(x)))
    return y, s.first.weight.abs().sum() * 1e-2 + s.second.weight.square().sum() * 1e-2


def passed_along(s, x, unused, kept):
    y = s.body(x)
    return y, kept, y.sigmoid()


def twice_the_same(s, x):
    y = s.body(x)
    return y, y


def zero_scaled(s, x):
    h = x
    for body, a in zip(s.layers, s.alphas):
        h = h + a * body(h)
    return s.head(h) * s.temperature.exp().clamp(max=100.0)


def trained_powers(s, x):
    h = F.softplus(s.body(x))
    return s.head(h.pow(s.p).mean(1).pow(1 / s.p) + h.clamp(max=1.0).pow(F.softplus(s.q)).sum(1)) * torch.sigmoid(s.g)


def shared_everywhere(s, x):
    """One matrix as a layer, transposed, as a bias, and as a table."""
    h = torch.tanh(x @ s.w + s.w[0])
    h = torch.tanh(h @ s.w.t() * s.w.diagonal() + s.w.mean(0))
    return h @ s.w[:, :3] + s.w[[0, 2, 4], 1]


def written_statistics(s, x):
    """Normalization over the batch, written by hand."""
    h = s.first(x)
    m = h.mean(0)
    v = ((h - m) ** 2).mean(0)
    return s.second(act((h - m) / (v + 1e-5).sqrt() * s.scale + s.shift))


def arithmetic_of_shapes(s, x):
    b, t, d = x.shape
    h = s.qkv(x).view(b, t, 3, 2, -1).permute(2, 0, 3, 1, 4)
    w = (h[0] @ h[1].transpose(-1, -2)) / math.sqrt(h.size(-1)) + torch.zeros(b, 1, 1, t)
    y = (w.softmax(-1) @ h[2]).transpose(1, 2).reshape(b, t, d - 1)
    y = torch.cat([y, x.new_ones(b, t, 1) / t], 2).reshape(b * t, -1)
    return s.head(y).view(b, t, -1).sum(1) / (t * d) + x.sum((1, 2))[:, None] / x[0].numel()


def whole_numbers(s, x):
    at = x % 4
    up = torch.div(x, 3, rounding_mode="floor")
    both = x - 2 * (x // 2)
    n = (x == 0).sum(1).float() + x.float().mean(1) * 0.1
    return s.head(torch.cat([s.a(at).flatten(1), s.b(up).sum(1), s.c(both).amax(1), n[:, None], x.max(1, keepdim=True)[0].float() * 0.1], 1))


def best_of_itself(s, x):
    h = s.body(x)
    i = h.argmax(-1)
    return s.head(h * h.softmax(-1).gather(1, i[:, None]) + s.table(i))


def chosen_k(s, x):
    h = s.body(x)
    v, i = h.topk(3, dim=1)
    i, _ = i.sort(1)
    kept = h.gather(1, i)
    low = h.sort(1, descending=False)[0][:, :2]
    return s.head(torch.cat([kept, v, low], 1).flatten(1)) + s.tail(h.gather(1, h.argsort(1)).mean(1))


def running_sums(s, x):
    h = s.body(x)
    a = h.cumsum(1) / torch.arange(1, 7)[:, None]
    b = torch.exp(torch.cumsum(F.logsigmoid(h), 1))
    c = (1 + 0.1 * h).cumprod(2)
    return s.head(torch.cat([a, b.flip(1), c], 2)).mean(1)


def written_at(s, x):
    h = s.body(x)
    out = torch.zeros(x.size(0), 9, 4).index_add(1, s.places, h)
    out = out.index_copy(1, torch.tensor([7, 8]), h[:, :2] * s.scale)
    out = out.index_fill(1, torch.tensor([3]), 0.5)
    out = out.scatter_add(2, s.places[None, :, None].expand(x.size(0), -1, 4) % 4, h)
    return s.head(out.flatten(1))


def spread(s, x):
    h = s.body(x)
    v, m = torch.var_mean(h, dim=1)
    d = h - m.unsqueeze(1)
    c = d.transpose(1, 2) @ d / (h.size(1) - 1)
    return s.head(torch.cat([c.flatten(1), v, h.std(1, unbiased=False), torch.linalg.vector_norm(h, 3, dim=1), h.norm(p=1, dim=1), torch.linalg.vector_norm(h, float("inf"), dim=1), h.abs().amax(1) - h.amin(1)], 1))


def products(s, x):
    h = s.body(x)
    a = torch.tensordot(h, s.t, dims=([2], [0]))
    b = torch.einsum("bi,bj,ijk->bk", h[:, 0], h[:, 1], s.t3)
    c = torch.cross(h[..., :3], h[..., 1:4], dim=-1)
    e = torch.outer(h[:, 0, 0], s.v)
    return s.head(torch.cat([a.flatten(1), b, c.flatten(1), e, (h * h).sum((1, 2), keepdim=True).flatten(1), torch.baddbmm(s.b, h, s.t.expand(x.size(0), -1, -1), beta=0.5).flatten(1)], 1))


def smooth_functions(s, x):
    h = s.body(x)
    return s.head(torch.cat([torch.logaddexp(h, -h), torch.hypot(h, h.flip(1)), torch.lerp(h, h.square(), 0.3), torch.atan2(h, h.abs() + 1), torch.special.expit(h), F.logsigmoid(h), torch.log1p(h.exp()), h.exp2(), torch.sinh(h * 0.3), torch.erf(h), torch.special.log_softmax(h, 1), torch.xlogy(h.square(), h.square() + 1), torch.addcdiv(h, h, h.square() + 1, value=0.5)], 1))


def smoothed(s, x, flags, weights):
    h = s.body(x)
    h = torch.where(flags, h, h * s.off) * weights[:, None]
    n = flags.sum(1, keepdim=True)
    return s.head(h) / n.clamp(min=1).to(h.dtype) + (~flags).any(1, keepdim=True) * s.bias + torch.logsumexp(h.masked_fill(~flags, -1e4), 1, keepdim=True)


DATA = {
    "states": (lambda: Net(states, lstm=nn.LSTM(5, 4, 2, batch_first=True, bidirectional=True), head=lin(40, 3)), frames, [((3,), 1)]),
    "projected_both_ways": (lambda: Net(projected_both_ways, lstm=nn.LSTM(5, 6, 2, batch_first=True, bidirectional=True, proj_size=3, bias=False), head=lin(6, 3)), frames, [((3,), 1)]),
    "started": (lambda: Net(started, start=weight(1, 1, 6), gru=nn.GRU(5, 6, batch_first=True), head=lin(12, 3)), frames, [((3,), 1)]),
    "elman": (lambda: Net(elman, rnn=nn.RNN(5, 4, 3, nonlinearity="relu"), head=lin(4, 3)), frames, [((7, 3), 2)]),
    "encoded_and_repeated": (lambda: Net(encoded_and_repeated, encode=nn.LSTM(5, 6, 2, batch_first=True, dropout=0.0), decode=nn.LSTM(6, 6, batch_first=True), head=lin(6, 5)), frames, [((7, 5), 0)]),
    "attended_states": (lambda: Net(attended_states, table=nn.Embedding(12, 6, padding_idx=0), lstm=nn.LSTM(6, 4, bidirectional=True, batch_first=True), w=lin(8, 5), v=lin(5, 1, bias=False), head=lin(8, 3)), marked, [((3,), 1)]),
    "given_states": (lambda: Net(given_states, lstm=nn.LSTM(5, 4, batch_first=True), head=lin(4, 3)), lambda b: frames(b) | {"h": pixels(b, 4), "c": pixels(b, 4)}, [((3,), 1), ((4,), 0)]),
    "by_cells": (lambda: Net(by_cells, first=nn.LSTMCell(8, 6), second=nn.GRUCell(6, 4), head=lin(4, 3)), lambda b: {"x": pixels(b, 4, 5)}, [((4, 3), 2)]),
    "translated": (lambda: Net(translated, table=nn.Embedding(12, 6), encode=nn.GRU(6, 4, bidirectional=True, batch_first=True), bridge=lin(8, 5), we=lin(8, 4, bias=False), wh=lin(5, 4), v=lin(4, 1, bias=False), cell=nn.GRUCell(14, 5), head=lin(13, 12)), lambda b: {"x": classes(12, b, 6), "y_in": classes(12, b, 4)}, [((4, 12), 2)]),
    "character_filters": (lambda: Net(character_filters, table=nn.Embedding(12, 5), filters=L(nn.Conv1d(5, n, k, padding=k - 1) for k, n in ((2, 3), (3, 2), (4, 3))), gate=lin(8, 8), body=lin(8, 8), head=lin(8, 3)), marked, [((3,), 1)]),
    "mean_of_words": (lambda: Net(mean_of_words, table=nn.Embedding(12, 6), head=lin(6, 3)), marked, [((3,), 1)]),
    "convolved_in_time": (lambda: Net(convolved_in_time, a=L(parametrizations.weight_norm(nn.Conv1d(i, 6, 3, padding=2 * 2**k, dilation=2**k)) for k, i in enumerate((5, 6))), b=L(parametrizations.weight_norm(nn.Conv1d(6, 6, 3, padding=2 * 2**k, dilation=2**k)) for k in range(2)), skip=L([nn.Conv1d(5, 6, 1), nn.Identity()]), head=lin(6, 3)), frames, [((3,), 1)]),
    "likelihood_of_steps": (lambda: Net(likelihood_of_steps, lstm=nn.LSTM(1, 5, batch_first=True), head=lin(5, 3)), lambda b: {"x": pixels(b, 9)}, [None]),
    "double_residual": (lambda: Net(double_residual, body=L(mlp(9, 8, 8) for _ in range(3)), back=L(lin(8, 9) for _ in range(2)).append(lin(8, 9)), fore=L(lin(8, 3, bias=k > 0) for k in range(3))), lambda b: {"x": pixels(b, 9)}, [((3,), 0)]),
    "linear_by_channel": (lambda: Net(linear_by_channel, season=L(lin(7, 4) for _ in range(5)), trend=lin(7, 4)), frames, [((4, 5), 0)]),
    "normalised_instance": (lambda: Net(normalised_instance, scale=one(5), shift=weight(5), embed=lin(3, 6), body=nn.TransformerEncoderLayer(6, 2, 8, 0.0, batch_first=True), head=lin(18, 2)), frames, [((2, 5), 0)]),
    "encoder_with_padding": (lambda: Net(encoder_with_padding, table=nn.Embedding(12, 8, padding_idx=0), places=weight(1, 9, 8), encoder=nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 12, 0.0, batch_first=True), 2, enable_nested_tensor=False), head=lin(8, 3)), marked, [((3,), 1)]),
    "decoder_with_memory": (lambda: Net(decoder_with_memory, table=nn.Embedding(12, 8), places=nn.Embedding(9, 8), up=lin(5, 8), decoder=nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 12, 0.0, F.gelu, batch_first=True, norm_first=True), 2, nn.LayerNorm(8)), bias=weight(12)), lambda b: {"x": classes(12, b, 5), "memory": pixels(b, 7, 5)}, [((5, 12), 2)]),
    "whole_transformer": (lambda: Net(whole_transformer, table=nn.Embedding(12, 8), body=nn.Transformer(8, 2, 1, 1, 12, 0.0), head=lin(8, 12)), lambda b: {"x": classes(12, b, 6), "y_in": classes(12, b, 4)}, [((4, 12), 2)]),
    "other_widths": (lambda: Net(other_widths, attend=nn.MultiheadAttention(8, 2, kdim=5, vdim=3, batch_first=True), values=lin(5, 3), head=lin(8, 3)), lambda b: {"x": pixels(b, 4, 8), "y_in": pixels(b, 7, 5)}, [((4, 3), 2), ((2, 4, 7), 0)]),
    "extended_keys": (lambda: Net(extended_keys, attend=nn.MultiheadAttention(6, 2, add_bias_kv=True, add_zero_attn=True, batch_first=True), head=lin(6, 3)), lambda b: {"x": pixels(b, 5, 6)}, [((3,), 1)]),
    "two_pretrainings": (lambda: Net(two_pretrainings, words=nn.Embedding(12, 8), places=nn.Embedding(9, 8), kinds=nn.Embedding(2, 8), norm=nn.LayerNorm(8, eps=1e-12), body=nn.TransformerEncoderLayer(8, 4, 12, 0.0, "gelu", batch_first=True), turn=lin(8, 8), mid=nn.LayerNorm(8), bias=weight(12), pool=lin(8, 8), next=lin(8, 2)), lambda b: {"x": classes(12, b, 6), "kind": classes(2, b, 6)}, [((6, 12), 2), ((2,), 1)]),
    "rotated_decoder": (lambda: Net(rotated_decoder, table=nn.Embedding(12, 8), q=lin(8, 16, bias=False), k=lin(8, 8, bias=False), v=lin(8, 8, bias=False), o=lin(16, 8, bias=False), nq=one(4), nk=one(4), first=nn.RMSNorm(8, eps=1e-6), second=nn.RMSNorm(8), gate=lin(8, 12, bias=False), up=lin(8, 12, bias=False), down=lin(12, 8, bias=False), head=lin(8, 12, bias=False)), lambda b: {"x": classes(12, b, 6)}, [((6, 12), 2)]),
    "positions_by_counting": (lambda: Net(positions_by_counting, table=nn.Embedding(12, 8, padding_idx=0), places=nn.Embedding(9, 8), body=nn.TransformerEncoderLayer(8, 2, 12, 0.0, batch_first=True), head=lin(8, 3)), marked, [((7, 3), 2)]),
    "recommended": (lambda: Net(recommended, tables=L(nn.Embedding(5, 4) for _ in range(4)), bottom=mlp(3, 6, 4), top=mlp(14, 8, 1)), columns, [((), 0)]),
    "crossed": (lambda: Net(crossed, wide=lin(27, 2), table=nn.Embedding(5, 3), norm=nn.BatchNorm1d(3), deep=mlp(15, 8, 2)), columns, [((2,), 1)]),
    "collaborative": (lambda: Net(collaborative, gu=nn.Embedding(9, 4), gi=nn.Embedding(7, 4), mu=nn.Embedding(9, 3), mi=nn.Embedding(7, 3), mlp=mlp(6, 8, 4), head=lin(8, 1), bu=nn.Embedding(9, 1), bi=nn.Embedding(7, 1), mean=P(torch.tensor([0.3]))), lambda b: {"user": classes(9, b).int(), "item": classes(7, b)}, [((), 0)]),
    "by_session": (lambda: Net(by_session, table=nn.Embedding(12, 6, padding_idx=0), gru=nn.GRU(6, 6, 2, batch_first=True), t=P(torch.tensor(0.2))), marked, [((11,), 1)]),
    "rated": (lambda: Net(rated, w=weight(5, 9), b=weight(5), c=weight(9)), lambda b: {"x": classes(6, b, 9).float()}, [None]),
    "mixed_table": (lambda: Net(mixed_table, numbers=mlp(4, 6), words=nn.Embedding(9, 5), scale=lin(3, 6), head=lin(20, 3)), lambda b: {"table": pixels(b, 4), "kind": classes(3, b).to(torch.int32), "words": classes(9, b, 4).to(torch.uint8)}, [((3,), 1)]),
    "gathered_columns": (lambda: Net(gathered_columns, a=nn.Embedding(5, 3), b=nn.Embedding(5, 2), norm=nn.BatchNorm1d(4, affine=False), head=lin(9, 3)), lambda b: {"x": torch.cat([classes(5, b, 2).float(), pixels(b, 4)], 1)}, [((3,), 1)]),
    "normalised_adjacency": (lambda: Net(normalised_adjacency, first=lin(4, 6), second=lin(6, 3)), graph, [((3,), 1)]),
    "attended_neighbours": (lambda: Net(attended_neighbours, w=lin(4, 6, bias=False), left=weight(2, 3), right=weight(2, 3), head=lin(6, 3)), graph, [((6, 3), 2)]),
    "sampled_neighbours": (lambda: Net(sampled_neighbours, own=lin(4, 6), near=lin(4, 6, bias=False), far=lin(4, 6, bias=False), head=lin(6, 3)), graph, [((3,), 1)]),
    "polynomials": (lambda: Net(polynomials, head=lin(16, 3)), graph, [((3,), 1)]),
    "gated_graph": (lambda: Net(gated_graph, message=lin(6, 6, bias=False), cell=nn.GRUCell(6, 6), gate=lin(8, 1), body=lin(6, 5), head=lin(5, 3)), graph, [((3,), 1)]),
    "actor_and_critic": (lambda: Net(actor_and_critic, body=lin(6, 8), actor=lin(8, 4), critic=lin(8, 1)), vector, [((4,), 1), ((), 0)]),
    "taken_action": (lambda: Net(taken_action, body=lin(6, 8), advantage=lin(8, 4), value=lin(8, 1)), lambda b: vector(b) | {"action": classes(4, b)}, [((), 0)]),
    "quantile_returns": (lambda: Net(quantile_returns, body=lin(6, 8), cosine=lin(5, 8), head=lin(8, 4)), lambda b: vector(b) | {"tau": torch.rand(b, 5)}, [((4,), 0)]),
    "decision_transformer": (lambda: Net(decision_transformer, r=lin(1, 8), s=lin(3, 8), a=nn.Embedding(4, 8), places=weight(3, 8), norm=nn.LayerNorm(8), body=nn.TransformerEncoderLayer(8, 2, 12, 0.0, batch_first=True), mask=torch.ones(9, 9).triu(1).bool(), head=lin(8, 4)), lambda b: {"states": pixels(b, 3, 3), "actions": classes(4, b, 3), "returns": pixels(b, 3, 1)}, [((3, 4), 2)]),
    "with_penalties": (lambda: Net(with_penalties, first=lin(6, 8), second=lin(8, 3)), vector, [((3,), 1), None]),
    "passed_along": (lambda: Net(passed_along, body=mlp(6, 8, 3)), lambda b: vector(b) | {"unused": pixels(b, 2), "kept": pixels(b, 3)}, [((3,), 1), None, ((3,), 0)]),
    "twice_the_same": (lambda: Net(twice_the_same, body=mlp(6, 8, 3)), vector, [((3,), 1), ((3,), 0)]),
    "zero_scaled": (lambda: Net(zero_scaled, layers=L(mlp(6, 8, 6) for _ in range(3)), alphas=nn.ParameterList(P(torch.tensor(0.1 * k)) for k in (1, 2, 3)), temperature=P(torch.tensor(0.4)), head=lin(6, 3)), vector, [((3,), 1)]),
    "trained_powers": (lambda: Net(trained_powers, body=lin(5, 4), p=P(torch.tensor(2.5)), q=P(torch.tensor([0.5])), g=P(torch.tensor(0.3)), head=lin(4, 3)), steps, [((3,), 1)]),
    "shared_everywhere": (lambda: Net(shared_everywhere, w=weight(6, 6)), vector, [((3,), 1)]),
    "written_statistics": (lambda: Net(written_statistics, first=lin(6, 8), scale=one(8), shift=weight(8), second=lin(8, 3)), vector, [((3,), 1)]),
    "arithmetic_of_shapes": (lambda: Net(arithmetic_of_shapes, qkv=lin(5, 12), head=lin(5, 3)), steps, [((3,), 1)]),
    "whole_numbers": (lambda: Net(whole_numbers, a=nn.Embedding(4, 2), b=nn.Embedding(4, 3), c=nn.Embedding(2, 3), head=lin(20, 3)), tokens, [((3,), 1)]),
    "best_of_itself": (lambda: Net(best_of_itself, body=lin(6, 5), table=nn.Embedding(5, 5), head=lin(5, 3)), vector, [((3,), 1)]),
    "chosen_k": (lambda: Net(chosen_k, body=lin(5, 4), head=lin(32, 3), tail=lin(4, 3)), steps, [((3,), 1)]),
    "running_sums": (lambda: Net(running_sums, body=lin(5, 4), head=lin(12, 3)), lambda b: {"x": pixels(b, 6, 5)}, [((3,), 1)]),
    "written_at": (lambda: Net(written_at, body=lin(5, 4), places=torch.tensor([0, 1, 1, 2, 4, 5, 6, 0]), scale=one(4), head=lin(36, 3)), steps, [((3,), 1)]),
    "spread": (lambda: Net(spread, body=lin(5, 4), head=lin(40, 3)), steps, [((3,), 1)]),
    "products": (lambda: Net(products, body=lin(5, 4), t=weight(4, 4), t3=weight(4, 4, 5), v=weight(3), b=weight(4), head=lin(97, 3)), steps, [((3,), 1)]),
    "smooth_functions": (lambda: Net(smooth_functions, body=lin(6, 4), head=lin(52, 3)), vector, [((3,), 1)]),
    "smoothed": (lambda: Net(smoothed, body=lin(6, 5), off=weight(5), bias=weight(1), head=lin(5, 3)), lambda b: vector(b) | {"flags": torch.cat([torch.ones(b, 1), classes(2, b, 4)], 1).bool(), "weights": torch.rand(b)}, [((3,), 1)]),
}


def cases():
    return styles(DATA)
