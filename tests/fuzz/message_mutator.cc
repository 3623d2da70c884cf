#include "tests/fuzz/message_mutator.h"

#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace gradloom {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

class MessageMutator {
 public:
  explicit MessageMutator(uint64_t seed) : random_(seed) {}

  void Change(Message& root) {
    std::vector<Message*> all;
    Collect(root, all);
    // Large messages are rare, so this first picks a kind of message, then one of that kind.
    const Message* kind = all[Below(all.size())];
    std::vector<Message*> alike;
    const bool any = Below(2) == 0;
    for (Message* message : all) {
      if (any || message->GetDescriptor() == kind->GetDescriptor()) alike.push_back(message);
    }
    ChangeField(*alike[Below(alike.size())]);
  }

 private:
  size_t Below(size_t bound) { return static_cast<size_t>(random_() % bound); }

  void Collect(Message& message, std::vector<Message*>& all) {
    all.push_back(&message);
    const auto* reflection = message.GetReflection();
    std::vector<const FieldDescriptor*> fields;
    reflection->ListFields(message, &fields);
    for (const FieldDescriptor* field : fields) {
      if (field->cpp_type() == FieldDescriptor::CPPTYPE_STRING) CollectTexts(message, field);
      if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) continue;
      if (!field->is_repeated()) {
        Collect(*reflection->MutableMessage(&message, field), all);
        continue;
      }
      for (int i = 0; i < reflection->FieldSize(message, field); ++i) Collect(*reflection->MutableRepeatedMessage(&message, field, i), all);
    }
  }

  // Collects short texts: the names by which messages refer to each other.
  void CollectTexts(const Message& message, const FieldDescriptor* field) {
    constexpr size_t kLongest = 64;
    const auto* reflection = message.GetReflection();
    const auto add = [&](const std::string& text) {
      if (text.size() <= kLongest) texts_.push_back(text);
    };
    if (!field->is_repeated()) return add(reflection->GetString(message, field));
    for (int i = 0; i < reflection->FieldSize(message, field); ++i) add(reflection->GetRepeatedString(message, field, i));
  }

  int64_t Number(int64_t old) {
    constexpr int64_t kNumbers[] = {0, 1, -1, 2, 64, 4096, INT32_MAX, INT32_MIN, int64_t{1} << 40, int64_t{1} << 62, INT64_MAX, INT64_MIN};
    switch (Below(4)) {
      case 0: return kNumbers[Below(std::size(kNumbers))];
      case 1: return static_cast<int64_t>(Below(16));
      case 2: return static_cast<int64_t>(static_cast<uint64_t>(old) + Below(5) - 2);
      default: return static_cast<int64_t>(static_cast<uint64_t>(old) + (Below(2) == 0 ? 64 : -64));
    }
  }

  double Real() {
    constexpr double kReals[] = {0, -1, 0.5, 1e-45, 1e38, INFINITY, NAN};
    return Below(2) == 0 ? kReals[Below(std::size(kReals))] : static_cast<double>(Number(1)) / 3;
  }

  void ChangeField(Message& message) {
    const auto* type = message.GetDescriptor();
    const FieldDescriptor* field = type->field(static_cast<int>(Below(static_cast<size_t>(type->field_count()))));
    const auto* reflection = message.GetReflection();
    if (field->is_repeated()) return ChangeRepeated(message, field);
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT32:
        return reflection->SetInt32(&message, field, static_cast<int32_t>(Number(reflection->GetInt32(message, field))));
      case FieldDescriptor::CPPTYPE_INT64: return reflection->SetInt64(&message, field, Number(reflection->GetInt64(message, field)));
      case FieldDescriptor::CPPTYPE_DOUBLE: return reflection->SetDouble(&message, field, Real());
      case FieldDescriptor::CPPTYPE_FLOAT: return reflection->SetFloat(&message, field, static_cast<float>(Real()));
      case FieldDescriptor::CPPTYPE_ENUM: return reflection->SetEnumValue(&message, field, static_cast<int>(Below(16)));
      case FieldDescriptor::CPPTYPE_STRING: return reflection->SetString(&message, field, Text(reflection->GetString(message, field)));
      case FieldDescriptor::CPPTYPE_MESSAGE:
        return Below(2) == 0 ? reflection->ClearField(&message, field) : ChangeField(*reflection->MutableMessage(&message, field));
      default: return;
    }
  }

  std::string Text(std::string text) {
    constexpr const char* kTexts[] = {
        "", "plain", "10", "0123", "0:0x8", "reference.Gemm", "Gemm", "Conv", "gradloom", "reference.Reshape", "\xff"};
    if (!texts_.empty() && Below(2) == 0) return texts_[Below(texts_.size())];
    if (text.empty() || Below(2) == 0) return kTexts[Below(std::size(kTexts))];
    text[Below(text.size())] = static_cast<char>(random_());
    return text;
  }

  void ChangeRepeated(Message& message, const FieldDescriptor* field) {
    const auto* reflection = message.GetReflection();
    const int size = reflection->FieldSize(message, field);
    const bool is_message = field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
    const int i = size == 0 ? 0 : static_cast<int>(Below(static_cast<size_t>(size)));
    switch (Below(4)) {
      case 0:
        if (size > 0) reflection->RemoveLast(&message, field);
        return;
      case 1:
        if (size > 1) reflection->SwapElements(&message, field, i, static_cast<int>(Below(static_cast<size_t>(size))));
        return;
      case 2:
        if (!is_message) return Add(message, field);
        if (size == 0) {
          reflection->AddMessage(&message, field);
        } else {
          const Message& old = reflection->GetRepeatedMessage(message, field, i);
          std::unique_ptr<Message> copy(old.New());
          copy->CopyFrom(old);
          reflection->AddMessage(&message, field)->CopyFrom(*copy);
        }
        return;
      default:
        if (size == 0) return;
        if (is_message) return ChangeField(*reflection->MutableRepeatedMessage(&message, field, i));
        if (field->cpp_type() == FieldDescriptor::CPPTYPE_STRING)
          reflection->SetRepeatedString(&message, field, i, Text(reflection->GetRepeatedString(message, field, i)));
        if (field->cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE) reflection->SetRepeatedDouble(&message, field, i, Real());
        if (field->cpp_type() == FieldDescriptor::CPPTYPE_FLOAT)
          reflection->SetRepeatedFloat(&message, field, i, static_cast<float>(Real()));
        if (field->cpp_type() == FieldDescriptor::CPPTYPE_INT32)
          reflection->SetRepeatedInt32(&message, field, i, static_cast<int32_t>(Number(reflection->GetRepeatedInt32(message, field, i))));
        if (field->cpp_type() == FieldDescriptor::CPPTYPE_INT64)
          reflection->SetRepeatedInt64(&message, field, i, Number(reflection->GetRepeatedInt64(message, field, i)));
    }
  }

  void Add(Message& message, const FieldDescriptor* field) {
    const auto* reflection = message.GetReflection();
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_INT32) reflection->AddInt32(&message, field, static_cast<int32_t>(Number(0)));
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_INT64) reflection->AddInt64(&message, field, Number(0));
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE) reflection->AddDouble(&message, field, Real());
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_FLOAT) reflection->AddFloat(&message, field, static_cast<float>(Real()));
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_STRING) reflection->AddString(&message, field, Text(""));
  }

  std::mt19937_64 random_;
  std::vector<std::string> texts_;  // of the root message
};

}  // namespace

void MutateMessage(google::protobuf::Message& message, uint64_t seed) {
  MessageMutator mutator(seed);
  for (uint64_t left = 1 + seed % 3; left > 0; --left) mutator.Change(message);
}

}  // namespace gradloom
