// 16-bit operands on a machine with 32-bit arithmetic: operands are widened, the float32 kernel runs, and its results are rounded. Each
// result is rounded once, as in a kernel for 16-bit elements that sums in float32. Convolutions process as many samples at a time as stay
// in the L2 cache when widened.
#include <algorithm>
#include <deque>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "kernels/catalog/pointwise.h"
#include "kernels/cpu/convert.h"
#include "kernels/cpu/families.h"
#include "kernels/cpu/parallel.h"
#include "runtime/base/checked.h"

namespace gradloom {
namespace {

constexpr int64_t kElementsPerThread = 1 << 15;

bool Is16Bit(const OperandType& operand) { return Is16BitFloat(operand.dtype); }

// The size of the widened samples that are processed at a time.
constexpr int64_t kMaxBytes = 1 << 20;

// Whether the first dimension of an operand of a convolution is the batch: all tensors of images.
bool IsImage(const KernelCall& call, bool is_input, size_t i) {
  if (call.op == "ConvGradWeight") return is_input;
  return i == 0 && (call.op == "Conv" || call.op == "ConvGradInput");
}
bool IsImage(const KernelCall& call, const std::vector<OperandType>* operands, size_t i) {
  return IsImage(call, operands == &call.inputs, i);
}

// The number of samples that the float32 kernel processes at a time, a divisor of all; 0: the call is not divided.
int64_t SamplesAtOnce(const KernelCall& call) {
  int64_t samples = 0, elements = 0;
  for (const auto* operands : {&call.inputs, &call.outputs}) {
    for (size_t i = 0; i < operands->size(); ++i) {
      const OperandType& operand = (*operands)[i];
      if (!IsImage(call, operands, i)) continue;
      const Layout& layout = operand.layout;
      if (operand.shape.rank() == 0 || !layout.blocks.empty() || (!layout.order.empty() && layout.order[0] != 0)) return 0;
      if (samples != 0 && samples != operand.shape[0]) return 0;
      samples = operand.shape[0];
      elements += operand.shape.elements();
    }
  }
  if (samples == 0 || elements == 0 || (call.op == "ConvGradWeight" && !Is16Bit(call.outputs[0]))) return 0;
  int64_t samples_at_once = std::max<int64_t>(kMaxBytes / (elements / samples * static_cast<int64_t>(sizeof(float))), 1);
  // The gradients of weights are summed over the parts, which must cost less than the division saves.
  if (call.op == "ConvGradWeight") samples_at_once = std::max(samples_at_once, samples * 4 * call.outputs[0].shape.elements() / elements);
  if (samples_at_once >= samples) return 0;
  while (samples % samples_at_once != 0) --samples_at_once;
  return samples_at_once;
}

// The call of the float32 kernel.
KernelCall Widened(const KernelCall& call) {
  KernelCall wide = call;
  const int64_t samples = SamplesAtOnce(call);
  for (auto* operands : {&wide.inputs, &wide.outputs}) {
    for (size_t i = 0; i < operands->size(); ++i) {
      OperandType& operand = (*operands)[i];
      if (Is16Bit(operand)) operand.dtype = DType::kFloat32;
      if (samples > 0 && IsImage(wide, operands, i)) operand.shape[0] = samples;
    }
  }
  return wide;
}

const KernelRow* WideRow(const KernelCall& wide) { return ChooseKernel(DeviceKind::kCpu, wide); }

int64_t WideBytes(const OperandType& operand) { return AlignUp(operand.bytes(), kAlignmentBytes); }

class WidenedKernel : public Kernel {
 public:
  explicit WidenedKernel(const KernelCall& call) : call_(call), wide_(Widened(call)), sums_(Sums(call)) {
    kernel_ = MakeCpuKernel(*WideRow(wide_), wide_);
    inputs_.resize(call.inputs.size());
    outputs_.resize(call.outputs.size());
    const int64_t samples = SamplesAtOnce(call);
    if (samples > 0) parts_ = call.inputs[0].shape[0] / samples;
  }

