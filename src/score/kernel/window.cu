// Dot products of candidates with the vectors of their windows: largest, its row, and sum, in one pass and
// without a score matrix. Exact: products of 16-bit integers are added in 32 bits, which vectors of norm 32767
// never leave, and the reductions are integer maxima and sums, whose order does not matter.
//
// One block takes a slice of one job's rows; a warp takes a row. Compiled by NVRTC at start, and as C++ by
// tests/kernels.rs with EMULATED defined.

#ifndef EMULATED
#define SHARED(type, name) extern __shared__ type name[]
#endif

typedef unsigned long long u64;

// Lanes of a warp, warps of a block, candidates of a job at most.
#define LANES 32
#define WARPS 8
#define TILE 8

// One window and some of its candidates. Laid out as `Job` in cuda.rs.
struct Job {
  const int *rows;  // pairs of 16-bit components, `ints` a row
  u64 count;        // rows
  u64 first;        // first candidate, and first result
  u64 width;        // candidates, 1 to TILE
};

// A dot product and its row as one number: the larger dot product is larger, of equal ones the first row.
__device__ static u64 key(int dot, u64 row) {
  return ((u64)((unsigned)dot ^ 0x80000000u) << 32) | (0xffffffffu - (unsigned)row);
}

// Sum of a pair of products of 16-bit halves.
__device__ static int pair(int a, int b) {
  return (int)(short)a * (int)(short)b + (a >> 16) * (b >> 16);
}

extern "C" __global__ void window(const Job *jobs, const int *candidates, int ints, u64 *best, u64 *sums) {
  SHARED(int, tile);
  __shared__ u64 warp_best[WARPS][TILE];
  __shared__ u64 warp_sums[WARPS][TILE];
  const Job job = jobs[blockIdx.y];
  const int width = (int)job.width;
  const int lane = (int)threadIdx.x % LANES, warp = (int)threadIdx.x / LANES;

  const int *mine = candidates + job.first * ints;
  for (int i = (int)threadIdx.x; i < width * ints; i += LANES * WARPS) tile[i] = mine[i];
  __syncthreads();

  u64 largest[TILE], total[TILE];
#pragma unroll
  for (int c = 0; c < TILE; c++) largest[c] = total[c] = 0;
  for (u64 row = (u64)blockIdx.x * WARPS + warp; row < job.count; row += (u64)gridDim.x * WARPS) {
    const int *components = job.rows + row * ints;
    int dot[TILE];
#pragma unroll
    for (int c = 0; c < TILE; c++) dot[c] = 0;
    for (int i = lane; i < ints; i += LANES) {
      const int both = components[i];
#pragma unroll
      for (int c = 0; c < TILE; c++)
        if (c < width) dot[c] += pair(both, tile[c * ints + i]);
    }
#pragma unroll
    for (int c = 0; c < TILE; c++) {
      if (c >= width) continue;
      for (int step = LANES / 2; step > 0; step /= 2) dot[c] += __shfl_xor_sync(0xffffffffu, dot[c], step);
      const u64 mark = key(dot[c], row);
      if (mark > largest[c]) largest[c] = mark;
      total[c] += (u64)(long long)dot[c];
    }
  }
  if (lane == 0) {
#pragma unroll
    for (int c = 0; c < TILE; c++) {
      warp_best[warp][c] = largest[c];
      warp_sums[warp][c] = total[c];
    }
  }
  __syncthreads();

  if ((int)threadIdx.x < width) {
    const int c = (int)threadIdx.x;
    u64 top = 0, sum = 0;
    for (int w = 0; w < WARPS; w++) {
      if (warp_best[w][c] > top) top = warp_best[w][c];
      sum += warp_sums[w][c];
    }
    atomicMax(best + job.first + c, top);
    atomicAdd(sums + job.first + c, sum);
  }
}
