// A team of threads with known work, for team_balance_test.py: in each of 10 regions thread i of 8 computes for i milliseconds, and between
// the regions the first thread does for 5.
#include <omp.h>
#include <time.h>

namespace {

double Now() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

void Compute(double seconds) {
  for (const double end = Now() + seconds; Now() < end;) {
  }
}

}  // namespace

int main() {
  for (int run = 0; run < 10; ++run) {
#pragma omp parallel num_threads(8)
    Compute(omp_get_thread_num() * 1e-3);
    Compute(5e-3);
  }
}
