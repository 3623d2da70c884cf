#include "runtime/plan/device_spec.h"

#include <charconv>

#include "runtime/base/error.h"

namespace gradloom {

DeviceSpec ParseDevices(const std::string& text) {
  if (text == "cpu" || text == "auto") return {};
  if (text.starts_with("cpu:")) {
    int count = 0;
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data() + 4, end, count);
    if (error == std::errc() && stop == end && count >= 1 && count <= kMaxDevices) return {DeviceKind::kCpu, count};
    throw Error(ErrorCode::kConfig,
                "devices '" + Escaped(text) + "': behind 'cpu:' goes a number of devices, 1 to " + std::to_string(kMaxDevices), "",
                "--devices cpu:4");
  }
  if (text.starts_with("cuda")) {
    throw Error(ErrorCode::kUnsupported, "devices '" + Escaped(text) + "' are not supported by this build", "", "--devices cpu");
  }
  throw Error(ErrorCode::kConfig, "no devices '" + Escaped(text) + "'", "", "--devices cpu");
}

}  // namespace gradloom
