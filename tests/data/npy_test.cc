#include "runtime/data/npy.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tests/base/temporary_folder.h"
#include "tests/data/write_arrays.h"

namespace gradloom {
namespace {

// A file of version 1.0 (or `version`) with this header dict and body.
std::string Npy(const std::string& dict, const std::string& body, char version = 1) {
  std::string text = std::string("\x93NUMPY", 6) + version + '\0';
  text += static_cast<char>(dict.size() & 0xFF);
  text += static_cast<char>(dict.size() >> 8);
  if (version > 1) text += std::string(2, '\0');
  return text + dict + body;
}

Tensor Parse(const std::string& text) {
  size_t at = 0;
  const auto read = [&](void* out, int64_t bytes) {
    ASSERT_LE(at + static_cast<size_t>(bytes), text.size());
    std::memcpy(out, text.data() + at, static_cast<size_t>(bytes));
    at += static_cast<size_t>(bytes);
  };
  return ReadNpyFrom(read, static_cast<int64_t>(text.size()), "test.npy");
}

std::string Dict(const std::string& descr, const std::string& shape, const std::string& order = "False") {
  return "{'descr': '" + descr + "', 'fortran_order': " + order + ", 'shape': " + shape + ", }\n";
}

template <typename T>
std::string Bytes(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

TEST(NpyTest, RoundTripOfEveryType) {
  const TemporaryFolder folder;
  for (const DType dtype : {DType::kFloat16, DType::kFloat32, DType::kFloat64, DType::kInt8, DType::kInt16, DType::kInt32, DType::kInt64,
                            DType::kUint8, DType::kUint16, DType::kUint32, DType::kUint64, DType::kBool}) {
    for (const Shape& shape : {Shape{}, Shape{3}, Shape{2, 3}, Shape{0, 4}, Shape{2, 1, 3, 2}}) {
      Tensor tensor = Converted(Tensor(DType::kFloat32, shape).view(), dtype);
      auto* bytes = static_cast<unsigned char*>(tensor.data());
      for (int64_t i = 0; i < tensor.bytes(); ++i) bytes[i] = static_cast<unsigned char>(dtype == DType::kBool ? i % 2 : 37 * i + 1);
      WriteNpy(folder / "x.npy", tensor.view());
      const Tensor back = ReadNpy(folder / "x.npy");
      ASSERT_EQ(back.dtype(), dtype);
      ASSERT_EQ(back.shape(), shape);
      EXPECT_EQ(std::memcmp(back.data(), tensor.data(), static_cast<size_t>(tensor.bytes())), 0) << DTypeName(dtype);
    }
  }
}

TEST(NpyTest, HeaderIsPaddedTo64Bytes) {
  for (const Shape& shape : {Shape{}, Shape{7}, Shape{1000000, 1000000, 3}}) EXPECT_EQ(NpyHeader(DType::kFloat32, shape).size() % 64, 0u);
  EXPECT_EQ(ErrorOf([] { NpyHeader(DType::kBfloat16, Shape{2}); }).code(), ErrorCode::kType);
}

TEST(NpyTest, AllVersionsAndSpellings) {
  const std::string body = Bytes<float>({1, 2});
  for (const char version : {1, 2, 3}) EXPECT_EQ(Parse(Npy(Dict("<f4", "(2,)"), body, version)).as<float>()[1], 2);
  // Any order of keys, double quotes, Python 2's long integers, no trailing comma.
  EXPECT_EQ(Parse(Npy("{\"shape\": (1L, 2L), 'fortran_order':False,'descr':'=f4'}", body)).shape(), (Shape{1, 2}));
}

TEST(NpyTest, ConvertsFortranOrder) {
  // numpy.asfortranarray([[1, 2, 3], [4, 5, 6]]) is stored as 1 4 2 5 3 6.
  const Tensor tensor = Parse(Npy(Dict("<f4", "(2, 3)", "True"), Bytes<float>({1, 4, 2, 5, 3, 6})));
  EXPECT_EQ(tensor.shape(), (Shape{2, 3}));
  for (int i = 0; i < 6; ++i) EXPECT_EQ(tensor.as<float>()[static_cast<size_t>(i)], i + 1);
  EXPECT_EQ(Parse(Npy(Dict("<f4", "(4611686018427387904, 0)", "True"), "")).elements(), 0);
}

TEST(NpyTest, ConvertsBigEndian) {
  EXPECT_EQ(Parse(Npy(Dict(">i2", "(2,)"), std::string("\x01\x02\xff\xfe", 4))).as<int16_t>()[0], 0x0102);
  EXPECT_EQ(Parse(Npy(Dict(">f8", "()"), std::string("\x3f\xf8\0\0\0\0\0\0", 8))).as<double>()[0], 1.5);
}

TEST(NpyTest, BooleansBecomeZeroOrOne) {
  const Tensor tensor = Parse(Npy(Dict("|b1", "(3,)"), std::string("\x00\x01\xff", 3)));
  EXPECT_EQ(std::memcmp(tensor.data(), "\0\1\1", 3), 0);
}

TEST(NpyTest, TextIsNeverNumbers) {
  struct Case {
    std::string descr, body;
    std::vector<std::string> strings;
  };
  const std::string little("b\0\0\0\0\0\0\0\xe9\0\0\0z\0\0\0", 16), big("\0\0\0b\0\0\0\0\0\0\0\xe9\0\0\0z", 16);
  const Case cases[] = {{"<U1", Bytes<uint32_t>({'0', 'a'}), {"0", "a"}},
                        {"|S1", "0a", {"0", "a"}},
                        {"<U2", little, {"b", "\xC3\xA9z"}},
                        {">U2", big, {"b", "\xC3\xA9z"}},
                        {"|S3", std::string("ab\0\0\0\0", 6), {"ab", ""}},
                        {"<U0", "", {"", ""}},
                        {"|S0", "", {"", ""}}};
  for (const Case& c : cases) {
    const std::string file = Npy(Dict(c.descr, "(2,)"), c.body);
    const Error error = ErrorOf([&] { Parse(file); });
    EXPECT_EQ(error.code(), ErrorCode::kData) << c.descr;
    EXPECT_EQ(error.message(), "the array holds text, not numbers");
    EXPECT_NE(error.help().find("return_inverse"), std::string::npos);
    size_t at = 0;
    const auto read = [&](void* out, int64_t bytes) {
      std::memcpy(out, file.data() + at, static_cast<size_t>(bytes));
      at += static_cast<size_t>(bytes);
    };
    const NpyArray array = ReadAnyNpyFrom(read, static_cast<int64_t>(file.size()), "test.npy");
    ASSERT_TRUE(array.text.has_value()) << c.descr;
    ASSERT_EQ(array.text->size, 2);
    for (int64_t i = 0; i < 2; ++i) EXPECT_EQ((*array.text)[i], c.strings[static_cast<size_t>(i)]) << c.descr;
    EXPECT_EQ(at, file.size());
  }
}

TEST(NpyTest, RejectsDamagedFiles) {
  const std::string good = Npy(Dict("<f4", "(2,)"), Bytes<float>({1, 2}));
  ASSERT_NO_THROW(Parse(good));
  const std::string cases[] = {
      "",
      "\x93NUMPX" + good.substr(6),
      Npy(Dict("<f4", "(2,)"), Bytes<float>({1, 2}), 4),                       // a future version
      good + "x",                                                              // trailing bytes
      Npy(Dict("<f4", "(4611686018427387904, 4611686018427387904)"), "abcd"),  // the product overflows
      Npy(Dict("<f4", "(4611686018427387904,)"), "abcd"),                      // so does the number of bytes
      Npy(Dict("<f4", "(-2, -1)"), Bytes<float>({1, 2})),                      // negative, the product is positive
      Npy(Dict("<f4", "(99999999999999999999,)"), "abcd"),                     // more than 64 bits
      Npy(Dict("<f4", "(1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,)"), "abcd"),
      Npy(Dict("|O", "(2,)"), "12345678"),  // pickled
      Npy(Dict("O", "(2,)"), "12345678"),
      Npy(Dict("|S4", "(1,)"), "0123456789abcdef"),
      Npy(Dict("<c8", "(1,)"), "01234567"),
      Npy(Dict("<f16", "(1,)"), "0123456789abcdef"),
      Npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }", "abcd"),
      Npy("{'descr': '<f4', 'fortran_order': False, }", "abcd"),
      Npy("{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (1,), }", "abcd"),
      Npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'x': 1}", "abcd"),
      Npy("{'descr': '<f4', 'fortran_order': 0, 'shape': (1,)}", "abcd"),
      Npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1,)} 7", "abcd"),
      Npy("{'descr': '<f4', 'fortran_order': False, 'shape': (__import__('os'),)}", "abcd"),
      Npy("{'descr': '<f4", "abcd"),
  };
  for (const std::string& text : cases) {
    const Error error = ErrorOf([&] { Parse(text); });
    EXPECT_EQ(error.code(), ErrorCode::kData) << Escaped(text);
    EXPECT_EQ(error.where(), "test.npy");
  }
  for (size_t length = 0; length < good.size(); ++length) {
    EXPECT_EQ(ErrorOf([&] { Parse(good.substr(0, length)); }).code(), ErrorCode::kData) << length;
  }
}

}  // namespace
}  // namespace gradloom
