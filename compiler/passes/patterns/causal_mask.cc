#include "compiler/passes/patterns/causal_mask.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace gradloom {
namespace {

// Adding a finite number below this to a score yields that number, and hides the key if any other score is not hidden. Scores themselves,
// and numbers up to kSmall that are added to them, are far above.
constexpr double kHiddenScore = -1e30, kSmall = 1e29;
constexpr double kInfinity = std::numeric_limits<double>::infinity();
// Limit on the nodes that are followed from one mask: a graph may share operands so often that following all paths takes exponential time.
constexpr int kMaxFollowed = 64;

// What a known mask [..., queries, keys] does to the keys of its queries.
struct KnownEffect {
  bool hides_later = false;
  bool by_infinity = false;  // all later keys
  bool only_later = false;   // and changes no other score
};

// `number(i)`: what is added to the score of element i.
template <typename Number>
KnownEffect KnownEffectOf(const Shape& shape, const Shape& scores, const Number& number) {
  const int rank = shape.rank();
  const int64_t queries = scores[2], keys = scores[3];
  if (queries != keys || keys == 0 || rank < 2 || shape[rank - 2] != queries || shape[rank - 1] != keys) return {};
  KnownEffect effect{.hides_later = true, .by_infinity = true, .only_later = true};
  bool each_sees = true;
  for (int64_t row = 0; row < shape.elements() / keys; ++row) {
    bool sees = false;
    for (int64_t key = 0; key < keys; ++key) {
      const double m = number(row * keys + key);
      if (key > row % queries) {
        effect.hides_later = effect.hides_later && HidesKeys(m);
        effect.by_infinity = effect.by_infinity && m == -kInfinity;
      } else {
        effect.only_later = effect.only_later && m == 0;
        sees = sees || std::fabs(m) <= kSmall;
      }
    }
    each_sees = each_sees && sees;
  }
  effect.hides_later = effect.hides_later && (effect.by_infinity || each_sees);
  return effect;
}

bool HidesByAFiniteNumber(const ScoreMask& mask) { return mask.condition != kNoValue && std::isfinite(mask.hidden); }

}  // namespace

bool HidesKeys(double number) { return number <= kHiddenScore; }

// What a mask does, as far as it is known.
struct CausalMasks::Effect {
  bool hides_later = false;
  bool by_infinity = false;    // if hides_later: by minus infinity
  bool is_conditions = false;  // keys for which `visible` does not hold, or later ones if hides_later, are hidden, and nothing else changes
  std::vector<KeyCondition> visible;
  bool stripped = false;  // whether `visible` or `rest` are less than the mask
  ScoreMask rest;         // if not is_conditions: what remains beside is_causal
};

// Where the elements of a value are in a mask that is made from it by moves and broadcasts.
struct CausalMasks::Place {
  std::vector<int> axes;  // for each axis of the mask: that of the value; -1: the value does not depend on it

  explicit Place(const Shape& mask) {
    for (int axis = 0; axis < mask.rank(); ++axis) axes.push_back(axis);
  }
  // The place of an operand that is broadcast to the value.
  Place OfOperand(const Shape& operand, const Shape& value) const {
    Place place = *this;
    for (int& axis : place.axes) axis = std::max(axis - (value.rank() - operand.rank()), -1);
    return place;
  }
  // The extents of a value in the mask.
  Shape Of(const Shape& value) const {
    Shape shape;
    for (int axis : axes) shape.push_back(axis < 0 ? 1 : value[axis]);
    return shape;
  }
};

// Passes from the result of a node that moves or broadcasts elements without changing their order to its operand.
bool CausalMasks::PassMove(ValueId& id, Place& place) const {
  for (const char* op : {"Expand", "Unsqueeze", "Squeeze", "Reshape"}) {
    const Node* const node = match_.ProducedBy(id, op);
    if (node == nullptr) continue;
    const Shape result = b_.shape(match_.Plain(id)), operand = b_.shape(node->inputs[0]);
    if (op[0] == 'E') {
      place = place.OfOperand(operand, result);
    } else {
      if (result.Squeezed() != operand.Squeezed()) return false;
      // Axes whose extents are not 1 follow each other in both shapes.
      std::vector<int> from(static_cast<size_t>(result.rank()), -1);
      for (int axis = 0, at = 0; axis < result.rank(); ++axis) {
        if (result[axis] == 1) continue;
        while (operand[at] == 1) ++at;
        from[static_cast<size_t>(axis)] = at++;
      }
      for (int& axis : place.axes) axis = axis < 0 ? axis : from[static_cast<size_t>(axis)];
    }
    id = node->inputs[0];
    return true;
  }
  return false;
}

