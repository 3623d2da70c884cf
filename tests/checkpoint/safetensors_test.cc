#include "runtime/checkpoint/safetensors.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>

#include "tests/base/temporary_folder.h"
#include "tests/checkpoint/read_all.h"

namespace gradloom {
namespace {

// A file with this header and this number of data bytes.
std::string Encoded(const std::string& header, size_t data_bytes) {
  const uint64_t length = header.size();
  std::string file(8, '\0');
  std::memcpy(file.data(), &length, 8);
  return file + header + std::string(data_bytes, '\1');
}

std::string Field(const std::string& name, const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":" + offsets + "}";
}

class SafetensorsTest : public ::testing::Test {
 protected:
  std::map<std::string, Tensor> Read(const std::string& content) {
    WriteWithoutSync(path_, content);
    return ReadAll(SafetensorsFile(path_));
  }

  Error Refused(const std::string& content) {
    const Error error = ErrorOf([&] { Read(content); });
    EXPECT_EQ(error.code(), ErrorCode::kCheckpoint) << error.Describe();
    EXPECT_TRUE(error.where().starts_with(path_)) << error.where();
    return error;
  }

  Error RefusedHeader(const std::string& header, size_t data_bytes = 8) { return Refused(Encoded(header, data_bytes)); }

  const TemporaryFolder folder_;
  const std::string path_ = folder_ / "a.safetensors";
};

TEST_F(SafetensorsTest, RoundTrip) {
  std::map<std::string, Tensor> tensors;
  for (const DType dtype : {DType::kFloat16, DType::kBfloat16, DType::kFloat32, DType::kFloat64, DType::kInt8, DType::kInt16, DType::kInt32,
                            DType::kInt64, DType::kUint8, DType::kUint16, DType::kUint32, DType::kUint64, DType::kBool,
                            DType::kFloat8E4M3Fn, DType::kFloat8E5M2, DType::kFloat8E8M0, DType::kFloat8E4M3Fnuz, DType::kFloat8E5M2Fnuz}) {
    for (const Shape& shape : {Shape{}, Shape{3}, Shape{2, 3}, Shape{0, 4}}) {
      Tensor tensor(dtype, shape);
      auto* bytes = static_cast<unsigned char*>(tensor.data());
      for (int64_t i = 0; i < tensor.bytes(); ++i) bytes[i] = static_cast<unsigned char>(dtype == DType::kBool ? i % 2 : 37 * i + 1);
      tensors[std::string(DTypeName(dtype)) + shape.ToString()] = tensor;
    }
  }
  const std::map<std::string, std::string> metadata = {{"step", "7"}, {"a\n\"b", "\xC3\xA9"}};
  WriteSafetensors(path_, tensors, metadata);
  const SafetensorsFile file(path_);
  EXPECT_EQ(file.metadata(), metadata);
  ASSERT_EQ(file.entries().size(), tensors.size());
  for (const auto& [name, tensor] : tensors) {
    const Tensor back = file.Read(name);
    EXPECT_EQ(back.dtype(), tensor.dtype());
    EXPECT_EQ(back.shape(), tensor.shape());
    EXPECT_EQ(std::memcmp(back.data(), tensor.data(), static_cast<size_t>(tensor.bytes())), 0) << name;
    EXPECT_EQ(file.entries().at(name).begin % DTypeBytes(tensor.dtype()), 0) << name;
  }
  EXPECT_EQ(folder_.entries(), 1);
  EXPECT_EQ(ErrorOf([&] { file.Read("absent"); }).code(), ErrorCode::kCheckpoint);
}

TEST_F(SafetensorsTest, DataStartAligned) {
  for (size_t length = 1; length < 20; ++length) {
    WriteSafetensors(path_, {{std::string(length, 'n'), Tensor(DType::kFloat32, {1})}});
    EXPECT_EQ(SafetensorsFile(path_).entries().begin()->second.begin % 8, 0);
  }
}

TEST_F(SafetensorsTest, AcceptsWhatTheFormatAllows) {
  EXPECT_TRUE(Read(Encoded("{}", 0)).empty());
  EXPECT_TRUE(Read(Encoded("{\"__metadata__\":{}}   ", 0)).empty());
  // Keys and tensors may be in any order, with white space anywhere but at the start.
  const auto tensors = Read(Encoded("{ " + Field("b", "U8", "[4]", "[4, 8]") + ",\n" + Field("a", "F32", "[ ]", "[0,4]") + " }", 8));
  EXPECT_EQ(tensors.at("b").shape(), (Shape{4}));
  EXPECT_EQ(tensors.at("a").shape(), (Shape{}));
}

TEST_F(SafetensorsTest, DamagedFraming) {
  Refused("");                                                     // S01
  Refused(std::string("\x02\0\0\0", 4));                           // shorter than its length field
  Refused(std::string("\xFF\0\0\0\0\0\0\0{}", 10));                // S02
  Refused(std::string("\x01\xE1\xF5\x05\0\0\0\0{}", 10));          // S03: one more than 100 MB
  Refused(std::string("\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF{}", 10));  // S03: 2^64 - 1
  for (const char* text : {"{", "hello", "{]", "{} {}", "{\"a\":}", "[]", "7", "null", "{\"a\":[1,2]}", "{\"a\":7}", "{\"a\":null}"}) {
    RefusedHeader(text);  // S04
  }
  RefusedHeader("{" + Field("\xFF\xFE", "U8", "[8]", "[0,8]") + "}");  // S05
  RefusedHeader(" {" + Field("a", "U8", "[8]", "[0,8]") + "}");        // S06
  RefusedHeader("\n{}", 0);
  RefusedHeader(std::string(200000, '['));  // S07
  RefusedHeader("{\"a\":" + std::string(200000, '['));
  RefusedHeader("{\"a\":{\"shape\":" + std::string(200000, '['));
  std::string objects;
  for (int i = 0; i < 200000; ++i) objects += "{\"a\":";
  RefusedHeader(objects);
}

TEST_F(SafetensorsTest, DamagedEntries) {
  const std::string a = Field("a", "U8", "[4]", "[0,4]"), b = Field("b", "U8", "[4]", "[4,8]");
  ASSERT_NO_THROW(Read(Encoded("{" + a + "," + b + "}", 8)));
  // S08: the reference implementation takes the last one.
  RefusedHeader("{" + a + "," + a + "," + b + "}");
  RefusedHeader("{" + a + "," + Field("\\u0061", "U8", "[4]", "[4,8]") + "}");
  RefusedHeader("{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[0,8]}}");
  RefusedHeader("{\"a\":{\"dtype\":\"U8\",\"shape\":[8],\"shape\":[8],\"data_offsets\":[0,8]}}");
  RefusedHeader("{\"a\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[0,8],\"data_offsets\":[0,8]}}");
  RefusedHeader("{\"__metadata__\":{},\"__metadata__\":{}," + a + "," + b + "}");
  RefusedHeader("{\"__metadata__\":{\"k\":\"1\",\"k\":\"2\"}," + a + "," + b + "}");
  // S09
  for (const char* value : {"7", "null", "true", "1.5", "[]", "{}", "-1"}) {
    RefusedHeader(std::string("{\"__metadata__\":{\"k\":") + value + "}," + a + "," + b + "}");
  }
  RefusedHeader("{\"__metadata__\":\"x\"," + a + "," + b + "}");
  // S10
  for (const char* dtype : {"X9", "", "f32", "F8_E3M4", "F4", "C64"}) RefusedHeader("{" + Field("a", dtype, "[8]", "[0,8]") + "}");
  // S11
  RefusedHeader("{" + Field("a", "U8", "[8]", "[-8,0]") + "}");
  RefusedHeader("{" + Field("a", "U8", "[8]", "[0,-8]") + "}");
  RefusedHeader("{" + Field("a", "U8", "[-8]", "[0,8]") + "}");
  RefusedHeader("{" + Field("a", "U8", "[-2,-4]", "[0,8]") + "}");
  // S12
  EXPECT_NE(RefusedHeader("{" + a + "," + Field("b", "U8", "[5]", "[3,8]") + "}").message().find("overlap"), std::string::npos);
  RefusedHeader("{" + Field("a", "U8", "[8]", "[0,8]") + "," + b + "}");
  RefusedHeader("{" + Field("a", "U8", "[8]", "[0,8]") + "," + Field("b", "U8", "[8]", "[0,8]") + "}");
  RefusedHeader("{" + Field("a", "U8", "[8]", "[0,8]") + "," + Field("b", "U8", "[0]", "[4,4]") + "}");
  // S13
  RefusedHeader("{" + a + "," + Field("b", "U8", "[3]", "[5,8]") + "}");
  RefusedHeader("{" + Field("a", "U8", "[7]", "[1,8]") + "}");
  // S14, S15
  RefusedHeader("{" + a + "," + b + "}", 9);
  RefusedHeader("{" + a + "," + b + "}", 7);
  RefusedHeader("{}", 1);
  // S16
  RefusedHeader("{" + Field("a", "F32", "[4294967296,4294967296]", "[0,8]") + "}");
  RefusedHeader("{" + Field("a", "F64", "[2305843009213693952]", "[0,8]") + "}");
  RefusedHeader("{" + Field("a", "U8", "[18446744073709551615]", "[0,8]") + "}");
  RefusedHeader("{" + Field("a", "U8", "[99999999999999999999999]", "[0,8]") + "}");
  RefusedHeader("{" + Field("a", "U8", "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,8]", "[0,8]") + "}");
  // S17
  RefusedHeader("{" + Field("a", "U8", "[7]", "[0,8]") + "}");
  RefusedHeader("{" + Field("a", "F32", "[8]", "[0,8]") + "}");
  RefusedHeader("{" + Field("a", "U8", "[8]", "[8,0]") + "}");
  // S19, and other types in the three fields
  RefusedHeader("{" + Field("a", "U8", "[8]", "[0,8.0]") + "}");
  RefusedHeader("{" + Field("a", "U8", "[1.0e0,8]", "[0,8]") + "}");
  for (const char* offsets : {"[0]", "[]", "[0,8,8]", "8", "\"0,8\"", "{}", "[[0,8]]", "[\"0\",\"8\"]"}) {
    RefusedHeader("{" + Field("a", "U8", "[8]", offsets) + "}");
  }
  RefusedHeader("{\"a\":{\"dtype\":\"U8\",\"shape\":[8]}}");
  RefusedHeader("{\"a\":{\"shape\":[8],\"data_offsets\":[0,8]}}");
  RefusedHeader("{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,8]}}");
  RefusedHeader("{\"a\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[0,8],\"extra\":[1]}}");
  RefusedHeader("{\"a\":{\"dtype\":8,\"shape\":[8],\"data_offsets\":[0,8]}}");
}

TEST_F(SafetensorsTest, ManyTensorsAreRefusedQuickly) {  // S18
  std::string header = "{";
  for (int i = 0; i < 100000; ++i) {
    header += (i ? "," : "") + Field("t" + std::to_string(i), "U8", "[1]", "[" + std::to_string(i) + "," + std::to_string(i + 1) + "]");
  }
  WriteWithoutSync(path_, Encoded(header + "}", 100000));
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(ErrorOf([&] { SafetensorsFile file(path_); }).code(), ErrorCode::kLimit);
  EXPECT_EQ(SafetensorsFile(path_, SafetensorsFile::kLimitBytes, 100000).entries().size(), 100000u);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
}

TEST_F(SafetensorsTest, BoolsAreZeroOrOne) {
  EXPECT_TRUE(Read(Encoded("{" + Field("a", "BOOL", "[2]", "[0,2]") + "}", 2)).at("a").as<bool>()[1]);
  std::string bad = Encoded("{" + Field("a", "BOOL", "[2]", "[0,2]") + "}", 2);
  bad.back() = 2;
  Refused(bad);
}

TEST_F(SafetensorsTest, EveryTruncationIsRefused) {
  WriteSafetensors(path_, {{"w", Tensor::From<float>({1, 2, 3}, {3})}, {"b", Tensor::From<int64_t>({4}, {1})}});
  const std::string good = ReadWholeFile(path_);
  for (size_t length = 0; length < good.size(); ++length) Refused(good.substr(0, length));
}

TEST_F(SafetensorsTest, RefusesToWriteUnsupportedTensors) {
  const std::map<std::string, TensorView> string = {{"s", TensorView{DType::kString, {1}, nullptr}}};
  EXPECT_EQ(ErrorOf([&] { WriteSafetensors(path_, string); }).code(), ErrorCode::kCheckpoint);
  const Tensor one(DType::kFloat32, {1});
  EXPECT_EQ(ErrorOf([&] { WriteSafetensors(path_, {{"__metadata__", one}}); }).code(), ErrorCode::kCheckpoint);
  EXPECT_EQ(ErrorOf([&] { WriteSafetensors(path_, {{"\xFF", one}}); }).code(), ErrorCode::kCheckpoint);
  EXPECT_EQ(ErrorOf([&] { WriteSafetensors(folder_ / "no/folder", {{"a", one}}); }).code(), ErrorCode::kResource);
  EXPECT_EQ(folder_.entries(), 0);
}

// What people take for a file of weights says what it is, and what to do.
TEST_F(SafetensorsTest, OtherFormatsAreRefusedByName) {
  struct Other {
    const char* name;
    std::string beginning;
    const char* wanted;
  };
  for (const Other& other : {Other{"a.pt", {"PK\x03\x04", 4}, "torch.save"}, Other{"b.pt", {"\x80\x02", 2}, "torch.save"},
                             Other{"c.h5", "\x89HDF\r\n\x1a\n", "HDF5"}, Other{"checkpoint", {"\x08\0\0\0ODTC", 8}, "onnxruntime-training"},
                             Other{"d.onnx", "\x08\x0a\x12\x07pytorch", "an ONNX model"}}) {
    const std::string path = folder_ / other.name;
    WriteWithoutSync(path, other.beginning + std::string(64, 'x'));
    const Error error = ErrorOf([&] { SafetensorsFile file(path); });
    EXPECT_EQ(error.code(), ErrorCode::kCheckpoint);
    EXPECT_NE(error.message().find(other.wanted), std::string::npos) << error.message();
    EXPECT_FALSE(error.help().empty()) << other.name;
  }
}

}  // namespace
}  // namespace gradloom
