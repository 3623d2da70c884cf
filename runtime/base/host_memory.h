// The main memory that this process may take.
#pragma once

#include <cstdint>
#include <string>

namespace gradloom {

// Bytes of main memory that this process can fill now: what the machine has available without swapping, but no more than the limits of the
// process (ulimit -v and -d) and of its control group leave.
int64_t FreeHostBytes();

// Throws Error(kResource) with the needed and the free bytes if `bytes` more bytes fit neither into what is free, less a small reserve, nor
// into the machine's swap space. For memory whose size a file or an option decides, before it is taken: the system promises memory that it
// does not have, and kills a process that then writes to it. Sizes that take no longer to fill than this question takes are not looked at.
// `what`: the subject of the message, for example "the array 'x'". `help`: what to do besides using a machine with more memory.
void RequireHostMemory(int64_t bytes, const std::string& what, const std::string& where, const std::string& help);

}  // namespace gradloom
