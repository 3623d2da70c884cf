// NCCL without GPUs: the functions that runtime/device/cuda calls, over host memory and, between processes, a socket from each process to
// the one that created the id. Reductions use the fixed summation tree, so that the bits match those of one process. If a process ends, the
// communicators of the others report an error. If a process is stopped, the others wait for it until they abort. Collectives in a different
// order than on other members are an error, and so are those that not all processes capture. As with NCCL's NCCL_RUNTIME_CONNECT, processes
// connect in the first operation: the communicator stays in progress until all have issued it.
#include <cuda_runtime_api.h>
#include <errno.h>
#include <fcntl.h>
#include <nccl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/base/dtype.h"
#include "runtime/comm/tree_sum.h"
#include "tests/cuda/emulated_runtime.h"

namespace gradloom::emulated {
namespace {

enum class Kind : int32_t { kAllReduce, kReduceScatter, kBroadcast, kAllGather, kReduce };

// One operation of all members, the same in all processes.
struct Collective {
  Kind kind{};
  int32_t root = 0;
  int32_t dtype = 0;
  int32_t captured = 0;                     // whether it is a part of a graph
  int64_t read_bytes = 0, write_bytes = 0;  // per member
  bool operator==(const Collective&) const = default;
};

struct Operand {
  const char* read = nullptr;
  char* write = nullptr;
};

// A socket to another process. A message is its size followed by that many bytes.
struct Connection {
  int fd = -1;
  std::string in, out;
  std::vector<int32_t> ranks;  // the ranks of the other side, once it has sent them
  bool issued = false;         // whether the other side has issued its first operation
  bool lost = false;

  void Put(const std::string& message) {
    const uint64_t size = message.size();
    out.append(reinterpret_cast<const char*>(&size), sizeof size);
    out += message;
  }
  // Takes the next message, if a complete one has arrived.
  bool Receive(std::string& message) {
    uint64_t size = 0;
    if (in.size() < sizeof size) return false;
    std::memcpy(&size, in.data(), sizeof size);
    if (in.size() < sizeof size + size) return false;
    message = in.substr(sizeof size, size);
    in.erase(0, sizeof size + size);
    return true;
  }
  // Reads and writes as much as possible without blocking.
  void Pump() {
    while (!out.empty() && !lost) {
      const ssize_t n = send(fd, out.data(), out.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n < 0) {
        lost = errno != EAGAIN && errno != EINTR;
        break;
      }
      out.erase(0, static_cast<size_t>(n));
    }
    char buffer[1 << 16];
    for (ssize_t n = 1; n > 0;) {
      n = recv(fd, buffer, sizeof buffer, MSG_DONTWAIT);
      if (n > 0) in.append(buffer, static_cast<size_t>(n));
      if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) lost = true;
    }
  }
};

// The listening sockets of the ids that this process has created.
std::map<std::string, int>& Listeners() {
  static std::map<std::string, int> listeners;
  return listeners;
}

sockaddr_un AddressOf(const std::string& id) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;  // a name that starts with 0 is in the abstract namespace, not in the file system
  std::memcpy(address.sun_path + 1, id.data(), std::min(id.size(), sizeof address.sun_path - 1));
  return address;
}

}  // namespace

// The members of one communicator that belong to this process.
class Clique {
 public:
  Clique(std::string id, int size) : id_(std::move(id)), size_(size) {}
  ~Clique() {
    for (Connection& connection : connections_) close(connection.fd);
    if (listener_ >= 0) close(listener_);
  }

  // The number of graphs that contain collectives of the communicator.
  std::atomic<int>& in_graphs() { return in_graphs_; }
  // NCCL does not destroy a communicator before these graphs are destroyed; if they stay, it waits forever. So they do if they are under
  // way and contain work of a device that has failed.
  void AwaitGraphs() {
    for (const auto begin = std::chrono::steady_clock::now(); in_graphs_ > 0; std::this_thread::yield()) {
      AdvanceStreams();
      if (DeviceLost() || std::chrono::steady_clock::now() - begin < std::chrono::seconds(20)) continue;
      std::fprintf(stderr, "emulated NCCL: a communicator is ended while there is a graph with collectives of it\n");
      std::abort();
    }
  }

  void Add(int rank) { ranks_.push_back(rank); }
  int size() const { return size_; }
  void Abort() { aborted_ = true; }
  bool aborted() const { return aborted_; }

