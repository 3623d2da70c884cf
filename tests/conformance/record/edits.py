"""Edits that people make to a file by hand. They change neither what the file computes nor which numbers are trained. Each takes an `Edit`,
changes its model in place, and returns False if the file contains nothing that it could change. If a trained tensor gets another form, the
edit records this in `forms`."""
from __future__ import annotations

import random
from typing import Callable

import numpy as np
import onnx
import onnx.compose
import onnx.version_converter
from onnx import AttributeProto, TensorProto, helper, numpy_helper

FLOAT = TensorProto.FLOAT


class Edit:
    """A model that is being edited, its trained tensors, and random choices."""

    def __init__(self, model: onnx.ModelProto, trained: list[str], seed: int):
        self.model, self.random = model, random.Random(seed)
        # for each recorded tensor: its parts in the file and how to compute them from it
        self.forms: dict[str, list[tuple[str, Callable]]] = {t: [(t, lambda a: a)] for t in trained}
        self.kept = trained  # the trained tensors of the case before any edit
        self.made = 0
        self.split = True  # whether a trained tensor may be divided, or have another rank

    @property
    def graph(self):
        return self.model.graph

    @property
    def opset(self):
        return next(o.version for o in self.model.opset_import if o.domain in ("", "ai.onnx"))

    @property
    def trained(self) -> list[str]:
        return [name for parts in self.forms.values() for name, _ in parts]

    def new(self, what: str) -> str:
        self.made += 1
        return f"{what}_edited_{self.made}"

    def initializer(self, name: str):
        return next((i for i in self.graph.initializer if i.name == name), None)

    def weights(self):
        """A random, nonempty subset of the trained tensors among the initializers, if there are any."""
        found = [i for i in self.graph.initializer if i.name in self.trained]
        return self.some(found)

    def some(self, found, share=0.5):
        chosen = [f for f in found if self.random.random() < share]
        return chosen or ([self.random.choice(found)] if found else [])

    def replace_uses(self, old: str, new: str, skip=()):
        """Nodes, and nodes and outputs of inner graphs, read `new` instead of `old`."""
        skip = {id(s) for s in skip}

        def walk(graph, top):
            for n in graph.node:
                if id(n) in skip:
                    continue
                for k, name in enumerate(n.input):
                    if name == old:
                        n.input[k] = new
                for a in n.attribute:
                    if a.type == AttributeProto.GRAPH:
                        walk(a.g, False)
            if not top:
                for o in graph.output:
                    if o.name == old:
                        o.name = new

        walk(self.graph, True)

    def put_first(self, nodes):
        rest = list(self.graph.node)
        del self.graph.node[:]
        self.graph.node.extend([*nodes, *rest])

    def reform(self, part: str, parts: list[tuple[str, Callable]]):
        """The trained tensor `part` of the file is replaced by several, each computed from it."""
        for tensor, have in self.forms.items():
            after = []
            for name, make in have:
                if name == part:
                    after += [(n, (lambda a, f=f, make=make: f(make(a)))) for n, f in parts]
                else:
                    after.append((name, make))
            self.forms[tensor] = after


def set_value(graph, name, value):
    index = next(k for k, i in enumerate(graph.initializer) if i.name == name)
    del graph.initializer[index]
    graph.initializer.append(numpy_helper.from_array(np.array(value, order="C"), name))


def constants_of_weights(e):
    nodes = []
    for i in e.weights():
        if any(v.name == i.name for v in [*e.graph.input, *e.graph.output]):
            continue
        t = TensorProto()
        t.CopyFrom(i)
        t.name = ""
        nodes.append(helper.make_node("Constant", [], [i.name], e.new("constant"), value=t))
        e.graph.initializer.remove(i)
    e.put_first(nodes)
    return bool(nodes)


def constants_of_numbers(e):
    """Turns initializers that are not trained into Constant nodes."""
    nodes = []
    for i in e.some([i for i in e.graph.initializer if i.name not in e.trained and not any(v.name == i.name for v in [*e.graph.input, *e.graph.output])], 0.7):
        t = TensorProto()
        t.CopyFrom(i)
        t.name = ""
        nodes.append(helper.make_node("Constant", [], [i.name], value=t))
        e.graph.initializer.remove(i)
    e.put_first(nodes)
    return bool(nodes)


def initializers_of_constants(e):
    found = [n for n in e.graph.node if n.op_type == "Constant" and n.attribute[0].name == "value" and n.output[0] not in e.trained and not any(v.name == n.output[0] for v in e.graph.output)]
    for n in e.some(found, 0.7):
        t = TensorProto()
        t.CopyFrom(n.attribute[0].t)
        t.name = n.output[0]
        e.graph.initializer.append(t)
        e.graph.node.remove(n)
    return bool(found)


