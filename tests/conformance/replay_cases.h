// The program that replays recorded training runs, as a library.
#pragma once

namespace gradloom {

// Like main. The arguments are described in replay_cases.cc.
int ReplayCases(int argc, char** argv);

}  // namespace gradloom
