#!/usr/bin/env python3
"""How training scales over devices: DenseNet-121 with 14 sigmoid outputs, binary cross entropy, Adam.

python densenet.py --cache DIR [--size 64] [--batch 8] [--images 160]

The setup of a published comparison of frameworks on chest X-rays (ilkarman/DeepLearningFrameworks, 2018), at a size for a small machine.
The batch and the learning rate are proportional to the number of devices. (a) Images are decoded from disk with random crops and flips,
with validation after each epoch. (b) The same number of samples is random data in memory. The images are synthetic: smooth random patterns
with 14 labels derived from their amplitudes, as PNG files. Then the plan for 224 x 224 and 64 samples per device is simulated on V100s and
shown next to the published minutes. The binary is bazel-bin/tools/gradloom/gradloom. Needs numpy and onnx."""
import argparse
import json
import os
import pathlib
import struct
import subprocess
import sys
import zlib

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

ROOT = pathlib.Path(__file__).resolve().parents[2]
GRADLOOM = ROOT / "bazel-bin/tools/gradloom/gradloom"
BLOCKS, GROWTH, CLASSES = (6, 12, 24, 16), 32, 14
# Five epochs of 341 steps with four times 64 samples. Minutes on one and four V100s, best of five frameworks.
PUBLISHED_SAMPLES = 5 * 341 * 256
PUBLISHED = {"from disk": {1: 27, 4: 8}, "in memory": {1: 25, 4: 7}}


