#include "tests/onnx/baked_training.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "compiler/compile.h"
#include "runtime/base/philox.h"
#include "runtime/session/session.h"

namespace gradloom {

Tensor Random(const Shape& shape, uint64_t seed) {
  Tensor tensor(DType::kFloat32, shape);
  for (int64_t i = 0; i < tensor.elements(); ++i) {
    const PhiloxBlock block = Philox({static_cast<uint32_t>(i), 0, 0, 0}, NodeKey(seed, 0, 0));
    tensor.as<float>()[static_cast<size_t>(i)] = static_cast<float>(block[0]) * 0x1p-31f - 1;
  }
  return tensor;
}

ImportedGraph At(const std::string& graph, int64_t batch) {
  return Import(Model::FromText("<ir_version: 10, opset_import: [\"\" : 17]>\n" + graph), {.batch = batch});
}

Trained Train(const Model& model, const std::vector<int64_t>& sizes, int devices, const std::vector<int64_t>& first,
              const std::vector<std::string>& trainable) {
  CompileOptions options;
  options.recipe.trainable = trainable;
  for (const int64_t size : first) options.entries.push_back({EntryKind::kStep, size});
  options.recipe.losses = {{.type = "mse", .output = "z", .target = "y"}};
  options.recipe.optimizer.type = "momentum";
  options.recipe.optimizer.momentum = 0.9;
  options.recipe.schedule.lr = 0.1;
  options.recipe.devices = devices;
  for (const int64_t size : sizes) {
    const EntryRequest request{EntryKind::kStep, size};
    if (std::find(options.entries.begin(), options.entries.end(), request) == options.entries.end()) options.entries.push_back(request);
  }
  const auto plan = std::make_shared<const Plan>(Compile(model, options));
  Session session(plan);
  Trained trained{.losses = {}, .parameters = {}, .info = plan->model};
  for (const int64_t size : sizes) {
    std::map<std::string, Tensor> columns;
    Feeds feeds;
    for (const Feed& feed : plan->entries[static_cast<size_t>(plan->FindEntry(EntryKind::kStep, size))].feeds) {
      const Tensor& column = columns.emplace(feed.name, Random(feed.shape, trained.losses.size() + feed.name[0])).first->second;
      feeds.emplace(feed.name, column.view());
    }
    trained.losses.push_back(session.Step(feeds).loss);
  }
  for (const StateTensor& state : plan->state) {
    if (state.kind == StateKind::kParameter) trained.parameters.emplace(state.name, session.Get(state.name));
  }
  return trained;
}

}  // namespace gradloom