def listed_inputs(e):
    have = {i.name for i in e.graph.input}
    found = [i for i in e.graph.initializer if i.name not in have]
    for i in e.some(found, 0.8):
        e.graph.input.append(helper.make_tensor_value_info(i.name, i.data_type, list(i.dims)))
    return bool(found)


def identities(e):
    nodes = []
    for i in e.weights():
        if any(v.name == i.name for v in e.graph.output):
            continue
        at = i.name
        for _ in range(e.random.choice([1, 2])):
            nodes.append(helper.make_node("Identity", [at], [e.new(i.name)]))
            at = nodes[-1].output[0]
        e.replace_uses(i.name, at, nodes)
    e.put_first(nodes)
    return bool(nodes)


def _behind(e, i, value, nodes_of, part):
    """Stores the weight i as `value`; `nodes_of(name)` are the nodes that restore the original."""
    old, new = i.name, e.new(i.name)
    nodes = nodes_of(new, old)
    if not any(v.name == old for v in e.graph.input):
        set_value(e.graph, old, value)
        e.graph.initializer[-1].name = new
        e.reform(old, [(new, part)])
        e.put_first(nodes)
        return True
    return False


def transposed(e):
    done = False
    for i in e.weights():
        if len(i.dims) < 2:
            continue
        perm = list(range(len(i.dims)))
        e.random.shuffle(perm)
        back = list(np.argsort(perm))
        done |= _behind(e, i, numpy_helper.to_array(i).transpose(perm), lambda a, b: [helper.make_node("Transpose", [a], [b], perm=[int(k) for k in back])], lambda a, p=tuple(perm): a.transpose(p))
    return done


def flat(e):
    done = False
    if not e.split or e.opset < 5:
        return False
    for i in e.weights():
        if len(i.dims) < 1:
            continue
        shape = e.new("shape")
        dims = list(i.dims)
        if e.random.random() < 0.5:
            dims[e.random.randrange(len(dims))] = -1
        e.graph.initializer.append(numpy_helper.from_array(np.array(dims, np.int64), shape))
        done |= _behind(e, i, numpy_helper.to_array(i).reshape(-1), lambda a, b, s=shape: [helper.make_node("Reshape", [a, s], [b])], lambda a: a.reshape(-1))
    return done


def halves(e):
    """Stores a weight in two parts that are concatenated."""
    done = False
    if not e.split:
        return False
    for i in e.weights():
        axes = [k for k, n in enumerate(i.dims) if n > 1]
        if not axes or any(v.name == i.name for v in e.graph.input):
            continue
        axis = e.random.choice(axes)
        at = e.random.randrange(1, i.dims[axis])
        value, old, (a, b) = numpy_helper.to_array(i), i.name, (e.new(i.name), e.new(i.name))
        first, second = (lambda v, axis=axis, at=at: np.split(v, [at], axis)[0]), (lambda v, axis=axis, at=at: np.split(v, [at], axis)[1])
        e.graph.initializer.remove(i)
        for name, f in ((a, first), (b, second)):
            e.graph.initializer.append(numpy_helper.from_array(np.array(f(value), order="C"), name))
        e.put_first([helper.make_node("Concat", [a, b], [old], axis=axis)])
        e.reform(old, [(a, first), (b, second)])
        done = True
    return done


def doubles(e):
    """Stores weights as float64, followed by a Cast."""
    done = False
    for i in e.weights():
        if i.data_type == FLOAT and not any(v.name == i.name for v in [*e.graph.input, *e.graph.output]):
            done |= _behind(e, i, numpy_helper.to_array(i).astype(np.float64), lambda a, b: [helper.make_node("Cast", [a], [b], to=FLOAT)], lambda a: a)
    return done


def typed_data(e):
    """Stores numbers in the typed fields instead of raw bytes."""
    for i in list(e.graph.initializer):
        if i.HasField("raw_data") and i.data_type in (FLOAT, TensorProto.INT64, TensorProto.INT32, TensorProto.DOUBLE, TensorProto.BOOL):
            value = numpy_helper.to_array(i)
            i.CopyFrom(helper.make_tensor(i.name, i.data_type, i.dims, value.reshape(-1).tolist()))
    return True


def no_names(e):
    for n in e.graph.node:
        n.name = ""
    del e.graph.value_info[:]
    return True