  // Called when all members of this process have been added.
  ncclResult_t Init() {
    std::sort(ranks_.begin(), ranks_.end());
    if (static_cast<int>(ranks_.size()) == size_) return state_ = ncclSuccess;
    const auto mine = Listeners().find(id_);
    if (mine != Listeners().end()) {
      listener_ = mine->second;
      Listeners().erase(mine);
    } else {
      Connection to_root;
      to_root.fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
      const sockaddr_un address = AddressOf(id_);
      if (connect(to_root.fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
        close(to_root.fd);
        return state_ = ncclSystemError;
      }
      to_root.Put({reinterpret_cast<const char*>(ranks_.data()), ranks_.size() * sizeof(int32_t)});
      connections_.push_back(std::move(to_root));
    }
    return state_ = ncclInProgress;
  }

  // An operation has been enqueued.
  void Issue() {
    const char* const at_runtime = std::getenv("NCCL_RUNTIME_CONNECT");
    if (std::exchange(issued_, true) || connections_.empty()) return;
    operates_ = at_runtime != nullptr && std::string(at_runtime) == "0";
    if (operates_) return;
    state_ = ncclInProgress;
    if (!leads()) connections_[0].Put("issued");
    Poll();
  }

  // ncclInProgress until all processes have joined the communicator, and again until all have issued their first operation.
  ncclResult_t State() {
    if (state_ == ncclInProgress || state_ == ncclSuccess) Poll();
    return state_;
  }

  // Advances one collective; returns true once it has completed. Called until then.
  bool Run(const Collective& collective, const std::vector<Operand>& operands) {
    if (aborted_ || State() != ncclSuccess) return aborted_;
    if (!running_) {
      running_ = true;
      operands_.assign(static_cast<size_t>(size_), {});
      for (size_t m = 0; m < ranks_.size(); ++m) {
        const bool gives = collective.kind != Kind::kBroadcast || collective.root == ranks_[m];
        if (gives) operands_[static_cast<size_t>(ranks_[m])].assign(operands[m].read, static_cast<size_t>(collective.read_bytes));
      }
      if (!leads() && !connections_.empty()) {
        std::string message(reinterpret_cast<const char*>(&collective), sizeof collective);
        for (int rank : ranks_) message += operands_[static_cast<size_t>(rank)];
        connections_[0].Put(message);
      }
    }
    Poll();
    if (connections_.empty()) {
      for (size_t m = 0; m < ranks_.size(); ++m) Write(collective, ranks_[m], operands[m].write);
    } else if (leads()) {
      if (!ReceiveOperands(collective)) return false;
      for (Connection& connection : connections_) {
        std::string message(connection.ranks.size() * static_cast<size_t>(collective.write_bytes), '\0');
        for (size_t m = 0; m < connection.ranks.size(); ++m)
          Write(collective, connection.ranks[m], message.data() + m * static_cast<size_t>(collective.write_bytes));
        connection.Put(message);
      }
      for (size_t m = 0; m < ranks_.size(); ++m) Write(collective, ranks_[m], operands[m].write);
      Poll();
    } else {
      std::string results;
      if (!connections_[0].Receive(results)) return false;
      for (size_t m = 0; m < ranks_.size(); ++m) {
        if (collective.kind == Kind::kReduce && collective.root != ranks_[m]) continue;
        std::memcpy(operands[m].write, results.data() + m * static_cast<size_t>(collective.write_bytes),
                    static_cast<size_t>(collective.write_bytes));
      }
    }
    running_ = false;
    return true;
  }

 private:
  bool leads() const { return listener_ >= 0; }

  void Poll() {
    if (leads() && !connected_) {
      pollfd listening{listener_, POLLIN, 0};
      while (poll(&listening, 1, 0) == 1) {
        Connection connection;
        connection.fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
        connections_.push_back(std::move(connection));
      }
    }
    for (Connection& connection : connections_) connection.Pump();
    if (!connected_) Handshake();
    if (issued_ && !operates_) AwaitIssues();
    // A process that has its result may leave first. A closed connection is an error only for those that still wait.
    const bool waits = running_ || !connected_ || (issued_ && !operates_);
    for (const Connection& connection : connections_) {
      if (connection.lost && connection.in.empty() && waits) state_ = ncclRemoteError;
    }
  }

  void AwaitIssues() {
    bool all = true;
    for (Connection& connection : connections_) {
      std::string message;
      connection.issued = connection.issued || connection.Receive(message);
      all = all && connection.issued;
    }
    if (!all) return;
    if (leads()) {
      for (Connection& connection : connections_) connection.Put("go"), connection.Pump();
    }
    operates_ = true;
    state_ = ncclSuccess;
  }

  void Handshake() {
    if (!leads()) {
      std::string welcome;
      connected_ = !connections_.empty() && connections_[0].Receive(welcome);
    } else {
      size_t known = ranks_.size();
      for (Connection& connection : connections_) {
        std::string hello;
        if (connection.ranks.empty() && connection.Receive(hello)) {
          connection.ranks.resize(hello.size() / sizeof(int32_t));
          std::memcpy(connection.ranks.data(), hello.data(), hello.size());
        }
        known += connection.ranks.size();
      }
      connected_ = known == static_cast<size_t>(size_);
      if (connected_) {
        for (Connection& connection : connections_) connection.Put("welcome"), connection.Pump();
      }
    }
    if (connected_) state_ = ncclSuccess;
  }

  // On a process that does not lead: whether all operands have arrived.
  bool ReceiveOperands(const Collective& collective) {
    bool all = true;
    for (Connection& connection : connections_) {
      if (received_.contains(&connection)) continue;
      std::string message;
      if (!connection.Receive(message)) {
        all = false;
        continue;
      }
      received_.insert(&connection);
      Collective theirs;
      std::memcpy(&theirs, message.data(), sizeof theirs);
      if (theirs != collective) {
        std::fprintf(stderr, "emulated NCCL: processes come to different collectives\n");
        state_ = ncclInvalidUsage;
        return false;
      }
      size_t at = sizeof theirs;
      for (int rank : connection.ranks) {
        const size_t bytes =
            collective.kind != Kind::kBroadcast || collective.root == rank ? static_cast<size_t>(collective.read_bytes) : 0;
        operands_[static_cast<size_t>(rank)] = message.substr(at, bytes);
        at += bytes;
      }
    }
    if (all) received_.clear();
    return all;
  }

  void Write(const Collective& collective, int rank, char* to) const {
    const auto dtype = static_cast<DType>(collective.dtype);
    const auto bytes = static_cast<size_t>(collective.write_bytes);
    switch (collective.kind) {
      case Kind::kBroadcast: std::memcpy(to, operands_[static_cast<size_t>(collective.root)].data(), bytes); return;
      case Kind::kAllGather:
        for (const std::string& part : operands_) std::memcpy(std::exchange(to, to + part.size()), part.data(), part.size());
        return;
      case Kind::kReduce:
        if (rank != collective.root) return;
        [[fallthrough]];
      case Kind::kAllReduce:
      case Kind::kReduceScatter: {
        const size_t begin = collective.kind == Kind::kReduceScatter ? static_cast<size_t>(rank) * bytes : 0;
        std::vector<const void*> addends;
        for (const std::string& whole : operands_) addends.push_back(whole.data() + begin);
        std::vector<double> scratch(static_cast<size_t>(SumTreeScratchBytes(addends.size())) / sizeof(double) + 1);
        std::string sum(bytes, '\0');
        SumTree(dtype, addends, collective.write_bytes / DTypeBytes(dtype), scratch.data(), sum.data());
        std::memcpy(to, sum.data(), bytes);
        return;
      }
    }
  }

  const std::string id_;
  const int size_;
  std::atomic<int> in_graphs_ = 0;
  std::vector<int32_t> ranks_;  // of this process
  ncclResult_t state_ = ncclInProgress;
  std::atomic<bool> aborted_ = false;
  bool connected_ = false;
  bool issued_ = false, operates_ = false;  // whether this process, and all, have issued the first operation
  int listener_ = -1;                       // only in the process that created the id
  std::vector<Connection> connections_;
  bool running_ = false;
  std::vector<std::string> operands_;     // by rank
  std::set<const Connection*> received_;  // those whose operands have arrived
};

namespace {

// Registers with a graph for the lifetime of this object.
class InGraph {
 public:
  explicit InGraph(std::shared_ptr<Clique> clique) : clique_(std::move(clique)) { ++clique_->in_graphs(); }
  ~InGraph() { --clique_->in_graphs(); }
  InGraph(const InGraph&) = delete;
  InGraph& operator=(const InGraph&) = delete;

