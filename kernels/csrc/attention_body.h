// Attention of a step: heads are turned and K, V stored; then tasks, decode chunks and prefill
// blocks alike, are taken by whichever thread is free; then the chunks of long rows are merged.
// No task's arithmetic depends on another, so no answer depends on who took what.
#pragma once

#include <omp.h>

#include "attention_prefill.h"
// Where bf16 has products of its own, a file computes in that alone.
#if defined(__AMX_BF16__)
#define TS_BF16_ALONE
#include "attention_tiles.h"
#elif defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
#define TS_BF16_ALONE
#include "attention_bfmmla.h"
#endif

namespace {

// The products of prefill for a dtype.
template <class T>
struct Products {
    using Of = Floats<T>;
};
#if defined(__AMX_BF16__)
template <>
struct Products<bf16> {
    using Of = Tiles;
};
#elif defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
template <>
struct Products<bf16> {
    using Of = Fours;
};
#endif

// A decode chunk (keys from .. to of the one query, KV heads first .. stop; `partial` is where its
// states go, null: of this thread, to be answered at once), or a prefill block (queries from .. to,
// KV head first).
struct Task {
    int64_t sequence, from, to, first, stop;
    float *partial;
};

// A row of several chunks.
struct Merge {
    int64_t sequence, chunks;
    float *partial;
};

struct Plan {
    int64_t tasks, merges, blocks;  // blocks: how many of the tasks are prefill
    int64_t task_at, merge_at, partial_at, thread_at, thread_bytes, end;
};

inline int64_t decode_floats(const TsArena &a) {
    const int64_t step = padded(a.head_dim);
    return a.heads * step + a.heads * W +
           a.kv_heads * partial_floats(a.heads / a.kv_heads, a.head_dim);
}

inline int64_t thread_bytes(const TsArena &a) {
    // A chunk beyond any length has the largest block.
    const int64_t block = block_queries(a, INT64_MAX);
    int64_t most = Room<Floats<float>>(a, block).end;
    const int64_t own = Room<Products<bf16>::Of>(a, block).end;
    most = own > most ? own : most;
    const int64_t decode = rounded_up(4 * decode_floats(a), 64);
    // A page apart: threads must not write to each other's lines.
    return rounded_up(decode > most ? decode : most, 4096);
}

inline int64_t chunks_of(int64_t keys) { return (keys + CHUNK - 1) / CHUNK; }

// How a step is cut. With `fill`, the tasks are written to the scratch, the largest first.
inline Plan plan_step(const TsArena &a, const TsPaged &rows, bool fill) {
    Plan plan = {};
    const int64_t state = a.kv_heads * partial_floats(a.heads / a.kv_heads, a.head_dim);
    int64_t chunks = 0, kept = 0;
    for (int64_t i = 0; i < rows.sequences; ++i) {
        const int64_t count = rows.first_row[i + 1] - rows.first_row[i];
        if (count > 1) {
            const int64_t block = block_queries(a, count);
            plan.blocks += (count + block - 1) / block * a.kv_heads;
            continue;
        }
        const int64_t n = chunks_of(rows.start[i] + 1);
        chunks += n;
        if (n > 1) {
            ++plan.merges;
            kept += n;
        }
    }
    // Few chunks for the threads: each KV head is a task of its own.
    const bool by_head = chunks + plan.blocks < 2 * rows.threads;
    plan.tasks = plan.blocks + chunks * (by_head ? a.kv_heads : 1);
    plan.merge_at = rounded_up(plan.tasks * static_cast<int64_t>(sizeof(Task)), 64);
    plan.partial_at =
        rounded_up(plan.merge_at + plan.merges * static_cast<int64_t>(sizeof(Merge)), 64);
    plan.thread_at = rounded_up(plan.partial_at + 4 * kept * state, 4096);
    plan.thread_bytes = thread_bytes(a);
    plan.end = plan.thread_at + rows.threads * plan.thread_bytes;
    if (!fill) return plan;

    Task *task = reinterpret_cast<Task *>(rows.scratch);
    Merge *merge = reinterpret_cast<Merge *>(rows.scratch + plan.merge_at);
    float *partial = reinterpret_cast<float *>(rows.scratch + plan.partial_at);
    for (int64_t i = 0; i < rows.sequences; ++i) {
        const int64_t count = rows.first_row[i + 1] - rows.first_row[i];
        if (count < 2) continue;
        const int64_t block = block_queries(a, count);
        for (int64_t from = (count - 1) / block * block; from >= 0; from -= block)
            for (int64_t h = 0; h < a.kv_heads; ++h)
                *task++ = {i, from, from + block < count ? from + block : count, h, h + 1, nullptr};
    }
    for (int64_t i = 0; i < rows.sequences; ++i) {
        if (rows.first_row[i + 1] - rows.first_row[i] != 1) continue;
        const int64_t end = rows.start[i] + 1, n = chunks_of(end);
        if (n > 1) *merge++ = {i, n, partial};
        for (int64_t from = 0; from < end; from += CHUNK) {
            const int64_t to = from + CHUNK < end ? from + CHUNK : end;
            const int64_t wide = by_head ? 1 : a.kv_heads;
            for (int64_t h = 0; h < a.kv_heads; h += wide)
                *task++ = {i, from, to, h, h + wide, n > 1 ? partial : nullptr};
            if (n > 1) partial += state;
        }
    }
    return plan;
}

// The sequence of a row.
inline int64_t sequence_of(const TsPaged &rows, int64_t row) {
    int64_t low = 0, high = rows.sequences;
    while (high - low > 1) {
        const int64_t middle = (low + high) / 2;
        (rows.first_row[middle] <= row ? low : high) = middle;
    }
    return low;
}

// Norm and RoPE of one row's q, in place, and of its k, into its slot beside v.
template <class T>
void turn_row(const TsArena &a, const TsPaged &rows, const TsAttend &job, int64_t row) {
    const int64_t i = sequence_of(rows, row), dim = a.head_dim;
    const int64_t position = rows.start[i] + row - rows.first_row[i];
    const float *cos = a.cos + position * dim, *sin = a.sin + position * dim + dim / 2;
    T *q = static_cast<T *>(job.qkv) + row * (a.heads + 2 * a.kv_heads) * dim;
    for (int64_t h = 0; h < a.heads; ++h)
        turned_head(q + h * dim, job.q_norm, a.norm_eps, cos, sin, dim,
                    q + h * dim);
    const T *k = q + a.heads * dim;
    T *slot = const_cast<T *>(keys_of<T>(a, rows, i, job.layer).key(position));
    for (int64_t h = 0; h < a.kv_heads; ++h)
        turned_head(k + h * dim, job.k_norm, a.norm_eps, cos, sin, dim,
                    slot + h * dim);
    memcpy(slot + a.kv_heads * dim, k + a.kv_heads * dim,
           static_cast<size_t>(a.kv_heads * dim) * sizeof(T));
}

template <class T>
void decode_task(const TsArena &a, const TsPaged &rows, const TsAttend &job, const Task &task,
                 char *room) {
    const int64_t dim = a.head_dim, step = padded(dim), group = a.heads / a.kv_heads;
    const int64_t row = rows.first_row[task.sequence];
    const T *from = static_cast<const T *>(job.qkv) + row * (a.heads + 2 * a.kv_heads) * dim;
    auto *q = reinterpret_cast<typename Dots<T>::Query *>(room);
    vf *total = reinterpret_cast<vf *>(room + 4 * a.heads * step);
    float *partial = task.partial ? task.partial : reinterpret_cast<float *>(total + a.heads);
    for (int64_t h = task.first * group; h < task.stop * group; ++h)
        Dots<T>::take_query(from + h * dim, dim, q + h * step);
    decode_chunk(a, keys_of<T>(a, rows, task.sequence, job.layer), q, task.from, task.to,
                 task.first, task.stop, total, partial);
    if (!task.partial)
        merge_chunks(a, partial, 1, task.first, task.stop,
                     static_cast<T *>(job.out) + row * a.heads * dim);
}

// The first keys of a task that this thread is likely to take next.
template <class T>
void call_for_task(const TsArena &a, const TsPaged &rows, const TsAttend &job, const Task &task) {
    const Keys<T> keys = keys_of<T>(a, rows, task.sequence, job.layer);
    const int64_t stop = task.to - task.from < W ? task.to : task.from + W;
    for (int64_t p = task.from; p < stop; ++p)
        call_for(keys, keys.key(p) + task.first * a.head_dim,
                 (task.stop - task.first) * a.head_dim);
}

template <class P, class T>
void prefill_task(const TsArena &a, const TsPaged &rows, const TsAttend &job, const Task &task,
                  char *room) {
    const int64_t width = (a.heads + 2 * a.kv_heads) * a.head_dim;
    const int64_t row = rows.first_row[task.sequence];
    prefill_block<P, T>(a, keys_of<T>(a, rows, task.sequence, job.layer),
                        static_cast<const T *>(job.qkv) + row * width, width,
                        static_cast<T *>(job.out) + row * a.heads * a.head_dim,
                        rows.start[task.sequence], task.from, task.to - task.from, task.first,
                        room);
}

template <class T>
void attend(const TsArena &a, const TsPaged &rows, const TsAttend &job) {
    using P = typename Products<T>::Of;
    const Plan plan = plan_step(a, rows, true);
    const Task *tasks = reinterpret_cast<const Task *>(rows.scratch);
    const Merge *merges = reinterpret_cast<const Merge *>(rows.scratch + plan.merge_at);
    const int64_t count = rows.first_row[rows.sequences];
#pragma omp parallel num_threads(rows.threads)
    {
        char *room = rows.scratch + plan.thread_at + omp_get_thread_num() * plan.thread_bytes;
#pragma omp for schedule(static)
        for (int64_t row = 0; row < count; ++row) turn_row<T>(a, rows, job, row);
        char saved[64];
        if (plan.blocks) P::begin(saved);
#pragma omp for schedule(dynamic, 1)
        for (int64_t i = 0; i < plan.tasks; ++i) {
            if (i < plan.blocks) {
                prefill_task<P, T>(a, rows, job, tasks[i], room);
            } else {
                const int64_t ahead = i + omp_get_num_threads();
                if (ahead < plan.tasks) call_for_task<T>(a, rows, job, tasks[ahead]);
                decode_task<T>(a, rows, job, tasks[i], room);
            }
        }
        if (plan.blocks) P::end(saved);
        if (plan.merges) {
#pragma omp for schedule(static)
            for (int64_t i = 0; i < plan.merges; ++i)
                merge_chunks(a, merges[i].partial, merges[i].chunks, 0, a.kv_heads,
                             static_cast<T *>(job.out) + rows.first_row[merges[i].sequence] *
                                                             a.heads * a.head_dim);
        }
    }
}

int64_t scratch_bytes(const TsArena &a, const TsPaged &rows) {
    return plan_step(a, rows, false).end;
}

// What a file of one instruction set exports.
#if defined(TS_BF16_ALONE)
#define TS_KERNELS \
    { scratch_bytes, {nullptr, attend<bf16>}, {nullptr, normed<bf16>}, {nullptr, gated<bf16>} }
#else
#define TS_KERNELS                                                     \
    {                                                                  \
        scratch_bytes, {attend<float>, attend<bf16>, attend<f16>},     \
            {normed<float>, normed<bf16>, normed<f16>},                \
            {gated<float>, gated<bf16>, gated<f16>},                   \
    }
#endif

}  // namespace
