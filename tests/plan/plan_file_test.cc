// Plans on disk: a written plan reads back unchanged, and invalid files are rejected.
#include "runtime/plan/plan_file.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <random>

#include "gtest/gtest.h"
#include "runtime/base/file.h"
#include "runtime/plan/plan.pb.h"
#include "runtime/plan/text.h"
#include "runtime/plan/verify_plan.h"
#include "tests/base/temporary_folder.h"
#include "tests/verify/plan_builder.h"

namespace gradloom {
namespace {

constexpr int64_t kHeaderBytes = 64;

// The parts of a plan file, which can be reassembled with a correct hash. Written from docs/plan-format.md, independently of the code under
// test.
struct Parts {
  std::string header;
  file::Plan message;
  std::string data;

  explicit Parts(const std::string& bytes) : header(bytes.substr(0, kHeaderBytes)) {
    int64_t message_bytes, data_offset;
    std::memcpy(&message_bytes, bytes.data() + 16, 8);
    std::memcpy(&data_offset, bytes.data() + 24, 8);
    EXPECT_TRUE(message.ParseFromString(bytes.substr(kHeaderBytes, static_cast<size_t>(message_bytes))));
    data = bytes.substr(static_cast<size_t>(data_offset));
  }

  std::string Sealed() const { return Sealed(message.SerializeAsString()); }
  std::string Sealed(const std::string& text) const {
    std::string bytes = header + text;
    bytes.resize((bytes.size() + 63) / 64 * 64);
    const int64_t sizes[] = {static_cast<int64_t>(text.size()), static_cast<int64_t>(bytes.size()), static_cast<int64_t>(data.size())};
    std::memcpy(bytes.data() + 16, sizes, sizeof sizes);
    bytes += data;
    return Rehashed(bytes);
  }
  static std::string Rehashed(std::string bytes) {
    std::memset(bytes.data() + 40, 0, 8);
    const uint64_t hash = XXH3_64bits(bytes.data(), bytes.size());
    std::memcpy(bytes.data() + 40, &hash, 8);
    return bytes;
  }
};

Plan Sample(const std::string& name) {
  for (auto& [known, plan] : SamplePlans()) {
    if (known == name) return plan;
  }
  throw Error(ErrorCode::kInternal, "no sample plan " + name);
}

// A plan with a value in every field.
Plan Rich() {
  Plan plan = Sample("training");
  plan.model = {"linear\x01 model", "0123abcd", std::string("\0onnx", 5), {{"w.1", "w"}, {"v.1", "v"}}};
  plan.schedule = {"cosine", 0.25, {{"total", int64_t{100}}, {"floor", 1e-3}}};
  plan.properties = {{"options", "--lr 0.25"}, {"version", "0.1"}};
  plan.losses = {{"cross_entropy", "logits", "label", true, -1, 7, {0.5, 2}, true}, {"mse", "y", "t"}};
  plan.loss_terms = {"loss/logits", "loss/y"};
  plan.state[0].initial = Tensor::From<float>(std::vector<float>(16, -1.5f), {16});
  plan.constants[0].value.as<float>()[3] = std::nanf("");
  plan.step.seed = 64;
  plan.step.bytes = 128;
  plan.programs.Mutable(0).streams[0] = {StreamKind::kCopy, 0, 3};
  plan.programs.Mutable(0).instructions[1].attributes = {{"i", int64_t{-7}},
                                                         {"f", -0.0},
                                                         {"s", std::string("a\xff")},
                                                         {"is", std::vector<int64_t>{1, -2}},
                                                         {"fs", std::vector<double>{0.5}},
                                                         {"ss", std::vector<std::string>{"x", ""}},
                                                         {"t", Tensor::From<int64_t>({4, 5}, {2, 1})},
                                                         {"empty", std::vector<int64_t>{}}};
  plan.programs.Mutable(0).buffers[4].layout = Layout::FromString("0:0x8");
  return plan;
}

class PlanFileTest : public testing::Test {
 protected:
  std::string Path() const { return folder_ / "a.plan"; }

  std::string Written(const Plan& plan) const {
    WritePlan(plan, Path());
    return ReadWholeFile(Path());
  }

