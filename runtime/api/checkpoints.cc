// Checkpoints and properties of the C table.
#include <filesystem>

#include "runtime/api/guard.h"
#include "runtime/api/properties.h"
#include "runtime/api/table.h"
#include "runtime/base/file.h"
#include "runtime/base/host_memory.h"
#include "runtime/base/read_number.h"

namespace gradloom::api {
namespace {

// The prefix of the keys under which a manifest stores properties.
constexpr std::string_view kProperty = "property/";
const std::string kAccumulated = "accumulated";

// `path` is the folder of a checkpoint, a folder of checkpoints, or the folder of a run.
GradloomCheckpoint FromFolder(const std::string& path) {
  namespace fs = std::filesystem;
  if (fs::exists(path + "/MANIFEST")) return {Checkpoint::Load(path), ""};
  const std::string folder = fs::is_directory(path + "/checkpoints") ? path + "/checkpoints" : path;
  FoundCheckpoint found = FindNewestCheckpoint(folder);
  std::string skipped;
  for (const SkippedCheckpoint& each : found.skipped) skipped += Escaped(each.path, 4096) + ": " + each.why + "\n";
  if (found.checkpoint) return {std::move(*found.checkpoint), std::move(skipped)};
  const std::string why = found.skipped.empty() ? "the folder contains no checkpoint"
                                                : "no checkpoint in the folder can be loaded: " + found.skipped.front().why;
  throw Error(ErrorCode::kCheckpoint, why, Escaped(folder, 4096));
}

GradloomStatus* LoadCheckpoint(const char* path, GradloomCheckpoint** out) {
  return Guarded([&] {
    GradloomCheckpoint*& handle = Out(out);
    const std::string name = TextOf(path, "the path");
    handle =
        new GradloomCheckpoint(std::filesystem::is_directory(name) ? FromFolder(name) : GradloomCheckpoint{Checkpoint::FromFile(name), ""});
  });
}

GradloomStatus* LoadCheckpointFromBuffer(const void* bytes, size_t num_bytes, GradloomCheckpoint** out) {
  return Guarded([&] {
    GradloomCheckpoint*& handle = Out(out);
    const char* const data = &NotNull(static_cast<const char*>(bytes), "the buffer");
    RequireHostMemory(static_cast<int64_t>(num_bytes), "a copy of the checkpoint", "", "load it from a file");
    handle = new GradloomCheckpoint{Checkpoint::FromBytes(std::string(data, num_bytes), "checkpoint in memory"), ""};
  });
}

GradloomStatus* GetSkippedCheckpoints(const GradloomCheckpoint* checkpoint, GradloomText** out) {
  return Guarded([&] {
    GradloomText*& text = Out(out);
    text = new GradloomText{NotNull(checkpoint, "the checkpoint").skipped};
  });
}

void ReleaseCheckpoint(GradloomCheckpoint* checkpoint) { delete checkpoint; }

void Write(const Call& call, bool with_optimizer, const WriteBytes& write) {
  if (!with_optimizer) return WriteWeightsFile(write, *call);
  call->JoinParts();
  Manifest manifest = ManifestOf(SavedStateOf(*call), call.handle().identity);
  if (const auto scale = call->loss_scale()) manifest.loss_scale = scale->scale;
  SaveProperties(call.handle(), manifest);
  WriteCheckpointFile(write, *call, std::move(manifest));
}

GradloomStatus* SaveCheckpoint(GradloomSession* session, const char* path, int32_t include_optimizer_state) {
  return Guarded([&] {
    const Call call(session);
    AtomicFile file(TextOf(path, "the path"));
    Write(call, include_optimizer_state != 0, [&](const void* data, int64_t bytes) { file.Write(data, bytes); });
    file.Commit();
  });
}

GradloomStatus* SaveCheckpointToBuffer(GradloomSession* session, int32_t include_optimizer_state, GradloomText** out) {
  return Guarded([&] {
    GradloomText*& handle = Out(out);
    const Call call(session);
    auto text = std::make_unique<GradloomText>();
    int64_t all = 0;
    for (const StateTensor& state : call->plan().state) {
      const bool weight = state.kind == StateKind::kParameter || state.kind == StateKind::kStatistic;
      if (!state.derived() && (weight || include_optimizer_state != 0)) all += state.shape.elements() * DTypeBytes(state.dtype);
    }
    RequireHostMemory(all, "the checkpoint in memory", "", "save it to a file");
    Write(call, include_optimizer_state != 0, [&](const void* data, int64_t bytes) {
      std::string& to = text->bytes;
      // The header is small. A text that grows by doubling would take up to three times as much memory as the tensors.
      if (to.capacity() - to.size() < static_cast<size_t>(bytes)) to.reserve(to.size() + static_cast<size_t>(bytes + all));
      to.append(static_cast<const char*>(data), static_cast<size_t>(bytes));
    });
    handle = text.release();
  });
}

GradloomStatus* AddProperty(GradloomSession* session, const char* name, const char* value) {
  return Guarded([&] {
    const Call call(session);
    call.handle().properties[TextOf(name, "the name")] = TextOf(value, "the value");
  });
}

GradloomStatus* GetProperty(GradloomSession* session, const char* name, const char** out) {
  return Guarded([&] {
    Out(out);
    const Call call(session);
    const auto found = call.handle().properties.find(TextOf(name, "the name"));
    if (found != call.handle().properties.end()) *out = found->second.c_str();
  });
}

GradloomStatus* GetCheckpointProperty(const GradloomCheckpoint* checkpoint, const char* name, const char** out) {
  return Guarded([&] {
    Out(out);
    const Checkpoint& asked = NotNull(checkpoint, "the checkpoint").checkpoint;
    const std::string key = std::string(kProperty) + TextOf(name, "the name");
    if (!asked.has_manifest()) return;
    const auto found = asked.manifest().callbacks.find(key);
    if (found != asked.manifest().callbacks.end()) *out = found->second.c_str();
  });
}

}  // namespace

void LoadProperties(const Manifest& manifest, GradloomSession& session) {
  for (const auto& [name, text] : manifest.callbacks) {
    if (name.starts_with(kProperty)) session.properties[name.substr(kProperty.size())] = text;
  }
  // A run of `train` counts the batches of an update from the beginning of an epoch, as its cursor does.
  int64_t batches = manifest.cursor.batch % session.session.plan().accumulate;
  if (const auto found = manifest.callbacks.find(kAccumulated); found != manifest.callbacks.end())
    batches = ReadNumber<int64_t>(found->second).value_or(batches);
  session.session.set_accumulated(std::max<int64_t>(batches, 0));
}

void SaveProperties(const GradloomSession& session, Manifest& manifest) {
  for (const auto& [name, text] : session.properties) manifest.callbacks.emplace(std::string(kProperty) + name, text);
  manifest.callbacks.emplace(kAccumulated, std::to_string(session.session.accumulated()));
}

void AddCheckpoints(GradloomApi& api) {
  api.LoadCheckpoint = LoadCheckpoint;
  api.LoadCheckpointFromBuffer = LoadCheckpointFromBuffer;
  api.ReleaseCheckpoint = ReleaseCheckpoint;
  api.SaveCheckpoint = SaveCheckpoint;
  api.SaveCheckpointToBuffer = SaveCheckpointToBuffer;
  api.AddProperty = AddProperty;
  api.GetProperty = GetProperty;
  api.GetCheckpointProperty = GetCheckpointProperty;
  api.GetSkippedCheckpoints = GetSkippedCheckpoints;
}

}  // namespace gradloom::api
