#include "tools/run/records/confusion_report.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <tuple>

#include "runtime/base/error.h"
#include "tools/screen/screen.h"

namespace gradloom {
namespace {

constexpr size_t kMaxShownClasses = 20;
constexpr size_t kMaxShownPairs = 20;
// A table of more classes is mostly zeros, millions of them.
constexpr size_t kMaxTableClasses = 2000;

int64_t CountOf(const ConfusionMatrix& confusion, size_t is, size_t said) {
  const std::map<int64_t, int64_t>& counts = confusion.counts()[is];
  const auto found = counts.find(static_cast<int64_t>(said));
  return found == counts.end() ? 0 : found->second;
}

nlohmann::json NumberOrNull(double value) { return std::isfinite(value) ? nlohmann::json(value) : nlohmann::json(nullptr); }

// The pairs of different classes, the most frequent first.
std::string MostConfused(const ConfusionMatrix& confusion, const std::vector<std::string>& names) {
  std::vector<std::tuple<int64_t, size_t, size_t>> pairs;
  const auto& counts = confusion.counts();
  for (size_t is = 0; is < counts.size(); ++is) {
    for (const auto& [said, count] : counts[is]) {
      if (static_cast<int64_t>(is) != said) pairs.emplace_back(-count, is, static_cast<size_t>(said));
    }
  }
  std::sort(pairs.begin(), pairs.end());
  std::vector<std::vector<std::string>> table{{"class", "taken for", "rows"}};
  for (size_t i = 0; i < std::min(pairs.size(), kMaxShownPairs); ++i) {
    const auto& [count, is, said] = pairs[i];
    table.push_back({Escaped(names[is], 40), Escaped(names[said], 40), WithCommas(-count)});
  }
  return Table(table) + (pairs.size() > kMaxShownPairs ? "   (--json has all)\n" : "");
}

}  // namespace

std::string ConfusionText(const ConfusionMatrix& confusion, const std::vector<std::string>& names) {
  std::vector<std::vector<std::string>> table{{"class", "rows", "precision", "recall", "f1"}};
  const std::vector<ClassResult> results = confusion.ByClass();
  for (size_t c = 0; c < results.size(); ++c) {
    const ClassResult& of = results[c];
    table.push_back({Escaped(names[c], 40), WithCommas(of.rows), Short(of.precision), Short(of.recall), Short(of.f1)});
  }
  std::string text = Table(table) + "\n";
  if (results.size() > kMaxShownClasses) return text + MostConfused(confusion, names);
  table = {{"class \\ predicted"}};
  for (const std::string& name : names) table[0].push_back(Escaped(name, 20));
  for (size_t is = 0; is < names.size(); ++is) {
    std::vector<std::string>& line = table.emplace_back(std::vector<std::string>{Escaped(names[is], 40)});
    for (size_t said = 0; said < names.size(); ++said) line.push_back(WithCommas(CountOf(confusion, is, said)));
  }
  return text + Table(table);
}

nlohmann::json ConfusionJson(const ConfusionMatrix& confusion, const std::vector<std::string>& names) {
  const bool many = names.size() > kMaxTableClasses;
  nlohmann::json json{{"classes", names}, {many ? "pairs" : "counts", nlohmann::json::array()}};
  for (size_t is = 0; is < names.size(); ++is) {
    if (many) {
      for (const auto& [said, count] : confusion.counts()[is]) json["pairs"].push_back({is, said, count});
      continue;
    }
    nlohmann::json& line = json["counts"].emplace_back(nlohmann::json::array());
    for (size_t said = 0; said < names.size(); ++said) line.push_back(CountOf(confusion, is, said));
  }
  for (const ClassResult& of : confusion.ByClass()) {
    json["precision"].push_back(NumberOrNull(of.precision));
    json["recall"].push_back(NumberOrNull(of.recall));
    json["f1"].push_back(NumberOrNull(of.f1));
  }
  return json;
}

}  // namespace gradloom