def other_names(e):
    """Renames all intermediate values to names that no exporter generates."""
    made, style = {}, e.random.randrange(4)
    form = [lambda k, n: str(k), lambda k, n: f"ü {n} \u4e2d {k}", lambda k, n: f"{n}//..::{k}%'\"", lambda k, n: f"x{k}"][style]
    keep = {v.name for v in [*e.graph.input, *e.graph.output]} | set(e.trained) | {i.name for i in e.graph.initializer}

    def walk(graph, known):
        known = dict(known)
        for n in graph.node:
            for k, name in enumerate(n.output):
                if name and name not in keep and name not in known:
                    known[name] = form(len(made) + 1000, name)
                    made[known[name]] = True
        for v in [*graph.input, *graph.initializer] if graph is not e.graph else []:
            if v.name not in known:
                known[v.name] = form(len(made) + 1000, v.name)
                made[known[v.name]] = True
        for n in graph.node:
            for names in (n.input, n.output):
                for k, name in enumerate(names):
                    names[k] = known.get(name, name)
            for a in n.attribute:
                if a.type == AttributeProto.GRAPH:
                    walk(a.g, known)
        for v in [*graph.value_info, *graph.output, *(graph.input if graph is not e.graph else []), *(graph.initializer if graph is not e.graph else [])]:
            v.name = known.get(v.name, v.name)

    if any(i.name in e.trained for n in e.graph.node for a in n.attribute if a.type == AttributeProto.GRAPH for i in a.g.initializer):
        return False
    walk(e.graph, {})
    return True


def dead_ends(e):
    """Adds unused nodes, initializers, and an output that is a weight."""
    floats = [i for i in e.graph.initializer if i.data_type == FLOAT and i.name in e.trained]
    if not floats:
        return False
    i = e.random.choice(floats)
    a = e.new("dead")
    e.graph.initializer.append(numpy_helper.from_array(np.ones((3, 2), np.float32), e.new("unused")))
    e.graph.node.append(helper.make_node("Neg", [i.name], [a]))
    e.graph.node.append(helper.make_node("Exp", [a], [e.new("dead")]))
    return True


def reordered(e):
    """Reorders the nodes topologically."""
    nodes, have = list(e.graph.node), {i.name for i in e.graph.initializer} | {i.name for i in e.graph.input} | {""}

    def reads(n):
        found = set(n.input)
        for a in n.attribute:
            if a.type == AttributeProto.GRAPH:
                inner = {o for m in a.g.node for o in m.output} | {v.name for v in a.g.input} | {v.name for v in a.g.initializer}
                found |= {r for m in a.g.node for r in reads(m)} - inner
                found |= {o.name for o in a.g.output} - inner
        return found

    made = {o for n in nodes for o in n.output}
    order, waiting = [], nodes
    while waiting:
        ready = [n for n in waiting if all(r in have or r not in made for r in reads(n))]
        n = e.random.choice(ready)
        order.append(n)
        have |= set(n.output)
        waiting = [m for m in waiting if m is not n]
    del e.graph.node[:]
    e.graph.node.extend(order)
    return True


def _floats(e):
    """Names of intermediate float32 values of known rank that nodes of the outer graph compute."""
    try:
        inferred = onnx.shape_inference.infer_shapes(e.model, data_prop=True)
    except Exception:
        return {}
    outputs = {o.name for o in e.graph.output}
    made = {o for n in e.graph.node for o in n.output} - outputs
    return {v.name: len(v.type.tensor_type.shape.dim) for v in inferred.graph.value_info
            if v.name in made and v.type.tensor_type.elem_type == FLOAT and v.type.tensor_type.HasField("shape")}


