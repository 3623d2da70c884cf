"""Models of further libraries: monai, rtdl_revisiting_models, tabm, tab-transformer-pytorch, perceiver-pytorch,
denoising-diffusion-pytorch, open_clip, encodec, stable-baselines3, ultralytics, peft over transformers. Libraries that are not installed
are skipped."""
import importlib
import importlib.util

import torch
import torch.nn as nn

from case import classes, pixels
from zoo import First, cases_of

image = lambda size=32, channels=3: {"x": lambda b: pixels(b, channels, size, size)}
scan = lambda size=16: {"x": lambda b: pixels(b, 1, size, size, size)}
table = {"x": lambda b: pixels(b, 6), "kinds": lambda b: classes(4, b, 3)}


def monai():
    m = importlib.import_module("monai.networks.nets")
    yield "unet", lambda: m.UNet(2, 1, 2, (4, 8, 16), (2, 2), num_res_units=1), image(16, 1), "classes"
    yield "unet_3d", lambda: m.UNet(3, 1, 2, (4, 8), (2,), num_res_units=1, norm="batch"), scan(8), "classes"
    yield "basic_unet", lambda: m.BasicUNet(2, 1, 2, (4, 4, 8, 8, 8, 4)), image(32, 1), "classes"
    yield "attention_unet", lambda: m.AttentionUnet(2, 1, 2, (4, 8), (2,)), image(16, 1), "classes"
    yield "segresnet", lambda: m.SegResNet(2, 8, 1, 2, blocks_down=(1, 1), blocks_up=(1,)), image(16, 1), "classes"
    yield "segresnet_3d", lambda: m.SegResNet(3, 8, 1, 2, blocks_down=(1, 1), blocks_up=(1,)), scan(8), "classes"
    yield "vnet", lambda: m.VNet(spatial_dims=2, in_channels=1, out_channels=2, dropout_dim=2), image(32, 1), "classes"
    yield "dynunet", lambda: m.DynUNet(2, 1, 2, [3, 3, 3], [1, 2, 2], [2, 2], filters=[4, 8, 8], deep_supervision=False), image(16, 1), "classes"
    yield "highresnet", lambda: m.HighResNet(2, 1, 2, layer_params=({"name": "conv_0", "n_features": 4, "kernel_size": 3}, {"name": "res_1", "n_features": 4, "kernels": (3, 3), "repeat": 1}, {"name": "conv_2", "n_features": 8, "kernel_size": 1}, {"name": "conv_3", "kernel_size": 1})), image(16, 1), "classes"
    yield "unetr", lambda: m.UNETR(1, 2, (16, 16), feature_size=4, hidden_size=12, mlp_dim=16, num_heads=2, spatial_dims=2, norm_name="instance"), image(16, 1), "classes"
    yield "swin_unetr", lambda: m.SwinUNETR(in_channels=1, out_channels=2, feature_size=12, spatial_dims=2, depths=(1, 1, 1, 1), num_heads=(2, 2, 2, 2)), image(32, 1), "classes"
    yield "densenet_3d", lambda: m.DenseNet(3, 1, 3, init_features=4, growth_rate=4, block_config=(1, 1)), scan(16), "classes"
    yield "efficient", lambda: m.EfficientNetBN("efficientnet-b0", pretrained=False, spatial_dims=2, in_channels=1, num_classes=3), image(32, 1), "classes"
    yield "vit", lambda: First(m.ViT(1, (16, 16), (8, 8), hidden_size=12, mlp_dim=16, num_layers=1, num_heads=2, classification=True, num_classes=3, spatial_dims=2), out=0), image(16, 1), "classes"
    yield "autoencoder", lambda: m.AutoEncoder(2, 1, 1, (4, 8), (2, 2)), image(16, 1), "values"
    yield "regressor", lambda: m.Regressor((1, 16, 16), (2,), (4, 8), (2, 2)), image(16, 1), "values"
    yield "senet", lambda: m.SENet(2, 1, "se_bottleneck", (1, 1, 1, 1), 1, 4, num_classes=3, inplanes=8), image(32, 1), "classes"


def rtdl_revisiting_models():
    r = importlib.import_module("rtdl_revisiting_models")
    yield "mlp", lambda: r.MLP(d_in=6, d_out=3, n_blocks=2, d_block=8, dropout=0.0), {"x": table["x"]}, "classes"
    yield "resnet", lambda: r.ResNet(d_in=6, d_out=3, n_blocks=2, d_block=8, d_hidden=None, d_hidden_multiplier=2.0, dropout1=0.0, dropout2=0.0), {"x": table["x"]}, "classes"
    yield "transformer", lambda: r.FTTransformer(n_cont_features=6, cat_cardinalities=[4, 4, 4], d_out=3, n_blocks=2, d_block=8, attention_n_heads=2, attention_dropout=0.0, ffn_d_hidden_multiplier=1.5, ffn_dropout=0.0, residual_dropout=0.0), table, "classes"


