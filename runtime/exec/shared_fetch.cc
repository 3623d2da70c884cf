// Fetches of a plan that is run by several processes.
#include <cstring>
#include <string>

#include "runtime/comm/communicator.h"
#include "runtime/exec/executor.h"
#include "runtime/exec/prepare.h"

namespace gradloom {

RankRange Executor::OwnRanks(const Plan& plan, const Communicator* communicator) {
  const size_t ranks = plan.num_ranks();
  if (communicator == nullptr) return {0, static_cast<int>(ranks)};
  if (ranks >= static_cast<size_t>(communicator->processes())) return communicator->OwnRanks(ranks);
  throw Error(
      ErrorCode::kConfig,
      "the plan is for " + std::to_string(ranks) + " devices, but the job has " + std::to_string(communicator->processes()) + " processes",
      "", "start as many processes as there are devices, or fewer");
}

Tensor& Executor::FetchedTensor(int entry, int fetch, DType dtype, const Shape& shape) {
  Tensor& tensor = fetched_[{entry, fetch}];
  if (!tensor.defined()) tensor = Tensor(dtype, shape);
  return tensor;
}

TensorView Executor::FetchOfAll(Communicator& communicator, int entry, int fetch, const PartAddress& address) {
  const FetchParts found = PartsOf(plan(), entry, fetch);
  return found.whole ? SharedWhole(communicator, entry, fetch, found, address)
                     : GatheredFromAll(communicator, entry, fetch, found, address);
}

TensorView Executor::SharedWhole(Communicator& communicator, int entry_index, int index, const FetchParts& found,
                                 const PartAddress& address) {
  const auto process_of = [&](const FetchParts::Part& part) {
    return communicator.ProcessOf(static_cast<int>(part.rank), plan().num_ranks());
  };
  const Buffer& first = *found.parts.front().buffer;
  const int giver = process_of(found.parts.front()), me = communicator.process();
  std::vector<const FetchParts::Part*> held(static_cast<size_t>(communicator.processes()));
  for (const FetchParts::Part& part : found.parts) held[static_cast<size_t>(process_of(part))] = &part;
  const FetchParts::Part* const mine = held[static_cast<size_t>(me)];
  if (mine == nullptr) {
    Tensor& whole = FetchedTensor(entry_index, index, first.dtype, found.shape);
    communicator.Receive(giver, Communicator::kFetchTag, whole.data(), whole.bytes());
    return whole.view();
  }
  const TensorView view{first.dtype, found.shape, address(*mine)};
  for (int i = 0; me == giver && i < communicator.processes(); ++i) {
    if (held[static_cast<size_t>(i)] == nullptr) communicator.Send(i, Communicator::kFetchTag, view.data, view.bytes());
  }
  return view;
}

TensorView Executor::GatheredFromAll(Communicator& communicator, int entry_index, int index, const FetchParts& found,
                                     const PartAddress& address) {
  const RankRange own = communicator.OwnRanks(plan().num_ranks());
  const Entry& entry = plan().entries[static_cast<size_t>(entry_index)];
  const Fetch& fetch = entry.fetches[static_cast<size_t>(index)];
  const DType dtype = found.parts.front().buffer->dtype;
  Tensor& whole = FetchedTensor(entry_index, index, dtype, found.shape);
  auto* const to = static_cast<std::byte*>(whole.data());
  const auto place_of = [&](const FetchParts::Part& part) {
    return CopyOf(whole.shape(), DTypeBytes(dtype), fetch.batch_axis, fetch.batch_inner, entry.ranks[part.rank], entry.batch);
  };
  std::vector<std::byte> bytes;
  for (const FetchParts::Part& part : found.parts) {
    const int rank = static_cast<int>(part.rank);
    if (!own.contains(rank)) continue;
    const SampleCopy place = place_of(part);
    const auto* from = static_cast<const std::byte*>(address(part));
    if (part.buffer->arena == Arena::kFeed) {
      // Each process has its own samples of a feed.
      bytes.resize(static_cast<size_t>(place.runs * place.bytes));
      place.Scatter(from, bytes.data());
      from = bytes.data();
    }
    place.Gather(from, to);
    for (int i = 0; i < communicator.processes(); ++i) {
      if (i != communicator.process()) communicator.Send(i, Communicator::kFetchTag, from, place.runs * place.bytes);
    }
  }
  for (const FetchParts::Part& part : found.parts) {
    const int rank = static_cast<int>(part.rank);
    if (own.contains(rank)) continue;
    const SampleCopy place = place_of(part);
    bytes.resize(static_cast<size_t>(place.runs * place.bytes));
    communicator.Receive(communicator.ProcessOf(rank, plan().num_ranks()), Communicator::kFetchTag, bytes.data(), place.runs * place.bytes);
    place.Gather(bytes.data(), to);
  }
  return whole.view();
}

}  // namespace gradloom