// Adds the conditions that together say whether a value is `holds`.
void CausalMasks::AddConditions(ValueId id, bool holds, Place place, int& budget, std::vector<KeyCondition>& all) const {
  while (PassMove(id, place)) {
  }
  id = match_.Plain(id);
  if (--budget >= 0) {
    if (const Node* const node = match_.ProducedBy(id, "Not")) return AddConditions(node->inputs[0], !holds, place, budget, all);
    if (const Node* const node = match_.ProducedBy(id, holds ? "And" : "Or")) {
      for (ValueId input : node->inputs) AddConditions(input, holds, place.OfOperand(b_.shape(input), b_.shape(id)), budget, all);
      return;
    }
  }
  all.push_back({id, holds, place.Of(b_.shape(id))});
}

// The effect of conditions for keys that are visible; others are hidden by minus infinity.
CausalMasks::Effect CausalMasks::EffectOfConditions(const std::vector<KeyCondition>& all, const Shape& scores) const {
  Effect effect{.by_infinity = true, .is_conditions = true};
  for (const KeyCondition& each : all) {
    const Tensor* const known = known_.Of(each.value);
    KnownEffect of;
    if (known != nullptr) {
      const TensorView view = known->view();
      of = KnownEffectOf(each.shape, scores, [&](int64_t i) { return (ElementAsDouble(view, i) != 0) == each.holds ? 0 : -kInfinity; });
    }
    effect.hides_later = effect.hides_later || of.hides_later;
    if (of.hides_later && of.only_later) {
      effect.stripped = true;
    } else {
      effect.visible.push_back(each);
    }
  }
  return effect;
}

CausalMasks::Effect CausalMasks::EffectOf(const ScoreMask& mask, const Shape& scores) const {
  Effect effect;
  int budget = kMaxFollowed;
  if (mask.added != kNoValue) {
    effect = EffectOfAdded(mask.added, Place(b_.shape(mask.added)), scores, budget);
  } else {
    std::vector<KeyCondition> all;
    AddConditions(mask.condition, mask.shows, Place(b_.shape(mask.condition)), budget, all);
    effect = EffectOfConditions(all, scores);
    if (HidesByAFiniteNumber(mask)) {
      effect.by_infinity = false;
      effect.hides_later = effect.hides_later && EachQuerySeesAKey(mask.condition, mask.shows);
      effect.is_conditions = effect.hides_later && effect.visible.empty();
    }
  }
  if (!effect.is_conditions && effect.rest.added == kNoValue) effect.rest = mask;
  return effect;
}

CausalMasks::Effect CausalMasks::EffectOfAdded(ValueId id, const Place& place, const Shape& scores, int& budget) const {
  if (--budget < 0) return {};
  if (const Tensor* const known = known_.Of(id)) {
    const TensorView view = known->view();
    const KnownEffect of = KnownEffectOf(place.Of(b_.shape(id)), scores, [&](int64_t i) { return ElementAsDouble(view, i); });
    const bool all = of.hides_later && of.only_later;
    return {.hides_later = of.hides_later, .by_infinity = of.by_infinity, .is_conditions = all, .stripped = all};
  }
  ValueId moved = id;
  Place moved_place = place;
  if (PassMove(moved, moved_place)) {
    // A part of a sum would have to be moved as well.
    Effect effect = EffectOfAdded(moved, moved_place, scores, budget);
    effect.rest = {};
    return effect;
  }
  if (const Node* const sum = match_.ProducedBy(id, "Add")) return EffectOfSum(*sum, place, scores, budget);
  const Node* const where = match_.ProducedBy(id, "Where");
  if (where == nullptr) return {};
  for (size_t shown : {size_t{1}, size_t{2}}) {
    if (known_.Uniform(where->inputs[3 - shown]) != -kInfinity) continue;
    std::vector<KeyCondition> all;
    const ValueId condition = where->inputs[0];
    AddConditions(condition, shown == 1, place.OfOperand(b_.shape(condition), b_.shape(match_.Plain(id))), budget, all);
    Effect effect = EffectOfConditions(all, scores);
    effect.is_conditions = known_.Uniform(where->inputs[shown]) == 0.0;
    return effect;
  }
  return {};
}

CausalMasks::Effect CausalMasks::EffectOfSum(const Node& sum, const Place& place, const Shape& scores, int& budget) const {
  const Shape shape = b_.shape(sum.outputs[0]);
  std::vector<Effect> effects;
  for (ValueId input : sum.inputs) effects.push_back(EffectOfAdded(input, place.OfOperand(b_.shape(input), shape), scores, budget));
  for (size_t i : {size_t{0}, size_t{1}}) {
    const ValueId other = sum.inputs[1 - i];
    if (!effects[i].hides_later || (!effects[i].by_infinity && !(Magnitude(other) <= kSmall))) continue;
    Effect effect{.hides_later = true, .by_infinity = effects[i].by_infinity};
    if (effects[0].is_conditions && effects[1].is_conditions && effects[0].by_infinity && effects[1].by_infinity) {
      effect = effects[0];
      effect.hides_later = true;
      effect.visible.insert(effect.visible.end(), effects[1].visible.begin(), effects[1].visible.end());
      effect.stripped = effects[0].stripped || effects[1].stripped;
    } else if (effects[i].is_conditions && effects[i].visible.empty()) {
      const Shape of = b_.shape(other);
      if (of.rank() > 0 && of[of.rank() - 1] == scores[3]) effect.rest.added = other;
    }
    return effect;
  }
  return {};
}

