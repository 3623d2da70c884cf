// Lets the processes of an MPI job learn the address of rank 0 if none is given.
#include <ifaddrs.h>
#include <net/if.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "runtime/base/error.h"
#include "runtime/comm/mpi_transport.h"
#include "runtime/comm/socket.h"

namespace gradloom {
namespace {

constexpr size_t kAddressBytes = 1024;

// Whether the process was started by an MPI launcher. Without one, MPI would start a singleton job and helper processes for it.
bool HasLauncher() {
  for (const char* name : {"PMIX_RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK"}) {
    if (std::getenv(name) != nullptr) return true;
  }
  return false;
}

// The numeric addresses at which other hosts may reach this one, separated by spaces; without a network, the loopback address.
std::string OwnAddresses() {
  std::string all;
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) return "127.0.0.1";
  for (const ifaddrs* i = first; i != nullptr; i = i->ifa_next) {
    if (i->ifa_addr == nullptr || (i->ifa_flags & IFF_UP) == 0 || (i->ifa_flags & IFF_LOOPBACK) != 0) continue;
    SocketAddress address;
    if (i->ifa_addr->sa_family == AF_INET) {
      address.bytes = sizeof(sockaddr_in);
    } else if (i->ifa_addr->sa_family == AF_INET6 && !IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<sockaddr_in6*>(i->ifa_addr)->sin6_addr)) {
      address.bytes = sizeof(sockaddr_in6);
    } else {
      continue;
    }
    std::memcpy(&address.storage, i->ifa_addr, address.bytes);
    const std::string host = address.host();
    if (all.size() + host.size() + 1 < kAddressBytes) all += (all.empty() ? "" : " ") + host;
  }
  freeifaddrs(first);
  return all.empty() ? "127.0.0.1" : all;
}

}  // namespace

MpiBootstrap BootstrapMpi(const JobTopology& topology, bool demanded) {
  std::string why;
  MpiLibrary* const mpi = HasLauncher() ? OpenMpiLibrary(why) : nullptr;
  const std::string job = "the job of " + std::to_string(topology.world) + " processes of " + topology.launcher;
  if (mpi == nullptr) {
    if (why.empty()) why = "no MPI launcher started this process";
    throw Error(
        ErrorCode::kUnsupported,
        demanded ? "MPI is not available: " + why : "the address of rank 0 is unknown, and MPI is not available: " + why, job,
        demanded ? "use --transport auto, or start the job with mpirun" : "set MASTER_ADDR, or --master-addr, to the host of rank 0");
  }
  mpi->Start();
  if (mpi->rank() != topology.rank || mpi->size() != topology.world) {
    throw Error(ErrorCode::kConfig,
                "MPI reports that this is rank " + std::to_string(mpi->rank()) + " of " + std::to_string(mpi->size()) +
                    ", but the environment (" + topology.launcher + ") reports rank " + std::to_string(topology.rank) + " of " +
                    std::to_string(topology.world),
                Escaped(mpi->version(), 200), "start the job with the mpirun of this MPI, or use --transport auto");
  }
  MpiBootstrap bootstrap{mpi, topology};
  struct {
    std::array<char, kAddressBytes> address{};
    int32_t port = 0;
  } said;
  if (topology.rank == 0) {
    const bool told = !topology.master_address.empty() && topology.master_port != kDefaultMasterPort;
    const std::string address = topology.master_address.empty() ? OwnAddresses() : topology.master_address;
    std::strncpy(said.address.data(), address.c_str(), kAddressBytes - 1);
    std::optional<int> port = topology.master_port;
    if (!told) port = FreePort("0.0.0.0");
    if (!port) port = FreePort("::");
    said.port = port.value_or(kDefaultMasterPort);
  }
  mpi->Broadcast(&said, sizeof said);
  bootstrap.topology.master_address.assign(said.address.data(), strnlen(said.address.data(), kAddressBytes));
  bootstrap.topology.master_port = said.port;
  return bootstrap;
}

}  // namespace gradloom
