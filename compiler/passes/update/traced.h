// Numbers that record the operations on them. A formula that is a template over its number type (kernels/scalar/optimizers.h,
// runtime/plan/schedule_formula.h) runs on them as on floats, and produces nodes of a graph.
#pragma once

#include <cmath>
#include <cstdint>

#include "compiler/graph/builder.h"
#include "runtime/base/error.h"

namespace gradloom {

// A known truth value, or a bool tensor of a graph.
class TracedBool {
 public:
  TracedBool(bool known) : known_(known) {}
  TracedBool(GraphBuilder& builder, ValueId id) : b_(&builder), id_(id) {}

  bool is_known() const { return b_ == nullptr; }
  // A formula branches only on known values, and uses Select for everything else.
  explicit operator bool() const {
    GRADLOOM_CHECK(is_known());
    return known_;
  }
  GraphBuilder& builder() const { return *b_; }
  ValueId id() const { return id_; }

  friend TracedBool operator&&(const TracedBool& a, const TracedBool& b) {
    if (a.is_known()) return a.known_ ? b : a;
    if (b.is_known()) return b.known_ ? a : b;
    return {*a.b_, a.b_->Op("And", {a.id_, b.id_})};
  }

 private:
  bool known_ = false;
  GraphBuilder* b_ = nullptr;
  ValueId id_ = kNoValue;
};

// A constant, rounded to T like the formula's own, or a tensor of a graph with elements of T. Operands broadcast.
template <typename T>
class Traced {
 public:
  Traced(double constant) : constant_(static_cast<T>(constant)) {}
  Traced(GraphBuilder& builder, ValueId id) : b_(&builder), id_(id) {}
  template <typename From>
  explicit Traced(const Traced<From>& from) : constant_(static_cast<T>(from.constant())), b_(from.builder()) {
    if (b_ == nullptr) return;
    // A value that was only widened is narrowed by using its original.
    const bool back = from.narrow() != kNoValue && b_->dtype(from.narrow()) == DTypeOf<T>::value;
    id_ = back ? from.narrow() : b_->Cast(from.id(), DTypeOf<T>::value);
    if (sizeof(T) > sizeof(From)) narrow_ = from.id();
  }

  bool is_known() const { return b_ == nullptr; }
  T constant() const { return constant_; }
  GraphBuilder* builder() const { return b_; }
  ValueId id() const { return id_; }
  ValueId narrow() const { return narrow_; }

  // The value in the graph; a constant is added to the graph.
  ValueId In(GraphBuilder& builder) const { return is_known() ? builder.Scalar(static_cast<double>(constant_), DTypeOf<T>::value) : id_; }

  Traced operator-() const { return is_known() ? Traced(static_cast<double>(-constant_)) : Traced(*b_, b_->Neg(id_)); }
  friend Traced operator+(const Traced& a, const Traced& b) {
    return Binary("Add", a, b, [](T x, T y) { return x + y; });
  }
  friend Traced operator-(const Traced& a, const Traced& b) {
    return Binary("Sub", a, b, [](T x, T y) { return x - y; });
  }
  friend Traced operator*(const Traced& a, const Traced& b) {
    if (a.is_one()) return b;
    if (b.is_one()) return a;
    return Binary("Mul", a, b, [](T x, T y) { return x * y; });
  }
  friend Traced operator/(const Traced& a, const Traced& b) {
    if (b.is_one()) return a;
    return Binary("Div", a, b, [](T x, T y) { return x / y; });
  }
  Traced& operator+=(const Traced& other) { return *this = *this + other; }
  Traced& operator-=(const Traced& other) { return *this = *this - other; }
  Traced& operator*=(const Traced& other) { return *this = *this * other; }

  friend TracedBool operator<(const Traced& a, const Traced& b) {
    return Compare("Less", a, b, [](T x, T y) { return x < y; });
  }
  friend TracedBool operator>(const Traced& a, const Traced& b) {
    return Compare("Greater", a, b, [](T x, T y) { return x > y; });
  }
  // Uses Less, which is older than LessOrEqual; the numbers compared here are never NaN.
  friend TracedBool operator<=(const Traced& a, const Traced& b) {
    const TracedBool more = b < a;
    return more.is_known() ? TracedBool(!static_cast<bool>(more)) : TracedBool(more.builder(), more.builder().Op("Not", {more.id()}));
  }
  friend bool operator!=(const Traced& a, const Traced& b) {
    GRADLOOM_CHECK(a.is_known() && b.is_known());
    return a.constant_ != b.constant_;
  }

  friend Traced Select(const TracedBool& condition, const Traced& a, const Traced& b) {
    if (condition.is_known()) return static_cast<bool>(condition) ? a : b;
    GraphBuilder& builder = condition.builder();
    return {builder, builder.Where(condition.id(), a.In(builder), b.In(builder))};
  }
  friend Traced Smaller(const Traced& a, const Traced& b) {
    return Binary("Min", a, b, [](T x, T y) { return x < y ? x : y; });
  }
  friend Traced Root(const Traced& x) {
    return Unary("Sqrt", x, [](T v) { return std::sqrt(v); });
  }
  friend Traced cos(const Traced& x) {
    return Unary("Cos", x, [](T v) { return std::cos(v); });
  }
  friend Traced exp(const Traced& x) {
    return Unary("Exp", x, [](T v) { return std::exp(v); });
  }
  friend Traced pow(const Traced& x, const Traced& y) {
    return Binary("Pow", x, y, [](T a, T b) { return std::pow(a, b); });
  }

 private:
  bool is_one() const { return is_known() && constant_ == T(1); }

  template <typename F>
  static Traced Unary(const char* op, const Traced& x, F f) {
    return x.is_known() ? Traced(static_cast<double>(f(x.constant_))) : Traced(*x.b_, x.b_->Op(op, {x.id_}));
  }
  template <typename F>
  static Traced Binary(const char* op, const Traced& a, const Traced& b, F f) {
    if (a.is_known() && b.is_known()) return Traced(static_cast<double>(f(a.constant_, b.constant_)));
    GraphBuilder& builder = a.is_known() ? *b.b_ : *a.b_;
    return {builder, builder.Op(op, {a.In(builder), b.In(builder)})};
  }
  template <typename F>
  static TracedBool Compare(const char* op, const Traced& a, const Traced& b, F f) {
    if (a.is_known() && b.is_known()) return f(a.constant_, b.constant_);
    GraphBuilder& builder = a.is_known() ? *b.b_ : *a.b_;
    return {builder, builder.Op(op, {a.In(builder), b.In(builder)})};
  }

  T constant_ = 0;
  GraphBuilder* b_ = nullptr;
  ValueId id_ = kNoValue;
  ValueId narrow_ = kNoValue;  // the value that this was cast from, if that has fewer bytes
};

}  // namespace gradloom
