#include "runtime/data/npz.h"

#include <fcntl.h>
#include <unistd.h>
#include <zip.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/checked.h"
#include "runtime/base/file.h"
#include "runtime/data/npy.h"
#include "runtime/data/spill_buffer.h"

namespace gradloom {
namespace {

constexpr std::string_view kSuffix = ".npy";

// Deflate encodes at most 258 bytes in 2 bits; an entry that claims a higher ratio is invalid.
constexpr uint64_t kMaxDeflateRatio = 1032;

struct ArchiveDeleter {
  void operator()(zip_t* archive) const { zip_discard(archive); }
};
using Archive = std::unique_ptr<zip_t, ArchiveDeleter>;

struct EntryDeleter {
  void operator()(zip_file_t* entry) const { zip_fclose(entry); }
};
using Entry = std::unique_ptr<zip_file_t, EntryDeleter>;

std::string ErrorText(int code) {
  zip_error_t error;
  zip_error_init_with_code(&error, code);
  const std::string text = zip_error_strerror(&error);
  zip_error_fini(&error);
  return text;
}

// Names are not used as paths here, but other tools extract the same files.
bool EscapesFolder(std::string_view name) {
  while (true) {
    const size_t end = name.find_first_of("/\\");
    if (name.substr(0, end) == "..") return true;
    if (end == std::string_view::npos) return false;
    name.remove_prefix(end + 1);
  }
}

struct EntryInfo {
  zip_uint64_t index;
  std::string name;  // of the array
  int64_t bytes;
  bool compressed;
};

// Checks the claims of one entry without unpacking it. `where` names the file.
EntryInfo CheckEntry(zip_t* archive, zip_uint64_t index, const std::string& where) {
  zip_stat_t status;
  if (zip_stat_index(archive, index, 0, &status) != 0) {
    throw Error(ErrorCode::kData, std::string("damaged .npz file: ") + zip_strerror(archive), where);
  }
  constexpr zip_uint64_t kRequiredFields =
      ZIP_STAT_NAME | ZIP_STAT_SIZE | ZIP_STAT_COMP_SIZE | ZIP_STAT_COMP_METHOD | ZIP_STAT_ENCRYPTION_METHOD;
  if ((status.valid & kRequiredFields) != kRequiredFields)
    throw Error(ErrorCode::kData, "damaged .npz file: entry " + std::to_string(index), where);
  const std::string_view name = status.name;
  const std::string place = where + " entry '" + Escaped(name) + "'";
  if (EscapesFolder(name)) throw Error(ErrorCode::kData, "the entry's name points outside the folder", place);
  if (!name.ends_with(kSuffix)) {
    throw Error(ErrorCode::kData, "the entry is not an array: its name does not end in .npy", place, "write the file with numpy.savez");
  }
  if (status.encryption_method != ZIP_EM_NONE)
    throw Error(ErrorCode::kData, "the entry is encrypted", place, "write the file again with numpy.savez");
  if (status.comp_method != ZIP_CM_STORE && status.comp_method != ZIP_CM_DEFLATE) {
    throw Error(ErrorCode::kData, "unsupported compression method " + std::to_string(status.comp_method), place,
                "write the file with numpy.savez or numpy.savez_compressed");
  }
  const uint64_t most = status.comp_method == ZIP_CM_STORE                 ? status.comp_size
                        : status.comp_size > UINT64_MAX / kMaxDeflateRatio ? UINT64_MAX
                                                                           : status.comp_size * kMaxDeflateRatio;
  if (status.size > most || status.size > INT64_MAX) {
    throw Error(
        ErrorCode::kData,
        "the entry claims " + std::to_string(status.size) + " bytes, more than its " + std::to_string(status.comp_size) + " can hold",
        place);
  }
  return {index, std::string(name.substr(0, name.size() - kSuffix.size())), static_cast<int64_t>(status.size),
          status.comp_method != ZIP_CM_STORE};
}

std::string PlaceOf(const EntryInfo& info, const std::string& where) { return where + " entry '" + Escaped(info.name) + ".npy'"; }

Error UnpackError(const std::string& why, const std::string& place) {
  return {ErrorCode::kData, "the entry cannot be unpacked: " + why, place};
}

Entry OpenEntry(zip_t* archive, const EntryInfo& info, const std::string& place) {
  Entry entry(zip_fopen_index(archive, info.index, 0));
  if (!entry) throw Error(ErrorCode::kData, std::string("the entry cannot be read: ") + zip_strerror(archive), place);
  return entry;
}

// Reads exactly the next `bytes` bytes.
void ReadFrom(zip_file_t* entry, void* out, int64_t bytes, const std::string& place) {
  char* to = static_cast<char*>(out);
  while (bytes > 0) {
    const zip_int64_t got = zip_fread(entry, to, static_cast<zip_uint64_t>(bytes));
    if (got < 0) throw UnpackError(zip_file_strerror(entry), place);
    if (got == 0) throw UnpackError("it is shorter than it claims", place);
    to += got, bytes -= got;
  }
}

// Checks that the entry ends here. Reaching the end also makes libzip verify the checksum.
void CheckEnd(zip_file_t* entry, const std::string& place) {
  char more;
  const zip_int64_t got = zip_fread(entry, &more, 1);
  if (got < 0) throw UnpackError(zip_file_strerror(entry), place);
  if (got > 0) throw UnpackError("it is longer than it claims", place);
}

// Calls `read_from`, which is ReadNpyFrom or ReadAnyNpyFrom, for an entry.
template <typename ReadArray>
auto ReadEntry(zip_t* archive, const EntryInfo& info, const std::string& where, ReadArray read_from) {
  const std::string place = PlaceOf(info, where);
  const Entry entry = OpenEntry(archive, info, place);
  auto array = read_from([&](void* out, int64_t bytes) { ReadFrom(entry.get(), out, bytes, place); }, info.bytes, place);
  CheckEnd(entry.get(), place);
  return array;
}

// The elements of an entry, copied; nullopt if the rule does not say so.
std::optional<StoredArray> UnpackEntry(zip_t* archive, const EntryInfo& info, const CopyRule& copies, const std::string& where) {
  const std::string place = PlaceOf(info, where);
  const Entry entry = OpenEntry(archive, info, place);
  const auto read = [&](void* out, int64_t bytes) { ReadFrom(entry.get(), out, bytes, place); };
  NpyHead head = ReadNpyHead(read, info.bytes, place);
  if (!copies.Copies(head.array.dtype, head.array.shape)) return std::nullopt;
  head.array.read = Spilled(read, info.bytes - head.bytes, place);
  CheckEnd(entry.get(), place);
  return head.column_major ? SpilledRowMajor(head.array, place) : std::move(head.array);
}

// The output of libzip: an AtomicFile, so that errors are Gradloom's and the file appears complete or not at all.
struct ZipOutput {
  explicit ZipOutput(const std::string& path) : file(path) { zip_error_init(&error); }
  ~ZipOutput() { zip_error_fini(&error); }
  AtomicFile file;
  int64_t position = 0;
  std::exception_ptr failure;
  zip_error_t error;