  Plan Read(const std::string& bytes) const {
    // Not WriteFileAtomically, because thousands of syncs would take a minute.
    std::ofstream(Path(), std::ios::binary) << bytes;
    return ReadPlan(Path());
  }

  void ExpectRefused(const std::string& bytes, const std::string& says) const {
    const Error error = ErrorOf([&] { Read(bytes); });
    EXPECT_EQ(error.code(), ErrorCode::kPlan) << error.message();
    EXPECT_NE(error.message().find(says), std::string::npos) << "'" << error.message() << "' does not say '" << says << "'";
    EXPECT_NE(error.where().find("a.plan"), std::string::npos);
    EXPECT_NE(error.help(), "");
  }

  // Expects a plan that is well formed as a file, but unsound, to be refused.
  void ExpectUnsound(const Plan& plan, const std::string& says) const {
    const Plan read = Read(Written(plan));
    const Error error = ErrorOf([&] { VerifyOrThrow(read, FindTestKernel); });
    EXPECT_EQ(error.code(), ErrorCode::kPlan);
    const std::string all = error.where() + ": " + error.message();
    EXPECT_NE(all.find(says), std::string::npos) << "'" << all << "' does not say '" << says << "'";
  }

  // Expects the plan without initial values and constants.
  static void ExpectWithoutTensors(const Plan& read, Plan plan) {
    for (StateTensor& state : plan.state) state.initial = Tensor();
    for (Constant& constant : plan.constants) constant.value = Tensor();
    EXPECT_EQ(PlanText(read), PlanText(plan));
    EXPECT_EQ(PlanHash(read), PlanHash(plan));
    EXPECT_EQ(read.model.bytes, plan.model.bytes);
    EXPECT_EQ(read.model.tied, plan.model.tied);
  }

