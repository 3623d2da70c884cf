#include "runtime/exec/numerics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "runtime/exec/numerics_text.h"

namespace gradloom {
namespace {

// A step that makes more is searched from here; the first ones matter.
constexpr size_t kMaxEvents = size_t{1} << 14;

template <typename Get>
void ScanElements(int64_t elements, const Get& get, ScannedValue& found) {
  found.min = std::numeric_limits<double>::infinity();
  found.max = -found.min;
  for (int64_t i = 0; i < elements; ++i) {
    const double value = get(i);
    if (std::isfinite(value)) {
      found.min = std::min(found.min, value);
      found.max = std::max(found.max, value);
    } else if (std::isnan(value)) {
      if (found.nans++ == 0) found.first_nan = i;
    } else {
      if (found.infinities++ == 0) found.first_infinity = i;
    }
  }
}

bool Scannable(const Buffer* buffer, const void* address) { return buffer != nullptr && address != nullptr && IsFloating(buffer->dtype); }

std::vector<ScannedValue> Scan(const NumericsLog::Site& site, Access access, std::span<const void* const> addresses,
                               const NumericsLog::OnHost& on_host) {
  std::vector<ScannedValue> found;
  size_t at = 0;
  for (const Use& use : site.instruction->uses) {
    if (use.access != access) continue;
    const void* const address = addresses[at++];
    const Buffer* const buffer = use.buffer < 0 ? nullptr : &site.program->buffers[static_cast<size_t>(use.buffer)];
    if (Scannable(buffer, address)) found.push_back(ScanValue(*buffer, on_host ? on_host(*buffer, address) : address));
  }
  return found;
}

bool AllFinite(const std::vector<ScannedValue>& values) {
  return std::all_of(values.begin(), values.end(), [](const ScannedValue& value) { return value.finite(); });
}

// The offset of an element in the arena of its buffer, in bytes.
int64_t OffsetOf(const Buffer& buffer, int64_t element) {
  if (!buffer.layout.plain()) element = buffer.layout.Offset(buffer.shape, IndexOf(buffer.shape, element));
  return buffer.offset + element * DTypeBytes(buffer.dtype);
}

bool Covers(const Buffer& buffer, Arena arena, int64_t offset) {
  return buffer.arena == arena && buffer.offset <= offset && offset < buffer.offset + buffer.bytes;
}

// Whether every use of the arena finds what the caller or the file has given.
bool IsGiven(Arena arena) { return arena != Arena::kTransient && arena != Arena::kState; }

}  // namespace

ScannedValue ScanValue(const Buffer& buffer, const void* data) {
  ScannedValue found{.buffer = &buffer};
  std::vector<std::byte> logical;
  if (!buffer.layout.plain()) {
    logical.resize(static_cast<size_t>(buffer.shape.elements() * DTypeBytes(buffer.dtype)));
    FromLayout(buffer.layout, buffer.shape, DTypeBytes(buffer.dtype), data, logical.data());
    data = logical.data();
  }
  if (buffer.dtype == DType::kFloat32) {
    ScanElements(
        found.elements(), [floats = static_cast<const float*>(data)](int64_t i) { return floats[i]; }, found);
  } else {
    const TensorView view{buffer.dtype, buffer.shape, data};
    ScanElements(
        found.elements(), [&](int64_t i) { return ElementAsDouble(view, i); }, found);
  }
  return found;
}

void NumericsLog::BeginRun(std::shared_ptr<const Plan> plan, int entry, int64_t step) {
  plan_ = std::move(plan);
  entry_ = entry;
  step_ = step;
  ++run_;
  events_.clear();
}

bool NumericsLog::Applies(const Instruction& instruction) {
  switch (instruction.kind) {
    case InstructionKind::kLaunch:
    case InstructionKind::kCopy:
    case InstructionKind::kCollective:
    case InstructionKind::kSend:
    case InstructionKind::kRecv: return true;
    case InstructionKind::kRecord:
    case InstructionKind::kWait:
    case InstructionKind::kIf:
    case InstructionKind::kLoop: return false;
  }
  return false;
}

std::vector<ScannedValue> NumericsLog::Reads(const Site& site, std::span<const void* const> addresses, const OnHost& on_host) {
  // What a copy reads may be the samples of a rank, spread over the tensor of the batch. Note takes it from what the copy has written.
  if (site.instruction->kind == InstructionKind::kCopy) return {};
  return Scan(site, Access::kRead, addresses, on_host);
}

void NumericsLog::Note(const Site& site, std::vector<ScannedValue> reads, std::span<void* const> addresses, const OnHost& on_host) {
  const std::vector<const void*> written(addresses.begin(), addresses.end());
  Event event{site, std::move(reads), Scan(site, Access::kWrite, written, on_host)};
  const bool communicates = Communicates(*site.instruction);
  if (AllFinite(event.writes) && !(communicates && !AllFinite(event.reads))) return;
  if (site.instruction->kind == InstructionKind::kCopy) {
    ScannedValue& read = event.reads.emplace_back(event.writes[0]);
    for (const Use& use : site.instruction->uses) {
      if (use.access == Access::kRead) read.buffer = &site.program->buffers[static_cast<size_t>(use.buffer)];
    }
  }
  const std::lock_guard lock(mutex_);
  if (events_.size() < kMaxEvents) events_.push_back(std::move(event));
}

// Follows one element of each tensor that is not finite back to what made it, and keeps the best of all origins found. Remembers what it
// has found about instructions for further searches.
class NumericsLog::Search {
 public:
  explicit Search(const NumericsLog& log) : log_(log) {}

