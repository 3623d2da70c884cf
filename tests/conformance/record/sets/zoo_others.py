"""Models of further libraries: torchaudio, vit-pytorch, x-transformers, diffusers, segmentation-models-pytorch, torch-geometric. Libraries
that are not installed are skipped."""
import importlib
import importlib.util

import torch
import torch.nn as nn

from case import classes, pixels
from zoo import First, cases_of

image = lambda size=32, channels=3: {"x": lambda b: pixels(b, channels, size, size)}
tokens = lambda n=20, t=8: {"x": lambda b: classes(n, b, t)}


def vit_pytorch():
    from importlib import import_module as load

    common = dict(image_size=32, patch_size=8, num_classes=5, dim=16, depth=2, heads=2, mlp_dim=32)
    at = lambda module, name, **o: (lambda: getattr(load(f"vit_pytorch.{module}"), name)(**o))
    yield "vit", at("vit", "ViT", dim_head=8, **common), image(), "classes"
    yield "simple_vit", at("simple_vit", "SimpleViT", dim_head=8, **common), image(), "classes"
    yield "deepvit", at("deepvit", "DeepViT", dim_head=8, **common), image(), "classes"
    yield "cait", at("cait", "CaiT", image_size=32, patch_size=8, num_classes=5, dim=16, depth=2, cls_depth=1, heads=2, mlp_dim=32, dim_head=8), image(), "classes"
    yield "t2t", at("t2t", "T2TViT", dim=16, image_size=32, depth=2, heads=2, mlp_dim=32, num_classes=5, t2t_layers=((7, 4), (3, 2))), image(), "classes"
    yield "cct", at("cct", "CCT", img_size=32, embedding_dim=16, n_conv_layers=2, kernel_size=3, stride=2, padding=1, pooling_kernel_size=3, pooling_stride=2, pooling_padding=1, num_layers=2,
                    num_heads=2, mlp_ratio=2.0, num_classes=5, positional_embedding="learnable"), image(), "classes"
    yield "cross_vit", at("cross_vit", "CrossViT", image_size=32, num_classes=5, depth=1, sm_dim=8, sm_patch_size=8, sm_enc_depth=1, sm_enc_heads=2, sm_enc_mlp_dim=16, sm_enc_dim_head=4, lg_dim=12,
                          lg_patch_size=16, lg_enc_depth=1, lg_enc_heads=2, lg_enc_mlp_dim=16, lg_enc_dim_head=4, cross_attn_depth=1, cross_attn_heads=2, cross_attn_dim_head=4), image(), "classes"
    yield "pit", at("pit", "PiT", image_size=32, patch_size=8, dim=16, num_classes=5, depth=(1, 1), heads=2, mlp_dim=32, dim_head=8), image(), "classes"
    yield "levit", at("levit", "LeViT", image_size=64, num_classes=5, stages=2, dim=(16, 24), depth=1, heads=(2, 2), mlp_mult=2, dim_key=8, dim_value=8), image(64), "classes"
    yield "cvt", at("cvt", "CvT", num_classes=5, s1_emb_dim=8, s1_depth=1, s2_emb_dim=12, s2_heads=2, s2_depth=1, s3_emb_dim=16, s3_heads=2, s3_depth=1), image(), "classes"
    yield "twins", at("twins_svt", "TwinsSVT", num_classes=5, s1_emb_dim=8, s1_patch_size=4, s1_local_patch_size=2, s1_global_k=2, s1_depth=1, s2_emb_dim=8, s2_patch_size=2, s2_local_patch_size=2,
                      s2_global_k=2, s2_depth=1, s3_emb_dim=8, s3_patch_size=2, s3_local_patch_size=1, s3_global_k=1, s3_depth=1, s4_emb_dim=8, s4_patch_size=1, s4_local_patch_size=1, s4_global_k=1,
                      s4_depth=1, peg_kernel_size=3), image(64), "classes"
    yield "crossformer", at("crossformer", "CrossFormer", num_classes=5, dim=(8, 8, 16, 16), depth=(1, 1, 1, 1), global_window_size=(4, 2, 1, 1), local_window_size=2), image(64), "classes"
    yield "regionvit", at("regionvit", "RegionViT", dim=(8, 8, 16, 16), depth=(1, 1, 1, 1), window_size=2, num_classes=5, tokenize_local_3_conv=False, use_peg=False), image(64), "classes"
    yield "nest", at("nest", "NesT", image_size=32, patch_size=4, dim=16, heads=2, num_hierarchies=2, block_repeats=1, num_classes=5), image(), "classes"
    yield "mobile_vit", at("mobile_vit", "MobileViT", image_size=(64, 64), dims=[16, 16, 16], channels=[8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 16], num_classes=5), image(64), "classes"
    yield "xcit", at("xcit", "XCiT", image_size=32, patch_size=8, num_classes=5, dim=16, depth=1, cls_depth=1, heads=2, mlp_dim=32, dim_head=8, local_patch_kernel_size=3), image(), "classes"
    yield "max_vit", at("max_vit", "MaxViT", num_classes=5, dim_conv_stem=8, dim=8, dim_head=4, depth=(1, 1), window_size=4), image(), "classes"
    yield "scalable_vit", at("scalable_vit", "ScalableViT", num_classes=5, dim=8, heads=(2, 2, 2, 2), depth=(1, 1, 1, 1), ssa_dim_key=(8,) * 4, reduction_factor=(4, 2, 1, 1), window_size=(8, 4, None, None)), image(64), "classes"
    yield "sep_vit", at("sep_vit", "SepViT", num_classes=5, dim=8, dim_head=4, heads=(1, 1, 2, 2), depth=(1, 1, 1, 1), window_size=2), image(64), "classes"
    yield "vivit", at("vivit", "ViT", image_size=16, frames=4, image_patch_size=8, frame_patch_size=2, num_classes=5, dim=16, spatial_depth=1, temporal_depth=1, heads=2, mlp_dim=32, dim_head=8), {"x": lambda b: pixels(b, 3, 4, 16, 16)}, "classes"
    yield "vit_1d", at("vit_1d", "ViT", seq_len=32, patch_size=4, num_classes=5, dim=16, depth=1, heads=2, mlp_dim=32), {"x": lambda b: pixels(b, 3, 32)}, "classes"
    yield "vit_3d", at("vit_3d", "ViT", image_size=16, frames=4, image_patch_size=8, frame_patch_size=2, num_classes=5, dim=16, depth=1, heads=2, mlp_dim=32), {"x": lambda b: pixels(b, 3, 4, 16, 16)}, "classes"
    yield "small_dataset", at("vit_for_small_dataset", "ViT", dim_head=8, **common), image(), "classes"
    yield "parallel_vit", at("parallel_vit", "ViT", num_parallel_branches=2, dim_head=8, **common), image(), "classes"
    yield "learnable_memory", at("learnable_memory_vit", "ViT", dim_head=8, **common), image(), "classes"
    yield "vit_registers", at("simple_vit_with_register_tokens", "SimpleViT", dim_head=8, **common), image(), "classes"
    yield "vit_qk_norm", at("simple_vit_with_qk_norm", "SimpleViT", dim_head=8, **common), image(), "classes"
    yield "normalized_vit", at("normalized_vit", "nViT", image_size=32, patch_size=8, num_classes=5, dim=16, depth=1, heads=2, mlp_dim=32, dim_head=8), image(), "classes"
    yield "simple_uvit", at("simple_uvit", "SimpleUViT", dim_head=8, **common), image(), "classes"
    yield "look_vit", at("look_vit", "LookViT", dim=16, image_size=32, num_classes=5, depth=1, patch_size=8, heads=2, dim_head=8, highres_patch_size=4, highres_mlp_factor=2, cross_attn_heads=2, cross_attn_dim_head=8), image(), "classes"


