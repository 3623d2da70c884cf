"""Networks as tutorials and example repositories write them: whole classes with their usual habits (views of `-1`, states passed in and out,
lists of layers, masks built in `forward`, losses that combine several outputs). Images here and in textbook_tasks.py; sequences and
tables in textbook_series.py, textbook_recurrent.py and textbook_tables.py. Up to two styles of each (`everyday_STYLES`), as in everyday.py.
Nothing is kept in `recorded/` except cases that found a bug."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

from sets.everyday import styles
from sets.families import weight
from sets.further import L, image, lin, one


class GhostBottleneck(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 6, 3, 1, 1, bias=False)
        self.primary, self.cheap = nn.Conv2d(6, 5, 1, bias=False), nn.Conv2d(5, 5, 3, 1, 1, groups=5, bias=False)
        self.dw = nn.Conv2d(9, 9, 5, 2, 2, groups=9, bias=False)
        self.se_down, self.se_up = nn.Conv2d(9, 4, 1), nn.Conv2d(4, 9, 1)
        self.short = nn.Sequential(nn.Conv2d(6, 6, 3, 2, 1, groups=6), nn.Conv2d(6, 9, 1))
        self.head = lin(9, 4)

    def forward(self, x):
        x = self.stem(x)
        p = F.relu(self.primary(x))
        h = torch.cat([p, self.cheap(p)], dim=1)[:, :9, :, :]
        h = self.dw(h)
        se = self.se_up(F.relu(self.se_down(h.mean((2, 3), keepdim=True))))
        h = h * F.hardsigmoid(se) + self.short(x)
        return self.head(F.avg_pool2d(h, h.size()[2:]).view(h.size(0), -1))


class RepBlock(nn.Module):
    """MobileOne: parallel branches, each with its own statistics, and a branch of statistics alone."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 6, 3, 2, 1)
        self.convs = L(nn.Sequential(nn.Conv2d(6, 6, 3, 1, 1, groups=6, bias=False), nn.BatchNorm2d(6)) for _ in range(2))
        self.scale, self.skip = nn.Sequential(nn.Conv2d(6, 6, 1, groups=6, bias=False), nn.BatchNorm2d(6)), nn.BatchNorm2d(6)
        self.head = lin(6, 4)

    def forward(self, x):
        x = self.stem(x)
        out = self.scale(x) + self.skip(x)
        for ix in range(len(self.convs)):
            out += self.convs[ix](x)
        return self.head(F.gelu(out).mean((-2, -1)))


class NormFree(nn.Module):
    """NFNet: standardized weights with a trained gain, scaled residuals with a trained exponent of skip."""

    def __init__(self):
        super().__init__()
        self.w1, self.g1 = weight(8, 3, 3, 3), one(8, 1, 1, 1)
        self.w2, self.g2 = weight(8, 4, 3, 3), one(8, 1, 1, 1)
        self.skip_gain, self.head = nn.Parameter(torch.tensor(0.3)), lin(8, 4)

    def standard(self, w, gain):
        w = F.batch_norm(w.reshape(1, w.size(0), -1), None, None, weight=(gain * w[0].numel() ** -0.5).view(-1), training=True, momentum=0.0, eps=1e-6)
        return w

    def forward(self, x):
        h = F.conv2d(x, self.standard(self.w1, self.g1).reshape_as(self.w1), None, 1, 1)
        y = F.conv2d(F.silu(h) * 1.7881293296813965 / 1.1, self.standard(self.w2, self.g2).reshape_as(self.w2), None, 1, 1, 1, 2)
        return self.head((h + y * self.skip_gain * 0.2).mean([2, 3]))


