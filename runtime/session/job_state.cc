#include "runtime/session/job_state.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>

#include "runtime/base/error.h"

namespace gradloom {
namespace {

constexpr uint32_t kTag = Communicator::kControlTag;
constexpr int64_t kNoState = -1;  // process 0 is through

// A plan of fewer ranks than there are processes is run by each of them by itself (SharedTraining).
RankRange RanksOf(int process, const Plan& plan, const Communicator& communicator) {
  const size_t ranks = plan.num_ranks();
  if (ranks < static_cast<size_t>(communicator.processes())) return {0, static_cast<int>(ranks)};
  return communicator.RanksOf(process, ranks);
}

bool Holds(const Plan& plan, const StateTensor& state, RankRange ranks) {
  for (int rank = ranks.first; rank < ranks.last; ++rank) {
    if (state.in_place(plan.PlaceOf(static_cast<size_t>(rank)))) return true;
  }
  return false;
}

bool HoldsAll(const Plan& plan, RankRange ranks) {
  return std::all_of(plan.state.begin(), plan.state.end(), [&](const StateTensor& state) { return Holds(plan, state, ranks); });
}

}  // namespace

std::vector<int> HoldersOf(const StateTensor& state, const Plan& plan, const Communicator& communicator) {
  std::vector<int> holders;
  for (int i = 0; i < communicator.processes(); ++i) {
    if (Holds(plan, state, RanksOf(i, plan, communicator))) holders.push_back(i);
  }
  GRADLOOM_CHECK(!holders.empty());
  return holders;
}

bool EachProcessHoldsState(const Plan& plan, const Communicator* communicator) {
  // Without parts each device has all.
  if (communicator == nullptr || plan.places.size() == 1) return true;
  for (int i = 0; i < communicator->processes(); ++i) {
    if (!HoldsAll(plan, RanksOf(i, plan, *communicator))) return false;
  }
  return true;
}

bool FirstProcessHoldsState(const Plan& plan, const Communicator* communicator) {
  return communicator == nullptr || HoldsAll(plan, RanksOf(0, plan, *communicator));
}

void JoinPartsOf(const StateTensor& state, const Plan& plan, Communicator* communicator, StateArena& arena) {
  if (communicator == nullptr) return arena.Set(state, arena.Get(state).view());
  const int me = communicator->process();
  const std::vector<int> holders = HoldersOf(state, plan, *communicator);
  std::optional<Tensor> sum;
  for (const int holder : holders) {
    const RankRange ranks = RanksOf(holder, plan, *communicator);
    for (int rank = ranks.first; rank < ranks.last; ++rank) {
      if (!state.in_place(plan.PlaceOf(static_cast<size_t>(rank)))) continue;
      Tensor part = holder == me ? arena.GetOf(static_cast<size_t>(rank), state) : Tensor(state.dtype, state.shape);
      if (me != holders.front()) {
        if (holder == me) communicator->Send(holders.front(), kTag, part.data(), part.bytes());
        continue;
      }
      if (holder != me) communicator->Receive(holder, kTag, part.data(), part.bytes());
      sum ? AddTo(*sum, part.view()) : void(sum = std::move(part));
    }
  }
  if (std::find(holders.begin(), holders.end(), me) == holders.end()) return;
  arena.Set(state, sum ? sum->view() : Tensor(state.dtype, state.shape).view());
}

void BroadcastState(Session& session, Communicator& communicator, const ReadState& given) {
  const Plan& plan = session.plan();
  const int me = communicator.process();
  char first_gives = given ? 1 : 0;
  communicator.Broadcast(&first_gives, sizeof first_gives);
  for (const StateTensor& state : plan.state) {
    if (state.derived()) continue;
    const std::vector<int> holders = HoldersOf(state, plan, communicator);
    const int giver = first_gives != 0 ? 0 : holders.front();
    if (me != giver) {
      if (!session.Holds(state)) continue;
      Tensor value(state.dtype, state.shape);
      communicator.Receive(giver, kTag, value.data(), value.bytes());
      session.Set(state.name, value.view());
      continue;
    }
    const Tensor value = session.Holds(state) ? session.Get(state.name) : given(state.name);
    for (const int holder : holders) {
      if (holder != me) communicator.Send(holder, kTag, value.data(), value.bytes());
    }
  }
}

Tensor StateOfJob::Read(const std::string& name) {
  const Plan& plan = session_.plan();
  const int index = session_.FindState(name);
  if (index < 0 || communicator_ == nullptr) return session_.Get(name);
  const StateTensor& state = plan.state[static_cast<size_t>(index)];
  const int giver = HoldersOf(state, plan, *communicator_).front();
  if (giver == 0) return session_.Get(name);
  const int64_t asked = index;
  communicator_->Send(giver, kTag, &asked, sizeof asked);
  Tensor value(state.dtype, state.shape);
  communicator_->Receive(giver, kTag, value.data(), value.bytes());
  return value;
}

void StateOfJob::End() {
  for (int process = 1; communicator_ != nullptr && process < communicator_->processes(); ++process)
    communicator_->Send(process, kTag, &kNoState, sizeof kNoState);
}

void SendState(const Session& session, Communicator& communicator) {
  const std::vector<StateTensor>& states = session.plan().state;
  while (true) {
    int64_t asked = kNoState;
    communicator.Receive(0, kTag, &asked, sizeof asked);
    if (asked == kNoState) return;
    GRADLOOM_CHECK(asked >= 0 && asked < static_cast<int64_t>(states.size()));
    const Tensor value = session.Get(states[static_cast<size_t>(asked)].name);
    communicator.Send(0, kTag, value.data(), value.bytes());
  }
}

}  // namespace gradloom
