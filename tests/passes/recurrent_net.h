// Small networks around one recurrent operator.
#pragma once

#include <cstdint>
#include <random>
#include <string>

#include "tests/passes/small_training.h"

namespace gradloom {

struct RecurrentCase {
  std::string op, attributes;  // the attributes after hidden_size
  int64_t gates, directions;
  bool reads_y = true;  // besides the last state
  int64_t hidden = 8;
};

// x [N, 4, 3], from which come [N, directions * hidden] and then 2 classes z, as a model's text. Weights are drawn.
inline std::string RecurrentNet(const RecurrentCase& c, std::mt19937& random) {
  const int64_t d = c.directions, width = c.gates * c.hidden;
  return "g (float[N, 4, 3] x) => (float[N, 2] z)\n<" + Weights(random, "w", {d, width, 3}) + ",\n" +
         Weights(random, "r", {d, width, c.hidden}) + ",\n" + Weights(random, "b", {d, 2 * width}) + ",\n" +
         Weights(random, "v", {d * c.hidden, 2}) +
         ",\nint64[1] first = {0}, int64[2] flat = {0, -1}> {\n  t = Transpose <perm = [1, 0, 2]> (x)\n  y, h = " + c.op +
         " <hidden_size = " + std::to_string(c.hidden) + c.attributes + "> (t, w, r, b)\n" +
         (c.reads_y ? "  sum = ReduceSum <keepdims = 0> (y, first)\n  all = Add (sum, h)\n" : "  all = Identity (h)\n") +
         "  samples = Transpose <perm = [1, 0, 2]> (all)\n  rows = Reshape (samples, flat)\n  z = MatMul (rows, v)\n}\n";
}

}  // namespace gradloom
