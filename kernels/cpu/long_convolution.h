// Convolutions along one axis with long windows, computed by polynomials (ring.h). The number of multiplications hardly depends on the
// windows' length.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/catalog/kernel.h"

namespace gradloom {

// y[n, o, t] = sum over channels i of the group and taps k of x[n, i, t + k - before] w[o, i, k]. For the gradient of an input x and y are
// dy and dx, and the taps go backwards; that of the weights has dy for w.
struct LongConvolution {
  int64_t images, groups, x_channels, y_channels;  // channels of a group
  int64_t x_length, y_length, taps, before;
  bool input_gradient;
  // w is stored as [O, I, taps], with O over all groups: the distance in w between two channels of x, and between two of y.
  int64_t w_x_step, w_y_step;
  // y is computed in blocks of `block` points (the last may be shorter), each in a ring of `half` (ring.h).
  int64_t block, blocks, half;

  // For a Conv, ConvGradInput or ConvGradWeight whose x and y have rank 3.
  explicit LongConvolution(const KernelCall& call);

  int64_t rows() const { return images * blocks; }  // blocks of all images
  int64_t rows_at_once() const;
  // The number of tuples of channels in a group: each has as many channels as a vector has lanes, the last may have fewer.
  int64_t x_tuples() const;
  int64_t y_tuples() const;

  // Where block `i` of y begins and what of x is under its windows: points [x_begin, x_end), the first of which is the window's point
  // `place` of the block's first point.
  struct Block {
    int64_t begin, end, x_begin, x_end, place;
  };
  Block BlockAt(int64_t i) const { return BlockOf(i, block); }

  // The number of vector instructions of a step with the ring, and with the direct convolution.
  double RingWork() const { return RingWork(blocks, half); }
  double PlainWork() const;

 private:
  Block BlockOf(int64_t i, int64_t of) const;
  int64_t HalfOf(int64_t of) const;  // of blocks of so many points
  double RingWork(int64_t of_blocks, int64_t of_half) const;
};

// "" if the operands are plain float32 and the ring needs less time than a library; else the reason.
std::string RejectsLongConvolution(const KernelCall& call);

}  // namespace gradloom
