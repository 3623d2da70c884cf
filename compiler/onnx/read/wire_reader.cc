#include "compiler/onnx/read/wire_reader.h"

#include <algorithm>
#include <climits>
#include <cstdint>
#include <optional>
#include <utility>

#include "compiler/onnx/proto_convert.h"
#include "compiler/onnx/read/message_kinds.h"
#include "google/protobuf/unknown_field_set.h"
#include "runtime/base/ascii_lower.h"
#include "runtime/base/error.h"
#include "runtime/base/narrow.h"

namespace gradloom {
namespace {

using Kind = MessageKind;

// A field of TensorProto.
constexpr uint64_t kDataType = 2;

// The length of a message is only known at its end: a number of this many bytes is reserved for it.
constexpr size_t kLengthBytes = 5;

void AppendVarint(uint64_t value, std::string& to) {
  for (; value >= 0x80; value >>= 7) to.push_back(static_cast<char>(value | 0x80));
  to.push_back(static_cast<char>(value));
}

struct Frame {
  Kind kind;
  int64_t end;         // in the file
  int graphs;          // number of enclosing graphs, including itself
  size_t content = 0;  // where it begins in the output message
  int32_t data_type = 0;
  bool has_raw = false;
};

class Reader {
 public:
  Reader(ModelBytes& bytes, Elements elements, const std::string& where, const ModelLimits& limits)
      : bytes_(bytes), moving_(elements == Elements::kMoved), where_(where), limits_(limits) {}
  // Waits for threads that are still hashing bytes of the model.
  ~Reader() { bytes_.Finish(); }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  WireModel Run() {
    stack_.push_back({.kind = Kind::kModel, .end = bytes_.size(), .graphs = 0});
    while (!stack_.empty()) {
      if (bytes_.at() == stack_.back().end) {
        Leave();
      } else {
        Field();
      }
    }
    if (model_.message.size() > INT_MAX) {
      throw Error(ErrorCode::kLimit, "the model needs more than 2 GiB without its tensors' raw data", where_,
                  "save its weights as external data, or as raw_data");
    }
    return std::move(model_);
  }

 private:
  [[noreturn]] void Fail(const std::string& why) {
    throw Error(ErrorCode::kParse, "this is not a valid ONNX file: " + why, where_ + ", byte " + std::to_string(bytes_.at()),
                "the file may be damaged or cut off: compare its size and checksum with the source");
  }

  uint64_t Varint(int64_t end) {
    uint64_t value = 0;
    for (int i = 0; i < 10; ++i) {
      if (bytes_.at() >= end) Fail("a number is cut off");
      const uint8_t byte = bytes_.Next();
      value |= static_cast<uint64_t>(byte & 0x7F) << (7 * i);
      if (byte < 0x80) return value;
    }
    Fail("a number has more than ten bytes");
  }

  // Checks that `count` more bytes exist before `end`, and returns `count`.
  int64_t Claim(uint64_t count, int64_t end) {
    const auto left = static_cast<uint64_t>(end - bytes_.at());
    if (count > left) Fail("a field claims " + std::to_string(count) + " bytes, but only " + std::to_string(left) + " are left");
    return static_cast<int64_t>(count);
  }

  void Field() {
    Frame& frame = stack_.back();
    const uint64_t tag = Varint(frame.end);
    const uint64_t field = tag >> 3;
    if (field == 0 || field > (uint64_t{1} << 29)) Fail("a field has the invalid number " + std::to_string(field));
    const bool ours = frame.kind == Kind::kTensor && field == kMovedField;
    const size_t begin = model_.message.size();
    AppendVarint(tag, model_.message);
    switch (tag & 7) {
      case 0: {
        const uint64_t value = Varint(frame.end);
        AppendVarint(value, model_.message);
        if (frame.kind == Kind::kTensor && field == kDataType) frame.data_type = static_cast<int32_t>(value);
        break;
      }
      case 1: bytes_.Append(Claim(8, frame.end), model_.message); break;
      case 5: bytes_.Append(Claim(4, frame.end), model_.message); break;
      case 2: Sized(frame, field, begin); break;
      default: Fail("a field has the unknown wire type " + std::to_string(tag & 7));
    }
    // Drops a field of the file that has our own number, which has no meaning.
    if (ours) model_.message.resize(begin);
  }

  void Sized(Frame& frame, uint64_t field, size_t begin) {
    const int64_t length = Claim(Varint(frame.end), frame.end);
    const Kind kind = ChildKind(frame.kind, field);
    if (kind != Kind::kOther) return Enter(kind, frame, length);
    if (frame.kind == Kind::kTensor && field == kRawDataField) {
      if (std::exchange(frame.has_raw, true)) Fail("a tensor has raw data twice");
      if (Take(frame, length, begin)) return;
    }
    AppendVarint(static_cast<uint64_t>(length), model_.message);
    bytes_.Append(length, model_.message);
  }

  // Takes raw data that a Tensor can hold unchanged, if the tensor's type comes first, as in all files written by protobuf.
  bool Take(const Frame& frame, int64_t length, size_t begin) {
    const auto dtype = DTypeFromProto(frame.data_type);
    if (length == 0 || !dtype || *dtype == DType::kString || *dtype == DType::kBool || IsNarrow(*dtype)) return false;
    const int64_t each = DTypeBytes(*dtype);
    if (each == 0 || length % each != 0) return false;
    model_.message.resize(begin);
    if (!moving_) {
      bytes_.Skip(length);
      return true;
    }
    Tensor& tensor = model_.elements.emplace_back(*dtype, Shape{length / each});
    bytes_.Read(length, static_cast<char*>(tensor.data()));
    AppendVarint(kMovedField << 3, model_.message);
    AppendVarint(model_.elements.size() - 1, model_.message);
    return true;
  }

