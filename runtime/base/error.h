// The only exception type of Gradloom, its error classes, and the exit code of each.
#pragma once

#include <exception>
#include <string>
#include <string_view>

namespace gradloom {

// The class of an error, which docs/errors.md describes. The order is that of the numbers in gradloom_c.h.
enum class ErrorCode {
  kInternal,  // a bug in Gradloom
  kParse,
  kSchema,
  kName,
  kGraph,
  kArity,
  kAttr,
  kType,
  kShape,
  kValue,
  kTensor,
  kPath,
  kIo,
  kVersion,
  kUnsupported,
  kLimit,
  kConfig,
  kData,
  kResource,
  kPlan,
  kCheckpoint,
  kDevice,
  kDiverged,
  kCheckFailed,
  kPeer,
};

// "E-SHAPE" and so on, as printed in messages.
std::string_view ErrorName(ErrorCode code);

// The exit code of the command for an error of this class (2 for an invalid model, 4 for usage ...).
int ExitCode(ErrorCode code);

// An error: what is wrong, where, and what to do about it. `where` names a file, an ONNX node and shapes; `help` is a remedy, if possible a
// command that works as it stands. Either may be empty.
class Error : public std::exception {
 public:
  Error(ErrorCode code, std::string message, std::string where = {}, std::string help = {});

  ErrorCode code() const { return code_; }
  const std::string& message() const { return message_; }
  const std::string& where() const { return where_; }
  const std::string& help() const { return help_; }

  // Only the message; Describe() returns the whole text.
  const char* what() const noexcept override { return message_.c_str(); }

  // error[E-SHAPE]: message
  //   --> where
  //   help: help
  std::string Describe() const;

 private:
  ErrorCode code_;
  std::string message_;
  std::string where_;
  std::string help_;
};

// Makes text of unknown origin safe for a terminal: control bytes and invalid UTF-8 become \xNN, and text longer than `limit` bytes is cut
// with "...".
std::string Escaped(std::string_view text, size_t limit = 200);

// Checks a condition that only a bug in Gradloom can break. Throws Error(kInternal) with the place.
#define GRADLOOM_CHECK(condition)                                        \
  do {                                                                   \
    if (!(condition)) {                                                  \
      ::gradloom::internal::CheckFailed(#condition, __FILE__, __LINE__); \
    }                                                                    \
  } while (false)

namespace internal {
[[noreturn]] void CheckFailed(const char* condition, const char* file, int line);
}  // namespace internal

}  // namespace gradloom
