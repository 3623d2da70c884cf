// Memory that several processes of a host map.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "runtime/base/descriptor.h"

namespace gradloom {

// Identifies the host and the PID namespace of this process, whose processes can open each other's memory, whatever their containers call
// the host. "" if the system does not tell.
std::string HostIdentity();

// It has no name in any file system, so nothing remains of it when the processes that map it are gone, however they ended. Its first bytes
// are a cookie, by which a process that opens it recognizes it.
class SharedMemory {
 public:
  // Makes zeroed memory, with a cookie. Null if the system has no such memory. `name`: shown in a process's memory maps.
  static std::unique_ptr<SharedMemory> Make(const char* name, size_t bytes);
  // Opens memory of another process on this host, which must have this number of bytes. Null if the address is invalid or of another host,
  // or if this process may not access the other one. The maker must live until all have opened it.
  static std::unique_ptr<SharedMemory> Open(const std::string& address, size_t bytes);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  // The address, one line, with which other processes open it.
  const std::string& address() const { return address_; }
  // The memory after the cookie; aligned to a cache line.
  std::byte* data() const { return mapped_ + kCookieBytes; }
  size_t bytes() const { return bytes_ - kCookieBytes; }

  static constexpr size_t kCookieBytes = 64;

 private:
  SharedMemory(Descriptor file, std::byte* mapped, size_t bytes, std::string address)
      : file_(std::move(file)), mapped_(mapped), bytes_(bytes), address_(std::move(address)) {}

  const Descriptor file_;  // of memory made here, as long as others may open it
  std::byte* const mapped_;
  const size_t bytes_;  // with the cookie
  const std::string address_;
};

}  // namespace gradloom
