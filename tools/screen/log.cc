#include "tools/screen/log.h"

#include "tools/screen/log_file.h"
#include "tools/screen/stderr_lines.h"

namespace gradloom {

Log::~Log() {
  if (file_ != nullptr) std::fclose(file_);
}

void Log::Line(const std::string& text) {
  if (!quiet_) LogToStderr(text);
  Record(text);
}

void Log::Record(const std::string& text) {
  if (file_ == nullptr) {
    before_ += text + "\n";
    return;
  }
  std::fprintf(file_, "%s\n", text.c_str());
  std::fflush(file_);
}

void Log::AttachFile(const std::string& path) {
  file_ = OpenLogFile(path);
  std::fputs(before_.c_str(), file_);
  before_.clear();
}

}  // namespace gradloom
