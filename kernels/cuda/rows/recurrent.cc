// LSTM, GRU, RNN and their gradients.
#include "kernels/cuda/rows/recurrent_scratch.h"
#include "kernels/cuda/rows/rows.h"

namespace gradloom {
namespace {

using namespace cuda_rows;  // NOLINT: the reasons below are its

std::string Rejects(const KernelCall& call) { return FirstOf({Layouts(call), NotFloating(call)}); }

template <int64_t kGates, bool kGradient>
int64_t Scratch(const KernelCall& call) {
  return RecurrentScratch(call, kGates, kGradient).elements * std::max<int64_t>(DTypeBytes(call.inputs[0].dtype), 4);
}

constexpr KernelRow Row(std::string_view name, std::string_view op, std::string_view domain, int64_t (*scratch)(const KernelCall&)) {
  return {.name = name, .op = op, .domain = domain, .device = DeviceKind::kCuda, .rejects = Rejects, .scratch_bytes = scratch};
}

constexpr KernelRow kRows[] = {
    Row("cuda.LSTM", "LSTM", "", Scratch<4, false>), Row("cuda.gradloom.LstmGrad", "LstmGrad", "gradloom", Scratch<4, true>),
    Row("cuda.GRU", "GRU", "", Scratch<3, false>),   Row("cuda.gradloom.GruGrad", "GruGrad", "gradloom", Scratch<3, true>),
    Row("cuda.RNN", "RNN", "", Scratch<1, false>),   Row("cuda.gradloom.RnnGrad", "RnnGrad", "gradloom", Scratch<1, true>),
};

}  // namespace

std::span<const KernelRow> CudaRecurrentRows() { return kRows; }

}  // namespace gradloom
