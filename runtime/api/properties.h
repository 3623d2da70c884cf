// The data that a checkpoint stores for a session of the C table besides its state: the caller's properties, and the table's own counters.
#pragma once

#include "runtime/api/handles.h"

namespace gradloom::api {

void LoadProperties(const Manifest& manifest, GradloomSession& session);
void SaveProperties(const GradloomSession& session, Manifest& manifest);

}  // namespace gradloom::api
