#include "kernels/reference/dynamic.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>

#include "kernels/reference/operands.h"
#include "runtime/base/error.h"

namespace gradloom {
namespace {

// The distinct slices along an axis, or the distinct elements of the flattened tensor.
std::vector<Tensor> Unique(const KernelCall& call, std::span<const Tensor> inputs) {
  const Tensor& x = inputs[0];
  const bool flat = !call.attributes.has("axis"), sorted = call.attributes.Int("sorted", 1) != 0;
  const int axis = flat ? 0 : AxisOf(call, call.attributes.Int("axis", 0), x.shape().rank());
  const Shape shape = flat ? Shape{x.elements()} : x.shape();
  const int64_t n = shape[axis], inner = Product(shape, axis + 1, shape.rank()), outer = Product(shape, 0, axis);
  const TensorView view{x.dtype(), shape, x.data()};
  // Slices are compared lexicographically. NaN counts as the largest and as equal to itself, which makes this a strict weak ordering.
  const auto compare = [&](int64_t a, int64_t b) {
    for (int64_t o = 0; o < outer; ++o) {
      for (int64_t i = 0; i < inner; ++i) {
        const int64_t at = (o * n + a) * inner + i, other = (o * n + b) * inner + i;
        if (IsInteger(view.dtype)) {
          const int64_t p = ElementAsInt(view, at), q = ElementAsInt(view, other);
          const bool unsigned_64 = view.dtype == DType::kUint64;
          if (p != q) return (unsigned_64 ? static_cast<uint64_t>(p) < static_cast<uint64_t>(q) : p < q) ? -1 : 1;
          continue;
        }
        const double p = ElementAsDouble(view, at), q = ElementAsDouble(view, other);
        if (p < q || (p == p && q != q)) return -1;
        if (p > q || (p != p && q == q)) return 1;
      }
    }
    return 0;
  };
  std::vector<int64_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return compare(a, b) < 0; });
  // Groups of equal slices; each group starts with its first slice in the tensor.
  std::vector<int64_t> first, count, group(static_cast<size_t>(n));
  for (int64_t at : order) {
    if (first.empty() || compare(first.back(), at) != 0) {
      first.push_back(at);
      count.push_back(0);
    }
    ++count.back();
    group[static_cast<size_t>(at)] = static_cast<int64_t>(first.size()) - 1;
  }
  std::vector<int64_t> group_order(first.size());
  std::iota(group_order.begin(), group_order.end(), 0);
  if (!sorted)
    std::sort(group_order.begin(), group_order.end(),
              [&](int64_t a, int64_t b) { return first[static_cast<size_t>(a)] < first[static_cast<size_t>(b)]; });
  Shape made = shape;
  made[axis] = static_cast<int64_t>(first.size());
  Tensor values(x.dtype(), made);
  const int64_t bytes = inner * DTypeBytes(x.dtype());
  std::vector<int64_t> firsts, counts, new_place(first.size());
  for (size_t k = 0; k < group_order.size(); ++k) {
    const auto from = static_cast<size_t>(group_order[k]);
    new_place[from] = static_cast<int64_t>(k);
    firsts.push_back(first[from]);
    counts.push_back(count[from]);
    for (int64_t o = 0; o < outer; ++o) {
      std::memcpy(static_cast<char*>(values.data()) + (o * made[axis] + static_cast<int64_t>(k)) * bytes,
                  static_cast<const char*>(x.data()) + (o * n + first[from]) * bytes, static_cast<size_t>(bytes));
    }
  }
  std::vector<int64_t> inverse;
  for (int64_t g : group) inverse.push_back(new_place[static_cast<size_t>(g)]);
  const auto vector = [](const std::vector<int64_t>& list) { return Tensor::From(list, Shape{static_cast<int64_t>(list.size())}); };
  return {values, vector(firsts), vector(inverse), vector(counts)};
}

// The corners of a box.
struct Box {
  double y0, x0, y1, x1;

