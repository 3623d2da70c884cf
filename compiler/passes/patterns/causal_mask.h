// Recognizes masks of attention that hide later keys, alone or together with other keys.
#pragma once

#include <optional>
#include <vector>

#include "compiler/graph/builder.h"
#include "compiler/passes/graph_match.h"
#include "compiler/passes/known_values.h"

namespace gradloom {

// A mask of scores [batch, heads, queries, keys], to which it broadcasts: numbers that are added to them, or a condition that selects those
// that are replaced by a number.
struct ScoreMask {
  ValueId added = kNoValue;
  ValueId condition = kNoValue;
  bool shows = true;  // the condition is true for visible keys
  double hidden = 0;  // the number
};

// A condition that holds for every visible key, or does not (`holds` false). Its elements are reshaped to `shape`, which broadcasts to the
// scores.
struct KeyCondition {
  ValueId value = kNoValue;
  bool holds = true;
  Shape shape;
};

// Masks that are equivalent to a sequence of masks. The scores of hidden keys need not be the same, only their probabilities, which are 0.
struct MaskParts {
  bool causal = false;                // is_causal
  std::optional<ScoreMask> mask;      // one of the given masks
  std::vector<KeyCondition> visible;  // conditions, all of which hold for a key that is not hidden by minus infinity; with `mask`: none
};

// Whether a number that is added to scores, or replaces them, hides their keys.
bool HidesKeys(double number);

class CausalMasks {
 public:
  // All must outlive this object.
  CausalMasks(const GraphBuilder& builder, const GraphMatch& match, const KnownValues& known) : b_(builder), match_(match), known_(known) {}

  // Divides masks that are applied to the scores one after the other. Returns nullopt if no single mask is left besides is_causal.
  //
  // A query of which every key is hidden by finite numbers attends to all of them, later keys as well. So later keys that a finite number
  // hides count as hidden only if it is known that each query sees a key.
  std::optional<MaskParts> Divide(const std::vector<ScoreMask>& masks, const Shape& scores) const;

  // Whether the condition, whose last axis is the keys, is known and shows at least one key to each query.
  bool EachQuerySeesAKey(ValueId condition, bool shows) const;

 private:
  struct Effect;
  struct Place;

  Effect EffectOf(const ScoreMask& mask, const Shape& scores) const;
  // `budget`: how many more nodes may be followed; it becomes less. What lies beyond is unknown.
  Effect EffectOfAdded(ValueId id, const Place& place, const Shape& scores, int& budget) const;
  Effect EffectOfSum(const Node& sum, const Place& place, const Shape& scores, int& budget) const;
  Effect EffectOfConditions(const std::vector<KeyCondition>& all, const Shape& scores) const;
  void AddConditions(ValueId id, bool holds, Place place, int& budget, std::vector<KeyCondition>& all) const;
  bool PassMove(ValueId& id, Place& place) const;
  double Magnitude(ValueId id) const;
  double Magnitude(ValueId id, int& budget) const;

  const GraphBuilder& b_;
  const GraphMatch& match_;
  const KnownValues& known_;
};

}  // namespace gradloom
