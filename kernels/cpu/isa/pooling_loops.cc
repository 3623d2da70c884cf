// Windows whose points are rows of contiguous elements.
#include "kernels/cpu/isa/tables.h"
#include "kernels/cpu/isa/vector.h"

namespace gradloom::GRADLOOM_ISA {
namespace {

GRADLOOM_INLINE IntVector LoadInts(const int* p) {
  IntVector v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}
GRADLOOM_INLINE void StoreInts(int* p, IntVector v) { __builtin_memcpy(p, &v, sizeof v); }

// NaN counts as larger than any number, and not larger than another NaN. Per lane: -1 or 0.
GRADLOOM_INLINE IntVector Larger(Vector x, Vector than) { return (x > than) | ((x != x) & (than == than)); }
GRADLOOM_INLINE bool Larger(float x, float than) { return x > than || (x != x && than == than); }

}  // namespace

void Largest(const PoolArgs& args, float* value) {
  const float* const first = args.x + args.points[0] * args.stride;
  Index i = 0;
  for (; i + kLanes <= args.n; i += kLanes) {
    Vector best = Load(first + i);
    for (Index t = 1; t < args.taps; ++t) {
      const Vector x = Load(args.x + args.points[t] * args.stride + i);
      best = Larger(x, best) ? x : best;
    }
    Store(value + i, best);
  }
  for (; i < args.n; ++i) {
    float best = first[i];
    for (Index t = 1; t < args.taps; ++t) {
      const float x = args.x[args.points[t] * args.stride + i];
      best = Larger(x, best) ? x : best;
    }
    value[i] = best;
  }
}

void ArgMax(const PoolArgs& args, int* index) {
  const float* const first = args.x + args.points[0] * args.stride;
  Index i = 0;
  for (; i + kLanes <= args.n; i += kLanes) {
    Vector best = Load(first + i);
    IntVector at = {};
    for (Index t = 1; t < args.taps; ++t) {
      const Vector x = Load(args.x + args.points[t] * args.stride + i);
      const IntVector larger = Larger(x, best);
      best = larger ? x : best;
      at = larger ? IntVector{} + static_cast<int>(t) : at;
    }
    StoreInts(index + i, at);
  }
  for (; i < args.n; ++i) {
    float best = first[i];
    index[i] = 0;
    for (Index t = 1; t < args.taps; ++t) {
      const float x = args.x[args.points[t] * args.stride + i];
      if (!Larger(x, best)) continue;
      best = x;
      index[i] = static_cast<int>(t);
    }
  }
}

void SelectByIndex(const int* index, const int* own, int first, const float* g, Index n, float* to) {
  Index i = 0;
  for (; i + kLanes <= n; i += kLanes) Store(to + i, LoadInts(index + i) == LoadInts(own + i) + first ? Load(g + i) : Vector{});
  for (; i < n; ++i) to[i] = index[i] == own[i] + first ? g[i] : 0.0f;
}

void AddSelected(const int* index, int own, const float* g, Index n, float* to) {
  Index i = 0;
  for (; i + kLanes <= n; i += kLanes) Store(to + i, Load(to + i) + (LoadInts(index + i) == own ? Load(g + i) : Vector{}));
  for (; i < n; ++i) to[i] += index[i] == own ? g[i] : 0.0f;
}

void RepeatGroups(const float* from, Index from_step, Index width, Index groups, Index times, float* to) {
  Index g = 0;
  if (width <= kLanes) {
    // Stores whole vectors: the next group overwrites the excess. The last groups have none after them.
    for (; (groups - 1 - g) * from_step + width >= kLanes && (groups - g) * times * width >= times * width + kLanes; ++g) {
      const Vector group = Load(from + g * from_step);
      for (Index t = 0; t < times; ++t, to += width) Store(to, group);
    }
  }
  for (; g < groups; ++g) {
    for (Index t = 0; t < times; ++t, to += width) {
      for (Index i = 0; i < width; ++i) to[i] = from[g * from_step + i];
    }
  }
}

}  // namespace gradloom::GRADLOOM_ISA