  double area() const { return (y1 - y0) * (x1 - x0); }

  static Box Of(const double* p, bool centered) {
    if (centered) return {p[1] - p[3] / 2.0, p[0] - p[2] / 2.0, p[1] + p[3] / 2.0, p[0] + p[2] / 2.0};
    return {std::min(p[0], p[2]), std::min(p[1], p[3]), std::max(p[0], p[2]), std::max(p[1], p[3])};
  }
};

double Overlap(const Box& a, const Box& b) {
  const double height = std::min(a.y1, b.y1) - std::max(a.y0, b.y0), width = std::min(a.x1, b.x1) - std::max(a.x0, b.x0);
  if (height <= 0 || width <= 0) return 0;
  const double common = height * width, all = a.area() + b.area() - common;
  return all > 0 ? common / all : 0;
}

// (boxes [batch, n, 4], scores [batch, classes, n], most, overlap, score): for each class, selects boxes by descending score that do not
// overlap a selected one.
std::vector<Tensor> NonMaxSuppression(const KernelCall& call, std::span<const Tensor> inputs) {
  const Tensor &boxes = inputs[0], &scores = inputs[1];
  const auto number = [&](size_t i, double absent) {
    return i < inputs.size() && inputs[i].defined() && inputs[i].elements() > 0 ? ElementAsDouble(inputs[i].view(), 0) : absent;
  };
  const bool fits = boxes.shape().rank() == 3 && scores.shape().rank() == 3 && boxes.shape()[2] == 4 &&
                    boxes.shape()[0] == scores.shape()[0] && boxes.shape()[1] == scores.shape()[2];
  if (!fits) throw Error(ErrorCode::kShape, call.op + ": boxes " + boxes.shape().ToString() + " and scores " + scores.shape().ToString());
  const double max_outputs = number(2, 0), iou_threshold = number(3, 0);
  const bool has_score_threshold = inputs.size() > 4 && inputs[4].defined() && inputs[4].elements() > 0;
  const double score_threshold = number(4, 0);
  const bool centered = call.attributes.Int("center_point_box", 0) != 0;
  const int64_t n = scores.shape()[2], classes = scores.shape()[1];
  const Tensor exact_boxes = Converted(boxes.view(), DType::kFloat64), exact_scores = Converted(scores.view(), DType::kFloat64);
  const double *box = exact_boxes.as<double>().data(), *score = exact_scores.as<double>().data();
  std::vector<int64_t> chosen;
  for (int64_t row = 0; row < scores.shape()[0] * classes; ++row) {
    const int64_t b = row / classes;
    std::vector<int64_t> order;
    for (int64_t i = 0; i < n; ++i) {
      if (!has_score_threshold || score[row * n + i] > score_threshold) order.push_back(i);
    }
    // NaN comes last, which makes this a strict weak ordering.
    std::stable_sort(order.begin(), order.end(), [&](int64_t p, int64_t q) {
      const double a = score[row * n + p], b = score[row * n + q];
      return a > b || (a == a && b != b);
    });
    std::vector<Box> kept;
    for (int64_t i : order) {
      if (static_cast<double>(kept.size()) >= max_outputs) break;
      const Box candidate = Box::Of(box + (b * n + i) * 4, centered);
      if (std::any_of(kept.begin(), kept.end(), [&](const Box& other) { return Overlap(candidate, other) > iou_threshold; })) continue;
      kept.push_back(candidate);
      chosen.insert(chosen.end(), {b, row % classes, i});
    }
  }
  return {Tensor::From(chosen, Shape{static_cast<int64_t>(chosen.size()) / 3, 3})};
}

}  // namespace

DynamicFunction FindDynamic(std::string_view domain, std::string_view op) {
  if (!domain.empty()) return nullptr;
  if (op == "Unique") return Unique;
  if (op == "NonMaxSuppression") return NonMaxSuppression;
  return nullptr;
}

}  // namespace gradloom
