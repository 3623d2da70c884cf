"""Edits that move some nodes into a function, a branch or a loop, and tools that rewrite a whole file."""
from __future__ import annotations

import copy

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, helper, numpy_helper


def _reads(nodes) -> list[str]:
    """What the nodes, including inner graphs, read but do not compute, in order."""
    made, found = {o for n in nodes for o in n.output}, {}

    def walk(graph, inner):
        inner = inner | {v.name for v in graph.input} | {v.name for v in graph.initializer}
        for n in graph.node:
            for i in n.input:
                if i and i not in inner and i not in made:
                    found.setdefault(i)
            for a in n.attribute:
                if a.type == AttributeProto.GRAPH:
                    walk(a.g, inner)
            inner = inner | set(n.output)
        for o in graph.output:
            if o.name not in inner and o.name not in made:
                found.setdefault(o.name)

    for n in nodes:
        for i in n.input:
            if i and i not in made:
                found.setdefault(i)
        for a in n.attribute:
            if a.type == AttributeProto.GRAPH:
                walk(a.g, set())
    return list(found)


def _fixed(n):
    """Whether a node must stay where it is: it draws random numbers, or its statistics are state."""
    return n.op_type in ("Dropout", "BatchNormalization", "RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Bernoulli", "SequenceConstruct", "Optional")


def _chunk(e):
    """Consecutive nodes, their inputs, and the results that are read after them; all of these are tensors."""
    nodes = list(e.graph.node)
    for _ in range(20):
        a = e.random.randrange(len(nodes))
        b = min(len(nodes), a + e.random.choice([1, 2, 3, 5, 8, 13, 40]))
        chunk = nodes[a:b]
        if any(_fixed(n) for n in chunk):
            continue
        later = set(_reads(nodes[b:])) | {o.name for o in e.graph.output}
        out = [o for n in chunk for o in n.output if o in later]
        if out and not any(o in e.trained for n in chunk for o in n.output):
            return a, b, chunk, _reads(chunk), out
    return None


def _put(e, a, b, nodes):
    rest = list(e.graph.node)
    del e.graph.node[:]
    e.graph.node.extend([*rest[:a], *nodes, *rest[b:]])
    if len({v.name for v in e.graph.value_info}):  # values that are now in the inner graph
        made = {o for n in e.graph.node for o in n.output}
        kept = [v for v in e.graph.value_info if v.name in made]
        del e.graph.value_info[:]
        e.graph.value_info.extend(kept)


def in_function(e):
    found = _chunk(e)
    if not found or e.model.ir_version < 8:
        return False
    a, b, chunk, reads, out = found
    name = e.new("part")
    e.model.functions.append(helper.make_function("edited", name, reads, out, [copy.deepcopy(n) for n in chunk], list(e.model.opset_import)))
    if not any(o.domain == "edited" for o in e.model.opset_import):
        e.model.opset_import.append(helper.make_opsetid("edited", 1))
    for f in e.model.functions:
        if f.domain == "edited" and not any(o.domain == "edited" for o in f.opset_import):
            f.opset_import.append(helper.make_opsetid("edited", 1))
    names = {r: r for r in reads}
    _put(e, a, b, [helper.make_node(name, [names[r] for r in reads], out, domain="edited")])
    return True


def _renamed(chunk, suffix):
    """A copy of the nodes with renamed values."""
    made = {o for n in chunk for o in n.output if o}
    known = {m: m + suffix for m in made}

    def walk(nodes, known):
        for n in nodes:
            for names in (n.input, n.output):
                for k, v in enumerate(names):
                    names[k] = known.get(v, v)
            for a in n.attribute:
                if a.type == AttributeProto.GRAPH:
                    inner = {v.name: v.name + suffix for v in [*a.g.input, *a.g.initializer]} | {o: o + suffix for m in a.g.node for o in m.output if o}
                    deep = known | inner
                    walk(a.g.node, deep)
                    for v in [*a.g.input, *a.g.output, *a.g.value_info, *a.g.initializer]:
                        v.name = deep.get(v.name, v.name)

    copies = [copy.deepcopy(n) for n in chunk]
    walk(copies, known)
    for n in copies:
        if n.name:
            n.name += suffix
    return copies, known


def _types(e, out):
    try:
        inferred = onnx.shape_inference.infer_shapes(e.model)
    except Exception:
        return None
    types = {v.name: v.type for v in [*inferred.graph.value_info, *inferred.graph.output]}
    if not all(o in types and types[o].HasField("tensor_type") for o in out):
        return None
    return {o: types[o] for o in out}


def _value(name, type, rank=0):
    v = onnx.ValueInfoProto()
    v.name = name
    v.type.tensor_type.elem_type = type.tensor_type.elem_type
    return v


def _condition(e):
    """A value that is true, and the nodes that compute it."""
    kind, name = e.random.randrange(3), e.new("yes")
    if kind == 0:
        e.graph.initializer.append(numpy_helper.from_array(np.array(True), name))
        return name, []
    if kind == 1:
        return name, [helper.make_node("Constant", [], [name], value=numpy_helper.from_array(np.array(True)))]
    x = next(v.name for v in e.graph.input if v.name not in {i.name for i in e.graph.initializer})
    size, zero = e.new("size"), e.new("zero")
    e.graph.initializer.append(numpy_helper.from_array(np.array(0, np.int64), zero))
    return name, [helper.make_node("Size", [x], [size]), helper.make_node("Greater", [size, zero], [name])]


