// Proves that a plan is sound, after every compile and at every load. The verifier shares no code with the passes that make plans. It
// trusts only the instructions, the buffers and the catalog of kernels.
//
// For every program of the plan it proves:
//   names      ids are in range; kernels exist, compute the operator named, accept the operands' number,
//              dtypes, shapes and layouts, and get the scratch memory that they ask for
//   bounds     every buffer lies in its arena and has exactly the bytes of its dtype, shape and layout;
//              state, constants and step parameters are what the plan's tables say lies there
//   writes     constants, feeds and step parameters are never written; a state tensor is written at most
//              once a step, whole, and only by entries of a kind that may, except that a broadcast in
//              place may follow; operands of one instruction overlap only where its kernel permits it
//   order      every two accesses to the same bytes, one of them a write, are ordered by streams and events;
//              every wait has a record before it, so no program can wait for itself. If the plan says that
//              failed steps change nothing (kFailedSteps), state is written after everything that may
//              refuse a batch because of its data, such as an invalid label. A device continues after a
//              refusal; there, state is written by instructions that check whether the batch has been
//              refused (KernelRow::preserves_state_on_refusal)
//   values     every read gets the bytes of the one instruction that wrote that buffer: memory is reused
//              only after the last read, nothing uninitialized is read, no update comes too early; the
//              16-bit copy of a parameter gets its next value from the update that gives the parameter its
//              own, so it always equals the rounded parameter
// And for every entry:
//   ranks      shards cover the batch, and no samples are left out; feeds and fetches fit, and a fetch that is not
//              divided is the same on all ranks that provide it; all ranks that hold a state change it together;
//              all members of a group take part in the same collectives in the same order with equal sizes,
//              sums are over all ranks that hold the same part of the model, and have each sample once;
//              all that hold a state compute its next value alike, from what does not depend on their samples,
//              or get it from one that has; every state has a rank that holds it;
//              every send meets its receive; no rank waits for ever; if failed steps change nothing, copies
//              of a part of the model know of each other's refusals before they change state
// Entries may follow each other in any order: all streams join at the end of a step, state has one place and one layout, and no entry reads
// transient bytes that it has not written. Only a copy stream extends beyond its step. It writes the slot that the previous step does not
// use, and the verifier checks that it does nothing else. So pairs of entries need no proof of their own.
//
// It cannot know whether the plan computes what the model means: with another attribute, or another operand of the same type, an
// instruction makes another sound plan.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/plan/plan.h"

namespace gradloom {

// The property that says what a step changes if it fails because of its inputs. Plans of releases before this guarantee lack it.
inline constexpr char kFailedSteps[] = "failed_steps";
inline constexpr char kChangeNothing[] = "change nothing";

struct PlanFault {
  std::string_view check;  // one of the topics above: "names", "bounds" ...
  std::string message;     // names the instructions and, for "order", an order that goes wrong
  std::string where;       // "program 0, #12 launch onednn.conv on stream 1 ('/conv1/Conv')"
};

// Finds a kernel's row by its name, or returns null.
using KernelLookup = const KernelRow* (*)(std::string_view name);

// Returns the faults found, up to 100. Empty: the plan is sound. The time is nearly linear in the size of the plan. `proved`: a sound plan,
// or null. If `plan` extends it (Extends), what has not changed is not proved again, and the time is that of the new part.
std::vector<PlanFault> Verify(const Plan& plan, KernelLookup find = FindKernel, const Plan* proved = nullptr);

// Throws Error(kPlan) with the first fault and the number of others.
void VerifyOrThrow(const Plan& plan, KernelLookup find = FindKernel, const Plan* proved = nullptr);

}  // namespace gradloom
