#include "runtime/api/guard.h"

#include <algorithm>
#include <new>

#include "runtime/base/thrown.h"
#include "runtime/device/device.h"

namespace gradloom::api {
namespace {

// The status returned when no memory is left for another one; never released.
GradloomStatus& OutOfMemory() {
  static GradloomStatus status{Error(ErrorCode::kResource, "out of memory"), "E-RESOURCE"};
  return status;
}

// Constructed at load time, while memory is still available.
const GradloomStatus* const kPreallocated = &OutOfMemory();

}  // namespace

// Before any lock is taken, which a thread of the parent may have held when it forked.
GradloomSession& InItsProcess(GradloomSession* session) {
  if (NotNull(session, "the session").forks == ForkCount()) return *session;
  throw Error(ErrorCode::kConfig, "the session was created before a fork, and the child process does not have its threads", "",
              "create sessions in the process that uses them");
}

bool IsConstant(const GradloomStatus* status) { return status == kPreallocated; }

CallersDevice::~CallersDevice() { RestoreCurrentDevice(); }

GradloomStatus* StatusOf(const Error& error) noexcept {
  try {
    return new GradloomStatus{error, std::string(ErrorName(error.code()))};
  } catch (...) {
    return &OutOfMemory();
  }
}

GradloomStatus* CurrentStatus() noexcept {
  try {
    throw;
  } catch (const Error& error) {
    return StatusOf(error);
  } catch (const std::bad_alloc&) {
    return &OutOfMemory();
  } catch (const std::exception& error) {
    try {
      return StatusOf(ErrorFrom(error));
    } catch (...) {
      return &OutOfMemory();
    }
  } catch (...) {
    try {
      return StatusOf(Error(ErrorCode::kInternal, "an exception that is not a std::exception was thrown"));
    } catch (...) {
      return &OutOfMemory();
    }
  }
}

size_t EntryIndex(GradloomEntry entry) {
  if (entry < GRADLOOM_TRAIN || entry > GRADLOOM_PREDICT)
    throw Error(ErrorCode::kConfig, "unknown kind of entry " + std::to_string(entry), "",
                "use GRADLOOM_TRAIN, GRADLOOM_EVAL or GRADLOOM_PREDICT");
  return static_cast<size_t>(entry);
}

Call::Call(GradloomSession* session) : handle_(InItsProcess(session)), begun_(handle_), lock_(handle_.calls) {
  std::unique_lock lock(handle_.async);
  handle_.ended.wait(lock, [&] { return !handle_.running; });
}

void Call::CheckNotFitting() const {
  if (handle_.fitting)
    throw Error(ErrorCode::kConfig, "a callback of Fit cannot train the session while Fit runs", "", "return 1 to end the run first");
}

}  // namespace gradloom::api
