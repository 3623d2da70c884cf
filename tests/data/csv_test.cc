#include "runtime/data/csv.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>

#include "tests/base/temporary_folder.h"

namespace gradloom {
namespace {

class CsvTest : public ::testing::Test {
 protected:
  std::vector<CsvColumns> Read(const std::string& text, const std::vector<CsvSelection>& selections, const CsvOptions& options = {}) {
    WriteWithoutSync(path_, text);
    return ReadCsv(path_, selections, options);
  }

  std::vector<float> Floats(const std::string& text, const std::string& columns, const CsvOptions& options = {}) {
    const Tensor tensor = Read(text, {{columns}}, options)[0].values;
    return {tensor.as<float>().begin(), tensor.as<float>().end()};
  }

  std::vector<int64_t> Ints(const std::string& text, const std::string& columns) {
    const Tensor tensor = Read(text, {{columns, DType::kInt64}})[0].values;
    return {tensor.as<int64_t>().begin(), tensor.as<int64_t>().end()};
  }

  std::vector<std::string> Selectors(const std::string& text) {
    WriteWithoutSync(path_, text);
    return CsvSelectors(path_);
  }

  // Expects E-DATA with this location after the path (":line:column", or "").
  Error Refused(const std::string& text, const std::string& place, const CsvSelection& selection = {"0..-1"},
                const CsvOptions& options = {}) {
    const Error error = ErrorOf([&] { Read(text, {selection}, options); });
    EXPECT_EQ(error.code(), ErrorCode::kData) << error.Describe();
    EXPECT_EQ(error.where(), path_ + place) << error.Describe();
    return error;
  }

  void WriteGzip(const std::string& text, const char* mode = "wb") {
    gzFile file = gzopen(path_.c_str(), mode);
    ASSERT_EQ(gzwrite(file, text.data(), static_cast<unsigned>(text.size())), static_cast<int>(text.size()));
    ASSERT_EQ(gzclose(file), Z_OK);
  }

