// Data parallelism as tutorials show it: a linear model from 5 to 2 numbers, 100 shuffled samples, batches of 30, on the requested devices.
// Each device prints its part of a batch, then the caller prints the sizes of its input and output.
//
//   bazel run //models/data_parallel -- cpu:3
#include <algorithm>
#include <cstdio>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "compiler/compile.h"
#include "runtime/base/error.h"
#include "runtime/plan/device_spec.h"
#include "runtime/session/session.h"

namespace gradloom {
namespace {

constexpr int64_t kSamples = 100, kBatch = 30;

constexpr char kModel[] = R"(<ir_version: 10, opset_import: ["" : 17]>
linear (float[batch, 5] input) => (float[batch, 2] output)
<float[5, 2] weight = {0.1, -0.2, 0.3, 0.4, -0.5, 0.6, 0.7, -0.8, 0.9, 1.0}, float[2] bias = {0.5, -0.5}>
{
  output = Gemm (input, weight, bias)
})";

// The part of the entry's only feed and fetch that a rank's program has.
void PrintDevice(const Plan& plan, const Entry& entry, size_t rank) {
  const Program& program = plan.programs[static_cast<size_t>(entry.ranks[rank].program)];
  const auto input = std::find_if(program.buffers.begin(), program.buffers.end(), [](const Buffer& b) { return b.arena == Arena::kFeed; });
  const int output = FetchedBuffer(entry, rank, 0);
  if (entry.ranks[rank].shard_length == 0) {
    std::printf("  device %zu: no samples\n", rank);
    return;
  }
  std::printf("  device %zu: input size %s, output size %s\n", rank, input->shape.ToString().c_str(),
              program.buffers[static_cast<size_t>(output)].shape.ToString().c_str());
}

void Run(const std::string& spec) {
  const Model model = Model::FromText(kModel);
  CompileOptions options;
  options.recipe.devices = ParseDevices(spec).count;
  options.entries = {{EntryKind::kPredict, kBatch}, {EntryKind::kPredict, kSamples % kBatch}};
  Session session(std::make_shared<const Plan>(Compile(model, options)));
  std::printf("Let's use %d device%s!\n", options.recipe.devices, options.recipe.devices == 1 ? "" : "s");

  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> samples(static_cast<size_t>(kSamples * 5));
  for (float& value : samples) value = normal(random);
  std::vector<int64_t> order(static_cast<size_t>(kSamples));
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random);

  for (int64_t first = 0; first < kSamples; first += kBatch) {
    const int64_t size = std::min(kBatch, kSamples - first);
    Tensor input(DType::kFloat32, Shape{size, 5});
    for (int64_t i = 0; i < size; ++i) {
      std::copy_n(samples.begin() + order[static_cast<size_t>(first + i)] * 5, 5, input.as<float>().begin() + i * 5);
    }
    const auto outputs = session.Predict({{"input", input.view()}});
    const Entry& entry = session.plan().entries[static_cast<size_t>(session.plan().FindEntry(EntryKind::kPredict, size))];
    for (size_t rank = 0; rank < entry.ranks.size(); ++rank) PrintDevice(session.plan(), entry, rank);
    std::printf("outside: input size %s, output size %s\n", input.shape().ToString().c_str(),
                outputs.at("output").shape().ToString().c_str());
  }
}

}  // namespace
}  // namespace gradloom

int main(int argc, char** argv) {
  try {
    gradloom::Run(argc > 1 ? argv[1] : "cpu:3");
    return 0;
  } catch (const gradloom::Error& error) {
    std::fprintf(stderr, "%s\n", error.Describe().c_str());
    return gradloom::ExitCode(error.code());
  }
}
