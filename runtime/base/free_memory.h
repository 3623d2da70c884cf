// Memory that a program has freed.
#pragma once

namespace gradloom {

// Gives the system the memory back that the C library keeps for later allocations, as far as whole pages are free. For when much has been
// freed, such as a model.
void ReturnFreeMemory();

}  // namespace gradloom
