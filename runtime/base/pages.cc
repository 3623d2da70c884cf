#include "runtime/base/pages.h"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23  // Linux 5.14; the C library's headers may be older
#endif

namespace gradloom {

void PopulatePages(void* begin, int64_t bytes) {
  if (bytes <= 0) return;
  static const intptr_t page = sysconf(_SC_PAGESIZE);
  const intptr_t first = reinterpret_cast<intptr_t>(begin) / page * page;
  const intptr_t end = reinterpret_cast<intptr_t>(begin) + bytes;
  const auto length = static_cast<size_t>((end - first + page - 1) / page * page);
  int failed = 0;
  do {
    failed = madvise(reinterpret_cast<void*>(first), length, MADV_POPULATE_WRITE) == 0 ? 0 : errno;
  } while (failed == EINTR || failed == EAGAIN);
  // Any other failure, for example a lack of memory, surfaces when the memory is written.
  if (failed != EINVAL) return;
  // The kernel is older. Writing right away avoids mapping the zero page first, which a read would do. The content does not change,
  // whichever thread writes.
  for (intptr_t at = first; at < end; at += page)
    std::atomic_ref(*reinterpret_cast<unsigned char*>(at)).fetch_or(0, std::memory_order_relaxed);
}

}  // namespace gradloom
