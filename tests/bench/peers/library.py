"""Models of Hugging Face's transformers (`pip install transformers`), small ones of each architecture with random weights: the graphs that
users of the library export. The library is imported when a model is made, because other workloads do without it."""
import torch.nn as nn

WIDTH, LAYERS, HEADS, WORDS, TOKENS, IMAGE = 256, 4, 4, 2000, 128, 96
SIZES = dict(hidden_size=WIDTH, num_hidden_layers=LAYERS, num_attention_heads=HEADS)
ENCODER = dict(SIZES, intermediate_size=4 * WIDTH, vocab_size=WORDS, max_position_embeddings=TOKENS + 8, num_labels=10, pad_token_id=0)
DECODER = dict(SIZES, intermediate_size=3 * WIDTH, vocab_size=WORDS, max_position_embeddings=TOKENS + 8)
PATCHES = dict(SIZES, intermediate_size=4 * WIDTH, image_size=IMAGE, patch_size=8, num_labels=10)

# name: (configuration, its arguments)
DECODERS = dict(
    hf_gpt2=("GPT2Config", dict(vocab_size=WORDS, n_positions=TOKENS, n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0)),
    hf_llama=("LlamaConfig", dict(DECODER, num_key_value_heads=2)),
    hf_mistral=("MistralConfig", dict(DECODER, num_key_value_heads=2, sliding_window=64)),
    hf_qwen3=("Qwen3Config", dict(DECODER, num_key_value_heads=2, head_dim=WIDTH // HEADS)),
    hf_gemma=("GemmaConfig", dict(DECODER, num_key_value_heads=2, head_dim=WIDTH // HEADS)),
    hf_gpt_neox=("GPTNeoXConfig", DECODER),
    hf_phi=("PhiConfig", DECODER),
    hf_opt=("OPTConfig", dict(hidden_size=WIDTH, num_hidden_layers=LAYERS, num_attention_heads=HEADS, ffn_dim=4 * WIDTH, vocab_size=WORDS,
                              max_position_embeddings=TOKENS + 8, word_embed_proj_dim=WIDTH)),
    hf_bloom=("BloomConfig", dict(vocab_size=WORDS, hidden_size=WIDTH, n_layer=LAYERS, n_head=HEADS)),
    hf_mamba=("MambaConfig", dict(vocab_size=WORDS, hidden_size=WIDTH, num_hidden_layers=2)),
)
TEXT_CLASSIFIERS = dict(
    hf_bert=("BertConfig", ENCODER),
    hf_distilbert=("DistilBertConfig", dict(vocab_size=WORDS, dim=WIDTH, n_layers=LAYERS, n_heads=HEADS, hidden_dim=4 * WIDTH, num_labels=10,
                                            max_position_embeddings=TOKENS + 8)),
    hf_roberta=("RobertaConfig", ENCODER),
    hf_albert=("AlbertConfig", dict(ENCODER, embedding_size=64)),
    hf_electra=("ElectraConfig", dict(ENCODER, embedding_size=64)),
    hf_deberta=("DebertaV2Config", dict(ENCODER, relative_attention=True, pos_att_type=["p2c", "c2p"])),
    hf_modernbert=("ModernBertConfig", ENCODER),
)
IMAGE_CLASSIFIERS = dict(
    hf_vit=("ViTConfig", PATCHES),
    hf_beit=("BeitConfig", dict(PATCHES, use_relative_position_bias=True)),
    hf_swin=("SwinConfig", dict(image_size=IMAGE, patch_size=4, embed_dim=48, depths=[2, 2, 2], num_heads=[2, 4, 8], window_size=6, num_labels=10)),
    hf_convnext=("ConvNextConfig", dict(hidden_sizes=[48, 96, 192, 384], depths=[2, 2, 4, 2], image_size=IMAGE, num_labels=10)),
    hf_segformer=("SegformerConfig", dict(num_labels=10)),
    hf_poolformer=("PoolFormerConfig", dict(num_labels=10, hidden_sizes=[32, 64, 128, 256])),
    hf_mobilevit=("MobileViTConfig", dict(image_size=IMAGE, num_labels=10)),
    hf_resnet=("ResNetConfig", dict(embedding_size=32, hidden_sizes=[64, 128, 256], depths=[2, 2, 2], num_labels=10)),
)


class Logits(nn.Module):
    """The logits of a model of the library, one row for each label."""

    def __init__(self, net, **arguments):
        super().__init__()
        self.net, self.arguments = net, arguments

    def forward(self, x):
        return self.net(x, **self.arguments).logits.flatten(0, -2)


def maker(kind, config, options, **arguments):
    def make():
        import transformers
        return Logits(getattr(transformers, kind).from_config(getattr(transformers, config)(**options)), **arguments)
    return make


# name: a function that makes the model
TEXTS = {name: maker("AutoModelForCausalLM", *c, use_cache=False) for name, c in DECODERS.items()}
SEQUENCES = {name: maker("AutoModelForSequenceClassification", *c) for name, c in TEXT_CLASSIFIERS.items()}
IMAGES = {name: maker("AutoModelForImageClassification", *c) for name, c in IMAGE_CLASSIFIERS.items()}
