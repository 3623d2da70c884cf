// Where the values of LSTM, GRU and RNN are: the order of operands and gates, and the offsets of a step of a sequence. The functions are
// constexpr, so that device code can call them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gradloom {

namespace recurrent {

// The inputs of LSTM; GRU and RNN have the first six. All except kLengths have gradients.
enum Input : size_t { kX, kW, kR, kB, kLengths, kInitialH, kInitialC, kPeephole };

// The blocks of `hidden` rows of W, R and B. LSTM's first three have peepholes; that of the output gate sees the new cell state.
enum LstmGate : int64_t { kInputGate, kOutputGate, kForgetGate, kCellGate };
enum GruGate : int64_t { kUpdateGate, kResetGate, kCandidateGate };
inline constexpr int64_t kPeepholes = 3;

}  // namespace recurrent

// The extents of a call. Rows of X, and of all values kept per step, are numbered as in X. All offsets are in elements.
struct RecurrentLayout {
  int64_t gates = 0;  // blocks of `hidden` in a row of W and R: 4, 3 or 1
  int64_t steps = 0, batch = 0, input = 0, hidden = 0, directions = 0;
  bool batch_first = false;  // attribute layout = 1
  bool reversed = false;     // for a single direction

  constexpr int64_t rows() const { return steps * batch; }
  constexpr int64_t width() const { return gates * hidden; }
  constexpr int64_t cells() const { return batch * hidden; }  // of one direction
  constexpr int64_t time_step() const { return batch_first ? 1 : batch; }
  constexpr int64_t batch_step() const { return batch_first ? steps : 1; }
  // The row of time t of sequence b: t * time_step() + b * batch_step().
  constexpr int64_t row(int64_t t, int64_t b) const { return batch_first ? b * steps + t : t * batch + b; }
  constexpr bool backwards(int64_t direction) const { return reversed || direction == 1; }
  // The time of step s, which must be in [0, length), of a sequence of this length. It is its own inverse.
  constexpr int64_t time(int64_t direction, int64_t s, int64_t length) const { return backwards(direction) ? length - 1 - s : s; }

  // A time of a sequence in X and Y, and a sequence in a state.
  constexpr int64_t x_at(int64_t t, int64_t b) const { return row(t, b) * input; }
  constexpr int64_t y_at(int64_t t, int64_t direction, int64_t b) const {
    return (batch_first ? (b * steps + t) * directions + direction : (t * directions + direction) * batch + b) * hidden;
  }
  constexpr int64_t state_at(int64_t direction, int64_t b) const {
    return (batch_first ? b * directions + direction : direction * batch + b) * hidden;
  }
  // A gate's rows in W and R, its bias beside W and R, and its peephole.
  constexpr int64_t w_at(int64_t direction, int64_t gate = 0) const { return (direction * width() + gate * hidden) * input; }
  constexpr int64_t r_at(int64_t direction, int64_t gate = 0) const { return (direction * width() + gate * hidden) * hidden; }
  constexpr int64_t w_bias_at(int64_t direction, int64_t gate = 0) const { return 2 * direction * width() + gate * hidden; }
  constexpr int64_t r_bias_at(int64_t direction, int64_t gate = 0) const { return (2 * direction + 1) * width() + gate * hidden; }
  constexpr int64_t peephole_at(int64_t direction, int64_t gate = 0) const { return (direction * recurrent::kPeepholes + gate) * hidden; }
};

}  // namespace gradloom
