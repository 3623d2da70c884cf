// The choice among a library's plans for one problem, where that is measured: apart from the library, so that it is tested without one.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/dtype.h"

struct CUstream_st;

namespace gradloom::cuda {

class Libraries;

// What a library offers for a problem, in its order.
class OfferedPlans {
 public:
  virtual ~OfferedPlans() = default;
  virtual int64_t count() const = 0;
  // "" where it has none; `chosen`: of the plan that the problem has now.
  virtual std::string name(int64_t i) const = 0;
  virtual std::string chosen() const = 0;
  // Makes it the plan of the problem; false where it may not be, cannot be built, or needs more scratch memory than there is.
  virtual bool Take(int64_t i) = 0;
  // Enqueues it, which was taken once; false where it cannot run.
  virtual bool Enqueue(int64_t i, std::span<void* const> addresses, void* scratch, CUstream_st* stream) = 0;
};

struct MeasuredProblem {
  std::string problem;            // all that the choice depends on, beside device and versions
  std::string what;               // "a convolution"
  DType dtype = DType::kFloat32;  // of what lies at its addresses
  std::vector<int64_t> bytes;     // at each of them
  int64_t scratch_bytes = 0;
};

// Takes the plan that was chosen for the problem before, or, where algorithms are measured, the fastest of the first ones that can be
// taken, which is kept. Where neither is there, what was chosen stays. Libraries' notes say where there is no memory to measure in.
void ChooseMeasured(OfferedPlans& plans, const MeasuredProblem& problem, Libraries& libraries);

}  // namespace gradloom::cuda
