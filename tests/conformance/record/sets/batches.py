"""The architectures of other sets as people export them most: for one sample, for two, or for any number, and trained with batches of other sizes. Nothing
is kept. A module whose objective is in the file is exported for any number alone: else its file has one number for each batch."""
import dataclasses

import torch.nn as nn

from sets import activations, attention, control, convolution, corners, detached, everyday, everyday_data, families, further, further_images, further_series, graphs, idioms
from sets import library, objectives, practice, practice_scenes, random_graphs, random_mixes, random_nets, random_options, rarer, recent_blocks, recurrent, stray
from sets import unheard, unheard_signals, unheard_tables
from zoo import _folded

SETS = (everyday, everyday_data, families, further, further_images, further_series, idioms, objectives, rarer, recent_blocks, stray, random_mixes, random_nets,
        activations, attention, control, convolution, corners, detached, graphs, library, recurrent, practice, practice_scenes, unheard, unheard_signals, unheard_tables, random_options, random_graphs)

# exporter, opset, optimize / do_constant_folding, batch of the file (None: any), sizes of the batches
STYLES = {
    "one_legacy": ("legacy", 17, True, 1, [1, 5, 3, 5, 2, 5]),
    "one_dynamo": ("dynamo", 18, True, 1, [1, 5, 3, 5, 2, 5]),
    "one_plain": ("dynamo", 20, False, 1, [1, 5, 3, 5, 2, 5]),
    "two_legacy": ("legacy", 16, False, 2, [2, 5, 1, 4, 2, 3]),
    "two_dynamo": ("dynamo", 23, True, 2, [2, 5, 1, 4, 2, 3]),
    "two_plain": ("dynamo", 18, False, 2, [2, 5, 1, 4, 2, 3]),
    "any_legacy": ("legacy", 18, True, None, [4, 5, 1, 4, 2, 3]),
    "any_dynamo": ("dynamo", 21, True, None, [4, 5, 2, 4, 2, 3]),
    "any_plain": ("dynamo", 24, False, None, [4, 5, 2, 4, 2, 3]),
}


def cases():
    used = set()
    for module in SETS:
        seen = set()
        for case in module.cases():
            name = case.name.split("_dynamo")[0].split("_legacy")[0]
            if name in seen or case.write or case.dynamic_axes or case.external_data:
                continue
            seen.add(name)
            if name in used:  # two sets call a net the same
                name += "_" + module.__name__.rpartition(".")[2]
            used.add(name)
            if case.steps != 6:
                case = dataclasses.replace(case, steps=6, grad_accumulation=1, lr_schedule=None)
            norms = any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in case.module().modules())
            as_it_is = case.optimizer["type"] == "lamb" or "groups" in case.optimizer or case.frozen  # they look at the form of tensors, which folding changes
            for style, (exporter, opset, optimize, batch, sizes) in STYLES.items():
                if (case.script and exporter != "legacy") or (batch and not case.targets):
                    continue
                optimize = optimize and not as_it_is
                yield dataclasses.replace(case, name=f"{name}__{style}", exporter=exporter, opset=opset, optimize=optimize, mode="eval" if norms else case.mode, semantics="as_graph",
                                          dynamic_batch=batch is None, batch_size=batch or sizes[0], batch_sizes=sizes, as_file=case.as_file or (_folded if norms and optimize else None))
