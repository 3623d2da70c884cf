// Einsum: explicit loops over output indices, then over summed indices.
#include <algorithm>
#include <cctype>
#include <map>

#include "kernels/reference/families.h"
#include "kernels/reference/operands.h"

namespace gradloom {
namespace {

// Indices of one term in order; those of an ellipsis are -1 (its last axis), -2 ... counted from its end.
using Term = std::vector<int>;

struct Equation {
  std::vector<Term> inputs;
  Term output;
  std::map<int, int64_t> extents;
};

[[noreturn]] void Bad(const std::string& equation, const std::string& why) {
  throw Error(ErrorCode::kAttr, "Einsum: equation '" + Escaped(equation) + "': " + why);
}

Term ParseTerm(const std::string& equation, std::string_view text, int ellipsis_rank) {
  Term term;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text.substr(i, 3) == "...") {
      for (int axis = ellipsis_rank; axis > 0; --axis) term.push_back(-axis);
      i += 2;
    } else if (std::isalpha(static_cast<unsigned char>(text[i])) != 0) {
      term.push_back(text[i]);
    } else {
      Bad(equation, "unexpected character");
    }
  }
  return term;
}

// As numpy without an arrow: the ellipsis, then the indices that occur once, sorted.
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

Equation Parse(const KernelCall& call) {
  const std::string source = call.attributes.String("equation", "");
  std::string text;
  std::copy_if(source.begin(), source.end(), std::back_inserter(text), [](unsigned char c) { return std::isspace(c) == 0; });
  const size_t arrow = text.find("->");
  const std::string left = text.substr(0, arrow);
  std::vector<std::string> terms(1);
  for (char c : left) {
    if (c == ',')
      terms.emplace_back();
    else
      terms.back() += c;
  }
  if (terms.size() != call.inputs.size())
    Bad(source, std::to_string(terms.size()) + " terms for " + std::to_string(call.inputs.size()) + " inputs");
  Equation equation;
  int ellipsis_rank = 0;
  for (size_t i = 0; i < terms.size(); ++i) {
    const size_t dots = terms[i].find("...");
    const int letters = static_cast<int>(terms[i].size()) - (dots == std::string::npos ? 0 : 3);
    const int own = dots == std::string::npos ? 0 : call.inputs[i].shape.rank() - letters;
    equation.inputs.push_back(ParseTerm(source, terms[i], std::max(own, 0)));
    if (static_cast<int>(equation.inputs.back().size()) != call.inputs[i].shape.rank())
      Bad(source, "term " + std::to_string(i) + " does not fit " + call.inputs[i].shape.ToString());
    ellipsis_rank = std::max(ellipsis_rank, own);
  }
  equation.output = arrow == std::string::npos ? ImplicitOutput(equation.inputs, ellipsis_rank)
                                               : ParseTerm(source, std::string_view(text).substr(arrow + 2), ellipsis_rank);
  for (size_t i = 0; i < terms.size(); ++i) {
    for (size_t axis = 0; axis < equation.inputs[i].size(); ++axis) {
      const int64_t extent = call.inputs[i].shape[static_cast<int>(axis)];
      int64_t& known = equation.extents.try_emplace(equation.inputs[i][axis], 1).first->second;
      if (known != extent && known != 1 && extent != 1)
        Bad(source, "an index has extents " + std::to_string(known) + " and " + std::to_string(extent));
      if (known == 1) known = extent;
    }
  }
  return equation;
}

// Strides of each operand along `indices`: a repeated index adds up, which reads the diagonal.
std::vector<std::vector<int64_t>> StridesAlong(const KernelCall& call, const Equation& equation, const Term& indices) {
  std::vector<std::vector<int64_t>> all;
  for (size_t i = 0; i < equation.inputs.size(); ++i) {
    const std::vector<int64_t> own = call.inputs[i].shape.strides();
    std::vector<int64_t> strides(indices.size(), 0);
    for (size_t axis = 0; axis < own.size(); ++axis) {
      if (call.inputs[i].shape[static_cast<int>(axis)] == 1) continue;
      const auto at = std::find(indices.begin(), indices.end(), equation.inputs[i][axis]);
      if (at != indices.end()) strides[static_cast<size_t>(at - indices.begin())] += own[axis];
    }
    all.push_back(std::move(strides));
  }
  return all;
}

// Counts through `extents`, keeping each operand's offset.
struct Counter {
  const std::vector<int64_t>& extents;
  const std::vector<std::vector<int64_t>>& strides;
  std::vector<int64_t> index;

  bool Next(std::vector<int64_t>& offsets) {
    for (size_t axis = extents.size(); axis-- > 0;) {
      const bool wraps = ++index[axis] == extents[axis];
      const int64_t step = wraps ? 1 - extents[axis] : 1;
      for (size_t i = 0; i < offsets.size(); ++i) offsets[i] += step * strides[i][axis];
      if (!wraps) return true;
      index[axis] = 0;
    }
    return false;
  }
};

void Einsum(const KernelCall& call, const void* const* in, void* const* out) {
  const Equation equation = Parse(call);
  Term summed;
  std::vector<int64_t> kept_extents, summed_extents;
  for (int index : equation.output) {
    const auto found = equation.extents.find(index);
    kept_extents.push_back(found == equation.extents.end() ? 1 : found->second);
  }
  for (const auto& [index, extent] : equation.extents) {
    if (std::find(equation.output.begin(), equation.output.end(), index) != equation.output.end()) continue;
    summed.push_back(index);
    summed_extents.push_back(extent);
  }
  const auto kept_strides = StridesAlong(call, equation, equation.output), summed_strides = StridesAlong(call, equation, summed);
  const bool empty_sum = std::find(summed_extents.begin(), summed_extents.end(), 0) != summed_extents.end();
  const int64_t n = call.outputs[0].shape.elements();
  const size_t operands = call.inputs.size();
  WithNumber(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    using Sum = Accumulator<T>;
    std::vector<int64_t> base(operands, 0), offsets;
    Counter kept{kept_extents, kept_strides, std::vector<int64_t>(kept_extents.size(), 0)};
    Counter inner{summed_extents, summed_strides, std::vector<int64_t>(summed_extents.size(), 0)};
    for (int64_t i = 0; i < n; ++i) {
      Sum sum = 0;
      offsets = base;
      bool more = !empty_sum;
      while (more) {
        Sum product = 1;
        for (size_t k = 0; k < operands; ++k) product *= static_cast<Sum>(In<T>(in, k)[offsets[k]]);
        sum += product;
        more = inner.Next(offsets);
      }
      Out<T>(out, 0)[i] = static_cast<T>(static_cast<Arithmetic<T>>(sum));
      kept.Next(base);
    }
  });
}

constexpr ReferenceKernel kKernels[] = {{"Einsum", "", Einsum}};

}  // namespace

std::span<const ReferenceKernel> ReferenceEinsum() { return kKernels; }

}  // namespace gradloom
