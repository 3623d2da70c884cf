// export_cases [--inline-bytes N] OUT CASE...
//
// Trains each recorded case for a few batches, exports the model to OUT/NAME.onnx, and writes OUT/NAME.npz: the inputs of a batch
// ("input/NAME") and Gradloom's own predictions for them ("output/NAME"). The batch size is the one that the file declares, otherwise that
// of the case's first batch. With --inline-bytes, larger models keep their weights in an external file. Prints a line for each case that
// fails, and exits with code 11 if any does.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "compiler/compile.h"
#include "compiler/onnx/export/export.h"
#include "runtime/data/npz.h"
#include "runtime/session/session.h"
#include "tests/conformance/run_case.h"
#include "tools/api/compiling_source.h"

namespace gradloom {
namespace {

namespace fs = std::filesystem;

constexpr int kBatches = 3;

// The batch size that the file fixes, or 0.
int64_t DeclaredBatch(const Model& model) {
  try {
    return Import(model).batch;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kConfig) throw;
    return 0;
  }
}

// Resizes a tensor to `extent` samples along `axis`, repeating its samples if it has fewer.
Tensor WithExtent(const TensorView& from, int axis, int64_t extent) {
  Shape shape = from.shape;
  if (axis < 0 || shape[axis] == extent) return Tensor::Copy(from);
  int64_t outer = 1, inner = DTypeBytes(from.dtype);
  for (int i = 0; i < shape.rank(); ++i) (i < axis ? outer : inner) *= i == axis ? 1 : shape[i];
  const int64_t have = shape[axis];
  shape[axis] = extent;
  Tensor to(from.dtype, shape);
  for (int64_t o = 0; o < outer; ++o) {
    for (int64_t i = 0; i < extent; ++i) {
      std::memcpy(static_cast<char*>(to.data()) + (o * extent + i) * inner,
                  static_cast<const char*>(from.data) + (o * have + i % have) * inner, static_cast<size_t>(inner));
    }
  }
  return to;
}

void ExportCase(const TrainingCase& recorded, const std::string& stem, const ExportOptions& export_options) {
  const Model model = Model::Load(recorded.model_path);
  const int steps = std::min<int>(recorded.steps(), kBatches * static_cast<int>(std::max<int64_t>(recorded.recipe.accumulate, 1)));
  const int64_t declared = DeclaredBatch(model);
  CompileOptions options;
  options.recipe = recorded.recipe;
  options.import = ReadingOf(recorded, model);
  std::vector<int64_t> sizes(recorded.batch_sizes.begin(), recorded.batch_sizes.begin() + steps);
  std::sort(sizes.begin(), sizes.end(), std::greater<>());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  for (int64_t size : sizes) options.entries.push_back({EntryKind::kStep, size});
  options.entries.push_back({EntryKind::kPredict, declared > 0 ? declared : recorded.batch_sizes.front()});
  const auto plan = std::make_shared<const Plan>(Compile(model, options));
  Session session(plan, {.source = std::make_shared<CompilingSource>(model, options), .executor = {}});
  for (int step = 0; step < steps; ++step) session.Step(FeedsOfStep(recorded, step));

  const Feeds first = FeedsOfStep(recorded, 0);
  std::map<std::string, Tensor> arrays, inputs;
  Feeds feeds;
  for (const Feed& feed : plan->entries[static_cast<size_t>(plan->FindEntry(EntryKind::kPredict, options.entries.back().batch))].feeds) {
    const auto found = first.find(feed.name);
    if (found == first.end()) throw Error(ErrorCode::kData, "the case feeds no '" + Escaped(feed.name) + "'");
    // For a batch size other than the case's, the extents are the file's. Otherwise they are the case's, which may have a second open axis
    // besides the batch (such as all words of several bags).
    const int axis = options.entries.back().batch == recorded.batch_sizes.front() ? -1 : feed.batch_axis;
    Tensor& input = inputs[feed.name] = WithExtent(found->second, axis, axis < 0 ? 0 : feed.shape[axis]);
    feeds.emplace(feed.name, input.view());
    arrays.emplace("input/" + feed.name, input);
  }
  for (auto& [name, output] : session.Predict(feeds)) arrays.emplace("output/" + name, std::move(output));
  std::map<std::string, Tensor> values;
  for (const StateTensor& state : plan->state) {
    if (state.kind == StateKind::kParameter || state.kind == StateKind::kStatistic)
      values.emplace(state.name, session.Get(session.TrainedState(state.name)));
  }
  ExportTrained(plan->model, values, stem + ".onnx", export_options);
  WriteNpz(stem + ".npz", arrays);
}

int Run(int argc, char** argv) {
  ExportOptions options;
  int first = 1;
  if (argc > 2 && std::strcmp(argv[1], "--inline-bytes") == 0) {
    options.inline_bytes = std::atoll(argv[2]);
    first = 3;
  }
  if (argc < first + 2) throw Error(ErrorCode::kConfig, "export_cases [--inline-bytes N] OUT CASE...");
  int failed = 0;
  for (int i = first + 1; i < argc; ++i) {
    const std::string name = fs::path(argv[i]).filename().string();
    try {
      ExportCase(ReadTrainingCase(argv[i]), (fs::path(argv[first]) / name).string(), options);
    } catch (const Error& error) {
      ++failed;
      std::printf("%s: %s\n", name.c_str(), error.Describe().c_str());
    }
  }
  return failed == 0 ? 0 : ExitCode(ErrorCode::kCheckFailed);
}

}  // namespace
}  // namespace gradloom

int main(int argc, char** argv) {
  try {
    return gradloom::Run(argc, argv);
  } catch (const gradloom::Error& error) {
    std::fprintf(stderr, "%s\n", error.Describe().c_str());
    return gradloom::ExitCode(error.code());
  }
}
