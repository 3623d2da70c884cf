#include "runtime/checkpoint/checkpoint.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>
#include <set>
#include <system_error>
#include <tuple>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/hash.h"
#include "runtime/base/version.h"
#include "runtime/checkpoint/safetensors.h"
#include "runtime/plan/average_state.h"

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
  if (status.type() == fs::file_type::not_found) Refuse("'" + fs::path(path).filename().string() + "' is missing", Escaped(path, 4096));
  if (status.type() != fs::file_type::regular) Refuse("not a regular file", Escaped(path, 4096));
}

// A file that the manifest does not list may be missing from another checkpoint.
void CheckNoOtherFiles(const std::string& folder, const Manifest& manifest) {
  std::set<std::string> known{"MANIFEST"};
  for (const CheckpointFile& file : manifest.files) known.insert(file.name);
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (!name.starts_with("rank-") || known.contains(name)) continue;
    Refuse("'" + Escaped(name) + "' does not belong to the checkpoint: its manifest does not list it", Escaped(folder + "/" + name, 4096));
  }
}

std::string TypeText(DType dtype, const Shape& shape) { return std::string(DTypeName(dtype)) + shape.ToString(); }

std::string Listed(const std::vector<std::string>& differences) {
  std::string text;
  for (size_t i = 0; i < std::min(differences.size(), kNamedDifferences); ++i) text += (i == 0 ? "" : "; ") + differences[i];
  if (differences.size() > kNamedDifferences) text += "; and " + std::to_string(differences.size() - kNamedDifferences) + " more";
  return text;
}

// The differences between the tensors and the plan's state: a few of each kind by name; "" if there are none.
std::string StateDifferences(const Plan& plan, const std::map<std::string, TensorView>& types) {
  std::vector<std::string> missing, other, extra;
  std::map<std::string, const StateTensor*> wanted;
  for (const StateTensor& state : plan.state) {
    if (!state.derived()) wanted.emplace(state.name, &state);
  }
  for (const auto& [name, state] : wanted) {
    const auto found = types.find(name);
    if (found == types.end()) {
      missing.push_back("'" + Escaped(name) + "' is missing");
    } else if (found->second.dtype != state->dtype || found->second.shape != state->shape) {
      other.push_back("'" + Escaped(name) + "' is " + TypeText(found->second.dtype, found->second.shape) + " in the checkpoint, " +
                      TypeText(state->dtype, state->shape) + " in the plan");
    }
  }
  for (const auto& [name, type] : types) {
    if (!wanted.contains(name)) extra.push_back("'" + Escaped(name) + "' is not in the plan");
  }
  std::vector<std::string> kinds;
  for (const auto* kind : {&missing, &extra, &other}) {
    if (!kind->empty()) kinds.push_back(Listed(*kind));
  }
  return Listed(kinds);
}

std::string FromHexadecimal(const std::string& text, const std::string& where) {
  const auto digit = [&](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    Refuse("the file's manifest is malformed", where);
  };
  std::string bytes;
  for (size_t i = 0; i + 1 < text.size(); i += 2) bytes.push_back(static_cast<char>(digit(text[i]) * 16 + digit(text[i + 1])));
  return bytes;
}

std::string Hexadecimal(const std::string& bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const char c : bytes) {
    text.push_back(kDigits[static_cast<unsigned char>(c) >> 4]);
    text.push_back(kDigits[static_cast<unsigned char>(c) & 15]);
  }
  return text;
}

// A checkpoint that is a single file stores its manifest in the metadata, as hexadecimal digits.
constexpr char kManifestKey[] = "gradloom.manifest";
// The value of the format key in such a file.
constexpr char kFormat[] = "gradloom-checkpoint";

void AddTensor(const std::string& name, const TensorView& tensor, Hash& hash) {
  hash.Add(name.data(), static_cast<int64_t>(name.size()) + 1);
  hash.Add(tensor.data, tensor.bytes());
}

uint64_t HashOf(const std::string& name, const TensorView& tensor) {
  Hash hash;
  AddTensor(name, tensor, hash);
  return hash.value();
}

bool ConsumeNumber(std::string_view& text) {
  size_t digits = 0;
  while (digits < text.size() && std::isdigit(static_cast<unsigned char>(text[digits])) != 0) ++digits;
  text.remove_prefix(digits);
  return digits > 0;
}

bool ConsumePrefix(std::string_view& text, std::string_view prefix) {
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
           : type == fs::file_type::not_found ? "the checkpoint does not exist"
                                              : "not the folder of a checkpoint",
           Escaped(folder, 4096));
  }
  if (fs::symlink_status(path, error).type() == fs::file_type::not_found) Refuse("not a checkpoint: it has no MANIFEST", where);
  CheckFile(path);
  return DecodeManifest(ReadWholeFile(path, kMaxManifestBytes), where);
}

