// Running sums and products along an axis. Totals are double, or wrap at 64 bits; the kernels are bound by memory anyway.
#include "kernels/cuda/lines.cuh"
#include "kernels/cuda/rows/scratch.h"

namespace gradloom::cuda {
namespace {

// Lines, divided into parts if there are few. Parts with the same number are adjacent for all lines.
struct Running {
  Lines lines;
  int64_t parts = 1, part_length = 1;
  bool exclusive = false, reverse = false;

  Running(const KernelCall& call, int64_t axis)
      : lines(call, call.inputs[0].shape, axis),
        exclusive(call.attributes.Int("exclusive", 0) != 0),
        reverse(call.attributes.Int("reverse", 0) != 0) {}

  void Cut() {
    parts = cuda_rows::PartsOfLines(lines.count, lines.extent);
    part_length = (lines.extent + parts - 1) / parts;
  }

  GRADLOOM_DEVICE int64_t End(int64_t part) const {
    const int64_t end = (part + 1) * part_length;
    return end < lines.extent ? end : lines.extent;
  }
  // The position of element j in the order of summation.
  GRADLOOM_DEVICE int64_t At(int64_t start, int64_t j) const { return start + (reverse ? lines.extent - 1 - j : j) * lines.step; }
};

template <bool kProduct, typename Total>
GRADLOOM_DEVICE Total Next(Total total, Total x) {
  return kProduct ? total * x : total + x;
}

// The totals of the parts, [parts, lines].
template <bool kProduct, typename T>
void TotalParts(const Running& run, const T* in, Accumulator<T>* totals, cudaStream_t stream) {
  ForEachElement(
      run.lines.count * run.parts, stream, GRADLOOM_ON_DEVICE(int64_t i) {
        const Quotient at = Divide(i, run.lines.count);
        const int64_t start = run.lines.start(at.rest);
        Accumulator<T> total = kProduct;
        for (int64_t j = at.quotient * run.part_length; j < run.End(at.quotient); ++j) {
          total = Next<kProduct>(total, static_cast<Accumulator<T>>(in[run.At(start, j)]));
        }
        totals[i] = total;
      });
}

// One thread per part of each line, which starts from the totals of the previous parts.
template <bool kProduct, typename T>
void RunParts(const Running& run, const T* in, const Accumulator<T>* totals, T* out, cudaStream_t stream) {
  ForEachElement(
      run.lines.count * run.parts, stream, GRADLOOM_ON_DEVICE(int64_t i) {
        const Quotient at = Divide(i, run.lines.count);
        const int64_t start = run.lines.start(at.rest);
        Accumulator<T> total = kProduct;
        for (int64_t part = 0; part < at.quotient; ++part) total = Next<kProduct>(total, totals[part * run.lines.count + at.rest]);
        for (int64_t j = at.quotient * run.part_length; j < run.End(at.quotient); ++j) {
          const int64_t place = run.At(start, j);
          const Accumulator<T> next = Next<kProduct>(total, static_cast<Accumulator<T>>(in[place]));
          out[place] = static_cast<T>(static_cast<Arithmetic<T>>(run.exclusive ? total : next));
          total = next;
        }
      });
}

template <bool kProduct>
std::unique_ptr<Kernel> MakeRunning(const KernelCall& call, const KernelSite&) {
  Running run(call, call.ConstantInts(1).at(0));
  run.Cut();
  return WithNumber(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    return MakeKernel([=](const Launch& l) {
      auto* const totals = static_cast<Accumulator<T>*>(l.scratch);
      if (run.parts > 1) TotalParts<kProduct>(run, l.In<T>(0), totals, l.stream);
      RunParts<kProduct>(run, l.In<T>(0), totals, l.Out<T>(0), l.stream);
    });
  });
}

// With p the product before j and s = g_j + x_{j+1} s' (a recurrence from the end), the gradient of x_j is p * s. One thread per line.
template <typename T>
void CumProdGrad(const Running& run, const T* x, const T* g, double* before, T* out, cudaStream_t stream) {
  ForEachElement(
      run.lines.count, stream, GRADLOOM_ON_DEVICE(int64_t line) {
        const int64_t start = run.lines.start(line), n = run.lines.extent;
        double product = 1;
        for (int64_t j = 0; j < n; ++j) {
          const int64_t place = run.At(start, j);
          before[place] = product;
          product *= static_cast<double>(x[place]);
        }
        double sum = 0;
        for (int64_t j = n - 1; j >= 0; --j) {
          const bool last = j + 1 == n;
          const int64_t place = run.At(start, j), next = last ? place : run.At(start, j + 1);
          // Exclusive products shift g by one.
          const double own = run.exclusive ? (last ? 0.0 : static_cast<double>(g[next])) : static_cast<double>(g[place]);
          sum = own + (last ? 0.0 : static_cast<double>(x[next]) * sum);
          out[place] = static_cast<T>(static_cast<Arithmetic<T>>(before[place] * sum));
        }
      });
}

std::unique_ptr<Kernel> MakeCumProdGrad(const KernelCall& call, const KernelSite&) {
  const Running run(call, call.ConstantInts(2).at(0));
  return WithFloating(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    return MakeKernel(
        [=](const Launch& l) { CumProdGrad(run, l.In<T>(0), l.In<T>(1), static_cast<double*>(l.scratch), l.Out<T>(0), l.stream); });
  });
}

constexpr CudaKernel kScanKernels[] = {
    {"cuda.CumSum", MakeRunning<false>},
    {"cuda.CumProd", MakeRunning<true>},
    {"cuda.gradloom.CumProdGrad", MakeCumProdGrad},
};

}  // namespace

std::span<const CudaKernel> ScanKernels() { return kScanKernels; }

}  // namespace gradloom::cuda
