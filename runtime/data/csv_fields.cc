#include "runtime/data/csv_fields.h"

#include <algorithm>
#include <iterator>

#include "runtime/base/utf8.h"

namespace gradloom {
namespace {

// Converts Latin-1 to UTF-8. Any byte sequence is valid, and no two give the same text.
std::string FromLatin1(std::string_view text) {
  std::string utf8;
  for (const char c : text) utf8 += Utf8Of(static_cast<unsigned char>(c));
  return utf8;
}

}  // namespace

std::string_view CsvTrimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

bool IsCsvMissing(std::string_view field) {
  constexpr std::string_view kMissing[] = {"",     "#N/A", "#N/A N/A", "#NA",  "-1.#IND", "-1.#QNAN", "1.#IND", "1.#QNAN",
                                           "<NA>", "N/A",  "NA",       "NULL", "None",    "n/a",      "null",   "?"};
  return std::ranges::find(kMissing, CsvTrimmed(field)) != std::ranges::end(kMissing);
}

std::string CsvTextOf(std::string_view field) { return IsUtf8(field) ? std::string(field) : FromLatin1(field); }

std::string CsvNameOf(std::string_view field) { return CsvTextOf(CsvTrimmed(field)); }

std::vector<std::string> CsvNamesOf(const std::vector<std::string_view>& fields) {
  std::vector<std::string> names;
  for (const std::string_view field : fields) names.push_back(CsvNameOf(field));
  return names;
}

}  // namespace gradloom
