#include "tools/run/outputs.h"

#include <filesystem>

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "tools/run/partial_files.h"
#include "tools/run/records/run_trace.h"
#include "tools/run/train/run_folder.h"

namespace gradloom {

void CheckCanWrite(const std::string& path) {
  // The file is removed unless it is committed.
  const AtomicFile probe(path);
  RemovePartialFileOnSignal(path);
}

namespace {

// Checks that a file in the folder of a new run could be written.
void CheckCanWriteInRun(const std::string& path, const Configuration& configuration, bool new_run) {
  const std::string& name = configuration.Text("run.name");
  const auto run = (std::filesystem::path(configuration.Text("run.out")) / name).lexically_normal();
  if (!new_run || name.empty() || std::filesystem::path(FolderOf(path)).lexically_normal() != run) CheckCanWrite(path);
}

}  // namespace

void CheckOutputsOfRun(const Configuration& configuration, bool new_run) {
  const std::string &trace = configuration.Text("log.trace"), &profile = configuration.Text("log.profile");
  if (!trace.empty() && !profile.empty())
    throw Error(ErrorCode::kConfig, "a run cannot be traced and profiled at once", "--profile", "omit --trace");
  if (!trace.empty()) {
    TracedSteps::Parse(configuration.Text("log.trace_steps"));
    CheckCanWriteInRun(trace, configuration, new_run);
  }
  if (!profile.empty()) CheckCanWriteInRun(profile, configuration, new_run);
  if (!new_run) return;
  RunFolder::CheckCanMake(configuration.Text("run.out"), configuration.Text("run.name"), configuration.Text("run.resume") == "auto");
}

}  // namespace gradloom
