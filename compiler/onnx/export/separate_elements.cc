#include "compiler/onnx/export/separate_elements.h"

#include <climits>
#include <utility>

#include "compiler/onnx/import.h"
#include "compiler/onnx/proto_convert.h"
#include "compiler/onnx/read/message_kinds.h"
#include "compiler/onnx/read/wire_reader.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/wire_format_lite.h"
#include "runtime/base/error.h"
#include "runtime/base/narrow.h"

namespace gradloom {
namespace {

using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;

// Small pieces are joined up to this size, so that a file with many tensors does not take a system call for each.
constexpr size_t kBufferBytes = size_t{1} << 20;

std::string VarintOf(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes.push_back(static_cast<char>(value | 0x80));
  bytes.push_back(static_cast<char>(value));
  return bytes;
}

}  // namespace

void SeparateElements::Add(Piece piece, onnx::TensorProto* tensor) {
  RemoveMark(*tensor);
  MarkMoved(std::ssize(pieces_), *tensor);
  pieces_.push_back(std::move(piece));
}

void SeparateElements::Set(const TensorView& type, Read read, onnx::TensorProto* tensor) {
  // Several elements of a narrow type share a byte in the file.
  if (type.bytes() < kMinBytes || IsNarrow(type.dtype)) {
    SetTensor(read().view(), tensor);
    return Take(tensor);
  }
  ClearElements(tensor);
  tensor->set_data_type(static_cast<int32_t>(type.dtype));
  tensor->clear_dims();
  for (const int64_t dim : type.shape) tensor->add_dims(dim);
  Add({type.bytes(), std::move(read), nullptr}, tensor);
}

void SeparateElements::Take(onnx::TensorProto* tensor) {
  if (static_cast<int64_t>(tensor->raw_data().size()) < kMinBytes) return;
  std::unique_ptr<std::string> data(tensor->release_raw_data());
  Add({static_cast<int64_t>(data->size()), {}, std::move(data)}, tensor);
}

int64_t SeparateElements::IndexOf(const onnx::TensorProto& tensor) const {
  const int64_t index = MarkedElements(tensor);
  return index < std::ssize(pieces_) ? index : -1;
}

void SeparateElements::Write(int64_t index, const TakeBytes& write) const {
  const Piece& piece = pieces_[static_cast<size_t>(index)];
  if (piece.data != nullptr) return write(piece.data->data(), piece.bytes);
  const Tensor value = piece.read();
  GRADLOOM_CHECK(value.bytes() == piece.bytes);
  write(value.data(), piece.bytes);
}

// Finds the markers in a serialized model, and what they change: the lengths of all messages around them.
class SerializedModel::Splicer {
 public:
  explicit Splicer(SerializedModel& to) : to_(to), bytes_(reinterpret_cast<const uint8_t*>(to.message_.data())) {}

  // By how many bytes the model grows.
  int64_t Run() {
    const int end = static_cast<int>(to_.message_.size());
    CodedInputStream input(bytes_, end);
    // As deep as it was read: the default does not suffice for unknown fields of a plan from anyone.
    input.SetRecursionLimit(3 * ModelLimits().nesting + 32);
    return Message(input, MessageKind::kModel, end);
  }

