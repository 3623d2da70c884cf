// The program that trains one benchmark workload, for whoever links it.
#pragma once

namespace gradloom {

// As main: what its words are stands in workload.cc.
int RunWorkload(int argc, char** argv);

}  // namespace gradloom
