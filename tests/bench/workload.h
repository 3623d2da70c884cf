// The program that trains one benchmark workload, as a library.
#pragma once

namespace gradloom {

// Like main. The arguments are described in workload.cc.
int RunWorkload(int argc, char** argv);

}  // namespace gradloom