def x_transformers():
    x = importlib.import_module("x_transformers")
    forms = {
        "plain": {}, "rotary": dict(rotary_pos_emb=True), "alibi": dict(alibi_pos_bias=True, alibi_num_heads=2), "t5": dict(rel_pos_bias=True), "glu": dict(ff_glu=True, ff_swish=True),
        "rms": dict(use_rmsnorm=True), "scalenorm": dict(use_scalenorm=True), "kv": dict(attn_kv_heads=1), "qknorm": dict(attn_qk_norm=True, attn_qk_norm_dim_scale=True), "talking": dict(attn_pre_talking_heads=True),
        "sandwich": dict(sandwich_norm=True), "residual": dict(scale_residual=True), "gate": dict(gate_residual=True), "dynamic": dict(dynamic_pos_bias=True), "memory": dict(attn_num_mem_kv=4),
        "macaron": dict(macaron=True), "value": dict(attn_gate_values=True), "relu2": dict(ff_relu_squared=True), "shift": dict(shift_tokens=1), "resi": dict(residual_attn=True), "softclamp": dict(attn_softclamp_logits=True),
        "simple": dict(use_simple_rmsnorm=True), "ada": dict(attn_add_zero_kv=True), "flash": dict(attn_flash=True), "hyper": dict(num_residual_streams=2), "lasers": dict(attn_laser=True), "selective": dict(attn_selective=True),
        "sparse": dict(attn_sparse_topk=4), "xpos": dict(rotary_xpos=True), "dynt": dict(use_dynamic_tanh=True), "forget": dict(attn_data_dependent_alibi=True), "nopre": dict(pre_norm=False),
    }
    for name, options in forms.items():
        make = lambda o=options: x.TransformerWrapper(num_tokens=20, max_seq_len=8, attn_layers=x.Decoder(dim=16, depth=1, heads=2, attn_dim_head=8, ff_mult=2, **o))
        yield name, make, tokens(), "tokens"
    yield "encoder", lambda: x.TransformerWrapper(num_tokens=20, max_seq_len=8, attn_layers=x.Encoder(dim=16, depth=1, heads=2, attn_dim_head=8)), tokens(), "tokens"
    yield "continuous", lambda: x.ContinuousTransformerWrapper(dim_in=5, dim_out=4, max_seq_len=8, attn_layers=x.Encoder(dim=16, depth=1, heads=2, attn_dim_head=8)), {"x": lambda b: pixels(b, 8, 5)}, "values"
    yield "vit", lambda: x.ViTransformerWrapper(image_size=16, patch_size=4, num_classes=5, attn_layers=x.Encoder(dim=16, depth=1, heads=2, attn_dim_head=8)), image(16), "classes"


