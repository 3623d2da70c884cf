// Whether this process is a child of the one that loaded the library.
#pragma once

namespace gradloom {

// How many forks lie between the process that loaded this code and this one.
int ForkCount();

}  // namespace gradloom
