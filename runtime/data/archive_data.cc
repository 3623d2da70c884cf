#include "runtime/data/archive_data.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include "runtime/base/ascii_lower.h"
#include "runtime/base/counted.h"
#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/host_memory.h"
#include "runtime/base/listing.h"
#include "runtime/base/read_number.h"
#include "runtime/data/image_rows.h"
#include "runtime/data/tar.h"

namespace gradloom {
namespace {

constexpr int64_t kMaxText = 1 << 16;  // bytes of a member with numbers
constexpr std::string_view kSpaces = " \t\r\n,;";

struct NameParts {
  std::string_view key;
  std::string ending;
};

// nullopt for hidden files, and for names without an ending.
std::optional<NameParts> PartsOf(std::string_view name) {
  const size_t slash = name.rfind('/'), base = slash == std::string_view::npos ? 0 : slash + 1, dot = name.find('.', base);
  if (dot == std::string_view::npos || dot == base) return std::nullopt;
  return NameParts{name.substr(0, dot), AsciiLower(std::string(name.substr(dot + 1)))};
}

bool IsImageEnding(const std::string& ending) { return IsImageName("x." + ending); }

std::vector<TarMember> MembersOf(const std::string& path) { return TarMembers(InputFile(path, std::numeric_limits<int64_t>::max())); }

// One array: a file of each sample.
struct Wanted {
  std::string feed, array;
  std::vector<TarMember> members = {};

  bool Takes(const std::string& ending) const {
    if (array == "images") return ending == "jpg" || ending == "jpeg" || ending == "png";
    return ending == (array == "labels" ? "cls" : array);
  }
  bool is_image() const { return array == "images" || IsImageEnding(array); }
};

// Finds the files of all samples: of each key of which some array needs a file.
class Samples {
 public:
  Samples(const std::string& path, std::vector<Wanted>& wanted) : path_(path), wanted_(wanted), found_(wanted.size()) {}

  void Run() {
    for (const TarMember& member : MembersOf(path_)) {
      const std::optional<NameParts> parts = PartsOf(member.name);
      if (!parts) continue;
      if (parts->key != key_) {
        Finish();
        key_ = parts->key;
      }
      endings_.push_back(parts->ending);
      for (size_t i = 0; i < wanted_.size(); ++i) {
        if (!wanted_[i].Takes(parts->ending)) continue;
        if (found_[i]) Fail("has two files for", wanted_[i]);
        found_[i] = member;
      }
    }
    Finish();
    if (!wanted_.empty() && wanted_.front().members.empty())
      throw Error(ErrorCode::kData, "the archive has no samples", Escaped(path_, 4096), "their files need endings: 0001.jpg, 0001.cls");
  }

 private:
  void Finish() {
    const auto is_there = [](const std::optional<TarMember>& member) { return member.has_value(); };
    if (std::ranges::any_of(found_, is_there)) {
      for (size_t i = 0; i < wanted_.size(); ++i) {
        if (!found_[i]) Fail("has no file for", wanted_[i]);
        wanted_[i].members.push_back(*std::move(found_[i]));
      }
    }
    found_.assign(wanted_.size(), std::nullopt);
    endings_.clear();
  }

  [[noreturn]] void Fail(const std::string& what, const Wanted& one) const {
    Listing has(8);
    for (const std::string& ending : endings_) has.Add(Escaped(ending, 40));
    throw Error(ErrorCode::kData, "the sample '" + Escaped(key_, 200) + "' " + what + " '" + Escaped(one.array, 40) + "'",
                Escaped(path_, 4096),
                "it has the endings " + has.text() + "; choose one for each input and target: --map " + Escaped(one.feed) +
                    "=ENDING. The files of a sample must stand together");
  }

  const std::string& path_;
  std::vector<Wanted>& wanted_;
  std::string key_;                              // of the current sample
  std::vector<std::optional<TarMember>> found_;  // its files, by array
  std::vector<std::string> endings_;             // of all its files
};

// The numbers in texts: int64 if all are whole, else float64; [samples] or [samples, numbers].
class Numbers {
 public:
  Numbers(const InputFile& archive, int64_t samples) : archive_(archive), samples_(samples) {}

