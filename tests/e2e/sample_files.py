"""Valid models, data, plans and runs, and the same with one defect each."""
import gzip
import os
import shutil
import tempfile

import numpy as np
import onnx
import PIL.Image
import safetensors.numpy
from onnx import helper

TRAIN = ["train", "model.onnx", "--data", "train.csv", "--map", "x=a..d", "--map", "label=label", "--loss", "cross_entropy(logits, label)",
         "--epochs", "1", "--progress", "none"]


def write(path, content):
    with open(path, "wb") as file:
        file.write(content if isinstance(content, bytes) else content.encode())


def read(path):
    with open(path, "rb") as file:
        return file.read()


def mend(path, wrong, right):
    if path.endswith(".onnx"):
        model = onnx.load(path)
        for node in model.graph.node:
            node.op_type = node.op_type.replace(wrong, right)
        onnx.save(model, path)
    else:
        write(path, read(path).replace(wrong.encode(), right.encode()))


def models(rng):
    def mlp(path, inner=4, activation="Relu", domain=""):
        weights = [onnx.numpy_helper.from_array(rng.standard_normal(shape).astype("float32"), name)
                   for name, shape in (("w1", (inner, 8)), ("b1", (8,)), ("w2", (8, 3)), ("b2", (3,)))]
        nodes = [helper.make_node("Gemm", ["x", "w1", "b1"], ["h"], name="/fc1"), helper.make_node(activation, ["h"], ["r"], name="/act", domain=domain),
                 helper.make_node("Gemm", ["r", "w2", "b2"], ["logits"], name="/fc2")]
        graph = helper.make_graph(nodes, "mlp", [helper.make_tensor_value_info("x", 1, ["N", 4])],
                                  [helper.make_tensor_value_info("logits", 1, ["N", 3])], weights)
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid(d, 17) for d in {"", domain}], ir_version=8), path)

    mlp("model.onnx")
    mlp("rellu.onnx", activation="Rellu")
    mlp("domain.onnx", activation="Swishy", domain="com.example")
    mlp("narrow.onnx", inner=5)
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[N, %s] x) => (float[N, %s] logits)
        <float[%d, %d] w = {%s}> { f = %s (x)  logits = MatMul (f, w) }"""
    numbers = ", ".join(["0.01"] * 384)
    onnx.save(onnx.parser.parse_model(text % ("T, 4", "T, 3", 4, 3, ", ".join(["0.5"] * 12), "Identity")), "sequence.onnx")
    onnx.save(onnx.parser.parse_model(text % ("3, 8, 8", "2", 192, 2, numbers, "Flatten")), "vision.onnx")
    write("pointer.onnx", "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n")
    write("page.onnx", "<!DOCTYPE html><html><body>404</body></html>")
    write("half.onnx", read("model.onnx")[:200])


def tables(rng):
    features = rng.standard_normal((60, 4)).round(4)
    labels = features[:, :3].argmax(1)

    def table(path, header="a,b,c,d,label", change=None):
        rows = [[*map(str, row), str(label)] for row, label in zip(features, labels)]
        if change is not None:
            change(rows)
        write(path, "\n".join([header, *(",".join(row) for row in rows)]) + "\n")

    def cell(row, column, value):
        return lambda rows: rows[row].__setitem__(column, value)

    table("train.csv")
    table("class7.csv", change=cell(10, 4, "7"))
    table("negative.csv", change=cell(10, 4, "-1"))
    table("text.csv", change=cell(3, 1, "n/a"))
    table("half_class.csv", change=cell(5, 4, "1.5"))
    table("no_class.csv", change=cell(5, 4, ""))
    def named(rows):
        for row in rows:
            row[4] = ["ant", "bee", "cat"][int(row[4])]

    table("names.csv", change=named)
    table("misspelled.csv", change=lambda rows: (named(rows), cell(59, 4, "aunt")(rows)))
    table("mixed.csv", change=lambda rows: (named(rows), cell(30, 4, "0")(rows)))
    table("years.csv", header="1990,1991,1992,1993,class")
    write("decimal_commas.csv", read("train.csv").replace(b",", b";").replace(b".", b","))
    write("commas.tsv", read("train.csv"))
    write("comment.csv", b"# made in 2024\n" + read("train.csv"))
    table("ragged.csv", change=lambda rows: rows[7].pop())
    table("header.csv", change=lambda rows: rows.clear())
    write("empty.csv", "")
    whole = gzip.compress(read("train.csv"), mtime=0)
    write("cut.csv.gz", whole[:len(whole) // 2])
    x, label = features.astype("float32"), labels
    np.savez("train.npz", x=x, label=label)
    np.savez("wide.npz", x=np.concatenate([x, x[:, :1]], 1), label=label)
    np.savez("uneven.npz", x=x, label=label[:50])
    np.savez("unlabelled.npz", x=x)
    np.savez("objects.npz", x=np.array([{}] * 60), label=label)
    np.savez("named.npz", x=x, label=label.astype(str), names=np.array(["ant", "bee", "cat"]))
    np.savez("bytes.npz", x=x, label=label.astype("S"))
    write("cut.npz", read("train.npz")[:800])


def images(rng):
    os.makedirs("nothing")
    os.makedirs("bare/cat")
    for kind in ("cat", "dog"):
        os.makedirs(f"images/{kind}")
        for i in range(3):
            PIL.Image.fromarray(rng.integers(0, 255, (8, 8, 3)).astype("uint8")).save(f"images/{kind}/{i}.png")
    shutil.copytree("images", "broken")
    write("broken/dog/1.png", read("images/dog/1.png")[:60])
    for part in ("train", "val"):
        shutil.copytree("images", f"parts/{part}")
    shutil.copytree("images", "three")
    shutil.copytree("images/dog", "three/eel")
    write("list.csv", "path,label\nimages/cat/0.png,0\nimages/cat/9.png,0\n")


def in_folder_of(test_class):
    """Creates a folder with models and tables, which is the tests' working directory until the last of them has run."""
    folder = tempfile.mkdtemp()
    test_class.addClassCleanup(shutil.rmtree, folder)
    os.chdir(folder)
    test_class.addClassCleanup(os.chdir, "/")
    rng = np.random.default_rng(0)
    models(rng)
    tables(rng)
    return folder


