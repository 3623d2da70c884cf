#include "kernels/reference/numbers.h"

#include <algorithm>

#include "kernels/reference/operands.h"
#include "runtime/base/convert.h"

namespace gradloom {

Numbers NumbersOf(const KernelCall& call, const void* const* in, size_t i) {
  const TensorView view = InputView(call, in, i);
  Numbers numbers(static_cast<size_t>(view.elements()));
  if (IsNarrow(view.dtype)) {
    for (size_t k = 0; k < numbers.size(); ++k) numbers[k] = NarrowValue(view.dtype, In<uint8_t>(in, i)[k]);
    return numbers;
  }
  WithType(view.dtype, [&]<typename T>(std::type_identity<T>) {
    for (size_t k = 0; k < numbers.size(); ++k) numbers[k] = static_cast<double>(In<T>(in, i)[k]);
  });
  return numbers;
}

void StoreNumbers(const KernelCall& call, size_t i, const Numbers& numbers, void* const* out, NarrowRounding rounding) {
  const DType dtype = call.outputs[i].dtype;
  GRADLOOM_CHECK(static_cast<int64_t>(numbers.size()) == call.outputs[i].shape.elements());
  if (IsNarrow(dtype)) {
    for (size_t k = 0; k < numbers.size(); ++k) {
      double value = numbers[k];
      if (IsNarrowInteger(dtype) && value == value) value = std::clamp<double>(value, NarrowLowest(dtype), NarrowHighest(dtype));
      Out<uint8_t>(out, i)[k] = NarrowElement(dtype, value, rounding);
    }
    return;
  }
  WithType(dtype, [&]<typename T>(std::type_identity<T>) {
    for (size_t k = 0; k < numbers.size(); ++k) Out<T>(out, i)[k] = ConvertElement<T>(numbers[k]);
  });
}

double RoundedTo(DType dtype, double value) {
  return WithFloating(dtype, [&]<typename T>(std::type_identity<T>) { return static_cast<double>(ConvertElement<T>(value)); });
}

}  // namespace gradloom
