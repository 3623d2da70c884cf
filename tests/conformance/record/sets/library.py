"""Models of torchvision, timm and transformers with random weights, as small as their constructors allow."""
import functools

import torch
import torch.nn as nn

from case import CE, CE_LAST, Case, classes, image_classes, next_tokens, pixels, term, token_classes
from optimizers import optimizer

LEGACY = dict(exporter="legacy", opset=17, mode="train")
DYNAMO = dict(exporter="dynamo", opset=18, mode="eval")
DEFAULT = dict(exporter="dynamo", opset=20, mode="eval", optimize=True)
AS_TRAIN = dict(semantics="train")


def still(module: nn.Module) -> nn.Module:
    """Without randomness."""
    for m in module.modules():
        if isinstance(m, (nn.Dropout, nn.Dropout2d, nn.AlphaDropout)):
            m.p = 0.0
        if type(m).__name__ in ("StochasticDepth", "DropPath"):
            (setattr(m, "p", 0.0), setattr(m, "drop_prob", 0.0))
    return module


def vision(make):
    return lambda: still(make(__import__("torchvision").models))


def _torchvision():
    def shuffle(m):
        return m.ShuffleNetV2([1, 2, 1], [6, 8, 16, 16, 24], num_classes=4)

    def dense(m):
        return m.DenseNet(growth_rate=4, block_config=(2, 2), num_init_features=8, bn_size=2, num_classes=4)

    def mobile3(m):
        from torchvision.models.mobilenetv3 import InvertedResidualConfig as C

        bn = functools.partial(nn.BatchNorm2d, eps=0.001, momentum=0.01)
        setting = [C(8, 3, 8, 8, True, "RE", 2, 1, 1.0), C(8, 3, 16, 12, False, "HS", 2, 1, 1.0), C(12, 5, 24, 12, True, "HS", 1, 1, 1.0)]
        return m.MobileNetV3(setting, 32, num_classes=4, norm_layer=bn, dropout=0.0)

    def efficient(m):
        from torchvision.models.efficientnet import FusedMBConvConfig, MBConvConfig

        setting = [FusedMBConvConfig(1, 3, 1, 8, 8, 1), MBConvConfig(2, 3, 2, 8, 12, 1), MBConvConfig(2, 5, 1, 12, 12, 1)]
        return m.EfficientNet(setting, dropout=0.0, stochastic_depth_prob=0.0, num_classes=4, last_channel=32)

    def convnext(m):
        from torchvision.models.convnext import CNBlockConfig

        return m.ConvNeXt([CNBlockConfig(8, 16, 1), CNBlockConfig(16, None, 1)], num_classes=4)

    def swin(m):
        return m.SwinTransformer([2, 2], 8, [2, 1], [2, 2], [2, 2], mlp_ratio=2.0, stochastic_depth_prob=0.0, num_classes=4)

    def vit(m):
        return m.VisionTransformer(16, 4, 2, 2, 16, 32, num_classes=4)

    def regnet(m):
        from torchvision.models.regnet import BlockParams

        return m.RegNet(BlockParams([1, 1, 1, 1], [8, 8, 16, 16], [4, 4, 8, 8], [1.0] * 4, [2] * 4, 0.25), num_classes=4, stem_width=8)

    def vgg(m):
        features = m.vgg.make_layers([6, "M", 8, 8, "M"], batch_norm=True)
        net = m.VGG(features, num_classes=4, init_weights=False, dropout=0.0)
        net.avgpool, net.classifier = nn.AdaptiveAvgPool2d(2), nn.Sequential(nn.Linear(32, 16), nn.ReLU(True), nn.Dropout(0.0), nn.Linear(16, 4))
        return net

    def resnext(m):
        net = m.ResNet(m.resnet.Bottleneck, [1, 1, 1, 1], num_classes=4, groups=2, width_per_group=4)
        return net

    def shrunk(block):
        """torchvision's residual blocks at a small width."""

        def make(m):
            b = {"basic": m.resnet.BasicBlock, "bottleneck": m.resnet.Bottleneck}[block]
            e = b.expansion
            down = nn.Sequential(nn.Conv2d(8, 6 * e, 1, 2, bias=False), nn.BatchNorm2d(6 * e))
            return nn.Sequential(nn.Conv2d(3, 8, 7, 2, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(3, 2, 1), b(8, 6, 2, down), b(6 * e, 6),
                                 nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6 * e, 4))

        return make

    def lraspp(m):
        net = m.segmentation.LRASPP(None, 6, 8, 3, 8)
        net.backbone = Backbone()
        return OutOf(net)

    def deeplab(m):
        from torchvision.models.segmentation.deeplabv3 import ASPP

        return nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.ReLU(), ASPP(8, [2, 3], 8), nn.Conv2d(8, 3, 1), nn.Upsample(scale_factor=2, mode="bilinear"))

    def tv(name, make, size=16, **o):
        return Case(f"torchvision_{name}", vision(make), o.pop("batch", image_classes(3, size, 4)), o.pop("losses", CE), optimizer(o.pop("opt", "momentum"), lr=o.pop("lr", 0.01)),
                    **{"batch_size": 6, "steps": 3, **o})

    masks = lambda b: {"x": pixels(b, 3, 16, 16), "y": classes(3, b, 16, 16)}
    for suffix, style in (("_legacy", LEGACY), ("_as_train", DYNAMO | AS_TRAIN), ("_as_graph", DYNAMO)):
        yield tv("basic_blocks" + suffix, shrunk("basic"), 32, **style)
        yield tv("shufflenet_v2" + suffix, shuffle, 32, **style)
        yield tv("densenet" + suffix, dense, 32, **style)
        if suffix != "_as_graph":  # with uninitialized statistics its signal vanishes
            yield tv("mobilenet_v3" + suffix, mobile3, 32, **style)
        yield tv("efficientnet" + suffix, efficient, 32, **style)
        yield tv("regnet" + suffix, regnet, 32, **style)
        yield tv("vgg_bn" + suffix, vgg, **style)
    yield tv("bottleneck_blocks", shrunk("bottleneck"), 32, **LEGACY)
    yield tv("squeezenet", lambda m: m.SqueezeNet("1_1", num_classes=4, dropout=0.0), 32, batch_size=2, **LEGACY)
    yield tv("alexnet_head", lambda m: nn.Sequential(m.alexnet().features[:5], nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(192, 4)), 64, batch_size=2, **LEGACY)
    yield tv("lraspp", lraspp, batch=masks, **DYNAMO, **AS_TRAIN)
    yield tv("deeplab_aspp", deeplab, batch=masks, **DYNAMO)
    for suffix, style in (("_legacy", LEGACY), ("_default", DEFAULT), ("_dynamo", DYNAMO)):
        yield tv("convnext" + suffix, convnext, opt="adamw", lr=0.003, **style)
        if suffix != "_default":  # there the gathered table of biases is folded into several initializers
            yield tv("swin" + suffix, swin, opt="adamw", lr=0.003, **style)
        yield tv("vit" + suffix, vit, opt="sgd", **style, dynamic_batch=suffix == "_default")


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.low, self.high = nn.Conv2d(3, 6, 3, 2, 1), nn.Conv2d(6, 8, 3, 2, 1)

    def forward(self, x):
        low = torch.relu(self.low(x))
        return {"low": low, "high": torch.relu(self.high(low))}


