#include "runtime/data/joined_data.h"

#include <glob.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/read_number.h"
#include "runtime/data/stored_rows.h"

namespace gradloom {
namespace {

// glob calls the error function with the folder that it cannot read; there is no other way to learn its name.
thread_local std::string unreadable_folder;

int RecordUnreadable(const char* folder, int error) {
  // A file where the pattern requires a folder does not match.
  if (error == ENOTDIR || error == ENOENT) return 0;
  unreadable_folder = folder;
  return 1;
}

constexpr size_t kMaxPatterns = 100'000;

struct Range {
  int64_t first = 0, last = 0;
  size_t digits = 0;  // numbers are padded with zeros to as many
};

// The range that the text between braces is: "08..10".
std::optional<Range> RangeOf(std::string_view text) {
  const size_t dots = text.find("..");
  if (dots == std::string_view::npos) return std::nullopt;
  const std::string_view from = text.substr(0, dots), to = text.substr(dots + 2);
  const std::optional<int64_t> first = ReadNumber<int64_t>(from), last = ReadNumber<int64_t>(to);
  if (!first || !last || *first < 0) return std::nullopt;
  // As in a shell: if one of them begins with a zero, all numbers are as long as the longer one.
  const auto is_padded = [](std::string_view number) { return number.size() > 1 && number[0] == '0'; };
  return Range{*first, *last, is_padded(from) || is_padded(to) ? std::max(from.size(), to.size()) : 0};
}

// What a shell makes of braces, before it looks for files: "{08..10}" is 08, 09 and 10, "{a,b}" a and b. `ranges`: whether there is one.
void ExpandBraces(const std::string& pattern, size_t from, std::vector<std::string>& patterns, bool& ranges) {
  for (size_t open = pattern.find('{', from); open != std::string::npos; open = pattern.find('{', open + 1)) {
    std::vector<size_t> ends;  // of the alternatives
    size_t close = std::string::npos;
    int depth = 0;
    for (size_t i = open; i < pattern.size() && close == std::string::npos; ++i) {
      if (pattern[i] == '{') ++depth;
      if (pattern[i] == ',' && depth == 1) ends.push_back(i);
      if (pattern[i] == '}' && --depth == 0) close = i;
    }
    if (close == std::string::npos) continue;
    const std::string before = pattern.substr(0, open), behind = pattern.substr(close + 1);
    const auto expand = [&](const std::string& alternative) {
      ExpandBraces(before + alternative + behind, open, patterns, ranges);
      if (patterns.size() <= kMaxPatterns) return;
      throw Error(ErrorCode::kData, "a pattern means more than " + std::to_string(kMaxPatterns) + " names", Escaped(pattern, 4096));
    };
    if (const std::optional<Range> range = RangeOf(std::string_view(pattern).substr(open + 1, close - open - 1))) {
      ranges = true;
      if (range->last < range->first) {
        throw Error(ErrorCode::kData, "a range of this pattern does not ascend", Escaped(pattern, 4096),
                    "'{000..099}' means 000, 001 and so on up to 099");
      }
      for (int64_t i = range->first; i <= range->last; ++i) {
        std::string number = std::to_string(i);
        number.insert(0, range->digits - std::min(range->digits, number.size()), '0');
        expand(number);
      }
      return;
    }
    if (ends.empty()) continue;
    ends.push_back(close);
    for (size_t begin = open + 1, i = 0; i < ends.size(); begin = ends[i++] + 1) expand(pattern.substr(begin, ends[i] - begin));
    return;
  }
  patterns.push_back(pattern);
}

// Adds the files that match a shell pattern.
void AddMatches(const std::string& pattern, std::vector<std::string>& files) {
  glob_t found{};
  const int result = ::glob(pattern.c_str(), GLOB_BRACE | GLOB_NOSORT, RecordUnreadable, &found);
  for (size_t i = 0; i < found.gl_pathc; ++i) files.emplace_back(found.gl_pathv[i]);
  ::globfree(&found);
  if (result == GLOB_ABORTED) {
    throw Error(ErrorCode::kIo, "cannot read the folder to find the files that match", Escaped(unreadable_folder, 4096));
  }
  if (result == GLOB_NOSPACE) throw std::bad_alloc();
}

// The rows of several sources, one after the other.
class JoinedRows : public RowSource {
 public:
  struct Part {
    std::string path;
    Dataset::LazyColumn column;
    int64_t first = 0;  // index of its first row among all
  };

  JoinedRows(std::vector<Part> parts, int64_t rows) : parts_(std::move(parts)), rows_(rows) {}

  int64_t rows() const override { return rows_; }
  Shape row_shape() const override { return parts_.front().column.source->row_shape(); }
  DType dtype() const override { return parts_.front().column.source->dtype(); }

  void Read(int64_t row, PhiloxKey draw, void* out) const override { ReadWithin(row, 1, draw, out); }

  void ReadSeveral(int64_t row, int64_t count, PhiloxKey draw, void* out) const override {
    const int64_t bytes = row_shape().elements() * DTypeBytes(dtype());
    for (int64_t done = 0; done < count;) done += ReadWithin(row + done, count - done, draw, static_cast<std::byte*>(out) + done * bytes);
  }

  Transform Fitted(const std::string& text, std::span<const int64_t> rows) const override {
    if (Transform::IsMeasured(text)) return Transform::Measured(text, *this, rows);
    return parts_.front().column.source->Fitted(text, rows);
  }

