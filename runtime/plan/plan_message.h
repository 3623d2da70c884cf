// Converts plans to protobuf messages and back, for plan_file.cc.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "runtime/plan/plan.h"
#include "runtime/plan/plan_file.h"

namespace gradloom {

// A plan in two parts: its serialized message, and the pieces of the data section in order, each at a multiple of kAlignmentBytes. They
// point into the plan that was encoded.
struct EncodedPlan {
  struct Piece {
    const void* data;
    int64_t offset;
    int64_t bytes;
  };
  std::string message;
  std::vector<Piece> pieces;
  int64_t data_bytes = 0;
};

// Throws Error(kLimit) if the message is longer than kMaxMessageBytes.
EncodedPlan EncodePlan(const Plan& plan);

inline constexpr int64_t kMaxMessageBytes = int64_t{128} << 20;

// Reads `bytes` bytes of the data section from `offset`, both in range.
using ReadData = std::function<void(int64_t offset, void* out, int64_t bytes)>;

// The inverse of EncodePlan, without the tensors if those are kSkipped. Throws Error(kPlan) for a message that no plan encodes to.
Plan DecodePlan(const std::string& message, int64_t data_bytes, const ReadData& read, PlanTensors tensors);

}  // namespace gradloom
