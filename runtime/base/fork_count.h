// Whether this process is a child of the one that loaded the library.
#pragma once

namespace gradloom {

// How many forks lie between the process that loaded this code and this one.
int ForkCount();

// Whether the calling thread is the one that a fork has left in a child: what it had of other threads, such as an OpenMP team, is gone.
bool IsLeftByFork();

}  // namespace gradloom
