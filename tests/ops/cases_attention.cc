#include "tests/ops/case_list.h"

namespace gradloom {

std::vector<OpCase> AttentionCases() {
  // Scores and weights are computed in double; float16 is not supported yet.
  const int64_t one = 1;
  const OpOperand q = In({2, 2, 3, 4}, -1, 1), k = In({2, 1, 5, 4}, -1, 1), v = In({2, 1, 5, 3}, -1, 1);
  // Seed, batch number and first sample, for samples 1 and 2 of a batch of 5.
  const auto number = [](int64_t n) { return Fed(Tensor::Scalar<int64_t>(n)); };
  const Attributes dropped{{"ratio", 0.4}, {"origin", int64_t{17}}, {"samples", std::vector<int64_t>{5, 2, 30}}};
  return {
      {.op = "AttentionDropout",
       .operands = {q, k, v, In({3, 5}), Absent(), Absent(), Absent(), number(3), number(8), number(1)},
       .attributes = dropped,
       .domain = "gradloom",
       .half = false},
      {.op = "Attention", .operands = {q, k, v}, .half = false},
      {.op = "Attention", .operands = {q, k, v, Bools({3, 5})}, .note = "a mask of truth values", .half = false},
      {.op = "Attention", .operands = {q, k, v, In({3, 5})}, .attributes = {{"is_causal", one}, {"softcap", 2.0}}, .half = false},
      {.op = "Attention",
       .operands = {In({2, 3, 8}, -1, 1), In({2, 5, 4}, -1, 1), In({2, 5, 6}, -1, 1)},
       .attributes = {{"q_num_heads", int64_t{4}}, {"kv_num_heads", int64_t{2}}, {"scale", 0.3}},
       .note = "heads side by side",
       .half = false},
      {.op = "Attention",
       .operands = {In({6, 32}, -1, 1), Absent(), Absent()},
       .attributes = {{"packed", std::string("BTPHE")},
                      {"y_order", std::string("HBTE")},
                      {"q_shape", std::vector<int64_t>{2, 4, 3, 4}},
                      {"k_shape", std::vector<int64_t>{2, 2, 3, 4}},
                      {"v_shape", std::vector<int64_t>{2, 2, 3, 4}}},
       .domain = "gradloom",
       .note = "Q, K and V in one operand",
       .gradient = false,
       .half = false},
      {.op = "Attention",
       .operands = {q, k, v, Absent(), In({2, 1, 2, 4}), In({2, 1, 2, 3})},
       .outputs = 3,
       .note = "past keys and values",
       .half = false},
      {.op = "AttentionTraining",
       .operands = {q, k, v, Bools({3, 5}), In({2, 1, 2, 4}), In({2, 1, 2, 3})},
       .attributes = {{"is_causal", one}},
       .domain = "gradloom",
       .outputs = 5,
       .gradient = false,
       .half = false},
  };
}

}  // namespace gradloom
