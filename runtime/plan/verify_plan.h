// The proof that a plan is sound, made after every compile and at every load. It shares no code with the
// passes that make plans: it believes nothing but the instructions, the buffers and the catalog of kernels.
//
// What is proved, for every program of the plan:
//   names      ids are in range; kernels exist, compute the operator named, accept the operands' number,
//              dtypes, shapes and layouts, and get the scratch memory that they ask for
//   bounds     every buffer lies in its arena and has exactly the bytes of its dtype, shape and layout;
//              state, constants and step parameters are what the plan's tables say lies there
//   writes     constants, feeds and step parameters are never written; a state tensor is written at most
//              once a step, whole, and only by entries of a kind that may; operands of one instruction
//              overlap only where its kernel permits it
//   order      every two accesses to the same bytes, one of them a write, are ordered by streams and events;
//              every wait has a record before it, so that no program can wait for itself
//              Where the plan says that failed steps change nothing (kFailedSteps), what lives between steps is written after all that may
//              refuse a batch by its numbers, a label that is no class for one, and on a device, which goes on behind that, by
//              what looks whether the batch has been refused (KernelRow::keeps_state)
//   values     every read gets the bytes of the one instruction that wrote that buffer: memory is reused
//              only after the last read, nothing uninitialised is read, no update comes too early
// and for every entry:
//   ranks      shards cover the batch; feeds and fetches fit; all that hold a state change it together; all members of a group meet in the
//   same
//              collectives in the same order with equal sizes, every send meets its receive, none waits
//              for ever; and where failed steps change nothing, copies of a part of the model know of each other before they change it
// Entries follow each other in any order: all streams join at the end of a step, state has one place and
// one layout, and no entry reads transient bytes that it has not written. What alone goes beyond its step is a copy stream: it
// writes the slot that the step before does not use, and is checked to do nothing else. So no pair needs a proof of its own.
//
// What it cannot know is whether the plan computes what the model means: an instruction with another
// attribute, or with another operand of the same type, is another sound plan.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/plan/plan.h"

namespace gradloom {

// The property by which a plan says what a step does that fails by what it is fed. Plans of releases before this promise lack it.
inline constexpr char kFailedSteps[] = "failed_steps";
inline constexpr char kChangeNothing[] = "change nothing";

struct PlanFault {
  std::string_view check;  // one of the words above: "names", "bounds" ...
  std::string message;     // names the instructions and, for an order, one in which it goes wrong
  std::string where;       // "program 0, #12 launch onednn.conv on stream 1 ('/conv1/Conv')"
};

// Finds a kernel's row by its name, or gives null.
using KernelLookup = const KernelRow* (*)(std::string_view name);

// All faults found, up to 100. Empty: the plan is sound. Time is near linear in the size of the plan. `proved`: a sound plan, or null.
// Where `plan` extends it (Extends), what rests on what has not changed is not proved once more, and time is that of what is new.
std::vector<PlanFault> Verify(const Plan& plan, KernelLookup find = FindKernel, const Plan* proved = nullptr);

// Throws Error(kPlan) with the first fault and the number of others.
void VerifyOrThrow(const Plan& plan, KernelLookup find = FindKernel, const Plan* proved = nullptr);

}  // namespace gradloom