class Focal(nn.Module):
    """FocalNet: contexts of growing windows, gated and summed."""

    def __init__(self):
        super().__init__()
        self.patch = nn.Conv2d(3, 6, 2, 2)
        self.norm, self.f = nn.LayerNorm(6), lin(6, 2 * 6 + 3)
        self.layers = L(nn.Sequential(nn.Conv2d(6, 6, k, padding=k // 2, groups=6, bias=False), nn.GELU()) for k in (3, 5))
        self.h, self.proj, self.head, self.gamma = nn.Conv2d(6, 6, 1), lin(6, 6), lin(6, 4), weight(6)

    def forward(self, x):
        x = self.patch(x).permute(0, 2, 3, 1)
        y = self.f(self.norm(x)).permute(0, 3, 1, 2).contiguous()
        q, ctx, gates = torch.split(y, (6, 6, 3), 1)
        ctx_all = 0
        for l in range(2):
            ctx = self.layers[l](ctx)
            ctx_all = ctx_all + ctx * gates[:, l : l + 1]
        ctx_global = F.gelu(ctx.mean(2, keepdim=True).mean(3, keepdim=True))
        ctx_all = ctx_all + ctx_global * gates[:, 2:]
        x = x + self.gamma * self.proj((q * self.h(ctx_all)).permute(0, 2, 3, 1))
        return self.head(x.flatten(1, 2).mean(1))


class CoAtNet(nn.Module):
    """Relative positions of a grid from a table, indexed by a buffer."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, 2, 1)
        self.table = weight(2, 7 * 7)
        coords = torch.stack(torch.meshgrid(torch.arange(4), torch.arange(4), indexing="ij")).flatten(1)
        rel = coords[:, :, None] - coords[:, None, :]
        rel[0] += 3
        rel[1] += 3
        rel[0] *= 7
        self.register_buffer("relative_index", rel.sum(0).flatten().unsqueeze(0).repeat(2, 1))
        self.qkv, self.out, self.head = nn.Linear(8, 24, bias=False), lin(8, 8), lin(8, 4)

    def forward(self, x):
        x = self.stem(x).flatten(2).transpose(1, 2)
        q, k, v = (t.unflatten(-1, (2, 4)).transpose(1, 2) for t in self.qkv(x).chunk(3, dim=-1))
        bias = self.table.gather(1, self.relative_index).view(2, 16, 16)
        attn = torch.softmax(torch.matmul(q, k.transpose(-1, -2)) * 4**-0.5 + bias.unsqueeze(0), dim=-1)
        x = x + self.out(torch.matmul(attn, v).transpose(1, 2).reshape(x.shape[0], 16, 8))
        return self.head(x.mean(1))


class CrossCovariance(nn.Module):
    """EdgeNeXt and XCiT: attention between channels with a trained temperature per head, split depthwise filters, Fourier positions."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 4, 4)
        self.convs = L(nn.Conv2d(2, 2, 3, padding=1, groups=2) for _ in range(3))
        self.qkv, self.temperature, self.proj = lin(8, 24), one(2, 1, 1), lin(8, 8)
        self.token, self.gamma, self.head = nn.Conv2d(8, 8, 1), weight(8), lin(8, 4)

    def forward(self, x):
        x = self.stem(x)
        spx = torch.split(x, 2, 1)
        for i in range(3):
            sp = spx[i] if i == 0 else sp + spx[i]
            sp = self.convs[i](sp)
            out = sp if i == 0 else torch.cat((out, sp), 1)
        x = torch.cat((out, spx[3]), 1)
        B, C, H, W = x.shape
        mask = torch.zeros(B, H, W).bool()
        not_mask = ~mask
        y_embed, x_embed = not_mask.cumsum(1, dtype=torch.float32), not_mask.cumsum(2, dtype=torch.float32)
        y_embed, x_embed = y_embed / (y_embed[:, -1:, :] + 1e-6) * 2 * math.pi, x_embed / (x_embed[:, :, -1:] + 1e-6) * 2 * math.pi
        dim_t = 10000 ** (2 * (torch.arange(4) // 2) / 4)
        pos_x, pos_y = x_embed[:, :, :, None] / dim_t, y_embed[:, :, :, None] / dim_t
        pos_x = torch.stack((pos_x[:, :, :, 0::2].sin(), pos_x[:, :, :, 1::2].cos()), dim=4).flatten(3)
        pos_y = torch.stack((pos_y[:, :, :, 0::2].sin(), pos_y[:, :, :, 1::2].cos()), dim=4).flatten(3)
        x = x + self.token(torch.cat((pos_y, pos_x), dim=3).permute(0, 3, 1, 2).to(x.dtype))
        x = x.reshape(B, C, H * W).permute(0, 2, 1)
        qkv = self.qkv(x).reshape(B, H * W, 3, 2, C // 2).permute(2, 0, 3, 4, 1)
        q, k, v = qkv.unbind(0)
        attn = F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).transpose(-2, -1) * self.temperature
        y = (attn.softmax(-1) @ v).permute(0, 3, 1, 2).reshape(B, H * W, C)
        return self.head((x + self.gamma * self.proj(y)).mean(1))


class HorNet(nn.Module):
    """Recursive gates: channels are split in rising powers of two."""

    def __init__(self):
        super().__init__()
        self.dims = [2, 4, 8]
        self.stem, self.proj_in = nn.Conv2d(3, 8, 2, 2), nn.Conv2d(8, 16, 1)
        self.dw = nn.Conv2d(14, 14, 3, padding=1, groups=14)
        self.pws = L([nn.Conv2d(2, 4, 1), nn.Conv2d(4, 8, 1)])
        self.proj_out, self.scale, self.head = nn.Conv2d(8, 8, 1), 0.7, lin(8, 4)

    def forward(self, x):
        x = self.stem(x)
        pwa, abc = torch.split(self.proj_in(x), (self.dims[0], sum(self.dims)), dim=1)
        dw_list = torch.split(self.dw(abc) * self.scale, self.dims, dim=1)
        h = pwa * dw_list[0]
        for i in range(2):
            h = self.pws[i](h) * dw_list[i + 1]
        return self.head((x + self.proj_out(h)).flatten(2).mean(-1))


class Davit(nn.Module):
    """Window attention followed by attention over groups of channels."""

    def __init__(self):
        super().__init__()
        self.stem, self.cpe = nn.Conv2d(3, 8, 3, 1, 1), nn.Conv2d(8, 8, 3, 1, 1, groups=8)
        self.n1, self.qkv1, self.p1 = nn.LayerNorm(8), lin(8, 24), lin(8, 8)
        self.n2, self.qkv2, self.p2, self.head = nn.LayerNorm(8), lin(8, 24), lin(8, 8), lin(8, 4)

    def forward(self, x):
        x = self.stem(x)
        x = x + self.cpe(x)
        B, C, H, W = x.shape
        x = x.permute(0, 2, 3, 1)
        pad_r, pad_b = (3 - W % 3) % 3, (3 - H % 3) % 3
        w = F.pad(self.n1(x), (0, 0, 0, pad_r, 0, pad_b))
        _, Hp, Wp, _ = w.shape
        w = w.view(B, Hp // 3, 3, Wp // 3, 3, C).permute(0, 1, 3, 2, 4, 5).contiguous().view(-1, 9, C)
        q, k, v = self.qkv1(w).reshape(-1, 9, 3, 2, 4).permute(2, 0, 3, 1, 4).unbind(0)
        w = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(-1, 9, C)
        w = self.p1(w).view(-1, Hp // 3, Wp // 3, 3, 3, C).permute(0, 1, 3, 2, 4, 5).reshape(-1, Hp, Wp, C)[:, :H, :W, :].contiguous()
        x = (x + w).view(B, H * W, C)
        q, k, v = self.qkv2(self.n2(x)).reshape(B, H * W, 3, 2, 4).permute(2, 0, 3, 1, 4).unbind(0)
        attn = (q * float(H * W) ** -0.5).transpose(-1, -2) @ k
        y = (attn.softmax(-1) @ v.transpose(-1, -2)).transpose(-1, -2).transpose(1, 2).reshape(B, H * W, C)
        return self.head((x + self.p2(y)).mean(1))


class Levit(nn.Module):
    """Attention whose batch norms act on tokens flattened with the batch, and subsampled queries."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 2, 2)
        self.kv, self.bn_kv = nn.Linear(8, 2 * 12, bias=False), nn.BatchNorm1d(24)
        self.q, self.bn_q = nn.Linear(8, 8, bias=False), nn.BatchNorm1d(8)
        self.proj, self.biases = nn.Linear(16, 10), weight(2, 16)
        points = [(i, j) for i in range(4) for j in range(4)]
        offsets, idxs = {}, []
        for p1 in [(i, j) for i in (0, 2) for j in (0, 2)]:
            for p2 in points:
                o = (abs(p1[0] - p2[0]), abs(p1[1] - p2[1]))
                offsets.setdefault(o, len(offsets))
                idxs.append(offsets[o])
        self.register_buffer("idxs", torch.LongTensor(idxs).view(4, 16))
        self.head = lin(10, 4)

    def forward(self, x):
        x = self.stem(x).flatten(2).transpose(1, 2)
        B, N, C = x.shape
        kv = self.kv(x)
        k, v = self.bn_kv(kv.flatten(0, 1)).reshape_as(kv).view(B, N, 2, -1).split([4, 8], dim=3)
        k, v = k.permute(0, 2, 1, 3), v.permute(0, 2, 1, 3)
        sub = x.view(B, 4, 4, C)[:, ::2, ::2].reshape(B, -1, C)
        q = self.q(sub)
        q = self.bn_q(q.flatten(0, 1)).reshape_as(q).view(B, 4, 2, 4).permute(0, 2, 1, 3)
        attn = q @ k.transpose(-2, -1) * 0.5 + self.biases[:, self.idxs]
        x = (attn.softmax(dim=-1) @ v).transpose(1, 2).reshape(B, -1, 16)
        return self.head(self.proj(F.hardswish(x)).mean(1))


class GoogLeNet(nn.Module):
    """Inputs renormalized channel by channel, two auxiliary heads."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 6, 3, padding=1), nn.Conv2d(6, 6, 3, padding=1)
        self.aux1, self.aux2, self.head = nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten(), lin(24, 3)), nn.Sequential(nn.AdaptiveAvgPool2d((1, 2)), nn.Flatten(), lin(12, 3)), lin(6, 3)

    def forward(self, x):
        x_ch0 = torch.unsqueeze(x[:, 0], 1) * (0.229 / 0.5) + (0.485 - 0.5) / 0.5
        x_ch1 = torch.unsqueeze(x[:, 1], 1) * (0.224 / 0.5) + (0.456 - 0.5) / 0.5
        x_ch2 = torch.unsqueeze(x[:, 2], 1) * (0.225 / 0.5) + (0.406 - 0.5) / 0.5
        h = F.relu(self.first(torch.cat((x_ch0, x_ch1, x_ch2), 1)))
        a = self.aux1(h)
        h = F.max_pool2d(F.relu(self.second(h)), 3, 2, ceil_mode=True)
        return self.head(torch.flatten(F.adaptive_avg_pool2d(h, (1, 1)), 1)), self.aux2(h), a


class Maxout(nn.Module):
    """DenseNet's concatenations by a list, a transition, and stochastic depth in its expectation."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3, padding=1, bias=False)
        self.norms, self.convs = L(nn.BatchNorm2d(4 + 3 * i) for i in range(3)), L(nn.Conv2d(4 + 3 * i, 3, 3, padding=1, bias=False) for i in range(3))
        self.trans = nn.Sequential(nn.BatchNorm2d(13), nn.ReLU(inplace=True), nn.Conv2d(13, 6, 1, bias=False), nn.AvgPool2d(2, 2))
        self.head = lin(6, 4)

    def forward(self, x):
        features = [self.stem(x)]
        for n, c in zip(self.norms, self.convs):
            features.append(c(F.relu(n(torch.cat(features, 1)), inplace=True)))
        out = self.trans(torch.cat(features, 1))
        return self.head(torch.flatten(F.adaptive_avg_pool2d(F.relu(out, inplace=True), (1, 1)), 1))


class ShuffleV2(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True))
        self.b1 = nn.Sequential(nn.Conv2d(8, 8, 3, 2, 1, groups=8, bias=False), nn.BatchNorm2d(8), nn.Conv2d(8, 6, 1, bias=False), nn.BatchNorm2d(6), nn.ReLU(inplace=True))
        self.b2 = nn.Sequential(nn.Conv2d(8, 6, 1, bias=False), nn.BatchNorm2d(6), nn.ReLU(inplace=True), nn.Conv2d(6, 6, 3, 2, 1, groups=6, bias=False), nn.BatchNorm2d(6))
        self.b3 = nn.Sequential(nn.Conv2d(6, 6, 1), nn.ReLU(inplace=True))
        self.head = lin(12, 4)

    @staticmethod
    def shuffle(x, groups):
        batchsize, num_channels, height, width = x.size()
        x = x.view(batchsize, groups, num_channels // groups, height, width)
        x = torch.transpose(x, 1, 2).contiguous()
        return x.view(batchsize, num_channels, height, width)

    def forward(self, x):
        x = self.stem(x)
        x = self.shuffle(torch.cat((self.b1(x), self.b2(x)), dim=1), 2)
        x1, x2 = x.chunk(2, dim=1)
        x = self.shuffle(torch.cat((x1, self.b3(x2)), dim=1), 3)
        return self.head(x.mean([2, 3]))


class WindowV2(nn.Module):
    """Swin v2: cosine attention with a clamped scale, continuous position bias through a network, zero key bias, post norms, shifted windows."""

    def __init__(self):
        super().__init__()
        self.patch, self.norm = nn.Conv2d(3, 8, 2, 2), nn.LayerNorm(8)
        self.logit_scale, self.qkv, self.proj = nn.Parameter(torch.log(10 * torch.ones((2, 1, 1)))), nn.Linear(8, 24), lin(8, 8)
        self.cpb = nn.Sequential(nn.Linear(2, 6, bias=True), nn.ReLU(inplace=True), nn.Linear(6, 2, bias=False))
        r = torch.stack(torch.meshgrid([torch.arange(-1, 2, dtype=torch.float32)] * 2, indexing="ij")).permute(1, 2, 0).contiguous().unsqueeze(0) * 8
        self.register_buffer("relative_coords_table", torch.sign(r) * torch.log2(torch.abs(r) + 1.0) / 3.0)
        c = torch.stack(torch.meshgrid([torch.arange(2)] * 2, indexing="ij")).flatten(1)
        i = (c[:, :, None] - c[:, None, :]).permute(1, 2, 0) + 1
        self.register_buffer("relative_position_index", (i[..., 0] * 3 + i[..., 1]).flatten())
        self.head = lin(8, 4)

    def forward(self, x):
        x = self.patch(x).permute(0, 2, 3, 1)
        shortcut = x
        B, H, W, C = x.shape
        x = torch.roll(x, shifts=(-1, -1), dims=(1, 2))
        x = x.view(B, 2, 2, 2, 2, C).permute(0, 1, 3, 2, 4, 5).reshape(B * 4, 4, C)
        qkv_bias = self.qkv.bias.clone()
        length = qkv_bias.numel() // 3
        qkv_bias[length : 2 * length].zero_()
        q, k, v = F.linear(x, self.qkv.weight, qkv_bias).reshape(-1, 4, 3, 2, 4).permute(2, 0, 3, 1, 4).unbind(0)
        attn = F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).transpose(-2, -1)
        attn = attn * torch.clamp(self.logit_scale, max=math.log(100.0)).exp()
        bias = self.cpb(self.relative_coords_table).view(-1, 2)[self.relative_position_index].view(4, 4, -1).permute(2, 0, 1).contiguous()
        attn = attn + (16 * torch.sigmoid(bias)).unsqueeze(0)
        mask = x.new_zeros((H, W))
        count = 0
        for h in ((0, -2), (-2, -1), (-1, None)):
            for w in ((0, -2), (-2, -1), (-1, None)):
                mask[h[0] : h[1], w[0] : w[1]] = count
                count += 1
        mask = mask.view(2, 2, 2, 2).permute(0, 2, 1, 3).reshape(4, 4)
        mask = mask.unsqueeze(1) - mask.unsqueeze(2)
        mask = mask.masked_fill(mask != 0, float(-100.0)).masked_fill(mask == 0, float(0.0))
        attn = (attn.view(B, 4, 2, 4, 4) + mask.unsqueeze(1).unsqueeze(0)).view(-1, 2, 4, 4)
        x = self.proj((F.softmax(attn, dim=-1) @ v).transpose(1, 2).reshape(-1, 4, C))
        x = x.view(B, 2, 2, 2, 2, C).permute(0, 1, 3, 2, 4, 5).reshape(B, H, W, C)
        x = shortcut + self.norm(torch.roll(x, shifts=(1, 1), dims=(1, 2)))
        return self.head(x.flatten(1, 2).mean(1))


class MaxViTGrid(nn.Module):
    """Partitions into windows and into a dilated grid, by one module with swapped axes."""

    def __init__(self):
        super().__init__()
        self.stem, self.qkv, self.out = nn.Conv2d(3, 8, 3, 2, 1), L(nn.Linear(8, 24, bias=False) for _ in range(2)), L(lin(8, 8) for _ in range(2))
        self.table, self.head = weight(9, 2), nn.Sequential(nn.LayerNorm(8), lin(8, 4, bias=False), nn.Tanh(), lin(4, 3))

    def part(self, x, grid):
        B, C, H, W = x.shape
        x = x.reshape(B, C, 2, 2, 2, 2).permute(0, 2, 4, 3, 5, 1).reshape(B, 4, 4, C)
        return x.swapaxes(-2, -3) if grid else x

    def back(self, x, grid):
        x = x.swapaxes(-2, -3) if grid else x
        B, _, _, C = x.shape
        return x.reshape(B, 2, 2, 2, 2, C).permute(0, 5, 1, 3, 2, 4).reshape(B, C, 4, 4)

    def forward(self, x):
        x = self.stem(x)
        for i, grid in enumerate((False, True)):
            y = self.part(x, grid)
            B, G, P, D = y.shape
            q, k, v = torch.chunk(self.qkv[i](y), 3, dim=-1)
            q, k, v = (t.reshape(B, G, P, 2, 4).permute(0, 1, 3, 2, 4) for t in (q, k, v))
            dot = torch.einsum("B G H I D, B G H J D -> B G H I J", q, k * 0.5)
            ij = torch.arange(2)
            rel = ((ij[:, None] - ij[None]) + 1).flatten()
            bias = self.table[(rel[:, None] * 3 + rel[None]).view(4, 4) % 9].permute(2, 0, 1).unsqueeze(0)
            y = torch.einsum("B G H I J, B G H J D -> B G H I D", F.softmax(dot + bias, dim=-1), v)
            x = x + self.back(self.out[i](y.permute(0, 1, 3, 2, 4).reshape(B, G, P, D)), grid)
        return self.head(x.mean((-2, -1)))


TEXTBOOK = {
    "ghost_bottleneck": (GhostBottleneck, image, [((4,), 1)]),
    "rep_block": (RepBlock, image, [((4,), 1)]),
    "norm_free": (NormFree, image, [((4,), 1)]),
    "focal": (Focal, image, [((4,), 1)]),
    "coatnet": (CoAtNet, image, [((4,), 1)]),
    "cross_covariance": (CrossCovariance, image, [((4,), 1)]),
    "hornet": (HorNet, image, [((4,), 1)]),
    "davit": (Davit, image, [((4,), 1)]),
    "levit": (Levit, image, [((4,), 1)]),
    "googlenet": (GoogLeNet, image, [((3,), 1), ((3,), 1), ((3,), 1)]),
    "dense_list": (Maxout, image, [((4,), 1)]),
    "shuffle_v2": (ShuffleV2, image, [((4,), 1)]),
    "window_v2": (WindowV2, image, [((4,), 1)]),
    "grid_partition": (MaxViTGrid, image, [((3,), 1)]),
}


def cases():
    return styles(TEXTBOOK, oldest=13)
