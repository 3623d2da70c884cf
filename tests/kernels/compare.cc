#include "tests/kernels/compare.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "kernels/catalog/physical.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/isa/loops.h"
#include "kernels/reference/reference.h"
#include "runtime/base/dispatch.h"

namespace gradloom {
namespace {

std::string Describe(const KernelCall& call) {
  std::string text = call.op + "(";
  for (const OperandType& input : call.inputs) {
    text += (text.back() == '(' ? "" : ", ") +
            (input.present() ? std::string(DTypeName(input.dtype)) + input.shape.ToString() + ":" + input.layout.ToString() : "-");
  }
  text += ")";
  for (const auto& [name, value] : call.attributes) text += " " + name + "=" + Attributes::ToString(value);
  return text;
}

void FillRandom(Tensor& tensor, std::mt19937_64& random, double low, double high) {
  std::uniform_real_distribution<double> real(low, high);
  WithType(tensor.dtype(), [&]<typename T>(std::type_identity<T>) {
    T* data = static_cast<T*>(tensor.data());
    for (int64_t i = 0; i < tensor.elements(); ++i) {
      if constexpr (std::is_same_v<T, bool>) {
        data[i] = random() % 2 == 0;
      } else {
        data[i] = static_cast<T>(real(random));
      }
    }
  });
}

// Memory as a plan provides it: aligned, in the operand's layout, and initially filled with NaN patterns.
struct Memory {
  explicit Memory(const OperandType& type) : bytes(type.bytes()), tensor(DType::kUint8, {std::max<int64_t>(bytes, 1)}) {
    std::memset(tensor.data(), 0xFF, static_cast<size_t>(tensor.bytes()));
  }
  int64_t bytes;
  Tensor tensor;
};

void Compare(const KernelCall& call, size_t k, const Tensor& wanted, const Tensor& got, const Comparison& how, const std::string& what) {
  // Equal bits need no further comparison.
  if (std::memcmp(wanted.data(), got.data(), static_cast<size_t>(wanted.bytes())) == 0) return;
  double largest = 0;
  const bool floating = IsFloating(wanted.dtype());
  for (int64_t i = 0; floating && i < wanted.elements(); ++i) {
    const double value = std::fabs(ElementAsDouble(wanted.view(), i));
    if (std::isfinite(value)) largest = std::max(largest, value);
  }
  int failures = 0;
  for (int64_t i = 0; i < wanted.elements(); ++i) {
    const double a = ElementAsDouble(wanted.view(), i), b = ElementAsDouble(got.view(), i);
    const double allowed = floating ? how.absolute + how.relative * std::max(std::fabs(a), how.scale * largest) : 0;
    if (a == b || (std::isnan(a) && std::isnan(b)) || std::fabs(a - b) <= allowed) continue;
    ADD_FAILURE() << what << " output " << k << " element " << i << " of " << wanted.shape().ToString() << ": wanted " << a << ", got " << b
                  << ", allowed " << allowed << "\n  " << Describe(call);
    if (++failures == 3) return;
  }
}

// Runs once and returns the results. If `alias` is not null, output alias->output shares memory with input alias->input.
std::vector<Tensor> RunAndCompare(const KernelRow& row, const KernelCall& call, const std::vector<Tensor>& inputs,
                                  const std::vector<Tensor>& wanted, const Comparison& how, const Aliasing* alias) {
  const std::string what = std::string(row.name) + " threads " + std::to_string(call.threads) +
                           (alias ? " in place " + std::to_string(alias->output) + " on " + std::to_string(alias->input) : "");
  std::vector<Memory> memory;
  std::vector<const void*> in;
  std::vector<void*> out;
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    memory.emplace_back(call.inputs[i]);
    const OperandType& type = call.inputs[i];
    if (type.present()) ToLayout(type.layout, type.shape, DTypeBytes(type.dtype), inputs[i].data(), memory.back().tensor.data());
    in.push_back(type.present() ? memory.back().tensor.data() : nullptr);
  }
  for (size_t k = 0; k < call.outputs.size(); ++k) {
    memory.emplace_back(call.outputs[k]);
    const bool on_input = alias != nullptr && alias->output == static_cast<int>(k);
    out.push_back(!call.outputs[k].present() ? nullptr
                  : on_input                 ? const_cast<void*>(in[static_cast<size_t>(alias->input)])
                                             : memory.back().tensor.data());
  }
  // Generated code of libraries is not instrumented, so bytes behind the scratch memory show whether it writes too far.
  constexpr int64_t kGuard = 4096;
  const int64_t scratch_bytes = row.scratch_bytes ? row.scratch_bytes(call) : 0;
  Tensor scratch(DType::kUint8, {scratch_bytes + kGuard});
  auto* const bytes = static_cast<uint8_t*>(scratch.data());
  std::fill_n(bytes, scratch.bytes(), uint8_t{0xFF});
  MakeCpuKernel(row, call)->Run(in.data(), out.data(), bytes, nullptr);
  EXPECT_EQ(std::count(bytes + scratch_bytes, bytes + scratch.bytes(), uint8_t{0xFF}), kGuard)
      << what << ": writes past its scratch memory";
  std::vector<Tensor> results(call.outputs.size());
  for (size_t k = 0; k < call.outputs.size(); ++k) {
    const OperandType& type = call.outputs[k];
    if (!type.present()) continue;
    Tensor& got = results[k] = Tensor(type.dtype, type.shape);
    FromLayout(type.layout, type.shape, DTypeBytes(type.dtype), out[k], got.data());
    Compare(call, k, wanted[k], got, how, what);
    // Padding must be zero afterwards.
    Tensor again(DType::kUint8, {std::max<int64_t>(type.bytes(), 1)});
    ToLayout(type.layout, type.shape, DTypeBytes(type.dtype), got.data(), again.data());
    EXPECT_EQ(std::memcmp(again.data(), out[k], static_cast<size_t>(type.bytes())), 0) << what << ": padding of output " << k;
  }
  return results;
}

bool CanAlias(const KernelCall& call, const Aliasing& alias) {
  const auto in = static_cast<size_t>(alias.input), out = static_cast<size_t>(alias.output);
  return in < call.inputs.size() && out < call.outputs.size() && call.inputs[in].present() && call.outputs[out].present() &&
         call.inputs[in].bytes() == call.outputs[out].bytes();
}

// The results of the float32 reference kernel, converted to the types of the call.
std::vector<Tensor> RunWidened(KernelCall call, std::vector<Tensor> inputs) {
  const std::vector<OperandType> outputs = call.outputs;
  for (auto* operands : {&call.inputs, &call.outputs}) {
    for (OperandType& operand : *operands) {
      if (Is16BitFloat(operand.dtype)) operand.dtype = DType::kFloat32;
    }
  }
  for (Tensor& input : inputs) {
    if (input.defined() && Is16BitFloat(input.dtype())) input = Converted(input.view(), DType::kFloat32);
  }
  std::vector<Tensor> results = RunReference(call, inputs);
  for (size_t i = 0; i < results.size(); ++i) {
    if (results[i].defined() && results[i].dtype() != outputs[i].dtype) results[i] = Converted(results[i].view(), outputs[i].dtype);
  }
  return results;
}

}  // namespace

