// Finds the instruction that made the first NaN or infinity on the way to a value: a search for errors, far slower than a step without it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/comm/rank_range.h"
#include "runtime/plan/plan.h"

namespace gradloom {

// What a tensor holds. Indices are of elements in row-major order, -1 if there is none.
struct ScannedValue {
  const Buffer* buffer = nullptr;
  int64_t nans = 0, infinities = 0;
  int64_t first_nan = -1, first_infinity = -1;
  double min = 0, max = 0;  // of the finite elements, if there are any

  int64_t elements() const { return buffer->shape.elements(); }
  bool finite() const { return nans + infinities == 0; }
};

// Looks at the elements of a buffer of floating-point numbers, in its layout, without padding.
ScannedValue ScanValue(const Buffer& buffer, const void* data);

// Where a NaN or an infinity came from.
struct NonFiniteOrigin {
  // How much the text says; less is better.
  enum class Kind : uint8_t {
    kMade,       // the instruction read finite numbers only, or data, constants or weights with NaN
    kFromMasks,  // the first NaN, of infinities that were given, as in masks
    kPassed,     // an infinity that was given
    kElsewhere,  // another process has it
  };
  Kind kind = Kind::kMade;
  std::string text;  // "Log '/log' in the forward pass of step 3: 'y' float32[4] has 1 infinity, ..."
  // The order of origins: by run, instruction of the program, rank, and execution.
  int64_t run = 0, top = 0, rank = 0, execution = 0;
};

// Records the instructions that write numbers that are not finite, and follows these back through what the instructions read. Infinities
// are no error by themselves: the masks of attention have them. So nothing is reported until a caller asks where a value came from.
// Functions for instructions may be called by several threads, the others not while a run is under way.
class NumericsLog {
 public:
  // `own`: the ranks of this process.
  explicit NumericsLog(RankRange own) : own_(own) {}

  // Begins a run of an entry; forgets the instructions of the last one.
  void BeginRun(std::shared_ptr<const Plan> plan, int entry, int64_t step);
  // Ends a run that had no error: keeps the origins of states.
  void EndRun();

  struct Site {
    int rank = 0;
    int top = 0;  // index of the instruction, or of the one whose body has it, in the rank's program
    const Program* program = nullptr;
    const Instruction* instruction = nullptr;
  };
  // Returns the bytes of a buffer at this address as host memory that is valid until the next call; empty: they are in host memory.
  using OnHost = std::function<const void*(const Buffer& buffer, const void* address)>;
  // Whether it has operands to look at. A branch or a loop has none besides those of its bodies.
  static bool Applies(const Instruction& instruction);
  // Looks at what an instruction reads, before it runs. `addresses`: of all reads in the order of its uses.
  static std::vector<ScannedValue> Reads(const Site& site, std::span<const void* const> addresses, const OnHost& on_host = {});
  // Looks at what it has written. `addresses`: of all writes in the order of its uses.
  void Note(const Site& site, std::vector<ScannedValue> reads, std::span<void* const> addresses, const OnHost& on_host = {});

  // The origin of a NaN or infinity in a fetch of the last run; nullopt if it is finite.
  std::optional<NonFiniteOrigin> OriginOfFetch(size_t fetch) const;
  // The same for a state that an instruction has written, in any run.
  std::optional<NonFiniteOrigin> OriginOfState(const StateTensor& state) const;

 private:
  struct Event {
    Site site;
    std::vector<ScannedValue> reads, writes;
  };
  struct StateOrigin {
    int rank = 0;
    int64_t begin = 0, end = 0;  // of the state arena
    NonFiniteOrigin origin;
  };
  class Search;

  const RankRange own_;
  std::shared_ptr<const Plan> plan_;
  int entry_ = -1;
  int64_t run_ = 0, step_ = 0;
  std::mutex mutex_;
  std::vector<Event> events_;  // of the run, in an order that the dependencies of instructions allow
  std::vector<StateOrigin> states_;
};

}  // namespace gradloom
