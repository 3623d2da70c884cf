// MPI, in a library that is opened on demand, so that the program runs without MPI.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace gradloom {

// The part of MPI that the messages of a job use. Only one thread calls it at a time; Start and Finish must be called by the same thread.
// It must be of one build with the program. Throws Error(kPeer) for errors of MPI.
class MpiLibrary {
 public:
  // A message under way. `handle` is a value of MPI.
  struct Request {
    uint64_t handle = 0;
  };
  // A message that has arrived and is not yet received.
  struct Arrival {
    int from = 0, tag = 0;
    int64_t bytes = 0;
    uint64_t handle = 0;
  };

  // "Open MPI v4.1.4, ..."; also valid before Start.
  virtual std::string version() const = 0;

  // MPI_Init of this process; no other code may call it. If MPI cannot start, it ends the process itself.
  virtual void Start() = 0;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Sends rank 0's data to all, which call it together.
  virtual void Broadcast(void* data, int64_t bytes) = 0;

  // `data` must stay valid until Done. `tag` must be below 32768.
  virtual Request Send(int to, int tag, const void* data, int64_t bytes) = 0;
  // The next message of any process; those of one process come in the order in which they were sent.
  virtual std::optional<Arrival> Probe() = 0;
  virtual Request Receive(const Arrival& arrival, void* to) = 0;
  // Whether it has ended. Must not be called again after that.
  virtual bool Done(Request& request) = 0;

  // MPI_Finalize, which all processes must call.
  virtual void Finish() = 0;

 protected:
  ~MpiLibrary() = default;
};

inline constexpr int kMpiLibraryVersion = 1;
inline constexpr char kMpiLibraryEntry[] = "gradloom_mpi_library";

extern "C" {
// Returns the library, which lives as long as the process; null for another version. Does not throw.
using MpiLibraryEntry = MpiLibrary* (*)(int version);
}

// Opens the library without starting MPI; null, with the reason in `why`, if it cannot be opened.
MpiLibrary* OpenMpiLibrary(std::string& why);

}  // namespace gradloom
