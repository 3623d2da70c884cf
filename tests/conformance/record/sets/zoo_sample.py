"""Models of timm and transformers that no other set has, drawn at random from the lists of the libraries, with a random style of export and
recipe: what a stranger may come with. The seed is printed and is part of the names.

sample_SEED=2 sample_COUNT=200 python record.py --out DIR --sets zoo_sample"""
import dataclasses
import os
import random

import torch.nn as nn

from case import classes, pixels, term
from sets import random_nets, zoo_timm, zoo_transformers
from zoo import _folded, cases_of, thin

MOST = 6_000_000  # maximum number of parameters of recorded models
STYLES = [("dynamo", True), ("dynamo", True), ("dynamo", False), ("legacy", False)]  # exporter, optimize


class TooLarge(Exception):
    pass


def small(make, keep):
    def made():
        net = thin(make(), keep)
        if sum(p.numel() for p in net.parameters()) > MOST:
            raise TooLarge(f"more than {MOST} parameters")
        return net

    return made


def timm_models(r):
    import timm

    large = ("giant", "huge", "large", "so400m", "so150m", "xlarge", "gigantic", "enormous", "_l_", "_xl", "7b", "base", "medium", "_m_", "_b_")
    names = [n for n in timm.list_models() if n not in zoo_timm.MODELS and not any(w in n for w in large)]
    families = {}
    for n in names:
        families.setdefault(timm.models.model_entrypoint(n).__module__, []).append(n)
    while True:  # families are equally likely, not names
        name = r.choice(families[r.choice(sorted(families))])
        size = 96 if "inception" in name or "nas" in name else 64

        def make(name=name, size=size):
            for options in (dict(img_size=size), {}):
                try:
                    return timm.create_model(name, num_classes=10, **options)
                except TypeError:
                    pass

        yield f"timm_{name}", small(make, 1), {"x": lambda b, size=size: pixels(b, 3, size, size)}, "classes", {}


# task: (inputs, target, the field of the model's output)
TEXT = {
    "CAUSAL_LM": ({"input_ids": zoo_transformers.tokens(8)}, "tokens", "logits"), "MASKED_LM": ({"input_ids": zoo_transformers.tokens(8), "attention_mask": zoo_transformers._ones}, "tokens", "logits"),
    "SEQUENCE_CLASSIFICATION": ({"input_ids": zoo_transformers.tokens(8)}, "classes", "logits"), "TOKEN_CLASSIFICATION": ({"input_ids": zoo_transformers.tokens(8)}, "tokens", "logits"),
    "QUESTION_ANSWERING": ({"input_ids": zoo_transformers.tokens(8)}, "classes", "end_logits"), "MULTIPLE_CHOICE": ({"input_ids": lambda b: classes(37, b, 2, 8) + 3}, "classes", "logits"),
    "SEQ_TO_SEQ_CAUSAL_LM": ({"input_ids": zoo_transformers.tokens(8), "decoder_input_ids": zoo_transformers.tokens(6)}, "tokens", "logits"),
    "NEXT_SENTENCE_PREDICTION": ({"input_ids": zoo_transformers.tokens(8)}, "classes", "logits"),
}
WAVES = dict(conv_dim=[8, 8, 8], conv_kernel=[4, 3, 3], conv_stride=[4, 2, 2], num_feat_extract_layers=3, num_conv_pos_embeddings=8, num_conv_pos_embedding_groups=2, classifier_proj_size=16,
             mask_time_prob=0.0, mask_feature_prob=0.0, feat_extract_norm="group")
OTHER = {
    "IMAGE_CLASSIFICATION": ({"pixel_values": zoo_transformers.image(64)}, "classes", "logits"), "MASKED_IMAGE_MODELING": ({"pixel_values": zoo_transformers.image(64)}, "values", "reconstruction"),
    "SEMANTIC_SEGMENTATION": ({"pixel_values": zoo_transformers.image(64)}, "classes", "logits"), "DEPTH_ESTIMATION": ({"pixel_values": zoo_transformers.image(64)}, "values", "predicted_depth"),
    "IMAGE_TO_IMAGE": ({"pixel_values": zoo_transformers.image(32)}, "values", "reconstruction"), "AUDIO_FRAME_CLASSIFICATION": ({"input_values": lambda b: pixels(b, 400)}, "tokens", "logits"),
    "AUDIO_XVECTOR": ({"input_values": lambda b: pixels(b, 400)}, "classes", "logits"), "CTC": ({"input_values": lambda b: pixels(b, 400)}, "tokens", "logits"),
    "AUDIO_CLASSIFICATION": ({"input_values": lambda b: pixels(b, 400)}, "classes", "logits"),
}


