// Products by cuBLASLt. It thinks in columns: a row-major matrix is the transpose of what it sees, so d = a b is asked as d' = b' a'.
#include "kernels/cuda/rows/blas.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include "kernels/cuda/algorithms.h"
#include "kernels/cuda/check.h"
#include "kernels/cuda/cuda_kernel.h"
#include "kernels/cuda/gelu_passes.h"
#include "kernels/cuda/libraries.h"
#include "kernels/cuda/rows/rows.h"
#include "kernels/cuda/stand_in.h"

namespace gradloom::cuda {
namespace {

// A plan's scratch memory is aligned to less.
constexpr uintptr_t kWorkspaceAlignment = 256;

void Check(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw Error(ErrorCode::kDevice, std::string(call) + " failed: " + cublasLtGetStatusString(status));
}

using Epilogue = BlasProduct::Epilogue;

// The library's name for what a product ends with; `b`, whose columns are ours, is its left operand.
cublasLtEpilogue_t EpilogueOf(const BlasProduct& product, bool with_sums) {
  const bool bias = product.addend == BlasProduct::Addend::kRow;
  switch (product.epilogue) {
    case Epilogue::kRelu: return bias ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU;
    case Epilogue::kGelu: return bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
    case Epilogue::kGeluGrad: return with_sums ? CUBLASLT_EPILOGUE_DGELU_BGRAD : CUBLASLT_EPILOGUE_DGELU;
    case Epilogue::kSumsOfA: return CUBLASLT_EPILOGUE_BGRADB;
    case Epilogue::kSumsOfB: return CUBLASLT_EPILOGUE_BGRADA;
    default: return bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
  }
}

// Why the library is not asked for the epilogue of a product, or "".
std::string NotAsked(const BlasProduct& product, DType dtype) {
  if (product.epilogue == Epilogue::kNone) return "";
  if (dtype == DType::kFloat64) return "it states no epilogues of float64";
  if (product.epilogue != Epilogue::kGelu && product.epilogue != Epilogue::kGeluGrad) return "";
  // How good its tanh is, is not stated; an approximation of 11 bits is what the hardware has.
  if (dtype == DType::kFloat32) return "its GELU is not known to have 24 bits";
  return product.n % 8 == 0 ? "" : "rows of GELU's operand have to have a multiple of 8 elements";
}

cudaDataType_t TypeOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat64: return CUDA_R_64F;
    case DType::kFloat16: return CUDA_R_16F;
    case DType::kBfloat16: return CUDA_R_16BF;
    default: return CUDA_R_32F;
  }
}

class MatrixLayout {
 public:
  // As cuBLASLt sees it: `rows` neighbours in memory, `columns` of them.
  MatrixLayout(cudaDataType_t type, int64_t rows, int64_t columns, int64_t batch, int64_t step) {
    Check(cublasLtMatrixLayoutCreate(&layout_, type, static_cast<uint64_t>(rows), static_cast<uint64_t>(columns), rows),
          "cublasLtMatrixLayoutCreate");
    const auto count = static_cast<int32_t>(batch);
    Check(cublasLtMatrixLayoutSetAttribute(layout_, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count), "a batch count");
    Check(cublasLtMatrixLayoutSetAttribute(layout_, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &step, sizeof step), "a batch stride");
  }
  ~MatrixLayout() { cublasLtMatrixLayoutDestroy(layout_); }
  MatrixLayout(const MatrixLayout&) = delete;
  MatrixLayout& operator=(const MatrixLayout&) = delete;
  cublasLtMatrixLayout_t get() const { return layout_; }

 private:
  cublasLtMatrixLayout_t layout_ = nullptr;
};

