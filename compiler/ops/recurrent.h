// The differences between LSTM, GRU and RNN.
#pragma once

#include <cstdint>
#include <string_view>

namespace gradloom {

struct RecurrentKind {
  std::string_view op;
  std::string_view gradient;  // takes the operator's inputs, the gradients of its outputs and, if they are kept, Y and the steps
  std::string_view training;  // the form with one more output, the values kept of each step; "" if the gradient needs only Y
  int64_t gates;
  int inputs;
  int outputs;
  int activations;  // per direction
};

inline constexpr RecurrentKind kLstm{"LSTM", "LstmGrad", "LstmTraining", 4, 8, 3, 3};
inline constexpr RecurrentKind kGru{"GRU", "GruGrad", "GruTraining", 3, 6, 2, 2};
inline constexpr RecurrentKind kRnn{"RNN", "RnnGrad", "", 1, 6, 2, 1};
inline constexpr const RecurrentKind* kRecurrentKinds[] = {&kLstm, &kGru, &kRnn};

}  // namespace gradloom
