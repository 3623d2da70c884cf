// Measures the figures of this machine's CPU from which the simulator predicts times.
#pragma once

#include "compiler/cost/cluster.h"

namespace gradloom {

struct MeasuredDevice {
  // Rounded to four digits. The devices are CPU devices of this machine, which share its cores.
  Cluster cluster;
  // Of the measurements of one thread: by how much their times vary, that is the largest distance between the quartiles of one, divided by
  // its median; and the share of the time in which the thread did not have a core.
  double variation = 0, waited = 0;
  double seconds = 0;  // that all measurements took

  // Whether something else was running.
  bool busy() const { return variation > 0.25 || waited > 0.05; }
};

// Compiles small models and runs them as any other, one after the other: products of matrices, functions and sums of tensors that lie in
// the caches and beyond them, chains of tiny operators, and steps of two devices. Every figure is the one with which the simulator predicts
// the median of the times measured. Takes a few seconds. Throws Error(kResource).
MeasuredDevice MeasureCpu();

}  // namespace gradloom
