#include "runtime/base/tensor.h"

#include <cstdlib>
#include <cstring>
#include <string>

#include "runtime/base/checked.h"
#include "runtime/base/convert.h"
#include "runtime/base/dispatch.h"
#include "runtime/base/narrow.h"

namespace gradloom {
namespace {

// Memory fresh from the system is already zero, and calloc makes use of that. Writing zeros would be one more pass over weights that are
// read from a file.
constexpr int64_t kFreshBytes = int64_t{1} << 20;

struct Memory {
  void* block = nullptr;  // the pointer to free; null: out of memory
  std::byte* begin = nullptr;
};

// Aligned zeros; `bytes` is a multiple of the alignment.
Memory Zeroed(int64_t bytes) {
  const auto size = static_cast<size_t>(bytes);
  if (bytes < kFreshBytes) {
    void* const block = std::aligned_alloc(kAlignmentBytes, size);
    if (block != nullptr) std::memset(block, 0, size);
    return {block, static_cast<std::byte*>(block)};
  }
  void* const block = std::calloc(1, size + kAlignmentBytes);
  return {block, reinterpret_cast<std::byte*>(AlignUp(reinterpret_cast<intptr_t>(block), kAlignmentBytes))};
}

}  // namespace

Tensor::Tensor(DType dtype, Shape shape) : dtype_(dtype), shape_(std::move(shape)) {
  const int64_t element_bytes = DTypeBytes(dtype);
  if (element_bytes == 0) throw Error(ErrorCode::kType, "a tensor of type " + std::string(DTypeName(dtype)) + " cannot be allocated");
  const auto bytes = CheckedMul(shape_.elements(), element_bytes);
  // aligned_alloc requires a multiple of the alignment; an empty tensor still gets an address.
  const int64_t most = INT64_MAX - kAlignmentBytes;
  const int64_t size = bytes && *bytes <= most ? AlignUp(*bytes == 0 ? 1 : *bytes, kAlignmentBytes) : 0;
  const Memory memory = size > 0 ? Zeroed(size) : Memory();
  if (memory.block == nullptr) {
    throw Error(ErrorCode::kResource, "cannot allocate a tensor " + std::string(DTypeName(dtype)) + shape_.ToString());
  }
  bytes_ = std::shared_ptr<std::byte[]>(memory.begin, [block = memory.block](std::byte*) { std::free(block); });
}

Tensor Tensor::Copy(const TensorView& view) {
  Tensor tensor(view.dtype, view.shape);
  std::memcpy(tensor.data(), view.data, static_cast<size_t>(tensor.bytes()));
  return tensor;
}

Tensor Tensor::Reshaped(Shape shape) const {
  GRADLOOM_CHECK(shape.elements() == elements());
  Tensor tensor = *this;
  tensor.shape_ = std::move(shape);
  return tensor;
}

bool SameTensor(const Tensor& a, const Tensor& b) {
  if (a.dtype() != b.dtype() || a.shape() != b.shape()) return false;
  return a.data() == b.data() || std::memcmp(a.data(), b.data(), static_cast<size_t>(a.bytes())) == 0;
}

double ElementAsDouble(const TensorView& view, int64_t i) {
  if (IsNarrow(view.dtype)) return NarrowValue(view.dtype, static_cast<const uint8_t*>(view.data)[i]);
  return WithType(view.dtype,
                  [&]<typename T>(std::type_identity<T>) -> double { return static_cast<double>(static_cast<const T*>(view.data)[i]); });
}

int64_t ElementAsInt(const TensorView& view, int64_t i) {
  if (!IsInteger(view.dtype) && view.dtype != DType::kBool) {
    throw Error(ErrorCode::kType, "expected integers, got " + std::string(DTypeName(view.dtype)));
  }
  return WithType(view.dtype,
                  [&]<typename T>(std::type_identity<T>) -> int64_t { return static_cast<int64_t>(static_cast<const T*>(view.data)[i]); });
}

std::vector<int64_t> IntValues(const TensorView& view) {
  std::vector<int64_t> values(static_cast<size_t>(view.elements()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = ElementAsInt(view, static_cast<int64_t>(i));
  return values;
}

Tensor Converted(const TensorView& view, DType dtype) {
  if (view.dtype == dtype) return Tensor::Copy(view);
  Tensor out(dtype, view.shape);
  const int64_t n = view.elements();
  // Converts through double, which represents every number of the narrow types.
  if (IsNarrow(dtype)) {
    auto* to = static_cast<uint8_t*>(out.data());
    for (int64_t i = 0; i < n; ++i) to[i] = NarrowElement(dtype, ElementAsDouble(view, i));
    return out;
  }
  if (IsNarrow(view.dtype)) {
    WithType(dtype, [&]<typename To>(std::type_identity<To>) {
      To* to = static_cast<To*>(out.data());
      for (int64_t i = 0; i < n; ++i) to[i] = ConvertElement<To>(ElementAsDouble(view, i));
    });
    return out;
  }
  WithType(view.dtype, [&]<typename From>(std::type_identity<From>) {
    WithType(dtype, [&]<typename To>(std::type_identity<To>) {
      const From* from = static_cast<const From*>(view.data);
      To* to = static_cast<To*>(out.data());
      for (int64_t i = 0; i < n; ++i) to[i] = ConvertElement<To, From>(from[i]);
    });
  });
  return out;
}

}  // namespace gradloom
