// What a command tells people, on stderr and in the log of a run.
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

  // A line on stderr (unless quiet) and in the file.
  void Line(const std::string& text);
  // A line in the file alone.
  void Record(const std::string& text);

  // From here on lines also go to the end of this file, and first those that were there before. Throws
  // Error(kResource) where it cannot be opened.
  void KeepIn(const std::string& path);

  void set_quiet(bool quiet) { quiet_ = quiet; }

 private:
  std::string before_;
  std::FILE* file_ = nullptr;
  bool quiet_ = false;
};

}  // namespace gradloom
