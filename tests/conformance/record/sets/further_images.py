"""Further architectures for images and detection; see further.py."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

from case import classes, pixels
from drawing import two_styles
from sets.families import Net, weight
from sets.further import L, P, block, conv, drawn, image, lin, mlp, steps


# Images and detection


def response(s, x):
    """ConvNeXt V2 with its global response normalization, channels last."""
    y = s.stem(x)
    h = s.norm(s.deep(y).permute(0, 2, 3, 1))
    h = F.gelu(s.up(h))
    g = torch.norm(h, p=2, dim=(1, 2), keepdim=True)
    h = s.gamma * (h * (g / (g.mean(-1, keepdim=True) + 1e-6))) + s.beta + h
    return s.head((y + s.down(h).permute(0, 3, 1, 2)).mean((2, 3)))


def mobile(s, x):
    """MobileViT: positions are unfolded into groups, and folded back."""
    y = s.first(x)
    b, c, h, w = y.shape
    p = y.reshape(b * c * h // 2, 2, w // 2, 2).transpose(1, 2).reshape(b, c, -1, 4).transpose(1, 3).reshape(b * 4, -1, c)
    p = s.body(p)
    p = p.view(b, 4, -1, c).transpose(1, 3).reshape(b * c * h // 2, w // 2, 2, 2).transpose(1, 2).reshape(b, c, h, w)
    return s.head(s.last(torch.cat([y, p], 1)).mean((2, 3)))


def shifted(s, x):
    """Swin: rolled windows, a mask by region, a table of distances."""
    y = s.first(x).permute(0, 2, 3, 1)
    b = y.shape[0]
    y2 = torch.roll(s.norm(y), (-2, -2), (1, 2))
    w = y2.view(b, 2, 4, 2, 4, 8).permute(0, 1, 3, 2, 4, 5).reshape(-1, 16, 8)
    q, k, v = s.qkv(w).view(-1, 16, 3, 2, 4).permute(2, 0, 3, 1, 4).unbind(0)
    q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
    a = q @ k.transpose(-1, -2) * s.scale.clamp(max=math.log(100)).exp() + s.table[s.index.view(-1)].view(16, 16, 2).permute(2, 0, 1)[None]
    a = (a.view(b, 4, 2, 16, 16) + s.mask[None, :, None]).view(-1, 2, 16, 16).softmax(-1)
    w = s.out((a @ v).transpose(1, 2).reshape(-1, 16, 8))
    w = torch.roll(w.view(b, 2, 2, 4, 4, 8).permute(0, 1, 3, 2, 4, 5).reshape(b, 8, 8, 8), (2, 2), (1, 2))
    return s.head((y + w).mean((1, 2)))


def perceiver(s, x):
    latents = s.latents.expand(x.shape[0], -1, -1)
    places = torch.cat([s.embed(x), s.waves.expand(x.shape[0], -1, -1)], -1)
    for _ in range(2):
        latents = latents + s.cross(s.n1(latents), s.n2(places), s.n2(places), need_weights=False)[0]
        latents = latents + s.body(latents)
    return s.head(latents.mean(1))


def transformed(s, x, t):
    """DiT: patches, a class token that is dropped at random, time-dependent scales and shifts that start at zero; v-prediction."""
    angle = t[:, None].float() * torch.exp(torch.arange(4) * -math.log(100.0) / 4)
    c = s.time(torch.cat([angle.cos(), angle.sin()], -1))
    y = s.patch(x).flatten(2).transpose(1, 2) + s.places
    s1, b1, g1, s2, b2, g2 = s.ada(F.silu(c)).chunk(6, -1)
    h = F.layer_norm(y, (8,), eps=1e-6) * (1 + s1[:, None]) + b1[:, None]
    y = y + g1[:, None] * s.attend(h, h, h, need_weights=False)[0]
    y = y + g2[:, None] * s.mlp(F.layer_norm(y, (8,), eps=1e-6) * (1 + s2.unsqueeze(1)) + b2.unsqueeze(1))
    shift, scale = s.last(F.silu(c)).chunk(2, 1)
    y = s.out(F.layer_norm(y, (8,)) * (1 + scale[:, None]) + shift[:, None])
    return torch.einsum("nhwpqc->nchpwq", y.view(-1, 4, 4, 2, 2, 2)).reshape(-1, 2, 8, 8)


def anchored(s, x):
    """RetinaNet's heads over two levels with shared weights, concatenated."""
    low = F.relu(s.c1(x))
    high = F.relu(s.c2(low))
    top = s.l2(high)
    levels = [s.o1(s.l1(low) + F.interpolate(top, size=low.shape[-2:], mode="nearest")), s.o2(top)]
    rows = [s.head(F.relu(s.norm(s.tower(level)))).view(x.shape[0], 2, -1, *level.shape[-2:]).permute(0, 3, 4, 1, 2).reshape(x.shape[0], -1, 7) for level in levels]
    return torch.cat(rows, 1)


