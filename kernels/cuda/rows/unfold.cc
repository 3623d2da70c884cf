// Images as columns of windows and back, and MaxUnpool.
#include "kernels/cuda/rows/unfold.h"

#include "kernels/cuda/rows/rows.h"

namespace gradloom {
namespace {

using namespace cuda_rows;  // NOLINT: for the functions that reject calls

constexpr int kMaxImageAxes = kMaxAxes - 2;  // besides batch and channels

bool AreIntegers(const KernelCall& call, size_t input) {
  const DType dtype = call.inputs[input].dtype;
  return dtype == DType::kInt64 || dtype == DType::kInt32;
}

// Describes windows that do not fit an image, or returns "".
std::string DescribeMismatch(const Columns& c, int64_t rows, int64_t windows) {
  const size_t rank = c.image.size();
  if (rank == 0 || rank > kMaxImageAxes) return "rank";
  const auto positive = [&](const std::vector<int64_t>& values) {
    bool all = values.size() == rank;
    for (int64_t value : values) all = all && value > 0;
    return all;
  };
  if (!positive(c.image) || !positive(c.block) || !positive(c.strides) || !positive(c.dilations) || c.pads.size() != 2 * rank) {
    return "windows that do not fit the image";
  }
  int64_t taps = 1, count = 1;
  for (size_t d = 0; d < rank; ++d) {
    taps *= c.block[d];
    count *= c.Count(d);
  }
  return rows % taps == 0 && count == windows && count > 0 ? "" : "columns that do not fit the image";
}

std::string RejectsCol2Im(const KernelCall& call) {
  if (std::string why = FirstOf({Layouts(call), NotFloating(call), Unknown(call, {1, 2})}); !why.empty()) return why;
  const Shape& columns = call.inputs[0].shape;
  return columns.rank() == 3 ? DescribeMismatch(Columns(call), columns[1], columns[2]) : "rank";
}

std::string RejectsIm2Col(const KernelCall& call) {
  if (std::string why = FirstOf({Layouts(call), NotFloating(call)}); !why.empty()) return why;
  const Shape& columns = call.outputs[0].shape;
  return columns.rank() == 3 && call.inputs[0].shape.rank() >= 3 ? DescribeMismatch(Columns(call), columns[1], columns[2]) : "rank";
}

std::string RejectsMaxUnpool(const KernelCall& call) {
  const Shape &x = call.inputs[0].shape, &y = call.outputs[0].shape;
  if (!AreIntegers(call, 1) || call.inputs[1].shape != x) return "places that do not fit";
  if (x.rank() < 3 || RankAbove(call, kMaxAxes) != "") return "rank";
  const Shape plain = UnpooledShape(call);
  if (plain.rank() != y.rank()) return "windows that do not fit";
  for (int axis = 0; axis < y.rank(); ++axis) {
    if (plain[axis] < 0 || plain[axis] > y[axis]) return "an output that is too small";
  }
  return Layouts(call);
}

int64_t MaxUnpoolBytes(const KernelCall& call) { return call.outputs[0].shape.elements() * 8; }

constexpr KernelRow kRows[] = {
    {.name = "cuda.Col2Im", .op = "Col2Im", .domain = "", .device = DeviceKind::kCuda, .rejects = RejectsCol2Im},
    {.name = "cuda.MaxUnpool",
     .op = "MaxUnpool",
     .domain = "",
     .device = DeviceKind::kCuda,
     .rejects = RejectsMaxUnpool,
     .scratch_bytes = MaxUnpoolBytes},
    {.name = "cuda.gradloom.Im2Col", .op = "Im2Col", .domain = "gradloom", .device = DeviceKind::kCuda, .rejects = RejectsIm2Col},
};

}  // namespace

cuda_rows::Columns::Columns(const KernelCall& call) {
  if (call.op == "Col2Im") {
    image = IntValues(call.values[1]);
    block = IntValues(call.values[2]);
  } else {
    const Shape& x = call.inputs[0].shape;
    image.assign(x.begin() + 2, x.end());
    block = call.attributes.Ints("block");
  }
  strides = call.attributes.Ints("strides", std::vector<int64_t>(image.size(), 1));
  dilations = call.attributes.Ints("dilations", std::vector<int64_t>(image.size(), 1));
  pads = call.attributes.Ints("pads", std::vector<int64_t>(2 * image.size(), 0));
}

Shape cuda_rows::UnpooledShape(const KernelCall& call) {
  const Shape& x = call.inputs[0].shape;
  const std::vector<int64_t> kernel = call.attributes.Ints("kernel_shape");
  const size_t rank = kernel.size();
  const std::vector<int64_t> strides = call.attributes.Ints("strides", std::vector<int64_t>(rank, 1)),
                             pads = call.attributes.Ints("pads", std::vector<int64_t>(2 * rank, 0));
  if (static_cast<int>(rank) + 2 != x.rank() || strides.size() != rank || pads.size() != 2 * rank) return {};
  Shape plain = x;
  for (size_t d = 0; d < rank; ++d) {
    const int axis = static_cast<int>(d) + 2;
    plain[axis] = (x[axis] - 1) * strides[d] + kernel[d] - pads[d] - pads[rank + d];
  }
  return plain;
}

std::span<const KernelRow> CudaUnfoldRows() { return kRows; }

}  // namespace gradloom
