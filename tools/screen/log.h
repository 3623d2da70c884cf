// Messages of a command for people, on stderr and in the log of a run.
#pragma once

#include <cstdio>
#include <string>

namespace gradloom {

class Log {
 public:
  Log() = default;
  ~Log();
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;

  // Writes a line to stderr (unless quiet) and to the file.
  void Line(const std::string& text);
  // Writes a line only to the file.
  void Record(const std::string& text);

  // From now on appends lines to this file, starting with those written before. Throws Error(kResource) if it cannot be opened.
  void AttachFile(const std::string& path);

  void set_quiet(bool quiet) { quiet_ = quiet; }

 private:
  std::string before_;
  std::FILE* file_ = nullptr;
  bool quiet_ = false;
};

}  // namespace gradloom
