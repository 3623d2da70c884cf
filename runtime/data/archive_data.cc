#include "runtime/data/archive_data.h"

#include <algorithm>
#include <cctype>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include "runtime/base/counted.h"
#include "runtime/base/error.h"
#include "runtime/base/file.h"
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
  std::string ending(name.substr(dot + 1));
  std::transform(ending.begin(), ending.end(), ending.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return NameParts{name.substr(0, dot), std::move(ending)};
}

bool IsImageEnding(const std::string& ending) { return IsImageName("x." + ending); }

std::vector<TarMember> MembersOf(const std::string& path) { return TarMembers(InputFile(path, std::numeric_limits<int64_t>::max())); }

// One array: a file of each sample.
struct Wanted {
  std::string feed, array;
  std::vector<TarMember> members = {};

  bool Takes(const std::string& ending) const {
    return array == "images" ? IsImageEnding(ending) : ending == (array == "labels" ? "cls" : array);
  }
  bool is_image() const { return array == "images" || IsImageEnding(array); }
};

class Samples {
 public:
  Samples(const std::string& path, std::vector<Wanted>& wanted) : path_(path), wanted_(wanted) {}

  void Run() {
    for (TarMember& member : MembersOf(path_)) {
      const std::optional<NameParts> parts = PartsOf(member.name);
      if (!parts) continue;
      if (count_ == 0 || parts->key != key_) {
        Finish();
        key_ = parts->key;
        endings_.clear();
        ++count_;
      }
      endings_.push_back(parts->ending);
      for (Wanted& one : wanted_) {
        if (!one.Takes(parts->ending)) continue;
        if (std::ssize(one.members) == count_) Fail("has two files for '" + Escaped(one.array, 40) + "'", one);
        // Several arrays may read one file.
        one.members.push_back(member);
      }
    }
    Finish();
    if (count_ == 0) throw Error(ErrorCode::kData, "the archive has no samples", Escaped(path_, 4096), "its files need endings: 0001.jpg");
  }

 private:
  void Finish() const {
    if (count_ == 0) return;
    for (const Wanted& one : wanted_) {
      if (std::ssize(one.members) < count_) Fail("has no file for '" + Escaped(one.array, 40) + "'", one);
    }
  }

  [[noreturn]] void Fail(const std::string& what, const Wanted& one) const {
    Listing has(8);
    for (const std::string& ending : endings_) has.Add("." + Escaped(ending, 40));
    throw Error(ErrorCode::kData, "the sample '" + Escaped(key_, 200) + "' " + what, Escaped(path_, 4096),
                "it has " + has.text() + "; choose one for each input and target: --map " + Escaped(one.feed) +
                    "=ENDING. The files of a sample must stand together");
  }

  const std::string& path_;
  std::vector<Wanted>& wanted_;
  int64_t count_ = 0;  // of samples, including the current one
  std::string key_;    // of the current sample
  std::vector<std::string> endings_;
};

// The numbers in texts: int64 if all are whole, else float32; [samples] or [samples, numbers].
class Numbers {
 public:
  explicit Numbers(const InputFile& archive) : archive_(archive) {}

  void Add(const TarMember& member) {
    const std::string where = Escaped(archive_.path() + "/" + member.name, 4096);
    const size_t before = values_.size();
    if (member.bytes > kMaxText)
      throw Error(ErrorCode::kData, "text of " + std::to_string(member.bytes) + " bytes, too much for numbers", where);
    std::string text(static_cast<size_t>(member.bytes), '\0');
    if (!text.empty()) archive_.ReadAt(member.offset, text.data(), member.bytes);
    for (size_t at = text.find_first_not_of(kSpaces); at != std::string::npos; at = text.find_first_not_of(kSpaces, at)) {
      const size_t end = std::min(text.find_first_of(kSpaces, at), text.size());
      AddNumber(std::string_view(text).substr(at, end - at), where);
      at = end;
    }
    const auto found = static_cast<int64_t>(values_.size() - before);
    if (samples_++ == 0) each_ = found;
    if (found == 0) throw Error(ErrorCode::kData, "there is no number", where);
    if (found != each_) {
      throw Error(ErrorCode::kData, Counted(found, "number") + ", but the samples before have " + std::to_string(each_), where);
    }
  }

  Tensor Take() const {
    const Shape shape = each_ == 1 ? Shape{samples_} : Shape{samples_, each_};
    return whole_.size() == values_.size() ? Tensor::From(whole_, shape) : Converted(Tensor::From(values_, shape).view(), DType::kFloat32);
  }

 private:
  void AddNumber(std::string_view word, const std::string& where) {
    const std::optional<int64_t> whole = ReadNumber<int64_t>(word);
    const std::optional<double> number = whole ? static_cast<double>(*whole) : ReadNumber<double>(word);
    if (!number) throw Error(ErrorCode::kData, "'" + Escaped(word, 40) + "' is not a number", where);
    if (whole) whole_.push_back(*whole);
    values_.push_back(*number);
  }

  const InputFile& archive_;
  int64_t samples_ = 0, each_ = 0;  // and the numbers of each
  std::vector<double> values_;
  std::vector<int64_t> whole_;  // those of them that are
};

}  // namespace

Dataset LoadArchive(const DataFile& file, const std::vector<Feed>& feeds, const ColumnMap& columns) {
  std::vector<Wanted> wanted;
  for (size_t i = 0; i < feeds.size(); ++i) {
    const auto mapped = columns.find(feeds[i].name);
    wanted.push_back({feeds[i].name, mapped != columns.end() ? mapped->second : i == 0 ? "images" : "labels"});
  }
  Samples(file.path, wanted).Run();
  const InputFile archive(file.path, std::numeric_limits<int64_t>::max());
  Dataset data;
  for (size_t i = 0; i < feeds.size(); ++i) {
    if (wanted[i].is_image()) {
      const Shape row(std::vector<int64_t>(feeds[i].shape.begin() + (feeds[i].shape.rank() > 0 ? 1 : 0), feeds[i].shape.end()));
      data.set_source(feeds[i].name, MakeImageRows(file.path, std::move(wanted[i].members), row));
    } else {
      Numbers numbers(archive);
      for (const TarMember& member : wanted[i].members) numbers.Add(member);
      data.set_column(feeds[i].name, numbers.Take());
    }
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
