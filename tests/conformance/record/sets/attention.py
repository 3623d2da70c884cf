"""Attention in the forms in which people write it, and small transformers."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

from case import CE, CE_LAST, Case, classes, image_classes, next_tokens, pixels, sequence_classes, token_classes
from optimizers import optimizer
from styles import styled

D, H, T, V = 8, 2, 5, 12


def heads(x, h=H):
    b, t, d = x.shape
    return x.view(b, t, h, d // h).transpose(1, 2)


def joined(x):
    b, h, t, d = x.shape
    return x.transpose(1, 2).reshape(b, t, h * d)


class Attention(nn.Module):
    """Query, key and value from one matrix product; `core` computes the rest."""

    def __init__(self, core, bias=False):
        super().__init__()
        self.qkv, self.proj, self.core = nn.Linear(D, 3 * D, bias=bias), nn.Linear(D, D), core

    def forward(self, x):
        return self.proj(joined(self.core(*(heads(z) for z in self.qkv(x).split(D, -1)))))


def written(q, k, v):
    return torch.softmax(q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1]), -1) @ v


def written_causal(q, k, v):
    t = q.shape[2]
    mask = torch.tril(torch.ones(t, t, dtype=torch.bool))
    return (q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5).masked_fill(~mask, float("-inf")).softmax(-1) @ v


def written_additive_mask(q, k, v):
    t = q.shape[2]
    return torch.softmax(q @ k.transpose(-2, -1) * 0.5 + torch.triu(torch.full((t, t), -1e4, dtype=q.dtype), 1), -1) @ v


def einsum(q, k, v):
    return torch.einsum("bhqk,bhkd->bhqd", torch.softmax(torch.einsum("bhqd,bhkd->bhqk", q, k) * 0.5, -1), v)


def linear(q, k, v):
    q, k = F.elu(q) + 1, F.elu(k) + 1
    return (q @ (k.transpose(-2, -1) @ v)) / (q @ k.sum(-2, keepdim=True).transpose(-2, -1) + 1e-6)


def cosine(q, k, v):
    return torch.softmax(4.0 * F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).transpose(-2, -1), -1) @ v


def alibi(q, k, v):
    t = torch.arange(q.shape[2], dtype=q.dtype)
    bias = -(t[:, None] - t[None, :]).abs() * torch.tensor([0.5, 0.25], dtype=q.dtype)[:, None, None]
    return torch.softmax(q @ k.transpose(-2, -1) * 0.5 + bias, -1) @ v


def rotary(q, k, v):
    t, half = torch.arange(q.shape[2], dtype=q.dtype), q.shape[3] // 2
    angle = t[:, None] * (100.0 ** (-torch.arange(half, dtype=q.dtype) / half))[None, :]
    sin, cos = torch.cat([angle.sin()] * 2, -1), torch.cat([angle.cos()] * 2, -1)
    turn = lambda x: x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin
    return F.scaled_dot_product_attention(turn(q), turn(k), v, is_causal=True)


class Grouped(nn.Module):
    """Two query heads share one key and value head."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.proj = nn.Linear(D, D), nn.Linear(D, D // H, bias=False), nn.Linear(D, D // H), nn.Linear(D, D)

    def forward(self, x):
        q, k, v = heads(self.q(x)), self.k(x)[:, None], self.v(x)[:, None]
        b, _, t, d = q.shape
        return self.proj(joined(written_causal(q, k.expand(b, H, t, d), v.expand(b, H, t, d))))


class Relative(nn.Module):
    """A learned bias by relative position, gathered through a table of indices, as in T5 and Swin."""

    def __init__(self):
        super().__init__()
        self.qkv, self.proj, self.bias = nn.Linear(D, 3 * D, bias=False), nn.Linear(D, D), nn.Embedding(2 * T - 1, H)
        self.register_buffer("index", torch.arange(T)[:, None] - torch.arange(T)[None, :] + T - 1)

    def forward(self, x):
        q, k, v = (heads(z) for z in self.qkv(x).chunk(3, -1))
        return self.proj(joined(torch.softmax(q @ k.transpose(-2, -1) * 0.5 + self.bias(self.index).permute(2, 0, 1), -1) @ v))


