"""P01 to P36: plan files. Most are plans written by the command, with a modification and a correct hash."""
import os
import shutil
import struct

import hostile_files
import numpy as np
import sample_files
from hostile_files import Elsewhere, Row, read, write

LOSS = "--loss 'cross_entropy(logits, label)'"
VERIFY = "verify p.plan"
# Commands that read a plan without verifying it.
SHOWN = ("inspect p.plan", "inspect p.plan --json", "inspect p.plan --memory", "inspect p.plan --streams", "inspect p.plan --html p.html",
         "inspect p.plan --dot p.dot", "inspect p.plan --onnx p.onnx", "simulate p.plan", "diff p.plan one.plan")
# InstructionKind and Access of runtime/plan/plan.h.
LAUNCH, COPY, RECORD, WAIT, COLLECTIVE, LOOP = 0, 1, 2, 3, 4, 8
READ, WRITE = 0, 1


class Parts:
    """A plan file taken apart as docs/plan-format.md describes, and reassembled."""
    def __init__(self, content, message_class):
        size, data = struct.unpack("<qq", content[16:32])
        self.header, self.plan, self.data = content[:64], message_class.FromString(content[64:64 + size]), content[data:]

    def written(self, path, tools, message=None):
        text = self.plan.SerializeToString() if message is None else message
        padding = -len(text) % 64
        head = self.header[:16] + struct.pack("<qqqQ", len(text), 64 + len(text) + padding, len(self.data), 0) + self.header[48:]
        write(path, head + text + bytes(padding) + self.data)
        tools.hash(path)


def field(number, content):
    """A field of bytes or a message, encoded without protobuf, whose recursion could overflow the stack."""
    size, length = len(content), b""
    while size > 127:
        length += bytes([size & 127 | 128])
        size >>= 7
    return bytes([number << 3 | 2]) + length + bytes([size]) + content


