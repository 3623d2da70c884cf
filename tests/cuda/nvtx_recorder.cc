// Records what a profiler would see of NVTX. The program loads this library from NVTX_INJECTION64_PATH. It writes ranges, indented by their
// depth, with their payloads, and names of streams to the file GRADLOOM_TEST_RANGES.
#include <nvtx3/nvToolsExt.h>
#include <nvtx3/nvToolsExtCudaRt.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

FILE* record = nullptr;
int depth = 0;
char domain_name[64];

nvtxDomainHandle_t Create(const char* name) {
  std::snprintf(domain_name, sizeof domain_name, "%s", name);
  return reinterpret_cast<nvtxDomainHandle_t>(domain_name);
}

int Push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* range) {
  std::fprintf(record, "%*s%s: %s", 2 * depth, "", reinterpret_cast<const char*>(domain), range->message.ascii);
  if (range->payloadType == NVTX_PAYLOAD_TYPE_INT64) std::fprintf(record, " = %lld", static_cast<long long>(range->payload.llValue));
  std::fprintf(record, "\n");
  return depth++;
}

int Pop(nvtxDomainHandle_t) { return --depth; }

void NameStream(cudaStream_t, const char* name) { std::fprintf(record, "stream %s\n", name); }

template <typename F>
void Set(const NvtxExportTableCallbacks& callbacks, NvtxCallbackModule module, unsigned int id, F* function) {
  NvtxFunctionTable table = nullptr;
  unsigned int size = 0;
  if (callbacks.GetModuleFunctionTable(module, &table, &size) == 1 && id < size)
    *table[id] = reinterpret_cast<NvtxFunctionPointer>(function);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table) {
  record = std::fopen(std::getenv("GRADLOOM_TEST_RANGES"), "w");
  const auto* const callbacks = static_cast<const NvtxExportTableCallbacks*>(get_table(NVTX_ETID_CALLBACKS));
  if (record == nullptr || callbacks == nullptr) return 0;
  Set(*callbacks, NVTX_CB_MODULE_CORE2, NVTX_CBID_CORE2_DomainCreateA, Create);
  Set(*callbacks, NVTX_CB_MODULE_CORE2, NVTX_CBID_CORE2_DomainRangePushEx, Push);
  Set(*callbacks, NVTX_CB_MODULE_CORE2, NVTX_CBID_CORE2_DomainRangePop, Pop);
  Set(*callbacks, NVTX_CB_MODULE_CUDART, NVTX_CBID_CUDART_NameCudaStreamA, NameStream);
  return 1;
}
