#include "runtime/checkpoint/shard_index.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "runtime/base/error.h"

namespace gradloom {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kWeightMap = "weight_map";

// Parses event by event, like the header of a safetensors file: this detects duplicate keys, and builds no tree of what is ignored.
class IndexEvents : public nlohmann::json_sax<Json> {
 public:
  IndexEvents(int64_t max_tensors, std::string where) : max_tensors_(max_tensors), where_(std::move(where)) {}

  ShardIndex Take() {
    if (!has_map_) Fail("the index has no weight_map");
    return std::move(index_);
  }

  bool start_object(size_t) override {
    Expect(!in_map_, "an object");
    in_map_ = depth_++ == 1 && key_ == kWeightMap;
    return true;
  }

  bool end_object() override {
    if (--depth_ == 1) in_map_ = false;
    return true;
  }

  bool key(std::string& key) override {
    if (depth_ == 1) {
      if (key == kWeightMap && std::exchange(has_map_, true)) Fail("the key 'weight_map' occurs twice in the index");
    } else if (in_map_) {
      if (index_.contains(key)) Fail("the index names the tensor '" + Escaped(key) + "' twice");
      if (static_cast<int64_t>(index_.size()) >= max_tensors_)
        throw Error(ErrorCode::kLimit, "the index has more tensors than the limit of " + std::to_string(max_tensors_), where_);
    } else {
      return true;
    }
    key_ = key;
    return true;
  }

  bool string(std::string& text) override {
    if (!in_map_) return Ignored("a string");
    CheckFileName(text, NamedByIndex(where_, key_));
    index_.emplace(key_, text);
    return true;
  }

  bool start_array(size_t) override {
    Ignored("an array");
    ++depth_;
    return true;
  }

  bool end_array() override {
    --depth_;
    return true;
  }

  bool null() override { return Ignored("null"); }
  bool boolean(bool) override { return Ignored("a boolean"); }
  bool number_integer(int64_t) override { return Ignored("a number"); }
  bool number_unsigned(uint64_t) override { return Ignored("a number"); }
  bool number_float(double, const std::string&) override { return Ignored("a number"); }
  bool binary(Json::binary_t&) override { return Ignored("binary data"); }

  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception&) override {
    Fail("the index is not valid JSON at byte " + std::to_string(position));
  }

 private:
  [[noreturn]] void Fail(const std::string& why) const {
    throw Error(ErrorCode::kCheckpoint, why, where_, "the file is damaged, or not the index of safetensors files");
  }

  void Expect(bool condition, const char* what) const {
    if (condition) return;
    Fail("the file of tensor '" + Escaped(key_) + "' is " + what + ", expected a string");
  }

  // A value that is not the file of a tensor. It must not be in a place where one is needed.
  bool Ignored(const char* what) const {
    Expect(!in_map_, what);
    if (depth_ == 0) Fail("the index is " + std::string(what) + ", expected an object");
    if (depth_ == 1 && key_ == kWeightMap) Fail("the weight_map is " + std::string(what) + ", expected an object");
    return true;
  }

  int64_t max_tensors_;
  std::string where_;
  ShardIndex index_;
  std::string key_;    // of the outermost object or of the weight_map
  int64_t depth_ = 0;  // the number of open objects and arrays
  bool in_map_ = false, has_map_ = false;
};

}  // namespace

bool IsShardIndex(const std::string& path) {
  return path.ends_with(".json") && path.substr(path.rfind('/') + 1).find(".index.") != std::string::npos;
}

NamedBy NamedByIndex(const std::string& where, const std::string& tensor) {
  return {"the index", where + " tensor '" + Escaped(tensor) + "'",
          "put all shards into the folder of the index, and their names into the index"};
}

ShardIndex ParseShardIndex(std::string_view text, int64_t max_tensors, const std::string& where) {
  IndexEvents events(max_tensors, where);
  Json::sax_parse(text.begin(), text.end(), &events);
  return events.Take();
}

}  // namespace gradloom