  std::optional<NonFiniteOrigin> From(int rank, const Buffer& buffer) {
    seen_.clear();
    best_.reset();
    for (size_t k = log_.events_.size(); k-- > 0;) {
      const Event& event = log_.events_[k];
      if (event.site.rank != rank) continue;
      for (const ScannedValue& value : event.writes) {
        if (!value.finite() && Overlap(*value.buffer, buffer)) return Run(k, value.nans > 0);
      }
    }
    // Nobody has written it: a fetched feed or state.
    return std::nullopt;
  }

 private:
  using Kind = NonFiniteOrigin::Kind;

  static bool Overlap(const Buffer& a, const Buffer& b) {
    return a.arena == b.arena && a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
  }

  std::optional<NonFiniteOrigin> Run(size_t event, bool nan) {
    Add(event, nan);
    while (!open_.empty()) {
      const auto [k, is_nan] = open_.back();
      open_.pop_back();
      Visit(k, is_nan);
    }
    return best_;
  }

  void Add(size_t event, bool nan) {
    if (seen_.emplace(event, nan).second) open_.emplace_back(event, nan);
  }

  void Visit(size_t k, bool nan) {
    const Event& event = log_.events_[k];
    std::vector<std::pair<size_t, const ScannedValue*>> nans, infinities;
    const auto collect = [&](size_t reader) {
      for (const ScannedValue& read : log_.events_[reader].reads) {
        if (read.nans > 0) nans.emplace_back(reader, &read);
        if (read.infinities > 0) infinities.emplace_back(reader, &read);
      }
    };
    collect(k);
    for (const size_t partner : PartnersOf(k)) collect(partner);
    if (nans.empty() && (nan || infinities.empty())) {
      const Kind kind = !infinities.empty() ? Kind::kFromMasks : Kind::kMade;
      Offer(HasDistantPartners(event) ? Kind::kElsewhere : kind, k, nullptr);
    }
    for (const auto& [reader, read] : nans) Follow(reader, *read, true);
    // A NaN that was read explains the NaN; infinities do not.
    if (nan && !nans.empty()) return;
    for (const auto& [reader, read] : infinities) Follow(reader, *read, false);
  }

  void Follow(size_t reader, const ScannedValue& read, bool nan) {
    const Buffer& buffer = *read.buffer;
    const int rank = log_.events_[reader].site.rank;
    if (!IsGiven(buffer.arena)) {
      const int64_t offset = OffsetOf(buffer, nan ? read.first_nan : read.first_infinity);
      const auto [writer, is_new] = writers_.try_emplace({&read, nan});
      if (is_new) writer->second = LastWriter(reader, rank, buffer.arena, offset);
      if (writer->second) return Add(writer->second->first, nan && writer->second->second);
      for (const StateOrigin& state : log_.states_) {
        if (buffer.arena == Arena::kState && state.rank == rank && state.begin <= offset && offset < state.end) return Offer(state.origin);
      }
    }
    // Infinities in masks are ordinary, those in weights are not.
    Offer(nan || buffer.arena == Arena::kState ? Kind::kMade : Kind::kPassed, reader, &read);
  }

  // An instruction, and whether it wrote a NaN.
  using Writer = std::pair<size_t, bool>;

  // The one that wrote the element which `reader` read: a later write of finite numbers would have removed it.
  std::optional<Writer> LastWriter(size_t reader, int rank, Arena arena, int64_t offset) const {
    for (size_t k = reader; k-- > 0;) {
      const Event& event = log_.events_[k];
      if (event.site.rank != rank) continue;
      for (const ScannedValue& write : event.writes) {
        if (!write.finite() && Covers(*write.buffer, arena, offset)) return Writer(k, write.nans > 0);
      }
    }
    return std::nullopt;
  }

  // The other sides of a collective or a receive.
  const std::vector<size_t>& PartnersOf(size_t k) {
    const auto [partners, is_new] = partners_.try_emplace(k);
    const Instruction& instruction = *log_.events_[k].site.instruction;
    if (is_new && Communicates(instruction) && instruction.kind != InstructionKind::kSend) partners->second = FindPartners(k);
    return partners->second;
  }