class BlasKernel : public Kernel {
 public:
  BlasKernel(const KernelCall& call, Libraries& libraries)
      : product_(*BlasProductOf(call)),
        type_(TypeOf(call.inputs[0].dtype)),
        blas_(libraries.blas()),
        // The left operand of the transposed product is b.
        b_(type_, product_.transpose_b ? product_.k : product_.n, product_.transpose_b ? product_.n : product_.k, product_.batch,
           product_.b_step),
        a_(type_, product_.transpose_a ? product_.m : product_.k, product_.transpose_a ? product_.k : product_.m, product_.batch,
           product_.a_step),
        d_(type_, product_.n, product_.m, product_.batch, product_.m * product_.n),
        workspace_bytes_(static_cast<size_t>(BlasScratchBytes(product_)) - kWorkspaceAlignment) {
    const bool wide = type_ == CUDA_R_64F, tf32 = type_ == CUDA_R_32F && call.attributes.Int("allow_tf32", 0) != 0;
    const cublasComputeType_t compute = wide ? CUBLAS_COMPUTE_64F : tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    Check(cublasLtMatmulDescCreate(&desc_, compute, wide ? CUDA_R_64F : CUDA_R_32F), "cublasLtMatmulDescCreate");
    Set(CUBLASLT_MATMUL_DESC_TRANSA, product_.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
    Set(CUBLASLT_MATMUL_DESC_TRANSB, product_.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
    with_sums_ = call.outputs.size() > 1 && call.outputs[1].present() && product_.epilogue != Epilogue::kGelu;
    if (product_.addend == BlasProduct::Addend::kRow || product_.epilogue != Epilogue::kNone) {
      Set(CUBLASLT_MATMUL_DESC_EPILOGUE, EpilogueOf(product_, with_sums_));
      // Heuristics want addresses; each run sets its own.
      SetAddresses(reinterpret_cast<const void*>(uintptr_t{kAlignmentBytes}), reinterpret_cast<const void*>(uintptr_t{kAlignmentBytes}));
    }
    if (has_vector()) Set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type_);
    if (has_matrix()) Set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, product_.n);
    ChooseAlgorithm(call, libraries);
  }
  ~BlasKernel() override { cublasLtMatmulDescDestroy(desc_); }
  bool has_algorithm() const { return has_algorithm_; }

  void Run(const void* const* inputs, void* const* outputs, void* scratch, void* stream) override {
    Check(Enqueue(inputs, outputs, scratch, stream), "cublasLtMatmul");
  }

 private:
  static constexpr int kMostAlgorithms = 8;