def tabm():
    t = importlib.import_module("tabm")
    for kind in ("tabm", "tabm-mini", "tabm-packed"):
        yield kind.replace("-", "_"), lambda kind=kind: First(t.TabM(n_num_features=6, d_out=3, n_blocks=2, d_block=8, k=4, dropout=0.0, arch_type=kind)), {"x": table["x"]}, "tokens"


def tab_transformer_pytorch():
    t = importlib.import_module("tab_transformer_pytorch")
    order = {"kinds": table["kinds"], "x": table["x"]}
    yield "tab", lambda: t.TabTransformer(categories=(4, 4, 4), num_continuous=6, dim=8, depth=1, heads=2, dim_head=4, dim_out=3, mlp_hidden_mults=(2, 1)), order, "classes"
    yield "ft", lambda: t.FTTransformer(categories=(4, 4, 4), num_continuous=6, dim=8, depth=1, heads=2, dim_head=4, dim_out=3), order, "classes"


def perceiver_pytorch():
    p = importlib.import_module("perceiver_pytorch")
    yield "perceiver", lambda: p.Perceiver(num_freq_bands=2, depth=2, max_freq=4, input_channels=3, input_axis=2, num_latents=4, latent_dim=8, cross_heads=1, latent_heads=2, cross_dim_head=4, latent_dim_head=4, num_classes=3, weight_tie_layers=True, self_per_cross_attn=1), {"x": lambda b: pixels(b, 8, 8, 3)}, "classes"
    yield "io", lambda: p.PerceiverIO(dim=5, queries_dim=6, logits_dim=3, depth=1, num_latents=4, latent_dim=8, cross_heads=1, latent_heads=2, cross_dim_head=4, latent_dim_head=4), {"x": lambda b: pixels(b, 7, 5)}, "values"


def denoising_diffusion_pytorch():
    d = importlib.import_module("denoising_diffusion_pytorch")
    yield "unet", lambda: d.Unet(dim=8, dim_mults=(1, 2), channels=3, attn_dim_head=4, attn_heads=2, flash_attn=False), image(8) | {"t": lambda b: classes(1000, b)}, "values"
    yield "unet_1d", lambda: d.Unet1D(dim=8, dim_mults=(1, 2), channels=3, attn_dim_head=4, attn_heads=2), {"x": lambda b: pixels(b, 3, 16), "t": lambda b: classes(1000, b)}, "values"


def open_clip():
    o = importlib.import_module("open_clip.model")

    def clip(**options):
        vision = o.CLIPVisionCfg(layers=1, width=16, head_width=8, patch_size=8, image_size=16)
        text = o.CLIPTextCfg(context_length=6, vocab_size=20, width=16, heads=2, layers=1)
        return First(o.CLIP(embed_dim=8, vision_cfg=vision, text_cfg=text, **options), out=0)

    class Both(nn.Module):
        def __init__(self, model):
            super().__init__()
            self.model = model

        def forward(self, x, text):
            a, b = self.model.encode_image(x, normalize=True), self.model.encode_text(text, normalize=True)
            return torch.cat([a, b, a * b * self.model.logit_scale.exp()], 1)

    yield "clip", lambda: Both(clip().model), image(16) | {"text": lambda b: classes(20, b, 6)}, "values"
    yield "clip_quick", lambda: Both(clip(quick_gelu=True).model), image(16) | {"text": lambda b: classes(20, b, 6)}, "values"


def encodec():
    s = importlib.import_module("encodec.modules.seanet")
    yield "encoder", lambda: s.SEANetEncoder(dimension=8, n_filters=4, n_residual_layers=1, ratios=[2, 2], lstm=1, causal=True), {"x": lambda b: pixels(b, 1, 64)}, "values"
    yield "decoder", lambda: s.SEANetDecoder(dimension=8, n_filters=4, n_residual_layers=1, ratios=[2, 2], lstm=1), {"x": lambda b: pixels(b, 8, 16)}, "values"


