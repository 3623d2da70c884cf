#include "tests/bench/workload.h"

int main(int argc, char** argv) { return gradloom::RunWorkload(argc, argv); }
