// Models whose large tensors are written without ever being in protobuf's messages, where all of them would be in memory at once: in the
// messages, and again as the bytes of the file. Private to compiler/onnx.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "onnx/onnx_pb.h"
#include "runtime/base/tensor.h"

namespace gradloom {

// Receives bytes in order.
using TakeBytes = std::function<void(const void* data, int64_t bytes)>;

// The elements of tensors of a model, whose messages have a marker instead (MarkMoved). The markers stay with messages that are moved,
// copied or removed.
class SeparateElements {
 public:
  // Tensors with fewer bytes stay in their messages.
  static constexpr int64_t kMinBytes = 1024;

  // Returns the elements of a tensor. Called each time that they are written, so that they need not be in memory in between.
  using Read = std::function<Tensor()>;

  // Gives a message the tensor that `read` returns, of this type and shape: separately if it is large, and otherwise as SetTensor does.
  void Set(const TensorView& type, Read read, onnx::TensorProto* tensor);

  // Moves the raw data of a message here, without a copy, if it is large.
  void Take(onnx::TensorProto* tensor);

  // The index of a message's elements, in the order in which they were added; -1: they are in the message.
  int64_t IndexOf(const onnx::TensorProto& tensor) const;

  int64_t count() const { return std::ssize(pieces_); }
  int64_t bytes(int64_t index) const { return pieces_[static_cast<size_t>(index)].bytes; }
  void Write(int64_t index, const TakeBytes& write) const;

 private:
  struct Piece {
    int64_t bytes = 0;
    Read read;                          // unless it is
    std::unique_ptr<std::string> data;  // of a message
  };
  void Add(Piece piece, onnx::TensorProto* tensor);

  std::vector<Piece> pieces_;
};

// The serialized form of a model with separate elements: the bytes that protobuf writes if each element is in its message.
class SerializedModel {
 public:
  // `elements` is borrowed.
  SerializedModel(const onnx::ModelProto& model, const SeparateElements& elements);

  // The number of bytes. If it is more than INT_MAX, which is protobuf's limit, Write must not be called.
  int64_t bytes() const { return bytes_; }
  // Throws what reading the elements and `write` throw.
  void Write(const TakeBytes& write) const;

 private:
  class Splicer;
  // A place of message_ where `skipped` bytes are replaced by others: `inserted`, then the elements with this index, unless it is -1.
  struct Splice {
    size_t at = 0, skipped = 0;
    std::string inserted;
    int64_t elements = -1;
  };

  const SeparateElements& elements_;
  std::string message_;          // with the markers
  std::vector<Splice> splices_;  // ascending
  int64_t bytes_ = 0;
};

}  // namespace gradloom