  zip_int64_t Run(void* data, zip_uint64_t length, zip_source_cmd_t command) {
    switch (command) {
      case ZIP_SOURCE_SUPPORTS:
        return zip_source_make_command_bitmap(ZIP_SOURCE_OPEN, ZIP_SOURCE_READ, ZIP_SOURCE_CLOSE, ZIP_SOURCE_STAT, ZIP_SOURCE_ERROR,
                                              ZIP_SOURCE_FREE, ZIP_SOURCE_SEEK, ZIP_SOURCE_TELL, ZIP_SOURCE_SUPPORTS,
                                              ZIP_SOURCE_BEGIN_WRITE, ZIP_SOURCE_COMMIT_WRITE, ZIP_SOURCE_ROLLBACK_WRITE, ZIP_SOURCE_WRITE,
                                              ZIP_SOURCE_SEEK_WRITE, ZIP_SOURCE_TELL_WRITE, ZIP_SOURCE_REMOVE, -1);
      case ZIP_SOURCE_STAT: {
        zip_stat_t* status = static_cast<zip_stat_t*>(data);
        zip_stat_init(status);
        status->size = 0;
        status->valid = ZIP_STAT_SIZE;
        return sizeof *status;
      }
      case ZIP_SOURCE_ERROR: return zip_error_to_data(&error, data, length);
      case ZIP_SOURCE_TELL_WRITE: return position;
      case ZIP_SOURCE_SEEK_WRITE: {
        const zip_int64_t to = zip_source_seek_compute_offset(static_cast<zip_uint64_t>(position), INT64_MAX, data, length, &error);
        if (to < 0) return -1;
        file.Seek(to);
        position = to;
        return 0;
      }
      case ZIP_SOURCE_WRITE:
        file.Write(data, static_cast<int64_t>(length));
        position += static_cast<int64_t>(length);
        return static_cast<zip_int64_t>(length);
      case ZIP_SOURCE_READ:  // a new archive has nothing to read
      case ZIP_SOURCE_TELL:
      case ZIP_SOURCE_OPEN:
      case ZIP_SOURCE_CLOSE:
      case ZIP_SOURCE_SEEK:
      case ZIP_SOURCE_FREE:
      case ZIP_SOURCE_BEGIN_WRITE:
      case ZIP_SOURCE_COMMIT_WRITE:
      case ZIP_SOURCE_ROLLBACK_WRITE:
      case ZIP_SOURCE_REMOVE: return 0;
      default: break;
    }
    zip_error_set(&error, ZIP_ER_OPNOTSUPP, 0);
    return -1;
  }

