// The half of the C table that needs the compiler.
#pragma once

#include "include/gradloom/gradloom_c.h"

namespace gradloom::api {

// In place of the functions that say that there is none.
void AddModels(GradloomApi& api);
void AddCompile(GradloomApi& api);
void AddDevices(GradloomApi& api);
void AddExport(GradloomApi& api);

}  // namespace gradloom::api
