// Whatever happens to one process of a job, the others end soon and name the process at fault.
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/base/error.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/mailbox.h"
#include "runtime/comm/tcp_transport.h"
#include "tests/comm/forked_job.h"

namespace gradloom {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kPeerExitCode = 140;

// Repeats an all-reduce over one group of all processes, one rank each, until it is stopped or fails.
class Sums {
 public:
  explicit Sums(Communicator& communicator) : mine_(communicator.process()) {
    std::vector<int> ranks(static_cast<size_t>(communicator.processes()));
    for (size_t i = 0; i < ranks.size(); ++i) ranks[i] = static_cast<int>(i);
    group_ = communicator.MakeGroup(0, ranks, 1, ranks.size());
  }

  void Run(int count, size_t elements = 100000) {
    values_.resize(elements);
    const auto bytes = static_cast<int64_t>(elements * sizeof(float));
    const RankGroup::Operand operand{DType::kFloat32, values_.data(), values_.data(), bytes, bytes};
    for (int i = 0; i < count; ++i) {
      values_.assign(elements, 1);
      group_->Run(mine_, Collective::kAllReduceSum, 0, {&operand, 1}, false);
    }
  }

 private:
  const int mine_;
  std::unique_ptr<RankGroup> group_;
  std::vector<float> values_;
};

// All processes but `culprit` end with E-PEER and a message that starts with the culprit's name.
void ExpectBlamed(const std::vector<ForkedEnd>& ended, size_t culprit, const std::string& how) {
  for (size_t i = 0; i < ended.size(); ++i) {
    if (i == culprit) continue;
    EXPECT_EQ(ended[i].code, kPeerExitCode) << "rank " << i;
    EXPECT_NE(ended[i].words.find("error[E-PEER]: rank " + std::to_string(culprit) + " (host "), std::string::npos) << ended[i].words;
    EXPECT_NE(ended[i].words.find(how), std::string::npos) << ended[i].words;
  }
}

TEST(Faults, NoDescriptorIsLeft) {
  Mailbox mailbox({.names = {"rank 0"},
                   .timeout = std::chrono::seconds(1),
                   .suspect = [](int process) { return Mailbox::Late{process}; },
                   .any_busy = [] { return false; },
                   .on_failure = [](const std::string&) {}});
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{0, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  ErrorCode code = ErrorCode::kInternal;
  try {
    const TcpTransport transport({}, 0, mailbox);
  } catch (const Error& error) {
    code = error.code();
  }
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_EQ(code, ErrorCode::kResource);
}

TEST(Faults, AKilledProcess) {
  for (int culprit : {0, 1, 3}) {
    const auto start = Clock::now();
    const auto ended = RunForked(4, [&](const JobTopology& topology) {
      const auto communicator = Communicator::Connect(topology);
      Sums sums(*communicator);
      sums.Run(20);
      if (topology.rank == culprit) kill(getpid(), SIGKILL);
      sums.Run(1000000);
    });
    EXPECT_EQ(ended[static_cast<size_t>(culprit)].code, -SIGKILL);
    ExpectBlamed(ended, static_cast<size_t>(culprit), "is gone: its connection was closed");
    EXPECT_LT(Clock::now() - start, std::chrono::seconds(60));
  }
}

TEST(Faults, AStoppedProcess) {
  // In the middle of a large all-reduce, which then cannot complete, and between two small ones.
  for (size_t elements : {size_t{10}, size_t{3000000}}) {
    const auto ended = RunForked(3, [&](const JobTopology& topology) {
      const auto communicator = Communicator::Connect(topology, {.timeout = std::chrono::seconds(10)});
      const std::vector<std::string> pids = communicator->AllGather(std::to_string(getpid()));
      Sums sums(*communicator);
      sums.Run(3);
      std::thread stops;
      if (topology.rank == 1) {
        stops = std::thread([] {
          std::this_thread::sleep_for(std::chrono::milliseconds(50));
          kill(getpid(), SIGSTOP);
        });
      }
      try {
        sums.Run(1000000, elements);
      } catch (const Error&) {
        // Gives both other processes time to find it by themselves.
        std::this_thread::sleep_for(std::chrono::seconds(3));
        if (topology.rank == 0) kill(std::stoi(pids[1]), SIGKILL);
        throw;
      }
    });
    EXPECT_EQ(ended[1].code, -SIGKILL);
    ExpectBlamed(ended, 1, "has not answered within the collective timeout of 10 s");
  }
}

// 0 waits for 1, which waits for 2, which is stopped. A process that itself waits is not blamed.
TEST(Faults, DoesNotBlameAWaitingProcess) {
  const auto ended = RunForked(3, [&](const JobTopology& topology) {
    const auto communicator = Communicator::Connect(topology, {.timeout = std::chrono::seconds(12)});
    const std::vector<std::string> pids = communicator->AllGather(std::to_string(getpid()));
    if (topology.rank == 2) kill(getpid(), SIGSTOP);
    float value = 0;
    try {
      communicator->Receive(topology.rank + 1, 100, &value, sizeof value);
    } catch (const Error&) {
      std::this_thread::sleep_for(std::chrono::seconds(2));
      if (topology.rank == 0) kill(std::stoi(pids[2]), SIGKILL);
      throw;
    }
  });
  ExpectBlamed(ended, 2, "has not answered within the collective timeout of 12 s");
}

// The same, but 2 is alive, and 0 has waited long enough first.
TEST(Faults, DoesNotBlameAWaitingProcessForOneThatIsAlive) {
  const auto ended = RunForked(3, [&](const JobTopology& topology) {
    const auto communicator = Communicator::Connect(topology, {.timeout = std::chrono::seconds(8)});
    std::this_thread::sleep_for(std::chrono::seconds(2 * topology.rank));
    if (topology.rank == 2) std::this_thread::sleep_for(std::chrono::seconds(16));
    float value = 0;
    communicator->Receive((topology.rank + 1) % 3, 100, &value, sizeof value);
  });
  ExpectBlamed(ended, 2, "has not answered within the collective timeout of 8 s");
}

// 0 and 1 wait for each other, but a second thread of 0 waits for 2, which is alive and waits for nobody.
TEST(Faults, DoesNotBlameAProcessThatWaitsOnSeveralThreads) {
  const auto ended = RunForked(3, [&](const JobTopology& topology) {
    const auto communicator = Communicator::Connect(topology, {.timeout = std::chrono::seconds(8)});
    const auto wait_for = [&](int process) {
      float value = 0;
      communicator->Receive(process, 100, &value, sizeof value);
    };
    std::jthread second;
    if (topology.rank == 0) {
      second = std::jthread([&] {
        std::this_thread::sleep_for(std::chrono::seconds(1));
        try {
          wait_for(2);
        } catch (const Error&) {
          // The main thread's is the one that is reported.
        }
      });
    }
    if (topology.rank == 2) std::this_thread::sleep_for(std::chrono::seconds(16));
    wait_for(topology.rank == 0 ? 1 : 0);
  });
  ExpectBlamed(ended, 2, "has not answered within the collective timeout of 8 s");
}

// None of them is to blame.
TEST(Faults, ProcessesThatWaitForEachOther) {
  const auto ended = RunForked(3, [&](const JobTopology& topology) {
    const auto communicator = Communicator::Connect(topology, {.timeout = std::chrono::seconds(6)});
    float value = 0;
    communicator->Receive((topology.rank + 1) % 3, 100, &value, sizeof value);
  });
  for (const ForkedEnd& end : ended) {
    EXPECT_EQ(end.code, kPeerExitCode);
    EXPECT_NE(
        end.words.find("error[E-PEER]: processes wait for each other, and none has ended its wait within the collective timeout of 6 s: "
                       "rank "),
        std::string::npos)
        << end.words;
    for (const char* wait : {"0", "1", "2"})
      EXPECT_NE(end.words.find(" for rank " + std::string(wait) + " (host "), std::string::npos) << end.words;
  }
}

TEST(Faults, AProcessThatFailsWithItsOwnError) {
  const auto ended = RunForked(4, [&](const JobTopology& topology) {
    const auto communicator = Communicator::Connect(topology);
    Sums sums(*communicator);
    sums.Run(5);
    if (topology.rank == 2) {
      communicator->Abort("E-DATA: row 7 has class 1000");
      throw Error(ErrorCode::kData, "row 7 has class 1000");
    }
    sums.Run(1000000);
  });
  EXPECT_EQ(ended[2].code, ExitCode(ErrorCode::kData));
  ExpectBlamed(ended, 2, "stopped: E-DATA: row 7 has class 1000");
}

TEST(Faults, AProcessThatLeavesTooEarly) {
  const auto ended = RunForked(2, [&](const JobTopology& topology) {
    const auto communicator = Communicator::Connect(topology);
    Sums sums(*communicator);
    sums.Run(5);
    if (topology.rank == 0) communicator->Leave();
    sums.Run(1);
  });
  EXPECT_EQ(ended[1].code, kPeerExitCode);
  EXPECT_NE(ended[1].words.find("rank 0 (host "), std::string::npos);
  EXPECT_NE(ended[1].words.find("has left the job, but more data was expected from it"), std::string::npos) << ended[1].words;
}

// Rank 0 writes a file for longer than the timeout. If it is stopped in the meantime, this is still detected.
TEST(Faults, WaitsForABusyProcess) {
  for (const bool stops : {false, true}) {
    const auto ended = RunForked(3, [&](const JobTopology& topology) {
      const auto communicator = Communicator::Connect(topology, {.timeout = std::chrono::seconds(8)});
      const std::vector<std::string> pids = communicator->AllGather(std::to_string(getpid()));
      Sums sums(*communicator);
      if (topology.rank == 0) {
        communicator->SetBusy(true);
        if (stops) kill(getpid(), SIGSTOP);
        std::this_thread::sleep_for(std::chrono::seconds(18));
        communicator->SetBusy(false);
      }
      try {
        sums.Run(3);
      } catch (const Error&) {
        std::this_thread::sleep_for(std::chrono::seconds(9));
        if (topology.rank == 1) kill(std::stoi(pids[0]), SIGKILL);
        throw;
      }
      communicator->Leave();
    });
    if (stops) {
      ExpectBlamed(ended, 0, "has not answered within the collective timeout of 8 s");
    } else {
      for (const ForkedEnd& end : ended) EXPECT_EQ(end.code, 0) << end.words;
    }
  }
}

// A transport of one process, whose only peer is this test: it reads and writes the bytes of the connection itself.
class OneSide {
 public:
  explicit OneSide(std::chrono::milliseconds timeout)
      : mailbox_({.names = {"rank 0", "rank 1"},
                  .timeout = timeout,
                  .suspect = [](int process) { return Mailbox::Late{process}; },
                  .any_busy = [] { return false; },
                  .on_failure = [this](const std::string& what) { transport_->Abort(what); }}) {
    const Deadline end = Clock::now() + std::chrono::seconds(20);
    const Socket listener = std::move(*Socket::Listen(Resolve("127.0.0.1", 0).front()));
    std::vector<Socket> sockets(2);
    sockets[1] = std::move(*Socket::Connect(listener.local(), end));
    far_ = std::move(*listener.Accept(end));
    transport_ = std::make_unique<TcpTransport>(std::move(sockets), 0, mailbox_);
    transport_->Start();
  }

  Mailbox& mailbox() { return mailbox_; }
  TcpTransport& transport() { return *transport_; }

  // The other end reads or writes these bytes.
  std::string Read(size_t bytes) const {
    std::string data(bytes, '\0');
    return far_.Read(data.data(), bytes, Clock::now() + std::chrono::seconds(20)) ? data : "";
  }
  std::string ReadToEnd() const {
    std::string all, part(1 << 16, '\0');
    while (WaitFor(far_.fd(), POLLIN, Clock::now() + std::chrono::seconds(20))) {
      const ssize_t n = recv(far_.fd(), part.data(), part.size(), 0);
      if (n <= 0) break;
      all.append(part, 0, static_cast<size_t>(n));
    }
    return all;
  }
  void Write(const void* data, size_t bytes) const { far_.Write(data, bytes, Clock::now() + std::chrono::seconds(20)); }

 private:
  Mailbox mailbox_;
  Socket far_;
  std::unique_ptr<TcpTransport> transport_;
};

// What precedes each message.
struct WireHeader {
  uint32_t kind = 0x474C0001, tag = 0;
  int64_t bytes = 0;
};

constexpr size_t kParts = 8;

// The timeout is for silence: a message that takes longer arrives while its parts do.
TEST(SlowMessages, AreReceived) {
  OneSide side(std::chrono::milliseconds(1500));
  std::vector<std::byte> sent(kParts * 1000, std::byte{7}), got(sent.size());
  std::thread peer([&] {
    const WireHeader header{.tag = 5, .bytes = static_cast<int64_t>(sent.size())};
    side.Write(&header, sizeof header);
    for (size_t i = 0; i < kParts; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(400));
      side.Write(sent.data() + i * 1000, 1000);
    }
  });
  EXPECT_NO_THROW(side.mailbox().Receive(1, 5, got.data(), static_cast<int64_t>(got.size())));
  peer.join();
  EXPECT_EQ(got == sent, true);
  // Silence still ends the job.
  EXPECT_THROW(side.mailbox().Receive(1, 5, got.data(), 1), Error);
}

TEST(SlowMessages, AreSent) {
  OneSide side(std::chrono::milliseconds(1500));
  const std::vector<std::byte> sent(kParts * (size_t{4} << 20), std::byte{7});
  std::thread peer([&] {
    side.Read(sizeof(WireHeader));
    for (size_t i = 0; i < kParts; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(400));
      side.Read(sent.size() / kParts);
    }
  });
  EXPECT_NO_THROW(side.transport().Send(1, 5, sent.data(), static_cast<int64_t>(sent.size())));
  peer.join();
}

