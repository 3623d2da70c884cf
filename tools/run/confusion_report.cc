#include "tools/run/confusion_report.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <tuple>

#include "runtime/base/error.h"
#include "tools/screen/screen.h"

namespace gradloom {
namespace {

constexpr size_t kMaxShownClasses = 20;
constexpr size_t kMaxShownPairs = 20;

nlohmann::json NumberOrNull(double value) { return std::isfinite(value) ? nlohmann::json(value) : nlohmann::json(nullptr); }

// The pairs of different classes, the most frequent first.
std::string MostConfused(const ConfusionMatrix& confusion, const std::vector<std::string>& names) {
  std::vector<std::tuple<int64_t, size_t, size_t>> pairs;
  const auto& counts = confusion.counts();
  for (size_t is = 0; is < counts.size(); ++is) {
    for (size_t said = 0; said < counts.size(); ++said) {
      if (is != said && counts[is][said] > 0) pairs.emplace_back(-counts[is][said], is, said);
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
    for (const int64_t count : confusion.counts()[is]) line.push_back(WithCommas(count));
  }
  return text + Table(table);
}

nlohmann::json ConfusionJson(const ConfusionMatrix& confusion, const std::vector<std::string>& names) {
  nlohmann::json json{{"classes", names}, {"counts", confusion.counts()}};
  for (const ClassResult& of : confusion.ByClass()) {
    json["precision"].push_back(NumberOrNull(of.precision));
    json["recall"].push_back(NumberOrNull(of.recall));
    json["f1"].push_back(NumberOrNull(of.f1));
  }
  return json;
}

}  // namespace gradloom
