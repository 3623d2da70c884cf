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

void CheckIndices(int64_t extent, const std::string& column, const TensorView& rows, int64_t first, const std::string& file) {
  for (int64_t i = 0; extent > 0 && IsInteger(rows.dtype) && i < rows.elements(); ++i) {
    const int64_t index = ElementAsInt(rows, i);
    if (index >= -extent && index < extent) continue;
    throw Error(ErrorCode::kData,
                "row " + std::to_string(first + RowAt(rows, i)) + " (counted from 0) has " + std::to_string(index) + " in '" +
                    Escaped(column) + "'; the model has a weight of " + std::to_string(extent) + " rows for it: 0 to " +
                    std::to_string(extent - 1),
                file, "numbers of categories and tokens count from 0; export the model for as many as the data has, or mend the data");
  }
}

void CheckIndexColumns(const Dataset& data, const std::vector<Feed>& feeds, const std::string& file, std::vector<std::string>& notes) {
  for (const Feed& feed : feeds) {
    const auto found = data.columns().find(feed.name);
    if (feed.index_extent == 0 || found == data.columns().end() || found->second.shape().rank() == 0) continue;
    const TensorView rows = found->second.view();
    if (!IsInteger(rows.dtype)) continue;
    CheckIndices(feed.index_extent, feed.name, rows, 0, file);
    for (int64_t i = 0; i < rows.elements(); ++i) {
      const int64_t index = ElementAsInt(rows, i);
      if (index >= 0) continue;
      notes.push_back("warning '" + Escaped(feed.name) + "' has " + std::to_string(index) + " in row " + std::to_string(RowAt(rows, i)) +
                      ", which selects row " + std::to_string(feed.index_extent + index) +
                      " of a weight: ONNX counts negative numbers from the end (PyTorch's Embedding refuses them)");
      break;
    }
  }
}

void NoteTargets(const Dataset& data, const std::map<std::string, ValueDomain>& domains, std::vector<std::string>& notes) {
  for (const auto& [name, domain] : domains) {
    const auto found = data.columns().find(name);
    if (found == data.columns().end() || found->second.shape().rank() == 0) continue;
    const TensorView rows = found->second.view();
    std::optional<double> outside;
    bool zero = false;
    for (int64_t i = 0; !outside && i < rows.elements(); ++i) {
      const double value = ElementAsDouble(rows, i);
      if (value < domain.lowest - kRounding || value > domain.highest + kRounding) outside = value;  // NaN is warned of elsewhere
      zero = zero || value == 0;
    }
    const std::string begin = "warning '" + Escaped(name) + "' has ";
    if (outside) {
      notes.push_back(begin + NumberText(*outside) + ", but " + domain.loss + " is meant for targets " + RangeText(domain) + ": " +
                      HelpForDomain(domain));
    } else if (zero && domain.doubts_zero) {
      notes.push_back(begin + "0, for which " + domain.loss +
                      " is a constant that trains nothing: its targets are -1 and 1 (write 0 as -1, or use bce_with_logits)");
    }
  }
}

}  // namespace gradloom
