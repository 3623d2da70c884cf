"""Sequences as tutorials and model libraries write them: states that are passed in and out, loops over steps, masks built in `forward`,
relative positions of many kinds. See textbook.py."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from case import classes, pixels
from sets.everyday import styles
from sets.families import weight
from sets.further import L, lin, mlp, one, steps, tokens

lengths = lambda b, most: torch.randint(1, most + 1, (b,)).sort(descending=True)[0].clamp(min=1).index_fill(0, torch.tensor([0]), most)


class WordModel(nn.Module):
    """word_language_model: time first, states in and out, tied weights, outputs flattened over time and batch."""

    def __init__(self):
        super().__init__()
        self.drop, self.encoder, self.rnn, self.decoder = nn.Dropout(0.0), nn.Embedding(13, 6), nn.LSTM(6, 6, 2, dropout=0.0), nn.Linear(6, 13)
        self.decoder.weight = self.encoder.weight
        nn.init.uniform_(self.encoder.weight, -0.5, 0.5)

    def forward(self, input, h, c):
        input = input.t()
        output, hidden = self.rnn(self.drop(self.encoder(input)), (h.transpose(0, 1).contiguous(), c.transpose(0, 1).contiguous()))
        decoded = self.decoder(self.drop(output)).view(-1, 13)
        return F.log_softmax(decoded, dim=1).view(input.size(0), input.size(1), 13).permute(1, 2, 0), hidden[0].permute(1, 0, 2)


class SineWaves(nn.Module):
    """time_sequence_prediction: cells over split steps, and values predicted beyond the end."""

    def __init__(self):
        super().__init__()
        self.lstm1, self.lstm2, self.linear = nn.LSTMCell(1, 5), nn.LSTMCell(5, 5), nn.Linear(5, 1)

    def forward(self, input):
        outputs = []
        h_t, c_t, h_t2, c_t2 = (torch.zeros(input.size(0), 5, dtype=input.dtype) for _ in range(4))
        for input_t in input.split(1, dim=1):
            h_t, c_t = self.lstm1(input_t, (h_t, c_t))
            h_t2, c_t2 = self.lstm2(h_t, (h_t2, c_t2))
            output = self.linear(h_t2)
            outputs += [output]
        for i in range(3):
            h_t, c_t = self.lstm1(output, (h_t, c_t))
            h_t2, c_t2 = self.lstm2(h_t, (h_t2, c_t2))
            output = self.linear(h_t2)
            outputs += [output]
        return torch.cat(outputs, dim=1)


class Bahdanau(nn.Module):
    """The translation tutorial: a GRU encoder, additive attention, a decoder of one step at a time with its targets fed."""

    def __init__(self):
        super().__init__()
        self.src, self.tgt = nn.Embedding(11, 6), nn.Embedding(9, 6)
        self.enc, self.dec = nn.GRU(6, 6, batch_first=True), nn.GRU(12, 6, batch_first=True)
        self.Wa, self.Ua, self.Va, self.out = lin(6, 6), lin(6, 6), lin(6, 1), lin(6, 9)

    def forward(self, x, target):
        keys, hidden = self.enc(self.src(x))
        batch_size = keys.size(0)
        step = torch.empty(batch_size, 1, dtype=torch.long).fill_(0)
        outs, attns = [], []
        for i in range(4):
            query = hidden.permute(1, 0, 2)
            scores = self.Va(torch.tanh(self.Wa(query) + self.Ua(keys))).squeeze(2).unsqueeze(1)
            weights = F.softmax(scores, dim=-1)
            context = torch.bmm(weights, keys)
            output, hidden = self.dec(torch.cat((self.tgt(step), context), dim=2), hidden)
            outs.append(self.out(output))
            attns.append(weights)
            step = target[:, i].unsqueeze(1)
        return F.log_softmax(torch.cat(outs, dim=1), dim=-1), torch.cat(attns, dim=1)


class Luong(nn.Module):
    """The chatbot tutorial: a bidirectional packed encoder whose directions are summed, time first, and general attention."""

    def __init__(self):
        super().__init__()
        self.embedding, self.gru, self.dec = nn.Embedding(11, 6), nn.GRU(6, 6, 2, bidirectional=True), nn.GRU(6, 6, 2)
        self.attn, self.concat, self.out = lin(6, 6), lin(12, 6), lin(6, 11)

    def forward(self, x, n, target):
        packed = pack_padded_sequence(self.embedding(x.t()), n.cpu(), enforce_sorted=False)
        outputs, hidden = self.gru(packed)
        outputs, _ = pad_packed_sequence(outputs, total_length=6)
        outputs = outputs[:, :, :6] + outputs[:, :, 6:]
        hidden = hidden[:2]
        all_out = []
        for t in range(3):
            rnn_output, hidden = self.dec(self.embedding(target[:, t].unsqueeze(0)), hidden)
            energies = torch.sum(rnn_output * self.attn(outputs), dim=2).t()
            weights = F.softmax(energies, dim=1).unsqueeze(1)
            context = weights.bmm(outputs.transpose(0, 1)).squeeze(1)
            all_out.append(self.out(torch.tanh(self.concat(torch.cat((rnn_output.squeeze(0), context), 1)))))
        return torch.stack(all_out, 1)


class CharRNN(nn.Module):
    """The name generator: category, character and hidden state are joined at each step."""

    def __init__(self):
        super().__init__()
        self.i2h, self.i2o, self.o2o = lin(3 + 7 + 5, 5), lin(3 + 7 + 5, 7), lin(5 + 7, 7)
        self.softmax = nn.LogSoftmax(dim=1)

    def forward(self, category, line):
        hidden, out = torch.zeros(category.size(0), 5), []
        onehot, cat = F.one_hot(line, 7).float(), F.one_hot(category, 3).float()
        for i in range(line.size(1)):
            combined = torch.cat((cat, onehot[:, i], hidden), 1)
            hidden, output = self.i2h(combined), self.i2o(combined)
            out.append(self.softmax(self.o2o(torch.cat((hidden, output), 1))))
        return torch.stack(out, dim=1)


class SeqTransformer(nn.Module):
    """nn.Transformer as the translation tutorial uses it: time first, masks made in `forward`, padding masks from tokens."""

    def __init__(self):
        super().__init__()
        self.src, self.tgt, self.generator = nn.Embedding(11, 8), nn.Embedding(11, 8), lin(8, 11)
        self.transformer = nn.Transformer(8, 2, 1, 1, 12, 0.0)
        pos = torch.zeros(6, 8)
        den = torch.exp(-torch.arange(0, 8, 2) * math.log(10000) / 8)
        pos[:, 0::2], pos[:, 1::2] = torch.sin(torch.arange(6).reshape(6, 1) * den), torch.cos(torch.arange(6).reshape(6, 1) * den)
        self.register_buffer("pos_embedding", pos.unsqueeze(-2))

    def forward(self, x, target):
        src, tgt = x.transpose(0, 1), target.transpose(0, 1)
        n = tgt.shape[0]
        tgt_mask = (torch.triu(torch.ones((n, n))) == 1).transpose(0, 1)
        tgt_mask = tgt_mask.float().masked_fill(tgt_mask == 0, float("-inf")).masked_fill(tgt_mask == 1, float(0.0))
        src_pad = (src == 10).transpose(0, 1)
        src_pad = src_pad & (torch.arange(src.shape[0]) > 0)
        e = lambda table, t: table(t.long()) * math.sqrt(8) + self.pos_embedding[: t.size(0), :]
        out = self.transformer(e(self.src, src), e(self.tgt, tgt), None, tgt_mask, None, src_pad, None, src_pad)
        return self.generator(out).transpose(0, 1)


class T5Attention(nn.Module):
    """Logarithmic buckets of relative positions, RMS norms, no scaling, gated GELU, tied and scaled head."""

    def __init__(self):
        super().__init__()
        self.shared, self.bias, self.norm = nn.Embedding(11, 8), nn.Embedding(8, 2), one(8)
        self.qkv, self.o, self.wi0, self.wi1, self.wo = nn.Linear(8, 24, bias=False), nn.Linear(8, 8, bias=False), nn.Linear(8, 12, bias=False), nn.Linear(8, 12, bias=False), nn.Linear(12, 8, bias=False)

    def rms(self, x):
        variance = x.to(torch.float32).pow(2).mean(-1, keepdim=True)
        return self.norm * (x * torch.rsqrt(variance + 1e-6))

    def buckets(self, n):
        context, memory = torch.arange(n, dtype=torch.long)[:, None], torch.arange(n, dtype=torch.long)[None, :]
        relative = memory - context
        num_buckets, ret = 4, (relative > 0).to(torch.long) * 4
        relative = torch.abs(relative)
        large = 2 + (torch.log(relative.float() / 2) / math.log(8 / 2) * 2).to(torch.long)
        large = torch.min(large, torch.full_like(large, num_buckets - 1))
        return ret + torch.where(relative < 2, relative, large)

    def forward(self, x):
        h = self.shared(x)
        b, n = x.shape
        mask = (1.0 - (x != 10).float()[:, None, None, :]) * torch.finfo(torch.float32).min
        q, k, v = (t.view(b, -1, 2, 4).transpose(1, 2) for t in self.qkv(self.rms(h)).split(8, -1))
        scores = torch.matmul(q, k.transpose(3, 2))
        scores = scores + (self.bias(self.buckets(n)).permute([2, 0, 1]).unsqueeze(0) + mask)
        attn = F.softmax(scores.float(), dim=-1).type_as(scores)
        h = h + self.o(torch.matmul(attn, v).transpose(1, 2).contiguous().view(b, -1, 8))
        y = self.rms(h)
        h = h + self.wo(F.gelu(self.wi0(y), approximate="tanh") * self.wi1(y))
        return F.linear(self.rms(h) * 8**-0.5, self.shared.weight)


class Disentangled(nn.Module):
    """DeBERTa: content to position and position to content scores, gathered by clamped distances."""

    def __init__(self):
        super().__init__()
        self.table, self.rel = nn.Embedding(11, 8), nn.Embedding(8, 8)
        self.q, self.k, self.v, self.head = lin(8, 8), lin(8, 8), lin(8, 8), lin(8, 11)
        self.pk, self.pq, self.norm = lin(8, 8), lin(8, 8), nn.LayerNorm(8)

    def heads(self, x):
        return x.view(x.size(0), x.size(1), 2, -1).permute(0, 2, 1, 3).contiguous().view(-1, x.size(1), 4)

    def forward(self, x):
        h = self.table(x)
        q, k, v = self.heads(self.q(h)), self.heads(self.k(h)), self.heads(self.v(h))
        n = q.size(-2)
        ids = torch.arange(n)
        relative = (ids[:, None] - ids.view(1, -1).repeat(n, 1)).unsqueeze(0)
        rel = self.norm(self.rel.weight).unsqueeze(0)
        pk, pq = (self.heads(f(rel)).repeat(q.size(0) // 2, 1, 1) for f in (self.pk, self.pq))
        scale = math.sqrt(4 * 3)
        scores = torch.bmm(q, k.transpose(-1, -2) / scale)
        c2p = torch.clamp(relative + 4, 0, 7).expand(q.size(0), n, n)
        scores = scores + torch.gather(torch.bmm(q, pk.transpose(-1, -2)), -1, c2p) / scale
        p2c = torch.clamp(-relative + 4, 0, 7).expand(q.size(0), n, n)
        scores = scores + torch.gather(torch.bmm(k, pq.transpose(-1, -2)), -1, p2c).transpose(-1, -2) / scale
        scores = scores.view(-1, 2, n, n)
        y = torch.bmm(scores.softmax(-1).view(-1, n, n), v).view(-1, 2, n, 4).permute(0, 2, 1, 3).contiguous()
        return self.head(y.view(y.size(0), n, -1) + h)


class SlidingChunks(nn.Module):
    """Longformer: overlapping chunks by as_strided-like views, a skewed band, global attention of the first token."""

    def __init__(self):
        super().__init__()
        self.table, self.qkv, self.head = nn.Embedding(11, 8), lin(8, 24), lin(8, 11)

    def forward(self, x):
        h = self.table(x)
        b, n, w = x.size(0), 8, 2
        q, k, v = self.qkv(h).chunk(3, -1)
        q = q / math.sqrt(8)
        chunk = lambda t: torch.stack([t[:, i * w : i * w + 2 * w] for i in range(n // w - 1)], 1)
        diagonal = torch.einsum("bcxd,bcyd->bcxy", chunk(q), chunk(k))
        skew = F.pad(diagonal, (0, 0, 0, 1))
        skew = skew.view(*skew.size()[:-2], skew.size(-1), skew.size(-2))
        out = skew.new_zeros((b, n // w, w, 2 * w + 1))
        out[:, :-1, :, w:] = skew[:, :, :w, : w + 1]
        out[:, -1, :, w:] = skew[:, -1, w:, : w + 1]
        out[:, 1:, :, :w] = skew[:, :, -(w + 1) : -1, w + 1 :]
        out[:, 0, 1:w, 1:w] = skew[:, 0, : w - 1, 1 - w :]
        scores = out.reshape(b, n, 2 * w + 1)
        pos = torch.arange(n)[:, None] + torch.arange(-w, w + 1)[None]
        scores = scores.masked_fill(((pos < 0) | (pos >= n))[None], -1e4)
        first = torch.einsum("bnd,bd->bn", q, k[:, 0])[..., None]
        p = torch.cat([first, scores], -1).softmax(-1)
        band = F.pad(v, (0, 0, w, w)).unfold(1, 2 * w + 1, 1)
        y = torch.einsum("bnk,bndk->bnd", p[..., 1:], band) + p[..., :1] * v[:, :1]
        return self.head(y + h)


class XLNetShift(nn.Module):
    """Transformer XL: a memory before the tokens, two trained biases, and the relative shift."""

    def __init__(self):
        super().__init__()
        self.table, self.qkv, self.r, self.o, self.head = nn.Embedding(11, 8), nn.Linear(8, 24, bias=False), nn.Linear(8, 8, bias=False), lin(8, 8), lin(8, 11)
        self.u, self.vb = weight(2, 4), weight(2, 4)

    def forward(self, x, mems):
        w = self.table(x).transpose(0, 1)
        qlen, bsz = w.size(0), w.size(1)
        cat = torch.cat([mems.transpose(0, 1), w], 0)
        q, k, v = torch.chunk(self.qkv(cat), 3, dim=-1)
        q, klen = q[-qlen:], k.size(0)
        pos = torch.arange(klen - 1, -1, -1.0)
        sinusoid = torch.outer(pos, 1 / (10000 ** (torch.arange(0.0, 8, 2.0) / 8)))
        r = self.r(torch.cat([sinusoid.sin(), sinusoid.cos()], dim=-1)).view(klen, 2, 4)
        q, k, v = q.view(qlen, bsz, 2, 4), k.view(klen, bsz, 2, 4), v.view(klen, bsz, 2, 4)
        ac = torch.einsum("ibnd,jbnd->ijbn", (q + self.u, k))
        bd = torch.einsum("ibnd,jnd->ijbn", (q + self.vb, r))
        zero = torch.zeros((bd.size(0), 1) + bd.size()[2:])
        bd = torch.cat([zero, bd], dim=1).view((bd.size(1) + 1, bd.size(0)) + bd.size()[2:])[1:].view_as(bd)
        score = (ac + bd) * 0.5
        mask = torch.triu(torch.ones(qlen, klen), diagonal=1 + klen - qlen).bool()[:, :, None, None]
        prob = score.float().masked_fill(mask, -1e30).type_as(score).softmax(1)
        y = torch.einsum("ijbn,jbnd->ibnd", (prob, v)).contiguous().view(qlen, bsz, 8)
        return self.head(self.o(y) + w).transpose(0, 1)


class Bloom(nn.Module):
    """ALiBi slopes over a cumulative sum of the attention mask, fused queries, keys and values per head, baddbmm."""

    def __init__(self):
        super().__init__()
        self.table, self.ln, self.qkv, self.dense = nn.Embedding(11, 8), nn.LayerNorm(8), lin(8, 24), lin(8, 8)

    def forward(self, x):
        h = self.ln(self.table(x))
        b, n, _ = h.shape
        attention_mask = torch.ones((b, n))
        slopes = torch.pow(torch.tensor(2 ** (-(2 ** -(math.log2(2) - 3))), dtype=torch.float32), torch.arange(1, 3, dtype=torch.int32))
        arange = ((attention_mask.cumsum(dim=-1) - 1) * attention_mask)[:, None, :]
        alibi = (slopes[..., None] * arange).reshape(b * 2, 1, n)
        fused = self.qkv(h).view(b, n, 2, 3, 4)
        q, k, v = fused[..., 0, :], fused[..., 1, :], fused[..., 2, :]
        q = q.transpose(1, 2).reshape(b * 2, n, 4)
        k = k.permute(0, 2, 3, 1).reshape(b * 2, 4, n)
        v = v.transpose(1, 2).reshape(b * 2, n, 4)
        scores = alibi.baddbmm(batch1=q, batch2=k, beta=1.0, alpha=0.5).view(b, 2, n, n)
        causal = torch.empty((n, n), dtype=torch.bool)
        causal = ~torch.tril(torch.ones((n, n), dtype=torch.bool)) if causal is not None else None
        scores = torch.masked_fill(scores, causal[None, None], torch.finfo(scores.dtype).min)
        p = F.softmax(scores, dim=-1, dtype=torch.float32).to(q.dtype).view(b * 2, n, n)
        y = torch.bmm(p, v).view(b, 2, n, 4).permute(0, 2, 1, 3).reshape(b, n, 8)
        return F.linear(self.dense(y) + h, self.table.weight)


class GemmaBlock(nn.Module):
    """Norms with 1 + w, soft caps on scores and logits, grouped keys repeated, half-rotary positions, embeddings scaled."""

    def __init__(self):
        super().__init__()
        self.embed, self.n1, self.n2, self.n3, self.nq = nn.Embedding(11, 8), weight(8), weight(8), weight(8), weight(4)
        self.q, self.k, self.v, self.o = (nn.Linear(a, b, bias=False) for a, b in ((8, 16), (8, 8), (8, 8), (16, 8)))
        self.gate, self.up, self.down = nn.Linear(8, 12, bias=False), nn.Linear(8, 12, bias=False), nn.Linear(12, 8, bias=False)

    def norm(self, x, w):
        out = x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6)
        return (out * (1.0 + w.float())).type_as(x)

    def forward(self, x):
        b, n = x.shape
        h = self.embed(x) * torch.tensor(8**0.5, dtype=torch.float32)
        y = self.norm(h, self.n1)
        q = self.norm(self.q(y).view(b, n, -1, 4), self.nq).transpose(1, 2)
        k, v = self.k(y).view(b, n, -1, 4).transpose(1, 2), self.v(y).view(b, n, -1, 4).transpose(1, 2)
        position_ids = torch.arange(n).unsqueeze(0)
        inv = 1.0 / (10000 ** (torch.arange(0, 4, 2, dtype=torch.int64).float() / 4))
        freqs = (inv[None, :, None].float().expand(position_ids.shape[0], -1, 1) @ position_ids[:, None, :].float()).transpose(1, 2)
        emb = torch.cat((freqs, freqs), dim=-1)
        cos, sin = emb.cos().unsqueeze(1), emb.sin().unsqueeze(1)
        half = lambda t: torch.cat((-t[..., t.shape[-1] // 2 :], t[..., : t.shape[-1] // 2]), dim=-1)
        q, k = q * cos + half(q) * sin, k * cos + half(k) * sin
        k, v = (t[:, :, None, :, :].expand(b, 2, 2, n, 4).reshape(b, 4, n, 4) for t in (k, v))
        s = torch.tanh(torch.matmul(q, k.transpose(2, 3)) * 0.5 / 5.0) * 5.0
        mask = torch.full((n, n), fill_value=torch.finfo(s.dtype).min)
        mask = torch.triu(mask, diagonal=1) * (torch.arange(n) > torch.arange(n).reshape(-1, 1))
        window = torch.tril(torch.ones_like(mask, dtype=torch.bool), diagonal=-3)
        s = s + torch.where(window, torch.finfo(s.dtype).min, mask)[None, None]
        y = torch.matmul(s.softmax(-1), v).transpose(1, 2).contiguous().reshape(b, n, -1)
        h = h + self.norm(self.o(y), self.n2)
        h = h + self.down(F.gelu(self.gate(self.norm(h, self.n3)), approximate="tanh") * self.up(self.norm(h, self.n3)))
        return torch.tanh(F.linear(h, self.embed.weight) / 3.0) * 3.0


class Mamba(nn.Module):
    """A selective scan as transformers' slow path writes it, with the causal filter cut to the length."""

    def __init__(self):
        super().__init__()
        self.table, self.in_proj, self.conv1d = nn.Embedding(11, 6), nn.Linear(6, 16, bias=False), nn.Conv1d(8, 8, 4, groups=8, padding=3)
        self.x_proj, self.dt_proj, self.out_proj = nn.Linear(8, 2 + 6, bias=False), lin(2, 8), nn.Linear(8, 6, bias=False)
        self.A_log, self.D, self.head = nn.Parameter(torch.log(torch.arange(1, 4, dtype=torch.float32)[None].expand(8, -1).contiguous())), nn.Parameter(torch.ones(8)), lin(6, 11)

    def forward(self, x):
        u = self.table(x)
        batch_size, seq_len, _ = u.shape
        hidden, gate = self.in_proj(u).transpose(1, 2).chunk(2, dim=1)
        ssm_state = torch.zeros((batch_size, 8, 3))
        hidden = F.silu(self.conv1d(hidden)[..., :seq_len])
        dt, B, C = torch.split(self.x_proj(hidden.transpose(1, 2)), [2, 3, 3], dim=-1)
        dt = F.softplus(self.dt_proj(dt)).transpose(1, 2)
        A = -torch.exp(self.A_log.float())
        discrete_A = torch.exp(A[None, :, None, :] * dt[:, :, :, None])
        deltaB_u = dt[:, :, :, None] * B[:, None, :, :].float() * hidden[:, :, :, None].float()
        scan = []
        for i in range(seq_len):
            ssm_state = discrete_A[:, :, i, :] * ssm_state + deltaB_u[:, :, i, :]
            scan.append(torch.matmul(ssm_state, C[:, i, :].unsqueeze(-1))[:, :, 0])
        y = (torch.stack(scan, dim=-1) + hidden * self.D[None, :, None]) * F.silu(gate)
        return self.head(self.out_proj(y.transpose(1, 2)) + u)


