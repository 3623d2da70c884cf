// Where the samples of a plan's feeds and fetches lie.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "runtime/plan/plan.h"

namespace gradloom {

// The shape of a tensor by samples, and the axis of the samples in it. If an axis has several positions of each sample (Feed::batch_inner),
// it is divided into [outer], samples, [inner], without those of extent 1: the labels [8 * 128] of 8 texts are [8, 128], or [128, 8] with
// the samples along axis 1 if a model has them inside. The elements keep their order. Other shapes stay as they are.
inline std::pair<Shape, int> ShapeBySamples(const Shape& shape, int axis, int64_t inner, int64_t samples) {
  const bool several = axis >= 0 && axis < shape.rank() && inner > 0 && shape[axis] != samples;
  if (!several || !SamplesIn(shape, axis, inner, samples)) return {shape, axis};
  const int64_t outer = shape[axis] / (samples * inner);
  std::vector<int64_t> dims(shape.begin(), shape.begin() + axis);
  if (outer > 1) dims.push_back(outer);
  const auto at = static_cast<int>(dims.size());
  dims.push_back(samples);
  if (inner > 1) dims.push_back(inner);
  dims.insert(dims.end(), shape.begin() + axis + 1, shape.end());
  return {Shape(dims), at};
}

// Feeds as data has them for a batch of `batch` samples: by samples.
inline Feed BySamples(Feed feed, int64_t batch) {
  const auto [shape, axis] = ShapeBySamples(feed.shape, feed.batch_axis, feed.batch_inner, batch);
  if (shape.rank() == feed.shape.rank()) return feed;
  feed.shape = shape;
  feed.batch_axis = axis;
  feed.batch_inner = 1;
  return feed;
}
inline std::vector<Feed> BySamples(std::vector<Feed> feeds, int64_t batch) {
  for (Feed& feed : feeds) feed = BySamples(std::move(feed), batch);
  return feeds;
}

// The axes of the samples of feeds that, by samples, do not have them along the first axis, by name.
inline std::map<std::string, int> FeedAxes(const Plan& plan) {
  std::map<std::string, int> axes;
  for (const Entry& entry : plan.entries) {
    for (const Feed& feed : entry.feeds) {
      if (const int axis = BySamples(feed, entry.batch).batch_axis; axis > 0) axes.emplace(feed.name, axis);
    }
  }
  return axes;
}

// The same of fetches, in their own shapes.
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