  cublasStatus_t Enqueue(const void* const* inputs, void* const* outputs, void* scratch, void* stream) {
    const bool adds = product_.addend == BlasProduct::Addend::kMatrix;
    if (has_vector() || has_matrix()) {
      SetAddresses(with_sums_     ? outputs[1]
                   : has_vector() ? inputs[2]
                                  : nullptr,
                   !has_matrix()                          ? nullptr
                   : product_.epilogue == Epilogue::kGelu ? outputs[1]
                                                          : inputs[2]);
    }
    const float alpha = static_cast<float>(product_.alpha), beta = static_cast<float>(adds ? product_.beta : 0);
    const double wide_alpha = product_.alpha, wide_beta = adds ? product_.beta : 0;
    const bool wide = type_ == CUDA_R_64F;
    void* const workspace =
        reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(scratch) + kWorkspaceAlignment - 1) & ~(kWorkspaceAlignment - 1));
    return cublasLtMatmul(blas_, desc_, wide ? static_cast<const void*>(&wide_alpha) : &alpha, inputs[1], b_.get(), inputs[0], a_.get(),
                          wide ? static_cast<const void*>(&wide_beta) : &beta, adds ? inputs[2] : outputs[0], d_.get(), outputs[0],
                          d_.get(), &algorithm_, workspace, workspace_bytes_, static_cast<cudaStream_t>(stream));
  }

  template <typename T>
  void Set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    Check(cublasLtMatmulDescSetAttribute(desc_, attribute, &value, sizeof value), "cublasLtMatmulDescSetAttribute");
  }

  // A bias, or sums that go to memory.
  bool has_vector() const { return with_sums_ || product_.addend == BlasProduct::Addend::kRow; }
  // GELU's operand, that goes to memory or comes from it.
  bool has_matrix() const { return product_.epilogue == Epilogue::kGelu || product_.epilogue == Epilogue::kGeluGrad; }

  void SetAddresses(const void* vector, const void* matrix) {
    if (has_vector()) Set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, vector);
    if (has_matrix()) Set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, matrix);
  }

  // Within the plan's scratch memory: the library's first choice, or the fastest of its first ones where that is asked for.
  void ChooseAlgorithm(const KernelCall& call, Libraries& libraries) {
    Algorithms& algorithms = libraries.algorithms();
    const std::string problem = Problem(call);
    if (const auto known = algorithms.Known(problem); known && Take(*known)) return;
    const std::vector<cublasLtMatmulAlgo_t> found = Found(algorithms.measures() ? kMostAlgorithms : 1);
    if (found.empty()) return;
    algorithm_ = found[0];
    has_algorithm_ = true;
    if (!algorithms.measures()) return;
    if (found.size() > 1) Measure(call, found, libraries);
    algorithms.Keep(problem, TextOf(algorithm_));
  }

  // What heuristics put first, at most so many.
  std::vector<cublasLtMatmulAlgo_t> Found(int most) {
    cublasLtMatmulPreference_t preference = nullptr;
    Check(cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
    const auto alignment = static_cast<uint32_t>(kAlignmentBytes);
    cublasStatus_t status = cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace_bytes_,
                                                                 sizeof workspace_bytes_);
    // Parts of a sum are joined in the type of the sum, not in 16 bits.
    const uint32_t joined = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    if (status == CUBLAS_STATUS_SUCCESS)
      status = cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &joined, sizeof joined);
    for (auto operand : {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                         CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
      if (status == CUBLAS_STATUS_SUCCESS) status = cublasLtMatmulPreferenceSetAttribute(preference, operand, &alignment, sizeof alignment);
    }
    std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<size_t>(most));
    int count = 0;
    if (status == CUBLAS_STATUS_SUCCESS) {
      status =
          cublasLtMatmulAlgoGetHeuristic(blas_, desc_, b_.get(), a_.get(), d_.get(), d_.get(), preference, most, results.data(), &count);
    }
    cublasLtMatmulPreferenceDestroy(preference);
    std::vector<cublasLtMatmulAlgo_t> found;
    // Not supported is what it says of a product for which it has nothing.
    if (status == CUBLAS_STATUS_NOT_SUPPORTED) return found;
    Check(status, "cublasLtMatmulAlgoGetHeuristic");
    for (int i = 0; i < count; ++i) {
      if (results[static_cast<size_t>(i)].state == CUBLAS_STATUS_SUCCESS) found.push_back(results[static_cast<size_t>(i)].algo);
    }
    return found;
  }

  void Measure(const KernelCall& call, const std::vector<cublasLtMatmulAlgo_t>& found, Libraries& libraries) {
    std::vector<int64_t> bytes;
    for (const auto* operands : {&call.inputs, &call.outputs}) {
      for (const OperandType& operand : *operands) bytes.push_back(operand.bytes());
    }
    bytes.push_back(static_cast<int64_t>(workspace_bytes_ + kWorkspaceAlignment));
    const auto memory = TrialMemory::Take(call.inputs[0].dtype, bytes);
    if (memory == nullptr) return libraries.Note("there is no memory to measure algorithms of a " + call.op + " in: it has the first");
    const std::vector<const void*> inputs(memory->blocks().begin(), memory->blocks().begin() + std::ssize(call.inputs));
    const std::vector<void*> outputs(memory->blocks().begin() + std::ssize(call.inputs), memory->blocks().end() - 1);
    const int best = FastestOf(static_cast<int>(found.size()), [&](int i, CUstream_st* stream) {
      algorithm_ = found[static_cast<size_t>(i)];
      return Enqueue(inputs.data(), outputs.data(), memory->blocks().back(), stream) == CUBLAS_STATUS_SUCCESS;
    });
    algorithm_ = found[static_cast<size_t>(std::max(best, 0))];
  }

  // All that the choice depends on, beside device and versions.
  std::string Problem(const KernelCall& call) const {
    std::string text = "cublasLt " + std::string(DTypeName(call.inputs[0].dtype));
    for (int64_t number :
         {product_.m, product_.n, product_.k, product_.batch, product_.a_step, product_.b_step, int64_t{product_.transpose_a},
          int64_t{product_.transpose_b}, static_cast<int64_t>(product_.addend), static_cast<int64_t>(product_.epilogue),
          int64_t{with_sums_}, call.attributes.Int("allow_tf32", 0), static_cast<int64_t>(workspace_bytes_)})
      text += " " + std::to_string(number);
    return text;
  }

  // The library documents that its description of an algorithm may be kept and used again with the same version.
  static std::string TextOf(const cublasLtMatmulAlgo_t& algorithm) {
    std::string text;
    for (uint64_t word : algorithm.data) text += (text.empty() ? "" : " ") + std::to_string(word);
    return text;
  }

  // Takes an algorithm that was kept; false where it is none for this product and this scratch memory.
  bool Take(const std::string& text) {
    std::istringstream words(text);
    for (uint64_t& word : algorithm_.data) {
      if (!(words >> word)) return false;
    }
    cublasLtMatmulHeuristicResult_t checked{};
    has_algorithm_ =
        cublasLtMatmulAlgoCheck(blas_, desc_, b_.get(), a_.get(), d_.get(), d_.get(), &algorithm_, &checked) == CUBLAS_STATUS_SUCCESS &&
        checked.workspaceSize <= workspace_bytes_;
    return has_algorithm_;
  }

  BlasProduct product_;
  cudaDataType_t type_;
  cublasLtHandle_t blas_;
  MatrixLayout b_, a_, d_;
  size_t workspace_bytes_;
  cublasLtMatmulDesc_t desc_ = nullptr;
  cublasLtMatmulAlgo_t algorithm_{};
  bool has_algorithm_ = false;
  bool with_sums_ = false;
};

