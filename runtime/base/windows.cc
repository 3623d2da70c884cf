#include "runtime/base/windows.h"

#include <algorithm>
#include <string>
#include <utility>

#include "runtime/base/checked.h"
#include "runtime/base/error.h"

namespace gradloom {
namespace {

// Far below the values for which sums of a few of them could overflow.
constexpr int64_t kLargest = int64_t{1} << 40;

void CheckList(const char* name, const std::vector<int64_t>& values, size_t length, int64_t least) {
  if (values.size() != length) {
    throw Error(ErrorCode::kAttr, std::string("attribute '") + name + "' has " + std::to_string(values.size()) +
                                      " entries, but the operator needs " + std::to_string(length));
  }
  for (int64_t value : values) {
    if (value < least || value > kLargest)
      throw Error(ErrorCode::kAttr, std::string("attribute '") + name + "' is out of range: " + std::to_string(value));
  }
}

int64_t Extent(const Windows& w, int dim) {
  const auto i = static_cast<size_t>(dim);
  const auto reach = CheckedMul(w.kernel[i] - 1, w.dilations[i]);
  if (!reach || *reach > kLargest) throw Error(ErrorCode::kAttr, "the dilated kernel is too large");
  return *reach + 1;
}

Windows Base(const Attributes& attributes, size_t rank, std::vector<int64_t> kernel) {
  Windows w;
  const std::vector<int64_t> ones(rank, 1), zeros(2 * rank, 0);
  w.kernel = std::move(kernel);
  w.strides = attributes.Ints("strides", ones);
  w.dilations = attributes.Ints("dilations", ones);
  const std::vector<int64_t> pads = attributes.Ints("pads", zeros);
  CheckList("kernel_shape", w.kernel, rank, 1);
  CheckList("strides", w.strides, rank, 1);
  CheckList("dilations", w.dilations, rank, 1);
  CheckList("pads", pads, 2 * rank, 0);
  w.pads_begin.assign(pads.begin(), pads.begin() + static_cast<int64_t>(rank));
  w.pads_end.assign(pads.begin() + static_cast<int64_t>(rank), pads.end());
  return w;
}

// Splits the total padding between both sides. An odd element goes to the end, or with SAME_LOWER to the beginning.
void SplitPads(Windows& w, size_t i, int64_t total, bool lower) {
  total = std::max<int64_t>(total, 0);
  const int64_t small = total / 2;
  w.pads_begin[i] = lower ? total - small : small;
  w.pads_end[i] = total - w.pads_begin[i];
}

}  // namespace

int64_t Windows::Count(int dim, int64_t input, bool ceil_mode) const {
  const auto i = static_cast<size_t>(dim);
  const int64_t room = input + pads_begin[i] + pads_end[i] - Extent(*this, dim);
  if (room < 0) return 0;
  int64_t count = room / strides[i] + 1;
  if (ceil_mode && room % strides[i] != 0 && count * strides[i] < input + pads_begin[i]) ++count;
  return count;
}

Attributes Windows::ToAttributes() const {
  std::vector<int64_t> pads = pads_begin;
  pads.insert(pads.end(), pads_end.begin(), pads_end.end());
  return {{"kernel_shape", kernel}, {"strides", strides}, {"dilations", dilations}, {"pads", pads}};
}

Windows WindowsOf(const Attributes& attributes, const Shape& input, std::vector<int64_t> kernel) {
  if (input.rank() < 3)
    throw Error(ErrorCode::kShape, "the input " + input.ToString() + " has no spatial dimension", "", "the input must be [N, C, D1, ...]");
  const size_t rank = static_cast<size_t>(input.rank()) - 2;
  Windows w = Base(attributes, rank, std::move(kernel));
  const std::string mode = attributes.String("auto_pad", "NOTSET");
  for (size_t i = 0; i < rank; ++i) {
    const int64_t in = input[static_cast<int>(i) + 2], extent = Extent(w, static_cast<int>(i));
    if (mode == "VALID") w.pads_begin[i] = w.pads_end[i] = 0;
    if (mode == "SAME_UPPER" || mode == "SAME_LOWER") {
      const int64_t out = (in + w.strides[i] - 1) / w.strides[i];
      SplitPads(w, i, (out - 1) * w.strides[i] + extent - in, mode == "SAME_LOWER");
    }
  }
  return w;
}

std::vector<int64_t> TransposedExtents(const Attributes& attributes, const Shape& input, std::vector<int64_t> kernel) {
  if (input.rank() < 3)
    throw Error(ErrorCode::kShape, "the input " + input.ToString() + " has no spatial dimension", "", "the input must be [N, C, D1, ...]");
  const size_t rank = static_cast<size_t>(input.rank()) - 2;
  const Windows w = Base(attributes, rank, std::move(kernel));
  const std::string mode = attributes.String("auto_pad", "NOTSET");
  const std::vector<int64_t> output_padding = attributes.Ints("output_padding", std::vector<int64_t>(rank, 0));
  CheckList("output_padding", output_padding, rank, 0);
  if (attributes.has("output_shape")) {
    std::vector<int64_t> given = attributes.Ints("output_shape");
    CheckList("output_shape", given, rank, 0);
    return given;
  }
  std::vector<int64_t> extents;
  for (size_t i = 0; i < rank; ++i) {
    const int64_t in = input[static_cast<int>(i) + 2], pads = mode == "VALID" ? 0 : w.pads_begin[i] + w.pads_end[i];
    const bool same = mode == "SAME_UPPER" || mode == "SAME_LOWER";
    const auto steps = CheckedMul(w.strides[i], same ? in : in - 1);
    if (!steps || *steps > kLargest) throw Error(ErrorCode::kShape, "the result of the transposed convolution is too large");
    extents.push_back(same ? *steps : *steps + output_padding[i] + Extent(w, static_cast<int>(i)) - pads);
    if (extents.back() < 0)
      throw Error(ErrorCode::kShape, "the pads remove more than the " + std::to_string(extents.back() + pads) + " elements along axis " +
                                         std::to_string(i + 2));
  }
  return extents;
}

Windows TransposedWindowsOf(const Attributes& attributes, const Shape& input, const Shape& output, std::vector<int64_t> kernel) {
  if (input.rank() < 3)
    throw Error(ErrorCode::kShape, "the input " + input.ToString() + " has no spatial dimension", "", "the input must be [N, C, D1, ...]");
  if (output.rank() != input.rank())
    throw Error(ErrorCode::kShape, "the result " + output.ToString() + " has another rank than the input " + input.ToString());
  const size_t rank = static_cast<size_t>(input.rank()) - 2;
  Windows w = Base(attributes, rank, std::move(kernel));
  const std::string mode = attributes.String("auto_pad", "NOTSET");
  const std::vector<int64_t> output_padding = attributes.Ints("output_padding", std::vector<int64_t>(rank, 0));
  CheckList("output_padding", output_padding, rank, 0);
  const bool given = attributes.has("output_shape");
  if (mode == "VALID") w.pads_begin = w.pads_end = std::vector<int64_t>(rank, 0);
  if (!given && mode != "SAME_UPPER" && mode != "SAME_LOWER") return w;
  for (size_t i = 0; i < rank; ++i) {
    const int64_t in = input[static_cast<int>(i) + 2], out = output[static_cast<int>(i) + 2];
    const int64_t total = w.strides[i] * (in - 1) + output_padding[i] + Extent(w, static_cast<int>(i)) - out;
    // ONNX: unless the mode is SAME_UPPER, the larger half goes to the beginning.
    SplitPads(w, i, total, mode != "SAME_UPPER");
  }
  return w;
}

}  // namespace gradloom
