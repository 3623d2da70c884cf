"""Models of torchvision: classification, segmentation, the parts of detectors that return a single tensor, video and optical flow."""
import functools

import torch
import torch.nn as nn

from case import classes, pixels
from zoo import First, cases_of, thin

# name: options of the constructor; `size` is the image's side (64), `keep` how many equal layers in a row are kept (2)
CLASSIFIERS = {
    "resnet18": {}, "resnet50": dict(width_per_group=16), "mobilenet_v2": dict(width_mult=0.35), "mobilenet_v3_small": {}, "mobilenet_v3_large": dict(width_mult=0.5), "efficientnet_b0": {},
    "mnasnet0_5": {}, "shufflenet_v2_x0_5": {}, "squeezenet1_0": {}, "squeezenet1_1": {}, "regnet_x_400mf": {}, "regnet_y_400mf": {}, "googlenet": dict(aux_logits=False, init_weights=False),
    "inception_v3": dict(aux_logits=False, init_weights=False, size=96, keep=1),
}
CLASSES = {  # models created by their classes
    "densenet": lambda m: m.DenseNet(growth_rate=8, block_config=(2, 2, 2, 2), num_classes=10),
    "vit": lambda m: m.VisionTransformer(image_size=64, patch_size=16, num_layers=2, num_heads=2, hidden_dim=48, mlp_dim=96, num_classes=10),
    "swin": lambda m: m.SwinTransformer([4, 4], 24, [2, 2], [2, 4], [4, 4], num_classes=10),
    "swin_v2": lambda m: m.SwinTransformer([4, 4], 24, [2, 2], [2, 4], [4, 4], num_classes=10, block=m.swin_transformer.SwinTransformerBlockV2,
                                           downsample_layer=m.swin_transformer.PatchMergingV2),
    "maxvit": lambda m: m.MaxVit(input_size=(64, 64), stem_channels=16, block_channels=[16, 32], block_layers=[1, 1], head_dim=8, partition_size=4, stochastic_depth_prob=0.0, num_classes=10),
    "vgg": lambda m: _vgg(m, False), "vgg_bn": lambda m: _vgg(m, True),
}


