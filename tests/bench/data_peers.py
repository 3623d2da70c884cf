#!/usr/bin/env python3
"""Compares how fast data is read with what Python programs use: tables with pandas and numpy, images with Pillow (which torchvision's
ImageFolder uses) and, where it is installed, torchvision itself.

python data_peers.py [--folder DIR] [--rounds 3] [tables] [images] [arrays]

Needs numpy, onnx and Pillow, and `bazel build //:gradloom`; pandas and torchvision are used if they are there. Files are made in DIR (a temporary
folder) and are in the page cache. A cell is CPU time of all threads, the least of the rounds, which take turns: per core, it is the rate
of one. Images of both are decoded, scaled to cover 224 x 224, cropped, flipped at random and normalized; those of 32 x 32 are PNG files
and are padded, cropped and flipped at random."""
import argparse
import os
import pathlib
import sys
import tempfile
import time

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "python"))
os.environ.setdefault("GRADLOOM_LIBRARY", str(ROOT / "bazel-bin/tools/api/libgradloom.so"))
os.environ.setdefault("GRADLOOM_HEADER", str(ROOT / "include/gradloom/gradloom_c.h"))
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def plan(shape, classes=10):
    """Of a model that reads such samples."""
    import gradloom
    from onnx import TensorProto, helper
    size = int(np.prod(shape))
    weights = helper.make_tensor("w", TensorProto.FLOAT, [size, classes], np.zeros(size * classes, np.float32))
    nodes = [helper.make_node("Flatten", ["x"], ["f"]), helper.make_node("MatMul", ["f", "w"], ["out"])]
    graph = helper.make_graph(nodes, "flat", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", *shape])],
                              [helper.make_tensor_value_info("out", TensorProto.FLOAT, ["batch", classes])], [weights])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return gradloom.compile(model, loss="cross_entropy(out, y)", optimizer="sgd", lr=0.01, batch=64, evaluate=False, predict=False)


def least(rounds, runs):
    """The least CPU seconds of each run; they take turns."""
    seconds = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            begin = time.process_time()
            run()
            seconds[name].append(time.process_time() - begin)
    return {name: min(all) for name, all in seconds.items()}


def report(what, amount, unit, seconds):
    ours = seconds.pop("gradloom")
    peers = "; ".join(f"{name} {amount / value:,.0f} (ratio {value / ours:.2f})" for name, value in seconds.items())
    print(f"| {what} | {unit} | {amount / ours:,.0f} | {peers} |", flush=True)


def tables(folder, rounds):
    import gradloom
    rng, columns, rows = np.random.default_rng(0), 28, 100_000
    path = folder / "table.csv"
    values = rng.standard_normal((rows, columns)).astype(np.float32)
    with open(path, "w") as file:
        file.write(",".join(f"p{i}" for i in range(columns)) + ",label\n")
        for row, label in zip(values, rng.integers(0, 10, rows)):
            file.write(",".join(map(repr, map(float, map(str, row)))) + f",{label}\n")
    of = plan((columns,))
    runs = {"gradloom": lambda: gradloom.Dataset(path, of, columns={"x": "p0..p27", "y": "label"}),
            "numpy.loadtxt": lambda: np.loadtxt(path, delimiter=",", skiprows=1, dtype=np.float32)}
    try:
        import pandas
        runs["pandas.read_csv"] = lambda: pandas.read_csv(path)
    except ImportError:
        pass
    report(f"table of {columns + 1} columns", path.stat().st_size / 1e6, "MB/s per core", least(rounds, runs))


def write_images(folder, count, size, kind):
    from PIL import Image
    rng = np.random.default_rng(0)
    for i in range(count):
        path = folder / f"class{i % 10}" / f"{i}.{kind}"
        path.parent.mkdir(parents=True, exist_ok=True)
        # Smooth shapes with some noise, which compress like photographs.
        small = rng.integers(0, 256, (8, 8, 3)).astype(np.uint8)
        image = np.asarray(Image.fromarray(small).resize(size, Image.BICUBIC)).astype(np.int16) + rng.integers(-12, 13, (size[1], size[0], 3))
        Image.fromarray(image.clip(0, 255).astype(np.uint8)).save(path, **({"quality": 90} if kind == "jpg" else {}))
    return folder