 private:
  const std::shared_ptr<Clique> clique_;
};

// The calls since the outermost ncclGroupStart.
struct QueuedCall {
  std::shared_ptr<Clique> clique;
  int rank = 0;
  Collective collective;
  Operand operand;
  cudaStream_t stream = nullptr;
};

struct Group {
  int depth = 0;
  std::map<std::string, std::shared_ptr<Clique>> initializing;  // by id
  std::vector<QueuedCall> queued;
  std::vector<std::shared_ptr<Clique>> aborted;
};

Group& TheGroup() {
  thread_local Group group;
  return group;
}

// The n-th collectives of the members of a communicator are matched with each other.
ncclResult_t EnqueueAll(std::vector<QueuedCall> queued) {
  while (!queued.empty()) {
    const std::shared_ptr<Clique> clique = queued.front().clique;
    std::vector<QueuedCall> together;
    for (auto it = queued.begin(); it != queued.end();) {
      const bool mine =
          it->clique == clique && std::none_of(together.begin(), together.end(), [&](const QueuedCall& a) { return a.rank == it->rank; });
      if (!mine) {
        ++it;
        continue;
      }
      together.push_back(*it);
      it = queued.erase(it);
    }
    std::sort(together.begin(), together.end(), [](const QueuedCall& a, const QueuedCall& b) { return a.rank < b.rank; });
    std::vector<Operand> operands;
    std::vector<cudaStream_t> streams;
    for (const QueuedCall& one : together) {
      if (one.collective != together[0].collective) return ncclInvalidUsage;
      operands.push_back(one.operand);
      streams.push_back(one.stream);
    }
    const auto run = [clique, collective = together[0].collective, operands] { return clique->Run(collective, operands); };
    const auto ended = [clique] { return clique->aborted(); };
    clique->Issue();
    if (EnqueueTogether("collective", streams, run, ended) != cudaSuccess) return ncclUnhandledCudaError;
    KeepByGraph(std::make_shared<InGraph>(clique));
  }
  return ncclSuccess;
}

}  // namespace
}  // namespace gradloom::emulated

