"""Graphs in which the data determine the number of elements: masks as indices, and experts that process some of the samples."""
import collections

import torch
import torch.nn as nn
import torchvision

from case import CE, Case, image_classes, pixels, token_classes, vector_classes
from optimizers import optimizer


class MaskedMean(nn.Module):
    """Adds the mean of the samples whose first number is positive."""

    def __init__(self):
        super().__init__()
        self.a, self.out = nn.Linear(6, 6), nn.Linear(6, 4)

    def forward(self, x):
        h = torch.tanh(self.a(x))
        return self.out(h + h[x[:, 0] > 0].mean(0))


class Assigned(nn.Module):
    """A different function for the elements above one half, written back to their positions."""

    def __init__(self):
        super().__init__()
        self.a, self.scale, self.out = nn.Linear(6, 6), nn.Parameter(torch.tensor([1.5])), nn.Linear(6, 4)

    def forward(self, x):
        h = self.a(x)
        mask = h > 0.5
        z = h.clone()
        z[mask] = torch.sin(h[mask]) * self.scale
        return self.out(z)


class Experts(nn.Module):
    """Each sample goes to the expert that a router selects, and the result is scaled by the router's confidence."""

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(6, 3)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 6)) for _ in range(3))
        self.out = nn.Linear(6, 4)

    def forward(self, x):
        weight, chosen = torch.softmax(self.router(x), -1).max(-1)
        z = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            index = torch.where(chosen == i)[0]
            z = z.index_add(0, index, expert(x[index]) * weight[index].unsqueeze(-1))
        return self.out(x + z)


class Packed(nn.Module):
    """A network over the non-padding tokens, packed together; its results are written back to their positions."""

    def __init__(self):
        super().__init__()
        self.table, self.f, self.norm, self.out = nn.Embedding(12, 6), nn.Linear(6, 6), nn.LayerNorm(6), nn.Linear(6, 4)

    def forward(self, x):
        mask = x > 2
        h = self.table(x)
        packed = self.norm(torch.relu(self.f(h[mask])))
        z = torch.zeros_like(h)
        z[mask] = packed
        return self.out(z.sum(1) + packed.mean(0))


class Among(nn.Module):
    """Each sample attends to those whose first number is positive."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.out = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 4)

    def forward(self, x):
        seen = x[torch.nonzero(x[:, 0] > 0).squeeze(1)]
        p = torch.softmax(self.q(x) @ self.k(seen).transpose(0, 1), -1)
        return self.out(x + p @ self.v(seen))


class SelectedLoss(nn.Module):
    """Computes its own loss, over the samples whose first number is positive."""

    def __init__(self):
        super().__init__()
        self.a, self.out = nn.Linear(6, 6), nn.Linear(6, 4)

    def forward(self, x, y):
        mask = x[:, 0] > 0
        h = self.out(torch.tanh(self.a(x)))
        return nn.functional.cross_entropy(h[mask], y[mask])


class Detector(nn.Module):
    """Non-maximum suppression of boxes per image; the features in the remaining boxes determine the class of the image."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 6, 3, stride=2, padding=1)
        self.rpn, self.deltas, self.head = nn.Conv2d(6, 1, 1), nn.Conv2d(6, 4, 1), nn.Linear(24, 4)
        centres = torch.stack(torch.meshgrid(torch.arange(4.0), torch.arange(4.0), indexing="ij"), -1).reshape(16, 2) * 2 + 1
        self.register_buffer("anchors", torch.cat((centres - 2, centres + 2), 1))

    def forward(self, x, y):
        features = torch.tanh(self.stem(x))
        n = x.shape[0]
        scores = self.rpn(features).reshape(-1)
        moved = self.anchors + self.deltas(features).permute(0, 2, 3, 1).reshape(n, 16, 4)
        boxes = moved.reshape(-1, 4).clamp(0, 8)
        images = torch.arange(n).repeat_interleave(16)
        kept = torchvision.ops.batched_nms(boxes, scores, images, 0.3)
        rois = torch.cat((images[kept].unsqueeze(1).to(boxes.dtype), boxes[kept]), 1)
        pooled = torchvision.ops.roi_align(features, rois, 2, spatial_scale=0.5, sampling_ratio=2, aligned=True)
        logits = self.head(pooled.flatten(1)) * torch.sigmoid(scores[kept]).unsqueeze(1)
        return nn.functional.cross_entropy(logits, y[images[kept]]) + 0.01 * (boxes[kept] - self.anchors.repeat(n, 1)[kept]).square().mean()


