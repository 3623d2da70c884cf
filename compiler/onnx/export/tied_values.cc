#include "compiler/onnx/export/tied_values.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "compiler/onnx/edited_graph.h"
#include "compiler/onnx/matrix.h"
#include "compiler/onnx/model_file.h"
#include "runtime/base/error.h"

namespace gradloom {

TrainedValues WithTied(const ModelInfo& info, const TrainedValues& values) {
  TrainedValues all = values;
  std::map<std::string, std::string> sources;
  for (const TiedTensor& tied : info.tied) {
    const auto source = values.types.find(tied.source);
    if (source == values.types.end() || values.types.contains(tied.name)) continue;
    const Shape& shape = source->second.shape;
    if (shape.rank() != 2) throw Error(ErrorCode::kPlan, "'" + Escaped(tied.source) + "' is tied, but no matrix", Escaped(info.name, 1000));
    all.types.emplace(tied.name, TensorView{source->second.dtype, {shape[1], shape[0]}, nullptr});
    sources.emplace(tied.name, tied.source);
  }
  if (sources.empty()) return all;
  all.read = [read = values.read, sources = std::move(sources)](const std::string& name) {
    const auto source = sources.find(name);
    return source == sources.end() ? read(name) : Transposed(read(source->second));
  };
  return all;
}

void TieInGraph(const ModelInfo& info, onnx::ModelProto& model) {
  onnx::GraphProto& graph = *model.mutable_graph();
  std::vector<onnx::NodeProto> transposes;
  for (const TiedTensor& tied : info.tied) {
    auto& initializers = *graph.mutable_initializer();
    const auto named = [&](const auto& of) { return of.name() == tied.name; };
    const auto at = std::ranges::find_if(initializers, named);
    if (at == initializers.end()) {
      throw Error(ErrorCode::kUnsupported, "the file holds the weight '" + Escaped(tied.source) + "' a second time in a function or a node",
                  Escaped(info.name, 1000) + ", tensor '" + Escaped(tied.name) + "'", "export without --training");
    }
    initializers.erase(at);
    auto& inputs = *graph.mutable_input();
    inputs.erase(std::remove_if(inputs.begin(), inputs.end(), named), inputs.end());
    transposes.push_back(TransposeNode(tied.name + "/tied", tied.source, tied.name));
  }
  Prepend(std::move(transposes), graph);
}

}  // namespace gradloom
