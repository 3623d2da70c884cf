#include "runtime/checkpoint/safetensors_header.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "runtime/base/checked.h"
#include "runtime/base/error.h"
#include "runtime/base/utf8.h"

namespace gradloom {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kMetadata = "__metadata__";

struct TypeName {
  DType dtype;
  std::string_view name;
};

constexpr std::array kTypes = {
    TypeName{DType::kBool, "BOOL"},
    TypeName{DType::kUint8, "U8"},
    TypeName{DType::kInt8, "I8"},
    TypeName{DType::kInt16, "I16"},
    TypeName{DType::kUint16, "U16"},
    TypeName{DType::kFloat16, "F16"},
    TypeName{DType::kBfloat16, "BF16"},
    TypeName{DType::kInt32, "I32"},
    TypeName{DType::kUint32, "U32"},
    TypeName{DType::kFloat32, "F32"},
    TypeName{DType::kFloat64, "F64"},
    TypeName{DType::kInt64, "I64"},
    TypeName{DType::kUint64, "U64"},
    TypeName{DType::kFloat8E5M2, "F8_E5M2"},
    TypeName{DType::kFloat8E4M3Fn, "F8_E4M3"},
    TypeName{DType::kFloat8E8M0, "F8_E8M0"},
    TypeName{DType::kFloat8E4M3Fnuz, "F8_E4M3FNUZ"},
    TypeName{DType::kFloat8E5M2Fnuz, "F8_E5M2FNUZ"},
};

// Parses the header's JSON event by event. This detects duplicate keys, limits nesting to three levels, and does not build a tree from a
// hundred megabytes of brackets. Returning false ends the parse with failure_ set.
class HeaderEvents : public nlohmann::json_sax<Json> {
 public:
  HeaderEvents(int64_t max_tensors, std::string where) : max_tensors_(max_tensors), where_(std::move(where)) {}

  SafetensorsHeader Take() { return std::move(header_); }

  bool start_object(size_t) override {
    switch (level_) {
      case Level::kStart: level_ = Level::kTop; return true;
      case Level::kTop:
        if (key_ == kMetadata) {
          level_ = Level::kMetadata;
        } else {
          level_ = Level::kTensor;
          entry_ = {};
          has_dtype_ = has_shape_ = false;
          offsets_.clear();
        }
        return true;
      default: Unexpected("an object");
    }
  }

  bool end_object() override {
    if (level_ == Level::kTensor) FinishEntry();
    level_ = level_ == Level::kTop ? Level::kEnd : Level::kTop;
    return true;
  }

  bool key(std::string& key) override {
    if (level_ == Level::kTop) {
      if (key == kMetadata ? std::exchange(seen_metadata_, true) : header_.entries.contains(key)) {
        Fail("the key '" + Escaped(key) + "' occurs twice in the header");
      }
      if (key != kMetadata && static_cast<int64_t>(header_.entries.size()) >= max_tensors_) {
        throw Error(ErrorCode::kLimit, "the file has more tensors than the limit of " + std::to_string(max_tensors_), where_);
      }
      key_ = key;
    } else if (level_ == Level::kMetadata) {
      if (header_.metadata.contains(key)) Fail("the metadata key '" + Escaped(key) + "' occurs twice");
      field_ = key;
    } else {
      const bool again = key == "dtype" ? has_dtype_ : key == "shape" ? has_shape_ : key == "data_offsets" ? !offsets_.empty() : false;
      if (again) FailTensor("the key '" + Escaped(key) + "' occurs twice");
      field_ = key;
    }
    return true;
  }

  bool string(std::string& text) override {
    if (level_ == Level::kMetadata) {
      header_.metadata.emplace(field_, text);
      return true;
    }
    if (level_ != Level::kTensor || field_ != "dtype") Unexpected("a string");
    const auto type = std::find_if(kTypes.begin(), kTypes.end(), [&](const TypeName& t) { return t.name == text; });
    if (type == kTypes.end()) FailTensor("the dtype '" + Escaped(text, 40) + "' is not supported");
    entry_.dtype = type->dtype;
    has_dtype_ = true;
    return true;
  }

  bool start_array(size_t) override {
    if (level_ != Level::kTensor || (field_ != "shape" && field_ != "data_offsets")) Unexpected("an array");
    if (field_ == "shape") has_shape_ = true;
    level_ = Level::kArray;
    return true;
  }

  bool end_array() override {
    level_ = Level::kTensor;
    if (field_ == "data_offsets" && offsets_.size() != 2) FailTensor("data_offsets must be two numbers");
    return true;
  }

  bool number_unsigned(uint64_t number) override {
    if (level_ != Level::kArray) Unexpected("a number");
    if (number > static_cast<uint64_t>(INT64_MAX)) FailTensor("the number " + std::to_string(number) + " is too large");
    if (field_ == "shape") {
      if (entry_.shape.rank() == kMaxRank) FailTensor("more than " + std::to_string(kMaxRank) + " dimensions");
      entry_.shape.push_back(static_cast<int64_t>(number));
    } else {
      if (offsets_.size() == 2) FailTensor("data_offsets must be two numbers");
      offsets_.push_back(static_cast<int64_t>(number));
    }
    return true;
  }

