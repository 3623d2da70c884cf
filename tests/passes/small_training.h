// Small models trained for a few steps, to compare plans of one model with each other.
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

// ONNX text without its header.
Model ModelOf(const std::string& graph);

// An initializer of ONNX text: uniform in [-spread, spread].
std::string Weights(std::mt19937& random, const std::string& name, const Shape& shape, float spread = 0.7F);

Tensor Random(std::mt19937& random, Shape shape);
Tensor Classes(std::mt19937& random, int64_t count, int64_t classes);

using Batch = std::map<std::string, Tensor>;
Feeds Views(const Batch& batch);

// Adam, with gradients and outputs fetched.
CompileOptions OptionsFor(std::vector<LossTerm> losses, int devices, const std::vector<int64_t>& batches);

// Instructions of this operator, over all programs. Devices with equal shares run one program.
int64_t Count(const Plan& plan, const std::string& op);

// What training on the batches in order gives: losses, all fetches of each step, the state after the last. Checks that devices which
// hold a state have the same bits of it. `chaos`: seed of random delays; 0: none.
std::map<std::string, Tensor> Train(const Model& model, const CompileOptions& options, const std::vector<Batch>& batches,
                                    uint64_t chaos = 0);

// Checks each tensor, relative to its largest element.
void ExpectNear(const std::map<std::string, Tensor>& want, const std::map<std::string, Tensor>& got, double tolerance);
void ExpectSameBits(const std::map<std::string, Tensor>& want, const std::map<std::string, Tensor>& got);

// A pass changes no number: training by SGD (Adam would turn the rounding of a gradient that is nearly 0 into a step) to the classes
// `target` of output `z` gives the same with it and without, on one device and on two. `look` is shown the options of one device, with the
// pass; `disabled`: other passes that are left out.
void ExpectSameWithout(const std::string& pass, const Model& model, const std::vector<Batch>& batches, double tolerance,
                       const std::function<void(const CompileOptions&)>& look, const std::vector<std::string>& disabled = {});

// One device and several give the same, on batches of these sizes, and several give the same bits again, whatever the timing.
void ExpectDivides(const std::string& graph, const std::vector<LossTerm>& losses, const std::vector<int64_t>& sizes,
                   const std::function<Batch(std::mt19937&, int64_t)>& make, const std::function<void(CompileOptions&)>& change = {});

}  // namespace gradloom