class Levels(nn.Module):
    """Two levels of features."""

    out_channels = 8

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 8, 3, stride=4, padding=1), nn.Conv2d(8, 8, 3, stride=2, padding=1)

    def forward(self, x):
        a = torch.tanh(self.a(x))
        return collections.OrderedDict([("0", a), ("1", torch.tanh(self.b(a)))])


class Retina(nn.Module):
    """torchvision's RetinaNet with few features, including its selection of boxes."""

    def __init__(self):
        super().__init__()
        anchors = torchvision.models.detection.anchor_utils.AnchorGenerator(((6,), (12,)), ((0.5, 1.0),) * 2)
        self.model = torchvision.models.detection.RetinaNet(
            Levels(), 3, min_size=24, max_size=24, anchor_generator=anchors, score_thresh=0.15, nms_thresh=0.4, topk_candidates=40, detections_per_img=40)
        head = self.model.head
        nn.init.normal_(head.classification_head.cls_logits.weight, std=0.1)
        nn.init.constant_(head.classification_head.cls_logits.bias, -1.5)
        nn.init.normal_(head.regression_head.bbox_reg.weight, std=0.1)
        for conv in (*head.classification_head.conv, *head.regression_head.conv):
            nn.init.normal_(conv[0].weight, std=0.2)
        self.model.eval()

    def train(self, mode=True):
        return self

    def forward(self, x):
        found = self.model(list(x))
        return sum(d["scores"].square().mean() + 0.001 * d["boxes"].square().mean() for d in found)


class PackedRecurrent(nn.Module):
    """A recurrent layer and a normalization over the non-padding tokens, packed together."""

    def __init__(self):
        super().__init__()
        self.table, self.norm, self.lstm, self.out = nn.Embedding(12, 6), nn.BatchNorm1d(6), nn.LSTM(6, 5), nn.Linear(5, 4)

    def forward(self, x, y):
        mask = x > 2
        h = self.norm(self.table(x)[mask])
        s, _ = self.lstm(h.unsqueeze(1))
        tokens = y.unsqueeze(1).expand(-1, x.shape[1])[mask]
        return nn.functional.cross_entropy(self.out(s.squeeze(1)), tokens)


def cases():
    def extent(name, module, batch, **o):
        o = {"losses": CE, "opset": 18, "batch_size": 8, "steps": 4, **o}
        return Case(f"extent_{name}", module, batch, optimizer=optimizer("momentum"), **o)

    legacy = {"exporter": "legacy", "opset": 17}
    yield extent("masked_mean", MaskedMean, vector_classes(6, 4), **legacy)
    yield extent("assigned", Assigned, vector_classes(6, 4), **legacy)
    yield extent("experts", Experts, vector_classes(6, 4), **legacy)
    yield extent("experts_dynamo", Experts, vector_classes(6, 4))
    yield extent("packed", Packed, token_classes(12, 5, 4), **legacy)
    yield extent("among", Among, vector_classes(6, 4), **legacy)
    yield extent("among_dynamo", Among, vector_classes(6, 4))
    own = {"losses": [{"type": "output", "output": "out"}], "inputs": ("x", "y"), "targets": (), **legacy}
    yield extent("own_loss", SelectedLoss, vector_classes(6, 4), **own)
    yield extent("detector", Detector, image_classes(3, 8, 4), **own)
    yield extent("retina", Retina, lambda b: {"x": pixels(b, 3, 24, 24)}, **{**own, "inputs": ("x",)}, batch_size=2)
    yield extent("packed_recurrent", PackedRecurrent, token_classes(12, 5, 4), **own)