void VerifyCheckpoint(const std::string& folder) {
  const Manifest manifest = ReadManifest(folder);
  for (const CheckpointFile& file : manifest.files) {
    const std::string path = folder + "/" + file.name;
    CheckFile(path);
    CheckContent(path, file);
  }
  CheckNoOtherFiles(folder, manifest);
}

Checkpoint Checkpoint::Load(const std::string& folder, int64_t limit_bytes) {
  Checkpoint checkpoint;
  checkpoint.folder_ = folder;
  checkpoint.manifest_ = ReadManifest(folder);
  for (const CheckpointFile& file : checkpoint.manifest_.files) {
    checkpoint.AddFile(file, limit_bytes);
    limit_bytes -= file.bytes;
  }
  CheckNoOtherFiles(folder, checkpoint.manifest_);
  return checkpoint;
}

void Checkpoint::AddFile(const CheckpointFile& described, int64_t limit_bytes) {
  const std::string path = folder_ + "/" + described.name;
  CheckFile(path);
  const VerifiedFile& file = *files_.emplace_back(std::make_unique<VerifiedFile>(path, described, limit_bytes, kMaxTensors));
  for (const auto& [name, entry] : file.entries()) {
    if (!types_.emplace(name, TensorView{entry.dtype, entry.shape, nullptr}).second)
      Refuse("two ranks have a tensor '" + Escaped(name) + "'", Escaped(path, 4096));
    file_of_.emplace(name, &file);
  }
}

Tensor Checkpoint::Read(const std::string& name) const {
  const auto view = views_.find(name);
  if (view != views_.end()) return Tensor::Copy(view->second);
  if (stored_) {
    Tensor value = stored_->Read(name);
    const auto verified = verified_.find(name);
    if (verified != verified_.end() && HashOf(name, value.view()) != verified->second)
      Refuse("the file has changed since it was checked", Escaped(folder_, 4096));
    return value;
  }
  const auto file = file_of_.find(name);
  if (file == file_of_.end()) Refuse("no tensor '" + Escaped(name) + "'", Escaped(folder_, 4096));
  return file->second->Read(name);
}

Checkpoint Checkpoint::FromFile(const std::string& path) {
  Checkpoint checkpoint;
  checkpoint.folder_ = path;
  checkpoint.stored_ = std::make_unique<const WeightFiles>(path, kLimitBytes, kMaxTensors);
  checkpoint.types_ = checkpoint.stored_->types();
  checkpoint.ReadMetadata(checkpoint.stored_->metadata());
  // Before anything is done with the other tensors.
  for (const auto& [name, type] : checkpoint.types_) {
    if (type.dtype == DType::kBool) checkpoint.Read(name);
  }
  return checkpoint;
}

void Checkpoint::ReadMetadata(const std::map<std::string, std::string>& metadata) {
  const std::string where = Escaped(folder_, 4096);
  const auto found = metadata.find(kManifestKey);
  has_manifest_ = found != metadata.end();
  if (!has_manifest_) {
    const auto format = metadata.find("format");
    if (format != metadata.end() && format->second == kFormat) Refuse("the file is damaged: it has no manifest", where);
    return;
  }
  manifest_ = DecodeManifest(FromHexadecimal(found->second, where), where);
  Hash hash;
  for (const auto& [name, type] : types_) {
    const Tensor value = Read(name);
    AddTensor(name, value.view(), hash);
    if (stored_) verified_.emplace(name, HashOf(name, value.view()));
  }
  if (hash.value() != manifest_.files.front().hash) Refuse("the file is damaged: its tensors do not match their hash", where);
}

Checkpoint Checkpoint::FromBytes(std::string bytes, const std::string& where) {
  Checkpoint checkpoint;
  checkpoint.folder_ = where;
  checkpoint.content_ = std::make_unique<const std::string>(std::move(bytes));
  std::map<std::string, std::string> metadata;
  checkpoint.views_ = ViewSafetensors(*checkpoint.content_, where, kMaxTensors, &metadata);
  for (const auto& [name, view] : checkpoint.views_) checkpoint.types_.emplace(name, TensorView{view.dtype, view.shape, nullptr});
  checkpoint.ReadMetadata(metadata);
  if (!checkpoint.has_manifest_) {
    CheckTensorsHash(
        metadata, checkpoint.types_, [&](const std::string& name) { return Tensor::Copy(checkpoint.views_.at(name)); }, where);
  }
  return checkpoint;
}

