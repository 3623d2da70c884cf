"""Texts, series and recurrent networks through PyTorch's default exporter, as whole classes with written-out recipes. The styles are in
defaults.py. Nothing is kept in `recorded/`."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch._higher_order_ops.scan import scan

from case import classes, next_tokens, pixels, term
from defaults import exported
from optimizers import optimizer

CE, LAST, MSE = term("cross_entropy"), term("cross_entropy", class_axis=-1), term("mse")


class Llama(nn.Module):
    """Grouped queries by enable_gqa, rotary positions from a buffer of angles, RMSNorm, SwiGLU, a tied head."""

    def __init__(self, vocabulary=19, dim=16, heads=4, groups=2, layers=2):
        super().__init__()
        self.heads, self.groups = heads, groups
        self.table = nn.Embedding(vocabulary, dim)
        self.blocks = nn.ModuleList(nn.ModuleDict(dict(n1=nn.RMSNorm(dim, eps=1e-5), q=nn.Linear(dim, dim, bias=False), kv=nn.Linear(dim, dim * groups // heads * 2, bias=False), o=nn.Linear(dim, dim, bias=False),
                                                       n2=nn.RMSNorm(dim), gate=nn.Linear(dim, 24, bias=False), up=nn.Linear(dim, 24, bias=False), down=nn.Linear(24, dim, bias=False))) for _ in range(layers))
        self.norm, self.head = nn.RMSNorm(dim), nn.Linear(dim, vocabulary, bias=False)
        self.head.weight = self.table.weight
        angle = torch.outer(torch.arange(32).float(), 10000.0 ** (-torch.arange(0, dim // heads, 2).float() / (dim // heads)))
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)

    def rotate(self, t, n):
        a, b = t.float().chunk(2, -1)
        c, s = self.cos[:n], self.sin[:n]
        return torch.cat([a * c - b * s, b * c + a * s], -1).type_as(t)

    def forward(self, tokens):
        b, n = tokens.shape
        h = self.table(tokens)
        for m in self.blocks:
            x = m["n1"](h)
            q = m["q"](x).view(b, n, self.heads, -1).transpose(1, 2)
            k, v = m["kv"](x).view(b, n, 2 * self.groups, -1).transpose(1, 2).chunk(2, 1)
            a = F.scaled_dot_product_attention(self.rotate(q, n), self.rotate(k, n), v, is_causal=True, enable_gqa=True)
            h = h + m["o"](a.transpose(1, 2).reshape(b, n, -1))
            x = m["n2"](h)
            h = h + m["down"](F.silu(m["gate"](x)) * m["up"](x))
        return self.head(self.norm(h))


class Encoder(nn.Module):
    """PyTorch's encoder layers with a padding mask made from the ids, and a masked mean."""

    def __init__(self, first=True):
        super().__init__()
        self.table, self.pos = nn.Embedding(23, 12, padding_idx=0), nn.Embedding(16, 12)
        self.layers = nn.TransformerEncoder(nn.TransformerEncoderLayer(12, 3, 20, dropout=0.0, activation="gelu", batch_first=True, norm_first=first), 2, norm=nn.LayerNorm(12), enable_nested_tensor=False)
        self.head = nn.Linear(12, 4)

    def forward(self, ids):
        pad = ids == 0
        h = self.table(ids) * math.sqrt(12) + self.pos(torch.arange(ids.size(1), device=ids.device))
        h = self.layers(h, src_key_padding_mask=pad)
        keep = (~pad).unsqueeze(-1).to(h.dtype)
        return self.head((h * keep).sum(1) / keep.sum(1).clamp(min=1.0))


class Translator(nn.Module):
    """nn.Transformer with masks for padding and for the future, two vocabularies."""

    def __init__(self):
        super().__init__()
        self.source, self.goal = nn.Embedding(17, 8), nn.Embedding(13, 8)
        self.transformer = nn.Transformer(8, 2, 1, 1, 16, dropout=0.0, batch_first=True)
        self.head = nn.Linear(8, 13)
        self.register_buffer("pe", torch.sin(torch.arange(12)[:, None] * torch.exp(-torch.arange(8) / 4.0)[None, :]))

    def forward(self, source, goal):
        mask = nn.Transformer.generate_square_subsequent_mask(goal.size(1))
        pad = source.eq(0)
        h = self.transformer(self.source(source) + self.pe[: source.size(1)], self.goal(goal) + self.pe[: goal.size(1)], tgt_mask=mask, src_key_padding_mask=pad, memory_key_padding_mask=pad, tgt_is_causal=True)
        return self.head(h)


