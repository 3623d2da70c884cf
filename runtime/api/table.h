// The C table in two halves: what needs no compiler, and what does. A library is one of `GradloomGetApi`, which puts them together: the
// full one (tools/api) or the runtime alone (runtime_library.cc). No half registers itself.
#pragma once

#include "include/gradloom/gradloom_c.h"

namespace gradloom::api {

// All functions; those that need the compiler answer E-UNSUPPORTED.
GradloomApi RuntimeTable();

// By file.
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
