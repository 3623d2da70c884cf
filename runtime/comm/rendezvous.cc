#include "runtime/comm/rendezvous.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <random>
#include <sstream>
#include <thread>

#include "runtime/base/error.h"
#include "runtime/base/hash.h"
#include "runtime/base/host_name.h"
#include "runtime/base/listing.h"
#include "runtime/comm/shared_memory.h"

namespace gradloom {
namespace {

using Clock = std::chrono::steady_clock;

// Numbers are little-endian. Both sides have the same build, which they agree upon first.
constexpr char kMagic[8] = {'G', 'R', 'A', 'D', 'J', 'O', 'B', '3'};
constexpr int kPorts = 8;                                    // the master port and those after it
constexpr auto kAnswerTimeout = std::chrono::seconds(5);     // time within which a listener or a client must identify itself
constexpr auto kLookInterval = std::chrono::seconds(1);      // interval at which a process that waits for others looks for those that ended
constexpr auto kRetryPause = std::chrono::milliseconds(20);  // pause between two rounds over ports on which nobody listens

struct Hello {
  char magic[8] = {};
  int32_t rank = 0, world = 0;
  int32_t master_port = 0;  // as configured for the job, so that two jobs on adjacent ports are not mixed up
  int32_t port = 0;         // the port on which this process listens for others
  int32_t pid = 0;
  char host[64] = {};
  uint64_t job = 0;      // drawn by rank 0; 0 in the first message to rank 0
  uint64_t machine = 0;  // JobProcess::machine
};

// Rank 0's immediate answer.
struct Answer {
  char magic[8] = {};
  int32_t refused = 0;
  char text[244] = {};
};

// Sent for each process once all have connected.
struct Record {
  char address[64] = {};
  int32_t port = 0, pid = 0;
  char host[64] = {};
  uint64_t machine = 0;
};

template <size_t kBytes>
void SetText(char (&to)[kBytes], const std::string& text) {
  std::strncpy(to, text.c_str(), kBytes - 1);
  to[kBytes - 1] = '\0';
}

template <size_t kBytes>
std::string TextOf(const char (&from)[kBytes]) {
  return Escaped(std::string_view(from, strnlen(from, kBytes)));
}

// Whether the process at the other end has closed the connection or ended. After its hello, a process sends nothing until the job begins.
bool IsClosed(const Socket& socket) {
  char byte;
  const ssize_t n = recv(socket.fd(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
}

// The same if it may have sent something before.
bool HasEnded(const Socket& socket) {
  pollfd watched{socket.fd(), POLLRDHUP, 0};
  return poll(&watched, 1, 0) > 0;
}

bool IsOurs(const char (&magic)[8]) { return std::memcmp(magic, kMagic, sizeof kMagic) == 0; }

Hello MakeHello(const JobTopology& topology) {
  Hello hello{.rank = topology.rank, .world = topology.world, .master_port = topology.master_port, .pid = static_cast<int32_t>(getpid())};
  std::memcpy(hello.magic, kMagic, sizeof kMagic);
  SetText(hello.host, HostName());
  hello.machine = HashOf(HostIdentity());
  return hello;
}

std::string Named(const Hello& hello) {
  return "rank " + std::to_string(hello.rank) + " (host " + TextOf(hello.host) + ", pid " + std::to_string(hello.pid) + ")";
}

// Resolves all addresses that the job has for rank 0, separated by spaces.
std::vector<SocketAddress> ResolveMaster(const JobTopology& topology, int port) {
  std::vector<SocketAddress> all;
  std::istringstream hosts(topology.master_address);
  for (std::string host; hosts >> host;) {
    const std::vector<SocketAddress> found = Resolve(host, port);
    all.insert(all.end(), found.begin(), found.end());
  }
  return all;
}

std::string MasterOf(const JobTopology& topology) { return Escaped(topology.master_address) + ":" + std::to_string(topology.master_port); }

class Rendezvous {
 public:
  Rendezvous(const JobTopology& topology, Deadline deadline) : topology_(topology), deadline_(deadline), me_(MakeHello(topology)) {
    result_.processes.resize(static_cast<size_t>(topology.world));
    result_.sockets.resize(static_cast<size_t>(topology.world));
    records_.resize(static_cast<size_t>(topology.world));
  }

  JobConnections Run() {
    if (topology_.rank == 0) {
      Gather();
    } else {
      Join();
      ConnectOthers();
    }
    for (size_t i = 0; i < records_.size(); ++i) result_.processes[i] = {TextOf(records_[i].host), records_[i].pid, records_[i].machine};
    return std::move(result_);
  }

 private:
  Socket& socket(int rank) { return result_.sockets[static_cast<size_t>(rank)]; }
  Record& record(int rank) { return records_[static_cast<size_t>(rank)]; }

  // Listens on all interfaces, unless the master address is a loopback address.
  Socket ListenAsMaster() const {
    const std::vector<SocketAddress> named = ResolveMaster(topology_, topology_.master_port);
    std::vector<SocketAddress> tried;
    for (const SocketAddress& address : named) {
      if (address.loopback()) tried.push_back(address);
    }
    if (tried.empty()) {
      for (const char* any : {"::", "0.0.0.0"}) {
        for (const SocketAddress& address : Resolve(any, topology_.master_port)) tried.push_back(address);
      }
    }
    for (int i = 0; i < kPorts && topology_.master_port + i < 65536; ++i) {
      for (const SocketAddress& address : tried) {
        if (auto socket = Socket::Listen(address.WithPort(topology_.master_port + i))) return std::move(*socket);
      }
    }
    throw Error(ErrorCode::kPeer, "rank 0 cannot listen at " + MasterOf(topology_) + " or at the ports after it: they are in use", "",
                "choose a free port:  GRADLOOM_MASTER_PORT=29600");
  }

  // Why a process cannot be the rank that it claims to be; "" if it can.
  std::string RejectionReason(const Hello& hello) {
    if (hello.world != topology_.world) {
      return Named(hello) + " belongs to a job of " + std::to_string(hello.world) + " processes, rank 0 of one of " +
             std::to_string(topology_.world);
    }
    if (hello.rank < 1 || hello.rank >= topology_.world)
      return Named(hello) + " is not one of the ranks 1 to " + std::to_string(topology_.world - 1);
    // A process that ended while others were still missing may be started again.
    if (!socket(hello.rank).open() || IsClosed(socket(hello.rank))) return "";
    return "two processes have rank " + std::to_string(hello.rank) + ": on host " + TextOf(record(hello.rank).host) + ", pid " +
           std::to_string(record(hello.rank).pid) + ", and on host " + TextOf(hello.host) + ", pid " + std::to_string(hello.pid);
  }

  void Admit(Socket client, const Hello& hello) {
    Answer answer;
    std::memcpy(answer.magic, kMagic, sizeof kMagic);
    // The process belongs to another job and will try the next port.
    if (hello.master_port != topology_.master_port) return;
    const std::string objection = RejectionReason(hello);
    answer.refused = objection.empty() ? 0 : 1;
    SetText(answer.text, objection);
    client.Write(&answer, sizeof answer, std::min(deadline_, Clock::now() + kAnswerTimeout));
    if (!objection.empty()) {
      throw Error(ErrorCode::kConfig, objection, "the job at " + MasterOf(topology_),
                  "give each process its own rank, below the same world size");
    }
    Record& made = record(hello.rank);
    SetText(made.address, client.peer().host());
    made.port = hello.port;
    made.pid = hello.pid;
    made.machine = hello.machine;
    std::memcpy(made.host, hello.host, sizeof made.host);
    if (!socket(hello.rank).open()) ++admitted_;
    socket(hello.rank) = std::move(client);
  }

  // Rank 0: every process that connects identifies itself. Strangers and silent connections do not block the others.
  void Gather() {
    struct Client {
      Socket socket;
      Deadline until;  // it must have identified itself by then
      Hello hello = {};
      size_t read = 0;
    };
    const Socket listener = ListenAsMaster();
    record(0).pid = me_.pid;
    record(0).machine = me_.machine;
    std::memcpy(record(0).host, me_.host, sizeof me_.host);
    std::vector<Client> clients;
    while (admitted_ < topology_.world - 1) {
      std::vector<pollfd> watched{{listener.fd(), POLLIN, 0}};
      for (const Client& client : clients) watched.push_back({client.socket.fd(), POLLIN, 0});
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline_ - Clock::now()).count();
      if (left <= 0) ThrowMissing();
      poll(watched.data(), watched.size(), static_cast<int>(std::min<int64_t>(left, 1000)));
      for (size_t i = clients.size(); i-- > 0;) {
        if (watched[i + 1].revents == 0) continue;
        Client& client = clients[i];
        const ssize_t n = recv(client.socket.fd(), reinterpret_cast<char*>(&client.hello) + client.read, sizeof(Hello) - client.read, 0);
        if (n > 0) client.read += static_cast<size_t>(n);
        const bool foreign = n <= 0 || (client.read >= sizeof kMagic && !IsOurs(client.hello.magic));
        if (!foreign && client.read < sizeof(Hello)) continue;
        Client done = std::move(client);
        clients.erase(clients.begin() + static_cast<std::ptrdiff_t>(i));
        if (!foreign) Admit(std::move(done.socket), done.hello);
      }
      std::erase_if(clients, [now = Clock::now()](const Client& client) { return client.until < now; });
      if (watched[0].revents == 0) continue;
      bool no_descriptor = false;
      if (auto client = listener.Accept(Clock::now(), &no_descriptor)) {
        clients.push_back({.socket = std::move(*client), .until = Clock::now() + kAnswerTimeout});
      } else if (no_descriptor) {
        ThrowNoDescriptor();
      }
    }
    std::random_device device;
    me_.job = (static_cast<uint64_t>(device()) << 32 | device()) | 1;
    for (int rank = 1; rank < topology_.world; ++rank) {
      if (!socket(rank).Write(&me_.job, sizeof me_.job, deadline_) ||
          !socket(rank).Write(records_.data(), records_.size() * sizeof(Record), deadline_)) {
        ThrowGone(rank);
      }
    }
  }

  [[noreturn]] void ThrowMissing() {
    // Ranges, because whole hosts may be missing.
    Listing missing(20);
    for (int rank = 1; rank < topology_.world; ++rank) {
      if (socket(rank).open()) continue;
      const int first = rank;
      while (rank + 1 < topology_.world && !socket(rank + 1).open()) ++rank;
      missing.Add(std::to_string(first) + (first == rank ? "" : (rank == first + 1 ? ", " : " to ") + std::to_string(rank)));
    }
    throw Error(ErrorCode::kPeer,
                "some of the job's " + std::to_string(topology_.world) + " processes have not connected: rank " + missing.text(),
                "rank 0 waits at " + MasterOf(topology_), "start all ranks of the job, and check that they can reach that address");
  }

  // A process has a connection to each other one.
  [[noreturn]] void ThrowNoDescriptor() const {
    const auto connected = std::count_if(result_.sockets.begin(), result_.sockets.end(), [](const Socket& made) { return made.open(); });
    throw Error(ErrorCode::kResource,
                "rank " + std::to_string(topology_.rank) + " cannot connect to another process: too many files are open",
                "it has connected to " + std::to_string(connected) + " of " + std::to_string(topology_.world - 1) + " others",
                "raise the limit of open files:  ulimit -n 65536");
  }

  [[noreturn]] void ThrowGone(int rank) {
    throw Error(ErrorCode::kPeer, "rank " + std::to_string(rank) + " connected, but ended before the job began", "", "see its own output");
  }

  // Other ranks: connect to rank 0, at whichever port it listens.
  void Join() {
    for (bool found = false; !found; std::this_thread::sleep_for(kRetryPause)) {
      for (int i = 0; i < kPorts && !found && topology_.master_port + i < 65536; ++i) {
        for (const SocketAddress& address : ResolveMaster(topology_, topology_.master_port + i)) {
          if ((found = TryMaster(address))) break;
        }
      }
      if (!found && Clock::now() >= deadline_) {
        const bool is_known = !ResolveMaster(topology_, topology_.master_port).empty();
        throw Error(ErrorCode::kPeer, is_known ? "rank 0 does not answer" : "the host name of rank 0 cannot be resolved",
                    "rank " + std::to_string(topology_.rank) + " tried " + MasterOf(topology_),
                    "start rank 0 there, or set its address:  GRADLOOM_MASTER_ADDR, GRADLOOM_MASTER_PORT");
      }
    }
    uint64_t job = 0;
    if (!socket(0).Read(&job, sizeof job, deadline_) || !socket(0).Read(records_.data(), records_.size() * sizeof(Record), deadline_)) {
      throw Error(ErrorCode::kPeer, "rank 0 gave up before all processes of the job had connected", "", "see its own output");
    }
    me_.job = job;
  }

  // Whether rank 0 of this job listens at the address.
  bool TryMaster(const SocketAddress& address) {
    bool no_descriptor = false;
    auto client = Socket::Connect(address, std::min(deadline_, Clock::now() + kAnswerTimeout), &no_descriptor);
    if (no_descriptor) ThrowNoDescriptor();
    if (!client) return false;
    // Other processes reach this one at the address by which it reaches rank 0.
    auto listener = Socket::Listen(client->local().WithPort(0));
    if (!listener) return false;
    me_.port = listener->local().port();
    const Deadline soon = std::min(deadline_, Clock::now() + kAnswerTimeout);
    Answer answer;
    if (!client->Write(&me_, sizeof me_, soon) || !client->Read(&answer, sizeof answer, soon) || !IsOurs(answer.magic)) return false;
    if (answer.refused != 0) {
      throw Error(ErrorCode::kConfig, TextOf(answer.text), "the job at " + MasterOf(topology_),
                  "give each process its own rank, below the same world size");
    }
    listener_ = std::move(*listener);
    socket(0) = std::move(*client);
    return true;
  }

  // Each rank connects to those below it and accepts those above it.
  void ConnectOthers() {
    for (int rank = 1; rank < topology_.rank; ++rank) {
      std::optional<Socket> made;
      bool no_descriptor = false;
      for (const SocketAddress& address : Resolve(TextOf(record(rank).address), record(rank).port)) {
        if ((made = Socket::Connect(address, deadline_, &no_descriptor))) break;
      }
      if (!made && no_descriptor) ThrowNoDescriptor();
      if (!made || !made->Write(&me_, sizeof me_, deadline_)) {
        throw Error(ErrorCode::kPeer,
                    "rank " + std::to_string(topology_.rank) + " cannot reach rank " + std::to_string(rank) + " at " +
                        TextOf(record(rank).address) + ":" + std::to_string(record(rank).port),
                    "", "allow connections between the job's hosts on all ports");
      }
      socket(rank) = std::move(*made);
    }
    for (int missing = topology_.world - 1 - topology_.rank; missing > 0;) {
      bool no_descriptor = false;
      auto client = listener_.Accept(std::min(deadline_, Clock::now() + kLookInterval), &no_descriptor);
      if (no_descriptor) ThrowNoDescriptor();
      // One that has ended would be waited for until the deadline.
      for (int rank = 0; !client && rank < topology_.world; ++rank) {
        if (socket(rank).open() && HasEnded(socket(rank))) ThrowGone(rank);
      }
      if (!client && Clock::now() < deadline_) continue;
      if (!client)
        throw Error(ErrorCode::kPeer, "some processes of the job cannot reach rank " + std::to_string(topology_.rank), "",
                    "allow connections between the job's hosts on all ports");
      Hello hello;
      if (!client->Read(&hello, sizeof hello, std::min(deadline_, Clock::now() + kAnswerTimeout)) || hello.job != me_.job) continue;
      if (hello.rank <= topology_.rank || hello.rank >= topology_.world || socket(hello.rank).open()) continue;
      socket(hello.rank) = std::move(*client);
      --missing;
    }
  }

  const JobTopology& topology_;
  const Deadline deadline_;
  Hello me_;
  JobConnections result_;
  std::vector<Record> records_;
  Socket listener_;
  int admitted_ = 0;
};

}  // namespace

JobConnections ConnectProcesses(const JobTopology& topology, Deadline deadline) { return Rendezvous(topology, deadline).Run(); }

}  // namespace gradloom
