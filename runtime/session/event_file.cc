#include "runtime/session/event_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <ctime>
#include <filesystem>

#include "runtime/base/file.h"
#include "runtime/base/host_name.h"
#include "runtime/base/read_number.h"
#include "runtime/session/event.pb.h"

namespace gradloom {
namespace {

constexpr std::array<uint32_t, 256> CrcTable() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82F63B78u : 0u);
    table[i] = crc;
  }
  return table;
}

constexpr std::array<uint32_t, 256> kCrcTable = CrcTable();

std::string LittleEndian(uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i) & 0xFF);
  return text;
}

constexpr std::string_view kName = "events.out.tfevents.";

// The seconds in the name of a new file. Readers take the files of a folder in the order of their names, so it comes after all others, also
// if the clock was set back since, or if a run is resumed within the same second.
int64_t SecondsOfNext(const std::string& folder) {
  constexpr int64_t kTenDigits = 9'999'999'999;
  auto seconds = static_cast<int64_t>(std::time(nullptr));
  std::error_code error;
  for (std::filesystem::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (!name.starts_with(kName)) continue;
    std::string_view rest = std::string_view(name).substr(kName.size());
    const std::optional<int64_t> other = TakeNumber<int64_t>(rest);
    if (other && rest.starts_with('.') && *other < kTenDigits) seconds = std::max(seconds, *other + 1);
  }
  return seconds;
}

}  // namespace

uint32_t MaskedCrc32c(std::string_view bytes) {
  uint32_t crc = 0xFFFFFFFF;
  for (const char c : bytes) crc = (crc >> 8) ^ kCrcTable[(crc ^ static_cast<unsigned char>(c)) & 0xFF];
  crc = ~crc;
  return ((crc >> 15) | (crc << 17)) + 0xA282EAD8;
}

EventFile::EventFile(const std::string& folder, int64_t next_step)
    : began_(std::chrono::system_clock::now()), began_steady_(std::chrono::steady_clock::now()) {
  static std::atomic<int> count{0};
  path_ = folder + "/" + std::string(kName) + std::to_string(SecondsOfNext(folder)) + "." + HostName() + "." + std::to_string(getpid()) +
          "." + std::to_string(count++);
  fd_ = open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666);
  if (fd_ < 0) throw WriteError("cannot create the file", path_, errno);
  events::Event version;
  version.set_wall_time(WallTime());
  version.set_file_version("brain.Event:2");
  Append(version.SerializeAsString());
  if (next_step < 0) return;
  events::Event start;
  start.set_wall_time(WallTime());
  start.set_step(next_step);
  start.mutable_session_log()->set_status(events::SessionLog::START);
  Append(start.SerializeAsString());
}

EventFile::~EventFile() { close(fd_); }

double EventFile::WallTime() const {
  const std::chrono::duration<double> since = std::chrono::steady_clock::now() - began_steady_;
  return std::chrono::duration<double>(began_.time_since_epoch()).count() + since.count();
}

void EventFile::Add(int64_t step, const std::map<std::string, double>& scalars) {
  events::Event event;
  event.set_wall_time(WallTime());
  event.set_step(step);
  for (const auto& [tag, number] : scalars) {
    events::Summary::Value& value = *event.mutable_summary()->add_value();
    value.set_tag(tag);
    value.set_simple_value(static_cast<float>(number));
  }
  Append(event.SerializeAsString());
}

void EventFile::AddHparams(const std::map<std::string, Hparam>& hparams) {
  events::HparamsPluginData data;
  data.mutable_session_start_info()->set_start_time_secs(WallTime());
  for (const auto& [name, hparam] : hparams) {
    events::HparamValue& value = (*data.mutable_session_start_info()->mutable_hparams())[name];
    if (const auto* number = std::get_if<double>(&hparam)) value.set_number_value(*number);
    if (const auto* text = std::get_if<std::string>(&hparam)) value.set_string_value(*text);
    if (const auto* on = std::get_if<bool>(&hparam)) value.set_bool_value(*on);
  }
  events::Event event;
  event.set_wall_time(WallTime());
  events::Summary::Value& value = *event.mutable_summary()->add_value();
  value.set_tag("_hparams_/session_start_info");
  value.mutable_metadata()->mutable_plugin_data()->set_plugin_name("hparams");
  value.mutable_metadata()->mutable_plugin_data()->set_content(data.SerializeAsString());
  // Readers require a tensor, which is empty.
  value.mutable_tensor()->set_dtype(1);
  value.mutable_tensor()->mutable_tensor_shape()->add_dim()->set_size(0);
  Append(event.SerializeAsString());
}

void EventFile::Append(const std::string& event) {
  const std::string length = LittleEndian(event.size(), 8);
  // Written in one piece, so that a reader does not wait long for the rest of a record.
  const std::string record = length + LittleEndian(MaskedCrc32c(length), 4) + event + LittleEndian(MaskedCrc32c(event), 4);
  const off_t before = lseek(fd_, 0, SEEK_END);
  try {
    WriteFully(fd_, record.data(), static_cast<int64_t>(record.size()), path_);
  } catch (...) {
    // Readers would not find records after a part of one.
    [[maybe_unused]] const int cut = ftruncate(fd_, before);
    throw;
  }
}

}  // namespace gradloom
