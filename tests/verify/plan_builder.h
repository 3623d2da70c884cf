// Plans written by hand, with kernels made up for them: what the tests of the verifier need to know about
// a kernel is in its row, and nothing is hidden in a compiler.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/plan/plan.h"

namespace gradloom {

// The made-up kernels, all but one of domain "test" and on float32 operands of equal bytes:
//   test.Fill       no input, one output; its attribute "value" must be finite
//   test.Map        one or more inputs, one output, which may lie on the first input
//   test.Mix        two inputs, one output, which may lie on none
//   test.Update     a state and its gradient: the next state, which may lie on the state
//   test.Work       one input, one output, scratch of twice its bytes
//   test.Test       one input, a bool scalar as output
//   test.Gather     ONNX's, of a float32 table and int64 indices
const KernelRow* FindTestKernel(std::string_view name);

class ProgramBuilder {
 public:
  explicit ProgramBuilder(Plan& plan, int streams = 1);

  // A transient float32[elements] at the next free place, or at `offset`. Returns its id, as all of these do.
  int Value(const std::string& name, int64_t elements, int64_t offset = -1, DType dtype = DType::kFloat32);
  int Scratch(int64_t bytes, int64_t offset = -1);
  // A range of `whole`, from its element `start` on.
  int Part(const std::string& name, int whole, int64_t start, int64_t elements);
  // The state tensor as it is before the step, or its next value.
  int State(int state, const std::string& suffix = "");
  int Constant(int constant);
  int Feed(int feed, int64_t elements, DType dtype = DType::kFloat32);
  int StepLr();

  // Instructions; each returns its index.
  int Launch(const std::string& op, std::initializer_list<int> reads, std::initializer_list<int> writes, int stream = 0, int scratch = -1);
  int Gather(int table, int indices, int to, int stream = 0);
  int Copy(int from, int to, int stream = 0);
  // An event recorded on `stream` and waited for on `waiting`, in the next two instructions.
  void Order(int stream, int waiting);
  int Record(int stream, int event = -1);
  int Wait(int stream, int event);
  int Collective(Collective collective, int from, int to, int group = 0, int stream = 0);
  int Send(int buffer, int peer = 0, int stream = 0);
  int Recv(int buffer, int peer = 0, int stream = 0);
  int If(std::initializer_list<int> reads, std::initializer_list<int> writes, Program then_body, Program else_body, int scratch = -1);
  int Loop(std::initializer_list<int> reads, std::initializer_list<int> writes, Program body, int64_t trip_bound, int scratch = -1);

  Program& program() { return program_; }
  // The finished program; a body has no arena of its own.
  Program Take(bool body = false);

 private:
  int Add(Buffer buffer);
  int Add(Instruction instruction, std::initializer_list<int> reads, std::initializer_list<int> writes, int scratch = -1);
  const Plan& plan_;
  Program program_;
};

// A plan with a CPU target and no program yet.
Plan EmptyPlan();
// Adds a float32[elements] at the end of the state or constants arena; returns its index.
int AddState(Plan& plan, const std::string& name, int64_t elements, StateKind kind = StateKind::kParameter, int parameter = -1);
int AddConstant(Plan& plan, const std::string& name, int64_t elements);
// Adds an entry whose ranks run the given programs, each on an equal share of the batch, in one group.
Entry& AddEntry(Plan& plan, EntryKind kind, int64_t batch, std::vector<int> programs);

// Sound plans that between them have every kind of instruction, and their names.
std::vector<std::pair<std::string, Plan>> SamplePlans();

}  // namespace gradloom