class Cross(nn.Module):
    def __init__(self):
        super().__init__()
        self.ctx, self.att, self.fc = nn.Linear(5, D), nn.MultiheadAttention(D, H, batch_first=True, bias=False), nn.Linear(D, 4)

    def forward(self, x, context):
        c = torch.tanh(self.ctx(context))
        return self.fc(self.att(x, c, c, need_weights=False)[0].mean(1))


class SelfMHA(nn.Module):
    def __init__(self, weights):
        super().__init__()
        self.att, self.weights = nn.MultiheadAttention(D, H, batch_first=True, bias=False), weights

    def forward(self, x):
        return x + self.att(x, x, x, need_weights=self.weights)[0]


class PaddingMask(nn.Module):
    """Keys whose token is 0 are masked."""

    def __init__(self):
        super().__init__()
        self.emb, self.att, self.fc = nn.Embedding(V, D), Attention(written), nn.Linear(D, 4)

    def forward(self, x):
        h = self.emb(x)
        mask = (x != 0)[:, None, None, :]
        self.att.core = lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        keep = (x != 0).to(h.dtype)[:, :, None]
        return self.fc((self.att(h) * keep).sum(1) / keep.sum(1).clamp(min=1.0))


class Pooling(nn.Module):
    """A learned query weights the time steps."""

    def __init__(self):
        super().__init__()
        self.score, self.fc = nn.Linear(D, 1, bias=False), nn.Linear(D, 4)

    def forward(self, x):
        return self.fc((torch.softmax(self.score(torch.tanh(x)), 1) * x).sum(1))


class Block(nn.Module):
    """A pre-norm block."""

    def __init__(self, attention, norm=nn.LayerNorm, act=F.gelu):
        super().__init__()
        self.ln1, self.att, self.ln2, self.fc1, self.fc2, self.act = norm(D), attention, norm(D), nn.Linear(D, 2 * D), nn.Linear(2 * D, D), act

    def forward(self, x):
        x = x + self.att(self.ln1(x))
        return x + self.fc2(self.act(self.fc1(self.ln2(x))))


class RMSNorm(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d))

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


class GPT(nn.Module):
    def __init__(self, attention=written_causal, tied=True, norm=nn.LayerNorm, layers=1, positions=True):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(V, D), nn.Embedding(T, D) if positions else None
        self.blocks, self.ln = nn.Sequential(*(Block(Attention(attention), norm) for _ in range(layers))), norm(D)
        self.head = nn.Linear(D, V, bias=False)
        if tied:
            self.head.weight = self.wte.weight

    def forward(self, x):
        h = self.wte(x)
        if self.wpe:
            h = h + self.wpe(torch.arange(x.shape[1]))
        return self.head(self.ln(self.blocks(h)))


def untied(module):
    """The head is trained separately: the exporter wrote its transposed weight as a second initializer."""
    module.head.weight = nn.Parameter(module.head.weight.detach().clone())
    return module


class TwoTables(GPT):
    """The default export of a tied GPT: the embedding keeps the head's name, and the head has a weight of its own."""

    def __init__(self, tied):
        nn.Module.__init__(self)
        self.head, self.wpe, self.blocks, self.ln = nn.Embedding(V, D), tied.wpe, tied.blocks, tied.ln
        self.apart = nn.Parameter(tied.wte.weight.detach().clone())
        self.head.weight.data.copy_(self.apart.data)

    def forward(self, x):
        h = self.head(x) + self.wpe(torch.arange(x.shape[1]))
        return F.linear(self.ln(self.blocks(h)), self.apart)