struct ncclComm {
  std::shared_ptr<gradloom::emulated::Clique> clique;
  int rank = 0;
};

namespace gradloom::emulated {
namespace {

// The communicators that exist.
struct Communicators {
  std::mutex mutex;
  std::set<ncclComm_t> alive;
  std::chrono::microseconds query_time{0};
};

Communicators& TheCommunicators() {
  static Communicators communicators;
  return communicators;
}

ncclComm_t NewCommunicator(std::shared_ptr<Clique> clique, int rank) {
  const std::lock_guard lock(TheCommunicators().mutex);
  return *TheCommunicators().alive.insert(new ncclComm{std::move(clique), rank}).first;
}

void DeleteCommunicator(ncclComm_t comm) {
  const std::lock_guard lock(TheCommunicators().mutex);
  TheCommunicators().alive.erase(comm);
  delete comm;
}

// NCCL would read memory that has been freed.
std::shared_ptr<Clique> CliqueOf(ncclComm_t comm) {
  const std::lock_guard lock(TheCommunicators().mutex);
  if (TheCommunicators().alive.contains(comm)) return comm->clique;
  std::fprintf(stderr, "emulated NCCL: a communicator is used that has been ended\n");
  std::abort();
}

// NCCL makes the communicator's device current, and then the caller's again, which makes a context there.
void RestoreCurrent() {
  int device = 0;
  cudaGetDevice(&device);
  cudaSetDevice(device);
}

ncclResult_t Queue(ncclComm_t comm, Kind kind, int root, ncclDataType_t type, size_t read, size_t write, const void* from, void* to,
                   cudaStream_t stream) {
  DType dtype = DType::kUint8;
  switch (type) {
    case ncclFloat32: dtype = DType::kFloat32; break;
    case ncclFloat64: dtype = DType::kFloat64; break;
    case ncclFloat16: dtype = DType::kFloat16; break;
    case ncclBfloat16: dtype = DType::kBfloat16; break;
    case ncclInt32: dtype = DType::kInt32; break;
    case ncclInt64: dtype = DType::kInt64; break;
    default: break;
  }
  const int64_t size = DTypeBytes(dtype);
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  if (cudaStreamIsCapturing(stream, &status) != cudaSuccess) return ncclUnhandledCudaError;
  const int32_t captured = status == cudaStreamCaptureStatusNone ? 0 : 1;
  Collective collective{
      kind, root, static_cast<int32_t>(dtype), captured, static_cast<int64_t>(read) * size, static_cast<int64_t>(write) * size};
  TheGroup().queued.push_back({comm->clique, comm->rank, collective, {static_cast<const char*>(from), static_cast<char*>(to)}, stream});
  return ncclSuccess;
}

}  // namespace

void SetNcclQueryTime(std::chrono::microseconds time) { TheCommunicators().query_time = time; }

}  // namespace gradloom::emulated

