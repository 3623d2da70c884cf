// The kernels of the CUDA device: for each catalog row, the function that makes its kernel.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "kernels/catalog/kernel.h"

struct CUstream_st;  // cudaStream_t

namespace gradloom::cuda {

// The first data error that a kernel found in a step, in device memory. The host reads it when the step has ended.
struct DataFault {
  int32_t site = -1;  // KernelSite::id of the kernel that found it; -1: no error
  int32_t kind = 0;   // FaultKind
  int64_t value = 0, limit = 0;
  // Nonzero: the step has been refused, by this device or by another one that takes part in it, and persistent state stays as it is.
  int32_t refused = 0;
  int32_t num_peer_flags = 0;
  int32_t* const* peer_flags = nullptr;  // the `refused` flags of other devices, or one in host memory; then words that hosts read
};

// The meaning of `value` and `limit`.
enum FaultKind : int32_t {
  kIndexOutOfRange = 1,  // the index; the extent it must be below
  kDivisionByZero,       // the number of the element; the number of elements
  kUnequalExtents,       // two extents that must be equal
  kUnequalCounts,        // the number of elements; the number required
  kCapacityExceeded,     // the number of elements; the capacity
  kLengthOutOfRange,     // the length of a sequence; the number of steps
  kFrequencyTooHigh,     // unused: the frequency is above half the sample rate
  kTreeCycle,            // unused: the nodes of a tree form a cycle
};

class Libraries;  // the handles of cuBLASLt, cuDNN and NVRTC on a device

// The context of a kernel.
struct KernelSite {
  int id = 0;                      // identifies the kernel in DataFault
  DataFault* fault = nullptr;      // in device memory
  Libraries* libraries = nullptr;  // of the device; the kernel may keep the pointer
  // If *refused is nonzero, the kernel must leave its outputs as they are, because they are or may be persistent state. Null: the kernel
  // writes no such state, or writes it even in a refused step. All kernels that can refuse a step have finished before such a kernel
  // starts.
  const int32_t* refused = nullptr;
};

struct CudaKernel {
  std::string_view row;  // name of the catalog row
  // Does all work that depends only on the call, which the row must accept. Run() then only enqueues work on the given stream: it allocates
  // nothing, does not wait, and is legal during graph capture. Throws Error(kDevice), Error(kResource).
  std::unique_ptr<Kernel> (*make)(const KernelCall& call, const KernelSite& site) = nullptr;
  // The code that `make` will ask Libraries::Function for, for a call that the row accepts, with or without KernelSite::refused. Null:
  // `make` generates none.
  std::string (*source)(const KernelCall& call, bool preserves_state) = nullptr;
};

// The families, each in one or a few files.
std::span<const CudaKernel> MoveKernels();           // move.cu
std::span<const CudaKernel> IndexKernels();          // index.cu
std::span<const CudaKernel> PointwiseKernels();      // pointwise.cc
std::span<const CudaKernel> ElementwiseKernels();    // elementwise.cu
std::span<const CudaKernel> ReduceKernels();         // reduce.cu
std::span<const CudaKernel> ScanKernels();           // scan.cu
std::span<const CudaKernel> SoftmaxKernels();        // softmax.cu
std::span<const CudaKernel> NormalizationKernels();  // normalization.cu
std::span<const CudaKernel> BatchNormKernels();      // batch_norm.cu
std::span<const CudaKernel> LossKernels();           // loss.cu
std::span<const CudaKernel> LossTrainingKernels();   // loss_training.cu
std::span<const CudaKernel> OptimizerKernels();      // optimizer.cu
std::span<const CudaKernel> RandomKernels();         // random.cu
std::span<const CudaKernel> BlasKernels();           // blas.cc
std::span<const CudaKernel> ProductKernels();        // product.cu
std::span<const CudaKernel> DnnConvKernels();        // dnn_convolution.cc
std::span<const CudaKernel> ConvolutionKernels();    // convolution.cu
std::span<const CudaKernel> PoolingKernels();        // pooling.cu
std::span<const CudaKernel> SampleKernels();         // sample.cu
std::span<const CudaKernel> DnnAttentionKernels();   // dnn_attention.cc
std::span<const CudaKernel> AttentionBlasKernels();  // attention_products.cu
std::span<const CudaKernel> AttentionKernels();      // attention.cu
std::span<const CudaKernel> RecurrentBlasKernels();  // recurrent_products.cu
std::span<const CudaKernel> RecurrentKernels();      // recurrent.cu
std::span<const CudaKernel> LinearAlgebraKernels();  // linear_algebra.cu
std::span<const CudaKernel> QuantizedKernels();      // quantized.cu
std::span<const CudaKernel> TensorScatterKernels();  // tensor_scatter.cu
std::span<const CudaKernel> TrainingKernels();       // training.cu
std::span<const CudaKernel> UnfoldKernels();         // unfold.cu
std::span<const CudaKernel> DeformConvKernels();     // deform_conv.cu
std::span<const CudaKernel> ExtentKernels();         // extents.cu
std::span<const CudaKernel> NarrowKernels();         // narrow.cu
std::span<const CudaKernel> RegionKernels();         // regions.cu
std::span<const CudaKernel> SignalKernels();         // signal.cu
std::span<const CudaKernel> TraditionalKernels();    // traditional.cu

// Every kernel, in unspecified order.
std::span<const CudaKernel* const> AllCudaKernels();

// Makes the kernel of a row for a call. Throws Error(kPlan) if the row rejects the call or this library has no kernel for the row.
std::unique_ptr<Kernel> MakeCudaKernel(const KernelRow& row, const KernelCall& call, const KernelSite& site);

// The code that is generated for a kernel; empty if there is none, or MakeCudaKernel throws.
std::string GeneratedSource(const KernelRow& row, const KernelCall& call, bool preserves_state);

// The arguments of a kernel in one run.
struct Launch {
  const void* const* inputs;
  void* const* outputs;
  void* scratch;
  CUstream_st* stream;

  // Null if the operand is absent.
  template <typename T>
  const T* In(size_t i) const {
    return static_cast<const T*>(inputs[i]);
  }
  template <typename T>
  T* Out(size_t i) const {
    return static_cast<T*>(outputs[i]);
  }
};

// Makes a kernel whose Run() calls `run` with a Launch.
template <typename F>
std::unique_ptr<Kernel> MakeKernel(F run) {
  class FunctionKernel : public Kernel {
   public:
    explicit FunctionKernel(F run) : run_(std::move(run)) {}
    void Run(const void* const* inputs, void* const* outputs, void* scratch, void* stream) override {
      run_(Launch{inputs, outputs, scratch, static_cast<CUstream_st*>(stream)});
    }

   private:
    F run_;
  };
  return std::make_unique<FunctionKernel>(std::move(run));
}

}  // namespace gradloom::cuda
