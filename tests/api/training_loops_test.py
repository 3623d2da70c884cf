"""Compiles and runs every program of docs/training-loops.md, in one folder with the models that they name.

Arguments: the page, the archive, housing_mlp.onnx.
"""
import os
import shutil
import sys
import tempfile

import numpy as np
import onnx
import onnx.parser
from onnx import numpy_helper

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import page_programs  # noqa: E402

# Models by file: their graph, and the shapes of their weights, which are drawn at random. Biases are zeros at first.
MODELS = {
    "actor_critic.onnx": ("""actor_critic (float[N, 7] cell) => (float[N, 2] logits, float[N, 1] value) {
        a = Gemm (cell, w, b)  h = Tanh (a)  logits = MatMul (h, actor)  value = MatMul (h, critic)
    }""", {"w": (7, 32), "b": (32,), "actor": (32, 2), "critic": (32, 1)}),
    "q.onnx": ("""q (float[N, 7] cell) => (float[N, 2] q) {
        a = Gemm (cell, w1, b1)  h = Relu (a)  q = Gemm (h, w2, b2)
    }""", {"w1": (7, 32), "b1": (32,), "w2": (32, 2), "b2": (2,)}),
    "generator.onnx": ("generator (float[N, 4] noise) => (float[N, 2] fake) { fake = Gemm (noise, w, b) }", {"w": (4, 2), "b": (2,)}),
    "critic.onnx": ("""critic (float[N, 2] x) => (float[N, 1] score) {
        a = Gemm (x, w1, b1)  h = LeakyRelu <alpha = 0.2> (a)  score = Gemm (h, w2, b2)
    }""", {"w1": (2, 32), "b1": (32,), "w2": (32, 1), "b2": (1,)}),
}


def save(path, graph, shapes, random):
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]>{graph}')
    for name, shape in shapes.items():
        values = random.normal(0, shape[0] ** -0.5, shape) if len(shape) > 1 else np.zeros(shape)
        model.graph.initializer.append(numpy_helper.from_array(values.astype(np.float32), name))
    onnx.save(model, path)


def main():
    page, archive, housing = (os.path.abspath(word) for word in sys.argv[1:])
    with open(page) as file:
        programs = page_programs.programs(file.read())
    assert len(programs) == 5, f"{len(programs)} programs on the page"
    with tempfile.TemporaryDirectory() as folder:
        sdk = page_programs.unpacked(archive, folder)
        shutil.copy(housing, folder)
        random = np.random.default_rng(1)
        for name, (graph, shapes) in MODELS.items():
            save(os.path.join(folder, name), graph, shapes, random)
        page_programs.run(programs, sdk, folder)


if __name__ == "__main__":
    main()
