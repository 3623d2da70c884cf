// Random tensors and dropout.
#include "kernels/cuda/rows/rows.h"
#include "kernels/cuda/rows/scratch.h"

namespace gradloom {
namespace {

using namespace cuda_rows;  // NOLINT: for the functions that reject calls

std::string NotFloatingOut(const KernelCall& call) {
  return IsFloating(call.outputs[0].dtype) ? "" : "random numbers that are not floating-point";
}

std::string RejectsGenerator(const KernelCall& call) { return FirstOf({Layouts(call), NotFloatingOut(call)}); }

std::string RejectsFrom(const KernelCall& call) { return FirstOf({Layouts(call), NotFloating(call)}); }

std::string RejectsMultinomial(const KernelCall& call) {
  return FirstOf({Layouts(call), NotFloating(call), IsInteger(call.outputs[0].dtype) ? "" : "classes that are not integers"});
}

// The running sums of each row, and the sums of the runs of a block's threads, in double.
int64_t RunningSums(const KernelCall& call) {
  const Shape& scores = call.inputs[0].shape;
  return 8 * scores[0] * (scores[1] + kMaxThreads);
}

// Each element is overwritten only by the thread that alone reads it.
constexpr Aliasing kInPlace[] = {{0, 0}};

constexpr KernelRow Drawn(std::string_view name, std::string_view op, std::string_view domain) {
  return {.name = name, .op = op, .domain = domain, .device = DeviceKind::kCuda, .rejects = RejectsGenerator};
}

constexpr KernelRow Bernoulli(std::string_view name, std::string_view domain) {
  return {.name = name, .op = "Bernoulli", .domain = domain, .device = DeviceKind::kCuda, .rejects = RejectsFrom};
}

constexpr KernelRow Multinomial(std::string_view name, std::string_view domain) {
  return {.name = name,
          .op = "Multinomial",
          .domain = domain,
          .device = DeviceKind::kCuda,
          .rejects = RejectsMultinomial,
          .scratch_bytes = RunningSums};
}

constexpr KernelRow kRows[] = {
    {.name = "cuda.gradloom.Dropout",
     .op = "Dropout",
     .domain = "gradloom",
     .device = DeviceKind::kCuda,
     .rejects = RejectsFrom,
     .may_alias = kInPlace},
    Drawn("cuda.gradloom.RandomUniform", "RandomUniform", "gradloom"),
    Drawn("cuda.gradloom.RandomNormal", "RandomNormal", "gradloom"),
    Drawn("cuda.RandomUniform", "RandomUniform", ""),
    Drawn("cuda.RandomUniformLike", "RandomUniformLike", ""),
    Drawn("cuda.RandomNormal", "RandomNormal", ""),
    Drawn("cuda.RandomNormalLike", "RandomNormalLike", ""),
    Bernoulli("cuda.gradloom.Bernoulli", "gradloom"),
    Bernoulli("cuda.Bernoulli", ""),
    Multinomial("cuda.gradloom.Multinomial", "gradloom"),
    Multinomial("cuda.Multinomial", ""),
};

}  // namespace

std::span<const KernelRow> CudaRandomRows() { return kRows; }

}  // namespace gradloom
