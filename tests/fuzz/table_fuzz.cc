// Fuzzes tables, plain and compressed by gzip, with and without a header, as numbers and as text.
#include <zlib.h>

#include <memory>

#include "runtime/data/csv.h"
#include "tests/fuzz/fuzz_target.h"

namespace gradloom {
namespace {

std::string Packed(const std::string& text) {
  z_stream stream{};
  deflateInit2(&stream, 9, Z_DEFLATED, 16 + MAX_WBITS, 9, Z_DEFAULT_STRATEGY);
  std::string packed(deflateBound(&stream, text.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  deflate(&stream, Z_FINISH);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

}  // namespace

std::vector<std::string> FuzzSeeds() {
  const std::string table = "a,b,c,label\n0.5,-1e3,nan,0\n1,2,3,1\n\"4\",5,\"6\",2\n", bare = "1,2,3,0\r\n4,5,6,1\r\n7,8,,9\r\n";
  std::string long_table = "x..y,\"na\"\"me\",z\n";
  for (int i = 0; i < 200; ++i) long_table += std::to_string(i) + ",\"line\nbreak\"," + std::to_string(i * 0.25) + "\n";
  return {table, bare, long_table, "\xEF\xBB\xBF" + table, Packed(table), Packed(long_table), Packed(table) + Packed(bare), "\"", "\n\n"};
}

}  // namespace gradloom

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace gradloom;
  const FileInMemory file({reinterpret_cast<const char*>(data), size});
  CsvOptions options;
  options.limit_bytes = int64_t{16} << 20;
  for (const char delimiter : {',', '\t'}) {
    options.delimiter = delimiter;
    MayRefuse([&] { CsvSelectors(file.path(), options); });
    MayRefuse([&] { ReadCsv(file.path(), {{"0..2", DType::kFloat32}, {"-1", DType::kInt64}}, options); });
    MayRefuse([&] { ReadCsv(file.path(), {{"a..label", DType::kFloat64}}, options); });
    MayRefuse([&] { ReadCsvText(file.path(), {"1"}, options); });
    MayRefuse([&] {
      const std::string path = file.path();
      const auto classes =
          std::make_shared<const CsvClasses>(CsvClasses{ReadCsvClasses({path}, {"-1"}, {.max_classes = 3, .ignored = -1}, options)[0], -1});
      ReadCsv(path, {{"-1", DType::kInt64, {classes}}}, options);
    });
  }
  return 0;
}