  bool number_integer(int64_t number) override { FailTensor("the negative number " + std::to_string(number)); }
  bool number_float(double, const std::string& text) override { FailTensor("'" + Escaped(text, 40) + "' is not an integer"); }
  bool null() override { Unexpected("null"); }
  bool boolean(bool) override { Unexpected("a boolean"); }
  bool binary(Json::binary_t&) override { Unexpected("binary data"); }

  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception&) override {
    Fail("the header is not valid JSON at byte " + std::to_string(position));
  }

 private:
  enum class Level { kStart, kTop, kTensor, kArray, kMetadata, kEnd };

  [[noreturn]] void Fail(const std::string& why) const {
    throw Error(ErrorCode::kCheckpoint, why, where_, "the file is damaged, or not a safetensors file");
  }

  [[noreturn]] void FailTensor(const std::string& why) const {
    throw Error(ErrorCode::kCheckpoint, why, where_ + (key_.empty() ? "" : " tensor '" + Escaped(key_) + "'"));
  }

  [[noreturn]] void Unexpected(const std::string& what) const {
    if (level_ == Level::kMetadata) Fail("the metadata value of '" + Escaped(field_) + "' is " + what + ", expected a string");
    if (level_ == Level::kTensor || level_ == Level::kArray) FailTensor("the value of '" + Escaped(field_) + "' is or holds " + what);
    Fail("the header is not a table of tensors: it holds " + what);
  }

  void FinishEntry() {
    if (!has_dtype_ || !has_shape_ || offsets_.size() != 2) FailTensor("dtype, shape or data_offsets is missing");
    entry_.begin = offsets_[0];
    entry_.end = offsets_[1];
    const auto elements = entry_.shape.checked_elements();
    const auto bytes = elements ? CheckedMul(*elements, DTypeBytes(entry_.dtype)) : std::nullopt;
    if (!bytes) FailTensor("the shape " + entry_.shape.ToString() + " has more elements than any file");
    // If end < begin the difference is negative and matches no size; both are at least 0.
    if (entry_.end - entry_.begin != *bytes) {
      FailTensor("the shape " + entry_.shape.ToString() + " of " + std::string(DTypeName(entry_.dtype)) + " needs " +
                 std::to_string(*bytes) + " bytes, but its data_offsets are " + std::to_string(entry_.begin) + " to " +
                 std::to_string(entry_.end));
    }
    header_.entries.emplace(key_, std::move(entry_));
  }

  int64_t max_tensors_;
  std::string where_;
  SafetensorsHeader header_;
  Level level_ = Level::kStart;
  std::string key_, field_;
  SafetensorsFile::Entry entry_;
  bool has_dtype_ = false, has_shape_ = false, seen_metadata_ = false;
  std::vector<int64_t> offsets_;
};

// A JSON string with its quotes.
std::string Quoted(const std::string& text) {
  if (!IsUtf8(text)) throw Error(ErrorCode::kCheckpoint, "the name '" + Escaped(text) + "' is not UTF-8");
  return Json(text).dump();
}

}  // namespace

std::string_view SafetensorsTypeName(DType dtype) {
  const auto type = std::find_if(kTypes.begin(), kTypes.end(), [&](const TypeName& t) { return t.dtype == dtype; });
  return type == kTypes.end() ? std::string_view() : type->name;
}

SafetensorsHeader ParseSafetensorsHeader(std::string_view text, int64_t max_tensors, const std::string& where) {
  HeaderEvents events(max_tensors, where);
  Json::sax_parse(text.begin(), text.end(), &events);
  return events.Take();
}

std::string SafetensorsHeaderText(const std::vector<std::pair<std::string, SafetensorsFile::Entry>>& entries,
                                  const std::map<std::string, std::string>& metadata) {
  std::string text = "{";
  const auto separate = [&] { text += text.back() == '{' ? "" : ","; };
  if (!metadata.empty()) {
    text += Quoted(std::string(kMetadata)) + ":{";
    for (const auto& [key, value] : metadata) {
      separate();
      text += Quoted(key) + ":" + Quoted(value);
    }
    text += "}";
  }
  for (const auto& [name, entry] : entries) {
    if (name == kMetadata) throw Error(ErrorCode::kCheckpoint, "a tensor cannot be named __metadata__");
    separate();
    text += Quoted(name) + ":{\"dtype\":\"" + std::string(SafetensorsTypeName(entry.dtype)) + "\",\"shape\":" + entry.shape.ToString() +
            ",\"data_offsets\":[" + std::to_string(entry.begin) + "," + std::to_string(entry.end) + "]}";
  }
  return text + "}";
}

}  // namespace gradloom
