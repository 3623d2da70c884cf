"""The ways to view a schedule: the HTML page in a browser that runs its script, tables, Graphviz text, the simulator."""
import html
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

import numpy as np
import onnx
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from onnx import TensorProto, helper, numpy_helper

GRADLOOM, LENET, TOPOLOGY, PERFETTO = (os.path.abspath(word) for word in sys.argv[1:5])
sys.argv[1:5] = []
BROWSER = "chromium-headless-shell"

# Uses the page like a reader, and reports failures in the document.
VISIT = """<script>
(() => {
  const failed = [];
  const get = id => document.getElementById(id);
  const check = (name, holds) => { if (!holds) failed.push(name); };
  const at = (id, type, x, y, more) => {
    const box = get(id).getBoundingClientRect();
    const Kind = type === "wheel" ? WheelEvent : PointerEvent;
    get(id).dispatchEvent(new Kind(type, Object.assign({ bubbles: true, cancelable: true, button: 0, pointerId: 1,
      clientX: box.left + x, clientY: box.top + y }, more)));
  };
  const picture = id => get(id).toDataURL();
  const drawn = id => {
    const canvas = get(id), pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
    const colours = new Set();
    for (let i = 0; i < pixels.length; i += 4 * 97) colours.add((pixels[i] << 16) | (pixels[i + 1] << 8) | pixels[i + 2]);
    return colours.size > 3;
  };
  for (const id of ["time", "memory", "graph"]) check(id + " is drawn", drawn(id));
  let before = picture("time");
  at("time", "wheel", 600, 60, { deltaY: -400 });
  check("the wheel zooms", picture("time") !== before);
  const shows = (x, y) => {
    at("time", "pointermove", x, y);
    return get("tip").style.display === "block" && /reads/.test(get("tip").textContent);
  };
  let place = null;
  for (let y = 10; y < 140 && !place; y += 6) for (let x = 200; x < 1400 && !place; x += 20) if (shows(x, y)) place = [x, y];
  check("hovering shows operands", place);
  if (place) at("time", "pointerdown", ...place);
  if (place) at("time", "pointerup", ...place);
  check("a click selects", /instruction/.test(get("details").textContent));
  // All of the step, wherever the predicted times put what is shown.
  at("time", "wheel", 600, 60, { deltaY: 4000 });
  for (const name of ["critical", "arrows", "communications"]) {
    before = picture("time");
    get("show-" + name).click();
    check("without " + name, picture("time") !== before);
    get("show-" + name).click();
  }
  get("search").value = "__WORD__";
  get("search").dispatchEvent(new Event("input"));
  check("the search finds", /[1-9]/.test(get("count").textContent));
  check("no name became markup", !document.querySelector("img") && !window.broken);
  document.body.dataset.failed = JSON.stringify(failed);
})();
</script>"""

# Every animation frame is drawn immediately, so that an image can be compared with the previous one.
AT_ONCE = "<script>window.requestAnimationFrame = draw => { draw(performance.now()); return 1; };</script>"


def gradloom(*words, code=0):
    done = subprocess.run([GRADLOOM, *words], capture_output=True, text=True, timeout=120)
    assert done.returncode == code, (words, done.returncode, done.stdout, done.stderr)
    return done


def hostile_model(path):
    """A linear model whose names try to inject a script."""
    name = "</script><img src=x onerror=window.broken=1>"
    weight = numpy_helper.from_array(np.ones((4, 2), np.float32), name + "w")
    node = helper.make_node("MatMul", ["x", name + "w"], ["y"], name=name)
    graph = helper.make_graph([node], name, [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 4])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 2])], [weight])
    onnx.save(helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 17)]), path)


class ScheduleTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def compile(self, model, loss, *flags):
        gradloom("compile", model, "--loss", loss, "--batch", "12", "-o", self.path("model.plan"), *flags)
        return self.path("model.plan")

    def visit(self, page, word):
        """Opens the page, uses it, and returns the attributes of its body."""
        with open(page) as file:
            text = file.read()
        self.assertEqual(text.count("<header>"), 1)
        text = text.replace("<header>", AT_ONCE + "<header>").replace("</body>", VISIT.replace("__WORD__", word) + "</body>")
        # The page forbids every script but its own, so the policy is removed for the script of this test.
        text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", text)
        with open(page, "w") as file:
            file.write(text)
        done = subprocess.run([BROWSER, "--no-sandbox", "--disable-gpu", "--window-size=1600,1000", "--virtual-time-budget=4000",
                               "--user-data-dir=" + self.path("browser"), "--dump-dom", "file://" + page],
                              capture_output=True, text=True, timeout=120)
        body = re.search(r"<body[^>]*>", done.stdout)
        self.assertIsNotNone(body, done.stderr[-2000:])
        return dict((key, html.unescape(value)) for key, value in re.findall(r'data-(\w+)="([^"]*)"', body.group(0)))

    def test_page(self):
        plan = self.compile(LENET, "cross_entropy", "--devices", "cpu:4", "--streams", "2")
        gradloom("inspect", plan, "--html", self.path("plan.html"))
        said = self.visit(self.path("plan.html"), "Conv")
        self.assertEqual(said.get("ready"), "yes", said)
        self.assertNotIn("error", said)
        self.assertEqual(json.loads(said["failed"]), [])

    def test_hostile_names(self):
        hostile_model(self.path("hostile.onnx"))
        plan = self.compile(self.path("hostile.onnx"), "mse", "--devices", "cpu:2")
        gradloom("inspect", plan, "--html", self.path("plan.html"))
        said = self.visit(self.path("plan.html"), "img")
        self.assertEqual(said.get("ready"), "yes", said)
        self.assertEqual(json.loads(said["failed"]), [])

    def test_placed_page_and_simulation(self):
        plan = self.compile(LENET, "cross_entropy", "--devices", "cpu:4", "--place", "*fc*=cpu:1")
        gradloom("inspect", plan, "--html", self.path("plan.html"))
        said = self.visit(self.path("plan.html"), "send to 1")
        self.assertEqual(said.get("ready"), "yes", said)
        self.assertEqual(json.loads(said["failed"]), [])
        tables = gradloom("inspect", plan, "--streams").stdout
        for word in ["send to 1", "recv from 0", "all-reduce of"]:
            self.assertIn(word, tables)
        # Two devices hold a replica; more devices are further replicas.
        said = json.loads(gradloom("simulate", plan, "--devices", "2,64", "--topology", TOPOLOGY, "--json").stdout)
        lines = said["simulations"]
        self.assertEqual((said["efficiency_relative_to_devices"], lines[1]["efficiency"]), (2, 1))
        self.assertIn("efficiency relative to one copy on 2 devices:", gradloom("simulate", plan, "--devices", "64", "--topology", TOPOLOGY).stdout)
        self.assertEqual([line["devices"] for line in lines], [4, 2, 64])
        self.assertEqual(lines[2]["samples"], 32 * lines[1]["samples"])
        self.assertIn("not a multiple of the", gradloom("simulate", plan, "--devices", "3", code=4).stderr)

    def test_onnx(self):
        plan = self.compile(LENET, "cross_entropy", "--devices", "cpu:4", "--streams", "2", "--gather-to", "cpu:1")
        gradloom("inspect", plan, "--onnx", self.path("scheduled.onnx"))
        model = onnx.load(self.path("scheduled.onnx"))
        self.assertEqual(len(model.graph.initializer), 0)
        made = {value.name for value in model.graph.input}
        sent = {name for node in model.graph.node if node.op_type == "Send" for name in node.output}
        for node in model.graph.node:
            for name in node.input:
                self.assertTrue(name in made or name in sent or not name, name)
            for name in node.output:
                self.assertNotIn(name, made)
                made.add(name)
            told = {entry.key: entry.value for entry in node.metadata_props}
            self.assertLessEqual({"device", "stream", "instruction", "phase"}, set(told), node.name)
        self.assertEqual({entry.value for node in model.graph.node for entry in node.metadata_props if entry.key == "device"},
                         {"0", "1", "2", "3"})
        phases = {entry.value for node in model.graph.node for entry in node.metadata_props if entry.key == "phase"}
        self.assertEqual(phases, {"forward", "backward", "update"})
        self.assertTrue({"Conv", "AllReduce", "Send", "Recv"} <= {node.op_type for node in model.graph.node})
        self.assertTrue(any(entry.key == "waits" for node in model.graph.node for entry in node.metadata_props))
        onnx.helper.printable_graph(model.graph)

    def test_profile(self):
        rows = np.random.default_rng(0).normal(size=(96, 5)).astype(np.float32)
        np.savez(self.path("rows.npz"), x=rows[:, :4], target=rows[:, 4:])
        weight = numpy_helper.from_array(np.ones((4, 1), np.float32), "w")
        graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g",
                                  [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 4])],
                                  [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 1])], [weight])
        onnx.save(helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 17)]), self.path("line.onnx"))
        run = self.path("runs")
        gradloom("train", self.path("line.onnx"), "--data", self.path("rows.npz"), "--loss", "mse(y, target)", "--batch", "12", "--epochs", "3",
                 "--out", run, "--profile", self.path("profile.json"))
        with open(self.path("profile.json")) as file:
            seconds = json.load(file)["seconds"]
        self.assertTrue(any(0 < value < 1 for program in seconds for value in program))
        exp = os.path.join(run, "exp1")
        told = json.loads(gradloom("simulate", exp, "--profile", self.path("profile.json"), "--json").stdout)["simulations"][0]
        measured = sum(value for value in seconds[0] if value > 0)
        self.assertAlmostEqual(told["step_ms"], measured * 1e3, delta=measured * 1e2)
        other = self.compile(LENET, "cross_entropy")
        self.assertIn("another plan", gradloom("simulate", other, "--profile", self.path("profile.json"), code=4).stderr)

    def test_collectives_have_their_names(self):
        plan = self.compile(LENET, "cross_entropy", "--devices", "cpu:2", "--shard-optimizer", "--optimizer", "adam")
        self.assertIn("broadcast of 1", gradloom("inspect", plan, "--streams").stdout)
        gradloom("inspect", plan, "--html", self.path("plan.html"), "--dot", self.path("plan.dot"))
        for name in ["plan.html", "plan.dot"]:
            with open(self.path(name)) as file:
                text = file.read()
            self.assertIn("broadcast of 1", text)
            self.assertIn("all-reduce of ", text)
            self.assertIn("reduce of ", text.replace("all-reduce of ", ""))
        gradloom("inspect", plan, "--onnx", self.path("plan.onnx"))
        model = onnx.load(self.path("plan.onnx"))
        reduces = [node for node in model.graph.node if node.op_type == "Reduce"]
        self.assertEqual(sum(1 for node in reduces for result in node.output if result), sum(len(node.input) for node in reduces) // 2,
                         "each gradient has one sum")

    def test_tables_and_dot(self):
        plan = self.compile(LENET, "cross_entropy", "--devices", "cpu:2", "--streams", "2")
        tables = gradloom("inspect", plan, "--streams").stdout
        for word in ["compute 0:", "compute 1:", "comm 2:", "all-reduce of", "records e", "waits e", "critical path", "exposed"]:
            self.assertIn(word, tables)
        gradloom("inspect", plan, "--dot", self.path("plan.dot"))
        with open(self.path("plan.dot")) as file:
            dot = file.read()
        nodes = re.findall(r"^    n(\d+) \[label=", dot, re.M)
        edges = re.findall(r"^  n(\d+) -> n(\d+)", dot, re.M)
        self.assertGreater(len(nodes), 20)
        self.assertGreater(len(edges), len(nodes) // 2)
        # Every edge joins existing nodes, the earlier one first.
        for a, b in edges:
            self.assertIn(a, nodes)
            self.assertIn(b, nodes)
            self.assertLess(int(a), int(b))

    def test_simulate(self):
        plan = self.compile(LENET, "cross_entropy", "--devices", "cpu:4")
        said = json.loads(gradloom("simulate", plan, "--topology", TOPOLOGY, "--devices", "1,8,64,4096", "--json").stdout)
        runs = said["simulations"]
        self.assertEqual([run["devices"] for run in runs], [4, 1, 8, 64, 4096])
        self.assertEqual(runs[1]["communication_ms"], 0)
        for few, many in zip(runs[1:], runs[2:]):
            self.assertGreater(many["step_ms"], few["step_ms"])
            self.assertGreater(many["samples_per_second"], few["samples_per_second"])
        for run in runs:
            self.assertLessEqual(run["exposed_ms"], run["communication_ms"] + 1e-9)
            phases = run["phases_of_a_batch"]
            self.assertEqual(set(phases), {"forward_ms", "backward_ms", "update_ms"})
            self.assertGreater(phases["backward_ms"], phases["forward_ms"])
            self.assertGreater(phases["forward_ms"], 0)
            self.assertLess(run["simulated_in_ms"], 5000)
        # Efficiency is relative to one device, in the list or not.
        self.assertEqual(said["efficiency_relative_to_devices"], 1)
        for run in runs:
            self.assertAlmostEqual(run["efficiency"], runs[1]["step_ms"] / run["step_ms"], places=9)
        table = [gradloom("simulate", plan, "--topology", TOPOLOGY, "--devices", counts).stdout for counts in ("1,64", "64")]
        self.assertIn("efficiency relative to one device:", table[1])
        self.assertRegex(table[0], r"(?m)^ +1 .* 100\.0 %$")
        self.assertEqual(*(re.search(r"(?m)^ +64 .*$", each)[0] for each in table))
        # A step of three accumulated batches sums its gradients once.
        three = self.compile(LENET, "cross_entropy", "--devices", "cpu:4", "--accumulate", "3")
        sums = json.loads(gradloom("simulate", three, "--topology", TOPOLOGY, "--devices", "1,8,64,4096", "--json").stdout)["simulations"]
        for once, thrice in zip(runs, sums):
            self.assertEqual((once["batches"], thrice["batches"], thrice["samples"]), (1, 3, 3 * once["samples"]))
            self.assertGreater(thrice["step_ms"], once["step_ms"])
        said = gradloom("simulate", three, "--topology", TOPOLOGY).stdout
        self.assertRegex(said, r"\n2 batches of [0-9.]+ .s each, the last batch with the update [0-9.]+ .s, of which communication [0-9.]+ .s "
                               r"\([0-9.]+ .s exposed\); a batch:\n")
        # Messages of a ring grow in number with the nodes, those of trees with their logarithm; a single tree repeats all bytes.
        with open(TOPOLOGY) as file:
            topology = file.read()
        took = {}
        for algorithm in ("ring", "tree", "double_tree", "fastest"):
            with open(self.path("topology.toml"), "w") as file:
                file.write(topology.replace('"fastest"', f'"{algorithm}"'))
            runs = json.loads(gradloom("simulate", plan, "--topology", self.path("topology.toml"), "--devices", "16,4096", "--json").stdout)
            took[algorithm] = [run["communication_ms"] for run in runs["simulations"][1:]]
        for few_or_many in (0, 1):
            self.assertLessEqual(took["fastest"][few_or_many], min(took[each][few_or_many] for each in took) + 1e-9)
        self.assertGreater(took["ring"][1], took["double_tree"][1])
        self.assertGreater(took["tree"][0], took["ring"][0])
        with open(self.path("wrong.toml"), "w") as file:
            file.write("[node]\ndevice = 8\n")
        wrong = gradloom("simulate", plan, "--topology", self.path("wrong.toml"), code=4)
        self.assertIn("did you mean 'devices'", wrong.stderr)
        self.assertIn("wrong.toml:2", wrong.stderr)

    def test_trace(self):
        """The trace of a real run, decoded by the field numbers of its file format."""
        np.savez(self.path("data.npz"), x=np.random.default_rng(0).normal(size=(48, 1, 28, 28)).astype("float32"),
                 target=np.arange(48) % 10)
        gradloom("train", LENET, "--data", self.path("data.npz"), "--loss", "cross_entropy", "--batch", "12", "--epochs", "2", "--devices",
                 "cpu:3", "--streams", "2", "--trace", self.path("run.pftrace"), "--trace-steps", "2:4", "--out", self.path("runs"))
        subprocess.run(["protoc", "-I" + os.path.dirname(PERFETTO), "--descriptor_set_out=" + self.path("set"), PERFETTO], check=True)
        pool = descriptor_pool.DescriptorPool()
        with open(self.path("set"), "rb") as file:
            for described in descriptor_pb2.FileDescriptorSet.FromString(file.read()).file:
                pool.Add(described)
        trace = message_factory.GetMessageClass(pool.FindMessageTypeByName("gradloom.perfetto.Trace"))()
        with open(self.path("run.pftrace"), "rb") as file:
            trace.ParseFromString(file.read())
        tracks = {p.track_descriptor.uuid: p.track_descriptor for p in trace.packet if p.HasField("track_descriptor")}
        self.assertEqual(sorted(t.name for t in tracks.values() if not t.parent_uuid), ["cpu:0", "cpu:1", "cpu:2", "rank 0"])
        host = next(uuid for uuid, track in tracks.items() if track.name == "host thread")
        self.assertEqual(tracks[tracks[host].parent_uuid].name, "rank 0")
        named = [p.track_event.name for p in trace.packet if p.track_event.track_uuid == host and p.track_event.type == 1]
        self.assertEqual(named, [*["wait for data", "step", "records"] * 3, *named[9:]])
        self.assertEqual(sum(t.name.startswith("comm") for t in tracks.values()), 3)
        steps, flows, counters, open_at, ends = set(), {}, 0, {}, {}
        for packet in trace.packet:
            event = packet.track_event
            if event.type == 4:
                counters += 1
                self.assertGreaterEqual(event.counter_value, 0)
            elif event.type == 1:
                # On a stream, one event ends before the next begins.
                self.assertNotIn(event.track_uuid, open_at)
                self.assertGreaterEqual(packet.timestamp, ends.get(event.track_uuid, 0))
                open_at[event.track_uuid] = packet.timestamp
                steps.update(a.int_value for a in event.debug_annotations if a.name == "step")
                for flow in [*event.flow_ids, *event.terminating_flow_ids]:
                    flows.setdefault(flow, []).append(packet.timestamp)
            elif event.type == 2:
                self.assertGreaterEqual(packet.timestamp, open_at.pop(event.track_uuid))
                ends[event.track_uuid] = packet.timestamp
        self.assertEqual(open_at, {})
        self.assertEqual(steps, {2, 3, 4})
        self.assertGreater(counters, 100)
        # An arrow joins two instructions, a collective joins all three devices.
        self.assertEqual({len(times) for times in flows.values()}, {2, 3})
        wrong = gradloom("train", LENET, "--data", self.path("data.npz"), "--loss", "cross_entropy", "--epochs", "1", "--trace",
                         self.path("t"), "--trace-steps", "5:3", "--out", self.path("runs"), code=4)
        self.assertIn("--trace-steps", wrong.stderr)

    def test_fewer_devices_are_recommended(self):
        done = gradloom("compile", LENET, "--loss", "cross_entropy", "--batch", "12", "--devices", "cpu:8", "-o", self.path("p"))
        self.assertRegex(done.stderr, r"predicted step: 1 device .* 2 devices .* 4 devices .* 8 devices")
        self.assertRegex(done.stderr, r"warning \d devices? would be faster than 8")


if __name__ == "__main__":
    unittest.main(verbosity=2)
