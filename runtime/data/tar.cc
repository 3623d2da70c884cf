#include "runtime/data/tar.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/read_number.h"

namespace gradloom {
namespace {

constexpr int64_t kBlock = 512;
constexpr int64_t kMaxName = 4096, kMaxExtension = 1 << 20;

// A header. Fields are text that ends with a zero byte or the field (POSIX.1-2017, pax, "ustar Interchange Format").
class Header {
 public:
  explicit Header(const InputFile& file, int64_t at) { file.ReadAt(at, bytes_.data(), kBlock); }

  bool is_empty() const {
    return std::all_of(bytes_.begin(), bytes_.end(), [](char c) { return c == 0; });
  }
  char type() const { return bytes_[156]; }
  bool is_ustar() const { return Text(257, 5) == "ustar"; }
  bool has_gzip_magic() const { return bytes_[0] == '\x1F' && bytes_[1] == '\x8B'; }

  std::string Name() const {
    const std::string_view name = Text(0, 100);
    // GNU's own format has times in the place of the prefix.
    const std::string_view prefix = is_ustar() && bytes_[262] == 0 ? Text(345, 155) : std::string_view();
    return prefix.empty() ? std::string(name) : std::string(prefix) + "/" + std::string(name);
  }

  std::optional<int64_t> Size() const {
    // GNU's form for large numbers: big-endian, marked by the highest bit.
    if ((bytes_[124] & 0x80) != 0) {
      int64_t size = 0;
      for (size_t i = 124 + 4; i < 124 + 12; ++i) size = size << 8 | static_cast<unsigned char>(bytes_[i]);
      return size >= 0 ? std::optional(size) : std::nullopt;
    }
    return Octal(124, 12);
  }

  bool HasRightSum() const {
    int64_t sum = 0;
    for (size_t i = 0; i < bytes_.size(); ++i) sum += i >= 148 && i < 156 ? ' ' : static_cast<unsigned char>(bytes_[i]);
    return Octal(148, 8) == sum;
  }

 private:
  std::string_view Text(size_t at, size_t bytes) const {
    const std::string_view field(bytes_.data() + at, bytes);
    return field.substr(0, field.find('\0'));
  }

  std::optional<int64_t> Octal(size_t at, size_t bytes) const {
    int64_t number = 0;
    std::string_view digits = Text(at, bytes);
    while (digits.starts_with(' ')) digits.remove_prefix(1);
    while (digits.ends_with(' ')) digits.remove_suffix(1);
    for (const char c : digits) {
      if (c < '0' || c > '7') return std::nullopt;
      number = number * 8 + (c - '0');  // at most 12 digits
    }
    return number;
  }

  std::array<char, kBlock> bytes_{};
};

// What the records before a member say about it.
struct Extension {
  std::optional<std::string> name;
  std::optional<int64_t> size;
};

class Reader {
 public:
  explicit Reader(const InputFile& file) : file_(file) {}

  std::vector<TarMember> Run() {
    while (at_ + kBlock <= file_.bytes()) {
      const Header header(file_, at_);
      if (header.is_empty()) {
        CheckEnd();
        return std::move(members_);
      }
      if (!header.HasRightSum()) Refuse(header);
      const std::optional<int64_t> size = SizeOf(header);
      content_ = at_ + kBlock;
      if (!size || *size > file_.bytes() - content_) Damaged("a member ends beyond the end of the archive");
      Take(header, *size);
      at_ = content_ + (*size + kBlock - 1) / kBlock * kBlock;
    }
    if (file_.bytes() == 0) throw Error(ErrorCode::kData, "the file is empty", Where());
    Damaged(at_ < file_.bytes() ? "it ends within a header" : "it ends without the mark of its end, and may be truncated");
  }

