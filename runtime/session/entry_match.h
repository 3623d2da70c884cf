// Which entry of a plan takes the feeds of a caller. Private to this directory.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/plan/plan.h"
#include "runtime/session/session.h"

namespace gradloom {

// The first entry of the kind that the feeds match, each in the shape of the plan's feed or by samples; -1: none.
int FittingEntry(const Plan& plan, EntryKind kind, const Feeds& feeds);

// The tensor for a feed of an entry that the feeds match, in the feed's own shape.
TensorView Bound(const Feed& feed, const Feeds& feeds);

// How many feeds of the entry are given as it takes them.
int64_t CountFitting(const Entry& entry, const Feeds& feeds);

// Why the feeds do not match the entry.
std::string Mismatch(const Entry& entry, const Feeds& feeds);

// Names, types and shapes of the feeds of an entry, for messages.
std::string ShapesOf(const Entry& entry);

// The shapes of the feeds of an entry that would match, if all feeds of this kind are present and only their shapes keep the plan's entries
// from matching; otherwise empty.
FeedShapes ShapesToAdd(const Plan& plan, EntryKind kind, const Feeds& feeds);

}  // namespace gradloom
