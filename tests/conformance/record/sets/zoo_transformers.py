"""Model types of transformers with random weights, from configurations reduced by the names of their fields."""
import torch

from case import classes, pixels
from zoo import First, cases_of, thin

SMALL = {
    **dict.fromkeys(("hidden_size", "d_model", "dim", "n_embd", "embed_dim", "word_embed_proj_dim", "embedding_size", "rotary_dim_base", "conv_dim"), 32),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "num_layers", "n_layers"), 2),
    **dict.fromkeys(("encoder_layers", "decoder_layers", "num_decoder_layers", "num_encoder_layers"), 1),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads", "encoder_attention_heads", "decoder_attention_heads", "num_encoder_attention_heads",
                     "num_decoder_attention_heads"), 4),
    **dict.fromkeys(("num_key_value_heads", "num_kv_heads"), 2),
    **dict.fromkeys(("intermediate_size", "ffn_dim", "d_ff", "encoder_ffn_dim", "decoder_ffn_dim", "hidden_dim", "n_inner", "ffn_hidden_size", "moe_intermediate_size", "d_inner",
                     "shared_expert_intermediate_size", "intermediate_size_mlp"), 48),
    **dict.fromkeys(("vocab_size", "text_vocab_size"), 40),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "max_source_positions", "max_target_positions", "n_ctx", "max_seq_len", "max_sequence_length"), 8),
    **dict.fromkeys(("head_dim", "d_kv", "kv_channels", "v_head_dim", "qk_nope_head_dim", "qk_rope_head_dim", "attention_head_dim"), 8),
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"), 4),
    **dict.fromkeys(("num_experts_per_tok", "moe_topk", "moe_k", "num_experts_per_token"), 2),
    **dict.fromkeys(("q_lora_rank", "kv_lora_rank"), 16),
    **dict.fromkeys(("initializer_range", "init_std", "initializer_std"), 0.15),
    **dict.fromkeys(("pad_token_id",), 0), **dict.fromkeys(("bos_token_id", "decoder_start_token_id"), 1), **dict.fromkeys(("eos_token_id",), 2),
    "sliding_window": 4, "attention_window": 4, "image_size": 32, "patch_size": 8, "n_group": 1, "topk_group": 1, "state_size": 4, "time_step_rank": 4, "layerdrop": 0.0,
    "relative_attention_num_buckets": 8, "type_vocab_size": 2, "num_labels": 10, "apply_spec_augment": False, "rotary_dim": 8, "num_mel_bins": 16,
}


def tiny(config, **own):
    """A configuration of this class with small numbers in all fields whose names denote a count."""
    import transformers

    known, cut = config().to_dict(), {}
    for key, value in known.items():
        inner = getattr(config(), key, None)
        if isinstance(inner, transformers.PreTrainedConfig):
            cut[key] = tiny(type(inner)).to_dict()
        elif key in SMALL and (isinstance(value, (int, float)) or value is None and key in ("head_dim", "num_key_value_heads", "pad_token_id", "bos_token_id", "eos_token_id")):
            cut[key] = SMALL[key]
        elif ("drop" in key or key.endswith("_jitter_noise")) and isinstance(value, float):
            cut[key] = 0.0
    cut |= own
    if "num_labels" in own or "num_labels" not in known:
        cut.setdefault("num_labels", 10)
    made = config(**cut)
    for option in ("use_cache", "tie_word_embeddings"):
        if hasattr(made, option):
            setattr(made, option, False)
    return made


def tokens(n, vocabulary=40):
    return lambda b: classes(vocabulary - 3, b, n) + 3


def image(size, channels=3):
    return lambda b: pixels(b, channels, size, size)


def _mapped(mapping, name):
    """The configuration and the model class of a model type in one of the library's lists."""
    import transformers
    from transformers.models.auto import configuration_auto, modeling_auto

    model = getattr(modeling_auto, f"MODEL_FOR_{mapping}_MAPPING_NAMES")[name]
    model = model if isinstance(model, str) else model[0]
    return getattr(transformers, configuration_auto.CONFIG_MAPPING_NAMES[name]), getattr(transformers, model)