def boxes_loss(s, x, target):
    """YOLO v8: distances as distributions, complete IoU, focal classification; the targets are boxes on the grid."""
    out = anchored_grid(s, x)
    dist, logits = out.split([16, 3], -1)
    p = dist.unflatten(-1, (4, 4)).softmax(-1) @ torch.arange(4.0)
    centre = torch.stack(torch.meshgrid(torch.arange(4) + 0.5, torch.arange(4) + 0.5, indexing="xy"), -1).view(-1, 2)
    box = torch.cat([centre - p[..., :2], centre + p[..., 2:]], -1)
    a, size = target[..., :2].sigmoid() * 2, target[..., 2:4].sigmoid() * 2 + 0.3
    want = torch.cat([a, a + size], -1)[:, None]
    lt, rb = torch.max(box[..., :2], want[..., :2]), torch.min(box[..., 2:], want[..., 2:])
    inter = (rb - lt).clamp(min=0).prod(-1)
    area = lambda v: (v[..., 2] - v[..., 0]) * (v[..., 3] - v[..., 1])
    iou = inter / (area(box) + area(want) - inter + 1e-7)
    hull = torch.max(box[..., 2:], want[..., 2:]) - torch.min(box[..., :2], want[..., :2])
    gap = (box[..., :2] + box[..., 2:] - want[..., :2] - want[..., 2:]).square().sum(-1) / 4
    shape = lambda v: torch.atan((v[..., 2] - v[..., 0]) / (v[..., 3] - v[..., 1] + 1e-7))
    v = 4 / math.pi**2 * (shape(want) - shape(box)).square()
    with torch.no_grad():
        alpha = v / (v - iou + 1 + 1e-7)
    ciou = iou - gap / (hull.square().sum(-1) + 1e-7) - v * alpha.detach()
    score = logits.sigmoid()
    good = (inter > 0).float().unsqueeze(-1) * torch.tensor([1.0, 0, 0])
    focal = (F.binary_cross_entropy_with_logits(logits, good, reduction="none") * (good - score).abs().pow(2)).mean()
    return (1 - ciou).mean() + focal


def anchored_grid(s, x):
    return s.head(F.silu(s.norm(s.c1(x)))).flatten(2).transpose(1, 2)


def queried(s, x):
    """DETR without matching: learned queries, an auxiliary head per layer, GIoU with given boxes."""
    y = s.first(x)
    b, c, h, w = y.shape
    ys = torch.linspace(0, 1, h)[:, None].expand(h, w).flatten()
    xs = torch.linspace(0, 1, w)[None].expand(h, w).flatten()
    pos = torch.stack([xs.sin(), xs.cos(), ys.sin(), ys.cos()], -1).repeat(1, 2)
    memory = y.flatten(2).transpose(1, 2)
    q, out = torch.zeros(b, 3, c), []
    for layer in s.layers:
        q = layer(q + s.queries, memory + pos)
        out.append(s.boxes(s.norm(q)).sigmoid())
    return torch.stack(out).sum(0)


def masked_regions(s, x, boxes):
    """Mask heads over regions of given boxes."""
    import torchvision
    y = F.relu(s.first(x))
    lo, size = boxes[..., :2].sigmoid() * 4, boxes[..., 2:].sigmoid() * 3 + 1
    rows = torch.cat([torch.arange(x.shape[0])[:, None, None].float().expand(-1, boxes.shape[1], 1), lo, lo + size], -1).flatten(0, 1)
    r = torchvision.ops.roi_align(y, rows, 4, 1.0, 2, True)
    return s.last(F.relu(s.up(F.relu(s.body(r))))).view(x.shape[0], -1, 3, 8, 8)