class ViT(nn.Module):
    def __init__(self):
        super().__init__()
        self.patch, self.cls, self.pos = nn.Conv2d(3, D, 4, 4), nn.Parameter(torch.randn(1, 1, D)), nn.Parameter(0.1 * torch.randn(1, 5, D))
        self.block, self.ln, self.fc = Block(Attention(F.scaled_dot_product_attention)), nn.LayerNorm(D), nn.Linear(D, 4)

    def forward(self, x):
        h = self.patch(x).flatten(2).transpose(1, 2)
        h = torch.cat([self.cls.expand(h.shape[0], -1, -1), h], 1) + self.pos
        return self.fc(self.ln(self.block(h))[:, 0])


class Windows(nn.Module):
    """Swin: attention within windows of 2 x 2, shifted by one."""

    def __init__(self):
        super().__init__()
        self.patch, self.att, self.fc = nn.Conv2d(3, D, 2, 2), Attention(written), nn.Linear(D, 4)

    def forward(self, x):
        h = torch.roll(self.patch(x).permute(0, 2, 3, 1), (-1, -1), (1, 2))
        b, y, w, d = h.shape
        windows = h.view(b, y // 2, 2, w // 2, 2, d).permute(0, 1, 3, 2, 4, 5).reshape(-1, 4, d)
        h = self.att(windows).view(b, y // 2, w // 2, 2, 2, d).permute(0, 1, 3, 2, 4, 5).reshape(b, y, w, d)
        return self.fc(torch.roll(h, (1, 1), (1, 2)).mean((1, 2)))


class Mixer(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1, self.tokens, self.ln2, self.channels = nn.LayerNorm(D), nn.Linear(T, T), nn.LayerNorm(D), nn.Linear(D, D)

    def forward(self, x):
        x = x + F.gelu(self.tokens(self.ln1(x).transpose(1, 2))).transpose(1, 2)
        return x + F.gelu(self.channels(self.ln2(x)))


class Mean(nn.Module):
    """A module applied to [batch, time, D], then the mean over time and a linear layer."""

    def __init__(self, inner):
        super().__init__()
        self.inner, self.fc = inner, nn.Linear(D, 4)

    def forward(self, x):
        return self.fc(self.inner(x).mean(1))


class BERT(nn.Module):
    """Post-norm; word, position and segment embeddings; a tanh pooler on the first token."""

    def __init__(self):
        super().__init__()
        self.word, self.position, self.segment, self.ln = nn.Embedding(V, D), nn.Embedding(T, D), nn.Embedding(2, D), nn.LayerNorm(D, eps=1e-12)
        self.layer = nn.TransformerEncoderLayer(D, H, 2 * D, dropout=0.0, activation="gelu", batch_first=True)
        self.pooler, self.fc = nn.Linear(D, D), nn.Linear(D, 4)

    def forward(self, x, segment):
        h = self.ln(self.word(x) + self.position(torch.arange(x.shape[1])) + self.segment(segment))
        return self.fc(torch.tanh(self.pooler(self.layer(h)[:, 0])))


class Translator(nn.Module):
    """An encoder and a decoder layer of torch.nn."""

    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(V, D)
        self.enc = nn.TransformerEncoderLayer(D, H, 2 * D, dropout=0.0, batch_first=True)
        self.dec = nn.TransformerDecoderLayer(D, H, 2 * D, dropout=0.0, batch_first=True)
        self.fc = nn.Linear(D, V)

    def forward(self, x, previous):
        mask = torch.triu(torch.full((T, T), float("-inf")), 1)
        return self.fc(self.dec(self.emb(previous), self.enc(self.emb(x)), tgt_mask=mask.to(self.fc.weight.dtype)))


def cases():
    vectors = sequence_classes(T, D, 4)

    def att(name, module, batch=vectors, losses=CE, opt="momentum", exporter=None, style=True, **o):
        o = {"batch_size": 4, "steps": 3, **o}
        if not style:
            return Case(name, module, batch, losses, optimizer(opt), **o, exporter=exporter or "dynamo")
        return styled(Case(name, module, batch, losses, optimizer(opt), **o), exporter=exporter)

    for f in (written, written_causal, written_additive_mask, einsum, linear, cosine, alibi, rotary):
        yield att(f"attention_{f.__name__}", lambda f=f: Mean(Attention(f)))
    yield att("attention_bias", lambda: Mean(Attention(written, bias=True)), notes="the key's bias has no effect but for rounding", opt="sgd")
    yield att("attention_sdpa", lambda: Mean(Attention(F.scaled_dot_product_attention)))
    yield att("attention_sdpa_causal", lambda: Mean(Attention(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True))))
    yield att("attention_sdpa_opset23", lambda: Mean(Attention(F.scaled_dot_product_attention)), style=False, opset=23, optimize=True,
              notes="from opset 23 on the exporter writes ONNX's Attention")
    yield att("attention_grouped", lambda: Mean(Grouped()))
    yield att("attention_relative", lambda: Mean(Relative()), style=False, opset=18,
              notes="the default export would fold the gathered table into an initializer of its own")
    yield att("attention_mha", lambda: Mean(SelfMHA(False)))
    yield att("attention_mha_weights", lambda: Mean(SelfMHA(True)))
    yield att("attention_cross", Cross, lambda b: {"x": pixels(b, T, D), "context": pixels(b, 3, 5), "y": classes(4, b)}, inputs=("x", "context"))
    yield att("attention_padding_mask", PaddingMask, lambda b: {"x": torch.cat([classes(V - 1, b, 1) + 1, classes(V, b, T - 1)], 1), "y": classes(4, b)},
              exporter="dynamo")
    yield att("attention_pooling", Pooling)
    yield att("attention_windows", Windows, image_classes(3, 8, 4))
    encoder = lambda **o: lambda: Mean(nn.TransformerEncoderLayer(D, H, 2 * D, dropout=0.0, batch_first=True, **o))
    yield att("encoder_post_norm", encoder(), opt="sgd")
    yield att("encoder_pre_norm_gelu", encoder(norm_first=True, activation="gelu"), opt="sgd")
    yield att("encoder_two_layers", lambda: Mean(nn.TransformerEncoder(nn.TransformerEncoderLayer(D, H, D, 0.0, batch_first=True), 2, enable_nested_tensor=False)),
              opt="sgd", style=False, opset=18)
    yield att("transformer_translate", Translator, lambda b: {"x": classes(V, b, T), "previous": classes(V, b, T), "y": classes(V, b, T)}, CE_LAST,
              inputs=("x", "previous"), opt="sgd", exporter="dynamo")
    text = next_tokens(V, T)
    yield att("gpt_untied", lambda: GPT(tied=False), text, CE_LAST)
    yield att("gpt_tied_legacy", GPT, text, CE_LAST, "adamw", style=False, exporter="legacy", opset=17)
    yield att("gpt_tied_dynamo", GPT, text, CE_LAST, "adamw", style=False, opset=18)
    yield att("gpt_tied_folded", GPT, text, CE_LAST, "adamw", style=False, exporter="legacy", opset=17, mode="eval", optimize=True, as_file=untied,
              notes="folding wrote the head's transposed weight as a second initializer: as the file stands the two train apart")
    yield att("gpt_tied_default", GPT, text, CE_LAST, "adamw", style=False, opset=18, optimize=True, mode="eval", as_file=TwoTables,
              notes="the default export writes the head's weight twice, once transposed: as the file stands the two train apart")
    yield att("gpt_two_layers", lambda: GPT(layers=2), text, CE_LAST, "adamw", style=False, opset=20, clip_grad_norm=1.0, grad_accumulation=2, steps=4)
    yield att("llama_block", lambda: GPT(rotary, False, RMSNorm, positions=False), text, CE_LAST, "adamw")
    yield att("bert", BERT, lambda b: {"x": classes(V, b, T), "segment": classes(2, b, T), "y": classes(4, b)}, inputs=("x", "segment"), opt="sgd")
    yield att("vit", ViT, image_classes(3, 8, 4), opt="adamw", style=False, opset=20)
    yield att("vit_position_grid", PositionGrid, image_classes(3, 10, 4), style=False, exporter="legacy", opset=16, mode="eval",
              notes="the shape of the table's grid hangs on a power of its length, which the exporter leaves to the reader")
    yield att("mixer", lambda: Mean(Mixer()), opt="adam")
    yield att("layer_norm_no_affine", lambda: Mean(nn.Sequential(nn.Linear(D, D), nn.LayerNorm(D, elementwise_affine=False), nn.Tanh())))
    yield att("layer_norm_no_bias", lambda: Mean(nn.Sequential(nn.Linear(D, D), nn.LayerNorm(D, bias=False), nn.Tanh())))
    yield att("layer_norm_two_axes", lambda: Mean(nn.Sequential(nn.Linear(D, D), nn.LayerNorm([T, D]), nn.Tanh())))
    yield att("rms_norm", lambda: Mean(nn.Sequential(nn.Linear(D, D), RMSNorm(D), nn.Tanh())))
    yield att("rms_norm_fresh", Fresh, style=False, exporter="legacy", opset=13, keep_constants=True,
              notes="scales that are all ones, a gate of zero and a temperature of one number, as they are before any training")
    yield att("rms_norm_torch", lambda: Mean(nn.Sequential(nn.Linear(D, D), nn.RMSNorm(D), nn.Tanh())), exporter="dynamo")
    yield att("layer_norm_opset13", lambda: Mean(nn.Sequential(nn.Linear(D, D), nn.LayerNorm(D), nn.Tanh())), style=False, exporter="legacy", opset=13,
              notes="before opset 17 the exporter writes the normalisation out")
    yield att("layer_norm_identity", lambda: TwoNorms(), style=False, exporter="legacy", opset=17, keep_constants=True, as_file=_one_norm, mode="eval",
              notes="two normalisations of equal initial values: the legacy export makes one an Identity of the other")
    yield att("layer_norm_merged", lambda: TwoNorms(), style=False, opset=18, optimize=True, keep_constants=True, as_file=_one_norm, mode="eval",
              notes="two normalisations of equal initial values: the default export merges them into one initializer, which is trained as one")


class Fresh(nn.Module):
    """Scales and scalars with the initial values that modules use."""

    def __init__(self):
        super().__init__()
        self.fc1, self.norm, self.gate, self.fc2 = nn.Linear(D, D), RMSNorm(D), nn.Parameter(torch.zeros(D)), nn.Linear(D, 4)
        self.head = nn.ParameterDict({"temperature": nn.Parameter(torch.tensor(0.5))})

    def forward(self, x):
        y = self.norm(self.fc1(x))
        return self.fc2((y + torch.tanh(y) * self.gate).mean(1)) * self.head["temperature"].exp()


class PositionGrid(nn.Module):
    """Patches, and learned positions that are resized to their grid as in DINOv2."""

    def __init__(self):
        super().__init__()
        self.patch, self.positions, self.norm, self.fc = nn.Conv2d(3, D, 2, 2), nn.Parameter(torch.randn(1, 10, D)), nn.LayerNorm(D), nn.Linear(D, 4)

    def forward(self, x):
        x = self.patch(x)
        n = self.positions.shape[1] - 1
        side = (n**0.5).to(torch.int64) if torch.jit.is_tracing() else int(n**0.5)
        grid = self.positions[:, 1:].reshape(1, side, side, D).permute(0, 3, 1, 2)
        grid = F.interpolate(grid, size=x.shape[2:], mode="bicubic", align_corners=False)
        x = torch.cat([self.positions[:, :1].expand(x.shape[0], 1, D), (x + grid).flatten(2).transpose(1, 2)], 1)
        return self.fc(torch.tanh(self.norm(x)).mean(1))


class TwoNorms(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.ln1, self.fc2, self.ln2, self.fc3 = nn.Linear(D, D), nn.LayerNorm(D), nn.Linear(D, D), nn.LayerNorm(D), nn.Linear(D, 4)

    def forward(self, x):
        return self.fc3(torch.tanh(self.ln2(self.fc2(torch.tanh(self.ln1(self.fc1(x.mean(1))))))))


def _one_norm(module):
    module.ln2.weight, module.ln2.bias = module.ln1.weight, module.ln1.bias
    return module
