"""Compiles and runs every program of docs/embedding.md, in order, in one folder with the files that they name, and then checks what they
wrote.

Arguments: the page, the archive, digits_cnn.onnx, housing_mlp.onnx, digits.csv.gz, boston.csv.
"""
import gzip
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile

import numpy as np
import onnxruntime
from safetensors.numpy import load_file

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import page_programs  # noqa: E402


def write_idx(path, array):
    with open(path, "wb") as file:
        file.write(struct.pack(">BBBB", 0, 0, 8, array.ndim) + struct.pack(">" + "i" * array.ndim, *array.shape) + array.astype(np.uint8).tobytes())


def main():
    page, sdk, digits_model, housing_model, digits, boston = (os.path.abspath(word) for word in sys.argv[1:])
    with open(page) as file:
        text = file.read()
    programs = page_programs.programs(text)
    commands = re.findall(r"^```sh\n(.*?)^```", text, re.M | re.S)
    assert len(commands) == 2 and commands[0].startswith("bazel build //:dist "), commands
    assert len(programs) == 7, f"{len(programs)} programs on the page"
    with gzip.open(digits, "rt") as file:
        table = np.loadtxt(file, delimiter=",", skiprows=1)
    images, labels = table[:, :64].reshape(-1, 8, 8), table[:, 64]
    with tempfile.TemporaryDirectory() as folder:
        sdk = page_programs.unpacked(sdk, folder)
        shutil.copy(digits_model, os.path.join(folder, "mnist_cnn.onnx"))
        shutil.copy(housing_model, folder)
        shutil.copy(boston, folder)
        os.mkdir(os.path.join(folder, "mnist"))
        write_idx(os.path.join(folder, "mnist", "train-images-idx3-ubyte"), images)
        write_idx(os.path.join(folder, "mnist", "train-labels-idx1-ubyte"), labels)
        page_programs.run(programs, sdk, folder)
        older = subprocess.run(["g++", "-std=c++17", "-fsyntax-only", f"-I{sdk}/include", os.path.join(folder, "p1.cpp")], capture_output=True,
                               text=True)
        assert older.returncode != 0 and "gradloom.h needs C++20" in older.stderr, older.stderr
        # The page's compile command, after the build of the archive.
        shutil.copy(os.path.join(folder, "p1.cpp"), os.path.join(folder, "train.cc"))
        subprocess.run(["bash", "-euc", commands[0].split("\n", 1)[1]], cwd=folder, env={**os.environ, "dir": sdk}, check=True)
        subprocess.run([os.path.join(folder, "train")], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        # The library without the compiler links with the same programs.
        if shutil.which("pkg-config"):
            shutil.copy(os.path.join(folder, "p1.cpp"), os.path.join(folder, "program.cc"))
            subprocess.run(["bash", "-euc", commands[1]], cwd=folder, env={**os.environ, "dir": sdk}, check=True)
            needed = subprocess.run(["readelf", "-d", os.path.join(folder, "program")], capture_output=True, text=True, check=True).stdout
            assert "[libgradloom_runtime.so]" in needed and "[libgradloom.so]" not in needed, needed
        logits = onnxruntime.InferenceSession(os.path.join(folder, "trained.onnx")).run(
            ["logits"], {"image": images.reshape(-1, 1, 8, 8).astype(np.float32)})[0]
        right = (logits.argmax(1) == labels).mean()
        print(f"{right:.3f} of the digits are told right after three epochs")
        assert right > 0.8
        for name in ("ckpt", "housing.ckpt", "ort.ckpt"):
            assert load_file(os.path.join(folder, name)), name
        value = onnxruntime.InferenceSession(os.path.join(folder, "ort.onnx")).run(["value"], {"features": np.ones((4, 13), np.float32)})[0]
        assert abs(value - 3).max() < 1


if __name__ == "__main__":
    main()
