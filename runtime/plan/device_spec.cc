#include "runtime/plan/device_spec.h"

#include <charconv>

#include "runtime/base/error.h"

namespace gradloom {

namespace {

// The number behind "cpu:"; -1 where there is none.
int NumberOf(const std::string& text) {
  if (!text.starts_with("cpu:")) return -1;
  int number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data() + 4, end, number);
  return error == std::errc() && stop == end ? number : -1;
}

}  // namespace

int ParseDeviceIndex(const std::string& text) {
  const int index = NumberOf(text);
  return index < kMaxDevices ? index : -1;
}

DeviceSpec ParseDevices(const std::string& text) {
  if (text == "cpu" || text == "auto") return {};
  if (text.starts_with("cpu:")) {
    const int count = NumberOf(text);
    if (count >= 1 && count <= kMaxDevices) return {DeviceKind::kCpu, count};
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
