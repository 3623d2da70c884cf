// MpiLibrary on top of MPI: the only file that is compiled with MPI's header.
#include "runtime/comm/mpi_library.h"

#include <mpi.h>

#include <climits>
#include <cstring>
#include <string>
#include <utility>

#include "runtime/base/error.h"

namespace gradloom {
namespace {

// MPI_Request is a pointer in Open MPI and a number in MPICH.
template <typename Handle>
uint64_t NumberOf(Handle handle) {
  static_assert(sizeof(Handle) <= sizeof(uint64_t));
  uint64_t number = 0;
  std::memcpy(&number, &handle, sizeof handle);
  return number;
}

template <typename Handle>
Handle HandleOf(uint64_t number) {
  Handle handle;
  std::memcpy(&handle, &number, sizeof handle);
  return handle;
}

void Check(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw Error(ErrorCode::kPeer, std::string(call) + ": " + Escaped(text, 1000));
}

// MPI counts bytes in an int; longer messages get a datatype of their own.
class Bytes {
 public:
  explicit Bytes(int64_t bytes) : count_(static_cast<int>(bytes)) {
    if (bytes <= INT_MAX) return;
    const int blocks = static_cast<int>(bytes / kBlock);
    MPI_Datatype many = MPI_DATATYPE_NULL;
    Check(MPI_Type_vector(blocks, kBlock, kBlock, MPI_BYTE, &many), "MPI_Type_vector");
    const int lengths[] = {1, static_cast<int>(bytes % kBlock)};
    const MPI_Aint begins[] = {0, static_cast<MPI_Aint>(blocks) * kBlock};
    const MPI_Datatype parts[] = {many, MPI_BYTE};
    const int made = MPI_Type_create_struct(2, lengths, begins, parts, &type_);
    MPI_Type_free(&many);
    Check(made, "MPI_Type_create_struct");
    Check(MPI_Type_commit(&type_), "MPI_Type_commit");
    count_ = 1;
  }
  // MPI keeps the datatype alive for messages in flight.
  ~Bytes() {
    if (type_ != MPI_BYTE) MPI_Type_free(&type_);
  }
  Bytes(const Bytes&) = delete;
  Bytes& operator=(const Bytes&) = delete;

  int count() const { return count_; }
  MPI_Datatype type() const { return type_; }

 private:
  static constexpr int kBlock = 1 << 20;
  MPI_Datatype type_ = MPI_BYTE;
  int count_ = 0;
};

class Library : public MpiLibrary {
 public:
  std::string version() const override {
    char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;
    MPI_Get_library_version(text, &length);
    const std::string line = text;
    return line.substr(0, line.find('\n'));
  }

  void Start() override {
    int given = MPI_THREAD_SINGLE;
    Check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &given), "MPI_Init_thread");
    if (given < MPI_THREAD_SERIALIZED)
      throw Error(ErrorCode::kUnsupported, "this MPI library does not support programs with threads", version(), "use --transport auto");
    // A communicator of our own keeps our messages apart from those of other users of MPI in the process.
    Check(MPI_Comm_dup(MPI_COMM_WORLD, &world_), "MPI_Comm_dup");
    Check(MPI_Comm_set_errhandler(world_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  }

  int rank() const override {
    int rank = 0;
    MPI_Comm_rank(world_, &rank);
    return rank;
  }

  int size() const override {
    int size = 0;
    MPI_Comm_size(world_, &size);
    return size;
  }

  void Broadcast(void* data, int64_t bytes) override {
    const Bytes all(bytes);
    Check(MPI_Bcast(data, all.count(), all.type(), 0, world_), "MPI_Bcast");
  }

  Request Send(int to, int tag, const void* data, int64_t bytes) override {
    const Bytes all(bytes);
    MPI_Request request = MPI_REQUEST_NULL;
    Check(MPI_Isend(data, all.count(), all.type(), to, tag, world_, &request), "MPI_Isend");
    return {NumberOf(request)};
  }

  std::optional<Arrival> Probe() override {
    int there = 0;
    MPI_Message message = MPI_MESSAGE_NULL;
    MPI_Status status;
    Check(MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, world_, &there, &message, &status), "MPI_Improbe");
    if (there == 0) return std::nullopt;
    MPI_Count bytes = 0;
    Check(MPI_Get_elements_x(&status, MPI_BYTE, &bytes), "MPI_Get_elements_x");
    return Arrival{status.MPI_SOURCE, status.MPI_TAG, static_cast<int64_t>(bytes), NumberOf(message)};
  }

  Request Receive(const Arrival& arrival, void* to) override {
    const Bytes all(arrival.bytes);
    auto message = HandleOf<MPI_Message>(arrival.handle);
    MPI_Request request = MPI_REQUEST_NULL;
    Check(MPI_Imrecv(to, all.count(), all.type(), &message, &request), "MPI_Imrecv");
    return {NumberOf(request)};
  }

  bool Done(Request& request) override {
    auto handle = HandleOf<MPI_Request>(request.handle);
    int done = 0;
    Check(MPI_Test(&handle, &done, MPI_STATUS_IGNORE), "MPI_Test");
    request.handle = NumberOf(handle);
    return done != 0;
  }

  void Finish() override {
    MPI_Comm_free(&world_);
    Check(MPI_Finalize(), "MPI_Finalize");
  }

 private:
  MPI_Comm world_ = MPI_COMM_NULL;
};

}  // namespace

extern "C" __attribute__((visibility("default"))) MpiLibrary* gradloom_mpi_library(int version) {
  static Library library;
  return version == kMpiLibraryVersion ? &library : nullptr;
}

}  // namespace gradloom
