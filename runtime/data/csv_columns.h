// The columns of a table, and selections of them (CsvSelection::columns).
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace gradloom {

class CsvColumnNames {
 public:
  // `names`: those of the header; empty if there is none. `where`: the file, for errors. `may_be_row`: whether the header may be a row, in
  // which numbers are no names; what is then both a name and the index of another column is refused.
  CsvColumnNames(std::vector<std::string> names, size_t columns, std::string where, bool may_be_row = false);

  // The name of a column, or its index if it has none or another column has the same one.
  std::string SelectorOf(size_t column) const;

  // Whether no other column has the name of this one.
  bool IsUnique(size_t column) const;

  // The name of a column as a piece of a selection, in quotes if it could be read as something else; its index if there is no header.
  std::string PieceOf(size_t column) const;

  // The selected indices, and whether the selection is the name of one column. Throws Error(kData) for a column that does not exist.
  std::pair<std::vector<size_t>, bool> Resolve(const std::string& selection) const;

 private:
  struct Named {
    size_t first, count;  // the first column of a name, and the number of columns
  };

  void AddPiece(std::string_view piece, std::vector<size_t>& columns) const;
  [[noreturn]] void RefusePiece(std::string_view piece) const;
  std::optional<size_t> FindName(const std::string& name) const;
  std::optional<size_t> FindIndex(std::string_view text) const;
  std::optional<size_t> Find(std::string_view text) const;
  std::string Listing() const;

  std::vector<std::string> names_;
  std::unordered_map<std::string, Named> by_name_;
  bool only_indices_ = true;  // the names are the indices, as CsvSelectors names columns without a header
  size_t columns_;
  std::string where_;
  bool may_be_row_;
};

}  // namespace gradloom
