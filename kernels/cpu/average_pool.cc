// AveragePool and its gradient, with planes in parallel.
#include <vector>

#include "kernels/cpu/convolution/window_table.h"
#include "kernels/cpu/families.h"
#include "kernels/reference/spatial.h"

namespace gradloom {
namespace {

class AverageBase : public Kernel {
 protected:
  AverageBase(const KernelCall& call, const Shape& x, const Shape& y) : table_(call, x, y), threads_(table_.Threads(call)) {
    const Window3 w = Window3::Of(WindowsOf(call.attributes, x, call.attributes.Ints("kernel_shape")));
    const bool padding_too = call.attributes.Int("count_include_pad", 0) != 0;
    for (int64_t divisor : AverageDivisors(w, Volume::Of(x), Volume::Of(y), padding_too)) divisors_.push_back(static_cast<float>(divisor));
  }

  const WindowTable table_;
  const int threads_;
  std::vector<float> divisors_;  // by window
};

class AveragePool : public AverageBase {
 public:
  explicit AveragePool(const KernelCall& call) : AverageBase(call, call.inputs[0].shape, call.outputs[0].shape) {}

  void Run(const void* const* inputs, void* const* outputs, void*, void*) override {
    const auto windows = static_cast<size_t>(table_.outputs);
    table_.ForEach(
        threads_,
        [&](int64_t in, int64_t out) {
          const float* x = static_cast<const float*>(inputs[0]) + in;
          float* y = static_cast<float*>(outputs[0]) + out;
          for (size_t o = 0; o < windows; ++o) {
            float sum = 0;
            for (int32_t point : table_.PointsOf(o)) sum += x[point];
            y[o] = sum / divisors_[o];
          }
        },
        [&](int64_t in, int64_t out, int64_t n) {
          const float* x = static_cast<const float*>(inputs[0]) + in;
          float* y = static_cast<float*>(outputs[0]) + out;
          for (size_t o = 0; o < windows; ++o, y += table_.channels) {
            std::fill_n(y, n, 0.0f);
            for (int32_t point : table_.PointsOf(o)) {
              const float* row = x + point * table_.channels;
              for (int64_t c = 0; c < n; ++c) y[c] += row[c];
            }
            for (int64_t c = 0; c < n; ++c) y[c] /= divisors_[o];
          }
        });
  }
};

class AveragePoolGrad : public AverageBase {
 public:
  explicit AveragePoolGrad(const KernelCall& call) : AverageBase(call, call.outputs[0].shape, call.inputs[0].shape) {}

  void Run(const void* const* inputs, void* const* outputs, void*, void*) override {
    const auto windows = static_cast<size_t>(table_.outputs);
    table_.ForEach(
        threads_,
        [&](int64_t in, int64_t out) {
          const float* dy = static_cast<const float*>(inputs[0]) + out;
          float* dx = static_cast<float*>(outputs[0]) + in;
          std::fill_n(dx, table_.inputs, 0.0f);
          for (size_t o = 0; o < windows; ++o) {
            const float share = dy[o] / divisors_[o];
            for (int32_t point : table_.PointsOf(o)) dx[point] += share;
          }
        },
        [&](int64_t in, int64_t out, int64_t n) {
          const float* dy = static_cast<const float*>(inputs[0]) + out;
          float* dx = static_cast<float*>(outputs[0]) + in;
          for (int64_t i = 0; i < table_.inputs; ++i) std::fill_n(dx + i * table_.channels, n, 0.0f);
          for (size_t o = 0; o < windows; ++o, dy += table_.channels) {
            for (int32_t point : table_.PointsOf(o)) {
              float* row = dx + point * table_.channels;
              for (int64_t c = 0; c < n; ++c) row[c] += dy[c] / divisors_[o];
            }
          }
        });
  }
};

std::string Rejects(const KernelCall& call) { return RejectsPooling(call, call.inputs[0].shape, call.outputs[0].shape); }
std::string RejectsGrad(const KernelCall& call) { return RejectsPooling(call, call.outputs[0].shape, call.inputs[0].shape); }

constexpr CpuKernel kKernels[] = {
    {.row = {.name = "cpu.AveragePool", .op = "AveragePool", .domain = "", .rejects = Rejects}, .make = MakeKernel<AveragePool>},
    {.row = {.name = "cpu.AveragePoolGrad", .op = "AveragePoolGrad", .domain = "gradloom", .rejects = RejectsGrad},
     .make = MakeKernel<AveragePoolGrad>},
};

}  // namespace

std::span<const CpuKernel> CpuAveragePoolKernels() { return kKernels; }

}  // namespace gradloom
