#include "tools/run/pass_log.h"

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>

#include "runtime/base/number_text.h"
#include "tools/screen/json_line.h"
#include "tools/screen/screen.h"
#include "tools/screen/stderr_lines.h"

namespace gradloom {
namespace {

class OnStderr : public PassLog {
 public:
  void Time(const char* pass, double ms, size_t nodes) override {
    WriteStderrAsIs(StderrLinesAreJson() ? JsonLine({{"t", Timestamp()}, {"pass", pass}, {"ms", ms}, {"nodes", nodes}})
                                         : Formatted("pass %s  %.3f ms  %zu nodes", pass, ms, nodes));
  }

  void Dump(const char* pass, const std::string& graph) override {
    WriteStderrAsIs(StderrLinesAreJson() ? JsonLine({{"t", Timestamp()}, {"pass", pass}, {"graph", graph}})
                                         : "# after " + std::string(pass) + "\n" + graph);
  }
};

}  // namespace

PassLog& StderrPassLog() {
  static OnStderr log;
  return log;
}

}  // namespace gradloom
