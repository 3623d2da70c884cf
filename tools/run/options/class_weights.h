// Class weights that depend on the training data: by the names of its classes, or balanced.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "compiler/passes/recipe.h"
#include "runtime/data/training_data.h"
#include "runtime/plan/loss_info.h"
#include "tools/config/configuration.h"

namespace gradloom {

// Whether the value of the option class_weight is "balanced" or "NAME=WEIGHT:NAME=WEIGHT", and not a list of numbers. Throws Error(kConfig)
// for a name without a weight.
bool AreWeightsByData(const std::string& value);

// Sets the class weights of the losses that depend on data. `classes`: those of the losses' targets. `notes` gets a line for each target
// whose classes have weights. Throws Error(kConfig) for a name that is not a class, a class without a weight and, for balanced weights, a
// class without rows or labels that are not in memory.
void WeighClasses(const Configuration& configuration, const TrainingData& data, const std::map<std::string, ClassRange>& classes,
                  Recipe& recipe, std::vector<std::string>& notes);

// The same for a trained model, with the weights of its plan.
void WeighClassesAsTrained(const Configuration& configuration, std::span<const LossInfo> trained, Recipe& recipe);

// Throws Error(kConfig) if class weights depend on data, which a caller does not have.
void RefuseWeightsByData(const Configuration& configuration);

}  // namespace gradloom
