#include "compiler/onnx/read/external_data.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "runtime/base/checked.h"
#include "runtime/base/descriptor.h"
#include "runtime/base/error.h"
#include "runtime/base/file.h"

namespace gradloom {
namespace {

constexpr size_t kMaxLocationBytes = 4096;

std::string RealPath(const std::string& path) {
  char* resolved = realpath(path.c_str(), nullptr);
  if (resolved == nullptr) return "";
  std::string text = resolved;
  std::free(resolved);
  return text;
}

[[noreturn]] void FailPath(const std::string& message, const std::string& location, const std::string& where) {
  throw Error(ErrorCode::kPath, message, where + "  location \"" + Escaped(location) + "\"",
              "put the file beside the model, or name its folder with --external-dir");
}

// A location must be a relative path inside the model's folder.
void CheckLocation(const std::string& location, const std::string& where) {
  const auto fail = [&](const char* why) { FailPath(std::string("external data ") + why, location, where); };
  if (location.empty()) fail("has an empty location");
  if (location.size() > kMaxLocationBytes) fail("has a location longer than 4,096 bytes");
  if (location.find('\0') != std::string::npos) fail("has a location with a NUL byte");
  if (location.find("_ORT_MEM_ADDR_") != std::string::npos) fail("points into the memory of another process");
  if (location.find("://") != std::string::npos) fail("is a URL; only files are read");
  if (location.front() == '/') fail("has an absolute location");
  if (location.find('\\') != std::string::npos || (location.size() > 1 && location[1] == ':')) fail("has a Windows path as location");
  bool names_file = false;
  for (size_t begin = 0; begin <= location.size();) {
    const size_t end = std::min(location.find('/', begin), location.size());
    const std::string_view part = std::string_view(location).substr(begin, end - begin);
    if (part == "..") fail("leaves the model's folder");
    names_file = part != "." && !part.empty();
    begin = end + 1;
  }
  if (!names_file) fail("names a folder");
}

int64_t ParseNumber(const std::string& text, const char* key, const std::string& where) {
  int64_t value = -1;
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, value);
  if (text.empty() || result.ec != std::errc() || result.ptr != end || value < 0 || text.front() == '-') {
    throw Error(ErrorCode::kTensor, std::string("external data has the ") + key + " \"" + Escaped(text) + "\"; expected a decimal number",
                where);
  }
  return value;
}

int OpenAt2(int folder, const std::string& location, uint64_t resolve) {
  open_how how{};
  how.flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK;
  how.resolve = resolve;
  return static_cast<int>(syscall(SYS_openat2, folder, location.c_str(), &how, sizeof how));
}

// For systems without openat2: opens each path component separately and follows no links.
int OpenByComponents(int folder, const std::string& location) {
  int at = dup(folder);
  size_t begin = 0;
  while (at >= 0) {
    const size_t end = location.find('/', begin);
    const std::string part = location.substr(begin, end == std::string::npos ? end : end - begin);
    const bool last = end == std::string::npos;
    if (!part.empty()) {
      const int flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW | (last ? 0 : O_DIRECTORY);
      const int next = openat(at, part.c_str(), flags);
      const int error = errno;
      close(at);
      errno = error;
      at = next;
    }
    if (last) return at;
    begin = end + 1;
  }
  return -1;
}

}  // namespace

ExternalData::ExternalData(const std::string& model_path, const LoadOptions& options) : options_(options) {
  const std::string folder = !options.external_dir.empty() ? options.external_dir : model_path.empty() ? "" : FolderOf(model_path);
  if (folder.empty()) return;
  folder_ = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  real_folders_ = {RealPath(folder)};
  if (!options.external_dir.empty() || model_path.empty()) return;
  // In a cache of links (Hugging Face's snapshots/), model and data are links to files of one folder of blobs.
  real_folders_.push_back(FolderOf(RealPath(model_path)));
}

ExternalData::~ExternalData() {
  if (folder_ >= 0) close(folder_);
}

ExternalData::Range ExternalData::Parse(const onnx::TensorProto& tensor, const std::string& where) const {
  Range range;
  std::set<std::string> keys;
  bool located = false;
  for (const auto& entry : tensor.external_data()) {
    if (!keys.insert(entry.key()).second) {
      FailPath("external data has the key '" + Escaped(entry.key()) + "' twice", entry.value(), where);
    }
    if (entry.key() == "location") {
      located = true;
      range.location = entry.value();
    } else if (entry.key() == "offset") {
      range.offset = ParseNumber(entry.value(), "offset", where);
    } else if (entry.key() == "length") {
      range.length = ParseNumber(entry.value(), "length", where);
    }
    // Other keys (a checksum, or marks of other tools) are not needed.
  }
  if (!located) throw Error(ErrorCode::kTensor, "external data has no location", where);
  CheckLocation(range.location, where);
  return range;
}