using namespace gradloom::emulated;  // NOLINT: the functions below are NCCL's, outside every namespace

extern "C" {

const char* ncclGetErrorString(ncclResult_t result) { return result == ncclRemoteError ? "remote process exited" : "of the emulated NCCL"; }
const char* ncclGetLastError(ncclComm_t) { return "emulated"; }

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  // Sandboxed tests may have equal process ids and share the namespace of sockets.
  std::random_device random;
  *id = {};
  std::snprintf(id->internal, sizeof id->internal, "gradloom-emulated-nccl-%08x%08x%08x", random(), random(), random());
  const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const std::string name(id->internal, sizeof id->internal);
  const sockaddr_un address = AddressOf(name);
  if (bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 || listen(listener, 64) != 0) return ncclSystemError;
  Listeners()[name] = listener;
  return ncclSuccess;
}

ncclResult_t ncclCommInitAll(ncclComm_t* comms, int count, const int*) {
  if (AllocateForCommunicator() != cudaSuccess) return ncclUnhandledCudaError;
  const auto clique = std::make_shared<Clique>("", count);
  for (int rank = 0; rank < count; ++rank) {
    clique->Add(rank);
    comms[rank] = NewCommunicator(clique, rank);
  }
  return clique->Init();
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
  if (config->blocking != 0 || TheGroup().depth == 0) return ncclInvalidUsage;  // nothing else is emulated
  if (AllocateForCommunicator() != cudaSuccess) return ncclUnhandledCudaError;
  std::shared_ptr<Clique>& clique = TheGroup().initializing[{id.internal, sizeof id.internal}];
  if (clique == nullptr) clique = std::make_shared<Clique>(std::string(id.internal, sizeof id.internal), ranks);
  clique->Add(rank);
  *comm = NewCommunicator(clique, rank);
  return ncclInProgress;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  RestoreCurrent();
  comm->clique->AwaitGraphs();
  DeleteCommunicator(comm);
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  RestoreCurrent();
  comm->clique->Abort();
  TheGroup().aborted.push_back(comm->clique);
  DeleteCommunicator(comm);
  if (TheGroup().depth > 0) return ncclSuccess;
  ncclGroupStart();
  return ncclGroupEnd();
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  std::this_thread::sleep_for(TheCommunicators().query_time);
  *state = CliqueOf(comm)->State();
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  ++TheGroup().depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  Group& group = TheGroup();
  if (--group.depth > 0) return ncclSuccess;
  ncclResult_t result = ncclSuccess;
  for (const auto& [id, clique] : std::exchange(group.initializing, {})) {
    if (const ncclResult_t initialized = clique->Init(); initialized != ncclSuccess && (result == ncclSuccess || result == ncclInProgress))
      result = initialized;
  }
  for (const auto& clique : std::exchange(group.aborted, {})) clique->AwaitGraphs();
  const ncclResult_t enqueued = EnqueueAll(std::exchange(group.queued, {}));
  return enqueued == ncclSuccess ? result : enqueued;
}

ncclResult_t ncclAllReduce(const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t, ncclComm_t comm,
                           cudaStream_t stream) {
  return Queue(comm, Kind::kAllReduce, 0, type, count, count, from, to, stream);
}
ncclResult_t ncclReduce(const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t, int root, ncclComm_t comm,
                        cudaStream_t stream) {
  return Queue(comm, Kind::kReduce, root, type, count, count, from, to, stream);
}
ncclResult_t ncclBroadcast(const void* from, void* to, size_t count, ncclDataType_t type, int root, ncclComm_t comm, cudaStream_t stream) {
  return Queue(comm, Kind::kBroadcast, root, type, count, count, from, to, stream);
}
ncclResult_t ncclReduceScatter(const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t, ncclComm_t comm,
                               cudaStream_t stream) {
  return Queue(comm, Kind::kReduceScatter, 0, type, count * static_cast<size_t>(comm->clique->size()), count, from, to, stream);
}
ncclResult_t ncclAllGather(const void* from, void* to, size_t count, ncclDataType_t type, ncclComm_t comm, cudaStream_t stream) {
  return Queue(comm, Kind::kAllGather, 0, type, count, count * static_cast<size_t>(comm->clique->size()), from, to, stream);
}

}  // extern "C"