def two_ways(s, x):
    """HRNet: two resolutions that exchange features."""
    a = F.relu(s.a1(x))
    b = F.relu(s.b1(a))
    a, b = F.relu(s.na(s.a2(a) + F.interpolate(s.ba(b), scale_factor=2, mode="bilinear", align_corners=True))), F.relu(s.nb(s.b2(b) + s.ab(a)))
    return s.head(torch.cat([a, F.interpolate(b, size=a.shape[-2:], mode="bilinear", align_corners=False)], 1))


def capsules(s, x):
    squash = lambda v: v * v.square().sum(-1, keepdim=True) / (1 + v.square().sum(-1, keepdim=True)) / (v.square().sum(-1, keepdim=True) + 1e-8).sqrt()
    u = squash(s.first(x).flatten(1).unflatten(1, (-1, 4)))
    votes = torch.einsum("bic,ijcd->bijd", u, s.w)
    logits = torch.zeros(x.shape[0], u.shape[1], 3)
    for k in range(3):
        v = squash((logits.softmax(2)[..., None] * votes).sum(1))
        if k < 2:
            logits = logits + (votes.detach() * v[:, None]).sum(-1)
    return v.norm(dim=-1)


def gated_units(s, x):
    """gMLP over patches, SGU."""
    y = s.patch(x).flatten(2).transpose(1, 2)
    u, v = F.gelu(s.up(s.norm(y))).chunk(2, -1)
    v = s.spatial(s.inner(v).transpose(1, 2)).transpose(1, 2)
    return s.head((y + s.down(u * v)).mean(1))


def large_kernels(s, x):
    y = s.first(x)
    a = s.mix(s.wide(F.pad(s.near(y), (6, 6, 6, 6))))
    return s.head((y * a).flatten(2).transpose(1, 2).mean(1))


def attentive_pool(s, x):
    """GeM pooling and a blur pool with reflection padding."""
    y = F.relu(s.norm(s.first(x)))
    y = F.conv2d(F.pad(y, (1, 2, 1, 2), mode="reflect"), s.blur.repeat(4, 1, 1, 1), stride=2, groups=4)
    return s.head(F.avg_pool2d(y.clamp(min=1e-6).pow(s.p), y.shape[-2:]).pow(1.0 / s.p).flatten(1))


SHIFT_REGIONS = torch.tensor([[0] * 4 + [1] * 2 + [2] * 2]).repeat(8, 1) + 3 * torch.tensor([0] * 4 + [1] * 2 + [2] * 2)[:, None]
SHIFT_WINDOWS = SHIFT_REGIONS.view(2, 4, 2, 4).permute(0, 2, 1, 3).reshape(4, 16)
SHIFT_MASK = torch.where(SHIFT_WINDOWS[:, None] != SHIFT_WINDOWS[:, :, None], -100.0, 0.0)
GRID = torch.stack(torch.meshgrid(torch.arange(4), torch.arange(4), indexing="ij")).flatten(1)
DISTANCES = ((GRID[:, :, None] - GRID[:, None]) + 3).mul(torch.tensor([7, 1])[:, None, None]).sum(0)