  void Run(const void* const* inputs, void* const* outputs, void* scratch, void* stream) override {
    for (int64_t part = 0; part < parts_; ++part) {
      auto* at = static_cast<std::byte*>(scratch);
      for (size_t i = 0; i < inputs_.size(); ++i) at = Widen(i, part, inputs[i], at);
      auto* const sum = reinterpret_cast<float*>(at);
      for (size_t i = 0; i < outputs_.size(); ++i) {
        const OperandType& operand = call_.outputs[i];
        outputs_[i] = Is16Bit(operand) ? at : At(outputs[i], operand, IsImage(call_, false, i), part);
        if (Is16Bit(operand)) at += WideBytes(wide_.outputs[i]);
      }
      if (sums_) {
        if (part > 0) outputs_[0] = at;
        at += WideBytes(wide_.outputs[0]);
      }
      kernel_->Run(inputs_.data(), outputs_.data(), at, stream);
      if (sums_) {
        if (part > 0) Add(static_cast<const float*>(outputs_[0]), sum);
        if (part + 1 < parts_) continue;
        outputs_[0] = sum;
      }
      for (size_t i = 0; i < outputs_.size(); ++i) Narrow(i, part, outputs[i]);
    }
  }

  // The size of this kernel's scratch memory, without that of the float32 kernel.
  static int64_t OwnScratchBytes(const KernelCall& call, const KernelCall& wide) {
    int64_t bytes = 0;
    for (size_t i = 0; i < call.inputs.size(); ++i) bytes += Is16Bit(call.inputs[i]) ? WideBytes(wide.inputs[i]) : 0;
    for (size_t i = 0; i < call.outputs.size(); ++i) bytes += Is16Bit(call.outputs[i]) ? WideBytes(wide.outputs[i]) : 0;
    return bytes + (Sums(call) ? WideBytes(wide.outputs[0]) : 0);
  }

 private:
  // Whether the result is a sum over parts.
  static bool Sums(const KernelCall& call) { return call.op == "ConvGradWeight" && SamplesAtOnce(call) > 0; }

  int64_t Elements(const OperandType& wide) const { return wide.layout.elements(wide.shape); }

  // The address of a part's samples.
  template <typename T>
  T* At(T* address, const OperandType& operand, bool image, int64_t part) const {
    if (!image || address == nullptr) return address;
    using Byte = std::conditional_t<std::is_const_v<T>, const std::byte, std::byte>;
    return static_cast<Byte*>(address) + operand.bytes() / parts_ * part;
  }

  // Operands other than images are widened with the first part only. Returns the address after the widened operand.
  std::byte* Widen(size_t i, int64_t part, const void* input, std::byte* at) {
    const OperandType& operand = call_.inputs[i];
    const bool image = IsImage(call_, true, i);
    if (!Is16Bit(operand)) {
      inputs_[i] = At(input, operand, image, part);
      return at;
    }
    inputs_[i] = at;
    const int64_t elements = Elements(wide_.inputs[i]), first = image ? part * elements : 0;
    if (image || part == 0) {
      ForEachRange(elements, [&](int64_t begin, int64_t n) {
        LoadFloats(BestLoops(), operand.dtype, input, first + begin, n, reinterpret_cast<float*>(at) + begin);
      });
    }
    return at + WideBytes(wide_.inputs[i]);
  }

  void Narrow(size_t i, int64_t part, void* output) const {
    const OperandType& operand = call_.outputs[i];
    if (!Is16Bit(operand)) return;
    const int64_t elements = Elements(wide_.outputs[i]), first = IsImage(call_, false, i) ? part * elements : 0;
    ForEachRange(elements, [&](int64_t begin, int64_t n) {
      StoreFloats(BestLoops(), operand.dtype, static_cast<const float*>(outputs_[i]) + begin, n, output, first + begin);
    });
  }

  void Add(const float* from, float* to) const {
    ForEachRange(Elements(wide_.outputs[0]), [&](int64_t begin, int64_t n) {
      BestLoops().pointwise[static_cast<size_t>(PointwiseOp::kAdd)]({to + begin, from + begin, to + begin, to + begin, n});
    });
  }

  template <typename F>
  void ForEachRange(int64_t elements, const F& f) const {
    ParallelRanges(elements, 16, ThreadsFor(elements, kElementsPerThread, call_.threads),
                   [&](int64_t begin, int64_t end) { f(begin, end - begin); });
  }

  KernelCall call_, wide_;
  std::unique_ptr<Kernel> kernel_;
  std::vector<const void*> inputs_;
  std::vector<void*> outputs_;
  int64_t parts_ = 1;
  bool sums_;  // see Sums()
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
  const KernelCall wide = Widened(call);
  const KernelRow* const row = WideRow(wide);
  return WidenedKernel::OwnScratchBytes(call, wide) + (row->scratch_bytes == nullptr ? 0 : row->scratch_bytes(wide));
}

// Operators with fast float32 kernels. Data movement, conversions and the reference kernels support 16 bits themselves.
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
  std::deque<std::string> names;  // a deque, because rows refer to the strings
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