int ExternalData::OpenThroughLinks(const std::string& location) const {
  const Descriptor path(openat(folder_, location.c_str(), O_PATH | O_CLOEXEC));
  if (path.get() < 0) return -1;
  const std::string self = "/proc/self/fd/" + std::to_string(path.get());
  const std::string target = RealPath(self);
  const auto within = [&](const std::string& folder) { return !folder.empty() && folder != "." && target.starts_with(folder + "/"); };
  if (std::none_of(real_folders_.begin(), real_folders_.end(), within)) return -1;
  return open(self.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
}

int ExternalData::OpenBeneath(const std::string& location, const std::string& where) {
  int fd = OpenAt2(folder_, location, RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS);
  if (fd < 0 && (errno == ENOSYS || errno == EPERM)) fd = OpenByComponents(folder_, location);
  if (fd >= 0) return fd;
  const int error = errno;
  if (error == EXDEV || error == ELOOP) {
    // To the system an absolute link leaves the folder, wherever it leads.
    fd = OpenThroughLinks(location);
    if (fd >= 0) return fd;
    FailPath("external data leaves the model's folder through a link", location, where);
  }
  if (error == ENXIO) FailPath("external data is not a regular file", location, where);
  throw Error(ErrorCode::kIo, std::string("external data cannot be opened: ") + std::strerror(error),
              where + "  location \"" + Escaped(location) + "\"", "put the file beside the model, or name its folder with --external-dir");
}

int ExternalData::Open(const Range& range, const std::string& where, int64_t bytes) {
  if (folder_ < 0) {
    throw Error(ErrorCode::kIo, "the model stores tensors in other files, but their folder is unknown", where,
                "name the folder with --external-dir, or in external_dir of the library's options");
  }
  seen_.insert(range.location);
  if (static_cast<int64_t>(seen_.size()) > options_.limits.external_files) {
    throw Error(ErrorCode::kLimit, "the model uses more than " + std::to_string(options_.limits.external_files) + " files of external data",
                where);
  }
  if (range.length >= 0 && range.length != bytes) {
    throw Error(ErrorCode::kTensor,
                "external data has length " + std::to_string(range.length) + ", but the tensor needs " + std::to_string(bytes) + " bytes",
                where);
  }
  const auto end = CheckedAdd(range.offset, bytes);
  if (!end)
    throw Error(ErrorCode::kTensor, "external data has offset " + std::to_string(range.offset) + ", which is past the end of any file",
                where);
  Descriptor fd(OpenBeneath(range.location, where));
  struct stat status;
  if (fstat(fd.get(), &status) != 0) throw Error(ErrorCode::kIo, std::string("external data: ") + std::strerror(errno), where);
  if (!S_ISREG(status.st_mode)) FailPath("external data is not a regular file", range.location, where);
  if (status.st_nlink != 1 && !options_.allow_hardlinks) {
    throw Error(ErrorCode::kPath, "external data is a file with several names (hard links)",
                where + "  location \"" + Escaped(range.location) + "\"",
                "one of them may be outside the model's folder; caches and backups also use hard links: --allow-hardlinks allows them");
  }
  if (*end > status.st_size) {
    throw Error(ErrorCode::kTensor,
                "external data ends at byte " + std::to_string(*end) + ", but the file has " + std::to_string(status.st_size) + " bytes",
                where + "  location \"" + Escaped(range.location) + "\"");
  }
  return fd.Release();
}

void ExternalData::Check(const onnx::TensorProto& tensor, const std::string& where, int64_t bytes) {
  const Descriptor fd(Open(Parse(tensor, where), where, bytes));
}

void ExternalData::Read(const onnx::TensorProto& tensor, const std::string& where, void* out, int64_t bytes) {
  const Range range = Parse(tensor, where);
  const Descriptor fd(Open(range, where, bytes));
  for (int64_t done = 0; done < bytes;) {
    const ssize_t got = pread(fd.get(), static_cast<char*>(out) + done, static_cast<size_t>(bytes - done), range.offset + done);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      throw Error(ErrorCode::kIo, got == 0 ? "external data ends early" : std::string("external data: ") + std::strerror(errno),
                  where + "  location \"" + Escaped(range.location) + "\"");
    }
    done += got;
  }
}

}  // namespace gradloom
