// The kernels that the tests run.
#pragma once

#include <mma.h>

#include "backends/cuda/device_compat.cuh"

__global__ void add_vectors(const float* a, const float* b, float* sum, int count);

/// out[block] = the sum of the block's elements, over shuffles and shared memory.
__global__ void sum_blocks(const float* in, float* out);

/// Every thread writes what the first one put into shared memory, with the barrier that takes or without.
template <bool kBarrier>
__global__ void spread_first(const float* in, float* out);

/// *total = the sum of `in`, one element a block: the block that ends last adds up what the others have left, with the
/// fences before and after the count, or without. Blocks of one thread; *counter is 0 before and after.
template <bool kBefore, bool kAfter>
__global__ void sum_over_blocks(const float* in, float* parts, unsigned* counter, float* total);

/// The reverse of each block's elements, through dynamic shared memory and a two-dimensional block.
__global__ void reverse_blocks(const int* in, int* out);

__global__ void barrier_for_half();
__global__ void shuffle_for_half();
__global__ void mixed_barriers();
__global__ void trap_in_thread(int thread);

/// What the functions of a warp return in each lane: see the test.
__global__ void ask_warp(unsigned* ballots, int* any, int* all, float* up, float* down, int* sums);

__global__ void count_atomically(int* count, unsigned* largest, float* total, unsigned long long* wide);

/// out[i] = in[i], copied asynchronously, waited for or not.
template <bool kWait>
__global__ void copy_tiles(const float4* in, float4* out);

/// c = a b for 16 x 16 tiles, a by rows and b by columns.
template <class T>
__global__ void multiply_tile(const T* a, const T* b, float* c, int depth);
__global__ void multiply_tile_tf32(const float* a, const float* b, float* c, int depth);

/// d[i] += a b[i] for the first `count` of three: a is [16][depth], each b is [depth][8], each d is [16][8]. Fragments
/// are filled by the formulas of the PTX ISA.
__global__ void multiply_fragments_bf16(const float* a, const float* b, float* d, int count);
__global__ void multiply_fragments_tf32(const float* a, const float* b, float* d, int count);
/// out[lane] = the words that ldmatrix gives it of 32 rows of eight elements.
template <bool kTransposed>
__global__ void load_fragments(const uint4* rows, uint4* out);

/// Each lane loads and stores every stride-th element.
__global__ void copy_strided(const float* in, float* out, int stride);
__global__ void copy_vectors(const float4* in, float4* out);
/// Writes a tile of shared memory by rows and reads it by columns.
template <int kColumns>
__global__ void transpose_tile(const float* in, float* out);

__global__ void fill_value(float* out, float value);
__global__ void write_past(float* out, int count);
