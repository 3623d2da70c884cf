#include "compiler/onnx/wire_check.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "runtime/base/error.h"

namespace gradloom {
namespace {

// The messages that can hold graphs, and so one another.
enum class Kind : uint8_t { kModel, kGraph, kNode, kAttribute, kFunction, kTraining, kOther };

// The kind of a field of a message, by its number in onnx.proto.
Kind Child(Kind kind, uint64_t field) {
  switch (kind) {
    case Kind::kModel: return field == 7 ? Kind::kGraph : field == 25 ? Kind::kFunction : field == 20 ? Kind::kTraining : Kind::kOther;
    case Kind::kGraph: return field == 1 ? Kind::kNode : Kind::kOther;
    case Kind::kNode: return field == 5 ? Kind::kAttribute : Kind::kOther;
    case Kind::kAttribute: return field == 6 || field == 11 ? Kind::kGraph : Kind::kOther;
    case Kind::kFunction: return field == 7 ? Kind::kNode : field == 11 ? Kind::kAttribute : Kind::kOther;
    case Kind::kTraining: return field == 1 || field == 2 ? Kind::kGraph : Kind::kOther;
    case Kind::kOther: break;
  }
  return Kind::kOther;
}

struct Frame {
  Kind kind;
  size_t end;
  int graphs;  // graphs that this message lies in, itself included
};

class Reader {
 public:
  Reader(std::string_view bytes, const std::string& where, const ModelLimits& limits) : bytes_(bytes), where_(where), limits_(limits) {}

  void Run() {
    stack_.push_back({Kind::kModel, bytes_.size(), 0});
    while (!stack_.empty()) {
      if (at_ == stack_.back().end) {
        stack_.pop_back();
      } else {
        Field();
      }
    }
  }

 private:
  [[noreturn]] void Fail(const std::string& why) {
    throw Error(ErrorCode::kParse, "this is no valid ONNX file: " + why, where_ + ", byte " + std::to_string(at_),
                "the file may be damaged or cut off: compare its size and checksum with the source");
  }

  uint64_t Varint(size_t end) {
    uint64_t value = 0;
    for (int i = 0; i < 10; ++i) {
      if (at_ >= end) Fail("a number is cut off");
      const auto byte = static_cast<unsigned char>(bytes_[at_++]);
      value |= static_cast<uint64_t>(byte & 0x7F) << (7 * i);
      if (byte < 0x80) return value;
    }
    Fail("a number has more than ten bytes");
  }

  void Skip(uint64_t count, size_t end) {
    if (count > end - at_) Fail("a field claims " + std::to_string(count) + " bytes where " + std::to_string(end - at_) + " are left");
    at_ += static_cast<size_t>(count);
  }

  void Field() {
    const Frame frame = stack_.back();
    const uint64_t tag = Varint(frame.end);
    const uint64_t field = tag >> 3;
    if (field == 0 || field > (uint64_t{1} << 29)) Fail("a field has the number " + std::to_string(field));
    switch (tag & 7) {
      case 0: Varint(frame.end); return;
      case 1: Skip(8, frame.end); return;
      case 5: Skip(4, frame.end); return;
      case 2: break;
      default: Fail("a field has the unknown form " + std::to_string(tag & 7));
    }
    const uint64_t length = Varint(frame.end);
    const size_t begin = at_;
    Skip(length, frame.end);
    const Kind kind = Child(frame.kind, field);
    if (kind == Kind::kOther) return;
    Enter({kind, at_, frame.graphs + (kind == Kind::kGraph ? 1 : 0)});
    at_ = begin;
  }

  void Enter(Frame frame) {
    if (frame.graphs > limits_.nesting) {
      Fail("graphs are nested deeper than " + std::to_string(limits_.nesting));
    }
    if (frame.kind == Kind::kNode && ++nodes_ > limits_.nodes) {
      throw Error(ErrorCode::kLimit, "the model has more than " + std::to_string(limits_.nodes) + " nodes", where_);
    }
    stack_.push_back(frame);
  }

  std::string_view bytes_;
  const std::string& where_;
  const ModelLimits& limits_;
  std::vector<Frame> stack_;
  size_t at_ = 0;
  int64_t nodes_ = 0;
};

bool StartsWithIgnoringCase(std::string_view text, std::string_view prefix) {
  if (text.size() < prefix.size()) return false;
  for (size_t i = 0; i < prefix.size(); ++i) {
    const char c = text[i] >= 'A' && text[i] <= 'Z' ? static_cast<char>(text[i] - 'A' + 'a') : text[i];
    if (c != prefix[i]) return false;
  }
  return true;
}

// A model begins with a field's tag, a control byte.
bool LooksLikeText(std::string_view bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](char c) { return (c >= ' ' && c <= '~') || c == '\t' || c == '\r' || c == '\n'; });
}

std::string_view WithoutSpace(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  return begin == std::string_view::npos ? std::string_view() : text.substr(begin);
}

}  // namespace

void CheckWire(std::string_view bytes, const std::string& where, const ModelLimits& limits) {
  const auto other = [&](const char* what, const char* help) { throw Error(ErrorCode::kParse, what, where, help); };
  if (bytes.empty()) other("the file is empty", "the download or export did not finish");
  const std::string_view text = WithoutSpace(bytes.substr(0, 1024));
  if (StartsWithIgnoringCase(text, "<!doctype html") || StartsWithIgnoringCase(text, "<html")) {
    other("this looks like HTML, a page of a web site instead of the model", "download the file itself (the 'raw' or 'download' link)");
  }
  if (text.starts_with("version https://git-lfs.github.com/spec")) {
    other("this is a git-lfs pointer, not the model", "fetch the model with 'git lfs pull'");
  }
  if (bytes.starts_with("PK\x03\x04"))
    other("this is a zip archive (perhaps a PyTorch file), not an ONNX model", "export the model to ONNX first");
  if (bytes.starts_with("\x89HDF\r\n"))
    other("this is an HDF5 file (perhaps of Keras), not an ONNX model", "convert the model to ONNX first");
  if (LooksLikeText(bytes.substr(0, 1024))) {
    other("this is a text file, not an ONNX model", "the model comes first, the data behind --data; ONNX as text is named .onnxtxt");
  }
  Reader(bytes, where, limits).Run();
}

void CheckText(std::string_view text, const std::string& where, const ModelLimits& limits) {
  // The text parser calls itself for every nested graph, type and function.
  const int most = 4 * limits.nesting;
  int depth = 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\') ++i;
      quoted = c != '"';
    } else if (c == '"') {
      quoted = true;
    } else if (c == '{' || c == '(' || c == '<' || c == '[') {
      if (++depth > most) throw Error(ErrorCode::kParse, "brackets are nested deeper than " + std::to_string(most), where);
    } else if (c == '}' || c == ')' || c == '>' || c == ']') {
      // '=>' closes nothing.
      if (!(c == '>' && i > 0 && text[i - 1] == '=') && depth > 0) --depth;
    }
  }
}

}  // namespace gradloom
