// QuantizeLinear and DequantizeLinear between float32 and 8- or 16-bit integers, with one scale, or one per index along an axis.
#include <optional>
#include <string>

#include "kernels/cpu/families.h"
#include "kernels/cpu/isa/loops.h"
#include "kernels/cpu/operands.h"
#include "kernels/cpu/parallel.h"

namespace gradloom {
namespace {

constexpr int64_t kElementsPerThread = 1 << 15;

std::optional<SmallInteger> SmallIntegerOf(DType dtype) {
  switch (dtype) {
    case DType::kUint8: return SmallInteger::kUint8;
    case DType::kInt8: return SmallInteger::kInt8;
    case DType::kUint16: return SmallInteger::kUint16;
    case DType::kInt16: return SmallInteger::kInt16;
    default: return std::nullopt;
  }
}

int ZeroAt(SmallInteger type, const void* zeros, int64_t i) {
  switch (type) {
    case SmallInteger::kUint8: return static_cast<const uint8_t*>(zeros)[i];
    case SmallInteger::kInt8: return static_cast<const int8_t*>(zeros)[i];
    case SmallInteger::kUint16: return static_cast<const uint16_t*>(zeros)[i];
    case SmallInteger::kInt16: return static_cast<const int16_t*>(zeros)[i];
  }
  return 0;
}

// The axis of the scales; nullopt if there is a single scale.
std::optional<int> AxisOfScales(const KernelCall& call) {
  if (call.inputs[1].shape.elements() == 1) return std::nullopt;
  const int64_t axis = call.attributes.Int("axis", 1);
  return static_cast<int>(axis < 0 ? axis + call.inputs[0].shape.rank() : axis);
}

class QuantizeBase : public Kernel {
 protected:
  QuantizeBase(const KernelCall& call, DType integer)
      : has_zero_(HasInput(call, 2)),
        type_(*SmallIntegerOf(integer)),
        bytes_(DTypeBytes(integer)),
        threads_(ThreadsFor(call.outputs[0].shape.elements(), kElementsPerThread, call.threads)),
        loops_(BestLoops()) {
    const Shape& x = call.inputs[0].shape;
    const std::optional<int> axis = AxisOfScales(call);
    channels_ = axis ? x[*axis] : 1;
    inner_ = axis ? Product(x, *axis + 1, x.rank()) : 1;
    n_ = x.elements();
  }

  // Calls f(first element, elements, scale, zero) for pieces with the same scale, in parallel.
  template <typename F>
  void ForEachPiece(const void* const* inputs, F f) const {
    const auto* scales = static_cast<const float*>(inputs[1]);
    const auto zero = [&](int64_t i) { return has_zero_ ? ZeroAt(type_, inputs[2], i) : 0; };
    if (channels_ == 1) {
      ParallelRanges(n_, 64, threads_, [&](int64_t begin, int64_t end) { f(begin, end - begin, scales[0], zero(0)); });
      return;
    }
    ParallelFor(n_ / inner_, threads_, [&](int64_t i) { f(i * inner_, inner_, scales[i % channels_], zero(i % channels_)); });
  }

  const bool has_zero_;
  const SmallInteger type_;
  const int64_t bytes_;
  const int threads_;
  const Loops& loops_;

 private:
  int64_t channels_, inner_, n_;
};

class Quantize : public QuantizeBase {
 public:
  explicit Quantize(const KernelCall& call) : QuantizeBase(call, call.outputs[0].dtype) {}

  void Run(const void* const* inputs, void* const* outputs, void*, void*) override {
    const QuantizeLoop loop = loops_.quantize[static_cast<size_t>(type_)];
    ForEachPiece(inputs, [&](int64_t i, int64_t count, float scale, int zero) {
      loop(static_cast<const float*>(inputs[0]) + i, count, scale, zero, static_cast<std::byte*>(outputs[0]) + i * bytes_);
    });
  }
};

class Dequantize : public QuantizeBase {
 public:
  explicit Dequantize(const KernelCall& call) : QuantizeBase(call, call.inputs[0].dtype) {}

  void Run(const void* const* inputs, void* const* outputs, void*, void*) override {
    const DequantizeLoop loop = loops_.dequantize[static_cast<size_t>(type_)];
    ForEachPiece(inputs, [&](int64_t i, int64_t count, float scale, int zero) {
      loop(static_cast<const std::byte*>(inputs[0]) + i * bytes_, count, scale, zero, static_cast<float*>(outputs[0]) + i);
    });
  }
};

std::string Rejects(const KernelCall& call, const OperandType& wide, const OperandType& small) {
  if (std::string why = RejectsLayouts(call); !why.empty()) return why;
  for (const OperandType& operand : {wide, call.inputs[1]}) {
    if (operand.dtype != DType::kFloat32) return std::string(DTypeName(operand.dtype));
  }
  if (!SmallIntegerOf(small.dtype)) return std::string(DTypeName(small.dtype));
  const auto precision = static_cast<DType>(call.attributes.Int("precision", 0));
  if (precision != DType::kUndefined && precision != DType::kFloat32) return "precision " + std::string(DTypeName(precision));
  const Shape &x = call.inputs[0].shape, &scale = call.inputs[1].shape;
  if (x.elements() == 0 || scale.elements() == 0) return "nothing to compute";
  if (call.outputs[0].shape != x) return "a result of another shape";
  if (HasInput(call, 2) && (call.inputs[2].dtype != small.dtype || call.inputs[2].shape.elements() != scale.elements()))
    return "zero points";
  const std::optional<int> axis = AxisOfScales(call);
  if (!axis) return "";
  if (call.attributes.Int("block_size", 0) != 0) return "blocks";
  return *axis < 0 || *axis >= x.rank() || scale.rank() != 1 || scale[0] != x[*axis] ? "scales of another extent" : "";
}

std::string RejectsQuantize(const KernelCall& call) { return Rejects(call, call.inputs[0], call.outputs[0]); }
std::string RejectsDequantize(const KernelCall& call) { return Rejects(call, call.outputs[0], call.inputs[0]); }

constexpr CpuKernel kKernels[] = {
    {.row = {.name = "cpu.QuantizeLinear", .op = "QuantizeLinear", .domain = "", .rejects = RejectsQuantize}, .make = MakeKernel<Quantize>},
    {.row = {.name = "cpu.DequantizeLinear", .op = "DequantizeLinear", .domain = "", .rejects = RejectsDequantize},
     .make = MakeKernel<Dequantize>},
};

}  // namespace

std::span<const CpuKernel> CpuQuantizeKernels() { return kKernels; }

}  // namespace gradloom
