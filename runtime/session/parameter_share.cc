#include "runtime/session/parameter_share.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>
#include <utility>

#include "runtime/base/checked.h"
#include "runtime/base/descriptor.h"
#include "runtime/base/error.h"
#include "runtime/plan/verify_scope.h"

namespace gradloom {
namespace {

constexpr int64_t kPageBytes = 4096;
constexpr int64_t kMaxTableBytes = 64 << 20;
constexpr size_t kMaxNameBytes = 64;
constexpr int kSeconds = 10;  // timeout for the other side
constexpr int kRetryMilliseconds = 100;

// The shared memory begins with this header, followed by a table of the parameters as JSON and, from a page boundary on, the state.
struct Header {
  char magic[8] = {'G', 'L', 'S', 'H', 'A', 'R', 'E', '1'};
  int64_t table_bytes = 0, state_begin = 0, state_bytes = 0;
};

std::string Reason() { return std::generic_category().message(errno); }

// An address in the abstract namespace, which is not part of the file system.
std::pair<sockaddr_un, socklen_t> AddressOf(const std::string& name) {
  const bool fits = !name.empty() && name.size() <= kMaxNameBytes && std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '.' || c == '_' || c == '-';
  });
  if (!fits) {
    throw Error(ErrorCode::kConfig, "invalid name for shared parameters: '" + Escaped(name) + "'", "",
                "use up to 64 letters, digits, dots, underscores and dashes");
  }
  const std::string path = "gradloom/parameters/" + name;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  // A leading zero byte selects the abstract namespace.
  std::memcpy(address.sun_path + 1, path.data(), path.size());
  return {address, static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + path.size())};
}

bool IsOfThisUser(int socket) {
  ucred peer{};
  socklen_t bytes = sizeof peer;
  return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 && peer.uid == geteuid();
}

// A message of one byte that passes a file descriptor to another process.
struct DescriptorMessage {
  char byte = 1;
  iovec data{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};

  DescriptorMessage() {
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
  }
  DescriptorMessage(const DescriptorMessage&) = delete;
  DescriptorMessage& operator=(const DescriptorMessage&) = delete;
};

void SendDescriptor(int socket, int fd) {
  DescriptorMessage sent;
  cmsghdr* const header = CMSG_FIRSTHDR(&sent.message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof fd);
  std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  // A client that does not receive it is dropped.
  sendmsg(socket, &sent.message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

// The timeout of a socket begins again after a signal, which ends a call with a timeout even where others are restarted. So this waits with
// a deadline of its own.
bool WaitToRead(int socket) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point deadline = Clock::now() + std::chrono::seconds(kSeconds);
  while (true) {
    pollfd watched{socket, POLLIN, 0};
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    const int ready = poll(&watched, 1, static_cast<int>(std::max<int64_t>(left, 0)));
    if (ready >= 0 || errno != EINTR) return ready > 0;
  }
}

// -1 if none arrives.
int ReceiveDescriptor(int socket) {
  DescriptorMessage got;
  if (!WaitToRead(socket) || recvmsg(socket, &got.message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT) != 1) return -1;
  const cmsghdr* const header = CMSG_FIRSTHDR(&got.message);
  if (header == nullptr || header->cmsg_type != SCM_RIGHTS || header->cmsg_len != CMSG_LEN(sizeof(int))) return -1;
  int fd = -1;
  std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
  return fd;
}

std::string TableOf(const Plan& plan) {
  nlohmann::json table = nlohmann::json::array();
  for (const StateKind kind : {StateKind::kParameter, StateKind::kStatistic}) {
    for (const StateTensor& state : plan.state) {
      if (state.kind != kind) continue;
      table.push_back({{"name", state.name},
                       {"dtype", static_cast<int>(state.dtype)},
                       {"shape", std::vector<int64_t>(state.shape.begin(), state.shape.end())},
                       {"layout", state.layout.ToString()},
                       {"offset", state.offset}});
    }
  }
  return table.dump();
}

void WriteAll(int fd, const void* data, int64_t bytes, int64_t at) {
  const auto* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t n = pwrite(fd, from, static_cast<size_t>(bytes), at);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) throw Error(ErrorCode::kResource, "cannot allocate shared memory for the parameters: " + Reason());
    from += n, at += n, bytes -= n;
  }
}

}  // namespace

