// Changes to the fields of a protobuf message, which reach further than changes to its bytes.
#pragma once

#include <google/protobuf/message.h>

#include <cstdint>

namespace gradloom {

// One to three fields, anywhere within the message: another number, a text from elsewhere in it, an element more, one fewer, two exchanged.
void MutateMessage(google::protobuf::Message& message, uint64_t seed);

}  // namespace gradloom
