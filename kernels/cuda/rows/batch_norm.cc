// Batch normalization in training and inference, in one operator, or in two around the sums of several devices.
#include "kernels/cuda/rows/batch_norm.h"

#include <string>
#include <vector>

#include "kernels/cuda/rows/rows.h"
#include "kernels/cuda/rows/slices.h"

namespace gradloom {
namespace {

using namespace cuda_rows;  // NOLINT: for the functions that reject calls

template <int kX>
std::string Rejects(const KernelCall& call) {
  const int rank = call.inputs[kX].shape.rank();
  if (rank < 2) return "rank below 2";
  return FirstOf({ChannelOrders(call, rank), NotFloating(call, kX)});
}

// Operators on per-channel numbers only: input 1 has the type of their results.
std::string RejectsVectors(const KernelCall& call) { return FirstOf({Layouts(call), NotFloating(call, 1)}); }

// The records of all parts, then at most four numbers per channel of the arithmetic type, or eight of float32.
template <int kX>
int64_t Scratch(const KernelCall& call) {
  const auto s = cuda::Slices::OfChannels(call.inputs[kX]);
  return static_cast<int64_t>(sizeof(double)) * (s.records() + 4 * s.slices);
}

constexpr Aliasing kInPlace[] = {{0, 0}};
constexpr Aliasing kGradInPlace[] = {{0, 0}, {0, 1}};
// The first pass reads what the masked gradient is made of, the second one that and x, or the gradient and x.
constexpr Aliasing kMaskedInPlace[] = {{3, 0}, {3, 1}, {0, 0}, {0, 1}, {0, 2}, {0, 3}, {3, 2}};

struct Row {
  std::string_view name, op, domain;
  std::string (*rejects)(const KernelCall&);
  std::span<const Aliasing> may_alias = {};
  int64_t (*scratch_bytes)(const KernelCall&) = nullptr;

  constexpr operator KernelRow() const {
    return {.name = name,
            .op = op,
            .domain = domain,
            .device = DeviceKind::kCuda,
            .rejects = rejects,
            .may_alias = may_alias,
            .scratch_bytes = scratch_bytes};
  }
};

constexpr KernelRow kRows[] = {
    Row{"cuda.BatchNormalization", "BatchNormalization", "", Rejects<0>, kInPlace, Scratch<0>},
    Row{"cuda.gradloom.BatchNormTrain", "BatchNormTrain", "gradloom", Rejects<0>, kInPlace, Scratch<0>},
    Row{"cuda.gradloom.BatchNormLine", "BatchNormLine", "gradloom", Rejects<0>, {}, Scratch<0>},
    Row{"cuda.gradloom.BatchNormTrainGrad", "BatchNormTrainGrad", "gradloom", Rejects<1>, kGradInPlace, Scratch<1>},
    Row{"cuda.gradloom.MaskedBatchNormGrad", "MaskedBatchNormGrad", "gradloom", Rejects<3>, kMaskedInPlace, Scratch<3>},
    Row{"cuda.gradloom.BatchNormSums", "BatchNormSums", "gradloom", Rejects<0>, {}, Scratch<0>},
    Row{"cuda.gradloom.BatchNormStatistics", "BatchNormStatistics", "gradloom", RejectsVectors},
    Row{"cuda.gradloom.BatchNormApply", "BatchNormApply", "gradloom", Rejects<0>, kInPlace, Scratch<0>},
    Row{"cuda.gradloom.BatchNormGradSums", "BatchNormGradSums", "gradloom", Rejects<1>, {}, Scratch<1>},
    Row{"cuda.gradloom.BatchNormGradApply", "BatchNormGradApply", "gradloom", Rejects<1>, kGradInPlace, Scratch<1>},
    Row{"cuda.gradloom.BatchNormGradParameters", "BatchNormGradParameters", "gradloom", RejectsVectors},
};

}  // namespace

std::span<const KernelRow> CudaBatchNormRows() { return kRows; }

std::vector<KernelWork> WorkOfBatchNorm(const KernelCall& call) {
  const std::string& op = call.op;
  const auto bytes = [](const std::vector<OperandType>& operands, std::initializer_list<size_t> numbers) {
    int64_t sum = 0;
    for (size_t i : numbers) sum += i < operands.size() ? operands[i].bytes() : 0;
    return static_cast<double>(sum);
  };
  const auto has = [&](size_t output) { return output < call.outputs.size() && call.outputs[output].present(); };
  if (op == "BatchNormStatistics" || op == "BatchNormGradParameters")
    return {{1, 0, bytes(call.inputs, {0, 1}) + bytes(call.outputs, {0, 1, 2})}};

  const bool masked = op == "MaskedBatchNormGrad", gradient = op.find("Grad") != std::string::npos;
  const size_t x = masked ? 3 : gradient ? 1 : 0;
  const auto slices = cuda::Slices::OfChannels(call.inputs[x]);
  const double elements = static_cast<double>(slices.elements());
  // Numbers per channel, and the records of sums, are few.
  const double channels = static_cast<double>(slices.slices) * 4 * sizeof(double);
  const double records = static_cast<double>(slices.records()) * sizeof(double);
  std::vector<KernelWork> work;
  const bool sums = !(op == "BatchNormApply" || op == "BatchNormGradApply" ||
                      (op == "BatchNormalization" && call.attributes.Int("training_mode", 0) != 1));
  if (sums) {
    const double read = bytes(call.inputs, {0}) + (gradient ? bytes(call.inputs, {1}) : 0) + (masked ? bytes(call.inputs, {2, 3}) : 0);
    work.push_back({1, 4 * elements, read + (masked ? bytes(call.outputs, {3}) : 0) + records});
  }
  work.push_back({1, 0, channels + (sums ? records : 0)});
  // The second pass reads x and the gradient, which has the bytes of x if the first pass has written it.
  const bool applies = has(0) && !(op == "BatchNormLine" || op.ends_with("Sums"));
  if (applies) work.push_back({1, 4 * elements, bytes(call.inputs, {x}) * (gradient ? 2 : 1) + bytes(call.outputs, {0})});
  return work;
}

}  // namespace gradloom
