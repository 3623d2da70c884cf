// Attention over products by cuBLASLt: the scores of some heads at a time are a product, lie in scratch memory, are weighed there, and go
// into the next product. What a call multiplies, and where things lie, as the rows ask for it and the kernels use it.
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

// Queries of every head, and the keys that one of them may see. Both are at least one.
struct QueryBlock {
  int64_t first_query = 0, queries = 0, first_key = 0, keys = 0;
};

// Scores are [samples, heads of q, queries, keys] of a part and a block: rows of `row` elements, `matrix` from one head to the next.
struct AttentionProducts {
  DType dtype = DType::kFloat32;
  double scale = 1;
  bool allow_tf32 = false, gradient = false;
  DnnTensor q, k, v, o;  // [batch, heads, positions, elements], of the whole call

  std::vector<QueryBlock> blocks;
  int64_t samples = 1, kv_heads = 1;  // of a part: a divisor of all samples and all heads, or one sample and a divisor of its heads
  int64_t row = 0, matrix = 0;        // elements

  // The matrices of a product lie at equal steps. Where those of the operands do not, or are shared by heads of q, a part of each is copied
  // to [samples, heads of q, positions, elements], and results from there.
  bool packed = false;
  // Whether the gradients of k and v are sums of a product for each block, which add to zeros.
  bool adds = false;

  int64_t group() const { return q.dims[1] / k.dims[1]; }  // heads of q that share one of k
  int64_t heads() const { return kv_heads * group(); }
  int64_t matrices() const { return samples * heads(); }
  // In 16 bits sums of several products, or heads, are float32 first.
  DType kv_gradient_type() const { return adds || group() > 1 ? DType::kFloat32 : dtype; }
  bool kv_gradients_apart() const { return packed || kv_gradient_type() != dtype; }

  // Of a part: scores, and a tensor that lies packed.
  DnnTensor scores() const;
  DnnTensor part_of(const DnnTensor& tensor) const;
  // Where products find an operand.
  DnnTensor operand(const DnnTensor& tensor) const { return packed ? part_of(tensor) : tensor; }

  // The products of a block.
  BlasProduct Scores(const QueryBlock& block) const;        // q k', float32
  BlasProduct Result(const QueryBlock& block) const;        // weights v
  BlasProduct WeightSlopes(const QueryBlock& block) const;  // do v', float32
  BlasProduct QGradient(const QueryBlock& block) const;     // scale slopes k
  BlasProduct KGradient(const QueryBlock& block) const;     // scale slopes' q
  BlasProduct VGradient(const QueryBlock& block) const;     // weights' do

 private:
  BlasProduct KvGradient(const QueryBlock& block, const DnnTensor& of, const DnnTensor& with) const;
};

// Of a call of Attention, AttentionDropout or their gradients, or nullopt, and why.
std::optional<AttentionProducts> AttentionProductsOf(const KernelCall& call, std::string* why = nullptr);

// Where things lie in scratch memory, in bytes from its start. In float32 weights lie where scores do, and their slopes where those of
// the weights were.
struct AttentionPlaces {
  explicit AttentionPlaces(const AttentionProducts& products);

  int64_t scores = 0, weights = 0;        // float32, then of the operands' type
  int64_t weight_slopes = 0, slopes = 0;  // the same, of a gradient
  int64_t q = 0, k = 0, v = 0, o = 0;     // packed; o, or its gradient
  int64_t dq = 0, dk = 0, dv = 0;         // the same, of a gradient; dk and dv also where they are apart
  int64_t workspace = 0;                  // the library's
  int64_t bytes = 0;                      // of all
};

}  // namespace gradloom