def of_type(mapping, name, inputs, target, out="logits", config=None, options=None, label="", **case_options):
    """The cases of one model type: `config` holds fields of the configuration, `options` further arguments of the call."""

    def make():
        c, model = _mapped(mapping, name)
        c = tiny(c, **(dict(max_position_embeddings=32) if name in LONG and hasattr(c(), "max_position_embeddings") else {}), **(config or {}))
        c._attn_implementation = "eager" if len(name) % 2 else "sdpa"
        c._experts_implementation = "batched_mm"  # no exporter supports the grouped product
        try:
            net = model(c)
        except ValueError as e:
            if "scaled_dot_product" not in str(e) and "attn" not in str(e):
                raise
            c._attn_implementation = "eager"
            net = model(c)
        return First(thin(net), tuple(inputs), out, **(options or {}))

    yield from cases_of(f"hf_{name}{label}".replace("-", "_"), make, inputs, target, dynamic=False, **case_options)


CAUSAL = """gpt2 llama mistral qwen2 qwen3 gemma gemma2 gemma3_text phi phi3 falcon mpt bloom opt gpt_neo gpt_neox gptj gpt_bigcode mixtral qwen2_moe qwen3_moe olmo olmo2 olmo3 stablelm starcoder2
 cohere cohere2 granite granitemoe glm glm4 helium nemotron persimmon codegen openai-gpt xglm ctrl biogpt rwkv mamba mamba2 falcon_mamba smollm3 ernie4_5 exaone4 seed_oss deepseek_v2 deepseek_v3
 gpt_oss qwen3_next llama4_text recurrent_gemma jamba bamba zamba2 lfm2 nanochat arcee apertus hunyuan_v1_dense minimax diffllama doge bitnet modernbert-decoder xlnet xlm reformer gpt_neox_japanese olmoe
 phimoe dbrx jetmoe glm4_moe dots1 flex_olmo ministral3 nemotron_h bart bert roberta granitemoehybrid xlstm cpmant vaultgemma youtu kimi_linear internlm3 minicpm3""".split()
MASKED = """bert roberta distilbert albert electra deberta-v2 deberta modernbert mobilebert squeezebert convbert mpnet funnel longformer fnet nystromformer ibert xlm-roberta camembert layoutlm esm rembert
 roformer big_bird bart mbart megatron-bert eurobert nomic_bert flaubert luke mra yoso perceiver ernie data2vec-text roberta-prelayernorm gte jina_embeddings_v3""".split()
SEQ2SEQ = """t5 bart pegasus mbart marian mt5 umt5 m2m_100 blenderbot blenderbot-small led longt5 bigbird_pegasus mvp plbart prophetnet pegasus_x switch_transformers nllb-moe fsmt t5gemma""".split()
CLASSIFIERS = """bert distilbert roberta albert deberta-v2 xlnet gpt2 llama mobilebert mpnet funnel canine qwen3 opt""".split()

# Their positions start after the padding, or come in blocks.
LONG = """roberta camembert xlm-roberta longformer roberta-prelayernorm data2vec-text luke mra yoso esm ibert mpnet nystromformer big_bird bigbird_pegasus led longt5 reformer""".split()
OWN = {
    "t5": dict(feed_forward_proj="gated-gelu"), "gpt_neo": dict(attention_types=[[["global", "local"], 1]], window_size=4), "albert": dict(classifier_dropout_prob=0.0),
    "falcon": dict(alibi=False), "gpt2": dict(n_inner=48), "squeezebert": dict(embedding_size=32, q_groups=2, k_groups=2, v_groups=2, intermediate_groups=2, output_groups=2, post_attention_groups=1),
    "mobilebert": dict(embedding_size=32, intra_bottleneck_size=16, true_hidden_size=16), "funnel": dict(block_sizes=[1, 1], d_head=8), "reformer": dict(attn_layers=["local"], axial_pos_shape=(2, 4), axial_pos_embds_dim=(16, 16), local_attn_chunk_length=4, is_decoder=True),
    "mpt": dict(max_seq_len=32), "longformer": dict(attention_window=[4, 4]), "mamba": dict(time_step_rank=4), "ctrl": dict(dff=48), "big_bird": dict(attention_type="original_full"),
    "bigbird_pegasus": dict(attention_type="original_full"), "xlnet": dict(d_head=8), "rwkv": dict(attention_hidden_size=32), "mamba2": dict(num_heads=8, head_dim=8, n_groups=1, chunk_size=4, expand=2),
    "recurrent_gemma": dict(lru_width=32, attention_window_size=4, block_types=["recurrent", "attention"]), "fnet": dict(tpu_short_seq_length=8),
    "fsmt": dict(src_vocab_size=40, tgt_vocab_size=40), "convbert": dict(embedding_size=32, head_ratio=2, conv_kernel_size=3), "xglm": dict(attention_heads=4), "xlm": dict(emb_dim=32), "flaubert": dict(emb_dim=32),
    "nystromformer": dict(num_landmarks=8, segment_means_seq_len=8), "esm": dict(position_embedding_type="rotary"), "perceiver": dict(d_latents=32, num_latents=8, num_self_attends_per_block=1, max_position_embeddings=8),
    **dict.fromkeys(("deepseek_v2", "deepseek_v3", "youtu", "minicpm3"), dict(num_key_value_heads=4)), "mpnet": dict(bos_token_id=0, pad_token_id=1), "dots1": dict(n_shared_experts=1),
    "lilt": dict(channel_shrink_ratio=1), "layoutlmv3": dict(coordinate_size=4, shape_size=8, input_size=32), "markuplm": dict(max_depth=4), "t5_classes": {},
}


