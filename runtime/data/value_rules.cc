#include "runtime/data/value_rules.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/base/error.h"
#include "runtime/base/number_text.h"

namespace gradloom {
namespace {

// Numbers that were computed as probabilities may be off by their rounding.
constexpr double kRounding = 1e-4;

std::string RangeText(const ValueDomain& domain) {
  if (std::isinf(domain.highest)) return NumberText(domain.lowest) + " or more";
  return "between " + NumberText(domain.lowest) + " and " + NumberText(domain.highest);
}

std::string HelpForDomain(const ValueDomain& domain) {
  if (domain.loss == "hinge" || domain.loss == "soft_margin")
    return "write the two classes as -1 and 1, or use bce_with_logits, whose targets are 0 and 1";
  if (domain.loss == "poisson_nll") return "its targets are counts; for other numbers use mse or l1";
  return "for numbers of any size use mse or l1; for classes cross_entropy; for shares of a known total --transform 'TARGET=scale 1/TOTAL'";
}

std::string RowText(int64_t row) { return row < 0 ? "a row" : "row " + std::to_string(row) + " (counted from 0)"; }

int64_t RowAt(const TensorView& rows, int64_t element) { return element * rows.shape[0] / std::max<int64_t>(rows.elements(), 1); }

}  // namespace

std::optional<ValueDomain> DomainOf(const LossInfo& loss) {
  const std::string& type = loss.type;
  const bool of_probabilities = (type == "cross_entropy" || type == "cross_entropy_of_probabilities") && !loss.classes;
  if (type == "bce" || type == "bce_with_logits" || type == "sigmoid_focal" || type == "kl_div" || of_probabilities)
    return ValueDomain{.loss = type};
  if (type == "hinge" || type == "soft_margin") return ValueDomain{.loss = type, .lowest = -1, .highest = 1, .doubts_zero = true};
  if (type == "poisson_nll") return ValueDomain{.loss = type, .lowest = 0, .highest = std::numeric_limits<double>::infinity()};
  return std::nullopt;
}

void CheckValues(const ValueRules& rules, const std::string& column, const TensorView& rows, int64_t first, const std::string& file) {
  const int64_t extent = rules.index_extent;
  for (int64_t i = 0; extent > 0 && IsInteger(rows.dtype) && i < rows.elements(); ++i) {
    const int64_t index = ElementAsInt(rows, i);
    if (index >= -extent && index < extent) continue;
    throw Error(ErrorCode::kData,
                RowText(first < 0 ? -1 : first + RowAt(rows, i)) + " has " + std::to_string(index) + " in '" + Escaped(column) +
                    "'; the model has a weight of " + std::to_string(extent) + " rows for it: 0 to " + std::to_string(extent - 1),
                file, "numbers of categories and tokens count from 0; export the model for as many as the data has, or mend the data");
  }
  if (!rules.domain) return;
  for (int64_t i = 0; i < rows.elements(); ++i) {
    const double value = ElementAsDouble(rows, i);
    if (!(value < rules.domain->lowest - kRounding || value > rules.domain->highest + kRounding)) continue;  // NaN is warned of
    throw Error(ErrorCode::kData,
                RowText(first < 0 ? -1 : first + RowAt(rows, i)) + " has " + NumberText(value) + " in '" + Escaped(column) +
                    (first < 0 ? "' after its transforms" : "'") + "; " + rules.domain->loss + " needs targets " + RangeText(*rules.domain),
                file, HelpForDomain(*rules.domain));
  }
}

std::string DoubtOf(const ValueRules& rules, const std::string& column, const TensorView& rows) {
  const int64_t extent = rules.index_extent;
  for (int64_t i = 0; extent > 0 && IsInteger(rows.dtype) && i < rows.elements(); ++i) {
    const int64_t index = ElementAsInt(rows, i);
    if (index >= 0) continue;
    return "warning '" + Escaped(column) + "' has " + std::to_string(index) + " in row " + std::to_string(RowAt(rows, i)) +
           ", which selects row " + std::to_string(extent + index) +
           " of a weight: ONNX counts negative numbers from the end (PyTorch's Embedding refuses them)";
  }
  if (!rules.domain || !rules.domain->doubts_zero) return "";
  for (int64_t i = 0; i < rows.elements(); ++i) {
    if (ElementAsDouble(rows, i) != 0) continue;
    return "warning '" + Escaped(column) + "' has 0 in row " + std::to_string(RowAt(rows, i)) + ", for which " + rules.domain->loss +
           " is a constant that trains nothing: its targets are -1 and 1 (write 0 as -1, or use bce_with_logits)";
  }
  return "";
}

void CheckColumns(const Dataset& data, const std::vector<Feed>& feeds, const std::map<std::string, ValueDomain>& domains,
                  const std::function<bool(const std::string&)>& transformed, const std::string& file, std::vector<std::string>& notes) {
  for (const Feed& feed : feeds) {
    const auto found = data.columns().find(feed.name);
    if (found == data.columns().end() || found->second.shape().rank() == 0) continue;
    ValueRules rules{.index_extent = feed.index_extent};
    if (const auto domain = domains.find(feed.name); domain != domains.end() && !transformed(feed.name)) rules.domain = domain->second;
    if (rules.empty()) continue;
    const TensorView rows = found->second.view();
    CheckValues(rules, feed.name, rows, 0, file);
    if (std::string doubt = DoubtOf(rules, feed.name, rows); !doubt.empty()) notes.push_back(std::move(doubt));
  }
}

}  // namespace gradloom
