// Describes a call of LSTM, GRU or RNN, of a training form or of a gradient, for the kernels of every device.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "kernels/catalog/kernel.h"

namespace gradloom {

// The extents of a call, which must have X, W and R. Rows of X, and of all values kept per step, are numbered as in X: time t and sequence
// b have row t * time_step() + b * batch_step().
struct RecurrentExtents {
  explicit RecurrentExtents(const KernelCall& call);

  int64_t gates;            // blocks of `hidden` in a row of W and R: 4, 3 or 1
  size_t inputs, outputs;   // of the forward operator; the gradient has both as inputs, then Y and the values kept by the training form
  bool gradient, training;  // the form of the call
  int64_t steps, batch, input, hidden, directions;
  bool batch_first, has_lengths;
  bool reversed;    // for a single direction
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

  int64_t rows() const { return steps * batch; }
  int64_t width() const { return gates * hidden; }
  int64_t cells() const { return batch * hidden; }  // of one direction
  int64_t time_step() const { return batch_first ? 1 : batch; }
  int64_t batch_step() const { return batch_first ? steps : 1; }
  int64_t row(int64_t time, int64_t b) const { return time * time_step() + b * batch_step(); }
  bool backwards(int64_t direction) const { return reversed || direction == 1; }

  // Offsets, in elements, of a step of a sequence in X, Y and a state.
  int64_t x_at(int64_t time, int64_t b) const { return row(time, b) * input; }
  int64_t y_at(int64_t time, int64_t direction, int64_t b) const {
    return (batch_first ? (b * steps + time) * directions + direction : (time * directions + direction) * batch + b) * hidden;
  }
  int64_t state_at(int64_t direction, int64_t b) const {
    return (batch_first ? b * directions + direction : direction * batch + b) * hidden;
  }
};

// Returns "" if the activations are the operator's defaults, or Relu for RNN, and nothing is clipped or coupled; otherwise what differs.
std::string UnusualCells(const KernelCall& call);

}  // namespace gradloom
