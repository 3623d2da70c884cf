#include "tools/gradloom/run_folder.h"

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "runtime/base/error.h"
#include "runtime/plan/plan_file.h"
#include "runtime/session/safetensors.h"
#include "tools/gradloom/screen.h"

namespace gradloom {

namespace fs = std::filesystem;

RunFolder::RunFolder(const std::string& out, const std::string& name) {
  std::error_code error;
  fs::create_directories(out, error);
  if (!name.empty()) {
    path_ = (fs::path(out) / name).string();
    if (!fs::create_directory(path_, error)) {
      if (error) throw Error(ErrorCode::kIo, "cannot make the folder '" + Escaped(path_) + "': " + error.message());
      throw Error(ErrorCode::kConfig, "there is a run '" + Escaped(path_) + "' already; runs are never overwritten", "",
                  "give another --name, or remove the folder");
    }
  } else {
    // Whoever makes the folder has it: two runs that start together get two.
    for (int i = 1; path_.empty(); ++i) {
      const std::string candidate = (fs::path(out) / ("exp" + std::to_string(i))).string();
      if (fs::create_directory(candidate, error)) path_ = candidate;
      if (error) throw Error(ErrorCode::kIo, "cannot make the folder '" + Escaped(candidate) + "': " + error.message());
    }
  }
  fs::create_directory(fs::path(path_) / "export", error);
  if (error) throw Error(ErrorCode::kIo, "cannot make a folder in '" + Escaped(path_) + "': " + error.message());
}

void RunFolder::AppendMetrics(int64_t step, int64_t epoch, double train_loss, const std::map<std::string, double>& eval) {
  nlohmann::json line{{"t", Timestamp()}, {"step", step}, {"epoch", epoch}, {"split", "train"}, {"loss", train_loss}};
  std::ofstream file(path_ + "/metrics.jsonl", std::ios::app);
  file << line.dump() << "\n";
  if (!eval.empty()) {
    nlohmann::json measured{{"t", Timestamp()}, {"step", step}, {"epoch", epoch}, {"split", "eval"}};
    for (const auto& [name, value] : eval) measured[name] = value;
    file << measured.dump() << "\n";
  }
  if (!file.flush()) throw Error(ErrorCode::kResource, "cannot write '" + Escaped(path_) + "/metrics.jsonl'");
}

void RunFolder::WriteState(const std::map<std::string, Tensor>& state, int64_t step, int64_t batch, int64_t seed) {
  WriteSafetensors(path_ + "/state.safetensors", state,
                   {{"step", std::to_string(step)}, {"batch", std::to_string(batch)}, {"seed", std::to_string(seed)}});
}

void RunFolder::WritePlanFile(const Plan& plan) { WritePlan(plan, path_ + "/plan.plan"); }

}  // namespace gradloom