def neutral(e):
    """Inserts nodes that change nothing."""
    ranks = _floats(e)
    if not ranks:
        return False
    for name in e.some(sorted(ranks), min(1.0, 4 / len(ranks))):
        rank, out, nodes = ranks[name], e.new(name), []
        number = lambda v, t=np.int64: (lambda n: (e.graph.initializer.append(numpy_helper.from_array(np.array(v, t), n)), n)[1])(e.new("number"))
        kind = e.random.choice(["identity", "one", "zero", "cast", "concat", "again", "flat", "axes", "slice", "sequence", "where", "power", "negative", "dropout", "pad", "tile", "sum", "gather", "optional", "split", "max"])
        if kind == "identity":
            nodes = [helper.make_node("Identity", [name], [out])]
        elif kind == "one":
            nodes = [helper.make_node(e.random.choice(["Mul", "Div"]), [name, number(1, np.float32)], [out])]
        elif kind == "zero":
            nodes = [helper.make_node(e.random.choice(["Add", "Sub"]), [name, number(0, np.float32)], [out])]
        elif kind == "cast":
            middle = e.new(name)
            nodes = [helper.make_node("Cast", [name], [middle], to=TensorProto.DOUBLE), helper.make_node("Cast", [middle], [out], to=FLOAT)]
        elif kind == "concat" and rank:
            nodes = [helper.make_node("Concat", [name], [out], axis=e.random.randrange(rank))]
        elif kind == "again" and rank > 1:
            perm = e.random.sample(range(rank), rank)
            middle = e.new(name)
            nodes = [helper.make_node("Transpose", [name], [middle], perm=perm), helper.make_node("Transpose", [middle], [out], perm=[int(k) for k in np.argsort(perm)])]
        elif kind == "flat" and rank:
            shape, middle = e.new("shape"), e.new(name)
            nodes = [helper.make_node("Shape", [name], [shape]), helper.make_node("Reshape", [name, number([-1])], [middle]), helper.make_node("Reshape", [middle, shape], [out])]
        elif kind == "axes" and e.opset >= 13:
            middle, axis = e.new(name), e.random.randrange(rank + 1)
            nodes = [helper.make_node("Unsqueeze", [name, number([axis])], [middle]), helper.make_node("Squeeze", [middle, number([axis])], [out])]
        elif kind == "slice" and rank and e.opset >= 10:
            nodes = [helper.make_node("Slice", [name, number([0]), number([2**31 - 1]), number([e.random.randrange(rank)])], [out])]
        elif kind == "sequence" and e.opset >= 11:
            s = e.new("sequence")
            nodes = [helper.make_node("SequenceConstruct", [name, name], [s]), helper.make_node("SequenceAt", [s, number(e.random.choice([0, 1, -1]))], [out])]
        elif kind == "where" and e.opset >= 9:
            nodes = [helper.make_node("Where", [number([True], bool), name, number(7, np.float32)], [out])]
        elif kind == "power" and e.opset >= 12:
            nodes = [helper.make_node("Pow", [name, number(1, np.float32)], [out])]
        elif kind == "negative":
            middle = e.new(name)
            nodes = [helper.make_node("Neg", [name], [middle]), helper.make_node("Neg", [middle], [out])]
        elif kind == "dropout" and e.opset >= 12:
            nodes = [helper.make_node("Dropout", [name, number(0, np.float32)], [out])]
        elif kind == "pad" and rank and e.opset >= 11:
            nodes = [helper.make_node("Pad", [name, number([0] * (2 * rank))], [out])]
        elif kind == "tile" and rank:
            nodes = [helper.make_node("Tile", [name, number([1] * rank)], [out])]
        elif kind == "sum":
            middle = e.new(name)
            nodes = [helper.make_node("Sum", [name, name], [middle]), helper.make_node("Mul", [middle, number(0.5, np.float32)], [out])]
        elif kind == "gather" and rank and e.opset >= 11:
            axis, twice = e.random.randrange(rank), e.new(name)
            middle = e.new(name)
            nodes = [helper.make_node("Unsqueeze", [name, number([0])], [twice]) if e.opset >= 13 else helper.make_node("Unsqueeze", [name], [twice], axes=[0]), helper.make_node("Gather", [twice, number(0)], [out], axis=0)]
        elif kind == "optional" and e.opset >= 15:
            o = e.new("optional")
            nodes = [helper.make_node("Optional", [name], [o]), helper.make_node("OptionalGetElement", [o], [out])]
        elif kind == "split" and rank and e.opset >= 18:
            nodes = [helper.make_node("Split", [name], [out], axis=e.random.randrange(rank), num_outputs=1)]
        elif kind == "max" and e.opset >= 8:
            nodes = [helper.make_node(e.random.choice(["Max", "Min", "Mean"]), [name], [out])]
        if not nodes:
            nodes = [helper.make_node("Identity", [name], [out])]
        e.replace_uses(name, out, nodes)
        at = next(k for k, n in enumerate(e.graph.node) if name in n.output)
        rest = list(e.graph.node)
        del e.graph.node[:]
        e.graph.node.extend([*rest[:at + 1], *nodes, *rest[at + 1:]])
    return True


def raised(e):
    return _convert(e, e.random.randrange(e.opset + 1, 26) if e.opset < 25 else 0)


def lowered(e):
    return _convert(e, e.random.randrange(9, e.opset) if e.opset > 9 else 0)


def _convert(e, version):
    if not version:
        return False
    try:
        after = onnx.version_converter.convert_version(e.model, version)
    except Exception:
        return False
    e.model = after
    return True


def prefixed(e):
    e.model = onnx.compose.add_prefix(e.model, "net/", rename_inputs=False, rename_outputs=False)
    if any(o.name.startswith('net/') for o in e.graph.output):  # a file of an earlier tool, whose outputs have names of weights
        return False
    for part in e.trained:
        e.reform(part, [("net/" + part, lambda a: a)])
    return True


def open_outputs(e):
    """Removes the shapes of outputs and of intermediate values."""
    del e.graph.value_info[:]
    for o in e.graph.output:
        o.type.tensor_type.ClearField("shape")
    return True


def more_outputs(e):
    """Appends intermediate values to the outputs."""
    ranks = _floats(e)
    for name in e.some(sorted(ranks), 0.1) if ranks else []:
        e.graph.output.append(helper.make_tensor_value_info(name, FLOAT, None))
    return bool(ranks)
