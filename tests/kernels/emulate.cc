// Runs src/score/kernel/window.cu on a CPU: every thread of a block is a fiber, and fibers change at barriers
// and shuffles, as warps do. The kernel's own source is included, so its indexing and reductions are what runs.
//
// Reads from stdin, little endian: ints, slices, jobs, candidates (u32 each); for each job rows (u32), width
// (u32) and the rows; then the candidates. Writes best and sum (u64 each) of every candidate.
#include <ucontext.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

struct Index {
  unsigned x, y;
};
static Index threadIdx, blockIdx, gridDim;

namespace emulator {
const int THREADS = 256, WARP = 32;
struct Barrier {
  int arrived = 0;
  unsigned round = 0;
};
ucontext_t scheduler, fibers[THREADS];
bool ended[THREADS];
int current;
Barrier block, warps[THREADS / WARP];
int exchanged[THREADS];
std::vector<int> shared;

void pause() { swapcontext(&fibers[current], &scheduler); }

// Waits until `all` threads have come.
void meet(Barrier &barrier, int all) {
  const unsigned round = barrier.round;
  if (++barrier.arrived == all) {
    barrier.arrived = 0;
    barrier.round++;
    return;
  }
  while (barrier.round == round) pause();
}

int exchange(int value, int with) {
  Barrier &warp = warps[current / WARP];
  exchanged[current] = value;
  meet(warp, WARP);
  const int got = exchanged[current ^ with];
  meet(warp, WARP);
  return got;
}
}  // namespace emulator

#define EMULATED
#define __global__
#define __device__
#define __shared__ static
#define SHARED(type, name) type *name = emulator::shared.data()
#define __syncthreads() emulator::meet(emulator::block, emulator::THREADS)
#define __shfl_xor_sync(mask, value, with) emulator::exchange(value, with)

static unsigned long long atomicMax(unsigned long long *at, unsigned long long value) {
  const unsigned long long old = *at;
  if (value > old) *at = value;
  return old;
}
static unsigned long long atomicAdd(unsigned long long *at, unsigned long long value) {
  const unsigned long long old = *at;
  *at += value;
  return old;
}

#include "../../src/score/kernel/window.cu"

static const Job *jobs;
static const int *candidates;
static int ints;
static u64 *best, *sums;

static void fiber() {
  window(jobs, candidates, ints, best, sums);
  emulator::ended[emulator::current] = true;
  emulator::pause();
}

// One block: its fibers in turn until all have ended.
static void run_block() {
  using namespace emulator;
  static std::vector<char> stacks(THREADS * 16384);
  for (int t = 0; t < THREADS; t++) {
    getcontext(&fibers[t]);
    fibers[t].uc_stack.ss_sp = &stacks[t * 16384];
    fibers[t].uc_stack.ss_size = 16384;
    ended[t] = false;
    makecontext(&fibers[t], fiber, 0);
  }
  for (bool alive = true; alive;) {
    alive = false;
    for (current = 0; current < THREADS; current++) {
      if (ended[current]) continue;
      alive = true;
      threadIdx = {(unsigned)current, 0};
      swapcontext(&scheduler, &fibers[current]);
    }
  }
}

template <typename T>
static void take(T *into, size_t count) {
  if (fread(into, sizeof(T), count, stdin) != count) {
    fprintf(stderr, "the input ends too early\n");
    exit(2);
  }
}

int main() {
  uint32_t head[4];
  take(head, 4);
  ints = (int)head[0];
  std::vector<Job> list(head[2]);
  std::vector<std::vector<int>> windows(head[2]);
  u64 first = 0;
  for (size_t j = 0; j < list.size(); j++) {
    uint32_t size[2];
    take(size, 2);
    windows[j].resize((size_t)size[0] * ints);
    take(windows[j].data(), windows[j].size());
    list[j] = {windows[j].data(), size[0], first, size[1]};
    first += size[1];
  }
  std::vector<int> vectors((size_t)head[3] * ints);
  take(vectors.data(), vectors.size());
  std::vector<u64> top(head[3], 0), total(head[3], 0);
  emulator::shared.resize((size_t)TILE * ints);
  jobs = list.data();
  candidates = vectors.data();
  best = top.data();
  sums = total.data();
  gridDim = {head[1], head[2]};
  for (unsigned y = 0; y < gridDim.y; y++)
    for (unsigned x = 0; x < gridDim.x; x++) {
      blockIdx = {x, y};
      run_block();
    }
  fwrite(top.data(), sizeof(u64), top.size(), stdout);
  fwrite(total.data(), sizeof(u64), total.size(), stdout);
}
