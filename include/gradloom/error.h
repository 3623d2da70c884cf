// Errors and handles of the C++ interface.
#pragma once

#include <exception>
#include <memory>
#include <string>

#include "gradloom/gradloom_c.h"

namespace gradloom {
inline namespace v1 {

// An error: what is wrong, where, and what to do about it.
class Error : public std::exception {
 public:
  Error(GradloomErrorCode code, std::string name, std::string message, std::string where = {}, std::string help = {})
      : code_(code), name_(std::move(name)), message_(std::move(message)), where_(std::move(where)), help_(std::move(help)) {
    all_ = name_ + ": " + message_;
    if (!where_.empty()) all_ += "\n  --> " + where_;
    if (!help_.empty()) all_ += "\n  help: " + help_;
  }

  GradloomErrorCode code() const { return code_; }
  const std::string& name() const { return name_; }  // "E-SHAPE"
  const std::string& message() const { return message_; }
  const std::string& where() const { return where_; }  // file, ONNX node, shapes; may be empty
  const std::string& help() const { return help_; }    // may be empty

  // The whole text.
  const char* what() const noexcept override { return all_.c_str(); }

 private:
  GradloomErrorCode code_;
  std::string name_, message_, where_, help_, all_;
};

namespace internal {

// The table. Throws Error if the library has another version.
inline const GradloomApi& Api() {
  static const GradloomApi* const api = GradloomGetApi(GRADLOOM_API_VERSION);
  if (api == nullptr) throw Error(GRADLOOM_E_VERSION, "E-VERSION", "the library does not support this version of the C interface");
  return *api;
}

// Throws the error of the status, if any, and releases it.
inline void Check(GradloomStatus* status) {
  if (status == nullptr) return;
  const GradloomApi& api = Api();
  const std::unique_ptr<GradloomStatus, void (*)(GradloomStatus*)> owner(status, api.ReleaseStatus);
  throw Error(api.GetErrorCode(status), api.GetErrorName(status), api.GetErrorMessage(status), api.GetErrorWhere(status),
              api.GetErrorHelp(status));
}

// A shared handle.
template <typename T>
std::shared_ptr<T> Shared(T* handle, void (*release)(T*)) {
  return std::shared_ptr<T>(handle, release);
}

// The text of a handle; releases the handle.
inline std::string Take(GradloomText* text) {
  const std::unique_ptr<GradloomText, void (*)(GradloomText*)> owner(text, Api().ReleaseText);
  return std::string(Api().GetTextData(text), Api().GetTextBytes(text));
}

// A struct of the C table with its size set.
template <typename T>
T Sized() {
  T made{};
  made.size = sizeof made;
  return made;
}

}  // namespace internal

// "0.1.0"
inline std::string LibraryVersion() { return internal::Api().GetLibraryVersion(); }

struct DeviceInfo {
  std::string device;  // as Compile and locations name it: "cpu", "cuda:0"
  std::string name;    // the vendor's name for it
  std::string isa;     // decides which kernels are chosen: "avx512", "sm_90"
  std::string uuid;    // GPUs only
  int64_t units = 0;   // cores, or multiprocessors
  int64_t memory_total_bytes = 0;
  int64_t memory_free_bytes = 0;  // now
};

// The devices of this machine: the CPU first, then the GPUs.
inline size_t DeviceCount() {
  size_t count = 0;
  internal::Check(internal::Api().GetDeviceCount(&count));
  return count;
}
inline DeviceInfo GetDeviceInfo(size_t index) {
  auto info = internal::Sized<GradloomDeviceInfo>();
  internal::Check(internal::Api().GetDeviceInfo(index, &info));
  return {info.device, info.name, info.isa, info.uuid, info.units, info.memory_total_bytes, info.memory_free_bytes};
}

// Sets the devices that Compile uses in this process from now on if its options name none, for example "cuda:0". "" restores the
// configuration's default.
inline void SetDefaultDevices(const std::string& devices) { internal::Check(internal::Api().SetDefaultDevices(devices.c_str())); }
inline std::string DefaultDevices() {
  GradloomText* text = nullptr;
  internal::Check(internal::Api().GetDefaultDevices(&text));
  return internal::Take(text);
}

// Everything known about the devices and the drivers, as one JSON object.
inline std::string DevicesJson() {
  GradloomText* text = nullptr;
  internal::Check(internal::Api().GetDevices(&text));
  return internal::Take(text);
}

}  // namespace v1
}  // namespace gradloom
