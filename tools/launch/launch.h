// `gradloom launch`: runs the processes of a job on this host, and restarts them if permitted.
#pragma once

#include <functional>
#include <string>

#include "tools/launch/launch_options.h"

namespace gradloom {

// Starts the processes, passes signals on, and reports failures. `this_program`: the command is a verb of gradloom. `json`: prints one line
// on stdout at the end. Returns 0 if all processes ended with 0, otherwise the exit code of the process that failed first. Throws Error if
// the processes cannot be started.
int Launch(const LaunchOptions& options, bool this_program, bool json);

}  // namespace gradloom