class Tagger(nn.Module):
    """Two layers of bidirectional LSTM with a projection, packed by lengths, and one label per word."""

    def __init__(self, projection=3):
        super().__init__()
        self.table = nn.Embedding(21, 6)
        self.rnn = nn.LSTM(6, 5, num_layers=2, bidirectional=True, batch_first=True, proj_size=projection)
        self.head = nn.Linear(2 * projection, 4)

    def forward(self, words):
        h, (last, cell) = self.rnn(self.table(words))
        return self.head(h), cell.permute(1, 0, 2).flatten(1)


class Recurrent(nn.Module):
    """An LSTM with given states that are returned, a GRU without biases, and an RNN with rectifiers, time first."""

    def __init__(self):
        super().__init__()
        self.lstm, self.gru, self.rnn = nn.LSTM(4, 5), nn.GRU(5, 6, bias=False, num_layers=2), nn.RNN(6, 4, nonlinearity="relu", bidirectional=True)
        self.head = nn.Linear(8, 2)

    def forward(self, x, h0, c0):
        x = x.transpose(0, 1)
        y, (h, c) = self.lstm(x, (h0.unsqueeze(0), c0.unsqueeze(0)))
        y, _ = self.gru(y)
        y, _ = self.rnn(y)
        return self.head(y).transpose(0, 1), h.squeeze(0), c.squeeze(0)


class Cells(nn.Module):
    """Cells stepped in Python with teacher forcing; attention over the encoder's steps (Bahdanau)."""

    def __init__(self):
        super().__init__()
        self.encode, self.cell = nn.GRU(3, 6, batch_first=True), nn.GRUCell(3 + 6, 6)
        self.a, self.b, self.v, self.out = nn.Linear(6, 5, bias=False), nn.Linear(6, 5), nn.Linear(5, 1, bias=False), nn.Linear(12, 3)

    def forward(self, past, future):
        memory, h = self.encode(past)
        h, outs, step = h[-1], [], past[:, -1]
        for t in range(future.shape[1]):
            score = self.v(torch.tanh(self.a(memory) + self.b(h).unsqueeze(1))).squeeze(-1)
            context = torch.bmm(score.softmax(-1).unsqueeze(1), memory).squeeze(1)
            h = self.cell(torch.cat([step, context], -1), h)
            outs.append(self.out(torch.cat([h, context], -1)))
            step = future[:, t]
        return torch.stack(outs, dim=1)


class Relative(nn.Module):
    """T5's buckets of distances with a trained bias for each head, as a mask of the attention; and dense routing of two experts."""

    def __init__(self):
        super().__init__()
        self.table, self.bias = nn.Embedding(15, 8), nn.Embedding(6, 2)
        self.qkv, self.o, self.gate = nn.Linear(8, 24, bias=False), nn.Linear(8, 8, bias=False), nn.Linear(8, 3, bias=False)
        self.up, self.down = nn.Parameter(torch.randn(3, 8, 12) * 0.3), nn.Parameter(torch.randn(3, 12, 8) * 0.3)
        self.norm, self.head = nn.LayerNorm(8, elementwise_affine=False), nn.Linear(8, 15)

    def forward(self, x):
        b, n = x.shape
        h = self.table(x)
        i = torch.arange(n)
        d = (i[None] - i[:, None]).abs()
        bucket = torch.where(d < 3, d, (3 + (torch.log(d.float().clamp(min=1) / 3) / math.log(4) * 3).long()).clamp(max=5))
        bias = self.bias(bucket).permute(2, 0, 1).unsqueeze(0) + torch.full((n, n), float("-inf")).triu(1)
        q, k, v = self.qkv(self.norm(h)).view(b, n, 3, 2, 4).permute(2, 0, 3, 1, 4).unbind()
        h = h + self.o(F.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=1.0).transpose(1, 2).flatten(2))
        p = self.gate(h).softmax(-1)
        top, which = p.topk(2, -1)
        top = top / top.sum(-1, keepdim=True)
        weight = torch.zeros_like(p).scatter(-1, which, top)
        y = torch.einsum("bnd,edf->bnef", self.norm(h), self.up).relu().square()
        h = h + torch.einsum("bnef,efd,bne->bnd", y, self.down, weight)
        balance = p.mean((0, 1)) * F.one_hot(which[..., 0], 3).float().mean((0, 1))
        return self.head(h), 3 * balance.sum()


