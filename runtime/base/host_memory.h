// The main memory that this process may take.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/base/control_group.h"

namespace gradloom {

// The main memory of the machine, in bytes.
struct MachineMemory {
  int64_t available = -1;  // without swapping; -1: not known
  int64_t swap = 0;        // free swap space
};

// As the system describes it in the folder `proc`: what a cache of ZFS (ARC) gives back is available, as is other file cache.
MachineMemory MemoryOfMachine(const std::string& proc = "/proc");

// How many bytes fit into this memory and its swap space, of which a process of the group may use what the group's limits leave; INT64_MAX
// if nothing is known.
int64_t BytesWithSwap(const MachineMemory& machine, const GroupLimits& group);

// Bytes of main memory that this process can fill now: what the machine has available without swapping, but no more than the limits of the
// process (ulimit -v and -d) and of its control group leave.
int64_t FreeHostBytes();

// Whether RequireHostMemory accepts so many bytes.
bool HasHostMemory(int64_t bytes);

// Throws Error(kResource) with the needed and the free bytes if `bytes` more bytes fit neither into what is free, less a small reserve, nor
// into the swap space that its group may use. For memory whose size a file or an option decides, before it is taken: the system promises
// memory that it does not have, and kills a process that then writes to it. Sizes that take no longer to fill than this question takes are
// not looked at. `what`: the subject of the message, for example "the array 'x'". `help`: what to do besides using a machine with more
// memory.
void RequireHostMemory(int64_t bytes, const std::string& what, const std::string& where, const std::string& help);

}  // namespace gradloom
