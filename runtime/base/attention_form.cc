#include "runtime/base/attention_form.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>
#include <vector>

#include "runtime/base/checked.h"
#include "runtime/base/error.h"

namespace gradloom {
namespace {

constexpr std::string_view kAxes = "BHTE";  // of the shapes of Q, K, V and Y

bool OrdersAxes(const std::string& order, std::string_view axes) {
  return order.size() == axes.size() && order.back() == 'E' && std::is_permutation(order.begin(), order.end(), axes.begin());
}

int64_t ExtentAlong(char axis, const std::vector<int64_t>& shape) { return shape[kAxes.find(axis)]; }

// Returns a shape of four positive extents with at most `limit` elements, or an empty vector.
std::vector<int64_t> ShapeOf(const Attributes& attributes, const char* name, int64_t limit) {
  const std::vector<int64_t> shape = attributes.Ints(name);
  if (shape.size() != kAxes.size()) return {};
  std::optional<int64_t> elements = 1;
  for (int64_t extent : shape) {
    if (extent < 1) return {};
    elements = CheckedMul(*elements, extent);
    if (!elements || *elements > limit) return {};
  }
  return shape;
}

// Returns the vectors of a tensor whose axes have this order in memory. Along P, `row` elements follow each other, and those of the tensor
// start at `first`.
AttentionVectors VectorsOf(const std::string& order, const std::vector<int64_t>& shape, int64_t row, int64_t first) {
  AttentionVectors vectors;
  vectors.heads = shape[1];
  vectors.length = shape[2];
  vectors.size = shape[3];
  vectors.first = first;
  int64_t step = 1;
  for (auto axis = order.rbegin(); axis != order.rend(); ++axis) {
    if (*axis == 'B') vectors.sample_stride = step;
    if (*axis == 'H') vectors.head_stride = step;
    if (*axis == 'T') vectors.stride = step;
    step = *axis == 'P' ? row : step * ExtentAlong(*axis, shape);
  }
  return vectors;
}

}  // namespace

AttentionVectors::AttentionVectors(const Shape& shape, int64_t head_count) {
  if (shape.rank() == 3) {
    heads = head_count;
    length = shape[1];
    size = shape[2] / head_count;
    head_stride = size;
    stride = shape[2];
  } else {
    heads = shape[1];
    length = shape[2];
    size = shape[3];
    head_stride = length * size;
    stride = size;
  }
  sample_stride = heads * length * size;
}

AttentionForm::AttentionForm(const Attributes& a, const Shape& q_shape, const Shape& k_shape, const Shape& v_shape) {
  if (PackingOf(a) != Packing::kNone) {
    std::string why;
    const std::optional<AttentionForm> form = Packed(a, q_shape.elements(), k_shape.elements(), &why);
    if (!form) throw Error(ErrorCode::kPlan, why);
    *this = *form;
    return;
  }
  batch = q_shape[0];
  q = AttentionVectors(q_shape, a.Int("q_num_heads", 0));
  k = AttentionVectors(k_shape, a.Int("kv_num_heads", 0));
  v = AttentionVectors(v_shape, a.Int("kv_num_heads", 0));
  y = AttentionVectors(q_shape.rank() == 3 ? Shape{batch, q.length, q.heads * v.size} : Shape{batch, q.heads, q.length, v.size}, q.heads);
}

int64_t AttentionForm::WindowOf(const Attributes& attributes, const char* side) {
  constexpr int64_t kAnyLength = int64_t{1} << 40;
  const int64_t size = attributes.Int(std::string(side) + "_window_size", -1);
  return size >= 0 && size < kAnyLength ? size : -1;
}

std::optional<AttentionForm> AttentionForm::Packed(const Attributes& attributes, int64_t elements_0, int64_t elements_1, std::string* why) {
  const auto no = [&](std::string reason) {
    if (why != nullptr) *why = std::move(reason);
    return std::nullopt;
  };
  const Packing packing = PackingOf(attributes);
  const bool own_q = packing == Packing::kKeysAndValues;
  const std::string order = attributes.String("packed", ""), y_order = attributes.String("y_order", "");
  const std::string q_order = attributes.String("q_order", "");
  if (!OrdersAxes(order, "BHTEP")) return no("attribute 'packed' is not an order of the axes B, H, T, P and E that ends with E");
  if (!OrdersAxes(y_order, kAxes)) return no("attribute 'y_order' is not an order of the axes B, H, T and E that ends with E");
  if (own_q && !OrdersAxes(q_order, kAxes)) return no("attribute 'q_order' is not an order of the axes B, H, T and E that ends with E");
  std::array<std::vector<int64_t>, 3> shapes;
  for (size_t i = 0; i < shapes.size(); ++i) {
    constexpr std::array<const char*, 3> kNames = {"q_shape", "k_shape", "v_shape"};
    shapes[i] = ShapeOf(attributes, kNames[i], own_q && i > 0 ? elements_1 : elements_0);
    if (shapes[i].empty()) return no("attribute '" + std::string(kNames[i]) + "' is not a part of the packed operand");
  }
  const std::vector<int64_t>&q = shapes[0], &k = shapes[1], &v = shapes[2];
  if (k[0] != q[0] || v[0] != q[0] || q[1] % k[1] != 0 || v[1] != k[1] || v[2] != k[2] || k[3] != q[3])
    return no("the shapes of Q, K and V do not fit");
  // The parts of the packed operand, from the first one on.
  const size_t first = own_q ? 1 : 0;
  std::array<int64_t, 3> widths{1, 1, 1};
  int64_t rows = 1;
  bool inner = false;
  for (const char axis : order) {
    for (size_t i = first; i < shapes.size() && inner; ++i) widths[i] *= ExtentAlong(axis, shapes[i]);
    if (axis == 'P') inner = true;
    if (inner) continue;
    rows *= ExtentAlong(axis, k);
    for (size_t i = first; i < shapes.size(); ++i) {
      if (ExtentAlong(axis, shapes[i]) != ExtentAlong(axis, k))
        return no("Q, K and V have different extents along an axis outside of the parts");
    }
  }
  std::array<int64_t, 3> firsts{};
  int64_t row = 0;
  for (size_t i = first; i < shapes.size(); ++i) {
    firsts[i] = row;
    row += widths[i];
  }
  if (CheckedMul(rows, row) != (own_q ? elements_1 : elements_0)) return no("Q, K and V do not fill the packed operand");
  const int64_t queries = q[0] * q[1] * q[2];
  if (own_q && queries * q[3] != elements_0) return no("attribute 'q_shape' is not the shape of Q");
  const std::optional<int64_t> y_elements = CheckedMul(queries, v[3]);
  if (!y_elements) return no("Y is too large");
  AttentionForm form;
  form.packing = packing;
  form.batch = q[0];
  form.q = own_q ? VectorsOf(q_order, q, 0, 0) : VectorsOf(order, q, row, firsts[0]);
  form.k = VectorsOf(order, k, row, firsts[1]);
  form.v = VectorsOf(order, v, row, firsts[2]);
  form.y = VectorsOf(y_order, {q[0], q[1], q[2], v[3]}, 0, 0);
  form.y_order_ = y_order;
  return form;
}

Shape AttentionForm::y_shape() const {
  std::vector<int64_t> extents;
  for (const char axis : y_order_) extents.push_back(ExtentAlong(axis, {batch, y.heads, y.length, y.size}));
  return Shape(extents);
}

}  // namespace gradloom
