// What the search for a file's batch size needs to know about nodes and constants. Private to compiler/onnx.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <vector>

#include "compiler/onnx/emitter.h"

namespace gradloom {

// Whether the node has one of these ONNX operators.
bool IsOneOf(const Node& node, std::initializer_list<const char*> ops);

// Whether the node draws one random number for each element of its result.
bool IsDraw(const Node& node);

// Returns a short list of integers that is computed from constants, even if those include a floating-point constant that might be trained.
std::vector<int64_t> NumbersOf(Emitter& emitter, ValueId id);

// Returns the axis of operand i that an axis of the node's output comes from, for an output of this rank; -1: unknown; nullopt: it comes
// from another operand.
std::optional<int> SourceAxis(const Graph& graph, const Node& node, size_t i, int out_rank, int axis);

// Whether the data repeats bitwise along the axis with this period.
bool RepeatsAlong(const Tensor& data, int axis, int64_t period);
// The data with another extent along the axis: position i is that of position i modulo the old extent.
Tensor RepeatedAlong(const Tensor& data, int axis, int64_t extent);

// A table over pairs of samples for another batch size, if each element depends only on which of the two samples comes first, or whether
// they are the same (masks of the diagonal or of a triangle). Along each axis there may be several batches one after the other, or several
// positions of each sample; the element then depends on these, too. nullopt if it is no such table, or with fewer than three samples, where
// every table is one.
std::optional<Tensor> GrownTable(const Tensor& data, const std::vector<int>& axes, int64_t declared, int64_t batch);

// An error about a file that only fits the batch size `declared`.
Error BatchRefusal(int64_t declared, const std::string& where, const std::string& why);
// Whether it is one.
bool IsBatchRefusal(const Error& error);

}  // namespace gradloom