// The reason of a failure follows the message that was being sent, or is left out; it is never taken for a part of that message.
TEST(SlowMessages, DoNotSwallowTheReasonOfAFailure) {
  for (const bool reads : {true, false}) {
    OneSide side(std::chrono::seconds(20));
    const std::vector<std::byte> sent(size_t{16} << 20, std::byte{7});
    std::thread sends([&] {
      try {
        side.transport().Send(1, 5, sent.data(), static_cast<int64_t>(sent.size()));
        EXPECT_TRUE(reads);
      } catch (const Error&) {
        EXPECT_FALSE(reads);
      }
    });
    std::string rest = side.Read(sizeof(WireHeader));
    std::thread fails([&] { side.mailbox().Fail("E-DATA: row 7"); });
    std::this_thread::sleep_for(std::chrono::milliseconds(reads ? 100 : 4000));
    rest += side.ReadToEnd();
    fails.join();
    sends.join();
    EXPECT_EQ(rest.find("E-DATA: row 7") != std::string::npos, reads);
    if (reads) {
      EXPECT_EQ(rest.find("E-DATA: row 7"), 2 * sizeof(WireHeader) + sent.size());
    }
  }
}

// Processes count the time they wait, and the straggler is found from these counts.
TEST(Waiting, IsCounted) {
  const auto ended = RunForked(3, [&](const JobTopology& topology) {
    const auto communicator = Communicator::Connect(topology);
    Sums sums(*communicator);
    sums.Run(3);
    const auto before = communicator->waited();
    if (topology.rank == 1) std::this_thread::sleep_for(std::chrono::seconds(1));
    sums.Run(1);
    const std::chrono::duration<double> waited = communicator->waited() - before;
    Say(std::to_string(waited.count()));
    communicator->Leave();
  });
  for (const ForkedEnd& end : ended) EXPECT_EQ(end.code, 0) << end.words;
  // Nearly a second, less the delay until a busy machine lets them reach the collective.
  for (size_t rank : {0, 2}) EXPECT_GT(std::stod(ended[rank].words), 0.1);
}

