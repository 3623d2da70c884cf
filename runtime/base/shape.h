// The extents of a tensor. Every dimension is known and at least 0: symbolic ones are fixed at import.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

namespace gradloom {

// The largest rank that is accepted anywhere.
inline constexpr int kMaxRank = 32;

class Shape {
 public:
  Shape() = default;  // a scalar
  Shape(std::initializer_list<int64_t> dims) : dims_(dims) {}
  explicit Shape(std::vector<int64_t> dims) : dims_(std::move(dims)) {}

  int rank() const { return static_cast<int>(dims_.size()); }
  int64_t operator[](int axis) const { return dims_[static_cast<size_t>(axis)]; }
  int64_t& operator[](int axis) { return dims_[static_cast<size_t>(axis)]; }
  const std::vector<int64_t>& dims() const { return dims_; }
  auto begin() const { return dims_.begin(); }
  auto end() const { return dims_.end(); }
  void push_back(int64_t dim) { dims_.push_back(dim); }

  // The product of the extents; 1 for a scalar. Throws Error(kShape) if it exceeds 2^63 - 1.
  int64_t elements() const;

  // The same without throwing.
  std::optional<int64_t> checked_elements() const;

  // Row-major strides in elements.
  std::vector<int64_t> strides() const;

  // Without the extents of 1.
  Shape Squeezed() const;

  // "[2,3]"; "[]" for a scalar.
  std::string ToString() const;

  bool operator==(const Shape&) const = default;

 private:
  std::vector<int64_t> dims_;
};

// Numpy's broadcast of two shapes, or nullopt if they do not fit.
std::optional<Shape> Broadcast(const Shape& a, const Shape& b);

// The product of the extents of axes [begin, end), for a shape whose elements have been counted.
inline int64_t Product(const Shape& shape, int begin, int end) {
  int64_t product = 1;
  for (int axis = begin; axis < end; ++axis) product *= shape[axis];
  return product;
}

// `axis` in [-rank, rank) as one in [0, rank), or nullopt.
std::optional<int> NormalAxis(int64_t axis, int rank);

}  // namespace gradloom
