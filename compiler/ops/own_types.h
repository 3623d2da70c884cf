// Checks of operands for the type rules of our own operators, with messages that name the node.
#pragma once

#include <string>
#include <vector>

#include "compiler/graph/graph.h"

namespace gradloom {

// Whether the node has input i.
inline bool HasInput(const Node& node, int i) {
  return i < static_cast<int>(node.inputs.size()) && node.inputs[static_cast<size_t>(i)] != kNoValue;
}

// The type of input i. Throws Error(kArity) if it is absent.
ValueType InputType(const Graph& graph, const Node& node, int i);

// Throws Error(kArity) if the node has fewer than `least` or more than `most` inputs, or more outputs than `outputs`.
void ExpectArity(const Node& node, int least, int most, int outputs);

// Throws Error(kType or kShape) if input i does not have this type.
void ExpectInput(const Graph& graph, const Node& node, int i, const ValueType& type);

// Throws Error(kType) if input i is not floating point.
void ExpectFloating(const Graph& graph, const Node& node, int i);

// Throws Error(kShape) if input i has another rank.
void ExpectRank(const Graph& graph, const Node& node, int i, int rank);

// Throws if inputs i and i + 1 (seed and batch number), or i + 2 if present (the first of a device's samples), are not int64[].
void ExpectSeeds(const Graph& graph, const Node& node, int i);

// Throws Error(kValue) if the attribute `ratio`, the share that dropout leaves out, is not in [0, 1).
void ExpectRatio(const Node& node);

// One result of the type of input 0.
std::vector<ValueType> InferLikeFirst(const Graph& graph, const Node& node);

// The same, for an operator that has only this input.
std::vector<ValueType> InferCopy(const Graph& graph, const Node& node);

// One result: the dtype of input `i` and the attribute "shape".
template <int i>
std::vector<ValueType> InferFromShapeAttribute(const Graph& graph, const Node& node) {
  return {{InputType(graph, node, i).dtype, Shape(node.attributes.Ints("shape"))}};
}

// The first node.outputs.size() types; further ones are dropped.
std::vector<ValueType> OutputTypes(const Node& node, std::vector<ValueType> types);

}  // namespace gradloom
