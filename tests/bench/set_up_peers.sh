#!/bin/bash
# Creates Python environments for the peers of tests/bench, several GB: DIR/torch (PyTorch, JAX) and DIR/ort (the last release of
# onnxruntime-training).
#   set_up_peers.sh DIR
set -euo pipefail
folder=${1:?usage: set_up_peers.sh DIR}
mkdir -p "$folder"
python3 -m venv "$folder/torch"
"$folder/torch/bin/pip" install --quiet torch torchvision onnx onnxscript jax flax optax
python3 -m venv "$folder/ort"
"$folder/ort/bin/pip" install --quiet onnxruntime-training-cpu==1.19.2 'onnx==1.16.*' 'numpy<2'
echo "ready: python for torch_eager, torch_compile, jax_train: $folder/torch/bin/python; for ort_training: $folder/ort/bin/python"
