#include "compiler/onnx_loss.h"

#include <utility>

namespace gradloom {

OnnxLoss::OnnxLoss(Model model, std::map<std::string, int64_t> shapes)
    : model_(std::move(model)), shapes_(std::move(shapes)), hash_(model_.info().hash) {}

std::unique_ptr<Graph> OnnxLoss::For(const std::map<std::string, Shape>& known, int64_t batch) const {
  ImportOptions options;
  options.batch = batch;
  options.shapes = shapes_;
  options.inputs = known;
  return std::move(Import(model_, options).graph);
}

}  // namespace gradloom