class Funnel(nn.Module):
    """Funnel: pooled queries against unpooled keys, the class token kept apart, and upsampling by repeating."""

    def __init__(self):
        super().__init__()
        self.table, self.attn1, self.attn2 = nn.Embedding(11, 8), nn.MultiheadAttention(8, 2, batch_first=True), nn.MultiheadAttention(8, 2, batch_first=True, bias=False)
        self.n1, self.n2, self.head = nn.LayerNorm(8, eps=1e-9), nn.LayerNorm(8, eps=1e-9), lin(8, 11)

    def forward(self, x):
        h = self.table(x)
        cls, rest = h[:, :1], h[:, 1:]
        pooled = F.avg_pool2d(F.pad(rest, (0, 0, 0, 1))[:, None], (2, 1), stride=(2, 1), ceil_mode=True)[:, 0]
        q = torch.cat([cls, pooled], 1)
        y = self.n1(q + self.attn1(q, h, h, need_weights=False)[0])
        y = self.n2(y + self.attn2(y, y, y)[0])
        up = torch.repeat_interleave(y[:, 1:], repeats=2, dim=1)
        up = F.pad(up, (0, 0, 0, 1, 0, 0))[:, : h.size(1) - 1]
        return self.head(torch.cat([y[:, :1], up], 1) + h)


