#include "tools/config/configuration.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <utility>

#include "tests/base/temporary_folder.h"
#include "tools/config/keys.h"

namespace gradloom {
namespace {

class ConfigurationTest : public ::testing::Test {
 protected:
  // The error of reading a file with this text. Its place is given without the folder.
  Error Refused(const std::string& text) {
    WriteWithoutSync(folder_ / "g.toml", text);
    const Error error = ErrorOf([&] { Configuration().ReadFile(folder_ / "g.toml"); });
    const std::string where = error.where();
    return Error(error.code(), error.message(), where.substr(where.rfind('/') + 1), error.help());
  }

  Configuration Read(const std::string& text) {
    WriteWithoutSync(folder_ / "g.toml", text);
    Configuration configuration;
    configuration.ReadFile(folder_ / "g.toml");
    return configuration;
  }

  TemporaryFolder folder_;
};

TEST(KeysTest, NamesAndFlagsAreUniqueAndDefaultsAreValid) {
  std::set<std::string> names, flags;
  std::string section;
  std::set<std::string> sections;
  for (const Key& key : Keys()) {
    EXPECT_TRUE(names.insert(key.name).second) << key.name;
    EXPECT_TRUE(flags.insert(key.flag).second) << key.flag;
    EXPECT_TRUE(std::string_view(key.flag).starts_with("--")) << key.flag;
    EXPECT_NE(key.uses, 0) << key.name;
    EXPECT_FALSE(std::string_view(key.help).empty()) << key.name;
    const bool first = key.section() != section;
    EXPECT_TRUE(!first || sections.insert(std::string(key.section())).second) << "in two places: " << key.section();
    section = key.section();
  }
  EXPECT_EQ(Configuration().Number("optimizer.lr"), 1e-3);
  EXPECT_EQ(Configuration().Integer("train.epochs"), 10);
  EXPECT_FALSE(Configuration().is_set("optimizer.lr"));
}

TEST_F(ConfigurationTest, EveryTypeOfKey) {
  const Configuration c = Read(R"(version = 1
[model]
path = "m.onnx"
shape = { N = 4, "a.b" = 5 }
freeze = ["a*", "b"]
[data.map]
x = "p0..p3"
y = 3
[data.transform]
x = ["scale 1/255", "standardize"]
[loss]
name = "mse"
[optimizer]
lr = 1
[schedule]
warmup = 500
[train]
epochs = 7
dry_run = true
)");
  EXPECT_EQ(c.Text("model.path"), folder_ / "m.onnx");
  EXPECT_EQ(c.Named("model.shape"), (NamedTexts{{"N", {"4"}}, {"a.b", {"5"}}}));
  EXPECT_EQ(c.Texts("model.freeze"), (std::vector<std::string>{"a*", "b"}));
  EXPECT_EQ(c.Named("data.map"), (NamedTexts{{"x", {"p0..p3"}}, {"y", {"3"}}}));
  EXPECT_EQ(c.Named("data.transform"), (NamedTexts{{"x", {"scale 1/255", "standardize"}}}));
  EXPECT_EQ(c.Texts("loss.name"), (std::vector<std::string>{"mse"}));
  EXPECT_EQ(c.Number("optimizer.lr"), 1);
  EXPECT_EQ(c.Text("schedule.warmup"), "500");
  EXPECT_EQ(c.Integer("train.epochs"), 7);
  EXPECT_TRUE(c.Switch("train.dry_run"));
  EXPECT_EQ(c.origin("train.epochs").place, folder_ / "g.toml:18:1");
  EXPECT_EQ(c.origin("train.seed").ToString(), "default");
}

TEST_F(ConfigurationTest, RejectsUnknownKeysAndSuggestsTheNearest) {
  const Error lr = Refused("[model]\n\n[optimizer]\nname = \"adam\"\nlearning_rate = 1\n");
  EXPECT_EQ(lr.code(), ErrorCode::kConfig);
  EXPECT_EQ(lr.message(), "unknown key 'optimizer.learning_rate'");
  EXPECT_EQ(lr.where(), "g.toml:5:1");
  EXPECT_EQ(lr.help(), "did you mean 'optimizer.lr'?   see: gradloom config --keys optimizer");
  EXPECT_NE(Refused("[optimiser]\nlr = 1\n").help().find("'optimizer'"), std::string::npos);
  EXPECT_NE(Refused("[train]\nlr = 1\n").help().find("'optimizer.lr'"), std::string::npos);
  EXPECT_NE(Refused("[train]\nepoch = 1\n").help().find("'train.epochs'"), std::string::npos);
  EXPECT_NE(Refused("[data]\nbatch-size = 1\n").help().find("'data.batch'"), std::string::npos);
  EXPECT_NE(Refused("lr = 1\n").help().find("'optimizer.lr'"), std::string::npos);
  EXPECT_EQ(Refused("[zzz]\nqqq = 1\n").help(), "see: gradloom config --keys");
}

TEST_F(ConfigurationTest, ReportsTheLocationOfErrors) {
  const struct {
    const char* text;
    const char* where;
    const char* message;
  } rows[] = {
      {"[train]\nepochs = 3\nepochs = 4\n", "g.toml:3:", "epochs"},
      {"[train]\nepochs = \"three\"\n", "g.toml:2:10", "train.epochs must be a whole number, got a string"},
      {"[train]\nepochs = 3.5\n", "g.toml:2:10", "got a number with a fraction"},
      {"[train]\nepochs = 0\n", "g.toml:2:10", "at least 1"},
      {"[train]\nepochs = 9223372036854775807\n", "g.toml:2:10", "at most 1000000000, got"},
      {"[devices]\nthreads = 99999\n", "g.toml:2:11", "at most 1024, got 99999"},
      {"[data]\nbatch = -4\n", "g.toml:2:9", "at least 0"},
      {"[optimizer]\nlr = nan\n", "g.toml:2:6", "finite"},
      {"[optimizer]\nlr = -1e-3\n", "g.toml:2:6", "at least 0"},
      {"[optimizer]\nname = \"adamv\"\n", "g.toml:2:8", "cannot be 'adamv'"},
      {"[optimizer]\nlr = \n", "g.toml:2:", ""},
      {"[optimizer\nlr = 1\n", "g.toml:1:", ""},
      {"optimizer = 3\n", "g.toml:1:1", "unknown key"},
      {"version = 2\n", "g.toml:1:", "version"},
      {"[model]\npath = \"~/m.onnx\"\n", "g.toml:2:8", "not expanded"},
      {"[model]\nfreeze = [\"a\", 3]\n", "g.toml:2:16", "a string or a list of strings"},
      {"[data.map]\nx = [\"a\"]\n", "g.toml:2:5", "data.map"},
      {"[model.shape]\nN = 0\n", "g.toml:1:", "at least 1"},
      {"[model]\npath = \"\xff\"\n", "g.toml:2:", ""},
  };
  for (const auto& row : rows) {
    const Error error = Refused(row.text);
    EXPECT_EQ(error.code(), ErrorCode::kConfig) << row.text;
    EXPECT_TRUE(error.where().starts_with(row.where)) << row.text << error.Describe();
    EXPECT_NE(error.message().find(row.message), std::string::npos) << row.text << error.Describe();
    EXPECT_FALSE(error.help().empty()) << row.text;
  }
  std::string deep = "[model]\nfreeze = ";
  for (int i = 0; i < 10000; ++i) deep += "[";
  EXPECT_EQ(Refused(deep).code(), ErrorCode::kConfig);
  // Each part of a dotted key opens a nested table.
  std::string parts = "a";
  for (int i = 0; i < 200000; ++i) parts += ".a";
  for (const std::string& text : {parts + " = 1\n", "[" + parts + "]\n", "x = {" + parts + " = 1}\n"}) {
    EXPECT_EQ(Refused(text).message(), "a key has more than 32 parts");
  }
  EXPECT_EQ(Refused("\n[x]\n" + parts + " = 1\n").where(), "g.toml:3:64");
  // Inputs that the parser assumes to be impossible.
  EXPECT_EQ(Refused(std::string("a = 1979-05-27T\0r\n", 18)).code(), ErrorCode::kConfig);
  EXPECT_EQ(Refused("[[[[").code(), ErrorCode::kConfig);
  // A number beyond 64 bits is written so that it reads back.
  EXPECT_EQ(Read(Read("[optimizer]\nlr = 9223372036854775808.0\n").ToToml(false)).Number("optimizer.lr"), 0x1p63);
  EXPECT_EQ(Refused("\n \xC7\xA5 = 1\n").where(), "g.toml:2:2");
  EXPECT_EQ(Refused("\xC7\xA5 = 1\n").message(), "a non-ASCII character outside of quotes");
  EXPECT_EQ(Read("\xEF\xBB\xBF# \xC7\xA5\n[run]\nname = \"\xC7\xA5\"\n").Text("run.name"), "\xC7\xA5");
  EXPECT_EQ(ErrorOf([&] { Configuration().ReadFile(folder_ / "none.toml"); }).code(), ErrorCode::kIo);
  WriteWithoutSync(folder_ / "large.toml", std::string((1 << 20) + 1, '#'));
  EXPECT_EQ(ErrorOf([&] { Configuration().ReadFile(folder_ / "large.toml"); }).code(), ErrorCode::kLimit);
}

TEST_F(ConfigurationTest, AcceptsEmptyTextOnlyAsTheDefault) {
  EXPECT_EQ(Read("[log]\nreport = \"\"\n").Text("log.report"), "");
  const Error error = ErrorOf([&] { Read("[train]\nprecision = \"\"\n"); });
  EXPECT_EQ(error.code(), ErrorCode::kConfig);
  EXPECT_EQ(error.message(), "train.precision cannot be ''");
}

TEST_F(ConfigurationTest, FlagOverridesSetOverridesFileOverridesDefault) {
  Configuration c = Read("[optimizer]\nlr = 1\nmomentum = 0.5\nbeta1 = 0.1\n[data.map]\nx = \"a\"\ny = \"b\"\n");
  c.SetAssignment("optimizer.lr=2");
  c.SetAssignment("optimizer.momentum=0.6");
  c.SetAssignment("data.map.y=c");
  c.SetFlag(*FindFlag("--lr"), {"3"});
  c.SetFlag(*FindFlag("--map"), {"z=d"});
  EXPECT_EQ(c.Number("optimizer.lr"), 3);
  EXPECT_EQ(c.origin("optimizer.lr").ToString(), "--lr (over --set optimizer.lr=2)");
  EXPECT_EQ(c.Number("optimizer.momentum"), 0.6);
  EXPECT_EQ(c.Number("optimizer.beta1"), 0.1);
  EXPECT_EQ(c.Number("optimizer.rho"), 0.9);
  EXPECT_EQ(c.Named("data.map"), (NamedTexts{{"x", {"a"}}, {"y", {"c"}}, {"z", {"d"}}}));
}

TEST_F(ConfigurationTest, AnEqualValueOverridesNothing) {
  const std::string data = (std::filesystem::current_path() / "train.csv").string();
  Configuration c = Read("[optimizer]\nlr = 1\nmomentum = 0.5\n[data]\ntrain = \"" + data + "\"\n[data.map]\nx = \"a\"\n");
  const auto overridden = [&](const char* name) { return c.origin(name).overridden; };
  c.SetAssignment("optimizer.momentum=0.6");
  const std::string file = overridden("optimizer.momentum");
  EXPECT_NE(file, "");
  for (const auto& [flag, value] : {std::pair("--lr", "1"), {"--momentum", "0.6"}, {"--data", "train.csv"}, {"--map", "y=b"}})
    c.SetFlag(*FindFlag(flag), {value});
  EXPECT_EQ(overridden("optimizer.lr"), "");
  EXPECT_EQ(c.origin("optimizer.lr").place, "--lr");
  EXPECT_EQ(overridden("optimizer.momentum"), file);  // which has another value than --set and the flag
  EXPECT_EQ(overridden("data.train"), "");
  EXPECT_EQ(overridden("data.map"), "");
  c = Read("[data.map]\nx = \"a\"\n");
  c.SetFlag(*FindFlag("--map"), {"x=b"});
  EXPECT_NE(overridden("data.map"), "");
}

TEST_F(ConfigurationTest, AssignmentsAreBareTextOrToml) {
  Configuration c;
  c.SetAssignment("optimizer.name=adamw");
  c.SetAssignment("model.freeze=[\"a\", \"b\"]");
  c.SetAssignment("run.name=\"with = sign\"");
  c.SetAssignment("data.map={ x = \"p0..p3\" }");
  EXPECT_EQ(c.Text("optimizer.name"), "adamw");
  EXPECT_EQ(c.Texts("model.freeze"), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(c.Text("run.name"), "with = sign");
  EXPECT_EQ(c.Named("data.map"), (NamedTexts{{"x", {"p0..p3"}}}));
  for (const char* bad :
       {"optimizer.lr", "=3", "optimizer.lr=x", "optimizer.rate=3", "model.freeze=[1]", "model.freeze=[", "data.map.x="}) {
    EXPECT_EQ(ErrorOf([&] { c.SetAssignment(bad); }).code(), ErrorCode::kConfig) << bad;
  }
}

TEST_F(ConfigurationTest, FlagsAreParsedStrictly) {
  Configuration c;
  const std::pair<const char*, std::vector<std::string>> bad[] = {
      {"--lr", {"1e-3x"}},  {"--lr", {"1", "2"}},      {"--epochs", {"1.5"}}, {"--shape", {"N"}},
      {"--shape", {"N=x"}}, {"--map", {"x=a", "x=b"}}, {"--mode", {"trian"}}, {"--epochs", {"99999999999999999999"}},
  };
  for (const auto& [flag, words] : bad) {
    const Error error = ErrorOf([&] { c.SetFlag(*FindFlag(flag), words); });
    EXPECT_EQ(error.code(), ErrorCode::kConfig) << flag;
    EXPECT_EQ(error.where(), flag);
  }
  EXPECT_NE(ErrorOf([&] { c.SetFlag(*FindFlag("--mode"), {"trian"}); }).help().find("did you mean 'train'"), std::string::npos);
}

TEST_F(ConfigurationTest, APathThroughALinkLeadsWhereItLed) {
  namespace fs = std::filesystem;
  fs::create_directories(folder_ / "far/inner");
  fs::create_directory_symlink("far/inner", folder_ / "link");
  Configuration c;
  c.SetFlag(*FindFlag("--data"), {folder_ / "link/../d.csv"});
  EXPECT_EQ(ValueText(c, *FindKey("data.train")), "\"" + fs::canonical(folder_ / "far").string() + "/d.csv\"");
  // Elsewhere links stay, so that they may be changed later.
  c = Configuration();
  c.SetFlag(*FindFlag("--data"), {folder_ / "far/.././link//d.csv"});
  EXPECT_EQ(ValueText(c, *FindKey("data.train")), "\"" + std::string(folder_ / "link/d.csv") + "\"");
}

TEST_F(ConfigurationTest, RoundTrip) {
  Configuration c = Read(
      "[model]\npath = \"sub/m.onnx\"\nshape = { N = 4 }\n[data.map]\n\"odd name\" = \"p0..p3\"\n[data.transform]\nx = [\"scale 2\", "
      "\"scale 3\"]\n");
  c.SetFlag(*FindFlag("--lr"), {"0.1"});
  c.SetFlag(*FindFlag("--loss"), {"mse(a, b)", "l1(c, \"d\")"});
  c.SetFlag(*FindFlag("--name"), {"quote\" \\ tab\t del\x7f ü"});
  c.SetFlag(*FindFlag("--data"), {"random:64"});
  c.SetFlag(*FindFlag("--shape"), {"T=007"});
  const std::string toml = c.ToToml(true);
  const Configuration back = [&] {
    const TemporaryFolder elsewhere;
    WriteWithoutSync(elsewhere / "config.toml", toml);
    Configuration read;
    read.ReadFile(elsewhere / "config.toml");
    return read;
  }();
  // The default is relative to the working directory of the command.
  c.SetFlag(*FindFlag("--out"), {back.Text("run.out")});
  EXPECT_NE(toml.find("shape = { N = 4, T = 7 }"), std::string::npos) << toml;
  for (const Key& key : Keys()) EXPECT_EQ(c.value(key.name), back.value(key.name)) << key.name << "\n" << toml;
  EXPECT_EQ(back.ToToml(false), c.ToToml(false));
}

}  // namespace
}  // namespace gradloom
