"""S01 to S34: safetensors files used as weights, checkpoints of a run that is resumed, and other files in the folder of a run."""
import json
import os
import shutil
import struct

import hostile_files
import numpy as np
import safetensors.numpy
import sample_files
from hostile_files import Elsewhere, Row, read, write

DATA = "--data train.csv --map x=a..d --map label=label"
TRAIN = f"train model.onnx {DATA} --loss 'cross_entropy(logits, label)' --epochs 1 --batch 30 --progress none"
WEIGHTS = f"eval runs/done --data train.csv --weights w.safetensors"
SHARDS = "eval runs/done --data train.csv --weights shards/w.safetensors.index.json"
RESUME = "resume runs/done --epochs 2 --progress none"
STEP = "runs/done/checkpoints/step-000002"
RANK = STEP + "/rank-0.safetensors"


def sealed(header, data=b"", length=None):
    """A safetensors file with this header text."""
    text = header if isinstance(header, bytes) else header.encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def tensor(dtype="F32", shape=(2,), offsets=(0, 8)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


def rows(tools):
    rng = np.random.default_rng(0)
    sample_files.models(rng)
    sample_files.tables(rng)
    tools.right(TRAIN + " --save-every 1 --keep 2 --name done")
    good = safetensors.numpy.load_file("runs/done/state.safetensors")
    safetensors.numpy.save_file(good, "w.safetensors")
    os.mkdir("shards")
    parts = {f"w-0000{i + 1}-of-00002.safetensors": {name: good[name] for name in half} for i, half in enumerate((("w1", "b2"), ("b1", "w2")))}
    first, second = parts
    for shard, tensors in parts.items():
        safetensors.numpy.save_file(tensors, "shards/" + shard)
    index = {"metadata": {"total_size": 0}, "weight_map": {name: shard for shard, tensors in parts.items() for name in tensors}}
    write("shards/w.safetensors.index.json", json.dumps(index))
    hostile_files.keep_only("model.onnx", "train.csv", "w.safetensors", "runs", "shards")
    Manifest = tools.message(tools.checkpoint_proto, "Manifest")

    def weights(id, what, content, says, wanted="E-CHECKPOINT", place="w.safetensors"):
        return Row(id, what, lambda: write("w.safetensors", content), WEIGHTS, wanted, says, place)

    def header(id, what, entries, says, data=bytes(8), **more):
        """A header with these entries, given as a dict or as text."""
        return weights(id, what, sealed(entries if isinstance(entries, str) else json.dumps(entries), data), says, **more)

    def other_state(id, what, change, says, wanted="E-CHECKPOINT", place="w.safetensors"):
        def make():
            state = {name: value.copy() for name, value in good.items()}
            change(state)
            safetensors.numpy.save_file(state, "w.safetensors")
        return Row(id, what, make, WEIGHTS, wanted, says, place)

    def shards(id, what, make, says, wanted="E-CHECKPOINT", place="w.safetensors.index.json", command=SHARDS):
        """Divided weights. `make`: what is done in their folder, or the text of the index, or its weight_map as changes to the good one."""
        def change():
            if callable(make):
                os.chdir("shards")
                make()
                os.chdir("..")
            else:
                changed = {**index["weight_map"], **make} if isinstance(make, dict) else None
                write("shards/w.safetensors.index.json", make if changed is None else json.dumps({"weight_map": changed}))
        return Row(id, what, change, command, wanted, says, place)

    def rewritten(shard, change):
        def make():
            state = safetensors.numpy.load_file(shard)
            change(state)
            safetensors.numpy.save_file(state, shard)
        return make

    def step(id, what, make, says, place="step-000002", wanted="E-CHECKPOINT", command=RESUME + " --from step-000002", **more):
        return Row(id, what, make, command, wanted, says, place, **more)

    def forged(id, what, change, says, place="step-000002", wanted="E-CHECKPOINT", **more):
        """A manifest with a modification and a correct hash."""
        def make():
            file = read(STEP + "/MANIFEST")
            message = Manifest.FromString(file[32:])
            change(message)
            body = message.SerializeToString()
            write(STEP + "/MANIFEST", file[:16] + struct.pack("<q", len(body)) + bytes(8) + body)
            tools.hash(STEP + "/MANIFEST")
        return step(id, what, make, says, place, wanted, **more)

    def changed_rank(id, what, change, says, place="step-000002", **more):
        """Adds a rank file that the manifest describes correctly."""
        def make_file(message):
            state = safetensors.numpy.load_file(RANK)
            change(state)
            safetensors.numpy.save_file(state, RANK)
            message.files[0].bytes = os.path.getsize(RANK)
            message.files[0].hash = tools.hash(RANK)
        return forged(id, what, make_file, says, place, **more)

    def in_parts(id, what, divide, says, place="step-000002", **more):
        """Two rank files that the manifest describes correctly. `divide` returns each file's part of a state."""
        def make_files(message):
            message.world_size = 2
            message.files.add()
            for i, state in enumerate(divide(safetensors.numpy.load_file(RANK))):
                path = f"{STEP}/rank-{i}.safetensors"
                safetensors.numpy.save_file(state, path)
                message.files[i].name = os.path.basename(path).encode()
                message.files[i].bytes = os.path.getsize(path)
                message.files[i].hash = tools.hash(path)
        return forged(id, what, make_files, says, place, **more)

    def halves(state):
        names = sorted(state)
        return [{name: state[name] for name in half} for half in (names[::2], names[1::2])]

    def callback(name, text):
        def change(message):
            for kept in message.callbacks:
                if kept.name.decode() == name:
                    kept.text = text.encode()
        return change

    def loop():
        shutil.rmtree(STEP)
        os.symlink("step-000002", STEP)

    def link(path, target):
        os.remove(path)
        os.symlink(target, path)

    def set_nan(state):
        next(value for value in state.values() if value.dtype == np.float32)[...] = np.nan

    def elsewhere():
        os.mkdir("../outside")
        shutil.move(second, "../outside")

    def name_low():
        """The index names the second shard in a folder below."""
        changed = {name: ("low/" if shard == second else "") + shard for name, shard in index["weight_map"].items()}
        write("w.safetensors.index.json", json.dumps({"weight_map": changed}))

    def cache():
        os.mkdir("../blobs")
        for i, name in enumerate(os.listdir(".")):
            shutil.move(name, f"../blobs/{i}")
            os.symlink(f"../blobs/{i}", name)

    two = {"a": tensor(), "b": tensor(offsets=(8, 16))}
    return [
        shards("S00", "good weights in two files", lambda: None, "loss", "OK"),
        shards("S00", "in a folder below", lambda: (os.mkdir("low"), shutil.move(second, "low"), name_low()), "loss", "OK"),
        shards("S00", "a cache of links, as Hugging Face's", cache, "loss", "OK"),
        shards("S00", "unknown members", json.dumps({"weight_map": index["weight_map"], "more": [{"weight_map": [3]}], "n": None}), "loss", "OK"),
        shards("S01", "an empty index", "", "not valid JSON at byte"),
        shards("S04", "an index that is not JSON", "<html>", "not valid JSON at byte"),
        shards("S04", "an index that is a list", "[]", "the index is an array, expected an object"),
        shards("S04", "an index that is a number", "7", "the index is a number, expected an object"),
        shards("S04", "no weight_map", "{}", "the index has no weight_map"),
        shards("S04", "a weight_map that is a list", '{"weight_map": []}', "the weight_map is an array, expected an object"),
        shards("S04", "a weight_map that is a text", '{"weight_map": "w1"}', "the weight_map is a string, expected an object"),
        shards("S04", "a file that is a number", '{"weight_map": {"w1": 3}}', "the file of tensor 'w1' is a number, expected a string"),
        shards("S04", "a file that is an object", '{"weight_map": {"w1": {}}}', "the file of tensor 'w1' is an object, expected a string"),
        shards("S05", "an index that is not UTF-8", lambda: write("w.safetensors.index.json", b'{"weight_map": {"\xff": "a"}}'), "not valid JSON"),
        shards("S07", "200,000 brackets in an index", '{"weight_map": ' + "[" * 200000, "the weight_map is an array"),
        shards("S07", "a million ignored brackets", '{"metadata": %s%s, "weight_map": %s}' % ("[" * 1000000, "]" * 1000000, json.dumps(index["weight_map"])),
               "loss", "OK"),
        shards("S08", "weight_map twice", '{"weight_map": {}, "weight_map": {}}', "'weight_map' occurs twice"),
        shards("S08", "a tensor twice in the index", '{"weight_map": {"w1": "%s", "w1": "%s"}}' % (first, second), "names the tensor 'w1' twice"),
        shards("S08", "a tensor in two shards", rewritten(first, lambda state: state.update(b1=good["b1"])),
               f"puts tensor 'b1' into '{second}', but this file has it, too", place=first),
        shards("S18", "100,000 tensors in an index", json.dumps({"weight_map": {f"t{i}": "a" for i in range(100000)}}),
               "more tensors than the limit of 65536", "E-LIMIT"),
        shards("S18", "5,000 shards", json.dumps({"weight_map": {f"t{i}": f"{i}.safetensors" for i in range(5000)}}),
               "names 5000 files, more than the limit of 4096", "E-LIMIT"),
        shards("S20", "a tensor that its shard lacks", rewritten(first, lambda state: state.pop("w1")),
               "puts tensor 'w1' into this file, which does not have it", place=first),
        shards("S20", "a tensor that no shard has", {"w9": second}, "puts tensor 'w9' into this file, which does not have it", place=second),
        shards("S21", "a tensor that the index does not name", rewritten(second, lambda state: state.update({"w9\x1b[31m": good["b1"]})),
               r"does not name tensor 'w9\\x1b\[31m' of this file", place=second),
        shards("S22", "another shape in a shard", rewritten(first, lambda state: state.update(w1=np.zeros((8, 4), "float32"))),
               r"w1.*\[8,4\]"),
        shards("S15", "a shard cut off", lambda: write(second, read(second)[:-4]), "its bytes end at", place=second),
        shards("S25", "a shard that is absent", lambda: os.remove(second),
               "names a file that is missing", "E-IO", f"tensor 'b1'  file \"{second}\""),
        shards("S25", "a shard that is a folder", lambda: (os.remove(second), os.mkdir(second)), "not a regular file", "E-PATH", second),
        shards("S25", "a shard that is a pipe", lambda: (os.remove(second), os.mkfifo(second)), "not a regular file", "E-PATH", second),
        shards("S25", "a shard that is a device", lambda: (os.remove(second), os.symlink("/dev/zero", second)), "through a link", "E-PATH", second),
        shards("S25", "a shard that is the index", {"w9": "w.safetensors.index.json"}, "the header has \\d+ bytes", place="w.safetensors.index.json"),
        shards("S25", "a shard above the folder", {"w1": "../w.safetensors"}, "names a file outside of the folder", "E-PATH", "tensor 'w1'"),
        shards("S25", "a shard in a folder above", {"w1": "a/../../w.safetensors"}, "names a file outside of the folder", "E-PATH", "tensor 'w1'"),
        shards("S25", "a shard by an absolute path", {"w1": "/etc/passwd"}, "names a file by an absolute path", "E-PATH", "tensor 'w1'"),
        shards("S25", "a shard without a name", {"w1": ""}, "names a file without a name", "E-PATH", "tensor 'w1'"),
        shards("S25", "a shard that is the folder", {"w1": "."}, "not a regular file", "E-PATH", "tensor 'w1'"),
        shards("S25", "a shard with a NUL", {"w1": first + "\0/../x"}, "with a NUL byte in its name", "E-PATH", "tensor 'w1'"),
        shards("S25", "a shard from a server", {"w1": "https://example.org/" + first}, "by a URL", "E-PATH", "tensor 'w1'"),
        shards("S25", "a shard on a drive", {"w1": "C:\\" + first}, "by a Windows path", "E-PATH", "tensor 'w1'"),
        shards("S25", "a shard with a long name", {"w1": "a/" * 3000}, "longer than 4,096 bytes", "E-PATH", "tensor 'w1'"),
        shards("S25", "a shard whose name steers a terminal", {"w1": "\x1b[31m"}, "names a file that is missing", "E-IO", r'file "\\x1b\[31m"'),
        shards("S31", "a shard that is a link to itself", lambda: link(second, second), "Too many levels of symbolic links", "E-IO", second),
        shards("S31", "a shard that is a link out", lambda: (elsewhere(), os.symlink("../outside/" + second, second)),
               "outside of the folder, through a link", "E-PATH", second),
        shards("S31", "a folder that is a link out", lambda: (elsewhere(), os.symlink("../outside", "low"), name_low()),
               "outside of the folder, through a link", "E-PATH", "low/" + second),
        shards("S31", "a secret behind a link", lambda: (write("../secret", "mine\n" * 9), link(second, "../secret")),
               "outside of the folder, through a link", "E-PATH", second),
        Row("S00", "good weights", lambda: None, WEIGHTS, "OK", "loss"),
        Row("S00", "a good checkpoint", lambda: None, RESUME + " --from step-000002", "OK", "step-000002"),
        forged("S00", "a manifest taken apart and put together", lambda message: None, "step-000002", wanted="OK"),
        weights("S01", "empty", b"", "too short"),
        weights("S02", "a header longer than the file", sealed("{}", length=1000), "ends within its header"),
        weights("S03", "a header of 100,000,001 bytes", sealed("{}", length=100000001), "the header has 100000001 bytes"),
        weights("S03", "a header of 2^64 - 1 bytes", sealed("{}", length=(1 << 64) - 1), "the header has 18446744073709551615 bytes"),
        header("S04", "not JSON", "{'a': 1}", "not valid JSON at byte"),
        header("S04", "cut off", '{"a":{"dtype":"F32"', "not valid JSON at byte"),
        weights("S05", "not UTF-8", sealed(b'{"\xff":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}', bytes(8)), "not valid JSON"),
        header("S06", "starts with a space", " " + json.dumps({"a": tensor()}), "does not start with '{'"),
        header("S07", "200,000 brackets", '{"a":' + "[" * 200000, "."),
        header("S07", "200,000 braces", '{"a":' * 200000, "."),
        header("S08", "a tensor twice", '{"a":%s,"a":%s}' % ((json.dumps(tensor()),) * 2), "the key 'a' occurs twice"),
        header("S08", "metadata twice", '{"__metadata__":{},"__metadata__":{}}', "the key '__metadata__' occurs twice"),
        header("S08", "a shape twice", '{"a":{"dtype":"F32","shape":[2],"shape":[2],"data_offsets":[0,8]}}', "'shape' occurs twice"),
        header("S09", "metadata that is a number", {"__metadata__": {"format": 3}}, "a number"),
        header("S10", "unknown dtype", {"a": tensor("F8_E9")}, "the dtype 'F8_E9' is not supported", place="w.safetensors tensor 'a'"),
        header("S11", "negative offset", {"a": tensor(offsets=(-8, 0))}, "negative number -8", place="w.safetensors tensor 'a'"),
        header("S11", "backward offsets", {"a": tensor(offsets=(8, 0))}, ".", place="w.safetensors tensor 'a'"),
        header("S12", "overlap", {**two, "b": tensor(offsets=(4, 12))}, "overlap", bytes(12), place="w.safetensors tensor 'b'"),
        header("S13", "hole", {**two, "b": tensor(offsets=(12, 20))}, "4 bytes before it belong to no tensor", bytes(20), place="tensor 'b'"),
        header("S14", "bytes at the end", {"a": tensor()}, "the last 2 bytes belong to no tensor", bytes(10)),
        header("S15", "short data", two, "its bytes end at 16, but the data ends at 10", bytes(10), place="tensor 'b'"),
        header("S16", "a shape past 64 bits", {"a": tensor(shape=(1 << 32, 1 << 32, 2))}, ".", place="tensor 'a'"),
        header("S16", "bytes past 64 bits", {"a": tensor(shape=(1 << 62,))}, ".", place="tensor 'a'"),
        header("S16", "an extent past 63 bits", {"a": tensor(shape=((1 << 64) - 1,))}, "too large", place="tensor 'a'"),
        header("S17", "three floats in eight bytes", {"a": tensor(shape=(3,))}, ".", place="tensor 'a'"),
        weights("S18", "100,000 tensors", sealed(json.dumps({f"t{i}": tensor("F32", (0,), (0, 0)) for i in range(100000)})),
                "more tensors than the limit of 65536", "E-LIMIT"),
        header("S19", "offsets 0.0 and 8e0", '{"a":{"dtype":"F32","shape":[2],"data_offsets":[0.0,8e0]}}', "'0.0' is not an integer",
               place="tensor 'a'"),
        other_state("S20", "a tensor missing", lambda state: state.pop("w1"), "w1"),
        other_state("S21", "a tensor more, as the optimizer's are", lambda state: state.update(w9=np.zeros(2, "float32")), "loss", "OK", ""),
        changed_rank("S21", "a tensor more in a checkpoint", lambda state: state.update({"w9\x1b[31m": np.zeros(2, "float32")}),
                     r"'w9\\x1b\[31m' is not in the plan"),
        other_state("S22", "another shape", lambda state: state.update(w1=np.zeros((8, 4), "float32")), r"w1.*\[8,4\].*\[4,8\]|\[4,8\].*\[8,4\]"),
        other_state("S23", "another dtype, which is converted", lambda state: state.update(w1=np.zeros((4, 8), "float64")), "loss", "OK", ""),
        changed_rank("S23", "another dtype in a checkpoint", lambda state: state.update(w1=np.zeros((4, 8), "float64")),
                     r"'w1' is float64\[4,8\] in the checkpoint, float32\[4,8\] in the plan"),
        step("S24", "no MANIFEST", lambda: os.remove(STEP + "/MANIFEST"), "it has no MANIFEST", "MANIFEST"),
        step("S24", "an empty MANIFEST", lambda: write(STEP + "/MANIFEST", b""), "0 bytes, too few", "MANIFEST"),
        step("S24", "a folder for it", lambda: (os.remove(STEP + "/MANIFEST"), os.mkdir(STEP + "/MANIFEST")), "not a regular file", "MANIFEST"),
        step("S24", "a pipe for it", lambda: (os.remove(STEP + "/MANIFEST"), os.mkfifo(STEP + "/MANIFEST")), "not a regular file", "MANIFEST"),
        step("S24", "a bit of it flipped", lambda: write(STEP + "/MANIFEST", flipped(read(STEP + "/MANIFEST"), 200)), "damaged", "MANIFEST"),
        step("S24", "half of it", lambda: write(STEP + "/MANIFEST", read(STEP + "/MANIFEST")[:100]), "damaged", "MANIFEST"),
        step("S25", "a file that is absent", lambda: os.remove(RANK), "'rank-0.safetensors' is missing", "rank-0.safetensors"),
        step("S25", "a link in its place", lambda: (shutil.move(RANK, "elsewhere"), os.symlink(os.path.abspath("elsewhere"), RANK)),
             "not a regular file", "rank-0.safetensors"),
        forged("S25", "a file above the folder", lambda m: setattr(m.files[0], "name", b"../rank-0.safetensors"),
               r"lists '\.\./rank-0\.safetensors' instead of", "MANIFEST"),
        forged("S25", "a file of 2^62 bytes", lambda m: setattr(m.files[0], "bytes", 1 << 62), "the manifest specifies 4611686018427387904", "rank-0"),
        step("S26", "a flipped bit", lambda: write(RANK, flipped(read(RANK), 900)), "do not match their hash", "rank-0.safetensors"),
        Row("S26", "a flipped bit in the newest: the one before it is taken", lambda: write(RANK, flipped(read(RANK), 900)), RESUME, "OK",
            "skipped .*step-000002: the file is damaged.*\n(.*\n)*.*resume +.*step-000001"),
        Row("S26", "a flipped bit in both", lambda: [write(p, flipped(read(p), 900)) for p in (RANK, RANK.replace("0002", "0001"))], RESUME,
            "E-CHECKPOINT", "no checkpoint of the run can be loaded", "runs/done/checkpoints"),
        step("S27", "the file of another step", lambda: shutil.copy(RANK.replace("0002", "0001"), RANK), "do not match their hash|bytes",
             "rank-0.safetensors"),
        forged("S28", "two ranks", lambda m: (setattr(m, "world_size", 2), m.files.add(name=b"rank-1.safetensors")), "rank", "step-000002"),
        in_parts("S28", "the state of two ranks, for one", halves, "step-000002", wanted="OK"),
        in_parts("S28", "a tensor in two parts", lambda state: [state, {"w1": state["w1"]}], "two ranks have a tensor 'w1'", "rank-1.safetensors"),
        in_parts("S28", "a part that holds nothing of what is missing", lambda state: [halves(state)[0], {}], "is missing"),
        step("S28", "a part that the manifest does not list", lambda: shutil.copy(RANK, RANK.replace("rank-0", "rank-1")),
             "'rank-1.safetensors' does not belong to the checkpoint", "rank-1.safetensors"),
        forged("S28", "2^40 ranks", lambda m: setattr(m, "world_size", 1 << 40), "number of ranks is 1099511627776", "MANIFEST"),
        forged("S28", "no rank", lambda m: (setattr(m, "world_size", 0), m.files.pop()), "number of ranks is 0", "MANIFEST"),
        step("S29", "another optimizer", lambda: None, "optimizer", command="resume runs/done --epochs 2 --optimizer sgd --progress none"),
        forged("S30", "a batch beyond the epoch", lambda m: setattr(m.cursor, "batch", 77), "batch within the epoch is 77", "MANIFEST"),
        forged("S30", "other rows", lambda m: setattr(m.cursor, "rows", 61), "61 rows in batches of 30; there are now 60", "step-000002"),
        forged("S30", "a negative epoch", lambda m: setattr(m.cursor, "epoch", -1), "epoch is -1", "MANIFEST"),
        step("S30", "fewer rows in the data", lambda: write("train.csv", b"\n".join(read("train.csv").split(b"\n")[:41])),
             "60 rows in batches of 30; there are now 40", "step-000002",
             command=RESUME + " --from step-000002 --data train.csv"),
        step("S31", "a folder that is a link to itself", loop, ".", "step-000002"),
        Row("S31", "checkpoints that are a link to themselves", lambda: (shutil.rmtree("runs/done/checkpoints"), os.symlink("checkpoints", "runs/done/checkpoints")),
            RESUME, "E-RESOURCE", ".", "checkpoints"),
        Elsewhere("S32", "files are read, never mapped (runtime/base/file.h), so none can shrink under a mapping; tests/checkpoint:checkpoint_test "
                         "and tests/checkpoint:safetensors_test cut files at every byte"),
        forged("S33", "step 2^63 - 1", lambda m: setattr(m, "step", (1 << 63) - 1), "step is 9223372036854775807", "MANIFEST"),
        forged("S33", "step -1", lambda m: setattr(m, "step", -1), "step is -1", "MANIFEST"),
        forged("S33", "a learning rate that is NaN", lambda m: setattr(m, "fixed_learning_rate", float("nan")), "is out of range", "MANIFEST"),
        step("S33", "a name past 64 bits", lambda: None, "the checkpoint does not exist", "step-9", command=RESUME + " --from step-99999999999999999999"),
        step("S33", "a name that leads out", lambda: None, "missing|not the name|not a checkpoint", "", command=RESUME + " --from ../../../../etc"),
        Row("S33", "a pointer that leads out", lambda: write("runs/done/checkpoints/BEST", "../../../secret\n"), WEIGHTS.split(" --weights")[0] + " --from best",
            "E-CHECKPOINT", r"'\.\./\.\./\.\./secret' is not the name of a checkpoint", "checkpoints"),
        forged("S33", "no state of the trainer", callback("trainer", "[[[[" * 100000), "cannot read", ""),
        forged("S33", "no state of the records", callback("records", '{"loss_sum": "\x1b"}'), "cannot read", ""),
        changed_rank("S34", "NaN in weights: said, and training ends at once", set_nan, "has \\d+ values that are NaN or infinite|not finite", "",
                     wanted="E-DIVERGED", before=True),
        changed_rank("S20", "a tensor missing in a checkpoint", lambda state: state.pop("w1"), "'w1' is missing"),
        changed_rank("S22", "another shape in a checkpoint", lambda state: state.update(w1=np.zeros((8, 4), "float32")), r"'w1' is float32\[8,4\] in the checkpoint"),
        Row("S24", "columns and transforms that are no JSON", lambda: write("runs/done/data.json", "{" * 100000), "eval runs/done --data train.csv",
            "E-CONFIG", "cannot be read", "data.json"),
        Row("S24", "transforms without numbers", lambda: write("runs/done/data.json", '{"columns": {}, "transforms": {"x": [{"shift": [], "scale": []}]}}'),
            "eval runs/done --data train.csv", "E-CONFIG", "empty", "data.json"),
        Row("S24", "a configuration cut off", lambda: write("runs/done/config.toml", read("runs/done/config.toml")[:60]), RESUME, "E-CONFIG", ".", "config.toml:"),
        Row("S31", "state that is a link to itself", lambda: link("runs/done/state.safetensors", "state.safetensors"), "export runs/done -o o.onnx",
            "E-IO", "Too many levels of symbolic links", "state.safetensors"),
        Row("S31", "a name that steers a terminal", lambda: None, "export runs/done -o '\x1b[31m.onnx'", "OK", r"-> \\x1b\[31m\.onnx"),
        Row("S31", "a name that is no UTF-8", lambda: None, "export runs/done -o \udcff.onnx --json", "OK", '"output":"\ufffd.onnx"'),
        Row("S31", "records that are a link to another file", lambda: (write("secret", "mine\n"), link("runs/done/metrics.jsonl", os.path.abspath("secret"))),
            RESUME, "E-PATH", "symbolic link", "metrics.jsonl"),
        Row("S31", "a log that is a link to another file", lambda: (write("secret", "mine\n"), link("runs/done/log.txt", os.path.abspath("secret"))),
            RESUME, "E-PATH", "symbolic link", "log.txt"),
        Row("S31", "a log that is a pipe", lambda: (os.remove("runs/done/log.txt"), os.mkfifo("runs/done/log.txt")), RESUME, "E-PATH", "not a regular file",
            "log.txt"),
        Row("S31", "an export folder elsewhere", lambda: (shutil.rmtree("runs/done/export"), os.symlink("/tmp", "runs/done/export")), RESUME, "E-PATH",
            "symbolic link", "export"),
        Row("S31", "a lock that is a link to another file", lambda: link("runs/done/checkpoints/LOCK", os.path.abspath("secret")), RESUME, "E-RESOURCE",
            "symbolic links", "LOCK"),
    ]


def flipped(content, at):
    at = min(at, len(content) - 1)
    return content[:at] + bytes([content[at] ^ 4]) + content[at + 1:]
