// The C table has two halves: the functions that need no compiler, and those that do. A library contains one definition of
// `GradloomGetApi`, which combines them: the full library (tools/api) or the runtime alone (runtime_library.cc). Neither half registers
// itself.
#pragma once

#include "include/gradloom/gradloom_c.h"

namespace gradloom::api {

// All functions. Those that need the compiler fail with E-UNSUPPORTED.
GradloomApi RuntimeTable();

// One function for each file.
void AddStatus(GradloomApi& api);
void AddPlans(GradloomApi& api);
void AddSessions(GradloomApi& api);
void AddSteps(GradloomApi& api);
void AddLearningRates(GradloomApi& api);
void AddParameters(GradloomApi& api);
void AddLocations(GradloomApi& api);
void AddCheckpoints(GradloomApi& api);
void AddDatasets(GradloomApi& api);
void AddFit(GradloomApi& api);
void AddDLPack(GradloomApi& api);
void AddSharing(GradloomApi& api);
void AddNoCompiler(GradloomApi& api);

}  // namespace gradloom::api
