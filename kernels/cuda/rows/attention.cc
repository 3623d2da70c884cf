// Attention and its gradient without a library, for calls that the other attention kernels do not serve.
#include "kernels/cuda/rows/attention.h"

#include <algorithm>

#include "kernels/cuda/rows/rows.h"

namespace gradloom {
namespace {

using namespace cuda_rows;  // NOLINT: for the functions that reject calls

std::string Rejects(const KernelCall& call) { return FirstOf({Layouts(call), NotFloating(call)}); }

constexpr KernelRow Row(std::string_view name, std::string_view op, std::string_view domain) {
  return {
      .name = name, .op = op, .domain = domain, .device = DeviceKind::kCuda, .rejects = Rejects, .scratch_bytes = AttentionScratchBytes};
}

constexpr KernelRow kRows[] = {
    Row("cuda.Attention", "Attention", ""),
    Row("cuda.gradloom.AttentionGrad", "AttentionGrad", "gradloom"),
    Row("cuda.gradloom.AttentionDropout", "AttentionDropout", "gradloom"),
    Row("cuda.gradloom.AttentionDropoutGrad", "AttentionDropoutGrad", "gradloom"),
};

}  // namespace

// Three numbers per query, in the arithmetic type (RowStatistics in attention.cuh).
int64_t AttentionScratchBytes(const KernelCall& call) {
  const Shape& q = call.inputs[0].shape;
  const int64_t queries = q[0] * q[1] * (q.rank() == 3 ? call.attributes.Int("q_num_heads", 0) : q[2]);
  return 3 * queries * std::max<int64_t>(DTypeBytes(call.inputs[0].dtype), 4);
}

std::span<const KernelRow> CudaAttentionRows() { return kRows; }

}  // namespace gradloom
