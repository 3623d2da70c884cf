// The limit of open files, which the command raises for itself alone.
#pragma once

namespace gradloom {

// Raises this process's soft limit to the hard one. The soft limit is often 1,024, for programs that use select(), and the command does
// not. Rank 0 of a large job has a connection to each other process.
void RaiseFileLimit();

// Sets the soft limit that RaiseFileLimit found. Safe between fork and exec, for a program that may use select(), or close all descriptors
// below the limit, of which containers often allow a billion.
void RestoreFileLimit();

}  // namespace gradloom