def _ones(b):
    return torch.ones(b, 8, dtype=torch.int64)


def _text():
    """The common ones of each list first."""
    yield from _causal(CAUSAL[:18])
    yield from _masked(MASKED[:10])
    yield from _seq2seq(SEQ2SEQ[:4])
    yield from _vision()
    yield from _audio()
    yield from _causal(CAUSAL[18:])
    yield from _masked(MASKED[10:])
    yield from _seq2seq(SEQ2SEQ[4:])
    for name in CLASSIFIERS:
        yield from of_type("SEQUENCE_CLASSIFICATION", name, {"input_ids": tokens(8)}, "classes", config=OWN.get(name), label="_classes")


def _causal(names):
    for name in names:
        config = OWN.get(name, {}) | (dict(is_decoder=True) if name in ("bert", "roberta", "reformer") else {})
        label = "_causal" if name in ("bert", "bart", "roberta") else ""
        yield from of_type("CAUSAL_LM", name, {"input_ids": tokens(8)}, "tokens", config=config, label=label, styles=("dynamo", "default"))
        # Without a mask the models look for packed sentences, with an operation that the older exporter does not support.
        yield from of_type("CAUSAL_LM", name, {"input_ids": tokens(8), "attention_mask": _ones}, "tokens", config=config, label=label, styles=("legacy",))


def _masked(names):
    for name in names:
        inputs = {"input_ids": tokens(8)}
        if name not in ("fnet", "perceiver"):
            inputs["attention_mask"] = lambda b: torch.cat([torch.ones(b, 6, dtype=torch.int64), classes(2, b, 2)], 1)
        yield from of_type("MASKED_LM", name, inputs, "tokens", config=OWN.get(name), label="_masked")


def _seq2seq(names):
    for name in names:
        yield from of_type("SEQ_TO_SEQ_CAUSAL_LM", name, {"input_ids": tokens(8), "decoder_input_ids": tokens(6)}, "tokens", config=OWN.get(name), label="_seq2seq")


