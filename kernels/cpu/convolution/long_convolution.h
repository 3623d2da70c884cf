// Convolutions along one axis with long windows, computed by polynomial products (ring.h). The number of multiplications hardly depends on
// the length of the windows.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/catalog/kernel.h"

namespace gradloom {

// y[n, o, t] = the sum over channels i of the group and taps k of x[n, i, t + k - before] w[o, i, k]. For the gradient of the input, x and
// y are dy and dx, and the taps are reversed; for the gradient of the weights, w is dy.
struct LongConvolution {
  int64_t images, groups, x_channels, y_channels;  // channels per group
  int64_t x_length, y_length, taps, before;
  bool input_gradient;
  // w is stored as [O, I, taps], with O over all groups. The strides in w of a channel of x, and of a channel of y.
  int64_t w_x_step, w_y_step;
  // y is computed in blocks of `block` points (the last may be shorter), each in a ring of `half` (ring.h).
  int64_t block, blocks, half;

  // For a Conv, ConvGradInput or ConvGradWeight whose x and y have rank 3.
  explicit LongConvolution(const KernelCall& call);

  int64_t rows() const { return images * blocks; }  // blocks of all images
  int64_t rows_at_once() const;
  // The number of channel tuples in a group. A tuple has as many channels as a vector has lanes; the last may have fewer.
  int64_t x_tuples() const;
  int64_t y_tuples() const;

  // Block `i` of y, and the part of x under its windows: points [x_begin, x_end). x_begin is point `place` of the window of the block's
  // first point.
  struct Block {
    int64_t begin, end, x_begin, x_end, place;
  };
  Block BlockAt(int64_t i) const { return BlockOf(i, block); }

  // The number of vector instructions per step with the ring, and with direct convolution.
  double RingWork() const { return RingWork(blocks, half); }
  double PlainWork() const;

 private:
  Block BlockOf(int64_t i, int64_t of) const;
  int64_t HalfOf(int64_t of) const;  // for blocks of `of` points
  double RingWork(int64_t of_blocks, int64_t of_half) const;
};

// Returns "" if the operands are plain float32 and the ring is faster than a library, else the reason.
std::string RejectsLongConvolution(const KernelCall& call);

}  // namespace gradloom
