#include "runtime/base/einsum.h"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <string_view>

#include "runtime/base/error.h"

namespace gradloom {
namespace {

using Term = EinsumEquation::Term;

[[noreturn]] void Bad(const std::string& equation, const std::string& why) {
  throw Error(ErrorCode::kAttr, "Einsum: equation '" + Escaped(equation) + "': " + why);
}

Term ParseTerm(const std::string& equation, std::string_view text, int ellipsis_rank) {
  Term term;
  bool seen_ellipsis = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text.substr(i, 3) == "..." && !seen_ellipsis) {
      for (int axis = ellipsis_rank; axis > 0; --axis) term.push_back(-axis);
      seen_ellipsis = true;
      i += 2;
    } else if (std::isalpha(static_cast<unsigned char>(text[i])) != 0) {
      term.push_back(text[i]);
    } else {
      Bad(equation, "unexpected character");
    }
  }
  return term;
}

Term ImplicitOutput(const std::vector<Term>& inputs, int ellipsis_rank) {
  std::map<int, int> count;
  for (const Term& term : inputs) {
    for (int index : term) ++count[index];
  }
  Term output;
  for (int axis = ellipsis_rank; axis > 0; --axis) output.push_back(-axis);
  for (const auto& [index, times] : count) {
    if (index > 0 && times == 1) output.push_back(index);
  }
  return output;
}

std::vector<std::string> SplitTerms(const std::string& left) {
  std::vector<std::string> terms(1);
  for (char c : left) {
    if (c == ',') {
      terms.emplace_back();
    } else {
      terms.back() += c;
    }
  }
  return terms;
}

void AddExtents(const std::string& source, const Term& term, const Shape& shape, std::map<int, int64_t>& extents) {
  for (size_t axis = 0; axis < term.size(); ++axis) {
    const int64_t extent = shape[static_cast<int>(axis)];
    int64_t& known = extents.try_emplace(term[axis], 1).first->second;
    if (known != extent && known != 1 && extent != 1) {
      Bad(source, "an index has extents " + std::to_string(known) + " and " + std::to_string(extent));
    }
    if (known == 1) known = extent;
  }
}

}  // namespace

EinsumEquation EinsumEquation::Parse(const std::string& source, std::span<const Shape> operands) {
  std::string text;
  std::copy_if(source.begin(), source.end(), std::back_inserter(text), [](unsigned char c) { return std::isspace(c) == 0; });
  const size_t arrow = text.find("->");
  const std::vector<std::string> terms = SplitTerms(text.substr(0, arrow));
  if (terms.size() != operands.size()) {
    Bad(source, std::to_string(terms.size()) + " terms, but " + std::to_string(operands.size()) + " inputs");
  }
  EinsumEquation equation;
  int ellipsis_rank = 0;
  for (size_t i = 0; i < terms.size(); ++i) {
    const bool dots = terms[i].find("...") != std::string::npos;
    const int letters = static_cast<int>(terms[i].size()) - (dots ? 3 : 0), own = dots ? operands[i].rank() - letters : 0;
    equation.inputs.push_back(ParseTerm(source, terms[i], std::max(own, 0)));
    if (static_cast<int>(equation.inputs.back().size()) != operands[i].rank()) {
      Bad(source, "term " + std::to_string(i) + " does not fit an operand of shape " + operands[i].ToString());
    }
    ellipsis_rank = std::max(ellipsis_rank, own);
    AddExtents(source, equation.inputs.back(), operands[i], equation.extents);
  }
  equation.output = arrow == std::string::npos ? ImplicitOutput(equation.inputs, ellipsis_rank)
                                               : ParseTerm(source, std::string_view(text).substr(arrow + 2), ellipsis_rank);
  Term sorted = equation.output;
  std::sort(sorted.begin(), sorted.end());
  if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) Bad(source, "an index occurs twice in the output");
  for (int index : equation.output) {
    if (!equation.extents.contains(index)) Bad(source, "an index of the output occurs in no input");
  }
  return equation;
}

Shape EinsumEquation::OutputShape() const {
  Shape shape;
  for (int index : output) shape.push_back(extents.at(index));
  return shape;
}

}  // namespace gradloom
