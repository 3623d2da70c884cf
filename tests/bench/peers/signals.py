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


class TasNet(nn.Module):
    """The separator of Luo and Mesgarani's Conv-TasNet (2019): dilated convolutions with a filter for each channel, between 1 x 1 ones."""

    def __init__(self, channels=64, hidden=128, blocks=6):
        super().__init__()
        self.encoder = nn.Conv1d(1, channels, 16, 8)
        self.blocks = nn.ModuleList(nn.Sequential(
            nn.Conv1d(channels, hidden, 1), nn.PReLU(), nn.GroupNorm(1, hidden),
            nn.Conv1d(hidden, hidden, 3, padding=2**i, dilation=2**i, groups=hidden), nn.PReLU(), nn.GroupNorm(1, hidden),
            nn.Conv1d(hidden, channels, 1)) for i in range(blocks))
        self.head = nn.Linear(channels, 10)

    def forward(self, x):
        x = F.relu(self.encoder(x))
        for block in self.blocks:
            x = x + block(x)
        return self.head(x.mean(-1))


class X3d(nn.Module):
    """Blocks of Feichtenhofer's X3D (2020) for [N, 3, D, H, W]: 3 x 3 x 3 windows with a filter for each channel."""

    def __init__(self):
        super().__init__()
        def block(i, hidden, o, stride):
            return nn.Sequential(nn.Conv3d(i, hidden, 1, bias=False), nn.BatchNorm3d(hidden), nn.ReLU(),
                                 nn.Conv3d(hidden, hidden, 3, (1, stride, stride), 1, groups=hidden, bias=False), nn.BatchNorm3d(hidden), nn.SiLU(),
                                 nn.Conv3d(hidden, o, 1, bias=False), nn.BatchNorm3d(o), nn.ReLU())
        self.net = nn.Sequential(nn.Conv3d(3, 24, (1, 3, 3), (1, 2, 2), (0, 1, 1), bias=False), nn.BatchNorm3d(24), nn.ReLU(),
                                 block(24, 54, 24, 1), block(24, 108, 48, 2), block(48, 108, 48, 1))
        self.head = nn.Linear(48, 10)

    def forward(self, x):
        return self.head(self.net(x).mean((2, 3, 4)))


class Atrous(nn.Module):
    """The head of DeepLabv3+ (Chen et al. 2018): convolutions with a dilated filter for each channel."""

    def __init__(self, channels=64):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, channels, 3, 4, 1, bias=False), nn.BatchNorm2d(channels), nn.ReLU())
        self.branches = nn.ModuleList(nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=d, dilation=d, groups=channels, bias=False), nn.BatchNorm2d(channels), nn.ReLU(),
            nn.Conv2d(channels, channels, 1, bias=False), nn.BatchNorm2d(channels), nn.ReLU()) for d in (1, 6, 12, 18))
        self.head = nn.Linear(4 * channels, 10)

    def forward(self, x):
        x = self.stem(x)
        return self.head(torch.cat([branch(x) for branch in self.branches], 1).mean((2, 3)))
