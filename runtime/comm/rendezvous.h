// How the processes of a job find each other.
#pragma once

#include <string>
#include <vector>

#include "runtime/comm/job_topology.h"
#include "runtime/comm/socket.h"

namespace gradloom {

// A process of the job, as others name it.
struct JobProcess {
  std::string host;
  int pid = 0;
};

struct JobConnections {
  std::vector<JobProcess> processes;  // by rank
  std::vector<Socket> sockets;        // by rank, to each other process; closed for this one
};

// Rank 0 listens at the master's address; the others go there, learn of each other, and connect with each other. Where the port is taken
// (torchrun keeps a store of its own at it), rank 0 takes one of the next ones, and the others look there. Throws
// Error(kPeer) where processes have not come by the deadline, Error(kConfig) where they disagree about who they are.
JobConnections MeetProcesses(const JobTopology& topology, Deadline deadline);

}  // namespace gradloom
