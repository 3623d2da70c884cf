#include "runtime/plan/device_spec.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "runtime/base/error.h"

namespace gradloom {

namespace {

// All of `text` as a number; -1 if it is not a number or is negative.
int Number(std::string_view text) {
  int number = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && stop == text.data() + text.size() ? std::max(number, -1) : -1;
}

std::vector<std::string> Split(const std::string& text) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

DeviceSpec ParseCuda(const std::string& text) {
  DeviceSpec spec{.kind = DeviceKind::kCuda};
  std::vector<std::string> parts = Split(text);
  if (parts.back() == "else=cpu") {
    spec.else_cpu = true;
    parts.pop_back();
  }
  if (parts.size() == 1 && parts[0] == "cuda") return spec;
  if (parts.size() == 1 && parts[0] == "cuda:all") {
    spec.count = 0;
    return spec;
  }
  for (const std::string& part : parts) {
    if (part.starts_with("cpu")) {
      throw Error(ErrorCode::kConfig, "devices '" + Escaped(text) + "': cuda and cpu cannot share a batch", "",
                  "choose devices of one kind; --devices cuda:0,else=cpu falls back to the CPU if there is no such GPU");
    }
    const int ordinal = Number(part.starts_with("cuda:") ? std::string_view(part).substr(5) : part);
    if (ordinal < 0 || ordinal >= kMaxDevices) {
      throw Error(ErrorCode::kConfig, "devices '" + Escaped(text) + "': 'cuda:' must be followed by GPU numbers", "",
                  "use --devices cuda:0,2, or --devices cuda:all");
    }
    spec.ordinals.push_back(ordinal);
  }
  spec.count = static_cast<int>(spec.ordinals.size());
  return spec;
}

}  // namespace

int ParseDeviceIndex(const std::string& text, const DeviceSpec& devices) {
  if (text.starts_with("cuda:")) {
    const int ordinal = Number(std::string_view(text).substr(5));
    const auto found = std::find(devices.ordinals.begin(), devices.ordinals.end(), ordinal);
    const bool once = std::count(found, devices.ordinals.end(), ordinal) == 1;
    return once ? static_cast<int>(found - devices.ordinals.begin()) : -1;
  }
  const int index = text.starts_with("cpu:") ? Number(std::string_view(text).substr(4)) : -1;
  return index < kMaxDevices ? index : -1;
}

std::string DeviceSpec::ToString() const {
  if (kind == DeviceKind::kCpu) return count == 1 ? "cpu" : "cpu:" + std::to_string(count);
  if (ordinals.empty()) return count == 0 ? "cuda:all" : "cuda";
  std::string text = "cuda:";
  for (int ordinal : ordinals) text += (text.back() == ':' ? "" : ",") + std::to_string(ordinal);
  return text;
}

DeviceSpec ParseDevices(const std::string& text) {
  if (text == "cpu") return {};
  if (text == "auto") return {.best = true};
  if (text.starts_with("cpu:")) {
    const int count = Number(std::string_view(text).substr(4));
    if (count >= 1 && count <= kMaxDevices) return {.count = count};
    if (text.find("cuda") != std::string::npos) return ParseCuda(text);
    throw Error(ErrorCode::kConfig,
                "devices '" + Escaped(text) + "': 'cpu:' must be followed by a number of devices from 1 to " + std::to_string(kMaxDevices),
                "", "--devices cpu:4");
  }
  if (text.starts_with("cuda") || text.starts_with("cpu,")) return ParseCuda(text);
  throw Error(ErrorCode::kConfig, "unknown devices '" + Escaped(text) + "'", "", "use --devices cpu, or --devices cuda:0");
}

}  // namespace gradloom