def in_branch(e):
    found = _chunk(e)
    types = _types(e, found[4]) if found else None
    if not types or e.opset < 11:
        return False
    a, b, chunk, reads, out = found
    condition, nodes = _condition(e)
    graphs = []
    for side in ("_then", "_else"):
        copies, known = _renamed(chunk, e.new(side))
        graphs.append(helper.make_graph(copies, e.new(side), [], [_value(known[o], types[o]) for o in out]))
    _put(e, a, b, [*nodes, helper.make_node("If", [condition], out, then_branch=graphs[0], else_branch=graphs[1])])
    return True


def in_loop(e):
    found = _chunk(e)
    types = _types(e, found[4]) if found else None
    if not types or e.opset < 13:
        return False
    a, b, chunk, reads, out = found
    copies, known = _renamed(chunk, e.new("_body"))
    i, go, on, times, yes, zero = (e.new(k) for k in ("i", "go", "on", "times", "yes", "axis"))
    body = helper.make_graph([helper.make_node("Identity", [go], [on]), *copies], e.new("body"),
                             [helper.make_tensor_value_info(i, TensorProto.INT64, []), helper.make_tensor_value_info(go, TensorProto.BOOL, [])],
                             [helper.make_tensor_value_info(on, TensorProto.BOOL, []), *(_value(known[o], types[o]) for o in out)])
    for n, v in ((times, np.array(1, np.int64)), (yes, np.array(True)), (zero, np.array([0], np.int64))):
        e.graph.initializer.append(numpy_helper.from_array(v, n))
    rows = [e.new("rows") for _ in out]
    _put(e, a, b, [helper.make_node("Loop", [times, yes], rows, body=body), *(helper.make_node("Squeeze", [r, zero], [o]) for r, o in zip(rows, out))])
    return True


def _move_within(e, trained):
    """Moves initializers that only one inner graph reads into that graph: weights, or tensors that are not trained."""
    done = False
    top = {i for n in e.graph.node for i in n.input} | {o.name for o in e.graph.output} | {i.name for i in e.graph.input}
    holders = [a.g for n in e.graph.node for a in n.attribute if a.type == AttributeProto.GRAPH]
    for i in list(e.graph.initializer):
        readers = [g for g in holders if i.name in _reads_of_graph(g)]
        if i.name in top or len(readers) != 1 or (i.name in e.trained) != trained:
            continue
        readers[0].initializer.append(i)
        e.graph.initializer.remove(i)
        done = True
    return done


def numbers_within(e):
    """Moves constants that only an inner graph reads to its own initializers."""
    return _move_within(e, trained=False)


def weights_within(e):
    """The same for weights."""
    return _move_within(e, trained=True)


def _reads_of_graph(graph):
    holder = onnx.NodeProto()
    a = holder.attribute.add()
    a.name, a.type = "g", AttributeProto.GRAPH
    a.g.CopyFrom(graph)
    return set(_reads([holder]))


# Tools. If a tool changes or renames a trained tensor, the edit does not apply.


def _by(tool):
    def edit(e):
        before = {i.name: numpy_helper.to_array(i) for i in e.graph.initializer if i.name in e.trained}
        try:
            after = tool(copy.deepcopy(e.model))
        except Exception:
            return False
        have = {i.name: numpy_helper.to_array(i) for i in after.graph.initializer}
        if any(k not in have or have[k].shape != v.shape or not np.array_equal(have[k], v) for k, v in before.items()) or len(before) != len(e.trained):
            return False
        e.model = after
        return True

    return edit


def _slim(m):
    import onnxslim

    return onnxslim.slim(m)


def _sim(m):
    import onnxsim

    return onnxsim.simplify(m)[0]


def _passes(m):
    import onnxoptimizer

    return onnxoptimizer.optimize(m, [p for p in onnxoptimizer.get_fuse_and_elimination_passes() if "bn_into" not in p])


def _surgeon(m):
    import onnx_graphsurgeon as gs

    return gs.export_onnx(gs.import_onnx(m).fold_constants().cleanup().toposort())


def _scripted(m):
    import onnxscript.optimizer

    return onnxscript.optimizer.optimize(m)


def _inlined(m):
    import onnx.inliner

    return onnx.inliner.inline_local_functions(m)


def _ort(level):
    def tool(m):
        import os
        import tempfile

        import onnxruntime

        with tempfile.TemporaryDirectory() as folder:
            o = onnxruntime.SessionOptions()
            o.graph_optimization_level, o.optimized_model_filepath, o.log_severity_level = level, os.path.join(folder, "m.onnx"), 3
            onnxruntime.InferenceSession(m.SerializeToString(), o, providers=["CPUExecutionProvider"])
            return onnx.load(o.optimized_model_filepath)

    return tool


def _extended(m):
    import onnxruntime

    return _ort(onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED)(m)


def _basic(m):
    import onnxruntime

    return _ort(onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC)(m)


by_slim, by_sim, by_passes, by_surgeon, by_script, by_inliner, by_basic, by_extended = (_by(t) for t in (_slim, _sim, _passes, _surgeon, _scripted, _inlined, _basic, _extended))
