#include "runtime/comm/job_group.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/comm/communicator.h"

namespace gradloom {
namespace {

constexpr int64_t kPieceBytes = 256 << 10;  // the next piece is in flight while one is summed
// total size of all operands up to which each process sums everything itself, after one exchange instead of two
constexpr int64_t kSmallBytes = 16 << 10;
// Up to this number of processes, one message from each to each takes less time than a tree. More processes sum by a tree what they would
// otherwise send in as many tiny pieces.
constexpr size_t kMostInOneExchange = 16;

int CountLocalMembers(const Communicator& communicator, const std::vector<int>& members, size_t ranks) {
  const RankRange own = communicator.OwnRanks(ranks);
  return static_cast<int>(std::count_if(members.begin(), members.end(), [&](int rank) { return own.contains(rank); }));
}

int64_t Elements(const RankGroup::Operand& operand) { return operand.read_bytes / DTypeBytes(operand.dtype); }

// A process that failed itself reports its own error, not the abort that others were told of.
template <typename F>
void IgnoreErrorsIfAborted(const Communicator& communicator, F&& f) {
  try {
    f();
  } catch (const Error&) {
    if (!communicator.aborted()) throw;
  }
}

}  // namespace

JobGroup::JobGroup(Communicator& communicator, uint32_t tag, const std::vector<int>& members, size_t ranks)
    : communicator_(communicator),
      tag_(tag),
      size_(static_cast<int>(members.size())),
      members_(static_cast<size_t>(CountLocalMembers(communicator, members, ranks))),
      barrier_(static_cast<std::ptrdiff_t>(members_.size())),
      addends_(members.size()),
      scratch_(static_cast<size_t>(SumTreeScratchBytes(members.size())) / sizeof(double)) {
  for (int m = 0; m < size_; ++m) {
    const int process = communicator.ProcessOf(members[static_cast<size_t>(m)], ranks);
    if (processes_.empty() || processes_.back().process != process) processes_.push_back({process, m, m, {}});
    processes_.back().end = m + 1;
  }
  for (Process& process : processes_) {
    process.parts = TreePartsOf(process.begin, process.end, size_);
    if (process.process == communicator.process()) mine_ = &process;
  }
  GRADLOOM_CHECK(mine_ != nullptr);
  if (processes_.size() > kMostInOneExchange) GrowBranches();
}

// A binary tree over the processes, as of their numbers: 1, 2, 4 and so on are under 0, and 5 and 6 under 4.
void JobGroup::GrowBranches() {
  const auto me = static_cast<size_t>(mine_ - processes_.data()), count = processes_.size();
  const auto parts_of = [&](size_t first, size_t last) {
    return TreePartsOf(processes_[first].begin, processes_[std::min(last, count) - 1].end, size_);
  };
  size_t width = 1;
  for (; width < count && me % (2 * width) == 0; width *= 2) {
    if (me + width >= count) continue;
    branches_.push_back({processes_[me + width].process, parts_of(me + width, me + 2 * width), parts_of(me, me + 2 * width)});
  }
  if (me > 0) above_ = processes_[me - width].process;
}

template <typename F>
void JobGroup::ForEachOther(F&& f) const {
  for (size_t i = 0; i < processes_.size(); ++i) {
    if (&processes_[i] != mine_) f(i, processes_[i]);
  }
}

void JobGroup::Run(int member, Collective collective, int root, std::span<const Operand> operands, bool failed) {
  const bool leads = member == mine_->begin;
  members_[static_cast<size_t>(member - mine_->begin)] = operands;
  std::exception_ptr error;
  barrier_.arrive_and_wait();
  if (leads) {
    exchanged_ = false;
    try {
      if (!failed) IgnoreErrorsIfAborted(communicator_, [&] { Exchange(collective, root), exchanged_ = true; });
    } catch (...) {
      error = std::current_exception();
    }
  }
  barrier_.arrive_and_wait();
  if (!failed && exchanged_) Fetch(member, collective, root);
  barrier_.arrive_and_wait();
  if (error) std::rethrow_exception(error);
}

void JobGroup::Exchange(Collective collective, int root) {
  int64_t bytes = 0;
  for (const Operand& operand : members_[0]) bytes += operand.read_bytes;
  const bool few = processes_.size() <= kMostInOneExchange;
  const int64_t small = few ? kSmallBytes : kSmallBytes * std::ssize(processes_) / static_cast<int64_t>(kMostInOneExchange);
  switch (collective) {
    case Collective::kAllReduceSum:
      if (bytes > small) return SumPieces(collective, true);
      return few ? AllReduceSmall() : SumByTree(collective, bytes);
    case Collective::kReduceSum:
      if (bytes > small) return SumPieces(collective, PaysToShare(bytes));
      return few ? ReduceSmall() : SumByTree(collective, bytes);
    case Collective::kReduceScatterSum: return SumPieces(collective, false);
    case Collective::kBroadcast: return Broadcast(root);
    case Collective::kAllGather: return AllGather();
  }
}

void JobGroup::Fetch(int member, Collective collective, int root) const {
  const auto copy = [](void* to, const void* from, int64_t bytes) {
    if (bytes > 0 && to != from) std::memcpy(to, from, static_cast<size_t>(bytes));
  };
  for (size_t k = 0; k < operands(member).size(); ++k) {
    const Operand& o = operands(member)[k];
    switch (collective) {
      case Collective::kAllReduceSum: copy(o.write, leader(k).write, o.write_bytes); break;
      case Collective::kReduceScatterSum:
      case Collective::kReduceSum: break;
      case Collective::kBroadcast: {
        const bool here = Has(*mine_, root);
        copy(o.write, here ? operands(root)[k].read : leader(k).write, o.write_bytes);
        break;
      }
      case Collective::kAllGather:
        for (int m = 0; m < size_; ++m) {
          const int64_t at = m * o.read_bytes;
          const bool here = Has(*mine_, m);
          copy(static_cast<std::byte*>(o.write) + at, here ? operands(m)[k].read : static_cast<const std::byte*>(leader(k).write) + at,
               o.read_bytes);
        }
        break;
    }
  }
}

int64_t JobGroup::SumParts(size_t operand, int64_t begin, int64_t elements, std::byte* to) {
  const DType dtype = leader(operand).dtype;
  const int64_t size = DTypeBytes(dtype);
  for (const TreePart& part : mine_->parts) {
    for (int m = part.first; m < part.last; ++m) {
      addends_[static_cast<size_t>(m - part.first)] = static_cast<const std::byte*>(operands(m)[operand].read) + begin * size;
    }
    SumTree(dtype, {addends_.data(), static_cast<size_t>(part.last - part.first)}, elements, scratch_.data(), to);
    to += elements * size;
  }
  return elements * size * static_cast<int64_t>(mine_->parts.size());
}

void JobGroup::SumAll(DType dtype, int64_t elements, std::span<const std::byte* const> parts, void* to) {
  std::fill(addends_.begin(), addends_.end(), nullptr);
  for (size_t i = 0; i < processes_.size(); ++i) {
    const std::byte* at = parts[i];
    for (const TreePart& part : processes_[i].parts) {
      addends_[static_cast<size_t>(part.first)] = at;
      at += elements * DTypeBytes(dtype);
    }
  }
  SumTree(dtype, addends_, elements, scratch_.data(), to);
}

// Every process receives the parts of all others, with all operands in one message.
void JobGroup::AllReduceSmall() {
  int64_t bytes = 0;  // size of one part
  for (const Operand& operand : members_[0]) bytes += operand.read_bytes;
  const auto parts_of = [](const Process& process) { return static_cast<int64_t>(process.parts.size()); };
  int64_t all = 0;
  for (const Process& process : processes_) all += bytes * parts_of(process);
  received_.resize(std::max(received_.size(), static_cast<size_t>(all) / sizeof(double) + processes_.size() + 1));
  std::vector<std::byte*> messages(processes_.size());
  auto* at = reinterpret_cast<std::byte*>(received_.data());
  for (size_t i = 0; i < processes_.size(); ++i) {
    messages[i] = at;
    at += bytes * parts_of(processes_[i]);
  }
  std::byte* const mine = messages[static_cast<size_t>(mine_ - processes_.data())];
  std::byte* to = mine;
  for (size_t k = 0; k < members_[0].size(); ++k) to += SumParts(k, 0, Elements(leader(k)), to);
  ForEachOther([&](size_t, const Process& other) { communicator_.Send(other.process, tag_, mine, to - mine); });
  ForEachOther([&](size_t i, const Process& other) { communicator_.Receive(other.process, tag_, messages[i], bytes * parts_of(other)); });
  std::vector<const std::byte*> parts(messages.begin(), messages.end());
  for (size_t k = 0; k < members_[0].size(); ++k) {
    SumAll(leader(k).dtype, Elements(leader(k)), parts, leader(k).write);
    for (size_t i = 0; i < parts.size(); ++i) parts[i] += leader(k).read_bytes * parts_of(processes_[i]);
  }
}

// Each process receives the parts of the sums whose roots it has, in one message from each of the others.
void JobGroup::ReduceSmall() {
  const auto bytes_for = [&](const Process& process) {  // of one part
    int64_t bytes = 0;
    for (const Operand& operand : members_[0]) bytes += Has(process, operand.root) ? operand.read_bytes : 0;
    return bytes;
  };
  const auto parts_of = [](const Process& process) { return static_cast<int64_t>(process.parts.size()); };
  const auto put_parts = [&](const Process& process, std::byte* to) {
    for (size_t k = 0; k < members_[0].size(); ++k) {
      if (Has(process, leader(k).root)) to += SumParts(k, 0, Elements(leader(k)), to);
    }
    return to;
  };
  int64_t all = 0, most = 0;
  for (const Process& process : processes_) {
    all += bytes_for(*mine_) * parts_of(process);
    most = std::max(most, bytes_for(process) * parts_of(*mine_));
  }
  sent_.resize(std::max(sent_.size(), static_cast<size_t>(most) / sizeof(double) + 1));
  received_.resize(std::max(received_.size(), static_cast<size_t>(all) / sizeof(double) + 1));
  ForEachOther([&](size_t, const Process& other) {
    if (bytes_for(other) == 0) return;
    auto* const message = reinterpret_cast<std::byte*>(sent_.data());
    communicator_.Send(other.process, tag_, message, put_parts(other, message) - message);
  });
  if (bytes_for(*mine_) == 0) return;
  std::vector<const std::byte*> parts;
  auto* at = reinterpret_cast<std::byte*>(received_.data());
  for (const Process& process : processes_) {
    const int64_t bytes = bytes_for(*mine_) * parts_of(process);
    &process == mine_ ? void(put_parts(process, at)) : communicator_.Receive(process.process, tag_, at, bytes);
    parts.push_back(std::exchange(at, at + bytes));
  }
  for (size_t k = 0; k < members_[0].size(); ++k) {
    const int root = leader(k).root;
    if (!Has(*mine_, root)) continue;
    SumAll(leader(k).dtype, Elements(leader(k)), parts, operands(root)[k].write);
    for (size_t i = 0; i < parts.size(); ++i) parts[i] += leader(k).read_bytes * parts_of(processes_[i]);
  }
}

// Each process adds the sums of those under it to its own, and passes on the parts of the whole sum that they make up. The whole sum comes
// back the same way. So there are two messages for each process, however many there are. All operands are in one message, each with its
// parts.
void JobGroup::SumByTree(Collective collective, int64_t bytes) {
  const auto room = [&](std::vector<double>& memory, const std::vector<TreePart>& parts) {
    memory.resize(std::max(memory.size(), static_cast<size_t>(bytes) * parts.size() / sizeof(double) + 1));
    return reinterpret_cast<std::byte*>(memory.data());
  };
  const auto bytes_of = [&](const std::vector<TreePart>& parts) { return bytes * static_cast<int64_t>(parts.size()); };
  const std::vector<TreePart>* parts = &mine_->parts;
  std::byte* to = room(sent_, *parts);
  for (size_t k = 0; k < members_[0].size(); ++k) to += SumParts(k, 0, Elements(leader(k)), to);
  for (const Branch& branch : branches_) {
    const std::byte* theirs = room(received_, branch.parts);
    communicator_.Receive(branch.process, tag_, received_.data(), bytes_of(branch.parts));
    const auto* own = reinterpret_cast<const std::byte*>(sent_.data());
    to = room(joined_, branch.joined);
    for (size_t k = 0; k < members_[0].size(); ++k) {
      const DType dtype = leader(k).dtype;
      const int64_t part_bytes = leader(k).read_bytes;
      std::fill(addends_.begin(), addends_.end(), nullptr);
      for (const TreePart& part : *parts) addends_[static_cast<size_t>(part.first)] = std::exchange(own, own + part_bytes);
      for (const TreePart& part : branch.parts) addends_[static_cast<size_t>(part.first)] = std::exchange(theirs, theirs + part_bytes);
      for (const TreePart& part : branch.joined) {
        const std::span<const void* const> leaves(addends_.data() + part.first, static_cast<size_t>(part.last - part.first));
        SumTree(dtype, leaves, Elements(leader(k)), scratch_.data(), to);
        to += part_bytes;
      }
    }
    std::swap(sent_, joined_);
    parts = &branch.joined;
  }
  if (above_ >= 0) {
    communicator_.Send(above_, tag_, sent_.data(), bytes_of(*parts));
    communicator_.Receive(above_, tag_ + 1, sent_.data(), bytes);
  }
  for (auto branch = branches_.rbegin(); branch != branches_.rend(); ++branch)
    communicator_.Send(branch->process, tag_ + 1, sent_.data(), bytes);
  const auto* sum = reinterpret_cast<const std::byte*>(sent_.data());
  for (size_t k = 0; k < members_[0].size(); ++k) {
    const int64_t size = leader(k).read_bytes;
    const int receiver = ReceiverOf(collective, k);
    if (size > 0 && receiver >= 0) std::memcpy(operands(receiver)[k].write, sum, static_cast<size_t>(size));
    sum += size;
  }
}

// A process that sums alone receives its operands from all others; with shares, a share of all operands, and shares of the sums.
bool JobGroup::PaysToShare(int64_t bytes) const {
  return std::any_of(processes_.begin(), processes_.end(), [&](const Process& process) {
    int64_t own = 0;
    for (const Operand& operand : members_[0]) own += Has(process, operand.root) ? operand.read_bytes : 0;
    return own * (std::ssize(processes_) - 1) > bytes;
  });
}

int JobGroup::ReceiverOf(Collective collective, size_t operand) const {
  if (collective == Collective::kAllReduceSum) return mine_->begin;
  const int root = leader(operand).root;
  return Has(*mine_, root) ? root : -1;
}

std::vector<JobGroup::Piece> JobGroup::PiecesOf(const Process& process, Collective collective, bool shares) const {
  std::vector<Piece> pieces;
  const int64_t i = &process - processes_.data(), count = static_cast<int64_t>(processes_.size());
  for (size_t k = 0; k < members_[0].size(); ++k) {
    const int64_t size = DTypeBytes(leader(k).dtype), elements = Elements(leader(k)), most = kPieceBytes / size;
    const auto add = [&](int64_t begin, int64_t end, int member, int64_t to) {
      for (int64_t at = begin; at < end; at += most) pieces.push_back({k, at, std::min(most, end - at), member, to + at - begin});
    };
    if (shares) {
      const int64_t begin = elements * i / count;
      add(begin, elements * (i + 1) / count, &process == mine_ ? ReceiverOf(collective, k) : -1, begin);
    } else if (collective == Collective::kReduceSum) {
      if (Has(process, leader(k).root)) add(0, elements, leader(k).root, 0);
    } else {
      const int64_t part = elements / size_;
      for (int m = process.begin; m < process.end; ++m) add(part * m, part * (m + 1), m, 0);
    }
  }
  return pieces;
}

void JobGroup::SumPieces(Collective collective, bool shares) {
  std::vector<std::vector<Piece>> pieces;
  size_t most = 0;
  for (const Process& process : processes_) {
    pieces.push_back(PiecesOf(process, collective, shares));
    most = std::max(most, pieces.back().size());
  }
  size_t parts = 0;
  for (const Process& process : processes_) parts = std::max(parts, process.parts.size());
  const size_t each = static_cast<size_t>(kPieceBytes) / sizeof(double) * parts;
  sent_.resize(std::max(sent_.size(), each));
  received_.resize(std::max(received_.size(), each * processes_.size()));
  summed_.resize(std::max(summed_.size(), static_cast<size_t>(kPieceBytes) / sizeof(double)));
  const std::vector<Piece>& own = pieces[static_cast<size_t>(mine_ - processes_.data())];

  const auto send_parts = [&](size_t p) {
    ForEachOther([&](size_t i, const Process& other) {
      if (p >= pieces[i].size()) return;
      const Piece& piece = pieces[i][p];
      auto* const to = reinterpret_cast<std::byte*>(sent_.data());
      communicator_.Send(other.process, tag_, to, SumParts(piece.operand, piece.begin, piece.elements, to));
    });
  };
  const auto sum_own = [&](const Piece& piece) {
    const DType dtype = leader(piece.operand).dtype;
    const int64_t bytes = piece.elements * DTypeBytes(dtype);
    std::vector<const std::byte*> at(processes_.size());
    for (size_t i = 0; i < processes_.size(); ++i) at[i] = reinterpret_cast<const std::byte*>(received_.data() + each * i);
    ForEachOther([&](size_t i, const Process& other) {
      communicator_.Receive(other.process, tag_, received_.data() + each * i, bytes * static_cast<int64_t>(other.parts.size()));
    });
    SumParts(piece.operand, piece.begin, piece.elements,
             reinterpret_cast<std::byte*>(received_.data() + each * static_cast<size_t>(mine_ - processes_.data())));
    auto* const to = piece.member < 0 ? reinterpret_cast<std::byte*>(summed_.data())
                                      : static_cast<std::byte*>(operands(piece.member)[piece.operand].write) + piece.to * DTypeBytes(dtype);
    SumAll(dtype, piece.elements, at, to);
    ForEachOther([&](size_t, const Process& other) {
      const bool gets = collective == Collective::kAllReduceSum || Has(other, leader(piece.operand).root);
      if (shares && gets) communicator_.Send(other.process, tag_ + 1, to, bytes);
    });
  };

  send_parts(0);
  for (size_t p = 0; p < most; ++p) {
    send_parts(p + 1);
    if (p < own.size()) sum_own(own[p]);
    if (!shares) continue;
    // Received into an operand whose elements in this range have already been sent.
    ForEachOther([&](size_t i, const Process& other) {
      if (p >= pieces[i].size()) return;
      const Piece& piece = pieces[i][p];
      const int64_t size = DTypeBytes(leader(piece.operand).dtype);
      const int receiver = ReceiverOf(collective, piece.operand);
      if (receiver < 0) return;
      auto* const to = static_cast<std::byte*>(operands(receiver)[piece.operand].write);
      communicator_.Receive(other.process, tag_ + 1, to + piece.to * size, piece.elements * size);
    });
  }
}

void JobGroup::Broadcast(int root) {
  const auto holder = std::find_if(processes_.begin(), processes_.end(), [&](const Process& process) { return root < process.end; });
  for (size_t k = 0; k < members_[0].size(); ++k) {
    if (&*holder != mine_) {
      communicator_.Receive(holder->process, tag_, leader(k).write, leader(k).write_bytes);
      continue;
    }
    const Operand& given = operands(root)[k];
    ForEachOther([&](size_t, const Process& other) { communicator_.Send(other.process, tag_, given.read, given.read_bytes); });
  }
}

void JobGroup::AllGather() {
  for (size_t k = 0; k < members_[0].size(); ++k) {
    const int64_t bytes = leader(k).read_bytes;
    for (int m = mine_->begin; m < mine_->end; ++m) {
      ForEachOther([&](size_t, const Process& other) { communicator_.Send(other.process, tag_, operands(m)[k].read, bytes); });
    }
    ForEachOther([&](size_t, const Process& other) {
      for (int m = other.begin; m < other.end; ++m)
        communicator_.Receive(other.process, tag_, static_cast<std::byte*>(leader(k).write) + m * bytes, bytes);
    });
  }
}

void JobChannel::Send(const void* data, int64_t bytes, bool failed) {
  if (!failed) IgnoreErrorsIfAborted(communicator_, [&] { communicator_.Send(process_, tag_, data, bytes); });
}

void JobChannel::Receive(void* data, int64_t bytes, bool failed) {
  if (!failed) IgnoreErrorsIfAborted(communicator_, [&] { communicator_.Receive(process_, tag_, data, bytes); });
}

}  // namespace gradloom