  std::vector<size_t> FindPartners(size_t k) const {
    const Event& event = log_.events_[k];
    const Instruction& instruction = *event.site.instruction;
    std::vector<size_t> partners;
    const bool receives = instruction.kind == InstructionKind::kRecv;
    const RankBinding& own = BindingOf(event.site.rank);
    for (size_t other = 0; other < log_.events_.size(); ++other) {
      const Site& site = log_.events_[other].site;
      const Instruction& its = *site.instruction;
      if (other == k || its.tag != instruction.tag) continue;
      if (receives) {
        if (its.kind != InstructionKind::kSend || own.peers[static_cast<size_t>(instruction.peer)] != site.rank) continue;
        if (BindingOf(site.rank).peers[static_cast<size_t>(its.peer)] != event.site.rank) continue;
      } else if (its.kind != InstructionKind::kCollective || GroupOf(site) != GroupOf(event.site)) {
        continue;
      }
      partners.push_back(other);
    }
    return partners;
  }

  const RankBinding& BindingOf(int rank) const {
    return log_.plan_->entries[static_cast<size_t>(log_.entry_)].ranks[static_cast<size_t>(rank)];
  }
  int GroupOf(const Site& site) const { return BindingOf(site.rank).groups[static_cast<size_t>(site.instruction->group)]; }

  bool HasDistantPartners(const Event& event) const {
    const Instruction& instruction = *event.site.instruction;
    if (instruction.kind == InstructionKind::kRecv)
      return !log_.own_.contains(BindingOf(event.site.rank).peers[static_cast<size_t>(instruction.peer)]);
    if (instruction.kind != InstructionKind::kCollective) return false;
    const std::vector<int>& ranks = log_.plan_->groups[static_cast<size_t>(GroupOf(event.site))].ranks;
    return !std::all_of(ranks.begin(), ranks.end(), [&](int rank) { return log_.own_.contains(rank); });
  }

  void Offer(Kind kind, size_t k, const ScannedValue* given) {
    const Event& event = log_.events_[k];
    NonFiniteOrigin origin{
        .kind = kind, .text = {}, .run = log_.run_, .top = event.site.top, .rank = event.site.rank, .execution = static_cast<int64_t>(k)};
    if (best_ && !Precedes(origin, *best_)) return;
    const NonFiniteText text{*log_.plan_, log_.entry_, log_.step_, event.site, event.reads, event.writes};
    origin.text = given != nullptr ? text.Given(*given) : text.Made();
    best_ = std::move(origin);
  }

  void Offer(const NonFiniteOrigin& origin) {
    if (!best_ || Precedes(origin, *best_)) best_ = origin;
  }

  // Executions of several ranks have no fixed order, their instructions have.
  static bool Precedes(const NonFiniteOrigin& a, const NonFiniteOrigin& b) {
    return std::tie(a.kind, a.run, a.top, a.rank, a.execution) < std::tie(b.kind, b.run, b.top, b.rank, b.execution);
  }

  const NumericsLog& log_;
  std::set<std::pair<size_t, bool>> seen_;
  std::vector<std::pair<size_t, bool>> open_;
  std::optional<NonFiniteOrigin> best_;
  std::map<std::pair<const ScannedValue*, bool>, std::optional<Writer>> writers_;  // by what was read, and whether a NaN of it is meant
  std::map<size_t, std::vector<size_t>> partners_;
};

void NumericsLog::EndRun() {
  std::vector<StateOrigin> found;
  std::set<std::pair<int, int64_t>> done;
  Search search(*this);
  for (const Event& event : events_) {
    for (const ScannedValue& value : event.writes) {
      const Buffer& buffer = *value.buffer;
      if (value.finite() || buffer.arena != Arena::kState || !done.emplace(event.site.rank, buffer.offset).second) continue;
      std::optional<NonFiniteOrigin> origin = search.From(event.site.rank, buffer);
      if (origin) found.push_back({event.site.rank, buffer.offset, buffer.offset + buffer.bytes, std::move(*origin)});
    }
  }
  // All are traced before any is replaced, since they may come from each other.
  for (StateOrigin& state : found) {
    std::erase_if(states_, [&](const StateOrigin& old) { return old.rank == state.rank && old.begin == state.begin; });
    states_.push_back(std::move(state));
  }
}

std::optional<NonFiniteOrigin> NumericsLog::OriginOfFetch(size_t fetch) const {
  const Entry& entry = plan_->entries[static_cast<size_t>(entry_)];
  Search search(*this);
  for (int rank = own_.first; rank < own_.last; ++rank) {
    const int id = FetchedBuffer(entry, static_cast<size_t>(rank), fetch);
    if (id < 0) continue;
    const Program& program = plan_->programs[static_cast<size_t>(entry.ranks[static_cast<size_t>(rank)].program)];
    if (auto origin = search.From(rank, program.buffers[static_cast<size_t>(id)])) return origin;
  }
  return std::nullopt;
}

std::optional<NonFiniteOrigin> NumericsLog::OriginOfState(const StateTensor& state) const {
  for (const StateOrigin& found : states_) {
    if (found.begin < state.offset + state.bytes && state.offset < found.end &&
        state.in_place(plan_->PlaceOf(static_cast<size_t>(found.rank))))
      return found.origin;
  }
  return std::nullopt;
}

}  // namespace gradloom
