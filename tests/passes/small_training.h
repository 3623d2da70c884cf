// Small models that are trained for a few steps, to compare different plans of one model.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "compiler/compile.h"
#include "runtime/session/session.h"

namespace gradloom {

// A model from ONNX text without the header.
Model ModelOf(const std::string& graph);

// An initializer in ONNX text, uniform in [-spread, spread].
std::string Weights(std::mt19937& random, const std::string& name, const Shape& shape, float spread = 0.7F);

Tensor Random(std::mt19937& random, Shape shape);
Tensor Classes(std::mt19937& random, int64_t count, int64_t classes);

using Batch = std::map<std::string, Tensor>;
Feeds Views(const Batch& batch);

// Adam, with gradients and outputs as fetches.
CompileOptions OptionsFor(std::vector<LossTerm> losses, int devices, const std::vector<int64_t>& batches);

// The number of instructions of this operator in all programs. Devices with equal shares run the same program.
int64_t Count(const Plan& plan, const std::string& op);

// Trains on the batches in order and returns the losses, all fetches of each step, and the final state except copies of parameters. Checks
// that all devices that hold a state have the same bits of it, and that copies are the rounded parameters. `chaos` is the seed of random
// delays; 0 means none.
std::map<std::string, Tensor> Train(const Model& model, const CompileOptions& options, const std::vector<Batch>& batches,
                                    uint64_t chaos = 0);

// Compares each tensor, with the tolerance relative to its largest element.
void ExpectNear(const std::map<std::string, Tensor>& want, const std::map<std::string, Tensor>& got, double tolerance);
void ExpectSameBits(const std::map<std::string, Tensor>& want, const std::map<std::string, Tensor>& got);

// Checks that a pass does not change results: training with SGD (Adam would turn the rounding error of a nearly zero gradient into a full
// step) on the classes `target` of output `z` is the same with the pass and without it, on one device and on two. `look` receives the
// options for one device with the pass enabled. The passes in `disabled` are left out in both.
void ExpectSameWithout(const std::string& pass, const Model& model, const std::vector<Batch>& batches, double tolerance,
                       const std::function<void(const CompileOptions&)>& look, const std::vector<std::string>& disabled = {});

// Checks that one device and several give the same results on batches of these sizes, and that several give the same bits with any timing.
void ExpectDivides(const std::string& graph, const std::vector<LossTerm>& losses, const std::vector<int64_t>& sizes,
                   const std::function<Batch(std::mt19937&, int64_t)>& make, const std::function<void(CompileOptions&)>& change = {});

}  // namespace gradloom
