#include "compiler/onnx_loss.h"

#include <utility>

#include "compiler/onnx/import_counted.h"

namespace gradloom {

OnnxLoss::OnnxLoss(Model model, std::map<std::string, int64_t> shapes)
    : model_(std::move(model)), shapes_(std::move(shapes)), hash_(model_.hash()) {}

LossGraph::Instance OnnxLoss::For(const std::map<std::string, Input>& known, int64_t batch) const {
  ImportOptions options;
  options.batch = batch;
  options.shapes = shapes_;
  CountedInputs counted;
  for (const auto& [name, input] : known) {
    options.inputs.emplace(name, input.shape);
    for (const auto& [axis, count] : input.counts) counted[name][axis] = count;
  }
  CountedImport imported = ImportCounted(model_, options, counted);
  Instance made{std::move(imported.imported.graph)};
  for (const auto& [input, count] : imported.counts) made.counts.emplace(input, static_cast<ValueId>(count));
  return made;
}

}  // namespace gradloom
