#include "runtime/data/csv_columns.h"

#include <algorithm>
#include <cstdint>

#include "runtime/base/counted.h"
#include "runtime/base/error.h"
#include "runtime/base/nearest.h"
#include "runtime/base/read_number.h"
#include "runtime/base/suggestion.h"
#include "runtime/data/csv.h"
#include "runtime/data/csv_fields.h"

namespace gradloom {
namespace {

// The name in quotes at the front, with them; empty if there is none. A quote inside it is doubled.
std::string_view QuotedAtFront(std::string_view text) {
  if (!text.starts_with('"')) return {};
  for (size_t at = text.find('"', 1); at != std::string_view::npos; at = text.find('"', at + 2)) {
    if (!text.substr(at + 1).starts_with('"')) return text.substr(0, at + 1);
  }
  return {};
}

// The name, if the text is one in quotes.
std::optional<std::string> QuotedName(std::string_view text) {
  if (text.empty() || QuotedAtFront(text).size() != text.size()) return std::nullopt;
  std::string name;
  for (size_t at = 1; at + 1 < text.size(); ++at) {
    name += text[at];
    if (text[at] == '"') ++at;
  }
  return name;
}

std::string InQuotes(std::string_view name) {
  std::string text = "\"";
  for (const char c : name) text += c == '"' ? "\"\"" : std::string(1, c);
  return text + '"';
}

// Where the first piece of a list ends: at a comma that is in no quoted name, which begins the piece or follows the dots of a range.
size_t EndOfPiece(std::string_view list) {
  size_t at = std::min(list.find_first_not_of(" \t"), list.size());
  while (true) {
    at += QuotedAtFront(list.substr(at)).size();
    const size_t comma = list.find(',', at), range = list.find("..\"", at);
    if (range >= comma) return comma;
    at = range + 2;
  }
}

}  // namespace

CsvColumnNames::CsvColumnNames(std::vector<std::string> names, size_t columns, std::string where, bool may_be_row)
    : names_(std::move(names)), columns_(columns), where_(std::move(where)), may_be_row_(may_be_row) {
  for (size_t i = 0; i < names_.size(); ++i) {
    ++by_name_.try_emplace(names_[i], Named{i, 0}).first->second.count;
    only_indices_ = only_indices_ && names_[i] == std::to_string(i);
  }
}

std::string CsvColumnNames::SelectorOf(size_t column) const {
  return !names_.empty() && IsUnique(column) ? names_[column] : std::to_string(column);
}

bool CsvColumnNames::IsUnique(size_t column) const { return by_name_.at(names_[column]).count == 1; }

std::string CsvColumnNames::PieceOf(size_t column) const {
  if (only_indices_) return std::to_string(column);
  const std::string& name = names_[column];
  const bool plain = !name.empty() && !name.starts_with('"') && name.find(',') == std::string::npos &&
                     name.find("..") == std::string::npos && !ReadNumber<int64_t>(name);
  return plain ? name : InQuotes(name);
}

std::pair<std::vector<size_t>, bool> CsvColumnNames::Resolve(const std::string& selection) const {
  if (const auto column = Find(selection)) return {{*column}, true};
  std::vector<size_t> columns;
  std::string_view rest = selection;
  while (true) {
    const size_t end = EndOfPiece(rest);
    AddPiece(CsvTrimmed(rest.substr(0, end)), columns);
    if (end == std::string_view::npos) return {columns, false};
    rest.remove_prefix(end + 1);
  }
}

void CsvColumnNames::AddPiece(std::string_view piece, std::vector<size_t>& columns) const {
  if (const auto column = Find(piece)) {
    columns.push_back(*column);
    return;
  }
  // A name may itself contain dots, so every ".." is tried.
  for (size_t dots = piece.find(".."); dots != std::string_view::npos; dots = piece.find("..", dots + 1)) {
    const auto first = Find(piece.substr(0, dots)), last = Find(piece.substr(dots + 2));
    if (!first || !last) continue;
    if (*first > *last) {
      throw Error(ErrorCode::kData, "the column range '" + Escaped(piece) + "' runs backwards", where_, "write the left column first");
    }
    for (size_t column = *first; column <= *last; ++column) columns.push_back(column);
    return;
  }
  if (!names_.empty()) CheckFirstLine(names_, where_);
  RefusePiece(piece);
}

// Names the end of a range that does not exist.
void CsvColumnNames::RefusePiece(std::string_view piece) const {
  std::string_view missing = piece;
  std::string meant;
  if (const size_t dots = piece.find(".."); dots != std::string_view::npos) {
    const std::string_view first = piece.substr(0, dots), last = piece.substr(dots + 2);
    if (Find(first) || Find(last)) missing = Find(first) ? last : first;
  }
  // As other tools write ranges.
  for (size_t at = piece.find_first_of("-:"); at != std::string_view::npos && meant.empty(); at = piece.find_first_of("-:", at + 1)) {
    const std::string_view first = piece.substr(0, at), last = piece.substr(at + 1);
    if (Find(first) && Find(last)) meant = std::string(first) + ".." + std::string(last);
  }
  const std::string name = QuotedName(missing).value_or(std::string(missing));
  const auto has_comma = std::ranges::find_if(names_, [&](const std::string& known) { return known.starts_with(name + ","); });
  if (meant.empty() && has_comma != names_.end()) meant = InQuotes(*has_comma);
  // Short names are similar by chance.
  if (meant.empty() && name.size() >= 3) meant = Nearest(name, names_);
  throw Error(ErrorCode::kData, "no column '" + Escaped(name) + "'" + (missing == piece ? "" : " for the range '" + Escaped(piece) + "'"),
              where_, DidYouMean(meant, "the file has " + Listing()));
}

std::optional<size_t> CsvColumnNames::FindName(const std::string& name) const {
  const auto found = by_name_.find(name);
  if (found == by_name_.end()) return std::nullopt;
  if (found->second.count > 1)
    throw Error(ErrorCode::kData, "two columns are named '" + Escaped(name) + "'", where_, "select by index, counted from 0");
  return found->second.first;
}

std::optional<size_t> CsvColumnNames::FindIndex(std::string_view text) const {
  const std::optional<int64_t> index = ReadNumber<int64_t>(text);
  const int64_t count = static_cast<int64_t>(columns_);
  if (!index || *index < -count || *index >= count) return std::nullopt;
  return static_cast<size_t>(*index < 0 ? *index + count : *index);
}

// Looks up by name first, then by index.
std::optional<size_t> CsvColumnNames::Find(std::string_view text) const {
  if (const auto column = FindName(std::string(text))) {
    if (may_be_row_ && FindIndex(text).value_or(*column) != *column) {
      throw Error(
          ErrorCode::kData, "'" + Escaped(text) + "' is the name of column " + std::to_string(*column) + " and the index of another one",
          where_,
          "if the first line is a row, add a line with names before it; otherwise write the name in quotes: \"" + Escaped(text) + "\"");
    }
    return column;
  }
  if (const auto name = QuotedName(text)) return FindName(*name);
  return FindIndex(text);
}

std::string CsvColumnNames::Listing() const {
  std::string text = Counted(static_cast<int64_t>(columns_), "column");
  if (names_.empty()) return text + " and no header; select by index, counted from 0";
  constexpr size_t kShown = 12;
  for (size_t i = 0; i < std::min(names_.size(), kShown); ++i) text += (i == 0 ? ": " : ", ") + Escaped(names_[i], 40);
  return names_.size() > kShown ? text + ", ... " + Escaped(names_.back(), 40) : text;
}

std::string CsvPieceOf(const std::vector<std::string>& names, size_t column) {
  const CsvColumnNames own(names, names.size(), "");
  return own.IsUnique(column) ? own.PieceOf(column) : std::to_string(column);
}

std::string CsvWrittenOut(const std::string& selection, const std::vector<std::string>& names, const std::string& where) {
  const CsvColumnNames own(names, names.size(), "");
  std::pair<std::vector<size_t>, bool> selected;
  try {
    selected = own.Resolve(selection);
  } catch (const Error&) {
    return selection;  // the reader of the table reports what is wrong with it
  }
  const auto& [columns, single] = selected;
  std::string text;
  for (const size_t column : columns) {
    if (!own.IsUnique(column)) {
      throw Error(ErrorCode::kData,
                  "two columns of the training data are named '" + Escaped(names[column]) + "', and this table has other columns", where,
                  "use a table with the same columns in the same order, or train with names that differ");
    }
    text += (text.empty() ? "" : ",") + own.PieceOf(column);
  }
  // One column as a list of columns.
  return columns.size() == 1 && !single ? text + ".." + text : text;
}

}  // namespace gradloom
