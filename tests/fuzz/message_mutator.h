// Mutates the fields of a protobuf message, which reaches deeper than mutating its bytes.
#pragma once

#include <google/protobuf/message.h>

#include <cstdint>

namespace gradloom {

// Changes one to three fields anywhere in the message: sets another number, copies a text from elsewhere in the message, adds, removes or
// swaps elements.
void MutateMessage(google::protobuf::Message& message, uint64_t seed);

}  // namespace gradloom
