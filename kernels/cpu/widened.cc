// 16-bit operands on a machine that computes in 32 bits: they are widened, the float32 kernel runs, its results are rounded. One rounding
// for each result, as a kernel of 16-bit elements that sums in float32 has it.
#include <algorithm>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cpu/convert.h"
#include "kernels/cpu/families.h"
#include "kernels/cpu/parallel.h"
#include "runtime/base/checked.h"

namespace gradloom {
namespace {

constexpr int64_t kElementsPerThread = 1 << 15;

bool Is16Bit(const OperandType& operand) { return operand.dtype == DType::kFloat16 || operand.dtype == DType::kBfloat16; }

KernelCall Widened(const KernelCall& call) {
  KernelCall wide = call;
  for (auto* operands : {&wide.inputs, &wide.outputs}) {
    for (OperandType& operand : *operands) {
      if (Is16Bit(operand)) operand.dtype = DType::kFloat32;
    }
  }
  return wide;
}

const KernelRow* WideRow(const KernelCall& wide) { return ChooseKernel(DeviceKind::kCpu, wide); }

int64_t WideBytes(const OperandType& operand) { return AlignUp(operand.bytes() * 2, kAlignmentBytes); }

class WidenedKernel : public Kernel {
 public:
  explicit WidenedKernel(const KernelCall& call) : call_(call) {
    const KernelCall wide = Widened(call);
    kernel_ = MakeCpuKernel(*WideRow(wide), wide);
    inputs_.resize(call.inputs.size());
    outputs_.resize(call.outputs.size());
  }

  void Run(const void* const* inputs, void* const* outputs, void* scratch, void* stream) override {
    auto* at = static_cast<std::byte*>(scratch);
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const OperandType& operand = call_.inputs[i];
      inputs_[i] = inputs[i];
      if (!Is16Bit(operand)) continue;
      inputs_[i] = at;
      ForEachPart(operand, [&](int64_t begin, int64_t n) {
        LoadFloats(BestLoops(), operand.dtype, inputs[i], begin, n, reinterpret_cast<float*>(at) + begin);
      });
      at += WideBytes(operand);
    }
    for (size_t i = 0; i < outputs_.size(); ++i) {
      const bool wide = Is16Bit(call_.outputs[i]);
      outputs_[i] = wide ? at : outputs[i];
      if (wide) at += WideBytes(call_.outputs[i]);
    }
    kernel_->Run(inputs_.data(), outputs_.data(), at, stream);
    for (size_t i = 0; i < outputs_.size(); ++i) {
      const OperandType& operand = call_.outputs[i];
      if (!Is16Bit(operand)) continue;
      ForEachPart(operand, [&](int64_t begin, int64_t n) {
        StoreFloats(BestLoops(), operand.dtype, static_cast<const float*>(outputs_[i]) + begin, n, outputs[i], begin);
      });
    }
  }

 private:
  template <typename F>
  void ForEachPart(const OperandType& operand, const F& f) const {
    const int64_t elements = operand.layout.elements(operand.shape);
    ParallelRanges(elements, 16, ThreadsFor(elements, kElementsPerThread, call_.threads),
                   [&](int64_t begin, int64_t end) { f(begin, end - begin); });
  }

  KernelCall call_;
  std::unique_ptr<Kernel> kernel_;
  std::vector<const void*> inputs_;
  std::vector<void*> outputs_;
};

std::string Rejects(const KernelCall& call) {
  const auto any = [](const std::vector<OperandType>& operands) { return std::any_of(operands.begin(), operands.end(), Is16Bit); };
  if (!any(call.inputs) && !any(call.outputs)) return "no 16-bit operands";
  return WideRow(Widened(call)) == nullptr ? "no float32 kernel for these layouts" : "";
}

bool Prefers(KernelCall& call) {
  KernelCall wide = Widened(call);
  const KernelRow* const row = WideRow(wide);
  if (row == nullptr || row->prefers == nullptr || !row->prefers(wide)) return false;
  for (size_t i = 0; i < call.inputs.size(); ++i) call.inputs[i].layout = wide.inputs[i].layout;
  for (size_t i = 0; i < call.outputs.size(); ++i) call.outputs[i].layout = wide.outputs[i].layout;
  return true;
}

int64_t ScratchBytes(const KernelCall& call) {
  int64_t bytes = 0;
  for (const auto* operands : {&call.inputs, &call.outputs}) {
    for (const OperandType& operand : *operands) bytes += Is16Bit(operand) ? WideBytes(operand) : 0;
  }
  const KernelCall wide = Widened(call);
  const KernelRow* const row = WideRow(wide);
  return bytes + (row->scratch_bytes == nullptr ? 0 : row->scratch_bytes(wide));
}

// Operators that have fast float32 kernels; moves, conversions and the reference kernels take 16 bits themselves.
constexpr std::pair<std::string_view, std::string_view> kOperators[] = {
    {"Attention", ""},
    {"AttentionGrad", "gradloom"},
    {"AveragePool", ""},
    {"AveragePoolGrad", "gradloom"},
    {"BatchNormTrain", "gradloom"},
    {"BatchNormTrainGrad", "gradloom"},
    {"BatchNormalization", ""},
    {"Conv", ""},
    {"ConvGradInput", "gradloom"},
    {"ConvGradWeight", "gradloom"},
    {"ConvTranspose", ""},
    {"Gemm", ""},
    {"GlobalAveragePool", ""},
    {"GRU", ""},
    {"GroupNormGrad", "gradloom"},
    {"GroupNormalization", ""},
    {"GruGrad", "gradloom"},
    {"InstanceNormalization", ""},
    {"LSTM", ""},
    {"LayerNormGrad", "gradloom"},
    {"LayerNormalization", ""},
    {"LogSoftmax", ""},
    {"LstmGrad", "gradloom"},
    {"MatMul", ""},
    {"MaxPool", ""},
    {"MaxPoolGrad", "gradloom"},
    {"ReduceMax", ""},
    {"ReduceMean", ""},
    {"ReduceMin", ""},
    {"ReduceSum", ""},
    {"ReduceSumSquare", ""},
    {"Resize", ""},
    {"ResizeGrad", "gradloom"},
    {"RMSNormalization", ""},
    {"PadGrad", "gradloom"},
    {"RNN", ""},
    {"RmsNormGrad", "gradloom"},
    {"RnnGrad", "gradloom"},
    {"Softmax", ""},
};

struct Table {
  std::deque<std::string> names;  // a deque, because rows hold views of them
  std::vector<CpuKernel> kernels;

  Table() {
    for (const auto& [op, domain] : kOperators) {
      names.push_back("cpu.widened." + std::string(op));
      kernels.push_back(
          {.row = {.name = names.back(), .op = op, .domain = domain, .rejects = Rejects, .prefers = Prefers, .scratch_bytes = ScratchBytes},
           .make = MakeKernel<WidenedKernel>});
    }
  }
};

}  // namespace

std::span<const CpuKernel> CpuWidenedKernels() {
  static const Table table;
  return table.kernels;
}

}  // namespace gradloom