def rows(tools):
    sample_files.models(np.random.default_rng(1))
    shutil.move("model.onnx", "other.onnx")
    sample_files.models(np.random.default_rng(0))
    sample_files.tables(np.random.default_rng(0))
    tools.right(f"compile model.onnx {LOSS} --batch 8 -o one.plan")
    tools.right(f"compile model.onnx {LOSS} --batch 8 --devices cpu:2 --streams 2 -o two.plan")
    tools.right(f"compile model.onnx {LOSS} --batch 8 --target sm_90 -o gpu.plan")
    tools.right(f"train model.onnx --data train.csv --map x=a..d --map label=label {LOSS} --epochs 1 --progress none --name done")
    hostile_files.keep_only("model.onnx", "other.onnx", "train.csv", "one.plan", "two.plan", "gpu.plan", "runs")
    Plan = tools.message(tools.plan_proto, "Plan")
    good = read("one.plan")

    def recipe(what, text, says):
        """A plan whose recipe, from which a run would start, has more keys."""
        def change(plan):
            [kept] = [each for each in plan.properties if each.name == b"configuration"]
            kept.value += text.encode()
        return changed("P28", what, change, says, "p.plan", command="train --plan p.plan --data train.csv --map x=a..d --epochs 1")

    def file(id, what, content, says, command=VERIFY, place="p.plan"):
        return Row(id, what, lambda: write("p.plan", content), command, "E-PLAN", says, place)

    def changed(id, what, change, says, place="program 0", of="one.plan", command=VERIFY, wanted="E-PLAN"):
        def make():
            parts = Parts(read(of), Plan)
            change(parts.plan)
            parts.written("p.plan", tools)
        return Row(id, what, make, command, wanted, says, place)

    def two(id, what, change, says, place="program 0"):
        return changed(id, what, change, says, place, "two.plan")

    def buffer(plan, name, program=0):
        return next(b for b in plan.programs[program].buffers if b.name == name.encode())

    def step(plan, kind, nth=0, program=0):
        """The instructions of this kind."""
        return [i for i in plan.programs[program].instructions if i.kind == kind][nth]

    def gemm(plan):
        return plan.programs[0].instructions[0]

    def drop(plan, index):
        del plan.programs[0].instructions[index]

    def index_of(plan, kind, nth=0):
        return [k for k, i in enumerate(plan.programs[0].instructions) if i.kind == kind][nth]

    def moved(plan, index, to):
        made = list(plan.programs[0].instructions)
        made.insert(to, made.pop(index))
        del plan.programs[0].instructions[:]
        plan.programs[0].instructions.extend(made)

    def other_program(plan, change):
        """Gives rank 1 of the training step its own program."""
        plan.programs.add().CopyFrom(plan.programs[0])
        plan.entries[0].ranks[1].program = len(plan.programs) - 1
        change(plan.programs[-1])

    def without(plan, access):
        launch = gemm(plan)
        keep = [k for k, a in enumerate(launch.use_accesses) if a != access]
        uses = [(launch.use_buffers[k], launch.use_accesses[k]) for k in keep]
        del launch.use_buffers[:], launch.use_accesses[:]
        launch.use_buffers.extend(b for b, _ in uses)
        launch.use_accesses.extend(a for _, a in uses)

    def nested(depth):
        text = b""
        for _ in range(depth):
            text = field(4, field(13, text))
        return field(10, text)

    def structure(id, what, message, says):
        return Row(id, what, lambda: Parts(read("one.plan"), Plan).written("p.plan", tools, message()), VERIFY, "E-PLAN", says, "p.plan")

    def shown(id, what, change, of="one.plan", commands=SHOWN):
        """Every command that shows a plan refuses it, or shows it. An unsound plan must not crash the command."""
        for command in commands:
            wanted = "OK" if command == "inspect p.plan" else "DIFFERS" if command.startswith("diff") else "E-PLAN"
            yield changed(id, f"{what}, shown", change, "unsound plan|has no entry" if wanted == "E-PLAN" else "", "", of, command, wanted)

    return [
        Row("P00", "a good plan", lambda: None, "verify one.plan", "OK", "is sound"),
        Row("P00", "a good plan of two devices", lambda: None, "verify two.plan", "OK", "is sound"),
        changed("P00", "a plan taken apart and put together", lambda plan: None, "is sound", wanted="OK"),
        *(changed("P00", "a good plan, shown", lambda plan: None, "", "", command=command, wanted="OK") for command in SHOWN),
        file("P01", "empty", b"", "the file is empty"),
        file("P02", "other magic", b"\x8bGLQ" + good[4:], "not a plan"),
        file("P02", "a text transfer", good.replace(b"\r\n", b"\n"), "not a plan"),
        file("P02", "a model", read("model.onnx"), "not a plan|too few"),
        Row("P02", "a folder", lambda: os.mkdir("p.plan"), VERIFY, "E-CONFIG", "not the folder of a run", "p.plan"),
        Row("P02", "a pipe", lambda: os.mkfifo("p.plan"), VERIFY, "E-IO", "not a regular file", "p.plan"),
        file("P03", "format 99", good[:8] + struct.pack("<I", 99) + good[12:], "has format version 99, but this program reads version 9"),
        *(file("P04", f"{percent} %", good[:len(good) * percent // 100], "specifies another size|too few for a plan") for percent in range(1, 100)),
        file("P04", "a byte more", good + b"\0", "specifies another size"),
        *(file("P05", f"bit {bit} of byte {at}", good[:at] + bytes([good[at] ^ 1 << bit]) + good[at + 1:], "hash|another size|not a plan|version|claims")
          for at, bit in [(at, at % 8) for at in range(0, len(good), len(good) // 12)]),
        changed("P06", "no arena", lambda plan: setattr(plan.programs[0], "transient_bytes", 0), "do not lie in the arena"),
        changed("P06", "an arena of 2^63 - 1 bytes", lambda plan: setattr(plan.programs[0], "transient_bytes", (1 << 63) - 1), "9223372036854775807"),
        changed("P06", "an arena of -1 bytes", lambda plan: setattr(plan.programs[0], "transient_bytes", -1), "-1 bytes"),
        changed("P06", "2^63 - 1 bytes of state", lambda plan: setattr(plan.places[0], "state_bytes", (1 << 63) - 1), "9223372036854775807", ""),
        changed("P06", "2^62 bytes of constants", lambda plan: setattr(plan.places[0], "constants_bytes", 1 << 62), "4611686018427387904", ""),
        changed("P06", "2^62 bytes of step parameters", lambda plan: setattr(plan.step, "bytes", 1 << 62), "4611686018427387904", ""),
        changed("P07", "an offset whose end wraps", lambda plan: setattr(buffer(plan, "h"), "offset", (1 << 63) - 64), "do not lie in the arena"),
        changed("P07", "a state tensor whose end wraps", lambda plan: setattr(plan.state[0], "offset", (1 << 63) - 64), ".", ""),
        changed("P08", "a byte past the arena", lambda plan: setattr(plan.programs[0], "transient_bytes", max(
            b.offset + b.bytes for b in plan.programs[0].buffers if b.arena == 2) - 1), "do not lie in the arena"),
        changed("P09", "an offset of 4", lambda plan: setattr(buffer(plan, "h"), "offset", 4), "not a multiple of 64"),
        changed("P10", "buffer 9,999", lambda plan: gemm(plan).use_buffers.__setitem__(0, 9999), "buffer 9999 is out of range"),
        changed("P10", "buffer -7", lambda plan: gemm(plan).use_buffers.__setitem__(0, -7), "buffer -7 is out of range"),
        changed("P10", "a fetch of buffer 9,999", lambda plan: setattr(plan.entries[0].fetches[0], "buffer", 9999), "9999", ""),
        changed("P10", "program 9,999", lambda plan: setattr(plan.entries[0].ranks[0], "program", 9999), "9999", ""),
        changed("P11", "kernel cpu.Nothing", lambda plan: setattr(gemm(plan), "kernel", b"cpu.Nothing"), "no kernel 'cpu.Nothing'"),
        changed("P11", "operator Conv in Gemm's kernel", lambda plan: setattr(gemm(plan), "op", b"Conv"), "does not accept these operands"),
        changed("P11", "operator Sigmoid in Relu's kernel", lambda plan: setattr(step(plan, LAUNCH, 1), "op", b"Sigmoid"), "does not compute operator 'Sigmoid'"),
        changed("P11", "instruction 99", lambda plan: setattr(gemm(plan), "kind", 99), "unknown instruction 99", "p.plan"),
        changed("P12", "a product without factors", lambda plan: without(plan, READ), "does not accept these operands.*inputs"),
        changed("P12", "a product without a result", lambda plan: without(plan, WRITE), "it has no output"),
        changed("P12", "a product whose result is absent", lambda plan: gemm(plan).use_buffers.__setitem__(list(gemm(plan).use_accesses).index(WRITE), -1),
                "it has no output"),
        changed("P12", "a reference kernel without operands", lambda plan: (without(plan, READ), setattr(gemm(plan), "kernel", b"reference.Gemm")),
                "does not accept these operands.*inputs"),
        changed("P13", "float64 of as many bytes", lambda plan: (setattr(buffer(plan, "h"), "dtype", 11), buffer(plan, "h").dims.__setitem__(1, 4)), "its operator produces float32.8,8."),
        changed("P13", "int32 for float32", lambda plan: setattr(buffer(plan, "h"), "dtype", 6), "its operator produces float32.8,8."),
        changed("P13", "another shape of as many elements", lambda plan: (buffer(plan, "h").dims.__setitem__(0, 4), buffer(plan, "h").dims.__setitem__(1, 16)), "its operator produces float32.8,8."),
        changed("P13", "a vector for a matrix", lambda plan: (buffer(plan, "h").dims.pop(), buffer(plan, "h").dims.__setitem__(0, 64)), "its operator produces float32.8,8."),
        changed("P14", "device 7", lambda plan: setattr(plan.programs[0].streams[0], "device", 7), "device 7 is out of range"),
        changed("P15", "stream 7", lambda plan: setattr(gemm(plan), "stream", 7), "stream 7 is out of range"),
        changed("P15", "stream -1", lambda plan: setattr(gemm(plan), "stream", -1), "stream -1 is out of range"),
        two("P16", "a wait for what nobody records", lambda plan: drop(plan, index_of(plan, RECORD)), "nothing records the event"),
        two("P16", "event 99", lambda plan: setattr(step(plan, WAIT), "event_plus_1", 100), "event 99 is out of range"),
        two("P17", "an event recorded twice", lambda plan: setattr(step(plan, RECORD, 1), "event_plus_1", step(plan, RECORD).event_plus_1), "recorded"),
        two("P18", "a wait before its record", lambda plan: moved(plan, index_of(plan, WAIT), 0), "recorded only later"),
        two("P19", "two writers that nothing orders", lambda plan: drop(plan, index_of(plan, WAIT, 1)), "nothing makes it wait"),
        changed("P20", "a product read before it is made", lambda plan: moved(plan, 0, 1), "before|never"),
        changed("P20", "a product that nobody makes", lambda plan: drop(plan, 0), "before|never|nothing"),
        changed("P21", "a result where a factor lies that is still read", lambda plan: setattr(buffer(plan, "/fc2/Gemm"), "offset", buffer(plan, "r").offset),
                "."),
        two("P22", "a collective that one device does not take part in", lambda plan: other_program(plan, lambda program: program.instructions.__delitem__(
            [i.kind for i in program.instructions].index(COLLECTIVE))), ".", ""),
        two("P23", "collectives in another order", lambda plan: other_program(plan, lambda program: [
            setattr(i, "tag", 30 - i.tag) for i in program.instructions if i.kind == COLLECTIVE]), ".", ""),
        two("P24", "another size on one device", lambda plan: other_program(plan, lambda program: [
            setattr(b, "bytes", 8) or b.dims.append(2) for b in [program.buffers[step(plan, COLLECTIVE).use_buffers[0]]]]), ".", ""),
        two("P25", "root 9", lambda plan: setattr(step(plan, COLLECTIVE), "root", 9), "root 9 is out of range"),
        two("P25", "rank 9 in a group", lambda plan: plan.groups[0].ranks.__setitem__(1, 9), ".", ""),
        two("P26", "a sum over buffers that overlap", lambda plan: setattr(buffer(plan, "/fc2/Gemm.1"), "offset", buffer(plan, "/fc2/Gemm.1").offset + 64), "."),
        changed("P27", "a tensor longer than the file", lambda plan: setattr(plan.state[0].initial.data, "bytes", 1 << 40), "do not match float32", "p.plan"),
        changed("P27", "a tensor of 2^40 elements", lambda plan: (setattr(plan.state[0].initial.data, "bytes", 4 << 40), plan.state[0].initial.dims.__setitem__(
            slice(None), [1 << 40])), "do not directly follow the bytes before them", "p.plan"),
        changed("P27", "two tensors of the same bytes", lambda plan: plan.state[1].initial.data.CopyFrom(plan.state[0].initial.data), ".", "p.plan"),
        changed("P27", "a model of -1 bytes", lambda plan: setattr(plan.model.bytes, "bytes", -1), "do not directly follow", "p.plan"),
        changed("P28", "an attribute that the operator has not", lambda plan: setattr(gemm(plan).attributes.add(name=b"x"), "string", b"y"), "'x'"),
        changed("P28", "a text for a number", lambda plan: setattr(gemm(plan).attributes.add(name=b"alpha"), "string", b"y"), "alpha"),
        changed("P28", "a learning rate that is NaN", lambda plan: setattr(plan.schedule, "lr", float("nan")), "not finite", ""),
        recipe("a recipe with a log file", '[log]\nfile = "elsewhere.txt"\n', "sets log.file, which no plan is compiled from"),
        recipe("a recipe with a folder of runs", '[run]\nout = "elsewhere"\n', "sets run.out"),
        recipe("a recipe with a job", '[job]\nmaster_addr = "192.0.2.1"\nworld_size = 2\nrank = 1\n', "sets job.rank"),
        Elsewhere("P28", "no operator of ONNX forbids NaN as a number; tests/plan:plan_file_test has a kernel that does"),
        Elsewhere("P29", "a plan has no grids: a kernel chooses them from shapes that the verifier has proved (kernels/cuda)"),
        structure("P30", "8.4 million empty instructions", lambda: field(10, b"\x22\0" * ((1 << 23) + 1)), "more than 8388608 parts"),
        structure("P31", "bodies 40 deep", lambda: nested(40), "nested too deeply"),
        structure("P31", "bodies 3,000 deep", lambda: nested(3000), "nested too deeply"),
        structure("P31", "no protobuf", lambda: b"\xff" * 1000, "malformed"),
        changed("P32", "two parameters of one name", lambda plan: setattr(plan.state[1], "name", plan.state[0].name), "the name occurs twice", ""),
        changed("P33", "a parameter that is not there", lambda plan: plan.state.pop(0), ".", ""),
        Row("P34", "a plan for GPUs, which any machine may look at", lambda: shutil.copy("gpu.plan", "p.plan"), VERIFY, "OK", "is sound"),
        Elsewhere("P34", "a GPU refuses a plan for another architecture: tests/cuda:executor_test"),
        Row("P35", "a plan for two devices, started with one", lambda: shutil.copy("two.plan", "p.plan"),
            "train --plan p.plan --data train.csv --map x=a..d --epochs 1 --devices cpu:1", "E-PLAN", "devices.use", "p.plan"),
        Row("P36", "the checkpoint of another model", lambda: None, "resume runs/done --epochs 2 --progress none --model other.onnx", "E-CHECKPOINT",
            "the checkpoint belongs to another model", "step-"),
        *(Row("P36", "a run that names the master of a job", lambda: write("runs/done/config.toml", read("runs/done/config.toml") + b'[job]\nmaster_addr = "192.0.2.1"\n'),
              command, "E-CONFIG", "the configuration of a run cannot set job.master_addr", r"config\.toml:\d+")
          for command in ("resume runs/done --progress none", "eval runs/done", "predict runs/done --data train.csv")),
        *shown("P10", "buffer 9,999", lambda plan: gemm(plan).use_buffers.__setitem__(0, 9999)),
        *shown("P10", "program 9,999", lambda plan: setattr(plan.entries[0].ranks[0], "program", 9999), commands=SHOWN[2:4]),
        *shown("P15", "stream 7", lambda plan: setattr(gemm(plan), "stream", 7), commands=SHOWN[2:4]),
        *shown("P16", "event 99", lambda plan: setattr(step(plan, WAIT), "event_plus_1", 100), "two.plan"),
        *shown("P33", "no programs, no entries", lambda plan: (plan.ClearField("programs"), plan.ClearField("entries")), commands=SHOWN[2:4]),
        *shown("P33", "no targets", lambda plan: plan.ClearField("targets"), commands=SHOWN[2:4]),
    ]