// A bound on the elements of a value; infinite if none is known.
double CausalMasks::Magnitude(ValueId id) const {
  int budget = kMaxFollowed;
  return Magnitude(id, budget);
}

double CausalMasks::Magnitude(ValueId id, int& budget) const {
  if (--budget < 0) return kInfinity;
  if (const Tensor* const known = known_.Of(id)) {
    double most = 0;
    for (int64_t i = 0; i < known->elements(); ++i) {
      const double element = std::fabs(ElementAsDouble(known->view(), i));
      most = std::isnan(element) ? kInfinity : std::max(most, element);
    }
    return most;
  }
  if (match_.Producer(id) < 0) return kInfinity;
  const auto of = [&](ValueId operand) { return Magnitude(operand, budget); };
  for (const char* op : {"Identity", "Expand", "Unsqueeze", "Squeeze", "Reshape", "Slice", "Neg"}) {
    if (const Node* const node = match_.ProducedBy(id, op)) return of(node->inputs[0]);
  }
  if (const Node* const node = match_.ProducedBy(id, "Cast")) return b_.dtype(node->inputs[0]) == DType::kBool ? 1 : of(node->inputs[0]);
  if (const Node* const node = match_.ProducedBy(id, "Where")) return std::max(of(node->inputs[1]), of(node->inputs[2]));
  for (const char* op : {"Add", "Sub"}) {
    if (const Node* const node = match_.ProducedBy(id, op)) return of(node->inputs[0]) + of(node->inputs[1]);
  }
  if (const Node* const node = match_.ProducedBy(id, "Mul")) {
    const double a = of(node->inputs[0]), b = of(node->inputs[1]);
    return std::isinf(a) || std::isinf(b) ? kInfinity : a * b;
  }
  return kInfinity;
}

bool CausalMasks::EachQuerySeesAKey(ValueId condition, bool shows) const {
  const Tensor* const known = known_.Of(condition);
  if (known == nullptr) return false;
  const auto elements = known->as<bool>();
  const auto keys = known->shape()[known->shape().rank() - 1];
  for (auto row = elements.begin(); row != elements.end(); row += keys) {
    if (std::find(row, row + keys, shows) == row + keys) return false;
  }
  return true;
}

std::optional<MaskParts> CausalMasks::Divide(const std::vector<ScoreMask>& masks, const Shape& scores) const {
  MaskParts parts;
  const bool several = masks.size() > 1;
  std::vector<Effect> effects;
  for (const ScoreMask& mask : masks) {
    // If every key of a query is hidden by a finite number, the scores are that number and have no gradient; adding the number would give
    // them one. Beside another mask, keys that only this one shows may be hidden, too.
    if (HidesByAFiniteNumber(mask) && !EachQuerySeesAKey(mask.condition, mask.shows)) return std::nullopt;
    effects.push_back(EffectOf(mask, scores));
  }
  for (size_t i = 0; i < masks.size() && !parts.causal; ++i) {
    bool hides = effects[i].hides_later;
    for (size_t j = 0; j < masks.size() && hides; ++j) {
      if (j == i) continue;
      // What is minus infinity stays so if numbers are added. What is finite stays the lowest if the numbers are small.
      hides = !HidesByAFiniteNumber(masks[j]) &&
              (effects[i].by_infinity || (masks[j].added != kNoValue && Magnitude(masks[j].added) <= kSmall));
    }
    parts.causal = hides;
  }
  if (!parts.causal) {
    if (several) return std::nullopt;
    if (!masks.empty()) parts.mask = masks[0];
    return parts;
  }
  for (size_t i = 0; i < masks.size(); ++i) {
    const Effect& effect = effects[i];
    if (effect.is_conditions && (several || effect.stripped)) {
      parts.visible.insert(parts.visible.end(), effect.visible.begin(), effect.visible.end());
    } else if (std::exchange(parts.mask, effect.is_conditions ? masks[i] : effect.rest)) {
      return std::nullopt;
    }
  }
  if (parts.visible.empty()) return parts;
  // Kernels hide keys beyond the last axis of a mask.
  int64_t keys = 1;
  for (const KeyCondition& each : parts.visible) keys = std::max(keys, each.shape[each.shape.rank() - 1]);
  if (!parts.mask && keys == scores[3]) return parts;
  if (several) return std::nullopt;
  parts.visible.clear();
  parts.mask = masks[0];
  return parts;
}

}  // namespace gradloom