ParameterShare::ParameterShare(Session& session, const std::string& name) {
  const auto [address, address_bytes] = AddressOf(name);
  const Plan& plan = session.plan();
  StateArena& arena = session.executor().state();
  if (plan.targets.front().device != DeviceKind::kCpu || plan.num_ranks() != 1) {
    throw Error(ErrorCode::kUnsupported, "only a session on one CPU device can share its parameters", "",
                "compile the plan for cpu, or read them with GetParameter");
  }
  const std::string table = TableOf(plan);
  Header header;
  header.table_bytes = static_cast<int64_t>(table.size());
  header.state_begin = AlignUp(static_cast<int64_t>(sizeof header) + header.table_bytes, kPageBytes);
  header.state_bytes = arena.bytes(0);

  // The name is taken first: of two sessions that want it, only one may move its state.
  Descriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (socket.get() < 0) throw Error(ErrorCode::kResource, "cannot create a socket: " + Reason());
  if (bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), address_bytes) != 0) {
    const bool taken = errno == EADDRINUSE;
    throw Error(taken ? ErrorCode::kConfig : ErrorCode::kResource,
                taken ? "parameters are already shared under the name '" + Escaped(name) + "'" : "cannot bind the socket: " + Reason());
  }
  Descriptor memory(memfd_create("gradloom-share", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  const int64_t bytes = header.state_begin + AlignUp(header.state_bytes, kPageBytes);
  if (memory.get() < 0 || ftruncate(memory.get(), bytes) != 0)
    throw Error(ErrorCode::kResource, "cannot allocate shared memory for the parameters: " + Reason());
  WriteAll(memory.get(), &header, sizeof header, 0);
  WriteAll(memory.get(), table.data(), header.table_bytes, sizeof header);
  if (header.state_bytes > 0) {
    WriteAll(memory.get(), arena.at(0, 0), header.state_bytes, header.state_begin);
    // Mapped over the arena, so that everything that was prepared finds it at the same address: an arena in host memory begins at a page
    // boundary and does not share pages (HostArena).
    void* const at = arena.at(0, 0);
    if (mmap(at, static_cast<size_t>(AlignUp(header.state_bytes, kPageBytes)), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, memory.get(),
             header.state_begin) != at)
      throw Error(ErrorCode::kResource, "the parameters cannot be shared: " + Reason());
  }
  // Other processes cannot write the memory, and its size cannot change under a reader.
  fcntl(memory.get(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE);
  if (fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0)
    throw Error(ErrorCode::kResource, "the shared memory cannot be sealed: " + Reason());
  Descriptor wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (wake.get() < 0 || listen(socket.get(), 16) != 0)
    throw Error(ErrorCode::kResource, "cannot listen on the socket that shares the parameters: " + Reason());
  memory_ = memory.get(), socket_ = socket.get(), wake_ = wake.get();
  try {
    thread_ = std::thread([this] { Serve(); });
  } catch (const std::system_error& error) {
    throw Error(ErrorCode::kResource, std::string("cannot start the thread that shares the parameters: ") + error.what());
  }
  memory.Release(), socket.Release(), wake.Release();
}

ParameterShare::~ParameterShare() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wake_, &one, sizeof one);
  thread_.join();
  // A child that was forked meanwhile still has the socket, and with it the name. Nobody must wait there for an answer.
  shutdown(socket_, SHUT_RDWR);
  for (const int fd : {memory_, socket_, wake_}) close(fd);
}

void ParameterShare::Serve() const {
  while (true) {
    pollfd watched[] = {{wake_, POLLIN, 0}, {socket_, POLLIN, 0}};
    if (poll(watched, 2, -1) < 0 && errno != EINTR) return;
    if (watched[0].revents != 0) return;
    const Descriptor client(accept4(socket_, nullptr, nullptr, SOCK_CLOEXEC));
    if (client.get() < 0) {
      // Without a free descriptor the connection stays pending, and the socket readable: waits, so that this is no busy loop.
      poll(watched, 1, kRetryMilliseconds);
      continue;
    }
    if (IsOfThisUser(client.get())) SendDescriptor(client.get(), memory_);
  }
}

Tensor AttachedParameters::Parameter::Get() const {
  Tensor value(dtype, shape);
  if (layout.plain()) {
    if (value.bytes() > 0) std::memcpy(value.data(), stored, static_cast<size_t>(value.bytes()));
  } else {
    FromLayout(layout, shape, DTypeBytes(dtype), stored, value.data());
  }
  return value;
}