def _vision():
    stages = dict(embed_dim=16, depths=[1, 1], num_heads=[2, 4], window_size=4, patch_size=2)
    own = {
        "vit": {}, "deit": {}, "swin": stages, "swinv2": stages, "beit": {}, "dinov2": {}, "dinov2_with_registers": {}, "convnext": dict(hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1], patch_size=4), "ijepa": {},
        "convnextv2": dict(hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1], patch_size=4), "resnet": dict(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="bottleneck"),
        "regnet": dict(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], groups_width=4), "mobilenet_v1": dict(depth_multiplier=0.25), "mobilenet_v2": dict(depth_multiplier=0.35), "vit_msn": {},
        "segformer": dict(hidden_sizes=[8, 16, 16, 32], depths=[1, 1, 1, 1], decoder_hidden_size=16), "pvt": dict(hidden_sizes=[8, 16, 16, 32], depths=[1, 1, 1, 1], num_attention_heads=[1, 2, 2, 4]),
        "pvt_v2": dict(hidden_sizes=[8, 16, 16, 32], depths=[1, 1, 1, 1], num_attention_heads=[1, 2, 2, 4]), "poolformer": dict(hidden_sizes=[8, 16, 16, 32], depths=[1, 1, 1, 1]),
        "focalnet": dict(embed_dim=16, depths=[1, 1], focal_levels=[2, 2], focal_windows=[3, 3], hidden_sizes=[16, 32], patch_size=2), "bit": dict(embedding_size=16, hidden_sizes=[16, 32], depths=[1, 1], num_groups=4),
        "mobilevit": dict(hidden_sizes=[16, 24, 32], neck_hidden_sizes=[8, 8, 16, 16, 24, 24, 64]), "efficientnet": dict(width_coefficient=0.25, depth_coefficient=0.2, hidden_dim=320),
        "hiera": dict(embed_dim=16, depths=[1, 1], num_heads=[1, 2], num_query_pool=1, image_size=[32, 32], patch_size=[7, 7], patch_stride=[4, 4], patch_padding=[3, 3], query_stride=[2, 2], masked_unit_size=[4, 4]),
        "swiftformer": dict(depths=[1, 1, 1, 1], embed_dims=[8, 16, 16, 32]), "data2vec-vision": {}, "clip": {}, "siglip": {},
    }
    for name, config in own.items():
        yield from of_type("IMAGE_CLASSIFICATION", name, {"pixel_values": image(64 if name in ("efficientnet", "mobilevit", "mobilevitv2", "regnet", "mobilenet_v2", "hgnet_v2", "swiftformer") else 32)},
                           "classes", config=config, label="_image")
    for name in ("segformer", "mobilenet_v2", "mobilevit"):
        yield from of_type("SEMANTIC_SEGMENTATION", name, {"pixel_values": image(64 if name != "beit" else 32)}, "classes", config=own.get(name), label="_segmentation")
    for name in ("yolos",):
        yield from of_type("OBJECT_DETECTION", name, {"pixel_values": image(64 if name != "yolos" else 32)}, "tokens", config=dict(image_size=[32, 32]) if name == "yolos" else dict(num_queries=5), label="_detection")
    for name in ("glpn",):
        yield from of_type("DEPTH_ESTIMATION", name, {"pixel_values": image(64)}, "values", out="predicted_depth", label="_depth")
    for name in ("timesformer", "videomae", "vivit"):
        yield from of_type("VIDEO_CLASSIFICATION", name, {"pixel_values": lambda b: pixels(b, 4, 3, 32, 32)}, "classes", config=dict(num_frames=4), label="_video")
    for name in ("clip", "siglip", "blip"):
        yield from of_type("ZERO_SHOT_IMAGE_CLASSIFICATION", name, {"input_ids": tokens(8), "pixel_values": image(32)}, "values", out="logits_per_image", label="_contrast")


def _audio():
    waves = dict(conv_dim=[8, 8, 8], conv_kernel=[4, 3, 3], conv_stride=[4, 2, 2], num_feat_extract_layers=3, num_conv_pos_embeddings=8, num_conv_pos_embedding_groups=2, classifier_proj_size=16,
                 mask_time_prob=0.0, mask_feature_prob=0.0, feat_extract_norm="group")
    sound = {"input_values": lambda b: pixels(b, 400)}
    for name in ("wav2vec2", "hubert", "wavlm", "unispeech", "sew", "data2vec-audio", "wav2vec2-conformer"):
        yield from of_type("CTC", name, sound, "tokens", config=waves | (dict(squeeze_factor=1) if name == "sew" else {}), label="_ctc")
        yield from of_type("AUDIO_CLASSIFICATION", name, sound, "classes", config=waves | (dict(squeeze_factor=1) if name == "sew" else {}), label="_sound")
    yield from of_type("AUDIO_CLASSIFICATION", "audio-spectrogram-transformer", {"input_values": lambda b: pixels(b, 24, 16)}, "classes",
                       config=dict(max_length=24, num_mel_bins=16, frequency_stride=8, time_stride=8), label="_sound")
    features = {"input_features": lambda b: pixels(b, 16, 32), "decoder_input_ids": tokens(6)}
    yield from of_type("SPEECH_SEQ_2_SEQ", "whisper", features, "tokens", config=dict(max_source_positions=16), label="_speech")
    yield from of_type("SPEECH_SEQ_2_SEQ", "speech_to_text", {"input_features": lambda b: pixels(b, 32, 16), "decoder_input_ids": tokens(6)}, "tokens",
                       config=dict(input_feat_per_channel=16, num_conv_layers=2, conv_kernel_sizes=[3, 3], conv_channels=32), label="_speech")
    yield from of_type("SPEECH_SEQ_2_SEQ", "moonshine", {"input_values": lambda b: pixels(b, 1200), "decoder_input_ids": tokens(6)}, "tokens", label="_speech")


def cases():
    yield from _text()