class Mask(nn.Module):
    """The "out" entry of a segmentation model."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        return self.model(x)["out"]


class Flow(First):
    """RAFT, without the correlations that it stores from the last call."""

    def forward(self, *inputs):
        flow = super().forward(*inputs)
        self.model.corr_block.corr_pyramid = None
        return flow


def _vgg(m, norm):
    net = m.VGG(m.vgg.make_layers([16, "M", 32, "M", 48, 48, "M"], batch_norm=norm), num_classes=10, init_weights=False)
    net.classifier = nn.Sequential(nn.Linear(48 * 49, 32), nn.ReLU(True), nn.Dropout(0.0), nn.Linear(32, 10))
    return net


def _keypoints():
    """The parts of a detector that return one tensor each: the feature pyramid and the head of its proposals."""
    import torchvision
    from torchvision.models.detection.rpn import RPNHead

    class Proposals(nn.Module):
        def __init__(self):
            super().__init__()
            body = torchvision.models.resnet18(norm_layer=torchvision.ops.FrozenBatchNorm2d, width_per_group=64)
            self.body = torchvision.models._utils.IntermediateLayerGetter(body, {"layer2": "0", "layer3": "1"})
            self.pyramid, self.head = torchvision.ops.FeaturePyramidNetwork([128, 256], 32), RPNHead(32, 3)

        def forward(self, x):
            scores, boxes = self.head(list(self.pyramid(self.body(x)).values()))
            return torch.cat([t.flatten(1) for t in scores + boxes], 1)

    return Proposals()


def _pooled():
    import torchvision

    class Pooled(nn.Module):
        """Features, followed by RoIAlign at given boxes."""

        def __init__(self):
            super().__init__()
            self.conv, self.fc = nn.Conv2d(3, 8, 3, 2, 1), nn.Linear(8 * 9, 10)

        def forward(self, x, boxes):
            return self.fc(torchvision.ops.roi_align(torch.relu(self.conv(x)), boxes, 3, 0.5, 2, aligned=True).flatten(1))

    return Pooled()


def _boxes(b):
    corner = torch.rand(b, 2) * 20
    return torch.cat([torch.arange(b, dtype=torch.float32)[:, None], corner, corner + 6 + torch.rand(b, 2) * 20], 1)


def _deformed():
    import torchvision

    class Deformed(nn.Module):
        def __init__(self):
            super().__init__()
            self.offset, self.conv = nn.Conv2d(3, 18, 3, 1, 1), torchvision.ops.DeformConv2d(3, 8, 3, padding=1)

        def forward(self, x):
            return self.conv(x, self.offset(x)).mean((2, 3))

    return Deformed()


def cases():
    import torchvision

    for name, options in CLASSIFIERS.items():
        options = dict(options)
        size, keep = options.pop("size", 64), options.pop("keep", 2)
        make = lambda name=name, options=options, keep=keep: thin(torchvision.models.get_model(name, weights=None, num_classes=10, **options), keep)
        yield from cases_of(f"tv_{name}", make, {"x": lambda b, size=size: pixels(b, 3, size, size)}, batch_size=4, steps=2)
    for name, made in CLASSES.items():
        yield from cases_of(f"tv_{name}", lambda made=made: made(torchvision.models), {"x": lambda b: pixels(b, 3, 64, 64)}, batch_size=4, steps=2)
    for name, styles in (("lraspp_mobilenet_v3_large", ("legacy", "dynamo", "default")), ("deeplabv3_mobilenet_v3_large", ("dynamo",)), ("fcn_resnet50", ("legacy",)), ("deeplabv3_resnet50", ("dynamo",))):
        make = lambda name=name: Mask(thin(torchvision.models.get_model(name, weights=None, weights_backbone=None, num_classes=5), 1 if "resnet" in name else 2))
        yield from cases_of(f"tv_{name}", make, {"x": lambda b: pixels(b, 3, 64, 64)}, batch_size=2, steps=2, styles=styles)
    yield from cases_of("tv_proposals", _keypoints, {"x": lambda b: pixels(b, 3, 64, 64)}, "values", steps=2)
    yield from cases_of("tv_roi_align", _pooled, {"x": lambda b: pixels(b, 3, 32, 32), "boxes": _boxes})
    yield from cases_of("tv_deform_conv", _deformed, {"x": lambda b: pixels(b, 3, 12, 12)})
    video = {"x": lambda b: pixels(b, 3, 4, 32, 32)}
    yield from cases_of("tv_mc3_18", lambda: torchvision.models.get_model("mc3_18", num_classes=10), video, batch_size=4, steps=2, styles=("legacy", "dynamo"))
    swin3d = lambda: torchvision.models.video.SwinTransformer3d([2, 4, 4], 16, [2, 2], [1, 2], [2, 4, 4], num_classes=10)
    yield from cases_of("tv_swin3d", swin3d, video, steps=2)
    yield from cases_of("tv_mvit", _mvit, video, steps=2)
    raft = lambda: Flow(torchvision.models.optical_flow.raft_small(), ("image1", "image2"), -1, num_flow_updates=2)
    yield from cases_of("tv_raft_small", raft, {"image1": lambda b: pixels(b, 3, 128, 128), "image2": lambda b: pixels(b, 3, 128, 128)}, "values", batch_size=1, steps=2)


def _mvit():
    from torchvision.models.video.mvit import MSBlockConfig, MViT

    block = functools.partial(MSBlockConfig, kernel_q=[3, 3, 3], kernel_kv=[3, 3, 3], stride_kv=[1, 2, 2])
    setting = [block(num_heads=1, input_channels=16, output_channels=16, stride_q=[1, 1, 1]), block(num_heads=2, input_channels=16, output_channels=32, stride_q=[1, 2, 2])]
    return MViT((32, 32), 4, setting, True, True, 0.0, 0.0, 0.0, num_classes=10)
