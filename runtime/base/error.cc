#include "runtime/base/error.h"

#include <array>
#include <cstdio>
#include <utility>

#include "runtime/base/utf8.h"

namespace gradloom {
namespace {

struct ErrorClass {
  ErrorCode code;
  std::string_view name;
  int exit_code;
};

constexpr std::array kClasses = {
    ErrorClass{ErrorCode::kInternal, "E-INTERNAL", 1},
    ErrorClass{ErrorCode::kParse, "E-PARSE", 2},
    ErrorClass{ErrorCode::kSchema, "E-SCHEMA", 2},
    ErrorClass{ErrorCode::kName, "E-NAME", 2},
    ErrorClass{ErrorCode::kGraph, "E-GRAPH", 2},
    ErrorClass{ErrorCode::kArity, "E-ARITY", 2},
    ErrorClass{ErrorCode::kAttr, "E-ATTR", 2},
    ErrorClass{ErrorCode::kType, "E-TYPE", 2},
    ErrorClass{ErrorCode::kShape, "E-SHAPE", 2},
    ErrorClass{ErrorCode::kValue, "E-VALUE", 2},
    ErrorClass{ErrorCode::kTensor, "E-TENSOR", 2},
    ErrorClass{ErrorCode::kPath, "E-PATH", 2},
    ErrorClass{ErrorCode::kIo, "E-IO", 2},
    ErrorClass{ErrorCode::kVersion, "E-VERSION", 3},
    ErrorClass{ErrorCode::kUnsupported, "E-UNSUPPORTED", 3},
    ErrorClass{ErrorCode::kLimit, "E-LIMIT", 8},
    ErrorClass{ErrorCode::kConfig, "E-CONFIG", 4},
    ErrorClass{ErrorCode::kData, "E-DATA", 5},
    ErrorClass{ErrorCode::kResource, "E-RESOURCE", 8},
    ErrorClass{ErrorCode::kPlan, "E-PLAN", 6},
    ErrorClass{ErrorCode::kCheckpoint, "E-CHECKPOINT", 7},
    ErrorClass{ErrorCode::kDevice, "E-DEVICE", 9},
    ErrorClass{ErrorCode::kDiverged, "E-DIVERGED", 10},
    ErrorClass{ErrorCode::kCheckFailed, "E-CHECK", 11},
    ErrorClass{ErrorCode::kPeer, "E-PEER", 140},
};

const ErrorClass& ClassOf(ErrorCode code) { return kClasses[static_cast<size_t>(code)]; }

constexpr bool InOrder() {
  for (size_t i = 0; i < kClasses.size(); ++i) {
    if (static_cast<size_t>(kClasses[i].code) != i) return false;
  }
  return true;
}
static_assert(InOrder());

}  // namespace

std::string_view ErrorName(ErrorCode code) { return ClassOf(code).name; }

int ExitCode(ErrorCode code) { return ClassOf(code).exit_code; }

Error::Error(ErrorCode code, std::string message, std::string where, std::string help)
    : code_(code), message_(std::move(message)), where_(std::move(where)), help_(std::move(help)) {}

std::string Error::Describe() const {
  std::string text = "error[" + std::string(ErrorName(code_)) + "]: " + message_;
  if (!where_.empty()) text += "\n  --> " + where_;
  if (!help_.empty()) text += "\n  help: " + help_;
  return text;
}

std::string Escaped(std::string_view text, size_t limit) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    if (out.size() >= limit) return out + "...";
    const size_t length = Utf8Length(text.substr(i));
    const unsigned char c = static_cast<unsigned char>(text[i]);
    // C1 control characters (U+0080 to U+009F) control terminals just as C0 ones do.
    const bool c1 = length == 2 && c == 0xC2 && static_cast<unsigned char>(text[i + 1]) < 0xA0;
    if (length == 0 || c1 || c < 0x20 || c == 0x7F) {
      char hex[5];
      std::snprintf(hex, sizeof hex, "\\x%02x", c);
      out += hex;
      ++i;
    } else {
      out.append(text.substr(i, length));
      i += length;
    }
  }
  return out;
}

namespace internal {

void CheckFailed(const char* condition, const char* file, int line) {
  throw Error(ErrorCode::kInternal, std::string("internal check failed: ") + condition, std::string(file) + ":" + std::to_string(line),
              "this is a bug in Gradloom; please report it with the command that shows it");
}

}  // namespace internal
}  // namespace gradloom
