// What a checkpoint keeps of a session of the C table besides its state: the caller's properties, and the table's own counts.
#pragma once

#include "runtime/api/handles.h"

namespace gradloom::api {

void TakeProperties(const Manifest& manifest, GradloomSession& session);
void PutProperties(const GradloomSession& session, Manifest& manifest);

}  // namespace gradloom::api
