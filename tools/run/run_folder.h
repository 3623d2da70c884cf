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
//   config.toml        the resolved configuration        plan.plan          what runs
//   data.json          columns, fitted transforms        environment.json   the machine and the command
//   metrics.jsonl, results.csv, events.out.tfevents.*    RunRecords writes them
//   state.safetensors  all state at the end              export/model.onnx  the trained model
//   log.txt            what the screen showed            logs/rank-N.log    what the other ranks of a job have to say
// Never overwrites a run.
class RunFolder {
 public:
  // What Make would refuse, as far as that can be known before; makes nothing. Throws as it.
  static void CheckCanMake(const std::string& out, const std::string& name, bool begin_again = false);

  // Makes the folder. Without a name it is exp1, exp2 ... Throws Error(kConfig) where a run of that name is
  // there already, Error(kResource) where the folder cannot be made. `begin_again`: one of which IsUnbegun is taken.
  static RunFolder Make(const std::string& out, const std::string& name, bool begin_again = false);

  // One that is there. Throws Error(kConfig) for a path that is no folder of a run.
  static RunFolder Open(const std::string& path);

  // Throws Error(kPath) where something else lies in the place of a file that a run goes on writing: a link could lead anywhere, and a
  // pipe would wait for a reader.
  void CheckWritten() const;

  // Removes what writes of dead processes left in the folder and in export/: those of weights are as large as the model. For the one
  // process that writes the run.
  void RemoveLeftovers() const;

  // Whether a path is a folder of a run.
  static bool IsRun(const std::string& path);

  // Whether a path is a folder that a run made and was ended before it had written its plan: nothing was trained in it.
  static bool IsUnbegun(const std::string& path);

  const std::string& path() const { return path_; }
  std::string File(std::string_view name) const { return path_ + "/" + std::string(name); }
  std::string PlanPath() const { return File("plan.plan"); }
  std::string ConfigPath() const { return File("config.toml"); }
  std::string StatePath() const { return File("state.safetensors"); }
  std::string ExportPath() const { return File("export/model.onnx"); }

  // State tensors of these types, each of them read when it is its turn, with the position of the run as metadata.
  void WriteState(const std::map<std::string, TensorView>& types, const std::function<Tensor(const std::string& name)>& read, int64_t step,
                  int64_t batch, int64_t seed) const;

 private:
  explicit RunFolder(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

}  // namespace gradloom
