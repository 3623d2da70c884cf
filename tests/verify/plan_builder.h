// Plans written by hand with made-up kernels. All that the tests of the verifier need to know about a kernel is in its row, and no compiler
// is involved.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/plan/plan.h"

namespace gradloom {

// The made-up kernels. All but two have the domain "test" and work on float32 operands of equal size:
//   test.Fill       no input, one output; its attribute "value" must be finite
//   test.Map        one or more inputs, one output, which may alias the first input
//   test.Mix        two inputs, one output, which may alias neither
//   test.Update     a state and its gradient -> the next state, which may alias the state
//   test.Work       one input, one output, scratch memory of twice its size
//   test.Test       one input, a bool scalar as output
//   test.Gather     ONNX's Gather on a float32 table and int64 indices
//   test.Fused      a pointwise program, gradloom.Fused
const KernelRow* FindTestKernel(std::string_view name);

class ProgramBuilder {
 public:
  explicit ProgramBuilder(Plan& plan, int streams = 1);

  // A transient float32[elements] at the next free offset, or at `offset`. Returns its id, like all of these functions.
  int Value(const std::string& name, int64_t elements, int64_t offset = -1, DType dtype = DType::kFloat32);
  int Scratch(int64_t bytes, int64_t offset = -1);
  // A range of the buffer `whole`, starting at its element `start`.
  int Part(const std::string& name, int whole, int64_t start, int64_t elements);
  // The state tensor before the step, or, with a suffix, its next value.
  int State(int state, const std::string& suffix = "");
  int Constant(int constant);
  int Feed(int feed, int64_t elements, DType dtype = DType::kFloat32);
  int StepLr();

  // Append instructions; each returns its index.
  int Launch(const std::string& op, std::initializer_list<int> reads, std::initializer_list<int> writes, int stream = 0, int scratch = -1);
  int Gather(int table, int indices, int to, int stream = 0);
  int Copy(int from, int to, int stream = 0);
  // Records an event on `stream` and waits for it on `waiting`, with the next two instructions.
  void Order(int stream, int waiting);
  int Record(int stream, int event = -1);
  int Wait(int stream, int event);
  int Collective(Collective collective, int from, int to, int group = 0, int stream = 0);
  // `roots`: by operand of `from`; `to` has the results, -1 where another rank has it.
  int Reduce(std::initializer_list<int> from, std::initializer_list<int> to, std::vector<int> roots);
  int Send(int buffer, int peer = 0, int stream = 0);
  int Recv(int buffer, int peer = 0, int stream = 0);
  int If(std::initializer_list<int> reads, std::initializer_list<int> writes, Program then_body, Program else_body, int scratch = -1);
  int Loop(std::initializer_list<int> reads, std::initializer_list<int> writes, Program body, int64_t trip_bound, int scratch = -1);

  Program& program() { return program_; }
  // Returns the finished program. A body has no arena of its own.
  Program Take(bool body = false);

 private:
  int Add(Buffer buffer);
  int Add(Instruction instruction, std::initializer_list<int> reads, std::initializer_list<int> writes, int scratch = -1);
  const Plan& plan_;
  Program program_;
};

// A plan with a CPU target and no programs.
Plan EmptyPlan();
// Adds a float32[elements] at the end of the state or constants arena and returns its index.
int AddState(Plan& plan, const std::string& name, int64_t elements, StateKind kind = StateKind::kParameter, int parameter = -1);
int AddConstant(Plan& plan, const std::string& name, int64_t elements);
// Adds an entry whose ranks run these programs, each on an equal share of the batch, in one group.
Entry& AddEntry(Plan& plan, EntryKind kind, int64_t batch, std::vector<int> programs);

// Sound plans that together use every kind of instruction, with their names.
std::vector<std::pair<std::string, Plan>> SamplePlans();

}  // namespace gradloom