AttachedParameters::AttachedParameters(const std::string& name) {
  const auto [address, address_bytes] = AddressOf(name);
  const Descriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (socket.get() < 0) throw Error(ErrorCode::kResource, "cannot create a socket: " + Reason());
  // Limits how long it waits while the queue of the other side is full.
  const timeval limit{kSeconds, 0};
  setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  int failed = 0;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(kSeconds);  // the limit begins again after a signal
  do {
    failed = connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), address_bytes) == 0 ? 0 : errno;
  } while (failed == EINTR && std::chrono::steady_clock::now() < deadline);
  if (failed != 0) {
    throw Error(ErrorCode::kConfig, "no parameters are shared under the name '" + Escaped(name) + "'", "",
                "share them from a session on this host with ShareParameters");
  }
  if (!IsOfThisUser(socket.get()))
    throw Error(ErrorCode::kConfig, "the parameters shared under the name '" + Escaped(name) + "' belong to another user");
  const Descriptor memory(ReceiveDescriptor(socket.get()));
  if (memory.get() < 0) throw Error(ErrorCode::kData, "the owner of the name '" + Escaped(name) + "' did not send parameters within 10 s");
  try {
    Map(memory.get());
  } catch (const nlohmann::json::exception&) {
    throw Error(ErrorCode::kData, "what is shared under the name '" + Escaped(name) + "' has no table of parameters");
  } catch (const Error& error) {
    throw Error(error.code() == ErrorCode::kPlan ? ErrorCode::kData : error.code(),
                "what is shared under the name '" + Escaped(name) + "' is not a set of parameters: " + error.message());
  }
}

namespace {

[[noreturn]] void Refuse(const std::string& why) { throw Error(ErrorCode::kData, why); }

}  // namespace

// The memory may come from any process, which may write to it during this call: everything except the elements is copied before it is
// checked.
void AttachedParameters::Map(int fd) {
  struct stat status {};
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || fstat(fd, &status) != 0) Refuse("it could shrink while it is read");
  const int64_t size = status.st_size;
  Header header;
  const char magic[8] = {'G', 'L', 'S', 'H', 'A', 'R', 'E', '1'};
  if (size < static_cast<int64_t>(sizeof header) || pread(fd, &header, sizeof header, 0) != static_cast<ssize_t>(sizeof header) ||
      std::memcmp(header.magic, magic, sizeof magic) != 0)
    Refuse("it does not start with the magic number");
  if (header.table_bytes < 0 || header.table_bytes > kMaxTableBytes || header.table_bytes > size - static_cast<int64_t>(sizeof header))
    Refuse("its table has " + std::to_string(header.table_bytes) + " bytes");
  if (header.state_begin < static_cast<int64_t>(sizeof header) + header.table_bytes || header.state_begin % kPageBytes != 0 ||
      header.state_bytes < 0 || header.state_begin > size || header.state_bytes > size - header.state_begin)
    Refuse("its state is out of bounds");
  std::string text(static_cast<size_t>(header.table_bytes), '\0');
  if (pread(fd, text.data(), text.size(), sizeof header) != static_cast<ssize_t>(text.size())) Refuse("its table cannot be read");
  void* const mapped = mmap(nullptr, static_cast<size_t>(size), PROT_READ, MAP_SHARED, fd, 0);
  if (mapped == MAP_FAILED) throw Error(ErrorCode::kResource, "it cannot be mapped: " + Reason());
  mapped_ = {static_cast<const std::byte*>(mapped),
             [size](const std::byte* at) { munmap(const_cast<std::byte*>(at), static_cast<size_t>(size)); }};
  for (const nlohmann::json& row : nlohmann::json::parse(text)) {
    Parameter p;
    p.name = row.at("name").get<std::string>();
    p.dtype = static_cast<DType>(row.at("dtype").get<uint8_t>());
    const auto extents = row.at("shape").get<std::vector<int64_t>>();
    for (const int64_t extent : extents) p.shape.push_back(extent);
    p.layout = Layout::FromString(row.at("layout").get<std::string>());
    const auto offset = row.at("offset").get<int64_t>();
    const std::optional<int64_t> stored = verify::BytesOf(p.dtype, p.shape, p.layout);
    if (!stored) Refuse("'" + Escaped(p.name) + "' has an invalid type or shape");
    if (offset < 0 || offset % kAlignmentBytes != 0 || offset > header.state_bytes || *stored > header.state_bytes - offset)
      Refuse("'" + Escaped(p.name) + "' is out of bounds");
    p.stored = mapped_.get() + header.state_begin + offset;
    parameters_.push_back(std::move(p));
  }
}

}  // namespace gradloom