class Selective(nn.Module):
    """Mamba's selective scan by the scan operator, with a causal depthwise convolution."""

    def __init__(self, dim=6, state=3):
        super().__init__()
        self.inp, self.conv, self.x = nn.Linear(4, 2 * dim), nn.Conv1d(dim, dim, 3, groups=dim, padding=2), nn.Linear(dim, 1 + 2 * state, bias=False)
        self.dt, self.a, self.d, self.out = nn.Linear(1, dim), nn.Parameter(torch.log(torch.arange(1.0, state + 1)).repeat(dim, 1) + torch.rand(dim, state) * 0.1), nn.Parameter(torch.rand(dim)), nn.Linear(dim, 3)

    def forward(self, x):
        h, z = self.inp(x).chunk(2, -1)
        h = F.silu(self.conv(h.transpose(1, 2))[..., : x.shape[1]]).transpose(1, 2)
        dt, b, c = self.x(h).split([1, 3, 3], -1)
        dt = F.softplus(self.dt(dt))
        decay = torch.exp(dt.unsqueeze(-1) * -self.a.exp())
        drive = (dt * h).unsqueeze(-1) * b.unsqueeze(2)
        step = lambda s, t: ((n := t[0] * s + t[1]), (n * t[2].unsqueeze(1)).sum(-1))
        _, y = scan(step, torch.zeros_like(decay[:, 0]), (decay.transpose(0, 1).contiguous(), drive.transpose(0, 1).contiguous(), c.transpose(0, 1).contiguous()))
        y = y.transpose(0, 1) + h * self.d
        return self.out(y * F.silu(z))


class Forecaster(nn.Module):
    """N-BEATS with reversible normalization: backcasts, trends by powers, seasons by sines, quantiles."""

    def __init__(self, past=12, future=4):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(past, 10), nn.ReLU(), nn.Linear(10, 10), nn.ReLU()) for _ in range(2))
        self.trend, self.season, self.back = nn.Linear(10, 3, bias=False), nn.Linear(10, 4, bias=False), nn.Linear(10, past)
        t = torch.arange(future).float() / future
        self.register_buffer("powers", torch.stack([t**i for i in range(3)]))
        self.register_buffer("waves", torch.cat([torch.cos(2 * math.pi * i * t)[None] for i in (1, 2)] + [torch.sin(2 * math.pi * i * t)[None] for i in (1, 2)]))
        self.scale, self.shift = nn.Parameter(torch.tensor(1.1)), nn.Parameter(torch.tensor(0.1))
        self.spread = nn.Parameter(torch.tensor([-0.5, 0.01, 0.6]))

    def forward(self, x):
        m, sd = x.mean(1, keepdim=True).detach(), torch.sqrt(x.var(1, keepdim=True, unbiased=False) + 1e-5).detach()
        h = (x - m) / sd * self.scale + self.shift
        total = 0
        for k, block in enumerate(self.blocks):
            z = block(h)
            h = h - self.back(z)
            total = total + (self.trend(z) @ self.powers if k == 0 else self.season(z) @ self.waves)
        y = ((total - self.shift) / self.scale) * sd + m
        return y.unsqueeze(-1) + self.spread.cumsum(0)


class Captioner(nn.Module):
    """Attention with keys and values of other widths, biases in keys, a zero key, averaged weights as an output."""

    def __init__(self):
        super().__init__()
        self.attn = nn.MultiheadAttention(8, 2, kdim=6, vdim=5, add_bias_kv=True, add_zero_attn=True, batch_first=True)
        self.query, self.head = nn.Parameter(torch.randn(1, 3, 8) * 0.5), nn.Linear(8, 2)

    def forward(self, keys, values, lengths):
        pad = torch.arange(keys.size(1), device=keys.device).unsqueeze(0) >= lengths.unsqueeze(1)
        y, w = self.attn(self.query.expand(keys.size(0), -1, -1), keys, values, key_padding_mask=pad)
        return self.head(y), -(w * (w + 1e-6).log()).sum(-1).mean()


class Conformer(nn.Module):
    """Convolution modules with GLU and BatchNorm in the middle of attention, halved feed-forwards, subsampling."""

    def __init__(self):
        super().__init__()
        self.sub = nn.Conv2d(1, 3, 3, stride=2)
        self.inp, self.ff1, self.ff2 = nn.Linear(9, 8), nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 16), nn.SiLU(), nn.Linear(16, 8)), nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 16), nn.SiLU(), nn.Linear(16, 8))
        self.n, self.attn = nn.LayerNorm(8), nn.MultiheadAttention(8, 2, batch_first=True, bias=False)
        self.nc, self.p1, self.dw, self.bn, self.p2 = nn.LayerNorm(8), nn.Conv1d(8, 16, 1), nn.Conv1d(8, 8, 3, padding=1, groups=8), nn.BatchNorm1d(8), nn.Conv1d(8, 8, 1)
        self.last, self.head = nn.LayerNorm(8), nn.Linear(8, 7)

    def forward(self, x):
        h = F.relu(self.sub(x.unsqueeze(1)))
        h = self.inp(h.transpose(1, 2).flatten(2))
        h = h + 0.5 * self.ff1(h)
        n = self.n(h)
        h = h + self.attn(n, n, n)[0]
        c = F.glu(self.p1(self.nc(h).transpose(1, 2)), dim=1)
        h = h + self.p2(F.silu(self.bn(self.dw(c)))).transpose(1, 2)
        h = self.last(h + 0.5 * self.ff2(h))
        return self.head(h).log_softmax(-1)


