// Sound plans, each for one kind of interaction of memory, streams or ranks.
#include "tests/verify/plan_builder.h"

namespace gradloom {
namespace {

constexpr int64_t kN = 16;  // number of elements of most values: 64 bytes

void AddProgram(Plan& plan, ProgramBuilder& b) { plan.programs.push_back(b.Take()); }

// One stream: forward, backward, and an in-place update of the weight. The memory of a dead value is reused, an output aliases its input,
// and a constant and the learning rate are read.
Plan Training() {
  Plan plan = EmptyPlan();
  const int w = AddState(plan, "w", kN), m = AddState(plan, "w/momentum", kN, StateKind::kOptimizer, 0);
  AddConstant(plan, "half", kN);
  ProgramBuilder b(plan);
  const int x = b.Feed(0, kN), weight = b.State(w), momentum = b.State(m), half = b.Constant(0);
  const int h = b.Value("h", kN), y = b.Value("y", kN), loss = b.Value("loss", kN), dy = b.Value("dy", kN, 64), dh = b.Value("dh", kN, 64);
  const int momentum_next = b.State(m, "'"), weight_next = b.State(w, "'");
  b.Launch("Mix", {x, weight}, {h});
  b.Launch("Map", {h, half}, {y});
  b.Launch("Mix", {y, x}, {loss});
  b.Launch("Map", {y}, {dy});
  b.Launch("Map", {dy, h}, {dh});
  b.Launch("Update", {momentum, dh}, {momentum_next});
  b.Launch("Update", {weight, momentum_next}, {weight_next});
  AddProgram(plan, b);
  Entry& entry = AddEntry(plan, EntryKind::kStep, kN, {0});
  entry.feeds.push_back({"x", DType::kFloat32, {kN}, 0});
  entry.fetches.push_back({"loss", loss, -1});
  return plan;
}

// Three streams: two concurrent branches whose memory is reused after both have been joined.
Plan Branches() {
  Plan plan = EmptyPlan();
  ProgramBuilder b(plan, 3);
  const int x = b.Feed(0, kN);
  const int a = b.Value("a", kN), left = b.Value("left", kN), right = b.Value("right", kN), left2 = b.Value("left2", kN);
  const int both = b.Value("both", kN), late = b.Value("late", kN, 64), end = b.Value("end", kN, 128);
  b.Launch("Map", {x}, {a});
  const int forked = b.program().instructions[static_cast<size_t>(b.Record(0))].event;
  b.Wait(1, forked);
  b.Wait(2, forked);
  b.Launch("Map", {a}, {left}, 1);
  b.Launch("Map", {a}, {right}, 2);
  b.Launch("Map", {left}, {left2}, 1);
  b.Order(1, 0);
  b.Order(2, 0);
  b.Launch("Mix", {left2, right}, {both});
  b.Launch("Map", {both}, {late});
  b.Order(0, 1);
  b.Launch("Mix", {late, both}, {end}, 1);
  AddProgram(plan, b);
  Entry& entry = AddEntry(plan, EntryKind::kPredict, kN, {0});
  entry.feeds.push_back({"x", DType::kFloat32, {kN}, 0});
  entry.fetches.push_back({"end", end, 0});
  return plan;
}

// The gradients of two weights, adjacent in a bucket, are summed over four ranks on a communication stream while the next bucket is
// computed. Two groups of ranks share the program.
Plan Replicas() {
  Plan plan = EmptyPlan();
  const int w0 = AddState(plan, "w0", kN), w1 = AddState(plan, "w1", 2 * kN), w2 = AddState(plan, "w2", kN);
  ProgramBuilder b(plan, 2);
  const int x = b.Feed(0, kN);
  const int s0 = b.State(w0), s1 = b.State(w1), s2 = b.State(w2);
  const int bucket = b.Value("bucket", 3 * kN), g2 = b.Value("g2", kN);
  const int g0 = b.Part("g0", bucket, 0, kN), g1 = b.Part("g1", bucket, kN, 2 * kN);
  const int sum = b.Value("bucket sum", 3 * kN, 0), sum2 = b.Value("g2 sum", kN, 192);
  const int t0 = b.Part("g0 sum", sum, 0, kN), t1 = b.Part("g1 sum", sum, kN, 2 * kN);
  const int n0 = b.State(w0, "'"), n1 = b.State(w1, "'"), n2 = b.State(w2, "'");
  b.Launch("Mix", {x, s0}, {g0});
  b.Launch("Map", {s1}, {g1});
  b.Order(0, 1);
  b.Collective(Collective::kAllReduceSum, bucket, sum, 0, 1);
  b.Launch("Mix", {x, s2}, {g2});
  b.Order(0, 1);
  b.Order(1, 0);
  b.Launch("Update", {s0, t0}, {n0});
  b.Launch("Update", {s1, t1}, {n1});
  b.Collective(Collective::kAllReduceSum, g2, sum2, 1, 1);
  b.Order(1, 0);
  b.Launch("Update", {s2, sum2}, {n2});
  AddProgram(plan, b);
  Entry& entry = AddEntry(plan, EntryKind::kStep, 4 * kN, {0, 0, 0, 0});
  entry.feeds.push_back({"x", DType::kFloat32, {4 * kN}, 0});
  plan.groups.push_back(plan.groups[0]);
  for (RankBinding& rank : entry.ranks) rank.groups = {0, 1};
  return plan;
}

// An uneven batch: three programs share one state, and the rank without samples takes part in the collectives.
Plan UnevenReplicas() {
  Plan plan = EmptyPlan();
  const int w = AddState(plan, "w", kN);
  const int64_t shares[] = {2 * kN, kN, 0};
  for (int64_t share : shares) {
    ProgramBuilder b(plan);
    const int weight = b.State(w), g = b.Value("g", kN), sum = b.Value("sum", kN, 0), next = b.State(w, "'");
    if (share == 0) {
      b.Launch("Fill", {}, {g});
    } else {
      const int x = b.Feed(0, share), y = b.Value("y", share);
      b.Launch("Map", {x}, {y});
      int h = b.Part("first of y", y, 0, kN);
      if (share == 2 * kN) {
        const int rest = b.Part("rest of y", y, kN, kN), both = b.Value("both", kN);
        b.Launch("Mix", {h, rest}, {both});
        h = both;
      }
      b.Launch("Mix", {h, weight}, {g});
    }
    b.Collective(Collective::kAllReduceSum, g, sum);
    b.Launch("Update", {weight, sum}, {next});
    AddProgram(plan, b);
  }
  Entry& entry = AddEntry(plan, EntryKind::kStep, 5 * kN, {0, 0, 1, 2});
  entry.feeds.push_back({"x", DType::kFloat32, {5 * kN}, 0});
  int64_t start = 0;
  for (RankBinding& rank : entry.ranks) {
    rank.shard_start = start;
    rank.shard_length = shares[rank.program];
    start += rank.shard_length;
  }
  return plan;
}

// Two stages on two ranks: activations are sent forward, gradients back. Each rank holds only its own stage's weight, and its peers are
// both ranks.
Plan Stages() {
  Plan plan = EmptyPlan();
  const int w0 = AddState(plan, "w0", kN), w1 = AddState(plan, "w1", kN);
  plan.places = {{kN * 4, 0}, {kN * 4, 0}};
  plan.state[static_cast<size_t>(w0)].places = {0};
  plan.state[static_cast<size_t>(w1)].places = {1};
  plan.state[static_cast<size_t>(w1)].offset = 0;
  {
    ProgramBuilder b(plan);
    const int x = b.Feed(0, kN), s = b.State(w0), h = b.Value("h", kN), dh = b.Value("dh", kN), dw = b.Value("dw", kN),
              next = b.State(w0, "'");
    b.Launch("Mix", {x, s}, {h});
    b.Send(h, 1);
    b.Recv(dh, 1);
    b.Launch("Mix", {dh, x}, {dw});
    b.Launch("Update", {s, dw}, {next});
    AddProgram(plan, b);
  }
  {
    ProgramBuilder b(plan, 2);
    const int s = b.State(w1), h = b.Value("h", kN), y = b.Value("y", kN), dh = b.Value("dh", kN, 64), dw = b.Value("dw", kN),
              next = b.State(w1, "'");
    b.Recv(h, 0, 1);
    b.Order(1, 0);
    b.Launch("Mix", {h, s}, {y});
    b.Launch("Mix", {y, h}, {dw});
    b.Launch("Map", {y}, {dh});
    b.Order(0, 1);
    b.Send(dh, 0, 1);
    b.Launch("Update", {s, dw}, {next});
    AddProgram(plan, b);
    plan.programs.Mutable(plan.programs.size() - 1).place = 1;
  }
  Entry& entry = AddEntry(plan, EntryKind::kStep, kN, {0, 1});
  entry.feeds.push_back({"x", DType::kFloat32, {kN}, 0});
  for (size_t r = 0; r < 2; ++r) {
    entry.ranks[r].peers = {0, 1};
    entry.ranks[r].shard_start = 0;
    entry.ranks[r].shard_length = kN;
  }
  return plan;
}

// Rank 0 gathers the samples of all ranks, computes the rest of the model with a weight that only it has, and returns to each rank its part
// of the gradient, and to all a factor of their update. The gradients of the weight that all have are summed.
Plan Gathered() {
  Plan plan = EmptyPlan();
  const int w = AddState(plan, "w", kN), v = AddState(plan, "v", kN);
  plan.places = {{kN * 4, 0}, {kN * 8, 0}};
  plan.state[static_cast<size_t>(v)].places = {1};
  {
    ProgramBuilder b(plan);
    const int x = b.Feed(0, kN), trunk = b.State(w), tail = b.State(v), h = b.Value("h", kN), h1 = b.Value("h1", kN),
              h2 = b.Value("h2", kN);
    const int h01 = b.Value("h01", kN), all = b.Value("all", kN), y = b.Value("y", kN), d0 = b.Value("d0", kN), d1 = b.Value("d1", kN),
              d2 = b.Value("d2", kN), factor = b.Value("factor", kN);
    const int g = b.Value("g", kN), sum = b.Value("sum", kN), step = b.Value("step", kN), trunk_next = b.State(w, "'"),
              tail_next = b.State(v, "'");
    b.Launch("Mix", {x, trunk}, {h});
    b.Recv(h1, 1);
    b.Recv(h2, 2);
    b.Launch("Mix", {h, h1}, {h01});
    b.Launch("Mix", {h01, h2}, {all});
    b.Launch("Mix", {all, tail}, {y});
    b.Launch("Mix", {y, h}, {d0});
    b.Launch("Mix", {y, h1}, {d1});
    b.Launch("Mix", {y, h2}, {d2});
    b.Launch("Map", {y}, {factor});
    b.Send(d1, 1);
    b.Send(d2, 2);
    b.Send(factor, 1);
    b.Send(factor, 2);
    b.Launch("Mix", {d0, x}, {g});
    b.Collective(Collective::kAllReduceSum, g, sum);
    b.Launch("Mix", {sum, factor}, {step});
    b.Launch("Update", {trunk, step}, {trunk_next});
    b.Launch("Update", {tail, y}, {tail_next});
    AddProgram(plan, b);
    plan.programs.Mutable(0).place = 1;
  }
  ProgramBuilder b(plan);
  const int x = b.Feed(0, kN), trunk = b.State(w), h = b.Value("h", kN), d = b.Value("d", kN), factor = b.Value("factor", kN),
            g = b.Value("g", kN), sum = b.Value("sum", kN), step = b.Value("step", kN), next = b.State(w, "'");
  b.Launch("Mix", {x, trunk}, {h});
  b.Send(h);
  b.Recv(d);
  b.Recv(factor);
  b.Launch("Mix", {d, x}, {g});
  b.Collective(Collective::kAllReduceSum, g, sum);
  b.Launch("Mix", {sum, factor}, {step});
  b.Launch("Update", {trunk, step}, {next});
  AddProgram(plan, b);
  Entry& entry = AddEntry(plan, EntryKind::kStep, 3 * kN, {0, 1, 1});
  entry.feeds.push_back({"x", DType::kFloat32, {3 * kN}, 0});
  for (RankBinding& rank : entry.ranks) rank.peers = {0};
  entry.ranks[0].peers = {0, 1, 2};
  return plan;
}

// The sharded collectives: a reduce-scatter, an update of the rank's shard, an all-gather, a broadcast.
Plan Sharded() {
  Plan plan = EmptyPlan();
  const int w = AddState(plan, "w", kN);
  ProgramBuilder b(plan);
  const int s = b.State(w), next = b.State(w, "'");
  const int g = b.Value("g", 2 * kN), mine = b.Value("mine", kN), scaled = b.Value("scaled", kN), all = b.Value("all", 2 * kN, 0),
            root = b.Value("root", 2 * kN);
  const int first = b.Part("first", root, 0, kN), rest = b.Part("rest", root, kN, kN), both = b.Value("both", kN);
  b.Launch("Fill", {}, {g});
  b.Collective(Collective::kReduceScatterSum, g, mine);
  b.Launch("Map", {mine, s}, {scaled});
  b.Collective(Collective::kAllGather, scaled, all);
  b.Collective(Collective::kBroadcast, all, root);
  b.Launch("Mix", {first, rest}, {both});
  b.Launch("Update", {s, both}, {next});
  AddProgram(plan, b);
  AddEntry(plan, EntryKind::kStep, 2, {0, 0});
  return plan;
}

// Two ranks update a weight each, with a state that only they have and a gradient that is summed for them alone, and broadcast it.
Plan Owners() {
  Plan plan = EmptyPlan();
  const int weights[] = {AddState(plan, "v", kN), AddState(plan, "w", kN)};
  const int states[] = {AddState(plan, "v/m", kN, StateKind::kOptimizer, weights[0]),
                        AddState(plan, "w/m", kN, StateKind::kOptimizer, weights[1])};
  plan.places.push_back(plan.places[0]);
  for (int place : {0, 1}) plan.state[static_cast<size_t>(states[place])].places = {place};
  for (int place : {0, 1}) {
    ProgramBuilder b(plan);
    const int x = b.Feed(0, kN), before[] = {b.State(weights[0]), b.State(weights[1])};
    const int gradients[] = {b.Value("dv", kN), b.Value("dw", kN)}, sum = b.Value("sum", kN), step = b.Value("step", kN);
    for (int k : {0, 1}) b.Launch("Mix", {x, before[k]}, {gradients[k]});
    b.Reduce({gradients[0], gradients[1]}, {place == 0 ? sum : -1, place == 1 ? sum : -1}, {0, 1});
    const int state = b.State(states[place]), next_state = b.State(states[place], "'");
    b.Launch("Mix", {state, sum}, {step});
    const int next = b.State(weights[place], "'");
    b.Launch("Update", {before[place], step}, {next});
    b.Launch("Update", {state, sum}, {next_state});
    for (int k : {0, 1}) {
      b.Collective(Collective::kBroadcast, k == place ? next : before[k], b.State(weights[k], "''"));
      b.program().instructions.back().root = k;
    }
    AddProgram(plan, b);
    plan.programs.Mutable(plan.programs.size() - 1).place = place;
  }
  Entry& entry = AddEntry(plan, EntryKind::kStep, 2 * kN, {0, 1});
  entry.feeds.push_back({"x", DType::kFloat32, {2 * kN}, 0});
  return plan;
}

// Gradient accumulation: one entry adds to the sum of gradients, another applies and clears it, and an evaluation reads the same state. The
// input is copied ahead on its own stream, and a kernel has scratch memory.
Plan Accumulation() {
  Plan plan = EmptyPlan();
  const int w = AddState(plan, "w", kN), sum = AddState(plan, "w/grad_sum", kN, StateKind::kAccumulator, 0);
  {
    ProgramBuilder b(plan, 2);
    const int x = b.Feed(0, kN), in = b.Value("in", kN), s = b.State(w), old = b.State(sum), g = b.Value("g", kN), next = b.State(sum, "'");
    b.Copy(x, in, 1);
    b.Order(1, 0);
    b.Launch("Mix", {in, s}, {g});
    b.Launch("Map", {old, g}, {next});
    AddProgram(plan, b);
    AddEntry(plan, EntryKind::kAccumulate, kN, {0}).feeds.push_back({"x", DType::kFloat32, {kN}, 0});
  }
  {
    ProgramBuilder b(plan);
    const int s = b.State(w), old = b.State(sum), zeros = b.Value("zeros", kN), step = b.Value("step", kN), scratch = b.Scratch(2 * kN * 4),
              next = b.State(w, "'"), clear = b.State(sum, "'");
    b.Launch("Work", {old}, {step}, 0, scratch);
    b.Launch("Fill", {}, {zeros});
    b.Launch("Update", {s, step}, {next});
    b.Copy(zeros, clear);
    AddProgram(plan, b);
    AddEntry(plan, EntryKind::kUpdate, kN, {1});
  }
  {
    ProgramBuilder b(plan);
    const int x = b.Feed(0, kN), s = b.State(w), y = b.Value("y", kN);
    b.Launch("Mix", {x, s}, {y});
    AddProgram(plan, b);
    Entry& eval = AddEntry(plan, EntryKind::kEval, kN, {2});
    eval.feeds.push_back({"x", DType::kFloat32, {kN}, 0});
    eval.fetches.push_back({"y", y, 0});
  }
  return plan;
}

// Two ranks each add to their own partial sum. The update all-reduces them; the last-batch entry does so with its gradients added.
Plan Parts() {
  Plan plan = EmptyPlan();
  plan.accumulate = 2;
  const int w = AddState(plan, "w", kN), sum = AddState(plan, "w/grad_sum", kN, StateKind::kAccumulator, 0);
  plan.state[static_cast<size_t>(sum)].partial = true;
  {
    ProgramBuilder b(plan);
    const int x = b.Feed(0, kN), s = b.State(w), old = b.State(sum), g = b.Value("g", kN), next = b.State(sum, "'");
    b.Launch("Mix", {x, s}, {g});
    b.Launch("Map", {old, g}, {next});
    AddProgram(plan, b);
    AddEntry(plan, EntryKind::kAccumulate, 2 * kN, {0, 0}).feeds.push_back({"x", DType::kFloat32, {2 * kN}, 0});
  }
  ProgramBuilder b(plan);
  const int s = b.State(w), part = b.State(sum), whole = b.Value("whole", kN), zeros = b.Value("zeros", kN), next = b.State(w, "'"),
            clear = b.State(sum, "'");
  b.Collective(Collective::kAllReduceSum, part, whole);
  b.Launch("Fill", {}, {zeros});
  b.Launch("Update", {s, whole}, {next});
  b.Copy(zeros, clear);
  AddProgram(plan, b);
  AddEntry(plan, EntryKind::kUpdate, 2 * kN, {1, 1});
  {
    ProgramBuilder last(plan);
    const int x = last.Feed(0, kN), w0 = last.State(w), old = last.State(sum), g = last.Value("g", kN), total = last.Value("total", kN),
              all = last.Value("all", kN), zero = last.Value("zeros", kN), w1 = last.State(w, "'"), none = last.State(sum, "'");
    last.Launch("Mix", {x, w0}, {g});
    last.Launch("Map", {old, g}, {total});
    last.Collective(Collective::kAllReduceSum, total, all);
    last.Launch("Fill", {}, {zero});
    last.Launch("Update", {w0, all}, {w1});
    last.Copy(zero, none);
    AddProgram(plan, last);
    AddEntry(plan, EntryKind::kLastBatch, 2 * kN, {2, 2}).feeds.push_back({"x", DType::kFloat32, {2 * kN}, 0});
  }
  return plan;
}

// An If whose branches use memory of their own, and a Loop that carries a value and its condition.
Plan Control() {
  Plan plan = EmptyPlan();
  AddConstant(plan, "c", kN);
  ProgramBuilder b(plan);
  const int x = b.Feed(0, kN), a = b.Value("a", kN), condition = b.Value("condition", 1, -1, DType::kBool), y = b.Value("y", kN);
  const int inner = b.Scratch(2 * kN * 4), carried = b.Value("carried", kN), going = b.Value("going", 1, -1, DType::kBool);
  const int64_t inner_at = b.program().buffers[static_cast<size_t>(inner)].offset;
  const auto at = [&](int buffer) { return b.program().buffers[static_cast<size_t>(buffer)].offset; };
  const int carried_end = b.Value("carried'", kN, at(carried)), going_end = b.Value("going'", 1, at(going), DType::kBool),
            end = b.Value("end", kN);

  ProgramBuilder then_body(plan, 2);
  {
    const int in = then_body.Value("a", kN, at(a)), c = then_body.Constant(0), out = then_body.Value("y", kN, at(y));
    const int t = then_body.Value("t", kN, inner_at), u = then_body.Value("u", kN, inner_at + 64);
    then_body.Launch("Map", {in, c}, {t});
    then_body.Launch("Map", {in}, {u}, 1);
    then_body.Order(1, 0);
    then_body.Launch("Mix", {t, u}, {out});
  }
  ProgramBuilder else_body(plan);
  {
    const int in = else_body.Value("a", kN, at(a)), out = else_body.Value("y", kN, at(y));
    else_body.Copy(in, out);
  }
  ProgramBuilder loop_body(plan);
  {
    const int in = loop_body.Value("carried", kN, at(carried)), a_in = loop_body.Value("a", kN, at(a)),
              t = loop_body.Value("t", kN, inner_at);
    const int out = loop_body.Value("carried'", kN, at(carried)), go = loop_body.Value("going'", 1, at(going), DType::kBool);
    loop_body.Launch("Mix", {in, a_in}, {t});
    loop_body.Launch("Map", {t}, {out});
    loop_body.Launch("Test", {out}, {go});
  }
  b.Launch("Map", {x}, {a});
  b.Launch("Test", {a}, {condition});
  b.If({condition, a}, {y}, then_body.Take(true), else_body.Take(true), inner);
  b.Launch("Map", {y}, {carried});
  b.Launch("Test", {carried}, {going});
  b.Loop({-1, going, a, carried}, {going_end, carried_end}, loop_body.Take(true), 7, inner);
  b.Launch("Map", {carried_end, a}, {end});
  const int seen = b.Value("seen", kN);
  b.Launch("Map", {end, y}, {seen});
  AddProgram(plan, b);
  Entry& entry = AddEntry(plan, EntryKind::kPredict, kN, {0});
  entry.feeds.push_back({"x", DType::kFloat32, {kN}, 0});
  entry.fetches.push_back({"end", end, 0});
  entry.fetches.push_back({"seen", seen, 0});
  return plan;
}

// On two streams, values that depend only on a constant and a weight: two that are kept, one whose memory is reused after the last of them
// has read it, a copy, and one whose memory is reused later.
Plan Weights() {
  Plan plan = EmptyPlan();
  const int w = AddState(plan, "w", kN), c = AddConstant(plan, "c", kN);
  ProgramBuilder b(plan, 2);
  const int x = b.Feed(0, kN), weight = b.State(w), constant = b.Constant(c);
  const int a = b.Value("a", kN), k = b.Value("k", kN), t = b.Value("t", kN), h = b.Value("h", kN, 128), y = b.Value("y", kN);
  const int d = b.Value("d", kN), z = b.Value("z", kN), e = b.Value("e", kN), f = b.Value("f", kN), end = b.Value("end", kN, 384);
  b.Launch("Map", {constant}, {t});
  b.Launch("Mix", {t, weight}, {a});
  b.Launch("Work", {weight}, {k}, 1, b.Scratch(2 * kN * 4));
  b.Launch("Mix", {x, a}, {h});
  b.Order(1, 0);
  b.Launch("Mix", {h, k}, {y});
  b.Copy(constant, d);
  b.Launch("Mix", {y, d}, {z});
  b.Launch("Map", {constant}, {e});
  b.Launch("Mix", {z, e}, {f});
  b.Launch("Map", {f}, {end});
  AddProgram(plan, b);
  Entry& entry = AddEntry(plan, EntryKind::kPredict, kN, {0});
  entry.feeds.push_back({"x", DType::kFloat32, {kN}, 0});
  entry.fetches.push_back({"end", end, 0});
  return plan;
}

// A long chain that alternates between three streams, in as little memory as possible.
Plan Ring() {
  Plan plan = EmptyPlan();
  ProgramBuilder b(plan, 3);
  int last = b.Feed(0, kN), stream = 0;
  for (int i = 0; i < 24; ++i) {
    const int next = b.Value("v" + std::to_string(i), kN, i % 2 * 64);
    b.Launch("Work", {last}, {next}, stream, b.Scratch(2 * kN * 4, 128 + i % 2 * 128));
    if (i % 3 == 2) {
      b.Order(stream, (stream + 1) % 3);
      stream = (stream + 1) % 3;
    }
    last = next;
  }
  AddProgram(plan, b);
  Entry& entry = AddEntry(plan, EntryKind::kPredict, kN, {0});
  entry.feeds.push_back({"x", DType::kFloat32, {kN}, 0});
  entry.fetches.push_back({"last", last, 0});
  return plan;
}

}  // namespace

std::vector<std::pair<std::string, Plan>> SamplePlans() {
  return {{"training", Training()}, {"branches", Branches()}, {"replicas", Replicas()},         {"uneven replicas", UnevenReplicas()},
          {"stages", Stages()},     {"sharded", Sharded()},   {"accumulation", Accumulation()}, {"control", Control()},
          {"ring", Ring()},         {"parts", Parts()},       {"gathered", Gathered()},         {"weights", Weights()},
          {"owners", Owners()}};
}

}  // namespace gradloom
