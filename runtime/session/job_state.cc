#include "runtime/session/job_state.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "runtime/base/error.h"

namespace gradloom {
namespace {

constexpr uint32_t kTag = Communicator::kControlTag;

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

bool EachHoldsAll(const Plan& plan, const Communicator* communicator) {
  // Without parts each device has all.
  if (communicator == nullptr || plan.places.size() == 1) return true;
  for (int i = 0; i < communicator->processes(); ++i) {
    if (!HoldsAll(plan, RanksOf(i, plan, *communicator))) return false;
  }
  return true;
}

bool FirstHoldsAll(const Plan& plan, const Communicator* communicator) {
  return communicator == nullptr || HoldsAll(plan, RanksOf(0, plan, *communicator));
}

void SpreadState(Session& session, Communicator& communicator, const std::map<std::string, TensorView>* given) {
  const Plan& plan = session.plan();
  const int me = communicator.process();
  char first_gives = given != nullptr ? 1 : 0;
  communicator.Broadcast(&first_gives, sizeof first_gives);
  for (const StateTensor& state : plan.state) {
    const std::vector<int> holders = HoldersOf(state, plan, communicator);
    const int giver = first_gives != 0 ? 0 : holders.front();
    if (me != giver) {
      if (!session.Holds(state)) continue;
      Tensor value(state.dtype, state.shape);
      communicator.Receive(giver, kTag, value.data(), value.bytes());
      session.Set(state.name, value.view());
      continue;
    }
    const Tensor own = session.Holds(state) ? session.Get(state.name) : Tensor();
    const TensorView value = own.defined() ? own.view() : given->at(state.name);
    for (const int holder : holders) {
      if (holder != me) communicator.Send(holder, kTag, value.data, value.bytes());
    }
  }
}

std::map<std::string, Tensor> GatherState(const Session& session, Communicator* communicator) {
  std::map<std::string, Tensor> gathered;
  const int me = communicator == nullptr ? 0 : communicator->process();
  for (const StateTensor& state : session.plan().state) {
    const int giver = communicator == nullptr ? 0 : HoldersOf(state, session.plan(), *communicator).front();
    if (me != 0 && me != giver) continue;
    Tensor value = me == giver ? session.Get(state.name) : Tensor(state.dtype, state.shape);
    if (me != 0) {
      communicator->Send(0, kTag, value.data(), value.bytes());
      continue;
    }
    if (giver != 0) communicator->Receive(giver, kTag, value.data(), value.bytes());
    gathered.emplace(state.name, std::move(value));
  }
  return gathered;
}

}  // namespace gradloom