# name: (module, its inputs, shape of the output of one sample (None: the output is the objective), class axis)
IMAGES = {
    "response": (lambda: Net(response, stem=nn.Conv2d(3, 4, 2, 2), deep=conv(4, 4, 7, groups=4), norm=nn.LayerNorm(4), up=lin(4, 8), gamma=weight(1, 1, 1, 8), beta=weight(1, 1, 1, 8), down=lin(8, 4), head=lin(4, 3)), image, (3,), 1),
    "mobile": (lambda: Net(mobile, first=conv(3, 8), body=block(8), last=conv(16, 8), head=lin(8, 3)), image, (3,), 1),
    "shifted": (lambda: Net(shifted, first=conv(3, 8), norm=nn.LayerNorm(8), qkv=lin(8, 24), scale=weight(2, 1, 1), table=weight(49, 2), index=DISTANCES, mask=SHIFT_MASK, out=lin(8, 8), head=lin(8, 3)), image, (3,), 1),
    "perceiver": (lambda: Net(perceiver, latents=weight(1, 3, 8), embed=lin(5, 4), waves=torch.randn(1, 8, 4), cross=nn.MultiheadAttention(8, 1, batch_first=True), n1=nn.LayerNorm(8), n2=nn.LayerNorm(8), body=nn.Sequential(nn.LayerNorm(8), lin(8, 16), nn.GELU(), lin(16, 8)), head=lin(8, 3)), steps, (3,), 1),
    "transformed": (lambda: Net(transformed, time=mlp(8, 8, 8), patch=nn.Conv2d(2, 8, 2, 2), places=torch.randn(1, 16, 8), ada=lin(8, 48), attend=nn.MultiheadAttention(8, 2, batch_first=True), mlp=nn.Sequential(lin(8, 16), nn.GELU(approximate="tanh"), lin(16, 8)), last=lin(8, 16), out=lin(8, 8)), lambda b: {"x": pixels(b, 2, 8, 8), "t": classes(50, b)}, (2, 8, 8), 0),
    "anchored": (lambda: Net(anchored, c1=conv(3, 4, stride=2), c2=conv(4, 6, stride=2), l1=conv(4, 4, 1), l2=conv(6, 4, 1), o1=conv(4, 4), o2=conv(4, 4), tower=conv(4, 4), norm=nn.GroupNorm(2, 4), head=conv(4, 14)), image, (40, 7), 2),
    "boxes_loss": (lambda: Net(boxes_loss, c1=conv(3, 6, stride=2, bias=False), norm=nn.BatchNorm2d(6), head=conv(6, 19, 1)), lambda b: {"x": pixels(b, 3, 8, 8), "target": pixels(b, 4)}, None, 0),
    "queried": (lambda: Net(queried, first=conv(3, 8, stride=2), queries=weight(3, 8), layers=L(nn.TransformerDecoderLayer(8, 2, 16, 0.0, batch_first=True) for _ in range(2)), norm=nn.LayerNorm(8), boxes=mlp(8, 8, 4)), image, (3, 4), 0),
    "masked_regions": (lambda: Net(masked_regions, first=conv(3, 4), body=conv(4, 4), up=nn.ConvTranspose2d(4, 4, 2, 2), last=conv(4, 3, 1)), lambda b: {"x": pixels(b, 3, 8, 8), "boxes": pixels(b, 2, 4)}, (2, 3, 8, 8), 0),
    "two_ways": (lambda: Net(two_ways, a1=conv(3, 4), b1=conv(4, 6, stride=2), a2=conv(4, 4), b2=conv(6, 6), ba=conv(6, 4, 1), ab=conv(4, 6, stride=2), na=nn.BatchNorm2d(4), nb=nn.BatchNorm2d(6), head=conv(10, 3, 1)), image, (3, 8, 8), 1),
    "capsules": (lambda: Net(capsules, first=conv(3, 8, 3, stride=2), w=weight(32, 3, 4, 5)), image, (3,), 0),
    "gated_units": (lambda: Net(gated_units, patch=nn.Conv2d(3, 6, 2, 2), norm=nn.LayerNorm(6), up=lin(6, 16), inner=nn.LayerNorm(8), spatial=lin(16, 16), down=lin(8, 6), head=lin(6, 3)), image, (3,), 1),
    "large_kernels": (lambda: Net(large_kernels, first=conv(3, 4), near=conv(4, 4, 5, groups=4), wide=conv(4, 4, 5, padding=0, dilation=3, groups=4), mix=conv(4, 4, 1), head=lin(4, 3)), image, (3,), 1),
    "attentive_pool": (lambda: Net(attentive_pool, first=conv(3, 4, bias=False), norm=nn.BatchNorm2d(4), blur=torch.tensor([[1.0, 3, 3, 1]]).t() @ torch.tensor([[1.0, 3, 3, 1]]) / 64, p=P(torch.tensor([3.0])), head=lin(4, 3)), image, (3,), 1),
}


def cases():
    return two_styles(lambda name, again: drawn(name, IMAGES[name], again), IMAGES)
