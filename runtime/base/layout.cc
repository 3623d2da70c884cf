#include "runtime/base/layout.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstring>

#include "runtime/base/error.h"

namespace gradloom {
namespace {

constexpr char kDigits[] = "0123456789abcdefghijklmnopqrstuv";

[[noreturn]] void Refuse(const std::string& text) {
  throw Error(ErrorCode::kPlan, "'" + Escaped(text) + "' is not a layout", "", "write it as 'plain', '0231' or '0123:1x8,0x8'");
}

// The product of the blocks of one dimension.
int64_t BlockOf(const Layout& layout, int dim) {
  int64_t size = 1;
  for (const auto& block : layout.blocks) {
    if (block.dim == dim) size *= block.size;
  }
  return size;
}

}  // namespace

Shape Layout::Padded(const Shape& shape) const {
  Shape padded = shape;
  for (int dim = 0; dim < shape.rank(); ++dim) {
    const int64_t block = BlockOf(*this, dim);
    if (block > 1) padded[dim] = (shape[dim] + block - 1) / block * block;
  }
  return padded;
}

int64_t Layout::Offset(const Shape& shape, const std::vector<int64_t>& index) const {
  const Shape padded = Padded(shape);
  std::vector<int64_t> rest = index;
  // From the innermost block outwards, then the dimensions.
  int64_t offset = 0, stride = 1;
  for (size_t i = blocks.size(); i-- > 0;) {
    const auto& [dim, size] = blocks[i];
    offset += rest[static_cast<size_t>(dim)] % size * stride;
    rest[static_cast<size_t>(dim)] /= size;
    stride *= size;
  }
  for (int i = shape.rank(); i-- > 0;) {
    const int dim = order.empty() ? i : order[static_cast<size_t>(i)];
    offset += rest[static_cast<size_t>(dim)] * stride;
    stride *= padded[dim] / BlockOf(*this, dim);
  }
  return offset;
}

namespace {

// Offset tables up to this length stay in the caches.
constexpr int64_t kMaxOffsets = 4096;

// The offsets of the elements that differ only in their coordinates along axes [first, rank), in row-major order, relative to the first of
// them. The offset of an element is a sum over its coordinates.
std::vector<int64_t> OffsetsFrom(int first, const std::vector<std::vector<int64_t>>& places) {
  std::vector<int64_t> sums = {0};
  for (auto axis = static_cast<size_t>(first); axis < places.size(); ++axis) {
    std::vector<int64_t> longer;
    longer.reserve(sums.size() * places[axis].size());
    for (int64_t sum : sums) {
      for (int64_t place : places[axis]) longer.push_back(sum + place);
    }
    sums = std::move(longer);
  }
  return sums;
}

// Calls f(logical index, stored offset) for every element in row-major order. Offsets come from one table per dimension. The tables of the
// innermost dimensions are merged as far as they fit, so that inner loops are long even for 3 x 3 kernels.
template <typename F>
void ForEachElement(const Layout& layout, const Shape& shape, F f) {
  const int64_t n = shape.elements();
  if (n == 0) return;
  const auto rank = static_cast<size_t>(shape.rank());
  std::vector<std::vector<int64_t>> places(rank);
  std::vector<int64_t> index(rank, 0);
  for (size_t axis = 0; axis < rank; ++axis) {
    for (index[axis] = 0; index[axis] < shape[static_cast<int>(axis)]; ++index[axis]) places[axis].push_back(layout.Offset(shape, index));
    index[axis] = 0;
  }
  // Always the last axis, and the preceding ones as long as the table stays short.
  size_t inner = rank > 0 ? rank - 1 : 0;
  for (int64_t extent = rank > 0 ? shape[shape.rank() - 1] : 1; inner > 0; --inner) {
    extent *= shape[static_cast<int>(inner) - 1];
    if (extent > kMaxOffsets) break;
  }
  const std::vector<int64_t> row = OffsetsFrom(static_cast<int>(inner), places);
  int64_t start = 0;
  for (int64_t i = 0; i < n;) {
    for (int64_t place : row) f(i++, start + place);
    for (size_t axis = inner; axis-- > 0;) {
      start -= places[axis][static_cast<size_t>(index[axis])];
      if (++index[axis] < shape[static_cast<int>(axis)]) {
        start += places[axis][static_cast<size_t>(index[axis])];
        break;
      }
      index[axis] = 0;
    }
  }
}

// Calls f with an integer of the element's size, so that copying one is a single instruction.
template <typename F>
void WithElement(int64_t bytes, F f) {
  switch (bytes) {
    case 1: return f(uint8_t{});
    case 2: return f(uint16_t{});
    case 4: return f(uint32_t{});
    case 8: return f(uint64_t{});
    default: GRADLOOM_CHECK(false);
  }
}

}  // namespace

void ToLayout(const Layout& layout, const Shape& shape, int64_t element_bytes, const void* logical, void* stored) {
  const int64_t total = layout.elements(shape) * element_bytes;
  if (total == 0) return;
  if (layout.plain()) {
    std::memcpy(stored, logical, static_cast<size_t>(total));
    return;
  }
  if (layout.elements(shape) != shape.elements()) std::memset(stored, 0, static_cast<size_t>(total));
  WithElement(element_bytes, [&]<typename T>(T) {
    const auto* const from = static_cast<const std::byte*>(logical);
    auto* const to = static_cast<std::byte*>(stored);
    constexpr int64_t kBytes = sizeof(T);
    ForEachElement(layout, shape, [&](int64_t i, int64_t j) { std::memcpy(to + j * kBytes, from + i * kBytes, kBytes); });
  });
}

void FromLayout(const Layout& layout, const Shape& shape, int64_t element_bytes, const void* stored, void* logical) {
  if (shape.elements() == 0) return;
  if (layout.plain()) {
    std::memcpy(logical, stored, static_cast<size_t>(shape.elements() * element_bytes));
    return;
  }
  WithElement(element_bytes, [&]<typename T>(T) {
    const auto* const from = static_cast<const std::byte*>(stored);
    auto* const to = static_cast<std::byte*>(logical);
    constexpr int64_t kBytes = sizeof(T);
    ForEachElement(layout, shape, [&](int64_t i, int64_t j) { std::memcpy(to + i * kBytes, from + j * kBytes, kBytes); });
  });
}

std::string Layout::ToString() const {
  if (plain()) return "plain";
  std::string text;
  for (int dim : order) text += kDigits[dim];
  for (size_t i = 0; i < blocks.size(); ++i) {
    text += i == 0 ? ":" : ",";
    text += std::to_string(blocks[i].dim) + "x" + std::to_string(blocks[i].size);
  }
  return text;
}

Layout Layout::FromString(const std::string& text) {
  Layout layout;
  if (text == "plain") return layout;
  const size_t colon = text.find(':');
  const std::string order = text.substr(0, colon);
  for (char c : order) {
    const char* digit = std::find(kDigits, kDigits + kMaxRank, c);
    if (digit == kDigits + kMaxRank) Refuse(text);
    layout.order.push_back(static_cast<int>(digit - kDigits));
  }
  std::vector<int> sorted = layout.order;
  std::sort(sorted.begin(), sorted.end());
  for (size_t i = 0; i < sorted.size(); ++i) {
    if (sorted[i] != static_cast<int>(i)) Refuse(text);
  }
  if (colon == std::string::npos) {
    if (layout.order.empty()) Refuse(text);
    return layout;
  }
  const char* p = text.data() + colon + 1;
  const char* end = text.data() + text.size();
  while (true) {
    Block block;
    auto read = std::from_chars(p, end, block.dim);
    if (read.ec != std::errc() || read.ptr == end || *read.ptr != 'x') Refuse(text);
    read = std::from_chars(read.ptr + 1, end, block.size);
    if (read.ec != std::errc() || block.dim < 0 || block.dim >= kMaxRank || block.size < 2 || block.size > 1024) Refuse(text);
    layout.blocks.push_back(block);
    if (read.ptr == end) return layout;
    if (*read.ptr != ',' || layout.blocks.size() == 8) Refuse(text);
    p = read.ptr + 1;
  }
}

}  // namespace gradloom
