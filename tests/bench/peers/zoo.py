"""Models of many kinds that users bring besides the ten workloads, at sizes that two cores train in a fraction of a second."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torchvision


class MnistCnn(nn.Module):
    """PyTorch's own example."""

    def __init__(self):
        super().__init__()
        self.conv1, self.conv2, self.fc1, self.fc2 = nn.Conv2d(1, 32, 3), nn.Conv2d(32, 64, 3), nn.Linear(9216, 128), nn.Linear(128, 10)

    def forward(self, x):
        x = F.dropout(F.max_pool2d(F.relu(self.conv2(F.relu(self.conv1(x)))), 2), 0.25)
        return self.fc2(F.dropout(F.relu(self.fc1(x.flatten(1))), 0.5))


class Recurrent(nn.Module):
    def __init__(self, kind, both=False):
        super().__init__()
        self.words = nn.Embedding(1000, 64)
        self.net = getattr(nn, kind)(64, 128, 2, batch_first=True, bidirectional=both)
        self.head = nn.Linear(256 if both else 128, 10)

    def forward(self, x):
        return self.head(self.net(self.words(x))[0][:, -1])


class TemporalConvolutions(nn.Module):
    def __init__(self):
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv1d(i, 64, 3, padding=2**n, dilation=2**n) for n, i in enumerate((8, 64, 64, 64)))
        self.norms, self.head = nn.ModuleList(nn.BatchNorm1d(64) for _ in range(4)), nn.Linear(64, 10)

    def forward(self, x):
        for conv, norm in zip(self.convs, self.norms):
            x = F.relu(norm(conv(x)))
        return self.head(x.mean(-1))


class TextCnn(nn.Module):
    """Kim, "Convolutional Neural Networks for Sentence Classification", 2014."""

    def __init__(self):
        super().__init__()
        self.words, self.head = nn.Embedding(1000, 64), nn.Linear(300, 10)
        self.convs = nn.ModuleList(nn.Conv1d(64, 100, width) for width in (3, 4, 5))

    def forward(self, x):
        x = self.words(x).transpose(1, 2)
        return self.head(F.dropout(torch.cat([F.relu(conv(x)).amax(-1) for conv in self.convs], 1), 0.5))


class VariationalEncoder(nn.Module):
    """The encoder and decoder of a variational autoencoder, followed by 10 classes."""

    def __init__(self):
        super().__init__()
        self.encode, self.mean, self.log_variance = nn.Linear(784, 400), nn.Linear(400, 20), nn.Linear(400, 20)
        self.decode, self.head = nn.Linear(20, 400), nn.Linear(400, 10)

    def forward(self, x):
        h = F.relu(self.encode(x))
        mean, deviation = self.mean(h), (0.5 * self.log_variance(h)).exp()
        return self.head(F.relu(self.decode(mean + torch.randn_like(mean) * deviation)))


class PointNet(nn.Module):
    def __init__(self):
        super().__init__()
        widths = (3, 64, 128, 512)
        self.convs = nn.ModuleList(nn.Conv1d(i, o, 1) for i, o in zip(widths, widths[1:]))
        self.norms, self.head = nn.ModuleList(nn.BatchNorm1d(o) for o in widths[1:]), nn.Linear(512, 10)

    def forward(self, x):
        for conv, norm in zip(self.convs, self.norms):
            x = F.relu(norm(conv(x)))
        return self.head(x.amax(-1))


class Generator(nn.Module):
    """DCGAN's networks for 32 x 32, followed by 10 classes."""

    def __init__(self):
        super().__init__()
        layers = []
        for i, o, stride, pad in ((64, 128, 1, 0), (128, 64, 2, 1), (64, 32, 2, 1)):
            layers += [nn.ConvTranspose2d(i, o, 4, stride, pad), nn.BatchNorm2d(o), nn.ReLU()]
        self.net, self.head = nn.Sequential(*layers, nn.ConvTranspose2d(32, 3, 4, 2, 1), nn.Tanh()), nn.Linear(3072, 10)

    def forward(self, x):
        return self.head(self.net(x[:, :, None, None]).flatten(1))


class Video(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.norm1, self.conv2, self.norm2 = nn.Conv3d(1, 16, 3, padding=1), nn.BatchNorm3d(16), nn.Conv3d(16, 32, 3, padding=1), nn.BatchNorm3d(32)
        self.head = nn.Linear(32, 10)

    def forward(self, x):
        x = F.max_pool3d(F.relu(self.norm1(self.conv1(x))), 2)
        return self.head(F.max_pool3d(F.relu(self.norm2(self.conv2(x))), 2).mean((2, 3, 4)))


class Recommender(nn.Module):
    """Naumov et al., "Deep Learning Recommendation Model", 2019: eight tables, their pairwise products, an MLP."""

    def __init__(self):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(10000, 32) for _ in range(8))
        self.top = nn.Sequential(nn.Linear(64 + 256, 256), nn.ReLU(), nn.Linear(256, 10))

    def forward(self, x):
        v = torch.stack([table(x[:, i]) for i, table in enumerate(self.tables)], 1)
        return self.top(torch.cat([(v @ v.transpose(1, 2)).flatten(1), v.flatten(1)], 1))


def normalised_perceptron():
    layers = []
    for i in (100, 256):
        layers += [nn.Linear(i, 256), nn.BatchNorm1d(256), nn.ReLU(), nn.Dropout(0.2)]
    return nn.Sequential(*layers, nn.Linear(256, 10))


def vision(name, **options):
    return lambda: getattr(torchvision.models, name)(num_classes=10, **options)


def small_vit():
    return torchvision.models.VisionTransformer(image_size=96, patch_size=16, num_layers=6, num_heads=4, hidden_dim=192, mlp_dim=768, num_classes=10)
