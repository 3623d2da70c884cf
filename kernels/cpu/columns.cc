// Col2Im (PyTorch's fold) and its gradient: columns [N, channels * taps, windows] of one- or two-dimensional images, processed by channel,
// in rows.
#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "kernels/catalog/pointwise.h"
#include "kernels/cpu/convolution/window_axis.h"
#include "kernels/cpu/families.h"
#include "kernels/cpu/isa/loops.h"
#include "kernels/cpu/operands.h"
#include "kernels/cpu/parallel.h"

namespace gradloom {
namespace {

constexpr int64_t kElementsPerThread = 1 << 13;

class ColumnsKernel : public Kernel {
 protected:
  ColumnsKernel(const KernelCall& call, const Shape& image, const Shape& columns)
      : call_(call),
        image_(image),
        windows_(columns[2]),
        rows_(columns[1]),
        threads_(ThreadsFor(columns.elements(), kElementsPerThread, call.threads)) {
    strides_ = call.attributes.Ints("strides", std::vector<int64_t>(Rank(), 1));
    dilations_ = call.attributes.Ints("dilations", std::vector<int64_t>(Rank(), 1));
    pads_ = call.attributes.Ints("pads", std::vector<int64_t>(2 * Rank(), 0));
  }

  // A row of windows for one tap, of which windows [begin, end) read from the image.
  struct Row {
    int64_t columns;  // offset of the row
    int64_t image;    // offset of the element that window `begin` reads
    int64_t begin, end;
    int64_t step;  // from the element of one window to that of the next
  };

  // For each channel of each image, calls before(channel), then f(row) for each row of each of its taps. Channels run in parallel. Throws
  // Error(kShape) if the block does not fit.
  template <typename Before, typename F>
  void ForEachRow(const std::vector<int64_t>& block, Before&& before, F&& f) const {
    const auto [height, width] = AxesOf(block);
    const int64_t taps = height.taps * width.taps;
    ParallelFor(image_[0] * image_[1], threads_, [&](int64_t channel) {
      before(channel);
      for (int64_t tap = 0; tap < taps; ++tap) {
        const WindowAxis::Range down = height.OutputRange(tap / width.taps), along = width.OutputRange(tap % width.taps);
        for (int64_t y = down.begin; y < down.end && along.begin < along.end; ++y) {
          f(Row{(channel * taps + tap) * windows_ + y * width.out,
                (channel * height.in + down.first + (y - down.begin) * height.stride) * width.in + along.first, along.begin, along.end,
                width.stride});
        }
      }
    });
  }

  int64_t pixels() const { return Product(image_, 2, image_.rank()); }

  KernelCall call_;
  Shape image_;
  int64_t windows_, rows_;
  int threads_;

 private:
  size_t Rank() const { return static_cast<size_t>(image_.rank() - 2); }

  std::pair<WindowAxis, WindowAxis> AxesOf(const std::vector<int64_t>& block) const {
    WindowAxis axes[2];
    bool fits = block.size() == Rank();
    for (size_t d = 0; d < Rank() && fits; ++d) {
      WindowAxis& axis = axes[2 - Rank() + d];
      axis.in = image_[static_cast<int>(d) + 2], axis.taps = block[d], axis.stride = strides_[d], axis.dilation = dilations_[d];
      axis.pad = pads_[d];
      const int64_t padded = axis.in + pads_[d] + pads_[Rank() + d];
      fits = axis.taps >= 1 && axis.taps <= rows_;
      const int64_t reach = fits ? padded - axis.dilation * (axis.taps - 1) - 1 : -1;
      axis.out = reach < 0 ? 0 : reach / axis.stride + 1;
    }
    if (!fits || axes[0].taps * axes[1].taps * image_[1] != rows_ || axes[0].out * axes[1].out != windows_) {
      throw Error(ErrorCode::kShape, call_.op + ": columns [" + std::to_string(rows_) + ", " + std::to_string(windows_) +
                                         "] are not those of an image " + image_.ToString());
    }
    return {axes[0], axes[1]};
  }

  std::vector<int64_t> strides_, dilations_, pads_;
};

class Col2Im : public ColumnsKernel {
 public:
  explicit Col2Im(const KernelCall& call) : ColumnsKernel(call, call.outputs[0].shape, call.inputs[0].shape) {}

