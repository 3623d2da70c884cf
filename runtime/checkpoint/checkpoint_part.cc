#include "runtime/checkpoint/checkpoint_part.h"

#include <algorithm>
#include <exception>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/hash.h"
#include "runtime/checkpoint/safetensors.h"
#include "runtime/session/job_state.h"

namespace gradloom {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr uint32_t kTag = Communicator::kSaveTag;
constexpr char kSaves[] = "save", kNoSave[] = "no save";

void Send(Communicator& communicator, int process, const std::string& text) {
  communicator.Send(process, kTag, text.data(), static_cast<int64_t>(text.size()));
}

std::string ReceiveText(Communicator& communicator, int process) {
  const std::vector<std::byte> bytes = communicator.ReceiveAny(process, kTag);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// For each tensor of the plan, the process that writes it.
std::vector<int> WriterOfEach(const Plan& plan, const Communicator& communicator) {
  std::vector<int> writers;
  for (const StateTensor& state : plan.state) writers.push_back(HoldersOf(state, plan, communicator).front());
  return writers;
}

// The writing process of each part. Process 0 writes the first part, whatever it holds.
std::vector<int> WritersOf(const Plan& plan, const Communicator& communicator) {
  std::vector<int> writers = WriterOfEach(plan, communicator);
  writers.push_back(0);
  std::sort(writers.begin(), writers.end());
  writers.erase(std::unique(writers.begin(), writers.end()), writers.end());
  return writers;
}

std::string TextOf(const Error& error) {
  // Paths may not be valid UTF-8.
  return Json{{"code", static_cast<int>(error.code())}, {"message", error.message()}, {"where", error.where()}, {"help", error.help()}}
      .dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

CheckpointFile WriteCheckpointPart(const std::string& folder, int64_t part, const SavedState& saved, FileCalls& calls) {
  std::map<std::string, TensorView> types;
  std::map<std::string, const StateTensor*> states;
  for (const StateTensor* state : saved.tensors) {
    types.emplace(state->name, TensorView{state->dtype, state->shape, nullptr});
    states.emplace(state->name, state);
  }
  CheckpointFile described{RankFileName(part), 0, 0};
  Hash hash;
  OutputFile file(folder + "/" + described.name, calls);
  const auto write = [&](const void* data, int64_t bytes) {
    file.Write(data, bytes);
    hash.Add(data, bytes);
    described.bytes += bytes;
  };
  const auto elements = [&](const std::string& name, const WriteBytes& out) {
    const Tensor value = saved.get(*states.at(name));
    out(value.data(), value.bytes());
  };
  WriteSafetensors(write, types, elements,
                   {{"format", "gradloom-checkpoint"}, {"step", std::to_string(saved.step)}, {"rank", std::to_string(part)}});
  file.Finish();
  described.hash = hash.value();
  SyncFolder(folder, calls);
  return described;
}

void CheckFinite(const SavedState& saved, const std::string& where) {
  const std::string name = NonFiniteState(saved);
  if (name.empty()) return;
  throw Error(ErrorCode::kDiverged, "'" + Escaped(name) + "' is not finite after step " + std::to_string(saved.step), where,
              "use a smaller --lr or --clip-norm 1, or look for NaN in the data");
}

PartCollector::PartCollector(const Plan& plan, std::shared_ptr<Communicator> communicator)
    : communicator_(std::move(communicator)), writers_(WritersOf(plan, *communicator_)) {}

void PartCollector::Announce(bool saves) {
  GRADLOOM_CHECK(phase_ == Phase::kNone);
  if (saves) phase_ = Phase::kAnnounced;
  for (size_t part = 1; part < writers_.size(); ++part) Send(*communicator_, writers_[part], saves ? kSaves : kNoSave);
}

void PartCollector::Begin(const std::string& folder) {
  GRADLOOM_CHECK(phase_ == Phase::kAnnounced);
  phase_ = Phase::kBegun;
  taken_ = 1;
  folder_ = folder;
  for (size_t part = 1; part < writers_.size(); ++part) Send(*communicator_, writers_[part], fs::absolute(folder).string());
}

CheckpointFile PartCollector::TakePart(int64_t part) {
  const int writer = writers_[static_cast<size_t>(part)];
  const std::string text = ReceiveText(*communicator_, writer);
  ++taken_;
  const Json answer = Json::parse(text);
  const std::string& name = communicator_->name(writer);
  if (answer.contains("code")) {
    throw Error(static_cast<ErrorCode>(answer.at("code").get<int>()), name + ": " + answer.at("message").get<std::string>(),
                answer.at("where").get<std::string>(), answer.at("help").get<std::string>());
  }
  CheckpointFile file{RankFileName(part), answer.at("bytes").get<int64_t>(), answer.at("hash").get<uint64_t>()};
  const std::string path = folder_ + "/" + file.name;
  std::error_code error;
  const auto bytes = fs::file_size(path, error);
  if (!error && static_cast<int64_t>(bytes) == file.bytes) return file;
  throw Error(ErrorCode::kResource,
              name + " has written " + std::to_string(file.bytes) + " bytes, but " +
                  (error ? "the file is not visible here" : "the file has " + std::to_string(bytes) + " here"),
              Escaped(path, 4096), "set --out to a folder that all hosts of the job share");
}

std::vector<CheckpointFile> PartCollector::Finish() {
  GRADLOOM_CHECK(phase_ == Phase::kBegun);
  std::vector<CheckpointFile> files;
  for (int64_t part = 1; part < static_cast<int64_t>(writers_.size()); ++part) files.push_back(TakePart(part));
  phase_ = Phase::kNone;
  return files;
}

void PartCollector::Abandon() noexcept {
  const Phase phase = std::exchange(phase_, Phase::kNone);
  try {
    for (size_t part = 1; phase == Phase::kAnnounced && part < writers_.size(); ++part) Send(*communicator_, writers_[part], "");
    for (; phase == Phase::kBegun && taken_ < static_cast<int64_t>(writers_.size()); ++taken_)
      ReceiveText(*communicator_, writers_[static_cast<size_t>(taken_)]);
  } catch (const std::exception&) {
    // The job has failed, which is reported elsewhere.
  }
}

std::unique_ptr<PartWriter> PartWriter::Make(const Plan& plan, std::shared_ptr<Communicator> communicator, FileCalls& calls) {
  const std::vector<int> writers = WritersOf(plan, *communicator);
  const auto found = std::find(writers.begin(), writers.end(), communicator->process());
  if (found == writers.end() || found == writers.begin()) return nullptr;
  return std::unique_ptr<PartWriter>(new PartWriter(plan, std::move(communicator), found - writers.begin(), calls));
}

PartWriter::PartWriter(const Plan& plan, std::shared_ptr<Communicator> communicator, int64_t part, FileCalls& calls)
    : communicator_(std::move(communicator)), part_(part), calls_(calls) {
  for (const int writer : WriterOfEach(plan, *communicator_)) own_.push_back(writer == communicator_->process());
}

bool PartWriter::Announced() { return ReceiveText(*communicator_, 0) == kSaves; }

void PartWriter::Write(SavedState saved, const std::function<void(const SavedState&)>& check) {
  const std::string folder = ReceiveText(*communicator_, 0);
  if (folder.empty()) return;
  const Plan& plan = *saved.plan;
  std::erase_if(saved.tensors, [&](const StateTensor* state) { return !own_[static_cast<size_t>(state - plan.state.data())]; });
  std::string answer;
  // A slow disk must not look like a hung process.
  communicator_->SetBusy(true);
  try {
    if (check) check(saved);
    const CheckpointFile file = WriteInto(folder, saved);
    answer = Json{{"bytes", file.bytes}, {"hash", file.hash}}.dump();
  } catch (const Error& error) {
    answer = TextOf(error);
  } catch (const std::exception& error) {
    answer = TextOf(Error(ErrorCode::kResource, error.what(), Escaped(folder, 4096)));
  }
  Send(*communicator_, 0, answer);
  communicator_->SetBusy(false);
}

CheckpointFile PartWriter::WriteInto(const std::string& folder, const SavedState& saved) {
  std::error_code error;
  // Process 0 creates it.
  if (!fs::is_directory(folder, error)) {
    throw Error(ErrorCode::kResource, "the folder that the first process saves to is not visible on this host", Escaped(folder, 4096),
                "set --out to a folder that all hosts of the job share");
  }
  return WriteCheckpointPart(folder, part_, saved, calls_);
}

}  // namespace gradloom
