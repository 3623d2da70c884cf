// Tables computed from operands that are nearly always constant: they are made in the first step, and again when the operands change.
#pragma once

#include <cstddef>
#include <cstring>
#include <vector>

#include "kernels/catalog/kernel.h"

namespace gradloom {

class OperandWatch {
 public:
  // Calls make() in the first step, and when an input other than the first differs in its bytes from the previous step. Passes on
  // exceptions of make.
  template <typename F>
  void RebuildIfChanged(const KernelCall& call, const void* const* inputs, F make) {
    if (!Changed(call, inputs)) return;
    try {
      make();
    } catch (...) {
      last_seen_.clear();  // nothing was made, so the next step tries again
      throw;
    }
  }

 private:
  bool Changed(const KernelCall& call, const void* const* inputs) {
    bool changed = last_seen_.empty();
    last_seen_.resize(call.inputs.size());
    for (size_t i = 1; i < call.inputs.size(); ++i) {
      const auto bytes = static_cast<size_t>(call.inputs[i].bytes());
      if (bytes == 0 || (last_seen_[i].size() == bytes && std::memcmp(last_seen_[i].data(), inputs[i], bytes) == 0)) continue;
      const auto* from = static_cast<const std::byte*>(inputs[i]);
      last_seen_[i].assign(from, from + bytes);
      changed = true;
    }
    return changed;
  }

  std::vector<std::vector<std::byte>> last_seen_;  // by input
};

}  // namespace gradloom