std::vector<std::string> Checkpoint::Warnings() const {
  std::vector<std::string> warnings;
  for (const auto& [name, type] : types_) {
    if (!IsFloating(type.dtype)) continue;
    int64_t bad = 0;
    if (const auto file = file_of_.find(name); file != file_of_.end()) {
      bad = file->second->NonFinite(name);
    } else {
      const Tensor read = stored_ ? Read(name) : Tensor();
      const TensorView value = stored_ ? read.view() : views_.at(name);
      for (int64_t i = 0; i < value.elements(); ++i) bad += std::isfinite(ElementAsDouble(value, i)) ? 0 : 1;
    }
    if (bad > 0)
      warnings.push_back("'" + Escaped(name) + "' of the checkpoint has " + std::to_string(bad) + " values that are NaN or infinite");
  }
  return warnings;
}

void Checkpoint::CheckFits(const Session& session, const PlanIdentity& plan, bool any_plan) const {
  const std::string where = Escaped(folder_, 4096);
  if (manifest_.plan.model_hash != plan.model_hash) {
    Refuse("the checkpoint belongs to another model: " + DifferencesOf(manifest_.plan, plan).front(), where,
           "resume with the model file of the original run");
  }
  const auto parts = DifferencesOf(manifest_.plan, plan);
  if (const std::string differences = StateDifferences(session.plan(), types_); !differences.empty()) {
    Refuse("the checkpoint does not hold the state of this plan: " + differences, where,
           parts.empty() ? "" : "the plans differ in " + Listed(parts));
  }
  if (manifest_.seed != session.seed()) {
    Refuse("the checkpoint was trained with seed " + std::to_string(manifest_.seed) + ", this run has " + std::to_string(session.seed()),
           where, "--seed " + std::to_string(manifest_.seed));
  }
  if (!any_plan && !parts.empty()) {
    const auto there = manifest_.plan.parts.find(kThreadsPart), here = plan.parts.find(kThreadsPart);
    const bool threads = there != manifest_.plan.parts.end() && here != plan.parts.end() && there->second != here->second;
    Refuse("the checkpoint was trained by another plan: " + Listed(parts), where,
           "resume with the options of the original run" + (threads ? ":  --threads " + Escaped(there->second, 100) : ""));
  }
}

void Checkpoint::Restore(Session& session, const PlanIdentity& plan, bool any_plan) const {
  if (!has_manifest_) return RestoreWeights(session);
  CheckFits(session, plan, any_plan);
  for (const StateTensor& state : session.plan().state) {
    if (session.Holds(state) && !state.derived()) session.Set(state.name, Read(state.name).view());
  }
  session.set_position(manifest_.step, manifest_.batch);
  session.set_learning_rate(manifest_.fixed_learning_rate);
}

// A plan cannot get other values of what it keeps constant. Without them, the model would have some weights of the file and some of its
// own.
void Checkpoint::CheckFrozen(const Plan& plan, const std::function<std::string(const std::string&)>& tensor_of) const {
  std::vector<std::string> frozen;
  for (const Constant& constant : plan.constants) {
    const auto type = types_.find(constant.name);
    if (type == types_.end() || type->second.shape != constant.value.shape() || !IsFloating(type->second.dtype)) continue;
    // In the narrower of both types: a file in 16 bits has the same weights, rounded.
    const DType dtype =
        std::min(type->second.dtype, constant.value.dtype(), [](DType a, DType b) { return DTypeBytes(a) < DTypeBytes(b); });
    const Tensor value = AsWeight(Read(tensor_of(constant.name)), dtype), own = AsWeight(constant.value, dtype);
    if (value.dtype() != own.dtype()) continue;
    if (std::memcmp(value.data(), own.data(), static_cast<size_t>(value.bytes())) != 0)
      frozen.push_back("'" + Escaped(constant.name) + "'");
  }
  if (frozen.empty()) return;
  Refuse("the plan has other values of weights that it does not train: " + Listed(frozen), Escaped(folder_, 4096),
         "compile a model with these weights, as an export writes it, or train them");
}

void Checkpoint::RestoreWeights(Session& session) const {
  std::vector<const StateTensor*> known;
  for (const auto& [name, type] : types_) {
    const int index = session.FindState(name);
    if (index < 0 || session.plan().state[static_cast<size_t>(index)].derived()) continue;
    const StateTensor& state = session.plan().state[static_cast<size_t>(index)];
    const bool convertible = state.dtype == type.dtype || (IsFloating(state.dtype) && IsFloating(type.dtype));
    if (!convertible || state.shape != type.shape) {
      Refuse("'" + Escaped(name) + "' is " + TypeText(type.dtype, type.shape) + " in the file, " + TypeText(state.dtype, state.shape) +
                 " in the plan",
             Escaped(folder_, 4096), "use weights of this model");
    }
    known.push_back(&state);
  }
  if (known.empty()) Refuse("none of its tensors is trained by the model", Escaped(folder_, 4096), "use weights of this model");
  // A plan without averages gets those of the file as its weights.
  std::set<std::string> names;
  for (const StateTensor& state : session.plan().state) names.insert(state.name);
  for (const Constant& constant : session.plan().constants) names.insert(constant.name);
  const auto tensor_of = [&](const std::string& weight) {
    return TrainedTensor(types_, weight, [&](const std::string& name) { return names.contains(name); });
  };
  CheckFrozen(session.plan(), tensor_of);
  for (const StateTensor* state : known) session.Set(state->name, AsWeight(Read(tensor_of(state->name)), state->dtype).view());
}