class DenseNet:
    """Huang et al., "Densely Connected Convolutional Networks", 2017: table 1, DenseNet-121."""

    def __init__(self):
        self.random = np.random.default_rng(121)
        self.nodes, self.weights = [], []

    def weight(self, name, array):
        self.weights.append(numpy_helper.from_array(np.asarray(array, np.float32), name))
        return name

    def node(self, op, inputs, name, **attributes):
        self.nodes.append(helper.make_node(op, inputs, [name], name=name + "_node", **attributes))
        return name

    def conv(self, x, name, before, after, size, stride=1):
        w = self.weight(name + ".weight", self.random.normal(0, np.sqrt(2 / (before * size * size)), (after, before, size, size)))
        return self.node("Conv", [x, w], name, kernel_shape=[size] * 2, strides=[stride] * 2, pads=[size // 2] * 4)

    def norm_relu(self, x, name, channels):
        fill = {"weight": np.ones, "bias": np.zeros, "running_mean": np.zeros, "running_var": np.ones}
        x = self.node("BatchNormalization", [x] + [self.weight(f"{name}.{key}", make(channels)) for key, make in fill.items()], name)
        return self.node("Relu", [x], name + "_relu")

    def write(self, path, size):
        x = self.conv("image", "conv0", 3, 64, 7, 2)
        x = self.node("MaxPool", [self.norm_relu(x, "norm0", 64)], "pool0", kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
        channels = 64
        for b, layers in enumerate(BLOCKS):
            for i in range(layers):
                name = f"block{b + 1}.layer{i + 1}"
                y = self.conv(self.norm_relu(x, name + ".norm1", channels), name + ".conv1", channels, 4 * GROWTH, 1)
                y = self.conv(self.norm_relu(y, name + ".norm2", 4 * GROWTH), name + ".conv2", 4 * GROWTH, GROWTH, 3)
                x = self.node("Concat", [x, y], name, axis=1)
                channels += GROWTH
            if b + 1 < len(BLOCKS):
                name = f"transition{b + 1}"
                x = self.conv(self.norm_relu(x, name + ".norm", channels), name + ".conv", channels, channels // 2, 1)
                x = self.node("AveragePool", [x], name, kernel_shape=[2, 2], strides=[2, 2])
                channels //= 2
        x = self.node("Flatten", [self.node("GlobalAveragePool", [self.norm_relu(x, "norm5", channels)], "mean")], "features")
        bound = 1 / np.sqrt(channels)
        w = self.weight("classifier.weight", self.random.uniform(-bound, bound, (CLASSES, channels)))
        x = self.node("Gemm", [x, w, self.weight("classifier.bias", np.zeros(CLASSES))], "logits", transB=1)
        self.node("Sigmoid", [x], "findings")
        graph = helper.make_graph(self.nodes, "densenet121", [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["N", 3, size, size])],
                                  [helper.make_tensor_value_info("findings", TensorProto.FLOAT, ["N", CLASSES])], self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        onnx.checker.check_model(model, full_check=True)
        onnx.save(model, path)


def png(pixels):
    """An RGB image [height, width, 3] of bytes as a PNG file."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    height, width, _ = pixels.shape
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows, 6)) + chunk(b"IEND", b"")


def write_images(folder, count, size):
    """Patterns of 14 waves, with a label for each strong one."""
    random = np.random.default_rng(14)
    side = size * 264 // 224
    at = np.stack(np.meshgrid(np.arange(side), np.arange(side), indexing="ij"), -1) * (2 * np.pi / side)
    waves = np.cos(at @ random.integers(1, 8, (2, CLASSES)) + random.uniform(0, 6, CLASSES))
    folder.mkdir(parents=True, exist_ok=True)
    lines = ["file," + ",".join(f"finding{k}" for k in range(CLASSES))]
    for i in range(count):
        strength = random.normal(size=(CLASSES, 3))
        image = 128 + 12 * (waves @ strength) + random.normal(0, 8, (side, side, 3))
        (folder / f"{i:05}.png").write_bytes(png(np.clip(image, 0, 255).astype(np.uint8)))
        lines.append(f"{i:05}.png," + ",".join(str(int(s > 1)) for s in strength.sum(1)))
    (folder / "list.csv").write_text("\n".join(lines) + "\n")


def gradloom(*words):
    done = subprocess.run([str(GRADLOOM), *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"gradloom {' '.join(map(str, words))}: exit {done.returncode}\n{done.stderr[-3000:]}")
    return done.stdout


def train(arguments, model, devices, data, runs):
    out = gradloom("train", model, "--loss", "bce", "--optimizer", "adam", "--lr", 1e-4 * devices, "--batch", arguments.batch * devices,
                   "--epochs", arguments.epochs, "--devices", f"cpu:{devices}" if devices > 1 else "cpu", "--report", "json", "--out", runs,
                   "--save-every", "never", "--progress", "plain", "--seed", 1, *data)
    report = json.loads(out.strip().split("\n")[-1])
    samples = arguments.images * 4 // 5 * arguments.epochs
    return samples / report["train_s"], report["waited_s"] / report["train_s"], report


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=pathlib.Path, required=True)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--batch", type=int, default=8, help="of a device")
    parser.add_argument("--images", type=int, default=160, help="a fifth of them for validation")
    parser.add_argument("--epochs", type=int, default=2)
    arguments = parser.parse_args()
    cache = arguments.cache / f"densenet{arguments.size}"
    cache.mkdir(parents=True, exist_ok=True)
    model = cache / "densenet121.onnx"
    DenseNet().write(model, arguments.size)
    write_images(cache / "images", arguments.images, arguments.size)
    labels = "finding0..finding13"
    from_disk = ["--data", cache / "images/list.csv", "--map", "image=images:file", "--map", f"target={labels}", "--eval-split", "20%",
                 "--transform", "image=random_crop 4", "--transform", "image=random_flip", "--transform", "image=scale 1/255"]
    in_memory = ["--data", f"random:{arguments.images * 4 // 5}"]
    print(f"DenseNet-121, {arguments.size} x {arguments.size}, {arguments.batch} samples a device, {arguments.epochs} epochs of "
          f"{arguments.images * 4 // 5} samples, {os.cpu_count()} cores\n")
    print("| devices | data | samples/s | waiting for data | loss |\n|---|---|---|---|---|")
    for devices in (1, 2, 4):
        for name, data in (("from disk, with validation", from_disk), ("in memory", in_memory)):
            rate, waited, report = train(arguments, model, devices, data, cache / "runs")
            print(f"| {devices} | {name} | {rate:.1f} | {100 * waited:.1f} % | {report['train_loss']:.4f} |", flush=True)
    full = cache / "densenet121_224.onnx"
    DenseNet().write(full, 224)
    gradloom("compile", full, "--loss", "bce", "--optimizer", "adam", "--batch", 256, "--devices", "cpu:4", "-o", cache / "v100.plan")
    said = json.loads(gradloom("simulate", cache / "v100.plan", "--topology", ROOT / "models/clusters/v100.toml", "--devices", "1,2,4", "--json"))
    print("\n| V100s | predicted step, ms | predicted samples/s | predicted minutes | published, in memory | published, from disk |\n|---|---|---|---|---|---|")
    for line in said["simulations"][1:]:
        minutes = PUBLISHED_SAMPLES / line["samples_per_second"] / 60
        published = [f"{PUBLISHED[kind][line['devices']]} min" if line["devices"] in PUBLISHED[kind] else "" for kind in ("in memory", "from disk")]
        print(f"| {line['devices']} | {line['step_ms']:.0f} | {line['samples_per_second']:.0f} | {minutes:.1f} | {published[0]} | {published[1]} |")


if __name__ == "__main__":
    main()