  // No exception may pass through libzip's C code.
  static zip_int64_t Callback(void* self, void* data, zip_uint64_t length, zip_source_cmd_t command) {
    ZipOutput& output = *static_cast<ZipOutput*>(self);
    try {
      return output.Run(data, length, command);
    } catch (...) {
      output.failure = std::current_exception();
      zip_error_set(&output.error, ZIP_ER_WRITE, EIO);
      return -1;
    }
  }

  // Throws the error of the output behind a failed call, or `why` if there is none.
  [[noreturn]] void Fail(const std::string& path, const std::string& why) {
    if (failure) std::rethrow_exception(failure);
    throw Error(ErrorCode::kResource, "cannot write the file: " + why, Escaped(path, 4096));
  }
};

void AddEntry(zip_t* archive, const std::string& name, const std::string& header, const TensorView& tensor, bool compress) {
  // libzip rejects fragments of length 0.
  zip_buffer_fragment_t parts[2] = {{reinterpret_cast<zip_uint8_t*>(const_cast<char*>(header.data())), header.size()},
                                    {static_cast<zip_uint8_t*>(const_cast<void*>(tensor.data)), static_cast<zip_uint64_t>(tensor.bytes())}};
  zip_source_t* source = zip_source_buffer_fragment(archive, parts, tensor.bytes() > 0 ? 2 : 1, 0);
  const auto fail = [&] {
    return Error(ErrorCode::kResource, std::string("cannot write the entry: ") + zip_strerror(archive), Escaped(name));
  };
  if (source == nullptr) throw fail();
  const zip_int64_t added = zip_file_add(archive, (name + std::string(kSuffix)).c_str(), source, ZIP_FL_ENC_UTF_8);
  if (added < 0) {
    zip_source_free(source);
    throw fail();
  }
  const zip_uint64_t index = static_cast<zip_uint64_t>(added);
  constexpr zip_uint16_t kFirstOf1980 = 1 << 5 | 1;  // the earliest date that zip can represent
  if (zip_set_file_compression(archive, index, compress ? ZIP_CM_DEFLATE : ZIP_CM_STORE, 0) != 0 ||
      zip_file_set_dostime(archive, index, 0, kFirstOf1980, 0) != 0) {
    throw fail();
  }
}

// An open archive whose entries have been checked.
struct CheckedArchive {
  Archive archive;
  std::vector<EntryInfo> entries;
};

CheckedArchive OpenArchive(const std::string& path, int64_t limit_bytes = kDataLimitBytes) {
  const InputFile file(path, limit_bytes);
  const std::string where = Escaped(path, 4096);
  const int fd = ::fcntl(file.fd(), F_DUPFD_CLOEXEC, 0);
  const auto shortage = [&](int error) {
    return Error(ErrorCode::kResource, std::string("cannot open the file: ") + std::strerror(error), where,
                 "check the process's limits with ulimit -a");
  };
  if (fd < 0) throw shortage(errno);
  int code = 0;
  errno = 0;
  Archive archive(zip_fdopen(fd, ZIP_CHECKCONS, &code));
  if (!archive) {
    const int error = errno;
    ::close(fd);
    if (code == ZIP_ER_EXISTS)
      throw Error(ErrorCode::kData, "two entries have the same name", where, "write the file again with numpy.savez, each array once");
    // libzip opens the file again.
    if (error == EMFILE || error == ENFILE) throw shortage(error);
    throw Error(ErrorCode::kData, "not a .npz file: " + ErrorText(code), where,
                "it may be truncated: copy it again, or write it again with numpy.savez");
  }
  std::vector<EntryInfo> entries;
  std::set<std::string> names;
  int64_t total = 0;
  const int64_t unpacked = UnpackedLimit(file.bytes(), limit_bytes);
  const zip_int64_t count = zip_get_num_entries(archive.get(), 0);
  for (zip_int64_t i = 0; i < count; ++i) {
    entries.push_back(CheckEntry(archive.get(), static_cast<zip_uint64_t>(i), where));
    const auto sum = CheckedAdd(total, entries.back().bytes);
    if (!sum || *sum > unpacked) {
      throw Error(ErrorCode::kLimit, "unpacked, the arrays have more bytes than the limit of " + std::to_string(unpacked), where);
    }
    total = *sum;
    if (!names.insert(entries.back().name).second)
      throw Error(ErrorCode::kData, "two entries are named '" + Escaped(entries.back().name) + ".npy'", where);
  }
  return {std::move(archive), std::move(entries)};
}

int64_t LittleEndian(std::string_view bytes) {
  int64_t value = 0;
  for (size_t i = bytes.size(); i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

// Bytes of an archive; fewer than asked for, none, where it has not as many.
std::string BytesAt(const InputFile& file, int64_t at, int64_t bytes) {
  if (at < 0 || at > file.bytes() - bytes) return "";
  std::string text(static_cast<size_t>(bytes), '\0');
  file.ReadAt(at, text.data(), bytes);
  return text;
}

// A number in 32 bits that says that there is one in 64 bits elsewhere, because it does not fit.
constexpr int64_t kIn64Bits = 0xFFFFFFFF;

// Where the central directory begins; -1 for an archive that is not written as numpy does.
int64_t FindDirectory(const InputFile& file) {
  constexpr int64_t kEndBytes = 22, kLocatorBytes = 20, kEnd64Bytes = 56;
  const std::string end = BytesAt(file, file.bytes() - kEndBytes, kEndBytes);
  if (!end.starts_with("PK\5\6")) return -1;
  const int64_t begin = LittleEndian(std::string_view(end).substr(16, 4));
  if (begin != kIn64Bits) return begin;
  const std::string locator = BytesAt(file, file.bytes() - kEndBytes - kLocatorBytes, kLocatorBytes);
  if (!locator.starts_with("PK\6\7")) return -1;
  const std::string end64 = BytesAt(file, LittleEndian(std::string_view(locator).substr(8, 8)), kEnd64Bytes);
  return end64.starts_with("PK\6\6") ? LittleEndian(std::string_view(end64).substr(48, 8)) : -1;
}

// Where the header before the bytes of an entry begins, from its record in the central directory and the extra fields after that; -1 like
// FindDirectory. The field of 64-bit numbers has only those that do not fit 32 bits: the unpacked size, the packed size, the offset.
int64_t FindLocalHeader(std::string_view entry, std::string_view extra) {
  const int64_t begin = LittleEndian(entry.substr(42, 4));
  if (begin != kIn64Bits) return begin;
  while (extra.size() >= 4) {
    const auto bytes = static_cast<size_t>(LittleEndian(extra.substr(2, 2)));
    if (LittleEndian(extra.substr(0, 2)) == 1) {
      size_t at = 4;
      for (const size_t size : {24, 20}) at += LittleEndian(entry.substr(size, 4)) == kIn64Bits ? 8 : 0;
      return at + 8 <= std::min(extra.size(), 4 + bytes) ? LittleEndian(extra.substr(at, 8)) : -1;
    }
    extra.remove_prefix(std::min(extra.size(), 4 + bytes));
  }
  return -1;
}

// The offset of the bytes of an entry that is stored uncompressed, which libzip does not provide. -1 for an archive that is not written as
// numpy does: with a comment, or in several parts. `index` refers to the central directory.
int64_t FindStored(const InputFile& file, zip_uint64_t index, int64_t entry_bytes) {
  constexpr int64_t kDirectoryBytes = 46, kLocalBytes = 30;
  const auto read = [&](int64_t at, int64_t bytes) { return BytesAt(file, at, bytes); };
  int64_t at = FindDirectory(file);
  std::string entry, extra;
  for (zip_uint64_t i = 0; i <= index; ++i) {
    entry = read(at, kDirectoryBytes);
    if (!entry.starts_with("PK\1\2")) return -1;
    const auto length = [&](size_t field) { return LittleEndian(std::string_view(entry).substr(field, 2)); };
    extra = read(at + kDirectoryBytes + length(28), length(30));
    at += kDirectoryBytes + length(28) + length(30) + length(32);
  }
  const int64_t local_at = FindLocalHeader(entry, extra);
  const std::string local = read(local_at, kLocalBytes);
  if (!local.starts_with("PK\3\4")) return -1;
  int64_t begin = local_at + kLocalBytes;
  for (const size_t length : {26, 28}) begin += LittleEndian(std::string_view(local).substr(length, 2));
  return begin <= file.bytes() - entry_bytes ? begin : -1;
}

}  // namespace

NpzArrays ReadNpzArrays(const std::string& path, int64_t limit_bytes) {
  const CheckedArchive file = OpenArchive(path, limit_bytes);
  NpzArrays arrays;
  for (const EntryInfo& entry : file.entries) {
    NpyArray array = ReadEntry(file.archive.get(), entry, Escaped(path, 4096), ReadAnyNpyFrom);
    if (array.text) {
      arrays.texts.emplace(entry.name, std::move(*array.text));
    } else {
      arrays.numbers.emplace(entry.name, std::move(array.numbers));
    }
  }
  return arrays;
}

std::map<std::string, Tensor> ReadNpz(const std::string& path, int64_t limit_bytes) { return ReadNpzArrays(path, limit_bytes).numbers; }

std::map<std::string, Tensor> ReadNpz(const std::string& path, const std::set<std::string>& names, int64_t limit_bytes) {
  const CheckedArchive file = OpenArchive(path, limit_bytes);
  std::map<std::string, Tensor> arrays;
  for (const EntryInfo& entry : file.entries) {
    if (names.contains(entry.name)) arrays.emplace(entry.name, ReadEntry(file.archive.get(), entry, Escaped(path, 4096), ReadNpyFrom));
  }
  return arrays;
}

std::vector<std::string> NpzNames(const std::string& path, int64_t limit_bytes) {
  std::vector<std::string> names;
  for (EntryInfo& entry : OpenArchive(path, limit_bytes).entries) names.push_back(std::move(entry.name));
  return names;
}

namespace {

// `names`: null: all.
std::map<std::string, TensorView> TypesOf(const std::string& path, const std::set<std::string>* names) {
  const CheckedArchive file = OpenArchive(path);
  std::map<std::string, TensorView> types;
  for (const EntryInfo& info : file.entries) {
    if (names != nullptr && !names->contains(info.name)) continue;
    const std::string place = PlaceOf(info, Escaped(path, 4096));
    const Entry entry = OpenEntry(file.archive.get(), info, place);
    const auto read = [&](void* out, int64_t bytes) { ReadFrom(entry.get(), out, bytes, place); };
    types.emplace(info.name, ReadNpyTypeFrom(read, info.bytes, place));
  }
  return types;
}

}  // namespace

std::map<std::string, TensorView> NpzTypes(const std::string& path) { return TypesOf(path, nullptr); }

std::map<std::string, TensorView> NpzTypes(const std::string& path, const std::set<std::string>& names) { return TypesOf(path, &names); }

std::optional<StoredArray> OpenNpz(const std::string& path, const std::string& name, const CopyRule& copies) {
  const CheckedArchive checked = OpenArchive(path);
  const auto info =
      std::find_if(checked.entries.begin(), checked.entries.end(), [&](const EntryInfo& entry) { return entry.name == name; });
  if (info == checked.entries.end()) return std::nullopt;
  const std::string place = PlaceOf(*info, Escaped(path, 4096));
  const auto unpacked = [&] { return UnpackEntry(checked.archive.get(), *info, copies, Escaped(path, 4096)); };
  if (info->compressed) return unpacked();
  const auto file = std::make_shared<const InputFile>(path, kDataLimitBytes);
  const int64_t begin = FindStored(*file, info->index, info->bytes);
  if (begin < 0) return unpacked();
  int64_t at = begin;
  const auto read = [&](void* out, int64_t bytes) {
    if (bytes > begin + info->bytes - at) throw UnpackError("it is shorter than it claims", place);
    file->ReadAt(at, out, bytes);
    at += bytes;
  };
  NpyHead head = ReadNpyHead(read, info->bytes, place);
  if (head.column_major && !copies.Copies(head.array.dtype, head.array.shape)) return std::nullopt;
  head.array.read = [file, start = begin + head.bytes](int64_t offset, void* out, int64_t bytes) {
    file->ReadAt(start + offset, out, bytes);
  };
  return head.column_major ? SpilledRowMajor(head.array, place) : std::move(head.array);
}

void WriteNpz(const std::string& path, const std::map<std::string, TensorView>& arrays, bool compress) {
  std::vector<std::string> headers;  // libzip borrows them until zip_close
  headers.reserve(arrays.size());
  for (const auto& [name, tensor] : arrays) {
    if (EscapesFolder(name))
      throw Error(ErrorCode::kData, "an array's name points outside the folder: '" + Escaped(name) + "'", Escaped(path, 4096));
    headers.push_back(NpyHeader(tensor.dtype, tensor.shape));
  }
  ZipOutput output(path);
  if (arrays.empty()) {
    // libzip does not write empty archives; numpy writes just the end record.
    output.file.Write(std::string("PK\x05\x06", 4) + std::string(18, '\0'));
    output.file.Commit();
    return;
  }
  zip_source_t* source = zip_source_function_create(&ZipOutput::Callback, &output, nullptr);
  if (source == nullptr) output.Fail(path, "out of memory");
  zip_error_t error;
  zip_error_init(&error);
  Archive archive(zip_open_from_source(source, ZIP_CREATE | ZIP_TRUNCATE, &error));
  const std::string why = zip_error_strerror(&error);
  zip_error_fini(&error);
  if (!archive) {
    zip_source_free(source);
    output.Fail(path, why);
  }
  size_t i = 0;
  for (const auto& [name, tensor] : arrays) AddEntry(archive.get(), name, headers[i++], tensor, compress);
  if (zip_close(archive.get()) != 0) output.Fail(path, zip_strerror(archive.get()));
  archive.release();  // zip_close freed it
  output.file.Commit();
}

void WriteNpz(const std::string& path, const std::map<std::string, Tensor>& arrays, bool compress) {
  std::map<std::string, TensorView> views;
  for (const auto& [name, tensor] : arrays) views.emplace(name, tensor.view());
  WriteNpz(path, views, compress);
}

}  // namespace gradloom
