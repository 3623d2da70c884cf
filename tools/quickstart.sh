#!/bin/bash
# Installs what the build needs on Debian 12, builds the command, and trains the two models of models/ on the CPU: handwritten digits and
# Boston housing. Ends with the locations of the trained .onnx files and of everything else.
set -euo pipefail
cd "$(dirname "$0")/.."
tools/install_deps.sh
bazel build --noshow_progress //tools/gradloom
gradloom=bazel-bin/tools/gradloom/gradloom
# Runs are never overwritten: each call has a folder of its own.
out="${1:-runs/quickstart-$(date +%Y%m%d-%H%M%S)}"

"$gradloom" train models/digits_cnn.onnx --name digits --out "$out" \
  --data models/data/digits.csv.gz --map image=p0..p63 --map label=label --transform 'image=scale 1/16' --eval-split 20% \
  --loss 'cross_entropy(logits, label)' --metric accuracy --optimizer adamw --lr 0.01 --schedule one_cycle \
  --batch 64 --epochs 30 --seed 1

"$gradloom" train models/housing_mlp.onnx --name housing --out "$out" \
  --data models/data/boston.csv --map features=CRIM..LSTAT --map target=MEDV --transform 'features=standardize' --eval-split 20% \
  --loss 'mse(value, target)' --metric rmse --optimizer adam --lr 0.01 --batch 128 --epochs 100 --seed 1

echo "trained models: $out/digits/export/model.onnx  $out/housing/export/model.onnx   (with their runs, weights and metrics beside them)"
