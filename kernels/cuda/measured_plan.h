// Chooses among a library's execution plans for one problem by measuring them. Independent of the library, so it is tested without one.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/dtype.h"

struct CUstream_st;

namespace gradloom::cuda {

class Libraries;

// The execution plans that a library offers for a problem, in its order of preference.
class CandidatePlans {
 public:
  virtual ~CandidatePlans() = default;
  virtual int64_t count() const = 0;
  // The name of plan i, "" if it has none, and of the plan currently chosen.
  virtual std::string name(int64_t i) const = 0;
  virtual std::string chosen() const = 0;
  // Makes plan i the chosen one. Returns false if it is not allowed, cannot be built, or needs too much scratch memory.
  virtual bool Activate(int64_t i) = 0;
  // Enqueues plan i, which Activate() accepted before. Returns false if it cannot run.
  virtual bool Enqueue(int64_t i, std::span<void* const> addresses, void* scratch, CUstream_st* stream) = 0;
};

struct MeasuredProblem {
  std::string problem;            // all that the choice depends on, besides the environment
  std::string what;               // for messages, such as "a convolution"
  DType dtype = DType::kFloat32;  // of the data at the addresses
  std::vector<int64_t> bytes;     // size of the data at each address
  int64_t scratch_bytes = 0;
};

// Takes the plan recorded for the problem. If there is none and algorithms are measured, takes the fastest of the first plans that can be
// taken, and records it. Otherwise the chosen plan stays. Adds a note to `libraries` if there is no memory to measure in.
void ChooseMeasured(CandidatePlans& plans, const MeasuredProblem& problem, Libraries& libraries);

}  // namespace gradloom::cuda
