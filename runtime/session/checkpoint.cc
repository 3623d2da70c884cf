#include "runtime/session/checkpoint.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <system_error>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/hash.h"
#include "runtime/session/safetensors.h"

namespace gradloom {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxManifestBytes = int64_t{64} << 20;
constexpr size_t kNamedDifferences = 4;

[[noreturn]] void Refuse(const std::string& message, const std::string& where, const std::string& help = "") {
  throw Error(ErrorCode::kCheckpoint, message, where, help);
}

// A symbolic link could lead anywhere.
void CheckFile(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::symlink_status(path, error);
  if (status.type() == fs::file_type::not_found) Refuse("'" + fs::path(path).filename().string() + "' is absent", Escaped(path, 4096));
  if (status.type() != fs::file_type::regular) Refuse("not a regular file", Escaped(path, 4096));
}

std::string ReadFile(const std::string& folder, const CheckpointFile& file, int64_t limit_bytes) {
  const std::string path = folder + "/" + file.name;
  CheckFile(path);
  const InputFile input(path, limit_bytes);
  if (input.bytes() != file.bytes) {
    Refuse("the file has " + std::to_string(input.bytes()) + " bytes, the manifest says " + std::to_string(file.bytes),
           Escaped(path, 4096));
  }
  std::string content(static_cast<size_t>(input.bytes()), '\0');
  input.ReadAt(0, content.data(), input.bytes());
  if (HashOf(content) != file.hash) Refuse("the file is damaged: its contents do not match their hash", Escaped(path, 4096));
  return content;
}

std::string TypeText(DType dtype, const Shape& shape) { return std::string(DTypeName(dtype)) + shape.ToString(); }

std::string Listed(const std::vector<std::string>& differences) {
  std::string text;
  for (size_t i = 0; i < std::min(differences.size(), kNamedDifferences); ++i) text += (i == 0 ? "" : "; ") + differences[i];
  if (differences.size() > kNamedDifferences) text += "; and " + std::to_string(differences.size() - kNamedDifferences) + " more";
  return text;
}

// What the tensors have that the plan lacks, and the other way around: a few of each kind by name; "" for none.
std::string StateDifferences(const Plan& plan, const std::map<std::string, TensorView>& tensors) {
  std::vector<std::string> missing, other, extra;
  std::map<std::string, const StateTensor*> wanted;
  for (const StateTensor& state : plan.state) wanted.emplace(state.name, &state);
  for (const auto& [name, state] : wanted) {
    const auto found = tensors.find(name);
    if (found == tensors.end()) {
      missing.push_back("'" + Escaped(name) + "' is missing");
    } else if (found->second.dtype != state->dtype || found->second.shape != state->shape) {
      other.push_back("'" + Escaped(name) + "' is " + TypeText(found->second.dtype, found->second.shape) + " there, " +
                      TypeText(state->dtype, state->shape) + " here");
    }
  }
  for (const auto& [name, tensor] : tensors) {
    if (!wanted.contains(name)) extra.push_back("'" + Escaped(name) + "' is not known here");
  }
  std::vector<std::string> kinds;
  for (const auto* kind : {&missing, &extra, &other}) {
    if (!kind->empty()) kinds.push_back(Listed(*kind));
  }
  return Listed(kinds);
}

bool TakeNumber(std::string_view& text) {
  size_t digits = 0;
  while (digits < text.size() && std::isdigit(static_cast<unsigned char>(text[digits])) != 0) ++digits;
  text.remove_prefix(digits);
  return digits > 0;
}

bool Take(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

}  // namespace

Manifest ReadManifest(const std::string& folder) {
  const std::string path = folder + "/MANIFEST", where = Escaped(path, 4096);
  std::error_code error;
  const fs::file_type type = fs::symlink_status(folder, error).type();
  if (type != fs::file_type::directory) {
    Refuse(type == fs::file_type::symlink     ? "a checkpoint's folder must not be a symbolic link"
           : type == fs::file_type::not_found ? "there is no such checkpoint"
                                              : "this is no folder of a checkpoint",
           Escaped(folder, 4096));
  }
  if (fs::symlink_status(path, error).type() == fs::file_type::not_found) Refuse("this is no checkpoint: it has no MANIFEST", where);
  CheckFile(path);
  return DecodeManifest(ReadWholeFile(path, kMaxManifestBytes), where);
}

Checkpoint Checkpoint::Load(const std::string& folder, int64_t limit_bytes) {
  Checkpoint checkpoint;
  checkpoint.folder_ = folder;
  checkpoint.manifest_ = ReadManifest(folder);
  for (const CheckpointFile& file : checkpoint.manifest_.files) {
    checkpoint.contents_.push_back(ReadFile(folder, file, limit_bytes));
    limit_bytes -= file.bytes;
    const std::string where = Escaped(folder + "/" + file.name, 4096);
    for (auto& [name, view] : ViewSafetensors(checkpoint.contents_.back(), where, kMaxTensors)) {
      if (!checkpoint.tensors_.emplace(name, std::move(view)).second) Refuse("two ranks have a tensor '" + Escaped(name) + "'", where);
    }
  }
  return checkpoint;
}

std::vector<std::string> Checkpoint::Warnings() const {
  std::vector<std::string> warnings;
  for (const auto& [name, tensor] : tensors_) {
    if (!IsFloating(tensor.dtype)) continue;
    int64_t bad = 0;
    for (int64_t i = 0; i < tensor.elements(); ++i) bad += std::isfinite(ElementAsDouble(tensor, i)) ? 0 : 1;
    if (bad > 0)
      warnings.push_back("'" + Escaped(name) + "' of the checkpoint has " + std::to_string(bad) + " values that are NaN or infinite");
  }
  return warnings;
}

void Checkpoint::CheckFits(const Session& session, const PlanIdentity& plan, bool any_plan) const {
  const std::string where = Escaped(folder_, 4096);
  if (manifest_.plan.model_hash != plan.model_hash) {
    Refuse("the checkpoint is of another model: " + DifferencesOf(manifest_.plan, plan).front(), where,
           "resume with the model file of that run");
  }
  const auto parts = DifferencesOf(manifest_.plan, plan);
  if (const std::string differences = StateDifferences(session.plan(), tensors_); !differences.empty()) {
    Refuse("the checkpoint holds other state than this plan: " + differences, where,
           parts.empty() ? "" : "the plans differ in " + Listed(parts));
  }
  if (manifest_.seed != session.seed()) {
    Refuse("the checkpoint was trained with seed " + std::to_string(manifest_.seed) + ", this run has " + std::to_string(session.seed()),
           where, "--seed " + std::to_string(manifest_.seed));
  }
  if (manifest_.world_size != 1) {
    Refuse("the checkpoint is one of " + std::to_string(manifest_.world_size) + " ranks, this run has 1", where);
  }
  if (!any_plan && !parts.empty()) {
    Refuse("the checkpoint was trained by another plan: " + Listed(parts), where, "resume with the options of that run");
  }
}

void Checkpoint::Restore(Session& session, const PlanIdentity& plan, bool any_plan) const {
  CheckFits(session, plan, any_plan);
  for (const auto& [name, tensor] : tensors_) session.Set(name, tensor);
  session.set_position(manifest_.step, manifest_.batch);
  session.set_learning_rate(manifest_.fixed_learning_rate);
}

CheckpointName ParseCheckpointName(const std::string& name) {
  std::string_view rest = name;
  if (!Take(rest, "step-") || !TakeNumber(rest)) return CheckpointName::kOther;
  if (rest.size() > 1 && rest[0] == '.' && std::isdigit(static_cast<unsigned char>(rest[1])) != 0) {
    rest.remove_prefix(1);
    TakeNumber(rest);
  }
  if (rest.empty()) return CheckpointName::kCheckpoint;
  const bool unfinished = (Take(rest, ".tmp.") || Take(rest, ".old.")) && TakeNumber(rest) && rest.empty();
  return unfinished ? CheckpointName::kUnfinished : CheckpointName::kOther;
}

FoundCheckpoint FindNewestCheckpoint(const std::string& folder, int64_t limit_bytes) {
  FoundCheckpoint found;
  std::vector<std::pair<int64_t, std::string>> dated;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    const std::string path = entry.path().string();
    switch (ParseCheckpointName(entry.path().filename().string())) {
      case CheckpointName::kOther: break;
      case CheckpointName::kUnfinished: found.skipped.push_back({path, "a save that did not finish"}); break;
      case CheckpointName::kCheckpoint: try { dated.emplace_back(ReadManifest(path).sequence, path);
        } catch (const Error& refused) {
          found.skipped.push_back({path, refused.message()});
        }
    }
  }
  if (error && error != std::errc::no_such_file_or_directory)
    throw Error(ErrorCode::kIo, "cannot read the folder: " + error.message(), Escaped(folder, 4096));
  std::sort(found.skipped.begin(), found.skipped.end(), [](const auto& a, const auto& b) { return a.path < b.path; });
  std::sort(dated.rbegin(), dated.rend());
  for (const auto& [sequence, path] : dated) {
    try {
      found.checkpoint = Checkpoint::Load(path, limit_bytes);
      break;
    } catch (const Error& refused) {
      if (refused.code() == ErrorCode::kResource) throw;
      found.skipped.push_back(
          {path, refused.where() == Escaped(path, 4096) ? refused.message() : refused.message() + " (" + refused.where() + ")"});
    }
  }
  return found;
}

}  // namespace gradloom
