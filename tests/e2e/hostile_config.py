"""K01 to K12: configurations, and the cluster files of the simulator, which are TOML as well."""
import hostile_files
import numpy as np
import sample_files
from hostile_files import Row

HEAD = 'version = 1\n[model]\npath = "model.onnx"\n[data]\ntrain = "train.csv"\nmap = { x = "a..d", label = "label" }\n'
LOSS = "--loss 'cross_entropy(logits, label)'"


def rows(tools):
    rng = np.random.default_rng(0)
    sample_files.models(rng)
    sample_files.tables(rng)
    tools.right(f"compile model.onnx {LOSS} --batch 8 -o good.plan")
    hostile_files.write("good.toml", HEAD)
    hostile_files.keep_only("model.onnx", "train.csv", "good.toml", "good.plan")

    def config(id, what, text, says, place, wanted="E-CONFIG", command="config -c f.toml", **more):
        return Row(id, what, lambda: hostile_files.write("f.toml", text), command, wanted, says, place, **more)

    def deep(what, text, says="32|[Nn]est"):
        return config("K08", what, text, says, "f.toml:1:")

    def cluster(id, what, text, says, place, **more):
        return config(id, what + ", of a cluster", text, says, place, command="simulate good.plan --topology f.toml", **more)

    return [
        Row("K00", "a good file", lambda: None, "config -c good.toml", "OK", "version = 1"),
        Row("K00", "a good plan", lambda: None, "simulate good.plan", "OK"),
        config("K01", "unknown key", HEAD + "[train]\nepoch = 1\n", "unknown key 'train.epoch'.*\n.*\n.*did you mean 'train.epochs'", r"f\.toml:8:1"),
        config("K01", "unknown section", HEAD + "[trian]\nepochs = 1\n", "unknown key 'trian'", r"f\.toml:7:2"),
        config("K01", "control bytes in a key", '"\\u001b[31m\\u0000" = 1\n', r"unknown key '\\x1b\[31m\\x00'", r"f\.toml:1:1"),
        cluster("K01", "unknown key", "[node]\ndevcies = 2\n", "did you mean 'devices'", r"f\.toml:2"),
        config("K02", "key twice", HEAD + "[train]\nepochs = 1\nepochs = 2\n", "epochs", r"f\.toml:9:"),
        config("K02", "section twice", HEAD + "[train]\nepochs = 1\n[train]\nlog_every = 2\n", "train", r"f\.toml:9:"),
        config("K03", "text for a number", HEAD + '[train]\nepochs = "ten"\n', "train.epochs must be a whole number, got a string", r"f\.toml:8:10"),
        config("K03", "list for a text", '[model]\npath = ["a"]\n', "model.path must be a string, got a list", r"f\.toml:2:8"),
        config("K03", "number for a section", "train = 3\n", "unknown key 'train'", r"f\.toml:1:1"),
        config("K03", "date for a number", "[train]\nepochs = 1979-05-27\n", "got a date", r"f\.toml:2:10"),
        config("K03", "number past 64 bits", "[train]\nepochs = 99999999999999999999\n", ".", r"f\.toml:2:"),
        cluster("K03", "no count", "[node]\ndevices = -3\n", "node.devices must be a whole number", r"f\.toml:2"),
        config("K04", "NaN learning rate", "[optimizer]\nlr = nan\n", "optimizer.lr must be a finite number", r"f\.toml:2:6"),
        config("K04", "infinite learning rate", "[optimizer]\nlr = inf\n", "optimizer.lr must be a finite number", r"f\.toml:2:6"),
        config("K04", "NaN, as a flag", HEAD, "optimizer.lr must be a finite number", "--lr", command="config -c f.toml --lr nan"),
        cluster("K04", "NaN", "[device]\nflops_per_second = nan\n", "must be a number above 0", r"f\.toml:2"),
        cluster("K04", "negative time", "[device]\nkind = \"cpu\"\nwake_seconds = -1e-6\n", "must be a number of at least 0", r"f\.toml:3"),
        cluster("K04", "no rate of the caches that is a number", "[device]\ncache_bytes_per_second = inf\n", "must be a number of at least 0", r"f\.toml:2"),
        config("K05", "negative batch", "[data]\nbatch = -4\n", "data.batch must be at least 0, got -4", r"f\.toml:2:9"),
        config("K06", "7 samples on 2 devices", HEAD, "", "", "OK",
               command=f"train -c f.toml {LOSS} --batch 7 --devices cpu:2 --epochs 1 --progress none"),
        config("K07", "no closing quote", HEAD.replace('.onnx"', ".onnx"), ".", r"f\.toml:3:"),
        config("K07", "no value", "[optimizer]\nlr =\n", ".", r"f\.toml:2:"),
        config("K07", "not UTF-8", b'[model]\npath = "\xff\xfe"\n', ".", r"f\.toml:2:"),
        config("K07", "a letter beyond ASCII as a key", "[train]\n\u01e5 = 1\n", "a non-ASCII character", r"f\.toml:2:1"),
        config("K07", "NUL in a date", b"[train]\nepochs = 1979-05-27T\x00r\n", ".", r"f\.toml:"),
        config("K07", "half a file of zeros", HEAD.encode() + bytes(4096), ".", r"f\.toml:"),
        config("K07", "a model", hostile_files.read("model.onnx"), ".", r"f\.toml:"),
        config("K07", "2 MiB", "#" * (2 << 20), "limit", "f.toml", "E-LIMIT"),
        config("K07", "a folder", "", "this is a folder, not a file", r"\.", "E-IO", command="config -c ."),
        cluster("K07", "no closing bracket", "[device\n", ".", r"f\.toml:1"),
        cluster("K07", "2 MiB", "#" * (2 << 20), "limit", "f.toml", wanted="E-LIMIT"),
        deep("10,000 lists", "x = " + "[" * 10000),
        deep("10,000 tables", "x = " + "{a = " * 10000),
        deep("10,000 brackets", "[" * 10000, "."),
        deep("key of 200,000 parts", "a" + ".a" * 200000 + " = 1\n", "a key has more than 32 parts"),
        deep("section of 200,000 parts", "[a" + ".a" * 200000 + "]\n", "a key has more than 32 parts"),
        deep("quoted key of 200,000 parts", '"a"' + ". 'b' " * 100000 + " = 1\n", "a key has more than 32 parts"),
        deep("long keys within tables", "x = " + ("{" + "a." * 1000 + "a = ") * 200 + "1" + "}" * 200, "a key has more than 32 parts"),
        config("K08", "the same in --set", HEAD, "a key has more than 32 parts", "--set", command="config -c f.toml --set 'data.map={" + "a." * 900 + "a=1}'"),
        cluster("K08", "key of 200,000 parts", "a" + ".a" * 200000 + " = 1\n", "a key has more than 32 parts", r"f\.toml:1"),
        config("K08", "dots that are no key", HEAD + '[run]\nname = "' + "." * 500 + '" # ' + "." * 500 + "\n", "[.]{500}", "", "OK"),
        config("K09", "YAML's aliases, which TOML has not", "a: &a [x, x]\nb: &b [*a, *a]\n", ".", r"f\.toml:1:"),
        config("K10", "flag over file", HEAD + "[optimizer]\nlr = 0.1\n", r"lr = 0\.5 +# --lr \(over f\.toml:8:1\)", "", "OK",
               command="config -c f.toml --lr 0.5"),
        config("K11", "home folder", '[model]\npath = "~/model.onnx"\n', "'~' and '\\$' are not expanded", r"f\.toml:2:8"),
        config("K11", "variable", '[data]\ntrain = "$DATA/train.csv"\n', "'~' and '\\$' are not expanded", r"f\.toml:2:9"),
        config("K12", "a launcher's variables that contradict each other", HEAD, "RANK=5 WORLD_SIZE=4 contradict each other", "the topology of the job",
               command=f"train -c f.toml {LOSS} --epochs 1 --progress none", environment={"RANK": "5", "WORLD_SIZE": "4"}),
        config("K12", "a launcher's variable that is no number", HEAD, "LOCAL_RANK=x must be a whole number", "the topology of the job",
               command=f"train -c f.toml {LOSS} --epochs 1 --progress none", environment={"RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "x"}),
    ]
