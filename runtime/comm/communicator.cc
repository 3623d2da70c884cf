#include "runtime/comm/communicator.h"

#include <algorithm>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/comm/job_group.h"
#include "runtime/comm/mpi_transport.h"

namespace gradloom {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint32_t kFirstTag = 16;  // tags of groups, two each, then of channels

// A process other than the awaited one is suspected after this much silence: running processes send something once a second.
constexpr auto kSilent = std::chrono::seconds(3);

std::string TextOf(const std::vector<std::byte>& bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

}  // namespace

Communicator::Communicator(const JobTopology& topology, const CommunicatorOptions& options, MpiLibrary* mpi)
    : process_(topology.rank), mpi_library_(mpi) {
  JobConnections peers = ConnectProcesses(topology, Clock::now() + options.connect_timeout);
  for (size_t i = 0; i < peers.processes.size(); ++i) {
    names_.push_back("rank " + std::to_string(i) + " (host " + peers.processes[i].host + ", pid " + std::to_string(peers.processes[i].pid) +
                     ")");
  }
  const auto on_failure = [this](const std::string& what) {
    tcp_->Abort(what);
    if (shared_ != nullptr) shared_->Fail();
    if (mpi_ != nullptr) mpi_->Fail();
  };
  mailbox_ = std::make_unique<Mailbox>(Mailbox::Options{.names = names_,
                                                        .timeout = options.timeout,
                                                        .suspect = [this](int process) { return FindLate(process); },
                                                        .any_busy = [this] { return tcp_->any_busy(); },
                                                        .on_failure = on_failure});
  tcp_ = std::make_unique<TcpTransport>(std::move(peers.sockets), process_, *mailbox_);
  if (options.mpi) {
    mpi_ = std::make_unique<MpiTransport>(*mpi, process_, processes(), *mailbox_);
  } else if (options.shared_memory) {
    const auto here = [&](const JobProcess& other) { return other.machine == peers.processes[static_cast<size_t>(process_)].machine; };
    const auto near = std::count_if(peers.processes.begin(), peers.processes.end(), here);
    shared_ = SharedMemoryTransport::Make(process_, processes(), static_cast<int>(near), *mailbox_);
  }
}

Mailbox::Late Communicator::FindLate(int process) const {
  int silent = process;
  Clock::time_point heard = process < 0 ? Clock::now() : tcp_->last_heard(process);
  for (int i = 0; i < processes(); ++i) {
    if (i != process_ && tcp_->last_heard(i) + kSilent < heard) silent = i, heard = tcp_->last_heard(i);
  }
  if (silent != process || silent < 0) return {silent};
  const auto awaited_by = [&](int other) { return other == process_ ? mailbox_->awaited() : tcp_->awaited_by(other); };
  // The one that is waited for may be alive, and wait for others itself, as these may: the nearest that waits for none is late.
  std::vector<int> reached{process};
  for (size_t i = 0; i < reached.size(); ++i) {
    const int other = reached[i];
    const std::vector<int> next = awaited_by(other);
    if (other != process_ && (next.empty() || tcp_->last_heard(other) + kSilent < Clock::now())) return {other};
    for (const int awaited : next) {
      if (std::find(reached.begin(), reached.end(), awaited) == reached.end()) reached.push_back(awaited);
    }
  }
  // All of them wait. From each to the one that it waits for longest leads into a circle.
  std::vector<int> path{process};
  while (true) {
    const std::vector<int> next = awaited_by(path.back());
    if (next.empty()) return {path.back() == process_ ? process : path.back()};  // it has just ended its wait
    const auto seen = std::find(path.begin(), path.end(), next.front());
    if (seen != path.end()) return {.process = -1, .circle = {seen, path.end()}};
    path.push_back(next.front());
  }
}

void Communicator::Start(const CommunicatorOptions& options) {
  tcp_->Start();
  if (mpi_ != nullptr) return mpi_->Start();
  if (!options.shared_memory) return;
  const std::vector<std::string> addresses = Exchange(kAddressTag, shared_ == nullptr ? "" : shared_->address());
  if (shared_ == nullptr) return;
  shared_->Open(addresses);
  shared_->Start();
}

std::shared_ptr<Communicator> Communicator::Connect(const JobTopology& topology, const CommunicatorOptions& options) {
  GRADLOOM_CHECK(topology.world > 1 && topology.rank >= 0 && topology.rank < topology.world);
  MpiBootstrap bootstrap{nullptr, topology};
  if (options.mpi || topology.master_address.empty()) bootstrap = BootstrapMpi(topology, options.mpi);
  auto made = std::shared_ptr<Communicator>(new Communicator(bootstrap.topology, options, bootstrap.mpi));
  made->Start(options);
  return made;
}

// Each side tells the other of a failure as long as it still reads.
Communicator::~Communicator() {
  tcp_->Stop();
  if (shared_ != nullptr) shared_->Stop();
  if (mpi_ != nullptr) mpi_->Stop();
}

int Communicator::reached_by_memory() const {
  int count = 0;
  for (int i = 0; i < processes(); ++i) count += shared_ != nullptr && shared_->reaches(i) ? 1 : 0;
  return count;
}

std::string Communicator::transport() const {
  if (mpi_ != nullptr) {
    const std::string version = mpi_library_->version();
    return "MPI (" + version.substr(0, version.find(',')) + ")";
  }
  const int others = processes() - 1, near = reached_by_memory();
  if (near == 0) return "TCP";
  return near == others ? "shared memory" : "shared memory to " + std::to_string(near) + " of " + std::to_string(others) + " others, TCP";
}

RankRange Communicator::RanksOf(int process, size_t ranks) const {
  const auto begin = [&](int i) { return static_cast<int>(ranks * static_cast<size_t>(i) / names_.size()); };
  return {begin(process), begin(process + 1)};
}

int Communicator::ProcessOf(int rank, size_t ranks) const {
  // The last process that begins at the rank or before it (RanksOf). Asked for each part of each fetch of a step.
  return static_cast<int>((names_.size() * (static_cast<size_t>(rank) + 1) - 1) / ranks);
}

std::unique_ptr<RankGroup> Communicator::MakeGroup(size_t id, const std::vector<int>& members, size_t groups, size_t ranks) {
  GRADLOOM_CHECK(id < groups && std::is_sorted(members.begin(), members.end()));
  return std::make_unique<JobGroup>(*this, kFirstTag + 2 * static_cast<uint32_t>(id), members, ranks);
}

std::unique_ptr<RankChannel> Communicator::MakeChannel(int from, int to, size_t groups, size_t ranks) {
  const auto tag = static_cast<uint32_t>(kFirstTag + 2 * groups + static_cast<size_t>(from) * ranks + static_cast<size_t>(to));
  const int other = ProcessOf(OwnRanks(ranks).contains(from) ? to : from, ranks);
  return std::make_unique<JobChannel>(*this, tag, other);
}

std::string Communicator::ShareInGroup(size_t id, const std::vector<int>& members, size_t ranks, const std::string& given) {
  const uint32_t tag = kFirstTag + 2 * static_cast<uint32_t>(id);
  const int giver = ProcessOf(members.front(), ranks);
  if (giver != process_) return TextOf(ReceiveAny(giver, tag));
  int previous = process_;
  for (int rank : members) {
    const int process = ProcessOf(rank, ranks);
    if (process != previous) Send(process, tag, given.data(), static_cast<int64_t>(given.size()));
    previous = process;
  }
  return given;
}

void Communicator::Send(int process, uint32_t tag, const void* data, int64_t bytes) {
  if (mpi_ != nullptr) return mpi_->Send(process, tag, data, bytes);
  if (shared_ != nullptr && shared_->reaches(process) && tag != kAddressTag) return shared_->Send(process, tag, data, bytes);
  tcp_->Send(process, tag, data, bytes);
}

void Communicator::Receive(int process, uint32_t tag, void* to, int64_t bytes) {
  const MpiTransport::Awaiting awaiting(mpi_.get());
  const Clock::time_point start = Clock::now();
  mailbox_->Receive(process, tag, to, bytes);
  waited_.fetch_add(std::chrono::nanoseconds(Clock::now() - start).count(), std::memory_order_relaxed);
}

std::vector<std::byte> Communicator::ReceiveAny(int process, uint32_t tag) {
  const MpiTransport::Awaiting awaiting(mpi_.get());
  return mailbox_->ReceiveAny(process, tag);
}

std::vector<std::string> Communicator::AllGather(const std::string& given) { return Exchange(kControlTag, given); }

std::vector<std::string> Communicator::Exchange(uint32_t tag, const std::string& given) {
  std::vector<std::string> all(names_.size());
  for (int i = 0; i < processes(); ++i) {
    if (i != process_) Send(i, tag, given.data(), static_cast<int64_t>(given.size()));
  }
  for (int i = 0; i < processes(); ++i) {
    all[static_cast<size_t>(i)] = i == process_ ? given : TextOf(ReceiveAny(i, tag));
  }
  return all;
}

void Communicator::Broadcast(void* data, int64_t bytes) {
  if (process_ != 0) return Receive(0, kControlTag, data, bytes);
  for (int i = 1; i < processes(); ++i) Send(i, kControlTag, data, bytes);
}

std::string Communicator::Broadcast(const std::string& given) {
  if (process_ == 0) {
    for (int i = 1; i < processes(); ++i) Send(i, kControlTag, given.data(), static_cast<int64_t>(given.size()));
    return given;
  }
  return TextOf(ReceiveAny(0, kControlTag));
}

void Communicator::Abort(const std::string& why) {
  if (mailbox_->failed()) return;
  aborted_ = true;
  mailbox_->Fail(name(process_) + std::string(kStopped) + why);
}

void Communicator::Leave() {
  ThrowIfFailed();
  if (shared_ != nullptr) shared_->Flush();
  if (mpi_ != nullptr) mpi_->Flush();
  tcp_->Leave();
  ThrowIfFailed();
  if (mpi_ != nullptr) mpi_->Stop();
  if (mpi_library_ != nullptr) mpi_library_->Finish();
}

}  // namespace gradloom
