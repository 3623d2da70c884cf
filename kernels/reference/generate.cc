// Tensors made from shapes, scalars and attributes.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/reference/families.h"
#include "kernels/reference/operands.h"
#include "runtime/base/convert.h"

namespace gradloom {
namespace {

void ShapeOf(const KernelCall& call, const void* const*, void* const* out) {
  const Shape& shape = call.inputs[0].shape;
  const int64_t rank = shape.rank();
  const auto clamp = [&](int64_t at) { return std::clamp<int64_t>(at < 0 ? at + rank : at, 0, rank); };
  const int64_t begin = clamp(call.attributes.Int("start", 0)), end = clamp(call.attributes.Int("end", rank));
  for (int64_t i = begin; i < end; ++i) Out<int64_t>(out, 0)[i - begin] = shape[static_cast<int>(i)];
}

void SizeOf(const KernelCall& call, const void* const*, void* const* out) { Out<int64_t>(out, 0)[0] = call.inputs[0].shape.elements(); }

// Fills output 0 with element 0 of `value`, or with zeros if it is undefined.
void Fill(const KernelCall& call, void* const* out, const Tensor& value) {
  const int64_t n = call.outputs[0].shape.elements();
  WithBytes(call.outputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    const T element = value.defined() ? static_cast<const T*>(value.data())[0] : T{0};
    std::fill_n(Out<T>(out, 0), n, element);
  });
}

void ConstantOfShape(const KernelCall& call, const void* const*, void* const* out) { Fill(call, out, call.attributes.TensorOf("value")); }

void Constant(const KernelCall& call, const void* const*, void* const* out) {
  const Attributes& attributes = call.attributes;
  const OperandType& type = call.outputs[0];
  Tensor value = attributes.TensorOf("value");
  const auto vector = [](const auto& values) { return Tensor::From(values, Shape{static_cast<int64_t>(values.size())}); };
  if (attributes.has("value_float")) value = Tensor::Scalar(attributes.Float("value_float", 0));
  if (attributes.has("value_int")) value = Tensor::Scalar(attributes.Int("value_int", 0));
  if (attributes.has("value_floats")) value = vector(attributes.Floats("value_floats"));
  if (attributes.has("value_ints")) value = vector(attributes.Ints("value_ints"));
  if (!value.defined()) throw Error(ErrorCode::kUnsupported, "Constant: only numeric values are supported");
  GRADLOOM_CHECK(value.elements() == type.shape.elements());
  value = Converted(value.view(), type.dtype);
  if (value.bytes() > 0) std::memcpy(out[0], value.data(), static_cast<size_t>(value.bytes()));
}

// start, start + delta, ..., each by one multiplication, so that errors do not accumulate.
void Range(const KernelCall& call, const void* const* in, void* const* out) {
  const int64_t n = call.outputs[0].shape.elements();
  WithNumber(call.outputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    using A = std::conditional_t<std::is_integral_v<T>, uint64_t, Arithmetic<T>>;
    const A start = static_cast<A>(static_cast<Arithmetic<T>>(In<T>(in, 0)[0])),
            delta = static_cast<A>(static_cast<Arithmetic<T>>(In<T>(in, 2)[0]));
    for (int64_t i = 0; i < n; ++i) Out<T>(out, 0)[i] = static_cast<T>(start + static_cast<A>(i) * delta);
  });
}

void EyeLike(const KernelCall& call, const void* const*, void* const* out) {
  const Shape& shape = call.outputs[0].shape;
  const int64_t rows = shape[0], columns = shape[1];
  const int64_t k = std::clamp(call.attributes.Int("k", 0), -rows - 1, columns + 1);
  WithType(call.outputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    T* z = Out<T>(out, 0);
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < columns; ++j) *z++ = ConvertElement<T>(j - i == k ? 1.0f : 0.0f);
    }
  });
}

// An index outside [-depth, depth) gives only off values.
void OneHot(const KernelCall& call, const void* const* in, void* const* out) {
  const Shape& shape = call.outputs[0].shape;
  const int axis = AxisOf(call, call.attributes.Int("axis", -1), shape.rank());
  const int64_t outer = Product(shape, 0, axis), depth = shape[axis], inner = Product(shape, axis + 1, shape.rank());
  const Tensor indices = Converted(InputView(call, in, 0), DType::kInt64);
  WithBytes(call.outputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    const T* values = In<T>(in, 2);
    T* z = Out<T>(out, 0);
    std::fill_n(z, outer * depth * inner, values[0]);
    const int64_t* const chosen = indices.as<int64_t>().data();
    for (int64_t i = 0; i < outer * inner; ++i) {
      const int64_t index = chosen[i] < 0 ? chosen[i] + depth : chosen[i];
      if (index >= 0 && index < depth) z[(i / inner * depth + index) * inner + i % inner] = values[1];
    }
  });
}

constexpr ReferenceKernel kKernels[] = {
    {"Constant", "", Constant}, {"ConstantOfShape", "", ConstantOfShape},
    {"EyeLike", "", EyeLike},   {"OneHot", "", OneHot},
    {"Range", "", Range},       {"Shape", "", ShapeOf},
    {"Size", "", SizeOf},
};

}  // namespace

std::span<const ReferenceKernel> ReferenceGenerate() { return kKernels; }

}  // namespace gradloom