def pillow_large(path, rng):
    from PIL import Image
    image = Image.open(path).convert("RGB")
    scale = 224 / min(image.size)
    image = image.resize((max(224, round(image.width * scale)), max(224, round(image.height * scale))), Image.BILINEAR)
    left, top = (image.width - 224) // 2, (image.height - 224) // 2
    image = image.crop((left, top, left + 224, top + 224))
    if rng.random() < 0.5:
        image = image.transpose(Image.FLIP_LEFT_RIGHT)
    values = np.asarray(image, dtype=np.float32) / np.float32(255)
    return ((values - np.float32(MEAN)) / np.float32(DEVIATION)).transpose(2, 0, 1)


def pillow_small(path, rng):
    from PIL import Image
    image = np.pad(np.asarray(Image.open(path).convert("RGB")), ((4, 4), (4, 4), (0, 0)))
    top, left = rng.integers(0, 9, 2)
    image = image[top:top + 32, left:left + 32]
    if rng.random() < 0.5:
        image = image[:, ::-1]
    values = image.astype(np.float32) / np.float32(255)
    return ((values - np.float32(MEAN)) / np.float32(DEVIATION)).transpose(2, 0, 1)


def with_torchvision(folder, steps):
    """A function that reads all images with torchvision's ImageFolder; None if it is not installed."""
    try:
        import torch
        from torchvision import datasets, transforms
    except ImportError:
        return None
    torch.set_num_threads(1)
    of = {"large": [transforms.Resize(224), transforms.CenterCrop(224)], "small": [transforms.RandomCrop(32, padding=4)]}[steps]
    data = datasets.ImageFolder(folder, transforms.Compose([*of, transforms.RandomHorizontalFlip(), transforms.ToTensor(),
                                                            transforms.Normalize(MEAN, DEVIATION)]))
    return lambda: [data[i] for i in range(len(data))]


def images(folder, rounds):
    import gradloom
    normalize = "normalize " + ",".join(map(str, MEAN)) + " " + ",".join(map(str, DEVIATION))
    for what, count, size, kind, shape, read, steps, transforms in (
            ("JPEG, 500 x 375 to 224 x 224", 400, (500, 375), "jpg", 224, pillow_large, "large", ["resize_crop", "random_flip"]),
            ("PNG, 32 x 32", 4000, (32, 32), "png", 32, pillow_small, "small", ["random_crop 4", "random_flip"])):
        place = write_images(folder / kind, count, size, kind)
        data = gradloom.Dataset(place, plan((3, shape, shape)), columns={"x": "images", "y": "labels"},
                                transforms={"x": [*transforms, "scale 1/255", normalize]})
        paths, rng = sorted(place.rglob("*." + kind)), np.random.default_rng(0)
        runs = {"gradloom": lambda: [None for _ in data.batches(64)], "Pillow": lambda: [read(path, rng) for path in paths]}
        if (other := with_torchvision(place, steps)) is not None:
            runs["torchvision"] = other
        report(what, count, "images/s per core", least(rounds, runs))


def arrays(folder, rounds):
    """Shuffled batches of rows in memory."""
    import gradloom
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((50_000, 3, 32, 32), dtype=np.float32), rng.integers(0, 10, 50_000)
    np.savez(folder / "arrays.npz", x=x, y=y)
    data = gradloom.Dataset(folder / "arrays.npz", plan((3, 32, 32)))

    def indexed():
        order = rng.permutation(len(x))
        for rows in np.array_split(order, len(order) // 64):
            x[rows], y[rows]

    report("shuffled batches of [50000,3,32,32] in memory", x.nbytes / 1e6, "MB/s per core",
           least(rounds, {"gradloom": lambda: [None for _ in data.batches(64)], "numpy indexing": indexed}))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("kinds", nargs="*", choices=["tables", "images", "arrays", []])
    a = parser.parse_args()
    sys.path.append(str(ROOT / "tests/bench/peers"))
    from run_all import cpu
    print(f"{cpu()}; {a.rounds} rounds; CPU time\n\n| data | unit | Gradloom | others |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for kind in a.kinds or ["tables", "images", "arrays"]:
            {"tables": tables, "images": images, "arrays": arrays}[kind](a.folder or pathlib.Path(folder), a.rounds)


if __name__ == "__main__":
    main()
