// Every kernel as data: what it computes, on which device, what it may alias, what scratch it needs. The
// compiler reads these rows on machines that have neither the device nor its libraries.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/attributes.h"
#include "runtime/base/dtype.h"
#include "runtime/base/layout.h"
#include "runtime/base/shape.h"
#include "runtime/base/tensor.h"

namespace gradloom {

enum class DeviceKind : uint8_t { kCpu, kCuda };

// "cpu", "cuda".
std::string_view DeviceKindName(DeviceKind kind);

// One operand of a kernel as the plan states it. An absent optional operand has dtype kUndefined.
struct OperandType {
  DType dtype = DType::kUndefined;
  Shape shape;
  Layout layout;

  bool present() const { return dtype != DType::kUndefined; }
  // Bytes in memory, padding of the layout included; 0 where absent.
  int64_t bytes() const { return present() ? layout.elements(shape) * DTypeBytes(dtype) : 0; }
  bool operator==(const OperandType&) const = default;
};

// One application of an operator: all that a kernel's choice, scratch and preparation depend on.
struct KernelCall {
  std::string op;
  std::string domain;  // "" or "gradloom"
  Attributes attributes;
  std::vector<OperandType> inputs;
  std::vector<OperandType> outputs;
  int threads = 1;  // of the stream that runs it
  // Of integer inputs that are constants of the plan, by input: their values, borrowed; undefined for all others, and past the end.
  // Filled for devices alone whose memory the host cannot read at a step (CUDA).
  std::vector<TensorView> values;

  // The integers of constant input i, or `absent` where the operand is. Throws Error(kUnsupported) for one that is data.
  std::vector<int64_t> ConstantInts(size_t i, std::vector<int64_t> absent = {}) const;
  // Whether input i is absent or its values are known.
  bool IsKnown(size_t i) const;
};

// Whether a constant of this type is given to a call: few integers, which are shapes, axes and pads.
bool IsKnownConstant(DType dtype, int64_t elements);

// Output `output` may be given the same address as input `input` (equal bytes): the kernel reads each
// element before it writes the one in its place.
struct Aliasing {
  int output = 0;
  int input = 0;
};

struct KernelRow {
  std::string_view name;  // unique: "reference.Conv", "onednn.conv"; this is what a plan names
  std::string_view op;
  std::string_view domain;
  DeviceKind device = DeviceKind::kCpu;

  // Why this kernel cannot serve the call ("rank 5 filters", "float64"), or "" where it can. Null: it
  // serves every call of its operator in plain layouts.
  std::string (*rejects)(const KernelCall& call) = nullptr;

  // Gives the operands of a plain call that the row serves the layouts in which it is fastest on this machine; false:
  // plain ones. Null: the row has no wish. It must serve the call with these layouts.
  bool (*prefers)(KernelCall& call) = nullptr;

  // Permitted aliasing. Every listed pair may be used at once.
  std::span<const Aliasing> may_alias = {};

  // Bytes of scratch memory, aligned to kAlignmentBytes; null: none.
  int64_t (*scratch_bytes)(const KernelCall& call) = nullptr;

  // On a device where a step goes on behind a kernel that has refused its data: whether outputs that are the next values of what lives
  // between steps, each in its place, stay as they are then. Other rows' are copied there by what does.
  bool keeps_state = false;
};

// Why `row` cannot serve the call, or "" where it can. The operator is the caller's to compare.
std::string Rejection(const KernelRow& row, const KernelCall& call);

// All rows of a device in the order in which they are tried: the reference kernels come last.
std::span<const KernelRow* const> KernelRows(DeviceKind device);

// The row of this name, or null.
const KernelRow* FindKernel(std::string_view name);

// The first row that serves the call, or null; then `why`, if given, gets every rejection.
const KernelRow* ChooseKernel(DeviceKind device, const KernelCall& call, std::string* why = nullptr);

// A prepared kernel: made once at load, run at each step. Not shared between threads.
class Kernel {
 public:
  virtual ~Kernel() = default;

  // Addresses in the order of the call's operands, null for absent ones; `scratch` has scratch_bytes
  // bytes, or is null. `stream` is the device's native stream (null on the CPU). Throws Error(kData)
  // for an index operand that is out of range; then the outputs are undefined.
  virtual void Run(const void* const* inputs, void* const* outputs, void* scratch, void* stream) = 0;
};

}  // namespace gradloom
