// Scalars for TensorBoard.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>

namespace gradloom {

using Hparam = std::variant<double, std::string, bool>;

// FOLDER/events.out.tfevents.<seconds>.<host>.<pid>.<n>, which TensorBoard finds by itself. A record is its length,
// the length's checksum, a tensorflow.Event, and its checksum. Lines go to the file as they are added, so that
// TensorBoard follows a run; a record that a crash cut off is passed over by its readers. Not thread-safe.
class EventFile {
 public:
  // `next_step` >= 0: of a run that goes on; what other files of the folder have of this and later steps counts no more.
  // Throws Error(kResource) where the file cannot be made.
  explicit EventFile(const std::string& folder, int64_t next_step = -1);
  ~EventFile();
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  // One event with all of these scalars by tag ("train/loss"), at this update and now. Throws Error(kResource).
  void Add(int64_t step, const std::map<std::string, double>& scalars);

  // What the run was told, for TensorBoard's table and plots of runs beside each other. Throws Error(kResource).
  void AddHparams(const std::map<std::string, Hparam>& hparams);

  const std::string& path() const { return path_; }

 private:
  void Append(const std::string& event);

  std::string path_;
  int fd_ = -1;
};

// CRC-32C (Castagnoli; RFC 3720), masked as the record format wants it: rotated right by 15 and 0xa282ead8 added.
uint32_t MaskedCrc32c(std::string_view bytes);

}  // namespace gradloom