def torchaudio():
    m = importlib.import_module("torchaudio.models")
    signal = {"x": lambda b: pixels(b, 1, 800)}
    lengths = lambda n: (lambda b: torch.full((b,), n, dtype=torch.int64))
    wav = lambda: First(m.wav2vec2_model("group_norm", [[8, 10, 5], [8, 3, 2], [8, 3, 2]], False, 16, 0.0, 8, 2, 2, 2, 0.0, 0.0, 32, 0.0, False, 0.0, 7), out=0)
    yield "wav2vec2", wav, {"x": lambda b: pixels(b, 800)}, "tokens"
    norm = lambda: First(m.wav2vec2_model("layer_norm", [[8, 10, 5], [8, 3, 2]], True, 16, 0.0, 8, 2, 1, 2, 0.0, 0.0, 32, 0.0, True, 0.0, 7), out=0)
    yield "wav2vec2_layer_norm", norm, {"x": lambda b: pixels(b, 400)}, "tokens"
    yield "conformer", lambda: First(m.Conformer(8, 2, 16, 1, 5), out=0), {"x": lambda b: pixels(b, 6, 8), "lengths": lengths(6)}, "values"
    yield "conformer_group", lambda: First(m.Conformer(8, 2, 16, 1, 5, use_group_norm=True, convolution_first=True), out=0), {"x": lambda b: pixels(b, 6, 8), "lengths": lengths(6)}, "values"
    yield "emformer", lambda: First(m.Emformer(8, 2, 16, 1, 4, right_context_length=1), out=0), {"x": lambda b: pixels(b, 9, 8), "lengths": lengths(8)}, "values"
    yield "convtasnet", lambda: m.ConvTasNet(2, 8, 8, 8, 8, 3, 2, 1), {"x": lambda b: pixels(b, 1, 64)}, "values"
    yield "deepspeech", lambda: m.DeepSpeech(8, 16, 5), {"x": lambda b: pixels(b, 1, 6, 8)}, "tokens"
    yield "wav2letter", lambda: m.Wav2Letter(5, "mfcc", 4), {"x": lambda b: pixels(b, 4, 64)}, "values"
    yield "wavernn", lambda: m.WaveRNN([2, 2, 3], 8, 12, 1, 8, 8, 3, 4, 8, 8), {"x": lambda b: pixels(b, 1, 36), "spec": lambda b: pixels(b, 1, 4, 5)}, "values"
    yield "hdemucs", lambda: m.HDemucs(["a"], channels=4, depth=2, nfft=256, norm_starts=9), {"x": lambda b: pixels(b, 2, 512)}, "values"