TEST(Waiting, FindsTheStraggler) {
  EXPECT_FALSE(FindStraggler({}, 10));
  EXPECT_FALSE(FindStraggler({0.5}, 10));
  // All wait, so the operation itself is slow.
  EXPECT_FALSE(FindStraggler({4, 4.2, 4.4, 4.1}, 10));
  EXPECT_FALSE(FindStraggler({0.5, 0.1}, 0.9)) << "too short to tell";
  const auto late = FindStraggler({4, 4.2, 1, 4.1}, 10);
  ASSERT_TRUE(late);
  EXPECT_EQ(late->process, 2);
  EXPECT_NEAR(late->share, 0.3, 1e-12);
  ASSERT_TRUE(FindStraggler({3, 0.1}, 10));
  EXPECT_EQ(FindStraggler({3, 0.1}, 10)->process, 1);
  // Two of four processes hold up the others, so neither is the only straggler.
  EXPECT_FALSE(FindStraggler({5, 0.2, 0.1, 5}, 10));
}

TEST(Rendezvous, RejectsContradictoryRanks) {
  const auto twice = RunForked(3, [](JobTopology topology) {
    if (topology.rank == 2) topology.rank = 1;
    Communicator::Connect(topology, {.connect_timeout = std::chrono::seconds(20)});
  });
  EXPECT_EQ(twice[0].code, ExitCode(ErrorCode::kConfig));
  EXPECT_NE(twice[0].words.find("two processes have rank 1: on host"), std::string::npos) << twice[0].words;
  const auto worlds = RunForked(2, [](JobTopology topology) {
    if (topology.rank == 1) topology.world = 5;
    Communicator::Connect(topology, {.connect_timeout = std::chrono::seconds(20)});
  });
  for (const ForkedEnd& end : worlds) {
    EXPECT_EQ(end.code, ExitCode(ErrorCode::kConfig));
    EXPECT_NE(end.words.find("belongs to a job of 5 processes, rank 0 of one of 2"), std::string::npos) << end.words;
  }
}