OperandType Plain(DType dtype, Shape shape) { return {dtype, std::move(shape), {}}; }

Shape RandomShape(std::mt19937_64& random, int rank, int64_t low, int64_t high) {
  Shape shape;
  for (int i = 0; i < rank; ++i) shape.push_back(std::uniform_int_distribution<int64_t>(low, high)(random));
  return shape;
}

namespace {

// Whether oneDNN computes some shapes of the row's calls by sums that it divides by the number of threads. The row may be oneDNN's or
// one that widens operands for it.
bool IsDividedByThreads(std::string_view kernel) {
  for (const std::string_view library : {"onednn.", "onednn.bfloat16.", "cpu.widened."}) {
    if (!kernel.starts_with(library)) continue;
    const std::string_view op = kernel.substr(library.size());
    if (op == "Conv" || op == "ConvGradInput" || op == "ConvTranspose") return true;
  }
  return false;
}

}  // namespace

void ExpectSameAsReference(KernelCall call, std::mt19937_64& random, const Comparison& how, const std::string& name) {
  std::vector<Tensor> inputs;
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    inputs.push_back(call.inputs[i].present() ? Tensor(call.inputs[i].dtype, call.inputs[i].shape) : Tensor());
    if (!inputs.back().defined()) continue;
    if (how.fill && how.fill(static_cast<int>(i), inputs.back(), random)) continue;
    FillRandom(inputs.back(), random, how.low, how.high);
  }
  const KernelCall plain = PlainCall(call);
  const std::vector<Tensor> wanted = how.widen ? RunWidened(plain, inputs) : RunReference(plain, inputs);
  std::vector<Tensor> first;
  for (int threads : {2, 1, 11}) {
    call.threads = threads;
    omp_set_num_threads(threads);  // as a stream does; kernels with less work leave a part of the team idle
    std::string why;
    const KernelRow* row = name.empty() ? ChooseKernel(DeviceKind::kCpu, call, &why) : FindKernel(name);
    ASSERT_NE(row, nullptr) << Describe(call) << ": " << why;
    ASSERT_FALSE(row->name.starts_with("reference.")) << Describe(call);
    // Layouts that were preferred with fewer threads may not be served with more.
    if (threads == 11 && !Rejection(*row, call).empty()) continue;
    ASSERT_EQ(Rejection(*row, call), "") << row->name << ": " << Describe(call);
    const std::vector<Tensor> results = RunAndCompare(*row, call, inputs, wanted, how, nullptr);
    // Not checked for what oneDNN divides by threads: convolutions (forward and input gradient) of some shapes, and products without
    // AVX-512. Rounding to bfloat16 hides most, but not all, of the difference.
    const bool own = row->name.starts_with("cpu."), wide = BestLoops().name == std::string_view("avx512");
    const bool any_threads = !IsDividedByThreads(row->name) && (own || wide);
    for (size_t k = 0; any_threads && k < first.size(); ++k) {
      if (!first[k].defined()) continue;
      EXPECT_EQ(std::memcmp(first[k].data(), results[k].data(), static_cast<size_t>(first[k].bytes())), 0)
          << row->name << " output " << k << " has other bits with " << threads << " threads than with 2: " << Describe(call);
    }
    if (threads == 2) first = results;
    if (threads == 11) continue;
    if (!how.check_aliasing) continue;
    for (const Aliasing& alias : row->may_alias) {
      if (CanAlias(call, alias)) RunAndCompare(*row, call, inputs, wanted, how, &alias);
    }
  }
}

}  // namespace gradloom