def stable_baselines3():
    g, p = importlib.import_module("gymnasium.spaces"), importlib.import_module("stable_baselines3.common.policies")
    import numpy as np

    class Policy(nn.Module):
        def __init__(self, policy):
            super().__init__()
            self.policy = policy

        def forward(self, x):
            features = self.policy.extract_features(x)
            pi, v = self.policy.mlp_extractor(features) if not isinstance(features, tuple) else None
            return torch.cat([self.policy.action_net(pi), self.policy.value_net(v)], 1)

    box = g.Box(-1, 1, (6,), np.float32)
    yield "policy", lambda: Policy(p.ActorCriticPolicy(box, g.Discrete(3), lambda _: 1e-3, net_arch=[8, 8])), {"x": table["x"]}, "values"
    pictures = g.Box(0, 255, (1, 36, 36), np.uint8)
    yield "pictures", lambda: Policy(p.ActorCriticCnnPolicy(pictures, g.Discrete(3), lambda _: 1e-3, features_extractor_kwargs=dict(features_dim=8))), {"x": lambda b: classes(256, b, 1, 36, 36).float()}, "values"


def ultralytics():
    t = importlib.import_module("ultralytics.nn.tasks")

    class Flat(nn.Module):
        """All outputs of the heads, one list per image."""

        def __init__(self, model):
            super().__init__()
            self.model = model

        def forward(self, x):
            given = self.model._predict_once(x) if hasattr(self.model, "_predict_once") else self.model(x)
            given = list(given.values()) if isinstance(given, dict) else given
            tensors = []
            for g in given if isinstance(given, (list, tuple)) else [given]:
                tensors += [y for y in g if isinstance(y, torch.Tensor)] if isinstance(g, (list, tuple)) else [g] if isinstance(g, torch.Tensor) else []
            return torch.cat([y.flatten(1) for y in tensors], 1)

    def scaled(file):
        import yaml
        from ultralytics.utils import ROOT

        found = next(ROOT.glob(f"cfg/models/**/{file}.yaml"))
        config = yaml.safe_load(found.read_text())
        config.pop("scales", None)
        return config | dict(depth_multiple=0.33, width_multiple=0.0625, nc=2, scale="n", scales={"n": [0.33, 0.0625, 256]})

    for file in ("yolov5", "yolov8", "yolo11"):
        yield file, lambda file=file: Flat(t.DetectionModel(scaled(file), verbose=False).train()), image(64), "values"
    yield "yolov8_cls", lambda: Flat(t.ClassificationModel(scaled("yolov8-cls"), verbose=False).train()), image(64), "classes"
    yield "yolov8_seg", lambda: Flat(t.SegmentationModel(scaled("yolov8-seg"), verbose=False).train()), image(64), "values"


def peft():
    p, t = importlib.import_module("peft"), importlib.import_module("transformers")
    gpt = lambda: t.GPT2LMHeadModel(t.GPT2Config(vocab_size=20, n_positions=8, n_embd=16, n_layer=1, n_head=2, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False))
    bert = lambda: t.BertForSequenceClassification(t.BertConfig(vocab_size=20, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=24, max_position_embeddings=8, num_labels=3, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0))
    tokens = {"x": lambda b: classes(20, b, 6)}
    kinds = {
        "lora": p.LoraConfig(r=2, lora_alpha=4, target_modules=["c_attn"], init_lora_weights=False), "rslora": p.LoraConfig(r=2, use_rslora=True, target_modules=["c_attn", "c_proj"], init_lora_weights=False),
        "dora": p.LoraConfig(r=2, use_dora=True, target_modules=["c_attn"], init_lora_weights=False), "ia3": p.IA3Config(target_modules=["c_attn"], feedforward_modules=[], init_ia3_weights=False),
    }
    for name, config in kinds.items():
        yield f"gpt2_{name}", lambda config=config: First(p.get_peft_model(gpt(), config).base_model.model, ("input_ids",), "logits"), tokens, "tokens"
    yield "bert_lora", lambda: First(p.get_peft_model(bert(), p.LoraConfig(r=2, target_modules=["query", "value"], init_lora_weights=False)).base_model.model, ("input_ids",), "logits"), tokens, "classes"
    yield "bert_oft", lambda: First(p.get_peft_model(bert(), p.OFTConfig(r=2, oft_block_size=0, target_modules=["query", "value"], init_weights=False)).base_model.model, ("input_ids",), "logits"), tokens, "classes"


LIBRARIES = dict(monai=monai, rtdl_revisiting_models=rtdl_revisiting_models, tabm=tabm, tab_transformer_pytorch=tab_transformer_pytorch, perceiver_pytorch=perceiver_pytorch,
                 denoising_diffusion_pytorch=denoising_diffusion_pytorch, open_clip=open_clip, encodec=encodec, stable_baselines3=stable_baselines3, ultralytics=ultralytics, peft=peft)


def cases():
    for library, models in LIBRARIES.items():
        if importlib.util.find_spec(library) is None:
            continue
        for name, make, inputs, target in models():
            yield from cases_of(f"{library}_{name}", make, inputs, target)
