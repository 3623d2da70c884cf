// Compares models read by Gradloom's wire reader with the same models parsed by protobuf alone. GRADLOOM_SEED=N draws different models.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "compiler/onnx/export/separate_elements.h"
#include "compiler/onnx/model_file.h"
#include "compiler/onnx/proto_convert.h"
#include "compiler/onnx/read/content_hash.h"
#include "compiler/onnx/read/external_data.h"
#include "compiler/onnx/read/model_bytes.h"
#include "compiler/onnx/read/tensor_data.h"
#include "compiler/onnx/read/wire_reader.h"
#include "runtime/base/dtype.h"
#include "runtime/base/file.h"
#include "runtime/base/narrow.h"
#include "tests/seed/test_seed.h"

namespace gradloom {
namespace {

using Random = std::mt19937_64;

int64_t Below(Random& random, int64_t count) { return static_cast<int64_t>(random() % static_cast<uint64_t>(count)); }

std::string Bytes(Random& random, int64_t count) {
  std::string bytes(static_cast<size_t>(count), '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

// Arbitrary names, and data up to the size of the reader's buffer.
void Fill(Random& random, onnx::TensorProto& tensor) {
  static constexpr int kTypes[] = {onnx::TensorProto::FLOAT,    onnx::TensorProto::DOUBLE, onnx::TensorProto::FLOAT16,
                                   onnx::TensorProto::INT64,    onnx::TensorProto::BOOL,   onnx::TensorProto::UINT8,
                                   onnx::TensorProto::BFLOAT16, onnx::TensorProto::INT4};
  tensor.set_name("t" + std::to_string(Below(random, 10)));
  const int64_t extent = Below(random, 20) == 0 ? Below(random, 100'000) : Below(random, 40);
  tensor.add_dims(extent);
  if (Below(random, 4) == 0) {
    tensor.set_data_type(onnx::TensorProto::FLOAT);
    for (int64_t i = 0; i < extent; ++i) tensor.add_float_data(static_cast<float>(i));
    return;
  }
  tensor.set_data_type(kTypes[Below(random, std::size(kTypes))]);
  const DType dtype = *DTypeFromProto(tensor.data_type());
  tensor.set_raw_data(Bytes(random, dtype == DType::kInt4 ? (extent + 1) / 2 : extent * DTypeBytes(dtype)));
}

void Fill(Random& random, onnx::GraphProto& graph, int depth);

void Fill(Random& random, onnx::NodeProto& node, int depth) {
  node.set_op_type("Op");
  node.add_output("o");
  for (int64_t i = Below(random, 4); i > 0; --i) {
    onnx::AttributeProto& attribute = *node.add_attribute();
    attribute.set_name("a" + std::to_string(i));
    switch (Below(random, 5)) {
      case 0: Fill(random, *attribute.mutable_t()); break;
      case 1: Fill(random, *attribute.add_tensors()); break;
      case 2: attribute.set_s(Bytes(random, Below(random, 300))); break;
      case 3:
        attribute.set_i(static_cast<int64_t>(random()));
        attribute.set_f(0.5F);
        break;
      default:
        if (depth > 0) Fill(random, *attribute.mutable_g(), depth - 1);
    }
  }
}

void Fill(Random& random, onnx::GraphProto& graph, int depth) {
  graph.set_name("g");
  for (int64_t i = Below(random, 5); i > 0; --i) Fill(random, *graph.add_initializer());
  for (int64_t i = Below(random, 4); i > 0; --i) Fill(random, *graph.add_node(), depth);
  if (Below(random, 3) == 0) {
    onnx::SparseTensorProto& sparse = *graph.add_sparse_initializer();
    sparse.add_dims(8);
    sparse.mutable_values()->set_data_type(onnx::TensorProto::FLOAT);
    sparse.mutable_values()->add_dims(2);
    sparse.mutable_values()->set_raw_data(Bytes(random, 8));
    sparse.mutable_indices()->set_data_type(onnx::TensorProto::INT64);
    sparse.mutable_indices()->add_dims(2);
    const int64_t indices[] = {1, 5};
    sparse.mutable_indices()->set_raw_data(indices, sizeof indices);
  }
}

onnx::ModelProto RandomModel(Random& random) {
  onnx::ModelProto model;
  model.set_ir_version(10);
  model.set_producer_name(Bytes(random, Below(random, 20)));
  Fill(random, *model.mutable_graph(), 3);
  for (int64_t i = Below(random, 3); i > 0; --i) {
    onnx::FunctionProto& function = *model.add_functions();
    function.set_name("f");
    Fill(random, *function.add_node(), 2);
  }
  if (Below(random, 3) == 0) Fill(random, *model.add_training_info()->mutable_algorithm(), 1);
  return model;
}

struct Read {
  std::vector<ModelTensor> tensors;
  std::string rest;  // the model without elements
};

// Of the message alone if `raw` is empty.
Read TensorsOf(onnx::ModelProto& model, const std::vector<Tensor>& raw) {
  const LoadOptions options;
  ExternalData external("", options);
  Read read;
  const auto raw_of = [&](onnx::TensorProto* tensor) -> const Tensor* {
    const int64_t index = MovedElements(*tensor);
    return index < 0 ? nullptr : &raw.at(static_cast<size_t>(index));
  };
  ForEachTensor(model, [&](const TensorSite& site) {
    if (site.dense != nullptr) {
      read.tensors.push_back({site.name, ReadTensor(*site.dense, site.name, external, options.limits, raw_of(site.dense))});
      ClearElements(site.dense);
      return;
    }
    onnx::TensorProto *const values = site.sparse->mutable_values(), *const indices = site.sparse->mutable_indices();
    read.tensors.push_back(
        {site.name, ReadSparseTensor(*site.sparse, site.name, external, options.limits, raw_of(values), raw_of(indices))});
    ClearElements(values);
    ClearElements(indices);
  });
  read.rest = model.SerializeAsString();
  return read;
}

Read ReadWithWireReader(ModelBytes bytes) {
  WireModel wire = ReadWire(bytes, Elements::kMoved, "test", {});
  onnx::ModelProto model;
  EXPECT_TRUE(model.ParseFromString(wire.message));
  return TensorsOf(model, wire.elements);
}

void ExpectSame(const Read& a, const Read& b) {
  EXPECT_EQ(a.rest, b.rest);
  ASSERT_EQ(a.tensors.size(), b.tensors.size());
  for (size_t i = 0; i < a.tensors.size(); ++i) {
    const Tensor &x = a.tensors[i].data, &y = b.tensors[i].data;
    EXPECT_EQ(a.tensors[i].name, b.tensors[i].name);
    ASSERT_TRUE(x.dtype() == y.dtype() && x.shape() == y.shape()) << a.tensors[i].name;
    EXPECT_EQ(std::memcmp(x.data(), y.data(), static_cast<size_t>(x.bytes())), 0) << a.tensors[i].name;
  }
}

std::string Hash(std::string_view bytes) {
  ContentHash hash;
  hash.Add(bytes);
  return hash.Hex();
}

TEST(Wire, RandomModelsMatchProtobuf) {
  Random random(TestSeed());
  const std::string path = testing::TempDir() + "/wire.onnx";
  for (int i = 0; i < 100; ++i) {
    const std::string bytes = RandomModel(random).SerializeAsString();
    onnx::ModelProto whole;
    ASSERT_TRUE(whole.ParseFromString(bytes));
    const Read expected = TensorsOf(whole, {});
    ContentHash from_memory, from_file;
    ExpectSame(ReadWithWireReader(ModelBytes(bytes, &from_memory)), expected);
    std::ofstream(path, std::ios::binary) << bytes;
    const InputFile file(path);
    ExpectSame(ReadWithWireReader(ModelBytes(file, &from_file)), expected);
    EXPECT_EQ(from_memory.Hex(), Hash(bytes));
    EXPECT_EQ(from_file.Hex(), Hash(bytes));
    // When elements are skipped, nothing else is missing.
    ModelBytes skipping(file, nullptr);
    onnx::ModelProto skipped;
    ASSERT_TRUE(skipped.ParseFromString(ReadWire(skipping, Elements::kSkipped, "test", {}).message));
    ForEachTensor(skipped, [](const TensorSite& site) {
      for (onnx::TensorProto* tensor : {site.dense, site.sparse == nullptr ? nullptr : site.sparse->mutable_values(),
                                        site.sparse == nullptr ? nullptr : site.sparse->mutable_indices()}) {
        if (tensor != nullptr) ClearElements(tensor);
      }
    });
    EXPECT_EQ(skipped.SerializeAsString(), expected.rest);
  }
}

// Those that protobuf writes for the whole model.
TEST(Wire, SeparateElementsAreWrittenAsInTheirMessages) {
  Random random(TestSeed());
  int64_t separate = 0;
  for (int i = 0; i < 100; ++i) {
    onnx::ModelProto model = RandomModel(random);
    ForEachTensor(model, [&](const TensorSite& site) {
      // Fields after the elements, and one that protobuf does not know.
      if (site.dense != nullptr && Below(random, 2) == 0) site.dense->set_doc_string(Bytes(random, Below(random, 20)));
      if (site.dense != nullptr && Below(random, 4) == 0) site.dense->mutable_unknown_fields()->AddVarint(1000, 7);
    });
    const std::string whole = model.SerializeAsString();
    SeparateElements elements;
    ForEachTensor(model, [&](const TensorSite& site) {
      if (site.dense == nullptr || !site.dense->has_raw_data()) return;
      const DType dtype = *DTypeFromProto(site.dense->data_type());
      if (IsNarrow(dtype) || Below(random, 2) == 0) return elements.Take(site.dense);
      Tensor value(dtype, {site.dense->dims(0)});
      std::memcpy(value.data(), site.dense->raw_data().data(), static_cast<size_t>(value.bytes()));
      elements.Set(
          value.view(), [value] { return value; }, site.dense);
      EXPECT_EQ(elements.IndexOf(*site.dense) >= 0, value.bytes() >= SeparateElements::kMinBytes);
    });
    separate += elements.count();
    if (elements.count() > 0) {
      EXPECT_LT(model.ByteSizeLong() + SeparateElements::kMinBytes / 2, whole.size());
    }
    const SerializedModel serialized(model, elements);
    EXPECT_EQ(serialized.bytes(), std::ssize(whole));
    std::string written;
    serialized.Write([&](const void* data, int64_t bytes) { written.append(static_cast<const char*>(data), static_cast<size_t>(bytes)); });
    ASSERT_EQ(written, whole) << i;
  }
  EXPECT_GT(separate, 10);
}

// A model whose only initializer consists of these bytes.
std::string WithTensor(const std::string& tensor) {
  const auto sized = [](char tag, const std::string& content) { return std::string{tag, static_cast<char>(content.size())} + content; };
  return sized(7 << 3 | 2, sized(5 << 3 | 2, tensor));
}

std::string Message(const onnx::TensorProto& tensor) { return tensor.SerializeAsString(); }

onnx::TensorProto Floats(float value) {
  onnx::TensorProto tensor;
  tensor.add_dims(1);
  tensor.set_data_type(onnx::TensorProto::FLOAT);
  tensor.set_raw_data(&value, sizeof value);
  return tensor;
}

TEST(Wire, AcceptsTheTypeAfterTheData) {
  onnx::TensorProto data = Floats(3), type;
  data.clear_data_type();
  type.set_data_type(onnx::TensorProto::FLOAT);
  const Read read = ReadWithWireReader(ModelBytes(WithTensor(Message(data) + Message(type)), nullptr));
  EXPECT_EQ(read.tensors.at(0).data.as<float>()[0], 3);
}

TEST(Wire, LastOfTwoTypesCounts) {
  onnx::TensorProto type;
  type.set_data_type(onnx::TensorProto::INT32);
  const Read read = ReadWithWireReader(ModelBytes(WithTensor(Message(Floats(1)) + Message(type)), nullptr));
  EXPECT_EQ(read.tensors.at(0).data.as<int32_t>()[0], 0x3F800000);
}

TEST(Wire, RejectsDuplicateRawData) {
  onnx::TensorProto more = Floats(2);
  more.clear_dims();
  EXPECT_THROW(ReadWithWireReader(ModelBytes(WithTensor(Message(Floats(1)) + Message(more)), nullptr)), Error);
}

// The fields that mark moved elements in Gradloom's own messages have no meaning in a file.
TEST(Wire, FilesCannotReferToMovedElements) {
  for (const bool last : {false, true}) {
    onnx::TensorProto marked;
    marked.mutable_unknown_fields()->AddVarint((1 << 29) - 1, 7);
    marked.mutable_unknown_fields()->AddLengthDelimited((1 << 29) - 1, "x");
    marked.mutable_unknown_fields()->AddVarint(1000, 7);
    const std::string tensor = last ? Message(Floats(1)) + Message(marked) : Message(marked) + Message(Floats(1));
    const Read read = ReadWithWireReader(ModelBytes(WithTensor(tensor), nullptr));
    EXPECT_EQ(read.tensors.at(0).data.as<float>()[0], 1);
    onnx::ModelProto rest;
    ASSERT_TRUE(rest.ParseFromString(read.rest));
    EXPECT_EQ(rest.graph().initializer(0).unknown_fields().field_count(), 1) << "other unknown fields stay";
  }
}

TEST(Wire, HashIgnoresHowContentIsSplit) {
  Random random(1);
  const std::string bytes = Bytes(random, 1000);
  for (int i = 0; i < 200; ++i) {
    ContentHash hash;
    for (size_t at = 0; at < bytes.size();) {
      const auto count = std::min<size_t>(bytes.size() - at, static_cast<size_t>(Below(random, 30)));
      hash.Append(bytes.data() + at, count);
      at += count;
    }
    hash.EndPiece();
    ASSERT_EQ(hash.Hex(), Hash(bytes));
  }
  // Checkpoints identify their model by this hash, so it must not change.
  ContentHash hash;
  hash.Add("0123456789abcdef!");
  hash.Add("");
  hash.Add("tail");
  EXPECT_EQ(hash.Hex(), "cdf7c3907e79e5c60163f534ee626033");
}

// Large pieces are hashed on another thread, in order.
TEST(Wire, HashCoversLargeFiles) {
  Random random(3);
  onnx::ModelProto model;
  for (const int bytes : {5 << 20, 100, 3 << 20, (256 << 10) + 8, 2 << 20}) {
    onnx::TensorProto& tensor = *model.mutable_graph()->add_initializer();
    tensor.set_data_type(onnx::TensorProto::INT32);
    tensor.add_dims(bytes / 4);
    tensor.set_raw_data(Bytes(random, bytes));
  }
  // A text of this size is read into memory that may move.
  model.set_doc_string(std::string(3 << 20, 'x'));
  const std::string path = testing::TempDir() + "/many.onnx", bytes = model.SerializeAsString();
  std::ofstream(path, std::ios::binary) << bytes;
  const InputFile file(path);
  for (int round = 0; round < 3; ++round) {
    ContentHash from_memory, from_file;
    const Read read = ReadWithWireReader(ModelBytes(file, &from_file));
    ExpectSame(ReadWithWireReader(ModelBytes(bytes, &from_memory)), read);
    EXPECT_EQ(read.tensors.size(), 5U);
    EXPECT_EQ(from_file.Hex(), Hash(bytes));
    EXPECT_EQ(from_memory.Hex(), Hash(bytes));
  }
}

TEST(Wire, TruncatedFileIsAnError) {
  Random random(2);
  const std::string path = testing::TempDir() + "/short.onnx";
  // The longer file is read by several threads; the first of them still find their part.
  for (const int64_t length : {800'000, 20'000'000}) {
    onnx::ModelProto model;
    onnx::TensorProto& tensor = *model.mutable_graph()->add_initializer();
    tensor.add_dims(length / 4);
    tensor.set_data_type(onnx::TensorProto::FLOAT);
    tensor.set_raw_data(Bytes(random, length));
    std::ofstream(path, std::ios::binary) << model.SerializeAsString();
    const InputFile file(path);
    ContentHash hash;
    ModelBytes bytes(file, &hash);
    std::filesystem::resize_file(path, static_cast<uintmax_t>(length / 3));
    try {
      ReadWire(bytes, Elements::kMoved, "test", {});
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kIo) << error.what();
    }
  }
}

// The reader refills its buffer only after the bytes have been hashed.
TEST(Wire, HashesABufferBeforeItIsRefilled) {
  Random random(TestSeed());
  const std::string bytes = Bytes(random, int64_t{8} << 20), path = testing::TempDir() + "/buffers.onnx";
  std::ofstream(path, std::ios::binary) << bytes;
  ContentHash expected;
  expected.Add(bytes);
  for (int round = 0; round < 5; ++round) {
    const InputFile file(path);
    ContentHash hash;
    ModelBytes model(file, &hash);
    std::string rest(256 << 10, '\0');
    while (model.at() < model.size()) {
      model.Next();
      model.Read(std::min<int64_t>(static_cast<int64_t>(rest.size()) - 1, model.size() - model.at()), rest.data());
    }
    model.Finish();
    EXPECT_EQ(hash.Hex(), expected.Hex());
  }
}

}  // namespace
}  // namespace gradloom
