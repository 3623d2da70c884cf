// One table of operator cases drives every check: types, forward values, gradients, and each backend against the oracle. A case is an
// operator with its operands and attributes.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "compiler/graph/builder.h"
#include "compiler/graph/graph.h"

namespace gradloom {

// An operand and how its values are drawn. Floating-point operands are float32 in the table; a check may build the case in another type.
struct OpOperand {
  enum class Values {
    kAbsent,    // an absent optional operand
    kUniform,   // floating-point in [low, high); integers in {low, ..., high - 1}; bool with equal probability
    kDistinct,  // a permutation of equally spaced values from `low` to `high`, so that no two elements are close
    kFixed,     // `data`, known at compile time
    kFed,       // `data`, fed at run time
  };
  Values values = Values::kUniform;
  DType dtype = DType::kFloat32;
  Shape shape;
  double low = -1, high = 1;
  Tensor data;
};

// Shorthands for tables.
OpOperand In(Shape shape, double low = -2, double high = 2);  // float32, uniform
OpOperand Distinct(Shape shape, double low = -2, double high = 2);
OpOperand Bools(Shape shape);
OpOperand Indices(Shape shape, int64_t low, int64_t past);  // int64, fed
OpOperand Ints(std::vector<int64_t> values);                // int64[n], known at compile time
OpOperand Int(int64_t value);                               // int64[], known at compile time
OpOperand Fixed(std::vector<double> values, Shape shape);   // float32, known at compile time
OpOperand Fed(std::vector<double> values, Shape shape);     // float32, fed and differentiated
OpOperand Fed(Tensor data);                                 // fed
OpOperand Absent();

struct OpCase {
  std::string op;
  std::vector<OpOperand> operands = {};
  Attributes attributes = {};
  std::string domain = "";
  int outputs = 1;
  std::string note = {};  // what distinguishes the case, for its name
  // Whether the gradients of the fed floating operands are checked against finite differences.
  bool gradient = true;
  // Whether forward values are also compared in float16 and bfloat16. False if rounding decides a branch.
  bool half = true;
  // Whether the operator supports float64. If not, the case is built in float32 and still computed in float64.
  bool float64 = true;
  // The maximum difference between gradients and finite differences, relative to the largest element.
  double tolerance = 1e-6;

  std::string Name() const;  // "Clip #note float32[2,3] ..."
};

// A case as a graph: operands as inputs or constants, and one node.
struct OpProgram {
  std::unique_ptr<Graph> graph;
  std::map<ValueId, Tensor> feeds;
  std::vector<ValueId> outputs;
  std::vector<ValueId> wanted;  // the fed operands of the floating-point type
};

// Builds the case with `floating` instead of float32 in operands, `to` and `dtype`. Values depend only on the case's name.
OpProgram BuildOpCase(const OpCase& op_case, const TypeRules& rules, DType floating);

// Appends a loss, the sum of all floating-point outputs with random weights, and returns it.
ValueId AddLoss(OpProgram& program, const TypeRules& rules);

// Every case of every family (case_list.cc).
const std::vector<OpCase>& AllOpCases();

}  // namespace gradloom
