#include "runtime/checkpoint/manifest.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <set>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/hash.h"
#include "runtime/checkpoint/checkpoint.pb.h"

namespace gradloom {
namespace {

static_assert(std::endian::native == std::endian::little, "the header is written as it lies in memory");

constexpr std::array<char, 8> kMagic = {'\x8b', 'G', 'L', 'C', '\r', '\n', '\x1a', '\n'};
constexpr size_t kMaxMessageBytes = size_t{64} << 20;
constexpr int64_t kMaxCount = int64_t{1} << 53;  // limit on steps and rows: exact as a double, and far from overflow

// The first 32 bytes. The message follows and extends to the end of the file.
struct Header {
  std::array<char, 8> magic = kMagic;
  uint32_t version = Manifest::kFormatVersion;
  uint32_t reserved = 0;
  int64_t message_bytes = 0;
  uint64_t hash = 0;  // XXH3-64 of the file with this field set to zero
};
static_assert(sizeof(Header) == 32);

uint64_t HashOfFile(Header header, std::string_view message) {
  header.hash = 0;
  Hash hash;
  hash.Add(&header, sizeof header);
  hash.Add(message.data(), static_cast<int64_t>(message.size()));
  return hash.value();
}

[[noreturn]] void Refuse(const std::string& message, const std::string& where, const std::string& help = "") {
  throw Error(ErrorCode::kCheckpoint, message, where, help);
}

void SetText(file::NamedText& to, const std::string& name, const std::string& text) {
  to.set_name(name);
  to.set_text(text);
}

// Fields of a decoded message, checked one after the other.
class Fields {
 public:
  explicit Fields(const std::string& where) : where_(where) {}

  int64_t Count(int64_t value, const char* what, int64_t least = 0, int64_t most = kMaxCount) const {
    if (value < least || value > most) Refuse(std::string("the manifest's ") + what + " is " + std::to_string(value), where_);
    return value;
  }

  template <typename Repeated>
  std::map<std::string, std::string> Texts(const Repeated& from, const char* what) const {
    std::map<std::string, std::string> texts;
    for (const file::NamedText& text : from) {
      if (!texts.emplace(text.name(), text.text()).second)
        Refuse(std::string("the manifest has the ") + what + " '" + Escaped(text.name()) + "' twice", where_);
    }
    return texts;
  }

  DataCursor Cursor(const file::DataCursor& from) const {
    DataCursor cursor;
    cursor.epoch = Count(from.epoch(), "epoch");
    cursor.batch_size = Count(from.batch_size(), "batch size");
    cursor.rows = Count(from.rows(), "number of rows");
    const int64_t batches = cursor.batch_size == 0 ? 0 : (cursor.rows + cursor.batch_size - 1) / cursor.batch_size;
    cursor.batch = Count(from.batch(), "batch within the epoch", 0, batches);
    return cursor;
  }

  // One file per rank, with a fixed name, so that none can be outside the folder.
  std::vector<CheckpointFile> Files(const file::Manifest& from, int64_t world_size) const {
    std::vector<CheckpointFile> files;
    for (const file::CheckpointFile& file : from.files()) {
      const std::string expected = RankFileName(static_cast<int64_t>(files.size()));
      if (file.name() != expected) Refuse("the manifest lists '" + Escaped(file.name()) + "' instead of '" + expected + "'", where_);
      files.push_back({file.name(), Count(file.bytes(), "size of a file", 0, INT64_MAX), file.hash()});
    }
    if (static_cast<int64_t>(files.size()) != world_size)
      Refuse("the manifest lists " + std::to_string(files.size()) + " files of " + std::to_string(world_size) + " ranks", where_);
    return files;
  }

