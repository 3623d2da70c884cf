// The part of the C table that needs the compiler.
#pragma once

#include "include/gradloom/gradloom_c.h"

namespace gradloom::api {

// These replace the functions that report a missing compiler.
void AddModels(GradloomApi& api);
void AddCompile(GradloomApi& api);
void AddDevices(GradloomApi& api);
void AddExport(GradloomApi& api);

}  // namespace gradloom::api
