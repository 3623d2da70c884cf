"""`gradloom check` lists everything that prevents a model from being trained, in one run."""
import json
import os
import subprocess
import sys
import tempfile
import time
import unittest

import numpy as np
import onnx
import onnx.parser
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

onnxruntime.disable_telemetry_events()
GRADLOOM = os.path.abspath(sys.argv.pop(1))


def weight(name, *shape):
    return numpy_helper.from_array(np.full(shape, 0.1, "float32"), name)


def detector():
    """An operator that does not exist, a complex tensor, and operators without a gradient after a weight."""
    nodes = [
        helper.make_node("Conv", ["image", "stem.weight"], ["features"], name="/stem/conv"),
        helper.make_node("Rellu", ["features"], ["active"], name="/stem/rellu"),
        helper.make_node("Rellu", ["active"], ["more"], name="/stem/rellu_1"),
        helper.make_node("LabelEncoder", ["more"], ["regions"], name="/head/pool", domain="ai.onnx.ml", keys_floats=[0.0], values_floats=[2.0]),
        helper.make_node("Cast", ["scale8"], ["scale"], name="/head/cast", to=TensorProto.FLOAT),
        helper.make_node("Mul", ["regions", "scale"], ["scaled"], name="/head/mul"),
        helper.make_node("ReduceMean", ["scaled"], ["score"], name="/head/mean", keepdims=0),
        # One before any weight, and one after a weight but without effect on an output: neither needs a gradient.
        helper.make_node("SVMRegressor", ["features"], ["unused"], name="/other/norm", domain="ai.onnx.ml"),
    ]
    inputs = [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["N", 3, 8, 8])]
    initializers = [weight("stem.weight", 4, 3, 3, 3), helper.make_tensor("scale8", TensorProto.COMPLEX64, [1], b"\0" * 8, raw=True)]
    graph = helper.make_graph(nodes, "detector", inputs, [helper.make_tensor_value_info("score", TensorProto.FLOAT, [])], initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20), helper.make_opsetid("ai.onnx.ml", 3)], ir_version=10)


class CheckTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "model.onnx")

    def check(self, model, *flags, verb="check"):
        onnx.save(model, self.path)
        start = time.monotonic()
        done = subprocess.run([GRADLOOM, verb, self.path, *flags], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.seconds = time.monotonic() - start
        return done

    def test_all_three_are_listed(self):
        done = self.check(detector())
        self.assertEqual(done.returncode, 3, done.stderr)
        blocks = done.stderr.split("error[E-UNSUPPORTED]: ")[1:]
        self.assertEqual(len(blocks), 4, done.stderr)
        for block, words in zip(blocks, [
            ["unknown operator 'Rellu' (2 nodes)", "'/stem/rellu', '/stem/rellu_1'", "help: did you mean 'Relu'?"],
            ["elements of type COMPLEX64", "'scale8'", "help: convert the model"],
            ["no gradient for operator 'ai.onnx.ml.LabelEncoder' (1 node)", "'/head/pool'", "needed because 'stem.weight' is trained", "help: "],
            ["'ai.onnx.ml.SVMRegressor' (1 node)", "'/other/norm'", "help: "],
        ]):  # fmt: skip
            for word in words:
                self.assertIn(word, block)
        self.assertNotIn("needed", blocks[3])
        self.assertIn("stopped with 4 errors (exit 3)", done.stderr)
        print(f"four obstacles in {self.seconds * 1000:.0f} ms")
        self.assertLess(self.seconds, 1)

    def test_a_frozen_weight_needs_no_gradient(self):
        done = self.check(detector(), "--freeze", "stem.*")
        self.assertEqual(done.returncode, 3)
        self.assertIn("'ai.onnx.ml.LabelEncoder'", done.stderr)
        self.assertNotIn("is trained through it", done.stderr)

    def test_json(self):
        done = self.check(detector(), "--json")
        self.assertEqual(done.returncode, 3)
        errors = json.loads(done.stdout)["errors"]
        self.assertEqual([e["code"] for e in errors], ["E-UNSUPPORTED"] * 4)
        self.assertTrue(all(e["message"] and e["where"] and e["help"] for e in errors))

    def test_other_verbs_list_them_too(self):
        done = self.check(detector(), "-o", self.path + ".plan", verb="compile")
        self.assertEqual(done.returncode, 3)
        self.assertIn("stopped with 4 errors (exit 3)", done.stderr)

    def test_long_lists_are_shortened_except_in_json(self):
        count = 130
        names = [f"layer{i:03}.bias" for i in range(count)]
        nodes = [helper.make_node("Add", [f"h{i}", name], [f"h{i + 1}"]) for i, name in enumerate(names)]
        graph = helper.make_graph(
            nodes,
            "deep",
            [helper.make_tensor_value_info("h0", TensorProto.FLOAT, ["N", 2])],
            [helper.make_tensor_value_info(f"h{count}", TensorProto.FLOAT, ["N", 2])],
            [numpy_helper.from_array(np.array([i, 2.5], "float32"), name) for i, name in enumerate(names)],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
        lines = self.check(model, "--loss", "mse").stdout.splitlines()
        self.assertEqual(sum("layer" in line for line in lines), 100)
        self.assertTrue(any(line.startswith("trained") and "and 30 more" in line for line in lines), lines[-4:])
        self.assertEqual(len(json.loads(self.check(model, "--loss", "mse", "--json").stdout)["trained"]), count)

    def test_an_output_without_a_type(self):
        """As users add a value to the outputs of a file, by its name alone; onnxruntime takes such files."""
        model = onnx.parser.parse_model(
            """<ir_version: 10, opset_import: ["" : 17]> g (float[N, 2] x) => (float[N, 3] y)
            <float[2, 3] w = {1,2,3,4,5,6}> { h = MatMul (x, w)  y = Tanh (h) }"""
        )
        model.graph.output.append(onnx.ValueInfoProto(name="h"))
        onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        done = self.check(model, "--loss", "mse(h, target)")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("6 parameters trained", done.stdout)
        self.assertIn("h ", self.check(model, verb="inspect").stdout)

    def test_one_sample_without_an_axis_for_the_batch(self):
        for size in ("14", "batch_size"):
            model = onnx.parser.parse_model(
                f"""<ir_version: 10, opset_import: ["" : 17]> g (float[{size}] state, float[14, 2] w) => (float[2] y)
                {{ y = MatMul (state, w) }}"""
            )
            model.graph.initializer.append(numpy_helper.from_array(np.sin(np.arange(28, dtype="float32")).reshape(14, 2), "w"))
            done = self.check(model)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn("if the input 'state', which has a single axis, is one sample, the file has no axis for the batch", done.stderr)

    def test_a_file_that_ends_with_the_class(self):
        """The message says how to train the scores that it is chosen from."""
        model = onnx.parser.parse_model(
            """<ir_version: 10, opset_import: ["" : 17]> g (float[N, 2] x) => (int32[N] y)
            <float[2, 3] w = {1,2,3,4,5,6}> { scores = MatMul (x, w)  c = ArgMax <axis = 1, keepdims = 0> (scores)  y = Cast <to = 6> (c) }"""
        )
        done = self.check(model)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("ArgMax computes it from 'scores' float32[32,3]: compare that with --outputs 'scores'", done.stderr)
        done = self.check(model, "--loss", "cross_entropy(scores, label)")
        self.assertEqual(done.returncode, 4, done.stderr)
        self.assertIn("it is a value inside the model: name it as an output, too, with --outputs 'scores'", done.stderr)
        for flags in (["--outputs", "scores"], ["--outputs", "scores", "--outputs", "y", "--loss", "cross_entropy(scores, label)"]):
            done = self.check(model, *flags)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("6 parameters trained", done.stdout)
        # The trained file ends as before.
        runs = os.path.dirname(self.path)
        words = ["--loss", "cross_entropy(scores, label)", "--data", "random:8", "--batch", "4", "--epochs", "1", "--out", runs, "--name", "scored"]
        done = self.check(model, "--outputs", "scores", *words, verb="train")
        self.assertEqual(done.returncode, 0, done.stderr)
        trained = onnx.load(os.path.join(runs, "scored", "export", "model.onnx")).graph
        self.assertEqual([output.name for output in trained.output], ["y"])
        self.assertFalse(np.array_equal(numpy_helper.to_array(trained.initializer[0]), np.arange(1, 7).reshape(2, 3)))

    def test_the_loss_is_guessed_from_an_output_with_weights(self):
        """Other outputs may be numbers about the model, as in policies of ML-Agents, or an input that is passed on."""
        model = onnx.parser.parse_model(
            """<ir_version: 10, opset_import: ["" : 17]> g (float[N, 2] x) => (float[1] version, float[N, 2] passed, float[N, 3] action)
            <float[1] version = {3}, float[2, 3] w = {1,2,3,4,5,6}> { passed = Identity (x)  action = MatMul (x, w) }"""
        )
        self.assertIn("cross_entropy(action, target)", self.check(model).stdout)
        for loss in ("mse(version, target)", "mse(passed, target)"):
            said = self.check(model, "--loss", loss).stdout
            self.assertIn("warning the loss depends on no trained weight, so training changes nothing", said)
        self.assertNotIn("warning", self.check(model, "--loss", "mse(action, target)").stdout)

    def test_rates_of_parameters(self):
        """Factors of the learning rate and weight decay, where the configuration has any; as JSON always."""
        model = onnx.parser.parse_model(
            """<ir_version: 10, opset_import: ["" : 20]> g (float[N, 2] x) => (float[N, 2] y)
            <float[2, 2] body_w = {1,2,3,4}, float[2] body_b = {0.5, 1}, float[2, 2] head_w = {4,3,2,1}, float[2, 2] kept = {1,2,2,1}>
            { a = MatMul (x, kept)  h = MatMul (a, body_w)  i = Add (h, body_b)  j = Tanh (i)  y = MatMul (j, head_w) }"""
        )
        flags = ["--loss", "mse", "--freeze", "kept"]
        plain = self.check(model, *flags).stdout
        self.assertRegex(plain, r"trained  head_w   \(")
        given = ["--weight-decay", "0.01", "--no-decay", "1d", "--lr-scale", "body*=0.1"]
        said = self.check(model, *flags, *given).stdout
        for line in (r"trained  body_w   lr x 0\.1   decay 0\.01   \(", r"trained  body_b   lr x 0\.1   decay 0   \(",
                     r"trained  head_w   lr x 1   decay 0\.01   \(", r"frozen   kept   \("):
            self.assertRegex(said, line)
        made = json.loads(self.check(model, *flags, *given, "--json").stdout)
        self.assertEqual({of["name"]: (of["lr_scale"], of["weight_decay"]) for of in made["trained"]},
                         {"body_w": (0.1, 0.01), "body_b": (0.1, 0), "head_w": (1, 0.01)})
        self.assertNotIn("lr_scale", made["frozen"][0])

    def test_functions_and_branches(self):
        model = onnx.parser.parse_model(
            """<ir_version: 10, opset_import: ["" : 20, "my" : 1]>
            g (float[N, 4] x, string[2] words) => (float[N, 4] y) <float[4, 4] w = {1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7}, bool c = {1}>
            { h = MatMul (x, w)
              [call] k = my.tail (h)
              y = If (c) <then_branch = a () => (float[N, 4] p) { [in_branch] p = my.nothing (k) },
                          else_branch = b () => (float[N, 4] q) { q = Identity (k) }> }
            <domain: "my", opset_import: ["" : 20]> tail (x) => (y)
            { [in_function] y = Det (x) }"""
        )
        model.functions[0].node[0].op_type = "LabelEncoder"
        model.functions[0].node[0].domain = "ai.onnx.ml"
        model.functions[0].opset_import.append(helper.make_opsetid("ai.onnx.ml", 3))
        done = self.check(model)
        self.assertEqual(done.returncode, 3)
        for words in (["'my.nothing'", "'in_branch'"], ["string", "'words'"], ["'ai.onnx.ml.LabelEncoder'", "'in_function'", "because 'w' is trained"]):
            block = next(b for b in done.stderr.split("error[E-UNSUPPORTED]: ") if words[0] in b)
            for word in words:
                self.assertIn(word, block)

    def test_reports_detached_values(self):
        """A file from which PyTorch's optimizer removed the Identity of a detach(). The notes of its readers still name it."""

        def node(kind, inputs, output, line):
            made = helper.make_node(kind, inputs, [output], name="node_" + output)
            made.metadata_props.append(onnx.StringStringEntryProto(key="pkg.torch.onnx.fx_node", value=f"%{output} : [num_users=1] = call_function[target={line}, kwargs = {{}})"))
            return made

        def model(last):
            nodes = [
                node("MatMul", ["x", "first"], "h", "torch.ops.aten.mm.default](args = (%x, %p_first)"),
                node("Mul", ["h", "scale"], "scaled", "torch.ops.aten.mul.Tensor](args = (%h, %detach)"),
                last,
            ]
            graph = helper.make_graph(
                nodes,
                "net",
                [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 4])],
                [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 4])],
                [weight("first", 4, 4), weight("scale", 4), weight("bias", 4)],
            )
            return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)

        clear = model(node("Gemm", ["scaled", "first", "bias"], "y", "torch.ops.aten.addmm.default](args = (%p_bias, %detach_1, %p_first)"))
        said = self.check(clear, "--loss", "mse").stdout
        self.assertIn("detach  2 values get no gradient", said)
        self.assertIn("scale", next(line for line in said.splitlines() if "no differentiable path" in line))
        through = self.check(clear, "--loss", "mse", "--no-detach").stdout
        self.assertNotIn("detach ", through)
        self.assertNotIn("no differentiable path", through)
        # No argument identifies which of two values was detached.
        unclear = self.check(model(node("Sum", ["scaled", "h"], "y", "torch.ops.aten.add.Tensor](args = (%other, %detach_1)")), "--loss", "mse")
        self.assertIn("1 node reads a value that the module detached, but the file does not say where, so gradients pass: 'node_y'", unclear.stdout + unclear.stderr)

    def test_points_to_weights_of_a_teacher(self):
        def said(teacher, student, *flags, teachers=()):
            names = [student, teacher, *teachers]
            nodes = [helper.make_node("MatMul", ["x", name], [f"product_{i}"]) for i, name in enumerate(names)]
            nodes.append(helper.make_node("Sum", [node.output[0] for node in nodes], ["y"]))
            infos = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 4])] for name in "xy"]
            graph = helper.make_graph(nodes, "net", *infos, [weight(name, 4, 4) for name in names])
            return self.check(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), "--loss", "mse", *flags).stdout

        for teacher in ("teacher", "model.teacher_net", "target", "momentum_encoder", "encoder.ema"):
            self.assertIn(f"note    1 weight '{teacher}.*' is trained", said(teacher + ".body.weight", "online.body.weight"))
        self.assertNotIn("no_grad", said("teacher.body.weight", "online.body.weight", "--freeze", "teacher.*"))
        # Several modules, of which a few are shown.
        three = said("teacher.body.weight", "online.body.weight", teachers=["teacher.body.bias", "ema.body.weight", "model.target.body.weight"])
        self.assertIn("note    4 weights ('ema.*', 'model.target.*', 'teacher.*') are trained", three)
        self.assertIn("use --freeze 'ema.*' --freeze 'model.target.*' --freeze 'teacher.*'\n", three)
        many = said("teacher_0.w", "online.w", teachers=[f"teacher_{i}.{part}" for i in range(1, 7) for part in "uw"])
        self.assertIn("note    13 weights ('teacher_0.*', 'teacher_1.*', 'teacher_2.*', 'teacher_3.*', 'teacher_4.*' and 2 more modules) are trained", many)
        self.assertIn("--freeze 'teacher_4.*' ...\n", many)
        # Other words, and a part that is no copy of another.
        for other in ("offline.body.weight", "targeted.body.weight", "schemata.body.weight", "target.head.weight"):
            self.assertNotIn("no_grad", said(other, "online.body.weight"))
        self.assertNotIn("no_grad", said("target.weight", "online.weight"))

    def test_inputs_with_one_value(self):
        """A target shape and a switch as inputs, which decide what is compiled."""
        text = """<ir_version: 8, opset_import: ["" : 17]> g (float[N, 6] x, int64[3] shape, bool quick) => (float[N, 2, 3] y) <float[6, 6] w = {%s}>
            { h = MatMul (x, w)  r = Reshape (h, shape)
              y = If (quick) <then_branch = a () => (float[N, 2, 3] p) { p = Relu (r) }, else_branch = b () => (float[N, 2, 3] q) { q = Tanh (r) }> }"""
        model = onnx.parser.parse_model(text % ", ".join(["0.1", "-0.2"] * 18))
        refused = self.check(model, "--loss", "mse")
        self.assertEqual(refused.returncode, 3)
        self.assertIn("it depends on the data of 'shape'", refused.stderr)
        self.assertIn("--value INPUT=NUMBERS", refused.stderr)
        for quick in ("true", "false"):
            accepted = self.check(model, "--loss", "mse", "--value", "shape=0,2,3", "--value", "quick=" + quick, "--dump-after", "add_loss")
            self.assertEqual(accepted.returncode, 0, accepted.stderr)
            self.assertEqual(" = Relu(" in accepted.stderr, quick == "true")
            self.assertNotIn("input shape", accepted.stderr)
        for value, words in (("quick=maybe", "'maybe' is not a number"), ("shape=1,2", "given as 2 numbers"), ("other=1", "no input 'other'")):
            wrong = self.check(model, "--loss", "mse", "--value", value)
            self.assertEqual(wrong.returncode, 4, wrong.stderr)
            self.assertIn(words, wrong.stderr)

    def test_detaches_named_values(self):
        """In a file of an exporter that does not record it."""
        graph = helper.make_graph(
            [
                helper.make_node("MatMul", ["x", "first.weight"], ["/first/MatMul_output_0"], name="/first/MatMul"),
                helper.make_node("Relu", ["/first/MatMul_output_0"], ["/Relu_output_0"], name="/Relu"),
                helper.make_node("Mul", ["/Relu_output_0", "scale.weight"], ["/Mul_output_0"], name="/Mul"),
                helper.make_node("Sub", ["/Mul_output_0", "/first/MatMul_output_0"], ["y"], name="/Sub"),
            ],
            "net",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 4])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 4])],
            [weight("first.weight", 4, 4), weight("scale.weight", 4)],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8, producer_name="pytorch")
        plain = self.check(model, "--loss", "mse").stdout
        self.assertIn("does not record detach(): use --detach VALUE[@NODE]", plain)
        self.assertNotIn("no gradient", plain)
        whole = self.check(model, "--loss", "mse", "--detach", "/first/*").stdout
        self.assertIn("detach  1 value gets no gradient: named by --detach", whole)
        self.assertIn("frozen   first.weight   (no differentiable path to an output)", whole)
        by_one = self.check(model, "--loss", "mse", "--detach", "/first/MatMul_output_0@/Relu", "--detach", "scale.weight@/Mul").stdout
        self.assertIn("detach  2 values get no gradient", by_one)
        self.assertIn("trained  first.weight", by_one)
        self.assertIn("frozen   scale.weight", by_one)
        wrong = self.check(model, "--loss", "mse", "--detach", "/Relu_output")
        self.assertEqual(wrong.returncode, 4)
        self.assertIn("did you mean '/Relu_output_0'?", wrong.stderr)

    def test_trains_what_the_exporter_notes_as_parameters(self):
        """The notes in torch.export's files: the kind of input with each value, and all of them with the graph."""

        def model(*left_out):
            kinds = {"layer.weight": "PARAMETER", "scale": "PARAMETER", "power": "PARAMETER", "mask": "BUFFER", "queue": "BUFFER", "gone": "PARAMETER"}
            tensors = [weight("layer.weight", 4, 4), numpy_helper.from_array(np.float32(0.5), "scale"), numpy_helper.from_array(np.float32(2), "power"),
                       numpy_helper.from_array(np.array([[0, 1, 1, 0]] * 4, "float32"), "mask"), weight("queue", 4),
                       numpy_helper.from_array(np.float32(3), "val_8"), weight("val_9", 4)]
            if "gone" not in left_out:
                tensors.append(weight("gone", 4))
            graph = helper.make_graph(
                [
                    helper.make_node("Mul", ["layer.weight", "mask"], ["masked"]),
                    helper.make_node("MatMul", ["x", "masked"], ["h"]),
                    helper.make_node("Mul", ["h", "scale"], ["scaled"]),
                    helper.make_node("Pow", ["scaled", "power"], ["raised"]),
                    helper.make_node("Add", ["raised", "queue"], ["moved"]),
                    helper.make_node("Mul", ["moved", "val_8"], ["more"]),
                    helper.make_node("Add", ["more", "val_9"], ["y"]),
                ],
                "net",
                [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 4])],
                [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 4])],
                tensors,
                value_info=[helper.make_tensor_value_info(t.name, TensorProto.FLOAT, list(t.dims)) for t in tensors],
            )
            note = lambda key, value: onnx.StringStringEntryProto(key=key, value=value)
            lines = "\n".join(f"p_{name}: {kind} target='{name}'" for name, kind in kinds.items())
            graph.metadata_props.append(note("pkg.torch.export.ExportedProgram.graph_signature", "\n# inputs\n" + lines))
            return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10, producer_name="pytorch")

        said = self.check(model(), "--loss", "mse").stdout
        for line in ("trained  layer.weight", "trained  scale   (a parameter of the module", "trained  power   (a parameter of the module", "frozen   mask   (a mask in Mul",
                     "frozen   queue   (not a parameter of the module", "frozen   gone   (no differentiable path"):
            self.assertIn(line, said)
        # Flags override notes.
        said = self.check(model(), "--loss", "mse", "--freeze", "scale", "--trainable", "queue").stdout
        self.assertIn("frozen   scale   (frozen by --freeze)", said)
        self.assertIn("trained  queue", said)
        # All but some.
        said = self.check(model(), "--loss", "mse", "--freeze", "*", "--trainable", "layer*").stdout
        self.assertIn("trained  layer.weight", said)
        self.assertIn("frozen   scale   (frozen by --freeze)", said)
        # If the file lacks one of the parameters, a buffer of the same size could be that parameter, unless something was computed from it.
        lacks = model("gone")
        said = self.check(lacks, "--loss", "mse").stdout
        self.assertIn("trained  queue   (a bias", said)
        self.assertIn("trained  scale   (a parameter of the module", said)
        folded = next(info for info in lacks.graph.value_info if info.name == "mask")
        folded.metadata_props.append(onnx.StringStringEntryProto(key="pkg.onnxscript.optimizer.folded_from", value="['gone', 'other']"))
        self.assertIn("frozen   queue   (not a parameter", self.check(lacks, "--loss", "mse").stdout)
        # A value computed from a parameter is trained; one computed only from buffers and numbers is not.
        computed = model()
        self.assertIn("frozen   val_8   (a single", self.check(computed, "--loss", "mse").stdout)
        self.assertIn("trained  val_9   (a bias", self.check(computed, "--loss", "mse").stdout)
        for name, sources in (("val_8", "['val_1', 'power']"), ("val_9", "['val_2', 'queue']")):
            info = next(info for info in computed.graph.value_info if info.name == name)
            info.metadata_props.append(onnx.StringStringEntryProto(key="pkg.onnxscript.optimizer.folded_from", value=sources))
        done = self.check(computed, "--loss", "mse")
        said = done.stdout
        self.assertIn("trained  val_8   (a parameter of the module or derived from one", said)
        self.assertIn("frozen   val_9   (not a parameter of the module", said)
        # A parameter that is in the file as it is and in a value computed from it.
        self.assertIn("the file has the parameter 'power' twice, as 'power' and in 'val_8'", done.stdout + done.stderr)
        self.assertNotIn("twice", self.check(model(), "--loss", "mse").stdout)
        varied = model("gone")
        next(t for t in varied.graph.initializer if t.name == "queue").CopyFrom(numpy_helper.from_array(np.arange(4, dtype="float32"), "queue"))
        self.assertIn("frozen   queue   (not a parameter", self.check(varied, "--loss", "mse").stdout)

    def test_parameters_that_hold_sines(self):
        """A table of sines and consecutive integers stay fixed even as parameters of a module, and a line says so; learned frequencies are trained."""
        angles = np.outer(np.arange(6), 1 / 10000 ** (np.arange(4) / 4))
        table = np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype("float32")
        tensors = [weight("layer.weight", 8, 8), numpy_helper.from_array(table, "positions.table"), weight("freq", 8), numpy_helper.from_array(np.arange(-1, 7, dtype="float32"), "val_1")]
        graph = helper.make_graph(
            [
                helper.make_node("MatMul", ["x", "layer.weight"], ["h"]),
                helper.make_node("Add", ["h", "positions.table"], ["placed"]),
                helper.make_node("Mul", ["freq", "val_1"], ["angles"]),
                helper.make_node("Cos", ["angles"], ["waves"]),
                helper.make_node("Mul", ["placed", "waves"], ["y"]),
            ],
            "net",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 6, 8])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 6, 8])],
            tensors,
        )
        lines = "\n".join(f"p_{name}: PARAMETER target='{name}'" for name in ("layer.weight", "positions.table", "freq"))
        graph.metadata_props.append(onnx.StringStringEntryProto(key="pkg.torch.export.ExportedProgram.graph_signature", value="\n# inputs\n" + lines))
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10, producer_name="pytorch")
        done = self.check(model, "--loss", "mse")
        self.assertIn("trained  freq   (a parameter of the module", done.stdout)
        self.assertIn("frozen   positions.table   (a table of sines and cosines", done.stdout)
        self.assertIn("1 parameter of the module not trained, as it holds sines and cosines or consecutive integers: positions.table;", done.stdout + done.stderr)
        done = self.check(model, "--loss", "mse", "--trainable", "positions.table")
        self.assertIn("trained  positions.table   (named", done.stdout)
        self.assertNotIn("as it holds", done.stdout + done.stderr)

    def test_rows_by_the_batch_size(self):
        """To divide a batch of 5, the model is compared with itself at other batch sizes. That a table lacks rows for 10 does not matter."""
        model = onnx.parser.parse_model('''<ir_version: 8, opset_import: ["" : 17]> net (float[N, 3] x) => (float[N, 3] y)
            <int64 zero = {0}, int64 one = {1}> {
              s = Shape <start = 0, end = 1> (x) count = Squeeze (s) last = Sub (count, one) ids = Range (zero, count, one)
              at = Sub (last, ids) h = MatMul (x, w) row = Gather (table, at) y = Mul (h, row)
            }''')
        model.graph.initializer.extend([weight("w", 3, 3), weight("table", 9, 3)])
        done = self.check(model, "--loss", "mse", "--devices", "cpu:2", "--batch", "5")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("the first device gathers all samples", done.stdout + done.stderr)

    def test_quantized_weights(self):
        """Weights that a quantizer has turned into integers are not trained, and neither are their scales."""
        whole = [numpy_helper.from_array(np.arange(8, dtype="int8").reshape(4, 2), "w"), weight("w_scale", 4), numpy_helper.from_array(np.array(0.2, "float32"), "x_scale")]
        nodes = [
            helper.make_node("QuantizeLinear", ["x", "x_scale"], ["xq"]),
            helper.make_node("DequantizeLinear", ["xq", "x_scale"], ["xd"]),
            helper.make_node("DequantizeLinear", ["w", "w_scale"], ["wd"], axis=0),
            helper.make_node("MatMul", ["xd", "wd"], ["h"], name="fc"),
            helper.make_node("Add", ["h", "b"], ["y"]),
        ]
        values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["N", k]) for n, k in (("x", 4), ("y", 2))]
        model = helper.make_model(helper.make_graph(nodes, "g", values[:1], values[1:], [*whole, weight("b", 2)]), opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
        done = self.check(model, "--loss", "mse")
        self.assertIn("trained  b   ", done.stdout)
        self.assertIn("frozen   w_scale   (a scale of DequantizeLinear", done.stdout)
        self.assertIn("warning 1 tensor is quantized to integers", done.stdout + done.stderr)
        self.assertIn("trained  w_scale   (named", self.check(model, "--loss", "mse", "--trainable", "w_scale").stdout)

    def test_reports_the_memory_of_evaluations(self):
        text = """<ir_version: 8, opset_import: ["" : 17]> g (float[N, 6] x) => (float[N, 2] y) <float[6, 2] w = {%s}> { y = MatMul (x, w) }"""
        model = onnx.parser.parse_model(text % ", ".join(["0.1", "-0.2"] * 6))
        flags = ["--loss", "mse", "--batch", "4", "--eval-batch", "4096", "--json"]
        checked = json.loads(self.check(model, *flags).stdout)
        compiled = json.loads(self.check(model, *flags, "-o", self.path + ".plan", verb="compile").stdout)
        self.assertGreater(checked["transient_bytes"], 4096 * 2 * 4)
        for name in ("transient_bytes", "state_bytes"):
            self.assertEqual(checked[name], compiled[name])

    def test_work_of_all_devices(self):
        text = ("""<ir_version: 8, opset_import: ["" : 17]> g (float[N, 6] x) => (float[N, 2] y) <float[6, 6] w = {%s}, float[6, 2] v = {%s}>"""
                """ { [first] h = MatMul (x, w) [second] y = MatMul (h, v) }""")
        model = onnx.parser.parse_model(text % (", ".join(["0.1"] * 36), ", ".join(["0.1", "-0.2"] * 6)))
        flags = ["--loss", "mse", "--batch", "512", "--json"]
        one, two, placed, sharded = (json.loads(self.check(model, *flags, *more).stdout) for more in (
            [], ["--devices", "cpu:2"], ["--devices", "cpu:2", "--place", "first=cpu:0", "--place", "second=cpu:1"],
            ["--devices", "cpu:2", "--shard-optimizer"]))
        # Each of two devices computes half of the samples, and updates all weights or its share.
        for divided in (two, placed, sharded):
            self.assertAlmostEqual(divided["step_flops"] / one["step_flops"], 1, delta=0.1)
        self.assertGreater(two["step_flops"], sharded["step_flops"])
        self.assertGreaterEqual(two["instructions"], 2 * one["instructions"])
        self.assertGreater(placed["instructions"], one["instructions"])

    def test_gradients_alone(self):
        model = detector()
        for node in model.graph.node:
            if node.op_type == "Rellu":
                node.op_type = "Relu"
        del model.graph.initializer[1]
        model.graph.initializer.append(weight("scale8", 1))
        # Even a node that nobody needs must have a type.
        del model.graph.node[-1]
        done = self.check(model)
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("no gradient for operator 'ai.onnx.ml.LabelEncoder' (1 node)", done.stderr)
        self.assertIn("needed because 'stem.weight' is trained through it", done.stderr)
        self.assertIn("stopped with 1 error (exit 3)", done.stderr)


if __name__ == "__main__":
    unittest.main()
