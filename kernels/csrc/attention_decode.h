// Attention of one query row over its sequence's pages, read where they lie, once.
//
// A row's keys are cut into chunks of CHUNK whoever else is in the step; each chunk is one online
// softmax in float32, the chunks of a row are merged in order. So a row's bits depend on that row
// alone, and a long row is still shared by all threads.
#pragma once

#include "attention_dots.h"

namespace {

constexpr int64_t CHUNK = 256;
// Query heads of one KV head that are computed together, in registers.
constexpr int TOGETHER = 4;
// Elements of the widest head, rounded up to whole vectors.
constexpr int64_t WIDEST = 256;

// A sequence's keys of one layer. K of position p starts at key(p), its V `width` elements on.
template <class T>
struct Keys {
    const T *pages;  // of this layer, in page 0
    int64_t page_elements, page_tokens, width;
    const int64_t *table;

    const T *key(int64_t p) const {
        return pages + table[p / page_tokens] * page_elements + p % page_tokens * 2 * width;
    }
};

template <class T>
Keys<T> keys_of(const TsArena &a, const TsPaged &rows, int64_t sequence, int64_t layer) {
    const int64_t width = a.kv_heads * a.head_dim;
    return {static_cast<const T *>(a.pages) + layer * a.page_tokens * 2 * width, a.page_elements,
            a.page_tokens, width, rows.pages + rows.first_page[sequence]};
}

// The state of one KV head's query heads: O [group, padded], then a largest score and a sum each.
inline int64_t partial_floats(int64_t group, int64_t dim) {
    return (group * (padded(dim) + 2) + 15) / 16 * 16;
}

// One block of n keys into the state of G query heads. A function of its own: put into its caller,
// four of them take the compiler a fifth longer and run no faster.
template <int G, class T>
__attribute__((noinline)) void block_of_keys(const typename Dots<T>::Query *q,
                                             const T *const *key, int64_t to_value, int n,
                                             int64_t dim, float scale, float *o, float *most,
                                             vf *total) {
    const int64_t step = padded(dim);
    const Weight<T> weight(scale);
    vf s[G];
    Dots<T>::template scores<G>(q, key, n, dim, s);
    for (int g = 0; g < G; ++g) {
        s[g] = first_lanes(s[g], n, -__builtin_inff());
        const float found = largest(s[g]);
        if (found > most[g]) {
            const vf shrink = weight(set(most[g]), found);
            most[g] = found;
            total[g] = total[g] * shrink;
            for (int64_t i = 0; i < step; i += W)
                store(o + g * step + i, load(o + g * step + i) * shrink);
        }
        s[g] = first_lanes(weight(s[g], most[g]), n, 0.0f);
        total[g] = total[g] + s[g];
    }
    const T *value[W];
#pragma GCC unroll 1
    for (int k = 0; k < n; ++k) value[k] = key[k] + to_value;
    Dots<T>::template weighted<G>(s, value, n, dim, o);
}

template <class T>
void some_heads(int64_t count, const typename Dots<T>::Query *q, const T *const *key,
                int64_t to_value, int n, int64_t dim, float scale, float *o, float *most,
                vf *total) {
    switch (count) {
        case 1: return block_of_keys<1>(q, key, to_value, n, dim, scale, o, most, total);
        case 2: return block_of_keys<2>(q, key, to_value, n, dim, scale, o, most, total);
        case 3: return block_of_keys<3>(q, key, to_value, n, dim, scale, o, most, total);
        default: return block_of_keys<4>(q, key, to_value, n, dim, scale, o, most, total);
    }
}

// Calls `count` elements of a key, and of its value, into the second-level cache: pages lie
// anywhere, no prefetcher guesses them. (The first level waits for ten lines at a time or so, the
// second for some fifty.)
template <class T>
inline void call_for(const Keys<T> &keys, const T *key, int64_t count) {
    const char *k = reinterpret_cast<const char *>(key);
    const char *v = reinterpret_cast<const char *>(key + keys.width);
    const int64_t bytes = count * static_cast<int64_t>(sizeof(T));
    for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(k + i, 0, 2);
    for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(v + i, 0, 2);
}

// Keys from .. to of one row, for KV heads first .. stop. q: the row's [heads, padded].
// partial: the states of all KV heads, `partial_floats` each. Layout of a state: O, largest, sums.
template <class T>
void decode_chunk(const TsArena &a, const Keys<T> &keys, const typename Dots<T>::Query *q,
                  int64_t from, int64_t to, int64_t first, int64_t stop, vf *total,
                  float *partial) {
    const int64_t group = a.heads / a.kv_heads, dim = a.head_dim, step = padded(dim);
    const int64_t size = partial_floats(group, dim), heads = stop - first;
    for (int64_t h = first; h < stop; ++h) {
        float *o = partial + h * size, *most = o + group * step;
        for (int64_t i = 0; i < group * step; i += W) store(o + i, set(0.0f));
        for (int64_t g = 0; g < group; ++g) {
            most[g] = -__builtin_inff();
            total[h * group + g] = set(0.0f);
        }
    }
    const T *key[W] = {}, *next[W] = {};
    int ahead = 0;
    const auto point = [&](int64_t p, const T **rows) {
        const int n = to - p < W ? static_cast<int>(to - p) : W;
        for (int k = 0; k < n; ++k) rows[k] = keys.key(p + k);
        return n < 0 ? 0 : n;
    };
    int n = point(from, key);
    for (int64_t p = from; p < to; p += W) {
        ahead = p + W < to ? point(p + W, next) : 0;
        for (int64_t h = first; h < stop; ++h) {
            // A part of the next block, in the order it lies in, of all heads that this task has.
            for (int64_t k = ahead * (h - first) / heads; k < ahead * (h - first + 1) / heads; ++k)
                call_for(keys, next[k] + first * dim, heads * dim);
            const T *here[W];
            for (int k = 0; k < n; ++k) here[k] = key[k] + h * dim;
            float *o = partial + h * size, *most = o + group * step;
            for (int64_t g = 0; g < group; g += TOGETHER) {
                const int64_t count = group - g < TOGETHER ? group - g : TOGETHER;
                some_heads(count, q + (h * group + g) * step, here, keys.width, n, dim, a.scale,
                           o + g * step, most + g, total + h * group + g);
            }
        }
        memcpy(key, next, sizeof key);
        n = ahead;
    }
    for (int64_t h = first; h < stop; ++h) {
        float *o = partial + h * size, *sums = o + group * step + group;
        for (int64_t g = 0; g < group; ++g) {
            sums[g] = sum(total[h * group + g]);
            Dots<T>::in_order(o + g * step, dim);
        }
    }
}

// The chunks' states of one row into its answer, out [heads, dim], for KV heads first .. stop.
template <class T>
void merge_chunks(const TsArena &a, const float *partial, int64_t chunks, int64_t first,
                  int64_t stop, T *out) {
    const int64_t group = a.heads / a.kv_heads, dim = a.head_dim, step = padded(dim);
    const int64_t size = partial_floats(group, dim), chunk = a.kv_heads * size;
    for (int64_t h = first * group; h < stop * group; ++h) {
        const int64_t g = h % group;
        const float *o = partial + h / group * size;
        const float *most = o + group * step + g, *total = most + group;
        float best = most[0];
        for (int64_t c = 1; c < chunks; ++c)
            best = most[c * chunk] > best ? most[c * chunk] : best;
        float all = 0.0f;
        alignas(64) float answer[WIDEST] = {};
        for (int64_t c = 0; c < chunks; ++c) {
            const vf share = Weight<T>(a.scale)(set(most[c * chunk]), best);
            alignas(64) float one[W];
            store(one, share);
            all += total[c * chunk] * one[0];
            for (int64_t i = 0; i < step; i += W)
                store(answer + i,
                      fma(load(o + c * chunk + g * step + i), share, load(answer + i)));
        }
        const vf inverse = set(1.0f / all);
        over(dim, [&](int64_t i, int n) { put(out + h * dim + i, load(answer + i) * inverse, n); });
    }
}

}  // namespace