Manifest ManifestOf(const SavedState& state, const PlanIdentity& plan) {
  Manifest manifest;
  manifest.version = kVersion;
  manifest.plan = plan;
  manifest.seed = state.seed;
  manifest.step = state.step;
  manifest.batch = state.batch;
  manifest.fixed_learning_rate = state.fixed_learning_rate;
  return manifest;
}

namespace {

// Writes tensors of these types; each is copied from the state `state_of(name)` only when it is written.
void WriteState(const WriteBytes& write, const Session& session, const std::map<std::string, TensorView>& types,
                const std::map<std::string, std::string>& metadata, const std::function<std::string(const std::string&)>& state_of) {
  const auto elements = [&](const std::string& name, const WriteBytes& out) {
    const Tensor value = session.Get(state_of(name));
    out(value.data(), value.bytes());
  };
  WriteSafetensors(write, types, elements, metadata);
}

}  // namespace

void WriteCheckpointFile(const WriteBytes& write, const Session& session, Manifest manifest) {
  Hash hash;
  std::map<std::string, TensorView> types;
  for (const StateTensor& state : session.plan().state) {
    if (!state.derived()) types.emplace(state.name, TensorView{state.dtype, state.shape, nullptr});
  }
  CheckpointFile described{RankFileName(0), 0, 0};
  // Passes over the state twice, because the header comes first and there may not be memory for a copy of all state.
  for (const auto& [name, type] : types) {
    AddTensor(name, session.Get(name).view(), hash);
    described.bytes += type.bytes();
  }
  described.hash = hash.value();
  manifest.files = {described};
  WriteState(write, session, types, {{"format", kFormat}, {kManifestKey, Hexadecimal(EncodeManifest(manifest))}},
             [](const std::string& name) { return name; });
}

void WriteWeightsFile(const WriteBytes& write, const Session& session) {
  std::map<std::string, TensorView> types;
  for (const StateTensor& state : session.plan().state) {
    if (state.kind == StateKind::kParameter || state.kind == StateKind::kStatistic)
      types.emplace(state.name, TensorView{state.dtype, state.shape, nullptr});
  }
  WriteState(write, session, types, {}, [&](const std::string& name) { return session.TrainedState(name); });
}

CheckpointName ParseCheckpointName(const std::string& name) {
  std::string_view rest = name;
  if (!ConsumePrefix(rest, "step-") || !ConsumeNumber(rest)) return CheckpointName::kOther;
  if (rest.size() > 1 && rest[0] == '.' && std::isdigit(static_cast<unsigned char>(rest[1])) != 0) {
    rest.remove_prefix(1);
    ConsumeNumber(rest);
  }
  if (rest.empty()) return CheckpointName::kCheckpoint;
  const bool unfinished = (ConsumePrefix(rest, ".tmp.") || ConsumePrefix(rest, ".old.")) && ConsumeNumber(rest) && rest.empty();
  return unfinished ? CheckpointName::kUnfinished : CheckpointName::kOther;
}

std::vector<ListedCheckpoint> ListCheckpoints(const std::string& folder, std::vector<SkippedCheckpoint>* skipped) {
  std::vector<ListedCheckpoint> listed;
  std::vector<SkippedCheckpoint> others;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    const std::string path = entry.path().string();
    switch (ParseCheckpointName(entry.path().filename().string())) {
      case CheckpointName::kOther: break;
      case CheckpointName::kUnfinished: others.push_back({path, "an unfinished save"}); break;
      case CheckpointName::kCheckpoint: try { listed.push_back({path, ReadManifest(path)});
        } catch (const Error& refused) {
          if (refused.code() == ErrorCode::kResource) throw;
          others.push_back({path, refused.message()});
        }
    }
  }
  if (error && error != std::errc::no_such_file_or_directory)
    throw Error(ErrorCode::kIo, "cannot read the folder: " + error.message(), Escaped(folder, 4096));
  std::ranges::sort(listed, std::ranges::greater(), [](const ListedCheckpoint& of) { return std::tie(of.manifest.sequence, of.folder); });
  std::ranges::sort(others, {}, &SkippedCheckpoint::path);
  if (skipped != nullptr) *skipped = std::move(others);
  return listed;
}

FoundCheckpoint FindNewestCheckpoint(const std::string& folder, int64_t limit_bytes) {
  FoundCheckpoint found;
  for (const ListedCheckpoint& listed : ListCheckpoints(folder, &found.skipped)) {
    const std::string& path = listed.folder;
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