class Bert(nn.Module):
    """BERT's embeddings with token types and positions, additive masks from an int mask, a tied masked-language head with its own bias, and
    a pooled sentence head."""

    def __init__(self):
        super().__init__()
        self.words, self.positions, self.types = nn.Embedding(20, 8, padding_idx=0), nn.Embedding(10, 8), nn.Embedding(2, 8)
        self.register_buffer("position_ids", torch.arange(10).expand((1, -1)), persistent=False)
        self.norm = nn.LayerNorm(8, eps=1e-12)
        self.q, self.k, self.v, self.o = (nn.Linear(8, 8) for _ in range(4))
        self.n1, self.up, self.down, self.n2 = nn.LayerNorm(8, eps=1e-12), nn.Linear(8, 16), nn.Linear(16, 8), nn.LayerNorm(8, eps=1e-12)
        self.transform, self.tn, self.bias = nn.Linear(8, 8), nn.LayerNorm(8, eps=1e-12), nn.Parameter(torch.randn(20) * 0.1)
        self.pooler, self.next = nn.Linear(8, 8), nn.Linear(8, 2)

    def forward(self, input_ids, attention_mask, token_type_ids):
        b, n = input_ids.size()
        h = self.norm(self.words(input_ids) + self.types(token_type_ids) + self.positions(self.position_ids[:, :n]))
        mask = (1.0 - attention_mask[:, None, None, :].to(h.dtype)) * torch.finfo(h.dtype).min
        split = lambda t: t.view(b, n, 2, 4).permute(0, 2, 1, 3)
        s = torch.matmul(split(self.q(h)), split(self.k(h)).transpose(-1, -2)) / math.sqrt(4) + mask
        a = torch.matmul(F.softmax(s, dim=-1), split(self.v(h))).permute(0, 2, 1, 3).contiguous().view(b, n, 8)
        h = self.n1(h + self.o(a))
        h = self.n2(h + self.down(F.gelu(self.up(h))))
        words = F.linear(self.tn(F.gelu(self.transform(h))), self.words.weight, self.bias)
        return words, self.next(torch.tanh(self.pooler(h[:, 0])))