def diffusers():
    d = importlib.import_module("diffusers")
    step = lambda b: torch.randint(0, 1000, (b,)).float()
    unet = dict(sample_size=8, in_channels=2, out_channels=2, layers_per_block=1, block_out_channels=(8, 16), norm_num_groups=4)
    yield "unet2d", lambda: First(d.UNet2DModel(down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D"), attention_head_dim=4, **unet), out="sample"), {"x": lambda b: pixels(b, 2, 8, 8), "timestep": step}, "values"
    yield "unet2d_condition", lambda: First(d.UNet2DConditionModel(down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"), up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"), cross_attention_dim=6, attention_head_dim=4, **unet), out="sample"), {"x": lambda b: pixels(b, 2, 8, 8), "timestep": step, "context": lambda b: pixels(b, 3, 6)}, "values"
    yield "unet1d", lambda: First(d.UNet1DModel(sample_size=16, in_channels=2, out_channels=2, extra_in_channels=16, block_out_channels=(8, 8), down_block_types=("DownBlock1DNoSkip", "DownBlock1D"), up_block_types=("UpBlock1D", "UpBlock1DNoSkip")), out="sample"), {"x": lambda b: pixels(b, 2, 16), "timestep": step}, "values"
    yield "vae", lambda: First(d.AutoencoderKL(in_channels=2, out_channels=2, down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2, block_out_channels=(8, 8), norm_num_groups=4, latent_channels=2), out="sample"), {"x": lambda b: pixels(b, 2, 8, 8)}, "values"
    yield "dit", lambda: First(d.DiTTransformer2DModel(num_attention_heads=2, attention_head_dim=8, in_channels=2, out_channels=2, num_layers=1, norm_num_groups=2, sample_size=8, patch_size=2, num_embeds_ada_norm=10), ("hidden_states", "timestep", "class_labels"), "sample"), {"x": lambda b: pixels(b, 2, 8, 8), "timestep": lambda b: classes(1000, b), "labels": lambda b: classes(10, b)}, "values"
    yield "controlnet_blocks", lambda: First(d.UNet2DModel(down_block_types=("ResnetDownsampleBlock2D", "DownBlock2D"), up_block_types=("UpBlock2D", "ResnetUpsampleBlock2D"), resnet_time_scale_shift="scale_shift", **unet), out="sample"), {"x": lambda b: pixels(b, 2, 8, 8), "timestep": step}, "values"


def segmentation_models_pytorch():
    s = importlib.import_module("segmentation_models_pytorch")
    for name in ("Unet", "UnetPlusPlus", "Linknet", "FPN", "MAnet"):
        options = dict(decoder_channels=(16, 8, 8)) if name in ("Unet", "UnetPlusPlus", "MAnet") else dict(decoder_pyramid_channels=16, decoder_segmentation_channels=8) if name == "FPN" else {}
        make = lambda name=name, options=options: getattr(s, name)("resnet18", encoder_weights=None, classes=2, **({} if name == "FPN" else dict(encoder_depth=3)), **options)
        yield name.lower(), make, image(), "classes"


def torch_geometric():
    g = importlib.import_module("torch_geometric.nn")
    edges = torch.tensor([[0, 1, 2, 3, 4, 5, 5, 2, 0], [1, 2, 3, 4, 5, 0, 2, 5, 3]])

    class Net(nn.Module):
        """Two layers over a fixed graph of six nodes; the nodes are the batch."""

        def __init__(self, a, b, norm=None):
            super().__init__()
            self.a, self.b, self.norm = a, b, norm
            self.register_buffer("edges", edges)

        def forward(self, x):
            h = torch.relu(self.a(x, self.edges))
            return self.b(self.norm(h) if self.norm is not None else h, self.edges)

    nodes = {"x": lambda b: pixels(6, 5)}
    mlp = lambda i, o: nn.Sequential(nn.Linear(i, 8), nn.ReLU(), nn.Linear(8, o))
    convs = {
        "gcn": lambda i, o: g.GCNConv(i, o), "gat": lambda i, o: g.GATConv(i, o), "gatv2": lambda i, o: g.GATv2Conv(i, o), "sage": lambda i, o: g.SAGEConv(i, o), "sage_max": lambda i, o: g.SAGEConv(i, o, aggr="max"),
        "gin": lambda i, o: g.GINConv(mlp(i, o), train_eps=True), "graph": lambda i, o: g.GraphConv(i, o), "cheb": lambda i, o: g.ChebConv(i, o, 3), "tag": lambda i, o: g.TAGConv(i, o, 2), "sg": lambda i, o: g.SGConv(i, o, 2),
        "arma": lambda i, o: g.ARMAConv(i, o), "transformer": lambda i, o: g.TransformerConv(i, o), "edge": lambda i, o: g.EdgeConv(mlp(2 * i, o)), "feast": lambda i, o: g.FeaStConv(i, o), "le": lambda i, o: g.LEConv(i, o),
        "cluster": lambda i, o: g.ClusterGCNConv(i, o), "gen": lambda i, o: g.GENConv(i, o), "mf": lambda i, o: g.MFConv(i, o), "gated": lambda i, o: g.ResGatedGraphConv(i, o), "film": lambda i, o: g.FiLMConv(i, o),
        "super": lambda i, o: g.SuperGATConv(i, o), "eg": lambda i, o: g.EGConv(i, 4 * ((o + 3) // 4), num_heads=4), "general": lambda i, o: g.GeneralConv(i, o), "anti": lambda i, o: g.GCNConv(i, o, add_self_loops=False),
    }
    for name, conv in convs.items():
        yield name, lambda conv=conv: Net(conv(5, 8), conv(8, 4)), nodes, "classes"
    yield "gcn_norm", lambda: Net(g.GCNConv(5, 8), g.GCNConv(8, 3), g.GraphNorm(8)), nodes, "classes"


LIBRARIES = dict(vit_pytorch=vit_pytorch, x_transformers=x_transformers, torchaudio=torchaudio, diffusers=diffusers, segmentation_models_pytorch=segmentation_models_pytorch, torch_geometric=torch_geometric)


def cases():
    for library, models in LIBRARIES.items():
        if importlib.util.find_spec(library) is None:
            continue
        for name, make, inputs, target in models():
            size = 6 if library == "torch_geometric" else 1 if name == "wavernn" else 2
            yield from cases_of(f"{library}_{name}", make, inputs, target, batch_size=size, dynamic=library != "torch_geometric", steps=3)
