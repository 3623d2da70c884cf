// The kernels of the CUDA device: for each catalog row the function that prepares it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "kernels/catalog/kernel.h"

struct CUstream_st;  // CUDA's stream

namespace gradloom::cuda {

// What a kernel found wrong with its data, in memory of the device: the first one of a step. The host reads it when the step has ended.
struct DataFault {
  int32_t site = -1;  // of the kernel that found it; -1: none has
  int32_t kind = 0;   // FaultKind
  int64_t value = 0, limit = 0;
  // Not 0: the step has been refused, here or by another device that shares it, and what lives between steps stays as it is.
  int32_t refused = 0;
  int32_t num_told = 0;
  int32_t* const* told = nullptr;  // the words of those others, or one in memory of the host that all of them read
};

// What `value` and `limit` say.
enum FaultKind : int32_t {
  kIndexOutOfRange = 1,  // the index, how many there are
  kDivisionByZero,       // the number of the element, how many there are
  kUnequalExtents,       // two extents that have to be the same
  kUnequalCounts,        // how many elements there are, how many are wanted
  kNoRoom,               // how many elements there are, how many there is room for
  kLengthOutOfRange,     // the length of a sequence, the steps that there are
  kFrequencyTooHigh,     // nothing: it is past half the sample rate
  kCircle,               // nothing: the nodes of a tree go in a circle
};

class Libraries;  // the handles of cuBLASLt, cuDNN and NVRTC of a device

// Where a kernel runs.
struct KernelSite {
  int id = 0;                      // stands in the DataFault of what it finds
  DataFault* fault = nullptr;      // memory of the device
  Libraries* libraries = nullptr;  // of the device; the kernel may keep it
  // Where it is not 0, outputs are left as they are, which are or may be what lives between steps. Null: there are none, or they change
  // whatever is found. All that refuses a step has ended before such a kernel begins.
  const int32_t* refused = nullptr;
};

struct CudaKernel {
  std::string_view row;  // name of the catalog row
  // All that depends on the call alone is done here. The call is one that the row does not reject. Run enqueues on the stream that it
  // is given and returns; it allocates nothing, waits for nothing, and is legal while a graph is captured. Throws Error(kDevice),
  // Error(kResource).
  std::unique_ptr<Kernel> (*make)(const KernelCall& call, const KernelSite& site) = nullptr;
};

// All families, one or a few files each. Declared here and defined there.
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

// Every kernel, in no order.
std::span<const CudaKernel* const> AllCudaKernels();

// The kernel of a row for a call. Throws Error(kPlan) where the row rejects the call or this library has no kernel for it.
std::unique_ptr<Kernel> MakeCudaKernel(const KernelRow& row, const KernelCall& call, const KernelSite& site);

// What a kernel is given at a step.
struct Launch {
  const void* const* inputs;
  void* const* outputs;
  void* scratch;
  CUstream_st* stream;

  // Null where the operand is absent.
  template <typename T>
  const T* In(size_t i) const {
    return static_cast<const T*>(inputs[i]);
  }
  template <typename T>
  T* Out(size_t i) const {
    return static_cast<T*>(outputs[i]);
  }
};

// A kernel that is a function of its launch.
template <typename F>
std::unique_ptr<Kernel> Runs(F run) {
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
