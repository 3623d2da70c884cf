// Calls of random sizes and contents, compared between the CUDA device and the reference kernel.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kernels/reference/reference.h"
#include "tests/cuda/run_kernel.h"
#include "tests/seed/test_seed.h"

namespace gradloom::random_calls {

using Ints = std::vector<int64_t>;

class Random {
 public:
  explicit Random(uint64_t seed) : bits_(seed) {}

  int64_t Int(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(bits_); }
  bool Coin() { return Int(0, 1) == 1; }
  double Real(double low, double high) { return std::uniform_real_distribution<double>(low, high)(bits_); }

  Tensor Reals(Shape shape, double low = -1, double high = 1, DType dtype = DType::kFloat64) {
    std::vector<double> values(static_cast<size_t>(shape.elements()));
    for (double& value : values) value = Real(low, high);
    return Converted(Tensor::From(values, std::move(shape)).view(), dtype);
  }
  Tensor Wholes(Shape shape, int64_t low, int64_t high, DType dtype = DType::kInt64) {
    std::vector<int64_t> values(static_cast<size_t>(shape.elements()));
    for (int64_t& value : values) value = Int(low, high);
    return Converted(Tensor::From(values, std::move(shape)).view(), dtype);
  }

 private:
  std::mt19937_64 bits_;
};

struct Case {
  KernelCall call;
  std::vector<Tensor> inputs;

  // Takes the operands' types from the tensors; undefined tensors are absent operands. Integers that must be known on a GPU are passed as
  // known.
  Case(std::string op, std::string domain, std::vector<Tensor> operands, std::vector<OperandType> outputs, Attributes attributes = {})
      : call{.op = std::move(op),
             .domain = std::move(domain),
             .attributes = std::move(attributes),
             .inputs = {},
             .outputs = std::move(outputs)},
        inputs(std::move(operands)) {
    for (const Tensor& input : inputs)
      call.inputs.push_back(input.defined() ? OperandType{input.dtype(), input.shape(), {}} : OperandType{});
  }
  Case Known() && {
    for (const Tensor& input : inputs) {
      const bool known = input.defined() && IsKnownConstant(input.dtype(), input.elements());
      call.values.push_back(known ? input.view() : TensorView());
    }
    return std::move(*this);
  }
};

// An output with this type and shape.
inline OperandType Out(DType dtype, Shape shape) { return {dtype, std::move(shape), {}}; }

inline std::string Describe(const KernelCall& call) {
  std::string text = call.op + "(";
  for (const OperandType& in : call.inputs) text += " " + (in.present() ? std::string(DTypeName(in.dtype)) + in.shape.ToString() : "-");
  return text + " )";
}

// Compares the device's result with the reference, up to `allowed` per element. NaN equals NaN.
inline void Compare(const Case& c, double allowed = 0) {
  std::string why;
  const KernelRow* const row = ChooseKernel(DeviceKind::kCuda, c.call, &why);
  ASSERT_NE(row, nullptr) << Describe(c.call) << ": " << why;
  const std::vector<Tensor> wanted = RunReference(c.call, c.inputs), got = RunKernel(*row, c.call, c.inputs);
  for (size_t k = 0; k < wanted.size(); ++k) {
    if (!wanted[k].defined()) continue;
    for (int64_t i = 0; i < wanted[k].elements(); ++i) {
      const double w = ElementAsDouble(wanted[k].view(), i), g = ElementAsDouble(got[k].view(), i);
      if (w == g || (w != w && g != g) || std::fabs(w - g) <= allowed) continue;
      FAIL() << Describe(c.call) << " output " << k << " [" << i << "]: " << g << " instead of " << w;
    }
  }
}

// Runs `rounds` cases, each with its own seed, which is printed if the case fails.
template <typename Draw>
void ForEachSeed(int rounds, const Draw& draw) {
  const uint64_t first = SeedFromEnvironment().value_or(1);
  for (int k = 0; k < rounds && !::testing::Test::HasFatalFailure(); ++k) {
    const uint64_t seed = first + static_cast<uint64_t>(k);
    SCOPED_TRACE("GRADLOOM_SEED=" + std::to_string(seed));
    Random random(seed);
    draw(random);
  }
}

}  // namespace gradloom::random_calls
