"""The architectures of other sets in the most common forms of export: for one sample, for two, or for any number, and trained with other
batch sizes. Nothing is kept. A module that contains its objective is exported for any number only, because otherwise its file would be
specific to one batch size."""
import dataclasses

import torch.nn as nn

from sets import activations, assorted, assorted_series, assorted_tables, attention, control, convolution, corners, detached, everyday, everyday_data, families, further, further_images, further_series, graphs, idioms
from sets import library, objectives, practice, practice_scenes, random_graphs, random_mixes, random_nets, random_options, rarer, recent_blocks, recurrent, stray
from sets import textbook, textbook_recurrent, textbook_series, textbook_tables, textbook_tasks, uncommon, uncommon_data, unheard, unheard_signals, unheard_tables
from zoo import _folded

SETS = (everyday, everyday_data, families, further, further_images, further_series, idioms, objectives, rarer, recent_blocks, stray, random_mixes, random_nets,
        activations, attention, control, convolution, corners, detached, graphs, library, recurrent, practice, practice_scenes, unheard, unheard_signals, unheard_tables, random_options, random_graphs, uncommon, uncommon_data, textbook, textbook_tasks, textbook_series,
        textbook_recurrent, textbook_tables, assorted, assorted_series, assorted_tables)

# exporter, opset, optimize / do_constant_folding, batch size of the file (None: any), batch sizes of the training
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
            if name in used:  # two sets use the same name for a model
                name += "_" + module.__name__.rpartition(".")[2]
            used.add(name)
            if case.steps != 6:
                case = dataclasses.replace(case, steps=6, grad_accumulation=1, lr_schedule=None)
            norms = any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in case.module().modules())
            # their results depend on the form of tensors, which folding changes
            as_it_is = case.optimizer["type"] == "lamb" or "groups" in case.optimizer or case.frozen
            for style, (exporter, opset, optimize, batch, sizes) in STYLES.items():
                if (case.script and exporter != "legacy") or (batch and not case.targets):
                    continue
                optimize = optimize and not as_it_is
                yield dataclasses.replace(case, name=f"{name}__{style}", exporter=exporter, opset=opset, optimize=optimize, mode="eval" if norms else case.mode, semantics="as_graph",
                                          dynamic_batch=batch is None, batch_size=batch or sizes[0], batch_sizes=sizes, as_file=case.as_file or (_folded if norms and optimize else None))
