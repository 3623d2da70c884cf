// machine [--threads N]: measures this machine's peak rates for a large matrix product, with the kernel that training uses, and for a copy.
// Prints them as one line of JSON.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "kernels/cpu/cpu_kernels.h"
#include "runtime/base/error.h"

namespace gradloom {
namespace {

constexpr double kSeconds = 1;  // per measurement

// Repeats for one second, at least five times, and returns the seconds of the fastest run.
template <typename F>
double Fastest(F&& run) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  double fastest = 1e9;
  for (int i = 0; i < 5 || std::chrono::duration<double>(Clock::now() - start).count() < kSeconds; ++i) {
    const auto begin = Clock::now();
    run();
    fastest = std::min(fastest, std::chrono::duration<double>(Clock::now() - begin).count());
  }
  return fastest;
}

// Returns the seconds of one call with operands in plain layouts.
double SecondsOf(KernelCall call, int threads) {
  call.threads = threads;
  std::vector<Tensor> memory;
  std::vector<const void*> in;
  std::vector<void*> out;
  for (auto* operands : {&call.inputs, &call.outputs}) {
    for (const OperandType& operand : *operands) {
      memory.emplace_back(operand.dtype, operand.shape);
      float value = 0.1F;
      for (float& element : memory.back().as<float>()) element = value = 1 - value * 0.99F;
      if (operands == &call.inputs) {
        in.push_back(memory.back().data());
      } else {
        out.push_back(memory.back().data());
      }
    }
  }
  const KernelRow* row = ChooseKernel(DeviceKind::kCpu, call);
  if (row == nullptr) throw Error(ErrorCode::kUnsupported, "this build has no kernel for " + call.op);
  Tensor scratch(DType::kUint8, {(row->scratch_bytes ? row->scratch_bytes(call) : 0) + 1});
  const auto kernel = MakeCpuKernel(*row, call);
  return Fastest([&] { kernel->Run(in.data(), out.data(), scratch.data(), nullptr); });
}

OperandType Float(Shape shape) { return {.dtype = DType::kFloat32, .shape = std::move(shape)}; }

double ProductRate(int threads) {
  constexpr int64_t kSize = 1536;
  const OperandType square = Float({kSize, kSize});
  return 2.0 * kSize * kSize * kSize / SecondsOf({.op = "Gemm", .inputs = {square, square}, .outputs = {square}}, threads);
}

double CopyRate(int threads) {
  constexpr int64_t kBytes = int64_t{1} << 28;  // larger than any cache
  std::vector<char> from(kBytes, 1), to(kBytes, 2);
  const double seconds = Fastest([&] {
#pragma omp parallel for num_threads(threads)
    for (int t = 0; t < threads; ++t) std::memcpy(&to[kBytes / threads * t], &from[kBytes / threads * t], kBytes / threads);
  });
  return 2.0 * kBytes / seconds;
}

}  // namespace
}  // namespace gradloom

int main(int argc, char** argv) {
  int threads = 2;
  CLI::App app("Measures products and copies at their best");
  app.add_option("--threads", threads)->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  try {
    const nlohmann::ordered_json line{{"threads", threads},
                                      {"product_flops_per_second", gradloom::ProductRate(threads)},
                                      {"copy_bytes_per_second", gradloom::CopyRate(threads)}};
    std::printf("%s\n", line.dump().c_str());
  } catch (const gradloom::Error& error) {
    std::fprintf(stderr, "%s\n", error.Describe().c_str());
    return 1;
  }
}
