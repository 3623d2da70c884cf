// Tensors in host memory: a view that borrows its bytes, and a tensor that owns them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "runtime/base/dtype.h"
#include "runtime/base/error.h"
#include "runtime/base/shape.h"

namespace gradloom {

// Every buffer starts at a multiple of this many bytes (a cache line, an AVX-512 register).
inline constexpr int64_t kAlignmentBytes = 64;

// Borrowed, row-major, read-only elements. The owner must outlive the view.
struct TensorView {
  DType dtype = DType::kUndefined;
  Shape shape;
  const void* data = nullptr;

  int64_t elements() const { return shape.elements(); }
  int64_t bytes() const { return elements() * DTypeBytes(dtype); }

  template <typename T>
  std::span<const T> as() const {
    GRADLOOM_CHECK(dtype == DTypeOf<T>::value);
    return {static_cast<const T*>(data), static_cast<size_t>(elements())};
  }
};

// Row-major elements. Copies share the bytes: treat them as constant once the tensor is handed on.
class Tensor {
 public:
  Tensor() = default;  // kUndefined, no bytes

  // Zeros. Throws Error(kResource) if the memory is not available, Error(kType) for strings.
  Tensor(DType dtype, Shape shape);

  template <typename T>
  static Tensor From(const std::vector<T>& values, Shape shape);
  template <typename T>
  static Tensor Scalar(T value);
  static Tensor Copy(const TensorView& view);

  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  int64_t elements() const { return shape_.elements(); }
  int64_t bytes() const { return elements() * DTypeBytes(dtype_); }
  bool defined() const { return dtype_ != DType::kUndefined; }
  const void* data() const { return bytes_.get(); }
  void* data() { return bytes_.get(); }

  template <typename T>
  std::span<const T> as() const {
    return view().as<T>();
  }
  template <typename T>
  std::span<T> as() {
    GRADLOOM_CHECK(dtype_ == DTypeOf<T>::value);
    return {reinterpret_cast<T*>(bytes_.get()), static_cast<size_t>(elements())};
  }

  TensorView view() const { return {dtype_, shape_, bytes_.get()}; }

  // The same bytes with another shape of the same number of elements.
  Tensor Reshaped(Shape shape) const;

  // A deep copy.
  Tensor Clone() const { return Copy(view()); }

 private:
  DType dtype_ = DType::kUndefined;
  Shape shape_;
  std::shared_ptr<std::byte[]> bytes_;
};

template <typename T>
Tensor Tensor::From(const std::vector<T>& values, Shape shape) {
  Tensor tensor(DTypeOf<T>::value, std::move(shape));
  GRADLOOM_CHECK(tensor.elements() == static_cast<int64_t>(values.size()));
  // Not memcpy: vector<bool> has no contiguous elements.
  T* out = tensor.as<T>().data();
  for (size_t i = 0; i < values.size(); ++i) out[i] = values[i];
  return tensor;
}

template <typename T>
Tensor Tensor::Scalar(T value) {
  return From<T>(std::vector<T>{value}, Shape{});
}

// Whether both have one dtype, one shape and the same bytes: -0 and 0 differ, equal NaNs do not.
bool SameTensor(const Tensor& a, const Tensor& b);

// Element `i` in row-major order as double, whatever the (numeric or bool) dtype.
double ElementAsDouble(const TensorView& view, int64_t i);

// Element `i` of an integer or bool tensor as int64; throws Error(kType) for others.
int64_t ElementAsInt(const TensorView& view, int64_t i);

// All elements of an integer tensor; used for shapes, axes, pads.
std::vector<int64_t> IntValues(const TensorView& view);

// The same values in another numeric dtype, rounded to nearest even; floating to integer truncates.
Tensor Converted(const TensorView& view, DType dtype);

}  // namespace gradloom
