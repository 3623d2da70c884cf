#include "tests/conformance/replay_cases.h"

int main(int argc, char** argv) { return gradloom::ReplayCases(argc, argv); }
