#include "runtime/data/npy.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cctype>
#include <charconv>
#include <cstring>
#include <iterator>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/checked.h"
#include "runtime/base/file.h"
#include "runtime/base/utf8.h"
#include "runtime/data/column_major.h"
#include "runtime/data/spill_buffer.h"

namespace gradloom {
namespace {

static_assert(std::endian::native == std::endian::little, "the readers and writers assume a little-endian machine");

constexpr std::string_view kMagic("\x93NUMPY", 6);

// numpy's own limit for headers from untrusted sources is 10,000.
constexpr int64_t kMaxHeaderBytes = 64 << 10;

struct NumpyType {
  DType dtype;
  std::string_view code;  // kind and size in bytes
};

constexpr std::array kTypes = {
    NumpyType{DType::kFloat16, "f2"}, NumpyType{DType::kFloat32, "f4"}, NumpyType{DType::kFloat64, "f8"}, NumpyType{DType::kInt8, "i1"},
    NumpyType{DType::kInt16, "i2"},   NumpyType{DType::kInt32, "i4"},   NumpyType{DType::kInt64, "i8"},   NumpyType{DType::kUint8, "u1"},
    NumpyType{DType::kUint16, "u2"},  NumpyType{DType::kUint32, "u4"},  NumpyType{DType::kUint64, "u8"},  NumpyType{DType::kBool, "b1"},
};

struct Header {
  DType dtype = DType::kUndefined;
  bool big_endian = false;
  bool fortran_order = false;
  bool unicode = false;  // of kString, which is fixed-width text: four bytes per character instead of one
  int64_t element_bytes = 0;
  Shape shape;
};

// Parses the header, a Python dict with three known keys. Other Python syntax is rejected.
class HeaderParser {
 public:
  HeaderParser(std::string_view text, const std::string& where) : text_(text), where_(where) {}

  Header Parse() {
    Header header;
    bool descr = false, order = false, shape = false;
    Expect('{');
    while (!Accept('}')) {
      const std::string_view key = String();
      Expect(':');
      if (key == "descr" && !descr) {
        descr = true;
        Descr(header);
      } else if (key == "fortran_order" && !order) {
        order = true;
        header.fortran_order = Bool();
      } else if (key == "shape" && !shape) {
        shape = true;
        header.shape = Tuple();
      } else {
        Fail("unexpected or repeated key '" + Escaped(key, 40) + "'");
      }
      if (!Accept(',')) {
        Expect('}');
        break;
      }
    }
    SkipSpace();
    if (at_ != text_.size()) Fail("text after the closing brace");
    if (!descr || !order || !shape) Fail("a key is missing");
    return header;
  }

 private:
  [[noreturn]] void Fail(const std::string& why) const {
    throw Error(ErrorCode::kData, "the .npy header is damaged: " + why + " at its byte " + std::to_string(at_), where_);
  }

  void SkipSpace() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t')) ++at_;
  }

  bool Accept(char c) {
    SkipSpace();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  void Expect(char c) {
    if (!Accept(c)) Fail(std::string("expected '") + c + "'");
  }

  std::string_view String() {
    SkipSpace();
    const char quote = at_ < text_.size() ? text_[at_] : '\0';
    if (quote != '\'' && quote != '"') Fail("expected a string");
    const size_t end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos) Fail("unterminated string");
    const std::string_view value = text_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    return value;
  }

  bool Bool() {
    SkipSpace();
    for (const bool value : {false, true}) {
      const std::string_view word = value ? "True" : "False";
      if (text_.substr(at_, word.size()) == word) {
        at_ += word.size();
        return value;
      }
    }
    Fail("expected True or False");
  }

  Shape Tuple() {
    Shape shape;
    Expect('(');
    while (!Accept(')')) {
      SkipSpace();
      int64_t dim = 0;
      const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), dim);
      if (error != std::errc()) Fail("expected a dimension");
      at_ = static_cast<size_t>(end - text_.data());
      if (at_ < text_.size() && text_[at_] == 'L') ++at_;  // Python 2 wrote long integers with this suffix
      if (dim < 0) Fail("a negative dimension");
      if (shape.rank() == kMaxRank) Fail("more than " + std::to_string(kMaxRank) + " dimensions");
      shape.push_back(dim);
      if (!Accept(',')) {
        Expect(')');
        break;
      }
    }
    return shape;
  }

  void Descr(Header& header) {
    SkipSpace();
    if (at_ < text_.size() && text_[at_] == '[') {
      throw Error(ErrorCode::kData, "the array holds records (a structured dtype)", where_, "save each field as an array of its own");
    }
    std::string_view text = String();
    const std::string whole(text);
    const char order = text.empty() ? '\0' : text[0];
    if (order == '<' || order == '>' || order == '|' || order == '=') text.remove_prefix(1);
    if (text.starts_with('O')) {
      throw Error(ErrorCode::kData, "the array holds pickled Python objects, and reading them would run code from the file", where_,
                  "save it as numbers: array.astype('float32')");
    }
    for (const NumpyType& type : kTypes) {
      if (type.code != text) continue;
      header.dtype = type.dtype;
      header.big_endian = order == '>';
      header.element_bytes = DTypeBytes(type.dtype);
      return;
    }
    const bool unicode = text.starts_with('U');
    if ((unicode || text.starts_with('S')) && text.size() > 1 && text.size() < 9 &&
        text.find_first_not_of("0123456789", 1) == std::string_view::npos) {
      header.dtype = DType::kString;
      header.unicode = unicode;
      header.big_endian = order == '>';
      header.element_bytes = std::stoll(std::string(text.substr(1))) * (unicode ? 4 : 1);
      return;
    }
    throw Error(ErrorCode::kData, "the array's dtype '" + Escaped(whole, 40) + "' is not supported", where_,
                "save it as float16 to float64, int8 to int64, uint8 to uint64 or bool");
  }

  std::string_view text_;
  const std::string& where_;
  size_t at_ = 0;
};

