// Pad for elements of any type, by rows of its innermost axis; and its gradient.
#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "kernels/cpu/convolution/separable.h"
#include "kernels/cpu/families.h"
#include "kernels/cpu/operand_watch.h"
#include "kernels/cpu/operands.h"
#include "kernels/cpu/parallel.h"

namespace gradloom {
namespace {

constexpr int64_t kBytesPerThread = 1 << 16;

class Pad : public Kernel {
 public:
  explicit Pad(const KernelCall& call)
      : call_(call),
        from_(call.inputs[0].shape),
        to_(call.outputs[0].shape),
        threads_(ThreadsFor(call.outputs[0].bytes(), kBytesPerThread, call.threads)) {}

  void Run(const void* const* inputs, void* const* outputs, void*, void*) override {
    watch_.RebuildIfChanged(call_, inputs, [&] { MakeSources(inputs); });
    const bool given = HasInput(call_, 2);
    WithWidth(call_.inputs[0].dtype, [&]<typename T>(T) { Rows<T>(inputs, outputs, given); });
  }

 private:
  // The source of each element of each axis; -1: the constant.
  void MakeSources(const void* const* inputs) {
    const std::vector<AxisMap> maps = PadMaps(call_, inputs, from_, to_, 3);
    sources_.resize(maps.size());
    for (size_t axis = 0; axis < maps.size(); ++axis) {
      const AxisMap& map = maps[axis];
      sources_[axis].resize(static_cast<size_t>(map.out));
      for (size_t i = 0; i < sources_[axis].size(); ++i) {
        sources_[axis][i] = map.starts[i] == map.starts[i + 1] ? -1 : map.indices[map.starts[i]];
      }
    }
    // The range of the innermost axis that is copied as a contiguous block.
    const std::vector<int64_t>& last = sources_.back();
    begin_ = 0;
    while (begin_ < last.size() && last[begin_] != 0) ++begin_;
    end_ = begin_;
    while (end_ < last.size() && last[end_] == static_cast<int64_t>(end_ - begin_)) ++end_;
  }

  template <typename T>
  void Rows(const void* const* inputs, void* const* outputs, bool given) const {
    const T constant = given ? *static_cast<const T*>(inputs[2]) : T{0};
    const T* x = static_cast<const T*>(inputs[0]);
    T* y = static_cast<T*>(outputs[0]);
    const int last = to_.rank() - 1;
    const int64_t in = from_[last], out = to_[last];
    const std::vector<int64_t>& along = sources_.back();
    ParallelFor(Product(to_, 0, last), threads_, [&](int64_t row) {
      T* to = y + row * out;
      int64_t from_row = 0, stride = 1;
      for (int64_t axis = last, rest = row; axis-- > 0; rest /= to_[static_cast<int>(axis)]) {
        const int64_t at = sources_[static_cast<size_t>(axis)][static_cast<size_t>(rest % to_[static_cast<int>(axis)])];
        if (at < 0) return void(std::fill_n(to, out, constant));
        from_row += at * stride;
        stride *= from_[static_cast<int>(axis)];
      }
      const T* from = x + from_row * in;
      const auto element = [&](size_t i) { to[i] = along[i] < 0 ? constant : from[along[i]]; };
      for (size_t i = 0; i < begin_; ++i) element(i);
      if (end_ > begin_) std::memcpy(to + begin_, from, (end_ - begin_) * sizeof(T));
      for (size_t i = end_; i < along.size(); ++i) element(i);
    });
  }

  KernelCall call_;
  Shape from_, to_;
  int threads_;
  OperandWatch watch_;
  std::vector<std::vector<int64_t>> sources_;
  size_t begin_ = 0, end_ = 0;
};

class PadGrad : public SeparableKernel {
 public:
  explicit PadGrad(const KernelCall& call) : SeparableKernel(call, true) {}

 private:
  std::vector<AxisMap> Maps(const void* const* inputs) const override {
    return PadMaps(call(), inputs, call().outputs[0].shape, call().inputs[0].shape, 2);
  }
};

std::string RejectsPad(const KernelCall& call) {
  if (call.inputs.size() < 2 || call.outputs.size() != 1) return "an unexpected number of operands";
  if (std::string why = RejectsLayouts(call); !why.empty()) return why;
  const OperandType &x = call.inputs[0], &y = call.outputs[0];
  if (x.dtype != y.dtype || x.shape.rank() != y.shape.rank() || x.shape.rank() < 1) return "operands that do not fit";
  if (HasInput(call, 2) && (call.inputs[2].dtype != x.dtype || call.inputs[2].shape.elements() != 1)) return "a constant that does not fit";
  return HasWidth(x.dtype) ? "" : std::string(DTypeName(x.dtype));
}

constexpr CpuKernel kKernels[] = {
    {.row = {.name = "cpu.Pad", .op = "Pad", .domain = "", .rejects = RejectsPad}, .make = MakeKernel<Pad>},
    {.row = {.name = "cpu.PadGrad",
             .op = "PadGrad",
             .domain = "gradloom",
             .rejects = SeparableKernel::Rejects,
             .scratch_bytes = SeparableKernel::Scratch},
     .make = MakeKernel<PadGrad>},
};

}  // namespace

std::span<const CpuKernel> CpuPadKernels() { return kKernels; }

}  // namespace gradloom
