// Describes a call of LSTM, GRU or RNN, of a training form or of a gradient, for the kernels of every device.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "kernels/catalog/kernel.h"
#include "kernels/catalog/recurrent_layout.h"

namespace gradloom {

// The layout and the form of a call, which must have X, W and R.
struct RecurrentExtents : RecurrentLayout {
  explicit RecurrentExtents(const KernelCall& call);

  size_t inputs, outputs;   // of the forward operator; the gradient has both as inputs, then Y and the values kept by the training form
  bool gradient, training;  // the form of the call
  bool has_lengths;
  bool linear;      // GRU: linear_before_reset
  bool relu;        // RNN: ReLU instead of tanh, if UnusualCells is empty
  bool recomputes;  // a gradient that does not get the results of the forward pass
  int64_t kept;     // kept blocks per row: gates, then LSTM's cell state or a linear GRU's product

  // "LSTM", "GRU" or "RNN".
  std::string_view forward_op() const { return gates == 4 ? "LSTM" : gates == 3 ? "GRU" : "RNN"; }

  // For a gradient: the inputs with the gradient of an output, with Y, and with the values kept by the training form.
  size_t grad(size_t output) const { return inputs + output; }
  size_t saved_y() const { return inputs + outputs; }
  size_t saved_rows() const { return inputs + outputs + 1; }

  // A GRU with linear_before_reset = 0: the candidate's product needs the reset gate.
  bool resets() const { return gates == 3 && !linear; }
  // The number of gates whose rows of R multiply the state itself.
  int64_t plain_gates() const { return resets() ? 2 : gates; }
};

// Returns "" if the activations are the operator's defaults, or Relu for RNN, and nothing is clipped or coupled; otherwise what differs.
std::string UnusualCells(const KernelCall& call);

}  // namespace gradloom
