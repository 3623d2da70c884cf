// LSTM, GRU, RNN and their gradients with every option, without a library. The common options are served by recurrent_products.cc.
#include "kernels/cuda/rows/recurrent_scratch.h"
#include "kernels/cuda/rows/rows.h"

namespace gradloom {
namespace {

using namespace cuda_rows;  // NOLINT: for the functions that reject calls

std::string Rejects(const KernelCall& call) { return FirstOf({Layouts(call), NotFloating(call)}); }

// The gradient recomputes the forward pass and reads only the first `kInputs` inputs.
template <size_t kInputs>
std::string RejectsGradient(const KernelCall& call) {
  for (size_t i = kInputs; i < call.inputs.size(); ++i) {
    if (call.inputs[i].present()) return "what the forward pass kept";
  }
  return Rejects(call);
}

int64_t Scratch(const KernelCall& call) { return RecurrentScratch(call).elements * std::max<int64_t>(DTypeBytes(call.inputs[0].dtype), 4); }

constexpr KernelRow Row(std::string_view name, std::string_view op) {
  return {.name = name, .op = op, .domain = "", .device = DeviceKind::kCuda, .rejects = Rejects, .scratch_bytes = Scratch};
}

template <size_t kInputs>
constexpr KernelRow Gradient(std::string_view name, std::string_view op) {
  return {.name = name,
          .op = op,
          .domain = "gradloom",
          .device = DeviceKind::kCuda,
          .rejects = RejectsGradient<kInputs>,
          .scratch_bytes = Scratch};
}

constexpr KernelRow kRows[] = {
    Row("cuda.LSTM", "LSTM"), Gradient<11>("cuda.gradloom.LstmGrad", "LstmGrad"),
    Row("cuda.GRU", "GRU"),   Gradient<8>("cuda.gradloom.GruGrad", "GruGrad"),
    Row("cuda.RNN", "RNN"),   Gradient<8>("cuda.gradloom.RnnGrad", "RnnGrad"),
};

}  // namespace

std::span<const KernelRow> CudaRecurrentRows() { return kRows; }

}  // namespace gradloom
