// The program that replays recorded trainings, for whoever links it.
#pragma once

namespace gradloom {

// As main: what its words are stands in replay_cases.cc.
int ReplayCases(int argc, char** argv);

}  // namespace gradloom