  const TemporaryFolder folder_;
  const std::string path_ = folder_ / "a.csv";
};

using Values = std::vector<float>;
using Integers = std::vector<int64_t>;

TEST_F(CsvTest, ColumnsByNameRangeAndIndex) {
  const std::string text = "a,b,c,label\n1,2,3,4\n5,6,7,8\n";
  EXPECT_EQ(Floats(text, "a..c"), (Values{1, 2, 3, 5, 6, 7}));
  EXPECT_EQ(Floats(text, "0..-2"), (Values{1, 2, 3, 5, 6, 7}));
  EXPECT_EQ(Floats(text, "label"), (Values{4, 8}));
  EXPECT_EQ(Floats(text, "-1"), (Values{4, 8}));
  EXPECT_EQ(Floats(text, "c, a"), (Values{3, 1, 7, 5}));
  EXPECT_EQ(Floats(text, "label,a..b"), (Values{4, 1, 2, 8, 5, 6}));
  const auto read = Read(text, {{"a..c"}, {"label", DType::kInt64}, {"a..a", DType::kFloat64}});
  EXPECT_EQ(read[0].values.shape(), (Shape{2, 3}));
  EXPECT_EQ(read[1].values.shape(), (Shape{2}));
  EXPECT_EQ(read[2].values.shape(), (Shape{2, 1}));
  EXPECT_EQ(read[2].values.as<double>()[1], 5);
}

TEST_F(CsvTest, NamesTakePrecedenceOverIndicesAndMayContainDots) {
  EXPECT_EQ(Floats("one,0,x..y\n10,20,30\n", "0"), (Values{20}));
  EXPECT_EQ(Floats("a,b,x..y\n10,20,30\n", "x..y"), (Values{30}));
  EXPECT_EQ(Floats("a,x.,y\n10,20,30\n", "a..x."), (Values{10, 20}));
}

// So that every name can be written in a list or a range.
TEST_F(CsvTest, NamesInQuotes) {
  const std::string text = "\"size, cm\",0,\"say \"\"hi\"\"\",a..b,a,b\n10,20,30,40,50,60\n";
  EXPECT_EQ(Floats(text, "\"size, cm\""), (Values{10}));
  EXPECT_EQ(Floats(text, "b, \"size, cm\",\"0\""), (Values{60, 10, 20}));
  EXPECT_EQ(Floats(text, "\"size, cm\"..\"say \"\"hi\"\"\",\"a..b\""), (Values{10, 20, 30, 40}));
  EXPECT_EQ(Floats(text, "0..\"a..b\""), (Values{20, 30, 40}));
  EXPECT_EQ(Floats(text, "\"size, cm\"..\"size, cm\""), (Values{10}));
  // Only a name, never an index.
  EXPECT_EQ(Refused(text, "", {"\"1\""}).message(), "no column '1'");
  EXPECT_EQ(Refused(text, "", {"a,\"size, mm\""}).message(), "no column 'size, mm'");
  EXPECT_TRUE(Refused(text, "", {"a,size, cm"}).help().starts_with("did you mean '\"size, cm\"'?"));
  // A quote that is part of a name.
  EXPECT_EQ(Floats("5\" pipe,b\n1,2\n", "b,5\" pipe"), (Values{2, 1}));
  EXPECT_EQ(Floats("\"\"\"a\"\"\",a\n1,2\n", "\"a\",a"), (Values{1, 2}));
}

TEST_F(CsvTest, UnknownColumns) {
  const std::string text = "a,b,c\n1,2,3\n";
  for (const char* columns : {"d", "a..d", "3", "-4", "", "a,,b", "c..a"}) Refused(text, "", {columns});
  EXPECT_NE(Refused(text, "", {"d"}).help().find("a, b, c"), std::string::npos);
  Refused("a,b,a\n1,2,3\n", "", {"a"});  // two columns have this name
  EXPECT_EQ(Floats("a,b,a\n1,2,3\n", "2"), (Values{3}));
}

TEST_F(CsvTest, HeaderIsGuessed) {
  EXPECT_EQ(Floats("1,2\n3,4\n", "0"), (Values{1, 3}));
  EXPECT_EQ(Floats("x,y\n3,4\n", "0"), (Values{3}));
  EXPECT_EQ(Floats("1,nan\n3,4\n", "0"), (Values{1, 3}));
  // An invalid number in the first row is an error, not a header.
  EXPECT_NE(Refused("1,2,?\n3,4,5\n", ":1:3").help().find("line 1 is read as data"), std::string::npos);
  Refused("1,,3\n3,4,5\n", ":1:2");
  WriteWithoutSync(path_,
                   "\xEF\xBB\xBF"
                   "first, second ,\"a,b\"\n1,2,3\n");
  EXPECT_EQ(CsvSelectors(path_), (std::vector<std::string>{"first", "second", "a,b"}));
  WriteWithoutSync(path_, "1,2\n");
  EXPECT_EQ(CsvSelectors(path_), (std::vector<std::string>{"0", "1"}));
  WriteWithoutSync(path_, "");
  EXPECT_EQ(ErrorOf([&] { CsvSelectors(path_); }).message(), "the table has no rows");
}

// A row that has numbers where the next row has numbers, and words where that has words, is a row if one of its words occurs below it.
TEST_F(CsvTest, AFirstRowOfMostlyWordsIsNoHeaderIfItsWordsAreValues) {
  const std::string rows = "39, State-gov, 77516, Bachelors, White, 0\n50, Private, 83311, Bachelors, ?, 0\n38, ?, 5, HS-grad, Black, 1\n";
  EXPECT_EQ(Floats(rows, "0,2,-1"), (Values{39, 77516, 0, 50, 83311, 0, 38, 5, 1}));
  EXPECT_EQ(CsvSelectors(path_), (std::vector<std::string>{"0", "1", "2", "3", "4", "5"}));
  EXPECT_TRUE(CsvHeader(path_).empty());
  // A word that occurs only further below, and a missing number.
  EXPECT_EQ(Ints("7,a,b\n8,c,d\n9,e,b\n", "0"), (Integers{7, 8, 9}));
  EXPECT_EQ(Ints("7,a,b,\n8,c,b,1\n", "0"), (Integers{7, 8}));
  // Years as names: a name above a number, a table without a word twice, and tables that were joined with their headers.
  EXPECT_EQ(Floats("country,unit,id,2019,2020\nPeru,kg,1,5,6\nChad,kg,2,7,8\n", "2019..2020"), (Values{5, 6, 7, 8}));
  EXPECT_EQ(Floats("country,unit,of,2019,2020\nPeru,kg,us,5,6\nChad,kg,us,7,8\n", "2019,2020"), (Values{5, 6, 7, 8}));
  EXPECT_EQ(Floats("country,unit,2019\nPeru,kg,5\ncountry,unit,2019\n", "2019"), (Values{5, 2019}));
}

// Otherwise a number would select another column than in the same table with a row less.
TEST_F(CsvTest, ANameIsNoIndexIfTheHeaderMayBeARow) {
  const std::string text = "9,a,0,c,d\n8,e,1,f,g\n7,h,1,i,j\n";
  EXPECT_EQ(Selectors(text), (std::vector<std::string>{"9", "a", "0", "c", "d"}));
  for (const char* columns : {"0", "0,2", "0..2"}) {
    const Error error = Refused(text, "", {columns});
    EXPECT_EQ(error.message(), "'0' is the name of column 2 and the index of another one") << columns;
  }
  EXPECT_EQ(Floats(text, "9"), (Values{8, 7}));
  EXPECT_EQ(Floats(text, "\"0\""), (Values{1, 1}));
  EXPECT_EQ(Floats(text, "2"), (Values{1, 1}));
}

// The encoding of spreadsheets without UTF-8 support. A run stores names as UTF-8.
TEST_F(CsvTest, NamesOfLatin1) {
  const std::string text =
      "gr\xF6\xDF"
      "e,\xC3\xB6,\xFF\n1,2,3\n";
  WriteWithoutSync(path_, text);
  EXPECT_EQ(CsvSelectors(path_), (std::vector<std::string>{"größe", "ö", "ÿ"}));
  EXPECT_EQ(Floats(text, "größe..ÿ"), (Values{1, 2, 3}));
}

TEST_F(CsvTest, QuotesAndLineEnds) {
  EXPECT_EQ(Floats("\"a\"\"b\",c\r\n\"1\",2\r\n\r\n3,\"4\"", "a\"b"), (Values{1, 3}));
  EXPECT_EQ(Floats("a,b\n1, 2 \n\n\n3,\t4\n\n", "b"), (Values{2, 4}));
  // A line break within quotes counts as a line, but does not end the row.
  EXPECT_EQ(Floats("\"a\nb\",c\n1,2\n", "c"), (Values{2}));
  Refused("\"a\nb\",c\n1,2\nx,2\n", ":4:1");
  Refused("a,b\n1,\"2\n3,4\n", ":2:1");
  Refused("a,b\n1,\"2\"3\n", ":2:2");
  EXPECT_EQ(Floats("a;b\n1;2\n", "b", {.delimiter = ';'}), (Values{2}));
}

// Like Python's csv module and spreadsheets. Otherwise two rows with such a quote each were read as one row, with shifted columns.
TEST_F(CsvTest, QuotesWithinTextAreText) {
  const std::string text = "1,2,3,5\" pipe,0\n4,5,6,7\" pipe,1\n";
  EXPECT_EQ(Floats(text, "0..2"), (Values{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(Ints(text, "-1"), (Integers{0, 1}));
  EXPECT_EQ(Floats("a,b,c\nsay \"hi\",1,\"x\n\"\"y\"\n'\"',2,\"\"\n", "b"), (Values{1, 2}));
  // At every offset relative to the end of the reader's buffer.
  for (size_t filled = (64 << 10) - 8; filled < (64 << 10) + 8; ++filled) {
    const std::string header = "n" + std::string(filled - 8, 'o') + ",v\n";
    EXPECT_EQ(Floats(header + "5\" p,1\n\"a \"\"b\"\"\n\",2\n", "v"), (Values{1, 2}));
  }
}

TEST_F(CsvTest, CarriageReturnsAloneEndLines) {
  EXPECT_EQ(Floats("1,2\r3,4\r5,6\r", "0"), (Values{1, 3, 5}));
  EXPECT_EQ(Floats("\"a\nb\",c\r1,\"2\"\r\r3,4", "c"), (Values{2, 4}));
  EXPECT_EQ(Floats("a\r\n1\r\n", "a"), (Values{1}));
  Refused("a,b\r1,2\r3,x\r", ":3:2");
  // The first line may be longer than what is read at once, or end where that does.
  for (const size_t bytes : {size_t{65'535}, size_t{65'536}, size_t{65'537}, size_t{200'000}}) {
    const std::string first = "a," + std::string(bytes - 3, 'b') + "\r";
    EXPECT_EQ(Floats(first + "1,2\r3,4\r", "a"), (Values{1, 3})) << bytes;
    EXPECT_EQ(Floats(first + "\n1,2\r\n3,4\r\n", "a"), (Values{1, 3})) << bytes;
    EXPECT_EQ(Floats("a,\"" + std::string(bytes, '\n') + "\"\r1,2\r3,4\r", "a"), (Values{1, 3})) << bytes;
  }
}

TEST_F(CsvTest, Numbers) {
  EXPECT_EQ(Floats("1e3\n+2.5\n-.5\n1e-60\n3.4028235e38\n0.1\n", "0"), (Values{1000, 2.5f, -0.5f, 0, 3.4028235e38f, 0.1f}));
  EXPECT_EQ(Floats("1e-40\n", "0")[0], 1e-40f);  // subnormal
  EXPECT_EQ(Read("1e-400\n1e308\n", {{"0", DType::kFloat64}})[0].values.as<double>()[0], 0);
  EXPECT_EQ(Ints("7\n-9223372036854775808\n5.0\n1e3\n+4\n", "0"), (Integers{7, INT64_MIN, 5, 1000, 4}));
  for (const char* bad : {"", "x", "1x", "0x10", "1,5", "--1", "+-1", "+", "1 2", "1e", "\xff"}) {
    Refused(std::string("a\n1\n") + bad + (bad == std::string("") ? "\"\"" : "") + "\n",
            std::string(":3:") + (bad == std::string("1,5") ? "2" : "1"));
  }
  Refused("a\n1e39\n", ":2:1");
  Refused("a\n1e400\n", ":2:1", {"a", DType::kFloat64});
  for (const char* bad : {"5.5", "9223372036854775808", "1e19", "nan", "inf", "9007199254740993.5"}) {
    Refused(std::string("a\n") + bad + "\n", ":2:1", {"a", DType::kInt64});
  }
}

// As pandas writes what get_dummies returns, and spreadsheets and R write theirs.
TEST_F(CsvTest, BooleansAreNumbers) {
  EXPECT_EQ(Floats("a,b,c\n1.5,True,false\n2,FALSE, true \n", "a..c"), (Values{1.5, 1, 0, 2, 0, 1}));
  EXPECT_EQ(Ints("a,b\nTRUE,x\nFalse,y\n", "a"), (Integers{1, 0}));
  // They are no names in a first row, but they are names of classes.
  EXPECT_EQ(Floats("True,False\nFalse,True\n", "0..1"), (Values{1, 0, 0, 1}));
  WriteWithoutSync(path_, "a,b\n1,True\n2,False\n");
  EXPECT_EQ(ReadCsvClasses({path_}, {"b"}, {})[0], (std::vector<std::string>{"False", "True"}));
  for (const char* bad : {"T", "yes", "Truer", "tru", "-True"}) Refused(std::string("a\n1\n") + bad + "\n", ":3:1");
}

TEST_F(CsvTest, NansAreCounted) {
  const auto read = Read("a,b\n1,nan\nNaN,2\n3,-inf\n", {{"a..b"}, {"a"}});
  EXPECT_EQ(read[0].nan_count, 3);
  EXPECT_EQ(read[0].first_nan, path_ + ":2:2");
  EXPECT_EQ(read[1].nan_count, 1);
  EXPECT_TRUE(std::isnan(read[0].values.as<float>()[1]));
}

TEST_F(CsvTest, RaggedRows) {
  Refused("a,b\n1,2\n3\n", ":3:2");
  Refused("a,b\n1,2\n3,4,5\n", ":3:3");
  Refused("a,b\n1,2,\n", ":2:3");
}

TEST_F(CsvTest, NoRows) {
  for (const char* text : {"", "\n\n", "a,b\n", "a,b"}) Refused(text, "", {"0"});
}

// Texts that nobody needs.
TEST_F(CsvTest, FieldsMayBeLong) {
  const std::string article(3 << 20, 'w');
  EXPECT_EQ(Floats("a,b,c\n1,short,2\n3," + article + ",4\n5,\"" + article + "\",6\n", "a,c"), (Values{1, 2, 3, 4, 5, 6}));
}

TEST_F(CsvTest, Limits) {
  Refused("a,b\n1," + std::string(10 << 20, '7') + "\n", ":2:2");
  Refused("a,b\n1," + std::string(90 << 20, '7') + "\n", ":2:1");
  Refused(std::string(100, ','), ":1:51", {"0"}, {.max_columns = 50});
  EXPECT_EQ(ErrorOf([&] { Read("a\n1\n2\n", {{"a"}}, {.limit_bytes = 5}); }).code(), ErrorCode::kLimit);
}

TEST_F(CsvTest, Gzip) {
  WriteGzip("a,b\n1,2\n");
  EXPECT_EQ(ReadCsv(path_, {{"b"}})[0].values.as<float>()[0], 2);
  WriteGzip("3,4\n", "ab");  // a second member
  EXPECT_EQ(ReadCsv(path_, {{"b"}})[0].values.as<float>()[1], 4);
  const std::string good = ReadWholeFile(path_);
  for (size_t length = 2; length < good.size(); ++length) {
    WriteWithoutSync(path_, good.substr(0, length));
    // Up to the beginning of the second member, the file is complete.
    try {
      EXPECT_EQ(ReadCsv(path_, {{"b"}})[0].values.elements(), 1) << length;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kData) << length;
    }
  }
  WriteWithoutSync(path_, good + "junk");
  EXPECT_EQ(ErrorOf([&] { ReadCsv(path_, {{"b"}}); }).code(), ErrorCode::kData);
  for (size_t at = 12; at < good.size(); ++at) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 0x10);
    WriteWithoutSync(path_, bad);
    try {
      const Tensor values = ReadCsv(path_, {{"b"}})[0].values;
      EXPECT_TRUE(values.elements() == 2 && values.as<float>()[0] == 2 && values.as<float>()[1] == 4) << at;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kData) << at;
    }
  }
}

TEST_F(CsvTest, GzipBomb) {
  WriteGzip(std::string(64 << 20, '\n'));
  EXPECT_EQ(ErrorOf([&] { ReadCsv(path_, {{"0"}}, {.limit_bytes = 1 << 20}); }).code(), ErrorCode::kLimit);
}

// Rows of every length across the reader's buffer boundaries, compared with the numbers they were written from.
TEST_F(CsvTest, RandomTablesRoundTrip) {
  const unsigned seed = std::random_device{}();
  std::printf("seed %u\n", seed);
  std::mt19937 random(seed);
  for (int trial = 0; trial < 4; ++trial) {
    const size_t rows = 20000 + random() % 20000, columns = 1 + random() % 12;
    std::string text;
    Values expected;
    for (size_t i = 0; i < rows * columns; ++i) {
      const float value = static_cast<float>(std::ldexp(static_cast<double>(random()) - 2e9, static_cast<int>(random() % 120) - 80));
      char number[64];
      std::snprintf(number, sizeof number, random() % 5 == 0 ? "\"%.9g\"" : "%.9g", static_cast<double>(value));
      text += number;
      text += (i + 1) % columns != 0 ? "," : random() % 3 == 0 ? "\r\n" : random() % 50 == 0 ? "\n\n" : "\n";
      expected.push_back(value);
    }
    EXPECT_EQ(Floats(text, "0..-1"), expected);
    WriteGzip(text);
    const Tensor again = ReadCsv(path_, {{"0..-1"}})[0].values;
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), again.as<float>().begin()));
  }
}

}  // namespace
}  // namespace gradloom