class AlbertShared(nn.Module):
    """ALBERT: factorized embeddings, one layer applied several times, pooler, and a sentence-order head next to the masked one."""

    def __init__(self):
        super().__init__()
        self.word, self.position, self.kind = nn.Embedding(11, 5, padding_idx=0), nn.Embedding(8, 5), nn.Embedding(2, 5)
        self.up, self.layer = lin(5, 8), nn.TransformerEncoderLayer(8, 2, 12, 0.0, F.gelu, batch_first=True)
        self.pooler, self.order, self.dense, self.norm, self.bias = lin(8, 8), lin(8, 2), lin(8, 5), nn.LayerNorm(5), weight(11)
        self.register_buffer("position_ids", torch.arange(8).expand((1, -1)), persistent=False)

    def forward(self, x, types):
        e = self.word(x) + self.kind(types) + self.position(self.position_ids[:, : x.size(1)])
        h = self.up(e)
        for _ in range(3):
            h = self.layer(h)
        masked = F.linear(self.norm(F.gelu(self.dense(h))), self.word.weight) + self.bias
        return masked, self.order(torch.tanh(self.pooler(h[:, 0])))


class ElectraHead(nn.Module):
    """A discriminator over replaced tokens that averages only over active positions, and spans by squeezed splits."""

    def __init__(self):
        super().__init__()
        self.table, self.rnn, self.dense, self.prediction, self.qa = nn.Embedding(11, 8), nn.GRU(8, 4, batch_first=True, bidirectional=True), lin(8, 8), lin(8, 1), lin(8, 2)

    def forward(self, x, replaced):
        h, _ = self.rnn(self.table(x))
        logits = self.prediction(F.gelu(self.dense(h))).squeeze(-1)
        active = (x != 0).float()
        loss = F.binary_cross_entropy_with_logits(logits, (replaced > 5).float(), weight=active)
        start, end = self.qa(h).split(1, dim=-1)
        return start.squeeze(-1).contiguous(), end.squeeze(-1).contiguous(), loss


