#include "runtime/comm/local_group.h"

#include <cstring>

#include "runtime/comm/tree_sum.h"

namespace gradloom {
namespace {

// The first element of member i's part of `elements`.
int64_t PartBegin(int64_t elements, size_t i, size_t members) { return elements * static_cast<int64_t>(i) / static_cast<int64_t>(members); }

// Operands without elements may have a null address.
void Copy(void* to, const void* from, int64_t bytes) {
  if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
}

}  // namespace

LocalGroup::LocalGroup(int members) : members_(static_cast<size_t>(members)), barrier_(members) {
  for (Member& member : members_) {
    member.addends.resize(members_.size());
    member.scratch.resize(static_cast<size_t>(SumTreeScratchBytes(members_.size())) / sizeof(double));
  }
}

void LocalGroup::Sum(size_t me, size_t k, int64_t begin, int64_t end, void* to) {
  Member& member = members_[me];
  const DType dtype = member.operands[k].dtype;
  for (size_t m = 0; m < members_.size(); ++m) {
    member.addends[m] = static_cast<const std::byte*>(members_[m].operands[k].read) + begin * DTypeBytes(dtype);
  }
  SumTree(dtype, member.addends, end - begin, member.scratch.data(), to);
}

void LocalGroup::Make(size_t me, Collective collective, size_t k) {
  const Operand& o = members_[me].operands[k];
  const int64_t size = DTypeBytes(o.dtype);
  auto* const write = static_cast<std::byte*>(o.write);
  if (collective == Collective::kAllReduceSum) {
    const int64_t elements = o.read_bytes / size;
    const int64_t begin = PartBegin(elements, me, members_.size());
    Sum(me, k, begin, PartBegin(elements, me + 1, members_.size()), write + begin * size);
  } else if (collective == Collective::kReduceSum) {
    // All members write their parts of the sum where the root wants it.
    auto* const to = static_cast<std::byte*>(members_[static_cast<size_t>(o.root)].operands[k].write);
    const int64_t elements = o.read_bytes / size, begin = PartBegin(elements, me, members_.size());
    Sum(me, k, begin, PartBegin(elements, me + 1, members_.size()), to + begin * size);
  } else if (collective == Collective::kReduceScatterSum) {
    const int64_t part = o.write_bytes / size, first = part * static_cast<int64_t>(me);
    Sum(me, k, first, first + part, write);
  }
}

void LocalGroup::Fetch(size_t me, Collective collective, int root, size_t k) {
  const Operand& o = members_[me].operands[k];
  const int64_t size = DTypeBytes(o.dtype), elements = o.read_bytes / size;
  auto* const write = static_cast<std::byte*>(o.write);
  switch (collective) {
    case Collective::kAllReduceSum:
      for (size_t m = 0; m < members_.size(); ++m) {
        if (m == me) continue;
        const int64_t begin = PartBegin(elements, m, members_.size()) * size, end = PartBegin(elements, m + 1, members_.size()) * size;
        Copy(write + begin, static_cast<const std::byte*>(members_[m].operands[k].write) + begin, end - begin);
      }
      break;
    case Collective::kBroadcast:
      if (const void* from = members_[static_cast<size_t>(root)].operands[k].read; from != o.write) Copy(write, from, o.write_bytes);
      break;
    case Collective::kAllGather:
      for (size_t m = 0; m < members_.size(); ++m) {
        const Operand& other = members_[m].operands[k];
        std::byte* const to = write + static_cast<int64_t>(m) * o.read_bytes;
        if (to != other.read) Copy(to, other.read, o.read_bytes);
      }
      break;
    case Collective::kReduceScatterSum:
    case Collective::kReduceSum: break;
  }
}

// Each member computes its part, then all copy the parts that they need from each other. There are three barriers, and between them no
// member writes what another reads. This also holds in place: before the second barrier a member writes only the part that it alone reads,
// be it in the root's memory.
void LocalGroup::Run(int member, Collective collective, int root, std::span<const Operand> operands, bool failed) {
  const auto me = static_cast<size_t>(member);
  members_[me].operands = operands;
  barrier_.arrive_and_wait();
  for (size_t k = 0; k < operands.size() && !failed; ++k) Make(me, collective, k);
  barrier_.arrive_and_wait();
  for (size_t k = 0; k < operands.size() && !failed; ++k) Fetch(me, collective, root, k);
  barrier_.arrive_and_wait();
}

void LocalChannel::Send(const void* data, int64_t, bool) {
  const uint32_t number = ++sends_;
  data_ = data;
  sent_.store(number, std::memory_order_release);
  sent_.notify_all();
  for (uint32_t seen; (seen = taken_.load(std::memory_order_acquire)) != number;) taken_.wait(seen, std::memory_order_acquire);
}

void LocalChannel::Receive(void* data, int64_t bytes, bool failed) {
  const uint32_t number = ++receives_;
  for (uint32_t seen; (seen = sent_.load(std::memory_order_acquire)) != number;) sent_.wait(seen, std::memory_order_acquire);
  if (!failed) Copy(data, data_, bytes);
  taken_.store(number, std::memory_order_release);
  taken_.notify_all();
}

}  // namespace gradloom