  void Add(const TarMember& member) {
    const std::string where = Escaped(archive_.path() + "/" + member.name, 4096);
    if (member.bytes > kMaxText)
      throw Error(ErrorCode::kData, "text of " + std::to_string(member.bytes) + " bytes, too much for numbers", where);
    std::string text(static_cast<size_t>(member.bytes), '\0');
    if (!text.empty()) archive_.ReadAt(member.offset, text.data(), member.bytes);
    const int64_t before = count();
    for (size_t at = text.find_first_not_of(kSpaces); at != std::string::npos; at = text.find_first_not_of(kSpaces, at)) {
      const size_t end = std::min(text.find_first_of(kSpaces, at), text.size());
      AddNumber(std::string_view(text).substr(at, end - at), where);
      at = end;
    }
    const int64_t found = count() - before;
    if (found == 0) throw Error(ErrorCode::kData, "there is no number", where);
    if (before == 0) Reserve(found);
    if (found != each_)
      throw Error(ErrorCode::kData, Counted(found, "number") + ", but the samples before have " + std::to_string(each_), where);
  }

  Tensor Take() const {
    const Shape shape = each_ == 1 ? Shape{samples_} : Shape{samples_, each_};
    return are_whole_ ? Tensor::From(whole_, shape) : Tensor::From(values_, shape);
  }

 private:
  int64_t count() const { return are_whole_ ? std::ssize(whole_) : std::ssize(values_); }

  // Once it is known how many numbers there will be: all of them, and the tensor.
  void Reserve(int64_t each) {
    each_ = each;
    RequireHostMemory(2 * samples_ * each * int64_t{sizeof(double)}, "the numbers of an archive", Escaped(archive_.path(), 4096),
                      "use an ending with fewer numbers");
    are_whole_ ? whole_.reserve(static_cast<size_t>(samples_ * each)) : values_.reserve(static_cast<size_t>(samples_ * each));
  }

  void AddNumber(std::string_view word, const std::string& where) {
    const std::optional<int64_t> whole = ReadNumber<int64_t>(word);
    const std::optional<double> number = whole ? static_cast<double>(*whole) : ReadNumber<double>(word);
    if (!number) throw Error(ErrorCode::kData, "'" + Escaped(word, 40) + "' is not a number", where);
    if (are_whole_ && !whole) {
      values_.reserve(whole_.capacity());
      values_.assign(whole_.begin(), whole_.end());
      whole_ = {};
      are_whole_ = false;
    }
    if (are_whole_) return whole_.push_back(*whole);
    values_.push_back(*number);
  }

  const InputFile& archive_;
  const int64_t samples_;
  int64_t each_ = 0;  // numbers of a sample
  bool are_whole_ = true;
  std::vector<int64_t> whole_;  // while all are
  std::vector<double> values_;  // from the first on that is not
};

}  // namespace

Dataset LoadArchive(const DataFile& file, const std::vector<Feed>& feeds, const ColumnMap& columns, const std::set<std::string>& filled,
                    std::vector<std::string>& notes) {
  std::vector<Wanted> wanted;
  for (size_t i = 0; i < feeds.size(); ++i) {
    const auto mapped = columns.find(feeds[i].name);
    std::string array = mapped != columns.end() ? AsciiLower(mapped->second) : i == 0 ? "images" : "labels";
    if (array.starts_with('.')) array.erase(0, 1);
    wanted.push_back({feeds[i].name, std::move(array)});
  }
  Samples(file.path, wanted).Run();
  const InputFile archive(file.path, std::numeric_limits<int64_t>::max());
  const std::string where = Escaped(file.path, 4096);
  Dataset data;
  for (size_t i = 0; i < feeds.size(); ++i) {
    if (wanted[i].is_image()) {
      const Shape row(std::vector<int64_t>(feeds[i].shape.begin() + (feeds[i].shape.rank() > 0 ? 1 : 0), feeds[i].shape.end()));
      data.set_source(feeds[i].name, MakeImageRows(file.path, std::move(wanted[i].members), row));
      continue;
    }
    Numbers numbers(archive, std::ssize(wanted[i].members));
    for (const TarMember& member : wanted[i].members) numbers.Add(member);
    Tensor column = numbers.Take();
    std::vector<std::string> warnings;
    WarnOfNans(feeds[i].name, column, /*may_be_missing=*/filled.contains(feeds[i].name), where, warnings);
    for (const std::string& warning : warnings) notes.push_back("warning " + warning);
    data.set_column(feeds[i].name, std::move(column));
  }
  return data;
}

ArchiveContent ContentOf(const std::string& path) {
  ArchiveContent content;
  std::string key;
  for (const TarMember& member : MembersOf(path)) {
    const std::optional<NameParts> parts = PartsOf(member.name);
    if (!parts) continue;
    if (content.samples == 0 || parts->key != key) ++content.samples;
    key = parts->key;
    ++content.endings[parts->ending];
  }
  return content;
}

}  // namespace gradloom
