"""Sequences as tutorials and model libraries write them, mostly attention: masks built in `forward`, relative positions of many kinds. See
textbook.py."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

from case import classes, pixels
from sets.everyday import styles
from sets.families import weight
from sets.further import lin, one, steps, tokens

ids8 = lambda b: {"x": classes(11, b, 8)}


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


TEXTBOOK = {
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
    "perceiver_io": (PerceiverIO, steps, [((3, 4), 2)]),
}


def cases():
    return styles(TEXTBOOK, oldest=13)