 private:
  std::string Where() const { return Escaped(file_.path(), 4096); }
  [[noreturn]] void Damaged(const std::string& what) const {
    throw Error(ErrorCode::kData, "the archive is damaged: " + what, Where() + " byte " + std::to_string(at_));
  }
  [[noreturn]] void Refuse(const Header& header) const {
    if (at_ > 0) Damaged("a header has a wrong checksum");
    throw Error(ErrorCode::kData, "this is no tar archive", Where(),
                header.has_gzip_magic() ? "it is compressed: unpack it first, since rows are read in any order" : "");
  }

  // Links, devices, folders and pipes have no content, whatever their headers say.
  std::optional<int64_t> SizeOf(const Header& header) const {
    if (header.type() >= '1' && header.type() <= '6') return 0;
    return extension_.size && IsFile(header) ? extension_.size : header.Size();
  }

  // After the mark there is only padding, unless archives have been joined by cat.
  void CheckEnd() const {
    std::string rest(static_cast<size_t>(std::min(file_.bytes() - at_, kMaxExtension)), '\0');
    if (!rest.empty()) file_.ReadAt(at_, rest.data(), std::ssize(rest));
    if (rest.find_first_not_of('\0') == std::string::npos) return;
    throw Error(ErrorCode::kData, "something follows the end of the archive", Where() + " byte " + std::to_string(at_),
                "keep archives in files of their own, and name all of them: 'shards/*.tar'");
  }

  static bool IsFile(const Header& header) { return header.type() == '0' || header.type() == 0 || header.type() == '7'; }

  void Take(const Header& header, int64_t size) {
    switch (header.type()) {
      case 'x': return TakePax(Content(size));
      case 'L': {
        std::string name = Content(size);
        name.resize(std::min(name.find('\0'), name.size()));
        extension_.name = std::move(name);
        return;
      }
      case 'g':
      case 'K': return;
      case '1':
      case '2':
        throw Error(ErrorCode::kData, "a link is not supported", Where() + " byte " + std::to_string(at_),
                    "write the archive with tar --dereference --hard-dereference");
      case 'S': throw Error(ErrorCode::kData, "a sparse member is not supported", Where() + " byte " + std::to_string(at_));
      default: break;
    }
    Extension said = std::exchange(extension_, {});
    std::string name = said.name ? *std::move(said.name) : header.Name();
    if (std::ssize(name) > kMaxName) Damaged("a name has " + std::to_string(name.size()) + " bytes");
    if (IsFile(header) && !name.ends_with('/')) members_.push_back({std::move(name), content_, size});
  }

  std::string Content(int64_t bytes) const {
    if (bytes > kMaxExtension) Damaged("an extended header has " + std::to_string(bytes) + " bytes");
    std::string text(static_cast<size_t>(bytes), '\0');
    if (bytes > 0) file_.ReadAt(content_, text.data(), bytes);
    return text;
  }

  // Records "LENGTH KEY=VALUE\n", whose length counts all of it.
  void TakePax(std::string_view text) {
    while (!text.empty()) {
      std::string_view rest = text;
      const std::optional<size_t> length = TakeNumber<size_t>(rest);
      const size_t used = text.size() - rest.size();
      if (!length || *length > text.size() || *length < used + 2 || text[used] != ' ' || text[*length - 1] != '\n')
        Damaged("an extended header is malformed");
      const std::string_view record = text.substr(used + 1, *length - used - 2);
      const size_t equals = record.find('=');
      if (equals == std::string_view::npos) Damaged("an extended header is malformed");
      const std::string_view key = record.substr(0, equals), value = record.substr(equals + 1);
      if (key == "path") extension_.name = std::string(value);
      if (key == "size") {
        extension_.size = ReadNumber<int64_t>(value);
        if (extension_.size.value_or(-1) < 0) Damaged("an extended header is malformed");
      }
      text.remove_prefix(*length);
    }
  }

  const InputFile& file_;
  int64_t at_ = 0, content_ = 0;  // of a member's header and content
  Extension extension_;           // for the next member
  std::vector<TarMember> members_;
};

}  // namespace

std::vector<TarMember> TarMembers(const InputFile& file) { return Reader(file).Run(); }

}  // namespace gradloom