// Rank 1 ends and is started again before rank 2 comes.
TEST(Rendezvous, ARankMayBeRestartedBeforeAllHaveCome) {
  const auto ended = RunForked(4, [](JobTopology topology) {
    const bool dies = topology.rank == 1;
    std::this_thread::sleep_for(std::chrono::milliseconds(topology.rank == 3 ? 2000 : topology.rank == 2 ? 3500 : 0));
    if (topology.rank == 3) topology.rank = 1;
    topology.world = 3;
    std::thread end;
    if (dies) {
      end = std::thread([] {
        std::this_thread::sleep_for(std::chrono::seconds(1));
        kill(getpid(), SIGKILL);
      });
    }
    const auto communicator = Communicator::Connect(topology, {.connect_timeout = std::chrono::seconds(60)});
    Sums(*communicator).Run(3);
    communicator->Leave();
  });
  EXPECT_EQ(ended[1].code, -SIGKILL);
  for (size_t i : {0, 2, 3}) EXPECT_EQ(ended[i].code, 0) << ended[i].words;
}

TEST(Rendezvous, NamesMissingRanks) {
  const auto ended = RunForked(4, [](const JobTopology& topology) {
    if (topology.rank == 1 || topology.rank == 3) return;
    Communicator::Connect(topology, {.connect_timeout = std::chrono::seconds(2)});
  });
  EXPECT_EQ(ended[0].code, kPeerExitCode);
  EXPECT_NE(ended[0].words.find("of the job's 4 processes have not connected: rank 1, 3"), std::string::npos) << ended[0].words;
  EXPECT_EQ(ended[2].code, kPeerExitCode);
}

