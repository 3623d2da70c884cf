#include <algorithm>
#include <limits>

#include "runtime/comm/communicator.h"

namespace gradloom {
namespace {

constexpr double kMinSeconds = 1;
constexpr double kMinShare = 0.1;

}  // namespace

std::optional<Straggler> FindStraggler(const std::vector<double>& waited_seconds, double seconds) {
  if (waited_seconds.size() < 2 || seconds < kMinSeconds) return std::nullopt;
  const auto least = std::min_element(waited_seconds.begin(), waited_seconds.end());
  double next = std::numeric_limits<double>::infinity();
  for (auto i = waited_seconds.begin(); i != waited_seconds.end(); ++i) next = i == least ? next : std::min(next, *i);
  const double share = (next - *least) / seconds;
  if (share < kMinShare) return std::nullopt;
  return Straggler{static_cast<int>(least - waited_seconds.begin()), std::min(share, 1.0)};
}

}  // namespace gradloom