class OutOf(nn.Module):
    """The "out" entry of a segmentation model's dictionary."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x)["out"]


def _timm():
    def timm(name, style, suffix, size=32, **o):
        make = lambda: still(__import__("timm").create_model(f"test_{name}", num_classes=4, **o.get("options", {})))
        return Case(f"timm_{name}{suffix}", make, image_classes(3, size, 4), CE, optimizer("momentum", lr=0.001 if "efficientnet" in name else 0.005), batch_size=4, steps=3, **style)

    for name in ("byobnet", "efficientnet", "resnet"):
        yield timm(name, LEGACY, "_legacy")
        yield timm(name, DYNAMO | AS_TRAIN, "_as_train")
        yield timm(name, DYNAMO, "_as_graph")
    for name in ("convnext", "efficientnet_evos", "efficientnet_gn", "efficientnet_ln", "nfnet"):
        yield timm(name, LEGACY if len(name) % 2 else DYNAMO, "")
    for name in ("vit", "vit2"):
        yield timm(name, DYNAMO, "", options=dict(img_size=32))


class Logits(nn.Module):
    """A transformers model called with positional inputs of these names; its logits."""

    def __init__(self, model, *names, out="logits"):
        super().__init__()
        self.model, self.names, self.out = model, names, out

    def forward(self, *inputs):
        return getattr(self.model(**dict(zip(self.names, inputs)), return_dict=True, **({"use_cache": False} if hasattr(self.model.config, "use_cache") else {})), self.out)


ENCODER = dict(vocab_size=20, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24, max_position_embeddings=7, num_labels=4,
               hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, initializer_range=0.2)
DECODER = dict(vocab_size=20, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24, max_position_embeddings=16, num_key_value_heads=1,
               initializer_range=0.2, pad_token_id=0, bos_token_id=1, eos_token_id=2, attention_dropout=0.0)


def _transformers():
    import transformers as t

    def hf(name, config, model, batch, losses, inputs=("input_ids",), styles=("legacy", "dynamo", "default"), opt=None, **o):
        for style in styles:
            for attention in ("eager", "sdpa") if style == "dynamo" else ("eager",):
                how = {"legacy": LEGACY | {"opset": 17, "mode": "eval"}, "dynamo": DYNAMO, "default": DEFAULT}[style]
                make = lambda attention=attention: still(Logits(model(config(attention)), *inputs))
                yield Case(f"hf_{name}_{style}" + ("_sdpa" if attention == "sdpa" else ""), make, batch, losses, opt or optimizer("momentum", lr=0.01),
                           inputs=inputs, **{"batch_size": 3, "steps": 3, **how, **o})

    sentences = lambda b: {"input_ids": classes(18, b, 7) + 2, "y": classes(4, b)}
    masked = lambda b: sentences(b) | {"attention_mask": torch.cat([torch.ones(b, 5, dtype=torch.int64), classes(2, b, 2)], 1)}
    both = ("input_ids", "attention_mask")
    text = lambda b: {"input_ids": (n := next_tokens(20, 7)(b))["x"], "y": n["y"]}
    new = dict(styles=("dynamo", "default"))  # the legacy exporter does not support an operation in their masks
    tied = dict(styles=("dynamo",))  # the default export writes a tied weight twice
    plain = dict(styles=("legacy", "dynamo"))  # the default export folds a gathered table into a copy
    encoder = lambda cls, **o: lambda a: cls(**{**ENCODER, **o}, attn_implementation=a)
    decoder = lambda cls, **o: lambda a: cls(**{**DECODER, **o}, attn_implementation=a)
    yield from hf("bert", encoder(t.BertConfig), t.BertForSequenceClassification, sentences, CE, **plain)
    yield from hf("bert_mask", encoder(t.BertConfig), t.BertForSequenceClassification, masked, CE, both, **plain)
    yield from hf("bert_tokens", encoder(t.BertConfig), t.BertForTokenClassification, lambda b: {"input_ids": classes(20, b, 7), "y": classes(4, b, 7)}, CE_LAST, **plain)
    yield from hf("bert_lm", encoder(t.BertConfig), t.BertForMaskedLM, lambda b: {"input_ids": (x := classes(20, b, 7)), "y": torch.where(torch.rand(b, 7) < 0.4, x, -100)}, CE_LAST, **plain)
    yield from hf("albert", encoder(t.AlbertConfig, embedding_size=8, classifier_dropout_prob=0.0), t.AlbertForSequenceClassification, sentences, CE, **plain)
    yield from hf("electra", encoder(t.ElectraConfig, embedding_size=8), t.ElectraForSequenceClassification, sentences, CE, **plain)
    yield from hf("distilbert", lambda a: t.DistilBertConfig(vocab_size=20, dim=16, n_layers=2, n_heads=2, hidden_dim=24, max_position_embeddings=7, num_labels=4, dropout=0.0,
                  attention_dropout=0.0, seq_classif_dropout=0.0, initializer_range=0.2, attn_implementation=a), t.DistilBertForSequenceClassification, sentences, CE)
    yield from hf("gpt2", lambda a: t.GPT2Config(vocab_size=20, n_positions=16, n_embd=16, n_layer=2, n_head=2, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
                  initializer_range=0.2, attn_implementation=a), t.GPT2LMHeadModel, text, CE_LAST, **tied)
    yield from hf("llama", decoder(t.LlamaConfig), t.LlamaForCausalLM, text, CE_LAST, **new)
    yield from hf("qwen2", decoder(t.Qwen2Config, tie_word_embeddings=True), t.Qwen2ForCausalLM, text, CE_LAST, **tied)
    yield from hf("mistral", decoder(t.MistralConfig, sliding_window=4), t.MistralForCausalLM, text, CE_LAST, **new)
    yield from hf("phi", decoder(t.PhiConfig, num_key_value_heads=2, resid_pdrop=0.0, embd_pdrop=0.0), t.PhiForCausalLM, text, CE_LAST, **new)
    yield from hf("gpt_neox", decoder(t.GPTNeoXConfig, hidden_dropout=0.0), t.GPTNeoXForCausalLM, text, CE_LAST, **new)
    yield from hf("opt", lambda a: t.OPTConfig(vocab_size=20, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, ffn_dim=24, max_position_embeddings=16, dropout=0.0,
                  attention_dropout=0.0, word_embed_proj_dim=16, init_std=0.2, pad_token_id=0, attn_implementation=a), t.OPTForCausalLM, text, CE_LAST, **tied)
    images = lambda size: lambda b: {"pixel_values": pixels(b, 3, size, size), "y": classes(4, b)}
    vit = {k: v for k, v in ENCODER.items() if k not in ("vocab_size", "max_position_embeddings")}
    yield from hf("vit", lambda a: t.ViTConfig(**vit, image_size=12, patch_size=4, attn_implementation=a), t.ViTForImageClassification, images(12), CE, ("pixel_values",), **plain)
    yield from hf("resnet", lambda a: t.ResNetConfig(embedding_size=6, hidden_sizes=[6, 8], depths=[1, 1], layer_type="basic", num_labels=4), t.ResNetForImageClassification,
                  images(16), CE, ("pixel_values",), ("legacy",), **AS_TRAIN)
    yield from hf("segformer", lambda a: t.SegformerConfig(num_encoder_blocks=2, depths=[1, 1], sr_ratios=[2, 1], hidden_sizes=[8, 16], patch_sizes=[3, 3], strides=[2, 2],
                  num_attention_heads=[1, 2], mlp_ratios=[2, 2], decoder_hidden_size=8, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, classifier_dropout_prob=0.0,
                  drop_path_rate=0.0, num_labels=3, initializer_range=0.3), t.SegformerForSemanticSegmentation, lambda b: {"pixel_values": pixels(b, 3, 16, 16), "y": classes(3, b, 8, 8)}, CE,
                  ("pixel_values",), ("legacy", "dynamo"))
    t5 = lambda a: t.T5Config(vocab_size=20, d_model=16, d_kv=8, d_ff=24, num_layers=1, num_heads=2, dropout_rate=0.0, relative_attention_num_buckets=8, feed_forward_proj="gated-gelu")
    yield from hf("t5", t5, t.T5ForConditionalGeneration, lambda b: {"input_ids": classes(20, b, 6), "decoder_input_ids": classes(20, b, 5), "y": classes(20, b, 5)}, CE_LAST,
                  ("input_ids", "decoder_input_ids"), ("legacy",), opt=optimizer("sgd", lr=0.05))


def cases():
    yield from _torchvision()
    yield from _timm()
    yield from _transformers()
