#include "runtime/base/free_memory.h"

#include <malloc.h>

namespace gradloom {

void ReturnFreeMemory() { malloc_trim(0); }

}  // namespace gradloom
