#include "runtime/session/entry_match.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "runtime/base/counted.h"
#include "runtime/base/error.h"
#include "runtime/base/joined.h"
#include "runtime/plan/sample_axes.h"

namespace gradloom {
namespace {

// The shapes that a feed may have.
std::string TakenShapes(const Feed& feed, int64_t batch) {
  const Shape by_samples = BySamples(feed, batch).shape;
  return feed.shape.ToString() + (by_samples == feed.shape ? "" : " or " + by_samples.ToString());
}

// The feed in the form in which a tensor of this shape gives it: by samples if its rank says so.
Feed FormOf(const Feed& want, int64_t batch, const Shape& given) {
  if (given.rank() == want.shape.rank()) return want;
  Feed by_samples = BySamples(want, batch);
  return by_samples.shape.rank() == given.rank() ? by_samples : want;
}

bool Fits(const Feed& want, int64_t batch, const Feeds& feeds) {
  const auto found = feeds.find(want.name);
  if (found == feeds.end() || found->second.dtype != want.dtype) return false;
  const Shape& given = found->second.shape;
  return given == want.shape || (given.rank() > want.shape.rank() && given == BySamples(want, batch).shape);
}

bool Fits(const Entry& entry, const Feeds& feeds) {
  return std::all_of(entry.feeds.begin(), entry.feeds.end(), [&](const Feed& want) { return Fits(want, entry.batch, feeds); });
}

std::string ShapeMismatch(const Feed& want, int64_t batch, const Shape& shape) {
  return "'" + Escaped(want.name) + "' is " + shape.ToString() + ", but the plan expects " + TakenShapes(want, batch);
}

// Whether the shapes differ along an axis other than that of the samples. They have the same rank.
bool RowsDiffer(const Feed& want, const Shape& shape) {
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (axis != want.batch_axis && shape[axis] != want.shape[axis]) return true;
  }
  return false;
}

// Two feeds that need the same number of samples and have different ones; otherwise "".
std::string UnequalSamples(const Entry& entry, const Feeds& feeds) {
  std::optional<Feed> first;
  for (const Feed& stated : entry.feeds) {
    if (stated.batch_axis < 0) continue;
    const Shape& given = feeds.find(stated.name)->second.shape;
    const Feed want = FormOf(stated, entry.batch, given);
    // Its axes may be in another order.
    if (want.shape != stated.shape && RowsDiffer(want, given)) continue;
    if (!first) first = want;
    const int64_t samples = given[want.batch_axis];
    const int64_t others = feeds.find(first->name)->second.shape[first->batch_axis];
    if (samples == others || want.shape[want.batch_axis] != first->shape[first->batch_axis]) continue;
    return "'" + Escaped(first->name) + "' has " + Counted(others, "sample") + ", but '" + Escaped(want.name) + "' has " +
           std::to_string(samples);
  }
  return "";
}

// The shape of a feed that is given in this shape, by samples or not. Of another number of samples, or of rows of another shape, too.
std::optional<Shape> OwnShape(const Feed& want, int64_t batch, const Shape& given) {
  const Feed form = FormOf(want, batch, given);
  if (given.rank() != form.shape.rank()) return std::nullopt;
  const int divided = form.shape.rank() - want.shape.rank() + 1;  // axes that are one axis of the feed
  Shape shape = want.shape;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    const int first = axis <= want.batch_axis ? axis : axis + divided - 1;
    const int last = axis == want.batch_axis ? first + divided : first + 1;
    const std::optional<int64_t> extent = Shape(std::vector<int64_t>(given.begin() + first, given.begin() + last)).checked_elements();
    if (!extent) return std::nullopt;
    shape[axis] = *extent;
  }
  return shape;
}

}  // namespace

std::string ShapesOf(const Entry& entry) {
  return JoinedTexts(entry.feeds, [&](const Feed& feed) {
    return Escaped(feed.name) + " " + std::string(DTypeName(feed.dtype)) + TakenShapes(feed, entry.batch);
  });
}

int FittingEntry(const Plan& plan, EntryKind kind, const Feeds& feeds) {
  for (size_t i = 0; i < plan.entries.size(); ++i) {
    if (plan.entries[i].kind == kind && Fits(plan.entries[i], feeds)) return static_cast<int>(i);
  }
  return -1;
}

TensorView Bound(const Feed& feed, const Feeds& feeds) {
  TensorView view = feeds.find(feed.name)->second;
  view.shape = feed.shape;
  return view;
}

// What no entry would take comes before extents, which other entries may have.
std::string Mismatch(const Entry& entry, const Feeds& feeds) {
  for (const Feed& want : entry.feeds) {
    const auto found = feeds.find(want.name);
    if (found == feeds.end()) return "'" + Escaped(want.name) + "' is missing";
    if (found->second.dtype != want.dtype) {
      return "'" + Escaped(want.name) + "' is " + std::string(DTypeName(found->second.dtype)) + ", but the model expects " +
             std::string(DTypeName(want.dtype));
    }
    const Shape& given = found->second.shape;
    if (given.rank() != FormOf(want, entry.batch, given).shape.rank()) return ShapeMismatch(want, entry.batch, given);
  }
  if (const std::string why = UnequalSamples(entry, feeds); !why.empty()) return why;
  std::string why;
  for (const Feed& want : entry.feeds) {
    const Shape& shape = feeds.find(want.name)->second.shape;
    if (Fits(want, entry.batch, feeds)) continue;
    if (RowsDiffer(FormOf(want, entry.batch, shape), shape)) return ShapeMismatch(want, entry.batch, shape);
    if (why.empty()) why = ShapeMismatch(want, entry.batch, shape);
  }
  return why;
}

int64_t CountFitting(const Entry& entry, const Feeds& feeds) {
  return std::count_if(entry.feeds.begin(), entry.feeds.end(), [&](const Feed& want) { return Fits(want, entry.batch, feeds); });
}

FeedShapes ShapesToAdd(const Plan& plan, EntryKind kind, const Feeds& feeds) {
  FeedShapes shapes;
  for (const Entry& entry : plan.entries) {
    if (entry.kind != kind) continue;
    for (const Feed& want : entry.feeds) {
      const auto found = feeds.find(want.name);
      if (found == feeds.end() || found->second.dtype != want.dtype) return {};
      const std::optional<Shape> own = OwnShape(want, entry.batch, found->second.shape);
      if (!own) return {};
      // No entry is compiled for a batch without samples.
      if (own->elements() == 0 && want.shape.elements() > 0) return {};
      shapes.emplace(want.name, *own);
    }
    break;
  }
  // An entry of these shapes has samples in another order.
  const bool known = std::any_of(plan.entries.begin(), plan.entries.end(), [&](const Entry& entry) {
    return entry.kind == kind && std::all_of(entry.feeds.begin(), entry.feeds.end(), [&](const Feed& want) {
             const auto own = shapes.find(want.name);
             return own != shapes.end() && own->second == want.shape;
           });
  });
  return known ? FeedShapes() : shapes;
}

}  // namespace gradloom
