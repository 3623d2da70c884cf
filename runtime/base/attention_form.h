// The operands of attention, and where their vectors are in memory, for the types of the operators and the kernels of every device.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "runtime/base/attributes.h"
#include "runtime/base/shape.h"

namespace gradloom {

namespace attention {

// The operands of all operators of attention (compiler/ops/attention.cc).
enum Input {
  kQ,
  kK,
  kV,
  kMask,
  kPastKey,
  kPastValue,
  kLengths,
  kInputs,  // of ONNX's operator
  // Gradients continue with those of the outputs.
  kGradY = kInputs,
  kGradPresentKey,
  kGradPresentValue,
  // Of the forward pass; both may be absent.
  kKeptY,
  kKeptLogSums,
  // With dropout: the seed, the number of the batch and the first sample, of which these are the first.
  kSeed = kInputs,
  kGradSeed = kKeptY,
};

// The results. Only Attention has scores, and only AttentionTraining log-sum-exps.
enum Output { kY, kPresentKey, kPresentValue, kScores, kLogSums };

}  // namespace attention

// One vector of `size` adjacent elements for each sample, head and position. Strides and offsets are in elements. The constexpr functions
// are also used in device code.
struct AttentionVectors {
  int64_t heads = 0, length = 0, size = 0;
  int64_t sample_stride = 0, head_stride = 0, stride = 0;  // between samples, heads and positions
  int64_t first = 0;                                       // the offset of the first vector

  AttentionVectors() = default;
  // [batch, heads, length, size], or in three dimensions [batch, length, heads * size].
  AttentionVectors(const Shape& shape, int64_t head_count);

  // The offset of a vector's first element.
  constexpr int64_t At(int64_t b, int64_t h, int64_t s) const { return first + b * sample_stride + h * head_stride + s * stride; }
};

// The vectors of Q, K and V, and of Y, of a call of attention or of its gradient, in which the gradient of an operand has the form of the
// operand.
//
// In the packed form, operand 0 has the elements of Q, K and V, in any shape, and operands 1 and 2 are absent; the gradient of operand 0
// has all three gradients. Attributes describe it:
//   q_shape, k_shape, v_shape  [batch, heads, length, size] of each
//   packed                     the order of the axes in memory, from the outermost to the innermost: B (samples), H (heads), T (positions),
//                              P (Q, K and V, one after the other) and, always last, E (elements of a vector). "BTPHE" is the result of a
//                              product with the weights of Q, K and V side by side. Axes before P have the same extent in all three
//   y_order                    the same for Y, without P; its shape has this order, too
//   q_order                    if present, Q is an operand of its own with this order, in any shape. Then operand 1 is the one that is
//                              packed, with K and V, and operand 2 is absent: cross attention
struct AttentionForm {
  enum class Packing : uint8_t { kNone, kAll, kKeysAndValues };
  Packing packing = Packing::kNone;
  int64_t batch = 0;
  AttentionVectors q, k, v, y;

  // The form of a call whose operands, of these shapes, fit the operator. Those of absent operands are ignored.
  AttentionForm(const Attributes& attributes, const Shape& q_shape, const Shape& k_shape, const Shape& v_shape);

  // The operand with the vectors of operand `i`.
  int64_t source(int64_t i) const {
    return i != 1 && i != 2 ? i : packing == Packing::kAll ? 0 : packing == Packing::kKeysAndValues ? 1 : i;
  }

  // How a call, or a node with these attributes, packs its operands.
  static Packing PackingOf(const Attributes& attributes) {
    return !attributes.has("packed") ? Packing::kNone : attributes.has("q_order") ? Packing::kKeysAndValues : Packing::kAll;
  }
  // The number of keys before (`side` = "left") or after ("right") its position that a query sees; -1: all of them. A window that is wider
  // than any sequence counts as all, so that positions can be added to it.
  static int64_t WindowOf(const Attributes& attributes, const char* side);
  // The packed form of operands with these numbers of elements, of which the second is ignored if it is absent; nullopt if the attributes
  // do not fit them or each other, and sets `why`.
  static std::optional<AttentionForm> Packed(const Attributes& attributes, int64_t elements_0, int64_t elements_1,
                                             std::string* why = nullptr);
  // The shape of Y in the packed form.
  Shape y_shape() const;

 private:
  AttentionForm() = default;

  std::string y_order_;
};

}  // namespace gradloom
