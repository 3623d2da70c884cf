// Value numbering: values of any programs that are computed alike from the same values have the same number. For verify_*.cc only.
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "kernels/catalog/kernel.h"
#include "kernels/catalog/pointwise.h"
#include "runtime/base/attributes.h"
#include "runtime/base/dtype.h"
#include "runtime/base/shape.h"
#include "runtime/base/tensor.h"

namespace gradloom::verify {

// What is known of a value in a program.
struct Value {
  int number = -1;   // of two values with the same number, one could replace the other
  bool own = false;  // whether it depends on what each rank that runs the program has of its own, such as its samples
};

// What a value is made of, as text that can be compared.
class ValueKey {
 public:
  explicit ValueKey(std::string_view kind) { Add(kind); }

  ValueKey& Add(int64_t number) {
    text_.append(reinterpret_cast<const char*>(&number), sizeof number);
    return *this;
  }
  ValueKey& Add(std::string_view text) {
    Add(static_cast<int64_t>(text.size()));
    text_.append(text);
    return *this;
  }
  ValueKey& Add(const Shape& shape) { return Add(shape.dims()); }
  ValueKey& Add(double number) { return Add(std::bit_cast<int64_t>(number)); }
  ValueKey& Add(const Tensor& tensor);
  template <typename T>
  ValueKey& Add(const std::vector<T>& list) {
    Add(static_cast<int64_t>(list.size()));
    for (const T& one : list) Add(one);
    return *this;
  }
  ValueKey& Add(const Attributes& attributes);
  // Adds a value and whether it is own.
  ValueKey& Add(const Value& value) {
    own_ |= value.own;
    return Add(int64_t{value.number});
  }

 private:
  friend class ValueNumbers;
  std::string text_;
  bool own_ = false;  // whether any of its values is
};

// A launch, its reorders and views aside, is its operator, attributes and types. Pointwise operators are numbered function by function, and
// updates of several parameters one by one, so that it does not matter what was fused: that may differ between ranks with more and fewer
// samples. Rounding to 16 bits is a function as well, whether a fused operator passes the result on or writes it to memory.
class ValueNumbers {
 public:
  // The value of this key. It is own if any of the values in the key is.
  Value Of(const ValueKey& key) { return {NumberOf(key.text_), key.own_}; }
  // A value that equals no other one. It is own.
  Value Fresh() { return {next_++, true}; }
  // A scalar, as a constant of the plan or of a pointwise operator.
  Value Number(float value);

  // The values of a call's outputs, given those of its inputs (of absent ones: any).
  std::vector<Value> ResultsOf(const KernelCall& call, const std::vector<Value>& inputs);

 private:
  int NumberOf(const std::string& text);
  bool IsNarrow(const Value& value, DType dtype) const;
  Value Rounded(const Value& value, DType dtype);
  Value ResultOf(const PointwiseProgram::Instruction& instruction, const std::vector<Value>& operands);
  std::vector<Value> ResultsOfAny(const KernelCall& call, const std::vector<Value>& inputs);
  std::vector<Value> ResultsOfFunctions(const PointwiseProgram& program, const KernelCall& call, const std::vector<Value>& inputs);
  std::vector<Value> ResultsOfTensors(const KernelCall& call, const std::vector<Value>& inputs);
  std::vector<Value> ResultsOfUpdates(const KernelCall& call, const std::vector<Value>& inputs);

  std::unordered_map<std::string, int> numbers_;
  std::unordered_map<int, float> scalars_;  // by number: those of Number
  std::unordered_map<int, DType> narrow_;   // by number: the 16-bit type that represents the value exactly, if one is known
  int next_ = 0;
};

}  // namespace gradloom::verify
