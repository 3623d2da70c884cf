// Copies operands whose rows are a multiple of 4 KiB apart, for oneDNN's matrix product on processors without AVX-512.
#pragma once

#include <cstdint>
#include <string_view>

namespace gradloom {

// The extents, and the strides in elements, of c[m, n] = a[m, k] b[k, n].
struct ProductExtents {
  int64_t m = 0, n = 0, k = 0;
  int64_t a_row = 0, a_col = 0, b_row = 0, b_col = 0;
};

// That product packs its operands by reading across their rows. If the rows are a multiple of 4 KiB apart, all these elements are in the
// same few sets of the caches, and the product runs at half its speed. A copy whose rows are one cache line longer costs less than it
// gains. At most one operand is copied: the one that is packed repeatedly, or for few rows of c.
class PaddedOperand {
 public:
  PaddedOperand() = default;
  // `implementation`: oneDNN's name of the implementation that computes the product of float32 matrices.
  PaddedOperand(std::string_view implementation, const ProductExtents& product);

  bool is_a() const { return a_; }
  bool is_b() const { return b_; }
  bool any() const { return a_ || b_; }
  int64_t row() const { return width_ + kPadding; }  // elements between rows of the copy
  int64_t bytes() const { return any() ? rows_ * row() * static_cast<int64_t>(sizeof(float)) : 0; }

  // If an operand is to be copied, copies it to the first bytes() of `scratch`, replaces its address, and advances `scratch`.
  void Copy(const void*& a, const void*& b, void*& scratch, int threads) const;

 private:
  static constexpr int64_t kPadding = 16;  // a cache line, so that rows stay aligned

  bool a_ = false, b_ = false;
  int64_t rows_ = 0, width_ = 0;
};

}  // namespace gradloom
