// The folder of a run.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "runtime/base/tensor.h"
#include "runtime/plan/plan.h"

namespace gradloom {

// OUT/NAME with plan.plan, state.safetensors, metrics.jsonl and export/model.onnx. Never overwrites a run.
class RunFolder {
 public:
  // Makes the folder. Without a name it is exp1, exp2 ... Throws Error(kConfig) where a run of that name is
  // there already, Error(kIo) where the folder cannot be made.
  RunFolder(const std::string& out, const std::string& name);

  const std::string& path() const { return path_; }
  std::string ExportPath() const { return path_ + "/export/model.onnx"; }

  // One line of metrics.jsonl.
  void AppendMetrics(int64_t step, int64_t epoch, double train_loss, const std::map<std::string, double>& eval);

  // All state tensors, with the position of the run as metadata.
  void WriteState(const std::map<std::string, Tensor>& state, int64_t step, int64_t batch, int64_t seed);

  void WritePlanFile(const Plan& plan);

 private:
  std::string path_;
};

}  // namespace gradloom
