// MPI, behind a library that is opened when it is asked for: the program runs where there is no MPI.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace gradloom {

// What the messages of a job use of MPI. One thread calls it at a time, whichever it is, but for Start and Finish, which one and the same
// thread calls. Of one build with the program. Throws Error(kPeer) for what MPI calls an error.
class MpiLibrary {
 public:
  // A message under way. A value of MPI, as a number.
  struct Request {
    uint64_t handle = 0;
  };
  // A message that has come, and is nobody's yet.
  struct Arrival {
    int from = 0, tag = 0;
    int64_t bytes = 0;
    uint64_t handle = 0;
  };

  // "Open MPI v4.1.4, ..."; before Start, too.
  virtual std::string version() const = 0;

  // MPI_Init of this process, which no other code calls. MPI ends processes by itself where it cannot.
  virtual void Start() = 0;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // What rank 0 has, to all, which call it together.
  virtual void Broadcast(void* data, int64_t bytes) = 0;

  // `data` is MPI's until Done. `tag` below 32768.
  virtual Request Send(int to, int tag, const void* data, int64_t bytes) = 0;
  // The next message of any process: those of one come in the order in which they were sent.
  virtual std::optional<Arrival> Probe() = 0;
  virtual Request Receive(const Arrival& arrival, void* to) = 0;
  // Whether it has ended. Not to be asked again after that.
  virtual bool Done(Request& request) = 0;

  // MPI_Finalize: all processes come to it.
  virtual void Finish() = 0;

 protected:
  ~MpiLibrary() = default;
};

inline constexpr int kMpiLibraryVersion = 1;
inline constexpr char kMpiLibraryEntry[] = "gradloom_mpi_library";

extern "C" {
// The library, which lives as long as the process; null for another version. Does not throw.
using MpiLibraryEntry = MpiLibrary* (*)(int version);
}

// Null where it cannot be opened, with the reason. It is not started.
MpiLibrary* OpenMpiLibrary(std::string& why);

}  // namespace gradloom
