"""Networks over volumes, clips and signals, most of whose layers have few channels."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class VolumeUNet(nn.Module):
    """A small 3-D U-Net for [N, 1, D, H, W] with instance normalization, a mean and 10 classes."""

    def __init__(self, w=8):
        super().__init__()
        def double(i, o):
            return nn.Sequential(*(m for a in (i, o) for m in (nn.Conv3d(a, o, 3, padding=1), nn.InstanceNorm3d(o, affine=True), nn.LeakyReLU(0.01))))
        self.down = nn.ModuleList(double(i, o) for i, o in ((1, w), (w, 2 * w), (2 * w, 4 * w)))
        self.up = nn.ModuleList(nn.ConvTranspose3d(2 * o, o, 2, 2) for o in (2 * w, w))
        self.joins, self.out, self.head = nn.ModuleList(double(2 * o, o) for o in (2 * w, w)), nn.Conv3d(w, 2, 1), nn.Linear(2, 10)

    def forward(self, x):
        a = self.down[0](x)
        b = self.down[1](F.max_pool3d(a, 2))
        y = self.joins[0](torch.cat([self.up[0](self.down[2](F.max_pool3d(b, 2))), b], 1))
        y = self.joins[1](torch.cat([self.up[1](y), a], 1))
        return self.head(self.out(y).mean((2, 3, 4)))


class Clips(nn.Module):
    """Convolutions over space, then over time, as in R(2+1)D."""

    def __init__(self):
        super().__init__()
        layers = []
        for i, o, s in ((3, 16, 1), (16, 32, 2), (32, 64, 2)):
            layers += [nn.Conv3d(i, o, (1, 3, 3), (1, s, s), (0, 1, 1), bias=False), nn.BatchNorm3d(o), nn.ReLU(),
                       nn.Conv3d(o, o, (3, 1, 1), (s, 1, 1), (1, 0, 0), bias=False), nn.BatchNorm3d(o), nn.ReLU()]
        self.net, self.head = nn.Sequential(*layers), nn.Linear(64, 10)

    def forward(self, x):
        return self.head(self.net(x).mean((2, 3, 4)))


class EegNet(nn.Module):
    """Lawhern et al. 2018, for 22 electrodes and 512 points: a filter over time, one over electrodes, and a separable convolution."""

    def __init__(self, electrodes=22, filters=8, depth=2):
        super().__init__()
        o = filters * depth
        self.net = nn.Sequential(
            nn.Conv2d(1, filters, (1, 64), padding=(0, 32), bias=False), nn.BatchNorm2d(filters),
            nn.Conv2d(filters, o, (electrodes, 1), groups=filters, bias=False), nn.BatchNorm2d(o), nn.ELU(), nn.AvgPool2d((1, 4)), nn.Dropout(0.5),
            nn.Conv2d(o, o, (1, 16), padding=(0, 8), groups=o, bias=False), nn.Conv2d(o, o, 1, bias=False), nn.BatchNorm2d(o), nn.ELU(),
            nn.AvgPool2d((1, 8)), nn.Dropout(0.5), nn.Flatten())
        self.head = nn.Linear(16 * o, 10)

    def forward(self, x):
        return self.head(self.net(x[:, None]))