def configurations():
    model = 'version = 1\n[model]\npath = "model.onnx"\n[data]\ntrain = "train.csv"\n'
    write("gradloom.toml", model + "[train]\nepochs = 1\n")
    write("key.toml", model + "[optimizer]\nlearning_rate = 0.1\n")
    write("syntax.toml", model.replace('.onnx"', ".onnx"))
    write("type.toml", model + '[train]\nepochs = "ten"\n')
    write("twice.toml", model + "[train]\nepochs = 1\nepochs = 2\n")
    write("word.toml", model + '[optimizer]\nname = "adamm"\n')
    write("future.toml", "version = 2\n")
    write("header.toml", model + "[train\nepochs = 1\n")
    write("sections.toml", model + "[train]\nepochs = 1\n[train]\n")
    write("gradloom.yaml", "train: {epochs: 1}\n")
    write("gradloom.json", '{"train": {"epochs": 1}}\n')


def plans_and_runs(gradloom):
    """`gradloom(words)` runs the command."""
    gradloom(["compile", "model.onnx", "--loss", "cross_entropy(logits, label)", "-o", "good.plan"])
    plan = read("good.plan")
    write("model.plan", plan)
    write("cut.plan", plan[:len(plan) // 2])
    write("newer.plan", plan[:8] + b"\x63" + plan[9:])
    write("flipped.plan", plan[:3000] + bytes([plan[3000] ^ 1]) + plan[3001:])
    gradloom([*TRAIN, "--name", "done", "--eval-split", "20%"])
    gradloom([*TRAIN, "--name", "plain"])
    for name in ("damaged", "unsaved"):
        shutil.copytree("runs/done", f"runs/{name}")
    state = "runs/damaged/checkpoints/step-000002/rank-0.safetensors"
    write(state, read(state)[:-1] + b"?")
    os.remove("runs/unsaved/state.safetensors")
    shutil.rmtree("runs/unsaved/checkpoints")
    safetensors.numpy.save_file({"other": np.zeros(3, "float32")}, "other.safetensors")
    safetensors.numpy.save_file({"w1": np.zeros((9, 9), "float32")}, "shape.safetensors")


def make_all(gradloom):
    rng = np.random.default_rng(0)
    models(rng)
    tables(rng)
    images(rng)
    configurations()
    plans_and_runs(gradloom)
