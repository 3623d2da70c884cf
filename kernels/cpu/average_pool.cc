// AveragePool and its gradient: planes in parallel.
#include <vector>

#include "kernels/cpu/families.h"
#include "kernels/cpu/window_table.h"
#include "kernels/reference/spatial.h"

namespace gradloom {
namespace {

std::vector<float> Divisors(const KernelCall& call, const Shape& x, const Shape& y) {
  const Window3 w = Window3::Of(WindowsOf(call.attributes, x, call.attributes.Ints("kernel_shape")));
  const std::vector<int64_t> divisors = AverageDivisors(w, Volume::Of(x), Volume::Of(y), call.attributes.Int("count_include_pad", 0) != 0);
  return {divisors.begin(), divisors.end()};
}

class AveragePool : public Kernel {
 public:
  explicit AveragePool(const KernelCall& call)
      : table_(call, call.inputs[0].shape, call.outputs[0].shape),
        divisors_(Divisors(call, call.inputs[0].shape, call.outputs[0].shape)),
        threads_(table_.Threads(call)) {}

  void Run(const void* const* inputs, void* const* outputs, void*, void*) override {
    const auto windows = static_cast<size_t>(table_.outputs);
    const auto point = [&](int32_t i) { return table_.points[static_cast<size_t>(i)]; };
    table_.ForEach(
        threads_,
        [&](int64_t in, int64_t out) {
          const float* x = static_cast<const float*>(inputs[0]) + in;
          float* y = static_cast<float*>(outputs[0]) + out;
          for (size_t o = 0; o < windows; ++o) {
            float sum = 0;
            for (int32_t i = table_.first[o]; i < table_.first[o + 1]; ++i) sum += x[point(i)];
            y[o] = sum / divisors_[o];
          }
        },
        [&](int64_t in, int64_t out, int64_t n) {
          const float* x = static_cast<const float*>(inputs[0]) + in;
          float* y = static_cast<float*>(outputs[0]) + out;
          for (size_t o = 0; o < windows; ++o, y += table_.channels) {
            std::fill_n(y, n, 0.0f);
            for (int32_t i = table_.first[o]; i < table_.first[o + 1]; ++i) {
              const float* row = x + point(i) * table_.channels;
              for (int64_t c = 0; c < n; ++c) y[c] += row[c];
            }
            for (int64_t c = 0; c < n; ++c) y[c] /= divisors_[o];
          }
        });
  }

 private:
  WindowTable table_;
  std::vector<float> divisors_;
  int threads_;
};

class AveragePoolGrad : public Kernel {
 public:
  explicit AveragePoolGrad(const KernelCall& call)
      : table_(call, call.outputs[0].shape, call.inputs[0].shape),
        divisors_(Divisors(call, call.outputs[0].shape, call.inputs[0].shape)),
        threads_(table_.Threads(call)) {}

  void Run(const void* const* inputs, void* const* outputs, void*, void*) override {
    const auto windows = static_cast<size_t>(table_.outputs);
    const auto point = [&](int32_t i) { return table_.points[static_cast<size_t>(i)]; };
    table_.ForEach(
        threads_,
        [&](int64_t in, int64_t out) {
          const float* dy = static_cast<const float*>(inputs[0]) + out;
          float* dx = static_cast<float*>(outputs[0]) + in;
          std::fill_n(dx, table_.inputs, 0.0f);
          for (size_t o = 0; o < windows; ++o) {
            const float share = dy[o] / divisors_[o];
            for (int32_t i = table_.first[o]; i < table_.first[o + 1]; ++i) dx[point(i)] += share;
          }
        },
        [&](int64_t in, int64_t out, int64_t n) {
          const float* dy = static_cast<const float*>(inputs[0]) + out;
          float* dx = static_cast<float*>(outputs[0]) + in;
          for (int64_t i = 0; i < table_.inputs; ++i) std::fill_n(dx + i * table_.channels, n, 0.0f);
          for (size_t o = 0; o < windows; ++o, dy += table_.channels) {
            for (int32_t i = table_.first[o]; i < table_.first[o + 1]; ++i) {
              float* row = dx + point(i) * table_.channels;
              for (int64_t c = 0; c < n; ++c) row[c] += dy[c] / divisors_[o];
            }
          }
        });
  }

 private:
  WindowTable table_;
  std::vector<float> divisors_;
  int threads_;
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
