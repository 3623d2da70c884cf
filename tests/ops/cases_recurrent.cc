#include "tests/ops/case_list.h"

namespace gradloom {

// One case per direction. tests/recurrent covers the options.
std::vector<OpCase> RecurrentCases() {
  std::vector<OpCase> cases;
  for (const auto& [op, gates] : {std::pair<const char*, int64_t>{"RNN", 1}, {"GRU", 3}, {"LSTM", 4}}) {
    for (const char* direction : {"forward", "reverse", "bidirectional"}) {
      const int64_t d = direction == std::string("bidirectional") ? 2 : 1, hidden = 2;
      cases.push_back({op,
                       {In({3, 2, 3}), In({d, gates * hidden, 3}), In({d, gates * hidden, hidden}), In({d, 2 * gates * hidden})},
                       {{"hidden_size", hidden}, {"direction", std::string(direction)}},
                       "",
                       2});
    }
  }
  return cases;
}

}  // namespace gradloom
