#include "runtime/comm/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <random>
#include <sstream>
#include <utility>

namespace gradloom {

std::string HostIdentity() {
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  char space[64] = "";
  const ssize_t n = readlink("/proc/self/ns/pid", space, sizeof space - 1);
  return boot.empty() || n <= 0 ? "" : boot + "/" + std::string(space, static_cast<size_t>(n));
}

namespace {

uint64_t ReadCookie(const void* mapped) {
  uint64_t cookie;
  std::memcpy(&cookie, mapped, sizeof cookie);
  return cookie;
}

}  // namespace

std::unique_ptr<SharedMemory> SharedMemory::Make(const char* name, size_t bytes) {
  bytes += kCookieBytes;
  const std::string host = HostIdentity();
  Descriptor file(memfd_create(name, MFD_CLOEXEC));
  if (host.empty() || file.get() < 0 || ftruncate(file.get(), static_cast<off_t>(bytes)) != 0) return nullptr;
  void* const mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (mapped == MAP_FAILED) return nullptr;
  std::random_device device;
  const uint64_t cookie = static_cast<uint64_t>(device()) << 32 | device();
  std::memcpy(mapped, &cookie, sizeof cookie);
  // Without a stream, which would group the digits as the program's global locale does.
  std::string address = host + ' ' + std::to_string(getpid()) + ' ' + std::to_string(file.get()) + ' ' + std::to_string(cookie);
  return std::unique_ptr<SharedMemory>(new SharedMemory(std::move(file), static_cast<std::byte*>(mapped), bytes, std::move(address)));
}

std::unique_ptr<SharedMemory> SharedMemory::Open(const std::string& address, size_t bytes) {
  bytes += kCookieBytes;
  std::istringstream text(address);
  std::string there;
  int pid = 0, number = 0;
  uint64_t cookie = 0;
  if (!(text >> there >> pid >> number >> cookie) || there != HostIdentity()) return nullptr;
  // The file of an unknown process may be anything.
  const std::string path = "/proc/" + std::to_string(pid) + "/fd/" + std::to_string(number);
  const Descriptor file(open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat status {};
  if (file.get() < 0 || fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode) || static_cast<size_t>(status.st_size) != bytes)
    return nullptr;
  void* const mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (mapped == MAP_FAILED) return nullptr;
  std::unique_ptr<SharedMemory> opened(new SharedMemory(Descriptor(), static_cast<std::byte*>(mapped), bytes, address));
  return ReadCookie(mapped) == cookie ? std::move(opened) : nullptr;
}

SharedMemory::~SharedMemory() { munmap(mapped_, bytes_); }

}  // namespace gradloom