  TemporaryFolder folder_;
};

TEST_F(PlanFileTest, RoundTrip) {
  std::vector<std::pair<std::string, Plan>> plans = SamplePlans();
  plans.emplace_back("rich", Rich());
  plans.emplace_back("empty", Plan());
  for (const auto& [name, plan] : plans) {
    SCOPED_TRACE(name);
    const std::string bytes = Written(plan);
    const Plan read = ReadPlan(Path());
    EXPECT_EQ(PlanText(read), PlanText(plan));
    EXPECT_EQ(Written(read), bytes);
    EXPECT_EQ(PlanHash(read), PlanHash(plan));
    EXPECT_EQ(folder_.entries(), 1);
    ExpectWithoutTensors(ReadPlan(Path(), PlanTensors::kSkipped), plan);
  }
}

TEST_F(PlanFileTest, KeepsEveryValue) {
  const Plan plan = Rich();
  const Plan read = Read(Written(plan));
  EXPECT_EQ(read.model.name, plan.model.name);
  EXPECT_EQ(read.model.bytes, plan.model.bytes);
  EXPECT_EQ(read.properties, plan.properties);
  EXPECT_EQ(read.losses, plan.losses);
  EXPECT_EQ(read.loss_terms, plan.loss_terms);
  EXPECT_EQ(read.state[0].initial.as<float>()[15], -1.5f);
  EXPECT_FALSE(read.state[1].initial.defined());
  EXPECT_TRUE(std::isnan(read.constants[0].value.as<float>()[3]));
  const Attributes& attributes = read.programs[0].instructions[1].attributes;
  EXPECT_EQ(attributes.Int("i", 0), -7);
  EXPECT_TRUE(std::signbit(attributes.Float("f", 1)));
  EXPECT_EQ(attributes.String("s", ""), "a\xff");
  EXPECT_EQ(attributes.Ints("is"), (std::vector<int64_t>{1, -2}));
  EXPECT_EQ(attributes.Strings("ss"), (std::vector<std::string>{"x", ""}));
  EXPECT_EQ(IntValues(attributes.TensorOf("t").view()), (std::vector<int64_t>{4, 5}));
  EXPECT_TRUE(attributes.has("empty") && attributes.Ints("empty").empty());
  EXPECT_EQ(read.programs[0].buffers[4].layout, plan.programs[0].buffers[4].layout);
  EXPECT_EQ(read.programs[0].streams[0].threads, 3);
}

TEST_F(PlanFileTest, HashTellsPlansApart) {
  Plan plan = Rich();
  const std::string hash = PlanHash(plan);
  EXPECT_EQ(hash.size(), 16U);
  plan.constants[0].value.as<float>()[3] = 1;
  EXPECT_NE(PlanHash(plan), hash);
}

// P01 to P05, P27, P30.
TEST_F(PlanFileTest, RejectsForeignFiles) {
  const std::string bytes = Written(Rich());
  ExpectRefused("", "empty");
  ExpectRefused(
      "\x8b"
      "GLP",
      "too few");
  ExpectRefused("<!DOCTYPE html>" + std::string(100, ' '), "not a plan");
  std::string text_mode = bytes;
  text_mode.erase(4, 1);
  ExpectRefused(text_mode, "not a plan");
  std::string newer = bytes;
  newer[8] = Plan::kFormatVersion + 1;
  ExpectRefused(newer, "format version " + std::to_string(Plan::kFormatVersion + 1));
  for (int percent = 1; percent < 100; ++percent) {
    SCOPED_TRACE(percent);
    ExpectRefused(bytes.substr(0, bytes.size() * static_cast<size_t>(percent) / 100), "");
  }
  ExpectRefused(bytes + std::string(4, '\0'), "specifies another size");
  for (const auto& [at, value] : std::vector<std::pair<size_t, int64_t>>{
           {16, -1}, {16, INT64_MAX}, {16, int64_t{1} << 31}, {24, 0}, {24, INT64_MAX}, {32, -64}, {32, INT64_MAX}, {32, 1 << 30}}) {
    std::string claim = bytes;
    std::memcpy(claim.data() + at, &value, 8);
    ExpectRefused(Parts::Rehashed(claim), "");
  }
  EXPECT_EQ(ErrorOf([&] { ReadPlan(folder_ / "absent.plan"); }).code(), ErrorCode::kIo);
  EXPECT_EQ(ErrorOf([&] { ReadPlan(folder_.path()); }).code(), ErrorCode::kIo);
}

TEST_F(PlanFileTest, RefusesEveryFlippedBit) {
  const std::string bytes = Written(Rich());
  for (size_t i = 0; i < bytes.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      // All bits of the header, and one bit of each byte after it.
      if (i >= kHeaderBytes && bit != static_cast<int>(i * 2654435761U >> 7 & 7)) continue;
      std::string flipped = bytes;
      flipped[i] = static_cast<char>(flipped[i] ^ (1 << bit));
      ExpectRefused(flipped, "");
    }
    if (HasFailure()) FAIL() << "at byte " << i;
  }
}

// Files with a correct hash and an impossible structure.
TEST_F(PlanFileTest, RejectsImpossibleStructures) {
  const Parts good(Written(Rich()));
  EXPECT_NO_THROW(Read(good.Sealed()));
  const auto refused = [&](const std::string& says, const std::function<void(file::Plan&)>& change) {
    Parts parts = good;
    change(parts.message);
    ExpectRefused(parts.Sealed(), says);
  };
  const auto instruction = [](file::Plan& plan) { return plan.mutable_programs(0)->mutable_instructions(0); };
  const auto buffer = [](file::Plan& plan) { return plan.mutable_programs(0)->mutable_buffers(0); };
  refused("unknown instruction 99", [&](file::Plan& p) { instruction(p)->set_kind(99); });  // P11
  refused("unknown instruction -1", [&](file::Plan& p) { instruction(p)->set_kind(-1); });
  refused("unknown collective 5", [&](file::Plan& p) { instruction(p)->set_collective(5); });
  refused("unknown kind of access 3", [&](file::Plan& p) { instruction(p)->set_use_accesses(0, 3); });
  refused("kinds of access", [&](file::Plan& p) { instruction(p)->add_use_buffers(1); });
  refused("event -5 is negative", [&](file::Plan& p) { instruction(p)->set_event_plus_1(-5); });
  refused("unknown arena 6", [&](file::Plan& p) { buffer(p)->set_arena(6); });
  refused("unknown element type 11111", [&](file::Plan& p) { buffer(p)->set_dtype(11111); });
  refused("unknown element type 8", [&](file::Plan& p) { buffer(p)->set_dtype(8); });
  refused("33 dimensions", [&](file::Plan& p) {
    while (buffer(p)->dims_size() < 33) buffer(p)->add_dims(1);
  });
  refused("is not a layout", [&](file::Plan& p) { buffer(p)->set_layout("sideways"); });
  refused("unknown kind of stream", [&](file::Plan& p) { p.mutable_programs(0)->mutable_streams(0)->set_kind(3); });
  refused("unknown kind of entry", [&](file::Plan& p) { p.mutable_entries(0)->set_kind(6); });
  refused("unknown kind of state", [&](file::Plan& p) { p.mutable_state(0)->set_kind(7); });
  refused("unknown device kind", [&](file::Plan& p) { p.mutable_targets(0)->set_device(2); });
  refused("property 'options' occurs twice", [&](file::Plan& p) { p.mutable_properties(1)->set_name("options"); });
  refused("has no value", [&](file::Plan& p) { instruction(p)->add_attributes()->set_name("x"); });
  refused("attribute 'x' occurs twice", [&](file::Plan& p) {
    for (int i = 0; i < 2; ++i) {
      auto* x = instruction(p)->add_attributes();
      x->set_name("x");
      x->set_int_(1);
    }
  });
  refused("a text has 65537 bytes", [&](file::Plan& p) { buffer(p)->set_name(std::string(65537, 'a')); });
  refused("do not match float32[17]", [&](file::Plan& p) { p.mutable_constants(0)->mutable_value()->set_dims(0, 17); });
  refused("do not match", [&](file::Plan& p) { p.mutable_constants(0)->mutable_value()->set_dims(0, int64_t{1} << 62); });
  refused("do not match", [&](file::Plan& p) {  // the product wraps around to 16
    auto* value = p.mutable_constants(0)->mutable_value();
    for (int i = 0; i < 3; ++i) value->add_dims(int64_t{1} << 32);
  });
  // P27: more bytes than the file has, and bytes of another tensor.
  refused("do not directly follow", [&](file::Plan& p) {
    auto* value = p.mutable_constants(0)->mutable_value();
    value->set_dims(0, int64_t{1} << 40);
    value->mutable_data()->set_bytes(int64_t{4} << 40);
  });
  refused("do not directly follow", [&](file::Plan& p) { p.mutable_constants(0)->mutable_value()->mutable_data()->set_offset(0); });
  refused("do not directly follow", [&](file::Plan& p) { p.mutable_model()->mutable_bytes()->set_offset(INT64_MAX); });
  refused("do not directly follow", [&](file::Plan& p) { p.mutable_model()->mutable_bytes()->set_bytes(-1); });
  refused("the plan uses", [&](file::Plan& p) { p.mutable_programs(0)->mutable_instructions(1)->clear_attributes(); });
}

TEST_F(PlanFileTest, BoundsWhatItParses) {
  const Parts good(Written(Sample("control")));
  // P31: nested bodies. The serializer is recursive as well, so these bytes are built from the inside out.
  const auto field = [](int number, const std::string& bytes) {
    std::string text;
    {
      google::protobuf::io::StringOutputStream stream(&text);
      google::protobuf::io::CodedOutputStream out(&stream);
      out.WriteTag(static_cast<uint32_t>(number << 3 | 2));
      out.WriteVarint32(static_cast<uint32_t>(bytes.size()));
    }
    return text + bytes;
  };
  for (int depth : {40, 3000}) {
    std::string program;
    for (int i = 0; i < depth; ++i) program = field(4, field(13, program));
    ExpectRefused(good.Sealed(field(10, program)), "nested too deeply");
  }
  // P30: two bytes each in the file, a hundred times as much in memory.
  std::string many;
  for (int i = 0; i < (1 << 23) + 1; ++i) many += std::string("\x22\0", 2);
  ExpectRefused(good.Sealed(field(10, many)), "parts");
}

// Random bytes with a correct hash are rejected, or read as a plan that the verifier can check.
TEST_F(PlanFileTest, SurvivesRandomStructures) {
  const uint32_t seed = 20261121;
  std::printf("seed %u\n", seed);
  std::mt19937 random(seed);
  int accepted = 0, sound = 0;
  for (const auto& [name, plan] : SamplePlans()) {
    SCOPED_TRACE(name);
    const Parts good(Written(plan));
    const std::string text = good.message.SerializeAsString();
    for (int i = 0; i < 300; ++i) {
      std::string changed = text;
      for (uint32_t k = 1 + random() % 3; k > 0; --k) changed[random() % changed.size()] = static_cast<char>(random());
      try {
        const Plan read = Read(good.Sealed(changed));
        ++accepted;
        sound += Verify(read, FindTestKernel).empty() ? 1 : 0;
        EXPECT_FALSE(PlanText(read).empty());
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kPlan) << error.message();
      }
    }
  }
  std::printf("%d read, of these %d sound\n", accepted, sound);
  EXPECT_GT(accepted, 0);
}

