// Memory that several processes of a host have mapped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "runtime/base/descriptor.h"

namespace gradloom {

// It has no name in any file system: nothing is left of it when those that have it are gone, whatever ended them. Its first bytes are a
// cookie, by which a process that opens it knows that it is what its address says.
class SharedMemory {
 public:
  // Zeroed but for the cookie. Null where the system gives no such memory. `name`: for people who look at a process's maps.
  static std::unique_ptr<SharedMemory> Make(const char* name, size_t bytes);
  // That of another process of this host, which must have so many bytes. Null where the address is none of it, or of another host, or this
  // process may not look into that one. The maker has to live until all have opened it.
  static std::unique_ptr<SharedMemory> Open(const std::string& address, size_t bytes);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  // By which others find what was made here, one line.
  const std::string& address() const { return address_; }
  // What lies behind the cookie begins here; aligned to a cache line.
  std::byte* data() const { return mapped_ + kCookieBytes; }
  size_t bytes() const { return bytes_ - kCookieBytes; }

  static constexpr size_t kCookieBytes = 64;

 private:
  SharedMemory(Descriptor file, std::byte* mapped, size_t bytes, std::string address)
      : file_(std::move(file)), mapped_(mapped), bytes_(bytes), address_(std::move(address)) {}

  const Descriptor file_;  // of what was made here, as long as others may open it
  std::byte* const mapped_;
  const size_t bytes_;  // with the cookie
  const std::string address_;
};

}  // namespace gradloom
