// A graph as text, for dumps between passes and golden tests.
#pragma once

#include <string>

#include "compiler/graph/graph.h"

namespace gradloom {

// One line per input, datum and node:
//
//   graph mlp
//   input x float32[4,5]
//   param w float32[5,2]
//   const two float32[] = 2
//   h float32[4,2] = MatMul(x, w)
//   w' float32[5,2] next_of w = gradloom.Sgd(w, g, lr) {momentum=0.9} update
//   output h
//
// Nodes show their phase (unless forward) and, once set, device and stream. Constants of up to eight elements are shown.
std::string ToText(const Graph& graph);

}  // namespace gradloom