// P06 to P26, P28, P32, P33: files that can be read but must not run.
TEST_F(PlanFileTest, UnsoundPlansAreReadAndRefused) {
  const auto changed = [](const std::string& name, const std::function<void(Plan&)>& change) {
    Plan plan = Sample(name);
    change(plan);
    return plan;
  };
  const auto buffer = [](Plan& plan, const std::string& name) -> Buffer& {
    for (Buffer& b : plan.programs.Mutable(0).buffers) {
      if (b.name == name) return b;
    }
    throw Error(ErrorCode::kInternal, "no buffer " + name);
  };
  const auto training = [&](const std::function<void(Plan&)>& change) { return changed("training", change); };
  ExpectUnsound(training([](Plan& p) { p.programs.Mutable(0).transient_bytes = 0; }), "do not lie in the arena");                    // P06
  ExpectUnsound(training([](Plan& p) { p.places[0].state_bytes = INT64_MIN; }), "the arena has -");                                  // P06
  ExpectUnsound(training([&](Plan& p) { buffer(p, "h").offset = INT64_MAX - 63; }), "do not lie in the arena");                      // P07
  ExpectUnsound(training([&](Plan& p) { p.programs.Mutable(0).transient_bytes = buffer(p, "loss").offset + 63; }), "do not lie");    // P08
  ExpectUnsound(training([&](Plan& p) { buffer(p, "h").offset = 4; }), "not a multiple of 64");                                      // P09
  ExpectUnsound(training([](Plan& p) { p.programs.Mutable(0).instructions[0].uses[0].buffer = 99; }), "buffer 99 is out of range");  // P10
  ExpectUnsound(training([](Plan& p) { p.programs.Mutable(0).instructions[0].kernel = "x"; }), "no kernel 'x'");                     // P11
  ExpectUnsound(training([](Plan& p) { p.programs.Mutable(0).instructions[0].uses.pop_back(); }), "number of operands");             // P12
  ExpectUnsound(training([&](Plan& p) { buffer(p, "h").dtype = DType::kInt32; }), "dtype");                                          // P13
  ExpectUnsound(training([&](Plan& p) { buffer(p, "h").dtype = DType::kFloat64; }), "bytes do not match");                           // P13
  ExpectUnsound(training([](Plan& p) { p.programs.Mutable(0).streams[0].device = 1; }), "device 1 is out of range");                 // P14
  ExpectUnsound(training([](Plan& p) { p.programs.Mutable(0).instructions[0].stream = 1; }), "stream 1 is out of range");            // P15
  ExpectUnsound(changed("branches",
                        [](Plan& p) {
                          std::erase_if(p.programs.Mutable(0).instructions,
                                        [](const Instruction& i) { return i.kind == InstructionKind::kRecord; });
                        }),
                "nothing records the event");  // P16
  ExpectUnsound(changed("branches", [](Plan& p) { p.programs.Mutable(0).instructions[1].kind = InstructionKind::kWait; }),
                "nothing records the event");  // P16
  ExpectUnsound(changed("branches",
                        [](Plan& p) {
                          p.programs.Mutable(0).instructions.insert(p.programs.Mutable(0).instructions.begin(),
                                                                    p.programs.Mutable(0).instructions[1]);
                        }),
                "was already recorded by");  // P17
  ExpectUnsound(changed("branches",
                        [](Plan& p) {
                          std::rotate(p.programs.Mutable(0).instructions.begin(), p.programs.Mutable(0).instructions.begin() + 2,
                                      p.programs.Mutable(0).instructions.begin() + 7);
                        }),
                "recorded only later");  // P18
  ExpectUnsound(changed("branches", [&](Plan& p) { buffer(p, "right").offset = buffer(p, "left").offset; }),
                "nothing makes it wait");  // P19
  ExpectUnsound(training([](Plan& p) { std::swap(p.programs.Mutable(0).instructions[0], p.programs.Mutable(0).instructions[1]); }),
                "before #1");  // P20
  ExpectUnsound(changed("accumulation",
                        [&](Plan& p) {
                          std::erase_if(p.programs.Mutable(0).instructions,
                                        [](const Instruction& i) { return i.kind == InstructionKind::kWait; });
                        }),
                "nothing makes it wait for #0 copy");  // P21
  ExpectUnsound(changed("stages", [](Plan& p) { p.programs.Mutable(0).instructions[1].peer = 0; }),
                "does not name another rank");  // P22 and P23 in verify_plan_test
  ExpectUnsound(changed("replicas", [](Plan& p) { p.groups[1].ranks = {0, 1, 2}; }), "the rank is not a member");  // P22
  ExpectUnsound(changed("sharded",
                        [](Plan& p) {
                          p.groups[0].ranks.push_back(2);
                          p.entries[0].ranks.push_back(p.entries[0].ranks[0]);
                        }),
                "do not match 3 members");                                                                                       // P24
  ExpectUnsound(changed("sharded", [](Plan& p) { p.programs.Mutable(0).instructions[4].root = 2; }), "root 2 is out of range");  // P25
  ExpectUnsound(changed("owners", [](Plan& p) { p.programs.Mutable(0).instructions[2].roots[0] = 2; }), "root 2 is out of range");
  ExpectUnsound(changed("owners", [](Plan& p) { p.programs.Mutable(0).instructions[2].roots.push_back(0); }), "has 3 roots for 2");
  ExpectUnsound(changed("replicas",
                        [&](Plan& p) {
                          for (const char* name : {"bucket sum", "g0 sum", "g1 sum"}) buffer(p, name).offset += 64;
                        }),
                "over its own operand");  // P26
  ExpectUnsound(changed("sharded", [](Plan& p) { p.programs.Mutable(0).instructions[0].attributes.set("value", INFINITY); }),
                "not finite");                                                               // P28
  ExpectUnsound(training([](Plan& p) { p.state[1].name = "w"; }), "the name occurs twice");  // P32
  ExpectUnsound(training([](Plan& p) {
                  p.state.erase(p.state.begin());
                  p.state[0].kind = StateKind::kStatistic;
                  p.state[0].parameter = -1;
                }),
                "nothing of its type and size");  // P33
}

TEST_F(PlanFileTest, SaysWhyItCannotWrite) {
  EXPECT_EQ(ErrorOf([&] { WritePlan(Rich(), folder_ / "no/such/folder.plan"); }).code(), ErrorCode::kResource);
  // What could not be read again.
  Plan long_property = Rich(), long_name = Rich();
  long_property.properties["tail"] = std::string((1 << 20) + 1, 'n');
  long_name.state[0].name = std::string((64 << 10) + 1, 'n');
  for (const Plan& plan : {long_property, long_name}) {
    const Error error = ErrorOf([&] { WritePlan(plan, folder_ / "long.plan"); });
    EXPECT_EQ(error.code(), ErrorCode::kLimit);
    EXPECT_NE(error.message().find("a text has"), std::string::npos) << error.message();
  }
  EXPECT_EQ(folder_.entries(), 0);
}

}  // namespace
}  // namespace gradloom
