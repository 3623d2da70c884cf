// Scalars for TensorBoard.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>

namespace gradloom {

using Hparam = std::variant<double, std::string, bool>;

// FOLDER/events.out.tfevents.<seconds>.<host>.<pid>.<n>, which TensorBoard finds by itself, later files after earlier ones. A record is its
// length, the length's checksum, a tensorflow.Event, and its checksum. Records are written to the file as they are added, so TensorBoard
// can follow a run; readers skip a record that a crash truncated. Not thread-safe.
class EventFile {
 public:
  // `next_step` >= 0: for a resumed run; records of this and later steps in other files of the folder no longer count. Throws
  // Error(kResource) if the file cannot be made.
  explicit EventFile(const std::string& folder, int64_t next_step = -1);
  ~EventFile();
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  // Adds one event with all of these scalars by tag ("train/loss"), at this update and the current time. Throws Error(kResource);
  // the file is then as before.
  void Add(int64_t step, const std::map<std::string, double>& scalars);

  // The settings of the run, for TensorBoard's comparison of runs. Throws Error(kResource).
  void AddHparams(const std::map<std::string, Hparam>& hparams);

  const std::string& path() const { return path_; }

 private:
  // In seconds since 1970. A clock that is set meanwhile does not change it, so that events stay in their order.
  double WallTime() const;
  void Append(const std::string& event);

  const std::chrono::system_clock::time_point began_;
  const std::chrono::steady_clock::time_point began_steady_;

  std::string path_;
  int fd_ = -1;
};

// CRC-32C (Castagnoli; RFC 3720), masked as the record format requires: rotated right by 15, and 0xa282ead8 added.
uint32_t MaskedCrc32c(std::string_view bytes);

}  // namespace gradloom
