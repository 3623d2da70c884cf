// Where the samples of a plan's feeds and fetches lie.
#pragma once

#include <map>
#include <string>

#include "runtime/plan/plan.h"

namespace gradloom {

// The axes of the samples of feeds that do not have them along the first axis, by name.
inline std::map<std::string, int> FeedAxes(const Plan& plan) {
  std::map<std::string, int> axes;
  for (const Entry& entry : plan.entries) {
    for (const Feed& feed : entry.feeds) {
      if (feed.batch_axis > 0) axes.emplace(feed.name, feed.batch_axis);
    }
  }
  return axes;
}

// The same of fetches.
inline std::map<std::string, int> FetchAxes(const Plan& plan) {
  std::map<std::string, int> axes;
  for (const Entry& entry : plan.entries) {
    for (const Fetch& fetch : entry.fetches) {
      if (fetch.batch_axis > 0) axes.emplace(fetch.name, fetch.batch_axis);
    }
  }
  return axes;
}

}  // namespace gradloom