  void Enter(Kind kind, const Frame& parent, int64_t length) {
    const int graphs = parent.graphs + (kind == Kind::kGraph ? 1 : 0);
    if (graphs > limits_.nesting) {
      Fail("graphs are nested deeper than " + std::to_string(limits_.nesting));
    }
    if (kind == Kind::kNode && ++nodes_ > limits_.nodes) {
      throw Error(ErrorCode::kLimit, "the model has more than " + std::to_string(limits_.nodes) + " nodes", where_);
    }
    model_.message.append(kLengthBytes, '\0');
    stack_.push_back({.kind = kind, .end = bytes_.at() + length, .graphs = graphs, .content = model_.message.size()});
  }

  void Leave() {
    const Frame frame = stack_.back();
    stack_.pop_back();
    if (stack_.empty()) return;
    uint64_t length = model_.message.size() - frame.content;
    char* const to = model_.message.data() + frame.content - kLengthBytes;
    for (size_t i = 0; i < kLengthBytes; ++i, length >>= 7) to[i] = static_cast<char>((length & 0x7F) | (i + 1 < kLengthBytes ? 0x80 : 0));
  }

  ModelBytes& bytes_;
  const bool moving_;
  const std::string& where_;
  const ModelLimits& limits_;
  WireModel model_;
  std::vector<Frame> stack_;
  int64_t nodes_ = 0;
};

bool StartsWithIgnoringCase(std::string_view text, std::string_view prefix) {
  if (text.size() < prefix.size()) return false;
  for (size_t i = 0; i < prefix.size(); ++i) {
    if (AsciiLower(text[i]) != prefix[i]) return false;
  }
  return true;
}

// A binary model begins with the tag of a field, which is a control byte.
bool LooksLikeText(std::string_view bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](char c) { return (c >= ' ' && c <= '~') || c == '\t' || c == '\r' || c == '\n'; });
}

std::string_view WithoutSpace(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  return begin == std::string_view::npos ? std::string_view() : text.substr(begin);
}

}  // namespace

WireModel ReadWire(ModelBytes& bytes, Elements elements, const std::string& where, const ModelLimits& limits) {
  const auto other = [&](const char* what, const char* help) { throw Error(ErrorCode::kParse, what, where, help); };
  if (bytes.size() == 0) other("the file is empty", "the download or export did not finish");
  const std::string_view beginning = bytes.beginning(), text = WithoutSpace(beginning);
  if (StartsWithIgnoringCase(text, "<!doctype html") || StartsWithIgnoringCase(text, "<html")) {
    other("this looks like an HTML page, not an ONNX model", "download the file itself (the 'raw' or 'download' link)");
  }
  if (text.starts_with("version https://git-lfs.github.com/spec")) {
    other("this is a git-lfs pointer, not an ONNX model", "fetch the model with 'git lfs pull'");
  }
  if (beginning.starts_with("\x8bGLP"))
    other("this is a plan, not an ONNX model", "train and bench take a plan with --plan; inspect and verify show what it does");
  if (beginning.starts_with("PK\x03\x04"))
    other("this is a zip archive (perhaps a PyTorch file), not an ONNX model", "export the model to ONNX first");
  if (beginning.starts_with("\x89HDF\r\n"))
    other("this is an HDF5 file (perhaps from Keras), not an ONNX model", "convert the model to ONNX first");
  if (beginning.size() >= 8 && beginning.substr(4, 4) == "ODTC") {
    other(
        "this is a checkpoint of onnxruntime-training, not an ONNX model",
        "give the ONNX model that its artifacts were made from; onnxruntime's export_model_for_inferencing writes one with these weights");
  }
  if (LooksLikeText(beginning)) {
    other("this is a text file, not an ONNX model",
          "give the model first and the data with --data; the text form of ONNX needs the extension .onnxtxt");
  }
  return Reader(bytes, elements, where, limits).Run();
}

int64_t MarkedElements(const onnx::TensorProto& tensor) {
  const google::protobuf::UnknownFieldSet& fields = tensor.unknown_fields();
  int64_t marked = -1;
  // The last value counts, like for any repeated occurrence of a field when protobuf merges messages.
  for (int i = 0; i < fields.field_count(); ++i) {
    const google::protobuf::UnknownField& field = fields.field(i);
    if (field.number() == static_cast<int>(kMovedField) && field.type() == google::protobuf::UnknownField::TYPE_VARINT)
      marked = static_cast<int64_t>(field.varint());
  }
  return marked;
}

void RemoveMark(onnx::TensorProto& tensor) {
  if (!tensor.unknown_fields().empty()) tensor.mutable_unknown_fields()->DeleteByNumber(static_cast<int>(kMovedField));
}

int64_t MovedElements(onnx::TensorProto& tensor) {
  const int64_t moved = MarkedElements(tensor);
  RemoveMark(tensor);
  return moved;
}

void MarkMoved(int64_t index, onnx::TensorProto& tensor) {
  tensor.mutable_unknown_fields()->AddVarint(static_cast<int>(kMovedField), static_cast<uint64_t>(index));
}

void CheckText(std::string_view text, const std::string& where, const ModelLimits& limits) {
  // The text parser recurses for every nested graph, type and function.
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
      // The '>' of '=>' is not a closing bracket.
      if (!(c == '>' && i > 0 && text[i - 1] == '=') && depth > 0) --depth;
    }
  }
}

}  // namespace gradloom