  std::shared_ptr<const RowSource> With(const Transform& transform, bool training) const override {
    std::vector<Part> parts = parts_;
    for (Part& part : parts) part.column.source = part.column.source->With(transform, training);
    return std::make_shared<JoinedRows>(std::move(parts), rows_);
  }

 private:
  // Reads up to `count` rows from the file that has row `row`; returns how many.
  int64_t ReadWithin(int64_t row, int64_t count, PhiloxKey draw, void* out) const {
    const auto next = std::upper_bound(parts_.begin(), parts_.end(), row, [](int64_t r, const Part& part) { return r < part.first; });
    const Part& part = *(next - 1);
    // Row 5 of one file must not get the same random transform as row 5 of the next.
    draw[1] ^= static_cast<uint32_t>(next - 1 - parts_.begin());
    const std::span<const int64_t> rows = std::span(part.column.rows).subspan(static_cast<size_t>(row - part.first));
    int64_t several = 1;
    while (several < std::min(count, std::ssize(rows)) && rows[static_cast<size_t>(several)] == rows[0] + several) ++several;
    try {
      part.column.source->ReadSeveral(rows[0], several, draw, out);
    } catch (const Error& error) {
      if (!error.where().empty()) throw;
      throw Error(error.code(), error.message(), Escaped(part.path, 4096), error.help());
    }
    return several;
  }

  std::vector<Part> parts_;
  int64_t rows_;
};

std::vector<int64_t> Counted(int64_t rows) {
  std::vector<int64_t> numbers(static_cast<size_t>(rows));
  for (int64_t i = 0; i < rows; ++i) numbers[static_cast<size_t>(i)] = i;
  return numbers;
}

// Presents a column in memory as a row source, to join it with parts that are row sources.
Dataset::LazyColumn Made(const std::string& name, Tensor column) {
  const auto values = std::make_shared<const Tensor>(std::move(column));
  StoredRowsOptions options{.dtype = values->dtype(), .rows = values->shape()[0], .column = name};
  options.row_shape = Shape(std::vector<int64_t>(values->shape().begin() + 1, values->shape().end()));
  const int64_t rows = options.rows;
  StoredArray array{values->dtype(), false, values->shape(), [values](int64_t offset, void* out, int64_t bytes) {
                      std::memcpy(out, static_cast<const std::byte*>(values->data()) + offset, static_cast<size_t>(bytes));
                    }};
  return {MakeStoredRows(std::move(array), std::move(options)), Counted(rows)};
}

// Column `name` of all parts, joined in memory. It is moved out of the parts.
Tensor JoinedColumn(const std::string& name, std::vector<DataPart>& parts, int64_t rows) {
  const Tensor& first = parts.front().rows.column(name);
  Tensor whole(first.dtype(), WithRows(first.shape(), rows));
  auto* to = static_cast<std::byte*>(whole.data());
  for (DataPart& part : parts) {
    const Tensor values = part.rows.TakeColumn(name);
    std::memcpy(to, values.data(), static_cast<size_t>(values.bytes()));
    to += values.bytes();
  }
  return whole;
}

std::shared_ptr<const RowSource> JoinedSource(const std::string& name, std::vector<DataPart>& parts, int64_t rows) {
  std::vector<JoinedRows::Part> made;
  int64_t first = 0;
  for (DataPart& part : parts) {
    made.push_back(
        {part.path, part.rows.is_lazy(name) ? part.rows.lazy_columns().at(name) : Made(name, part.rows.TakeColumn(name)), first});
    first += part.rows.rows();
  }
  return std::make_shared<JoinedRows>(std::move(made), rows);
}

}  // namespace

std::vector<std::string> FilesOf(const std::string& path) {
  std::error_code error;
  if (path.find_first_of("*?[{") == std::string::npos || std::filesystem::exists(path, error)) return {path};
  std::vector<std::string> patterns, files;
  bool ranges = false;
  ExpandBraces(path, 0, patterns, ranges);
  if (!ranges) patterns = {path};
  for (const std::string& pattern : patterns) {
    const size_t before = files.size();
    if (pattern.find_first_of("*?[") == std::string::npos && ranges) {
      if (!std::filesystem::exists(pattern, error)) InputFile missing(pattern, 0);  // throws, and suggests a file with a similar name
      files.push_back(pattern);
    } else {
      AddMatches(pattern, files);
    }
    if (files.size() > before) continue;
    throw Error(
        ErrorCode::kData, "no file matches this pattern", Escaped(pattern, 4096),
        "relative paths start at the current folder, or in a configuration at the folder of its file; '*' matches within one folder");
  }
  std::sort(files.begin(), files.end());
  files.erase(std::unique(files.begin(), files.end()), files.end());
  return files;
}

Dataset Joined(std::vector<DataPart> parts) {
  if (parts.size() == 1) return std::move(parts.front().rows);
  std::vector<std::string> in_memory, made;
  const auto is_made = [&](const std::string& name) {
    return std::any_of(parts.begin(), parts.end(), [&](const DataPart& part) { return part.rows.is_lazy(name); });
  };
  const Dataset& first = parts.front().rows;
  for (const auto& [name, column] : first.columns()) (is_made(name) ? made : in_memory).push_back(name);
  for (const auto& [name, column] : first.lazy_columns()) made.push_back(name);
  int64_t rows = 0;
  for (const DataPart& part : parts) rows += part.rows.rows();
  Dataset whole;
  for (const std::string& name : in_memory) whole.set_column(name, JoinedColumn(name, parts, rows));
  for (const std::string& name : made) whole.set_source(name, JoinedSource(name, parts, rows));
  return whole;
}

}  // namespace gradloom
