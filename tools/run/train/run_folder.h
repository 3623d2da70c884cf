// The folder of a run.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "runtime/base/tensor.h"

namespace gradloom {

// OUT/NAME with
//   config.toml        the resolved configuration        plan.plan          the plan that runs
//   data.json          columns, fitted transforms        environment.json   the machine and the command
//   metrics.jsonl, results.csv, events.out.tfevents.*    written by RunRecords
//   state.safetensors  all state at the end              export/model.onnx  the trained model
//   log.txt            the output on the screen          logs/rank-N.log    the output of other ranks of a job
// Never overwrites a run.
class RunFolder {
 public:
  // Checks in advance whether Make would refuse, without creating anything. Throws as Make.
  static void CheckCanMake(const std::string& out, const std::string& name, bool begin_again = false);

  // Creates the folder. Without a name it is exp1, exp2 ... Throws Error(kConfig) if a run with that name exists, Error(kResource) if the
  // folder cannot be created. `begin_again`: a folder for which HasNoPlan is true is reused.
  static RunFolder Make(const std::string& out, const std::string& name, bool begin_again = false);

  // Opens an existing run. Throws Error(kConfig) for a path that is not the folder of a run.
  static RunFolder Open(const std::string& path);

  // Throws Error(kPath) if a file that a run appends to is not a regular file: a link could lead anywhere, and a pipe would wait for a
  // reader.
  void CheckWritten() const;

  // Removes temporary files of dead processes in the folder and in export/; those of weights are as large as the model. Only for the
  // process that writes the run.
  void RemoveLeftovers() const;

  // Whether the path is the folder of a run.
  static bool IsRun(const std::string& path);

  // Whether the path is the folder of a run that ended before it wrote its plan, so that nothing was trained in it.
  static bool HasNoPlan(const std::string& path);

  const std::string& path() const { return path_; }
  std::string File(std::string_view name) const { return path_ + "/" + std::string(name); }
  std::string PlanPath() const { return File("plan.plan"); }
  std::string ConfigPath() const { return File("config.toml"); }
  std::string StatePath() const { return File("state.safetensors"); }
  std::string ExportPath() const { return File("export/model.onnx"); }

  // Writes state tensors of these types, each read only when it is written, with the position of the run as metadata.
  void WriteState(const std::map<std::string, TensorView>& types, const std::function<Tensor(const std::string& name)>& read, int64_t step,
                  int64_t batch, int64_t seed) const;

 private:
  explicit RunFolder(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

}  // namespace gradloom
