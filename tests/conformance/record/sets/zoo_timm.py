"""One or two small models of each family of timm, narrow if the constructor permits it, at the smallest images that they accept."""
from case import pixels
from zoo import cases_of, thin

NARROW = dict(channels=(16, 32, 64, 128))
WHOLE = dict(keep=99)
IMG = dict(img_size=64)
VIT = dict(img_size=64, embed_dim=48, num_heads=3)
SWIN = dict(img_size=64, window_size=4, embed_dim=24)

# name: options of the constructor, and `size`, the image's side (64), and `keep`, how many equal layers in a row are kept (2)
MODELS = {
    "resnet18": NARROW, "vit_tiny_patch16_224": IMG, "efficientnet_b0": {}, "mobilenetv3_small_050": {}, "swin_tiny_patch4_window7_224": SWIN,
    "convnext_atto": {}, "regnetx_002": {}, "densenet121": dict(growth_rate=8, block_config=(2, 2, 2, 2)), "mobilenetv2_035": {}, "mixer_s32_224": IMG,
    "resnet50": NARROW, "deit_tiny_distilled_patch16_224": IMG, "convnextv2_atto": {}, "regnety_002": {}, 
    "resnext50_32x4d": NARROW, "seresnet18": NARROW, "gmlp_ti16_224": IMG, "resmlp_12_224": IMG, "beit_base_patch16_224": VIT, "beitv2_base_patch16_224": VIT,
    "eva02_tiny_patch14_224": dict(img_size=56, size=56), "deit3_small_patch16_224": VIT, "mobilevit_xxs": {}, "mobilevitv2_050": {}, "mobilenetv4_conv_small_035": {},
    "mobilenetv4_hybrid_medium_075": {}, "levit_128s": IMG, "poolformer_s12": {}, "caformer_s18": {},
    "hrnet_w18_small": {}, "ghostnet_050": {}, "repvgg_a0": {}, "maxvit_pico_rw_256": IMG, "coatnet_pico_rw_224": IMG, "edgenext_xx_small": WHOLE,
    "volo_d1_224": IMG, "skresnet18": NARROW, "test_nfnet": {}, "nf_regnet_b0": {},
    "coat_lite_tiny": IMG, "coat_tiny": IMG, "cait_xxs24_224": IMG, "xcit_nano_12_p8_224": dict(size=32), "xcit_tiny_12_p16_224": {}, "pvt_v2_b0": {}, "dla46_c": WHOLE,
    "swinv2_tiny_window8_256": SWIN, "swinv2_cr_tiny_224": dict(img_size=64, window_size=2, embed_dim=24), "inception_next_atto": {}, "resnest14d": NARROW,
    "resnetv2_18": NARROW, "resnetv2_50x1_bit": dict(channels=(128, 256, 256, 256)), "resnetaa34d": NARROW, "resnetblur18": NARROW, "resnetrs50": NARROW, "ecaresnet26t": NARROW, "resnet50_gn": dict(channels=(32, 64, 96, 128)),
    "rexnet_100": {}, "mnasnet_small": {}, "mixnet_s": {}, "fbnetc_100": {}, "lcnet_035": {}, "tinynet_e": {}, "hardcorenas_a": {}, "semnasnet_075": {}, "tf_efficientnet_b0": {},
    "tf_mobilenetv3_small_minimal_100": {}, "mobileone_s0": {}, "cs3darknet_s": {}, "convit_tiny": IMG, "crossvit_tiny_240": dict(size=240),
    "davit_tiny": dict(embed_dims=(16, 32, 64, 128), num_heads=(1, 2, 4, 8)), "efficientvit_b0": {}, "efficientvit_m0": dict(img_size=64, keep=99), "fasternet_t0": {},
    "hgnetv2_b0": WHOLE, "hiera_tiny_224": dict(size=224, embed_dim=16, num_heads=1), "mambaout_femto": {}, "pit_ti_224": IMG,
    "repghostnet_050": {}, "repvit_m0_9": {}, "shvit_s1": {}, "starnet_s050": {}, "swiftformer_xs": {}, "tiny_vit_5m_224": {}, "tnt_s_patch16_224": IMG,
    "vit_small_patch16_dinov3": VIT, "vit_base_patch16_clip_quickgelu_224": VIT, "vit_base_patch16_siglip_224": VIT, "vit_relpos_small_patch16_224": IMG,
    "vit_srelpos_small_patch16_224": IMG, "vit_tiny_r_s16_p8_224": IMG, "samvit_base_patch16_224": VIT, "vit_base_patch14_reg4_dinov2": VIT | dict(img_size=56, size=56),
    "ese_vovnet19b_slim_dw": WHOLE, "flexivit_small": VIT, "aimv2_large_patch14_224": VIT | dict(img_size=56, size=56), "naflexvit_base_patch16_gap": dict(embed_dim=48, num_heads=3),
    "ghostnetv2_100": {}, "ghostnetv3_050": {}, "visformer_tiny": IMG, "vitamin_small_224": IMG, "twins_pcpvt_small": dict(img_size=64, embed_dims=(16, 32, 64, 128), num_heads=(1, 2, 4, 8)),
    "twins_svt_small": dict(img_size=64, embed_dims=(16, 32, 64, 128), num_heads=(1, 2, 4, 8)), "nest_tiny": IMG,
    "botnet26t_256": IMG, "lambda_resnet26t": IMG, "halonet26t": dict(size=256), "efficientnetv2_rw_t": {}, "tf_efficientnetv2_b0": {}, "fbnetv3_b": {}, "fastvit_t8": {},
    "efficientvim_m1": {}, "iformer_t": {}, "lcnetv2_small": {}, "lowformer_b0": {}, "cspnext_tiny": {}, "convmixer_768_32": {}, "efficientformerv2_s0": dict(size=224),
    "efficientformer_l1": dict(size=224), "gcvit_xxtiny": dict(size=224), "sequencer2d_s": {}, "mvitv2_tiny": IMG, "dla60_res2net": WHOLE, "dpn48b": {}, "efficientnet_cc_b0_4e": {},
    "gernet_s": {}, "regnetz_005": {}, "res2net50_14w_8s": NARROW | WHOLE, "levit_conv_128s": IMG, "gcresnet33ts": {}, "legacy_seresnet18": {}, "cspresnet50": {}, "darknet17": {},
    "inception_v3": dict(size=96, keep=1), "inception_v4": dict(size=96, keep=1), "inception_resnet_v2": dict(size=96, keep=1), "xception41": {}, "legacy_xception": {},
    "sam2_hiera_tiny": dict(size=224, embed_dim=16, num_heads=1), "selecsls42": {}, "tresnet_m": {}, "eca_nfnet_l0": {}, "nextvit_small": {}, "rdnet_tiny": {}, "focalnet_tiny_srf": {},
}


def cases():
    import timm

    for name, options in MODELS.items():
        options = dict(options)
        size, keep = options.pop("size", 64), options.pop("keep", 2)
        make = lambda name=name, options=options, keep=keep: thin(timm.create_model(name, num_classes=10, **options), keep)
        yield from cases_of(f"timm_{name}", make, {"x": lambda b, size=size: pixels(b, 3, size, size)}, batch_size=4 if size <= 64 else 2, steps=2)
