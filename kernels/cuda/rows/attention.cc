// Attention and its gradient without a library, for calls that the other attention kernels do not serve.
#include "kernels/cuda/rows/attention.h"

#include <algorithm>

#include "kernels/cuda/rows/rows.h"

namespace gradloom {
namespace {

using namespace cuda_rows;  // NOLINT: for the functions that reject calls

std::string Rejects(const KernelCall& call) { return FirstOf({Layouts(call), NotFloating(call), RejectsPackedOperands(call)}); }

constexpr KernelRow Row(std::string_view name, std::string_view op, std::string_view domain) {
  return {
      .name = name, .op = op, .domain = domain, .device = DeviceKind::kCuda, .rejects = Rejects, .scratch_bytes = AttentionScratchBytes};
}

constexpr KernelRow kRows[] = {
    Row("cuda.Attention", "Attention", ""),
    Row("cuda.gradloom.Attention", "Attention", "gradloom"),
    Row("cuda.gradloom.AttentionTraining", "AttentionTraining", "gradloom"),
    Row("cuda.gradloom.AttentionGrad", "AttentionGrad", "gradloom"),
    Row("cuda.gradloom.AttentionDropout", "AttentionDropout", "gradloom"),
    Row("cuda.gradloom.AttentionDropoutGrad", "AttentionDropoutGrad", "gradloom"),
};

}  // namespace

// Three numbers per query, in the arithmetic type (RowStatistics in attention.cuh).
int64_t AttentionScratchBytes(const KernelCall& call) {
  const AttentionForm form = AttentionFormOf(call);
  return 3 * form.batch * form.q.heads * form.q.length * std::max<int64_t>(DTypeBytes(call.inputs[0].dtype), 4);
}

DnnTensor AttentionTensor(const AttentionVectors& vectors, int64_t batch) {
  return {
      {batch, vectors.heads, vectors.length, vectors.size}, {vectors.sample_stride, vectors.head_stride, vectors.stride, 1}, vectors.first};
}

std::span<const KernelRow> CudaAttentionRows() { return kRows; }

}  // namespace gradloom
