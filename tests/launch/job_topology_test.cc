// Determines a process's place in its job from the environment variables of launchers. Each row is what one launcher sets.
#include "runtime/comm/job_topology.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <sstream>

#include "runtime/base/error.h"

namespace gradloom {
namespace {

// Parses "A=1 B=2"; values contain no spaces.
EnvironmentVariables Variables(const std::string& text) {
  EnvironmentVariables variables;
  std::istringstream in(text);
  for (std::string word; in >> word;) variables[word.substr(0, word.find('='))] = word.substr(word.find('=') + 1);
  return variables;
}

// "torchrun 1/2 local 1/2 node 0/1 127.0.0.1:29500", or the description of the error.
std::string Resolved(const std::string& environment, const JobFlags& flags = {}) {
  try {
    const JobTopology t = ResolveJobTopology(flags, Variables(environment));
    std::string text = t.launcher + " " + std::to_string(t.rank) + "/" + std::to_string(t.world) + " local " +
                       std::to_string(t.local_rank) + "/" + std::to_string(t.local_world) + " node " + std::to_string(t.node) + "/" +
                       std::to_string(t.nodes);
    if (!t.master_address.empty()) text += " " + t.master_address + ":" + std::to_string(t.master_port);
    return text;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kConfig);
    EXPECT_FALSE(error.help().empty()) << environment;
    return error.Describe();
  }
}

std::vector<std::string> NotesOf(const std::string& environment, const JobFlags& flags = {}) {
  return ResolveJobTopology(flags, Variables(environment)).notes;
}

TEST(JobTopology, RestartsAreNoted) {
  const std::string process = "RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 MASTER_ADDR=localhost TORCHELASTIC_RUN_ID=none ";
  using Notes = std::vector<std::string>;
  EXPECT_EQ(NotesOf(process + "TORCHELASTIC_RESTART_COUNT=0 TORCHELASTIC_MAX_RESTARTS=3"), Notes{});
  EXPECT_EQ(NotesOf(process + "TORCHELASTIC_RESTART_COUNT=2 TORCHELASTIC_MAX_RESTARTS=3"), Notes{"restart 2 of at most 3"});
  EXPECT_EQ(NotesOf(process + "TORCHELASTIC_RESTART_COUNT=2"), Notes{"restart 2"});
  EXPECT_EQ(NotesOf(process + "TORCHELASTIC_RESTART_COUNT=many"), Notes{});
  // Variables that are left over from another process.
  EXPECT_EQ(NotesOf("TORCHELASTIC_RESTART_COUNT=2 TORCHELASTIC_MAX_RESTARTS=3"), Notes{});
}

struct Row {
  const char* launcher;
  std::string environment;
  const char* expected;
};

constexpr char kTorchrun[] =
    "RANK=%d LOCAL_RANK=1 GROUP_RANK=%d ROLE_RANK=1 ROLE_NAME=default LOCAL_WORLD_SIZE=2 ROLE_WORLD_SIZE=2 TORCHELASTIC_RESTART_COUNT=0 "
    "TORCHELASTIC_MAX_RESTARTS=0 TORCHELASTIC_RUN_ID=none TORCHELASTIC_USE_AGENT_STORE=True TORCH_NCCL_ASYNC_ERROR_HANDLING=1 "
    "TORCHELASTIC_ERROR_FILE=/tmp/none/attempt_0/1/error.json ";

constexpr char kSlurmStep[] =
    "SLURM_JOB_ID=4012345 SLURM_STEP_ID=0 SLURM_STEP_NODELIST=gpu[01-03,7] SLURM_JOB_NODELIST=gpu[01-03,7] SLURM_NNODES=4 SLURM_NTASKS=8 "
    "SLURM_STEP_NUM_TASKS=8 SLURM_STEP_NUM_NODES=4 SLURM_STEP_TASKS_PER_NODE=2(x4) SLURM_JOB_NAME=train SLURM_PROCID=5 SLURM_LOCALID=1 "
    "SLURM_NODEID=2 ";

std::string Torchrun(int rank, int node, const std::string& more) {
  char text[1000];
  std::snprintf(text, sizeof text, kTorchrun, rank, node);
  return text + more;
}

TEST(JobTopology, LaunchersAreRecognized) {
  const std::string torchrun = Torchrun(1, 0, "WORLD_SIZE=2 GROUP_WORLD_SIZE=1 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500");
  const std::string torchrun_nodes = Torchrun(3, 1, "WORLD_SIZE=4 GROUP_WORLD_SIZE=2 MASTER_ADDR=node0.cluster MASTER_PORT=29401");
  const std::string slurm = kSlurmStep;
  const Row rows[] = {
      {"none", "HOME=/root PATH=/bin", "single process 0/1 local 0/1 node 0/1"},
      {"torchrun, one node", torchrun, "torchrun 1/2 local 1/2 node 0/1 127.0.0.1:29500"},
      {"torchrun, two nodes", torchrun_nodes, "torchrun 3/4 local 1/2 node 1/2 node0.cluster:29401"},
      {"torchrun --virtual-local-rank",
       "RANK=1 LOCAL_RANK=0 GROUP_RANK=0 LOCAL_WORLD_SIZE=2 WORLD_SIZE=2 GROUP_WORLD_SIZE=1 MASTER_ADDR=localhost MASTER_PORT=29500 "
       "TORCHELASTIC_RUN_ID=none CUDA_VISIBLE_DEVICES=1",
       "torchrun 1/2 local 0/2 node 0/1 localhost:29500"},
      // Before PyTorch 1.9: neither the agent's variables nor the number of local processes.
      {"torch.distributed.launch --use_env, old",
       "MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 WORLD_SIZE=4 RANK=2 LOCAL_RANK=2 OMP_NUM_THREADS=1",
       "environment 2/4 local 2/4 node 0/1 127.0.0.1:29500"},
      {"torch.distributed.launch, old, the second of two hosts", "MASTER_ADDR=10.0.0.1 MASTER_PORT=29500 WORLD_SIZE=4 RANK=3 LOCAL_RANK=1",
       "environment 3/4 local 1/2 node 1/2 10.0.0.1:29500"},
      {"gradloom launch",
       "RANK=3 WORLD_SIZE=4 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 GROUP_RANK=1 GROUP_WORLD_SIZE=2 MASTER_ADDR=10.0.0.1 MASTER_PORT=29500 "
       "TORCHELASTIC_RUN_ID=none GRADLOOM_LAUNCHER=launch",
       "launch 3/4 local 1/2 node 1/2 10.0.0.1:29500"},
      {"Kubeflow PyTorchJob v1",
       "KUBERNETES_PORT=tcp://10.96.0.1:443 PYTHONUNBUFFERED=0 MASTER_PORT=23456 MASTER_ADDR=job-master-0 WORLD_SIZE=3 RANK=2",
       "Kubernetes 2/3 local 0/1 node 2/3 job-master-0:23456"},
      {"Kubeflow PyTorchJob v1, its master",
       "KUBERNETES_PORT=tcp://10.96.0.1:443 PYTHONUNBUFFERED=0 MASTER_PORT=23456 MASTER_ADDR=localhost WORLD_SIZE=1 RANK=0",
       "Kubernetes 0/1 local 0/1 node 0/1"},
      {"PAI-DLC", "KUBERNETES_PORT=tcp://10.96.0.1:443 MASTER_ADDR=dlc1-master-0 MASTER_PORT=23456 WORLD_SIZE=2 RANK=1 NPROC_PER_NODE=8",
       "Kubernetes 1/2 local 0/1 node 1/2 dlc1-master-0:23456"},
      {"PET, a process a pod",
       "PET_NNODES=4 PET_NPROC_PER_NODE=1 PET_NODE_RANK=2 PET_MASTER_ADDR=trainer-node-0-0.trainer PET_MASTER_PORT=29400",
       "PET_* variables 2/4 local 0/1 node 2/4 trainer-node-0-0.trainer:29400"},
      {"PET, Kubeflow's Trainer v2", "PET_NNODES=2 PET_NODE_RANK=1 PET_RDZV_ENDPOINT=trainer-node-0-0.trainer:29400",
       "PET_* variables 1/2 local 0/1 node 1/2 trainer-node-0-0.trainer:29400"},
      {"PET, an endpoint without a port", "PET_NNODES=2 PET_NODE_RANK=1 PET_RDZV_ENDPOINT=[fe80::1]",
       "PET_* variables 1/2 local 0/1 node 1/2 fe80::1:29500"},
      {"PET, an endpoint and its parts as in launch",
       "PET_NNODES=2 PET_NODE_RANK=1 PET_RDZV_ENDPOINT=a:29400 PET_MASTER_ADDR=b PET_MASTER_PORT=7",
       "PET_* variables 1/2 local 0/1 node 1/2 b:7"},
      {"srun", slurm, "Slurm 5/8 local 1/2 node 2/4 gpu01:17345"},
      {"srun on one host, of Slurm 22.05",
       "SLURM_JOB_ID=2 SLURM_JOB_NAME=gradloom SLURM_JOB_NODELIST=vm SLURM_LAUNCH_NODE_IPADDR=127.0.0.1 SLURM_LOCALID=1 SLURM_NNODES=1 "
       "SLURM_NODEID=0 SLURM_NPROCS=2 SLURM_NTASKS=2 SLURM_PROCID=1 SLURM_STEPID=0 SLURM_STEP_ID=0 SLURM_STEP_LAUNCHER_PORT=42413 "
       "SLURM_STEP_NODELIST=vm SLURM_STEP_NUM_NODES=1 SLURM_STEP_NUM_TASKS=2 SLURM_STEP_TASKS_PER_NODE=2 SLURM_TASKS_PER_NODE=2",
       "Slurm 1/2 local 1/2 node 0/1 vm:15002"},
      {"srun, uneven",
       "SLURM_JOB_ID=77 SLURM_STEP_ID=1 SLURM_STEP_NODELIST=a,b SLURM_NTASKS=3 SLURM_NNODES=2 SLURM_STEP_TASKS_PER_NODE=2,1 SLURM_PROCID=2 "
       "SLURM_LOCALID=0 SLURM_NODEID=1",
       "Slurm 2/3 local 0/1 node 1/2 a:15077"},
      {"sbatch without srun",
       "SLURM_JOB_ID=4012345 SLURM_JOB_NODELIST=gpu[01-04] SLURM_NNODES=4 SLURM_NTASKS=8 SLURM_TASKS_PER_NODE=2(x4) SLURM_JOB_NAME=train "
       "SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NODEID=0 SLURM_TASK_PID=777",
       "single process 0/1 local 0/1 node 0/1"},
      {"srun --pty bash",
       "SLURM_JOB_ID=4012345 SLURM_STEP_ID=0 SLURM_STEP_NODELIST=gpu01 SLURM_NTASKS=4 SLURM_JOB_NAME=bash SLURM_PROCID=0 SLURM_LOCALID=0",
       "single process 0/1 local 0/1 node 0/1"},
      {"salloc",
       "SLURM_JOB_ID=4012345 SLURM_STEP_ID=4294967290 SLURM_STEP_NODELIST=gpu01 SLURM_NTASKS=4 SLURM_JOB_NAME=interactive SLURM_PROCID=0",
       "single process 0/1 local 0/1 node 0/1"},
      {"mpirun of Open MPI",
       "OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=2 OMPI_COMM_WORLD_LOCAL_SIZE=4 "
       "OMPI_COMM_WORLD_NODE_RANK=2 "
       "PMIX_RANK=2 PMIX_NAMESPACE=prterun-host-1@1",
       "Open MPI 2/4 local 2/4 node 0/1 127.0.0.1:23915"},
      {"mpirun --map-by node of two hosts, which it has no address for",
       "OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=1 OMPI_COMM_WORLD_LOCAL_SIZE=2 "
       "OMPI_COMM_WORLD_NODE_RANK=1",
       "Open MPI 3/4 local 1/2 node 1/2"},
      // The daemon's step has one task per host. The first host of the allocation has rank 0.
      {"mpirun in a Slurm allocation, on a host where srun has started its daemon",
       "OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=1 OMPI_COMM_WORLD_LOCAL_SIZE=2 PMIX_RANK=3 "
       "SLURM_JOB_ID=812 "
       "SLURM_STEP_ID=0 SLURM_STEP_NODELIST=gpu02 SLURM_JOB_NODELIST=gpu[01-02] SLURM_PROCID=0 SLURM_NTASKS=1 SLURM_LOCALID=0 "
       "SLURM_NODEID=0",
       "Open MPI 3/4 local 1/2 node 1/2 gpu01:15812"},
      {"srun --mpi=pmix", slurm + "PMIX_RANK=5 PMIX_NAMESPACE=slurm.pmix.4012345.0", "Slurm 5/8 local 1/2 node 2/4 gpu01:17345"},
      {"srun --mpi=pmi2", slurm + "PMI_RANK=5 PMI_SIZE=8", "Slurm 5/8 local 1/2 node 2/4 gpu01:17345"},
      {"prun, which tells no size", "PMIX_RANK=1 PMIX_NAMESPACE=prte-host-1@1",
       "error[E-CONFIG]: PMIX_RANK=1 is a rank, but the number of processes is unknown\n  --> the topology of the job\n"
       "  help: set --world-size to the number of processes of the job"},
      {"MPICH's Hydra", "PMI_RANK=1 PMI_SIZE=2 PMI_FD=6 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2",
       "MPI (PMI) 1/2 local 1/2 node 0/1 127.0.0.1:29500"},
      {"Intel MPI, two hosts", "PMI_RANK=5 PMI_SIZE=8 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=4 I_MPI_MPIRUN=mpirun I_MPI_HYDRA_BOOTSTRAP=ssh",
       "MPI (PMI) 5/8 local 1/4 node 1/2"},
      {"Cray PALS", "PALS_RANKID=6 PALS_NODEID=1 PALS_APID=9 PMI_RANK=6 PMI_SIZE=8 PMI_LOCAL_RANK=2 PMI_LOCAL_SIZE=4 PALS_LOCAL_RANKID=2",
       "Cray PALS 6/8 local 2/4 node 1/2"},
      {"Cray ALPS", "ALPS_APP_PE=1 PMI_RANK=1 PMI_SIZE=2 PMI_LOCAL_RANK=1 PMI_LOCAL_SIZE=2",
       "MPI (PMI) 1/2 local 1/2 node 0/1 127.0.0.1:29500"},
      {"MVAPICH2",
       "MV2_COMM_WORLD_RANK=1 MV2_COMM_WORLD_SIZE=2 MV2_COMM_WORLD_LOCAL_RANK=0 MV2_COMM_WORLD_LOCAL_SIZE=1 MASTER_ADDR=a MASTER_PORT=7",
       "MVAPICH2 1/2 local 0/1 node 1/2 a:7"},
      // No rank is set; it follows from the local rank.
      {"Lightning's own processes", "MASTER_ADDR=127.0.0.1 MASTER_PORT=41234 NODE_RANK=0 LOCAL_RANK=1 WORLD_SIZE=2",
       "environment 1/2 local 1/2 node 0/1 127.0.0.1:41234"},
      {"Lightning's, the second host", "MASTER_ADDR=10.0.0.1 MASTER_PORT=41234 NODE_RANK=1 LOCAL_RANK=1 WORLD_SIZE=4 GROUP_WORLD_SIZE=2",
       "environment 3/4 local 1/2 node 1/2 10.0.0.1:41234"},
      // A batch script exports the master's address and the size; srun sets the rest.
      {"sbatch script with an address, and srun", slurm + "MASTER_ADDR=gpu01.cluster MASTER_PORT=29500 WORLD_SIZE=8",
       "Slurm 5/8 local 1/2 node 2/4 gpu01.cluster:29500"},
      {"by hand on one host", "RANK=1 WORLD_SIZE=2 MASTER_ADDR=localhost", "environment 1/2 local 1/2 node 0/1 localhost:29500"},
      {"corrected by GRADLOOM_*", torchrun + " GRADLOOM_RANK=5 GRADLOOM_WORLD_SIZE=8 GRADLOOM_LOCAL_RANK=1 GRADLOOM_LOCAL_WORLD_SIZE=4",
       "GRADLOOM_* variables 5/8 local 1/4 node 1/2 127.0.0.1:29500"},
  };
  EXPECT_GE(std::size(rows), 15u);
  for (const Row& row : rows) EXPECT_EQ(Resolved(row.environment), row.expected) << row.launcher;
}

TEST(JobTopology, ReportsContradictions) {
  const Row rows[] = {
      {"", "RANK=5 WORLD_SIZE=4", "RANK=5 WORLD_SIZE=4 contradict each other: a rank must be below the number of processes"},
      {"", "RANK=4 WORLD_SIZE=4", "RANK=4 WORLD_SIZE=4 contradict"},
      {"", "RANK=1 WORLD_SIZE=4 LOCAL_RANK=2 LOCAL_WORLD_SIZE=2", "LOCAL_RANK=2 LOCAL_WORLD_SIZE=2 contradict"},
      {"", "RANK=1 WORLD_SIZE=4 LOCAL_RANK=2 LOCAL_WORLD_SIZE=4", "LOCAL_RANK=2 RANK=1 contradict"},
      {"", "RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 LOCAL_WORLD_SIZE=4", "LOCAL_WORLD_SIZE=4 WORLD_SIZE=2 contradict"},
      {"", "RANK=1 WORLD_SIZE=4 GROUP_RANK=2 GROUP_WORLD_SIZE=2", "GROUP_RANK=2 GROUP_WORLD_SIZE=2 contradict"},
      {"", "RANK=1 WORLD_SIZE=4 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 GROUP_WORLD_SIZE=1",
       "GROUP_WORLD_SIZE=1 LOCAL_WORLD_SIZE=2 WORLD_SIZE=4 contradict"},
      {"", "RANK=1 WORLD_SIZE=4 LOCAL_RANK=1 LOCAL_WORLD_SIZE=4 GROUP_WORLD_SIZE=2", "the processes of the hosts do not add up"},
      {"", "RANK=-1 WORLD_SIZE=4", "RANK=-1 must be a whole number from 0 to 16777216"},
      {"", "RANK=one WORLD_SIZE=4", "RANK=one must be a whole number"},
      {"", "RANK=0 WORLD_SIZE=99999999999999999999", "WORLD_SIZE=99999999999999999999 must be a whole number"},
      {"", "RANK=0 WORLD_SIZE=0", "WORLD_SIZE=0"},
      {"", "RANK=0", "RANK=0 is a rank, but the number of processes is unknown"},
      {"", "LOCAL_RANK=1", "LOCAL_RANK=1 is one of several processes"},
      {"", "WORLD_SIZE=4", "WORLD_SIZE=4 describes a job of several processes, but the rank of this process is unknown"},
      {"", "RANK=0 WORLD_SIZE=2", "the address of rank 0 is unknown"},
      {"", "RANK=0 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=70000", "MASTER_PORT=70000 is not a valid port"},
      {"", "RANK=0 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=x", "MASTER_PORT=x is not a valid port"},
      {"", "SLURM_STEP_ID=0 SLURM_PROCID=5 SLURM_NTASKS=4", "SLURM_PROCID=5 SLURM_NTASKS=4 contradict"},
      {"", "SLURM_STEP_ID=0 SLURM_PROCID=1 SLURM_NTASKS=4 SLURM_STEP_NODELIST=a[1-", "'a[1-' has an unclosed bracket"},
      {"", "PMI_RANK=2 PMI_SIZE=2 MPI_LOCALRANKID=0 MPI_LOCALNRANKS=1", "PMI_RANK=2 PMI_SIZE=2 contradict"},
      // Half of one job and half of another.
      {"", "WORLD_SIZE=2 SLURM_STEP_ID=0 SLURM_PROCID=1 SLURM_NTASKS=4", "WORLD_SIZE=2 and SLURM_PROCID=1 SLURM_NTASKS=4 contradict"},
      // Variables that tell torchrun or `launch` what to start.
      {"", "PET_NNODES=2 PET_NPROC_PER_NODE=4 PET_NODE_RANK=1 PET_MASTER_ADDR=a", "PET_NNODES=2 PET_NPROC_PER_NODE=4 configures torchrun"},
      {"", "PET_NNODES=1:4 PET_RDZV_ENDPOINT=a:29400 PET_RDZV_BACKEND=c10d", "PET_NNODES=1:4 PET_NPROC_PER_NODE=1 configures torchrun"},
      {"", "PET_NNODES=2 PET_NODE_RANK=1 PET_RDZV_ENDPOINT=a:x", "PET_RDZV_ENDPOINT=a:x is not a valid port"},
      {"", "PET_NNODES=2 PET_NODE_RANK=1 PET_RDZV_ENDPOINT=a:0", "PET_RDZV_ENDPOINT=a:0 is not a valid port"},
      {"", "PET_NNODES=1 PET_NPROC_PER_NODE=auto", "PET_NPROC_PER_NODE=auto configures torchrun"},
  };
  for (const Row& row : rows) EXPECT_NE(Resolved(row.environment).find(row.expected), std::string::npos) << Resolved(row.environment);
}

TEST(JobTopology, FlagsOverrideTheEnvironment) {
  const std::string pai = "KUBERNETES_PORT=x MASTER_ADDR=dlc1-master-0 MASTER_PORT=23456 WORLD_SIZE=2 RANK=1 NPROC_PER_NODE=8";
  EXPECT_EQ(Resolved(pai, {.rank = 9, .world = 16, .local_rank = 1, .local_world = 8}),
            "flags 9/16 local 1/8 node 1/2 dlc1-master-0:23456");
  EXPECT_EQ(Resolved(pai, {.world = 1}), "flags 0/1 local 0/1 node 0/1");
  EXPECT_EQ(Resolved(pai, {.rank = 0, .world = 1}), "flags 0/1 local 0/1 node 0/1");
  // Before 1.9, torch.distributed.launch passes the local rank only as a flag.
  EXPECT_EQ(Resolved("MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 WORLD_SIZE=2 RANK=1", {.local_rank = 1}),
            "environment 1/2 local 1/2 node 0/1 127.0.0.1:29500");
  EXPECT_EQ(Resolved("RANK=1 WORLD_SIZE=2 MASTER_ADDR=a", {.master_port = 7, .master_address = "b"}),
            "environment 1/2 local 0/1 node 1/2 b:7");
  EXPECT_EQ(Resolved("RANK=1 WORLD_SIZE=4 MASTER_ADDR=a", {.world = 2}), "environment 1/2 local 0/1 node 1/2 a:29500");
  EXPECT_EQ(Resolved("PET_NNODES=2 PET_NPROC_PER_NODE=4 PET_NODE_RANK=1 PET_MASTER_ADDR=a", {.local_rank = 2}),
            "PET_* variables 6/8 local 2/4 node 1/2 a:29500");
  EXPECT_NE(Resolved("WORLD_SIZE=4 MASTER_ADDR=a RANK=1", {.rank = 5}).find("--rank 5 WORLD_SIZE=4 contradict each other"),
            std::string::npos);
}

TEST(JobTopology, NotesIgnoredLaunchersThatDisagree) {
  using Notes = std::vector<std::string>;
  const std::string torchrun = Torchrun(1, 0, "WORLD_SIZE=2 GROUP_WORLD_SIZE=1 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 ");
  EXPECT_EQ(NotesOf(torchrun), Notes{});
  EXPECT_EQ(NotesOf(torchrun + kSlurmStep), Notes{"ignored: SLURM_PROCID=5 SLURM_STEP_NUM_TASKS=8 (Slurm)"});
  EXPECT_EQ(NotesOf(torchrun + "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1"),
            Notes{"ignored: OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1 (Open MPI)"});
  // Another launcher's view of the same job is not a contradiction.
  EXPECT_EQ(NotesOf(std::string(kSlurmStep) + "PMIX_RANK=5 PMI_RANK=5 PMI_SIZE=8"), Notes{});
  EXPECT_EQ(NotesOf("RANK=1 WORLD_SIZE=2 MASTER_ADDR=a", {.rank = 0, .world = 1}), Notes{"ignored: RANK=1 WORLD_SIZE=2 (environment)"});
  // Garbage in variables that do not count is ignored.
  EXPECT_EQ(NotesOf(torchrun + "PMI_RANK=x PMI_SIZE=").size(), 1u);

  const Notes pai = NotesOf("KUBERNETES_PORT=x MASTER_ADDR=dlc1-master-0 MASTER_PORT=23456 WORLD_SIZE=2 RANK=1 NPROC_PER_NODE=8");
  ASSERT_EQ(pai.size(), 1u);
  EXPECT_NE(pai[0].find("WORLD_SIZE=2 is taken as the number of processes"), std::string::npos) << pai[0];
  EXPECT_NE(pai[0].find("gradloom launch --nnodes 2 --node-rank 1 --nproc-per-node 8"), std::string::npos) << pai[0];

  const Notes interactive = NotesOf("SLURM_STEP_ID=0 SLURM_NTASKS=4 SLURM_JOB_NAME=interactive SLURM_PROCID=2");
  ASSERT_EQ(interactive.size(), 1u);
  EXPECT_NE(interactive[0].find("SLURM_PROCID=2 SLURM_NTASKS=4 (Slurm) of the interactive job"), std::string::npos) << interactive[0];

  const Notes guessed = NotesOf("RANK=0 LOCAL_RANK=0 WORLD_SIZE=4 MASTER_ADDR=10.0.0.1");
  ASSERT_EQ(guessed.size(), 1u);
  EXPECT_NE(guessed[0].find("LOCAL_RANK=0 is taken as one of 4 on this host; set --local-world-size if there are fewer"), std::string::npos)
      << guessed[0];
}

// In a job of equal hosts every rank is placed on its host, whether hosts are filled one after the other or in turn, as far as the numbers
// determine it.
TEST(JobTopology, DerivesHostsFromRanks) {
  const auto resolve = [](int rank, int world, int local, int per_node) {
    return ResolveJobTopology({}, {{"OMPI_COMM_WORLD_RANK", std::to_string(rank)},
                                   {"OMPI_COMM_WORLD_SIZE", std::to_string(world)},
                                   {"OMPI_COMM_WORLD_LOCAL_RANK", std::to_string(local)},
                                   {"OMPI_COMM_WORLD_LOCAL_SIZE", std::to_string(per_node)}});
  };
  for (int nodes = 1; nodes <= 4; ++nodes) {
    for (int per_node = 1; per_node <= 4; ++per_node) {
      for (int rank = 0; rank < nodes * per_node; ++rank) {
        const JobTopology filled = resolve(rank, nodes * per_node, rank % per_node, per_node);
        EXPECT_EQ(filled.node, rank / per_node);
        EXPECT_EQ(filled.nodes, nodes);
        const JobTopology in_turn = resolve(rank, nodes * per_node, rank / nodes, per_node);
        const bool looks_filled = rank % per_node == rank / nodes;
        EXPECT_EQ(in_turn.node, looks_filled ? rank / per_node : rank % nodes);
      }
    }
  }
}

TEST(JobTopology, ToString) {
  const auto text = [](const std::string& environment) { return ToString(ResolveJobTopology({}, Variables(environment))); };
  EXPECT_EQ(text(""), "single process");
  EXPECT_EQ(text(Torchrun(1, 0, "WORLD_SIZE=2 GROUP_WORLD_SIZE=1 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500")),
            "torchrun rank 1 of 2, node 0 of 1, master 127.0.0.1:29500");
  EXPECT_EQ(text("RANK=1 WORLD_SIZE=2 MASTER_ADDR=fe80::1 MASTER_PORT=7"), "environment rank 1 of 2, node 1 of 2, master [fe80::1]:7");
}

TEST(HostList, Expands) {
  using Hosts = std::vector<std::string>;
  EXPECT_EQ(HostsOf("node[01-03,7]"), (Hosts{"node01", "node02", "node03", "node7"}));
  EXPECT_EQ(HostsOf("login"), Hosts{"login"});
  EXPECT_EQ(HostsOf("a,b[8-10],c-1"), (Hosts{"a", "b8", "b9", "b10", "c-1"}));
  EXPECT_EQ(HostsOf("r[1-2]n[3,4]-ib"), (Hosts{"r1n3-ib", "r1n4-ib", "r2n3-ib", "r2n4-ib"}));
  EXPECT_EQ(HostsOf("n[098-101]"), (Hosts{"n098", "n099", "n100", "n101"}));
  EXPECT_EQ(HostsOf("n[0-65535]").size(), 65536u);
  EXPECT_EQ(HostsOf("n[18446744073709551614-18446744073709551615]").size(), 2u);
  for (const char* bad : {"n[0-65536]", "n[0-999]m[0-999]", "n[1-0]", "n[", "n]1[", "n[a-b]", "n[1-2", "", "a,,b", "n[]", "n[1,]",
                          "n[99999999999999999999]"}) {
    EXPECT_THROW(HostsOf(bad), Error) << bad;
  }
}

}  // namespace
}  // namespace gradloom