 private:
  // The input is protobuf's own output, whose depth and lengths are right.
  int64_t Message(CodedInputStream& input, MessageKind kind, int end) {
    if (kind == MessageKind::kTensor) return TensorMessage(input, end);
    int64_t growth = 0;
    while (input.CurrentPosition() < end) {
      const uint32_t tag = input.ReadTag();
      const bool sized = WireFormatLite::GetTagWireType(tag) == WireFormatLite::WIRETYPE_LENGTH_DELIMITED;
      const MessageKind child =
          sized ? ChildKind(kind, static_cast<uint64_t>(WireFormatLite::GetTagFieldNumber(tag))) : MessageKind::kOther;
      if (child == MessageKind::kOther) {
        GRADLOOM_CHECK(tag != 0 && WireFormatLite::SkipField(&input, tag));
        continue;
      }
      const int at = input.CurrentPosition();
      uint32_t length = 0;
      GRADLOOM_CHECK(input.ReadVarint32(&length));
      const int content = input.CurrentPosition();
      const size_t splice = to_.splices_.size();
      to_.splices_.push_back({.at = static_cast<size_t>(at), .skipped = static_cast<size_t>(content - at), .inserted = {}});
      const int64_t more = Message(input, child, content + static_cast<int>(length));
      if (more == 0) {
        to_.splices_.resize(splice);  // nothing has changed within
        continue;
      }
      std::string& inserted = to_.splices_[splice].inserted;
      inserted = VarintOf(static_cast<uint64_t>(length + more));
      growth += more + static_cast<int64_t>(inserted.size()) - (content - at);
    }
    return growth;
  }

  // Puts the elements where protobuf writes raw data: before fields with larger numbers, of which the marker is the last.
  int64_t TensorMessage(CodedInputStream& input, int end) {
    int place = -1;
    int64_t growth = 0;
    while (input.CurrentPosition() < end) {
      const int at = input.CurrentPosition();
      const uint32_t tag = input.ReadTag();
      const auto field = static_cast<uint64_t>(WireFormatLite::GetTagFieldNumber(tag));
      if (place < 0 && field > kRawDataField) place = at;
      uint64_t index = 0;
      if (field != kMovedField || WireFormatLite::GetTagWireType(tag) != WireFormatLite::WIRETYPE_VARINT) {
        GRADLOOM_CHECK(tag != 0 && WireFormatLite::SkipField(&input, tag));
        continue;
      }
      GRADLOOM_CHECK(input.ReadVarint64(&index) && index < static_cast<uint64_t>(to_.elements_.count()));
      const auto elements = static_cast<int64_t>(index);
      const int64_t bytes = to_.elements_.bytes(elements);
      std::string inserted =
          VarintOf(kRawDataField << 3 | WireFormatLite::WIRETYPE_LENGTH_DELIMITED) + VarintOf(static_cast<uint64_t>(bytes));
      const int marker = input.CurrentPosition() - at;
      growth += static_cast<int64_t>(inserted.size()) + bytes - marker;
      to_.splices_.push_back({.at = static_cast<size_t>(place), .inserted = std::move(inserted), .elements = elements});
      to_.splices_.push_back({.at = static_cast<size_t>(at), .skipped = static_cast<size_t>(marker), .inserted = {}});
    }
    return growth;
  }

  SerializedModel& to_;
  const uint8_t* const bytes_;
};

SerializedModel::SerializedModel(const onnx::ModelProto& model, const SeparateElements& elements)
    : elements_(elements), bytes_(static_cast<int64_t>(model.ByteSizeLong())) {
  if (bytes_ > INT_MAX) return;
  model.SerializeToString(&message_);
  bytes_ += Splicer(*this).Run();
}

void SerializedModel::Write(const TakeBytes& write) const {
  std::string buffer;
  const auto flush = [&] {
    if (!buffer.empty()) write(buffer.data(), static_cast<int64_t>(buffer.size()));
    buffer.clear();
  };
  const auto add = [&](const void* data, int64_t bytes) {
    if (buffer.size() + static_cast<size_t>(bytes) > kBufferBytes) flush();
    if (static_cast<size_t>(bytes) > kBufferBytes) return write(data, bytes);
    buffer.append(static_cast<const char*>(data), static_cast<size_t>(bytes));
  };
  size_t at = 0;
  for (const Splice& splice : splices_) {
    add(message_.data() + at, static_cast<int64_t>(splice.at - at));
    add(splice.inserted.data(), static_cast<int64_t>(splice.inserted.size()));
    if (splice.elements >= 0) elements_.Write(splice.elements, add);
    at = splice.at + splice.skipped;
  }
  add(message_.data() + at, static_cast<int64_t>(message_.size() - at));
  flush();
}

}  // namespace gradloom