void SwapBytes(char* data, int64_t elements, int64_t size) {
  for (int64_t i = 0; i < elements; ++i, data += size) std::reverse(data, data + size);
}

// Column-major to row-major.
Tensor FromFortran(const Tensor& tensor) {
  constexpr int64_t kBlockBytes = int64_t{1} << 20;
  Tensor out(tensor.dtype(), tensor.shape());
  const auto* const from = static_cast<const std::byte*>(tensor.data());
  auto* to = static_cast<std::byte*>(out.data());
  const StoredArray array{tensor.dtype(), false, tensor.shape(), [from](int64_t offset, void* piece, int64_t bytes) {
                            std::memcpy(piece, from + offset, static_cast<size_t>(bytes));
                          }};
  ReadRowMajor(array, kBlockBytes, [&](const void* data, int64_t bytes) {
    std::memcpy(to, data, static_cast<size_t>(bytes));
    to += bytes;
  });
  return out;
}

// The checked header, and the number of bytes before the elements.
struct Start {
  Header header;
  int64_t bytes = 0, elements = 0;
};

Start ReadStart(const std::function<void(void*, int64_t)>& read, int64_t bytes, const std::string& where) {
  const auto fail = [&](const std::string& why, const std::string& help = {}) -> Error { return {ErrorCode::kData, why, where, help}; };
  unsigned char start[12] = {};
  if (bytes < 10) throw fail("too short for a .npy file: " + std::to_string(bytes) + " bytes");
  read(start, 8);
  if (std::memcmp(start, kMagic.data(), kMagic.size()) != 0) throw fail("not a .npy file: it does not start with numpy's magic number");
  if (start[6] < 1 || start[6] > 3 || start[7] != 0) {
    throw fail(".npy version " + std::to_string(start[6]) + "." + std::to_string(start[7]) + " is not supported",
               "expected version 1.0 to 3.0");
  }
  const int64_t length_bytes = start[6] == 1 ? 2 : 4;
  if (bytes < 8 + length_bytes) throw fail("the file ends within the .npy header");
  read(start + 8, length_bytes);
  int64_t header_bytes = 0;
  for (int64_t i = length_bytes; i-- > 0;) header_bytes = header_bytes << 8 | start[8 + i];
  const int64_t before = 8 + length_bytes + header_bytes;
  if (before > bytes) throw fail("the file ends within the .npy header");
  if (header_bytes > kMaxHeaderBytes) throw fail("the .npy header has " + std::to_string(header_bytes) + " bytes");
  std::string text(static_cast<size_t>(header_bytes), '\0');
  read(text.data(), header_bytes);
  Header header = HeaderParser(text, where).Parse();

  const auto elements = header.shape.checked_elements();
  const auto wanted = elements ? CheckedMul(*elements, header.element_bytes) : std::nullopt;
  if (!wanted) throw fail("the shape " + header.shape.ToString() + " has more elements than any file");
  if (*wanted != bytes - before) {
    throw fail("the shape " + header.shape.ToString() + " of " + std::string(DTypeName(header.dtype)) + " needs " +
               std::to_string(*wanted) + " bytes, but the file has " + std::to_string(bytes - before));
  }
  return {std::move(header), before, *elements};
}

// The same for an array of numbers.
Start ReadNumbersStart(const std::function<void(void*, int64_t)>& read, int64_t bytes, const std::string& where) {
  Start start = ReadStart(read, bytes, where);
  if (start.header.dtype != DType::kString) return start;
  throw Error(ErrorCode::kData, "the array holds text, not numbers", where,
              "save numbers instead: array.astype('int64') if the text is digits; for names of classes, "
              "names, labels = numpy.unique(array, return_inverse=True) numbers them from 0 in the order of the names");
}

// The elements after the header.
Tensor Numbers(const std::function<void(void*, int64_t)>& read, const Start& start) {
  const Header& header = start.header;
  Tensor tensor(header.dtype, header.shape);
  if (tensor.bytes() > 0) read(tensor.data(), tensor.bytes());
  if (header.big_endian && header.element_bytes > 1) SwapBytes(static_cast<char*>(tensor.data()), start.elements, header.element_bytes);
  if (header.dtype == DType::kBool) {
    // Any other value in a bool is undefined behaviour.
    unsigned char* element = static_cast<unsigned char*>(tensor.data());
    for (int64_t i = 0; i < start.elements; ++i) element[i] = element[i] != 0;
  }
  return header.fortran_order && header.shape.rank() > 1 ? FromFortran(tensor) : tensor;
}

}  // namespace