std::unique_ptr<Kernel> Make(const KernelCall& call, const KernelSite& site) {
  auto kernel = std::make_unique<BlasKernel>(call, *site.libraries);
  if (kernel->has_algorithm()) return kernel;
  return StandInFor("cuBLASLt", ProductKernels(), call, site, "it knows no algorithm for the product");
}

// A product, and what its epilogue would do in kernels behind it.
class ProductAndPasses : public Kernel {
 public:
  ProductAndPasses(const KernelCall& call, const KernelSite& site) : product_(*BlasProductOf(call)), output_(call.outputs[0]) {
    KernelCall plain = call;
    plain.op = "Gemm";
    plain.domain = "";
    plain.inputs.resize(product_.addend == BlasProduct::Addend::kRow ? 3 : 2);
    plain.outputs.resize(1);
    plain_ = Make(plain, site);
    if (call.outputs.size() < 2 || !call.outputs[1].present() || product_.epilogue == Epilogue::kGelu) return;
    Tensor axes;
    const KernelCall sums = SumsOf(call, axes);
    for (const KernelRow& row : CudaReduceRows()) {
      if (row.op == sums.op) sums_ = MakeCudaKernel(row, sums, site);
    }
  }

  void Run(const void* const* inputs, void* const* outputs, void* scratch, void* stream) override {
    const bool gelu = product_.epilogue == Epilogue::kGelu;
    void* const made[] = {outputs[gelu ? 1 : 0]};
    plain_->Run(inputs, made, scratch, stream);
    const int64_t n = output_.shape.elements();
    const auto on = static_cast<cudaStream_t>(stream);
    if (product_.epilogue == Epilogue::kRelu) ReluInPlace(output_.dtype, n, outputs[0], on);
    if (gelu) GeluPass(output_.dtype, n, outputs[1], outputs[0], on);
    if (product_.epilogue == Epilogue::kGeluGrad) GeluGradInPlace(output_.dtype, n, inputs[2], outputs[0], on);
    if (sums_ == nullptr) return;
    const void* const summed[] = {product_.epilogue == Epilogue::kSumsOfA   ? inputs[0]
                                  : product_.epilogue == Epilogue::kSumsOfB ? inputs[1]
                                                                            : outputs[0],
                                  nullptr};
    sums_->Run(summed, outputs + 1, scratch, stream);
  }

 private:
  BlasProduct product_;
  OperandType output_;
  std::unique_ptr<Kernel> plain_, sums_;
};

std::unique_ptr<Kernel> MakeWithEpilogue(const KernelCall& call, const KernelSite& site) {
  std::string why = NotAsked(*BlasProductOf(call), call.inputs[0].dtype);
  if (why.empty()) {
    auto kernel = std::make_unique<BlasKernel>(call, *site.libraries);
    if (kernel->has_algorithm()) return kernel;
    why = "it knows no algorithm with the epilogue";
  }
  site.libraries->Note("cuBLASLt has nothing for a " + call.op + " of " + call.inputs[0].shape.ToString() +
                       ", a product and passes of ours over its result run: " + why);
  return std::make_unique<ProductAndPasses>(call, site);
}

constexpr CudaKernel kKernels[] = {{"cublas.MatMul", Make},
                                   {"cublas.Gemm", Make},
                                   {"cublas.gradloom.GemmRelu", MakeWithEpilogue},
                                   {"cublas.gradloom.GemmGelu", MakeWithEpilogue},
                                   {"cublas.gradloom.GemmGeluGrad", MakeWithEpilogue},
                                   {"cublas.gradloom.GemmBiasGrad", MakeWithEpilogue}};

}  // namespace

std::span<const CudaKernel> BlasKernels() { return kKernels; }

}  // namespace gradloom::cuda