TEST(Rendezvous, NamesRangesOfMissingRanks) {
  const auto ended = RunForked(2, [](const JobTopology& topology) {
    JobTopology larger = topology;
    larger.world = 3000;
    if (topology.rank == 1) larger.rank = 2;
    Communicator::Connect(larger, {.connect_timeout = std::chrono::seconds(2)});
  });
  EXPECT_NE(ended[0].words.find("of the job's 3000 processes have not connected: rank 1, 3 to 2999\n"), std::string::npos)
      << ended[0].words;
}

// A foreign server, such as torchrun's store, listens on the port that the job was given, and foreign clients connect to rank 0.
TEST(Rendezvous, IgnoresForeignConnections) {
  for (const bool talks : {false, true}) {
    const auto ended = RunForked(3, [&](const JobTopology& given) {
      JobTopology topology = given;
      topology.world = 2;
      if (topology.rank == 2) {
        const auto listener = Socket::Listen(Resolve("127.0.0.1", topology.master_port).front());
        if (!listener) return;  // rank 0 bound the port first
        const Deadline end = Clock::now() + std::chrono::seconds(4);
        std::vector<Socket> guests;
        while (auto guest = listener->Accept(end)) {
          if (talks) guest->Write("HTTP/1.1 400 Bad Request\r\n\r\n", 28, end);
          guests.push_back(std::move(*guest));
        }
        // In the other direction: one client that sends nothing, and one that sends garbage.
        return;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      const auto communicator = Communicator::Connect(topology, {.connect_timeout = std::chrono::seconds(60)});
      Sums(*communicator).Run(3);
      communicator->Leave();
    });
    for (const ForkedEnd& end : ended) EXPECT_EQ(end.code, 0) << end.words;
  }
  const auto visited = RunForked(3, [](const JobTopology& given) {
    JobTopology topology = given;
    topology.world = 2;
    if (topology.rank == 2) {
      const Deadline end = Clock::now() + std::chrono::seconds(20);
      std::vector<Socket> open;
      for (int i = 0; i < 2;) {
        if (auto socket = Socket::Connect(Resolve("127.0.0.1", topology.master_port).front(), end)) {
          if (i == 1) socket->Write("GET / HTTP/1.1\r\n\r\n", 18, end);
          open.push_back(std::move(*socket));
          ++i;
        } else if (Clock::now() >= end) {
          throw Error(ErrorCode::kPeer, "rank 0 never listened");
        }
      }
      std::this_thread::sleep_for(std::chrono::seconds(1));
      return;
    }
    // Rank 0 waits for rank 1, which connects after the foreign clients.
    if (topology.rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(500));
    const auto communicator = Communicator::Connect(topology, {.connect_timeout = std::chrono::seconds(60)});
    Sums(*communicator).Run(3);
    communicator->Leave();
  });
  for (const ForkedEnd& end : visited) EXPECT_EQ(end.code, 0) << end.words;
}

// Otherwise those that scan ports could use up the descriptors of rank 0 while it waits.
TEST(Rendezvous, ClosesSilentConnections) {
  const auto ended = RunForked(2, [](const JobTopology& topology) {
    if (topology.rank == 1) {
      const Deadline end = Clock::now() + std::chrono::seconds(30);
      std::optional<Socket> silent;
      while (!silent && Clock::now() < end) silent = Socket::Connect(Resolve("127.0.0.1", topology.master_port).front(), end);
      char byte;
      if (!silent || silent->Read(&byte, 1, end) || Clock::now() >= end) throw Error(ErrorCode::kInternal, "it was not closed");
    }
    const auto communicator = Communicator::Connect(topology, {.connect_timeout = std::chrono::seconds(60)});
    Sums(*communicator).Run(3);
    communicator->Leave();
  });
  for (const ForkedEnd& end : ended) EXPECT_EQ(end.code, 0) << end.words;
}

// From now on the process may open this number of further files.
void AllowFiles(int more) {
  const int next = dup(0);
  close(next);
  const auto files = static_cast<rlim_t>(next + more);
  const rlimit limit{files, files};
  setrlimit(RLIMIT_NOFILE, &limit);
}

// Rank 0 may open its listener, but no further file. Another rank may listen and connect to rank 0, but to nobody else: neither may rank 2
// connect to rank 1, nor rank 1 accept rank 2.
TEST(Rendezvous, SaysThatTooManyFilesAreOpen) {
  for (const auto& [rank, files] : {std::pair{0, 1}, std::pair{1, 2}, std::pair{2, 2}}) {
    const auto start = Clock::now();
    const auto ended = RunForked(3, [rank = rank, files = files](const JobTopology& topology) {
      if (topology.rank == rank) AllowFiles(files);
      Communicator::Connect(topology, {.connect_timeout = std::chrono::seconds(rank == 0 ? 5 : 60)});
    });
    const ForkedEnd& end = ended[static_cast<size_t>(rank)];
    EXPECT_EQ(end.code, ExitCode(ErrorCode::kResource)) << "rank " << rank;
    EXPECT_NE(end.words.find("rank " + std::to_string(rank) + " cannot connect to another process: too many files are open"),
              std::string::npos)
        << end.words;
    EXPECT_LT(Clock::now() - start, std::chrono::seconds(30)) << "rank " << rank;
  }
}

TEST(Rendezvous, OverIPv6) {
  if (!Socket::Listen(Resolve("::1", 0).front())) GTEST_SKIP() << "this machine has no IPv6";
  const auto ended = RunForked(3, [](JobTopology topology) {
    topology.master_address = "::1";
    const auto communicator = Communicator::Connect(topology);
    Sums(*communicator).Run(3);
    communicator->Leave();
  });
  for (const ForkedEnd& end : ended) EXPECT_EQ(end.code, 0) << end.words;
}

}  // namespace
}  // namespace gradloom
