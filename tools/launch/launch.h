// `gradloom launch`: the processes of a job on this host, again where they may be started again.
#pragma once

#include <functional>
#include <string>

#include "tools/launch/launch_options.h"

namespace gradloom {

// Starts them, passes signals on, shows why they failed. `this_program`: the command is one of gradloom itself. `json`: one line on stdout
// at the end. The exit code: 0 where all ended with 0, else that of the process that failed first. Throws Error for what keeps them from
// being started.
int Launch(const LaunchOptions& options, bool this_program, bool json);

}  // namespace gradloom
