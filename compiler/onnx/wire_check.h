// What can be told of a file's bytes before protobuf sees them. Private to this room.
#pragma once

#include <string>
#include <string_view>

#include "compiler/onnx/import.h"

namespace gradloom {

// Throws Error(kParse) for bytes that are no ModelProto: other kinds of file (with a hint), broken or cut-off
// fields anywhere in graphs, nodes and attributes, graphs nested deeper than limits.nesting; Error(kLimit) for more
// nodes than limits.nodes. Takes no memory that grows with what the bytes claim, and does not recurse.
void CheckWire(std::string_view bytes, const std::string& where, const ModelLimits& limits);

// The same for ONNX's text syntax: only nesting is looked at.
void CheckText(std::string_view text, const std::string& where, const ModelLimits& limits);

}  // namespace gradloom
