// Allocates physical memory before its first use.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gradloom {

// Makes the system allocate the pages of a range that this process may write; the content is kept. One call takes up to half the time of a
// fault at each page. This is advice only: if the system cannot do it, pages are allocated when first touched. Any number of threads may
// call it at once, and write there meanwhile.
void PopulatePages(void* begin, int64_t bytes);

}  // namespace gradloom
