// Attention as matrix products by cuBLASLt. The scores of several heads at a time are one product, which is written to scratch memory,
// turned into weights there, and multiplied by the values. Defines the products of a call and the division of scratch memory, for the rows
// and the kernels.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernels/catalog/kernel.h"
#include "kernels/cuda/rows/attention.h"
#include "kernels/cuda/rows/blas.h"
#include "kernels/cuda/rows/dnn_tensor.h"

namespace gradloom {

// A range of queries, the same in every head, and the range of keys that any of them may see. Neither is empty.
struct QueryBlock {
  int64_t first_query = 0, queries = 0, first_key = 0, keys = 0;
};

// Scores are [samples, heads of q, queries, keys] of one part and one block: `row` elements from one query to the next, `matrix` from one
// head to the next.
struct AttentionProducts {
  DType dtype = DType::kFloat32;
  double scale = 1;
  bool allow_tf32 = false, gradient = false;
  DnnTensor q, k, v, o;  // [batch, heads, positions, elements], of the whole call

  std::vector<QueryBlock> blocks;
  int64_t samples = 1,
          kv_heads = 1;  // of a part: samples divides the batch and kv_heads all heads of k; kv_heads < all heads only if samples is 1
  int64_t row = 0, matrix = 0;  // in elements

  // The matrices of a batched product need a uniform stride. If those of the operands have none, or heads of q share them, each operand's
  // part is copied to [samples, heads of q, positions, elements], and results are copied back from there.
  bool packed = false;
  // Whether the gradients of k and v are sums of one product per block, accumulated onto zeros.
  bool adds = false;

  int64_t group() const { return q.dims[1] / k.dims[1]; }  // heads of q that share a head of k
  int64_t heads() const { return kv_heads * group(); }
  int64_t matrices() const { return samples * heads(); }
  // In 16-bit types, sums over several products or heads are accumulated in float32.
  DType kv_gradient_type() const { return adds || group() > 1 ? DType::kFloat32 : dtype; }
  bool kv_gradients_apart() const { return packed || kv_gradient_type() != dtype; }

  // The scores of a part, and a tensor's part when packed.
  DnnTensor scores() const;
  DnnTensor part_of(const DnnTensor& tensor) const;
  // The layout in which products read or write an operand.
  DnnTensor operand(const DnnTensor& tensor) const { return packed ? part_of(tensor) : tensor; }

  // The products of a block. Weights are the softmax of the scores; d_scores are gradients of the scores.
  BlasProduct Scores(const QueryBlock& block) const;          // q k^T, float32
  BlasProduct Result(const QueryBlock& block) const;          // weights v
  BlasProduct WeightGradient(const QueryBlock& block) const;  // do v^T, float32
  BlasProduct QGradient(const QueryBlock& block) const;       // scale d_scores k
  BlasProduct KGradient(const QueryBlock& block) const;       // scale d_scores^T q
  BlasProduct VGradient(const QueryBlock& block) const;       // weights^T do

 private:
  BlasProduct KvGradient(const QueryBlock& block, const DnnTensor& of, const DnnTensor& with) const;
};

// The products of a call of Attention, AttentionDropout or their gradients. Returns nullopt if they cannot be used, and sets `why`.
std::optional<AttentionProducts> AttentionProductsOf(const KernelCall& call, std::string* why = nullptr);

// The division of the scratch memory, in bytes from its start. In float32 the weights overwrite the scores, and the gradients of the scores
// overwrite those of the weights.
struct AttentionScratchLayout {
  explicit AttentionScratchLayout(const AttentionProducts& products);

  int64_t scores = 0, weights = 0;      // float32, then in the operands' type
  int64_t d_weights = 0, d_scores = 0;  // the gradients of weights and scores, likewise
  int64_t q = 0, k = 0, v = 0, o = 0;   // packed operands; o, or its gradient
  int64_t dq = 0, dk = 0, dv = 0;       // packed gradients; dk and dv also if kv_gradients_apart()
  int64_t workspace = 0;                // cuBLASLt's
  int64_t bytes = 0;                    // total
};

}  // namespace gradloom