class Masked(nn.Module):
    """A masked autoencoder: patches are shuffled by given noise, kept, restored with a mask token, and compared in the module."""

    def __init__(self):
        super().__init__()
        self.embed, self.pos = nn.Linear(6, 8), nn.Parameter(torch.randn(1, 8, 8) * 0.2)
        self.enc, self.dec = nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True), nn.TransformerEncoderLayer(8, 2, 12, 0.0, batch_first=True, norm_first=True)
        self.token, self.out = nn.Parameter(torch.randn(1, 1, 8) * 0.2), nn.Linear(8, 6)

    def forward(self, x, noise):
        b, n, _ = x.shape
        order = torch.argsort(noise, dim=1)
        restore = torch.argsort(order, dim=1)
        kept = order[:, : n // 2]
        h = self.embed(x) + self.pos
        h = self.enc(torch.gather(h, 1, kept.unsqueeze(-1).repeat(1, 1, 8)))
        h = torch.cat([h, self.token.repeat(b, n - n // 2, 1)], 1)
        h = torch.gather(h, 1, restore.unsqueeze(-1).repeat(1, 1, 8))
        p = self.out(self.dec(h + self.pos))
        mask = torch.ones(b, n)
        mask[:, : n // 2] = 0
        mask = torch.gather(mask, 1, restore)
        loss = ((p - x) ** 2).mean(-1)
        return p, (loss * mask).sum() / mask.sum()


tokens = lambda v, n: lambda b: {"tokens": (d := next_tokens(v, n)(b))["x"], "y": d["y"]}
padded = lambda b, n, v: torch.where(torch.arange(n)[None] < torch.randint(2, n + 1, (b, 1)), 1 + classes(v - 1, b, n), 0)


def cases():
    TIME = {1: "time"}
    yield from exported("llama", Llama, tokens(19, 7), [LAST], optimizer("adamw", betas=[0.9, 0.95], weight_decay=0.1, groups="no_decay_1d"), inputs="tokens", clip_grad_norm=1.0)
    yield from exported("llama_any", Llama, tokens(19, 7), [LAST], optimizer("adamw", weight_decay=0.1), inputs="tokens", styles=(0, 3, 6), again=3, dynamic_axes={"tokens": TIME})
    yield from exported("encoder", Encoder, lambda b: {"ids": padded(b, 8, 23), "y": classes(4, b)}, [term("cross_entropy", label_smoothing=0.05)], optimizer("adam"), inputs="ids")
    yield from exported("encoder_after", lambda: Encoder(False), lambda b: {"ids": padded(b, 8, 23), "y": classes(4, b)}, [CE], optimizer("momentum"), inputs="ids", styles=(0, 8, 7, 3), again=3, dynamic_axes={"ids": TIME})
    yield from exported("translator", Translator, lambda b: {"source": padded(b, 7, 17), "goal": classes(13, b, 5), "y": torch.where(torch.rand(b, 5) < 0.2, torch.tensor(-100), classes(13, b, 5))}, [term("cross_entropy", class_axis=-1, label_smoothing=0.1)], optimizer("adam", betas=[0.9, 0.98], eps=1e-9), inputs="source goal")
    yield from exported("tagger", Tagger, lambda b: {"words": classes(21, b, 6), "y": classes(4, b, 6), "z": pixels(b, 20)}, [LAST, term("mse", "cell", "z", weight=0.1)], optimizer("rmsprop"), inputs="words", targets="y z", outputs="out cell")
    yield from exported("recurrent", Recurrent, lambda b: {"x": pixels(b, 5, 4), "h0": pixels(b, 5), "c0": pixels(b, 5), "y": pixels(b, 5, 2), "z": pixels(b, 5)}, [MSE, term("l1", "h", "z", weight=0.2), term("output", "c", None, weight=0.1)], optimizer("nesterov"), inputs="x h0 c0", targets="y z", outputs="out h c")
    yield from exported("cells", Cells, lambda b: {"past": pixels(b, 6, 3), "future": (y := pixels(b, 4, 3)), "y": y}, [term("huber", delta=0.5)], optimizer("adam"), inputs="past future", clip_grad_norm=0.3)
    yield from exported("relative", Relative, lambda b: {"x": classes(15, b, 9), "y": classes(15, b, 9)}, [LAST, term("output", "balance", None, weight=0.01)], optimizer("adamax", weight_decay=0.01), outputs="out balance", styles=(1, 7))
    yield from exported("selective", Selective, lambda b: {"x": pixels(b, 7, 4), "y": pixels(b, 7, 3)}, [MSE], optimizer("adamw"), styles=(1, 0, 7), again=2)
    yield from exported("forecaster", Forecaster, lambda b: {"x": pixels(b, 12), "y": pixels(b, 4, 3)}, [term("smooth_l1", beta=0.5)], optimizer("adagrad", initial_accumulator_value=0.1), keep_notes=True)
    yield from exported("captioner", Captioner, lambda b: {"keys": pixels(b, 6, 6), "values": pixels(b, 6, 5), "lengths": 1 + classes(6, b), "y": pixels(b, 3, 2)}, [MSE, term("output", "entropy", None, weight=0.05)], optimizer("lamb"), inputs="keys values lengths", outputs="out entropy")
    yield from exported("conformer", Conformer, lambda b: {"x": pixels(b, 13, 8), "y": (2 * torch.randn(b, 6, 7)).softmax(-1)}, [term("kl_div")], optimizer("adam"), grad_accumulation=2)
    yield from exported("bert", Bert, lambda b: {"input_ids": classes(20, b, 9), "attention_mask": (padded(b, 9, 20) > 0).long(), "token_type_ids": classes(2, b, 9), "y": torch.where(torch.rand(b, 9) < 0.7, torch.tensor(-100), classes(20, b, 9)), "z": classes(2, b)},
                        [LAST, term("cross_entropy", "next", "z")], optimizer("adamw", groups="no_decay_1d"), inputs="input_ids attention_mask token_type_ids", targets="y z", outputs="out next", lr_schedule=[0.0, 0.5, 1.0, 0.75, 0.5, 0.25])
    yield from exported("masked", Masked, lambda b: {"x": pixels(b, 8, 6), "noise": torch.rand(b, 8)}, [term("output", "loss", None)], optimizer("adamw"), inputs="x noise", targets="", outputs="out loss")