  void Run(const void* const* inputs, void* const* outputs, void*, void*) override {
    const auto* columns = static_cast<const float*>(inputs[0]);
    const auto *extents = static_cast<const int64_t*>(inputs[1]), *block = static_cast<const int64_t*>(inputs[2]);
    auto* const image = static_cast<float*>(outputs[0]);
    if (!std::equal(image_.begin() + 2, image_.end(), extents)) throw Error(ErrorCode::kShape, call_.op + ": an image of other extents");
    const PointwiseLoop add = BestLoops().pointwise[static_cast<size_t>(PointwiseOp::kAdd)];
    ForEachRow(
        {block, block + call_.inputs[2].shape.elements()},
        [&](int64_t channel) { std::fill_n(image + channel * pixels(), pixels(), 0.0f); },
        [&](const Row& row) {
          const float* const from = columns + row.columns + row.begin;
          float* const to = image + row.image;
          const int64_t n = row.end - row.begin;
          if (row.step == 1) return add({to, from, to, to, n});
          for (int64_t i = 0; i < n; ++i) to[i * row.step] += from[i];
        });
  }
};

// gradloom.Im2Col(image) {shape: of the columns, block}.
class Im2Col : public ColumnsKernel {
 public:
  explicit Im2Col(const KernelCall& call)
      : ColumnsKernel(call, call.inputs[0].shape, call.outputs[0].shape), block_(call.attributes.Ints("block")) {}

  void Run(const void* const* inputs, void* const* outputs, void*, void*) override {
    const auto* const image = static_cast<const float*>(inputs[0]);
    auto* const columns = static_cast<float*>(outputs[0]);
    const int64_t of_channel = rows_ / image_[1] * windows_;
    ForEachRow(
        block_, [&](int64_t channel) { std::fill_n(columns + channel * of_channel, of_channel, 0.0f); },
        [&](const Row& row) {
          const float* const from = image + row.image;
          float* const to = columns + row.columns + row.begin;
          const int64_t n = row.end - row.begin;
          if (row.step == 1) {
            std::copy_n(from, n, to);
          } else {
            for (int64_t i = 0; i < n; ++i) to[i] = from[i * row.step];
          }
        });
  }

 private:
  std::vector<int64_t> block_;
};

// The reference kernel reports operands that do not fit.
std::string Rejects(const KernelCall& call, const Shape& image, const Shape& columns) {
  if (std::string why = RejectsAllBut(call, DType::kFloat32, 0); !why.empty()) return why;
  if (image.rank() < 3 || image.rank() > 4 || columns.rank() != 3 || columns[0] != image[0]) return "rank " + std::to_string(image.rank());
  if (image.elements() == 0 || columns.elements() == 0) return "nothing to compute";
  const auto rank = static_cast<size_t>(image.rank() - 2);
  const auto within = [&](const char* name, size_t count, int64_t min) {
    const std::vector<int64_t> values = call.attributes.Ints(name, std::vector<int64_t>(count, min));
    return values.size() == count && std::all_of(values.begin(), values.end(), [&](int64_t v) { return v >= min && v <= INT32_MAX; });
  };
  return within("strides", rank, 1) && within("dilations", rank, 1) && within("pads", 2 * rank, 0) ? "" : "attributes";
}

std::string RejectsCol2Im(const KernelCall& call) {
  if (call.inputs.size() != 3 || call.inputs[1].dtype != DType::kInt64 || call.inputs[2].dtype != DType::kInt64) return "operands";
  if (call.inputs[1].shape.elements() != call.outputs[0].shape.rank() - 2) return "extents";
  return Rejects(call, call.outputs[0].shape, call.inputs[0].shape);
}
std::string RejectsIm2Col(const KernelCall& call) { return Rejects(call, call.inputs[0].shape, call.outputs[0].shape); }

constexpr CpuKernel kKernels[] = {
    {.row = {.name = "cpu.Col2Im", .op = "Col2Im", .domain = "", .rejects = RejectsCol2Im}, .make = MakeKernel<Col2Im>},
    {.row = {.name = "cpu.Im2Col", .op = "Im2Col", .domain = "gradloom", .rejects = RejectsIm2Col}, .make = MakeKernel<Im2Col>},
};

}  // namespace

std::span<const CpuKernel> CpuColumnsKernels() { return kKernels; }

}  // namespace gradloom