std::string NpyText::operator[](int64_t i) const {
  const char* const data = bytes.data() + i * width;
  std::string string;
  if (unicode) {
    for (int64_t at = 0; at < width; at += 4) {
      uint32_t point;
      std::memcpy(&point, data + at, 4);
      string += Utf8Of(big_endian ? __builtin_bswap32(point) : point);
    }
  } else {
    string.assign(data, static_cast<size_t>(width));
  }
  string.erase(string.find_last_not_of('\0') + 1);
  return string;
}

NpyArray ReadAnyNpyFrom(const std::function<void(void*, int64_t)>& read, int64_t bytes, const std::string& where) {
  const Start start = ReadStart(read, bytes, where);
  const Header& header = start.header;
  if (header.dtype != DType::kString) return {Numbers(read, start), std::nullopt};
  NpyText text{.size = start.elements, .width = header.element_bytes, .unicode = header.unicode, .big_endian = header.big_endian};
  text.bytes.resize(static_cast<size_t>(bytes - start.bytes));
  if (!text.bytes.empty()) read(text.bytes.data(), std::ssize(text.bytes));
  return {{}, std::move(text)};
}

Tensor ReadNpyFrom(const std::function<void(void*, int64_t)>& read, int64_t bytes, const std::string& where) {
  return Numbers(read, ReadNumbersStart(read, bytes, where));
}

NpyHead ReadNpyHead(const std::function<void(void*, int64_t)>& read, int64_t bytes, const std::string& where) {
  const Start start = ReadNumbersStart(read, bytes, where);
  const Header& header = start.header;
  return {{header.dtype, header.big_endian, header.shape, {}}, header.fortran_order && header.shape.rank() > 1, start.bytes};
}

TensorView ReadNpyTypeFrom(const std::function<void(void*, int64_t)>& read, int64_t bytes, const std::string& where) {
  const Start start = ReadStart(read, bytes, where);
  return {start.header.dtype, start.header.shape, nullptr};
}

namespace {

// Reads the bytes of a file one after the other.
std::function<void(void* out, int64_t bytes)> InOrder(const InputFile& file) {
  return [&file, at = int64_t{0}](void* out, int64_t bytes) mutable {
    file.ReadAt(at, out, bytes);
    at += bytes;
  };
}

}  // namespace

Tensor ReadNpy(const std::string& path, int64_t limit_bytes) {
  const InputFile file(path, limit_bytes);
  return ReadNpyFrom(InOrder(file), file.bytes(), Escaped(path, 4096));
}

TensorView NpyType(const std::string& path) {
  const InputFile file(path, kDataLimitBytes);
  return ReadNpyTypeFrom(InOrder(file), file.bytes(), Escaped(path, 4096));
}

std::optional<StoredArray> OpenNpy(const std::string& path, const CopyRule& copies) {
  const auto file = std::make_shared<const InputFile>(path, kDataLimitBytes);
  NpyHead head = ReadNpyHead(InOrder(*file), file->bytes(), Escaped(path, 4096));
  if (head.column_major && !copies.Copies(head.array.dtype, head.array.shape)) return std::nullopt;
  head.array.read = [file, start = head.bytes](int64_t offset, void* out, int64_t bytes) { file->ReadAt(start + offset, out, bytes); };
  return head.column_major ? SpilledRowMajor(head.array, Escaped(path, 4096)) : std::move(head.array);
}

std::string NpyHeader(DType dtype, const Shape& shape) {
  const auto type = std::find_if(kTypes.begin(), kTypes.end(), [&](const NumpyType& t) { return t.dtype == dtype; });
  if (type == kTypes.end()) {
    throw Error(ErrorCode::kType, "numpy does not support " + std::string(DTypeName(dtype)), {}, "convert the tensor to float32 first");
  }
  std::string dims;
  for (const int64_t dim : shape) dims += std::to_string(dim) + ", ";
  if (shape.rank() > 1) dims.resize(dims.size() - 2);
  if (shape.rank() == 1) dims.pop_back();
  std::string text = "{'descr': '" + std::string(DTypeBytes(dtype) == 1 ? "|" : "<") + std::string(type->code) +
                     "', 'fortran_order': False, 'shape': (" + dims + "), }";
  // Version 1.0: magic, two version bytes, two of length, the dict, spaces, a newline.
  const size_t unpadded = kMagic.size() + 4 + text.size() + 1;
  text.append((64 - unpadded % 64) % 64, ' ');
  text += '\n';
  std::string header(kMagic);
  header += {'\x01', '\x00', static_cast<char>(text.size() & 0xFF), static_cast<char>(text.size() >> 8)};
  return header + text;
}

}  // namespace gradloom