 private:
  const std::string& where_;
};

}  // namespace

std::string RankFileName(int64_t rank) { return "rank-" + std::to_string(rank) + ".safetensors"; }

std::string EncodeManifest(const Manifest& manifest) {
  file::Manifest to;
  to.set_version(manifest.version);
  to.set_sequence(manifest.sequence);
  file::TrainedPlan& plan = *to.mutable_plan();
  plan.set_hash(manifest.plan.hash);
  plan.set_model_name(manifest.plan.model_name);
  plan.set_model_hash(manifest.plan.model_hash);
  for (const auto& [name, text] : manifest.plan.parts) SetText(*plan.add_parts(), name, text);
  to.set_seed(manifest.seed);
  to.set_step(manifest.step);
  to.set_batch(manifest.batch);
  to.set_fixed_learning_rate(manifest.fixed_learning_rate);
  to.set_loss_scale(manifest.loss_scale);
  to.set_world_size(manifest.world_size);
  file::DataCursor& cursor = *to.mutable_cursor();
  cursor.set_epoch(manifest.cursor.epoch);
  cursor.set_batch(manifest.cursor.batch);
  cursor.set_batch_size(manifest.cursor.batch_size);
  cursor.set_rows(manifest.cursor.rows);
  for (const auto& [name, text] : manifest.callbacks) SetText(*to.add_callbacks(), name, text);
  for (const CheckpointFile& from : manifest.files) {
    file::CheckpointFile& file = *to.add_files();
    file.set_name(from.name);
    file.set_bytes(from.bytes);
    file.set_hash(from.hash);
  }
  const std::string message = to.SerializeAsString();
  Header header;
  header.message_bytes = static_cast<int64_t>(message.size());
  header.hash = HashOfFile(header, message);
  return std::string(reinterpret_cast<const char*>(&header), sizeof header) + message;
}

Manifest DecodeManifest(std::string_view bytes, const std::string& where) {
  Header header;
  if (bytes.size() < sizeof header) Refuse("the manifest has " + std::to_string(bytes.size()) + " bytes, too few", where);
  std::memcpy(&header, bytes.data(), sizeof header);
  const std::string_view message = bytes.substr(sizeof header);
  if (header.magic != kMagic) Refuse("not the manifest of a checkpoint: it does not start with a manifest's magic number", where);
  // Damage is checked first: a damaged version number must not be reported as another version.
  if (header.message_bytes != static_cast<int64_t>(message.size()) || message.size() > kMaxMessageBytes ||
      header.hash != HashOfFile(header, message)) {
    Refuse("the manifest is damaged: its contents do not match their hash", where);
  }
  if (header.version != Manifest::kFormatVersion) {
    Refuse("the checkpoint has format version " + std::to_string(header.version) + ", but this program reads version " +
               std::to_string(Manifest::kFormatVersion),
           where, "use the version of gradloom that wrote it");
  }
  file::Manifest from;
  if (header.reserved != 0 || !from.ParseFromArray(message.data(), static_cast<int>(message.size())))
    Refuse("the manifest is malformed", where);
  const Fields fields(where);
  Manifest manifest;
  manifest.version = from.version();
  manifest.sequence = fields.Count(from.sequence(), "number");
  const file::TrainedPlan& plan = from.plan();
  manifest.plan = {plan.model_name(), plan.model_hash(), fields.Texts(plan.parts(), "part"), plan.hash()};
  manifest.seed = from.seed();
  manifest.step = fields.Count(from.step(), "step");
  manifest.batch = fields.Count(from.batch(), "batch");
  manifest.fixed_learning_rate = from.fixed_learning_rate();
  manifest.loss_scale = from.loss_scale();
  if (!std::isfinite(manifest.fixed_learning_rate) || !std::isfinite(manifest.loss_scale) || manifest.loss_scale <= 0)
    Refuse("the manifest's learning rate or loss scale is out of range", where);
  manifest.world_size = fields.Count(from.world_size(), "number of ranks", 1, 1 << 20);
  manifest.cursor = fields.Cursor(from.cursor());
  manifest.callbacks = fields.Texts(from.callbacks(), "callback");
  manifest.files = fields.Files(from, manifest.world_size);
  return manifest;
}

}  // namespace gradloom
