#include "runtime/data/unpacked_file.h"

#include <zlib.h>

#include <algorithm>
#include <array>

#include "runtime/base/error.h"

namespace gradloom {

struct UnpackedFile::Inflater {
  z_stream stream = {};
  std::array<unsigned char, 64 << 10> input;
  bool in_member = true;  // within gzip data, where the file must not end
};

UnpackedFile::UnpackedFile(const std::string& path, int64_t limit_bytes) : file_(path, limit_bytes), limit_bytes_(limit_bytes) {
  unsigned char magic[2] = {};
  if (file_.bytes() >= 2) file_.ReadAt(0, magic, 2);
  if (magic[0] != 0x1F || magic[1] != 0x8B) return;
  limit_bytes_ = UnpackedLimit(file_.bytes(), limit_bytes);
  inflater_ = std::make_unique<Inflater>();
  constexpr int kGzipOnly = 16 + MAX_WBITS;
  if (inflateInit2(&inflater_->stream, kGzipOnly) != Z_OK)
    throw Error(ErrorCode::kResource, "out of memory while unpacking the file", Escaped(path, 4096));
}

UnpackedFile::~UnpackedFile() {
  if (inflater_) inflateEnd(&inflater_->stream);
}

int64_t UnpackedFile::Read(void* out, int64_t bytes) {
  char* to = static_cast<char*>(out);
  int64_t done = 0;
  while (done < bytes) {
    const int64_t got = inflater_ ? ReadPacked(to + done, bytes - done) : file_.Read(to + done, bytes - done);
    if (got == 0) break;
    done += got;
  }
  unpacked_bytes_ += done;
  if (unpacked_bytes_ > limit_bytes_) {
    throw Error(ErrorCode::kLimit, "unpacked, the file has more bytes than the limit of " + std::to_string(limit_bytes_),
                Escaped(path(), 4096));
  }
  return done;
}

int64_t UnpackedFile::ReadPacked(char* out, int64_t bytes) {
  z_stream& stream = inflater_->stream;
  const auto fail = [&](const std::string& why) {
    return Error(ErrorCode::kData, "the gzip data is damaged: " + why, Escaped(path(), 4096));
  };
  const uInt wanted = static_cast<uInt>(std::min<int64_t>(bytes, 1 << 30));
  stream.next_out = reinterpret_cast<Bytef*>(out);
  stream.avail_out = wanted;
  while (stream.avail_out == wanted) {
    if (stream.avail_in == 0) {
      const int64_t got = file_.Read(inflater_->input.data(), static_cast<int64_t>(inflater_->input.size()));
      if (got == 0 && inflater_->in_member) throw fail("it ends too early");
      if (got == 0) return 0;
      stream.next_in = inflater_->input.data();
      stream.avail_in = static_cast<uInt>(got);
    }
    if (!inflater_->in_member) {
      // Another member follows. Trailing garbage is an error, because a table that was cut in the middle would otherwise read as a shorter
      // one.
      inflateReset(&stream);
      inflater_->in_member = true;
    }
    const int result = inflate(&stream, Z_NO_FLUSH);
    if (result == Z_STREAM_END) {
      inflater_->in_member = false;
    } else if (result == Z_MEM_ERROR) {
      throw Error(ErrorCode::kResource, "out of memory while unpacking the file", Escaped(path(), 4096));
    } else if (result != Z_OK && result != Z_BUF_ERROR) {
      throw fail(stream.msg != nullptr ? stream.msg : "unknown format");
    }
  }
  return static_cast<int64_t>(wanted - stream.avail_out);
}

}  // namespace gradloom
