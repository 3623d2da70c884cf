// Tensors of the C++ interface: views that borrow, and one that owns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "gradloom/error.h"

namespace gradloom {
inline namespace v1 {

// GRADLOOM_FLOAT32 and so on.
using DType = GradloomDType;
inline constexpr DType kFloat32 = GRADLOOM_FLOAT32, kFloat64 = GRADLOOM_FLOAT64, kFloat16 = GRADLOOM_FLOAT16, kBfloat16 = GRADLOOM_BFLOAT16,
                       kInt8 = GRADLOOM_INT8, kInt16 = GRADLOOM_INT16, kInt32 = GRADLOOM_INT32, kInt64 = GRADLOOM_INT64,
                       kUint8 = GRADLOOM_UINT8, kUint16 = GRADLOOM_UINT16, kUint32 = GRADLOOM_UINT32, kUint64 = GRADLOOM_UINT64,
                       kBool = GRADLOOM_BOOL;

namespace internal {

template <typename T>
struct TypeOf;
template <>
struct TypeOf<float> : std::integral_constant<DType, kFloat32> {};
template <>
struct TypeOf<double> : std::integral_constant<DType, kFloat64> {};
template <>
struct TypeOf<int8_t> : std::integral_constant<DType, kInt8> {};
template <>
struct TypeOf<int16_t> : std::integral_constant<DType, kInt16> {};
template <>
struct TypeOf<int32_t> : std::integral_constant<DType, kInt32> {};
template <>
struct TypeOf<int64_t> : std::integral_constant<DType, kInt64> {};
template <>
struct TypeOf<uint8_t> : std::integral_constant<DType, kUint8> {};
template <>
struct TypeOf<uint16_t> : std::integral_constant<DType, kUint16> {};
template <>
struct TypeOf<uint32_t> : std::integral_constant<DType, kUint32> {};
template <>
struct TypeOf<uint64_t> : std::integral_constant<DType, kUint64> {};
template <>
struct TypeOf<bool> : std::integral_constant<DType, kBool> {};

}  // namespace internal

// Row-major elements in host memory. Borrows them and does not write them; the shape is its own.
class TensorView {
 public:
  TensorView() = default;
  TensorView(const void* data, std::vector<int64_t> shape, DType dtype) : data_(data), shape_(std::move(shape)), dtype_(dtype) {}
  template <typename T>
  TensorView(const T* data, std::vector<int64_t> shape) : TensorView(data, std::move(shape), internal::TypeOf<T>::value) {}
  explicit TensorView(const GradloomTensor& tensor)
      : TensorView(tensor.data, std::vector<int64_t>(tensor.shape, tensor.shape + tensor.rank), tensor.dtype) {}

  const void* data() const { return data_; }
  const std::vector<int64_t>& shape() const { return shape_; }
  DType dtype() const { return dtype_; }
  int64_t elements() const {
    int64_t count = 1;
    for (const int64_t extent : shape_) count *= extent;
    return count;
  }
  int64_t bytes() const { return elements() * static_cast<int64_t>(internal::Api().GetDTypeBytes(dtype_)); }

  // Throws Error if the elements have another type.
  template <typename T>
  std::span<const T> as() const {
    if (dtype_ != internal::TypeOf<T>::value)
      throw Error(GRADLOOM_E_TYPE, "E-TYPE",
                  std::string("the tensor's elements have another type: ") + internal::Api().GetDTypeName(dtype_));
    return {static_cast<const T*>(data_), static_cast<size_t>(elements())};
  }

  // For the C table. Borrows the shape of this view; the elements are not written.
  GradloomTensor c() const { return {const_cast<void*>(data_), shape_.data(), static_cast<int32_t>(shape_.size()), dtype_}; }

 private:
  const void* data_ = nullptr;
  std::vector<int64_t> shape_;
  DType dtype_ = 0;
};

// Elements of a tensor that keep it alive.
template <typename T>
class OwnedSpan : public std::span<const T> {
 public:
  OwnedSpan(std::span<const T> elements, std::shared_ptr<const std::byte[]> owner)
      : std::span<const T>(elements), owner_(std::move(owner)) {}

 private:
  std::shared_ptr<const std::byte[]> owner_;
};

// Owns its elements. Copies share them.
class Tensor {
 public:
  Tensor() = default;
  // Uninitialized elements.
  Tensor(std::vector<int64_t> shape, DType dtype) : view_(nullptr, std::move(shape), dtype) {
    data_ = std::shared_ptr<std::byte[]>(new std::byte[static_cast<size_t>(view_.bytes()) + 1]);
    view_ = TensorView(data_.get(), view_.shape(), dtype);
  }

  void* data() { return data_.get(); }
  const void* data() const { return data_.get(); }
  const std::vector<int64_t>& shape() const { return view_.shape(); }
  DType dtype() const { return view_.dtype(); }
  int64_t elements() const { return view_.elements(); }
  int64_t bytes() const { return view_.bytes(); }
  const TensorView& view() const { return view_; }
  // Throws Error if the elements have another type.
  template <typename T>
  std::span<const T> as() const& {
    return view_.as<T>();
  }
  // Of a temporary: for (const float g : session.Gradient("w").as<float>()). Kept with auto, it keeps the elements; a std::span does not.
  template <typename T>
  OwnedSpan<T> as() && {
    return {view_.as<T>(), data_};
  }

 private:
  TensorView view_;
  std::shared_ptr<std::byte[]> data_;
};

// The type and shape of a tensor.
struct TensorInfo {
  std::string name;
  std::vector<int64_t> shape;
  DType dtype = 0;
  int batch_axis = -1;
};

// Tensors by name, borrowed for a call.
using Feeds = std::vector<std::pair<std::string, TensorView>>;

namespace internal {

inline TensorInfo InfoOf(const GradloomTensorInfo& info) {
  return {info.name, std::vector<int64_t>(info.shape, info.shape + info.rank), info.dtype, info.batch_axis};
}

// Names and tensors as arrays for the table; borrows the feeds.
struct FeedArrays {
  std::vector<const char*> names;
  std::vector<GradloomTensor> tensors;

  explicit FeedArrays(const Feeds& feeds) {
    for (const auto& [name, view] : feeds) {
      names.push_back(name.c_str());
      tensors.push_back(view.c());
    }
  }
};

}  // namespace internal

// Borrows a row-major DLPack tensor in host memory, or on a GPU for a session that accepts it there as input.
inline TensorView FromDLPack(const DLManagedTensor* managed) {
  GradloomTensor tensor{};
  internal::Check(internal::Api().FromDLPack(managed, &tensor));
  return TensorView(tensor);
}

// A copy; its deleter frees it.
inline DLManagedTensor* ToDLPack(const TensorView& view) {
  DLManagedTensor* managed = nullptr;
  const GradloomTensor tensor = view.c();
  internal::Check(internal::Api().ToDLPack(&tensor, &managed));
  return managed;
}

}  // namespace v1
}  // namespace gradloom