class RoFormer(nn.Module):
    """Interleaved rotary positions on queries, keys and values, and a chunked feed forward."""

    def __init__(self):
        super().__init__()
        self.table, self.q, self.k, self.v, self.head = nn.Embedding(11, 8), lin(8, 8), lin(8, 8), lin(8, 8), lin(8, 11)
        self.up, self.down, self.positions = lin(8, 12), lin(12, 8), nn.Embedding(8, 4)
        p = torch.tensor([[i / 10000 ** (2 * (j // 2) / 4) for j in range(4)] for i in range(8)])
        out = torch.zeros(8, 4)
        out[:, :2], out[:, 2:] = torch.sin(p[:, 0::2]), torch.cos(p[:, 1::2])
        self.positions.weight.data = out
        self.positions.weight.requires_grad = False
        self.register_buffer("sinusoid", out)
        del self.positions

    def forward(self, x):
        h = self.table(x)
        split = lambda t: t.unflatten(-1, (2, 4)).transpose(1, 2)
        pos = self.sinusoid[: x.size(1)][None, None]
        sin, cos = pos.chunk(2, dim=-1)
        sin, cos = torch.stack([sin, sin], dim=-1).reshape(pos.shape), torch.stack([cos, cos], dim=-1).reshape(pos.shape)
        turn = lambda t: t * cos + torch.stack([-t[..., 1::2], t[..., ::2]], dim=-1).reshape_as(t) * sin
        q, k, v = turn(split(self.q(h))), turn(split(self.k(h))), turn(split(self.v(h)))
        y = F.softmax(torch.einsum("bhid,bhjd->bhij", q, k) / 2.0, -1) @ v
        h = h + y.transpose(1, 2).flatten(2)
        h = h + torch.cat([self.down(F.relu(self.up(c))) for c in torch.tensor_split(h, 2, dim=1)], 1)
        return self.head(h)


class RetNet(nn.Module):
    """Retention in chunks with a state handed over, per-head decays and a group norm per head."""

    def __init__(self):
        super().__init__()
        self.table, self.q, self.k, self.v, self.g, self.o = nn.Embedding(11, 8), *(nn.Linear(8, 8, bias=False) for _ in range(5))
        self.norm, self.head = nn.GroupNorm(2, 8, affine=False), lin(8, 11)
        self.register_buffer("decay", torch.log(1 - 2 ** (-2 - torch.arange(2, dtype=torch.float))))

    def forward(self, x):
        h = self.table(x)
        b, n, _ = h.shape
        q, k, v = (f(h).view(b, n, 2, 4).transpose(1, 2) for f in (self.q, self.k, self.v))
        c, kv, outs = 4, 0, []
        index = torch.arange(c).to(self.decay)
        mask = torch.tril(torch.ones(c, c))
        mask = torch.masked_fill(index[:, None] - index[None, :], ~mask.bool(), float("inf"))
        mask = torch.nan_to_num(torch.exp(mask * self.decay[:, None, None]))
        cross, inner = torch.exp(self.decay * c)[:, None, None], torch.exp(self.decay[:, None] * (index + 1))[:, :, None]
        for i in range(n // c):
            s = slice(i * c, (i + 1) * c)
            qk = q[:, :, s] @ k[:, :, s].transpose(-1, -2) * mask
            outs.append(qk @ v[:, :, s] + (q[:, :, s] @ kv * inner if i else 0))
            kv = kv * cross + k[:, :, s].transpose(-1, -2) @ (v[:, :, s] * mask[:, -1].view(1, 2, c, 1))
        y = torch.cat(outs, 2).transpose(1, 2).reshape(b * n, 8)
        y = self.norm(y).view(b, n, 8)
        return self.head(self.o(F.silu(self.g(h)) * y) + h)


class MixtralMoE(nn.Module):
    """Experts that see all tokens, weighted by a renormalized top two scattered into zeros, and a balancing loss."""

    def __init__(self):
        super().__init__()
        self.table, self.gate, self.head = nn.Embedding(11, 6), nn.Linear(6, 4, bias=False), lin(6, 11)
        self.w1, self.w2, self.w3 = weight(4, 6, 8), weight(4, 8, 6), weight(4, 6, 8)

    def forward(self, x):
        h = self.table(x)
        b, n, d = h.shape
        flat = h.view(-1, d)
        logits = self.gate(flat)
        routing = F.softmax(logits, dim=1, dtype=logits.dtype)
        top, chosen = torch.topk(routing, 2, dim=-1)
        top = top / top.sum(dim=-1, keepdim=True)
        mask = F.one_hot(chosen, num_classes=4)
        combine = (top[..., None] * mask).sum(1)
        up = torch.einsum("td,edf->etf", flat, self.w1)
        y = torch.bmm(F.silu(up) * torch.matmul(flat, self.w3), self.w2)
        y = torch.einsum("etd,te->td", y, combine).reshape(b, n, d)
        tokens_per_expert = torch.mean(mask.to(h.dtype), dim=0)
        aux = torch.sum(tokens_per_expert * routing.mean(0).unsqueeze(0)) * 4
        return self.head(h + y), aux


class Conformer(nn.Module):
    """Subsampling by two convolutions, half-step feed forwards, gated depthwise filters, lengths to masks."""

    def __init__(self):
        super().__init__()
        self.sub = nn.Sequential(nn.Conv2d(1, 4, 3, 2), nn.ReLU(), nn.Conv2d(4, 4, 3, 2), nn.ReLU())
        self.out, self.ff1, self.ff2 = lin(4 * 3, 8), mlp(8, 16, 8), mlp(8, 16, 8)
        self.attn, self.norms = nn.MultiheadAttention(8, 2), L(nn.LayerNorm(8) for _ in range(4))
        self.pw1, self.dw, self.bn, self.pw2 = nn.Conv1d(8, 16, 1), nn.Conv1d(8, 8, 3, padding=1, groups=8), nn.BatchNorm1d(8), nn.Conv1d(8, 8, 1)
        self.head = lin(8, 5)

    def forward(self, x, n):
        h = self.sub(x.unsqueeze(1))
        b, c, t, f = h.size()
        h = self.out(h.transpose(1, 2).contiguous().view(b, t, c * f))
        pad = torch.arange(t).expand(b, t) >= (((n - 1) // 2 - 1) // 2).clamp(min=1).unsqueeze(1)
        h = h + 0.5 * self.ff1(self.norms[0](h))
        y = self.norms[1](h).transpose(0, 1)
        h = h + self.attn(y, y, y, key_padding_mask=pad, need_weights=False)[0].transpose(0, 1)
        y = self.norms[2](h).transpose(1, 2).masked_fill(pad.unsqueeze(1), 0.0)
        h = h + self.pw2(F.silu(self.bn(self.dw(F.glu(self.pw1(y), dim=1))))).transpose(1, 2)
        return self.head(self.norms[3](h + 0.5 * self.ff2(h)))


class Wav2Vec(nn.Module):
    """Group-normed and layer-normed strided filters, positional filters with normalized weights over groups, and a contrastive loss."""

    def __init__(self):
        super().__init__()
        self.c1, self.gn, self.c2, self.ln = nn.Conv1d(1, 6, 4, 2, bias=False), nn.GroupNorm(6, 6), nn.Conv1d(6, 6, 3, 2, bias=False), nn.LayerNorm(6)
        self.pos = torch.nn.utils.parametrizations.weight_norm(nn.Conv1d(6, 6, 4, padding=2, groups=2), name="weight", dim=2)
        self.proj, self.target, self.masked = lin(6, 5), lin(6, 5), weight(6)

    def forward(self, x):
        h = F.gelu(self.c2(F.gelu(self.gn(self.c1(x)))))
        f = self.ln(h.transpose(1, 2))
        mask = torch.zeros(f.shape[:2], dtype=torch.bool)
        mask[:, 1:3] = True
        z = torch.where(mask[..., None], self.masked, f)
        z = z + F.gelu(self.pos(z.transpose(1, 2))[..., :-1]).transpose(1, 2)
        c, q = self.proj(z), self.target(f)
        sim = F.cosine_similarity(c[:, :, None], q[:, None], dim=-1) / 0.1
        t = sim.size(1)
        loss = F.cross_entropy(sim.flatten(0, 1), torch.arange(t).repeat(sim.size(0)), reduction="none").view(-1, t)
        return (loss * mask.float()).sum() / mask.float().sum()


class TacotronStep(nn.Module):
    """Location-sensitive attention over cumulative weights, a prenet, two decoder cells, a stop token and a residual postnet."""

    def __init__(self):
        super().__init__()
        self.table, self.enc = nn.Embedding(11, 6), nn.LSTM(6, 3, batch_first=True, bidirectional=True)
        self.prenet, self.cell1, self.cell2 = mlp(4, 5, 5), nn.LSTMCell(5 + 6, 6), nn.LSTMCell(6 + 6, 6)
        self.query, self.memory, self.v, self.location, self.dense = nn.Linear(6, 4, bias=False), nn.Linear(6, 4, bias=False), nn.Linear(4, 1, bias=False), nn.Conv1d(2, 3, 3, padding=1, bias=False), nn.Linear(3, 4, bias=False)
        self.out, self.stop, self.post = lin(12, 4), lin(12, 1), nn.Sequential(nn.Conv1d(4, 5, 3, padding=1), nn.BatchNorm1d(5), nn.Tanh(), nn.Conv1d(5, 4, 3, padding=1))

    def forward(self, x, mel):
        memory, _ = self.enc(self.table(x))
        B, T = memory.size(0), memory.size(1)
        keys, frames = self.memory(memory), self.prenet(torch.cat((mel.data.new(B, 1, 4).zero_(), mel), dim=1))
        h1 = c1 = h2 = c2 = memory.new_zeros(B, 6)
        context, w, cum = torch.zeros(B, 6), torch.zeros(B, T), torch.zeros(B, T)
        outs, stops, aligns = [], [], []
        for t in range(3):
            h1, c1 = self.cell1(torch.cat((frames[:, t], context), -1), (h1, c1))
            loc = self.dense(self.location(torch.cat((w.unsqueeze(1), cum.unsqueeze(1)), dim=1)).transpose(1, 2))
            e = self.v(torch.tanh(self.query(h1.unsqueeze(1)) + loc + keys)).squeeze(-1)
            w = F.softmax(e, dim=1)
            context = torch.bmm(w.unsqueeze(1), memory).squeeze(1)
            cum = cum + w
            h2, c2 = self.cell2(torch.cat((h1, context), -1), (h2, c2))
            y = torch.cat((h2, context), dim=1)
            outs.append(self.out(y))
            stops.append(self.stop(y))
            aligns.append(w)
        mels = torch.stack(outs).transpose(0, 1).contiguous().transpose(1, 2)
        return mels, mels + self.post(mels), torch.stack(stops).transpose(0, 1).squeeze(-1)


class WaveNetStack(nn.Module):
    """Dilated causal filters with global conditioning, skips summed, mu-law classes, and a receptive field cut from the left."""

    def __init__(self):
        super().__init__()
        self.table, self.cond = nn.Embedding(16, 6), nn.Embedding(3, 4)
        self.dil, self.cc = L(nn.Conv1d(6, 12, 2, dilation=d) for d in (1, 2, 4)), L(nn.Conv1d(4, 12, 1, bias=False) for _ in range(3))
        self.res, self.skip, self.end = L(nn.Conv1d(6, 6, 1) for _ in range(3)), L(nn.Conv1d(6, 5, 1) for _ in range(3)), nn.Conv1d(5, 16, 1)

    def forward(self, x, speaker):
        h, g, skip = self.table(x).transpose(1, 2), self.cond(speaker).unsqueeze(-1), 0
        for d, cc, r, s in zip(self.dil, self.cc, self.res, self.skip):
            y = d(h) + cc(g)
            y = torch.tanh(y[:, :6]) * torch.sigmoid(y[:, 6:])
            sk = s(y)
            skip = sk + (skip[:, :, -sk.size(2) :] if torch.is_tensor(skip) else 0)
            h = r(y) + h[:, :, -y.size(2) :]
        return self.end(F.relu(skip))


class PackedStack(nn.Module):
    """Packed bidirectional layers of two sizes with a projection, the last states of both directions, and attention pooling by lengths."""

    def __init__(self):
        super().__init__()
        self.table, self.rnn, self.top = nn.Embedding(11, 5, padding_idx=0), nn.LSTM(5, 6, 2, batch_first=True, bidirectional=True, proj_size=3, dropout=0.0), nn.GRU(6, 4, batch_first=True)
        self.att, self.head = lin(4, 1), lin(4 + 6, 3)

    def forward(self, x, n):
        packed = pack_padded_sequence(self.table(x), n, batch_first=True)
        packed, (h, c) = self.rnn(packed)
        out, sizes = pad_packed_sequence(packed, batch_first=True, total_length=6)
        out, _ = self.top(out)
        mask = torch.arange(6)[None, :] < n[:, None]
        score = self.att(out).squeeze(-1).masked_fill(~mask, float("-inf"))
        pooled = (torch.softmax(score, 1).unsqueeze(-1) * out).sum(1)
        return self.head(torch.cat([pooled, h[-2], h[-1]], 1))


class CTCWritten(nn.Module):
    """A connectionist loss by its forward recursion in logarithms, over labels interleaved with blanks."""

    def __init__(self):
        super().__init__()
        self.rnn, self.out = nn.GRU(5, 6, batch_first=True), lin(6, 5)

    def forward(self, x, label):
        lp = F.log_softmax(self.out(self.rnn(x)[0]), -1)
        label = label.clamp(min=1)
        b, n = label.shape
        ext = torch.zeros(b, 2 * n + 1, dtype=torch.long)
        ext[:, 1::2] = label
        skip = torch.zeros_like(ext, dtype=torch.bool)
        skip[:, 2:] = (ext[:, 2:] != 0) & (ext[:, 2:] != ext[:, :-2])
        emit = lp.gather(2, ext[:, None].expand(-1, lp.size(1), -1))
        alpha = torch.full((b, 2 * n + 1), -1e4)
        alpha = torch.cat([emit[:, 0, :2], alpha[:, 2:]], 1)
        for t in range(1, lp.size(1)):
            a1 = F.pad(alpha, (1, 0), value=-1e4)[:, :-1]
            a2 = torch.where(skip, F.pad(alpha, (2, 0), value=-1e4)[:, :-2], torch.tensor(-1e4))
            alpha = torch.logsumexp(torch.stack([alpha, a1, a2]), 0) + emit[:, t]
        return -torch.logaddexp(alpha[:, -1], alpha[:, -2]).mean() / n


class NeuralODE(nn.Module):
    """Runge-Kutta steps of a time-dependent field with the trace of its Jacobian accumulated (a continuous flow)."""

    def __init__(self):
        super().__init__()
        self.w1, self.w2, self.b1, self.u = weight(8, 3), weight(3, 8), weight(8), weight(8)

    def f(self, t, z):
        a = torch.tanh(z @ self.w1.t() + self.b1 + t * self.u)
        return a @ self.w2.t(), -((1 - a**2) * (self.w1 * self.w2.t()).sum(1)).sum(1)

    def forward(self, x):
        z, logp = x, torch.zeros(x.shape[0])
        for t in torch.linspace(0, 1, 4)[:-1].tolist():
            h = 1 / 3
            k1, l1 = self.f(t, z)
            k2, l2 = self.f(t + h / 2, z + h / 2 * k1)
            k3, l3 = self.f(t + h / 2, z + h / 2 * k2)
            k4, l4 = self.f(t + h, z + h * k3)
            z, logp = z + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4), logp + h / 6 * (l1 + 2 * l2 + 2 * l3 + l4)
        normal = torch.distributions.MultivariateNormal(torch.zeros(3), torch.eye(3), validate_args=False)
        return -(normal.log_prob(z) - logp).mean()


class PerceiverIO(nn.Module):
    """Latents and output queries as parameters, repeated for the batch, and fields of the input with Fourier positions."""

    def __init__(self):
        super().__init__()
        self.latents, self.queries = weight(4, 8), weight(3, 8)
        self.cross, self.own, self.decode = (nn.MultiheadAttention(8, 2, kdim=k, vdim=k, batch_first=True) for k in (10, None, None))
        self.n, self.head = nn.LayerNorm(8), lin(8, 4)

    def forward(self, x):
        b, n, _ = x.shape
        pos = torch.linspace(-1, 1, n).unsqueeze(-1) * torch.tensor([1.0, 2.0]) * math.pi
        enc = torch.cat([pos.sin(), pos.cos(), torch.linspace(-1, 1, n).unsqueeze(-1)], -1)
        data = torch.cat([x, enc.unsqueeze(0).repeat(b, 1, 1)], -1)
        z = self.latents.repeat(b, 1, 1)
        z = z + self.cross(z, data, data)[0]
        z = z + self.own(self.n(z), self.n(z), self.n(z))[0]
        return self.head(self.decode(self.queries.expand(b, -1, -1), z, z)[0])


ids8 = lambda b: {"x": classes(11, b, 8)}
TEXTBOOK = {
    "word_model": (WordModel, lambda b: {"input": classes(13, b, 5), "h": pixels(b, 2, 6), "c": pixels(b, 2, 6)}, [((13, 5), 1), ((2, 6), 0)]),
    "sine_waves": (SineWaves, lambda b: {"input": pixels(b, 6)}, [((9,), 0)]),
    "bahdanau": (Bahdanau, lambda b: {"x": classes(11, b, 5), "target": classes(9, b, 4)}, [((4, 9), 2), ((4, 5), 0)]),
    "luong": (Luong, lambda b: {"x": classes(11, b, 6), "n": lengths(b, 6), "target": classes(11, b, 3)}, [((3, 11), 2)]),
    "char_rnn": (CharRNN, lambda b: {"category": classes(3, b), "line": classes(7, b, 5)}, [((5, 7), 2)]),
    "seq_transformer": (SeqTransformer, lambda b: {"x": classes(11, b, 6), "target": classes(11, b, 5)}, [((5, 11), 2)]),
    "t5_attention": (T5Attention, tokens, [((6, 11), 2)]),
    "disentangled": (Disentangled, tokens, [((6, 11), 2)]),
    "sliding_chunks": (SlidingChunks, ids8, [((8, 11), 2)]),
    "xl_shift": (XLNetShift, lambda b: {"x": classes(11, b, 5), "mems": pixels(b, 3, 8)}, [((5, 11), 2)]),
    "bloom": (Bloom, tokens, [((6, 11), 2)]),
    "gemma_block": (GemmaBlock, tokens, [((6, 11), 2)]),
    "mamba_slow": (Mamba, tokens, [((6, 11), 2)]),
    "funnel": (Funnel, ids8, [((8, 11), 2)]),
    "albert_shared": (AlbertShared, lambda b: {"x": classes(11, b, 6), "types": classes(2, b, 6)}, [((6, 11), 2), ((2,), 1)]),
    "electra_head": (ElectraHead, lambda b: {"x": classes(11, b, 6), "replaced": classes(11, b, 6)}, [((6,), 1), ((6,), 1), None]),
    "roformer": (RoFormer, ids8, [((8, 11), 2)]),
    "retention_chunks": (RetNet, ids8, [((8, 11), 2)]),
    "mixtral": (MixtralMoE, tokens, [((6, 11), 2), None]),
    "conformer_masked": (Conformer, lambda b: {"x": pixels(b, 15, 15), "n": lengths(b, 15)}, [((3, 5), 2)]),
    "wav2vec_loss": (Wav2Vec, lambda b: {"x": pixels(b, 1, 26)}, [None]),
    "tacotron_step": (TacotronStep, lambda b: {"x": classes(11, b, 5), "mel": pixels(b, 3, 4)}, [((4, 3), 0), ((4, 3), 0), ((3,), 0)]),
    "wavenet_stack": (WaveNetStack, lambda b: {"x": classes(16, b, 12), "speaker": classes(3, b)}, [((16, 5), 1)]),
    "packed_stack": (PackedStack, lambda b: {"x": classes(11, b, 6), "n": lengths(b, 6)}, [((3,), 1)]),
    "ctc_written": (CTCWritten, lambda b: {"x": pixels(b, 8, 5), "label": classes(5, b, 3)}, [None]),
    "continuous_flow": (NeuralODE, lambda b: {"x": pixels(b, 3)}, [None]),
    "perceiver_io": (PerceiverIO, steps, [((3, 4), 2)]),
}


def cases():
    return styles(TEXTBOOK, oldest=13)
