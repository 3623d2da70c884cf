// Every kernel as data: what it computes, on which device, what it may alias, and how much scratch memory it needs. The compiler reads
// these rows on machines that have neither the device nor its libraries.
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

// One operand of a kernel, as in the plan. An absent optional operand has dtype kUndefined.
struct OperandType {
  DType dtype = DType::kUndefined;
  Shape shape;
  Layout layout;

  bool present() const { return dtype != DType::kUndefined; }
  // Bytes in memory, including padding of the layout; 0 if absent.
  int64_t bytes() const { return present() ? layout.elements(shape) * DTypeBytes(dtype) : 0; }
  bool operator==(const OperandType&) const = default;
};

// One call of an operator: everything on which the choice, scratch memory and preparation of a kernel depend.
struct KernelCall {
  std::string op;
  std::string domain;  // "" or "gradloom"
  Attributes attributes;
  std::vector<OperandType> inputs;
  std::vector<OperandType> outputs;
  int threads = 1;  // threads of the stream that runs the call
  // The values of integer inputs that are constants of the plan, by input; not owned; undefined for all other inputs, and possibly shorter
  // than `inputs`. Only set for devices whose memory the host cannot read during a step (CUDA).
  std::vector<TensorView> values;

  // The integers of constant input i, or `absent` if the operand is absent. Throws Error(kUnsupported) if it is not a constant.
  std::vector<int64_t> ConstantInts(size_t i, std::vector<int64_t> absent = {}) const;
  // Whether input i is absent or its values are known.
  bool IsKnown(size_t i) const;
};

// Whether a constant of this type is passed to calls: few integers, such as shapes, axes and pads.
bool IsKnownConstant(DType dtype, int64_t elements);

// Output `output` may have the same address as input `input`, which has the same size: the kernel reads each element before it writes the
// corresponding one.
struct Aliasing {
  int output = 0;
  int input = 0;
};

struct KernelRow {
  std::string_view name;  // unique: "reference.Conv", "onednn.conv"; plans refer to it
  std::string_view op;
  std::string_view domain;
  DeviceKind device = DeviceKind::kCpu;

  // Returns why this kernel cannot serve the call ("rank 5 filters", "float64"), or "" if it can. Null: it serves every call of its
  // operator in plain layouts.
  std::string (*rejects)(const KernelCall& call) = nullptr;

  // Changes the layouts of a plain call that the row serves to those in which the kernel is fastest on this machine, and returns true;
  // returns false if the plain layouts are. Null: no preference. The row must serve the call with the changed layouts.
  bool (*prefers)(KernelCall& call) = nullptr;

  // Permitted aliasing. All listed pairs may be used at once.
  std::span<const Aliasing> may_alias = {};

  // Bytes of scratch memory, aligned to kAlignmentBytes; null: none.
  int64_t (*scratch_bytes)(const KernelCall& call) = nullptr;

  // For devices on which a step continues after a kernel has refused its data: whether outputs that are next values of state, written in
  // place, then stay unchanged. The outputs of other rows are copied to the state by an operation that checks for refusal.
  bool preserves_state_on_refusal = false;
};

// Returns why `row` cannot serve the call, or "". The caller must compare the operators.
std::string Rejection(const KernelRow& row, const KernelCall& call);

// All rows of a device in the order in which they are tried: the reference kernels come last.
std::span<const KernelRow* const> KernelRows(DeviceKind device);

// The row of this name, or null.
const KernelRow* FindKernel(std::string_view name);

// The first row that serves the call, or null; sets `why`, if given, to all rejections.
const KernelRow* ChooseKernel(DeviceKind device, const KernelCall& call, std::string* why = nullptr);

// A prepared kernel: made once at load, run at each step. Not thread-safe.
class Kernel {
 public:
  virtual ~Kernel() = default;

  // Addresses are in the order of the call's operands, null for absent ones. `scratch` has scratch_bytes bytes, or is null. `stream` is the
  // device's native stream, null on the CPU. Throws Error(kData) if an index operand is out of range; the outputs are then undefined.
  virtual void Run(const void* const* inputs, void* const* outputs, void* scratch, void* stream) = 0;
};

}  // namespace gradloom
