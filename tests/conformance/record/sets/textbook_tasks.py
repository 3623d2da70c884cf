"""Images as tutorials and example repositories use them for other tasks than classification: several inputs, several outputs, losses in the
module. See textbook.py."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

from case import classes, pixels
from sets.everyday import styles
from sets.families import Net, weight
from sets.further import L, conv, image, lin

pair = lambda b: {"x": pixels(b, 3, 8, 8), "other": pixels(b, 3, 8, 8)}
grey = lambda b: {"x": pixels(b, 1, 12, 12)}


class StyleNet(nn.Module):
    """fast_neural_style: reflected padding, instance norms, upsampling by nearest, frozen features, Gram matrices."""

    def __init__(self):
        super().__init__()
        self.pad = nn.ReflectionPad2d(1)
        self.conv1, self.in1 = nn.Conv2d(3, 4, 3, 1), nn.InstanceNorm2d(4, affine=True)
        self.conv2, self.in2 = nn.Conv2d(4, 6, 3, 2), nn.InstanceNorm2d(6, affine=True)
        self.conv3, self.out = nn.Conv2d(6, 4, 3, 1), nn.Conv2d(4, 3, 3, 1)
        self.features = nn.Conv2d(3, 5, 3)

    @staticmethod
    def gram(y):
        (b, ch, h, w) = y.size()
        features = y.view(b, ch, w * h)
        return features.bmm(features.transpose(1, 2)) / (ch * h * w)

    def forward(self, x, style):
        y = F.relu(self.in1(self.conv1(self.pad(x))))
        y = F.relu(self.in2(self.conv2(self.pad(y))))
        y = torch.nn.functional.interpolate(y, mode="nearest", scale_factor=2)
        y = self.out(self.pad(F.relu(self.conv3(self.pad(y)))))
        fy, fx = F.relu(self.features(y)), F.relu(self.features(x))
        n_batch = len(x)
        style_loss = F.mse_loss(self.gram(fy), self.gram(F.relu(self.features(style)))[:n_batch, :, :])
        tv = torch.sum(torch.abs(y[:, :, :, :-1] - y[:, :, :, 1:])) + torch.sum(torch.abs(y[:, :, :-1, :] - y[:, :, 1:, :]))
        return y, F.mse_loss(fy, fx) + 3 * style_loss + 1e-3 * tv


class ForwardForward(nn.Module):
    """mnist_forward_forward: each layer has its own loss over positive and negative samples, and passes nothing back."""

    def __init__(self):
        super().__init__()
        self.layers = L([lin(6, 8), lin(8, 5)])

    def forward(self, pos, neg):
        total = 0
        for layer in self.layers:
            out = []
            for x in (pos, neg):
                direction = x / (x.norm(2, 1, keepdim=True) + 1e-4)
                out.append(F.relu(torch.mm(direction, layer.weight.T) + layer.bias.unsqueeze(0)))
            g_pos, g_neg = out[0].pow(2).mean(1), out[1].pow(2).mean(1)
            total = total + torch.log(1 + torch.exp(torch.cat([-g_pos + 2.0, g_neg - 2.0]))).mean()
            pos, neg = out[0].detach(), out[1].detach()
        return total


class ExampleVAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc21, self.fc22 = lin(144, 16), lin(16, 4), lin(16, 4)
        self.fc3, self.fc4 = lin(4, 16), lin(16, 144)

    def forward(self, x, eps):
        h1 = F.relu(self.fc1(x.view(-1, 144)))
        mu, logvar = self.fc21(h1), self.fc22(h1)
        z = mu + eps * torch.exp(0.5 * logvar)
        recon = torch.sigmoid(self.fc4(F.relu(self.fc3(z))))
        bce = F.binary_cross_entropy(recon, x.view(-1, 144).sigmoid(), reduction="sum")
        kld = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
        return recon, (bce + kld) / 100


class SiameseExample(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 4, 3, stride=2), nn.ReLU(inplace=True), nn.Conv2d(4, 6, 3))
        self.fc = nn.Sequential(nn.Linear(12, 8), nn.ReLU(inplace=True), nn.Linear(8, 1))
        self.sigmoid = nn.Sigmoid()

    def once(self, x):
        out = self.body(x)
        return out.view(out.size()[0], -1)

    def forward(self, input1, input2, label):
        output = torch.cat((self.once(input1), self.once(input2)), 1)
        return F.binary_cross_entropy(self.sigmoid(self.fc(output)).squeeze(), label)


class SpatialTransformer(nn.Module):
    """The tutorial: a localization network starts at the identity transform."""

    def __init__(self):
        super().__init__()
        self.localization = nn.Sequential(nn.Conv2d(1, 4, 3), nn.MaxPool2d(2, stride=2), nn.ReLU(True), nn.Conv2d(4, 4, 2), nn.MaxPool2d(2, stride=2), nn.ReLU(True))
        self.fc_loc = nn.Sequential(nn.Linear(4 * 2 * 2, 8), nn.ReLU(True), nn.Linear(8, 3 * 2))
        self.fc_loc[2].bias.data.copy_(torch.tensor([1, 0.1, 0.03, -0.1, 1, 0.05]))
        self.conv1, self.fc1 = nn.Conv2d(1, 4, 3), nn.Linear(100, 4)

    def forward(self, x):
        xs = self.localization(x)
        theta = self.fc_loc(xs.view(-1, 4 * 2 * 2)).view(-1, 2, 3)
        x = F.grid_sample(x, F.affine_grid(theta, x.size(), align_corners=False), align_corners=False)
        x = F.relu(F.max_pool2d(self.conv1(x), 2)).view(-1, 100)
        return F.log_softmax(self.fc1(x), dim=1)


class UnetDiffusion(nn.Module):
    """Sinusoidal time embedding, FiLM, group norms, attention at the lowest resolution, learned up and down sampling."""

    def __init__(self):
        super().__init__()
        self.time = nn.Sequential(lin(8, 12), nn.SiLU(), lin(12, 12))
        self.in_, self.down = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 4, 2, 1)
        self.n1, self.c1, self.emb = nn.GroupNorm(4, 8), nn.Conv2d(8, 8, 3, padding=1), lin(12, 16)
        self.na, self.qkv, self.pa = nn.GroupNorm(1, 8), nn.Conv1d(8, 24, 1), nn.Conv1d(8, 8, 1)
        self.up, self.out = nn.ConvTranspose2d(8, 8, 4, 2, 1), nn.Conv2d(16, 3, 3, padding=1)

    def forward(self, x, t):
        freqs = torch.exp(-math.log(10000) * torch.arange(start=0, end=4, dtype=torch.float32) / 4)
        args = t[:, None].to(x.dtype) * freqs[None].to(x.dtype)
        emb = self.time(torch.cat([torch.cos(args), torch.sin(args)], dim=-1))
        h0 = self.in_(x)
        h = self.down(h0)
        scale, shift = torch.chunk(self.emb(F.silu(emb))[..., None, None], 2, dim=1)
        h = h + self.c1(F.silu(self.n1(h) * (1 + scale) + shift))
        b, c, *spatial = h.shape
        z = h.reshape(b, c, -1)
        q, k, v = self.qkv(self.na(z)).reshape(b * 2, 12, -1).split(4, dim=1)
        s = 1 / math.sqrt(math.sqrt(4))
        a = torch.softmax(torch.einsum("bct,bcs->bts", q * s, k * s), dim=-1).type(h.dtype)
        h = (z + self.pa(torch.einsum("bts,bcs->bct", a, v).reshape(b, -1, z.shape[-1]))).reshape(b, c, *spatial)
        return self.out(torch.cat([self.up(h), h0], 1))


class Yolo(nn.Module):
    """Detection head: per-scale predictions decoded with grids and anchors, losses over objectness, boxes by GIoU and classes."""

    def __init__(self):
        super().__init__()
        self.body, self.more = nn.Conv2d(3, 8, 3, 2, 1), nn.Conv2d(8, 8, 3, 2, 1)
        self.heads = L([nn.Conv2d(8, 2 * 7, 1), nn.Conv2d(8, 2 * 7, 1)])
        self.register_buffer("anchors", torch.tensor([[[1.0, 1.5], [2.0, 1.0]], [[3.0, 2.0], [2.5, 4.0]]]))

    def forward(self, x):
        p = F.leaky_relu(self.body(x), 0.1)
        q = F.leaky_relu(self.more(p), 0.1)
        z = []
        for i, f in enumerate((p, q)):
            y = self.heads[i](f)
            bs, _, ny, nx = y.shape
            y = y.view(bs, 2, 7, ny, nx).permute(0, 1, 3, 4, 2).contiguous()
            yv, xv = torch.meshgrid(torch.arange(ny), torch.arange(nx), indexing="ij")
            grid = torch.stack((xv, yv), 2).expand(1, 2, ny, nx, 2).float()
            xy, wh, conf = y.sigmoid().split((2, 2, 3), 4)
            xy = (xy * 2 + grid - 0.5) * (2 ** (i + 1))
            wh = (wh * 2) ** 2 * self.anchors[i].view(1, 2, 1, 1, 2)
            z.append(torch.cat((xy, wh, conf), 4).view(bs, 2 * nx * ny, 7))
        return torch.cat(z, 1)


class GIoU(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(lin(6, 12), nn.ReLU(), lin(12, 8))

    def forward(self, x, box):
        a = self.net(x).view(-1, 2, 4).sigmoid()
        b = box.view(-1, 2, 4).sigmoid()
        ax1, ay1, ax2, ay2 = a[..., 0] - a[..., 2] / 2, a[..., 1] - a[..., 3] / 2, a[..., 0] + a[..., 2] / 2, a[..., 1] + a[..., 3] / 2
        bx1, by1, bx2, by2 = b[..., 0] - b[..., 2] / 2, b[..., 1] - b[..., 3] / 2, b[..., 0] + b[..., 2] / 2, b[..., 1] + b[..., 3] / 2
        inter = (torch.min(ax2, bx2) - torch.max(ax1, bx1)).clamp(0) * (torch.min(ay2, by2) - torch.max(ay1, by1)).clamp(0)
        union = a[..., 2] * a[..., 3] + b[..., 2] * b[..., 3] - inter + 1e-7
        cw, ch = torch.max(ax2, bx2) - torch.min(ax1, bx1), torch.max(ay2, by2) - torch.min(ay1, by1)
        c2 = cw**2 + ch**2 + 1e-7
        rho2 = ((bx1 + bx2 - ax1 - ax2) ** 2 + (by1 + by2 - ay1 - ay2) ** 2) / 4
        v = (4 / math.pi**2) * torch.pow(torch.atan(b[..., 2] / b[..., 3]) - torch.atan(a[..., 2] / a[..., 3]), 2)
        iou = inter / union
        with torch.no_grad():
            alpha = v / (v - iou + (1 + 1e-7))
        return (1.0 - (iou - (rho2 / c2 + v * alpha))).mean(), (1 - (iou - (cw * ch + 1e-7 - union) / (cw * ch + 1e-7))).mean()


class PatchGAN(nn.Module):
    """pix2pix: generator with skips through dropout-free U-Net blocks, a critic with spectral norms in evaluation form, both losses."""

    def __init__(self):
        super().__init__()
        self.d1, self.d2 = nn.Conv2d(3, 4, 4, 2, 1), nn.Conv2d(4, 8, 4, 2, 1, bias=False)
        self.u2, self.u1 = nn.ConvTranspose2d(8, 4, 4, 2, 1, bias=False), nn.ConvTranspose2d(8, 3, 4, 2, 1)
        self.n2 = nn.InstanceNorm2d(4)
        self.critic = nn.Sequential(nn.Conv2d(6, 4, 4, 2, 1), nn.LeakyReLU(0.2, True), nn.Conv2d(4, 1, 2, 1, 1))

    def forward(self, x, other):
        e1 = self.d1(x)
        e2 = self.d2(F.leaky_relu(e1, 0.2))
        y = torch.tanh(self.u1(F.relu(torch.cat([e1, self.n2(self.u2(F.relu(e2)))], 1))))
        fake = self.critic(torch.cat([x, y], 1))
        gan = F.binary_cross_entropy_with_logits(fake, torch.tensor(1.0).expand_as(fake))
        return gan + 10.0 * F.l1_loss(y, other)


class SegHeads(nn.Module):
    """PSP and ASPP pooling at several rates, resized to the input with align_corners, an auxiliary head, ignored pixels in a Dice loss."""

    def __init__(self):
        super().__init__()
        self.body, self.aux = nn.Conv2d(3, 6, 3, 2, 1), nn.Conv2d(6, 3, 1)
        self.stages = L(nn.Conv2d(6, 2, 1, bias=False) for _ in range(3))
        self.rates = L([nn.Conv2d(12, 3, 1), nn.Conv2d(12, 3, 3, padding=2, dilation=2)])
        self.head = nn.Conv2d(6, 3, 1)

    def forward(self, x):
        f = F.relu(self.body(x))
        size = f.shape[-2:]
        priors = [F.interpolate(s(F.adaptive_avg_pool2d(f, n)), size=size, mode="bilinear", align_corners=True) for s, n in zip(self.stages, (1, 2, 3))]
        f2 = torch.cat(priors + [f], 1)
        y = self.head(torch.cat([r(f2) for r in self.rates], 1))
        up = lambda t: F.interpolate(t, x.shape[-2:], mode="bicubic", align_corners=False)
        return up(y), up(self.aux(f))


class CapsNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.primary = nn.Conv2d(1, 8, 5), L(nn.Conv2d(8, 4, 3, 2) for _ in range(3))
        self.W = weight(1, 27, 3, 5, 3)
        self.decoder = nn.Sequential(lin(15, 12), nn.ReLU(True), lin(12, 144), nn.Sigmoid())

    @staticmethod
    def squash(t, dim=-1):
        n = (t**2).sum(dim=dim, keepdim=True)
        return n / (1 + n) * t / torch.sqrt(n + 1e-8)

    def forward(self, x, label):
        h = F.relu(self.conv(x))
        u = torch.cat([m(h).view(x.size(0), -1, 1) for m in self.primary], dim=-1)
        u = self.squash(u[:, :27])
        priors = (self.W @ u[:, :, None, :, None]).squeeze(-1)
        logits = torch.zeros(*priors.size()[:3], 1)
        for i in range(3):
            out = self.squash((logits.softmax(2) * priors).sum(dim=1, keepdim=True))
            if i != 2:
                logits = logits + (priors * out).sum(dim=-1, keepdim=True)
        out = out.squeeze(1)
        lengths = (out**2).sum(-1) ** 0.5
        onehot = torch.eye(3).index_select(dim=0, index=label)
        margin = onehot * F.relu(0.9 - lengths) ** 2 + 0.5 * (1.0 - onehot) * F.relu(lengths - 0.1) ** 2
        recon = self.decoder((out * onehot[:, :, None]).reshape(x.size(0), -1))
        return lengths, margin.sum() / x.size(0) + 0.0005 * F.mse_loss(recon, x.view(x.size(0), -1), reduction="sum")


class DeepLabLike(nn.Module):
    """Keypoints: heat maps by transposed convolution, soft-argmax coordinates and a heat map loss with visibility."""

    def __init__(self):
        super().__init__()
        self.body, self.up, self.final = nn.Conv2d(3, 6, 3, 2, 1), nn.ConvTranspose2d(6, 4, 4, 2, 1, bias=False), nn.Conv2d(4, 3, 1)

    def forward(self, x, seen):
        y = self.final(F.relu(self.up(F.relu(self.body(x)))))
        n, j, h, w = y.shape
        p = F.softmax(y.reshape(n, j, -1) * 2.0, dim=2).reshape(n, j, h, w)
        px = (p.sum(dim=2) * torch.arange(w).type_as(p)).sum(dim=2, keepdim=True) / float(w) - 0.5
        py = (p.sum(dim=3) * torch.arange(h).type_as(p)).sum(dim=2, keepdim=True) / float(h) - 0.5
        visible = (seen > 0).type_as(p).unsqueeze(-1)
        return torch.cat((px, py), dim=2) * visible, y


TEXTBOOK = {
    "style_net": (StyleNet, lambda b: {"x": pixels(b, 3, 8, 8), "style": pixels(b, 3, 8, 8)}, [((3, 8, 8), 0), None]),
    "forward_forward": (ForwardForward, lambda b: {"pos": pixels(b, 6), "neg": pixels(b, 6)}, [None]),
    "example_vae": (ExampleVAE, lambda b: {"x": pixels(b, 1, 12, 12), "eps": pixels(b, 4)}, [((144,), 0), None]),
    "siamese_example": (SiameseExample, lambda b: {"input1": pixels(b, 3, 8, 8), "input2": pixels(b, 3, 8, 8), "label": (pixels(b) > 0).float()}, [None]),
    "spatial_transformer": (SpatialTransformer, grey, [((4,), 1)]),
    "unet_diffusion": (UnetDiffusion, lambda b: {"x": pixels(b, 3, 8, 8), "t": classes(100, b)}, [((3, 8, 8), 0)]),
    "yolo_head": (Yolo, image, [((40, 7), 0)]),
    "iou_family": (GIoU, lambda b: {"x": pixels(b, 6), "box": pixels(b, 8)}, [None, None]),
    "patch_gan": (PatchGAN, pair, [None]),
    "segmentation_heads": (SegHeads, image, [((3, 8, 8), 1), ((3, 8, 8), 1)]),
    "caps_net": (CapsNet, lambda b: {"x": pixels(b, 1, 12, 12), "label": classes(3, b)}, [((3,), 0), None]),
    "soft_keypoints": (DeepLabLike, lambda b: {"x": pixels(b, 3, 8, 8), "seen": pixels(b, 3)}, [((3, 2), 0), ((3, 8, 8), 0)]),
}


def cases():
    return styles(TEXTBOOK, oldest=13)