def transformers_models(r):
    from transformers.models.auto import modeling_auto

    lists = {t: getattr(modeling_auto, f"MODEL_FOR_{t}_MAPPING_NAMES", {}) for t in TEXT | OTHER}
    seen = {"CAUSAL_LM": zoo_transformers.CAUSAL, "MASKED_LM": zoo_transformers.MASKED, "SEQ_TO_SEQ_CAUSAL_LM": zoo_transformers.SEQ2SEQ, "SEQUENCE_CLASSIFICATION": zoo_transformers.CLASSIFIERS}
    while True:
        task = r.choice(list(TEXT | OTHER))
        names = [n for n in lists[task] if n not in seen.get(task, ())]
        if not names:
            continue
        name = r.choice(names)
        inputs, target, out = (TEXT | OTHER)[task]
        config = dict(zoo_transformers.OWN.get(name, {}))
        if "input_values" in inputs:
            config |= WAVES
        if "pixel_values" in inputs:
            config |= dict(image_size=64)
        if task == "QUESTION_ANSWERING":
            config["num_labels"] = 2
        if "swin" in name or "focalnet" in name:
            config |= dict(embed_dim=16, depths=[1, 1], num_heads=[2, 4], window_size=4, patch_size=2)
        case = next(zoo_transformers.of_type(task, name, inputs, target, out, config=config, styles=("legacy",)))
        yield f"hf_{name}_{task.lower()}".replace("-", "_"), small(case.module, 2), inputs, target, {}


def drawn(r, kind, at):
    name, make, inputs, target, options = next(kind)
    exporter, optimize = r.choice(STYLES)
    opset = r.choice([18, 18, 20, 21, 22, 23, 24, 25] if exporter == "dynamo" else [13, 14, 15, 16, 17, 17, 18, 19, 20])
    mode, dynamic = r.choice(["train", "eval"]), r.random() < (0.3 if exporter == "dynamo" else 0.6)
    case = next(cases_of(name, make, inputs, target, styles=("legacy",), batch_size=4, **options))
    loss = dict(case.losses[0])
    if loss["type"] == "cross_entropy":
        loss |= r.choice([{}, dict(label_smoothing=0.1), dict(ignore_index=1), dict(reduction="sum", weight=0.1)])
    else:
        loss["type"] = r.choice(["mse", "l1", "huber", "smooth_l1"])
    recipe = random_nets.recipe(r)
    recipe |= dict(steps=6 if recipe["grad_accumulation"] > 2 else 4)
    recipe["lr_schedule"] = recipe["lr_schedule"] and recipe["lr_schedule"][:recipe["steps"]]
    recipe["optimizer"]["lr"] *= 0.1
    semantics = r.choice(["train", "as_graph"]) if mode == "eval" and not optimize else "as_graph"
    style = f"{exporter}{opset}{'' if optimize or exporter == 'legacy' else 'n'}_{mode}"
    return dataclasses.replace(case, name=f"sample{at}_{name}_{style}", losses=[loss], exporter=exporter, opset=opset, optimize=optimize, mode=mode, semantics=semantics,
                               dynamic_batch=dynamic, as_file=_folded if optimize else None, **recipe)


def cases():
    seed = int(os.environ.get("sample_SEED", 1))
    print(f"seed {seed}")
    r = random.Random(seed)
    kinds = [timm_models(r), transformers_models(r)]
    names = set()
    for k in range(int(os.environ.get("sample_COUNT", 100))):
        try:
            case = drawn(r, kinds[k % 2], seed)
        except (StopIteration, AttributeError):
            continue
        if case.name not in names:
            names.add(case.name)
            yield case
